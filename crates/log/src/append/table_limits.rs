//! Limits of tables: the most bytes that a table may take, and the bytes that it keeps.
//!
//! A table may have tablets in many logs, which know nothing of each other. So each tablet has a
//! *share* of its table's limits, in proportion to its hash range. Hashes are uniform, so that is
//! also its share of the objects. A tablet counts the bytes of its live entries, with their keys
//! and headers.
//!
//! **The most.** A write that would make a tablet larger than its share is refused. Deletes go on,
//! and so do writes that make no object larger. In a cache the log first evicts objects of that
//! tablet: [`Log::make_room_in_tablet`]. They are found through the index and not through the
//! segments, which have objects of all tables. A hand walks over the buckets, as that of a clock.
//! An object that was used since the last round loses one of its uses and stays.
//!
//! **The reservation.** If any tablet here has one, the log evicts from the tablet that is furthest
//! above its own, by the same walk. Objects of a tablet that is not above it are never evicted for
//! others.
//!
//! Tablets without limits do not pay. The limits for all live data, which every write compares
//! with, are 0 as long as a tablet has a maximum. Then every write takes the way behind that
//! comparison, which looks more closely.

use super::batch::Purpose;
use super::expired::ExpiredItem;
use super::shared::LiveLimits;
use super::tablets::Tablet;
use super::write::ExistingEntry;
use super::{HashedKey, Keys, Log};

use crate::error::Error;
use crate::index::Cursor;
use crate::memory::object::{Located, Object};
use std::collections::BTreeMap;
use std::sync::Arc;
use thunderhead_wire::{KeyHash, TableId};

/// How many objects and buckets are looked at, at most, before one write to a table with a maximum.
const LOOKS: usize = 512;

/// After so many, uses do not count: otherwise a table of which all objects are used would make no
/// room for long.
const LOOKS_AT_USES: usize = 64;

/// More bytes than an entry has beside its key and value.
const OVERHEAD: u64 = 64;

/// The limits of a table, over all its tablets in all logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    /// The most bytes of its live entries, if it has a maximum.
    pub max_bytes: Option<u64>,
    /// The bytes of which none are evicted for other tables.
    pub reserved_bytes: u64,
    /// Its objects are those of a cache.
    pub is_cache: bool,
}

/// A tablet's share of the limits of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) max_bytes: u64,
    pub(crate) reserved_bytes: u64,
    pub(crate) is_cache: bool,
}

impl Share {
    /// That of a tablet whose table has no limits.
    pub(crate) const NONE: Share =
        Share { max_bytes: u64::MAX, reserved_bytes: 0, is_cache: false };

    /// The share of so many hashes.
    fn of(limits: &TableLimits, hashes: u128) -> Share {
        let part = |bytes: u64| ((u128::from(bytes) * hashes) >> 64) as u64;
        Share {
            max_bytes: limits.max_bytes.map_or(u64::MAX, part),
            reserved_bytes: part(limits.reserved_bytes),
            is_cache: limits.is_cache,
        }
    }
}

/// The hand of a tablet's clock.
#[derive(Default)]
pub(crate) struct Hand {
    at: Cursor,
    /// The objects of the last bucket that were not looked at yet.
    found: Vec<ExpiredItem>,
}

/// The limits of the tables of a log.
#[derive(Default)]
pub(super) struct LimitedTables {
    tables: BTreeMap<TableId, TableLimits>,
    /// A tablet has a maximum.
    has_max: bool,
    /// A tablet has a reservation.
    has_reserved: bool,
    /// Objects of a cache were written to a table whose limits are not known.
    has_other_caches: bool,
}

impl LimitedTables {
    pub(super) fn has_reserved(&self) -> bool {
        self.has_reserved
    }

    /// Notes that an object of a cache was written to a table.
    pub(super) fn note_cached(&mut self, table: TableId) {
        if self.has_reserved && !self.has_other_caches {
            self.has_other_caches = !self.tables.get(&table).is_some_and(|it| it.is_cache);
        }
    }
}

impl Log {
    /// Sets the limits of a table of which tablets are here or will be.
    pub fn limit_table(&mut self, table: TableId, limits: TableLimits) {
        self.limited.tables.insert(table, limits);
        self.share_limits();
    }

    /// Forgets the limits of tables that are not among these.
    pub fn retain_limits(&mut self, keeps: impl Fn(TableId) -> bool) {
        self.limited.tables.retain(|table, _| keeps(*table));
        self.share_limits();
    }

    /// Divides the limits anew, after tablets came, went or changed their ranges. A part of a
    /// tablet that was dropped counts until its entries are removed: they count, too.
    pub(super) fn share_limits(&mut self) {
        let LimitedTables { tables, has_max, has_reserved, .. } = &mut self.limited;
        (*has_max, *has_reserved) = (false, false);
        for tablet in &mut self.tablets.list {
            let limits = tables.get(&tablet.range.table);
            tablet.share = limits.map_or(Share::NONE, |it| Share::of(it, tablet.hashes()));
            *has_max |= tablet.share.max_bytes != u64::MAX;
            *has_reserved |= tablet.share.reserved_bytes > 0;
        }
        self.set_eviction_in_passes();
        self.refresh_admission();
    }

    /// Tells the usual way of a write how much it may admit.
    pub(super) fn refresh_admission(&mut self) {
        self.admission = if self.limited.has_max { LiveLimits::default() } else { self.limits };
    }

