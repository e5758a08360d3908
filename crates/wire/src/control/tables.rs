//! Tables and tablets: the map, changes of tables, ownership and migration.

use super::{OptionsOfTable, TableOptions, is_false, is_zero};
use crate::{KeyHash, LeaseId, MasterId, SegmentId, TableId, TabletRange};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

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
    /// The table beside which it lies, if it lies beside another one: on the same shard, always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<TableId>,
    /// Its options.
    #[serde(default, skip_serializing_if = "TableOptions::is_default")]
    pub options: TableOptions,
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

/// `create table` and `create table with options`. The answer is a [`TableInfo`]. Coordinators of
/// earlier releases skip the options of `create table`, so options go with the other opcode, which
/// they refuse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTable {
    /// Its name.
    pub name: String,
    /// The number of shards over which it is spread.
    #[serde(default = "one")]
    pub server_span: u32,
    /// The table beside which it is to lie: one tablet, always on the shard of that table. A
    /// coordinator of an earlier version ignores this, and its answer shows that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<TableId>,
    /// Its options.
    #[serde(default, skip_serializing_if = "TableOptions::is_default")]
    pub options: TableOptions,
}

impl CreateTable {
    /// Returns the message for a table that is spread over so many shards.
    #[must_use]
    pub fn spread(name: impl Into<String>, server_span: u32) -> CreateTable {
        CreateTable { name: name.into(), server_span, beside: None, options: TableOptions::DEFAULT }
    }

    /// Returns the message for a table that lies beside another one.
    #[must_use]
    pub fn beside(name: impl Into<String>, table: TableId) -> CreateTable {
        CreateTable {
            name: name.into(),
            server_span: 1,
            beside: Some(table),
            options: TableOptions::DEFAULT,
        }
    }
}

fn one() -> u32 {
    1
}

/// `drop table`. The answer is [`Empty`](super::Empty).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropTable {
    /// Its name.
    pub name: String,
    /// Its id, as the sender knows it. If the table of this name has another id, the coordinator
    /// refuses the message with [`NoSuchTable`](crate::Status::NoSuchTable), so a message that was
    /// delayed for long deletes no later table of the same name. Programs of earlier versions send
    /// none, and the name decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<TableId>,
}

impl DropTable {
    /// Returns the message for the table of this name, with any id.
    #[must_use]
    pub fn named(name: &str) -> DropTable {
        DropTable { name: name.to_owned(), id: None }
    }
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

/// A tablet that a master took over at a point of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The tablet.
    pub range: TabletRange,
    /// Entries born before this segment of that log belong to a former stay of the tablet.
    pub since: SegmentId,
}

/// `take tablets` (new, empty ones) and `drop tablets`. Tablets that the master already has (or
/// does not have) are skipped. The answer is [`Empty`](super::Empty).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tablets {
    /// The master for which the message is meant: its address may belong to another by now.
    pub master: MasterId,
    /// The tablets.
    pub tablets: Vec<TabletRange>,
    /// The version of the coordinator's map when it sent this message. The network may deliver a
    /// copy of `take tablets` after the tablets have moved on; the master recognizes it because it
    /// has dropped tablets at a later version. 0: from a program that does not send it.
    #[serde(default)]
    pub map_version: u64,
    /// The options of those of the tables that have any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<OptionsOfTable>,
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
    /// The options of the table, if it has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<OptionsOfTable>,
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

/// The moment from which a shard owns tablets, in numbers of the coordinator that only grow. By it
/// a shard tells which updates are older than its ownership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedSince {
    /// The version of the map that names the shard as the owner. All maps before the shard became
    /// the owner have lower versions.
    pub map_version: u64,
    /// No lease from this one on was opened before the shard became the owner.
    pub next_lease: LeaseId,
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
    /// The options of those of the tables that have any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<OptionsOfTable>,
}
