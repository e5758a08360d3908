//! A mutant's patch: its head, and the check that it applies.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of the patches.
const PATCHES: &str = "crates/server/tests/mutants";

/// The page with a row for each.
const PAGE: &str = "docs/testing/mutants.md";

/// The finder of a mutant: it must fail when the mutant is applied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finder {
    /// The swarm of the simulated cluster, with these flags.
    Swarm(Vec<String>),
    /// `cargo test`, with these words.
    Test(Vec<String>),
}

/// The kinds of finders, as arguments name them.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    /// The swarm of the simulated cluster.
    Swarm,
    /// Tests that the patch names.
    Test,
}

impl Finder {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Finder::Swarm(_) => Kind::Swarm,
            Finder::Test(_) => Kind::Test,
        }
    }

    /// The flags of the swarm, or the words for `cargo test`.
    pub(super) fn words(&self) -> &[String] {
        match self {
            Finder::Swarm(words) | Finder::Test(words) => words,
        }
    }
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Swarm => "swarm",
            Kind::Test => "test",
        }
    }
}

/// A bug that is put into the sources.
pub(super) struct Mutant {
    pub(super) name: String,
    /// The promise that it breaks.
    pub(super) promise: String,
    pub(super) finder: Finder,
    pub(super) patch: PathBuf,
}

/// Returns all mutants, in the order of their names.
pub(super) fn all(root: &Path) -> Result<Vec<Mutant>> {
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
    let (promise, finder) = head(&text).with_context(|| patch.display().to_string())?;
    Ok(Mutant { name, promise, finder, patch: patch.to_owned() })
}

/// Reads the head of a patch: the lines before the first file.
fn head(text: &str) -> Result<(String, Finder)> {
    let (mut promise, mut finders) = (Vec::new(), Vec::new());
    for line in text.lines().take_while(|line| !line.starts_with("--- ")) {
        let words = |words: &str| words.split_whitespace().map(str::to_owned).collect();
        match line.split_once(':') {
            Some(("flags", flags)) => finders.push(Finder::Swarm(words(flags))),
            Some(("test", test)) => finders.push(Finder::Test(words(test))),
            _ => promise.extend(line.split_whitespace()),
        }
    }
    if promise.is_empty() {
        bail!("begin with the promise that the mutant breaks");
    }
    let (Some(finder), true) = (finders.pop(), finders.is_empty()) else {
        bail!("name one finder: `flags:` of the swarm, or `test:` and words for cargo test");
    };
    if let Finder::Test(words) = &finder
        && !words.iter().any(|it| it == "-p")
    {
        bail!("`test:` names its package with -p: building all of them takes too long");
    }
    Ok((promise.join(" "), finder))
}

/// Returns the defects of the patches, for `tidy`.
pub(crate) fn findings(root: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("read {PAGE}"))?;
    for Mutant { name, patch, finder, .. } in all(root)? {
        match rows(&page, &name) {
            1 => {}
            0 => findings.push(format!("{PAGE}: the mutant {name} has no row")),
            rows => findings.push(format!("{PAGE}: the mutant {name} has {rows} rows")),
        }
        if let Finder::Test(words) = &finder
            && !names_a_test(root, words)?
        {
            let words = words.join(" ");
            findings.push(format!("{PATCHES}/{name}.patch:1: no test has the name in `{words}`"));
        }
        if let Err(error) = apply(root, &patch, &["--check"]) {
            findings.push(format!(
                "{PATCHES}/{name}.patch:1: it does not apply: make it again for the present code: {error}"
            ));
        }
    }
    Ok(findings)
}

/// Counts the rows of a table that begin with a name.
fn rows(page: &str, name: &str) -> usize {
    let begin = format!("| {name} |");
    page.lines().filter(|line| line.starts_with(&begin)).count()
}

/// Whether the package has a function with the name, or the part of a name, at the end of the
/// words for `cargo test`.
fn names_a_test(root: &Path, words: &[String]) -> Result<bool> {
    let package = words.iter().skip_while(|it| *it != "-p").nth(1);
    let package = package.context("a test is of a package")?;
    let directory = package.strip_prefix("thunderhead-").unwrap_or("cli");
    let is_value = |before: &String| before == "-p" || before == "--test";
    match words {
        [.., before, last] if !is_value(before) && !last.starts_with('-') => {
            has_function(&root.join("crates").join(directory), last)
        }
        _ => Ok(true),
    }
}

/// Whether a source below a directory has a function whose name has this part.
fn has_function(directory: &Path, part: &str) -> Result<bool> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let found = if path.is_dir() {
            has_function(&path, part)?
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path)?;
            let mut names = text.split("fn ").skip(1).filter_map(|rest| rest.split('(').next());
            names.any(|name| name.contains(part))
        } else {
            false
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Applies a patch to a tree.
pub(super) fn apply(tree: &Path, patch: &Path, flags: &[&str]) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn rows_are_counted_by_whole_names() {
        let page = "| a | x |\n| a-b | y |\ntext | a |\n| a | z |";
        assert_eq!([rows(page, "a"), rows(page, "a-b"), rows(page, "b")], [2, 1, 0]);
    }

    #[test]
    fn a_head_names_the_promise_and_the_finder() {
        let (promise, finder) =
            head("A byte\ncounts.\nflags: --scenes\n\n--- a/x\ntest: y").unwrap();
        assert_eq!(promise, "A byte counts.");
        assert_eq!(finder, Finder::Swarm(words("--scenes")));
        let (_, finder) = head("It is so.\nflags:\n--- a/x").unwrap();
        assert_eq!(finder, Finder::Swarm(Vec::new()));
        let (promise, finder) = head("Of two: one.\ntest: -p thunderhead-log --lib it\n").unwrap();
        assert_eq!(promise, "Of two: one.");
        assert_eq!(finder, Finder::Test(words("-p thunderhead-log --lib it")));
    }

    #[test]
    fn a_patch_names_a_test_that_there_is() {
        let root = crate::steps::workspace();
        let names = |text: &str| names_a_test(&root, &words(text)).unwrap();
        assert!(names("-p thunderhead-backup --test os_world another_user"));
        assert!(names("-p thunderhead-backup --test os_world"));
        assert!(!names("-p thunderhead-backup --test os_world another_loser"));
        assert!(names("-p thunderhead --test dev one_server_that_backs_itself_up"));
    }

    #[test]
    fn a_head_needs_a_promise_and_exactly_one_finder() {
        for text in [
            "flags: --scenes\n--- a/x",
            "A promise.\n--- a/x\nflags: --scenes",
            "A promise.\nflags: --scenes\ntest: -p thunderhead-log\n--- a/x",
            "A promise.\ntest: --lib a_name\n--- a/x",
        ] {
            assert!(head(text).is_err(), "{text:?}");
        }
    }
}
