//! The program behind `cargo xtask sim --cluster`: runs one seed and prints all its events, or runs
//! a swarm of seeds.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to people")]
#![allow(clippy::disallowed_methods, reason = "it times itself")]

#[allow(dead_code, reason = "only tests use some of it")]
#[path = "../tests/cluster/scenario/mod.rs"]
mod scenario;

use scenario::scale::{self, Size};
use scenario::{Extras, Outcomes, RareEvents, run};
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const USAGE: &str = "usage: sim --cluster SEED [--leaving] [--verdicts] [--migrations] [--scenes] [--clusters] [--redis] | sim --cluster --swarm COUNT [--first SEED] [--until-failure] … | sim --cluster --scale [--servers COUNT] [--tables COUNT]";

/// One in this many seeds of a swarm is run twice, to check that both runs are the same.
const REPEATED: u64 = 25;

struct Arguments {
    seed: u64,
    count: Option<u64>,
    /// The size of a large cluster, if one is to run.
    scale: Option<Size>,
    /// The swarm ends with the first seed that fails.
    until_failure: bool,
    extras: Extras,
}

fn arguments() -> Option<Arguments> {
    let mut found = Arguments {
        seed: 0,
        count: None,
        scale: None,
        until_failure: false,
        extras: Extras::default(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--swarm" => found.count = Some(words.next()?.parse().ok()?),
            "--first" => found.seed = words.next()?.parse().ok()?,
            "--scale" => found.scale = Some(Size::LARGE),
            "--servers" => found.scale.as_mut()?.servers = words.next()?.parse().ok()?,
            "--tables" => found.scale.as_mut()?.tables = words.next()?.parse().ok()?,
            "--until-failure" => found.until_failure = true,
            "--verdicts" => found.extras.verdicts = true,
            "--leaving" => found.extras.leaving = true,
            "--scenes" => found.extras.scenes = true,
            "--redis" => found.extras.redis = true,
            "--clusters" => found.extras.clusters = true,
            "--migrations" => found.extras.migrations = true,
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
    if let Some(size) = arguments.scale {
        return large(arguments.seed, size);
    }
    match arguments.count {
        Some(count) => swarm(&arguments, count),
        None => tell(&arguments),
    }
}

/// Runs a large cluster.
fn large(seed: u64, size: Size) -> ExitCode {
    /// The longest time until everything is served again.
    const LIMIT: Duration = Duration::from_secs(60);
    let figures = match scale::run(seed, size) {
        Ok(figures) => figures,
        Err(why) => {
            println!("{size:?}, seed {seed}: {why}");
            return ExitCode::FAILURE;
        }
    };
    println!("{size:?}, seed {seed}: {figures}");
    let is_soon = figures.cold + figures.coordinator <= LIMIT;
    let is_short = figures.longest <= scale::MESSAGE_BYTES_MAX;
    if is_soon && is_short { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(Arguments { seed, extras, .. }: &Arguments) -> ExitCode {
    let outcomes = run(*seed, *extras, true);
    for line in &outcomes.trace {
        println!("{line}");
    }
    let again = run(*seed, *extras, false).digest == outcomes.digest;
    println!("seed {seed}: {} operations, digest {:016x}", outcomes.operations, outcomes.digest);
    println!("{:?}", outcomes.rare_events);
    if !again {
        println!("a second run was not the same: something is drawn from outside the seed");
    }
    println!("{}", outcomes.failure.as_deref().unwrap_or("all is well"));
    if again && outcomes.failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The sums of a swarm.
#[derive(Default)]
struct Totals {
    seeds: u64,
    operations: usize,
    answered: usize,
    turns: u64,
    virtual_time: Duration,
    repeated: u64,
    rare_events: RareEvents,
    failures: u64,
}

impl Totals {
    fn add(&mut self, seed: u64, extras: Extras, (outcomes, repeated): (Outcomes, bool)) {
        self.seeds += 1;
        self.operations += outcomes.operations;
        self.answered += outcomes.answered;
        self.turns += outcomes.turns;
        self.virtual_time += outcomes.virtual_time;
        self.repeated += u64::from(repeated);
        self.rare_events += outcomes.rare_events;
        if let Some(failure) = outcomes.failure {
            self.failures += 1;
            println!("seed {seed}: {failure}\n  cargo xtask sim --cluster {seed}{extras}");
        }
        if self.seeds.is_multiple_of(500) {
            eprintln!("{} seeds, {} failures", self.seeds, self.failures);
        }
    }
}

/// Runs a seed, some seeds twice. Returns whether it was run twice.
fn run_of_swarm(seed: u64, extras: Extras) -> (Outcomes, bool) {
    let mut outcomes = run(seed, extras, false);
    let repeats = seed.is_multiple_of(REPEATED);
    if repeats && run(seed, extras, false).digest != outcomes.digest {
        outcomes.failure = Some("a second run was not the same".to_owned());
    }
    (outcomes, repeats)
}

/// Runs seeds on all cores.
fn swarm(Arguments { seed: first, extras, until_failure, .. }: &Arguments, count: u64) -> ExitCode {
    let began = Instant::now();
    let totals = Mutex::new(Totals::default());
    let lock = || totals.lock().unwrap_or_else(PoisonError::into_inner);
    let next = AtomicU64::new(*first);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || *until_failure && lock().failures > 0 {
                break;
            }
            let outcomes = std::panic::catch_unwind(|| run_of_swarm(seed, *extras));
            let panicked = |_| {
                let failure = Some("it panicked".to_owned());
                (Outcomes { failure, ..Outcomes::default() }, false)
            };
            lock().add(seed, *extras, outcomes.unwrap_or_else(panicked));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
    let Totals {
        seeds,
        operations,
        answered,
        turns,
        virtual_time,
        repeated,
        rare_events,
        failures,
    } = std::mem::take(&mut *lock());
    let took = began.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds in {took:.1} s: {operations} operations, {answered} of them answered, {turns} \
         turns, {:.0} s of virtual time; {repeated} runs repeated bit for bit",
        virtual_time.as_secs_f64()
    );
    println!("{rare_events:?}\n{failures} failures");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
