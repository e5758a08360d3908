//! Logs that are taken back: by which shard, and the fate of the replicas.

use crate::recoveries::until_all_are_somewhere;
use crate::scenarios::create;
use crate::world::{World, options};
use std::time::Duration;
use thunderhead_wire::control::ReplicaInfo;
use thunderhead_wire::{MasterId, SegmentId};

/// Returns a world in which two servers with tablets have restarted, and their shards were told to
/// take their logs back.
fn all_have_come_again(seed: u64) -> (World, Vec<MasterId>) {
    let mut world = World::new(seed, 1, 2, &options());
    world.until_all_are_there();
    world.common.table_bytes.set(1 << 20);
    create(&mut world, "t", 4).unwrap();
    let former: Vec<MasterId> = (0..2).flat_map(|number| world.masters(number)).collect();
    for (host, server) in world.servers.clone() {
        server.borrow_mut().memory_bytes = 1 << 30;
        world.simulation.crash(host);
        server.borrow_mut().enlisted = None;
        world.simulation.start(host);
    }
    until_all_are_somewhere(&mut world, &former);
    (world, former)
}

fn replicas(world: &World, of: MasterId) -> Vec<Vec<ReplicaInfo>> {
    let servers = world.servers.iter();
    servers.filter_map(|(_, server)| server.borrow().replicas.get(&of).cloned()).collect()
}

fn lineages(world: &World) -> usize {
    let list = world.handle().servers().unwrap();
    list.servers.iter().map(|it| it.lineages.len()).sum()
}

#[test]
fn unneeded_replicas_of_a_log_that_was_taken_back_are_freed() {
    let (mut world, former) = all_have_come_again(70);
    for (_, server) in &world.servers {
        let server = server.borrow();
        assert!(!server.recovers.is_empty() && server.recovers.iter().all(|it| it.take_back));
    }
    // All replicas stay until the shard reports its segments.
    world.simulation.run_for(Duration::from_secs(100));
    assert_eq!(lineages(&world), 4);
    let two = |of: &MasterId| replicas(&world, *of).iter().all(|it| it.len() == 2);
    assert!(former.iter().all(two));

    let say = |world: &World, needs: Vec<SegmentId>| {
        for (_, server) in &world.servers {
            server.borrow_mut().inherited = Some(needs.clone());
        }
    };
    say(&world, vec![SegmentId(1)]);
    world.until("open replicas are freed", |world| {
        let closed = |of: &MasterId| {
            let found = replicas(world, *of);
            found.len() == 2 && found.iter().all(|it| it.len() == 1 && it[0].closed)
        };
        former.iter().all(closed)
    });
    world.simulation.run_for(Duration::from_secs(100));
    assert_eq!(lineages(&world), 4, "some replicas remain");

    // A new leader does not know which replicas were freed.
    world.change_leader();
    world.until("a coordinator leads", |world| world.leader().is_some());
    say(&world, Vec::new());
    world.until("all is freed", |world| {
        let is_gone = |of: &MasterId| replicas(world, *of).iter().all(Vec::is_empty);
        former.iter().all(is_gone)
    });
    world
        .until("no master has a lineage", |world| world.leader().is_some() && lineages(world) == 0);
}

#[test]
fn replicas_do_not_stay_for_ever_if_their_heir_crashes() {
    let (mut world, mut former) = all_have_come_again(71);
    // All servers crash once more: the heirs of the first masters have heirs themselves.
    former.extend((0..2).flat_map(|number| world.masters(number)));
    for (host, server) in world.servers.clone() {
        world.simulation.crash(host);
        server.borrow_mut().enlisted = None;
        server.borrow_mut().inherited = Some(vec![SegmentId(7)]);
        world.simulation.start(host);
    }
    until_all_are_somewhere(&mut world, &former);
    world.until("all former masters are finished", |world| {
        let is_gone = |of: &MasterId| replicas(world, *of).iter().all(Vec::is_empty);
        former.iter().all(is_gone)
    });
    world.until("no master has a lineage", |world| lineages(world) == 0);
}

#[test]
fn needed_replicas_of_the_first_generation_stay_after_the_second_is_finished() {
    let (mut world, former) = all_have_come_again(73);
    let second: Vec<MasterId> = (0..2).flat_map(|number| world.masters(number)).collect();
    for (host, server) in world.servers.clone() {
        world.simulation.crash(host);
        server.borrow_mut().enlisted = None;
        server.borrow_mut().inherited = Some(vec![SegmentId(1)]);
        world.simulation.start(host);
    }
    until_all_are_somewhere(&mut world, &[former.clone(), second.clone()].concat());
    for (_, server) in &world.servers {
        second.iter().for_each(|it| _ = server.borrow_mut().replicas.insert(*it, Vec::new()));
    }
    world.simulation.run_for(Duration::from_secs(100));
    for of in &former {
        let found = replicas(&world, *of);
        assert!(found.len() == 2 && found.iter().all(|it| it.len() == 1), "{of}: {found:?}");
    }
    let list = world.handle().servers().unwrap();
    let lineages = list.servers.iter().flat_map(|it| &it.lineages);
    let inherited: Vec<MasterId> = lineages.flat_map(|(_, lineage)| lineage.clone()).collect();
    assert!(former.iter().all(|it| inherited.contains(it)), "{inherited:?}");
    assert!(second.iter().all(|it| !inherited.contains(it)), "{inherited:?}");
}

#[test]
fn a_backup_that_was_down_is_told_when_it_restarts() {
    let (mut world, former) = all_have_come_again(72);
    for (number, (_, server)) in world.servers.iter().enumerate() {
        let mut server = server.borrow_mut();
        (server.backup_is_deaf, server.inherited) = (number == 1, Some(Vec::new()));
    }
    world.simulation.run_for(Duration::from_secs(100));
    assert_eq!(lineages(&world), 4, "it may have replicas that are needed");
    world.servers[1].1.borrow_mut().backup_is_deaf = false;
    world.until("all is freed", |world| {
        let is_gone = |of: &MasterId| replicas(world, *of).iter().all(Vec::is_empty);
        former.iter().all(is_gone) && lineages(world) == 0
    });
}
