//! Why a request could not be done, split by what the caller knows and does then.

use crate::limits;

/// A request that was not answered as it asked. That a condition did not hold is an
/// [`Answer`](crate::Answer), not an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key has no characters.
    #[error("the key is empty; give at least one character")]
    KeyEmpty,
    /// The key is longer than [`KEY_BYTES_MAX`](limits::KEY_BYTES_MAX).
    #[error("the key has {bytes} bytes; shorten it to {limit}")]
    KeyTooLong {
        /// What was given.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// The key is no path that every store can hold.
    #[error("the key {key:?} is malformed: {why}; name parts joined by single slashes")]
    KeyMalformed {
        /// What was given.
        key: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The value is longer than [`VALUE_BYTES_MAX`](limits::VALUE_BYTES_MAX).
    #[error("the value has {bytes} bytes; keep it below {limit}, in several values if need be")]
    ValueTooLong {
        /// What was given.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// The lease is shorter or longer than stores can grant.
    #[error("a lease of {milliseconds} ms cannot be granted; ask for 1 to 20 seconds")]
    LeaseTime {
        /// What was given.
        milliseconds: u128,
    },
    /// The holder says more of itself than
    /// [`DESCRIPTION_BYTES_MAX`](limits::DESCRIPTION_BYTES_MAX).
    #[error("the holder describes itself in {bytes} bytes; shorten it to {limit}")]
    DescriptionTooLong {
        /// What was given.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// Too many requests wait for their answers. This one was not sent.
    #[error("{limit} requests wait already; take their answers before sending more")]
    TooManyRequests {
        /// How many may wait.
        limit: usize,
    },
    /// The store cannot be reached or does not work. The request has certainly not been done.
    #[error("the metastore is unavailable, and nothing was done: {why}; try again later")]
    Unavailable {
        /// What happened.
        why: String,
    },
    /// The request was sent and its answer did not come. It may have been done, or not, or may
    /// still be done.
    #[error("whether it was done is unknown: {why}; read back before trying again")]
    Unknown {
        /// What happened.
        why: String,
    },
    /// The store refuses this client or this request: rights, quota, configuration.
    #[error(
        "the metastore refused the request, and nothing was done: {why}; an operator must look at its configuration"
    )]
    Refused {
        /// What it said.
        why: String,
    },
    /// What the store holds makes no sense.
    #[error("what the metastore holds is damaged: {what}; restore it from a copy")]
    Damaged {
        /// What was found.
        what: String,
    },
}

impl Error {
    /// A stable number for logs and wires; never reused for another meaning.
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

    /// Whether the same request may succeed later with nothing else changed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Error::TooManyRequests { .. } | Error::Unavailable { .. } | Error::Unknown { .. }
        )
    }

    /// Whether the request may have been done all the same.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Error::Unknown { .. })
    }

    /// What happened, without what it means for the request.
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

    pub(crate) fn damaged(what: impl ToString) -> Error {
        Error::Damaged { what: what.to_string() }
    }

    pub(crate) fn value_too_long(bytes: usize) -> Error {
        Error::ValueTooLong { bytes, limit: limits::VALUE_BYTES_MAX }
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or this one, has the file open.
    #[error("{path} is open already: stop the other coordinator, or give this one another file")]
    InUse {
        /// The file.
        path: String,
    },
    /// The file is not one of ours, or not whole.
    #[error("{path} is damaged or no metastore: {what}; restore it from a copy")]
    Damaged {
        /// The file.
        path: String,
        /// What was found.
        what: String,
    },
    /// The file was written by a newer version.
    #[error("{path} has format {found}, this version reads format {known}: upgrade first")]
    NewerFormat {
        /// The file.
        path: String,
        /// What the file says.
        found: u64,
        /// The newest known here.
        known: u64,
    },
    /// The options make no sense.
    #[error("the metastore's options cannot work: {0}")]
    Options(String),
    /// The machine refuses: no such directory, no rights, no space, no more threads.
    #[error("cannot open the metastore: {0}; see to the machine and start again")]
    Machine(#[from] std::io::Error),
}

impl OpenError {
    /// A stable number for logs; never reused for another meaning.
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
