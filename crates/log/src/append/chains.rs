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
use thunderhead_wire::{Attributes, KeyHash, TableId, ValueKind};

/// The most updates of a chain. Each appends two entries at most, and the mark is the last one.
const UPDATES_MAX: usize = (CHAIN_MAX - 1) / 2;

/// The most that an update appends beside its value and, twice, its key.
const UPDATE_BYTES: usize = 2 * HEADER_BYTES_MAX;

/// The inserts for which the index makes room before a chain. Longer chains need fewer than one
/// overflow bucket for each of theirs.
const INSERTS_ENSURED: usize = 256;

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

impl Log {
    /// Does updates in their order, whether their keys exist or not, and all or none: also after a
    /// crash, as long as they fit into half a segment. Longer lists become several chains, each of
    /// which is done or not.
    ///
    /// Returns the number of updates that were done. It is less than that of the list only if
    /// memory ran short after the first chain.
    ///
    /// # Errors
    /// As [`Log::write_if`]; then none of them is done.
    pub fn update_together(&mut self, updates: &[Update<'_>]) -> Result<usize, Error> {
        self.end_group();
        for update in updates {
            self.check_sizes(update.key, update.new.map_or(&[], |(value, _)| value))?;
            self.tablet_of(update)?;
        }
        self.admit_together(updates)?;
        let mut done = 0;
        while done < updates.len() {
            let next = &updates[done..];
            let count = self.fitting(next);
            match self.update_chain(&next[..count]) {
                Ok(some) if some < count => {
                    done += some;
                    break;
                }
                Ok(_) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        self.mutations += done as u32;
        self.turn_if_due();
        Ok(done)
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

    /// Refuses updates that would fill the memory beyond the limit for writes.
    fn admit_together(&mut self, updates: &[Update<'_>]) -> Result<(), Error> {
        let (mut new_bytes, mut old_bytes, mut is_cached) = (0, 0, true);
        for update in updates {
            let Some((value, attributes)) = update.new else { continue };
            if attributes.is_cached {
                self.make_room_in_cache();
            }
            is_cached &= attributes.is_cached;
            let (tablet, hash) = (self.tablet_of(update)?, KeyHash::of(update.key));
            let current = self.current(tablet, hash, update.key);
            new_bytes += (update.key.len() + value.len() + 64) as u64;
            old_bytes += current.map_or(0, |current| current.old.bytes() as u64);
        }
        let attributes = Attributes { is_cached, ..Attributes::NONE };
        self.of_form(ValueKind::Bytes, attributes, |log| log.admit(new_bytes, old_bytes))
    }

    /// Does the updates of one chain. Returns how many were done: all, unless the index ran short
    /// of memory.
    fn update_chain(&mut self, updates: &[Update<'_>]) -> Result<usize, Error> {
        let is_alone = updates.len() == 1;
        let bytes: usize = updates.iter().map(Update::bytes).sum();
        let seglet_bytes = self.memory.seglet_bytes();
        let fillings = (bytes / seglet_bytes + 2) * segment::straddle_bytes(seglet_bytes);
        let deletes_only = updates.iter().all(|update| update.new.is_none());
        let reserves = &self.shared.reserves;
        let keep = if deletes_only { reserves.for_deletes() } else { reserves.for_writes() };
        self.make_room(if is_alone { bytes } else { bytes + MARK_BYTES + fillings }, keep)?;
        for update in updates.iter().filter(|update| update.new.is_some()) {
            let tablet = self.tablet_of(update)?;
            let index = &mut self.tablets.list[tablet].index;
            if !index.prepare_inserts(updates.len().min(INSERTS_ENSURED)) {
                return Err(Error::CleanerBehind);
            }
        }
        let from = self.head.position();
        self.groups.link(!is_alone);
        let before = self.removed;
        let (mut done, mut entries) = (0, 0);
        let result = updates.iter().try_for_each(|update| {
            entries += self.update_placed(update)?;
            done += 1;
            Ok(())
        });
        self.groups.link(false);
        if done == 0 {
            return result.map(|()| 0);
        }
        if !is_alone && entries > 0 {
            self.append_clock_mark(entries);
            self.groups.add_unsettled(from, self.head.position());
        }
        if self.removed != before {
            // The absence of an object is durable when the chain is.
            self.removed = self.head.position();
        }
        Ok(done)
    }

    fn tablet_of(&self, update: &Update<'_>) -> Result<usize, Error> {
        let found = self.tablets.find(update.table, KeyHash::of(update.key));
        found.ok_or(Error::UnknownTablet { table: update.table })
    }

    /// Does an update for which room was made; returns the number of entries that it appends.
    fn update_placed(&mut self, update: &Update<'_>) -> Result<u64, Error> {
        let Update { table, key, new } = *update;
        let (tablet, hash) = (self.tablet_of(update)?, KeyHash::of(key));
        let Some((value, attributes)) = new else {
            let current = self.current_for(Purpose::Replay, tablet, hash, key);
            let Some(current) = current.filter(|it| !self.has_expired(it.old.at)) else {
                return Ok(0);
            };
            self.delete_placed(tablet, table, key, &current);
            return Ok(1);
        };
        let current = self.current(tablet, hash, key);
        let version = self.version_after(current.as_ref().map(|current| current.old.version))?;
        let buries = current.is_some() && self.options().tombstones == Tombstones::Classic;
        let new = NewVersion { tablet, table, hash, key, value, version };
        self.of_form(ValueKind::Bytes, attributes, |log| log.put_placed(new, current))?;
        Ok(1 + u64::from(buries))
    }
}
