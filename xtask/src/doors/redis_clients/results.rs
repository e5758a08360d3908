//! The results of tests, and the exceptions from the rule that all are good.

use anyhow::{Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Good,
    /// It failed. The text is the first line of the reason, and may be empty.
    Bad(String),
    /// The test skipped itself.
    Skipped,
}

/// The results of a run, by the names of the tests. The cases of a test with parameters may have
/// one name.
pub(super) type Results = BTreeMap<String, Vec<Outcome>>;

/// A test, or a group of tests, that is not expected to be good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exception {
    /// The name of the test, or the beginning of the names of a group.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) reason: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It fails, or a part of the group does.
    Fails,
    /// It is not run.
    Skipped,
}

/// A test that fails.
pub(super) const fn fails(name: &'static str, reason: &'static str) -> Exception {
    Exception { name, kind: Kind::Fails, reason }
}

/// A test that is not run.
pub(super) const fn skipped(name: &'static str, reason: &'static str) -> Exception {
    Exception { name, kind: Kind::Skipped, reason }
}

/// A file of tests: run, or skipped for a reason.
pub(super) type File = (&'static str, Option<&'static str>);

/// Checks that each file has a line, and that each line has a file.
pub(super) fn check_files(files: &[File], found: &BTreeSet<String>, list: &str) -> Result<()> {
    let known: BTreeSet<&str> = files.iter().map(|file| file.0).collect();
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let new: Vec<&str> = found.difference(&known).copied().collect();
    ensure!(new.is_empty(), "files of tests without a line in {list}: {}", new.join(", "));
    let gone: Vec<&str> = known.difference(&found).copied().collect();
    ensure!(gone.is_empty(), "lines of {list} without a file: {}", gone.join(", "));
    Ok(())
}

/// Prints the reasons of all exceptions, with the number of files, tests and groups of each.
pub(super) fn print_reasons(client: &str, files: &[File], exceptions: &[Exception]) {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for reason in files.iter().filter_map(|file| file.1) {
        counts.entry(reason).or_default().0 += 1;
    }
    for exception in exceptions {
        counts.entry(exception.reason).or_default().1 += 1;
    }
    for (reason, (files, tests)) in counts {
        println!(
            "{client:22} {files:2} files and {tests:2} tests or groups are excepted: {reason}"
        );
    }
}

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) good: usize,
    pub(super) bad: usize,
    /// Tests that skipped themselves.
    pub(super) skipped: usize,
}

/// Whether an exception names a test. `separator` is between the name of a group and the rest.
fn names(exception: &Exception, test: &str, separator: &str) -> bool {
    match test.strip_prefix(exception.name) {
        Some(rest) => rest.is_empty() || rest.starts_with(separator),
        None => false,
    }
}

/// Returns the tests that have failed without an exception, with their reasons.
pub(super) fn unexpected<'a>(
    results: &'a Results,
    exceptions: &[Exception],
    separator: &str,
) -> Vec<(&'a str, &'a str)> {
    let is_exception =
        |test: &str| exceptions.iter().any(|exception| names(exception, test, separator));
    let mut failed = Vec::new();
    for (test, outcomes) in results.iter().filter(|(test, _)| !is_exception(test)) {
        for outcome in outcomes {
            if let Outcome::Bad(reason) = outcome {
                failed.push((&**test, &**reason));
            }
        }
    }
    failed
}

/// Checks the results of a run. Each test that is listed as failing must fail, so
/// that a line does not outlive its reason. A sample does not show this: some tests fail only in
/// the other runs.
pub(super) fn check(
    results: &Results,
    exceptions: &[Exception],
    separator: &str,
    is_sample: bool,
) -> Result<()> {
    let failed = unexpected(results, exceptions, separator);
    if !failed.is_empty() {
        let lines: Vec<String> =
            failed.iter().map(|(test, reason)| format!("{test}: {reason}")).collect();
        bail!("{} tests fail without an exception:\n{}", failed.len(), lines.join("\n"));
    }
    if is_sample {
        return Ok(());
    }
    let is_bad = |outcome: &&Outcome| matches!(**outcome, Outcome::Bad(_));
    let mut stale = Vec::new();
    for exception in exceptions.iter().filter(|it| it.kind == Kind::Fails) {
        let own = results.iter().filter(|(test, _)| names(exception, test, separator));
        let outcomes: Vec<&Outcome> = own.flat_map(|(_, outcomes)| outcomes).collect();
        match outcomes.iter().any(is_bad) {
            true => {}
            false if !outcomes.is_empty() => {
                stale.push(format!("{} is good, or skips itself", exception.name));
            }
            false => stale.push(format!("{} has no test", exception.name)),
        }
    }
    ensure!(stale.is_empty(), "remove these exceptions:\n{}", stale.join("\n"));
    Ok(())
}

/// Counts results.
pub(super) fn count(results: &Results) -> Counts {
    let mut counts = Counts::default();
    for outcome in results.values().flatten() {
        match outcome {
            Outcome::Good => counts.good += 1,
            Outcome::Bad(_) => counts.bad += 1,
            Outcome::Skipped => counts.skipped += 1,
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(lines: &[(&str, Outcome)]) -> Results {
        let mut results = Results::new();
        for (name, outcome) in lines {
            results.entry((*name).to_owned()).or_default().push(outcome.clone());
        }
        results
    }

    fn bad() -> Outcome {
        Outcome::Bad("the reason".to_owned())
    }

    #[test]
    fn a_failure_needs_an_exception() {
        let all = results(&[("a::b", Outcome::Good), ("a::c", bad())]);
        let error = check(&all, &[], "::", false).unwrap_err().to_string();
        assert!(error.contains("a::c: the reason"), "{error}");
        for name in ["a", "a::c"] {
            assert!(check(&all, &[fails(name, "why")], "::", false).is_ok());
        }
        assert_eq!(count(&all), Counts { good: 1, bad: 1, skipped: 0 });
        let other = [fails("a::", "why")];
        assert!(check(&all, &other, "::", true).is_err(), "a name ends at a separator");
    }

    #[test]
    fn an_exception_whose_tests_are_good_is_reported() {
        let all = results(&[("a", Outcome::Good), ("b", Outcome::Skipped)]);
        for name in ["a", "b"] {
            let error = check(&all, &[fails(name, "why")], "::", false).unwrap_err().to_string();
            assert!(error.contains("is good, or skips itself"), "{error}");
        }
    }

    #[test]
    fn an_exception_without_a_test_is_reported_unless_the_run_is_a_sample() {
        let all = results(&[("a", Outcome::Good)]);
        let gone = [fails("gone", "why")];
        assert!(check(&all, &gone, "::", true).is_ok());
        assert!(check(&all, &gone, "::", false).is_err());
    }

    #[test]
    fn each_file_needs_a_line() {
        let found = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let files = [("a", None), ("b", Some("why"))];
        assert!(check_files(&files, &found(&["a", "b"]), "the list").is_ok());
        let error = check_files(&files, &found(&["a", "b", "c"]), "the list").unwrap_err();
        assert!(error.to_string().contains("without a line in the list: c"));
        assert!(check_files(&files, &found(&["a"]), "the list").is_err());
    }
}
