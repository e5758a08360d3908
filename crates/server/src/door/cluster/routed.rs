//! The clients of the plain port if the keys have several parts: each has a [`Router`], and a
//! stream for each part that it has used.
//!
//! Such a stream is a *leg*. It is opened and greeted like that of a forwarded client, also if this
//! shard owns the part. So the owner's door serves it like any other client.
//!
//! While no shard serves a part, the commands for it wait, and so do the client's later ones. After
//! [`PATIENCE`] the client gets the same error as with one part, and its connection is closed.

use super::greeting::{READY, Refusal, refusal};
use super::{ClusterDoor, FORWARD, FULL_PAUSE, LOADING, OPENING, PATIENCE, SEARCH_PAUSE};
use super::{State, Upstream};
use std::collections::BTreeMap;
use thunderhead_doors::resp::{Effects, Parts, Router, Wish};
use thunderhead_master::Shard;
use thunderhead_net::ConnectionId;
use thunderhead_net::stream::{Taken, Then};
use thunderhead_rpc::Context;
use thunderhead_runtime::Time;

/// The bytes that a leg gets at once. The transport closes a stream for which too many bytes wait,
/// but one command may be longer.
const PIECE_BYTES: usize = 1 << 20;

/// The stream of a client to a part.
#[derive(Debug)]
struct Leg {
    /// The time from which on the client waits for it.
    since: Time,
    stream: Option<ConnectionId>,
    /// The time at which the owner's door must have accepted it.
    until: Time,
    is_open: bool,
    /// Bytes that wait for room in the stream, and the number of bytes that it has taken of them.
    unsent: Vec<u8>,
    sent: usize,
    /// Whether no more bytes follow them, which the owner's door does not know yet.
    ends: bool,
}

impl Leg {
    /// Sends bytes as long as the stream takes more; returns whether it has taken all.
    fn send(&mut self, context: &mut Context<'_>) -> bool {
        let Some(stream) = self.stream else { return true };
        while let Some(rest) = self.unsent.get(self.sent..).filter(|rest| !rest.is_empty()) {
            if !context.takes_more(stream) {
                return false;
            }
            let piece = rest.get(..PIECE_BYTES).unwrap_or(rest);
            context.send_bytes(stream, &[piece]);
            self.sent += piece.len();
        }
        (self.unsent, self.sent) = (Vec::new(), 0);
        // The greeting of a leg that is not open comes first.
        if self.is_open && std::mem::take(&mut self.ends) {
            context.end_output(stream);
        }
        true
    }
}

/// A client of the plain port.
pub(super) struct Routed {
    router: Router,
    legs: BTreeMap<u32, Leg>,
}

impl Routed {
    /// Whether the leg to a part is open.
    pub(super) fn is_open(&self, part: u32) -> bool {
        self.legs.get(&part).is_some_and(|leg| leg.is_open)
    }

    /// Whether it waits for legs.
    pub(super) fn waits(&self) -> bool {
        self.legs.values().any(|leg| !leg.is_open)
    }
}

fn taken((bytes, wish): (usize, Wish)) -> Taken {
    let then = match wish {
        Wish::Read => Then::Read,
        Wish::Again => Then::Again,
        Wish::Wait => Then::Wait,
    };
    Taken { bytes, then }
}

impl ClusterDoor {
    /// Returns the number of parts, if it is known and a client of the plain port needs a router.
    pub(super) fn several_parts(&self) -> Option<Parts> {
        self.cluster.parts.recorded().filter(|parts| *parts != Parts::ONE)
    }

    /// Begins to route the commands of a client.
    pub(super) fn begin_routing(&mut self, client: ConnectionId, parts: Parts) {
        self.routed_count += 1;
        let router = Router::new(parts, &self.options.server, self.routed_count);
        self.routed.insert(client, Box::new(Routed { router, legs: BTreeMap::new() }));
        if let Some(client) = self.clients.get_mut(&client) {
            // From now on it waits for legs, each of which has its own time.
            (client.state, client.since) = (State::Routed, None);
        }
    }

    /// Handles bytes of a client.
    pub(super) fn route(
        &mut self,
        context: &mut Context<'_>,
        shard: Option<&Shard>,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        let Some(routed) = self.routed.get_mut(&from) else {
            return Taken::read_on(bytes.len());
        };
        let is_full = |leg: &Leg| {
            !leg.unsent.is_empty() || leg.stream.is_some_and(|stream| !context.takes_more(stream))
        };
        if !context.takes_more(from) || routed.legs.values().any(is_full) {
            return self.wait_for_room(context, from);
        }
        let mut effects = Effects::default();
        let done = routed.router.take_commands(bytes, &mut effects);
        // A command has about so many bytes.
        context.charge(FORWARD * (1 + done.0 / 64) as u32);
        self.carry_out(context, from, effects);
        self.open_legs(context, shard, from);
        taken(done)
    }

