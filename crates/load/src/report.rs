//! The results of a run: a table and a histogram for people, JSON for programs, a figure.

use crate::channel::Channel;
use crate::distribution::Distribution;
use crate::options::Options;
use crate::output::show;
use crate::plot::{Marks, Panel, Series, save};
use crate::run::{Second, Tally};
use crate::table::Table;
use crate::workload::{Kind, Workload};
use anyhow::Result;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// The reported percentiles.
const PERCENTILES: [f64; 7] = [10.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0];

/// The report of a run, for programs.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The workload.
    pub workload: Workload,
    /// The settings of the run.
    pub settings: Settings,
    /// The measured time.
    pub seconds: f64,
    /// Messages a second.
    pub messages_per_second: f64,
    /// Objects a second.
    pub objects_per_second: f64,
    /// How often the server was too busy, so that a request was repeated.
    pub busy: u64,
    /// Operations that failed permanently or whose outcome is unknown.
    pub failed: u64,
    /// The reasons of the first failures.
    pub failures: Vec<String>,
    /// The latencies of each kind of operation.
    pub kinds: Vec<KindReport>,
    /// Every second, the warm-up included.
    pub timeline: Vec<SecondReport>,
}

/// The settings of a run.
#[derive(Debug, Serialize)]
pub struct Settings {
    /// The target: `cluster`, or `own` for a shard in the same process.
    pub target: &'static str,
    transport: Channel,
    clients: usize,
    depth: usize,
    objects: u64,
    value_bytes: usize,
    distribution: Distribution,
    parts: usize,
    /// Whether updates have an identity, so that servers execute each once.
    pub exactly_once: bool,
    /// The replicas of a target in the same process.
    pub replicas: Option<u32>,
    /// The memory utilization of a target in the same process: 0 to 1.
    pub utilization: Option<f64>,
}

impl Settings {
    /// Returns the settings of a run on a cluster.
    #[must_use]
    pub fn of(workload: Workload, options: &Options) -> Settings {
        Settings {
            target: "cluster",
            transport: options.transport,
            clients: options.clients,
            depth: options.depth,
            objects: options.objects,
            value_bytes: options.value_bytes,
            distribution: options.distribution.unwrap_or(workload.distribution()),
            parts: options.parts,
            exactly_once: true,
            replicas: None,
            utilization: None,
        }
    }
}

/// A kind of operation. Times are in microseconds.
#[derive(Debug, Serialize)]
pub struct KindReport {
    /// The kind.
    pub kind: Kind,
    /// Messages.
    pub messages: u64,
    /// Objects in them.
    pub objects: u64,
    /// The mean.
    pub mean_us: f64,
    /// Percentiles.
    pub percentiles_us: Vec<Percentile>,
    /// Counts of messages by latency: each bucket reaches from the previous one's end to its own.
    pub histogram: Vec<Bucket>,
}

/// A percentile.
#[derive(Debug, Serialize)]
pub struct Percentile {
    /// Percent of the messages.
    pub percent: f64,
    /// The latency that they do not exceed.
    pub us: f64,
}

/// A part of a histogram.
#[derive(Debug, Serialize)]
pub struct Bucket {
    /// Its upper end.
    pub up_to_us: f64,
    /// Messages in it.
    pub messages: u64,
}

/// One second of a run.
#[derive(Debug, Serialize)]
pub struct SecondReport {
    /// Its number.
    pub second: u64,
    /// Objects in it.
    pub objects: u64,
    /// The median.
    pub median_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
}

fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

impl Report {
    /// Returns the report of a run.
    #[must_use]
    pub fn of(workload: Workload, settings: Settings, tally: &Tally) -> Report {
        let kinds = tally.kinds.iter().map(|it| KindReport {
            kind: it.kind,
            messages: it.latencies.len(),
            objects: it.objects,
            mean_us: it.latencies.mean() / 1e3,
            percentiles_us: PERCENTILES
                .iter()
                .map(|percent| Percentile {
                    percent: *percent,
                    us: us(it.latencies.value_at_percentile(*percent)),
                })
                .collect(),
            histogram: buckets(&it.latencies),
        });
        let timeline = tally.timeline.iter().map(|it| SecondReport {
            second: it.number + 1,
            objects: it.objects,
            median_us: us(it.latencies.value_at_percentile(50.0)),
            p99_us: us(it.latencies.value_at_percentile(99.0)),
        });
        Report {
            workload,
            settings,
            seconds: tally.seconds,
            messages_per_second: tally.messages_per_second(),
            objects_per_second: tally.objects_per_second(),
            busy: tally.busy,
            failed: tally.failures.count,
            failures: tally.failures.reasons.clone(),
            kinds: kinds.collect(),
            timeline: timeline.collect(),
        }
    }

