//! The index of one tablet: from the hash of a key to the places where its entries are.
//!
//! ```text
//!  bucket, one cache line:  | slot | slot | slot | slot | slot | slot | slot | slot or link |
//!  slot:   | tag 16 | reference 48 |     0 is empty; tag 0xffff marks a link to more slots
//! ```
//!
//! **Linear hashing.** The index grows by one bucket at a time, always the next one in order, and
//! shrinks the same way, so no insert pauses for a rehash and nobody sizes a table in advance.
//! Buckets are found by the low bits of a hash; tags are bits 15 to 30. So once there are 2^16
//! buckets, a tag says by itself which half of a split its entry goes to, and as many of its bits
//! as tell entries of a bucket apart are left up to a hundred million entries and more. A smaller
//! table reads the hashes of the entries; it is known which bucket is next, so they are asked for
//! a few inserts ahead. (A tablet is a range of hashes, so the top bits say little.)
//!
//! **Tags.** Beside the buckets there is one word for each with a byte for each of its slots
//! ([`tags`]). A lookup asks for both and looks at the word first, which mostly is in a cache.
//!
//! **Threads.** The reactor alone reads, inserts, removes, splits and merges; a read takes no
//! lock and no atomic read-modify-write. Cleaners do one thing, [`IndexView::relocate`]: swap one
//! reference for another, if it is still there.
//!
//! **Why a cleaner never misses a slot that is being moved.** The reactor moves a slot by storing
//! it at its new place first and then clearing the old place by compare-and-swap; if a cleaner was
//! faster, the swap fails, and the newer value is carried over. Meanwhile `epoch` is odd. A cleaner
//! that finds nothing looks again if the epoch was odd or has changed. A reference is in the index
//! once, or twice with the same value while it is moved, so a slot that holds exactly the value
//! looked for is the right one wherever it is found: even in a chain that was changed under the
//! cleaner's feet, for bucket memory stays bucket memory of the same index until all readers that
//! were inside have left ([`Readers`]).
//!
//! **Memory** comes in blocks from a [`BlockSource`]; the first ones are small, so that a small
//! table is small. What merges set free goes back.

mod blocks;
mod chain;
mod cursor;
mod tags;
mod view;

pub(crate) use blocks::BlockSource;
#[cfg(test)]
pub(crate) use blocks::HeapBlocks;
pub use cursor::Cursor;
pub(crate) use view::IndexView;

use crate::quiescence::Readers;
use crate::sync::{AtomicU64, Ordering};
use blocks::{Blocks, Overflow};
use chain::Chain;
use std::ptr::NonNull;
use std::sync::Arc;

/// Slots of a bucket.
pub(crate) const SLOTS: usize = 8;
const LINK_TAG: u64 = 0xffff;
const TAG_SHIFT: u32 = 48;
const REFERENCE_BITS: u64 = (1 << TAG_SHIFT) - 1;

/// The lowest bit of a hash that is in its tag.
const TAG_BITS_FROM: u32 = 15;
/// Bits of a hash that can be read off a tag: not the lowest, see [`tag_of`].
const TAG_TELLS: std::ops::Range<u32> = TAG_BITS_FROM + 1..TAG_BITS_FROM + 16;

/// A bucket splits when the index holds more than this many entries per hundred slots of primary
/// buckets: about 14.2 bytes an entry, tags included, and 1.1 buckets per lookup that finds its
/// key.
const LOAD_HIGH: usize = 75;
/// And merges below this: far enough from the other that the two never alternate.
const LOAD_LOW: usize = 60;

/// Buckets that are merged at once where room was made for too many entries.
const ROOM_ENDS_AT_ONCE: usize = 128;

