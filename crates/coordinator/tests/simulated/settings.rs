//! Settings: a cluster keeps those of its creation, or changes them while it runs. Also the
//! confirmation of masters.

use crate::control_plane::{ADDRESS, ControlPlane, options, settings, status, stored};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_coordinator::Options;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_wire::control::{
    ChangeSettings, Empty, KnownFormat, OfMaster, Program, Settings, SettingsChanged,
};
use thunderhead_wire::{Format, Generation, Status};

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

fn change(cluster: &mut ControlPlane, min_replicas: u32) -> Result<u32, Status> {
    change_from(cluster, None, min_replicas)
}

/// Changes the setting if the settings have this version.
fn change_from(
    cluster: &mut ControlPlane,
    version: Option<u64>,
    min_replicas: u32,
) -> Result<u32, Status> {
    let message = ChangeSettings { min_replicas: Some(min_replicas), format: None, version };
    let changed: Result<SettingsChanged, Status> = cluster.ask(Opcode::ChangeSettings, &message);
    changed.map(|it| it.settings.min_replicas)
}

#[test]
fn min_replicas_reaches_all_servers_and_outlasts_the_leader() {
    let mut cluster = ControlPlane::new(31, 2, 3, &options());
    cluster.until_all_are_there();
    assert_eq!(change(&mut cluster, 2), Ok(2));
    let all_know = |cluster: &ControlPlane, wanted: u32| {
        cluster.servers.iter().all(|it| it.borrow().list.min_replicas == Some(wanted))
    };
    cluster.until("all are told", |cluster| all_know(cluster, 2));
    cluster.change_leader();
    cluster.until("another one leads", |cluster| cluster.leader().is_some());
    let now = status(&mut cluster);
    assert_eq!(
        (now.settings.min_replicas, now.remarks),
        (2, Vec::new()),
        "the changed setting is not reported as a difference"
    );
    assert_eq!(change(&mut cluster, 1), Ok(1));
    cluster.until("all are told", |cluster| all_know(cluster, 1));
    let version = status(&mut cluster).servers.version;
    assert_eq!(change(&mut cluster, 1), Ok(1));
    assert_eq!(status(&mut cluster).servers.version, version, "a repetition changes nothing");
    for wrong in [0, 3] {
        assert_eq!(change(&mut cluster, wrong), Err(Status::BadSetting), "of 2 replicas");
    }
}

#[test]
fn a_change_of_settings_that_saw_an_earlier_version_is_refused() {
    let mut cluster = ControlPlane::new(35, 2, 2, &options());
    cluster.until_all_are_there();
    let version = |cluster: &mut ControlPlane| status(cluster).settings_version;
    let first = version(&mut cluster);
    assert!(first.is_some());
    assert_eq!(change_from(&mut cluster, first, 2), Ok(2));
    assert_eq!(change_from(&mut cluster, first, 1), Err(Status::Outdated));
    let second = version(&mut cluster);
    assert!(second > first);
    cluster.change_leader();
    cluster.until("another one leads", |cluster| cluster.leader().is_some());
    assert_eq!(version(&mut cluster), second, "leaders have the same versions");
    assert_eq!(change_from(&mut cluster, first, 1), Err(Status::Outdated));
    // The setting has this value already. Even so, no earlier request changes it after this answer.
    assert_eq!(change_from(&mut cluster, second, 2), Ok(2));
    assert_eq!(change_from(&mut cluster, second, 1), Err(Status::Outdated));
    // The same holds for a format that some programs do not know.
    let third = version(&mut cluster);
    let unknown = |version| ChangeSettings { format: Some(NEW), min_replicas: Some(1), version };
    let kept: SettingsChanged = cluster.ask(Opcode::ChangeSettings, &unknown(third)).unwrap();
    assert_eq!((kept.settings.min_replicas, kept.lacking.is_empty()), (2, false));
    let again: Result<SettingsChanged, Status> =
        cluster.ask(Opcode::ChangeSettings, &unknown(third));
    assert_eq!(again, Err(Status::Outdated));
    // A client of an earlier version sends none.
    assert_eq!(change(&mut cluster, 1), Ok(1));
    assert_eq!(change_from(&mut cluster, third, 2), Err(Status::Outdated));
}

