//! The tablets of a log: their ranges and indexes, as the reactor sees them.
//!
//! Dropping a tablet removes its index whole and walks none of its objects. Their entries stay in
//! the log, without dead bits, until a cleaner reads them, finds no tablet for them and drops them.
//!
//! # Part of a tablet
//!
//! Dropping part of a tablet makes a *hole*: from then on no read finds a key in it. The index's
//! references in the hole are removed bit by bit and counted as dead, with no tombstones. Cleaners
//! learn of the hole, and another tablet may be created in it, only when no reference remains:
//! until then the cleaners must keep the entries to which the index refers. The remaining parts of
//! the tablet are its *pieces*, which look like tablets from outside and share an index.
//!
//! No replay brings back the entries of a hole. A replay of this log gets ranges, each with the
//! position from which its entries count. A hole is in no range, unless a tablet was created in it;
//! that tablet counts from a later head (`Log::create_tablet` rolls, as it does after a tablet was
//! dropped).

use super::table_limits::{Hand, Share};
use crate::index::{Cursor, Index, IndexBlocks};
use std::cell::Cell;
use thunderhead_wire::{KeyHash, SegmentId, TableId, TabletRange};

/// One tablet.
pub(crate) struct Tablet {
    pub(crate) range: TabletRange,
    pub(crate) index: Index<IndexBlocks>,
    /// Bytes of its live entries.
    pub(crate) live_bytes: u64,
    /// Entries first appended to an earlier head belong to an earlier stay of the tablet in this
    /// log.
    pub(crate) since: SegmentId,
    /// Dropped parts, sorted and with gaps between them.
    pub(crate) holes: Vec<(KeyHash, KeyHash)>,
    /// The holes that have no reference left in the index.
    pub(crate) cleared: Vec<(KeyHash, KeyHash)>,
    /// How far the search for references in the other holes has come.
    pub(crate) clearing: Option<Cursor>,
    /// Numbers that the log's user keeps with it: see `Log::note_tablet`.
    pub(crate) note: [u64; 2],
    /// Its share of the limits of its table.
    pub(crate) share: Share,
    /// The place up to which its objects were looked at, if it is a cache with limits.
    pub(crate) hand: Hand,
}

impl Tablet {
    pub(crate) fn new(range: TabletRange, index: Index<IndexBlocks>, since: SegmentId) -> Tablet {
        let (holes, cleared) = (Vec::new(), Vec::new());
        let (note, share, hand) = ([0; 2], Share::NONE, Hand::default());
        let clearing = None;
        Tablet { range, index, live_bytes: 0, since, holes, cleared, clearing, note, share, hand }
    }

    /// How many hashes it has, with those in holes that are not cleared yet.
    pub(crate) fn hashes(&self) -> u128 {
        self.published().map(|it| u128::from(it.last.0) - u128::from(it.first.0) + 1).sum()
    }

    #[inline]
    pub(crate) fn contains(&self, table: TableId, hash: KeyHash) -> bool {
        self.range.contains(table, hash) && (self.holes.is_empty() || !self.is_hole(hash))
    }

    pub(crate) fn is_hole(&self, hash: KeyHash) -> bool {
        self.holes.iter().any(|(first, last)| (*first..=*last).contains(&hash))
    }

    /// The remaining parts of the tablet.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = TabletRange> + '_ {
        without(self.range, &self.holes)
    }

    /// The remaining part of the tablet, if it is a single one.
    pub(crate) fn only_piece(&self) -> Option<TabletRange> {
        let mut pieces = self.pieces();
        let first = pieces.next();
        first.filter(|_| pieces.next().is_none())
    }

    /// The parts that cleaners know.
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

    /// Makes a hole of a range; returns whether the tablet changed.
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

/// The remaining parts of a range without some holes, which are sorted and have gaps between them.
fn without(
    range: TabletRange,
    holes: &[(KeyHash, KeyHash)],
) -> impl Iterator<Item = TabletRange> + '_ {
    // Before each hole, and behind the last.
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
        // The key's tablet may come before a tablet that lies in one of its holes.
        let candidates = self.list[..at].iter();
        let has_holes = |tablet: &Tablet| !tablet.holes.is_empty();
        let mut of_table =
            candidates.enumerate().rev().take_while(|(_, it)| it.range.table == table);
        // A tablet without holes may itself lie in one: skip it.
        if !self.list.iter().any(has_holes) {
            return None;
        }
        of_table.find(|(_, tablet)| tablet.contains(table, hash)).map(|(at, _)| at)
    }

    pub(crate) fn overlapping(&self, range: TabletRange) -> Option<TabletRange> {
        let near = self.list.iter().filter(|tablet| tablet.range.overlaps(&range));
        near.flat_map(Tablet::pieces).find(|other| other.overlaps(&range))
    }

    /// Whether an index still has references in a hole of this range.
    pub(crate) fn is_being_cleared(&self, range: TabletRange) -> bool {
        self.list.iter().any(|tablet| tablet.clearing.is_some() && tablet.range.overlaps(&range))
    }

    pub(crate) fn insert(&mut self, tablet: Tablet) {
        let at = self.list.partition_point(|other| other.range < tablet.range);
        self.list.insert(at, tablet);
    }

    /// Takes out a tablet whose only remaining piece is this one.
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
        /// At either end of the hash range: the remaining parts are the longest runs outside the
        /// holes.
        #[test]
        fn remaining_parts_are_the_runs_outside_all_holes(
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
