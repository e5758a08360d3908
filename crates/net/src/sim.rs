//! A simulated network: the faults of real networks, drawn from a seed.
//!
//! The IP address identifies a host. Between any two hosts there is a [`Link`] in each direction,
//! with a delay, a bandwidth, and faults. There are two kinds of links:
//!
//! - *streams*, as TCP makes them: a lost packet is sent again after a while, nothing is
//!   duplicated, and each connection delivers in order. A connection that gets nothing through for
//!   [`SILENT`] breaks.
//! - *datagrams*: messages are lost, duplicated and reordered. Byte streams are streams here too.
//!
//! Packets are in flight until they are due. Then they lie in the inbox of their host until its
//! process polls. A host without a process answers packets with a reset, as a kernel does; a host
//! without power does not answer.
//!
//! A process may die during a turn ([`Network::stop_after_sends`]). Then, on each connection, only
//! a prefix of the turn's messages leaves. Its length is drawn for each connection separately.

mod stream;
mod transport;

pub use transport::SimTransport;

use crate::peer::Cause;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_runtime::Random;
use thunderhead_runtime::sim::clock::TrueTime;
use thunderhead_runtime::sim::trace::{Trace, fold};
use thunderhead_wire::KeyHash;
use thunderhead_wire::frame::Kind;

/// The time for which a stream may get nothing through before it breaks.
pub const SILENT: Duration = Duration::from_secs(20);

/// The time after which a stream sends a lost packet again.
const AGAIN: Duration = Duration::from_millis(200);

/// The properties of one direction between two hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The delay of every packet.
    pub delay: Duration,
    /// The mean of the additional, exponentially distributed delay.
    pub jitter: Duration,
    /// Bytes a second.
    pub bytes_per_second: u64,
    /// The probability that a packet is lost.
    pub loss: f64,
    /// The probability that a datagram is duplicated.
    pub duplicates: f64,
    /// The probability that a datagram is delayed until many later datagrams have arrived.
    pub stragglers: f64,
    /// The probability that a packet breaks its connection.
    pub resets: f64,
    /// Whether connections are streams; else they are datagrams.
    pub streams: bool,
    /// No packet gets through.
    pub blocked: bool,
}

impl Default for Link {
    fn default() -> Self {
        Link {
            delay: Duration::from_micros(5),
            jitter: Duration::from_micros(2),
            bytes_per_second: 2_500_000_000,
            loss: 0.0,
            duplicates: 0.0,
            stragglers: 0.0,
            resets: 0.0,
            streams: true,
            blocked: false,
        }
    }
}

/// The network of a simulation. Clones are handles to the same network.
#[derive(Clone)]
pub struct Network(Rc<RefCell<State>>);

/// Names a connection throughout the network.
type Wire = u64;

pub(crate) struct State {
    truth: TrueTime,
    random: Random,
    trace: Trace,
    usual: Link,
    links: BTreeMap<(IpAddr, IpAddr), Link>,
    /// When the last packet of a direction left its sender.
    sent_by: BTreeMap<(IpAddr, IpAddr), u64>,
    hosts: BTreeMap<IpAddr, Host>,
    in_flight: BTreeMap<(u64, u64), Packet>,
    /// Bytes in flight from one end of a connection to the other end's process.
    waiting: BTreeMap<(Wire, IpAddr), BytesInFlight>,
    /// The connections that are byte streams, by their names at the end that requested them.
    byte_streams: BTreeSet<Wire>,
    count: u64,
    turn: ProcessTurn,
    /// Ends of connections that were closed, by cause.
    closed: BTreeMap<Cause, u64>,
    /// Streams that broke because they got nothing through.
    silent: u64,
    /// Messages lost in the crash of their sender.
    never_left: u64,
    /// The length of the longest sent message.
    longest: usize,
}

/// Bytes in flight.
#[derive(Clone, Copy, Default)]
struct BytesInFlight {
    bytes: usize,
    /// How often some of them were consumed.
    takes: u64,
}

/// The process turn in progress.
#[derive(Default)]
struct ProcessTurn {
    host: Option<IpAddr>,
    /// The turn's duration: messages sent in it leave at its end.
    takes: u64,
    /// The messages sent in it: connection, number, and place in flight. A duplicated message has
    /// two places.
    sent: Vec<(Wire, u64, (u64, u64))>,
}

