//! The bodies of what coordinator, servers and clients say to each other about the cluster.
//!
//! They are JSON. None of it is on the way of an object, so nothing is won by packing it; what is
//! won is that a client in any language reads it, that an operator does, and that it can grow:
//! fields that a reader does not know are passed over, fields that are new have a default.
//!
//! Long because it is one list: a message more is a struct more, and whoever looks for one finds it here.
//!
//! # The life of a server
//!
//! ```text
//!  register   who am I?            → server id, cluster, settings      (kept in its storage)
//!  (opens its storage)
//!  enlist     I am here, alive     → generation, a master id for each shard, who else there is
//!  recover    (from the coordinator, for each shard of its former life that had tablets)
//! ```
//!
//! A server keeps its id as long as it keeps its storage; each life has a higher *generation*, and
//! its shards have new master ids, for each writes a new log. Who enlists again says by that that
//! its former life is over.

use crate::{ClusterId, Epoch, KeyHash, MasterId, SegmentId, ServerId, TableId, TabletRange};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a master answers reads after it sent what a backup then confirmed: that it still takes
/// this master's replicas. All backups from which the end of its log could be recovered must have.
///
/// Whoever recovers a log reads its end only from a backup that it told before that it takes nothing
/// more from that master (`inventory` with `deposed`), and lets nobody else serve the master's
/// tablets until this time, and what clocks differ in it, has passed since. So a master that was
/// given up and does not know has stopped answering before another one can accept a write.
///
/// A master counts from when it sent, by its own clock, and takes nothing off; a margin for clocks
/// that run at different speeds is added by who waits.
pub const READ_LEASE: Duration = Duration::from_millis(500);

/// A message as the body of a request or a reply.
#[must_use]
pub fn to_body<T: Serialize>(message: &T) -> Vec<u8> {
    // Nothing here can fail to be written: no maps with odd keys, no own serializers.
    serde_json::to_vec(message).unwrap_or_default()
}

/// The message in a body; `None` where it is malformed.
#[must_use]
pub fn of_body<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body).ok()
}

/// A message that says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// What holds for the whole cluster. Decided when it is made, but for `min_replicas`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Replicas of each segment. 0: none, a cache.
    pub replicas: u32,
    /// Replicas without which no write is acknowledged: 1 to `replicas`. [`ChangeSettings`] changes it.
    #[serde(default = "one")]
    pub min_replicas: u32,
    /// When a write is acknowledged: `replicated`, `interval:100ms` or `synced`.
    pub durability: String,
    /// Bytes of a full segment.
    pub segment_bytes: u32,
    /// A server may keep a replica of its own segments: for a cluster of one.
    pub self_backup: bool,
}

impl Settings {
    /// What of it is not as in the other one, for people. A cluster's `min_replicas` may have been changed
    /// since it was made, so that is no difference.
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

/// A server, as all know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Its id.
    pub server: ServerId,
    /// Which of its lives this is, from 1.
    pub generation: u64,
    /// Whether it is there.
    pub state: ServerState,
    /// The machine it is on: two replicas are never on one.
    pub host: String,
    /// The rack it is in, if racks matter.
    #[serde(default)]
    pub rack: String,
    /// Its shards.
    pub shards: Vec<ShardInfo>,
    /// Its backup, if it has one.
    pub backup: Option<BackupInfo>,
    /// Masters that have taken back the logs of former ones of this server, with those: what such a
    /// master does to a closed replica that is still the former one's it does to its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineages: Vec<(MasterId, Vec<MasterId>)>,
}

/// Whether a server is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// It is.
    Up,
    /// It is not, and something of it is still to be recovered, or it may come again.
    Down,
}

/// A shard of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardInfo {
    /// The log it writes in this life.
    pub master: MasterId,
    /// Where it listens.
    pub address: SocketAddr,
}

/// A server's backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupInfo {
    /// Where it listens.
    pub address: SocketAddr,
    /// How fast it reads its frames; 0 if that is not known.
    #[serde(default)]
    pub read_bytes_per_second: u64,
    /// The place of its storage, by a hash of machine and directory; 0 if that is not known.
    #[serde(default)]
    pub place: u64,
}

/// Everybody there is. Versions only grow; a newer list takes an older one's place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerList {
    /// Which list this is.
    pub version: u64,
    /// The cluster's present [`Settings::min_replicas`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<u32>,
    /// The servers, by id.
    pub servers: Vec<ServerInfo>,
}

