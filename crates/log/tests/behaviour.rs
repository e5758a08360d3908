//! The rules on which a user of the log can rely, one sentence each.

use std::collections::BTreeMap;
use thunderhead_log::inspect::{Entry, SegmentReader};
use thunderhead_log::{
    Cleaner, Completion, Condition, Cursor, Damage, Error, HashedKey, KEY_BYTES_MAX, KeyHash,
    LeaseId, Log, LogId, Memory, NoReplication, Options, Put, Recorder, Replay, ReplayError,
    Replicator, SegmentId, Sequence, Step, TableId, TabletRange, Tombstones, ValueKind, Version,
};

const TABLE: TableId = TableId(1);

fn small() -> Options {
    Options { segment_bytes: 16 << 10, ..Options::default() }
}

fn log_in(bytes: usize, options: Options, replicator: Box<dyn Replicator>) -> Log {
    let memory = Memory::with_seglets(bytes, 1024).unwrap();
    let mut log = Log::new(&memory, LogId(3), options, replicator).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    log
}

fn log() -> Log {
    log_in(1 << 20, small(), Box::new(NoReplication::default()))
}

fn keys(log: &Log, range: TabletRange) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut found, mut cursor) = (BTreeMap::new(), Some(Cursor::default()));
    while let Some(at) = cursor {
        cursor = log
            .scan(range, at, |it| drop(found.insert(it.key().to_vec(), it.value().to_vec())))
            .unwrap();
    }
    found
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

fn replay(segments: &[Vec<u8>], since: SegmentId) -> (Log, thunderhead_log::Report) {
    let memory = Memory::with_seglets(2 << 20, 1024).unwrap();
    let replicator = Box::new(NoReplication::default());
    let mut log = Log::new(&memory, LogId(4), small(), replicator).unwrap();
    let mut replay = Replay::new(&mut log, [(TabletRange::whole(TABLE), since)]).unwrap();
    for segment in segments {
        replay.segment(segment).unwrap();
    }
    let report = replay.finish().unwrap();
    (log, report)
}

fn recorded(recorder: &Recorder) -> Vec<Vec<u8>> {
    recorder.replicas(recorder.events()).into_values().map(|replica| replica.bytes).collect()
}

#[test]
fn a_number_stays_one_until_something_else_is_written() {
    let mut log = log();
    let kind = |log: &Log| log.read(TABLE, b"k").unwrap().unwrap().kind();
    for (written, value) in [
        (ValueKind::Integer, &b"12345678"[..]),
        (ValueKind::Bytes, b"12345678"),
        (ValueKind::Float, b"12345678"),
        (ValueKind::Bytes, b"text"),
    ] {
        log.of_kind(written, |log| log.write(TABLE, b"k", value)).unwrap();
        assert_eq!(kind(&log), written);
        assert_eq!(log.read(TABLE, b"k").unwrap().unwrap().value().to_vec(), value);
    }
    log.of_kind(ValueKind::Integer, |log| {
        log.write_if(TABLE, b"k", b"87654321", Condition::Absent)
    })
    .unwrap_err();
    log.write(TABLE, b"k", b"12345678").unwrap();
    assert_eq!(kind(&log), ValueKind::Bytes, "the refused write leaves no kind behind");
}

#[test]
fn impossible_keys_and_values_are_refused_by_name() {
    let mut log = log();
    let long = vec![1; KEY_BYTES_MAX + 1];
    let large = vec![1; log.options().value_bytes_max() + 1];
    let cases: [(&[u8], &[u8], u16); 3] = [(b"", b"", 1), (&long, b"", 2), (b"k", &large, 3)];
    for (key, value, code) in cases {
        assert_eq!(log.write(TABLE, key, value).unwrap_err().code(), code);
    }
    assert_eq!(log.delete(TABLE, b"", Condition::Always), Err(Error::KeyEmpty));
    assert_eq!(keys(&log, TabletRange::whole(TABLE)).len(), 0);
}

#[test]
fn keys_and_values_of_full_length_are_taken_and_come_back() {
    let memory = Memory::new(64 << 20).unwrap();
    let replicator = Box::new(NoReplication::default());
    let mut log = Log::new(&memory, LogId(1), Options::default(), replicator).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    for number in 0..20u8 {
        let key = vec![number; KEY_BYTES_MAX];
        let value: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8 ^ number).collect();
        log.write(TABLE, &key, &value).unwrap();
        let object = log.read(TABLE, &key).unwrap().unwrap();
        assert!(object.key().equals(&key));
        assert!(object.value().equals(&value));
        assert_eq!(object.value().pieces().map(<[u8]>::len).sum::<usize>(), value.len());
    }
}

