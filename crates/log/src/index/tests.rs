//! The index against a model, with tiny blocks, clashing hashes and little memory, and against
//! cleaners that really run beside it.

use super::form::Form;
use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::BTreeMap;

/// Entries whose hash is a function of their reference, so that no memory is needed.
struct Hashes<'a>(&'a dyn Fn(u64) -> u64);

impl Entries for Hashes<'_> {
    fn hash(&self, reference: u64) -> u64 {
        (self.0)(reference)
    }

    fn prefetch(&self, _: u64) {}
}

fn index<F: Form>(source: &HeapBlocks) -> Table<HeapBlocks, F> {
    Table::new(source.clone(), Arc::new(Readers::new()), 8).unwrap()
}

/// A hash that spreads; references that differ in their upper bits share it.
fn spread(reference: u64) -> u64 {
    (reference & 0xffff_ffff).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn all<F: Form>(index: &Table<HeapBlocks, F>, hash: &dyn Fn(u64) -> u64) -> Vec<u64> {
    let (mut found, mut cursor) = (Vec::new(), Some(Cursor::default()));
    while let Some(at) = cursor {
        cursor = index.scan(at, &Hashes(hash), |reference| found.push(reference));
    }
    found.sort_unstable();
    found
}

fn an_index_grows_and_shrinks_with_its_entries<F: Form>() {
    let source = HeapBlocks::new(1 << 20);
    let mut index = index::<F>(&source);
    for reference in 1..=10_000 {
        index.insert(spread(reference), reference, &Hashes(&spread)).unwrap();
    }
    let used = (1 << 20) - source.left();
    assert!(used * 64 < 10_000 * 16, "{used} buckets");
    assert_eq!(all(&index, &spread), (1..=10_000).collect::<Vec<_>>());
    for reference in 1..=9_990 {
        let found = index.lookup(spread(reference)).find(|other| other == reference).unwrap();
        assert_eq!(index.remove(found), reference);
    }
    assert_eq!(all(&index, &spread), (9_991..=10_000).collect::<Vec<_>>());
    let left = (1 << 20) - source.left();
    assert!(left <= used / 20, "{left} of {used} buckets are still held");
    drop(index);
    assert_eq!(source.left(), 1 << 20);
}

fn an_index_with_room_does_not_split_and_gives_back_the_surplus<F: Form>() {
    let source = HeapBlocks::new(1 << 20);
    let mut index = index::<F>(&source);
    let mut steps = 1;
    while index.make_room(10_000) {
        steps += 1;
    }
    assert!(steps > 100, "one block a call");
    let buckets = index.buckets;
    for reference in 1..=10_000 {
        index.insert(spread(reference), reference, &Hashes(&spread)).unwrap();
        assert_eq!(index.buckets, buckets, "at entry {reference}");
        if reference % 3 == 0 {
            let found = index.lookup(spread(reference)).find(|other| other == reference).unwrap();
            index.remove(found);
            index.insert(spread(reference), reference, &Hashes(&spread)).unwrap();
        }
    }
    assert!(!index.make_room(1 << 30), "the index has entries");
    index.end_room();
    assert_eq!(index.buckets, buckets, "the room was exactly right");
    for reference in 10_001..=10_010 {
        index.insert(spread(reference), reference, &Hashes(&spread)).unwrap();
    }
    assert!(index.buckets > buckets, "it grows as usual");
    assert_eq!(all(&index, &spread), (1..=10_010).collect::<Vec<_>>());
    for reference in 1..=10_010 {
        let found = index.lookup(spread(reference)).find(|other| other == reference).unwrap();
        index.remove(found);
    }
    let left = (1 << 20) - source.left();
    assert!(left < 20, "{left} buckets are still held");
    // Buckets that existed before, and were not empty when they were freed, are like new.
    while index.make_room(40) {}
    for reference in 1..=40 {
        index.insert(spread(reference), reference, &Hashes(&spread)).unwrap();
        assert!(index.lookup(spread(reference)).find(|other| other == reference).is_some());
    }
    for reference in 1..=40 {
        let found = index.lookup(spread(reference)).find(|other| other == reference).unwrap();
        index.remove(found);
    }
    while index.buckets > 1 {
        index.end_room();
    }
    // The expected entries do not come.
    while index.make_room(50_000) {}
    assert!((1 << 20) - source.left() > 50_000 / F::SLOTS);
    let held = index.buckets;
    index.end_room();
    assert!(held - index.buckets >= 100);
    while index.buckets > 1 {
        index.end_room();
    }
    // Room for more entries than there is memory for.
    while index.make_room(usize::MAX) {}
    index.insert(spread(7), 7, &Hashes(&spread)).unwrap();
    assert_eq!(all(&index, &spread), [7]);
    drop(index);
    assert_eq!(source.left(), 1 << 20);
}

/// Two full buckets become a chain of three.
fn two_full_buckets_are_merged<F: Form>() {
    // The lower two bits of the reference are those of the hash.
    let hash = |reference: u64| reference & 3 | reference << 32;
    let mut index =
        Table::<_, F>::new(HeapBlocks::new(1 << 10), Arc::new(Readers::new()), 1).unwrap();
    let slots = F::SLOTS as u64;
    let kept: Vec<u64> = (1..=slots).flat_map(|n| [4 * n + 1, 4 * n + 3]).collect();
    let removed: Vec<u64> = (1..=slots - 4).map(|n| 4 * n).collect();
    for reference in removed.iter().chain(&kept) {
        index.insert(hash(*reference), *reference, &Hashes(&hash)).unwrap();
    }
    assert_eq!(index.buckets, 4);
    // No overflow bucket is free by chance.
    index.overflow.ensure(1, &mut index.blocks);
    while index.overflow.free_buckets() > 1 {
        index.overflow.take_ensured();
    }
    for reference in removed {
        let found = index.lookup(hash(reference)).find(|other| other == reference).unwrap();
        index.remove(found);
    }
    for reference in &kept {
        assert!(index.lookup(hash(*reference)).find(|other| other == *reference).is_some());
    }
    assert_eq!(all(&index, &hash).len(), kept.len());
}

fn an_insert_without_memory_changes_nothing<F: Form>() {
    let source = HeapBlocks::new(8);
    let mut index = index::<F>(&source);
    source.set_left(0);
    let mut inserted = 0;
    while index.insert(0, inserted + 1, &Hashes(&|_| 0)).is_ok() {
        inserted += 1;
    }
    let slots = F::SLOTS as u64;
    assert_eq!(inserted, slots, "one bucket and nothing behind it");
    assert_eq!(all(&index, &|_| 0), (1..=slots).collect::<Vec<_>>());
    source.set_left(64);
    index.insert(0, slots + 1, &Hashes(&|_| 0)).unwrap();
    assert_eq!(index.len(), F::SLOTS + 1);
}

fn a_dropped_index_keeps_its_memory_until_the_last_view_is_gone<F: Form>() {
    let source = HeapBlocks::new(1024);
    let mut index = index::<F>(&source);
    for reference in 1..=100 {
        index.insert(spread(reference), reference, &Hashes(&spread)).unwrap();
    }
    let view = index.view();
    drop(index);
    assert!(source.left() < 1024);
    drop(view);
    assert_eq!(source.left(), 1024);
}

#[derive(Clone, Debug)]
enum Operation {
    Insert(u64),
    Remove(usize),
    Relocate(usize),
    Scan,
    Memory(bool),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (0..400u64).prop_map(Operation::Insert),
        4 => any::<usize>().prop_map(Operation::Remove),
        2 => any::<usize>().prop_map(Operation::Relocate),
        2 => Just(Operation::Scan),
        1 => any::<bool>().prop_map(Operation::Memory),
    ]
}

