//! The options of the tables of which this shard owns tablets.
//!
//! The coordinator sends them with each message by which the shard begins to own a tablet, so the
//! shard knows them before the first update. They never change. Tables without options are not
//! here, and their updates pay nothing for those of others.

use std::collections::BTreeMap;
use thunderhead_log::{Attributes, Log, TableLimits};
use thunderhead_wire::TableId;
use thunderhead_wire::control::{OptionsOfTable, Policy, TableOptions};

/// The limits that the log keeps for a table with these options.
fn limits_of(options: &TableOptions) -> TableLimits {
    TableLimits {
        max_bytes: (options.max_bytes > 0).then_some(options.max_bytes),
        reserved_bytes: options.reserved_bytes,
        is_cache: options.policy == Policy::Cache,
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct OptionsOfTables {
    tables: BTreeMap<TableId, TableOptions>,
}

impl OptionsOfTables {
    /// The number of tables with options.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.tables.len()
    }

    /// Learns the options of tables of which tablets came. A door may have switched evictions off.
    pub(crate) fn learn(&mut self, options: &[OptionsOfTable], log: &mut Log) {
        for OptionsOfTable { table, options } in options {
            let is_new = self.tables.insert(*table, *options).is_none();
            if is_new {
                log.limit_table(*table, limits_of(options));
            }
        }
        if self.has_caches() {
            log.set_evicts(true);
        }
    }

    /// Forgets the options of tables that have no tablet here.
    pub(crate) fn forget_absent(&mut self, log: &mut Log) {
        let before = self.tables.len();
        self.tables.retain(|table, _| log.tablets().any(|(tablet, _)| tablet.table == *table));
        if self.tables.len() < before {
            log.retain_limits(|table| self.tables.contains_key(&table));
        }
    }

    /// The attributes of an object that is written to a table now, if the table has options.
    pub(crate) fn attributes(&self, table: TableId, log: &Log) -> Option<Attributes> {
        self.tables.get(&table).map(|options| options.attributes(log.time()))
    }

    /// Whether a table here is a cache.
    pub(crate) fn has_caches(&self) -> bool {
        self.tables.values().any(|options| options.policy == Policy::Cache)
    }
}
