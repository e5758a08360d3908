//! The arguments of commands that wait until a key has elements.

use super::context::Context;
use super::extended::Extended;
use super::score;
use super::stop::{Done, Stop, Wait};
use super::store::Kind;

/// Reads a timeout in seconds. Returns the time at which the timeout ends, in milliseconds since
/// 1970. `None` stands for a timeout of 0, which never ends.
pub(super) fn deadline(context: &Context<'_>, text: &[u8]) -> Result<Option<u64>, Stop> {
    const OUT_OF_RANGE: Stop = Stop::error("ERR timeout is out of range");
    // Redis reads a number of 80 bits, of which it refuses fewer than of 64 bits.
    Extended::of(text).ok_or(Stop::error("ERR timeout is not a float or out of range"))?;
    let milliseconds = (score::number_of(text).unwrap_or_default() * 1000.0).ceil();
    if milliseconds >= i64::MAX as f64 {
        return Err(OUT_OF_RANGE);
    }
    if milliseconds < 0.0 {
        return Err(Stop::error("ERR timeout is negative"));
    }
    if milliseconds == 0.0 {
        return Ok(None);
    }
    let deadline = context.objects.now().checked_add(milliseconds as u64);
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
    Err(Stop::Wait(Box::new(Wait { keys, kind, deadline, is_array })))
}
