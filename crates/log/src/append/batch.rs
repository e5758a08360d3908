//! Many operations at once: the cache misses of a batch overlap instead of adding up.
//!
//! A lookup takes these steps: hash the key and prefetch the word of its bucket, or the bucket
//! itself if buckets have no words; look at the word and prefetch the bucket; look into the bucket
//! and prefetch the entry, or in a few cases the overflow bucket; look into that; and only then do
//! the work. By the time a cache line is needed it is there. A read whose word says that the key
//! does not exist prefetches nothing after the second step.
//!
//! **Reads** do all steps at the same time, each step for another key: the first step for one key,
//! the second for the key that came [`AHEAD`] before it, and so on.
//!
//! ```text
//!  key:    … 0    …    6    …    12    …   18    …   24
//!            work      behind    bucket    word      hash
//! ```
//!
//! So memory always has a line to fetch while values are copied, and never more lines than it can
//! fetch at a time. **Updates** change the structures that a lookup reads. So a batch of up to
//! [`BATCH`] updates goes through each step together, before the first of them is done.

use super::write::HashedKey;
use super::{Log, Written};
use crate::error::Error;
use crate::index::{Candidate, Lookup};
use crate::limits::BATCH;
use crate::memory::Reference;
use crate::memory::object::{Item, Located, Object};
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
    /// The write goes ahead only if this holds.
    pub condition: Condition,
}

/// The tablet and the hash of a key of a batch.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place {
    pub(crate) hash: KeyHash,
    pub(crate) tablet: Option<u32>,
}

/// The keys of expected updates, in their order; returned by [`Log::expect_updates`].
pub struct ExpectedUpdates<'k> {
    keys: [HashedKey<'k>; BATCH],
    next: usize,
    end: usize,
}

impl Default for ExpectedUpdates<'_> {
    /// None.
    fn default() -> Self {
        let none = HashedKey { key: &[], hash: KeyHash(0) };
        ExpectedUpdates { keys: [none; BATCH], next: 0, end: 0 }
    }
}

impl<'k> Iterator for ExpectedUpdates<'k> {
    type Item = HashedKey<'k>;

    #[inline]
    fn next(&mut self) -> Option<HashedKey<'k>> {
        let key = *self.keys[..self.end].get(self.next)?;
        self.next += 1;
        Some(key)
    }
}

const _: () = assert!(BATCH <= 64, "a set of the places in a batch is a word");

/// The number of keys between one step of a read and the next.
const AHEAD: usize = 6;

/// Places for keys that are read at the same time.
const RING: usize = (4 * AHEAD + 1).next_power_of_two();

/// A key that is being read.
#[derive(Clone, Copy)]
struct PendingRead<'log, 'key> {
    table: TableId,
    key: &'key [u8],
    /// The lookup in the index, if this log has the tablet of the key.
    lookup: Option<Lookup<'log>>,
    candidate: Candidate,
}

/// The reason for looking at an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Read keys and values.
    Read,
    /// Compare keys, and insert into the index even if it has no entry yet. An expired item counts
    /// as the last version that was deleted.
    Update,
    /// The same for a replay, for which an expired item is an item as any other.
    Replay,
}

impl Log {
    /// Hashes the keys of a batch of updates and prefetches the memory that their lookups will
    /// touch.
    #[inline]
    pub(crate) fn prefetch_places<'k>(
        &self,
        keys: impl Iterator<Item = (TableId, &'k [u8])>,
    ) -> [Place; BATCH] {
        let mut places = [Place::default(); BATCH];
        let mut free = places.iter_mut();
        self.prefetch_each_place(keys, |_, place| {
            if let Some(free) = free.next() {
                *free = place;
            }
        });
        places
    }

