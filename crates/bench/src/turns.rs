//! The length of a shard's turns while it does long work beside its requests: `thunderhead-bench
//! turns`.
//!
//! No slice may hold a turn for long, or requests wait (invariant 9). Three servers in this
//! process, each with one shard and one backup, keep a table at some utilization, and a client
//! overwrites it in messages with many objects. The turns of all shards are measured in three
//! scenes: cleaners work; the table moves to another server; its server crashes and the others
//! rebuild the table.
//!
//! The servers, their disks and cleaners and the client share the processors of this machine. So
//! the target is for the processor time of a turn; the elapsed time is shown beside it.
//!
//! On a virtual machine, time that the host takes away counts as processor time, and a neighbour
//! slows a processor down. The first row shows how much: as many threads as shards, with turns that
//! always count to the same number and take about as long as a slice.
//!
//! The host of a virtual machine may also take back memory that the machine has freed. The next
//! program that touches such a page waits until the host supplies it, often for 300 to 500 us. The
//! scenes do not measure these waits: before each, the benchmark has the host supply free memory
//! (`SuppliedMemory`).

use crate::operations::target::Own;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thunderhead_client::{Client, Options as ClientOptions};
use thunderhead_load::machine::{cores, ensure_memory, pinned};
use thunderhead_load::output::show;
use thunderhead_load::table::Table;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::os::{Turns, run as run_process, watch_turns};
use thunderhead_runtime::polling::Polling;
use thunderhead_runtime::slice::SLICE;
use thunderhead_runtime::{Process, Time};
use thunderhead_server::{BackupOptions, Ended, LocalCluster, LocalOptions, Probing};
use thunderhead_wire::control::{Settings, TabletInfo};
use thunderhead_wire::{KeyHash, MasterId, TableId};

/// The target: the longest turn among this share of the turns.
const TARGET: Duration = Duration::from_micros(200);
const SHARE: f64 = 0.9999;

const SERVERS: u32 = 3;
const SEGMENT_BYTES: u32 = 8 << 20;
const BUFFERS: u32 = 24;
const FRAMES_SPARE: u64 = 48;
const VALUE_BYTES: usize = 100;
const OBJECTS_OF_A_MESSAGE: u64 = 64;

/// The turns of each thread that only counts.
const COUNTED_TURNS: u64 = 20_000;

/// The file system that keeps files in memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// The longest time of each step.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(10);

/// The options of the benchmark.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The number of objects in the table, of 100 bytes each.
    #[arg(long, default_value_t = 1_000_000)]
    pub objects: u64,
    /// The utilization of the memory of the table's server, in percent.
    #[arg(long, default_value_t = 90)]
    pub utilization: u32,
    /// The seconds of overwriting while cleaners work.
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// The directory for the servers' files, which are removed at the end. If it is not given: the
    /// directory for temporary files.
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Print JSON, for programs.
    #[arg(long)]
    pub json: bool,
}

/// The results of a scene.
#[derive(Debug, Serialize)]
struct Scene {
    name: &'static str,
    seconds: f64,
    turns: u64,
    updates: u64,
    processor_us: [f64; 4],
    elapsed_us: [f64; 4],
    /// `None` where nothing is to be met.
    met: Option<bool>,
}

const SHARES: [f64; 3] = [0.5, 0.99, SHARE];

impl Scene {
    fn of(name: &'static str, took: Duration, updates: u64, turns: &Turns) -> Scene {
        let micros = |it: Duration| it.as_secs_f64() * 1e6;
        let figures = |lengths: &thunderhead_runtime::os::LengthHistogram| {
            let [half, most, nearly_all] = SHARES.map(|share| micros(lengths.quantile(share)));
            [half, most, nearly_all, micros(lengths.longest())]
        };
        Scene {
            name,
            seconds: took.as_secs_f64(),
            turns: turns.processor.count(),
            updates,
            processor_us: figures(&turns.processor),
            elapsed_us: figures(&turns.elapsed),
            met: Some(turns.processor.quantile(SHARE) <= TARGET),
        }
    }
}

/// A directory that goes with all that is in it.
struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process whose turns always count to the same number.
struct Counting {
    steps: u64,
}

