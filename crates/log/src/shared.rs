//! The state that the log's own thread and its cleaners share, and their ways to pass messages.
//!
//! ```text
//!   reactor (Log)  -- closed segments that are durable -->  candidates (cleaners)
//!                  <-- passes of combined cleaning ------
//!                  -- snapshots: tablets, present segments -->
//! ```
//!
//! The reactor never waits for a cleaner. The queues are lock-free. Snapshots that concern cleaning
//! alone are published with `try_lock`, because an older snapshot is merely conservative. Only
//! creating or dropping a tablet takes a lock that a cleaner may hold for a few nanoseconds.

use crate::cleaner::candidates::{Candidate, Candidates};
use crate::entry::Seal;
use crate::error::OptionsError;
use crate::frames::Frames;
use crate::index::IndexView;
use crate::memory::Memory;
use crate::options::Options;
use crate::prior_span::PriorSpan;
use crate::quiescence::{Readers, Turns};
use crate::segment::{Segment, straddle_bytes};
use crate::unnamed_survivors::UnnamedSurvivors;
use crossbeam_queue::SegQueue;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thunderhead_wire::{KeyHash, LogId, SegmentId, TableId, TabletRange};

/// Shared by a log and its cleaners.
pub(crate) struct Shared {
    pub(crate) memory: Arc<Memory>,
    pub(crate) log: LogId,
    pub(crate) seal: Seal,
    pub(crate) options: Options,
    pub(crate) reserves: Reserves,
    pub(crate) frames: Frames,
    pub(crate) turns: Turns,
    pub(crate) readers: Arc<Readers>,
    /// The id of the next segment: also the log's clock.
    pub(crate) next_segment: AtomicU64,
    /// For each cleaner, a lower bound of the ids of survivors that it has not reported yet.
    pub(crate) in_flight: [AtomicU64; crate::limits::CLEANERS_MAX],
    /// Segments that cleaners may work on, on their way from the reactor.
    pub(crate) closed: SegQueue<Segment>,
    /// Segments that the reactor had pinned, on their way back.
    pub(crate) returned: SegQueue<Candidate>,
    /// Passes of combined cleaning, on their way to the reactor.
    pub(crate) passes: SegQueue<Pass>,
    pub(crate) candidates: Mutex<Candidates>,
    tablets: Mutex<Arc<TabletMap>>,
    present: Mutex<Arc<PresentSegments>>,
    pub(crate) sums: Sums,
}

/// Sums from which the balancer decides. Few threads write each, any may read it, and it may lag.
#[derive(Default)]
pub(crate) struct Sums {
    /// Bytes of live objects and completion records. Stored by the reactor at each turn.
    pub(crate) live_bytes: AtomicU64,
    /// Bytes of tombstones in memory.
    pub(crate) tombstone_bytes: AtomicI64,
    /// Bytes of the log on backups.
    pub(crate) disk_bytes: AtomicU64,
    /// Seglets of swept segments, which are free once a durable digest no longer names them.
    pub(crate) coming_seglets: AtomicUsize,
    /// The number of drops of tablets: a candidate whose own number is lower may hold their
    /// entries.
    pub(crate) drops: AtomicU64,
    /// The last write for which room had to be made found none: writers are blocked on memory.
    pub(crate) is_short: AtomicBool,
    pub(crate) counters: Counters,
}

/// The work of the cleaners since the log began.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) compactions: AtomicU64,
    pub(crate) compaction_bytes: AtomicU64,
    pub(crate) compactions_freed: AtomicU64,
    pub(crate) passes: AtomicU64,
    pub(crate) survivor_bytes: AtomicU64,
    pub(crate) cleaned_segments: AtomicU64,
    pub(crate) spent_segments: AtomicU64,
    pub(crate) entries_moved: AtomicU64,
    pub(crate) residuals: AtomicU64,
    pub(crate) rescans: AtomicU64,
}

/// The seglets that each purpose leaves to more urgent ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserves {
    /// For two heads that hold a digest only.
    pub(crate) emergency: usize,
    /// For survivors.
    pub(crate) pool: usize,
    /// For the tombstones of deletes.
    pub(crate) deletes: usize,
}

/// Bytes of live data with which the cleaner can make progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LiveLimits {
    /// Writes that add data are refused beyond this.
    pub(crate) writes: u64,
    /// All writes are refused beyond this: up to here cleaning is sure to make progress.
    pub(crate) safe: u64,
}

