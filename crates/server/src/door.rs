//! Doors: the server's clients of other protocols. A door has their connections, and their answers
//! that wait for the log.
//!
//! A door belongs to one node, and executes requests on the node's shard. No other thread takes
//! part: a request is executed on the log where its bytes lie.
//!
//! ```text
//!  bytes ─► Protocol ─► executed on the shard ─► answer ─┬─ durable ─────► stream
//!              ▲                 │                       └─ not yet: queue ──┘
//!              └── again later ◄─┴─ not served now
//! ```
//!
//! - **Several requests of a connection** are executed in a row, and their answers leave together,
//!   once the log is durable up to the last of them.
//! - **A request that cannot be done now** (its tablet recovers, the cleaners are behind) is
//!   executed again a little later. If that goes on for too long, the client gets an error.
//! - **Messages to other connections** wait in the same way: they may tell of the update.
//!
//! [`memcached`] and [`redis`] are the protocols. [`cluster`] is a door whose objects are in
//! shards of the cluster, perhaps in other servers.

pub(crate) mod cluster;
pub(crate) mod memcached;
pub(crate) mod redis;

use crate::owner::Owner;
use cluster::{ClusterDoor, ClusterOptions};
use memcached::Memcached;
use redis::Redis;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thunderhead_master::Shard;
use thunderhead_net::ConnectionId;
use thunderhead_net::stream::{Opened, StreamAddress, Taken, Then};
use thunderhead_rpc::{Context, Node, Service};
use thunderhead_runtime::Time;
use thunderhead_runtime::names::Addresses;
use thunderhead_wire::control::Settings;
use thunderhead_wire::{LogPosition, MasterId, Status};

/// The bytes of answers that may wait for the log on one connection. Then no further request of it
/// is executed.
const WAITING_MAX: usize = 256 << 10;

/// The room for answers that is kept for the next connection.
const OUT_BYTES_KEPT: usize = 64 << 10;

/// The pause before a request that could not be done is executed again.
const PAUSE: Duration = Duration::from_millis(5);

/// The options of a door.
#[derive(Clone, Debug)]
pub struct DoorOptions {
    /// The places where it listens.
    pub listen: Vec<StreamAddress>,
    /// The protocol, with its own options.
    pub protocol: DoorProtocol,
    /// The places where it listens indeed, once it does: with the chosen ports.
    pub listens: Arc<OnceLock<Vec<StreamAddress>>>,
    /// The options if the objects are in a cluster. Then each shard has a door, and the doors
    /// forward connections to each other. Only for Redis.
    pub cluster: Option<ClusterOptions>,
}

/// The protocol of a door.
#[derive(Clone, Debug)]
pub enum DoorProtocol {
    /// That of memcached.
    Memcached(memcached::Options),
    /// That of Redis.
    Redis(redis::Options),
}

impl DoorOptions {
    /// Returns the options of a further server in this process. Its clients use the plain port of
    /// the first one, and cluster ports of its own.
    pub(crate) fn of_further_server(&self, number: u32, shards: u32) -> DoorOptions {
        let of_server = |it: &ClusterOptions| it.of_further_server(number, shards);
        let cluster = self.cluster.as_ref().map(of_server);
        DoorOptions { listen: Vec::new(), listens: Arc::default(), cluster, ..self.clone() }
    }

    /// Begins to listen for the doors of other servers, on any free port. Returns the address, and
    /// the number of the listener.
    pub(crate) fn listen_inside<S: Service>(
        node: &mut Node<S>,
        ip: IpAddr,
    ) -> io::Result<(SocketAddr, u32)> {
        let any = StreamAddress::Tcp(SocketAddr::new(ip, 0));
        match node.listen_stream(&any, Redis::FAREWELL)? {
            (StreamAddress::Tcp(address), listener) => Ok((address, listener)),
            (StreamAddress::Unix(..), _) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Begins to listen.
    pub(crate) fn listen<S: Service>(&self, node: &mut Node<S>) -> io::Result<()> {
        let farewell = match &self.protocol {
            DoorProtocol::Memcached(_) => Memcached::FAREWELL,
            DoorProtocol::Redis(_) => Redis::FAREWELL,
        };
        let mut listens = Vec::new();
        // A later generation of the server listens at the same ports.
        for at in self.listens.get().unwrap_or(&self.listen) {
            let (address, _) = node.listen_stream(at, farewell).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot listen at {at}: {error}"))
            })?;
            listens.push(address);
        }
        let _ = self.listens.set(listens);
        Ok(())
    }
}

