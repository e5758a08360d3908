//! A leader over an older copy of the metastore, among servers that have followed a later state.

use crate::control_plane::{ControlPlane, create, options, registration, status};
use std::time::Duration;
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{
    Empty, Followed, Known, LeaseOpened, Register, Registered, ReplicaInfo,
};
use thunderhead_wire::{Epoch, Format, MasterId, SegmentId, ServerId, Status};

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
    let register = registration(None, 7);
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
    let register = registration(Some(later), 1);
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
