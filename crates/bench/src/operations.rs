//! Operations on objects: `thunderhead bench read`, `write`, … and `bench evaluate operations`.
//!
//! Clients in closed loops, each with a connection of its own and `--depth` requests in flight, ask
//! a shard of our own in this process. They speak the protocol without the client library, so that
//! the shard is what limits; values are checked on every read.

pub mod content;
pub mod distribution;
pub mod evaluate;
pub mod generator;
pub mod message;
pub mod report;
pub mod run;
pub mod target;
pub mod workload;

use crate::log::{progress, show};
use crate::machine;
use crate::plot;
use anyhow::{Result, bail, ensure};
use distribution::Distribution;
use generator::Plan;
use report::Report;
use run::Times;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use target::{Channel, Own};
use workload::Workload;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Clients, each with a connection of its own: 1 to 1000. All share the cores that the shard
    /// leaves.
    #[arg(long, default_value_t = 1)]
    pub clients: usize,
    /// Requests that each client keeps in flight: 1 to 1000.
    #[arg(long, default_value_t = 1)]
    pub depth: usize,
    /// Bytes of a value.
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Which objects: uniform, zipfian (YCSB's), latest or sequential; if not given, as YCSB says,
    /// and uniform for the others.
    #[arg(long)]
    pub distribution: Option<Distribution>,
    /// Seconds to measure, after a tenth of that (a second at most) to warm up.
    #[arg(long, default_value_t = 10.0)]
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
    /// Updates have no identity: a retry may repeat them.
    #[arg(long)]
    pub at_least_once: bool,
    /// What is asked: own starts a shard in this process.
    #[arg(long, default_value = "own", value_parser = ["own"])]
    pub target: String,
    /// A running cluster, by its coordinators, instead of a shard of our own.
    #[arg(long, value_delimiter = ',', conflicts_with = "target", value_name = "ADDR")]
    pub coordinators: Vec<SocketAddr>,
    /// Copies of each update on backups of the shard of our own.
    #[arg(long, default_value_t = 0)]
    pub replicas: u32,
    /// How full the memory of the shard of our own is, in percent: 1 to 90.
    #[arg(long, default_value_t = 50)]
    pub utilization: u32,
    /// How clients reach the shard.
    #[arg(long, default_value = "shm")]
    pub transport: Channel,
    /// For programs.
    #[arg(long)]
    pub json: bool,
    /// Draws the figures.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

/// Says why YCSB's fifth workload is not among these.
pub(crate) fn no_ycsb_e() -> Result<bool> {
    bail!(
        "ycsb-e scans ranges of keys, and tables have no order to scan in; run ycsb-a, b, c, d or f"
    )
}

impl Arguments {
    /// Refuses what cannot be run, before anything is.
    fn check(&self, workload: Workload) -> Result<()> {
        ensure!(
            self.coordinators.is_empty(),
            "--coordinators: this version cannot measure a running cluster yet; leave it out for a \
             shard of its own"
        );
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
        let most = self.own(workload).value_bytes_max();
        within("--value-bytes", self.value_bytes as u64, 0, most as u64)?;
        // A message that is longer than servers take is refused by them.
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
        machine::ensure_memory(self.own(workload).memory_bytes(), "--objects or --value-bytes")
    }

    fn own(&self, workload: Workload) -> Own {
        let utilization = f64::from(self.utilization) / 100.0;
        Own {
            cleaners: usize::from(workload.writes()),
            replicas: self.replicas,
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
/// When the arguments make no sense, or an answer is wrong.
pub fn measure(workload: Workload, arguments: &Arguments) -> Result<Report> {
    arguments.check(workload)?;
    let (own, plan) = (arguments.own(workload), arguments.plan(workload));
    let duration = Duration::from_secs_f64(arguments.duration);
    let times = Times { warm_up: (duration / 10).min(Duration::from_secs(1)), duration };
    let is_watched = std::io::stderr().is_terminal();
    let tally = own.beside(arguments.transport, |address| {
        if is_watched {
            progress(&format!("writing {} objects", plan.objects));
        }
        run::load(&plan, arguments.transport, address)?;
        run::run(&plan, arguments.transport, address, times, &mut |second| {
            if is_watched {
                progress(&report::line(second));
            }
        })
    })?;
    Ok(Report::of(workload, arguments, &tally))
}

/// Runs a workload and prints what came of it.
///
/// # Errors
/// As [`measure`], and when it cannot be written down.
pub fn run(workload: Workload, arguments: &Arguments) -> Result<()> {
    plot::check(arguments.plot.as_deref())?;
    let report = measure(workload, arguments)?;
    show(arguments.json, &report.table(), &report)?;
    if !arguments.json {
        std::io::stdout().lock().write_all(report.histograms().as_bytes())?;
    }
    if let Some(path) = &arguments.plot {
        plot::save(path, &report.panels())?;
    }
    Ok(())
}
