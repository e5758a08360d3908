//! Random numbers that a seed gives again.

/// A generator of random numbers: SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Returns the generator of one sequence of a run.
    pub(super) fn new(seed: u64, sequence: u64) -> Random {
        let mut random = Random(seed ^ sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Neighbouring seeds begin alike.
        random.next();
        random
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below a limit; 0 for the limit 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        // A limit is at most some thousands, so the low bits are even enough.
        (self.next() >> 11) as usize % limit.max(1)
    }

    /// Returns a number from one to another, both included.
    pub(super) fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// Whether an event happens that happens once in so many times.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns one of some items. There must be one.
    pub(super) fn of<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_sequences_differ() {
        let numbers = |seed, sequence| {
            let mut random = Random::new(seed, sequence);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
        assert_ne!(numbers(1, 2), numbers(2, 2));
    }

    #[test]
    fn numbers_stay_in_their_bounds() {
        let mut random = Random::new(7, 0);
        for _ in 0..1000 {
            assert!(random.below(3) < 3);
            assert!((2..=4).contains(&random.between(2, 4)));
        }
        assert_eq!(random.below(0), 0);
    }
}
