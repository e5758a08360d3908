//! Verdicts: which servers are declared crashed, how soon, and which are not.

use crate::control_plane::{ControlPlane, options};
use std::collections::BTreeSet;
use std::time::Duration;
use thunderhead_coordinator::{Options, Probing};
use thunderhead_net::sim::Link;
use thunderhead_rpc::Opcode;
use thunderhead_testkit::Place;
use thunderhead_wire::control::{CreateTable, Empty, ServerState, TableInfo};
use thunderhead_wire::membership::Suspect;
use thunderhead_wire::{Generation, ServerId, Status};

fn watchful() -> Options {
    Options { probing: Probing::default(), leadership_ttl: Duration::from_secs(10), ..options() }
}

fn cluster(seed: u64, coordinators: usize, servers: usize, options: &Options) -> ControlPlane {
    let mut cluster = ControlPlane::new(seed, coordinators, servers, options);
    cluster.until_all_are_there();
    // So that the first probes are over.
    cluster.simulation.run_for(Duration::from_millis(500));
    cluster
}

/// Returns a server's id and present generation.
fn id(cluster: &ControlPlane, server: usize) -> (ServerId, Generation) {
    let server = cluster.servers[server].borrow();
    (server.known.unwrap().server, server.enlisted.as_ref().unwrap().generation)
}

/// Returns the servers that are down by the leader's list, or none while there is no leader.
fn down(cluster: &ControlPlane) -> Vec<ServerId> {
    if cluster.leader().is_none() {
        return Vec::new();
    }
    let servers = cluster.handle().servers().unwrap_or_default().servers;
    servers.iter().filter(|it| it.state == ServerState::Down).map(|it| it.server).collect()
}

/// Returns the time until so many servers are down.
fn until_down(cluster: &mut ControlPlane, count: usize) -> Duration {
    let begin = cluster.simulation.now();
    cluster.until("they are declared crashed", |cluster| down(cluster).len() == count);
    cluster.simulation.now() - begin
}

fn remarks(cluster: &mut ControlPlane) -> String {
    let status: thunderhead_wire::control::ClusterStatus =
        cluster.ask(Opcode::ClusterStatus, &Empty {}).unwrap();
    status.remarks.join("\n")
}

#[test]
fn a_server_whose_process_crashed_is_declared_crashed_and_its_tablets_recover() {
    let mut cluster = cluster(1, 1, 3, &watchful());
    let table = CreateTable::spread("t", 6);
    cluster.ask::<TableInfo>(Opcode::CreateTable, &table).unwrap();
    let (server, _) = id(&cluster, 1);
    cluster.server(1).kill();
    let took = until_down(&mut cluster, 1);
    // Only the coordinator probes here: each of three servers is probed within five intervals.
    assert!(took < Duration::from_millis(700), "{took:?}");
    assert_eq!(down(&cluster), [server]);
    let said = remarks(&mut cluster);
    assert!(said.contains("no process listens") && said.contains("was declared crashed"), "{said}");
    cluster.until("all is served again", |cluster| {
        let map = cluster.handle().map().unwrap();
        map.tables[0].tablets.iter().all(|tablet| tablet.address.is_some())
    });
    // It restarts.
    cluster.server(1).restart();
    cluster.until("it is up again", |cluster| down(cluster).is_empty());
    assert_eq!(remarks(&mut cluster), "");
}

#[test]
fn a_silent_server_is_declared_crashed_a_little_later() {
    let mut cluster = cluster(2, 1, 3, &watchful());
    cluster.servers[0].borrow_mut().is_deaf = true;
    let took = until_down(&mut cluster, 1);
    assert!(took > Duration::from_millis(250), "it had its chance: {took:?}");
    assert!(took < Duration::from_millis(1100), "{took:?}");
    assert_eq!(down(&cluster), [id(&cluster, 0).0]);
    let said = remarks(&mut cluster);
    assert!(said.contains("no answer to 3 probes"), "{said}");
}

