//! Figures 6, 7 and 8 of the paper: the cost of cleaning against memory utilization.
//!
//! For each combination of object size, locality, levels of cleaning and tombstone scheme, a log is
//! filled to a utilization and overwritten until its throughput has settled. Backups have unlimited
//! speed, or are modelled: new data and survivors share `--bandwidth` bytes a second, like the
//! three replicas on the paper's machines with 700 MB/s.

use super::subject::{self, Plan, Subject, Throughput, options_for, uniform, zipfian};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thunderhead_load::machine;
use thunderhead_load::output::{progress, show};
use thunderhead_load::plot::{self, Marks, Panel, Series, save};
use thunderhead_load::table::Table;
use thunderhead_log::{
    CLEANERS_MAX, NoReplication, Options, Replicator, SegmentBytes, SegmentKind, Tombstones,
};
use thunderhead_wire::{LogPosition, SegmentId};

/// The options of the run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Bytes of live entries. The memory needed is this divided by the lowest utilization, and 15
    /// bytes an object for the index: 1.9 GB for the defaults.
    #[arg(long, default_value_t = 512 << 20)]
    live: u64,
    /// Utilizations, in percent: 1 to 95.
    #[arg(long, value_delimiter = ',', default_value = "30,50,70,80,90")]
    utilization: Vec<u32>,
    /// Sizes of values, in bytes.
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000")]
    sizes: Vec<usize>,
    /// The objects that are written: uniform, zipfian (90 % of the writes to 15 %).
    #[arg(long, value_delimiter = ',', default_value = "uniform,zipfian")]
    writes: Vec<Writes>,
    /// Levels of cleaning: two, one.
    #[arg(long, value_delimiter = ',', default_value = "two,one")]
    levels: Vec<Levels>,
    /// Tombstones: folded, classic.
    #[arg(long, value_delimiter = ',', default_value = "folded,classic")]
    tombstones: Vec<Scheme>,
    /// Write objects singly, not in batches of 64.
    #[arg(long)]
    singly: bool,
    /// Bandwidth of the backups in MB/s, 1 to 1000000; unlimited if not given.
    #[arg(long)]
    bandwidth: Option<u64>,
    /// Seconds of overwriting for each point, 0.01 to 3600, after as many to settle.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Cleaner threads: 1 to 16, the most that a log has.
    #[arg(long, default_value_t = 1)]
    cleaners: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw the figures.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Writes {
    Uniform,
    Zipfian,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Levels {
    Two,
    One,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Scheme {
    Folded,
    Classic,
}

/// One measured point.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Whether 90 % of the writes go to 15 % of the objects.
    pub zipfian: bool,
    /// Whether segments are also compacted in memory.
    pub two_level: bool,
    /// Whether the classic tombstones are used.
    pub classic: bool,
    /// Live entries as a share of memory.
    pub utilization: f64,
    /// Writes a second.
    pub writes_per_second: f64,
    /// Megabytes of new entries a second.
    pub megabytes_per_second: f64,
    /// Bytes written by combined cleaning for each new byte.
    pub cleaner_bytes_per_new_byte: f64,
    /// Cores that the cleaners kept busy.
    pub cleaner_cores: f64,
}

/// One combination to measure.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes of live entries.
    pub live_bytes: u64,
    /// Live entries as a share of memory.
    pub utilization: f64,
    /// Whether writes have locality.
    pub zipfian: bool,
    /// Whether segments are also compacted in memory.
    pub two_level: bool,
    /// The tombstone scheme.
    pub tombstones: Tombstones,
    /// Bytes a second that backups accept, if limited.
    pub bandwidth: Option<u64>,
    /// Whether writes come in batches.
    pub batched: bool,
    /// Cleaner threads.
    pub cleaners: usize,
    /// The duration of the measurement, and of settling before it.
    pub time: Duration,
}

impl Setup {
    /// Returns the setup of 100-byte objects, uniform, two levels, folded, unlimited backups.
    #[must_use]
    pub fn new(live_bytes: u64, utilization: f64, time: Duration) -> Setup {
        Setup {
            value_bytes: 100,
            live_bytes,
            utilization,
            zipfian: false,
            two_level: true,
            tombstones: Tombstones::Folded,
            bandwidth: None,
            batched: false,
            cleaners: 1,
            time,
        }
    }

    /// Runs the setup.
    ///
    /// # Errors
    /// When the log cannot be made or filled.
    pub fn measure(&self) -> Result<Throughput> {
        let mut settled = self.prepare()?;
        settled.overwrite(self.time, self.batched)
    }

