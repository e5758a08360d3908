//! A cold start: all processes of a cluster are killed at once and restarted. The time until
//! everything is readable is compared with the time in which the disk reads as many bytes
//! sequentially, past the page cache.

use crate::product;
use crate::requirements::Rows;
use anyhow::{Context as _, Result, anyhow};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thunderhead_backup::block::Block;
use thunderhead_load::crash::members::{Cluster, Cores, Setup, View};
use thunderhead_load::crash::objects::Objects;
use thunderhead_load::crash::users::to_probe;
use thunderhead_load::crash::{Quiet, users};
use thunderhead_load::machine::seconds;
use thunderhead_load::output::progress;
use thunderhead_log::Memory;
use thunderhead_runtime::files::{Files, Opening};
use thunderhead_runtime::os::Directory;
use thunderhead_wire::Generation;
use zerocopy::IntoBytes;

const SERVERS: u32 = 5;
const REPLICAS: u32 = 2;
const VALUE_BYTES: usize = 1000;

/// The share of the disk's speed that a cold start must reach.
const SHARE: f64 = 0.5;

/// Bytes per read: the size of a segment.
const CHUNK_BYTES: usize = 8 << 20;

/// The time that a cold start may take in addition for each GB.
const PATIENCE_A_GB: Duration = Duration::from_secs(30);

/// The options of the run.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The number of objects of 1000 B.
    #[arg(long, default_value_t = 4_000_000)]
    objects: u64,
    /// Seconds for the start, and 30 more for each GB.
    #[arg(long, default_value_t = 30)]
    patience: u64,
    /// Do not touch the machine's memory after the kill. The host may have reclaimed unused memory
    /// by then, and the result then depends on how fast it returns it.
    #[arg(long)]
    untouched: bool,
    /// The directory for the processes' files, which is kept; by default they are removed.
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// Measures a cold start only.
///
/// # Errors
/// When it cannot be measured, or falls short.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let program = product::program()?;
    let mut rows = Rows::default();
    let patience = Duration::from_secs(arguments.patience);
    let Arguments { objects, untouched, .. } = arguments;
    let directory = arguments.directory.clone();
    measure(&program, *objects, patience, directory, !untouched, &mut rows)?;
    match rows.show(false)? {
        true => Ok(()),
        false => Err(anyhow!("the result falls short of the requirement")),
    }
}

/// Returns the bytes a second that the disk reads, past the page cache.
fn disk_floor(directory: &Path, bytes: u64) -> Result<f64> {
    let mut files = Directory::open(directory)?;
    let how = Opening { create: true, direct: true, ..Opening::default() };
    let file = files.open_with("floor", how)?;
    let mut chunk = Block::vec(CHUNK_BYTES);
    for (at, byte) in chunk.as_mut_bytes().iter_mut().enumerate() {
        *byte = ((at * 31) ^ (at >> 11)) as u8;
    }
    let chunks = bytes.div_ceil(CHUNK_BYTES as u64).max(1);
    for number in 0..chunks {
        files.write_at(file, number * CHUNK_BYTES as u64, chunk.as_bytes())?;
    }
    files.sync(file)?;
    let (took, read) = seconds(|| {
        (0..chunks).try_for_each(|number| {
            let offset = number * CHUNK_BYTES as u64;
            files.read_at(file, offset, chunk.as_mut_bytes()).map(|_| ())
        })
    });
    read.context("read the disk")?;
    std::fs::remove_file(directory.join("floor"))?;
    Ok((chunks * CHUNK_BYTES as u64) as f64 / took)
}

