//! The outcome of a request, as it goes over the wire.
//!
//! The list is append-only: a number never changes its meaning. Each status determines the caller's
//! next step. A status that a caller does not know is treated as [`Next::GiveUp`].

/// The caller's next step after a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The request succeeded: take the answer.
    Take,
    /// The request went to the wrong place: refresh the map or the list of servers, then send it to
    /// the right place.
    Refresh,
    /// Send it again to the same place, after the time that the reply names.
    Wait,
    /// Report it; the same request would give the same status again.
    GiveUp,
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $next:ident, $text:literal;)*) => {
        /// The outcome of a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Status {
            $($(#[$doc])* $name = $code,)*
        }

        impl Status {
            /// All statuses.
            pub const ALL: &'static [Status] = &[$(Status::$name),*];

            /// The status with a number.
            #[must_use]
            pub fn of_code(code: u16) -> Option<Status> {
                match code {
                    $($code => Some(Status::$name),)*
                    _ => None,
                }
            }

            /// The caller's next step.
            #[must_use]
            pub fn next(self) -> Next {
                match self {
                    $(Status::$name => Next::$next,)*
                }
            }

            /// A sentence for people.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self {
                    $(Status::$name => $text,)*
                }
            }
        }
    };
}

statuses! {
    /// The request succeeded.
    Ok = 0, Take, "done";
    /// The server does not know this operation.
    UnknownOpcode = 1, GiveUp, "the server does not know this operation; it may be older than the client";
    /// The request's bytes make no sense.
    Malformed = 2, GiveUp, "the request is malformed; client and server may be of different versions";
    /// The deadline passed before the server was done; the effect may or may not have happened.
    DeadlineExceeded = 3, GiveUp, "the deadline passed before the server was done";
    /// The server has too much to do at the moment.
    Busy = 4, Wait, "the server is busy; try again later";
    /// Another server is responsible.
    Moved = 5, Refresh, "another server is responsible for this";
    /// The answer is longer than the caller takes.
    ReplyTooLong = 6, GiveUp, "the answer is longer than the client accepts; ask for less";
    /// The condition of a conditional update does not hold.
    ConditionFailed = 7, GiveUp, "the condition does not hold";
    /// There is no room.
    NoSpace = 8, Wait, "the server has no room; delete something or add room";
    /// There is no such object.
    NotFound = 9, GiveUp, "there is no such object";
    /// The key has no bytes.
    KeyEmpty = 10, GiveUp, "the key is empty; give at least one byte";
    /// The key is too long.
    KeyTooLong = 11, GiveUp, "the key is too long; at most 64 KiB are allowed";
    /// The value is too long.
    ValueTooLong = 12, GiveUp, "the value is too long; at most 1 MiB is allowed";
    /// The object to be incremented is no number.
    NotANumber = 13, GiveUp, "the object is no number of this kind: it was written as bytes, or one of the two is a whole number and the other is not";
    /// The sum does not fit into a number of 64 bits.
    Overflow = 14, GiveUp, "the sum is too large for a number of 64 bits; the object was not changed";
    /// The client has acknowledged the answer to this update before.
    Stale = 15, GiveUp, "the client has acknowledged the answer to this update before";
    /// No version is left above the present one.
    VersionsExhausted = 16, GiveUp, "no version is left for this object; use another key";
    /// Another coordinator leads.
    NotLeader = 17, Refresh, "this coordinator does not lead; ask the others";
    /// The lease of an update has expired.
    LeaseEnded = 18, GiveUp, "the client's lease has expired because the client was silent for too long; open a new one";
    /// A table of this name exists.
    TableExists = 19, GiveUp, "there is a table of this name already";
    /// No table has this name.
    NoSuchTable = 20, GiveUp, "there is no table of this name; `thunderhead table create` makes one";
    /// A name that no table can have.
    BadName = 21, GiveUp, "a table's name has 1 to 255 bytes and no control characters";
    /// No server could serve it.
    NoServers = 22, Wait, "no server can take it; start one";
    /// The sender or the receiver belongs to another cluster.
    WrongCluster = 23, GiveUp, "this belongs to another cluster";
    /// The coordinator declared the sender crashed, or the server restarted under a newer
    /// generation.
    Deposed = 24, GiveUp, "the cluster has declared this server crashed; it must enlist again";
    /// The coordinator cannot write its decisions to the metastore.
    MetastoreUnavailable = 25, Wait, "the coordinator cannot reach its metastore; configuration changes wait, data is served";
    /// A range that no tablet has, or a place where none can be split.
    BadRange = 26, GiveUp, "no tablet has this range, or it cannot be split there; `thunderhead table show` lists them";
    /// There is no such server.
    NoSuchServer = 27, GiveUp, "there is no such server; `thunderhead status` lists them";
    /// A backup does not keep this replica. The reason is in the answer.
    Refused = 28, GiveUp, "the backup refuses the replica";
    /// The request cannot be served at this time, because another operation is in progress.
    InProgress = 29, Wait, "another operation on it is in progress; try again later";
    /// A tablet did not move.
    NotMigrated = 30, GiveUp, "the tablet stays where it was: it could not be moved; `thunderhead status` says why";
    /// The message is for another server, or for another generation of this server.
    OtherLife = 31, Wait, "this is meant for another server, or for another generation of this one; fetch the list of servers again";
    /// The coordinator lost its leadership while it worked on the request. The request may have
    /// been carried out or not.
    LeadershipLost = 32, Refresh, "the coordinator lost its leadership while it worked on this; it may have been done or not";
    /// The master waits for its backups. A read was not answered. An update is in the log, but not
    /// on enough backups yet: it may still be lost, so repeat it under the same identity.
    AwaitingReplicas = 33, Wait, "the server waits for its backups to confirm; `thunderhead status` shows which servers are missing";
    /// The master does not know the client's lease yet and asks the coordinator. Nothing was done.
    AwaitingLease = 34, Wait, "the server waits for a coordinator to confirm the client's lease; check that a coordinator runs";
    /// The cleaners are about to free memory. Nothing was done.
    AwaitingMemory = 35, Wait, "the server is freeing memory; delete something or add servers if this lasts";
    /// A newer coordinator has sent a message since.
    OldLeader = 36, GiveUp, "a newer coordinator has taken over since this was sent";
    /// A server that is up cannot be forgotten.
    ServerIsUp = 40, GiveUp, "the server is up; stop it first, and wait until `thunderhead status` says that it is down";
    /// A setting of the cluster is invalid.
    BadSetting = 41, GiveUp, "the cluster cannot have this setting: min_replicas is at least 1 and at most its number of replicas, and a format is never older than the one in force";
    /// The cluster's format is newer than all formats that the program knows.
    OldProgram = 42, GiveUp, "the cluster was switched to a newer format than this program knows; upgrade the program";
    /// A log that is to be recovered is incomplete, and the server may have the missing replicas.
    MayBeNeeded = 43, GiveUp, "the server may have replicas that a recovery lacks; `thunderhead status` shows the recovery";
    /// The request names another version of the settings than the present one. Nothing was done.
    Outdated = 44, GiveUp, "the settings were changed meanwhile; look at them with `thunderhead status`, then try again";
    /// The metastore has no record that the server's id was ever given out. The server's storage
    /// may be needed.
    UnknownServer = 45, GiveUp, "the coordinator has never given out the id of this server: its metastore may be an older copy";
    /// The table lies beside others, or others lie beside it.
    Grouped = 46, GiveUp, "this table and others always lie together on one shard: it cannot be split, moved alone or lie beside a table that is spread";
    /// The request needs a newer format of the cluster.
    OldFormat = 47, GiveUp, "this needs a newer format of the cluster; `thunderhead status` says when `thunderhead cluster set format` can switch it on";
    /// A time to live of 0.
    BadTimeToLive = 48, GiveUp, "a time to live has at least one millisecond";
    /// A table has its maximum, and the write would make it larger.
    TableFull = 49, GiveUp, "the table has as many bytes as its option `max` allows; delete objects";
    /// A new table cannot have its options.
    BadOptions = 50, GiveUp, "a table cannot have these options: only a cache can reserve memory, not more than its maximum, and all reservations must fit into the memory of the servers";
}

