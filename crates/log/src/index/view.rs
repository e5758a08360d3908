//! A cleaner's view of an index: enough to find a slot and to swap the reference in it.
//!
//! The view also keeps the index's memory alive. When the index is dropped, its blocks go back with
//! the last view, that is, when no cleaner can be inside any more.

use super::blocks::{BlockSource, Blocks, Layout};
use super::form::Form;
use crate::memory::quiescence::Guard;
use crate::sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, lock, spin_loop};
use std::sync::Mutex;

/// The addresses of an index's blocks.
pub(super) struct Directory<B> {
    blocks: Vec<AtomicPtr<B>>,
}

impl<B> Directory<B> {
    fn with_capacity(capacity: usize) -> Directory<B> {
        let empty = || AtomicPtr::new(std::ptr::null_mut());
        Directory { blocks: (0..capacity).map(|_| empty()).collect() }
    }
}

/// See the module's documentation.
pub(crate) struct View<F: Form> {
    layout: Layout,
    directory: AtomicPtr<Directory<F::Bucket>>,
    buckets: AtomicUsize,
    /// Odd while slots are being moved.
    epoch: AtomicU64,
    leave: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

/// Proof that slots are being moved.
pub(super) struct Moving(u64);

impl<F: Form> View<F> {
    pub(super) fn new<S: BlockSource>(blocks: &Blocks<S, F::Bucket>) -> View<F> {
        let directory = Directory::with_capacity(4);
        for (entry, block) in directory.blocks.iter().zip(&blocks.list) {
            entry.store(block.as_ptr(), Ordering::Relaxed);
        }
        View {
            layout: blocks.layout,
            directory: AtomicPtr::new(Box::into_raw(Box::new(directory))),
            buckets: AtomicUsize::new(1),
            epoch: AtomicU64::new(0),
            leave: Mutex::new(None),
        }
    }

    /// Swaps the reference of a hash, if the index still has the old one. The guard must be of the
    /// log's readers.
    pub(super) fn relocate(&self, guard: &Guard<'_>, hash: u64, old: u64, new: u64) -> bool {
        let tag = F::tag_of(hash);
        loop {
            let epoch = self.epoch.load(Ordering::Acquire);
            if epoch & 1 == 0 {
                if self.try_swap(guard, hash, tag | old, tag | new) {
                    return true;
                }
                if self.epoch.load(Ordering::Acquire) == epoch {
                    return false;
                }
            }
            spin_loop();
        }
    }

    fn try_swap(&self, guard: &Guard<'_>, hash: u64, old: u64, new: u64) -> bool {
        let mut bucket = Some(self.bucket(guard, hash));
        while let Some(current) = bucket {
            if let Some(swapped) = F::relocate(current, old, new) {
                return swapped;
            }
            bucket = F::linked(current);
        }
        false
    }

    /// Prefetches the bucket of a hash.
    #[inline]
    pub(super) fn prefetch(&self, guard: &Guard<'_>, hash: u64) {
        crate::prefetch::read(std::ptr::from_ref(self.bucket(guard, hash)).cast());
    }

    #[inline]
    fn bucket<'a>(&'a self, _guard: &'a Guard<'_>, hash: u64) -> &'a F::Bucket {
        // The number of buckets is loaded before the directory, which has at least as many.
        let buckets = self.buckets.load(Ordering::Acquire);
        let mask = (buckets as u64).next_power_of_two() - 1;
        let mut number = (hash & mask) as usize;
        if number >= buckets {
            number = (hash & (mask >> 1)) as usize;
        }
        let (block, at) = self.layout.locate(number);
        // SAFETY: directories are retired through the readers, and the guard says that this reader
        // is inside: neither the directory nor a block that it names is freed before it leaves.
        unsafe {
            let directory = &*self.directory.load(Ordering::Acquire);
            &*directory.blocks[block].load(Ordering::Acquire).add(at)
        }
    }

    /// Begins to move slots. Reactor only, like all functions below.
    pub(super) fn begin(&self) -> Moving {
        let epoch = self.epoch.load(Ordering::Relaxed);
        // Moves after this store with release, so a thread that sees a move sees this epoch.
        self.epoch.store(epoch + 1, Ordering::Release);
        Moving(epoch + 1)
    }

    pub(super) fn end(&self, moving: Moving) {
        self.epoch.store(moving.0 + 1, Ordering::Release);
    }

    pub(super) fn set_buckets(&self, buckets: usize) {
        self.buckets.store(buckets, Ordering::Release);
    }

    /// Enters all blocks into the directory.
    pub(super) fn use_directory<S: BlockSource>(&self, blocks: &mut Blocks<S, F::Bucket>) {
        if blocks.published == blocks.list.len() {
            return;
        }
        let current = self.directory.load(Ordering::Relaxed);
        // SAFETY: only this thread replaces the directory, and only below, when this borrow has
        // ended.
        let directory = unsafe { &*current };
        if blocks.list.len() <= directory.blocks.len() {
            for at in blocks.published..blocks.list.len() {
                directory.blocks[at].store(blocks.list[at].as_ptr(), Ordering::Release);
            }
        } else {
            let larger = Directory::with_capacity(blocks.list.len() * 2);
            for (entry, block) in larger.blocks.iter().zip(&blocks.list) {
                entry.store(block.as_ptr(), Ordering::Relaxed);
            }
            self.directory.store(Box::into_raw(Box::new(larger)), Ordering::Release);
            // SAFETY: it came from a box and no other code frees it.
            blocks.retire_directory(unsafe { Box::from_raw(current) });
        }
        blocks.published = blocks.list.len();
    }

    /// Registers work to do when the last view is dropped.
    pub(super) fn leave(&self, last: Box<dyn FnOnce() + Send>) {
        *lock(&self.leave) = Some(last);
    }
}

impl<F: Form> Drop for View<F> {
    fn drop(&mut self) {
        if let Some(last) = lock(&self.leave).take() {
            last();
        }
        let directory = self.directory.load(Ordering::Relaxed);
        // SAFETY: the last view is gone, and retired directories belong to the index.
        drop(unsafe { Box::from_raw(directory) });
    }
}
