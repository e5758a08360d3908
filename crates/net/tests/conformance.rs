//! The promises of all transports, checked for each: TCP over IPv4 and IPv6, shared memory, and the
//! simulated network as streams and as datagrams.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_net::sim::{Link, Network, SimTransport};
use thunderhead_net::{Cause, ConnectionId, Handler, Limits, OwnCluster, Transport, Via};
use thunderhead_runtime::sim::clock::TrueTime;
use thunderhead_runtime::sim::trace::Trace;
use thunderhead_runtime::{Random, Time, os};
use thunderhead_wire::ClusterId;
use thunderhead_wire::frame::MEMBER;

/// The events that one end was told.
#[derive(Default)]
struct Heard {
    opened: Vec<ConnectionId>,
    closed: Vec<(ConnectionId, Cause)>,
    messages: Vec<(ConnectionId, Vec<u8>)>,
    /// Whether to send every message back.
    echoes: bool,
    /// Whether each message holds the input for the rest of the poll.
    holds: bool,
}

impl Handler for Heard {
    fn opened(&mut self, _: &mut dyn Transport, connection: ConnectionId) {
        self.opened.push(connection);
    }

    fn message(&mut self, transport: &mut dyn Transport, from: ConnectionId, message: &[u8]) {
        if self.echoes {
            transport.send(from, &[message]);
        }
        self.messages.push((from, message.to_vec()));
        if self.holds {
            transport.hold_input();
        }
    }

    fn closed(&mut self, _: &mut dyn Transport, connection: ConnectionId, why: Cause) {
        self.closed.push((connection, why));
    }
}

/// A server and a client on one thread.
struct Pair {
    name: &'static str,
    via: Via,
    server: Box<dyn Transport>,
    client: Box<dyn Transport>,
    at_server: Heard,
    at_client: Heard,
    address: SocketAddr,
    now: Time,
    advance: Box<dyn FnMut()>,
}

const FEATURES: u64 = 0b101;

fn limits() -> Limits {
    Limits {
        message_bytes_max: 1 << 20,
        connections_max: 4,
        connections_reserved: 0,
        ..Limits::default()
    }
}

fn on_this_machine(
    name: &'static str,
    listen: &str,
    shared_memory: bool,
    limits: Limits,
    (at_server, at_client): (u64, u64),
) -> Pair {
    let options = |features| Options { limits, features, shared_memory, ..Options::default() };
    let world = || os::world_without_files().unwrap();
    let mut server = OsTransport::new(&world(), options(at_server)).unwrap();
    let client = OsTransport::new(&world(), options(at_client)).unwrap();
    let address = server.listen(listen.parse().unwrap()).unwrap();
    Pair {
        name,
        via: if shared_memory { Via::SharedMemory } else { Via::Tcp },
        server: Box::new(server),
        client: Box::new(client),
        at_server: Heard::default(),
        at_client: Heard::default(),
        address,
        now: Time(1),
        advance: Box::new(|| {}),
    }
}

fn simulated(
    name: &'static str,
    streams: bool,
    limits: Limits,
    (at_server, at_client): (u64, u64),
) -> Pair {
    let truth = TrueTime::default();
    let trace = Trace::new(truth.clone(), false);
    let link = Link { streams, ..Link::default() };
    let network = Network::new(truth.clone(), Random::from_seed(7), trace, link);
    let hosts = ["10.0.0.1", "10.0.0.2"].map(|host| host.parse().unwrap());
    let mut server = SimTransport::new(&network, hosts[0], limits, at_server);
    let client = SimTransport::new(&network, hosts[1], limits, at_client);
    let address = server.listen(SocketAddr::new(hosts[0], 7000)).unwrap();
    Pair {
        name,
        via: Via::Simulated,
        server: Box::new(server),
        client: Box::new(client),
        at_server: Heard::default(),
        at_client: Heard::default(),
        address,
        now: Time(1),
        advance: Box::new(move || {
            if let Some(next) = network.next() {
                truth.set(next);
                network.deliver();
            }
        }),
    }
}

fn every_transport() -> [Pair; 5] {
    every_transport_with(limits())
}

fn every_transport_with(limits: Limits) -> [Pair; 5] {
    every_transport_of(limits, FEATURES, FEATURES)
}

