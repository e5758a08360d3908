//! The balancer decides which cleaner runs, by the formulas of the paper (§5.2).
//!
//! With L the share of the log's memory that live objects take, F the share that is free and T the
//! share that tombstones take, memory is low when F ≤ min(0.1, (1 − L) / 2). Cleaning earlier would
//! only mean cleaning fuller segments. When cleaning is due, compaction is preferred, because it
//! costs no bandwidth. There are two exceptions: tombstones fill a given share of the memory that
//! is not live (compaction cannot drop them), or the log on backups has grown close to its limit
//! ([`frames`](crate::append::frames)).
//!
//! A log may have a [bound for fresh memory](crate::CleanerOptions::spread_max): a multiple of its
//! live data, and at least [`SPREAD_BYTES`]. Then the log's memory in these formulas is this bound,
//! or the memory that the log has touched already if that is more. If the cleaners fall behind, the
//! log takes fresh memory, and waits for nothing. A cache evicts only when its whole memory is
//! full, so it has no such bound.
//!
//! F counts the memory that writers may take, without the reserves: with them a small memory would
//! never be low. Unless a writer is blocked, F also counts the pending seglets of swept segments,
//! which the next durable digest frees. That digest comes when the head is full or memory is short.
//! Until then cleaners would copy entries that die meanwhile.

use crate::append::shared::Shared;
use crate::limits::SPREAD_BYTES;
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
    let live_bytes = sums.live_bytes.load(Ordering::Relaxed) as f64;
    let out_of_bounds = beyond_spread(shared, live_bytes);
    let seglet_bytes = shared.memory.seglet_bytes() as f64;
    Balance {
        log_bytes: shared.log_bytes() as f64 - out_of_bounds,
        free_bytes: (free_seglets as f64 * seglet_bytes - out_of_bounds).max(0.0),
        live_bytes,
        tombstone_bytes: sums.tombstone_bytes.load(Ordering::Relaxed).max(0) as f64,
        is_long: shared.frames.is_high(),
    }
    .verdict(shared)
}

/// The bytes of fresh memory that the log should not take with so much live data.
fn beyond_spread(shared: &Shared, live_bytes: f64) -> f64 {
    let spread_max = shared.options.cleaner.spread_max;
    if spread_max.is_infinite() || shared.sums.has_cache.load(Ordering::Relaxed) {
        return 0.0;
    }
    let seglet_bytes = shared.memory.seglet_bytes() as f64;
    let fresh = shared.memory.fresh_seglets() as f64 * seglet_bytes;
    let wanted = (live_bytes * spread_max).max(SPREAD_BYTES as f64);
    (shared.log_bytes() as f64 - wanted).clamp(0.0, fresh)
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

    #[test]
    fn a_log_takes_fresh_memory_up_to_a_multiple_of_its_live_data() {
        let megabyte = |count: usize| (count << 20) / crate::memory::SEGLET_BYTES;
        let live = |shared: &Shared, bytes: u64| {
            shared.sums.live_bytes.store(bytes << 20, Ordering::Relaxed);
        };
        let shared = |spread_max| {
            let memory = Memory::new(1 << 30).unwrap();
            let mut options = Options { segment_bytes: 1 << 20, ..Options::default() };
            options.cleaner.spread_max = spread_max;
            Shared::new(memory, thunderhead_wire::LogId(1), options)
        };
        let (bound, free) = (shared(3.0), shared(f64::INFINITY));
        let all = bound.memory.seglets();
        let mut taken = Vec::new();
        leave(&bound.memory, all - megabyte(50), &mut taken);
        assert_eq!(verdict(&bound), Verdict::Rest, "there is little memory that is not fresh");
        leave(&bound.memory, all - megabyte(62), &mut taken);
        assert_eq!(verdict(&bound), Verdict::Compact);
        live(&bound, 30);
        assert_eq!(verdict(&bound), Verdict::Rest, "three times 30 MB may be used");
        leave(&bound.memory, all - megabyte(85), &mut taken);
        assert_eq!(verdict(&bound), Verdict::Compact);
        // The cleaners were behind, and the log has touched more.
        leave(&bound.memory, all - megabyte(200), &mut taken);
        assert_eq!(verdict(&bound), Verdict::Compact);
        leave(&bound.memory, all - megabyte(150), &mut taken);
        assert_eq!(verdict(&bound), Verdict::Rest, "a quarter of the touched memory is free");
        leave(&bound.memory, all - megabyte(190), &mut taken);
        assert_eq!(verdict(&bound), Verdict::Compact);
        // A cache is full before it is cleaned.
        bound.sums.has_cache.store(true, Ordering::Relaxed);
        assert_eq!(verdict(&bound), Verdict::Rest);
        leave(&free.memory, all - megabyte(200), &mut Vec::new());
        assert_eq!(verdict(&free), Verdict::Rest);
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
