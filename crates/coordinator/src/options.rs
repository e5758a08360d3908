//! An operator's options for a coordinator.

use crate::probing::Probing;
use std::time::Duration;
use thunderhead_wire::Format;
use thunderhead_wire::control::Settings;

/// An operator's options for a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The settings of a cluster that is created now. An existing cluster keeps its own.
    pub settings: Settings,
    /// This coordinator's address: written beside the leadership, for people and clients.
    pub address: String,
    /// How long a leader may be silent before another coordinator takes its place: 1 to 20 seconds.
    pub leadership_ttl: Duration,
    /// How long a client may be silent before its lease ends.
    pub lease_ttl: Duration,
    /// How long one call to a server may take before it is repeated.
    pub call_timeout: Duration,
    /// How long a request waits for its turn to change the cluster, and for the shards that must
    /// learn a change. A change that is written by then holds, and the shards learn it later.
    pub patience: Duration,
    /// The pause after a failed recovery before the next attempt.
    pub recovery_pause: Duration,
    /// The sizes of the parts that masters rebuild.
    pub parts: Parts,
    /// The way in which it detects crashed servers.
    pub probing: Probing,
    /// A name of the metastore for messages, for example the path of its file.
    pub store: String,
    /// It leads only a cluster that the metastore holds already, and creates none.
    pub existing: bool,
    /// The newest format that it knows. A cluster that it creates has this format. Tests set
    /// another one.
    pub newest_format: Format,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            settings: Settings {
                replicas: 2,
                min_replicas: 1,
                durability: "replicated".into(),
                segment_bytes: 8 << 20,
                self_backup: false,
            },
            address: String::new(),
            leadership_ttl: Duration::from_secs(4),
            lease_ttl: Duration::from_secs(5 * 60),
            call_timeout: Duration::from_secs(1),
            patience: Duration::from_secs(2),
            recovery_pause: Duration::from_secs(1),
            parts: Parts::default(),
            probing: Probing::default(),
            store: "the metastore".to_owned(),
            existing: false,
            newest_format: Format::NEWEST,
        }
    }
}

/// The division of a crashed master's data among recovery masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Data with fewer bytes of live objects is not divided.
    pub least: u64,
    /// The most bytes of live objects in a part.
    pub bytes: u64,
}

impl Default for Parts {
    fn default() -> Self {
        Parts { least: 32 << 20, bytes: 512 << 20 }
    }
}
