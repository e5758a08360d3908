//! The bodies of messages between coordinator, servers and clients about the cluster.
//!
//! They are JSON. They are not on the path of an object, so packing them would gain nothing. JSON
//! can be read by a client in any language and by an operator, and it can grow: a reader skips
//! fields that it does not know, and new fields have a default.
//!
//! Long because it is one list: each message is one struct, and all of them are found here.
//!
//! # The generations of a server
//!
//! ```text
//!  register   who am I?            → server id, cluster, settings      (kept in its storage)
//!  (opens its storage)
//!  enlist     I am here, alive     → generation, a master id for each shard, the list of servers
//!  recover    (from the coordinator, for each shard of its former generation that had tablets)
//! ```
//!
//! A server keeps its id as long as it keeps its storage. Each generation of it has a higher
//! number, and its shards have new master ids, because each writes a new log. A server that enlists
//! again thereby reports that its former generation has ended.

use crate::{
    ClusterId, Epoch, Format, KeyHash, MasterId, SegmentId, ServerId, TableId, TabletRange,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a master answers reads after it sent a message that a backup then confirmed: the backup
/// still takes this master's replicas. All backups from which the end of its log could be recovered
/// must have confirmed.
///
/// A recovery reads the end of a log only from a backup that it first told to take nothing more
/// from that master (`inventory` with `deposed`). It lets no other server serve the master's
/// tablets until this time, plus the difference between clocks, has passed since. So a master that
/// was declared crashed and does not know it has stopped answering before another master can accept
/// a write.
///
/// A master counts from the moment of sending, by its own clock, and takes nothing off. The waiting
/// side adds a margin for clocks that run at different speeds.
pub const READ_LEASE: Duration = Duration::from_millis(500);

/// A message as the body of a request or a reply.
#[must_use]
pub fn to_body<T: Serialize>(message: &T) -> Vec<u8> {
    // Serializing cannot fail here: there are no maps with odd keys and no custom serializers.
    serde_json::to_vec(message).unwrap_or_default()
}

/// The message in a body; `None` if the body is malformed.
#[must_use]
pub fn of_body<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body).ok()
}

/// A message without contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

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
    pub generation: u64,
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
    /// The cluster's format: nobody writes what only a newer one allows.
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
    /// Where its first shard listens. A server that answers elsewhere is another one, though its
    /// place has the same name: machines may have the same host name, and containers the same
    /// directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// The newest format that it knows.
    #[serde(default)]
    pub newest_format: Format,
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
}

/// The answer to [`Enlist`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enlisted {
    /// The number of the generation.
    pub generation: u64,
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

/// The approximate size of the tables in one [`Map`]: the coordinator ends a page behind the table
/// that exceeds it. A table has at most as many tablets as fit into one value of the metastore, so
/// every page, with the table that exceeds it, is shorter than 1 MiB.
pub const MAP_PAGE_BYTES: usize = 256 << 10;

/// The most tables that one [`MapRequest`] names. The coordinator ignores the others.
pub const MAP_TABLES_MAX: usize = 1024;

/// `map`: asks for the addresses of tablets.
///
/// There are three kinds of requests:
///
/// - *One table*, by its `table` name.
/// - *A page*: the tables from the id `from` on. The answer says where the next page begins.
///   The empty request asks for the first page.
/// - *News*: `is_news`. The answer has everything that has changed since the version `since`, if
///   that fits into one page. Otherwise it has only the tables that `tables` names. So a client of
///   a small cluster keeps the whole map by one short message for each change, and a client of a
///   large cluster gets only the tables that it uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapRequest {
    /// Only the table of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Tables with this id or a higher one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<TableId>,
    /// The client asks for news.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_news: bool,
    /// The version of the whole map that the client has; 0 if it has none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub since: u64,
    /// The tables that the client needs, and the version that it has of each, or 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<(TableId, u64)>,
}

