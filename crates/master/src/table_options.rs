//! The options of the tables of which this shard owns tablets.
//!
//! The coordinator sends them with each message by which the shard begins to own a tablet, so the
//! shard knows them before the first update. They never change. Tables without options are not
//! here, and their updates pay nothing for those of others.

use std::collections::BTreeMap;
use thunderhead_log::{Attributes, Log};
use thunderhead_wire::TableId;
use thunderhead_wire::control::{OptionsOfTable, Policy, TableOptions};

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
        self.tables.extend(options.iter().map(|it| (it.table, it.options)));
        if self.has_caches() {
            log.set_evicts(true);
        }
    }

    /// Forgets the options of tables that have no tablet here.
    pub(crate) fn forget_absent(&mut self, log: &Log) {
        self.tables.retain(|table, _| log.tablets().any(|(tablet, _)| tablet.table == *table));
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
