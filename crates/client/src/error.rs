//! Why an operation failed, and whether it may have been done all the same.
//!
//! All errors but two are *definite*: nothing was done. [`Error::is_unknown`] tells the two.

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
    /// What was to be incremented is no number, or a whole number where a floating-point one is meant, or the reverse.
    /// Nothing was done.
    #[error("{}", Status::NotANumber)]
    NotANumber {
        /// The version that the object has.
        version: Version,
    },
    /// There is no such table. Nothing was done.
    #[error("there is no {0}; create it first, or check its name")]
    NoSuchTable(TableId),
    /// The server or the coordinator refuses it, and will again, or did so until the deadline.
    /// Nothing was done.
    #[error("{0}")]
    Refused(Status),
    /// The server says something that this client does not know. An update may have been done.
    #[error("the server answers with something that this client does not know; upgrade the client")]
    Incomprehensible,
    /// The deadline passed before it could be done. Nothing was done.
    #[error("it could not be done in time, and was not done: {0}")]
    TimedOut(Obstacle),
    /// The deadline passed, and the update may have been done or not.
    #[error("it may have been done or not, read it to find out: {0}")]
    Unknown(Obstacle),
    /// A client was to be made without any coordinator to ask.
    #[error("no coordinator was named; give the address of at least one")]
    NoCoordinators,
    /// The system has no descriptor or no thread left for a client.
    #[error("the system does not let a client start: {0}")]
    System(std::io::ErrorKind),
    /// The client was closed before the operation was sent. Nothing was done.
    #[error("the client was closed")]
    Closed,
}

/// What was in the way until the deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Obstacle {
    /// No server answered.
    #[error("no server answered; check that the cluster runs and can be reached")]
    NoAnswer,
    /// No coordinator said where the object belongs.
    #[error("no coordinator says which server has it; check that the coordinator runs")]
    NoMap,
    /// The servers have no memory left.
    #[error("the server has no memory left; delete something or add servers")]
    NoSpace,
    /// The server had too much to do.
    #[error("the server is too busy; send less, or give it more time")]
    Busy,
    /// No coordinator answered.
    #[error("no coordinator answers; check its address and that it runs")]
    NoCoordinator,
    /// The server waited for its backups.
    #[error("{}", Status::AwaitingReplicas)]
    Replicas,
    /// The server waited for a coordinator to confirm the client's lease.
    #[error("{}", Status::AwaitingLease)]
    Lease,
    /// The server waited for its cleaners to free memory.
    #[error("{}", Status::AwaitingMemory)]
    Memory,
    /// The object's tablet had no owner.
    #[error(
        "no server has the object at the moment: it is recovered or moved; `thunderhead status` shows how far"
    )]
    NoOwner,
    /// The coordinator that was asked lost its leadership.
    #[error("{}", Status::LeadershipLost)]
    NoLeader,
    /// Another cluster is where the client's cluster was.
    #[error(
        "another cluster is at the addresses where this client's cluster was; check them, and make a \
         new client if that one is meant"
    )]
    OtherCluster,
}

impl Obstacle {
    /// The obstacle that a server names by refusing an operation for now.
    pub(crate) fn of_status(status: Status) -> Obstacle {
        match status {
            Status::NoSpace => Obstacle::NoSpace,
            Status::AwaitingReplicas => Obstacle::Replicas,
            Status::AwaitingLease => Obstacle::Lease,
            Status::AwaitingMemory => Obstacle::Memory,
            Status::LeadershipLost => Obstacle::NoLeader,
            Status::Moved => Obstacle::NoOwner,
            _ => Obstacle::Busy,
        }
    }
}

impl Error {
    /// A stable number for logs and other languages; never reused for another meaning.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Error::ConditionFailed { .. } => 1,
            Error::NoSuchTable(_) => 2,
            // Statuses keep their own numbers.
            Error::NotANumber { .. } => 1000 + Status::NotANumber.code(),
            Error::Refused(status) => 1000 + status.code(),
            Error::Incomprehensible => 3,
            Error::TimedOut(Obstacle::NoAnswer) => 4,
            Error::TimedOut(Obstacle::NoMap) => 5,
            Error::TimedOut(Obstacle::NoSpace) => 6,
            Error::TimedOut(Obstacle::Busy) => 7,
            Error::Unknown(_) => 8,
            Error::TimedOut(Obstacle::NoCoordinator) => 9,
            Error::NoCoordinators => 10,
            Error::System(_) => 11,
            Error::Closed => 12,
            Error::TimedOut(Obstacle::Replicas) => 13,
            Error::TimedOut(Obstacle::Lease) => 14,
            Error::TimedOut(Obstacle::Memory) => 15,
            Error::TimedOut(Obstacle::NoOwner) => 16,
            Error::TimedOut(Obstacle::NoLeader) => 17,
            Error::TimedOut(Obstacle::OtherCluster) => 18,
        }
    }

    /// Whether an update may have been done though it failed.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Error::Unknown(_) | Error::Incomprehensible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_stable_and_every_error_says_something() {
        use Obstacle::{
            Busy, Lease, Memory, NoAnswer, NoCoordinator, NoLeader, NoMap, NoOwner, NoSpace,
            OtherCluster, Replicas,
        };
        let golden = [
            (1, Error::ConditionFailed { version: Version(1) }),
            (1013, Error::NotANumber { version: Version(1) }),
            (2, Error::NoSuchTable(TableId(1))),
            (3, Error::Incomprehensible),
            (4, Error::TimedOut(NoAnswer)),
            (5, Error::TimedOut(NoMap)),
            (6, Error::TimedOut(NoSpace)),
            (7, Error::TimedOut(Busy)),
            (8, Error::Unknown(NoAnswer)),
            (8, Error::Unknown(Replicas)),
            (9, Error::TimedOut(NoCoordinator)),
            (10, Error::NoCoordinators),
            (11, Error::System(std::io::ErrorKind::OutOfMemory)),
            (12, Error::Closed),
            (13, Error::TimedOut(Replicas)),
            (14, Error::TimedOut(Lease)),
            (15, Error::TimedOut(Memory)),
            (16, Error::TimedOut(NoOwner)),
            (17, Error::TimedOut(NoLeader)),
            (18, Error::TimedOut(OtherCluster)),
            (1023, Error::Refused(Status::WrongCluster)),
            (1020, Error::Refused(Status::NoSuchTable)),
        ];
        for (code, error) in golden {
            assert_eq!(error.code(), code);
            assert_eq!(error.is_unknown(), [3, 8].contains(&code));
            assert!(error.to_string().len() > 10, "{error}");
        }
    }
}
