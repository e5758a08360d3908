//! What an operator chooses for one server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use thunderhead_backup::Durability;
use thunderhead_coordinator::Probing;
use thunderhead_runtime::names::Addresses;
use thunderhead_wire::Format;

/// What a server is started with. What holds for the whole cluster (replicas, durability, segments)
/// it learns from the coordinator.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where coordinators listen; one of them leads.
    pub coordinators: Addresses,
    /// Where each shard listens: as many addresses, so many shards. Port 0 stands for any.
    pub listen: Vec<SocketAddr>,
    /// The address that others are told, where that is another one than it listens at.
    pub advertise: Option<IpAddr>,
    /// Memory for objects and indexes, of all shards together.
    pub memory_bytes: usize,
    /// Bytes of the pieces that the memory is handed out in; `None`: the usual size. Small ones are for
    /// tests, whose servers are small.
    pub seglet_bytes: Option<usize>,
    /// Bytes of a message to a backup at most; `None`: the usual number. Small ones are for tests, whose segments
    /// are small: so that a replica takes more than one message.
    pub message_bytes: Option<u32>,
    /// All of the memory is touched before anybody is served, so that no write has to wait until the
    /// kernel has found and cleared a page. A GB takes some tenths of a second.
    pub populate: bool,
    /// Cleaners for each shard.
    pub cleaners: usize,
    /// The backup, if it is to be one.
    pub backup: Option<BackupOptions>,
    /// How it finds out that others are not there any more.
    pub probing: Probing,
    /// The machine it is on.
    pub host: String,
    /// The rack it is in; empty where racks do not matter.
    pub rack: String,
    /// The newest format that it knows: [`Format::NEWEST`]. Tests take another one.
    pub newest_format: Format,
}

/// What a backup is started with.
#[derive(Clone, Debug, Default)]
pub struct BackupOptions {
    /// Bytes of the storage file; `None`: what the memory of this server asks for.
    pub disk_bytes: Option<u64>,
    /// Replicas that may be open or on their way to the disk; `None`: so many that their buffers in
    /// shared memory take about 128 MiB.
    pub buffers: Option<u32>,
    /// The storage is written through once when it is made.
    pub populate: bool,
    /// The storage takes room on the disk as it is used, where the file system can do that. Then a write may find the
    /// disk full.
    pub sparse: bool,
    /// Where the buffers are; `None`: in the machine's shared memory.
    pub buffer_directory: Option<PathBuf>,
    /// The place of the storage, by which the cluster knows that there was one; 0 for none.
    pub place: u64,
    /// A new storage is begun also where the cluster knows of one in this place.
    pub begins_anew: bool,
}

/// What all buffers of a backup take together, about, if nobody says otherwise.
const BUFFERS_BYTES: u32 = 128 << 20;

impl BackupOptions {
    /// Buffers, for segments of this length. Every master that has a head here needs one, and so do
    /// survivors and what is on its way to the disk.
    pub(crate) fn buffers(&self, segment_bytes: u32) -> u32 {
        self.buffers.unwrap_or_else(|| (BUFFERS_BYTES / segment_bytes.max(1)).clamp(16, 32))
    }
}

/// The log on backups may grow to twice the memory (`CleanerOptions::disk_expansion`). When it is rebuilt
/// a new one is made while it is still there, which takes as much as the memory once more.
const DISK_EXPANSION: u64 = 3;

/// Frames beyond that, for each shard: heads and survivors that come before others go, of a log and of
/// the one that is rebuilt from it.
const FRAMES_SPARE: u64 = 2 * thunderhead_log::FRAMES_SPARE as u64;

impl Options {
    /// Frames of the backup, for segments of this length: if nobody says otherwise, so many that
    /// servers like this one find room on each other for all replicas.
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

/// The durability that a cluster's setting names.
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