/// One cache line of slots.
#[repr(C, align(64))]
pub(crate) struct Bucket {
    slots: [AtomicU64; SLOTS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    #[cfg(test)]
    pub(crate) fn new() -> Bucket {
        Bucket { slots: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

/// There is no memory for another overflow bucket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoMemory;

/// What the index must be told of the entries that it refers to.
pub(crate) trait Entries {
    /// The full hash of the key of the entry at a reference.
    fn hash(&self, reference: u64) -> u64;
    /// Asks for the memory that [`Entries::hash`] will read.
    fn prefetch(&self, reference: u64);
}

/// A slot that holds what was looked for. Good until the index is changed otherwise.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    slot: NonNull<AtomicU64>,
    tag: u64,
    bucket: usize,
}

impl Found {
    fn slot(&self) -> &AtomicU64 {
        // SAFETY: bucket memory lives as long as the index, and the only holders of a `Found`
        // are callers on the reactor's thread that have not changed the index since.
        unsafe { self.slot.as_ref() }
    }
}

/// What is known of a hash once its bucket has been looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// It is not in the index.
    Absent,
    /// If it is there, this may be its reference.
    At(u64),
    /// It may be in an overflow bucket.
    Behind,
}

/// See the module's documentation.
pub(crate) struct Index<S: BlockSource> {
    view: Arc<IndexView>,
    blocks: Blocks<S>,
    /// The buckets' words, eight in a cache line.
    words: Blocks<S>,
    overflow: Overflow,
    /// Primary buckets.
    buckets: usize,
    /// One less than the power of two that is at least `buckets`.
    mask: u64,
    entries: usize,
    inserts_since_split: u32,
    /// It has room for what is about to come, and does not shrink meanwhile.
    has_room: bool,
}

#[inline(always)]
fn tag_of(hash: u64) -> u64 {
    let tag = (hash >> TAG_BITS_FROM) & 0xffff;
    // 0 would look like an empty slot and 0xffff like a link: the lowest bit gives way.
    (tag + u64::from(tag == 0) - u64::from(tag == LINK_TAG)) << TAG_SHIFT
}

#[inline(always)]
fn reference_in(slot: u64) -> u64 {
    slot & REFERENCE_BITS
}

#[inline(always)]
fn is_link(slot: u64) -> bool {
    slot >> TAG_SHIFT == LINK_TAG
}

/// Which slots of a bucket have a tag, one bit each.
#[inline(always)]
fn same_tags(bucket: &Bucket, tag: u64) -> u32 {
    let mut hits = 0;
    for (at, slot) in bucket.slots.iter().enumerate() {
        let same = slot.load(Ordering::Relaxed) ^ tag <= REFERENCE_BITS;
        hits |= u32::from(same) << at;
    }
    hits
}

/// The first reference in a bucket whose slot has a tag.
#[inline(always)]
fn first_with(bucket: &Bucket, tag: u64) -> Option<u64> {
    let slot = bucket.slots.get(same_tags(bucket, tag).trailing_zeros() as usize)?;
    // Acquire: a cleaner has written the entry before it stored the reference.
    Some(reference_in(slot.load(Ordering::Acquire)))
}

/// Where a hash belongs, while the index stays as it is.
#[derive(Clone, Copy)]
pub(crate) struct Approach<'index> {
    bucket: &'index Bucket,
    word: &'index AtomicU64,
    tag: u64,
    number: usize,
}

impl Approach<'_> {
    /// First step of a lookup in a batch: asks for the word.
    #[inline(always)]
    pub(crate) fn prefetch_word(self) {
        crate::prefetch::read(std::ptr::from_ref(self.word).cast());
    }

    /// Second step: whether the hash may be here, by the word of its bucket.
    #[inline(always)]
    pub(crate) fn may_have(self) -> bool {
        let (tag, word) = (self.tag, self.word.load(Ordering::Relaxed));
        tags::may_hold(word, tag) || tags::may_lead_to(word, tag)
    }

    /// Also second step: asks for the bucket.
    #[inline(always)]
    pub(crate) fn prefetch_bucket(self) {
        crate::prefetch::read(std::ptr::from_ref(self.bucket).cast());
    }

    /// Third step for what will be inserted: asks for the bucket behind a full one.
    #[inline]
    pub(crate) fn prefetch_behind(self) {
        if let Some(next) = chain::linked(self.bucket) {
            crate::prefetch::read(std::ptr::from_ref(next).cast());
        }
    }