#[test]
fn a_master_is_confirmed_until_the_verdict() {
    let mut cluster = ControlPlane::new(32, 1, 2, &options());
    cluster.until_all_are_there();
    let master = cluster.masters(0)[0];
    let confirm =
        |cluster: &mut ControlPlane| cluster.ask(Opcode::ConfirmMaster, &OfMaster { master });
    assert_eq!(confirm(&mut cluster), Ok(Empty {}));
    let server = cluster.servers[0].borrow().known.unwrap().server;
    assert!(cluster.handle().server_failed(server, Generation(1)));
    cluster.until("it is declared crashed", |cluster| {
        let list = cluster.handle().servers().unwrap();
        let own = list.servers.iter().find(|it| it.server == server);
        own.is_none_or(|own| !own.shards.iter().any(|it| it.master == master))
    });
    assert_eq!(confirm(&mut cluster), Err(Status::Deposed));
}

const OLD: Format = Format::NEWEST;
const NEW: Format = Format(OLD.0 + 1);

fn switch(cluster: &mut ControlPlane, format: Format) -> Result<SettingsChanged, Status> {
    let message = ChangeSettings { format: Some(format), ..ChangeSettings::default() };
    cluster.ask(Opcode::ChangeSettings, &message)
}

/// Returns a cluster of the old format whose coordinators all know the new one.
fn begun(seed: u64, coordinators: usize, servers: usize) -> ControlPlane {
    let mut cluster = ControlPlane::new(seed, coordinators, servers, &options());
    cluster.until_all_are_there();
    for number in 0..coordinators {
        replace_coordinator(&mut cluster, number, NEW);
    }
    until_former_ones_are_gone(&mut cluster);
    cluster
}

/// Waits until the leader knows that coordinators which crashed do not run.
fn until_former_ones_are_gone(cluster: &mut ControlPlane) {
    cluster.simulation.run_for(Duration::from_secs(60));
}

fn replace_coordinator(cluster: &mut ControlPlane, number: usize, newest: Format) {
    cluster.seats[number].newest.set(newest);
    cluster.coordinator(number).kill();
    cluster.coordinator(number).restart();
    cluster.until("one of them leads", |cluster| cluster.leader().is_some());
}

fn replace_server(cluster: &mut ControlPlane, number: usize, newest: Format) {
    let shared = Rc::clone(&cluster.servers[number]);
    shared.borrow_mut().newest_format = newest;
    shared.borrow_mut().refused = None;
    shared.borrow_mut().enlisted = None;
    cluster.server(number).kill();
    cluster.server(number).restart();
    let is_answered = |cluster: &ControlPlane| {
        let server = cluster.servers[number].borrow();
        server.enlisted.is_some() || server.refused.is_some()
    };
    cluster.until("it is answered", is_answered);
}

#[test]
fn a_format_is_switched_on_when_all_servers_and_coordinators_know_it() {
    let mut cluster = begun(33, 2, 3);
    // In the order of their ids, as in the answer.
    let id = |number: &usize| cluster.servers[*number].borrow().known.unwrap().server;
    let mut order = [0, 1, 2];
    order.sort_by_key(id);
    let ids = order.map(|number| id(&number));
    let server = |at: usize| KnownFormat { program: Program::Server(ids[at]), newest: OLD };
    let changed = switch(&mut cluster, NEW).unwrap();
    assert_eq!((changed.format, changed.lacking), (OLD, (0..3).map(server).collect()));
    replace_server(&mut cluster, order[0], NEW);
    replace_server(&mut cluster, order[1], NEW);
    assert_eq!(switch(&mut cluster, NEW).unwrap().lacking, [server(2)]);
    // A server that is down would be shut out.
    cluster.server(order[2]).kill();
    assert!(cluster.handle().server_failed(ids[2], Generation(1)));
    cluster.simulation.run_for(Duration::from_millis(500));
    let changed = switch(&mut cluster, NEW).unwrap();
    assert_eq!((changed.format, changed.lacking), (OLD, vec![server(2)]));
    replace_server(&mut cluster, order[2], NEW);
    // A coordinator that stands by counts too.
    let stands_by = 1 - cluster.leader().unwrap();
    replace_coordinator(&mut cluster, stands_by, OLD);
    until_former_ones_are_gone(&mut cluster);
    let program = Program::Coordinator(ADDRESS.to_owned());
    let lacking = vec![KnownFormat { program, newest: OLD }];
    let changed = switch(&mut cluster, NEW).unwrap();
    assert_eq!((changed.format, changed.lacking), (OLD, lacking));
    let now = status(&mut cluster);
    let known = now.programs.iter().map(|it| it.newest.0);
    assert_eq!((now.format, known.sum::<u32>()), (OLD, 4 * NEW.0 + OLD.0), "{:?}", now.programs);
    // A coordinator that is gone for good does not count.
    cluster.coordinator(stands_by).kill();
    cluster.simulation.run_for(Duration::from_secs(60));
    let changed = switch(&mut cluster, NEW).unwrap();
    assert_eq!((changed.format, changed.lacking), (NEW, Vec::new()));
    cluster.until("all are told", |cluster| {
        cluster.servers.iter().all(|it| it.borrow().list.format == NEW)
    });
    assert_eq!(switch(&mut cluster, NEW).unwrap().format, NEW, "a repetition changes nothing");
    assert_eq!(switch(&mut cluster, OLD), Err(Status::BadSetting), "it never goes back");
    let lacking = switch(&mut cluster, Format(NEW.0 + 1)).unwrap().lacking;
    assert_eq!(lacking.len(), 4, "the leader does not know it either: {lacking:?}");
}

