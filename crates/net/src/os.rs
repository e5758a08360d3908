//! Sockets and shared memory of this machine.
//!
//! # How it looks for work
//!
//! A poll asks epoll what is ready, and reads each ready connection once. Two cases are taken
//! shorter, for there the asking costs more than the reading: connections over shared memory are
//! looked at directly, and so is the *hot* connection, which the last several messages all came
//! from (a server with one busy client, a client that waits for its answer); epoll does not even
//! watch that one. Epoll is then asked every 40 microseconds, 4 where it had something to tell the last
//! time, and in every poll again once no short cut has led to anything for 20: nobody waits for those who
//! say nothing.
//!
//! # Shared memory
//!
//! A server names a door in its greeting, an abstract Unix socket with a random name, and a token.
//! A client that finds itself on the same host knocks there and shows the token; it is handed the
//! rings, and the connection goes on in them instead of the socket. If anything about that fails,
//! it stays on the socket.

mod accept;
mod budget;
mod connection;
mod door;
mod socket;
#[cfg(test)]
mod tests;
mod turn;

use crate::budget::half;
use crate::peer::{Cause, ConnectionId, Counters, Limits, Peer};
use crate::table::{self, Table};
use crate::{Handler, OwnCluster, Transport};
use crate::{room, shm};
use connection::{Carrier, Connection, Stage};
use door::Doorway;
use rustix::fd::OwnedFd;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_runtime::os::{Poller, Ready, expect_returns};
use thunderhead_runtime::spares::Spares;
use thunderhead_runtime::{Time, World};

/// How long epoll is not asked while there is a short cut: what asking costs is then a small part,
/// and nobody else waits for longer than this.
const LOOK_EVERY: Duration = Duration::from_micros(40);

/// How long not where it had something to tell the last time.
const LOOK_SOON: Duration = Duration::from_micros(4);

/// For how long a short cut counts after it has led to something: those who use none do not wait for nobody.
const LEADS_FOR: Duration = Duration::from_micros(20);

/// How much longer, while it is not asked at a moment that costs nothing.
const LOOK_SLACK: Duration = Duration::from_micros(20);

/// Messages in a row from the same connection that make it a short cut.
const STREAK: u32 = 8;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Buffers of long messages that are kept while there are such: so many at most, and none longer.
const SPARES_MAX: usize = 16;
const SPARE_BYTES_MAX: usize = 2 << 20;

/// A message from this length on leaves at once, from where it lies, without being copied.
const LONG_BYTES: usize = 32 << 10;

/// How often deadlines are looked at.
const SWEEP: Duration = Duration::from_millis(100);

/// Without a turn for so long, though one was asked for, we were stopped ourselves.
const STALL: Duration = Duration::from_secs(1);

/// How to use the machine's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What connections are allowed.
    pub limits: Limits,
    /// The features of this end.
    pub features: u64,
    /// The cluster of this end, as far as it is known when the transport is made.
    pub cluster: OwnCluster,
    /// Whether to use shared memory where both ends share a host.
    pub shared_memory: bool,
    /// Bytes of the ring in each direction: a power of two.
    pub ring_bytes: usize,
    /// The same where both ends have [`LONG_MESSAGES`](thunderhead_wire::frame::LONG_MESSAGES).
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

/// The transport of this machine. Most of what each message touches comes first: after a sleep none of it is near
/// the processor.
#[repr(C)]
pub struct OsTransport {
    connections: Table<Connection>,
    now: Time,
    /// When to ask epoll though there is a short cut.
    next_look: Time,
    /// Until when a short cut counts.
    leads_until: Time,
    next_sweep: Time,
    /// Peers got another chance, and nothing was swept since.
    forgave: bool,
    /// The connection that the last messages came from, and how many.
    last: Option<(ConnectionId, u32)>,
    /// The connection that is read in every poll and is not in epoll.
    hot: Option<ConnectionId>,
    woke: bool,
    /// Something was sent since the last turn.
    sent: bool,
    /// Epoll was asked in this turn.
    looked: bool,
    /// The kernel was called, and functions that were active then will return.
    entered: bool,
    /// All connections together hold much, or did and some wait for their turn still.
    tight: bool,
    /// A listener or the door was taken out of epoll for want of descriptors.
    deaf: bool,
    /// What must wait for a peer so that no more requests are taken from it: less than the limit
    /// while all connections together hold much.
    waiting_bytes_high: usize,
    /// When so much is held by all, the marks are to be looked at.
    held_bytes_mark: u64,
    /// What epoll said last, until it is gone through.
    ready: Vec<Ready>,
    scratch: Vec<u8>,
    /// Connections with something to send.
    unsent: Vec<ConnectionId>,
    /// Connections over shared memory.
    rings: Vec<ConnectionId>,
    /// Connections that may go on with what was read from them before.
    resumed: Vec<ConnectionId>,
    /// Connections that failed while nobody could be told.
    failed: Vec<(ConnectionId, Cause)>,
    counters: Counters,
    options: Options,
    poller: Poller,
    /// Connections that may have to do something in time; no other has a deadline.
    timed: BTreeSet<ConnectionId>,
    /// Connections that wait until there is room for the long message that they have begun.
    queued: VecDeque<ConnectionId>,
    /// Provisional connections in the order in which they came; some have greeted since, or are gone.
    provisional: VecDeque<ConnectionId>,
    /// Buffers of long messages that have come or gone, for the next ones.
    spares: Spares<Vec<u8>>,
    listeners: Vec<OwnedFd>,
    doorway: Option<Doorway>,
    /// That descriptors are wanting was said.
    warned: bool,
    /// The version of shared memory's layout that clients are told.
    layout_version: u32,
}

