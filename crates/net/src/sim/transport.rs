//! One process's end of a simulated network.
//!
//! It enforces the same limits as the transport of a machine. Like that one, it takes no more
//! requests from a caller that does not take its replies. The simulated kernel buffers nothing for
//! a process: sent bytes wait until the other process has consumed them. A process that requests a
//! connection and sends on it in the same turn sends before the connection is open. The message
//! then takes the place of the greeting, and the peer refuses the connection as one of another
//! protocol.

use super::stream::StreamState;
use super::{Network, Packet, PacketContent, Wire, far_end};
use crate::budget::largest_holders;
use crate::cluster::{GreetingVerdict, ends_when_learned};
use crate::peer::{Cause, ConnectionId, Counters, ForeignPeer, Limits, Peer, Via};
use crate::room::{self, Room};
use crate::stream::StreamAddress;
use crate::table::Table;
use crate::{Handler, OwnCluster, Transport};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_wire::ClusterId;
use thunderhead_wire::frame::{Kind, MEMBER, Mismatch, Preface};
use zerocopy::IntoBytes;

/// The time after which a datagram that requests a connection is sent again.
const AGAIN: Duration = Duration::from_millis(20);

/// The interval at which deadlines are checked.
const SWEEP: Duration = Duration::from_millis(100);

/// If no turn happens for this long although one was requested, this process itself was stopped.
const STALL: Duration = Duration::from_secs(1);

/// The interval at which paused connections are checked for progress of their peers.
const LOOK: Duration = Duration::from_millis(1);

/// The transport of a simulated process.
pub struct SimTransport {
    pub(super) network: Network,
    pub(super) host: IpAddr,
    /// The number of this process on its host.
    process: u64,
    pub(super) limits: Limits,
    features: u64,
    versions: Option<(u16, u16)>,
    cluster: OwnCluster,
    ports: BTreeSet<u16>,
    /// The ports for streams, with the farewells.
    pub(super) stream_listeners: Vec<(u16, &'static [u8])>,
    pub(super) connections: Table<Connection>,
    by_wire: BTreeMap<Wire, ConnectionId>,
    pub(super) counters: Counters,
    pub(super) now: Time,
    failed: Vec<(ConnectionId, Cause)>,
    /// Connections whose arrivals wait for the next poll.
    pub(super) resumed: Vec<ConnectionId>,
    /// Streams that are closed once their output is taken.
    pub(super) finishing: Vec<ConnectionId>,
    /// Further messages wait for the next poll: see [`Transport::hold_input`].
    pub(super) holds_input: bool,
    /// Requested connections whose request has not been sent.
    unasked: Vec<ConnectionId>,
    /// Connections from which nothing is taken.
    paused: Vec<ConnectionId>,
    /// Connections that may have a deadline.
    pub(super) timed: BTreeSet<ConnectionId>,
    next_sweep: Time,
    /// The peers' deadlines were extended once, and no sweep has happened since.
    forgave: bool,
}

pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) remote: SocketAddr,
    peer: Option<Peer>,
    /// The time by which it must be greeted.
    open_by: Time,
    /// When to send the request again, in case datagrams were lost.
    again_at: Time,
    is_ours: bool,
    /// The cluster that this end's greeting named.
    said: Option<ClusterId>,
    /// A message was sent before the greeting.
    is_spoilt: bool,
    sent: u64,
    /// The next place in the stream.
    pub(super) expected: u64,
    /// Arrivals that may not be handled yet: earlier ones of the stream are missing, or the
    /// connection is paused.
    early: BTreeMap<u64, Arrival>,
    /// Datagrams that may not be handled yet.
    held: VecDeque<Arrival>,
    /// Messages that came before the greeting.
    unordered: Vec<Vec<u8>>,
    /// Nothing is taken from the peer until it has taken the bytes that wait for it.
    paused: bool,
    /// When the peer last took waiting bytes, or when they began to wait; and how often it had
    /// taken some by then.
    pub(super) taken: (Time, u64),
    /// Its memory is freed; the next poll closes it.
    pub(super) doomed: bool,
    /// Set if it is a byte stream.
    pub(super) stream: Option<StreamState>,
}

