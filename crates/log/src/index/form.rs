//! The two forms of buckets, and the operations that the rest of the index needs of both.
//!
//! Everything above this file treats a slot as one number, the slot's *held value*: the entry's tag
//! in the upper 16 bits, its reference in the lower 48, and 0 for a slot that is empty or holds a
//! link.

use super::blocks::{BlockSource, Blocks, Line};
use crate::sync::AtomicU64;
use std::ops::Range;
use std::ptr::NonNull;

/// A line of words beside the buckets, for forms with words: one word a bucket.
#[repr(C, align(64))]
pub(crate) struct Words([AtomicU64; Words::EACH]);

impl Words {
    /// Words in a line.
    pub(super) const EACH: usize = 8;

    /// The word of a bucket.
    #[inline(always)]
    pub(super) fn of<S: BlockSource>(words: &Blocks<S, Words>, number: usize) -> &AtomicU64 {
        &words.bucket(number / Words::EACH).0[number % Words::EACH]
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Words>() == 64);

// SAFETY: eight words of 64 bits, each zero for an empty bucket.
unsafe impl Line for Words {
    #[cfg(test)]
    fn empty() -> Words {
        Words(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// A form of bucket. Only the reactor changes buckets, except by [`Form::relocate`].
pub(crate) trait Form: Sized + Send + Sync + 'static {
    type Bucket: Line;
    /// The summary of a bucket and of the chain behind it.
    type Word<'index>: Copy;

    /// Slots of a bucket.
    const SLOTS: usize;
    /// Whether the link to an overflow bucket takes the place of the last slot.
    const LINK_IS_A_SLOT: bool;
    /// Whether words are kept apart from buckets.
    const HAS_WORDS: bool;
    /// A bucket splits when the index holds more than this many entries per hundred slots of
    /// primary buckets.
    const LOAD_HIGH: usize;
    /// Buckets merge below this load: far enough from the other that the two do not alternate in an
    /// index of more than a few buckets.
    const LOAD_LOW: usize;

    /// Bits of a hash that a tag tells: not the lowest, see [`Form::tag_of`].
    const TAG_TELLS: Range<u32>;

    /// The tag of a hash, from bit 15 of it on, at its place in a held value. No tag is 0 or
    /// [`LINK_TAG`]: the lowest bit is changed instead.
    fn tag_of(hash: u64) -> u64;

    /// The value that a slot holds.
    fn held(bucket: &Self::Bucket, at: usize) -> u64;

    /// The slots of a bucket that have a tag, one bit each.
    fn with_tag(bucket: &Self::Bucket, tag: u64) -> u32;

    /// The reference in a slot that holds an entry. Acquire: a cleaner has written the entry before
    /// it stored the reference.
    fn reference(bucket: &Self::Bucket, at: usize) -> u64;

    /// The first slot of a bucket that holds neither an entry nor a link.
    fn empty_slot(bucket: &Self::Bucket) -> Option<usize>;

    /// Stores a value in an empty slot.
    fn fill(bucket: &Self::Bucket, at: usize, held: u64);

    /// Empties a slot; returns the value that it held at last, with or without its tag.
    fn empty(bucket: &Self::Bucket, at: usize) -> u64;

    /// Gives a slot another reference under the same tag; returns the old value, with or without
    /// its tag.
    fn swap(bucket: &Self::Bucket, at: usize, held: u64) -> u64;

    /// Does so if the slot holds `expected`; else returns the present value, with or without its
    /// tag.
    fn exchange(bucket: &Self::Bucket, at: usize, expected: u64, new: u64) -> Result<(), u64>;

    /// The operation of a cleaner: looks in one bucket for a slot that holds `old` and stores
    /// `new`. `None` if no slot holds it, false if it was changed meanwhile.
    fn relocate(bucket: &Self::Bucket, old: u64, new: u64) -> Option<bool>;

    /// Moves the value of a slot to an empty one: first stores it there, then clears it here by
    /// compare-and-swap, carrying over the value that a cleaner may have stored meanwhile.
    fn move_slot(from: (&Self::Bucket, usize), to: (&Self::Bucket, usize));

    /// The bucket linked behind this one.
    fn linked(bucket: &Self::Bucket) -> Option<&Self::Bucket>;

    /// Links `new`, which is empty, behind `full`, which is full. Returns an empty slot of `new`.
    fn append(full: NonNull<Self::Bucket>, new: NonNull<Self::Bucket>) -> usize;

    /// Unlinks the bucket behind this one.
    fn unlink(bucket: &Self::Bucket);

    /// The first slot of any bucket of a chain that has a tag and whose reference `matches`.
    #[inline(always)]
    fn find(
        bucket: &Self::Bucket,
        tag: u64,
        mut matches: impl FnMut(u64) -> bool,
    ) -> Option<usize> {
        let mut hits = Self::with_tag(bucket, tag);
        while hits != 0 {
            let at = hits.trailing_zeros() as usize;
            if matches(Self::reference(bucket, at)) {
                return Some(at);
            }
            hits &= hits - 1;
        }
        None
    }

    /// Does so for a primary bucket, whose word says which slots to look at.
    fn find_by_word(
        bucket: &Self::Bucket,
        word: Self::Word<'_>,
        tag: u64,
        matches: impl FnMut(u64) -> bool,
    ) -> Option<usize>;

    /// The word of a bucket.
    fn word<'index, S: BlockSource>(
        bucket: &'index Self::Bucket,
        words: &'index Blocks<S, Words>,
        number: usize,
    ) -> Self::Word<'index>;

    /// The address that a lookup reads first.
    fn first_look(bucket: &Self::Bucket, word: Self::Word<'_>) -> *const u8;

    /// Whether an entry with a tag may be here, in bucket or chain, judged by the word.
    fn may_have(word: Self::Word<'_>, tag: u64) -> bool;

    /// Whether an entry with a tag may be behind the bucket, judged by the word.
    fn may_lead_to(word: Self::Word<'_>, tag: u64) -> bool;

    /// Notes that an empty slot of a bucket was filled.
    fn note_filled(word: Self::Word<'_>, at: usize, tag: u64);

    /// Notes that an entry has gone to an existing overflow bucket.
    fn note_behind(word: Self::Word<'_>, tag: u64);

    /// Notes that a slot of a bucket was emptied.
    fn note_emptied(word: Self::Word<'_>, at: usize);

    /// Brings a word in line with a bucket and the chain behind it.
    fn refresh(word: Self::Word<'_>, bucket: &Self::Bucket);
}

/// The reference in a held value.
#[inline(always)]
pub(super) fn reference_in(held: u64) -> u64 {
    held & REFERENCE_BITS
}

/// The tag that no entry has.
pub(super) const LINK_TAG: u64 = 0xffff;
pub(super) const TAG_SHIFT: u32 = 48;
pub(super) const REFERENCE_BITS: u64 = (1 << TAG_SHIFT) - 1;

/// The lowest bit of a hash that is in its tag.
pub(super) const TAG_BITS_FROM: u32 = 15;
