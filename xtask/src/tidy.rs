//! House rules that no other tool checks. Every finding names its place and the next step.

mod cycles;
mod edges;
mod layers;
mod predicates;
mod ratchet;
mod tokens;

use crate::pages;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines that a source file may have without saying at its top why it is longer.
const LINES_MAX: usize = 800;

/// Today's predicates that change something or return no `bool`; see [`predicates`].
const PREDICATES: &str = "xtask/predicates.txt";

/// Today's arrows between modules that are part of a cycle; see [`cycles`].
const CYCLES: &str = "xtask/cycles.txt";

/// Checks the whole tree.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut findings = Vec::new();
    let files = tracked(root)?;
    let notes = fs::read_to_string(root.join("docs/notes.md")).unwrap_or_default();
    for path in &files {
        let Ok(text) = fs::read_to_string(root.join(path)) else { continue };
        let name = path.display().to_string();
        if name.ends_with(".rs") {
            source(&name, &text, &notes, &mut findings);
            if !is_reachable(path, &files, root) {
                findings
                    .push(format!("{name}:1: no module declares this file: declare or delete it"));
            }
        }
        if name.ends_with(".md") {
            links(root, path, &text, &mut findings);
        }
        machine_paths(&name, &text, &mut findings);
    }
    findings.extend(edges::findings(root)?);
    findings.extend(layers::findings(root)?);
    let ratchets = [
        (PREDICATES, predicates::found(root, &crate_roots(&files))?),
        (CYCLES, cycles::found(root)?),
    ];
    for (list, found) in ratchets {
        let text = fs::read_to_string(root.join(list)).with_context(|| format!("read {list}"))?;
        findings.extend(ratchet::findings(list, &text, found));
    }
    architecture(root, &mut findings);
    format_version(root, &mut findings);
    protocol(root, &mut findings);
    findings.extend(crate::book::findings(root, &files)?);
    findings.extend(crate::mutants::findings(root)?);
    findings.extend(crate::words::findings(root, &files)?);
    findings.extend(crate::commits::findings(root)?);
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    println!("{} files are tidy", files.len());
    Ok(())
}

/// The files of the tree, as git knows them.
pub(crate) fn tracked(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("tidy asks git for the files")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().map(PathBuf::from).filter(|path| root.join(path).exists()).collect())
}

fn source(name: &str, text: &str, notes: &str, findings: &mut Vec<String>) {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
    if !first.starts_with("//!") {
        findings.push(format!("{name}:1: describe this file with //!"));
    }
    let lines = text.lines().count();
    let says_why = text.lines().take_while(|line| line.starts_with("//!"));
    if lines > LINES_MAX && !says_why.into_iter().any(|line| line.contains("Long because")) {
        findings
            .push(format!("{name}:1: {lines} lines: split it, or say \"Long because …\" on top"));
    }
    // Spelled in halves so that this file does not find itself.
    let words = [["todo", "!("], ["unimplemented", "!("], ["dbg", "!("], ["#[ign", "ore"]];
    for (number, line) in text.lines().enumerate() {
        for word in words.map(|halves| halves.concat()) {
            if line.contains(&word) {
                findings.push(format!("{name}:{}: finish the work that {word} marks", number + 1));
            }
        }
        if let Some((_, rest)) = line.split_once("See note \"")
            && let Some((note, _)) = rest.split_once('"')
            && !notes.lines().any(|heading| heading.starts_with('#') && heading.contains(note))
        {
            findings.push(format!("{name}:{}: docs/notes.md has no note {note}", number + 1));
        }
    }
}