#[derive(Default)]
struct Host {
    /// The number of processes that have run here; the present one has this number.
    process: u64,
    is_running: bool,
    has_power: bool,
    inbox: VecDeque<Packet>,
    /// The number of messages that its process still sends before it dies.
    sends_left: Option<u64>,
    /// It has no descriptors for connections that its processes request.
    is_exhausted: bool,
    /// The ends of connections on this host, with the other host.
    ends: BTreeMap<Wire, IpAddr>,
}

#[derive(Clone, Debug)]
struct Packet {
    wire: Wire,
    from: IpAddr,
    to: IpAddr,
    content: PacketContent,
    /// When it was first sent.
    sent: u64,
    /// When the sending turn ended.
    left: u64,
    /// Its place in a stream.
    sequence: Option<u64>,
}

#[derive(Clone, Debug)]
enum PacketContent {
    /// Requests a connection to a port, with the greeting.
    Open {
        port: u16,
        preface: Vec<u8>,
    },
    /// Requests a byte stream.
    OpenStream {
        port: u16,
    },
    Frame {
        kind: Kind,
        payload: Vec<u8>,
    },
    /// The sender has closed.
    Close,
    /// The connection does not exist; `refused` if it never did.
    Reset {
        refused: bool,
    },
}

impl PacketContent {
    fn bytes(&self) -> usize {
        match self {
            PacketContent::Open { preface, .. } => preface.len(),
            PacketContent::Frame { payload, .. } => payload.len(),
            PacketContent::OpenStream { .. }
            | PacketContent::Close
            | PacketContent::Reset { .. } => 0,
        }
    }

    /// Returns a number that tells contents of one kind apart.
    fn fingerprint(&self) -> u64 {
        match self {
            PacketContent::Open { preface, .. } => KeyHash::of(preface).0,
            PacketContent::Frame { payload, .. } => KeyHash::of(payload).0,
            PacketContent::OpenStream { .. } | PacketContent::Close => 0,
            PacketContent::Reset { refused } => u64::from(*refused),
        }
    }

    fn number(&self) -> u64 {
        match self {
            PacketContent::Open { port, .. } => 1 | u64::from(*port) << 8,
            PacketContent::Frame { kind, .. } => 2 | u64::from(kind.0) << 8,
            PacketContent::Close => 3,
            PacketContent::Reset { .. } => 4,
            PacketContent::OpenStream { port } => 5 | u64::from(*port) << 8,
        }
    }
}

impl Network {
    /// Returns a network whose links are all alike at first.
    #[must_use]
    pub fn new(truth: TrueTime, random: Random, trace: Trace, usual: Link) -> Network {
        Network(Rc::new(RefCell::new(State {
            truth,
            random,
            trace,
            usual,
            links: BTreeMap::new(),
            sent_by: BTreeMap::new(),
            hosts: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            waiting: BTreeMap::new(),
            byte_streams: BTreeSet::new(),
            count: 0,
            turn: ProcessTurn::default(),
            closed: BTreeMap::new(),
            silent: 0,
            never_left: 0,
            longest: 0,
        })))
    }

    /// Returns the properties of a direction.
    #[must_use]
    pub fn link(&self, from: IpAddr, to: IpAddr) -> Link {
        self.0.borrow().link(from, to)
    }

    /// Sets the properties of a direction from now on.
    pub fn set_link(&self, from: IpAddr, to: IpAddr, link: Link) {
        self.0.borrow_mut().links.insert((from, to), link);
    }

    /// Sets the properties of every direction from now on.
    pub fn set_all_links(&self, link: Link) {
        let mut state = self.0.borrow_mut();
        state.usual = link;
        state.links.clear();
    }

    /// Returns the length of the longest message sent so far.
    #[must_use]
    pub fn longest_message(&self) -> usize {
        self.0.borrow().longest
    }

    /// Starts a process on a host, and returns the process's number.
    pub(crate) fn start(&self, host: IpAddr) -> u64 {
        let mut state = self.0.borrow_mut();
        let host = state.hosts.entry(host).or_default();
        host.process += 1;
        host.sends_left = None;
        (host.is_running, host.has_power) = (true, true);
        host.process
    }

    /// Begins a turn on a host. Messages sent in it leave after the given time.
    pub fn begin_turn(&self, host: IpAddr, takes: Duration) {
        let mut state = self.0.borrow_mut();
        let turn = &mut state.turn;
        (turn.host, turn.takes) = (Some(host), takes.as_nanos() as u64);
        turn.sent.clear();
    }

