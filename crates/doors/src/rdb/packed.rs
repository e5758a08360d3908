//! The small collections that Redis keeps as one string: ziplists, listpacks, sets of integers and
//! zipmaps. They are read whole, and each length is checked.

use super::{Damaged, Reader};

/// The byte that ends a ziplist, a listpack or a zipmap.
const END: u8 = 0xff;

/// The number of items of a ziplist or a listpack with too many for its header.
const UNKNOWN: u16 = u16::MAX;

/// The items of a packed collection. Integers become strings.
pub(super) type Items = Result<Vec<Vec<u8>>, Damaged>;

fn decimal(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// Reads items up to the end, which must be the last byte. The items take room of another reader.
fn items(
    bytes: &[u8],
    room: &mut Reader<'_>,
    mut item: impl FnMut(u8, &mut Reader<'_>) -> Result<Vec<u8>, Damaged>,
) -> Result<Vec<Vec<u8>>, Damaged> {
    let mut reader = Reader::new(bytes, usize::MAX);
    let mut items = Vec::new();
    loop {
        match reader.byte()? {
            END if reader.rest().is_empty() => return Ok(items),
            END => return Err(Damaged::Format),
            first => {
                let item = item(first, &mut reader)?;
                room.take_room(item.len())?;
                items.push(item);
            }
        }
    }
}

/// Checks the bytes and the number of items that a header claims.
fn check(bytes: &[u8], claimed: u32, items: usize, count: u16) -> Result<(), Damaged> {
    let is_right = usize::try_from(claimed) == Ok(bytes.len())
        && (count == UNKNOWN || usize::from(count) == items);
    if is_right { Ok(()) } else { Err(Damaged::Format) }
}

/// Reads a ziplist.
pub(super) fn ziplist(bytes: &[u8], room: &mut Reader<'_>) -> Items {
    let mut header = Reader::new(bytes, usize::MAX);
    let claimed = u32::from_le_bytes(header.array()?);
    let _last = u32::from_le_bytes(header.array()?);
    let count = u16::from_le_bytes(header.array()?);
    let found = items(header.rest(), room, |before, reader| {
        // The length of the item before this one.
        if before == 0xfe {
            reader.bytes(4)?;
        }
        let first = reader.byte()?;
        let low = usize::from(first & 0x3f);
        let length = match first >> 6 {
            0 => low,
            1 => low << 8 | usize::from(reader.byte()?),
            2 => {
                let length = u32::from_be_bytes(reader.array()?);
                usize::try_from(length).map_err(|_| Damaged::Format)?
            }
            _ => {
                return Ok(decimal(match first {
                    0xc0 => reader.signed(2)?,
                    0xd0 => reader.signed(4)?,
                    0xe0 => reader.signed(8)?,
                    0xf0 => reader.signed(3)?,
                    0xfe => reader.signed(1)?,
                    0xf1..=0xfd => i64::from(first & 0x0f) - 1,
                    _ => return Err(Damaged::Format),
                }));
            }
        };
        Ok(reader.bytes(length)?.to_vec())
    })?;
    check(bytes, claimed, found.len(), count)?;
    Ok(found)
}

/// Reads a listpack.
pub(super) fn listpack(bytes: &[u8], room: &mut Reader<'_>) -> Items {
    let mut header = Reader::new(bytes, usize::MAX);
    let claimed = u32::from_le_bytes(header.array()?);
    let count = u16::from_le_bytes(header.array()?);
    let found = items(header.rest(), room, |first, reader| {
        let before = reader.rest().len();
        let item = listpack_item(first, reader)?;
        let bytes = 1 + before - reader.rest().len();
        // The length of the item follows it, for readers that go backwards.
        reader.bytes(width_of_length(bytes))?;
        Ok(item)
    })?;
    check(bytes, claimed, found.len(), count)?;
    Ok(found)
}

fn listpack_item(first: u8, reader: &mut Reader<'_>) -> Result<Vec<u8>, Damaged> {
    let length = match first {
        0x00..=0x7f => return Ok(decimal(i64::from(first))),
        0x80..=0xbf => usize::from(first & 0x3f),
        0xc0..=0xdf => {
            let number = i64::from(first & 0x1f) << 8 | i64::from(reader.byte()?);
            return Ok(decimal(if number < 1 << 12 { number } else { number - (1 << 13) }));
        }
        0xe0..=0xef => usize::from(first & 0x0f) << 8 | usize::from(reader.byte()?),
        0xf0 => {
            let length = u32::from_le_bytes(reader.array()?);
            usize::try_from(length).map_err(|_| Damaged::Format)?
        }
        0xf1 => return reader.signed(2).map(decimal),
        0xf2 => return reader.signed(3).map(decimal),
        0xf3 => return reader.signed(4).map(decimal),
        0xf4 => return reader.signed(8).map(decimal),
        _ => return Err(Damaged::Format),
    };
    Ok(reader.bytes(length)?.to_vec())
}

/// Returns the bytes of the length behind an item of so many bytes. In Redis, the greatest number
/// that would fit into two, three or four bytes has one more.
fn width_of_length(bytes: usize) -> usize {
    match bytes {
        0..0x80 => 1,
        0x80..0x3fff => 2,
        0x3fff..0x1f_ffff => 3,
        0x1f_ffff..0xfff_ffff => 4,
        _ => 5,
    }
}

/// Writes a listpack.
#[derive(Debug, Default)]
pub(super) struct PackedWriter {
    items: Vec<u8>,
    count: usize,
}

impl PackedWriter {
    /// Appends an integer.
    pub(super) fn integer(&mut self, number: i64) {
        let bytes = number.to_le_bytes();
        let begin = self.items.len();
        let (first, count) = match number {
            0..=0x7f => (bytes[0], 0),
            -0x8000..=0x7fff => (0xf1, 2),
            -0x8000_0000..=0x7fff_ffff => (0xf3, 4),
            _ => (0xf4, 8),
        };
        self.items.push(first);
        self.items.extend_from_slice(&bytes[..count]);
        self.end(begin);
    }

    /// Appends a string.
    pub(super) fn string(&mut self, string: &[u8]) {
        let begin = self.items.len();
        let length = string.len();
        match length {
            0..0x40 => self.items.push(0x80 | length as u8),
            0x40..0x1000 => self.items.extend_from_slice(&(0xe000 | length as u16).to_be_bytes()),
            _ => {
                self.items.push(0xf0);
                self.items.extend_from_slice(&(length as u32).to_le_bytes());
            }
        }
        self.items.extend_from_slice(string);
        self.end(begin);
    }

    /// Appends the length of the item that begins at a byte: seven bits a byte, the highest first.
    /// All bytes but the first have the highest bit set.
    fn end(&mut self, begin: usize) {
        let bytes = self.items.len() - begin;
        let width = width_of_length(bytes);
        for place in (0..width).rev() {
            let bits = (bytes >> (7 * place) & 0x7f) as u8;
            self.items.push(if place + 1 == width { bits } else { bits | 0x80 });
        }
        self.count += 1;
    }

    /// Returns the listpack.
    pub(super) fn finish(self) -> Vec<u8> {
        const AROUND_BYTES: usize = 4 + 2 + 1;
        let count = u16::try_from(self.count).unwrap_or(UNKNOWN);
        let bytes = (self.items.len() + AROUND_BYTES) as u32;
        [&bytes.to_le_bytes()[..], &count.to_le_bytes(), &self.items, &[END]].concat()
    }
}

/// Reads a set of integers.
pub(super) fn integers(bytes: &[u8], room: &mut Reader<'_>) -> Items {
    let mut reader = Reader::new(bytes, usize::MAX);
    let width = u32::from_le_bytes(reader.array()?);
    let count = u32::from_le_bytes(reader.array()?);
    let width = usize::try_from(width).map_err(|_| Damaged::Format)?;
    let count = usize::try_from(count).map_err(|_| Damaged::Format)?;
    if !matches!(width, 2 | 4 | 8) || count.checked_mul(width) != Some(reader.rest().len()) {
        return Err(Damaged::Format);
    }
    let mut number = || {
        let number = decimal(reader.signed(width)?);
        room.take_room(number.len())?;
        Ok(number)
    };
    (0..count).map(|_| number()).collect()
}

/// Reads a zipmap: fields with values, as they are in hashes of Redis 2.4.
pub(super) fn zipmap(bytes: &[u8], room: &mut Reader<'_>) -> Items {
    let mut reader = Reader::new(bytes, usize::MAX);
    let _count = reader.byte()?;
    let mut is_field = false;
    let found = items(reader.rest(), room, |first, reader| {
        is_field = !is_field;
        let length = match first {
            0xfe => {
                let length = u32::from_le_bytes(reader.array()?);
                usize::try_from(length).map_err(|_| Damaged::Format)?
            }
            length => usize::from(length),
        };
        if is_field {
            return Ok(reader.bytes(length)?.to_vec());
        }
        // Unused bytes follow a value.
        let unused = usize::from(reader.byte()?);
        let value = reader.bytes(length)?.to_vec();
        reader.bytes(unused)?;
        Ok(value)
    })?;
    if is_field { Err(Damaged::Format) } else { Ok(found) }
}
