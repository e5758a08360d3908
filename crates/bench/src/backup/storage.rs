//! The cost of keeping replicas in memory that outlasts the process until they are on the disk.
//!
//! - *floor*: plain direct writes of one segment each over a file that was written before, and one
//!   sync at the end.
//! - *pool*: a store as in a server. Chunks are copied into shared memory and checksummed, and a
//!   worker writes them with direct I/O.
//! - *mapped file*: chunks are copied into a mapping of the file itself, and a second thread syncs
//!   one segment at a time. It has no headers and checksums, and all its pages are in memory
//!   beforehand, so this is its lowest possible cost.
//!
//! Two figures matter: bandwidth, and how long the copy of one chunk blocks the reactor. A write
//! into a mapped file waits for pages that are being written out, for pages that must be read
//! first, and for the kernel's limit on dirty pages.
//!
//! All three write the same bytes over the same number of frames, in turn, and end when everything
//! is durable.

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use thunderhead_backup::block::Block;
use thunderhead_backup::{Identity, Options, ReplicaId, Store};
use thunderhead_load::machine::{median, seconds};
use thunderhead_load::output::show;
use thunderhead_load::table::Table;
use thunderhead_runtime::World;
use thunderhead_runtime::files::{FileId, Files, Opening};
use thunderhead_runtime::lasting::Memories;
use thunderhead_runtime::os::{Directory, MemoryDirectory, world};
use thunderhead_wire::{ClusterId, Epoch, MasterId, SegmentId, ServerId};
use zerocopy::IntoBytes;

/// The options of the run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The directory for the measured files, on the disk to be measured. The files are removed at
    /// the end.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Segments written in each measurement.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    segments: u32,
    /// MiB of a segment.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    segment_mib: u32,
    /// KiB that a master sends at a time.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=8192))]
    chunk_kib: u32,
    /// Measurements of each kind; the medians count.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The figures of one way.
#[derive(Debug, Serialize)]
struct Figures {
    what: &'static str,
    megabytes_per_second: f64,
    /// Relative to the floor: the median over all rounds of measurements.
    share_of_floor: f64,
    /// The longest time that taking one chunk blocked the reactor; the median of all measurements.
    longest_chunk_ms: f64,
}

/// One measurement: seconds in all, and for the slowest chunk.
#[derive(Clone, Copy, Default)]
struct Took {
    all: f64,
    longest: f64,
}

/// A directory that is removed with its content at the end.
struct Scrap(PathBuf);

impl Drop for Scrap {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the experiment.
///
/// # Errors
/// When it cannot be run.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let above = arguments.directory.clone().unwrap_or_else(std::env::temp_dir);
    ensure!(above.is_dir(), "{} is no directory", above.display());
    let scrap = Scrap(above.join(format!("thunderhead-bench-backup-{}", std::process::id())));
    let mut bench = Bench::new(&scrap.0, arguments)?;
    let mut figures: [Vec<f64>; 3] = Default::default();
    let mut longest: [Vec<f64>; 3] = Default::default();
    // The first write of a file's blocks is slower, for all three ways, so it does not count.
    for round in 0..=arguments.repeats {
        let found = [bench.floor()?, bench.pool()?, bench.mapped()?];
        if round > 0 {
            for ((list, longest), took) in figures.iter_mut().zip(&mut longest).zip(found) {
                list.push(bench.megabytes() / took.all);
                longest.push(took.longest * 1e3);
            }
        }
    }
    bench.leave()?;
    let shares = figures.each_ref().map(|list| {
        median(list.iter().zip(&figures[0]).map(|(ours, floor)| ours / floor).collect())
    });
    let names = ["direct writes (floor)", "pool and direct writes", "mapped file"];
    let rows: Vec<Figures> = names
        .into_iter()
        .zip(figures)
        .zip(shares)
        .zip(longest)
        .map(|(((what, list), share_of_floor), longest)| Figures {
            what,
            megabytes_per_second: median(list),
            share_of_floor,
            longest_chunk_ms: median(longest),
        })
        .collect();
    let title = format!(
        "{} segments of {} MiB, sent {} KiB at a time, until all are durable",
        arguments.segments, arguments.segment_mib, arguments.chunk_kib
    );
    let mut table = Table::new(&title, &["way", "MB/s", "of the floor", "longest chunk, ms"]);
    for row in &rows {
        let speed = format!("{:.0}", row.megabytes_per_second);
        let share = format!("{:.2}", row.share_of_floor);
        let longest = format!("{:.2}", row.longest_chunk_ms);
        table.row(&[row.what.into(), speed, share, longest]);
    }
    show(arguments.json, &table, &rows)
}

struct Bench {
    files: Directory,
    plain: FileId,
    world: World,
    store: Store,
    mapped: MemoryDirectory,
    segment: Vec<Block>,
    chunk_bytes: usize,
    segments: u32,
    next: u64,
}