    /// Ends the turn: its messages are in flight.
    pub fn end_turn(&self) {
        let turn = &mut self.0.borrow_mut().turn;
        (turn.host, turn.takes) = (None, 0);
    }

    /// Ends the turn while it sends: on each connection, only a prefix of its messages leaves.
    pub fn break_off_turn(&self) {
        let mut state = self.0.borrow_mut();
        let sent = std::mem::take(&mut state.turn.sent);
        let mut messages: BTreeMap<Wire, BTreeSet<u64>> = BTreeMap::new();
        for (wire, number, _) in &sent {
            messages.entry(*wire).or_default().insert(*number);
        }
        let mut left = BTreeSet::new();
        for numbers in messages.values() {
            let count = state.random.below(numbers.len() as u64 + 1) as usize;
            left.extend(numbers.iter().take(count).copied());
        }
        for (_, number, place) in sent {
            if !left.contains(&number)
                && let Some(packet) = state.in_flight.remove(&place)
            {
                state.never_left(&packet);
            }
        }
        (state.turn.host, state.turn.takes) = (None, 0);
    }

    /// Takes the descriptors for requested connections from a host, or returns them. Existing
    /// connections stay.
    pub fn set_exhausted(&self, host: IpAddr, is_exhausted: bool) {
        self.0.borrow_mut().hosts.entry(host).or_default().is_exhausted = is_exhausted;
    }

    fn is_exhausted(&self, host: IpAddr) -> bool {
        self.0.borrow().hosts.get(&host).is_some_and(|host| host.is_exhausted)
    }

    /// Breaks all connections between two hosts: both ends are told.
    pub fn break_connections(&self, one: IpAddr, other: IpAddr) {
        let mut state = self.0.borrow_mut();
        let ends = state.hosts.get(&one).map(|host| host.ends.clone()).unwrap_or_default();
        for (wire, peer) in ends {
            if peer == other {
                let reset = PacketContent::Reset { refused: false };
                state.send(wire, one, other, reset.clone(), None);
                state.send(far_end(wire, one, other), other, one, reset, None);
            }
        }
    }

    /// Lets the process of a host die in the turn of its nth message from now on, or never.
    pub fn stop_after_sends(&self, host: IpAddr, messages: Option<u64>) {
        self.0.borrow_mut().hosts.entry(host).or_default().sends_left = messages;
    }

    /// Whether the host has sent that message.
    #[must_use]
    pub fn has_stopped(&self, host: IpAddr) -> bool {
        self.0.borrow().hosts.get(&host).is_some_and(|host| host.sends_left == Some(0))
    }

    /// Returns the number of ends of connections that were closed for a cause.
    #[must_use]
    pub fn closed(&self, why: Cause) -> u64 {
        self.0.borrow().closed.get(&why).copied().unwrap_or(0)
    }

    /// Returns the number of streams that broke because they got nothing through.
    #[must_use]
    pub fn fell_silent(&self) -> u64 {
        self.0.borrow().silent
    }

    /// Returns the number of messages that were lost in the crash of their sender.
    #[must_use]
    pub fn never_left(&self) -> u64 {
        self.0.borrow().never_left
    }

