//! The latencies of a read and of a write: one client, one object at a time.
//!
//! All stores run at the same time and are asked in turn, with a few requests each, repeatedly. The
//! result is the median of the ratios within each turn.

use super::crowd::{Address, Shape};
use super::measure::{Client, at_random, latencies, over_shared_memory};
use super::protocol::Act;
use super::report::Report;
use super::scale::Scale;
use super::store::{Kind, Store, Wanted};
use crate::rpc::floors::Waiting;
use crate::rpc::floors::latencies::Latencies;
use anyhow::{Context as _, Result};
use thunderhead_load::machine::median;
use thunderhead_load::output::progress;
use thunderhead_load::plot::{Marks, Panel, Series};
use thunderhead_load::table::Table;

/// Bytes of values, and the factor by which there are fewer objects and requests of them.
const SIZES: [(usize, u64); 3] = [(100, 1), (1_000, 2), (100_000, 10)];

/// The medium to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    Tcp,
    Unix,
    Shm,
}

impl Via {
    fn name(self) -> &'static str {
        match self {
            Via::Tcp => "TCP",
            Via::Unix => "Unix socket",
            Via::Shm => "shared memory",
        }
    }
}

struct Subject<'a> {
    store: &'a Store,
    via: Via,
    waiting: Waiting,
    /// The medians of all turns, in nanoseconds.
    medians: Vec<f64>,
    all: Latencies,
}

impl<'a> Subject<'a> {
    fn new(store: &'a Store, via: Via, waiting: Waiting) -> Subject<'a> {
        Subject { store, via, waiting, medians: Vec::new(), all: Latencies::new() }
    }

    fn name(&self) -> String {
        let waits = match self.waiting {
            Waiting::Polling => "",
            Waiting::Blocking => ", client blocks",
        };
        format!("{}, {}{waits}", self.store.kind.name(), self.via.name())
    }

    fn address(&self) -> Option<&Address> {
        match self.via {
            Via::Tcp => Some(self.store.tcp()),
            Via::Unix => self.store.unix(),
            Via::Shm => None,
        }
    }

    fn client(&self, act: Act, objects: u64, value_bytes: usize) -> Result<Box<dyn Client>> {
        let Some(address) = self.address() else {
            let client = over_shared_memory(self.store, act, objects, value_bytes, 1, 1)?;
            return Ok(Box::new(client));
        };
        let shape = Shape { connections: 1, depth: 1, waiting: self.waiting };
        let source = at_random(act, objects, value_bytes, 1, 3);
        Ok(Box::new(self.store.crowd(address, shape, true, source)?))
    }
}

/// Returns the ratio of two latencies: the median of all turns.
fn ratio(of: &Subject<'_>, to: &Subject<'_>) -> f64 {
    median(of.medians.iter().zip(&to.medians).map(|(of, to)| of / to).collect())
}

/// Starts the stores of this section: all that are installed, memcached twice.
fn stores(scale: &Scale, kinds: &[Kind]) -> Result<Vec<Store>> {
    let wanted = Wanted::memory(scale.memory_bytes()).populated();
    let mut stores = vec![Store::start(Kind::Thunderhead, wanted)?];
    for kind in kinds.iter().filter(|it| **it != Kind::Etcd) {
        let unix = Wanted { unix: true, ..wanted };
        stores.push(Store::start(*kind, unix)?);
        if *kind == Kind::Memcached {
            stores.push(Store::start(*kind, wanted)?);
        }
    }
    Ok(stores)
}

fn subjects(stores: &[Store]) -> Vec<Subject<'_>> {
    let mut all = Vec::new();
    for store in stores {
        let is_ours = store.kind == Kind::Thunderhead;
        let has_tcp = store.kind != Kind::Memcached || store.unix().is_none();
        if is_ours {
            all.push(Subject::new(store, Via::Shm, Waiting::Polling));
        }
        if store.unix().is_some() {
            all.push(Subject::new(store, Via::Unix, Waiting::Polling));
        }
        if has_tcp {
            all.push(Subject::new(store, Via::Tcp, Waiting::Polling));
            all.push(Subject::new(store, Via::Tcp, Waiting::Blocking));
        }
    }
    all
}

