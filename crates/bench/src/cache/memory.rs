//! Objects for each MB, writes, and the processor time of cleaning: the papers' Tables 3 and 4.
//!
//! As there, all requests are writes whose keys follow Zipf's law, of 25 bytes or with sizes of 0
//! to 8 KB that follow Zipf's law too. Memory is full and evicts before the measurement begins.

use super::Scale;
use super::server::{Connection, KEY_BYTES, Server};
use crate::peers::report::Report;
use crate::peers::store::Kind;
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};
use thunderhead_load::distribution::{Distribution, Draw, Zipf};
use thunderhead_load::machine::median;
use thunderhead_load::output::progress;
use thunderhead_load::plot::{Marks, Panel, Series};
use thunderhead_load::table::Table;
use thunderhead_runtime::Random;

/// Connections, and the writes in flight on each.
const CONNECTIONS: usize = 8;
const BATCH: usize = 16;

/// Writes between two looks at the clock and at the statistics.
const LOOK: u64 = 50_000;

/// The longest value of the second workload.
const ZIPF_BYTES: u64 = 8 << 10;

/// The stores, in the order of the table.
const KINDS: [Kind; 2] = [Kind::Memcached, Kind::Thunderhead];

/// The sizes of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizes {
    Fixed,
    Zipf,
}

impl Sizes {
    const ALL: [Sizes; 2] = [Sizes::Fixed, Sizes::Zipf];

    fn name(self) -> &'static str {
        match self {
            Sizes::Fixed => "25 B",
            Sizes::Zipf => "Zipf 0-8 KB",
        }
    }

    /// Returns the number of keys: several times as many as fit.
    fn keys(self, memory_bytes: u64) -> u64 {
        match self {
            Sizes::Fixed => memory_bytes / 16,
            Sizes::Zipf => memory_bytes / 128,
        }
    }

    /// The goal for objects in a MB, over memcached.
    fn goal(self) -> f64 {
        match self {
            Sizes::Fixed => 1.30,
            Sizes::Zipf => 1.15,
        }
    }
}

/// The results of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Objects in the store.
    objects: f64,
    resident_bytes: f64,
    /// Writes a second.
    writes: f64,
    /// Writes for each second of processor time.
    writes_by_processor: f64,
    /// The share of a core that cleaner threads took.
    cleaning: f64,
    refused: f64,
}

/// The writing client.
struct Writer {
    connections: Vec<Connection>,
    keys: Draw,
    sizes: Option<Zipf>,
    random: Random,
    refused: u64,
}

impl Writer {
    fn new(server: &Server, sizes: Sizes, keys: u64, seed: u64) -> Result<Writer> {
        let connections = (0..CONNECTIONS).map(|_| server.connect()).collect::<Result<_>>()?;
        Ok(Writer {
            connections,
            keys: Draw::new(Distribution::Zipfian, keys, seed),
            sizes: (sizes == Sizes::Zipf).then(|| Zipf::new(ZIPF_BYTES + 1)),
            random: Random::from_seed(seed + 1000),
            refused: 0,
        })
    }

    /// Writes at least this many objects; returns how many were stored.
    fn write(&mut self, count: u64) -> Result<u64> {
        let (mut sent, mut stored) = (0, 0);
        while sent < count {
            for connection in &mut self.connections {
                let answers = connection.take(|_, _| {})?;
                stored += answers.stored;
                self.refused += answers.refused;
                for _ in 0..BATCH {
                    let bytes = match &self.sizes {
                        Some(zipf) => zipf.draw(&mut self.random) as usize,
                        None => 25,
                    };
                    connection.set(self.keys.number(), bytes, 0);
                }
                connection.send()?;
                sent += BATCH as u64;
            }
        }
        Ok(stored)
    }
}

/// Fills a store beyond its memory, and measures it while it evicts.
fn measure(kind: Kind, sizes: Sizes, scale: &Scale, seed: u64) -> Result<Outcome> {
    let memory_bytes = scale.memory << 20;
    let server = Server::start(kind, scale.memory)?;
    let mut control = server.connect()?;
    let mut writer = Writer::new(&server, sizes, sizes.keys(memory_bytes), seed)?;
    let mut written = 0;
    let most = memory_bytes / KEY_BYTES as u64 * 8;
    while control.statistics()?.evictions() == 0 {
        written += writer.write(LOOK)?;
        ensure!(written < most, "{} does not evict after {written} writes", kind.name());
    }
    // As many again, so that nothing of the first objects is special.
    writer.write(written)?;
    writer.refused = 0;
    let (began, before) = (Instant::now(), server.processor_times()?);
    let (mut stored, mut objects, mut looks) = (0, 0.0, 0.0);
    while began.elapsed() < Duration::from_secs(scale.seconds) {
        stored += writer.write(LOOK)?;
        objects += control.statistics()?.objects() as f64;
        looks += 1.0;
    }
    let (took, after) = (began.elapsed().as_secs_f64(), server.processor_times()?);
    let processor = (after.0 - before.0).as_secs_f64();
    Ok(Outcome {
        objects: objects / looks,
        resident_bytes: server.resident_bytes()? as f64,
        writes: stored as f64 / took,
        writes_by_processor: stored as f64 / processor,
        cleaning: (after.1 - before.1).as_secs_f64() / took,
        refused: writer.refused as f64,
    })
}

