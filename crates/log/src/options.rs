//! The choices of a log's owner: sizes, the tombstone scheme, and every threshold by which the
//! cleaner decides. All of them are named here and only here; tests change them here too.

use crate::error::OptionsError;
use crate::limits;

/// The scheme by which the log remembers that an object was deleted or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Tombstones {
    /// A new version names the segment of the version that it replaces, and so is its tombstone.
    /// Only deletes append tombstones of their own. See [`crate::design::tombstones`].
    #[default]
    Folded,
    /// Every overwrite appends a tombstone beside the new version, as RAMCloud does. Kept to
    /// measure one scheme against the other.
    Classic,
}

/// The options of one log. `Options::default()` suits a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a full segment: a multiple of the seglet size, at least eight seglets and at most 1
    /// GiB. An eighth of it limits keys, if that is less than [`KEY_BYTES_MAX`], and `value_share`
    /// says how it limits values. The memory must hold three segments and `pool_segments` more.
    ///
    /// [`KEY_BYTES_MAX`]: crate::KEY_BYTES_MAX
    /// [`VALUE_BYTES_MAX`]: crate::VALUE_BYTES_MAX
    pub segment_bytes: usize,
    /// The longest value takes one part in so many of a segment, if that is less than
    /// [`VALUE_BYTES_MAX`]: 2 to 8. With 8 little is lost at the end of a segment if the next
    /// object does not fit. With 2 segments for the same values are a quarter as long, and
    /// cleaners need less memory.
    ///
    /// [`VALUE_BYTES_MAX`]: crate::VALUE_BYTES_MAX
    pub value_share: usize,
    /// The scheme by which the log remembers that an object was deleted or replaced.
    pub tombstones: Tombstones,
    /// When to clean, how, and how much is kept in reserve.
    pub cleaner: CleanerOptions,
}

/// The cleaner's thresholds. Fractions are of the memory that the log may use: the whole memory
/// without that of the indexes.
#[derive(Clone, Debug)]
pub struct CleanerOptions {
    /// Whether segments may be compacted in memory alone. Off is the papers' one-level cleaning.
    pub compaction: bool,
    /// A cleaner runs once free memory is at most this fraction...
    pub free_fraction_low: f64,
    /// ...or at most this share of the memory that is not live, if that is less.
    pub free_share_low: f64,
    /// The same share in a cache without copies, whose cleaners evict whole segments. They free
    /// memory at once, so it may be scarcer: then more entries are dead when they are cleaned.
    pub cache_free_share_low: f64,
    /// As long as the cleaners keep up, the log takes fresh memory only up to this multiple of its
    /// live data: at least 1.5, and infinite by default. A page of fresh memory costs more than a
    /// clean one: the kernel finds and clears it at its first use.
    pub spread_max: f64,
    /// Combined cleaning runs once live tombstones fill this share of the memory that is not live.
    /// The paper has 0.4 here. With folded tombstones, compaction leaves residual ones as long as
    /// an older segment is in the log, so memory is better served when those segments leave sooner.
    pub tombstone_share_high: f64,
    /// The log on backups may grow to this multiple of the log's memory: 1 to 100.
    pub disk_expansion: f64,
    /// Combined cleaning runs once the log on backups reaches this share of its limit.
    pub disk_share_high: f64,
    /// Fuller segments than this are never chosen for combined cleaning: cleaning them would cost
    /// more memory than it frees.
    pub utilization_max: f64,
    /// Segments of which at most this share is live are cleaned together, and not compacted, as
    /// long as no writer is blocked on memory. That writes next to nothing, frees their replicas
    /// soon, and leaves no tombstones in one of them for dead objects of another. 0 turns this off;
    /// then segments without live entries are scanned like all others.
    pub utilization_swept: f64,
    /// The most segments that one pass of combined cleaning takes; at least 2.
    pub segments_per_pass: usize,
    /// Live data may fill this fraction of the memory that is not in reserve; up to here the
    /// cleaner is sure to make progress. (Less if a segment has few seglets.)
    pub safe_fraction: f64,
    /// Writes that add data are refused once live data fills this fraction. Overwrites of the same
    /// size go on to the safe limit, and deletes always.
    pub write_fraction: f64,
    /// Objects of a cache without copies may fill this fraction. Not all of it is used, to spare
    /// the cleaners: the smaller the objects, the less.
    pub cache_fraction: f64,
    /// Full segments kept for survivors, per cleaner that may run at once: 1 to 1024.
    pub pool_segments: usize,
    /// Seglets that only deletes may take. They hold no live data, so most of the memory must
    /// remain for other purposes.
    pub delete_seglets: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_bytes: 8 << 20,
            value_share: 8,
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
            cache_free_share_low: 0.15,
            spread_max: f64::INFINITY,
            tombstone_share_high: 0.1,
            disk_expansion: 2.0,
            disk_share_high: 0.9,
            utilization_max: 0.98,
            utilization_swept: 0.05,
            segments_per_pass: 8,
            safe_fraction: 0.98,
            write_fraction: 0.95,
            cache_fraction: 0.97,
            pool_segments: 1,
            delete_seglets: 4,
        }
    }
}

