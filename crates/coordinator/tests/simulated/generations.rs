//! Registration and enlistment: which server a process is, and when its generation begins and ends.

use crate::control_plane::{
    ControlPlane, create, held, map, mapped, options, registration, settings, status, value,
};
use std::net::SocketAddr;
use thunderhead_coordinator::Options;
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{
    BackupInfo, Empty, Enlist, Enlisted, Followed, ForgetServer, Known, Register, Registered,
    ServerState, Settings,
};
use thunderhead_wire::{ClusterId, Format, Generation, ServerId, Status};

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
    let register = |known| registration(Some(known), 1);
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
