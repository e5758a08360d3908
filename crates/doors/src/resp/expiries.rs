//! The times at which keys expire, for the events `expired`.
//!
//! The store removes expired objects without a message to the server. So the server notes the times
//! of keys while clients want these events. It learns the times from commands that write, and from
//! a walk through the databases. The server sends an event at the key's time, or when a command
//! looks for the key.
//!
//! # Promises
//!
//! - A key has one event each time it expires: [`Expiries::set`] forgets the time after the event.
//! - The noted times and their keys use at most [`BYTES_MAX`] of memory. The earliest times are
//!   noted. Another walk finds the others later.

use super::server::Server;
use super::store::{Database, Refusal, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The most memory for times. The store's limit does not count it, so it is small.
const BYTES_MAX: usize = 64 << 20;

/// The memory for the time of a key, without the bytes of the key: the entries of two trees, which
/// are not full, and an allocation.
const ENTRY_BYTES: usize = 128;

/// The most events that are sent at once.
const DUE_MAX: usize = 1000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    times: BTreeMap<Database, BTreeMap<Rc<[u8]>, u64>>,
    order: BTreeSet<(u64, Database, Rc<[u8]>)>,
    /// The memory for all times.
    bytes: usize,
    /// The database and the cursor of the walk, while there is one.
    walk: Option<(Database, u64)>,
    /// Whether later times were forgotten.
    is_partial: bool,
}

/// Returns the memory for the time of a key.
fn bytes_of(key: &[u8]) -> usize {
    ENTRY_BYTES + key.len()
}

impl Expiries {
    /// Begins to note times.
    pub(super) fn begin(&mut self) {
        *self = Expiries { walk: Some((0, 0)), ..Expiries::default() };
    }

    /// Whether a key has expired whose event was not sent.
    pub(super) fn is_due(&self, database: Database, key: &[u8], now: u64) -> bool {
        let time = self.times.get(&database).and_then(|keys| keys.get(key));
        time.is_some_and(|time| *time <= now)
    }

    /// Notes the time of a key, or that it does not expire, or is gone.
    pub(super) fn set(&mut self, database: Database, key: &[u8], time: Option<u64>) {
        if let Some(keys) = self.times.get_mut(&database)
            && let Some((key, before)) = keys.remove_entry(key)
        {
            self.bytes -= bytes_of(&key);
            self.order.remove(&(before, database, key));
        }
        let Some(time) = time else { return };
        let key: Rc<[u8]> = Rc::from(key);
        self.times.entry(database).or_default().insert(Rc::clone(&key), time);
        self.bytes += bytes_of(&key);
        self.order.insert((time, database, key));
        while self.bytes > BYTES_MAX
            && let Some((_, database, key)) = self.order.pop_last()
        {
            self.is_partial = true;
            self.bytes -= bytes_of(&key);
            if let Some(keys) = self.times.get_mut(&database) {
                keys.remove(&key);
            }
        }
    }

    /// Forgets all times of a database, which was cleared.
    pub(super) fn clear(&mut self, database: Database) {
        for (key, time) in self.times.remove(&database).unwrap_or_default() {
            self.bytes -= bytes_of(&key);
            self.order.remove(&(time, database, key));
        }
    }

    /// Exchanges all times of two databases.
    pub(super) fn swap(&mut self, one: Database, other: Database) {
        let first = self.times.remove(&one).unwrap_or_default();
        let second = self.times.remove(&other).unwrap_or_default();
        for (from, to, keys) in [(one, other, first), (other, one, second)] {
            for (key, time) in &keys {
                self.order.remove(&(*time, from, Rc::clone(key)));
            }
            self.order.extend(keys.iter().map(|(key, time)| (*time, to, Rc::clone(key))));
            self.times.insert(to, keys);
        }
        // The walk may have passed by one of them.
        self.walk = Some((0, 0));
    }

