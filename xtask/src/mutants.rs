//! `cargo xtask mutants`: bugs that are put into the sources on purpose. The swarm of the
//! simulated cluster, or a test that the mutant names, must find each of them. If neither finds
//! such a bug now, they would not find it later either.
//!
//! A mutant is a patch in `crates/server/tests/mutants`. Its head names the promise that it breaks
//! and its finder: `flags:` of the swarm, or `test:` and words for `cargo test`. Mutants are
//! applied one at a time to a copy of the tree below `target/mutants` and built incrementally
//! there. The swarm runs until a seed fails. `tidy` checks that every patch still applies.

mod patch;
mod tree;

use crate::steps::workspace;
use anyhow::{Context, Result, bail};
use patch::{Finder, Kind, Mutant};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tree::{Copy, Outcome, Seeds};

pub(crate) use patch::findings;

/// Seeds that the unchanged sources must pass first. Otherwise a failure proves nothing.
const SOUND_SEEDS: u64 = 200;

/// The arguments of `cargo xtask mutants`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Mutants to try; all by default.
    names: Vec<String>,
    /// Try only mutants for the swarm, or only mutants for tests.
    #[arg(long)]
    kind: Option<Kind>,
    /// The most seeds of the swarm for each mutant.
    #[arg(long, default_value_t = 3000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// List the mutants and try none.
    #[arg(long)]
    list: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A mutant and its outcome.
struct Tried {
    mutant: Mutant,
    outcome: Outcome,
    /// The number of seeds or tests that ran.
    runs: u64,
    took: Duration,
}

impl Tried {
    fn broken(mutant: Mutant, why: String) -> Tried {
        Tried { mutant, outcome: Outcome::Broken(why), runs: 0, took: Duration::ZERO }
    }
}

/// Tries mutants.
pub(crate) fn mutants(arguments: &Arguments) -> Result<()> {
    let root = workspace();
    let mut mutants = patch::all(&root)?;
    let known: BTreeSet<String> = mutants.iter().map(|it| it.name.clone()).collect();
    if let Some(name) = arguments.names.iter().find(|name| !known.contains(*name)) {
        bail!("there is no mutant {name}; see cargo xtask mutants --list");
    }
    mutants.retain(|it| arguments.names.is_empty() || arguments.names.contains(&it.name));
    mutants.retain(|it| arguments.kind.is_none_or(|kind| it.finder.kind() == kind));
    if arguments.list {
        for Mutant { name, promise, finder, .. } in &mutants {
            let (kind, words) = (finder.kind().name(), finder.words().join(" "));
            println!("{name}: {promise} ({kind}: {words})");
        }
        return Ok(());
    }
    let seeds = Seeds { first: arguments.first, count: arguments.seeds };
    let copy = Copy::new(root)?;
    copy.restore()?;
    // Mutants with the same finder follow one another, so that less is rebuilt.
    mutants.sort_by(|one, other| one.finder.cmp(&other.finder));
    let mut checked: Option<(Finder, Option<String>)> = None;
    let mut tried = Vec::new();
    for (number, mutant) in mutants.into_iter().enumerate() {
        let unsound = match checked.take() {
            Some((finder, unsound)) if finder == mutant.finder => unsound,
            _ => unsound(&copy, &mutant.finder, seeds)?,
        };
        checked = Some((mutant.finder.clone(), unsound.clone()));
        eprintln!("{} {}: {}", number + 1, mutant.name, mutant.promise);
        let one = match unsound {
            None => try_one(&copy, mutant, seeds),
            Some(why) => Ok(Tried::broken(mutant, why)),
        };
        copy.restore()?;
        let one = one?;
        eprintln!("  {}", said(&one));
        tried.push(one);
    }
    tried.sort_by(|one, other| one.mutant.name.cmp(&other.mutant.name));
    if arguments.json {
        println!("{}", serde_json::Value::from(tried.iter().map(json).collect::<Vec<_>>()));
    } else {
        [Kind::Swarm, Kind::Test].into_iter().for_each(|kind| tell(&tried, kind));
    }
    let missed = tried.iter().filter(|it| !it.outcome.is_caught()).count();
    if missed > 0 {
        bail!("{missed} of {} mutants were not caught", tried.len());
    }
    Ok(())
}

