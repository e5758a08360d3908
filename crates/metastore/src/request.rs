//! The requests to a metastore, and its answers.

use crate::error::Error;
use crate::key::{Key, LeaseName, Prefix};
use crate::limits::{DESCRIPTION_BYTES_MAX, LEASE_MAX, LEASE_MIN, VALUE_BYTES_MAX};
use std::fmt;
use std::time::Duration;

/// The version of a value. A key's versions only grow, even if the key is deleted and made again.
/// Versions of different keys are not related.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// A fencing token: each holder of a lease has a higher one than all holders before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {}", self.0)
    }
}

/// The proof of holding a lease, for a write that no other process may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The lease.
    pub lease: LeaseName,
    /// The token that its holder got.
    pub token: Token,
}

/// A process that requests a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// A random number for each run of a process. A process that acquires again under the same id
    /// after an unknown outcome keeps the lease that it already has.
    pub id: u64,
    /// Text for people and clients, mostly the holder's address.
    pub description: String,
}

/// A lease's holder with its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The holder.
    pub by: Holder,
    /// Its token.
    pub token: Token,
}

/// A write's effect, and the condition under which it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes a value if the key has none.
    Create(Vec<u8>),
    /// Replaces the value of this version.
    Replace(Version, Vec<u8>),
    /// Deletes the value of this version.
    Delete(Version),
}

impl Change {
    /// Returns the version that the key must have, or none if it must have no value.
    #[must_use]
    pub fn expected(&self) -> Option<Version> {
        match self {
            Change::Create(_) => None,
            Change::Replace(version, _) | Change::Delete(version) => Some(*version),
        }
    }

    /// Returns the value that the key gets, or none if it is deleted.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        match self {
            Change::Create(value) | Change::Replace(_, value) => Some(value),
            Change::Delete(_) => None,
        }
    }
}

/// A request to a metastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Reads a value: [`Answer::Value`].
    Get {
        /// Its key.
        key: Key,
    },
    /// Reads keys and values in order: [`Answer::Page`].
    List {
        /// The prefix of the keys.
        prefix: Prefix,
        /// Begins after this key.
        after: Option<Key>,
    },
    /// Makes, replaces or deletes a value under conditions: [`Answer::Written`],
    /// [`Answer::Conflict`] or [`Answer::Deposed`].
    Write {
        /// Its key.
        key: Key,
        /// The effect and its condition.
        change: Change,
        /// The lease that must be held at the same moment.
        fence: Option<Fence>,
    },
    /// Takes a free lease: [`Answer::Acquired`] or [`Answer::HeldBy`].
    Acquire {
        /// The lease.
        lease: LeaseName,
        /// The process that requests it.
        holder: Holder,
        /// The time to live: the store grants the lease to another holder only after so long
        /// without a renewal.
        ttl: Duration,
    },
    /// Renews a lease: [`Answer::Renewed`] or [`Answer::NotHeld`].
    Renew {
        /// The lease and its token.
        fence: Fence,
    },
    /// Gives a lease back: [`Answer::Released`], even if the lease was no longer held.
    Release {
        /// The lease and its token.
        fence: Fence,
    },
    /// Reads the holder of a lease: [`Answer::Holder`].
    Holder {
        /// The lease.
        lease: LeaseName,
    },
}

/// A value with its key and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// The version.
    pub version: Version,
    /// The value.
    pub value: Vec<u8>,
}

/// Entries in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Whether there may be more entries after the last one.
    pub more: bool,
}

/// The answers of a metastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value, if the key has one.
    Value(Option<Entry>),
    /// Some entries.
    Page(Page),
    /// Done. The new version; after a deletion a number above all versions that the key had.
    Written(Version),
    /// Not done: the key has another version, or none.
    Conflict(Option<Version>),
    /// Not done: the lease of the fence is not held under its token.
    Deposed,
    /// The lease is held, under this token.
    Acquired(Token),
    /// Another process has the lease.
    HeldBy(Held),
    /// The lease is renewed.
    Renewed,
    /// The lease is not held under this token, and never will be again.
    NotHeld,
    /// The lease is not held under this token.
    Released,
    /// The holder of the lease, if it has one.
    Holder(Option<Held>),
}

impl Request {
    /// Refuses requests that no store accepts.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self {
            Request::Write { change, .. } => match change.value() {
                Some(value) if value.len() > VALUE_BYTES_MAX => {
                    Err(Error::value_too_long(value.len()))
                }
                _ => Ok(()),
            },
            Request::Acquire { ttl, .. } if *ttl < LEASE_MIN || *ttl > LEASE_MAX => {
                Err(Error::LeaseTime { milliseconds: ttl.as_millis() })
            }
            Request::Acquire { holder, .. } if holder.description.len() > DESCRIPTION_BYTES_MAX => {
                Err(Error::DescriptionTooLong {
                    bytes: holder.description.len(),
                    limit: DESCRIPTION_BYTES_MAX,
                })
            }
            _ => Ok(()),
        }
    }

    /// Whether it changes nothing, so that a repetition is harmless.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(self, Request::Get { .. } | Request::List { .. } | Request::Holder { .. })
    }

    /// Whether it is about a lease.
    pub(crate) fn is_of_a_lease(&self) -> bool {
        matches!(
            self,
            Request::Acquire { .. }
                | Request::Renew { .. }
                | Request::Release { .. }
                | Request::Holder { .. }
        )
    }
}
