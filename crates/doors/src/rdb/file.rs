//! Files of Redis: keys with their values, one behind the other.
//!
//! ```text
//!  REDIS │ version: 4 digits │ parts │ 255 │ checksum: 8 bytes
//!  part: code │ facts about the file, or about the next key
//!  part: type of a value │ key │ value
//! ```

use super::{Checksum, Damaged, Reader, VERSION_MAX, Value, wrap_as};

const MAGIC: &[u8] = b"REDIS";
const HEADER_BYTES: usize = 9;

/// The first version with a checksum at the end.
const SUMMED_SINCE: u16 = 5;

/// The bytes that one value may unpack.
const UNPACKED_MAX: usize = 1 << 30;

/// The codes of parts that are no values.
mod code {
    pub(super) const SLOT: u8 = 244;
    pub(super) const FUNCTIONS: u8 = 245;
    pub(super) const MODULE: u8 = 247;
    pub(super) const IDLE: u8 = 248;
    pub(super) const FREQUENCY: u8 = 249;
    pub(super) const FACT: u8 = 250;
    pub(super) const SIZES: u8 = 251;
    pub(super) const MILLISECONDS: u8 = 252;
    pub(super) const SECONDS: u8 = 253;
    pub(super) const DATABASE: u8 = 254;
    pub(super) const END: u8 = 255;
}

/// The type of the values of modules, which are skipped.
const MODULE_VALUE: u8 = 7;

/// The reason why bytes are not a file of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileError {
    /// They do not begin as such a file does.
    NotRdb,
    /// The file has this version, which is too new.
    Version(u16),
    /// The part that begins at this byte is damaged.
    Damaged(u64, Damaged),
    /// The checksum at the end is wrong.
    Checksum,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The number of its database.
    pub database: u64,
    /// The key.
    pub key: Vec<u8>,
    /// The type and the bytes of the value.
    kind: u8,
    value: &'a [u8],
    version: u16,
    /// The time at which it expires, in milliseconds since 1970, if it does.
    pub expires: Option<u64>,
}

impl Entry<'_> {
    /// Returns the payload for `RESTORE`.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind];
        bytes.extend_from_slice(self.value);
        wrap_as(bytes, self.version)
    }

    /// Checks that the value can be read. The file is read on behind a value that cannot.
    ///
    /// # Errors
    /// If the items of the value contradict each other, or are too long together, or if it is the
    /// value of a module.
    pub fn check(&self) -> Result<(), Damaged> {
        let mut reader = Reader::new(self.value, UNPACKED_MAX);
        Value::read(self.kind, &mut reader)?;
        if reader.rest().is_empty() { Ok(()) } else { Err(Damaged::Format) }
    }
}

/// The next part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// It is not there yet: more bytes are needed.
    More,
    /// There was nothing of interest.
    Nothing,
    /// A key.
    Entry(Entry<'a>),
    /// The end, whose checksum is right.
    End,
}

/// Reads a file. The owner has its bytes.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// The version, once the header was read.
    version: Option<u16>,
    database: u64,
    expires: Option<u64>,
    sum: Checksum,
    at: u64,
}

impl File {
    /// Returns a reader of a new file.
    #[must_use]
    pub fn new() -> File {
        File::default()
    }