    /// Does so for the first [`BATCH`] keys; `note` is called with the place of each.
    #[inline]
    fn prefetch_each_place<'k>(
        &self,
        keys: impl Iterator<Item = (TableId, &'k [u8])>,
        mut note: impl FnMut(&'k [u8], Place),
    ) {
        let mut lookups = [None; BATCH];
        let mut count = 0;
        for (lookup, (table, key)) in lookups.iter_mut().zip(keys) {
            let hash = KeyHash::of(key);
            let tablet = self.tablets.find(table, hash);
            *lookup = tablet.map(|tablet| self.tablets.list[tablet].index.lookup(hash.0));
            if let Some(lookup) = lookup {
                lookup.prefetch_first();
            }
            note(key, Place { hash, tablet: tablet.map(|tablet| tablet as u32) });
            count += 1;
        }
        let used = &lookups[..count];
        for lookup in used.iter().flatten() {
            lookup.prefetch_bucket();
        }
        let mut behind = 0u64;
        for (at, lookup) in used.iter().enumerate() {
            let Some(lookup) = lookup else { continue };
            match lookup.candidate() {
                Candidate::At(reference) => self.prefetch_entry(reference, Purpose::Update),
                // If its bucket is full the new entry goes to the overflow bucket.
                Candidate::Absent => lookup.prefetch_behind(),
                Candidate::Behind => behind |= 1 << at,
            }
        }
        while behind != 0 {
            let lookup = used[behind.trailing_zeros() as usize];
            behind &= behind - 1;
            if let Some(reference) = lookup.and_then(Lookup::candidate_behind) {
                self.prefetch_entry(reference, Purpose::Update);
            }
        }
    }

    #[inline]
    pub(super) fn prefetch_entry(&self, reference: Reference, purpose: Purpose) {
        prefetch::read(self.memory.at(reference));
        if purpose != Purpose::Read {
            // Entries begin anywhere in a line: often the end of the key is in the next one.
            prefetch::read(self.memory.at(reference + 44));
            // The note of the entry's seglet: its segment, and the count of dead bytes there.
            self.memory.prefetch_note(reference);
        } else {
            // Header, a key of the usual length and a value of a hundred bytes.
            prefetch::read(self.memory.at(reference + 64));
            prefetch::read(self.memory.at(reference + 128));
        }
    }

    /// Prefetches the memory that updates of some keys will touch, for the first [`BATCH`] keys.
    /// Updates made next, one after the other, wait for none of it. Returns the keys, hashed.
    pub fn expect_updates<'k>(
        &self,
        keys: impl IntoIterator<Item = (TableId, &'k [u8])>,
    ) -> ExpectedUpdates<'k> {
        let mut expected = ExpectedUpdates::default();
        self.prefetch_each_place(keys.into_iter(), |key, Place { hash, .. }| {
            expected.keys[expected.end] = HashedKey { key, hash };
            expected.end += 1;
        });
        expected
    }

