//! Cuts commands out of bytes.

use super::inline;
use super::number::integer_of;
use super::store::Strings;
use std::ops::{Index, Range};

/// The longest line: of a typed command, and of the length of a string or of an array.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The limits of a client that has not given its password.
const STRANGER_ARGUMENTS_MAX: i64 = 10;
const STRANGER_STRING_BYTES_MAX: i64 = 16_384;

/// The room for arguments, and for the text of typed commands, that a parser keeps.
const ARGUMENTS_KEPT: usize = 64;
const TEXT_BYTES_KEPT: usize = 1024;

/// The limits of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest argument.
    pub string_bytes_max: usize,
    /// Whether the client still has to give its password. Then it may only send short commands.
    pub is_stranger: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { string_bytes_max: 512 << 20, is_stranger: false }
    }
}

/// The bytes of a connection, as far as they were understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The command is unfinished.
    More,
    /// A command, and the number of its bytes. [`Parser::arguments`] returns its arguments.
    Command(usize),
    /// The number of bytes of an empty command, which has no reply.
    Nothing(usize),
    /// The bytes are not of the protocol. The text belongs into an error with the code `ERR`. Then
    /// the connection must be closed.
    Error(Vec<u8>),
}

/// Cuts commands out of the bytes of one connection.
///
/// If a command arrives in pieces, each of its arguments is looked at once.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    limits: Limits,
    /// The arguments that are complete: in the command's bytes, or in `text`.
    pub(super) arguments: Vec<Range<usize>>,
    /// The arguments of a typed command, without quotes.
    text: Vec<u8>,
    is_typed: bool,
    /// The arguments that are missing; `None` if the array's length is.
    missing: Option<usize>,
    /// Bytes of the command that were understood.
    at: usize,
    /// Bytes without the end of the line that begins at `at`.
    scanned: usize,
    /// Whether `arguments` belong to a command that was returned.
    is_done: bool,
}

/// The arguments of a command: the first one is its name.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    source: &'a [u8],
    places: &'a [Range<usize>],
}

impl<'a> Arguments<'a> {
    /// Returns arguments that lie in some bytes. There is at least one.
    pub(super) fn new(source: &'a [u8], places: &'a [Range<usize>]) -> Arguments<'a> {
        Arguments { source, places }
    }

    /// Returns their number, at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a command has a name")]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns an argument.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.source.get(self.places.get(index)?.clone())
    }

    /// Returns the arguments from an index on.
    pub(super) fn strings(&self, index: usize) -> Strings<'a> {
        Strings::new(self.source, self.places.get(index..).unwrap_or_default())
    }

    /// Returns all arguments.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        let source = self.source;
        self.places.iter().map(move |place| &source[place.clone()])
    }
}

impl Index<usize> for Arguments<'_> {
    type Output = [u8];

    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        &self.source[self.places[index].clone()]
    }
}

/// The digits of a length that [`string`] reads, at most.
const DIGITS_MAX: usize = 9;

/// Reads a whole string in its usual form; its length begins at a place. Returns its own place.
#[inline]
pub(super) fn string(bytes: &[u8], at: usize, most: usize) -> Option<Range<usize>> {
    let (mut length, mut end) = (0, at);
    loop {
        match *bytes.get(end)? {
            digit @ b'0'..=b'9' if end - at < DIGITS_MAX => {
                length = 10 * length + usize::from(digit - b'0');
                end += 1;
            }
            b'\r' if end > at => break,
            _ => return None,
        }
    }
    let has_zeros = end - at > 1 && bytes.get(at) == Some(&b'0');
    if has_zeros || length > most || bytes.get(end + 1) != Some(&b'\n') {
        return None;
    }
    let begin = end + 2;
    let is_whole = bytes.get(begin + length..begin + length + 2) == Some(b"\r\n");
    is_whole.then_some(begin..begin + length)
}

