//! Every interleaving of one cleaner's relocation with one change by the reactor.

use super::*;
use crate::quiescence::Reader;

struct Identity;

impl Entries for Identity {
    fn hash(&self, reference: u64) -> u64 {
        reference & 0xff
    }

    fn prefetch(&self, _: u64) {}
}

/// The bit that a relocation adds; hashes do not see it.
const MOVED: u64 = 1 << 20;

fn filled(count: u64) -> (Index<HeapBlocks>, Reader) {
    let readers = Arc::new(Readers::new());
    let reader = readers.register().unwrap();
    let mut index = Index::new(HeapBlocks::new(64), readers, 2).unwrap();
    for reference in 1..=count {
        index.insert(reference, reference, &Identity).unwrap();
    }
    (index, reader)
}

fn contents(index: &Index<HeapBlocks>) -> Vec<u64> {
    let (mut found, mut cursor) = (Vec::new(), Some(Cursor::default()));
    while let Some(at) = cursor {
        cursor = index.scan(at, &Identity, |reference| found.push(reference));
    }
    found.sort_unstable_by_key(|reference| reference & !MOVED);
    found
}

/// Relocates `target` on another thread while `change` runs here; then all entries but `gone`
/// must be there once, and the target moved if the cleaner says so.
fn check(count: u64, target: u64, gone: Option<u64>, change: fn(&mut Index<HeapBlocks>)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let (mut index, mut reader) = filled(count);
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

#[test]
fn loom_a_split_neither_loses_nor_doubles_a_relocated_entry() {
    // One bucket of six entries; the seventh makes it split.
    check(6, 3, None, |index| index.insert(7, 7, &Identity).unwrap());
    check(6, 2, None, |index| index.insert(7, 7, &Identity).unwrap());
}

#[test]
fn loom_a_merge_neither_loses_nor_doubles_a_relocated_entry() {
    // Seven entries in two buckets; without one of them the buckets become one.
    fn remove(index: &mut Index<HeapBlocks>) {
        let found = index.find(7, |reference| reference & !MOVED == 7).unwrap();
        index.remove(found);
    }
    check(7, 3, Some(7), remove);
    check(7, 2, Some(7), remove);
}

#[test]
fn loom_a_removed_entry_is_gone_whoever_was_first() {
    check(3, 2, Some(2), |index| {
        let found = index.find(2, |reference| reference & !MOVED == 2).unwrap();
        let removed = index.remove(found);
        assert_eq!(removed & !MOVED, 2);
    });
}

#[test]
fn loom_a_replacement_that_names_its_victim_is_never_fooled() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (mut index, mut reader) = filled(3);
        let view = index.view();
        let cleaner = loom::thread::spawn(move || {
            let guard = reader.enter();
            view.relocate(&guard, 2, 2, 2 | MOVED)
        });
        let found = index.find(2, |reference| reference & !MOVED == 2).unwrap();
        let mut old = index.reference(found);
        while let Err(newer) = index.replace_exact(found, old, 2 | MOVED << 1) {
            old = newer;
        }
        let moved = cleaner.join().unwrap();
        assert_eq!(old == 2 | MOVED, moved, "the victim is named as it was at the end");
        assert!(contents(&index).contains(&(2 | MOVED << 1)));
        assert_eq!(index.len(), 3);
    });
}
