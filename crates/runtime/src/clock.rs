//! The time of day and the time that passes, in both worlds.

use crate::os::OsClock;
use crate::sim::clock::SimClock;
use crate::time::Time;
use std::sync::Arc;
use std::time::Instant;

/// A program's clock.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's, counted from a moment before the program began.
    Os(OsClock),
    /// A simulated machine's.
    Sim(Arc<SimClock>),
}

impl Clock {
    /// Returns the machine's clock.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "this is the runtime's clock")]
    pub fn os() -> Clock {
        Clock::Os(OsClock::since(Instant::now()))
    }

    /// Returns the machine's clock, counted from a moment that has passed, so that threads share a
    /// time.
    #[must_use]
    pub fn since(origin: Instant) -> Clock {
        Clock::Os(OsClock::since(origin))
    }

    /// Returns the time that has passed. It never goes back.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Time {
        match self {
            Clock::Os(clock) => clock.now(),
            Clock::Sim(clock) => clock.now(),
        }
    }

    /// Returns the nanoseconds since 1970 as this machine knows them. They may be wrong, and may
    /// jump.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "this is the runtime's clock")]
    pub fn wall(&self) -> u64 {
        match self {
            Clock::Os(_) => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_nanos() as u64),
            Clock::Sim(clock) => clock.wall(),
        }
    }
}
