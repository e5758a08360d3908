//! Writes replies.

use super::number::double_text;

/// The version of the protocol that a client understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// RESP2: every client.
    #[default]
    Two,
    /// RESP3: clients that asked for it with `HELLO 3`.
    Three,
}

/// The most bytes of a line with an integer.
const NUMBER_LINE_BYTES: usize = 24;

/// The most bytes of a reply beside those of its string.
const STRING_BYTES: usize = 32;

/// Writes replies behind those of earlier commands.
///
/// RESP2 knows fewer types. A map becomes an array of keys and values, a set or a push an array, a
/// number with a point and a verbatim text a string, a truth value an integer.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    version: Version,
}

impl<'a> Writer<'a> {
    /// Returns a writer that appends to `out`.
    #[must_use]
    pub fn new(out: &'a mut Vec<u8>, version: Version) -> Writer<'a> {
        Writer { out, version }
    }

    /// Returns the version in which it writes.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Sets the version from the next reply on.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Returns the number of bytes before the next reply.
    pub(super) fn length(&self) -> usize {
        self.out.len()
    }

    /// Drops the bytes behind a length.
    pub(super) fn truncate(&mut self, length: usize) {
        self.out.truncate(length);
    }

    /// Takes the bytes behind a length.
    pub(super) fn split_off(&mut self, length: usize) -> Vec<u8> {
        self.out.split_off(length)
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    fn number_line(&mut self, kind: u8, number: i64) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number).as_bytes();
        let mut line = [kind; NUMBER_LINE_BYTES];
        let end = 1 + digits.len();
        line[1..end].copy_from_slice(digits);
        line[end..end + 2].copy_from_slice(b"\r\n");
        self.out.extend_from_slice(&line[..end + 2]);
    }

    /// Writes a short text without line breaks, such as `OK`.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Writes a short text. Line breaks become spaces.
    pub(super) fn status(&mut self, text: &[u8]) {
        self.marked(b'+', text);
    }

    /// Writes an error: its code in capital letters, a space, a sentence. Line breaks become
    /// spaces.
    pub fn error(&mut self, text: &[u8]) {
        self.marked(b'-', text);
    }

    fn marked(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        let is_break = |byte: &u8| matches!(*byte, b'\r' | b'\n');
        self.out.extend(text.iter().map(|byte| if is_break(byte) { b' ' } else { *byte }));
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes an integer.
    #[inline]
    pub fn integer(&mut self, number: i64) {
        self.number_line(b':', number);
    }

    /// Writes a string.
    #[inline]
    pub fn string(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + STRING_BYTES);
        self.number_line(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes the absence of a value.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// Writes the absence of an array.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Two => b"*-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// Begins an array; so many replies follow.
    #[inline]
    pub fn array(&mut self, count: usize) {
        self.number_line(b'*', count as i64);
    }

    /// Begins a map; twice as many replies follow: keys and values.
    pub fn map(&mut self, count: usize) {
        match self.version {
            Version::Two => self.array(2 * count),
            Version::Three => self.number_line(b'%', count as i64),
        }
    }

    /// Begins a set; so many replies follow.
    pub fn set(&mut self, count: usize) {
        self.aggregate(b'~', count);
    }

    /// Begins a message that is no reply to a command; so many replies follow.
    pub fn push(&mut self, count: usize) {
        self.aggregate(b'>', count);
    }

    fn aggregate(&mut self, kind: u8, count: usize) {
        match self.version {
            Version::Two => self.array(count),
            Version::Three => self.number_line(kind, count as i64),
        }
    }

    /// Writes a number with a point.
    pub fn double(&mut self, number: f64) {
        let text = double_text(number);
        match self.version {
            Version::Two => self.string(text.as_bytes()),
            Version::Three => self.line(b',', text.as_bytes()),
        }
    }

    /// Writes a truth value.
    pub fn boolean(&mut self, is_true: bool) {
        match self.version {
            Version::Two => self.integer(i64::from(is_true)),
            Version::Three => self.line(b'#', if is_true { b"t" } else { b"f" }),
        }
    }

    /// Writes an integer of any length.
    pub fn big_number(&mut self, digits: impl AsRef<[u8]>) {
        match self.version {
            Version::Two => self.string(digits.as_ref()),
            Version::Three => self.line(b'(', digits.as_ref()),
        }
    }

    /// Writes a text for people. Its format is `txt` or `mkd`.
    pub fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        if self.version == Version::Two {
            return self.string(text);
        }
        self.number_line(b'=', text.len() as i64 + 4);
        self.out.extend_from_slice(&format);
        self.out.push(b':');
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}
