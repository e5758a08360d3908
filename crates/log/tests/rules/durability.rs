//! Durable updates: a log tells when an update is durable, and a durable update is not lost.

use crate::{TABLE, keys, log_in, log_with_table, options, replay, segments};
use std::collections::BTreeMap;
use thunderhead_log::inspect::{Entry, SegmentReader};
use thunderhead_log::{Condition, Log, Recorder, SegmentId, TabletRange, Version};

#[test]
fn a_read_tells_when_its_object_will_be_durable() {
    let recorder = Recorder::new();
    let mut log = log_with_table(1, Box::new(recorder.clone()));
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
    let mut log = log_with_table(1, Box::new(recorder.clone()));
    log.write(TABLE, b"k", b"v").unwrap();
    log.write(TABLE, b"gone", b"v").unwrap();
    log.delete(TABLE, b"gone", Condition::Present).unwrap();
    drop(log);
    let (rebuilt, _) = replay(&segments(&recorder), SegmentId::NONE);
    let found = keys(&rebuilt, TabletRange::whole(TABLE));
    assert_eq!(found, BTreeMap::from([(b"k".to_vec(), b"v".to_vec())]));
}

#[test]
fn no_acknowledged_write_is_lost_while_backups_lag_behind_the_cleaner() {
    // While the backups are held up, the cleaner goes on. At each crash point, every write that was
    // durable then is found, at its version or a later one.
    let recorder = Recorder::new();
    let mut options = options();
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
