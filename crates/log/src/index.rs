//! The index of one tablet: from the hash of a key to the references of its entries.
//!
//! **Linear hashing.** The index grows by one bucket at a time, always the next one in order, and
//! shrinks the same way. So no insert pauses for a rehash, and no operator sizes a table in
//! advance. Buckets are cache lines and are found by the low bits of a hash. Beside each reference
//! there are 15 or 16 bits of its hash from bit 15 on, the tag. So once there are 2^16 buckets, a
//! tag alone says to which half of a split its entry goes. Up to tens of millions of entries and
//! more, enough bits of the tag remain to tell the entries of a bucket apart. A smaller table reads
//! the hashes of the entries; the next bucket to split is known, so they are prefetched a few
//! inserts ahead. (A tablet is a range of hashes, so the top bits say little.)
//!
//! **Two forms of buckets.** In a memory of up to 4 GiB, which is the usual size for a shard per
//! core, a reference takes 32 bits, and a bucket has [ten slots](narrow): some 9.6 bytes an entry.
//! In a larger memory a reference takes 48 bits, and a bucket has [eight slots](wide): 14.2 bytes.
//! Everything else is written once, for both ([`form`]).
//!
//! **Threads.** The reactor alone reads, inserts, removes, splits and merges; a read takes no
//! lock and no atomic read-modify-write. Cleaners do one thing, [`IndexView::relocate`]: swap one
//! reference for another, if it is still there.
//!
//! **Why a cleaner never misses a slot that is being moved.** The reactor moves a slot by storing
//! it at its new place first and then clearing the old place by compare-and-swap. If a cleaner was
//! faster, the swap fails, and the newer value is carried over. Meanwhile `epoch` is odd. A cleaner
//! that finds nothing looks again if the epoch was odd or has changed. A reference is in the index
//! once, or twice with the same value while it is moved. So a slot with exactly the right value is
//! the right slot, wherever it is found. That holds even in a chain that changes under the cleaner:
//! bucket memory stays bucket memory of the same index until all readers that were inside have left
//! ([`Readers`]).
//!
//! **Memory** comes in blocks from a [`BlockSource`]; the first blocks are small, so that a small
//! table is small. Blocks that merges free go back.

mod blocks;
mod chain;
mod cursor;
mod form;
mod narrow;
mod seglet_blocks;
mod table;
mod tags;
mod view;
mod wide;

#[cfg(test)]
pub(crate) use blocks::HeapBlocks;
pub(crate) use blocks::{BlockSource, LINE_BYTES, Line};
pub use cursor::Cursor;
#[cfg(test)]
pub(crate) use form::Words;
pub(crate) use seglet_blocks::IndexBlocks;

use crate::memory::quiescence::{Guard, Readers};
use narrow::Narrow;
use std::ptr::NonNull;
use std::sync::Arc;
use table::Table;
use view::View;
use wide::Wide;

/// There is no memory for another overflow bucket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoMemory;

/// The facts that the index needs of the entries to which it refers.
pub(crate) trait Entries {
    /// The full hash of the key of the entry at a reference.
    fn hash(&self, reference: u64) -> u64;
    /// Prefetches the memory that [`Entries::hash`] will read.
    fn prefetch(&self, reference: u64);
}

/// A slot that a search has found. Valid until the index is changed otherwise, and only for the
/// index in which it was found.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    bucket: NonNull<()>,
    at: usize,
    tag: u64,
    /// The primary bucket of its chain.
    number: usize,
}

impl Found {
    #[inline(always)]
    fn new<B: Line>(bucket: &B, at: usize, tag: u64, number: usize) -> Found {
        Found { bucket: NonNull::from(bucket).cast(), at, tag, number }
    }
}

/// The result of looking for a hash in its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// The hash is not in the index.
    Absent,
    /// If the hash is in the index, this may be its reference.
    At(u64),
    /// The hash may be in an overflow bucket.
    Behind,
}

