//! How many segments the log has on backups, and how many it may have.
//!
//! Each takes a *frame* there, however little is in it, and a storage has so many. A log that finds none
//! cannot even open the head whose digest would free others. So frames are counted, not bytes:
//!
//! ```text
//!  0 ───────────── high ──────── limit ──────────────── hard
//!    nothing to do │ segments are │ nothing is appended │ not even survivors are
//!                  │ combined     │ that needs a head   │ written; heads for digests alone
//! ```
//!
//! What is cleaned takes its frame until a durable digest does without it. That counts for the limits,
//! but not where it is decided whether to clean more: or everything would be cleaned at once while the
//! first pass is on its way. Passes are therefore taken into the log early where frames are short.
//!
//! While tablets are rebuilt the log they come from has its frames, too. So the limit is lower then: the
//! log may take as many more as its memory needs, and not twice that. Segments that are adopted and not
//! released count for nothing, as they are the former log's, and no cleaner can do anything about them.

use crate::memory::Memory;
use crate::options::Options;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Beyond what the memory and its expansion make: heads that are not full, and short survivors.
const SHORT: usize = 4;

/// Beyond the limit: for survivors.
const SURVIVORS: usize = 4;

/// Beyond that: for heads that are opened for their digests.
const DIGESTS: usize = 2;

/// Frames that a log may take beyond its memory times the expansion.
pub const FRAMES_SPARE: usize = SHORT + SURVIVORS + DIGESTS;

/// See the module's documentation.
pub(crate) struct Frames {
    /// What full segments would fill the memory.
    full: usize,
    most: usize,
    share_high: f64,
    limit: AtomicUsize,
    /// As of the last turn.
    taken: AtomicUsize,
    /// Of these, what is left when the passes that are under way are part of the log.
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

    /// The log's thread says how it is.
    pub(crate) fn publish(&self, taken: usize, staying: usize) {
        self.taken.store(taken, Ordering::Relaxed);
        self.staying.store(staying, Ordering::Relaxed);
    }

    /// What it said last.
    pub(crate) fn published(&self) -> (usize, usize) {
        (self.taken.load(Ordering::Relaxed), self.staying.load(Ordering::Relaxed))
    }

    /// What may be reached by what is appended.
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

    /// Whether what is cleaned must go soon.
    pub(crate) fn is_short(&self) -> bool {
        self.taken.load(Ordering::Relaxed) as f64 >= self.high()
    }

    /// How many survivors may be written now.
    pub(crate) fn room(&self) -> usize {
        let hard = self.most.max(self.limit()) + SURVIVORS;
        let taken = self.taken.load(Ordering::Relaxed) + self.promised.load(Ordering::Relaxed);
        hard.saturating_sub(taken)
    }

    /// A cleaner may write so many.
    pub(crate) fn promise(&self, survivors: usize) {
        self.promised.fetch_add(survivors, Ordering::Relaxed);
    }

    /// They are known to the log's thread now, or are not written.
    pub(crate) fn keep_promise(&self, survivors: usize) {
        self.promised.fetch_sub(survivors, Ordering::Relaxed);
    }

    fn rebuild_begins(&self) {
        if self.rebuilds.fetch_add(1, Ordering::Relaxed) == 0 {
            let more = self.taken.load(Ordering::Relaxed) + self.full + SHORT;
            self.limit.store(more.min(self.most), Ordering::Relaxed);
        }
    }

    fn rebuild_ends(&self) {
        if self.rebuilds.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.limit.store(self.most, Ordering::Relaxed);
        }
    }
}

/// Tablets are being rebuilt as long as it is there.
pub(crate) struct Rebuilding(Arc<crate::shared::Shared>);

impl Rebuilding {
    pub(crate) fn begin(shared: &Arc<crate::shared::Shared>) -> Rebuilding {
        shared.frames.rebuild_begins();
        Rebuilding(Arc::clone(shared))
    }
}

impl Drop for Rebuilding {
    fn drop(&mut self) {
        self.0.frames.rebuild_ends();
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
