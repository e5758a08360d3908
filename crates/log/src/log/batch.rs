//! Many operations at once: the cache misses of a batch overlap instead of adding up.
//!
//! Each batch of up to [`BATCH`] operations goes through these steps: hash every key and ask for
//! the word of its bucket; look at the words and ask for the buckets; look into the buckets and
//! ask for the entries, or for the overflow buckets of a few; and only then do the work. By the
//! time a line is needed it is there. A read whose word says that the key does not exist is done
//! after the second step.

use super::{Log, Written};
use crate::error::Error;
use crate::index::Candidate;
use crate::limits::BATCH;
use crate::memory::Reference;
use crate::object::{Located, Object};
use crate::prefetch;
use thunderhead_wire::{Condition, KeyHash, TableId};

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
    /// The key did not exist when the batch began.
    absent: bool,
    /// Where its entry was when the batch began, if it has it; 0 where that is not known.
    candidate: Reference,
}

const _: () = assert!(BATCH <= 64, "a set of the places in a batch is a word");

/// What the operations of a batch will do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Read keys and values.
    Read,
    /// Compare keys, and put something into the index even where there was nothing.
    Update,
}

impl Log {
    /// Hashes the keys of a batch and asks for the memory that looking them up will touch.
    #[inline]
    pub(crate) fn approach<'k>(
        &self,
        keys: impl Iterator<Item = (TableId, &'k [u8])>,
        purpose: Purpose,
    ) -> [Place; BATCH] {
        let mut places = [Place::default(); BATCH];
        let mut count = 0;
        for ((table, key), place) in keys.zip(&mut places) {
            let hash = KeyHash::of(key);
            let tablet = self.tablets.find(table, hash);
            if let Some(tablet) = tablet {
                self.tablets.list[tablet].index.prefetch_word(hash.0);
            }
            let tablet = tablet.map(|tablet| tablet as u32);
            *place = Place { hash, tablet, absent: false, candidate: 0 };
            count += 1;
        }
        let places_used = &mut places[..count];
        for place in places_used.iter_mut() {
            let Some(tablet) = place.tablet else { continue };
            let index = &self.tablets.list[tablet as usize].index;
            place.absent = !index.may_have(place.hash.0);
            if purpose == Purpose::Update || !place.absent {
                index.prefetch_bucket(place.hash.0);
            }
        }
        let mut behind = 0u64;
        for (at, place) in places_used.iter_mut().enumerate() {
            let Some(tablet) = place.tablet else { continue };
            if place.absent {
                if purpose == Purpose::Update {
                    self.tablets.list[tablet as usize].index.prefetch_behind(place.hash.0);
                }
                continue;
            }
            match self.tablets.list[tablet as usize].index.candidate(place.hash.0) {
                Candidate::At(reference) => {
                    place.candidate = reference;
                    self.prefetch_entry(reference, purpose);
                }
                Candidate::Absent => place.absent = true,
                Candidate::Behind => behind |= 1 << at,
            }
        }
        while behind != 0 {
            let place = &mut places[behind.trailing_zeros() as usize];
            behind &= behind - 1;
            let Some(tablet) = place.tablet else { continue };
            let index = &self.tablets.list[tablet as usize].index;
            if let Some(reference) = index.candidate_behind(place.hash.0) {
                place.candidate = reference;
                self.prefetch_entry(reference, purpose);
            }
        }
        places
    }

    #[inline]
    pub(super) fn prefetch_entry(&self, reference: Reference, purpose: Purpose) {
        prefetch::read(self.memory.at(reference));
        if purpose == Purpose::Update {
            // Entries begin anywhere in a line: often the end of the key is in the next one.
            prefetch::read(self.memory.at(reference + 44));
        } else {
            // Header, a key of the usual length and a value of a hundred bytes.
            prefetch::read(self.memory.at(reference + 64));
            prefetch::read(self.memory.at(reference + 128));
        }
    }

    /// Asks for the memory that updates of some keys will touch: of the first [`BATCH`] of them.
    /// Whoever does these updates next, one after the other, waits for none of it. Nothing else
    /// comes of it.
    pub fn expect_updates<'k>(&self, keys: impl IntoIterator<Item = (TableId, &'k [u8])>) {
        self.approach(keys.into_iter().take(BATCH), Purpose::Update);
    }

    /// Reads an object of a batch. Nothing was written since the batch began, and what a cleaner
    /// has moved since is still where it was until the turn ends: so the candidate is as good as
    /// the index, if it has the key.
    #[inline]
    fn read_at(&self, tablet: usize, place: Place, key: &[u8]) -> Option<Object<'_>> {
        let memory = &*self.memory;
        if place.candidate != 0
            && let Some(located) = Located::read(memory, place.candidate)
            && located.has_key(memory, key)
        {
            return Some(Object { memory, located });
        }
        self.read_in(self.tablets.list[tablet].index.approach(place.hash.0), key)
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
            let places = self.approach(batch[..count].iter().copied(), Purpose::Read);
            for (at, (table, key)) in batch[..count].iter().enumerate() {
                let result = match places[at].tablet {
                    Some(_) if places[at].absent => Ok(None),
                    Some(tablet) => Ok(self.read_at(tablet as usize, places[at], key)),
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
            let keys = batch.iter().map(|put| (put.table, put.key));
            let places = self.approach(keys, Purpose::Update);
            for (at, put) in batch.iter().enumerate() {
                let written = self.check_sizes(put.key, put.value).and_then(|()| {
                    let Place { hash, tablet, .. } = places[at];
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