/// Whether a file is a crate's root or declared by the module above it.
fn is_reachable(path: &Path, files: &[PathBuf], root: &Path) -> bool {
    let (Some(stem), Some(folder)) = (path.file_stem().and_then(|s| s.to_str()), path.parent())
    else {
        return true;
    };
    let folder_name = folder.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let is_root = ["lib", "main", "build"].contains(&stem);
    if is_root || ["tests", "examples", "benches", "fuzz_targets"].contains(&folder_name) {
        return true;
    }
    let manifest = fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap_or_default();
    if manifest.contains(&format!("path = \"{stem}.rs\"")) {
        return true;
    }
    if stem == "mod" {
        // A module that several tests or examples share is declared by a file beside its folder.
        let declaration = format!("mod {folder_name};");
        let mut beside = files.iter().filter(|file| file.parent() == folder.parent());
        return beside.any(|file| {
            fs::read_to_string(root.join(file)).is_ok_and(|text| text.contains(&declaration))
        });
    }
    let parents = ["lib.rs", "main.rs", "mod.rs"].map(|name| folder.join(name));
    let above = folder.with_extension("rs");
    let declaration = format!("mod {stem};");
    parents.iter().chain([&above]).filter(|parent| files.contains(parent)).any(|parent| {
        fs::read_to_string(root.join(parent)).is_ok_and(|text| text.contains(&declaration))
    })
}

/// Relative links lead to a file, and in a page to a heading.
fn links(root: &Path, path: &Path, text: &str, findings: &mut Vec<String>) {
    let folder = path.parent().unwrap_or(Path::new(""));
    for link in pages::links(text) {
        let Some(target) = link.path() else { continue };
        let is_here = target.is_empty();
        let file = if is_here { path.to_path_buf() } else { pages::resolve(folder, target) };
        let place = format!("{}:{}", path.display(), link.line);
        if !is_here && !root.join(&file).exists() {
            findings.push(format!("{place}: {target} does not exist"));
        } else if let Some(anchor) = link.anchor()
            && file.extension().is_some_and(|it| it == "md")
        {
            let page = fs::read_to_string(root.join(&file)).unwrap_or_default();
            let page = if is_here { text } else { &page };
            if !pages::anchors(page).contains(anchor) {
                findings.push(format!("{place}: {} has no heading #{anchor}", file.display()));
            }
        }
    }
}

fn machine_paths(name: &str, text: &str, findings: &mut Vec<String>) {
    let words = [["/ho", "me/"], ["/ro", "ot/"], ["/wo", "rk/"]].map(|halves| halves.concat());
    for (number, line) in text.lines().enumerate() {
        if words.iter().any(|word| line.contains(word)) {
            findings.push(format!("{name}:{}: names a path of one machine", number + 1));
        }
    }
}

/// The roots of the production code: the library or the program of each crate.
fn crate_roots(files: &[PathBuf]) -> Vec<String> {
    let names = files.iter().map(|path| path.display().to_string());
    let is_root = |name: &String| {
        let is_ours = name.starts_with("crates/") || name.starts_with("xtask/");
        is_ours && (name.ends_with("/src/lib.rs") || name.ends_with("/src/main.rs"))
    };
    names.filter(is_root).collect()
}

/// Lines that `ARCHITECTURE.md` may have: it is read in one sitting.
const ARCHITECTURE_LINES_MAX: usize = 400;

/// `ARCHITECTURE.md` is short, and names every crate and no other.
fn architecture(root: &Path, findings: &mut Vec<String>) {
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    let crates = fs::read_dir(root.join("crates"))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    architecture_of(&text, &crates, findings);
}

fn architecture_of(text: &str, crates: &BTreeSet<String>, findings: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > ARCHITECTURE_LINES_MAX {
        let advice = "move reasons to docs/design and gaps to docs/limitations.md";
        findings.push(format!(
            "ARCHITECTURE.md:1: {lines} lines, {ARCHITECTURE_LINES_MAX} allowed: {advice}"
        ));
    }
    for name in crates.iter().filter(|name| !text.contains(&format!("crates/{name}"))) {
        findings.push(format!("ARCHITECTURE.md:1: describe crates/{name}"));
    }
    for part in text.split("crates/").skip(1) {
        let name =
            part.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap_or("");
        if !name.is_empty() && !crates.contains(name) {
            findings.push(format!("ARCHITECTURE.md:1: crates/{name} does not exist"));
        }
    }
}

/// A changed format comes with its document.
fn format_version(root: &Path, findings: &mut Vec<String>) {
    let document = fs::read_to_string(root.join("docs/format.md")).unwrap_or_default();
    let formats = [
        ("crates/log/src/format/entry.rs", "Format version"),
        ("crates/backup/src/layout.rs", "Storage format version"),
    ];
    for (path, words) in formats {
        let code = fs::read_to_string(root.join(path)).unwrap_or_default();
        let version =
            code.split("FORMAT_VERSION: u16 = ").nth(1).and_then(|rest| rest.split(';').next());
        if let Some(version) = version
            && !document.lines().any(|line| line == format!("{words}: {version}"))
        {
            findings.push(format!("docs/format.md:1: must say \"{words}: {version}\""));
        }
    }
}