proptest! {
    #[test]
    fn an_index_holds_the_entries_of_a_map_and_a_scan_visits_each_stable_entry_once(
        operations in prop::collection::vec(operation(), 1..600),
        clash in 1u64..64,
    ) {
        holds_what_a_map_holds::<Narrow>(operations.clone(), clash)?;
        holds_what_a_map_holds::<Wide>(operations, clash)?;
    }

    /// Other inserts, splits and merges take memory meanwhile.
    #[test]
    fn a_promised_insert_finds_memory_at_any_later_time(
        steps in proptest::collection::vec((0..8u8, any::<u32>()), 0..800),
        buckets in 10..100usize,
        same in any::<u8>(),
    ) {
        finds_what_was_promised::<Narrow>(&steps, buckets, same)?;
        finds_what_was_promised::<Wide>(&steps, buckets, same)?;
    }
}

fn holds_what_a_map_holds<F: Form>(
    operations: Vec<Operation>,
    clash: u64,
) -> Result<(), TestCaseError> {
    // The low bits of a reference give its key; the upper bits count relocations.
    let hash = move |reference: u64| {
        let key = reference & 0xffff;
        (key / clash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let source = HeapBlocks::new(1 << 16);
    let mut index = index::<F>(&source);
    let view = index.view();
    let readers = Arc::new(Readers::new());
    let mut reader = readers.register().unwrap();
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    let mut moves = 0u64;
    let mut cursor = Cursor::default();
    let mut stable: Vec<u64> = Vec::new();
    let mut seen: Vec<u64> = Vec::new();
    for operation in operations {
        match operation {
            Operation::Insert(key) => {
                let key = key + 1;
                if !model.contains_key(&key) && index.insert(hash(key), key, &Hashes(&hash)).is_ok()
                {
                    model.insert(key, key);
                }
            }
            Operation::Remove(which) => {
                let Some((key, reference)) = nth(&model, which) else { continue };
                let found = index.lookup(hash(key)).find(|other| other == reference);
                prop_assert_eq!(index.remove(found.unwrap()), reference);
                model.remove(&key);
                stable.retain(|other| *other != key);
            }
            Operation::Relocate(which) => {
                let Some((key, old)) = nth(&model, which) else { continue };
                moves += 1;
                let new = moves << 16 | key;
                let guard = reader.enter();
                prop_assert!(view.relocate(&guard, hash(key), old, new));
                prop_assert!(!view.relocate(&guard, hash(key), old, new));
                model.insert(key, new);
            }
            Operation::Scan => {
                if cursor == Cursor::default() {
                    stable = model.keys().copied().collect();
                    seen.clear();
                }
                match index.scan(cursor, &Hashes(&hash), |it| seen.push(it & 0xffff)) {
                    Some(next) => cursor = next,
                    None => {
                        for key in &stable {
                            let times = seen.iter().filter(|other| *other == key).count();
                            prop_assert_eq!(times, 1, "key {} was seen {} times", key, times);
                        }
                        cursor = Cursor::default();
                    }
                }
            }
            Operation::Memory(some) => source.set_left(if some { 1 << 16 } else { 0 }),
        }
    }
    let mut expected: Vec<u64> = model.values().copied().collect();
    expected.sort_unstable();
    prop_assert_eq!(all(&index, &hash), expected);
    prop_assert_eq!(index.len(), model.len());
    Ok(())
}

fn nth(model: &BTreeMap<u64, u64>, which: usize) -> Option<(u64, u64)> {
    let at = which.checked_rem(model.len())?;
    model.iter().nth(at).map(|(key, reference)| (*key, *reference))
}

/// The reactor inserts, replaces and removes while two cleaners relocate all the entries they know.
fn nothing_is_lost_when_cleaners_relocate_beside_the_reactor<F: Form>() {
    const KEYS: u64 = 2_000;
    const MOVED: u64 = 1 << 31;
    let key_of = |reference: u64| reference & 0xfff;
    let hash = |reference: u64| key_of(reference).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let source = HeapBlocks::new(1 << 20);
    let readers = Arc::new(Readers::new());
    let mut index = Table::<_, F>::new(source.clone(), Arc::clone(&readers), 8).unwrap();
    let view = index.view();
    // The reference that the reactor last wrote for each key; 0 for none. Cleaners set a bit on
    // top.
    let current: Vec<std::sync::atomic::AtomicU64> =
        (0..=KEYS).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        for cleaner in 0..2u64 {
            let (readers, current, stop) = (Arc::clone(&readers), &current, &stop);
            let view = Arc::clone(&view);
            scope.spawn(move || {
                let mut reader = readers.register().unwrap();
                while !stop.load(relaxed) {
                    let guard = reader.enter();
                    for key in (1..=KEYS).filter(|key| key % 2 == cleaner) {
                        let old = current[key as usize].load(relaxed);
                        if old != 0 && old & MOVED == 0 {
                            view.relocate(&guard, hash(old), old, old | MOVED);
                        }
                    }
                    drop(guard);
                }
            });
        }
        let mut random = 1u64;
        for round in 1..=60_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Tides make the index grow and shrink.
            let tide = if round / 8_000 % 2 == 0 { KEYS } else { 40 };
            let key = 1 + (random >> 33) % tide;
            let before = current[key as usize].load(relaxed);
            let found = index.lookup(hash(key)).find(|reference| key_of(reference) == key);
            assert_eq!(found.is_some(), before != 0, "key {key}");
            let new = round << 12 | key;
            match found {
                None => {
                    index.insert(hash(key), new, &Hashes(&hash)).unwrap();
                    current[key as usize].store(new, relaxed);
                }
                Some(found) if random >> 20 & 3 == 0 || tide == 40 => {
                    current[key as usize].store(0, relaxed);
                    let removed = index.remove(found);
                    assert_eq!(removed & !MOVED, before);
                }
                Some(found) => {
                    let replaced = index.replace(found, new);
                    assert_eq!(replaced & !MOVED, before);
                    current[key as usize].store(new, relaxed);
                }
            }
        }
        stop.store(true, relaxed);
    });
    let expected: Vec<u64> =
        current.iter().map(|it| it.load(relaxed)).filter(|reference| *reference != 0).collect();
    let mut found: Vec<u64> =
        all(&index, &hash).into_iter().map(|reference| reference & !MOVED).collect();
    let mut expected = expected;
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
}

