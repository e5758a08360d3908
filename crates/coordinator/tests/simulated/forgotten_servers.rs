//! The coordinator forgets servers: on request, after a generation without storage, or if they
//! never begin a generation.

use crate::control_plane::{
    ControlPlane, create, enlist_new, formers, options, register, registration, status, stored,
};
use std::time::Duration;
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{Empty, ForgetServer, Registered, ServerState};
use thunderhead_wire::{Generation, ServerId, Status};

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
    let register = registration(Some(known), 1);
    let refused = cluster.ask::<Registered>(Opcode::Register, &register);
    assert_eq!(refused, Err(Status::NoSuchServer));
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
fn a_server_without_storage_is_forgotten_with_its_generation() {
    let mut cluster = ControlPlane::new(22, 1, 1, &options());
    cluster.until_all_are_there();
    for nonce in 100..105 {
        enlist_new(&mut cluster, nonce, None);
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
        register(&mut cluster, nonce);
    }
    assert_eq!(stored(&cluster.store, "servers").len(), 1001);
}
