//! The table of configuration keys: the only place that defines their names, values, defaults and
//! meanings.

use crate::typed::SEGLET_BYTES;
use crate::value::{Kind, LogFormat, LogLevel, Polling};

/// A configuration key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its section and name, such as `server.memory`. Keys for every part of a cluster have no
    /// section.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// Its value if it is not set. `None` if there is no single default: then the meaning describes
    /// the effect.
    pub default: Option<&'static str>,
    /// Its meaning, in sentences.
    pub meaning: &'static str,
}

impl Key {
    /// Returns the part before the dot; empty for a key without a section.
    #[must_use]
    pub fn section(&self) -> &'static str {
        self.name.split_once('.').map_or("", |(section, _)| section)
    }

    /// Returns the part after the dot.
    #[must_use]
    pub fn leaf(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(_, leaf)| leaf)
    }

    /// Returns its name in the environment.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("THUNDERHEAD_{}", self.name.replace('.', "_").to_uppercase())
    }

    /// Returns its name on the command line, for the commands that it concerns.
    #[must_use]
    pub fn flag(&self) -> String {
        let leaf = self.leaf().replace('_', "-");
        match self.section() {
            section @ ("log" | "probe") => format!("{section}-{leaf}"),
            _ => leaf,
        }
    }
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;

/// A segment consists of at least eight seglets.
const SEGMENT_BYTES: Kind = Kind::Bytes(8 * SEGLET_BYTES, GIB);
const MEMORY: Kind = Kind::Bytes(16 * MIB, 64 * TIB);
const DISK: Kind = Kind::Bytes(16 * MIB, 1024 * TIB);
const REPLICAS: Kind = Kind::Count(0, 16);
const MIN_REPLICAS: Kind = Kind::Count(1, 16);
const SHARDS: Kind = Kind::Count(1, 128);
const CLEANERS: Kind = Kind::Count(1, 16);
const POLLING: Kind = Kind::Choice(Polling::WORDS);

const fn entry(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    meaning: &'static str,
) -> Key {
    Key { name, kind, default, meaning }
}

