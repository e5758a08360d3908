//! Where the instructions of an operation go: by the file that they were written in, wherever they were inlined.
//!
//! Callgrind counts within the functions of the shard's side alone here (`--toggle-collect`) and says of which file each
//! instruction is. What comes from libraries counts for the layer whose function it is in, but for a few
//! that are layers of their own.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Layers in the order of a request's way, and the places that belong to each: the first that fits counts.
const LAYERS: [(&str, &[&str]); 11] = [
    ("copying", &["memmove", "memcpy", "memset"]),
    ("checksums", &["crc_fast", "crc-fast"]),
    ("hashes", &["xxhash", "siphash", "hash/sip", "hashbrown"]),
    ("memory of the heap", &["malloc", "alloc/src/alloc.rs", "raw_vec"]),
    ("index", &["log/src/index", "log/src/prefetch"]),
    (
        "exactly once",
        &[
            "log/src/log/completions",
            "log/src/log/groups",
            "log/src/outcomes",
            "master/src/clients",
            "master/src/outcome",
        ],
    ),
    ("cleaner", &["log/src/cleaner", "log/src/quiescence"]),
    ("replay", &["log/src/replay", "log/src/inspect", "log/src/log/adopt"]),
    ("log and entries", &["log/src"]),
    ("operations", &["master/src"]),
    ("messages", &["rpc/src", "wire/src", "net/src", "runtime/src"]),
];

/// What is none of them.
const REST: &str = "other";

/// Instructions by layer.
pub(super) type Layers = BTreeMap<&'static str, f64>;

/// The names of all layers, in their order.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    LAYERS.iter().map(|(name, _)| *name).chain([REST])
}

/// Sums up what instructions took by layer, in callgrind's format: a file (`fl=`, `fi=` or `fe=`) and a function (`fn=`)
/// hold for the lines that follow, each a position and its costs. The line behind `calls=` is of what was called, which is told
/// by itself. Names are numbers from the second time on.
pub(super) fn of(text: &str) -> Layers {
    let (mut files, mut functions) = (HashMap::new(), HashMap::new());
    let (mut file, mut function, mut is_call) = ("", "", false);
    let mut layers = Layers::new();
    for line in text.lines() {
        if let Some(name) = ["fl=", "fi=", "fe="].iter().find_map(|key| line.strip_prefix(key)) {
            file = named(&mut files, name);
        } else if let Some(name) = line.strip_prefix("fn=") {
            function = named(&mut functions, name);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            named(&mut functions, name);
        } else if let Some(name) = line.strip_prefix("cfi=").or(line.strip_prefix("cfl=")) {
            named(&mut files, name);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<f64>().ok());
            if !std::mem::take(&mut is_call) {
                *layers.entry(layer(file, function)).or_default() += cost.unwrap_or(0.0);
            }
        }
    }
    layers
}

/// A name, or what its number was given as.
fn named<'a>(known: &mut HashMap<&'a str, &'a str>, name: &'a str) -> &'a str {
    match name.split_once(' ') {
        Some((number, name)) => {
            known.insert(number, name);
            name
        }
        None => known.get(name).copied().unwrap_or(name),
    }
}

fn layer(file: &str, function: &str) -> &'static str {
    let of_file = LAYERS.iter().find(|(_, places)| places.iter().any(|place| file.contains(place)));
    if let Some((name, _)) = of_file {
        return name;
    }
    let place = module(function);
    let of_function = LAYERS
        .iter()
        .find(|(_, places)| places.iter().any(|it| place.contains(it) || function.contains(it)));
    of_function.map_or(REST, |(name, _)| *name)
}

/// The file that a function of ours would be in, after its name.
fn module(function: &str) -> String {
    let Some((_, ours)) = function.split_once("thunderhead_") else { return String::new() };
    let path: Vec<&str> = ours
        .split("::")
        .map(|part| part.trim_matches(|it: char| !it.is_alphanumeric() && it != '_'))
        .take_while(|part| part.starts_with(|first: char| first.is_ascii_lowercase()))
        .collect();
    match path.split_first() {
        Some((name, rest)) => format!("{name}/src/{}", rest.join("/")),
        None => String::new(),
    }
}

/// A table of layers, for each operation.
pub(super) fn table(rows: &[(String, Layers)]) -> String {
    let mut text = String::from("| of which |");
    for (name, _) in rows {
        let _ = write!(text, " {name} |");
    }
    let _ = writeln!(text, "\n| --- |{}", " --- |".repeat(rows.len()));
    for layer in names() {
        let counts: Vec<f64> =
            rows.iter().map(|(_, layers)| layers.get(layer).copied().unwrap_or(0.0)).collect();
        if counts.iter().all(|count| *count < 0.5) {
            continue;
        }
        let _ = write!(text, "| {layer} |");
        for count in counts {
            let _ = write!(text, " {count:.0} |");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inlined_counts_where_it_was_written() {
        let text = "fl=(1) crates/log/src/log/write.rs\nfn=(1) thunderhead_log::log::write::put\n10 5 1\n\
                    fi=(2) crates/log/src/index.rs\n20 7\nfe=(1)\n11 1\n\
                    cfi=(3) crates/master/src/clients.rs\ncfn=(2) thunderhead_master::clients::Clients::meet\n\
                    calls=1 3\n12 900\n+1 2\n\
                    fl=(3)\nfn=(2)\n30 40\nfi=(4) /rustc/1/library/core/src/ops.rs\n31 4\n\
                    fl=(5) ./malloc.c\nfn=(3) _int_malloc\n9 6\n\
                    fl=(4)\nfn=(4) <thunderhead_net::os::OsTransport as thunderhead_net::Transport>::poll\n1 3\n\
                    fl=(6) ???\nfn=(5) crc_fast::crc32::update\n2 8\n\
                    fl=(6)\nfn=(6) _start\n2 1\n";
        let expected = [
            ("log and entries", 8.0),
            ("index", 7.0),
            ("exactly once", 44.0),
            ("memory of the heap", 6.0),
            ("messages", 3.0),
            ("checksums", 8.0),
            (REST, 1.0),
        ];
        assert_eq!(of(text), expected.into_iter().collect());
        let table = table(&[("read".into(), of(text)), ("write".into(), Layers::new())]);
        assert!(table.starts_with("| of which | read | write |\n| --- | --- | --- |\n"), "{table}");
        assert!(table.contains("| index | 7 | 0 |\n") && !table.contains("copying"), "{table}");
    }
}
