//! The output of a file of tests.

use anyhow::{Result, bail, ensure};

/// The results of the tests of a file.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The number of tests that passed.
    pub(super) good: usize,
    /// The names of the tests that failed, with the first line of the reason.
    failed: Vec<String>,
    /// The names of the tests that our own list skips.
    skipped: Vec<String>,
    /// The number of tests that Redis's own tags exclude.
    pub(super) excluded: usize,
    /// The whole file was done.
    is_whole: bool,
    /// The last line, for people.
    last: String,
}

impl Report {
    /// Reads the output.
    pub(super) fn of(output: &str) -> Report {
        let mut report = Report::default();
        let mut lines = output.lines().peekable();
        while let Some(line) = lines.next() {
            let mark = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
            match mark {
                Some(("ok", _)) => report.good += 1,
                Some(("err", name)) => {
                    let reason = lines.peek().copied().unwrap_or_default();
                    report.failed.push(format!("{name}: {reason}"));
                }
                Some(("exception", reason)) => report.failed.push(reason.to_owned()),
                Some(("TIMEOUT", _)) => {
                    let place = lines.peek().copied().unwrap_or_default();
                    report.failed.push(format!("no progress: {place}"));
                }
                Some(("skip", name)) => report.skipped.push(name.to_owned()),
                Some(("ignore", _)) => report.excluded += 1,
                _ => {}
            }
            // Behind this line the failures are repeated.
            if line.trim() == "The End" {
                report.is_whole = true;
                break;
            }
            if !line.trim().is_empty() {
                line.clone_into(&mut report.last);
            }
        }
        report
    }

    /// Checks that as many tests passed as the file has, and that each pattern of our list has
    /// skipped a test, so that no pattern outlives its reason.
    pub(super) fn check(&self, good: usize, patterns: &[&str]) -> Result<()> {
        if let Some(first) = self.failed.first() {
            bail!("{} tests fail, the first is {first}", self.failed.len());
        }
        ensure!(self.is_whole, "it ended early, after: {}", self.last);
        ensure!(self.good == good, "{} tests pass, expected {good}", self.good);
        for pattern in patterns {
            let is_used = self.skipped.iter().any(|name| is_match(pattern, name));
            ensure!(is_used, "no test is skipped by: {pattern}");
        }
        Ok(())
    }

    /// Returns the number of tests that our own list skips.
    pub(super) fn skipped(&self) -> usize {
        self.skipped.len()
    }
}

/// Whether a pattern stands for a test: it is its name, or `/` and a part of the name.
fn is_match(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('/') {
        Some(part) => name.contains(part),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "Testing unit/x\n[ok]: one (0 ms)\n[skip]: two of it\n\
        [ignore]: Tag: needs:debug denied\n[ok]: three (12 ms)\n[1/1 done]: unit/x (0 seconds)\n\n\
        \x20                  The End\n\n[err]: repeated\n";

    fn outcome(output: &str, good: usize, patterns: &[&str]) -> String {
        match Report::of(output).check(good, patterns) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn all_tests_must_pass() {
        assert_eq!(outcome(OUTPUT, 2, &["two of it"]), "");
        assert_eq!(outcome(OUTPUT, 2, &["/two"]), "");
        assert!(outcome(OUTPUT, 3, &[]).contains("2 tests pass, expected 3"));
        let failed = "[ok]: one (0 ms)\n[err]: two in a file\nExpected 1\n\nThe End\n";
        assert!(outcome(failed, 1, &[]).contains("1 tests fail, the first is two in a file: Exp"));
        let early = "[ok]: one (0 ms)\n[ok]: two (0 ms)\n";
        assert!(outcome(early, 2, &[]).contains("ended early, after: [ok]: two"));
        let late = "[ok]: one (0 ms)\n[TIMEOUT]: clients state\nsock1 => two\n\nThe End\n";
        assert!(outcome(late, 1, &[]).contains("no progress: sock1 => two"));
    }

    #[test]
    fn each_pattern_must_skip_a_test() {
        assert!(outcome(OUTPUT, 2, &["two"]).contains("no test is skipped by: two"));
        assert!(outcome(OUTPUT, 2, &["/two", "/four"]).contains("skipped by: /four"));
    }

    #[test]
    fn tests_are_counted_by_the_reason_for_which_they_do_not_run() {
        let report = Report::of(OUTPUT);
        assert_eq!((report.good, report.skipped(), report.excluded), (2, 1, 1));
    }
}