/// `register`: a server that has no id, or one that has, wants to know what holds here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// What its storage says.
    #[serde(default)]
    pub known: Option<Known>,
    /// A number drawn at random, the same in every attempt: it gets only one id.
    pub nonce: u64,
    /// The place where it has no storage and would make one, as in [`BackupInfo`]; 0 if it does not say.
    #[serde(default)]
    pub place: u64,
}

/// What a server's storage says of it.
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
    /// It has no id of its own: the storage of that server was in this place and is not there now.
    #[serde(default)]
    pub is_missing: bool,
    /// What holds in the cluster.
    pub settings: Settings,
}

/// `enlist`: a registered server begins a life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enlist {
    /// The cluster.
    pub cluster: ClusterId,
    /// The server.
    pub server: ServerId,
    /// A number drawn at random for each life, the same in every attempt.
    pub nonce: u64,
    /// The machine it is on.
    pub host: String,
    /// The rack it is in.
    #[serde(default)]
    pub rack: String,
    /// Where its shards listen.
    pub shards: Vec<SocketAddr>,
    /// Its backup, if it has one.
    pub backup: Option<BackupInfo>,
}

/// The answer to [`Enlist`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enlisted {
    /// Which life this is.
    pub generation: u64,
    /// The masters' ids, in the order of the shards.
    pub masters: Vec<MasterId>,
    /// A number drawn at random, the same in all lives of this server, which only it is told: the ids
    /// of its logs follow from it, so that it can take back what it wrote in a former life. 0 for none.
    #[serde(default)]
    pub log_seed: u64,
    /// Who there is.
    pub servers: ServerList,
}

/// Bytes of tables in one [`Map`], about: the coordinator ends a page behind the table that exceeds it. A
/// table has at most as many tablets as fit into one value of the metastore, so every page, with
/// the table that exceeds it, is shorter than 1 MiB.
pub const MAP_PAGE_BYTES: usize = 256 << 10;

/// Tables that one [`MapRequest`] names at most. The coordinator passes over the others.
pub const MAP_TABLES_MAX: usize = 1024;

/// `map`: where are the tablets?
///
/// There are three kinds of requests:
///
/// - *One table*, by its `table` name.
/// - *A page*: the tables from the id `from` on. The answer says where the next page begins.
///   The empty request asks for the first page.
/// - *News*: `is_news`. The answer has everything that has changed since the version `since`, if that fits
///   into one page. Otherwise it has only the tables that `tables` names. So a client of a small
///   cluster keeps the whole map by one short message for each change, and a client of a large cluster hears only of
///   the tables that it uses.
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
    /// exist, but for those of further pages.
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
    /// What people call it.
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
    /// The last one.
    pub last: KeyHash,
    /// The master that has it.
    pub master: MasterId,
    /// Where that is; nowhere while the tablet is being recovered.
    pub address: Option<SocketAddr>,
}

/// `create table`. The answer is a [`TableInfo`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTable {
    /// Its name.
    pub name: String,
    /// Over how many shards it is spread.
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
    /// The first hash of the second one.
    pub at: KeyHash,
}

/// `migrate tablet`. Answered when it has moved; the answer is the [`TableInfo`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrateTablet {
    /// The table's name.
    pub table: String,
    /// The tablet's first hash.
    pub first: KeyHash,
    /// To which master.
    pub to: MasterId,
}

/// The answer to `open lease`, whose body is [`Empty`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseOpened {
    /// The lease, never 0 and never used again.
    pub lease: u64,
    /// It lasts so long after the coordinator last heard of the client, in milliseconds.
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

/// `check leases`: which of these are over?
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckLeases {
    /// Leases.
    pub leases: Vec<u64>,
}

/// The answer to [`CheckLeases`]. What is said here is durable: a lease that is over stays so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasesChecked {
    /// Those that are over, or never were.
    pub ended: Vec<u64>,
    /// The version of the map when the others were open.
    pub map_version: u64,
}

/// `raise epoch`: the open head of a master lost a replica; only replicas of this epoch count from
/// now on. Answered once that is durable. The answer is [`Empty`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseEpoch {
    /// The master.
    pub master: MasterId,
    /// The segment.
    pub segment: SegmentId,
    /// Its epoch.
    pub epoch: Epoch,
}

/// `change settings`: what may change while the cluster runs. The answer is the cluster's [`Settings`]; it
/// comes once they are written. Masters learn them with the next list of servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSettings {
    /// [`Settings::min_replicas`], if that is to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<u32>,
}

