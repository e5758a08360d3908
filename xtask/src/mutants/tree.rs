//! The copy of the sources in which mutants are built and tried. The sources themselves never
//! change.

use super::patch::Finder;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The profile of the swarm's program: see `Cargo.toml`. Tests keep their usual profile.
const PROFILE: &str = "mutants";

/// The longest time that one mutant's swarm or tests may take.
const PATIENCE: Duration = Duration::from_secs(900);

/// How often the end of a program is polled.
const POLLED_EVERY: Duration = Duration::from_millis(50);

/// The outcome of a mutant.
pub(super) enum Outcome {
    /// A seed of the swarm failed.
    CaughtBySeed {
        seed: u64,
        why: String,
    },
    /// These tests failed.
    CaughtByTests(Vec<String>),
    NotCaught,
    /// The mutant was not tried: it does not build, or its trial did not end.
    Broken(String),
}

impl Outcome {
    pub(super) fn is_caught(&self) -> bool {
        matches!(self, Outcome::CaughtBySeed { .. } | Outcome::CaughtByTests(_))
    }
}

/// Seeds of the swarm that a trial may take.
#[derive(Clone, Copy)]
pub(super) struct Seeds {
    pub(super) first: u64,
    pub(super) count: u64,
}

/// The copy of the sources.
pub(super) struct Copy {
    root: PathBuf,
    own: PathBuf,
    pub(super) tree: PathBuf,
    target: PathBuf,
}

impl Copy {
    pub(super) fn new(root: PathBuf) -> Result<Copy> {
        let own = root.join("target/mutants");
        let copy = Copy { tree: own.join("tree"), target: own.join("target"), own, root };
        fs::create_dir_all(&copy.tree)?;
        Ok(copy)
    }

    /// Makes the copy equal to the sources. Equal files stay untouched, so that only a patch's
    /// changes are rebuilt.
    pub(super) fn restore(&self) -> Result<()> {
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

    /// Builds the finder's programs.
    pub(super) fn build(&self, finder: &Finder) -> Result<(), String> {
        let mut command = self.cargo();
        match finder {
            Finder::Swarm(_) => {
                command.args(["build", "--quiet", "--profile", PROFILE]);
                command.args(["--package", "thunderhead-server", "--example", "cluster"]);
            }
            Finder::Test(words) => {
                command.args(["test", "--quiet", "--no-run"]).args(for_cargo(words));
            }
        }
        let output = command.output().map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let first = text.lines().find(|line| line.starts_with("error")).unwrap_or_default();
        Err(format!("it does not build: {first}"))
    }

    /// Runs the finder. Returns the outcome, and the number of seeds or tests that ran.
    pub(super) fn run(&self, finder: &Finder, seeds: Seeds) -> Result<(Outcome, u64)> {
        let mut command = match finder {
            Finder::Swarm(flags) => {
                let mut command = Command::new(self.target.join(PROFILE).join("examples/cluster"));
                let Seeds { first, count } = seeds;
                command.args(["--swarm", &count.to_string(), "--first", &first.to_string()]);
                command.arg("--until-failure").args(flags);
                command
            }
            Finder::Test(words) => {
                let mut command = self.cargo();
                command.args(["test", "--no-fail-fast"]).args(words);
                command
            }
        };
        Ok(match (self.output(&mut command)?, finder) {
            (None, _) => (Outcome::Broken("a run does not come to its end".into()), 0),
            (Some((_, text)), Finder::Swarm(_)) => told_by_swarm(&text),
            (Some((status, text)), Finder::Test(_)) => told_by_tests(status.success(), &text),
        })
    }

    fn cargo(&self) -> Command {
        let mut command = Command::new("cargo");
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// Runs a program and returns its output, or `None` if it took too long and was ended.
    ///
    /// The output goes to a file: a program that fills a pipe would wait for a reader.
    fn output(&self, command: &mut Command) -> Result<Option<(ExitStatus, String)>> {
        let path = self.own.join("output");
        command.stdin(Stdio::null()).stdout(File::create(&path)?).stderr(Stdio::null());
        // Cargo runs tests as processes of its own, which end with their group.
        let mut child =
            command.process_group(0).spawn().context("the program cannot be started")?;
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                let text = fs::read(&path)?;
                return Ok(Some((status, String::from_utf8_lossy(&text).into_owned())));
            }
            if began.elapsed() > PATIENCE {
                let group = format!("-{}", child.id());
                Command::new("kill").args(["-KILL", "--", &group]).status()?;
                child.wait()?;
                return Ok(None);
            }
            std::thread::sleep(POLLED_EVERY);
        }
    }
}

