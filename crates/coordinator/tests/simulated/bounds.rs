//! State that must be bounded, must end or must not be lost: former masters, crashed servers,
//! remarks about ended states, fields of records that a newer coordinator wrote.

use crate::scenarios::{create, formers, map, status};
use crate::world::{World, options, stored};
use std::collections::BTreeSet;
use std::time::Duration;
use thunderhead_coordinator::Options;
use thunderhead_coordinator::limits::LEASES_MAX;
use thunderhead_metastore::{Answer, Change, Entry, Key, LeaseName, Request as Ask};
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{
    BackupInfo, Empty, Enlist, Enlisted, Followed, ForgetServer, Known, Lease, LeaseOpened,
    Register, Registered, ReplicaInfo, ServerState,
};
use thunderhead_wire::{
    ClusterId, Epoch, Format, Generation, MasterId, SegmentId, ServerId, Status,
};

/// Returns the store's value of a key.
fn value(world: &World, key: &str) -> serde_json::Value {
    match world.store.peek(&Ask::Get { key: Key::new(key).unwrap() }) {
        Answer::Value(Some(entry)) => serde_json::from_slice(&entry.value).unwrap(),
        other => panic!("{key}: {other:?}"),
    }
}

/// Puts a value into the store, as another coordinator would.
fn put(world: &World, key: &str, value: &serde_json::Value) {
    let key = Key::new(key).unwrap();
    let Answer::Value(Some(Entry { version, .. })) =
        world.store.peek(&Ask::Get { key: key.clone() })
    else {
        panic!("there is no {key}")
    };
    let change = Change::Replace(version, serde_json::to_vec(value).unwrap());
    let answer = world.store.peek(&Ask::Write { key, change, fence: None });
    assert!(matches!(answer, Answer::Written(_)), "{answer:?}");
}

#[test]
fn a_server_that_crashes_repeatedly_is_remembered_in_bounds() {
    let mut world = World::new(20, 1, 4, &options());
    world.until_all_are_there();
    create(&mut world, "t", 8).unwrap();
    // One backup is down all the time.
    let away = world.servers[3].0;
    let server = world.servers[3].1.borrow().known.unwrap().server;
    world.simulation.crash(away);
    assert!(world.handle().server_failed(server, Generation(1)));
    let host = world.servers[0].0;
    let number = world.servers[0].1.borrow().known.unwrap().server.0;
    let mut most = 0;
    for _ in 0..120 {
        world.simulation.crash(host);
        world.simulation.start(host);
        world.until_all_are_there_but(&[3]);
        world.simulation.run_for(Duration::from_millis(700));
        most = most.max(formers(&world));
    }
    assert!(most <= 8, "{most} former masters are remembered");
    world.until("all are recovered", |world| formers(world) == 0);
    assert_eq!(value(&world, &format!("servers/{number}"))["generation"], 121);
    // A backup that was down frees unknown masters' replicas when it restarts.
    let needed: BTreeSet<MasterId> = (0..3).flat_map(|it| world.masters(it)).collect();
    let kept = |world: &World| -> Vec<MasterId> {
        world.servers[3].1.borrow().replicas.keys().copied().collect()
    };
    assert!(kept(&world).iter().any(|it| !needed.contains(it)), "it has replicas to free");
    world.simulation.start(away);
    world.until_all_are_there();
    world.until("it has freed them", |world| kept(world).iter().all(|it| needed.contains(it)));
}

/// Asks for a server to be forgotten, until it is known whether a recovery needs it.
fn ask_to_forget(world: &mut World, forget: &ForgetServer) -> Result<Empty, Status> {
    for _ in 0..50 {
        match world.ask::<Empty>(Opcode::ForgetServer, forget) {
            Err(Status::InProgress) => world.simulation.run_for(Duration::from_millis(100)),
            answer => return answer,
        }
    }
    Err(Status::InProgress)
}

