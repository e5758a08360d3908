//! What a store's protocol is to the clients that measure it: how a request is laid out, and how an
//! answer is told from one that is not all there.
//!
//! All protocols are driven by the same [`Crowd`](super::crowd::Crowd), so that no store has a better
//! client than another. Parsers allocate nothing and believe nothing: what comes from a peer is an
//! error where it is not what was asked for, and a length in it is compared with what is expected
//! before it is used.

use crate::operations::content::{KEY_BYTES, fill, is_right};
use anyhow::Result;
use std::collections::VecDeque;
use std::fmt;
use std::io::{Read, Write};
use std::time::Instant;

/// What a request does with its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Reads them.
    Read,
    /// Writes them.
    Write,
    /// Deletes them.
    Delete,
}

/// A request on its way.
#[derive(Clone, Debug)]
pub struct Flight {
    /// Counts the requests of a connection.
    pub id: u64,
    /// What it does.
    pub act: Act,
    /// With which objects.
    pub numbers: Vec<u64>,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// When it was sent first.
    pub sent: Instant,
    /// Objects that earlier attempts have done.
    pub done: u64,
    /// The protocol's own.
    pub sequence: u64,
}

/// What the beginning of some bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Not all of an answer.
    Partial,
    /// Something that belongs to no request, of so many bytes.
    Aside(usize),
    /// The answer to a request: the place of that among those on their way.
    Done {
        /// Its bytes.
        bytes: usize,
        /// Whose it is.
        place: usize,
    },
    /// The server asks for it to be sent again: with those numbers that the request still has.
    Again {
        /// Its bytes.
        bytes: usize,
        /// Whose it is.
        place: usize,
    },
}

/// Why an answer will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It is not of the protocol, or answers something else.
    Malformed(&'static str),
    /// The server refuses: its words.
    Refused(String),
    /// An object is gone.
    Gone(u64),
    /// A value that nobody wrote for this object.
    Wrong(u64),
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bad::Malformed(what) => write!(f, "the answer is malformed: {what}"),
            Bad::Refused(words) => write!(f, "the server refuses: {words}"),
            Bad::Gone(number) => write!(f, "object {number} is gone"),
            Bad::Wrong(number) => write!(f, "object {number} has a value that nobody wrote for it"),
        }
    }
}

impl std::error::Error for Bad {}

/// A stream that blocks, while hands are shaken.
pub trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// One connection's side of a protocol.
pub trait Protocol {
    /// Shakes hands. Nothing that the server sends may be left unread.
    ///
    /// # Errors
    /// When the server does not do its part.
    fn greet(&mut self, _stream: &mut dyn Stream) -> Result<()> {
        Ok(())
    }

    /// Lays out a request behind what is there already. `oldest` is the sequence of the oldest
    /// request on its way.
    fn ask(&mut self, flight: &mut Flight, oldest: Option<u64>, to: &mut Vec<u8>);

    /// Looks at the beginning of what has arrived.
    ///
    /// # Errors
    /// When it is no answer to what was asked.
    fn answer(&mut self, flights: &mut VecDeque<Flight>, bytes: &[u8]) -> Result<Answer, Bad>;
}

/// The oldest request on its way: what answers that come in turn are to.
///
/// # Errors
/// When nothing was asked.
#[inline]
pub fn oldest(flights: &VecDeque<Flight>) -> Result<&Flight, Bad> {
    flights.front().ok_or(Bad::Malformed("an answer to nothing"))
}

/// The whole answer to the oldest request, if it is there up to an end.
#[inline]
#[must_use]
pub fn up_to(end: Option<usize>) -> Answer {
    end.map_or(Answer::Partial, |bytes| Answer::Done { bytes, place: 0 })
}

/// Bytes of words that a refusal is quoted with.
const WORDS_MAX: usize = 200;

/// What a server says when it refuses.
#[must_use]
pub fn refused(words: &[u8]) -> Bad {
    let words = words.get(..WORDS_MAX).unwrap_or(words);
    Bad::Refused(String::from_utf8_lossy(words).trim().to_owned())
}

/// A line up to its end (CR LF), and the bytes of both. Nothing where the end is not there yet.
///
/// # Errors
/// When it is longer than any that is expected.
pub fn line(bytes: &[u8], most: usize) -> Result<Option<(&[u8], usize)>, Bad> {
    let within = bytes.get(..most + 2).unwrap_or(bytes);
    match within.windows(2).position(|pair| pair == b"\r\n") {
        Some(at) => Ok(Some((within.get(..at).unwrap_or_default(), at + 2))),
        None if within.len() < most + 2 => Ok(None),
        None => Err(Bad::Malformed("a line does not end")),
    }
}