fn every_transport_of(limits: Limits, server: u64, client: u64) -> [Pair; 5] {
    let features = (server, client);
    [
        on_this_machine("tcp", "127.0.0.1:0", false, limits, features),
        on_this_machine("tcp6", "[::1]:0", false, limits, features),
        on_this_machine("shm", "127.0.0.1:0", true, limits, features),
        simulated("streams", true, limits, features),
        simulated("datagrams", false, limits, features),
    ]
}

impl Pair {
    fn turn(&mut self) {
        self.now = self.now + Duration::from_micros(5);
        self.client.poll(self.now, &mut self.at_client);
        self.client.flush();
        (self.advance)();
        self.server.poll(self.now, &mut self.at_server);
        self.server.flush();
    }

    /// Takes turns until a condition holds.
    fn until(&mut self, goal: &str, holds: impl Fn(&Pair) -> bool) {
        for _ in 0..1_000_000 {
            if holds(self) {
                return;
            }
            self.turn();
        }
        panic!("{}: never {goal}", self.name);
    }

    fn open(&mut self) -> ConnectionId {
        let count = self.at_server.opened.len();
        let connection = self.client.connect(self.address);
        self.until("opened", |it| {
            it.at_client.opened.contains(&connection) && it.at_server.opened.len() > count
        });
        connection
    }

    fn send(&mut self, connection: ConnectionId, message: &[u8]) {
        self.client.send(connection, &[message]);
    }
}

fn message(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + length) as u8).collect()
}

#[test]
fn both_ends_are_greeted_before_anything_else() {
    for mut pair in every_transport() {
        let connection = pair.open();
        let peer = pair.client.peer(connection).unwrap();
        assert_eq!(peer.via, pair.via, "{}", pair.name);
        assert_eq!(peer.address, pair.address);
        assert_eq!(peer.agreement.features, FEATURES);
        assert_eq!(peer.agreement.message_bytes_max, 1 << 20);
        let there = pair.server.peer(pair.at_server.opened[0]).unwrap();
        assert_eq!(there.agreement.version, 1);
        assert_eq!((pair.server.counters().accepted, pair.client.counters().connected), (1, 1));
    }
}

const ONE: OwnCluster = OwnCluster::Known(ClusterId(1));
const OTHER: OwnCluster = OwnCluster::Known(ClusterId(2));

#[test]
fn ends_of_different_clusters_exchange_no_message() {
    for mut pair in every_transport() {
        pair.server.set_cluster(ONE);
        pair.client.set_cluster(OTHER);
        let connection = pair.client.connect(pair.address);
        pair.until("closed", |it| {
            !it.at_client.closed.is_empty() && !it.at_server.closed.is_empty()
        });
        let (name, closed) = (pair.name, &pair.at_client.closed);
        // The end of the connection may arrive before the greeting that names the cause.
        let overtakes = name == "datagrams" && closed[0].1 == Cause::ByPeer;
        assert!(*closed == [(connection, Cause::WrongCluster)] || overtakes, "{name}: {closed:?}");
        assert!(pair.at_client.opened.is_empty() && pair.at_server.opened.is_empty(), "{name}");
        // The end that refuses knows the cluster of the other.
        let strangers = [&pair.server, &pair.client].map(|end| end.counters().foreign_peer);
        let clusters = strangers.map(|it| it.map(|it| it.cluster));
        let one_is = |at: usize, id| clusters[at] == Some(ClusterId(id));
        assert!(one_is(0, 2) || one_is(1, 1), "{name}: {strangers:?}");
        pair.client.set_cluster(ONE);
        let connection = pair.open();
        pair.send(connection, b"hello");
        pair.until("received", |it| it.at_server.messages.len() == 1);
    }
}

#[test]
fn an_end_without_a_cluster_is_welcome_and_keeps_the_first_that_it_learns() {
    for mut pair in every_transport() {
        pair.server.set_cluster(ONE);
        pair.open();
        assert_eq!(pair.client.cluster(), OwnCluster::Unknown);
        pair.client.set_cluster(OwnCluster::FirstMet);
        let first = pair.open();
        assert_eq!(pair.client.cluster(), ONE, "{}", pair.name);
        assert_eq!(pair.client.peer(first).unwrap().agreement.cluster, Some(ClusterId(1)));
        // A server of another cluster takes over that address.
        pair.server.set_cluster(OTHER);
        pair.until("closed", |it| it.at_client.closed.len() == 2);
        let again = pair.client.connect(pair.address);
        pair.until("closed", |it| it.at_client.closed.len() == 3);
        let (closed, why) = pair.at_client.closed[2];
        let overtakes = pair.name == "datagrams" && why == Cause::ByPeer;
        assert!(closed == again && (why == Cause::WrongCluster || overtakes), "{}", pair.name);
    }
}

