//! State that must be bounded, must end or must not be lost: former masters, crashed servers,
//! remarks about ended states, fields of records that a newer coordinator wrote.

use crate::control_plane::{ControlPlane, options, stored};
use crate::scenarios::{create, formers, map, status};
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
fn value(cluster: &ControlPlane, key: &str) -> serde_json::Value {
    match cluster.store.peek(&Ask::Get { key: Key::new(key).unwrap() }) {
        Answer::Value(Some(entry)) => serde_json::from_slice(&entry.value).unwrap(),
        other => panic!("{key}: {other:?}"),
    }
}

/// Puts a value into the store, as another coordinator would.
fn put(cluster: &ControlPlane, key: &str, value: &serde_json::Value) {
    let key = Key::new(key).unwrap();
    let Answer::Value(Some(Entry { version, .. })) =
        cluster.store.peek(&Ask::Get { key: key.clone() })
    else {
        panic!("there is no {key}")
    };
    let change = Change::Replace(version, serde_json::to_vec(value).unwrap());
    let answer = cluster.store.peek(&Ask::Write { key, change, fence: None });
    assert!(matches!(answer, Answer::Written(_)), "{answer:?}");
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

/// Asks for a server to be forgotten, until it is known whether a recovery needs it.
fn ask_to_forget(cluster: &mut ControlPlane, forget: &ForgetServer) -> Result<Empty, Status> {
    for _ in 0..50 {
        match cluster.ask::<Empty>(Opcode::ForgetServer, forget) {
            Err(Status::InProgress) => cluster.simulation.run_for(Duration::from_millis(100)),
            answer => return answer,
        }
    }
    Err(Status::InProgress)
}

/// A survey counts replicas, and does not read them.
#[test]
fn no_server_is_forgotten_while_the_other_replicas_turn_out_useless() {
    let mut cluster = ControlPlane::new(23, 2, 3, &options());
    cluster.until_all_are_there();
    create(&mut cluster, "t", 4).unwrap();
    let [crashed, lost] = [1, 2].map(|it| cluster.servers[it].borrow().known.unwrap().server);
    for server in &cluster.servers {
        let mut server = server.borrow_mut();
        (server.recovers_by_itself, server.trouble) = (false, Some("a replica is damaged".into()));
    }
    for (number, server) in [(1, crashed), (2, lost)] {
        cluster.server(number).kill();
        assert!(cluster.handle().server_failed(server, Generation(1)));
    }
    cluster.server(1).restart();
    cluster.until_all_are_there_but(&[2]);
    let has_failed = |cluster: &mut ControlPlane| {
        let seen = status(cluster).recoveries;
        seen.iter().any(|it| it.trouble.as_deref() == Some("a replica is damaged"))
    };
    while !has_failed(&mut cluster) {
        cluster.simulation.run_for(Duration::from_millis(100));
    }
    let forget = ForgetServer { server: lost };
    assert_eq!(ask_to_forget(&mut cluster, &forget), Err(Status::MayBeNeeded));
    for number in 0..2 {
        let mut server = cluster.servers[number].borrow_mut();
        (server.recovers_by_itself, server.trouble) = (true, None);
    }
    cluster.until("all is recovered", |cluster| formers(cluster) == 0);
    assert_eq!(ask_to_forget(&mut cluster, &forget), Ok(Empty {}));
}

#[test]
fn a_server_is_forgotten_if_it_is_down_and_no_recovery_lacks_its_replicas() {
    let mut cluster = ControlPlane::new(21, 2, 3, &options());
    cluster.until_all_are_there();
    create(&mut cluster, "t", 4).unwrap();
    let known = cluster.servers[2].borrow().known.unwrap();
    let forget = ForgetServer { server: known.server };
    assert_eq!(cluster.ask::<Empty>(Opcode::ForgetServer, &forget), Err(Status::ServerIsUp));
    let nobody = ForgetServer { server: ServerId(77) };
    assert_eq!(cluster.ask::<Empty>(Opcode::ForgetServer, &nobody), Err(Status::NoSuchServer));
    for server in &cluster.servers {
        server.borrow_mut().recovers_by_itself = false;
    }
    for number in [1, 2] {
        let server = cluster.servers[number].borrow().known.unwrap().server;
        cluster.server(number).kill();
        assert!(cluster.handle().server_failed(server, Generation(1)));
    }
    cluster.until("both are down", |cluster| {
        let servers = cluster.handle().servers().unwrap().servers;
        servers.iter().filter(|it| it.state == ServerState::Down).count() == 2
    });
    assert_eq!(ask_to_forget(&mut cluster, &forget), Err(Status::MayBeNeeded));
    let seen = status(&mut cluster).recoveries;
    assert!(seen.iter().any(|it| it.trouble.is_some()), "{seen:?}");
    // All logs are complete without the third server, though none is recovered.
    cluster.server(1).restart();
    cluster.until_all_are_there_but(&[2]);
    assert_eq!(ask_to_forget(&mut cluster, &forget), Ok(Empty {}));
    assert!(formers(&cluster) > 0);
    for number in 0..2 {
        cluster.servers[number].borrow_mut().recovers_by_itself = true;
        cluster.server(number).kill();
        cluster.server(number).restart();
    }
    cluster.until_all_are_there_but(&[2]);
    cluster.until("it can be forgotten", |cluster| formers(cluster) == 0);
    assert_eq!(cluster.ask(Opcode::ForgetServer, &forget), Ok(Empty {}));
    cluster.change_leader();
    assert_eq!(cluster.ask(Opcode::ForgetServer, &forget), Ok(Empty {}), "a repetition");
    let seen = status(&mut cluster);
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
    let refused = cluster.ask::<Registered>(Opcode::Register, &register);
    assert_eq!(refused, Err(Status::NoSuchServer));
}

#[test]
fn servers_with_the_same_host_name_and_directory_at_different_addresses_all_enlist() {
    const PLACE: u64 = 55;
    let mut cluster = ControlPlane::new(27, 1, 3, &options());
    cluster.servers[..2].iter().for_each(|server| server.borrow_mut().place = PLACE);
    cluster.until_all_are_there();
    let servers: Vec<ServerId> =
        cluster.servers[..2].iter().map(|it| it.borrow().known.unwrap().server).collect();
    assert_ne!(servers[0], servers[1]);
    let list = status(&mut cluster).servers.servers;
    let addresses: Vec<_> = servers
        .iter()
        .map(|id| list.iter().find(|it| it.server == *id).unwrap().shards[0].address)
        .collect();
    let mut nonce = 100;
    let mut register = |cluster: &mut ControlPlane, address| {
        nonce += 1;
        let register = Register {
            known: None,
            nonce,
            place: PLACE,
            address: Some(address),
            newest_format: Format::NEWEST,
            followed: Followed::default(),
        };
        cluster.ask::<Registered>(Opcode::Register, &register).unwrap()
    };
    // A server without storage at the address of another one is that server.
    for (server, address) in servers.iter().zip(&addresses) {
        let refused = register(&mut cluster, *address);
        assert_eq!((refused.server, refused.is_missing), (*server, true));
    }
    let elsewhere = ([10, 0, 0, 99], 1).into();
    assert!(!register(&mut cluster, elsewhere).is_missing);
    // A server that does not answer may have restarted under another address.
    // Its masters stay unfinished, because a backup does not answer.
    cluster.servers[2].borrow_mut().is_deaf = true;
    cluster.server(0).kill();
    let refused = register(&mut cluster, elsewhere);
    assert_eq!((refused.server, refused.is_missing), (servers[0], true));
    assert!(cluster.handle().server_failed(servers[0], Generation(1)));
    cluster.until("it is down", |cluster| {
        let servers = cluster.handle().servers().unwrap().servers;
        servers.iter().any(|it| it.state == ServerState::Down)
    });
    let refused = register(&mut cluster, elsewhere);
    assert_eq!((refused.server, refused.is_missing), (servers[0], true));
    // A forgotten server does not return, even if its former masters are unfinished.
    let forget = ForgetServer { server: servers[0] };
    assert_eq!(cluster.ask(Opcode::ForgetServer, &forget), Ok(Empty {}));
    assert_eq!(value(&cluster, &format!("servers/{}", servers[0].0))["forgotten"], true);
    assert!(!register(&mut cluster, elsewhere).is_missing);
}

#[test]
fn a_leader_over_an_older_copy_leads_above_all_leaderships_that_servers_have_followed() {
    const FOLLOWED: u64 = 40;
    let mut cluster = ControlPlane::new(28, 1, 2, &options());
    cluster.until_all_are_there();
    create(&mut cluster, "t", 1).unwrap();
    // After the copy was made there were other leaders. Under them a master had a log, and clients
    // had leases.
    let lost = MasterId(500);
    let replica =
        ReplicaInfo { segment: SegmentId(1), epoch: Epoch(0), length: 1000, closed: true };
    for server in &cluster.servers {
        let mut server = server.borrow_mut();
        server.follows = FOLLOWED;
        server.replicas.insert(lost, vec![replica]);
    }
    let before: LeaseOpened = cluster.ask(Opcode::OpenLease, &Empty {}).unwrap();
    // The first leader that is asked may give its leadership up.
    let created = create(&mut cluster, "u", 2);
    assert!(matches!(created, Ok(_) | Err(Status::LeadershipLost)), "{created:?}");
    cluster.until("its tablets are taken", |cluster| {
        let map = cluster.leader().and_then(|_| cluster.handle().map());
        map.is_some_and(|map| {
            let mut tablets = map.tables.iter().flat_map(|it| &it.tablets);
            map.tables.len() == 2 && tablets.all(|it| it.address.is_some())
        })
    });
    let status = status(&mut cluster);
    assert!(status.remarks.iter().any(|it| it.contains("an older copy")), "{:?}", status.remarks);
    assert!(status.map.version >> 20 > FOLLOWED && status.servers.version >> 20 > FOLLOWED);
    // The next commands count, and ids that may have been given out since the copy are not given
    // out again.
    create(&mut cluster, "v", 1).unwrap();
    let register = Register {
        known: None,
        nonce: 7,
        place: 0,
        address: None,
        newest_format: Format::NEWEST,
        followed: Followed::default(),
    };
    let new: Registered = cluster.ask(Opcode::Register, &register).unwrap();
    assert!(new.server.0 > 1 << 32, "{}", new.server);
    let after: LeaseOpened = cluster.ask(Opcode::OpenLease, &Empty {}).unwrap();
    assert!(after.lease.0 - before.lease.0 > 1 << 56);
    // The logs of masters that it does not know stay.
    for number in 0..cluster.servers.len() {
        cluster.servers[number].borrow_mut().enlisted = None;
        cluster.server(number).kill();
        cluster.server(number).restart();
    }
    cluster.until_all_are_there();
    cluster.simulation.run_for(Duration::from_secs(5));
    assert!(cluster.servers.iter().all(|it| it.borrow().replicas.contains_key(&lost)));
}

#[test]
fn a_leader_over_an_older_copy_gives_out_no_ids_to_a_server_that_has_followed_a_later_state() {
    let later = [
        Followed { leadership: 40, master: MasterId(0) },
        Followed { leadership: 0, master: MasterId(500) },
    ];
    for followed in later {
        let mut cluster = ControlPlane::new(31, 1, 2, &options());
        cluster.until_all_are_there();
        let before = cluster.masters(0);
        // All servers restart, and the first one has followed the later state.
        cluster.servers[0].borrow_mut().followed = followed;
        cluster.server(0).kill();
        cluster.server(0).restart();
        cluster.until("it has enlisted again", |cluster| {
            let server = cluster.servers[0].borrow();
            server.enlisted.as_ref().is_some_and(|it| it.masters != before)
        });
        assert!(cluster.masters(0).iter().all(|it| it.0 > 1 << 32), "{:?}", cluster.masters(0));
        let status = status(&mut cluster);
        assert!(status.remarks.iter().any(|it| it.contains("an older copy")), "{followed:?}");
        assert!(status.servers.version >> 20 > followed.leadership);
    }
    // A damaged record does not use up the ids.
    let mut cluster = ControlPlane::new(32, 1, 1, &options());
    cluster.until_all_are_there();
    let known = cluster.servers[0].borrow().known;
    let followed = Followed { leadership: u64::MAX, master: MasterId(u64::MAX) };
    let newest_format = Format::NEWEST;
    let register = Register { known, nonce: 1, place: 0, address: None, newest_format, followed };
    let registered: Registered = cluster.ask(Opcode::Register, &register).unwrap();
    assert_eq!(Some(registered.server), known.map(|it| it.server));
}

#[test]
fn a_server_whose_id_was_never_given_out_is_not_taken_for_a_forgotten_one() {
    let mut cluster = ControlPlane::new(33, 1, 1, &options());
    cluster.until_all_are_there();
    let known = cluster.servers[0].borrow().known.unwrap();
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
        let refused = cluster.ask::<Registered>(Opcode::Register, &register);
        assert_eq!(refused, Err(Status::UnknownServer));
        cluster.change_leader();
    }
    // Its id is not given out to another server.
    let new = Register { known: None, nonce: 2, ..register };
    let new: Registered = cluster.ask(Opcode::Register, &new).unwrap();
    assert!(new.server > later.server, "{}", new.server);
}

