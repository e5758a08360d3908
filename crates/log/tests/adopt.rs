//! Adopted segments of a former log. A log that adopts them has the same contents as a replay of
//! the former log. It goes on like any other log. A recovery from its own and its adopted segments
//! finds the same contents again.

mod common;
mod kinds;

use kinds::kind_of;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use thunderhead_log::filter::{Filter, Partitions};
use thunderhead_log::inspect::{Entry, SegmentReader};
use thunderhead_log::{
    Attributes, Cleaner, CleanerOptions, Completion, Condition, Cursor, Damage, Digest, Error,
    KeyHash, LeaseId, Log, LogId, Memory, NoReplication, Options, Rebuild, Recorder, Replay,
    ReplayError, Replica, SegmentId, SegmentKind, Sequence, Step, TableId, TabletRange, Tombstones,
    Update, Version,
};

const TABLES: [TableId; 2] = [TableId(7), TableId(9)];
const LOG: LogId = LogId(5);

/// The offset of the lease for updates of many keys.
const MANY: u64 = 1000;

type Replicas = BTreeMap<SegmentId, Replica>;
type Tablets = Vec<(TabletRange, SegmentId)>;
type Objects = BTreeMap<(TableId, Vec<u8>), (Version, Vec<u8>)>;
type Records = BTreeMap<(LeaseId, Sequence), Vec<u8>>;

fn options(tombstones: Tombstones) -> Options {
    common::options(8 << 10, tombstones, 1.0)
}

#[derive(Clone, Debug)]
enum Operation {
    Write(usize, u8, u16),
    Update(usize, u8, u16),
    /// Several updates of one message: so many keys from a first key on.
    Many(usize, u8, u8, u16),
    /// Several updates that are done together: every second one of a few keys is deleted.
    Together(usize, u8, u8, u16),
    Delete(usize, u8),
    Forget(u8),
    Clean(u8),
    Anew,
}

fn operations(most: usize) -> impl Strategy<Value = Vec<Operation>> {
    let length = prop_oneof![2 => 0..60u16, 1 => Just(8u16), 2 => 300..700u16];
    let operation = prop_oneof![
        8 => (0..2usize, 0..60u8, length.clone()).prop_map(|(t, k, l)| Operation::Write(t, k, l)),
        4 => (0..2usize, 0..60u8, length).prop_map(|(t, k, l)| Operation::Update(t, k, l)),
        4 => (0..2usize, 0..60u8, 1..60u8, 0..40u16)
            .prop_map(|(t, k, n, l)| Operation::Many(t, k, n, l)),
        2 => (0..2usize, 0..60u8, 2..12u8, 9..200u16)
            .prop_map(|(t, k, n, l)| Operation::Together(t, k, n, l)),
        3 => (0..2usize, 0..60u8).prop_map(|(t, k)| Operation::Delete(t, k)),
        1 => (0..200u8).prop_map(Operation::Forget),
        2 => (1..5u8).prop_map(Operation::Clean),
        1 => Just(Operation::Anew),
    ];
    prop::collection::vec(operation, 1..most)
}

fn run(log: &mut Log, cleaner: &mut Cleaner, operations: &[Operation], lease: LeaseId) {
    for (number, operation) in (1u64..).zip(operations) {
        let sequence = Sequence(number);
        // Operations without room are skipped.
        match operation {
            Operation::Write(table, key, length) => {
                let value = vec![number as u8; *length as usize];
                let write = |log: &mut Log| log.write(TABLES[*table], &[*key], &value);
                let _ = log.of_kind(kind_of(&value), write);
            }
            Operation::Update(table, key, length) => {
                let completion = Completion { lease, sequence, result: &[*key] };
                let value = vec![*key; *length as usize];
                let (table, always) = (TABLES[*table], Condition::Always);
                let kind = kind_of(&value);
                let _ = log.of_kind(kind, |log| {
                    log.write_completed(table, &[*key], &value, always, completion)
                });
            }
            Operation::Many(table, key, count, length) => {
                let (lease, first) = (LeaseId(lease.0 + MANY), Sequence(number * 64));
                let each = Log::grouped_bytes(1, (*length).into());
                for number in 0..*count {
                    let (sequence, key) =
                        (first.plus(number.into()), key.wrapping_add(number) % 60);
                    if !log.group_takes(sequence, each) {
                        log.begin_group(lease, sequence, usize::from(count - number) * each);
                    }
                    let completion = Completion { lease, sequence, result: &[key] };
                    let value = vec![number; *length as usize];
                    let (table, always) = (TABLES[*table], Condition::Always);
                    let kind = kind_of(&value);
                    let _ = log.of_kind(kind, |log| {
                        log.write_completed(table, &[key], &value, always, completion)
                    });
                }
                log.end_group();
            }
            Operation::Together(table, key, count, length) => {
                let keys: Vec<[u8; 1]> = (0..*count).map(|at| [(key + at) % 60]).collect();
                let value = vec![*key; *length as usize];
                let new = |key: u8| key.is_multiple_of(2).then_some((&value[..], Attributes::NONE));
                let update = |key| Update { table: TABLES[*table], key, new: new(key[0]) };
                let updates: Vec<Update<'_>> = keys.iter().map(|key| update(key)).collect();
                let _ = log.update_together(&updates);
            }
            Operation::Delete(table, key) => {
                let _ = log.delete(TABLES[*table], &[*key], Condition::Always);
            }
            Operation::Forget(number) => {
                let number = u64::from(*number);
                log.forget_completion(lease, Sequence(number));
                log.forget_some(LeaseId(lease.0 + MANY), Sequence(number * 32), u64::MAX);
            }
            Operation::Clean(steps) => {
                for _ in 0..*steps {
                    cleaner.step();
                    log.turn();
                }
            }
            Operation::Anew => {
                let range = TabletRange::whole(TABLES[0]);
                if log.drop_tablet(range) {
                    while log.create_tablet(range).is_err() {
                        cleaner.step();
                        log.turn();
                    }
                }
            }
        }
    }
    log.turn();
}