#[test]
fn an_unknown_table_is_named_in_the_error() {
    let mut log = log();
    let other = TableId(9);
    let unknown = Error::UnknownTablet { table: other };
    assert_eq!(log.write(other, b"k", b""), Err(unknown.clone()));
    assert_eq!(log.delete(other, b"k", Condition::Always), Err(unknown.clone()));
    assert_eq!(log.read(other, b"k").unwrap_err(), unknown);
    let range = TabletRange::whole(TABLE);
    assert_eq!(log.create_tablet(range), Err(Error::TabletExists(range)));
}

#[test]
fn a_write_whose_condition_fails_says_which_version_is_there() {
    let mut log = log();
    let first = log.write_if(TABLE, b"k", b"1", Condition::Absent).unwrap().version;
    let cases = [
        (Condition::Absent, false),
        (Condition::Present, true),
        (Condition::VersionIs(first.next()), true),
        (Condition::VersionIs(first), false),
        (Condition::VersionBelow(Version(3)), false),
        (Condition::VersionBelow(Version(9)), true),
    ];
    for (condition, holds) in cases {
        let before = log.read(TABLE, b"k").unwrap().unwrap().version();
        match log.write_if(TABLE, b"k", b"2", condition) {
            Ok(written) => assert!(holds && written.version == before.next(), "{condition:?}"),
            Err(error) => {
                assert!(!holds, "{condition:?}");
                assert_eq!(error, Error::Condition { current: before });
            }
        }
    }
    let absent = log.write_if(TABLE, b"other", b"", Condition::Present);
    assert_eq!(absent, Err(Error::Condition { current: Version::NONE }));
    let below = Condition::VersionBelow(Version::NONE);
    assert_eq!(log.delete(TABLE, b"other", below), Ok(None));
    log.write_if(TABLE, b"other", b"", below).unwrap();
    assert!(log.write_if(TABLE, b"other", b"", below).is_err());
}

#[test]
fn versions_of_a_key_never_go_back_across_delete_and_creation() {
    let mut log = log();
    let mut last = Version::NONE;
    for round in 0..50 {
        for _ in 0..round % 4 + 1 {
            let version = log.write(TABLE, b"k", b"v").unwrap().version;
            assert!(version > last);
            last = version;
        }
        log.delete(TABLE, b"k", Condition::Always).unwrap();
    }
}

#[test]
fn a_batch_does_what_single_operations_do() {
    let mut log = log();
    let names: Vec<Vec<u8>> = (0..300u32).map(|n| (n % 200).to_be_bytes().to_vec()).collect();
    let puts: Vec<Put<'_>> = names
        .iter()
        .map(|key| Put { table: TABLE, key, value: key, condition: Condition::Absent })
        .collect();
    let (mut written, mut refused) = (0, 0);
    log.write_batch(&puts, |_, result| match result {
        Ok(_) => written += 1,
        Err(Error::Condition { .. }) => refused += 1,
        Err(error) => panic!("{error}"),
    });
    assert_eq!((written, refused), (200, 100));
    let mut asked: Vec<(TableId, &[u8])> = names.iter().map(|key| (TABLE, &key[..])).collect();
    asked.push((TABLE, b"absent"));
    asked.push((TableId(8), b"elsewhere"));
    let mut answers = Vec::new();
    log.read_batch(asked, |at, found| {
        assert_eq!(at, answers.len());
        answers.push(found.map(|object| object.map(|object| object.value().to_vec())));
    });
    for (key, answer) in names.iter().zip(&answers) {
        assert_eq!(answer.as_ref().unwrap().as_ref(), Some(key));
    }
    assert_eq!(answers[300], Ok(None));
    assert_eq!(answers[301], Err(Error::UnknownTablet { table: TableId(8) }));
}

#[test]
fn batch_reads_of_any_size_find_the_same_as_single_reads() {
    let mut log = log_in(8 << 20, small(), Box::new(NoReplication::default()));
    let key_of = |number: u32| number.wrapping_mul(0x9e37_79b9).to_be_bytes();
    for number in 0..3000u32 {
        // Some objects cross seglets, and some buckets are full.
        let value = vec![number as u8; (number % 97 * number % 997) as usize];
        log.write(TABLE, &key_of(number), &value).unwrap();
        if number % 5 == 0 {
            log.delete(TABLE, &key_of(number), Condition::Always).unwrap();
        }
    }
    let mut next = 0;
    for count in (0..140).chain([3100]) {
        let keys: Vec<_> = (next..next + count)
            .map(|number| {
                (TableId(if number % 11 == 0 { 8 } else { TABLE.0 }), key_of(number % 3100))
            })
            .collect();
        next += count;
        let mut answered = 0;
        log.read_batch(keys.iter().map(|(table, key)| (*table, &key[..])), |at, found| {
            assert_eq!(at, answered, "in order, each once");
            answered += 1;
            let (table, key) = &keys[at];
            let values = |it: Option<thunderhead_log::Object<'_>>| it.map(|it| it.value().to_vec());
            assert_eq!(found.map(values), log.read(*table, key).map(values));
        });
        assert_eq!(answered, keys.len());
    }
}

