//! Changes of settings in a running cluster, and the confirmation of masters.

use crate::scenarios::status;
use crate::world::{ADDRESS, World, options, stored};
use std::time::Duration;
use thunderhead_coordinator::Options;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_wire::control::{
    ChangeSettings, Empty, KnownFormat, OfMaster, Program, SettingsChanged,
};
use thunderhead_wire::{Format, Generation, Status};

fn change(world: &mut World, min_replicas: u32) -> Result<u32, Status> {
    change_from(world, None, min_replicas)
}

/// Changes the setting if the settings have this version.
fn change_from(world: &mut World, version: Option<u64>, min_replicas: u32) -> Result<u32, Status> {
    let message = ChangeSettings { min_replicas: Some(min_replicas), format: None, version };
    let changed: Result<SettingsChanged, Status> = world.ask(Opcode::ChangeSettings, &message);
    changed.map(|it| it.settings.min_replicas)
}

#[test]
fn min_replicas_reaches_all_servers_and_outlasts_the_leader() {
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
    assert_eq!(
        (now.settings.min_replicas, now.remarks),
        (2, Vec::new()),
        "the changed setting is not reported as a difference"
    );
    assert_eq!(change(&mut world, 1), Ok(1));
    world.until("all are told", |world| all_know(world, 1));
    let version = status(&mut world).servers.version;
    assert_eq!(change(&mut world, 1), Ok(1));
    assert_eq!(status(&mut world).servers.version, version, "a repetition changes nothing");
    for wrong in [0, 3] {
        assert_eq!(change(&mut world, wrong), Err(Status::BadSetting), "of 2 replicas");
    }
}

#[test]
fn a_change_of_settings_that_saw_an_earlier_version_is_refused() {
    let mut world = World::new(35, 2, 2, &options());
    world.until_all_are_there();
    let version = |world: &mut World| status(world).settings_version;
    let first = version(&mut world);
    assert!(first.is_some());
    assert_eq!(change_from(&mut world, first, 2), Ok(2));
    assert_eq!(change_from(&mut world, first, 1), Err(Status::Outdated));
    let second = version(&mut world);
    assert!(second > first);
    world.change_leader();
    world.until("another one leads", |world| world.leader().is_some());
    assert_eq!(version(&mut world), second, "leaders have the same versions");
    assert_eq!(change_from(&mut world, first, 1), Err(Status::Outdated));
    // The setting has this value already. Even so, no earlier request changes it after this answer.
    assert_eq!(change_from(&mut world, second, 2), Ok(2));
    assert_eq!(change_from(&mut world, second, 1), Err(Status::Outdated));
    // The same holds for a format that some programs do not know.
    let third = version(&mut world);
    let unknown = |version| ChangeSettings { format: Some(NEW), min_replicas: Some(1), version };
    let kept: SettingsChanged = world.ask(Opcode::ChangeSettings, &unknown(third)).unwrap();
    assert_eq!((kept.settings.min_replicas, kept.lacking.is_empty()), (2, false));
    let again: Result<SettingsChanged, Status> = world.ask(Opcode::ChangeSettings, &unknown(third));
    assert_eq!(again, Err(Status::Outdated));
    // A client of an earlier version sends none.
    assert_eq!(change(&mut world, 1), Ok(1));
    assert_eq!(change_from(&mut world, third, 2), Err(Status::Outdated));
}

#[test]
fn a_master_is_confirmed_until_the_verdict() {
    let mut world = World::new(32, 1, 2, &options());
    world.until_all_are_there();
    let master = world.masters(0)[0];
    let confirm = |world: &mut World| world.ask(Opcode::ConfirmMaster, &OfMaster { master });
    assert_eq!(confirm(&mut world), Ok(Empty {}));
    let server = world.servers[0].1.borrow().known.unwrap().server;
    assert!(world.handle().server_failed(server, Generation(1)));
    world.until("it is declared crashed", |world| {
        let list = world.handle().servers().unwrap();
        let own = list.servers.iter().find(|it| it.server == server);
        own.is_none_or(|own| !own.shards.iter().any(|it| it.master == master))
    });
    assert_eq!(confirm(&mut world), Err(Status::Deposed));
}

