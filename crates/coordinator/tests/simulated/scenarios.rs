//! Single events in a calm simulation.

use crate::control_plane::{ControlPlane, options, owners, settings, stored};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_coordinator::Options;
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{
    BackupInfo, CheckLeases, ClusterStatus, CreateTable, DropTable, Empty, Enlist, Enlisted,
    Followed, Known, Lease, LeaseOpened, LeasesChecked, Map, MapRequest, MigrateTablet, Owned,
    RaiseEpoch, Recover, Recovered, Register, Registered, ServerInfo, ServerList, ServerState,
    Settings, SplitTablet, TableInfo, Taken,
};
use thunderhead_wire::{
    ClusterId, Epoch, Format, Generation, KeyHash, LeaseId, MasterId, RecoveryId, SegmentId,
    ServerId, Status, TabletRange,
};

pub(crate) fn create(
    cluster: &mut ControlPlane,
    name: &str,
    span: u32,
) -> Result<TableInfo, Status> {
    let message = CreateTable { name: name.into(), server_span: span };
    cluster.ask(Opcode::CreateTable, &message)
}

pub(crate) fn drop_table(cluster: &mut ControlPlane, name: &str) -> Result<Empty, Status> {
    cluster.ask(Opcode::DropTable, &DropTable::named(name))
}

pub(crate) fn map(cluster: &mut ControlPlane) -> Map {
    cluster.ask(Opcode::Map, &MapRequest::default()).unwrap()
}

pub(crate) fn status(cluster: &mut ControlPlane) -> ClusterStatus {
    cluster.ask(Opcode::ClusterStatus, &Empty {}).unwrap()
}

fn open(cluster: &mut ControlPlane) -> LeaseOpened {
    cluster.ask(Opcode::OpenLease, &Empty {}).unwrap()
}

fn ended(cluster: &mut ControlPlane, leases: &[LeaseId]) -> Vec<LeaseId> {
    let message = CheckLeases { leases: leases.to_vec() };
    cluster.ask::<LeasesChecked>(Opcode::CheckLeases, &message).unwrap().ended
}

/// Returns how many former masters the store remembers.
pub(crate) fn formers(cluster: &ControlPlane) -> usize {
    let servers = stored(&cluster.store, "servers");
    servers.iter().map(|it| it["former"].as_array().unwrap().len()).sum()
}

/// Returns the tablets of each master, by the commands to it.
pub(crate) fn held(cluster: &ControlPlane) -> BTreeSet<(MasterId, TabletRange)> {
    let mut held = BTreeSet::new();
    for server in &cluster.servers {
        let server = server.borrow();
        let Some(enlisted) = &server.enlisted else { continue };
        for (master, tablets) in &server.tablets {
            if enlisted.masters.contains(master) {
                held.extend(tablets.iter().map(|tablet| (*master, *tablet)));
            }
        }
    }
    held
}

/// Returns the tablets of each master, by the map.
pub(crate) fn mapped(map: &Map) -> BTreeSet<(MasterId, TabletRange)> {
    let of = |table: &TableInfo| {
        let (table, tablets) = (table.id, table.tablets.clone());
        tablets
            .into_iter()
            .map(move |it| (it.master, TabletRange { table, first: it.first, last: it.last }))
    };
    map.tables.iter().flat_map(of).collect()
}

/// Returns the servers with a table's tablets.
fn servers_of(table: &TableInfo) -> BTreeSet<std::net::IpAddr> {
    table.tablets.iter().filter_map(|it| Some(it.address?.ip())).collect()
}

