//! `cargo xtask mutants`: bugs that are put into the sources on purpose, each of which the swarm of the
//! simulated cluster must find. What it does not find it would not find if somebody wrote it by mistake.
//!
//! A mutant is a patch in `crates/server/tests/mutants`, with a head in words: the promise that it
//! breaks, and the flags of the swarm that it needs. They are applied one at a time to a copy of the
//! tree below `target/mutants`, so nothing here is ever changed, and built incrementally there. The swarm
//! runs until a seed fails. `tidy` sees to it that every patch still applies.

use crate::steps::workspace;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where the patches are.
const PATCHES: &str = "crates/server/tests/mutants";

/// What the swarm's program is built with: see `Cargo.toml`.
const PROFILE: &str = "mutants";

/// Seeds that the sources as they are must pass first, or what is found says nothing.
const SOUND_SEEDS: u64 = 200;

/// A swarm that takes longer than this is ended: the mutant does not let a run come to its end.
const PATIENCE: Duration = Duration::from_secs(900);

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Mutants; all when none is named.
    names: Vec<String>,
    /// How many seeds each may take.
    #[arg(long, default_value_t = 3000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Only say what there is.
    #[arg(long)]
    list: bool,
    /// For programs.
    #[arg(long)]
    json: bool,
}

/// A bug that is put in.
struct Mutant {
    name: String,
    promise: String,
    flags: Vec<String>,
    patch: PathBuf,
}

/// What came of one.
enum Outcome {
    Caught { seed: u64, why: String },
    NotCaught,
    Broken(String),
}

struct Tried {
    name: String,
    promise: String,
    outcome: Outcome,
    seeds: u64,
    took: Duration,
}

/// All mutants, in the order of their names.
fn all(root: &Path) -> Result<Vec<Mutant>> {
    let files =
        fs::read_dir(root.join(PATCHES)).with_context(|| format!("cannot read {PATCHES}"))?;
    let mut mutants = Vec::new();
    for file in files {
        let patch = file?.path();
        if patch.extension().is_some_and(|it| it == "patch") {
            mutants.push(read(&patch)?);
        }
    }
    mutants.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(mutants)
}

fn read(patch: &Path) -> Result<Mutant> {
    let text = fs::read_to_string(patch)?;
    let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let head = text.lines().take_while(|line| !line.starts_with("--- "));
    let (mut promise, mut flags) = (String::new(), None);
    for line in head {
        match line.strip_prefix("flags:") {
            Some(words) => flags = Some(words.split_whitespace().map(str::to_owned).collect()),
            None => promise = format!("{promise} {}", line.trim()),
        }
    }
    let promise = promise.trim().to_owned();
    let Some(flags) = flags.filter(|_| !promise.is_empty()) else {
        bail!(
            "{}: begin with the promise that it breaks, and `flags:` of the swarm",
            patch.display()
        );
    };
    Ok(Mutant { name, promise, flags, patch: patch.to_owned() })
}

/// What is wrong with the patches, for `tidy`.
pub(crate) fn findings(root: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for mutant in all(root)? {
        if let Err(error) = git_apply(root, &mutant.patch, &["--check"]) {
            let Mutant { name, .. } = mutant;
            findings.push(format!(
                "{PATCHES}/{name}.patch:1: it does not apply: make it anew for the code as it is: {error}"
            ));
        }
    }
    Ok(findings)
}