impl Connection {
    fn is_open(&self) -> bool {
        self.peer.is_some() || self.stream.as_ref().is_some_and(|stream| stream.is_open)
    }
}

/// An arrival on a connection: a frame, or `None` at the end of a stream.
type Arrival = Option<(Kind, Vec<u8>)>;

fn bytes_of(arrival: &Arrival) -> usize {
    arrival.as_ref().map_or(0, |(_, payload)| payload.len())
}

impl SimTransport {
    /// Starts a process on a host and returns its transport.
    #[must_use]
    pub fn new(network: &Network, host: IpAddr, limits: Limits, features: u64) -> SimTransport {
        let process = network.start(host);
        SimTransport {
            network: network.clone(),
            host,
            process,
            limits,
            features,
            versions: None,
            cluster: OwnCluster::Unknown,
            ports: BTreeSet::new(),
            stream_listeners: Vec::new(),
            finishing: Vec::new(),
            connections: Table::default(),
            by_wire: BTreeMap::new(),
            counters: Counters::default(),
            now: Time(0),
            failed: Vec::new(),
            resumed: Vec::new(),
            holds_input: false,
            unasked: Vec::new(),
            paused: Vec::new(),
            timed: BTreeSet::new(),
            next_sweep: Time(0),
            forgave: false,
        }
    }

    /// Announces these versions of the protocol instead of ours: for tests.
    pub fn pretend_versions(&mut self, min: u16, max: u16) {
        self.versions = Some((min, max));
    }

    fn preface(&self) -> Vec<u8> {
        let preface = Preface::new(self.features, self.limits.message_bytes_max, None)
            .of_cluster(self.cluster.known());
        let preface = match self.versions {
            Some((min, max)) => preface.with_versions(min, max),
            None => preface,
        };
        preface.as_bytes().to_vec()
    }

    pub(super) fn add(&mut self, wire: Wire, remote: SocketAddr) -> ConnectionId {
        let open_by = self.now + self.limits.greeting;
        let connection = Connection {
            wire,
            remote,
            peer: None,
            open_by,
            again_at: Time::NEVER,
            is_ours: false,
            said: None,
            is_spoilt: false,
            sent: 0,
            expected: 0,
            early: BTreeMap::new(),
            held: VecDeque::new(),
            unordered: Vec::new(),
            paused: false,
            taken: (self.now, 0),
            doomed: false,
            stream: None,
        };
        let id = self.connections.insert(connection);
        self.timed.insert(id);
        self.by_wire.insert(wire, id);
        self.counters.open += 1;
        let mut state = self.network.0.borrow_mut();
        if let Some(host) = state.hosts.get_mut(&self.host) {
            host.ends.insert(wire, remote.ip());
        }
        id
    }

    fn remove(&mut self, id: ConnectionId, why: Cause) -> Option<Connection> {
        let connection = self.connections.remove(id)?;
        self.by_wire.remove(&connection.wire);
        self.paused.retain(|other| *other != id);
        self.timed.remove(&id);
        self.counters.open -= 1;
        self.counters.count_closed(why);
        let mut state = self.network.0.borrow_mut();
        *state.closed.entry(why).or_default() += 1;
        let (wire, host) = (connection.wire, self.host);
        state.trace.record(&[110, wire, why as u64], || format!("{host} wire {wire}: {why}"));
        for arrival in connection.early.values().chain(&connection.held) {
            state.taken(wire, host, bytes_of(arrival));
        }
        if let Some(host) = state.hosts.get_mut(&self.host) {
            host.ends.remove(&connection.wire);
        }
        Some(connection)
    }

