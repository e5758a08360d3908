//! Items that expire: against a model, with cleaning in between and a crash after any operation,
//! and a recovery on a machine whose clock is behind.

#[path = "../common/mod.rs"]
mod common;
#[path = "../digest/mod.rs"]
mod digest;
mod eviction;
mod table_limits;

use common::options;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thunderhead_log::inspect::{Entry, SegmentReader};
use thunderhead_log::{
    Attributes, Condition, Cursor, Error, Log, LogId, Memory, NoReplication, Rebuild, Recorder,
    Replay, SegmentId, TableId, TabletRange, Timestamp, Tombstones, ValueKind, Version,
};

const TABLE: TableId = TableId(7);
const SEGMENT_BYTES: usize = 8 << 10;

/// A time of day that tests set.
#[derive(Clone, Default)]
struct Watch(Arc<AtomicU64>);

impl Watch {
    fn set(&self, time: u64) {
        self.0.store(time, Ordering::Relaxed);
    }

    fn pass(&self, milliseconds: u64) {
        self.0.fetch_add(milliseconds, Ordering::Relaxed);
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }

    fn give_to(&self, log: &mut Log) {
        let watch = self.clone();
        log.keep_time_by(Box::new(move || watch.now()));
    }
}

fn log_with(memory_bytes: usize, recorder: Recorder, watch: &Watch) -> Log {
    let memory = Memory::with_seglets(memory_bytes, 1024).unwrap();
    let options = options(SEGMENT_BYTES, Tombstones::Folded, 1.0);
    let mut log = Log::new(&memory, LogId(5), options, Box::new(recorder)).unwrap();
    watch.give_to(&mut log);
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    log
}

fn expires(at: u64) -> Attributes {
    Attributes { expires: Timestamp(at), ..Attributes::NONE }
}

