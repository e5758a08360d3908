//! Verdicts: which servers are declared crashed, how soon, and which are not.

use crate::world::{World, options};
use std::collections::BTreeSet;
use std::time::Duration;
use thunderhead_coordinator::{Options, Probing};
use thunderhead_net::sim::Link;
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{CreateTable, Empty, ServerState, TableInfo};
use thunderhead_wire::membership::Suspect;
use thunderhead_wire::{Generation, ServerId, Status};

fn watchful() -> Options {
    Options { probing: Probing::default(), leadership_ttl: Duration::from_secs(10), ..options() }
}

fn world(seed: u64, coordinators: usize, servers: usize, options: &Options) -> World {
    let mut world = World::new(seed, coordinators, servers, options);
    world.until_all_are_there();
    // So that the first probes are over.
    world.simulation.run_for(Duration::from_millis(500));
    world
}

/// Returns a server's id and present generation.
fn id(world: &World, server: usize) -> (ServerId, Generation) {
    let server = world.servers[server].1.borrow();
    (server.known.unwrap().server, server.enlisted.as_ref().unwrap().generation)
}

/// Returns the servers that are down by the leader's list, or none while there is no leader.
fn down(world: &World) -> Vec<ServerId> {
    if world.leader().is_none() {
        return Vec::new();
    }
    let servers = world.handle().servers().unwrap_or_default().servers;
    servers.iter().filter(|it| it.state == ServerState::Down).map(|it| it.server).collect()
}

/// Returns the time until so many servers are down.
fn until_down(world: &mut World, count: usize) -> Duration {
    let begin = world.simulation.now();
    world.until("they are declared crashed", |world| down(world).len() == count);
    world.simulation.now() - begin
}

fn remarks(world: &mut World) -> String {
    let status: thunderhead_wire::control::ClusterStatus =
        world.ask(Opcode::ClusterStatus, &Empty {}).unwrap();
    status.remarks.join("\n")
}

#[test]
fn a_server_whose_process_crashed_is_declared_crashed_and_its_tablets_recover() {
    let mut world = world(1, 1, 3, &watchful());
    let table = CreateTable { name: "t".into(), server_span: 6 };
    world.ask::<TableInfo>(Opcode::CreateTable, &table).unwrap();
    let (server, _) = id(&world, 1);
    world.simulation.crash(world.servers[1].0);
    let took = until_down(&mut world, 1);
    // Only the coordinator probes here: each of three servers is probed within five intervals.
    assert!(took < Duration::from_millis(700), "{took:?}");
    assert_eq!(down(&world), [server]);
    let said = remarks(&mut world);
    assert!(said.contains("no process listens") && said.contains("was declared crashed"), "{said}");
    world.until("all is served again", |world| {
        let map = world.handle().map().unwrap();
        map.tables[0].tablets.iter().all(|tablet| tablet.address.is_some())
    });
    // It restarts.
    let host = world.servers[1].0;
    world.simulation.start(host);
    world.until("it is up again", |world| down(world).is_empty());
    assert_eq!(remarks(&mut world), "");
}

#[test]
fn a_silent_server_is_declared_crashed_a_little_later() {
    let mut world = world(2, 1, 3, &watchful());
    world.servers[0].1.borrow_mut().is_deaf = true;
    let took = until_down(&mut world, 1);
    assert!(took > Duration::from_millis(250), "it had its chance: {took:?}");
    assert!(took < Duration::from_millis(1100), "{took:?}");
    assert_eq!(down(&world), [id(&world, 0).0]);
    let said = remarks(&mut world);
    assert!(said.contains("no answer to 3 probes"), "{said}");
}