const OLD: Format = Format(1);
const NEW: Format = Format(2);

fn switch(world: &mut World, format: Format) -> Result<SettingsChanged, Status> {
    let message = ChangeSettings { format: Some(format), ..ChangeSettings::default() };
    world.ask(Opcode::ChangeSettings, &message)
}

/// Returns a cluster of the old format whose coordinators all know the new one.
fn begun(seed: u64, coordinators: usize, servers: usize) -> World {
    let mut world = World::new(seed, coordinators, servers, &options());
    world.until_all_are_there();
    for number in 0..coordinators {
        replace_coordinator(&mut world, number, NEW);
    }
    until_former_ones_are_gone(&mut world);
    world
}

/// Waits until the leader knows that coordinators which crashed do not run.
fn until_former_ones_are_gone(world: &mut World) {
    world.simulation.run_for(Duration::from_secs(60));
}

fn replace_coordinator(world: &mut World, number: usize, newest: Format) {
    let seat = world.coordinators[number].clone();
    seat.newest.set(newest);
    world.simulation.crash(seat.host);
    world.simulation.start(seat.host);
    world.until("one of them leads", |world| world.leader().is_some());
}

fn replace_server(world: &mut World, number: usize, newest: Format) {
    let (host, shared) = world.servers[number].clone();
    shared.borrow_mut().newest_format = newest;
    shared.borrow_mut().refused = None;
    shared.borrow_mut().enlisted = None;
    world.simulation.crash(host);
    world.simulation.start(host);
    let is_answered = |world: &World| {
        let server = world.servers[number].1.borrow();
        server.enlisted.is_some() || server.refused.is_some()
    };
    world.until("it is answered", is_answered);
}

#[test]
fn a_format_is_switched_on_when_all_servers_and_coordinators_know_it() {
    let mut world = begun(33, 2, 3);
    // In the order of their ids, as in the answer.
    world.servers.sort_by_key(|(_, it)| it.borrow().known.unwrap().server);
    let ids: Vec<_> =
        world.servers.iter().map(|(_, it)| it.borrow().known.unwrap().server).collect();
    let server = |number: usize| KnownFormat { program: Program::Server(ids[number]), newest: OLD };
    let changed = switch(&mut world, NEW).unwrap();
    assert_eq!((changed.format, changed.lacking), (OLD, (0..3).map(server).collect()));
    replace_server(&mut world, 0, NEW);
    replace_server(&mut world, 1, NEW);
    assert_eq!(switch(&mut world, NEW).unwrap().lacking, [server(2)]);
    // A server that is down would be shut out.
    let (last, _) = world.servers[2];
    world.simulation.crash(last);
    assert!(world.handle().server_failed(ids[2], Generation(1)));
    world.simulation.run_for(Duration::from_millis(500));
    let changed = switch(&mut world, NEW).unwrap();
    assert_eq!((changed.format, changed.lacking), (OLD, vec![server(2)]));
    replace_server(&mut world, 2, NEW);
    // A coordinator that stands by counts too.
    let stands_by = 1 - world.leader().unwrap();
    replace_coordinator(&mut world, stands_by, OLD);
    until_former_ones_are_gone(&mut world);
    let program = Program::Coordinator(ADDRESS.to_owned());
    let lacking = vec![KnownFormat { program, newest: OLD }];
    let changed = switch(&mut world, NEW).unwrap();
    assert_eq!((changed.format, changed.lacking), (OLD, lacking));
    let now = status(&mut world);
    let known = now.programs.iter().map(|it| it.newest.0);
    assert_eq!((now.format, known.sum::<u32>()), (OLD, 2 + 2 + 2 + 2 + 1), "{:?}", now.programs);
    // A coordinator that is gone for good does not count.
    world.simulation.crash(world.coordinators[stands_by].host);
    world.simulation.run_for(Duration::from_secs(60));
    let changed = switch(&mut world, NEW).unwrap();
    assert_eq!((changed.format, changed.lacking), (NEW, Vec::new()));
    world.until("all are told", |world| {
        world.servers.iter().all(|(_, it)| it.borrow().list.format == NEW)
    });
    assert_eq!(switch(&mut world, NEW).unwrap().format, NEW, "a repetition changes nothing");
    assert_eq!(switch(&mut world, OLD), Err(Status::BadSetting), "it never goes back");
    let lacking = switch(&mut world, Format(3)).unwrap().lacking;
    assert_eq!(lacking.len(), 4, "the leader does not know it either: {lacking:?}");
}

