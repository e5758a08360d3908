//! Replays and rebuilds: logs of full memories, refused segments and tablets, and early ends.

use crate::{TABLE, log, log_in, log_of, log_with_table, nothing, options, segments, stubbornly};
use thunderhead_log::{
    Completion, Condition, Damage, Error, LeaseId, Log, Options, Rebuild, Recorder, Replay,
    ReplayError, SegmentId, Sequence, TableId, TabletRange,
};

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
    let flags = newer[at] & 0xe0 | 20;
    let checksum = checksum ^ mix(newer[at]) ^ mix(flags);
    newer[at] = flags;
    newer[at + 1..at + 5].copy_from_slice(&checksum.to_le_bytes());
    let unknown = replay.segment(&newer);
    assert!(matches!(unknown, Err(ReplayError::Damaged(Damage::UnknownKind { kind: 20, .. }))));
}

#[test]
fn a_replay_refuses_entries_too_long_for_the_new_segments() {
    let recorder = Recorder::new();
    let wide = Options { segment_bytes: 256 << 10, ..Options::default() };
    let mut log = log_in(4 << 20, wide, Box::new(recorder.clone()));
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
    let mut log = log();
    let new = TabletRange::whole(TableId(2));
    let tablets = [(new, SegmentId::NONE), (TabletRange::whole(TABLE), SegmentId::NONE)];
    assert!(matches!(Replay::new(&mut log, tablets), Err(Error::TabletExists(_))));
    log.turn();
    log.create_tablet(new).unwrap();
}

#[test]
fn an_unfinished_replay_is_abandoned_by_dropping_its_tablets() {
    let recorder = Recorder::new();
    let mut log = log_with_table(1, Box::new(recorder.clone()));
    let completion = Completion { lease: LeaseId(1), sequence: Sequence(1), result: b"done" };
    log.write_completed(TABLE, b"k", b"v", Condition::Always, completion).unwrap();
    log.turn();
    let mut log = log_of(4, 1 << 20, options(), nothing());
    let range = TabletRange::whole(TABLE);
    let mut replay = Replay::new(&mut log, [(range, SegmentId::NONE)]).unwrap();
    replay.segment(&segments(&recorder)[0]).unwrap();
    drop(replay);
    assert!(log.read(TABLE, b"k").unwrap().is_some(), "it stays when the replay is dropped");
    assert!(log.drop_tablet(range));
    log.create_tablet(range).unwrap();
    assert!(log.read(TABLE, b"k").unwrap().is_none());
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