fn held(log: &mut Log) -> (Objects, Records) {
    let mut objects = Objects::new();
    let mut bytes = 0;
    for table in TABLES {
        let mut cursor = Some(Cursor::default());
        while let Some(at) = cursor {
            let visit = |object: thunderhead_log::Object<'_>| {
                let entry = (object.version(), object.value().to_vec());
                assert_eq!(object.kind(), kind_of(&entry.1));
                bytes += object.entry_bytes() as u64;
                assert!(objects.insert((table, object.key().to_vec()), entry).is_none());
            };
            cursor = log.scan(TabletRange::whole(table), at, visit).unwrap();
        }
    }
    let statistics: u64 = log.statistics().map(|it| it.bytes).sum();
    assert_eq!(bytes, statistics, "live bytes are those of the objects");
    let mut records = Records::new();
    let mut cursor = Some(Cursor::default());
    while let Some(at) = cursor {
        cursor = log.scan_completions(at, |lease, sequence, result| {
            records.insert((lease, sequence), result.to_vec());
        });
    }
    (objects, records)
}

/// The last digest in a segment.
fn digest_of(replica: &Replica) -> Option<Digest> {
    let entries = SegmentReader::new(&replica.bytes).ok()?;
    let digests = entries.filter_map(|entry| match entry {
        Ok((_, Entry::Digest(digest))) => Some(digest),
        _ => None,
    });
    digests.last()
}

/// The segments of a log after a crash, closed segments first.
fn complete(replicas: &Replicas) -> Vec<(SegmentId, Replica)> {
    let heads = replicas.iter().rev();
    let mut heads = heads.filter(|(_, it)| it.open && it.kind != SegmentKind::Survivor);
    let digest = heads.find_map(|(_, it)| digest_of(it));
    let named = digest.expect("some head is open").segments.into_iter();
    let mut all: Vec<_> = named
        .map(|id| (id, replicas.get(&id).unwrap_or_else(|| panic!("{id} is gone")).clone()))
        .collect();
    all.sort_by_key(|(_, replica)| replica.open);
    all
}

fn replayed(segments: &[(SegmentId, Replica)], tablets: &Tablets) -> (Objects, Records) {
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let nobody = Box::new(NoReplication::default());
    let mut log = Log::new(&memory, LogId(99), options(Tombstones::Folded), nobody).unwrap();
    let mut replay = Replay::new(&mut log, tablets.clone()).unwrap();
    segments.iter().for_each(|(_, replica)| replay.segment(&replica.bytes).unwrap());
    let report = replay.finish().unwrap();
    assert_eq!(report.damage, []);
    held(&mut log)
}

/// The replicas of a log after these operations, and its tablets.
fn former(operations: &[Operation], tombstones: Tombstones) -> (Replicas, Tablets) {
    let recorder = Recorder::new();
    let memory = Memory::with_seglets(256 << 10, 1024).unwrap();
    let replicator = Box::new(recorder.clone());
    let mut log = Log::new(&memory, LOG, options(tombstones), replicator).unwrap();
    TABLES.iter().for_each(|table| log.create_tablet(TabletRange::whole(*table)).unwrap());
    let mut cleaner = log.cleaner().unwrap();
    run(&mut log, &mut cleaner, operations, LeaseId(3));
    let tablets = log.tablets().collect();
    (recorder.replicas(usize::MAX), tablets)
}

