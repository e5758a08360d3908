//! Looks through segments for objects of caches, and queues them for the log's thread, which evicts
//! some of them ([`eviction`](crate::append::eviction)).

use super::expiry::items;
use crate::append::candidates::{Candidate, Candidates};
use crate::append::expired::ExpiredItem;
use crate::append::shared::Shared;
use std::sync::atomic::Ordering;

impl Candidates {
    /// Takes the segment with objects of caches that was put together, or looked through, longest
    /// ago, if objects are to be evicted.
    pub(super) fn pick_for_eviction(&mut self, shared: &Shared) -> Option<Candidate> {
        if !shared.wants_victims() {
            return None;
        }
        let places = self.list.iter().enumerate().filter(|(_, it)| it.segment.cached.is_some());
        let age = |it: &Candidate| (it.segment.created.max(it.hand.0), it.hand.1, it.segment.id);
        let (at, _) = places.min_by_key(|(_, it)| age(it))?;
        Some(self.list.swap_remove(at))
    }
}

impl Candidates {
    /// Takes the segment whose objects of caches are evicted next, if a segment is to be evicted
    /// whole.
    pub(super) fn pick_for_eviction_pass(&mut self, shared: &Shared) -> Vec<Candidate> {
        if !shared.wants_eviction() {
            return Vec::new();
        }
        let places = self.list.iter().enumerate().filter(|(_, it)| it.segment.cached.is_some());
        let oldest = places.min_by_key(|(_, it)| (it.segment.queued, it.segment.id));
        oldest.map(|(at, _)| at).map(|at| self.list.swap_remove(at)).into_iter().collect()
    }
}

/// Queues the objects of caches in a segment.
pub(super) fn look(shared: &Shared, candidate: &mut Candidate) {
    let memory = &*shared.memory;
    let cached = items(memory, &candidate.segment).filter(|(_, it)| it.is_cached);
    let mut found: Vec<ExpiredItem> =
        cached.map(|(located, _)| ExpiredItem::of(memory, &located)).collect();
    let looks = shared.sums.looks.fetch_add(1, Ordering::Relaxed);
    candidate.hand = (shared.next_segment.load(Ordering::Relaxed), looks);
    if found.is_empty() {
        candidate.segment.cached = None;
    } else {
        // The log's thread takes the last one first: the oldest.
        found.reverse();
        shared.sums.victims.fetch_add(found.len(), Ordering::Relaxed);
        shared.victims.push(found);
    }
}
