//! The numbers of statuses and outcomes. A number is never reused for another meaning.
//!
//! The numbers below 2000 are those of `thunderhead_client::Error::code`; a test compares them.

/// The status of a call or of one operation. 0 is success.
///
/// New numbers may come with new releases, so a program treats a number that it does not know as
/// an error. Numbers from 1000 to 1999 are refusals of the cluster: nothing was done.
#[allow(non_camel_case_types, reason = "it is a name of C")]
pub type th_status = i32;

/// The call succeeded.
pub const TH_OK: th_status = 0;
/// The condition does not hold. `version` of the error is the object's version, 0 if the object
/// does not exist.
pub const TH_CONDITION_FAILED: th_status = 1;
/// There is no table with this id: it was dropped, or never existed.
pub const TH_NO_SUCH_TABLE_ID: th_status = 2;
/// The client does not understand the server's answer. An update may have been done.
pub const TH_BAD_ANSWER: th_status = 3;
/// The deadline passed: no server answered.
pub const TH_NO_ANSWER: th_status = 4;
/// The deadline passed: no coordinator named the server that has the object.
pub const TH_NO_MAP: th_status = 5;
/// The deadline passed: the servers have no memory left.
pub const TH_NO_SPACE: th_status = 6;
/// The deadline passed: the server had too many requests, or the queue too many operations.
pub const TH_BUSY: th_status = 7;
/// The deadline passed or the call was cancelled, and the update may have been done or not.
pub const TH_OUTCOME_UNKNOWN: th_status = 8;
/// The deadline passed: no coordinator answered.
pub const TH_NO_COORDINATOR: th_status = 9;
/// The options name no coordinator.
pub const TH_NO_COORDINATOR_GIVEN: th_status = 10;
/// The system has no descriptor or no thread left for a client.
pub const TH_SYSTEM: th_status = 11;
/// The handle is closed.
pub const TH_CLOSED: th_status = 12;
/// The deadline passed: the server waited for its backups.
pub const TH_AWAITING_REPLICAS: th_status = 13;
/// The deadline passed: the server waited for a coordinator to confirm the client's lease.
pub const TH_AWAITING_LEASE: th_status = 14;
/// The deadline passed: the server waited for its cleaners to free memory.
pub const TH_AWAITING_MEMORY: th_status = 15;
/// The deadline passed: the object was being recovered or moved.
pub const TH_NO_OWNER: th_status = 16;
/// The deadline passed: the coordinator lost its leadership.
pub const TH_NO_LEADER: th_status = 17;
/// The deadline passed: another cluster is at the addresses of the client's cluster.
pub const TH_OTHER_CLUSTER: th_status = 18;
/// The deadline passed: another operation on the same table was in progress.
pub const TH_IN_PROGRESS: th_status = 19;
/// The call was cancelled or interrupted, and was not done.
pub const TH_CANCELLED: th_status = 20;
/// The handle was made before the process forked. Make a new one in the child.
pub const TH_FORKED: th_status = 21;

/// The key has no bytes.
pub const TH_KEY_EMPTY: th_status = 1010;
/// The key is longer than `TH_KEY_BYTES_MAX`, or than an eighth of a segment of the cluster.
pub const TH_KEY_TOO_LONG: th_status = 1011;
/// The value is longer than `TH_VALUE_BYTES_MAX`, or than an eighth of a segment of the cluster.
pub const TH_VALUE_TOO_LONG: th_status = 1012;
/// The object to increment is not a number, or a number of the other kind. `version` of the error
/// is the object's version.
pub const TH_NOT_A_NUMBER: th_status = 1013;
/// The sum does not fit into a number of 64 bits.
pub const TH_OVERFLOW: th_status = 1014;
/// The client's lease has expired, because the client was silent for too long.
pub const TH_LEASE_ENDED: th_status = 1018;
/// A table of this name exists.
pub const TH_TABLE_EXISTS: th_status = 1019;
/// No table has this name.
pub const TH_NO_SUCH_TABLE: th_status = 1020;
/// A table's name has 1 to 255 bytes and no control characters.
pub const TH_BAD_NAME: th_status = 1021;
/// No tablet has this range, or it cannot be split there.
pub const TH_BAD_RANGE: th_status = 1026;
/// There is no such server.
pub const TH_NO_SUCH_SERVER: th_status = 1027;
/// The tablet did not move.
pub const TH_NOT_MIGRATED: th_status = 1030;
/// The cluster must be switched to a newer format first: `thunderhead cluster set format`.
pub const TH_OLD_FORMAT: th_status = 1047;
/// A time to live has at least one millisecond.
pub const TH_BAD_TIME_TO_LIVE: th_status = 1048;
/// The table has as many bytes as its `max_bytes` allows. Deletes and writes that make no object
/// larger go on.
pub const TH_TABLE_FULL: th_status = 1049;
/// Only a cache reserves bytes, not more than its `max_bytes`, and all reservations must fit into
/// the memory of the servers.
pub const TH_BAD_OPTIONS: th_status = 1050;

