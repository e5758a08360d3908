//! Completion records: each is recorded with its update, and stays until it is forgotten.

use crate::{TABLE, log, log_in, log_with_table, nothing, options, patiently, replay, segments};
use thunderhead_log::inspect::SegmentReader;
use thunderhead_log::{
    Completion, Condition, Cursor, Error, LeaseId, Log, Recorder, SegmentId, Sequence, TableId,
    TabletRange,
};

#[test]
fn an_update_is_completed_once() {
    let mut log = log();
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
fn a_completion_record_and_its_object_are_replayed_together_or_not_at_all() {
    let recorder = Recorder::new();
    let mut log = log_with_table(1, Box::new(recorder.clone()));
    let completion = Completion { lease: LeaseId(7), sequence: Sequence(1), result: b"done" };
    log.write_completed(TABLE, b"k", b"v", Condition::Always, completion).unwrap();
    log.turn();
    assert_eq!(log.completion(LeaseId(7), Sequence(1)).unwrap().to_vec(), b"done");
    let whole = segments(&recorder).pop().unwrap();
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
    let mut log = log_with_table(1, Box::new(recorder.clone()));
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
    let whole = segments(&recorder).pop().unwrap();
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
    let mut log = log_in(256 << 10, options(), nothing());
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
    let (mut seen, mut cursor) = (Vec::new(), Some(Cursor::default()));
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

#[test]
fn completion_records_of_dropped_tablets_are_forgotten() {
    let mut log = log();
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
