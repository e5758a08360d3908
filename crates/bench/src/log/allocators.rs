//! Figures 1 and 10 of the paper: memory under workloads whose object sizes change.
//!
//! Each workload of Table 1 has three phases. The first writes several times the live data in one
//! distribution of sizes and deletes objects at random to stay within the live data. The second
//! deletes a share of the objects at random. The third writes as much again in another
//! distribution. The same seeded sequence runs on our log, which keeps itself 90 % full of live
//! entries, and on the installed allocators, each in a process of its own that loads it instead of
//! the system's. The result is the most memory that each process held, less the benchmark's own
//! list of live objects, for each byte of live payload (keys and values).
//!
//! Then the sequence is timed on smaller logs that are 70, 80 and 90 % full, and on a log that is
//! large enough never to be cleaned.

use super::subject::{self, TABLE, options_for, write_all};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::alloc::Layout;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use thunderhead_load::machine;
use thunderhead_load::output::{progress, show};
use thunderhead_load::plot::{self, Marks, Panel, Series, save};
use thunderhead_load::table::Table;
use thunderhead_log::{
    CleanerThreads, Condition, Error, Log, LogId, NoReplication, Put, TabletRange,
};
use thunderhead_runtime::Random;

/// The options of the run.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Bytes of live payload: at least 256 MiB, or 64 MiB with --memory-only. Less cannot fill a
    /// memory to 90 %. The default needs 7.2 GB of memory, or 6.1 GB with --memory-only.
    #[arg(long, default_value_t = 1 << 30)]
    live: u64,
    /// Each phase writes this many times the live payload: 1 to 1000.
    #[arg(long, default_value_t = 5.0)]
    churn: f64,
    /// Workloads of Table 1, by number.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,5,6,7,8")]
    workloads: Vec<usize>,
    /// Skip the timed runs.
    #[arg(long)]
    memory_only: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw the figures.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Run one workload on this process's allocator, with these caps on the live payload.
    #[arg(long, hide = true, value_delimiter = ',')]
    child: Vec<u64>,
}

/// With less, reserves and the head take more than a tenth of the memory. (The timed runs use a
/// quarter of the given payload.)
const LIVE_MIN: u64 = 64 << 20;
const LIVE_MAX: u64 = 1 << 46;

/// Sizes drawn uniformly from a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes(u64, u64);

impl Sizes {
    fn draw(self, random: &mut Random) -> u64 {
        self.0 + random.below(self.1 - self.0 + 1)
    }

    fn mean(self) -> f64 {
        (self.0 + self.1) as f64 / 2.0
    }
}

/// A row of Table 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    before: Sizes,
    deleted: f64,
    after: Option<Sizes>,
}

pub(crate) const WORKLOADS: [Workload; 8] = [
    Workload { before: Sizes(100, 100), deleted: 0.0, after: None },
    Workload { before: Sizes(100, 100), deleted: 0.0, after: Some(Sizes(130, 130)) },
    Workload { before: Sizes(100, 100), deleted: 0.9, after: Some(Sizes(130, 130)) },
    Workload { before: Sizes(100, 150), deleted: 0.0, after: Some(Sizes(200, 250)) },
    Workload { before: Sizes(100, 150), deleted: 0.9, after: Some(Sizes(200, 250)) },
    Workload { before: Sizes(100, 200), deleted: 0.5, after: Some(Sizes(1_000, 2_000)) },
    Workload { before: Sizes(1_000, 2_000), deleted: 0.9, after: Some(Sizes(1_500, 2_500)) },
    Workload { before: Sizes(50, 150), deleted: 0.9, after: Some(Sizes(5_000, 15_000)) },
];

/// An object in the benchmark's list: 48 bits that the store chose and 16 of its size.
#[derive(Clone, Copy)]
pub(crate) struct Item(u64);

impl Item {
    pub(crate) fn new(name: u64, size: u64) -> Item {
        Item(name << 16 | size)
    }

    pub(crate) fn size(self) -> u64 {
        self.0 & 0xffff
    }

    pub(crate) fn name(self) -> u64 {
        self.0 >> 16
    }
}

