//! The options that every workload has, and the plan that follows from them.

use crate::channel::Channel;
use crate::distribution::Distribution;
use crate::plan::Plan;
use crate::run::Times;
use crate::workload::{Kind, Workload};
use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::time::Duration;

/// The longest message that servers accept.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Bytes of a message for each object, beside its value.
pub const OBJECT_BYTES: usize = 128;

/// The options of a workload.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The number of clients, each with a connection of its own: 1 to 1000.
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
    /// How clients connect to servers.
    #[arg(long, default_value = "shm")]
    pub transport: Channel,
    /// Draw the figures.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

/// Parses a time, in seconds if it has no unit.
fn seconds(text: &str) -> Result<f64, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let unit = units.iter().find_map(|(unit, each)| Some((text.strip_suffix(unit)?, each)));
    let (number, each) = unit.unwrap_or((text, &1.0));
    let number: f64 = number.trim().parse().map_err(|_| "write 500ms, 10s or 2m".to_owned())?;
    Ok(number * each)
}

/// Refuses a value of an option that is out of range.
///
/// # Errors
/// When it is.
pub fn within(name: &str, value: u64, least: u64, most: u64) -> Result<()> {
    ensure!((least..=most).contains(&value), "{name} is {value}; it must be {least} to {most}");
    Ok(())
}

impl Options {
    /// Refuses invalid options before any measurement. `value_bytes_max` is the longest value that
    /// the target accepts; it is asked only when the number of objects is valid.
    ///
    /// # Errors
    /// When an option is invalid.
    pub fn check(&self, workload: Workload, value_bytes_max: impl FnOnce() -> usize) -> Result<()> {
        within("--clients", self.clients as u64, 1, 1000)?;
        within("--depth", self.depth as u64, 1, 1000)?;
        within("--objects", self.objects, 256, 1_000_000_000)?;
        within("--parts", self.parts as u64, 1, 128)?;
        within("--reads", u64::from(self.reads), 0, 100)?;
        within("--value-bytes", self.value_bytes as u64, 0, value_bytes_max() as u64)?;
        let is_many = workload.mixture(0.5).kinds().any(Kind::is_many);
        let together = (self.value_bytes + OBJECT_BYTES) * if is_many { self.parts } else { 1 };
        ensure!(
            together <= MESSAGE_BYTES_MAX,
            "--parts {} with --value-bytes {} makes messages of {together} bytes; lower either",
            self.parts,
            self.value_bytes
        );
        ensure!(
            (0.01..=86_400.0).contains(&self.duration),
            "--duration is {}; it must be 0.01 to 86400 seconds",
            self.duration
        );
        Ok(())
    }

    /// Returns the clients' work.
    #[must_use]
    pub fn plan(&self, workload: Workload) -> Plan {
        Plan {
            reads: f64::from(self.reads) / 100.0,
            distribution: self.distribution.unwrap_or(workload.distribution()),
            value_bytes: self.value_bytes,
            depth: self.depth,
            parts: self.parts,
            clients: self.clients,
            ..Plan::new(workload, self.objects)
        }
    }

    /// Returns the durations of a run.
    #[must_use]
    pub fn times(&self) -> Times {
        let duration = Duration::from_secs_f64(self.duration);
        Times { warm_up: (duration / 10).min(Duration::from_secs(1)), duration }
    }
}
