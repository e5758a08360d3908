//! Questions to coordinators and servers other than operations on objects, and their replies.

use crate::error::Error;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_rpc::Opcode;
use thunderhead_wire::TableId;
use thunderhead_wire::control::{
    self, BackupStatus, ChangeSettings, ClusterStatus, CreateTable, DropTable, Empty, ForgetServer,
    Map, MapRequest, MigrateTablet, SettingsChanged, ShardStatus, SplitTablet, TableInfo,
};

/// A question to the coordinator or a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Create a table; answered with [`Reply::Table`].
    ///
    /// The question is repeated if its answer is lost. A table of this name that exists then counts
    /// as the created one, although another client may have created it at the same time.
    CreateTable(CreateTable),
    /// Delete a table; answered with [`Reply::Done`].
    ///
    /// The session looks up the table's id first and sends it with the name, so a request that the
    /// network delays deletes no later table of that name. The request is never sent twice, because
    /// a coordinator of an earlier version ignores the id. If the answer is lost, the session
    /// fetches the map until the table is gone from it.
    DropTable(DropTable),
    /// Split a tablet into two; answered with [`Reply::Table`].
    SplitTablet(SplitTablet),
    /// Move a tablet; answered with [`Reply::Table`] when the move is complete.
    MigrateTablet(MigrateTablet),
    /// Forget a server that will not restart; answered with [`Reply::Done`].
    ForgetServer(ForgetServer),
    /// Change settings of a running cluster; answered with [`Reply::Settings`].
    ///
    /// Without a version, the session first fetches the version of the settings and sends it along,
    /// so a request that the network delays undoes no later change. If the settings were changed in
    /// between, the session does both again. A version of the user's own is sent as it is, and the
    /// reply is [`Status::Outdated`](thunderhead_wire::Status::Outdated) if it is not the present
    /// one.
    ChangeSettings(ChangeSettings),
    /// The map of one table or of all; answered with [`Reply::Map`].
    Map(Option<String>),
    /// The map of all tables if it fits into one page, otherwise none of it; answered with
    /// [`Reply::Map`]. The session keeps the answer.
    News,
    /// The status of the cluster; answered with [`Reply::Cluster`].
    ClusterStatus,
    /// The status of the shard at an address; answered with [`Reply::Shard`].
    ShardStatus(SocketAddr),
    /// The status of the backup at an address; answered with [`Reply::Backup`].
    BackupStatus(SocketAddr),
}

/// The reply to a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The change is done.
    Done,
    /// A table, with the location of each tablet.
    Table(TableInfo),
    /// Tables, with the location of each tablet.
    Map(Map),
    /// The settings of the cluster, and the programs that do not know a wanted format.
    Settings(SettingsChanged),
    /// The status of the cluster.
    Cluster(ClusterStatus),
    /// The status of a shard.
    Shard(ShardStatus),
    /// The status of a backup.
    Backup(BackupStatus),
}

/// How long to wait for an immediate answer.
const SHORT: Duration = Duration::from_secs(1);

/// How long to wait if the coordinator must first inform servers.
const LONG: Duration = Duration::from_secs(5);

impl Question {
    pub(crate) fn opcode(&self) -> Opcode {
        match self {
            Question::CreateTable(it) if it.options.is_default() => Opcode::CreateTable,
            Question::CreateTable(_) => Opcode::CreateTableWithOptions,
            Question::DropTable(_) => Opcode::DropTable,
            Question::SplitTablet(_) => Opcode::SplitTablet,
            Question::MigrateTablet(_) => Opcode::MigrateTablet,
            Question::ForgetServer(_) => Opcode::ForgetServer,
            Question::ChangeSettings(_) => Opcode::ChangeSettings,
            Question::Map(_) | Question::News => Opcode::Map,
            Question::ClusterStatus => Opcode::ClusterStatus,
            Question::ShardStatus(_) => Opcode::ShardStatus,
            Question::BackupStatus(_) => Opcode::BackupStatus,
        }
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        match self {
            Question::CreateTable(it) => control::to_body(it),
            Question::DropTable(it) => control::to_body(it),
            Question::SplitTablet(it) => control::to_body(it),
            Question::MigrateTablet(it) => control::to_body(it),
            Question::Map(table) => {
                control::to_body(&MapRequest { table: table.clone(), ..MapRequest::default() })
            }
            Question::News => {
                control::to_body(&MapRequest { is_news: true, ..MapRequest::default() })
            }
            Question::ForgetServer(it) => control::to_body(it),
            Question::ChangeSettings(it) => control::to_body(it),
            Question::ClusterStatus | Question::ShardStatus(_) | Question::BackupStatus(_) => {
                control::to_body(&Empty {})
            }
        }
    }