    fn fail(&mut self, id: ConnectionId, why: Cause, handler: &mut dyn Handler) {
        // Tells the peer, unless the cause came from the peer.
        if ![Cause::ByPeer, Cause::Reset, Cause::Refused].contains(&why)
            && let Some(connection) = self.connections.get(id)
        {
            let (wire, to) = (connection.wire, connection.remote.ip());
            let reset = PacketContent::Reset { refused: false };
            self.network.0.borrow_mut().send(wire, self.host, to, reset, None);
        }
        self.close_and_tell(id, why, handler);
    }

    fn close_and_tell(&mut self, id: ConnectionId, why: Cause, handler: &mut dyn Handler) {
        match self.remove(id, why) {
            Some(connection) if connection.stream.is_some() => handler.stream_closed(self, id, why),
            Some(_) => handler.closed(self, id, why),
            None => {}
        }
    }

    /// Sends a packet on a connection.
    pub(super) fn put(&mut self, id: ConnectionId, content: PacketContent) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let (wire, to) = (connection.wire, connection.remote.ip());
        let mut state = self.network.0.borrow_mut();
        let streams = state.is_ordered(wire, &state.link(self.host, to));
        let sequence = streams.then_some(connection.sent);
        connection.sent += 1;
        state.count_send(self.host);
        state.send(wire, self.host, to, content, sequence);
    }

    /// Accounts for bytes that this process has consumed.
    fn take(&self, wire: Wire, bytes: usize) {
        self.network.0.borrow_mut().taken(wire, self.host, bytes);
    }

    fn packet(&mut self, packet: Packet, handler: &mut dyn Handler) {
        let Packet { wire, from, content, sequence, .. } = packet;
        let known = self.by_wire.get(&wire).copied();
        let is_doomed = known.and_then(|id| self.connections.get(id)).is_some_and(|it| it.doomed);
        let is_frame = matches!(content, PacketContent::Frame { .. });
        if !is_frame || known.is_none() || is_doomed {
            self.take(wire, content.bytes());
        }
        if is_doomed {
            return;
        }
        match (content, known) {
            (PacketContent::Open { port, preface }, None) => {
                self.accept(wire, from, port, preface, handler)
            }
            (PacketContent::OpenStream { port }, None) => {
                self.accept_stream(wire, from, port, handler);
            }
            (PacketContent::OpenStream { .. }, Some(_)) => {}
            // A repeated request: this end's greeting may have been lost.
            (PacketContent::Open { .. }, Some(id)) => {
                let payload = self.preface();
                self.put(id, PacketContent::Frame { kind: Kind::PREFACE, payload });
            }
            (PacketContent::Reset { refused }, Some(id)) => {
                let why = if refused { Cause::Refused } else { Cause::Reset };
                self.fail(id, why, handler);
            }
            (PacketContent::Frame { kind, payload }, Some(id)) => {
                self.arrived(id, sequence, Some((kind, payload)), handler)
            }
            (PacketContent::Close, Some(id)) => match sequence {
                None => self.fail(id, Cause::ByPeer, handler),
                Some(_) => self.arrived(id, sequence, None, handler),
            },
            (PacketContent::Frame { .. }, None) => {
                let reset = PacketContent::Reset { refused: false };
                self.network.0.borrow_mut().send(wire, self.host, from, reset, None);
            }
            (PacketContent::Reset { .. } | PacketContent::Close, None) => {}
        }
    }

    fn accept(
        &mut self,
        wire: Wire,
        from: IpAddr,
        port: u16,
        preface: Vec<u8>,
        handler: &mut dyn Handler,
    ) {
        let is_member = Preface::agree(&preface, self.features)
            .is_ok_and(|agreement| agreement.features & MEMBER != 0);
        let needed = if is_member { Room::Members } else { Room::Everyone };
        let is_full = Room::for_connections(self.connections.count(), &self.limits) < needed;
        let is_for_streams = self.stream_listeners.iter().any(|(other, _)| *other == port);
        if is_full || is_for_streams || !self.ports.contains(&port) {
            if is_full {
                self.counters.count_closed(Cause::TooMany);
            }
            // A full server accepts and closes; its machine does not report that no process
            // listens.
            let reset = PacketContent::Reset { refused: !is_full };
            self.network.0.borrow_mut().send(wire, self.host, from, reset, None);
            return;
        }
        let id = self.add(wire, SocketAddr::new(from, 0));
        self.counters.accepted += 1;
        let ours = self.preface();
        self.put(id, PacketContent::Frame { kind: Kind::PREFACE, payload: ours });
        // The request to open was the first packet of its stream.
        if let Some(connection) = self.connections.get_mut(id) {
            (connection.expected, connection.said) = (1, self.cluster.known());
        }
        self.frame(id, Kind::PREFACE, preface, handler);
    }

    /// Handles an arrival on a connection. In a stream it waits for all earlier ones.
    fn arrived(
        &mut self,
        id: ConnectionId,
        place: Option<u64>,
        arrival: Arrival,
        handler: &mut dyn Handler,
    ) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        match place {
            None => connection.held.push_back(arrival),
            Some(place) if place >= connection.expected => {
                connection.early.insert(place, arrival);
            }
            Some(_) => {
                let wire = connection.wire;
                return self.take(wire, bytes_of(&arrival));
            }
        }
        self.go_on(id, handler);
        let holds = |it: &Connection| !it.early.is_empty() || !it.held.is_empty();
        if self.connections.get(id).is_some_and(holds) {
            self.limit_held();
        }
    }

    /// Handles arrivals, as far as order and limits permit.
    fn go_on(&mut self, id: ConnectionId, handler: &mut dyn Handler) {
        self.offer_owed(id, handler);
        while !self.holds_back(id) {
            if self.keeps_stream(id) {
                return;
            }
            if self.holds_input {
                self.resumed.push(id);
                return;
            }
            let Some(connection) = self.connections.get_mut(id) else { return };
            let arrival = match connection.early.remove(&connection.expected) {
                Some(arrival) => {
                    connection.expected += 1;
                    arrival
                }
                None => match connection.held.pop_front() {
                    Some(arrival) => arrival,
                    None => return,
                },
            };
            let wire = connection.wire;
            self.take(wire, bytes_of(&arrival));
            match arrival {
                Some((kind, payload)) => self.frame(id, kind, payload, handler),
                None if self.connections.get(id).is_some_and(|it| it.stream.is_some()) => {
                    return self.end_stream(id, handler);
                }
                None => return self.fail(id, Cause::ByPeer, handler),
            }
        }
    }

    /// Whether nothing is taken from a connection at the moment. Only the serving end holds back;
    /// otherwise two ends could wait for each other.
    pub(super) fn holds_back(&mut self, id: ConnectionId) -> bool {
        let too_much = self.waiting_bytes(id) > self.limits.waiting_bytes_high;
        let Some(connection) = self.connections.get_mut(id) else { return false };
        if too_much && !connection.is_ours && !connection.paused {
            connection.paused = true;
            self.paused.push(id);
        }
        connection.paused
    }

    /// Continues with paused connections whose peers have taken enough.
    fn resume_paused(&mut self, handler: &mut dyn Handler) {
        for id in std::mem::take(&mut self.paused) {
            if self.waiting_bytes(id) >= self.limits.waiting_bytes_high / 2 {
                self.paused.push(id);
            } else if let Some(connection) = self.connections.get_mut(id) {
                connection.paused = false;
                self.go_on(id, handler);
            }
        }
    }

    fn frame(&mut self, id: ConnectionId, kind: Kind, payload: Vec<u8>, handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.stream.is_some() {
            return self.stream_frame(id, kind, &payload, handler);
        }
        let is_open = connection.peer.is_some();
        match kind {
            Kind::MESSAGE if !is_open => {
                connection.unordered.push(payload);
                self.limit_held();
            }
            Kind::MESSAGE if payload.len() > self.limits.message_bytes_max => {
                self.fail(id, Cause::TooLong, handler);
            }
            Kind::MESSAGE => {
                self.counters.messages_in += 1;
                self.counters.bytes_in += payload.len() as u64;
                handler.message(self, id, &payload);
            }
            // A duplicated greeting.
            Kind::PREFACE if is_open => {}
            Kind::PREFACE => self.greeted(id, &payload, handler),
            other if other.may_be_skipped() => {}
            _ => self.fail(id, Cause::Malformed, handler),
        }
    }

    fn greeted(&mut self, id: ConnectionId, payload: &[u8], handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        match Preface::agree(payload, self.features) {
            Ok(agreement) => {
                let (address, via) = (connection.remote, Via::Simulated);
                connection.peer = Some(Peer { address, via, agreement });
                match self.cluster.judge(connection.said, agreement.cluster) {
                    GreetingVerdict::Welcome => {}
                    GreetingVerdict::Learned(cluster) => {
                        self.set_cluster(OwnCluster::Known(cluster));
                    }
                    GreetingVerdict::Refused(why) => {
                        let foreign_peer = ForeignPeer::of(address, agreement.cluster, why);
                        self.counters.foreign_peer = foreign_peer.or(self.counters.foreign_peer);
                        return self.refuse(id, why, handler);
                    }
                }
                let Some(connection) = self.connections.get_mut(id) else { return };
                let early = std::mem::take(&mut connection.unordered);
                handler.opened(self, id);
                for message in early {
                    self.frame(id, Kind::MESSAGE, message, handler);
                }
            }
            Err(Mismatch::NotOurs) => self.fail(id, Cause::NotOurs, handler),
            Err(Mismatch::Version { .. }) => self.fail(id, Cause::Version, handler),
        }
    }

    /// Closes a connection after this end's greeting, which tells the reason.
    pub(super) fn refuse(&mut self, id: ConnectionId, why: Cause, handler: &mut dyn Handler) {
        self.put(id, PacketContent::Close);
        self.close_and_tell(id, why, handler);
    }

    /// Returns the bytes that a connection holds. Bytes in flight to the other process stand for
    /// waiting output, and early arrivals for partial input.
    fn held_bytes(&self, id: ConnectionId, connection: &Connection) -> usize {
        if connection.doomed {
            return 0;
        }
        let arrivals = connection.early.values().chain(&connection.held).map(bytes_of);
        let unordered = connection.unordered.iter().map(Vec::len);
        let input = connection.stream.as_ref().map_or(0, |stream| stream.input.len());
        self.waiting_bytes(id) + arrivals.sum::<usize>() + unordered.sum::<usize>() + input
    }

    /// Closes the connections that hold most, if all together exceed the budget.
    pub(super) fn limit_held(&mut self) {
        let most = self.limits.held_bytes_max;
        let holders = self.connections.iter().map(|(id, it)| (self.held_bytes(id, it), id));
        for id in largest_holders(most, holders) {
            self.doom(id, Cause::HoldsMost);
        }
        let held = self.connections.iter().map(|(id, it)| self.held_bytes(id, it));
        self.counters.held_bytes = held.sum::<usize>() as u64;
    }

    /// Frees the memory of a connection now; the next poll tells the handler.
    pub(super) fn doom(&mut self, id: ConnectionId, why: Cause) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.doomed = true;
            connection.early.clear();
            connection.held.clear();
            connection.unordered.clear();
            if let Some(stream) = &mut connection.stream {
                stream.input.clear();
            }
            self.failed.push((id, why));
        }
    }

    /// Repeats the requests for datagram connections that have not been opened yet.
    fn ask_again(&mut self) {
        let silent: Vec<(ConnectionId, u16)> = self
            .connections
            .iter()
            .filter(|(_, it)| !it.is_open() && it.is_ours && it.again_at <= self.now)
            .map(|(id, it)| (id, it.remote.port()))
            .collect();
        for (id, port) in silent {
            self.ask(id, port);
        }
    }

    /// Sends the requests for this turn's connections.
    fn ask_first(&mut self) {
        for id in std::mem::take(&mut self.unasked) {
            if let Some(connection) = self.connections.get(id) {
                self.ask(id, connection.remote.port());
            }
        }
    }

    fn ask(&mut self, id: ConnectionId, port: u16) {
        let Some(connection) = self.connections.get(id) else { return };
        if connection.stream.is_some() {
            return self.put(id, PacketContent::OpenStream { port });
        }
        let (is_spoilt, to) = (connection.is_spoilt, connection.remote.ip());
        let preface = if is_spoilt { Vec::new() } else { self.preface() };
        self.put(id, PacketContent::Open { port, preface });
        let streams = self.network.link(self.host, to).streams;
        if let Some(connection) = self.connections.get_mut(id) {
            connection.again_at = if streams { Time::NEVER } else { self.now + AGAIN };
            connection.said = self.cluster.known();
        }
    }

    /// Closes overdue connections.
    fn sweep(&mut self, handler: &mut dyn Handler) -> bool {
        (self.forgave, self.next_sweep) = (false, self.now + SWEEP);
        let mut late = Vec::new();
        let (connections, now, limits) = (&mut self.connections, self.now, self.limits);
        let state = self.network.0.borrow();
        self.timed.retain(|id| {
            let Some(connection) = connections.get_mut(*id) else { return false };
            if !connection.is_open() {
                late.extend((connection.open_by <= now).then_some((*id, Cause::NoGreeting)));
                return true;
            }
            let to = connection.remote.ip();
            let place = (far_end(connection.wire, self.host, to), to);
            let Some(waiting) = state.waiting.get(&place) else { return false };
            if connection.taken.1 != waiting.takes {
                connection.taken = (now, waiting.takes);
            }
            let is_late = connection.taken.0 + limits.not_reading <= now;
            late.extend(is_late.then_some((*id, Cause::NotReading)));
            true
        });
        drop(state);
        let busy = !late.is_empty();
        for (id, why) in late {
            self.fail(id, why, handler);
        }
        busy
    }
}

