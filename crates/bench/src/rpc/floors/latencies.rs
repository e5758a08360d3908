//! A histogram of latencies.

use std::time::Duration;

/// Buckets for each doubling of the time.
const PRECISION_BITS: u32 = 7;

/// The number of buckets for all 64-bit numbers of nanoseconds.
const BUCKETS: usize = ((64 - PRECISION_BITS as usize) + 1) << PRECISION_BITS;

/// Latencies, each with an error below 0.4 percent: buckets are 1/128 as wide as the power of two
/// below them.
///
/// It takes 59 KB for any number of latencies, and recording touches one word, so that it does not
/// disturb the measurement as a growing list does.
#[derive(Clone, Debug)]
pub struct Latencies {
    buckets: Vec<u64>,
    count: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// Returns an empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self { buckets: vec![0; BUCKETS], count: 0 }
    }

    /// Counts one latency.
    pub fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanoseconds)] += 1;
        self.count += 1;
    }

    /// Adds the latencies of another histogram.
    pub fn add(&mut self, other: &Latencies) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(own, theirs)| *own += theirs);
        self.count += other.count;
    }

    /// Removes all latencies.
    pub fn clear(&mut self) {
        self.buckets.fill(0);
        self.count = 0;
    }

    /// Returns the number of recorded latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the nanoseconds that a share of all latencies, such as 0.99, do not exceed. Not a
    /// number if there are none.
    #[must_use]
    pub fn percentile(&self, share: f64) -> f64 {
        let rank = ((share * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(index);
            }
        }
        f64::NAN
    }

    /// Returns the nanoseconds that half of all latencies do not exceed.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.percentile(0.5)
    }
}

/// Returns the bucket of a time: below 256 one for each value, above it by the leading 8 bits and
/// their place.
fn bucket(nanoseconds: u64) -> usize {
    let shift = nanoseconds.max(1).ilog2().saturating_sub(PRECISION_BITS);
    ((shift as usize) << PRECISION_BITS) + (nanoseconds >> shift) as usize
}

/// Returns the middle of a bucket, in nanoseconds.
fn middle(bucket: usize) -> f64 {
    let shift = (bucket >> PRECISION_BITS).saturating_sub(1);
    let lowest = (bucket - (shift << PRECISION_BITS)) as f64;
    let width = (1_u64 << shift) as f64;
    lowest * width + (width - 1.0) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_ordered_and_contain_their_values() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        let mut last = 0;
        for power in 0..=60 {
            for eighth in 8..16_u64 {
                let nanoseconds = (eighth << power) / 8;
                let index = bucket(nanoseconds);
                assert!(index >= last);
                last = index;
                let error = (middle(index) - nanoseconds as f64).abs() / nanoseconds as f64;
                assert!(error < 0.004, "{nanoseconds} became {}", middle(index));
            }
        }
        assert_eq!(bucket(255) + 1, bucket(256));
        assert_eq!(bucket(511) + 1, bucket(512));
    }

    #[test]
    fn percentiles_are_those_of_the_recorded_values() {
        let mut latencies = Latencies::new();
        assert!(latencies.median().is_nan());
        (1..=100).for_each(|nanoseconds| latencies.record(Duration::from_nanos(nanoseconds)));
        assert_eq!(latencies.count(), 100);
        assert_eq!(latencies.median(), 50.0);
        assert_eq!(latencies.percentile(0.99), 99.0);
        assert_eq!(latencies.percentile(0.0), 1.0);
        assert_eq!(latencies.percentile(1.0), 100.0);
        let mut twice = latencies.clone();
        twice.add(&latencies);
        assert_eq!((twice.count(), twice.median()), (200, 50.0));
        latencies.clear();
        assert!(latencies.median().is_nan());
    }
}
