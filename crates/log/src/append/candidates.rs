//! The segments that may be cleaned: the log's thread hands them over, cleaners take them.
//!
//! A segment in the list belongs to no thread. A cleaner takes it out for as long as it works on
//! it. The log's thread takes it out to keep the cleaners away from it
//! ([`Log::pin_segment`](crate::Log::pin_segment)).

use crate::limits::CLEANERS_MAX;
use crate::memory::Memory;
use crate::memory::quiescence::{Stamp, Turns};
use crate::memory::segment::Segment;
use crossbeam_queue::SegQueue;
use std::sync::atomic::{AtomicU64, Ordering};

/// A segment that may be cleaned.
pub(crate) struct Candidate {
    pub(crate) segment: Segment,
    /// Bytes that are known to be useless beside the bytes counted as dead.
    pub(crate) slack_bytes: usize,
    /// The log's clock when the slack was counted.
    pub(crate) looked_at: u64,
    /// The log's clock when it was last looked through for objects to evict, and the number of that
    /// look.
    pub(crate) hand: (u64, u64),
}

impl Candidate {
    pub(crate) fn new(segment: Segment) -> Candidate {
        let looked_at = segment.created;
        Candidate { segment, slack_bytes: 0, looked_at, hand: (0, 0) }
    }

    /// Bytes of entries that would have to be copied.
    pub(crate) fn live_bytes(&self, memory: &Memory) -> usize {
        let dead = memory.dead_bytes(self.segment.account()).dead as usize + self.slack_bytes;
        self.segment.length.saturating_sub(dead)
    }

    /// The most bytes that cleaning it now can leave.
    pub(crate) fn bytes_after(&self, memory: &Memory) -> usize {
        // The walk that follows sees every entry as dead that is counted as dead here, so each
        // leaves a residual tombstone at most. An entry that dies meanwhile leaves no more than its
        // own size.
        let dead = memory.dead_bytes(self.segment.account());
        self.segment.length.saturating_sub(dead.dead as usize) + dead.guarded as usize
    }
}

/// The segments that no cleaner has at this moment.
#[derive(Default)]
pub(crate) struct Candidates {
    pub(crate) list: Vec<Candidate>,
    /// Memory that waits until the reactor cannot be reading it any more.
    limbo: Vec<(Stamp, Vec<u32>)>,
    /// The places among the cleaners that are taken.
    pub(crate) cleaners: [bool; CLEANERS_MAX],
}

impl Candidates {
    /// Takes over the segments that the reactor has closed or gives back.
    pub(crate) fn take_closed(
        &mut self,
        closed: &SegQueue<Segment>,
        returned: &SegQueue<Candidate>,
    ) {
        while let Some(segment) = closed.pop() {
            self.list.push(Candidate::new(segment));
        }
        while let Some(candidate) = returned.pop() {
            self.list.push(candidate);
        }
    }

    /// The segments that no cleaner has.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.list.iter().map(|candidate| &candidate.segment)
    }

    pub(crate) fn put_back(&mut self, candidate: Candidate) {
        self.list.push(candidate);
    }

    pub(crate) fn send_to_limbo(&mut self, stamp: Stamp, seglets: Vec<u32>) {
        self.limbo.push((stamp, seglets));
    }

    /// Frees the memory that the reactor has moved past, and counts the compactions that unlinked
    /// it.
    pub(crate) fn free_limbo(&mut self, turns: &Turns, memory: &Memory, freed: &AtomicU64) {
        self.limbo.retain_mut(|(stamp, seglets)| {
            let passed = turns.passed(*stamp);
            if passed {
                freed.fetch_add(1, Ordering::Relaxed);
                seglets.drain(..).for_each(|number| memory.give_back(number));
            }
            !passed
        });
    }
}