#[test]
fn programs_that_do_not_know_the_format_are_refused() {
    let newest = Options { newest_format: NEW, ..options() };
    let mut world = World::new(34, 2, 2, &newest);
    world.until("a coordinator leads", |world| world.leader().is_some());
    world.simulation.run_for(Duration::from_secs(1));
    let refused = |world: &World| world.servers[0].1.borrow().refused;
    let old = CallError::Refused { status: Status::OldProgram, hint: 0, detail: 0 };
    assert_eq!(refused(&world), Some(old), "the cluster was created with the new format");
    for server in 0..2 {
        replace_server(&mut world, server, NEW);
    }
    assert!(world.servers.iter().all(|(_, it)| it.borrow().enlisted.is_some()));
    assert_eq!(status(&mut world).format, NEW);
    // The old coordinator never leads, and reports why.
    let leader = world.leader().unwrap();
    replace_coordinator(&mut world, 1 - leader, OLD);
    world.simulation.crash(world.coordinators[leader].host);
    world.simulation.run_for(Duration::from_secs(20));
    assert_eq!(world.leader(), None);
    let old = world.coordinators[1 - leader].handle.borrow().clone().unwrap().0;
    let remarks = old.remarks();
    assert!(remarks.iter().any(|it| it.contains("format 2")), "{remarks:?}");
    world.simulation.start(world.coordinators[leader].host);
    world.until("the new one leads", |world| world.leader() == Some(leader));
}

#[test]
fn a_standby_with_the_leaders_address_counts_for_a_switch_of_the_format() {
    let mut world = begun(36, 2, 1);
    replace_server(&mut world, 0, NEW);
    let stands_by = 1 - world.leader().unwrap();
    replace_coordinator(&mut world, stands_by, OLD);
    world.simulation.run_for(Duration::from_secs(1));
    let program = Program::Coordinator(ADDRESS.to_owned());
    let old = KnownFormat { program, newest: OLD };
    assert_eq!(switch(&mut world, NEW).unwrap().lacking, [old]);
    // The leader's own value, under the same address, does not hide it either.
    let address = |it: &&KnownFormat| it.program == Program::Coordinator(ADDRESS.to_owned());
    until_former_ones_are_gone(&mut world);
    assert_eq!(status(&mut world).programs.iter().filter(address).count(), 2);
}

#[test]
fn a_coordinator_that_ends_in_order_no_longer_counts() {
    let mut world = World::new(37, 2, 0, &options());
    world.until("a coordinator leads", |world| world.leader().is_some());
    world.simulation.run_for(Duration::from_secs(1));
    let count = |world: &World| stored(&world.store, "coordinators").len();
    assert_eq!(count(&world), 2);
    let stands_by = 1 - world.leader().unwrap();
    let handle = world.coordinators[stands_by].handle.borrow().clone().unwrap().0;
    handle.resign();
    // The leader would delete it much later.
    world.simulation.run_for(Duration::from_secs(11));
    assert!(handle.has_resigned());
    assert_eq!(count(&world), 1);
}
