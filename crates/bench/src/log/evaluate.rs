//! The requirements of the log, measured again and printed beside the results.
//!
//! The full run takes some minutes and a few gigabytes of memory. `--quick` does the same with less
//! data and time: it shows that everything works, but its figures mean little.

use super::cleaner::Setup;
use super::subject::{Plan, Subject, entry_bytes, options_for, uniform};
use super::{allocators, index, replay};
use crate::requirements::Rows;
use anyhow::Result;
use std::time::Duration;
use thunderhead_load::machine;
use thunderhead_log::Tombstones;

/// The sizes of all measurements.
struct Scale {
    live_bytes: u64,
    time: Duration,
    objects: [u64; 2],
    repeats: usize,
    /// Live payload of the workloads whose sizes change.
    workload_bytes: u64,
}

/// Measures and prints all requirements; returns false if one is not met.
///
/// # Errors
/// When something cannot be measured.
pub fn run(quick: bool, json: bool) -> Result<bool> {
    let scale = if quick {
        Scale {
            live_bytes: 320 << 20,
            time: Duration::from_millis(300),
            objects: [2_500_000, 3_000_000],
            repeats: 1,
            workload_bytes: 64 << 20,
        }
    } else {
        Scale {
            live_bytes: 1 << 30,
            time: Duration::from_secs(2),
            objects: [1_000_000, 10_000_000],
            repeats: 3,
            workload_bytes: 512 << 20,
        }
    };
    let mut rows = Rows::default();
    utilization(&scale, &mut rows)?;
    tombstones(&scale, &mut rows)?;
    levels(&scale, &mut rows)?;
    overhead(&scale, &mut rows)?;
    workloads(&scale, &mut rows)?;
    lookups(&scale, &mut rows)?;
    overwrites(&scale, &mut rows)?;
    replays(&scale, &mut rows)?;
    rows.show(json)
}

fn repeated(scale: &Scale, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    let figures: Result<Vec<f64>> = (0..scale.repeats).map(|_| measure()).collect();
    Ok(machine::median(figures?))
}

fn utilization(scale: &Scale, rows: &mut Rows) -> Result<()> {
    // One log for each utilization, measured both ways in turn, so that slow moments of the machine
    // affect both.
    let mut figures = Vec::new();
    for utilization in [0.3, 0.8, 0.9] {
        let mut settled = Setup::new(scale.live_bytes, utilization, scale.time).prepare()?;
        let (mut singly, mut batched) = (Vec::new(), Vec::new());
        for _ in 0..scale.repeats {
            singly.push(settled.overwrite(scale.time, false)?.writes);
            batched.push(settled.overwrite(scale.time, true)?.writes);
        }
        figures.push([machine::median(singly), machine::median(batched)]);
    }
    for (way, how) in ["singly", "in batches of 64"].into_iter().enumerate() {
        let base = figures[0][way];
        for (at, percent, least) in [(1, 80, 0.90), (2, 90, 0.75)] {
            let what = format!(
                "100 B uniform overwrites {how}, {percent} % full against 30 % ({:.2} M/s)",
                base / 1e6
            );
            let relative = figures[at][way] / base;
            // The requirement is for single writes. Batches start from twice the speed, so the one
            // cleaner on the second core falls behind sooner.
            if way == 0 {
                rows.at_least(&what, least, relative, "");
            } else {
                rows.reported(&what, relative, "");
            }
        }
    }
    Ok(())
}

fn tombstones(scale: &Scale, rows: &mut Rows) -> Result<()> {
    let run = |tombstones| {
        let setup = Setup { tombstones, ..Setup::new(scale.live_bytes, 0.9, scale.time) };
        let mut settled = setup.prepare()?;
        let mut runs = Vec::new();
        for _ in 0..scale.repeats {
            let run = settled.overwrite(scale.time, true)?;
            runs.push((run.writes, run.cleaner_bytes * run.bytes / run.writes));
        }
        let writes = machine::median(runs.iter().map(|run| run.0).collect());
        let bytes = machine::median(runs.iter().map(|run| run.1).collect());
        anyhow::Ok((writes, bytes))
    };
    let (folded, classic) = (run(Tombstones::Folded)?, run(Tombstones::Classic)?);
    let what = "folded against classic tombstones, 90 % full, 100 B uniform, batches: writes";
    rows.at_least(what, 1.3, folded.0 / classic.0, "×");
    let what = "the same: cleaner bytes to backups for each write";
    rows.at_most(what, 0.6, folded.1 / classic.1, "×");
    Ok(())
}

