//! Eviction: objects of a cache make room for newer ones.
//!
//! When live data exceeds a high-water mark, cleaners go through the segments with objects of
//! caches, the segment that was written or looked through longest ago first, and queue all such
//! objects. The log's thread takes some of them off the queue for each object that is written to a
//! cache. An object that was used since the last time loses one of its uses, and stays. An object
//! without uses is deleted. So an object that is used often outlives several rounds, and an object
//! that was written and never used goes at the first one. If live data comes close to the limit for
//! writes, uses do not count: large objects may replace many small ones, or all objects are used.
//!
//! An eviction is a delete, with a tombstone: nothing else keeps a recovery from bringing back an
//! object after a client has deleted its successor. A log without copies needs no tombstone
//! ([`Log::go_without_copies`]).
//!
//! The value of an object may stand for other objects, which its user deletes after the eviction:
//! [`Log::keep_evicted`]. Until they are gone, nothing else is evicted ([`Log::pause_eviction`]).
//! Otherwise live data would hardly shrink, and all other objects would go, too. The user may also
//! want to know the keys of all evicted objects ([`Log::note_evicted_keys`]), which stops nothing.
//!
//! Tables may have limits of their own, and a reservation changes the choice of the objects:
//! [`table_limits`](super::table_limits).
//!
//! Tombstones take memory too, of small objects almost as much as the objects. So the high-water
//! mark is for both together.

use super::Log;
use super::expired::ExpiredItem;
use super::shared::{LiveLimits, Shared};
use super::write::{ExistingEntry, ReplacedEntry};
use crate::memory::object::Object;
use crate::memory::segment;
use std::sync::atomic::Ordering;
use thunderhead_wire::{Attributes, TableId};

/// How many queued objects are looked at, at most, when an object is written to a cache.
const LOOKS: usize = 64;

/// How many are looked at for a list of objects that are written together.
const LOOKS_FOR_MANY: usize = 4096;

/// How many of them are evicted. The new object may be larger than each of them.
const EVICTIONS: u64 = 4;

/// While the queue has fewer objects, a cleaner looks for more.
pub(crate) const VICTIMS_MIN: usize = 1024;

/// Objects that may be evicted.
#[derive(Default)]
pub(super) struct Eviction {
    victims: Vec<ExpiredItem>,
    /// Objects that were evicted so far.
    pub(super) evicted: u64,
    /// Writes to caches are refused when memory is full.
    is_off: bool,
    /// Nothing is evicted, and writes wait.
    is_paused: bool,
    /// Tells which evicted objects are kept.
    keeps: Option<Keeps>,
    kept: Vec<Evicted>,
    /// Whether the keys of evicted objects are noted, and the noted ones.
    notes_keys: bool,
    keys: Vec<(TableId, Vec<u8>)>,
}

/// The most keys of evicted objects that are noted until they are taken.
const KEYS_MAX: usize = 1 << 16;

/// Tells whether an evicted object is kept.
pub type Keeps = fn(&Object<'_>) -> bool;

/// An object that was evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Its table.
    pub table: TableId,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its value.
    pub value: Vec<u8>,
}

impl Eviction {
    /// Whether the user of the log wants to know of evicted objects.
    pub(super) fn watches(&self) -> bool {
        self.keeps.is_some() || self.notes_keys
    }

    /// Whether the user wants this object when it is evicted.
    pub(super) fn keeps(&self, object: &Object<'_>) -> bool {
        self.keeps.is_some_and(|keeps| keeps(object))
    }

    /// Notes an evicted object for the user.
    pub(super) fn note(&mut self, table: TableId, key: Vec<u8>, kept: Option<Evicted>) {
        if self.notes_keys && self.keys.len() < KEYS_MAX {
            self.keys.push((table, key));
        }
        self.kept.extend(kept);
    }
}

impl Shared {
    /// Whether live data and tombstones exceed the mark above which objects of caches are evicted:
    /// a little below the limit for writes, so that no write has to wait.
    pub(super) fn is_above_high_water(&self, live_bytes: u64, limits: LiveLimits) -> bool {
        let tombstones = self.sums.tombstone_bytes.load(Ordering::Relaxed).max(0) as u64;
        let wanted = self.sums.wanted_bytes.load(Ordering::Relaxed);
        let gone = self.sums.victim_bytes.load(Ordering::Relaxed);
        let LiveLimits { writes, cache, .. } = limits;
        // Objects that are no cache's have a lower limit, and wait for evictions.
        let is_for_cache = wanted == 0 && self.evicts_in_passes();
        // The longest object must fit between the mark and the limit, or its writer would wait for
        // an eviction that never begins.
        let longest = self.options.entry_bytes_max().min(cache / 2);
        let mark = match is_for_cache {
            true => cache - longest.max(cache / 64),
            false => writes - writes / 32,
        };
        (live_bytes + tombstones + wanted).saturating_sub(gone) > mark
    }

