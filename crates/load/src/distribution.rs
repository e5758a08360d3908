//! The distributions by which operations draw their objects.
//!
//! - *uniform*: every object with the same probability.
//! - *zipfian*: as in YCSB, by the method of Gray et al. ("Quickly generating billion-record
//!   synthetic databases"), with an exponent of 0.99; the popular objects are scattered over all.
//! - *latest*: the same law over the age of objects, so that the latest inserts are read most.
//! - *sequential*: one after another, in a cycle.

use thunderhead_runtime::Random;

/// The exponent of YCSB's zipfian law.
pub const THETA: f64 = 0.99;

/// A distribution of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Every object with the same probability.
    Uniform,
    /// YCSB's scrambled zipfian, exponent 0.99.
    Zipfian,
    /// Zipfian over the age of objects, newest first.
    Latest,
    /// One after another.
    Sequential,
}

/// Zipf's law over the ranks 0, 1, 2, …, whose number may grow.
#[derive(Clone, Debug)]
pub struct Zipf {
    ranks: u64,
    /// The sum of `1 / rank ^ theta` over all ranks, counted from 1.
    zeta: f64,
    eta: f64,
}

/// Returns the sum of `1 / i ^ theta` for i from `first` to `last`. Beyond some thousand terms it
/// uses the integral with the first two corrections of Euler and Maclaurin, which is as exact as
/// adding up.
fn sum(first: u64, last: u64) -> f64 {
    const EXACT: u64 = 10_000;
    let term = |i: f64| i.powf(-THETA);
    let exact_to = last.min(first.saturating_add(EXACT));
    let added: f64 = (first..=exact_to).map(|i| term(i as f64)).sum();
    if exact_to == last {
        return added;
    }
    let (a, b) = (exact_to as f64, last as f64);
    let integral = (b.powf(1.0 - THETA) - a.powf(1.0 - THETA)) / (1.0 - THETA);
    let slope = |i: f64| -THETA * i.powf(-THETA - 1.0);
    added + integral + (term(b) - term(a)) / 2.0 + (slope(b) - slope(a)) / 12.0
}

impl Zipf {
    /// Returns the law over this many ranks, at least one.
    #[must_use]
    pub fn new(ranks: u64) -> Zipf {
        let ranks = ranks.max(1);
        let mut zipf = Zipf { ranks, zeta: sum(1, ranks), eta: 0.0 };
        zipf.settle();
        zipf
    }

    fn settle(&mut self) {
        let share = 1.0 - (2.0 / self.ranks as f64).powf(1.0 - THETA);
        self.eta = share / (1.0 - sum(1, 2) / self.zeta);
    }

    /// Grows the number of ranks.
    pub fn grow(&mut self, ranks: u64) {
        if ranks > self.ranks {
            self.zeta += sum(self.ranks + 1, ranks);
            self.ranks = ranks;
            self.settle();
        }
    }

    /// Draws a rank; 0 is the most likely.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        let u = random.fraction();
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(THETA) {
            return 1.min(self.ranks - 1);
        }
        let power = 1.0 / (1.0 - THETA);
        let rank = self.ranks as f64 * (self.eta * u - self.eta + 1.0).powf(power);
        (rank as u64).min(self.ranks - 1)
    }
}

/// Draws objects by a distribution. Objects are numbered from 0 on.
#[derive(Clone, Debug)]
pub struct Draw {
    distribution: Distribution,
    random: Random,
    objects: u64,
    zipf: Option<Zipf>,
    next: u64,
}

impl Draw {
    /// Draws among this many objects.
    #[must_use]
    pub fn new(distribution: Distribution, objects: u64, seed: u64) -> Draw {
        let skewed = matches!(distribution, Distribution::Zipfian | Distribution::Latest);
        let mut random = Random::from_seed(seed);
        // Clients of a sequential load begin at different places.
        let next = random.below(objects);
        let zipf = skewed.then(|| Zipf::new(objects));
        Draw { distribution, random, objects, zipf, next }
    }

    /// Draws an object.
    #[inline]
    pub fn number(&mut self) -> u64 {
        match (self.distribution, &self.zipf) {
            (Distribution::Zipfian, Some(zipf)) => {
                scramble(zipf.draw(&mut self.random)) % self.objects
            }
            (Distribution::Latest, Some(zipf)) => self.objects - 1 - zipf.draw(&mut self.random),
            (Distribution::Sequential, _) => {
                let number = self.next;
                self.next = if number + 1 >= self.objects { 0 } else { number + 1 };
                number
            }
            _ => self.random.below(self.objects),
        }
    }

    /// Grows the number of objects.
    pub fn grow(&mut self, objects: u64) {
        self.objects = self.objects.max(objects);
        if let Some(zipf) = &mut self.zipf {
            zipf.grow(objects);
        }
    }