    /// Has the bytes of a stream wait until their receiver reads.
    fn wait_for_room(&mut self, context: &mut Context<'_>, from: ConnectionId) -> Taken {
        self.full.push(from);
        self.set_timer(context, FULL_PAUSE);
        Taken { bytes: 0, then: Then::Wait }
    }

    /// Handles bytes of a leg: the answer to the greeting, then replies.
    pub(super) fn take_of_leg(
        &mut self,
        context: &mut Context<'_>,
        (from, upstream): (ConnectionId, Upstream),
        bytes: &[u8],
    ) -> Taken {
        let (to, part) = (upstream.client, upstream.part);
        let Some(routed) = self.routed.get_mut(&to) else {
            context.finish_stream(from);
            return Taken::read_on(bytes.len());
        };
        let Some(leg) = routed.legs.get_mut(&part).filter(|leg| leg.stream == Some(from)) else {
            context.finish_stream(from);
            return Taken::read_on(bytes.len());
        };
        let mut effects = Effects::default();
        if leg.is_open {
            if !context.takes_more(to) {
                return self.wait_for_room(context, from);
            }
            context.charge(FORWARD);
            let done = routed.router.take_replies(part, bytes, &mut effects);
            self.carry_out(context, to, effects);
            let Ok(done) = done else {
                tracing::error!(part, "the replies of a part make no sense to the router");
                self.end_routing(context, to);
                return Taken::read_on(bytes.len());
            };
            return taken(done);
        }
        if bytes.starts_with(READY) {
            leg.is_open = true;
            routed.router.opened(part, &mut effects);
            self.carry_out(context, to, effects);
            return Taken { bytes: READY.len(), then: Then::Again };
        }
        match refusal(bytes) {
            _ if READY.starts_with(bytes) => Taken::read_on(0),
            Refusal::More => Taken::read_on(0),
            Refusal::Whole(line) => {
                routed.router.failed(part, line, &mut effects);
                self.close_leg(context, to, part);
                self.carry_out(context, to, effects);
                Taken::read_on(bytes.len())
            }
            Refusal::None => {
                context.finish_stream(from);
                self.lost(context, from);
                Taken::read_on(bytes.len())
            }
        }
    }

    /// Carries out the effects of bytes of a client or of a leg.
    fn carry_out(&mut self, context: &mut Context<'_>, client: ConnectionId, effects: Effects) {
        if !effects.replies.is_empty() {
            context.send_bytes(client, &[&effects.replies]);
        }
        effects.closes.iter().for_each(|part| self.close_leg(context, client, *part));
        let Some(routed) = self.routed.get_mut(&client) else { return };
        for (part, bytes) in effects.sends {
            if let Some(leg) = routed.legs.get_mut(&part).filter(|leg| leg.stream.is_some()) {
                match leg.unsent.is_empty() {
                    true => leg.unsent = bytes,
                    false => leg.unsent.extend_from_slice(&bytes),
                }
            }
        }
        for part in &effects.ends_inputs {
            if let Some(leg) = routed.legs.get_mut(part) {
                leg.ends = true;
            }
        }
        for part in &effects.resumes {
            if let Some(stream) = routed.legs.get(part).and_then(|leg| leg.stream) {
                context.resume_stream(stream);
            }
        }
        let (since, until) = (context.now(), Time::NEVER);
        for part in effects.opens {
            let unsent = Vec::new();
            let (stream, is_open, sent, ends) = (None, false, 0, false);
            let leg = Leg { since, stream, until, is_open, unsent, sent, ends };
            routed.legs.insert(part, leg);
        }
        if effects.ends_legs {
            routed.legs.values_mut().for_each(|leg| leg.ends = true);
        }
        self.send_to_legs(context, client);
        if effects.resumes_client {
            context.resume_stream(client);
        }
        if effects.ends {
            self.end_routing(context, client);
        }
    }

    /// Opens the legs that a client waits for, if the owners of their parts are known.
    pub(super) fn open_legs(
        &mut self,
        context: &mut Context<'_>,
        shard: Option<&Shard>,
        client: ConnectionId,
    ) {
        let Some(routed) = self.routed.get(&client).filter(|routed| routed.waits()) else { return };
        let closed = routed.legs.iter().filter(|(_, leg)| leg.stream.is_none());
        for number in closed.map(|(part, _)| *part).collect::<Vec<_>>() {
            let own = self.ports.as_ref().map(|ports| ports.inside.0);
            let own = own.filter(|_| self.owns(shard, number)).map(|door| (door, self.master));
            let Some(part) = self.parts.get_mut(number as usize) else { continue };
            let Some((door, master)) = own.or(part.owner.as_ref().map(|it| (it.door, it.master)))
            else {
                part.search(context, &mut self.coordinator);
                continue;
            };
            let stream = context.connect_stream(door);
            self.upstreams.insert(stream, Upstream { client, part: number, master });
            let leg = self.routed.get_mut(&client).and_then(|it| it.legs.get_mut(&number));
            if let Some(leg) = leg {
                (leg.stream, leg.until) = (Some(stream), context.now() + OPENING);
            }
        }
        self.set_timer(context, SEARCH_PAUSE);
    }

