//! Idle clusters: their processes rarely run.

use crate::control_plane::{ControlPlane, create, open, options};
use std::time::Duration;

#[test]
fn idle_processes_have_few_turns() {
    let mut cluster = ControlPlane::new(15, 2, 3, &options());
    cluster.until_all_are_there();
    create(&mut cluster, "t", 4).unwrap();
    open(&mut cluster);
    cluster.rest();
    cluster.simulation.run_for(Duration::from_secs(5));
    let before = cluster.simulation.turns();
    let seconds = 60;
    cluster.simulation.run_for(Duration::from_secs(seconds));
    // Two coordinators, three servers and a user, and connections between them.
    let turns = cluster.simulation.turns() - before;
    assert!(turns / seconds < 30, "{} turns a second", turns / seconds);
}
