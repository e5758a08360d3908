//! Rules at the edges: memory that is just enough, replays of odd segments, callers that only try
//! again.

use thunderhead_log::{
    CLEANERS_MAX, Cleaner, CleanerThreads, Completion, Condition, Cursor, Damage, Error, KeyHash,
    LeaseId, Log, LogId, Memory, NoReplication, Options, Put, Rebuild, Recorder, Replay,
    ReplayError, Replicator, SegmentId, Sequence, TableId, TabletRange, Tombstones, Version,
};

const TABLE: TableId = TableId(1);

fn options() -> Options {
    Options { segment_bytes: 16 << 10, ..Options::default() }
}

fn log_of(id: u64, bytes: usize, options: Options, replicator: Box<dyn Replicator>) -> Log {
    let memory = Memory::with_seglets(bytes, 1024).unwrap();
    Log::new(&memory, LogId(id), options, replicator).unwrap()
}

fn log_with_table(id: u64, replicator: Box<dyn Replicator>) -> Log {
    let mut log = log_of(id, 1 << 20, options(), replicator);
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    log
}

fn nothing() -> Box<NoReplication> {
    Box::default()
}

fn segments(recorder: &Recorder) -> Vec<Vec<u8>> {
    recorder.replicas(recorder.events()).into_values().map(|replica| replica.bytes).collect()
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

#[test]
fn a_memory_serves_one_log() {
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let log = Log::new(&memory, LogId(1), options(), nothing()).unwrap();
    let second = Log::new(&memory, LogId(2), options(), nothing());
    assert!(second.err().unwrap().to_string().contains("make another"));
    drop(log);
}

#[test]
fn a_log_has_no_more_cleaners_than_the_limit() {
    let log = log_with_table(1, nothing());
    let cleaner = log.cleaner().unwrap();
    let threads = CleanerThreads::start(&log, 100, |_| {});
    assert_eq!(threads.count(), CLEANERS_MAX - 1);
    assert!(log.cleaner().is_none());
    drop((threads, cleaner));
    assert_eq!(CleanerThreads::start(&log, 100, |_| {}).count(), CLEANERS_MAX);
}

#[test]
fn callers_that_only_try_again_make_progress() {
    for compaction in [true, false] {
        let mut options = options();
        options.cleaner.compaction = compaction;
        let mut log = log_of(1, 1 << 20, options, Box::new(Recorder::new()));
        log.create_tablet(TabletRange::whole(TABLE)).unwrap();
        let mut cleaner = log.cleaner().unwrap();
        for round in 0..40_000u64 {
            let key = (round % 300).to_be_bytes();
            let sequence = Sequence(round);
            let completion = Completion { lease: LeaseId(1), sequence, result: &[1; 400] };
            stubbornly(&mut log, &mut cleaner, |log| {
                log.write_completed(TABLE, &key, &[2; 300], Condition::Always, completion)
            })
            .unwrap();
            let is_old = round >= 300;
            assert!(!is_old || log.forget_completion(LeaseId(1), Sequence(round - 300)));
        }
    }
}

#[test]
fn created_and_dropped_tables_do_not_block_the_cleaner() {
    let mut log = log_with_table(1, nothing());
    let mut cleaner = log.cleaner().unwrap();
    let other = TabletRange::whole(TableId(2));
    let mut behind = 0;
    for round in 0..60_000u64 {
        let key = (round * 7919 % 4000).to_be_bytes();
        match log.write(TABLE, &key, &[3; 100]) {
            Ok(_) => behind = 0,
            Err(error) => {
                assert_eq!(error, Error::CleanerBehind);
                behind += 1;
                assert!(behind < 200, "{:?}", log.usage());
                if log.create_tablet(other).is_ok() {
                    assert!(log.drop_tablet(other));
                }
                cleaner.step();
                log.turn();
            }
        }
    }
}

#[test]
fn a_full_log_is_rebuilt_in_a_memory_of_the_same_size() {
    let recorder = Recorder::new();
    let mut log = log_with_table(1, Box::new(recorder.clone()));
    let mut cleaner = log.cleaner().unwrap();
    let mut count = 0u64;
    let full = loop {
        let key = count.to_be_bytes();
        match stubbornly(&mut log, &mut cleaner, |log| log.write(TABLE, &key, &[1; 100])) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::MemoryFull { .. }));
    for round in 0..3 * count {
        let key = (round % count).to_be_bytes();
        match stubbornly(&mut log, &mut cleaner, |log| log.write(TABLE, &key, &[2; 100])) {
            Ok(_) | Err(Error::MemoryFull { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    log.turn();
    let mut rebuilt = log_of(2, 1 << 20, options(), nothing());
    replayed(&segments(&recorder), &mut rebuilt).unwrap();
    for number in 0..count {
        assert!(rebuilt.read(TABLE, &number.to_be_bytes()).unwrap().is_some());
    }
}

#[test]
fn tablets_leave_the_memory_that_writes_and_deletes_need() {
    for live in [0u64, 1_000] {
        let mut log = log_with_table(1, nothing());
        let mut cleaner = log.cleaner().unwrap();
        for number in 0..live {
            log.write(TABLE, &number.to_be_bytes(), &[1; 100]).unwrap();
        }
        let mut tables = (2..).map(|table| TabletRange::whole(TableId(table)));
        let full = tables
            .by_ref()
            .find_map(|table| {
                stubbornly(&mut log, &mut cleaner, |log| log.create_tablet(table)).err()
            })
            .unwrap();
        assert!(matches!(full, Error::MemoryFull { .. }), "{full}");
        // The longest object finds room beside the live objects, and so does every delete.
        let long = vec![2; log.options().value_bytes_max()];
        stubbornly(&mut log, &mut cleaner, |log| log.write(TABLE, &[2; 2048], &long)).unwrap();
        for round in 0..20 * live {
            let key = (round % live.max(1)).to_be_bytes();
            let work = |log: &mut Log| log.delete(TABLE, &key, Condition::Present);
            stubbornly(&mut log, &mut cleaner, work).unwrap();
            stubbornly(&mut log, &mut cleaner, |log| log.write(TABLE, &key, &[3; 90])).unwrap();
        }
        log.delete(TABLE, &[2; 2048], Condition::Present).unwrap();
        assert!(log.drop_tablet(TabletRange::whole(TableId(2))));
        let again = TabletRange::whole(TableId(2));
        stubbornly(&mut log, &mut cleaner, |log| log.create_tablet(again)).unwrap();
    }
}

/// Replays into a log to the end, or until the log returns a final error.
fn replayed(segments: &[Vec<u8>], rebuilt: &mut Log) -> Result<(), ReplayError> {
    let mut cleaner = rebuilt.cleaner().unwrap();
    let mut replay = Replay::new(rebuilt, [(TabletRange::whole(TABLE), SegmentId::NONE)]).unwrap();
    for segment in segments {
        let mut tries = 0;
        while let Err(error) = replay.segment(segment) {
            if error != ReplayError::Log(Error::CleanerBehind) {
                return Err(error);
            }
            cleaner.step();
            tries += 1;
            assert!(tries < 10_000, "trying again never helps");
        }
    }
    replay.finish().map(drop).map_err(Into::into)
}

#[test]
fn a_replay_into_too_small_a_memory_ends_with_an_error_that_is_final() {
    // Live objects alone; tombstones alone, of which a replay remembers each.
    for delete in [false, true] {
        let recorder = Recorder::new();
        let mut log = log_with_table(1, Box::new(recorder.clone()));
        let mut cleaner = log.cleaner().unwrap();
        for number in 0..7_000u64 {
            let key = [number.to_be_bytes(); 4].concat();
            stubbornly(&mut log, &mut cleaner, |log| log.write(TABLE, &key, &[1; 50])).unwrap();
            if delete {
                stubbornly(&mut log, &mut cleaner, |log| {
                    log.delete(TABLE, &key, Condition::Always)
                })
                .unwrap();
            }
        }
        log.turn();
        let mut rebuilt = log_of(2, 300 << 10, options(), nothing());
        let error = replayed(&segments(&recorder), &mut rebuilt).unwrap_err();
        assert!(matches!(error, ReplayError::Log(Error::MemoryFull { .. })), "{error}");
    }
}

#[test]
fn versions_do_not_go_back_over_two_recoveries() {
    let (first, second) = (Recorder::new(), Recorder::new());
    let mut log = log_with_table(1, Box::new(first.clone()));
    for _ in 0..50 {
        log.write(TABLE, b"k", b"v").unwrap();
    }
    log.delete(TABLE, b"k", Condition::Present).unwrap();
    log.turn();
    let mut log = log_of(2, 1 << 20, options(), Box::new(second.clone()));
    let tablets = [(TabletRange::whole(TABLE), SegmentId::NONE)];
    let mut replay = Replay::new(&mut log, tablets).unwrap();
    segments(&first).iter().for_each(|segment| replay.segment(segment).unwrap());
    replay.finish().unwrap();
    let mut log = log_of(3, 1 << 20, options(), nothing());
    let mut replay = Replay::new(&mut log, tablets).unwrap();
    segments(&second).iter().for_each(|segment| replay.segment(segment).unwrap());
    replay.finish().unwrap();
    assert!(log.write(TABLE, b"k", b"v").unwrap().version > Version(50));
}

#[test]
fn a_raised_safe_version_is_in_the_log() {
    let recorder = Recorder::new();
    let mut log = log_with_table(1, Box::new(recorder.clone()));
    let position = log.raise_safe_version(Version(900)).unwrap();
    assert!(position <= log.appended());
    let refused = log.raise_safe_version(Version(u64::MAX));
    assert_eq!(refused, Err(Error::VersionTooHigh { version: Version(u64::MAX) }));
    log.turn();
    assert!(log.durable() >= position);
    let mut rebuilt = log_of(2, 1 << 20, options(), nothing());
    let tablets = [(TabletRange::whole(TABLE), SegmentId::NONE)];
    let mut replay = Replay::new(&mut rebuilt, tablets).unwrap();
    segments(&recorder).iter().for_each(|segment| replay.segment(segment).unwrap());
    replay.finish().unwrap();
    assert_eq!(rebuilt.safe_version(), Version(900));
}

#[test]
fn no_write_makes_a_version_that_a_replay_would_refuse() {
    let recorder = Recorder::new();
    let mut log = log_with_table(1, Box::new(recorder.clone()));
    log.raise_safe_version(Version(Version::HIGHEST.0 - 1)).unwrap();
    assert_eq!(log.write(TABLE, b"k", b"v").unwrap().version, Version::HIGHEST);
    log.raise_safe_version(Version::HIGHEST).unwrap();
    let refused = Err(Error::VersionTooHigh { version: Version::HIGHEST.next() });
    for key in [b"k", b"n"] {
        assert_eq!(log.write(TABLE, key, b"w"), refused);
        let condition = Condition::VersionBelow(Version(u64::MAX));
        assert_eq!(log.write_if(TABLE, key, b"w", condition), refused);
        let completion = Completion { lease: LeaseId(1), sequence: Sequence(1), result: b"" };
        let completed = log.write_completed(TABLE, key, b"w", Condition::Always, completion);
        assert_eq!(completed, refused);
        let put = Put { table: TABLE, key, value: b"w", condition: Condition::Always };
        log.write_batch(&[put], |_, written| assert_eq!(written, refused));
    }
    assert!(log.completion(LeaseId(1), Sequence(1)).is_none());
    log.turn();
    let tablets = [(TabletRange::whole(TABLE), SegmentId::NONE)];
    let mut rebuilt = log_of(2, 1 << 20, options(), nothing());
    let mut replay = Replay::new(&mut rebuilt, tablets).unwrap();
    segments(&recorder).iter().for_each(|segment| replay.segment(segment).unwrap());
    assert_eq!(replay.finish().unwrap().damage, []);
    assert_eq!(rebuilt.read(TABLE, b"k").unwrap().unwrap().version(), Version::HIGHEST);
    // A delete makes no version; creating the key again would.
    assert_eq!(log.delete(TABLE, b"k", Condition::Always), Ok(Some(Version::HIGHEST)));
    assert_eq!(log.write(TABLE, b"k", b"v"), refused);
}

#[test]
fn a_replay_refuses_segments_of_other_logs_and_unknown_kinds() {
    let (mine, others) = (Recorder::new(), Recorder::new());
    for (id, recorder) in [(1, &mine), (9, &others)] {
        let mut log = log_with_table(id, Box::new(recorder.clone()));
        log.write(TABLE, b"k", b"v").unwrap();
        log.turn();
    }
    let mut log = log_of(2, 1 << 20, options(), nothing());
    let tablets = [(TabletRange::whole(TABLE), SegmentId::NONE)];
    let mut replay = Replay::new(&mut log, tablets).unwrap();
    let mine = segments(&mine);
    replay.segment(&mine[0]).unwrap();
    let foreign = replay.segment(&segments(&others)[0]);
    assert!(matches!(foreign, Err(ReplayError::Damaged(Damage::OtherLog { .. }))));
    // The last entry becomes one of a kind that this version must understand.
    let mut newer = mine[0].clone();
    let entries = thunderhead_log::inspect::SegmentReader::new(&newer).unwrap();
    let at = entries.filter_map(Result::ok).last().unwrap().0 as usize;
    let mix = |flags: u8| u32::from(flags).wrapping_mul(0x9e37_79b1);
    let checksum = u32::from_le_bytes(newer[at + 1..at + 5].try_into().unwrap());
    let flags = newer[at] & 0xe0 | 19;
    let checksum = checksum ^ mix(newer[at]) ^ mix(flags);
    newer[at] = flags;
    newer[at + 1..at + 5].copy_from_slice(&checksum.to_le_bytes());
    let unknown = replay.segment(&newer);
    assert!(matches!(unknown, Err(ReplayError::Damaged(Damage::UnknownKind { kind: 19, .. }))));
}

#[test]
fn a_replay_refuses_entries_too_long_for_the_new_segments() {
    let recorder = Recorder::new();
    let wide = Options { segment_bytes: 256 << 10, ..Options::default() };
    let mut log = log_of(1, 4 << 20, wide, Box::new(recorder.clone()));
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    log.write(TABLE, b"long", &[1; 20 << 10]).unwrap();
    log.turn();
    let mut narrow = log_of(2, 1 << 20, options(), nothing());
    let tablets = [(TabletRange::whole(TABLE), SegmentId::NONE)];
    let free = narrow.usage().free_bytes;
    let mut replay = Replay::new(&mut narrow, tablets).unwrap();
    let refused = replay.segment(&segments(&recorder)[0]);
    assert!(matches!(refused, Err(ReplayError::Log(Error::ValueTooLong { .. }))));
    drop(replay);
    assert!(free - narrow.usage().free_bytes < 16 << 10, "{:?}", narrow.usage());
}

#[test]
fn a_replay_that_cannot_begin_leaves_no_tablet_behind() {
    let mut log = log_with_table(1, nothing());
    let new = TabletRange::whole(TableId(2));
    let tablets = [(new, SegmentId::NONE), (TabletRange::whole(TABLE), SegmentId::NONE)];
    assert!(matches!(Replay::new(&mut log, tablets), Err(Error::TabletExists(_))));
    log.turn();
    log.create_tablet(new).unwrap();
}

#[test]
fn an_update_is_completed_once() {
    let mut log = log_with_table(1, nothing());
    let (lease, sequence) = (LeaseId(4), Sequence(2));
    let completion = Completion { lease, sequence, result: b"first" };
    log.write_completed(TABLE, b"k", b"1", Condition::Always, completion).unwrap();
    let again = Completion { result: b"second", ..completion };
    let refused = log.write_completed(TABLE, b"k", b"2", Condition::Always, again);
    assert_eq!(refused, Err(Error::AlreadyCompleted { lease, sequence }));
    assert_eq!(log.read(TABLE, b"k").unwrap().unwrap().value().to_vec(), b"1");
    assert_eq!(log.completion(lease, sequence).unwrap().to_vec(), b"first");
    assert!(log.forget_completion(lease, sequence) && !log.forget_completion(lease, sequence));
}

#[test]
fn completion_records_of_dropped_tablets_are_forgotten() {
    let mut log = log_with_table(1, nothing());
    log.create_tablet(TabletRange::whole(TableId(2))).unwrap();
    for number in 0..300 {
        let table = if number % 3 == 0 { TABLE } else { TableId(2) };
        let sequence = Sequence(number);
        let completion = Completion { lease: LeaseId(4), sequence, result: b"done" };
        log.write_completed(table, b"k", b"v", Condition::Always, completion).unwrap();
    }
    let sweep = |log: &mut Log| {
        let (mut cursor, mut gone) = (Some(Cursor::default()), 0);
        while let Some(at) = cursor {
            cursor = log.forget_homeless_completions(at, |_, _| gone += 1);
        }
        gone
    };
    assert_eq!(sweep(&mut log), 0);
    log.drop_tablet(TabletRange::whole(TableId(2)));
    assert_eq!(sweep(&mut log), 200);
    assert!(log.completion(LeaseId(4), Sequence(1)).is_none());
    assert!(log.completion(LeaseId(4), Sequence(0)).is_some());
}

#[test]
#[should_panic(expected = "in the log it began in")]
fn a_rebuild_does_not_go_on_in_another_log() {
    let recorder = Recorder::new();
    let (mut log, mut other) =
        (log_of(1, 1 << 20, options(), nothing()), log_with_table(2, Box::new(recorder.clone())));
    let mut rebuild =
        Rebuild::begin(&mut log, [(TabletRange::whole(TABLE), SegmentId::NONE)]).unwrap();
    let _ = rebuild.step(&mut other, &segments(&recorder)[0], 0, 10, 1000);
}

/// Two cleaners on threads of their own beside a writer that checks every object.
#[test]
fn cleaners_on_threads_lose_no_object_and_change_none() {
    for tombstones in [Tombstones::Folded, Tombstones::Classic] {
        let options = Options { segment_bytes: 64 << 10, tombstones, ..Options::default() };
        let mut log = log_of(1, 4 << 20, options, nothing());
        log.create_tablet(TabletRange::whole(TABLE)).unwrap();
        let _cleaners = CleanerThreads::start(&log, 2, |_| {});
        let keys = 18_000u64;
        let mut versions = vec![None; keys as usize];
        let mut random = 88_172_645_463_325_252u64;
        for round in 0..250_000u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let number = random % keys;
            let key = number.to_be_bytes();
            let value = [number.to_be_bytes(), round.to_be_bytes()].concat().repeat(8);
            let expected = &mut versions[number as usize];
            loop {
                let result = if random >> 60 == 0 {
                    log.delete(TABLE, &key, Condition::Always).map(|_| None)
                } else {
                    log.write(TABLE, &key, &value).map(|_| Some(round))
                };
                match result {
                    Ok(now) => break *expected = now,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
                log.turn();
            }
            if round % 8 == 0 {
                let other = (random >> 20) % keys;
                check(&log, other, versions[other as usize]);
            }
        }
        (0..keys).for_each(|number| check(&log, number, versions[number as usize]));
        assert!(log.usage().compactions + log.usage().passes > 0, "{:?}", log.usage());
    }
}

fn check(log: &Log, number: u64, round: Option<u64>) {
    let found = log.read(TABLE, &number.to_be_bytes()).unwrap();
    let found = found.map(|object| object.value().to_vec());
    let expected =
        round.map(|round| [number.to_be_bytes(), round.to_be_bytes()].concat().repeat(8));
    assert_eq!(found, expected, "object {number}");
}

#[test]
fn tablets_of_which_one_is_refused_leave_none_of_their_message() {
    let mut log = log_with_table(1, nothing());
    let first = TabletRange { last: KeyHash(9), ..TabletRange::whole(TableId(1000)) };
    let second = TabletRange { first: KeyHash(10), ..TabletRange::whole(TableId(1000)) };
    let taken = TabletRange { last: KeyHash(9), ..TabletRange::whole(TABLE) };
    log.create_tablet(first).unwrap();
    log.write(TABLE, b"key", b"value").unwrap();
    let before: Vec<_> = log.tablets().map(|(range, _)| range).collect();
    let refused = log.create_tablets(&[first, second, taken]);
    assert_eq!(refused, Err(Error::TabletExists(TabletRange::whole(TABLE))));
    let tablets = |log: &Log| log.tablets().map(|(range, _)| range).collect::<Vec<_>>();
    assert_eq!(tablets(&log), before, "the first one was there, and the second one is not");
    // Nothing of the attempt is in the way.
    log.create_tablets(&[first, second]).unwrap();
    assert_eq!(log.tablets().count(), before.len() + 1);
}