    /// Sends the bytes that wait for room in the streams of a client's legs.
    fn send_to_legs(&mut self, context: &mut Context<'_>, client: ConnectionId) {
        let Some(routed) = self.routed.get_mut(&client) else { return };
        let mut is_done = true;
        for leg in routed.legs.values_mut().filter(|it| it.ends || !it.unsent.is_empty()) {
            is_done &= leg.send(context);
        }
        if !is_done {
            self.full.push(client);
            self.set_timer(context, FULL_PAUSE);
        }
    }

    /// Goes on with all streams whose bytes have waited for room.
    pub(super) fn resume_full(&mut self, context: &mut Context<'_>) {
        let mut full = std::mem::take(&mut self.full);
        full.sort_unstable();
        full.dedup();
        for stream in full {
            self.send_to_legs(context, stream);
            context.resume_stream(stream);
        }
    }

    fn close_leg(&mut self, context: &mut Context<'_>, client: ConnectionId, part: u32) {
        let leg = self.routed.get_mut(&client).and_then(|routed| routed.legs.remove(&part));
        if let Some(stream) = leg.and_then(|leg| leg.stream) {
            self.upstreams.remove(&stream);
            context.finish_stream(stream);
        }
    }

    /// Handles the failure of a leg. Its stream is forgotten already.
    pub(super) fn lost_leg(
        &mut self,
        context: &mut Context<'_>,
        stream: ConnectionId,
        (client, part): (ConnectionId, u32),
    ) {
        let Some(routed) = self.routed.get_mut(&client) else { return };
        let Some(leg) = routed.legs.get_mut(&part).filter(|leg| leg.stream == Some(stream)) else {
            return;
        };
        if !leg.is_open {
            // Nothing was sent yet.
            leg.stream = None;
            return self.set_timer(context, SEARCH_PAUSE);
        }
        routed.legs.remove(&part);
        if routed.router.lost(part) {
            self.end_routing(context, client);
        }
    }

    /// Closes the connection of a client and its legs.
    fn end_routing(&mut self, context: &mut Context<'_>, client: ConnectionId) {
        self.forget_routed(context, client);
        self.clients.remove(&client);
        context.finish_stream(client);
    }

    /// Closes the legs of a client.
    pub(super) fn forget_routed(&mut self, context: &mut Context<'_>, client: ConnectionId) {
        let Some(routed) = self.routed.remove(&client) else { return };
        for stream in routed.legs.values().filter_map(|leg| leg.stream) {
            self.upstreams.remove(&stream);
            context.finish_stream(stream);
        }
    }

    /// Handles the end of a client's input. `waits`: some bytes of it wait.
    pub(super) fn routed_input_ends(
        &mut self,
        context: &mut Context<'_>,
        client: ConnectionId,
        waits: bool,
    ) {
        let Some(routed) = self.routed.get_mut(&client) else { return };
        let mut effects = Effects::default();
        match waits {
            true => routed.router.input_ending(&mut effects),
            false => routed.router.input_ended(&mut effects),
        }
        self.carry_out(context, client, effects);
    }

    /// Opens the legs that clients wait for. If a client has waited too long for a leg, its
    /// commands for that part get an error. Returns whether clients still wait.
    pub(super) fn on_leg_timer(
        &mut self,
        context: &mut Context<'_>,
        shard: Option<&Shard>,
    ) -> bool {
        let now = context.now();
        let (mut over, mut late, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for (client, routed) in self.routed.iter().filter(|(_, routed)| routed.waits()) {
            waiting.push(*client);
            for (part, leg) in routed.legs.iter().filter(|(_, leg)| !leg.is_open) {
                match leg.stream {
                    _ if leg.since + PATIENCE <= now => over.push((*client, *part)),
                    Some(stream) if leg.until <= now => late.push(stream),
                    _ => {}
                }
            }
        }
        for (client, part) in over {
            tracing::warn!(part, "no shard has served Redis's keys for {PATIENCE:?}");
            self.close_leg(context, client, part);
            let Some(routed) = self.routed.get_mut(&client) else { continue };
            let mut effects = Effects::default();
            routed.router.failed(part, LOADING, &mut effects);
            self.carry_out(context, client, effects);
        }
        for stream in late {
            context.finish_stream(stream);
            self.lost(context, stream);
        }
        for client in &waiting {
            self.open_legs(context, shard, *client);
        }
        !waiting.is_empty()
    }
}
