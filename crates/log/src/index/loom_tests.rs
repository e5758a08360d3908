//! Every interleaving of one cleaner's relocation with one change by the reactor.

use super::form::Form;
use super::*;
use crate::memory::quiescence::Reader;

struct Identity;

impl Entries for Identity {
    fn hash(&self, reference: u64) -> u64 {
        reference & 0xff
    }

    fn prefetch(&self, _: u64) {}
}

/// Entries that all have the same hash.
struct Same;

impl Entries for Same {
    fn hash(&self, _: u64) -> u64 {
        0
    }

    fn prefetch(&self, _: u64) {}
}

/// The bit that a relocation adds; hashes do not see it.
const MOVED: u64 = 1 << 20;

fn filled<F: Form>(count: u64) -> (Table<HeapBlocks, F>, Reader) {
    let readers = Arc::new(Readers::new());
    let reader = readers.register().unwrap();
    let mut index = Table::<_, F>::new(HeapBlocks::new(64), readers, 2).unwrap();
    for reference in 1..=count {
        index.insert(reference, reference, &Identity).unwrap();
    }
    (index, reader)
}

fn contents<F: Form>(index: &Table<HeapBlocks, F>) -> Vec<u64> {
    let (mut found, mut cursor) = (Vec::new(), Some(Cursor::default()));
    while let Some(at) = cursor {
        cursor = index.scan(at, &Identity, |reference| found.push(reference));
    }
    found.sort_unstable_by_key(|reference| reference & !MOVED);
    found
}

/// Relocates `target` on another thread while `change` runs here. Then all entries but `gone` must
/// be there once, and the target moved if the cleaner says so.
fn check<F: Form>(
    count: u64,
    target: u64,
    gone: Option<u64>,
    change: fn(&mut Table<HeapBlocks, F>),
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let (mut index, mut reader) = filled::<F>(count);
        let view = index.view();
        let cleaner = loom::thread::spawn(move || {
            let guard = reader.enter();
            view.relocate(&guard, target, target, target | MOVED)
        });
        change(&mut index);
        let moved = cleaner.join().unwrap();
        let expected: Vec<u64> = (1..=index.len() as u64 + u64::from(gone.is_some()))
            .filter(|reference| Some(*reference) != gone)
            .map(|reference| if moved && reference == target { target | MOVED } else { reference })
            .collect();
        assert_eq!(contents(&index), expected);
        if gone != Some(target) {
            assert!(moved, "an entry that stays is always found");
        }
    });
}

/// The number of entries of one bucket that the next insert splits.
const fn before_split<F: Form>() -> u64 {
    (F::SLOTS * F::LOAD_HIGH / 100) as u64
}

fn split<F: Form>() {
    fn insert<F: Form>(index: &mut Table<HeapBlocks, F>) {
        let next = before_split::<F>() + 1;
        index.insert(next, next, &Identity).unwrap();
    }
    check::<F>(before_split::<F>(), 3, None, insert);
    check::<F>(before_split::<F>(), 2, None, insert);
}

fn merge<F: Form>() {
    fn remove<F: Form>(index: &mut Table<HeapBlocks, F>) {
        let last = before_split::<F>() + 1;
        let found = index.lookup(last).find(|reference| reference & !MOVED == last).unwrap();
        index.remove(found);
    }
    // Two buckets; without one of the entries they become one.
    let count = before_split::<F>() + 1;
    check::<F>(count, 3, Some(count), remove);
    check::<F>(count, 2, Some(count), remove);
}

/// A full bucket gets an overflow bucket, and one of its slots may have to move for the link.
fn overflow<F: Form>() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let readers = Arc::new(Readers::new());
        let mut reader = readers.register().unwrap();
        let mut index = Table::<_, F>::new(HeapBlocks::new(64), readers, 2).unwrap();
        // All entries have one hash, so a split moves none.
        let last = F::SLOTS as u64;
        for reference in 1..=last {
            index.insert(0, reference, &Same).unwrap();
        }
        let view = index.view();
        let cleaner = loom::thread::spawn(move || {
            let guard = reader.enter();
            view.relocate(&guard, 0, last, last | MOVED)
        });
        index.insert(0, last + 1, &Same).unwrap();
        assert!(cleaner.join().unwrap(), "an entry that stays is always found");
        let mut found = Vec::new();
        index.scan(Cursor::default(), &Same, |reference| found.push(reference));
        found.sort_unstable();
        let mut expected: Vec<u64> = (1..=last + 1).filter(|it| *it != last).collect();
        expected.push(last | MOVED);
        assert_eq!(found, expected);
    });
}

