//! The promises of all transports, checked for each: TCP over IPv4 and IPv6, shared memory, and the
//! simulated network as streams and as datagrams.

mod budget;
mod closing;
mod connection_limit;
mod delivery;
mod greeting;
mod held_input;
mod slow_readers;
mod streams;

use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_net::sim::{Link, Network, SimTransport};
use thunderhead_net::{Cause, ConnectionId, Handler, Limits, Transport, Via};
use thunderhead_runtime::sim::clock::TrueTime;
use thunderhead_runtime::sim::trace::Trace;
use thunderhead_runtime::{Random, Time, os};

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
        stream_bytes_max: 1 << 20,
        connections_max: 4,
        connections_reserved: 0,
        ..Limits::default()
    }
}

fn pair<T: Transport + 'static>(
    (name, via): (&'static str, Via),
    (server, client): (T, T),
    address: SocketAddr,
    advance: impl FnMut() + 'static,
) -> Pair {
    Pair {
        name,
        via,
        server: Box::new(server),
        client: Box::new(client),
        at_server: Heard::default(),
        at_client: Heard::default(),
        address,
        now: Time(1),
        advance: Box::new(advance),
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
    let via = if shared_memory { Via::SharedMemory } else { Via::Tcp };
    pair((name, via), (server, client), address, || {})
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
    pair((name, Via::Simulated), (server, client), address, move || {
        if let Some(next) = network.next() {
            truth.set(next);
            network.deliver();
        }
    })
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
