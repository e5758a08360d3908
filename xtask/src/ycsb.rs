//! `cargo xtask ycsb`: YCSB itself, on Thunderhead and on Redis, as in the papers' Figures 12 and
//! 18.
//!
//! Builds `bindings/ycsb` and the client for Java with Maven, starts both stores on this machine,
//! and loads each with as many records as fill a share of Thunderhead's memory. Checks that each
//! store returns the written data (by YCSB's own check). Then it runs workloads A, B, C, D and F on
//! the stores in turn, so that other load of the machine hits both. Each store and all its threads
//! have one core, YCSB has the others.
//!
//! YCSB calls both stores in Java, with connections of its own for each thread. A thread of YCSB
//! itself takes a large part of each operation: the figures compare the stores as such a user sees
//! them, and do not show their limits.

mod report;
mod stores;

use crate::clients::installed;
use crate::scratch::Scratch;
use crate::steps::{build_programs, install, program, run, run_program_with, target};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use stores::Store;

/// The options of the command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Small and short: shows whether it works, not how fast it is. Nothing is recorded.
    #[arg(long)]
    quick: bool,
    /// Memory of Thunderhead's server in MiB: 32 to 65536.
    #[arg(long)]
    memory: Option<u64>,
    /// How much of that live data takes, in percent: 10 to 90.
    #[arg(long, value_delimiter = ',')]
    shares: Vec<u32>,
    /// Workloads: a, b, c, d, f.
    #[arg(long, value_delimiter = ',', default_value = "a,b,c,d,f")]
    workloads: Vec<char>,
    /// Threads of YCSB, each with a connection of its own: 1 to 256.
    #[arg(long, default_value_t = 8)]
    threads: u32,
    /// Seconds of each run.
    #[arg(long)]
    seconds: Option<u32>,
    /// Runs of each workload on each store, in turn; the median counts.
    #[arg(long)]
    rounds: Option<u32>,
    /// Fields of a record, of 100 bytes each.
    #[arg(long, default_value_t = 10)]
    fields: u32,
    /// Updates write all fields of a record: one write on Thunderhead too.
    #[arg(long)]
    all_fields: bool,
    /// Each update is written down: one replica on Thunderhead's own disk, and Redis's log, synced
    /// each second.
    #[arg(long)]
    durable: bool,
    /// For programs.
    #[arg(long)]
    json: bool,
}

/// The plan of a run.
#[derive(Clone, Debug)]
struct Plan {
    memory_bytes: u64,
    shares: Vec<u32>,
    workloads: Vec<&'static Workload>,
    threads: u32,
    seconds: u32,
    rounds: u32,
    fields: u32,
    all_fields: bool,
    durable: bool,
}

/// The client for Java, with its native library.
const CLIENT_JAR: &str = "clients/java/target/thunderhead-client-0.1.0.jar";

/// Bytes of a field.
const FIELD_BYTES: u64 = 100;

/// A workload of YCSB's core: the shares of its operations, and the way it draws records.
#[derive(Debug)]
struct Workload {
    name: char,
    what: &'static str,
    properties: &'static [&'static str],
    /// YCSB's name of its writes.
    write: Option<&'static str>,
}

/// YCSB's workloads, but for E, which scans.
const WORKLOADS: [Workload; 5] = [
    Workload {
        name: 'a',
        what: "half reads, half updates, zipfian",
        properties: &["readproportion=0.5", "updateproportion=0.5", "requestdistribution=zipfian"],
        write: Some("UPDATE"),
    },
    Workload {
        name: 'b',
        what: "95 % reads, 5 % updates, zipfian",
        properties: &[
            "readproportion=0.95",
            "updateproportion=0.05",
            "requestdistribution=zipfian",
        ],
        write: Some("UPDATE"),
    },
    Workload {
        name: 'c',
        what: "reads, zipfian",
        properties: &["readproportion=1", "updateproportion=0", "requestdistribution=zipfian"],
        write: None,
    },
    Workload {
        name: 'd',
        what: "95 % reads of the latest, 5 % inserts",
        properties: &[
            "readproportion=0.95",
            "updateproportion=0",
            "insertproportion=0.05",
            "requestdistribution=latest",
        ],
        write: Some("INSERT"),
    },
    Workload {
        name: 'f',
        what: "half reads, half reads followed by an update, zipfian",
        properties: &[
            "readproportion=0.5",
            "updateproportion=0",
            "readmodifywriteproportion=0.5",
            "requestdistribution=zipfian",
        ],
        write: Some("READ-MODIFY-WRITE"),
    },
];

/// Percentiles of a kind of operation, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Latency {
    median: f64,
    p99: f64,
}