/// See the module's documentation.
pub(crate) enum Index<S: BlockSource> {
    Narrow(Table<S, Narrow>),
    Wide(Table<S, Wide>),
}

/// The part of an index that cleaners hold.
pub(crate) enum IndexView {
    Narrow(Arc<View<Narrow>>),
    Wide(Arc<View<Wide>>),
}

/// A lookup of a hash: its bucket and its tag. Valid until the index changes.
#[derive(Clone, Copy)]
pub(crate) enum Lookup<'index> {
    Narrow(table::Lookup<'index, Narrow>),
    Wide(table::Lookup<'index, Wide>),
}

/// Does the same to either form.
macro_rules! either {
    ($this:expr, $it:ident => $what:expr) => {
        match $this {
            Self::Narrow($it) => $what,
            Self::Wide($it) => $what,
        }
    };
}

impl Lookup<'_> {
    /// First step of a lookup in a batch: prefetches the line that is read first.
    #[inline(always)]
    pub(crate) fn prefetch_first(self) {
        either!(self, it => it.prefetch_first());
    }

    /// Second step: whether the hash may be here, judged without its bucket.
    #[inline(always)]
    pub(crate) fn may_have(self) -> bool {
        either!(self, it => it.may_have())
    }

    /// Also second step: prefetches the bucket.
    #[inline(always)]
    pub(crate) fn prefetch_bucket(self) {
        either!(self, it => it.prefetch_bucket());
    }

    /// Third step before an insert: prefetches the bucket behind a full one.
    #[inline]
    pub(crate) fn prefetch_behind(self) {
        either!(self, it => it.prefetch_behind());
    }

    /// Third step: looks into the bucket for a reference that may belong to a hash.
    #[inline]
    pub(crate) fn candidate(self) -> Candidate {
        either!(self, it => it.candidate())
    }

    /// Fourth step, for the few hashes that are not in their bucket: looks into the one behind it.
    #[inline]
    pub(crate) fn candidate_behind(self) -> Option<u64> {
        either!(self, it => it.candidate_behind())
    }

    /// Finds the slot whose reference `matches`.
    #[inline]
    pub(crate) fn find(self, matches: impl FnMut(u64) -> bool) -> Option<Found> {
        either!(self, it => it.find(matches))
    }
}

impl<S: BlockSource> Index<S> {
    /// An empty index, whose full blocks have `block_buckets` buckets, a power of two. If `short`,
    /// every reference is below [`REACH_BYTES`](crate::memory::REACH_BYTES), and no two of its
    /// blocks are further apart.
    pub(crate) fn new(
        source: S,
        readers: Arc<Readers>,
        block_buckets: usize,
        short: bool,
    ) -> Option<Index<S>> {
        if short {
            Table::new(source, readers, block_buckets).map(Index::Narrow)
        } else {
            Table::new(source, readers, block_buckets).map(Index::Wide)
        }
    }

    /// The part of the index that cleaners hold.
    pub(crate) fn view(&self) -> IndexView {
        match self {
            Index::Narrow(table) => IndexView::Narrow(table.view()),
            Index::Wide(table) => IndexView::Wide(table.view()),
        }
    }