impl Status {
    /// Whether the server cannot do it at this moment, but soon: it has too much to do, or waits
    /// for its cleaners, its backups or a coordinator.
    #[must_use]
    pub fn is_busy(self) -> bool {
        use Status::{AwaitingLease, AwaitingMemory, AwaitingReplicas, Busy};
        matches!(self, Busy | AwaitingReplicas | AwaitingLease | AwaitingMemory)
    }

    /// The number that goes over the wire.
    #[must_use]
    pub fn code(self) -> u16 {
        self as u16
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_never_change_their_meaning() {
        use Status::*;
        let golden = [
            (0, Ok),
            (1, UnknownOpcode),
            (2, Malformed),
            (3, DeadlineExceeded),
            (4, Busy),
            (5, Moved),
            (6, ReplyTooLong),
            (7, ConditionFailed),
            (8, NoSpace),
            (9, NotFound),
            (10, KeyEmpty),
            (11, KeyTooLong),
            (12, ValueTooLong),
            (13, NotANumber),
            (14, Overflow),
            (15, Stale),
            (16, VersionsExhausted),
            (17, NotLeader),
            (18, LeaseEnded),
            (19, TableExists),
            (20, NoSuchTable),
            (21, BadName),
            (22, NoServers),
            (23, WrongCluster),
            (24, Deposed),
            (25, MetastoreUnavailable),
            (26, BadRange),
            (27, NoSuchServer),
            (28, Refused),
            (29, InProgress),
            (30, NotMigrated),
            (31, OtherLife),
            (32, LeadershipLost),
            (33, AwaitingReplicas),
            (34, AwaitingLease),
            (35, AwaitingMemory),
            (36, OldLeader),
            (40, ServerIsUp),
            (41, BadSetting),
            (42, OldProgram),
            (43, MayBeNeeded),
            (44, Outdated),
            (45, UnknownServer),
            (46, Grouped),
            (47, OldFormat),
            (48, BadTimeToLive),
            (49, TableFull),
            (50, BadOptions),
        ];
        assert_eq!(golden.len(), Status::ALL.len(), "new statuses are added here too");
        for (code, status) in golden {
            assert_eq!(status.code(), code);
            assert_eq!(Status::of_code(code), Some(status));
        }
        assert_eq!(Status::of_code(60_000), None);
    }
}