#[test]
fn full_memory_refuses_writes_but_not_reads_and_deletes_and_recovers() {
    for tombstones in [Tombstones::Folded, Tombstones::Classic] {
        let options = Options { tombstones, segment_bytes: 64 << 10, ..small() };
        let mut log = log_in(4 << 20, options, Box::new(NoReplication::default()));
        let mut cleaner = log.cleaner().unwrap();
        let mut count = 0u32;
        let error = loop {
            let write = |log: &mut Log| log.write(TABLE, &count.to_be_bytes(), &[7; 100]);
            match patiently(&mut log, &mut cleaner, write) {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::MemoryFull { .. }), "{error}");
        let usage = log.usage();
        assert!(usage.live_bytes * 100 > usage.log_bytes * 80, "{usage:?}");
        // Overwrites of the same size go on, and so do reads and deletes, any number of times.
        for round in 0..4 * count {
            let key = (round % count).to_be_bytes();
            let write = |log: &mut Log| log.write(TABLE, &key, &[round as u8; 100]);
            patiently(&mut log, &mut cleaner, write).unwrap();
        }
        for number in 0..count {
            assert!(log.read(TABLE, &number.to_be_bytes()).unwrap().is_some());
        }
        for number in 0..count {
            let key = number.to_be_bytes();
            let delete = |log: &mut Log| log.delete(TABLE, &key, Condition::Present);
            patiently(&mut log, &mut cleaner, delete).unwrap();
        }
        for number in 0..count / 2 {
            let key = number.to_be_bytes();
            let write = |log: &mut Log| log.write(TABLE, &key, &[1; 200]);
            patiently(&mut log, &mut cleaner, write).unwrap();
        }
        assert_eq!(keys(&log, TabletRange::whole(TABLE)).len(), count as usize / 2);
    }
}

/// A log that is as full as it may be goes on taking overwrites, with any options of the cleaner:
/// while memory is short it must still find the segments that give some back.
#[test]
fn overwrites_of_a_full_log_never_get_stuck() {
    let schemes = [Tombstones::Folded, Tombstones::Classic];
    for (number, tombstones) in schemes.into_iter().cycle().take(12).enumerate() {
        let mut options = Options { segment_bytes: 32 << 10, tombstones, ..Options::default() };
        options.cleaner.compaction = number / 2 % 2 == 0;
        options.cleaner.segments_per_pass = [2, 4, 8][number / 4];
        let mut log = log_in(2 << 20, options, Box::new(NoReplication::default()));
        let mut cleaner = log.cleaner().unwrap();
        let mut random = 7u64 + number as u64;
        let mut written = 0u64;
        let full = loop {
            let key = written.to_le_bytes();
            match patiently(&mut log, &mut cleaner, |log| log.write(TABLE, &key, &[1; 60])) {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::MemoryFull { .. }), "{full}");
        // Headers grow a little as versions and segments get higher numbers.
        for key in (0..written).step_by(16) {
            let delete = |log: &mut Log| log.delete(TABLE, &key.to_le_bytes(), Condition::Always);
            patiently(&mut log, &mut cleaner, delete).unwrap();
        }
        for _ in 0..8 * written {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let number = random % written;
            let key = (number + u64::from(number.is_multiple_of(16))).to_le_bytes();
            patiently(&mut log, &mut cleaner, |log| log.write(TABLE, &key, &[2; 60])).unwrap();
        }
        let left = keys(&log, TabletRange::whole(TABLE)).len() as u64;
        assert!((written - written.div_ceil(16)..=written).contains(&left));
    }
}

