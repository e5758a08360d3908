//! The tablets that live in a log: their ranges and indexes, as the reactor sees them.
//!
//! Dropping one takes its index away whole and walks none of its objects. Their entries stay in
//! the log, with no dead bits, until a cleaner comes by, finds no tablet for them and drops them.

use crate::blocks::IndexBlocks;
use crate::index::Index;
use std::cell::Cell;
use thunderhead_wire::{KeyHash, SegmentId, TableId, TabletRange};

/// One tablet.
pub(crate) struct Tablet {
    pub(crate) range: TabletRange,
    pub(crate) index: Index<IndexBlocks>,
    /// Bytes of its live entries.
    pub(crate) live_bytes: u64,
    /// Entries first appended to an earlier head belong to an earlier life of the tablet.
    pub(crate) since: SegmentId,
}

/// All tablets of a log, sorted by table and range.
#[derive(Default)]
pub(crate) struct Tablets {
    pub(crate) list: Vec<Tablet>,
    last: Cell<usize>,
}

impl Tablets {
    /// The place in the list of the tablet that holds a key.
    #[inline]
    pub(crate) fn find(&self, table: TableId, hash: KeyHash) -> Option<usize> {
        let last = self.last.get();
        if self.list.get(last).is_some_and(|tablet| tablet.range.contains(table, hash)) {
            return Some(last);
        }
        let at = self.search(table, hash)?;
        self.last.set(at);
        Some(at)
    }

    fn search(&self, table: TableId, hash: KeyHash) -> Option<usize> {
        let after = self
            .list
            .partition_point(|tablet| (tablet.range.table, tablet.range.first) <= (table, hash));
        let at = after.checked_sub(1)?;
        self.list[at].range.contains(table, hash).then_some(at)
    }

    pub(crate) fn overlapping(&self, range: TabletRange) -> Option<TabletRange> {
        self.list.iter().map(|tablet| tablet.range).find(|other| other.overlaps(&range))
    }

    pub(crate) fn insert(&mut self, tablet: Tablet) {
        let at = self.list.partition_point(|other| other.range < tablet.range);
        self.list.insert(at, tablet);
    }

    pub(crate) fn remove(&mut self, range: TabletRange) -> Option<Tablet> {
        let at = self.list.iter().position(|tablet| tablet.range == range)?;
        Some(self.list.remove(at))
    }
}
