//! The interface of a store's protocol to the clients that measure it: how to lay out a request,
//! and how to recognize a complete answer.
//!
//! All protocols are driven by the same [`Crowd`](super::crowd::Crowd), so that no store has a
//! better client than another. Parsers allocate nothing and trust nothing: unexpected bytes from a
//! peer are an error, and a length in them is compared with the expected length before it is used.

use anyhow::Result;
use std::collections::VecDeque;
use std::fmt;
use std::io::{Read, Write};
use std::time::Instant;
use thunderhead_load::content::{KEY_BYTES, fill, is_right};
use thunderhead_wire::Sequence;

/// The action of a request on its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Reads the objects.
    Read,
    /// Writes the objects.
    Write,
    /// Deletes the objects.
    Delete,
}

/// A request in flight.
#[derive(Clone, Debug)]
pub struct Flight {
    /// Its number on its connection.
    pub id: u64,
    /// Its action.
    pub act: Act,
    /// Its objects.
    pub numbers: Vec<u64>,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// When it was first sent.
    pub sent: Instant,
    /// Objects that earlier attempts have completed.
    pub done: u64,
    /// The sequence of its first update, in the protocol that has sequences.
    pub sequence: Sequence,
}

/// The meaning of the first received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An incomplete answer.
    Partial,
    /// Bytes that belong to no request.
    Aside(usize),
    /// The answer to a request.
    Done {
        /// Its bytes.
        bytes: usize,
        /// The request's place among those in flight.
        place: usize,
    },
    /// The server asks for a repetition, with the objects that the request still has.
    Again {
        /// Its bytes.
        bytes: usize,
        /// The request's place among those in flight.
        place: usize,
    },
}

/// The reason to reject an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It is not of the protocol, or answers another request.
    Malformed(&'static str),
    /// The server refuses, with this text.
    Refused(String),
    /// An object is missing.
    Gone(u64),
    /// A value that was never written for this object.
    Wrong(u64),
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bad::Malformed(reason) => write!(f, "the answer is malformed: {reason}"),
            Bad::Refused(words) => write!(f, "the server refuses: {words}"),
            Bad::Gone(number) => write!(f, "object {number} is gone"),
            Bad::Wrong(number) => {
                write!(f, "object {number} has a value that was never written for it")
            }
        }
    }
}

impl std::error::Error for Bad {}

/// A blocking stream for the handshake.
pub trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// One connection's side of a protocol.
pub trait Protocol {
    /// Performs the handshake. No byte from the server may be left unread.
    ///
    /// # Errors
    /// When the server does not complete the handshake.
    fn greet(&mut self, _stream: &mut dyn Stream) -> Result<()> {
        Ok(())
    }

    /// Appends a request to the output. `oldest` is the sequence of the oldest request in flight.
    fn ask(&mut self, flight: &mut Flight, oldest: Option<Sequence>, to: &mut Vec<u8>);

    /// Parses the first received bytes.
    ///
    /// # Errors
    /// When they do not answer a request.
    fn answer(&mut self, flights: &mut VecDeque<Flight>, bytes: &[u8]) -> Result<Answer, Bad>;
}

/// Returns the oldest request in flight, to which the next answer of an ordered protocol belongs.
///
/// # Errors
/// When no request is in flight.
#[inline]
pub fn oldest(flights: &VecDeque<Flight>) -> Result<&Flight, Bad> {
    flights.front().ok_or(Bad::Malformed("an answer without a request"))
}

/// Returns the answer to the oldest request: complete up to `end`, or partial.
#[inline]
#[must_use]
pub fn up_to(end: Option<usize>) -> Answer {
    end.map_or(Answer::Partial, |bytes| Answer::Done { bytes, place: 0 })
}

/// The most bytes of a refusal that are quoted.
const WORDS_MAX: usize = 200;

/// Returns a refusal with the server's text.
#[must_use]
pub fn refused(words: &[u8]) -> Bad {
    let words = words.get(..WORDS_MAX).unwrap_or(words);
    Bad::Refused(String::from_utf8_lossy(words).trim().to_owned())
}

/// Returns a line without its end (CR LF), and the bytes of both; `None` if the end has not arrived
/// yet.
///
/// # Errors
/// When it is longer than any expected line.
pub fn line(bytes: &[u8], most: usize) -> Result<Option<(&[u8], usize)>, Bad> {
    let within = bytes.get(..most + 2).unwrap_or(bytes);
    match within.windows(2).position(|pair| pair == b"\r\n") {
        Some(at) => Ok(Some((within.get(..at).unwrap_or_default(), at + 2))),
        None if within.len() < most + 2 => Ok(None),
        None => Err(Bad::Malformed("a line does not end")),
    }
}

/// Parses a number in decimal digits, without anything else.
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

/// Returns the key of an object as text, for protocols whose keys are text. It is as long as our
/// keys.
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
/// When it belongs to another object.
#[inline]
pub fn check(value: &[u8], number: u64) -> Result<(), Bad> {
    if is_right(value, number) { Ok(()) } else { Err(Bad::Wrong(number)) }
}

/// Returns a value followed by CR LF, if it is complete, and the position behind it.
///
/// # Errors
/// When other bytes follow it.
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
pub(crate) mod tests {
    use super::*;

    /// Returns one request in flight.
    pub(crate) fn flights(act: Act, numbers: &[u64], value_bytes: usize) -> VecDeque<Flight> {
        let numbers = numbers.to_vec();
        let sent = Instant::now();
        VecDeque::from([Flight {
            id: 1,
            act,
            numbers,
            value_bytes,
            sent,
            done: 0,
            sequence: Sequence::FIRST,
        }])
    }

    /// Returns the value of an object, as a server has it.
    pub(crate) fn value(number: u64, bytes: usize) -> Vec<u8> {
        let mut value = Vec::new();
        put_value(&mut value, number, 3, bytes);
        value
    }

    /// Checks that an answer is accepted when complete, is partial wherever it is cut, and never
    /// causes a panic with any byte changed.
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
    fn invalid_numbers_and_lines_are_rejected() {
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