fn finds_what_was_promised<F: Form>(
    steps: &[(u8, u32)],
    buckets: usize,
    same: u8,
) -> Result<(), TestCaseError> {
    // If some bits are the same in all hashes, few buckets have long chains.
    let hash = |reference: u64| {
        reference.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) & !u64::from(same)
    };
    let source = HeapBlocks::new(buckets);
    let Some(mut index) = Table::<_, F>::new(source, Arc::new(Readers::new()), 4) else {
        return Ok(());
    };
    let (mut held, mut promised, mut next) = (Vec::new(), 0, 0);
    for (what, which) in steps.iter().copied() {
        match what {
            0..4 => {
                next += 1;
                if index.insert(hash(next), next, &Hashes(&hash)).is_ok() {
                    held.push(next);
                }
            }
            4 if !held.is_empty() => {
                let gone = held.swap_remove(which as usize % held.len());
                let found = index.lookup(hash(gone)).find(|other| other == gone).unwrap();
                index.remove(found);
            }
            5 | 6 if promised < 32 => promised += usize::from(index.promise()),
            7 if promised > 0 => {
                index.redeem();
                promised -= 1;
            }
            _ => {}
        }
    }
    for _ in 0..promised {
        next += 1;
        index.redeem();
        index.insert(hash(next), next, &Hashes(&hash)).unwrap();
        held.push(next);
    }
    held.sort_unstable();
    prop_assert_eq!(all(&index, &hash), held);
    Ok(())
}