/// A scan has returned all objects. Not an error.
pub const TH_END: th_status = 2000;
/// An argument is `NULL`, misaligned, out of its range, or of an unknown kind. Nothing was done.
pub const TH_BAD_ARGUMENT: th_status = 2001;
/// The `size` of a struct is not a size that this library knows. Nothing was done.
pub const TH_BAD_SIZE: th_status = 2002;
/// Another thread uses the handle now, or the interrupt callback called its own client. Nothing
/// was done.
pub const TH_IN_USE: th_status = 2003;
/// The library has a bug. The outcome is unknown. Further calls on the handle are refused.
pub const TH_INTERNAL: th_status = 2004;
/// The URL does not name a cluster, or its hosts have no address.
pub const TH_BAD_URL: th_status = 2005;
/// A name is not UTF-8.
pub const TH_NOT_UTF8: th_status = 2006;

/// The call or operation was done. For a read: it has an answer.
pub const TH_DONE: i32 = 0;
/// Nothing was done.
pub const TH_NOT_DONE: i32 = 1;
/// The update may have been done or not. Look at the data before you repeat it.
pub const TH_UNKNOWN: i32 = 2;

macro_rules! names {
    ($($name:ident)*) => {
        /// Returns the name of a status.
        pub(crate) fn name(status: th_status) -> &'static std::ffi::CStr {
            match status {
                $($name => {
                    // The terminating zero is part of the literal, so this is checked when the
                    // library is compiled.
                    const TEXT: &std::ffi::CStr =
                        match std::ffi::CStr::from_bytes_with_nul(
                            concat!(stringify!($name), "\0").as_bytes(),
                        ) {
                            Ok(text) => text,
                            Err(_) => panic!("a name without zeros"),
                        };
                    TEXT
                })*
                1000..2000 => c"TH_REFUSED",
                _ => c"TH_UNKNOWN_STATUS",
            }
        }

        #[cfg(test)]
        pub(crate) const ALL: &[(th_status, &str)] = &[$(($name, stringify!($name))),*];
    };
}

