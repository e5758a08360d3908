//! Random numbers: xoshiro256++ by Blackman and Vigna, seeded through their SplitMix64.
//!
//! Written by hand because a seed must give the same numbers for ever, even if libraries change:
//! tests keep seeds of simulations. Not for secrets.

use std::ops::Range;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Returns the stream of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Random {
        let mut from = seed;
        let state = std::array::from_fn(|_| {
            from = from.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = from;
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        });
        Random { state }
    }

    /// Returns a stream of its own, so that the draws of one part of a program do not change
    /// another's.
    #[must_use]
    pub fn split(&mut self) -> Random {
        Random::from_seed(self.number())
    }

    /// Returns any number.
    #[inline]
    pub fn number(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ b << 17, d.rotate_left(45)];
        result
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in a range, or its start if the range is empty.
    #[inline]
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// Returns true with a probability.
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    /// Returns a number from 0 up to but not including 1.
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number with an exponential distribution of this mean: the time until an event that
    /// may happen at any moment.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.fraction()).ln()
    }

    /// Returns a number in a range, with every order of magnitude equally likely, or the range's
    /// start if it is empty.
    pub fn magnitude(&mut self, range: Range<u64>) -> u64 {
        let (low, high) = ((range.start.max(1) as f64).ln(), (range.end.max(1) as f64).ln());
        let drawn = (low + self.fraction() * (high - low)).exp() as u64;
        drawn.min(range.end.saturating_sub(1)).max(range.start)
    }

    /// Returns one element of a slice.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len() as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_these_numbers_for_ever() {
        let mut random = Random::from_seed(42);
        let numbers: Vec<u64> = (0..3).map(|_| random.number()).collect();
        assert_eq!(
            numbers,
            [15_021_278_609_987_233_951, 5_881_210_131_331_364_753, 18_149_643_915_985_481_100]
        );
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::from_seed(1);
        for _ in 0..1000 {
            assert!(random.below(3) < 3);
            assert!((5..7).contains(&random.within(5..7)));
            assert!((0.0..1.0).contains(&random.fraction()));
            assert!(random.exponential(10.0) >= 0.0);
            assert!((3..70_000).contains(&random.magnitude(3..70_000)));
        }
        let small = (0..1000).filter(|_| random.magnitude(10..1000) < 100).count();
        assert!((400..600).contains(&small), "{small} of 1000 are of the first of two magnitudes");
        assert_eq!((random.below(0), random.magnitude(5..5)), (0, 5));
        assert_eq!(random.pick::<u8>(&[]), None);
    }
}