fn successor(first: u64, tombstones: Tombstones) -> (Log, Recorder) {
    let recorder = Recorder::new();
    // Each generation may have another form of the index.
    let map =
        if first.is_multiple_of(2) { Memory::with_long_references } else { Memory::with_seglets };
    let memory = map(2 << 20, 1024).unwrap();
    let (first, replicator) = (SegmentId(first), Box::new(recorder.clone()));
    let log = Log::beginning_at(first, &memory, LOG, options(tombstones), replicator).unwrap();
    (log, recorder)
}

/// Takes a log back, some entries at a time.
fn take_back(log: &mut Log, segments: &[(SegmentId, Replica)], tablets: &Tablets) -> Rebuild {
    let mut rebuild = Rebuild::take_back(log, tablets.clone()).unwrap();
    let partitions = Partitions::new(std::slice::from_ref(tablets)).unwrap();
    for (number, (id, replica)) in segments.iter().enumerate() {
        // Open segments come as backups cut them.
        let mut filter = Filter::new(*id, &partitions, None);
        while filter.step(&partitions, &replica.bytes, usize::MAX, usize::MAX).unwrap().more {}
        let part = filter.finish().parts[0].to_vec();
        let mut at = Some(0);
        while let Some(from) = at {
            let most = (3 + number % 60, usize::MAX);
            at = match replica.open {
                true => rebuild.step(log, &part, from, most.0, most.1).unwrap(),
                false => rebuild.adopt(log, &replica.bytes, from, most.0, most.1).unwrap(),
            };
        }
    }
    rebuild.finish(log).unwrap();
    rebuild
}

/// The replicas after a crash: the log's own segments, and the segments of the former log that it
/// has not freed.
fn united(former: &Replicas, recorder: &Recorder) -> Replicas {
    let mut all: Replicas =
        former.iter().filter(|(_, it)| !it.open).map(|(id, it)| (*id, it.clone())).collect();
    for freed in recorder.freed() {
        all.remove(&freed);
    }
    all.extend(recorder.replicas(usize::MAX));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn an_adopting_log_goes_on_like_any_other(
        first in operations(700),
        second in operations(700),
        third in operations(200),
        classic in any::<bool>(),
    ) {
        let scheme = if classic { Tombstones::Classic } else { Tombstones::Folded };
        let (replicas, tablets) = former(&first, scheme);
        let segments = complete(&replicas);
        let expected = replayed(&segments, &tablets);
        let (mut log, recorder) = successor(1000, scheme);
        let rebuild = take_back(&mut log, &segments, &tablets);
        drop(rebuild);
        prop_assert_eq!(&held(&mut log), &expected);
        let mut since: Tablets = log.tablets().collect();
        since.sort();
        let mut was = tablets.clone();
        was.sort();
        prop_assert_eq!(since, was);
        // Cleaners see segments that are not released yet, and leave them alone.
        let mut cleaner = log.cleaner().unwrap();
        run(&mut log, &mut cleaner, &[Operation::Clean(20)], LeaseId(4));
        prop_assert_eq!(&held(&mut log), &expected);
        while log.name_adopted().is_err() {}
        let adopted: BTreeSet<SegmentId> = log.adopted_segments().map(|(id, _)| id).collect();
        let closed: BTreeSet<SegmentId> =
            segments.iter().filter(|(_, it)| !it.open).map(|(id, _)| *id).collect();
        prop_assert_eq!(adopted, closed);
        // A crash now: nothing of the former log was appended, and yet all of it is there.
        let tablets = log.tablets().collect();
        let crashed = complete(&united(&replicas, &recorder));
        prop_assert_eq!(&replayed(&crashed, &tablets), &expected);
        log.release_adopted();
        run(&mut log, &mut cleaner, &second, LeaseId(5));
        for _ in 0..100 {
            cleaner.step();
            log.turn();
        }
        let expected = held(&mut log);
        let tablets: Tablets = log.tablets().collect();
        let replicas = united(&replicas, &recorder);
        let crashed = complete(&replicas);
        // Forgotten records reappear, and records of dropped tables do not.
        let expected = (expected.0, replayed(&crashed, &tablets).1);
        prop_assert_eq!(&replayed(&crashed, &tablets), &expected);
        // And once more.
        let (mut log, recorder) = successor(100_000, scheme);
        drop(take_back(&mut log, &crashed, &tablets));
        prop_assert_eq!(&held(&mut log), &expected);
        while log.name_adopted().is_err() {}
        log.release_adopted();
        let mut cleaner = log.cleaner().unwrap();
        run(&mut log, &mut cleaner, &third, LeaseId(6));
        let expected = held(&mut log);
        let tablets: Tablets = log.tablets().collect();
        let crashed = complete(&united(&replicas, &recorder));
        prop_assert_eq!(&replayed(&crashed, &tablets).0, &expected.0);
    }

    #[test]
    fn an_abandoned_adoption_leaves_nothing_behind(first in operations(500), named in any::<bool>()) {
        let (replicas, tablets) = former(&first, Tombstones::Folded);
        let segments = complete(&replicas);
        let (mut log, _recorder) = successor(1000, Tombstones::Folded);
        let free = log.usage().free_bytes;
        let rebuild = take_back(&mut log, &segments, &tablets);
        if named {
            while log.name_adopted().is_err() {}
        }
        let some = segments.iter().any(|(_, it)| !it.open);
        prop_assert_eq!(rebuild.abandon(&mut log).keeps, named && some);
        log.turn();
        let mut cursor = Some(Cursor::default());
        while let Some(at) = cursor {
            cursor = log.forget_homeless_completions(at, |_, _| {});
        }
        let mut cleaner = log.cleaner().unwrap();
        for _ in 0..200 {
            cleaner.step();
            log.turn();
        }
        let usage = log.usage();
        prop_assert_eq!(usage.live_bytes, 0);
        // The cleaners free the entries that were replayed from the head; a few segments may
        // remain.
        prop_assert!(usage.free_bytes + 6 * (8 << 10) >= free, "{} of {free}", usage.free_bytes);
        // The tables can be created again, and are empty.
        for table in TABLES {
            log.create_tablet(TabletRange::whole(table)).unwrap();
        }
        prop_assert_eq!(held(&mut log), (Objects::new(), Records::new()));
        run(&mut log, &mut cleaner, &first, LeaseId(7));
    }
}

