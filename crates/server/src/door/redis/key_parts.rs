//! The parts of the keys in a cluster, for all shards of a process.
//!
//! `server.redis_parts` is the number of parts that the operator wants. The cluster recorded a
//! number when its keys were first divided. Before the thread with a client has read the recorded
//! number, no door serves. If the two numbers differ, the doors of this process serve no clients.

use super::databases::Databases;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use thunderhead_doors::resp::Parts;

/// See the module's documentation.
#[derive(Debug)]
pub struct KeyParts {
    wanted: Parts,
    recorded: OnceLock<Parts>,
    /// The tables of each part, from part 0 on.
    databases: Mutex<Vec<Arc<Databases>>>,
}

impl KeyParts {
    /// Returns the parts that an operator wants.
    #[must_use]
    pub fn new(wanted: Parts) -> KeyParts {
        let first = Mutex::new(vec![Arc::new(Databases::shared())]);
        KeyParts { wanted, recorded: OnceLock::new(), databases: first }
    }

    /// Returns the number that the operator wants.
    #[must_use]
    pub fn wanted(&self) -> Parts {
        self.wanted
    }

    /// Takes the number that the cluster has recorded.
    pub fn set_recorded(&self, parts: Parts) {
        let _ = self.recorded.set(parts);
    }

    /// Returns the number that the cluster has recorded, once it is known.
    #[must_use]
    pub fn recorded(&self) -> Option<Parts> {
        self.recorded.get().copied()
    }

    /// Returns the tables of a part.
    #[must_use]
    pub fn databases(&self, part: u32) -> Arc<Databases> {
        let mut all = self.databases.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.len().max(part as usize + 1);
        all.resize_with(count, || Arc::new(Databases::shared()));
        Arc::clone(&all[part as usize])
    }

    /// Ends the waits for work on tables.
    pub fn end(&self) {
        let all = self.databases.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().for_each(|databases| databases.end());
    }
}

impl Default for KeyParts {
    fn default() -> KeyParts {
        KeyParts::new(Parts::ONE)
    }
}