#[test]
fn a_report_is_checked_at_once() {
    // The coordinator itself probes hardly ever.
    let probing = Probing { interval: Duration::from_secs(3600), ..Probing::default() };
    let mut world = world(3, 1, 3, &Options { probing, ..watchful() });
    let ((server, generation), by) = (id(&world, 0), id(&world, 1));
    let suspect = |by| Suspect { server, generation, by, why: "no answer".into() };
    // The server is up.
    world.ask::<Empty>(Opcode::Suspect, &suspect(by)).unwrap();
    world.simulation.run_for(Duration::from_secs(2));
    assert_eq!(down(&world), []);
    // The server is down.
    world.simulation.crash(world.servers[0].0);
    world.simulation.run_for(Duration::from_secs(2));
    assert_eq!(down(&world), []);
    world.ask::<Empty>(Opcode::Suspect, &suspect(by)).unwrap();
    let took = until_down(&mut world, 1);
    assert!(took < Duration::from_millis(100), "{took:?}");
    let said = remarks(&mut world);
    assert!(said.contains(&format!("{} says: no answer", by.0)), "{said}");
    // A reporting server that was declared crashed learns that.
    let (server, generation) = by;
    let by = id(&world, 0);
    let late = Suspect { server, generation, by, why: String::new() };
    assert_eq!(world.ask::<Empty>(Opcode::Suspect, &late), Err(Status::Deposed));
    world.simulation.run_for(Duration::from_secs(1));
    assert_eq!(down(&world).len(), 1);
}

#[test]
fn servers_that_crash_together_are_declared_crashed_together() {
    let mut world = world(4, 1, 9, &watchful());
    for server in 3..9 {
        world.simulation.crash(world.servers[server].0);
    }
    let first = until_down(&mut world, 1);
    let all = first + until_down(&mut world, 6);
    // Each is probed within seventeen intervals, by the coordinator alone.
    assert!(all < Duration::from_millis(2300), "{first:?} {all:?}");
}

#[test]
fn a_coordinator_that_stood_still_declares_no_server_crashed() {
    for seed in 5..15 {
        let mut world = world(seed, 1, 4, &watchful());
        let host = world.coordinators[0].host;
        for millis in [80, 130, 170, 220, 280, 350, 600, 2500] {
            world.simulation.pause(host, Duration::from_millis(millis));
            world.simulation.run_for(Duration::from_millis(millis + 37 * seed));
            assert_eq!(down(&world), [], "after {millis} ms, seed {seed}");
        }
        world.simulation.run_for(Duration::from_secs(1));
        assert_eq!(down(&world), [], "seed {seed}");
    }
}

#[test]
fn a_coordinator_that_is_cut_off_declares_no_server_crashed_and_says_why() {
    let mut world = world(15, 1, 3, &watchful());
    let at = |host| world.simulation.address(host);
    let here = at(world.coordinators[0].host);
    let others: Vec<_> = world.servers.iter().map(|(host, _)| at(*host)).collect();
    let set = |world: &World, link: Link| {
        for other in &others {
            world.simulation.network().set_link(here, *other, link);
            world.simulation.network().set_link(*other, here, link);
        }
    };
    set(&world, Link { blocked: true, ..Link::default() });
    world.simulation.run_for(Duration::from_secs(10));
    assert_eq!(down(&world), []);
    let said = remarks(&mut world);
    assert!(said.contains("is not declared crashed: no other server answers"), "{said}");
    set(&world, Link::default());
    world.simulation.run_for(Duration::from_secs(30));
    assert_eq!(down(&world), []);
    assert_eq!(remarks(&mut world), "");
}

/// The coordinator hears only the server on its own machine.
#[test]
fn one_answering_server_is_not_enough_to_declare_all_others_crashed() {
    for seed in 27..32 {
        let mut world = world(seed, 1, 5, &watchful());
        let here = world.simulation.address(world.coordinators[0].host);
        let others: Vec<_> =
            world.servers[1..].iter().map(|it| world.simulation.address(it.0)).collect();
        let set = |world: &World, blocked: bool| {
            for other in &others {
                let link = Link { blocked, ..Link::default() };
                world.simulation.network().set_link(here, *other, link);
                world.simulation.network().set_link(*other, here, link);
            }
        };
        set(&world, true);
        for _ in 0..10 {
            world.simulation.run_for(Duration::from_secs(1));
            assert_eq!(down(&world), [], "seed {seed}");
        }
        let said = remarks(&mut world);
        assert!(said.contains("only 1 of 4 other servers"), "{said}");
        set(&world, false);
        world.simulation.run_for(Duration::from_secs(30));
        assert_eq!(down(&world), []);
        assert_eq!(remarks(&mut world), "");
    }
}

#[test]
fn two_of_five_servers_that_fall_silent_together_are_declared_crashed() {
    for seed in 32..37 {
        let mut world = world(seed, 1, 5, &watchful());
        for number in [1, 3] {
            world.servers[number].1.borrow_mut().is_deaf = true;
        }
        let took = until_down(&mut world, 2);
        assert!(took < Duration::from_millis(1600), "{took:?}");
        world.simulation.run_for(Duration::from_secs(5));
        let silent: BTreeSet<_> = [1, 3].map(|number| id(&world, number).0).into();
        assert_eq!(down(&world).into_iter().collect::<BTreeSet<_>>(), silent);
    }
}