#[test]
fn a_dropped_tablet_gives_its_memory_back_without_a_delete() {
    let mut log = log_in(512 << 10, small(), Box::new(NoReplication::default()));
    let mut cleaner = log.cleaner().unwrap();
    for round in 0..6u8 {
        let table = TableId(100 + u64::from(round));
        log.create_tablet(TabletRange::whole(table)).unwrap();
        for number in 0..2_500u32 {
            let key = number.to_be_bytes();
            let write = |log: &mut Log| log.write(table, &key, &[round; 100]);
            patiently(&mut log, &mut cleaner, write).unwrap();
        }
        assert_eq!(keys(&log, TabletRange::whole(table)).len(), 2_500);
        assert!(log.drop_tablet(TabletRange::whole(table)));
        assert!(!log.drop_tablet(TabletRange::whole(table)));
        assert_eq!(log.usage().live_bytes, 0);
    }
}

#[test]
fn a_table_created_again_does_not_get_its_old_objects() {
    let recorder = Recorder::new();
    let mut log = log_in(1 << 20, small(), Box::new(recorder.clone()));
    log.write(TABLE, b"old", b"1").unwrap();
    log.write(TABLE, b"both", b"1").unwrap();
    log.drop_tablet(TabletRange::whole(TABLE));
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    assert!(log.read(TABLE, b"old").unwrap().is_none());
    log.write(TABLE, b"both", b"2").unwrap();
    log.turn();
    let (_, since) = log.tablets().next().unwrap();
    let (rebuilt, report) = replay(&recorded(&recorder), since);
    let found = keys(&rebuilt, TabletRange::whole(TABLE));
    assert_eq!(found, BTreeMap::from([(b"both".to_vec(), b"2".to_vec())]));
    assert_eq!(report.elsewhere, 2);
}

#[test]
fn a_note_goes_with_its_tablet_and_not_to_a_tablet_that_replaces_it() {
    let mut log = log();
    let (whole, key) = (TabletRange::whole(TABLE), b"k");
    let hash = KeyHash::of(key);
    let part = TabletRange { first: hash, ..whole };
    let note = |log: &Log| log.tablet_note(TABLE, HashedKey::of(key));
    assert_eq!(note(&log), Some([0, 0]));
    assert!(!log.note_tablet(part, [1, 1]), "no tablet was made for that range");
    assert!(log.note_tablet(whole, [5, 6]));
    assert!(log.cut_tablet(part));
    assert_eq!(note(&log), None);
    while log.clear_some() {}
    log.turn();
    log.create_tablet(part).unwrap();
    assert_eq!(note(&log), Some([0, 0]));
    assert!(log.note_tablet(part, [8, 9]));
    assert_eq!(note(&log), Some([8, 9]));
    assert!(log.drop_tablet(part));
    assert_eq!((note(&log), log.tablet_note(TableId(9), HashedKey::of(key))), (None, None));
}

#[test]
fn two_tablets_of_one_table_each_hold_half_of_it() {
    let mut log = log_in(1 << 20, small(), Box::new(NoReplication::default()));
    let half = u64::MAX / 2;
    let table = TableId(5);
    let low = TabletRange { table, first: KeyHash::MIN, last: KeyHash(half) };
    let high = TabletRange { table, first: KeyHash(half + 1), last: KeyHash::MAX };
    log.create_tablet(low).unwrap();
    log.create_tablet(high).unwrap();
    for number in 0..500u32 {
        log.write(table, &number.to_be_bytes(), b"v").unwrap();
    }
    assert_eq!(keys(&log, low).len() + keys(&log, high).len(), 500);
    assert!(keys(&log, low).keys().all(|key| KeyHash::of(key).0 <= half));
    log.drop_tablet(low);
    assert!(keys(&log, high).keys().all(|key| log.read(table, key).unwrap().is_some()));
}

#[test]
fn a_completion_record_and_its_object_are_replayed_together_or_not_at_all() {
    let recorder = Recorder::new();
    let mut log = log_in(1 << 20, small(), Box::new(recorder.clone()));
    let completion = Completion { lease: LeaseId(7), sequence: Sequence(1), result: b"done" };
    log.write_completed(TABLE, b"k", b"v", Condition::Always, completion).unwrap();
    log.turn();
    assert_eq!(log.completion(LeaseId(7), Sequence(1)).unwrap().to_vec(), b"done");
    let whole = recorded(&recorder).pop().unwrap();
    let (mut with, mut without) = (0, 0);
    for length in 0..=whole.len() {
        if SegmentReader::new(&whole[..length]).is_err() {
            continue;
        }
        let (rebuilt, _) = replay(&[whole[..length].to_vec()], SegmentId::NONE);
        let record = rebuilt.completion(LeaseId(7), Sequence(1)).is_some();
        assert_eq!(record, rebuilt.read(TABLE, b"k").unwrap().is_some(), "{length}");
        *(if record { &mut with } else { &mut without }) += 1;
    }
    assert_eq!(with, 1, "only whole");
    assert!(without > 20);
}

