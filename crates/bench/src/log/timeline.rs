//! The phases of a compaction and of a pass of combined cleaning, with their times, and the time
//! from there until the memory is free.
//!
//! A log is filled and overwritten on one core. A cleaner on another core reads the clock at the
//! beginning of each phase: twice for each batch of 32 entries, which costs a nanosecond or two for
//! each entry. The progress of a step's result is checked after every 64 writes, each of which ends
//! with a turn of the log.

use super::cleaner::{backups, check_bandwidth, check_seconds, check_utilization, settling_bytes};
use super::subject::{self, Plan, Subject, entry_bytes, options_for, uniform};
use anyhow::{Context as _, Result, anyhow};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thunderhead_load::machine::{self, median};
use thunderhead_load::output::{progress, show};
use thunderhead_load::plot::{self, Marks, Panel, Series, save};
use thunderhead_load::table::Table;
use thunderhead_log::{Cleaner, Phase, Step, Usage};

/// The options of the run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Bytes of live entries.
    #[arg(long, default_value_t = 512 << 20)]
    live: u64,
    /// Live entries as a share of memory, in percent: 1 to 95.
    #[arg(long, default_value_t = 90)]
    utilization: u32,
    /// Bytes of a value.
    #[arg(long, default_value_t = 100)]
    size: usize,
    /// Bandwidth of the backups in MB/s, 1 to 1000000; unlimited if not given.
    #[arg(long)]
    bandwidth: Option<u64>,
    /// Seconds of overwriting, 0.01 to 3600, after the cleaner's work has settled.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw the figures.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// The phases of a step, by their place in the figures.
const PHASES: [&str; 6] = [
    "picking candidates",
    "looking through one",
    "taking memory",
    "reading heads, copying entries",
    "telling the index",
    "handing on",
];

fn place(phase: Phase) -> usize {
    match phase {
        Phase::Picking => 0,
        Phase::Looking => 1,
        Phase::TakingMemory => 2,
        Phase::Copying => 3,
        Phase::Telling { .. } => 4,
        Phase::HandingOn => 5,
    }
}

/// A timed step.
#[derive(Clone, Debug)]
struct Timed {
    step: Step,
    /// Its number among steps of its kind, from 0.
    number: usize,
    phases: [Duration; PHASES.len()],
    entries: usize,
    ended: Instant,
}

/// Times the phases of a step.
struct Stopwatch {
    phase: Phase,
    since: Instant,
    phases: [Duration; PHASES.len()],
    entries: usize,
    /// Results handed on: a compaction that gained nothing hands on none.
    works: usize,
}

impl Stopwatch {
    fn new() -> Stopwatch {
        let phases = [Duration::ZERO; PHASES.len()];
        Stopwatch { phase: Phase::Picking, since: Instant::now(), phases, entries: 0, works: 0 }
    }

    fn begins(&mut self, phase: Phase) {
        let now = Instant::now();
        if let Some(time) = self.phases.get_mut(place(self.phase)) {
            *time += now - self.since;
        }
        if let Phase::Telling { entries } = self.phase {
            self.entries += entries;
            self.works += usize::from(phase == Phase::HandingOn);
        }
        (self.phase, self.since) = (phase, now);
    }
}

/// Cleans until it is told to stop.
fn clean(mut cleaner: Cleaner, stop: &AtomicBool) -> Vec<Timed> {
    machine::pin(1);
    let (mut all, mut compactions, mut passes) = (Vec::new(), 0, 0);
    while !stop.load(Ordering::Relaxed) {
        let mut watch = Stopwatch::new();
        let step = cleaner.step_watched(&mut |phase| watch.begins(phase));
        watch.begins(Phase::Picking);
        let Stopwatch { phases, entries, since: ended, works, .. } = watch;
        let is_pass = step == Step::Combined;
        passes += usize::from(is_pass);
        compactions += works - usize::from(is_pass);
        let number = match step {
            Step::Combined => passes - 1,
            Step::Compacted => compactions - 1,
            Step::Rescanned => 0,
            Step::Idle => {
                std::hint::spin_loop();
                continue;
            }
        };
        all.push(Timed { step, number, phases, entries, ended });
    }
    all
}

/// The times at which each compaction and each pass reached each stage.
#[derive(Default)]
struct Came {
    compactions_freed: Vec<Instant>,
    received: Vec<Instant>,
    named: Vec<Instant>,
    freed: Vec<Instant>,
}

