//! The speed of a replay of a log's segments, and of cutting them into partitions before: on one
//! core, without a cleaner.

use super::subject::{self, TABLE};
use anyhow::{Result, anyhow};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use thunderhead_load::content::key;
use thunderhead_load::machine::{self, median, seconds};
use thunderhead_load::output::show;
use thunderhead_load::table::Table;
use thunderhead_log::filter::{Filter, Partitions};
use thunderhead_log::{
    Damage, KeyHash, Log, LogId, Memory, NoReplication, Options, Rebuild, Recorder, ReplayError,
    Replica, SegmentId, TableId, TabletRange,
};

/// The options of the run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Sizes of values, in bytes.
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000")]
    sizes: Vec<usize>,
    /// Bytes to replay for each size, at least 256 objects. It needs three to four times as much
    /// memory: 1.9 GB for the default.
    #[arg(long, default_value_t = 512 << 20)]
    bytes: u64,
    /// Show the phases of a replay and their times, instead of its speed.
    #[arg(long)]
    timeline: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Returns a server's options.
fn options() -> Options {
    Options::default()
}

/// The results for one size.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Objects a second.
    pub objects_per_second: f64,
    /// Gigabytes a second.
    pub gigabytes_per_second: f64,
    /// Objects a second cut into partitions.
    pub cut_objects_per_second: f64,
    /// Gigabytes a second cut into partitions.
    pub cut_gigabytes_per_second: f64,
    /// Processor time as a share of the time taken: below 1 if other processes interfered.
    pub processor_share: f64,
}

/// The number of partitions, and the number of tablets in all of them.
const PARTITIONS: usize = 10;
const TABLETS: u64 = 1000;

/// Cuts segments as a backup does, in small steps; returns the time taken.
fn cut(segments: &BTreeMap<SegmentId, Replica>) -> Result<f64> {
    let width = u64::MAX / TABLETS;
    let mut tablets = vec![Vec::new(); PARTITIONS];
    for number in 0..TABLETS {
        let last = if number + 1 == TABLETS { u64::MAX } else { (number + 1) * width - 1 };
        let (first, last) = (KeyHash(number * width), KeyHash(last));
        let range = TabletRange { table: TABLE, first, last };
        tablets[number as usize % PARTITIONS].push((range, SegmentId::NONE));
    }
    let partitions = Partitions::new(&tablets).ok_or_else(|| anyhow!("the tablets overlap"))?;
    // As many as a backup keeps, so that memory is not reused at once.
    let mut kept = VecDeque::new();
    let (took, result) = seconds(|| {
        for (segment, replica) in segments {
            let mut filter = Filter::new(*segment, &partitions, None);
            while filter.step(&partitions, &replica.bytes, 32, 16 << 10)?.more {}
            kept.push_back(filter.finish());
            if kept.len() > 8 {
                kept.pop_front();
            }
        }
        Ok::<(), Damage>(())
    });
    result?;
    Ok(took)
}

/// Returns the memory of a log with this many bytes of objects, including its index.
fn log_memory_bytes(value_bytes: usize, bytes: u64) -> u64 {
    let objects = bytes / super::subject::entry_bytes(value_bytes);
    bytes + bytes / 4 + objects * 13 + (64 << 20)
}

/// The way of replaying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Segment after segment, without other work.
    AtOnce,
    /// In slices, with a turn of the log between them.
    InSlices,
}

/// Entries and bytes of a slice: twice those of a step of a recovery master.
const SLICE: (usize, usize) = (64, 32 << 10);

/// Returns the segments of a log with this many objects of one size.
fn recorded(
    value_bytes: usize,
    objects: u64,
    memory_bytes: usize,
) -> Result<BTreeMap<SegmentId, Replica>> {
    let recorder = Recorder::new();
    let memory = Memory::new(memory_bytes)?;
    let replicator = Box::new(recorder.clone());
    let mut log = Log::new(&memory, LogId(1), options(), replicator)?;
    log.create_tablet(TabletRange::whole(TABLE))?;
    let value = vec![7; value_bytes];
    for number in 0..objects {
        log.write(TABLE, &key(number), &value)?;
    }
    log.turn();
    drop(log);
    recorder.into_replicas().ok_or_else(|| anyhow!("the recorder is shared"))
}

