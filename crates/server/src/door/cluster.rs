//! The door of a cluster: each shard has one, and the door of one shard executes all commands.
//!
//! The tables of Redis's databases lie beside each other, so one shard owns all of them. Its door
//! is the *owner's door*. A client may connect to any server: the door there forwards all bytes of
//! the connection to the owner's door, in both directions, and does not look at them. So
//! transactions, blocking commands and messages of channels need no code here.
//!
//! ```text
//!  client ──► door of any server ── stream ──► owner's door ──► executed on its shard
//!             New ► Waiting ► Opening ► Forwarded       Guest ► a client like all others
//! ```
//!
//! - **Search.** The coordinator's map has the shard that owns the table with the catalog. That
//!   shard tells the address of its door. While no shard serves the table, clients wait.
//! - **Greeting.** A stream to the owner's door begins with one line: the cluster, the table, the
//!   client's address and a digest of the password. The owner's door answers with a line, or closes
//!   the stream if its shard does not own the table. No byte of the client is sent before that
//!   answer. So a connection that finds no owner has executed nothing, and goes on waiting.
//! - **Refusal.** An error instead of the answer goes to the client: the owner's door has too many
//!   clients, or another password. The door that owns the tables checks the password of all
//!   clients. So it must have the password that each other server's operator relies on.
//! - **Crash of the owner.** The forwarded connections are closed, as at a failover of Redis: the
//!   doors do not know which of their commands were executed. Their clients connect again and wait
//!   here until another shard has the tables.
//! - **Taking over.** A shard that owns the table executes commands. When its door finds that for
//!   the first time, it forgets all that it knew about the databases ([`Databases::take_over`]).
//!
//! The ports for other doors have no password of their own, like all other ports between servers.
//! Commands pass through with the client's own `AUTH`. Any program may send a greeting, so a door
//! learns nothing from one: it knows the table from the coordinator's map alone.
//!
//! [`Databases::take_over`]: super::redis::Databases::take_over

mod greeting;

use super::redis::{self, Redis};
use super::{DoorOf, Protocol};
use crate::owner::Owner;
use greeting::{GREETING_BYTES_MAX, Greeting, OTHER_PASSWORD, READY, Received, Refusal, refusal};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thunderhead_master::Shard;
use thunderhead_master::coordinator_client::{CoordinatorClient, CoordinatorReply, QuestionId};
use thunderhead_net::ConnectionId;
use thunderhead_net::stream::{Opened, Taken, Then};
use thunderhead_rpc::{CallError, CallId, Context, Opcode};
use thunderhead_runtime::Time;
use thunderhead_runtime::names::Addresses;
use thunderhead_wire::control::{
    Empty, Map, MapRequest, ServerList, ServerState, Settings, of_body, to_body,
};
use thunderhead_wire::membership::FoundDoor;
use thunderhead_wire::{LogPosition, MasterId, Status, TableId};

/// The name of the table with the catalog.
pub const CATALOG_TABLE: &str = "redis";

/// How long a client waits for a shard that serves the tables. A recovery mostly takes less.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a door may take to accept a stream.
const OPENING: Duration = Duration::from_secs(1);

/// How long a shard may take to tell the address of its door.
const ASKING: Duration = Duration::from_millis(250);

/// The pause between two looks at the map while clients wait.
const SEARCH_PAUSE: Duration = Duration::from_millis(20);

/// The pause before bytes are offered again whose receiver does not read.
const FULL_PAUSE: Duration = Duration::from_millis(2);

/// The cost of forwarding some bytes.
const FORWARD: Duration = Duration::from_nanos(300);

/// The pause between two logged errors about the settings of servers.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(10);

/// The reply to a client for which no shard serves.
const LOADING: &[u8] = b"-LOADING No server has the keys at the moment. Try again later.\r\n";

/// A connection of a client that this door does not serve by itself, or of another door.
#[derive(Clone, Copy, Debug)]
struct Client {
    peer: Option<SocketAddr>,
    /// Since when its first bytes wait.
    since: Option<Time>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A client that has sent nothing yet, or waits for the owner's door.
    Waiting,
    /// The owner's door has not accepted the stream yet.
    Opening { upstream: ConnectionId, until: Time },
    /// All its bytes go to the owner's door.
    Forwarded { upstream: ConnectionId },
    /// A connection of another door without its greeting, which must come in time. If the greeting
    /// waits for the coordinator's map, `asked` is the number of maps that were read before.
    Guest { until: Time, asked: Option<u64> },
}

