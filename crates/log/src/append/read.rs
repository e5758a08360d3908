//! A single read, in two steps, so that the memory it needs is prefetched early.
//!
//! A read of an object that is in no cache waits twice: for its bucket and for its entry. The
//! bucket can be prefetched as soon as the key is known ([`Log::expect_read`]). The reader then
//! does all its other checks and comes back for the object ([`ExpectedRead::read`]).

use super::Log;
use super::batch::Purpose;
use crate::error::Error;
use crate::format::entry::Kind;
use crate::index::Lookup;
use crate::memory::Reference;
use crate::memory::object::{Extras, Item, Located, Object};
use crate::memory::segment;
use thunderhead_wire::{Attributes, KeyHash, LogPosition, TableId, Timestamp};

/// A key whose bucket is being prefetched.
#[derive(Clone, Copy)]
pub struct ExpectedRead<'log, 'key> {
    log: &'log Log,
    at: Lookup<'log>,
    key: &'key [u8],
}

impl<'log> ExpectedRead<'log, '_> {
    /// Finds the object.
    #[inline]
    #[must_use]
    pub fn read(self) -> Option<Object<'log>> {
        self.log.read_in(self.at, self.key)
    }
}

impl std::fmt::Debug for ExpectedRead<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExpectedRead").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Log {
    /// Finds an object. A key that cannot exist, because it is empty or too long, gives `Ok(None)`;
    /// writes and deletes refuse such a key, because there it is a mistake.
    ///
    /// # Errors
    /// [`Error::UnknownTablet`] when this log does not hold the key's tablet.
    #[inline]
    pub fn read(&self, table: TableId, key: &[u8]) -> Result<Option<Object<'_>>, Error> {
        Ok(self.expect_read(table, key)?.read())
    }

    /// Prefetches the memory that a read of a key touches first, and waits for none of it.
    ///
    /// # Errors
    /// [`Error::UnknownTablet`] when this log does not hold the key's tablet.
    #[inline]
    pub fn expect_read<'key>(
        &self,
        table: TableId,
        key: &'key [u8],
    ) -> Result<ExpectedRead<'_, 'key>, Error> {
        let hash = KeyHash::of(key);
        let at = self.tablets.find(table, hash).ok_or(Error::UnknownTablet { table })?;
        Ok(ExpectedRead {
            log: self,
            at: self.tablets.list[at].index.lookup_prefetched(hash.0),
            key,
        })
    }

    /// Finds an object, and decodes its attributes on the way.
    ///
    /// # Errors
    /// [`Error::UnknownTablet`] when this log does not hold the key's tablet.
    #[inline]
    pub fn read_item(&self, table: TableId, key: &[u8]) -> Result<Option<Item<'_>>, Error> {
        let ExpectedRead { log, at, key } = self.expect_read(table, key)?;
        Ok(log.item_in(at, key))
    }

    #[inline]
    pub(super) fn item_in<'log>(&'log self, lookup: Lookup<'_>, key: &[u8]) -> Option<Item<'log>> {
        let mut found = None;
        lookup.find(|at| {
            self.prefetch_entry(at, Purpose::Read);
            found = self.item_at(at, key);
            found.is_some()
        })?;
        found
    }

    /// The object at a place that the index names, if it has this key and has not expired.
    #[inline]
    pub(super) fn item_at(&self, at: Reference, key: &[u8]) -> Option<Item<'_>> {
        let memory = &*self.memory;
        let frame = segment::frame(memory, at);
        let (located, extras) = if Kind::is_item(frame.flags) {
            Located::of_item(memory, at, &frame)?
        } else {
            let kind = Kind::value_kind(frame.flags);
            (Located::of(memory, at, &frame)?, Extras { kind, attributes: Attributes::NONE })
        };
        if !located.has_key(memory, key) {
            return None;
        }
        // The time is asked for only if it matters.
        let expires = extras.attributes.expires != Timestamp::ZERO;
        if expires && extras.attributes.has_expired(self.clock.now()) {
            self.clock.note_gone(extras.attributes.expires);
            return None;
        }
        Some(Item::new(Object { memory, located }, extras))
    }

    #[inline]
    pub(super) fn read_in<'log>(
        &'log self,
        lookup: Lookup<'_>,
        key: &[u8],
    ) -> Option<Object<'log>> {
        let mut found = None;
        let memory = &*self.memory;
        lookup.find(|at| {
            found = self.entry_of(at, key);
            found.is_some()
        })?;
        Some(Object { memory, located: found? })
    }

    /// The entry at a place that the index names, if it has this key, for a read.
    #[inline]
    fn entry_of(&self, at: Reference, key: &[u8]) -> Option<Located> {
        // The entry lies in several cache lines. Without this, the reader learns from the first
        // line that it needs the others, and waits once more.
        self.prefetch_entry(at, Purpose::Read);
        let memory = &*self.memory;
        let frame = segment::frame(memory, at);
        let located = if Kind::is_plain(frame.flags) {
            Located::of_keyed(memory, at, &frame)
        } else {
            // Only numbers come from there, so that the entry of an object stays in registers.
            let (version, value_at) = self.item_of(at, &frame, Purpose::Read)?;
            Located::of(memory, at, &frame).map(|it| it.as_item(version, value_at))
        };
        located.filter(|entry| entry.has_key(memory, key))
    }

    /// Returns the position at which the object will be durable, or `None` when it is. A server
    /// answers a read no sooner, or a crash could undo a value that a client has seen.
    #[must_use]
    #[inline]
    pub fn durable_at(&self, object: &Object<'_>) -> Option<LogPosition> {
        if object.birth() < self.groups.settled().segment {
            return None;
        }
        self.durable_in_head(object)
    }

    /// Returns the position at which every delete will be durable, or `None` when all are. A key
    /// may be absent because of a delete, and a crash could undo that. Only deletes in served
    /// tablets matter: a dropped tablet is not read, and a tablet that arrives is durable before it
    /// is served.
    #[must_use]
    pub fn deletes_durable_at(&self) -> Option<LogPosition> {
        let is_settled = self.removed <= self.groups.settled();
        (!is_settled).then(|| self.groups.durable_at(self.removed))
    }

    /// The same check for an object in a segment that may not be durable as a whole.
    #[inline(never)]
    fn durable_in_head(&self, object: &Object<'_>) -> Option<LogPosition> {
        let durable = self.groups.settled();
        let at = object.located.at;
        let segment = self.memory.segment_of(at);
        if segment != object.birth() {
            return None; // A cleaner moved it, and only durable segments are cleaned.
        }
        let offset = self.memory.offset_in_segment(at) + object.entry_bytes() as u32;
        let position = LogPosition { segment, offset };
        (position > durable).then(|| self.groups.durable_at(position))
    }
}