#[test]
fn a_completion_record_and_its_delete_are_replayed_together_or_not_at_all() {
    let recorder = Recorder::new();
    let mut log = log_in(1 << 20, small(), Box::new(recorder.clone()));
    let version = log.write(TABLE, b"k", b"v").unwrap().version;
    let written = log.appended().offset as usize;
    let completion =
        |number| Completion { lease: LeaseId(7), sequence: Sequence(number), result: b"gone" };
    let refused = log.delete_completed(TABLE, b"k", Condition::Absent, completion(1));
    assert_eq!(refused, Err(Error::Condition { current: version }));
    assert!(log.completion(LeaseId(7), Sequence(1)).is_none(), "a refused delete leaves no record");
    let deleted = log.delete_completed(TABLE, b"k", Condition::Always, completion(1));
    assert_eq!(deleted, Ok(Some(version)));
    let again = log.delete_completed(TABLE, b"k", Condition::Always, completion(1));
    assert_eq!(again, Err(Error::AlreadyCompleted { lease: LeaseId(7), sequence: Sequence(1) }));
    // There is nothing to delete any more; that is an outcome too.
    let deleted = log.delete_completed(TABLE, b"k", Condition::Always, completion(2));
    assert_eq!(deleted, Ok(None));
    log.turn();
    let whole = recorded(&recorder).pop().unwrap();
    let (mut with, mut without) = (0, 0);
    for length in written..=whole.len() {
        let (rebuilt, _) = replay(&[whole[..length].to_vec()], SegmentId::NONE);
        let record = rebuilt.completion(LeaseId(7), Sequence(1)).is_some();
        assert_eq!(record, rebuilt.read(TABLE, b"k").unwrap().is_none(), "{length}");
        assert!(record || rebuilt.completion(LeaseId(7), Sequence(2)).is_none(), "{length}");
        *(if record { &mut with } else { &mut without }) += 1;
    }
    assert!(with > 0 && without > 20, "{with} {without}");
}

#[test]
fn completion_records_outlive_cleaning_until_they_are_forgotten() {
    let mut log = log_in(256 << 10, small(), Box::new(NoReplication::default()));
    let mut cleaner = log.cleaner().unwrap();
    for sequence in (0..100).map(Sequence) {
        let result = sequence.to_string();
        let completion = Completion { lease: LeaseId(1), sequence, result: result.as_bytes() };
        log.write_completed(TABLE, b"k", b"v", Condition::Always, completion).unwrap();
    }
    for round in 0..20_000u32 {
        let key = (round % 900).to_be_bytes();
        patiently(&mut log, &mut cleaner, |log| log.write(TABLE, &key, &[1; 100])).unwrap();
    }
    assert!(log.usage().entries_moved > 0);
    let (mut seen, mut cursor) = (Vec::new(), Some(thunderhead_log::Cursor::default()));
    while let Some(at) = cursor {
        cursor = log.scan_completions(at, |lease, sequence, result| {
            assert_eq!((lease, result.to_vec()), (LeaseId(1), sequence.to_string().into_bytes()));
            seen.push(sequence);
        });
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq((0..100).map(Sequence)));
    for sequence in (0..100).map(Sequence) {
        let result = log.completion(LeaseId(1), sequence).unwrap().to_vec();
        assert_eq!(result, sequence.to_string().into_bytes());
        assert!(log.forget_completion(LeaseId(1), sequence));
        assert!(!log.forget_completion(LeaseId(1), sequence));
    }
    assert!(log.completion(LeaseId(1), Sequence(5)).is_none());
}

/// Few keys, written again and again: old versions are dead, and are swept without being copied.
#[test]
fn almost_empty_segments_are_swept_with_few_residuals() {
    let usage = |utilization_swept: f64| {
        let mut options = small();
        options.cleaner.utilization_swept = utilization_swept;
        let mut log = log_in(512 << 10, options, Box::new(NoReplication::default()));
        let mut cleaner = log.cleaner().unwrap();
        for round in 0..40_000u32 {
            let key = (round % 30).to_be_bytes();
            patiently(&mut log, &mut cleaner, |log| log.write(TABLE, &key, &[1; 100])).unwrap();
            if round % 50 == 0 {
                cleaner.step();
                log.turn();
            }
        }
        assert_eq!(keys(&log, TabletRange::whole(TABLE)).len(), 30);
        log.usage()
    };
    let (swept, compacted) = (usage(0.05), usage(0.0));
    assert!(swept.residuals * 10 < compacted.residuals, "{swept:?}\n{compacted:?}");
    assert!(swept.compactions * 10 < compacted.compactions, "{swept:?}\n{compacted:?}");
}