/// A stream to the owner's door.
#[derive(Clone, Copy, Debug)]
struct Upstream {
    client: ConnectionId,
    master: MasterId,
}

/// The owner's door.
#[derive(Clone, Copy, Debug)]
struct RemoteOwner {
    master: MasterId,
    door: SocketAddr,
}

/// See the module's documentation.
pub(crate) struct ClusterDoor {
    local: DoorOf<Redis>,
    options: redis::Options,
    /// The address for other doors, and the number of its listener.
    inside: Option<(SocketAddr, u32)>,
    /// The master of this shard.
    master: MasterId,
    /// The table with the catalog.
    table: Option<TableId>,
    /// The table that this shard has taken over.
    taken_over: Option<TableId>,
    coordinator: CoordinatorClient,
    question: Option<QuestionId>,
    /// The number of answers about the map.
    maps: u64,
    /// The question to the owner, at its address.
    call: Option<(CallId, MasterId, SocketAddr)>,
    owner: Option<RemoteOwner>,
    clients: BTreeMap<ConnectionId, Client>,
    upstreams: BTreeMap<ConnectionId, Upstream>,
    /// Streams whose bytes are offered again when the timer runs out.
    full: Vec<ConnectionId>,
    timer_at: Time,
    /// The time from which the next error about settings is logged.
    complains_from: Time,
}

impl ClusterDoor {
    pub(crate) fn new(options: &redis::Options, coordinators: Addresses) -> ClusterDoor {
        let mut options = options.clone();
        // All shards of the process have the same options. Each keeps the settings of its own
        // clients, and the next generation begins without them, as after a crash.
        options.settings = Arc::default();
        // A password of `CONFIG SET` would be lost when another shard takes over.
        options.server.may_set_password = false;
        ClusterDoor {
            local: DoorOf::new(Redis::new(&options)),
            options,
            inside: None,
            master: MasterId(0),
            table: None,
            taken_over: None,
            coordinator: CoordinatorClient::new(coordinators, Owner::ClusterDoorCoordinator),
            question: None,
            maps: 0,
            call: None,
            owner: None,
            clients: BTreeMap::new(),
            upstreams: BTreeMap::new(),
            full: Vec::new(),
            timer_at: Time::NEVER,
            complains_from: Time::default(),
        }
    }

    /// Begins to serve, at the start of a generation. No client is served before.
    pub(crate) fn begin(&mut self, now: Time, settings: &Settings, master: MasterId) {
        self.master = master;
        let server = &mut self.options.server;
        server.replicas = settings.replicas;
        server.is_kept = settings.replicas > 0;
        let longest = settings.segment_bytes as usize / 8;
        server.value_bytes_max = server.value_bytes_max.min(longest);
        self.local.protocol.set_options(&self.options);
        self.local.protocol.begin(now);
    }

    pub(crate) fn set_inside(&mut self, address: SocketAddr, listener: u32) {
        self.inside = Some((address, listener));
    }

