//! A bucket and the overflow buckets linked behind it, and the one way to move slots about.
//!
//! Every function here runs on the reactor. Those that move slots are called while the view's
//! epoch is odd, and each move follows the rule of [`crate::index`]: new place first, then the old
//! place by compare-and-swap, carrying over what a cleaner has stored meanwhile.

use super::{Bucket, LINK_TAG, REFERENCE_BITS, SLOTS, TAG_SHIFT, is_link, reference_in};
use crate::sync::{AtomicU64, Ordering};
use std::ptr::NonNull;

fn link_to(bucket: NonNull<Bucket>) -> u64 {
    let address = bucket.as_ptr().expose_provenance() as u64;
    assert!(address <= REFERENCE_BITS, "addresses of user space have 48 bits");
    LINK_TAG << TAG_SHIFT | address
}

/// The bucket linked behind this one.
#[inline]
pub(super) fn linked(bucket: &Bucket) -> Option<&Bucket> {
    let slot = bucket.slots[SLOTS - 1].load(Ordering::Acquire);
    if !is_link(slot) {
        return None;
    }
    let address = std::ptr::with_exposed_provenance::<Bucket>(reference_in(slot) as usize);
    // SAFETY: links are only made to overflow buckets of this index, whose memory is neither
    // given back nor used for anything else while a reader may be inside (`Overflow`).
    Some(unsafe { &*address })
}

fn get<'a>(bucket: NonNull<Bucket>) -> &'a Bucket {
    // SAFETY: bucket memory of an index lives as long as the index, and slots are atomics.
    unsafe { bucket.as_ref() }
}

/// The first empty slot of a bucket alone.
#[inline]
pub(super) fn empty_slot(bucket: &Bucket) -> Option<(usize, &AtomicU64)> {
    bucket.slots.iter().enumerate().find(|(_, slot)| slot.load(Ordering::Relaxed) == 0)
}

/// Links `new`, which is empty, behind `full`, which is full. Returns an empty slot of it.
pub(super) fn append<'a>(full: NonNull<Bucket>, new: NonNull<Bucket>) -> &'a AtomicU64 {
    let (last, new_bucket) = (&get(full).slots[SLOTS - 1], get(new));
    move_slot(last, &new_bucket.slots[0], link_to(new));
    &new_bucket.slots[1]
}

/// Moves what `from` holds to `to` and leaves `behind` in its place.
fn move_slot(from: &AtomicU64, to: &AtomicU64, behind: u64) {
    let mut value = from.load(Ordering::Acquire);
    loop {
        to.store(value, Ordering::Release);
        match from.compare_exchange(value, behind, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(newer) => value = newer,
        }
    }
}

/// Hands every entry of the chain whose slot `belongs` to `take`, which moves it away.
pub(super) fn drain(
    first: NonNull<Bucket>,
    mut belongs: impl FnMut(u64) -> bool,
    mut take: impl FnMut(&AtomicU64),
) {
    let mut bucket = Some(get(first));
    while let Some(current) = bucket {
        bucket = linked(current);
        for slot in &current.slots {
            let value = slot.load(Ordering::Acquire);
            if value != 0 && !is_link(value) && belongs(value) {
                take(slot);
            }
        }
    }
}

/// Moves entries forward to fill gaps and gives back overflow buckets that are left empty.
pub(super) fn tighten(first: NonNull<Bucket>, mut give_back: impl FnMut(NonNull<Bucket>)) {
    while let Some((before, last)) = last_two(first) {
        let mut gaps = Gaps { bucket: get(first), last, at: 0 };
        let mut left = 0;
        for slot in &last.slots {
            if slot.load(Ordering::Relaxed) == 0 {
                continue;
            }
            match gaps.next() {
                Some(gap) => move_slot(slot, gap, 0),
                None => left += 1,
            }
        }
        let link = &before.slots[SLOTS - 1];
        match left {
            0 => link.store(0, Ordering::Release),
            1 => {
                // The one entry takes the place of the link to it.
                let entry = last.slots.iter().find(|slot| slot.load(Ordering::Relaxed) != 0);
                if let Some(entry) = entry {
                    move_slot(entry, link, 0);
                }
            }
            _ => return,
        }
        give_back(NonNull::from(last));
    }
}

/// The last bucket of a chain and the one before it, if there is more than one.
fn last_two<'a>(first: NonNull<Bucket>) -> Option<(&'a Bucket, &'a Bucket)> {
    let mut before = get(first);
    let mut last = linked(before)?;
    while let Some(next) = linked(last) {
        (before, last) = (last, next);
    }
    Some((before, last))
}

/// The empty slots of a chain before its last bucket.
struct Gaps<'a> {
    bucket: &'a Bucket,
    last: &'a Bucket,
    at: usize,
}

impl<'a> Iterator for Gaps<'a> {
    type Item = &'a AtomicU64;

    fn next(&mut self) -> Option<&'a AtomicU64> {
        while !std::ptr::eq(self.bucket, self.last) {
            while self.at < SLOTS {
                let slot = &self.bucket.slots[self.at];
                self.at += 1;
                if slot.load(Ordering::Relaxed) == 0 {
                    return Some(slot);
                }
            }
            (self.bucket, self.at) = (linked(self.bucket)?, 0);
        }
        None
    }
}

/// A chain that entries are moved to.
pub(super) struct Chain {
    last: NonNull<Bucket>,
    overflow_buckets: usize,
}

impl Chain {
    pub(super) fn of(bucket: &Bucket) -> Chain {
        Chain::at(NonNull::from(bucket))
    }

    pub(super) fn at(first: NonNull<Bucket>) -> Chain {
        let mut chain = Chain { last: first, overflow_buckets: 0 };
        while let Some(next) = linked(get(chain.last)) {
            chain.last = NonNull::from(next);
            chain.overflow_buckets += 1;
        }
        chain
    }

    pub(super) fn overflow_buckets(&self) -> usize {
        self.overflow_buckets
    }

    /// Moves the entry in a slot of another chain to this one.
    pub(super) fn take_over(
        &mut self,
        slot: &AtomicU64,
        mut another: impl FnMut() -> NonNull<Bucket>,
    ) {
        if let Some((_, empty)) = empty_slot(get(self.last)) {
            move_slot(slot, empty, 0);
            return;
        }
        let new = another();
        let empty = append(self.last, new);
        self.last = new;
        self.overflow_buckets += 1;
        move_slot(slot, empty, 0);
    }
}
