//! Former masters: which masters get their tablets, whose reports count, and when the coordinator
//! forgets them.

use crate::control_plane::{
    ControlPlane, create, drop_table, formers, held, map, mapped, options, owners, settings,
    status, stored, value,
};
use std::collections::BTreeSet;
use std::time::Duration;
use thunderhead_coordinator::Options;
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{
    Empty, Owned, RaiseEpoch, Recover, Recovered, ServerList, ServerState, Settings, SplitTablet,
    TableInfo, Taken,
};
use thunderhead_wire::{
    Epoch, Generation, KeyHash, MasterId, RecoveryId, SegmentId, Status, TabletRange,
};

#[test]
fn a_restarted_server_recovers_its_tablets() {
    let mut cluster = ControlPlane::new(5, 2, 2, &options());
    cluster.until_all_are_there();
    create(&mut cluster, "t", 4).unwrap();
    cluster
        .ask::<TableInfo>(Opcode::SplitTablet, &SplitTablet { table: "t".into(), at: KeyHash(9) })
        .unwrap();
    let former = cluster.masters(0);
    let message = RaiseEpoch { master: former[0], segment: SegmentId(3), epoch: Epoch(2) };
    assert_eq!(cluster.ask(Opcode::RaiseEpoch, &message), Ok(Empty {}));
    cluster.server(0).kill();
    cluster.server(0).restart();
    cluster.until_all_are_there();
    let gone = map(&mut cluster);
    let nowhere: Vec<_> = gone.tables[0]
        .tablets
        .iter()
        .filter(|it| it.address.is_none())
        .map(|it| it.master)
        .collect();
    assert!(!nowhere.is_empty() && nowhere.iter().all(|it| former.contains(it)));
    cluster.until("all are somewhere", |cluster| {
        let map = cluster.handle().map().unwrap();
        map.tables[0].tablets.iter().all(|it| it.address.is_some())
    });
    // By the shard with the same number in the server.
    let now = cluster.masters(0);
    let recovers = cluster.servers[0].borrow().recovers.clone();
    assert_eq!(recovers.len(), 2);
    for recover in &recovers {
        let shard = former.iter().position(|it| *it == recover.crashed).unwrap();
        assert_eq!(recover.master, now[shard]);
        assert!(recover.tablets.iter().all(|it| it.since == SegmentId::NONE));
    }
    cluster.until("all are freed", |cluster| {
        cluster.servers.iter().all(|it| former.iter().all(|old| it.borrow().freed.contains(old)))
    });
    cluster.until("it is forgotten", |cluster| {
        stored(&cluster.store, "servers")
            .iter()
            .all(|it| it["former"].as_array().unwrap().is_empty())
    });
    assert_eq!(cluster.ask::<Empty>(Opcode::RaiseEpoch, &message), Err(Status::Deposed));
    let since: Vec<_> = stored(&cluster.store, "tables")[0]["tablets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["since"].as_u64().unwrap())
        .collect();
    assert_eq!(since.iter().filter(|it| **it == 7).count(), nowhere.len());
    // All servers got the list.
    let list: ServerList = cluster.ask(Opcode::ServerList, &Empty {}).unwrap();
    cluster
        .until("it is told", |cluster| cluster.servers.iter().all(|it| it.borrow().list == list));
    assert_eq!(list.servers.iter().map(|it| it.generation).max(), Some(Generation(2)));
}

#[test]
fn a_verdict_moves_tablets_to_other_masters_and_late_messages_are_refused() {
    let mut cluster = ControlPlane::new(6, 2, 3, &options());
    cluster.until_all_are_there();
    let table = create(&mut cluster, "t", 6).unwrap();
    let former = cluster.masters(0);
    let server = cluster.servers[0].borrow().known.unwrap().server;
    cluster.server(0).pause(Duration::from_secs(20));
    assert!(cluster.handle().server_failed(server, Generation(1)));
    cluster.until("all are somewhere else", |cluster| {
        let map = cluster.handle().map().unwrap();
        map.tables[0].tablets.iter().all(|it| it.address.is_some() && !former.contains(&it.master))
    });
    let list: ServerList = cluster.ask(Opcode::ServerList, &Empty {}).unwrap();
    for info in &list.servers {
        let state = if info.server == server { ServerState::Down } else { ServerState::Up };
        assert_eq!(info.state, state);
    }
    // It cannot free its replicas, and no other work waits for that.
    cluster.until("they are forgotten", |cluster| formers(cluster) == 0);
    cluster.change_leader();
    // Reports of a crashed master do not count.
    let by = former[0];
    let ranges = table.tablets.iter().map(|it| TabletRange {
        table: table.id,
        first: it.first,
        last: it.last,
    });
    let taken: Vec<_> = ranges.map(|range| Taken { range, since: SegmentId(1) }).collect();
    let late = Recovered {
        keeps: false,
        crashed: former[1],
        recovery: RecoveryId(0),
        partition: 0,
        by,
        outcome: Ok(taken.clone()),
    };
    assert_eq!(cluster.ask::<Empty>(Opcode::Recovered, &late), Err(Status::Deposed));
    let by = cluster.masters(1)[0];
    let its_own = mapped(&map(&mut cluster));
    let taken = taken.into_iter().filter(|it| !its_own.contains(&(by, it.range))).collect();
    let other = Recovered {
        keeps: false,
        crashed: former[1],
        recovery: RecoveryId(0),
        partition: 0,
        by,
        outcome: Ok(taken),
    };
    assert_eq!(cluster.ask::<Empty>(Opcode::Recovered, &other), Err(Status::BadRange));
    assert!(owners(&cluster.store).iter().all(|it| !former.contains(it)));
    // A verdict on a former generation has no effect.
    cluster.server(0).kill();
    cluster.server(0).restart();
    cluster.until_all_are_there();
    assert!(cluster.handle().server_failed(server, Generation(1)));
    cluster.until("it is freed there", |cluster| {
        former.iter().all(|old| cluster.servers[0].borrow().freed.contains(old))
    });
    let list: ServerList = cluster.ask(Opcode::ServerList, &Empty {}).unwrap();
    assert!(list.servers.iter().all(|it| it.state == ServerState::Up));
}

#[test]
fn a_part_goes_to_another_master_if_it_fails_or_its_master_crashes() {
    let mut cluster = ControlPlane::new(7, 2, 2, &options());
    cluster.until_all_are_there();
    create(&mut cluster, "t", 4).unwrap();
    for server in &cluster.servers {
        server.borrow_mut().trouble = Some("replicas are missing".into());
    }
    let former = cluster.masters(0);
    cluster.server(0).kill();
    cluster.server(0).restart();
    cluster.until("both servers tried it", |cluster| {
        cluster.servers.iter().all(|it| !it.borrow().recovers.is_empty())
    });
    let seen = status(&mut cluster);
    assert_eq!(seen.recoveries.len(), 2);
    assert_eq!(seen.recoveries[0].trouble.as_deref(), Some("replicas are missing"));
    assert!(cluster.servers.iter().all(|it| it.borrow().freed.is_empty()));
    // A master has begun, and crashes; a new leader finds that out.
    for server in &cluster.servers {
        let mut server = server.borrow_mut();
        (server.trouble, server.recovers_by_itself) = (None, false);
        server.recovers.clear();
    }
    cluster.until("a master has begun", |cluster| {
        cluster.servers.iter().map(|it| it.borrow().recovers.len()).sum::<usize>() >= 2
    });
    cluster.change_leader();
    for number in 0..cluster.servers.len() {
        cluster.servers[number].borrow_mut().recovers_by_itself = true;
        cluster.server(number).kill();
        cluster.server(number).restart();
    }
    cluster.until_all_are_there();
    cluster.until("all are somewhere", |cluster| {
        let map = cluster.handle().map();
        map.is_some_and(|map| map.tables[0].tablets.iter().all(|it| it.address.is_some()))
    });
    assert!(owners(&cluster.store).iter().all(|it| !former.contains(it)));
    cluster.until("all is freed", |cluster| {
        stored(&cluster.store, "servers")
            .iter()
            .all(|it| it["former"].as_array().unwrap().is_empty())
    });
    assert_eq!(status(&mut cluster).recoveries, []);
}

#[test]
fn a_shard_keeps_its_rebuilt_tablets_even_if_another_table_was_dropped_meanwhile() {
    let mut cluster = ControlPlane::new(16, 1, 2, &options());
    cluster.until_all_are_there();
    for name in ["kept", "dropped"] {
        create(&mut cluster, name, 4).unwrap();
    }
    for server in &cluster.servers {
        server.borrow_mut().recovers_by_itself = false;
    }
    cluster.server(0).kill();
    cluster.server(0).restart();
    cluster.until_all_are_there();
    cluster.until("a master has begun", |cluster| cluster.servers[0].borrow().recovers.len() == 2);
    let Recover { master, crashed, recovery, partition, tablets, .. } =
        cluster.servers[0].borrow().recovers[0].clone();
    let kept = map(&mut cluster).tables[0].id;
    let of_kept: Vec<_> = tablets.iter().filter(|it| it.range.table == kept).copied().collect();
    assert!(of_kept.len() < tablets.len());
    // A leader writes only one of the tables. Then the other one is dropped, and not all shards
    // know it.
    let report = |taken| Recovered {
        keeps: false,
        crashed,
        recovery,
        partition,
        by: master,
        outcome: Ok(taken),
    };
    cluster.ask::<Empty>(Opcode::Recovered, &report(of_kept)).unwrap();
    cluster.servers[1].borrow_mut().is_deaf = true;
    drop_table(&mut cluster, "dropped").unwrap();
    // The shard still reports all its tablets. It must not be told to drop them.
    let dropped: Vec<_> = tablets.iter().map(|it| it.range).filter(|it| it.table != kept).collect();
    let answer: Owned = cluster.ask(Opcode::Recovered, &report(tablets.clone())).unwrap();
    assert_eq!(answer.not_yours, dropped);
    let has = tablets.iter().map(|it| it.range).collect();
    cluster.servers[0].borrow_mut().tablets.insert(master, has);
    cluster.until("it drops the tablets of the dropped table", |cluster| {
        cluster.servers[0].borrow().tablets[&master].iter().all(|it| it.table == kept)
    });
}

#[test]
fn a_tablet_that_was_not_taken_needs_no_recovery() {
    let mut cluster = ControlPlane::new(8, 1, 2, &options());
    cluster.until_all_are_there();
    let former = cluster.masters(0);
    cluster.servers[0].borrow_mut().is_deaf = true;
    assert_eq!(create(&mut cluster, "t", 4), Err(Status::InProgress));
    cluster.server(0).kill();
    let server = cluster.servers[0].borrow().known.unwrap().server;
    assert!(cluster.handle().server_failed(server, Generation(1)));
    all_begin_empty_elsewhere(&mut cluster, &former);
}

/// Waits until no tablet is with a former master. The tablets begin empty: nothing is recovered.
fn all_begin_empty_elsewhere(cluster: &mut ControlPlane, former: &[MasterId]) {
    cluster.until("all are somewhere", |cluster| {
        let map = cluster.handle().map().unwrap();
        map.tables[0].tablets.iter().all(|it| it.address.is_some() && !former.contains(&it.master))
    });
    assert!(cluster.servers.iter().all(|it| it.borrow().recovers.is_empty()));
    assert_eq!(held(cluster), mapped(&map(cluster)));
}

#[test]
fn without_replicas_the_tablets_of_a_crashed_master_begin_empty() {
    let settings = Settings { replicas: 0, ..settings() };
    let mut cluster = ControlPlane::new(17, 2, 2, &Options { settings, ..options() });
    cluster.until_all_are_there();
    create(&mut cluster, "t", 4).unwrap();
    let former = cluster.masters(0);
    cluster.server(0).kill();
    cluster.server(0).restart();
    cluster.until_all_are_there();
    all_begin_empty_elsewhere(&mut cluster, &former);
}

#[test]
fn a_server_that_crashes_repeatedly_is_remembered_in_bounds() {
    let mut cluster = ControlPlane::new(20, 1, 4, &options());
    cluster.until_all_are_there();
    create(&mut cluster, "t", 8).unwrap();
    // One backup is down all the time.
    let server = cluster.servers[3].borrow().known.unwrap().server;
    cluster.server(3).kill();
    assert!(cluster.handle().server_failed(server, Generation(1)));
    let number = cluster.servers[0].borrow().known.unwrap().server.0;
    let mut most = 0;
    for _ in 0..120 {
        cluster.server(0).kill();
        cluster.server(0).restart();
        cluster.until_all_are_there_but(&[3]);
        cluster.simulation.run_for(Duration::from_millis(700));
        most = most.max(formers(&cluster));
    }
    assert!(most <= 8, "{most} former masters are remembered");
    cluster.until("all are recovered", |cluster| formers(cluster) == 0);
    assert_eq!(value(&cluster, &format!("servers/{number}"))["generation"], 121);
    // A backup that was down frees unknown masters' replicas when it restarts.
    let needed: BTreeSet<MasterId> = (0..3).flat_map(|it| cluster.masters(it)).collect();
    let kept = |cluster: &ControlPlane| -> Vec<MasterId> {
        cluster.servers[3].borrow().replicas.keys().copied().collect()
    };
    assert!(kept(&cluster).iter().any(|it| !needed.contains(it)), "it has replicas to free");
    cluster.server(3).restart();
    cluster.until_all_are_there();
    cluster
        .until("it has freed them", |cluster| kept(cluster).iter().all(|it| needed.contains(it)));
}