/// The outcome of looking at the bytes of a connection.
pub(crate) enum Next {
    /// The first request is not complete.
    More,
    /// So many bytes are done.
    Done(usize),
    /// The answer is long. It goes on when the client has taken some of it.
    Later,
    /// The first request cannot be done now.
    Blocked(Status),
    /// It waits for work that must not be interrupted, such as the removal of all objects.
    Works,
    /// The request took so many bytes. Its answer comes later, and until then no further request
    /// of the connection is executed.
    Waits(usize),
    /// So many bytes are done, and the connection ends.
    End(usize),
}

/// All that a protocol needs to execute a request.
pub(crate) struct World<'w, 'c> {
    pub(crate) context: &'w mut Context<'c>,
    /// The shard, if the server serves now.
    pub(crate) shard: Option<&'w mut Shard>,
    /// The number of connections.
    pub(crate) connections: usize,
    /// The answers to the client.
    pub(crate) out: &'w mut Vec<u8>,
    /// The position up to which the log must be durable before the answers leave.
    pub(crate) until: LogPosition,
    /// The effects on other connections.
    pub(crate) others: &'w mut Others,
}

/// The effects of a request on other connections.
#[derive(Default)]
pub(crate) struct Others {
    /// Messages.
    pub(crate) messages: Vec<(ConnectionId, Vec<u8>)>,
    /// Connections that end.
    pub(crate) ended: Vec<ConnectionId>,
    /// Connections whose wait is over.
    pub(crate) woken: Vec<ConnectionId>,
}

impl Others {
    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.ended.is_empty() && self.woken.is_empty()
    }
}

/// A protocol: it reads requests, executes them and writes answers.
pub(crate) trait Protocol {
    /// The state of a connection.
    type Session;

    /// The answer to a connection for which there is no room.
    const FAREWELL: &'static [u8];

    /// How long a request is executed again before the client gets an error.
    const PATIENCE: Duration;

    /// The most connections.
    fn connections_max(&self) -> usize;

    /// Begins to serve, at the start of a generation.
    fn begin(&mut self, now: Time);

    fn opened(&mut self, now: Time, client: ConnectionId, opened: &Opened) -> Self::Session;

    /// Handles the end of a client's input: it waits for nothing any more.
    fn ended(&mut self, _: &Self::Session) {}

    fn closed(&mut self, client: ConnectionId, session: Self::Session);

    /// Executes the first request of some bytes.
    fn execute(
        &mut self,
        world: &mut World<'_, '_>,
        session: (ConnectionId, &mut Self::Session),
        bytes: &[u8],
    ) -> Next;

    /// Answers the first request, which was blocked for too long, with an error.
    fn give_up(
        &mut self,
        world: &mut World<'_, '_>,
        session: (ConnectionId, &mut Self::Session),
        bytes: &[u8],
        status: Status,
    ) -> Next;

    /// Counts the bytes of requests and of answers.
    fn count_bytes(&mut self, read: usize, written: usize);

    /// Counts an interruption of a connection so that others have their turn.
    fn count_yield(&mut self) {}

    /// Learns how far the log is durable.
    fn on_durable(&mut self, _: LogPosition) {}

    /// Whether [`Protocol::on_durable`] must be called.
    fn waits_for_log(&self) -> bool {
        false
    }

    /// The pause until [`Protocol::on_time`] is to be called, if it is.
    fn pause(&self, now: Time) -> Option<Duration>;

    /// Does the work for which the time has come.
    fn on_time(&mut self, world: &mut World<'_, '_>);
}

/// A connection.
struct Session<S> {
    own: S,
    /// Answers that wait until the log is durable up to a position.
    waiting: VecDeque<(LogPosition, Vec<u8>)>,
    waiting_bytes: usize,
    /// The position up to which the log must be durable before the next answer leaves: the client
    /// may take it for the answer to earlier requests that had none.
    until: LogPosition,
    /// The tries of the present request, if it could not be done.
    tries: Option<Tries>,
    /// Its request waits for an answer that comes later.
    waits: bool,
    /// The client sends no further bytes.
    has_last: bool,
    /// No further bytes are taken: the stream ends when all answers have left.
    is_ending: bool,
}

/// The tries of a request that could not be done.
#[derive(Clone, Copy, Debug)]
struct Tries {
    since: Time,
    count: u32,
}

impl Tries {
    fn begin(now: Time) -> Tries {
        Tries { since: now, count: 0 }
    }

    /// Counts a try; returns whether it was the last. Time in which the machine does not run
    /// this process is no patience: the cleaners had none of it either. So the tries of half of the
    /// time must have happened.
    fn count_try(&mut self, now: Time, patience: Duration) -> bool {
        self.count = self.count.saturating_add(1);
        now >= self.since + patience && PAUSE * self.count >= patience / 2
    }
}