    /// Returns a number that is equal for two networks with the same packets in flight.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let state = self.0.borrow();
        let unread = state.hosts.values().flat_map(|host| &host.inbox).map(|packet| (0, packet));
        let in_flight = state.in_flight.iter().map(|((at, _), packet)| (*at, packet));
        in_flight.chain(unread).fold(state.count, |digest, (at, packet)| {
            let Packet { wire, content, sent, .. } = packet;
            let numbers = [at, *sent, *wire, content.number(), content.fingerprint()];
            numbers.into_iter().fold(digest, fold)
        })
    }

    /// Ends the process of a host, or cuts the power of the host. Only an ended process's peers are
    /// told.
    pub fn stop(&self, host: IpAddr, power_goes: bool) {
        let mut state = self.0.borrow_mut();
        let Some(it) = state.hosts.get_mut(&host) else { return };
        it.is_running = false;
        it.has_power = !power_goes;
        it.inbox.clear();
        let ends = std::mem::take(&mut it.ends);
        // Pending retransmissions die with it, and some of its latest messages have not left.
        let now = state.truth.get();
        let unsure: Vec<(u64, u64)> = state
            .in_flight
            .iter()
            .filter(|(_, packet)| packet.from == host && packet.sequence.is_some())
            .map(|(place, _)| *place)
            .collect();
        let own = state.in_flight.iter().filter(|(_, packet)| packet.from == host);
        let never: Vec<(u64, u64)> =
            own.filter(|(_, packet)| packet.left > now).map(|(place, _)| *place).collect();
        for place in never {
            if let Some(packet) = state.in_flight.remove(&place) {
                state.never_left(&packet);
            }
        }
        for place in unsure {
            let again = place.0 > now + AGAIN.as_nanos() as u64 / 2;
            if (again || power_goes && state.random.chance(0.5))
                && let Some(packet) = state.in_flight.remove(&place)
            {
                state.lost(&packet);
            }
        }
        state.waiting.retain(|(_, to), _| *to != host);
        if !power_goes {
            for (wire, peer) in ends {
                state.send(wire, host, peer, PacketContent::Reset { refused: false }, None);
            }
        }
    }

    /// Returns the time at which the next packet arrives.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        self.0.borrow().in_flight.first_key_value().map(|((at, _), _)| *at)
    }

    /// Delivers all packets due by now; returns the hosts that received some.
    pub fn deliver(&self) -> BTreeSet<IpAddr> {
        let mut state = self.0.borrow_mut();
        let now = state.truth.get();
        let mut woken = BTreeSet::new();
        while let Some(first) = state.in_flight.first_entry()
            && first.key().0 <= now
        {
            let packet = first.remove();
            woken.extend(state.arrive(packet));
        }
        woken
    }
}

impl State {
    fn link(&self, from: IpAddr, to: IpAddr) -> Link {
        let link = self.links.get(&(from, to)).copied().unwrap_or(self.usual);
        // Packets of a host to itself do not leave it.
        Link { blocked: link.blocked && from != to, ..link }
    }

    /// Whether a connection delivers in order and loses nothing.
    fn is_ordered(&self, wire: Wire, link: &Link) -> bool {
        link.streams || self.byte_streams.contains(&(wire & !ASKED))
    }

    fn fly(&mut self, at: u64, packet: Packet) -> (u64, u64) {
        self.count += 1;
        let place = (at, self.count);
        self.in_flight.insert(place, packet);
        place
    }

    /// Counts a message that a process sends.
    fn count_send(&mut self, host: IpAddr) {
        let left = self.hosts.get_mut(&host).and_then(|host| host.sends_left.as_mut());
        if let Some(left) = left {
            *left = left.saturating_sub(1);
        }
    }

    /// Sends a packet.
    fn send(
        &mut self,
        wire: Wire,
        from: IpAddr,
        to: IpAddr,
        content: PacketContent,
        sequence: Option<u64>,
    ) {
        let own = wire;
        let wire = far_end(own, from, to);
        let (link, now) = (self.link(from, to), self.truth.get());
        let link = Link { streams: self.is_ordered(wire, &link), ..link };
        let is_turn = self.turn.host == Some(from);
        let left = if is_turn { now + self.turn.takes } else { now };
        let bytes = content.bytes() as u64 + 64;
        self.waiting.entry((wire, to)).or_default().bytes += content.bytes();
        let leaves = self.sent_by.entry((from, to)).or_default();
        *leaves = left.max(*leaves) + bytes * 1_000_000_000 / link.bytes_per_second.max(1);
        let mut at = *leaves + self.delay(&link);
        let number = self.count;
        let packet = Packet { wire, from, to, content, sent: now, left, sequence };
        if self.random.chance(link.resets) {
            // Both ends are told.
            let reset = PacketContent::Reset { refused: false };
            let content = reset.clone();
            let back = Packet { from: to, to: from, wire: own, content, ..packet.clone() };
            let forth = Packet { content: reset, ..packet.clone() };
            self.fly(now, back);
            self.fly(at, Packet { sequence: None, ..forth });
        }
        if self.random.chance(link.loss) {
            if !link.streams {
                return self.lost(&packet);
            }
            at += AGAIN.as_nanos() as u64;
        }
        if !link.streams && self.random.chance(link.duplicates) {
            let again = at + self.delay(&link) * 10;
            self.waiting.entry((wire, to)).or_default().bytes += packet.content.bytes();
            let place = self.fly(again, packet.clone());
            self.turn.sent.extend(is_turn.then_some((wire, number, place)));
        }
        if !link.streams && self.random.chance(link.stragglers) {
            at += self.random.below(50_000_000);
        }
        let place = self.fly(at, packet);
        self.turn.sent.extend(is_turn.then_some((wire, number, place)));
    }

