//! How long an object lives: the time that an operation gives it, and the time that remains.
//!
//! Times to live are relative, in milliseconds. The master adds the time of its log's clock when it
//! does the update, so the clock of a client does not matter.

use crate::{Status, Timestamp};
use std::time::Duration;

/// How long an object lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeToLive {
    /// It does not expire.
    Never,
    /// It expires after so many milliseconds, at least one.
    Milliseconds(u64),
}

impl TimeToLive {
    /// The time to live of this duration, rounded up to milliseconds.
    ///
    /// # Errors
    /// [`Status::BadTimeToLive`]: it is 0.
    pub fn after(duration: Duration) -> Result<TimeToLive, Status> {
        let milliseconds = duration.as_nanos().div_ceil(1_000_000);
        match u64::try_from(milliseconds).unwrap_or(u64::MAX - 1) {
            0 => Err(Status::BadTimeToLive),
            milliseconds => Ok(TimeToLive::Milliseconds(milliseconds.min(u64::MAX - 1))),
        }
    }

    /// The time to live as it goes over the wire: the number of milliseconds, or the highest number
    /// for [`TimeToLive::Never`].
    #[must_use]
    pub fn code(self) -> u64 {
        match self {
            TimeToLive::Never => u64::MAX,
            TimeToLive::Milliseconds(milliseconds) => milliseconds,
        }
    }

    /// The time to live with a number. 0 is refused by the master, with
    /// [`Status::BadTimeToLive`].
    #[must_use]
    pub fn of_code(code: u64) -> TimeToLive {
        if code == u64::MAX { TimeToLive::Never } else { TimeToLive::Milliseconds(code) }
    }

    /// The time of expiry of an object that gets this time to live at a time.
    ///
    /// # Errors
    /// [`Status::BadTimeToLive`]: it is 0.
    pub fn expires(self, now: Timestamp) -> Result<Timestamp, Status> {
        match self {
            TimeToLive::Never => Ok(Timestamp::ZERO),
            TimeToLive::Milliseconds(0) => Err(Status::BadTimeToLive),
            TimeToLive::Milliseconds(milliseconds) => Ok(now.after(milliseconds)),
        }
    }

    /// The time to live that remains at a time to an object that expires then, and has not yet.
    #[must_use]
    pub fn left(expires: Timestamp, now: Timestamp) -> TimeToLive {
        match expires {
            Timestamp::ZERO => TimeToLive::Never,
            expires => TimeToLive::Milliseconds(expires.0.saturating_sub(now.0).max(1)),
        }
    }

    /// The duration; `None` for [`TimeToLive::Never`].
    #[must_use]
    pub fn duration(self) -> Option<Duration> {
        match self {
            TimeToLive::Never => None,
            TimeToLive::Milliseconds(milliseconds) => Some(Duration::from_millis(milliseconds)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up_and_zero_is_refused() {
        let after = |nanoseconds| TimeToLive::after(Duration::from_nanos(nanoseconds));
        assert_eq!(after(0), Err(Status::BadTimeToLive));
        assert_eq!(after(1), Ok(TimeToLive::Milliseconds(1)));
        assert_eq!(after(1_000_001), Ok(TimeToLive::Milliseconds(2)));
        let longest = TimeToLive::after(Duration::MAX).unwrap();
        assert_eq!(longest, TimeToLive::Milliseconds(u64::MAX - 1));
        assert_eq!(longest.expires(Timestamp(5)), Ok(Timestamp::LATEST));
    }

    #[test]
    fn codes_never_change_their_meaning() {
        for (code, time) in [(7, TimeToLive::Milliseconds(7)), (u64::MAX, TimeToLive::Never)] {
            assert_eq!((time.code(), TimeToLive::of_code(code)), (code, time));
        }
        let zero = TimeToLive::of_code(0);
        assert_eq!(zero.expires(Timestamp(9)), Err(Status::BadTimeToLive));
    }

    #[test]
    fn an_object_that_has_not_expired_has_time_left() {
        let left = |expires, now| TimeToLive::left(Timestamp(expires), Timestamp(now));
        assert_eq!(left(100, 40), TimeToLive::Milliseconds(60));
        assert_eq!(left(0, 40), TimeToLive::Never);
        assert_eq!(TimeToLive::Never.duration(), None);
        assert_eq!(left(100, 40).duration(), Some(Duration::from_millis(60)));
    }
}
