//! Evicted objects of other parts of the keys.
//!
//! Doors of several parts may share a shard, whose log has one list of evicted objects. The door
//! that takes the list keeps the objects of its part, and leaves the others here. The other doors
//! take theirs when they use the shard next.

use std::collections::BTreeSet;
use thunderhead_log::Evicted;
use thunderhead_wire::TableId;

/// The most keys that wait for their part.
const KEYS_MAX: usize = 65_536;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(in crate::door) struct Strays {
    collections: Vec<Evicted>,
    keys: Vec<(TableId, Vec<u8>)>,
    /// The parts that tell their clients about evicted keys.
    telling: BTreeSet<u32>,
}

impl Strays {
    /// Whether no object waits for its part.
    pub(in crate::door) fn is_empty(&self) -> bool {
        self.collections.is_empty() && self.keys.is_empty()
    }

    /// Forgets the objects that wait.
    pub(in crate::door) fn clear(&mut self) {
        self.collections.clear();
        self.keys.clear();
    }

    /// Sets whether a part tells its clients about evicted keys. Returns whether any part does.
    pub(super) fn set_tells(&mut self, part: u32, tells: bool) -> bool {
        if tells {
            self.telling.insert(part);
        } else {
            self.telling.remove(&part);
        }
        !self.telling.is_empty()
    }

    /// Exchanges large collections: returns those of this part.
    pub(super) fn exchange(
        &mut self,
        evicted: Vec<Evicted>,
        is_own: impl Fn(TableId) -> bool,
    ) -> Vec<Evicted> {
        exchange(&mut self.collections, evicted, |it| is_own(it.table))
    }

    /// Exchanges keys: returns those of this part. The others wait if another part wants keys.
    pub(super) fn exchange_keys(
        &mut self,
        part: u32,
        keys: Vec<(TableId, Vec<u8>)>,
        is_own: impl Fn(TableId) -> bool,
    ) -> Vec<(TableId, Vec<u8>)> {
        let own = exchange(&mut self.keys, keys, |(table, _)| is_own(*table));
        if self.telling.iter().all(|it| *it == part) {
            self.keys.clear();
        }
        self.keys.truncate(KEYS_MAX);
        own
    }
}

fn exchange<T>(strays: &mut Vec<T>, mut taken: Vec<T>, is_own: impl Fn(&T) -> bool) -> Vec<T> {
    if strays.is_empty() && taken.is_empty() {
        return taken;
    }
    // The objects that wait come first.
    strays.append(&mut taken);
    let (own, others) = std::mem::take(strays).into_iter().partition(is_own);
    *strays = others;
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(tables: &[u64]) -> Vec<(TableId, Vec<u8>)> {
        tables.iter().map(|table| (TableId(*table), vec![b'k'])).collect()
    }

    #[test]
    fn evicted_keys_wait_for_the_part_that_tells_them() {
        let mut strays = Strays::default();
        assert!(!strays.set_tells(0, false));
        assert!(strays.set_tells(1, true));
        assert!(strays.set_tells(0, false), "the log notes keys for the other part");
        // The door of part 0 takes keys of both parts.
        let own = strays.exchange_keys(0, keys(&[10, 20, 21]), |table| table == TableId(10));
        assert_eq!(own, keys(&[10]));
        assert!(!strays.is_empty());
        let own = strays.exchange_keys(1, keys(&[22, 10]), |table| table.0 >= 20);
        assert_eq!(own, keys(&[20, 21, 22]));
        assert!(strays.is_empty(), "part 0 does not want its key");
        assert!(!strays.set_tells(1, false));
    }

    #[test]
    fn the_keys_that_wait_have_a_most() {
        let mut strays = Strays::default();
        strays.set_tells(1, true);
        strays.exchange_keys(0, keys(&vec![20; KEYS_MAX + 1]), |_| false);
        assert_eq!(strays.exchange_keys(1, Vec::new(), |_| true).len(), KEYS_MAX);
    }
}