/// All keys, by section.
pub const KEYS: &[Key] = &[
    entry(
        "coordinators",
        Kind::Addresses,
        Some("127.0.0.1:7070"),
        "The addresses of the coordinators. Servers and clients find the leading one.",
    ),
    entry(
        "cluster.replicas",
        REPLICAS,
        Some("2"),
        "How many replicas of each segment are kept on backups, in addition to the copy in memory. 0 makes a cache, which loses all data when it stops. Fixed when the cluster is created.",
    ),
    entry(
        "cluster.min_replicas",
        MIN_REPLICAS,
        Some("1"),
        "The least number of replicas for an acknowledged write. While fewer than `cluster.replicas` backups are available, writes go on with at least this many, and the missing replicas are made later. If it equals `cluster.replicas`, writes wait instead. This is the value at the creation of the cluster; `thunderhead cluster set min_replicas N` changes it later.",
    ),
    entry(
        "cluster.durability",
        Kind::Durability,
        Some("replicated"),
        "When a write is acknowledged. `replicated`: when it is in the memory of all its backups, which outlasts their processes. `interval:100ms`: the same, and the backups write it to their disks that much later. `synced`: when it is on their disks. Fixed when the cluster is created.",
    ),
    entry(
        "cluster.segment_bytes",
        SEGMENT_BYTES,
        Some("8MiB"),
        "The size of a full segment, the unit of cleaning and replication. A value may take an eighth of it, and at most 1 MiB. Fixed when the cluster is created.",
    ),
    entry(
        "cluster.self_backup",
        Kind::Flag,
        Some("false"),
        "Whether a server may keep replicas of its own segments: for a cluster on one machine. Fixed when the cluster is created.",
    ),
    entry(
        "coordinator.listen",
        Kind::Listen,
        Some("127.0.0.1:7070"),
        "The address on which the coordinator listens. 0.0.0.0 means all addresses of the machine.",
    ),
    entry(
        "coordinator.data",
        Kind::Path,
        Some("thunderhead-coordinator"),
        "The directory of the embedded metastore, which is a file `metastore` in it. Not used with etcd, ZooKeeper or `embedded:PATH`.",
    ),
    entry(
        "coordinator.metastore",
        Kind::Metastore,
        Some("embedded"),
        "Where the coordinator keeps the state of the cluster. `embedded`: in a file in `coordinator.data`, for one coordinator. `embedded:PATH`: in this file. `etcd:…` and `zookeeper:…`: in an external store, so that several coordinators can replace each other.",
    ),
    entry(
        "coordinator.root",
        Kind::Text,
        Some("thunderhead/main"),
        "The path in etcd or ZooKeeper below which the state of the cluster is kept. Clusters that share a store need different paths.",
    ),
    entry(
        "coordinator.existing",
        Kind::Flag,
        Some("false"),
        "Whether the coordinator leads only a cluster that its metastore already holds. Otherwise it creates a new cluster in an empty metastore, as at the first start. Set this after the first start if the disk of the metastore may not be mounted.",
    ),
    entry(
        "coordinator.lease_ttl",
        Kind::Time(10 * SECOND, DAY),
        Some("5m"),
        "How long a client may be silent before the cluster ends its lease and forgets which of its updates were done.",
    ),
    entry(
        "coordinator.leader_ttl",
        Kind::Time(SECOND, 20 * SECOND),
        Some("5s"),
        "How long after the death of the leading coordinator another one takes over.",
    ),
    entry(
        "server.listen",
        Kind::Listen,
        Some("127.0.0.1:7071"),
        "The address on which the first shard listens. The others use the next ports. With port 0, each shard uses any free port.",
    ),
    entry(
        "server.advertise",
        Kind::Host,
        None,
        "The host name or address under which other machines reach this server. If it is not set: the address of `server.listen`. It must be set if that is 0.0.0.0 or [::].",
    ),
    entry(
        "server.data",
        Kind::Path,
        Some("thunderhead-server"),
        "The directory of the server's storage. A server keeps its identity as long as it keeps this directory.",
    ),
    entry(
        "server.memory",
        MEMORY,
        Some("1GiB"),
        "The memory for objects, indexes and the cleaners' work, of all shards together.",
    ),
    entry(
        "server.populate",
        Kind::Flag,
        Some("false"),
        "Whether the server takes all of its memory from the kernel before it serves. This delays each start, also after a crash, by some tenths of a second for each GiB, and by seconds on some virtual machines. Otherwise the kernel provides each page at its first write, and that write waits: 0.2 ms for 2 MiB, and much longer on some virtual machines.",
    ),
    entry(
        "server.shards",
        SHARDS,
        Some("1"),
        "The number of shards. Each has its own thread, so use at most one for each core that is not needed for cleaners.",
    ),
    entry("server.cleaners", CLEANERS, Some("1"), "The number of cleaner threads of each shard."),
    entry(
        "server.backup",
        Kind::Flag,
        Some("true"),
        "Whether the server keeps replicas of other servers' segments.",
    ),
    entry(
        "server.backup_bytes",
        DISK,
        None,
        "The disk space for replicas, allocated when the storage is created. If it is not set: three times `server.memory` for each replica that the cluster keeps.",
    ),
    entry(
        "server.backup_populate",
        Kind::Flag,
        Some("false"),
        "Whether the whole disk space for replicas is written once when the storage is created, which takes as long as the disk needs for that many bytes. Otherwise the file system records the first write to each piece, and a synced write takes up to twice as long until every piece has been written.",
    ),
    entry(
        "server.new_storage",
        Kind::Flag,
        Some("false"),
        "Whether the server creates a new storage, as a new server, if the cluster knows of a storage in this directory that is missing. Otherwise it reports the missing storage and stops, because a disk may not be mounted.",
    ),
    entry(
        "server.buffer_directory",
        Kind::Path,
        Some("/dev/shm"),
        "The directory of the replicas' buffers. It must be on a file system in memory, because the buffers must outlast the process, and have room for them (128 MiB with segments of 8 MiB). Containers often have only 64 MiB there by default.",
    ),
    entry(
        "server.host",
        Kind::Host,
        None,
        "The name of the machine. No two replicas of a segment are placed on the same machine. If it is not set: the host name of the system.",
    ),
    entry(
        "server.rack",
        Kind::Text,
        None,
        "The rack of the machine. The replicas of a segment are placed in different racks. If it is not set, placement ignores racks.",
    ),
    entry(
        "server.polling",
        POLLING,
        Some("adaptive"),
        "How a shard's thread waits when it has no work. `always`: it polls all the time and takes a whole core. `adaptive`: it polls for a while, then sleeps. `never`: it sleeps at once.",
    ),
    entry(
        "server.shm",
        Kind::Flag,
        Some("true"),
        "Whether clients on the same machine may use shared memory to talk to this server.",
    ),
    entry(
        "server.redis",
        Kind::Listen,
        None,
        "The address on which the server serves Redis's clients. All servers with this setting serve the same keys. If it is not set, the server does not serve them. Every machine that reaches the address can read and write all keys, so an address of other machines needs `server.redis_password`.",
    ),
    entry(
        "server.redis_password",
        Kind::Text,
        None,
        "The password that Redis's clients must give. All servers need the same one. Other users of the machine can see it if it is on the command line, but not if it is in the environment or in the file.",
    ),
    entry(
        "server.redis_cluster",
        Kind::Listen,
        None,
        "The first address on which the server serves Redis's clients that know the slots of keys (the cluster port). It needs `server.redis`. A server uses as many ports from this one on as it has shards, times `server.redis_parts`.",
    ),
    entry(
        "server.redis_announce",
        Kind::Text,
        None,
        "The address under which Redis's clients reach the cluster ports: HOST, or HOST:PORT if the first port has another number for them. If it is not set: the address of `server.redis_cluster`, or that of the server if it listens on all addresses.",
    ),
    entry(
        "server.redis_parts",
        Kind::Count(1, 64),
        Some("1"),
        "The number of parts into which the keys of Redis's clients are divided. The cluster records it when it first has such keys, and it cannot be changed later. All servers need the same number. Clients of the plain port (`server.redis`) use all parts through any server, but no command changes keys of several parts together.",
    ),
    entry(
        "dev.listen",
        Kind::Listen,
        Some("127.0.0.1:7070"),
        "The address on which the coordinator of `thunderhead dev` listens. Its servers use the next ports.",
    ),
    entry(
        "dev.data",
        Kind::Path,
        Some("thunderhead-data"),
        "The directory in which `thunderhead dev` keeps all its data.",
    ),
    entry(
        "dev.ephemeral",
        Kind::Flag,
        Some("false"),
        "Whether to run a temporary store for tests: one server with 64 MiB of memory on a free port, without replicas. It has no files, and all its data is gone when its process ends, however that ends.",
    ),
    entry(
        "dev.servers",
        Kind::Count(1, 64),
        Some("1"),
        "The number of servers of `thunderhead dev`.",
    ),
    entry(
        "dev.replicas",
        REPLICAS,
        None,
        "How many replicas of each segment are kept. If it is not set: with one server 1, which it keeps itself; else 2, or the number of the other servers if that is smaller.",
    ),
    entry("dev.memory", MEMORY, Some("512MiB"), "The memory of each server."),
    entry("dev.shards", SHARDS, Some("1"), "The number of shards of each server."),
    entry("dev.cleaners", CLEANERS, Some("1"), "The number of cleaner threads of each shard."),
    entry(
        "dev.backup_bytes",
        DISK,
        None,
        "The disk space of each server for replicas, allocated as it is used. If it is not set: three times `dev.memory` for each replica.",
    ),
    entry(
        "dev.redis",
        Kind::Listen,
        None,
        "The address on which `thunderhead dev` serves Redis's clients, such as 127.0.0.1:6379: an address that only this machine reaches. If it is not set, it does not serve them.",
    ),
    entry(
        "dev.redis_cluster",
        Kind::Listen,
        None,
        "The first address on which `thunderhead dev` serves Redis's clients that know the slots of keys. It needs `dev.redis`. Each server uses as many ports as it has shards, times `dev.redis_parts`.",
    ),
    entry("dev.redis_parts", Kind::Count(1, 64), Some("1"), "See `server.redis_parts`."),
    entry("dev.new_storage", Kind::Flag, Some("false"), "See `server.new_storage`."),
    entry("dev.buffer_directory", Kind::Path, Some("/dev/shm"), "See `server.buffer_directory`."),
    entry("dev.durability", Kind::Durability, Some("replicated"), "See `cluster.durability`."),
    entry("dev.segment_bytes", SEGMENT_BYTES, Some("8MiB"), "See `cluster.segment_bytes`."),
    entry("dev.polling", POLLING, Some("adaptive"), "See `server.polling`."),
    entry("dev.shm", Kind::Flag, Some("true"), "See `server.shm`."),
    entry(
        "client.deadline",
        Kind::Time(1, DAY),
        Some("10s"),
        "The time limit of an operation, retries included.",
    ),
    entry(
        "probe.interval",
        Kind::Time(0, MINUTE),
        Some("100ms"),
        "How often each server, and the coordinator, probes one server to check that it is alive. With 0s they send no probes, and a crashed server is not noticed until it restarts. Coordinators and servers need the same value.",
    ),
    entry(
        "probe.timeout",
        Kind::Time(10, MINUTE),
        Some("150ms"),
        "How long a server may take to answer a probe. After that the coordinator probes it for another 250 ms, then declares it crashed.",
    ),
    entry(
        "log.level",
        Kind::Choice(LogLevel::WORDS),
        None,
        "The least severe level that is logged. If it is not set: warn for `thunderhead dev`, info for servers and coordinators.",
    ),
    entry(
        "log.format",
        Kind::Choice(LogFormat::WORDS),
        Some("text"),
        "The format of log lines: text for people or JSON for programs.",
    ),
];

