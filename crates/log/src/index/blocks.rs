//! The memory of an index: blocks of primary buckets, and overflow buckets cut out of small ones.
//!
//! ```text
//!  block:    0      1      2       3        4          5 …
//!  buckets:  B/16   B/16   B/8     B/4      B/2        B …        B = buckets of a full block
//! ```
//!
//! Blocks go back to their source only when every reader that may be inside has left. Overflow
//! buckets are taken from the lowest block that has a free one. So the highest blocks become empty
//! when the index shrinks, and can go back as a whole.

use crate::memory::quiescence::{Readers, Stamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ptr::NonNull;
use std::sync::Arc;

/// A cache line of an index.
///
/// # Safety
/// All-zero bytes must be a valid line, an empty one. Except in models, it has [`LINE_BYTES`] and
/// is aligned to as many.
pub(crate) unsafe trait Line: Send + Sync + 'static {
    /// An empty line.
    #[cfg(test)]
    fn empty() -> Self;
}

pub(crate) const LINE_BYTES: usize = 64;

/// Gives and takes back memory for buckets.
pub(crate) trait BlockSource: Clone + Send + 'static {
    /// Memory for that many buckets, a power of two, all empty.
    fn allocate<B: Line>(&self, buckets: usize) -> Option<NonNull<B>>;

    /// Takes a block back.
    ///
    /// # Safety
    /// The block came from this source with this size, and no thread can reach it any more.
    unsafe fn free<B: Line>(&self, block: NonNull<B>, buckets: usize);
}

/// A block's address, to be sent to the thread that frees it.
pub(super) struct Block<B>(NonNull<B>);

// SAFETY: it is an address; the code that takes it out answers for its use.
unsafe impl<B> Send for Block<B> {}

impl<B> Block<B> {
    pub(super) fn into_inner(self) -> NonNull<B> {
        self.0
    }
}

/// The map from bucket numbers to blocks.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    block_buckets: usize,
    block_shift: u32,
    first: usize,
    first_shift: u32,
    small: usize,
}

impl Layout {
    fn new(block_buckets: usize) -> Layout {
        assert!(block_buckets.is_power_of_two());
        let first = (block_buckets / 16).max(1);
        Layout {
            block_buckets,
            block_shift: block_buckets.trailing_zeros(),
            first,
            first_shift: first.trailing_zeros(),
            small: 1 + (block_buckets / first).ilog2() as usize,
        }
    }

    /// The block of a bucket and its place there.
    #[inline(always)]
    pub(super) fn locate(&self, number: usize) -> (usize, usize) {
        if number >= self.block_buckets {
            let block = self.small + (number >> self.block_shift) - 1;
            (block, number & (self.block_buckets - 1))
        } else if number < self.first {
            (0, number)
        } else {
            let doublings = (number >> self.first_shift).ilog2();
            (1 + doublings as usize, number - (self.first << doublings))
        }
    }

    fn buckets_of(&self, block: usize) -> usize {
        match block {
            0 => self.first,
            _ if block < self.small => self.first << (block - 1),
            _ => self.block_buckets,
        }
    }

    /// The number of a block's first bucket.
    fn start_of(&self, block: usize) -> usize {
        match block {
            0 => 0,
            _ if block < self.small => self.first << (block - 1),
            _ => (block - self.small + 1) << self.block_shift,
        }
    }
}

/// The blocks of primary buckets.
pub(crate) struct Blocks<S, B> {
    source: S,
    readers: Arc<Readers>,
    pub(super) layout: Layout,
    pub(super) list: Vec<NonNull<B>>,
    /// The number of blocks of the list that the view's directory has.
    pub(super) published: usize,
    limbo: Vec<(Stamp, NonNull<B>, usize)>,
    /// Directories that readers may still be using.
    pub(super) directories: Vec<(Stamp, Box<super::view::Directory<B>>)>,
}

// SAFETY: the addresses are of blocks that belong to this index alone; it moves between threads
// as a whole.
unsafe impl<S: Send, B> Send for Blocks<S, B> {}

