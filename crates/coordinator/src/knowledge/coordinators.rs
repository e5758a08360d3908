//! The coordinators that announce themselves. The module `formats` reads their values.

use crate::limits::COORDINATOR_GONE;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thunderhead_metastore::{Entry, Key, Version};
use thunderhead_runtime::Time;
use thunderhead_wire::Format;

/// A coordinator's value about itself. No other coordinator rewrites it, so unknown fields are
/// ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CoordinatorRecord {
    /// Its address, for people. Several coordinators may have the same one.
    pub(crate) address: String,
    pub(crate) newest_format: Format,
}

/// The coordinators that a leader knows: for each key its record, and when the leader saw it
/// change.
#[derive(Debug, Default)]
pub(crate) struct Coordinators(pub(crate) BTreeMap<Key, KnownCoordinator>);

#[derive(Clone, Debug)]
pub(crate) struct KnownCoordinator {
    version: Version,
    changed: Time,
    pub(crate) record: CoordinatorRecord,
}

impl Coordinators {
    /// Takes over the metastore's values. Returns the keys of coordinators that do not run, with
    /// their versions.
    pub(crate) fn learn(&mut self, entries: Vec<Entry>, now: Time) -> Vec<(Key, Version)> {
        let before = std::mem::take(&mut self.0);
        for Entry { key, value, version } in entries {
            let Ok(record) = serde_json::from_slice(&value) else { continue };
            let same = before.get(&key).filter(|known| known.version == version);
            let changed = same.map_or(now, |known| known.changed);
            self.0.insert(key, KnownCoordinator { version, changed, record });
        }
        let is_gone = |known: &&KnownCoordinator| now >= known.changed + COORDINATOR_GONE;
        let gone = self.0.iter().filter(|(_, known)| is_gone(known));
        let gone: Vec<(Key, Version)> =
            gone.map(|(key, known)| (key.clone(), known.version)).collect();
        gone.iter().for_each(|(key, _)| _ = self.0.remove(key));
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::COORDINATORS;

    #[test]
    fn a_coordinator_that_stops_writing_its_value_counts_as_gone() {
        let entry = |name: &str, version| Entry {
            key: Key::new(format!("{COORDINATORS}{name}")).expect("a good key"),
            value: br#"{"address":"a:1","newest_format":2,"colour":"red"}"#.to_vec(),
            version: Version(version),
        };
        let mut known = Coordinators::default();
        let second = std::time::Duration::from_secs(1);
        let begun = Time(0) + second;
        assert_eq!(known.learn(vec![entry("a", 1), entry("b", 1)], begun), []);
        let later = begun + (COORDINATOR_GONE - second);
        assert_eq!(known.learn(vec![entry("a", 2), entry("b", 1)], later), []);
        let at = begun + COORDINATOR_GONE;
        let gone = known.learn(vec![entry("a", 2), entry("b", 1)], at);
        assert_eq!(gone, [(entry("b", 1).key, Version(1))]);
        assert_eq!(known.0.len(), 1);
        let left = known.0.values().next().expect("one is left");
        assert_eq!(left.record.newest_format, Format(2), "an unknown field is ignored");
    }
}
