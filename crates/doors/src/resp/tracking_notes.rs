//! The notes of a command for `CLIENT TRACKING`: the keys that it has read and written.
//!
//! A script may execute any number of commands before its notes become messages. So a note that
//! says nothing new is left out, and the memory of the notes has a limit. If notes need more, one
//! note replaces them: all keys count as changed.

use super::store::{Database, PAGES};
use super::transaction::Transaction;
use std::collections::BTreeMap;

/// The most memory of the notes of a command.
const BYTES_MAX: usize = 16 << 20;

/// The memory of a note, without the bytes of its key.
const OP_BYTES: usize = 160;

/// The notes that are searched one by one, and the room for notes that is kept.
const SEARCHED_MAX: usize = 8;

/// A use of a key by a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// The client has read it.
    Read(Vec<u8>),
    /// The client has changed it.
    Written(Vec<u8>),
    /// It has expired, or was evicted.
    Gone(Vec<u8>),
    /// The client has deleted all objects of a database.
    Flushed,
    /// The notes were dropped: there were too many. All keys count as changed.
    TooMany,
}

impl Op {
    fn key(&self) -> Option<&[u8]> {
        match self {
            Op::Read(key) | Op::Written(key) | Op::Gone(key) => Some(key),
            Op::Flushed | Op::TooMany => None,
        }
    }
}

/// Notes in their order.
#[derive(Debug, Default)]
pub(super) struct Notes {
    ops: Vec<Op>,
    /// The place of the last note of each key, once there are many notes.
    places: BTreeMap<Vec<u8>, usize>,
    /// About the memory of the notes.
    bytes: usize,
}

impl Notes {
    pub(super) fn clear(&mut self) {
        self.ops.clear();
        self.ops.shrink_to(SEARCHED_MAX);
        self.places.clear();
        self.bytes = 0;
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub(super) fn into_ops(self) -> Vec<Op> {
        self.ops
    }

    /// Takes all notes.
    fn take(&mut self) -> impl Iterator<Item = Op> {
        self.places.clear();
        self.bytes = 0;
        self.ops.drain(..)
    }

    /// Returns the last note of a key. An emptied database has all keys.
    fn last(&self, key: &[u8]) -> Option<&Op> {
        if self.ops.len() <= SEARCHED_MAX {
            return self.ops.iter().rev().find(|op| op.key().is_none_or(|it| it == key));
        }
        self.ops.get(*self.places.get(key)?)
    }

    /// Adds a note, unless it is the last one of its key.
    #[cold]
    pub(super) fn push(&mut self, op: Op) {
        if self.ops.first() == Some(&Op::TooMany) {
            return;
        }
        let Some(key) = op.key() else {
            if op == Op::TooMany {
                self.clear();
            }
            // The notes before it say nothing about the notes behind it.
            self.places.clear();
            if self.ops.last() != Some(&op) {
                self.bytes += OP_BYTES;
                self.ops.push(op);
            }
            return self.check();
        };
        if self.last(key) == Some(&op) {
            return;
        }
        // The map of places has a copy of the key.
        self.bytes += OP_BYTES + 2 * key.len();
        let place = self.ops.len();
        if place == SEARCHED_MAX {
            let from = self.ops.iter().rposition(|op| op.key().is_none()).map_or(0, |at| at + 1);
            for (place, op) in self.ops.iter().enumerate().skip(from) {
                self.places.extend(op.key().map(|key| (key.to_vec(), place)));
            }
        }
        if place >= SEARCHED_MAX {
            self.places.insert(key.to_vec(), place);
        }
        self.ops.push(op);
        self.check();
    }

    fn check(&mut self) {
        if self.bytes > BYTES_MAX {
            self.clear();
            self.ops.push(Op::TooMany);
        }
    }

    /// Forgets the changes of a command that has failed. It may have read keys.
    pub(super) fn fail_command(&mut self) {
        let mut notes = Notes::default();
        for op in self.take().filter(|op| matches!(op, Op::Read(_) | Op::TooMany)) {
            notes.push(op);
        }
        *self = notes;
    }
}

/// The keys that a command has written, in their order.
#[derive(Debug, Default)]
pub(super) struct Touched {
    is_wanted: bool,
    notes: Notes,
}

impl Touched {
    /// Begins a command, whose keys are noted if clients are told about them.
    #[inline]
    pub(super) fn begin(&mut self, is_wanted: bool) {
        self.is_wanted = is_wanted;
        self.notes.clear();
    }

    /// Takes the notes.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Op> {
        self.notes.take()
    }

    /// Notes that an object has expired.
    pub(super) fn note_expired(&mut self, key: &[u8]) {
        if self.is_wanted {
            self.notes.push(Op::Gone(key.to_vec()));
        }
    }
}

impl Transaction<'_> {
    /// Notes that a key of a user's database is written or deleted.
    #[inline]
    pub(super) fn note_touched(&mut self, database: Database, key: &[u8]) {
        if self.overlay.touched.is_wanted && database & PAGES == 0 {
            self.overlay.touched.notes.push(Op::Written(key.to_vec()));
        }
    }

    /// Notes that all objects of a database are deleted.
    pub(super) fn note_flushed(&mut self) {
        if self.overlay.touched.is_wanted {
            self.overlay.touched.notes.push(Op::Flushed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(ops: impl IntoIterator<Item = Op>) -> Notes {
        let mut notes = Notes::default();
        ops.into_iter().for_each(|op| notes.push(op));
        notes
    }

    fn read(number: usize) -> Op {
        Op::Read(format!("key-{number}").into_bytes())
    }

    fn written(number: usize) -> Op {
        Op::Written(format!("key-{number}").into_bytes())
    }

    #[test]
    fn a_note_that_says_nothing_new_is_left_out() {
        for keys in [1, SEARCHED_MAX, SEARCHED_MAX + 1, 100] {
            let again = || (0..5).flat_map(|_| 0..keys);
            assert_eq!(notes(again().map(read)).ops.len(), keys);
            let both = notes(again().map(read).chain(again().map(written)));
            assert_eq!(both.ops.len(), 2 * keys);
            let flush = [Op::Flushed, Op::Flushed];
            let beside = notes(again().map(read).chain(flush).chain(again().map(read)));
            assert_eq!(beside.ops.len(), 2 * keys + 1, "reads behind a flush count");
        }
    }

    #[test]
    fn notes_that_need_too_much_memory_become_one() {
        let key = |number: usize| [vec![b'k'; 10_000], number.to_string().into_bytes()].concat();
        let mut many = notes((0..2000).map(|number| Op::Written(key(number))));
        assert_eq!(many.ops, [Op::TooMany]);
        many.push(read(1));
        many.push(Op::Flushed);
        assert_eq!(many.ops, [Op::TooMany]);
        // Reads may have been dropped, too.
        many.fail_command();
        assert_eq!(many.ops, [Op::TooMany]);
        let moved = notes([read(1)].into_iter().chain(many.take()));
        assert_eq!(moved.ops, [Op::TooMany]);
        many.push(read(1));
        assert_eq!(many.ops, [read(1)], "the next command begins anew");
    }

    #[test]
    fn the_reads_of_a_failed_command_stay() {
        let mut notes = notes([read(1), written(1), Op::Flushed, read(2)]);
        notes.fail_command();
        assert_eq!(notes.ops, [read(1), read(2)]);
    }
}