#[test]
fn an_end_that_learns_its_cluster_is_greeted_again_unless_the_peer_named_it() {
    for mut pair in every_transport() {
        let unknown = pair.open();
        pair.server.set_cluster(ONE);
        // A message sent before the other end notices is dropped.
        pair.send(unknown, b"dropped");
        pair.until("closed", |it| {
            !it.at_client.closed.is_empty() && !it.at_server.closed.is_empty()
        });
        assert_eq!(pair.at_server.closed[0].1, Cause::ClusterLearned, "{}", pair.name);
        let known = pair.open();
        pair.client.set_cluster(ONE);
        pair.send(known, b"hello");
        pair.until("received", |it| !it.at_server.messages.is_empty());
        assert_eq!(pair.at_server.messages[0].1, b"hello", "{}", pair.name);
        assert_eq!((pair.at_client.closed.len(), pair.at_server.closed.len()), (1, 1));
    }
}

#[test]
fn messages_of_any_length_arrive_whole_and_unchanged() {
    let lengths = [0, 1, 3, 55, 56, 57, 4095, 4096, 65_535, 65_536, 65_537, 300_000, 1 << 20];
    for mut pair in every_transport() {
        pair.at_server.echoes = true;
        let connection = pair.open();
        for length in lengths {
            let sent = message(length);
            // Callers also send in parts.
            let (head, body) = sent.split_at(length / 3);
            pair.client.send(connection, &[head, b"", body]);
            pair.until("answered", |it| !it.at_client.messages.is_empty());
            let (from, received) = pair.at_client.messages.remove(0);
            assert_eq!(from, connection);
            assert!(received == sent, "{} {length}", pair.name);
        }
    }
}

#[test]
fn many_messages_in_flight_all_arrive_once() {
    for mut pair in every_transport() {
        pair.at_server.echoes = true;
        let connection = pair.open();
        let mut expected: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for number in 0..2000u32 {
            let mut sent = message(number as usize % 300);
            sent.extend(number.to_le_bytes());
            pair.send(connection, &sent);
            *expected.entry(sent).or_default() += 1;
            if number % 100 == 0 {
                pair.turn();
            }
        }
        pair.until("all answered", |it| it.at_client.messages.len() == 2000);
        for (_, received) in &pair.at_client.messages {
            *expected.get_mut(received).unwrap() -= 1;
        }
        assert!(expected.values().all(|left| *left == 0));
    }
}

#[test]
fn a_poll_delivers_no_message_after_its_handler_holds_the_input() {
    const EACH: usize = 200;
    for mut pair in every_transport() {
        pair.at_server.holds = true;
        let connections = [pair.open(), pair.open(), pair.open()];
        let length = |number: usize| if number % 50 == 49 { 150_000 } else { 1_000 };
        for number in 0..EACH {
            for connection in connections {
                let mut sent = message(length(number));
                sent[..8].copy_from_slice(&(number as u64).to_le_bytes());
                pair.send(connection, &sent);
            }
        }
        let mut before = 0;
        while before < 3 * EACH {
            pair.turn();
            let count = pair.at_server.messages.len();
            assert!(count <= before + 1, "{}: {} messages in a poll", pair.name, count - before);
            before = count;
        }
        let mut numbers: BTreeMap<ConnectionId, Vec<u64>> = BTreeMap::new();
        for (from, received) in &pair.at_server.messages {
            let number = u64::from_le_bytes(*received.first_chunk().unwrap());
            assert_eq!(received[8..], message(length(number as usize))[8..]);
            numbers.entry(*from).or_default().push(number);
        }
        assert_eq!(numbers.len(), 3);
        for mut of_one in numbers.into_values() {
            if pair.name == "datagrams" {
                of_one.sort_unstable();
            }
            assert!(of_one.into_iter().eq(0..EACH as u64), "{}", pair.name);
        }
    }
}