/// A former log with objects in its closed segments.
fn some_log() -> (Vec<(SegmentId, Replica)>, Tablets) {
    let writes: Vec<_> = (0..200).map(|n| Operation::Write(n % 2, n as u8, 600)).collect();
    let (replicas, tablets) = former(&writes, Tombstones::Folded);
    (complete(&replicas), tablets)
}

#[test]
fn an_unadoptable_segment_is_refused_before_any_of_it_is_used() {
    let (segments, tablets) = some_log();
    let (id, closed) = segments.first().unwrap();
    assert!(!closed.open);
    let refused = |log: &mut Log, bytes: &[u8]| {
        let mut rebuild = Rebuild::take_back(log, tablets.clone()).unwrap();
        let free = log.usage().free_bytes;
        let mut at = 0;
        let error = loop {
            match rebuild.adopt(log, bytes, at, 10, usize::MAX) {
                Ok(Some(next)) => at = next,
                Ok(None) => panic!("it was adopted"),
                Err(error) => break error,
            }
        };
        assert_eq!(log.adopted_segments().count(), 0);
        assert_eq!(log.usage().live_bytes, 0);
        assert_eq!(log.usage().free_bytes, free, "the copied bytes are freed");
        assert!(!rebuild.abandon(log).keeps);
        error
    };
    // A flipped bit at its end, the wrong log, ids that are not below its own.
    let mut damaged = closed.bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let (mut log, _) = successor(1000, Tombstones::Folded);
    assert!(matches!(refused(&mut log, &damaged), ReplayError::Damaged(Damage::Checksum { .. })));
    let (mut log, _) = successor(id.0, Tombstones::Folded);
    let refusal = refused(&mut log, &closed.bytes);
    assert_eq!(refusal, Damage::NotAdoptable { segment: *id }.into());
    let memory = Memory::with_seglets(512 << 10, 1024).unwrap();
    let nobody = || Box::new(NoReplication::default());
    let options = || options(Tombstones::Folded);
    let mut other =
        Log::beginning_at(SegmentId(1000), &memory, LogId(6), options(), nobody()).unwrap();
    let refusal = refused(&mut other, &closed.bytes);
    assert!(matches!(refusal, ReplayError::Damaged(Damage::OtherLog { .. })));
    // Seglets of another size.
    let memory = Memory::with_seglets(512 << 10, 2048).unwrap();
    let options = Options { segment_bytes: 16 << 10, ..options() };
    let mut other = Log::beginning_at(SegmentId(1000), &memory, LOG, options, nobody()).unwrap();
    let refusal = refused(&mut other, &closed.bytes);
    assert_eq!(refusal, Damage::NotAdoptable { segment: *id }.into());
}

