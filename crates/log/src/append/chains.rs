//! Chains: several updates that a recovery does together or not at all.
//!
//! The entries of a chain are linked, each to the next, and the last one to a clock mark with their
//! number. A recovery that misses one of them drops all. As in a [group](super::groups), they lie
//! in one segment, no turn is taken between them, and an object of a chain is durable when the
//! chain is.

use super::clock::MARK_BYTES;
use super::write::NewVersion;
use super::{Log, Purpose};
use crate::error::Error;
use crate::format::outcomes::CHAIN_MAX;
use crate::limits::HEADER_BYTES_MAX;
use crate::memory::segment;
use crate::options::Tombstones;
use std::sync::atomic::Ordering;
use thunderhead_wire::{Attributes, KeyHash, TableId, ValueKind};

/// The most updates of a chain. Each appends two entries at most, and the mark is the last one.
const UPDATES_MAX: usize = (CHAIN_MAX - 1) / 2;

/// The most that an update appends beside its value and, twice, its key.
const UPDATE_BYTES: usize = 2 * HEADER_BYTES_MAX;

/// An update of a chain.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: &'a [u8],
    /// The new value with its attributes; `None` deletes the object, if there is one.
    pub new: Option<(&'a [u8], Attributes)>,
}

impl Update<'_> {
    fn bytes(&self) -> usize {
        UPDATE_BYTES + 2 * self.key.len() + self.new.map_or(0, |(value, _)| value.len())
    }
}

/// The tablet of an update, and the hash of its key.
#[derive(Clone, Copy)]
struct Place {
    tablet: usize,
    hash: KeyHash,
}

