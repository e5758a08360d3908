//! Reads and writes a second on one server core: against the number of connections, the requests in
//! flight on each, and the objects in a request.
//!
//! The client has one core too. A bare echo server on epoll is shown beside: a store that takes
//! requests from sockets and answers them there cannot be faster, because all of that time is the
//! kernel's.

use super::crowd::Shape;
use super::measure::{Client, Rate, at_random, over_shared_memory, rate};
use super::protocol::Act;
use super::report::Report;
use super::scale::Scale;
use super::store::{Kind, Store, Wanted};
use crate::rpc::floors::Waiting;
use crate::rpc::floors::echo::echo_throughput;
use crate::rpc::floors::latencies::Latencies;
use anyhow::{Context as _, Result};
use thunderhead_load::machine::median;
use thunderhead_load::output::progress;
use thunderhead_load::plot::{Marks, Panel, Series};
use thunderhead_load::table::Table;

/// Bytes of a value.
pub(super) const VALUE_BYTES: usize = 100;

/// Connections in the runs with pipelining or batches.
const FEW: usize = 8;

/// Connections, requests in flight on each, objects in each request.
const DEEP: [(usize, usize, usize); 9] = [
    (FEW, 1, 1),
    (FEW, 4, 1),
    (FEW, 16, 1),
    (FEW, 64, 1),
    (FEW, 1, 10),
    (1, 4, 70),
    (FEW, 1, 70),
    (FEW, 4, 70),
    (32, 1, 70),
];

/// The results of a store under one load, over all turns.
#[derive(Clone)]
pub(super) struct Load {
    pub(super) connections: usize,
    pub(super) depth: usize,
    pub(super) parts: usize,
    /// Objects a second.
    pub(super) rates: Vec<f64>,
    pub(super) latencies: Latencies,
}

impl Load {
    pub(super) fn new(connections: usize, depth: usize, parts: usize) -> Load {
        let (rates, latencies) = (Vec::new(), Latencies::new());
        Load { connections, depth, parts, rates, latencies }
    }

    pub(super) fn per_second(&self) -> f64 {
        median(self.rates.clone())
    }

    fn add(&mut self, rate: &Rate) {
        self.rates.push(rate.per_second);
        self.latencies.add(&rate.latencies);
    }

    /// Returns its name for people.
    pub(super) fn name(&self) -> String {
        let Load { connections, depth, parts, .. } = self;
        match parts {
            1 => format!("{connections} × {depth}"),
            _ => format!("{connections} × {depth}, {parts} objects each"),
        }
    }
}

/// Returns the best of the loads.
pub(super) fn best(loads: &[Load]) -> Option<&Load> {
    let measured = loads.iter().filter(|it| !it.rates.is_empty());
    measured.max_by(|one, other| one.per_second().total_cmp(&other.per_second()))
}

/// Drives all stores through the loads, in turn, over TCP.
pub(super) fn drive(
    scale: &Scale,
    stores: &[Store],
    act: Act,
    shapes: &[(usize, usize, usize)],
) -> Result<Vec<Vec<Load>>> {
    let mut all: Vec<Vec<Load>> = stores.iter().map(|_| Vec::new()).collect();
    for (connections, depth, parts) in shapes.iter().copied() {
        let mut clients = Vec::new();
        for (store, loads) in stores.iter().zip(&mut all) {
            loads.push(Load::new(connections, depth, parts));
            if store.kind == Kind::Etcd && (depth > 1 || parts > 1) {
                // It executes the requests of a connection one after another.
                clients.push(None);
                continue;
            }
            let source = at_random(act, scale.objects, VALUE_BYTES, parts, 5);
            let shape = Shape::polling(connections, depth);
            let client = store.crowd(store.tcp(), shape, true, source);
            clients.push(Some(client.with_context(|| store.kind.name())?));
        }
        for _ in 0..scale.bursts {
            for ((store, client), loads) in stores.iter().zip(&mut clients).zip(&mut all) {
                let Some(client) = client else { continue };
                let found = rate(client, scale.burst).with_context(|| store.kind.name())?;
                if let Some(load) = loads.last_mut() {
                    load.add(&found);
                }
            }
        }
        clients.iter_mut().flatten().try_for_each(|client| client.finish())?;
    }
    Ok(all)
}