/// The results of one run.
#[derive(Clone, Debug, Default, PartialEq)]
struct Outcome {
    per_second: f64,
    /// By YCSB's names of operations.
    latencies: BTreeMap<String, Latency>,
}

/// A workload on a store, with the median of some runs.
struct Measured {
    share: u32,
    workload: &'static Workload,
    store: &'static str,
    outcome: Outcome,
}

/// The contents of a store after loading.
struct Loaded {
    share: u32,
    records: u64,
    store: &'static str,
    per_second: f64,
    /// Live data over its memory, where the store has a limit.
    full: Option<f64>,
    resident_bytes: u64,
}

impl Arguments {
    fn plan(&self) -> Result<Plan> {
        let quick = |quick, full| if self.quick { quick } else { full };
        let within = |name: &str, value: u64, least: u64, most: u64| {
            ensure!(
                (least..=most).contains(&value),
                "{name} is {value}: it must be {least} to {most}"
            );
            Ok(value)
        };
        let memory = within("--memory", self.memory.unwrap_or(quick(64, 512)), 32, 65_536)?;
        let shares = match self.shares.is_empty() {
            true if self.quick => vec![50, 75],
            true => vec![50, 75, 90],
            false => self.shares.clone(),
        };
        for share in &shares {
            // The reserve is a larger part of a small memory.
            let most = if memory < 384 { 75 } else { 90 };
            let why = format!("--shares with {memory} MiB");
            within(&why, u64::from(*share), 10, most)?;
        }
        let mut workloads = Vec::new();
        for name in &self.workloads {
            let found = WORKLOADS.iter().find(|it| it.name == name.to_ascii_lowercase());
            let why = "workloads are a, b, c, d and f: e scans, and tables have no order";
            workloads.push(found.with_context(|| format!("--workloads {name}: {why}"))?);
        }
        let narrow = |name, value: u32, most| within(name, u64::from(value), 1, most);
        let seconds = self.seconds.unwrap_or(quick(2, 10).try_into()?);
        let rounds = self.rounds.unwrap_or(quick(1, 3).try_into()?);
        narrow("--threads", self.threads, 256)?;
        narrow("--seconds", seconds, 3600)?;
        narrow("--rounds", rounds, 99)?;
        narrow("--fields", self.fields, 100)?;
        Ok(Plan {
            memory_bytes: memory << 20,
            shares,
            workloads,
            threads: self.threads,
            seconds,
            rounds,
            fields: self.fields,
            all_fields: self.all_fields,
            durable: self.durable,
        })
    }
}

impl Plan {
    /// Returns the bytes of a record in the log and its index: name, length and bytes of each
    /// field, a key of 23 bytes, and the overhead of the log.
    fn record_bytes(&self) -> u64 {
        let fields = u64::from(self.fields) * (2 + 6 + 4 + FIELD_BYTES);
        2 + fields + 23 + 12 + 15
    }

    fn records(&self, share: u32) -> u64 {
        self.memory_bytes * u64::from(share) / 100 / self.record_bytes()
    }
}

/// Builds the programs, the client for Java and the bindings. Runs the tests of the latter two if
/// they are wanted.
fn build(with_tests: bool) -> Result<()> {
    install_tools()?;
    build_programs()?;
    run("cargo", &["build", "--quiet", "--release", "--package", "thunderhead-java"])?;
    let release = std::path::absolute(target().join("release")).context("find the builds")?;
    let native = format!("-Dthunderhead.native={}", release.display());
    let tests = format!("-DskipTests={}", !with_tests);
    let arguments = ["--quiet", "--batch-mode", "--file", "bindings", &native, &tests, "package"];
    // The tests of the client start this program.
    run_program_with("mvn", &arguments, &[("THUNDERHEAD", release.join("thunderhead").as_os_str())])
}

/// Whether the bindings work, as a step of the full test: their tests, then every workload for a
/// second on a few records, of which each answer must be right.
pub(crate) fn check() -> Result<()> {
    build(true)?;
    installed::java(Path::new(CLIENT_JAR))?;
    let plan = Plan {
        memory_bytes: 32 << 20,
        shares: vec![25],
        workloads: WORKLOADS.iter().collect(),
        threads: 4,
        seconds: 1,
        rounds: 1,
        fields: 10,
        all_fields: false,
        durable: true,
    };
    case(&plan, 25, &mut Vec::new(), &mut Vec::new())
}

