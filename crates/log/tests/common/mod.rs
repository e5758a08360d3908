//! Options that several tests of the log share.

use thunderhead_log::{CleanerOptions, Options, Tombstones};

/// Small segments, and a cleaner that begins when less than `low` of memory is free: with 1 as soon
/// as any segment can be cleaned.
pub(crate) fn options(segment_bytes: usize, tombstones: Tombstones, low: f64) -> Options {
    let cleaner = CleanerOptions {
        free_fraction_low: low,
        free_share_low: low,
        segments_per_pass: 2,
        ..CleanerOptions::default()
    };
    Options { segment_bytes, tombstones, cleaner, ..Options::default() }
}
