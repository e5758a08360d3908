//! Tables of choices with weights: the faults of a test, for example.
//!
//! ```
//! use thunderhead_runtime::Random;
//! use thunderhead_testkit::Weighted;
//!
//! #[derive(Clone, Copy)]
//! enum Fault {
//!     Crash,
//!     Pause,
//! }
//!
//! const FAULTS: Weighted<Fault> = Weighted(&[(3, Fault::Crash), (1, Fault::Pause)]);
//!
//! match FAULTS.draw(&mut Random::from_seed(1)) {
//!     Fault::Crash => {}
//!     Fault::Pause => {}
//! }
//! ```

use thunderhead_runtime::Random;

/// A table of choices, each with its weight before it.
pub struct Weighted<T: 'static>(pub &'static [(u64, T)]);

impl<T: Copy> Weighted<T> {
    /// Draws a choice, with one random number below the sum of the weights. The rows divide these
    /// numbers in their order. So a table draws the same as a `match` on such a number.
    ///
    /// # Panics
    ///
    /// Panics if the table is empty.
    pub fn draw(&self, random: &mut Random) -> T {
        let total = self.0.iter().map(|(weight, _)| weight).sum();
        self.row(random.below(total))
    }

    fn row(&self, number: u64) -> T {
        let mut end = 0;
        let row = self.0.iter().find(|(weight, _)| {
            end += weight;
            number < end
        });
        row.expect("a table with rows").1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_divide_the_numbers_in_their_order() {
        let table = Weighted(&[(2, 'a'), (0, 'b'), (1, 'c'), (3, 'd')]);
        let rows: String = (0..6).map(|number| table.row(number)).collect();
        assert_eq!(rows, "aacddd");
    }

    #[test]
    fn a_draw_takes_one_random_number() {
        let table = Weighted(&[(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6)]);
        let [mut one, mut other] = [Random::from_seed(3), Random::from_seed(3)];
        for _ in 0..100 {
            assert_eq!(table.draw(&mut one), other.below(7));
        }
    }
}
