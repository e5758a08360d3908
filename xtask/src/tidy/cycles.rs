//! The check of arrows between the top-level modules of a crate: they form no cycle.
//!
//! Modules in a cycle can only be understood together. An arrow leads from the module of a path to
//! the module that the path names: `crate::memory::Memory` in `append/heads.rs` is an arrow from
//! `append` to `memory`. A name that the crate's root imports stands for its module. The root
//! itself, `lib.rs`, only has an arrow to it if a module uses an item that is written there.

use super::tokens::{Module, Token, modules};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

/// The crates that are checked.
const CRATES: [&str; 5] = ["bench", "coordinator", "load", "log", "master"];

/// The name of the crate's root.
pub(super) const ROOT: &str = "lib";

/// The arrows of a crate, each with one place in the code.
pub(super) type Arrows = BTreeMap<(String, String), String>;

/// Returns each arrow that is part of a cycle, as `crate: from -> to`, with a finding about it.
pub(super) fn found(root: &Path) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for name in CRATES {
        let modules = modules(root, &format!("crates/{name}/src/lib.rs"))?;
        let arrows = arrows(&modules);
        for ((from, to), place) in &arrows {
            if let Some(way) = way(&arrows, to, from) {
                let cycle = way.join(" -> ");
                let finding = format!("{place}: remove an arrow of this cycle: {from} -> {cycle}");
                found.push((format!("{name}: {from} -> {to}"), finding));
            }
        }
    }
    Ok(found)
}

/// Returns the modules of the shortest way along arrows from one module to another.
fn way<'a>(arrows: &'a Arrows, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    // Each module with the one before it on the way.
    let mut before = BTreeMap::from([(from, from)]);
    let mut next = VecDeque::from([from]);
    while let Some(module) = next.pop_front() {
        if module == to {
            let mut way = vec![module];
            while let Some(last) = way.last().filter(|last| **last != from) {
                way.push(before[last]);
            }
            way.reverse();
            return Some(way);
        }
        for (_, end) in arrows.keys().filter(|(start, _)| start == module) {
            before.entry(end.as_str()).or_insert_with(|| {
                next.push_back(end);
                module
            });
        }
    }
    None
}

/// Returns the arrows between top-level modules.
pub(super) fn arrows(modules: &[Module]) -> Arrows {
    let tops: BTreeSet<&str> =
        modules.iter().filter_map(|it| it.path.first()).map(String::as_str).collect();
    let root = modules.iter().find(|it| it.path.is_empty());
    let imports = root.map(|it| imports(&it.tokens)).unwrap_or_default();
    let mut arrows = Arrows::new();
    for module in modules {
        let Some(from) = module.path.first() else { continue };
        for (path, line) in paths(&module.path, &module.tokens) {
            let Some(first) = path.first().map(String::as_str) else { continue };
            // An import of the root stands for the first name of its own path.
            let first = match imports.get(first) {
                Some(imported) if !tops.contains(first) => imported,
                _ => first,
            };
            let to = if tops.contains(first) { first } else { ROOT };
            let is_foreign = to == ROOT && imports.values().any(|it| it == first);
            if to != from && !is_foreign {
                let place = || format!("{}:{line}", module.file);
                arrows.entry((from.clone(), to.to_owned())).or_insert_with(place);
            }
        }
    }
    // The root declares all modules.
    if let Some(root) = root
        && arrows.keys().any(|(_, to)| to == ROOT)
    {
        let to_each = tops.iter().map(|top| (ROOT.to_owned(), (*top).to_owned()));
        arrows.extend(to_each.map(|arrow| (arrow, format!("{}:1", root.file))));
    }
    arrows
}

/// Returns the first name of the path of each name that the root imports.
fn imports(root: &[Token]) -> BTreeMap<String, String> {
    let mut imports = BTreeMap::new();
    for at in (0..root.len()).filter(|at| root[*at].text == "use") {
        let mut leaves = Vec::new();
        read_tree(root, at + 1, &mut Vec::new(), &mut leaves);
        for path in leaves {
            if let [first, ..] = path.as_slice()
                && let Some(name) = path.last()
            {
                imports.insert(name.clone(), first.clone());
            }
        }
    }
    imports
}

/// Returns the paths that begin with `crate`, `self` or `super`, from the crate's root on, with
/// their lines.
fn paths(module: &[String], tokens: &[Token]) -> Vec<(Vec<String>, usize)> {
    let text = |at: usize| tokens.get(at).map_or("", |it| it.text.as_str());
    let mut paths = Vec::new();
    // The modules that are written in this file, each with the depth of its braces.
    let mut inner: Vec<(String, usize)> = Vec::new();
    let mut depth = 0;
    for at in 0..tokens.len() {
        match text(at) {
            "{" => {
                if at >= 2 && text(at - 2) == "mod" {
                    inner.push((text(at - 1).to_owned(), depth));
                }
                depth += 1;
            }
            "}" => {
                depth = depth.saturating_sub(1);
                inner.pop_if(|(_, its)| *its == depth);
            }
            start @ ("crate" | "self" | "super") => {
                let begins = text(at + 1) == "::" && (at == 0 || text(at - 1) != "::");
                if !begins {
                    continue;
                }
                let mut base: Vec<String> = Vec::new();
                if start != "crate" {
                    base.extend(module.iter().cloned());
                    base.extend(inner.iter().map(|(name, _)| name.clone()));
                }
                let mut leaves = Vec::new();
                read_tree(tokens, at, &mut base, &mut leaves);
                paths.extend(leaves.into_iter().map(|path| (path, tokens[at].line)));
            }
            _ => {}
        }
    }
    paths
}

