//! The buffers of a store: which of them are free, and which are pinned by reads.

use crate::pool::{BufferNumber, Pool};
use std::collections::BTreeMap;

/// The reads under way of a buffer. It is not used again before they end.
#[derive(Default)]
struct Pin {
    reads: u32,
    /// The buffer becomes free when the last read ends.
    is_released: bool,
}

/// See the module's documentation.
pub(super) struct Buffers {
    pub(super) pool: Pool,
    free: Vec<BufferNumber>,
    pins: BTreeMap<BufferNumber, Pin>,
}

impl Buffers {
    /// Takes over a pool. A buffer that still holds a replica of a former process is not used.
    pub(super) fn new(pool: Pool) -> Buffers {
        let is_free = |buffer: &BufferNumber| pool.claimed(*buffer).is_none();
        let free = pool.numbers().rev().filter(is_free).collect();
        Buffers { free, pins: BTreeMap::new(), pool }
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes a free buffer. The caller claims it in the pool.
    pub(super) fn take(&mut self) -> Option<BufferNumber> {
        self.free.pop()
    }

    /// Releases a buffer after the last read of it has ended.
    pub(super) fn release(&mut self, buffer: BufferNumber) {
        if let Some(pin) = self.pins.get_mut(&buffer) {
            // The bytes still being read from it are on the disk, or of no use to the next
            // process.
            self.pool.drop_replica(buffer);
            pin.is_released = true;
            return;
        }
        self.pool.release(buffer);
        self.free.push(buffer);
    }

    pub(super) fn is_pinned(&self, buffer: BufferNumber) -> bool {
        self.pins.contains_key(&buffer)
    }

    /// Notes that a read of a buffer begins.
    pub(super) fn pin(&mut self, buffer: BufferNumber) {
        self.pins.entry(buffer).or_default().reads += 1;
    }

    /// Notes that a read of a buffer has ended.
    pub(super) fn unpin(&mut self, buffer: BufferNumber) {
        let Some(pin) = self.pins.get_mut(&buffer) else { return };
        pin.reads -= 1;
        if pin.reads > 0 {
            return;
        }
        let is_released = pin.is_released;
        self.pins.remove(&buffer);
        if is_released {
            self.release(buffer);
        }
    }
}