#[test]
fn a_verdict_takes_longer_if_probes_have_more_time() {
    let probing = Probing { timeout: Duration::from_millis(600), ..Probing::default() };
    let mut world = world(37, 1, 3, &Options { probing, ..watchful() });
    world.servers[0].1.borrow_mut().is_deaf = true;
    let took = until_down(&mut world, 1);
    assert!(took > Duration::from_millis(1800), "{took:?}");
    assert!(took < Duration::from_millis(2400), "{took:?}");
}

#[test]
fn the_only_server_is_not_declared_crashed_for_its_silence() {
    let mut world = world(16, 1, 1, &watchful());
    world.servers[0].1.borrow_mut().is_deaf = true;
    world.simulation.run_for(Duration::from_secs(5));
    assert_eq!(down(&world), []);
    world.servers[0].1.borrow_mut().is_deaf = false;
    world.simulation.crash(world.servers[0].0);
    world.simulation.run_for(Duration::from_secs(5));
    assert_eq!(down(&world), []);
    // Another server starts, and then the coordinator can decide.
    world.add_server(2);
    let took = until_down(&mut world, 1);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_new_leader_declares_a_server_crashed_that_crashed_under_the_old_one() {
    for seed in 17..22 {
        let mut world =
            world(seed, 2, 3, &Options { leadership_ttl: Duration::from_secs(1), ..watchful() });
        let (server, _) = id(&world, 2);
        world.servers[2].1.borrow_mut().is_deaf = true;
        // During the check.
        world.simulation.run_for(Duration::from_millis(60 * (seed - 16)));
        let old = world.coordinators[world.leader().unwrap()].host;
        world.simulation.crash(old);
        world.until("it is declared crashed", |world| down(world) == [server]);
        assert!(world.simulation.is_running(old) || world.leader().is_some());
        world.simulation.start(old);
        world.simulation.run_for(Duration::from_secs(5));
        assert_eq!(down(&world), [server]);
    }
}

#[test]
fn slow_networks_and_slow_starts_do_not_count_as_silence() {
    for seed in 22..26 {
        let mut world = World::new(seed, 1, 3, &watchful());
        // All answers are late, even those to the servers' first requests.
        let link = Link {
            delay: Duration::from_millis(30),
            jitter: Duration::from_millis(5),
            ..Link::default()
        };
        world.simulation.network().set_all_links(link);
        world.until_all_are_there();
        for _ in 0..60 {
            world.simulation.run_for(Duration::from_secs(1));
            assert_eq!(down(&world), [], "seed {seed}");
        }
    }
}

#[test]
fn with_probes_switched_off_no_server_is_declared_crashed() {
    let mut world = world(26, 1, 2, &options());
    let ((server, generation), by) = (id(&world, 0), id(&world, 1));
    world.simulation.crash(world.servers[0].0);
    let suspect = Suspect { server, generation, by, why: "no answer".into() };
    world.ask::<Empty>(Opcode::Suspect, &suspect).unwrap();
    world.simulation.run_for(Duration::from_secs(10));
    assert_eq!(down(&world), []);
}

#[test]
fn a_coordinator_without_descriptors_declares_no_server_crashed_that_it_cannot_probe() {
    for seed in 60..65 {
        let mut world = world(seed, 1, 4, &watchful());
        let network = world.simulation.network().clone();
        let coordinator = world.simulation.address(world.coordinators[0].host);
        let server = world.simulation.address(world.servers[1].0);
        // Its connections to all others stay, so there are enough witnesses.
        network.set_exhausted(coordinator, true);
        network.break_connections(coordinator, server);
        world.simulation.run_for(Duration::from_secs(5));
        assert_eq!(down(&world), [], "seed {seed}");
        let said = remarks(&mut world);
        assert!(said.contains("no descriptors"), "{said}");
        network.set_exhausted(coordinator, false);
        world.simulation.run_for(Duration::from_secs(1));
        assert_eq!(remarks(&mut world), "", "seed {seed}");
        // A crashed server is noticed again.
        world.simulation.crash(world.servers[1].0);
        until_down(&mut world, 1);
    }
}