#[test]
fn a_connection_with_much_input_does_not_hold_up_others() {
    for mut pair in every_transport().into_iter().filter(|it| it.via != Via::Simulated) {
        pair.at_server.holds = true;
        let (busy, other) = (pair.open(), pair.open());
        for _ in 0..400 {
            pair.send(busy, &message(10_000));
        }
        pair.send(other, &message(10));
        pair.until("all received", |it| it.at_server.messages.len() == 401);
        let at = pair.at_server.messages.iter().position(|(_, it)| it.len() == 10).unwrap();
        assert!(at < 200, "{}: after {at} others", pair.name);
    }
}

#[test]
fn a_peer_that_leaves_while_input_is_held_is_heard_to_the_end() {
    for echoes in [false, true] {
        for mut pair in every_transport().into_iter().filter(|it| it.via != Via::Simulated) {
            (pair.at_server.holds, pair.at_server.echoes) = (true, echoes);
            let connection = pair.open();
            for _ in 0..20 {
                pair.send(connection, &message(1_000));
            }
            pair.client.flush();
            pair.client.close(connection, Cause::ByPeer);
            pair.until("closed", |it| !it.at_server.closed.is_empty());
            assert_eq!(pair.at_server.messages.len(), 20, "{} {echoes}", pair.name);
        }
    }
}

/// Opens a connection from a further client of a server.
fn another(pair: &mut Pair, shared_memory: bool) -> (OsTransport, Heard, ConnectionId) {
    let options =
        Options { limits: limits(), features: FEATURES, shared_memory, ..Options::default() };
    let mut client = OsTransport::new(&os::world_without_files().unwrap(), options).unwrap();
    let mut heard = Heard::default();
    let connection = client.connect(pair.address);
    for _ in 0..1_000_000 {
        client.poll(pair.now, &mut heard);
        client.flush();
        pair.turn();
        if !heard.opened.is_empty() {
            return (client, heard, connection);
        }
    }
    panic!("{}: never opened", pair.name);
}

/// Rings whose messages hold the input of every poll.
#[test]
fn sockets_are_served_while_rings_are_always_full() {
    let features = (FEATURES, FEATURES);
    let mut pair = on_this_machine("shm", "127.0.0.1:0", true, limits(), features);
    let busy = pair.open();
    pair.at_server.holds = true;
    let fill = |pair: &mut Pair| {
        for _ in 0..4 {
            pair.send(busy, &message(1_000));
        }
    };
    (0..50).for_each(|_| fill(&mut pair));
    // A new connection is accepted and served, and its answer is the proof.
    let (mut client, mut heard, connection) = another(&mut pair, false);
    pair.at_server.echoes = true;
    client.send(connection, &[b"to a socket"]);
    let mut turns = 0;
    while heard.messages.is_empty() {
        fill(&mut pair);
        pair.turn();
        client.poll(pair.now, &mut heard);
        client.flush();
        turns += 1;
        assert!(turns < 100, "not answered after {turns} turns");
    }
}

#[test]
fn a_long_answer_leaves_while_input_of_others_is_held() {
    for shared_memory in [false, true] {
        let features = (FEATURES, FEATURES);
        let mut pair = on_this_machine("both", "127.0.0.1:0", shared_memory, limits(), features);
        let busy = pair.open();
        let (mut client, mut heard, connection) = another(&mut pair, shared_memory);
        client.send(connection, &[b"first"]);
        while pair.at_server.messages.is_empty() {
            client.poll(pair.now, &mut heard);
            pair.turn();
        }
        let from = pair.at_server.messages[0].0;
        pair.at_server.holds = true;
        (0..2_000).for_each(|_| pair.send(busy, &message(30)));
        pair.server.send(from, &[&message(1 << 20)]);
        while heard.messages.is_empty() {
            pair.turn();
            client.poll(pair.now, &mut heard);
            client.flush();
        }
        let before = pair.at_server.messages.len();
        assert!(before < 1_000, "{before} messages of another connection came first");
    }
}

#[test]
fn a_message_that_is_too_long_closes_its_connection_and_no_other() {
    for mut pair in every_transport() {
        let (bad, good) = (pair.open(), pair.open());
        pair.send(bad, &message((1 << 20) + 1));
        pair.until("closed", |it| !it.at_client.closed.is_empty());
        assert_eq!(pair.at_client.closed[0].0, bad);
        assert_eq!(pair.at_server.closed[0].1, Cause::TooLong, "{}", pair.name);
        assert_eq!(pair.server.counters().closed(Cause::TooLong), 1);
        pair.send(good, b"still here");
        pair.until("received", |it| !it.at_server.messages.is_empty());
        assert!(pair.client.peer(bad).is_none());
    }
}