fn shared_memory(scale: &Scale, store: &Store, act: Act) -> Result<Vec<Load>> {
    let mut loads = Vec::new();
    for (depth, parts) in [(1, 1), (4, 1), (16, 1), (64, 1), (1, 70), (8, 70)] {
        let mut client = over_shared_memory(store, act, scale.objects, VALUE_BYTES, depth, parts)?;
        let mut load = Load::new(1, depth, parts);
        for _ in 0..scale.bursts {
            load.add(&rate(&mut client, scale.burst)?);
        }
        Client::finish(&mut client)?;
        loads.push(load);
    }
    Ok(loads)
}

/// Measures all stores.
///
/// # Errors
/// When a store fails.
pub fn run(scale: &Scale, kinds: &[Kind], report: &mut Report) -> Result<()> {
    progress("throughput: starting the stores");
    let wanted = Wanted::memory(scale.memory_bytes()).populated();
    let mut stores = vec![Store::start(Kind::Thunderhead, wanted)?];
    for kind in kinds.iter().filter(|it| **it != Kind::Etcd) {
        stores.push(Store::start(*kind, wanted)?);
    }
    for store in &stores {
        store.load(scale.objects, VALUE_BYTES)?;
    }
    connections(scale, &stores, report)?;
    deep(scale, &stores, report)
}

fn echoes(scale: &Scale) -> Result<Vec<Load>> {
    let mut loads = Vec::new();
    for connections in &scale.connections {
        let mut load = Load::new(*connections, 1, 1);
        for _ in 0..scale.bursts {
            let found = echo_throughput(Waiting::Polling, *connections, 1, scale.burst)?;
            load.add(&Rate { per_second: found.per_second(), latencies: found.latencies });
        }
        loads.push(load);
    }
    Ok(loads)
}

fn connections(scale: &Scale, stores: &[Store], report: &mut Report) -> Result<()> {
    let shapes: Vec<_> = scale.connections.iter().map(|count| (*count, 1, 1)).collect();
    let mut panels = Vec::new();
    progress("throughput: bare echo server");
    let echo = echoes(scale)?;
    for act in [Act::Read, Act::Write] {
        progress(&format!("throughput: {act:?}, by connections"));
        let all = drive(scale, stores, act, &shapes)?;
        let verb = if act == Act::Read { "read" } else { "written, in memory alone" };
        let title = format!("Objects of 100 B {verb} in K/s, by connections, no pipelining");
        report.table(table(&title, stores, &all, Some(&echo)));
        panels.push(lines(&title, stores, &all, Some(&echo)));
        if act == Act::Read {
            many_connections(stores, &all, &echo, report);
        }
    }
    report.figure("connections", panels);
    Ok(())
}

/// Reports one request in flight on each of 32 connections or more.
fn many_connections(stores: &[Store], all: &[Vec<Load>], echo: &[Load], report: &mut Report) {
    let [ours, peers @ ..] = all else { return };
    for ((at, ours), echo) in ours.iter().enumerate().zip(echo) {
        let rivals = peers.iter().zip(&stores[1..]).filter_map(|(it, store)| {
            let load = it.get(at)?;
            let ratios = ours.rates.iter().zip(&load.rates).map(|(ours, it)| ours / it);
            Some((store.kind, load.per_second(), median(ratios.collect())))
        });
        let Some((kind, rate, ratio)) = rivals.max_by(|one, other| one.1.total_cmp(&other.1))
        else {
            return;
        };
        let what = format!(
            "reads/s, {} TCP connections, no pipelining: Thunderhead {:.0} K/s, the best peer \
             ({}) {:.0} K/s, a bare echo server {:.0} K/s",
            ours.connections,
            ours.per_second() / 1e3,
            kind.name(),
            rate / 1e3,
            echo.per_second() / 1e3
        );
        if ours.connections >= 32 {
            report.rows.at_least(&what, 1.3, ratio, "×");
        }
    }
}

