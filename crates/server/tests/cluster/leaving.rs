//! Servers that are asked to end: everything in their memory is on their disks when they have
//! ended.

use crate::detection::{PATIENCE, begun_with, nothing_is_lost};
use crate::scenario::user::User;
use std::time::Duration;
use thunderhead_runtime::sim::disk::DiskModel;

/// The end of a container removes the shared memory of its processes. The disk takes longer than
/// the server waits for its clients.
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

/// The disk takes 4 s. Masters with replicas there, and clients of the server's tablets, do not
/// wait for that.
#[test]
fn a_server_that_ends_slowly_holds_up_no_operation_and_takes_everything_to_its_disk() {
    const SYNC: Duration = Duration::from_secs(4);
    for seed in 50..56 {
        let mut world = begun_with(seed, 3, 1 + seed as usize % 2);
        let host = world.hosts(2)[0];
        let disk = world.simulation.disk(host).clone();
        let usual = disk.model();
        let end = world.simulation.now() + 3 * SYNC;
        for number in 0..3 {
            world.add_user(&format!("busy {number}"), move |user| {
                User::work_until(user, end, Duration::from_secs(2))
            });
        }
        world.run_for(Duration::from_millis(100));
        disk.set_model(DiskModel { sync: SYNC, ..usual });
        world.run_for(Duration::from_millis(100));
        let asked = world.simulation.now();
        world.ask_to_leave(2);
        let has_left = world.until(PATIENCE, |world| world.left == 1);
        assert!(has_left, "seed {seed}: {}", world.describe());
        let took = world.simulation.now() - asked;
        assert!(took >= SYNC / 2, "seed {seed}: after {took:?} its disk cannot have everything");
        world.simulation.cut_power(host);
        disk.set_model(usual);
        let is_over = world.until(PATIENCE, |world| world.seeing.seen.borrow().working == 0);
        let failures = world.seeing.seen.borrow().failures.clone();
        assert!(is_over && failures.is_empty(), "seed {seed}: {failures:?}, {}", world.describe());
        nothing_is_lost(&mut world);
    }
}