#[test]
fn a_torn_segment_gives_all_entries_before_the_tear() {
    let recorder = Recorder::new();
    let mut log = log_in(1 << 20, small(), Box::new(recorder.clone()));
    let mut ends = Vec::new();
    for number in 0..20u32 {
        log.write(TABLE, &number.to_be_bytes(), &[9; 50]).unwrap();
        ends.push(log.appended().offset as usize);
    }
    log.turn();
    let whole = recorded(&recorder).pop().unwrap();
    for length in ends[0]..=whole.len() {
        let (rebuilt, report) = replay(&[whole[..length].to_vec()], SegmentId::NONE);
        let expected = ends.iter().filter(|end| **end <= length).count();
        assert_eq!(keys(&rebuilt, TabletRange::whole(TABLE)).len(), expected, "{length}");
        // Behind the last whole entry there may be a filling; it is no loss.
        let last = ends[..expected].last().copied().unwrap_or(ends[0] - 66);
        let torn = whole[last.min(length)..length].iter().any(|byte| *byte != 0);
        assert_eq!(report.damage.is_empty(), !torn, "{length} {report:?}");
    }
}

#[test]
fn one_flipped_bit_costs_at_most_a_seglet_and_adds_no_object() {
    let recorder = Recorder::new();
    let mut log = log_in(1 << 20, small(), Box::new(recorder.clone()));
    for number in 0..100u32 {
        log.write(TABLE, &number.to_be_bytes(), &number.to_le_bytes()).unwrap();
    }
    log.turn();
    let truth = keys(&log, TabletRange::whole(TABLE));
    let whole = recorded(&recorder).pop().unwrap();
    for at in 0..whole.len() {
        for bit in [0, 3, 6] {
            let mut bad = whole.clone();
            bad[at] ^= 1 << bit;
            let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
            let replicator = Box::new(NoReplication::default());
            let mut log = Log::new(&memory, LogId(4), small(), replicator).unwrap();
            let range = TabletRange::whole(TABLE);
            let mut replay = Replay::new(&mut log, [(range, SegmentId::NONE)]).unwrap();
            match replay.segment(&bad) {
                Err(ReplayError::Damaged(_)) => continue, // The header: use another replica.
                result => result.unwrap(),
            }
            let report = replay.finish().unwrap();
            assert_eq!(report.damage.len(), 1, "byte {at} bit {bit}: {report:?}");
            let found = keys(&log, range);
            assert!(found.iter().all(|(key, value)| truth.get(key) == Some(value)));
            assert!(found.len() + 1024 / 18 >= truth.len(), "byte {at}: {}", found.len());
        }
    }
}

#[test]
fn bytes_in_a_value_never_pass_for_an_entry() {
    // A client that knows the format stores a whole segment's bytes, headers and all, as a value.
    let recorder = Recorder::new();
    let mut log = log_in(1 << 20, small(), Box::new(recorder.clone()));
    for number in 0..40u32 {
        log.write(TABLE, &number.to_be_bytes(), b"stolen").unwrap();
    }
    log.turn();
    let bait = recorded(&recorder).pop().unwrap()[..800].to_vec();
    let recorder = Recorder::new();
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let mut log = Log::new(&memory, LogId(77), small(), Box::new(recorder.clone())).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    log.write(TABLE, b"bait", &bait).unwrap();
    log.turn();
    let whole = recorded(&recorder).pop().unwrap();
    for at in 0..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 4;
        let Ok(reader) = SegmentReader::new(&bad) else { continue };
        for entry in reader {
            if let Ok((_, Entry::Object(record))) = entry {
                assert_eq!(record.key, b"bait", "damage at {at}");
            }
        }
    }
}

