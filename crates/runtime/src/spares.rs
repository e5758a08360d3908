//! Buffers that nobody needs at the moment, kept for those who will: to let one grow anew is to have the kernel
//! clear its pages, one at a time, and to copy what is in it each time that it grows.
//!
//! What is kept is what is needed: of those that rested all the time between two calls of [`Spares::tidy`],
//! half go.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// Something that has memory.
pub trait Buffer: Default {
    /// Bytes for which it has memory.
    fn capacity(&self) -> usize;

    /// Forgets what is in it, and keeps the memory.
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

impl Buffer for VecDeque<u8> {
    fn capacity(&self) -> usize {
        self.capacity()
    }

    fn clear(&mut self) {
        self.clear();
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Spares<B> {
    resting: Vec<B>,
    /// The fewest that rested since they were tidied up.
    fewest: usize,
    count_max: usize,
    of_use: RangeInclusive<usize>,
}

impl<B: Buffer> Spares<B> {
    /// Keeps so many at most, each with memory for so many bytes.
    #[must_use]
    pub fn new(count_max: usize, of_use: RangeInclusive<usize>) -> Spares<B> {
        Spares { resting: Vec::new(), fewest: 0, count_max, of_use }
    }

    /// Keeps a buffer, or lets it go.
    pub fn keep(&mut self, mut buffer: B) {
        if self.of_use.contains(&buffer.capacity()) && self.resting.len() < self.count_max {
            buffer.clear();
            self.resting.push(buffer);
        }
    }

    /// An empty buffer: with memory, if one is kept.
    pub fn take(&mut self) -> B {
        let buffer = self.resting.pop().unwrap_or_default();
        self.fewest = self.fewest.min(self.resting.len());
        buffer
    }

    /// Whether none is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.resting.is_empty()
    }

    /// Lets half of those go that nobody needed since the last time.
    pub fn tidy(&mut self) {
        let gone = self.fewest.div_ceil(2);
        self.resting.drain(..gone);
        self.fewest = self.resting.len();
    }
}

impl Spares<Vec<u8>> {
    /// Moves what is in a short buffer into one that is kept, if there is one.
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

    /// Lengths of what is kept.
    const OF_USE: RangeInclusive<usize> = 100..=1000;

    proptest! {
        #[test]
        fn what_is_kept_is_empty_of_use_and_not_too_much(
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
    fn a_buffer_is_lengthened_where_a_longer_one_is_kept_and_keeps_what_is_in_it() {
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
    fn what_nobody_needs_goes_and_what_is_needed_stays() {
        let mut spares = Spares::<Vec<u8>>::new(4, OF_USE);
        (0..4).for_each(|_| spares.keep(Vec::with_capacity(500)));
        for _ in 0..10 {
            let two = [spares.take(), spares.take()];
            two.into_iter().for_each(|buffer| spares.keep(buffer));
            spares.tidy();
        }
        assert_eq!(spares.resting.len(), 2);
        (0..3).for_each(|_| spares.tidy());
        assert!(spares.is_empty(), "nobody needs them");
    }
}
