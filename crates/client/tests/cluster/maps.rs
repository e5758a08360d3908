//! Two shards with a half of the table each, on a network that loses, duplicates and delays
//! messages, with pauses, crashes and wrong maps. The users' history must be linearizable, every
//! update done once, and every operation ends by its deadline. There is no coordinator: the lease
//! is fixed, and the test provides the maps.

use crate::user::{Seeing, User, Verdict, judge, ranges, shard_node};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_client::{Core, Session, TabletMap};
use thunderhead_log::Recorder;
use thunderhead_master::Shard;
use thunderhead_net::sim::Link;
use thunderhead_rpc::Node;
use thunderhead_runtime::Random;
use thunderhead_simulator::{Options, swarm};
use thunderhead_testkit::Cluster;
use thunderhead_wire::LeaseId;

fn run(seed: u64) -> Result<Verdict, String> {
    let mut random = Random::from_seed(seed);
    let link = swarm::drawn_link(&mut random);
    let mut cluster = Cluster::new(Options { link, ..Options::calm(seed) });
    for range in ranges() {
        let backup = Rc::new(RefCell::new(Recorder::new()));
        cluster.add_server(move |boot| shard_node(boot, &[range], &backup, |shard: Shard| shard));
    }
    let mut maps = [TabletMap::default(), TabletMap::default()];
    for (number, range) in ranges().into_iter().enumerate() {
        maps[0].insert(range, cluster.address(number));
        // The wrong map has the whole table at the first shard, and sometimes lacks the second
        // half.
        if number == 0 || random.chance(0.5) {
            maps[1].insert(range, cluster.address(0));
        }
    }
    let seeing = Seeing::of(&cluster.simulation);
    for _ in 0..random.within(1..5) {
        let (seeing, maps) = (seeing.clone(), maps.clone());
        cluster.add_user(move |mut boot| {
            let mut random = boot.world.random.split();
            let core = Core::new(LeaseId(1 + random.below(1 << 60)), random.split());
            let session = Session::around(core, random.split());
            let mut user = User::new(session, random, seeing.clone());
            user.maps = Some(maps.clone());
            Box::new(Node::new(boot.world, boot.transport, user))
        });
    }
    let mut at = Duration::ZERO;
    while at < Duration::from_millis(1500) {
        at += Duration::from_nanos(random.exponential(1e8) as u64 + 1);
        let a_while = Duration::from_micros(random.within(100..100_000));
        let shard = cluster.host(usize::from(random.chance(0.5)));
        if random.chance(0.5) {
            cluster.simulation.at(at, move |it| it.crash(shard));
            cluster.simulation.at(at + a_while, move |it| it.start(shard));
        } else {
            cluster.simulation.at(at, move |it| it.pause(shard, a_while));
        }
    }
    cluster.simulation.run_until(Duration::from_millis(2500));
    cluster.simulation.network().set_all_links(Link::default());
    (0..ranges().len()).for_each(|shard| cluster.server(shard).restart());
    cluster.simulation.run_for(Duration::from_secs(40));
    judge(&seeing)
}

#[test]
fn users_see_a_linearizable_store_and_get_answers_by_the_deadline() {
    let (mut answered, mut unknown) = (0, 0);
    for seed in 0..300 {
        let it = run(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(it.overdue, 0, "seed {seed}: operations ended after their deadline");
        answered += it.answered;
        unknown += it.unknown;
    }
    assert!(answered > 20_000, "{answered}");
    assert!(unknown < answered / 20, "{unknown} of {answered} have no answer");
}