    /// Whether cleaners are to look for objects to evict.
    pub(crate) fn wants_victims(&self) -> bool {
        self.sums.has_cache.load(Ordering::Relaxed)
            && self.sums.victims.load(Ordering::Relaxed) < VICTIMS_MIN
            && !self.evicts_in_passes()
            && self.is_above_high_water(self.sums.live_bytes.load(Ordering::Relaxed), self.limits())
    }
}

impl Log {
    /// Whether it is worth waking a cleaner to look for objects to evict.
    #[must_use]
    pub fn wants_victims(&self) -> bool {
        !self.eviction.is_off
            && self.is_above_high_water()
            && self.shared.sums.victims.load(Ordering::Relaxed) < VICTIMS_MIN
    }

    /// Tells the log that nothing copies its segments: then nothing can bring an object back.
    pub fn go_without_copies(&mut self) {
        self.shared.sums.is_volatile.store(true, Ordering::Relaxed);
    }

    /// Whether objects of caches make room for newer ones. Otherwise writes are refused when memory
    /// is full, as those of other objects.
    #[must_use]
    pub fn evicts(&self) -> bool {
        !self.eviction.is_off
    }

    /// Whether objects of caches make room, and there may be such objects, or the memory of an
    /// evicted object is about to become free. Then a write that finds no memory is to be tried
    /// again. Otherwise it is refused for good.
    pub(super) fn may_evict(&self) -> bool {
        let is_freeing = self.eviction.is_paused || !self.eviction.kept.is_empty();
        self.evicts()
            && (is_freeing
                || (self.has_victims() || self.memory.cached_segments() > 0)
                    && self.has_unreserved())
    }

    /// Whether any object waits to be evicted. It may have changed since a cleaner found it.
    fn has_victims(&self) -> bool {
        let sums = &self.shared.sums;
        sums.victims.load(Ordering::Relaxed) > 0 || sums.victim_bytes.load(Ordering::Relaxed) > 0
    }

    /// Helps the cleaners to find objects of caches, after a write found no memory. Cleaners look
    /// through complete segments of the durable log only. A head in which all such objects lie is
    /// closed early, because nothing else fills it now. Survivors that have some become part of the
    /// log, because otherwise that waits until free memory is short.
    fn reach_victims(&mut self) {
        let marked = self.memory.cached_segments();
        if self.has_victims() || marked == 0 || self.main_head.is_some() {
            return;
        }
        if marked == 1 && self.head.appender.has_cached() {
            if self.may_grow() {
                self.roll(self.shared.reserves.for_deletes());
            }
        } else {
            self.make_haste();
        }
    }

    /// Sets whether objects of caches make room for newer ones: they do by default.
    pub fn set_evicts(&mut self, evicts: bool) {
        self.eviction.is_off = !evicts;
        self.set_eviction_in_passes();
    }

    /// Lets cleaners evict whole segments, unless nothing is evicted, the user frees memory after
    /// each eviction, or a table keeps some bytes for itself.
    pub(super) fn set_eviction_in_passes(&mut self) {
        let decides = self.eviction.keeps.is_some() || self.limited.has_reserved();
        let is_free = !self.eviction.is_off && !decides;
        if self.shared.sums.evicts_in_passes.swap(is_free, Ordering::Relaxed) != is_free {
            // A cache has other limits now: the next turn counts them anew.
            self.limits_with = super::log::LIMITS_UNKNOWN;
        }
    }

    /// Keeps some evicted objects until [`Log::take_evicted`]. As long as there is one, nothing
    /// else is evicted.
    pub fn keep_evicted(&mut self, keeps: Keeps) {
        self.eviction.keeps = Some(keeps);
        self.set_eviction_in_passes();
    }

    /// Takes the evicted objects that were kept.
    #[inline]
    pub fn take_evicted(&mut self) -> Vec<Evicted> {
        std::mem::take(&mut self.eviction.kept)
    }

    /// Sets whether the keys of evicted objects are noted until [`Log::take_evicted_keys`], at most
    /// 65 536 of them.
    #[inline]
    pub fn note_evicted_keys(&mut self, notes: bool) {
        self.eviction.notes_keys = notes;
    }

    /// Takes the noted keys of evicted objects, with their tables.
    #[inline]
    pub fn take_evicted_keys(&mut self) -> Vec<(TableId, Vec<u8>)> {
        std::mem::take(&mut self.eviction.keys)
    }

    /// Sets whether the user of the log frees memory now. Then nothing is evicted, and a write that
    /// finds no memory is to be tried again.
    #[inline]
    pub fn pause_eviction(&mut self, is_paused: bool) {
        self.eviction.is_paused = is_paused;
    }

    /// Evicts objects until so many bytes more can be written, if that is possible now. Otherwise
    /// cleaners look for more objects, and the caller tries again later.
    pub(super) fn evict_for(&mut self, bytes: u64) {
        if !self.may_evict() || self.shared.frames.is_rebuilding() {
            return;
        }
        let limit = self.limits.writes - self.limits.writes / 64;
        let mut wanted = bytes;
        for _ in 0..LOOKS_FOR_MANY {
            if self.live_bytes + bytes <= limit {
                wanted = 0;
                break;
            }
            if !self.evict_next(false) {
                self.reach_victims();
                break;
            }
        }
        self.shared.sums.wanted_bytes.store(wanted, Ordering::Relaxed);
    }

