//! Ids among which there may be survivors that no digest has named.
//!
//! A guard names the segment of the version that it guards against
//! ([`design::tombstones`](crate::design::tombstones)). That may be a survivor whose pass never
//! became part of the log, because the process was killed before. Then the log still has the
//! version in a segment from which the survivor was made. A generation that takes such a log back
//! must not conclude that nothing is left to guard against. So each digest says from which id on
//! there may be such survivors, and between which ids there may be survivors of former generations.

use std::ops::Range;

/// When there are more ranges than these, the closest two become one, with the ids between them.
const RANGES_MAX: usize = 8;

/// Ranges of segment ids, ascending, with a gap between any two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnnamedSurvivors(Vec<Range<u64>>);

impl UnnamedSurvivors {
    /// The most bytes that they take in a digest: their number, and two numbers of each.
    pub(crate) const BYTES_MAX: usize = 1 + RANGES_MAX * 2 * 10;

    /// All ids from `first` on.
    pub(crate) fn from_on(first: u64) -> UnnamedSurvivors {
        let mut unnamed = UnnamedSurvivors::default();
        unnamed.add(first..u64::MAX);
        unnamed
    }

    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Whether a range has this id.
    #[inline]
    #[must_use]
    pub fn contains(&self, id: u64) -> bool {
        self.0.iter().any(|range| range.contains(&id))
    }

    /// The end of the last range.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.end)
    }

    /// Adds a range.
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

    /// The ids below `end`, except `but`, which ascend.
    pub(crate) fn below(
        &self,
        end: u64,
        but: impl Iterator<Item = u64> + Clone,
    ) -> UnnamedSurvivors {
        let mut unnamed = UnnamedSurvivors::default();
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
        fn added_ids_are_contained_and_ranges_are_few_and_apart(
            all in prop::collection::vec((0..200u64, 0..6u64), 0..30),
        ) {
            let mut unnamed = UnnamedSurvivors::default();
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
        fn ids_below_the_end_stay_except_the_excluded_ones(
            all in prop::collection::vec((0..200u64, 0..90u64), 0..4),
            but in prop::collection::btree_set(0..200u64, 0..3),
            end in 0..220u64,
        ) {
            let mut unnamed = UnnamedSurvivors::default();
            all.iter().for_each(|(start, length)| unnamed.add(*start..start + length));
            let below = unnamed.below(end, but.iter().copied());
            for id in 0..300 {
                let stays = unnamed.contains(id) && id < end && !but.contains(&id);
                prop_assert_eq!(below.contains(id), stays, "{}", id);
            }
        }
    }
}
