//! Resident bytes for each object: keys of 30 B, values of some lengths.
//!
//! The figure is the memory of the whole process, without deductions, after all objects were
//! written and a quarter of them again. Thunderhead gets the memory in which its log is 90 % full
//! with these objects, and has used all of it by then; the others grow.

use super::report::Report;
use super::scale::Scale;
use super::store::{Kind, Store, Wanted};
use crate::operations::target::Own;
use anyhow::Result;
use thunderhead_load::output::progress;
use thunderhead_load::plot::{Marks, Panel, Series};
use thunderhead_load::table::Table;

/// Bytes of values, and the most that our store may take relative to the best peer. Peers round
/// sizes up to those of their allocators' classes: a value of 1000 B fits a class of 1 KiB, a value
/// of 1024 B does not.
const SIZES: [(usize, f64); 4] = [(16, 0.7), (100, 0.88), (1_000, 0.88), (1_024, 0.88)];

/// The utilization of our log.
const UTILIZATION: f64 = 0.9;

/// The factor of more memory that Thunderhead gets if the objects did not fit, and the number of
/// tries.
const MORE: f64 = 1.01;
const TRIES: usize = 16;

/// Measures all stores.
///
/// # Errors
/// When a store fails.
pub fn run(scale: &Scale, kinds: &[Kind], report: &mut Report) -> Result<()> {
    let kinds: Vec<Kind> = kinds.iter().copied().filter(|it| *it != Kind::Etcd).collect();
    let mut columns = vec!["objects", "values", "Thunderhead", "key and value"];
    columns.extend(kinds.iter().map(|it| it.name()));
    let title = "Resident bytes for each object, keys of 30 B, the whole process";
    let mut table = Table::new(title, &columns);
    let mut panels = Vec::new();
    for objects in &scale.counts {
        let mut series: Vec<Series> = std::iter::once(&Kind::Thunderhead)
            .chain(&kinds)
            .map(|kind| Series { name: kind.name().into(), points: Vec::new() })
            .collect();
        for (group, (value_bytes, most)) in SIZES.into_iter().enumerate() {
            progress(&format!("memory: {objects} values of {value_bytes} B"));
            let mut found = vec![ours(*objects, value_bytes)?];
            for kind in &kinds {
                let wanted = Wanted::memory(objects * (value_bytes as u64 + 300));
                let store = Store::start(*kind, wanted)?;
                fill(&store, *objects, value_bytes)?;
                found.push(super::process::resident_bytes(store.process()?)? as f64);
            }
            let each: Vec<f64> = found.iter().map(|bytes| bytes / *objects as f64).collect();
            for (series, each) in series.iter_mut().zip(&each) {
                series.points.push((group as f64, *each));
            }
            let mut cells = vec![objects.to_string(), format!("{value_bytes} B")];
            cells.push(format!("{:.0}", each[0]));
            cells.push((value_bytes + 30).to_string());
            cells.extend(each.iter().skip(1).map(|each| format!("{each:.0}")));
            table.row(&cells);
            let peers = each.iter().skip(1).zip(&kinds);
            let Some((best, kind)) = peers.min_by(|one, other| one.0.total_cmp(other.0)) else {
                continue;
            };
            let what = format!(
                "resident bytes for each of {objects} objects with values of {value_bytes} B: \
                 Thunderhead {:.0}, the best peer ({}) {best:.0}",
                each[0],
                kind.name()
            );
            report.rows.at_most(&what, most, each[0] / best, "×");
        }
        panels.push(Panel {
            title: format!("Resident bytes for each of {objects} objects"),
            x_label: "bytes of a value".into(),
            y_label: "bytes".into(),
            marks: Marks::Bars(SIZES.iter().map(|(bytes, _)| format!("{bytes} B")).collect()),
            series,
        });
    }
    report.table(table);
    report.figure("memory", panels);
    Ok(())
}

/// Writes the objects, and a quarter of them again, so that our log has used all of its memory and
/// has its planned utilization.
fn fill(store: &Store, objects: u64, value_bytes: usize) -> Result<()> {
    store.load(objects, value_bytes)?;
    store.write_again(objects / 4, objects, value_bytes)
}

/// Returns the size of segments. Three segments are kept free, and a seglet and a half is reserved
/// at the end of each; with these sizes both shares are negligible.
fn segment_bytes_for(live_bytes: u64) -> u64 {
    match live_bytes >> 20 {
        0..48 => 1 << 20,
        48..400 => 2 << 20,
        400..800 => 4 << 20,
        _ => 8 << 20,
    }
}

/// Returns the resident bytes of our store, with as little memory as the objects fit in.
fn ours(objects: u64, value_bytes: usize) -> Result<f64> {
    let own = Own::holding(objects, value_bytes, UTILIZATION);
    let mut memory_bytes = own.memory_bytes() as f64;
    let segment_bytes = segment_bytes_for(own.live_bytes);
    for attempt in 1.. {
        let wanted = Wanted { segment_bytes, ..Wanted::memory(memory_bytes as u64) };
        let store = Store::start(Kind::Thunderhead, wanted)?;
        match fill(&store, objects, value_bytes) {
            Ok(()) => return Ok(super::process::resident_bytes(store.process()?)? as f64),
            Err(error) if attempt == TRIES => return Err(error),
            Err(error) => progress(&format!("  it gets more memory: {error:#}")),
        }
        memory_bytes *= MORE;
    }
    Ok(f64::NAN)
}
