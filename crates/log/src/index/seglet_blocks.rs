//! The source of index blocks: seglets of the log's memory, so that one bound holds for both.
//!
//! A block of a seglet's size is a seglet. Smaller blocks, with which small tables begin, share
//! seglets: each is cut into sixteen units, and bits say which of them are free. A seglet whose
//! units are all free goes back to the memory.
//!
//! The reactor takes blocks, a few times a second at most. A cleaner may give blocks back, if it
//! was the last to look at a dropped index: hence a lock, held for nanoseconds.

use super::{BlockSource, LINE_BYTES, Line};
use crate::memory::Memory;
use crate::sync::lock;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

const UNITS: usize = 16;

/// Index blocks from a memory's seglets. Clones have the shared seglets in common.
#[derive(Clone)]
pub(crate) struct IndexBlocks {
    memory: Arc<Memory>,
    /// Seglets that must stay free for more urgent purposes.
    keep: usize,
    shared: Arc<Mutex<Vec<SharedSeglet>>>,
}

struct SharedSeglet {
    number: u32,
    /// A bit for each unit that is free.
    free: u16,
}

impl IndexBlocks {
    pub(crate) fn new(memory: Arc<Memory>, keep: usize) -> IndexBlocks {
        IndexBlocks { memory, keep, shared: Arc::default() }
    }

    /// Buckets of a full block.
    pub(crate) fn block_buckets(memory: &Memory) -> usize {
        memory.seglet_bytes() / LINE_BYTES
    }

    fn unit_bytes(&self) -> usize {
        self.memory.seglet_bytes() / UNITS
    }

    fn take_seglet(&self) -> Option<u32> {
        let number = self.memory.take(self.keep)?;
        self.memory.count_index_seglet(true);
        Some(number)
    }

    fn return_seglet(&self, number: u32) {
        self.memory.count_index_seglet(false);
        self.memory.give_back(number);
    }

    /// The bits of `units` units, the first of them at `at`.
    fn mask(at: usize, units: usize) -> u16 {
        (((1u32 << units) - 1) << at) as u16
    }

    fn take_units(&self, units: usize) -> Option<*mut u8> {
        let mut shared = lock(&self.shared);
        for seglet in shared.iter_mut() {
            for at in (0..UNITS).step_by(units) {
                let mask = IndexBlocks::mask(at, units);
                if seglet.free & mask == mask {
                    seglet.free &= !mask;
                    let start = self.memory.seglet_start(seglet.number);
                    return Some(self.memory.at(start + (at * self.unit_bytes()) as u64));
                }
            }
        }
        let number = self.take_seglet()?;
        shared.push(SharedSeglet { number, free: !IndexBlocks::mask(0, units) });
        Some(self.memory.at(self.memory.seglet_start(number)))
    }

    fn return_units(&self, address: *mut u8, units: usize) {
        let reference = self.memory.reference_of(address);
        let number = self.memory.seglet_of(reference);
        let unit = (reference - self.memory.seglet_start(number)) as usize / self.unit_bytes();
        let mut shared = lock(&self.shared);
        let at = shared.iter().position(|seglet| seglet.number == number);
        let at = at.expect("a block that is given back was taken here");
        shared[at].free |= IndexBlocks::mask(unit, units);
        if shared[at].free == u16::MAX {
            shared.swap_remove(at);
            self.return_seglet(number);
        }
    }

    /// The units that hold this many buckets, a power of two; all of them for a whole seglet.
    fn units(&self, buckets: usize) -> usize {
        let bytes = buckets * LINE_BYTES;
        debug_assert!(bytes <= self.memory.seglet_bytes());
        bytes.div_ceil(self.unit_bytes()).next_power_of_two()
    }
}

impl BlockSource for IndexBlocks {
    fn allocate<B: Line>(&self, buckets: usize) -> Option<NonNull<B>> {
        #[cfg(not(loom))]
        const {
            assert!(size_of::<B>() == LINE_BYTES && align_of::<B>() == LINE_BYTES)
        };
        let units = self.units(buckets);
        let address = if units == UNITS {
            self.memory.at(self.memory.seglet_start(self.take_seglet()?))
        } else {
            self.take_units(units)?
        };
        // SAFETY: the units were just taken, so no other code uses them; they are as long as the
        // block. All-zero bytes are empty lines.
        unsafe { std::ptr::write_bytes(address, 0, buckets * LINE_BYTES) };
        NonNull::new(address.cast())
    }

    unsafe fn free<B: Line>(&self, block: NonNull<B>, buckets: usize) {
        let address = block.as_ptr().cast::<u8>();
        let units = self.units(buckets);
        if units == UNITS {
            self.return_seglet(self.memory.seglet_of(self.memory.reference_of(address)));
        } else {
            self.return_units(address, units);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Words;

    #[test]
    fn small_blocks_share_seglets_and_give_them_back() {
        let memory = Memory::with_seglets(64 * 4200, 4096).unwrap();
        let before = memory.free_seglets();
        let blocks = IndexBlocks::new(Arc::clone(&memory), 0);
        let full = IndexBlocks::block_buckets(&memory);
        let taken: Vec<_> = [4, 4, 8, 16, 32, full, 4]
            .into_iter()
            .map(|buckets| (blocks.allocate::<Words>(buckets).unwrap(), buckets))
            .collect();
        assert_eq!(memory.index_bytes() / 4096, 3, "one full block and two shared seglets");
        let mut addresses: Vec<_> = taken.iter().map(|(block, _)| block.as_ptr()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), taken.len());
        for (block, buckets) in taken {
            // SAFETY: the block was taken above and nothing refers to it.
            unsafe { blocks.free(block, buckets) };
        }
        assert_eq!((memory.free_seglets(), memory.index_bytes()), (before, 0));
    }

    #[test]
    fn blocks_leave_reserved_seglets_free() {
        let memory = Memory::with_seglets(64 * 4200, 4096).unwrap();
        let keep = memory.free_seglets() - 1;
        let blocks = IndexBlocks::new(Arc::clone(&memory), keep);
        let full = IndexBlocks::block_buckets(&memory);
        assert!(blocks.allocate::<Words>(full).is_some());
        assert!(blocks.allocate::<Words>(full).is_none());
    }
}
