//! Lookups in the index beside a `hashbrown::HashTable` of references to the same entries.
//!
//! Both find the same objects in the same memory: ours through `Log::read`, the other by the
//! address of the object's bytes and a comparison of the key. Keys are drawn at random; a miss is a
//! key that was never written. The longest insert of the fill is the longest pause.

use super::subject::{OBJECTS_MIN, Plan, Subject, TABLE, options_for};
use anyhow::{Result, ensure};
use hashbrown::HashTable;
use serde::Serialize;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;
use thunderhead_load::content::{KEY_BYTES, key};
use thunderhead_load::machine::{ensure_memory, median, seconds};
use thunderhead_load::output::{progress, show};
use thunderhead_load::plot::{self, Marks, Panel, Series, save};
use thunderhead_load::table::Table;
use thunderhead_log::BATCH;
use thunderhead_runtime::Random;
use thunderhead_wire::KeyHash;

/// The options of the run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Numbers of objects, each from 100000 to 1000000000000. A million objects need 0.2 GB of
    /// memory, the default 9 GB.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1000000,5000000,10000000,20000000,50000000"
    )]
    objects: Vec<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw the figure.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// Keys from 2^40 on are never written.
const OBJECTS_MAX: u64 = 1_000_000_000_000;

/// Nanoseconds per lookup.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Lookups {
    /// For a key that exists.
    pub hit_ns: f64,
    /// For a key that does not exist.
    pub miss_ns: f64,
    /// For a key that exists, in batches.
    pub batched_hit_ns: f64,
    /// For a key that does not exist, in batches.
    pub batched_miss_ns: f64,
}

impl Lookups {
    /// Returns the four figures in order.
    #[must_use]
    pub fn list(&self) -> [f64; 4] {
        [self.hit_ns, self.miss_ns, self.batched_hit_ns, self.batched_miss_ns]
    }
}

/// The results for one number of objects.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Objects in both tables.
    pub objects: u64,
    /// The log's lookups.
    pub ours: Lookups,
    /// hashbrown's lookups.
    pub hashbrown: Lookups,
    /// The longest insert in a new table, in microseconds.
    pub longest_insert_us: f64,
    /// Index bytes for each object.
    pub index_bytes_per_object: f64,
}

fn plan(objects: u64) -> Plan {
    let live_bytes = objects * super::subject::entry_bytes(16);
    let options = options_for(live_bytes);
    Plan { value_bytes: 16, live_bytes, utilization: 0.8, options, cleaners: 1 }
}

/// Returns the most memory that a measurement takes: two logs, while inserts into the second are
/// timed. The other table comes later, and is smaller than a log.
fn memory_bytes(objects: u64) -> u64 {
    2 * plan(objects).memory_bytes()
}

/// Measures lookups among this many objects.
///
/// # Errors
/// When the log cannot be made.
pub fn measure(objects: u64) -> Result<Figures> {
    let plan = plan(objects);
    let mut subject = Subject::unreplicated(&plan)?;
    let objects = subject.objects;
    let longest_insert_us = longest_insert(objects)?;
    let log = &mut subject.log;
    let mut table: HashTable<*const u8> = HashTable::with_capacity(0);
    for number in 0..objects {
        let object = log.read(TABLE, &key(number))?.expect("it was written");
        let slice = object.key().as_slice().expect("small keys lie in one piece");
        let hash = KeyHash::of(slice).0;
        table.insert_unique(hash, slice.as_ptr(), |at| KeyHash::of(&key_at(*at)).0);
    }
    let log = &*log;
    let repeat = |work: &mut dyn FnMut(u64) -> f64| median((0..5).map(work).collect());
    let count = 1_000_000;
    let single = |seed: u64, base: u64| {
        let mut random = Random::from_seed(seed);
        let (took, hits) = seconds(|| {
            (0..count)
                .filter(|_| {
                    let key = key(base + random.below(objects));
                    black_box(log.read(TABLE, &key)).is_ok_and(|found| found.is_some())
                })
                .count()
        });
        black_box(hits);
        took * 1e9 / f64::from(count)
    };
    let batched = |seed: u64, base: u64| {
        let mut random = Random::from_seed(seed);
        let (took, ()) = seconds(|| {
            for _ in 0..count / BATCH as i32 {
                let keys: [[u8; KEY_BYTES]; BATCH] =
                    std::array::from_fn(|_| key(base + random.below(objects)));
                let keys = keys.iter().map(|key| (TABLE, &key[..]));
                log.read_batch(keys, |_, found| {
                    black_box(found.is_ok_and(|found| found.is_some()));
                });
            }
        });
        took * 1e9 / f64::from(count)
    };
    let theirs = |seed: u64, base: u64| {
        let mut random = Random::from_seed(seed);
        let (took, ()) = seconds(|| {
            for _ in 0..count {
                let key = key(base + random.below(objects));
                let hash = KeyHash::of(&key).0;
                black_box(table.find(hash, |at| key_at(*at) == key));
            }
        });
        took * 1e9 / f64::from(count)
    };
    let theirs_batched = |seed: u64, base: u64| {
        let mut random = Random::from_seed(seed);
        let (took, ()) = seconds(|| {
            for _ in 0..count / BATCH as i32 {
                let keys: [[u8; KEY_BYTES]; BATCH] =
                    std::array::from_fn(|_| key(base + random.below(objects)));
                let hashes: [u64; BATCH] = std::array::from_fn(|at| KeyHash::of(&keys[at]).0);
                for (key, hash) in keys.iter().zip(hashes) {
                    black_box(table.find(hash, |at| key_at(*at) == *key));
                }
            }
        });
        took * 1e9 / f64::from(count)
    };
    let miss = 1 << 40;
    let ours = Lookups {
        hit_ns: repeat(&mut |seed| single(seed, 0)),
        miss_ns: repeat(&mut |seed| single(seed, miss)),
        batched_hit_ns: repeat(&mut |seed| batched(seed, 0)),
        batched_miss_ns: repeat(&mut |seed| batched(seed, miss)),
    };
    let hashbrown = Lookups {
        hit_ns: repeat(&mut |seed| theirs(seed, 0)),
        miss_ns: repeat(&mut |seed| theirs(seed, miss)),
        batched_hit_ns: repeat(&mut |seed| theirs_batched(seed, 0)),
        batched_miss_ns: repeat(&mut |seed| theirs_batched(seed, miss)),
    };
    let index_bytes_per_object = log.usage().index_bytes as f64 / objects as f64;
    Ok(Figures { objects, ours, hashbrown, longest_insert_us, index_bytes_per_object })
}