#[test]
fn the_status_says_how_to_forget_servers_when_many_are_down() {
    const DOWN: u64 = 1000;
    let mut cluster = ControlPlane::new(34, 1, 0, &options());
    cluster.until("a leader leads", |cluster| cluster.leader().is_some());
    let told = |cluster: &mut ControlPlane| {
        let remarks = status(cluster).remarks;
        remarks.iter().any(|it| it.contains("server forget SERVER..."))
    };
    // The storage of a server is new at each start.
    for nonce in 0..=DOWN {
        assert!(nonce < DOWN || !told(&mut cluster), "one less is down");
        let register = Register {
            known: None,
            nonce,
            place: 0,
            address: None,
            newest_format: Format::NEWEST,
            followed: Followed::default(),
        };
        let registered: Registered = cluster.ask(Opcode::Register, &register).unwrap();
        let Registered { cluster: id, server, .. } = registered;
        let at = ([10, 0, 0, 99], 1).into();
        let enlist = Enlist {
            cluster: id,
            server,
            nonce,
            host: "h".into(),
            rack: String::new(),
            shards: vec![at],
            backup: Some(BackupInfo { address: at, read_bytes_per_second: 0, place: 55 }),
            newest_format: Format::NEWEST,
            followed: Followed::default(),
        };
        cluster.ask::<Enlisted>(Opcode::Enlist, &enlist).unwrap();
    }
    assert!(told(&mut cluster));
}

