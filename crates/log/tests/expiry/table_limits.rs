//! Tables with a maximum or a reservation, in a memory that others fill.

use crate::{TABLE, Watch, log_with, replayed};
use proptest::prelude::*;
use std::collections::BTreeMap;
use thunderhead_log::{
    Attributes, Cleaner, Completion, Condition, Error, HashedKey, KeyHash, LeaseId, Log, Recorder,
    Sequence, TableId, TableLimits, TabletRange,
};

const OTHER: TableId = TableId(8);
const MAX: u64 = 20_000;

fn cached() -> Attributes {
    Attributes { is_cached: true, ..Attributes::NONE }
}

fn cache(max_bytes: Option<u64>, reserved_bytes: u64) -> TableLimits {
    TableLimits { max_bytes, reserved_bytes, is_cache: true }
}

fn durable(max_bytes: u64) -> TableLimits {
    TableLimits { max_bytes: Some(max_bytes), reserved_bytes: 0, is_cache: false }
}

/// A log with two tables.
fn two_tables(memory_bytes: usize) -> Log {
    let mut log = log_with(memory_bytes, Recorder::new(), &Watch::default());
    log.create_tablet(TabletRange::whole(OTHER)).unwrap();
    log
}

fn bytes_of(log: &Log, table: TableId) -> u64 {
    log.statistics().filter(|it| it.tablet.table == table).map(|it| it.bytes).sum()
}

/// Writes an object of a cache, as a shard does.
fn put(
    log: &mut Log,
    cleaner: &mut Cleaner,
    table: TableId,
    key: &[u8],
    value: &[u8],
) -> Result<u32, Error> {
    for tries in 0..500 {
        let hashed = HashedKey::of(key);
        let bytes = key.len() + value.len();
        if log.wants_room_in_tablet(table, hashed, bytes) {
            log.make_room_in_tablet(table, hashed, bytes);
        }
        match log.with_attributes(cached(), |log| log.write(table, key, value)) {
            Ok(_) => return Ok(tries),
            Err(Error::CleanerBehind) => {}
            Err(error) => return Err(error),
        }
        cleaner.step();
        log.turn();
    }
    panic!("no progress: {:?}", log.usage());
}

fn count(log: &Log, table: TableId, numbers: std::ops::Range<u32>) -> usize {
    numbers.filter(|it| log.read(table, &it.to_be_bytes()).unwrap().is_some()).count()
}

#[test]
fn a_durable_table_refuses_only_writes_that_make_it_larger_than_its_maximum() {
    let mut log = two_tables(1 << 20);
    log.limit_table(TABLE, durable(MAX));
    let mut written = 0u32;
    let full = loop {
        match log.write(TABLE, &written.to_be_bytes(), &[1; 100]) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::TabletFull { table: TABLE, limit_bytes: MAX, .. }), "{full}");
    assert!(!full.is_transient());
    let bytes = bytes_of(&log, TABLE);
    assert!(bytes <= MAX && bytes + 200 > MAX, "{bytes}");
    // Writes of the same size go on for ever, and none makes the table creep.
    for round in 0..5000u32 {
        log.write(TABLE, &(round % written).to_be_bytes(), &[2; 100]).unwrap();
    }
    let header = 40 * u64::from(written);
    assert!(bytes_of(&log, TABLE) <= MAX + header, "only headers grow a little");
    let longer = log.write(TABLE, &0u32.to_be_bytes(), &[3; 200]);
    assert!(matches!(longer, Err(Error::TabletFull { .. })), "{longer:?}");
    assert!(log.write(OTHER, b"other", &[1; 500]).is_ok(), "other tables go on");
    let completion = Completion { lease: LeaseId(1), sequence: Sequence(1), result: &[1; 20] };
    log.complete(TABLE, KeyHash::of(b"k"), completion).unwrap();
    let completion = Completion { lease: LeaseId(1), sequence: Sequence(2), result: &[1; 20] };
    let recorded = log.write_completed(TABLE, b"new", &[1; 100], Condition::Always, completion);
    assert!(matches!(recorded, Err(Error::TabletFull { .. })), "{recorded:?}");
    assert!(log.completion(LeaseId(1), Sequence(2)).is_none(), "nothing was recorded");
    for number in 0..3u32 {
        log.delete(TABLE, &number.to_be_bytes(), Condition::Present).unwrap();
    }
    assert!(log.write(TABLE, b"new", &[1; 100]).is_ok(), "deletes made room");
    log.retain_limits(|_| false);
    assert!(log.write(TABLE, b"large", &[1; 900]).is_ok(), "the limit is forgotten");
}

