//! The register on a real machine: the same service and clients as in the simulator, on sockets and
//! files, killed and restarted. The clients' history must be linearizable.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_rpc::Node;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::os;
use thunderhead_simulator::linearizability::{self, Outcome};
use thunderhead_simulator::register::{Client, Flaw, Recorder, Register, Workload};

/// A directory that is removed when the test ends.
struct Scrap(PathBuf);

impl Scrap {
    fn new(name: &str) -> Scrap {
        Scrap(
            std::env::temp_dir()
                .join(format!("thunderhead-register-{}-{name}", std::process::id())),
        )
    }
}

impl Drop for Scrap {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn server(directory: &Path, listen: SocketAddr, options: Options) -> (Node<Register>, SocketAddr) {
    let mut world = os::world(directory).unwrap();
    let register = Register::new(&mut world, Flaw::None).unwrap();
    let transport = OsTransport::new(&world, options).unwrap();
    let mut node = Node::new(world, Box::new(transport), register);
    let address = node.listen(listen).unwrap();
    (node, address)
}

#[test]
fn the_register_serves_real_clients_and_survives_being_killed() {
    for shared_memory in [false, true] {
        let (files, scrap) = (Scrap::new("server"), Scrap::new("client"));
        let options = Options { shared_memory, ..Options::default() };
        let (mut node, address) = server(&files.0, "127.0.0.1:0".parse().unwrap(), options);
        let clock = Clock::os();
        let recorder = Recorder::new({
            let clock = clock.clone();
            move || clock.now().0
        });
        let workload = Workload {
            keys: 3,
            operations: 60,
            thinks: Duration::ZERO,
            deadline: Duration::from_secs(60),
            timeout: Duration::from_secs(20),
        };
        let mut world = os::world(&scrap.0).unwrap();
        let mut random = world.random.split();
        let transport = OsTransport::new(&world, options).unwrap();
        let own_clock = world.clock.clone();
        let mut clients = Node::new(world, Box::new(transport), ());
        let working = Rc::new(Cell::new(0));
        for _ in 0..4 {
            let handles = (clients.task_caller(), clients.tasks().clone(), own_clock.clone());
            let client = Client::new(handles, random.split(), address, recorder.clone(), &workload);
            working.set(working.get() + 1);
            let working = Rc::clone(&working);
            let done = move || working.set(working.get() - 1);
            clients.tasks().spawn(client.run(workload, done));
        }
        let (mut kills, mut answered) = (0, 0);
        while working.get() > 0 {
            node.turn_now();
            clients.turn_now();
            let now = recorder.history().iter().filter(|it| it.outcome != Outcome::Unknown).count();
            if now >= answered + 50 && kills < 3 {
                // Kills it at an arbitrary point of its work.
                answered = now;
                kills += 1;
                drop(node);
                (node, _) = server(&files.0, address, options);
            }
        }
        let history = recorder.history();
        assert_eq!((history.len(), kills), (240, 3));
        assert!(history.iter().all(|it| it.outcome != Outcome::Unknown), "every call is answered");
        linearizability::check(&history).unwrap();
    }
}
