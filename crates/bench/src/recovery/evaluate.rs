//! The requirements of recovery, measured again and printed beside the results.

use super::cold;
use crate::log::replay::{self, Way};
use crate::product;
use crate::requirements::Rows;
use anyhow::{Result, anyhow};
use std::path::Path;
use std::time::Duration;
use thunderhead_load::crash::{self, Plan, Reads, Report, Screen};
use thunderhead_load::machine::median;
use thunderhead_load::output::progress;

/// Table V of the TOCS paper: bytes of an object, millions of objects a second, MB a second.
const PAPER: [(usize, f64, f64); 6] = [
    (1, 2.32, 84.0),
    (64, 2.18, 210.0),
    (128, 2.03, 319.0),
    (256, 1.71, 478.0),
    (1024, 0.81, 824.0),
    (2048, 0.39, 781.0),
];

/// The required rates of rebuilding small and large objects.
const SMALL: (usize, f64) = (128, 4.0);
const LARGE: (usize, f64) = (1024, 1.2);

/// The required times from the crash until everything is readable, and until the cluster knows of
/// it.
const READABLE_S: f64 = 3.0;
const DETECTED_S: f64 = 0.5;

/// The most that recovery may add to the 99th percentile of reads of other tablets.
const READS_US: f64 = 200.0;

/// With less of a core than this, the thread was not alone on it, and the row says so.
const CROWDED: f64 = 0.95;

/// The sizes of all measurements.
struct Scale {
    /// Bytes that a master rebuilds, for each size.
    rebuilt_bytes: u64,
    /// Objects of 1000 B in the cluster that loses a server, and the number of crashes.
    objects: u64,
    crashes: usize,
    patience: Duration,
    /// Objects of 1000 B for the cold start.
    cold_objects: u64,
}

impl Scale {
    const FULL: Scale = Scale {
        rebuilt_bytes: 600 << 20,
        objects: 1_000_000,
        crashes: 3,
        patience: Duration::from_secs(30),
        cold_objects: 4_000_000,
    };
}

/// Measures and prints all requirements; returns false if one is not met.
///
/// # Errors
/// When something cannot be measured.
pub fn run(quick: bool, json: bool) -> Result<bool> {
    let scale = if quick {
        Scale {
            rebuilt_bytes: 48 << 20,
            objects: 60_000,
            crashes: 1,
            patience: Duration::from_secs(6),
            cold_objects: 150_000,
        }
    } else {
        Scale::FULL
    };
    let mut rows = Rows::default();
    // Pinned only here: later measurements have both cores again.
    let alone = |rows: &mut Rows| rebuilding(&scale, rows);
    thunderhead_load::machine::pinned(0, || alone(&mut rows))?;
    let program = product::program()?;
    crashes(&scale, &program, false, &mut rows)?;
    crashes(&scale, &program, true, &mut rows)?;
    reads(&scale, &program, &mut rows)?;
    cold::row(&program, scale.cold_objects, scale.patience, &mut rows)?;
    rows.show(json)
}

/// Measures a recovery master alone.
fn rebuilding(scale: &Scale, rows: &mut Rows) -> Result<()> {
    for (bytes, paper_objects, paper_bytes) in PAPER {
        let figures = replay::measure(bytes, scale.rebuilt_bytes, Way::InSlices)?;
        let (objects, throughput) =
            (figures.objects_per_second / 1e6, figures.gigabytes_per_second);
        let label = format!(
            "recovery master, one core, objects of {bytes} B (paper: {paper_objects} M/s, \
             {paper_bytes} MB/s)"
        );
        let mut measured = format!("{objects:.2} M/s, {:.0} MB/s", throughput * 1e3);
        if figures.processor_share < CROWDED {
            let percent = figures.processor_share * 100.0;
            measured.push_str(&format!(" with {percent:.0} % of a core"));
        }
        let (required, pass) = if bytes <= SMALL.0 {
            (format!("≥ {} M/s", SMALL.1), objects >= SMALL.1)
        } else if bytes >= LARGE.0 {
            (format!("≥ {} MB/s", LARGE.1 * 1e3), throughput >= LARGE.1)
        } else {
            ("reported".to_owned(), true)
        };
        rows.add(&label, required, measured, pass);
    }
    Ok(())
}

/// Reports a crash on the standard error.
struct Quietly;

impl Screen for Quietly {
    fn say(&self, at: Option<f64>, label: &str) {
        match at {
            Some(at) => progress(&format!("{at:8.3} s  {label}")),
            None => progress(label),
        }
    }

    fn progress(&self, _: &str, _: u64, _: u64, _: usize) {}
}

fn plan(scale: &Scale, program: &Path) -> Plan {
    let (objects, patience) = (scale.objects, scale.patience);
    Plan { objects, patience, ..Plan::new(program.to_owned()) }
}

/// Requires at most `most`, and that all runs reached the event.
fn within(rows: &mut Rows, label: &str, most: f64, all: &[Option<f64>], patience: Duration) {
    let reached: Vec<f64> = all.iter().copied().flatten().collect();
    if reached.len() < all.len() || reached.is_empty() {
        rows.add(label, format!("≤ {most} s"), format!("not within {patience:?}"), false);
    } else {
        rows.at_most(label, most, median(reached), "s");
    }
}