/// Visits the entries of all segments, in their order.
fn each_entry(recorder: &Recorder, mut visit: impl FnMut(Entry<'_>)) {
    for replica in recorder.replicas(usize::MAX).values() {
        let entries = SegmentReader::new(&replica.bytes).unwrap();
        entries.for_each(|entry| visit(entry.unwrap().1));
    }
}

fn replayed(recorder: &Recorder, events: usize, watch: &Watch) -> Log {
    let replicas = recorder.replicas(events);
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let options = options(SEGMENT_BYTES, Tombstones::Folded, 1.0);
    let mut log = Log::new(&memory, LogId(9), options, Box::<NoReplication>::default()).unwrap();
    watch.give_to(&mut log);
    let mut replay = Replay::new(&mut log, [(TabletRange::whole(TABLE), SegmentId::NONE)]).unwrap();
    for id in digest::newest(&replicas).unwrap_or_default() {
        replay.segment(&replicas[&id].bytes).unwrap();
    }
    assert_eq!(replay.finish().unwrap().damage, []);
    log
}

#[test]
fn an_item_is_there_until_its_time_and_then_it_never_was() {
    let watch = Watch::default();
    let mut log = log_with(256 << 10, Recorder::new(), &watch);
    watch.set(1000);
    let attributes = Attributes { client_flags: 77, is_stale: true, ..expires(1500) };
    let written = log.with_attributes(attributes, |log| log.write(TABLE, b"k", b"value")).unwrap();
    let object = log.read(TABLE, b"k").unwrap().unwrap();
    assert_eq!((object.value().to_vec(), object.kind()), (b"value".to_vec(), ValueKind::Bytes));
    assert_eq!((object.attributes(), object.version()), (attributes, written.version));
    watch.set(1499);
    assert!(log.read(TABLE, b"k").unwrap().is_some());
    watch.set(1500);
    assert!(log.read(TABLE, b"k").unwrap().is_none());
    let keys = (0..70u8).map(|_| (TABLE, &b"k"[..]));
    log.read_batch(keys, |_, found| assert!(found.unwrap().is_none()));
    let mut seen = 0;
    log.scan(TabletRange::whole(TABLE), Cursor::default(), |_| seen += 1).unwrap();
    assert_eq!(seen, 0);
    // Conditions see no object, and versions go on from that of the item.
    let failed = log.write_if(TABLE, b"k", b"new", Condition::Present);
    assert_eq!(failed, Err(Error::Condition { current: Version::NONE }));
    let failed = log.write_if(TABLE, b"k", b"new", Condition::VersionIs(written.version));
    assert_eq!(failed, Err(Error::Condition { current: Version::NONE }));
    assert_eq!(log.delete(TABLE, b"k", Condition::Always), Ok(None));
    let again = log.write_if(TABLE, b"k", b"new", Condition::Absent).unwrap();
    assert!(again.version > written.version);
    // A write without attributes makes an object without any.
    let object = log.read(TABLE, b"k").unwrap().unwrap();
    assert_eq!((object.attributes(), object.value().to_vec()), (Attributes::NONE, b"new".to_vec()));
    watch.set(1_000_000);
    assert!(log.read(TABLE, b"k").unwrap().is_some());
}

#[test]
fn a_clock_that_goes_back_brings_nothing_back() {
    let watch = Watch::default();
    let mut log = log_with(256 << 10, Recorder::new(), &watch);
    log.with_attributes(expires(500), |log| log.write(TABLE, b"k", b"v")).unwrap();
    watch.set(600);
    assert!(log.read(TABLE, b"k").unwrap().is_none());
    watch.set(100);
    assert!(log.read(TABLE, b"k").unwrap().is_none());
    assert_eq!(log.time(), Timestamp(600));
}

#[test]
fn uses_of_cached_objects_are_counted_and_no_copy_takes_them_for_damage() {
    let (watch, recorder) = (Watch::default(), Recorder::new());
    let mut log = log_with(256 << 10, recorder.clone(), &watch);
    let cached = Attributes { is_cached: true, ..Attributes::NONE };
    log.with_attributes(cached, |log| log.write(TABLE, b"k", b"v")).unwrap();
    log.write(TABLE, b"plain", b"v").unwrap();
    let use_once = |log: &Log, key: &[u8]| {
        let object = log.read(TABLE, key).unwrap().unwrap();
        let before = object.uses();
        object.count_use();
        before
    };
    assert_eq!([0; 6].map(|_| use_once(&log, b"k")), [0, 1, 2, 3, 3, 3]);
    assert_eq!([0; 3].map(|_| use_once(&log, b"plain")), [0; 3]);
    // The backups get the bytes as they are now, with the count, and cleaners copy it.
    log.turn();
    let recovered = replayed(&recorder, usize::MAX, &watch);
    assert_eq!(recovered.read(TABLE, b"k").unwrap().unwrap().value().to_vec(), b"v");
    assert_eq!(recovered.read(TABLE, b"k").unwrap().unwrap().uses(), 0);
    wear_out(&mut log, 60);
    log.turn();
    assert_eq!(use_once(&log, b"k"), 3);
    let recovered = replayed(&recorder, usize::MAX, &watch);
    assert_eq!(recovered.read(TABLE, b"k").unwrap().unwrap().attributes(), cached);
}

#[test]
fn every_object_of_a_cache_gets_a_version_of_its_own() {
    let (watch, recorder) = (Watch::default(), Recorder::new());
    let mut log = log_with(256 << 10, recorder.clone(), &watch);
    let cached = Attributes { is_cached: true, ..Attributes::NONE };
    let put = |log: &mut Log, key: &[u8]| {
        log.with_attributes(cached, |log| log.write(TABLE, key, b"v")).unwrap().version
    };
    let versions = [b"a", b"b", b"a", b"c", b"b"].map(|key| put(&mut log, key));
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    // Conditions and deletes see the versions that objects have.
    let wrong = log.write_if(TABLE, b"a", b"w", Condition::VersionIs(versions[0]));
    assert_eq!(wrong, Err(Error::Condition { current: versions[2] }));
    log.with_attributes(cached, |log| {
        log.write_if(TABLE, b"a", b"w", Condition::VersionIs(versions[2])).unwrap();
    });
    assert_eq!(log.delete(TABLE, b"b", Condition::Always), Ok(Some(versions[4])));
    let last = put(&mut log, b"d");
    log.turn();
    let mut recovered = replayed(&recorder, usize::MAX, &watch);
    assert!(put(&mut recovered, b"e") > last);
}

#[test]
fn numbers_and_long_values_keep_their_attributes_wherever_they_lie() {
    let watch = Watch::default();
    let recorder = Recorder::new();
    let mut log = log_with(256 << 10, recorder.clone(), &watch);
    let attributes = Attributes { client_flags: u32::MAX, is_claimed: true, ..expires(1 << 40) };
    // All lengths, so that some attributes lie across the end of a seglet.
    for length in 0..900usize {
        let (key, value) = (format!("key-{}", length % 40).repeat(8), vec![length as u8; length]);
        let kind = if length == 8 { ValueKind::Float } else { ValueKind::Bytes };
        let written = log.with_attributes(attributes, |log| {
            log.of_kind(kind, |log| log.write(TABLE, key.as_bytes(), &value))
        });
        written.unwrap();
        let object = log.read(TABLE, key.as_bytes()).unwrap().unwrap();
        assert_eq!((object.value().to_vec(), object.kind()), (value, kind));
        assert_eq!(object.attributes(), attributes);
        log.turn();
        log.cleaner().unwrap().step();
    }
    log.turn();
    let recovered = replayed(&recorder, usize::MAX, &watch);
    let mut count = 0;
    recovered.read_batch((860..900usize).map(|_| (TABLE, &b"none"[..])), |_, found| {
        assert!(found.unwrap().is_none());
    });
    for length in 860..900usize {
        let key = format!("key-{}", length % 40).repeat(8);
        let object = recovered.read(TABLE, key.as_bytes()).unwrap().unwrap();
        assert_eq!((object.value().len(), object.attributes()), (length, attributes));
        count += 1;
    }
    assert_eq!(count, 40);
}

#[test]
fn memory_of_expired_items_becomes_free_although_nobody_asks_for_them() {
    let watch = Watch::default();
    let mut log = log_with(512 << 10, Recorder::new(), &watch);
    let mut cleaner = log.cleaner().unwrap();
    log.write(TABLE, b"stays", b"here").unwrap();
    let before = log.usage().live_bytes;
    assert!(!log.keeps_time());
    for number in 0..1500u32 {
        let attributes = expires(1000 + u64::from(number % 50));
        log.with_attributes(attributes, |log| log.write(TABLE, &number.to_le_bytes(), &[1; 100]))
            .unwrap();
        log.turn();
    }
    assert!(log.keeps_time());
    let full = log.usage().live_bytes;
    let mut rounds = 0;
    watch.set(1025);
    let mut settle = |log: &mut Log, until: u64| {
        while log.usage().live_bytes > until {
            while log.tick() {}
            cleaner.step();
            log.turn();
            rounds += 1;
            assert!(rounds < 3000, "{} bytes are left", log.usage().live_bytes);
        }
    };
    settle(&mut log, full - (full - before) / 3);
    assert!(log.read(TABLE, &49u32.to_le_bytes()).unwrap().is_some());
    watch.set(1050);
    // The items in the head stay until the head is full.
    settle(&mut log, before + SEGMENT_BYTES as u64);
    assert!(log.usage().expired > 1300, "{}", log.usage().expired);
    assert!(log.read(TABLE, b"stays").unwrap().is_some());
    let safe = log.safe_version();
    let written = log.write(TABLE, &7u32.to_le_bytes(), b"again").unwrap();
    assert_eq!(written.version, safe.next());
}

#[derive(Clone, Debug)]
enum Operation {
    Write { key: u8, length: u16, live: Option<u8>, condition: u8 },
    Delete { key: u8 },
    Read { key: u8 },
    ReadAll,
    Pass { milliseconds: u8 },
    Tick,
    Clean { steps: u8 },
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let keys = || prop_oneof![3 => 0..6u8, 1 => 6..40u8];
    let lengths = prop_oneof![Just(0u16), 1..80u16, 80..700u16];
    let live = prop_oneof![1 => Just(None), 3 => (1..60u8).prop_map(Some)];
    let operation = prop_oneof![
        12 => (keys(), lengths, live, 0..4u8).prop_map(|(key, length, live, condition)| {
            Operation::Write { key, length, live, condition }
        }),
        3 => keys().prop_map(|key| Operation::Delete { key }),
        3 => keys().prop_map(|key| Operation::Read { key }),
        1 => Just(Operation::ReadAll),
        4 => (1..25u8).prop_map(|milliseconds| Operation::Pass { milliseconds }),
        3 => Just(Operation::Tick),
        4 => (1..4u8).prop_map(|steps| Operation::Clean { steps }),
    ];
    prop::collection::vec(operation, 1..500)
}

fn key_of(key: u8) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

/// An object that was written and not deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    version: Version,
    value: Vec<u8>,
    attributes: Attributes,
}

