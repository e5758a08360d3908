//! Servers: registration, enlistment, the list of servers, and the settings and format of the
//! cluster.

use crate::{ClusterId, Epoch, Format, Generation, MasterId, SegmentId, ServerId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The settings of the whole cluster. Fixed when the cluster is created, except `min_replicas`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ReadSettings")]
pub struct Settings {
    /// Replicas of each segment. 0 means none: a cache.
    pub replicas: u32,
    /// The least replicas for an acknowledged write: 1 to `replicas`. [`ChangeSettings`] changes
    /// it. Settings without this field belong to a cluster that is older than the field. Such a
    /// cluster acknowledged nothing with fewer than `replicas`, so that is the value.
    pub min_replicas: u32,
    /// When a write is acknowledged: `replicated`, `interval:100ms` or `synced`.
    pub durability: String,
    /// Bytes of a full segment.
    pub segment_bytes: u32,
    /// Whether a server may keep a replica of its own segments: for a cluster of one.
    pub self_backup: bool,
}

/// [`Settings`] as they are read.
#[derive(Deserialize)]
struct ReadSettings {
    replicas: u32,
    min_replicas: Option<u32>,
    durability: String,
    segment_bytes: u32,
    self_backup: bool,
}

impl From<ReadSettings> for Settings {
    fn from(read: ReadSettings) -> Settings {
        let ReadSettings { replicas, min_replicas, durability, segment_bytes, self_backup } = read;
        let min_replicas = min_replicas.unwrap_or(replicas.max(1));
        Settings { replicas, min_replicas, durability, segment_bytes, self_backup }
    }
}

impl Settings {
    /// The settings that differ from the other ones, for people. A cluster's `min_replicas` may
    /// have been changed since its creation, so it does not count as a difference.
    #[must_use]
    pub fn differences(&self, other: &Settings) -> String {
        let Settings { replicas, min_replicas: _, durability, segment_bytes, self_backup } = self;
        let pairs = [
            ("replicas", replicas.to_string(), other.replicas.to_string()),
            ("durability", durability.clone(), other.durability.clone()),
            ("segment_bytes", segment_bytes.to_string(), other.segment_bytes.to_string()),
            ("self_backup", self_backup.to_string(), other.self_backup.to_string()),
        ];
        let differ = pairs.into_iter().filter(|(_, own, others)| own != others);
        let texts = differ.map(|(name, own, others)| format!("{name} is {own}, not {others}"));
        texts.collect::<Vec<_>>().join("; ")
    }
}

/// A server, as the whole cluster knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Its id.
    pub server: ServerId,
    /// Its generation, from 1.
    pub generation: Generation,
    /// Whether it is up.
    pub state: ServerState,
    /// The machine it is on: two replicas of a segment are never on one machine.
    pub host: String,
    /// The rack it is in, if racks matter.
    #[serde(default)]
    pub rack: String,
    /// Its shards.
    pub shards: Vec<ShardInfo>,
    /// Its backup, if it has one.
    pub backup: Option<BackupInfo>,
    /// Masters that have taken back the logs of former masters of this server, with those masters.
    /// Such a master also owns the closed replicas that still have a former master's id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineages: Vec<(MasterId, Vec<MasterId>)>,
}

/// Whether a server is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// The server is up.
    Up,
    /// The server is down. A part of its data is still to be recovered, or it may restart.
    Down,
}

/// A shard of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardInfo {
    /// The log that the shard writes in this generation.
    pub master: MasterId,
    /// The address at which it listens.
    pub address: SocketAddr,
}

/// A server's backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupInfo {
    /// The address at which it listens.
    pub address: SocketAddr,
    /// The speed at which it reads its frames; 0 if unknown.
    #[serde(default)]
    pub read_bytes_per_second: u64,
    /// The place of its storage, by a hash of host name, directory and configured port; 0 if
    /// unknown.
    #[serde(default)]
    pub place: u64,
}

/// All servers of the cluster. Versions only grow; a newer list replaces an older one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerList {
    /// The version of the list.
    pub version: u64,
    /// The cluster's present [`Settings::min_replicas`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<u32>,
    /// The cluster's format: no program writes structures that only a newer format allows.
    #[serde(default)]
    pub format: Format,
    /// The servers, by id.
    pub servers: Vec<ServerInfo>,
}

/// `register`: a server, with or without an id, asks for its id and the cluster's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The ids in its storage.
    #[serde(default)]
    pub known: Option<Known>,
    /// A number drawn at random, the same in every attempt, so that the server gets only one id.
    pub nonce: u64,
    /// The place where it has no storage and would create one, as in [`BackupInfo`]; 0 if it gives
    /// none.
    #[serde(default)]
    pub place: u64,
    /// The address of its first shard. A server that answers elsewhere is another one, though its
    /// place has the same name: machines may have the same host name, and containers the same
    /// directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// The newest format that it knows.
    #[serde(default)]
    pub newest_format: Format,
    /// The latest state of the cluster that it has followed.
    #[serde(default, skip_serializing_if = "Followed::is_none")]
    pub followed: Followed,
}

