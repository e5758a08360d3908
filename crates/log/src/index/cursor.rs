//! Walking over an index while it changes.
//!
//! The walk goes through the buckets in the order of their hashes with the bits reversed. At any
//! size of the index, a bucket is then one contiguous piece of that order: the bucket whose low
//! bits are `b` holds exactly the hashes that begin, reversed, with `b` reversed. A split cuts a
//! piece in two and a merge joins two, so a position in the order stays meaningful: everything
//! before it has been visited, nothing after it has. Only if a merge has made the piece larger than
//! its unvisited rest, the walk skips the visited entries, by their hash.

use super::Entries;
use super::blocks::BlockSource;
use super::form::{Form, reference_in};
use super::table::Table;
use thunderhead_wire::KeyHash;

/// The progress of a walk. It stays valid through all changes of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    position: u64,
}

impl Cursor {
    /// The place of an object with this hash in a walk. The call that begins at this place, or
    /// before it and ends behind it, visits the object.
    #[must_use]
    pub fn of(hash: KeyHash) -> Cursor {
        Cursor { position: hash.0.reverse_bits() }
    }

    /// The cursor as a number, to be sent elsewhere.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.position
    }

    /// The cursor from which [`Cursor::to_bits`] came. Any number is a valid cursor.
    #[must_use]
    pub fn from_bits(position: u64) -> Cursor {
        Cursor { position }
    }
}

impl<S: BlockSource, F: Form> Table<S, F> {
    pub(super) fn scan(
        &self,
        cursor: Cursor,
        entries: &impl Entries,
        mut visit: impl FnMut(u64),
    ) -> Option<Cursor> {
        let number = self.bucket_number(cursor.position.reverse_bits());
        let highest = 1usize << self.buckets.ilog2();
        let is_split = number >= highest || number + highest < self.buckets;
        let bits = self.buckets.ilog2() + u32::from(is_split);
        let start = (number as u64).reverse_bits();
        let partly = cursor.position > start;
        let mut bucket = Some(self.blocks.bucket(number));
        while let Some(current) = bucket {
            for held in (0..F::SLOTS).map(|at| F::held(current, at)).filter(|it| *it != 0) {
                let reference = reference_in(held);
                if !partly || entries.hash(reference).reverse_bits() >= cursor.position {
                    visit(reference);
                }
            }
            bucket = F::linked(current);
        }
        let length = 1u64.checked_shl(64 - bits)?;
        start.checked_add(length).map(|position| Cursor { position })
    }
}
