//! The output of a test in Perl: a plan (`1..3`), and a line for each result (`ok 1 - name`).

use std::collections::{BTreeMap, BTreeSet};

/// The results of a file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Results {
    pub(super) planned: Option<u32>,
    /// The numbers of the good results.
    pub(super) good: BTreeSet<u32>,
    /// The names of the others.
    pub(super) bad: BTreeMap<u32, String>,
}

impl Results {
    /// Reads the results. Other lines are ignored.
    pub(super) fn of(text: &str) -> Results {
        let mut results = Results::default();
        for line in text.lines() {
            if let Some(count) = line.strip_prefix("1..") {
                results.planned = count.split(' ').next().and_then(|count| count.parse().ok());
            } else if let Some((number, _)) = line.strip_prefix("ok ").and_then(numbered) {
                results.good.insert(number);
            } else if let Some((number, name)) = line.strip_prefix("not ok ").and_then(numbered) {
                results.bad.insert(number, name.to_owned());
            }
        }
        results
    }
}

fn numbered(line: &str) -> Option<(u32, &str)> {
    let (number, name) = line.split_once(' ').unwrap_or((line, ""));
    Some((number.parse().ok()?, name.trim_start_matches("- ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_from_among_other_lines() {
        let results =
            Results::of("# hello\n1..4\nok 1\nlen is 5\nok 2 - two\nnot ok 3 - three\n# x\nok x\n");
        assert_eq!(results.planned, Some(4));
        assert_eq!(results.good, BTreeSet::from([1, 2]));
        assert_eq!(results.bad, BTreeMap::from([(3, "three".to_owned())]));
    }

    #[test]
    fn a_file_that_skips_itself_plans_no_results() {
        assert_eq!(Results::of("1..0 # SKIP no reason\n").planned, Some(0));
    }
}