/// The seglets that hold entries of so many bytes, in segments of a size. They include room for the
/// filling at the end of each seglet. For each survivor they include its header, its last seglet,
/// and the end into which the longest entry did not fit. Entries are copied one by one in an order
/// that is not known in advance, so this is the worst case.
fn stock_for(bytes: usize, seglet_bytes: usize, segment_bytes: usize) -> usize {
    let survivors = survivors_of(bytes, segment_bytes);
    let filled = seglet_bytes - straddle_bytes(seglet_bytes);
    bytes.div_ceil(filled) + survivors
}

/// The most survivors that entries of so many bytes can need.
pub(crate) fn survivors_of(bytes: usize, segment_bytes: usize) -> usize {
    1 + bytes / (segment_bytes - segment_bytes / 4)
}

impl Reserves {
    pub(crate) fn new(memory: &Memory, options: &Options) -> Reserves {
        let digest_bytes =
            256 + UnnamedSurvivors::BYTES_MAX + 3 * Reserves::segments_max(memory, options);
        let segment_bytes = options.segment_bytes;
        let stock = stock_for(segment_bytes, memory.seglet_bytes(), segment_bytes);
        let pool = options.cleaner.pool_segments * stock;
        Reserves {
            emergency: 2 * digest_bytes.div_ceil(memory.seglet_bytes()),
            pool,
            deletes: options.cleaner.delete_seglets,
        }
    }

    /// More segments than the log ever has: the log on backups, its expansion and as much again for
    /// segments that are not full.
    pub(crate) fn segments_max(memory: &Memory, options: &Options) -> usize {
        let full = memory.seglets() * memory.seglet_bytes() / options.segment_bytes;
        ((full as f64 * options.cleaner.disk_expansion) as usize + 8) * 4
    }

    pub(crate) fn for_writes(&self) -> usize {
        self.emergency + self.pool + self.deletes
    }

    pub(crate) fn for_deletes(&self) -> usize {
        self.emergency + self.pool
    }

    pub(crate) fn for_survivors(&self) -> usize {
        self.emergency
    }
}

/// One pass of combined cleaning, done but not yet part of the log.
pub(crate) struct Pass {
    /// The cleaner's place in `in_flight`.
    pub(crate) cleaner: usize,
    /// The number of survivors that the pass might have made.
    pub(crate) promised: usize,
    /// Seglets of the cleaned segments, if they are counted as coming.
    pub(crate) coming: usize,
    pub(crate) cleaned: Vec<Segment>,
    pub(crate) survivors: Vec<Segment>,
}

impl Shared {
    pub(crate) fn new(memory: Arc<Memory>, log: LogId, options: Options) -> Shared {
        Shared {
            log,
            seal: Seal::new(log),
            reserves: Reserves::new(&memory, &options),
            frames: Frames::new(&memory, &options),
            memory,
            options,
            turns: Turns::new(),
            readers: Arc::new(Readers::new()),
            next_segment: AtomicU64::new(1),
            in_flight: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            closed: SegQueue::new(),
            returned: SegQueue::new(),
            passes: SegQueue::new(),
            candidates: Mutex::default(),
            tablets: Mutex::default(),
            present: Mutex::default(),
            sums: Sums::default(),
        }
    }

    /// Refuses sizes for which a digest could outgrow the segment that it opens.
    pub(crate) fn check_digest(&self) -> Result<(), OptionsError> {
        let segments = Reserves::segments_max(&self.memory, &self.options);
        let most = self.options.segment_bytes.min(crate::limits::BODY_BYTES_MAX);
        if 3 * segments + 1024 > most {
            return Err(OptionsError(format!(
                "a log of up to {segments} segments has digests too long for segments of {} bytes; make segments larger",
                self.options.segment_bytes
            )));
        }
        Ok(())
    }

    /// Refuses reserves and fractions that leave no room for live data: not even for one object of
    /// full length.
    pub(crate) fn check_room(&self) -> Result<(), OptionsError> {
        let (room, needed) = (self.limits().writes, self.options.entry_bytes_max());
        if room < needed {
            let cleaner = &self.options.cleaner;
            return Err(OptionsError(format!(
                "beside its reserves the memory holds {room} bytes of live data, and it must hold at least {needed}; make a larger memory or smaller segments, or lower delete_seglets ({}) or pool_segments ({}), or raise safe_fraction ({}) or write_fraction ({})",
                cleaner.delete_seglets,
                cleaner.pool_segments,
                cleaner.safe_fraction,
                cleaner.write_fraction
            )));
        }
        Ok(())
    }

