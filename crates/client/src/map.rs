//! The client's tablet map: the shard of each tablet.
//!
//! A client of a small cluster knows the *whole* map. A client of a large one knows the tables that
//! it uses, each as of some version. Both request *news* and merge it into the map.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use thunderhead_wire::{KeyHash, TableId, TabletRange, control};

/// The shard of each tablet, as a coordinator last reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TabletMap {
    /// The version of the newest report. Coordinators give newer maps higher versions.
    version: u64,
    /// Whether `tables` has all tables, as of `version`: other tables do not exist.
    is_whole: bool,
    /// The known tables, also those without an available tablet. The value is the version as of
    /// which the table is known, if the map is not whole.
    tables: BTreeMap<TableId, u64>,
    /// The tablets: by table and last hash, the first hash and the shard's address.
    tablets: BTreeMap<(TableId, KeyHash), (KeyHash, SocketAddr)>,
}

impl TabletMap {
    /// Makes a map from a coordinator's answer. Tablets that are being recovered have no address.
    #[must_use]
    pub fn of(map: &control::Map) -> TabletMap {
        let mut this = TabletMap::default();
        this.merge(map);
        this
    }

    /// Returns the same map, marked as whole: tables that it lacks do not exist.
    pub(crate) fn whole(mut self) -> TabletMap {
        self.is_whole = true;
        self
    }

    /// Returns the version of the map; 0 if it does not come from a coordinator.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the version as of which the whole map is known; 0 if it is not whole.
    pub(crate) fn whole_version(&self) -> u64 {
        if self.is_whole { self.version } else { 0 }
    }

    /// Returns the version as of which a table is known; 0 if it is not known.
    pub(crate) fn table_version(&self, table: TableId) -> u64 {
        let known = self.tables.get(&table).copied().unwrap_or(0);
        if self.is_whole { self.version } else { known }
    }

    /// Merges a coordinator's answer: the whole map, or the changes since a version that is known
    /// here, or some tables. Older answers change nothing.
    pub(crate) fn merge(&mut self, news: &control::Map) {
        if news.version < self.version {
            return;
        }
        let is_all = !news.is_part && news.more.is_none();
        if is_all && news.since == 0 {
            *self = TabletMap { is_whole: true, ..TabletMap::default() };
        } else if self.is_whole && (!is_all || news.since > self.version) {
            // From now on each table has a version of its own.
            self.tables.values_mut().for_each(|version| *version = self.version);
            self.is_whole = false;
        }
        self.version = news.version;
        for table in &news.gone {
            self.remove(*table);
        }
        for table in &news.tables {
            if table.since == 0 {
                self.remove(table.id);
            } else if table.since > self.table_version(table.id) {
                // Earlier changes to this table are missing, so these cannot be applied.
                continue;
            }
            self.tables.insert(table.id, news.version);
            for tablet in &table.tablets {
                let range = TabletRange { table: table.id, first: tablet.first, last: tablet.last };
                self.clear(range);
                if let Some(address) = tablet.address {
                    self.tablets.insert((table.id, tablet.last), (tablet.first, address));
                }
            }
        }
    }

    /// Removes a table.
    fn remove(&mut self, table: TableId) {
        if self.tables.remove(&table).is_some() {
            self.clear(TabletRange::whole(table));
        }
    }

    /// Removes the tablets that overlap a range.
    fn clear(&mut self, range: TabletRange) {
        let TabletRange { table, first, last } = range;
        let from = self.tablets.range((table, first)..=(table, KeyHash::MAX));
        let overlap = from.take_while(|(_, (first, _))| *first <= last);
        let keys: Vec<_> = overlap.map(|(key, _)| *key).collect();
        for key in keys {
            self.tablets.remove(&key);
        }
    }

    /// Adds a tablet at an address. It replaces the tablets that it overlaps.
    pub fn insert(&mut self, range: TabletRange, address: SocketAddr) {
        self.clear(range);
        self.tables.entry(range.table).or_insert(0);
        self.tablets.insert((range.table, range.last), (range.first, address));
    }

    /// Returns the address of the shard that has a key.
    #[inline]
    #[must_use]
    pub fn find(&self, table: TableId, hash: KeyHash) -> Option<SocketAddr> {
        let ((found, _), (first, address)) = self.tablets.range((table, hash)..).next()?;
        (*found == table && *first <= hash).then_some(*address)
    }

