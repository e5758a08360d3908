//! The processor time of a store without requests.

use super::crowd::Shape;
use super::measure::{Client, at_random, rate};
use super::process::processor_time;
use super::protocol::Act;
use super::report::Report;
use super::scale::Scale;
use super::store::{Kind, Store, Wanted};
use super::throughput::VALUE_BYTES;
use anyhow::Result;
use std::time::{Duration, Instant};
use thunderhead_load::output::progress;
use thunderhead_load::table::Table;

/// The most processor time of an idle server, in percent of a core.
const MOST_PERCENT: f64 = 1.0;

/// Measures all stores.
///
/// # Errors
/// When a store fails.
pub fn run(scale: &Scale, kinds: &[Kind], report: &mut Report) -> Result<()> {
    progress(&format!("idle servers, for {:?} each", scale.idle));
    let title = "An idle store with 50 idle connections: percent of a core";
    let mut table = Table::new(title, &["store", "percent of a core"]);
    let wanted = Wanted::memory(256 << 20);
    for kind in std::iter::once(&Kind::Thunderhead).chain(kinds) {
        let store = Store::start(*kind, wanted)?;
        let act = if *kind == Kind::Etcd { Act::Write } else { Act::Read };
        if *kind != Kind::Etcd {
            store.load(10_000, VALUE_BYTES)?;
        }
        let source = at_random(act, 10_000, VALUE_BYTES, 1, 9);
        let mut crowd = store.crowd(store.tcp(), Shape::polling(50, 1), false, source)?;
        rate(&mut crowd, scale.burst)?;
        Client::finish(&mut crowd)?;
        // Time for work that the requests have left behind.
        std::thread::sleep(Duration::from_millis(200));
        let took = || -> Result<Duration> {
            store.processes()?.into_iter().map(processor_time).sum::<Result<Duration>>()
        };
        let (before, began) = (took()?, Instant::now());
        std::thread::sleep(scale.idle);
        let share = (took()? - before).as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
        table.row(&[kind.name().to_owned(), format!("{share:.2}")]);
        if *kind == Kind::Thunderhead {
            let what = "idle, 50 idle connections: server and coordinator, share of a core";
            report.rows.at_most(what, MOST_PERCENT, share, "%");
        }
    }
    report.table(table);
    Ok(())
}
