//! Tables that lie beside each other: a *group*. All of them are on one shard, always.
//!
//! A group is a table and all tables that were created beside it. A shard can then change objects
//! of several of them in one step of its log, and no crash separates them:
//!
//! - A table of a group has one tablet, which is never split and never migrates.
//! - A recovery rebuilds all tables of a group in one partition, which has nothing else.
//! - The coordinator cannot write the owners of several tables in one step of the metastore. So a
//!   crash can leave some tables with the new master, and others with the crashed one. The group's
//!   [`Home`] decides then: if tables have a living master, the remaining tables follow them.

use super::Cluster;
use crate::stored::TableRecord;
use std::collections::BTreeSet;
use thunderhead_wire::control::Taken;
use thunderhead_wire::{MasterId, TableId};

/// The most tables of a group, so that they are one partition of a recovery.
pub(crate) const GROUP_TABLES_MAX: usize = 256;

/// The master to which the tables of a group belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// Any master can get them.
    Anywhere,
    /// Only this one, because it has tables of the group.
    At(MasterId),
    /// Not known yet: the first table of the group must get its master before.
    Later,
}

impl Cluster {
    /// Returns the group of a table: the id of the table beside which all others of it lie.
    pub(crate) fn group_of(&self, table: TableId) -> Option<TableId> {
        let beside = self.tables.get(&table).and_then(|record| record.beside);
        beside.or_else(|| self.groups.contains_key(&table).then_some(table))
    }

    /// Returns the tables of a group that are not dropped, in the order of their ids.
    pub(crate) fn tables_of_group(&self, group: TableId) -> impl Iterator<Item = &TableRecord> {
        let others = self.groups.get(&group).into_iter().flatten().copied();
        let all = std::iter::once(group).chain(others);
        all.filter_map(|id| self.tables.get(&id)).filter(|table| !table.dropped)
    }

    /// Returns the home of a group's tables.
    pub(crate) fn home(&self, group: TableId) -> Home {
        let tablets = self.tables_of_group(group).flat_map(|table| &table.tablets);
        let mut has_taken = false;
        for tablet in tablets.filter(|tablet| tablet.taken) {
            if self.place(tablet.master).is_some() {
                return Home::At(tablet.master);
            }
            has_taken = true;
        }
        if has_taken { Home::Later } else { Home::Anywhere }
    }

    /// Returns the home of a group for the recovery of a crashed master. The recovery of the master
    /// that had the first table decides; others wait for it.
    pub(crate) fn home_for(&self, group: TableId, crashed: MasterId) -> Home {
        let mut tablets = self.tables_of_group(group).flat_map(|table| &table.tablets);
        match self.home(group) {
            Home::Later if tablets.find(|it| it.taken).is_some_and(|it| it.master == crashed) => {
                Home::Anywhere
            }
            home => home,
        }
    }

    /// Whether a new table can lie beside a table: returns the master of that table.
    pub(crate) fn beside(&self, table: &TableRecord) -> Option<MasterId> {
        match table.tablets.as_slice() {
            [only] if only.migrating.is_none() && table.beside.is_none() => Some(only.master),
            _ => None,
        }
    }

    /// Notes the group of a table whose record is put.
    pub(super) fn note_group(&mut self, record: &TableRecord) {
        let Some(group) = record.beside else { return };
        if record.dropped {
            self.forget_in_group(group, record.id);
        } else {
            self.groups.entry(group).or_default().insert(record.id);
        }
    }

    fn forget_in_group(&mut self, group: TableId, table: TableId) {
        if let Some(tables) = self.groups.get_mut(&group) {
            tables.remove(&table);
            if tables.is_empty() {
                self.groups.remove(&group);
            }
        }
    }
}

/// Tablets that a recovery divides: those of groups, and all others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ByGroup {
    /// The tablets of each group that can be rebuilt now, and the master that must do it.
    pub(crate) groups: Vec<(Vec<Taken>, Option<MasterId>)>,
    pub(crate) others: Vec<Taken>,
    /// Tables of groups whose home is not known yet.
    pub(crate) later: BTreeSet<TableId>,
}

