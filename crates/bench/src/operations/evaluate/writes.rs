//! Writes of single objects, one at a time: the cost of an identity, and the effect of a cleaner.

use super::super::generator::Generator;
use super::super::run::{load, run};
use super::super::target::Own;
use super::{Scale, latencies, medians, name, plan};
use crate::requirements::Rows;
use anyhow::Result;
use thunderhead_load::channel::Channel;
use thunderhead_load::plan::Plan;
use thunderhead_load::run::Times;
use thunderhead_load::workload::Workload;
use thunderhead_runtime::polling::Polling;

/// Compares exactly-once updates with updates that a retry may repeat.
pub(super) fn exactly_once(scale: &Scale, rows: &mut Rows) -> Result<()> {
    let objects = scale.objects[0];
    for channel in [Channel::Tcp, Channel::Shm] {
        let own = Own::holding(objects, 100, 0.3);
        let turns = own.beside(channel, |address| {
            let with = plan(Workload::Write, objects, 1);
            let without = Plan { exactly_once: false, ..with.clone() };
            load(&with, channel, address)?;
            let mut clients = [
                Generator::new(&without, channel, address, 0)?,
                Generator::new(&with, channel, address, 1)?,
            ];
            let mut turns = Vec::new();
            for _ in 0..scale.turns {
                let mut found = [0.0; 2];
                for (client, median) in clients.iter_mut().zip(&mut found) {
                    *median = latencies(client, scale.rounds)?.value_at_percentile(50.0) as f64;
                }
                turns.push([found[0], found[1], (found[1] / found[0] - 1.0) * 100.0]);
            }
            Ok(turns)
        })?;
        let [off, on, more] = medians(&turns);
        let what = format!(
            "write, R = 0, {}, median: exactly once {on:.0} ns, without {off:.0} ns; more",
            name(channel)
        );
        match channel {
            Channel::Tcp => rows.at_most(&what, 3.0, more, "%"),
            // Without backups and without a kernel in between, a write contains little else.
            Channel::Shm => rows.reported(&what, more, "%"),
        }
    }
    Ok(())
}

/// Compares a log that is 90 % full and constantly cleaned with a log that is never cleaned.
pub(super) fn cleaner(scale: &Scale, rows: &mut Rows) -> Result<()> {
    let objects = scale.objects[0];
    for channel in [Channel::Tcp, Channel::Shm] {
        // Two shards share one core: the idle one sleeps.
        let polling = Polling::default();
        let full = Own { polling, ..Own::holding(objects, 100, 0.9) };
        let empty = Own { polling, cleaners: 0, ..Own::holding(objects, 100, 0.05) };
        let many = plan(Workload::MultiWrite, objects, 8);
        let write = plan(Workload::Write, objects, 1);
        let turns = full.beside(channel, |full| {
            load(&many, channel, full)?;
            let times = Times { warm_up: scale.settle, duration: scale.burst };
            run(&many, channel, full, times, &mut |_| {})?;
            empty.beside(channel, |empty| {
                load(&many, channel, empty)?;
                let mut clients = [
                    Generator::new(&write, channel, empty, 0)?,
                    Generator::new(&write, channel, full, 1)?,
                ];
                let mut turns = Vec::new();
                for _ in 0..scale.turns {
                    let mut found = [[0.0; 2]; 2];
                    for (client, found) in clients.iter_mut().zip(&mut found) {
                        let latencies = latencies(client, scale.rounds)?;
                        let at = |percent| latencies.value_at_percentile(percent) as f64;
                        *found = [at(50.0), at(99.9)];
                    }
                    let [[off, off_tail], [on, on_tail]] = found;
                    turns.push([off, on, off_tail, on_tail, (on / off - 1.0) * 100.0]);
                }
                Ok(turns)
            })
        })?;
        let [off, on, off_tail, on_tail, more] = medians(&turns);
        let what = format!(
            "write, R = 0, {}, median: cleaner running at 90 % {on:.0} ns, off {off:.0} ns; more",
            name(channel)
        );
        match channel {
            Channel::Tcp => rows.at_most(&what, 2.0, more, "%"),
            Channel::Shm => rows.reported(&what, more, "%"),
        }
        let what = format!("the same, 99.9 %: running; off {:.1} µs", off_tail / 1e3);
        rows.reported(&what, on_tail / 1e3, "µs");
    }
    Ok(())
}
