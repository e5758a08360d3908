//! One process's end of a simulated network.

use super::{Content, Network, Packet, Wire};
use crate::budget::those_that_hold_most;
use crate::peer::{Cause, ConnectionId, Counters, Limits, Peer, Via};
use crate::table::Table;
use crate::{Handler, Transport};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_wire::frame::{Kind, Mismatch, Preface};
use zerocopy::IntoBytes;

/// After what time a datagram that asks for a connection is sent again.
const AGAIN: Duration = Duration::from_millis(20);

/// The transport of a simulated process.
pub struct SimTransport {
    network: Network,
    host: IpAddr,
    /// Which of the host's processes this is.
    process: u64,
    limits: Limits,
    features: u64,
    versions: Option<(u16, u16)>,
    ports: BTreeSet<u16>,
    connections: Table<Connection>,
    by_wire: BTreeMap<Wire, ConnectionId>,
    counters: Counters,
    now: Time,
    failed: Vec<(ConnectionId, Cause)>,
}

struct Connection {
    wire: Wire,
    remote: SocketAddr,
    peer: Option<Peer>,
    /// By when it must be greeted.
    open_by: Time,
    /// When to ask for it again: datagrams may have been lost.
    again_at: Time,
    is_ours: bool,
    sent: u64,
    /// The next place in the stream.
    expected: u64,
    /// What has overtaken it, or came before the greeting.
    early: BTreeMap<u64, (Kind, Vec<u8>)>,
    unordered: Vec<Vec<u8>>,
    /// What it held is given back; it is closed with the next poll.
    doomed: bool,
}