/// Reads a path, or a tree of them between braces, and adds each path to `leaves`. `prefix` stands
/// before all of them. Returns the index behind the tree.
fn read_tree(
    tokens: &[Token],
    mut at: usize,
    prefix: &mut Vec<String>,
    leaves: &mut Vec<Vec<String>>,
) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |it| it.text.as_str());
    let length = prefix.len();
    loop {
        match text(at) {
            "crate" | "self" => {}
            "super" => {
                prefix.pop();
            }
            "{" => {
                at += 1;
                while !["}", ""].contains(&text(at)) {
                    at = if text(at) == "," {
                        at + 1
                    } else {
                        read_tree(tokens, at, prefix, leaves)
                    };
                }
                at += 1;
                break;
            }
            name if is_name(name) => prefix.push(name.to_owned()),
            // `*`, or generic arguments.
            _ => {
                leaves.push(prefix.clone());
                at += 1;
                break;
            }
        }
        at += 1;
        if text(at) == "as" {
            // The root's imports go by this name.
            prefix.push(text(at + 1).to_owned());
            leaves.push(prefix.clone());
            at += 2;
            break;
        }
        if text(at) != "::" {
            leaves.push(prefix.clone());
            break;
        }
        at += 1;
    }
    prefix.truncate(length);
    at
}

fn is_name(text: &str) -> bool {
    text.starts_with(|it: char| it.is_alphabetic() || it == '_')
}

#[cfg(test)]
mod tests {
    use super::super::tokens::{tokens, without_tests};
    use super::*;

    /// The cyclic arrows between modules, given by their paths and sources.
    fn found(sources: &[(&str, &str)]) -> Vec<String> {
        let module = |(path, source): &(&str, &str)| Module {
            path: path.split("::").filter(|it| !it.is_empty()).map(str::to_owned).collect(),
            file: format!("{path}.rs"),
            tokens: without_tests(&tokens(source)),
        };
        let modules: Vec<Module> = sources.iter().map(module).collect();
        let arrows = arrows(&modules);
        let cyclic = arrows.keys().filter(|(from, to)| way(&arrows, to, from).is_some());
        cyclic.map(|(from, to)| format!("{from} -> {to}")).collect()
    }

    #[test]
    fn the_shortest_way_is_named() {
        let arrow = |(from, to): (&str, &str)| ((from.to_owned(), to.to_owned()), String::new());
        let all = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("b", "d"), ("d", "e")];
        let arrows = Arrows::from(all.map(arrow));
        assert_eq!(way(&arrows, "b", "a").unwrap(), ["b", "d", "a"]);
        assert_eq!(way(&arrows, "a", "a").unwrap(), ["a"]);
        assert_eq!(way(&arrows, "e", "a"), None);
    }

    const BOTH: [&str; 2] = ["a -> b", "b -> a"];

    #[test]
    fn arrows_that_lead_down_are_no_cycle() {
        let root = ("", "mod a; mod b; mod c; pub use a::A; pub use other::{B, C};");
        let a = ("a", "use crate::b::B; use crate::{c, C}; fn f() { self::x::y(); super::b::z() }");
        assert_eq!(
            found(&[root, a, ("b", "use crate::c;"), ("c", "use crate::B; c::crate_::a")]),
            [""; 0]
        );
    }

    #[test]
    fn cycles_are_found_for_every_form_of_path() {
        let root = ("", "mod a; mod b; pub use crate::a::{A, Old as New};");
        let a = ("a", "use crate::b::B;");
        for b in [
            "use crate::a::X;",
            "use crate::{c::C, a};",
            "use crate::{x::{y, z}, a::X as Y};",
            "use super::a::*;",
            "use crate::A;",
            "use crate::New;",
            "fn f(x: crate::a::X<u8>) {}",
            "mac!(crate::a::X);",
            "mod inner { use super::super::a::X; }",
        ] {
            assert_eq!(found(&[root, a, ("b", b), ("c", ""), ("x", "")]), BOTH, "{b}");
        }
        assert_eq!(found(&[root, a, ("b", ""), ("b::deep", "use super::super::a::X;")]), BOTH);
    }

    #[test]
    fn the_module_itself_its_children_and_tests_are_no_arrows() {
        let root = ("", "mod a; mod b;");
        let a = ("a", "use crate::b::B;");
        for b in [
            "#[cfg(test)] mod tests { use crate::a::X; }",
            "// crate::a::X\nfn f() { \"crate::a::X\" }",
            "use crate::b::X; use self::a::Y; mod inner { use super::a::X; }",
        ] {
            assert_eq!(found(&[root, a, ("b", b)]), [""; 0], "{b}");
        }
    }

    #[test]
    fn a_long_cycle_and_a_cycle_through_the_root_are_found() {
        let root = ("", "mod a; mod b; mod c; mod d; struct Item;");
        let (a, b) = (("a", "use crate::b;"), ("b", "use crate::c;"));
        let all = ["a -> b", "b -> c", "c -> a"];
        assert_eq!(found(&[root, a, b, ("c", "use crate::{a, d};"), ("d", "")]), all);
        assert_eq!(found(&[root, ("a", "use crate::Item;")]), ["a -> lib", "lib -> a"]);
    }
}
