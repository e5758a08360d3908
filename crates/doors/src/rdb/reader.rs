//! Reads the parts of the format from bytes.

use super::{Damaged, lzf};

/// A length, or the form of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Bytes(u64),
    /// A string that is an integer of so many bytes.
    Integer(usize),
    Packed,
}

/// The bytes that an item takes in memory, besides its own.
const ITEM_BYTES: usize = 32;

/// Bytes of the format, from which parts are taken.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// The bytes that may still be unpacked.
    room: usize,
}

impl<'a> Reader<'a> {
    /// Returns a reader of some bytes, which unpacks at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8], bytes_max: usize) -> Reader<'a> {
        Reader { rest: bytes, room: bytes_max }
    }

    /// Returns the bytes that were not read.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Counts an item that is kept in memory.
    pub(super) fn take_room(&mut self, bytes: usize) -> Result<(), Damaged> {
        let room = self.room.checked_sub(bytes.saturating_add(ITEM_BYTES));
        self.room = room.ok_or(Damaged::TooLong)?;
        Ok(())
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Damaged::End)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Damaged::End)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Reads a byte, such as the type of a value.
    ///
    /// # Errors
    /// If there is none.
    pub fn byte(&mut self) -> Result<u8, Damaged> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn any_length(&mut self) -> Result<Length, Damaged> {
        let first = self.byte()?;
        let low = first & 0x3f;
        Ok(match (first >> 6, low) {
            (0, _) => Length::Bytes(u64::from(low)),
            (1, _) => Length::Bytes(u64::from(low) << 8 | u64::from(self.byte()?)),
            (2, 0) => Length::Bytes(u64::from(u32::from_be_bytes(self.array()?))),
            (2, 1) => Length::Bytes(u64::from_be_bytes(self.array()?)),
            (3, 0..=2) => Length::Integer(1 << low),
            (3, 3) => Length::Packed,
            _ => return Err(Damaged::Format),
        })
    }

    /// Reads a length, or another number in this form.
    ///
    /// # Errors
    /// If the bytes are damaged.
    pub fn length(&mut self) -> Result<u64, Damaged> {
        match self.any_length()? {
            Length::Bytes(length) => Ok(length),
            Length::Integer(_) | Length::Packed => Err(Damaged::Format),
        }
    }

    /// Reads the number of items that follow. Each has at least one byte.
    pub(super) fn count(&mut self) -> Result<usize, Damaged> {
        let count = usize::try_from(self.length()?).map_err(|_| Damaged::Format)?;
        if count > self.rest.len() { Err(Damaged::End) } else { Ok(count) }
    }

    fn size(&mut self) -> Result<usize, Damaged> {
        usize::try_from(self.length()?).map_err(|_| Damaged::Format)
    }

    /// Reads a string.
    ///
    /// # Errors
    /// If the bytes are damaged.
    pub fn string(&mut self) -> Result<Vec<u8>, Damaged> {
        let string = match self.any_length()? {
            Length::Bytes(length) => {
                let length = usize::try_from(length).map_err(|_| Damaged::Format)?;
                self.bytes(length)?.to_vec()
            }
            Length::Integer(bytes) => self.signed(bytes)?.to_string().into_bytes(),
            Length::Packed => {
                let (packed, length) = (self.size()?, self.size()?);
                let packed = self.bytes(packed)?;
                if length > self.room {
                    return Err(Damaged::TooLong);
                }
                lzf::unpack(packed, length).ok_or(Damaged::Format)?
            }
        };
        self.take_room(string.len())?;
        Ok(string)
    }

    /// Skips a string. It is not unpacked.
    pub(super) fn skip_string(&mut self) -> Result<(), Damaged> {
        let bytes = match self.any_length()? {
            Length::Bytes(length) => usize::try_from(length).map_err(|_| Damaged::Format)?,
            Length::Integer(bytes) => bytes,
            Length::Packed => {
                let (packed, _unpacked) = (self.size()?, self.size()?);
                packed
            }
        };
        self.bytes(bytes).map(|_| ())
    }

    /// Skips several strings.
    pub(super) fn skip_strings(&mut self, count: usize) -> Result<(), Damaged> {
        (0..count).try_for_each(|_| self.skip_string())
    }

    /// Skips several lengths.
    pub(super) fn skip_lengths(&mut self, count: usize) -> Result<(), Damaged> {
        (0..count).try_for_each(|_| self.length().map(|_| ()))
    }

    /// Reads an integer of so many bytes, the lowest one first.
    pub(super) fn signed(&mut self, bytes: usize) -> Result<i64, Damaged> {
        let bytes = self.bytes(bytes)?;
        let unsigned = bytes.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        let shift = 64 - 8 * bytes.len() as u32;
        Ok((unsigned << shift) as i64 >> shift)
    }

    /// Reads a time in milliseconds, or in another unit.
    ///
    /// # Errors
    /// If the bytes are damaged.
    pub fn time(&mut self) -> Result<u64, Damaged> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a number with a point of eight bytes.
    pub(super) fn double(&mut self) -> Result<f64, Damaged> {
        Ok(f64::from_le_bytes(self.array()?))
    }

    /// Reads a number with a point that has digits.
    pub(super) fn double_text(&mut self) -> Result<f64, Damaged> {
        match self.byte()? {
            253 => Ok(f64::NAN),
            254 => Ok(f64::INFINITY),
            255 => Ok(f64::NEG_INFINITY),
            length => {
                let text = str::from_utf8(self.bytes(usize::from(length))?);
                text.ok().and_then(|text| text.trim().parse().ok()).ok_or(Damaged::Format)
            }
        }
    }

    /// Skips a number with a point that has digits.
    pub(super) fn skip_double_text(&mut self) -> Result<(), Damaged> {
        match self.byte()? {
            253..=255 => Ok(()),
            length => self.bytes(usize::from(length)).map(|_| ()),
        }
    }
}

/// Appends a length.
pub(super) fn put_length(out: &mut Vec<u8>, length: u64) {
    match (u8::try_from(length), u16::try_from(length), u32::try_from(length)) {
        (Ok(length), _, _) if length < 1 << 6 => out.push(length),
        (_, Ok(length), _) if length < 1 << 14 => {
            out.extend_from_slice(&(length | 1 << 14).to_be_bytes());
        }
        (_, _, Ok(length)) => {
            out.push(0x80);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(0x81);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
}

/// Appends a string. A short integer is written as such.
pub(super) fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    /// The most digits of an integer of four bytes, with its sign.
    const DIGITS_MAX: usize = 11;
    if string.len() <= DIGITS_MAX
        && let Some(number) = crate::resp::integer_of(string)
        && let Ok(number) = i32::try_from(number)
    {
        let bytes = number.to_le_bytes();
        let (form, count) = match number {
            -0x80..=0x7f => (0xc0, 1),
            -0x8000..=0x7fff => (0xc1, 2),
            _ => (0xc2, 4),
        };
        out.push(form);
        out.extend_from_slice(&bytes[..count]);
        return;
    }
    put_length(out, string.len() as u64);
    out.extend_from_slice(string);
}