impl SimTransport {
    /// The transport of a process that begins on a host.
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
            ports: BTreeSet::new(),
            connections: Table::default(),
            by_wire: BTreeMap::new(),
            counters: Counters::default(),
            now: Time(0),
            failed: Vec::new(),
        }
    }

    /// Speaks these versions of the protocol instead of ours: for tests.
    pub fn pretend_versions(&mut self, min: u16, max: u16) {
        self.versions = Some((min, max));
    }

    fn preface(&self) -> Vec<u8> {
        let preface = Preface::new(self.features, self.limits.message_bytes_max, None);
        let preface = match self.versions {
            Some((min, max)) => preface.with_versions(min, max),
            None => preface,
        };
        preface.as_bytes().to_vec()
    }

    fn add(&mut self, wire: Wire, remote: SocketAddr) -> ConnectionId {
        let open_by = self.now + self.limits.greeting;
        let connection = Connection {
            wire,
            remote,
            peer: None,
            open_by,
            again_at: Time::NEVER,
            is_ours: false,
            sent: 0,
            expected: 0,
            early: BTreeMap::new(),
            unordered: Vec::new(),
            doomed: false,
        };
        let id = self.connections.insert(connection);
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
        self.counters.open -= 1;
        self.counters.count_closed(why);
        let mut state = self.network.0.borrow_mut();
        if let Some(host) = state.hosts.get_mut(&self.host) {
            host.ends.remove(&connection.wire);
        }
        Some(connection)
    }

    fn fail(&mut self, id: ConnectionId, why: Cause, handler: &mut dyn Handler) {
        // The other end is told, unless it was the other end that told us.
        if ![Cause::ByPeer, Cause::Reset, Cause::Refused].contains(&why)
            && let Some(connection) = self.connections.get(id)
        {
            let (wire, to) = (connection.wire, connection.remote.ip());
            let reset = Content::Reset { refused: false };
            self.network.0.borrow_mut().send(wire, self.host, to, reset, None);
        }
        if self.remove(id, why).is_some() {
            handler.closed(self, id, why);
        }
    }

    /// Sends something on a connection.
    fn put(&mut self, id: ConnectionId, content: Content) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let (wire, to) = (connection.wire, connection.remote.ip());
        let mut state = self.network.0.borrow_mut();
        let streams = state.link(self.host, to).streams;
        let sequence = streams.then_some(connection.sent);
        connection.sent += 1;
        state.send(wire, self.host, to, content, sequence);
    }

    fn packet(&mut self, packet: Packet, handler: &mut dyn Handler) {
        let Packet { wire, from, content, sequence, .. } = packet;
        let known = self.by_wire.get(&wire).copied();
        if known.and_then(|id| self.connections.get(id)).is_some_and(|it| it.doomed) {
            return;
        }
        match (content, known) {
            (Content::Open { port, preface }, None) => {
                self.accept(wire, from, port, preface, handler)
            }
            // Asked for again: our greeting may have been lost.
            (Content::Open { .. }, Some(id)) => {
                let payload = self.preface();
                self.put(id, Content::Frame { kind: Kind::PREFACE, payload });
            }
            (Content::Reset { refused }, Some(id)) => {
                let why = if refused { Cause::Refused } else { Cause::Reset };
                self.fail(id, why, handler);
            }
            (Content::Frame { kind, payload }, Some(id)) => match sequence {
                None => self.frame(id, kind, payload, handler),
                Some(place) => self.in_order(id, place, Some((kind, payload)), handler),
            },
            (Content::Close, Some(id)) => match sequence {
                None => self.fail(id, Cause::ByPeer, handler),
                Some(place) => self.in_order(id, place, None, handler),
            },
            (Content::Frame { .. }, None) => {
                let reset = Content::Reset { refused: false };
                self.network.0.borrow_mut().send(wire, self.host, from, reset, None);
            }
            (Content::Reset { .. } | Content::Close, None) => {}
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
        let full = self.connections.count() >= self.limits.connections_max;
        if full || !self.ports.contains(&port) {
            if full {
                self.counters.count_closed(Cause::TooMany);
            }
            let reset = Content::Reset { refused: true };
            self.network.0.borrow_mut().send(wire, self.host, from, reset, None);
            return;
        }
        let id = self.add(wire, SocketAddr::new(from, 0));
        self.counters.accepted += 1;
        let ours = self.preface();
        self.put(id, Content::Frame { kind: Kind::PREFACE, payload: ours });
        // The request to open was the first in its stream.
        if let Some(connection) = self.connections.get_mut(id) {
            connection.expected = 1;
        }
        self.frame(id, Kind::PREFACE, preface, handler);
    }

    /// Takes what has come in a stream, once what was sent before it has come. `None` ends it.
    fn in_order(
        &mut self,
        id: ConnectionId,
        place: u64,
        frame: Option<(Kind, Vec<u8>)>,
        handler: &mut dyn Handler,
    ) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if place < connection.expected {
            return;
        }
        let end = (Kind(u8::MAX), Vec::new());
        let is_early = place > connection.expected;
        connection.early.insert(place, frame.unwrap_or(end));
        if is_early {
            return self.limit_held();
        }
        while let Some(connection) = self.connections.get_mut(id) {
            let Some((kind, payload)) = connection.early.remove(&connection.expected) else {
                return;
            };
            connection.expected += 1;
            if kind == Kind(u8::MAX) {
                return self.fail(id, Cause::ByPeer, handler);
            }
            self.frame(id, kind, payload, handler);
        }
    }

    fn frame(&mut self, id: ConnectionId, kind: Kind, payload: Vec<u8>, handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id) else { return };
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
            // A greeting that came twice.
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

    /// What a connection holds: what is on its way to the other end's process stands for what
    /// waits, and what has come too early for what has come in part.
    fn held_bytes(&self, id: ConnectionId, connection: &Connection) -> usize {
        if connection.doomed {
            return 0;
        }
        let early = connection.early.values().map(|(_, payload)| payload.len());
        let unordered = connection.unordered.iter().map(Vec::len);
        self.waiting_bytes(id) + early.sum::<usize>() + unordered.sum::<usize>()
    }

    /// Closes those that hold most when all connections together hold more than allowed.
    fn limit_held(&mut self) {
        let most = self.limits.held_bytes_max;
        let holders = self.connections.iter().map(|(id, it)| (self.held_bytes(id, it), id));
        for id in those_that_hold_most(most, holders) {
            self.doom(id, Cause::HoldsMost);
        }
        let held = self.connections.iter().map(|(id, it)| self.held_bytes(id, it));
        self.counters.held_bytes = held.sum::<usize>() as u64;
    }

    /// Gives back what a connection holds, now; the handler is told with the next poll.
    fn doom(&mut self, id: ConnectionId, why: Cause) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.doomed = true;
            connection.early.clear();
            connection.unordered.clear();
            self.failed.push((id, why));
        }
    }

    /// Asks again for connections over datagrams that have not been opened yet.
    fn ask_again(&mut self) {
        let silent: Vec<(ConnectionId, u16)> = self
            .connections
            .iter()
            .filter(|(_, it)| it.peer.is_none() && it.is_ours && it.again_at <= self.now)
            .map(|(id, it)| (id, it.remote.port()))
            .collect();
        for (id, port) in silent {
            let preface = self.preface();
            self.put(id, Content::Open { port, preface });
            if let Some(connection) = self.connections.get_mut(id) {
                connection.again_at = self.now + AGAIN;
            }
        }
    }

    fn late(&mut self, handler: &mut dyn Handler) {
        let late: Vec<ConnectionId> = self
            .connections
            .iter()
            .filter(|(_, it)| it.peer.is_none() && it.open_by <= self.now)
            .map(|(id, _)| id)
            .collect();
        for id in late {
            self.fail(id, Cause::NoGreeting, handler);
        }
    }
}

