//! The door of a cluster: each shard has one, and the door of the shard that owns a part of the
//! keys executes its commands.
//!
//! The tables of a [`Part`] lie beside each other, so one shard owns all of them. Its door is the
//! *owner's door*. A client may connect to any server: the door there forwards all bytes of the
//! connection to the owner's door, in both directions, and does not look at them. So transactions,
//! blocking commands and messages of channels need no code here.
//!
//! ```text
//!  client ──► door of any server ── stream ──► owner's door ──► executed on its shard
//!             New ► Waiting ► Opening ► Forwarded       Guest ► a client like all others
//! ```
//!
//! - **Ports.** A client of the plain port belongs to part 0 if that is the only one. Otherwise its
//!   commands are divided among the parts ([`routed`]). A cluster port is that of one part, which
//!   is a node for clients that know the slots of keys ([`ports`]).
//! - **Search.** The coordinator's map has the shard that owns the table with the catalog of a
//!   part. That shard tells the addresses of its door. While no shard serves the part, clients
//!   wait. A door with cluster ports searches for the owners of all parts, so that it can tell them
//!   to clients.
//! - **Greeting.** A stream to the owner's door begins with one line: the cluster, the table, the
//!   client's address, its port and a digest of the password. The owner's door answers with a line,
//!   or closes the stream if its shard does not own the table. No byte of the client is sent before
//!   that answer. So a connection that finds no owner has executed nothing, and goes on waiting.
//! - **Refusal.** If the owner's door has too many clients, or another password, it sends an
//!   error in place of the answer, and the client gets this error. The owner's door checks the
//!   password of all clients. So all servers must have the same password.
//! - **Crash of the owner.** The forwarded connections are closed, as at a failover of Redis: the
//!   doors do not know which of their commands were executed. Their clients connect again and wait
//!   here until another shard has the tables.
//! - **Taking over.** A shard that owns the table executes commands. When its door first finds that
//!   its shard owns the table, the door forgets all that it knew about the databases
//!   ([`Databases::take_over`]).
//!
//! The ports for other doors have no password of their own, like all other ports between servers.
//! Commands pass through with the client's own `AUTH`. Any program may send a greeting, so a door
//! learns nothing from one: it knows the table from the coordinator's map alone.
//!
//! [`Databases::take_over`]: super::redis::Databases::take_over

mod greeting;
mod part;
mod ports;
mod routed;
mod search;

pub(crate) use ports::Ports;
pub use ports::{Announce, ClusterOptions};

use super::redis::{self, Redis, Strays};
use super::{Protocol, Session};
use crate::owner::Owner;
use greeting::{GREETING_BYTES_MAX, Greeting, OTHER_PASSWORD, READY, Received, Refusal, refusal};
use part::Part;
use routed::Routed;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_doors::resp::{Node, Port};
use thunderhead_master::Shard;
use thunderhead_master::coordinator_client::CoordinatorClient;
use thunderhead_net::ConnectionId;
use thunderhead_net::stream::{Opened, Taken, Then};
use thunderhead_rpc::Context;
use thunderhead_runtime::Time;
use thunderhead_runtime::names::Addresses;
use thunderhead_wire::control::{ServerList, ServerState, Settings};
use thunderhead_wire::membership::FoundDoor;
use thunderhead_wire::{LogPosition, MasterId};

/// The name of the table with the catalog of the first part. It also has the number of parts.
pub const CATALOG_TABLE: &str = "redis";

/// Returns the name of the table with the catalog of a part.
#[must_use]
pub fn catalog_table(part: u32) -> String {
    match part {
        0 => CATALOG_TABLE.to_owned(),
        part => format!("{CATALOG_TABLE}/{part}"),
    }
}

/// How long a client waits for a shard that serves the tables. A recovery mostly takes less.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a door may take to accept a stream.
const OPENING: Duration = Duration::from_secs(1);

/// How long a shard may take to tell the address of its door.
const ASKING: Duration = Duration::from_millis(250);

