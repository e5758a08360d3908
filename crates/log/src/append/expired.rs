//! The removal of items that have expired.
//!
//! An expired item is absent in every answer from its time on. Then its memory is freed:
//!
//! 1. A cleaner looks through the segments in which items have expired
//!    ([`cleaner::expiry`](crate::cleaner)) and queues the items that it finds.
//! 2. The log's thread takes each out of the index and marks its entry dead ([`Log::tick`]).
//! 3. The cleaners free the memory as that of any dead entry.
//!
//! **No tombstone.** A recovery may find the entry in a segment on a backup and bring it back, as
//! long as that segment is part of the log. That does no harm: the clock of the recovered log is
//! past the item's time, because a clock mark became durable before anyone was told of the absence
//! ([`clock`](super::clock)), and the item is absent again. If the key was written meanwhile, the
//! newer version wins.
//!
//! **Versions.** A later object of the key must get a higher version, also after the entry has left
//! the log. So the safe version is raised to the item's version, and a record of it is appended,
//! before the item leaves the index.

use super::write::ReplacedEntry;
use super::{Log, hash_of};
use crate::error::Error;
use crate::index::Found;
use crate::limits::BATCH;
use crate::memory::object::{Extras, Located};
use crate::memory::segment;
use crate::memory::{Memory, Reference};
use std::sync::atomic::Ordering;
use thunderhead_wire::{Attributes, KeyHash, TableId};

/// An item that a cleaner has found. It may have changed since.
#[derive(Clone, Copy)]
pub(crate) struct ExpiredItem {
    pub(crate) table: TableId,
    pub(crate) hash: KeyHash,
    pub(crate) at: Reference,
}

impl ExpiredItem {
    pub(crate) fn of(memory: &Memory, located: &Located) -> ExpiredItem {
        let (table, at) = (located.fields.table, located.at);
        ExpiredItem { table, hash: KeyHash(hash_of(memory, at)), at }
    }
}

/// Items that are to be removed.
#[derive(Default)]
pub(super) struct Expiring {
    items: Vec<ExpiredItem>,
    /// Items that were removed so far.
    pub(super) removed: u64,
}

/// A queued item that is still where a cleaner found it.
pub(super) struct FoundItem {
    pub(super) tablet: usize,
    pub(super) found: Found,
    pub(super) located: Located,
    pub(super) attributes: Attributes,
}

impl Log {
    /// Tells the cleaners the time, and removes some of the items that they have found to have
    /// expired, at most [`BATCH`]. Returns whether more of them wait.
    ///
    /// Call it some times a second if the log has items that expire ([`Log::keeps_time`]), and wake
    /// the cleaners afterwards.
    pub fn tick(&mut self) -> bool {
        self.end_group();
        self.want_nothing();
        self.shared.time.store(self.clock.now().0, Ordering::Relaxed);
        // A rebuild must meet the newest version of each key, or it would take in an older one.
        if self.shared.frames.is_rebuilding() {
            return false;
        }
        if self.expiring.items.is_empty()
            && let Some(found) = self.shared.expired.pop()
        {
            self.expiring.items = found;
        }
        let kept = self.expiring.items.len().saturating_sub(BATCH);
        let batch = self.expiring.items.split_off(kept);
        if let Err(Error::CleanerBehind) = self.remove_expired(&batch) {
            self.expiring.items.extend(batch);
            return false;
        }
        self.shared.sums.expiring.fetch_sub(batch.len(), Ordering::Relaxed);
        !self.expiring.items.is_empty() || !self.shared.expired.is_empty()
    }

    /// Whether the log has or had items that expire.
    #[must_use]
    pub fn keeps_time(&self) -> bool {
        self.keeps_time
    }

    fn remove_expired(&mut self, batch: &[ExpiredItem]) -> Result<(), Error> {
        for item in batch {
            if let Some(tablet) = self.tablets.find(item.table, item.hash) {
                self.tablets.list[tablet].index.lookup_prefetched(item.hash.0);
            }
        }
        let doomed = || batch.iter().filter_map(|item| self.doomed(item));
        let highest = doomed().map(|it| (it.located.fields.version, it.attributes.expires));
        let highest = highest.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)));
        let Some((version, expires)) = highest else { return Ok(()) };
        // Both records first: without room for them nothing is removed.
        self.note_safe_version(version);
        self.log_safe_version()?;
        self.clock.note_gone(expires);
        self.settle_clock()?;
        for item in batch {
            let Some(doomed) = self.doomed(item) else { continue };
            self.remove_item(&doomed);
            self.expiring.removed += 1;
            self.count_mutation();
        }
        Ok(())
    }

    /// The item, if it is still where the cleaner found it, and has expired.
    fn doomed(&self, item: &ExpiredItem) -> Option<FoundItem> {
        self.found_item(item).filter(|it| it.attributes.has_expired(self.clock.now()))
    }

    /// The item, if it is still where a cleaner found it.
    pub(super) fn found_item(&self, item: &ExpiredItem) -> Option<FoundItem> {
        let tablet = self.tablets.find(item.table, item.hash)?;
        let found = self.tablets.list[tablet].index.find(item.hash.0, |at| at == item.at)?;
        // The index names it, so the entry is there.
        let frame = segment::frame(&self.memory, item.at);
        let (located, Extras { attributes, .. }) = Located::of_item(&self.memory, item.at, &frame)?;
        Some(FoundItem { tablet, found, located, attributes })
    }

    /// Takes an item out of the index, without a tombstone. Nothing was written since it was found.
    pub(super) fn remove_item(&mut self, item: &FoundItem) {
        let at = self.tablets.list[item.tablet].index.remove(item.found);
        self.bury(item.tablet, at, &ReplacedEntry::of(&item.located));
    }
}
