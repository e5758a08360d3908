//! Unused buffers, kept for later use. A new buffer is dear: while it grows, the kernel clears its
//! pages one at a time, and each growth copies its contents.
//!
//! The stock follows the need: of the buffers that stayed unused between two calls of
//! [`Spares::tidy`], half are freed.

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

/// A stock of unused buffers. See the module's documentation.
#[derive(Debug)]
pub struct Spares<B> {
    resting: Vec<B>,
    /// The lowest number of unused buffers since the last call of `tidy`.
    fewest: usize,
    count_max: usize,
    of_use: RangeInclusive<usize>,
}

impl<B: Buffer> Spares<B> {
    /// Returns a stock of at most `count_max` buffers, each with memory for a number of bytes in
    /// `of_use`.
    #[must_use]
    pub fn new(count_max: usize, of_use: RangeInclusive<usize>) -> Spares<B> {
        Spares { resting: Vec::new(), fewest: 0, count_max, of_use }
    }

    /// Keeps a buffer, or frees it.
    pub fn keep(&mut self, mut buffer: B) {
        if self.of_use.contains(&buffer.capacity()) && self.resting.len() < self.count_max {
            buffer.clear();
            self.resting.push(buffer);
        }
    }

    /// Returns an empty buffer, with memory if the stock has one.
    pub fn take(&mut self) -> B {
        let buffer = self.resting.pop().unwrap_or_default();
        self.fewest = self.fewest.min(self.resting.len());
        buffer
    }

    /// Whether the stock is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.resting.is_empty()
    }

    /// Frees half of the buffers that stayed unused since the last call.
    pub fn tidy(&mut self) {
        let gone = self.fewest.div_ceil(2);
        self.resting.drain(..gone);
        self.fewest = self.resting.len();
    }
}

impl Spares<Vec<u8>> {
    /// Moves a short buffer's contents into a buffer from the stock, if there is one.
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
            let mut spares = Spares::<Vec<u8>>::new(4, OF_USE);
            for (step, bytes) in steps {
                match step {
                    0 => spares.keep(vec![7; bytes]),
                    1 => {
                        let was_empty = spares.is_empty();
                        let buffer = spares.take();
                        prop_assert!(buffer.is_empty());
                        prop_assert_eq!(OF_USE.contains(&buffer.capacity()), !was_empty);
                    }
                    _ => spares.tidy(),
                }
                prop_assert!(spares.resting.len() <= 4);
                prop_assert!(spares.fewest <= spares.resting.len());
            }
        }
    }

    #[test]
    fn a_short_buffer_moves_its_contents_into_a_longer_kept_one() {
        let mut spares = Spares::<Vec<u8>>::new(4, OF_USE);
        let mut buffer = vec![1, 2, 3];
        spares.lengthen(&mut buffer);
        assert_eq!(buffer, [1, 2, 3]);
        spares.keep(Vec::with_capacity(500));
        spares.lengthen(&mut buffer);
        assert_eq!(buffer, [1, 2, 3]);
        assert!(buffer.capacity() >= 500 && spares.is_empty());
    }

    #[test]
    fn unused_buffers_are_freed_and_used_ones_stay() {
        let mut spares = Spares::<Vec<u8>>::new(4, OF_USE);
        (0..4).for_each(|_| spares.keep(Vec::with_capacity(500)));
        for _ in 0..10 {
            let two = [spares.take(), spares.take()];
            two.into_iter().for_each(|buffer| spares.keep(buffer));
            spares.tidy();
        }
        assert_eq!(spares.resting.len(), 2);
        (0..3).for_each(|_| spares.tidy());
        assert!(spares.is_empty(), "unused buffers are freed");
    }
}