    fn delay(&mut self, link: &Link) -> u64 {
        let jitter = self.random.exponential(link.jitter.as_nanos() as f64);
        link.delay.as_nanos() as u64 + jitter as u64
    }

    fn lost(&mut self, packet: &Packet) {
        self.taken(packet.wire, packet.to, packet.content.bytes());
        self.note(packet, 100, "lost");
    }

    /// Accounts for a packet whose sender died before the packet left.
    fn never_left(&mut self, packet: &Packet) {
        self.taken(packet.wire, packet.to, packet.content.bytes());
        self.never_left += 1;
        self.note(packet, 103, "never left");
    }

    /// Accounts for bytes that have reached the other end's process, or never will.
    fn taken(&mut self, wire: Wire, to: IpAddr, bytes: usize) {
        if let Some(waiting) = self.waiting.get_mut(&(wire, to)) {
            waiting.bytes = waiting.bytes.saturating_sub(bytes);
            waiting.takes += 1;
            if waiting.bytes == 0 {
                self.waiting.remove(&(wire, to));
            }
        }
    }

    fn note(&self, packet: &Packet, what: u64, word: &str) {
        let Packet { wire, from, to, content, .. } = packet;
        let numbers = [what, *wire, content.number(), content.fingerprint()];
        self.trace.record(&numbers, || {
            let content = match content {
                PacketContent::Open { port, .. } => format!("open port {port}"),
                PacketContent::Frame { kind, payload } => format!("kind {} {payload:02x?}", kind.0),
                other => format!("{other:?}"),
            };
            format!("{from} → {to} wire {wire}: {word}: {content}")
        });
    }

    /// Delivers a due packet. Returns the host whose inbox received it.
    fn arrive(&mut self, packet: Packet) -> Option<IpAddr> {
        let link = self.link(packet.from, packet.to);
        let host = self.hosts.entry(packet.to).or_default();
        if link.blocked || !host.has_power {
            let streams = self.is_ordered(packet.wire, &link);
            self.stuck(packet, streams);
            return None;
        }
        if !host.is_running {
            self.note(&packet, 101, "no process runs there");
            self.taken(packet.wire, packet.to, packet.content.bytes());
            if !matches!(packet.content, PacketContent::Reset { .. }) {
                let refused = matches!(
                    packet.content,
                    PacketContent::Open { .. } | PacketContent::OpenStream { .. }
                );
                let reset = PacketContent::Reset { refused };
                self.send(packet.wire, packet.to, packet.from, reset, None);
            }
            return None;
        }
        self.note(&packet, 102, "arrives");
        let to = packet.to;
        self.hosts.entry(to).or_default().inbox.push_back(packet);
        Some(to)
    }

    /// Handles a packet that cannot be delivered: a stream tries again until it breaks.
    fn stuck(&mut self, packet: Packet, streams: bool) {
        let now = self.truth.get();
        if !streams {
            return self.lost(&packet);
        }
        if now - packet.sent < SILENT.as_nanos() as u64 {
            self.fly(now + AGAIN.as_nanos() as u64, packet);
            return;
        }
        self.lost(&packet);
        let sender = self.hosts.get(&packet.from);
        let waits = sender.is_some_and(|host| host.ends.contains_key(&packet.wire));
        if waits && !matches!(packet.content, PacketContent::Reset { .. }) {
            // The sender's own kernel reports it.
            self.silent += 1;
            let (to, content) = (packet.from, PacketContent::Reset { refused: false });
            self.fly(now, Packet { from: to, to, content, sequence: None, ..packet });
        }
    }
}

/// Tells apart the two ends of a host's connection to itself: the accepting end has this bit.
const ASKED: Wire = 1 << 63;

/// Returns the name of a connection at its other end. The two differ only if both ends are on one
/// host.
fn far_end(wire: Wire, from: IpAddr, to: IpAddr) -> Wire {
    if from == to { wire ^ ASKED } else { wire }
}

/// Returns an address on a host of the simulation.
#[must_use]
pub fn address(host: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(host, port)
}
