//! Compaction: copies the live entries of one segment to fewer seglets of memory.
//!
//! On the backups nothing changes: the segment keeps its id and its full replica there. The entries
//! that memory has dropped still count as present in the durable log.

use super::mover::{Mover, Output};
use super::phase::{Phase, Watch};
use crate::append::candidates::Candidate;
use crate::append::shared::Shared;
use crate::format::entry::{DEAD, Kind};
use crate::memory::Reference;
use crate::memory::quiescence::Reader;
use crate::memory::segment::{Appender, Room};
use crate::sync::lock;
use std::sync::atomic::Ordering;

/// The one segment that a compaction writes.
struct Compacted {
    appender: Appender,
}

impl Output for Compacted {
    #[inline]
    fn place(&mut self, bytes: usize) -> (&mut Appender, Reference) {
        match self.appender.reserve(bytes, usize::MAX) {
            Room::At(at) => (&mut self.appender, at),
            Room::SegmentFull | Room::NoMemory => {
                unreachable!("a compacted segment takes no more room than the stock taken for it")
            }
        }
    }
}

/// Takes seglets for a cleaner, all or none.
pub(super) fn take_stock(shared: &Shared, count: usize) -> Option<Vec<u32>> {
    let keep = shared.reserves.for_survivors();
    let mut stock = Vec::with_capacity(count);
    while stock.len() < count {
        let Some(number) = shared.memory.take(keep) else {
            stock.into_iter().for_each(|number| shared.memory.give_back(number));
            return None;
        };
        stock.push(number);
    }
    // The lowest address is taken first, so that seglets written in order lie in order.
    stock.sort_unstable_by(|a, b| b.cmp(a));
    Some(stock)
}

/// Compacts a candidate. False when there was no memory to copy it to, or nothing was gained.
pub(super) fn compact(
    shared: &Shared,
    reader: &mut Reader,
    candidate: Candidate,
    watch: &mut Watch<'_>,
) -> (Candidate, bool) {
    watch(Phase::TakingMemory);
    let old = &candidate.segment;
    let Some(stock) = take_stock(shared, shared.stock_for(candidate.bytes_after(&shared.memory)))
    else {
        return (candidate, false);
    };
    let drops = shared.sums.drops.load(Ordering::Acquire);
    let memory = &shared.memory;
    let capacity = stock.len() * memory.seglet_bytes();
    let Some(appender) = Appender::from_stock(memory, old.id, capacity, stock) else {
        return (candidate, false);
    };
    let mut output = Compacted { appender };
    let mut mover = Mover::new(shared, reader, shared.present(), watch);
    for (at, frame) in old.entries(memory) {
        if Kind::of(frame.flags) == Some(Kind::SegmentHeader) {
            let (appender, to) = output.place(frame.entry_bytes());
            appender.copy(to, at, frame.entry_bytes());
            appender.advance_idle(frame.entry_bytes());
        } else {
            mover.entry(at, &frame, &mut output);
        }
    }
    mover.finish();
    let (moved, residuals) = (mover.moved, mover.residuals);
    let tombstone_bytes = mover.tombstone_bytes;
    let stamp = shared.turns.stamp();
    let mut new = output.appender.close(old.created, drops, tombstone_bytes);
    new.disk_bytes = old.disk_bytes;
    new.queued = old.queued;

    let sums = &shared.sums;
    let tombstones = tombstone_bytes as i64 - old.tombstone_bytes as i64;
    sums.tombstone_bytes.fetch_add(tombstones, Ordering::Relaxed);
    sums.counters.compactions.fetch_add(1, Ordering::Relaxed);
    sums.counters.compaction_bytes.fetch_add(new.length as u64, Ordering::Relaxed);
    sums.counters.entries_moved.fetch_add(moved, Ordering::Relaxed);
    sums.counters.residuals.fetch_add(residuals, Ordering::Relaxed);
    let looked_at = shared.next_segment.load(Ordering::Relaxed);
    let gained = new.seglets.len() < old.seglets.len();
    let seglets = candidate.segment.seglets;
    lock(&shared.candidates).send_to_limbo(stamp, seglets);
    (Candidate { segment: new, slack_bytes: 0, looked_at, hand: candidate.hand }, gained)
}

/// Scans a candidate and counts the useless entries that are not marked dead.
pub(super) fn rescan(shared: &Shared, candidate: &mut Candidate) {
    // A rescan moves no entry, so it needs no place among the readers.
    let drops = shared.sums.drops.load(Ordering::Acquire);
    let sieve = super::mover::Sieve::new(shared);
    let memory = &*shared.memory;
    let mut slack_bytes = 0;
    for (at, frame) in candidate.segment.entries(memory) {
        if frame.flags & DEAD == 0 && sieve.is_useless(at, &frame) {
            slack_bytes += frame.entry_bytes();
        }
    }
    candidate.slack_bytes = slack_bytes;
    candidate.segment.drops = drops;
    candidate.looked_at = shared.next_segment.load(Ordering::Relaxed);
}