#[test]
fn a_newer_kind_is_skipped_or_refused_as_its_number_says() {
    let recorder = Recorder::new();
    let mut log = log_in(1 << 20, small(), Box::new(recorder.clone()));
    log.write(TABLE, b"k", b"v").unwrap();
    log.turn();
    let whole = recorded(&recorder).pop().unwrap();
    let last = SegmentReader::new(&whole).unwrap().filter_map(Result::ok).last().unwrap();
    let at = last.0 as usize;
    for (kind, skipped) in [(9u8, true), (15, true), (17, false), (19, false), (31, false)] {
        let mut newer = whole.clone();
        // The flags are mixed into the checksum by exclusive or, so it can be carried over.
        let mix = |flags: u8| u32::from(flags).wrapping_mul(0x9e37_79b1);
        let checksum = u32::from_le_bytes(newer[at + 1..at + 5].try_into().unwrap());
        let flags = newer[at] & 0xe0 | kind;
        let checksum = checksum ^ mix(newer[at]) ^ mix(flags);
        newer[at] = flags;
        newer[at + 1..at + 5].copy_from_slice(&checksum.to_le_bytes());
        let found = SegmentReader::new(&newer).unwrap().last().unwrap();
        if skipped {
            assert_eq!(found, Ok((last.0, Entry::Skipped(kind))));
        } else if kind == 17 {
            let field = "number";
            assert_eq!(found, Err(Damage::Field { offset: last.0, field }), "it has 8 bytes");
        } else {
            assert_eq!(found, Err(Damage::UnknownKind { offset: last.0, kind }));
        }
    }
}

#[test]
fn a_read_tells_when_its_object_will_be_durable() {
    let recorder = Recorder::new();
    let mut log = log_in(1 << 20, small(), Box::new(recorder.clone()));
    log.write(TABLE, b"a", b"1").unwrap();
    log.turn();
    recorder.hold(true);
    let written = log.write(TABLE, b"b", b"2").unwrap();
    log.turn();
    let durable = |log: &Log, key: &[u8]| {
        let object = log.read(TABLE, key).unwrap().unwrap();
        log.durable_at(&object)
    };
    assert_eq!(durable(&log, b"a"), None);
    assert_eq!(durable(&log, b"b"), Some(written.position));
    assert!(log.durable() < written.position);
    recorder.hold(false);
    log.turn();
    assert_eq!(durable(&log, b"b"), None);
    assert!(log.durable() >= written.position);
}

#[test]
fn a_log_that_is_dropped_hands_over_its_last_writes() {
    let recorder = Recorder::new();
    let mut log = log_in(1 << 20, small(), Box::new(recorder.clone()));
    log.write(TABLE, b"k", b"v").unwrap();
    log.write(TABLE, b"gone", b"v").unwrap();
    log.delete(TABLE, b"gone", Condition::Present).unwrap();
    drop(log);
    let (rebuilt, _) = replay(&recorded(&recorder), SegmentId::NONE);
    let found = keys(&rebuilt, TabletRange::whole(TABLE));
    assert_eq!(found, BTreeMap::from([(b"k".to_vec(), b"v".to_vec())]));
}

#[test]
fn no_acknowledged_write_is_lost_while_backups_lag_behind_the_cleaner() {
    // While the backups are held up, the cleaner goes on. At each crash point, every write that was
    // durable then is found, at its version or a later one.
    let recorder = Recorder::new();
    let mut options = small();
    options.cleaner.free_fraction_low = 1.0;
    options.cleaner.free_share_low = 1.0;
    let mut log = log_in(256 << 10, options, Box::new(recorder.clone()));
    let mut cleaner = log.cleaner().unwrap();
    let mut acknowledged: BTreeMap<Vec<u8>, Version> = BTreeMap::new();
    let mut waiting = Vec::new();
    for round in 0..6_000u32 {
        recorder.hold(round % 50 < 40);
        let key = (round.wrapping_mul(2_654_435_761) % 300).to_be_bytes().to_vec();
        if let Ok(written) = log.write(TABLE, &key, &[round as u8; 120]) {
            waiting.push((written.position, key, written.version));
        }
        cleaner.step();
        log.turn();
        let durable = log.durable();
        waiting.retain(|(position, key, version)| {
            if *position <= durable {
                acknowledged.insert(key.clone(), *version);
            }
            *position > durable
        });
        if round % 500 == 499 {
            let replicas = recorder.replicas(recorder.events());
            let newest = replicas.values().rev().find_map(|replica| {
                let reader = SegmentReader::new(&replica.bytes).ok()?;
                let digests = reader.filter_map(Result::ok).filter_map(|(_, entry)| match entry {
                    Entry::Digest(digest) if replica.open => Some(digest.segments),
                    _ => None,
                });
                digests.last()
            });
            let segments: Vec<Vec<u8>> =
                newest.unwrap().iter().map(|id| replicas[id].bytes.clone()).collect();
            let (rebuilt, _) = replay(&segments, SegmentId::NONE);
            for (key, version) in &acknowledged {
                let found = rebuilt.read(TABLE, key).unwrap().map(|object| object.version());
                assert!(found.is_some_and(|found| found >= *version), "{key:?} at {round}");
            }
        }
    }
    assert!(log.usage().passes > 0 && log.usage().compactions > 0);
}

