//! The reasons why a request failed, split by the caller's knowledge and next step.

use crate::limits;

/// The failure of a request. An unmet condition is an [`Answer`](crate::Answer), not an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key has no characters.
    #[error("the key is empty; give at least one character")]
    KeyEmpty,
    /// The key is longer than [`KEY_BYTES_MAX`](limits::KEY_BYTES_MAX).
    #[error("the key has {bytes} bytes; shorten it to {limit}")]
    KeyTooLong {
        /// The length of the key.
        bytes: usize,
        /// The allowed length.
        limit: usize,
    },
    /// The key is not a path that every store can hold.
    #[error("the key {key:?} is malformed: {why}; name parts joined by single slashes")]
    KeyMalformed {
        /// The key.
        key: String,
        /// The fault in it.
        why: &'static str,
    },
    /// The value is longer than [`VALUE_BYTES_MAX`](limits::VALUE_BYTES_MAX).
    #[error("the value has {bytes} bytes; the limit is {limit}: split it into several values")]
    ValueTooLong {
        /// The length of the value.
        bytes: usize,
        /// The allowed length.
        limit: usize,
    },
    /// The lease is shorter or longer than the stores can grant.
    #[error("a lease of {milliseconds} ms cannot be granted; ask for 1 to 20 seconds")]
    LeaseTime {
        /// The requested time.
        milliseconds: u128,
    },
    /// The holder's description of itself is longer than
    /// [`DESCRIPTION_BYTES_MAX`](limits::DESCRIPTION_BYTES_MAX).
    #[error("the holder's description has {bytes} bytes; shorten it to {limit}")]
    DescriptionTooLong {
        /// The length of the description.
        bytes: usize,
        /// The allowed length.
        limit: usize,
    },
    /// Too many requests are pending. This request was not sent.
    #[error("{limit} requests are pending already; take their answers before sending more")]
    TooManyRequests {
        /// The allowed number of pending requests.
        limit: usize,
    },
    /// The store cannot be reached or does not work. The request was certainly not done.
    #[error("the metastore is unavailable, and nothing was done: {why}; try again later")]
    Unavailable {
        /// The cause.
        why: String,
    },
    /// The request was sent and no answer came. It may have been done, or not, or may still be
    /// done.
    #[error("the outcome of the request is unknown: {why}; read back before trying again")]
    Unknown {
        /// The cause.
        why: String,
    },
    /// The store refuses this client or this request because of rights, a quota or its
    /// configuration.
    #[error(
        "the metastore refused the request, and nothing was done: {why}; check the metastore's configuration"
    )]
    Refused {
        /// The store's message.
        why: String,
    },
    /// The store's contents are damaged.
    #[error("the metastore's contents are damaged: {reason}; restore it from a copy")]
    Damaged {
        /// The damage that was found.
        reason: String,
    },
}

impl Error {
    /// Returns a stable number for logs and the wire. A number is never reused for another meaning.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Error::KeyEmpty => 1,
            Error::KeyTooLong { .. } => 2,
            Error::KeyMalformed { .. } => 3,
            Error::ValueTooLong { .. } => 4,
            Error::LeaseTime { .. } => 5,
            Error::DescriptionTooLong { .. } => 6,
            Error::TooManyRequests { .. } => 7,
            Error::Unavailable { .. } => 8,
            Error::Unknown { .. } => 9,
            Error::Refused { .. } => 10,
            Error::Damaged { .. } => 11,
        }
    }

    /// Whether the same request may succeed later without any other change.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Error::TooManyRequests { .. } | Error::Unavailable { .. } | Error::Unknown { .. }
        )
    }

    /// Whether the request may have been done in spite of the error.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Error::Unknown { .. })
    }

    /// Returns the cause, without the consequence for the request.
    pub(crate) fn cause(&self) -> String {
        match self {
            Error::Unavailable { why } | Error::Unknown { why } => why.clone(),
            other => other.to_string(),
        }
    }

    pub(crate) fn unavailable(why: impl ToString) -> Error {
        Error::Unavailable { why: why.to_string() }
    }

    pub(crate) fn unknown(why: impl ToString) -> Error {
        Error::Unknown { why: why.to_string() }
    }

    pub(crate) fn refused(why: impl ToString) -> Error {
        Error::Refused { why: why.to_string() }
    }

    pub(crate) fn damaged(reason: impl ToString) -> Error {
        Error::Damaged { reason: reason.to_string() }
    }

    pub(crate) fn value_too_long(bytes: usize) -> Error {
        Error::ValueTooLong { bytes, limit: limits::VALUE_BYTES_MAX }
    }
}

/// The reasons why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or this one, has the file open.
    #[error("{path} is open already: stop the other coordinator, or give this one another file")]
    InUse {
        /// The file.
        path: String,
    },
    /// The file is not a metastore, or is incomplete.
    #[error("{path} is damaged or is not a metastore: {reason}; restore it from a copy")]
    Damaged {
        /// The file.
        path: String,
        /// The damage that was found.
        reason: String,
    },
    /// A newer version wrote the file.
    #[error("{path} has format {found}, this version reads format {known}: upgrade first")]
    NewerFormat {
        /// The file.
        path: String,
        /// The format in the file.
        found: u64,
        /// The newest format that this version reads.
        known: u64,
    },
    /// The options cannot work.
    #[error("the metastore's options cannot work: {0}")]
    Options(String),
    /// The machine refuses: the directory is missing, or rights, space or threads are.
    #[error("cannot open the metastore: {0}; mend the cause on this machine and start again")]
    Machine(#[from] std::io::Error),
}

impl OpenError {
    /// Returns a stable number for logs. A number is never reused for another meaning.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            OpenError::InUse { .. } => 101,
            OpenError::Damaged { .. } => 102,
            OpenError::NewerFormat { .. } => 103,
            OpenError::Options(_) => 104,
            OpenError::Machine(_) => 105,
        }
    }
}
