//! The check that a crate's modules use only modules of lower layers.
//!
//! The layers are the picture in the documentation of the crate's root: the first block of text
//! after a line with the word "layers". Each line begins with the modules of a layer, the highest
//! layer first. Two spaces end the names. The name `…` in the last line stands for all other
//! modules, which may use one another without cycles (see [`super::cycles`]).

use super::cycles::{Arrows, ROOT, arrows};
use super::tokens::modules;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The crates that are checked.
const CRATES: [&str; 3] = ["coordinator", "log", "master"];

/// The name that stands for all other modules.
const OTHERS: &str = "…";

/// Returns the arrows that do not lead down, and the differences between picture and modules.
pub(super) fn findings(root: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for name in CRATES {
        let file = format!("crates/{name}/src/lib.rs");
        let text = fs::read_to_string(root.join(&file)).with_context(|| format!("read {file}"))?;
        let modules = modules(root, &file)?;
        let tops: BTreeSet<&str> =
            modules.iter().filter_map(|it| it.path.first()).map(String::as_str).collect();
        findings.extend(faults(&file, &layers(&text), &tops, &arrows(&modules)));
    }
    Ok(findings)
}

/// Returns the names of each layer in the picture, the highest layer first.
fn layers(source: &str) -> Vec<Vec<&str>> {
    let doc = source.lines().filter_map(|line| line.strip_prefix("//!"));
    let after = doc.skip_while(|line| !line.to_lowercase().contains("layers"));
    let block = after.skip_while(|line| line.trim() != "```text").skip(1);
    let lines = block.map(str::trim).take_while(|line| *line != "```");
    lines.map(|line| line.split("  ").next().unwrap_or(line).split(", ").collect()).collect()
}

fn faults(file: &str, layers: &[Vec<&str>], tops: &BTreeSet<&str>, arrows: &Arrows) -> Vec<String> {
    if layers.is_empty() {
        return vec![format!("{file}:1: draw the layers of the crate's modules")];
    }
    let mut faults = Vec::new();
    let mut depths = BTreeMap::new();
    for (depth, names) in layers.iter().enumerate() {
        for name in names.iter().filter(|name| **name != OTHERS) {
            if !tops.contains(name) {
                faults.push(format!("{file}:1: the layers have {name}, which is no module"));
            }
            if depths.insert(*name, depth).is_some() {
                faults.push(format!("{file}:1: the layers have {name} twice"));
            }
        }
    }
    let has_others = layers.last().is_some_and(|names| names.contains(&OTHERS));
    let depth = |name: &str| match depths.get(name) {
        Some(depth) => Some(*depth),
        None => has_others.then_some(layers.len() - 1),
    };
    for name in tops.iter().filter(|name| depth(name).is_none()) {
        faults.push(format!("{file}:1: the layers lack the module {name}"));
    }
    for ((from, to), place) in arrows.iter().filter(|((from, to), _)| from != ROOT && to != ROOT) {
        let (Some(above), Some(below)) = (depth(from), depth(to)) else { continue };
        let is_among_others = has_others && above == layers.len() - 1;
        if above >= below && !(above == below && is_among_others) {
            faults.push(format!(
                "{place}: {from} uses {to}, which is no lower layer in the picture of {file}: \
                 move the code, or correct the picture"
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! A crate.\n//!\n//! ```text\n//! other picture\n//! ```\n//!\n\
                          //! Its layers:\n//!\n//! ```text\n//!   top          all of it\n\
                          //!   left, right  parts\n//!   base, …      the rest\n//! ```\n\
                          //!\n//! ```text\n//! a third\n//! ```\nmod top;";

    /// The faults of arrows between modules `top`, `left`, `right`, `base` and `odd`.
    fn found(source: &str, arrows: &[(&str, &str)]) -> Vec<String> {
        let tops = BTreeSet::from(["top", "left", "right", "base", "odd"]);
        let arrow = |(from, to): &(&str, &str)| {
            ((from.to_string(), to.to_string()), format!("{from}.rs:1"))
        };
        faults("lib.rs", &layers(source), &tops, &arrows.iter().map(arrow).collect())
    }

    #[test]
    fn the_picture_is_the_first_block_of_text_after_the_word_layers() {
        assert_eq!(layers(SOURCE), [vec!["top"], vec!["left", "right"], vec!["base", OTHERS]]);
        assert!(layers("//! A crate.\n//! ```text\n//! picture\n//! ```").is_empty());
    }

    #[test]
    fn arrows_lead_down() {
        let down = [("top", "base"), ("top", "left"), ("right", "odd"), ("base", "odd")];
        assert_eq!(found(SOURCE, &down), [""; 0]);
        for (from, to) in [("left", "top"), ("left", "right"), ("odd", "left"), ("base", "top")] {
            let found = found(SOURCE, &[(from, to)]);
            assert!(found[0].starts_with(&format!("{from}.rs:1: {from} uses {to},")), "{found:?}");
            assert_eq!(found.len(), 1);
        }
    }

    #[test]
    fn each_module_has_one_place_in_the_picture() {
        let changed = |from: &str, to: &str| found(&SOURCE.replace(from, to), &[]);
        let faults = |texts: &[&str]| -> Vec<String> {
            texts.iter().map(|text| format!("lib.rs:1: the layers {text}")).collect()
        };
        assert_eq!(changed("base, …", "base"), faults(&["lack the module odd"]));
        assert_eq!(changed("base", "basis"), faults(&["have basis, which is no module"]));
        assert_eq!(changed("left, right", "left, right, top"), faults(&["have top twice"]));
        assert_eq!(found("//! A crate.", &[]).len(), 1);
    }
}