/// Returns the key at an address that the table holds.
fn key_at(at: *const u8) -> [u8; KEY_BYTES] {
    // SAFETY: the addresses are those of keys of live objects. The log is not changed and its
    // cleaners have nothing to do while the table is in use.
    unsafe { at.cast::<[u8; KEY_BYTES]>().read_unaligned() }
}

/// Returns the longest of all inserts of a fill, in microseconds. It includes interrupts of the
/// machine, so the best of three fills counts.
fn longest_insert(objects: u64) -> Result<f64> {
    let fills = (0..3).map(|_| {
        let mut subject = Subject::empty(&plan(objects))?;
        let mut longest = 0.0f64;
        for number in 0..objects {
            let began = Instant::now();
            subject.write(number)?;
            longest = longest.max(began.elapsed().as_secs_f64());
        }
        Ok(longest * 1e6)
    });
    let fills: Result<Vec<f64>> = fills.collect();
    Ok(fills?.into_iter().fold(f64::INFINITY, f64::min))
}

impl Arguments {
    /// Refuses invalid options before any measurement.
    fn check(&self) -> Result<()> {
        for objects in &self.objects {
            ensure!(
                (OBJECTS_MIN..=OBJECTS_MAX).contains(objects),
                "--objects is {objects}; it must be {OBJECTS_MIN} to {OBJECTS_MAX}"
            );
        }
        Ok(())
    }
}

/// Runs the experiment and prints it.
///
/// # Errors
/// When it cannot be run.
pub fn run(arguments: &Arguments) -> Result<()> {
    arguments.check()?;
    let most = arguments.objects.iter().copied().max().unwrap_or(0);
    ensure_memory(memory_bytes(most), "--objects")?;
    plot::check(arguments.plot.as_deref())?;
    let mut all = Vec::new();
    for objects in &arguments.objects {
        progress(&format!("{objects} objects"));
        all.push(measure(*objects)?);
    }
    let mut table = Table::new(
        "Nanoseconds per lookup",
        &[
            "objects",
            "table",
            "hit",
            "miss",
            "hit in 64",
            "miss in 64",
            "longest insert µs",
            "index B",
        ],
    );
    for figures in &all {
        for (name, times) in [("ours", figures.ours), ("hashbrown", figures.hashbrown)] {
            let mut cells = vec![figures.objects.to_string(), name.to_string()];
            cells.extend(times.list().iter().map(|time| format!("{time:.0}")));
            if name == "ours" {
                cells.push(format!("{:.0}", figures.longest_insert_us));
                cells.push(format!("{:.1}", figures.index_bytes_per_object));
            }
            table.row(&cells);
        }
    }
    // Printed first, so that the results are not lost if the figure cannot be drawn.
    show(arguments.json, &table, &all)?;
    if let Some(path) = &arguments.plot {
        save(path, &panels(&all))?;
    }
    Ok(())
}

fn panels(all: &[Figures]) -> Vec<Panel> {
    let kinds = ["hit", "miss", "hit, batches of 64", "miss, batches of 64"];
    let panel = |(at, kind): (usize, &str)| {
        type Times = fn(&Figures) -> &Lookups;
        let tables: [(&str, Times); 2] =
            [("ours", |figures| &figures.ours), ("hashbrown", |figures| &figures.hashbrown)];
        Panel {
            title: format!("Lookup: {kind}"),
            x_label: "million objects".into(),
            y_label: "ns".into(),
            marks: Marks::Lines,
            series: tables
                .into_iter()
                .map(|(name, times)| Series {
                    name: name.into(),
                    points: all
                        .iter()
                        .map(|figures| (figures.objects as f64 / 1e6, times(figures).list()[at]))
                        .collect(),
                })
                .collect(),
        }
    };
    kinds.into_iter().enumerate().map(panel).collect()
}