    /// Returns the address for other doors.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.inside.map(|(address, _)| address)
    }

    pub(crate) fn opened(
        &mut self,
        context: &mut Context<'_>,
        stream: ConnectionId,
        opened: &Opened,
    ) {
        let Some(listener) = opened.listener else { return self.greet(context, stream) };
        let is_guest = self.inside.is_some_and(|(_, inside)| inside == listener);
        let count = self.clients.len() + self.local.sessions.len();
        if count >= self.local.protocol.connections_max() {
            context.send_bytes(stream, &[Redis::FAREWELL]);
            return context.finish_stream(stream);
        }
        let mut state = State::Waiting;
        if is_guest {
            state = State::Guest { until: context.now() + OPENING, asked: None };
            self.set_timer(context, OPENING);
        }
        self.clients.insert(stream, Client { peer: opened.peer, since: None, state });
    }

    /// Greets the owner's door, over a stream that has opened.
    fn greet(&self, context: &mut Context<'_>, stream: ConnectionId) {
        let client = self.upstreams.get(&stream).and_then(|it| self.clients.get(&it.client));
        let (Some(client), Some(table), Some(cluster)) = (client, self.table, context.cluster())
        else {
            return context.finish_stream(stream);
        };
        let greeting = Greeting { cluster: cluster.0, table, peer: client.peer };
        let line = greeting.line(self.options.server.password.as_deref());
        context.send_bytes(stream, &[line.as_bytes()]);
    }

    /// Handles bytes of a client, of another door, or of the owner's door.
    pub(crate) fn bytes(
        &mut self,
        context: &mut Context<'_>,
        shard: Option<&mut Shard>,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        if let Some(upstream) = self.upstreams.get(&from).copied() {
            return self.take_replies(context, (from, upstream), bytes);
        }
        let Some(client) = self.clients.get(&from).copied() else {
            // The shard may have lost the tables, and got them again, since the last command.
            self.owns(shard.as_deref());
            return self.local.bytes(context, shard, from, bytes);
        };
        match client.state {
            State::Forwarded { upstream } => self.forward(context, from, upstream, bytes),
            State::Opening { .. } => Taken { bytes: 0, then: Then::Wait },
            State::Guest { .. } => self.guest(context, shard, (from, client), bytes),
            State::Waiting if self.owns(shard.as_deref()) => {
                self.clients.remove(&from);
                let opened = Opened { listener: None, peer: client.peer };
                self.local.opened(context, from, &opened);
                self.local.bytes(context, shard, from, bytes)
            }
            State::Waiting => {
                self.wait(context, from);
                Taken { bytes: 0, then: Then::Wait }
            }
        }
    }

    /// Whether the shard of this door owns the tables. Takes over if it is new, or if the shard did
    /// not own them at an earlier call: another shard may have changed them meanwhile.
    fn owns(&mut self, shard: Option<&Shard>) -> bool {
        let owned = self.table.filter(|table| shard.is_some_and(|shard| shard.owns(*table)));
        let Some(table) = owned else {
            self.taken_over = None;
            return false;
        };
        if self.taken_over.replace(table) != Some(table) {
            tracing::info!(%table, master = %self.master, "this shard executes Redis's commands now");
            self.local.protocol.take_over(table, self.master);
        }
        true
    }

    /// Has a client wait for the owner's door, or requests a stream to it.
    fn wait(&mut self, context: &mut Context<'_>, from: ConnectionId) {
        let now = context.now();
        let Some(client) = self.clients.get_mut(&from) else { return };
        client.since.get_or_insert(now);
        match self.owner {
            Some(RemoteOwner { master, door }) => {
                let upstream = context.connect_stream(door);
                client.state = State::Opening { upstream, until: now + OPENING };
                self.upstreams.insert(upstream, Upstream { client: from, master });
            }
            None => self.search(context),
        }
        self.set_timer(context, SEARCH_PAUSE);
    }

    fn forward(
        &mut self,
        context: &mut Context<'_>,
        from: ConnectionId,
        to: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        if !context.takes_more(to) {
            self.full.push(from);
            self.set_timer(context, FULL_PAUSE);
            return Taken { bytes: 0, then: Then::Wait };
        }
        context.charge(FORWARD);
        context.send_bytes(to, &[bytes]);
        Taken::read_on(bytes.len())
    }

    /// Handles bytes of the owner's door: its answer to the greeting, then replies.
    fn take_replies(
        &mut self,
        context: &mut Context<'_>,
        (from, upstream): (ConnectionId, Upstream),
        bytes: &[u8],
    ) -> Taken {
        let to = upstream.client;
        let Some(client) = self.clients.get_mut(&to) else {
            context.finish_stream(from);
            return Taken::read_on(bytes.len());
        };
        if matches!(client.state, State::Forwarded { .. }) {
            return self.forward(context, from, to, bytes);
        }
        match bytes.strip_prefix(READY) {
            Some(_) => {
                client.state = State::Forwarded { upstream: from };
                client.since = None;
                context.resume_stream(to);
                Taken { bytes: READY.len(), then: Then::Again }
            }
            None if READY.starts_with(bytes) => Taken::read_on(0),
            None => match refusal(bytes) {
                Refusal::More => Taken::read_on(0),
                Refusal::Whole(line) => {
                    // The owner's door is there: a search would find the same one.
                    self.upstreams.remove(&from);
                    self.clients.remove(&to);
                    context.finish_stream(from);
                    context.send_bytes(to, &[line]);
                    context.finish_stream(to);
                    Taken::read_on(bytes.len())
                }
                Refusal::None => {
                    context.finish_stream(from);
                    self.lost(context, from);
                    Taken::read_on(bytes.len())
                }
            },
        }
    }

    /// Handles the greeting of another door.
    fn guest(
        &mut self,
        context: &mut Context<'_>,
        shard: Option<&mut Shard>,
        (from, client): (ConnectionId, Client),
        bytes: &[u8],
    ) -> Taken {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            if bytes.len() > GREETING_BYTES_MAX {
                context.finish_stream(from);
            }
            return Taken::read_on(0);
        };
        let line = bytes.get(..end).and_then(|line| std::str::from_utf8(line).ok());
        let cluster = context.cluster().map(|cluster| cluster.0);
        let received = line.and_then(Received::read);
        let received = received.filter(|it| Some(it.greeting.cluster) == cluster);
        let owns = self.owns(shard.as_deref());
        let is_known = |it: &Received<'_>| self.table == Some(it.greeting.table);
        let is_mine = owns && received.as_ref().is_some_and(is_known);
        if let Some(received) = &received
            && !owns
            && !is_known(received)
            && self.reads_map(context, from, client.state)
        {
            return Taken { bytes: 0, then: Then::Wait };
        }
        self.clients.remove(&from);
        let password = self.options.server.password.as_deref();
        match received.filter(|_| is_mine) {
            Some(received) if received.has_password(password) => {
                context.send_bytes(from, &[READY]);
                let opened = Opened { listener: None, peer: received.greeting.peer };
                self.local.opened(context, from, &opened);
            }
            Some(_) => {
                context.send_bytes(from, &[OTHER_PASSWORD]);
                context.finish_stream(from);
                if self.complains(context.now()) {
                    let server = client.peer.map(|peer| peer.ip());
                    tracing::error!(
                        ?server,
                        "another server has a different password for Redis's clients, which it cannot serve; set server.redis_password alike on all servers"
                    );
                }
            }
            None => context.finish_stream(from),
        }
        Taken { bytes: end + 1, then: Then::Again }
    }

    /// Lets a greeting wait for the map, unless it has waited for one.
    fn reads_map(&mut self, context: &mut Context<'_>, from: ConnectionId, state: State) -> bool {
        let State::Guest { until, asked } = state else { return false };
        let asked = asked.unwrap_or(self.maps);
        if asked != self.maps {
            return false;
        }
        if let Some(client) = self.clients.get_mut(&from) {
            client.state = State::Guest { until, asked: Some(asked) };
        }
        self.ask_for_map(context);
        true
    }

    /// Whether an error about settings is logged now. Each client could cause one.
    fn complains(&mut self, now: Time) -> bool {
        let complains = self.complains_from <= now;
        if complains {
            self.complains_from = now + COMPLAINT_PAUSE;
        }
        complains
    }

    /// Handles the failure of a stream to the owner's door.
    fn lost(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        let Some(Upstream { client: id, master }) = self.upstreams.remove(&stream) else { return };
        let Some(client) = self.clients.get_mut(&id) else { return };
        if self.owner.is_some_and(|owner| owner.master == master) {
            self.owner = None;
        }
        if matches!(client.state, State::Opening { .. }) {
            // Nothing was sent yet.
            client.state = State::Waiting;
            self.search_later(context);
        } else {
            self.clients.remove(&id);
            context.finish_stream(id);
        }
    }

    pub(crate) fn closed(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        if self.upstreams.contains_key(&stream) {
            return self.lost(context, stream);
        }
        match self.clients.remove(&stream).map(|client| client.state) {
            Some(State::Forwarded { upstream } | State::Opening { upstream, .. }) => {
                self.upstreams.remove(&upstream);
                context.finish_stream(upstream);
            }
            Some(State::Waiting | State::Guest { .. }) => {}
            None => self.local.closed(context, stream),
        }
    }

    /// Handles the end of a stream's input.
    pub(crate) fn ended(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        if let Some(upstream) = self.upstreams.get(&stream) {
            let client = self.clients.get(&upstream.client);
            let was_accepted = client.is_some_and(|it| matches!(it.state, State::Forwarded { .. }));
            // All replies have arrived: the owner's door has closed, as after `QUIT`.
            context.finish_stream(stream);
            let owner = self.owner;
            self.lost(context, stream);
            // The owner's door still accepts others, if it accepted this one.
            self.owner = self.owner.or(owner.filter(|_| was_accepted));
            return;
        }
        match self.clients.get(&stream).map(|client| client.state) {
            // The replies to its last commands still come.
            Some(State::Forwarded { upstream }) => context.end_output(upstream),
            Some(_) => context.finish_stream(stream),
            None => self.local.ended(context, stream),
        }
    }

    pub(crate) fn ending(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        if !self.upstreams.contains_key(&stream) && !self.clients.contains_key(&stream) {
            self.local.ending(context, stream);
        }
    }

    /// Takes a newer list of servers: streams to masters that are no longer up have failed.
    pub(crate) fn learn(&mut self, context: &mut Context<'_>, list: &ServerList) {
        let up = || list.servers.iter().filter(|server| server.state == ServerState::Up);
        let is_up = |master| up().flat_map(|it| &it.shards).any(|shard| shard.master == master);
        if self.owner.is_some_and(|owner| !is_up(owner.master)) {
            self.owner = None;
        }
        let failed = self.upstreams.iter().filter(|(_, upstream)| !is_up(upstream.master));
        for stream in failed.map(|(stream, _)| *stream).collect::<Vec<_>>() {
            context.finish_stream(stream);
            self.lost(context, stream);
        }
    }

    /// Asks for the owner of the tables, if clients wait for it.
    fn search(&mut self, context: &mut Context<'_>) {
        if self.call.is_none() && self.owner.is_none() {
            self.ask_for_map(context);
        }
    }

    fn ask_for_map(&mut self, context: &mut Context<'_>) {
        if self.question.is_some() {
            return;
        }
        let table = Some(CATALOG_TABLE.to_owned());
        let body = to_body(&MapRequest { table, ..MapRequest::default() });
        let asked = self.coordinator.ask(context, Owner::ClusterDoor, Opcode::Map, body);
        self.question = Some(asked);
    }

    fn search_later(&mut self, context: &mut Context<'_>) {
        self.set_timer(context, SEARCH_PAUSE);
    }

    pub(crate) fn on_coordinator_timer(&mut self, context: &mut Context<'_>) {
        self.coordinator.on_timer(context);
    }

    /// Takes the coordinator's answer about the owner.
    pub(crate) fn on_coordinator_reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        let reply = self.coordinator.reply(context, call, outcome);
        let CoordinatorReply::Answered { question, answer, .. } = reply else { return };
        if self.question != Some(question) {
            return;
        }
        self.question = None;
        self.maps += 1;
        match answer {
            Ok(body) => self.take_map(context, of_body::<Map>(&body)),
            Err(CallError::Refused { status: Status::NoSuchTable, .. }) => {
                self.table = None;
                self.options.databases.want_catalog();
            }
            Err(_) => {}
        }
        for (stream, client) in &self.clients {
            if matches!(client.state, State::Guest { asked: Some(_), .. }) {
                context.resume_stream(*stream);
            }
        }
    }

    fn take_map(&mut self, context: &mut Context<'_>, map: Option<Map>) {
        let Some(table) = map.and_then(|map| map.tables.into_iter().next()) else { return };
        self.table = Some(table.id);
        let Some(tablet) = table.tablets.first() else { return };
        if self.owner.is_some_and(|owner| owner.master != tablet.master) {
            self.owner = None;
        }
        if tablet.master != self.master {
            self.taken_over = None;
        }
        match tablet.address {
            // This shard: the clients are served now, or when it knows that it owns them.
            Some(_) if tablet.master == self.master => self.resume_waiting(context),
            Some(address) => {
                let (body, timeout) = (to_body(&Empty {}), Some(ASKING));
                let (owner, find) = (Owner::ClusterDoor, Opcode::FindDoor);
                let call = context.call(owner, address, find, &[&body], timeout);
                self.call = Some((call, tablet.master, address));
            }
            None => {}
        }
    }

    /// Takes the owner's answer about its door.
    pub(crate) fn on_found(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        let asked = self.call.filter(|(asked, ..)| *asked == call);
        let Some((_, master, address)) = asked else { return };
        self.call = None;
        match outcome.ok().and_then(of_body::<FoundDoor>) {
            Some(FoundDoor { address: Some(door) }) => {
                self.owner = Some(RemoteOwner { master, door });
                self.resume_waiting(context);
            }
            Some(FoundDoor { address: None }) if self.complains(context.now()) => tracing::error!(
                %master,
                %address,
                "the shard with the keys of Redis's clients has no door for them, so no server serves them; set server.redis on all servers"
            ),
            _ => {}
        }
    }

    /// Offers the bytes of all clients again that wait for the owner's door.
    fn resume_waiting(&self, context: &mut Context<'_>) {
        let waits = |client: &Client| client.state == State::Waiting && client.since.is_some();
        for (stream, _) in self.clients.iter().filter(|(_, client)| waits(client)) {
            context.resume_stream(*stream);
        }
    }

    fn set_timer(&mut self, context: &mut Context<'_>, pause: Duration) {
        let at = context.now() + pause;
        if at < self.timer_at {
            self.timer_at = at;
            context.set_timer(at, Owner::ClusterDoor);
        }
    }

    /// Searches for the owner again, and closes the connections of clients whose time has run out.
    pub(crate) fn on_search_timer(&mut self, context: &mut Context<'_>, shard: Option<&Shard>) {
        let now = context.now();
        if now < self.timer_at {
            return; // An earlier one came first, and has set the next.
        }
        self.timer_at = Time::NEVER;
        for stream in std::mem::take(&mut self.full) {
            context.resume_stream(stream);
        }
        let (mut waits, mut guests_until) = (false, None::<Time>);
        let (mut over, mut late, mut silent) = (Vec::new(), Vec::new(), Vec::new());
        for (stream, client) in &self.clients {
            match client.state {
                State::Guest { until, .. } if until <= now => silent.push(*stream),
                State::Guest { until, .. } => {
                    guests_until = Some(guests_until.map_or(until, |first| first.min(until)));
                }
                _ => {}
            }
            let Some(since) = client.since else { continue };
            waits = true;
            match client.state {
                _ if since + PATIENCE <= now => over.push((*stream, client.state)),
                State::Opening { upstream, until } if until <= now => late.push(upstream),
                _ => {}
            }
        }
        for (stream, state) in over {
            tracing::warn!("no shard has served Redis's keys for {PATIENCE:?}");
            self.clients.remove(&stream);
            if let State::Opening { upstream, .. } = state {
                self.upstreams.remove(&upstream);
                context.finish_stream(upstream);
            }
            context.send_bytes(stream, &[LOADING]);
            context.finish_stream(stream);
        }
        for stream in silent {
            self.clients.remove(&stream);
            context.finish_stream(stream);
        }
        if let Some(until) = guests_until {
            self.set_timer(context, until.since(now));
        }
        for upstream in late {
            context.finish_stream(upstream);
            self.lost(context, upstream);
        }
        if waits {
            if self.owner.is_some() || self.owns(shard) {
                self.resume_waiting(context);
            } else {
                self.search(context);
            }
            self.set_timer(context, SEARCH_PAUSE);
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.local.has_work()
    }

    pub(crate) fn turn_over(&mut self, context: &mut Context<'_>, durable: LogPosition) {
        self.local.turn_over(context, durable);
    }

    pub(crate) fn on_timer(&mut self, context: &mut Context<'_>, shard: Option<&mut Shard>) {
        if self.taken_over.is_some() {
            self.owns(shard.as_deref());
        }
        self.local.on_timer(context, shard);
    }
}
