//! Tombstones that a replay must remember until its end. They are in seglets and an index of their
//! own, which are freed when the replay ends.

use crate::append::{Keys, Log};
use crate::error::Error;
use crate::format::entry::ObjectFields;
use crate::format::inspect::Record;
use crate::index::Index;
use crate::index::IndexBlocks;
use crate::memory::Reference;
use crate::memory::object::Located;
use crate::memory::segment::{Appender, Room};
use std::sync::Arc;
use thunderhead_wire::{KeyHash, SegmentId, TableId, Version};

/// The newest tombstone of each key that has one, outside the log.
pub(super) struct RememberedTombstones {
    index: Index<IndexBlocks>,
    full: Vec<Appender>,
    current: Option<Appender>,
    segment_bytes: usize,
}

impl RememberedTombstones {
    pub(super) fn new(log: &Log) -> Result<RememberedTombstones, Error> {
        let index = log.new_index().ok_or_else(|| log.no_memory(0))?;
        let segment_bytes = log.options().segment_bytes;
        Ok(RememberedTombstones { index, full: Vec::new(), current: None, segment_bytes })
    }

    /// Bytes of its tombstones' seglets, which no cleaner frees.
    pub(super) fn taken_bytes(&self) -> u64 {
        let appenders = self.full.iter().chain(&self.current);
        appenders.map(|appender| appender.taken_bytes() as u64).sum()
    }

    /// The version up to which a key is known to be dead.
    #[inline]
    pub(super) fn version(&self, log: &Log, hash: KeyHash, table: TableId, key: &[u8]) -> Version {
        if self.index.len() == 0 {
            return Version::NONE;
        }
        self.find_version(log, hash, table, key)
    }

    #[inline(never)]
    fn find_version(&self, log: &Log, hash: KeyHash, table: TableId, key: &[u8]) -> Version {
        let mut version = Version::NONE;
        self.index.find(hash.0, |at| {
            let entry = Located::read(&log.memory, at)
                .filter(|entry| entry.fields.table == table && entry.has_key(&log.memory, key));
            version = entry.map_or(version, |entry| entry.fields.version);
            entry.is_some()
        });
        version
    }

    pub(super) fn remember(
        &mut self,
        log: &mut Log,
        hash: KeyHash,
        record: &Record<'_>,
    ) -> Result<(), Error> {
        if self.version(log, hash, record.table, record.key) >= record.version {
            return Ok(());
        }
        let Record { table, version, birth, key, .. } = *record;
        let mut header = ObjectFields { table, version, birth, prior: None }.tombstone(key.len());
        let bytes = header.entry_bytes;
        let at = self.place(log, bytes)?;
        let memory = Arc::clone(&log.memory);
        let Some(current) = &mut self.current else { return Err(Error::CleanerBehind) };
        current.write(at, &mut header, [key, &[]], log.shared.seal);
        let found = self.index.find(hash.0, |at| {
            Located::read(&memory, at)
                .is_some_and(|entry| entry.fields.table == table && entry.has_key(&memory, key))
        });
        match found {
            Some(found) => {
                self.index.replace(found, at);
            }
            None => {
                self.index.insert(hash.0, at, &Keys(&memory)).map_err(|_| Error::CleanerBehind)?
            }
        }
        current.advance(bytes);
        Ok(())
    }

    /// Remembers a tombstone in a segment that is adopted, at the place where it lies.
    pub(super) fn remember_at(
        &mut self,
        log: &Log,
        hash: KeyHash,
        record: &Record<'_>,
        at: Reference,
    ) -> Result<(), Error> {
        if self.version(log, hash, record.table, record.key) >= record.version {
            return Ok(());
        }
        let memory = &*log.memory;
        let found = self.index.find(hash.0, |at| {
            Located::read(memory, at)
                .is_some_and(|it| it.fields.table == record.table && it.has_key(memory, record.key))
        });
        match found {
            Some(found) => _ = self.index.replace(found, at),
            None => {
                self.index.insert(hash.0, at, &Keys(memory)).map_err(|_| Error::CleanerBehind)?
            }
        }
        Ok(())
    }

    fn place(&mut self, log: &Log, bytes: usize) -> Result<Reference, Error> {
        let keep = log.shared.reserves.for_writes();
        loop {
            let Some(current) = &mut self.current else {
                let new = Appender::open(&log.memory, SegmentId::NONE, self.segment_bytes, keep);
                self.current = Some(new.ok_or(Error::CleanerBehind)?);
                continue;
            };
            match current.reserve(bytes, keep) {
                Room::At(at) => return Ok(at),
                Room::SegmentFull => self.full.extend(self.current.take()),
                Room::NoMemory => return Err(Error::CleanerBehind),
            }
        }
    }
}

impl Drop for RememberedTombstones {
    fn drop(&mut self) {
        for appender in self.full.drain(..).chain(self.current.take()) {
            appender.abandon();
        }
    }
}
