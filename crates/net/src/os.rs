//! The transport over sockets and shared memory of this machine.
//!
//! # How a poll finds work
//!
//! A poll asks epoll for ready connections, and reads each ready connection once. There are two
//! short cuts, because asking epoll would cost more than reading. Connections over shared memory
//! are looked at directly. So is the *hot* connection, from which the last several messages all
//! came (a server with one busy client, a client that waits for its reply); epoll does not even
//! watch it. While a short cut counts, epoll is asked only every 40 microseconds, or after 4 if it
//! reported an event the last time. It is asked in every poll again once no short cut has found
//! anything for 20 microseconds: silent connections must not delay the others.
//!
//! # Shared memory
//!
//! A server names a door in its greeting, an abstract Unix socket with a random name, and a token.
//! A client on the same host knocks there and presents the token. The server hands over the rings,
//! and the connection continues in them instead of the socket. If any step fails, the connection
//! stays on the socket.

mod accept;
mod budget;
mod connection;
mod door;
mod held_input;
mod hot;
mod socket;
mod stream;
#[cfg(test)]
mod tests;
mod turn;

use crate::budget::half;
use crate::peer::{Cause, ConnectionId, Counters, Limits, Peer};
use crate::stream::StreamAddress;
use crate::table::{self, Table};
use crate::{Handler, OwnCluster, Transport};
use crate::{room, shm};
use connection::{Carrier, Connection, Stage};
use door::Doorway;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use stream::Listener;
use thunderhead_runtime::buffer_pool::BufferPool;
use thunderhead_runtime::os::{Poller, Ready, expect_returns};
use thunderhead_runtime::{Time, World};

/// How long epoll is not asked while a short cut counts. Asking then costs little in comparison,
/// and no other connection waits longer than this.
const LOOK_EVERY: Duration = Duration::from_micros(40);

/// The same, if epoll reported an event the last time.
const LOOK_SOON: Duration = Duration::from_micros(4);

/// How long a short cut counts after it has found something. Then idle short cuts do not delay
/// other connections.
const LEADS_FOR: Duration = Duration::from_micros(20);

/// How much longer epoll is not asked, if no moment comes at which asking costs nothing.
const LOOK_SLACK: Duration = Duration::from_micros(20);

/// Consecutive messages from one connection that make it a short cut.
const STREAK: u32 = 8;

/// The closed rings whose memory may stay mapped while turns have much other work.
const RETIRED_MAX: usize = 4;

/// Bytes per read.
const READ_BYTES: usize = 64 << 10;

/// The most buffers that are kept for long messages, and the largest such buffer.
const SPARES_MAX: usize = 16;
const SPARE_BYTES_MAX: usize = 2 << 20;

/// Messages of at least this length leave at once, without being copied.
const LONG_BYTES: usize = 32 << 10;

/// The interval at which deadlines are checked.
const SWEEP: Duration = Duration::from_millis(100);

/// If no turn happens for this long although one was requested, this process itself was stopped.
const STALL: Duration = Duration::from_secs(1);

/// Options of the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The limits of connections.
    pub limits: Limits,
    /// The features of this end.
    pub features: u64,
    /// The cluster of this end, as known when the transport is made.
    pub cluster: OwnCluster,
    /// Whether to use shared memory if both ends share a host.
    pub shared_memory: bool,
    /// Bytes of the ring in each direction: a power of two.
    pub ring_bytes: usize,
    /// The same if both ends have [`LONG_MESSAGES`](thunderhead_wire::frame::LONG_MESSAGES).
    pub long_ring_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            limits: Limits::default(),
            features: 0,
            cluster: OwnCluster::Unknown,
            shared_memory: true,
            ring_bytes: 128 << 10,
            long_ring_bytes: 1 << 20,
        }
    }
}

