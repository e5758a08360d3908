//! Changes of the leader: ids, unfinished work, and a leader that stood still.

use crate::control_plane::{
    ControlPlane, create, drop_table, ended, held, map, mapped, open, options, register, stored,
};
use std::collections::BTreeSet;
use std::time::Duration;
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{Empty, ServerList, TableInfo};
use thunderhead_wire::{LeaseId, Status};

#[test]
fn ids_are_never_used_twice_by_any_leader() {
    let mut cluster = ControlPlane::new(3, 2, 1, &options());
    cluster.until_all_are_there();
    let (mut tables, mut leases, mut masters) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut servers = BTreeSet::new();
    let (mut list, mut all) = (0, 0);
    for round in 0..4 {
        for _ in 0..3 {
            assert!(tables.insert(create(&mut cluster, "t", 2).unwrap().id));
            assert!(leases.insert(open(&mut cluster).lease));
            drop_table(&mut cluster, "t").unwrap();
            let nonce = round * 1000 + tables.len() as u64;
            let registered = register(&mut cluster, nonce);
            assert_eq!(register(&mut cluster, nonce), registered, "a nonce gets one id");
            assert!(servers.insert(registered.server));
        }
        let new = cluster.masters(0);
        assert!(new.into_iter().all(|master| masters.insert(master)));
        let versions = (
            cluster.ask::<ServerList>(Opcode::ServerList, &Empty {}).unwrap().version,
            map(&mut cluster).version,
        );
        assert!(versions.0 > list && versions.1 > all, "versions only grow");
        (list, all) = versions;
        cluster.server(0).kill();
        cluster.server(0).restart();
        cluster.change_leader();
        cluster.until_all_are_there();
    }
    let leases: Vec<LeaseId> = leases.into_iter().collect();
    assert!(ended(&mut cluster, &leases).is_empty(), "all are open");
}

#[test]
fn the_next_leader_finishes_all_unfinished_work() {
    let mut cluster = ControlPlane::new(4, 2, 2, &options());
    cluster.until_all_are_there();
    cluster.servers[0].borrow_mut().is_deaf = true;
    // The answer comes although one shard does not know yet; its tablet has no address yet.
    assert_eq!(create(&mut cluster, "t", 2), Err(Status::InProgress));
    let addresses =
        |table: &TableInfo| table.tablets.iter().filter(|it| it.address.is_some()).count();
    assert_eq!(addresses(&map(&mut cluster).tables[0]), 1);
    cluster.change_leader();
    cluster.servers[0].borrow_mut().is_deaf = false;
    cluster.until("it is taken", |cluster| {
        cluster.handle().map().is_some_and(|map| addresses(&map.tables[0]) == 2)
    });
    assert_eq!(held(&cluster), mapped(&map(&mut cluster)));
    // The same with a dropped table.
    cluster.servers[1].borrow_mut().is_deaf = true;
    drop_table(&mut cluster, "t").unwrap();
    assert!(map(&mut cluster).tables.is_empty());
    assert_eq!(stored(&cluster.store, "tables").len(), 1);
    cluster.change_leader();
    cluster.servers[1].borrow_mut().is_deaf = false;
    cluster.until("it is dropped", |cluster| held(cluster).is_empty());
    cluster.until("the record is deleted", |cluster| stored(&cluster.store, "tables").is_empty());
}

#[test]
fn a_coordinator_that_stood_still_leads_again_at_once() {
    let mut cluster = ControlPlane::new(19, 1, 1, &options());
    cluster.until_all_are_there();
    create(&mut cluster, "t", 1).unwrap();
    // Just longer than the lease, and much longer: with and without renewals in flight.
    for pause in [1_800, 2_100, 2_600, 10_000].map(Duration::from_millis) {
        cluster.coordinator(0).pause(pause);
        cluster.simulation.run_for(pause);
        let woken = cluster.simulation.now();
        cluster.until("it leads again", |cluster| cluster.leader().is_some());
        let after = cluster.simulation.now() - woken;
        assert!(after < Duration::from_millis(100), "{after:?} after a pause of {pause:?}");
    }
    assert_eq!(map(&mut cluster).tables.len(), 1);
}