/// Builds, measures, prints, and records the results of a full run.
pub(crate) fn ycsb(arguments: &Arguments) -> Result<()> {
    let plan = arguments.plan()?;
    build(false)?;
    let (mut loaded, mut measured) = (Vec::new(), Vec::new());
    for share in &plan.shares {
        case(&plan, *share, &mut loaded, &mut measured)?;
    }
    let versions = versions()?;
    if arguments.json {
        println!("{:#}", report::json(&plan, &versions, &loaded, &measured));
    } else {
        println!("\n{}", report::text(&plan, &versions, &loaded, &measured));
    }
    if !arguments.quick {
        report::write(&report::text(&plan, &versions, &loaded, &measured))?;
    }
    Ok(())
}

/// Everything at one share of memory.
fn case(
    plan: &Plan,
    share: u32,
    loaded: &mut Vec<Loaded>,
    measured: &mut Vec<Measured>,
) -> Result<()> {
    let records = plan.records(share);
    eprintln!("  {records} records: {share} % of memory");
    let scratch = Scratch::new("ycsb")?;
    let stores = [
        Store::thunderhead(&scratch, plan.memory_bytes, plan.durable)?,
        Store::redis(&scratch, plan.durable, plan.fields)?,
    ];
    for store in &stores {
        let load = client(plan, store, records, &["-load"], &["dataintegrity=true"])?;
        let full = store.full()?;
        if let Some(full) = full {
            eprintln!("  loaded: live data are {:.1} % of memory", full * 100.0);
        }
        loaded.push(Loaded {
            share,
            records,
            store: store.name,
            per_second: load.per_second,
            full,
            resident_bytes: store.resident_bytes()?,
        });
        let limit = format!("operationcount={}", records.min(20_000));
        let mixture = ["readproportion=0.7", "updateproportion=0.3", "dataintegrity=true", &limit];
        let checked = client(plan, store, records, &["-t"], &mixture);
        checked.with_context(|| format!("check that {} returns the written data", store.name))?;
    }
    for workload in &plan.workloads {
        let mut runs: [Vec<Outcome>; 2] = Default::default();
        let seconds = format!("maxexecutiontime={}", plan.seconds);
        // Inserts must not exceed the memory: at most one for 200 objects.
        let is_growing = workload.write == Some("INSERT");
        let count = if is_growing { (records / 10).max(1000) } else { 2_000_000_000 };
        let count = format!("operationcount={count}");
        let mut properties = vec![count.as_str(), &seconds];
        properties.extend(workload.properties);
        for _ in 0..plan.rounds {
            for (store, runs) in stores.iter().zip(&mut runs) {
                let outcome = client(plan, store, records, &["-t"], &properties)?;
                let (name, rate) = (workload.name, outcome.per_second);
                eprintln!("  {share} %, workload {name}, {}: {rate:.0} a second", store.name);
                runs.push(outcome);
            }
        }
        for (store, runs) in stores.iter().zip(runs) {
            let outcome = middle(runs).context("no runs")?;
            measured.push(Measured { share, workload, store: store.name, outcome });
        }
    }
    Ok(())
}

/// Returns the run with the median throughput.
fn middle(mut runs: Vec<Outcome>) -> Option<Outcome> {
    runs.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
    let at = runs.len() / 2;
    runs.into_iter().nth(at)
}

/// Runs YCSB's client against a store. A wrong or missing answer is an error.
fn client(
    plan: &Plan,
    store: &Store,
    records: u64,
    flags: &[&str],
    properties: &[&str],
) -> Result<Outcome> {
    let package = Path::new("bindings/ycsb/target");
    let own = package.join("thunderhead-ycsb-0.1.0.jar");
    let class_path = format!("{}:{}/*", own.display(), package.join("lib").display());
    let mut command = on_core(stores::Core::Others, "java");
    command.args(["-Xmx512m", "-cp", &class_path, "site.ycsb.Client"]).args(flags);
    command.args(["-threads", &plan.threads.to_string(), "-db", store.binding]);
    let mut all = vec![
        "workload=site.ycsb.workloads.CoreWorkload".to_owned(),
        format!("recordcount={records}"),
        format!("fieldcount={}", plan.fields),
        format!("fieldlength={FIELD_BYTES}"),
        format!("writeallfields={}", plan.all_fields),
        "measurementtype=hdrhistogram".to_owned(),
        "hdrhistogram.percentiles=50,99".to_owned(),
    ];
    all.extend(store.properties.iter().cloned());
    all.extend(properties.iter().map(ToString::to_string));
    command.args(all.iter().flat_map(|property| ["-p", property]));
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.context("start java")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let last: String = errors.lines().rev().take(5).collect::<Vec<_>>().join("\n");
    ensure!(output.status.success(), "YCSB against {} failed:\n{last}", store.name);
    parse(&text).with_context(|| format!("YCSB against {}:\n{last}", store.name))
}

