//! The records that were made last are not in the index of records yet. No caller can tell.

use proptest::prelude::*;
use std::collections::BTreeMap;
use thunderhead_log::{
    Cleaner, Completion, Condition, Cursor, Error, HashedKey, KeyHash, LeaseId, Log, LogId, Memory,
    NoReplication, Options, Sequence, Step, TableId, TabletRange, Version,
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

fn completion(sequence: Sequence) -> Completion<'static> {
    Completion { lease: LEASE, sequence, result: b"done" }
}

/// Updates an object, of which nothing else is known.
fn try_update(log: &mut Log, sequence: Sequence) -> Result<(), Error> {
    let told = |version: Version| version.0.to_le_bytes();
    let name = (LEASE, sequence);
    log.write_recorded(TABLE, HashedKey::of(b"key"), b"value", Condition::Always, name, told)
        .map(drop)
}

fn update(log: &mut Log, sequence: Sequence) {
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

fn outcome(log: &Log, sequence: Sequence) -> Option<Vec<u8>> {
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
type Records = BTreeMap<(LeaseId, Sequence), Vec<u8>>;

/// The sequences of all records, which belong to one client.
fn all(log: &mut Log) -> Vec<Sequence> {
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
    for number in 1..=40u64 {
        let sequence = Sequence(number);
        update(&mut log, sequence);
        assert_eq!(outcome(&log, sequence), Some(number.to_le_bytes().to_vec()));
        assert_eq!(outcome(&log, sequence.next()), None);
    }
    assert_eq!(all(&mut log), (1..=40).map(Sequence).collect::<Vec<_>>());

    let [s38, s39, s40, s41, s42, s43, s44, s45, s46] =
        std::array::from_fn(|at| Sequence(38).plus(at as u64));
    update(&mut log, s41);
    assert!(log.forget_completion(LEASE, s41) && !log.forget_completion(LEASE, s41));
    update(&mut log, s42);
    assert_eq!(log.forget_completions(LEASE, &[s40, s42]), 2);
    update(&mut log, s43);
    assert_eq!(log.forget_some(LEASE, s38, 1 | 1 << 5), 2);
    assert_eq!(all(&mut log), [(1..=37).map(Sequence).collect::<Vec<_>>(), vec![s39]].concat());

    update(&mut log, s44);
    let again = log.write_completed(TABLE, b"key", b"x", Condition::Always, completion(s44));
    assert_eq!(again, Err(Error::AlreadyCompleted { lease: LEASE, sequence: s44 }));
    log.delete_completed(TABLE, b"key", Condition::Always, completion(s45)).unwrap();
    let again = log.complete(TABLE, KeyHash::of(b"key"), completion(s45));
    assert_eq!(again.unwrap_err(), Error::AlreadyCompleted { lease: LEASE, sequence: s45 });
    log.complete(TABLE, KeyHash::of(b"key"), completion(s46)).unwrap();
    assert_eq!(outcome(&log, s46), Some(b"done".to_vec()));
    assert_eq!(all(&mut log).last(), Some(&s46));
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
            let completion = completion(Sequence(u64::from(key) + 1));
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
    update(&mut log, Sequence::FIRST);
    log.drop_tablet(TabletRange::whole(TABLE));
    let (mut forgotten, mut cursor) = (Vec::new(), Some(Cursor::default()));
    while let Some(at) = cursor {
        cursor = log.forget_homeless_completions(at, |lease, sequence| {
            forgotten.push((lease, sequence));
        });
    }
    let first = Sequence::FIRST;
    assert_eq!((forgotten, outcome(&log, first)), (vec![(LEASE, first)], None));
}

#[test]
fn a_group_behind_an_unindexed_record_does_not_hide_it() {
    let mut log = log_in(1 << 20);
    for round in 0..200 {
        let four: [Sequence; 4] = std::array::from_fn(|at| Sequence(round * 10 + at as u64));
        let [first, grouped @ ..] = four;
        update(&mut log, first);
        assert!(log.begin_group(LEASE, grouped[0], 4096));
        for sequence in grouped {
            update(&mut log, sequence);
            assert!(outcome(&log, first).is_some());
        }
        log.end_group();
        assert!(four.into_iter().all(|it| outcome(&log, it).is_some()));
    }
    assert_eq!(all(&mut log).len(), 800);
}

#[test]
fn a_closing_head_indexes_its_records_before_a_cleaner_takes_it() {
    let mut log = log_in(192 << 10);
    let mut cleaner = log.cleaner().unwrap();
    let mut key = 0u32;
    for number in 0..300 {
        let sequence = Sequence(number);
        busily(&mut log, &mut cleaner, |log| try_update(log, sequence));
        for _ in 0..40 {
            key = (key + 1) % 120;
            let key = key.to_be_bytes();
            busily(&mut log, &mut cleaner, |log| log.write(TABLE, &key, &[1; 900]).map(drop));
        }
        assert!(outcome(&log, sequence).is_some(), "{sequence}");
        assert!(number < 8 || log.forget_completion(LEASE, Sequence(number - 8)));
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
        let mut next = [Sequence::FIRST; 4];
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
                    for sequence in (0..bits % 4).map(|at| sequence.plus(at)) {
                        if log.complete(TABLE, KeyHash::of(&key), refused(sequence)).is_ok() {
                            made.push(sequence);
                        }
                    }
                    log.end_group();
                }
                8..11 => {
                    // Most records are forgotten soon, and some much later.
                    let back = some % [40, 300][usize::from(what == 8)];
                    let base = Sequence(sequence.0.saturating_sub(back.into()));
                    let bits = bits & bits.rotate_left(9);
                    let before = model.len();
                    model.retain(|(of, it), _| {
                        let at = it.distance_from(base);
                        *of != lease || at >= 64 || bits >> at & 1 == 0
                    });
                    let (entries, gone) = (log.forget_some(lease, base, bits), before - model.len());
                    prop_assert!(entries <= gone && (entries > 0) == (gone > 0));
                }
                11 => {
                    let sequence = Sequence(sequence.0.saturating_sub(u64::from(some % 40)));
                    let was_there = model.remove(&(lease, sequence)).is_some();
                    prop_assert_eq!(log.forget_completion(lease, sequence), was_there);
                }
                _ => log.turn(),
            }
            for sequence in made {
                model.insert((lease, sequence), result.to_vec());
                next[client as usize] = sequence.next();
            }
            let sequence = Sequence(next[client as usize].0.saturating_sub(bits % 64));
            let found = log.completion(lease, sequence).map(|it| it.to_vec());
            prop_assert_eq!(found.as_ref(), model.get(&(lease, sequence)));
            if some % 200 == 0 {
                prop_assert_eq!(&walked(&mut log), &model);
            }
        }
        prop_assert_eq!(&walked(&mut log), &model);
    }
}
