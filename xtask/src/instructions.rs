//! `cargo xtask instructions`: counts the instructions of each operation, and compares them with
//! the table in `docs/evaluation/instructions.md`.
//!
//! Times on a shared machine say little. Instructions are nearly the same every time: single runs
//! differ by up to 3 %, because hashes have random seeds and the clock is read when time has
//! passed. Each count is the median of several runs. `thunderhead-bench instructions` does the work
//! on one thread, and callgrind counts. The cost of an operation is the difference between two runs
//! with different numbers of operations. The counts are valid for one compiler and one kind of
//! processor, which the table names. With another compiler, `--update` writes the table anew.

mod layers;

use crate::steps::{between, build_programs, install, program};
use anyhow::{Context, Result, bail, ensure};
use layers::Layers;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The program with the counted functions.
const PROGRAM: &str = "thunderhead-bench";

/// The page with the recorded counts.
const TABLE: &str = "docs/evaluation/instructions.md";

/// The lines before and after the table.
const BEGIN: &str = "<!-- counts: cargo xtask instructions --update -->";
const END: &str = "<!-- end of counts -->";

/// The lines before and after the table of layers.
const LAYERS_BEGIN: &str = "<!-- layers: cargo xtask instructions --update -->";
const LAYERS_END: &str = "<!-- end of layers -->";

/// The names of the counted functions, and the side of each.
const COUNTED: [(&str, Side); 5] = [
    ("counted_server", Side::Shard),
    ("counted_replay", Side::Shard),
    ("counted_take_back", Side::Shard),
    ("counted_clean", Side::Shard),
    ("counted_client", Side::Client),
];

/// The number of objects in the two runs of each operation.
const OBJECTS: [u64; 2] = [2_100, 9_100];

/// Each count is the median of so many.
const REPEATS: usize = 3;

/// The largest difference from the table, in percent. More is a regression. With less the table
/// must be written anew, because otherwise a later regression up to the old count would not be
/// found.
const TOLERANCE_PERCENT: f64 = 5.0;

/// A difference of so few instructions does not count: a hash or a timer causes it by chance.
const TOLERANCE: f64 = 8.0;

/// A difference of so few calls of the kernel does not count: the clock is read anew when time has
/// passed, which depends on the machine. One more call for each operation is found.
const TOLERANCE_CALLS: f64 = 0.75;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Shard,
    Client,
}

/// The instructions of an operation and the shard's calls of the kernel, for each object.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    shard: f64,
    client: f64,
    calls: f64,
}

/// A line of the table.
struct Row {
    name: String,
    description: String,
    counts: Counts,
}

/// Counts, and compares with the table or writes the table.
pub(crate) fn instructions(update: bool) -> Result<()> {
    if !Path::new("/usr/bin/valgrind").exists() {
        install(&["valgrind"]).context("callgrind counts; as root: apt-get install valgrind")?;
    }
    build_programs()?;
    let rows = measure()?;
    let text = std::fs::read_to_string(TABLE).with_context(|| format!("read {TABLE}"))?;
    if update {
        let text = between(&text, BEGIN, END, &table(&rows, &compiler()?))?;
        let text = between(&text, LAYERS_BEGIN, LAYERS_END, &layers::table(&by_layer(&rows)?))?;
        std::fs::write(TABLE, text).with_context(|| format!("write {TABLE}"))?;
        println!("wrote {TABLE}");
        return Ok(());
    }
    let written = read(&text)?;
    let (report, findings) = compare(&rows, &written);
    print!("{report}");
    if findings.is_empty() {
        return Ok(());
    }
    let was = written_compiler(&text).unwrap_or("another compiler");
    let is = compiler()?;
    if was != is {
        println!("the table is of {was}, this is {is}: the counts may differ for that alone");
    }
    bail!("{}\nif this is intended: cargo xtask instructions --update", findings.join("\n"))
}

fn measure() -> Result<Vec<Row>> {
    let listed = output(Command::new(program(PROGRAM)).arg("instructions"))?;
    let mut rows = Vec::new();
    for line in listed.lines() {
        let (name, description) =
            line.split_once('\t').context("a line of the list of operations")?;
        let all: Vec<Counts> = (0..REPEATS).map(|_| each(name)).collect::<Result<_>>()?;
        let counts = Counts {
            shard: median(&all, |counts| counts.shard),
            client: median(&all, |counts| counts.client),
            calls: median(&all, |counts| counts.calls),
        };
        ensure!(counts.shard > 1.0, "{name}: callgrind did not see the counted functions");
        println!("{name}: {:.0} in the shard, {:.0} in the client", counts.shard, counts.client);
        rows.push(Row { name: name.to_owned(), description: description.to_owned(), counts });
    }
    ensure!(!rows.is_empty(), "no operations are listed");
    Ok(rows)
}

