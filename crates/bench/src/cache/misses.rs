//! The share of reads that miss, beside simulated caches.
//!
//! Each object that a read does not find is written, as by an application that fills its cache. The
//! simulated caches get the same requests at the same times. Their capacity is that of Thunderhead:
//! the bytes of the keys and values that it holds after distinct objects were written until it
//! evicts.

use super::Scale;
use super::server::{Connection, KEY_BYTES, Server};
use super::simulators::{Lru, S3Fifo, Simulated};
use super::traces::{Request, Shape, Trace};
use crate::peers::report::Report;
use crate::peers::store::Kind;
use anyhow::{Result, ensure};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use thunderhead_load::output::progress;
use thunderhead_load::plot::{Marks, Panel, Series};
use thunderhead_load::table::Table;

/// Bytes of a value.
const VALUE_BYTES: usize = 100;

/// Requests in flight.
const BATCH: u64 = 16;

/// Bytes of an object in a simulated cache.
const OBJECT_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;

/// The caches, in the order of the table.
const CACHES: [&str; 4] = ["Thunderhead", "memcached", "LRU", "S3-FIFO"];

/// Counts hits and misses, without those of the beginning.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    reads: u64,
    misses: u64,
}

impl Count {
    fn add(&mut self, is_hit: bool) {
        self.reads += 1;
        self.misses += u64::from(!is_hit);
    }

    fn percent(self) -> f64 {
        100.0 * self.misses as f64 / self.reads.max(1) as f64
    }
}

/// Returns how many objects a store holds when it is full.
fn capacity(kind: Kind, megabytes: u64) -> Result<u64> {
    let server = Server::start(kind, megabytes)?;
    let mut connection = server.connect()?;
    let mut next = 0;
    let most = (megabytes << 20) / KEY_BYTES as u64;
    let mut until = u64::MAX;
    while next < until {
        ensure!(next < most, "{} does not evict after {next} writes", kind.name());
        for _ in 0..1_000 {
            (0..BATCH).for_each(|at| connection.set(next + at, VALUE_BYTES, 0));
            next += BATCH;
            connection.send()?;
            connection.take(|_, _| {})?;
        }
        if until == u64::MAX && connection.statistics()?.evictions() > 0 {
            // As many again: then each object has made room for another one.
            until = next * 2;
        }
    }
    Ok(connection.statistics()?.objects())
}

/// Reads a batch, writes the missing objects, and reports each read.
fn exchange(
    connection: &mut Connection,
    batch: &[Request],
    mut on_read: impl FnMut(bool),
) -> Result<()> {
    batch.iter().for_each(|request| connection.get(request.key));
    connection.send()?;
    let mut missing = Vec::new();
    let mut requests = batch.iter();
    connection.take(|_, is_hit| {
        on_read(is_hit);
        if let Some(request) = requests.next()
            && !is_hit
        {
            missing.push(*request);
        }
    })?;
    if missing.is_empty() {
        return Ok(());
    }
    missing.iter().for_each(|it| connection.set(it.key, VALUE_BYTES, it.expires_after));
    connection.send()?;
    connection.take(|_, _| {}).map(drop)
}

/// Runs a trace on a store and on simulated caches.
fn measure(
    kind: Kind,
    shape: Shape,
    scale: &Scale,
    objects: u64,
    simulated: &mut [&mut dyn Simulated],
) -> Result<Vec<Count>> {
    let server = Server::start(kind, scale.small)?;
    let mut connection = server.connect()?;
    let mut trace = Trace::new(shape, objects, 1);
    let mut counts = vec![Count::default(); 1 + simulated.len()];
    let requests = objects * scale.requests;
    let began = Instant::now();
    #[allow(clippy::disallowed_methods, reason = "Thunderhead uses the date, too")]
    let date = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    let mut done = 0;
    let mut batch = Vec::new();
    while done < requests {
        batch.clear();
        batch.extend((0..BATCH).map(|_| trace.next_request()));
        // The caches are cold in the first quarter.
        let is_counted = done >= requests / 4;
        exchange(&mut connection, &batch, |is_hit| {
            if is_counted {
                counts[0].add(is_hit);
            }
        })?;
        let now = began.elapsed().as_secs_f64();
        for (cache, count) in simulated.iter_mut().zip(&mut counts[1..]) {
            for request in &batch {
                let expires = match request.expires_after {
                    0 => f64::INFINITY,
                    // Both stores count whole seconds, and Thunderhead those of the date.
                    after => (date + now).floor() - date + f64::from(after),
                };
                let is_hit = cache.request(request.key, OBJECT_BYTES, now, expires);
                if is_counted {
                    count.add(is_hit);
                }
            }
        }
        done += BATCH;
    }
    Ok(counts)
}

/// Measures all traces.
///
/// # Errors
/// When a store fails.
pub fn run(scale: &Scale, report: &mut Report) -> Result<()> {
    let objects = capacity(Kind::Thunderhead, scale.small)?;
    let theirs = capacity(Kind::Memcached, scale.small)?;
    report.fact(
        "misses",
        format!(
            "with {} MB Thunderhead holds {objects} objects of {OBJECT_BYTES} B, as the simulated \
             caches do, and memcached {theirs}",
            scale.small
        ),
    );
    let bytes = objects * OBJECT_BYTES;
    let columns: Vec<&str> = ["trace"].into_iter().chain(CACHES).collect();
    let mut table =
        Table::new(&format!("Reads that miss, with {} MB: percent", scale.small), &columns);
    let mut bars = CACHES.map(|_| Vec::new());
    for (group, shape) in Shape::ALL.into_iter().enumerate() {
        let (mut lru, mut fifo) = (Lru::new(bytes), S3Fifo::new(bytes));
        let mut simulated: [&mut dyn Simulated; 2] = [&mut lru, &mut fifo];
        let counts = measure(Kind::Thunderhead, shape, scale, objects, &mut simulated)?;
        let theirs = measure(Kind::Memcached, shape, scale, objects, &mut [])?;
        let percents: Vec<f64> =
            [counts[0], theirs[0], counts[1], counts[2]].iter().map(|it| it.percent()).collect();
        let cells = percents.iter().map(|it| format!("{it:.2}"));
        let cells: Vec<String> = [shape.name().to_owned()].into_iter().chain(cells).collect();
        progress(&cells.join("  "));
        table.row(&cells);
        for (bars, percent) in bars.iter_mut().zip(&percents) {
            bars.push((group as f64, *percent));
        }
        let over = |at: usize| counts[0].percent() / counts[at].percent().max(f64::MIN_POSITIVE);
        let name = shape.name();
        report.rows.at_most(&format!("{name}: misses, over LRU"), 1.0, over(1), "×");
        report.rows.at_most(&format!("{name}: misses, over S3-FIFO"), 1.02, over(2), "×");
    }
    report.table(table);
    let panel = Panel {
        title: "Reads that miss".to_owned(),
        x_label: "trace".to_owned(),
        y_label: "percent".to_owned(),
        marks: Marks::Bars(Shape::ALL.iter().map(|it| it.name().to_owned()).collect()),
        series: CACHES
            .iter()
            .zip(bars)
            .map(|(name, points)| Series { name: (*name).to_owned(), points })
            .collect(),
    };
    report.figure("misses", vec![panel]);
    Ok(())
}