fn levels(scale: &Scale, rows: &mut Rows) -> Result<()> {
    let run = |two_level| {
        let setup = Setup {
            two_level,
            value_bytes: 10_000,
            batched: true,
            bandwidth: Some(700_000_000),
            ..Setup::new(scale.live_bytes, 0.9, scale.time)
        };
        setup.measure()
    };
    let (two, one) = (run(true)?, run(false)?);
    let what = "two levels against one, 10 000 B, 90 % full, 700 MB/s backups: writes";
    rows.at_least(what, 3.0, two.writes / one.writes, "×");
    let fewer = one.cleaner_bytes / two.cleaner_bytes.max(1e-3);
    rows.at_least("the same: times fewer cleaner bytes for each new byte", 7.0, fewer, "×");
    Ok(())
}

fn overhead(scale: &Scale, rows: &mut Rows) -> Result<()> {
    for objects in scale.objects {
        let before = machine::resident_bytes();
        let plan = Plan {
            value_bytes: 100,
            live_bytes: objects * entry_bytes(100),
            utilization: 0.9,
            options: options_for(objects * entry_bytes(100)),
            cleaners: 1,
        };
        let mut subject = Subject::unreplicated(&plan)?;
        let mut draw = uniform(subject.objects, 1);
        subject.overwrite(scale.time, scale.time, true, &mut draw)?;
        let resident = machine::resident_bytes().saturating_sub(before) as f64;
        let usage = subject.log.usage();
        let count = subject.objects as f64;
        let header = usage.live_bytes as f64 / count - 130.0;
        let index = usage.index_bytes as f64 / count;
        let what = format!(
            "{objects} objects of 30 + 100 B: overhead ({header:.1} B header, {index:.1} B index)"
        );
        rows.at_most(&what, 32.0, header + index, "B");
        let configured = (usage.log_bytes + usage.index_bytes) as f64;
        let what = format!(
            "the same: process against configured memory ({:.0} B an object at 90 %)",
            resident / count
        );
        rows.at_most(&what, 1.05, resident / configured, "×");
    }
    Ok(())
}

fn workloads(scale: &Scale, rows: &mut Rows) -> Result<()> {
    for number in 0..8 {
        let outcome = allocators::memory(number, scale.workload_bytes, 1.3)?;
        let mut others = String::new();
        for allocators::Rival { name, held } in &outcome.allocators {
            others += &format!(", {name} {:.2}", held.per_byte());
        }
        let what = format!(
            "{} completes 90 % full; process against live entries and index \
             (resident per live byte: ours {:.2}{others})",
            outcome.workload,
            outcome.ours.per_byte()
        );
        match outcome.ours.worst_ratio {
            Some(ratio) => rows.at_most(&what, 1.13, ratio, "×"),
            // Nothing was measured, so the requirement is not met.
            None => rows.add(&what, "≤ 1.13 ×".into(), "not reached: never full".into(), false),
        }
    }
    Ok(())
}

fn lookups(scale: &Scale, rows: &mut Rows) -> Result<()> {
    let figures = index::measure(scale.objects[1])?;
    let (ours, theirs) = (figures.ours.list(), figures.hashbrown.list());
    let names = ["hit", "miss", "hit in batches of 64", "miss in batches of 64"];
    for (at, name) in names.into_iter().enumerate() {
        let what = format!(
            "lookup among {} objects, {name}: {:.0} ns against hashbrown's {:.0} ns",
            figures.objects, ours[at], theirs[at]
        );
        rows.at_most(&what, 1.1, ours[at] / theirs[at], "×");
    }
    rows.at_most("longest insert while growing", 1.0, figures.longest_insert_us / 1e3, "ms");
    Ok(())
}

fn overwrites(scale: &Scale, rows: &mut Rows) -> Result<()> {
    for (batched, least) in [(false, 1.2), (true, 3.0)] {
        let plan = Plan {
            value_bytes: 100,
            live_bytes: scale.live_bytes,
            utilization: 0.2,
            options: options_for(scale.live_bytes),
            cleaners: 1,
        };
        let figure = repeated(scale, || {
            let mut subject = Subject::unreplicated(&plan)?;
            let mut draw = uniform(subject.objects, 1);
            let time = scale.time.min(Duration::from_secs(1)) / 2;
            Ok(subject.overwrite(Duration::ZERO, time, batched, &mut draw)?.writes)
        })?;
        let how = if batched { "in batches of 64" } else { "singly" };
        let what = format!("overwrite, one thread, 100 B, nothing to clean, {how}");
        rows.at_least(&what, least, figure / 1e6, "M/s");
    }
    Ok(())
}

fn replays(scale: &Scale, rows: &mut Rows) -> Result<()> {
    let small = replay::measure(100, scale.live_bytes / 2, replay::Way::AtOnce)?;
    rows.at_least("replay of 100 B objects, one core", 4.0, small.objects_per_second / 1e6, "M/s");
    let large = replay::measure(10_000, scale.live_bytes, replay::Way::AtOnce)?;
    rows.at_least("replay of 10 KB objects, one core", 1.5, large.gigabytes_per_second, "GB/s");
    Ok(())
}