fn git_apply(tree: &Path, patch: &Path, flags: &[&str]) -> Result<()> {
    let mut command = Command::new("git");
    command.arg("apply").args(flags).arg(patch).current_dir(tree);
    // A copy of the tree is no part of the repository that it lies in.
    command.env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
    let output = command.output().context("git applies the patches")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// The copy in which mutants are built.
struct Copy {
    root: PathBuf,
    tree: PathBuf,
    target: PathBuf,
}

impl Copy {
    fn new(root: PathBuf) -> Copy {
        let own = root.join("target/mutants");
        Copy { tree: own.join("tree"), target: own.join("target"), root }
    }

    /// Makes the copy what the sources are. Files that are the same stay as they are, so that no more
    /// is built anew than what a patch has changed.
    fn restore(&self) -> Result<()> {
        let output = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.root)
            .output()
            .context("git knows the files")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut files = BTreeSet::new();
        for name in text.lines() {
            let Ok(bytes) = fs::read(self.root.join(name)) else { continue };
            let to = self.tree.join(name);
            files.insert(to.clone());
            if fs::read(&to).is_ok_and(|there| there == bytes) {
                continue;
            }
            fs::create_dir_all(to.parent().unwrap_or(&self.tree))?;
            fs::write(&to, bytes)?;
        }
        remove_others(&self.tree, &files)
    }

    /// Builds the swarm's program.
    fn build(&self) -> Result<(), String> {
        let mut command = Command::new("cargo");
        command.args(["build", "--quiet", "--profile", PROFILE]);
        command.args(["--package", "thunderhead-server", "--example", "cluster"]);
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        let output = command.output().map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let first = text.lines().find(|line| line.starts_with("error")).unwrap_or_default();
        Err(format!("it does not build: {first}"))
    }

    /// Runs seeds until one fails; says what came of it, and how many there were.
    fn swarm(&self, first: u64, seeds: u64, flags: &[String]) -> Result<(Outcome, u64)> {
        let program = self.target.join(PROFILE).join("examples/cluster");
        let mut command = Command::new(program);
        command.args(["--swarm", &seeds.to_string(), "--first", &first.to_string()]);
        command.arg("--until-failure").args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let began = Instant::now();
        let mut child = command.spawn().context("the swarm's program cannot be started")?;
        while child.try_wait()?.is_none() {
            if began.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                let why = "a run does not come to its end".to_owned();
                return Ok((Outcome::Broken(why), 0));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let output = child.wait_with_output()?;
        Ok(told(&String::from_utf8_lossy(&output.stdout)))
    }
}

/// What a swarm's output says.
fn told(text: &str) -> (Outcome, u64) {
    let count = |line: &str| line.split_once(" seeds in ")?.0.parse().ok();
    let seeds = text.lines().find_map(count);
    let failure = |line: &str| {
        let (seed, why) = line.strip_prefix("seed ")?.split_once(": ")?;
        Some((seed.parse().ok()?, why.to_owned()))
    };
    let outcome = match (text.lines().find_map(failure), seeds) {
        (Some((seed, why)), _) => Outcome::Caught { seed, why: shortened(&why) },
        (None, Some(_)) => Outcome::NotCaught,
        (None, None) => Outcome::Broken("the swarm's program ended early".into()),
    };
    (outcome, seeds.unwrap_or(0))
}

/// What a failure is, without what differs from run to run.
fn shortened(why: &str) -> String {
    let why = match why.strip_prefix("at ").and_then(|rest| rest.split_once(": ")) {
        Some((_, rest)) => rest,
        None => why,
    };
    if why.contains("Operation {") {
        return "not linearizable".to_owned();
    }
    let end = why.find([':', '[', '{', '|']).unwrap_or(why.len());
    why.chars().take(why[..end].chars().count().min(70)).collect()
}

fn remove_others(directory: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let (path, kind) = entry.and_then(|it| Ok((it.path(), it.file_type()?)))?;
        if kind.is_dir() {
            remove_others(&path, files)?;
        } else if !files.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Tries mutants.
pub(crate) fn mutants(arguments: &Arguments) -> Result<()> {
    let root = workspace();
    let mut mutants = all(&root)?;
    let known: BTreeSet<String> = mutants.iter().map(|it| it.name.clone()).collect();
    if let Some(name) = arguments.names.iter().find(|name| !known.contains(*name)) {
        bail!("there is no mutant {name}; see cargo xtask mutants --list");
    }
    mutants.retain(|it| arguments.names.is_empty() || arguments.names.contains(&it.name));
    if arguments.list {
        mutants
            .iter()
            .for_each(|it| println!("{}: {} ({})", it.name, it.promise, it.flags.join(" ")));
        return Ok(());
    }
    let copy = Copy::new(root);
    fs::create_dir_all(&copy.tree)?;
    copy.restore()?;
    is_sound(&copy, &mutants, arguments.first)?;
    let mut tried = Vec::new();
    for (number, mutant) in mutants.into_iter().enumerate() {
        eprintln!("{} {}: {}", number + 1, mutant.name, mutant.promise);
        let one = try_one(&copy, mutant, arguments);
        copy.restore()?;
        let one = one?;
        eprintln!("  {}", said(&one));
        tried.push(one);
    }
    let missed = tried.iter().filter(|it| !matches!(it.outcome, Outcome::Caught { .. })).count();
    if arguments.json {
        println!("{}", serde_json::Value::from(tried.iter().map(json).collect::<Vec<_>>()));
    } else {
        println!("| mutant | the promise that it breaks | caught by |\n| --- | --- | --- |");
        tried.iter().for_each(|it| println!("| {} | {} | {} |", it.name, it.promise, said(it)));
    }
    if missed > 0 {
        bail!("{missed} of {} mutants were not caught", tried.len());
    }
    Ok(())
}

/// The sources as they are must pass, with all flags that are used.
fn is_sound(copy: &Copy, mutants: &[Mutant], first: u64) -> Result<()> {
    eprintln!("building the sources as they are: the first time this takes minutes");
    copy.build().map_err(anyhow::Error::msg)?;
    let all_flags: BTreeSet<&[String]> = mutants.iter().map(|it| &it.flags[..]).collect();
    for flags in all_flags {
        if let (Outcome::Caught { seed, why }, _) = copy.swarm(first, SOUND_SEEDS, flags)? {
            bail!("without any mutant seed {seed} fails with {}: {why}", flags.join(" "));
        }
    }
    Ok(())
}

fn try_one(copy: &Copy, mutant: Mutant, arguments: &Arguments) -> Result<Tried> {
    let Mutant { name, promise, flags, patch } = mutant;
    git_apply(&copy.tree, &patch, &[]).with_context(|| format!("{name} does not apply"))?;
    let built = copy.build();
    let began = Instant::now();
    let (outcome, seeds) = match built {
        Ok(()) => copy.swarm(arguments.first, arguments.seeds, &flags)?,
        Err(why) => (Outcome::Broken(why), 0),
    };
    Ok(Tried { name, promise, outcome, seeds, took: began.elapsed() })
}

fn said(tried: &Tried) -> String {
    let (seeds, seconds) = (tried.seeds, tried.took.as_secs_f64());
    match &tried.outcome {
        Outcome::Caught { seed, why } => {
            format!("seed {seed}, after {seeds} seeds and {seconds:.0} s: {why}")
        }
        Outcome::NotCaught => format!("NOT CAUGHT by {seeds} seeds in {seconds:.0} s"),
        Outcome::Broken(why) => format!("NOT TRIED: {why}"),
    }
}

fn json(tried: &Tried) -> serde_json::Value {
    let Tried { name, promise, outcome, seeds, took } = tried;
    let (seed, why) = match outcome {
        Outcome::Caught { seed, why } => (Some(seed), Some(why)),
        Outcome::NotCaught => (None, None),
        Outcome::Broken(why) => (None, Some(why)),
    };
    serde_json::json!({
        "mutant": name, "promise": promise, "is_caught": matches!(outcome, Outcome::Caught { .. }),
        "seed": seed, "why": why, "seeds": seeds, "seconds": took.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_swarm_says_is_understood() {
        let text =
            "seed 12: at 3.1s: a walk: [1]\n  cargo xtask sim\nseed 13: x\n40 seeds in 1.0 s: 5";
        let (Outcome::Caught { seed: 12, why }, 40) = told(text) else { panic!("it is caught") };
        assert_eq!(why, "a walk");
        assert_eq!(shortened("nothing explains Operation { key: 1 }"), "not linearizable");
        assert!(matches!(told("40 seeds in 1.0 s: 5 operations"), (Outcome::NotCaught, 40)));
        assert!(matches!(told(""), (Outcome::Broken(_), 0)));
    }
}
