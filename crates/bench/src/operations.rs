//! Operations on objects: `thunderhead bench read`, `write`, … and `bench evaluate operations`.
//!
//! Clients run closed loops, each with a connection of its own and `--depth` requests in flight.
//! Their target is a shard in this process, or with `--replicas` servers in this process
//! ([`local`]). They speak the protocol without the client library, so that the shard is the
//! bottleneck. With `--coordinators` the target is a running cluster, through the client library
//! ([`through`](thunderhead_load::through)), on threads that share the cores. Values are checked on
//! every read.

pub mod evaluate;
pub mod generator;
pub mod local;
pub mod message;
pub mod report;
pub mod run;
pub mod target;

use anyhow::{Result, bail, ensure};
use report::Report;
use std::io::{IsTerminal, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;
use target::Own;
use thunderhead_load::channel::Channel;
use thunderhead_load::distribution::Distribution;
use thunderhead_load::machine;
use thunderhead_load::output::{progress, show};
use thunderhead_load::plan::Plan;
use thunderhead_load::plot;
use thunderhead_load::run::{self as driven, Times};
use thunderhead_load::through::{Cluster, Through};
use thunderhead_load::workload::{self, Workload};

/// The options of a workload.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The number of clients, each with a connection of its own: 1 to 1000. All share the cores
    /// that the shard leaves free.
    #[arg(long, default_value_t = 1)]
    pub clients: usize,
    /// Requests that each client keeps in flight: 1 to 1000.
    #[arg(long, default_value_t = 1)]
    pub depth: usize,
    /// Bytes of a value.
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// How objects are drawn: uniform, zipfian (YCSB's), latest or sequential. The default is
    /// YCSB's for its workloads, and uniform for the others.
    #[arg(long)]
    pub distribution: Option<Distribution>,
    /// How long to measure: 500ms, 10s, 2m, or a number of seconds. A warm-up of a tenth of that,
    /// at most a second, comes first.
    #[arg(long, default_value = "10s", value_parser = seconds)]
    pub duration: f64,
    /// Objects that exist from the start: 256 to 1000000000.
    #[arg(long, default_value_t = 1_000_000)]
    pub objects: u64,
    /// Objects in a message of multiread and multiwrite: 1 to 128.
    #[arg(long, default_value_t = 70)]
    pub parts: usize,
    /// Percent of reads in mixed.
    #[arg(long, default_value_t = 50)]
    pub reads: u32,
    /// Send updates without an identity: a retry may repeat them.
    #[arg(long)]
    pub at_least_once: bool,
    /// The target: own starts a shard in this process.
    #[arg(long, default_value = "own", value_parser = ["own"])]
    pub target: String,
    /// Use a running cluster, given by its coordinators (HOST:PORT), instead of a shard in this
    /// process. Coordinators in the environment or in a file are ignored here.
    #[arg(
        long,
        value_delimiter = ',',
        conflicts_with_all = ["target", "replicas", "data", "utilization", "at_least_once"],
        value_name = "ADDR"
    )]
    pub coordinators: Vec<String>,
    /// The table to use in a running cluster. It is created if it does not exist, and is not
    /// dropped.
    #[arg(long, default_value = "bench")]
    pub table: String,
    /// The deadline of an operation on a running cluster.
    #[arg(skip = Some(DEADLINE))]
    pub deadline: Option<Duration>,
    /// Copies of each update: 1 on the disk of this process's shard, more on that many other
    /// servers in this process.
    #[arg(long, default_value_t = 0)]
    pub replicas: u32,
    /// The directory for the files of servers with copies, which are removed at the end. The
    /// default is the directory for temporary files.
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// The memory utilization of this process's shard, in percent: 1 to 90.
    #[arg(long, default_value_t = 50)]
    pub utilization: u32,
    /// How clients connect to the shard.
    #[arg(long, default_value = "shm")]
    pub transport: Channel,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Draw the figures.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

/// The default deadline of an operation on a running cluster.
const DEADLINE: Duration = Duration::from_secs(10);

/// Parses a time, in seconds if it has no unit.
fn seconds(text: &str) -> Result<f64, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let unit = units.iter().find_map(|(unit, each)| Some((text.strip_suffix(unit)?, each)));
    let (number, each) = unit.unwrap_or((text, &1.0));
    let number: f64 = number.trim().parse().map_err(|_| "write 500ms, 10s or 2m".to_owned())?;
    Ok(number * each)
}

/// Returns the addresses of coordinators that are given as HOST:PORT.
fn resolve(coordinators: &[String]) -> Result<Vec<SocketAddr>> {
    let (mut found, mut failed) = (Vec::new(), None);
    for name in coordinators.iter().flat_map(|it| it.split(',')) {
        match name.trim().to_socket_addrs() {
            Ok(addresses) => found.extend(addresses),
            Err(error) => failed = Some(format!("{name}: {error}; write HOST:PORT")),
        }
    }
    match failed {
        Some(failed) if found.is_empty() => bail!("--coordinators {failed}"),
        _ => Ok(found),
    }
}

