//! The program behind `cargo xtask sim`: runs one seed and prints it in full, or runs a swarm of
//! seeds.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to people")]
#![allow(clippy::disallowed_methods, reason = "it times itself")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use thunderhead_simulator::linearizability::Outcome;
use thunderhead_simulator::register::Flaw;
use thunderhead_simulator::swarm::{self, RareEvents};

const USAGE: &str = "usage: sim SEED [--flaw NAME] | sim --swarm COUNT [--first SEED] [--flaw NAME] [--json]\n\
    flaws: AcknowledgesEarly ShowsUnsynced ForgetsIdentities TrustsFailedSync VersionsGoBack";

struct Arguments {
    seed: u64,
    count: Option<u64>,
    flaw: Flaw,
    json: bool,
}

fn arguments() -> Option<Arguments> {
    let mut found = Arguments { seed: 0, count: None, flaw: Flaw::None, json: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--swarm" => found.count = Some(words.next()?.parse().ok()?),
            "--first" => found.seed = words.next()?.parse().ok()?,
            "--flaw" => {
                let name = words.next()?;
                found.flaw = *Flaw::ALL.iter().find(|flaw| format!("{flaw:?}") == name)?;
            }
            "--json" => found.json = true,
            seed => found.seed = seed.parse().ok()?,
        }
    }
    Some(found)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match arguments.count {
        Some(count) => run_swarm(&arguments, count),
        None => tell(&arguments),
    }
}

/// Prints everything about one seed, and runs it again to check that the run is the same.
fn tell(arguments: &Arguments) -> ExitCode {
    let Arguments { seed, flaw, .. } = *arguments;
    let outcomes = swarm::run(seed, flaw, true);
    for line in &outcomes.trace {
        println!("{line}");
    }
    for operation in &outcomes.history {
        println!("{operation:?}");
    }
    let again = swarm::run(seed, flaw, false).digest == outcomes.digest;
    println!("seed {seed}: {} operations, digest {:016x}", outcomes.history.len(), outcomes.digest);
    if !again {
        println!("a second run was not the same: something is drawn from outside the seed");
    }
    match outcomes.failure {
        None if again => {
            println!("all is well");
            ExitCode::SUCCESS
        }
        failure => {
            println!("{}", failure.unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

fn run_swarm(arguments: &Arguments, count: u64) -> ExitCode {
    let Arguments { seed: first, flaw, json, .. } = *arguments;
    let began = Instant::now();
    let (mut operations, mut answered, mut turns, mut repeated) = (0, 0, 0, 0);
    let mut virtual_time = Duration::ZERO;
    let mut rare_events = RareEvents::default();
    let mut failures: BTreeMap<u64, String> = BTreeMap::new();
    for seed in first..first + count {
        let outcomes = swarm::run(seed, flaw, false);
        operations += outcomes.history.len();
        answered += outcomes.history.iter().filter(|it| it.outcome != Outcome::Unknown).count();
        turns += outcomes.turns;
        virtual_time += outcomes.virtual_time;
        rare_events += outcomes.rare_events;
        if seed % 50 == 0 {
            repeated += 1;
            let again = swarm::run(seed, flaw, false);
            if again.digest != outcomes.digest || again.history != outcomes.history {
                failures.insert(seed, "a second run was not the same".to_owned());
            }
        }
        if let Some(failure) = outcomes.failure {
            failures.insert(seed, failure);
        }
        if (seed + 1 - first) % 1000 == 0 && !json {
            let rate = (seed + 1 - first) as f64 / began.elapsed().as_secs_f64();
            eprintln!(
                "{} seeds, {rate:.0} a second, {} failures",
                seed + 1 - first,
                failures.len()
            );
        }
    }
    let took = began.elapsed().as_secs_f64();
    let ratio = virtual_time.as_secs_f64() / took;
    if json {
        println!(
            "{{\"seeds\":{count},\"failures\":{},\"operations\":{operations},\"answered\":{answered},\"turns\":{turns},\"repeated\":{repeated},\"seconds\":{took},\"times_real_time\":{ratio}}}",
            failures.len()
        );
    } else {
        println!(
            "{count} seeds in {took:.1} s: {operations} operations, {answered} of them answered, \
             {turns} turns, {:.0} s of virtual time ({ratio:.0} times real time); {repeated} runs \
             repeated bit for bit",
            virtual_time.as_secs_f64()
        );
        println!("{rare_events:?}");
        for (seed, failure) in failures.iter().take(10) {
            println!("seed {seed}: {failure}\n  cargo xtask sim {seed}");
        }
        println!("{} failures", failures.len());
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