#[test]
fn a_cache_with_a_maximum_evicts_its_own_objects_only() {
    let mut log = two_tables(1 << 20);
    let mut cleaner = log.cleaner().unwrap();
    log.limit_table(TABLE, cache(Some(MAX), 0));
    log.limit_table(OTHER, cache(None, 0));
    for number in 0..1000u32 {
        put(&mut log, &mut cleaner, OTHER, &number.to_be_bytes(), &[1; 100]).unwrap();
    }
    let mut misses = 0;
    for number in 0..5000u32 {
        put(&mut log, &mut cleaner, TABLE, &number.to_be_bytes(), &[2; 100]).unwrap();
        let bytes = bytes_of(&log, TABLE);
        assert!(bytes <= MAX, "{number}: {bytes}");
        match log.read(TABLE, b"hot").unwrap() {
            Some(object) => object.count_use(),
            None => {
                misses += 1;
                put(&mut log, &mut cleaner, TABLE, b"hot", &[2; 100]).unwrap();
            }
        }
    }
    assert!(misses < 20, "an object that is used stays: {misses} misses");
    assert!(bytes_of(&log, TABLE) > MAX - 1000, "no more is evicted than needed");
    assert_eq!(count(&log, OTHER, 0..1000), 1000, "the other cache keeps its objects");
    let newest = count(&log, TABLE, 4900..5000);
    assert!(newest > 50, "{newest}");
    log.limit_table(TABLE, cache(Some(500), 0));
    let too_large = put(&mut log, &mut cleaner, TABLE, b"large", &[0; 900]);
    assert!(matches!(too_large, Err(Error::TabletFull { .. })), "{too_large:?}");
}

#[test]
fn a_large_object_replaces_many_small_ones_of_its_table_that_are_all_used() {
    let mut log = two_tables(1 << 20);
    let mut cleaner = log.cleaner().unwrap();
    log.limit_table(TABLE, cache(Some(MAX), 0));
    for number in 0..200u32 {
        put(&mut log, &mut cleaner, TABLE, &number.to_be_bytes(), &[2; 40]).unwrap();
        let object = log.read(TABLE, &number.to_be_bytes()).unwrap().unwrap();
        (0..3).for_each(|_| object.count_use());
    }
    let tries = put(&mut log, &mut cleaner, TABLE, b"large", &vec![3; 1000]).unwrap();
    assert!(tries < 3, "{tries} tries");
    // The object under the key itself is replaced and not evicted, so a condition finds it.
    let version = log.read(TABLE, b"large").unwrap().unwrap().version();
    let key = HashedKey::of(b"large");
    log.make_room_in_tablet(TABLE, key, 1000);
    assert_eq!(log.read(TABLE, b"large").unwrap().unwrap().version(), version);
}

#[test]
fn a_flood_of_one_table_takes_nothing_from_a_cache_within_its_reservation() {
    for flood_is_known in [true, false] {
        let mut log = two_tables(512 << 10);
        let mut cleaner = log.cleaner().unwrap();
        log.limit_table(TABLE, cache(None, 50_000));
        if flood_is_known {
            log.limit_table(OTHER, cache(None, 0));
        }
        for number in 0..300u32 {
            put(&mut log, &mut cleaner, TABLE, &number.to_be_bytes(), &[1; 100]).unwrap();
        }
        assert!(bytes_of(&log, TABLE) < 50_000);
        for number in 0..20_000u32 {
            put(&mut log, &mut cleaner, OTHER, &number.to_be_bytes(), &[2; 100]).unwrap();
        }
        assert!(log.usage().evicted > 10_000, "{:?}", log.usage());
        assert_eq!(count(&log, TABLE, 0..300), 300, "{flood_is_known}");
        // A cache above its reservation gives back only so much.
        for number in 300..20_000u32 {
            put(&mut log, &mut cleaner, TABLE, &number.to_be_bytes(), &[1; 100]).unwrap();
        }
        for number in 20_000..40_000u32 {
            put(&mut log, &mut cleaner, OTHER, &number.to_be_bytes(), &[2; 100]).unwrap();
        }
        let left = bytes_of(&log, TABLE);
        assert!(left > 49_000, "{flood_is_known}: {left}");
    }
}

#[test]
fn the_cache_furthest_above_its_reservation_makes_room() {
    let mut log = two_tables(512 << 10);
    let mut cleaner = log.cleaner().unwrap();
    log.limit_table(TABLE, cache(None, 10_000));
    log.limit_table(OTHER, cache(None, 100_000));
    for number in 0..20_000u32 {
        for table in [TABLE, OTHER] {
            put(&mut log, &mut cleaner, table, &number.to_be_bytes(), &[1; 100]).unwrap();
        }
    }
    let above = |table, reserved: u64| bytes_of(&log, table).checked_sub(reserved).unwrap();
    let (one, other) = (above(TABLE, 10_000), above(OTHER, 100_000));
    assert!(one.abs_diff(other) < 2_000, "{one} and {other} bytes above");
}

