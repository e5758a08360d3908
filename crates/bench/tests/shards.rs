//! Experiments that run their own shards. They are not unit tests, because some unit tests check
//! the memory of their process.

use clap::ValueEnum;
use thunderhead_bench::instructions::{self, Operation};
use thunderhead_bench::polling::{self, Arguments};
use thunderhead_bench::rpc::price::SETTINGS;

#[test]
fn every_counted_operation_gets_the_right_answer() {
    let run = |operation, objects| {
        instructions::run(&instructions::Arguments { operation: Some(operation), objects })
    };
    for operation in Operation::value_variants() {
        run(*operation, 140).unwrap();
    }
    assert!(run(Operation::Read, 71).is_err());
    assert!(run(Operation::Read, 0).is_err());
}

fn arguments() -> Arguments {
    let (clients, pause_us, plot) = (vec![1, 3], 0, None);
    Arguments { clients, pause_us, seconds: 0.02, rounds: 2, quick: false, json: false, plot }
}

#[test]
fn every_setting_is_measured_with_every_number_of_clients() {
    let all = polling::measure(&arguments()).unwrap();
    assert_eq!(all.len(), 2 * SETTINGS.len() * 2);
    for it in &all {
        assert!(it.reads > 0.0 && it.median_us > 0.0 && it.p99_us >= it.median_us, "{it:?}");
    }
    let places: Vec<usize> = all.iter().map(|it| it.clients).collect();
    assert!(places.chunks(2).all(|pair| pair == [1, 3]), "{places:?}");
    assert!(polling::draw(&all).iter().all(|panel| panel.series.len() == 6));
}

#[test]
fn invalid_options_are_refused() {
    let wrong = [
        Arguments { clients: vec![], ..arguments() },
        Arguments { clients: vec![0], ..arguments() },
        Arguments { rounds: 0, ..arguments() },
        Arguments { seconds: f64::NAN, ..arguments() },
        Arguments { pause_us: u64::MAX, ..arguments() },
    ];
    assert!(wrong.iter().all(|it| it.check().is_err()));
    arguments().check().unwrap();
}
