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

use super::candidates::{Candidate, Candidates};
use super::expired::ExpiredItem;
use super::frames::Frames;
use super::victims::Victim;
use crate::error::OptionsError;
use crate::format::entry::Seal;
use crate::format::unnamed_survivors::UnnamedSurvivors;
use crate::index::IndexView;
use crate::memory::Memory;
use crate::memory::present_segments::PresentSegments;
use crate::memory::quiescence::{Readers, Turns};
use crate::memory::segment::{Segment, straddle_bytes};
use crate::options::Options;
use crate::sync::lock;
use crossbeam_queue::SegQueue;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
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
    /// Items that have expired, on their way to the reactor.
    pub(crate) expired: SegQueue<Vec<ExpiredItem>>,
    /// Objects of caches that may be evicted, on their way to the reactor.
    pub(crate) victims: SegQueue<Vec<ExpiredItem>>,
    /// The time of day in milliseconds, as the reactor told it last; 0 if it never did.
    pub(crate) time: AtomicU64,
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
    /// Items in the queue of expired ones.
    pub(crate) expiring: AtomicUsize,
    /// The length of the queue of objects that may be evicted.
    pub(crate) victims: AtomicUsize,
    /// Bytes of the victims in passes, which the log's thread has not taken out of the index yet.
    pub(crate) victim_bytes: AtomicU64,
    /// Bytes that passes copied of segments with few objects, since a pass last left at least half
    /// of its objects behind.
    pub(crate) spared_bytes: AtomicU64,
    /// Cleaners may evict whole segments.
    pub(crate) evicts_in_passes: AtomicBool,
    /// The room for objects that are to be written together, for which objects must be evicted.
    pub(crate) wanted_bytes: AtomicU64,
    /// The free seglets that such objects need.
    pub(crate) wanted_seglets: AtomicUsize,
    /// How often a segment was looked through for objects to evict.
    pub(crate) looks: AtomicU64,
    /// The log has or had objects of caches.
    pub(crate) has_cache: AtomicBool,
    /// The log has no copies, so no recovery reads its segments.
    pub(crate) is_volatile: AtomicBool,
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
    /// Writes to caches are refused beyond this, until objects are evicted. It is higher if
    /// cleaners evict whole segments: they make progress however much is live.
    pub(crate) cache: u64,
}

/// The seglets that hold entries of so many bytes. They include room for the
/// filling at the end of each seglet. For each survivor they include its header, its last seglet,
/// and the end into which the longest entry did not fit. Entries are copied one by one in an order
/// that is not known in advance, so this is the worst case.
fn stock_for(bytes: usize, seglet_bytes: usize, options: &Options) -> usize {
    let survivors = options.survivors_of(bytes);
    let filled = seglet_bytes - straddle_bytes(seglet_bytes);
    bytes.div_ceil(filled) + survivors
}

impl Reserves {
    pub(crate) fn new(memory: &Memory, options: &Options) -> Reserves {
        let digest_bytes =
            256 + UnnamedSurvivors::BYTES_MAX + 3 * Reserves::segments_max(memory, options);
        let segment_bytes = options.segment_bytes;
        let stock = stock_for(segment_bytes, memory.seglet_bytes(), options);
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
    /// The objects that are not in the survivors, because they make room.
    pub(crate) victims: Vec<Victim>,
}

/// The part of the memory that a cache without copies leaves to dead entries, for each part that
/// its indexes take.
const SLACK_FOR_INDEXES: f64 = 0.8;

/// A cache without copies of at least so many full segments does without compaction.
const COMBINED_MIN: usize = 24;

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
            expired: SegQueue::new(),
            victims: SegQueue::new(),
            time: AtomicU64::new(0),
            candidates: Mutex::default(),
            tablets: Mutex::default(),
            present: Mutex::default(),
            sums: Sums { evicts_in_passes: AtomicBool::new(true), ..Sums::default() },
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
        stock_for(bytes, self.memory.seglet_bytes(), &self.options)
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

    /// Does so for a given number of index seglets. Else only [`Shared::evicts_in_passes`] changes
    /// and matters.
    pub(crate) fn limits_with(&self, index_seglets: usize) -> LiveLimits {
        let seglet_bytes = self.memory.seglet_bytes();
        let ends = 1.5 * seglet_bytes as f64 / self.options.segment_bytes as f64;
        let fillings = straddle_bytes(seglet_bytes) as f64 / seglet_bytes as f64;
        let cleaner = &self.options.cleaner;
        let usable = self.usable_bytes(index_seglets) as f64;
        let safe = cleaner.safe_fraction.min(1.0 - ends - fillings) * usable;
        let writes = safe * cleaner.write_fraction / cleaner.safe_fraction;
        let mut cache = writes;
        if self.evicts_in_passes() {
            // Cleaners copy less if less is live. Small objects cost them most, and need the
            // largest indexes.
            let indexes = index_seglets as f64 / self.memory.seglets() as f64;
            let part = cleaner.cache_fraction - SLACK_FOR_INDEXES * indexes - ends / 3.0 - fillings;
            cache = part.max(0.5) * usable;
        }
        LiveLimits { writes: writes as u64, safe: safe as u64, cache: cache as u64 }
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

    /// The segments that a recovery might read: none of a cache without copies.
    pub(crate) fn present(&self) -> Arc<PresentSegments> {
        if self.is_cache_without_copies() {
            return Arc::new(PresentSegments::none());
        }
        Arc::clone(&lock(&self.present))
    }

    /// Whether the log holds a cache and no recovery reads it. Then dead objects leave nothing
    /// behind. A rebuild reads segments, so it is none as long as tablets are rebuilt.
    pub(crate) fn is_cache_without_copies(&self) -> bool {
        self.sums.is_volatile.load(Ordering::Relaxed)
            && self.sums.has_cache.load(Ordering::Relaxed)
            && !self.frames.is_rebuilding()
    }

    /// Whether segments are compacted. Compaction spares the backups. Without them combined
    /// cleaning is cheaper, if it has some segments to choose from: it considers their age, and
    /// sorts its survivors by age.
    pub(crate) fn compacts(&self) -> bool {
        let combines = self.frames.full() >= COMBINED_MIN && self.is_cache_without_copies();
        self.options.cleaner.compaction && !combines
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
    /// Lets the candidates take over the segments that are on their way to the cleaners.
    pub(crate) fn take_closed(&self, candidates: &mut Candidates) {
        candidates.take_closed(&self.closed, &self.returned);
    }

    /// Frees the memory in limbo that the reactor has moved past.
    pub(crate) fn free_limbo(&self, candidates: &mut Candidates) {
        let freed = &self.sums.counters.compactions_freed;
        candidates.free_limbo(&self.turns, &self.memory, freed);
    }

    /// Takes a candidate for the log's own thread, which does not wait for a lock that a cleaner
    /// holds.
    pub(crate) fn try_take_candidate(&self, id: SegmentId) -> Option<Candidate> {
        let mut candidates = match self.candidates.try_lock() {
            Ok(candidates) => candidates,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.take_closed(&mut candidates);
        let at = candidates.list.iter().position(|candidate| candidate.segment.id == id)?;
        Some(candidates.list.swap_remove(at))
    }

    /// Publishes at once, waiting for the lock: a cleaner holds it for a few nanoseconds at most.
    pub(crate) fn publish_present(&self, present: PresentSegments) {
        *lock(&self.present) = Arc::new(present);
    }
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
