//! The whole cluster in the simulator: see `scenario`. `cargo xtask sim --cluster SEED` shows the
//! run of one seed, `cargo xtask sim --cluster --swarm COUNT` runs many seeds.

mod detection;
mod groups;
mod leaving;
mod scenario;
mod shortages;
mod upgrade;

use scenario::scale::{self, Size};
use scenario::{Extras, RareEvents, run};
use std::time::Duration;

/// Runs seeds, and returns the sums of their counts. Panics at the first failure.
fn all_are_well(seeds: impl Iterator<Item = u64>, extras: Extras) -> RareEvents {
    let mut rare_events = RareEvents::default();
    for seed in seeds {
        let outcomes = run(seed, extras, false);
        if let Some(failure) = outcomes.failure {
            let (operations, turns) = (outcomes.operations, outcomes.turns);
            let at = outcomes.virtual_time;
            panic!(
                "seed {seed}, {operations} operations, {turns} turns, {at:?}: {failure}\n  cargo xtask sim --cluster {seed}{extras}"
            );
        }
        rare_events += outcomes.rare_events;
    }
    rare_events
}

#[test]
fn a_cluster_among_faults_keeps_what_it_acknowledged_and_serves_again() {
    let rare_events = all_are_well(0..40, Extras::default());
    assert!(
        rare_events.restarts > 50 && rare_events.left > 5 && rare_events.walks > 100,
        "{rare_events:?}"
    );
    assert!(rare_events.splits > 50 && rare_events.made > 50, "{rare_events:?}");
}

/// `cargo xtask sim --cluster --scale` runs a large cluster.
#[test]
fn a_cluster_of_many_tablets_serves_again_soon_after_all_processes_ended() {
    let size = Size { servers: 12, tables: 40 };
    let figures = scale::run(1, size).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(figures.tablets, 12 * 40);
    assert!(figures.cold < Duration::from_secs(20), "{figures}");
    assert!(figures.longest <= scale::MESSAGE_BYTES_MAX, "{figures}");
}

#[test]
fn acknowledged_writes_survive_servers_that_leave_in_order() {
    // Two of these seeds lost acknowledged writes when the shard with the backup left before
    // another shard of its process, which still used that backup.
    let leaving = Extras { leaving: true, ..Extras::default() };
    let rare_events = all_are_well([8, 11, 15].into_iter(), leaving);
    assert!(rare_events.left > 30, "{rare_events:?}");
}

#[test]
fn two_clusters_that_exchange_addresses_stay_separate() {
    let clusters = Extras { clusters: true, ..Extras::default() };
    all_are_well(0..8, clusters);
    let runs = [(); 2].map(|()| run(3, clusters, false).digest);
    assert_eq!(runs[0], runs[1]);
}

#[test]
fn clients_of_redis_lose_nothing_that_a_server_among_faults_acknowledged() {
    let redis = Extras { redis: true, ..Extras::default() };
    let rare_events = all_are_well(0..12, redis);
    assert!(rare_events.restarts > 10, "{rare_events:?}");
    let runs = [(); 2].map(|()| run(5, redis, false).digest);
    assert_eq!(runs[0], runs[1]);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in [1, 5, 7] {
        let runs = [(); 2].map(|()| run(seed, Extras::default(), true));
        assert_eq!(runs[0].digest, runs[1].digest, "seed {seed}");
        assert!(runs[0].trace == runs[1].trace && runs[0].answered > 0, "seed {seed}");
    }
}