    /// Fills a log and overwrites it until the cleaners' work has settled.
    ///
    /// # Errors
    /// When the log cannot be made or filled.
    pub fn prepare(&self) -> Result<Settled> {
        let mut options = Options { tombstones: self.tombstones, ..options_for(self.live_bytes) };
        options.cleaner.compaction = self.two_level;
        let plan = Plan {
            value_bytes: self.value_bytes,
            live_bytes: self.live_bytes,
            utilization: self.utilization,
            options,
            cleaners: self.cleaners,
        };
        let mut subject = Subject::new(&plan, backups(self.bandwidth))?;
        let mut draw: Box<dyn FnMut() -> u64> = match self.zipfian {
            false => Box::new(uniform(subject.objects, 1)),
            true => Box::new(zipfian(subject.objects, 1)),
        };
        self.settle(&mut subject, &mut *draw)?;
        Ok(Settled { subject, draw })
    }

    fn settle(&self, subject: &mut Subject, draw: &mut dyn FnMut() -> u64) -> Result<()> {
        let began = Instant::now();
        let enough = settling_bytes(subject);
        let mut written = 0.0;
        while (written as u64) < enough && began.elapsed() < self.time * 6
            || began.elapsed() < self.time
        {
            let step = Duration::from_millis(200);
            let throughput = subject.overwrite(Duration::ZERO, step, true, draw)?;
            written += throughput.bytes * 0.2;
        }
        Ok(())
    }

    /// Runs the setup and labels the result.
    ///
    /// # Errors
    /// As [`Setup::measure`].
    pub fn point(&self) -> Result<Point> {
        let throughput = self.measure()?;
        Ok(Point {
            value_bytes: self.value_bytes,
            zipfian: self.zipfian,
            two_level: self.two_level,
            classic: self.tombstones == Tombstones::Classic,
            utilization: self.utilization,
            writes_per_second: throughput.writes,
            megabytes_per_second: throughput.bytes / 1e6,
            cleaner_bytes_per_new_byte: throughput.cleaner_bytes,
            cleaner_cores: throughput.cleaner_cores,
        })
    }
}

/// A log whose cleaners' work has settled.
pub struct Settled {
    subject: Subject,
    draw: Box<dyn FnMut() -> u64>,
}

impl Settled {
    /// Overwrites for a time and measures it.
    ///
    /// # Errors
    /// When the log refuses a write permanently.
    pub fn overwrite(&mut self, time: Duration, batched: bool) -> Result<Throughput> {
        self.subject.overwrite(Duration::ZERO, time, batched, &mut *self.draw)
    }
}

/// Refuses an impossible utilization.
pub(super) fn check_utilization(percent: u32) -> Result<()> {
    ensure!(
        (1..=95).contains(&percent),
        "--utilization is {percent}; it must be 1 to 95, because the cleaner needs free memory"
    );
    Ok(())
}

/// Refuses an impossible bandwidth.
pub(super) fn check_bandwidth(megabytes: Option<u64>) -> Result<()> {
    ensure!(
        megabytes.is_none_or(|bandwidth| (1..=1_000_000).contains(&bandwidth)),
        "--bandwidth must be 1 to 1000000 MB/s; leave it out for unlimited backups"
    );
    Ok(())
}

/// Refuses an impossible duration.
pub(super) fn check_seconds(seconds: f64) -> Result<()> {
    ensure!((0.01..=3600.0).contains(&seconds), "--seconds is {seconds}; it must be 0.01 to 3600");
    Ok(())
}

/// Returns backups that accept this many bytes a second, or any number.
pub(super) fn backups(bandwidth: Option<u64>) -> Box<dyn Replicator> {
    match bandwidth {
        None => Box::new(NoReplication::default()),
        Some(bandwidth) => Box::new(Modelled::new(bandwidth)),
    }
}

/// Returns the bytes to write until the cleaners' work has settled: enough to fill the free memory
/// and to overwrite half of the live data.
pub(super) fn settling_bytes(subject: &Subject) -> u64 {
    let usage = subject.log.usage();
    usage.log_bytes - usage.live_bytes / 2
}

impl Arguments {
    /// Refuses invalid options before any measurement.
    fn check(&self) -> Result<()> {
        for percent in &self.utilization {
            check_utilization(*percent)?;
        }
        for size in &self.sizes {
            subject::check_size(*size, self.live, &options_for(self.live), "--live")?;
        }
        check_bandwidth(self.bandwidth)?;
        check_seconds(self.seconds)?;
        ensure!(
            (1..=CLEANERS_MAX).contains(&self.cleaners),
            "--cleaners is {}; it must be 1 to {CLEANERS_MAX}, and without one memory stays full",
            self.cleaners
        );
        Ok(())
    }