/// A survey counts replicas, and does not read them.
#[test]
fn no_server_is_forgotten_while_the_other_replicas_turn_out_useless() {
    let mut world = World::new(23, 2, 3, &options());
    world.until_all_are_there();
    create(&mut world, "t", 4).unwrap();
    let [crashed, lost] = [1, 2].map(|it| world.servers[it].1.borrow().known.unwrap().server);
    for (_, server) in &world.servers {
        let mut server = server.borrow_mut();
        (server.recovers_by_itself, server.trouble) = (false, Some("a replica is damaged".into()));
    }
    for (number, server) in [(1, crashed), (2, lost)] {
        world.simulation.crash(world.servers[number].0);
        assert!(world.handle().server_failed(server, Generation(1)));
    }
    world.simulation.start(world.servers[1].0);
    world.until_all_are_there_but(&[2]);
    let has_failed = |world: &mut World| {
        let seen = status(world).recoveries;
        seen.iter().any(|it| it.trouble.as_deref() == Some("a replica is damaged"))
    };
    while !has_failed(&mut world) {
        world.simulation.run_for(Duration::from_millis(100));
    }
    let forget = ForgetServer { server: lost };
    assert_eq!(ask_to_forget(&mut world, &forget), Err(Status::MayBeNeeded));
    for number in 0..2 {
        let mut server = world.servers[number].1.borrow_mut();
        (server.recovers_by_itself, server.trouble) = (true, None);
    }
    world.until("all is recovered", |world| formers(world) == 0);
    assert_eq!(ask_to_forget(&mut world, &forget), Ok(Empty {}));
}

#[test]
fn a_server_is_forgotten_if_it_is_down_and_no_recovery_lacks_its_replicas() {
    let mut world = World::new(21, 2, 3, &options());
    world.until_all_are_there();
    create(&mut world, "t", 4).unwrap();
    let known = world.servers[2].1.borrow().known.unwrap();
    let forget = ForgetServer { server: known.server };
    assert_eq!(world.ask::<Empty>(Opcode::ForgetServer, &forget), Err(Status::ServerIsUp));
    let nobody = ForgetServer { server: ServerId(77) };
    assert_eq!(world.ask::<Empty>(Opcode::ForgetServer, &nobody), Err(Status::NoSuchServer));
    for (_, server) in &world.servers {
        server.borrow_mut().recovers_by_itself = false;
    }
    for number in [1, 2] {
        let server = world.servers[number].1.borrow().known.unwrap().server;
        world.simulation.crash(world.servers[number].0);
        assert!(world.handle().server_failed(server, Generation(1)));
    }
    world.until("both are down", |world| {
        let servers = world.handle().servers().unwrap().servers;
        servers.iter().filter(|it| it.state == ServerState::Down).count() == 2
    });
    assert_eq!(ask_to_forget(&mut world, &forget), Err(Status::MayBeNeeded));
    let seen = status(&mut world).recoveries;
    assert!(seen.iter().any(|it| it.trouble.is_some()), "{seen:?}");
    // All logs are complete without the third server, though none is recovered.
    world.simulation.start(world.servers[1].0);
    world.until_all_are_there_but(&[2]);
    assert_eq!(ask_to_forget(&mut world, &forget), Ok(Empty {}));
    assert!(formers(&world) > 0);
    for number in 0..2 {
        let host = world.servers[number].0;
        world.servers[number].1.borrow_mut().recovers_by_itself = true;
        world.simulation.crash(host);
        world.simulation.start(host);
    }
    world.until_all_are_there_but(&[2]);
    world.until("it can be forgotten", |world| formers(world) == 0);
    assert_eq!(world.ask(Opcode::ForgetServer, &forget), Ok(Empty {}));
    world.change_leader();
    assert_eq!(world.ask(Opcode::ForgetServer, &forget), Ok(Empty {}), "a repetition");
    let seen = status(&mut world);
    assert_eq!(seen.servers.servers.len(), 2);
    assert_eq!(seen.remarks, [""; 0]);
    let register = Register {
        known: Some(known),
        nonce: 1,
        place: 0,
        address: None,
        newest_format: Format::NEWEST,
        followed: Followed::default(),
    };
    let refused = world.ask::<Registered>(Opcode::Register, &register);
    assert_eq!(refused, Err(Status::NoSuchServer));
}

