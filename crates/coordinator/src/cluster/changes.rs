//! The versions in which tablets changed, so that a client with a map gets only the changes.
//!
//! The leader counts changes from 0 at the begin of its leadership; the counts are not recorded. A
//! tablet without a count here has not changed under this leader. The leadership's first version
//! plus a count is a version of the map (`cluster.rs`). A client with a map of another leadership
//! gets the whole map.
//!
//! A tablet changes when its bounds, its master or its state change, and when its master gets or
//! loses a place. The tablets of a table are numbered in the order of their hashes.

use crate::stored::{TableRecord, TabletRecord};
use std::collections::{BTreeMap, BTreeSet};
use thunderhead_wire::{MasterId, TableId};

/// The changes of all tables.
#[derive(Default)]
pub(crate) struct Changes {
    tables: BTreeMap<TableId, Table>,
    /// The tables by their latest changes, so that news cost as much as has changed.
    order: BTreeSet<(u64, TableId)>,
    /// The last drop of a table.
    last_drop: u64,
}

/// The changes of one table.
#[derive(Default)]
struct Table {
    /// The latest change of any tablet, or of the table.
    latest: u64,
    /// The latest change of each tablet.
    tablets: Vec<u64>,
}

impl Changes {
    /// Notes that a table's record is replaced.
    pub(crate) fn table_put(&mut self, old: Option<&TableRecord>, new: &TableRecord, count: u64) {
        if new.dropped {
            self.last_drop = count;
        }
        let before = self.tables.get(&new.id);
        let olds = old.map_or(&[][..], |old| &old.tablets);
        let change_of = |tablet: &TabletRecord| {
            let number = olds.binary_search_by_key(&tablet.first, |it| it.first).ok()?;
            let is_same = olds.get(number).is_some_and(|old| looks_same(old, tablet));
            let known = before.and_then(|table| table.tablets.get(number)).copied();
            is_same.then_some(known.unwrap_or(0))
        };
        let tablets = new.tablets.iter().map(|tablet| change_of(tablet).unwrap_or(count));
        let tablets = tablets.collect();
        let former = self.tables.insert(new.id, Table { latest: count, tablets });
        self.order.remove(&(former.map_or(0, |table| table.latest), new.id));
        self.order.insert((count, new.id));
    }

    /// Notes that masters have got or lost places.
    pub(crate) fn masters_moved<'a>(
        &mut self,
        tables: impl Iterator<Item = &'a TableRecord>,
        masters: &BTreeSet<MasterId>,
        count: u64,
    ) {
        for record in tables {
            for (number, tablet) in record.tablets.iter().enumerate() {
                if masters.contains(&tablet.master) {
                    let table = self.tables.entry(record.id).or_default();
                    table.tablets.resize(record.tablets.len(), 0);
                    self.order.remove(&(table.latest, record.id));
                    self.order.insert((count, record.id));
                    table.latest = count;
                    if let Some(tablet) = table.tablets.get_mut(number) {
                        *tablet = count;
                    }
                }
            }
        }
    }

    /// Forgets a dropped table.
    pub(crate) fn table_removed(&mut self, table: TableId) {
        let former = self.tables.remove(&table);
        self.order.remove(&(former.map_or(0, |table| table.latest), table));
    }

    /// Returns the tables that have changed after a change, by their latest changes.
    pub(crate) fn tables_since(&self, change: u64) -> impl Iterator<Item = TableId> {
        let first = (change.saturating_add(1), TableId(0));
        self.order.range(first..).map(|(_, table)| *table)
    }

    /// Returns the latest change of one of its tablets.
    pub(crate) fn tablet(&self, table: TableId, number: usize) -> u64 {
        let tablets = self.tables.get(&table).map_or(&[][..], |table| &table.tablets);
        tablets.get(number).copied().unwrap_or(0)
    }

    /// Returns how many tablets of a table have changed since a count, or all if there is no count.
    pub(crate) fn count(&self, table: &TableRecord, since: Option<u64>) -> usize {
        let Some(since) = since else { return table.tablets.len() };
        let tablets = self.tables.get(&table.id).map_or(&[][..], |table| &table.tablets);
        tablets.iter().filter(|change| **change > since).count()
    }

    /// Returns the last drop of a table, or 0 if there was none.
    pub(crate) fn last_drop(&self) -> u64 {
        self.last_drop
    }
}

#[cfg(test)]
impl Changes {
    /// Whether each noted table has its place in the order, and no other table has one.
    pub(crate) fn is_ordered(&self) -> bool {
        let latest = self.tables.iter().map(|(id, table)| (table.latest, *id));
        self.order == latest.collect()
    }
}

/// Whether clients see the two records alike, as long as the master keeps its place.
fn looks_same(old: &TabletRecord, new: &TabletRecord) -> bool {
    let seen = |it: &TabletRecord| (it.first, it.last, it.master, it.taken);
    seen(old) == seen(new)
}