    /// Returns the memory of the largest log: the smallest objects at the lowest utilization.
    fn memory_bytes(&self) -> u64 {
        let percent = self.utilization.iter().copied().min().unwrap_or(100);
        let plan = Plan {
            value_bytes: self.sizes.iter().copied().min().unwrap_or_default(),
            live_bytes: self.live,
            utilization: f64::from(percent) / 100.0,
            options: options_for(self.live),
            cleaners: self.cleaners,
        };
        plan.memory_bytes()
    }
}

/// Runs the experiment and prints it.
///
/// # Errors
/// When the options are invalid, or it cannot be run.
pub fn run(arguments: &Arguments) -> Result<()> {
    arguments.check()?;
    let needed = arguments.memory_bytes();
    machine::ensure_memory(needed, "--live, or leave out low --utilization")?;
    plot::check(arguments.plot.as_deref())?;
    let mut points = Vec::new();
    let time = Duration::from_secs_f64(arguments.seconds);
    for value_bytes in &arguments.sizes {
        for writes in &arguments.writes {
            for levels in &arguments.levels {
                for scheme in &arguments.tombstones {
                    for percent in &arguments.utilization {
                        let setup = Setup {
                            value_bytes: *value_bytes,
                            zipfian: *writes == Writes::Zipfian,
                            two_level: *levels == Levels::Two,
                            tombstones: match scheme {
                                Scheme::Folded => Tombstones::Folded,
                                Scheme::Classic => Tombstones::Classic,
                            },
                            bandwidth: arguments.bandwidth.map(|megabytes| megabytes * 1_000_000),
                            batched: !arguments.singly,
                            cleaners: arguments.cleaners,
                            ..Setup::new(arguments.live, f64::from(*percent) / 100.0, time)
                        };
                        let point = setup.point()?;
                        progress(&format!(
                            "{value_bytes} B, {writes:?}, {levels:?}, {scheme:?}, {percent} %: {:.2} M/s",
                            point.writes_per_second / 1e6
                        ));
                        points.push(point);
                    }
                }
            }
        }
    }
    let mut table = Table::new(
        "Overwrites against memory utilization",
        &[
            "value",
            "writes to",
            "levels",
            "tombstones",
            "full",
            "K/s",
            "MB/s",
            "cleaner/new",
            "cores",
        ],
    );
    for point in &points {
        table.row(&[
            format!("{} B", point.value_bytes),
            if point.zipfian { "zipfian" } else { "uniform" }.into(),
            if point.two_level { "two" } else { "one" }.into(),
            if point.classic { "classic" } else { "folded" }.into(),
            format!("{:.0} %", point.utilization * 100.0),
            format!("{:.0}", point.writes_per_second / 1e3),
            format!("{:.0}", point.megabytes_per_second),
            format!("{:.2}", point.cleaner_bytes_per_new_byte),
            format!("{:.2}", point.cleaner_cores),
        ]);
    }
    // Printed first, so that the results are not lost if the figure cannot be drawn.
    show(arguments.json, &table, &points)?;
    if let Some(path) = &arguments.plot {
        save(path, &panels(&points))?;
    }
    Ok(())
}

/// Returns three figures for each size and locality: throughput, cleaner bytes and processor time.
fn panels(points: &[Point]) -> Vec<Panel> {
    type Measure = fn(&Point) -> f64;
    let measures: [(&str, Measure); 3] = [
        ("MB/s of new entries", |point| point.megabytes_per_second),
        ("cleaner bytes to backups / new byte", |point| point.cleaner_bytes_per_new_byte),
        ("cores that the cleaners keep busy", |point| point.cleaner_cores),
    ];
    let mut groups: Vec<(usize, bool)> =
        points.iter().map(|point| (point.value_bytes, point.zipfian)).collect();
    groups.dedup();
    let mut panels = Vec::new();
    for (value_bytes, zipfian) in groups {
        for (y_label, measure) in measures {
            let schemes = [(true, false), (true, true), (false, false), (false, true)];
            let series = schemes.map(|(two_level, classic)| Series {
                name: format!(
                    "{} level{}, {}",
                    if two_level { "two" } else { "one" },
                    if two_level { "s" } else { "" },
                    if classic { "classic" } else { "folded" }
                ),
                points: points
                    .iter()
                    .filter(|it| (it.value_bytes, it.zipfian) == (value_bytes, zipfian))
                    .filter(|it| (it.two_level, it.classic) == (two_level, classic))
                    .map(|point| (point.utilization * 100.0, measure(point)))
                    .collect(),
            });
            let locality = if zipfian { "zipfian" } else { "uniform" };
            panels.push(Panel {
                title: format!("Values of {value_bytes} B, {locality} overwrites"),
                x_label: "memory utilization, %".into(),
                y_label: y_label.into(),
                marks: Marks::Lines,
                series: series.to_vec(),
            });
        }
    }
    panels
}