    /// Prints the report and draws its figures. Returns false if an operation failed.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn publish(&self, json: bool, plot: Option<&Path>) -> Result<bool> {
        show(json, &self.table(), self)?;
        if !json {
            std::io::stdout().lock().write_all(self.histograms().as_bytes())?;
        }
        if let Some(path) = plot {
            save(path, &self.panels())?;
        }
        Ok(self.failed == 0)
    }

    /// Returns a table with the percentiles of each kind.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut columns = vec!["operation".to_owned(), "K/s".into(), "mean µs".into()];
        columns.extend(PERCENTILES.iter().map(|percent| match percent {
            100.0 => "max".to_owned(),
            percent => format!("{percent} %"),
        }));
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        let title = format!(
            "{}: {:.3} M objects a second in {:.1} s{}",
            self.workload.name(),
            self.objects_per_second / 1e6,
            self.seconds,
            match self.failed {
                0 => String::new(),
                failed => format!("; {failed} FAILED ({})", self.failures.join("; ")),
            }
        );
        let mut table = Table::new(&title, &names);
        for kind in &self.kinds {
            let rate = kind.messages as f64 / self.seconds / 1e3;
            let mut cells =
                vec![kind.kind.name().to_owned(), format!("{rate:.1}"), figure(kind.mean_us)];
            cells.extend(kind.percentiles_us.iter().map(|it| figure(it.us)));
            table.row(&cells);
        }
        table
    }

    /// Returns the histograms as text, with a line of stars for each step of time.
    #[must_use]
    pub fn histograms(&self) -> String {
        let mut out = String::new();
        for kind in &self.kinds {
            let _ = writeln!(out, "\n{}, µs", kind.kind.name());
            let most = kind.histogram.iter().map(|it| it.messages).max().unwrap_or(1).max(1);
            for bucket in &kind.histogram {
                let stars = (bucket.messages * 50).div_ceil(most) as usize;
                let share = bucket.messages as f64 * 100.0 / kind.messages.max(1) as f64;
                let end = figure(bucket.up_to_us);
                let _ = writeln!(out, "  ≤ {end:>9}  {share:>8.4} %  {}", "*".repeat(stars));
            }
        }
        out
    }

    /// Returns figures: latencies by percentile, and objects a second over time.
    #[must_use]
    pub fn panels(&self) -> Vec<Panel> {
        let shown = |it: &&Percentile| it.percent < 100.0;
        let groups = PERCENTILES.iter().filter(|it| **it < 100.0);
        let latencies = Panel {
            title: format!("{}: latency", self.workload.name()),
            x_label: "percent of the messages".into(),
            y_label: "µs".into(),
            marks: Marks::Bars(groups.map(|it| format!("{it} %")).collect()),
            series: self
                .kinds
                .iter()
                .map(|kind| Series {
                    name: kind.kind.name().into(),
                    points: kind
                        .percentiles_us
                        .iter()
                        .filter(shown)
                        .enumerate()
                        .map(|(at, it)| (at as f64, it.us))
                        .collect(),
                })
                .collect(),
        };
        // No more marks than there is room for.
        let step = self.timeline.len().div_ceil(16).max(1);
        let points = self.timeline.iter().step_by(step);
        let rate = Series {
            name: "objects".into(),
            points: points.map(|it| (it.second as f64, it.objects as f64 / 1e6)).collect(),
        };
        let rates = Panel {
            title: format!("{}: throughput", self.workload.name()),
            x_label: "second".into(),
            y_label: "million objects a second".into(),
            marks: Marks::Lines,
            series: vec![rate],
        };
        vec![latencies, rates]
    }
}

/// Formats a value with about three digits.
fn figure(value: f64) -> String {
    match value {
        1000.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Returns the histogram in steps of about a quarter, without the empty ones at either end.
fn buckets(latencies: &Histogram<u64>) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    let (mut below, mut end) = (0, 100u64);
    let most = latencies.max();
    while below < latencies.len() {
        let up_to = end.min(most.max(1));
        let count = latencies.count_between(0, up_to);
        if count > below || !buckets.is_empty() {
            buckets.push(Bucket { up_to_us: us(up_to), messages: count - below });
        }
        below = count;
        end += end / 4;
    }
    buckets
}

/// Returns the line that people see once a second.
#[must_use]
pub fn line(second: &Second) -> String {
    format!(
        "{:>4} s: {:.3} M objects/s, median {} µs, 99 % {} µs",
        second.number + 1,
        second.objects as f64 / 1e6,
        figure(us(second.latencies.value_at_percentile(50.0))),
        figure(us(second.latencies.value_at_percentile(99.0)))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::histogram;

    #[test]
    fn a_histogram_counts_every_message_once() {
        let mut latencies = histogram();
        for at in 0..10_000u64 {
            latencies.record(1 + at * at).unwrap();
        }
        let buckets = buckets(&latencies);
        assert_eq!(buckets.iter().map(|it| it.messages).sum::<u64>(), 10_000);
        assert!(buckets.is_sorted_by(|a, b| a.up_to_us < b.up_to_us));
        assert!(super::buckets(&histogram()).is_empty());
    }
}
