//! When which tablets changed, so that a client that has a map is told only what is new.
//!
//! Changes are counted by the leader, from 0 when its reign begins; nothing of it is written. A tablet
//! that is not noted here has not changed in this reign. Together with the reign's first version a count
//! is a version of the map (`cluster.rs`). A client that knows the map of another reign is told everything.
//!
//! A tablet changes when its bounds, its master or its state change, and when its master gets a place or
//! loses it. All tablets of a table have a number each, in the order of their hashes.

use crate::stored::{TableRecord, TabletRecord};
use std::collections::{BTreeMap, BTreeSet};
use thunderhead_wire::{MasterId, TableId};

/// When which tablets changed.
#[derive(Default)]
pub(crate) struct Changes {
    tables: BTreeMap<TableId, Table>,
    /// When a table was dropped last.
    last_drop: u64,
}

/// The changes of one table.
#[derive(Default)]
struct Table {
    /// The latest change of any tablet, or of the table.
    latest: u64,
    /// Of each tablet.
    tablets: Vec<u64>,
}

impl Changes {
    /// A record takes the place of another one.
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
        self.tables.insert(new.id, Table { latest: count, tablets });
    }

    /// Masters have got places, or lost them.
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
                    table.latest = count;
                    if let Some(tablet) = table.tablets.get_mut(number) {
                        *tablet = count;
                    }
                }
            }
        }
    }

    /// A table that was dropped is forgotten.
    pub(crate) fn table_removed(&mut self, table: TableId) {
        self.tables.remove(&table);
    }

    /// The latest change of a table.
    pub(crate) fn table(&self, table: TableId) -> u64 {
        self.tables.get(&table).map_or(0, |table| table.latest)
    }

    /// The latest change of one of its tablets.
    pub(crate) fn tablet(&self, table: TableId, number: usize) -> u64 {
        let tablets = self.tables.get(&table).map_or(&[][..], |table| &table.tablets);
        tablets.get(number).copied().unwrap_or(0)
    }

    /// How many tablets of a table have changed since; all where that is not known.
    pub(crate) fn count(&self, table: &TableRecord, since: Option<u64>) -> usize {
        let Some(since) = since else { return table.tablets.len() };
        let tablets = self.tables.get(&table.id).map_or(&[][..], |table| &table.tablets);
        tablets.iter().filter(|change| **change > since).count()
    }

    /// When a table was dropped last; 0 if none was.
    pub(crate) fn last_drop(&self) -> u64 {
        self.last_drop
    }
}

/// Whether a client sees no difference, as long as the master keeps its place.
fn looks_same(old: &TabletRecord, new: &TabletRecord) -> bool {
    let seen = |it: &TabletRecord| (it.first, it.last, it.master, it.taken);
    seen(old) == seen(new)
}
