//! The configuration as plain structs, for those who use it.

use crate::address::Address;
use crate::error::Problem;
use crate::keys::by_name;
use crate::sources::{Effective, Origin};
use crate::units::bytes_text;
use crate::value::{Durability, LogFormat, LogLevel, Metastore, Polling, Value};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What segments are made of. One that is made of something else could never be served.
pub(crate) const SEGLET_BYTES: u64 = 64 << 10;

/// Everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What a coordinator is told.
    pub coordinator: CoordinatorConfig,
    /// What a server is told.
    pub server: ServerConfig,
    /// What `thunderhead dev` is told.
    pub dev: DevConfig,
    /// What a client is told.
    pub client: ClientConfig,
    /// What is logged.
    pub log: LogConfig,
}

/// What holds in a whole cluster, decided when it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Replicas of each segment.
    pub replicas: u32,
    /// Replicas without which no write is acknowledged, when the cluster begins.
    pub min_replicas: u32,
    /// When a write is acknowledged. Its text is what `wire::control::Settings` carries.
    pub durability: Durability,
    /// Bytes of a full segment.
    pub segment_bytes: u32,
    /// Whether a server may keep replicas of its own segments.
    pub self_backup: bool,
}

/// What a coordinator is told.
#[derive(Clone, Debug, PartialEq)]
pub struct CoordinatorConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where all coordinators listen.
    pub coordinators: Vec<Address>,
    /// Where it keeps its truth.
    pub metastore: Metastore,
    /// The directory of an embedded metastore that names no file.
    pub data: PathBuf,
    /// Below which path of etcd or ZooKeeper.
    pub root: String,
    /// Whether it founds no cluster.
    pub existing: bool,
    /// How long a client may be silent.
    pub lease_ttl: Duration,
    /// How long leadership lasts after the leader's last sign of life.
    pub leader_ttl: Duration,
    /// What holds in the cluster, if this coordinator is the one that makes it.
    pub cluster: ClusterConfig,
    /// How it is found out that servers are not there any more.
    pub probe: ProbeConfig,
    /// What is logged.
    pub log: LogConfig,
}

/// What a server is told.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Where the coordinators are.
    pub coordinators: Vec<Address>,
    /// Where the first shard listens; the others on the next ports, or all on any if it is 0.
    pub listen: SocketAddr,
    /// The host under which others reach it, if that is not where it listens.
    pub advertise: Option<String>,
    /// The directory of its storage.
    pub data: PathBuf,
    /// Memory of all shards together.
    pub memory_bytes: u64,
    /// Whether it has all of it before it serves.
    pub populate: bool,
    /// Shards.
    pub shards: u32,
    /// Cleaner threads of each shard.
    pub cleaners: u32,
    /// Whether it keeps replicas.
    pub backup: bool,
    /// Disk space for replicas; see [`ServerConfig::disk_bytes`] where nobody said.
    pub backup_bytes: Option<u64>,
    /// Whether all of it is written once when it is made.
    pub backup_populate: bool,
    /// Whether it begins a new storage where the cluster knows of one that is not there.
    pub new_storage: bool,
    /// Where the buffers of replicas are.
    pub buffer_directory: PathBuf,
    /// The machine it is on; its name where nobody said.
    pub host: Option<String>,
    /// The rack it is in.
    pub rack: Option<String>,
    /// What a thread does that has nothing to do.
    pub polling: Polling,
    /// Whether shared memory is offered.
    pub shm: bool,
    /// How it is found out that servers are not there any more.
    pub probe: ProbeConfig,
    /// What is logged.
    pub log: LogConfig,
}

