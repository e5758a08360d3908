//! The table of keys: the single source of their names, values, defaults and meaning.

use crate::typed::SEGLET_BYTES;
use crate::value::{Kind, LogFormat, LogLevel, Polling};

/// Something that can be set.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its section and name: `server.memory`; those that concern all have no section.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// Its value if nobody sets it; nothing where that is not one value. Then the meaning says what
    /// happens.
    pub default: Option<&'static str>,
    /// What it means, in sentences.
    pub meaning: &'static str,
}

impl Key {
    /// The part before the dot; empty for those that concern all.
    #[must_use]
    pub fn section(&self) -> &'static str {
        self.name.split_once('.').map_or("", |(section, _)| section)
    }

    /// The part behind the dot.
    #[must_use]
    pub fn leaf(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(_, leaf)| leaf)
    }

    /// Its name in the environment.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("THUNDERHEAD_{}", self.name.replace('.', "_").to_uppercase())
    }

    /// Its name on the command line, of the commands that it is meant for.
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

/// Segments are made of seglets: eight at least.
const SEGMENT_BYTES: Kind = Kind::Bytes(8 * SEGLET_BYTES, GIB);
const MEMORY: Kind = Kind::Bytes(16 * MIB, 64 * TIB);
const DISK: Kind = Kind::Bytes(16 * MIB, 1024 * TIB);
const REPLICAS: Kind = Kind::Count(0, 16);
const MIN_REPLICAS: Kind = Kind::Count(1, 16);
const SHARDS: Kind = Kind::Count(1, 256);
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

