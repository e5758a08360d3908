//! Writes and deletes: append, then point the index at the new entry, then mark the old one dead.
//!
//! The order matters. The bytes are first written beyond the head's end. The end moves only when
//! the index has taken the reference, so an index without memory leaves no trace.

use super::batch::Purpose;
use super::shared::LiveLimits;
use super::{Keys, Log};
use crate::error::Error;
use crate::format::entry::{Frame, Kind, ObjectFields};
use crate::index::Found;
use crate::limits::MUTATIONS_PER_TURN;
use crate::memory::Reference;
use crate::memory::object::Located;
use crate::memory::segment;
use crate::options::Tombstones;
use std::sync::atomic::Ordering;
use thunderhead_wire::{Condition, KeyHash, LogPosition, TableId, Version};

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The object's new version.
    pub version: Version,
    /// The write is safe once [`Log::durable`] has reached this position.
    pub position: LogPosition,
}

/// A key, with the hash that decides its tablet and its bucket.
#[derive(Clone, Copy, Debug)]
pub struct HashedKey<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: KeyHash,
}

impl<'a> HashedKey<'a> {
    /// Hashes a key.
    #[inline]
    #[must_use]
    pub fn of(key: &'a [u8]) -> HashedKey<'a> {
        HashedKey { key, hash: KeyHash::of(key) }
    }
}

/// The entry that an update found in the index.
pub(crate) struct ExistingEntry {
    pub(crate) found: Found,
    pub(crate) old: ReplacedEntry,
}

/// The facts that an update needs of the entry that it replaces. Fewer than [`Located`] has, which
/// would be copied several times on the way.
#[derive(Clone, Copy)]
pub(crate) struct ReplacedEntry {
    pub(crate) at: Reference,
    pub(crate) version: Version,
    bytes: usize,
    guarded_bytes: usize,
}

impl ReplacedEntry {
    #[inline]
    pub(crate) fn of(entry: &Located) -> ReplacedEntry {
        let (bytes, guarded_bytes) = (entry.entry_bytes(), entry.guarded_bytes());
        ReplacedEntry { at: entry.at, version: entry.fields.version, bytes, guarded_bytes }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A version of an object that is to be appended.
#[derive(Clone, Copy)]
pub(crate) struct NewVersion<'a> {
    pub(crate) tablet: usize,
    pub(crate) table: TableId,
    pub(crate) hash: KeyHash,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) version: Version,
}

impl Log {
    /// Hashes a key and prefetches the memory that an update of it touches first; waits for none of
    /// it.
    #[inline]
    #[must_use]
    pub fn expect_update<'key>(&self, table: TableId, key: &'key [u8]) -> HashedKey<'key> {
        let hashed = HashedKey::of(key);
        if let Some(tablet) = self.tablets.find(table, hashed.hash) {
            self.tablets.list[tablet].index.lookup_prefetched(hashed.hash.0);
        }
        hashed
    }

    /// Writes an object, whether the key exists or not.
    ///
    /// # Errors
    /// As [`Log::write_if`], but for the condition.
    #[inline]
    pub fn write(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<Written, Error> {
        self.write_if(table, key, value, Condition::Always)
    }

    /// Writes an object if a condition holds.
    ///
    /// # Errors
    /// For a key or value of an impossible size, a tablet that this log does not hold, a condition
    /// that does not hold, no version left above the present one, or no memory: see [`Error`]. An
    /// error changes nothing.
    #[inline]
    pub fn write_if(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> Result<Written, Error> {
        self.write_expected(table, HashedKey::of(key), value, condition)
    }

    /// Writes an object whose place in the index may have been [prefetched](Log::expect_update).
    ///
    /// # Errors
    /// As [`Log::write_if`].
    #[inline]
    pub fn write_expected(
        &mut self,
        table: TableId,
        HashedKey { key, hash }: HashedKey<'_>,
        value: &[u8],
        condition: Condition,
    ) -> Result<Written, Error> {
        self.check_sizes(key, value)?;
        let tablet = self.tablets.find(table, hash).ok_or(Error::UnknownTablet { table })?;
        let written = self.write_in(tablet, table, hash, key, value, condition);
        self.count_mutation();
        written
    }

    #[inline]
    pub(super) fn write_in(
        &mut self,
        tablet: usize,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> Result<Written, Error> {
        let current = self.current(tablet, hash, key);
        self.check(condition, current.as_ref())?;
        let existing = current.as_ref().map(|current| current.old.version);
        let version = self.version_after(existing)?;
        let new = NewVersion { tablet, table, hash, key, value, version };
        let position = self.put(new, current)?;
        Ok(Written { version, position })
    }

    /// The version of a write to a key that has the version `existing` now. Replay refuses a
    /// version above the highest as damage, so such a version must not be written.
    #[inline]
    pub(super) fn version_after(&self, existing: Option<Version>) -> Result<Version, Error> {
        let version = existing.unwrap_or(self.safe_version).next();
        if version > Version::HIGHEST {
            return Err(Error::VersionTooHigh { version });
        }
        Ok(version)
    }

    /// Appends a version of an object and makes it the current one.
    #[inline]
    pub(crate) fn put(
        &mut self,
        new: NewVersion<'_>,
        current: Option<ExistingEntry>,
    ) -> Result<LogPosition, Error> {
        let payload = new.key.len() + new.value.len();
        self.admit_object(new.tablet, (payload + 64, payload), current.as_ref())?;
        self.put_admitted(new, current)
    }

    /// Appends a version of an object, however full the memory is. The objects of a replay were
    /// admitted before, and their dead versions may not be known to be dead yet.
    #[inline]
    pub(crate) fn put_admitted(
        &mut self,
        new: NewVersion<'_>,
        current: Option<ExistingEntry>,
    ) -> Result<LogPosition, Error> {
        let folded = self.shared.options.tombstones == Tombstones::Folded;
        // Room for the largest header. In the classic scheme also for the tombstone after it, so
        // that the two are never apart and the write cannot fail half way.
        let tombstone_bytes = if folded || current.is_none() { 0 } else { new.key.len() + 128 };
        let most = new.key.len() + new.value.len() + 64 + tombstone_bytes;
        self.make_room(most, self.shared.reserves.for_writes())?;
        self.put_placed(new, current)
    }

    /// Appends a version of an object for which room was made.
    #[inline]
    pub(super) fn put_placed(
        &mut self,
        new: NewVersion<'_>,
        current: Option<ExistingEntry>,
    ) -> Result<LogPosition, Error> {
        let NewVersion { tablet, table, hash, key, value, version } = new;
        let folded = self.shared.options.tombstones == Tombstones::Folded;
        let birth = self.head.born;
        let mut fields = ObjectFields { table, version, birth, prior: None };
        let (entry_bytes, replaced) = match &current {
            Some(current) if folded => {
                self.replace_naming(tablet, &mut fields, current.found, key, value)
            }
            Some(current) => {
                let (at, entry_bytes) = self.write_object(&fields, key, value);
                let index = &mut self.tablets.list[tablet].index;
                (entry_bytes, Some(index.replace(current.found, at)))
            }
            None => {
                let (at, entry_bytes) = self.write_object(&fields, key, value);
                self.insert(tablet, hash, at)?;
                (entry_bytes, None)
            }
        };
        self.head.appender.advance(entry_bytes);
        self.groups.count_effect();
        self.live_bytes += entry_bytes as u64;
        self.tablets.list[tablet].live_bytes += entry_bytes as u64;
        if let (Some(replaced), Some(current)) = (replaced, current) {
            self.bury(tablet, replaced, &current.old);
            if !folded {
                let version = current.old.version;
                let prior = Some(self.memory.segment_of(replaced));
                self.append_tombstone(ObjectFields { table, version, birth, prior }, key);
            }
        }
        Ok(self.head.position())
    }

    /// Writes an object beyond the head's end: it counts once the head advances over it.
    #[inline]
    fn write_object(
        &mut self,
        fields: &ObjectFields,
        key: &[u8],
        value: &[u8],
    ) -> (Reference, usize) {
        if self.form.is_item() {
            return self.write_item(fields, key, value);
        }
        let mut header = fields.object(key.len(), value.len());
        header.add_flag(self.groups.links());
        header.change_flags(self.form.bits());
        self.head.appender.prior_span.add(fields.prior);
        let at = self.head.place(header.entry_bytes);
        self.head.appender.write(at, &mut header, [key, value], self.seal);
        (at, header.entry_bytes)
    }

    /// Writes an object that names the segment of the version which it replaces, and replaces that
    /// version. A cleaner may move the old version in between; then the record would name the wrong
    /// segment. So the index changes only if the old version is still in the segment that the
    /// record names.
    #[inline]
    fn replace_naming(
        &mut self,
        tablet: usize,
        fields: &mut ObjectFields,
        found: Found,
        key: &[u8],
        value: &[u8],
    ) -> (usize, Option<Reference>) {
        let mut old = self.tablets.list[tablet].index.reference(found);
        loop {
            fields.prior = Some(self.memory.segment_of(old));
            let (at, entry_bytes) = self.write_object(fields, key, value);
            match self.tablets.list[tablet].index.replace_exact(found, old, at) {
                Ok(()) => return (entry_bytes, Some(old)),
                Err(moved) => old = moved,
            }
        }
    }

    /// Puts a new reference into a tablet's index.
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        tablet: usize,
        hash: KeyHash,
        at: Reference,
    ) -> Result<(), Error> {
        self.tablets.list[tablet]
            .index
            .insert(hash.0, at, &Keys(&self.memory))
            .map_err(|_| Error::CleanerBehind)
    }

    /// Looks up a key's present entry, which an update replaces.
    #[inline]
    pub(crate) fn current(
        &self,
        tablet: usize,
        hash: KeyHash,
        key: &[u8],
    ) -> Option<ExistingEntry> {
        self.current_for(Purpose::Update, tablet, hash, key)
    }

    #[inline]
    pub(crate) fn current_for(
        &self,
        purpose: Purpose,
        tablet: usize,
        hash: KeyHash,
        key: &[u8],
    ) -> Option<ExistingEntry> {
        let mut old = None;
        let index = &self.tablets.list[tablet].index;
        let found = index.find(hash.0, |at| {
            old = self.replaced_entry(at, key, purpose);
            old.is_some()
        })?;
        Some(ExistingEntry { found, old: old? })
    }

    /// The entry at a place that the index names, if it has this key, for an update or a replay.
    #[inline]
    fn replaced_entry(&self, at: Reference, key: &[u8], purpose: Purpose) -> Option<ReplacedEntry> {
        self.prefetch_entry(at, Purpose::Update);
        let memory = &*self.memory;
        let frame = segment::frame(memory, at);
        if !Kind::is_plain(frame.flags) {
            return self.replaced_item(at, &frame, key, purpose);
        }
        let entry = Located::of_keyed(memory, at, &frame)?;
        entry.has_key(memory, key).then(|| ReplacedEntry::of(&entry))
    }

    /// The same for an entry that may be an item.
    #[cold]
    #[inline(never)]
    fn replaced_item(
        &self,
        at: Reference,
        frame: &Frame,
        key: &[u8],
        purpose: Purpose,
    ) -> Option<ReplacedEntry> {
        let entry = Located::of(&self.memory, at, frame);
        let mut old = ReplacedEntry::of(&entry.filter(|it| it.has_key(&self.memory, key))?);
        if purpose == Purpose::Update {
            (old.version, _) = self.item_of(at, frame, purpose)?;
        }
        Some(old)
    }

    /// Counts a live entry of a tablet as dead, at the place where it was when the index dropped
    /// its reference.
    #[inline]
    pub(super) fn bury(&mut self, tablet: usize, at: Reference, old: &ReplacedEntry) {
        let bytes = old.bytes();
        segment::mark_dead(&self.memory, at);
        self.memory.count_dead(at, bytes, old.guarded_bytes);
        self.live_bytes -= bytes as u64;
        self.tablets.list[tablet].live_bytes -= bytes as u64;
    }

    /// Appends a tombstone; room was made before.
    pub(super) fn append_tombstone(&mut self, fields: ObjectFields, key: &[u8]) {
        let mut header = fields.tombstone(key.len());
        header.add_flag(self.groups.links());
        let bytes = header.entry_bytes;
        let at = self.head.place(bytes);
        self.head.appender.prior_span.add(fields.prior);
        self.head.appender.write(at, &mut header, [key, &[]], self.seal);
        self.head.appender.advance_idle(bytes);
        self.groups.count_effect();
        self.head.tombstone_bytes += bytes;
        self.shared.sums.tombstone_bytes.fetch_add(bytes as i64, Ordering::Relaxed);
    }

    /// Deletes an object. Returns its version, or `None` when there was no object.
    ///
    /// # Errors
    /// As [`Log::write_if`], but never [`Error::MemoryFull`]: a delete always finds room, at worst
    /// after the cleaners have run once more.
    pub fn delete(
        &mut self,
        table: TableId,
        key: &[u8],
        condition: Condition,
    ) -> Result<Option<Version>, Error> {
        self.check_sizes(key, &[])?;
        let hash = KeyHash::of(key);
        let tablet = self.tablets.find(table, hash).ok_or(Error::UnknownTablet { table })?;
        let current = self.current_for(Purpose::Replay, tablet, hash, key);
        let current = current.filter(|it| !self.has_expired(it.old.at));
        let deleted = self.check(condition, current.as_ref()).and_then(|()| match current {
            Some(current) => self.delete_in(tablet, table, key, &current).map(Some),
            None => Ok(None),
        });
        self.count_mutation();
        deleted
    }

    /// Deletes an object, expired or not.
    pub(crate) fn delete_in(
        &mut self,
        tablet: usize,
        table: TableId,
        key: &[u8],
        current: &ExistingEntry,
    ) -> Result<Version, Error> {
        self.make_room(key.len() + 128, self.shared.reserves.for_deletes())?;
        Ok(self.delete_placed(tablet, table, key, current))
    }

    /// Refuses an update whose condition does not hold.
    #[inline]
    pub(super) fn check(
        &self,
        condition: Condition,
        current: Option<&ExistingEntry>,
    ) -> Result<(), Error> {
        if condition == Condition::Always { Ok(()) } else { self.check_seen(condition, current) }
    }

    #[inline(never)]
    fn check_seen(
        &self,
        condition: Condition,
        current: Option<&ExistingEntry>,
    ) -> Result<(), Error> {
        let is_item = |it: &ExistingEntry| Kind::is_item(segment::flags(&self.memory, it.old.at));
        let current = match current {
            None => Version::NONE,
            Some(it) if is_item(it) => self.seen_version(it.old.at),
            Some(it) => it.old.version,
        };
        if condition.holds(current) { Ok(()) } else { Err(Error::Condition { current }) }
    }

    /// Deletes an object for whose tombstone room was made.
    pub(super) fn delete_placed(
        &mut self,
        tablet: usize,
        table: TableId,
        key: &[u8],
        current: &ExistingEntry,
    ) -> Version {
        let version = current.old.version;
        let index = &mut self.tablets.list[tablet].index;
        let at = index.remove(current.found);
        let prior = Some(self.memory.segment_of(at));
        self.safe_version = self.safe_version.max(version);
        self.bury(tablet, at, &current.old);
        let fields = ObjectFields { table, version, birth: self.head.born, prior };
        self.append_tombstone(fields, key);
        // A side segment has a position of its own, but its tablets are served only once it is
        // durable.
        if self.main_head.is_none() {
            self.removed = self.head.position();
        }
        version
    }

    pub(crate) fn check_sizes(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let options = &self.shared.options;
        if key.is_empty() {
            return Err(Error::KeyEmpty);
        }
        if key.len() > options.key_bytes_max() {
            let limit = options.key_bytes_max();
            return Err(Error::KeyTooLong { bytes: key.len(), limit });
        }
        if value.len() > options.value_bytes_max() {
            let limit = options.value_bytes_max();
            return Err(Error::ValueTooLong { bytes: value.len(), limit });
        }
        Ok(())
    }

    /// Refuses a write of an object that would fill the memory beyond the limit for writes, or its
    /// table beyond its maximum. The object has `payload` bytes of key and value, and takes at most
    /// `new_bytes`.
    #[inline]
    pub(super) fn admit_object(
        &self,
        tablet: usize,
        (new_bytes, payload): (usize, usize),
        current: Option<&ExistingEntry>,
    ) -> Result<(), Error> {
        let old_bytes = current.map_or(0, |current| current.old.bytes());
        if self.live_limit_exceeded(self.admission, new_bytes as u64, old_bytes as u64).is_none() {
            return Ok(());
        }
        self.admit_closely(tablet, (new_bytes as u64, payload), current)
    }

    /// Refuses entries that would fill the memory beyond the limit for writes.
    #[inline]
    pub(super) fn admit_beside(&self, new_bytes: u64, old_bytes: u64) -> Result<(), Error> {
        match self.live_limit_exceeded(self.limits, new_bytes, old_bytes) {
            None => Ok(()),
            Some(limit_bytes) => self.admit_to_cache(new_bytes, old_bytes, limit_bytes),
        }
    }

    /// The limit for live bytes that such entries would exceed, if there is one.
    #[inline]
    fn live_limit_exceeded(&self, limits: LiveLimits, new_bytes: u64, old: u64) -> Option<u64> {
        let live_bytes = self.live_bytes + new_bytes - old.min(new_bytes);
        // An overwrite that makes no object larger is admitted beyond the limit for writes, though
        // its header may have grown a little.
        let grows = new_bytes > old + 64;
        let limit_bytes = if grows { limits.writes } else { limits.safe };
        (live_bytes > limit_bytes).then_some(limit_bytes)
    }

    /// A cache may have a higher limit. It refuses no write for good as long as older objects may
    /// make room.
    #[cold]
    #[inline(never)]
    fn admit_to_cache(&self, new: u64, old: u64, limit_bytes: u64) -> Result<(), Error> {
        let live_bytes = self.live_bytes + new - old.min(new);
        if self.form.is_cached() && live_bytes <= self.limits.cache {
            return Ok(());
        }
        // Other objects may make a cache smaller if it is above the limit for them.
        let is_above = self.live_bytes > self.limits.writes - self.limits.writes / 32;
        let is_shrinking = is_above && self.shared.evicts_in_passes();
        if (self.form.is_cached() || is_shrinking) && self.may_evict() {
            if !self.form.is_cached() {
                self.shared.sums.wanted_bytes.fetch_max(1, Ordering::Relaxed);
            }
            return Err(Error::CleanerBehind);
        }
        Err(Error::MemoryFull { live_bytes: self.live_bytes, limit_bytes })
    }

    #[inline]
    pub(super) fn count_mutation(&mut self) {
        self.mutations += 1;
        self.turn_if_due();
    }

    /// Takes a turn after [`MUTATIONS_PER_TURN`] mutations, but not inside a group.
    #[inline]
    pub(super) fn turn_if_due(&mut self) {
        if self.mutations >= MUTATIONS_PER_TURN && !self.groups.is_open() {
            self.own_turn();
        }
    }
}