/// The pause between two looks at the map while clients wait.
const SEARCH_PAUSE: Duration = Duration::from_millis(20);

/// The pause between two looks at the map without such clients, for the replies about nodes.
const WATCH_PAUSE: Duration = Duration::from_millis(100);

/// How long evicted collections wait for the door of their part.
const STRAYS_PATIENCE: Duration = Duration::from_secs(1);

/// The pause before bytes are offered again whose receiver does not read.
const FULL_PAUSE: Duration = Duration::from_millis(2);

/// The cost of forwarding some bytes.
const FORWARD: Duration = Duration::from_nanos(300);

/// The pause between two logged errors about the settings of servers.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(10);

/// The reply to a client for which no shard serves.
const LOADING: &[u8] = b"-LOADING No server has the keys at the moment. Try again later.\r\n";

/// The same on a cluster port.
const CLUSTER_DOWN: &[u8] =
    b"-CLUSTERDOWN No server has the slots of this node at the moment. Try again later.\r\n";

/// The reply to all clients of a server whose operator wants another number of parts.
const OTHER_PARTS: &[u8] =
    b"-ERR the keys of this cluster are divided into another number of parts \
than this server's setting says: set server.redis_parts alike on all servers\r\n";

/// A connection of a client that this door does not serve by itself, or of another door.
#[derive(Clone, Copy, Debug)]
struct Client {
    peer: Option<SocketAddr>,
    /// The part that executes its commands.
    part: u32,
    port: Port,
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
    /// Each of its commands goes to the part of its keys: see [`Routed`].
    Routed,
    /// A connection of another door without its greeting, which must come in time. `asked`: the
    /// greeting waits for the coordinator's map, or has waited for it.
    Guest { until: Time, asked: bool },
}

/// A stream to the owner's door.
#[derive(Clone, Copy, Debug)]
struct Upstream {
    client: ConnectionId,
    part: u32,
    master: MasterId,
}

/// See the module's documentation.
pub(crate) struct ClusterDoor {
    /// The parts that are known: only the first one before their number was read.
    parts: Vec<Part>,
    /// The parts of clients whose commands are executed here, if it is not the first part.
    places: BTreeMap<ConnectionId, u32>,
    options: redis::Options,
    cluster: ClusterOptions,
    /// The time at which it began to serve.
    began: Option<Time>,
    ports: Option<Ports>,
    /// The master of this shard.
    master: MasterId,
    coordinator: CoordinatorClient,
    clients: BTreeMap<ConnectionId, Client>,
    upstreams: BTreeMap<ConnectionId, Upstream>,
    /// The clients of the plain port if there are several parts, and the number of all such ones.
    routed: BTreeMap<ConnectionId, Box<Routed>>,
    routed_count: u64,
    /// Streams whose bytes are offered again when the timer runs out.
    full: Vec<ConnectionId>,
    timer_at: Time,
    /// The time of the next look at the map for the replies about nodes, and the part that it is
    /// about.
    watches_at: Time,
    watched: usize,
    /// The nodes that the parts were told.
    nodes: Vec<Option<Node>>,
    /// Evicted objects for the doors of other parts, and the time until which they are kept.
    strays: Rc<RefCell<Strays>>,
    strays_until: Option<Time>,
    /// The time from which the next error about settings is logged.
    complains_from: Time,
}

impl ClusterDoor {
    pub(crate) fn new(
        options: &redis::Options,
        cluster: ClusterOptions,
        coordinators: Addresses,
    ) -> ClusterDoor {
        let mut options = options.clone();
        // A password of `CONFIG SET` would be lost when another shard takes over.
        options.server.may_set_password = false;
        ClusterDoor {
            parts: vec![Part::new(0, &options, &cluster)],
            places: BTreeMap::new(),
            options,
            cluster,
            began: None,
            ports: None,
            master: MasterId(0),
            coordinator: CoordinatorClient::new(coordinators, Owner::ClusterDoorCoordinator),
            clients: BTreeMap::new(),
            upstreams: BTreeMap::new(),
            routed: BTreeMap::new(),
            routed_count: 0,
            full: Vec::new(),
            timer_at: Time::NEVER,
            watches_at: Time::default(),
            watched: 0,
            nodes: Vec::new(),
            strays: Rc::default(),
            strays_until: None,
            complains_from: Time::default(),
        }
    }