/// All of them, by section.
pub const KEYS: &[Key] = &[
    entry(
        "coordinators",
        Kind::Addresses,
        Some("127.0.0.1:7070"),
        "Where the coordinators listen; servers and clients find the one that leads.",
    ),
    entry(
        "cluster.replicas",
        REPLICAS,
        Some("2"),
        "Replicas of each segment on backups, beside the one in memory. 0: a cache, which forgets all when it stops. Decided when the cluster is made.",
    ),
    entry(
        "cluster.min_replicas",
        MIN_REPLICAS,
        Some("1"),
        "Replicas without which no write is acknowledged: while fewer than `cluster.replicas` servers are there for them, writes go on with so many, and the others are made up for later. As many as `cluster.replicas`: writes wait instead. It is what a cluster begins with; `thunderhead cluster set min_replicas N` changes it later.",
    ),
    entry(
        "cluster.durability",
        Kind::Durability,
        Some("replicated"),
        "When a write is acknowledged. `replicated`: in the memory of all backups, which outlasts their processes. `interval:100ms`: the same, and on their disks that much later. `synced`: on their disks. Decided when the cluster is made.",
    ),
    entry(
        "cluster.segment_bytes",
        SEGMENT_BYTES,
        Some("8MiB"),
        "Bytes of a full segment, the unit of cleaning and replication. Values may have an eighth of it, and 1 MiB at most. Decided when the cluster is made.",
    ),
    entry(
        "cluster.self_backup",
        Kind::Flag,
        Some("false"),
        "A server may keep a replica of its own segments: for a cluster of one machine. Decided when the cluster is made.",
    ),
    entry(
        "coordinator.listen",
        Kind::Listen,
        Some("127.0.0.1:7070"),
        "Where the coordinator listens. 0.0.0.0 is all of the machine's addresses.",
    ),
    entry(
        "coordinator.data",
        Kind::Path,
        Some("thunderhead-coordinator"),
        "The directory of the embedded metastore, in a file `metastore`. Not used with etcd, ZooKeeper or `embedded:PATH`.",
    ),
    entry(
        "coordinator.metastore",
        Kind::Metastore,
        Some("embedded"),
        "Where it keeps what must not be lost. `embedded`: a file in `coordinator.data`, for one coordinator. `embedded:PATH`: this file. `etcd:…` and `zookeeper:…`: several coordinators may stand in for each other.",
    ),
    entry(
        "coordinator.root",
        Kind::Text,
        Some("thunderhead/main"),
        "Below which path of etcd or ZooKeeper. Clusters that share one have different roots.",
    ),
    entry(
        "coordinator.existing",
        Kind::Flag,
        Some("false"),
        "Whether it leads only a cluster that its metastore holds already. Otherwise it founds a new cluster in a metastore that holds none, as at the first start; set this afterwards where the disk of the metastore may not be mounted.",
    ),
    entry(
        "coordinator.lease_ttl",
        Kind::Time(10 * SECOND, DAY),
        Some("5m"),
        "How long a client may be silent before the cluster forgets which of its updates were done.",
    ),
    entry(
        "coordinator.leader_ttl",
        Kind::Time(SECOND, 20 * SECOND),
        Some("5s"),
        "How long after a leading coordinator died another one leads.",
    ),
    entry(
        "server.listen",
        Kind::Listen,
        Some("127.0.0.1:7071"),
        "Where the first shard listens; the others follow on the next ports. Port 0: any that are free.",
    ),
    entry(
        "server.advertise",
        Kind::Host,
        None,
        "The host name or address under which others reach this server. If it is not set: the one it listens on; it must be set if that is 0.0.0.0 or [::].",
    ),
    entry(
        "server.data",
        Kind::Path,
        Some("thunderhead-server"),
        "The directory of its storage. A server keeps its identity as long as it keeps this.",
    ),
    entry(
        "server.memory",
        MEMORY,
        Some("1GiB"),
        "Memory for objects, indexes and the cleaners' work, of all shards together.",
    ),
    entry(
        "server.populate",
        Kind::Flag,
        Some("false"),
        "Whether it has all of that memory from the kernel before it serves, which takes some tenths of a second for each GiB, and seconds on some virtual machines: it starts later by that, also after a crash. Otherwise pages come when they are first written, and who writes waits for each: 0.2 ms for 2 MiB, on some virtual machines much more.",
    ),
    entry(
        "server.shards",
        SHARDS,
        Some("1"),
        "Shards, each with a thread of its own. One for each core that is not a cleaner's, at most.",
    ),
    entry("server.cleaners", CLEANERS, Some("1"), "Cleaner threads of each shard."),
    entry("server.backup", Kind::Flag, Some("true"), "Whether it keeps replicas for others."),
    entry(
        "server.backup_bytes",
        DISK,
        None,
        "Disk space for replicas, taken when the storage is made. If it is not set: three times its memory for each replica that the cluster keeps.",
    ),
    entry(
        "server.backup_populate",
        Kind::Flag,
        Some("false"),
        "Whether all of that space is written once when the storage is made, which takes as long as the disk needs for so much. Otherwise a file system notes of each piece when it is first written, and a synced write takes up to twice as long until all were.",
    ),
    entry(
        "server.new_storage",
        Kind::Flag,
        Some("false"),
        "Whether it begins a new storage, as a new server, where the cluster knows of one in this directory that is not there. Otherwise it ends and says so: a disk may not be mounted.",
    ),
    entry(
        "server.buffer_directory",
        Kind::Path,
        Some("/dev/shm"),
        "Where the buffers of replicas are, in memory that must outlast the process: a directory of a file system that lives in memory, with room for them (128 MiB with segments of 8 MiB). Containers often have 64 MiB there unless told otherwise.",
    ),
    entry(
        "server.host",
        Kind::Host,
        None,
        "The machine it is on: no two replicas of a segment are on one. If it is not set: the machine's name.",
    ),
    entry(
        "server.rack",
        Kind::Text,
        None,
        "The rack it is in: replicas of a segment are in different ones. If it is not set, racks do not matter.",
    ),
    entry(
        "server.polling",
        POLLING,
        Some("adaptive"),
        "What a shard's thread does when it has nothing to do: `always` looks again at once and takes a whole core, `adaptive` looks for a while and sleeps then, `never` sleeps at once.",
    ),
    entry(
        "server.shm",
        Kind::Flag,
        Some("true"),
        "Whether clients on the same machine may talk to it over shared memory.",
    ),
    entry(
        "dev.listen",
        Kind::Listen,
        Some("127.0.0.1:7070"),
        "Where the coordinator of `thunderhead dev` listens; its servers follow on the next ports.",
    ),
    entry(
        "dev.data",
        Kind::Path,
        Some("thunderhead-data"),
        "The directory where `thunderhead dev` keeps everything.",
    ),
    entry(
        "dev.ephemeral",
        Kind::Flag,
        Some("false"),
        "A temporary store for tests: one server with 64 MiB of memory on a free port, without replicas. It has no files: nothing of it is left when its process ends, however that ends.",
    ),
    entry("dev.servers", Kind::Count(1, 64), Some("1"), "Servers of `thunderhead dev`."),
    entry(
        "dev.replicas",
        REPLICAS,
        None,
        "Replicas of each segment. If it is not set: 1 with one server, which backs itself up; else 2, or as many as there are other servers.",
    ),
    entry("dev.memory", MEMORY, Some("512MiB"), "Memory of each server."),
    entry("dev.shards", SHARDS, Some("1"), "Shards of each server."),
    entry("dev.cleaners", CLEANERS, Some("1"), "Cleaner threads of each shard."),
    entry(
        "dev.backup_bytes",
        DISK,
        None,
        "Disk space of each server for replicas, taken as it is used. If it is not set: three times its memory for each replica.",
    ),
    entry("dev.new_storage", Kind::Flag, Some("false"), "As `server.new_storage`."),
    entry("dev.buffer_directory", Kind::Path, Some("/dev/shm"), "As `server.buffer_directory`."),
    entry("dev.durability", Kind::Durability, Some("replicated"), "As `cluster.durability`."),
    entry("dev.segment_bytes", SEGMENT_BYTES, Some("8MiB"), "As `cluster.segment_bytes`."),
    entry("dev.polling", POLLING, Some("adaptive"), "As `server.polling`."),
    entry("dev.shm", Kind::Flag, Some("true"), "As `server.shm`."),
    entry(
        "client.deadline",
        Kind::Time(1, DAY),
        Some("10s"),
        "How long an operation may take, with everything that is in its way.",
    ),
    entry(
        "probe.interval",
        Kind::Time(0, MINUTE),
        Some("100ms"),
        "How often each server, and the coordinator, asks one server whether it is there. 0s: never; then nobody is given up before it comes again. Coordinators and servers have the same.",
    ),
    entry(
        "probe.timeout",
        Kind::Time(10, MINUTE),
        Some("150ms"),
        "How long a server has for its answer before the coordinator is told, which looks for it by itself for 250 ms more and then gives it up.",
    ),
    entry(
        "log.level",
        Kind::Choice(LogLevel::WORDS),
        None,
        "What is logged. If it is not set: warn by `thunderhead dev`, info by servers and coordinators.",
    ),
    entry(
        "log.format",
        Kind::Choice(LogFormat::WORDS),
        Some("text"),
        "How a line of the log looks: for people or for programs.",
    ),
];

/// The key with a name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The key whose name is most like this one.
#[must_use]
pub fn nearest(name: &str) -> &'static Key {
    // What is below a section of a section was meant to be beside it.
    let name = match name.split_once('.') {
        Some((_, rest)) if rest.contains('.') => rest,
        _ => name,
    };
    let (section, leaf) = name.split_once('.').unwrap_or(("", name));
    let far = |key: &Key| {
        let whole = distance(name, key.name);
        // What stands in the wrong section is often spelled right.
        let elsewhere = 2 * distance(leaf, key.leaf()) + usize::from(section != key.section());
        whole.min(elsewhere)
    };
    // The table is not empty, and its first key is what is set most often.
    KEYS.iter().min_by_key(|key| far(key)).unwrap_or(&KEYS[0])
}

/// Letters to insert, delete, replace or swap with their neighbour to get from one to the other.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    // A name that was written by a hand is short; the rest of a long one changes nothing.
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
    fn the_nearest_key_is_what_was_meant() {
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
