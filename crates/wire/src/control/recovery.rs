//! Recovery: the inventory of replicas, the commands to backups and recovery masters, their
//! reports.

use super::{TabletStatus, Taken, is_false};
use crate::{Epoch, MasterId, RecoveryId, SegmentId, ServerId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// `head of`: asks for the log's state in an open replica. The answer is a [`Head`]. A replica that
/// the backup does not have, or that is damaged elsewhere than at its end, is refused. The backup
/// takes nothing more from that master before it answers, as with `inventory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadOf {
    /// The master that wrote the replica.
    pub master: MasterId,
    /// The replica's segment.
    pub segment: SegmentId,
}

/// The answer to `head of`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The segments of the log, by the last digest in it; `None` if it has no digest.
    pub digest: Option<Vec<SegmentId>>,
    /// The contents of the log's tablets when the segment was begun, as far as there was room.
    #[serde(default)]
    pub statistics: Vec<TabletStatus>,
    /// The damage at the end, if there is any: then another replica is better.
    #[serde(default)]
    pub torn: Option<String>,
}

/// `begin recovery`: a master has crashed, and its tablets are about to be rebuilt in parts. The
/// backup reads the named replicas, in this order, and cuts them by partitions. Any other replica
/// of that master it reads and cuts on request. A later recovery of the same master replaces an
/// earlier one; repeating the message changes nothing. The backup takes nothing more from that
/// master before it answers. After a restart it knows nothing of the recovery until the message is
/// sent again. The answer is [`Empty`](super::Empty).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginRecovery {
    /// The recovery's number, which only grows and is never used again.
    pub recovery: RecoveryId,
    /// The crashed master.
    pub crashed: MasterId,
    /// The tablets of each partition. Entries of no partition are of no use.
    pub partitions: Vec<Vec<Taken>>,
    /// Segments to read without a request.
    pub segments: Vec<SegmentId>,
    /// Replicas are not cut: there is one partition, to which all of every replica belongs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub whole: bool,
    /// The former masters whose closed replicas this master owns too: see
    /// [`ServerInfo::lineages`](super::ServerInfo::lineages).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<MasterId>,
}

/// The backups that have a segment's replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    /// The segment.
    pub segment: SegmentId,
    /// The backups; the first one reads the segment without a request.
    pub at: Vec<(ServerId, SocketAddr)>,
    /// These copies are closed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub closed: bool,
    /// The highest epoch among them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub epoch: Epoch,
}

fn is_none(epoch: &Epoch) -> bool {
    *epoch == Epoch::default()
}

/// `recover`: rebuild tablets from the replicas of a log. Answered with [`Empty`](super::Empty)
/// once it has begun; repeating it changes nothing. When all tablets are durable here, the shard
/// sends [`Recovered`], and serves them once that is answered. Several shards may recover one
/// master, each with a partition of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recover {
    /// The master that recovers.
    pub master: MasterId,
    /// The crashed master.
    pub crashed: MasterId,
    /// The recovery's number.
    #[serde(default)]
    pub recovery: RecoveryId,
    /// The partition in it, from 0.
    #[serde(default)]
    pub partition: u32,
    /// The tablets to rebuild: those of the partition.
    pub tablets: Vec<Taken>,
    /// The amount to rebuild, as far as the log's statistics tell.
    #[serde(default)]
    pub expected: Vec<TabletStatus>,
    /// All segments of the log, in the order in which backups read them. The log was found to be
    /// complete.
    #[serde(default)]
    pub segments: Vec<Replicas>,
    /// The log is that of the shard's own former generation, and is taken back: its closed segments
    /// become part of the shard's own log unchanged, with their replicas. The single partition has
    /// all tablets.
    #[serde(default, skip_serializing_if = "is_false")]
    pub take_back: bool,
}

/// `recovered`: tablets are rebuilt and durable. The answer, [`Owned`](super::Owned), is sent once
/// the metastore names the new master as their owner. If it owns none of them, the answer is *bad
/// range*.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The crashed master.
    pub crashed: MasterId,
    /// The recovery's number.
    #[serde(default)]
    pub recovery: RecoveryId,
    /// The partition.
    #[serde(default)]
    pub partition: u32,
    /// The recovery master.
    pub by: MasterId,
    /// The tablets that it has now, with the segment from which each counts; or the reason of the
    /// failure, for people.
    pub outcome: Result<Vec<Taken>, String>,
    /// Though it failed, its log names segments of the former log, whose replicas must stay.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keeps: bool,
}

/// `inventory`: asks for the replicas of a master. If it is `deposed`, the backup takes nothing
/// more from the master before it answers: the list of servers, which says so too, may come later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryOf {
    /// The master that wrote the replicas.
    pub master: MasterId,
    /// The cluster has declared the master crashed, and its replicas are about to be read.
    #[serde(default)]
    pub deposed: bool,
    /// The former masters whose closed replicas this master owns too: see
    /// [`ServerInfo::lineages`](super::ServerInfo::lineages).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<MasterId>,
}

/// `free master`; and `confirm master`, which a leading coordinator answers with
/// [`Empty`](super::Empty) while it has not declared the master crashed, and refuses as *deposed*
/// from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfMaster {
    /// The master that wrote the replicas.
    pub master: MasterId,
}

/// `free rest`: frees the replicas of a master whose log was taken back, except the closed ones of
/// these segments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeRest {
    /// The master that wrote the replicas.
    pub master: MasterId,
    /// The segments that are still needed; the list may name others too.
    pub keep: Vec<SegmentId>,
}

/// The answer to [`FreeRest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestLeft {
    /// The number of replicas of the master that remain.
    pub replicas: u64,
}

/// `masters here`: asks for the masters of which a backup has replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MastersAfter {
    /// Only masters with higher numbers.
    pub after: MasterId,
}

/// The answer to [`MastersAfter`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MastersHere {
    /// The masters, in the order of their numbers.
    pub masters: Vec<MasterId>,
    /// Whether there may be more masters after the last one.
    pub more: bool,
}

/// The answer to `inventory`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// The replicas that count.
    pub replicas: Vec<ReplicaInfo>,
}

/// A replica that a backup has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaInfo {
    /// The replica's segment.
    pub segment: SegmentId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its bytes.
    pub length: u32,
    /// Whether the replica is closed and whole.
    pub closed: bool,
}