/// Operations are in the protocol's document, by number and name, and so is its version.
fn protocol(root: &Path, findings: &mut Vec<String>) {
    let document = fs::read_to_string(root.join("docs/protocol.md")).unwrap_or_default();
    let code = fs::read_to_string(root.join("crates/rpc/src/opcode.rs")).unwrap_or_default();
    for line in code.lines().filter(|line| line.contains(", level ") && line.contains(" = ")) {
        let parts: Vec<&str> = line.split(['=', ',']).map(str::trim).collect();
        let [_, code, name, ..] = parts.as_slice() else { continue };
        let row = format!("| {code} | {} |", name.trim_matches('"'));
        if !code.starts_with('$') && !document.contains(&row) {
            findings.push(format!("docs/protocol.md:1: must have a row \"{row}\""));
        }
    }
    let code = fs::read_to_string(root.join("crates/wire/src/frame.rs")).unwrap_or_default();
    let newest = code
        .split("RangeInclusive<u16> = ")
        .nth(1)
        .and_then(|rest| rest.split(';').next()?.split("..=").nth(1));
    if let Some(version) = newest
        && !document.contains(&format!("Protocol version: {version}"))
    {
        findings.push(format!("docs/protocol.md:1: must say \"Protocol version: {version}\""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        source("x.rs", text, "# Known note\n", &mut findings);
        findings
    }

    #[test]
    fn a_file_says_what_it_is() {
        assert!(found("//! It is this.\n").is_empty());
        assert_eq!(found("fn f() {}\n").len(), 1);
    }

    #[test]
    fn unfinished_work_is_found() {
        let line = ["    todo", "!()"].concat();
        assert_eq!(found(&format!("//! A.\n{line}\n")).len(), 1);
    }

    #[test]
    fn a_long_file_gives_its_reason() {
        let body = "x\n".repeat(LINES_MAX);
        assert_eq!(found(&format!("//! A.\n{body}")).len(), 1);
        assert!(found(&format!("//! Long because of tables.\n{body}")).is_empty());
    }

    #[test]
    fn a_note_that_is_cited_exists() {
        assert!(found("//! See note \"Known note\".\n").is_empty());
        assert_eq!(found("//! See note \"Other\".\n").len(), 1);
    }
    #[test]
    fn a_relative_link_leads_to_a_file_and_a_heading() {
        let root = crate::steps::workspace();
        let found = |text: &str| {
            let mut findings = Vec::new();
            links(&root, Path::new("docs/x.md"), text, &mut findings);
            findings
        };
        let good =
            "# Here\n[a](../README.md#start) [b](../xtask) [c](#here) [d](https://x.example/#y)\n";
        assert_eq!(found(good), [""; 0]);
        assert_eq!(found("\n[a](no.md)\n"), ["docs/x.md:2: no.md does not exist"]);
        assert_eq!(found("[a](#no)\n"), ["docs/x.md:1: docs/x.md has no heading #no"]);
        let expected = ["docs/x.md:1: README.md has no heading #no"];
        assert_eq!(found("[a](../README.md#no)\n"), expected);
    }

    #[test]
    fn the_architecture_page_is_short_and_names_every_crate_and_no_other() {
        let crates = BTreeSet::from(["log".to_owned()]);
        let found = |text: &str| {
            let mut findings = Vec::new();
            architecture_of(text, &crates, &mut findings);
            findings
        };
        let line = "See crates/log.\n";
        assert_eq!(found(&line.repeat(ARCHITECTURE_LINES_MAX)), [""; 0]);
        assert!(found(&line.repeat(ARCHITECTURE_LINES_MAX + 1))[0].contains("401 lines"));
        assert_eq!(found("No crate.\n"), ["ARCHITECTURE.md:1: describe crates/log"]);
        let expected = ["ARCHITECTURE.md:1: crates/net does not exist"];
        assert_eq!(found("See crates/log, crates/net.\n"), expected);
    }
}
