//! Integers in arguments that must lie within bounds.

use super::number::integer_of;
use super::stop::{self, Stop};

pub(super) const NOT_POSITIVE: Stop = Stop::error("ERR value is out of range, must be positive");

/// Reads an integer.
pub(super) fn integer(text: &[u8]) -> Result<i64, Stop> {
    integer_of(text).ok_or(stop::NOT_AN_INTEGER)
}

/// Reads an integer that is not less than a bound. Any other text is this error.
pub(super) fn at_least(least: i64, text: &[u8], error: Stop) -> Result<u64, Stop> {
    match integer_of(text) {
        Some(number) if number >= least => u64::try_from(number).map_err(|_| error),
        _ => Err(error),
    }
}

/// Reads an integer that is not negative.
pub(super) fn positive(text: &[u8]) -> Result<u64, Stop> {
    at_least(0, text, NOT_POSITIVE)
}

/// Reads an integer that has a positive counterpart.
pub(super) fn signed(text: &[u8]) -> Result<i64, Stop> {
    match integer(text)? {
        i64::MIN => Err(Stop::error_of(format!(
            "ERR value is out of range, value must between {} and {}",
            -i64::MAX,
            i64::MAX
        ))),
        number => Ok(number),
    }
}

/// Returns the places of a range of elements, of which the first and the last one are named. A
/// negative number counts from the end.
pub(super) fn places(first: i64, last: i64, length: u64) -> std::ops::Range<u64> {
    let place = |index: i64| match u64::try_from(index) {
        Ok(index) => i128::from(index),
        Err(_) => i128::from(length) + i128::from(index),
    };
    let begin = place(first).max(0);
    let end = (place(last) + 1).min(i128::from(length));
    match (u64::try_from(begin), u64::try_from(end)) {
        (Ok(begin), Ok(end)) if begin < end => begin..end,
        _ => 0..0,
    }
}

/// Returns the place of one element. A negative number counts from the end.
pub(super) fn place(index: i64, length: u64) -> Option<u64> {
    let place = match u64::try_from(index) {
        Ok(index) => index,
        Err(_) => length.checked_sub(index.unsigned_abs())?,
    };
    (place < length).then_some(place)
}

/// Reads the milliseconds for which a command is willing to wait from now on.
pub(super) fn timeout(text: &[u8], now_ms: u64) -> Result<u64, Stop> {
    let time = integer_of(text);
    let time = time.ok_or(Stop::error("ERR timeout is not an integer or out of range"))?;
    let time = u64::try_from(time).map_err(|_| Stop::error("ERR timeout is negative"))?;
    match i64::try_from(now_ms.saturating_add(time)) {
        Err(_) if time > 0 => Err(Stop::error("ERR timeout is out of range")),
        _ => Ok(time),
    }
}