/// What `thunderhead dev` is told.
#[derive(Clone, Debug, PartialEq)]
pub struct DevConfig {
    /// Where the coordinator listens; servers on the next ports, or all on any if it is 0.
    pub listen: SocketAddr,
    /// The directory of everything.
    pub data: PathBuf,
    /// Nothing is kept when it ends: there is no directory, and there are no replicas.
    pub is_ephemeral: bool,
    /// Servers.
    pub servers: u32,
    /// Memory of each server.
    pub memory_bytes: u64,
    /// Shards of each server.
    pub shards: u32,
    /// Cleaner threads of each shard.
    pub cleaners: u32,
    /// Disk space of each server for replicas; see [`DevConfig::disk_bytes`] where nobody said.
    pub backup_bytes: Option<u64>,
    /// Whether servers begin a new storage where the cluster knows of one that is not there.
    pub new_storage: bool,
    /// Where the buffers of replicas are.
    pub buffer_directory: PathBuf,
    /// What a thread does that has nothing to do.
    pub polling: Polling,
    /// Whether shared memory is offered.
    pub shm: bool,
    /// What holds in the cluster; its replicas and self-backup follow from the number of servers
    /// where nobody said.
    pub cluster: ClusterConfig,
    /// How it is found out that servers are not there any more.
    pub probe: ProbeConfig,
    /// What is logged.
    pub log: LogConfig,
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConfig {
    /// Where the coordinators are.
    pub coordinators: Vec<Address>,
    /// How long an operation may take.
    pub deadline: Duration,
}

/// How it is found out that servers are not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeConfig {
    /// How often one is asked; zero: never.
    pub interval: Duration,
    /// How long it has for its answer.
    pub timeout: Duration,
}

/// What is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// From which level on.
    pub level: LogLevel,
    /// How a line looks.
    pub format: LogFormat,
}

impl ServerConfig {
    /// Disk space for replicas, in a cluster that keeps so many of each segment.
    #[must_use]
    pub fn disk_bytes(&self, replicas: u32) -> u64 {
        disk_bytes(self.backup_bytes, self.memory_bytes, replicas)
    }
}

impl DevConfig {
    /// Disk space of each server for replicas.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        disk_bytes(self.backup_bytes, self.memory_bytes, self.cluster.replicas)
    }
}

/// A log takes up to twice its memory on backups, for each replica, and once more when it is rebuilt.
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
        // Who tries a cluster wants to hear what is wrong, and the rest where it was asked for.
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

/// Memory of a temporary store. With everything beside it the process stays below 100 MB.
const EPHEMERAL_BYTES: u64 = 64 << 20;

/// Segments of a temporary store: its memory has 64 of them.
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

/// What is allowed for each key by itself, but not together.
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
        let what = "others cannot reach a server at that address; set server.advertise to the host \
                    under which they can";
        say("server.listen", what.to_owned());
    }
    if dev.is_ephemeral {
        let is_set = |name| effective.get(name).is_some_and(|it| it.origin != Origin::Default);
        for name in
            ["dev.data", "dev.servers", "dev.replicas", "dev.backup_bytes", "dev.durability"]
        {
            if is_set(name) {
                let what = "a temporary store (dev.ephemeral) has one server and keeps nothing; leave this away";
                say(name, what.to_owned());
            }
        }
        if dev.memory_bytes > EPHEMERAL_BYTES {
            let what = format!("a temporary store has {} at most", bytes_text(EPHEMERAL_BYTES));
            say("dev.memory", what);
        }
    }
    let beyond = |listen: SocketAddr, more: u32| u32::from(listen.port()) + more > 65_535;
    if server.listen.port() != 0 && beyond(server.listen, server.shards - 1) {
        say("server.listen", format!("no ports are left for {} shards", server.shards));
    }
    let shards = dev.servers * dev.shards;
    if dev.listen.port() != 0 && beyond(dev.listen, shards) {
        say("dev.listen", format!("no ports are left for {shards} shards"));
    }
    let ClusterConfig { replicas, min_replicas, .. } = coordinator.cluster;
    if min_replicas > replicas.max(1) {
        let what = format!("there are only {replicas} replicas of each segment (cluster.replicas)");
        say("cluster.min_replicas", what);
    }
    let possible = if dev.servers == 1 { 1 } else { dev.servers - 1 };
    if dev.cluster.replicas > possible {
        let what = format!("{} servers can keep {possible} replicas at most", dev.servers);
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
            "{} shards with segments of {} need at least {}; or make dev.segment_bytes smaller",
            dev.shards,
            bytes_text(u64::from(dev.cluster.segment_bytes)),
            bytes_text(needed)
        );
        say("dev.memory", what);
    }
    problems
}

/// The values by their types. What is wrong here is wrong in the program: a key of the table
/// always has a value of its kind, and a default or an optional type.
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
    /// Whether a key has the value that the table says.
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

    /// The table's limits are far below.
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
