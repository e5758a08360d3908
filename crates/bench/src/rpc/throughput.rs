//! Requests a second of one server core, beside bare echo servers.

use super::floors::Waiting;
use super::floors::echo::echo_throughput;
use super::floors::load::{Load, generate};
use super::floors::ring::ring_throughput;
use super::subject::{REPLY_FRAME_BYTES, Setup, beside, greet, in_flight, request_frame};
use anyhow::Result;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_load::machine::median;
use thunderhead_load::output::show;
use thunderhead_load::table::Table;
use thunderhead_runtime::polling::Polling;

/// The options of the run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Measurements of each kind, floor and ours in turn; their medians count.
    #[arg(long, default_value_t = 15)]
    repeats: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The results for one load, in requests a second.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// The name of the load.
    pub what: String,
    /// The floor's rate.
    pub floor: f64,
    /// Our rate.
    pub ours: f64,
    /// The ratio of ours to the floor's: the median over pairs of consecutive measurements.
    pub ratio: f64,
}

impl Figures {
    fn of(what: String, pairs: &[(f64, f64)]) -> Figures {
        let middle = |of: fn(&(f64, f64)) -> f64| median(pairs.iter().map(of).collect());
        let (floor, ours) = (middle(|pair| pair.0), middle(|pair| pair.1));
        Figures { what, floor, ours, ratio: middle(|pair| pair.1 / pair.0) }
    }
}

/// Drives our server over plain sockets, like the bare server.
fn drive(address: SocketAddr, connections: usize, depth: usize, duration: Duration) -> Result<f64> {
    let load = Load {
        address,
        connections,
        depth,
        request: &request_frame(),
        reply_bytes: REPLY_FRAME_BYTES,
        stamp: None,
        warm_up: duration / 10,
        duration,
    };
    Ok(generate(&load, &mut greet)?.per_second())
}

/// Measures TCP: connections with requests in flight on each.
///
/// # Errors
/// When it cannot be run.
pub fn tcp(
    connections: usize,
    depth: usize,
    duration: Duration,
    repeats: usize,
) -> Result<Figures> {
    let mut pairs = Vec::new();
    for _ in 0..repeats {
        let floor = echo_throughput(Waiting::Polling, connections, depth, duration)?;
        let setup = Setup::tcp(Polling::Always);
        let (rate, _) = beside(setup, |address| drive(address, connections, depth, duration))?;
        pairs.push((floor.per_second(), rate));
    }
    let what = format!("TCP, {connections} connections, {depth} in flight on each");
    Ok(Figures::of(what, &pairs))
}

/// Measures shared memory: one client with requests in flight.
///
/// # Errors
/// When it cannot be run.
pub fn shared_memory(depth: usize, duration: Duration, repeats: usize) -> Result<Figures> {
    let mut pairs = Vec::new();
    for _ in 0..repeats {
        let floor = ring_throughput(depth, duration)?;
        let setup = Setup { shared_memory: true, polling: Polling::Always };
        let (rate, _) = beside(setup, |address| in_flight(address, true, depth, duration))?;
        pairs.push((floor, rate));
    }
    Ok(Figures::of(format!("shared memory, {depth} in flight"), &pairs))
}

/// Runs the experiment and prints it.
///
/// # Errors
/// When it cannot be run.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { seconds, repeats, json } = *arguments;
    let duration = Duration::from_secs_f64(seconds.clamp(0.01, 60.0));
    let mut all = Vec::new();
    for (connections, depth) in [(1, 1), (8, 1), (32, 1), (8, 32)] {
        all.push(tcp(connections, depth, duration, repeats)?);
    }
    for depth in [1, 4, 16, 60] {
        all.push(shared_memory(depth, duration, repeats)?);
    }
    let columns = ["load", "floor K/s", "ours K/s", "share"];
    let mut table = Table::new("Requests a second, one server core", &columns);
    for figures in &all {
        table.row(&[
            figures.what.clone(),
            format!("{:.0}", figures.floor / 1e3),
            format!("{:.0}", figures.ours / 1e3),
            format!("{:.2}", figures.ratio),
        ]);
    }
    show(json, &table, &all)
}
