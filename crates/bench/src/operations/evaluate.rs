//! The requirements of operations, measured again and printed beside the results.
//!
//! Floor and our store are measured in many short turns on one node; the result is the median over
//! all pairs, because a machine's speed varies. Rows with copies use servers with backups in this
//! process. Their files are among the temporary files, which should be on a disk.

mod churn;
mod copies;
mod loads;
mod many;
mod messages;
mod reads;
mod writes;

use super::generator::Generator;
use crate::requirements::Rows;
use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use std::time::Duration;
use thunderhead_load::channel::Channel;
use thunderhead_load::machine::median;
use thunderhead_load::plan::Plan;
use thunderhead_load::workload::Workload;

/// The sizes of all measurements.
struct Scale {
    /// Objects to read among.
    objects: [u64; 2],
    /// Round trips of a measurement, and the number of turns between floor and our store.
    rounds: u64,
    turns: usize,
    /// The duration of a rate measurement, and the number of them.
    burst: Duration,
    bursts: usize,
    /// How long a full log is overwritten before it is measured.
    settle: Duration,
    /// Memory of the log under churn, and the duration of the churn.
    churn_bytes: u64,
    churn: Duration,
}

/// A group of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Latencies of reads, and reads over many connections.
    Reads,
    /// Many objects in a message.
    Many,
    /// Writes with copies.
    Copies,
    /// The cost of exactly-once updates.
    Once,
    /// The cost of a cleaner that runs beside writes.
    Cleaner,
    /// The bound of memory.
    Churn,
}

/// Measures and prints all requirements, or those of some parts; returns false if one is not met.
///
/// # Errors
/// When something cannot be measured.
pub fn run(quick: bool, minutes: Option<f64>, only: &[Part], json: bool) -> Result<bool> {
    let mut scale = if quick {
        Scale {
            objects: [100_000, 300_000],
            rounds: 500,
            turns: 5,
            burst: Duration::from_millis(50),
            bursts: 3,
            settle: Duration::from_millis(300),
            churn_bytes: 64 << 20,
            churn: Duration::from_secs(3),
        }
    } else {
        Scale {
            objects: [1_000_000, 10_000_000],
            rounds: 4_000,
            turns: 61,
            burst: Duration::from_millis(200),
            bursts: 15,
            settle: Duration::from_secs(5),
            churn_bytes: 512 << 20,
            churn: Duration::from_secs(60),
        }
    };
    if let Some(minutes) = minutes {
        ensure!(
            (0.01..=1440.0).contains(&minutes),
            "--minutes is {minutes}; it must be 0.01 to 1440"
        );
        scale.churn = Duration::from_secs_f64(minutes * 60.0);
    }
    let mut rows = Rows::default();
    let wants = |part| only.is_empty() || only.contains(&part);
    if wants(Part::Reads) {
        reads::latencies(&scale, &mut rows)?;
        reads::connections(&scale, &mut rows)?;
    }
    if wants(Part::Many) {
        many::rows(&scale, &mut rows)?;
        messages::rows(&scale, &mut rows)?;
    }
    if wants(Part::Copies) {
        copies::rows(&scale, &mut rows)?;
    }
    if wants(Part::Once) {
        writes::exactly_once(&scale, &mut rows)?;
    }
    if wants(Part::Cleaner) {
        writes::cleaner(&scale, &mut rows)?;
    }
    if wants(Part::Churn) {
        churn::row(&scale, &mut rows)?;
    }
    rows.show(json)
}

/// Returns a channel's name for people.
fn name(channel: Channel) -> &'static str {
    match channel {
        Channel::Tcp => "TCP",
        Channel::Shm => "shared memory",
    }
}

/// Returns a plan with one client.
fn plan(workload: Workload, objects: u64, depth: usize) -> Plan {
    Plan { depth, ..Plan::new(workload, objects) }
}

/// Measures the latencies of a client's operations, after a short warm-up.
fn latencies(client: &mut Generator, rounds: u64) -> Result<Histogram<u64>> {
    let mut latencies = thunderhead_load::run::histogram();
    let (mut seen, warm_up) = (0, rounds / 10);
    while seen < rounds + warm_up {
        client.turn(&mut |_, _, latency| {
            seen += 1;
            if seen > warm_up {
                latencies.saturating_record(latency.as_nanos() as u64);
            }
        })?;
    }
    client.finish()?;
    Ok(latencies)
}

/// Returns the median of measured times in nanoseconds, after a short warm-up.
fn median_of(rounds: u64, mut one: impl FnMut() -> Result<f64>) -> Result<f64> {
    for _ in 0..rounds / 10 {
        one()?;
    }
    let times: Result<Vec<f64>> = (0..rounds).map(|_| one()).collect();
    Ok(median(times?))
}

/// Returns the median of each column over all turns.
fn medians<const N: usize>(turns: &[[f64; N]]) -> [f64; N] {
    std::array::from_fn(|at| median(turns.iter().map(|turn| turn[at]).collect()))
}