/// Counts once for each object of an operation.
fn each(operation: &str) -> Result<Counts> {
    let (few, many) = (count(operation, OBJECTS[0])?, count(operation, OBJECTS[1])?);
    let objects = (OBJECTS[1] - OBJECTS[0]) as f64;
    let each = |few: f64, many: f64| (many - few) / objects;
    Ok(Counts {
        shard: each(few.shard, many.shard),
        client: each(few.client, many.client),
        calls: each(few.calls, many.calls).max(0.0),
    })
}

fn median(all: &[Counts], of: impl Fn(&Counts) -> f64) -> f64 {
    let mut values: Vec<f64> = all.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the instructions of the shard's side by layer, for each object of each operation.
fn by_layer(rows: &[Row]) -> Result<Vec<(String, Layers)>> {
    let collect: Vec<String> = COUNTED
        .iter()
        .filter(|(_, side)| *side == Side::Shard)
        .map(|(name, _)| format!("--toggle-collect=*::{name}*"))
        .collect();
    let mut all = Vec::new();
    for Row { name, counts, .. } in rows {
        let mut layers = layers::of(&callgrind(name, OBJECTS[1], &collect)?);
        for (layer, few) in layers::of(&callgrind(name, OBJECTS[0], &collect)?) {
            *layers.entry(layer).or_default() -= few;
        }
        layers.values_mut().for_each(|count| *count /= (OBJECTS[1] - OBJECTS[0]) as f64);
        let sum: f64 = layers.values().sum();
        let percent = (sum / counts.shard - 1.0).abs() * 100.0;
        ensure!(
            percent < TOLERANCE_PERCENT,
            "{name}: {sum:.0} by layer, {:.0} in all",
            counts.shard
        );
        all.push((name.clone(), layers));
    }
    Ok(all)
}

/// Counts the instructions of a run, including its begin and its end.
fn count(operation: &str, objects: u64) -> Result<Counts> {
    Ok(inclusive(&callgrind(operation, objects, &["--collect-systime=yes".to_owned()])?))
}

/// Runs an operation under callgrind, and returns callgrind's output.
fn callgrind(operation: &str, objects: u64, arguments: &[String]) -> Result<String> {
    let name = format!("thunderhead-callgrind-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let counted = output(
        Command::new("valgrind")
            .args(["--tool=callgrind", "--quiet", "--compress-pos=no"])
            .args(arguments)
            .arg(format!("--callgrind-out-file={}", path.display()))
            .arg(program(PROGRAM))
            .args(["instructions", operation])
            .args(["--objects", &objects.to_string()])
            .stderr(Stdio::inherit()),
    );
    let text = std::fs::read_to_string(&path);
    let _ = std::fs::remove_file(&path);
    counted?;
    text.context("read the counts of callgrind")
}

/// Sums up the costs of all calls of the counted functions. In callgrind's format, `cfn=` names the
/// called function (by a number from the second time on), and `calls=` has the number of calls. The
/// next line has a position and the costs of all these calls: instructions, calls of the kernel,
/// and their time. Zeroes at the end of a line are left out.
fn inclusive(text: &str) -> Counts {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let (mut called, mut is_cost) = (None, false);
    let mut counts = Counts::default();
    for line in text.lines() {
        if is_cost {
            is_cost = false;
            let mut costs = line.split(' ').skip(1).map(|cost| cost.parse().unwrap_or(0.0));
            let mut next = || costs.next().unwrap_or(0.0);
            match called.take() {
                Some(Side::Shard) => {
                    counts.shard += next();
                    counts.calls += next();
                }
                Some(Side::Client) => counts.client += next(),
                None => {}
            }
        } else if line.starts_with("calls=") {
            is_cost = true;
        } else if let Some(function) = line.strip_prefix("cfn=").or(line.strip_prefix("fn=")) {
            let (number, name) = function.split_once(' ').unwrap_or((function, ""));
            if !name.is_empty() {
                names.insert(number, name);
            }
            let name = names.get(number).copied().unwrap_or_default();
            // The name of an inner closure begins with the function's name, and counts with it.
            let last = name.rsplit("::").next().unwrap_or_default();
            let is_called = line.starts_with("cfn=");
            let found = COUNTED.iter().find(|(counted, _)| is_called && last.starts_with(counted));
            called = found.map(|(_, side)| *side);
        }
    }
    counts
}

fn compare(rows: &[Row], written: &BTreeMap<String, Counts>) -> (String, Vec<String>) {
    let (mut report, mut findings) = (String::new(), Vec::new());
    let _ = writeln!(report, "{:18} {:>10} {:>10}  against the table", "", "shard", "client");
    for Row { name, counts, .. } in rows {
        let Some(was) = written.get(name) else {
            findings.push(format!("{name} is not in {TABLE}"));
            continue;
        };
        let mut percents = Vec::new();
        for (side, now, was) in
            [("shard", counts.shard, was.shard), ("client", counts.client, was.client)]
        {
            let change = if was > 0.0 { (now / was - 1.0) * 100.0 } else { 0.0 };
            percents.push(format!("{change:+.1} %"));
            if change.abs() <= TOLERANCE_PERCENT || (now - was).abs() <= TOLERANCE {
                continue;
            }
            let word = if change > 0.0 { "more" } else { "fewer, which should be recorded" };
            findings.push(format!(
                "{name} takes {now:.0} instructions in the {side} and took {was:.0}: {:.1} % {word}",
                change.abs()
            ));
        }
        if (counts.calls - was.calls).abs() > TOLERANCE_CALLS {
            let (now, was) = (counts.calls, was.calls);
            findings.push(format!("{name} calls the kernel {now:.1} times and did {was:.1} times"));
        }
        let _ = writeln!(report, "{name:18} {:>10} {:>10}", percents[0], percents[1]);
    }
    for name in written.keys().filter(|name| !rows.iter().any(|row| row.name == **name)) {
        findings.push(format!("{name} is in {TABLE}, and there is no such operation"));
    }
    (report, findings)
}

fn table(rows: &[Row], compiler: &str) -> String {
    let mut text = format!("Counted with {compiler}, release profile.\n\n");
    text.push_str("| operation | description | shard | its calls of the kernel | client |\n");
    text.push_str("| --- | --- | --- | --- | --- |\n");
    for Row { name, description, counts } in rows {
        let Counts { shard, client, calls } = counts;
        let _ =
            writeln!(text, "| {name} | {description} | {shard:.0} | {calls:.1} | {client:.0} |");
    }
    text
}

/// Reads the counts of the page.
fn read(page: &str) -> Result<BTreeMap<String, Counts>> {
    let counts = page.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    let (lines, _) = counts.with_context(|| format!("{TABLE} lacks {BEGIN} or {END}"))?;
    let mut counts = BTreeMap::new();
    for line in lines.lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, _, shard, calls, client] = cells[..] else {
            bail!("{TABLE}: this line must have five cells: {line}")
        };
        let number = |cell: &str| cell.parse().with_context(|| format!("{TABLE}: {line}"));
        let (shard, client, calls) = (number(shard)?, number(client)?, number(calls)?);
        counts.insert(name.to_owned(), Counts { shard, client, calls });
    }
    Ok(counts)
}