/// Parses the output of YCSB: lines with an operation in brackets, a measure, and a number.
fn parse(text: &str) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut done = 0.0;
    for line in text.lines() {
        let cells: Vec<&str> = line.split(", ").collect();
        let [operation, what, number] = cells[..] else { continue };
        let Ok(number) = number.trim().parse::<f64>() else { continue };
        let name = operation.trim_start_matches('[').trim_end_matches(']');
        match what {
            "Throughput(ops/sec)" => outcome.per_second = number,
            "50thPercentileLatency(us)" => latency(&mut outcome, name).median = number,
            "99thPercentileLatency(us)" => latency(&mut outcome, name).p99 = number,
            "Return=OK" => done += number,
            _ if what.starts_with("Return=") && number > 0.0 => {
                bail!("{number} of {name} ended with {}", what.trim_start_matches("Return="))
            }
            _ => {}
        }
    }
    ensure!(done > 0.0 && outcome.per_second > 0.0, "nothing was done");
    outcome.latencies.retain(|name, _| name != "CLEANUP");
    Ok(outcome)
}

fn latency<'a>(outcome: &'a mut Outcome, name: &str) -> &'a mut Latency {
    outcome.latencies.entry(name.to_owned()).or_default()
}

/// A program that is kept on its cores: the last one is the stores', the others are YCSB's.
fn on_core(core: stores::Core, program: &str) -> Command {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    if cores < 2 {
        return Command::new(program);
    }
    let list = match core {
        stores::Core::Stores => format!("{}", cores - 1),
        stores::Core::Others => format!("0-{}", cores - 2),
    };
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &list, program]);
    command
}

/// Installs the needed tools, from packages of Debian.
fn install_tools() -> Result<()> {
    let has = |program: &str, flag: &str| {
        Command::new(program).arg(flag).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let tools = [
        ("javac", "-version", "default-jdk-headless"),
        ("mvn", "--version", "maven"),
        ("redis-server", "--version", "redis-server"),
        ("taskset", "--version", "util-linux"),
    ];
    let missing: Vec<&str> = tools
        .iter()
        .filter(|(program, flag, _)| !has(program, flag))
        .map(|(_, _, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    install(&missing).with_context(|| {
        format!("YCSB needs tools; as root: apt-get install {}", missing.join(" "))
    })
}

/// Returns the compared stores with their versions.
fn versions() -> Result<String> {
    let first = |program: &Path, flag: &str| -> Result<String> {
        let output = Command::new(program).arg(flag).output();
        let output = output.with_context(|| format!("ask {} its version", program.display()))?;
        let both = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&both);
        Ok(text.lines().next().unwrap_or_default().trim().to_owned())
    };
    let thunderhead = first(&program("thunderhead"), "--version")?;
    let redis = first(Path::new("redis-server"), "--version")?;
    let redis = redis.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("?");
    let java = first(Path::new("java"), "-version")?;
    Ok(format!("{thunderhead}, Redis {redis} asked by Jedis 5.1.0, YCSB 0.17.0, {java}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[OVERALL], RunTime(ms), 7765\n[OVERALL], Throughput(ops/sec), 5151.3\n\
        [READ], 50thPercentileLatency(us), 115\n[READ], 99thPercentileLatency(us), 6711\n\
        [READ], Return=OK, 20159\n[CLEANUP], 50thPercentileLatency(us), 7\nStarting test.\n";

    #[test]
    fn output_of_ycsb_is_parsed() {
        let outcome = parse(TEXT).unwrap();
        assert_eq!(outcome.per_second, 5151.3);
        let read = Latency { median: 115.0, p99: 6711.0 };
        assert_eq!(outcome.latencies, BTreeMap::from([("READ".to_owned(), read)]));
    }

    #[test]
    fn a_run_in_which_something_failed_is_none() {
        let failed = format!("{TEXT}[READ], Return=NOT_FOUND, 3\n");
        assert!(parse(&failed).unwrap_err().to_string().contains("3 of READ ended with NOT_FOUND"));
        parse(&format!("{TEXT}[VERIFY], Return=UNEXPECTED_STATE, 1\n")).unwrap_err();
        parse("").unwrap_err();
        parse("[OVERALL], Throughput(ops/sec), NaN\n").unwrap_err();
    }

    #[test]
    fn the_middle_of_three_runs_counts() {
        let run = |per_second| Outcome { per_second, ..Outcome::default() };
        let runs = [3.0, 1.0, 2.0].map(run).to_vec();
        assert_eq!(middle(runs).unwrap().per_second, 2.0);
        assert_eq!(middle(Vec::new()), None);
    }
}
