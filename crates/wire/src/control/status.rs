//! Status: the account that a cluster, a shard or a backup gives of itself.

use super::{KnownFormat, Map, ServerList, Settings, is_false, is_zero};
use crate::{ClusterId, Format, MasterId, SegmentId, TabletRange};
use serde::{Deserialize, Serialize};

/// The answer to `cluster status`, whose body is [`Empty`](super::Empty).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The cluster.
    pub cluster: ClusterId,
    /// The cluster's settings.
    pub settings: Settings,
    /// The version of the settings, for [`ChangeSettings`](super::ChangeSettings). It only grows.
    /// `None` from a coordinator of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings_version: Option<u64>,
    /// The servers of the cluster.
    pub servers: ServerList,
    /// The tables and the addresses of their tablets.
    pub map: Map,
    /// The number of open leases.
    pub leases: u64,
    /// The recoveries in progress.
    pub recoveries: Vec<RecoveryInfo>,
    /// Facts that an operator should know, in sentences.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// The cluster's format.
    #[serde(default)]
    pub format: Format,
    /// The programs of the cluster, and the newest format that each knows.
    #[serde(default)]
    pub programs: Vec<KnownFormat>,
}

/// A recovery in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryInfo {
    /// The crashed master.
    pub crashed: MasterId,
    /// One of the recovery masters; `None` while there is none.
    pub by: Option<MasterId>,
    /// The reason why the last attempt failed, or the condition for which it waits.
    pub trouble: Option<String>,
    /// The attempts that have failed one after the other.
    pub failures: u32,
    /// If no shard seems to have room for it: about the bytes of memory that a single shard would
    /// need. Otherwise 0.
    pub needed_bytes: u64,
    /// The stage of the recovery: `waiting`, `surveying` or `rebuilding`.
    pub stage: String,
    /// The partitions into which its tablets were last divided.
    pub partitions: u32,
    /// The partitions that are not rebuilt yet.
    pub partitions_left: u32,
    /// The recovery masters of these partitions. The status of each shard tells its progress.
    pub masters: Vec<MasterId>,
    /// Bytes of the log.
    pub bytes: u64,
    /// The time for which a leader has been trying, in milliseconds.
    pub for_ms: u64,
}

/// `shard status`. The answer is a [`ShardStatus`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardStatusOf {
    /// The answer lists neither tablets nor inherited segments.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_brief: bool,
}

/// The most tablets that a [`ShardStatus`] lists: so it stays below 1 MiB.
pub const STATUS_TABLETS_MAX: usize = 4096;

/// The answer to `shard status`, whose body is a [`ShardStatusOf`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShardStatus {
    /// The master.
    pub master: MasterId,
    /// Bytes of memory that the log may use.
    pub memory_bytes: u64,
    /// The bytes of these in use.
    pub used_bytes: u64,
    /// The bytes of these that are live.
    pub live_bytes: u64,
    /// Bytes of live entries that still fit, beside the entries that recoveries are about to bring.
    /// With 0 the shard refuses new tablets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room_bytes: Option<u64>,
    /// Objects in all tablets.
    pub objects: u64,
    /// Its tablets, or the first of them.
    pub tablets: Vec<TabletStatus>,
    /// The number of tablets that are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub tablets_left: u64,
    /// Reads of objects since the shard began.
    pub reads: u64,
    /// Updates since it began.
    pub updates: u64,
    /// Outcomes of updates that it remembers.
    pub records: u64,
    /// Segments that lack replicas.
    pub segments_short: u64,
    /// The segments that lack replicas, with the cost of a loss; `None` if no segment lacks
    /// replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_risk: Option<AtRisk>,
    /// Segments of former logs that its own log still has, if it has taken one back and finished
    /// doing so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Vec<SegmentId>>,
    /// The progress of recoveries here: bytes done, and of how many, as far as that is known.
    pub recovering: Option<(u64, u64)>,
    /// Facts that an operator should know, in sentences.
    pub remarks: Vec<String>,
}

/// Segments of a log that have fewer replicas than the cluster wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AtRisk {
    /// The number of segments.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The number of replicas of the worst segment.
    pub replicas: u32,
    /// The time for which there have been such segments, in milliseconds.
    pub for_ms: u64,
    /// Writes wait, because the head has fewer than `min_replicas`, or a backup's disk is behind.
    pub is_blocked: bool,
}

/// A tablet, as its shard knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletStatus {
    /// The tablet.
    pub range: TabletRange,
    /// Objects in it.
    pub objects: u64,
    /// Bytes of live entries.
    pub bytes: u64,
}

/// The answer to `backup status`, whose body is [`Empty`](super::Empty).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackupStatus {
    /// The replicas that it can hold.
    pub frames: u64,
    /// The free frames.
    pub frames_free: u64,
    /// The damaged frames.
    pub frames_damaged: u64,
    /// The speed at which it reads; 0 if unknown.
    pub read_bytes_per_second: u64,
    /// The durability at which it acknowledges.
    pub durability: String,
    /// Bytes of replicas that it read for recoveries since it began.
    pub recovery_bytes_read: u64,
    /// Bytes of memory for parts of segments that it cut for recoveries: parts that wait to be
    /// fetched, and memory for the next parts.
    pub recovery_bytes_held: u64,
}
