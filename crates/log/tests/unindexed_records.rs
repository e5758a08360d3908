//! The records that were made last are not in the index of records yet. No caller can tell.

use proptest::prelude::*;
use std::collections::BTreeMap;
use thunderhead_log::{
    Cleaner, Completion, Condition, Cursor, Error, HashedKey, KeyHash, LeaseId, Log, LogId, Memory,
    NoReplication, Options, Step, TableId, TabletRange, Version,
};

const TABLE: TableId = TableId(1);
const LEASE: LeaseId = LeaseId(9);

fn log_in(bytes: usize) -> Log {
    let memory = Memory::with_seglets(bytes, 1024).unwrap();
    let options = Options { segment_bytes: 16 << 10, ..Options::default() };
    let mut log = Log::new(&memory, LogId(3), options, Box::new(NoReplication::default())).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    log
}

fn completion(sequence: u64) -> Completion<'static> {
    Completion { lease: LEASE, sequence, result: b"done" }
}

/// Updates an object, of which nothing else is known.
fn try_update(log: &mut Log, sequence: u64) -> Result<(), Error> {
    let told = |version: Version| version.0.to_le_bytes();
    let name = (LEASE, sequence);
    log.write_recorded(TABLE, HashedKey::of(b"key"), b"value", Condition::Always, name, told)
        .map(drop)
}

fn update(log: &mut Log, sequence: u64) {
    try_update(log, sequence).unwrap();
}

/// Tries until the cleaner has made room, and lets it work as soon as it can. The log's own turns
/// are the only ones.
fn busily(
    log: &mut Log,
    cleaner: &mut Cleaner,
    mut operation: impl FnMut(&mut Log) -> Result<(), Error>,
) {
    for _ in 0..100 {
        let done = operation(log);
        while cleaner.step() != Step::Idle {}
        match done {
            Err(Error::CleanerBehind) => {}
            done => return done.unwrap(),
        }
    }
    panic!("the cleaner is stuck: {:?}", log.usage());
}

fn outcome(log: &Log, sequence: u64) -> Option<Vec<u8>> {
    log.completion(LEASE, sequence).map(|it| it.to_vec())
}

/// All records, as a scan visits them.
fn walked(log: &mut Log) -> Records {
    let (mut found, mut cursor) = (Records::new(), Some(Cursor::default()));
    while let Some(at) = cursor {
        cursor = log.scan_completions(at, |lease, sequence, result| {
            assert!(found.insert((lease, sequence), result.to_vec()).is_none());
        });
    }
    found
}

/// By lease and sequence.
type Records = BTreeMap<(LeaseId, u64), Vec<u8>>;

/// The sequences of all records, which belong to one client.
fn all(log: &mut Log) -> Vec<u64> {
    let of_one = |(lease, sequence)| {
        assert_eq!(lease, LEASE);
        sequence
    };
    walked(log).into_keys().map(of_one).collect()
}

#[test]
fn an_unindexed_record_is_found_scanned_and_forgotten_like_all_others() {
    let mut log = log_in(1 << 20);
    // Other records come before it, so that the index has more than one bucket.
    for sequence in 1..=40 {
        update(&mut log, sequence);
        assert_eq!(outcome(&log, sequence), Some(sequence.to_le_bytes().to_vec()));
        assert_eq!(outcome(&log, sequence + 1), None);
    }
    assert_eq!(all(&mut log), (1..=40).collect::<Vec<_>>());

    update(&mut log, 41);
    assert!(log.forget_completion(LEASE, 41) && !log.forget_completion(LEASE, 41));
    update(&mut log, 42);
    assert_eq!(log.forget_completions(LEASE, &[40, 42]), 2);
    update(&mut log, 43);
    assert_eq!(log.forget_some(LEASE, 38, 1 | 1 << 5), 2);
    assert_eq!(all(&mut log), [(1..=37).collect::<Vec<_>>(), vec![39]].concat());

    update(&mut log, 44);
    let again = log.write_completed(TABLE, b"key", b"x", Condition::Always, completion(44));
    assert_eq!(again, Err(Error::AlreadyCompleted { lease: LEASE, sequence: 44 }));
    log.delete_completed(TABLE, b"key", Condition::Always, completion(45)).unwrap();
    let again = log.complete(TABLE, KeyHash::of(b"key"), completion(45));
    assert_eq!(again.unwrap_err(), Error::AlreadyCompleted { lease: LEASE, sequence: 45 });
    log.complete(TABLE, KeyHash::of(b"key"), completion(46)).unwrap();
    assert_eq!(outcome(&log, 46), Some(b"done".to_vec()));
    assert_eq!(all(&mut log).last(), Some(&46));
}

#[test]
fn a_delete_with_a_record_finds_room_while_memory_is_short() {
    for keys in [40u32, 80, 120] {
        let mut log = log_in(192 << 10);
        let mut written = 0;
        while log.write(TABLE, &(written % keys).to_be_bytes(), &[1; 900]).is_ok() {
            written += 1;
        }
        // No cleaner runs: only the memory that writes leave is free.
        let mut done = 0;
        for key in 0..keys / 2 {
            let completion = completion(u64::from(key) + 1);
            let key = key.to_be_bytes();
            let deleted = log.delete_completed(TABLE, &key, Condition::Always, completion);
            done += u32::from(deleted.is_ok());
        }
        assert!(done >= 18, "{done} of {}", keys / 2);
    }
}

