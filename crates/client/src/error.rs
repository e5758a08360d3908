//! Why an operation failed, and whether it may have been done all the same.

use thunderhead_wire::{Status, TableId, Version};

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The condition does not hold. Nothing was done.
    #[error("the condition does not hold: the object's version is {version}")]
    ConditionFailed {
        /// The version that the object has; [`Version::NONE`] where there is none.
        version: Version,
    },
    /// There is no such table. Nothing was done.
    #[error("there is no {0}; create it first, or check its name")]
    NoSuchTable(TableId),
    /// The server refuses it, and will again. Nothing was done.
    #[error("{0}")]
    Refused(Status),
    /// The server says something that this client does not know. An update may have been done.
    #[error("the server answers with something that this client does not know; upgrade the client")]
    Incomprehensible,
    /// The deadline passed before it could be done. Nothing was done.
    #[error("it could not be done in time, and was not done: {0}")]
    TimedOut(Obstacle),
    /// The deadline passed, and the update may have been done or not.
    #[error("no answer came in time; it may have been done or not: read it to find out")]
    Unknown,
}

/// What was in the way until the deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Obstacle {
    /// No server answered.
    #[error("no server answered; check that the cluster runs and can be reached")]
    NoAnswer,
    /// Nobody said where the object belongs.
    #[error("nobody says which server has it; check that the coordinator runs")]
    NoMap,
    /// The servers have no memory left.
    #[error("the server has no memory left; delete something or add servers")]
    NoSpace,
    /// The server had too much to do.
    #[error("the server is too busy; send less, or give it more time")]
    Busy,
}

impl Error {
    /// A stable number for logs and other languages; never reused for another meaning.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Error::ConditionFailed { .. } => 1,
            Error::NoSuchTable(_) => 2,
            // Statuses keep their own numbers.
            Error::Refused(status) => 1000 + status.code(),
            Error::Incomprehensible => 3,
            Error::TimedOut(Obstacle::NoAnswer) => 4,
            Error::TimedOut(Obstacle::NoMap) => 5,
            Error::TimedOut(Obstacle::NoSpace) => 6,
            Error::TimedOut(Obstacle::Busy) => 7,
            Error::Unknown => 8,
        }
    }

    /// Whether an update may have been done though it failed.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Error::Unknown | Error::Incomprehensible)
    }
}
