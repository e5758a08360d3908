//! Logs that are taken back: by which shard, and the fate of the replicas.

use crate::control_plane::{ControlPlane, create, options};
use crate::recoveries::until_all_are_somewhere;
use std::time::Duration;
use thunderhead_wire::control::ReplicaInfo;
use thunderhead_wire::{MasterId, SegmentId};

/// Returns a cluster in which two servers with tablets have restarted, and their shards were told
/// to take their logs back.
fn all_have_come_again(seed: u64) -> (ControlPlane, Vec<MasterId>) {
    let mut cluster = ControlPlane::new(seed, 1, 2, &options());
    cluster.until_all_are_there();
    cluster.common.table_bytes.set(1 << 20);
    create(&mut cluster, "t", 4).unwrap();
    let former: Vec<MasterId> = (0..2).flat_map(|number| cluster.masters(number)).collect();
    for number in 0..cluster.servers.len() {
        cluster.servers[number].borrow_mut().memory_bytes = 1 << 30;
        cluster.server(number).kill();
        cluster.servers[number].borrow_mut().enlisted = None;
        cluster.server(number).restart();
    }
    until_all_are_somewhere(&mut cluster, &former);
    (cluster, former)
}

/// Restarts all servers, whose shards report a segment of their former logs as needed.
fn restart_all_with(cluster: &mut ControlPlane, needed: SegmentId) {
    for number in 0..cluster.servers.len() {
        cluster.server(number).kill();
        {
            let mut server = cluster.servers[number].borrow_mut();
            (server.enlisted, server.inherited) = (None, Some(vec![needed]));
        }
        cluster.server(number).restart();
    }
}

fn replicas(cluster: &ControlPlane, of: MasterId) -> Vec<Vec<ReplicaInfo>> {
    let servers = cluster.servers.iter();
    servers.filter_map(|server| server.borrow().replicas.get(&of).cloned()).collect()
}

fn lineages(cluster: &ControlPlane) -> usize {
    let list = cluster.handle().servers().unwrap();
    list.servers.iter().map(|it| it.lineages.len()).sum()
}

#[test]
fn unneeded_replicas_of_a_log_that_was_taken_back_are_freed() {
    let (mut cluster, former) = all_have_come_again(70);
    for server in &cluster.servers {
        let server = server.borrow();
        assert!(!server.recovers.is_empty() && server.recovers.iter().all(|it| it.take_back));
    }
    // All replicas stay until the shard reports its segments.
    cluster.simulation.run_for(Duration::from_secs(100));
    assert_eq!(lineages(&cluster), 4);
    let two = |of: &MasterId| replicas(&cluster, *of).iter().all(|it| it.len() == 2);
    assert!(former.iter().all(two));

    let say = |cluster: &ControlPlane, needs: Vec<SegmentId>| {
        for server in &cluster.servers {
            server.borrow_mut().inherited = Some(needs.clone());
        }
    };
    say(&cluster, vec![SegmentId(1)]);
    cluster.until("open replicas are freed", |cluster| {
        let closed = |of: &MasterId| {
            let found = replicas(cluster, *of);
            found.len() == 2 && found.iter().all(|it| it.len() == 1 && it[0].closed)
        };
        former.iter().all(closed)
    });
    cluster.simulation.run_for(Duration::from_secs(100));
    assert_eq!(lineages(&cluster), 4, "some replicas remain");

    // A new leader does not know which replicas were freed.
    cluster.change_leader();
    cluster.until("a coordinator leads", |cluster| cluster.leader().is_some());
    say(&cluster, Vec::new());
    cluster.until("all is freed", |cluster| {
        let is_gone = |of: &MasterId| replicas(cluster, *of).iter().all(Vec::is_empty);
        former.iter().all(is_gone)
    });
    cluster.until("no master has a lineage", |cluster| {
        cluster.leader().is_some() && lineages(cluster) == 0
    });
}

#[test]
fn replicas_do_not_stay_for_ever_if_their_heir_crashes() {
    let (mut cluster, mut former) = all_have_come_again(71);
    // All servers crash once more: the heirs of the first masters have heirs themselves.
    former.extend((0..2).flat_map(|number| cluster.masters(number)));
    restart_all_with(&mut cluster, SegmentId(7));
    until_all_are_somewhere(&mut cluster, &former);
    cluster.until("all former masters are finished", |cluster| {
        let is_gone = |of: &MasterId| replicas(cluster, *of).iter().all(Vec::is_empty);
        former.iter().all(is_gone)
    });
    cluster.until("no master has a lineage", |cluster| lineages(cluster) == 0);
}

#[test]
fn needed_replicas_of_the_first_generation_stay_after_the_second_is_finished() {
    let (mut cluster, former) = all_have_come_again(73);
    let second: Vec<MasterId> = (0..2).flat_map(|number| cluster.masters(number)).collect();
    restart_all_with(&mut cluster, SegmentId(1));
    until_all_are_somewhere(&mut cluster, &[former.clone(), second.clone()].concat());
    for server in &cluster.servers {
        second.iter().for_each(|it| _ = server.borrow_mut().replicas.insert(*it, Vec::new()));
    }
    cluster.simulation.run_for(Duration::from_secs(100));
    for of in &former {
        let found = replicas(&cluster, *of);
        assert!(found.len() == 2 && found.iter().all(|it| it.len() == 1), "{of}: {found:?}");
    }
    let list = cluster.handle().servers().unwrap();
    let lineages = list.servers.iter().flat_map(|it| &it.lineages);
    let inherited: Vec<MasterId> = lineages.flat_map(|(_, lineage)| lineage.clone()).collect();
    assert!(former.iter().all(|it| inherited.contains(it)), "{inherited:?}");
    assert!(second.iter().all(|it| !inherited.contains(it)), "{inherited:?}");
}

#[test]
fn a_backup_that_was_down_is_told_when_it_restarts() {
    let (mut cluster, former) = all_have_come_again(72);
    for (number, server) in cluster.servers.iter().enumerate() {
        let mut server = server.borrow_mut();
        (server.backup_is_deaf, server.inherited) = (number == 1, Some(Vec::new()));
    }
    cluster.simulation.run_for(Duration::from_secs(100));
    assert_eq!(lineages(&cluster), 4, "it may have replicas that are needed");
    cluster.servers[1].borrow_mut().backup_is_deaf = false;
    cluster.until("all is freed", |cluster| {
        let is_gone = |of: &MasterId| replicas(cluster, *of).iter().all(Vec::is_empty);
        former.iter().all(is_gone) && lineages(cluster) == 0
    });
}