names! {
    TH_OK TH_CONDITION_FAILED TH_NO_SUCH_TABLE_ID TH_BAD_ANSWER TH_NO_ANSWER TH_NO_MAP TH_NO_SPACE
    TH_BUSY TH_OUTCOME_UNKNOWN TH_NO_COORDINATOR TH_NO_COORDINATOR_GIVEN TH_SYSTEM TH_CLOSED
    TH_AWAITING_REPLICAS TH_AWAITING_LEASE TH_AWAITING_MEMORY TH_NO_OWNER TH_NO_LEADER
    TH_OTHER_CLUSTER TH_IN_PROGRESS TH_CANCELLED TH_FORKED TH_KEY_EMPTY TH_KEY_TOO_LONG
    TH_VALUE_TOO_LONG TH_NOT_A_NUMBER TH_OVERFLOW TH_LEASE_ENDED TH_TABLE_EXISTS TH_NO_SUCH_TABLE
    TH_BAD_NAME TH_BAD_RANGE TH_NO_SUCH_SERVER TH_NOT_MIGRATED TH_BAD_TIME_TO_LIVE TH_OLD_FORMAT TH_TABLE_FULL TH_BAD_OPTIONS TH_END
    TH_BAD_ARGUMENT TH_BAD_SIZE TH_IN_USE TH_INTERNAL TH_BAD_URL TH_NOT_UTF8
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_client::{Error, Obstacle, Status, TableId, Version};

    #[test]
    fn every_error_of_the_client_has_its_number() {
        let (version, kind) = (Version(1), std::io::ErrorKind::OutOfMemory);
        let late = Error::TimedOut;
        for (status, error) in [
            (TH_CONDITION_FAILED, Error::ConditionFailed { version }),
            (TH_NO_SUCH_TABLE_ID, Error::NoSuchTable(TableId(1))),
            (TH_BAD_ANSWER, Error::Incomprehensible),
            (TH_NO_ANSWER, late(Obstacle::NoAnswer)),
            (TH_NO_MAP, late(Obstacle::NoMap)),
            (TH_NO_SPACE, late(Obstacle::NoSpace)),
            (TH_BUSY, late(Obstacle::Busy)),
            (TH_OUTCOME_UNKNOWN, Error::Unknown(Obstacle::NoAnswer)),
            (TH_NO_COORDINATOR, late(Obstacle::NoCoordinator)),
            (TH_NO_COORDINATOR_GIVEN, Error::NoCoordinators),
            (TH_SYSTEM, Error::System(kind)),
            (TH_CLOSED, Error::Closed),
            (TH_AWAITING_REPLICAS, late(Obstacle::Replicas)),
            (TH_AWAITING_LEASE, late(Obstacle::Lease)),
            (TH_AWAITING_MEMORY, late(Obstacle::Memory)),
            (TH_NO_OWNER, late(Obstacle::NoOwner)),
            (TH_NO_LEADER, late(Obstacle::NoLeader)),
            (TH_OTHER_CLUSTER, late(Obstacle::OtherCluster)),
            (TH_IN_PROGRESS, late(Obstacle::InProgress)),
            (TH_CANCELLED, Error::Cancelled),
            (TH_FORKED, Error::Forked),
            (TH_KEY_EMPTY, Error::Refused(Status::KeyEmpty)),
            (TH_KEY_TOO_LONG, Error::Refused(Status::KeyTooLong)),
            (TH_VALUE_TOO_LONG, Error::Refused(Status::ValueTooLong)),
            (TH_NOT_A_NUMBER, Error::NotANumber { version }),
            (TH_OVERFLOW, Error::Refused(Status::Overflow)),
            (TH_LEASE_ENDED, Error::Refused(Status::LeaseEnded)),
            (TH_TABLE_EXISTS, Error::Refused(Status::TableExists)),
            (TH_NO_SUCH_TABLE, Error::Refused(Status::NoSuchTable)),
            (TH_BAD_NAME, Error::Refused(Status::BadName)),
            (TH_BAD_RANGE, Error::Refused(Status::BadRange)),
            (TH_NO_SUCH_SERVER, Error::Refused(Status::NoSuchServer)),
            (TH_NOT_MIGRATED, Error::Refused(Status::NotMigrated)),
            (TH_BAD_TIME_TO_LIVE, Error::Refused(Status::BadTimeToLive)),
            (TH_OLD_FORMAT, Error::Refused(Status::OldFormat)),
            (TH_TABLE_FULL, Error::Refused(Status::TableFull)),
            (TH_BAD_OPTIONS, Error::Refused(Status::BadOptions)),
        ] {
            assert_eq!(status, th_status::from(error.code()), "{error}");
        }
    }

    #[test]
    fn a_status_has_a_name_of_its_own() {
        for (status, expected) in ALL {
            assert_eq!(name(*status).to_str(), Ok(*expected));
        }
        assert_eq!(name(1999), c"TH_REFUSED");
        assert_eq!(name(-1), c"TH_UNKNOWN_STATUS");
    }
}