/// Refuses YCSB's fifth workload, with the reason.
pub(crate) fn no_ycsb_e() -> Result<bool> {
    bail!(
        "ycsb-e scans ranges of keys, and tables have no order to scan in; run ycsb-a, b, c, d or f"
    )
}

impl Arguments {
    /// Refuses invalid options before any measurement.
    fn check(&self, workload: Workload) -> Result<()> {
        let within = |name: &str, value: u64, least: u64, most: u64| {
            ensure!(
                (least..=most).contains(&value),
                "{name} is {value}; it must be {least} to {most}"
            );
            Ok(())
        };
        within("--clients", self.clients as u64, 1, 1000)?;
        within("--depth", self.depth as u64, 1, 1000)?;
        within("--objects", self.objects, 256, 1_000_000_000)?;
        within("--parts", self.parts as u64, 1, 128)?;
        within("--reads", u64::from(self.reads), 0, 100)?;
        within("--utilization", u64::from(self.utilization), 1, 90)?;
        within("--replicas", u64::from(self.replicas), 0, 8)?;
        let most = self.own(workload).value_bytes_max();
        within("--value-bytes", self.value_bytes as u64, 0, most as u64)?;
        // Servers refuse longer messages.
        let together = (self.value_bytes + 128) * if is_many(workload) { self.parts } else { 1 };
        ensure!(
            together <= 1 << 20,
            "--parts {} with --value-bytes {} makes messages of {together} bytes; lower either",
            self.parts,
            self.value_bytes
        );
        ensure!(
            (0.01..=86_400.0).contains(&self.duration),
            "--duration is {}; it must be 0.01 to 86400 seconds",
            self.duration
        );
        if !self.coordinators.is_empty() {
            return Ok(());
        }
        let servers = u64::from(self.replicas).max(1) + u64::from(self.replicas > 1);
        let memory = self.own(workload).memory_bytes() * servers;
        machine::ensure_memory(memory, "--objects or --value-bytes")
    }

    fn own(&self, workload: Workload) -> Own {
        let utilization = f64::from(self.utilization) / 100.0;
        Own {
            cleaners: usize::from(workload.writes()),
            replicas: self.replicas,
            data: self.data.clone(),
            ..Own::holding(self.objects, self.value_bytes, utilization)
        }
    }

    fn plan(&self, workload: Workload) -> Plan {
        Plan {
            reads: f64::from(self.reads) / 100.0,
            distribution: self.distribution.unwrap_or(workload.distribution()),
            value_bytes: self.value_bytes,
            depth: self.depth,
            parts: self.parts,
            exactly_once: !self.at_least_once,
            clients: self.clients,
            ..Plan::new(workload, self.objects)
        }
    }
}

fn is_many(workload: Workload) -> bool {
    workload.mixture(0.5).kinds().any(workload::Kind::is_many)
}

/// Measures a workload.
///
/// # Errors
/// When the options are invalid, or an answer is wrong.
pub fn measure(workload: Workload, arguments: &Arguments) -> Result<Report> {
    arguments.check(workload)?;
    let (own, plan) = (arguments.own(workload), arguments.plan(workload));
    let duration = Duration::from_secs_f64(arguments.duration);
    let times = Times { warm_up: (duration / 10).min(Duration::from_secs(1)), duration };
    let is_watched = std::io::stderr().is_terminal();
    let mut told = |second: &driven::Second| {
        if is_watched {
            progress(&report::line(second));
        }
    };
    if is_watched {
        progress(&format!("writing {} objects", plan.objects));
    }
    let tally = if arguments.coordinators.is_empty() {
        own.serving(arguments.transport, |to| {
            run::load(&plan, arguments.transport, to)?;
            run::run(&plan, arguments.transport, to, times, &mut told)
        })?
    } else {
        let (coordinators, table) = (resolve(&arguments.coordinators)?, &arguments.table);
        let (deadline, channel) = (arguments.deadline, arguments.transport);
        let silent = &mut |_| {};
        let cluster = Cluster::prepare(coordinators, deadline, channel, table, &plan, silent)?;
        let make = |client| Through::new(&cluster, &plan, client);
        driven::crews(plan.clients, plan.clients, &|_| None, &make, times, &mut told)?
    };
    Ok(Report::of(workload, arguments, &tally))
}

/// Runs a workload and prints the results. Returns false if an operation failed.
///
/// # Errors
/// As [`measure`], and when the results cannot be written.
pub fn run(workload: Workload, arguments: &Arguments) -> Result<bool> {
    plot::check(arguments.plot.as_deref())?;
    let report = measure(workload, arguments)?;
    show(arguments.json, &report.table(), &report)?;
    if !arguments.json {
        std::io::stdout().lock().write_all(report.histograms().as_bytes())?;
    }
    if let Some(path) = &arguments.plot {
        plot::save(path, &report.panels())?;
    }
    Ok(report.failed == 0)
}
