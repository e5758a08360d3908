//! Memory that is full or just enough: the log refuses some updates, and callers that try again
//! make progress.

use crate::{TABLE, keys, log, log_in, nothing, options, patiently, stubbornly};
use thunderhead_log::{
    Completion, Condition, Error, LeaseId, Log, Options, Recorder, Sequence, TableId, TabletRange,
    Tombstones,
};

#[test]
fn full_memory_refuses_writes_but_not_reads_and_deletes_and_recovers() {
    for tombstones in [Tombstones::Folded, Tombstones::Classic] {
        let options = Options { tombstones, segment_bytes: 64 << 10, ..options() };
        let mut log = log_in(4 << 20, options, nothing());
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
        let mut log = log_in(2 << 20, options, nothing());
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
fn callers_that_only_try_again_make_progress() {
    for compaction in [true, false] {
        let mut options = options();
        options.cleaner.compaction = compaction;
        let mut log = log_in(1 << 20, options, Box::new(Recorder::new()));
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
    let mut log = log();
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
fn tablets_leave_the_memory_that_writes_and_deletes_need() {
    for live in [0u64, 1_000] {
        let mut log = log();
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
