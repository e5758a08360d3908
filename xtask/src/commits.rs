//! The rules for messages of commits, for `tidy`.
//!
//! A subject is `area: imperative` and names one change. A body says why. Commits before
//! [`FIRST`] are older than the rules.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// The rules hold for the commits after this one.
const FIRST: &str = "38b6118f521075df9423f4176f5a786c8eadc016";

/// The longest subject: more does not fit into a line of `git log`.
const SUBJECT_CHARS_MAX: usize = 90;

/// Checks the commits after [`FIRST`]. A clone without that commit has nothing to check.
pub(crate) fn findings(root: &Path) -> Result<Vec<String>> {
    let range = format!("{FIRST}..HEAD");
    let output = Command::new("git")
        .args(["log", "-z", "--format=%h%n%s%n%b", &range])
        .current_dir(root)
        .output()
        .context("run git")?;
    if !output.status.success() {
        return Ok(Vec::new());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split('\0').filter(|it| !it.is_empty()).filter_map(finding).collect())
}

/// Returns the fault of a commit, given its short hash, subject and body in lines.
fn finding(commit: &str) -> Option<String> {
    let (hash, message) = commit.split_once('\n')?;
    let (subject, body) = message.split_once('\n').unwrap_or((message, ""));
    let fault = if !has_area(subject) {
        "begin the subject with an area: `log: keep …`"
    } else if subject.contains(';') {
        "the subject has a `;`: one commit is one change"
    } else if subject.chars().count() > SUBJECT_CHARS_MAX {
        "the subject is longer than 90 characters"
    } else if body.trim().is_empty() {
        "the body is empty: say why"
    } else {
        return None;
    };
    Some(format!("commit {hash}: {fault}"))
}

/// Whether a subject is an area, a colon and a change.
fn has_area(subject: &str) -> bool {
    let Some((area, change)) = subject.split_once(": ") else { return false };
    let is_area = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || ", -_/".contains(it);
    !area.is_empty() && area.chars().all(is_area) && !change.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_has_an_area_one_change_and_a_reason() {
        assert_eq!(finding("1a\nlog: keep it\nIt was lost.\n"), None);
        assert_eq!(finding("1a\nnet, rpc: keep it\n\nIt was lost."), None);
        for (subject, body, fault) in [
            ("keep it", "It was lost.", "area"),
            ("Merge branch 'x'", "It was lost.", "area"),
            ("Log: keep it", "It was lost.", "area"),
            ("log: ", "It was lost.", "area"),
            ("log: keep it; drop that", "It was lost.", "one change"),
            ("log: keep it", "", "say why"),
            ("log: keep it", "\n\n", "say why"),
        ] {
            let found = finding(&format!("1a\n{subject}\n{body}")).unwrap();
            assert!(found.starts_with("commit 1a: ") && found.contains(fault), "{found}");
        }
        let long = format!("log: {}", "x".repeat(SUBJECT_CHARS_MAX));
        assert!(finding(&format!("1a\n{long}\nIt was lost.")).unwrap().contains("longer"));
    }
}