#[test]
fn servers_with_the_same_host_name_and_directory_at_different_addresses_all_enlist() {
    const PLACE: u64 = 55;
    let mut world = World::new(27, 1, 3, &options());
    world.servers[..2].iter().for_each(|(_, server)| server.borrow_mut().place = PLACE);
    world.until_all_are_there();
    let servers: Vec<ServerId> =
        world.servers[..2].iter().map(|it| it.1.borrow().known.unwrap().server).collect();
    assert_ne!(servers[0], servers[1]);
    let list = status(&mut world).servers.servers;
    let addresses: Vec<_> = servers
        .iter()
        .map(|id| list.iter().find(|it| it.server == *id).unwrap().shards[0].address)
        .collect();
    let mut nonce = 100;
    let mut register = |world: &mut World, address| {
        nonce += 1;
        let register = Register {
            known: None,
            nonce,
            place: PLACE,
            address: Some(address),
            newest_format: Format::NEWEST,
            followed: Followed::default(),
        };
        world.ask::<Registered>(Opcode::Register, &register).unwrap()
    };
    // A server without storage at the address of another one is that server.
    for (server, address) in servers.iter().zip(&addresses) {
        let refused = register(&mut world, *address);
        assert_eq!((refused.server, refused.is_missing), (*server, true));
    }
    let elsewhere = ([10, 0, 0, 99], 1).into();
    assert!(!register(&mut world, elsewhere).is_missing);
    // A server that does not answer may have restarted under another address.
    // Its masters stay unfinished, because a backup does not answer.
    world.servers[2].1.borrow_mut().is_deaf = true;
    let host = world.servers[0].0;
    world.simulation.crash(host);
    let refused = register(&mut world, elsewhere);
    assert_eq!((refused.server, refused.is_missing), (servers[0], true));
    assert!(world.handle().server_failed(servers[0], Generation(1)));
    world.until("it is down", |world| {
        let servers = world.handle().servers().unwrap().servers;
        servers.iter().any(|it| it.state == ServerState::Down)
    });
    let refused = register(&mut world, elsewhere);
    assert_eq!((refused.server, refused.is_missing), (servers[0], true));
    // A forgotten server does not return, even if its former masters are unfinished.
    let forget = ForgetServer { server: servers[0] };
    assert_eq!(world.ask(Opcode::ForgetServer, &forget), Ok(Empty {}));
    assert_eq!(value(&world, &format!("servers/{}", servers[0].0))["forgotten"], true);
    assert!(!register(&mut world, elsewhere).is_missing);
}

#[test]
fn a_leader_over_an_older_copy_leads_above_all_leaderships_that_servers_have_followed() {
    const FOLLOWED: u64 = 40;
    let mut world = World::new(28, 1, 2, &options());
    world.until_all_are_there();
    create(&mut world, "t", 1).unwrap();
    // After the copy was made there were other leaders. Under them a master had a log, and clients
    // had leases.
    let lost = MasterId(500);
    let replica =
        ReplicaInfo { segment: SegmentId(1), epoch: Epoch(0), length: 1000, closed: true };
    for (_, server) in &world.servers {
        let mut server = server.borrow_mut();
        server.follows = FOLLOWED;
        server.replicas.insert(lost, vec![replica]);
    }
    let before: LeaseOpened = world.ask(Opcode::OpenLease, &Empty {}).unwrap();
    // The first leader that is asked may give its leadership up.
    let created = create(&mut world, "u", 2);
    assert!(matches!(created, Ok(_) | Err(Status::LeadershipLost)), "{created:?}");
    world.until("its tablets are taken", |world| {
        let map = world.leader().and_then(|_| world.handle().map());
        map.is_some_and(|map| {
            let mut tablets = map.tables.iter().flat_map(|it| &it.tablets);
            map.tables.len() == 2 && tablets.all(|it| it.address.is_some())
        })
    });
    let status = status(&mut world);
    assert!(status.remarks.iter().any(|it| it.contains("an older copy")), "{:?}", status.remarks);
    assert!(status.map.version >> 20 > FOLLOWED && status.servers.version >> 20 > FOLLOWED);
    // The next commands count, and ids that may have been given out since the copy are not given
    // out again.
    create(&mut world, "v", 1).unwrap();
    let register = Register {
        known: None,
        nonce: 7,
        place: 0,
        address: None,
        newest_format: Format::NEWEST,
        followed: Followed::default(),
    };
    let new: Registered = world.ask(Opcode::Register, &register).unwrap();
    assert!(new.server.0 > 1 << 32, "{}", new.server);
    let after: LeaseOpened = world.ask(Opcode::OpenLease, &Empty {}).unwrap();
    assert!(after.lease.0 - before.lease.0 > 1 << 56);
    // The logs of masters that it does not know stay.
    for (host, server) in &world.servers {
        server.borrow_mut().enlisted = None;
        world.simulation.crash(*host);
        world.simulation.start(*host);
    }
    world.until_all_are_there();
    world.simulation.run_for(Duration::from_secs(5));
    assert!(world.servers.iter().all(|it| it.1.borrow().replicas.contains_key(&lost)));
}