/// Backups that accept a fixed number of bytes a second, new data and survivors in turn, and buffer
/// a limited amount.
#[derive(Debug)]
pub struct Modelled {
    bandwidth: f64,
    last: Instant,
    /// Bytes that may be accepted now.
    credit: f64,
    queue: VecDeque<Transfer>,
    durable: LogPosition,
    survivors: BTreeMap<SegmentId, bool>,
}

#[derive(Debug)]
struct Transfer {
    segment: SegmentId,
    end: u32,
    left: f64,
    survivor: bool,
}

impl Modelled {
    /// Returns backups that accept this many bytes a second.
    #[must_use]
    pub fn new(bandwidth: u64) -> Modelled {
        Modelled {
            bandwidth: bandwidth as f64,
            last: Instant::now(),
            credit: 0.0,
            queue: VecDeque::new(),
            durable: LogPosition::default(),
            survivors: BTreeMap::new(),
        }
    }

    fn work(&mut self) {
        let now = Instant::now();
        self.credit += self.bandwidth * (now - self.last).as_secs_f64();
        self.last = now;
        while let Some(first) = self.queue.front_mut() {
            let taken = first.left.min(self.credit);
            first.left -= taken;
            self.credit -= taken;
            if first.left > 0.0 {
                return;
            }
            if first.survivor {
                self.survivors.insert(first.segment, true);
            } else {
                self.durable = LogPosition { segment: first.segment, offset: first.end };
            }
            self.queue.pop_front();
        }
        self.credit = 0.0;
    }

    /// Returns the bytes in flight.
    fn backlog(&self) -> f64 {
        self.queue.iter().map(|transfer| transfer.left).sum()
    }
}

impl Replicator for Modelled {
    fn opened(&mut self, segment: SegmentId, kind: SegmentKind) {
        if kind == SegmentKind::Survivor {
            self.survivors.insert(segment, false);
        }
    }

    fn appended(&mut self, segment: SegmentId, offset: u32, bytes: SegmentBytes<'_>) {
        let survivor = self.survivors.contains_key(&segment);
        let (left, end) = (bytes.len() as f64, offset + bytes.len() as u32);
        self.work();
        self.queue.push_back(Transfer { segment, end, left, survivor });
        // A client waits for its writes, so only a limited amount is in flight.
        while self.backlog() > 4e6 {
            std::hint::spin_loop();
            self.work();
        }
    }

    fn closed(&mut self, _: SegmentId, _: u32) {}

    fn freed(&mut self, segment: SegmentId) {
        self.survivors.remove(&segment);
    }

    fn durable(&mut self) -> LogPosition {
        self.work();
        self.durable
    }

    fn is_durable(&self, survivor: SegmentId) -> bool {
        self.survivors.get(&survivor).copied().unwrap_or(true)
    }
}

/// Returns the number of cleaner threads that this machine can run beside the writer.
#[must_use]
pub fn spare_cores() -> usize {
    machine::cores().saturating_sub(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn invalid_options_are_refused() {
        let bad = [
            ["--cleaners", "0"],
            ["--cleaners", "17"],
            ["--bandwidth", "0"],
            ["--bandwidth", "18446744073709551615"],
            ["--utilization", "0"],
            ["--utilization", "99"],
            ["--utilization", "200"],
            ["--sizes", "10000000"],
            ["--seconds", "0"],
            ["--seconds", "nan"],
            ["--seconds", "1e30"],
            ["--live", "0"],
            ["--live", "1000"],
            ["--live", "18446744073709551615"],
        ];
        let check = |arguments: &[&str]| {
            let arguments = [&["cleaner"], arguments].concat();
            Command::try_parse_from(arguments).unwrap().arguments.check()
        };
        for arguments in bad {
            assert!(check(&arguments).is_err(), "{arguments:?}");
        }
        assert!(check(&["--sizes", "1000000", "--live", "20000000"]).is_err());
        check(&[]).unwrap();
        check(&["--cleaners", "16", "--bandwidth", "1", "--seconds", "0.5"]).unwrap();
    }
}