/// Records of updates whose answers a client says it has are not taken in, however they were
/// recorded, and whether they are adopted or replayed.
#[test]
fn records_that_a_client_has_acknowledged_are_not_taken_in() {
    let updates = (0..200).map(|number| match number % 3 {
        0 => Operation::Update(0, number as u8 % 60, 300),
        _ => Operation::Many(1, number as u8, 20, 30),
    });
    let (replicas, tablets) = former(&updates.collect::<Vec<_>>(), Tombstones::Folded);
    let segments = complete(&replicas);
    let expected = replayed(&segments, &tablets);
    let (one, many) = (Sequence(100), Sequence(70 * 64 + 5));
    let (mut log, _) = successor(1000, Tombstones::Folded);
    let mut rebuild = Rebuild::take_back(&mut log, tablets).unwrap();
    for (lease, first) in [(3, one), (3, Sequence(2)), (3 + MANY, many)] {
        rebuild.acknowledged(LeaseId(lease), first);
    }
    let mut arrived = Records::new();
    for (_, replica) in &segments {
        let mut at = Some(0);
        while let Some(from) = at {
            at = match replica.open {
                true => rebuild.step(&mut log, &replica.bytes, from, 9, usize::MAX).unwrap(),
                false => rebuild.adopt(&mut log, &replica.bytes, from, 9, usize::MAX).unwrap(),
            };
        }
        let came = rebuild.take_completions();
        arrived.extend(came.iter().map(|(lease, number, result)| ((lease, number), result.into())));
    }
    rebuild.finish(&mut log).unwrap();
    let is_needed = |(lease, sequence): &(LeaseId, Sequence)| match lease.0 {
        3 => *sequence >= one,
        _ => *sequence >= many,
    };
    let needed: Records = expected.1.into_iter().filter(|(key, _)| is_needed(key)).collect();
    assert!(
        needed.keys().any(|it| it.0 == LeaseId(3))
            && needed.keys().any(|it| it.0 == LeaseId(3 + MANY))
    );
    assert_eq!(held(&mut log), (expected.0, needed.clone()));
    assert_eq!(arrived, needed, "the records have their old results");
}

#[test]
fn a_segment_is_adopted_only_once() {
    let (segments, tablets) = some_log();
    let (mut log, _) = successor(1000, Tombstones::Folded);
    let mut rebuild = Rebuild::take_back(&mut log, tablets).unwrap();
    let whole = |rebuild: &mut Rebuild, log: &mut Log, bytes: &[u8]| {
        let mut at = Some(0);
        while let Some(from) = at {
            at = rebuild.adopt(log, bytes, from, usize::MAX, usize::MAX)?;
        }
        Ok::<_, ReplayError>(())
    };
    whole(&mut rebuild, &mut log, &segments[0].1.bytes).unwrap();
    let again = whole(&mut rebuild, &mut log, &segments[0].1.bytes);
    assert_eq!(again, Err(Damage::NotAdoptable { segment: segments[0].0 }.into()));
}

/// Checksums are verified once. The second pass should be given the same bytes. If it is not, it
/// still takes no other bytes for an entry.
#[test]
fn bytes_that_differ_from_the_verified_ones_are_refused() {
    let (segments, tablets) = some_log();
    let (mut log, _) = successor(1000, Tombstones::Folded);
    let mut rebuild = Rebuild::take_back(&mut log, tablets).unwrap();
    let bytes = &segments[0].1.bytes;
    let mut other = segments[1].1.bytes.clone();
    let (all, most) = (usize::MAX, usize::MAX);
    // The header is the same, and the bytes behind it do not verify; nor are entries at the same
    // places.
    let head = SegmentReader::new(bytes).unwrap().nth(1).unwrap().unwrap().0 as usize;
    other.splice(..head, bytes[..head].iter().copied());
    other.insert(head, 0);
    assert_eq!(rebuild.adopt(&mut log, bytes, 0, all, most), Ok(Some(0)));
    let refused = rebuild.adopt(&mut log, &other, 0, all, most);
    assert!(matches!(refused, Err(ReplayError::Damaged(_))), "{refused:?}");
    let longer = [&bytes[..], &bytes[head..]].concat();
    let refused = rebuild.adopt(&mut log, &longer, 0, all, most);
    assert!(matches!(refused, Err(ReplayError::Damaged(_))), "{refused:?}");
    let (again, other) = (bytes.clone(), &segments[1].1.bytes);
    let refused = rebuild.adopt(&mut log, other, 0, all, most);
    assert!(matches!(refused, Err(ReplayError::Damaged(Damage::OtherSegment { .. }))));
    // The same bytes in other memory are as good.
    let mut at = Some(0);
    while let Some(from) = at {
        at = rebuild.adopt(&mut log, &again, from, 7, most).unwrap();
    }
    assert_eq!(log.adopted_segments().count(), 1);
    // The first pass begins at the beginning, and goes on where it stopped.
    let at = rebuild.adopt(&mut log, other, 0, 7, most).unwrap().unwrap();
    assert!(rebuild.adopt(&mut log, other, at + 1, 7, most).is_err());
    assert!(rebuild.adopt(&mut log, other, at, 7, most).unwrap().unwrap() > at);
}

