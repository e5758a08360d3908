//! The restart of a store with its objects on the disk: the time until all of them can be read.
//!
//! Redis has written a snapshot, or its log of updates, and was asked to end. Thunderhead's
//! processes, including the coordinator, are killed. Redis's files are in the page cache;
//! Thunderhead reads its own files past it. The time runs from the start of the first process to
//! the first answer that needs all data. Until then Redis answers that it is loading, and no server
//! serves Thunderhead's table.

use super::crowd::Shape;
use super::measure::{Client, at_random, latencies};
use super::protocol::Act;
use super::report::Report;
use super::scale::Scale;
use super::stages;
use super::store::{Durability, Kind, Restarted, Store, Wanted};
use super::throughput::VALUE_BYTES;
use anyhow::{Context as _, Result};
use std::time::{Duration, Instant};
use thunderhead_load::content::KEY_BYTES;
use thunderhead_load::output::progress;
use thunderhead_load::plot::{Marks, Panel, Series};
use thunderhead_load::table::Table;

/// The longest time for a restart.
const PATIENCE: Duration = Duration::from_secs(300);

/// The factor by which Thunderhead must be faster.
const FASTER: f64 = 3.0;

/// Measures all stores.
///
/// # Errors
/// When a store fails.
pub fn run(scale: &Scale, kinds: &[Kind], report: &mut Report) -> Result<()> {
    let each = (VALUE_BYTES + KEY_BYTES) as u64;
    let objects = scale.restart_bytes / each;
    let bytes = (objects * each) as f64;
    let title = format!("Restart with {:.0} MB of keys and values", bytes / 1e6);
    let mut table = Table::new(&title, &["store", "seconds", "MB/s"]);
    progress(&format!("restart: Thunderhead, {objects} objects"));
    let restarted = thunderhead(objects)?;
    let ours = restarted.took;
    let mut all = vec![("Thunderhead".to_owned(), ours)];
    for kind in kinds.iter().filter(|it| it.is_redis()) {
        for (durability, from) in [(Durability::Snapshot, "RDB"), (Durability::Soon, "AOF")] {
            let name = format!("{} from {from}", kind.name());
            progress(&format!("restart: {name}"));
            let took = peer(*kind, durability, objects)?;
            let what = format!(
                "restart of {:.0} MB: Thunderhead {:.2} s, {name} {:.2} s",
                bytes / 1e6,
                ours.as_secs_f64(),
                took.as_secs_f64()
            );
            let ratio = took.as_secs_f64() / ours.as_secs_f64();
            report.rows.at_least(&what, FASTER, ratio, "×");
            all.push((name, took));
        }
    }
    let mut points = Vec::new();
    for (at, (name, took)) in all.iter().enumerate() {
        let seconds = took.as_secs_f64();
        points.push((at as f64, seconds));
        table.row(&[
            name.clone(),
            format!("{seconds:.2}"),
            format!("{:.0}", bytes / seconds / 1e6),
        ]);
    }
    report.table(table);
    report.table(stages::table(&restarted));
    let panel = Panel {
        title,
        x_label: String::new(),
        y_label: "seconds until all is readable".into(),
        marks: Marks::Bars(all.into_iter().map(|(name, _)| name).collect()),
        series: vec![Series { name: "seconds".into(), points }],
    };
    report.figure("restart", vec![panel]);
    Ok(())
}

/// Checks that a sample of the objects is readable and correct.
fn verify(store: &Store, objects: u64) -> Result<()> {
    let source = at_random(Act::Read, objects, VALUE_BYTES, 1, 11);
    let mut crowd = store.crowd(store.tcp(), Shape::polling(1, 16), false, source)?;
    latencies(&mut crowd, objects.min(100_000)).context("read the objects after the restart")?;
    Client::finish(&mut crowd)
}

fn thunderhead(objects: u64) -> Result<Restarted> {
    let wanted = Wanted::memory(objects * 260 + (256 << 20)).but(Durability::Soon);
    let mut store = Store::start(Kind::Thunderhead, wanted)?;
    store.load(objects, VALUE_BYTES)?;
    let restarted = store.start_ours_again()?;
    verify(&store, objects)?;
    Ok(restarted)
}

fn peer(kind: Kind, durability: Durability, objects: u64) -> Result<Duration> {
    let store = Store::start(kind, Wanted::memory(0).but(durability))?;
    store.load(objects, VALUE_BYTES)?;
    if durability == Durability::Snapshot {
        let answer = store.command(&["SAVE"])?;
        anyhow::ensure!(answer.starts_with("+OK"), "SAVE answers {answer}");
    }
    // It answers by closing the connection.
    let _ = store.command(&["SHUTDOWN", "NOSAVE"]);
    store.wait_ended()?;
    let began = Instant::now();
    store.start_peer()?;
    store.wait_ready(PATIENCE)?;
    let took = began.elapsed();
    verify(&store, objects)?;
    Ok(took)
}
