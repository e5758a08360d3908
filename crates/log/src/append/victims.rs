//! Objects that a cleaning pass leaves behind, because they make room for newer ones.
//!
//! In a cache without copies ([`Log::go_without_copies`]) nothing keeps an evicted object's entry
//! alive: no recovery reads it, and no tombstone is needed. So cleaners evict whole segments, the
//! segment whose objects were written longest ago first:
//!
//! 1. A cleaner copies the objects that have uses, and takes one use of each. All other objects of
//!    caches are *victims*. The pass has a list of them.
//! 2. The log's thread takes the victims out of the index, some of them in each turn. It reads no
//!    entry. If the index no longer has a victim at the same place, the object was replaced
//!    meanwhile, and its successor stays.
//! 3. Then the pass becomes part of the log, as every pass does, and the segment's memory is free.
//!
//! So an eviction costs the log's thread one lookup, whose cache miss overlaps with others. The
//! victims leave the index only between operations: an operation may hold a place in the index.

use super::Log;
use super::eviction::Evicted;
use super::expired::ExpiredItem;
use super::shared::{LiveLimits, Shared};
use crate::memory::object::{Located, Object};
use crate::memory::segment;
use std::sync::atomic::Ordering;

/// The victims that leave the index in a turn: some ten microseconds of work.
const VICTIMS_PER_TURN: usize = 256;

/// The victims that leave the index before a write of a cache while writers are blocked on memory.
/// A caller that only repeats its write may never end the turn.
const VICTIMS_PER_RETRY: usize = 1024;

/// Lookups whose cache misses overlap.
const TOGETHER: usize = 16;

/// An object that a pass leaves behind, as a cleaner found it. It may have been replaced since.
#[derive(Clone, Copy)]
pub(crate) struct Victim {
    pub(crate) item: ExpiredItem,
    /// Bytes of its entry.
    pub(crate) bytes: u32,
    pub(crate) has_expired: bool,
}

impl LiveLimits {
    /// Whether so much live data is close to the limit for a cache whose cleaners evict segments.
    pub(super) fn is_close_for_cache(&self, live_bytes: u64) -> bool {
        live_bytes > self.cache - self.cache / 128
    }
}

impl Shared {
    /// Whether cleaners evict whole segments: the log is a cache without copies, its user keeps no
    /// evicted objects, and no table reserves bytes.
    pub(crate) fn evicts_in_passes(&self) -> bool {
        self.sums.evicts_in_passes.load(Ordering::Relaxed) && self.is_cache_without_copies()
    }

    /// Whether cleaners are to evict a segment. Victims that are on their way to the log's thread
    /// count as gone.
    ///
    /// A writer may be blocked on memory although little is live: objects of nearly half a segment
    /// leave much of each segment unused. So it counts too, unless memory is on its way.
    pub(crate) fn wants_eviction(&self) -> bool {
        let sums = &self.sums;
        let live_bytes = sums.live_bytes.load(Ordering::Relaxed);
        let is_blocked = || {
            sums.is_short.load(Ordering::Relaxed)
                && sums.coming_seglets.load(Ordering::Relaxed) == 0
                && sums.victim_bytes.load(Ordering::Relaxed) == 0
        };
        self.evicts_in_passes()
            && (self.is_above_high_water(live_bytes, self.limits()) || is_blocked())
    }
}

impl Shared {
    /// Whether live data is so close to the limit that writers of a cache may have to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.limits().is_close_for_cache(self.sums.live_bytes.load(Ordering::Relaxed))
    }
}

impl Log {
    /// Takes victims of the first pass out of the index. Call it between operations only.
    pub(super) fn drop_victims(&mut self) {
        self.drop_some_victims(VICTIMS_PER_TURN);
    }

    /// Does so before a write that may have to wait for memory.
    pub(super) fn drop_victims_for_write(&mut self) {
        if self.shared.sums.victim_bytes.load(Ordering::Relaxed) > 0 {
            self.drop_some_victims(VICTIMS_PER_RETRY);
        }
    }

    fn drop_some_victims(&mut self, most: usize) {
        let Some(mut victims) = self.handovers.take_victims(&self.shared) else { return };
        let first = victims.len().saturating_sub(most);
        for group in victims[first..].chunks(TOGETHER) {
            for Victim { item, .. } in group {
                if let Some(tablet) = self.tablets.find(item.table, item.hash) {
                    self.tablets.list[tablet].index.lookup_prefetched(item.hash.0);
                }
            }
            let bytes = group.iter().map(|victim| u64::from(victim.bytes)).sum();
            group.iter().for_each(|victim| self.drop_victim(victim));
            self.shared.sums.victim_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        victims.truncate(first);
        self.handovers.put_victims(victims);
        self.shared.sums.live_bytes.store(self.live_bytes, Ordering::Relaxed);
    }

    /// The tablet whose index may name an item. A part of a tablet that is being cleared counts,
    /// although no request finds it: the memory of its entries is about to be used again.
    fn tablet_of(&self, item: &ExpiredItem) -> Option<usize> {
        let ExpiredItem { table, hash, at } = *item;
        let list = &self.tablets.list;
        if list.iter().all(|tablet| tablet.clearing.is_none()) {
            return self.tablets.find(table, hash);
        }
        list.iter().position(|tablet| {
            tablet.range.contains(table, hash)
                && tablet.index.find(hash.0, |other| other == at).is_some()
        })
    }

    fn drop_victim(&mut self, victim: &Victim) {
        let ExpiredItem { hash, at, .. } = victim.item;
        let Some(tablet) = self.tablet_of(&victim.item) else { return };
        let index = &self.tablets.list[tablet].index;
        let Some(found) = index.find(hash.0, |other| other == at) else { return };
        if self.eviction.watches() && !victim.has_expired {
            self.note_victim(victim);
        }
        self.tablets.list[tablet].index.remove(found);
        let bytes = u64::from(victim.bytes);
        self.live_bytes -= bytes;
        self.tablets.list[tablet].live_bytes -= bytes;
        match victim.has_expired {
            true => self.expiring.removed += 1,
            false => self.eviction.evicted += 1,
        }
    }

    /// Notes an evicted object for the user of the log. The index names it, so its entry is there.
    #[cold]
    fn note_victim(&mut self, victim: &Victim) {
        let ExpiredItem { table, at, .. } = victim.item;
        let frame = segment::frame(&self.memory, at);
        let Some((located, extras)) = Located::of_item(&self.memory, at, &frame) else { return };
        let object = Object { memory: &self.memory, located };
        let keeps = self.eviction.keeps(&object);
        let kept = keeps.then(|| Evicted {
            table,
            attributes: extras.attributes,
            value: object.value().to_vec(),
        });
        let key = object.key().to_vec();
        self.eviction.note(table, key, kept);
    }
}