#[test]
fn a_report_is_checked_at_once() {
    // The coordinator itself probes hardly ever.
    let probing = Probing { interval: Duration::from_secs(3600), ..Probing::default() };
    let mut cluster = cluster(3, 1, 3, &Options { probing, ..watchful() });
    let ((server, generation), by) = (id(&cluster, 0), id(&cluster, 1));
    let suspect = |by| Suspect { server, generation, by, why: "no answer".into() };
    // The server is up.
    cluster.ask::<Empty>(Opcode::Suspect, &suspect(by)).unwrap();
    cluster.simulation.run_for(Duration::from_secs(2));
    assert_eq!(down(&cluster), []);
    // The server is down.
    cluster.server(0).kill();
    cluster.simulation.run_for(Duration::from_secs(2));
    assert_eq!(down(&cluster), []);
    cluster.ask::<Empty>(Opcode::Suspect, &suspect(by)).unwrap();
    let took = until_down(&mut cluster, 1);
    assert!(took < Duration::from_millis(100), "{took:?}");
    let said = remarks(&mut cluster);
    assert!(said.contains(&format!("{} says: no answer", by.0)), "{said}");
    // A reporting server that was declared crashed learns that.
    let (server, generation) = by;
    let by = id(&cluster, 0);
    let late = Suspect { server, generation, by, why: String::new() };
    assert_eq!(cluster.ask::<Empty>(Opcode::Suspect, &late), Err(Status::Deposed));
    cluster.simulation.run_for(Duration::from_secs(1));
    assert_eq!(down(&cluster).len(), 1);
}

#[test]
fn servers_that_crash_together_are_declared_crashed_together() {
    let mut cluster = cluster(4, 1, 9, &watchful());
    for server in 3..9 {
        cluster.server(server).kill();
    }
    let first = until_down(&mut cluster, 1);
    let all = first + until_down(&mut cluster, 6);
    // Each is probed within seventeen intervals, by the coordinator alone.
    assert!(all < Duration::from_millis(2300), "{first:?} {all:?}");
}

#[test]
fn a_coordinator_that_stood_still_declares_no_server_crashed() {
    for seed in 5..15 {
        let mut cluster = cluster(seed, 1, 4, &watchful());
        for millis in [80, 130, 170, 220, 280, 350, 600, 2500] {
            cluster.coordinator(0).pause(Duration::from_millis(millis));
            cluster.simulation.run_for(Duration::from_millis(millis + 37 * seed));
            assert_eq!(down(&cluster), [], "after {millis} ms, seed {seed}");
        }
        cluster.simulation.run_for(Duration::from_secs(1));
        assert_eq!(down(&cluster), [], "seed {seed}");
    }
}

#[test]
fn a_coordinator_that_is_cut_off_declares_no_server_crashed_and_says_why() {
    let mut cluster = cluster(15, 1, 3, &watchful());
    (0..3).for_each(|server| cluster.cut(Place::Coordinator(0), server));
    cluster.simulation.run_for(Duration::from_secs(10));
    assert_eq!(down(&cluster), []);
    let said = remarks(&mut cluster);
    assert!(said.contains("is not declared crashed: no other server answers"), "{said}");
    (0..3).for_each(|server| cluster.mend(Place::Coordinator(0), server));
    cluster.simulation.run_for(Duration::from_secs(30));
    assert_eq!(down(&cluster), []);
    assert_eq!(remarks(&mut cluster), "");
}

/// The coordinator hears only the server on its own machine.
#[test]
fn one_answering_server_is_not_enough_to_declare_all_others_crashed() {
    for seed in 27..32 {
        let mut cluster = cluster(seed, 1, 5, &watchful());
        (1..5).for_each(|server| cluster.cut(Place::Coordinator(0), server));
        for _ in 0..10 {
            cluster.simulation.run_for(Duration::from_secs(1));
            assert_eq!(down(&cluster), [], "seed {seed}");
        }
        let said = remarks(&mut cluster);
        assert!(said.contains("only 1 of 4 other servers"), "{said}");
        (1..5).for_each(|server| cluster.mend(Place::Coordinator(0), server));
        cluster.simulation.run_for(Duration::from_secs(30));
        assert_eq!(down(&cluster), []);
        assert_eq!(remarks(&mut cluster), "");
    }
}

#[test]
fn two_of_five_servers_that_fall_silent_together_are_declared_crashed() {
    for seed in 32..37 {
        let mut cluster = cluster(seed, 1, 5, &watchful());
        for number in [1, 3] {
            cluster.servers[number].borrow_mut().is_deaf = true;
        }
        let took = until_down(&mut cluster, 2);
        assert!(took < Duration::from_millis(1600), "{took:?}");
        cluster.simulation.run_for(Duration::from_secs(5));
        let silent: BTreeSet<_> = [1, 3].map(|number| id(&cluster, number).0).into();
        assert_eq!(down(&cluster).into_iter().collect::<BTreeSet<_>>(), silent);
    }
}

