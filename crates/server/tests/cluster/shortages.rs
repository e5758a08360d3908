//! A cluster that lacks replicas: a disk hangs, `min_replicas` is raised, no coordinator answers.

use crate::detection::{PATIENCE, begun_with, down, is_served, nothing_is_lost, took};
use crate::scenario::world::World;
use std::time::Duration;
use thunderhead_runtime::Random;

/// Longer than any of these tests.
const FOR_GOOD: Duration = Duration::from_secs(24 * 3600);

/// Ends a server, and has the coordinator declare it crashed.
fn lose(world: &mut World, number: usize, lasts: Duration) {
    let (server, generation) = world.identity(number).expect("it is there");
    world.stop(number, lasts);
    assert!(world.give_up(server, generation));
    took(world, "it is down", |world| down(world).contains(&server));
}

#[test]
fn writes_go_on_beside_a_disk_that_hangs_for_good() {
    for seed in 50..52 {
        let mut world = begun_with(seed, 3, 1);
        world.add_users();
        world.hangs(2, &mut Random::from_seed(seed));
        let waited = world.seeing.seen.borrow().waited;
        assert!(
            waited > Duration::from_secs(1),
            "seed {seed}: no write waited for the disk: {waited:?}"
        );
        world.heal();
        took(&mut world, "all is whole again", World::is_whole);
        nothing_is_lost(&mut world);
    }
}

#[test]
fn a_recovery_waits_for_the_replicas_that_min_replicas_is_raised_to() {
    // With this seed the second lost server has a tablet of the wide table, which has objects. The
    // narrow table is empty, so its recovery writes nothing and waits for no backup.
    let mut world = begun_with(62, 4, 1);
    lose(&mut world, 3, FOR_GOOD);
    took(&mut world, "all is served", is_served);
    world.demands(2);
    assert!(world.until(PATIENCE, |world| world.seeing.seen.borrow().changes == 1));
    let lasts = Duration::from_secs(60);
    lose(&mut world, 2, lasts);
    // Two servers remain, so each master has one backup.
    world.run_for(Duration::from_secs(10));
    assert!(!is_served(&world), "{}", world.describe());
    world.demands(1);
    let soon = took(&mut world, "the recovery goes on", is_served);
    assert!(soon < Duration::from_secs(15), "{soon:?}");
    // The server is back.
    world.run_for(lasts);
    world.demands(2);
    assert!(world.until(PATIENCE, |world| world.seeing.seen.borrow().changes == 3));
    nothing_is_lost(&mut world);
}

/// A master whose head has lost a replica, and may not go on without it, asks for a coordinator's
/// word all the time.
#[test]
fn masters_that_need_a_coordinators_word_go_on_after_ten_minutes_without_one() {
    let mut world = begun_with(70, 3, 1);
    world.demands(2);
    assert!(world.until(PATIENCE, |world| world.seeing.seen.borrow().changes == 1));
    lose(&mut world, 2, FOR_GOOD);
    world.run_for(Duration::from_secs(1));
    let lasts = Duration::from_secs(600);
    world.lose_coordinators(lasts);
    world.run_for(lasts + Duration::from_secs(10));
    world.demands(1);
    took(&mut world, "all is served", is_served);
    nothing_is_lost(&mut world);
}
