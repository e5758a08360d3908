//! Versions: those of a key never go back, and no write makes one above the highest.

use crate::{TABLE, log, log_of, log_with_table, nothing, options, segments};
use thunderhead_log::{
    Completion, Condition, Error, LeaseId, Put, Recorder, Replay, SegmentId, Sequence, TabletRange,
    Version,
};

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
