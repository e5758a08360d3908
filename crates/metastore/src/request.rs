//! What can be asked of a metastore, and what it answers.

use crate::error::Error;
use crate::key::{Key, LeaseName, Prefix};
use crate::limits::{DESCRIPTION_BYTES_MAX, LEASE_MAX, LEASE_MIN, VALUE_BYTES_MAX};
use std::fmt;
use std::time::Duration;

/// The version of a value. A key's versions only grow, also when it is deleted and made again;
/// versions of different keys say nothing about each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// A fencing token: each holder of a lease has a higher one than the holders before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {}", self.0)
    }
}

/// The proof of holding a lease, for a write that must not be done by anyone else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The lease.
    pub lease: LeaseName,
    /// What its holder was given.
    pub token: Token,
}

/// Who wants a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Drawn at random for each life of a process: who acquires again under the same id after an
    /// unknown outcome gets what it has already.
    pub id: u64,
    /// For people and for clients: where to find it, mostly.
    pub description: String,
}

/// Who has a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The holder.
    pub by: Holder,
    /// Its token.
    pub token: Token,
}

/// What a write does, and what must be so for it to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes a value where there is none.
    Create(Vec<u8>),
    /// Replaces the value of this version.
    Replace(Version, Vec<u8>),
    /// Deletes the value of this version.
    Delete(Version),
}

impl Change {
    /// The version that the key must have; none when it must have no value.
    #[must_use]
    pub fn expected(&self) -> Option<Version> {
        match self {
            Change::Create(_) => None,
            Change::Replace(version, _) | Change::Delete(version) => Some(*version),
        }
    }

    /// The value that the key gets; none when it is deleted.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        match self {
            Change::Create(value) | Change::Replace(_, value) => Some(value),
            Change::Delete(_) => None,
        }
    }
}

/// Something asked of a metastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Reads a value: [`Answer::Value`].
    Get {
        /// Its key.
        key: Key,
    },
    /// Reads keys and values in order: [`Answer::Page`].
    List {
        /// Which.
        prefix: Prefix,
        /// Begins behind this key.
        after: Option<Key>,
    },
    /// Makes, replaces or deletes a value under conditions: [`Answer::Written`],
    /// [`Answer::Conflict`] or [`Answer::Deposed`].
    Write {
        /// Its key.
        key: Key,
        /// What is done.
        change: Change,
        /// The lease that must be held at the same moment.
        fence: Option<Fence>,
    },
    /// Takes a lease that nobody has: [`Answer::Acquired`] or [`Answer::HeldBy`].
    Acquire {
        /// Which.
        lease: LeaseName,
        /// For whom.
        holder: Holder,
        /// The store does not give it away before so long after this or the last renewal.
        ttl: Duration,
    },
    /// Keeps a lease for another while: [`Answer::Renewed`] or [`Answer::NotHeld`].
    Renew {
        /// What is held.
        fence: Fence,
    },
    /// Gives a lease back: [`Answer::Released`], also when it was not held any more.
    Release {
        /// What is held.
        fence: Fence,
    },
    /// Reads who has a lease: [`Answer::Holder`].
    Holder {
        /// Which.
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
    /// What there is.
    pub entries: Vec<Entry>,
    /// Whether there may be more behind the last of them.
    pub more: bool,
}

/// What a metastore answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value, if there is one.
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
    /// Somebody else has the lease.
    HeldBy(Held),
    /// The lease is held for another while.
    Renewed,
    /// The lease is not held under this token, and never will be again.
    NotHeld,
    /// The lease is not held under this token.
    Released,
    /// Who has the lease.
    Holder(Option<Held>),
}

impl Request {
    /// Refuses what no store is given.
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

    /// Whether it changes nothing, so that trying again is harmless.
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