    /// Admits a write of an object, whose tablet may have a maximum. The usual way did not.
    #[cold]
    #[inline(never)]
    pub(super) fn admit_closely(
        &self,
        tablet: usize,
        (new_bytes, payload): (u64, usize),
        current: Option<&ExistingEntry>,
    ) -> Result<(), Error> {
        let old_bytes = current.map_or(0, |current| current.old.bytes() as u64);
        self.admit_beside(new_bytes, old_bytes)?;
        let tablet = &self.tablets.list[tablet];
        let Share { max_bytes, is_cache, .. } = tablet.share;
        let wanted = payload as u64 + OVERHEAD;
        if tablet.live_bytes + wanted <= max_bytes.saturating_add(old_bytes) {
            return Ok(());
        }
        if current.is_some_and(|current| payload <= self.payload(current)) {
            return Ok(());
        }
        if is_cache && self.evicts() && wanted <= max_bytes {
            return Err(Error::CleanerBehind);
        }
        let (table, live_bytes) = (tablet.range.table, tablet.live_bytes);
        Err(Error::TabletFull { table, live_bytes, limit_bytes: max_bytes })
    }

    /// The bytes of the key and the value of an entry that an update found.
    fn payload(&self, entry: &ExistingEntry) -> usize {
        let located = Located::read(&self.memory, entry.old.at);
        located.map_or(0, |located| {
            let object = Object { memory: &self.memory, located };
            object.key().len() + object.value().len()
        })
    }

    /// Whether a write of so many bytes would make the tablet of a key larger than its share, and
    /// its objects may be evicted.
    #[must_use]
    pub fn wants_room_in_tablet(&self, table: TableId, key: HashedKey<'_>, bytes: usize) -> bool {
        self.limited.has_max
            && self.tablets.find(table, key.hash).is_some_and(|at| {
                let Tablet { share, live_bytes, .. } = &self.tablets.list[at];
                share.is_cache && live_bytes + bytes as u64 + OVERHEAD > share.max_bytes
            })
    }

    /// Evicts objects of the tablet of a key, until an object with so many bytes of key and value
    /// fits under its key. If that takes long, this evicts some of them: then the write is refused,
    /// and its caller tries again. Ends the open group.
    pub fn make_room_in_tablet(&mut self, table: TableId, key: HashedKey<'_>, bytes: usize) {
        self.end_group();
        // A rebuild must meet the newest version of each key, or it would take in an older one.
        if !self.evicts() || self.shared.frames.is_rebuilding() {
            return;
        }
        let Some(at) = self.tablets.find(table, key.hash) else { return };
        let old = self.current_for(Purpose::Replay, at, key.hash, key.key);
        let old_bytes = old.map_or(0, |current| current.old.bytes() as u64);
        let grows = (bytes as u64 + OVERHEAD).saturating_sub(old_bytes);
        let Some(target) = self.tablets.list[at].share.max_bytes.checked_sub(grows) else { return };
        for look in 0..LOOKS {
            if self.tablets.list[at].live_bytes <= target {
                return;
            }
            if !self.evict_in_tablet(at, look < LOOKS_AT_USES, Some(key.hash)) {
                return;
            }
        }
    }

    /// The cache that is furthest above its reservation, if any is above it.
    pub(super) fn furthest_above_reservation(&self) -> Option<usize> {
        let above = |tablet: &Tablet| tablet.live_bytes.saturating_sub(tablet.share.reserved_bytes);
        let tablets = self.tablets.list.iter().enumerate();
        let caches = tablets.filter(|(_, it)| it.share.is_cache && above(it) > 0);
        caches.max_by_key(|(_, tablet)| above(tablet)).map(|(at, _)| at)
    }

    /// Whether objects of some cache may be evicted for those of other tables.
    pub(super) fn has_unreserved(&self) -> bool {
        !self.limited.has_reserved
            || self.limited.has_other_caches
            || self.furthest_above_reservation().is_some()
    }

    /// Whether an object must not be evicted for other tables.
    pub(super) fn is_reserved(&self, item: &ExpiredItem) -> bool {
        let Some(at) = self.tablets.find(item.table, item.hash) else { return false };
        let Tablet { share, live_bytes, .. } = &self.tablets.list[at];
        share.reserved_bytes > 0 && *live_bytes <= share.reserved_bytes
    }

    /// Looks at the next object, or bucket, of a tablet; false if there is no room for a tombstone.
    pub(super) fn evict_in_tablet(
        &mut self,
        at: usize,
        uses_count: bool,
        spared: Option<KeyHash>,
    ) -> bool {
        if self.is_eviction_paused() {
            return false;
        }
        let memory = Arc::clone(&self.memory);
        let tablet = &mut self.tablets.list[at];
        let Some(item) = tablet.hand.found.pop() else {
            let found = &mut tablet.hand.found;
            let next = tablet.index.scan(tablet.hand.at, &Keys(&memory), |at| {
                found.extend(
                    Located::read(&memory, at).map(|located| ExpiredItem::of(&memory, &located)),
                );
            });
            tablet.hand.at = next.unwrap_or_default();
            return true;
        };
        if spared == Some(item.hash) || self.evict(item, uses_count) {
            return true;
        }
        self.tablets.list[at].hand.found.push(item);
        false
    }
}
