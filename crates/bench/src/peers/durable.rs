//! Writes a second at equal durability.
//!
//! | promise of an answer | Thunderhead | Redis, Valkey | etcd |
//! | --- | --- | --- | --- |
//! | it is on the disk | R = 1 on its own disk, `synced` | `appendfsync always` | its only mode |
//! | one more process has it | R = 1, another server, `replicated` | `WAIT 1` after each write | |
//! | two more have it | R = 2, `replicated` | `WAIT 2` | |
//!
//! All processes of a store share the server's core. The files are in the directory for temporary
//! files.

use super::report::Report;
use super::scale::Scale;
use super::store::{Durability, Kind, Store, Wanted};
use super::throughput::{Load, VALUE_BYTES, best, drive, table};
use anyhow::{Context as _, Result};
use thunderhead_load::output::progress;
use thunderhead_load::plot::{Marks, Panel, Series};
use thunderhead_load::table::Table;

/// Connections, requests in flight on each, objects in each request.
const SHAPES: [(usize, usize, usize); 11] = [
    (1, 1, 1),
    (16, 1, 1),
    (64, 1, 1),
    (128, 1, 1),
    (16, 16, 1),
    (64, 1, 70),
    (128, 1, 70),
    (8, 1, 70),
    (8, 4, 70),
    (16, 4, 70),
    (16, 16, 70),
];

/// Measures all stores.
///
/// # Errors
/// When a store fails.
pub fn run(scale: &Scale, kinds: &[Kind], report: &mut Report) -> Result<()> {
    let mut panels = Vec::new();
    for (durability, label) in [
        (Durability::Disk, "on the disk before the answer"),
        (Durability::Replicas(1), "in the memory of one more process"),
        (Durability::Replicas(2), "in the memory of two more processes"),
    ] {
        panels.push(group(scale, kinds, durability, label, report)?);
    }
    report.figure("durable", panels);
    Ok(())
}

fn group(
    scale: &Scale,
    kinds: &[Kind],
    durability: Durability,
    label: &str,
    report: &mut Report,
) -> Result<Panel> {
    progress(&format!("durable writes: {label}"));
    // The number of objects does not matter here, only how writes are kept.
    let scale = Scale { objects: scale.objects.min(100_000), ..scale.clone() };
    let wanted = Wanted::memory(scale.memory_bytes()).populated().but(durability);
    let mut stores = Vec::new();
    let on_disk = durability == Durability::Disk;
    let takes_part = |kind: &&Kind| kind.is_redis() || (**kind == Kind::Etcd && on_disk);
    for kind in std::iter::once(&Kind::Thunderhead).chain(kinds.iter().filter(takes_part)) {
        let store = Store::start(*kind, wanted)?;
        if *kind != Kind::Etcd {
            store.load(scale.objects, VALUE_BYTES)?;
        }
        stores.push(store);
    }
    let all = drive(&scale, &stores, super::protocol::Act::Write, &SHAPES)?;
    let title = format!("Objects of 100 B written in K/s, {label}, by connections × requests");
    report.table(table(&title, &stores, &all, None));
    report.table(latencies(label, &stores, &all));
    let ours = all.first().and_then(|it| best(it)).context("Thunderhead was not measured")?;
    for (store, loads) in stores.iter().zip(&all).skip(1) {
        let Some(peer) = best(loads) else { continue };
        let label = format!(
            "writes/s {label}: Thunderhead {:.1} K/s ({}), {} {:.1} K/s ({})",
            ours.per_second() / 1e3,
            ours.name(),
            store.kind.name(),
            peer.per_second() / 1e3,
            peer.name()
        );
        report.rows.at_least(&label, 3.0, ours.per_second() / peer.per_second(), "×");
        singly(&all, store, loads, report);
    }
    Ok(bars(label, &stores, &all))
}

/// Reports one client with one write at a time.
fn singly(all: &[Vec<Load>], store: &Store, loads: &[Load], report: &mut Report) {
    let first = |loads: &[Load]| loads.first().map(|it| it.latencies.median() / 1e3);
    if let (Some(ours), Some(theirs)) = (all.first().and_then(|it| first(it)), first(loads)) {
        let name = store.kind.name();
        let label =
            format!("  one client: Thunderhead {ours:.0} µs, {name} {theirs:.0} µs, median");
        report.rows.reported(&label, theirs / ours, "×");
    }
}

fn latencies(label: &str, stores: &[Store], all: &[Vec<Load>]) -> Table {
    let title = format!("The same, {label}: median and 99 % of a write in µs");
    let mut columns = vec!["connections × requests"];
    columns.extend(stores.iter().map(|store| store.kind.name()));
    let mut table = Table::new(&title, &columns);
    for (at, load) in all.first().into_iter().flatten().enumerate() {
        let cells = all.iter().filter_map(|it| it.get(at)).map(|it| match it.latencies.count() {
            0 => "-".to_owned(),
            _ => {
                let share = |share| it.latencies.percentile(share) / 1e3;
                format!("{:.0} / {:.0}", share(0.5), share(0.99))
            }
        });
        table.row(&std::iter::once(load.name()).chain(cells).collect::<Vec<_>>());
    }
    table
}

fn bars(label: &str, stores: &[Store], all: &[Vec<Load>]) -> Panel {
    let loads = all.first().map(Vec::as_slice).unwrap_or_default();
    let series = stores.iter().zip(all).map(|(store, loads)| {
        let rates = loads.iter().map(Load::per_second).enumerate();
        let points = rates.filter(|(_, it)| it.is_finite()).map(|(at, it)| (at as f64, it / 1e3));
        Series { name: store.kind.name().into(), points: points.collect() }
    });
    Panel {
        title: format!("Writes {label}"),
        x_label: "connections × requests on each".into(),
        y_label: "K/s".into(),
        marks: Marks::Bars(loads.iter().map(|it| it.name().replace(" objects each", "")).collect()),
        series: series.collect(),
    }
}