#[test]
fn a_leader_over_an_older_copy_gives_out_no_ids_to_a_server_that_has_followed_a_later_state() {
    let later = [
        Followed { leadership: 40, master: MasterId(0) },
        Followed { leadership: 0, master: MasterId(500) },
    ];
    for followed in later {
        let mut world = World::new(31, 1, 2, &options());
        world.until_all_are_there();
        let before = world.masters(0);
        // All servers restart, and the first one has followed the later state.
        let host = world.servers[0].0;
        world.servers[0].1.borrow_mut().followed = followed;
        world.simulation.crash(host);
        world.simulation.start(host);
        world.until("it has enlisted again", |world| {
            let server = world.servers[0].1.borrow();
            server.enlisted.as_ref().is_some_and(|it| it.masters != before)
        });
        assert!(world.masters(0).iter().all(|it| it.0 > 1 << 32), "{:?}", world.masters(0));
        let status = status(&mut world);
        assert!(status.remarks.iter().any(|it| it.contains("an older copy")), "{followed:?}");
        assert!(status.servers.version >> 20 > followed.leadership);
    }
    // A damaged record does not use up the ids.
    let mut world = World::new(32, 1, 1, &options());
    world.until_all_are_there();
    let known = world.servers[0].1.borrow().known;
    let followed = Followed { leadership: u64::MAX, master: MasterId(u64::MAX) };
    let newest_format = Format::NEWEST;
    let register = Register { known, nonce: 1, place: 0, address: None, newest_format, followed };
    let registered: Registered = world.ask(Opcode::Register, &register).unwrap();
    assert_eq!(Some(registered.server), known.map(|it| it.server));
}

#[test]
fn a_server_whose_id_was_never_given_out_is_not_taken_for_a_forgotten_one() {
    let mut world = World::new(33, 1, 1, &options());
    world.until_all_are_there();
    let known = world.servers[0].1.borrow().known.unwrap();
    // It registered after the copy of the metastore was made.
    let later = Known { server: ServerId(77), ..known };
    let register = Register {
        known: Some(later),
        nonce: 1,
        place: 0,
        address: None,
        newest_format: Format::NEWEST,
        followed: Followed::default(),
    };
    for _ in 0..2 {
        let refused = world.ask::<Registered>(Opcode::Register, &register);
        assert_eq!(refused, Err(Status::UnknownServer));
        world.change_leader();
    }
    // Its id is not given out to another server.
    let new = Register { known: None, nonce: 2, ..register };
    let new: Registered = world.ask(Opcode::Register, &new).unwrap();
    assert!(new.server > later.server, "{}", new.server);
}