/// The store under a workload.
pub(crate) trait Store {
    /// Whether the payload may grow by `more`.
    fn has_room(&self, payload: u64, more: u64) -> bool;
    fn put(&mut self, size: u64) -> Result<Item>;
    fn delete(&mut self, item: Item) -> Result<()>;
    /// Returns the least bytes that the store needs for its content, or 0 if unknown; see
    /// [`Held::worst_ratio`].
    fn needed(&self) -> u64;
    /// Begins the second distribution.
    fn next_phase(&mut self);
    /// Returns resident bytes; by default those of this process less the benchmark's `own`.
    fn resident_bytes(&self, own: u64) -> u64 {
        machine::resident_bytes().saturating_sub(own)
    }
}

/// The memory of a store during a workload.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Held {
    /// The most resident bytes, without the benchmark's own.
    pub peak_bytes: u64,
    /// Resident bytes at the end.
    pub end_bytes: u64,
    /// The most live payload in the first phase.
    pub first_payload_bytes: u64,
    /// The most live payload in the last phase.
    pub last_payload_bytes: u64,
    /// Live payload at the end.
    pub end_payload_bytes: u64,
    /// The most resident bytes for each needed byte while the store was full; `None` if it never
    /// was full, or does not know its needs.
    pub worst_ratio: Option<f64>,
    /// Operations a second.
    pub operations_per_second: f64,
}

impl Held {
    /// Returns the most live payload of both phases, as caps for the stores that come after.
    fn caps(&self) -> [u64; 2] {
        [self.first_payload_bytes, self.last_payload_bytes]
    }

    /// Returns the most resident bytes for each byte of the most live payload.
    #[must_use]
    pub fn per_byte(&self) -> f64 {
        let most = self.first_payload_bytes.max(self.last_payload_bytes);
        self.peak_bytes as f64 / most.max(1) as f64
    }
}

struct Run<'a, S> {
    store: &'a mut S,
    items: Vec<Item>,
    most_items: usize,
    payload: u64,
    base_bytes: u64,
    held: Held,
    random: Random,
    operations: u64,
}

impl<S: Store> Run<'_, S> {
    fn delete_one(&mut self) -> Result<()> {
        let at = self.random.below(self.items.len() as u64) as usize;
        let item = self.items.swap_remove(at);
        self.payload -= item.size();
        self.operations += 1;
        self.store.delete(item)
    }

    fn phase(&mut self, sizes: Sizes, bytes: u64, number: usize) -> Result<()> {
        let mut written = 0;
        let mut full = false;
        while written < bytes {
            let size = sizes.draw(&mut self.random);
            while !self.items.is_empty() && !self.store.has_room(self.payload, size) {
                self.delete_one()?;
                full = true;
            }
            self.items.push(self.store.put(size)?);
            self.payload += size;
            written += size;
            self.operations += 1;
            self.most_items = self.most_items.max(self.items.len());
            let most = match number {
                0 => &mut self.held.first_payload_bytes,
                _ => &mut self.held.last_payload_bytes,
            };
            *most = self.payload.max(*most);
            if self.operations.is_multiple_of(1 << 16) {
                self.look(full);
            }
        }
        self.look(full);
        Ok(())
    }

    fn resident(&self) -> u64 {
        let own = self.base_bytes + (self.most_items * size_of::<Item>()) as u64;
        self.store.resident_bytes(own)
    }

    fn look(&mut self, full: bool) {
        let resident = self.resident();
        self.held.peak_bytes = self.held.peak_bytes.max(resident);
        if full && self.store.needed() > 0 {
            let ratio = resident as f64 / self.store.needed() as f64;
            self.held.worst_ratio = Some(self.held.worst_ratio.map_or(ratio, |it| it.max(ratio)));
        }
    }
}

/// Runs a workload on a store. `base_bytes` are the process's resident bytes before it.
pub(crate) fn drive(
    store: &mut impl Store,
    workload: Workload,
    live: u64,
    churn: f64,
    base_bytes: u64,
) -> Result<Held> {
    let mut run = Run {
        store,
        items: Vec::with_capacity(items(workload, live) as usize),
        most_items: 0,
        payload: 0,
        base_bytes,
        held: Held::default(),
        random: Random::from_seed(5),
        operations: 0,
    };
    let bytes = (live as f64 * churn) as u64;
    let began = Instant::now();
    run.phase(workload.before, bytes, 0)?;
    let left = (run.items.len() as f64 * (1.0 - workload.deleted)) as usize;
    while run.items.len() > left {
        run.delete_one()?;
    }
    run.store.next_phase();
    match workload.after {
        Some(sizes) => run.phase(sizes, bytes, 1)?,
        None => run.held.last_payload_bytes = run.held.first_payload_bytes,
    }
    run.held.operations_per_second = run.operations as f64 / began.elapsed().as_secs_f64();
    run.held.end_bytes = run.resident();
    run.held.end_payload_bytes = run.payload;
    Ok(run.held)
}

