//! Sectors of a simulated file that cannot be read.

use super::SECTOR;
use std::collections::BTreeMap;
use std::ops::Range;

/// How long a sector stays unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Until it is written: the disk then uses another sector in its place.
    UntilWritten,
    /// For good: it cannot be written either.
    ForGood,
}

/// The unreadable sectors of a file, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Sectors(BTreeMap<usize, Unreadable>);

impl Sectors {
    pub(super) fn spoil(&mut self, offset: usize, how: Unreadable) {
        self.0.insert(offset / SECTOR, how);
    }

    /// Whether all of a range can be read.
    pub(super) fn can_read(&self, range: Range<usize>) -> bool {
        self.touched(range).next().is_none()
    }

    /// Writes a range and returns whether all of it can be written. A sector that is written whole
    /// becomes readable again.
    pub(super) fn write(&mut self, range: Range<usize>) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let whole = range.start.div_ceil(SECTOR)..range.end / SECTOR;
        // To write a part of a sector, the disk has to read the rest.
        let is_lost = |(number, how): (usize, Unreadable)| {
            how == Unreadable::ForGood || !whole.contains(&number)
        };
        if self.touched(range.clone()).any(is_lost) {
            return false;
        }
        self.0.retain(|number, _| !whole.contains(number));
        true
    }

    fn touched(&self, range: Range<usize>) -> impl Iterator<Item = (usize, Unreadable)> + '_ {
        let numbers = range.start / SECTOR..range.end.div_ceil(SECTOR);
        let numbers = if range.is_empty() { 0..0 } else { numbers };
        self.0.range(numbers).map(|(number, how)| (*number, *how))
    }
}