    /// Finds out whether so many bytes can be written although no object is replaced, and none is
    /// evicted.
    /// Then no write waits for evictions any more.
    pub(super) fn find_room_beside(&mut self, bytes: u64) -> bool {
        let writes = self.limits.writes - self.limits.writes / 64;
        let has_room = self.live_bytes + bytes <= writes.min(self.limits.safe);
        if has_room {
            // It notes that the room is there.
            self.evict_for(bytes);
        }
        has_room
    }

    fn is_above_high_water(&self) -> bool {
        self.shared.is_above_high_water(self.live_bytes, self.limits)
    }

    /// Evicts some objects before so many are written to caches in one group, if memory is short.
    /// Ends the open group: each entry of a group belongs to an update of its client.
    pub fn make_room_in_caches(&mut self, objects: usize) {
        self.end_group();
        for _ in 0..objects {
            if !self.is_above_high_water() {
                return;
            }
            self.make_room_in_cache();
        }
    }

    /// Evicts some objects before one is written to a cache, if memory is short.
    pub(super) fn make_room_in_cache(&mut self) {
        // Each entry of a group belongs to an update of its client.
        if self.groups.is_open() || self.eviction.is_off {
            return;
        }
        // A rebuild must meet the newest version of each key, or it would take in an older one.
        if self.shared.frames.is_rebuilding() {
            return;
        }
        if self.shared.evicts_in_passes() {
            return self.make_room_by_passes();
        }
        let before = self.eviction.evicted;
        for _ in 0..LOOKS {
            let is_close = self.live_bytes > self.limits.writes - self.limits.writes / 64;
            let is_enough = !is_close && self.eviction.evicted >= before + EVICTIONS;
            if is_enough || !self.is_above_high_water() {
                return;
            }
            if !self.evict_next(!is_close) {
                if is_close {
                    self.reach_victims();
                }
                return;
            }
        }
    }

    /// Whether nothing may be evicted now.
    pub(super) fn is_eviction_paused(&self) -> bool {
        self.eviction.is_paused || !self.eviction.kept.is_empty()
    }

    /// Does so in a log whose cleaners evict whole segments.
    fn make_room_by_passes(&mut self) {
        if self.limits.is_close_for_cache(self.live_bytes) {
            self.drop_victims_for_write();
            self.reach_victims();
        }
    }

    /// Looks at the next object of the queue; false if there is none, or no room for a tombstone.
    fn evict_next(&mut self, uses_count: bool) -> bool {
        if self.is_eviction_paused() {
            return false;
        }
        if self.limited.has_reserved()
            && let Some(tablet) = self.furthest_above_reservation()
        {
            return self.evict_in_tablet(tablet, uses_count, None);
        }
        let victims = &mut self.eviction.victims;
        if victims.is_empty()
            && let Some(found) = self.shared.victims.pop()
        {
            *victims = found;
        }
        let Some(victim) = victims.pop() else { return false };
        let is_spared = self.limited.has_reserved() && self.is_reserved(&victim);
        if is_spared || self.evict(victim, uses_count) {
            self.shared.sums.victims.fetch_sub(1, Ordering::Relaxed);
            return true;
        }
        self.eviction.victims.push(victim);
        false
    }

    /// Evicts an object, or takes one of its uses; false if there is no room for a tombstone. It
    /// may have changed since a cleaner found it.
    pub(super) fn evict(&mut self, victim: ExpiredItem, uses_count: bool) -> bool {
        let Some(item) = self.found_item(&victim) else { return true };
        let is_cached = item.attributes.is_cached;
        if !is_cached || uses_count && segment::take_use(&self.memory, victim.at) {
            return true;
        }
        let object = Object { memory: &self.memory, located: item.located };
        let kept = self.eviction.keeps(&object).then(|| Evicted {
            table: victim.table,
            attributes: item.attributes,
            value: object.value().to_vec(),
        });
        let notes_key = self.eviction.notes_keys && self.eviction.keys.len() < KEYS_MAX;
        let noted = notes_key.then(|| (victim.table, item.located.key(&self.memory).to_vec()));
        if self.shared.sums.is_volatile.load(Ordering::Relaxed) {
            self.note_safe_version(item.located.fields.version);
            self.remove_item(&item);
        } else {
            let key = item.located.key(&self.memory).to_vec();
            let old = ReplacedEntry::of(&item.located);
            let current = ExistingEntry { found: item.found, old };
            if self.delete_in(item.tablet, victim.table, &key, &current).is_err() {
                return false;
            }
        }
        self.eviction.kept.extend(kept);
        self.eviction.keys.extend(noted);
        self.eviction.evicted += 1;
        true
    }
}