/// A tablet that a master took over at a point of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The tablet.
    pub range: TabletRange,
    /// What was born before this segment of that log is of a former life of the tablet.
    pub since: SegmentId,
}

/// `take tablets` (new ones, empty) and `drop tablets`. Those that are there (or not there) already
/// are passed over. The answer is [`Empty`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tablets {
    /// The master that is meant: an address may be another's by now.
    pub master: MasterId,
    /// Which.
    pub tablets: Vec<TabletRange>,
}

/// `take tablets` and `drop tablets` at the end of a migration. To take: the new master serves from now
/// on what it has got; it never makes an empty tablet for it. To drop: the new master throws away what
/// it has got of it so far, if it does not serve it yet; the former one drops what it has given. Each
/// does that only for this migration, however late the message is, and passes it over where it was done
/// already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigratedTablets {
    /// Which migration.
    pub migration: u64,
    /// The master that is meant.
    pub master: MasterId,
    /// The tablet, as the only one.
    pub tablets: Vec<TabletRange>,
    /// From when on it is the new master's. The default keeps a message without it from being taken for
    /// [`Tablets`], which makes empty tablets.
    #[serde(default)]
    pub since: OwnedSince,
}

/// `migrate out`: give a tablet to another master. It is asked again until the answer is a
/// [`MigratedOut`]; until then the answer is that it is in progress. Asked again after that, it is
/// answered the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrateOut {
    /// Which migration: a number that is never used again.
    pub migration: u64,
    /// The master that has the tablet.
    pub master: MasterId,
    /// The tablet, or what part of it.
    pub range: TabletRange,
    /// Who gets it.
    pub to: MasterId,
    /// Where that is.
    pub address: SocketAddr,
    /// It will not come to anything: the tablet stays, and is served.
    #[serde(default)]
    pub give_up: bool,
}

/// The answer to [`MigrateOut`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigratedOut {
    /// The tablet is durable at the new master, since when, and the one that answers serves it no
    /// more until it is told to give up; or why not, for people: then it serves it as before.
    pub outcome: Result<Taken, String>,
}

/// How `migrate in` begins: see `thunderhead_wire::migration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationBegin {
    /// The tablet that comes.
    pub range: TabletRange,
}

/// `head of`: what does an open replica say of its log? The answer is a [`Head`]; a replica that is
/// not there, or is damaged other than at its end, is refused. The backup takes nothing more from
/// that master before it answers, as where it is asked for its inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadOf {
    /// Whose replica.
    pub master: MasterId,
    /// Of which segment.
    pub segment: SegmentId,
}

/// The answer to `head of`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The segments of the log, by the last digest in it; nothing where it has none.
    pub digest: Option<Vec<SegmentId>>,
    /// What the tablets of the log held when the segment was begun, as far as there was room.
    #[serde(default)]
    pub statistics: Vec<TabletStatus>,
    /// How the end is damaged, where it is: then another replica is better.
    #[serde(default)]
    pub torn: Option<String>,
}

/// `begin recovery`: a master is gone, and its tablets are about to be rebuilt in parts. The backup
/// reads the replicas that are named, in this order, and cuts them by partitions; any other replica
/// of that master it reads and cuts when it is asked for. What a later recovery of the same master
/// begins takes the place of an earlier one; the same again changes nothing. It takes nothing more from
/// that master before it answers, and in another life it knows nothing of the recovery until it is told
/// again. The answer is [`Empty`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginRecovery {
    /// Which recovery: a number that only grows and is never used again.
    pub recovery: u64,
    /// The master that is gone.
    pub crashed: MasterId,
    /// What belongs to each partition. What belongs to none is of no use to anybody.
    pub partitions: Vec<Vec<Taken>>,
    /// Segments to read unasked.
    pub segments: Vec<SegmentId>,
    /// Replicas are not cut: there is one partition, to which all of every replica belongs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub whole: bool,
    /// Whose closed replicas are this master's, too: see [`ServerInfo::lineages`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<MasterId>,
}

fn is_false(it: &bool) -> bool {
    !it
}

fn is_zero(it: &u64) -> bool {
    *it == 0
}

/// Where a segment's replicas are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    /// The segment.
    pub segment: SegmentId,
    /// Where it is to be had; who reads it unasked comes first.
    pub at: Vec<(ServerId, SocketAddr)>,
    /// These copies are closed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub closed: bool,
    /// The highest epoch that one of them has.
    #[serde(default, skip_serializing_if = "is_none")]
    pub epoch: Epoch,
}

