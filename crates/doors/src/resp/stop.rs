//! The reasons why a command does not go on, with the texts of errors that several commands share.

use super::store::{Kind, Refusal};
use std::borrow::Cow;

/// The reason why a command is not done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The client gets an error: its code, a space, a sentence. The command has changed nothing.
    Error(Cow<'static, [u8]>),
    /// The store refuses.
    Refused(Refusal),
    /// The command waits until one of its keys has elements.
    Wait(Box<Wait>),
    /// A script was ended: the client gets an error. Nothing of the script is done, and nothing of
    /// its transaction.
    Ended(Cow<'static, [u8]>),
}

/// The reason why a blocked client waits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// The keys whose elements it waits for.
    pub(super) keys: Vec<Vec<u8>>,
    /// Their type. Keys of another type are as good as none.
    pub(super) kind: Kind,
    /// The time at which the client's wait ends, in milliseconds since 1970. `None` stands for a
    /// wait without a limit.
    pub(super) deadline: Option<u64>,
    /// Whether its reply in a `MULTI`, where it does not wait, is the absence of an array, and not
    /// of a string. A client that has waited in vain gets that of an array.
    pub(super) is_array: bool,
    /// Whether it is a consumer of a group: its command changes the consumer although it waits, and
    /// is also executed again when a key is gone, or has another type.
    pub(super) is_of_group: bool,
    /// Arguments that have another text when the command is executed again, by their indexes.
    pub(super) replaced: Vec<(usize, Vec<u8>)>,
}

/// The outcome of a command.
pub(super) type Done = Result<(), Stop>;

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

impl Stop {
    /// Returns an error.
    pub(super) const fn error(text: &'static str) -> Stop {
        Stop::Error(Cow::Borrowed(text.as_bytes()))
    }

    /// Returns an error with a text that depends on the command.
    pub(super) fn error_of(text: impl Into<Vec<u8>>) -> Stop {
        Stop::Error(Cow::Owned(text.into()))
    }
}

pub(super) const WRONG_TYPE: Stop =
    Stop::error("WRONGTYPE Operation against a key holding the wrong kind of value");
pub(super) const SYNTAX: Stop = Stop::error("ERR syntax error");
pub(super) const NOT_AN_INTEGER: Stop = Stop::error("ERR value is not an integer or out of range");
pub(super) const NOT_A_FLOAT: Stop = Stop::error("ERR value is not a valid float");
pub(super) const NO_SUCH_KEY: Stop = Stop::error("ERR no such key");
pub(super) const OUT_OF_RANGE: Stop = Stop::error("ERR index out of range");
pub(super) const OVERFLOW: Stop = Stop::error("ERR increment or decrement would overflow");
pub(super) const DATABASE_OUT_OF_RANGE: Stop = Stop::error("ERR DB index is out of range");
/// The error for a reply that would take too much memory.
pub(super) const REPLY_TOO_LONG: Stop =
    Stop::error("ERR The reply is too long. Ask for less at a time.");
/// The error for a collection whose bytes are not as this server writes them.
pub(super) const DAMAGED: Stop = Stop::error("ERR The value of this key is damaged");
/// The error for a copy that is too much for one change of the store.
pub(super) const TOO_LARGE_TO_COPY: Stop =
    Stop::error("ERR The value of this key is too large to be copied");

/// The error when memory is full.
pub(super) const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";
/// The error for a value that is too long.
pub(super) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
/// The error for changes that are too much to be done together.
pub(super) const TOO_MUCH: &str = "ERR The command changes too much at once. Use smaller parts.";
/// The error for a command that could not be done for too long.
pub(super) const LOADING: &str = "LOADING Redis is loading the dataset in memory";
/// The same on the cluster port.
pub(super) const TRY_AGAIN: &str = "TRYAGAIN The slot cannot be served now";
/// The error before the password.
pub(super) const NO_AUTH: &str = "NOAUTH Authentication required.";

/// Returns the error for a command that the user may not execute.
pub(super) fn no_permission(text: &[u8]) -> Stop {
    Stop::error_of([b"NOPERM ", text].concat())
}

/// Returns the error for a wrong number of arguments.
pub(super) fn wrong_arity(name: &str) -> Stop {
    Stop::error_of(format!("ERR wrong number of arguments for '{name}' command"))
}

/// Returns the part of a word that Redis shows in an error: its text ends at a byte of zero.
pub(super) fn shown(word: &[u8]) -> &[u8] {
    &word[..memchr::memchr(0, word).unwrap_or(word.len())]
}

/// Whether a browser has sent this line. A page must not make a browser send commands to a
/// server on the user's own machine. So the connection ends, as in Redis.
#[inline]
pub(super) fn is_of_browser(name: &[u8]) -> bool {
    let words: [&[u8]; 2] = [b"post", b"host:"];
    words.iter().any(|word| name.eq_ignore_ascii_case(word))
}