impl Transport for SimTransport {
    fn set_cluster(&mut self, cluster: OwnCluster) {
        if std::mem::replace(&mut self.cluster, cluster) == cluster {
            return;
        }
        let Some(learned) = cluster.known() else { return };
        let greeted =
            self.connections.iter().filter(|(id, it)| !it.doomed && !self.unasked.contains(id));
        let greeted = greeted.filter(|(_, it)| it.stream.is_none());
        let ends = greeted
            .filter_map(|(id, it)| Some((id, ends_when_learned(learned, it.peer.as_ref())?)));
        for (id, why) in ends.collect::<Vec<_>>() {
            self.doom(id, why);
        }
    }

    fn cluster(&self) -> OwnCluster {
        self.cluster
    }

    fn listen(&mut self, address: SocketAddr) -> std::io::Result<SocketAddr> {
        let port = match address.port() {
            0 => (49_152..=u16::MAX).find(|port| !self.ports.contains(port)),
            port => Some(port),
        };
        let port = port.filter(|port| self.ports.insert(*port));
        let port = port.ok_or(std::io::Error::from(std::io::ErrorKind::AddrInUse))?;
        Ok(SocketAddr::new(self.host, port))
    }

    fn tell_time(&mut self, now: Time) {
        self.now = now;
    }

