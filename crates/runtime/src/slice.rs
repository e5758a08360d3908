//! Long work in slices: so many microseconds, then a turn for everybody else.
//!
//! Work cannot be measured by the clock in a simulator, where none passes within a turn, and
//! should not be measured by it for every entry on a machine, where asking costs as much as the
//! work. So whoever does long work *counts* it: so many nanoseconds for each piece, known from
//! benchmarks. The budget says when to stop, and refuses to be overdrawn by much where that is
//! checked: in debug builds and in simulations.

use std::time::Duration;

/// The longest that anything may hold a turn.
pub const SLICE: Duration = Duration::from_micros(50);

/// What is left of a slice.
#[derive(Debug)]
pub struct Budget {
    left_ns: i64,
    slice_ns: i64,
    is_strict: bool,
}

impl Budget {
    /// A slice of some length, mostly [`SLICE`]. A strict one does not let itself be overdrawn by
    /// much, which finds work that is not cut finely enough; for debug builds and simulations.
    #[must_use]
    pub fn new(slice: Duration, is_strict: bool) -> Budget {
        let slice_ns = slice.as_nanos() as i64;
        Budget { left_ns: slice_ns, slice_ns, is_strict }
    }

    /// Counts work that was done; says whether there may be more in this slice.
    ///
    /// # Panics
    /// When the budget is strict and the work took the slice to twice its length.
    #[inline]
    pub fn spend(&mut self, work: Duration) -> bool {
        self.left_ns -= work.as_nanos() as i64;
        assert!(
            !self.is_strict || self.left_ns > -self.slice_ns,
            "a slice of {} ns was overdrawn by {} ns: cut the work finer",
            self.slice_ns,
            -self.left_ns
        );
        self.left_ns > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_ends_when_it_is_used_up() {
        let mut budget = Budget::new(SLICE, true);
        assert!(budget.spend(Duration::from_micros(49)));
        assert!(!budget.spend(Duration::from_micros(2)));
    }

    #[test]
    #[should_panic(expected = "cut the work finer")]
    fn work_that_is_not_cut_is_found() {
        Budget::new(SLICE, true).spend(Duration::from_micros(101));
    }
}