#[test]
fn a_closed_connection_closes_once_on_both_sides() {
    for mut pair in every_transport() {
        let connection = pair.open();
        pair.send(connection, b"last words");
        pair.client.close(connection, Cause::ByUs);
        // A message sent afterwards is dropped.
        pair.send(connection, b"too late");
        pair.until("closed", |it| !it.at_server.closed.is_empty());
        for _ in 0..100 {
            pair.turn();
        }
        let heard: Vec<&[u8]> = pair.at_server.messages.iter().map(|it| it.1.as_slice()).collect();
        // With reordering, the close may arrive before the last message.
        assert!(heard == [b"last words"] || pair.name == "datagrams" && heard.is_empty());
        assert_eq!(pair.at_server.closed.len(), 1);
        assert_eq!(pair.at_server.closed[0].1, Cause::ByPeer);
        assert!(pair.at_client.closed.is_empty(), "the closing end is not told");
        assert_eq!((pair.server.counters().open, pair.client.counters().open), (0, 0));
        let next = pair.open();
        assert_ne!(next, connection, "ids are not used again");
    }
}

#[test]
fn an_address_without_a_listener_refuses() {
    for mut pair in every_transport() {
        let nowhere = SocketAddr::new(pair.address.ip(), 1);
        let connection = pair.client.connect(nowhere);
        pair.until("refused", |it| !it.at_client.closed.is_empty());
        assert_eq!(pair.at_client.closed, [(connection, Cause::Refused)], "{}", pair.name);
    }
}

#[test]
fn more_connections_than_allowed_are_turned_away_and_the_others_stay() {
    for mut pair in every_transport() {
        // The client has the same limit; this checks the server's.
        let mut other = every_transport().into_iter().find(|it| it.name == pair.name).unwrap();
        if pair.via == Via::Simulated {
            continue;
        }
        let held: Vec<ConnectionId> = (0..4).map(|_| pair.open()).collect();
        other.client.connect(pair.address);
        while other.at_client.closed.is_empty() {
            other.client.poll(pair.now, &mut other.at_client);
            other.client.flush();
            pair.turn();
        }
        assert_eq!(pair.server.counters().closed(Cause::TooMany), 1, "{}", pair.name);
        for connection in held {
            pair.send(connection, b"still here");
        }
        pair.until("received", |it| it.at_server.messages.len() == 4);
        // Now the client's own limit.
        let fifth = pair.client.connect(pair.address);
        pair.until("turned away", |it| it.at_client.closed.contains(&(fifth, Cause::TooMany)));
    }
}

#[test]
fn members_are_accepted_when_clients_are_turned_away() {
    const RESERVED: usize = 2;
    let limits = Limits { connections_reserved: RESERVED, ..limits() };
    for (client_features, accepted) in [(FEATURES, 0), (FEATURES | MEMBER, RESERVED)] {
        for mut pair in every_transport_of(limits, FEATURES | MEMBER, client_features) {
            for _ in 0..limits.connections_max {
                pair.open();
            }
            for number in 0..RESERVED + 1 {
                let (opened, closed) = (pair.at_server.opened.len(), pair.at_client.closed.len());
                let connection = pair.client.connect(pair.address);
                pair.until("accepted or turned away", |it| {
                    it.at_server.opened.len() > opened || it.at_client.closed.len() > closed
                });
                let is_accepted = pair.at_client.closed.iter().all(|(id, _)| *id != connection);
                assert_eq!(is_accepted, number < accepted, "{} {number}", pair.name);
            }
            let refused = (RESERVED + 1 - accepted) as u64;
            assert_eq!(pair.server.counters().closed(Cause::TooMany), refused, "{}", pair.name);
            let is_refusal = pair.at_client.closed.iter().any(|(_, why)| *why == Cause::Refused);
            assert!(!is_refusal, "{}: a full server does not look like a dead one", pair.name);
        }
    }
}

