//! The leader's answers about the map: a table, a page, or the changes.

use super::Cluster;
use crate::limits::{NAME_BYTES_MAX, TABLETS_MAX};
use crate::stored::TableRecord;
use thunderhead_wire::TableId;
use thunderhead_wire::control::{
    MAP_PAGE_BYTES, MAP_TABLES_MAX, Map, MapRequest, TableInfo, TabletInfo,
};

impl Cluster {
    /// Returns a table's tablets with their places, for clients.
    pub(crate) fn table_info(&self, table: &TableRecord) -> TableInfo {
        self.table_news(table, 0)
    }

    /// Returns the tablets of a table that have changed since a version, for clients. Returns all
    /// if the version is of another leadership.
    fn table_news(&self, table: &TableRecord, since: u64) -> TableInfo {
        let told = self.changes_until(since);
        let is_new =
            |number: usize| told.is_none_or(|it| self.changes.tablet(table.id, number) > it);
        let tablets = table.tablets.iter().enumerate().filter(|(number, _)| is_new(*number));
        let tablets = tablets.map(|(_, tablet)| TabletInfo {
            first: tablet.first,
            last: tablet.last,
            master: tablet.master,
            address: self.place(tablet.master).filter(|_| tablet.taken).map(|place| place.address),
        });
        let (id, name) = (table.id, table.name.clone());
        let since = told.map_or(0, |_| since);
        TableInfo {
            id,
            name,
            tablets: tablets.collect(),
            since,
            beside: table.beside,
            options: table.options,
        }
    }

    /// Returns how many changes of this leadership a version of the map includes, or `None` for a
    /// version of another leadership.
    fn changes_until(&self, version: u64) -> Option<u64> {
        version.checked_sub(self.version_base).filter(|it| *it <= self.map_changes)
    }

    /// Returns the tables from one on that are not dropped.
    fn tables_from(&self, from: TableId) -> impl Iterator<Item = &TableRecord> {
        self.tables.range(from..).map(|(_, table)| table).filter(|table| !table.dropped)
    }

    /// The answer to a request for a map. See [`MapRequest`] for the kinds of requests.
    pub(crate) fn map(&self, request: &MapRequest) -> Option<Map> {
        let version = self.map_version();
        let answer = match &request.table {
            Some(name) => {
                let tables = vec![self.table_info(self.named(name)?)];
                Map { version, tables, is_part: true, ..Map::default() }
            }
            None if request.is_news => {
                self.news(request.since).unwrap_or_else(|| self.news_of(&request.tables))
            }
            None => {
                let all = self.tables_from(request.from.unwrap_or(TableId(0)));
                let (tables, more) = page(all.map(|table| (table.id, self.table_info(table))));
                Map { version, tables, more, ..Map::default() }
            }
        };
        Some(answer)
    }

    /// Returns the first page of the map.
    pub(crate) fn first_page(&self) -> Map {
        self.map(&MapRequest::default()).unwrap_or_default()
    }

    /// Returns all changes since a version, if they fit into one page. Returns the whole map if the
    /// version is of another leadership, or a table was dropped since then.
    fn news(&self, since: u64) -> Option<Map> {
        let told = self.changes_until(since).filter(|it| *it >= self.changes.last_drop());
        let since = told.map_or(0, |_| since);
        let mut tables = match told {
            Some(told) => {
                let changed = self.changes.tables_since(told).filter_map(|id| self.table(id));
                self.fitting(changed.filter(|table| !table.dropped), Some(told))?
            }
            None => self.fitting(self.tables_from(TableId(0)), None)?,
        };
        tables.sort_unstable_by_key(|table| table.id);
        let tables = tables.into_iter().map(|table| self.table_news(table, since)).collect();
        Some(Map { version: self.map_version(), tables, since, ..Map::default() })
    }

    /// Returns tables, if their changes after a change fit into one page. They are counted before
    /// they are listed, so that a large cluster does not make long lists in vain.
    fn fitting<'a>(
        &self,
        tables: impl Iterator<Item = &'a TableRecord>,
        told: Option<u64>,
    ) -> Option<Vec<&'a TableRecord>> {
        let (mut filled, mut fitting) = (0, Vec::new());
        for table in tables {
            filled += bytes(table.name.len(), self.changes.count(table, told));
            if filled > MAP_PAGE_BYTES {
                return None;
            }
            fitting.push(table);
        }
        Some(fitting)
    }

    /// Returns the changes of some tables, each since a version of its own. Tables that exceed the
    /// page are left out: the client asks for them again.
    fn news_of(&self, wanted: &[(TableId, u64)]) -> Map {
        let wanted = wanted.iter().take(MAP_TABLES_MAX);
        let is_there = |table: TableId| self.table(table).filter(|table| !table.dropped);
        let gone = wanted.clone().map(|(table, _)| *table).filter(|it| is_there(*it).is_none());
        let gone = gone.collect();
        let found = wanted.filter_map(|(table, since)| Some((is_there(*table)?, *since)));
        let news = found.map(|(table, since)| (table.id, self.table_news(table, since)));
        let (tables, _) = page(news);
        Map { version: self.map_version(), tables, is_part: true, gone, ..Map::default() }
    }
}

