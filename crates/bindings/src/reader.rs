//! Reads numbers and byte strings from a buffer.

use std::fmt;

/// A buffer of requests that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The offset at which decoding stopped.
    pub at: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the request is malformed at byte {}; report this bug of the client", self.at)
    }
}

impl std::error::Error for Malformed {}

/// The unread rest of a buffer.
pub(crate) struct Reader<'a> {
    buffer: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(buffer: &'a [u8]) -> Reader<'a> {
        Reader { buffer, at: 0 }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.buffer.len()
    }

    pub(crate) fn malformed(&self) -> Malformed {
        Malformed { at: self.at }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(count).ok_or(self.malformed())?;
        let bytes = self.buffer.get(self.at..end).ok_or(self.malformed())?;
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let malformed = self.malformed();
        self.bytes(N)?.try_into().map_err(|_| malformed)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads text whose length comes first, in a `u16`.
    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        let malformed = self.malformed();
        let count = usize::from(self.u16()?);
        std::str::from_utf8(self.bytes(count)?).map_err(|_| malformed)
    }
}
