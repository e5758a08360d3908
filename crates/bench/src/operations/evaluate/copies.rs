//! Writes that are copied to backups before they are answered: their latency, its parts, and their
//! cost.
//!
//! **The parts of the latency**, as in the TOCS paper's Figures 10 and 11, are found by
//! differences. The same client writes one object at a time to clusters in this process, each of
//! which does one step more than the one before. No request is traced; a part is the increase of
//! the median.
//!
//! | The request | contains |
//! | --- | --- |
//! | ping of a server | client, network there and back, a turn of its reactor |
//! | write, no copies | and the shard's work |
//! | write, R = 1 on its own disk | and the replication's bookkeeping, and the backup's work |
//! | write, R = 1 on another server | and the network there and back, and two more wake-ups |
//! | write, R = 3 | and two more copies of that, side by side |
//!
//! All servers share one core, so steps that would overlap on separate machines run one after
//! another. A server that sleeps in between must also be woken, which costs a few microseconds.

use super::super::generator::{Generator, To};
use super::super::local::Place;
use super::super::run::{load, run};
use super::super::target::Own;
use super::{Scale, latencies, median_of, medians, name, plan};
use crate::requirements::Rows;
use crate::rpc::floors::PATIENCE;
use crate::rpc::subject::caller;
use anyhow::Result;
use std::time::{Duration, Instant};
use thunderhead_load::channel::Channel;
use thunderhead_load::run::Times;
use thunderhead_load::workload::Workload;
use thunderhead_rpc::Opcode;
use thunderhead_runtime::polling::Polling;

/// Objects in the clusters; their number does not matter here.
pub(super) const OBJECTS: u64 = 100_000;

/// Clusters, each of which does one step more than the one before: replicas, whether they are on
/// other servers, and the additional step.
pub(super) const STEPS: [(u32, bool, &str); 3] = [
    (1, false, "replication and the backup's work, in the same process (R = 1, own disk)"),
    (1, true, "network to a backup and back, and wake-ups (R = 1, another server)"),
    (3, true, "two more copies (R = 3, four servers)"),
];

/// Requests in flight while the cost of a write is measured, so that servers rarely wait.
const DEPTH: usize = 16;

pub(super) fn cluster(replicas: u32, is_remote: bool) -> Own {
    // Several servers that share one core never spin; this setting is not used then.
    let polling = Polling::default();
    Own { replicas, is_remote, polling, ..Own::holding(OBJECTS, 100, 0.1) }
}

fn ping(scale: &Scale, channel: Channel, to: To) -> Result<f64> {
    let mut caller = caller(channel)?;
    median_of(scale.rounds, || {
        let began = Instant::now();
        caller.call(to.shard, Opcode::Ping, &[&[]], Some(PATIENCE), |_| ())?;
        Ok(began.elapsed().as_nanos() as f64)
    })
}

/// Returns the medians of a ping and a write, and the write's 99th percentile, in nanoseconds.
fn measure(scale: &Scale, channel: Channel, place: &Place) -> Result<[f64; 3]> {
    let write = plan(Workload::Write, OBJECTS, 1);
    load(&write, channel, place.to)?;
    let mut client = Generator::new(&write, channel, place.to, 0)?;
    let mut turns = Vec::new();
    for _ in 0..scale.turns.min(15) {
        let ping = ping(scale, channel, place.to)?;
        let latencies = latencies(&mut client, scale.rounds)?;
        let at = |percent| latencies.value_at_percentile(percent) as f64;
        turns.push([ping, at(50.0), at(99.0)]);
    }
    Ok(medians(&turns))
}

/// Returns the processor time of the master and of a backup for each write, in nanoseconds, and
/// writes a second.
fn price(scale: &Scale, channel: Channel, place: &Place, workload: Workload) -> Result<[f64; 3]> {
    let plan = plan(workload, OBJECTS, DEPTH);
    // Without a warm-up: processor time and writes are counted from the same moment.
    let times = Times { warm_up: Duration::ZERO, duration: scale.burst };
    let mut turns = Vec::new();
    for _ in 0..scale.bursts {
        let before = place.processor()?;
        let tally = run(&plan, channel, place.to, times, &mut |_| {})?;
        let after = place.processor()?;
        let writes = tally.kinds.iter().map(|it| it.objects).sum::<u64>() as f64;
        let used: Vec<f64> = before
            .iter()
            .zip(&after)
            .map(|(before, after)| (*after - *before).as_nanos() as f64 / writes)
            .collect();
        let (master, backups) = used.split_first().unwrap_or((&0.0, &[]));
        let backup = backups.iter().sum::<f64>() / backups.len().max(1) as f64;
        turns.push([*master, backup, tally.objects_per_second()]);
    }
    Ok(medians(&turns))
}

pub(super) fn rows(scale: &Scale, rows: &mut Rows) -> Result<()> {
    for channel in [Channel::Shm, Channel::Tcp] {
        let alone = (0, false, "the shard: log, index, record, answer");
        let mut before = 0.0;
        for (replicas, is_remote, label) in std::iter::once(alone).chain(STEPS) {
            let own = cluster(replicas, is_remote);
            let [ping, write, tail] =
                own.in_cluster(channel, |place| measure(scale, channel, place))?;
            if replicas == 0 {
                let label =
                    format!("timeline of a write, {}: client, network, turn", name(channel));
                rows.reported(&label, ping / 1e3, "µs");
                before = ping;
            }
            rows.reported(&format!("timeline, then {label}"), (write - before) / 1e3, "µs");
            before = write;
            if replicas == 3 {
                let label = format!(
                    "write, R = 3, four servers in one process on one core, {}: median (99 %: {:.1} µs)",
                    name(channel),
                    tail / 1e3
                );
                rows.reported(&label, write / 1e3, "µs");
            }
        }
    }
    // No server spins, so processor time is work plus the cost of sleeping and waking.
    let own = Own { polling: Polling::Never, ..cluster(3, true) };
    let channel = Channel::Shm;
    own.in_cluster(channel, |place| {
        load(&plan(Workload::Write, OBJECTS, 1), channel, place.to)?;
        for (workload, label) in
            [(Workload::Write, "write"), (Workload::MultiWrite, "object of multi-writes of 70")]
        {
            let [master, backup, rate] = price(scale, channel, place, workload)?;
            let label =
                format!("R = 3, {DEPTH} in flight, {:.0} K/s: CPU for each {label}", rate / 1e3);
            rows.reported(&format!("{label} on the master"), master, "ns");
            rows.reported(&format!("{label} on a backup"), backup, "ns");
        }
        Ok(())
    })
}
