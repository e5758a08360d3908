//! Servers that are asked to end: what their memory held is on their disks when they have.

use crate::detection::{PATIENCE, begun_with, nothing_is_lost};
use std::time::Duration;
use thunderhead_runtime::sim::disk::DiskModel;

/// Whoever ends a process may remove its shared memory, and the disk takes longer than clients are waited for.
#[test]
fn a_server_that_is_asked_to_end_takes_everything_to_its_disk_however_slow_that_is() {
    for seed in 40..44 {
        let mut world = begun_with(seed, 1, 1);
        let host = world.hosts(0)[0];
        let disk = world.simulation.disk(host).clone();
        let usual = disk.model();
        disk.set_model(DiskModel { sync: Duration::from_secs(4), ..usual });
        world.add_users();
        world.run_for(Duration::from_millis(200));
        world.ask_to_leave(0);
        assert!(world.until(PATIENCE, |world| world.left == 1), "seed {seed}");
        world.simulation.cut_power(host);
        disk.set_model(usual);
        assert!(world.until(PATIENCE, |world| world.seeing.seen.borrow().working == 0));
        nothing_is_lost(&mut world);
    }
}
