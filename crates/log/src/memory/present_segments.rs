//! A snapshot of the segments that may still be part of the durable log.
//!
//! The log's own thread makes a new one whenever the set changes, and publishes it to the cleaners.
//! An older snapshot is merely more cautious ([`design::tombstones`](crate::design::tombstones)).

use super::prior_span::PriorSpan;
use crate::format::unnamed_survivors::UnnamedSurvivors;
use thunderhead_wire::SegmentId;

/// The segments that a recovery might still read: the newest durable digest names them, or only an
/// older digest does, or the snapshot is too old to know them.
#[derive(Clone, Default)]
pub(crate) struct PresentSegments {
    /// Ids from here on count as present.
    horizon: u64,
    /// The lowest id that is present; all segments below it are gone.
    lowest: u64,
    /// One bit an id from `lowest` on, unless the ids are spread so far that a list takes less
    /// room.
    bits: Vec<u64>,
    /// The list of ids in that case: ids of several generations of a shard are a million apart.
    listed: Vec<u64>,
    /// Ids of former generations among which there may be survivors that no digest named.
    unnamed: UnnamedSurvivors,
}

impl PresentSegments {
    pub(crate) fn new(
        horizon: u64,
        ids: impl Iterator<Item = u64> + Clone,
        unnamed: UnnamedSurvivors,
    ) -> PresentSegments {
        let lowest = ids.clone().min().unwrap_or(horizon);
        let span = ids.clone().max().map_or(0, |highest| highest - lowest + 1);
        let (bits, listed) = (Vec::new(), Vec::new());
        let mut present = PresentSegments { horizon, lowest, bits, listed, unnamed };
        if span.div_ceil(64) <= 64.max(ids.clone().count() as u64) {
            present.bits = vec![0; span.div_ceil(64) as usize];
            for id in ids {
                let at = id - lowest;
                present.bits[(at / 64) as usize] |= 1 << (at % 64);
            }
        } else {
            present.listed = ids.collect();
            present.listed.sort_unstable();
        }
        present
    }

    /// A snapshot in which all segments are gone.
    pub(crate) fn none() -> PresentSegments {
        PresentSegments { horizon: u64::MAX, lowest: u64::MAX, ..PresentSegments::default() }
    }

    /// The snapshot without some ids. Ids that it does not know stay as they are.
    pub(crate) fn without(&self, ids: impl Iterator<Item = u64>) -> PresentSegments {
        let mut present = self.clone();
        for id in ids.filter(|id| (self.lowest..self.horizon).contains(id)) {
            let at = id - self.lowest;
            if let Some(word) = present.bits.get_mut((at / 64) as usize) {
                *word &= !(1 << (at % 64));
            }
            present.listed.retain(|other| *other != id);
        }
        present
    }

    /// Whether no recovery can read the segment any more.
    #[inline]
    pub(crate) fn is_gone(&self, segment: SegmentId) -> bool {
        if segment.0 >= self.horizon {
            return false;
        }
        // A survivor's sources have lower ids than the survivor.
        if segment.0 < self.lowest {
            return true;
        }
        if self.unnamed.contains(segment.0) {
            return false;
        }
        if !self.listed.is_empty() {
            return self.listed.binary_search(&segment.0).is_err();
        }
        let at = segment.0 - self.lowest;
        self.bits.get((at / 64) as usize).is_none_or(|word| word >> (at % 64) & 1 == 0)
    }

