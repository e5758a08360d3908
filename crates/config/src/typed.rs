//! The configuration as plain structs.

use crate::address::{Address, parse_host};
use crate::error::Problem;
use crate::keys::by_name;
use crate::sources::{Effective, Origin};
use crate::units::bytes_text;
use crate::value::{Durability, LogFormat, LogLevel, Metastore, Polling, Value};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The size of a seglet. The server cannot use segments that are not a multiple of it.
pub(crate) const SEGLET_BYTES: u64 = 64 << 10;

/// The whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The configuration of a coordinator.
    pub coordinator: CoordinatorConfig,
    /// The configuration of a server.
    pub server: ServerConfig,
    /// The configuration of `thunderhead dev`.
    pub dev: DevConfig,
    /// The configuration of a client.
    pub client: ClientConfig,
    /// The configuration of the program's log.
    pub log: LogConfig,
}

/// The settings of a cluster, fixed when it is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Replicas of each segment on backups.
    pub replicas: u32,
    /// The least number of replicas for an acknowledged write, when the cluster begins.
    pub min_replicas: u32,
    /// When a write is acknowledged. `wire::control::Settings` carries its text.
    pub durability: Durability,
    /// Bytes of a full segment.
    pub segment_bytes: u32,
    /// Whether a server may back up its own segments.
    pub self_backup: bool,
}

/// The configuration of a coordinator.
#[derive(Clone, Debug, PartialEq)]
pub struct CoordinatorConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The addresses of all coordinators.
    pub coordinators: Vec<Address>,
    /// The metastore.
    pub metastore: Metastore,
    /// The directory of an embedded metastore without a path of its own.
    pub data: PathBuf,
    /// The path in etcd or ZooKeeper below which the cluster's data is kept.
    pub root: String,
    /// Whether it must not create a cluster.
    pub existing: bool,
    /// How long a client may be silent before its lease ends.
    pub lease_ttl: Duration,
    /// How long a leadership lasts after its last renewal.
    pub leader_ttl: Duration,
    /// The cluster's settings, if this coordinator creates the cluster.
    pub cluster: ClusterConfig,
    /// The probes that detect crashed servers.
    pub probe: ProbeConfig,
    /// The configuration of the program's log.
    pub log: LogConfig,
}

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// The addresses of the coordinators.
    pub coordinators: Vec<Address>,
    /// The address of the first shard. The others listen on the next ports, or each on any free
    /// port if the port is 0.
    pub listen: SocketAddr,
    /// The host under which others reach it, if that differs from `listen`.
    pub advertise: Option<String>,
    /// The directory of its storage.
    pub data: PathBuf,
    /// Memory of all shards together.
    pub memory_bytes: u64,
    /// Whether it populates all of its memory before it serves.
    pub populate: bool,
    /// Shards.
    pub shards: u32,
    /// Cleaner threads of each shard.
    pub cleaners: u32,
    /// Whether it has a backup.
    pub backup: bool,
    /// Disk space for replicas; [`ServerConfig::disk_bytes`] has the default.
    pub backup_bytes: Option<u64>,
    /// Whether the whole space is written once when the storage is created.
    pub backup_populate: bool,
    /// Whether it creates a new storage if the cluster knows of one in this directory that is
    /// missing.
    pub new_storage: bool,
    /// The directory of the replicas' buffers.
    pub buffer_directory: PathBuf,
    /// The machine's name for placement; the system's host name if it is not set.
    pub host: Option<String>,
    /// The machine's rack.
    pub rack: Option<String>,
    /// How a thread without work waits.
    pub polling: Polling,
    /// Whether it offers shared memory to clients.
    pub shm: bool,
    /// The address for Redis's clients, if it serves them.
    pub redis: Option<SocketAddr>,
    /// The password that they must give.
    pub redis_password: Option<String>,
    /// The first address for clients that know the slots of keys, if it serves them.
    pub redis_cluster: Option<SocketAddr>,
    /// The host under which they reach it, and the first port if it is another one.
    pub redis_announce: Option<(String, Option<u16>)>,
    /// The number of parts of their keys.
    pub redis_parts: u32,
    /// The probes that detect crashed servers.
    pub probe: ProbeConfig,
    /// The configuration of the program's log.
    pub log: LogConfig,
}