impl Parser {
    /// Returns a parser for a new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Parser {
        Parser { limits, ..Parser::default() }
    }

    /// Sets the limits from the next command on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Reads the first command of some bytes. They begin behind the command that the last call
    /// returned. After [`Parsed::More`] they are the same bytes with further ones.
    pub fn next(&mut self, bytes: &[u8]) -> Parsed {
        if std::mem::take(&mut self.is_done) {
            self.forget();
        }
        let parsed = match bytes.first() {
            None => return Parsed::More,
            Some(b'*') => self.array(bytes),
            Some(_) => self.typed(bytes),
        };
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(text) => Parsed::Error([&b"Protocol error: "[..], &text].concat()),
        };
        if parsed != Parsed::More {
            (self.missing, self.at, self.scanned) = (None, 0, 0);
            self.is_done = true;
        }
        parsed
    }

    /// Returns the limits, if the next bytes begin a command.
    #[inline]
    pub(super) fn limits_between_commands(&self) -> Option<Limits> {
        (self.is_done || self.at == 0 && self.scanned == 0).then_some(self.limits)
    }

    /// Forgets the arguments of a command. An idle connection keeps little memory.
    fn forget(&mut self) {
        self.arguments.clear();
        self.arguments.shrink_to(ARGUMENTS_KEPT);
        self.text.clear();
        self.text.shrink_to(TEXT_BYTES_KEPT);
    }

    /// Returns the arguments of the command that [`next`](Parser::next) has just returned. `bytes`
    /// are the same as in that call.
    #[must_use]
    pub fn arguments<'a>(&'a self, bytes: &'a [u8]) -> Arguments<'a> {
        let source = if self.is_typed { self.text.as_slice() } else { bytes };
        Arguments { source, places: &self.arguments }
    }

    /// Reads a line that begins at `at`, up to its carriage return. The byte behind that has
    /// arrived too.
    fn line<'a>(
        &mut self,
        bytes: &'a [u8],
        too_long: &'static str,
    ) -> Result<Option<&'a [u8]>, Vec<u8>> {
        let from = self.at + self.scanned;
        let Some(found) = bytes.get(from..).and_then(|rest| memchr::memchr(b'\r', rest)) else {
            self.scanned = bytes.len() - self.at;
            return if self.scanned > LINE_BYTES_MAX { Err(too_long.into()) } else { Ok(None) };
        };
        let end = from + found;
        if end - self.at > LINE_BYTES_MAX {
            return Err(too_long.into());
        }
        if end + 1 >= bytes.len() {
            self.scanned = end - self.at;
            return Ok(None);
        }
        Ok(Some(&bytes[self.at..end]))
    }

    fn array(&mut self, bytes: &[u8]) -> Result<Parsed, Vec<u8>> {
        self.is_typed = false;
        let mut missing = match self.missing {
            Some(missing) => missing,
            None => {
                let Some(line) = self.line(bytes, "too big mbulk count string")? else {
                    return Ok(Parsed::More);
                };
                let count = integer_of(&line[1..]).filter(|count| *count <= i64::from(i32::MAX));
                let count = count.ok_or("invalid multibulk length")?;
                if self.limits.is_stranger && count > STRANGER_ARGUMENTS_MAX {
                    return Err(b"unauthenticated multibulk length".into());
                }
                self.pass_line(line.len());
                if count <= 0 {
                    return Ok(Parsed::Nothing(self.at));
                }
                count as usize
            }
        };
        while missing > 0 {
            self.missing = Some(missing);
            if !self.string(bytes)? {
                return Ok(Parsed::More);
            }
            missing -= 1;
        }
        Ok(Parsed::Command(self.at))
    }

    /// Goes behind a line.
    fn pass_line(&mut self, length: usize) {
        (self.at, self.scanned) = (self.at + length + 2, 0);
    }

    /// Reads an argument; returns whether it is complete.
    fn string(&mut self, bytes: &[u8]) -> Result<bool, Vec<u8>> {
        let most = self.limits.string_bytes_max;
        // Nearly all strings are whole, and in this form.
        if !self.limits.is_stranger
            && bytes.get(self.at) == Some(&b'$')
            && let Some(place) = string(bytes, self.at + 1, most)
        {
            (self.at, self.scanned) = (place.end + 2, 0);
            self.arguments.push(place);
            return Ok(true);
        }
        let before = (self.at, self.scanned);
        let Some(line) = self.line(bytes, "too big bulk count string")? else { return Ok(false) };
        if line.first() != Some(&b'$') {
            let got = line.first().copied().unwrap_or(b'\r');
            return Err([&b"expected '$', got '"[..], &[got], b"'"].concat());
        }
        let most = most as i64;
        let length = integer_of(&line[1..]).filter(|length| (0..=most).contains(length));
        let length = length.ok_or("invalid bulk length")?;
        if self.limits.is_stranger && length > STRANGER_STRING_BYTES_MAX {
            return Err(b"unauthenticated bulk length".into());
        }
        self.pass_line(line.len());
        let end = self.at + length as usize;
        if bytes.len() < end + 2 {
            (self.at, self.scanned) = before;
            return Ok(false);
        }
        self.arguments.push(self.at..end);
        self.at = end + 2;
        Ok(true)
    }

    fn typed(&mut self, bytes: &[u8]) -> Result<Parsed, Vec<u8>> {
        self.is_typed = true;
        let scanned = self.scanned.min(bytes.len());
        let Some(found) = memchr::memchr(b'\n', &bytes[scanned..]) else {
            self.scanned = bytes.len();
            if bytes.len() > LINE_BYTES_MAX {
                return Err(b"too big inline request".into());
            }
            return Ok(Parsed::More);
        };
        let end = scanned + found;
        if end > LINE_BYTES_MAX {
            return Err(b"too big inline request".into());
        }
        let line = &bytes[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        inline::split(line, &mut self.text, &mut self.arguments)
            .ok_or("unbalanced quotes in request")?;
        let is_empty = self.arguments.is_empty();
        Ok(if is_empty { Parsed::Nothing(end + 1) } else { Parsed::Command(end + 1) })
    }
}