    /// Whether the table is known.
    #[must_use]
    pub fn has_table(&self, table: TableId) -> bool {
        self.tables.contains_key(&table)
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
        assert_eq!(find(&map, 15), None, "no shard has it");
        assert_eq!(find(&map, u64::MAX), Some(b));
        assert_eq!(map.find(TableId(0), KeyHash(5)), None);
        assert_eq!(map.find(TableId(2), KeyHash(5)), None);
        assert!(map.has_table(TableId(1)) && !map.has_table(TableId(0)));
        map.insert(range(5, 30), b);
        assert_eq!(find(&map, 3), None, "the former tablet was replaced");
        assert_eq!(find(&map, 5), Some(b));
    }

    #[test]
    fn a_table_that_is_being_recovered_exists_without_an_address() {
        let tablet = control::TabletInfo {
            first: KeyHash::MIN,
            last: KeyHash::MAX,
            master: thunderhead_wire::MasterId(1),
            address: None,
        };
        let (id, name) = (TableId(4), "t".to_owned());
        let table = control::TableInfo {
            id,
            name,
            tablets: vec![tablet],
            since: 0,
            beside: None,
            options: Default::default(),
        };
        let tables = vec![table];
        let map = TabletMap::of(&control::Map { version: 3, tables, ..control::Map::default() });
        assert!(map.has_table(id) && map.version() == 3);
        assert_eq!(map.find(id, KeyHash(1)), None);
    }

    #[test]
    fn news_replace_older_knowledge_and_change_nothing_else() {
        let tablet = |first, last, port| control::TabletInfo {
            first: KeyHash(first),
            last: KeyHash(last),
            master: thunderhead_wire::MasterId(1),
            address: (port > 0).then(|| ([10, 0, 0, 1], port).into()),
        };
        let table = |id, since, tablets: &[control::TabletInfo]| control::TableInfo {
            id: TableId(id),
            name: id.to_string(),
            tablets: tablets.to_vec(),
            since,
            beside: None,
            options: Default::default(),
        };
        let news = |version, since, tables| control::Map {
            version,
            since,
            tables,
            ..control::Map::default()
        };
        let end = u64::MAX;
        let find = |map: &TabletMap, table, hash| {
            map.find(TableId(table), KeyHash(hash)).map(|address| address.port())
        };
        let both = vec![table(1, 0, &[tablet(0, end, 1)]), table(2, 0, &[tablet(0, end, 2)])];
        let mut map = TabletMap::of(&news(10, 0, both));
        assert_eq!(map.whole_version(), 10);
        // A table is split, and a half of it is being recovered.
        map.merge(&news(12, 10, vec![table(1, 10, &[tablet(0, 9, 1), tablet(10, end, 0)])]));
        assert_eq!(
            (find(&map, 1, 9), find(&map, 1, 10), find(&map, 2, 5)),
            (Some(1), None, Some(2))
        );
        assert!(map.whole_version() == 12 && map.table_version(TableId(2)) == 12);
        // Older news change nothing.
        map.merge(&news(11, 0, vec![]));
        assert_eq!(find(&map, 2, 5), Some(2));
        // The cluster has become large: the other tables keep their versions.
        let part = |version, tables| control::Map { is_part: true, ..news(version, 0, tables) };
        map.merge(&part(20, vec![table(1, 12, &[tablet(10, end, 3)])]));
        assert_eq!((find(&map, 1, 9), find(&map, 1, 10)), (Some(1), Some(3)));
        let versions = [1, 2, 3].map(|id| map.table_version(TableId(id)));
        assert_eq!((map.whole_version(), versions), (0, [20, 12, 0]));
        // Changes since a version that is not known here cannot be applied.
        map.merge(&part(30, vec![table(2, 15, &[tablet(0, 4, 7)])]));
        assert_eq!((find(&map, 2, 3), map.table_version(TableId(2))), (Some(2), 12));
        map.merge(&control::Map { gone: vec![TableId(1)], ..part(31, vec![]) });
        assert!(!map.has_table(TableId(1)) && find(&map, 1, 9).is_none());
        map.merge(&news(32, 0, vec![]));
        assert!(map.whole_version() == 32 && !map.has_table(TableId(2)));
    }
}