#[test]
fn a_peer_that_does_not_read_is_paused_and_finally_closed() {
    for mut pair in every_transport() {
        pair.at_server.echoes = true;
        let (deaf, good) = (pair.open(), pair.open());
        let sent = message(64 << 10);
        let most = (Limits::default().waiting_bytes_high + (2 << 20)) as u64;
        for _ in 0..400 {
            pair.client.send(deaf, &[&sent]);
            pair.client.flush();
            (pair.advance)();
            // The client never polls, so it reads nothing.
            pair.server.poll(pair.now, &mut pair.at_server);
            pair.server.flush();
        }
        let taken = pair.at_server.messages.len() as u64 * sent.len() as u64;
        let in_sockets = 12 << 20;
        assert!(taken < most + in_sockets, "{}: {taken} bytes were taken", pair.name);
        for millis in [31_000, 900, 900] {
            pair.now = pair.now + Duration::from_millis(millis);
            for _ in 0..20 {
                pair.server.poll(pair.now, &mut pair.at_server);
                pair.server.flush();
            }
        }
        assert_eq!(pair.at_server.closed.len(), 1, "{}", pair.name);
        assert_eq!(pair.at_server.closed[0].1, Cause::NotReading, "{}", pair.name);
        pair.at_server.messages.clear();
        pair.send(good, b"unaffected");
        pair.until("received", |it| it.at_server.messages.iter().any(|it| it.1 == b"unaffected"));
    }
}

#[test]
fn a_paused_peer_continues_once_it_takes_its_replies() {
    for mut pair in every_transport() {
        pair.at_server.echoes = true;
        let connection = pair.open();
        let sent = message(64 << 10);
        for _ in 0..400 {
            pair.client.send(connection, &[&sent]);
            pair.client.flush();
            (pair.advance)();
            pair.server.poll(pair.now, &mut pair.at_server);
            pair.server.flush();
        }
        assert!(pair.at_server.messages.len() < 400, "{}: it was not paused", pair.name);
        pair.until("all answered", |it| {
            assert_eq!(it.at_client.closed, [], "{}", it.name);
            it.at_client.messages.len() == 400
        });
    }
}

#[test]
fn all_connections_together_stay_within_their_budget() {
    let limits = Limits { held_bytes_max: 8 << 20, ..limits() };
    let sent = message(1 << 20);
    for mut pair in every_transport_with(limits) {
        let good = pair.open();
        for _ in 0..3 {
            pair.open();
        }
        let opened = pair.at_server.opened.clone();
        let (good_there, deaf) = (opened[0], &opened[1..]);
        let mut most = 0;
        // Three connections get much and do not read it; one gets little.
        for round in 0..60 {
            for connection in deaf {
                pair.server.send(*connection, &[&sent]);
                most = most.max(pair.server.counters().held_bytes);
            }
            if round % 10 == 0 {
                pair.server.send(good_there, &[b"a little"]);
            }
        }
        assert!(most <= limits.held_bytes_max as u64, "{}: {most}", pair.name);
        pair.until("said to the handler", |it| it.at_server.closed.len() == 3);
        assert!(
            pair.at_server
                .closed
                .iter()
                .all(|(id, why)| deaf.contains(id) && *why == Cause::HoldsMost)
        );
        assert_eq!(pair.server.counters().closed(Cause::HoldsMost), 3, "{}", pair.name);
        pair.until("received", |it| it.at_client.messages.iter().any(|it| it.0 == good));
        pair.at_server.messages.clear();
        pair.send(good, b"unaffected");
        pair.until("received", |it| it.at_server.messages.iter().any(|it| it.1 == b"unaffected"));
        pair.until("drained", |it| it.server.waiting_bytes(good_there) == 0);
    }
}

#[test]
fn a_message_sent_before_the_connection_is_open_closes_it() {
    for mut pair in every_transport() {
        let connection = pair.client.connect(pair.address);
        pair.send(connection, b"too early");
        pair.until("closed on both sides", |it| {
            !it.at_client.closed.is_empty() && !it.at_server.closed.is_empty()
        });
        let (closed, why) = pair.at_client.closed[0];
        assert_eq!(closed, connection, "{}", pair.name);
        assert!([Cause::ByPeer, Cause::Reset].contains(&why), "{}: {why}", pair.name);
        assert_eq!(pair.at_server.closed[0].1, Cause::NotOurs, "{}", pair.name);
        assert!(pair.at_server.opened.is_empty() && pair.at_server.messages.is_empty());
    }
}

