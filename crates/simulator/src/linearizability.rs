//! Whether a history of operations could have come from one register per key that does one thing
//! at a time.
//!
//! A history is what clients saw: when each operation was called, when its answer came, and what
//! the answer was. It is *linearizable* when each operation can be given a moment between call and
//! answer so that doing them one by one in the order of these moments gives just these answers. An
//! operation without an answer may have happened at any moment after its call, or never.
//!
//! Each key is judged by itself: a history is linearizable if it is so for every key.
//!
//! # The register
//!
//! A key has a version and a value, or does not exist. Every write gives it a version above all
//! that it ever had, also across deletes, but not necessarily the next one. That is what the store
//! promises, and it is what makes judging fast: the answers of writes tell their order.
//!
//! # How it is judged
//!
//! Operations are put in order one after the other. An answered one can come next if it was called
//! before the earliest answer among those that are left; one without an answer, as soon as it was
//! called before that. What can come next is decided so:
//!
//! - One that only *observes* (a read, a refusal) and fits the present state comes at once: it
//!   changes nothing, so there is no better moment for it.
//! - All versions that any answer tells are sorted. Those that no answered update brought must
//!   have come from updates *without* an answer. So the order of all that was seen to happen to
//!   the key is known, and the next of it comes when it can.
//! - Where something does not fit, updates without an answer may *explain* it: they happen right
//!   before what needs them. That is a version that none of the answered updates brought, or an
//!   answered update that needs another value, presence or absence. Those of which no trace is
//!   left need not have happened at all, so what fits is not explained.
//! - Absence that was seen can be explained by a delete without an answer, or wait for an answered
//!   one: that is a choice even where all fits.
//!
//! So a history in which all was answered is judged in one pass. Where there is a choice, one way
//! is tried after the other; what failed once is not tried again, unless with other updates to
//! explain things, and with such that were missed. Shorter explanations come first. To choose
//! among many updates without an answer can take forever (it includes choosing the increments
//! that have a given sum), so a check gives up at some point.
#![allow(clippy::result_large_err, reason = "a violation is made once, at the end of a check")]

mod attempt;
mod explanation;
mod history;
mod register;
mod search;

use std::collections::BTreeMap;
use std::fmt::Debug;
pub use thunderhead_wire::Version;

/// When an update goes ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// Always.
    Always,
    /// Only when the key does not exist.
    Absent,
    /// Only when it exists.
    Present,
    /// Only when it has just this version.
    VersionIs(Version),
}

/// What was asked for. Values are numbers: of longer ones, a test records a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The version and value of the key.
    Read,
    /// A new value.
    Write {
        /// The value.
        value: u64,
        /// When it goes ahead.
        condition: Condition,
    },
    /// That the key be gone.
    Delete {
        /// When it goes ahead.
        condition: Condition,
    },
    /// The value plus a number, with wrapping; a key that does not exist counts from 0.
    Increment {
        /// What is added.
        by: u64,
    },
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: it may have happened, may happen yet, or never.
    Unknown,
    /// To a read: this version and value.
    Found(Version, u64),
    /// To a read: there is no such key. To a delete without condition: there was none.
    Absent,
    /// To a write or increment: it got this version, and the key now has this value.
    Done(Version, u64),
    /// To a delete: the object was of this version.
    Deleted(Version),
    /// To an update: its condition does not hold for this version; [`Version::NONE`] when the key
    /// does not exist.
    Refused(Version),
}

/// One operation of a client on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<K> {
    /// The key.
    pub key: K,
    /// When it was called, by a clock that all clients share.
    pub called: u64,
    /// When its answer came; ignored when the outcome is unknown. An operation whose answer came
    /// at the time at which another was called counts as concurrent with it.
    pub answered: u64,
    /// What was asked for.
    pub action: Action,
    /// What was answered.
    pub outcome: Outcome,
}

/// Why a history is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation<K: Debug> {
    /// An answer that does not fit its question, whatever the state.
    #[error("{0:?} has an answer that is none to what was asked")]
    Nonsense(Operation<K>),
    /// Two updates were given the same version.
    #[error("{0:?} and {1:?} were given the same version")]
    SameVersion(Operation<K>, Operation<K>),
    /// No order of the operations explains this answer together with the others.
    #[error("nothing explains the answer to {operation:?}; before it the key was {before}")]
    Unexplained {
        /// The operation that the furthest attempt could not go beyond.
        operation: Operation<K>,
        /// The state it met.
        before: String,
    },
    /// Too many unanswered operations to try every order: not a verdict.
    #[error("gave up on key {0:?} after {1} steps: too many operations without an answer")]
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
