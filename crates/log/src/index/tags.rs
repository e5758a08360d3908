//! A byte for each slot, kept apart: lets a lookup say "not here" without reading the bucket.
//!
//! ```text
//!  word of a bucket:  | tag 7 | tag 6 | … | tag 0 |     one byte each, 0 is empty
//!  tag:     0 and seven bits of the hash, never all zero
//! linked:  the top bit is 1; the rest of its byte and the top bits of the others are a set of
//!           fourteen bits: which kinds of entries lie in the overflow buckets behind
//! ```
//!
//! Buckets of ten million entries take 125 MB, their words an eighth of that. The words stay in a
//! processor's cache when the buckets do not, so a key that does not exist costs no trip to memory.
//! The words belong to the reactor alone. Cleaners change references, never tags.

use super::form::{Form, REFERENCE_BITS, TAG_SHIFT};
use super::wide::{Bucket, Wide, is_link};
use crate::sync::Ordering;

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = LOW << 7;
const LINKED: u64 = 1 << 63;

/// The byte for an entry whose slot has this tag.
#[inline(always)]
fn byte(tag: u64) -> u64 {
    (((tag >> TAG_SHIFT) * 127) >> 16) + 1
}

/// The bit of an entry in a filter.
#[inline(always)]
fn filter_bit(tag: u64) -> u64 {
    let kind = (((tag >> (TAG_SHIFT + 4)) & 0xff) * 14) >> 8;
    if kind < 7 { 1 << (56 + kind) } else { 1 << (8 * (kind - 7) + 7) }
}

/// Whether the bucket itself may hold an entry with a tag. May be true without reason, never false.
#[inline(always)]
pub(super) fn may_hold(word: u64, tag: u64) -> bool {
    // In a linked bucket the last byte belongs to no slot: reading it as a tag errs on that side.
    let differences = (word & !HIGH) ^ (byte(tag) * LOW);
    differences.wrapping_sub(LOW) & HIGH != 0
}

/// The slots of the bucket that may hold an entry with a tag: the top bit of each slot's byte. A
/// slot that does hold such an entry is never missing.
#[inline(always)]
pub(super) fn slots_with(word: u64, tag: u64) -> u64 {
    // No byte is more than 0x7f, so none carries into the next.
    let differences = (word & !HIGH) ^ (byte(tag) * LOW);
    !(differences + !HIGH) & HIGH
}

/// Whether an overflow bucket behind it may hold an entry with a tag.
#[inline(always)]
pub(super) fn may_lead_to(word: u64, tag: u64) -> bool {
    word & LINKED != 0 && word & filter_bit(tag) != 0
}

/// The word once an empty slot of the bucket has been filled.
#[inline(always)]
pub(super) fn with_slot(word: u64, at: usize, tag: u64) -> u64 {
    word | byte(tag) << (8 * at)
}

/// The word once a slot of the bucket has been emptied.
#[inline(always)]
pub(super) fn without_slot(word: u64, at: usize) -> u64 {
    word & !(0x7f << (8 * at))
}

/// The word once an entry has gone to an existing overflow bucket.
#[inline(always)]
pub(super) fn with_overflow(word: u64, tag: u64) -> u64 {
    word | filter_bit(tag)
}

/// The word of a bucket and the chain behind it.
pub(super) fn of_chain(first: &Bucket) -> u64 {
    let mut word = 0;
    for (at, slot) in first.slots.iter().enumerate() {
        let slot = slot.load(Ordering::Relaxed);
        // The last slot of a bucket that is linked holds the link.
        if slot != 0 && !is_link(slot) {
            word = with_slot(word, at, slot & !REFERENCE_BITS);
        }
    }
    let mut behind = Wide::linked(first);
    if behind.is_some() {
        word |= LINKED;
    }
    while let Some(bucket) = behind {
        for slot in &bucket.slots {
            let slot = slot.load(Ordering::Relaxed);
            if slot != 0 && !is_link(slot) {
                word = with_overflow(word, slot & !REFERENCE_BITS);
            }
        }
        behind = Wide::linked(bucket);
    }
    word
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::wide::SLOTS;
    use super::*;

    #[test]
    fn a_word_never_denies_an_entry_of_its_bucket() {
        for tag in 1..0xffffu64 {
            let tag = tag << TAG_SHIFT;
            for at in 0..SLOTS {
                assert!(may_hold(with_slot(0, at, tag), tag));
                let others = (0..SLOTS).filter(|other| *other != at);
                let word = others.fold(0, |word, other| with_slot(word, other, 77 << TAG_SHIFT));
                assert!(may_hold(with_slot(word, at, tag), tag));
                let others_too = byte(77 << TAG_SHIFT) == byte(tag);
                let expected = if others_too { HIGH } else { 0x80 << (8 * at) };
                assert_eq!(slots_with(with_slot(word, at, tag), tag), expected);
                assert_eq!(slots_with(word, tag) & 0x80 << (8 * at), 0);
                assert_eq!(without_slot(with_slot(word, at, tag), at), word);
            }
            assert!(may_lead_to(with_overflow(LINKED, tag), tag));
            assert!(!may_hold(0, tag) && !may_lead_to(0, tag) && !may_lead_to(LINKED, tag));
            for at in 0..SLOTS - 1 {
                let word = with_overflow(with_slot(LINKED, at, tag), tag);
                assert!(may_hold(word, tag) && may_lead_to(word, tag));
                assert!(may_lead_to(without_slot(word, at), tag));
            }
        }
    }
}