    /// Reads the next part from some bytes, which begin behind the parts before. Returns it with
    /// the number of its bytes. After [`Part::More`] the bytes are the same with further ones.
    ///
    /// # Errors
    /// If the bytes are not of a file of Redis.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<(Part<'a>, usize), FileError> {
        let Some(version) = self.version else { return self.header(bytes) };
        let mut reader = Reader::new(bytes, UNPACKED_MAX);
        let part = match self.part(version, &mut reader) {
            Ok(part) => part,
            Err(Damaged::End) => return Ok((Part::More, 0)),
            Err(damaged) => return Err(FileError::Damaged(self.at, damaged)),
        };
        let used = bytes.len() - reader.rest().len();
        if part == Part::End {
            let summed = if version < SUMMED_SINCE { used } else { used - 8 };
            self.sum.add(bytes.get(..summed).unwrap_or(&[]));
            let sum = bytes.get(summed..used).unwrap_or(&[]);
            // Redis writes 0 if it computes no checksum.
            let is_right = sum == self.sum.value().to_le_bytes() || sum.iter().all(|it| *it == 0);
            if !is_right {
                return Err(FileError::Checksum);
            }
        } else {
            self.sum.add(bytes.get(..used).unwrap_or(&[]));
        }
        self.at += used as u64;
        Ok((part, used))
    }

    fn header<'a>(&mut self, bytes: &'a [u8]) -> Result<(Part<'a>, usize), FileError> {
        let Some(header) = bytes.get(..HEADER_BYTES) else {
            let shared = bytes.len().min(MAGIC.len());
            let is_possible = bytes.get(..shared) == MAGIC.get(..shared);
            return if is_possible { Ok((Part::More, 0)) } else { Err(FileError::NotRdb) };
        };
        let digits = header.strip_prefix(MAGIC).ok_or(FileError::NotRdb)?;
        let version = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        let version: u16 = version.ok_or(FileError::NotRdb)?;
        if version > VERSION_MAX {
            return Err(FileError::Version(version));
        }
        self.version = Some(version);
        self.sum.add(header);
        self.at = HEADER_BYTES as u64;
        Ok((Part::Nothing, HEADER_BYTES))
    }

    fn part<'a>(&mut self, version: u16, reader: &mut Reader<'a>) -> Result<Part<'a>, Damaged> {
        match reader.byte()? {
            code::END => {
                if version >= SUMMED_SINCE {
                    reader.bytes(8)?;
                }
                return Ok(Part::End);
            }
            code::SLOT => {
                for _ in 0..3 {
                    reader.length()?;
                }
            }
            code::FUNCTIONS => drop(reader.string()?),
            code::MODULE => skip_module(reader, true)?,
            code::IDLE => drop(reader.length()?),
            code::FREQUENCY => drop(reader.byte()?),
            code::FACT => drop((reader.string()?, reader.string()?)),
            code::SIZES => drop((reader.length()?, reader.length()?)),
            code::MILLISECONDS => self.expires = Some(reader.time()?),
            code::SECONDS => {
                let seconds = u32::from_le_bytes(reader.array()?);
                self.expires = Some(u64::from(seconds) * 1000);
            }
            code::DATABASE => self.database = reader.length()?,
            kind => return self.entry(version, kind, reader),
        }
        Ok(Part::Nothing)
    }

    fn entry<'a>(
        &mut self,
        version: u16,
        kind: u8,
        reader: &mut Reader<'a>,
    ) -> Result<Part<'a>, Damaged> {
        let key = reader.string()?;
        let before = reader.rest();
        match kind {
            MODULE_VALUE => skip_module(reader, false)?,
            _ => Value::skip(kind, reader)?,
        }
        let value = before.get(..before.len() - reader.rest().len()).unwrap_or(&[]);
        let (database, expires) = (self.database, self.expires.take());
        Ok(Part::Entry(Entry { database, key, kind, value, version, expires }))
    }
}

/// Skips the value of a module, or the data that it has saved beside the keys.
fn skip_module(reader: &mut Reader<'_>, is_beside: bool) -> Result<(), Damaged> {
    let _module = reader.length()?;
    if is_beside {
        let _when = (reader.length()?, reader.length()?);
    }
    loop {
        match reader.length()? {
            0 => return Ok(()),
            1 | 2 => drop(reader.length()?),
            3 => drop(reader.bytes(4)?),
            4 => drop(reader.bytes(8)?),
            5 => drop(reader.string()?),
            _ => return Err(Damaged::Format),
        }
    }
}
