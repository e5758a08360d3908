//! A bucket and the overflow buckets linked behind it.
//!
//! Every function here runs on the reactor. The functions that move slots are called while the
//! view's epoch is odd, and each move follows the rule of [`crate::index`]: new place first, then
//! the old place by compare-and-swap, carrying over the value that a cleaner may have stored
//! meanwhile.

use super::form::Form;
use std::ptr::NonNull;

fn get<'a, F: Form>(bucket: NonNull<F::Bucket>) -> &'a F::Bucket {
    // SAFETY: bucket memory of an index lives as long as the index, and all its fields are atomics.
    unsafe { bucket.as_ref() }
}

/// Hands every entry of the chain whose slot `belongs` to `take`, which moves it away.
pub(super) fn drain<F: Form>(
    first: NonNull<F::Bucket>,
    mut belongs: impl FnMut(u64) -> bool,
    mut take: impl FnMut((&F::Bucket, usize)),
) {
    let mut bucket = Some(get::<F>(first));
    while let Some(current) = bucket {
        bucket = F::linked(current);
        for at in 0..F::SLOTS {
            let held = F::held(current, at);
            if held != 0 && belongs(held) {
                take((current, at));
            }
        }
    }
}

/// Moves entries forward to fill gaps and gives back overflow buckets that become empty.
pub(super) fn tighten<F: Form>(
    first: NonNull<F::Bucket>,
    mut give_back: impl FnMut(NonNull<F::Bucket>),
) {
    while let Some((before, last)) = last_two::<F>(first) {
        let mut gap_in = get::<F>(first);
        let mut left = None;
        let mut count = 0;
        for at in (0..F::SLOTS).filter(|at| F::held(last, *at) != 0) {
            match next_gap::<F>(&mut gap_in, last) {
                Some(gap) => F::move_slot((last, at), gap),
                None => (left, count) = (Some(at), count + 1),
            }
        }
        match left {
            None => F::unlink(before),
            // The single entry takes the place of the link to its bucket.
            Some(at) if count == 1 && F::LINK_IS_A_SLOT => {
                F::move_slot((last, at), (before, F::SLOTS - 1));
            }
            Some(_) => return,
        }
        give_back(NonNull::from(last));
    }
}

/// The last bucket of a chain and the one before it, if there is more than one.
fn last_two<'a, F: Form>(first: NonNull<F::Bucket>) -> Option<(&'a F::Bucket, &'a F::Bucket)> {
    let mut before = get::<F>(first);
    let mut last = F::linked(before)?;
    while let Some(next) = F::linked(last) {
        (before, last) = (last, next);
    }
    Some((before, last))
}

/// Finds an empty slot of a chain before its last bucket, from `bucket` on; advances `bucket`.
fn next_gap<'a, F: Form>(
    bucket: &mut &'a F::Bucket,
    last: &'a F::Bucket,
) -> Option<(&'a F::Bucket, usize)> {
    while !std::ptr::eq(*bucket, last) {
        if let Some(at) = F::empty_slot(bucket) {
            return Some((bucket, at));
        }
        *bucket = F::linked(bucket)?;
    }
    None
}

/// A chain to which entries are moved.
pub(super) struct Chain<F: Form> {
    last: NonNull<F::Bucket>,
    overflow_buckets: usize,
}

impl<F: Form> Chain<F> {
    pub(super) fn of(bucket: &F::Bucket) -> Chain<F> {
        Chain::at(NonNull::from(bucket))
    }

    pub(super) fn at(first: NonNull<F::Bucket>) -> Chain<F> {
        let mut chain = Chain { last: first, overflow_buckets: 0 };
        while let Some(next) = F::linked(get::<F>(chain.last)) {
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
        slot: (&F::Bucket, usize),
        mut another: impl FnMut() -> NonNull<F::Bucket>,
    ) {
        let last = get::<F>(self.last);
        if let Some(empty) = F::empty_slot(last) {
            F::move_slot(slot, (last, empty));
            return;
        }
        let new = another();
        let empty = F::append(self.last, new);
        self.last = new;
        self.overflow_buckets += 1;
        F::move_slot(slot, (get::<F>(new), empty));
    }
}