    /// Third step: looks into the bucket for a reference that may be the one for a hash.
    #[inline]
    pub(crate) fn candidate(self) -> Candidate {
        let Approach { bucket, tag, .. } = self;
        let word = self.word.load(Ordering::Relaxed);
        if let Some((_, reference)) = in_bucket(bucket, word, tag).next() {
            return Candidate::At(reference);
        }
        if !tags::may_lead_to(word, tag) {
            return Candidate::Absent;
        }
        let Some(next) = chain::linked(bucket) else { return Candidate::Absent };
        crate::prefetch::read(std::ptr::from_ref(next).cast());
        Candidate::Behind
    }

    /// Fourth step, for the few that are not in their bucket: looks into the one behind it.
    #[inline]
    pub(crate) fn candidate_behind(self) -> Option<u64> {
        first_with(chain::linked(self.bucket)?, self.tag)
    }

    /// Finds the slot whose reference `matches`.
    #[inline]
    pub(crate) fn find(self, mut matches: impl FnMut(u64) -> bool) -> Option<Found> {
        let Approach { bucket, tag, number, .. } = self;
        let word = self.word.load(Ordering::Relaxed);
        for (slot, reference) in in_bucket(bucket, word, tag) {
            if matches(reference) {
                return Some(Found { slot: NonNull::from(slot), tag, bucket: number });
            }
        }
        if !tags::may_lead_to(word, tag) {
            return None;
        }
        let slot = find_behind(bucket, tag, &mut matches)?;
        Some(Found { slot: NonNull::from(slot), tag, bucket: number })
    }
}

/// The slots of a primary bucket that have a tag, and the references in them. Its word says which ones
/// to look at, before the bucket is there.
#[inline(always)]
fn in_bucket(bucket: &Bucket, word: u64, tag: u64) -> impl Iterator<Item = (&AtomicU64, u64)> {
    let mut slots = tags::slots_with(word, tag);
    debug_assert!(
        (0..SLOTS)
            .all(|at| same_tags(bucket, tag) >> at & 1 == 0 || slots >> (8 * at + 7) & 1 == 1)
    );
    std::iter::from_fn(move || {
        while slots != 0 {
            let slot = &bucket.slots[slots.trailing_zeros() as usize / 8];
            slots &= slots - 1;
            // Acquire: a cleaner has written the entry before it stored the reference.
            let held = slot.load(Ordering::Acquire);
            if held ^ tag <= REFERENCE_BITS {
                return Some((slot, reference_in(held)));
            }
        }
        None
    })
}

/// The slot in the buckets behind one whose reference `matches`. A tenth of what is found is there.
#[inline(never)]
fn find_behind<'a>(
    first: &'a Bucket,
    tag: u64,
    matches: &mut impl FnMut(u64) -> bool,
) -> Option<&'a AtomicU64> {
    let mut bucket = first;
    loop {
        bucket = chain::linked(bucket)?;
        let mut hits = same_tags(bucket, tag);
        while hits != 0 {
            let slot = &bucket.slots[hits.trailing_zeros() as usize];
            // Acquire: a cleaner has written the entry before it stored the reference.
            if matches(reference_in(slot.load(Ordering::Acquire))) {
                return Some(slot);
            }
            hits &= hits - 1;
        }
    }
}

impl<S: BlockSource> Index<S> {
    /// An empty index whose full blocks have `block_buckets` buckets, a power of two.
    pub(crate) fn new(source: S, readers: Arc<Readers>, block_buckets: usize) -> Option<Index<S>> {
        let mut blocks = Blocks::new(source.clone(), Arc::clone(&readers), block_buckets);
        let mut words = Blocks::new(source, readers, block_buckets);
        let grown = blocks.grow_to(1) && words.grow_to(1);
        if !grown {
            blocks.give_all_back();
            return None;
        }
        let view = Arc::new(IndexView::new(&blocks));
        Some(Index {
            view,
            overflow: Overflow::new(blocks.first_buckets()),
            blocks,
            words,
            buckets: 1,
            mask: 0,
            entries: 0,
            inserts_since_split: 0,
            has_room: false,
        })
    }

    /// What cleaners hold of the index.
    pub(crate) fn view(&self) -> Arc<IndexView> {
        Arc::clone(&self.view)
    }