impl Counting {
    /// Returns a process with turns of the length of a slice, as the fastest of some tries takes.
    fn new() -> Counting {
        const TRIED: u64 = 10_000;
        let one = |_| {
            let began = Instant::now();
            count_to(TRIED);
            began.elapsed()
        };
        let fastest = (0..100).map(one).min().unwrap_or(SLICE).as_nanos().max(1) as u64;
        Counting { steps: TRIED * SLICE.as_nanos() as u64 / fastest }
    }
}

fn count_to(steps: u64) {
    (0..steps).for_each(|step| {
        std::hint::black_box(step);
    });
}

impl Process for Counting {
    fn turn(&mut self, _now: Time) -> bool {
        count_to(self.steps);
        true
    }

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn sleep(&mut self, _at_most: Option<Duration>) {}
}

/// Measures turns that only count.
fn floor(turns: &Turns) -> Result<Scene> {
    let began = Instant::now();
    turns.reset();
    let work = || {
        let (mut process, mut left) = (Counting::new(), COUNTED_TURNS);
        run_process(&mut process, &Clock::os(), Polling::Never, || {
            left = left.saturating_sub(1);
            left == 0
        });
    };
    let start =
        |number| std::thread::Builder::new().name(format!("shard-floor-{number}")).spawn(work);
    let threads = (0..SERVERS).map(start).collect::<std::io::Result<Vec<_>>>()?;
    for thread in threads {
        thread.join().map_err(|_| anyhow!("a thread that counts failed"))?;
    }
    Ok(Scene { met: None, ..Scene::of("counting", began.elapsed(), 0, turns) })
}

/// Free memory that the host has supplied, and does not take back.
///
/// Linux offers the host free memory in blocks of 2 MiB, some seconds after it was freed. Here one
/// page of each 256 KiB stays in use, so that hardly any block of 2 MiB is free as a whole. The
/// kernel hands out small blocks first. Page tables come from other blocks of memory:
/// `supply_page_tables` has the host supply some of those.
///
/// Linux keeps freed pages for the core that freed them, up to about 1 GiB. So each core supplies
/// itself ([`SuppliedMemory::of_all_cores`]).
struct SuppliedMemory {
    base: *mut std::ffi::c_void,
}

/// Maps memory.
fn map(bytes: usize, more: MapFlags) -> Result<*mut std::ffi::c_void> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | more);
    // SAFETY: a new private mapping at an address of the kernel's choice affects no other memory.
    // The size of its pages does not change its contents.
    unsafe {
        let base = mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags);
        let base = base.context("map memory")?;
        // A kernel without large pages does not know this.
        let _ = madvise(base, bytes, Advice::LinuxNoHugepage);
        Ok(base)
    }
}

/// Has the kernel use pages for tables of addresses, and frees them: one for each 2 MiB of a
/// mapping in which a page is touched.
fn supply_page_tables() -> Result<()> {
    const BYTES: usize = 8 << 30;
    const BYTES_OF_A_TABLE: usize = 2 << 20;
    let base = map(BYTES, MapFlags::NORESERVE)?;
    for page in (0..BYTES).step_by(BYTES_OF_A_TABLE) {
        // SAFETY: within the mapping, which is ours alone.
        unsafe { base.cast::<u8>().add(page).write_volatile(1) };
    }
    // SAFETY: nothing refers to the mapping.
    unsafe { munmap(base, BYTES) }.context("free memory")
}

impl SuppliedMemory {
    /// The memory of a core.
    const BYTES: usize = 1 << 30;
    /// On a machine with more cores, the others are not supplied.
    const CORES_MAX: usize = 4;
    const PAGE_BYTES: usize = 4 << 10;
    const BLOCK_BYTES: usize = 256 << 10;

    fn of_all_cores() -> Result<Vec<SuppliedMemory>> {
        let cores = cores().min(SuppliedMemory::CORES_MAX);
        ensure_memory((cores * SuppliedMemory::BYTES) as u64, "--objects")?;
        (0..cores).map(|core| pinned(core, SuppliedMemory::new)).collect()
    }

