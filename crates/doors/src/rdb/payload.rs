//! The payloads of `DUMP` and `RESTORE`: a value between its type and a version with a checksum.

use super::reader::put_string;
use super::{Damaged, Reader, VERSION, VERSION_EXPIRING, VERSION_MAX, Value, checksum};

/// The bytes of the version and of the checksum.
const VERSION_BYTES: usize = 2;
const SUM_BYTES: usize = 8;

/// A payload whose version is too new, or whose checksum is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPayload;

/// Returns the type and the bytes of the value of a payload.
///
/// # Errors
/// If the payload has another version, or was damaged.
pub fn unwrap(payload: &[u8]) -> Result<&[u8], BadPayload> {
    let (summed, sum) = payload.split_last_chunk::<SUM_BYTES>().ok_or(BadPayload)?;
    let (value, version) = summed.split_last_chunk::<VERSION_BYTES>().ok_or(BadPayload)?;
    let is_right =
        u16::from_le_bytes(*version) <= VERSION_MAX && u64::from_le_bytes(*sum) == checksum(summed);
    if is_right { Ok(value) } else { Err(BadPayload) }
}

/// Returns the payload for the type and the bytes of a value.
#[must_use]
pub fn wrap(value: Vec<u8>, is_expiring: bool) -> Vec<u8> {
    wrap_as(value, if is_expiring { VERSION_EXPIRING } else { VERSION })
}

/// The byte before the text of a library.
const LIBRARY: u8 = 245;

/// The bytes that the libraries of a payload may have together.
const LIBRARIES_BYTES_MAX: usize = 64 << 20;

/// Returns the payload for libraries of functions.
#[must_use]
pub fn wrap_libraries<'a>(codes: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for code in codes {
        bytes.push(LIBRARY);
        put_string(&mut bytes, code);
    }
    wrap(bytes, false)
}

/// Returns the texts of libraries from the bytes in a payload.
///
/// # Errors
/// If the bytes are something else, or damaged.
pub fn libraries_of(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Damaged> {
    let mut reader = Reader::new(bytes, LIBRARIES_BYTES_MAX);
    let mut codes = Vec::new();
    while !reader.rest().is_empty() {
        match reader.byte()? {
            LIBRARY => codes.push(reader.string()?),
            other => return Err(Damaged::Unsupported(other)),
        }
    }
    Ok(codes)
}

/// Returns the payload for a value that has the form of a version.
pub(super) fn wrap_as(mut value: Vec<u8>, version: u16) -> Vec<u8> {
    value.extend_from_slice(&version.to_le_bytes());
    let sum = checksum(&value);
    value.extend_from_slice(&sum.to_le_bytes());
    value
}

impl Value {
    /// Returns the payload of this value.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        wrap_as(bytes, self.version())
    }
}