#[test]
fn an_unindexed_record_goes_with_its_tablet() {
    let mut log = log_in(1 << 20);
    update(&mut log, 1);
    log.drop_tablet(TabletRange::whole(TABLE));
    let (mut forgotten, mut cursor) = (Vec::new(), Some(Cursor::default()));
    while let Some(at) = cursor {
        cursor = log.forget_homeless_completions(at, |lease, sequence| {
            forgotten.push((lease, sequence));
        });
    }
    assert_eq!((forgotten, outcome(&log, 1)), (vec![(LEASE, 1)], None));
}

#[test]
fn a_group_behind_an_unindexed_record_does_not_hide_it() {
    let mut log = log_in(1 << 20);
    for round in 0..200 {
        let first = round * 10;
        update(&mut log, first);
        assert!(log.begin_group(LEASE, first + 1, 4096));
        for sequence in first + 1..first + 4 {
            update(&mut log, sequence);
            assert!(outcome(&log, first).is_some());
        }
        log.end_group();
        assert!((first..first + 4).all(|it| outcome(&log, it).is_some()));
    }
    assert_eq!(all(&mut log).len(), 800);
}

#[test]
fn a_closing_head_indexes_its_records_before_a_cleaner_takes_it() {
    let mut log = log_in(192 << 10);
    let mut cleaner = log.cleaner().unwrap();
    let mut key = 0u32;
    for sequence in 0..300 {
        busily(&mut log, &mut cleaner, |log| try_update(log, sequence));
        for _ in 0..40 {
            key = (key + 1) % 120;
            let key = key.to_be_bytes();
            busily(&mut log, &mut cleaner, |log| log.write(TABLE, &key, &[1; 900]).map(drop));
        }
        assert!(outcome(&log, sequence).is_some(), "{sequence}");
        assert!(sequence < 8 || log.forget_completion(LEASE, sequence - 8));
    }
    assert!(log.usage().entries_moved > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_log_has_exactly_the_records_made_and_not_forgotten(
        steps in proptest::collection::vec((0..13u8, 0..4u64, any::<u32>(), any::<u64>()), 1..1500),
    ) {
        let mut log = log_in(256 << 10);
        let mut cleaner = log.cleaner().unwrap();
        let mut model = Records::new();
        let mut next = [1u64; 4];
        for (number, (what, client, some, bits)) in steps.into_iter().enumerate() {
            let (lease, sequence) = (LeaseId(client), next[client as usize]);
            let key = (some % 90).to_be_bytes();
            let result = number.to_le_bytes();
            let refused = |sequence| Completion { lease, sequence, result: &result };
            let mut made = Vec::new();
            match what {
                0..6 => busily(&mut log, &mut cleaner, |log| {
                    let (always, name) = (Condition::Always, (lease, sequence));
                    let (key, value) = (HashedKey::of(&key), vec![1; some as usize / 90 % 700]);
                    log.write_recorded(TABLE, key, &value, always, name, |_| result)?;
                    made.push(sequence);
                    Ok(())
                }),
                6 => {
                    if log.complete(TABLE, KeyHash::of(&key), refused(sequence)).is_ok() {
                        made.push(sequence);
                    }
                }
                7 if log.begin_group(lease, sequence, 8192) => {
                    for sequence in sequence..sequence + bits % 4 {
                        if log.complete(TABLE, KeyHash::of(&key), refused(sequence)).is_ok() {
                            made.push(sequence);
                        }
                    }
                    log.end_group();
                }
                8..11 => {
                    // Most records are forgotten soon, and some much later.
                    let base = sequence.saturating_sub(u64::from(some % [40, 300][usize::from(what == 8)]));
                    let bits = bits & bits.rotate_left(9);
                    let before = model.len();
                    model.retain(|(of, it), _| {
                        *of != lease || *it < base || *it - base >= 64 || bits >> (*it - base) & 1 == 0
                    });
                    let (entries, gone) = (log.forget_some(lease, base, bits), before - model.len());
                    prop_assert!(entries <= gone && (entries > 0) == (gone > 0));
                }
                11 => {
                    let sequence = sequence.saturating_sub(u64::from(some % 40));
                    let was_there = model.remove(&(lease, sequence)).is_some();
                    prop_assert_eq!(log.forget_completion(lease, sequence), was_there);
                }
                _ => log.turn(),
            }
            for sequence in made {
                model.insert((lease, sequence), result.to_vec());
                next[client as usize] = sequence + 1;
            }
            let sequence = next[client as usize].saturating_sub(bits % 64);
            let found = log.completion(lease, sequence).map(|it| it.to_vec());
            prop_assert_eq!(found.as_ref(), model.get(&(lease, sequence)));
            if some % 200 == 0 {
                prop_assert_eq!(&walked(&mut log), &model);
            }
        }
        prop_assert_eq!(&walked(&mut log), &model);
    }
}
