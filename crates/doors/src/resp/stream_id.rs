//! The ids of a stream's entries: milliseconds since 1970, and a number within the millisecond.

use super::stop::Stop;

/// The bytes of an id as a key. Keys have the order of the ids.
pub(super) const ID_BYTES: usize = 16;

/// The longest text that is read as an id.
const TEXT_BYTES_MAX: usize = 127;

pub(super) const INVALID: Stop =
    Stop::error("ERR Invalid stream ID specified as stream command argument");

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamId {
    pub(super) ms: u64,
    pub(super) sequence: u64,
}

/// The id that `XADD` wants for a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewId {
    /// The server chooses it: `*`.
    Automatic,
    /// The server chooses the number within this millisecond: `5-*`.
    InMillisecond(u64),
    Explicit(StreamId),
}

impl StreamId {
    pub(super) const MIN: StreamId = StreamId::new(0, 0);
    pub(super) const MAX: StreamId = StreamId::new(u64::MAX, u64::MAX);

    pub(super) const fn new(ms: u64, sequence: u64) -> StreamId {
        StreamId { ms, sequence }
    }

    /// Returns the id as a key.
    pub(super) fn bytes(self) -> [u8; ID_BYTES] {
        (u128::from(self.ms) << 64 | u128::from(self.sequence)).to_be_bytes()
    }

    /// Reads a key.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<StreamId> {
        let number = u128::from_be_bytes(bytes.try_into().ok()?);
        Some(StreamId::new((number >> 64) as u64, number as u64))
    }

    /// Returns the next id; `None` after the greatest one.
    pub(super) fn next(self) -> Option<StreamId> {
        match self.sequence.checked_add(1) {
            Some(sequence) => Some(StreamId { sequence, ..self }),
            None => Some(StreamId::new(self.ms.checked_add(1)?, 0)),
        }
    }

    /// Returns the id before this one; `None` before the smallest one.
    pub(super) fn previous(self) -> Option<StreamId> {
        match self.sequence.checked_sub(1) {
            Some(sequence) => Some(StreamId { sequence, ..self }),
            None => Some(StreamId::new(self.ms.checked_sub(1)?, u64::MAX)),
        }
    }

    /// Returns the text that clients see.
    pub(super) fn text(self) -> String {
        format!("{}-{}", self.ms, self.sequence)
    }

    /// Reads an id. `sequence` is the number of an id that consists of milliseconds alone.
    ///
    /// # Errors
    /// If the text is no id. `-`, `+` and `5-*` are none.
    pub(super) fn parse(text: &[u8], sequence: u64) -> Result<StreamId, Stop> {
        let (ms, rest) = halves(text).ok_or(INVALID)?;
        let sequence = match rest {
            Some(rest) => unsigned(rest).ok_or(INVALID)?,
            None => sequence,
        };
        Ok(StreamId { ms, sequence })
    }

    /// Reads the begin of a range.
    pub(super) fn begin(text: &[u8]) -> Result<StreamId, Stop> {
        let (id, is_excluded) = end_of_range(text, 0)?;
        match is_excluded {
            true => id.next().ok_or(Stop::error("ERR invalid start ID for the interval")),
            false => Ok(id),
        }
    }

    /// Reads the end of a range, which belongs to the range.
    pub(super) fn end(text: &[u8]) -> Result<StreamId, Stop> {
        let (id, is_excluded) = end_of_range(text, u64::MAX)?;
        match is_excluded {
            true => id.previous().ok_or(Stop::error("ERR invalid end ID for the interval")),
            false => Ok(id),
        }
    }
}

impl NewId {
    /// Reads the id of a new entry.
    pub(super) fn parse(text: &[u8]) -> Result<NewId, Stop> {
        if text == b"*" {
            return Ok(NewId::Automatic);
        }
        match halves(text) {
            Some((ms, Some(b"*"))) => Ok(NewId::InMillisecond(ms)),
            _ => StreamId::parse(text, 0).map(NewId::Explicit),
        }
    }

    /// Returns the id behind another one; `None` if it is not greater.
    pub(super) fn behind(self, last: StreamId, now_ms: u64) -> Option<StreamId> {
        match self {
            NewId::Automatic if now_ms > last.ms => Some(StreamId::new(now_ms, 0)),
            NewId::Automatic => last.next(),
            NewId::InMillisecond(ms) if ms > last.ms => Some(StreamId::new(ms, 0)),
            NewId::InMillisecond(ms) => last.next().filter(|next| next.ms == ms),
            NewId::Explicit(id) => Some(id).filter(|id| *id > last),
        }
    }
}

/// Returns the milliseconds, and the text behind the first `-`.
fn halves(text: &[u8]) -> Option<(u64, Option<&[u8]>)> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    // Redis sees a text that ends at the first byte of zero.
    let text = &text[..memchr::memchr(0, text).unwrap_or(text.len())];
    match memchr::memchr(b'-', text) {
        Some(at) => Some((unsigned(&text[..at])?, Some(&text[at + 1..]))),
        None => Some((unsigned(text)?, None)),
    }
}

