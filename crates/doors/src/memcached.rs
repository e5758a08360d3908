//! The text protocol of memcached.
//!
//! A [`Parser`] cuts [`Request`]s out of the bytes of a connection. The functions of [`reply`]
//! write the answers. [`store::execute`] does both for a store.
//!
//! The behaviour is that of memcached 1.6, also for wrong requests. The differences:
//!
//! - A line with a zero byte is refused. Memcached ignores the rest of such a line.
//! - Client flags, times and lengths that do not fit their type are refused. Memcached takes the
//!   low bits.
//! - A number that becomes shorter is always padded with spaces. Memcached does so unless another
//!   answer still uses the object. A stale object stays stale then, too.
//! - The time of an `ma` always counts. Memcached forgets it if the number becomes longer, or if
//!   another answer still uses the object.
//! - A `get` with a key that is too long leaves the earlier answers. Memcached drops the answers
//!   that it has not sent yet.
//! - The flag `h` (the object was read): an `add` of an existing object counts as a read. After
//!   `incr` or `decr` the object counts as not read. Memcached changes the number in place, and
//!   keeps the flag.
//! - A refused `set` leaves the old object. Memcached removes the old object.
//! - The binary protocol is not spoken. A connection that begins with its first byte is closed.

mod line;
mod meta;
mod number;
mod parser;
pub mod reply;
mod runs;
pub mod store;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod tests;

pub use line::{Keys, Words};
pub use meta::{Meta, Mode};
pub use parser::{Limits, Parsed, Parser};
pub use runs::{Run, RunDone};

use std::borrow::Cow;

/// The longest key.
pub const KEY_BYTES_MAX: usize = 250;

/// The time of an expiry, as a client writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exptime(pub i32);

/// Times up to this one count from now, later ones from 1970: 30 days.
const RELATIVE_MAX: i32 = 60 * 60 * 24 * 30;

/// The time at which an object expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It stays.
    Never,
    /// It is expired already.
    Past,
    /// Seconds from now.
    In(u32),
    /// Seconds since 1970.
    At(u32),
}

impl Exptime {
    /// Returns the meaning of the number.
    #[must_use]
    pub fn expiry(self) -> Expiry {
        match self.0 {
            0 => Expiry::Never,
            time @ 1..=RELATIVE_MAX => Expiry::In(time.unsigned_abs()),
            time if time > 0 => Expiry::At(time.unsigned_abs()),
            _ => Expiry::Past,
        }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// `get`, `gets`, `gat`, `gats`: reads objects.
    Get {
        /// The keys: none only if an answer that was interrupted goes on.
        keys: Keys<'a>,
        /// Whether the answer has the objects' versions.
        with_cas: bool,
        /// The new time of expiry, if there is one.
        touch: Option<Exptime>,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`: writes an object.
    Store(Store<'a>),
    /// `delete`.
    Delete {
        /// The key.
        key: &'a [u8],
        /// Whether the client wants no answer.
        no_reply: bool,
    },
    /// `incr` and `decr`.
    Arithmetic {
        /// The key.
        key: &'a [u8],
        /// The number to add, or to subtract.
        delta: u64,
        /// Whether to subtract. The result is at least 0.
        is_decrement: bool,
        /// Whether the client wants no answer.
        no_reply: bool,
    },
    /// `touch`: sets the time of expiry.
    Touch {
        /// The key.
        key: &'a [u8],
        /// The new time of expiry.
        exptime: Exptime,
        /// Whether the client wants no answer.
        no_reply: bool,
    },
    /// `flush_all`: removes all objects, now or later.
    FlushAll {
        /// The time at which they are removed; 0 means at once.
        delay: Exptime,
        /// Whether the client wants no answer.
        no_reply: bool,
    },
    /// `stats`, with its arguments.
    Stats(Words<'a>),
    /// `verbosity`.
    Verbosity {
        /// Whether the client wants no answer.
        no_reply: bool,
    },
    /// `cache_memlimit`: sets the memory of the cache.
    MemoryLimit {
        /// The new limit.
        megabytes: u32,
        /// Whether the client wants no answer.
        no_reply: bool,
    },
    /// `version`.
    Version,
    /// `quit`: ends the connection.
    Quit,
    /// `shutdown`, which no door does.
    Shutdown,
    /// `mg`: reads an object.
    MetaGet(Meta<'a>),
    /// `ms`: writes an object.
    MetaSet(Meta<'a>, &'a [u8]),
    /// `md`: deletes an object, or marks it as stale.
    MetaDelete(Meta<'a>),
    /// `ma`: adds to a number, or subtracts.
    MetaArithmetic(Meta<'a>),
    /// `mn`: does nothing, so its answer says that the earlier requests are done.
    MetaNoop,
    /// `me`: describes an object.
    MetaDebug(Cow<'a, [u8]>, bool),
}

impl Request<'_> {
    /// Whether the client wants no answer.
    #[must_use]
    pub fn wants_no_answer(&self) -> bool {
        match self {
            Request::Store(store) => store.no_reply,
            Request::Delete { no_reply, .. }
            | Request::Arithmetic { no_reply, .. }
            | Request::Touch { no_reply, .. }
            | Request::FlushAll { no_reply, .. }
            | Request::Verbosity { no_reply }
            | Request::MemoryLimit { no_reply, .. } => *no_reply,
            _ => false,
        }
    }
}

/// A request to write an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// The way to write.
    pub mode: Mode,
    /// The key.
    pub key: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// The time of expiry.
    pub exptime: Exptime,
    /// The version that the object must have, if there is one: `cas`.
    pub cas: Option<u64>,
    /// The value.
    pub value: &'a [u8],
    /// Whether the client wants no answer.
    pub no_reply: bool,
}