/// The answer to [`MapRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// Grows with every change.
    pub version: u64,
    /// The tables, by id.
    pub tables: Vec<TableInfo>,
    /// Tables that are not listed here are as they were in the map of this version. 0: they do not
    /// exist, except those of further pages.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub since: u64,
    /// Only tables that the request named are listed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_part: bool,
    /// Tables that the request named and that do not exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<TableId>,
    /// The next page begins with this table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<TableId>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableInfo {
    /// Its id.
    pub id: TableId,
    /// The name that people use.
    pub name: String,
    /// Its tablets, by their first hashes, without gaps.
    pub tablets: Vec<TabletInfo>,
    /// Only tablets that have changed since the map of this version are listed. 0: all are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub since: u64,
}

/// A tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletInfo {
    /// The first hash that belongs to it.
    pub first: KeyHash,
    /// The last hash that belongs to it.
    pub last: KeyHash,
    /// The master that owns it.
    pub master: MasterId,
    /// The master's address; `None` while the tablet is being recovered.
    pub address: Option<SocketAddr>,
}

/// `create table`. The answer is a [`TableInfo`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTable {
    /// Its name.
    pub name: String,
    /// The number of shards over which it is spread.
    #[serde(default = "one")]
    pub server_span: u32,
}

fn one() -> u32 {
    1
}

/// `drop table`. The answer is [`Empty`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropTable {
    /// Its name.
    pub name: String,
}

/// `split tablet`: the tablet that holds a hash becomes two. The answer is the [`TableInfo`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitTablet {
    /// The table's name.
    pub table: String,
    /// The first hash of the second tablet.
    pub at: KeyHash,
}

/// `migrate tablet`. Answered when it has moved; the answer is the [`TableInfo`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrateTablet {
    /// The table's name.
    pub table: String,
    /// The tablet's first hash.
    pub first: KeyHash,
    /// The master that gets the tablet.
    pub to: MasterId,
}

/// The answer to `open lease`, whose body is [`Empty`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseOpened {
    /// The lease, never 0 and never used again.
    pub lease: u64,
    /// The time for which the lease lasts after the coordinator last heard from the client, in
    /// milliseconds.
    pub ttl_ms: u64,
    /// The cluster, so that a client notices when it talks to another one.
    pub cluster: ClusterId,
}

/// `renew lease` and `close lease`. The answer is [`Empty`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The lease.
    pub lease: u64,
}

/// `check leases`: asks which leases have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckLeases {
    /// Leases.
    pub leases: Vec<u64>,
}

/// The answer to [`CheckLeases`]. It is durable: a lease that has ended stays so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasesChecked {
    /// The leases that have ended, or never existed.
    pub ended: Vec<u64>,
    /// The version of the map when the others were open.
    pub map_version: u64,
}

/// `raise epoch`: the open head of a master lost a replica, and from now on only replicas of this
/// epoch count. Answered once that is durable. The answer is [`Empty`].
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
/// [`SettingsChanged`], sent once they are written. Servers learn them with the next list of servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSettings {
    /// The new [`Settings::min_replicas`], if it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<u32>,
    /// The cluster's format, if it is to be switched to a newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
}

/// The answer to [`ChangeSettings`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsChanged {
    /// What holds in the cluster now.
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
    /// A server, also one that is down.
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

/// A tablet that a master took over at a point of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The tablet.
    pub range: TabletRange,
    /// Entries born before this segment of that log belong to a former stay of the tablet.
    pub since: SegmentId,
}

/// `take tablets` (new, empty ones) and `drop tablets`. Tablets that the master already has (or
/// does not have) are skipped. The answer is [`Empty`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tablets {
    /// The master for which the message is meant: its address may belong to another by now.
    pub master: MasterId,
    /// The tablets.
    pub tablets: Vec<TabletRange>,
}

