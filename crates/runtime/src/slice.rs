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
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(SLICE)
    }
}

impl Budget {
    /// A slice of some length.
    #[must_use]
    pub fn new(slice: Duration) -> Budget {
        let slice_ns = slice.as_nanos() as i64;
        Budget { left_ns: slice_ns, slice_ns }
    }

    /// Counts work that was done; says whether there may be more in this slice.
    ///
    /// # Panics
    /// In debug builds, when the work took the slice to twice its length: it must be cut finer.
    #[inline]
    pub fn spend(&mut self, work: Duration) -> bool {
        self.left_ns -= work.as_nanos() as i64;
        debug_assert!(
            self.left_ns > -self.slice_ns,
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
        let mut budget = Budget::default();
        assert!(budget.spend(Duration::from_micros(49)));
        assert!(!budget.spend(Duration::from_micros(2)));
    }

    #[test]
    #[should_panic(expected = "cut the work finer")]
    #[cfg(debug_assertions)]
    fn work_that_is_not_cut_is_found() {
        Budget::default().spend(Duration::from_micros(101));
    }
}