/// Bytes of a table in a map at most, without its name and its tablets.
const TABLE_BYTES: usize = 200;

/// Bytes of a tablet in a map at most: three numbers of 20 digits, and an address of IPv6 with a
/// scope.
const TABLET_BYTES: usize = 160;

// A page ends with the table that exceeds it.
const _: () = assert!(MAP_PAGE_BYTES + bytes(NAME_BYTES_MAX, TABLETS_MAX) < 1 << 20);

/// Bytes of a table in a map at most. Some characters of a name are escaped with a backslash.
const fn bytes(name: usize, tablets: usize) -> usize {
    TABLE_BYTES + 2 * name + TABLET_BYTES * tablets
}

/// Returns as many of some tables as fit into a page, at least one, and the first remaining table.
fn page(tables: impl Iterator<Item = (TableId, TableInfo)>) -> (Vec<TableInfo>, Option<TableId>) {
    let (mut filled, mut taken) = (0, Vec::new());
    for (id, table) in tables {
        if filled > MAP_PAGE_BYTES {
            return (taken, Some(id));
        }
        filled += bytes(table.name.len(), table.tablets.len());
        taken.push(table);
    }
    (taken, None)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{cluster, server, table};
    use super::super::{gone, split};
    use super::*;
    use crate::stored::TabletRecord;
    use std::collections::BTreeMap;
    use thunderhead_runtime::Random;
    use thunderhead_wire::control::to_body;
    use thunderhead_wire::{KeyHash, MasterId};

    fn news(since: u64, tables: &[(u64, u64)]) -> MapRequest {
        let tables = tables.iter().map(|(table, since)| (TableId(*table), *since)).collect();
        MapRequest { is_news: true, since, tables, ..MapRequest::default() }
    }

    fn ids(map: &Map) -> Vec<u64> {
        map.tables.iter().map(|table| table.id.0).collect()
    }

    /// Makes a table with the highest number of tablets, and with the longest numbers and
    /// addresses.
    fn longest(id: u64, cluster: &mut Cluster) {
        let mut long = server(9, &[u64::MAX]);
        let address = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535";
        long.shards[0].address = address.parse().expect("an address");
        cluster.put_server(long);
        let mut record = table(id, &[u64::MAX], cluster);
        record.name = "\"".repeat(NAME_BYTES_MAX);
        let step = u64::MAX / TABLETS_MAX as u64;
        let whole = record.tablets[0];
        let tablets = (0..TABLETS_MAX as u64).map(|number| TabletRecord {
            first: KeyHash(u64::MAX - (number + 1) * step + 1),
            last: KeyHash(u64::MAX - number * step),
            ..whole
        });
        record.tablets = tablets.collect();
        record.tablets.reverse();
        cluster.put_table(record);
    }

    #[test]
    fn a_map_of_any_size_comes_in_pages_below_1_mib() {
        let mut cluster = cluster();
        cluster.put_server(server(1, &[1]));
        for id in 1..4000 {
            let mut record = table(id, &[1], &cluster);
            record.name = format!("{id}{}", "\"".repeat(NAME_BYTES_MAX - 4));
            cluster.put_table(record);
        }
        longest(4000, &mut cluster);
        longest(4001, &mut cluster);
        let (mut seen, mut from, mut pages) = (Vec::new(), None, 0);
        loop {
            let request = MapRequest { from, ..MapRequest::default() };
            let page = cluster.map(&request).expect("no name was given");
            assert!(to_body(&page).len() < 1 << 20, "{} bytes", to_body(&page).len());
            seen.extend(ids(&page));
            pages += 1;
            from = page.more;
            if from.is_none() {
                break;
            }
        }
        assert_eq!(seen, (1..=4001).collect::<Vec<_>>());
        assert!(pages < 20, "{pages}");
        // News for a client that uses the longest tables.
        let part = cluster.map(&news(0, &[(4000, 0), (4001, 0), (9999, 0)])).expect("news");
        assert!(part.is_part && part.gone == [TableId(9999)]);
        assert_eq!(ids(&part), [4000], "the client asks again for the other one");
        assert!(to_body(&part).len() < 1 << 20);
    }

    #[test]
    fn a_client_of_a_large_cluster_gets_changes_of_its_own_tables_only() {
        let mut cluster = cluster();
        for id in 1..=40 {
            cluster.put_server(server(id, &[id]));
        }
        let masters: Vec<u64> = (1..=40).collect();
        for id in 1..=200 {
            cluster.put_table(table(id, &masters, &cluster));
        }
        let first = cluster.map(&news(0, &[(7, 0)])).expect("news");
        assert!(first.is_part && ids(&first) == [7] && first.tables[0].tablets.len() == 40);
        // All tables lose a tablet.
        cluster.put_server(gone(&server(3, &[3])));
        let moved = cluster.map(&news(0, &[(7, first.version)])).expect("news");
        assert_eq!(moved.tables[0].tablets.len(), 1);
        assert_eq!(moved.tables[0].since, first.version);
        let bytes = to_body(&moved).len();
        assert!(bytes < 300, "{bytes} bytes for one tablet that moved");
    }

    #[test]
    fn news_look_only_at_tables_that_have_changed() {
        let mut cluster = cluster();
        cluster.put_server(server(1, &[1]));
        for id in 1..=500 {
            cluster.put_table(table(id, &[1], &cluster));
        }
        let told =
            cluster.changes_until(cluster.map_version()).expect("a version of this leadership");
        let looked_at = |cluster: &Cluster| cluster.changes.tables_since(told).collect::<Vec<_>>();
        assert_eq!(looked_at(&cluster), []);
        for id in [400, 7, 400] {
            let record = cluster.table(TableId(id)).cloned().expect("a table");
            cluster.put_table(TableRecord { name: format!("renamed {id}"), ..record });
        }
        assert_eq!(looked_at(&cluster), [TableId(7), TableId(400)]);
        let since = cluster.version_base + told;
        assert_eq!(ids(&cluster.map(&news(since, &[])).expect("news")), [7, 400]);
    }

    /// A client that merges all changes has the same map as the cluster.
    #[test]
    fn merged_changes_equal_the_map() {
        for seed in 0..200 {
            let mut random = Random::from_seed(seed);
            let mut cluster = cluster();
            for id in 1..=4 {
                cluster.put_server(server(id, &[id]));
            }
            for id in 1..=3 {
                cluster.put_table(table(id, &[1, 2, 3], &cluster));
            }
            cluster = cluster.begun_here();
            let mut known: BTreeMap<u64, BTreeMap<u64, String>> = BTreeMap::new();
            let mut since = 0;
            let mut next = 4;
            for _ in 0..30 {
                for _ in 0..random.below(4) {
                    let pick = TableId(1 + random.below(next));
                    let record = cluster.table(pick).filter(|it| !it.dropped).cloned();
                    let server_id = 1 + random.below(4);
                    match (random.below(6), record) {
                        (0, _) if !cluster.by_load().is_empty() => {
                            cluster.put_table(table(next, &[1, 4], &cluster));
                            next += 1;
                        }
                        (1, Some(record)) if random.chance(0.3) => {
                            cluster.put_table(TableRecord { dropped: true, ..record });
                        }
                        (2, Some(record)) => {
                            let at = KeyHash(random.number().max(1));
                            split(&record, at).into_iter().for_each(|it| cluster.put_table(it));
                        }
                        (3, Some(mut record)) => {
                            let number = random.below(record.tablets.len() as u64) as usize;
                            record.tablets[number].master = MasterId(server_id);
                            cluster.put_table(record);
                        }
                        (4, _) => cluster.put_server(gone(&server(server_id, &[server_id]))),
                        _ => cluster.put_server(server(server_id, &[server_id])),
                    }
                }
                let map = cluster.map(&news(since, &[])).expect("news");
                assert!(cluster.changes.is_ordered(), "seed {seed}");
                assert!(!map.is_part && map.more.is_none());
                if map.since == 0 {
                    known.clear();
                }
                for table in &map.tables {
                    let tablets = known.entry(table.id.0).or_default();
                    if table.since == 0 {
                        tablets.clear();
                    }
                    for tablet in &table.tablets {
                        // A split tablet changes with its new bounds: its first hash stays.
                        tablets.insert(tablet.first.0, format!("{tablet:?}"));
                    }
                }
                since = map.version;
                let truth = cluster.tables().filter(|table| !table.dropped).map(|table| {
                    let info = cluster.table_info(table);
                    let tablets = info.tablets.iter().map(|it| (it.first.0, format!("{it:?}")));
                    (table.id.0, tablets.collect::<BTreeMap<_, _>>())
                });
                assert_eq!(known, truth.collect(), "seed {seed}");
            }
            let nothing = cluster.map(&news(since, &[])).expect("news");
            assert!(nothing.tables.is_empty() && nothing.since == since);
            let other = cluster.map(&news(since + (1 << 30), &[])).expect("news");
            assert_eq!(other.since, 0, "a version of another leadership");
        }
    }
}