/// `take tablets` and `drop tablets` at the end of a migration. To take: from now on the new master
/// serves the entries that it has received, and never creates an empty tablet instead. To drop: the
/// new master throws away the entries that it has received so far, if it does not serve the tablet
/// yet; the former master drops the tablet that it gave away. Each does so only for this migration,
/// however late the message is, and skips it if it was done already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigratedTablets {
    /// The migration's number.
    pub migration: u64,
    /// The master for which the message is meant.
    pub master: MasterId,
    /// The tablet, as the only element.
    pub tablets: Vec<TabletRange>,
    /// The moment from which the tablet is the new master's. The default keeps a message without it
    /// from being taken for [`Tablets`], which creates empty tablets.
    #[serde(default)]
    pub since: OwnedSince,
}

/// `migrate out`: gives a tablet to another master. The coordinator repeats the request until the
/// answer is a [`MigratedOut`]; until then the answer is that it is in progress. A later repetition
/// gets the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrateOut {
    /// The migration's number, which is never used again.
    pub migration: u64,
    /// The master that has the tablet.
    pub master: MasterId,
    /// The tablet, or a part of it.
    pub range: TabletRange,
    /// The master that gets it.
    pub to: MasterId,
    /// The address of that master.
    pub address: SocketAddr,
    /// The migration is abandoned: the tablet stays, and is served.
    #[serde(default)]
    pub give_up: bool,
}

/// The answer to [`MigrateOut`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigratedOut {
    /// On success, the segment from which on the tablet's entries count at the new master, where it
    /// is durable; the answering master no longer serves it, unless the migration is abandoned. On
    /// failure, the reason, for people; the answering master serves the tablet as before.
    pub outcome: Result<Taken, String>,
}

/// The beginning of `migrate in`: see `thunderhead_wire::migration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationBegin {
    /// The tablet to migrate.
    pub range: TabletRange,
}

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
/// sent again. The answer is [`Empty`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginRecovery {
    /// The recovery's number, which only grows and is never used again.
    pub recovery: u64,
    /// The crashed master.
    pub crashed: MasterId,
    /// The tablets of each partition. Entries of no partition are of no use.
    pub partitions: Vec<Vec<Taken>>,
    /// Segments to read without a request.
    pub segments: Vec<SegmentId>,
    /// Replicas are not cut: there is one partition, to which all of every replica belongs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub whole: bool,
    /// The former masters whose closed replicas this master owns too: see [`ServerInfo::lineages`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<MasterId>,
}

fn is_false(it: &bool) -> bool {
    !it
}

fn is_zero(it: &u64) -> bool {
    *it == 0
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

/// `recover`: rebuild tablets from the replicas of a log. Answered with [`Empty`] once it has
/// begun; repeating it changes nothing. When all tablets are durable here, the shard sends
/// [`Recovered`], and serves them once that is answered. Several shards may recover one master,
/// each with a partition of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recover {
    /// The master that recovers.
    pub master: MasterId,
    /// The crashed master.
    pub crashed: MasterId,
    /// The recovery's number.
    #[serde(default)]
    pub recovery: u64,
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

/// `recovered`: tablets are rebuilt and durable. The answer, [`Owned`], is sent once the metastore
/// names the new master as their owner. If it owns none of them, the answer is *bad range*.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The crashed master.
    pub crashed: MasterId,
    /// The recovery's number.
    #[serde(default)]
    pub recovery: u64,
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

/// The moment from which a shard owns tablets, in numbers of the coordinator that only grow. By it
/// a shard tells which updates are older than its ownership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedSince {
    /// The version of the map that names the shard as the owner. All maps before the shard became
    /// the owner have lower versions.
    pub map_version: u64,
    /// No lease from this one on was opened before the shard became the owner.
    pub next_lease: u64,
}