    /// Whether no recovery can read any of the named segments, except segments that leave together.
    pub(crate) fn are_gone(&self, prior_span: PriorSpan, leaves: impl Fn(u64) -> bool) -> bool {
        let Some((first, last)) = prior_span.bounds() else { return true };
        if last >= self.horizon {
            return false;
        }
        let first = first.max(self.lowest);
        if first > last {
            return true;
        }
        if self.unnamed.ranges().iter().any(|range| range.start <= last && first < range.end) {
            return false;
        }
        let listed = &self.listed[self.listed.partition_point(|id| *id < first)..];
        if !listed.iter().take_while(|id| **id <= last).all(|id| leaves(*id)) {
            return false;
        }
        let end = (last - self.lowest + 1).min(self.bits.len() as u64 * 64);
        let mut at = first - self.lowest;
        while at < end {
            let word = self.bits[(at / 64) as usize] >> (at % 64);
            if word == 0 {
                at = (at / 64 + 1) * 64;
                continue;
            }
            at += u64::from(word.trailing_zeros());
            if at < end && !leaves(self.lowest + at) {
                return false;
            }
            at += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ids that are present, and the horizon.
    fn spread_by(spread: u64) -> ([u64; 3], u64) {
        ([5, 5 + spread, 5 + 3 * spread], 5 + 4 * spread)
    }

    #[test]
    fn only_ids_that_the_snapshot_knows_to_be_gone_are_gone() {
        for spread in [1u64, 1 << 30] {
            let (ids, horizon) = spread_by(spread);
            let present =
                PresentSegments::new(horizon, ids.into_iter(), UnnamedSurvivors::default());
            for id in ids {
                assert!(!present.is_gone(SegmentId(id)));
            }
            assert!(present.is_gone(SegmentId(4)));
            assert!(present.is_gone(SegmentId(5 + 2 * spread)));
            assert!(!present.is_gone(SegmentId(horizon)), "not known to the snapshot");
        }
        assert!(!PresentSegments::default().is_gone(SegmentId(1)));
    }

    #[test]
    fn ids_of_generations_far_apart_take_no_more_room_than_their_list() {
        let lives = (0..20u64).flat_map(|life| (0..100).map(move |id| 1 + (life << 20) + id));
        let present = PresentSegments::new(21 << 20, lives.clone(), UnnamedSurvivors::default());
        assert!(present.bits.len() + present.listed.len() <= 2_000);
        assert!(lives.clone().all(|id| !present.is_gone(SegmentId(id))));
        assert!(present.is_gone(SegmentId(102)) && present.is_gone(SegmentId(19 << 20)));
        let near = PresentSegments::new(
            9_000,
            (1..=5_000).filter(|id| id % 3 > 0),
            UnnamedSurvivors::default(),
        );
        assert!(near.listed.is_empty() && near.bits.len() == 79);
    }

    #[test]
    fn a_possible_survivor_that_no_digest_named_is_not_gone() {
        let mut unnamed = UnnamedSurvivors::default();
        unnamed.add(3..7);
        let present = PresentSegments::new(12, [4, 9].into_iter(), unnamed);
        let gone: Vec<u64> = (0..15).filter(|id| present.is_gone(SegmentId(*id))).collect();
        assert_eq!(gone, [0, 1, 2, 3, 7, 8, 10, 11], "no survivor lies below all present ids");
    }

    proptest! {
        #[test]
        fn named_segments_are_gone_exactly_when_each_of_them_is(
            ids in prop::collection::btree_set(0..400u64, 0..6),
            leaving in prop::collection::btree_set(0..400u64, 0..6),
            horizon in 0..450u64,
            unnamed in prop_oneof![
                3 => Just(0..0),
                1 => (0..400u64, 0..9u64).prop_map(|(at, count)| at..at + count),
            ],
            names in prop::collection::vec(0..450u64, 0..3),
            is_spread: bool,
        ) {
            let spread = if is_spread { 1 << 20 } else { 1 };
            let mut not_named = UnnamedSurvivors::default();
            not_named.add(unnamed.start * spread..unnamed.end * spread);
            let ids: Vec<u64> = ids.into_iter().map(|id| id * spread).collect();
            let present = PresentSegments::new(horizon * spread, ids.iter().copied(), not_named);
            let mut prior_span = PriorSpan::default();
            names.iter().for_each(|id| prior_span.add(Some(SegmentId(id * spread))));
            let between = names.iter().min().copied().unwrap_or(1)
                ..=names.iter().max().copied().unwrap_or(0);
            let goes = |id: u64| id.is_multiple_of(spread) && leaving.contains(&(id / spread));
            let gone = |present: &PresentSegments| {
                between.clone().all(|id| present.is_gone(SegmentId(id * spread)))
            };
            let are_gone = present.are_gone(prior_span, goes);
            let without = present.without(ids.iter().copied().filter(|id| goes(*id)));
            prop_assert!(!are_gone || gone(&without));
            if unnamed.is_empty() {
                prop_assert_eq!(are_gone, gone(&without));
            }
        }
    }

    #[test]
    fn segments_that_leave_together_are_gone_and_unknown_ids_are_not() {
        for spread in [1u64, 1 << 30] {
            let (ids, horizon) = spread_by(spread);
            let known = PresentSegments::new(horizon, ids.into_iter(), UnnamedSurvivors::default());
            let present = known.without([1, ids[0], ids[2], horizon, horizon + 7].into_iter());
            assert!(present.is_gone(SegmentId(ids[0])) && present.is_gone(SegmentId(ids[2])));
            assert!(!present.is_gone(SegmentId(ids[1])));
            assert!(!present.is_gone(SegmentId(horizon)), "a cleaner may be making it");
            assert!(!known.is_gone(SegmentId(ids[0])), "the first snapshot is unchanged");
        }
        let nothing = PresentSegments::default().without([3].into_iter());
        assert!(!nothing.is_gone(SegmentId(3)));
    }
}
