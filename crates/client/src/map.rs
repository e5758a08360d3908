//! Which shard has which tablet.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use thunderhead_wire::{KeyHash, TableId, TabletRange};

/// Which shard has which tablet, as somebody knew it once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TabletMap {
    /// By table and last hash: the first hash, and where.
    tablets: BTreeMap<(TableId, KeyHash), (KeyHash, SocketAddr)>,
}

impl TabletMap {
    /// Notes where a tablet is. One that overlaps others takes their place.
    pub fn insert(&mut self, range: TabletRange, address: SocketAddr) {
        let TabletRange { table, first, last } = range;
        self.tablets.retain(|(other, other_last), (other_first, _)| {
            let range = TabletRange { table: *other, first: *other_first, last: *other_last };
            !range.overlaps(&TabletRange { table, first, last })
        });
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
        let first = self.tablets.range((table, KeyHash::MIN)..).next();
        first.is_some_and(|((found, _), _)| *found == table)
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
}