    /// Returns the time of the next event.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.order.first().map(|(time, ..)| *time)
    }

    /// Whether a walk through the databases is to go on.
    pub(super) fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Walks through about so many objects, and notes their times.
    pub(super) fn walk(&mut self, store: &mut dyn Store, databases: Database, budget: usize) {
        let mut visited = 0;
        while visited < budget
            && let Some((database, cursor)) = self.walk
        {
            let mut found = Vec::new();
            let next = store.walk(database, cursor, &mut |key, it| {
                visited += 1;
                found.extend(it.expires.map(|time| (key.to_vec(), time)));
            });
            // A store that refuses is asked again later.
            let Ok(next) = next else { return };
            // An empty part of a database takes time, too.
            visited += 1;
            for (key, time) in found {
                self.set(database, &key, Some(time));
            }
            self.walk = match next {
                0 if database + 1 >= databases => None,
                0 => Some((database + 1, 0)),
                next => Some((database, next)),
            };
        }
        if self.walk.is_none() && self.is_partial && self.bytes < BYTES_MAX / 2 {
            self.is_partial = false;
            self.walk = Some((0, 0));
        }
    }

    /// Takes keys that have expired.
    pub(super) fn take_due(&mut self, store: &mut dyn Store) -> Vec<(Database, Rc<[u8]>)> {
        let (mut due, now) = (Vec::new(), store.now());
        while due.len() < DUE_MAX
            && let Some((time, database, key)) = self.order.first().cloned()
            && time <= now
        {
            match store.find(database, &key, false).map(|found| found.map(|it| it.expires)) {
                Ok(None) => {
                    self.set(database, &key, None);
                    due.push((database, key));
                }
                // The command of another protocol has changed it.
                Ok(Some(expires)) => self.set(database, &key, expires.filter(|it| *it > now)),
                Err(Refusal::NotNow | Refusal::Full | Refusal::TooLong | Refusal::TooMuch) => break,
            }
        }
        due
    }
}

impl Server {
    /// Whether [`sweep`](Server::sweep) has to look for the times at which objects expire.
    #[must_use]
    pub fn looks_for_expiries(&self) -> bool {
        self.events().expiries.is_walking()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::Memory;

    fn noted(expiries: &Expiries) -> Vec<(u64, Database, Vec<u8>)> {
        expiries
            .order
            .iter()
            .map(|(time, database, key)| (*time, *database, key.to_vec()))
            .collect()
    }

    #[test]
    fn a_key_has_one_time_which_moves_with_its_database() {
        let mut expiries = Expiries::default();
        expiries.set(0, b"a", Some(10));
        expiries.set(0, b"a", Some(20));
        expiries.set(1, b"b", Some(5));
        assert_eq!(noted(&expiries), [(5, 1, b"b".to_vec()), (20, 0, b"a".to_vec())]);
        assert!(expiries.is_due(0, b"a", 20) && !expiries.is_due(0, b"a", 19));
        expiries.swap(0, 1);
        assert_eq!(noted(&expiries), [(5, 0, b"b".to_vec()), (20, 1, b"a".to_vec())]);
        expiries.clear(0);
        expiries.set(1, b"a", None);
        assert_eq!((noted(&expiries), expiries.deadline()), (Vec::new(), None));
    }

    #[test]
    fn the_times_of_long_keys_have_a_limit_of_bytes_and_the_earliest_are_kept() {
        let mut expiries = Expiries::default();
        let key = |number: u64| {
            let mut key = vec![b'k'; 64 << 10];
            key.extend_from_slice(&number.to_be_bytes());
            key
        };
        let count = (BYTES_MAX >> 16) as u64 + 50;
        for number in 0..count {
            expiries.set(0, &key(number), Some(1000 + count - number));
        }
        assert!(expiries.is_partial && expiries.bytes <= BYTES_MAX);
        assert!(expiries.bytes > BYTES_MAX / 2);
        assert!(!expiries.is_due(0, &key(0), u64::MAX) && !expiries.is_due(0, &key(49), u64::MAX));
        assert!(expiries.is_due(0, &key(count - 1), u64::MAX));
        expiries.swap(0, 1);
        expiries.set(1, &key(count - 1), None);
        expiries.set(1, &key(count - 2), Some(5));
        expiries.clear(1);
        assert_eq!((expiries.bytes, expiries.order.len()), (0, 0));
    }

    #[test]
    fn keys_whose_objects_are_gone_are_due_and_changed_objects_are_not() {
        let mut expiries = Expiries::default();
        let mut store = Memory::new(100);
        let put = |key| crate::resp::store::Change::Put {
            database: 0,
            key,
            value: b"",
            kind: crate::resp::store::Kind::String,
            expires: Some(500),
        };
        store.apply(&[put(b"changed")]).expect("there is room");
        for key in [&b"gone"[..], b"changed"] {
            expiries.set(0, key, Some(90));
        }
        expiries.set(0, b"later", Some(101));
        store.refuses_after = Some(0);
        assert_eq!(expiries.take_due(&mut store), []);
        assert_eq!(expiries.take_due(&mut store), [(0, Rc::from(&b"gone"[..]))]);
        assert_eq!(noted(&expiries), [(101, 0, b"later".to_vec()), (500, 0, b"changed".to_vec())]);
    }
}