#[test]
fn adopting_a_log_that_does_not_fit_is_refused_for_lack_of_memory() {
    let (segments, tablets) = some_log();
    let memory = Memory::with_seglets(90 << 10, 1024).unwrap();
    let nobody = Box::new(NoReplication::default());
    let mut options = options(Tombstones::Folded);
    (options.cleaner.pool_segments, options.cleaner.delete_seglets) = (1, 2);
    let mut log = Log::beginning_at(SegmentId(1000), &memory, LOG, options, nobody).unwrap();
    let mut rebuild = Rebuild::take_back(&mut log, tablets).unwrap();
    let mut refused = None;
    for (_, replica) in segments.iter().filter(|(_, it)| !it.open) {
        let mut at = Some(0);
        while let (Some(from), None) = (at, &refused) {
            at = match rebuild.adopt(&mut log, &replica.bytes, from, 20, usize::MAX) {
                Ok(at) => at,
                Err(error) => {
                    refused = Some(error);
                    None
                }
            };
        }
    }
    let memory = |error: &ReplayError| {
        matches!(error, ReplayError::Log(Error::MemoryFull { .. } | Error::CleanerBehind))
    };
    assert!(refused.as_ref().is_some_and(memory), "{refused:?}");
    assert!(!rebuild.abandon(&mut log).keeps);
    assert_eq!(log.usage().live_bytes, 0);
}

/// Few segments are cleaned at a time, and never in memory alone.
fn few_at_a_time() -> Options {
    let options = options(Tombstones::Folded);
    let cleaner =
        CleanerOptions { compaction: false, segments_per_pass: 2, ..options.cleaner.clone() };
    Options { cleaner, ..options }
}

/// A log whose objects were moved to a survivor and then deleted, and that ended before a digest
/// named the survivor: the segments from which they were moved are still there.
fn ended_before_a_survivor_was_named() -> (Replicas, Tablets) {
    let recorder = Recorder::new();
    let memory = Memory::with_seglets(256 << 10, 1024).unwrap();
    let replicator = Box::new(recorder.clone());
    let mut log = Log::new(&memory, LOG, few_at_a_time(), replicator).unwrap();
    TABLES.iter().for_each(|table| log.create_tablet(TabletRange::whole(*table)).unwrap());
    let mut cleaner = log.cleaner().unwrap();
    for number in 0..90u8 {
        log.write(TABLES[0], &[number], &[1; 300]).unwrap();
        log.write(TABLES[0], b"again and again", &[number; 150]).unwrap();
    }
    log.turn();
    log.turn();
    assert_eq!(cleaner.step(), Step::Combined);
    // The guards against the moved objects have a segment to themselves, almost.
    let head = log.appended().segment;
    while log.appended().segment == head {
        log.write(TABLES[0], b"again and again", &[0; 150]).unwrap();
    }
    for number in (0..90u8).step_by(4) {
        log.delete(TABLES[0], &[number], Condition::Always).unwrap();
    }
    for number in 0..80u8 {
        log.write(TABLES[0], b"again and again", &[number; 150]).unwrap();
    }
    let tablets = log.tablets().collect();
    (recorder.replicas(usize::MAX), tablets)
}

