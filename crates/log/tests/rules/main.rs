//! The rules on which a user of the log can rely, one test each. Each file beside this one has one
//! topic. The helpers that they share are here.

mod cleaners;
mod completions;
mod damage;
mod durability;
mod full_memory;
mod limits;
mod replays;
mod tablets;
mod values;
mod versions;

use std::collections::BTreeMap;
use thunderhead_log::{
    Cleaner, Cursor, Error, Log, LogId, Memory, NoReplication, Options, Recorder, Replay,
    Replicator, Report, SegmentId, Step, TableId, TabletRange,
};

const TABLE: TableId = TableId(1);

/// Options with small segments.
fn options() -> Options {
    Options { segment_bytes: 16 << 10, ..Options::default() }
}

/// A replicator for a log whose replicas the test does not read.
fn nothing() -> Box<NoReplication> {
    Box::default()
}

/// A log without a tablet, in a new memory with small seglets.
fn log_of(id: u64, bytes: usize, options: Options, replicator: Box<dyn Replicator>) -> Log {
    let memory = Memory::with_seglets(bytes, 1024).unwrap();
    Log::new(&memory, LogId(id), options, replicator).unwrap()
}

/// Creates the table in a log.
fn with_table(mut log: Log) -> Log {
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    log
}

/// A log with the table, in a memory of any size.
fn log_in(bytes: usize, options: Options, replicator: Box<dyn Replicator>) -> Log {
    with_table(log_of(1, bytes, options, replicator))
}

/// A log with the table, in a memory of 1 MiB.
fn log_with_table(id: u64, replicator: Box<dyn Replicator>) -> Log {
    with_table(log_of(id, 1 << 20, options(), replicator))
}

/// The usual log with the table.
fn log() -> Log {
    log_with_table(1, nothing())
}

/// The bytes of all replicas, in the order of their segments.
fn segments(recorder: &Recorder) -> Vec<Vec<u8>> {
    recorder.replicas(recorder.events()).into_values().map(|replica| replica.bytes).collect()
}

/// The keys and values that a scan of a range finds.
fn keys(log: &Log, range: TabletRange) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut found, mut cursor) = (BTreeMap::new(), Some(Cursor::default()));
    while let Some(at) = cursor {
        cursor = log
            .scan(range, at, |it| drop(found.insert(it.key().to_vec(), it.value().to_vec())))
            .unwrap();
    }
    found
}

/// Replays segments into a new log. Entries of the table count from the segment `since` on.
fn replay(segments: &[Vec<u8>], since: SegmentId) -> (Log, Report) {
    let mut log = log_of(4, 2 << 20, options(), nothing());
    let mut replay = Replay::new(&mut log, [(TabletRange::whole(TABLE), since)]).unwrap();
    for segment in segments {
        replay.segment(segment).unwrap();
    }
    let report = replay.finish().unwrap();
    (log, report)
}

/// Lets the cleaner work until it is idle; more steps than ever needed are a livelock.
fn clean(cleaner: &mut Cleaner, log: &mut Log) {
    let (mut idle, mut steps) = (0, 0);
    while idle < 4 {
        let step = cleaner.step();
        idle = if step == Step::Idle { idle + 1 } else { 0 };
        log.turn();
        steps += 1;
        assert!(steps < 10_000, "the cleaner never stops: {:?}", log.usage());
    }
}

/// Tries until the cleaner has made room.
fn patiently<T>(
    log: &mut Log,
    cleaner: &mut Cleaner,
    mut operation: impl FnMut(&mut Log) -> Result<T, Error>,
) -> Result<T, Error> {
    for _ in 0..100 {
        match operation(log) {
            Err(Error::CleanerBehind) => clean(cleaner, log),
            other => return other,
        }
    }
    panic!("the cleaner is stuck: {:?}", log.usage());
}

/// Steps the cleaner and tries again, and does nothing else: it takes no turn.
fn stubbornly<T>(
    log: &mut Log,
    cleaner: &mut Cleaner,
    mut work: impl FnMut(&mut Log) -> Result<T, Error>,
) -> Result<T, Error> {
    for _ in 0..10_000 {
        match work(log) {
            Err(error) if error.is_transient() => drop(cleaner.step()),
            other => return other,
        }
    }
    panic!("trying again never helps: {:?}", log.usage());
}
