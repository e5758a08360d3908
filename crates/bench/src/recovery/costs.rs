//! The costs in the modelled cluster, and the source of each figure.

use serde::Serialize;

/// Costs of one node; processor times are those of one thread.
#[derive(Clone, Debug, PartialEq, Serialize, clap::Args)]
pub struct Costs {
    /// MB a second that a node's disks read. The paper's two flash disks: 460.
    #[arg(long, default_value_t = 460.0)]
    pub disk_mb: f64,
    /// GB a second of a node's network, each way. 25 Gb/s: 3.1.
    #[arg(long, default_value_t = 3.1)]
    pub network_gb: f64,
    /// Microseconds until an idle node answers a short message.
    #[arg(long, default_value_t = 50.0)]
    pub round_trip_us: f64,
    /// Microseconds of a thread for a message with its answer, at either end. Measured over TCP
    /// under load: docs/evaluation/transports.md, 6.9 to 8.1.
    #[arg(long, default_value_t = 7.5)]
    pub message_us: f64,
    /// GB a second that a thread passes to the kernel or takes from it, in large messages. Assumed.
    #[arg(long, default_value_t = 4.0)]
    pub kernel_gb: f64,
    /// GB a second that a backup cuts by partitions. Measured earlier by `log replay`, 1 KB.
    #[arg(long, default_value_t = 2.2)]
    pub cut_gb: f64,
    /// GB a second that a master replays. Measured earlier by `log replay`, 1 KB.
    #[arg(long, default_value_t = 2.27)]
    pub replay_gb: f64,
    /// MB of JSON a second that a thread writes or reads. Assumed.
    #[arg(long, default_value_t = 300.0)]
    pub json_mb: f64,
    /// Milliseconds of a write to the metastore. Assumed: a store that syncs a fast disk.
    #[arg(long, default_value_t = 1.0)]
    pub metastore_ms: f64,
    /// Microseconds that a flash disk needs before it reads a segment.
    #[arg(long, default_value_t = 100.0)]
    pub seek_us: f64,
    /// Nanoseconds of the coordinator for ordering one segment. Assumed.
    #[arg(long, default_value_t = 1000.0)]
    pub plan_ns: f64,
}

impl Costs {
    /// Returns a thread's seconds for messages with this many bytes of JSON in all.
    pub(super) fn messages_s(&self, count: f64, bytes: f64) -> f64 {
        count * self.message_us / 1e6 + bytes / (self.json_mb * 1e6)
    }

    /// Returns the network's seconds for this many bytes.
    pub(super) fn network_s(&self, bytes: f64) -> f64 {
        bytes / (self.network_gb * 1e9)
    }

    /// Returns the seconds to write this many bytes of JSON to the metastore.
    pub(super) fn write_s(&self, bytes: f64) -> f64 {
        self.metastore_ms / 1e3 + bytes / (self.json_mb * 1e6)
    }

    /// Returns the seconds of a node's thread for its share of the bytes: cut as a backup, replayed
    /// as a master, fetched and served, and written again to this many backups, from which as much
    /// arrives.
    pub(super) fn bytes_s(&self, bytes: f64, replicas: f64) -> f64 {
        let through_kernel = 2.0 + 2.0 * replicas;
        let gb = 1.0 / self.cut_gb + 1.0 / self.replay_gb + through_kernel / self.kernel_gb;
        bytes * gb / 1e9
    }
}