/// The next generation may drop the guards against them, or the one after that.
#[test]
fn a_guard_of_a_survivor_that_no_digest_named_stays_in_later_generations() {
    for (lives, rolls) in [(1u64, false), (2, false), (2, true), (3, true)] {
        let (mut replicas, mut tablets) = ended_before_a_survivor_was_named();
        let expected = replayed(&complete(&replicas), &tablets);
        let named: BTreeSet<SegmentId> = complete(&replicas).iter().map(|(id, _)| *id).collect();
        let priors = |replica: &Replica| -> Vec<SegmentId> {
            let entries = SegmentReader::new(&replica.bytes).unwrap();
            let tombstone = |entry| match entry {
                Ok((_, Entry::Tombstone(record))) => record.prior,
                _ => None,
            };
            entries.filter_map(tombstone).collect()
        };
        let closed = complete(&replicas).into_iter().filter(|(_, replica)| !replica.open);
        let guards: Vec<SegmentId> = closed.flat_map(|(_, replica)| priors(&replica)).collect();
        assert!(guards.iter().any(|prior| !named.contains(prior)), "a survivor is not named");
        for life in 1..=lives {
            let recorder = Recorder::new();
            let memory = Memory::with_seglets(2 << 20, 1024).unwrap();
            let (first, replicator) = (SegmentId(1000 * life), Box::new(recorder.clone()));
            let mut log =
                Log::beginning_at(first, &memory, LOG, few_at_a_time(), replicator).unwrap();
            take_back(&mut log, &complete(&replicas), &tablets);
            // The first head knew nothing of a former generation, and may be closed by the time the
            // next one takes over.
            let head = log.appended().segment;
            while rolls && log.appended().segment == head {
                log.write(TABLES[0], b"again and again", &[0; 150]).unwrap();
            }
            while log.name_adopted().is_err() {}
            log.release_adopted();
            tablets = log.tablets().collect();
            let mut cleaner = log.cleaner().unwrap();
            for number in 0..if life == lives { 200u8 } else { 0 } {
                // A digest comes between one pass and the next.
                if number % 60 == 0 {
                    cleaner.step();
                }
                log.write(TABLES[0], b"again and again", &[number; 150]).unwrap();
                log.turn();
                let crashed = replayed(&complete(&united(&replicas, &recorder)), &tablets);
                let keys = |objects: &Objects| -> Vec<_> { objects.keys().cloned().collect() };
                assert_eq!(keys(&crashed.0), keys(&expected.0), "{number} writes of life {life}");
            }
            let gone: BTreeSet<SegmentId> = recorder.freed().into_iter().collect();
            assert_eq!(named.is_disjoint(&gone), life < lives, "cleaners have worked");
            replicas = united(&replicas, &recorder);
        }
    }
}

/// At this point the log does not know the unnamed ids of the former generation, but a digest that
/// names none of its segments need not list any.
#[test]
fn a_head_opened_during_adoption_lists_no_unnamed_ids_of_generations_it_does_not_name() {
    let (segments, tablets) = some_log();
    let (mut log, recorder) = successor(1000, Tombstones::Folded);
    let mut rebuild = Rebuild::take_back(&mut log, tablets).unwrap();
    let (_, first) = segments.first().unwrap();
    let mut at = Some(0);
    while let Some(from) = at {
        at = rebuild.adopt(&mut log, &first.bytes, from, usize::MAX, usize::MAX).unwrap();
    }
    let head = log.appended().segment;
    let record = |sequence| Completion { lease: LeaseId(8), sequence, result: &[1; 900] };
    for sequence in (1..).map(Sequence) {
        log.complete(TABLES[0], KeyHash(1), record(sequence)).unwrap();
        if log.appended().segment != head {
            break;
        }
    }
    log.turn();
    let digest = last_digest(&recorder);
    assert_eq!(digest.segments.len(), 2, "the heads");
    assert!((0..1000).all(|id| !digest.unnamed.contains(id)));
}

/// The last digest in the newest head.
fn last_digest(recorder: &Recorder) -> Digest {
    let replicas = recorder.replicas(usize::MAX);
    digest_of(replicas.last_key_value().unwrap().1).unwrap()
}

/// As with segments that an earlier build wrote.
#[test]
fn any_id_may_be_a_survivor_if_no_open_head_has_a_digest() {
    let all: Vec<_> = (0..120).map(|n| Operation::Write(n % 2, n as u8 % 40, 600)).collect();
    let cleaned = [&all[..], &[Operation::Clean(40)], &all[..40], &[Operation::Clean(40)]].concat();
    let (replicas, tablets) = former(&cleaned, Tombstones::Folded);
    let mut segments = complete(&replicas);
    segments.retain(|(_, replica)| replica.kind == SegmentKind::Survivor);
    let survivors: BTreeSet<u64> = segments.iter().map(|(id, _)| id.0).collect();
    assert!(!survivors.is_empty());
    let (mut log, recorder) = successor(1000, Tombstones::Folded);
    take_back(&mut log, &segments, &tablets);
    while log.name_adopted().is_err() {}
    log.turn();
    let digest = last_digest(&recorder);
    assert_eq!(digest.segments.len(), survivors.len() + 1, "these, and the head");
    // Ids that are too many to tell apart count as survivors, too.
    assert!((0..1000).all(|id| digest.unnamed.contains(id) || survivors.contains(&id)));
}