    /// Entries in the index.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    #[inline(always)]
    fn bucket_number(&self, hash: u64) -> usize {
        let number = (hash & self.mask) as usize;
        if number < self.buckets { number } else { (hash & (self.mask >> 1)) as usize }
    }

    /// The word of a bucket.
    #[inline(always)]
    fn word(&self, number: usize) -> &AtomicU64 {
        &self.words.bucket(number / SLOTS).slots[number % SLOTS]
    }

    #[inline(always)]
    fn load_word(&self, number: usize) -> u64 {
        self.word(number).load(Ordering::Relaxed)
    }

    /// Brings the word of a bucket in line with what the bucket holds.
    fn refresh_word(&self, number: usize) {
        self.word(number).store(tags::of_chain(self.blocks.bucket(number)), Ordering::Relaxed);
    }

    /// Where a hash belongs. Asks for nothing and looks at nothing.
    #[inline(always)]
    pub(crate) fn place(&self, hash: u64) -> Approach<'_> {
        let (tag, number) = (tag_of(hash), self.bucket_number(hash));
        Approach { bucket: self.blocks.bucket(number), word: self.word(number), tag, number }
    }

    /// For one lookup on its own: asks for the lines of word and bucket at once, where neither is at
    /// hand. The word mostly leads to the bucket.
    #[inline(always)]
    pub(crate) fn approach(&self, hash: u64) -> Approach<'_> {
        let place = self.place(hash);
        place.prefetch_bucket();
        place.prefetch_word();
        place
    }

    /// Finds the slot of a hash whose reference `matches`.
    #[inline]
    pub(crate) fn find(&self, hash: u64, matches: impl FnMut(u64) -> bool) -> Option<Found> {
        self.approach(hash).find(matches)
    }

    /// The reference in a slot now: a cleaner may have changed it since it was found.
    #[inline]
    pub(crate) fn reference(&self, found: Found) -> u64 {
        reference_in(found.slot().load(Ordering::Acquire))
    }

    /// Replaces the reference in a slot if it is `expected`; else says what it is.
    #[inline]
    pub(crate) fn replace_exact(
        &mut self,
        found: Found,
        expected: u64,
        new: u64,
    ) -> Result<(), u64> {
        let Found { tag, .. } = found;
        found
            .slot()
            .compare_exchange(tag | expected, tag | new, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(reference_in)
    }

    /// Replaces the reference in a slot and returns the one that it held.
    pub(crate) fn replace(&mut self, found: Found, new: u64) -> u64 {
        reference_in(found.slot().swap(found.tag | new, Ordering::AcqRel))
    }

    /// Empties a slot and returns the reference that it held.
    pub(crate) fn remove(&mut self, found: Found) -> u64 {
        let reference = reference_in(found.slot().swap(0, Ordering::AcqRel));
        let slots = self.blocks.bucket(found.bucket).slots.iter();
        match slots.enumerate().find(|(_, slot)| std::ptr::eq(*slot, found.slot())) {
            Some((at, _)) => {
                let word = tags::without_slot(self.load_word(found.bucket), at);
                self.word(found.bucket).store(word, Ordering::Relaxed);
            }
            None => self.refresh_word(found.bucket),
        }
        self.entries -= 1;
        if self.buckets > 1 && !self.has_room && self.is_sparse() {
            self.merge();
        }
        reference
    }

    fn is_sparse(&self) -> bool {
        self.entries * 100 < self.buckets * SLOTS * LOAD_LOW
    }

    /// Gives an empty index the buckets that so many entries will need: a split that moves nothing
    /// costs next to nothing, and none is needed later. A block is taken at a time; true while there
    /// is more to take. Without memory, or where something is in it, it grows as ever.
    pub(crate) fn make_room(&mut self, entries: usize) -> bool {
        let wanted = entries.saturating_mul(100).div_ceil(SLOTS * LOAD_HIGH);
        if self.entries > 0 || self.buckets >= wanted {
            return false;
        }
        self.has_room = true;
        let buckets = wanted.min(self.blocks.with_one_more());
        if !self.words.grow_to(buckets / SLOTS + 1) || !self.blocks.grow_to(buckets) {
            return false;
        }
        let moving = self.view.begin();
        self.view.use_directory(&mut self.blocks);
        self.buckets = buckets;
        self.mask = (buckets as u64).next_power_of_two() - 1;
        self.view.set_buckets(buckets);
        self.view.end(moving);
        buckets < wanted
    }

    /// What room was made for is there: it shrinks as ever from now on, and at once by some of what
    /// turned out to be too much.
    pub(crate) fn end_room(&mut self) {
        self.has_room = false;
        for _ in 0..ROOM_ENDS_AT_ONCE {
            if self.buckets > 1 && self.is_sparse() {
                self.merge();
            }
        }
    }

    /// Adds a reference under a hash. At most one bucket is split on the way.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        reference: u64,
        entries: &impl Entries,
    ) -> Result<(), NoMemory> {
        debug_assert!(reference != 0 && reference <= REFERENCE_BITS);
        let (tag, number) = (tag_of(hash), self.bucket_number(hash));
        let slot = tag | reference;
        let word = self.load_word(number);
        let mut bucket = self.blocks.bucket(number);
        if let Some((at, empty)) = chain::empty_slot(bucket) {
            empty.store(slot, Ordering::Release);
            self.word(number).store(tags::with_slot(word, at, tag), Ordering::Relaxed);
        } else {
            loop {
                match chain::linked(bucket) {
                    Some(next) => bucket = next,
                    None => {
                        let last = NonNull::from(bucket);
                        self.add_overflow(last, slot)?;
                        self.refresh_word(number);
                        break;
                    }
                }
                if let Some((_, empty)) = chain::empty_slot(bucket) {
                    empty.store(slot, Ordering::Release);
                    self.word(number).store(tags::with_overflow(word, tag), Ordering::Relaxed);
                    break;
                }
            }
        }
        self.entries += 1;
        self.inserts_since_split += 1;
        if self.entries * 100 > self.buckets * SLOTS * LOAD_HIGH {
            self.split(entries);
        } else if self.inserts_since_split & 1 == 0 {
            self.prepare_split(entries);
        }
        Ok(())
    }

    /// Sees to it that an insert will find memory, however late, if the promise is redeemed right before
    /// it ([`Index::redeem`]).
    #[inline]
    pub(crate) fn promise(&mut self) -> bool {
        self.overflow.promise(&mut self.blocks)
    }

    /// Inserts to which memory is promised.
    pub(crate) fn promised(&self) -> usize {
        self.overflow.promised()
    }

    /// Redeems a promise: by an insert, which comes next, or by doing without it.
    #[inline]
    pub(crate) fn redeem(&mut self) {
        self.overflow.redeem();
    }

    /// Sees to it that the next insert finds memory, if nothing is removed before.
    #[inline]
    pub(crate) fn prepare_insert(&mut self) -> bool {
        self.overflow.ensure(1, &mut self.blocks)
    }

    /// Puts a slot into a new overflow bucket behind a full one.
    #[cold]
    fn add_overflow(&mut self, full: NonNull<Bucket>, slot: u64) -> Result<(), NoMemory> {
        let new = self.overflow.take(&mut self.blocks).ok_or(NoMemory)?;
        // The epoch is odd while the eighth slot moves, as in every move.
        let moving = self.view.begin();
        chain::append(full, new).store(slot, Ordering::Release);
        self.view.end(moving);
        Ok(())
    }

    /// The bucket that will split next.
    fn next_to_split(&self) -> usize {
        let highest = 1usize << self.buckets.ilog2();
        self.buckets - highest
    }

    /// Asks for what the next split will read: its bucket first, the entries a little later.
    #[inline]
    fn prepare_split(&self, entries: &impl Entries) {
        let bucket = self.blocks.bucket(self.next_to_split());
        let told_by_tags = TAG_TELLS.contains(&self.buckets.ilog2());
        match self.inserts_since_split {
            2 => crate::prefetch::read(std::ptr::from_ref(bucket).cast()),
            4 if told_by_tags => {
                if let Some(next) = chain::linked(bucket) {
                    crate::prefetch::read(std::ptr::from_ref(next).cast());
                }
            }
            4 => {
                for slot in &bucket.slots {
                    let slot = slot.load(Ordering::Relaxed);
                    if slot != 0 && !is_link(slot) {
                        entries.prefetch(reference_in(slot));
                    }
                }
            }
            _ => {}
        }
    }

    /// Adds a primary bucket and moves to it what belongs there. Does nothing without memory:
    /// chains get longer instead.
    fn split(&mut self, entries: &impl Entries) {
        self.inserts_since_split = 0;
        self.blocks.free_limbo();
        self.words.free_limbo();
        let bit = self.buckets.ilog2();
        let told_by_tags = TAG_TELLS.contains(&bit);
        let (from, to) = (self.next_to_split(), self.buckets);
        let needed = Chain::of(self.blocks.bucket(from)).overflow_buckets();
        if !self.overflow.ensure(needed, &mut self.blocks)
            || !self.words.grow_to(to / SLOTS + 1)
            || !self.blocks.grow_to(to + 1)
        {
            return;
        }
        let (old, new) = (from, to);
        let moving = self.view.begin();
        self.view.use_directory(&mut self.blocks);
        let to = NonNull::from(self.blocks.bucket(to));
        let from = NonNull::from(self.blocks.bucket(from));
        let mut target = Chain::at(to);
        chain::drain(
            from,
            |slot| {
                let hash = if told_by_tags {
                    slot >> TAG_SHIFT << TAG_BITS_FROM
                } else {
                    entries.hash(reference_in(slot))
                };
                hash >> bit & 1 != 0
            },
            |slot| {
                target.take_over(slot, || self.overflow.take_ensured());
            },
        );
        chain::tighten(from, |empty| self.overflow.give_back(empty));
        self.refresh_word(old);
        self.refresh_word(new);
        self.buckets += 1;
        self.mask = (self.buckets as u64).next_power_of_two() - 1;
        self.view.set_buckets(self.buckets);
        self.view.end(moving);
        self.overflow.release(&mut self.blocks);
    }

    /// Removes the last primary bucket and moves what it holds to the bucket it came from.
    fn merge(&mut self) {
        self.blocks.free_limbo();
        self.words.free_limbo();
        let last = self.buckets - 1;
        let into = last - (1usize << last.ilog2());
        let from = NonNull::from(self.blocks.bucket(last));
        // A chain of k overflow buckets holds up to 7 k + 8 entries, and each bucket that is
        // appended gives 7 slots: the last one of the bucket before it becomes the link.
        let needed = Chain::at(from).overflow_buckets() + 2;
        if !self.overflow.ensure(needed, &mut self.blocks) {
            return;
        }
        let moving = self.view.begin();
        let mut target = Chain::at(NonNull::from(self.blocks.bucket(into)));
        chain::drain(
            from,
            |_| true,
            |slot| {
                target.take_over(slot, || self.overflow.take_ensured());
            },
        );
        chain::tighten(from, |empty| self.overflow.give_back(empty));
        self.refresh_word(into);
        self.refresh_word(last);
        self.buckets = last;
        self.mask = (self.buckets as u64).next_power_of_two() - 1;
        self.view.set_buckets(self.buckets);
        self.view.end(moving);
        self.blocks.shrink_to(self.buckets);
        self.words.shrink_to(self.buckets.div_ceil(SLOTS));
        self.overflow.release(&mut self.blocks);
    }
}

impl<S: BlockSource> Drop for Index<S> {
    fn drop(&mut self) {
        // A cleaner may be inside: the memory goes back with the last view.
        let blocks = self.blocks.take_all();
        let overflow = self.overflow.take_all().into_iter().chain(self.words.take_all());
        let source = self.blocks.source();
        // A cleaner may still be looking into a directory that was retired.
        let directories = std::mem::take(&mut self.blocks.directories);
        self.view.leave(Box::new(move || {
            drop(directories);
            for (block, buckets) in blocks.into_iter().chain(overflow) {
                // SAFETY: the last view is gone, so nobody can reach the block any more.
                unsafe { source.free(block.into_inner(), buckets) };
            }
        }));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
