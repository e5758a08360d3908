//! The tables of a scripted coordinator, and the parts of the map that clients ask for.

use super::CoordinatorState;
use std::collections::BTreeSet;
use thunderhead_wire::control::{
    self, CreateTable, DropTable, Map, MapRequest, MigrateTablet, SplitTablet, TableInfo,
    TabletInfo,
};
use thunderhead_wire::{KeyHash, Status, TableId};

impl CoordinatorState {
    /// Makes a table whose tablets are equal parts, one on each shard.
    #[must_use]
    pub fn table(&self, id: TableId, name: &str) -> TableInfo {
        let count = self.shards.len() as u128;
        let begin = |at: usize| ((at as u128) << 64) / count;
        let tablets = self.shards.iter().enumerate().map(|(at, (master, address))| {
            let (first, last) = (begin(at) as u64, (begin(at + 1) - 1) as u64);
            let (first, last) = (KeyHash(first), KeyHash(last));
            TabletInfo { first, last, master: *master, address: Some(*address) }
        });
        TableInfo {
            id,
            name: name.to_owned(),
            tablets: tablets.collect(),
            since: 0,
            beside: None,
            options: Default::default(),
        }
    }

    fn named(&mut self, name: &str) -> Result<&mut TableInfo, Status> {
        self.map.tables.iter_mut().find(|it| it.name == name).ok_or(Status::NoSuchTable)
    }

    /// Returns the part of a map that a client asks for.
    pub(super) fn part_of(&self, request: &MapRequest, map: &Map) -> Vec<u8> {
        let mut map = map.clone();
        if let Some(name) = &request.table {
            map.tables.retain(|table| table.name == *name);
        } else if request.is_news && map.tables.len() > self.page {
            let wanted: BTreeSet<TableId> =
                request.tables.iter().map(|(table, _)| *table).collect();
            map.tables.retain(|table| wanted.contains(&table.id));
            let is_there = |table: &TableId| map.tables.iter().any(|it| it.id == *table);
            map.gone = wanted.into_iter().filter(|table| !is_there(table)).collect();
            map.is_part = true;
        } else if !request.is_news {
            map.tables.retain(|table| request.from.is_none_or(|from| table.id >= from));
            map.more = map.tables.get(self.page).map(|table| table.id);
            map.tables.truncate(self.page);
        }
        control::to_body(&map)
    }

    pub(super) fn first_page(&self) -> Map {
        Map {
            more: self.map.tables.get(self.page).map(|table| table.id),
            tables: self.map.tables.iter().take(self.page).cloned().collect(),
            ..self.map.clone()
        }
    }

    pub(super) fn create_table(&mut self, it: &CreateTable) -> Result<Vec<u8>, Status> {
        if self.named(&it.name).is_ok() {
            return Err(Status::TableExists);
        }
        self.tables += 1;
        let table = self.table(TableId(self.tables), &it.name);
        self.map.tables.push(table.clone());
        self.map.version += 1;
        Ok(control::to_body(&table))
    }

    pub(super) fn drop_table(&mut self, it: &DropTable) -> Result<(), Status> {
        let found = self.named(&it.name)?.id;
        if it.id.is_some_and(|id| id != found) {
            return Err(Status::NoSuchTable);
        }
        self.map.tables.retain(|table| table.name != it.name);
        self.map.version += 1;
        Ok(())
    }

    pub(super) fn split_tablet(&mut self, it: &SplitTablet) -> Result<Vec<u8>, Status> {
        let tablets = &mut self.named(&it.table)?.tablets;
        let at = tablets.iter().position(|tablet| tablet.last >= it.at);
        let at = at.ok_or(Status::BadRange)?;
        if tablets[at].first == it.at {
            return Err(Status::BadRange);
        }
        let second = TabletInfo { first: it.at, ..tablets[at] };
        tablets[at].last = KeyHash(it.at.0 - 1);
        tablets.insert(at + 1, second);
        self.map.version += 1;
        Ok(control::to_body(self.named(&it.table)?))
    }

    pub(super) fn migrate_tablet(&mut self, it: &MigrateTablet) -> Result<Vec<u8>, Status> {
        let shard = self.shards.iter().find(|(master, _)| *master == it.to).copied();
        let (master, address) = shard.ok_or(Status::NoSuchServer)?;
        let tablets = &mut self.named(&it.table)?.tablets;
        let tablet = tablets.iter_mut().find(|tablet| tablet.first == it.first);
        let tablet = tablet.ok_or(Status::BadRange)?;
        (tablet.master, tablet.address) = (master, Some(address));
        self.map.version += 1;
        Ok(control::to_body(self.named(&it.table)?))
    }
}