/// The transport of this machine. The fields that most messages touch come first: after a sleep
/// none of them is in the processor's cache.
#[repr(C)]
pub struct OsTransport {
    connections: Table<Connection>,
    now: Time,
    /// The time to ask epoll even if a short cut counts.
    next_look: Time,
    /// The time until which a short cut counts.
    leads_until: Time,
    next_sweep: Time,
    /// The peers' deadlines were extended once, and no sweep has happened since.
    forgave: bool,
    /// The connection of the last messages, and their number.
    last: Option<(ConnectionId, u32)>,
    /// The connection that every poll reads and epoll does not watch.
    hot: Option<ConnectionId>,
    woke: bool,
    /// A message was sent since the last turn.
    sent: bool,
    /// This turn has asked epoll.
    looked: bool,
    /// The kernel was called, and functions that were active then will return.
    entered: bool,
    /// All connections together hold much, or did and some of them still wait for their turn.
    tight: bool,
    /// A listener or the door was taken out of epoll because descriptors ran out.
    not_listening: bool,
    /// The bytes waiting for a peer above which no more requests are taken from it: below the limit
    /// while all connections together hold much.
    waiting_bytes_high: usize,
    /// The held bytes of all connections above which the budget's marks must be checked.
    held_bytes_mark: u64,
    /// Epoll's last report, until it has been processed.
    ready: Vec<Ready>,
    scratch: Vec<u8>,
    /// Connections with bytes to send.
    unsent: Vec<ConnectionId>,
    /// Connections over shared memory.
    rings: Vec<ConnectionId>,
    /// Connections that may continue with bytes that were read from them before.
    resumed: Vec<ConnectionId>,
    /// Connections over rings with pages that are not faulted in yet.
    bare: Vec<ConnectionId>,
    /// Memory of closed rings that is still mapped.
    retired: Vec<shm::RetiredMapping>,
    /// Further messages wait for the next poll: see [`Transport::hold_input`].
    holds_input: bool,
    /// The source at which the last poll held its input.
    held_at: Option<held_input::Source>,
    /// Failed connections of which the handler has not been told yet.
    failed: Vec<(ConnectionId, Cause)>,
    counters: Counters,
    options: Options,
    poller: Poller,
    /// Connections that may have a deadline; no other has one.
    timed: BTreeSet<ConnectionId>,
    /// Connections that wait for room for the long message that they have begun.
    queued: VecDeque<ConnectionId>,
    /// Provisional connections in order of arrival; some have greeted since, or are closed.
    provisional: VecDeque<ConnectionId>,
    /// Buffers of past long messages, for the next ones.
    buffer_pool: BufferPool<Vec<u8>>,
    listeners: Vec<Listener>,
    doorway: Option<Doorway>,
    /// The lack of descriptors has been logged.
    warned: bool,
    /// The version of the shared memory's layout that is announced to clients.
    layout_version: u32,
}

impl OsTransport {
    /// Returns a transport for the reactor of this world.
    ///
    /// # Errors
    /// If the kernel has no more descriptors.
    pub fn new(world: &World, options: Options) -> std::io::Result<OsTransport> {
        Ok(OsTransport {
            waiting_bytes_high: options.limits.waiting_bytes_high,
            held_bytes_mark: half(options.limits.held_bytes_max) as u64,
            tight: false,
            queued: VecDeque::new(),
            provisional: VecDeque::new(),
            options,
            poller: Poller::new(world.alarm.clone())?,
            connections: Table::default(),
            listeners: Vec::new(),
            buffer_pool: BufferPool::new(SPARES_MAX, 2 * READ_BYTES + 1..=SPARE_BYTES_MAX),
            doorway: None,
            counters: Counters::default(),
            now: world.clock.now(),
            ready: Vec::new(),
            woke: false,
            next_look: Time(0),
            leads_until: Time(0),
            forgave: false,
            sent: false,
            looked: false,
            entered: false,
            last: None,
            hot: None,
            rings: Vec::new(),
            unsent: Vec::new(),
            resumed: Vec::new(),
            bare: Vec::new(),
            retired: Vec::new(),
            holds_input: false,
            held_at: None,
            timed: BTreeSet::new(),
            failed: Vec::new(),
            next_sweep: Time(0),
            not_listening: false,
            warned: false,
            scratch: vec![0; READ_BYTES],
            layout_version: shm::LAYOUT_VERSION,
        })
    }

    /// Announces another version of the shared memory's layout to clients: for tests.
    pub fn pretend_layout_version(&mut self, version: u32) {
        self.layout_version = version;
    }

    /// Writes the waiting bytes of all connections, once for each.
    #[inline(always)]
    fn write_all(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        let mut unsent = std::mem::take(&mut self.unsent);
        for id in unsent.drain(..) {
            self.write(id);
        }
        self.unsent = unsent;
    }

    /// Prepares the processor's return prediction before the function returns.
    #[inline(always)]
    fn expect_returns(&mut self) {
        if std::mem::take(&mut self.entered) {
            expect_returns();
        }
    }

    /// Removes a connection. Logs the first of each cause that is the peer's fault.
    fn drop_connection(&mut self, id: ConnectionId, why: Cause) -> Option<Connection> {
        let mut connection = self.connections.remove(id)?;
        self.rings.retain(|other| *other != id);
        self.timed.remove(&id);
        if self.last.is_some_and(|(last, _)| last == id) {
            self.last = None;
        }
        if self.hot == Some(id) {
            self.hot = None;
        }
        if let Some(doorway) = &mut self.doorway {
            doorway.forget(&connection);
        }
        self.counters.open -= 1;
        self.counters.held_bytes -= connection.held_bytes() as u64;
        debug_assert!(self.connections.count() > 0 || self.counters.held_bytes == 0);
        if !self.queued.is_empty() {
            self.queued.retain(|other| *other != id);
        }
        // A wrong cluster is logged in more detail elsewhere.
        let usual = [
            Cause::ByUs,
            Cause::ByPeer,
            Cause::Refused,
            Cause::Reset,
            Cause::WrongCluster,
            Cause::ClusterLearned,
        ]
        .contains(&why);
        if self.counters.count_closed(why) && !usual {
            tracing::warn!(peer = %connection.address, "connection closed: {why}");
        }
        self.retired.extend(connection.close_rings());
        Some(connection)
    }

