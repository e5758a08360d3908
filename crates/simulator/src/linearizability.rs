//! Judges whether a history of operations could have come from one register per key that performs
//! one operation at a time.
//!
//! A history is the clients' view: when each operation was called, when its answer came, and the
//! answer. It is *linearizable* if each operation can be assigned a moment between call and answer
//! such that performing them one by one in the order of these moments gives exactly these answers.
//! An operation without an answer may have happened at any moment after its call, or never.
//!
//! Each key is judged separately: a history is linearizable if it is so for every key.
//!
//! # The register
//!
//! A key has a version and a value, or does not exist. Every write gives it a version above all
//! earlier ones, also across deletes, but not necessarily the next one. The store promises this,
//! and it makes judging fast: the answers of writes reveal their order.
//!
//! # The method
//!
//! Operations are put in order one after the other. An answered operation can come next if it was
//! called before the earliest answer among the remaining ones. An unanswered operation can come
//! next under the same condition. The next operation is chosen like this:
//!
//! - An operation that only *observes* (a read, a refusal) and fits the present state comes at
//!   once. It changes nothing, so there is no better moment for it.
//! - All versions in the answers are sorted. A version that no answered update brought must have
//!   come from an *unanswered* update. So the order of all observed changes of the key is known,
//!   and the next of them comes as soon as it can.
//! - If an operation does not fit, unanswered updates may *explain* it: they happen directly before
//!   the operation that needs them. This is a version that no answered update brought, or an
//!   answered update that needs another value, presence or absence. An unanswered update without a
//!   trace need not have happened at all, so an operation that fits is not explained.
//! - Observed absence can be explained by an unanswered delete, or can wait for an answered one.
//!   This is a choice even if everything fits.
//!
//! So a history in which all operations were answered is judged in one pass. At a choice, the
//! alternatives are tried one after the other. A failed one is tried again only with other
//! unanswered updates available, among them some that were missed. Shorter explanations come first.
//! The choice among many unanswered updates can take forever (it includes the choice of increments
//! with a given sum), so a check gives up at some point.
#![allow(clippy::result_large_err, reason = "a violation is made once, at the end of a check")]

mod attempt;
mod explanation;
mod history;
mod register;
mod search;

use std::collections::BTreeMap;
use std::fmt::Debug;
pub use thunderhead_wire::Version;

/// The condition under which an update goes ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// Always.
    Always,
    /// Only if the key does not exist.
    Absent,
    /// Only if the key exists.
    Present,
    /// Only if the key has exactly this version.
    VersionIs(Version),
}

/// A requested operation. Values are numbers; for longer values a test records a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Returns the version and value of the key.
    Read,
    /// Sets a new value.
    Write {
        /// The value.
        value: u64,
        /// The condition for the write.
        condition: Condition,
    },
    /// Removes the key.
    Delete {
        /// The condition for the delete.
        condition: Condition,
    },
    /// Adds a number to the value, with wrapping; a missing key counts from 0. A value that is no
    /// number (see [`TEXT`]) is refused.
    Increment {
        /// The number to add.
        by: u64,
    },
}

/// The bit of values that are no numbers: an increment of such a value is refused with
/// [`Outcome::Refused`] and changes nothing. Numbers and their sums are smaller.
pub const TEXT: u64 = 1 << 63;

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No answer: the operation may have happened, may happen later, or never.
    Unknown,
    /// A read found this version and value.
    Found(Version, u64),
    /// A read found no such key, or an unconditional delete removed none.
    Absent,
    /// A write or increment got this version, and the key now has this value.
    Done(Version, u64),
    /// A delete removed an object of this version.
    Deleted(Version),
    /// The condition of an update does not hold for this version, which is [`Version::NONE`] if the
    /// key does not exist. If the update is an increment, the value of this version is no
    /// number.
    Refused(Version),
}

/// One operation of a client on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<K> {
    /// The key.
    pub key: K,
    /// The time of the call, by a clock that all clients share.
    pub called: u64,
    /// The time of the answer; ignored if the outcome is unknown. If it equals the time of another
    /// call, the two operations count as concurrent.
    pub answered: u64,
    /// The request.
    pub action: Action,
    /// The answer.
    pub outcome: Outcome,
}

/// The reason why a history is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation<K: Debug> {
    /// An answer that does not fit its request in any state.
    #[error("{0:?} has an answer that does not fit its request")]
    Nonsense(Operation<K>),
    /// Two updates were given the same version.
    #[error("{0:?} and {1:?} were given the same version")]
    SameVersion(Operation<K>, Operation<K>),
    /// No order of the operations explains this answer together with the others.
    #[error(
        "no order of the operations explains the answer to {operation:?}; before it the key was {before}"
    )]
    Unexplained {
        /// The operation at which the furthest attempt failed.
        operation: Operation<K>,
        /// The state before that operation.
        before: String,
    },
    /// Too many unanswered operations to try every order. This is not a verdict.
    #[error("gave up on key {0:?} after {1} steps: too many unanswered operations")]
    GaveUp(K, u64),
}

/// Judges a history.
///
/// # Errors
/// A [`Violation`], of the lowest key that has one; [`Violation::GaveUp`] only if there is no
/// other.
pub fn check<K: Clone + Debug + Ord>(history: &[Operation<K>]) -> Result<(), Violation<K>> {
    let mut keys: BTreeMap<&K, Vec<&Operation<K>>> = BTreeMap::new();
    for operation in history {
        keys.entry(&operation.key).or_default().push(operation);
    }
    let mut verdict = Ok(());
    for operations in keys.into_values() {
        match search::judge(operations) {
            Ok(_) => {}
            Err(Violation::GaveUp(..)) if verdict.is_err() => {}
            Err(gave_up @ Violation::GaveUp(..)) => verdict = Err(gave_up),
            Err(violation) => return Err(violation),
        }
    }
    verdict
}

#[cfg(test)]
mod tests;