#[test]
fn tablets_go_to_shards_with_room_even_if_full_ones_do_not_report_it() {
    for hides in [false, true] {
        let mut cluster = ControlPlane::new(1, 1, 3, &options());
        cluster.until_all_are_there();
        let before = create(&mut cluster, "before", 3).unwrap();
        let full = before.tablets[0].address.unwrap().ip();
        for server in &cluster.servers {
            let mut server = server.borrow_mut();
            let id = server.known.unwrap().server;
            let own = server.list.servers.iter().find(|it| it.server == id);
            let has_full = |own: &ServerInfo| own.shards.iter().any(|it| it.address.ip() == full);
            server.is_full = own.is_some_and(has_full);
            server.hides_its_room = hides;
        }
        for number in 0..6 {
            let table = create(&mut cluster, &format!("t{number}"), 1).unwrap();
            let servers = servers_of(&table);
            assert_eq!(servers.len(), 1, "it is served: {table:?}");
            assert!(!servers.contains(&full));
        }
        // All of them are full now: no table is made that no master could serve.
        for server in &cluster.servers {
            (server.borrow_mut().is_full, server.borrow_mut().hides_its_room) = (true, false);
        }
        assert_eq!(create(&mut cluster, "more", 2), Err(Status::NoSpace));
        assert_eq!(map(&mut cluster).tables.len(), 7);
        // One gets room again.
        cluster.servers[1].borrow_mut().is_full = false;
        assert_eq!(servers_of(&create(&mut cluster, "more", 2).unwrap()).len(), 1);
    }
}

#[test]
fn tables_come_are_found_and_go() {
    let mut cluster = ControlPlane::new(1, 1, 2, &options());
    cluster.until_all_are_there();
    let table = create(&mut cluster, "users", 3).unwrap();
    assert_eq!(table.tablets.len(), 3);
    assert!(table.tablets.iter().all(|tablet| tablet.address.is_some()));
    let servers: BTreeSet<_> = table.tablets.iter().map(|it| it.address.unwrap().ip()).collect();
    assert_eq!(servers.len(), 2);
    let all = map(&mut cluster);
    assert_eq!(all.tables, std::slice::from_ref(&table));
    assert_eq!(held(&cluster), mapped(&all));
    assert_eq!(create(&mut cluster, "users", 1), Err(Status::TableExists));
    let message = MapRequest { table: Some("users".into()), ..MapRequest::default() };
    assert_eq!(
        cluster.ask::<Map>(Opcode::Map, &message).unwrap().tables,
        std::slice::from_ref(&table)
    );
    let message = MapRequest { table: Some("others".into()), ..MapRequest::default() };
    assert_eq!(cluster.ask::<Map>(Opcode::Map, &message), Err(Status::NoSuchTable));
    assert_eq!(drop_table(&mut cluster, "users"), Ok(Empty {}));
    assert_eq!(drop_table(&mut cluster, "users"), Err(Status::NoSuchTable));
    assert!(held(&cluster).is_empty());
    assert!(stored(&cluster.store, "tables").is_empty(), "its record is deleted");
    let later = map(&mut cluster);
    assert!(later.version > all.version && later.tables.is_empty());
    let again = create(&mut cluster, "users", 1).unwrap();
    assert!(again.id > table.id);
}

#[test]
fn a_delayed_drop_deletes_no_later_table_of_the_same_name() {
    let mut cluster = ControlPlane::new(1, 1, 2, &options());
    cluster.until_all_are_there();
    let former = create(&mut cluster, "t", 1).unwrap();
    assert_eq!(drop_table(&mut cluster, "t"), Ok(Empty {}));
    let table = create(&mut cluster, "t", 1).unwrap();
    let drop_id = |cluster: &mut ControlPlane, id| {
        let message = DropTable { name: "t".into(), id: Some(id) };
        cluster.ask::<Empty>(Opcode::DropTable, &message)
    };
    assert_eq!(drop_id(&mut cluster, former.id), Err(Status::NoSuchTable));
    assert_eq!(map(&mut cluster).tables, std::slice::from_ref(&table));
    assert_eq!(drop_id(&mut cluster, table.id), Ok(Empty {}));
    assert!(map(&mut cluster).tables.is_empty());
}

