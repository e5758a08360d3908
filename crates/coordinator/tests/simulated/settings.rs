//! Settings that change while the cluster runs, and the coordinator's word for a master.

use crate::scenarios::status;
use crate::world::{World, options};
use thunderhead_rpc::Opcode;
use thunderhead_wire::Status;
use thunderhead_wire::control::{ChangeSettings, Empty, OfMaster, Settings};

fn change(world: &mut World, min_replicas: u32) -> Result<u32, Status> {
    let message = ChangeSettings { min_replicas: Some(min_replicas) };
    let changed: Result<Settings, Status> = world.ask(Opcode::ChangeSettings, &message);
    changed.map(|it| it.min_replicas)
}

#[test]
fn min_replicas_is_written_and_told_to_all_servers_and_outlasts_the_leader() {
    let mut world = World::new(31, 2, 3, &options());
    world.until_all_are_there();
    assert_eq!(change(&mut world, 2), Ok(2));
    let all_know = |world: &World, wanted: u32| {
        world.servers.iter().all(|(_, it)| it.borrow().list.min_replicas == Some(wanted))
    };
    world.until("all are told", |world| all_know(world, 2));
    world.change_leader();
    world.until("another one leads", |world| world.leader().is_some());
    let now = status(&mut world);
    assert_eq!((now.settings.min_replicas, now.remarks), (2, Vec::new()), "it is no contradiction");
    assert_eq!(change(&mut world, 1), Ok(1));
    world.until("all are told", |world| all_know(world, 1));
    let version = status(&mut world).servers.version;
    assert_eq!(change(&mut world, 1), Ok(1));
    assert_eq!(status(&mut world).servers.version, version, "nothing has changed");
    for wrong in [0, 3] {
        assert_eq!(change(&mut world, wrong), Err(Status::BadSetting), "of 2 replicas");
    }
}

#[test]
fn a_master_is_confirmed_until_the_verdict() {
    let mut world = World::new(32, 1, 2, &options());
    world.until_all_are_there();
    let master = world.masters(0)[0];
    let confirm = |world: &mut World| world.ask(Opcode::ConfirmMaster, &OfMaster { master });
    assert_eq!(confirm(&mut world), Ok(Empty {}));
    let server = world.servers[0].1.borrow().known.unwrap().server;
    assert!(world.handle().server_failed(server, 1));
    world.until("it is given up", |world| {
        let list = world.handle().servers().unwrap();
        let own = list.servers.iter().find(|it| it.server == server);
        own.is_none_or(|own| !own.shards.iter().any(|it| it.master == master))
    });
    assert_eq!(confirm(&mut world), Err(Status::Deposed));
}
