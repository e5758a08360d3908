//! A walk over all objects of a table.
//!
//! Shards walk over the hashes of their tablets in an order of their own; a cursor is a place in
//! that order, and means the same in every tablet. So a walk is a list of *pieces*, ranges of hashes
//! each with a cursor. Where a shard has only the beginning of a piece, the rest becomes a piece with
//! the same cursor. An object that is there all the time is told of just once, also when its tablet
//! is split or moves in between.

use crate::operation::{Action, Answer, Object, Operation};
use thunderhead_wire::{Condition, KeyHash, TableId, TabletRange};

/// A walk over all objects of a table.
#[derive(Clone, Debug)]
pub struct Enumeration {
    table: TableId,
    /// What is still to be told of; the last is next.
    pieces: Vec<(TabletRange, u64)>,
}

impl Enumeration {
    /// A walk that has not begun.
    #[must_use]
    pub fn new(table: TableId) -> Enumeration {
        Enumeration { table, pieces: vec![(TabletRange::whole(table), 0)] }
    }

    /// What to ask next; `None` at the end.
    #[must_use]
    pub fn next(&self) -> Option<Operation> {
        let (TabletRange { first, last, .. }, cursor) = *self.pieces.last()?;
        let action = Action::Page { first, last, cursor };
        let condition = Condition::Always;
        Some(Operation { table: self.table, key: Vec::new(), condition, action })
    }

    /// What was answered to that; the objects it tells of. `None` for an answer to something else.
    pub fn answered(&mut self, answer: Answer) -> Option<Vec<Object>> {
        let Answer::Page { objects, last, cursor } = answer else { return None };
        let (range, began) = self.pieces.pop()?;
        // A server that says that it has nothing would be asked for ever.
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
