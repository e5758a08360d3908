//! The two forms that a bucket has, and what the rest of the index asks of both.
//!
//! Everything above this file speaks of a slot as one number, *what it holds*: the entry's tag in the
//! upper 16 bits, its reference in the lower 48, and 0 for a slot that is empty or holds a link.

use super::blocks::{BlockSource, Blocks, Line};
use crate::sync::AtomicU64;
use std::ops::Range;
use std::ptr::NonNull;

/// A line of the words that stand beside buckets which have them, one word a bucket.
#[repr(C, align(64))]
pub(crate) struct Words([AtomicU64; Words::EACH]);

impl Words {
    /// Words of a line.
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

/// A form of bucket. Only the reactor changes buckets, but for [`Form::relocate`].
pub(crate) trait Form: Sized + Send + Sync + 'static {
    type Bucket: Line;
    /// What says of a bucket what is in it and behind it.
    type Word<'index>: Copy;

    /// Slots of a bucket.
    const SLOTS: usize;
    /// The link to an overflow bucket takes the place of the last slot.
    const LINK_IS_A_SLOT: bool;
    /// Words stand apart from buckets.
    const HAS_WORDS: bool;
    /// A bucket splits when the index holds more than this many entries per hundred slots of primary
    /// buckets.
    const LOAD_HIGH: usize;
    /// And merges below this: far enough from the other that the two do not alternate in an index of more
    /// than a few buckets.
    const LOAD_LOW: usize;

    /// Bits of a hash that can be read off a tag: not the lowest, see [`Form::tag_of`].
    const TAG_TELLS: Range<u32>;

    /// The tag of a hash, from bit 15 of it on, in the place where it is in what a slot holds. None is 0 or
    /// [`LINK_TAG`]: the lowest bit gives way.
    fn tag_of(hash: u64) -> u64;

    /// What a slot holds.
    fn held(bucket: &Self::Bucket, at: usize) -> u64;

    /// Which slots of a bucket have a tag, one bit each.
    fn with_tag(bucket: &Self::Bucket, tag: u64) -> u32;

    /// The reference in a slot that holds an entry. Acquire: a cleaner has written the entry before it stored
    /// the reference.
    fn reference(bucket: &Self::Bucket, at: usize) -> u64;

    /// The first slot of a bucket that holds nothing, no link either.
    fn empty_slot(bucket: &Self::Bucket) -> Option<usize>;

    /// Lets an empty slot hold something.
    fn fill(bucket: &Self::Bucket, at: usize, held: u64);

    /// Empties a slot; returns what it held at last, its tag apart.
    fn empty(bucket: &Self::Bucket, at: usize) -> u64;

    /// Gives a slot another reference under the same tag; returns what it held until then, its tag apart.
    fn swap(bucket: &Self::Bucket, at: usize, held: u64) -> u64;

    /// The same if it holds what is expected; else says what it does hold, its tag apart.
    fn exchange(bucket: &Self::Bucket, at: usize, expected: u64, new: u64) -> Result<(), u64>;

    /// What a cleaner does: looks in one bucket for a slot that holds `old` and lets it hold `new`. `None`
    /// where there is none, false where it was changed meanwhile.
    fn relocate(bucket: &Self::Bucket, old: u64, new: u64) -> Option<bool>;

    /// Moves what a slot holds to an empty one: there first, then away from here by compare-and-swap,
    /// carrying over what a cleaner has stored meanwhile.
    fn move_slot(from: (&Self::Bucket, usize), to: (&Self::Bucket, usize));

    /// The bucket linked behind this one.
    fn linked(bucket: &Self::Bucket) -> Option<&Self::Bucket>;

    /// Links `new`, which is empty, behind `full`, which is full. Returns an empty slot of it.
    fn append(full: NonNull<Self::Bucket>, new: NonNull<Self::Bucket>) -> usize;

    /// Unlinks the bucket behind this one.
    fn unlink(bucket: &Self::Bucket);

    /// The first slot of a bucket, whichever it is in a chain, that has a tag and whose reference
    /// `matches`.
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

    /// The same for a primary bucket, whose word says which slots to look at.
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

    /// The address that a lookup looks at first.
    fn first_look(bucket: &Self::Bucket, word: Self::Word<'_>) -> *const u8;

    /// Whether an entry with a tag may be here, bucket or chain, as far as the word says.
    fn may_have(word: Self::Word<'_>, tag: u64) -> bool;

    /// Whether it may be behind the bucket, as far as the word says.
    fn may_lead_to(word: Self::Word<'_>, tag: u64) -> bool;

    /// Notes that an empty slot of a bucket was filled.
    fn note_filled(word: Self::Word<'_>, at: usize, tag: u64);

    /// Notes that an entry has gone to an overflow bucket that was there.
    fn note_behind(word: Self::Word<'_>, tag: u64);

    /// Notes that a slot of a bucket was emptied.
    fn note_emptied(word: Self::Word<'_>, at: usize);

    /// Brings a word in line with a bucket and the chain behind it.
    fn refresh(word: Self::Word<'_>, bucket: &Self::Bucket);
}

/// The reference in what a slot holds.
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