impl OsTransport {
    /// A transport for the reactor of this world.
    ///
    /// # Errors
    /// When the kernel has no more descriptors.
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
            spares: Spares::new(SPARES_MAX, 2 * READ_BYTES + 1..=SPARE_BYTES_MAX),
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
            timed: BTreeSet::new(),
            failed: Vec::new(),
            next_sweep: Time(0),
            deaf: false,
            warned: false,
            scratch: vec![0; READ_BYTES],
            layout_version: shm::LAYOUT_VERSION,
        })
    }

    /// Tells clients another version of shared memory's layout than ours: for tests.
    pub fn pretend_layout_version(&mut self, version: u32) {
        self.layout_version = version;
    }

    /// Writes what waits on all connections, once on each.
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

    /// Before a function returns that others wait for.
    #[inline(always)]
    fn expect_returns(&mut self) {
        if std::mem::take(&mut self.entered) {
            expect_returns();
        }
    }

    /// Takes a connection out; says so once for each cause that is the peer's fault.
    fn drop_connection(&mut self, id: ConnectionId, why: Cause) -> Option<Connection> {
        let connection = self.connections.remove(id)?;
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
        // Of another cluster more is said where it is noticed.
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
        Some(connection)
    }

    /// Closes a connection and tells the handler.
    fn fail(&mut self, id: ConnectionId, why: Cause, handler: &mut dyn Handler) {
        if self.drop_connection(id, why).is_some() {
            handler.closed(self, id, why);
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
        self.listeners.push(listener);
        if self.options.shared_memory && self.doorway.is_none() {
            // Without a door there is TCP.
            self.doorway = Doorway::open(&self.poller).ok();
        }
        Ok(address)
    }

    #[inline]
    fn tell_time(&mut self, now: Time) {
        let stood_still = now.since(self.now.max(self.next_sweep)) > STALL;
        if stood_still && !self.forgave && self.deadline().is_some() {
            // It was we who did nothing for a while, longer than was meant, not the peers: they get another chance.
            (self.forgave, self.next_sweep) = (true, now + STALL);
        }
        self.now = now;
    }

    fn connect(&mut self, address: SocketAddr) -> ConnectionId {
        let connection = Connection::connect(address, self.now + self.options.limits.greeting);
        let id = self.connections.insert(connection);
        self.timed.insert(id);
        self.counters.open += 1;
        if self.connections.count() > room::connections_max(&self.options.limits) {
            self.failed.push((id, Cause::TooMany));
            return id;
        }
        match socket::connect(address) {
            Ok(socket) => {
                let token = table::Token::Connection(id).number();
                let added = self.poller.add(&socket, token, true, true);
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

    fn poll(&mut self, now: Time, handler: &mut dyn Handler) -> bool {
        self.tell_time(now);
        self.write_all();
        let mut busy = self.turn(handler);
        self.write_all();
        // When answers are on their way, and only behind a look at all that has come: what is there is not late.
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
            // From now on the peer has something to take.
            connection.taken = self.now;
            if !std::mem::replace(&mut connection.listed, true) {
                self.unsent.push(to);
            }
        }
        let sent = connection.queue(parts, LONG_BYTES, &mut self.spares);
        self.counters.messages_out += 1;
        self.counters.bytes_out += sent as u64;
        let waiting = connection.waiting_bytes();
        if waiting < before + sent {
            connection.taken = self.now;
            self.entered |= matches!(connection.carrier, Carrier::Tcp(_));
        }
        self.sent |= waiting == 0;
        // It may have left at once, and where it is long what waited before with it.
        self.counters.held_bytes += waiting as u64;
        self.counters.held_bytes -= before as u64;
        let too_much = waiting > self.options.limits.waiting_bytes_max;
        if too_much || self.counters.held_bytes > self.held_bytes_mark {
            self.holds_much(to);
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
            && !self.may_ease()
            && self.rings_may_sleep();
        if may {
            // Whoever is busy enough not to sleep will be hot again soon.
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
        (self.deaf || !self.timed.is_empty() || !self.spares.is_empty()).then_some(self.next_sweep)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
