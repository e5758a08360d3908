//! The streams that were copied, each with a hash of its last payload.
//!
//! Redis has no events for `XACK`, `XREADGROUP`, `XCLAIM` and `XAUTOCLAIM`, which change only the
//! groups of a stream. So an import reads streams again, until their payloads stay the same.

use super::changes::{ChangedKey, KEYS_MAX};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use thunderhead_server::rdb::Value;

/// The streams that were copied, by their databases in the source.
#[derive(Debug, Default)]
pub(super) struct Streams {
    hashes: BTreeMap<ChangedKey, u64>,
    /// Whether there are streams that are not remembered, because there are too many.
    pub(super) is_full: bool,
}

impl Streams {
    /// Remembers the payload of a key if it is that of a stream. Returns whether it is not the
    /// payload that was remembered.
    pub(super) fn note(&mut self, key: ChangedKey, payload: &[u8]) -> bool {
        if !payload.first().is_some_and(|kind| Value::is_type_of_streams(*kind)) {
            self.hashes.remove(&key);
            return true;
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(payload);
        let hash = hasher.finish();
        if self.hashes.len() >= KEYS_MAX && !self.hashes.contains_key(&key) {
            self.is_full = true;
            return true;
        }
        self.hashes.insert(key, hash) != Some(hash)
    }

    /// Forgets a key that the target does not have, or refuses.
    pub(super) fn forget(&mut self, key: &ChangedKey) {
        self.hashes.remove(key);
    }

    pub(super) fn keys(&self) -> Vec<ChangedKey> {
        self.hashes.keys().cloned().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}