fn end_of_range(text: &[u8], sequence: u64) -> Result<(StreamId, bool), Stop> {
    match text {
        b"-" => Ok((StreamId::MIN, false)),
        b"+" => Ok((StreamId::MAX, false)),
        [b'(', rest @ ..] if !rest.is_empty() => Ok((StreamId::parse(rest, sequence)?, true)),
        text => Ok((StreamId::parse(text, sequence)?, false)),
    }
}

/// Reads a number as Redis does: spaces, a sign and zeros may be in front of its digits, and a
/// negative number wraps. Only `-` with a digit other than 0 right behind it is refused.
fn unsigned(text: &[u8]) -> Option<u64> {
    if let [b'-', b'1'..=b'9', ..] = text
        && super::number::integer_of(text).is_some()
    {
        return None;
    }
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | 9..=13)).count();
    let (is_negative, digits) = match &text[blanks..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut number = 0u64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(if is_negative { number.wrapping_neg() } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_redis_reads_it() {
        let id = StreamId::new;
        let max = "18446744073709551615";
        for (text, expected) in [
            ("5", Some(id(5, 7))),
            ("5-6", Some(id(5, 6))),
            ("0-0", Some(id(0, 0))),
            ("005-06", Some(id(5, 6))),
            (" +5- 6", Some(id(5, 6))),
            ("5\0x", Some(id(5, 7))),
            ("5--0", Some(id(5, 0))),
            ("5--06", Some(id(5, 6u64.wrapping_neg()))),
            (&format!("{max}-{max}"), Some(StreamId::MAX)),
            ("18446744073709551616", None),
            ("5-18446744073709551616", None),
            ("5--6", None),
            ("5-", None),
            ("-5", None),
            ("5-*", None),
            ("5-6-7", None),
            ("5 ", None),
            ("x", None),
            ("", None),
            ("-", None),
            ("+", None),
            ("*", None),
            ("$", None),
            (&"0".repeat(127), Some(id(0, 7))),
            (&"0".repeat(128), None),
        ] {
            assert_eq!(StreamId::parse(text.as_bytes(), 7).ok(), expected, "{text}");
        }
    }

    #[test]
    fn an_end_of_a_range_may_be_excluded() {
        let id = StreamId::new;
        assert_eq!(StreamId::begin(b"-"), Ok(id(0, 0)));
        assert_eq!(StreamId::begin(b"(5-6"), Ok(id(5, 7)));
        assert_eq!(StreamId::begin(b"(5"), Ok(id(5, 1)));
        assert_eq!(StreamId::end(b"5"), Ok(id(5, u64::MAX)));
        assert_eq!(StreamId::end(b"(5-0"), Ok(id(4, u64::MAX)));
        assert_eq!(StreamId::end(b"+"), Ok(StreamId::MAX));
        let max = StreamId::MAX.text();
        for (text, error) in [(format!("({max}"), "start"), ("(".into(), ""), ("(-".into(), "")] {
            let error = match error {
                "" => INVALID,
                which => Stop::error_of(format!("ERR invalid {which} ID for the interval")),
            };
            assert_eq!(StreamId::begin(text.as_bytes()), Err(error), "{text}");
        }
        assert_eq!(StreamId::end(b"(0-0"), Err(Stop::error("ERR invalid end ID for the interval")));
    }

    #[test]
    fn a_new_id_is_above_the_last_one() {
        let id = StreamId::new;
        let new = |text: &str, last, now| NewId::parse(text.as_bytes()).unwrap().behind(last, now);
        assert_eq!(new("*", id(5, 6), 7), Some(id(7, 0)));
        assert_eq!(new("*", id(5, 6), 5), Some(id(5, 7)));
        assert_eq!(new("*", id(5, u64::MAX), 3), Some(id(6, 0)));
        assert_eq!(new("*", StreamId::MAX, 3), None);
        assert_eq!(new("6-*", id(5, 6), 3), Some(id(6, 0)));
        assert_eq!(new("5-*", id(5, 6), 3), Some(id(5, 7)));
        assert_eq!(new("5-*", id(5, u64::MAX), 3), None);
        assert_eq!(new("4-*", id(5, 6), 3), None);
        assert_eq!(new("0-*", id(0, 0), 3), Some(id(0, 1)));
        assert_eq!(new("5-7", id(5, 6), 3), Some(id(5, 7)));
        assert_eq!(new("5-6", id(5, 6), 3), None);
    }

    #[test]
    fn keys_have_the_order_of_ids() {
        let ids = [id(0, 0), id(0, 1), id(1, 0), id(1, u64::MAX), id(2, 0), StreamId::MAX];
        fn id(ms: u64, sequence: u64) -> StreamId {
            StreamId::new(ms, sequence)
        }
        for pair in ids.windows(2) {
            assert!(pair[0].bytes() < pair[1].bytes());
            assert_eq!(StreamId::of_bytes(&pair[0].bytes()), Some(pair[0]));
        }
        assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
        assert_eq!(id(2, 0).previous(), Some(id(1, u64::MAX)));
        assert_eq!((StreamId::MAX.next(), StreamId::MIN.previous()), (None, None));
    }
}
