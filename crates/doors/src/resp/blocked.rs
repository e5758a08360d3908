//! The clients that wait until a key has elements, in the order in which they began to wait.

use super::client::Queued;
use super::server::ClientId;
use super::stop::Wait;
use super::store::{Database, Kind};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// A client that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) client: ClientId,
    database: Database,
    pub(super) queued: Rc<Queued>,
    /// The type of the keys for whose elements it waits.
    pub(super) kind: Kind,
    keys: Vec<Vec<u8>>,
    deadline: Option<u64>,
    /// Whether it is a consumer of a group: it is served also when a key is gone.
    pub(super) is_of_group: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    /// By the order in which they began.
    waiting: BTreeMap<u64, Waiting>,
    by_key: BTreeMap<Database, BTreeMap<Vec<u8>, BTreeSet<u64>>>,
    deadlines: BTreeSet<(u64, u64)>,
    /// Keys that got elements, in the order in which they did, and the same ones to look them up.
    queue: VecDeque<(Database, Vec<u8>)>,
    ready: BTreeSet<(Database, Vec<u8>)>,
    /// The last client that was looked at for the first of these keys.
    passed: u64,
    last: u64,
    /// The number of clients that are consumers of groups.
    of_groups: usize,
    /// The times at which streams expire for which consumers wait, and the same ones by key.
    expiries: BTreeSet<(u64, Database, Vec<u8>)>,
    expiry_by_key: BTreeMap<(Database, Vec<u8>), u64>,
}

impl Blocked {
    /// Returns the number of clients that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of keys for which clients wait, and of these the number for which
    /// consumers of groups wait.
    pub(super) fn keys(&self) -> (usize, usize) {
        let of_groups = self.waiting.values().filter(|it| it.is_of_group);
        let keys: BTreeSet<(Database, &[u8])> =
            of_groups.flat_map(|it| it.keys.iter().map(|key| (it.database, &**key))).collect();
        (self.by_key.values().map(BTreeMap::len).sum(), keys.len())
    }

    /// Whether consumers of groups wait.
    pub(super) fn has_consumers(&self) -> bool {
        self.of_groups > 0
    }

    /// Whether a client waits for a key.
    pub(super) fn is_awaited(&self, database: Database, key: &[u8]) -> bool {
        !self.waiting.is_empty()
            && self.by_key.get(&database).is_some_and(|keys| keys.contains_key(key))
    }

    /// Returns the keys of a database for which clients wait.
    pub(super) fn awaited(&self, database: Database) -> Vec<Vec<u8>> {
        self.by_key.get(&database).map(|keys| keys.keys().cloned().collect()).unwrap_or_default()
    }

    /// Lets a client wait; returns its order.
    pub(super) fn begin(
        &mut self,
        client: ClientId,
        database: Database,
        queued: Queued,
        wait: Wait,
    ) -> u64 {
        self.last += 1;
        let order = self.last;
        let Wait { keys, kind, deadline, is_of_group, .. } = wait;
        self.of_groups += usize::from(is_of_group);
        for key in &keys {
            let orders = self.by_key.entry(database).or_default().entry(key.clone()).or_default();
            orders.insert(order);
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, order));
        }
        let queued = Rc::new(queued);
        let waiting = Waiting { client, database, queued, kind, keys, deadline, is_of_group };
        self.waiting.insert(order, waiting);
        order
    }

    /// Ends the waiting of a client.
    pub(super) fn end(&mut self, order: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&order)?;
        self.of_groups -= usize::from(waiting.is_of_group);
        let mut gone: Vec<&[u8]> = Vec::new();
        if let Some(keys) = self.by_key.get_mut(&waiting.database) {
            for key in &waiting.keys {
                if let Some(orders) = keys.get_mut(key) {
                    orders.remove(&order);
                    if orders.is_empty() {
                        keys.remove(key);
                        gone.push(key);
                    }
                }
            }
        }
        if !self.expiries.is_empty() {
            gone.into_iter().for_each(|key| self.set_expiry(waiting.database, key, None));
        }
        if let Some(deadline) = waiting.deadline {
            self.deadlines.remove(&(deadline, order));
        }
        Some(waiting)
    }

    /// Forgets a client.
    pub(super) fn forget(&mut self, order: Option<u64>) {
        if let Some(order) = order {
            self.end(order);
        }
    }

    /// Notes that some keys got elements.
    pub(super) fn ready(&mut self, keys: impl Iterator<Item = (Database, Vec<u8>)>) {
        for key in keys {
            if !self.ready.contains(&key) {
                self.ready.insert(key.clone());
                self.queue.push_back(key);
            }
        }
    }

    /// Sets the time at which a stream expires for which consumers wait.
    pub(super) fn set_expiry(&mut self, database: Database, key: &[u8], expires: Option<u64>) {
        if let Some(before) = self.expiry_by_key.remove(&(database, key.to_vec())) {
            self.expiries.remove(&(before, database, key.to_vec()));
        }
        if let Some(time) = expires {
            self.expiry_by_key.insert((database, key.to_vec()), time);
            self.expiries.insert((time, database, key.to_vec()));
        }
    }

    /// Notes that the streams are gone that have expired.
    pub(super) fn expire(&mut self, now_ms: u64) {
        while let Some((time, database, key)) = self.expiries.pop_first() {
            if time > now_ms {
                self.expiries.insert((time, database, key));
                return;
            }
            self.expiry_by_key.remove(&(database, key.clone()));
            self.ready([(database, key)].into_iter());
        }
    }

    /// Whether there may be clients to serve.
    pub(super) fn has_ready(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns the next client to serve, and the key that got elements. It is the same one until a
    /// call of [`pass`](Blocked::pass), [`pass_key`](Blocked::pass_key) or [`end`](Blocked::end).
    pub(super) fn next_ready(&mut self) -> Option<(u64, &Waiting, Database, &[u8])> {
        let order = loop {
            let (database, key) = self.queue.front()?;
            let orders = self.by_key.get(database).and_then(|keys| keys.get(key));
            match orders.and_then(|orders| orders.range(self.passed + 1..).next()) {
                Some(order) => break *order,
                None => self.pass_key(),
            }
        };
        let (database, key) = self.queue.front()?;
        Some((order, self.waiting.get(&order)?, *database, key))
    }

    /// Lets a client go on waiting.
    pub(super) fn pass(&mut self, order: u64) {
        self.passed = order;
    }

    /// Lets all clients go on that wait for the key whose clients are served.
    pub(super) fn pass_key(&mut self) {
        self.passed = 0;
        if let Some(key) = self.queue.pop_front() {
            self.ready.remove(&key);
        }
    }

    /// Returns the next time at which something is due: 0 if a client is to be served at once.
    pub(super) fn deadline(&self) -> Option<u64> {
        if self.has_ready() {
            return Some(0);
        }
        let first = self.deadlines.first().map(|(deadline, _)| *deadline);
        first.into_iter().chain(self.expiries.first().map(|(time, ..)| *time)).min()
    }

    /// Returns a client whose time has run out.
    pub(super) fn late(&self, now_ms: u64) -> Option<ClientId> {
        let (_, order) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now_ms)?;
        self.waiting.get(order).map(|waiting| waiting.client)
    }
}