impl Came {
    fn look(&mut self, usage: &Usage) {
        let now = Instant::now();
        let counts = [
            (&mut self.compactions_freed, usage.compactions_freed),
            (&mut self.received, usage.passes_received),
            (&mut self.named, usage.passes_named),
            (&mut self.freed, usage.passes_freed),
        ];
        for (times, count) in counts {
            times.resize(count as usize, now);
        }
    }

    /// Returns the times from the end of a step to each later stage, if it has reached the last
    /// one.
    fn ways(&self, timed: &Timed) -> Option<Vec<Duration>> {
        let ends: &[&Vec<Instant>] = match timed.step {
            Step::Compacted => &[&self.compactions_freed],
            Step::Combined => &[&self.received, &self.named, &self.freed],
            Step::Idle | Step::Rescanned => &[],
        };
        let mut before = timed.ended;
        let way = |times: &&Vec<Instant>| {
            let end = *times.get(timed.number)?;
            let took = end.saturating_duration_since(before);
            before = before.max(end);
            Some(took)
        };
        ends.iter().map(way).collect()
    }
}

/// Returns the stages after a step of a kind.
fn ways_of(step: Step) -> &'static [&'static str] {
    match step {
        Step::Compacted => &["until the log has taken a turn and the cleaner checks"],
        Step::Combined => &[
            "until the log's turn receives it",
            "until a digest lists it",
            "until the digest is durable and the memory free",
        ],
        Step::Idle | Step::Rescanned => &[],
    }
}

/// One phase of one kind of step.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Compaction, a pass of combined cleaning, or a scan of a segment.
    pub step: &'static str,
    /// The work, or the event waited for.
    pub phase: &'static str,
    /// The median, in microseconds of a step.
    pub median_us: f64,
    /// The mean, in microseconds of a step.
    pub mean_us: f64,
    /// Its share of the step's time, if it is a part of the step.
    pub share: Option<f64>,
    /// Nanoseconds for each moved entry, if it is a part of the step.
    pub ns_per_entry: Option<f64>,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Live entries as a share of memory.
    pub utilization: f64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Overwrites a second during the measurement.
    pub writes_per_second: f64,
    /// Kinds of steps, the number of timed steps of each, and the mean number of entries that one
    /// moved.
    pub steps: Vec<(&'static str, usize, f64)>,
    /// By kind of step and phase.
    pub rows: Vec<Row>,
}

const KINDS: [(Step, &str); 3] = [
    (Step::Compacted, "compaction"),
    (Step::Combined, "combined"),
    (Step::Rescanned, "looking through"),
];

/// The name of the last row of a kind's phases.
const WHOLE: &str = "the whole step";

fn row(step: &'static str, phase: &'static str, times: Vec<Duration>) -> Row {
    let times: Vec<f64> = times.iter().map(|it| it.as_secs_f64() * 1e6).collect();
    let mean_us = times.iter().sum::<f64>() / times.len().max(1) as f64;
    Row { step, phase, median_us: median(times), mean_us, share: None, ns_per_entry: None }
}

/// Returns the rows of one kind of step.
fn rows_of(step: Step, name: &'static str, all: &[(Timed, Vec<Duration>)]) -> Vec<Row> {
    let entries: usize = all.iter().map(|(timed, _)| timed.entries).sum();
    let whole = |timed: &Timed| timed.phases.iter().sum::<Duration>();
    let of_steps: Duration = all.iter().map(|(timed, _)| whole(timed)).sum();
    let part = |phase: &'static str, times: Vec<Duration>| {
        let sum = times.iter().sum::<Duration>().as_secs_f64();
        let share = Some(sum / of_steps.as_secs_f64());
        let ns_per_entry = (entries > 0).then(|| sum * 1e9 / entries as f64);
        Row { share, ns_per_entry, ..row(name, phase, times) }
    };
    let phases = PHASES.iter().enumerate().map(|(at, phase)| {
        part(phase, all.iter().filter_map(|(it, _)| it.phases.get(at).copied()).collect())
    });
    let mut rows: Vec<Row> = phases.filter(|row| row.mean_us > 0.0).collect();
    rows.push(part(WHOLE, all.iter().map(|(timed, _)| whole(timed)).collect()));
    for (at, way) in ways_of(step).iter().enumerate() {
        let times = all.iter().filter_map(|(_, ways)| ways.get(at).copied());
        rows.push(row(name, way, times.collect()));
    }
    rows
}