#[test]
fn a_coordinator_that_created_a_cluster_reports_servers_of_another_one() {
    let store = "/data/metastore".to_owned();
    let mut cluster = ControlPlane::new(29, 2, 1, &Options { store, ..options() });
    cluster.until_all_are_there();
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
        let refused = cluster.ask::<Registered>(Opcode::Register, &register);
        assert_eq!(refused, Err(Status::WrongCluster));
        let remarks = cluster.handle().remarks();
        let told = "server 3 belongs to cluster 7";
        let asks = |it: &String| it.contains(told) && it.contains("/data/metastore mounted?");
        assert_eq!(remarks.iter().any(asks), has_founded, "{remarks:?}");
        cluster.change_leader();
    }
}

#[test]
fn a_coordinator_of_an_existing_cluster_creates_none() {
    let only_existing = Options { existing: true, ..options() };
    let mut cluster = ControlPlane::new(30, 1, 0, &only_existing);
    cluster.simulation.run_for(Duration::from_secs(30));
    assert_eq!(cluster.leader(), None);
    assert!(matches!(
        cluster.store.peek(&Ask::Get { key: Key::new("cluster").unwrap() }),
        Answer::Value(None)
    ));
    let remarks = cluster.seats[0].handle.borrow().as_ref().unwrap().0.remarks();
    assert!(remarks.iter().any(|it| it.contains("holds no cluster")), "{remarks:?}");
}

