//! The tablets that live in a log: their ranges and indexes, as the reactor sees them.
//!
//! Dropping one takes its index away whole and walks none of its objects. Their entries stay in
//! the log, with no dead bits, until a cleaner comes by, finds no tablet for them and drops them.
//!
//! # Part of a tablet
//!
//! Dropping part of one makes a *hole*: at once nobody finds a key there any more. What the index
//! still refers to is taken out bit by bit and counted as dead, with no tombstones. Only when nothing
//! is left of it do cleaners hear of the hole, and only then may another tablet be made there: until
//! then entries that the index refers to are kept. What is left of the tablet are its *pieces*, which
//! look like tablets from outside and share an index.
//!
//! No replay brings back what was in a hole. Who replays this log is told which ranges, and since when:
//! a hole is in none of them, unless a tablet was made in it, and that one counts from a later head
//! (`Log::create_tablet` rolls, as it does after a tablet was dropped).

use crate::blocks::IndexBlocks;
use crate::index::{Cursor, Index};
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
    /// Parts that are gone, sorted and apart from each other.
    pub(crate) holes: Vec<(KeyHash, KeyHash)>,
    /// Those of them of which nothing is left in the index.
    pub(crate) cleared: Vec<(KeyHash, KeyHash)>,
    /// How far the search for what is left of the others has come.
    pub(crate) clearing: Option<Cursor>,
    /// Numbers that the log's user keeps with it: see `Log::note_tablet`.
    pub(crate) note: [u64; 2],
}

impl Tablet {
    pub(crate) fn new(range: TabletRange, index: Index<IndexBlocks>, since: SegmentId) -> Tablet {
        let (holes, cleared) = (Vec::new(), Vec::new());
        let note = [0; 2];
        Tablet { range, index, live_bytes: 0, since, holes, cleared, clearing: None, note }
    }

    #[inline]
    pub(crate) fn contains(&self, table: TableId, hash: KeyHash) -> bool {
        self.range.contains(table, hash) && (self.holes.is_empty() || !self.is_hole(hash))
    }

    pub(crate) fn is_hole(&self, hash: KeyHash) -> bool {
        self.holes.iter().any(|(first, last)| (*first..=*last).contains(&hash))
    }

    /// What is left of it.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = TabletRange> + '_ {
        without(self.range, &self.holes)
    }

    /// What is left of it, where that is one piece.
    pub(crate) fn only_piece(&self) -> Option<TabletRange> {
        let mut pieces = self.pieces();
        let first = pieces.next();
        first.filter(|_| pieces.next().is_none())
    }

    /// What cleaners are to know of it.
    pub(crate) fn published(&self) -> impl Iterator<Item = TabletRange> + '_ {
        without(self.range, &self.cleared)
    }

    /// The piece that holds all of a range.
    pub(crate) fn piece_around(&self, range: TabletRange) -> Option<TabletRange> {
        let holds = |piece: &TabletRange| {
            piece.table == range.table && piece.first <= range.first && range.last <= piece.last
        };
        self.pieces().find(holds)
    }

    /// Makes a hole of a range; says whether anything has changed.
    pub(crate) fn cut(&mut self, range: TabletRange) -> bool {
        if !self.pieces().any(|piece| piece.overlaps(&range)) {
            return false;
        }
        let (first, last) = (range.first.max(self.range.first), range.last.min(self.range.last));
        self.holes.push((first, last));
        self.holes.sort_unstable();
        let mut joined: Vec<(KeyHash, KeyHash)> = Vec::with_capacity(self.holes.len());
        for (first, last) in self.holes.drain(..) {
            match joined.last_mut() {
                Some(before) if first.0 <= before.1.0.saturating_add(1) => {
                    before.1 = before.1.max(last);
                }
                _ => joined.push((first, last)),
            }
        }
        self.holes = joined;
        self.clearing = Some(Cursor::default());
        true
    }
}

/// What is left of a range without some parts, which are sorted and apart from each other.
fn without(
    range: TabletRange,
    holes: &[(KeyHash, KeyHash)],
) -> impl Iterator<Item = TabletRange> + '_ {
    // Before each of them, and behind the last.
    (0..=holes.len()).filter_map(move |at| {
        let first = match at.checked_sub(1) {
            Some(before) => KeyHash(holes[before].1.0.checked_add(1)?),
            None => range.first,
        };
        let last = match holes.get(at) {
            Some((hole, _)) => KeyHash(hole.0.checked_sub(1)?),
            None => range.last,
        };
        (first <= last).then_some(TabletRange { first, last, ..range })
    })
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
        if self.list.get(last).is_some_and(|tablet| tablet.contains(table, hash)) {
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
        if self.list[at].contains(table, hash) {
            return Some(at);
        }
        // It may be behind a tablet in a hole of its own.
        let candidates = self.list[..at].iter();
        let has_holes = |tablet: &Tablet| !tablet.holes.is_empty();
        let mut of_table =
            candidates.enumerate().rev().take_while(|(_, it)| it.range.table == table);
        // One without holes may itself be in one: pass over it.
        if !self.list.iter().any(has_holes) {
            return None;
        }
        of_table.find(|(_, tablet)| tablet.contains(table, hash)).map(|(at, _)| at)
    }

    pub(crate) fn overlapping(&self, range: TabletRange) -> Option<TabletRange> {
        let near = self.list.iter().filter(|tablet| tablet.range.overlaps(&range));
        near.flat_map(Tablet::pieces).find(|other| other.overlaps(&range))
    }

    /// Whether something of a range is still in an index that should not be.
    pub(crate) fn is_being_cleared(&self, range: TabletRange) -> bool {
        self.list.iter().any(|tablet| tablet.clearing.is_some() && tablet.range.overlaps(&range))
    }

    pub(crate) fn insert(&mut self, tablet: Tablet) {
        let at = self.list.partition_point(|other| other.range < tablet.range);
        self.list.insert(at, tablet);
    }

    /// Takes out a tablet of which only this piece is left.
    pub(crate) fn remove(&mut self, range: TabletRange) -> Option<Tablet> {
        let at = self.list.iter().position(|tablet| tablet.only_piece() == Some(range))?;
        Some(self.list.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// At either end of what a hash can be: what is left are the longest runs that no hole has.
        #[test]
        fn what_is_left_is_what_no_hole_has(
            high in any::<bool>(),
            first in 0..4u64,
            holed in proptest::collection::vec(any::<bool>(), 1..12),
        ) {
            let count = holed.len() as u64;
            let base = if high { u64::MAX - (count - 1) } else { first };
            let hash = |at: usize| KeyHash(base + at as u64);
            let runs = |of: bool| {
                let mut runs: Vec<(KeyHash, KeyHash)> = Vec::new();
                for (at, _) in holed.iter().enumerate().filter(|(_, it)| **it == of) {
                    match runs.last_mut() {
                        Some((_, last)) if last.0 + 1 == hash(at).0 => *last = hash(at),
                        _ => runs.push((hash(at), hash(at))),
                    }
                }
                runs
            };
            let range = TabletRange { table: TableId(1), first: hash(0), last: hash(holed.len() - 1) };
            let left: Vec<_> = without(range, &runs(true)).map(|it| (it.first, it.last)).collect();
            prop_assert_eq!(left, runs(false));
        }
    }
}
