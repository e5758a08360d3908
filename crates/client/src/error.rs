//! The reasons why an operation fails, and whether it may have been done all the same.
//!
//! All errors but two are *definite*: nothing was done. [`Error::is_unknown`] names the two.

use thunderhead_wire::{Status, TableId, Version};

/// The reason why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The condition does not hold. Nothing was done.
    #[error("the condition does not hold: the object's version is {version}")]
    ConditionFailed {
        /// The object's version; [`Version::NONE`] if it does not exist.
        version: Version,
    },
    /// The object to increment is not a number, or a number of the other kind (whole or
    /// floating-point). Nothing was done.
    #[error("{}", Status::NotANumber)]
    NotANumber {
        /// The version that the object has.
        version: Version,
    },
    /// There is no such table. Nothing was done.
    #[error("there is no {0}; create it first, or check its name")]
    NoSuchTable(TableId),
    /// The server or the coordinator refused it for good, or refused it until the deadline. Nothing
    /// was done.
    #[error("{0}")]
    Refused(Status),
    /// The client does not understand the answer. An update may have been done.
    #[error("the client does not understand the server's answer; upgrade the client")]
    Incomprehensible,
    /// The deadline passed first. Nothing was done.
    #[error("the operation timed out and was not done: {0}")]
    TimedOut(Obstacle),
    /// The deadline passed, and the update may have been done or not.
    #[error("the change may have been done or not, check before you repeat it: {0}")]
    Unknown(Obstacle),
    /// The options for a new client name no coordinator.
    #[error("no coordinator is configured; give the address of at least one")]
    NoCoordinators,
    /// The system has no descriptor or no thread left for a client.
    #[error("the client cannot start, check the limits on descriptors and threads: {0}")]
    System(std::io::ErrorKind),
    /// The client was closed before the operation was sent. Nothing was done.
    #[error("the client was closed")]
    Closed,
    /// The caller cancelled the operation, and it was not done.
    #[error("the operation was cancelled and was not done")]
    Cancelled,
    /// The process is a child that was forked after the client was made. Nothing was done.
    #[error("the client was made before the process forked; make a new one in the child")]
    Forked,
}

/// The obstacle that remained until the deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Obstacle {
    /// No server answered.
    #[error("no server answered; check that the cluster runs and can be reached")]
    NoAnswer,
    /// No coordinator named the server that has the object.
    #[error("no coordinator said which server has the object; check that a coordinator runs")]
    NoMap,
    /// The servers have no memory left.
    #[error("the server has no memory left; delete objects or add servers")]
    NoSpace,
    /// The server had too many requests.
    #[error("the server is too busy; send fewer requests, or set a longer deadline")]
    Busy,
    /// No coordinator answered.
    #[error("no coordinator answers; check the addresses and that a coordinator runs")]
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
        "no server has the object at the moment: it is being recovered or moved; `thunderhead status` shows the progress"
    )]
    NoOwner,
    /// The coordinator lost its leadership while it handled the request.
    #[error("{}", Status::LeadershipLost)]
    NoLeader,
    /// Another operation on it was in progress, or this one was.
    #[error("{}", Status::InProgress)]
    InProgress,
    /// The caller cancelled the operation after it had been sent.
    #[error("the operation was cancelled after it had been sent")]
    Cancelled,
    /// Another cluster is at the addresses of the client's cluster.
    #[error(
        "another cluster is at the addresses of this client's cluster; check them, or make a \
         new client for that cluster"
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
            Status::InProgress => Obstacle::InProgress,
            _ => Obstacle::Busy,
        }
    }
}

impl Error {
    /// Returns a stable number for logs and other languages. It is never reused for another error.
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
            Error::TimedOut(Obstacle::InProgress) => 19,
            Error::Cancelled | Error::TimedOut(Obstacle::Cancelled) => 20,
            Error::Forked => 21,
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
            Busy, InProgress, Lease, Memory, NoAnswer, NoCoordinator, NoLeader, NoMap, NoOwner,
            NoSpace, OtherCluster, Replicas,
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
            (19, Error::TimedOut(InProgress)),
            (20, Error::Cancelled),
            (21, Error::Forked),
            (8, Error::Unknown(Obstacle::Cancelled)),
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