/// The configuration of `thunderhead dev`.
#[derive(Clone, Debug, PartialEq)]
pub struct DevConfig {
    /// The address of the coordinator. The servers listen on the next ports, or each on any free
    /// port if the port is 0.
    pub listen: SocketAddr,
    /// The directory of all data.
    pub data: PathBuf,
    /// Whether all data is lost when it ends: no directory and no replicas.
    pub is_ephemeral: bool,
    /// Servers.
    pub servers: u32,
    /// Memory of each server.
    pub memory_bytes: u64,
    /// Shards of each server.
    pub shards: u32,
    /// Cleaner threads of each shard.
    pub cleaners: u32,
    /// Disk space of each server for replicas; [`DevConfig::disk_bytes`] has the default.
    pub backup_bytes: Option<u64>,
    /// Whether servers create a new storage if the cluster knows of one in their directory that is
    /// missing.
    pub new_storage: bool,
    /// The directory of the replicas' buffers.
    pub buffer_directory: PathBuf,
    /// How a thread without work waits.
    pub polling: Polling,
    /// Whether servers offer shared memory to clients.
    pub shm: bool,
    /// The address for Redis's clients, if they are served.
    pub redis: Option<SocketAddr>,
    /// The first address for clients that know the slots of keys, if they are served.
    pub redis_cluster: Option<SocketAddr>,
    /// The number of parts of their keys.
    pub redis_parts: u32,
    /// The cluster's settings. If they are not set, replicas and self-backup follow from the number
    /// of servers.
    pub cluster: ClusterConfig,
    /// The probes that detect crashed servers.
    pub probe: ProbeConfig,
    /// The configuration of the program's log.
    pub log: LogConfig,
}

/// The configuration of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConfig {
    /// The addresses of the coordinators.
    pub coordinators: Vec<Address>,
    /// The time limit of an operation.
    pub deadline: Duration,
}

/// The probes that detect crashed servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeConfig {
    /// The time between two probes; zero: no probes.
    pub interval: Duration,
    /// How long a server may take to answer a probe.
    pub timeout: Duration,
}

/// The configuration of the program's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The least severe level that is logged.
    pub level: LogLevel,
    /// The format of log lines.
    pub format: LogFormat,
}

impl ServerConfig {
    /// Returns the disk space for replicas, in a cluster with `replicas` replicas of each segment.
    #[must_use]
    pub fn disk_bytes(&self, replicas: u32) -> u64 {
        disk_bytes(self.backup_bytes, self.memory_bytes, replicas)
    }
}

impl DevConfig {
    /// Returns each server's disk space for replicas.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        disk_bytes(self.backup_bytes, self.memory_bytes, self.cluster.replicas)
    }
}

/// A log takes up to twice its memory on the backups for each replica, and once more while it is
/// rebuilt.
fn disk_bytes(said: Option<u64>, memory_bytes: u64, replicas: u32) -> u64 {
    said.unwrap_or_else(|| {
        memory_bytes.saturating_mul(3).saturating_mul(u64::from(replicas.max(1)))
    })
}