#[test]
fn a_write_is_refused_for_good_if_all_caches_are_within_their_reservations() {
    let mut log = two_tables(256 << 10);
    let mut cleaner = log.cleaner().unwrap();
    log.limit_table(TABLE, cache(None, 1 << 20));
    log.limit_table(OTHER, cache(None, 0));
    let refused = (0..10_000u32).find_map(|number| {
        put(&mut log, &mut cleaner, TABLE, &number.to_be_bytes(), &[1; 100]).err()
    });
    assert!(matches!(refused, Some(Error::MemoryFull { .. })), "{refused:?}");
    let refused = put(&mut log, &mut cleaner, OTHER, b"k", &[1; 100]);
    assert!(matches!(refused, Err(Error::MemoryFull { .. })), "{refused:?}");
    assert_eq!(log.usage().evicted, 0);
}

#[test]
fn each_tablet_has_a_share_for_its_hashes() {
    let mut log = log_with(1 << 20, Recorder::new(), &Watch::default());
    let half = KeyHash(u64::MAX / 2);
    let quarter = TabletRange { table: OTHER, first: KeyHash(0), last: KeyHash(half.0 / 2) };
    log.create_tablet(quarter).unwrap();
    log.limit_table(OTHER, durable(4 * MAX));
    let in_quarter = |number: &u32| KeyHash::of(&number.to_be_bytes()) <= quarter.last;
    let fill = |log: &mut Log| {
        (0..100_000u32)
            .filter(in_quarter)
            .find_map(|it| log.write(OTHER, &it.to_be_bytes(), &[1; 100]).err())
    };
    let refused = fill(&mut log);
    let limit_bytes = MAX;
    assert!(
        matches!(refused, Some(Error::TabletFull { limit_bytes: it, .. }) if it == limit_bytes),
        "{refused:?}"
    );
    // Half of the tablet goes. The other half has an eighth of the table.
    log.cut_tablet(TabletRange { last: KeyHash(quarter.last.0 / 2), ..quarter });
    while log.clear_some() {}
    let refused = fill(&mut log);
    assert!(
        matches!(refused, Some(Error::UnknownTablet { .. })),
        "the first of them is in the part that is gone: {refused:?}"
    );
    let over = (0..100_000u32).filter(in_quarter).find_map(|it| {
        match log.write(OTHER, &it.to_be_bytes(), &[1; 100]) {
            Err(Error::TabletFull { limit_bytes, .. }) => Some(limit_bytes),
            _ => None,
        }
    });
    assert_eq!(over, Some(MAX / 2));
}

#[test]
fn limits_hold_again_for_a_rebuilt_tablet() {
    let (watch, recorder) = (Watch::default(), Recorder::new());
    let mut log = log_with(1 << 20, recorder.clone(), &watch);
    let mut cleaner = log.cleaner().unwrap();
    for number in 0..400u32 {
        put(&mut log, &mut cleaner, TABLE, &number.to_be_bytes(), &[1; 100]).unwrap();
    }
    log.turn();
    let mut log = replayed(&recorder, usize::MAX, &watch);
    let mut cleaner = log.cleaner().unwrap();
    assert!(bytes_of(&log, TABLE) > MAX, "it had no limit before");
    log.limit_table(TABLE, cache(Some(MAX), 0));
    put(&mut log, &mut cleaner, TABLE, b"new", &[1; 100]).unwrap();
    assert!(bytes_of(&log, TABLE) <= MAX);
    assert!(log.read(TABLE, b"new").unwrap().is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// With any operations on two caches, no cache is larger than its maximum. A read finds the
    /// value that was written last or no object. The cache without a maximum loses nothing.
    #[test]
    fn a_cache_with_a_maximum_never_exceeds_it(
        operations in proptest::collection::vec((0..3u8, 0..60u8, 0..600usize), 1..400),
        max in 2_000..10_000u64,
    ) {
        let mut log = two_tables(1 << 20);
        let mut cleaner = log.cleaner().unwrap();
        log.limit_table(TABLE, cache(Some(max), 0));
        log.limit_table(OTHER, cache(None, 0));
        let mut model: BTreeMap<(TableId, u8), Vec<u8>> = BTreeMap::new();
        for (number, (operation, key, length)) in operations.into_iter().enumerate() {
            let table = if operation == 2 { OTHER } else { TABLE };
            if operation == 1 && length % 4 == 0 {
                log.delete(TABLE, &[key], Condition::Always).unwrap();
                model.remove(&(TABLE, key));
            } else {
                let value = vec![number as u8; length];
                put(&mut log, &mut cleaner, table, &[key], &value).unwrap();
                model.insert((table, key), value);
            }
            prop_assert!(bytes_of(&log, TABLE) <= max);
        }
        for ((table, key), value) in model {
            let found = log.read(table, &[key]).unwrap().map(|object| object.value().to_vec());
            match found {
                Some(found) => prop_assert_eq!(found, value),
                None => prop_assert_eq!(table, TABLE, "only this table evicts"),
            }
        }
    }
}