/// Reports figures of crashes without a requirement.
fn told(rows: &mut Rows, label: &str, all: &[Option<f64>]) {
    let reached: Vec<f64> = all.iter().copied().flatten().collect();
    if !reached.is_empty() {
        rows.reported(label, median(reached), "s");
    }
}

/// Measures a loaded cluster that loses a server.
fn crashes(scale: &Scale, program: &Path, has_all: bool, rows: &mut Rows) -> Result<()> {
    let plan = Plan { victim_has_all: has_all, ..plan(scale, program) };
    let mut reports = Vec::new();
    for _ in 0..scale.crashes {
        let report = crash::run(&plan, &Quietly)?;
        let came_back = report.came_back;
        reports.push(report);
        if !came_back {
            // The next crash would take as long and show the same.
            break;
        }
    }
    let had = if has_all { "all" } else { "a fifth" };
    let megabytes = reports.first().map_or(0, |it| it.bytes / 1_000_000);
    let of = format!("kill -9 of one of 5 servers, it had {had} of {megabytes} MB, R = 2");
    let times = |of: fn(&Report) -> Option<f64>| reports.iter().map(of).collect::<Vec<_>>();
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>() as f64;
    let patience = plan.patience;
    let last = times(|it| it.last_readable_s);
    within(rows, &format!("{of}: until all is readable"), READABLE_S, &last, patience);
    let detected = times(|it| it.detected_s);
    within(rows, "  of which until the cluster knows", DETECTED_S, &detected, patience);
    told(rows, "  until the first of its objects is readable", &times(|it| it.first_readable_s));
    told(rows, "  until its objects are written again", &times(|it| it.written_again_s));
    told(rows, "  longest pause of writes to the others", &times(|it| it.others_pause_s));
    let verdicts = sum(|it| it.false_verdicts.len() as u64);
    rows.at_most("  under full load: second verdicts", 0.0, verdicts, "");
    rows.at_most("  under full load: failed operations", 0.0, sum(|it| it.writes_failed), "");
    let label = format!(
        "  lost or wrong of {:.0} objects, {:.0} writes acknowledged",
        sum(|it| it.found.as_ref().map_or(0, |it| it.checked)),
        sum(|it| it.writes_acknowledged)
    );
    let bad = |it: &Report| it.found.as_ref().map_or(u64::MAX >> 20, |it| it.lost + it.wrong);
    match reports.iter().all(|it| it.found.is_some()) {
        true => rows.at_most(&label, 0.0, reports.iter().map(bad).sum::<u64>() as f64, ""),
        false => rows.add(&label, "≤ 0".into(), "not everything came back".into(), false),
    }
    Ok(())
}

/// The options of the measurement of reads during a recovery.
#[derive(Debug, clap::Args)]
pub(super) struct ReadsArguments {
    /// The number of recoveries, each of a new cluster; the median counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
}

/// Measures reads during a recovery only.
///
/// # Errors
/// When they cannot be measured, or fall short.
pub(super) fn run_reads(arguments: &ReadsArguments) -> Result<()> {
    let program = product::program()?;
    let mut rows = Rows::default();
    reads(&Scale { crashes: arguments.runs.max(1), ..Scale::FULL }, &program, &mut rows)?;
    match rows.show(false)? {
        true => Ok(()),
        false => Err(anyhow!("reads during a recovery take longer than required")),
    }
}

/// Measures reads of a surviving server, on a core that it shares only with the reader.
fn reads(scale: &Scale, program: &Path, rows: &mut Rows) -> Result<()> {
    let plan = Plan { write_for: None, read_apart: true, ..plan(scale, program) };
    let mut all = Vec::new();
    let mut came_back = true;
    for _ in 0..scale.crashes {
        let report = crash::run(&plan, &Quietly)?;
        let Some(reads) = report.reads else { return Ok(()) };
        progress(&format!(
            "99 % of reads: {:.0} µs, {:.0} before",
            reads.during_us, reads.before_us
        ));
        came_back &= report.came_back;
        all.push(reads);
        if !came_back {
            break;
        }
    }
    let middle = |of: fn(&Reads) -> f64| median(all.iter().map(of).collect());
    let failed: u64 = all.iter().map(|it| it.failed).sum();
    let label = format!(
        "reads on surviving tablets while a recovery runs, 99 %: {:.0} µs, without {:.0} µs, \
         {} reads, {failed} failed; more by",
        middle(|it| it.during_us),
        middle(|it| it.before_us),
        all.iter().map(|it| it.reads_during).sum::<u64>(),
    );
    let more = middle(|it| it.during_us - it.before_us);
    match came_back && failed == 0 {
        true => rows.at_most(&label, READS_US, more, "µs"),
        false => {
            let required = format!("≤ {READS_US} µs");
            rows.add(&label, required, format!("{more:.0} µs, not all came back"), false);
        }
    }
    Ok(())
}
