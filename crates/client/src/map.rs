//! Which shard has which tablet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use thunderhead_wire::{KeyHash, TableId, TabletRange, control};

/// Which shard has which tablet, as somebody knew it once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TabletMap {
    /// Of maps that a coordinator tells of, the newest has the highest.
    version: u64,
    /// All tables there are, also those of which no tablet can be had at the moment.
    tables: BTreeSet<TableId>,
    /// By table and last hash: the first hash, and where.
    tablets: BTreeMap<(TableId, KeyHash), (KeyHash, SocketAddr)>,
}

impl TabletMap {
    /// What a coordinator says. Tablets that are being recovered are nowhere.
    #[must_use]
    pub fn of(map: &control::Map) -> TabletMap {
        let mut tablets = BTreeMap::new();
        for table in &map.tables {
            for tablet in &table.tablets {
                if let Some(address) = tablet.address {
                    tablets.insert((table.id, tablet.last), (tablet.first, address));
                }
            }
        }
        let tables = map.tables.iter().map(|table| table.id).collect();
        TabletMap { version: map.version, tables, tablets }
    }

    /// Which map this is; 0 for one that no coordinator told of.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Notes where a tablet is. One that overlaps others takes their place.
    pub fn insert(&mut self, range: TabletRange, address: SocketAddr) {
        let TabletRange { table, first, last } = range;
        self.tablets.retain(|(other, other_last), (other_first, _)| {
            let range = TabletRange { table: *other, first: *other_first, last: *other_last };
            !range.overlaps(&TabletRange { table, first, last })
        });
        self.tables.insert(table);
        self.tablets.insert((table, last), (first, address));
    }

    /// Where a key belongs.
    #[inline]
    #[must_use]
    pub fn find(&self, table: TableId, hash: KeyHash) -> Option<SocketAddr> {
        let ((found, _), (first, address)) = self.tablets.range((table, hash)..).next()?;
        (*found == table && *first <= hash).then_some(*address)
    }

    /// Whether there is such a table.
    #[must_use]
    pub fn has_table(&self, table: TableId) -> bool {
        self.tables.contains(&table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_where_its_tablet_is() {
        let [a, b]: [SocketAddr; 2] = ["10.0.0.1:1", "10.0.0.2:1"].map(|it| it.parse().unwrap());
        let range = |first, last| TabletRange {
            table: TableId(1),
            first: KeyHash(first),
            last: KeyHash(last),
        };
        let mut map = TabletMap::default();
        assert!(!map.has_table(TableId(1)));
        map.insert(range(0, 9), a);
        map.insert(range(20, u64::MAX), b);
        let find = |map: &TabletMap, hash| map.find(TableId(1), KeyHash(hash));
        assert_eq!(find(&map, 9), Some(a));
        assert_eq!(find(&map, 15), None, "nobody has it");
        assert_eq!(find(&map, u64::MAX), Some(b));
        assert_eq!(map.find(TableId(0), KeyHash(5)), None);
        assert_eq!(map.find(TableId(2), KeyHash(5)), None);
        assert!(map.has_table(TableId(1)) && !map.has_table(TableId(0)));
        map.insert(range(5, 30), b);
        assert_eq!(find(&map, 3), None, "the tablet that was there is no more");
        assert_eq!(find(&map, 5), Some(b));
    }

    #[test]
    fn a_table_that_is_being_recovered_is_there_and_nowhere() {
        let tablet = control::TabletInfo {
            first: KeyHash::MIN,
            last: KeyHash::MAX,
            master: thunderhead_wire::MasterId(1),
            address: None,
        };
        let (id, name) = (TableId(4), "t".to_owned());
        let table = control::TableInfo { id, name, tablets: vec![tablet] };
        let map = TabletMap::of(&control::Map { version: 3, tables: vec![table] });
        assert!(map.has_table(id) && map.version() == 3);
        assert_eq!(map.find(id, KeyHash(1)), None);
    }
}
