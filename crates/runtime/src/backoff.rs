//! Waits that double with each failure, up to a limit.
//!
//! A caller that repeats a failed request waits longer each time, so that a peer in trouble gets
//! few requests. Most callers wait a random part of the limit, so that callers that failed together
//! do not come back together.
//!
//! A [`Backoff`] is a constant of its user. The user counts the failures and keeps the time of the
//! next attempt. Randomness is an argument, so a simulation draws the same waits from the same
//! seed.

use crate::random::Random;
use std::time::Duration;

/// More doublings do not change any wait: the longest wait is less than 2¹⁶ first ones.
const DOUBLINGS_MAX: u32 = 16;

/// The first and the longest wait of a caller that repeats requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Returns a backoff whose waits grow from the first one to the longest one.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, longest }
    }

    /// Returns the longest wait.
    #[must_use]
    pub const fn longest(self) -> Duration {
        self.longest
    }

    /// Returns the first wait after so many doublings, or the longest wait if that is shorter.
    #[must_use]
    pub fn limit(self, doublings: u32) -> Duration {
        self.first.saturating_mul(1 << doublings.min(DOUBLINGS_MAX)).min(self.longest)
    }

    /// Returns a random wait that is not zero and not above the [`limit`](Backoff::limit).
    #[must_use]
    pub fn random_wait(self, doublings: u32, random: &mut Random) -> Duration {
        let limit = self.limit(doublings);
        Duration::from_nanos(random.below(limit.as_nanos() as u64) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(500));

    #[test]
    fn limits_double_up_to_the_longest_wait() {
        let limits: Vec<u128> = (0..10).map(|it| BACKOFF.limit(it).as_millis()).collect();
        assert_eq!(limits, [2, 4, 8, 16, 32, 64, 128, 256, 500, 500]);
        assert_eq!(BACKOFF.limit(u32::MAX), BACKOFF.longest());
        let equal = Backoff::new(BACKOFF.longest(), Duration::from_millis(3));
        assert_eq!(equal.limit(0), Duration::from_millis(3), "never above the longest wait");
    }

    #[test]
    fn random_waits_are_spread_below_the_limit_and_never_zero() {
        let mut random = Random::from_seed(1);
        for doublings in [0, 3, 8, 40] {
            let limit = BACKOFF.limit(doublings);
            let waits: Vec<Duration> =
                (0..1000).map(|_| BACKOFF.random_wait(doublings, &mut random)).collect();
            assert!(waits.iter().all(|wait| *wait > Duration::ZERO && *wait <= limit));
            assert!(waits.iter().any(|wait| *wait < limit / 10));
            assert!(waits.iter().any(|wait| *wait > limit / 10 * 9));
        }
    }
}
