//! Tablets: unknown, refused, divided, dropped, and created again.

use crate::{
    TABLE, keys, log, log_in, log_with_table, nothing, options, patiently, replay, segments,
};
use std::collections::BTreeMap;
use thunderhead_log::{Condition, Error, HashedKey, KeyHash, Log, Recorder, TableId, TabletRange};

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
fn a_tablet_without_hashes_is_refused() {
    let mut log = log();
    let range = TabletRange { table: TableId(2), first: KeyHash(2), last: KeyHash(1) };
    assert_eq!(log.create_tablet(range), Err(Error::RangeReversed(range)));
    log.create_tablet(TabletRange { last: KeyHash(2), ..range }).unwrap();
}

#[test]
fn tablets_of_which_one_is_refused_leave_none_of_their_message() {
    let mut log = log();
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

#[test]
fn two_tablets_of_one_table_each_hold_half_of_it() {
    let mut log = log();
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
fn a_dropped_tablet_gives_its_memory_back_without_a_delete() {
    let mut log = log_in(512 << 10, options(), nothing());
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
    let mut log = log_with_table(1, Box::new(recorder.clone()));
    log.write(TABLE, b"old", b"1").unwrap();
    log.write(TABLE, b"both", b"1").unwrap();
    log.drop_tablet(TabletRange::whole(TABLE));
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    assert!(log.read(TABLE, b"old").unwrap().is_none());
    log.write(TABLE, b"both", b"2").unwrap();
    log.turn();
    let (_, since) = log.tablets().next().unwrap();
    let (rebuilt, report) = replay(&segments(&recorder), since);
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