/// Our log.
struct OurLog {
    log: Log,
    /// Live entries may fill this share of the log's memory...
    utilization: f64,
    /// ...or the live payload is capped, in the first phase and in the last.
    caps: Option<[u64; 2]>,
    phase: usize,
    next: u64,
    bytes: Vec<u8>,
    /// Writes that wait for the rest of their batch.
    waiting: Vec<Item>,
    waiting_bytes: u64,
    _cleaners: CleanerThreads,
}

impl OurLog {
    fn new(memory_bytes: u64, live: u64, utilization: f64, caps: Option<[u64; 2]>) -> Result<Self> {
        let memory = subject::memory_for(memory_bytes, live)?;
        let replicator = Box::new(NoReplication::default());
        let mut log = Log::new(&memory, LogId(7), options_for(live), replicator)?;
        log.create_tablet(TabletRange::whole(TABLE)).context("creating the table")?;
        let cleaners = CleanerThreads::start(&log, 1, |number| machine::pin(1 + number));
        machine::pin(0);
        Ok(OurLog {
            log,
            utilization,
            caps,
            phase: 0,
            next: 0,
            bytes: vec![7; 1 << 16],
            waiting: Vec::new(),
            waiting_bytes: 0,
            _cleaners: cleaners,
        })
    }

    fn write_waiting(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let keys: Vec<[u8; 8]> = waiting.iter().map(|item| item.name().to_be_bytes()).collect();
        let values = waiting.iter().map(|item| &self.bytes[..item.size() as usize - 8]);
        let puts: Vec<Put<'_>> = keys
            .iter()
            .zip(values)
            .map(|(key, value)| Put { table: TABLE, key, value, condition: Condition::Always })
            .collect();
        for at in write_all(&mut self.log, &puts)? {
            let Put { key, value, .. } = puts[at];
            patiently(&mut self.log, |log| log.write(TABLE, key, value))?;
        }
        Ok(())
    }
}

/// Retries until the cleaner has made room.
fn patiently<T>(log: &mut Log, mut work: impl FnMut(&mut Log) -> Result<T, Error>) -> Result<T> {
    loop {
        match work(log) {
            Err(error) if error.is_transient() => {
                log.turn();
                (0..20).for_each(|_| std::hint::spin_loop());
            }
            other => return other.map_err(Into::into),
        }
    }
}

impl Store for OurLog {
    fn has_room(&self, payload: u64, more: u64) -> bool {
        if let Some(caps) = self.caps {
            return payload + more <= caps[self.phase];
        }
        let usage = self.log.usage();
        let live = usage.live_bytes + self.waiting_bytes + more + 16;
        live as f64 <= usage.log_bytes as f64 * self.utilization
    }

    fn put(&mut self, size: u64) -> Result<Item> {
        let item = Item::new(self.next, size);
        self.next += 1;
        self.waiting.push(item);
        self.waiting_bytes += size + 16;
        if self.waiting.len() == thunderhead_log::BATCH {
            self.write_waiting()?;
        }
        Ok(item)
    }

    fn delete(&mut self, item: Item) -> Result<()> {
        let key = item.name().to_be_bytes();
        let delete = |log: &mut Log| log.delete(TABLE, &key, Condition::Always);
        if patiently(&mut self.log, delete)?.is_none() {
            // It is among the waiting writes.
            self.write_waiting()?;
            patiently(&mut self.log, delete)?.context("an object is gone")?;
        }
        Ok(())
    }

    fn needed(&self) -> u64 {
        let usage = self.log.usage();
        usage.live_bytes + usage.index_bytes
    }

    fn next_phase(&mut self) {
        self.phase = 1;
    }
}

/// The process's own allocator.
struct Malloc {
    caps: [u64; 2],
    phase: usize,
}

fn layout(size: u64) -> Result<Layout> {
    Layout::from_size_align(size as usize, 8).context("a layout")
}

