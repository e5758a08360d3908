//! The time limits of connections, under their real causes: machines that are partitioned or stand
//! still for long.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::Cause;
use thunderhead_net::sim::{Link, address};
use thunderhead_rpc::echo::Echo;
use thunderhead_rpc::{Node, Opcode};
use thunderhead_simulator::{HostId, Options, Simulation};

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A server, and a client that calls it ten times a second with a timeout of a second.
struct Cluster {
    simulation: Simulation,
    server: HostId,
    client: HostId,
    answered: Rc<Cell<u64>>,
}

fn cluster() -> Cluster {
    let mut simulation = Simulation::new(Options::calm(1));
    let server = simulation.add_host("server", |boot| {
        let mut node = Node::new(boot.world, boot.transport, Echo::default());
        node.listen(SocketAddr::new(boot.address, 7)).unwrap();
        Box::new(node)
    });
    let to = address(simulation.address(server), 7);
    let answered = Rc::new(Cell::new(0));
    let count = Rc::clone(&answered);
    let client = simulation.add_host("client", move |boot| {
        let node = Node::new(boot.world, boot.transport, ());
        let (caller, tasks) = (node.task_caller(), node.tasks().clone());
        let count = Rc::clone(&count);
        node.tasks().spawn(async move {
            loop {
                let body = 4u32.to_le_bytes().to_vec();
                let reply = caller.call(to, Opcode::Echo, body, Some(seconds(1))).await;
                count.set(count.get() + u64::from(reply.is_ok()));
                tasks.sleep(Duration::from_millis(100)).await;
            }
        });
        Box::new(node)
    });
    Cluster { simulation, server, client, answered }
}

impl Cluster {
    /// Blocks all links for a duration.
    fn partition(&mut self, duration: Duration) {
        let network = self.simulation.network().clone();
        let usual = network.link(address_of(self, self.server), address_of(self, self.client));
        network.set_all_links(Link { blocked: true, ..usual });
        self.simulation.run_for(duration);
        network.set_all_links(usual);
    }

    fn closed(&self, why: Cause) -> u64 {
        self.simulation.network().closed(why)
    }

    /// Checks that it serves after the faults.
    fn serves(&mut self) {
        let before = self.answered.get();
        self.simulation.run_for(seconds(10));
        assert!(self.answered.get() > before + 50, "it does not serve again");
    }
}

fn address_of(cluster: &Cluster, host: HostId) -> std::net::IpAddr {
    cluster.simulation.address(host)
}

#[test]
fn a_short_partition_closes_nothing_and_a_long_one_breaks_streams() {
    let mut cluster = cluster();
    cluster.serves();
    cluster.partition(seconds(15));
    cluster.serves();
    assert_eq!(cluster.simulation.network().fell_silent(), 0);
    cluster.partition(seconds(25));
    cluster.serves();
    assert!(cluster.simulation.network().fell_silent() > 0);
    assert!(cluster.closed(Cause::Reset) > 0);
}

#[test]
fn a_connection_that_is_not_greeted_in_time_is_closed() {
    let mut cluster = cluster();
    cluster.partition(seconds(4));
    assert_eq!(cluster.closed(Cause::NoGreeting), 0);
    cluster.partition(seconds(4));
    assert_eq!(cluster.closed(Cause::NoGreeting), 1);
    cluster.serves();
}

#[test]
fn a_peer_that_stalls_for_long_is_closed_for_not_reading() {
    let mut cluster = cluster();
    cluster.serves();
    let server = cluster.server;
    cluster.simulation.pause(server, seconds(25));
    cluster.simulation.run_for(seconds(25));
    cluster.serves();
    assert_eq!(cluster.closed(Cause::NotReading), 0);
    cluster.simulation.pause(server, seconds(35));
    cluster.simulation.run_for(seconds(35));
    assert_eq!(cluster.closed(Cause::NotReading), 1);
    cluster.serves();
}