    fn new() -> Result<SuppliedMemory> {
        supply_page_tables()?;
        let memory = SuppliedMemory { base: map(SuppliedMemory::BYTES, MapFlags::empty())? };
        for page in (0..SuppliedMemory::BYTES).step_by(SuppliedMemory::PAGE_BYTES) {
            // SAFETY: within the mapping, which is ours alone.
            unsafe { memory.base.cast::<u8>().add(page).write_volatile(1) };
        }
        for block in (0..SuppliedMemory::BYTES).step_by(SuppliedMemory::BLOCK_BYTES) {
            let bytes = SuppliedMemory::BLOCK_BYTES - SuppliedMemory::PAGE_BYTES;
            // SAFETY: within the mapping, and nothing reads the bytes.
            unsafe { madvise(memory.base.byte_add(block), bytes, Advice::LinuxDontNeed) }
                .context("free memory")?;
        }
        Ok(memory)
    }
}

impl Drop for SuppliedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nothing refers to it any more.
        let _ = unsafe { munmap(self.base, SuppliedMemory::BYTES) };
    }
}

/// A client that overwrites objects until it is told to stop.
struct Writer {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: JoinHandle<Result<()>>,
}

impl Writer {
    fn start(coordinator: SocketAddr, table: TableId, objects: u64) -> Result<Writer> {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stops, counts) = (Arc::clone(&stop), Arc::clone(&done));
        let work = move || {
            let mut client = connect(coordinator)?;
            let mut state = 1u64;
            while !stops.load(Ordering::Relaxed) {
                let keys = (0..OBJECTS_OF_A_MESSAGE).map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 33) % objects
                });
                write(&mut client, table, keys)?;
                counts.fetch_add(OBJECTS_OF_A_MESSAGE, Ordering::Relaxed);
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().name("writer".to_owned()).spawn(work)?;
        Ok(Writer { stop, done, thread })
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the writer failed"))?
    }
}

fn connect(coordinator: SocketAddr) -> Result<Client> {
    let options = ClientOptions::new([coordinator]).deadline(Some(PATIENCE));
    Client::connect(&options).context("reach the coordinator")
}

fn write(client: &mut Client, table: TableId, keys: impl Iterator<Item = u64>) -> Result<()> {
    let objects = keys.map(|key| (key.to_be_bytes(), vec![key as u8; VALUE_BYTES]));
    for written in client.put_many(table, objects) {
        written.context("write")?;
    }
    Ok(())
}

/// The only tablet of the table, once it is served by a master that fits.
fn tablet(client: &mut Client, fits: impl Fn(MasterId) -> bool) -> Result<TabletInfo> {
    let end = Instant::now() + PATIENCE;
    loop {
        let map = client.map().context("ask where the table is")?;
        let tablet = map.tables.first().and_then(|it| it.tablets.first()).cloned();
        match tablet.filter(|it| it.address.is_some() && fits(it.master)) {
            Some(tablet) => return Ok(tablet),
            None if Instant::now() >= end => bail!("no server serves the table after {PATIENCE:?}"),
            None => std::thread::sleep(LOOK),
        }
    }
}

fn options(arguments: &Arguments, directory: PathBuf, buffers: PathBuf) -> LocalOptions {
    let utilization = f64::from(arguments.utilization) / 100.0;
    let memory = Own::holding(arguments.objects, VALUE_BYTES, utilization).memory_bytes();
    let memory = memory.max(16 * u64::from(SEGMENT_BYTES));
    let disk = memory * 4 + FRAMES_SPARE * u64::from(SEGMENT_BYTES);
    LocalOptions {
        servers: SERVERS,
        memory_bytes: memory as usize,
        populate: true,
        backup: Some(BackupOptions {
            buffers: Some(BUFFERS),
            disk_bytes: Some(disk),
            buffer_directory: Some(buffers),
            ..BackupOptions::default()
        }),
        settings: Settings {
            replicas: 1,
            segment_bytes: SEGMENT_BYTES,
            self_backup: false,
            ..LocalOptions::small(directory.clone()).settings
        },
        // A busy machine makes healthy servers late, and this benchmark does not measure that.
        probing: Probing { timeout: Duration::from_secs(1), ..Probing::default() },
        polling: Polling::Never,
        ..LocalOptions::small(directory)
    }
}

