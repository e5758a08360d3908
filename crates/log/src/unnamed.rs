//! Ids among which there may be survivors that no digest has named.
//!
//! A guard says in which segment what it guards against is ([`design::tombstones`](crate::design::tombstones)).
//! That may be a survivor whose pass never became part of the log, because the process was killed
//! before: then the log has what the survivor had in the segments that it was made of. Whoever takes such a log
//! back must not believe that there is nothing left to guard against. So each digest says from which id on
//! there may be such survivors, and of former lives of the log between which ids.

use std::ops::Range;

/// More ranges than these become one where they are closest: what is between them counts as one of them.
const RANGES_MAX: usize = 8;

/// Ranges of segment ids, ascending, and not one beside another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unnamed(Vec<Range<u64>>);

impl Unnamed {
    /// What they take in a digest at most: their number, and two numbers of each.
    pub(crate) const BYTES_MAX: usize = 1 + RANGES_MAX * 2 * 10;

    /// All ids from one on.
    pub(crate) fn from_on(first: u64) -> Unnamed {
        let mut unnamed = Unnamed::default();
        unnamed.add(first..u64::MAX);
        unnamed
    }

    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Whether an id is one of them.
    #[inline]
    #[must_use]
    pub fn contains(&self, id: u64) -> bool {
        self.0.iter().any(|range| range.contains(&id))
    }

    /// Where they end.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.end)
    }

    /// Takes more in.
    pub(crate) fn add(&mut self, new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let begins = self.0.partition_point(|range| range.end < new.start);
        let ends = self.0.partition_point(|range| range.start <= new.end);
        let touched = self.0.drain(begins..ends.max(begins));
        let all = touched.fold(new, |all, it| all.start.min(it.start)..all.end.max(it.end));
        self.0.insert(begins, all);
        while self.0.len() > RANGES_MAX {
            let gap = |at: &usize| self.0[*at].start - self.0[*at - 1].end;
            let closest = (1..self.0.len()).min_by_key(gap).unwrap_or(1);
            let after = self.0.remove(closest);
            self.0[closest - 1].end = after.end;
        }
    }

    /// Those below an id that are none of some, which ascend.
    pub(crate) fn below(&self, end: u64, but: impl Iterator<Item = u64> + Clone) -> Unnamed {
        let mut unnamed = Unnamed::default();
        for range in &self.0 {
            let mut from = range.start;
            for id in but.clone().filter(|id| range.contains(id)) {
                unnamed.add(from..id.min(end));
                from = id + 1;
            }
            unnamed.add(from..range.end.min(end));
        }
        unnamed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_taken_in_is_there_and_ranges_are_few_and_apart(
            all in prop::collection::vec((0..200u64, 0..6u64), 0..30),
        ) {
            let mut unnamed = Unnamed::default();
            for (start, length) in &all {
                unnamed.add(*start..start + length);
            }
            let ranges = unnamed.ranges();
            prop_assert!(ranges.len() <= RANGES_MAX);
            prop_assert!(ranges.iter().all(|range| !range.is_empty()));
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            let is_in = |id: u64| all.iter().any(|(start, length)| (*start..start + length).contains(&id));
            for id in 0..220 {
                prop_assert!(unnamed.contains(id) || !is_in(id));
            }
            if all.len() <= RANGES_MAX {
                prop_assert!((0..220).all(|id| unnamed.contains(id) == is_in(id)));
            }
        }

        #[test]
        fn what_is_below_and_none_of_some_stays(
            all in prop::collection::vec((0..200u64, 0..90u64), 0..4),
            but in prop::collection::btree_set(0..200u64, 0..3),
            end in 0..220u64,
        ) {
            let mut unnamed = Unnamed::default();
            all.iter().for_each(|(start, length)| unnamed.add(*start..start + length));
            let below = unnamed.below(end, but.iter().copied());
            for id in 0..300 {
                let stays = unnamed.contains(id) && id < end && !but.contains(&id);
                prop_assert_eq!(below.contains(id), stays, "{}", id);
            }
        }
    }
}