impl Bench {
    fn new(directory: &Path, arguments: &Arguments) -> Result<Bench> {
        let segment_bytes = arguments.segment_mib << 20;
        let mut files = Directory::open(directory)?;
        let how = Opening { create: true, direct: true, ..Opening::default() };
        let plain = files.open_with("floor", how)?;
        let bytes = u64::from(arguments.segments) * u64::from(segment_bytes);
        files.allocate(plain, bytes).context("make room on the disk")?;
        let mut world = world(directory)?;
        let identity = Identity { cluster: ClusterId(1), server: ServerId(1) };
        let buffers = arguments.segments.min(16);
        let options =
            Options { segment_bytes, buffers, ..Options::new(identity, arguments.segments) };
        let (store, _) = Store::start(&mut world, options)?;
        let mut mapped = MemoryDirectory::at(directory);
        mapped.make("mapped", usize::try_from(bytes)?)?;
        let mut segment = Block::vec(segment_bytes as usize);
        for (at, byte) in segment.as_mut_bytes().iter_mut().enumerate() {
            *byte = ((at * 31) ^ (at >> 11)) as u8;
        }
        let chunk_bytes = (arguments.chunk_kib as usize) << 10;
        let segments = arguments.segments;
        Ok(Bench { files, plain, world, store, mapped, segment, chunk_bytes, segments, next: 1 })
    }

    fn megabytes(&self) -> f64 {
        f64::from(self.segments) * size_of_val(self.segment.as_slice()) as f64 / 1e6
    }

    /// Measures plain direct writes.
    fn floor(&mut self) -> Result<Took> {
        let bytes = self.segment.as_bytes();
        let (took, done) = seconds(|| {
            for segment in 0..u64::from(self.segments) {
                self.files.write_at(self.plain, segment * bytes.len() as u64, bytes)?;
            }
            self.files.sync(self.plain)
        });
        done?;
        Ok(Took { all: took, longest: 0.0 })
    }

    /// Measures a store, from the first chunk until the last is durable.
    fn pool(&mut self) -> Result<Took> {
        let mut longest = 0.0;
        self.store.free_master(MasterId(1));
        self.settle();
        let (took, done) = seconds(|| {
            for _ in 0..self.segments {
                self.replicate(&mut longest)?;
            }
            self.settle();
            anyhow::Ok(())
        });
        done?;
        Ok(Took { all: took, longest })
    }

    fn replicate(&mut self, longest: &mut f64) -> Result<()> {
        let id = ReplicaId { master: MasterId(1), segment: SegmentId(self.next) };
        self.next += 1;
        while let Err(refused) = self.store.open(id, Epoch(1), false) {
            ensure!(refused.is_transient(), "{refused}");
            self.turn();
        }
        let mut at = 0;
        for chunk in self.segment.as_bytes().chunks(self.chunk_bytes) {
            let (took, appended) = seconds(|| {
                let appended = self.store.append(id, Epoch(1), at, chunk);
                self.store.turn(self.world.clock.now(), &mut |_| {});
                appended
            });
            appended?;
            at += chunk.len() as u32;
            *longest = took.max(*longest);
        }
        self.store.close(id, Epoch(1), at)?;
        Ok(())
    }

    fn turn(&mut self) {
        if !self.store.turn(self.world.clock.now(), &mut |_| {}) {
            // Sleeps as an idle reactor would, except that a reactor's alarm would wake it sooner.
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }

    fn settle(&mut self) {
        while !self.store.is_written() {
            self.turn();
        }
    }

    /// Measures copies into a mapping and syncs of its file.
    fn mapped(&mut self) -> Result<Took> {
        let memory = self.mapped.find("mapped")?.context("the mapped file is there")?;
        let bytes = self.segment.as_bytes();
        let mut files = self.files.clone();
        let (tell, told) = mpsc::channel();
        let mut longest: f64 = 0.0;
        let (took, done) = seconds(|| {
            std::thread::scope(|scope| {
                let syncs = scope.spawn(move || {
                    let file = files.open("mapped", false)?;
                    // The following sync covers all segments announced so far.
                    while let Ok(()) = told.recv() {
                        while told.try_recv().is_ok() {}
                        files.sync(file)?;
                    }
                    files.sync(file)
                });
                for segment in 0..self.segments as usize {
                    for (number, chunk) in bytes.chunks(self.chunk_bytes).enumerate() {
                        let at = segment * bytes.len() + number * self.chunk_bytes;
                        longest = seconds(|| memory.write(at, chunk)).0.max(longest);
                    }
                    let _ = tell.send(());
                }
                drop(tell);
                syncs.join().map_err(|_| std::io::Error::other("the thread panicked"))?
            })
        });
        done?;
        Ok(Took { all: took, longest })
    }

    fn leave(mut self) -> Result<()> {
        self.settle();
        self.store.leave(self.world.memories.as_mut())?;
        Ok(())
    }
}