/// Returns an empty log whose memory is populated.
fn fresh(memory_bytes: usize) -> Result<Log> {
    let memory = Memory::new(memory_bytes)?;
    memory.populate(&mut |_| true);
    Ok(Log::new(&memory, LogId(2), options(), Box::new(NoReplication::default()))?)
}

/// Makes room in the index according to the log's statistics, as a recovery master does.
fn make_room(rebuild: &Rebuild, log: &mut Log, objects: u64) {
    while rebuild.make_room(log, TabletRange::whole(TABLE), objects) {
        log.turn();
    }
}

fn replay(
    rebuild: &mut Rebuild,
    log: &mut Log,
    segments: &BTreeMap<SegmentId, Replica>,
    way: Way,
) -> Result<(), ReplayError> {
    let (entries, bytes) = match way {
        Way::AtOnce => (usize::MAX, usize::MAX),
        Way::InSlices => SLICE,
    };
    segments.values().try_for_each(|replica| {
        let mut at = Some(0);
        while let Some(from) = at {
            at = rebuild.step(log, &replica.bytes, from, entries, bytes)?;
            if way == Way::InSlices {
                log.turn();
            }
        }
        Ok(())
    })
}

/// The phases of a replay in slices, found by differences: nanoseconds for each object.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Timeline {
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Entries are read and verified, and their keys hashed: a replay of tablets to which no entry
    /// belongs.
    pub reading: f64,
    /// Keys are found: a replay of the same entries again, which are all there.
    pub finding: f64,
    /// Objects are appended and put into the index: the remainder. A lookup of an absent key
    /// is faster than of a present key.
    pub appending: f64,
    /// Room is made in the index beforehand.
    pub room: f64,
    /// The whole replay.
    pub whole: f64,
}

/// Measures a timeline; medians of three runs.
///
/// # Errors
/// When a log cannot be made, or the replay fails.
pub fn timeline(value_bytes: usize, bytes: u64) -> Result<Timeline> {
    let objects = bytes / super::subject::entry_bytes(value_bytes);
    let memory_bytes = log_memory_bytes(value_bytes, bytes) as usize;
    let segments = recorded(value_bytes, objects, memory_bytes)?;
    machine::pin(0);
    let mut turns = Vec::new();
    for _ in 0..3 {
        let mut log = fresh(memory_bytes)?;
        let other = TabletRange::whole(TableId(TABLE.0 + 1));
        let mut rebuild = Rebuild::begin(&mut log, [(other, SegmentId::NONE)])?;
        let (reading, result) =
            seconds(|| replay(&mut rebuild, &mut log, &segments, Way::InSlices));
        result?;
        rebuild.finish(&mut log)?;
        let whole = TabletRange::whole(TABLE);
        let mut rebuild = Rebuild::begin(&mut log, [(whole, SegmentId::NONE)])?;
        let (room, ()) = seconds(|| make_room(&rebuild, &mut log, objects));
        let (taking, result) = seconds(|| replay(&mut rebuild, &mut log, &segments, Way::InSlices));
        result?;
        let (again, result) = seconds(|| replay(&mut rebuild, &mut log, &segments, Way::InSlices));
        result?;
        assert_eq!(rebuild.finish(&mut log)?.taken, objects, "every object is replayed once");
        turns.push([reading, room, taking, again]);
    }
    let each = |at: usize| median(turns.iter().map(|it| it[at] * 1e9 / objects as f64).collect());
    let [reading, room, taking, again] = [0, 1, 2, 3].map(each);
    Ok(Timeline {
        value_bytes,
        reading,
        finding: again - reading,
        appending: taking - again,
        room,
        whole: room + taking,
    })
}