#[test]
fn only_the_coordinator_knows_that_a_table_is_split() {
    let mut cluster = ControlPlane::new(2, 2, 1, &options());
    cluster.until_all_are_there();
    let table = create(&mut cluster, "t", 1).unwrap();
    let split = |at| SplitTablet { table: "t".into(), at: KeyHash(at) };
    let two: TableInfo = cluster.ask(Opcode::SplitTablet, &split(1 << 63)).unwrap();
    assert_eq!(two.tablets.len(), 2);
    assert_eq!(cluster.ask(Opcode::SplitTablet, &split(1 << 63)), Ok(two.clone()));
    assert_eq!(cluster.ask::<TableInfo>(Opcode::SplitTablet, &split(0)), Err(Status::BadRange));
    cluster.change_leader();
    assert_eq!(map(&mut cluster).tables, [two]);
    // The shard has one tablet still, and drops both with it.
    assert_eq!(held(&cluster).len(), 1);
    drop_table(&mut cluster, "t").unwrap();
    assert!(held(&cluster).is_empty());
    let migrate = MigrateTablet { table: "t".into(), first: KeyHash::MIN, to: MasterId(1) };
    let refused = cluster.ask::<TableInfo>(Opcode::MigrateTablet, &migrate);
    assert_eq!((refused, table.tablets.len()), (Err(Status::NoSuchTable), 1));
}

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
            let message = Register {
                known: None,
                nonce,
                place: 0,
                address: None,
                newest_format: Format::NEWEST,
                followed: Followed::default(),
            };
            let registered: Registered = cluster.ask(Opcode::Register, &message).unwrap();
            assert!(servers.insert(registered.server));
            let again: Registered = cluster.ask(Opcode::Register, &message).unwrap();
            assert_eq!(again, registered, "a nonce gets one id");
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
    cluster.until("all are somewhere", |cluster| {
        let map = cluster.handle().map().unwrap();
        map.tables[0].tablets.iter().all(|it| it.address.is_some() && !former.contains(&it.master))
    });
    assert!(cluster.servers.iter().all(|it| it.borrow().recovers.is_empty()));
    assert_eq!(held(&cluster), mapped(&map(&mut cluster)));
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
    cluster.until("all are somewhere", |cluster| {
        let map = cluster.handle().map().unwrap();
        map.tables[0].tablets.iter().all(|it| it.address.is_some() && !former.contains(&it.master))
    });
    assert!(cluster.servers.iter().all(|it| it.borrow().recovers.is_empty()));
    assert_eq!(held(&cluster), mapped(&map(&mut cluster)));
}

/// A server without storage does not keep its identity. Only its address shows that its former
/// generation is over.
#[test]
fn a_server_that_takes_anothers_address_ends_its_generation() {
    let settings = Settings { replicas: 0, ..settings() };
    let mut cluster = ControlPlane::new(18, 1, 2, &Options { settings, ..options() });
    cluster.until_all_are_there();
    create(&mut cluster, "t", 2).unwrap();
    let former = cluster.masters(0);
    cluster.server(0).kill();
    // It registers again.
    cluster.servers[0].borrow_mut().known = None;
    cluster.server(0).restart();
    cluster.until_all_are_there();
    cluster.until("all are somewhere", |cluster| {
        let map = cluster.handle().map().unwrap();
        map.tables[0].tablets.iter().all(|it| it.address.is_some() && !former.contains(&it.master))
    });
    let servers = status(&mut cluster).servers.servers;
    let up = servers.iter().filter(|it| it.state == ServerState::Up).count();
    assert_eq!((servers.len(), up), (3, 2));
    assert_eq!(held(&cluster), mapped(&map(&mut cluster)));
}

