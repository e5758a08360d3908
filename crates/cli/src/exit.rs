//! The end of a command: its message on failure, and the status for scripts.
//!
//! The statuses are for ever: a status never gets another meaning.

use serde_json::json;
use std::fmt;
use std::io;
use thunderhead_client::{Error, Obstacle};
use thunderhead_config::Problems;
use thunderhead_wire::Status;

/// The status of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Exit {
    Done = 0,
    Negative = 1,
    Usage = 2,
    Unreachable = 3,
    Unknown = 4,
    Refused = 5,
}

/// The meaning of each status, for the reference.
pub(crate) const EXITS: &[(Exit, &str)] = &[
    (Exit::Done, "Done."),
    (
        Exit::Negative,
        "The answer is no: there is no such object or table, the condition does not hold, the table exists already, `config check` found a mistake, `backup check` found damage. Nothing was changed. Or an operation of `bench` failed.",
    ),
    (
        Exit::Usage,
        "The request cannot be done: arguments, configuration, a local file or a line of an import are wrong.",
    ),
    (
        Exit::Unreachable,
        "Until the deadline the cluster could not be reached, or lacked time, memory or a server for the request. Nothing was changed; try again.",
    ),
    (
        Exit::Unknown,
        "An update was sent, and no answer came in time. It may have been done or not: read to find out.",
    ),
    (
        Exit::Refused,
        "The cluster refuses the request, and will refuse it again. Nothing was changed.",
    ),
];

/// The reason why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// A word for programs, as stable as the statuses.
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    /// The reader of our output has gone. That is not a failure.
    pub(crate) reader_is_gone: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, kind: &'static str, message: impl Into<String>) -> Failure {
        Failure { exit, kind, message: message.into(), reader_is_gone: false }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, "usage", message)
    }

    /// Returns the failure of a file of this machine.
    pub(crate) fn file(file: impl fmt::Display, error: &io::Error) -> Failure {
        Failure::new(Exit::Usage, "file", format!("{file}: {error}"))
    }

    pub(crate) fn no_table(name: &str) -> Failure {
        Failure::new(
            Exit::Negative,
            "no_such_table",
            format!(
                "there is no table {name:?}; `thunderhead table list` lists the tables, `thunderhead table create` makes one"
            ),
        )
    }

    /// Adds words before the message.
    pub(crate) fn within(mut self, context: impl fmt::Display) -> Failure {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Adds words after the message.
    pub(crate) fn with(mut self, more: impl fmt::Display) -> Failure {
        self.message = format!("{}; {more}", self.message);
        self
    }

    /// Returns one line for people, or for programs.
    pub(crate) fn text(&self, json: bool) -> String {
        if !json {
            return format!("thunderhead: {}", self.message);
        }
        let (kind, status) = (self.kind, self.exit as u8);
        json!({"error": {"kind": kind, "status": status, "message": self.message}}).to_string()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Only writes to the standard output convert without further words. All other code that reads and
/// writes names the file.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        let reader_is_gone = error.kind() == io::ErrorKind::BrokenPipe;
        let message = format!("cannot write the output: {error}");
        Failure { reader_is_gone, ..Failure::new(Exit::Usage, "file", message) }
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Failure {
        let more = if problems.0.len() > 1 { ":\n" } else { ": " };
        Failure::new(Exit::Usage, "config", format!("the configuration is wrong{more}{problems}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let (exit, kind) = match error {
            Error::ConditionFailed { .. } => (Exit::Negative, "condition_failed"),
            Error::NoSuchTable(_) => (Exit::Negative, "no_such_table"),
            Error::NotANumber { .. } => of_status(Status::NotANumber),
            Error::Refused(status) => of_status(status),
            Error::TimedOut(Obstacle::NoSpace) => (Exit::Unreachable, "no_space"),
            Error::TimedOut(Obstacle::Busy) => (Exit::Unreachable, "busy"),
            Error::TimedOut(Obstacle::Replicas) => (Exit::Unreachable, "awaiting_replicas"),
            Error::TimedOut(Obstacle::Lease) => (Exit::Unreachable, "awaiting_lease"),
            Error::TimedOut(Obstacle::Memory) => (Exit::Unreachable, "awaiting_memory"),
            Error::TimedOut(_) => (Exit::Unreachable, "unreachable"),
            Error::Unknown(_) | Error::Incomprehensible => (Exit::Unknown, "unknown_outcome"),
            // An error of this machine, not of the cluster.
            _ => (Exit::Usage, "client"),
        };
        Failure::new(exit, kind, error.to_string())
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        let (exit, kind) = of_status(status);
        Failure::new(exit, kind, status.to_string())
    }
}

fn of_status(status: Status) -> (Exit, &'static str) {
    match status {
        Status::NotFound => (Exit::Negative, "not_found"),
        Status::NoSuchTable => (Exit::Negative, "no_such_table"),
        Status::TableExists => (Exit::Negative, "table_exists"),
        Status::NoSuchServer => (Exit::Negative, "no_such_server"),
        Status::ServerIsUp => (Exit::Negative, "server_is_up"),
        Status::MayBeNeeded => (Exit::Negative, "may_be_needed"),
        Status::ConditionFailed => (Exit::Negative, "condition_failed"),
        Status::NotANumber => (Exit::Refused, "not_a_number"),
        Status::TableFull => (Exit::Refused, "table_full"),
        Status::BadOptions => (Exit::Refused, "bad_options"),
        Status::DeadlineExceeded | Status::LeadershipLost => (Exit::Unknown, "unknown_outcome"),
        Status::AwaitingReplicas => (Exit::Unreachable, "awaiting_replicas"),
        Status::AwaitingLease => (Exit::Unreachable, "awaiting_lease"),
        Status::AwaitingMemory => (Exit::Unreachable, "awaiting_memory"),
        Status::NotLeader | Status::MetastoreUnavailable => (Exit::Unreachable, "unreachable"),
        Status::NoServers => (Exit::Unreachable, "no_servers"),
        Status::NoSpace => (Exit::Unreachable, "no_space"),
        Status::Busy | Status::InProgress => (Exit::Unreachable, "busy"),
        _ => (Exit::Refused, "refused"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_wire::{TableId, Version};

    #[test]
    fn statuses_never_change_their_meaning() {
        let numbers: Vec<u8> = EXITS.iter().map(|(exit, _)| *exit as u8).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
        let cases = [
            (Error::ConditionFailed { version: Version(3) }, Exit::Negative),
            (Error::NoSuchTable(TableId(1)), Exit::Negative),
            (Error::Refused(Status::ValueTooLong), Exit::Refused),
            (Error::Refused(Status::NoSuchTable), Exit::Negative),
            (Error::TimedOut(Obstacle::NoAnswer), Exit::Unreachable),
            (Error::TimedOut(Obstacle::NoSpace), Exit::Unreachable),
            (Error::Unknown(Obstacle::NoAnswer), Exit::Unknown),
            (Error::Incomprehensible, Exit::Unknown),
        ];
        for (error, exit) in cases {
            assert_eq!(Failure::from(error).exit, exit, "{error}");
        }
        for status in Status::ALL {
            assert!(Failure::from(*status).exit != Exit::Done);
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_not_a_failure() {
        assert!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).reader_is_gone);
        assert!(!Failure::from(io::Error::from(io::ErrorKind::StorageFull)).reader_is_gone);
        let gone = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(!Failure::file("x", &gone).reader_is_gone);
    }
}
