//! The cost of a dependent load from a random place: half of the floor of a read.

use anyhow::{Context, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::hint::black_box;
use std::time::Instant;
use thunderhead_load::machine;

/// Memory allocated like the log's: huge pages if the kernel gives them, all touched.
pub(super) struct Memory {
    base: *mut u8,
    bytes: usize,
    state: u64,
}

impl Memory {
    /// Maps the memory.
    ///
    /// # Errors
    /// When the machine has no room for it.
    pub(super) fn new(bytes: u64) -> Result<Memory> {
        machine::ensure_memory(bytes, "the load by taking --quick")?;
        let bytes = (bytes as usize).next_multiple_of(2 << 20);
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new private mapping at an address of the kernel's choice affects no other
        // memory.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
        let base = base.context("map memory to load from")?;
        // SAFETY: the range is the mapping just made; advice changes no byte of it.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        let memory = Memory { base: base.cast(), bytes, state: 1 };
        for page in (0..bytes).step_by(4096) {
            // SAFETY: within the mapping, which is ours alone.
            unsafe { memory.base.add(page).write_volatile(0) };
        }
        Ok(memory)
    }

    /// Returns the nanoseconds of a load, over many loads where every address depends on the result
    /// of the last one.
    pub(super) fn dependent_load(&mut self, loads: u64) -> f64 {
        let lines = (self.bytes / 64) as u64;
        let mut state = self.state;
        let began = Instant::now();
        for _ in 0..loads {
            // All bytes are zero, which the processor cannot know before it has loaded them.
            let line = ((u128::from(state) * u128::from(lines)) >> 64) as usize;
            // SAFETY: the line lies in the mapping, and so do the eight bytes from its start.
            let loaded = unsafe { self.base.add(line * 64).cast::<u64>().read_volatile() };
            state = (state ^ loaded).wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        }
        let took = began.elapsed();
        self.state = black_box(state);
        took.as_nanos() as f64 / loads as f64
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: no reference into the mapping exists, and it is not used again.
        let _ = unsafe { munmap(self.base.cast(), self.bytes) };
    }
}
