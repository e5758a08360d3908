//! Unused buffers, kept for later use. A new buffer is dear: while it grows, the kernel clears its
//! pages one at a time, and each growth copies its contents.
//!
//! The pool follows the need: of the buffers that stayed unused between two calls of
//! [`BufferPool::tidy`], half are freed.

use std::ops::RangeInclusive;

/// The most memory that a buffer gets at once, as a multiple of its contents. More would let a peer
/// that sends little take much of the budget of all connections. Less would make the buffer grow
/// twice for a message of 256 KiB, and a copy of 200 KiB into new memory takes 150 us.
pub const GROWTH_MAX: usize = 6;

/// A container with allocated memory.
pub trait Buffer: Default {
    /// Returns the bytes for which it has memory.
    fn capacity(&self) -> usize;

    /// Drops its contents and keeps its memory.
    fn clear(&mut self);
}

impl Buffer for Vec<u8> {
    fn capacity(&self) -> usize {
        self.capacity()
    }

    fn clear(&mut self) {
        self.clear();
    }
}

/// A pool of unused buffers. See the module's documentation.
#[derive(Debug)]
pub struct BufferPool<B> {
    unused: Vec<B>,
    /// The lowest number of unused buffers since the last call of `tidy`.
    fewest: usize,
    count_max: usize,
    of_use: RangeInclusive<usize>,
}

impl<B: Buffer> BufferPool<B> {
    /// Returns a pool of at most `count_max` buffers, each with memory for a number of bytes in
    /// `of_use`.
    #[must_use]
    pub fn new(count_max: usize, of_use: RangeInclusive<usize>) -> BufferPool<B> {
        BufferPool { unused: Vec::new(), fewest: 0, count_max, of_use }
    }

    /// Keeps a buffer, or frees it.
    pub fn keep(&mut self, mut buffer: B) {
        if self.of_use.contains(&buffer.capacity()) && self.unused.len() < self.count_max {
            buffer.clear();
            self.unused.push(buffer);
        }
    }

    /// Returns an empty buffer, with memory if the pool has one.
    pub fn take(&mut self) -> B {
        let buffer = self.unused.pop().unwrap_or_default();
        self.fewest = self.fewest.min(self.unused.len());
        buffer
    }

    /// Whether the pool is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.unused.is_empty()
    }

    /// Frees half of the buffers that stayed unused since the last call.
    pub fn tidy(&mut self) {
        let gone = self.fewest.div_ceil(2);
        self.unused.drain(..gone);
        self.fewest = self.unused.len();
    }
}

impl BufferPool<Vec<u8>> {
    /// Moves a short buffer's contents into a buffer from the pool, if there is one. Without one,
    /// the buffer gets memory for `bytes_expected`, but not for more than [`GROWTH_MAX`] times its
    /// contents: a peer's claim of a length takes memory only as its bytes arrive.
    pub fn lengthen(&mut self, buffer: &mut Vec<u8>, bytes_expected: usize) {
        let wanted = bytes_expected.min(GROWTH_MAX * buffer.len());
        let longer = if self.unused.last().is_some_and(|it| it.capacity() > buffer.capacity()) {
            self.take()
        } else if wanted > buffer.capacity() {
            // To grow it in place would copy its whole capacity.
            Vec::with_capacity(wanted)
        } else {
            return;
        };
        let short = std::mem::replace(buffer, longer);
        buffer.extend_from_slice(&short);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The allowed capacities.
    const OF_USE: RangeInclusive<usize> = 100..=1000;

    proptest! {
        #[test]
        fn kept_buffers_are_empty_of_allowed_capacity_and_limited(
            steps in prop::collection::vec((0..3u8, 0..2000usize), 0..100),
        ) {
            let mut pool = BufferPool::<Vec<u8>>::new(4, OF_USE);
            for (step, bytes) in steps {
                match step {
                    0 => pool.keep(vec![7; bytes]),
                    1 => {
                        let was_empty = pool.is_empty();
                        let buffer = pool.take();
                        prop_assert!(buffer.is_empty());
                        prop_assert_eq!(OF_USE.contains(&buffer.capacity()), !was_empty);
                    }
                    _ => pool.tidy(),
                }
                prop_assert!(pool.unused.len() <= 4);
                prop_assert!(pool.fewest <= pool.unused.len());
            }
        }
    }

    #[test]
    fn a_short_buffer_moves_its_contents_into_a_longer_kept_one() {
        let mut pool = BufferPool::<Vec<u8>>::new(4, OF_USE);
        let mut buffer = vec![1, 2, 3];
        pool.keep(Vec::with_capacity(500));
        pool.lengthen(&mut buffer, 4);
        assert_eq!(buffer, [1, 2, 3]);
        assert!(buffer.capacity() >= 500 && pool.is_empty());
        // A kept buffer that is no longer stays in the pool.
        pool.keep(Vec::with_capacity(200));
        let before = buffer.capacity();
        pool.lengthen(&mut buffer, 4);
        assert_eq!((buffer.capacity(), pool.is_empty()), (before, false));
    }

    #[test]
    fn without_a_kept_buffer_one_grows_to_the_expected_length_within_a_bound() {
        let mut pool = BufferPool::<Vec<u8>>::new(4, OF_USE);
        for (expected, capacity) in [(700, 700), (usize::MAX, GROWTH_MAX * 200), (100, 200)] {
            let mut buffer = Vec::with_capacity(200);
            buffer.resize(200, 7);
            pool.lengthen(&mut buffer, expected);
            assert_eq!(buffer.capacity(), capacity);
            assert_eq!(buffer, [7; 200]);
        }
    }

    #[test]
    fn unused_buffers_are_freed_and_used_ones_stay() {
        let mut pool = BufferPool::<Vec<u8>>::new(4, OF_USE);
        (0..4).for_each(|_| pool.keep(Vec::with_capacity(500)));
        for _ in 0..10 {
            let two = [pool.take(), pool.take()];
            two.into_iter().for_each(|buffer| pool.keep(buffer));
            pool.tidy();
        }
        assert_eq!(pool.unused.len(), 2);
        (0..3).for_each(|_| pool.tidy());
        assert!(pool.is_empty(), "unused buffers are freed");
    }
}
