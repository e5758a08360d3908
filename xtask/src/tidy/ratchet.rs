//! Lists of today's exceptions to a rule. Such a list may only shrink: an exception that is not on
//! it is a finding, and so is a line for an exception that is gone.

use std::collections::BTreeSet;

/// Compares the exceptions in the tree with the list in a file. Each exception comes with its
/// finding. Lines of the list that begin with `#` are comments.
pub(super) fn findings(file: &str, list: &str, found: Vec<(String, String)>) -> Vec<String> {
    let lines = list.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let listed: Vec<(usize, &str)> =
        lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).collect();
    let is_listed = |exception: &str| listed.iter().any(|(_, line)| *line == exception);
    let present: BTreeSet<&str> = found.iter().map(|(exception, _)| exception.as_str()).collect();
    let gone = listed.iter().filter(|(_, line)| !present.contains(line)).map(|(number, line)| {
        format!("{file}:{number}: `{line}` is no exception any more: delete the line")
    });
    let new = found.iter().filter(|(exception, _)| !is_listed(exception));
    new.map(|(_, finding)| finding.clone()).chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exceptions(names: &[&str]) -> Vec<(String, String)> {
        names.iter().map(|name| ((*name).to_owned(), format!("{name} is wrong"))).collect()
    }

    #[test]
    fn a_listed_exception_is_accepted_and_a_new_one_is_not() {
        let list = "# Exceptions\n\na\nb\n";
        assert_eq!(findings("list.txt", list, exceptions(&["a", "b"])), [""; 0]);
        assert_eq!(findings("list.txt", list, exceptions(&["a", "b", "c"])), ["c is wrong"]);
    }

    #[test]
    fn a_line_for_an_exception_that_is_gone_must_go_too() {
        let findings = findings("list.txt", "# Exceptions\na\nb\n", exceptions(&["a"]));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("list.txt:3: `b`"), "{findings:?}");
    }
}