    /// The seglets that a cleaner needs before it copies so many bytes.
    pub(crate) fn stock_for(&self, bytes: usize) -> usize {
        stock_for(bytes, self.memory.seglet_bytes(), self.options.segment_bytes)
    }

    pub(crate) fn next_segment_id(&self) -> SegmentId {
        SegmentId(self.next_segment.fetch_add(1, Ordering::SeqCst))
    }

    /// The memory that segments may use: all except that of the indexes.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes_with(self.memory.index_seglets())
    }

    fn log_bytes_with(&self, index_seglets: usize) -> u64 {
        let seglets = self.memory.seglets() - index_seglets;
        (seglets * self.memory.seglet_bytes()) as u64
    }

    /// The amount of live data that the log may hold, out of the memory without the reserves and
    /// one head. The shares are lower if a segment has few seglets or seglets are small: then the
    /// segments' last seglets, half empty on average, and the fillings weigh in.
    pub(crate) fn limits(&self) -> LiveLimits {
        self.limits_with(self.memory.index_seglets())
    }

    /// Does so for a given number of index seglets: nothing else that changes matters.
    pub(crate) fn limits_with(&self, index_seglets: usize) -> LiveLimits {
        let seglet_bytes = self.memory.seglet_bytes();
        let ends = 1.5 * seglet_bytes as f64 / self.options.segment_bytes as f64;
        let fillings = straddle_bytes(seglet_bytes) as f64 / seglet_bytes as f64;
        let cleaner = &self.options.cleaner;
        let safe = cleaner.safe_fraction.min(1.0 - ends - fillings)
            * self.usable_bytes(index_seglets) as f64;
        let writes = safe * cleaner.write_fraction / cleaner.safe_fraction;
        LiveLimits { writes: writes as u64, safe: safe as u64 }
    }

    fn usable_bytes(&self, index_seglets: usize) -> u64 {
        let kept = self.reserves.for_writes() * self.memory.seglet_bytes();
        self.log_bytes_with(index_seglets)
            .saturating_sub((kept + self.options.segment_bytes) as u64)
    }

    pub(crate) fn tablets(&self) -> Arc<TabletMap> {
        Arc::clone(&lock(&self.tablets))
    }

    pub(crate) fn publish_tablets(&self, tablets: TabletMap) {
        *lock(&self.tablets) = Arc::new(tablets);
    }

    pub(crate) fn present(&self) -> Arc<PresentSegments> {
        Arc::clone(&lock(&self.present))
    }

    /// Publishes the segments of the durable log; false when a cleaner held the lock.
    pub(crate) fn try_publish_present(&self, present: PresentSegments) -> bool {
        match self.present.try_lock() {
            Ok(mut current) => {
                *current = Arc::new(present);
                true
            }
            Err(_) => false,
        }
    }
}

impl Shared {
    /// Publishes at once, waiting for the lock: a cleaner holds it for a few nanoseconds at most.
    pub(crate) fn publish_present(&self, present: PresentSegments) {
        *lock(&self.present) = Arc::new(present);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A cleaner that panicked has not left these values half-changed: each is replaced whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tablets of a log as cleaners see them.
#[derive(Default)]
pub(crate) struct TabletMap {
    pub(crate) tablets: Vec<TabletView>,
    /// The index of completion records.
    pub(crate) completions: Option<IndexView>,
}

/// One tablet as cleaners see it.
pub(crate) struct TabletView {
    pub(crate) range: TabletRange,
    /// Entries born earlier belong to an earlier stay of the tablet in this log.
    pub(crate) since: SegmentId,
    pub(crate) index: IndexView,
}

impl TabletMap {
    /// The place of the tablet to which an entry belongs, if this log has it.
    #[inline]
    pub(crate) fn find(&self, table: TableId, hash: KeyHash, birth: SegmentId) -> Option<usize> {
        let after = self
            .tablets
            .partition_point(|tablet| (tablet.range.table, tablet.range.first) <= (table, hash));
        let at = after.checked_sub(1)?;
        let tablet = &self.tablets[at];
        (tablet.range.contains(table, hash) && birth >= tablet.since).then_some(at)
    }
}

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