#[test]
fn a_server_without_storage_is_forgotten_with_its_generation() {
    let mut cluster = ControlPlane::new(22, 1, 1, &options());
    cluster.until_all_are_there();
    for nonce in 100..105 {
        let register = Register {
            known: None,
            nonce,
            place: 0,
            address: None,
            newest_format: Format::NEWEST,
            followed: Followed::default(),
        };
        let registered: Registered = cluster.ask(Opcode::Register, &register).unwrap();
        let Registered { cluster: id, server, .. } = registered;
        let enlist = Enlist {
            cluster: id,
            server,
            nonce,
            host: "h".into(),
            rack: String::new(),
            shards: vec![([10, 0, 0, 99], 1).into()],
            backup: None,
            newest_format: Format::NEWEST,
            followed: Followed::default(),
        };
        cluster.ask::<Enlisted>(Opcode::Enlist, &enlist).unwrap();
    }
    cluster.until("only the last one is known", |cluster| {
        stored(&cluster.store, "servers").len() == 2
    });
}

#[test]
fn servers_that_never_begin_a_generation_are_not_remembered_for_ever() {
    let mut cluster = ControlPlane::new(23, 1, 1, &options());
    cluster.until_all_are_there();
    for nonce in 100..1200 {
        let register = Register {
            known: None,
            nonce,
            place: 0,
            address: None,
            newest_format: Format::NEWEST,
            followed: Followed::default(),
        };
        cluster.ask::<Registered>(Opcode::Register, &register).unwrap();
    }
    assert_eq!(stored(&cluster.store, "servers").len(), 1001);
}

