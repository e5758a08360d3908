//! Linear hashing over buckets of one form: see [`crate::index`].

use super::blocks::{Block, BlockSource, Blocks, Line, Overflow};
use super::chain::{self, Chain};
use super::form::{Form, REFERENCE_BITS, TAG_BITS_FROM, TAG_SHIFT, Words, reference_in};
use super::view::View;
use super::{Candidate, Entries, Found, NoMemory};
use crate::memory::quiescence::Readers;
use std::ptr::NonNull;
use std::sync::Arc;

/// The most buckets that are merged at once when room was made for too many entries.
const ROOM_ENDS_AT_ONCE: usize = 128;

/// An index whose buckets have one form. [`Index`](super::Index) documents the methods that it has
/// too.
pub(crate) struct Table<S: BlockSource, F: Form> {
    view: Arc<View<F>>,
    pub(super) blocks: Blocks<S, F::Bucket>,
    /// The buckets' words, eight in a cache line, if they have any.
    words: Blocks<S, Words>,
    pub(super) overflow: Overflow<F::Bucket>,
    /// Primary buckets.
    pub(super) buckets: usize,
    /// One less than the power of two that is at least `buckets`.
    mask: u64,
    entries: usize,
    inserts_since_split: u32,
    /// Room was made for coming entries, so the index does not shrink meanwhile.
    has_room: bool,
}

/// A lookup of a hash: its bucket and its tag. Valid until the index changes.
pub(crate) struct Lookup<'index, F: Form> {
    bucket: &'index F::Bucket,
    word: F::Word<'index>,
    tag: u64,
    number: usize,
}

impl<F: Form> Clone for Lookup<'_, F> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Form> Copy for Lookup<'_, F> {}

#[inline(always)]
fn prefetch<T>(line: &T) {
    crate::prefetch::read(std::ptr::from_ref(line).cast());
}

impl<F: Form> Lookup<'_, F> {
    #[inline(always)]
    pub(super) fn prefetch_first(self) {
        crate::prefetch::read(F::first_look(self.bucket, self.word));
    }

    #[inline(always)]
    pub(super) fn may_have(self) -> bool {
        F::may_have(self.word, self.tag)
    }

    #[inline(always)]
    pub(super) fn prefetch_bucket(self) {
        prefetch(self.bucket);
    }

    #[inline]
    pub(super) fn prefetch_behind(self) {
        if let Some(next) = F::linked(self.bucket) {
            prefetch(next);
        }
    }

    #[inline]
    pub(super) fn candidate(self) -> Candidate {
        let Lookup { bucket, word, tag, .. } = self;
        let mut first = 0;
        let is_first = |reference| {
            first = reference;
            true
        };
        if F::find_by_word(bucket, word, tag, is_first).is_some() {
            return Candidate::At(first);
        }
        if !F::may_lead_to(word, tag) {
            return Candidate::Absent;
        }
        let Some(next) = F::linked(bucket) else { return Candidate::Absent };
        prefetch(next);
        Candidate::Behind
    }

    #[inline]
    pub(super) fn candidate_behind(self) -> Option<u64> {
        let mut first = 0;
        let is_first = |reference| {
            first = reference;
            true
        };
        F::find(F::linked(self.bucket)?, self.tag, is_first).map(|_| first)
    }

    #[inline]
    pub(super) fn find(self, mut matches: impl FnMut(u64) -> bool) -> Option<Found> {
        let Lookup { bucket, word, tag, number } = self;
        if let Some(at) = F::find_by_word(bucket, word, tag, &mut matches) {
            return Some(Found::new(bucket, at, tag, number));
        }
        if !F::may_lead_to(word, tag) {
            return None;
        }
        let (behind, at) = find_behind::<F>(bucket, tag, &mut matches)?;
        Some(Found::new(behind, at, tag, number))
    }
}