impl Options {
    /// The longest value that a log with these segments takes: at most
    /// [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX).
    #[must_use]
    pub fn value_bytes_max(&self) -> usize {
        limits::VALUE_BYTES_MAX.min(self.segment_bytes / self.value_share)
    }

    /// The most survivors that entries of so many bytes can need: the next entry did not fit into a
    /// survivor that is full.
    pub(crate) fn survivors_of(&self, bytes: usize) -> usize {
        let longest = self.segment_bytes / 8 + self.segment_bytes / self.value_share;
        1 + bytes / (self.segment_bytes - longest)
    }

    /// The longest key that a log with these segments takes: an eighth of a segment, and at most
    /// [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX).
    #[must_use]
    pub fn key_bytes_max(&self) -> usize {
        limits::KEY_BYTES_MAX.min(self.segment_bytes / 8)
    }

    /// The bytes that the longest object takes in the log, and no less than its admission counts.
    pub(crate) fn entry_bytes_max(&self) -> u64 {
        (self.key_bytes_max() + self.value_bytes_max() + limits::HEADER_BYTES_MAX) as u64
    }

    /// Checks whether a log can be started with these options in an unused memory.
    ///
    /// # Errors
    /// As [`Log::new`](crate::Log::new) gives them.
    pub fn suit(&self, memory: &crate::Memory) -> Result<(), OptionsError> {
        self.check(memory.seglet_bytes(), memory.seglets())
    }

    /// Refuses options that cannot work, with the name of the option.
    pub(crate) fn check(&self, seglet_bytes: usize, seglets: usize) -> Result<(), OptionsError> {
        let fail = |message: String| Err(OptionsError(message));
        if !self.segment_bytes.is_multiple_of(seglet_bytes) || self.segment_bytes < 8 * seglet_bytes
        {
            return fail(format!(
                "segment_bytes is {}; it must be a multiple of the seglet size, {seglet_bytes}, and at least eight of it",
                self.segment_bytes
            ));
        }
        if !(2..=8).contains(&self.value_share) {
            return fail(format!("value_share is {}; it must be 2 to 8", self.value_share));
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
        // The cleaners need two segments and the pool.
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
            ("cache_free_share_low", c.cache_free_share_low),
            ("tombstone_share_high", c.tombstone_share_high),
            ("disk_share_high", c.disk_share_high),
            ("utilization_max", c.utilization_max),
            ("safe_fraction", c.safe_fraction),
            ("write_fraction", c.write_fraction),
            ("cache_fraction", c.cache_fraction),
        ];
        for (name, value) in fractions {
            if !(value > 0.0 && value <= 1.0) {
                return fail(format!("{name} is {value}; it must be over 0 and at most 1"));
            }
        }
        if c.spread_max.is_nan() || c.spread_max < limits::SPREAD_LEAST {
            let (value, least) = (c.spread_max, limits::SPREAD_LEAST);
            return fail(format!("spread_max is {value}; it must be at least {least}"));
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
