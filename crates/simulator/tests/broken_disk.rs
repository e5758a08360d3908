//! A disk that is broken for long: the register waits for it, and does not try all the time.

use std::time::Duration;
use thunderhead_rpc::Node;
use thunderhead_runtime::sim::disk::DiskModel;
use thunderhead_simulator::register::{Flaw, Register};
use thunderhead_simulator::{Options, Simulation};

#[test]
fn a_journal_that_cannot_be_opened_is_retried_at_intervals() {
    let mut simulation = Simulation::new(Options::calm(1));
    let server = simulation.add_host("server", |mut boot| {
        let register = Register::new(&mut boot.world, Flaw::None).unwrap();
        Box::new(Node::new(boot.world, boot.transport, register))
    });
    let disk = simulation.disk(server).clone();
    disk.set_model(DiskModel { failure: 1.0, ..DiskModel::default() });
    simulation.run_for(Duration::from_secs(10));
    let tried = disk.operations();
    assert!((1000..3000).contains(&tried), "{tried} operations in ten seconds");
    disk.set_model(DiskModel::default());
    simulation.run_for(Duration::from_millis(20));
    let begun = disk.operations();
    assert!(begun > tried + 5, "it has begun");
    simulation.run_for(Duration::from_secs(10));
    assert_eq!(disk.operations(), begun, "and has nothing to do");
}
