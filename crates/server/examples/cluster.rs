//! What `cargo xtask sim --cluster` runs: one seed, told in full, or a swarm of them.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to people")]
#![allow(clippy::disallowed_methods, reason = "it times itself")]

#[allow(dead_code, reason = "some of it is for tests of one thing")]
#[path = "../tests/cluster/scenario/mod.rs"]
mod scenario;

use scenario::{Extras, Met, run};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: sim --cluster SEED [--leaving] [--verdicts] [--migrations] | sim --cluster --swarm COUNT [--first SEED] …";

/// How often a seed of a swarm is run again, to see that it is the same.
const REPEATED: u64 = 25;

struct Arguments {
    seed: u64,
    count: Option<u64>,
    extras: Extras,
}

fn arguments() -> Option<Arguments> {
    let mut found = Arguments { seed: 0, count: None, extras: Extras::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--swarm" => found.count = Some(words.next()?.parse().ok()?),
            "--first" => found.seed = words.next()?.parse().ok()?,
            "--verdicts" => found.extras.verdicts = true,
            "--leaving" => found.extras.leaving = true,
            "--migrations" => found.extras.migrations = true,
            seed => found.seed = seed.parse().ok()?,
        }
    }
    Some(found)
}

/// The flags that these come from.
fn flags(extras: Extras) -> String {
    let Extras { migrations, verdicts, leaving } = extras;
    let all = [(migrations, " --migrations"), (verdicts, " --verdicts"), (leaving, " --leaving")];
    all.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag)).collect()
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match arguments.count {
        Some(count) => swarm(&arguments, count),
        None => tell(&arguments),
    }
}

fn tell(Arguments { seed, extras, .. }: &Arguments) -> ExitCode {
    let outcomes = run(*seed, *extras, true);
    for line in &outcomes.trace {
        println!("{line}");
    }
    let again = run(*seed, *extras, false).digest == outcomes.digest;
    println!("seed {seed}: {} operations, digest {:016x}", outcomes.operations, outcomes.digest);
    println!("{:?}", outcomes.met);
    if !again {
        println!("a second run was not the same: something is drawn from outside the seed");
    }
    println!("{}", outcomes.failure.as_deref().unwrap_or("all is well"));
    if again && outcomes.failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn swarm(Arguments { seed: first, extras, .. }: &Arguments, count: u64) -> ExitCode {
    let began = Instant::now();
    let (mut operations, mut answered, mut turns, mut repeated, mut failures) = (0, 0, 0, 0, 0);
    let (mut virtual_time, mut met) = (Duration::ZERO, Met::default());
    for seed in *first..first + count {
        let mut outcomes = run(seed, *extras, false);
        operations += outcomes.operations;
        answered += outcomes.answered;
        turns += outcomes.turns;
        virtual_time += outcomes.virtual_time;
        met += outcomes.met;
        if seed % REPEATED == 0 {
            repeated += 1;
            if run(seed, *extras, false).digest != outcomes.digest {
                outcomes.failure = Some("a second run was not the same".to_owned());
            }
        }
        if (seed + 1 - first).is_multiple_of(500) {
            eprintln!("{} seeds, {failures} failures", seed + 1 - first);
        }
        if let Some(failure) = outcomes.failure {
            failures += 1;
            println!(
                "seed {seed}: {failure}\n  cargo xtask sim --cluster {seed}{}",
                flags(*extras)
            );
        }
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "{count} seeds in {took:.1} s: {operations} operations, {answered} of them answered, {turns} \
         turns, {:.0} s of virtual time; {repeated} runs repeated bit for bit",
        virtual_time.as_secs_f64()
    );
    println!("{met:?}\n{failures} failures");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
