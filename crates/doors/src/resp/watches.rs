//! The keys that clients watch, with the clients of each key.
//!
//! `EXEC` compares the versions of watched keys. So it also notices the writes of other protocols.
//! But a key that was written and deleted again has no version. So each write through this server
//! also marks the clients that watch its key.

use super::server::{ClientId, State};
use super::store::Database;
use std::collections::{BTreeMap, BTreeSet};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Watches {
    clients: BTreeMap<Database, BTreeMap<Vec<u8>, BTreeSet<ClientId>>>,
}

impl Watches {
    /// Whether no key is watched.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Returns the number of keys that are watched.
    pub(super) fn len(&self) -> usize {
        self.clients.values().map(BTreeMap::len).sum()
    }

    /// Notes that a client watches a key.
    pub(super) fn add(&mut self, client: ClientId, database: Database, key: &[u8]) {
        let keys = self.clients.entry(database).or_default();
        keys.entry(key.to_vec()).or_default().insert(client);
    }

    fn remove(&mut self, client: ClientId, database: Database, key: &[u8]) {
        let Some(keys) = self.clients.get_mut(&database) else { return };
        if let Some(clients) = keys.get_mut(key) {
            clients.remove(&client);
            if clients.is_empty() {
                keys.remove(key);
            }
        }
        if keys.is_empty() {
            self.clients.remove(&database);
        }
    }

    /// Returns the clients that watch a key.
    pub(super) fn of(&self, database: Database, key: &[u8]) -> impl Iterator<Item = ClientId> {
        let clients = self.clients.get(&database).and_then(|keys| keys.get(key));
        clients.into_iter().flatten().copied()
    }
}

impl State {
    /// Forgets the keys that a client watches.
    pub(super) fn unwatch(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.is_touched = false;
        for (database, key) in std::mem::take(&mut client.watched).into_keys() {
            self.watches.remove(id, database, &key);
        }
    }

    /// Ends a transaction of a client without its execution.
    pub(super) fn end_transaction(&mut self, id: ClientId) {
        self.unwatch(id);
        if let Some(client) = self.clients.get_mut(&id) {
            client.multi = None;
        }
    }
}
