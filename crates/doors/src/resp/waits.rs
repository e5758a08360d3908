//! The arguments of commands that wait until a key has elements.

use super::context::Context;
use super::extended::Extended;
use super::number::integer_of;
use super::score;
use super::stop::{Done, Stop, Wait};
use super::store::Kind;

const OUT_OF_RANGE: Stop = Stop::error("ERR timeout is out of range");
const NEGATIVE: Stop = Stop::error("ERR timeout is negative");

/// Reads a timeout in seconds. Returns the time at which the timeout ends, in milliseconds since
/// 1970. `None` stands for a timeout of 0, which never ends.
pub(super) fn deadline(context: &Context<'_>, text: &[u8]) -> Result<Option<u64>, Stop> {
    // Redis reads a number of 80 bits, of which it refuses fewer than of 64 bits.
    Extended::of(text).ok_or(Stop::error("ERR timeout is not a float or out of range"))?;
    let milliseconds = (score::number_of(text).unwrap_or_default() * 1000.0).ceil();
    if milliseconds >= i64::MAX as f64 {
        return Err(OUT_OF_RANGE);
    }
    if milliseconds < 0.0 {
        return Err(NEGATIVE);
    }
    if milliseconds == 0.0 {
        return Ok(None);
    }
    let deadline = context.objects.now().checked_add(milliseconds as u64);
    deadline.filter(|it| *it <= i64::MAX as u64).map(Some).ok_or(OUT_OF_RANGE)
}

/// Reads a timeout in milliseconds: see [`deadline`].
pub(super) fn deadline_ms(context: &Context<'_>, text: &[u8]) -> Result<Option<u64>, Stop> {
    let error = Stop::error("ERR timeout is not an integer or out of range");
    let timeout = integer_of(text).ok_or(error)?;
    let timeout = u64::try_from(timeout).map_err(|_| NEGATIVE)?;
    if timeout == 0 {
        return Ok(None);
    }
    let deadline = context.objects.now().checked_add(timeout);
    deadline.filter(|it| *it <= i64::MAX as u64).map(Some).ok_or(OUT_OF_RANGE)
}

/// Lets a command wait for elements of some keys.
pub(super) fn wait<'a>(
    keys: impl Iterator<Item = &'a [u8]>,
    kind: Kind,
    deadline: Option<u64>,
    is_array: bool,
) -> Done {
    let keys = keys.map(<[u8]>::to_vec).collect();
    let (is_of_group, replaced) = (false, Vec::new());
    Err(Stop::Wait(Box::new(Wait { keys, kind, deadline, is_array, is_of_group, replaced })))
}