/// The answer to `recovered`: from now on the shard owns the rebuilt tablets, with exceptions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owned {
    /// The moment from which it owns them.
    pub since: OwnedSince,
    /// Tablets that the shard throws away before it serves the others: their tables were dropped,
    /// or another master owns them. If the shard owns only a part of a tablet, the other parts.
    #[serde(default)]
    pub not_yours: Vec<TabletRange>,
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
    /// The former masters whose closed replicas this master owns too: see [`ServerInfo::lineages`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<MasterId>,
}

/// `free master`; and `confirm master`, which a leading coordinator answers with [`Empty`] while it
/// has not declared the master crashed, and refuses as *deposed* from then on.
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

/// `forget server`: a server that is down will not restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetServer {
    /// The server.
    pub server: ServerId,
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

/// The answer to `cluster status`, whose body is [`Empty`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The cluster.
    pub cluster: ClusterId,
    /// The cluster's settings.
    pub settings: Settings,
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

/// The answer to `backup status`, whose body is [`Empty`].
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
    /// Bytes that it cut for recoveries, and keeps until they are fetched.
    pub recovery_bytes_held: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_skipped_and_missing_ones_have_a_default() {
        let known: CreateTable = of_body(br#"{"name":"t","colour":"red"}"#).unwrap();
        assert_eq!(known, CreateTable { name: "t".into(), server_span: 1 });
        assert_eq!(of_body::<CreateTable>(b"{}"), None);
        assert_eq!(of_body::<CreateTable>(b"\xff"), None);
        assert_eq!(of_body::<ShardStatus>(b"{}"), Some(ShardStatus::default()));
    }

    #[test]
    fn exactly_the_differing_settings_are_named() {
        let one = Settings {
            replicas: 3,
            min_replicas: 1,
            durability: "replicated".into(),
            segment_bytes: 8 << 20,
            self_backup: false,
        };
        assert_eq!(one.differences(&one), "");
        let other = Settings { durability: "synced".into(), self_backup: true, ..one.clone() };
        assert_eq!(
            one.differences(&other),
            "durability is replicated, not synced; self_backup is false, not true"
        );
    }

    #[test]
    fn numbers_are_json_numbers_and_addresses_are_strings() {
        let map = Map {
            version: 3,
            tables: vec![TableInfo {
                id: TableId(7),
                name: "x".into(),
                since: 0,
                tablets: vec![TabletInfo {
                    first: KeyHash::MIN,
                    last: KeyHash::MAX,
                    master: MasterId(2),
                    address: Some(([127, 0, 0, 1], 7071).into()),
                }],
            }],
            ..Map::default()
        };
        let golden = r#"{"version":3,"tables":[{"id":7,"name":"x","tablets":[{"first":0,"last":18446744073709551615,"master":2,"address":"127.0.0.1:7071"}]}]}"#;
        assert_eq!(to_body(&map), golden.as_bytes());
        assert_eq!(of_body(golden.as_bytes()), Some(map));
        let golden = r#"{"is_news":true,"since":5,"tables":[[7,4],[8,0]]}"#;
        let tables = vec![(TableId(7), 4), (TableId(8), 0)];
        let news = MapRequest { is_news: true, since: 5, tables, ..MapRequest::default() };
        assert_eq!(to_body(&news), golden.as_bytes());
        assert_eq!(of_body(golden.as_bytes()), Some(news));
        assert_eq!(to_body(&MapRequest::default()), b"{}");
        let golden = r#"{"version":6,"tables":[{"id":7,"name":"x","tablets":[],"since":4}],"is_part":true,"gone":[8]}"#;
        let (id, name, tablets) = (TableId(7), "x".to_owned(), Vec::new());
        let tables = vec![TableInfo { id, name, tablets, since: 4 }];
        let gone = vec![TableId(8)];
        let part = Map { version: 6, tables, is_part: true, gone, ..Map::default() };
        assert_eq!(to_body(&part), golden.as_bytes());
        assert_eq!(of_body(golden.as_bytes()), Some(part));
    }
}