fn is_none(epoch: &Epoch) -> bool {
    *epoch == Epoch::default()
}

/// `recover`: rebuild tablets from the replicas of a log. Answered with [`Empty`] once it has begun;
/// sent again, it changes nothing. When all is durable here, the shard says [`Recovered`], and
/// serves the tablets once that is answered. Several shards may do so for one master, each with a
/// partition of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recover {
    /// The master that is to do it.
    pub master: MasterId,
    /// The master that is gone.
    pub crashed: MasterId,
    /// Which recovery.
    #[serde(default)]
    pub recovery: u64,
    /// Which of its partitions, from 0.
    #[serde(default)]
    pub partition: u32,
    /// What to rebuild: what belongs to the partition.
    pub tablets: Vec<Taken>,
    /// How much of it there is, as far as the log's statistics say.
    #[serde(default)]
    pub expected: Vec<TabletStatus>,
    /// All segments of the log, in the order in which backups read them. The log was found to be
    /// complete.
    #[serde(default)]
    pub segments: Vec<Replicas>,
    /// The log is that of the shard's own former life, and is taken back: its closed segments become
    /// part of the shard's own log as they are, with their replicas. The one partition has all tablets.
    #[serde(default, skip_serializing_if = "is_false")]
    pub take_back: bool,
}

/// `recovered`: tablets are rebuilt and durable. The answer, [`Owned`], comes once it is written down
/// that they are the new master's. Where none of them is, the answer is *bad range*.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The master that is gone.
    pub crashed: MasterId,
    /// Which recovery.
    #[serde(default)]
    pub recovery: u64,
    /// Which partition.
    #[serde(default)]
    pub partition: u32,
    /// The one that did it.
    pub by: MasterId,
    /// What it has now, and since when; or why it could not, for people.
    pub outcome: Result<Vec<Taken>, String>,
    /// Though it failed, its log names segments of the former one, whose replicas must stay.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keeps: bool,
}

/// The moment from which a shard owns tablets, in numbers of the coordinator that only grow. A shard
/// tells by it which updates are older than its ownership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedSince {
    /// The version of the map, which names the shard as the owner. All maps before the shard became the
    /// owner have lower versions.
    pub map_version: u64,
    /// No lease from this one on was opened before the shard became the owner.
    pub next_lease: u64,
}

/// The answer to `recovered`: what was rebuilt is the shard's from now on, but for some.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owned {
    /// From when on.
    pub since: OwnedSince,
    /// These it throws away before it serves the others: their tables were dropped, or they are
    /// somebody else's. Where a tablet is its own only in part, the other parts.
    #[serde(default)]
    pub not_yours: Vec<TabletRange>,
}

/// `inventory`: which replicas of a master are there? Where it is `deposed`, the backup takes nothing
/// more from it before it answers: the list of servers, which says so too, may come later than this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryOf {
    /// Whose replicas.
    pub master: MasterId,
    /// The cluster has given it up, and its replicas are about to be read.
    #[serde(default)]
    pub deposed: bool,
    /// Whose closed replicas are this master's, too: see [`ServerInfo::lineages`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<MasterId>,
}

/// `free master`; and `confirm master`, which a leading coordinator answers with [`Empty`] while it has not
/// declared the master crashed, and refuses as *deposed* from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfMaster {
    /// Whose replicas.
    pub master: MasterId,
}

/// `free rest`: nobody needs the replicas of a master whose log was taken back, but for the closed ones
/// of these segments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeRest {
    /// Whose replicas.
    pub master: MasterId,
    /// What is still needed, among others'.
    pub keep: Vec<SegmentId>,
}

/// The answer to [`FreeRest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestLeft {
    /// How many replicas of the master are left.
    pub replicas: u64,
}

/// `masters here`: which masters does a backup have replicas of?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MastersAfter {
    /// Only those with higher numbers.
    pub after: MasterId,
}

/// The answer to [`MastersAfter`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MastersHere {
    /// In the order of their numbers.
    pub masters: Vec<MasterId>,
    /// Whether there may be more behind the last of them.
    pub more: bool,
}

/// `forget server`: a server that is down does not come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetServer {
    /// Which.
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
    /// Of which segment.
    pub segment: SegmentId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its bytes.
    pub length: u32,
    /// It is whole.
    pub closed: bool,
}

