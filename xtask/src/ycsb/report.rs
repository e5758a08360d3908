//! The results of YCSB: for people, for programs, and for `docs/evaluation/ycsb.md`.

use super::{Loaded, Measured, Plan};
use crate::steps::between;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fmt::Write;

/// The page, and the lines before and after the figures.
const PAGE: &str = "docs/evaluation/ycsb.md";
const BEGIN: &str = "<!-- figures: cargo xtask ycsb -->";
const END: &str = "<!-- end of figures -->";

/// Puts the figures into the page.
pub(super) fn write(text: &str) -> Result<()> {
    let page = std::fs::read_to_string(PAGE).with_context(|| format!("read {PAGE}"))?;
    let page = between(&page, BEGIN, END, text).with_context(|| format!("put into {PAGE}"))?;
    std::fs::write(PAGE, page).with_context(|| format!("write {PAGE}"))
}

/// Tables, as Markdown.
pub(super) fn text(
    plan: &Plan,
    versions: &str,
    loaded: &[Loaded],
    measured: &[Measured],
) -> String {
    let mut out = settings(plan, versions);
    let _ = writeln!(out, "\n| memory | records | store | loaded/s | live data | resident |");
    let _ = writeln!(out, "| --- | --- | --- | --- | --- | --- |");
    for it in loaded {
        let full = it.full.map_or("no limit".to_owned(), |full| format!("{:.0} %", full * 100.0));
        let _ = writeln!(
            out,
            "| {} % | {} | {} | {:.0} | {full} | {} MiB |",
            it.share,
            it.records,
            it.store,
            it.per_second,
            it.resident_bytes >> 20
        );
    }
    let _ = writeln!(
        out,
        "\n| memory | workload | Thunderhead/s | Redis/s | ratio | read: median, 99 % µs | of Redis \
         | write: median, 99 % µs | of Redis |"
    );
    let _ = writeln!(out, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for [ours, theirs] in pairs(measured) {
        let (one, other) = (&ours.outcome, &theirs.outcome);
        let write = ours.workload.write.unwrap_or_default();
        let cell = |measured: &Measured, name: &str| {
            let latency = measured.outcome.latencies.get(name);
            latency.map_or(String::new(), |it| format!("{:.0}, {:.0}", it.median, it.p99))
        };
        let _ = writeln!(
            out,
            "| {} % | {} | {:.0} | {:.0} | {:.2} | {} | {} | {} | {} |",
            ours.share,
            ours.workload.name.to_ascii_uppercase(),
            one.per_second,
            other.per_second,
            one.per_second / other.per_second,
            cell(ours, "READ"),
            cell(theirs, "READ"),
            cell(ours, write),
            cell(theirs, write),
        );
    }
    out
}

fn settings(plan: &Plan, versions: &str) -> String {
    let durability = if plan.durable {
        "one replica on Thunderhead's own disk, `replicated`; Redis with its log, synced each second"
    } else {
        "nothing is written to disks"
    };
    let updated = if plan.all_fields || plan.fields == 1 { "all" } else { "one" };
    let mut out = format!(
        "{versions}. {} threads, {} fields of 100 B of which an update writes {updated}, {} s a run, the middle one of {}; {durability}; \
         Thunderhead has {} MiB.",
        plan.threads,
        plan.fields,
        plan.seconds,
        plan.rounds,
        plan.memory_bytes >> 20
    );
    let named = plan.workloads.iter();
    let named: Vec<String> =
        named.map(|it| format!("{}: {}", it.name.to_ascii_uppercase(), it.what)).collect();
    let _ = write!(out, " {}.\n{}", named.join("; "), machine());
    out
}

/// The processor and the day.
fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("", |it| it.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let day = std::process::Command::new("date").arg("+%F").output();
    let day = day.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned());
    format!("{cores} cores of {model}, {}.\n", day.unwrap_or_default())
}

/// Thunderhead beside Redis, of the same workload at the same share.
fn pairs(measured: &[Measured]) -> impl Iterator<Item = [&Measured; 2]> {
    measured.chunks_exact(2).filter_map(|pair| pair.iter().collect::<Vec<_>>().try_into().ok())
}

/// The same for programs.
pub(super) fn json(plan: &Plan, versions: &str, loaded: &[Loaded], measured: &[Measured]) -> Value {
    let loaded: Vec<Value> = loaded
        .iter()
        .map(|it| {
            json!({
                "memory_percent": it.share, "records": it.records, "store": it.store,
                "per_second": it.per_second, "live_share": it.full,
                "resident_bytes": it.resident_bytes,
            })
        })
        .collect();
    let measured: Vec<Value> = measured
        .iter()
        .map(|it| {
            let latencies: serde_json::Map<String, Value> = it
                .outcome
                .latencies
                .iter()
                .map(|(name, it)| (name.clone(), json!({"median_us": it.median, "p99_us": it.p99})))
                .collect();
            json!({
                "memory_percent": it.share, "workload": it.workload.name.to_string(),
                "store": it.store, "per_second": it.outcome.per_second, "latencies": latencies,
            })
        })
        .collect();
    json!({
        "versions": versions, "threads": plan.threads, "fields": plan.fields,
        "all_fields": plan.all_fields, "seconds": plan.seconds, "rounds": plan.rounds, "durable": plan.durable,
        "memory_bytes": plan.memory_bytes, "loaded": loaded, "measured": measured,
    })
}
