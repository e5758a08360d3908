//! The time by which objects expire.

use thunderhead_log::{TimeSource, Timestamp};
use thunderhead_runtime::clock::Clock;

/// A source of the time of day: the machine's date now, and from then on the time that passes. If
/// the machine's date is set later, no object expires at once because of that.
#[must_use]
pub fn time_of_day(clock: &Clock) -> TimeSource {
    let (began, date) = (clock.now(), clock.wall());
    let clock = clock.clone();
    Box::new(move || {
        let passed = clock.now().0.saturating_sub(began.0);
        Timestamp(date.saturating_add(passed) / 1_000_000).min(Timestamp::LATEST)
    })
}