impl<S: BlockSource, B: Line> Blocks<S, B> {
    pub(super) fn new(source: S, readers: Arc<Readers>, block_buckets: usize) -> Blocks<S, B> {
        Blocks {
            source,
            readers,
            layout: Layout::new(block_buckets),
            list: Vec::new(),
            published: 0,
            limbo: Vec::new(),
            directories: Vec::new(),
        }
    }

    pub(super) fn source(&self) -> S {
        self.source.clone()
    }

    pub(super) fn first_buckets(&self) -> usize {
        self.layout.first
    }

    #[inline(always)]
    pub(super) fn bucket(&self, number: usize) -> &B {
        let (block, at) = self.layout.locate(number);
        // SAFETY: `grow_to` allocated the block before the index had this bucket, and blocks are
        // kept until the index has no bucket of them any more.
        unsafe { self.list[block].add(at).as_ref() }
    }

    /// The number of primary buckets that one more block allows.
    pub(super) fn with_one_more(&self) -> usize {
        self.layout.start_of(self.list.len() + 1)
    }

    /// Makes room for `buckets` primary buckets.
    pub(super) fn grow_to(&mut self, buckets: usize) -> bool {
        while self.layout.start_of(self.list.len()) < buckets {
            let size = self.layout.buckets_of(self.list.len());
            let Some(block) = self.source.allocate(size) else { return false };
            self.list.push(block);
        }
        true
    }

    /// Retires blocks beyond `buckets` primary buckets.
    pub(super) fn shrink_to(&mut self, buckets: usize) {
        while self.list.len() > 1 && self.layout.start_of(self.list.len() - 1) >= buckets {
            let size = self.layout.buckets_of(self.list.len() - 1);
            let Some(block) = self.list.pop() else { return };
            self.retire(block, size);
        }
        self.published = self.published.min(self.list.len());
    }

    fn retire(&mut self, block: NonNull<B>, buckets: usize) {
        self.limbo.push((self.readers.stamp(), block, buckets));
    }

    pub(super) fn retire_directory(&mut self, directory: Box<super::view::Directory<B>>) {
        self.directories.push((self.readers.stamp(), directory));
    }

    /// Gives back retired memory that no reader can reach any more.
    pub(super) fn free_limbo(&mut self) {
        if self.limbo.is_empty() && self.directories.is_empty() {
            return;
        }
        let Blocks { source, readers, limbo, directories, .. } = self;
        limbo.retain(|(stamp, block, buckets)| {
            let passed = readers.passed(*stamp);
            if passed {
                // SAFETY: it was unlinked before the stamp and every reader has left since.
                unsafe { source.free(*block, *buckets) };
            }
            !passed
        });
        directories.retain(|(stamp, _)| !readers.passed(*stamp));
    }

    /// Gives everything back: no reader has seen it yet.
    pub(super) fn give_all_back(&mut self) {
        for (block, buckets) in self.take_all() {
            // SAFETY: the index for which the blocks were taken was never completed.
            unsafe { self.source.free(block.into_inner(), buckets) };
        }
    }

    /// Takes everything out that goes back with the last view.
    pub(super) fn take_all(&mut self) -> Vec<(Block<B>, usize)> {
        let sizes: Vec<usize> =
            (0..self.list.len()).map(|block| self.layout.buckets_of(block)).collect();
        let list = self.list.drain(..).zip(sizes);
        let limbo = self.limbo.drain(..).map(|(_, block, buckets)| (block, buckets));
        list.chain(limbo).map(|(block, buckets)| (Block(block), buckets)).collect()
    }
}

/// The overflow buckets of an index.
pub(super) struct Overflow<B> {
    block_buckets: usize,
    blocks: Vec<OverflowBlock<B>>,
    by_address: BTreeMap<usize, usize>,
    /// Free buckets, as block and place; buckets of retired blocks are skipped.
    free: BinaryHeap<Reverse<(usize, usize)>>,
    free_count: usize,
    /// The number of free buckets that are kept for promises.
    promised: usize,
    /// Blocks that became empty, to retire when there are too many free buckets.
    empty: Vec<usize>,
}