impl Arguments {
    fn check(&self) -> Result<()> {
        check_utilization(self.utilization)?;
        check_bandwidth(self.bandwidth)?;
        check_seconds(self.seconds)?;
        subject::check_size(self.size, self.live, &options_for(self.live), "--live")
    }

    fn plan(&self) -> Plan {
        Plan {
            value_bytes: self.size,
            live_bytes: self.live,
            utilization: f64::from(self.utilization) / 100.0,
            options: options_for(self.live),
            // The measured cleaner is the only one.
            cleaners: 0,
        }
    }

    /// # Errors
    /// When the log cannot be made or filled.
    fn measure(&self) -> Result<Figures> {
        let plan = self.plan();
        let bandwidth = self.bandwidth.map(|megabytes| megabytes * 1_000_000);
        let mut subject = Subject::prepared(&plan, backups(bandwidth))?;
        let cleaner = subject.log.cleaner().context("a new log has no cleaners")?;
        let stop = AtomicBool::new(false);
        let mut came = Came::default();
        let (steps, result) = std::thread::scope(|scope| {
            let cleaning = scope.spawn(|| clean(cleaner, &stop));
            let result = self.overwrite(&mut subject, &mut came);
            stop.store(true, Ordering::Relaxed);
            (cleaning.join(), result)
        });
        let (began, writes_per_second) = result?;
        let steps = steps.map_err(|_| anyhow!("the cleaner panicked"))?;
        let timed: Vec<(Timed, Vec<Duration>)> = steps
            .into_iter()
            .filter(|timed| timed.ended >= began)
            .filter_map(|timed| came.ways(&timed).map(|ways| (timed, ways)))
            .collect();
        let (mut steps, mut rows) = (Vec::new(), Vec::new());
        for (step, name) in KINDS {
            let all: Vec<_> = timed.iter().filter(|(it, _)| it.step == step).cloned().collect();
            if !all.is_empty() {
                let entries: usize = all.iter().map(|(timed, _)| timed.entries).sum();
                steps.push((name, all.len(), entries as f64 / all.len() as f64));
                rows.extend(rows_of(step, name, &all));
            }
        }
        let (utilization, value_bytes) = (plan.utilization, self.size);
        Ok(Figures { utilization, value_bytes, writes_per_second, steps, rows })
    }

    /// Fills a log and overwrites it until it has settled, and then for the requested time. Returns
    /// the start of that time, and the writes a second.
    fn overwrite(&self, subject: &mut Subject, came: &mut Came) -> Result<(Instant, f64)> {
        subject.fill()?;
        progress("it is filled");
        let mut draw = uniform(subject.objects, 1);
        let mut numbers = [0; 64];
        let mut some = |subject: &mut Subject| {
            numbers.fill_with(&mut draw);
            subject.write_batch(&numbers)?;
            subject.log.turn();
            came.look(&subject.log.usage());
            Ok::<u64, anyhow::Error>(numbers.len() as u64)
        };
        let enough = settling_bytes(subject) / entry_bytes(self.size);
        let mut writes = 0;
        while writes < enough {
            writes += some(subject)?;
        }
        progress("it has settled");
        let (began, time) = (Instant::now(), Duration::from_secs_f64(self.seconds));
        writes = 0;
        while began.elapsed() < time {
            writes += some(subject)?;
        }
        Ok((began, writes as f64 / began.elapsed().as_secs_f64()))
    }
}

/// Runs the experiment and prints it.
///
/// # Errors
/// When the options are invalid, or it cannot be run.
pub fn run(arguments: &Arguments) -> Result<()> {
    arguments.check()?;
    machine::ensure_memory(arguments.plan().memory_bytes(), "--live")?;
    plot::check(arguments.plot.as_deref())?;
    let figures = arguments.measure()?;
    show(arguments.json, &table(&figures), &figures)?;
    if let Some(path) = &arguments.plot {
        save(path, &panels(&figures))?;
    }
    Ok(())
}