impl Store for Malloc {
    fn has_room(&self, payload: u64, more: u64) -> bool {
        payload + more <= self.caps[self.phase]
    }

    fn put(&mut self, size: u64) -> Result<Item> {
        let layout = layout(size)?;
        // SAFETY: no workload has objects of size 0.
        let address = unsafe { std::alloc::alloc(layout) };
        ensure!(!address.is_null(), "no memory");
        // SAFETY: `address` was allocated with this size.
        unsafe { std::ptr::write_bytes(address, 7, size as usize) };
        Ok(Item::new(address.expose_provenance() as u64, size))
    }

    fn delete(&mut self, item: Item) -> Result<()> {
        let address = std::ptr::with_exposed_provenance_mut(item.name() as usize);
        // SAFETY: the item came from `put` and is deleted once.
        unsafe { std::alloc::dealloc(address, layout(item.size())?) };
        Ok(())
    }

    fn needed(&self) -> u64 {
        0
    }

    fn next_phase(&mut self) {
        self.phase = 1;
    }
}

/// Returns the memory in which `live` bytes of both distributions fit at a utilization.
pub(crate) fn memory_for(workload: Workload, live: u64, utilization: f64) -> u64 {
    let phase = |sizes: Sizes| {
        let objects = live as f64 / sizes.mean();
        let log_bytes = objects * (sizes.mean() + 13.0) / utilization;
        log_bytes + subject::index_bytes(objects as u64, log_bytes as u64) as f64
    };
    let most = phase(workload.before).max(workload.after.map_or(0.0, phase));
    (most * 1.005) as u64 + (2 << 20)
}

/// Returns the memory in which everything fits that a workload ever writes.
fn uncleaned(workload: Workload, live: u64, churn: f64) -> u64 {
    memory_for(workload, (live as f64 * (2.0 * churn + 1.0)) as u64, 0.5)
}

/// Returns the most objects of a workload.
fn items(workload: Workload, live: u64) -> u64 {
    live * 2 / workload.before.0.min(workload.after.map_or(u64::MAX, |sizes| sizes.0))
}

/// Runs a workload on a log that is filled to a utilization.
fn on_our_log(
    workload: Workload,
    live: u64,
    churn: f64,
    utilization: f64,
    caps: Option<[u64; 2]>,
    memory_bytes: u64,
) -> Result<Held> {
    let base = machine::resident_bytes();
    let mut store = OurLog::new(memory_bytes, live, utilization, caps)?;
    drive(&mut store, workload, live, churn, base)
}

const ALLOCATORS: [(&str, Option<&str>); 4] = [
    ("glibc", None),
    ("jemalloc", Some("libjemalloc.so.2")),
    ("mimalloc", Some("libmimalloc.so.2")),
    ("tcmalloc", Some("libtcmalloc_minimal.so.4")),
];

fn library(name: &str) -> Option<PathBuf> {
    let places = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
    ];
    places.iter().map(|place| Path::new(place).join(name)).find(|path| path.exists())
}

/// Runs a workload in a process of its own with another allocator; returns `None` if the allocator
/// is not installed.
fn on_allocator(
    file: Option<&str>,
    number: usize,
    live: u64,
    churn: f64,
    caps: [u64; 2],
) -> Result<Option<Held>> {
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(file) = file {
        let Some(path) = library(file) else { return Ok(None) };
        command.env("LD_PRELOAD", path);
    }
    let child = format!("{number},{},{}", caps[0], caps[1]);
    command.args(["log", "allocators", "--child", &child]);
    command.args(["--live", &live.to_string(), "--churn", &churn.to_string()]);
    let output = command.stderr(Stdio::inherit()).output().context("starting a process")?;
    ensure!(output.status.success(), "a process with another allocator failed");
    Ok(Some(serde_json::from_slice(&output.stdout).context("the process's output")?))
}

fn run_child(arguments: &Arguments) -> Result<()> {
    let [number, first, last] = arguments.child[..] else { bail!("--child takes three numbers") };
    let workload = WORKLOADS.get(number as usize).context("no such workload")?;
    let mut store = Malloc { caps: [first, last], phase: 0 };
    let base = machine::resident_bytes();
    let held = drive(&mut store, *workload, arguments.live, arguments.churn, base)?;
    serde_json::to_writer(std::io::stdout().lock(), &held)?;
    Ok(())
}