/// Finds the slot whose reference `matches` in the buckets behind one. A tenth of all finds end
/// here.
#[inline(never)]
fn find_behind<'a, F: Form>(
    first: &'a F::Bucket,
    tag: u64,
    matches: &mut impl FnMut(u64) -> bool,
) -> Option<(&'a F::Bucket, usize)> {
    let mut bucket = first;
    loop {
        bucket = F::linked(bucket)?;
        if let Some(at) = F::find(bucket, tag, &mut *matches) {
            return Some((bucket, at));
        }
    }
}

impl<S: BlockSource, F: Form> Table<S, F> {
    /// An empty index whose full blocks have `block_buckets` buckets, a power of two.
    pub(super) fn new(
        source: S,
        readers: Arc<Readers>,
        block_buckets: usize,
    ) -> Option<Table<S, F>> {
        let mut blocks = Blocks::new(source.clone(), Arc::clone(&readers), block_buckets);
        let mut words = Blocks::new(source, readers, block_buckets);
        let grown = blocks.grow_to(1) && (!F::HAS_WORDS || words.grow_to(1));
        if !grown {
            blocks.give_all_back();
            return None;
        }
        let view = Arc::new(View::new(&blocks));
        Some(Table {
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

    pub(super) fn view(&self) -> Arc<View<F>> {
        Arc::clone(&self.view)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries
    }

    #[inline(always)]
    pub(super) fn bucket_number(&self, hash: u64) -> usize {
        let number = (hash & self.mask) as usize;
        if number < self.buckets { number } else { (hash & (self.mask >> 1)) as usize }
    }

    #[inline(always)]
    fn word(&self, number: usize) -> F::Word<'_> {
        F::word(self.blocks.bucket(number), &self.words, number)
    }

    /// Brings the word of a bucket in line with the bucket.
    fn refresh_word(&self, number: usize) {
        F::refresh(self.word(number), self.blocks.bucket(number));
    }

    /// Makes room for the words of so many buckets.
    fn grow_words(&mut self, buckets: usize) -> bool {
        !F::HAS_WORDS || self.words.grow_to(buckets.div_ceil(Words::EACH))
    }

    #[inline(always)]
    pub(super) fn lookup(&self, hash: u64) -> Lookup<'_, F> {
        let (tag, number) = (F::tag_of(hash), self.bucket_number(hash));
        Lookup { bucket: self.blocks.bucket(number), word: self.word(number), tag, number }
    }

    /// The bucket in which a search found a slot.
    #[inline(always)]
    fn bucket_of(&self, found: Found) -> &F::Bucket {
        // SAFETY: a search of this index made it from a bucket of it; bucket memory lives as long
        // as the index, and callers, on the reactor's thread, have not changed the index since.
        unsafe { found.bucket.cast().as_ref() }
    }

    #[inline]
    pub(super) fn reference(&self, found: Found) -> u64 {
        F::reference(self.bucket_of(found), found.at)
    }

    #[inline]
    pub(super) fn replace_exact(
        &mut self,
        found: Found,
        expected: u64,
        new: u64,
    ) -> Result<(), u64> {
        let Found { at, tag, .. } = found;
        F::exchange(self.bucket_of(found), at, tag | expected, tag | new).map_err(reference_in)
    }

    pub(super) fn replace(&mut self, found: Found, new: u64) -> u64 {
        reference_in(F::swap(self.bucket_of(found), found.at, found.tag | new))
    }

    pub(super) fn remove(&mut self, found: Found) -> u64 {
        let bucket = self.bucket_of(found);
        let reference = reference_in(F::empty(bucket, found.at));
        if std::ptr::eq(bucket, self.blocks.bucket(found.number)) {
            F::note_emptied(self.word(found.number), found.at);
        } else {
            self.refresh_word(found.number);
        }
        self.entries -= 1;
        if self.buckets > 1 && !self.has_room && self.is_sparse() {
            self.merge();
        }
        reference
    }

    fn is_sparse(&self) -> bool {
        self.entries * 100 < self.buckets * F::SLOTS * F::LOAD_LOW
    }

    pub(super) fn make_room(&mut self, entries: usize) -> bool {
        let wanted = entries.saturating_mul(100).div_ceil(F::SLOTS * F::LOAD_HIGH);
        if self.entries > 0 || self.buckets >= wanted {
            return false;
        }
        self.has_room = true;
        let buckets = wanted.min(self.blocks.with_one_more());
        if !self.grow_words(buckets) || !self.blocks.grow_to(buckets) {
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

    pub(super) fn end_room(&mut self) {
        self.has_room = false;
        for _ in 0..ROOM_ENDS_AT_ONCE {
            if self.buckets > 1 && self.is_sparse() {
                self.merge();
            }
        }
    }

    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        hash: u64,
        reference: u64,
        entries: &impl Entries,
    ) -> Result<(), NoMemory> {
        debug_assert!(reference != 0 && reference <= REFERENCE_BITS);
        let (tag, number) = (F::tag_of(hash), self.bucket_number(hash));
        let held = tag | reference;
        let mut bucket = self.blocks.bucket(number);
        if let Some(at) = F::empty_slot(bucket) {
            F::fill(bucket, at, held);
            F::note_filled(self.word(number), at, tag);
        } else {
            loop {
                match F::linked(bucket) {
                    Some(next) => bucket = next,
                    None => {
                        let last = NonNull::from(bucket);
                        self.add_overflow(last, held)?;
                        self.refresh_word(number);
                        break;
                    }
                }
                if let Some(at) = F::empty_slot(bucket) {
                    F::fill(bucket, at, held);
                    F::note_behind(self.word(number), tag);
                    break;
                }
            }
        }
        self.entries += 1;
        self.inserts_since_split += 1;
        if self.entries * 100 > self.buckets * F::SLOTS * F::LOAD_HIGH {
            self.split(entries);
        } else if self.inserts_since_split & 1 == 0 {
            self.prepare_split(entries);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn promise(&mut self) -> bool {
        self.overflow.promise(&mut self.blocks)
    }

    pub(super) fn promised(&self) -> usize {
        self.overflow.promised()
    }

    #[inline]
    pub(super) fn redeem(&mut self) {
        self.overflow.redeem();
    }

    #[inline]
    pub(super) fn prepare_insert(&mut self) -> bool {
        self.overflow.ensure(1, &mut self.blocks)
    }

    pub(super) fn prepare_inserts(&mut self, count: usize) -> bool {
        self.overflow.ensure(count, &mut self.blocks)
    }

    /// Stores a value in a new overflow bucket behind a full one.
    #[cold]
    fn add_overflow(&mut self, full: NonNull<F::Bucket>, held: u64) -> Result<(), NoMemory> {
        let new = self.overflow.take(&mut self.blocks).ok_or(NoMemory)?;
        // The epoch is odd while a slot may move to make place for the link, as in every move.
        let moving = self.view.begin();
        let at = F::append(full, new);
        // SAFETY: the bucket was just taken; its memory lives as long as the index.
        F::fill(unsafe { new.as_ref() }, at, held);
        self.view.end(moving);
        Ok(())
    }

    /// The bucket that will split next.
    fn next_to_split(&self) -> usize {
        let highest = 1usize << self.buckets.ilog2();
        self.buckets - highest
    }

    /// Prefetches the lines that the next split will read: its bucket first, the entries a little
    /// later.
    #[inline]
    fn prepare_split(&self, entries: &impl Entries) {
        let bucket = self.blocks.bucket(self.next_to_split());
        let told_by_tags = F::TAG_TELLS.contains(&self.buckets.ilog2());
        match self.inserts_since_split {
            2 => prefetch(bucket),
            4 if told_by_tags => {
                if let Some(next) = F::linked(bucket) {
                    prefetch(next);
                }
            }
            4 => {
                for held in (0..F::SLOTS).map(|at| F::held(bucket, at)).filter(|it| *it != 0) {
                    entries.prefetch(reference_in(held));
                }
            }
            _ => {}
        }
    }

    /// Adds a primary bucket and moves its entries to it. Does nothing without memory: chains get
    /// longer instead.
    fn split(&mut self, entries: &impl Entries) {
        self.inserts_since_split = 0;
        self.blocks.free_limbo();
        self.words.free_limbo();
        let bit = self.buckets.ilog2();
        let told_by_tags = F::TAG_TELLS.contains(&bit);
        let (from, to) = (self.next_to_split(), self.buckets);
        let needed = Chain::<F>::of(self.blocks.bucket(from)).overflow_buckets();
        if !self.overflow.ensure(needed, &mut self.blocks)
            || !self.grow_words(to + 1)
            || !self.blocks.grow_to(to + 1)
        {
            return;
        }
        let (old, new) = (from, to);
        let moving = self.view.begin();
        self.view.use_directory(&mut self.blocks);
        let to = NonNull::from(self.blocks.bucket(to));
        let from = NonNull::from(self.blocks.bucket(from));
        let mut target = Chain::<F>::at(to);
        chain::drain::<F>(
            from,
            |held| {
                let hash = if told_by_tags {
                    held >> TAG_SHIFT << TAG_BITS_FROM
                } else {
                    entries.hash(reference_in(held))
                };
                hash >> bit & 1 != 0
            },
            |slot| {
                target.take_over(slot, || self.overflow.take_ensured());
            },
        );
        chain::tighten::<F>(from, |empty| self.overflow.give_back(empty));
        self.refresh_word(old);
        self.refresh_word(new);
        self.buckets += 1;
        self.mask = (self.buckets as u64).next_power_of_two() - 1;
        self.view.set_buckets(self.buckets);
        self.view.end(moving);
        self.overflow.release(&mut self.blocks);
    }

    /// Removes the last primary bucket and moves its entries to the bucket from which it was split.
    fn merge(&mut self) {
        self.blocks.free_limbo();
        self.words.free_limbo();
        let last = self.buckets - 1;
        let into = last - (1usize << last.ilog2());
        let from = NonNull::from(self.blocks.bucket(last));
        // The entries of a chain of k overflow buckets fit into k + 2 appended buckets. Each
        // appended bucket gives 7 slots of 8 if the last slot of the bucket before becomes the
        // link, else all 10.
        let needed = Chain::<F>::at(from).overflow_buckets() + 2;
        if !self.overflow.ensure(needed, &mut self.blocks) {
            return;
        }
        let moving = self.view.begin();
        let mut target = Chain::<F>::at(NonNull::from(self.blocks.bucket(into)));
        chain::drain::<F>(
            from,
            |_| true,
            |slot| {
                target.take_over(slot, || self.overflow.take_ensured());
            },
        );
        chain::tighten::<F>(from, |empty| self.overflow.give_back(empty));
        self.refresh_word(into);
        self.refresh_word(last);
        self.buckets = last;
        self.mask = (self.buckets as u64).next_power_of_two() - 1;
        self.view.set_buckets(self.buckets);
        self.view.end(moving);
        self.blocks.shrink_to(self.buckets);
        self.words.shrink_to(self.buckets.div_ceil(Words::EACH));
        self.overflow.release(&mut self.blocks);
    }
}

impl<S: BlockSource, F: Form> Drop for Table<S, F> {
    fn drop(&mut self) {
        // A cleaner may be inside: the memory goes back with the last view.
        let mut buckets = self.blocks.take_all();
        buckets.extend(self.overflow.take_all());
        let words = self.words.take_all();
        let source = self.blocks.source();
        // A cleaner may still be reading a retired directory.
        let directories = std::mem::take(&mut self.blocks.directories);
        self.view.leave(Box::new(move || {
            drop(directories);
            give_back(&source, buckets);
            give_back(&source, words);
        }));
    }
}

/// Gives back the blocks of a dropped index, when the last view of it is dropped.
fn give_back<B: Line>(source: &impl BlockSource, blocks: Vec<(Block<B>, usize)>) {
    for (block, buckets) in blocks {
        // SAFETY: the last view is gone, so no thread can reach the block any more.
        unsafe { source.free(block.into_inner(), buckets) };
    }
}
