//! A moment on a program's own clock.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// Nanoseconds since some moment before the program began. It never goes back. It has no meaning
/// for another program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Later than every other time.
    pub const NEVER: Time = Time(u64::MAX);

    /// Returns the time that has passed since `earlier`, or zero if `earlier` is later.
    #[inline]
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    /// Returns the sum, or [`Time::NEVER`] if it does not fit.
    #[inline]
    fn add(self, duration: Duration) -> Time {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(nanos))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}