/// The results of one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// W1 to W8.
    pub workload: String,
    /// Our log at 90 %.
    pub ours: Held,
    /// The allocators that are installed.
    pub allocators: Vec<Rival>,
    /// Throughput at 70, 80 and 90 % relative to a log that is never cleaned.
    pub relative: Vec<Relative>,
}

/// The results of an allocator.
#[derive(Clone, Debug, Serialize)]
pub struct Rival {
    /// The allocator.
    pub name: String,
    /// The memory that it held.
    #[serde(flatten)]
    pub held: Held,
}

/// Throughput of a log that is cleaned.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Relative {
    /// The utilization of its memory.
    pub utilization_percent: u32,
    /// Its throughput as a share of that of a log that is never cleaned.
    pub share_of_uncleaned: f64,
}

/// Measures the memory that a workload needs.
///
/// # Errors
/// When the log cannot be made, a write is refused or a process fails.
pub fn memory(number: usize, live: u64, churn: f64) -> Result<Outcome> {
    let workload = WORKLOADS[number];
    let memory_bytes = memory_for(workload, live, 0.9);
    let ours = on_our_log(workload, live, churn, 0.9, None, memory_bytes)?;
    // Two at a time: nothing is timed here.
    let mut allocators = Vec::new();
    for pair in ALLOCATORS.chunks(2) {
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = pair
                .iter()
                .map(|(name, file)| {
                    let run = move || on_allocator(*file, number, live, churn, ours.caps());
                    (name, scope.spawn(run))
                })
                .collect();
            threads.into_iter().map(|(name, thread)| (name, thread.join())).collect()
        });
        for (name, result) in results {
            let result = result.map_err(|_| anyhow::anyhow!("{name}: a thread panicked"))?;
            match result.with_context(|| (*name).to_string())? {
                Some(held) => allocators.push(Rival { name: (*name).to_string(), held }),
                None => progress(&format!("{name} is not installed: left out")),
            }
        }
    }
    Ok(Outcome { workload: format!("W{}", number + 1), ours, allocators, relative: Vec::new() })
}

/// Measures how much cleaning slows a workload down.
fn throughput(number: usize, live: u64, churn: f64) -> Result<Vec<Relative>> {
    let workload = WORKLOADS[number];
    let mut at = Vec::new();
    let mut caps = [0; 2];
    for percent in [70, 80, 90] {
        let utilization = f64::from(percent) / 100.0;
        let memory_bytes = memory_for(workload, live, utilization);
        let held = on_our_log(workload, live, churn, utilization, None, memory_bytes)?;
        at.push((percent, held.operations_per_second));
        caps = held.caps();
    }
    // Everything that is ever written fits, tombstones included.
    let all = uncleaned(workload, live, churn);
    let base = on_our_log(workload, live, churn, 1.0, Some(caps), all)?;
    Ok(at
        .into_iter()
        .map(|(utilization_percent, operations)| Relative {
            utilization_percent,
            share_of_uncleaned: operations / base.operations_per_second,
        })
        .collect())
}

impl Arguments {
    /// Refuses invalid options before any measurement.
    fn check(&self) -> Result<()> {
        let Arguments { live, churn, .. } = *self;
        let least = if self.memory_only { LIVE_MIN } else { 4 * LIVE_MIN };
        ensure!(
            (least..=LIVE_MAX).contains(&live),
            "--live is {live}; it must be {least} to {LIVE_MAX}"
        );
        ensure!((1.0..=1000.0).contains(&churn), "--churn is {churn}; it must be 1 to 1000");
        for number in &self.workloads {
            ensure!((1..=8).contains(number), "there is no workload {number}; there are 1 to 8");
        }
        Ok(())
    }

    /// Returns the most memory that any step takes, including the benchmark's lists of live
    /// objects.
    fn memory_bytes(&self) -> u64 {
        let Arguments { live, churn, .. } = *self;
        let step = |number: &usize| {
            let workload = WORKLOADS[number - 1];
            let items = items(workload, live) * size_of::<Item>() as u64;
            let ours = memory_for(workload, live, 0.9) + items;
            // Two at a time; the worst of them hold a little over twice the payload.
            let allocators = 2 * (live * 5 / 2 + items);
            let timed = if self.memory_only { 0 } else { uncleaned(workload, live / 4, churn) };
            ours.max(allocators).max(timed)
        };
        self.workloads.iter().map(step).max().unwrap_or(0)
    }
}

