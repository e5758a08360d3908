//! The balancer decides which cleaner runs, by the formulas of the paper (§5.2).
//!
//! With L the share of the log's memory that live objects take, F the share that is free and T the
//! share that tombstones take, memory is low when F ≤ min(0.1, (1 − L) / 2). Cleaning earlier would
//! only mean cleaning fuller segments. When cleaning is due, compaction is preferred, because it
//! costs no bandwidth. There are two exceptions: tombstones fill a given share of the memory that
//! is not live (compaction cannot drop them), or the log on backups has grown close to its limit
//! ([`frames`](crate::append::frames)).
//!
//! F counts the memory that writers may take, without the reserves: with them a small memory would
//! never be low. Unless a writer is blocked, F also counts the pending seglets of swept segments,
//! which the next durable digest frees. That digest comes when the head is full or memory is short.
//! Until then cleaners would copy entries that die meanwhile.

use crate::append::shared::Shared;
use std::sync::atomic::Ordering;

/// The kind of cleaning that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Rest,
    Compact,
    Combine,
}

pub(super) fn verdict(shared: &Shared) -> Verdict {
    let keep = shared.reserves.for_writes();
    let sums = &shared.sums;
    let is_short = sums.is_short.load(Ordering::Relaxed);
    let coming = if is_short { 0 } else { sums.coming_seglets.load(Ordering::Relaxed) };
    // Pending seglets fill the reserves first.
    let wanted = sums.wanted_seglets.load(Ordering::Relaxed);
    let free_seglets = (shared.memory.free_seglets() + coming).saturating_sub(keep + wanted);
    Balance {
        log_bytes: shared.log_bytes() as f64,
        free_bytes: (free_seglets * shared.memory.seglet_bytes()) as f64,
        live_bytes: sums.live_bytes.load(Ordering::Relaxed) as f64,
        tombstone_bytes: sums.tombstone_bytes.load(Ordering::Relaxed).max(0) as f64,
        is_long: shared.frames.is_high(),
    }
    .verdict(shared)
}

/// The amounts from which the verdict follows.
struct Balance {
    log_bytes: f64,
    free_bytes: f64,
    live_bytes: f64,
    tombstone_bytes: f64,
    /// The log has too many segments on backups.
    is_long: bool,
}

impl Balance {
    fn verdict(&self, shared: &Shared) -> Verdict {
        let options = &shared.options.cleaner;
        if self.is_long {
            return Verdict::Combine;
        }
        let free = self.free_bytes / self.log_bytes;
        let live = (self.live_bytes / self.log_bytes).min(1.0);
        let share = match shared.evicts_in_passes() {
            true => options.cache_free_share_low,
            false => options.free_share_low,
        };
        if free > options.free_fraction_low.min((1.0 - live) * share) {
            return Verdict::Rest;
        }
        let tombstones = self.tombstone_bytes / self.log_bytes;
        if tombstones >= options.tombstone_share_high * (1.0 - live) || !shared.compacts() {
            return Verdict::Combine;
        }
        Verdict::Compact
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Memory, Options};
    use std::sync::Arc;

    #[test]
    fn the_verdict_follows_the_papers_formulas() {
        let memory = Memory::new(64 << 20).unwrap();
        let mut options = Options { segment_bytes: 1 << 20, ..Options::default() };
        options.cleaner.tombstone_share_high = 0.4; // As in the paper.
        let shared = Shared::new(memory, thunderhead_wire::LogId(1), options);
        // Fractions of the log's memory: free, live, tombstones; and whether there are too many
        // segments.
        let cases = [
            (0.11, 0.50, 0.00, false, Verdict::Rest),
            (0.10, 0.50, 0.00, false, Verdict::Compact),
            (0.06, 0.90, 0.00, false, Verdict::Rest),
            (0.049, 0.90, 0.00, false, Verdict::Compact),
            (0.049, 0.90, 0.04, false, Verdict::Combine),
            (0.049, 0.90, 0.03, false, Verdict::Compact),
            (0.50, 0.20, 0.00, true, Verdict::Combine),
            (0.50, 0.20, 0.00, false, Verdict::Rest),
        ];
        for (free, live, tombstones, is_long, expected) in cases {
            let balance = Balance {
                log_bytes: 1000.0,
                free_bytes: free * 1000.0,
                live_bytes: live * 1000.0,
                tombstone_bytes: tombstones * 1000.1,
                is_long,
            };
            assert_eq!(balance.verdict(&shared), expected, "{free} {live} {tombstones} {is_long}");
        }
    }

    /// Takes or gives back seglets until exactly this many are free.
    fn leave(memory: &Memory, seglets: usize, taken: &mut Vec<u32>) {
        while memory.free_seglets() > seglets {
            taken.extend(memory.take(0));
        }
        while memory.free_seglets() < seglets {
            memory.give_back(taken.pop().unwrap());
        }
    }

    #[test]
    fn pending_seglets_fill_reserves_first_and_are_ignored_while_a_writer_is_blocked() {
        let memory = Memory::new(64 << 20).unwrap();
        let options = Options { segment_bytes: 1 << 20, ..Options::default() };
        let shared = Shared::new(Arc::clone(&memory), thunderhead_wire::LogId(1), options);
        let keep = shared.reserves.for_writes();
        let enough = memory.seglets() / 10 + 1;
        let mut taken = Vec::new();
        // Free seglets, pending seglets, whether a writer is blocked.
        let cases = [
            (keep + enough, 0, false, Verdict::Rest),
            (keep + enough - 1, 0, false, Verdict::Compact),
            (keep + 1, enough - 1, false, Verdict::Rest),
            (keep + 1, enough - 2, false, Verdict::Compact),
            (keep - 9, enough + 9, false, Verdict::Rest),
            (keep - 9, enough + 8, false, Verdict::Compact),
            (0, enough + keep - 1, false, Verdict::Compact),
            (keep + 1, enough, true, Verdict::Compact),
            (keep + enough, 0, true, Verdict::Rest),
        ];
        for (free, coming, is_short, expected) in cases {
            leave(&memory, free, &mut taken);
            shared.sums.coming_seglets.store(coming, Ordering::Relaxed);
            shared.sums.is_short.store(is_short, Ordering::Relaxed);
            assert_eq!(verdict(&shared), expected, "{free} {coming} {is_short}");
        }
    }
}
