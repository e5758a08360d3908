//! Unused buffers, kept for later use. A new buffer is dear: while it grows, the kernel clears its
//! pages one at a time, and each growth copies its contents.
//!
//! The pool follows the need: of the buffers that stayed unused between two calls of
//! [`BufferPool::tidy`], half are freed.

use std::ops::RangeInclusive;

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
    /// Moves a short buffer's contents into a buffer from the pool, if there is one.
    pub fn lengthen(&mut self, buffer: &mut Vec<u8>) {
        if !self.is_empty() {
            let short = std::mem::replace(buffer, self.take());
            buffer.extend_from_slice(&short);
        }
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
        pool.lengthen(&mut buffer);
        assert_eq!(buffer, [1, 2, 3]);
        pool.keep(Vec::with_capacity(500));
        pool.lengthen(&mut buffer);
        assert_eq!(buffer, [1, 2, 3]);
        assert!(buffer.capacity() >= 500 && pool.is_empty());
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
