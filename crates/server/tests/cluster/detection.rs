//! Failure detection: servers crash, pause, are cut off or slow. The tests check which are declared
//! crashed, how soon, and that nothing is lost.

use crate::scenario::plan::{Extras, Plan};
use crate::scenario::user::User;
use crate::scenario::world::World;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_metastore::sim::Faults;
use thunderhead_net::sim::Link;
use thunderhead_runtime::Random;
use thunderhead_server::Probing;
use thunderhead_simulator::{Scheduling, linearizability};
use thunderhead_wire::control::{ServerState, Settings};
use thunderhead_wire::{Generation, ServerId};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a calm cluster of four servers, whose users have done their work.
fn worked(seed: u64, shards: usize) -> World {
    let mut world = begun(seed, shards);
    world.add_users();
    assert!(world.until(PATIENCE, |world| world.seeing.seen.borrow().working == 0));
    world
}

pub(crate) fn begun(seed: u64, shards: usize) -> World {
    begun_with(seed, 4, shards)
}

pub(crate) fn begun_with(seed: u64, servers: usize, shards: usize) -> World {
    let mut random = Random::from_seed(seed);
    let drawn = Plan::draw(&mut random, Extras::default());
    let plan = Plan {
        servers,
        shards,
        users: 2,
        settings: Settings {
            replicas: if servers == 1 { 1 } else { 2 },
            min_replicas: 1,
            durability: "replicated".to_owned(),
            segment_bytes: 64 << 10,
            self_backup: servers == 1,
        },
        memory_bytes: 20 * (64 << 10),
        buffers: 24,
        link: Link { delay: Duration::from_micros(20), ..Link::default() },
        scheduling: Scheduling::default(),
        metastore: Faults::none(),
        thinks: Duration::from_millis(10),
        leadership_ttl: Duration::from_secs(3),
        probing: Probing::default(),
        ..drawn
    };
    let plan = Rc::new(plan);
    let mut world = World::new(seed, &plan, random.split(), false);
    assert!(world.until(PATIENCE, World::is_whole), "{}", world.describe());
    world.add_user("founder", User::found);
    assert!(world.until(PATIENCE, |world| world.seeing.seen.borrow().tables.len() == 2));
    world
}

/// Returns the servers that are down, by the leading coordinator's list.
pub(crate) fn down(world: &World) -> Vec<ServerId> {
    let list = world.known().map(|(_, list)| list.servers).unwrap_or_default();
    list.iter().filter(|it| it.state == ServerState::Down).map(|it| it.server).collect()
}

/// Runs until a condition holds, and returns how long that took.
pub(crate) fn took(world: &mut World, label: &str, holds: impl Fn(&World) -> bool) -> Duration {
    let begin = world.simulation.now();
    while !holds(world) {
        assert!(world.simulation.now() - begin < PATIENCE, "{label}: {}", world.describe());
        world.run_for(Duration::from_millis(2));
    }
    world.simulation.now() - begin
}

pub(crate) fn is_served(world: &World) -> bool {
    world.known().is_some_and(|(map, _)| {
        map.tables.iter().flat_map(|it| &it.tablets).all(|tablet| tablet.address.is_some())
    })
}

/// Reads everything again, and judges the history.
pub(crate) fn nothing_is_lost(world: &mut World) {
    world.add_user("last", |user| user.look_back(Duration::from_secs(20)));
    assert!(world.until(PATIENCE, |world| world.seeing.seen.borrow().working == 0));
    let seen = world.seeing.seen.borrow();
    assert_eq!(seen.failures, [""; 0]);
    assert_eq!(linearizability::check(&seen.history), Ok(()));
}

/// Whether no server was ever declared crashed.
fn all_are_in_their_first_generation(world: &World) -> bool {
    let (_, list) = world.known().expect("a coordinator leads");
    list.servers.iter().all(|it| it.generation == Generation(1) && it.state == ServerState::Up)
}