    /// Begins to serve, at the start of a generation. No client is served before.
    pub(crate) fn begin(
        &mut self,
        context: &mut Context<'_>,
        settings: &Settings,
        master: MasterId,
    ) {
        self.master = master;
        let server = &mut self.options.server;
        server.replicas = settings.replicas;
        server.is_kept = settings.replicas > 0;
        let longest = settings.segment_bytes as usize / 8;
        server.value_bytes_max = server.value_bytes_max.min(longest);
        self.began = Some(context.now());
        self.parts = vec![self.new_part(0)];
        if self.has_cluster_ports() {
            self.set_timer(context, WATCH_PAUSE);
        }
    }

    fn new_part(&self, number: u32) -> Part {
        let mut part = Part::new(number, &self.options, &self.cluster);
        if let Some(began) = self.began {
            part.local.protocol.begin(began);
        }
        part
    }

    /// Makes the parts, once their number is known.
    fn grow(&mut self) {
        let Some(parts) = self.cluster.parts.recorded() else { return };
        let known = self.parts.len() as u32;
        if known == parts.count() {
            return;
        }
        let more: Vec<Part> = (known..parts.count()).map(|part| self.new_part(part)).collect();
        self.parts.extend(more);
        for (number, part) in (0..).zip(&mut self.parts) {
            part.local.protocol.set_strays(number, Rc::clone(&self.strays));
        }
        self.nodes = vec![None; self.parts.len()];
        self.give_nodes();
    }

    pub(crate) fn set_ports(&mut self, ports: Ports) {
        self.ports = Some(ports);
    }

    fn has_cluster_ports(&self) -> bool {
        self.ports.as_ref().is_some_and(|ports| !ports.of_parts.is_empty())
    }

    /// Returns the addresses for other doors and for clients.
    pub(crate) fn found(&self) -> FoundDoor {
        let Some(ports) = &self.ports else {
            return FoundDoor { address: None, ports: Vec::new() };
        };
        let of_parts = ports.of_parts.iter().map(|(port, _)| port.clone()).collect();
        FoundDoor { address: Some(ports.inside.0), ports: of_parts }
    }

    fn part(&mut self, number: u32) -> Option<&mut Part> {
        self.parts.get_mut(number as usize)
    }

    /// Returns the part that executes the commands of a connection here.
    fn part_of(&mut self, stream: ConnectionId) -> Option<&mut Part> {
        let number = self.places.get(&stream).copied().unwrap_or(0);
        self.part(number)
    }

    /// Returns the kind of a listener's port, and its part; `None` for the port for other doors.
    fn port_of(&self, listener: u32) -> Option<(Port, u32)> {
        let Some(ports) = &self.ports else { return Some((Port::Plain, 0)) };
        if ports.inside.1 == listener {
            return None;
        }
        let of_part = ports.of_parts.iter().position(|(_, own)| *own == listener);
        Some(of_part.map_or((Port::Plain, 0), |part| (Port::Cluster, part as u32)))
    }

    pub(crate) fn opened(
        &mut self,
        context: &mut Context<'_>,
        stream: ConnectionId,
        opened: &Opened,
    ) {
        let Some(listener) = opened.listener else { return self.greet(context, stream) };
        let executed: usize = self.parts.iter().map(|part| part.local.sessions.len()).sum();
        if self.clients.len() + executed >= self.options.server.clients_max {
            context.send_bytes(stream, &[Redis::FAREWELL]);
            return context.finish_stream(stream);
        }
        let (mut state, port) = (State::Waiting, self.port_of(listener));
        if port.is_none() {
            state = State::Guest { until: context.now() + OPENING, asked: false };
            self.set_timer(context, OPENING);
        }
        let (port, part) = port.unwrap_or_default();
        let client = Client { peer: opened.peer, part, port, since: None, state };
        self.clients.insert(stream, client);
    }