struct OverflowBlock<B> {
    block: NonNull<B>,
    used: usize,
    gone: bool,
}

// SAFETY: as for `Blocks`.
unsafe impl<B> Send for Overflow<B> {}

impl<B: Line> Overflow<B> {
    pub(super) fn new(block_buckets: usize) -> Overflow<B> {
        Overflow {
            block_buckets,
            blocks: Vec::new(),
            by_address: BTreeMap::new(),
            free: BinaryHeap::new(),
            free_count: 0,
            promised: 0,
            empty: Vec::new(),
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn free_buckets(&self) -> usize {
        self.free_count
    }

    /// Keeps a bucket until the promise is [redeemed](Overflow::redeem), right before the bucket is
    /// taken.
    #[inline]
    pub(super) fn promise<S: BlockSource>(&mut self, blocks: &mut Blocks<S, B>) -> bool {
        let kept = self.ensure(1, blocks);
        self.promised += usize::from(kept);
        kept
    }

    pub(super) fn promised(&self) -> usize {
        self.promised
    }

    #[inline]
    pub(super) fn redeem(&mut self) {
        self.promised -= 1;
    }

    /// Makes sure that `count` buckets can be taken, beside the promised ones.
    #[inline]
    pub(super) fn ensure<S: BlockSource>(
        &mut self,
        count: usize,
        blocks: &mut Blocks<S, B>,
    ) -> bool {
        while self.free_count < count + self.promised {
            let Some(block) = blocks.source.allocate::<B>(self.block_buckets) else { return false };
            let number = self.blocks.len();
            self.by_address.insert(block.as_ptr().addr(), number);
            self.blocks.push(OverflowBlock { block, used: 0, gone: false });
            self.free.extend((0..self.block_buckets).map(|at| Reverse((number, at))));
            self.free_count += self.block_buckets;
        }
        true
    }

    pub(super) fn take<S: BlockSource>(&mut self, blocks: &mut Blocks<S, B>) -> Option<NonNull<B>> {
        self.ensure(1, blocks).then(|| self.take_ensured())
    }

    /// Takes a bucket, after [`Overflow::ensure`].
    pub(super) fn take_ensured(&mut self) -> NonNull<B> {
        loop {
            let Some(Reverse((number, at))) = self.free.pop() else {
                unreachable!("buckets were ensured")
            };
            let block = &mut self.blocks[number];
            if !block.gone {
                block.used += 1;
                self.free_count -= 1;
                // SAFETY: `at` is below the block's size.
                return unsafe { block.block.add(at) };
            }
        }
    }

    /// Takes an empty bucket back. A reader may still be walking through it.
    pub(super) fn give_back(&mut self, bucket: NonNull<B>) {
        let address = bucket.as_ptr().addr();
        let (start, number) = self
            .by_address
            .range(..=address)
            .next_back()
            .expect("an overflow bucket lies in one of the blocks");
        let at = (address - start) / size_of::<B>();
        let number = *number;
        self.free.push(Reverse((number, at)));
        self.free_count += 1;
        self.blocks[number].used -= 1;
        if self.blocks[number].used == 0 {
            self.empty.push(number);
        }
    }

    /// Retires empty blocks when many buckets are free.
    pub(super) fn release<S: BlockSource>(&mut self, blocks: &mut Blocks<S, B>) {
        while self.free_count > 2 * self.block_buckets + self.promised {
            let Some(number) = self.empty.pop() else { return };
            let block = &mut self.blocks[number];
            if block.used == 0 && !block.gone {
                block.gone = true;
                self.by_address.remove(&block.block.as_ptr().addr());
                self.free_count -= self.block_buckets;
                blocks.retire(block.block, self.block_buckets);
            }
        }
    }

    pub(super) fn take_all(&mut self) -> Vec<(Block<B>, usize)> {
        let size = self.block_buckets;
        let kept = self.blocks.drain(..).filter(|block| !block.gone);
        kept.map(|block| (Block(block.block), size)).collect()
    }
}

/// A source with a limited number of buckets, for tests and models.
#[cfg(test)]
#[derive(Clone)]
pub(crate) struct HeapBlocks {
    left: Arc<std::sync::atomic::AtomicUsize>,
    #[cfg(not(loom))]
    arena: Arc<std::sync::Mutex<Arena>>,
}

/// Lines from one piece of memory, like the lines of a log's index.
#[cfg(all(test, not(loom)))]
struct Arena {
    memory: NonNull<u8>,
    layout: std::alloc::Layout,
    used: usize,
    /// Offsets that were given back, by size.
    free: BTreeMap<usize, Vec<usize>>,
}

// SAFETY: the address is of memory that belongs to this value alone.
#[cfg(all(test, not(loom)))]
unsafe impl Send for Arena {}

#[cfg(all(test, not(loom)))]
impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
impl HeapBlocks {
    pub(crate) fn new(buckets: usize) -> HeapBlocks {
        HeapBlocks {
            left: Arc::new(buckets.into()),
            #[cfg(not(loom))]
            arena: {
                // Blocks of one size are not joined to others, so some more are needed. A small
                // alignment lets the allocator hand out untouched pages.
                let bytes = (4 * buckets + 1024) * LINE_BYTES;
                let layout = std::alloc::Layout::from_size_align(bytes, 16).unwrap();
                // SAFETY: the layout is not empty.
                let memory = unsafe { std::alloc::alloc_zeroed(layout) };
                let memory = NonNull::new(memory).unwrap();
                let used = memory.as_ptr().align_offset(LINE_BYTES);
                Arc::new(std::sync::Mutex::new(Arena {
                    memory,
                    layout,
                    used,
                    free: BTreeMap::new(),
                }))
            },
        }
    }

    #[cfg(not(loom))]
    pub(crate) fn left(&self) -> usize {
        self.left.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[cfg(not(loom))]
    pub(crate) fn set_left(&self, buckets: usize) {
        self.left.store(buckets, std::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(test)]
impl BlockSource for HeapBlocks {
    fn allocate<B: Line>(&self, buckets: usize) -> Option<NonNull<B>> {
        use std::sync::atomic::Ordering::Relaxed;
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(buckets)).ok()?;
        #[cfg(loom)]
        let block = {
            let block: Box<[B]> = (0..buckets).map(|_| B::empty()).collect();
            Box::into_raw(block).cast::<B>()
        };
        #[cfg(not(loom))]
        let block = {
            let arena = &mut *self.arena.lock().unwrap();
            let at = arena.free.get_mut(&buckets).and_then(Vec::pop).unwrap_or_else(|| {
                let at = arena.used;
                arena.used += buckets * size_of::<B>();
                assert!(arena.used <= arena.layout.size(), "the arena is too small for the test");
                at
            });
            // SAFETY: these lines of the arena belong to this block alone.
            let block = unsafe { arena.memory.as_ptr().add(at).cast::<B>() };
            for line in 0..buckets {
                // SAFETY: as above.
                unsafe { block.add(line).write(B::empty()) };
            }
            block
        };
        NonNull::new(block)
    }

    unsafe fn free<B: Line>(&self, block: NonNull<B>, buckets: usize) {
        self.left.fetch_add(buckets, std::sync::atomic::Ordering::Relaxed);
        #[cfg(loom)]
        {
            let slice = std::ptr::slice_from_raw_parts_mut(block.as_ptr(), buckets);
            // SAFETY: `allocate` made it from a boxed slice of this length; the caller does not use
            // it any more.
            drop(unsafe { Box::from_raw(slice) });
        }
        #[cfg(not(loom))]
        {
            let arena = &mut *self.arena.lock().unwrap();
            let at = block.as_ptr().addr() - arena.memory.as_ptr().addr();
            arena.free.entry(buckets).or_default().push(at);
        }
    }
}