/// A bucket with an overflow bucket splits, and its remaining chain becomes one bucket again.
/// Meanwhile one of its entries is relocated: an entry that moves away, one in the first bucket
/// that stays, or an entry of the chain.
fn chain<F: Form>() {
    let count = (2 * F::SLOTS * F::LOAD_HIGH / 100) as u64;
    for target in [2 * count, 2 * (count - 1), 2 * (count - 5)] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(1);
        model.max_branches = 50_000;
        model.check(move || {
            let readers = Arc::new(Readers::new());
            let mut reader = readers.register().unwrap();
            let mut index = Table::<_, F>::new(HeapBlocks::new(64), readers, 2).unwrap();
            // All entries are in the first of two buckets.
            for reference in (1..=count).map(|n| 2 * n) {
                index.insert(reference, reference, &Identity).unwrap();
            }
            assert_eq!(index.buckets, 2);
            let view = index.view();
            let cleaner = loom::thread::spawn(move || {
                let guard = reader.enter();
                view.relocate(&guard, target, target, target | MOVED)
            });
            let last = 2 * (count + 1);
            index.insert(last, last, &Identity).unwrap();
            assert_eq!(index.buckets, 3);
            assert!(cleaner.join().unwrap(), "an entry that stays is always found");
            let moved = |reference| if reference == target { target | MOVED } else { reference };
            let expected: Vec<u64> = (1..=count + 1).map(|n| moved(2 * n)).collect();
            assert_eq!(contents(&index), expected);
            for reference in expected {
                let lookup = index.lookup(reference & 0xff);
                assert!(lookup.find(|other| other == reference).is_some());
            }
        });
    }
}

fn removal<F: Form>() {
    check::<F>(3, 2, Some(2), |index| {
        let found = index.lookup(2).find(|reference| reference & !MOVED == 2).unwrap();
        let removed = index.remove(found);
        assert_eq!(removed & !MOVED, 2);
    });
}

fn replacement<F: Form>() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (mut index, mut reader) = filled::<F>(3);
        let view = index.view();
        let cleaner = loom::thread::spawn(move || {
            let guard = reader.enter();
            view.relocate(&guard, 2, 2, 2 | MOVED)
        });
        let found = index.lookup(2).find(|reference| reference & !MOVED == 2).unwrap();
        let mut old = index.reference(found);
        while let Err(newer) = index.replace_exact(found, old, 2 | MOVED << 1) {
            old = newer;
        }
        let moved = cleaner.join().unwrap();
        assert_eq!(old == 2 | MOVED, moved, "the replaced reference is the latest one");
        assert!(contents(&index).contains(&(2 | MOVED << 1)));
        assert_eq!(index.len(), 3);
    });
}

#[test]
fn loom_a_split_neither_loses_nor_doubles_a_relocated_entry() {
    split::<Wide>();
    split::<Narrow>();
}

#[test]
fn loom_a_merge_neither_loses_nor_doubles_a_relocated_entry() {
    merge::<Wide>();
    merge::<Narrow>();
}

#[test]
fn loom_a_relocated_entry_is_found_while_its_bucket_gets_another_behind_it() {
    overflow::<Wide>();
    overflow::<Narrow>();
}

#[test]
fn loom_a_split_of_a_chain_neither_loses_nor_doubles_a_relocated_entry() {
    chain::<Wide>();
    chain::<Narrow>();
}

#[test]
fn loom_a_removed_entry_is_gone_whether_or_not_it_was_relocated_first() {
    removal::<Wide>();
    removal::<Narrow>();
}

#[test]
fn loom_a_replacement_names_the_latest_place_of_its_victim() {
    replacement::<Wide>();
    replacement::<Narrow>();
}