impl<S> Session<S> {
    fn is_full(&self) -> bool {
        self.waiting_bytes >= WAITING_MAX
    }
}

/// The connection whose request has effects on others.
struct Own<'a, S> {
    id: ConnectionId,
    session: &'a mut Session<S>,
    out: &'a mut Vec<u8>,
}

/// See the module's documentation.
pub(crate) struct DoorOf<P: Protocol> {
    protocol: P,
    /// The place of a session is empty while its requests are executed.
    sessions: BTreeMap<ConnectionId, Option<Box<Session<P::Session>>>>,
    /// Connections with answers that wait for the log.
    waiting: Vec<ConnectionId>,
    /// Connections whose request is executed again when the timer runs out.
    paused: Vec<ConnectionId>,
    /// The time at which the next timer runs out.
    timer_at: Time,
    out: Vec<u8>,
    others: Others,
}

impl<P: Protocol> DoorOf<P> {
    fn new(protocol: P) -> DoorOf<P> {
        DoorOf {
            protocol,
            sessions: BTreeMap::new(),
            waiting: Vec::new(),
            paused: Vec::new(),
            timer_at: Time::NEVER,
            out: Vec::new(),
            others: Others::default(),
        }
    }

    fn opened(&mut self, context: &mut Context<'_>, stream: ConnectionId, opened: &Opened) {
        if self.sessions.len() >= self.protocol.connections_max() {
            context.send_bytes(stream, &[P::FAREWELL]);
            return context.finish_stream(stream);
        }
        let session = Session {
            own: self.protocol.opened(context.now(), stream, opened),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            until: LogPosition::default(),
            tries: None,
            waits: false,
            has_last: false,
            is_ending: false,
        };
        self.sessions.insert(stream, Some(Box::new(session)));
    }

    fn session(&mut self, stream: ConnectionId) -> Option<&mut Session<P::Session>> {
        self.sessions.get_mut(&stream)?.as_deref_mut()
    }

    fn closed(&mut self, _: &mut Context<'_>, stream: ConnectionId) {
        if let Some(session) = self.sessions.remove(&stream).flatten() {
            self.protocol.closed(stream, session.own);
        }
    }

    /// Handles the end of a client's input: the answers still leave.
    fn ended(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        if let Some(session) = self.sessions.get_mut(&stream).and_then(Option::as_deref_mut) {
            self.protocol.ended(&session.own);
            session.is_ending = true;
            if session.waiting.is_empty() {
                context.finish_stream(stream);
            }
        }
    }

    /// Handles the end of a client's input of which some bytes were not taken. A client that waits
    /// for an answer would get it after it is gone.
    fn ending(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        let Some(session) = self.session(stream) else { return };
        session.has_last = true;
        if session.waits {
            self.ended(context, stream);
        }
    }

    /// Executes the requests in the bytes of a connection.
    fn bytes(
        &mut self,
        context: &mut Context<'_>,
        mut shard: Option<&mut Shard>,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        let Some(mut session) = self.sessions.get_mut(&from).and_then(Option::take) else {
            return Taken::read_on(bytes.len());
        };
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let mut used = 0;
        let then = loop {
            if session.is_ending {
                used = bytes.len();
                break Then::Read;
            }
            if session.is_full() || session.waits {
                break Then::Wait;
            }
            if used > 0 && !context.may_go_on(from) || out.len() >= WAITING_MAX {
                self.protocol.count_yield();
                break Then::Again;
            }
            let rest = bytes.get(used..).unwrap_or_default();
            let mut world = World {
                context,
                shard: shard.as_deref_mut(),
                connections: self.sessions.len(),
                out: &mut out,
                until: session.until,
                others: &mut self.others,
            };
            let mut next = self.protocol.execute(&mut world, (from, &mut session.own), rest);
            if let Next::Blocked(status) = next {
                let now = world.context.now();
                let tries = session.tries.get_or_insert(Tries::begin(now));
                let is_last = tries.count_try(now, P::PATIENCE);
                if !is_last {
                    self.paused.push(from);
                    break Then::Wait;
                }
                // The next requests fail at once, as long as the cause lasts.
                let own = (from, &mut session.own);
                next = self.protocol.give_up(&mut world, own, rest, status);
            } else {
                session.tries = None;
            }
            session.until = world.until;
            let was_woken = self.others.woken.contains(&from);
            if !self.others.is_empty() {
                let until = session.until;
                let own = Own { id: from, session: &mut session, out: &mut out };
                self.affect_others(context, until, Some(own));
            }
            match next {
                Next::More => break Then::Read,
                Next::Done(taken) => used += taken,
                Next::Later => break Then::Again,
                Next::Works | Next::Blocked(_) => {
                    self.paused.push(from);
                    break Then::Wait;
                }
                // It may have been served at once.
                Next::Waits(taken) if was_woken => used += taken,
                Next::Waits(_) if session.has_last => {
                    self.protocol.ended(&session.own);
                    session.is_ending = true;
                }
                Next::Waits(taken) => {
                    used += taken;
                    session.waits = true;
                }
                Next::End(taken) => {
                    session.is_ending = true;
                    used += taken;
                }
            }
        };
        self.protocol.count_bytes(used, out.len());
        let durable = shard.map_or(LogPosition::default(), |shard| shard.durable());
        answer(context, &mut self.waiting, (from, &mut session), durable, &out);
        if session.is_ending && session.waiting.is_empty() {
            context.finish_stream(from);
        }
        out.clear();
        out.shrink_to(OUT_BYTES_KEPT);
        self.out = out;
        if let Some(place) = self.sessions.get_mut(&from) {
            *place = Some(session);
        }
        self.set_timer(context);
        Taken { bytes: used, then }
    }

