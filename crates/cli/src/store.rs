//! The commands' view of a cluster: one trait, so that tests need no cluster.

use crate::exit::Failure;
use std::net::SocketAddr;
use thunderhead_client::{Answer, Error, Number, Object, Operation};
use thunderhead_wire::control::{
    BackupStatus, ChangeSettings, ClusterStatus, Map, SettingsChanged, ShardStatus, TableInfo,
    TableOptions,
};
use thunderhead_wire::{Condition, KeyHash, MasterId, ServerId, TableId, Version};

/// Objects, one after the other.
pub(crate) type Objects<'a> = Box<dyn Iterator<Item = Result<Object, Error>> + 'a>;

/// A cluster as a command sees it. Temporary obstacles are not visible here: the client library
/// tries again until the deadline.
pub(crate) trait Store {
    fn create_table(
        &mut self,
        name: &str,
        span: u32,
        options: TableOptions,
    ) -> Result<TableInfo, Failure>;
    fn drop_table(&mut self, name: &str) -> Result<(), Failure>;
    fn tables(&mut self) -> Result<Map, Failure>;
    fn split(&mut self, table: &str, at: KeyHash) -> Result<TableInfo, Failure>;
    fn migrate(&mut self, table: &str, first: KeyHash, to: MasterId) -> Result<TableInfo, Failure>;
    fn forget_server(&mut self, server: ServerId) -> Result<(), Failure>;
    fn change_settings(&mut self, changes: ChangeSettings) -> Result<SettingsChanged, Failure>;
    fn status(&mut self) -> Result<ClusterStatus, Failure>;
    fn shard_status(&mut self, address: SocketAddr) -> Result<ShardStatus, Failure>;
    fn backup_status(&mut self, address: SocketAddr) -> Result<BackupStatus, Failure>;
    /// Returns the id of a table.
    fn table(&mut self, name: &str) -> Result<TableId, Failure>;
    fn read(&mut self, table: TableId, key: &[u8]) -> Result<Option<(Version, Vec<u8>)>, Error>;
    fn delete(
        &mut self,
        table: TableId,
        key: &[u8],
        condition: Condition,
    ) -> Result<Option<Version>, Error>;
    fn increment(
        &mut self,
        table: TableId,
        key: &[u8],
        by: Number,
    ) -> Result<(Version, Number), Error>;
    /// Does operations without an order among them. Returns one result for each.
    fn all(&mut self, operations: Vec<Operation>) -> Vec<Result<Answer, Error>>;
    fn scan(&mut self, table: TableId) -> Objects<'_>;
}