    /// Entries in the index.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        either!(self, it => it.len())
    }

    /// Begins a lookup of a hash. Prefetches nothing and reads no bucket.
    #[inline(always)]
    pub(crate) fn lookup(&self, hash: u64) -> Lookup<'_> {
        match self {
            Index::Narrow(table) => Lookup::Narrow(table.lookup(hash)),
            Index::Wide(table) => Lookup::Wide(table.lookup(hash)),
        }
    }

    /// For a single lookup: prefetches at once all lines that it reads, unless they are cached.
    #[inline(always)]
    pub(crate) fn lookup_prefetched(&self, hash: u64) -> Lookup<'_> {
        let lookup = self.lookup(hash);
        lookup.prefetch_bucket();
        // For the narrow form the first line is the bucket.
        if let Lookup::Wide(wide) = lookup {
            wide.prefetch_first();
        }
        lookup
    }

    /// Finds the slot of a hash whose reference `matches`.
    #[inline]
    pub(crate) fn find(&self, hash: u64, matches: impl FnMut(u64) -> bool) -> Option<Found> {
        self.lookup_prefetched(hash).find(matches)
    }

    /// The reference in a slot now: a cleaner may have changed it since it was found.
    #[inline]
    pub(crate) fn reference(&self, found: Found) -> u64 {
        either!(self, it => it.reference(found))
    }

    /// Replaces the reference in a slot if it is `expected`; else returns the present one.
    #[inline]
    pub(crate) fn replace_exact(
        &mut self,
        found: Found,
        expected: u64,
        new: u64,
    ) -> Result<(), u64> {
        either!(self, it => it.replace_exact(found, expected, new))
    }

    /// Replaces the reference in a slot and returns the old one.
    pub(crate) fn replace(&mut self, found: Found, new: u64) -> u64 {
        either!(self, it => it.replace(found, new))
    }

    /// Empties a slot and returns its reference.
    pub(crate) fn remove(&mut self, found: Found) -> u64 {
        either!(self, it => it.remove(found))
    }

    /// Gives an empty index the buckets that so many entries will need: a split that moves nothing
    /// costs next to nothing, and no split is needed later. Takes one block a call; true while
    /// there is more to take. Without memory, or if the index has entries, it grows as usual.
    pub(crate) fn make_room(&mut self, entries: usize) -> bool {
        either!(self, it => it.make_room(entries))
    }

    /// Ends the room: from now on the index shrinks as usual, and at once by a part of the surplus.
    pub(crate) fn end_room(&mut self) {
        either!(self, it => it.end_room());
    }

    /// Adds a reference under a hash. Splits at most one bucket.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        reference: u64,
        entries: &impl Entries,
    ) -> Result<(), NoMemory> {
        either!(self, it => it.insert(hash, reference, entries))
    }

    /// Promises memory to a later insert. The insert finds it if the promise is redeemed right
    /// before ([`Index::redeem`]).
    #[inline]
    pub(crate) fn promise(&mut self) -> bool {
        either!(self, it => it.promise())
    }

    /// The number of inserts to which memory is promised.
    pub(crate) fn promised(&self) -> usize {
        either!(self, it => it.promised())
    }

    /// Redeems a promise: an insert comes next, or the memory is not needed.
    #[inline]
    pub(crate) fn redeem(&mut self) {
        either!(self, it => it.redeem());
    }

    /// Makes sure that the next insert finds memory, if nothing is removed before.
    #[inline]
    pub(crate) fn prepare_insert(&mut self) -> bool {
        either!(self, it => it.prepare_insert())
    }

    /// Makes sure that so many inserts find memory, if nothing is removed between them.
    pub(crate) fn prepare_inserts(&mut self, count: usize) -> bool {
        either!(self, it => it.prepare_inserts(count))
    }

    /// Visits the rest of the bucket at the cursor; returns where to go on.
    pub(crate) fn scan(
        &self,
        cursor: Cursor,
        entries: &impl Entries,
        visit: impl FnMut(u64),
    ) -> Option<Cursor> {
        either!(self, it => it.scan(cursor, entries, visit))
    }
}

impl IndexView {
    /// Swaps the reference of a hash, if the index still has the old one. The guard must be of the
    /// log's readers.
    pub(crate) fn relocate(&self, guard: &Guard<'_>, hash: u64, old: u64, new: u64) -> bool {
        either!(self, it => it.relocate(guard, hash, old, new))
    }

    /// Prefetches the bucket of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, guard: &Guard<'_>, hash: u64) {
        either!(self, it => it.prefetch(guard, hash));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
