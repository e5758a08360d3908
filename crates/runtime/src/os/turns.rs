//! The lengths of the turns of this process's reactors, for benchmarks. A benchmark has to begin
//! watching before the reactors begin. An unwatched reactor reads no further clock.
//!
//! Two clocks count. The usual clock shows how long requests waited; if other threads and programs
//! share the processor, their time is in it. The thread's processor time shows the length of the
//! turn itself.

use rustix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Steps between two powers of two: a figure is right to 6 %.
const STEPS_BITS: u32 = 4;
const BUCKETS: usize = 64 << STEPS_BITS;

/// A histogram of lengths.
pub struct LengthHistogram {
    counts: Box<[AtomicU64]>,
    longest_ns: AtomicU64,
}

impl Default for LengthHistogram {
    fn default() -> Self {
        let counts = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        LengthHistogram { counts, longest_ns: AtomicU64::new(0) }
    }
}

impl LengthHistogram {
    fn bucket(ns: u64) -> usize {
        let bits = 64 - (ns | 1).leading_zeros();
        if bits <= STEPS_BITS {
            return ns as usize;
        }
        let shift = bits - 1 - STEPS_BITS;
        (((shift as usize) + 1) << STEPS_BITS) + ((ns >> shift) as usize - (1 << STEPS_BITS))
    }

    /// Returns the longest time of a bucket.
    fn end_of(bucket: usize) -> u64 {
        if bucket < 1 << STEPS_BITS {
            return bucket as u64;
        }
        let shift = (bucket >> STEPS_BITS) as u32 - 1;
        let first = ((bucket & ((1 << STEPS_BITS) - 1)) as u64 + (1 << STEPS_BITS)) << shift;
        first + ((1u64 << shift) - 1)
    }

    fn note(&self, length: Duration) {
        let ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.counts[LengthHistogram::bucket(ns).min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// Resets all counts.
    pub fn reset(&self) {
        self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        self.longest_ns.store(0, Ordering::Relaxed);
    }

    /// Returns the number of counted turns.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns the longest time.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed))
    }

    /// Returns the length that this share of all turns does not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let least = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let reached = self.counts.iter().position(|count| {
            seen += count.load(Ordering::Relaxed);
            seen >= least
        });
        Duration::from_nanos(reached.map_or(0, LengthHistogram::end_of)).min(self.longest())
    }
}

/// The turns of the watched reactors.
#[derive(Default)]
pub struct Turns {
    /// The lengths of their turns.
    pub elapsed: LengthHistogram,
    /// The processor time of their turns.
    pub processor: LengthHistogram,
}

impl Turns {
    /// Resets all counts.
    pub fn reset(&self) {
        self.elapsed.reset();
        self.processor.reset();
    }

    /// Runs a turn, and notes its length if it did any work.
    #[allow(clippy::disallowed_methods, reason = "this is the runtime")]
    pub(super) fn time(&self, turn: impl FnOnce() -> bool) -> bool {
        let (began, processor) = (Instant::now(), processor_time());
        let did_something = turn();
        if did_something {
            self.processor.note(processor_time().saturating_sub(processor));
            self.elapsed.note(began.elapsed());
        }
        did_something
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

static WATCHED: OnceLock<(&'static str, Turns)> = OnceLock::new();

/// Watches the reactors that begin from now on, on threads whose names begin like this. Only the
/// first call of a process counts.
pub fn watch_turns(threads: &'static str) -> &'static Turns {
    &WATCHED.get_or_init(|| (threads, Turns::default())).1
}

/// Returns the counts for this thread's reactor, if it is watched.
pub(super) fn watched() -> Option<&'static Turns> {
    let (threads, turns) = WATCHED.get()?;
    std::thread::current().name().is_some_and(|name| name.starts_with(threads)).then_some(turns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_sixteenth() {
        let lengths = LengthHistogram::default();
        (1..=10_000u64).for_each(|us| lengths.note(Duration::from_micros(us)));
        assert_eq!((lengths.count(), lengths.longest()), (10_000, Duration::from_millis(10)));
        for (share, us) in [(0.5, 5_000.0), (0.99, 9_900.0), (1.0, 10_000.0)] {
            let found = lengths.quantile(share).as_secs_f64() * 1e6;
            assert!((us..us * 1.07).contains(&found), "{share}: {found} us");
        }
        for ns in (0..2_000).chain([1 << 40, u64::MAX >> 1]) {
            let end = LengthHistogram::end_of(LengthHistogram::bucket(ns));
            assert!(end >= ns && end - ns <= ns / 16, "{ns} {end}");
        }
        lengths.reset();
        assert_eq!((lengths.count(), lengths.quantile(0.9)), (0, Duration::ZERO));
    }
}
