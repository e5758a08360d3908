//! What can be asked of coordinators and servers beside operations on objects, and what is said.

use crate::error::Error;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_rpc::Opcode;
use thunderhead_wire::TableId;
use thunderhead_wire::control::{
    self, BackupStatus, ChangeSettings, ClusterStatus, CreateTable, DropTable, Empty, ForgetServer,
    Map, MapRequest, MigrateTablet, Settings, ShardStatus, SplitTablet, TableInfo,
};

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Make a table; answered with [`Reply::Table`].
    ///
    /// It is asked for again where an answer was lost. A table of this name that is there then
    /// counts as the one that was made: somebody else may have made it at the same time.
    CreateTable(CreateTable),
    /// Do away with a table; answered with [`Reply::Done`].
    ///
    /// Never asked for twice, for there may be another table of that name by then. Where the answer
    /// was lost, the map is looked at until the table is gone from it.
    DropTable(DropTable),
    /// Make two tablets of one; answered with [`Reply::Table`].
    SplitTablet(SplitTablet),
    /// Move a tablet; answered with [`Reply::Table`] when it has moved.
    MigrateTablet(MigrateTablet),
    /// Forget a server that does not come again; answered with [`Reply::Done`].
    ForgetServer(ForgetServer),
    /// Change what may change in a cluster that runs; answered with [`Reply::Settings`].
    ChangeSettings(ChangeSettings),
    /// Where the tablets are: of one table, or of all; answered with [`Reply::Map`].
    Map(Option<String>),
    /// How the cluster is; answered with [`Reply::Cluster`].
    ClusterStatus,
    /// How the shard at an address is; answered with [`Reply::Shard`].
    ShardStatus(SocketAddr),
    /// How the backup at an address is; answered with [`Reply::Backup`].
    BackupStatus(SocketAddr),
}

/// What was answered to a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Done,
    /// A table.
    Table(TableInfo),
    /// Tables.
    Map(Map),
    /// What holds in the cluster.
    Settings(Settings),
    /// How the cluster is.
    Cluster(ClusterStatus),
    /// How a shard is.
    Shard(ShardStatus),
    /// How a backup is.
    Backup(BackupStatus),
}

/// How long to wait for an answer that takes no time.
const SHORT: Duration = Duration::from_secs(1);

/// How long to wait where servers have to be told first.
const LONG: Duration = Duration::from_secs(5);

impl Question {
    pub(crate) fn opcode(&self) -> Opcode {
        match self {
            Question::CreateTable(_) => Opcode::CreateTable,
            Question::DropTable(_) => Opcode::DropTable,
            Question::SplitTablet(_) => Opcode::SplitTablet,
            Question::MigrateTablet(_) => Opcode::MigrateTablet,
            Question::ForgetServer(_) => Opcode::ForgetServer,
            Question::ChangeSettings(_) => Opcode::ChangeSettings,
            Question::Map(_) => Opcode::Map,
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
            Question::ForgetServer(it) => control::to_body(it),
            Question::ChangeSettings(it) => control::to_body(it),
            Question::ClusterStatus | Question::ShardStatus(_) | Question::BackupStatus(_) => {
                control::to_body(&Empty {})
            }
        }
    }

    /// Whom to ask, if it is not whoever leads.
    pub(crate) fn server(&self) -> Option<SocketAddr> {
        match self {
            Question::ShardStatus(address) | Question::BackupStatus(address) => Some(*address),
            _ => None,
        }
    }

    /// The table that it names.
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

    /// Whether something is changed by it.
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
            Question::Map(_) => control::of_body(body).map(Reply::Map),
            Question::ClusterStatus => control::of_body(body).map(Reply::Cluster),
            Question::ShardStatus(_) => control::of_body(body).map(Reply::Shard),
            Question::BackupStatus(_) => control::of_body(body).map(Reply::Backup),
        }
        .ok_or(Error::Incomprehensible)
    }
}

/// The table of a name in a map.
pub(crate) fn table_of(map: Map, name: &str) -> Option<TableInfo> {
    map.tables.into_iter().find(|table| table.name == name)
}

/// The id of a table of a name in a map.
pub(crate) fn id_of(map: &Map, name: &str) -> Option<TableId> {
    map.tables.iter().find(|table| table.name == name).map(|table| table.id)
}