impl Transport for SimTransport {
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
        if self.connections.count() > self.limits.connections_max {
            self.failed.push((id, Cause::TooMany));
            return id;
        }
        self.counters.connected += 1;
        let preface = self.preface();
        self.put(id, Content::Open { port: address.port(), preface });
        let streams = self.network.link(self.host, address.ip()).streams;
        let again_at = if streams { Time::NEVER } else { self.now + AGAIN };
        if let Some(connection) = self.connections.get_mut(id) {
            (connection.is_ours, connection.again_at) = (true, again_at);
        }
        id
    }

    fn poll(&mut self, now: Time, handler: &mut dyn Handler) -> bool {
        self.now = now;
        let mut busy = !self.failed.is_empty();
        for (id, why) in std::mem::take(&mut self.failed) {
            self.fail(id, why, handler);
        }
        loop {
            let packet = {
                let mut state = self.network.0.borrow_mut();
                let Some(host) = state.hosts.get_mut(&self.host) else { break };
                if host.process != self.process {
                    break;
                }
                let Some(packet) = host.inbox.pop_front() else { break };
                state.taken(packet.wire, packet.to, packet.content.bytes());
                packet
            };
            busy = true;
            self.packet(packet, handler);
        }
        self.ask_again();
        self.late(handler);
        busy
    }

    fn send(&mut self, to: ConnectionId, parts: &[&[u8]]) {
        if self.connections.get(to).is_none_or(|it| it.doomed) {
            return;
        }
        let payload = parts.concat();
        self.counters.messages_out += 1;
        self.counters.bytes_out += payload.len() as u64;
        self.put(to, Content::Frame { kind: Kind::MESSAGE, payload });
        if self.waiting_bytes(to) > self.limits.waiting_bytes_max {
            self.doom(to, Cause::NotReading);
        }
        self.limit_held();
    }

    fn flush(&mut self) {}

    fn close(&mut self, connection: ConnectionId, why: Cause) {
        self.put(connection, Content::Close);
        self.remove(connection, why);
    }

    fn peer(&self, connection: ConnectionId) -> Option<&Peer> {
        self.connections.get(connection)?.peer.as_ref()
    }

    fn waiting_bytes(&self, connection: ConnectionId) -> usize {
        let Some(connection) = self.connections.get(connection) else { return 0 };
        let state = self.network.0.borrow();
        let to = connection.remote.ip();
        state.waiting.get(&(connection.wire, to)).copied().unwrap_or(0)
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn sleep(&mut self, _: Option<Duration>) {
        // The simulation knows when to give the next turn.
    }

    fn deadline(&self) -> Option<Time> {
        if !self.failed.is_empty() {
            return Some(self.now);
        }
        let unopened = self.connections.iter().filter(|(_, it)| it.peer.is_none());
        unopened.map(|(_, it)| it.open_by.min(it.again_at)).min()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