#[test]
fn the_status_says_how_to_forget_servers_when_many_are_down() {
    const DOWN: u64 = 1000;
    let mut world = World::new(34, 1, 0, &options());
    world.until("a leader leads", |world| world.leader().is_some());
    let told = |world: &mut World| {
        let remarks = status(world).remarks;
        remarks.iter().any(|it| it.contains("server forget SERVER..."))
    };
    // The storage of a server is new at each start.
    for nonce in 0..=DOWN {
        assert!(nonce < DOWN || !told(&mut world), "one less is down");
        let register = Register {
            known: None,
            nonce,
            place: 0,
            address: None,
            newest_format: Format::NEWEST,
            followed: Followed::default(),
        };
        let Registered { cluster, server, .. } = world.ask(Opcode::Register, &register).unwrap();
        let at = ([10, 0, 0, 99], 1).into();
        let enlist = Enlist {
            cluster,
            server,
            nonce,
            host: "h".into(),
            rack: String::new(),
            shards: vec![at],
            backup: Some(BackupInfo { address: at, read_bytes_per_second: 0, place: 55 }),
            newest_format: Format::NEWEST,
            followed: Followed::default(),
        };
        world.ask::<Enlisted>(Opcode::Enlist, &enlist).unwrap();
    }
    assert!(told(&mut world));
}

#[test]
fn a_coordinator_that_created_a_cluster_reports_servers_of_another_one() {
    let store = "/data/metastore".to_owned();
    let mut world = World::new(29, 2, 1, &Options { store, ..options() });
    world.until_all_are_there();
    let known = Some(Known { cluster: ClusterId(7), server: ServerId(3) });
    let register = Register {
        known,
        nonce: 1,
        place: 0,
        address: None,
        newest_format: Format::NEWEST,
        followed: Followed::default(),
    };
    for has_founded in [true, false] {
        let refused = world.ask::<Registered>(Opcode::Register, &register);
        assert_eq!(refused, Err(Status::WrongCluster));
        let remarks = world.handle().remarks();
        let told = "server 3 belongs to cluster 7";
        let asks = |it: &String| it.contains(told) && it.contains("/data/metastore mounted?");
        assert_eq!(remarks.iter().any(asks), has_founded, "{remarks:?}");
        world.change_leader();
    }
}

#[test]
fn a_coordinator_of_an_existing_cluster_creates_none() {
    let only_existing = Options { existing: true, ..options() };
    let mut world = World::new(30, 1, 0, &only_existing);
    world.simulation.run_for(Duration::from_secs(30));
    assert_eq!(world.leader(), None);
    assert!(matches!(
        world.store.peek(&Ask::Get { key: Key::new("cluster").unwrap() }),
        Answer::Value(None)
    ));
    let remarks = world.coordinators[0].handle.borrow().as_ref().unwrap().0.remarks();
    assert!(remarks.iter().any(|it| it.contains("holds no cluster")), "{remarks:?}");
}

#[test]
fn a_server_without_storage_is_forgotten_with_its_generation() {
    let mut world = World::new(22, 1, 1, &options());
    world.until_all_are_there();
    for nonce in 100..105 {
        let register = Register {
            known: None,
            nonce,
            place: 0,
            address: None,
            newest_format: Format::NEWEST,
            followed: Followed::default(),
        };
        let Registered { cluster, server, .. } = world.ask(Opcode::Register, &register).unwrap();
        let enlist = Enlist {
            cluster,
            server,
            nonce,
            host: "h".into(),
            rack: String::new(),
            shards: vec![([10, 0, 0, 99], 1).into()],
            backup: None,
            newest_format: Format::NEWEST,
            followed: Followed::default(),
        };
        world.ask::<Enlisted>(Opcode::Enlist, &enlist).unwrap();
    }
    world.until("only the last one is known", |world| stored(&world.store, "servers").len() == 2);
}

#[test]
fn servers_that_never_begin_a_generation_are_not_remembered_for_ever() {
    let mut world = World::new(23, 1, 1, &options());
    world.until_all_are_there();
    for nonce in 100..1200 {
        let register = Register {
            known: None,
            nonce,
            place: 0,
            address: None,
            newest_format: Format::NEWEST,
            followed: Followed::default(),
        };
        world.ask::<Registered>(Opcode::Register, &register).unwrap();
    }
    assert_eq!(stored(&world.store, "servers").len(), 1001);
}

