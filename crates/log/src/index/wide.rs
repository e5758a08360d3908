//! Buckets for memories of any size: eight slots of 64 bits, and a word beside each bucket.
//!
//! ```text
//!  bucket, one cache line:  | slot | slot | slot | slot | slot | slot | slot | slot or link |
//!  slot:   | tag 16 | reference 48 |     0 is empty; tag 0xffff marks a link to more slots
//! ```
//!
//! About 14.2 bytes an entry, words included. A lookup reads the words ([`tags`]) first. They are
//! mostly in a cache, so a key that does not exist costs no trip to memory.

use super::blocks::{BlockSource, Blocks, Line};
use super::form::{Form, LINK_TAG, REFERENCE_BITS, TAG_BITS_FROM, TAG_SHIFT, Words, reference_in};
use super::tags;
use crate::sync::{AtomicU64, Ordering};
use std::ops::Range;
use std::ptr::NonNull;

/// Slots of a bucket.
pub(super) const SLOTS: usize = 8;

/// One cache line of slots.
#[repr(C, align(64))]
pub(crate) struct Bucket {
    pub(super) slots: [AtomicU64; SLOTS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64);

// SAFETY: eight words of 64 bits, each zero for an empty slot.
unsafe impl Line for Bucket {
    #[cfg(test)]
    fn empty() -> Bucket {
        Bucket { slots: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

/// See the module's documentation.
pub(crate) struct Wide;

#[inline(always)]
pub(super) fn is_link(slot: u64) -> bool {
    slot >> TAG_SHIFT == LINK_TAG
}

fn link_to(bucket: NonNull<Bucket>) -> u64 {
    let address = bucket.as_ptr().expose_provenance() as u64;
    assert!(address <= REFERENCE_BITS, "addresses of user space have 48 bits");
    LINK_TAG << TAG_SHIFT | address
}

/// Moves the value of `from` to `to` and leaves `behind` in its place.
fn move_word(from: &AtomicU64, to: &AtomicU64, behind: u64) {
    let mut value = from.load(Ordering::Acquire);
    loop {
        to.store(value, Ordering::Release);
        match from.compare_exchange(value, behind, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(newer) => value = newer,
        }
    }
}

impl Form for Wide {
    type Bucket = Bucket;
    type Word<'index> = &'index AtomicU64;

    const SLOTS: usize = SLOTS;
    const LINK_IS_A_SLOT: bool = true;
    const HAS_WORDS: bool = true;
    /// Some 1.1 buckets per lookup that finds its key.
    const LOAD_HIGH: usize = 75;
    const LOAD_LOW: usize = 60;

    const TAG_TELLS: Range<u32> = TAG_BITS_FROM + 1..TAG_BITS_FROM + 16;

    #[inline(always)]
    fn tag_of(hash: u64) -> u64 {
        let tag = (hash >> TAG_BITS_FROM) & 0xffff;
        // 0 would look like an empty slot and 0xffff like a link.
        (tag + u64::from(tag == 0) - u64::from(tag == LINK_TAG)) << TAG_SHIFT
    }

    #[inline(always)]
    fn held(bucket: &Bucket, at: usize) -> u64 {
        let slot = bucket.slots[at].load(Ordering::Acquire);
        if is_link(slot) { 0 } else { slot }
    }

    #[inline(always)]
    fn reference(bucket: &Bucket, at: usize) -> u64 {
        reference_in(bucket.slots[at].load(Ordering::Acquire))
    }

    #[inline(always)]
    fn empty_slot(bucket: &Bucket) -> Option<usize> {
        bucket.slots.iter().position(|slot| slot.load(Ordering::Relaxed) == 0)
    }

    #[inline(always)]
    fn fill(bucket: &Bucket, at: usize, held: u64) {
        bucket.slots[at].store(held, Ordering::Release);
    }

    #[inline(always)]
    fn empty(bucket: &Bucket, at: usize) -> u64 {
        bucket.slots[at].swap(0, Ordering::AcqRel)
    }

    #[inline(always)]
    fn swap(bucket: &Bucket, at: usize, held: u64) -> u64 {
        bucket.slots[at].swap(held, Ordering::AcqRel)
    }

    #[inline(always)]
    fn exchange(bucket: &Bucket, at: usize, expected: u64, new: u64) -> Result<(), u64> {
        bucket.slots[at]
            .compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
    }

    #[inline]
    fn relocate(bucket: &Bucket, old: u64, new: u64) -> Option<bool> {
        let slot = bucket.slots.iter().find(|slot| slot.load(Ordering::Acquire) == old)?;
        // Acquire on failure too: if the slot was just moved away, the odd epoch must be seen, or
        // the entry would be taken for removed.
        Some(slot.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok())
    }

    fn move_slot(from: (&Bucket, usize), to: (&Bucket, usize)) {
        move_word(&from.0.slots[from.1], &to.0.slots[to.1], 0);
    }

    #[inline]
    fn linked(bucket: &Bucket) -> Option<&Bucket> {
        let slot = bucket.slots[SLOTS - 1].load(Ordering::Acquire);
        if !is_link(slot) {
            return None;
        }
        let address = std::ptr::with_exposed_provenance::<Bucket>(reference_in(slot) as usize);
        // SAFETY: links are only made to overflow buckets of this index, whose memory is neither
        // given back nor reused otherwise while a reader may be inside (`Overflow`).
        Some(unsafe { &*address })
    }

    fn append(full: NonNull<Bucket>, new: NonNull<Bucket>) -> usize {
        // SAFETY: bucket memory of an index lives as long as the index, and slots are atomics.
        let (full, new_bucket) = unsafe { (full.as_ref(), new.as_ref()) };
        move_word(&full.slots[SLOTS - 1], &new_bucket.slots[0], link_to(new));
        1
    }

    fn unlink(bucket: &Bucket) {
        bucket.slots[SLOTS - 1].store(0, Ordering::Release);
    }

    #[inline(always)]
    fn with_tag(bucket: &Bucket, tag: u64) -> u32 {
        let mut hits = 0;
        for (at, slot) in bucket.slots.iter().enumerate() {
            let same = slot.load(Ordering::Relaxed) ^ tag <= REFERENCE_BITS;
            hits |= u32::from(same) << at;
        }
        hits
    }

    #[inline(always)]
    fn find_by_word(
        bucket: &Bucket,
        word: &AtomicU64,
        tag: u64,
        mut matches: impl FnMut(u64) -> bool,
    ) -> Option<usize> {
        let mut slots = tags::slots_with(word.load(Ordering::Relaxed), tag);
        debug_assert!(
            (0..SLOTS)
                .all(|at| Wide::with_tag(bucket, tag) >> at & 1 == 0
                    || slots >> (8 * at + 7) & 1 == 1)
        );
        while slots != 0 {
            let at = slots.trailing_zeros() as usize / 8;
            slots &= slots - 1;
            // Acquire: a cleaner has written the entry before it stored the reference.
            let held = bucket.slots[at].load(Ordering::Acquire);
            if held ^ tag <= REFERENCE_BITS && matches(reference_in(held)) {
                return Some(at);
            }
        }
        None
    }

    #[inline(always)]
    fn word<'index, S: BlockSource>(
        _: &Bucket,
        words: &'index Blocks<S, Words>,
        number: usize,
    ) -> &'index AtomicU64 {
        Words::of(words, number)
    }

    #[inline(always)]
    fn first_look(_: &Bucket, word: &AtomicU64) -> *const u8 {
        std::ptr::from_ref(word).cast()
    }

    #[inline(always)]
    fn may_have(word: &AtomicU64, tag: u64) -> bool {
        let word = word.load(Ordering::Relaxed);
        tags::may_hold(word, tag) || tags::may_lead_to(word, tag)
    }

    #[inline(always)]
    fn may_lead_to(word: &AtomicU64, tag: u64) -> bool {
        tags::may_lead_to(word.load(Ordering::Relaxed), tag)
    }

    #[inline(always)]
    fn note_filled(word: &AtomicU64, at: usize, tag: u64) {
        let with = tags::with_slot(word.load(Ordering::Relaxed), at, tag);
        word.store(with, Ordering::Relaxed);
    }

    #[inline(always)]
    fn note_behind(word: &AtomicU64, tag: u64) {
        let with = tags::with_overflow(word.load(Ordering::Relaxed), tag);
        word.store(with, Ordering::Relaxed);
    }

    #[inline(always)]
    fn note_emptied(word: &AtomicU64, at: usize) {
        let without = tags::without_slot(word.load(Ordering::Relaxed), at);
        word.store(without, Ordering::Relaxed);
    }

    fn refresh(word: &AtomicU64, bucket: &Bucket) {
        word.store(tags::of_chain(bucket), Ordering::Relaxed);
    }
}
