//! The clock of a simulated machine. It follows the simulation's true time, but runs a little fast
//! or slow and shows another date.

use crate::time::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// The true time of a simulation in nanoseconds, shared by all its machines. A simulation runs in
/// one thread. The value is atomic so that a program built from a clock can move to another thread
/// in the os world.
#[derive(Clone, Debug, Default)]
pub struct TrueTime(Arc<AtomicU64>);

impl TrueTime {
    /// Returns the time.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Sets the time.
    pub fn set(&self, nanos: u64) {
        self.0.store(nanos, Relaxed);
    }
}

/// One machine's clock.
#[derive(Debug)]
pub struct SimClock {
    truth: TrueTime,
    /// The start of the present rate: the true time and this clock's time.
    since: (AtomicU64, AtomicU64),
    /// Millionths by which it runs fast.
    drift: AtomicI64,
    /// The difference between the wall clock's date and the right one.
    wall_offset: AtomicI64,
}

/// The wall clock of a machine without an error at the simulation's start: 2020-01-01.
const EPOCH: u64 = 1_577_836_800_000_000_000;

impl SimClock {
    /// Returns a clock that shows `shows` now and runs fast by so many millionths.
    #[must_use]
    pub fn new(truth: TrueTime, shows: Time, drift: i64) -> SimClock {
        let since = (AtomicU64::new(truth.get()), AtomicU64::new(shows.0));
        SimClock { truth, since, drift: AtomicI64::new(drift), wall_offset: AtomicI64::new(0) }
    }

    /// Returns the true time at which the present rate began, and this clock's time then.
    fn since(&self) -> (u64, u64) {
        (self.since.0.load(Relaxed), self.since.1.load(Relaxed))
    }

    /// Returns the time that it shows.
    #[must_use]
    pub fn now(&self) -> Time {
        let (truth, own) = self.since();
        let passed = self.truth.get() - truth;
        Time(own + passed.saturating_add_signed(self.error(passed)))
    }

    fn error(&self, passed: u64) -> i64 {
        (i128::from(passed) * i128::from(self.drift.load(Relaxed)) / 1_000_000) as i64
    }

    /// Returns the true time at which it will show `at`, or now if it has shown that already.
    #[must_use]
    pub fn truth_of(&self, at: Time) -> u64 {
        let (truth, own) = self.since();
        let to_pass = i128::from(at.0.saturating_sub(own));
        let passed = to_pass * 1_000_000 / (1_000_000 + i128::from(self.drift.load(Relaxed)));
        let mut then = truth.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX));
        // Rounding may make the result a nanosecond too early.
        let shown =
            own.saturating_add((then - truth).saturating_add_signed(self.error(then - truth)));
        if shown < at.0 {
            then = then.saturating_add(at.0 - shown);
        }
        then.max(self.truth.get())
    }

    /// Changes its rate from now on.
    pub fn set_drift(&self, drift: i64) {
        let shows = self.now().0;
        self.since.0.store(self.truth.get(), Relaxed);
        self.since.1.store(shows, Relaxed);
        self.drift.store(drift, Relaxed);
    }

    /// Returns its date, in nanoseconds since 1970.
    #[must_use]
    pub fn wall(&self) -> u64 {
        (EPOCH + self.now().0).saturating_add_signed(self.wall_offset.load(Relaxed))
    }

    /// Moves the date by so many nanoseconds, forwards or back.
    pub fn jump(&self, by: i64) {
        self.wall_offset.fetch_add(by, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_runs_fast_or_slow_and_never_back() {
        let truth = TrueTime::default();
        let clock = SimClock::new(truth.clone(), Time(1000), 500);
        truth.set(2_000_000);
        assert_eq!(clock.now(), Time(1000 + 2_001_000));
        clock.set_drift(-500);
        assert_eq!(clock.now(), Time(1000 + 2_001_000));
        truth.set(4_000_000);
        assert_eq!(clock.now(), Time(1000 + 2_001_000 + 1_999_000));
        for at in [4_001_500, 5_000_001, 9_999_999] {
            let then = clock.truth_of(Time(at));
            truth.set(then);
            assert!(clock.now() >= Time(at) && clock.now().0 <= at + 2, "{at}: {}", clock.now());
        }
        assert_eq!(clock.truth_of(Time(5)), truth.get(), "a past time is reached now");
    }

    #[test]
    fn the_date_jumps_and_the_time_does_not() {
        let clock = SimClock::new(TrueTime::default(), Time(0), 0);
        let before = clock.wall();
        clock.jump(-3_600_000_000_000);
        assert_eq!(clock.wall(), before - 3_600_000_000_000);
        assert_eq!(clock.now(), Time(0));
    }
}
