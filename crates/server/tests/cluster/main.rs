//! The whole cluster in the simulator: see `scenario`. `cargo xtask sim --cluster SEED` tells all
//! about a seed, `cargo xtask sim --cluster --swarm COUNT` runs many.

mod scenario;

use scenario::{Extras, Met, run};

/// Runs seeds; says what all of them came to.
fn all_are_well(seeds: impl Iterator<Item = u64>) -> Met {
    let mut met = Met::default();
    for seed in seeds {
        let outcomes = run(seed, Extras::default(), false);
        if let Some(failure) = outcomes.failure {
            panic!("seed {seed}: {failure}\n  cargo xtask sim --cluster {seed}");
        }
        met += outcomes.met;
    }
    met
}

#[test]
fn a_cluster_among_faults_keeps_what_it_acknowledged_and_serves_again() {
    let met = all_are_well(0..12);
    assert!(met.restarts > 10 && met.walks > 10 && met.splits > 5 && met.made > 5, "{met:?}");
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in [1, 5] {
        let runs = [(); 2].map(|()| run(seed, Extras::default(), false));
        assert_eq!(runs[0].digest, runs[1].digest, "seed {seed}");
        assert_eq!(runs[0].operations, runs[1].operations, "seed {seed}");
    }
}