/// The answer to `cluster status`, whose body is [`Empty`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The cluster.
    pub cluster: ClusterId,
    /// What holds in it.
    pub settings: Settings,
    /// Who there is.
    pub servers: ServerList,
    /// Where the tablets are.
    pub map: Map,
    /// Clients whose leases last.
    pub leases: u64,
    /// What is being recovered.
    pub recoveries: Vec<RecoveryInfo>,
    /// What an operator should know, in sentences.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// A recovery that is not over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryInfo {
    /// The master that is gone.
    pub crashed: MasterId,
    /// One of those that rebuild its tablets; nobody while there is no one.
    pub by: Option<MasterId>,
    /// Why the last attempt failed, or what it waits for.
    pub trouble: Option<String>,
    /// Where it is: `waiting`, `surveying` or `rebuilding`.
    pub stage: String,
    /// The partitions that its tablets were divided into last.
    pub partitions: u32,
    /// Those of them that are not rebuilt yet.
    pub partitions_left: u32,
    /// Who rebuilds these. How far each is, its shard's status says.
    pub masters: Vec<MasterId>,
    /// Bytes of the log.
    pub bytes: u64,
    /// Since when a leader has been trying, in milliseconds.
    pub for_ms: u64,
}

/// `shard status`. The answer is a [`ShardStatus`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardStatusOf {
    /// The answer lists neither tablets nor inherited segments.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_brief: bool,
}

/// Tablets that a [`ShardStatus`] lists at most: it stays below 1 MiB.
pub const STATUS_TABLETS_MAX: usize = 4096;

/// The answer to `shard status`, whose body is a [`ShardStatusOf`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShardStatus {
    /// The master.
    pub master: MasterId,
    /// Bytes of memory that the log may use.
    pub memory_bytes: u64,
    /// Of these, in use.
    pub used_bytes: u64,
    /// Of these, what is live.
    pub live_bytes: u64,
    /// Bytes of live entries that still find room, beside what recoveries are about to bring. With 0 the shard
    /// refuses new tablets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room_bytes: Option<u64>,
    /// Objects in all tablets.
    pub objects: u64,
    /// Its tablets, or the first of them.
    pub tablets: Vec<TabletStatus>,
    /// How many tablets are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub tablets_left: u64,
    /// Objects that were asked for since it began.
    pub reads: u64,
    /// Updates since it began.
    pub updates: u64,
    /// Outcomes of updates that it remembers.
    pub records: u64,
    /// Segments that lack replicas.
    pub segments_short: u64,
    /// The same, with what a loss would cost; nothing where no segment lacks replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_risk: Option<AtRisk>,
    /// Segments of former logs that its own still has, if it has taken one back and is done with that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Vec<SegmentId>>,
    /// What is being recovered here: bytes done, and of how many as far as that is known.
    pub recovering: Option<(u64, u64)>,
    /// What an operator should know, in sentences.
    pub remarks: Vec<String>,
}

/// Segments of a log that have fewer replicas than the cluster wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AtRisk {
    /// How many.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many replicas the worst of them has.
    pub replicas: u32,
    /// For how long there have been such segments, in milliseconds.
    pub for_ms: u64,
    /// Writes wait: the head has fewer than `min_replicas`.
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
    /// Replicas it can hold.
    pub frames: u64,
    /// Of these, free.
    pub frames_free: u64,
    /// Of these, damaged.
    pub frames_damaged: u64,
    /// How fast it reads; 0 if that is not known.
    pub read_bytes_per_second: u64,
    /// When it acknowledges.
    pub durability: String,
    /// Bytes of replicas that it read for recoveries since it began.
    pub recovery_bytes_read: u64,
    /// Bytes of what it cut for recoveries, and keeps until it is fetched.
    pub recovery_bytes_held: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_passed_over_and_what_is_missing_has_a_default() {
        let known: CreateTable = of_body(br#"{"name":"t","colour":"red"}"#).unwrap();
        assert_eq!(known, CreateTable { name: "t".into(), server_span: 1 });
        assert_eq!(of_body::<CreateTable>(b"{}"), None);
        assert_eq!(of_body::<CreateTable>(b"\xff"), None);
        assert_eq!(of_body::<ShardStatus>(b"{}"), Some(ShardStatus::default()));
    }

    #[test]
    fn settings_that_differ_are_named_and_no_others() {
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
    fn numbers_are_numbers_and_addresses_are_words() {
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