#[test]
fn above_half_the_budget_the_largest_holders_wait_and_others_are_served() {
    for via in ["tcp", "tcp6", "shm"] {
        // Only the common budget holds a connection back.
        let limits = Limits { held_bytes_max: 24 << 20, waiting_bytes_high: 60 << 20, ..limits() };
        let with = |limits| every_transport_with(limits).into_iter().find(|it| it.name == via);
        let (mut pair, mut deaf) = (with(limits).unwrap(), with(Limits::default()).unwrap());
        pair.at_server.echoes = true;
        let good = pair.open();
        let greedy: Vec<ConnectionId> = (0..3).map(|_| deaf.client.connect(pair.address)).collect();
        while deaf.at_client.opened.len() < 3 {
            deaf.client.poll(pair.now, &mut deaf.at_client);
            pair.turn();
        }
        let sent = message(256 << 10);
        for round in 0..200 {
            for connection in &greedy {
                // The client never polls, so it reads nothing.
                deaf.client.send(*connection, &[&sent]);
            }
            deaf.client.flush();
            pair.at_server.messages.clear();
            pair.send(good, &message(round));
            pair.until("served", |it| it.at_client.messages.len() > round);
        }
        let counters = pair.server.counters();
        assert!(counters.held_back > 0 && counters.held_bytes > 12 << 20, "{via} {counters:?}");
        assert_eq!(pair.at_server.closed, [], "{via}");
        // Once the client reads, everything arrives.
        let mut turns = 0;
        while pair.server.counters().held_bytes > 0 {
            deaf.client.poll(pair.now, &mut deaf.at_client);
            pair.turn();
            turns += 1;
            assert!(turns < 1_000_000, "{via}: {:?}", pair.server.counters());
        }
        assert!(deaf.at_client.messages.iter().all(|(_, received)| *received == sent));
        assert_eq!((deaf.at_client.closed.len(), pair.at_server.closed.len()), (0, 0));
    }
}

#[test]
fn above_half_the_budget_long_messages_are_queued_and_short_ones_are_not() {
    for via in ["tcp", "tcp6", "shm"] {
        let limits = Limits { held_bytes_max: 4 << 20, ..limits() };
        let mut pair = every_transport_with(limits).into_iter().find(|it| it.name == via).unwrap();
        let (long, short) = (pair.open(), pair.open());
        pair.open();
        let deaf = *pair.at_server.opened.last().unwrap();
        let turn = |pair: &mut Pair| {
            pair.client.flush();
            pair.server.poll(pair.now, &mut pair.at_server);
        };
        // The bytes waiting for a peer that does not read exceed half of the budget.
        let sent = message(256 << 10);
        while pair.server.counters().held_bytes < 5 << 19 {
            pair.server.send(deaf, &[&sent]);
            (0..100).for_each(|_| turn(&mut pair));
        }
        pair.client.send(long, &[&message(1 << 20)]);
        pair.client.send(short, &[b"short"]);
        for _ in 0..100 {
            turn(&mut pair);
        }
        let heard: Vec<&[u8]> = pair.at_server.messages.iter().map(|it| it.1.as_slice()).collect();
        assert!(heard == [b"short"], "{via}");
        assert_eq!(pair.server.counters().held_back, 1, "{via}");
        assert!(pair.server.counters().held_bytes < 3 << 20, "{via}: no more is held for it");
        pair.until("both came", |it| it.at_server.messages.len() == 2);
        assert!(pair.at_server.messages[1].1 == message(1 << 20), "{via}");
        assert_eq!((pair.at_client.closed.len(), pair.at_server.closed.len()), (0, 0));
        pair.until("nothing is held", |it| it.server.counters().held_bytes == 0);
    }
}

#[test]
fn heavy_traffic_in_both_directions_gets_through() {
    for mut pair in every_transport() {
        pair.at_server.echoes = true;
        let connection = pair.open();
        let sent = message(1 << 20);
        for _ in 0..40 {
            pair.client.send(connection, &[&sent]);
        }
        pair.until("all answered", |it| {
            assert_eq!(it.at_client.closed, [], "{}", it.name);
            it.at_client.messages.len() == 40
        });
        assert!(pair.at_client.messages.iter().all(|(_, received)| *received == sent));
    }
}
