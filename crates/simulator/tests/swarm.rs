//! The register under faults, from many seeds; and registers that break a promise.

use thunderhead_simulator::register::Flaw;
use thunderhead_simulator::swarm::{self, Outcomes, RareEvents};

fn seeds(flaw: Flaw, count: u64) -> impl Iterator<Item = Outcomes> {
    (0..count).map(move |seed| swarm::run(seed, flaw, false))
}

#[test]
fn the_register_keeps_its_promises_under_all_faults() {
    let mut rare_events = RareEvents::default();
    for outcomes in seeds(Flaw::None, 300) {
        assert_eq!(outcomes.failure, None, "cargo xtask sim {}", outcomes.seed);
        rare_events += outcomes.rare_events;
    }
    assert!(
        rare_events.never_left > 0 && rare_events.no_greeting > 0,
        "the faults are too kind: {rare_events:?}"
    );
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..20 {
        let (first, second) =
            (swarm::run(seed, Flaw::None, false), swarm::run(seed, Flaw::None, true));
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert_eq!(first.history, second.history, "seed {seed}");
        assert!(!second.trace.is_empty());
    }
}

#[test]
fn every_broken_promise_is_found_within_a_thousand_seeds() {
    for flaw in Flaw::ALL {
        let found = seeds(flaw, 1000).find(|outcomes| outcomes.failure.is_some());
        assert!(found.is_some(), "{flaw:?} was not found");
    }
}