    /// Applies the effects of a request, or of a timer, on other connections: sends messages, ends
    /// connections and waits. The log must be durable up to `until` before the messages leave.
    fn affect_others(
        &mut self,
        context: &mut Context<'_>,
        until: LogPosition,
        mut own: Option<Own<'_, P::Session>>,
    ) {
        let Others { messages, ended, woken } = std::mem::take(&mut self.others);
        for (to, message) in messages {
            match &mut own {
                Some(own) if own.id == to => own.out.extend_from_slice(&message),
                _ => {
                    let other = self.sessions.get_mut(&to).and_then(Option::as_deref_mut);
                    if let Some(other) = other {
                        other.until = other.until.max(until);
                        queue(&mut self.waiting, (to, other), &message);
                    }
                }
            }
        }
        for stream in woken {
            if let Some(own) = own.as_mut().filter(|own| own.id == stream) {
                own.session.waits = false;
            } else if let Some(other) = self.session(stream) {
                other.waits = false;
                context.resume_stream(stream);
            }
        }
        for stream in ended {
            match &mut own {
                Some(own) if own.id == stream => own.session.is_ending = true,
                _ => self.ended(context, stream),
            }
        }
    }

    /// Whether the door has work at the end of this turn.
    fn has_work(&self) -> bool {
        !self.waiting.is_empty() || self.protocol.waits_for_log()
    }

    /// Sends the answers that are durable now.
    fn turn_over(&mut self, context: &mut Context<'_>, durable: LogPosition) {
        self.protocol.on_durable(durable);
        let DoorOf { sessions, waiting, .. } = self;
        waiting.retain(|stream| {
            let session = sessions.get_mut(stream).and_then(Option::as_deref_mut);
            let Some(session) = session else { return false };
            let was_full = session.is_full();
            while session.waiting.front().is_some_and(|(until, _)| *until <= durable)
                && let Some((_, answer)) = session.waiting.pop_front()
            {
                session.waiting_bytes -= answer.len();
                context.send_bytes(*stream, &[&answer]);
            }
            if was_full && !session.is_full() {
                context.resume_stream(*stream);
            }
            if session.waiting.is_empty() && session.is_ending {
                context.finish_stream(*stream);
            }
            !session.waiting.is_empty()
        });
    }

    /// Sets a timer, if there is anything to do later.
    fn set_timer(&mut self, context: &mut Context<'_>) {
        let paused = (!self.paused.is_empty()).then_some(PAUSE);
        let now = context.now();
        let Some(pause) = paused.into_iter().chain(self.protocol.pause(now)).min() else { return };
        let at = now + pause;
        if at < self.timer_at {
            self.timer_at = at;
            context.set_timer(at, Owner::Door);
        }
    }

    /// Lets paused requests be executed again, and does the work for which the time has come.
    fn on_timer(&mut self, context: &mut Context<'_>, shard: Option<&mut Shard>) {
        if context.now() < self.timer_at {
            return; // An earlier one came first, and has set the next.
        }
        self.timer_at = Time::NEVER;
        for stream in std::mem::take(&mut self.paused) {
            context.resume_stream(stream);
        }
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let mut world = World {
            context,
            shard,
            connections: self.sessions.len(),
            out: &mut out,
            until: LogPosition::default(),
            others: &mut self.others,
        };
        self.protocol.on_time(&mut world);
        let until = world.until;
        self.out = out;
        if !self.others.is_empty() {
            self.affect_others(context, until, None);
        }
        self.set_timer(context);
    }
}