impl Cluster {
    /// Sorts the tablets of a crashed master by their groups.
    pub(crate) fn by_group(&self, crashed: MasterId, tablets: &[Taken]) -> ByGroup {
        let mut sorted = ByGroup::default();
        let mut groups: Vec<(TableId, Vec<Taken>)> = Vec::new();
        for taken in tablets {
            match self.group_of(taken.range.table) {
                None => sorted.others.push(*taken),
                Some(group) => match groups.iter_mut().find(|(known, _)| *known == group) {
                    Some((_, tablets)) => tablets.push(*taken),
                    None => groups.push((group, vec![*taken])),
                },
            }
        }
        for (group, tablets) in groups {
            match self.home_for(group, crashed) {
                Home::Anywhere => sorted.groups.push((tablets, None)),
                Home::At(master) => sorted.groups.push((tablets, Some(master))),
                Home::Later => sorted.later.extend(tablets.iter().map(|it| it.range.table)),
            }
        }
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{cluster, server, table};
    use super::*;

    /// Puts a table beside table 1.
    fn put(cluster: &mut Cluster, id: u64, master: u64, taken: bool) {
        let mut record = table(id, &[master], cluster);
        record.beside = (id != 1).then_some(TableId(1));
        record.tablets.iter_mut().for_each(|it| it.taken = taken);
        cluster.put_table(record);
    }

    fn group() -> Cluster {
        let mut cluster = cluster();
        for id in 1..=3 {
            cluster.put_server(server(id, &[id]));
        }
        for id in 1..=3 {
            put(&mut cluster, id, 1, true);
        }
        cluster.put_table(table(9, &[2], &cluster));
        cluster
    }

    fn crash(cluster: &mut Cluster, id: u64) {
        cluster.put_server(super::super::gone(&server(id, &[id])));
    }

    #[test]
    fn a_group_is_a_table_and_the_tables_beside_it() {
        let mut cluster = group();
        for id in 1..=3 {
            assert_eq!(cluster.group_of(TableId(id)), Some(TableId(1)));
        }
        assert_eq!(cluster.group_of(TableId(9)), None);
        let ids = |cluster: &Cluster| -> Vec<u64> {
            cluster.tables_of_group(TableId(1)).map(|it| it.id.0).collect()
        };
        assert_eq!(ids(&cluster), [1, 2, 3]);
        let dropped = |cluster: &Cluster, id| {
            let record = cluster.table(TableId(id)).cloned().expect("a table");
            TableRecord { dropped: true, ..record }
        };
        cluster.put_table(dropped(&cluster, 2));
        assert_eq!(ids(&cluster), [1, 3]);
        // The others stay together without the first one.
        cluster.put_table(dropped(&cluster, 1));
        assert_eq!(cluster.group_of(TableId(3)), Some(TableId(1)));
        cluster.put_table(dropped(&cluster, 3));
        assert_eq!(ids(&cluster), [0; 0]);
        assert_eq!(cluster.group_of(TableId(1)), None);
    }

    #[test]
    fn the_recovery_of_the_first_table_decides_and_the_others_follow() {
        let mut cluster = group();
        assert_eq!(cluster.home(TableId(1)), Home::At(MasterId(1)));
        crash(&mut cluster, 1);
        assert_eq!(cluster.home_for(TableId(1), MasterId(1)), Home::Anywhere);
        // Its owners were written in part: table 2 is at master 2 already.
        put(&mut cluster, 2, 2, true);
        assert_eq!(cluster.home_for(TableId(1), MasterId(1)), Home::At(MasterId(2)));
        // Master 2 crashes too. It does not have the first table, so its recovery waits.
        crash(&mut cluster, 2);
        assert_eq!(cluster.home_for(TableId(1), MasterId(1)), Home::Anywhere);
        assert_eq!(cluster.home_for(TableId(1), MasterId(2)), Home::Later);
        let sorted = cluster.by_group(MasterId(2), &cluster.to_recover(MasterId(2)));
        assert_eq!(sorted.later, BTreeSet::from([TableId(2)]));
        assert_eq!((sorted.groups.len(), sorted.others.len()), (0, 1));
        let sorted = cluster.by_group(MasterId(1), &cluster.to_recover(MasterId(1)));
        assert!(matches!(&sorted.groups[..], [(tablets, None)] if tablets.len() == 2));
        put(&mut cluster, 1, 3, true);
        for crashed in [1, 2] {
            assert_eq!(cluster.home_for(TableId(1), MasterId(crashed)), Home::At(MasterId(3)));
        }
        let sorted = cluster.by_group(MasterId(1), &cluster.to_recover(MasterId(1)));
        assert!(matches!(&sorted.groups[..], [(tablets, Some(MasterId(3)))] if tablets.len() == 1));
    }

    #[test]
    fn tables_that_no_master_has_taken_have_no_say() {
        let mut cluster = group();
        for id in 2..=3 {
            put(&mut cluster, id, 2, false);
        }
        assert_eq!(cluster.home(TableId(1)), Home::At(MasterId(1)));
        put(&mut cluster, 1, 1, false);
        assert_eq!(cluster.home(TableId(1)), Home::Anywhere);
    }

    #[test]
    fn no_table_lies_beside_a_table_that_is_spread_or_lies_beside_another_one() {
        let mut cluster = group();
        let beside =
            |cluster: &Cluster, id| cluster.beside(cluster.table(TableId(id)).expect("a table"));
        assert_eq!(beside(&cluster, 1), Some(MasterId(1)));
        assert_eq!(beside(&cluster, 2), None);
        cluster.put_table(table(10, &[1, 2], &cluster));
        assert_eq!(beside(&cluster, 10), None);
    }
}