fn medians(runs: &[Outcome]) -> Outcome {
    let of = |figure: fn(&Outcome) -> f64| median(runs.iter().map(figure).collect());
    Outcome {
        objects: of(|it| it.objects),
        resident_bytes: of(|it| it.resident_bytes),
        writes: of(|it| it.writes),
        writes_by_processor: of(|it| it.writes_by_processor),
        cleaning: of(|it| it.cleaning),
        refused: of(|it| it.refused),
    }
}

/// Measures both stores with both workloads.
///
/// # Errors
/// When a store fails.
pub fn run(scale: &Scale, report: &mut Report) -> Result<()> {
    let mut table = Table::new(
        &format!("Full caches of {} MB that are written to", scale.memory),
        &[
            "values",
            "store",
            "objects/MB",
            "objects/MB resident",
            "K writes/s",
            "K writes/s of processor",
            "cleaner threads",
            "refused",
        ],
    );
    let mut bars = [(); 2].map(|()| KINDS.map(|_| Vec::new()));
    for (group, sizes) in Sizes::ALL.into_iter().enumerate() {
        let mut runs = KINDS.map(|_| Vec::new());
        for round in 0..scale.rounds {
            for (kind, runs) in KINDS.into_iter().zip(&mut runs) {
                let outcome = measure(kind, sizes, scale, 1 + round as u64)?;
                progress(&format!(
                    "{}, {}: {:.0} objects/MB, {:.0} K writes/s, cleaner threads {:.1} % of a core",
                    sizes.name(),
                    kind.name(),
                    outcome.objects / scale.memory as f64,
                    outcome.writes / 1000.0,
                    outcome.cleaning * 100.0
                ));
                runs.push(outcome);
            }
        }
        let [theirs, ours] = runs.map(|runs| medians(&runs));
        for (at, (kind, it)) in KINDS.into_iter().zip([theirs, ours]).enumerate() {
            let per_mb = it.objects / scale.memory as f64;
            table.row(&[
                sizes.name().to_owned(),
                kind.name().to_owned(),
                format!("{per_mb:.0}"),
                format!("{:.0}", it.objects * (1 << 20) as f64 / it.resident_bytes),
                format!("{:.1}", it.writes / 1000.0),
                format!("{:.1}", it.writes_by_processor / 1000.0),
                format!("{:.1} %", it.cleaning * 100.0),
                format!("{:.0}", it.refused),
            ]);
            bars[0][at].push((group as f64, per_mb));
            bars[1][at].push((group as f64, it.writes / 1000.0));
        }
        let name = sizes.name();
        let rows = &mut report.rows;
        let objects = ours.objects / theirs.objects;
        rows.at_least(
            &format!("{name}: objects in memory, over memcached"),
            sizes.goal(),
            objects,
            "×",
        );
        let writes = ours.writes / theirs.writes;
        rows.at_least(&format!("{name}: writes a second, over memcached"), 1.0, writes, "×");
        let writes = ours.writes_by_processor / theirs.writes_by_processor;
        rows.reported(&format!("{name}: writes by processor time, over memcached"), writes, "×");
        let cleaning = ours.cleaning * 100.0;
        rows.at_most(&format!("{name}: cleaner threads, share of a core"), 8.0, cleaning, "%");
    }
    report.table(table);
    let names = ["Objects in a MB", "Writes"];
    let units = ["objects/MB", "K writes/s"];
    let panels = bars.into_iter().zip(names).zip(units).map(|((bars, title), unit)| Panel {
        title: title.to_owned(),
        x_label: "values".to_owned(),
        y_label: unit.to_owned(),
        marks: Marks::Bars(Sizes::ALL.iter().map(|it| it.name().to_owned()).collect()),
        series: KINDS
            .iter()
            .zip(bars)
            .map(|(kind, points)| Series { name: kind.name().to_owned(), points })
            .collect(),
    });
    report.figure("memory", panels.collect());
    Ok(())
}