/// The knowledge of the keys.
#[derive(Clone, Debug, Default)]
struct Model {
    kept: BTreeMap<Vec<u8>, Kept>,
    /// The highest version of each key.
    newest: BTreeMap<Vec<u8>, Version>,
    /// Versions that a caller was told are gone.
    gone: BTreeSet<(Vec<u8>, Version)>,
}

impl Model {
    /// The object that is there at a time; notes that a caller learns it.
    fn tell(&mut self, key: &[u8], now: Timestamp) -> Option<Kept> {
        let kept = self.kept.get(key)?;
        if kept.attributes.has_expired(now) {
            self.gone.insert((key.to_vec(), kept.version));
            return None;
        }
        Some(kept.clone())
    }
}

fn seen(log: &Log, key: &[u8]) -> Option<Kept> {
    let object = log.read(TABLE, key).unwrap()?;
    let (version, value) = (object.version(), object.value().to_vec());
    Some(Kept { version, value, attributes: object.attributes() })
}

fn step(
    log: &mut Log,
    model: &mut Model,
    watch: &Watch,
    (number, operation): (usize, &Operation),
) -> Result<(), TestCaseError> {
    match operation {
        Operation::Write { key, length, live, condition } => {
            let (key, value) = (key_of(*key), vec![number as u8; *length as usize]);
            let expires = live.map_or(Timestamp::ZERO, |live| watch.now().after(live.into()));
            let attributes =
                Attributes { expires, client_flags: number as u32 % 3, ..Attributes::NONE };
            let before = model.clone().tell(&key, watch.now()).map(|kept| kept.version);
            let condition = match condition {
                0 => Condition::Absent,
                1 => Condition::Present,
                _ => Condition::Always,
            };
            let written =
                log.with_attributes(attributes, |log| log.write_if(TABLE, &key, &value, condition));
            match written {
                Ok(written) => {
                    prop_assert!(condition.holds(before.unwrap_or_default()));
                    let version = written.version;
                    let older = model.newest.insert(key.clone(), version);
                    prop_assert!(older.is_none_or(|older| older < version), "{:?}", older);
                    model.kept.insert(key, Kept { version, value, attributes });
                }
                Err(Error::Condition { current }) => {
                    prop_assert_eq!(current, before.unwrap_or_default());
                    prop_assert!(!condition.holds(current));
                    model.tell(&key, watch.now());
                }
                Err(Error::MemoryFull { .. } | Error::CleanerBehind) => {}
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
        }
        Operation::Delete { key } => {
            let key = key_of(*key);
            match log.delete(TABLE, &key, Condition::Always) {
                Ok(version) => {
                    let there = model.tell(&key, watch.now()).map(|kept| kept.version);
                    prop_assert_eq!(version, there);
                    if there.is_some() {
                        model.kept.remove(&key);
                    }
                }
                Err(Error::CleanerBehind) => {}
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
        }
        Operation::Read { key } => {
            let key = key_of(*key);
            prop_assert_eq!(seen(log, &key), model.tell(&key, watch.now()));
        }
        Operation::ReadAll => {
            let mut all = BTreeSet::new();
            let mut cursor = Some(Cursor::default());
            while let Some(at) = cursor {
                let visit =
                    |object: thunderhead_log::Object<'_>| _ = all.insert(object.key().to_vec());
                cursor = log.scan(TabletRange::whole(TABLE), at, visit).unwrap();
            }
            for key in (0..40).map(key_of) {
                prop_assert_eq!(all.contains(&key), model.tell(&key, watch.now()).is_some());
            }
        }
        Operation::Pass { milliseconds } => watch.pass(u64::from(*milliseconds)),
        Operation::Tick => {
            log.tick();
            log.cleaner().unwrap().step();
            log.tick();
        }
        Operation::Clean { .. } => {}
    }
    Ok(())
}

/// Checks a log that was recovered after a crash.
fn check_recovered(log: &mut Log, model: &Model) -> Result<(), TestCaseError> {
    for key in (0..40).map(key_of) {
        let found = seen(log, &key);
        let kept = model.kept.get(&key);
        if let Some(found) = &found {
            prop_assert_eq!(Some(found), kept, "nothing older comes back");
            let is_gone = model.gone.contains(&(key.clone(), found.version));
            prop_assert!(!is_gone, "{:?} came back", found);
        }
        if let Some(kept) = kept.filter(|kept| !kept.attributes.has_expired(log.time())) {
            prop_assert_eq!(found.as_ref(), Some(kept));
        }
        let newest = model.newest.get(&key).copied().unwrap_or_default();
        let written = log.write(TABLE, &key, b"after").unwrap();
        prop_assert!(written.version > newest, "{:?} is not above {:?}", written.version, newest);
    }
    Ok(())
}

fn run(operations: &[Operation], crash: f64, behind: u64) -> Result<(), TestCaseError> {
    let (watch, recorder) = (Watch::default(), Recorder::new());
    watch.set(10_000);
    let mut log = log_with(160 << 10, recorder.clone(), &watch);
    let mut cleaners: Vec<_> = (0..2).filter_map(|_| log.cleaner()).collect();
    let mut model = Model::default();
    let crash_at = (operations.len() as f64 * crash) as usize;
    for (number, operation) in operations.iter().enumerate() {
        step(&mut log, &mut model, &watch, (number, operation))?;
        if let Operation::Clean { steps } = operation {
            for at in 0..*steps as usize {
                let count = cleaners.len();
                cleaners[at % count].step();
                log.turn();
            }
        }
        // As a server does before it answers.
        while log.settle_clock() == Err(Error::CleanerBehind) {
            cleaners[0].step();
            log.turn();
        }
        log.turn();
        if number == crash_at || number + 1 == operations.len() {
            let late = Watch::default();
            late.set(watch.now().0.saturating_sub(behind));
            let mut recovered = replayed(&recorder, recorder.events(), &late);
            check_recovered(&mut recovered, &model)?;
            // The remaining items expire at the pace of the new clock.
            let mut recovered = replayed(&recorder, recorder.events(), &late);
            late.pass(behind + 100);
            for key in (0..40).map(key_of) {
                let there = seen(&recovered, &key);
                prop_assert!(there.is_none_or(|it| it.attributes.expires == Timestamp::ZERO));
            }
            let mut cleaner = recovered.cleaner().unwrap();
            for _ in 0..200 {
                recovered.tick();
                cleaner.step();
                recovered.turn();
            }
            check_recovered(&mut recovered, &without_expired(&model))?;
        }
    }
    Ok(())
}

/// The model once all is gone that expires.
fn without_expired(model: &Model) -> Model {
    let mut model = model.clone();
    model.kept.retain(|_, kept| kept.attributes.expires == Timestamp::ZERO);
    model
}

#[test]
fn an_answer_without_an_expired_item_waits_for_the_mark() {
    let (watch, recorder) = (Watch::default(), Recorder::new());
    let mut log = log_with(256 << 10, recorder.clone(), &watch);
    log.with_attributes(expires(100), |log| log.write(TABLE, b"k", b"item")).unwrap();
    log.with_attributes(expires(200), |log| log.write(TABLE, b"l", b"item")).unwrap();
    log.turn();
    assert_eq!(log.deletes_durable_at(), None);
    recorder.hold(true);
    watch.set(150);
    assert!(log.read(TABLE, b"k").unwrap().is_none());
    log.settle_clock().unwrap();
    log.turn();
    assert_eq!(log.deletes_durable_at(), Some(log.appended()));
    recorder.hold(false);
    log.turn();
    assert_eq!(log.deletes_durable_at(), None);
    // One mark is enough for all that expired before it.
    let end = log.appended();
    assert!(log.read(TABLE, b"k").unwrap().is_none());
    log.settle_clock().unwrap();
    assert_eq!(log.appended(), end);
    // The mark in a new head counts too.
    recorder.hold(true);
    watch.set(250);
    assert!(log.read(TABLE, b"l").unwrap().is_none());
    while log.appended().segment == end.segment {
        log.write(TABLE, b"other", &[0; 500]).unwrap();
    }
    let end = log.appended();
    log.settle_clock().unwrap();
    assert_eq!(log.appended(), end, "no further mark");
    let until = log.deletes_durable_at().unwrap();
    assert!(until.segment == end.segment && until <= end);
}

#[test]
fn an_outcome_that_tells_of_an_expired_item_comes_behind_the_mark_and_in_no_group() {
    use thunderhead_log::{Completion, HashedKey, LeaseId, Sequence};
    let (watch, recorder) = (Watch::default(), Recorder::new());
    let mut log = log_with(256 << 10, recorder.clone(), &watch);
    log.with_attributes(expires(100), |log| log.write(TABLE, b"k", b"item")).unwrap();
    watch.set(150);
    let lease = LeaseId(5);
    assert!(log.begin_group(lease, Sequence(1), 4000));
    let name = (lease, Sequence(1));
    let other = HashedKey::of(b"other");
    log.write_recorded(TABLE, other, b"v", Condition::Always, name, |_| b"-").unwrap();
    assert!(log.read(TABLE, b"k").unwrap().is_none());
    log.settle_clock().unwrap();
    assert_eq!(log.grouped(), 0, "the mark ends the group");
    let completion = Completion { lease, sequence: Sequence(2), result: b"-" };
    assert_eq!(log.delete_completed(TABLE, b"k", Condition::Always, completion), Ok(None));
    log.turn();
    // A crash may cut the log behind any entry. Then an outcome is not there without the mark.
    let mut order = Vec::new();
    each_entry(&recorder, |entry| match entry {
        Entry::Completions { .. } => order.push("group"),
        Entry::ClockMark(_) => order.push("mark"),
        Entry::Completion { .. } => order.push("outcome"),
        _ => {}
    });
    assert_eq!(order, ["group", "mark", "outcome"]);
    let mut recovered = replayed(&recorder, usize::MAX, &Watch::default());
    assert!(recovered.read(TABLE, b"k").unwrap().is_none());
    assert!(recovered.completion(lease, Sequence(2)).is_some());
    assert_eq!(recovered.delete(TABLE, b"k", Condition::Always), Ok(None));
}

#[test]
fn a_source_of_time_that_comes_after_a_mark_goes_on_from_the_mark() {
    let watch = Watch::default();
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let options = options(SEGMENT_BYTES, Tombstones::Folded, 1.0);
    let mut log = Log::new(&memory, LogId(9), options, Box::<NoReplication>::default()).unwrap();
    log.reach_time(Timestamp(1000));
    for (time, expected) in [(990, 1000), (2000, 2010)] {
        watch.set(time);
        if time == 990 {
            watch.give_to(&mut log);
        }
        assert_eq!(log.time(), Timestamp(expected));
    }
}

/// Overwrites one object until so many heads are full, and cleans.
fn wear_out(log: &mut Log, heads: usize) {
    let mut cleaner = log.cleaner().unwrap();
    for _ in 0..heads * SEGMENT_BYTES / 200 {
        while log.write(TABLE, b"worn", &[0; 200]) == Err(Error::CleanerBehind) {
            cleaner.step();
            log.turn();
        }
        cleaner.step();
        log.turn();
    }
}

/// Writes objects that stay, and among them an item.
fn write_among_others(log: &mut Log, key: &[u8], expires_at: u64) -> Version {
    let mut version = Version::NONE;
    for number in 0..40u8 {
        log.write(TABLE, &[b's', number], &[number; 150]).unwrap();
        if number == 20 {
            let write = |log: &mut Log| log.write(TABLE, key, b"item");
            version = log.with_attributes(expires(expires_at), write).unwrap().version;
        }
    }
    log.turn();
    version
}

#[test]
fn a_mark_outlives_the_segment_in_which_it_was_written() {
    let (watch, recorder) = (Watch::default(), Recorder::new());
    let mut log = log_with(256 << 10, recorder.clone(), &watch);
    write_among_others(&mut log, b"k", 100);
    watch.set(150);
    assert!(log.read(TABLE, b"k").unwrap().is_none());
    log.settle_clock().unwrap();
    let marked_in = log.appended().segment;
    wear_out(&mut log, 60);
    assert!(!recorder.replicas(usize::MAX).contains_key(&marked_in), "the mark was cleaned away");
    let mut recovered = replayed(&recorder, usize::MAX, &Watch::default());
    assert!(recovered.read(TABLE, b"k").unwrap().is_none());
    // Also a log that was recovered keeps it.
    assert!(recovered.time() >= Timestamp(100) && recovered.settle_clock().is_ok());
}

/// The log knows the times of items, but not those of the parts of a value.
#[test]
fn the_clock_never_shows_a_time_before_that_of_a_part_that_was_found_gone() {
    let (watch, recorder) = (Watch::default(), Recorder::new());
    let mut log = log_with(256 << 10, recorder.clone(), &watch);
    log.write(TABLE, b"k", b"a value with a part").unwrap();
    watch.set(150);
    assert!(!log.has_found_expired());
    log.note_gone(Timestamp(100));
    assert!(log.has_found_expired());
    log.settle_clock().unwrap();
    assert!(!log.has_found_expired());
    log.turn();
    let earlier = Watch::default();
    let recovered = replayed(&recorder, usize::MAX, &earlier);
    assert!(recovered.time() >= Timestamp(100), "{:?}", recovered.time());
    // A time that has not come moves no clock.
    log.note_gone(Timestamp(9000));
    log.settle_clock().unwrap();
    log.turn();
    let recovered = replayed(&recorder, usize::MAX, &earlier);
    assert!(recovered.time() < Timestamp(1000), "{:?}", recovered.time());
}

#[test]
fn every_partition_of_a_segment_has_its_clock_marks() {
    use thunderhead_log::filter::{Filter, Partitions};
    let (watch, recorder) = (Watch::default(), Recorder::new());
    let mut log = log_with(256 << 10, recorder.clone(), &watch);
    log.with_attributes(expires(100), |log| log.write(TABLE, b"k", b"item")).unwrap();
    watch.set(150);
    assert!(log.read(TABLE, b"k").unwrap().is_none());
    log.settle_clock().unwrap();
    log.turn();
    let replicas = recorder.replicas(usize::MAX);
    let (id, replica) = replicas.last_key_value().unwrap();
    let whole = |table| vec![(TabletRange::whole(TableId(table)), SegmentId::NONE)];
    let partitions = Partitions::new(&[whole(7), whole(8)]).unwrap();
    let mut filter = Filter::new(*id, &partitions, None);
    while filter.step(&partitions, &replica.bytes, 9, 4096).unwrap().more {}
    for (part, items) in filter.finish().parts.iter().zip([1, 0]) {
        let bytes = part.to_vec();
        let entries: Vec<Entry<'_>> =
            SegmentReader::new(&bytes).unwrap().map(|entry| entry.unwrap().1).collect();
        assert!(entries.contains(&Entry::ClockMark(Timestamp(150))));
        let found = entries.iter().filter(|it| matches!(it, Entry::Object(_))).count();
        assert_eq!(found, items);
    }
}

#[test]
fn before_an_item_is_removed_the_log_has_its_version_and_its_time() {
    let (watch, recorder) = (Watch::default(), Recorder::new());
    let mut log = log_with(256 << 10, recorder.clone(), &watch);
    for _ in 0..50 {
        log.with_attributes(expires(100), |log| log.write(TABLE, b"k", b"item")).unwrap();
    }
    let version = write_among_others(&mut log, b"k", 100);
    wear_out(&mut log, 2);
    watch.set(150);
    let mut cleaner = log.cleaner().unwrap();
    for _ in 0..100 {
        log.tick();
        cleaner.step();
        log.turn();
    }
    assert_eq!(log.usage().expired, 1);
    let (mut versions, mut times) = (Vec::new(), Vec::new());
    each_entry(&recorder, |entry| match entry {
        Entry::SafeVersion(version) => versions.push(version),
        Entry::ClockMark(time) => times.push(time),
        _ => {}
    });
    assert!(versions.iter().any(|it| *it >= version), "{versions:?}");
    assert!(times.iter().any(|it| *it >= Timestamp(100)), "{times:?}");
    // So an answer that finds nothing waits for these records.
    let written = log.write(TABLE, b"k", b"new").unwrap();
    assert!(written.version > version);
}

#[test]
fn an_old_item_that_a_replay_brings_back_does_not_lower_the_versions() {
    let (watch, recorder) = (Watch::default(), Recorder::new());
    let mut log = log_with(256 << 10, recorder.clone(), &watch);
    let old = write_among_others(&mut log, b"k", 100);
    watch.set(150);
    wear_out(&mut log, 2);
    for _ in 0..20 {
        log.tick();
        log.cleaner().unwrap().step();
    }
    assert_eq!(log.usage().expired, 1);
    let mut newest = Version::NONE;
    for _ in 0..30 {
        newest = log.write(TABLE, b"k", b"newer").unwrap().version;
    }
    assert_eq!(log.delete(TABLE, b"k", Condition::Always), Ok(Some(newest)));
    wear_out(&mut log, 60);
    let mut versions = Vec::new();
    each_entry(&recorder, |entry| match entry {
        Entry::Object(it) if it.key == b"k" => versions.push(it.version),
        _ => {}
    });
    assert!(versions.contains(&old) && !versions.contains(&newest), "only the old item is left");
    let mut recovered = replayed(&recorder, usize::MAX, &Watch::default());
    assert!(recovered.read(TABLE, b"k").unwrap().is_none());
    let written = recovered.write(TABLE, b"k", b"again").unwrap();
    assert!(written.version > newest, "{:?} is not above {newest:?}", written.version);
}

#[test]
fn an_expired_item_stays_while_a_rebuild_may_bring_an_older_version() {
    use thunderhead_log::Incoming;
    let (watch, recorder) = (Watch::default(), Recorder::new());
    let mut log = log_with(256 << 10, recorder, &watch);
    let other = TabletRange::whole(TableId(8));
    let mut rebuild = Rebuild::begin(&mut log, [(other, SegmentId::NONE)]).unwrap();
    let object = |version, expires| Incoming::Object {
        key: b"k",
        value: b"v",
        kind: ValueKind::Bytes,
        attributes: Attributes { expires: Timestamp(expires), ..Attributes::NONE },
        version: Version(version),
    };
    rebuild.take(&mut log, other.table, &[object(9, 100)]).unwrap();
    wear_out(&mut log, 3);
    watch.set(150);
    let mut cleaner = log.cleaner().unwrap();
    for _ in 0..20 {
        log.tick();
        cleaner.step();
        log.turn();
    }
    rebuild.take(&mut log, other.table, &[object(5, 0)]).unwrap();
    rebuild.finish(&mut log).unwrap();
    assert!(log.read(other.table, b"k").unwrap().is_none(), "the older version came back");
    drop(rebuild);
    for _ in 0..100 {
        log.tick();
        wear_out(&mut log, 1);
    }
    assert_eq!(log.usage().expired, 1);
    assert!(log.write(other.table, b"k", b"new").unwrap().version > Version(9));
}

#[test]
fn a_migrated_item_keeps_its_attributes_and_stays_gone() {
    use thunderhead_log::Incoming;
    let watch = Watch::default();
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let options = options(SEGMENT_BYTES, Tombstones::Folded, 1.0);
    let mut log = Log::new(&memory, LogId(9), options, Box::<NoReplication>::default()).unwrap();
    watch.give_to(&mut log);
    let whole = TabletRange::whole(TABLE);
    let mut rebuild = Rebuild::begin(&mut log, [(whole, SegmentId::NONE)]).unwrap();
    let item = |key, expires| Incoming::Object {
        key,
        value: b"v",
        kind: ValueKind::Bytes,
        attributes: Attributes { expires: Timestamp(expires), client_flags: 5, ..Attributes::NONE },
        version: Version(3),
    };
    let entries = [item(b"a", 100), item(b"b", 200), Incoming::Clock(Timestamp(150))];
    rebuild.take(&mut log, TABLE, &entries).unwrap();
    rebuild.finish(&mut log).unwrap();
    assert!(log.read(TABLE, b"a").unwrap().is_none());
    let object = log.read(TABLE, b"b").unwrap().unwrap();
    assert_eq!(object.attributes().client_flags, 5);
    assert!(log.time() >= Timestamp(150));
    watch.pass(50);
    assert!(log.read(TABLE, b"b").unwrap().is_none(), "the clock goes on at its own pace");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn an_item_that_was_seen_gone_stays_gone(
        operations in operations(),
        crash in 0.0..1.0f64,
        behind in prop_oneof![Just(0u64), 1..40u64, Just(10_000u64)],
    ) {
        run(&operations, crash, behind)?;
    }
}