/// Returns the words that select the build. Words behind `--` are for the tests, as is the filter
/// of names, which cargo accepts without harm.
fn for_cargo(words: &[String]) -> impl Iterator<Item = &String> {
    words.iter().take_while(|it| *it != "--")
}

/// Parses a swarm's output.
fn told_by_swarm(text: &str) -> (Outcome, u64) {
    let count = |line: &str| line.split_once(" seeds in ")?.0.parse().ok();
    let seeds = text.lines().find_map(count);
    let failure = |line: &str| {
        let (seed, why) = line.strip_prefix("seed ")?.split_once(": ")?;
        Some((seed.parse().ok()?, why.to_owned()))
    };
    let outcome = match (text.lines().find_map(failure), seeds) {
        (Some((seed, why)), _) => Outcome::CaughtBySeed { seed, why: shortened(&why) },
        (None, Some(_)) => Outcome::NotCaught,
        (None, None) => Outcome::Broken("the swarm's program ended early".into()),
    };
    (outcome, seeds.unwrap_or(0))
}

/// Parses the output of `cargo test`. Returns the outcome and the number of tests.
///
/// Only a test that reports its failure catches a mutant: a process that ends during its tests may
/// have had other reasons.
fn told_by_tests(is_success: bool, text: &str) -> (Outcome, u64) {
    let mut failed = Vec::new();
    let mut tests = 0;
    for line in text.lines() {
        let Some((name, result)) =
            line.strip_prefix("test ").and_then(|line| line.rsplit_once(" ... "))
        else {
            continue;
        };
        tests += u64::from(result == "ok" || result == "FAILED");
        if result == "FAILED" {
            let path = name.split(" - ").next().unwrap_or(name);
            failed.push(path.rsplit("::").next().unwrap_or(path).to_owned());
        }
    }
    let outcome = match (failed.is_empty(), is_success) {
        (false, _) => Outcome::CaughtByTests(failed),
        (true, true) if tests > 0 => Outcome::NotCaught,
        (true, true) => Outcome::Broken("no test has that name".into()),
        (true, false) => Outcome::Broken("the tests ended early".into()),
    };
    (outcome, tests)
}

/// Shortens a failure: drops the parts that differ from run to run.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_swarm_is_parsed() {
        let text =
            "seed 12: at 3.1s: a walk: [1]\n  cargo xtask sim\nseed 13: x\n40 seeds in 1.0 s: 5";
        let (Outcome::CaughtBySeed { seed: 12, why }, 40) = told_by_swarm(text) else {
            panic!("it is caught")
        };
        assert_eq!(why, "a walk");
        assert_eq!(shortened("nothing explains Operation { key: 1 }"), "not linearizable");
        let (outcome, seeds) = told_by_swarm("40 seeds in 1.0 s: 5 operations");
        assert!(matches!((outcome, seeds), (Outcome::NotCaught, 40)));
        assert!(matches!(told_by_swarm(""), (Outcome::Broken(_), 0)));
    }

    #[test]
    fn only_tests_that_report_their_failure_catch_a_mutant() {
        let text = "running 2 tests\ntest a::tests::one ... ok\ntest a::two - should panic ... FAILED\n\
                    test result: FAILED. 1 passed; 1 failed";
        let (Outcome::CaughtByTests(failed), 2) = told_by_tests(false, text) else {
            panic!("it is caught")
        };
        assert_eq!(failed, ["two"]);
        let (outcome, tests) = told_by_tests(true, "test one ... ok\ntest two ... ignored");
        assert!(matches!((outcome, tests), (Outcome::NotCaught, 1)));
        assert!(matches!(told_by_tests(true, "running 0 tests"), (Outcome::Broken(_), 0)));
        assert!(matches!(told_by_tests(false, "test one ... ok"), (Outcome::Broken(_), 1)));
    }
}