    /// Begins to execute the commands of a connection here.
    fn execute_here(
        &mut self,
        context: &mut Context<'_>,
        stream: ConnectionId,
        (number, port, peer): (u32, Port, Option<SocketAddr>),
    ) {
        let Some(part) = self.parts.get_mut(number as usize) else { return };
        part.local.opened(context, stream, &Opened { listener: None, peer });
        if port != Port::Plain
            && let Some(Session { own: client, .. }) = part.local.session(stream)
        {
            let client = *client;
            part.local.protocol.set_port(client, port);
        }
        if number != 0 {
            self.places.insert(stream, number);
        }
    }

    /// Greets the owner's door, over a stream that has opened.
    fn greet(&self, context: &mut Context<'_>, stream: ConnectionId) {
        let upstream = self.upstreams.get(&stream);
        let client = upstream.and_then(|it| self.clients.get(&it.client));
        let part = upstream.and_then(|it| self.parts.get(it.part as usize));
        let table = part.and_then(|part| part.table);
        let (Some(client), Some(table), Some(cluster)) = (client, table, context.cluster()) else {
            return context.finish_stream(stream);
        };
        let is_of_cluster = client.port != Port::Plain;
        let greeting = Greeting { cluster: cluster.0, table, peer: client.peer, is_of_cluster };
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
            let master = self.master;
            let Some(part) = self.part_of(from) else { return Taken::read_on(bytes.len()) };
            part.owns(shard.as_deref(), master);
            return part.local.bytes(context, shard, from, bytes);
        };
        match client.state {
            State::Forwarded { upstream } => self.forward(context, from, upstream, bytes),
            State::Opening { .. } => Taken { bytes: 0, then: Then::Wait },
            State::Guest { .. } => self.guest(context, shard, (from, client), bytes),
            State::Waiting if self.has_other_parts() => {
                self.refuse(context, from, OTHER_PARTS);
                Taken::read_on(bytes.len())
            }
            State::Routed => self.route(context, shard.as_deref(), from, bytes),
            State::Waiting
                if client.port == Port::Plain
                    && let Some(parts) = self.several_parts() =>
            {
                self.grow();
                self.begin_routing(from, parts);
                self.route(context, shard.as_deref(), from, bytes)
            }
            State::Waiting if self.owns(shard.as_deref(), client.part) => {
                self.clients.remove(&from);
                self.execute_here(context, from, (client.part, client.port, client.peer));
                self.tell_nodes(context);
                let Some(part) = self.part_of(from) else { return Taken::read_on(bytes.len()) };
                part.local.bytes(context, shard, from, bytes)
            }
            State::Waiting => {
                self.wait(context, from);
                Taken { bytes: 0, then: Then::Wait }
            }
        }
    }

    /// Whether the operator of this server wants another number of parts.
    fn has_other_parts(&self) -> bool {
        let wanted = self.cluster.parts.wanted();
        self.cluster.parts.recorded().is_some_and(|parts| parts != wanted)
    }

    /// Ends a connection with an error.
    fn refuse(&mut self, context: &mut Context<'_>, stream: ConnectionId, error: &[u8]) {
        self.forget_routed(context, stream);
        self.clients.remove(&stream);
        context.send_bytes(stream, &[error]);
        context.finish_stream(stream);
    }

    /// Whether the shard of this door owns a part: see [`Part::owns`].
    fn owns(&mut self, shard: Option<&Shard>, part: u32) -> bool {
        self.grow();
        let (master, is_known) = (self.master, self.cluster.parts.recorded().is_some());
        is_known && self.part(part).is_some_and(|part| part.owns(shard, master))
    }

    /// Has a client wait for the owner's door, or requests a stream to it.
    fn wait(&mut self, context: &mut Context<'_>, from: ConnectionId) {
        let now = context.now();
        let Some(client) = self.clients.get_mut(&from) else { return };
        client.since.get_or_insert(now);
        let number = client.part;
        let is_known = self.cluster.parts.recorded().is_some();
        if let Some(part) = self.parts.get_mut(number as usize) {
            match part.owner.as_ref().filter(|_| is_known) {
                Some(owner) => {
                    let upstream = context.connect_stream(owner.door);
                    client.state = State::Opening { upstream, until: now + OPENING };
                    let master = owner.master;
                    let of_client = Upstream { client: from, part: number, master };
                    self.upstreams.insert(upstream, of_client);
                }
                None => part.search(context, &mut self.coordinator),
            }
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
        match client.state {
            State::Forwarded { .. } => return self.forward(context, from, to, bytes),
            State::Routed => return self.take_of_leg(context, (from, upstream), bytes),
            _ => {}
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
        self.grow();
        let named = received.as_ref().map(|it| it.greeting.table);
        let part = self.parts.iter().position(|part| part.table.is_some() && part.table == named);
        if received.is_some() && part.is_none() && self.reads_maps(context, from, client.state) {
            return Taken { bytes: 0, then: Then::Wait };
        }
        let part = part.unwrap_or_default() as u32;
        let is_mine = self.owns(shard.as_deref(), part)
            && self.part(part).is_some_and(|part| part.table == named);
        self.clients.remove(&from);
        let password = self.options.server.password.as_deref();
        match received.filter(|_| is_mine) {
            Some(received) if received.has_password(password) => {
                context.send_bytes(from, &[READY]);
                let Greeting { peer, is_of_cluster, .. } = received.greeting;
                let port = if is_of_cluster { Port::Forwarded } else { Port::Plain };
                self.execute_here(context, from, (part, port, peer));
                self.tell_nodes(context);
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

    /// Lets a greeting wait for the map of each part, unless it has waited for them.
    fn reads_maps(&mut self, context: &mut Context<'_>, from: ConnectionId, state: State) -> bool {
        let State::Guest { until, asked } = state else { return false };
        if asked {
            return self.parts.iter().any(|part| part.question.is_some());
        }
        if let Some(client) = self.clients.get_mut(&from) {
            client.state = State::Guest { until, asked: true };
        }
        for part in &mut self.parts {
            part.ask_for_map(context, &mut self.coordinator);
        }
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
        let Some(upstream) = self.upstreams.remove(&stream) else { return };
        let Upstream { client: id, part, master } = upstream;
        let Some(client) = self.clients.get_mut(&id) else { return };
        if let Some(part) = self.parts.get_mut(part as usize) {
            part.owner.take_if(|owner| owner.master == master);
        }
        if matches!(client.state, State::Opening { .. }) {
            // Nothing was sent yet.
            client.state = State::Waiting;
            self.set_timer(context, SEARCH_PAUSE);
        } else if client.state == State::Routed {
            self.lost_leg(context, stream, (id, part));
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
            Some(State::Routed) => self.forget_routed(context, stream),
            Some(State::Waiting | State::Guest { .. }) => {}
            None => {
                if let Some(part) = self.part_of(stream) {
                    part.local.closed(context, stream);
                }
                self.places.remove(&stream);
            }
        }
    }

    /// Handles the end of a stream's input.
    pub(crate) fn ended(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        if let Some(upstream) = self.upstreams.get(&stream).copied() {
            let client = self.clients.get(&upstream.client);
            let routed = self.routed.get(&upstream.client);
            let was_accepted = client.is_some_and(|it| matches!(it.state, State::Forwarded { .. }))
                || routed.is_some_and(|routed| routed.is_open(upstream.part));
            // All replies have arrived: the owner's door has closed, as after `QUIT`.
            context.finish_stream(stream);
            let owner = self.part(upstream.part).and_then(|part| part.owner.clone());
            self.lost(context, stream);
            // The owner's door still accepts others, if it accepted this one.
            if let Some(part) = self.part(upstream.part)
                && part.owner.is_none()
            {
                part.owner = owner.filter(|_| was_accepted);
            }
            return;
        }
        match self.clients.get(&stream).map(|client| client.state) {
            // The replies to its last commands still come.
            Some(State::Forwarded { upstream }) => context.end_output(upstream),
            Some(State::Routed) => self.routed_input_ends(context, stream, false),
            Some(_) => context.finish_stream(stream),
            None => {
                if let Some(part) = self.part_of(stream) {
                    part.local.ended(context, stream);
                }
            }
        }
    }

    pub(crate) fn ending(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        self.routed_input_ends(context, stream, true);
        if !self.upstreams.contains_key(&stream)
            && !self.clients.contains_key(&stream)
            && let Some(part) = self.part_of(stream)
        {
            part.local.ending(context, stream);
        }
    }

    /// Takes a newer list of servers: streams to masters that are no longer up have failed.
    pub(crate) fn learn(&mut self, context: &mut Context<'_>, list: &ServerList) {
        let up = || list.servers.iter().filter(|server| server.state == ServerState::Up);
        let is_up = |master| up().flat_map(|it| &it.shards).any(|shard| shard.master == master);
        for part in &mut self.parts {
            part.owner.take_if(|owner| !is_up(owner.master));
        }
        let failed = self.upstreams.iter().filter(|(_, upstream)| !is_up(upstream.master));
        for stream in failed.map(|(stream, _)| *stream).collect::<Vec<_>>() {
            context.finish_stream(stream);
            self.lost(context, stream);
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
        self.resume_full(context);
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
                _ if since + PATIENCE <= now => over.push((*stream, *client)),
                State::Opening { upstream, until } if until <= now => late.push(upstream),
                _ => {}
            }
        }
        for (stream, client) in over {
            let part = client.part;
            tracing::warn!(part, "no shard has served Redis's keys for {PATIENCE:?}");
            if let State::Opening { upstream, .. } = client.state {
                self.upstreams.remove(&upstream);
                context.finish_stream(upstream);
            }
            let is_plain = client.port == Port::Plain;
            self.refuse(context, stream, if is_plain { LOADING } else { CLUSTER_DOWN });
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
        let routes = self.on_leg_timer(context, shard);
        if waits || routes {
            self.search_for_clients(context, shard);
            self.set_timer(context, SEARCH_PAUSE);
        }
        if self.has_cluster_ports() && self.began.is_some() {
            self.watch(context, shard);
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.parts.iter().any(|part| part.local.has_work()) || !self.strays.borrow().is_empty()
    }

    pub(crate) fn turn_over(&mut self, context: &mut Context<'_>, durable: LogPosition) {
        for part in &mut self.parts {
            part.local.turn_over(context, durable);
        }
        if self.strays.borrow().is_empty() {
            self.strays_until = None;
            return;
        }
        // Another part of this shard has them. If none has, they are of a dropped table.
        let now = context.now();
        match self.strays_until {
            Some(until) if until <= now => self.strays.borrow_mut().clear(),
            Some(_) => {}
            None => {
                self.strays_until = Some(now + STRAYS_PATIENCE);
                for part in self.parts.iter_mut().filter(|part| part.taken_over.is_some()) {
                    part.local.protocol.sweep_at(now);
                    part.local.set_timer(context);
                }
            }
        }
    }

    pub(crate) fn on_timer(&mut self, context: &mut Context<'_>, mut shard: Option<&mut Shard>) {
        let master = self.master;
        for part in &mut self.parts {
            if part.taken_over.is_some() {
                part.owns(shard.as_deref(), master);
            }
            part.local.on_timer(context, shard.as_deref_mut());
        }
    }
}