fn deep(scale: &Scale, stores: &[Store], report: &mut Report) -> Result<()> {
    for act in [Act::Read, Act::Write] {
        progress(&format!("throughput: {act:?}, pipelined and batched"));
        let all = drive(scale, stores, act, &DEEP)?;
        let [ours, peers @ ..] = all.as_slice() else { return Ok(()) };
        let verb = if act == Act::Read { "read" } else { "written, in memory alone" };
        let title =
            format!("Objects of 100 B {verb} in K/s over TCP, by connections × requests on each");
        report.table(table(&title, stores, &all, None));
        let rivals = peers.iter().zip(&stores[1..]);
        let rivals = rivals.filter_map(|(it, store)| Some((store.kind, best(it)?)));
        let rival = rivals.max_by(|one, other| one.1.per_second().total_cmp(&other.1.per_second()));
        let shared = stores.first().map(|it| shared_memory(scale, it, act)).transpose()?;
        let shared = shared.unwrap_or_default();
        let mut rings = Table::new(
            &format!("The same of Thunderhead over shared memory, one client ({act:?})"),
            &["requests × objects in each", "K/s", "median µs"],
        );
        for load in &shared {
            rings.row(&[
                format!("{} × {}", load.depth, load.parts),
                format!("{:.0}", load.per_second() / 1e3),
                format!("{:.1}", load.latencies.median() / 1e3),
            ]);
        }
        report.table(rings);
        let (Some(ours), Some((kind, rival))) = (best(ours), rival) else { return Ok(()) };
        let verb = if act == Act::Read { "reads/s" } else { "writes/s in memory" };
        let what = format!(
            "{verb}, pipelined or batched, TCP: Thunderhead {:.2} M/s ({}), the best peer ({}) \
             {:.2} M/s ({})",
            ours.per_second() / 1e6,
            ours.name(),
            kind.name(),
            rival.per_second() / 1e6,
            rival.name()
        );
        let ratio = ours.per_second() / rival.per_second();
        match act {
            Act::Read => report.rows.at_least(&what, 3.0, ratio, "×"),
            _ => report.rows.reported(&what, ratio, "×"),
        }
        if let Some(shared) = best(&shared) {
            let what = format!("  the same, Thunderhead over shared memory ({})", shared.name());
            report.rows.reported(&what, shared.per_second() / 1e6, "M/s");
        }
    }
    Ok(())
}

/// Returns a table with a row for each load and a column for each store.
pub(super) fn table(
    title: &str,
    stores: &[Store],
    all: &[Vec<Load>],
    echo: Option<&[Load]>,
) -> Table {
    let mut columns = vec!["connections × requests"];
    columns.extend(stores.iter().map(|store| store.kind.name()));
    columns.extend(echo.map(|_| "bare echo"));
    let mut table = Table::new(title, &columns);
    let all: Vec<&[Load]> = all.iter().map(Vec::as_slice).chain(echo).collect();
    for (at, load) in all.first().into_iter().flat_map(|it| it.iter().enumerate()) {
        let figures = all.iter().filter_map(|it| it.get(at));
        let figures = figures.map(|it| match it.rates.is_empty() {
            true => "-".to_owned(),
            false => format!("{:.1}", it.per_second() / 1e3),
        });
        table.row(&std::iter::once(load.name()).chain(figures).collect::<Vec<_>>());
    }
    table
}

fn lines(title: &str, stores: &[Store], all: &[Vec<Load>], echo: Option<&[Load]>) -> Panel {
    let points = |loads: &[Load]| {
        loads.iter().map(|it| (it.connections as f64, it.per_second() / 1e3)).collect()
    };
    let names = stores.iter().map(|store| store.kind.name());
    let ours = names.zip(all.iter().map(Vec::as_slice));
    let series = ours.chain(echo.map(|it| ("bare echo", it)));
    let series = series.map(|(name, it)| Series { name: name.into(), points: points(it) });
    Panel {
        title: title.to_owned(),
        x_label: "connections".into(),
        y_label: "K/s".into(),
        marks: Marks::Lines,
        series: series.collect(),
    }
}