#[test]
fn a_generation_begins_once_and_a_former_one_does_not_return() {
    let mut cluster = ControlPlane::new(9, 2, 1, &options());
    cluster.until_all_are_there();
    let known = cluster.servers[0].borrow().known.unwrap();
    let enlist = |nonce| Enlist {
        cluster: known.cluster,
        server: known.server,
        nonce,
        host: "h".into(),
        rack: String::new(),
        shards: vec![([10, 0, 0, 99], 1).into()],
        newest_format: Format::NEWEST,
        followed: Followed::default(),
        backup: Some(BackupInfo {
            address: ([10, 0, 0, 99], 1).into(),
            read_bytes_per_second: 0,
            place: 0,
        }),
    };
    let first: Enlisted = cluster.ask(Opcode::Enlist, &enlist(71)).unwrap();
    assert_eq!((first.generation, first.masters.len()), (Generation(2), 1));
    cluster.change_leader();
    let again: Enlisted = cluster.ask(Opcode::Enlist, &enlist(71)).unwrap();
    assert_eq!((again.generation, again.masters), (Generation(2), first.masters));
    let second: Enlisted = cluster.ask(Opcode::Enlist, &enlist(72)).unwrap();
    assert_eq!(second.generation, Generation(3));
    assert_eq!(cluster.ask::<Enlisted>(Opcode::Enlist, &enlist(71)), Err(Status::Deposed));
    assert!(cluster.handle().server_failed(known.server, Generation(3)));
    cluster.until("it is down", |cluster| {
        cluster.handle().servers().unwrap().servers[0].state == ServerState::Down
    });
    assert_eq!(cluster.ask::<Enlisted>(Opcode::Enlist, &enlist(72)), Err(Status::Deposed));
    let strange = Known { cluster: ClusterId(1), server: known.server };
    let register = |known| Register {
        known: Some(known),
        nonce: 1,
        place: 0,
        address: None,
        newest_format: Format::NEWEST,
        followed: Followed::default(),
    };
    let refused = cluster.ask::<Registered>(Opcode::Register, &register(strange));
    assert_eq!(refused, Err(Status::WrongCluster));
    let nobody = Known { server: ServerId(77), ..known };
    let refused = cluster.ask::<Registered>(Opcode::Register, &register(nobody));
    assert_eq!(refused, Err(Status::UnknownServer));
    let registered: Registered = cluster.ask(Opcode::Register, &register(known)).unwrap();
    assert_eq!((registered.server, registered.settings), (known.server, settings()));
    // At the place of a missing storage, a new one begins only on request.
    let placed = |nonce| {
        let at = SocketAddr::from(([10, 0, 0, 99], 7071));
        let backup = BackupInfo { address: at, read_bytes_per_second: 0, place: 55 };
        Enlist { shards: vec![at], backup: Some(backup), ..enlist(nonce) }
    };
    let _: Enlisted = cluster.ask(Opcode::Enlist, &placed(73)).unwrap();
    cluster.change_leader();
    let begin = |place, nonce| Register {
        known: None,
        nonce,
        place,
        address: None,
        newest_format: Format::NEWEST,
        followed: Followed::default(),
    };
    for nonce in [2, 3] {
        let refused: Registered = cluster.ask(Opcode::Register, &begin(55, nonce)).unwrap();
        assert_eq!((refused.server, refused.is_missing), (known.server, true));
    }
    for place in [0, 56] {
        let new: Registered = cluster.ask(Opcode::Register, &begin(place, 4 + place)).unwrap();
        assert!(new.server != known.server && !new.is_missing);
    }
}

