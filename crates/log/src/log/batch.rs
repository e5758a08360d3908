//! Many operations at once: the cache misses of a batch overlap instead of adding up.
//!
//! Each batch of up to [`BATCH`] operations goes through three steps: hash every key and ask for
//! its bucket, look into the buckets and ask for the entries, and only then do the work. By the
//! time a line is needed it is there.

use super::{Condition, Log, Written};
use crate::error::Error;
use crate::limits::BATCH;
use crate::object::Object;
use crate::prefetch;
use thunderhead_wire::{KeyHash, TableId};

/// One write of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// When it goes ahead.
    pub condition: Condition,
}

/// Where a key of a batch belongs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place {
    pub(crate) hash: KeyHash,
    pub(crate) tablet: Option<u32>,
}

impl Log {
    /// Hashes the keys of a batch and asks for the memory that looking them up will touch.
    #[inline]
    pub(crate) fn approach<'k>(
        &self,
        keys: impl Iterator<Item = (TableId, &'k [u8])>,
        lines: u64,
    ) -> [Place; BATCH] {
        let mut places = [Place::default(); BATCH];
        let mut count = 0;
        for (table, key) in keys.take(BATCH) {
            let hash = KeyHash::of(key);
            let tablet = self.tablets.find(table, hash);
            if let Some(tablet) = tablet {
                self.tablets.list[tablet].index.prefetch(hash.0);
            }
            places[count] = Place { hash, tablet: tablet.map(|tablet| tablet as u32) };
            count += 1;
        }
        for place in &places[..count] {
            let Some(tablet) = place.tablet else { continue };
            let index = &self.tablets.list[tablet as usize].index;
            if let Some(at) = index.candidate(place.hash.0) {
                for line in 0..lines {
                    prefetch::read(self.memory.at(at + 64 * line));
                }
            }
        }
        places
    }

    /// Reads many objects. `found` is called for every key in order, with `None` for a key that
    /// does not exist.
    ///
    /// # Errors
    /// Per key: [`Error::UnknownTablet`] when its tablet does not live here.
    pub fn read_batch<'k>(
        &self,
        keys: impl IntoIterator<Item = (TableId, &'k [u8])>,
        mut found: impl FnMut(usize, Result<Option<Object<'_>>, Error>),
    ) {
        let mut keys = keys.into_iter();
        let mut base = 0;
        loop {
            let mut batch = [(TableId(0), [].as_slice()); BATCH];
            let mut count = 0;
            while count < BATCH {
                let Some(key) = keys.next() else { break };
                batch[count] = key;
                count += 1;
            }
            let places = self.approach(batch[..count].iter().copied(), 2);
            for (at, (table, key)) in batch[..count].iter().enumerate() {
                let result = match places[at].tablet {
                    Some(tablet) => Ok(self.read_in(tablet as usize, places[at].hash, key)),
                    None => Err(Error::UnknownTablet { table: *table }),
                };
                found(base + at, result);
            }
            if count < BATCH {
                return;
            }
            base += BATCH;
        }
    }

    /// Writes many objects, in order. `done` is called for each with what became of it; one that
    /// fails does not keep the others back.
    pub fn write_batch(
        &mut self,
        puts: &[Put<'_>],
        mut done: impl FnMut(usize, Result<Written, Error>),
    ) {
        for (chunk, batch) in puts.chunks(BATCH).enumerate() {
            let places = self.approach(batch.iter().map(|put| (put.table, put.key)), 1);
            for (at, put) in batch.iter().enumerate() {
                let written = self.check_sizes(put.key, put.value).and_then(|()| {
                    let Place { hash, tablet } = places[at];
                    let tablet = tablet.ok_or(Error::UnknownTablet { table: put.table })?;
                    self.write_in(
                        tablet as usize,
                        put.table,
                        hash,
                        put.key,
                        put.value,
                        put.condition,
                    )
                });
                done(chunk * BATCH + at, written);
            }
            self.turn();
        }
    }
}
