//! Clients whose leases end. Clients pause and lose their connection to the coordinators.
//! Coordinators lose their leadership, stop, and report old maps. Shards crash, and discard the
//! completion records of ended leases. The users' history must be linearizable, and every update
//! done once.

use crate::fake::{Cluster, Coordinator, Minding};
use crate::user::{PORT, Seeing, TABLE, User, Verdict, judge, ranges, shard_node};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_client::{MasterId, Session, control::Map};
use thunderhead_log::Recorder;
use thunderhead_net::sim::{Link, address};
use thunderhead_rpc::Node;
use thunderhead_runtime::Random;
use thunderhead_simulator::{Options, Simulation, swarm};

const COORDINATORS: usize = 3;

fn run(seed: u64) -> Result<(Verdict, u64, u64), String> {
    let mut random = Random::from_seed(seed);
    let link = swarm::drawn_link(&mut random);
    let mut simulation = Simulation::new(Options { link, ..Options::calm(seed) });
    let seeing = Seeing::of(&simulation);
    let cluster = Rc::new(RefCell::new(Cluster::new(random.within(200..1500))));
    let shards: Vec<_> = ranges()
        .into_iter()
        .map(|range| {
            let backup = Rc::new(RefCell::new(Recorder::new()));
            let (cluster, time) = (Rc::clone(&cluster), Rc::clone(&seeing.time));
            simulation.add_host("shard", move |boot| {
                let (cluster, time) = (Rc::clone(&cluster), Rc::clone(&time));
                shard_node(boot, &[range], &backup, |shard| Minding::new(shard, cluster, time))
            })
        })
        .collect();
    let coordinators: Vec<_> = (0..COORDINATORS)
        .map(|number| {
            let (cluster, time) = (Rc::clone(&cluster), Rc::clone(&seeing.time));
            simulation.add_host("coordinator", move |boot| {
                let (cluster, time) = (Rc::clone(&cluster), Rc::clone(&time));
                let service = Coordinator { number, cluster, time };
                let mut node = Node::new(boot.world, boot.transport, service);
                node.listen(SocketAddr::new(boot.address, PORT)).unwrap();
                Box::new(node)
            })
        })
        .collect();
    {
        let it = &mut *cluster.borrow_mut();
        let at = |(number, host)| (MasterId(number), address(simulation.address(host), PORT));
        it.shards = (1..).zip(shards.iter().copied()).map(at).collect();
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
    let addresses: Vec<SocketAddr> =
        coordinators.iter().map(|host| address(simulation.address(*host), PORT)).collect();
    let users: Vec<_> = (0..random.within(1..5))
        .map(|number| {
            let (seeing, addresses) = (seeing.clone(), addresses.clone());
            simulation.add_host(&format!("user {number}"), move |mut boot| {
                let mut random = boot.world.random.split();
                let session = Session::new(addresses.clone(), random.split());
                let mut user = User::new(session, random, seeing.clone());
                (user.left, user.thinks) = (40, Duration::from_millis(40));
                user.deadline = Duration::from_secs(3);
                Box::new(Node::new(boot.world, boot.transport, user))
            })
        })
        .collect();
    let mut at = Duration::ZERO;
    while at < Duration::from_secs(4) {
        at += Duration::from_nanos(random.exponential(1e8) as u64 + 1);
        let a_while = Duration::from_micros(random.magnitude(1_000..2_500_000));
        let shard = shards[usize::from(random.chance(0.5))];
        let user = *random.pick(&users).unwrap();
        let number = random.below(COORDINATORS as u64) as usize;
        let coordinator = coordinators[number];
        match random.below(7) {
            0 => {
                simulation.at(at, move |it| it.crash(shard));
                simulation.at(at + a_while / 8, move |it| it.start(shard));
            }
            1 | 2 => simulation.at(at, move |it| it.pause(user, a_while)),
            3 => {
                let (cluster, time) = (Rc::clone(&cluster), Rc::clone(&seeing.time));
                simulation.at(at, move |_| {
                    let cluster = &mut *cluster.borrow_mut();
                    cluster.elect(number, time());
                    cluster.swallows = time() % 4;
                });
            }
            4 => {
                simulation.at(at, move |it| it.crash(coordinator));
                simulation.at(at + a_while, move |it| it.start(coordinator));
            }
            5 => {
                let addresses: Vec<_> =
                    coordinators.iter().map(|host| simulation.address(*host)).collect();
                let own = simulation.address(user);
                let set = move |it: &Simulation, link: Link| {
                    for other in &addresses {
                        it.network().set_link(own, *other, link);
                        it.network().set_link(*other, own, link);
                    }
                };
                let again = set.clone();
                simulation.at(at, move |it| set(it, Link { blocked: true, ..link }));
                simulation.at(at + a_while, move |it| again(it, link));
            }
            _ => simulation.at(at, move |it| it.pause(shard, a_while / 8)),
        }
    }
    simulation.run_until(Duration::from_secs(7));
    simulation.network().set_all_links(Link::default());
    shards.iter().chain(&coordinators).for_each(|host| simulation.start(*host));
    // A connection notices a lost reset after half a minute of silence.
    simulation.run_for(Duration::from_secs(150));
    let verdict = judge(&seeing)?;
    let cluster = cluster.borrow();
    Ok((verdict, cluster.opened, users.len() as u64))
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