    /// Unmaps some memory of closed rings. Turns with much other work leave it for later, unless
    /// much is mapped.
    #[cold]
    fn unmap_some(&mut self) -> bool {
        let may_wait = self.holds_input && self.retired.len() <= RETIRED_MAX;
        let Some(retired) = self.retired.last_mut().filter(|_| !may_wait) else { return false };
        if !retired.give_back_some() {
            self.retired.pop();
        }
        true
    }

    /// Closes a connection and tells the handler.
    fn fail(&mut self, id: ConnectionId, why: Cause, handler: &mut dyn Handler) {
        match self.drop_connection(id, why) {
            Some(connection) if connection.stream.is_some() => handler.stream_closed(self, id, why),
            Some(_) => handler.closed(self, id, why),
            None => {}
        }
    }

    /// Begins to connect.
    fn request(
        &mut self,
        connection: Connection,
        token: fn(ConnectionId) -> table::Token,
    ) -> ConnectionId {
        let address = connection.address;
        let id = self.connections.insert(connection);
        self.timed.insert(id);
        self.counters.open += 1;
        if self.connections.count() > room::connections_max(&self.options.limits) {
            self.failed.push((id, Cause::TooMany));
            return id;
        }
        match socket::connect(address) {
            Ok(socket) => {
                let added = self.poller.add(&socket, token(id).number(), true, true);
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.carry_by(socket);
                }
                if added.is_err() {
                    self.failed.push((id, Cause::Exhausted));
                }
            }
            Err(error) => self.failed.push((id, socket::cause(error))),
        }
        id
    }

    /// Accounts for bytes that were queued on a connection with `before` waiting bytes.
    fn on_queued(&mut self, to: ConnectionId, before: usize, queued: usize) {
        let Some(connection) = self.connections.get_mut(to) else { return };
        self.counters.bytes_out += queued as u64;
        let waiting = connection.waiting_bytes();
        if waiting < before + queued {
            connection.taken = self.now;
            self.entered = true;
        }
        self.sent |= waiting == 0;
        self.counters.held_bytes += waiting as u64;
        self.counters.held_bytes -= before as u64;
        let too_much = waiting > self.options.limits.waiting_bytes_max;
        if too_much || self.counters.held_bytes > self.held_bytes_mark {
            self.enforce_budget(to);
        }
    }
}

impl Transport for OsTransport {
    fn set_cluster(&mut self, cluster: OwnCluster) {
        if std::mem::replace(&mut self.options.cluster, cluster) == cluster {
            return;
        }
        let Some(learned) = cluster.known() else { return };
        let greeted = self.connections.iter().filter(|(_, it)| it.is_greeted_by_us());
        let ends = greeted.filter_map(|(id, it)| {
            Some((id, crate::cluster::ends_when_learned(learned, it.peer.as_ref())?))
        });
        for (id, why) in ends.collect::<Vec<_>>() {
            self.doom(id, why);
        }
    }

    fn cluster(&self) -> OwnCluster {
        self.options.cluster
    }

    fn listen(&mut self, address: SocketAddr) -> std::io::Result<SocketAddr> {
        let (listener, address) = socket::listen(address)?;
        let token = table::Token::Listener(self.listeners.len() as u32);
        self.poller.add(&listener, token.number(), true, false)?;
        self.listeners.push(Listener::for_messages(listener));
        if self.options.shared_memory && self.doorway.is_none() {
            // Without a door, connections stay on TCP.
            self.doorway = Doorway::open(&self.poller).ok();
        }
        Ok(address)
    }

    #[inline]
    fn tell_time(&mut self, now: Time) {
        let stood_still = now.since(self.now.max(self.next_sweep)) > STALL;
        if stood_still && !self.forgave && self.deadline().is_some() {
            // This process was stopped for longer than intended. The peers are not to blame: their
            // deadlines are extended.
            (self.forgave, self.next_sweep) = (true, now + STALL);
        }
        self.now = now;
    }

    fn connect(&mut self, address: SocketAddr) -> ConnectionId {
        let connection = Connection::connect(address, self.now + self.options.limits.greeting);
        self.request(connection, table::Token::Connection)
    }