/// Waits until everything is readable; returns false if that takes too long.
fn readable(view: View, objects: &Objects, patience: Duration) -> Result<bool> {
    let status = view.client(patience)?.status()?;
    let tablets: Vec<_> = status.map.tables.iter().flat_map(|it| &it.tablets).copied().collect();
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let until = Instant::now() + patience;
        let probe =
            |numbers: Vec<u64>| scope.spawn(move || users::probe(view, objects, &numbers, stop));
        let probes: Vec<_> = to_probe(objects, &tablets).into_iter().map(probe).collect();
        while !probes.iter().all(|it| it.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        stop.store(true, Ordering::Relaxed);
        let joined = probes.into_iter().map(|it| it.join().map_err(|_| anyhow!("a panic")));
        let probed = joined.collect::<Result<Vec<_>>>()?;
        Ok(probed.iter().all(|it| it.all))
    })
}

/// Measures a cold start.
pub(super) fn row(program: &Path, objects: u64, patience: Duration, rows: &mut Rows) -> Result<()> {
    measure(program, objects, patience, None, true, rows)
}

/// Touches this much memory and frees it, so that the host has given it to the virtual machine, as
/// a physical machine always has it. Returns the seconds.
fn touch(bytes: u64) -> Result<f64> {
    let memory = Memory::new(usize::try_from(bytes)?).context("map memory")?;
    Ok(seconds(|| memory.populate(&mut |_| true)).0)
}

fn measure(
    program: &Path,
    objects: u64,
    patience: Duration,
    directory: Option<PathBuf>,
    touches: bool,
    rows: &mut Rows,
) -> Result<()> {
    let bytes = objects * VALUE_BYTES as u64;
    let share = bytes / u64::from(SERVERS);
    let setup = Setup {
        program: program.to_owned(),
        keep: directory.is_some(),
        directory,
        servers: SERVERS,
        replicas: REPLICAS,
        memory_bytes: share * 2 + (256 << 20),
        // The logs of two generations, and some room.
        disk_bytes: share * u64::from(2 * REPLICAS) * 11 / 10 + (512 << 20),
        cores: Cores::Any,
        polling: "never",
        coordinator: Vec::new(),
        server: Vec::new(),
    };
    let mut cluster = Cluster::start(&setup)?;
    let table = cluster.client(patience)?.create_table("cold", SERVERS)?;
    let objects = Objects::new(table, objects, VALUE_BYTES);
    objects.load(cluster.view(), &Quiet)?;
    progress(&format!("{} MB are written; all processes are killed", bytes / 1_000_000));
    cluster.kill_all();
    let floor = disk_floor(&cluster.directory(), bytes.min(2 << 30))?;
    progress(&format!("the disk reads {:.0} MB/s", floor / 1e6));
    if touches {
        let touched = bytes + bytes / 2;
        let took = touch(touched)?;
        let again = touch(touched)?;
        progress(&format!(
            "{} MB of memory were touched in {took:.1} s, and once more in {again:.1} s",
            touched / 1_000_000
        ));
    }
    let patience = patience + PATIENCE_A_GB * u32::try_from(bytes >> 30).unwrap_or(0);
    let began = Instant::now();
    cluster.start_coordinator()?;
    (0..SERVERS).try_for_each(|server| cluster.start_server(server))?;
    cluster.wait_up(Generation(1))?;
    let up = began.elapsed().as_secs_f64();
    let came_back = readable(cluster.view(), &objects, patience)?;
    let took = began.elapsed().as_secs_f64();
    let what = format!(
        "cold start of {} MB, R = {REPLICAS}: {took:.1} s (servers up after {up:.1} s), against the \
         disk's {:.0} MB/s",
        bytes / 1_000_000,
        floor / 1e6
    );
    if !came_back {
        rows.add(&what, format!("≥ {SHARE} ×"), format!("not within {patience:?}"), false);
        return Ok(());
    }
    rows.at_least(&what, SHARE, bytes as f64 / took / floor, "×");
    let found = objects.check(cluster.view(), &Quiet)?;
    let what = format!("  lost or wrong of {} objects", found.checked);
    rows.at_most(&what, 0.0, (found.lost + found.wrong) as f64, "");
    Ok(())
}
