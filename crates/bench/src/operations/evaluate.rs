//! What operations must show, measured afresh: required beside measured.
//!
//! Floor and ours are measured in many short turns on one node, and what counts is the median of
//! what each pair says: machines have moods. Rows with copies have servers with backups in this process,
//! whose files are among the temporary ones: these should be on a disk.

mod churn;
mod copies;
mod loads;
mod many;
mod messages;
mod reads;
mod writes;

use super::generator::{Generator, Plan};
use super::target::Channel;
use super::workload::Workload;
use crate::machine::median;
use crate::table::Rows;
use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use std::time::Duration;

/// How much of everything.
struct Scale {
    /// Objects to read among.
    objects: [u64; 2],
    /// Round trips of a measurement, and how often floor and ours are measured in turn.
    rounds: u64,
    turns: usize,
    /// How long a measurement of a rate takes, and how many there are.
    burst: Duration,
    bursts: usize,
    /// How long a full log is overwritten before anything is measured of it.
    settle: Duration,
    /// Memory of the log that is churned, and for how long.
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
    /// What it costs that each update is done once.
    Once,
    /// What a cleaner costs that runs beside writes.
    Cleaner,
    /// The bound of memory.
    Churn,
}

/// Measures and prints all requirements, or those of some parts; false when one is not met.
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

/// A channel as people call it.
fn name(channel: Channel) -> &'static str {
    match channel {
        Channel::Tcp => "TCP",
        Channel::Shm => "shared memory",
    }
}

/// A plan of one client.
fn plan(workload: Workload, objects: u64, depth: usize) -> Plan {
    Plan { depth, ..Plan::new(workload, objects) }
}

/// Latencies of so many operations of a client, after a few that do not count.
fn latencies(client: &mut Generator, rounds: u64) -> Result<Histogram<u64>> {
    let mut latencies = super::run::histogram();
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

/// The median of some times in nanoseconds, after a few that do not count.
fn median_of(rounds: u64, mut one: impl FnMut() -> Result<f64>) -> Result<f64> {
    for _ in 0..rounds / 10 {
        one()?;
    }
    let times: Result<Vec<f64>> = (0..rounds).map(|_| one()).collect();
    Ok(median(times?))
}

/// The medians of each column of some turns.
fn medians<const N: usize>(turns: &[[f64; N]]) -> [f64; N] {
    std::array::from_fn(|at| median(turns.iter().map(|turn| turn[at]).collect()))
}