impl Log {
    /// Does updates in their order: all or none. Their keys need not exist. If they fit into one
    /// chain, a recovery also does all or none. A chain takes half a segment and 16 383 updates. A
    /// longer list becomes several chains.
    ///
    /// Room for all chains is made before the first. Returns the number of updates that were done.
    /// It is less than that of the list only if the cleaners took that room meanwhile.
    ///
    /// # Errors
    /// As [`Log::write_if`]; then none of them is done.
    pub fn update_together(&mut self, updates: &[Update<'_>]) -> Result<usize, Error> {
        self.end_group();
        let mut places = Vec::with_capacity(updates.len());
        for update in updates {
            self.check_sizes(update.key, update.new.map_or(&[], |(value, _)| value))?;
            places.push(self.place_of(update)?);
        }
        self.admit_together(updates, &places)?;
        let reserves = &self.shared.reserves;
        let deletes_only = updates.iter().all(|update| update.new.is_none());
        let mut keep = if deletes_only { reserves.for_deletes() } else { reserves.for_writes() };
        let mut done = 0;
        while done < updates.len() {
            let next = &updates[done..];
            let count = self.fitting(next);
            if done == 0 && count < next.len() {
                self.find_room(next, keep)?;
            }
            match self.update_chain(&next[..count], &places[done..done + count], keep) {
                Ok(()) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            // The list must not be left half done.
            keep = self.shared.reserves.for_survivors();
        }
        self.mutations += done as u32;
        self.turn_if_due();
        Ok(done)
    }

    /// Whether updates fit into one chain.
    #[must_use]
    pub fn fits_together(&self, updates: &[Update<'_>]) -> bool {
        self.fitting(updates) >= updates.len()
    }

    /// The number of updates that fit into a chain, at least one.
    fn fitting(&self, updates: &[Update<'_>]) -> usize {
        let most = self.options().segment_bytes / 2;
        let mut bytes = 0;
        let fits = |update: &&Update<'_>| {
            bytes += update.bytes();
            bytes <= most
        };
        updates.iter().take(UPDATES_MAX).take_while(fits).count().max(1)
    }

    /// Refuses updates for which there is not enough free memory in all.
    fn find_room(&mut self, updates: &[Update<'_>], keep: usize) -> Result<(), Error> {
        let bytes: usize = updates.iter().map(Update::bytes).sum();
        let seglet_bytes = self.memory.seglet_bytes();
        // Each seglet may end with a filling. Each chain may begin a segment, with its records.
        let fillings = bytes / seglet_bytes * segment::straddle_bytes(seglet_bytes);
        let chains = bytes / (self.options().segment_bytes / 2) + 2;
        let seglets = (bytes + fillings).div_ceil(seglet_bytes) + 2 * chains;
        for is_last in [false, true] {
            if self.memory.free_seglets() >= seglets + keep {
                self.want_nothing();
                return Ok(());
            }
            if !is_last {
                self.make_haste();
            }
        }
        // The cleaners free so much, and the caller tries again.
        self.shared.sums.wanted_seglets.store(seglets, Ordering::Relaxed);
        Err(Error::CleanerBehind)
    }

    /// Forgets the room that a refused list needs. If the caller tries again, it is noted again.
    pub(super) fn want_nothing(&self) {
        self.shared.sums.wanted_seglets.store(0, Ordering::Relaxed);
        self.shared.sums.wanted_bytes.store(0, Ordering::Relaxed);
    }

    /// Refuses updates that would fill the memory beyond the limit for writes.
    fn admit_together(&mut self, updates: &[Update<'_>], places: &[Place]) -> Result<(), Error> {
        let bytes = |update: &Update<'_>| match update.new {
            Some((value, _)) => (update.key.len() + value.len() + 64) as u64,
            None => 0,
        };
        let new_bytes: u64 = updates.iter().map(bytes).sum();
        if new_bytes == 0 {
            return Ok(());
        }
        // Usually there is room even beside all objects that the updates replace. Then their sizes
        // do not matter, and the log does not look for them.
        if self.find_room_beside(new_bytes) {
            return Ok(());
        }
        let mut old_bytes = 0;
        for (update, place) in updates.iter().zip(places) {
            if update.new.is_some() {
                let current = self.current(place.tablet, place.hash, update.key);
                old_bytes += current.map_or(0, |current| current.old.bytes() as u64);
            }
        }
        self.evict_for(new_bytes.saturating_sub(old_bytes));
        match self.admit_beside(new_bytes, old_bytes) {
            Err(Error::MemoryFull { .. }) if self.may_evict() => Err(Error::CleanerBehind),
            admitted => admitted,
        }
    }

    /// Does the updates of one chain, and leaves `keep` seglets free.
    fn update_chain(
        &mut self,
        updates: &[Update<'_>],
        places: &[Place],
        keep: usize,
    ) -> Result<(), Error> {
        let is_alone = updates.len() == 1;
        let bytes: usize = updates.iter().map(Update::bytes).sum();
        let seglet_bytes = self.memory.seglet_bytes();
        let fillings = (bytes / seglet_bytes + 2) * segment::straddle_bytes(seglet_bytes);
        self.make_room(if is_alone { bytes } else { bytes + MARK_BYTES + fillings }, keep)?;
        for (_, place) in updates.iter().zip(places).filter(|(update, _)| update.new.is_some()) {
            if !self.tablets.list[place.tablet].index.prepare_inserts(updates.len()) {
                return Err(Error::CleanerBehind);
            }
        }
        let from = self.head.position();
        self.groups.link(!is_alone);
        let before = self.removed;
        let both = updates.iter().zip(places);
        let entries = both.map(|(update, place)| self.update_placed(update, *place)).sum();
        self.groups.link(false);
        if !is_alone && entries > 0 {
            // This mark also serves an object that has expired, and whose absence is told.
            let tells_absence = self.clock.is_due() || self.removed != before;
            self.append_clock_mark(entries);
            self.groups.add_unsettled(from, self.head.position());
            if tells_absence {
                self.removed = self.head.position();
            }
        }
        Ok(())
    }

    fn place_of(&self, update: &Update<'_>) -> Result<Place, Error> {
        let hash = KeyHash::of(update.key);
        match self.tablets.find(update.table, hash) {
            Some(tablet) => Ok(Place { tablet, hash }),
            None => Err(Error::UnknownTablet { table: update.table }),
        }
    }

    /// Does an update for which room was made; returns the number of entries that it appends.
    fn update_placed(&mut self, update: &Update<'_>, place: Place) -> u64 {
        let (Update { table, key, new }, Place { tablet, hash }) = (*update, place);
        let Some((value, attributes)) = new else {
            let current = self.current_for(Purpose::Replay, tablet, hash, key);
            let Some(current) = current.filter(|it| !self.has_expired(it.old.at)) else {
                return 0;
            };
            self.delete_placed(tablet, table, key, &current);
            return 1;
        };
        let current = self.current(tablet, hash, key);
        let buries = current.is_some() && self.options().tombstones == Tombstones::Classic;
        // The highest version has no successor, and no key reaches it in any time.
        let Ok(version) = self.version_after(current.as_ref().map(|it| it.old.version)) else {
            return 0;
        };
        let new = NewVersion { tablet, table, hash, key, value, version };
        let put = self.of_form(ValueKind::Bytes, attributes, |log| log.put_placed(new, current));
        assert!(put.is_ok(), "room was made in the log and in the index");
        1 + u64::from(buries)
    }
}