/// So many entries that tags alone decide how a bucket splits. An eighth of them have tags of
/// almost all zeros, and an eighth of ones.
fn an_index_that_splits_by_tags_keeps_every_entry<F: Form>() {
    const COUNT: u64 = 900_000;
    let source = HeapBlocks::new(1 << 19);
    let mut index = Table::<_, F>::new(source.clone(), Arc::new(Readers::new()), 1024).unwrap();
    let hash = |reference: u64| {
        let hash = spread(reference) ^ spread(reference) >> 32;
        match reference % 8 {
            0 => hash & !(0xffff << 15) | (hash >> 50 & 3) << 15,
            1 => hash | 0xffff << 15,
            _ => hash,
        }
    };
    let is_there = |index: &Table<_, F>, reference| {
        index.lookup(hash(reference)).find(|other| other == reference).is_some()
    };
    for reference in 1..=COUNT {
        index.insert(hash(reference), reference, &Hashes(&hash)).unwrap();
    }
    assert!(F::TAG_TELLS.contains(&index.buckets.ilog2()));
    assert!((1..=COUNT).all(|reference| is_there(&index, reference)));
    for reference in (1..=COUNT).filter(|reference| reference % 8 != 3) {
        let found = index.lookup(hash(reference)).find(|other| other == reference).unwrap();
        assert_eq!(index.remove(found), reference);
    }
    assert!((1..=COUNT).all(|reference| is_there(&index, reference) == (reference % 8 == 3)));
    assert_eq!(index.len(), all(&index, &hash).len());
    drop(index);
    assert_eq!(source.left(), 1 << 19);
}