/// A number in decimal digits, nothing else.
#[must_use]
pub fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter().try_fold(0u64, |sum, digit| match digit {
        b'0'..=b'9' => Some(sum * 10 + u64::from(digit - b'0')),
        _ => None,
    })
}

/// Writes a number in decimal digits.
pub fn put_number(to: &mut Vec<u8>, mut number: u64) {
    let (mut digits, mut at) = ([0; 20], 20);
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    to.extend_from_slice(&digits[at..]);
}

/// The key of an object as text, for protocols that do not take any bytes. It is as long as ours.
#[inline]
#[must_use]
pub fn text_key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'k'; KEY_BYTES];
    for (at, place) in key.iter_mut().take(16).enumerate() {
        *place = b"0123456789abcdef"[(number >> (4 * at) & 15) as usize];
    }
    key
}

/// Writes the value of an object.
#[inline]
pub fn put_value(to: &mut Vec<u8>, number: u64, stamp: u64, bytes: usize) {
    let from = to.len();
    to.resize(from + bytes, b'v');
    fill(&mut to[from..], number, stamp);
}

/// Checks the value of an object.
///
/// # Errors
/// When it is another's.
#[inline]
pub fn check(value: &[u8], number: u64) -> Result<(), Bad> {
    if is_right(value, number) { Ok(()) } else { Err(Bad::Wrong(number)) }
}

/// A value with the CR LF behind it, if all of it is there, and what follows.
///
/// # Errors
/// When something else is behind it.
#[inline]
pub fn value_at(bytes: &[u8], at: usize, length: usize) -> Result<Option<(&[u8], usize)>, Bad> {
    let end = at + length;
    let (Some(value), Some(tail)) = (bytes.get(at..end), bytes.get(end..end + 2)) else {
        return Ok(None);
    };
    match tail {
        b"\r\n" => Ok(Some((value, end + 2))),
        _ => Err(Bad::Malformed("a value is longer than it says")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One request on its way.
    pub(crate) fn flights(act: Act, numbers: &[u64], value_bytes: usize) -> VecDeque<Flight> {
        let numbers = numbers.to_vec();
        let sent = Instant::now();
        VecDeque::from([Flight { id: 1, act, numbers, value_bytes, sent, done: 0, sequence: 1 }])
    }

    /// What a server answers that has the value of an object.
    pub(crate) fn value(number: u64, bytes: usize) -> Vec<u8> {
        let mut value = Vec::new();
        put_value(&mut value, number, 3, bytes);
        value
    }

    /// An answer is taken whole, is partial wherever it is cut, and never a panic with any byte
    /// changed.
    pub(crate) fn hold(protocol: &mut dyn Protocol, flights: &VecDeque<Flight>, reply: &[u8]) {
        let mut answer = |bytes: &[u8]| protocol.answer(&mut flights.clone(), bytes);
        let done = Answer::Done { bytes: reply.len(), place: 0 };
        assert_eq!(answer(reply), Ok(done), "{}", String::from_utf8_lossy(reply));
        assert_eq!(answer(&[reply, b"more"].concat()), Ok(done));
        for cut in 0..reply.len() {
            assert_eq!(answer(&reply[..cut]), Ok(Answer::Partial), "cut at {cut}");
        }
        for at in 0..reply.len().min(300) {
            for byte in [0, b'\r', b'\n', b'9', b'-', b'$', 255] {
                let mut other = reply.to_vec();
                other[at] = byte;
                let _ = answer(&other);
            }
        }
    }

    #[test]
    fn numbers_and_lines_are_what_they_say_or_nothing() {
        for sample in [0, 7, 10, 123_456, 9_999_999_999_999_999_999] {
            let mut text = Vec::new();
            put_number(&mut text, sample);
            assert_eq!(text, sample.to_string().into_bytes());
            assert_eq!(number(&text), Some(sample));
        }
        for text in ["", "-1", "1 ", "x", "99999999999999999999"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
        assert_eq!(line(b"ab\r\ncd", 10), Ok(Some((b"ab".as_slice(), 4))));
        assert_eq!(line(b"ab\r", 10), Ok(None));
        assert!(line(b"abcdefghijklm", 10).is_err());
        assert_ne!(text_key(1), text_key(16));
    }
}
