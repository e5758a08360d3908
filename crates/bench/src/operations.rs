//! Operations on objects: `thunderhead-bench read`, `write`, … and `evaluate operations`.
//!
//! Clients run closed loops, each with a connection of its own and `--depth` requests in flight.
//! Their target is a shard in this process, or with `--replicas` servers in this process
//! ([`local`]). They speak the protocol without the client library, so that the shard is the
//! bottleneck. Values are checked on every read. `thunderhead bench` runs the same workloads on a
//! cluster, through the client library.

pub mod evaluate;
pub mod generator;
pub mod local;
pub mod message;
pub mod run;
pub mod target;

use anyhow::{Result, ensure};
use std::path::PathBuf;
use target::Own;
use thunderhead_load::machine;
use thunderhead_load::options::{Options, within};
use thunderhead_load::output::watched;
use thunderhead_load::plan::Plan;
use thunderhead_load::plot;
use thunderhead_load::report::{self, Report, Settings};
use thunderhead_load::run::Second;
use thunderhead_load::workload::Workload;

/// The options of a workload.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The options that every workload has.
    #[command(flatten)]
    pub options: Options,
    /// Send updates without an identity: a retry may repeat them.
    #[arg(long)]
    pub at_least_once: bool,
    /// Copies of each update: 1 on the disk of this process's shard, more on that many other
    /// servers in this process.
    #[arg(long, default_value_t = 0)]
    pub replicas: u32,
    /// Acknowledge an update only when its copies are on disks.
    #[arg(long)]
    pub synced: bool,
    /// The directory for the files of servers with copies, which are removed at the end. The
    /// default is the directory for temporary files.
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// The memory utilization of this process's shard, in percent: 1 to 90.
    #[arg(long, default_value_t = 50)]
    pub utilization: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl Arguments {
    /// Refuses invalid options before any measurement.
    fn check(&self, workload: Workload) -> Result<()> {
        within("--utilization", u64::from(self.utilization), 1, 90)?;
        within("--replicas", u64::from(self.replicas), 0, 8)?;
        ensure!(self.replicas > 0 || !self.synced, "--synced needs --replicas of at least 1");
        self.options.check(workload, || self.own(workload).value_bytes_max())?;
        let servers = u64::from(self.replicas).max(1) + u64::from(self.replicas > 1);
        let memory = self.own(workload).memory_bytes() * servers;
        machine::ensure_memory(memory, "--objects or --value-bytes")
    }

    fn own(&self, workload: Workload) -> Own {
        let utilization = f64::from(self.utilization) / 100.0;
        Own {
            cleaners: usize::from(workload.writes()),
            replicas: self.replicas,
            is_synced: self.synced,
            data: self.data.clone(),
            ..Own::holding(self.options.objects, self.options.value_bytes, utilization)
        }
    }

    fn settings(&self, workload: Workload) -> Settings {
        let mut settings = Settings::of(workload, &self.options);
        settings.target = "own";
        settings.exactly_once = !self.at_least_once;
        settings.replicas = Some(self.replicas);
        settings.utilization = Some(f64::from(self.utilization) / 100.0);
        settings
    }
}

/// Measures a workload.
///
/// # Errors
/// When the options are invalid, or an answer is wrong.
pub fn measure(workload: Workload, arguments: &Arguments) -> Result<Report> {
    arguments.check(workload)?;
    let (options, own) = (&arguments.options, arguments.own(workload));
    let plan = Plan { exactly_once: !arguments.at_least_once, ..options.plan(workload) };
    let mut told = |second: &Second| watched(|| report::line(second));
    watched(|| format!("writing {} objects", plan.objects));
    let channel = options.transport;
    let tally = own.serving(channel, |to| {
        run::load(&plan, channel, to)?;
        run::run(&plan, channel, to, options.times(), &mut told)
    })?;
    Ok(Report::of(workload, arguments.settings(workload), &tally))
}

/// Runs a workload and prints the results. Returns false if an operation failed.
///
/// # Errors
/// As [`measure`], and when the results cannot be written.
pub fn run(workload: Workload, arguments: &Arguments) -> Result<bool> {
    let path = arguments.options.plot.as_deref();
    plot::check(path)?;
    measure(workload, arguments)?.publish(arguments.json, path)
}