    /// Returns the server to ask; `None`: the leading coordinator.
    pub(crate) fn server(&self) -> Option<SocketAddr> {
        match self {
            Question::ShardStatus(address) | Question::BackupStatus(address) => Some(*address),
            _ => None,
        }
    }

    /// Returns the table that it names.
    pub(crate) fn table(&self) -> Option<&str> {
        match self {
            Question::CreateTable(it) => Some(&it.name),
            Question::DropTable(it) => Some(&it.name),
            Question::SplitTablet(it) => Some(&it.table),
            Question::MigrateTablet(it) => Some(&it.table),
            Question::Map(table) => table.as_deref(),
            _ => None,
        }
    }

    /// Whether it changes something.
    pub(crate) fn is_change(&self) -> bool {
        use Question::{
            ChangeSettings, CreateTable, DropTable, ForgetServer, MigrateTablet, SplitTablet,
        };
        matches!(
            self,
            CreateTable(_)
                | DropTable(_)
                | SplitTablet(_)
                | MigrateTablet(_)
                | ForgetServer(_)
                | ChangeSettings(_)
        )
    }

    pub(crate) fn patience(&self) -> Duration {
        if self.is_change() { LONG } else { SHORT }
    }

    pub(crate) fn understand(&self, body: &[u8]) -> Result<Reply, Error> {
        match self {
            Question::CreateTable(_) | Question::SplitTablet(_) | Question::MigrateTablet(_) => {
                control::of_body(body).map(Reply::Table)
            }
            Question::DropTable(_) | Question::ForgetServer(_) => Some(Reply::Done),
            Question::ChangeSettings(_) => control::of_body(body).map(Reply::Settings),
            Question::Map(_) | Question::News => control::of_body(body).map(Reply::Map),
            Question::ClusterStatus => control::of_body(body).map(Reply::Cluster),
            Question::ShardStatus(_) => control::of_body(body).map(Reply::Shard),
            Question::BackupStatus(_) => control::of_body(body).map(Reply::Backup),
        }
        .ok_or(Error::Incomprehensible)
    }
}

/// Returns the table with this name in a map.
pub(crate) fn table_of(map: Map, name: &str) -> Option<TableInfo> {
    map.tables.into_iter().find(|table| table.name == name)
}

/// Whether each tablet of a table has a master that serves it.
pub(crate) fn is_served(table: &TableInfo) -> bool {
    table.tablets.iter().all(|tablet| tablet.address.is_some())
}

/// Returns the id of the table with this name in a map.
pub(crate) fn id_of(map: &Map, name: &str) -> Option<TableId> {
    map.tables.iter().find(|table| table.name == name).map(|table| table.id)
}

/// Adds a page to the map of a reply. The page must begin with the table `from`.
pub(crate) fn join(reply: Option<Reply>, page: Map, from: TableId) -> Result<Reply, Error> {
    let mut reply = reply.ok_or(Error::Incomprehensible)?;
    let map = match &mut reply {
        Reply::Map(map) => map,
        Reply::Cluster(status) => &mut status.map,
        _ => return Err(Error::Incomprehensible),
    };
    let is_behind = |table: TableId| table >= from;
    if !page.tables.iter().all(|it| is_behind(it.id)) || page.more.is_some_and(|it| it <= from) {
        // Otherwise the pages could go on for ever.
        return Err(Error::Incomprehensible);
    }
    map.tables.extend(page.tables);
    map.more = page.more;
    Ok(reply)
}