/// Runs the experiment and prints it.
///
/// # Errors
/// When it cannot be run.
pub fn run(arguments: &Arguments) -> Result<()> {
    if !arguments.child.is_empty() {
        return run_child(arguments);
    }
    arguments.check()?;
    let needed = arguments.memory_bytes();
    machine::ensure_memory(needed, "--live, or --churn, or add --memory-only")?;
    plot::check(arguments.plot.as_deref())?;
    let mut outcomes = Vec::new();
    for number in &arguments.workloads {
        progress(&format!("W{number}: memory"));
        let mut outcome = memory(number - 1, arguments.live, arguments.churn)?;
        if !arguments.memory_only {
            progress(&format!("W{number}: throughput"));
            outcome.relative = throughput(number - 1, arguments.live / 4, arguments.churn)?;
        }
        outcomes.push(outcome);
    }
    // Printed first, so that the results are not lost if the figure cannot be drawn.
    show(arguments.json, &table(&outcomes), &outcomes)?;
    if let Some(path) = &arguments.plot {
        save(path, &panels(&outcomes))?;
    }
    Ok(())
}

fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(
        "Resident bytes at most for each byte of live payload; our log is 90 % full",
        &[
            "workload",
            "ours",
            "glibc",
            "jemalloc",
            "mimalloc",
            "tcmalloc",
            "process / (live + index)",
            "speed at 70 %",
            "80 %",
            "90 % of uncleaned",
        ],
    );
    for outcome in outcomes {
        let mut cells = vec![outcome.workload.clone(), format!("{:.2}", outcome.ours.per_byte())];
        for (name, _) in ALLOCATORS {
            let found = outcome.allocators.iter().find(|rival| rival.name == name);
            cells.push(found.map_or("-".into(), |rival| format!("{:.2}", rival.held.per_byte())));
        }
        let ratio = outcome.ours.worst_ratio;
        cells.push(ratio.map_or("not reached".into(), |ratio| format!("{ratio:.3}")));
        cells.extend(outcome.relative.iter().map(|it| format!("{:.2}", it.share_of_uncleaned)));
        table.row(&cells);
    }
    table
}

fn panels(outcomes: &[Outcome]) -> Vec<Panel> {
    let groups: Vec<String> = outcomes.iter().map(|outcome| outcome.workload.clone()).collect();
    let series = |name: &str, value: &dyn Fn(&Outcome) -> Option<f64>| Series {
        name: name.into(),
        points: outcomes
            .iter()
            .enumerate()
            .filter_map(|(at, outcome)| Some((at as f64, value(outcome)?)))
            .collect(),
    };
    let mut memory = vec![series("our log, 90 % full", &|outcome| Some(outcome.ours.per_byte()))];
    for (name, _) in ALLOCATORS {
        memory.push(series(name, &|outcome| {
            let found = outcome.allocators.iter().find(|rival| rival.name == name);
            found.map(|rival| rival.held.per_byte())
        }));
    }
    let speed = [0, 1, 2].map(|at| {
        series(["70 % full", "80 % full", "90 % full"][at], &|outcome| {
            outcome.relative.get(at).map(|it| it.share_of_uncleaned)
        })
    });
    let mut panels = vec![Panel {
        title: "Memory under changing workloads".into(),
        x_label: String::new(),
        y_label: "resident bytes / live payload".into(),
        marks: Marks::Bars(groups.clone()),
        series: memory,
    }];
    if outcomes.iter().any(|outcome| !outcome.relative.is_empty()) {
        panels.push(Panel {
            title: "Our throughput with cleaning, relative to none".into(),
            x_label: String::new(),
            y_label: "relative throughput".into(),
            marks: Marks::Bars(groups),
            series: speed.to_vec(),
        });
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_never_was_full_has_no_ratio() {
        let run = |memory_bytes| {
            on_our_log(WORKLOADS[0], 4 << 20, 1.0, 0.3, None, memory_bytes).unwrap().worst_ratio
        };
        assert_eq!(run(64 << 20), None);
        assert!(run(10 << 20).is_some_and(|ratio| ratio > 1.0));
    }
}