/// Nearly all buckets have an overflow bucket; checked after every step.
fn an_entry_behind_a_bucket_is_never_denied<F: Form>() {
    let source = HeapBlocks::new(1 << 12);
    let mut index = index::<F>(&source);
    // The lower bits are almost all the same, the tags are not.
    let hash =
        |reference: u64| spread(reference) >> 20 & !7 | u64::from(reference.is_multiple_of(11));
    let (mut held, mut last, mut random) = (Vec::new(), 0u64, 1u64);
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for step in 0..12_000 {
        let tide = if step / 500 % 2 == 0 { 7 } else { 3 };
        if held.is_empty() || draw(10) < tide {
            match draw(50) {
                0 => source.set_left(0),
                1..4 => source.set_left(1 << 11),
                _ => {}
            }
            last += 1;
            if index.insert(hash(last), last, &Hashes(&hash)).is_ok() {
                held.push(last);
            }
        } else {
            let gone = held.swap_remove(draw(held.len() as u64) as usize);
            let found = index.lookup(hash(gone)).find(|other| other == gone).unwrap();
            assert_eq!(index.remove(found), gone);
        }
        for reference in &held {
            let lookup = index.lookup(hash(*reference));
            assert!(lookup.find(|other| other == *reference).is_some(), "step {step}");
            assert_ne!(lookup.candidate(), Candidate::Absent);
        }
        assert_eq!(index.len(), held.len());
        if held.is_empty() {
            index.make_room(draw(300) as usize);
        }
    }
}

#[test]
fn references_are_short_if_they_reach_all_of_the_memory() {
    use crate::memory::{Memory, REACH_BYTES};
    // The notes take 32 bytes a seglet.
    for seglet_bytes in [64usize << 10, 16 << 20] {
        let most = REACH_BYTES as usize / seglet_bytes;
        for (seglets, short) in [(most - 1, true), (most, false), (most + 1, false)] {
            let memory = Memory::with_seglets(seglets * (seglet_bytes + 32), seglet_bytes).unwrap();
            assert_eq!((memory.seglets(), memory.has_short_references()), (seglets, short));
        }
    }
}

/// Runs the tests above for both forms.
macro_rules! in_both_forms {
    ($($test:ident)*) => {
        mod narrow_form {
            $(#[test]
            fn $test() {
                super::$test::<super::Narrow>();
            })*
        }

        mod wide_form {
            $(#[test]
            fn $test() {
                super::$test::<super::Wide>();
            })*
        }
    };
}

in_both_forms! {
    an_index_grows_and_shrinks_with_its_entries
    an_index_with_room_does_not_split_and_gives_back_the_surplus
    two_full_buckets_are_merged
    an_insert_without_memory_changes_nothing
    a_dropped_index_keeps_its_memory_until_the_last_view_is_gone
    nothing_is_lost_when_cleaners_relocate_beside_the_reactor
    an_index_that_splits_by_tags_keeps_every_entry
    an_entry_behind_a_bucket_is_never_denied
}
