//! The number of segments that the log has on backups, and its limits.
//!
//! Each segment takes a *frame* there, however few bytes it has, and a storage has a fixed number
//! of frames. A log that finds no frame cannot even open the head whose digest would free others.
//! So frames are counted, not bytes:
//!
//! ```text
//!  0 ───────────── high ──────── limit ──────────────── hard
//!    nothing to do │ segments are │ no entry is appended│ not even survivors are
//!                  │ combined     │ that needs a head   │ written; heads for digests alone
//! ```
//!
//! A cleaned segment takes its frame until a durable digest no longer names it. It counts for the
//! limits. It does not count for the decision to clean more: otherwise everything would be cleaned
//! at once while the first pass is in flight. So when frames are short, passes are taken into the
//! log early.
//!
//! While tablets are rebuilt, their former log has its frames, too. So the limit is lower then: the
//! log may take as many more as its memory needs, and not twice that. Segments that are adopted and
//! not released do not count: they are the former log's, and no cleaner can do anything about them.

use crate::memory::Memory;
use crate::options::Options;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Frames beyond the memory and its expansion: for heads that are not full, and short survivors.
const SHORT: usize = 4;

/// Frames beyond the limit, for survivors.
const SURVIVORS: usize = 4;

/// Frames beyond those, for heads that are opened for their digests.
const DIGESTS: usize = 2;

/// Frames that a log may take beyond its memory times the expansion.
pub const FRAMES_SPARE: usize = SHORT + SURVIVORS + DIGESTS;

/// See the module's documentation.
pub(crate) struct Frames {
    /// The number of full segments that would fill the memory.
    full: usize,
    most: usize,
    share_high: f64,
    limit: AtomicUsize,
    /// Frames taken, as of the last turn.
    taken: AtomicUsize,
    /// Of these, the frames that remain when all pending passes are part of the log.
    staying: AtomicUsize,
    /// Survivors that cleaners may be writing.
    promised: AtomicUsize,
    rebuilds: AtomicUsize,
}

impl Frames {
    pub(crate) fn new(memory: &Memory, options: &Options) -> Frames {
        let full = memory.seglets() * memory.seglet_bytes() / options.segment_bytes;
        let most = (full as f64 * options.cleaner.disk_expansion) as usize + SHORT;
        Frames {
            full,
            most,
            share_high: options.cleaner.disk_share_high,
            limit: AtomicUsize::new(most),
            taken: AtomicUsize::new(0),
            staying: AtomicUsize::new(0),
            promised: AtomicUsize::new(0),
            rebuilds: AtomicUsize::new(0),
        }
    }

    /// The number of full segments that would fill the memory.
    pub(crate) fn full(&self) -> usize {
        self.full
    }

    /// Publishes the counts of the log's thread.
    pub(crate) fn publish(&self, taken: usize, staying: usize) {
        self.taken.store(taken, Ordering::Relaxed);
        self.staying.store(staying, Ordering::Relaxed);
    }

    /// The counts that were published last.
    pub(crate) fn published(&self) -> (usize, usize) {
        (self.taken.load(Ordering::Relaxed), self.staying.load(Ordering::Relaxed))
    }

    /// The number of frames that appending may reach.
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    fn high(&self) -> f64 {
        self.share_high * self.limit() as f64
    }

    /// Whether segments are to be combined to have fewer.
    pub(crate) fn is_high(&self) -> bool {
        self.staying.load(Ordering::Relaxed) as f64 >= self.high()
    }

    /// Whether cleaned segments must leave soon.
    pub(crate) fn is_short(&self) -> bool {
        self.taken.load(Ordering::Relaxed) as f64 >= self.high()
    }

    /// The number of survivors that may be written now.
    pub(crate) fn room(&self) -> usize {
        let hard = self.most.max(self.limit()) + SURVIVORS;
        let taken = self.taken.load(Ordering::Relaxed) + self.promised.load(Ordering::Relaxed);
        hard.saturating_sub(taken)
    }

    /// Counts the survivors that a cleaner may write.
    pub(crate) fn promise(&self, survivors: usize) {
        self.promised.fetch_add(survivors, Ordering::Relaxed);
    }

    /// Ends the promise: the log's thread knows the survivors now, or they are not written.
    pub(crate) fn keep_promise(&self, survivors: usize) {
        self.promised.fetch_sub(survivors, Ordering::Relaxed);
    }

    /// Whether tablets are being rebuilt.
    pub(crate) fn is_rebuilding(&self) -> bool {
        self.rebuilds.load(Ordering::Relaxed) > 0
    }

    /// Lowers the limit: tablets are being rebuilt.
    pub(crate) fn rebuild_begins(&self) {
        if self.rebuilds.fetch_add(1, Ordering::Relaxed) == 0 {
            let more = self.taken.load(Ordering::Relaxed) + self.full + SHORT;
            self.limit.store(more.min(self.most), Ordering::Relaxed);
        }
    }

    /// Raises the limit again after the last of the rebuilds.
    pub(crate) fn rebuild_ends(&self) {
        if self.rebuilds.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.limit.store(self.most, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuild_may_take_as_much_as_memory_holds_and_survivors_come_beyond_the_limit() {
        let memory = Memory::new(64 << 20).unwrap();
        let options = Options { segment_bytes: 1 << 20, ..Options::default() };
        let frames = Frames::new(&memory, &options);
        let full = memory.seglets() * memory.seglet_bytes() / options.segment_bytes;
        assert_eq!((frames.full, frames.limit()), (full, 2 * full + SHORT));
        frames.publish(full / 2, full / 2);
        frames.rebuild_begins();
        frames.rebuild_begins();
        assert_eq!(frames.limit(), full / 2 + full + SHORT);
        frames.rebuild_ends();
        assert_eq!(frames.limit(), full / 2 + full + SHORT);
        frames.rebuild_ends();
        assert_eq!(frames.limit(), 2 * full + SHORT);
        frames.publish(frames.limit(), full);
        assert!(frames.is_short() && !frames.is_high());
        frames.promise(3);
        assert_eq!(frames.room(), SURVIVORS - 3);
        frames.keep_promise(3);
        frames.publish(frames.limit() + SURVIVORS + 1, full);
        assert_eq!(frames.room(), 0);
    }
}
