//! The objects among the changes of a transaction, for commands that count or visit all objects.
//!
//! A `MULTI` may have a million changes, and then ask for `DBSIZE` a million times. So each change
//! is looked at once: the first such command makes a tally of its database, and later changes keep
//! it up to date.

use std::collections::BTreeSet;

/// The objects that one slice has, at least, if there are more.
const SLICE: usize = 64;

/// See the module's documentation. Its entries are those of one database of the store.
#[derive(Debug)]
pub(super) struct Tally {
    places: fn(&[u8]) -> u64,
    /// The entries that are objects now, in the order in which walks visit them.
    present: BTreeSet<(u64, usize)>,
    /// Entries with lower numbers are in `present`, if they are objects of the database.
    visited: usize,
    /// Entries with lower numbers were looked up in the store.
    looked_up: usize,
    /// The entries that were found there.
    in_store: u64,
}

impl Tally {
    /// Returns a tally of no entries. `places` gives the place of a key in a walk.
    pub(super) fn new(places: fn(&[u8]) -> u64) -> Tally {
        Tally { places, present: BTreeSet::new(), visited: 0, looked_up: 0, in_store: 0 }
    }

    /// Returns the number of entries that were visited. The next entry has this number.
    pub(super) fn visited(&self) -> usize {
        self.visited
    }

    /// Visits the next entry. It may be an object of the database or not.
    pub(super) fn visit(&mut self, key: &[u8], is_object: bool) {
        let number = self.visited;
        self.visited += 1;
        if is_object {
            self.set(number, key, true);
        }
    }

    /// Notes that an entry of the database has become an object, or is none any more.
    pub(super) fn set(&mut self, number: usize, key: &[u8], is_object: bool) {
        if number >= self.visited {
            return;
        }
        let at = ((self.places)(key), number);
        match is_object {
            true => drop(self.present.insert(at)),
            false => drop(self.present.remove(&at)),
        }
    }

    /// Notes that the database was emptied: none of so many entries is an object, or in the store.
    pub(super) fn clear(&mut self, entries: usize) {
        self.present.clear();
        (self.visited, self.looked_up, self.in_store) = (entries, entries, 0);
    }

    /// Returns the number of objects.
    pub(super) fn present(&self) -> u64 {
        self.present.len() as u64
    }

    /// Returns the next of so many entries that was not looked up in the store.
    pub(super) fn next_to_look_up(&self, entries: usize) -> Option<usize> {
        (self.looked_up < entries).then_some(self.looked_up)
    }

    /// Notes whether the store has the next entry, as an object of the database.
    pub(super) fn looked_up(&mut self, is_in_store: bool) {
        self.looked_up += 1;
        self.in_store += u64::from(is_in_store);
    }

    /// Returns the number of entries that the store has.
    pub(super) fn in_store(&self) -> u64 {
        self.in_store
    }

    /// Returns some objects from a cursor on, with their places, and the cursor behind them if
    /// there are more. Objects with one place stay together.
    pub(super) fn slice(&self, cursor: u64) -> (Vec<(u64, usize)>, Option<u64>) {
        let mut slice: Vec<(u64, usize)> = Vec::new();
        for at in self.present.range((cursor, 0)..) {
            if slice.len() >= SLICE && slice.last().is_some_and(|last| last.0 != at.0) {
                return (slice, Some(at.0));
            }
            slice.push(*at);
        }
        (slice, None)
    }
}