#[test]
fn unworkable_options_are_refused_with_a_reason() {
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    type Change = fn(&mut Options);
    // Each with two parts of the refusal's text: the given value, and the limit.
    let bad: [(Change, [&str; 2]); 15] = [
        (|options| options.segment_bytes = 1500, ["1500", "1024"]),
        (|options| options.segment_bytes = 0, ["is 0", "at least eight"]),
        (|options| options.segment_bytes = 1 << 30, ["1073741824", "at least 4194304"]),
        (|options| options.segment_bytes = 1 << 40, ["1099511627776", "1 GiB"]),
        (|options| options.cleaner.safe_fraction = 1.5, ["1.5", "at most 1"]),
        (|options| options.cleaner.write_fraction = 0.99, ["0.99", "0.98"]),
        (|options| options.cleaner.write_fraction = 1e-9, ["write_fraction (0.0", "at least"]),
        (|options| options.cleaner.segments_per_pass = 1, ["is 1", "at least 2"]),
        (|options| options.cleaner.disk_expansion = 0.5, ["is 0.5", "1 to 100"]),
        (|options| options.cleaner.free_fraction_low = f64::NAN, ["NaN", "over 0"]),
        (|options| options.cleaner.delete_seglets = usize::MAX, ["18446744073709551615", "944"]),
        (|options| options.cleaner.delete_seglets = 945, ["is 945", "at most 944"]),
        (|options| options.cleaner.pool_segments = usize::MAX, ["is 18446744073709551615", "1024"]),
        (|options| options.cleaner.pool_segments = 0, ["is 0", "1 to 1024"]),
        (|options| options.cleaner.pool_segments = 58, ["pool_segments (58)", "at least 4160"]),
    ];
    for (change, parts) in bad {
        let mut options = small();
        change(&mut options);
        let result = Log::new(&memory, LogId(1), options, Box::new(NoReplication::default()));
        let text = result.err().unwrap().to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    // A refused log leaves the memory free for options that can work.
    let mut most = small();
    most.cleaner.delete_seglets = 900;
    Log::new(&memory, LogId(1), most, Box::new(NoReplication::default())).unwrap();
}

#[test]
fn a_memory_of_an_impossible_size_is_refused_with_the_possible_range() {
    for (bytes, seglet_bytes, part) in [
        (1 << 20, 1 << 17, "1048832 to "),
        (8448 - 1, 1024, "8448 to "),
        (usize::MAX, 1024, " to "),
        (1 << 47, 1 << 16, " to 140737488355327"),
    ] {
        let text = Memory::with_seglets(bytes, seglet_bytes).err().unwrap().to_string();
        assert!(text.contains(part) && text.contains(&bytes.to_string()), "{text}");
    }
    Memory::with_seglets(8448, 1024).unwrap();
}

#[test]
fn reads_find_no_key_that_cannot_exist() {
    let mut log = log();
    assert!(log.read(TABLE, b"").unwrap().is_none());
    assert!(log.read(TABLE, &vec![1; KEY_BYTES_MAX + 1]).unwrap().is_none());
    assert_eq!(log.write(TABLE, b"", b""), Err(Error::KeyEmpty));
}

#[test]
fn an_unfinished_replay_is_abandoned_by_dropping_its_tablets() {
    let recorder = Recorder::new();
    let mut log = log_in(1 << 20, small(), Box::new(recorder.clone()));
    let completion = Completion { lease: LeaseId(1), sequence: Sequence(1), result: b"done" };
    log.write_completed(TABLE, b"k", b"v", Condition::Always, completion).unwrap();
    log.turn();
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let replicator = Box::new(NoReplication::default());
    let mut log = Log::new(&memory, LogId(4), small(), replicator).unwrap();
    let range = TabletRange::whole(TABLE);
    let mut replay = Replay::new(&mut log, [(range, SegmentId::NONE)]).unwrap();
    replay.segment(&recorded(&recorder)[0]).unwrap();
    drop(replay);
    assert!(log.read(TABLE, b"k").unwrap().is_some(), "it stays when the replay is dropped");
    assert!(log.drop_tablet(range));
    log.create_tablet(range).unwrap();
    assert!(log.read(TABLE, b"k").unwrap().is_none());
}

#[test]
fn a_tablet_without_hashes_is_refused() {
    let mut log = log();
    let range = TabletRange { table: TableId(2), first: KeyHash(2), last: KeyHash(1) };
    assert_eq!(log.create_tablet(range), Err(Error::RangeReversed(range)));
    log.create_tablet(TabletRange { last: KeyHash(2), ..range }).unwrap();
}