/// Sends answers, or queues them until they are durable.
fn answer<S>(
    context: &mut Context<'_>,
    waiting: &mut Vec<ConnectionId>,
    (to, session): (ConnectionId, &mut Session<S>),
    durable: LogPosition,
    out: &[u8],
) {
    if out.is_empty() {
        return;
    }
    if session.waiting.is_empty() && session.until <= durable {
        return context.send_bytes(to, &[out]);
    }
    queue(waiting, (to, session), out);
}

/// Queues bytes until all that the connection has seen so far is durable.
fn queue<S>(
    waiting: &mut Vec<ConnectionId>,
    (to, session): (ConnectionId, &mut Session<S>),
    out: &[u8],
) {
    if session.waiting.is_empty() {
        waiting.push(to);
    }
    session.waiting_bytes += out.len();
    session.waiting.push_back((session.until, out.to_vec()));
}

/// A door of any protocol.
pub(crate) enum Door {
    Memcached(Box<DoorOf<Memcached>>),
    Redis(Box<DoorOf<Redis>>),
    Cluster(Box<ClusterDoor>),
}

/// Calls a method of the door that it is.
macro_rules! either {
    ($door:expr, $it:ident => $call:expr) => {
        match $door {
            Door::Memcached($it) => $call,
            Door::Redis($it) => $call,
            Door::Cluster($it) => $call,
        }
    };
}

impl Door {
    pub(crate) fn new(options: &DoorOptions, coordinators: &Addresses) -> Door {
        match &options.protocol {
            DoorProtocol::Memcached(own) => {
                Door::Memcached(Box::new(DoorOf::new(Memcached::new(own))))
            }
            DoorProtocol::Redis(own) => match options.cluster.clone() {
                Some(cluster) => {
                    let door = ClusterDoor::new(own, cluster, coordinators.clone());
                    Door::Cluster(Box::new(door))
                }
                None => Door::Redis(Box::new(DoorOf::new(Redis::new(own)))),
            },
        }
    }

    /// Begins to serve, at the start of a generation.
    pub(crate) fn begin(
        &mut self,
        context: &mut Context<'_>,
        settings: &Settings,
        master: MasterId,
    ) {
        match self {
            Door::Memcached(door) => door.protocol.begin(context.now()),
            Door::Redis(door) => door.protocol.begin(context.now()),
            Door::Cluster(door) => door.begin(context, settings, master),
        }
    }

    /// Returns the door, if it is one of a cluster.
    pub(crate) fn in_cluster(&mut self) -> Option<&mut ClusterDoor> {
        match self {
            Door::Cluster(door) => Some(door),
            Door::Memcached(_) | Door::Redis(_) => None,
        }
    }

    pub(crate) fn opened(
        &mut self,
        context: &mut Context<'_>,
        stream: ConnectionId,
        opened: &Opened,
    ) {
        either!(self, door => door.opened(context, stream, opened));
    }

    pub(crate) fn closed(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        either!(self, door => door.closed(context, stream));
    }

    pub(crate) fn ended(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        either!(self, door => door.ended(context, stream));
    }

    pub(crate) fn ending(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        either!(self, door => door.ending(context, stream));
    }

    /// Executes the requests in the bytes of a connection.
    pub(crate) fn bytes(
        &mut self,
        context: &mut Context<'_>,
        shard: Option<&mut Shard>,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        either!(self, door => door.bytes(context, shard, from, bytes))
    }

    /// Whether the door has work at the end of this turn.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        either!(self, door => door.has_work())
    }

    /// Sends the answers that are durable now.
    pub(crate) fn turn_over(&mut self, context: &mut Context<'_>, durable: LogPosition) {
        either!(self, door => door.turn_over(context, durable));
    }

    pub(crate) fn on_timer(&mut self, context: &mut Context<'_>, shard: Option<&mut Shard>) {
        either!(self, door => door.on_timer(context, shard));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_given_up_after_its_time_and_never_for_a_stall_alone() {
        let patience = Duration::from_secs(2);
        let at = |milliseconds| Time::default() + Duration::from_millis(milliseconds);
        let mut tries = Tries::begin(at(0));
        for now in (0..2000).step_by(5) {
            assert!(!tries.count_try(at(now), patience), "{now}");
        }
        assert!(tries.count_try(at(2000), patience));
        // The process did not run for a minute.
        let mut tries = Tries::begin(at(0));
        assert!(!tries.count_try(at(0), patience));
        let over = (60_000..70_000).step_by(5).find(|now| tries.count_try(at(*now), patience));
        assert_eq!(over, Some(60_990));
    }
}