#[test]
fn a_killed_server_is_declared_crashed_within_half_a_second_and_others_take_its_tablets() {
    for seed in 0..6 {
        let mut world = worked(seed, 1 + seed as usize % 2);
        let (server, _) = world.identity(1).expect("the server has enlisted");
        world.stop(1, Duration::from_secs(3600));
        let verdict = took(&mut world, "the verdict", |world| down(world) == [server]);
        assert!(verdict < Duration::from_millis(500), "seed {seed}: {verdict:?}");
        took(&mut world, "its tablets are served again", is_served);
        assert_eq!(down(&world), [server], "no other server is declared crashed");
        nothing_is_lost(&mut world);
    }
}

#[test]
fn a_paused_server_learns_that_it_was_declared_crashed_and_begins_a_new_generation() {
    for seed in 10..14 {
        let mut world = worked(seed, 1 + seed as usize % 2);
        let (server, _) = world.identity(2).expect("the server has enlisted");
        for host in world.hosts(2) {
            world.simulation.pause(host, Duration::from_secs(4));
        }
        let verdict = took(&mut world, "the verdict", |world| down(world) == [server]);
        assert!(verdict > Duration::from_millis(250), "seed {seed}: {verdict:?}");
        assert!(verdict < Duration::from_millis(900), "seed {seed}: {verdict:?}");
        took(&mut world, "its tablets are served again", is_served);
        world.run_for(Duration::from_secs(4));
        took(&mut world, "the server is back", World::is_whole);
        assert_eq!(world.given_up, 1, "the server learned the verdict by itself");
        assert_eq!(world.identity(2), Some((server, Generation(2))));
        nothing_is_lost(&mut world);
    }
}

#[test]
fn a_server_that_only_one_other_server_cannot_reach_is_not_declared_crashed() {
    let mut world = begun(20, 1);
    world.add_users();
    let at = |number: usize| world.simulation.address(world.hosts(number)[0]);
    let (a, b) = (at(0), at(3));
    let blocked = Link { blocked: true, ..world.seeing.plan.link };
    world.simulation.network().set_link(a, b, blocked);
    for _ in 0..20 {
        world.run_for(Duration::from_secs(1));
        assert!(all_are_in_their_first_generation(&world), "{}", world.describe());
    }
}

#[test]
fn a_slow_and_busy_server_is_not_declared_crashed() {
    let mut world = begun(21, 2);
    let slow = world.simulation.address(world.hosts(1)[0]);
    for number in [0, 2, 3] {
        let other = world.simulation.address(world.hosts(number)[0]);
        let link = Link { delay: Duration::from_millis(25), ..world.seeing.plan.link };
        world.simulation.network().set_link(slow, other, link);
        world.simulation.network().set_link(other, slow, link);
    }
    world.add_users();
    for _ in 0..60 {
        world.simulation.pause(world.hosts(1)[0], Duration::from_millis(80));
        world.run_for(Duration::from_secs(1));
        assert!(all_are_in_their_first_generation(&world), "{}", world.describe());
    }
}

#[test]
fn a_server_that_crashes_together_with_the_leader_is_recovered() {
    for seed in 30..33 {
        let mut world = worked(seed, 1);
        let (server, _) = world.identity(0).expect("the server has enlisted");
        let leader = world.leader_host();
        world.simulation.restart_after(leader, Duration::from_secs(10));
        world.simulation.crash(leader);
        world.stop(0, Duration::from_secs(20));
        took(&mut world, "the verdict", |world| down(world) == [server]);
        took(&mut world, "its tablets are served again", is_served);
        took(&mut world, "the server is back", World::is_whole);
        nothing_is_lost(&mut world);
    }
}

#[test]
fn the_only_server_learns_that_it_was_declared_crashed() {
    let mut world = begun_with(40, 1, 1);
    let (server, generation) = world.identity(0).expect("the server has enlisted");
    assert!(world.give_up(server, generation));
    took(&mut world, "the verdict", |world| down(world) == [server]);
    took(&mut world, "the server is back", World::is_whole);
    assert_eq!((world.given_up, world.identity(0)), (1, Some((server, Generation(2)))));
    nothing_is_lost(&mut world);
}
