//! What an operator chooses for one server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use thunderhead_backup::Durability;

/// What a server is started with. What holds for the whole cluster (replicas, durability, segments)
/// it learns from the coordinator.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where coordinators listen; one of them leads.
    pub coordinators: Vec<SocketAddr>,
    /// Where each shard listens: as many addresses, so many shards. Port 0 stands for any.
    pub listen: Vec<SocketAddr>,
    /// The address that others are told, where that is another one than it listens at.
    pub advertise: Option<IpAddr>,
    /// Memory for objects and indexes, of all shards together.
    pub memory_bytes: usize,
    /// Bytes of the pieces that the memory is handed out in; `None`: the usual size. Small ones are for
    /// tests, whose servers are small.
    pub seglet_bytes: Option<usize>,
    /// Cleaners for each shard.
    pub cleaners: usize,
    /// The backup, if it is to be one.
    pub backup: Option<BackupOptions>,
    /// The machine it is on.
    pub host: String,
    /// The rack it is in; empty where racks do not matter.
    pub rack: String,
}

/// What a backup is started with.
#[derive(Clone, Debug)]
pub struct BackupOptions {
    /// Bytes of the storage file; `None`: what the memory of this server asks for.
    pub disk_bytes: Option<u64>,
    /// Replicas that may be open or on their way to the disk.
    pub buffers: u32,
}

impl Default for BackupOptions {
    fn default() -> BackupOptions {
        BackupOptions { disk_bytes: None, buffers: 16 }
    }
}

/// The log on backups may grow to this multiple of the memory (`CleanerOptions::disk_expansion`).
const DISK_EXPANSION: u64 = 2;

/// Frames beyond that, for heads and survivors that come before others go.
const FRAMES_SPARE: u64 = 16;

impl Options {
    /// Frames of the backup, for segments of this length: if nobody says otherwise, so many that
    /// servers like this one find room on each other for all replicas.
    pub(crate) fn frames(&self, backup: &BackupOptions, segment_bytes: u32, replicas: u32) -> u32 {
        let segment = u64::from(segment_bytes.max(1));
        let own = self.memory_bytes as u64 * DISK_EXPANSION * u64::from(replicas.max(1));
        let frames = match backup.disk_bytes {
            Some(bytes) => bytes / segment,
            None => own.div_ceil(segment) + FRAMES_SPARE,
        };
        u32::try_from(frames).unwrap_or(u32::MAX).max(1)
    }
}

/// The durability that a setting names.
#[must_use]
pub fn durability(setting: &str) -> Option<Durability> {
    match setting {
        "replicated" => Some(Durability::Replicated),
        "synced" => Some(Durability::Synced),
        other => {
            let time = other.strip_prefix("interval:")?;
            let (number, unit) = time.split_at(time.find(|it: char| !it.is_ascii_digit())?);
            let number: u64 = number.parse().ok()?;
            let interval = match unit {
                "us" | "µs" => Duration::from_micros(number),
                "ms" => Duration::from_millis(number),
                "s" => Duration::from_secs(number),
                _ => return None,
            };
            (interval > Duration::ZERO).then_some(Durability::Interval(interval))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