/// The latest state of the cluster that a server has followed, also in earlier generations. A
/// metastore with an earlier state is an older copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// The number of the latest leadership; 0 if there was none.
    #[serde(default)]
    pub leadership: u64,
    /// The highest id of a master in a list of servers; 0 if there was none.
    #[serde(default)]
    pub master: MasterId,
}

impl Followed {
    /// Whether the server has followed nothing, or is an older program, which does not report it.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Followed::default()
    }

    /// Returns the later one of each number.
    #[must_use]
    pub fn max(self, other: Followed) -> Followed {
        Followed {
            leadership: self.leadership.max(other.leadership),
            master: self.master.max(other.master),
        }
    }
}

/// The ids that a server's storage contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The cluster.
    pub cluster: ClusterId,
    /// The server.
    pub server: ServerId,
}

/// The answer to [`Register`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The cluster.
    pub cluster: ClusterId,
    /// The server's id.
    pub server: ServerId,
    /// The server has no id of its own: the storage of that server was in this place and is missing
    /// now.
    #[serde(default)]
    pub is_missing: bool,
    /// The cluster's settings.
    pub settings: Settings,
    /// The cluster's format.
    #[serde(default)]
    pub format: Format,
}

/// `enlist`: a registered server begins a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enlist {
    /// The cluster.
    pub cluster: ClusterId,
    /// The server.
    pub server: ServerId,
    /// A number drawn at random for each generation, the same in every attempt.
    pub nonce: u64,
    /// The machine it is on.
    pub host: String,
    /// The rack it is in.
    #[serde(default)]
    pub rack: String,
    /// The addresses at which its shards listen.
    pub shards: Vec<SocketAddr>,
    /// Its backup, if it has one.
    pub backup: Option<BackupInfo>,
    /// The newest format that it knows.
    #[serde(default)]
    pub newest_format: Format,
    /// The latest state of the cluster that it has followed.
    #[serde(default, skip_serializing_if = "Followed::is_none")]
    pub followed: Followed,
}

/// The answer to [`Enlist`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enlisted {
    /// The number of the generation.
    pub generation: Generation,
    /// The masters' ids, in the order of the shards.
    pub masters: Vec<MasterId>,
    /// A number drawn at random, the same in all generations of this server, and given only to it.
    /// The ids of its logs follow from it, so that the server can take back the log of a former
    /// generation. 0 for none.
    #[serde(default)]
    pub log_seed: u64,
    /// The servers of the cluster.
    pub servers: ServerList,
}

/// `raise epoch`: the open head of a master lost a replica, and from now on only replicas of this
/// epoch count. Answered once that is durable. The answer is [`Empty`](super::Empty).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseEpoch {
    /// The master.
    pub master: MasterId,
    /// The segment.
    pub segment: SegmentId,
    /// Its epoch.
    pub epoch: Epoch,
}

/// `change settings`: changes the settings that may change while the cluster runs. The answer is
/// [`SettingsChanged`], sent once they are written. Servers learn them with the next list of
/// servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSettings {
    /// The new [`Settings::min_replicas`], if it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<u32>,
    /// The cluster's format, if it is to be switched to a newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// The version of the settings that the sender has seen
    /// ([`ClusterStatus::settings_version`](super::ClusterStatus::settings_version)). If they have
    /// another version, the coordinator refuses the message with
    /// [`Outdated`](crate::Status::Outdated), so a message that was delayed for long undoes no
    /// later change. Programs of earlier versions send none, and the coordinator does not compare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// The answer to [`ChangeSettings`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsChanged {
    /// The cluster's present settings.
    pub settings: Settings,
    /// The cluster's format now.
    pub format: Format,
    /// The programs that do not know the wanted format. While there is one, nothing is changed.
    #[serde(default)]
    pub lacking: Vec<KnownFormat>,
}

/// A program of the cluster, and the newest format that it knows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KnownFormat {
    /// Which program.
    pub program: Program,
    /// The newest format that it knows.
    pub newest: Format,
}

/// A program of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// A server, up or down.
    Server(ServerId),
    /// A coordinator, leading or standing by, by its address.
    Coordinator(String),
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Program::Server(server) => write!(f, "{server}"),
            Program::Coordinator(address) => write!(f, "coordinator {address}"),
        }
    }
}

/// `forget server`: a server that is down will not restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetServer {
    /// The server.
    pub server: ServerId,
}
