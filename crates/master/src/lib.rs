//! A shard's service: operations on the objects of its tablets.
//!
//! A [`Shard`] owns a [`Log`](thunderhead_log::Log) and answers requests in the turns of its
//! reactor. Nothing in it waits:
//!
//! - A **read** is answered at once, unless its object is not durable yet. Then the answer is
//!   *parked*: otherwise a crash could undo an update that a client has seen.
//! - An **update** is appended, and its answer parked until the log is durable that far. At the end
//!   of the turn the log passes on the entries that the turn has appended ([`Log::turn`]). When
//!   bytes become durable, the answers that waited for them leave.
//!
//! # Exactly once
//!
//! An update carries the identity that its client gave it: lease, sequence, and up to where the
//! client has all its answers. The outcome is appended together with the effect, as a completion
//! record, and a retry gets the recorded outcome. Refusals that depend on the object (a condition
//! that failed, a value that is not a number) are recorded too, for the object may have changed
//! when the retry comes. Refusals that do not depend on it (a key that is too long) and refusals
//! that promise that nothing has happened (no room) are not recorded.
//!
//! A record is forgotten once its client reports that it has the answer. An update from before that
//! is a straggler of the network, and is refused as stale. Each record also contains up to where
//! its client had its answers, and the last record of a client is kept: so this is known after a
//! replay, too.
//!
//! The lease, which the coordinator gives out and ends, identifies a client ([`Options`] bounds the
//! memory for clients). The first update under a lease waits until the coordinator has confirmed
//! the lease. The updates of a client whose lease is over are forgotten, and later ones are
//! refused.
//!
//! # Tablets
//!
//! The coordinator gives tablets and takes them; a shard that is in no cluster gets them from its
//! caller. The module `recovery` describes how tablets of a crashed master are rebuilt from the
//! replicas of its log, in slices, while the shard serves others. A tablet, or part of one, moves
//! to another shard while it is served, except for a short pause at the end: the module
//! `migration`.
//!
//! # Copies
//!
//! The log passes its entries to the [`Replicator`](thunderhead_log::Replicator) that it was made
//! with: [`replication`] to backups is one.
//!
//! # Layers
//!
//! A module uses only modules of lower rows.
//!
//! ```text
//!   shard                          the service: requests, turns, the coordinator's commands
//!   objects, recovery, migration   operations; tablets from a log, or to and from other shards
//!   leases                         the confirmation of clients' leases
//!   clients, replication           clients with their outcomes; copies of the log on backups
//!   outcome, parked, …             records, waiting answers, settings, primitives
//! ```
//!
//! [`Log::turn`]: thunderhead_log::Log::turn
#![forbid(unsafe_code)]

mod cleaning;
mod clients;
pub mod coordinator_client;
mod expiry;
mod leases;
mod limits;
mod migration;
mod objects;
mod options;
mod outcome;
mod owner;
mod parked;
mod recovery;
mod refusal;
pub mod replication;
mod sequences;
mod shard;
mod table_options;

pub use expiry::time_of_day;
pub use options::Options;
pub use replication::{
    LocalAnswer, LocalBackup, LocalReplica, ReplicaBytes, Replication, ReplicationStatus,
};
pub use shard::{DoorError, DoorTable, Shard, Statistics};