/// Segments that are not spent are compacted, however little remains of them, rather than combined.
fn compacted() -> Options {
    let mut options = options(Tombstones::Folded);
    let cleaner = &mut options.cleaner;
    (cleaner.utilization_swept, cleaner.tombstone_share_high) = (1e-6, 1.0);
    options
}

/// The idle bytes of an adopted segment were never counted, and the span that its entries guard is
/// not known, until it is compacted.
#[test]
fn adopted_and_compacted_segments_leave_unread_once_nothing_in_them_lives() {
    let stays = (100..124u8).map(|key| Operation::Write(1, key, 600));
    let first = [Operation::Write(0, 99, 20)].into_iter().chain(stays);
    // Then many objects that are overwritten later, and among them the second version, which names
    // the segment of the first.
    let more = |keys: std::ops::Range<u8>| keys.map(|key| Operation::Write(0, key, 600));
    let again = more(0..20).chain([Operation::Write(0, 99, 20)]).chain(more(20..60));
    let last = (200..204u8).map(|key| Operation::Write(1, key, 10));
    let operations: Vec<_> = first.chain(again).chain(last).collect();
    let (replicas, tablets) = former(&operations, Tombstones::Folded);
    let segments = complete(&replicas);
    let holds = |replica: &Replica, table: TableId, keys: std::ops::Range<u8>| {
        let entries = SegmentReader::new(&replica.bytes).unwrap();
        entries.flatten().any(|(_, entry)| match entry {
            Entry::Object(object) => object.table == table && keys.contains(&object.key[0]),
            _ => false,
        })
    };
    let closed = || segments.iter().filter(|(_, replica)| !replica.open);
    let spent: BTreeSet<SegmentId> = closed()
        .filter(|(_, it)| !holds(it, TABLES[0], 99..100) && !holds(it, TABLES[1], 0..255))
        .map(|(id, _)| *id)
        .collect();
    let mut guards = closed().filter(|(_, it)| holds(it, TABLES[0], 0..99));
    let guards = guards.rfind(|(_, it)| holds(it, TABLES[0], 99..100)).unwrap().0;
    assert!(spent.len() > 2 && !holds(&replicas[&guards], TABLES[1], 0..255), "{spent:?}");

    let recorder = Recorder::new();
    let memory = Memory::with_seglets(2 << 20, 1024).unwrap();
    let replicator = Box::new(recorder.clone());
    let mut log =
        Log::beginning_at(SegmentId(1000), &memory, LOG, compacted(), replicator).unwrap();
    drop(take_back(&mut log, &segments, &tablets));
    while log.name_adopted().is_err() {}
    log.release_adopted();
    let mut cleaner = log.cleaner().unwrap();
    let tablets: Tablets = log.tablets().collect();
    let crash = |log: &mut Log| {
        log.turn();
        let left = complete(&united(&replicas, &recorder));
        assert_eq!(replayed(&left, &tablets).0, held(log).0, "{:?}", log.usage());
    };
    let write = |log: &mut Log, keys: &mut dyn Iterator<Item = u8>| {
        for key in keys {
            log.write(TABLES[0], &[key], &[key; 600]).unwrap();
            crash(log);
        }
    };
    // Every other object of the compacted segments lives on; and a segment without live objects is
    // not spent yet.
    write(&mut log, &mut (0..60).filter(|key| key % 3 > 0));
    while cleaner.step() == Step::Compacted {
        crash(&mut log);
    }
    let usage = log.usage();
    assert!(usage.compactions as usize > spent.len() && usage.entries_moved > 15, "{usage:?}");
    assert_eq!((usage.spent_segments, recorder.freed()), (0, Vec::new()));
    // Now the moved objects die, too.
    write(&mut log, &mut (0..60).step_by(3));
    log.delete(TABLES[0], &[99], Condition::Always).unwrap();
    let mut left = usage.spent_segments;
    while log.usage().cleaned_segments < spent.len() as u64 {
        assert_eq!(cleaner.step(), Step::Combined, "{:?}", log.usage());
        assert!(log.usage().spent_segments > left, "{:?}", log.usage());
        left = log.usage().spent_segments;
        crash(&mut log);
    }
    write(&mut log, &mut (0..60));
    write(&mut log, &mut (0..60));
    let freed: BTreeSet<SegmentId> = recorder.freed().into_iter().collect();
    assert!(freed.is_superset(&spent) && !freed.contains(&guards), "{freed:?}, {spent:?}");
    // A segment that guards another is read like others, and a tombstone of it remains.
    for _ in 0..10 {
        for _ in 0..6 {
            cleaner.step();
            crash(&mut log);
        }
        write(&mut log, &mut (0..30));
    }
    assert!(log.usage().residuals > 0, "{:?}", log.usage());
}