/// Measures all stores.
///
/// # Errors
/// When a store fails.
pub fn run(scale: &Scale, kinds: &[Kind], report: &mut Report) -> Result<()> {
    progress("latency: starting the stores");
    let stores = stores(scale, kinds)?;
    let mut table = Table::new(
        "One client, one object at a time, in microseconds",
        &["values", "store", "read: median", "99 %", "99.9 %", "write: median", "99 %", "99.9 %"],
    );
    let mut bars = [Vec::new(), Vec::new()];
    let names: Vec<String> = SIZES.iter().map(|(bytes, _)| size(*bytes)).collect();
    for (group, (value_bytes, fewer)) in SIZES.into_iter().enumerate() {
        let objects = (scale.objects / (value_bytes as u64 / 100)).max(100);
        for store in &stores {
            store.load(objects, value_bytes)?;
        }
        let mut cells: Vec<Vec<String>> = Vec::new();
        for (at, act) in [Act::Read, Act::Write].into_iter().enumerate() {
            progress(&format!("latency: {act:?} of {}", size(value_bytes)));
            let mut subjects = subjects(&stores);
            measure(&mut subjects, act, objects, value_bytes, scale.rounds / fewer, scale.turns)?;
            for (place, subject) in subjects.iter().enumerate() {
                if cells.len() <= place {
                    cells.push(vec![size(value_bytes), subject.name()]);
                }
                for share in [0.5, 0.99, 0.999] {
                    let figure = subject.all.percentile(share) / 1e3;
                    cells[place].push(format!("{figure:.1}"));
                }
                let point = (group as f64, subject.all.median() / 1e3);
                if bars[at].len() <= place {
                    bars[at].push(Series { name: subject.name(), points: Vec::new() });
                }
                bars[at][place].points.push(point);
            }
            if value_bytes == 100 && act == Act::Read {
                required(&subjects, report)?;
            }
        }
        cells.iter().for_each(|row| table.row(row));
    }
    report.table(table);
    let panels = bars.into_iter().zip(["read", "write"]).map(|(series, act)| Panel {
        title: format!("One client: median of a {act}"),
        x_label: "bytes of a value".into(),
        y_label: "µs".into(),
        marks: Marks::Bars(names.clone()),
        series,
    });
    report.figure("latency", panels.collect());
    Ok(())
}

fn size(bytes: usize) -> String {
    if bytes < 1000 { format!("{bytes} B") } else { format!("{} KB", bytes / 1000) }
}

fn measure(
    subjects: &mut [Subject<'_>],
    act: Act,
    objects: u64,
    value_bytes: usize,
    rounds: u64,
    turns: usize,
) -> Result<()> {
    let mut clients = Vec::new();
    for subject in subjects.iter() {
        clients.push(subject.client(act, objects, value_bytes)?);
    }
    for _ in 0..turns {
        for (subject, client) in subjects.iter_mut().zip(&mut clients) {
            let found = latencies(client.as_mut(), rounds.max(20));
            let found = found.with_context(|| subject.name())?;
            subject.medians.push(found.median());
            subject.all.add(&found);
        }
    }
    clients.iter_mut().try_for_each(|client| client.finish())
}

fn required(subjects: &[Subject<'_>], report: &mut Report) -> Result<()> {
    let find = |kind: Kind, via: Via, waiting: Waiting| {
        subjects.iter().find(|it| (it.store.kind, it.via, it.waiting) == (kind, via, waiting))
    };
    let ours = |via| find(Kind::Thunderhead, via, Waiting::Polling).context("Thunderhead");
    let mut row = |kind, via, waiting, least: f64, ours: &Subject<'_>| {
        let Some(peer) = find(kind, via, waiting) else { return };
        let what = format!(
            "100 B read, one client, median: {} {:.2} µs, {} {:.2} µs",
            ours.name(),
            ours.all.median() / 1e3,
            peer.name(),
            peer.all.median() / 1e3
        );
        report.rows.at_least(&what, least, ratio(peer, ours), "×");
    };
    let (tcp, shm) = (ours(Via::Tcp)?, ours(Via::Shm)?);
    for (kind, least) in [(Kind::Redis, 3.0), (Kind::Valkey, 3.0), (Kind::Memcached, 2.0)] {
        row(kind, Via::Tcp, Waiting::Polling, least, tcp);
    }
    for kind in [Kind::Redis, Kind::Valkey, Kind::Memcached] {
        row(kind, Via::Tcp, Waiting::Blocking, 6.0, tcp);
    }
    for kind in [Kind::Redis, Kind::Valkey] {
        row(kind, Via::Unix, Waiting::Polling, 5.0, shm);
    }
    Ok(())
}