    /// The first step of a read.
    #[inline(always)]
    fn begin_lookup<'key>(&self, table: TableId, key: &'key [u8]) -> PendingRead<'_, 'key> {
        let hash = KeyHash::of(key);
        let tablet = self.tablets.find(table, hash);
        let lookup = tablet.map(|tablet| self.tablets.list[tablet].index.lookup(hash.0));
        if let Some(lookup) = lookup {
            lookup.prefetch_first();
        }
        PendingRead { table, key, lookup, candidate: Candidate::Absent }
    }

    /// The last step of a read. Nothing was written since the first step, and an entry that a
    /// cleaner has moved since is still at its old place until the turn ends. So the candidate is
    /// as good as the index, if it has the key.
    #[inline(always)]
    fn end_lookup(&self, read: &PendingRead<'_, '_>) -> Result<Option<Object<'_>>, Error> {
        let PendingRead { table, key, lookup, candidate } = *read;
        let Some(lookup) = lookup else { return Err(Error::UnknownTablet { table }) };
        let memory = &*self.memory;
        match candidate {
            Candidate::Absent => return Ok(None),
            Candidate::At(reference) => {
                if let Some(located) = Located::read_plain(memory, reference)
                    && located.has_key(memory, key)
                {
                    return Ok(Some(Object { memory, located }));
                }
            }
            Candidate::Behind => {}
        }
        Ok(self.read_in(lookup, key))
    }

    /// As [`Log::end_lookup`], for an object with its attributes.
    #[inline(always)]
    fn end_lookup_of_item(&self, read: &PendingRead<'_, '_>) -> Result<Option<Item<'_>>, Error> {
        let PendingRead { table, key, lookup, candidate } = *read;
        let Some(lookup) = lookup else { return Err(Error::UnknownTablet { table }) };
        match candidate {
            Candidate::Absent => return Ok(None),
            Candidate::At(reference) => {
                if let Some(item) = self.item_at(reference, key) {
                    return Ok(Some(item));
                }
            }
            Candidate::Behind => {}
        }
        Ok(self.item_in(lookup, key))
    }

    /// Reads many objects. `found` is called for every key in order, with `None` for a key that
    /// does not exist.
    ///
    /// # Errors
    /// Per key: [`Error::UnknownTablet`] when this log does not hold its tablet.
    pub fn read_batch<'k>(
        &self,
        keys: impl IntoIterator<Item = (TableId, &'k [u8])>,
        mut found: impl FnMut(usize, Result<Option<Object<'_>>, Error>),
    ) {
        self.look_up_batch(keys, |at, read| found(at, self.end_lookup(read)));
    }

    /// Reads many objects, and decodes the attributes of each on the way.
    ///
    /// # Errors
    /// As [`Log::read_batch`].
    pub fn read_items<'k>(
        &self,
        keys: impl IntoIterator<Item = (TableId, &'k [u8])>,
        mut found: impl FnMut(usize, Result<Option<Item<'_>>, Error>),
    ) {
        self.look_up_batch(keys, |at, read| found(at, self.end_lookup_of_item(read)));
    }

    #[inline(always)]
    fn look_up_batch<'log, 'k>(
        &'log self,
        keys: impl IntoIterator<Item = (TableId, &'k [u8])>,
        mut end: impl FnMut(usize, &PendingRead<'log, 'k>),
    ) {
        let mut keys = keys.into_iter().fuse();
        let none =
            PendingRead { table: TableId(0), key: &[], lookup: None, candidate: Candidate::Absent };
        let mut ring = [none; RING];
        let (mut count, mut step) = (0, 0);
        loop {
            if let Some((table, key)) = keys.next() {
                ring[step % RING] = self.begin_lookup(table, key);
                count = step + 1;
            }
            let began = |steps_ago: usize| step.checked_sub(steps_ago).filter(|at| *at < count);
            if let Some(at) = began(AHEAD) {
                let PendingRead { lookup, candidate, .. } = &mut ring[at % RING];
                if let Some(lookup) = lookup.filter(|it| it.may_have()) {
                    lookup.prefetch_bucket();
                    *candidate = Candidate::Behind;
                }
            }
            if let Some(at) = began(2 * AHEAD) {
                let PendingRead { lookup, candidate, .. } = &mut ring[at % RING];
                if let (Some(lookup), Candidate::Behind) = (lookup, *candidate) {
                    *candidate = lookup.candidate();
                    if let Candidate::At(reference) = *candidate {
                        self.prefetch_entry(reference, Purpose::Read);
                    }
                }
            }
            if let Some(at) = began(3 * AHEAD) {
                let PendingRead { lookup, candidate, .. } = &mut ring[at % RING];
                if let (Some(lookup), Candidate::Behind) = (lookup, *candidate)
                    && let Some(reference) = lookup.candidate_behind()
                {
                    *candidate = Candidate::At(reference);
                    self.prefetch_entry(reference, Purpose::Read);
                }
            }
            if let Some(at) = began(4 * AHEAD) {
                end(at, &ring[at % RING]);
            }
            if step + 1 >= count + 4 * AHEAD || count == 0 {
                return;
            }
            step += 1;
        }
    }

    /// Writes many objects, in order. `done` is called with the result of each; a failed write does
    /// not keep the others back.
    pub fn write_batch(
        &mut self,
        puts: &[Put<'_>],
        mut done: impl FnMut(usize, Result<Written, Error>),
    ) {
        for (chunk, batch) in puts.chunks(BATCH).enumerate() {
            let keys = batch.iter().map(|put| (put.table, put.key));
            let places = self.prefetch_places(keys);
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
            self.own_turn();
        }
    }
}