#[test]
fn a_verdict_takes_longer_if_probes_have_more_time() {
    let probing = Probing { timeout: Duration::from_millis(600), ..Probing::default() };
    let mut cluster = cluster(37, 1, 3, &Options { probing, ..watchful() });
    cluster.servers[0].borrow_mut().is_deaf = true;
    let took = until_down(&mut cluster, 1);
    assert!(took > Duration::from_millis(1800), "{took:?}");
    assert!(took < Duration::from_millis(2400), "{took:?}");
}

#[test]
fn the_only_server_is_not_declared_crashed_for_its_silence() {
    let mut cluster = cluster(16, 1, 1, &watchful());
    cluster.servers[0].borrow_mut().is_deaf = true;
    cluster.simulation.run_for(Duration::from_secs(5));
    assert_eq!(down(&cluster), []);
    cluster.servers[0].borrow_mut().is_deaf = false;
    cluster.server(0).kill();
    cluster.simulation.run_for(Duration::from_secs(5));
    assert_eq!(down(&cluster), []);
    // Another server starts, and then the coordinator can decide.
    cluster.add_fake_server(2);
    let took = until_down(&mut cluster, 1);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_new_leader_declares_a_server_crashed_that_crashed_under_the_old_one() {
    for seed in 17..22 {
        let mut cluster =
            cluster(seed, 2, 3, &Options { leadership_ttl: Duration::from_secs(1), ..watchful() });
        let (server, _) = id(&cluster, 2);
        cluster.servers[2].borrow_mut().is_deaf = true;
        // During the check.
        cluster.simulation.run_for(Duration::from_millis(60 * (seed - 16)));
        let old = cluster.leader().unwrap();
        cluster.coordinator(old).kill();
        cluster.until("it is declared crashed", |cluster| down(cluster) == [server]);
        let old_host = cluster.host(Place::Coordinator(old));
        assert!(cluster.simulation.is_running(old_host) || cluster.leader().is_some());
        cluster.coordinator(old).restart();
        cluster.simulation.run_for(Duration::from_secs(5));
        assert_eq!(down(&cluster), [server]);
    }
}

#[test]
fn slow_networks_and_slow_starts_do_not_count_as_silence() {
    for seed in 22..26 {
        let mut cluster = ControlPlane::new(seed, 1, 3, &watchful());
        // All answers are late, even those to the servers' first requests.
        let link = Link {
            delay: Duration::from_millis(30),
            jitter: Duration::from_millis(5),
            ..Link::default()
        };
        cluster.simulation.network().set_all_links(link);
        cluster.until_all_are_there();
        for _ in 0..60 {
            cluster.simulation.run_for(Duration::from_secs(1));
            assert_eq!(down(&cluster), [], "seed {seed}");
        }
    }
}

#[test]
fn with_probes_switched_off_no_server_is_declared_crashed() {
    let mut cluster = cluster(26, 1, 2, &options());
    let ((server, generation), by) = (id(&cluster, 0), id(&cluster, 1));
    cluster.server(0).kill();
    let suspect = Suspect { server, generation, by, why: "no answer".into() };
    cluster.ask::<Empty>(Opcode::Suspect, &suspect).unwrap();
    cluster.simulation.run_for(Duration::from_secs(10));
    assert_eq!(down(&cluster), []);
}

#[test]
fn a_coordinator_without_descriptors_declares_no_server_crashed_that_it_cannot_probe() {
    for seed in 60..65 {
        let mut cluster = cluster(seed, 1, 4, &watchful());
        let network = cluster.simulation.network().clone();
        let coordinator = cluster.address(Place::Coordinator(0)).ip();
        let server = cluster.address(1).ip();
        // Its connections to all others stay, so there are enough witnesses.
        network.set_exhausted(coordinator, true);
        network.break_connections(coordinator, server);
        cluster.simulation.run_for(Duration::from_secs(5));
        assert_eq!(down(&cluster), [], "seed {seed}");
        let said = remarks(&mut cluster);
        assert!(said.contains("no descriptors"), "{said}");
        network.set_exhausted(coordinator, false);
        cluster.simulation.run_for(Duration::from_secs(1));
        assert_eq!(remarks(&mut cluster), "", "seed {seed}");
        // A crashed server is noticed again.
        cluster.server(1).kill();
        until_down(&mut cluster, 1);
    }
}
