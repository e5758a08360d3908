//! Many objects in one message: one client over shared memory that keeps eight messages in flight.

use super::super::run::{load, run};
use super::super::target::Own;
use super::{Scale, plan};
use crate::requirements::Rows;
use anyhow::Result;
use std::time::Duration;
use thunderhead_load::channel::Channel;
use thunderhead_load::machine::median;
use thunderhead_load::plan::Plan;
use thunderhead_load::run::Times;
use thunderhead_load::workload::Workload;

/// Returns million objects a second.
fn rate(scale: &Scale, own: &Own, plan: &Plan, settle: Duration) -> Result<f64> {
    let times = Times { warm_up: scale.burst / 10, duration: scale.burst };
    let rates = own.serving(Channel::Shm, |address| {
        load(plan, Channel::Shm, address)?;
        if !settle.is_zero() {
            let times = Times { warm_up: settle, duration: scale.burst };
            run(plan, Channel::Shm, address, times, &mut |_| {})?;
        }
        let burst = |_| {
            let tally = run(plan, Channel::Shm, address, times, &mut |_| {})?;
            Ok(tally.objects_per_second())
        };
        (0..scale.bursts).map(burst).collect::<Result<Vec<f64>>>()
    })?;
    Ok(median(rates) / 1e6)
}

pub(super) fn rows(scale: &Scale, rows: &mut Rows) -> Result<()> {
    for (at, objects) in scale.objects.into_iter().enumerate() {
        let own = Own { cleaners: 0, ..Own::holding(objects, 100, 0.9) };
        let measured = rate(scale, &own, &plan(Workload::MultiRead, objects, 8), Duration::ZERO)?;
        let label = format!("multi-read of 70, one shard, 100 B, {objects} objects");
        if at == 0 {
            rows.at_least(&format!("{label} (target: 10 M/s)"), 6.0, measured, "M/s");
        } else {
            rows.reported(&label, measured, "M/s");
        }
    }
    let objects = scale.objects[0];
    // So much memory that almost no cleaning is needed.
    let own = Own::holding(objects, 100, 0.1);
    let writes = plan(Workload::MultiWrite, objects, 8);
    let measured = rate(scale, &own, &writes, Duration::ZERO)?;
    let label = format!("multi-write of 70, one shard, 100 B, {objects} objects, R = 0");
    rows.at_least(&label, 2.0, measured, "M/s");
    let without = Plan { exactly_once: false, ..writes.clone() };
    let measured = rate(scale, &own, &without, Duration::ZERO)?;
    rows.reported("the same, updates without identities", measured, "M/s");
    let measured = rate(scale, &Own::holding(objects, 100, 0.5), &writes, scale.settle)?;
    rows.reported("the same with identities, memory half full and cleaned", measured, "M/s");
    let own = Own { replicas: 1, ..Own::holding(objects, 100, 0.1) };
    let measured = rate(scale, &own, &writes, Duration::ZERO)?;
    let label = "multi-write of 70, one shard, 100 B, R = 1 to its own disk, level replicated";
    rows.at_least(label, 1.0, measured, "M/s");
    let own = Own { replicas: 3, ..Own::holding(objects, 100, 0.3) };
    let measured = rate(scale, &own, &writes, Duration::ZERO)?;
    rows.reported("the same, R = 3, four servers in one process on one core", measured, "M/s");
    Ok(())
}
