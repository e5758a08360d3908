//! What an operator decides about a coordinator.

use crate::probing::Probing;
use std::time::Duration;
use thunderhead_wire::Format;
use thunderhead_wire::control::Settings;

/// What an operator decides about a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What holds in a cluster that is made now. One that is there already keeps its own.
    pub settings: Settings,
    /// Where this coordinator is found: written beside the leadership, for people and clients.
    pub address: String,
    /// How long a leader may be silent before another one takes its place: 1 to 20 seconds.
    pub leadership_ttl: Duration,
    /// How long a client may be silent before its lease ends.
    pub lease_ttl: Duration,
    /// How long one call to a server may take before it is made again.
    pub call_timeout: Duration,
    /// How long a request waits: for its turn to change something, and for the shards that must
    /// hear of a change. What is written down by then holds, and is told them all the same.
    pub patience: Duration,
    /// How long to wait after a recovery that failed before it is tried again.
    pub recovery_pause: Duration,
    /// How large the parts are that masters rebuild.
    pub parts: Parts,
    /// How it finds out that servers are not there any more.
    pub probing: Probing,
    /// The metastore, for messages: the path of its file, for example.
    pub store: String,
    /// It leads only a cluster that the metastore holds already, and founds none.
    pub existing: bool,
    /// The newest format that it knows, which a cluster that it founds has. Tests set another one.
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

/// How what a master had is divided among those that rebuild it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Less is not divided among masters: bytes of live objects.
    pub least: u64,
    /// The most that is live in a part.
    pub bytes: u64,
}

impl Default for Parts {
    fn default() -> Self {
        Parts { least: 32 << 20, bytes: 512 << 20 }
    }
}