impl Config {
    pub(crate) fn of(effective: &Effective) -> Config {
        let it = Typed(effective);
        let format = it.word("log.format", LogFormat::of_word);
        let level = it.optional_word("log.level", LogLevel::of_word);
        let log = LogConfig { level: level.unwrap_or(LogLevel::Info), format };
        // During first trials, users need warnings, and the rest only on request.
        let log_of_dev = LogConfig { level: level.unwrap_or(LogLevel::Warn), format };
        let probe =
            ProbeConfig { interval: it.time("probe.interval"), timeout: it.time("probe.timeout") };
        Config {
            coordinator: CoordinatorConfig {
                listen: it.listen("coordinator.listen"),
                coordinators: it.addresses("coordinators"),
                metastore: it.metastore("coordinator.metastore"),
                data: it.text("coordinator.data").into(),
                root: it.text("coordinator.root"),
                existing: it.flag("coordinator.existing"),
                lease_ttl: it.time("coordinator.lease_ttl"),
                leader_ttl: it.time("coordinator.leader_ttl"),
                cluster: ClusterConfig {
                    replicas: it.count("cluster.replicas"),
                    min_replicas: it.count("cluster.min_replicas"),
                    durability: it.durability("cluster.durability"),
                    segment_bytes: it.segment_bytes("cluster.segment_bytes"),
                    self_backup: it.flag("cluster.self_backup"),
                },
                probe,
                log,
            },
            server: ServerConfig {
                coordinators: it.addresses("coordinators"),
                listen: it.listen("server.listen"),
                advertise: it.optional_text("server.advertise"),
                data: it.text("server.data").into(),
                memory_bytes: it.bytes("server.memory"),
                populate: it.flag("server.populate"),
                shards: it.count("server.shards"),
                cleaners: it.count("server.cleaners"),
                backup: it.flag("server.backup"),
                backup_bytes: it.optional_bytes("server.backup_bytes"),
                backup_populate: it.flag("server.backup_populate"),
                new_storage: it.flag("server.new_storage"),
                buffer_directory: it.text("server.buffer_directory").into(),
                host: it.optional_text("server.host"),
                rack: it.optional_text("server.rack"),
                polling: it.word("server.polling", Polling::of_word),
                shm: it.flag("server.shm"),
                redis: it.optional_listen("server.redis"),
                redis_password: it.optional_text("server.redis_password"),
                redis_cluster: it.optional_listen("server.redis_cluster"),
                redis_announce: it
                    .optional_text("server.redis_announce")
                    .and_then(|text| announced(&text)),
                redis_parts: it.count("server.redis_parts"),
                probe,
                log,
            },
            dev: dev(&it, probe, log_of_dev),
            client: ClientConfig {
                coordinators: it.addresses("coordinators"),
                deadline: it.time("client.deadline"),
            },
            log,
        }
    }
}

/// The memory of a temporary store. The whole process stays below 100 MB.
const EPHEMERAL_BYTES: u64 = 64 << 20;

/// The segment size of a temporary store: its memory has 64 segments.
const EPHEMERAL_SEGMENT_BYTES: u32 = 1 << 20;

fn dev(it: &Typed<'_>, probe: ProbeConfig, log: LogConfig) -> DevConfig {
    let servers = it.count("dev.servers");
    let possible = if servers == 1 { 1 } else { (servers - 1).min(2) };
    let is_ephemeral = it.flag("dev.ephemeral");
    let usual = if is_ephemeral { 0 } else { possible };
    let replicas = it.optional_count("dev.replicas").unwrap_or(usual);
    let (mut listen, mut memory_bytes) = (it.listen("dev.listen"), it.bytes("dev.memory"));
    if is_ephemeral && it.is_default("dev.listen") {
        listen.set_port(0);
    }
    if is_ephemeral && it.is_default("dev.memory") {
        memory_bytes = EPHEMERAL_BYTES;
    }
    let segment_bytes = match is_ephemeral && it.is_default("dev.segment_bytes") {
        true => EPHEMERAL_SEGMENT_BYTES,
        false => it.segment_bytes("dev.segment_bytes"),
    };
    DevConfig {
        listen,
        data: it.text("dev.data").into(),
        is_ephemeral,
        servers,
        memory_bytes,
        shards: it.count("dev.shards"),
        cleaners: it.count("dev.cleaners"),
        backup_bytes: it.optional_bytes("dev.backup_bytes"),
        new_storage: it.flag("dev.new_storage"),
        buffer_directory: it.text("dev.buffer_directory").into(),
        polling: it.word("dev.polling", Polling::of_word),
        shm: it.flag("dev.shm"),
        redis: it.optional_listen("dev.redis"),
        redis_cluster: it.optional_listen("dev.redis_cluster"),
        redis_parts: it.count("dev.redis_parts"),
        cluster: ClusterConfig {
            replicas,
            min_replicas: 1,
            durability: it.durability("dev.durability"),
            segment_bytes,
            self_backup: servers == 1 && replicas > 0,
        },
        probe,
        log,
    }
}