fn written_compiler(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once("Counted with ")?;
    Some(rest.split_once(',')?.0)
}

fn compiler() -> Result<String> {
    let version = output(Command::new("rustc").arg("--version"))?;
    let words: Vec<&str> = version.split_whitespace().take(2).collect();
    Ok(format!("{} on {}", words.join(" "), std::env::consts::ARCH))
}

/// Runs a program, and returns its output.
fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {name}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed: {error}");
    String::from_utf8(output.stdout).with_context(|| format!("read the output of {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_calls_are_summed_by_side() {
        let text = "fn=(1) main\n10 5\ncfn=(2) thunderhead_bench::instructions::counted_server\n\
                    calls=3 20\n11 300 6 99\ncfn=(3) x::Pair::counted_client\ncalls=1 1\n12 40 7\n\
                    fn=(2)\n20 299\ncfn=(4) turn\ncalls=1 1\n21 290\nfn=(9) other\n\
                    cfn=(2)\ncalls=1 20\n13 100\n\
                    cfn=(8) x::counted_client::{{closure}}\ncalls=1 1\n1 5\n";
        assert_eq!(inclusive(text), Counts { shard: 400.0, client: 40.0, calls: 6.0 });
    }

    #[test]
    fn more_and_fewer_instructions_are_found_and_small_differences_ignored() {
        let row = |name: &str, shard, client| Row {
            name: name.into(),
            description: "it".into(),
            counts: Counts { shard, client, calls: 3.0 },
        };
        let rows = [row("read", 1000.0, 200.0), row("write", 2000.0, 300.0)];
        let page = format!("x\n{BEGIN}\n{END}\ny\n");
        let page = between(&page, BEGIN, END, &table(&rows, "rustc 1 on x")).unwrap();
        assert!(page.starts_with("x\n") && page.ends_with("y\n"));
        assert_eq!(written_compiler(&page), Some("rustc 1 on x"));
        let written = read(&page).unwrap();
        let findings = |rows: &[Row]| compare(rows, &written).1;
        assert!(findings(&rows).is_empty());
        assert!(findings(&[row("read", 1049.0, 209.0), row("write", 1902.0, 300.0)]).is_empty());
        let found = findings(&[row("read", 1060.0, 200.0), row("write", 1880.0, 300.0)]);
        assert!(found[0].contains("more") && found[1].contains("fewer"), "{found:?}");
        let mut calls = [row("read", 1000.0, 200.0), row("write", 2000.0, 300.0)];
        calls[0].counts.calls = 3.7;
        calls[1].counts.calls = 4.0;
        let found = findings(&calls);
        assert!(found.len() == 1 && found[0].contains("kernel"), "{found:?}");
        assert_eq!(findings(&[row("read", 1000.0, 200.0), row("new", 1.0, 1.0)]).len(), 2);
    }
}
