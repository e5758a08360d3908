//! RDB: the form in which Redis keeps values in files and in the replies to `DUMP`.
//!
//! - [`Reader`] reads the parts of the format from bytes: lengths, strings, numbers.
//! - [`Value`] is a value of one key. [`Value::read`] understands each form in which Redis 2.8 to
//!   8.2 writes strings, lists, sets, hashes, sorted sets and streams. [`Value::write`] writes
//!   forms that Redis 7.0 and later read. Streams need Redis 7.2, and hashes with fields that
//!   expire need Redis 7.4.
//! - [`File`] reads a whole file, part by part.
//! - [`unwrap`] and [`wrap`] are for the payloads of `DUMP` and `RESTORE`.
//!
//! # Promises
//!
//! - Damaged bytes lead to [`Damaged`], and to no panic.
//! - No memory is allocated by a claimed length. A reader unpacks only as many bytes as its owner
//!   allows.
//!
//! The values of modules are [`Damaged::Unsupported`].

mod checksum;
mod file;
#[cfg(test)]
mod file_tests;
mod lzf;
mod packed;
mod payload;
mod reader;
mod stream;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod tests;
mod value;

pub use checksum::{Checksum, checksum};
pub use file::{Entry, File, FileError, Part};
use payload::wrap_as;
pub use payload::{BadPayload, libraries_of, unwrap, wrap, wrap_libraries};
pub use reader::Reader;
pub use stream::{Id, Stream, StreamConsumer, StreamEntry, StreamGroup, StreamPending};
pub use value::{Field, Value};

/// The reason why bytes are not a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// They are not of the format.
    Format,
    /// They end too early.
    End,
    /// They would be longer than the bound when they are unpacked.
    TooLong,
    /// They are a type that is not supported: this one.
    Unsupported(u8),
}

/// The version of the format that [`Value::write`] and [`wrap`] use: that of Redis 7.0.
pub const VERSION: u16 = 10;

/// The version with the latest form of streams: that of Redis 7.2.
pub const VERSION_STREAM: u16 = 11;

/// The version with fields of hashes that expire: that of Redis 7.4.
pub const VERSION_EXPIRING: u16 = 12;

/// The latest version that is read: that of Redis 8.2.
pub const VERSION_MAX: u16 = 12;