/// Reads HOST or HOST:PORT.
fn announced(text: &str) -> Option<(String, Option<u16>)> {
    match (text.parse::<Address>(), parse_host(text)) {
        (_, Ok(host)) => Some((host, None)),
        (Ok(Address { host, port }), _) => Some((host, Some(port))),
        (Err(_), Err(_)) => None,
    }
}

/// Returns the problems of values that are allowed one by one, but not together.
pub(crate) fn contradictions(effective: &Effective) -> Vec<Problem> {
    let config = Config::of(effective);
    let mut problems = Vec::new();
    let mut say = |name: &str, what: String| {
        let setting = effective.get(name);
        let place = setting.map_or_else(String::new, |it| it.origin.to_string());
        let text = setting.and_then(|it| it.value.as_ref()).map(Value::to_string);
        if let Some(key) = by_name(name) {
            problems.push(Problem::value(place, key, &text.unwrap_or_default(), what));
        }
    };
    let Config { server, dev, coordinator, .. } = &config;
    if server.listen.ip().is_unspecified() && server.advertise.is_none() {
        let what = "other machines cannot connect to this address; set server.advertise to the host \
                    under which they reach this server";
        say("server.listen", what.to_owned());
    }
    let is_open = |redis: Option<SocketAddr>| redis.is_some_and(|it| !it.ip().is_loopback());
    if is_open(server.redis) && server.redis_password.is_none() {
        let what = "every machine that reaches this address could read and write all keys; set \
                    server.redis_password";
        say("server.redis", what.to_owned());
    }
    let is_open_dev = is_open(dev.redis) || is_open(dev.redis_cluster);
    if is_open(server.redis_cluster) && server.redis_password.is_none() {
        let what = "every machine that reaches this address could read and write all keys; set \
                    server.redis_password";
        say("server.redis_cluster", what.to_owned());
    }
    for (name, needs, lacks) in [
        ("server.redis_cluster", "server.redis", server.redis.is_none()),
        ("dev.redis_cluster", "dev.redis", dev.redis.is_none()),
    ] {
        let is_set = effective.get(name).is_some_and(|it| it.value.is_some());
        if is_set && lacks {
            say(name, format!("it needs {needs}; set both"));
        }
    }
    let announce = effective.get("server.redis_announce").and_then(|it| it.value.as_ref());
    if announce.is_some() && server.redis_announce.is_none() {
        say("server.redis_announce", "write HOST or HOST:PORT".to_owned());
    }
    if is_open_dev {
        let what = "other machines could read and write all keys; use an address of this machine \
                    alone, such as 127.0.0.1:6379";
        say("dev.redis", what.to_owned());
    }
    if dev.is_ephemeral {
        let is_set = |name| effective.get(name).is_some_and(|it| it.origin != Origin::Default);
        for name in
            ["dev.data", "dev.servers", "dev.replicas", "dev.backup_bytes", "dev.durability"]
        {
            if is_set(name) {
                let what = "a temporary store (dev.ephemeral) has one server and keeps nothing; remove this setting";
                say(name, what.to_owned());
            }
        }
        if dev.memory_bytes > EPHEMERAL_BYTES {
            let what = format!("a temporary store has at most {}", bytes_text(EPHEMERAL_BYTES));
            say("dev.memory", what);
        }
    }
    let beyond = |listen: SocketAddr, more: u32| u32::from(listen.port()) + more > 65_535;
    if server.listen.port() != 0 && beyond(server.listen, server.shards - 1) {
        say(
            "server.listen",
            format!("no ports are left for {} shards; use a lower port", server.shards),
        );
    }
    let shards = dev.servers * dev.shards;
    if dev.listen.port() != 0 && beyond(dev.listen, shards) {
        say("dev.listen", format!("no ports are left for {shards} shards; use a lower port"));
    }
    let ClusterConfig { replicas, min_replicas, .. } = coordinator.cluster;
    if min_replicas > replicas.max(1) {
        let what = format!("it must not exceed cluster.replicas, which is {replicas}");
        say("cluster.min_replicas", what);
    }
    let possible = if dev.servers == 1 { 1 } else { dev.servers - 1 };
    if dev.cluster.replicas > possible {
        let what = format!("{} servers can keep at most {possible} replicas", dev.servers);
        say("dev.replicas", what);
    }
    for (key, bytes) in [
        ("cluster.segment_bytes", coordinator.cluster.segment_bytes),
        ("dev.segment_bytes", dev.cluster.segment_bytes),
    ] {
        if !u64::from(bytes).is_multiple_of(SEGLET_BYTES) {
            say(key, format!("{bytes} is not a multiple of {}", bytes_text(SEGLET_BYTES)));
        }
    }
    let needed = u64::from(dev.cluster.segment_bytes) * u64::from(dev.shards) * 8;
    if dev.memory_bytes < needed {
        let what = format!(
            "{} shards with segments of {} need at least {}; raise it or lower dev.segment_bytes",
            dev.shards,
            bytes_text(u64::from(dev.cluster.segment_bytes)),
            bytes_text(needed)
        );
        say("dev.memory", what);
    }
    problems
}