    fn connect(&mut self, address: SocketAddr) -> ConnectionId {
        let wire = {
            let mut state = self.network.0.borrow_mut();
            state.count += 1;
            state.count
        };
        let id = self.add(wire, address);
        if self.connections.count() > room::connections_max(&self.limits) {
            self.failed.push((id, Cause::TooMany));
            return id;
        }
        if self.network.is_exhausted(self.host) {
            self.failed.push((id, Cause::Exhausted));
            return id;
        }
        self.counters.connected += 1;
        self.unasked.push(id);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.is_ours = true;
        }
        id
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
        self.put_bytes(to, parts);
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

    fn poll(&mut self, now: Time, handler: &mut dyn Handler) -> bool {
        let stood_still = now.since(self.now.max(self.next_sweep)) > STALL;
        if stood_still && !self.forgave && self.deadline().is_some() {
            // This process was stopped for longer than intended. The peers are not to blame: their
            // deadlines are extended.
            (self.forgave, self.next_sweep) = (true, now + STALL);
        }
        self.now = now;
        self.holds_input = false;
        self.ask_first();
        let mut busy = !self.failed.is_empty();
        for (id, why) in std::mem::take(&mut self.failed) {
            self.fail(id, why, handler);
        }
        self.resume_paused(handler);
        busy |= self.close_finished(handler);
        let resumed = std::mem::take(&mut self.resumed);
        busy |= !resumed.is_empty();
        let mut waiting = Vec::new();
        for id in resumed {
            if self.holds_input {
                waiting.push(id);
            } else {
                self.go_on(id, handler);
            }
        }
        // The connections that waited longest come first in the next poll.
        self.resumed.splice(..0, waiting);
        loop {
            let packet = {
                let mut state = self.network.0.borrow_mut();
                let Some(host) = state.hosts.get_mut(&self.host) else { break };
                if host.process != self.process || self.holds_input {
                    break;
                }
                let Some(packet) = host.inbox.pop_front() else { break };
                packet
            };
            busy = true;
            handler.received();
            self.packet(packet, handler);
        }
        self.ask_again();
        if self.now >= self.next_sweep && !self.timed.is_empty() {
            busy |= self.sweep(handler);
        }
        self.ask_first();
        busy
    }