    fn listen_stream(
        &mut self,
        address: &StreamAddress,
        farewell: &'static [u8],
    ) -> std::io::Result<(StreamAddress, u32)> {
        self.begin_listening(address, farewell)
    }

    fn connect_stream(&mut self, address: SocketAddr) -> ConnectionId {
        self.request_stream(address)
    }

    fn send_bytes(&mut self, to: ConnectionId, parts: &[&[u8]]) {
        let Some(connection) = self.connections.get_mut(to) else { return };
        let takes = connection.stream.as_ref().is_some_and(|it| it.takes_output());
        if connection.stage != Stage::Open || !takes {
            return;
        }
        let before = connection.waiting_bytes();
        if connection.is_idle_output() {
            connection.taken = self.now;
            if !std::mem::replace(&mut connection.listed, true) {
                self.unsent.push(to);
            }
        }
        let queued = connection.queue_bytes(parts, LONG_BYTES, &mut self.buffer_pool);
        self.on_queued(to, before, queued);
    }

    fn resume(&mut self, stream: ConnectionId) {
        self.end_wait(stream);
    }

    fn finish(&mut self, stream: ConnectionId) {
        self.finish_stream(stream);
    }

    fn end_output(&mut self, stream: ConnectionId) {
        self.end_stream_output(stream);
    }

    fn hold_input(&mut self) {
        self.holds_input = true;
    }

    fn poll(&mut self, now: Time, handler: &mut dyn Handler) -> bool {
        self.holds_input = false;
        self.tell_time(now);
        self.write_all();
        let mut busy = self.turn(handler);
        if !self.bare.is_empty() && !self.holds_input {
            self.fault_in_some();
            busy = true;
        }
        self.write_all();
        if !self.retired.is_empty() {
            busy |= self.unmap_some();
        }
        // Sweeps after replies have left, and only after all arrived bytes were processed: those
        // are not late.
        if std::mem::take(&mut self.looked) && self.now >= self.next_sweep {
            busy |= self.sweep(handler);
            self.write_all();
        }
        self.expect_returns();
        busy
    }

    #[inline]
    fn send(&mut self, to: ConnectionId, parts: &[&[u8]]) {
        let Some(connection) = self.connections.get_mut(to) else { return };
        let before = connection.waiting_bytes();
        if connection.is_idle_output() {
            if connection.stage == Stage::Doomed {
                return;
            }
            // From now on there are bytes for the peer to take.
            connection.taken = self.now;
            if !std::mem::replace(&mut connection.listed, true) {
                self.unsent.push(to);
            }
        }
        let sent = connection.queue(parts, LONG_BYTES, &mut self.buffer_pool);
        self.counters.messages_out += 1;
        self.counters.bytes_out += sent as u64;
        let waiting = connection.waiting_bytes();
        if waiting < before + sent {
            connection.taken = self.now;
            self.entered |= matches!(connection.carrier, Carrier::Tcp(_));
        }
        self.sent |= waiting == 0;
        // The message may have left at once, and a long one takes earlier bytes along.
        self.counters.held_bytes += waiting as u64;
        self.counters.held_bytes -= before as u64;
        let too_much = waiting > self.options.limits.waiting_bytes_max;
        if too_much || self.counters.held_bytes > self.held_bytes_mark {
            self.enforce_budget(to);
        }
    }

    fn flush(&mut self) {
        self.write_all();
        self.expect_returns();
    }

    fn close(&mut self, id: ConnectionId, why: Cause) {
        self.write(id);
        self.drop_connection(id, why);
    }

    fn peer(&self, connection: ConnectionId) -> Option<&Peer> {
        self.connections.get(connection)?.peer.as_ref()
    }

    fn waiting_bytes(&self, connection: ConnectionId) -> usize {
        self.connections.get(connection).map_or(0, Connection::waiting_bytes)
    }

    fn limits(&self) -> &Limits {
        &self.options.limits
    }

    fn sleep(&mut self, at_most: Option<Duration>) {
        self.flush();
        let may = self.failed.is_empty()
            && self.resumed.is_empty()
            && self.retired.is_empty()
            && !self.woke
            && !self.may_ease()
            && self.rings_may_sleep();
        if may {
            // A connection that is busy without sleeps will be hot again soon.
            self.cool();
            self.last = None;
            let until_sweep = self.deadline().map(|at| at.since(self.now));
            let at_most = match (at_most, until_sweep) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            self.woke = self.poller.sleep(at_most);
            self.poller.swap_ready(&mut self.ready);
        }
        self.rings_are_awake();
    }

    fn deadline(&self) -> Option<Time> {
        if !self.failed.is_empty() {
            return Some(self.now);
        }
        (self.not_listening || !self.timed.is_empty() || !self.buffer_pool.is_empty())
            .then_some(self.next_sweep)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
