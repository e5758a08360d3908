//! What the owner of a log chooses: sizes, the tombstone scheme, and every threshold by which the
//! cleaner decides. This is the one place where they are named; tests change them here too.

use crate::error::OptionsError;
use crate::limits;

/// How the log remembers that an object is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Tombstones {
    /// A new version names the segment of the version it replaces and so is its tombstone.
    /// Only deletes append tombstones of their own. See [`crate::design::tombstones`].
    #[default]
    Folded,
    /// Every overwrite appends a tombstone beside the new version, as RAMCloud does. Kept to
    /// measure one scheme against the other.
    Classic,
}

/// How one log behaves. `Options::default()` suits a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a full segment: a multiple of the seglet size, at least eight of it and at most
    /// 1 GiB. An eighth of it limits keys and values, where that is less than [`KEY_BYTES_MAX`]
    /// and [`VALUE_BYTES_MAX`]. The memory must hold three segments and `pool_segments` more.
    ///
    /// [`KEY_BYTES_MAX`]: crate::KEY_BYTES_MAX
    /// [`VALUE_BYTES_MAX`]: crate::VALUE_BYTES_MAX
    pub segment_bytes: usize,
    /// How the log remembers that an object is gone.
    pub tombstones: Tombstones,
    /// When to clean, how, and how much is kept in reserve.
    pub cleaner: CleanerOptions,
}

/// The cleaner's thresholds. Fractions are of the memory that the log may use: the pool without
/// what indexes hold.
#[derive(Clone, Debug)]
pub struct CleanerOptions {
    /// Whether segments may be compacted in memory alone. Off is the papers' one-level cleaning.
    pub compaction: bool,
    /// A cleaner runs once free memory is at most this fraction...
    pub free_fraction_low: f64,
    /// ...or at most this share of all that is not live, whichever is less.
    pub free_share_low: f64,
    /// Combined cleaning runs once live tombstones fill this share of what is not live. The paper
    /// has 0.4 here. With folded tombstones compaction leaves residual ones wherever an older
    /// segment still stands, so memory is better served when those segments go sooner.
    pub tombstone_share_high: f64,
    /// The log on backups may grow to this multiple of the log's memory: 1 to 100.
    pub disk_expansion: f64,
    /// Combined cleaning runs once the log on backups reaches this share of its limit.
    pub disk_share_high: f64,
    /// Segments that are fuller than this are never chosen for combined cleaning: cleaning them
    /// would cost more memory than it frees.
    pub utilization_max: f64,
    /// Segments of which at most this share is live are cleaned together, and not compacted, as long as no
    /// writer waits for memory: there is next to nothing to write for it, their replicas are free soon, and
    /// what is dead in them leaves no tombstones for each other. 0 for never, and then those in which nothing
    /// lives are looked at as all others are.
    pub utilization_swept: f64,
    /// Segments that one pass of combined cleaning takes at most; at least 2.
    pub segments_per_pass: usize,
    /// Live data may fill this fraction of the memory that is not in reserve; up to here the
    /// cleaner is sure to make progress. (Less where a segment has few seglets.)
    pub safe_fraction: f64,
    /// Writes that add data are refused once it fills this fraction; overwrites of the same size
    /// go on to the safe limit, and deletes always.
    pub write_fraction: f64,
    /// Full segments kept for survivors, per cleaner that may run at once: 1 to 1024.
    pub pool_segments: usize,
    /// Seglets that only deletes may take. They hold no live data, so most of the memory must be
    /// left to others.
    pub delete_seglets: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_bytes: 8 << 20,
            tombstones: Tombstones::default(),
            cleaner: CleanerOptions::default(),
        }
    }
}

impl Default for CleanerOptions {
    fn default() -> Self {
        CleanerOptions {
            compaction: true,
            free_fraction_low: 0.10,
            free_share_low: 0.5,
            tombstone_share_high: 0.1,
            disk_expansion: 2.0,
            disk_share_high: 0.9,
            utilization_max: 0.98,
            utilization_swept: 0.05,
            segments_per_pass: 8,
            safe_fraction: 0.98,
            write_fraction: 0.95,
            pool_segments: 1,
            delete_seglets: 4,
        }
    }
}

