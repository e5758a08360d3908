//! Cleaners beside a writer: they lose no object, change none, and sweep almost empty segments.

use crate::{TABLE, keys, log_in, nothing, options, patiently};
use thunderhead_log::{CleanerThreads, Condition, Log, Options, TabletRange, Tombstones};

/// Two cleaners on threads of their own beside a writer that checks every object.
#[test]
fn cleaners_on_threads_lose_no_object_and_change_none() {
    for tombstones in [Tombstones::Folded, Tombstones::Classic] {
        let options = Options { segment_bytes: 64 << 10, tombstones, ..Options::default() };
        let mut log = log_in(4 << 20, options, nothing());
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

/// Few keys, written again and again: old versions are dead, and are swept without being copied.
#[test]
fn almost_empty_segments_are_swept_with_few_residuals() {
    let usage = |utilization_swept: f64| {
        let mut options = options();
        options.cleaner.utilization_swept = utilization_swept;
        let mut log = log_in(512 << 10, options, nothing());
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