#[test]
fn leases_end_without_renewal_or_when_they_are_closed() {
    let options = Options { lease_ttl: Duration::from_secs(10), ..options() };
    let mut cluster = ControlPlane::new(10, 2, 0, &options);
    let (kept, silent, closed) = (open(&mut cluster), open(&mut cluster), open(&mut cluster));
    assert_eq!(kept.ttl_ms, 10_000);
    let all = [kept.lease, silent.lease, closed.lease, LeaseId(1), LeaseId(u64::MAX)];
    assert_eq!(
        ended(&mut cluster, &all),
        [LeaseId(1), LeaseId(u64::MAX)],
        "these were never opened"
    );
    let close = Lease { lease: closed.lease };
    assert_eq!(cluster.ask(Opcode::CloseLease, &close), Ok(Empty {}));
    assert_eq!(cluster.ask(Opcode::CloseLease, &close), Ok(Empty {}));
    assert_eq!(cluster.ask::<Empty>(Opcode::RenewLease, &close), Err(Status::LeaseEnded));
    let keep = Lease { lease: kept.lease };
    for _ in 0..3 {
        cluster.simulation.run_for(Duration::from_secs(4));
        assert_eq!(cluster.ask(Opcode::RenewLease, &keep), Ok(Empty {}));
    }
    assert_eq!(ended(&mut cluster, &all[..3]), [silent.lease, closed.lease]);
    assert_eq!(stored(&cluster.store, "leases").len(), 1);
    // A new leader gives it its whole time again.
    cluster.simulation.run_for(Duration::from_secs(7));
    cluster.change_leader();
    cluster.simulation.run_for(Duration::from_secs(5));
    assert_eq!(ended(&mut cluster, &all[..3]), [silent.lease, closed.lease]);
    assert_eq!(status(&mut cluster).leases, 1);
    cluster.simulation.run_for(Duration::from_secs(6));
    assert_eq!(ended(&mut cluster, &all[..3]), all[..3]);
}

#[test]
fn without_its_metastore_a_leader_changes_nothing_and_still_answers_for_the_map() {
    let options = Options { leadership_ttl: Duration::from_secs(20), ..options() };
    let mut cluster = ControlPlane::new(11, 2, 1, &options);
    cluster.until_all_are_there();
    create(&mut cluster, "t", 1).unwrap();
    cluster.store.stop();
    assert_eq!(create(&mut cluster, "u", 1), Err(Status::MetastoreUnavailable));
    assert_eq!(map(&mut cluster).tables.len(), 1);
    assert!(cluster.handle().remarks()[0].contains("metastore"));
    // A request that began before the store returned is done after that.
    let begun =
        cluster.begin(Opcode::CreateTable, &CreateTable { name: "v".into(), server_span: 1 });
    cluster.simulation.run_for(Duration::from_secs(1));
    cluster.store.start();
    cluster.until("it is made", |cluster| matches!(cluster.answer(begun), Some(Ok(_))));
    assert_eq!(map(&mut cluster).tables.len(), 2);
    assert_eq!(cluster.handle().remarks(), [""; 0]);
}

