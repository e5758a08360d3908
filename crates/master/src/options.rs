//! The options of a shard.

use std::time::Duration;

/// How much a shard remembers and how long it waits. `Options::default()` suits a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Clients that are known at once; updates of others are told that the shard is busy. A hundred
    /// bytes each, beside the log.
    pub clients_max: usize,
    /// Outcomes that are remembered for all clients together. Some fifty bytes each beside the log,
    /// and as much in it.
    pub records_max: usize,
    /// Outcomes that are remembered for one client: so many of its updates can be on their way. If
    /// updates are missing among them, twice as many.
    pub records_per_client_max: usize,
    /// How often all leases are asked about.
    pub check_leases_every: Duration,
    /// How long a backup has to answer a recovery's question.
    pub backup_timeout: Duration,
    /// After so long without getting on, a recovery gives up.
    pub recovery_patience: Duration,
    /// After so long without an answer of a tablet's new master, the tablet stays where it is.
    pub migration_patience: Duration,
    /// The same while it is not served because it is about to move: the longest pause, without the
    /// time that the coordinator takes.
    pub migration_pause: Duration,
    /// An answer that has waited for backups for this long, and up to twice as long, is refused
    /// with `AwaitingReplicas`, so that its client learns the reason. Less than a client waits for
    /// one answer.
    pub parked_patience: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            clients_max: 1 << 20,
            records_max: 4 << 20,
            records_per_client_max: 16 << 10,
            check_leases_every: Duration::from_secs(60),
            backup_timeout: Duration::from_secs(1),
            recovery_patience: Duration::from_secs(10),
            migration_patience: Duration::from_secs(5),
            migration_pause: Duration::from_secs(1),
            parked_patience: Duration::from_millis(400),
        }
    }
}
