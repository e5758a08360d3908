//! Long work in slices of some microseconds, each followed by a turn.
//!
//! The clock cannot measure work in a simulator, where no time passes within a turn. On a machine,
//! a reading of the clock for every entry would cost as much as the work. So long work is
//! *counted*: so many nanoseconds for each piece, known from benchmarks. The budget says when to
//! stop. Debug builds and simulations check that it is not overdrawn by much.

use std::time::Duration;

/// The longest time that any work may hold a turn.
pub const SLICE: Duration = Duration::from_micros(40);

/// A turn takes no further message after messages that cost this much.
pub const MESSAGES: Duration = Duration::from_micros(32);

/// The remaining part of a slice.
#[derive(Debug)]
pub struct Budget {
    left_ns: i64,
    /// The length of the slice when it began.
    first_ns: i64,
    /// A strict budget must not fall to this.
    least_ns: i64,
    slice_ns: i64,
    is_strict: bool,
}

impl Budget {
    /// Returns a slice of some length, mostly [`SLICE`]. A strict slice panics if it is overdrawn
    /// by much, which finds work that is not cut finely enough. Strict slices are for debug builds
    /// and simulations.
    #[must_use]
    pub fn new(slice: Duration, is_strict: bool) -> Budget {
        let slice_ns = slice.as_nanos() as i64;
        Budget { left_ns: slice_ns, first_ns: slice_ns, least_ns: -slice_ns, slice_ns, is_strict }
    }

    /// Shortens the slice by work that the same turn has done already. A tenth of it always
    /// remains, so that long work continues however busy the turns are.
    #[must_use]
    pub fn after(self, spent: Duration) -> Budget {
        let left = self.left_ns.saturating_sub(spent.as_nanos() as i64);
        let left = left.max(self.slice_ns / 10);
        // The longest step of work is as long as before.
        Budget { left_ns: left, first_ns: left, least_ns: left - 2 * self.slice_ns, ..self }
    }

    /// Returns the work counted so far, which may exceed the slice.
    #[must_use]
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.first_ns - self.left_ns).unwrap_or(0))
    }

    /// Whether the slice has time left.
    #[must_use]
    pub fn has_time(&self) -> bool {
        self.left_ns > 0
    }

    /// Counts a finished step that cannot be cut, however long it was: at most a slice. Returns
    /// whether more may follow.
    #[inline]
    pub fn spend_uncut(&mut self, work: Duration) -> bool {
        self.spend(work.min(Duration::from_nanos(self.slice_ns.unsigned_abs())))
    }

    /// Counts finished work. Returns whether more may follow in this slice.
    ///
    /// # Panics
    /// If the budget is strict and the work took twice the length of the slice.
    #[inline]
    pub fn spend(&mut self, work: Duration) -> bool {
        self.left_ns -= work.as_nanos() as i64;
        assert!(
            !self.is_strict || self.left_ns > self.least_ns,
            "a slice of {} ns was overdrawn by {} ns: cut the work finer",
            self.slice_ns,
            -self.left_ns
        );
        self.has_time()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_shorter_after_other_work_of_the_turn_and_never_empty() {
        let mut budget = Budget::new(SLICE, true).after(Duration::from_micros(30));
        assert!(budget.spend(Duration::from_micros(9)));
        assert!(!budget.spend(Duration::from_micros(1)));
        let mut budget = Budget::new(SLICE, true).after(Duration::from_secs(1));
        assert!(budget.spend(Duration::from_micros(3)));
        assert!(!budget.spend(Duration::from_micros(1)));
        // Steps that fit into a whole slice may follow.
        let mut budget = Budget::new(SLICE, true).after(Duration::from_secs(1));
        assert!((0..3).all(|_| !budget.spend(Duration::from_micros(25))));
    }

    #[test]
    fn a_slice_ends_when_it_is_used_up() {
        let mut budget = Budget::new(SLICE, true);
        assert!(budget.spend(Duration::from_micros(39)));
        assert!(!budget.spend(Duration::from_micros(2)));
    }

    #[test]
    #[should_panic(expected = "cut the work finer")]
    fn work_that_is_not_cut_panics() {
        Budget::new(SLICE, true).spend(Duration::from_micros(81));
    }
}