    /// Returns random numbers of the same stream, for other choices.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }
}

/// Scatters ranks, because neighbours in popularity must not be neighbours in memory.
#[inline]
fn scramble(rank: u64) -> u64 {
    let mixed = (rank ^ rank >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(draw: &mut Draw, objects: usize, draws: usize) -> Vec<u64> {
        let mut counts = vec![0; objects];
        (0..draws).for_each(|_| counts[draw.number() as usize] += 1);
        counts
    }

    /// Checks that draws have the given probabilities: the chi-square statistic stays below mean +
    /// 5 standard deviations.
    fn follows(counts: &[u64], chances: impl Fn(usize) -> f64) {
        let draws = counts.iter().sum::<u64>() as f64;
        let terms = counts.iter().enumerate().map(|(at, count)| {
            let expected = draws * chances(at);
            (*count as f64 - expected).powi(2) / expected
        });
        let (statistic, freedom) = (terms.sum::<f64>(), counts.len() as f64 - 1.0);
        let most = freedom + 5.0 * (2.0 * freedom).sqrt();
        assert!(statistic < most, "{statistic} of {most}");
    }

    #[test]
    fn uniform_draws_are_uniform() {
        let mut draw = Draw::new(Distribution::Uniform, 100, 1);
        follows(&counts(&mut draw, 100, 100_000), |_| 0.01);
    }

    #[test]
    fn sums_by_the_integral_equal_exact_sums() {
        for last in [1, 2, 10_001, 10_002, 300_000] {
            let exact: f64 = (1..=last).map(|i| (i as f64).powf(-THETA)).sum();
            assert!((sum(1, last) / exact - 1.0).abs() < 1e-9, "{last}");
        }
    }

    #[test]
    fn zipfian_ranks_have_the_probabilities_of_the_law() {
        // The method is exact for the first two ranks, and an approximation for the others.
        let (zipf, mut random) = (Zipf::new(1_000_000), Random::from_seed(2));
        let draws = 1_000_000;
        let mut counts = [0u64; 1000];
        for _ in 0..draws {
            let rank = zipf.draw(&mut random) as usize;
            if let Some(count) = counts.get_mut(rank) {
                *count += 1;
            }
        }
        let chance = |rank: usize| ((rank + 1) as f64).powf(-THETA) / zipf.zeta;
        for rank in [0, 1] {
            let expected = draws as f64 * chance(rank);
            assert!((counts[rank] as f64 - expected).abs() < 5.0 * expected.sqrt(), "{rank}");
        }
        let head: u64 = counts.iter().sum();
        let expected: f64 = (0..1000).map(chance).sum::<f64>() * draws as f64;
        assert!((head as f64 / expected - 1.0).abs() < 0.03, "{head} of {expected}");
    }

    #[test]
    fn scattered_ranks_are_everywhere_and_the_most_popular_stays() {
        let mut draw = Draw::new(Distribution::Zipfian, 1000, 3);
        let counts = counts(&mut draw, 1000, 200_000);
        let most = counts.iter().max().unwrap();
        let chance = 1.0 / sum(1, 1000);
        assert!((*most as f64 / 200_000.0) > chance * 0.95);
        let halves = (counts[..500].iter().sum::<u64>(), counts[500..].iter().sum::<u64>());
        assert!(halves.0 > 50_000 && halves.1 > 50_000, "{halves:?}");
    }

    #[test]
    fn the_latest_is_drawn_most_also_after_growth() {
        let mut draw = Draw::new(Distribution::Latest, 1000, 4);
        for objects in [1000usize, 5000] {
            draw.grow(objects as u64);
            let counts = counts(&mut draw, objects, 100_000);
            let (newest, most) = (counts[objects - 1], *counts.iter().max().unwrap());
            assert_eq!(newest, most);
            let expected = 100_000.0 / sum(1, objects as u64);
            assert!((newest as f64 - expected).abs() < 5.0 * expected.sqrt(), "{newest}");
        }
        let (grown, fresh) = (draw.zipf.unwrap(), Zipf::new(5000));
        assert!((grown.zeta - fresh.zeta).abs() < 1e-9 && (grown.eta - fresh.eta).abs() < 1e-9);
    }

    #[test]
    fn sequential_draws_visit_all() {
        let mut draw = Draw::new(Distribution::Sequential, 10, 5);
        assert_eq!(counts(&mut draw, 10, 30), [3; 10]);
    }

    #[test]
    fn every_distribution_draws_a_single_object() {
        use Distribution::{Latest, Sequential, Uniform, Zipfian};
        for distribution in [Uniform, Zipfian, Latest, Sequential] {
            let mut draw = Draw::new(distribution, 1, 6);
            assert!((0..100).all(|_| draw.number() == 0), "{distribution:?}");
        }
    }
}