/// Replays objects of one size; the median of three runs.
///
/// # Errors
/// When a log cannot be made, or the replay fails.
pub fn measure(value_bytes: usize, bytes: u64, way: Way) -> Result<Figures> {
    let objects = bytes / super::subject::entry_bytes(value_bytes);
    let memory_bytes = log_memory_bytes(value_bytes, bytes) as usize;
    let segments = recorded(value_bytes, objects, memory_bytes)?;
    machine::pin(0);
    let (mut times, mut cuts, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        cuts.push(cut(&segments)?);
        let mut log = fresh(memory_bytes)?;
        let whole = TabletRange::whole(TABLE);
        let mut rebuild = Rebuild::begin(&mut log, [(whole, SegmentId::NONE)])?;
        let before = machine::thread_time();
        let (took, result) = seconds(|| {
            make_room(&rebuild, &mut log, objects);
            replay(&mut rebuild, &mut log, &segments, way)
        });
        shares.push((machine::thread_time() - before).as_secs_f64() / took);
        result?;
        assert_eq!(rebuild.finish(&mut log)?.taken, objects, "every object is replayed");
        times.push(took);
    }
    let (took, cut) = (median(times), median(cuts));
    let gigabytes = (objects * super::subject::entry_bytes(value_bytes)) as f64 / 1e9;
    Ok(Figures {
        value_bytes,
        objects_per_second: objects as f64 / took,
        gigabytes_per_second: gigabytes / took,
        cut_objects_per_second: objects as f64 / cut,
        cut_gigabytes_per_second: gigabytes / cut,
        processor_share: median(shares),
    })
}

impl Arguments {
    /// Refuses invalid options before any measurement.
    fn check(&self) -> Result<()> {
        self.sizes
            .iter()
            .try_for_each(|size| subject::check_size(*size, self.bytes, &options(), "--bytes"))
    }

    fn memory_bytes(&self) -> u64 {
        // A log beside the recording, whose pieces are assembled in buffers that double.
        let needed = |size: &usize| log_memory_bytes(*size, self.bytes) + 2 * self.bytes;
        self.sizes.iter().map(needed).max().unwrap_or(0)
    }
}

/// Runs the experiment and prints it.
///
/// # Errors
/// When it cannot be run.
pub fn run(arguments: &Arguments) -> Result<()> {
    arguments.check()?;
    machine::ensure_memory(arguments.memory_bytes(), "--bytes")?;
    if arguments.timeline {
        return show_timelines(arguments);
    }
    let all: Result<Vec<Figures>> =
        arguments.sizes.iter().map(|size| measure(*size, arguments.bytes, Way::AtOnce)).collect();
    let all = all?;
    let columns = ["value", "M objects/s", "GB/s", "cut: M objects/s", "cut: GB/s"];
    let mut table = Table::new("Replay and cutting, each on one core", &columns);
    for figures in &all {
        table.row(&[
            format!("{} B", figures.value_bytes),
            format!("{:.2}", figures.objects_per_second / 1e6),
            format!("{:.2}", figures.gigabytes_per_second),
            format!("{:.2}", figures.cut_objects_per_second / 1e6),
            format!("{:.2}", figures.cut_gigabytes_per_second),
        ]);
    }
    show(arguments.json, &table, &all)
}

fn show_timelines(arguments: &Arguments) -> Result<()> {
    let all = arguments.sizes.iter().map(|size| timeline(*size, arguments.bytes));
    let all: Vec<Timeline> = all.collect::<Result<_>>()?;
    let columns = [
        "value",
        "room in the index, before",
        "reading, verifying, hashing",
        "finding an existing key",
        "the rest: appending, indexing",
        "all",
    ];
    let mut table = Table::new("Replay in slices on one core: ns for each object", &columns);
    for it in &all {
        let parts = [it.room, it.reading, it.finding, it.appending, it.whole];
        let cells = parts.map(|part| format!("{part:.0}"));
        table.row(
            &std::iter::once(format!("{} B", it.value_bytes)).chain(cells).collect::<Vec<_>>(),
        );
    }
    show(arguments.json, &table, &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_timeline_add_up_to_the_whole() {
        let it = timeline(100, 4 << 20).unwrap();
        let sum = it.room + it.reading + it.finding + it.appending;
        assert!((sum - it.whole).abs() < 1e-6 * it.whole, "{it:?}");
        assert!(it.reading > 0.0 && it.room > 0.0, "each was done: {it:?}");
    }

    #[test]
    fn invalid_options_are_refused() {
        let check = |size, bytes| {
            Arguments { sizes: vec![size], bytes, timeline: false, json: false }.check()
        };
        for (size, bytes) in [(100, 0), (10_000, 1 << 20), (2 << 20, 1 << 40), (1, u64::MAX)] {
            assert!(check(size, bytes).is_err(), "{size} {bytes}");
        }
        check(100, 1 << 20).unwrap();
    }
}