#[test]
fn leases_are_bounded() {
    let mut cluster = ControlPlane::new(27, 1, 0, &options());
    let first: LeaseOpened = cluster.ask(Opcode::OpenLease, &Empty {}).unwrap();
    cluster.coordinator(0).kill();
    for further in 1..LEASES_MAX {
        let key = Key::new(format!("leases/{}", first.lease.0 + further)).unwrap();
        let change = Change::Create(b"{}".to_vec());
        let answer = cluster.store.peek(&Ask::Write { key, change, fence: None });
        assert!(matches!(answer, Answer::Written(_)), "{answer:?}");
    }
    cluster.coordinator(0).restart();
    let refused = cluster.ask::<LeaseOpened>(Opcode::OpenLease, &Empty {});
    assert_eq!(refused, Err(Status::Busy));
    let remarks = status(&mut cluster).remarks;
    assert!(remarks[0].contains("clients have leases"), "{remarks:?}");
    let close = Lease { lease: first.lease };
    assert_eq!(cluster.ask(Opcode::CloseLease, &close), Ok(Empty {}));
    cluster.ask::<LeaseOpened>(Opcode::OpenLease, &Empty {}).unwrap();
}

#[test]
fn the_remark_about_the_metastore_ends_with_its_cause() {
    let options = Options { leadership_ttl: Duration::from_secs(20), ..options() };
    let mut cluster = ControlPlane::new(24, 1, 1, &options);
    cluster.until_all_are_there();
    cluster.store.stop();
    assert_eq!(create(&mut cluster, "t", 1), Err(Status::MetastoreUnavailable));
    cluster.simulation.run_for(Duration::from_secs(3));
    assert!(cluster.handle().remarks()[0].contains("metastore"));
    cluster.store.start();
    // No client changes anything.
    cluster.until("the remark is gone", |cluster| cluster.handle().remarks().is_empty());
}

#[test]
fn an_event_is_shown_for_a_while() {
    let mut cluster = ControlPlane::new(25, 1, 2, &options());
    cluster.until_all_are_there();
    cluster.server(0).kill();
    cluster.servers[0].borrow_mut().known = None;
    cluster.server(0).restart();
    cluster.until_all_are_there();
    let taken = |cluster: &mut ControlPlane| {
        let remarks = status(cluster).remarks;
        remarks.iter().any(|it| it.contains("has taken the place of"))
    };
    assert!(taken(&mut cluster));
    cluster.simulation.run_for(Duration::from_secs(9 * 60));
    assert!(taken(&mut cluster));
    cluster.simulation.run_for(Duration::from_secs(2 * 60));
    assert!(!taken(&mut cluster));
}

#[test]
fn a_coordinator_that_does_not_know_every_field_does_not_lead() {
    let mut cluster = ControlPlane::new(26, 1, 1, &options());
    cluster.until_all_are_there();
    create(&mut cluster, "t", 1).unwrap();
    let good = [value(&cluster, "cluster"), value(&cluster, "servers/1")];
    let mut newer = good.clone();
    newer[0]["format"] = 2.into();
    newer[1]["former"] = serde_json::json!([{ "master": 7, "shard": 0, "colour": "red" }]);
    for (number, key) in ["cluster", "servers/1"].into_iter().enumerate() {
        cluster.coordinator(0).kill();
        put(&cluster, key, &newer[number]);
        cluster.coordinator(0).restart();
        cluster.simulation.run_for(Duration::from_secs(5));
        assert_eq!(cluster.leader(), None);
        // Other coordinators can have the leadership: it is free most of the time.
        let holder = Ask::Holder { lease: LeaseName::new("coordinator").unwrap() };
        assert_eq!(cluster.store.peek(&holder), Answer::Holder(None));
        let remarks = cluster.seats[0].handle.borrow().as_ref().unwrap().0.remarks();
        assert!(remarks[0].contains("upgrade"), "{remarks:?}");
        cluster.simulation.run_for(Duration::from_secs(30));
        assert_eq!(value(&cluster, key), newer[number], "the value is unchanged");
        put(&cluster, key, &good[number]);
        cluster.until("it leads", |cluster| cluster.leader().is_some());
        assert!(cluster.handle().remarks().is_empty());
        assert_eq!(map(&mut cluster).tables.len(), 1);
    }
}
