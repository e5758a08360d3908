//! The options of one server.

use crate::door::DoorOptions;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use thunderhead_backup::Durability;
use thunderhead_coordinator::Probing;
use thunderhead_runtime::names::Addresses;
use thunderhead_wire::Format;

/// The options of a server. It learns the settings of the whole cluster (replicas, durability,
/// segments) from the coordinator.
#[derive(Clone, Debug)]
pub struct Options {
    /// The addresses of the coordinators, one of which leads.
    pub coordinators: Addresses,
    /// The address on which each shard listens; their number is the number of shards. Port 0 means
    /// any free port.
    pub listen: Vec<SocketAddr>,
    /// The address under which other programs reach this server, if it differs from `listen`.
    pub advertise: Option<IpAddr>,
    /// The memory for objects and indexes of all shards together.
    pub memory_bytes: usize,
    /// The size of a seglet; `None`: the default. Tests, whose servers are small, use small
    /// seglets.
    pub seglet_bytes: Option<usize>,
    /// The longest message to a backup; `None`: the default. Tests, whose segments are small, use a
    /// small limit, so that a replica takes more than one message.
    pub message_bytes: Option<u32>,
    /// Outcomes that a shard remembers for one client; `None`: the default.
    pub records_per_client_max: Option<usize>,
    /// Whether the server touches all of its memory before it serves, so that no write waits until
    /// the kernel has found and cleared a page. A GB takes some tenths of a second.
    pub populate: bool,
    /// The number of cleaners of each shard.
    pub cleaners: usize,
    /// The options of the backup; `None`: the server has no backup.
    pub backup: Option<BackupOptions>,
    /// The times of the probes by which servers detect crashed ones.
    pub probing: Probing,
    /// The name of the machine.
    pub host: String,
    /// The rack of the machine; empty if placement ignores racks.
    pub rack: String,
    /// The newest format that the server knows: [`Format::NEWEST`], except in tests.
    pub newest_format: Format,
    /// The door for clients of another protocol. They connect to the first shard.
    pub door: Option<Arc<DoorOptions>>,
}

/// The options of a backup.
#[derive(Clone, Debug, Default)]
pub struct BackupOptions {
    /// The size of the storage file; `None`: as much as the memory of this server requires.
    pub disk_bytes: Option<u64>,
    /// How many replicas may be open or on their way to the disk; `None`: as many as have room in
    /// about 128 MiB of buffers in shared memory.
    pub buffers: Option<u32>,
    /// Whether the whole storage is written once when it is created.
    pub populate: bool,
    /// Whether the storage takes space on the disk only as it is used, if the file system supports
    /// that. Then a write may find the disk full.
    pub sparse: bool,
    /// The directory of the buffers; `None`: the machine's shared memory.
    pub buffer_directory: Option<PathBuf>,
    /// The place of the storage, by which the cluster recognizes a missing storage; 0 for none.
    pub place: u64,
    /// Whether a new storage is created even if the cluster knows of one in this place.
    pub begins_anew: bool,
}

/// The approximate size of all buffers of a backup together, by default.
const BUFFERS_BYTES: u32 = 128 << 20;

impl BackupOptions {
    /// Returns the number of buffers for segments of this length. Each master with a head here
    /// needs one, and so do survivors and replicas on their way to the disk.
    pub(crate) fn buffers(&self, segment_bytes: u32) -> u32 {
        self.buffers.unwrap_or_else(|| (BUFFERS_BYTES / segment_bytes.max(1)).clamp(16, 32))
    }
}

/// The disk space for a log, in sizes of the memory. The log on backups may grow to twice the
/// memory (`CleanerOptions::disk_expansion`). A recovery makes a new log beside it, which takes as
/// much as the memory once more.
const DISK_EXPANSION: u64 = 3;

/// The additional frames for each shard: for heads and survivors that exist before others are
/// freed, of a log and of the log that is rebuilt from it.
const FRAMES_SPARE: u64 = 2 * thunderhead_log::FRAMES_SPARE as u64;

impl Options {
    /// Returns the number of the backup's frames, for segments of this length. By default servers
    /// like this one have room on each other for all replicas.
    pub(crate) fn frames(&self, backup: &BackupOptions, segment_bytes: u32, replicas: u32) -> u32 {
        let segment = u64::from(segment_bytes.max(1));
        let own = self.memory_bytes as u64 * DISK_EXPANSION * u64::from(replicas.max(1));
        let frames = match backup.disk_bytes {
            Some(bytes) => bytes / segment,
            None => {
                let logs = self.listen.len() as u64 * u64::from(replicas.max(1));
                own.div_ceil(segment) + FRAMES_SPARE * logs.max(1)
            }
        };
        u32::try_from(frames).unwrap_or(u32::MAX).max(1)
    }
}

/// Returns the durability that a cluster's setting names, or `None` if the setting is invalid.
#[must_use]
pub fn durability(setting: &str) -> Option<Durability> {
    match setting.parse().ok()? {
        thunderhead_config::Durability::Replicated => Some(Durability::Replicated),
        thunderhead_config::Durability::Interval(every) => Some(Durability::Interval(every)),
        thunderhead_config::Durability::Synced => Some(Durability::Synced),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn durabilities_are_read_as_they_are_written() {
        let read = [
            ("replicated", Some(Durability::Replicated)),
            ("synced", Some(Durability::Synced)),
            ("interval:100ms", Some(Durability::Interval(Duration::from_millis(100)))),
            ("interval:2s", Some(Durability::Interval(Duration::from_secs(2)))),
            ("interval:0ms", None),
            ("interval:5", None),
            ("interval:", None),
            ("interval:9999999999999999999999s", None),
            ("never", None),
        ];
        for (setting, durability) in read {
            assert_eq!(super::durability(setting), durability, "{setting}");
        }
    }
}
