//! Clients whose leases end. Clients pause and lose their connection to the coordinators.
//! Coordinators lose their leadership, stop, and report old maps. Shards crash, and discard the
//! completion records of ended leases. The users' history must be linearizable, and every update
//! done once.

use crate::minding::Minding;
use crate::user::{Seeing, TABLE, User, Verdict, judge, ranges, shard_node};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_client::{MasterId, Session, control::Map};
use thunderhead_log::Recorder;
use thunderhead_net::sim::Link;
use thunderhead_rpc::Node;
use thunderhead_runtime::Random;
use thunderhead_simulator::{Options, swarm};
use thunderhead_testkit::{Cluster, CoordinatorState, Place, Weighted};

const COORDINATORS: usize = 3;

#[derive(Clone, Copy)]
enum Fault {
    CrashShard,
    PauseUser,
    Elect,
    CrashCoordinator,
    CutOffUser,
    PauseShard,
}

const FAULTS: Weighted<Fault> = Weighted(&[
    (1, Fault::CrashShard),
    (2, Fault::PauseUser),
    (1, Fault::Elect),
    (1, Fault::CrashCoordinator),
    (1, Fault::CutOffUser),
    (1, Fault::PauseShard),
]);

fn run(seed: u64) -> Result<(Verdict, u64, u64), String> {
    let mut random = Random::from_seed(seed);
    let link = swarm::drawn_link(&mut random);
    let mut cluster = Cluster::new(Options { link, ..Options::calm(seed) });
    let seeing = Seeing::of(&cluster.simulation);
    cluster.coordinators.replace(CoordinatorState::new(random.within(200..1500)));
    for range in ranges() {
        let backup = Rc::new(RefCell::new(Recorder::new()));
        let (state, time) = (Rc::clone(&cluster.coordinators), Rc::clone(&seeing.time));
        cluster.add_server(move |boot| {
            let (state, time) = (Rc::clone(&state), Rc::clone(&time));
            shard_node(boot, &[range], &backup, |shard| Minding::new(shard, state, time))
        });
    }
    for _ in 0..COORDINATORS {
        cluster.add_scripted_coordinator();
    }
    {
        let it = &mut *cluster.coordinators.borrow_mut();
        it.shards = (1..).map(MasterId).zip(cluster.addresses(Place::Server)).collect();
        let table = it.table(TABLE, "t");
        it.map.tables.push(table);
        if random.chance(0.5) {
            // A former location of the tablets.
            let mut table = it.map.tables[0].clone();
            let addresses = [1, 0].map(|at: usize| table.tablets[at].address);
            table.tablets[0].address = addresses[0];
            table.tablets[1].address = addresses[1];
            it.old_map = Some(Map { version: 0, tables: vec![table], ..Map::default() });
        }
    }
    let addresses = cluster.addresses(Place::Coordinator);
    let users = random.within(1..5);
    for _ in 0..users {
        let (seeing, addresses) = (seeing.clone(), addresses.clone());
        cluster.add_user(move |mut boot| {
            let mut random = boot.world.random.split();
            let session = Session::new(addresses.clone(), random.split());
            let mut user = User::new(session, random, seeing.clone());
            (user.left, user.thinks) = (40, Duration::from_millis(40));
            user.deadline = Duration::from_secs(3);
            Box::new(Node::new(boot.world, boot.transport, user))
        });
    }
    let mut at = Duration::ZERO;
    while at < Duration::from_secs(4) {
        at += Duration::from_nanos(random.exponential(1e8) as u64 + 1);
        plan_fault(&mut cluster, &mut random, &seeing, at);
    }
    cluster.simulation.run_until(Duration::from_secs(7));
    cluster.simulation.network().set_all_links(Link::default());
    for host in [cluster.hosts(Place::Server), cluster.hosts(Place::Coordinator)].concat() {
        cluster.simulation.start(host);
    }
    // A connection notices a lost reset after half a minute of silence.
    cluster.simulation.run_for(Duration::from_secs(150));
    let verdict = judge(&seeing)?;
    let opened = cluster.coordinators.borrow().opened;
    Ok((verdict, opened, users))
}

/// Plans a fault for a time.
fn plan_fault(cluster: &mut Cluster, random: &mut Random, seeing: &Seeing, at: Duration) {
    let a_while = Duration::from_micros(random.magnitude(1_000..2_500_000));
    let shard = cluster.host(usize::from(random.chance(0.5)));
    let user = random.below(cluster.count(Place::User) as u64) as usize;
    let number = random.below(COORDINATORS as u64) as usize;
    let coordinator = cluster.host(Place::Coordinator(number));
    let fault = FAULTS.draw(random);
    let links =
        (0..COORDINATORS).map(|it| cluster.links(Place::User(user), Place::Coordinator(it)));
    let links: Vec<_> = links.collect();
    let user = cluster.host(Place::User(user));
    let simulation = &mut cluster.simulation;
    match fault {
        Fault::CrashShard => {
            simulation.at(at, move |it| it.crash(shard));
            simulation.at(at + a_while / 8, move |it| it.start(shard));
        }
        Fault::PauseUser => simulation.at(at, move |it| it.pause(user, a_while)),
        Fault::Elect => {
            let (state, time) = (Rc::clone(&cluster.coordinators), Rc::clone(&seeing.time));
            simulation.at(at, move |_| {
                let state = &mut *state.borrow_mut();
                state.elect(number, time());
                state.swallows = time() % 4;
            });
        }
        Fault::CrashCoordinator => {
            simulation.at(at, move |it| it.crash(coordinator));
            simulation.at(at + a_while, move |it| it.start(coordinator));
        }
        Fault::CutOffUser => {
            let again = links.clone();
            simulation.at(at, move |it| links.iter().for_each(|link| link.cut(it)));
            simulation.at(at + a_while, move |it| again.iter().for_each(|link| link.mend(it)));
        }
        Fault::PauseShard => simulation.at(at, move |it| it.pause(shard, a_while / 8)),
    }
}

#[test]
fn updates_are_done_once_also_when_leases_end() {
    let (mut answered, mut unknown, mut again) = (0, 0, 0);
    for seed in 0..150 {
        let (it, opened, users) = run(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        answered += it.answered;
        unknown += it.unknown;
        again += opened.saturating_sub(users);
    }
    assert!(answered > 20_000, "{answered}");
    assert!(again > 100, "only {again} leases were opened in place of others");
    assert!(unknown < answered / 20, "{unknown} of {answered} have no answer");
}