#[test]
fn bad_requests_are_refused_without_any_effect() {
    let mut cluster = ControlPlane::new(12, 1, 1, &options());
    assert_eq!(
        create(&mut ControlPlane::new(13, 1, 0, &options()), "t", 1),
        Err(Status::NoServers)
    );
    cluster.until_all_are_there();
    for opcode in Opcode::ALL.iter().filter(|it| (64..=79).contains(&it.code())) {
        for body in [&b""[..], b"{", b"[]]", b"\xff\xfe", b"null", b"7"] {
            let refused = cluster.ask_raw::<Empty>(*opcode, body.to_vec());
            assert_eq!(refused, Err(Status::Malformed), "{opcode}");
        }
    }
    let deep = "[".repeat(100_000).into_bytes();
    assert_eq!(cluster.ask_raw::<Empty>(Opcode::Map, deep), Err(Status::Malformed));
    let long = "x".repeat(256);
    for name in ["", "a\nb", &long] {
        assert_eq!(create(&mut cluster, name, 1), Err(Status::BadName), "{name:?}");
    }
    assert_eq!(create(&mut cluster, "t", 0), Err(Status::Malformed));
    assert!(create(&mut cluster, &long[1..], u32::MAX).is_ok_and(|it| it.tablets.len() == 2));
    let known = cluster.servers[0].borrow().known.unwrap();
    let enlist = Enlist {
        cluster: known.cluster,
        server: known.server,
        nonce: 5,
        host: "h".into(),
        rack: String::new(),
        shards: vec![([10, 0, 0, 9], 1).into()],
        backup: None,
        newest_format: Format::NEWEST,
        followed: Followed::default(),
    };
    let bad = [
        Enlist { shards: vec![], ..enlist.clone() },
        Enlist { shards: vec![([0, 0, 0, 0], 1).into()], ..enlist.clone() },
        Enlist { shards: vec![([10, 0, 0, 9], 0).into()], ..enlist.clone() },
        Enlist {
            shards: [enlist.shards.clone(), enlist.shards.clone()].concat(),
            ..enlist.clone()
        },
        Enlist {
            shards: (1..300).map(|it| ([10, 0, 0, 9], it).into()).collect(),
            ..enlist.clone()
        },
        Enlist { host: long.clone(), ..enlist.clone() },
        Enlist { rack: long, ..enlist.clone() },
    ];
    for message in bad {
        let refused = cluster.ask::<Enlisted>(Opcode::Enlist, &message);
        assert_eq!(refused.map(|it| it.generation), Err(Status::Malformed), "{message:?}");
    }
    let other = Enlist { cluster: ClusterId(1), ..enlist };
    assert_eq!(cluster.ask::<Enlisted>(Opcode::Enlist, &other), Err(Status::WrongCluster));
    assert_eq!(drop_table(&mut cluster, "nothing"), Err(Status::NoSuchTable));
    let message = RaiseEpoch { master: MasterId(99), segment: SegmentId(1), epoch: Epoch(1) };
    assert_eq!(cluster.ask::<Empty>(Opcode::RaiseEpoch, &message), Err(Status::Deposed));
    let late = Recovered {
        keeps: false,
        crashed: MasterId(99),
        recovery: RecoveryId(0),
        partition: 0,
        by: MasterId(98),
        outcome: Ok(vec![]),
    };
    assert_eq!(cluster.ask::<Empty>(Opcode::Recovered, &late), Err(Status::Deposed));
    assert_eq!(cluster.ask_raw::<Empty>(Opcode::Read, vec![]), Err(Status::UnknownOpcode));
}

#[test]
fn a_cluster_keeps_the_settings_of_its_creation() {
    let mut cluster = ControlPlane::new(14, 1, 0, &options());
    let made = status(&mut cluster);
    let other = Options { settings: Settings { replicas: 9, ..settings() }, ..options() };
    let store = cluster.store.clone();
    let truth = cluster.simulation.truth();
    assert!(truth.get() > 0);
    let client = store.client(thunderhead_runtime::clock::Clock::Sim(std::sync::Arc::new(
        thunderhead_runtime::sim::clock::SimClock::new(truth, thunderhead_runtime::Time(0), 0),
    )));
    let second = thunderhead_coordinator::Coordinator::new(Box::new(client), other);
    let handle = second.handle();
    let cell = std::cell::RefCell::new(Some(second));
    cluster.simulation.add_host("other settings", move |boot| {
        let coordinator = cell.borrow_mut().take().expect("it is started once");
        Box::new(thunderhead_rpc::Node::new(boot.world, boot.transport, coordinator))
    });
    cluster.coordinator(0).kill();
    cluster.until("the other one leads", |_| handle.leads());
    let text = format!(
        "other settings than this coordinator was given, and keeps them: replicas is {}, not 9",
        made.settings.replicas
    );
    assert!(handle.remarks()[0].ends_with(&text), "{:?}", handle.remarks());
    assert_eq!(made.settings, settings());
    handle.resign();
    cluster.coordinator(0).restart();
    cluster.until("the first one leads", |cluster| cluster.leader().is_some());
    assert_eq!(status(&mut cluster).cluster, made.cluster);
    assert_eq!(status(&mut cluster).settings, settings());
}

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
