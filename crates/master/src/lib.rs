//! A shard's service: operations on the objects of its tablets.
//!
//! A [`Shard`] owns a [`Log`](thunderhead_log::Log) and answers requests in the turns of its
//! reactor. Nothing in it waits:
//!
//! - A **read** is answered at once, unless what it shows is not durable yet: then it is *parked*,
//!   or a crash could unsay what a client has seen.
//! - An **update** is appended, and its answer parked until the log is durable that far. At the end
//!   of the turn the log hands over what the turn has appended ([`Log::turn`]); whatever became
//!   durable meanwhile lets answers go.
//!
//! # Exactly once
//!
//! An update carries the identity that its client gave it: lease, sequence, and up to where the
//! client has all its answers. The outcome is appended together with the effect, as a completion
//! record; whoever asks again gets the recorded outcome. Also refusals that depend on the object (a
//! condition that failed, a value that is no number) are recorded, for the object may have changed
//! when the question comes again. What does not depend on it (a key that is too long) and what
//! promises that nothing has happened (no room) is not.
//!
//! A record is forgotten once its client says that it has the answer. An update from before that is
//! a straggler of the network, and is refused as stale. Each record also says how far its client
//! had its answers, and the last of a client is kept: so that is known after a replay, too.
//!
//! Who a client is, its lease says, which the coordinator gives out and ends ([`Options`] bounds what
//! is remembered). The first update under a lease is told to wait until the coordinator has said that
//! it lasts; what a client did under a lease that is over is forgotten, and what still comes is
//! refused.
//!
//! # Tablets
//!
//! The coordinator gives tablets and takes them; a shard that is in no cluster gets them from its
//! caller. Tablets of a master that is gone are rebuilt from the replicas of its log, in slices,
//! while the shard serves others: the module `recovery` describes how. A tablet, or part of one, moves
//! to another shard while it is served, but for a short pause at the end: the module `migration`.
//!
//! # Copies
//!
//! What the log appends goes to whatever [`Replicator`](thunderhead_log::Replicator) the log was made
//! with: [`replication`] to backups is one.
//!
//! [`Log::turn`]: thunderhead_log::Log::turn
#![forbid(unsafe_code)]

pub mod asking;
mod cleaning;
mod clients;
mod control;
mod leases;
mod limits;
mod migration;
mod objects;
mod options;
mod outcome;
mod parked;
mod recovery;
pub mod replication;
mod sequences;
mod shard;

pub use options::Options;
pub use replication::{
    LocalAnswer, LocalBackup, LocalReplica, ReplicaBytes, Replication, Standing,
};
pub use shard::{Shard, Statistics};
