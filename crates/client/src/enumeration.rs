//! The enumeration of all objects of a table.
//!
//! Shards enumerate the hashes of their tablets in an order of their own. A cursor is a place in
//! that order and means the same in every tablet. So an enumeration is a list of *pieces*: ranges
//! of hashes with a cursor each. If a shard has only the beginning of a piece, the rest becomes a
//! piece with the same cursor. An object that exists during the whole enumeration is returned
//! exactly once, also if its tablet is split or moves meanwhile.

use crate::operation::{Action, Answer, Object, Operation};
use thunderhead_wire::{Condition, KeyHash, TableId, TabletRange};

/// The enumeration of all objects of a table.
#[derive(Clone, Debug)]
pub struct Enumeration {
    table: TableId,
    /// The remaining pieces; the last one is next.
    pieces: Vec<(TabletRange, u64)>,
}

impl Enumeration {
    /// Makes an enumeration at its beginning.
    #[must_use]
    pub fn new(table: TableId) -> Enumeration {
        Enumeration { table, pieces: vec![(TabletRange::whole(table), 0)] }
    }

    /// Returns the next operation; `None` at the end.
    #[must_use]
    pub fn next(&self) -> Option<Operation> {
        let (TabletRange { first, last, .. }, cursor) = *self.pieces.last()?;
        let action = Action::Page { first, last, cursor };
        let condition = Condition::Always;
        Some(Operation { table: self.table, key: Vec::new(), condition, action })
    }

    /// Takes the answer to that operation and returns its objects. `None` if the answer does not
    /// fit.
    pub fn answered(&mut self, answer: Answer) -> Option<Vec<Object>> {
        let Answer::Page { objects, last, cursor } = answer else { return None };
        let (range, began) = self.pieces.pop()?;
        // A server whose page makes no progress would be asked for ever.
        if last < range.first {
            return None;
        }
        if last < range.last {
            self.pieces.push((TabletRange { first: KeyHash(last.0 + 1), ..range }, began));
        }
        if let Some(cursor) = cursor {
            self.pieces.push((TabletRange { last: last.min(range.last), ..range }, cursor));
        }
        Some(objects)
    }
}