fn measure(arguments: &Arguments, local: &LocalCluster, turns: &Turns) -> Result<Vec<Scene>> {
    let coordinator = local.coordinator();
    let mut client = connect(coordinator)?;
    let end = Instant::now() + PATIENCE;
    while local.servers().iter().any(|it| it.generation().identity().is_none()) {
        ensure!(Instant::now() < end, "the servers did not come up within {PATIENCE:?}");
        std::thread::sleep(LOOK);
    }
    let table = client.create_table("turns", 1).context("make the table")?;
    let first = tablet(&mut client, |_| true)?;
    for from in (0..arguments.objects).step_by(OBJECTS_OF_A_MESSAGE as usize) {
        let to = (from + OBJECTS_OF_A_MESSAGE).min(arguments.objects);
        write(&mut client, table, from..to)?;
    }
    let writer = Writer::start(coordinator, table, arguments.objects)?;
    let mut scenes = Vec::new();
    let mut scene = |name, act: &mut dyn FnMut() -> Result<()>| -> Result<()> {
        let _supplied = SuppliedMemory::of_all_cores()?;
        let (began, before) = (Instant::now(), writer.done());
        turns.reset();
        act().context(name)?;
        scenes.push(Scene::of(name, began.elapsed(), writer.done() - before, turns));
        Ok(())
    };
    scene("cleaning", &mut || {
        std::thread::sleep(Duration::from_secs(arguments.seconds));
        Ok(())
    })?;
    let masters = client.status()?.servers.servers;
    let masters = masters.iter().flat_map(|it| &it.shards).map(|it| it.master);
    let to =
        masters.into_iter().find(|it| *it != first.master).context("there is no other master")?;
    scene("migration", &mut || {
        client.migrate("turns", KeyHash::MIN, to).context("migrate the table")?;
        tablet(&mut client, |master| master == to).map(drop)
    })?;
    let here = tablet(&mut client, |_| true)?.address;
    let of_table = local
        .servers()
        .iter()
        .find(|it| here.is_some_and(|here| it.generation().addresses().contains(&here)));
    let of_table = of_table.context("no server has the table's address")?;
    scene("recovery", &mut || {
        of_table.generation().end(Ended::Failed("it is to be recovered".to_owned()));
        tablet(&mut client, |master| master != to).map(drop)
    })?;
    writer.end()?;
    Ok(scenes)
}

fn table_of(scenes: &[Scene]) -> Table {
    let mut table = Table::new(
        "turns of shards that did something: processor time, and in brackets the time that went by",
        &[
            "while",
            "seconds",
            "turns",
            "updates",
            "50 %",
            "99 %",
            "99.99 %",
            "longest",
            "<= 200 us",
        ],
    );
    for scene in scenes {
        let figures = scene.processor_us.iter().zip(&scene.elapsed_us);
        let figures = figures.map(|(own, all)| format!("{own:.1} us ({all:.1})"));
        let mut cells = vec![
            scene.name.to_owned(),
            format!("{:.1}", scene.seconds),
            scene.turns.to_string(),
            scene.updates.to_string(),
        ];
        cells.extend(figures);
        cells.push(match scene.met {
            None => "-".to_owned(),
            Some(true) => "met".to_owned(),
            Some(false) => "missed".to_owned(),
        });
        table.row(&cells);
    }
    table
}

/// Measures, and prints the results. Returns false if a scene misses the target.
///
/// # Errors
/// If the servers cannot be started, or a step takes too long.
pub fn run(arguments: &Arguments) -> Result<bool> {
    ensure!((1..=90).contains(&arguments.utilization), "--utilization must be 1 to 90");
    let turns = watch_turns("shard-");
    let name = format!("thunderhead-turns-{}", std::process::id());
    let files = Files(arguments.data.clone().unwrap_or_else(std::env::temp_dir).join(&name));
    // The buffers of a server that crashed stay, so they need a directory that goes.
    let buffers = Files(Path::new(SHARED_MEMORY).join(&name));
    for directory in [&files.0, &buffers.0] {
        std::fs::create_dir_all(directory).context("make a directory for the servers")?;
    }
    let mut scenes = vec![floor(turns)?];
    let options = options(arguments, files.0.clone(), buffers.0.clone());
    let local = LocalCluster::start(&options).context("start the servers")?;
    let measured = measure(arguments, &local, turns);
    local.leave();
    let _ = local.join();
    scenes.extend(measured?);
    show(arguments.json, &table_of(&scenes), &scenes)?;
    Ok(scenes.iter().all(|scene| scene.met != Some(false)))
}