fn table(figures: &Figures) -> Table {
    let steps = figures.steps.iter().map(|(name, count, entries)| match *entries > 0.0 {
        true => format!("{name}: {count} steps of {entries:.0} entries"),
        false => format!("{name}: {count} steps"),
    });
    let title = format!(
        "Cleaning at {:.0} % with values of {} B, {:.0} K/s overwritten; {}",
        figures.utilization * 100.0,
        figures.value_bytes,
        figures.writes_per_second / 1e3,
        steps.collect::<Vec<_>>().join("; ")
    );
    let columns = ["step", "phase", "median µs", "mean µs", "share", "ns/entry"];
    let mut table = Table::new(&title, &columns);
    for row in &figures.rows {
        table.row(&[
            row.step.into(),
            row.phase.into(),
            format!("{:.1}", row.median_us),
            format!("{:.1}", row.mean_us),
            row.share.map_or_else(String::new, |share| format!("{:.1} %", share * 100.0)),
            row.ns_per_entry.map_or_else(String::new, |ns| format!("{ns:.1}")),
        ]);
    }
    table
}

/// Returns the phases of steps for each moved entry, and the times of steps and of the stages after
/// them.
fn panels(figures: &Figures) -> Vec<Panel> {
    let series = |groups: &[&str], measure: &dyn Fn(&Row) -> Option<f64>| {
        let kinds = KINDS.iter().map(|(_, name)| {
            let rows = figures.rows.iter().filter(|row| row.step == *name);
            let point = |row: &Row| {
                let group = groups.iter().position(|it| *it == row.phase)?;
                Some((group as f64, measure(row)?))
            };
            Series { name: (*name).into(), points: rows.filter_map(point).collect() }
        });
        kinds.filter(|it| !it.points.is_empty()).collect::<Vec<_>>()
    };
    let panel = |title: &str, y_label: &str, marks: &[&str], series| Panel {
        title: title.into(),
        x_label: String::new(),
        y_label: y_label.into(),
        marks: Marks::Bars(marks.iter().map(|it| (*it).to_owned()).collect()),
        series,
    };
    let marks = ["picking", "looking", "memory", "copying", "index", "handing on"];
    let of_entries = series(&PHASES, &|row| row.ns_per_entry);
    let whole = [&[WHOLE], ways_of(Step::Compacted), ways_of(Step::Combined)].concat();
    let of_steps = series(&whole, &|row| Some(row.median_us));
    let steps = ["the step", "freed", "received", "in a digest", "durable"];
    vec![
        panel("Phases of cleaning", "ns for each moved entry", &marks, of_entries),
        panel("From the step to free memory", "µs, median", &steps, of_steps),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> Arguments {
        Arguments {
            live: 4 << 20,
            utilization: 80,
            size: 100,
            bandwidth: None,
            seconds: 0.01,
            json: false,
            plot: None,
        }
    }

    #[test]
    fn invalid_options_are_refused() {
        assert!(Arguments { utilization: 96, ..arguments() }.check().is_err());
        assert!(Arguments { seconds: f64::NAN, ..arguments() }.check().is_err());
        assert!(Arguments { bandwidth: Some(0), ..arguments() }.check().is_err());
        assert!(Arguments { live: 1000, ..arguments() }.check().is_err());
        arguments().check().unwrap();
    }

    #[test]
    fn phases_are_parts_of_the_step_and_later_stages_are_not() {
        let began = Instant::now();
        let second = Duration::from_secs(1);
        let mut phases = [Duration::ZERO; PHASES.len()];
        (phases[0], phases[3]) = (second, 3 * second);
        let timed =
            Timed { step: Step::Combined, number: 1, phases, entries: 1000, ended: began + second };
        let mut came = Came::default();
        assert!(came.ways(&timed).is_none(), "it has not reached the last stage");
        // It may be received before its cleaner has noticed the end of the step.
        came.received = vec![began; 2];
        came.named = vec![began, began + 3 * second];
        came.freed = vec![began, began + 4 * second];
        let ways = came.ways(&timed).unwrap();
        assert_eq!(ways, [Duration::ZERO, 2 * second, second]);
        let rows = rows_of(Step::Combined, "combined", &[(timed, ways)]);
        let shares: Vec<_> = rows.iter().map(|row| row.share).collect();
        assert_eq!(shares, [Some(0.25), Some(0.75), Some(1.0), None, None, None]);
        assert_eq!(rows.last().map(|row| row.median_us), Some(1e6));
        assert_eq!(rows.get(1).and_then(|row| row.ns_per_entry), Some(3e6));
    }
}