#[test]
fn programs_that_do_not_know_the_format_are_refused() {
    let newest = Options { newest_format: NEW, ..options() };
    let mut cluster = ControlPlane::new(34, 2, 2, &newest);
    cluster.until("a coordinator leads", |cluster| cluster.leader().is_some());
    cluster.simulation.run_for(Duration::from_secs(1));
    let refused = |cluster: &ControlPlane| cluster.servers[0].borrow().refused;
    let old = CallError::Refused { status: Status::OldProgram, hint: 0, detail: 0 };
    assert_eq!(refused(&cluster), Some(old), "the cluster was created with the new format");
    for server in 0..2 {
        replace_server(&mut cluster, server, NEW);
    }
    assert!(cluster.servers.iter().all(|it| it.borrow().enlisted.is_some()));
    assert_eq!(status(&mut cluster).format, NEW);
    // The old coordinator never leads, and reports why.
    let leader = cluster.leader().unwrap();
    replace_coordinator(&mut cluster, 1 - leader, OLD);
    cluster.coordinator(leader).kill();
    cluster.simulation.run_for(Duration::from_secs(20));
    assert_eq!(cluster.leader(), None);
    let old = cluster.seats[1 - leader].handle.borrow().clone().unwrap().0;
    let remarks = old.remarks();
    assert!(remarks.iter().any(|it| it.contains(&NEW.to_string())), "{remarks:?}");
    cluster.coordinator(leader).restart();
    cluster.until("the new one leads", |cluster| cluster.leader() == Some(leader));
}

#[test]
fn a_standby_with_the_leaders_address_counts_for_a_switch_of_the_format() {
    let mut cluster = begun(36, 2, 1);
    replace_server(&mut cluster, 0, NEW);
    let stands_by = 1 - cluster.leader().unwrap();
    replace_coordinator(&mut cluster, stands_by, OLD);
    cluster.simulation.run_for(Duration::from_secs(1));
    let program = Program::Coordinator(ADDRESS.to_owned());
    let old = KnownFormat { program, newest: OLD };
    assert_eq!(switch(&mut cluster, NEW).unwrap().lacking, [old]);
    // The leader's own value, under the same address, does not hide it either.
    let address = |it: &&KnownFormat| it.program == Program::Coordinator(ADDRESS.to_owned());
    until_former_ones_are_gone(&mut cluster);
    assert_eq!(status(&mut cluster).programs.iter().filter(address).count(), 2);
}

#[test]
fn a_coordinator_that_ends_in_order_no_longer_counts() {
    let mut cluster = ControlPlane::new(37, 2, 0, &options());
    cluster.until("a coordinator leads", |cluster| cluster.leader().is_some());
    cluster.simulation.run_for(Duration::from_secs(1));
    let count = |cluster: &ControlPlane| stored(&cluster.store, "coordinators").len();
    assert_eq!(count(&cluster), 2);
    let stands_by = 1 - cluster.leader().unwrap();
    let handle = cluster.seats[stands_by].handle.borrow().clone().unwrap().0;
    handle.resign();
    // The leader would delete it much later.
    cluster.simulation.run_for(Duration::from_secs(11));
    assert!(handle.has_resigned());
    assert_eq!(count(&cluster), 1);
}