    fn hold_input(&mut self) {
        self.holds_input = true;
    }

    fn send(&mut self, to: ConnectionId, parts: &[&[u8]]) {
        let was_idle = self.waiting_bytes(to) == 0;
        let Some(connection) = self.connections.get_mut(to).filter(|it| !it.doomed) else { return };
        if was_idle {
            // From now on there are bytes for the peer to take.
            connection.taken = (self.now, 0);
        }
        let payload = parts.concat();
        self.counters.messages_out += 1;
        self.counters.bytes_out += payload.len() as u64;
        {
            let mut network = self.network.0.borrow_mut();
            network.longest = network.longest.max(payload.len());
        }
        if self.unasked.contains(&to) {
            connection.is_spoilt = true;
            return;
        }
        self.timed.insert(to);
        self.put(to, PacketContent::Frame { kind: Kind::MESSAGE, payload });
        if self.waiting_bytes(to) > self.limits.waiting_bytes_max {
            self.doom(to, Cause::NotReading);
        }
        self.limit_held();
    }

    fn flush(&mut self) {
        self.ask_first();
    }

    fn close(&mut self, connection: ConnectionId, why: Cause) {
        self.put(connection, PacketContent::Close);
        self.remove(connection, why);
    }

    fn peer(&self, connection: ConnectionId) -> Option<&Peer> {
        self.connections.get(connection)?.peer.as_ref()
    }

    fn waiting_bytes(&self, connection: ConnectionId) -> usize {
        let Some(connection) = self.connections.get(connection) else { return 0 };
        let state = self.network.0.borrow();
        let to = connection.remote.ip();
        let place = (far_end(connection.wire, self.host, to), to);
        state.waiting.get(&place).map_or(0, |waiting| waiting.bytes)
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn sleep(&mut self, _: Option<Duration>) {
        // The simulation schedules the next turn.
    }

    fn deadline(&self) -> Option<Time> {
        if !self.failed.is_empty() || !self.resumed.is_empty() {
            return Some(self.now);
        }
        let is_watched = !self.paused.is_empty() || !self.finishing.is_empty();
        let looks = is_watched.then_some(self.now + LOOK);
        let sweeps = (!self.timed.is_empty()).then_some(self.next_sweep);
        let asks = self.timed.iter().filter_map(|id| self.connections.get(*id));
        let asks = asks.filter(|it| !it.is_open()).map(|it| it.again_at);
        looks.into_iter().chain(sweeps).chain(asks).min()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