impl Options {
    /// The longest value that a log with these segments takes: an eighth of one, and at most
    /// [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX).
    #[must_use]
    pub fn value_bytes_max(&self) -> usize {
        limits::VALUE_BYTES_MAX.min(self.segment_bytes / 8)
    }

    /// The longest key that a log with these segments takes: an eighth of one, and at most
    /// [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX).
    #[must_use]
    pub fn key_bytes_max(&self) -> usize {
        limits::KEY_BYTES_MAX.min(self.segment_bytes / 8)
    }

    /// What the longest object takes in the log, and no less than it is admitted as.
    pub(crate) fn entry_bytes_max(&self) -> u64 {
        (self.key_bytes_max() + self.value_bytes_max() + limits::HEADER_BYTES_MAX) as u64
    }

    /// Whether a log can be made with these in a memory, which nobody uses yet.
    ///
    /// # Errors
    /// As [`Log::new`](crate::Log::new) gives them.
    pub fn suit(&self, memory: &crate::Memory) -> Result<(), OptionsError> {
        self.check(memory.seglet_bytes(), memory.seglets())
    }

    /// Says which option cannot work, if one cannot.
    pub(crate) fn check(&self, seglet_bytes: usize, seglets: usize) -> Result<(), OptionsError> {
        let fail = |message: String| Err(OptionsError(message));
        if !self.segment_bytes.is_multiple_of(seglet_bytes) || self.segment_bytes < 8 * seglet_bytes
        {
            return fail(format!(
                "segment_bytes is {}; it must be a multiple of the seglet size, {seglet_bytes}, and at least eight of it",
                self.segment_bytes
            ));
        }
        if self.segment_bytes > 1 << 30 {
            return fail(format!("segment_bytes is {}; the limit is 1 GiB", self.segment_bytes));
        }
        let c = &self.cleaner;
        if c.pool_segments == 0 || c.pool_segments > 1024 {
            return fail(format!("pool_segments is {}; it must be 1 to 1024", c.pool_segments));
        }
        let segment_seglets = self.segment_bytes / seglet_bytes;
        let needed = (3 + c.pool_segments) * segment_seglets;
        if seglets < needed {
            return fail(format!(
                "the memory has {seglets} seglets; segments of {} bytes need at least {needed}: make a larger memory or smaller segments",
                self.segment_bytes
            ));
        }
        // Two segments and the pool are what the cleaners cannot do without.
        let most = seglets - (2 + c.pool_segments) * segment_seglets;
        if c.delete_seglets > most {
            return fail(format!(
                "delete_seglets is {}; with a memory of {seglets} seglets it must be at most {most}",
                c.delete_seglets
            ));
        }
        let fractions = [
            ("free_fraction_low", c.free_fraction_low),
            ("free_share_low", c.free_share_low),
            ("tombstone_share_high", c.tombstone_share_high),
            ("disk_share_high", c.disk_share_high),
            ("utilization_max", c.utilization_max),
            ("safe_fraction", c.safe_fraction),
            ("write_fraction", c.write_fraction),
        ];
        for (name, value) in fractions {
            if !(value > 0.0 && value <= 1.0) {
                return fail(format!("{name} is {value}; it must be over 0 and at most 1"));
            }
        }
        if !(0.0..=1.0).contains(&c.utilization_swept) {
            let value = c.utilization_swept;
            return fail(format!("utilization_swept is {value}; it must be 0 to 1"));
        }
        if c.write_fraction > c.safe_fraction {
            return fail(format!(
                "write_fraction, {}, is over safe_fraction, {}: deletes would not fit",
                c.write_fraction, c.safe_fraction
            ));
        }
        if !(c.disk_expansion >= 1.0 && c.disk_expansion <= 100.0) {
            return fail(format!("disk_expansion is {}; it must be 1 to 100", c.disk_expansion));
        }
        if c.segments_per_pass < 2 {
            return fail(format!(
                "segments_per_pass is {}; it must be at least 2",
                c.segments_per_pass
            ));
        }
        Ok(())
    }
}
