//! The stores on which the suite runs, and the faults that can be caused in each.

use crate::client::{Client, key};
use crate::proxy::Proxy;
use crate::servers::{Kind, Scrap, Server, free_port};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thunderhead_metastore::embedded::Embedded;
use thunderhead_metastore::sim::{ClientId, Faults, SimStore};
use thunderhead_metastore::{Metastore, Request, etcd, zookeeper};
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::sim::clock::{SimClock, TrueTime};
use thunderhead_runtime::{Random, Time, World, os};

/// A store under test.
pub(crate) trait Fixture {
    /// Returns another client. Clients are numbered in the order in which they were made.
    fn client(&mut self) -> Client;

    /// Kills the store.
    fn stop(&mut self);

    /// Starts it again on the data that it kept.
    fn start(&mut self);

    /// Whether clients reach it through a connection that can break.
    fn has_connections(&self) -> bool;

    /// Breaks a client's connections, and refuses new ones.
    fn cut(&mut self, client: usize);

    /// Lets no message of a client through, without ending its connections.
    fn stall(&mut self, client: usize);

    /// Lets a client's requests through, but no answers.
    fn deafen(&mut self, client: usize);

    /// Lets a client connect again.
    fn mend(&mut self, client: usize);
}

fn world(scrap: &Scrap) -> World {
    os::world(&scrap.0).expect("a world")
}

/// The embedded store in a file.
pub(crate) struct EmbeddedFixture {
    store: Embedded,
    scrap: Scrap,
}

impl EmbeddedFixture {
    pub(crate) fn new() -> EmbeddedFixture {
        let scrap = Scrap::new();
        let store = Embedded::open(&scrap.0.join("metastore")).expect("it opens");
        EmbeddedFixture { store, scrap }
    }
}

impl Fixture for EmbeddedFixture {
    fn client(&mut self) -> Client {
        let mut world = world(&self.scrap);
        let alarm = world.alarm.clone();
        let store = self.store.client(world.workers.as_mut(), alarm).expect("a client");
        Client::os(world, Box::new(store))
    }

    fn stop(&mut self) {
        self.store.close();
    }

    fn start(&mut self) {
        self.store.reopen().expect("it opens again");
    }

    fn has_connections(&self) -> bool {
        false
    }

    fn cut(&mut self, _client: usize) {}

    fn stall(&mut self, _client: usize) {}

    fn deafen(&mut self, _client: usize) {}

    fn mend(&mut self, _client: usize) {}
}

/// A simulated store on a clock that runs as fast as the test likes.
pub(crate) struct SimFixture {
    truth: TrueTime,
    store: SimStore,
    clients: Vec<ClientId>,
}

impl SimFixture {
    pub(crate) fn new() -> SimFixture {
        let truth = TrueTime::default();
        let random = Random::from_seed(7);
        let store = SimStore::new(truth.clone(), random, Faults::none());
        SimFixture { truth, store, clients: Vec::new() }
    }
}

impl Fixture for SimFixture {
    fn client(&mut self) -> Client {
        let clock = SimClock::new(self.truth.clone(), Time(1 << 40), 0);
        let clock = Clock::Sim(Arc::new(clock));
        let store = self.store.client(clock.clone());
        self.clients.push(store.id());
        Client::sim(clock, self.truth.clone(), Box::new(store))
    }

    fn stop(&mut self) {
        self.store.stop();
    }

    fn start(&mut self) {
        self.store.start();
    }

    fn has_connections(&self) -> bool {
        true
    }

    fn cut(&mut self, client: usize) {
        self.store.cut(self.clients[client]);
    }

    fn stall(&mut self, client: usize) {
        self.store.cut(self.clients[client]);
    }

    fn deafen(&mut self, client: usize) {
        self.store.deafen(self.clients[client]);
    }

    fn mend(&mut self, client: usize) {
        self.store.mend(self.clients[client]);
    }
}

/// A real server, with a proxy in front of it for each client.
pub(crate) struct ServedFixture {
    kind: Kind,
    /// Dead endpoints that clients get before the working one.
    dead: Vec<SocketAddr>,
    wires: Vec<Proxy>,
    server: Server,
    scrap: Scrap,
}

impl ServedFixture {
    pub(crate) fn new(kind: Kind) -> ServedFixture {
        let server = Server::start(kind);
        ServedFixture { kind, dead: Vec::new(), wires: Vec::new(), server, scrap: Scrap::new() }
    }

    /// Returns a fixture in which two of three servers do not run.
    pub(crate) fn with_dead_endpoints(kind: Kind) -> ServedFixture {
        ServedFixture { dead: vec![free_port(), free_port()], ..ServedFixture::new(kind) }
    }
}

impl Fixture for ServedFixture {
    fn client(&mut self) -> Client {
        let wire = Proxy::new(self.server.address);
        let mut world = world(&self.scrap);
        let mut endpoints = vec![wire.address.to_string()];
        endpoints.splice(0..0, self.dead.iter().map(ToString::to_string));
        let root = key("thunderhead/tests");
        let (patience, watch_every) = (Duration::from_secs(3), Duration::from_millis(50));
        let (workers, alarm) = (world.workers.as_mut(), world.alarm.clone());
        let store: Box<dyn Metastore> = match self.kind {
            Kind::Etcd => {
                let usual = etcd::Options::new(endpoints, root);
                let options = etcd::Options { patience, watch_every, ..usual };
                Box::new(etcd::client(&options, workers, alarm).expect("a client"))
            }
            Kind::ZooKeeper => {
                let usual = zookeeper::Options::new(endpoints, root);
                let options = zookeeper::Options { patience, watch_every, ..usual };
                Box::new(zookeeper::client(&options, workers, alarm).expect("a client"))
            }
        };
        self.wires.push(wire);
        let mut client = Client::os(world, store);
        // The server may still be starting.
        client.ask_patiently(&Request::Get { key: key("none") });
        client
    }

    fn stop(&mut self) {
        self.server.kill();
    }

    fn start(&mut self) {
        self.server.run();
    }

    fn has_connections(&self) -> bool {
        true
    }

    fn cut(&mut self, client: usize) {
        self.wires[client].cut();
    }

    fn stall(&mut self, client: usize) {
        self.wires[client].stall();
    }

    fn deafen(&mut self, client: usize) {
        self.wires[client].deafen();
    }

    fn mend(&mut self, client: usize) {
        self.wires[client].mend();
    }
}
