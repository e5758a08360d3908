//! Generated requests to a cache. A trace depends on its seed and on the number of objects that the
//! cache holds.

use thunderhead_load::distribution::Zipf;
use thunderhead_runtime::Random;

/// The kind of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Zipf's law over eight times as many objects as fit.
    Zipf,
    /// The same. After each three requests for an object that fits, all objects of another set are
    /// read in their order, as many as fit.
    Scan,
    /// The same, and each second request is for an object that is never requested again.
    OneHit,
    /// The same, and the objects are replaced one after the other.
    Drift,
    /// The same, and objects expire after 1 to 4 seconds.
    Expiry,
}

/// A request for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The object.
    pub key: u64,
    /// Seconds until it expires after it was written; 0 for never.
    pub expires_after: u32,
}

/// Keys of objects that are not under Zipf's law.
const OTHERS: u64 = 1 << 40;

impl Shape {
    /// All kinds.
    pub const ALL: [Shape; 5] =
        [Shape::Zipf, Shape::Scan, Shape::OneHit, Shape::Drift, Shape::Expiry];

    /// Returns its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Shape::Zipf => "Zipf",
            Shape::Scan => "Zipf and scans",
            Shape::OneHit => "one-hit wonders",
            Shape::Drift => "drifting set",
            Shape::Expiry => "expiring",
        }
    }
}

/// A trace.
pub struct Trace {
    shape: Shape,
    capacity: u64,
    zipf: Zipf,
    objects: u64,
    random: Random,
    /// Requests so far.
    count: u64,
    /// Requests for the other objects so far.
    others: u64,
}

impl Trace {
    /// Begins a trace for a cache that holds `capacity` objects.
    #[must_use]
    pub fn new(shape: Shape, capacity: u64, seed: u64) -> Trace {
        let capacity = capacity.max(1);
        let objects = capacity * 8;
        let (zipf, random) = (Zipf::new(objects), Random::from_seed(seed));
        Trace { shape, capacity, zipf, objects, random, count: 0, others: 0 }
    }

    /// Draws the next request.
    pub fn next_request(&mut self) -> Request {
        let count = self.count;
        self.count += 1;
        let is_other = match self.shape {
            Shape::Scan => count % (4 * self.capacity) >= 3 * self.capacity,
            Shape::OneHit => count % 2 == 1,
            _ => false,
        };
        if is_other {
            let other = self.others;
            self.others += 1;
            // A scan meets its objects again after four scans.
            let key = if self.shape == Shape::Scan { other % (4 * self.capacity) } else { other };
            return Request { key: OTHERS + key, expires_after: 0 };
        }
        let rank = self.zipf.draw(&mut self.random);
        match self.shape {
            Shape::Drift => {
                // Each rank gets a new object after ten requests for each that fits, at a time of
                // its own.
                let period = 10 * self.capacity;
                let own = rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % period;
                Request { key: rank + (count + own) / period * self.objects, expires_after: 0 }
            }
            Shape::Expiry => Request { key: rank, expires_after: 1 + (rank % 4) as u32 },
            _ => Request { key: rank, expires_after: 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn keys(shape: Shape, count: usize) -> Vec<u64> {
        let mut trace = Trace::new(shape, 100, 7);
        (0..count).map(|_| trace.next_request().key).collect()
    }

    #[test]
    fn traces_with_the_same_seed_are_the_same() {
        for shape in Shape::ALL {
            assert_eq!(keys(shape, 2_000), keys(shape, 2_000), "{shape:?}");
        }
    }

    #[test]
    fn each_trace_has_its_shape() {
        assert!(keys(Shape::Zipf, 2_000).iter().all(|key| *key < 800));
        let scanned: Vec<u64> =
            keys(Shape::Scan, 1_200).into_iter().filter(|key| *key >= OTHERS).collect();
        assert_eq!(scanned, (OTHERS..OTHERS + 300).collect::<Vec<_>>());
        let once: Vec<u64> =
            keys(Shape::OneHit, 2_000).into_iter().filter(|key| *key >= OTHERS).collect();
        assert_eq!((once.len(), once.iter().collect::<BTreeSet<_>>().len()), (1_000, 1_000));
        let drifting = keys(Shape::Drift, 4_000);
        let (before, after) = (&drifting[..500], &drifting[3_500..]);
        assert!(after.iter().filter(|key| before.contains(key)).count() < 50);
        let mut trace = Trace::new(Shape::Expiry, 100, 7);
        assert!((0..1000).all(|_| (1..=4).contains(&trace.next_request().expires_after)));
    }
}
