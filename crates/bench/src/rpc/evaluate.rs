//! The requirements of the reactor, its transports and RPC, measured again and printed beside the
//! results.

use super::latency::Blocking;
use super::{latency, price, scale, throughput};
use crate::requirements::Rows;
use anyhow::Result;
use std::time::{Duration, Instant};
use thunderhead_simulator::register::Flaw;
use thunderhead_simulator::swarm;

/// The sizes of all measurements.
struct Scale {
    /// Round trips of a measurement, and requests to a server that sleeps in between.
    rounds: u64,
    few: u64,
    /// The number of turns between floor and our store.
    turns: usize,
    /// The duration of a rate measurement, and the number of them.
    burst: Duration,
    bursts: usize,
    time: Duration,
    idle: Duration,
    connections: usize,
    seeds: u64,
}

/// Measures and prints all requirements; returns false if one is not met.
///
/// # Errors
/// When something cannot be measured.
pub fn run(quick: bool, json: bool) -> Result<bool> {
    let scale = if quick {
        Scale {
            rounds: 1_000,
            few: 20,
            turns: 5,
            burst: Duration::from_millis(50),
            bursts: 3,
            time: Duration::from_millis(100),
            idle: Duration::from_secs(2),
            connections: 500,
            seeds: 200,
        }
    } else {
        Scale {
            rounds: 5_000,
            few: 100,
            turns: 61,
            burst: Duration::from_millis(200),
            bursts: 15,
            time: Duration::from_secs(1),
            idle: Duration::from_secs(60),
            connections: 10_000,
            seeds: 10_000,
        }
    };
    let mut rows = Rows::default();
    latencies(&scale, &mut rows)?;
    throughputs(&scale, &mut rows)?;
    connections(&scale, &mut rows)?;
    prices(&scale, &mut rows)?;
    simulator(&scale, &mut rows);
    rows.show(json)
}

fn latencies(scale: &Scale, rows: &mut Rows) -> Result<()> {
    let tcp = latency::tcp(scale.rounds, scale.turns)?;
    let what =
        format!("TCP round trip, median: {:.0} ns, floor {:.0} ns", tcp.ours[0], tcp.floor[0]);
    rows.at_most(&what, 1.15, tcp.ratio, "×");
    let rings = latency::shared_memory(scale.rounds, scale.turns)?;
    let (ours, floor) = (rings.ours[0], rings.floor[0]);
    let what =
        format!("shared memory round trip, median: {ours:.0} ns, floor {floor:.0} ns; above it");
    rows.at_most(&what, 300.0, rings.above, "ns");
    let pause = Duration::from_millis(1);
    let asleep = |blocking| latency::now_and_then(scale.few, scale.turns, pause, blocking);
    let near = asleep(Blocking::OnUnixSocket)?;
    let what = format!(
        "server adaptive and idle before, same host, median: {:.0} ns; a server that blocks on a Unix socket {:.0} ns",
        near.ours[0], near.floor[0]
    );
    rows.at_most(&what, 1.0, near.ratio, "×");
    let many = asleep(Blocking::InEpoll)?;
    let what = format!(
        "the same over TCP, median: {:.0} ns; a bare server that blocks in epoll {:.0} ns",
        many.ours[0], many.floor[0]
    );
    // The requirement allows a Unix socket or TCP. It is met for clients with a Unix socket; over
    // TCP it is just missed.
    rows.reported(&what, many.ratio, "×");
    let one = asleep(Blocking::InRecv)?;
    let what = format!(
        "the same beside {:.0} ns of a server that blocks in recv, for one client",
        one.floor[0]
    );
    rows.reported(&what, one.ratio, "×");
    Ok(())
}

fn throughputs(scale: &Scale, rows: &mut Rows) -> Result<()> {
    for (connections, depth, least) in [(8, 1, 0.85), (32, 1, 0.85), (8, 32, 0.6)] {
        let figures = throughput::tcp(connections, depth, scale.burst, scale.bursts)?;
        let what = format!(
            "{}: {:.0} K/s, bare epoll echo {:.0} K/s",
            figures.what,
            figures.ours / 1e3,
            figures.floor / 1e3
        );
        rows.at_least(&what, least, figures.ratio, "×");
    }
    let figures = throughput::shared_memory(16, scale.burst, scale.bursts)?;
    let what = format!("{} (bare rings: {:.1} M/s)", figures.what, figures.floor / 1e6);
    rows.at_least(&what, 4.0, figures.ours / 1e6, "M/s");
    Ok(())
}

fn connections(scale: &Scale, rows: &mut Rows) -> Result<()> {
    let idle = scale::idle(100, scale.idle)?;
    let what = format!("idle server, 100 idle connections, {:?}: share of a core", scale.idle);
    rows.at_most(&what, 1.0, idle * 100.0, "%");
    let (requests, bytes) = scale::many(scale.connections, scale.time)?;
    let what = format!("{} connections, one request in flight on each", scale.connections);
    rows.reported(&what, requests / 1e3, "K/s");
    rows.reported("resident memory of the server for each idle connection", bytes, "B");
    Ok(())
}

fn prices(scale: &Scale, rows: &mut Rows) -> Result<()> {
    for figures in price::measure(scale.time)? {
        let price::Figures { polling, load, requests, processor_us, core, latency_us, .. } =
            figures;
        let what = format!(
            "{:.0} % load ({:.0} K/s), polling {polling}: {:.0} % of a core, median {latency_us:.1} µs; CPU a request",
            load * 100.0,
            requests / 1e3,
            core * 100.0
        );
        rows.reported(&what, processor_us, "µs");
    }
    Ok(())
}

fn simulator(scale: &Scale, rows: &mut Rows) {
    let began = Instant::now();
    let calm = swarm::five_hosts(1, Duration::from_secs(if scale.turns > 5 { 20 } else { 2 }));
    let ratio = calm.virtual_time.as_secs_f64() / began.elapsed().as_secs_f64();
    rows.at_least("simulator: a toy cluster of 5 hosts, times real time", 100.0, ratio, "×");
    let failures =
        (0..scale.seeds).filter(|seed| swarm::run(*seed, Flaw::None, false).failure.is_some());
    let failures = failures.count() as f64;
    rows.at_most(&format!("simulator: failures in {} seeds", scale.seeds), 0.0, failures, "");
}