#[test]
fn leases_are_bounded() {
    let mut world = World::new(27, 1, 0, &options());
    let first: LeaseOpened = world.ask(Opcode::OpenLease, &Empty {}).unwrap();
    let host = world.coordinators[0].host;
    world.simulation.crash(host);
    for further in 1..LEASES_MAX {
        let key = Key::new(format!("leases/{}", first.lease.0 + further)).unwrap();
        let change = Change::Create(b"{}".to_vec());
        let answer = world.store.peek(&Ask::Write { key, change, fence: None });
        assert!(matches!(answer, Answer::Written(_)), "{answer:?}");
    }
    world.simulation.start(host);
    let refused = world.ask::<LeaseOpened>(Opcode::OpenLease, &Empty {});
    assert_eq!(refused, Err(Status::Busy));
    let remarks = status(&mut world).remarks;
    assert!(remarks[0].contains("clients have leases"), "{remarks:?}");
    let close = Lease { lease: first.lease };
    assert_eq!(world.ask(Opcode::CloseLease, &close), Ok(Empty {}));
    world.ask::<LeaseOpened>(Opcode::OpenLease, &Empty {}).unwrap();
}

#[test]
fn the_remark_about_the_metastore_ends_with_its_cause() {
    let options = Options { leadership_ttl: Duration::from_secs(20), ..options() };
    let mut world = World::new(24, 1, 1, &options);
    world.until_all_are_there();
    world.store.stop();
    assert_eq!(create(&mut world, "t", 1), Err(Status::MetastoreUnavailable));
    world.simulation.run_for(Duration::from_secs(3));
    assert!(world.handle().remarks()[0].contains("metastore"));
    world.store.start();
    // No client changes anything.
    world.until("the remark is gone", |world| world.handle().remarks().is_empty());
}

#[test]
fn an_event_is_shown_for_a_while() {
    let mut world = World::new(25, 1, 2, &options());
    world.until_all_are_there();
    let host = world.servers[0].0;
    world.simulation.crash(host);
    world.servers[0].1.borrow_mut().known = None;
    world.simulation.start(host);
    world.until_all_are_there();
    let taken = |world: &mut World| {
        let remarks = status(world).remarks;
        remarks.iter().any(|it| it.contains("has taken the place of"))
    };
    assert!(taken(&mut world));
    world.simulation.run_for(Duration::from_secs(9 * 60));
    assert!(taken(&mut world));
    world.simulation.run_for(Duration::from_secs(2 * 60));
    assert!(!taken(&mut world));
}

#[test]
fn a_coordinator_that_does_not_know_every_field_does_not_lead() {
    let mut world = World::new(26, 1, 1, &options());
    world.until_all_are_there();
    create(&mut world, "t", 1).unwrap();
    let good = [value(&world, "cluster"), value(&world, "servers/1")];
    let mut newer = good.clone();
    newer[0]["format"] = 2.into();
    newer[1]["former"] = serde_json::json!([{ "master": 7, "shard": 0, "colour": "red" }]);
    for (number, key) in ["cluster", "servers/1"].into_iter().enumerate() {
        let host = world.coordinators[0].host;
        world.simulation.crash(host);
        put(&world, key, &newer[number]);
        world.simulation.start(host);
        world.simulation.run_for(Duration::from_secs(5));
        assert_eq!(world.leader(), None);
        // Other coordinators can have the leadership: it is free most of the time.
        let holder = Ask::Holder { lease: LeaseName::new("coordinator").unwrap() };
        assert_eq!(world.store.peek(&holder), Answer::Holder(None));
        let remarks = world.coordinators[0].handle.borrow().as_ref().unwrap().0.remarks();
        assert!(remarks[0].contains("upgrade"), "{remarks:?}");
        world.simulation.run_for(Duration::from_secs(30));
        assert_eq!(value(&world, key), newer[number], "the value is unchanged");
        put(&world, key, &good[number]);
        world.until("it leads", |world| world.leader().is_some());
        assert!(world.handle().remarks().is_empty());
        assert_eq!(map(&mut world).tables.len(), 1);
    }
}