/// Returns the reason why a finder proves nothing: it fails with the unchanged sources, or does
/// not run.
fn unsound(copy: &Copy, finder: &Finder, seeds: Seeds) -> Result<Option<String>> {
    eprintln!("the sources as they are, {}", finder.words().join(" "));
    if let Err(why) = copy.build(finder) {
        return Ok(Some(format!("without it: {why}")));
    }
    let few = Seeds { count: SOUND_SEEDS, ..seeds };
    Ok(match copy.run(finder, few)? {
        (Outcome::NotCaught, _) => None,
        (Outcome::CaughtBySeed { seed, why }, _) => {
            Some(format!("without it seed {seed} fails: {why}"))
        }
        (Outcome::CaughtByTests(names), _) => {
            Some(format!("without it fails {}", names.join(", ")))
        }
        (Outcome::Broken(why), _) => Some(format!("without it: {why}")),
    })
}

fn try_one(copy: &Copy, mutant: Mutant, seeds: Seeds) -> Result<Tried> {
    patch::apply(&copy.tree, &mutant.patch, &[])
        .with_context(|| format!("{} does not apply", mutant.name))?;
    let built = copy.build(&mutant.finder);
    let began = Instant::now();
    let (outcome, runs) = match built {
        Ok(()) => copy.run(&mutant.finder, seeds)?,
        Err(why) => (Outcome::Broken(why), 0),
    };
    Ok(Tried { mutant, outcome, runs, took: began.elapsed() })
}

/// Prints the mutants of a kind as a table.
fn tell(tried: &[Tried], kind: Kind) {
    let mut of_kind = tried.iter().filter(|it| it.mutant.finder.kind() == kind).peekable();
    if of_kind.peek().is_some() {
        println!("| mutant | the promise that it breaks | caught by |\n| --- | --- | --- |");
    }
    for it in of_kind {
        println!("| {} | {} | {} |", it.mutant.name, it.mutant.promise, said(it));
    }
}

fn said(tried: &Tried) -> String {
    let (runs, seconds) = (tried.runs, tried.took.as_secs_f64());
    match (&tried.outcome, tried.mutant.finder.kind()) {
        (Outcome::CaughtBySeed { seed, why }, _) => {
            format!("seed {seed}, after {runs} seeds and {seconds:.0} s: {why}")
        }
        (Outcome::CaughtByTests(names), _) => {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        }
        (Outcome::NotCaught, Kind::Swarm) => {
            format!("NOT CAUGHT by {runs} seeds in {seconds:.0} s")
        }
        (Outcome::NotCaught, Kind::Test) => {
            format!("NOT CAUGHT by {runs} tests in {seconds:.0} s")
        }
        (Outcome::Broken(why), _) => format!("NOT TRIED: {why}"),
    }
}

fn json(tried: &Tried) -> serde_json::Value {
    let Tried { mutant: Mutant { name, promise, finder, .. }, outcome, runs, took } = tried;
    let (seed, tests, why) = match outcome {
        Outcome::CaughtBySeed { seed, why } => (Some(seed), None, Some(why)),
        Outcome::CaughtByTests(names) => (None, Some(names), None),
        Outcome::NotCaught => (None, None, None),
        Outcome::Broken(why) => (None, None, Some(why)),
    };
    serde_json::json!({
        "mutant": name, "promise": promise, "kind": finder.kind().name(), "words": finder.words(),
        "is_caught": outcome.is_caught(), "seed": seed, "tests": tests, "why": why,
        "runs": runs, "seconds": took.as_secs_f64(),
    })
}