/// Returns the key with a name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Returns the key whose name is most like this one.
#[must_use]
pub fn nearest(name: &str) -> &'static Key {
    // TOML nests a section that is written inside another, but the user meant it to stand beside
    // it.
    let name = match name.split_once('.') {
        Some((_, rest)) if rest.contains('.') => rest,
        _ => name,
    };
    let (section, leaf) = name.split_once('.').unwrap_or(("", name));
    let far = |key: &Key| {
        let whole = distance(name, key.name);
        // A key in the wrong section is often spelled correctly.
        let elsewhere = 2 * distance(leaf, key.leaf()) + usize::from(section != key.section());
        whole.min(elsewhere)
    };
    // The table is not empty, and users set its first key most often.
    KEYS.iter().min_by_key(|key| far(key)).unwrap_or(&KEYS[0])
}

/// Returns the number of letters to insert, delete, replace or swap with their neighbour to turn
/// one name into the other.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    // A name typed by hand is short, so the rest of a long one does not matter.
    let [a, b]: [Vec<char>; 2] = [a, b].map(|it| it.to_lowercase().chars().take(64).collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_allowed_and_names_are_unique() {
        let mut names = std::collections::BTreeSet::new();
        for key in KEYS {
            if let Some(default) = key.default {
                let value = key.kind.parse(default).unwrap_or_else(|e| panic!("{}: {e}", key.name));
                assert_eq!(value.to_string(), default, "{}: write it as it is shown", key.name);
            }
            assert!(names.insert(key.variable()), "{}", key.variable());
            assert!(key.meaning.ends_with('.'), "{}", key.name);
        }
    }

    #[test]
    fn the_nearest_key_corrects_a_misspelled_one() {
        let cases = [
            ("server.memroy", "server.memory"),
            ("server.Memory", "server.memory"),
            ("memory", "server.memory"),
            ("cluster.metastore", "coordinator.metastore"),
            ("coordinator", "coordinators"),
            ("sever.shards", "server.shards"),
            ("server.backupbytes", "server.backup_bytes"),
            ("log.levle", "log.level"),
        ];
        for (name, expected) in cases {
            assert_eq!(nearest(name).name, expected, "{name}");
        }
        let _ = nearest(&"x".repeat(100_000));
    }
}
