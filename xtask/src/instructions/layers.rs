//! The instructions of an operation by layer. An instruction belongs to the file of its source,
//! wherever it was inlined.
//!
//! Here callgrind counts only within the functions of the shard's side (`--toggle-collect`), and
//! names the file of each instruction. Instructions of libraries count for the layer of the calling
//! function, except for a few libraries that are layers of their own.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// The layers in the order of a request's way, with the places of each. The first match counts.
const LAYERS: [(&str, &[&str]); 11] = [
    ("copying", &["memmove", "memcpy", "memset"]),
    ("checksums", &["crc_fast", "crc-fast"]),
    ("hashes", &["xxhash", "siphash", "hash/sip", "hashbrown"]),
    ("memory of the heap", &["malloc", "alloc/src/alloc.rs", "raw_vec"]),
    ("index", &["log/src/index", "log/src/prefetch"]),
    (
        "exactly once",
        &[
            "log/src/append/completions",
            "log/src/append/groups",
            "log/src/format/outcomes",
            "master/src/clients",
            "master/src/outcome",
        ],
    ),
    ("cleaner", &["log/src/cleaner", "log/src/append/candidates", "log/src/memory/quiescence"]),
    ("replay", &["log/src/restore", "log/src/format/inspect", "log/src/append/adopt"]),
    ("log and entries", &["log/src"]),
    ("operations", &["master/src"]),
    ("messages", &["rpc/src", "wire/src", "net/src", "runtime/src"]),
];

/// The layer of all other instructions.
const REST: &str = "other";

/// The instructions of each layer.
pub(super) type Layers = BTreeMap<&'static str, f64>;

/// Returns the names of all layers, in their order.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    LAYERS.iter().map(|(name, _)| *name).chain([REST])
}

/// Sums up the costs by layer. In callgrind's format, a file (`fl=`, `fi=` or `fe=`) and a function
/// (`fn=`) hold for the following lines, each of which has a position and its costs. The line after
/// `calls=` has the costs of the called function, which are also listed under that function, so it
/// does not count here. Names are numbers from the second time on.
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

/// Returns a name, or the name that was given with its number.
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

/// Returns the file of one of our functions, guessed from its name.
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

/// Returns the table of layers, with a column for each operation.
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
    fn inlined_instructions_count_for_the_file_of_their_source() {
        let text = "fl=(1) crates/log/src/append/write.rs\nfn=(1) thunderhead_log::append::write::put\n10 5 1\n\
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