/// Reads values by their types. A panic here is a bug in the program: a key of the table always has
/// a value of its kind, and either a default or an optional type.
struct Typed<'a>(&'a Effective);

macro_rules! values {
    ($($name:ident, $optional:ident: $variant:ident => $type:ty;)*) => {
        $(
            #[allow(dead_code, reason = "not every kind is both optional and not")]
            fn $optional(&self, name: &str) -> Option<$type> {
                match self.value(name) {
                    Some(Value::$variant(value)) => Some(value.clone().into()),
                    None => None,
                    Some(other) => panic!("{name} is {other:?}"),
                }
            }

            #[allow(dead_code, reason = "not every kind is both optional and not")]
            fn $name(&self, name: &str) -> $type {
                self.$optional(name).unwrap_or_else(|| panic!("{name} has no default"))
            }
        )*
    };
}

impl Typed<'_> {
    /// Whether a key is not set and has its default.
    fn is_default(&self, name: &str) -> bool {
        self.0.get(name).is_none_or(|setting| setting.origin == Origin::Default)
    }

    fn value(&self, name: &str) -> Option<&Value> {
        let setting = self.0.get(name).unwrap_or_else(|| panic!("{name} is not in the table"));
        setting.value.as_ref()
    }

    values! {
        bytes, optional_bytes: Bytes => u64;
        time, optional_time: Time => Duration;
        wide, optional_wide: Count => u64;
        flag, optional_flag: Flag => bool;
        listen, optional_listen: Listen => SocketAddr;
        addresses, optional_addresses: Addresses => Vec<Address>;
        text, optional_text: Text => String;
        durability, optional_durability: Durability => Durability;
        metastore, optional_metastore: Metastore => Metastore;
    }

    /// The table's limits are far below `u32::MAX`.
    fn count(&self, name: &str) -> u32 {
        u32::try_from(self.wide(name)).unwrap_or(u32::MAX)
    }

    fn optional_count(&self, name: &str) -> Option<u32> {
        self.optional_wide(name).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// The table's limit is 1 GiB.
    fn segment_bytes(&self, name: &str) -> u32 {
        u32::try_from(self.bytes(name)).unwrap_or(u32::MAX)
    }

    fn word<T>(&self, name: &str, of_word: impl Fn(&str) -> Option<T>) -> T {
        self.optional_word(name, of_word).unwrap_or_else(|| panic!("{name} has no value"))
    }

    fn optional_word<T>(&self, name: &str, of_word: impl Fn(&str) -> Option<T>) -> Option<T> {
        let word = self.optional_text(name)?;
        Some(of_word(&word).unwrap_or_else(|| panic!("{name} is {word}")))
    }
}
