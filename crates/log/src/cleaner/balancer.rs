//! The balancer decides which cleaner runs, by the formulas of the paper (§5.2).
//!
//! With L the share of the log's memory that live objects take, F the share that is free and T
//! the share that tombstones take, memory is low when F ≤ min(0.1, (1 − L) / 2). Cleaning earlier
//! would only mean to clean fuller segments. When it must be done, compaction is preferred, for it
//! costs no bandwidth, unless tombstones fill a given share of what is not live (compaction cannot
//! drop them) or the log on backups has grown close to its limit.
//!
//! F counts what writers may take: the reserves are not free in that sense, or a small memory
//! would never be called low.

use crate::shared::Shared;
use std::sync::atomic::Ordering;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Rest,
    Compact,
    Combine,
}

pub(super) fn verdict(shared: &Shared) -> Verdict {
    let keep = shared.reserves.for_writes();
    let free_seglets = shared.memory.free_seglets().saturating_sub(keep);
    let sums = &shared.sums;
    Balance {
        log_bytes: shared.log_bytes() as f64,
        free_bytes: (free_seglets * shared.memory.seglet_bytes()) as f64,
        live_bytes: sums.live_bytes.load(Ordering::Relaxed) as f64,
        tombstone_bytes: sums.tombstone_bytes.load(Ordering::Relaxed).max(0) as f64,
        disk_bytes: sums.disk_bytes.load(Ordering::Relaxed) as f64,
    }
    .verdict(shared)
}

/// What the verdict follows from.
struct Balance {
    log_bytes: f64,
    free_bytes: f64,
    live_bytes: f64,
    tombstone_bytes: f64,
    disk_bytes: f64,
}

impl Balance {
    fn verdict(&self, shared: &Shared) -> Verdict {
        let options = &shared.options.cleaner;
        let disk_limit = options.disk_expansion * self.log_bytes;
        if self.disk_bytes >= options.disk_share_high * disk_limit {
            return Verdict::Combine;
        }
        let free = self.free_bytes / self.log_bytes;
        let live = (self.live_bytes / self.log_bytes).min(1.0);
        if free > options.free_fraction_low.min((1.0 - live) * options.free_share_low) {
            return Verdict::Rest;
        }
        let tombstones = self.tombstone_bytes / self.log_bytes;
        if tombstones >= options.tombstone_share_high * (1.0 - live) || !options.compaction {
            return Verdict::Combine;
        }
        Verdict::Compact
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Memory, Options};

    #[test]
    fn the_verdict_follows_the_papers_formulas() {
        let memory = Memory::new(64 << 20).unwrap();
        let mut options = Options { segment_bytes: 1 << 20, ..Options::default() };
        options.cleaner.tombstone_share_high = 0.4; // As in the paper.
        let shared = Shared::new(memory, thunderhead_wire::LogId(1), options);
        // Fractions of the log's memory: free, live, tombstones, and the log on backups.
        let cases = [
            (0.11, 0.50, 0.00, 1.0, Verdict::Rest),
            (0.10, 0.50, 0.00, 1.0, Verdict::Compact),
            (0.06, 0.90, 0.00, 1.0, Verdict::Rest),
            (0.049, 0.90, 0.00, 1.0, Verdict::Compact),
            (0.049, 0.90, 0.04, 1.0, Verdict::Combine),
            (0.049, 0.90, 0.03, 1.0, Verdict::Compact),
            (0.50, 0.20, 0.00, 1.8, Verdict::Combine),
            (0.50, 0.20, 0.00, 1.7, Verdict::Rest),
        ];
        for (free, live, tombstones, disk, expected) in cases {
            let balance = Balance {
                log_bytes: 1000.0,
                free_bytes: free * 1000.0,
                live_bytes: live * 1000.0,
                tombstone_bytes: tombstones * 1000.1,
                disk_bytes: disk * 1000.1,
            };
            assert_eq!(balance.verdict(&shared), expected, "{free} {live} {tombstones} {disk}");
        }
    }
}
