//! `thunderhead dev`, `server` and `coordinator`: programs that run until they are asked to end.

use crate::connect;
use crate::exit::{Exit, Failure};
use crate::redis::cluster::{ClusterDoor, DoorConfig};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Display;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thunderhead_client::{Client, Options as ClientOptions};
use thunderhead_config::{
    ClusterConfig, CoordinatorConfig, DevConfig, LogConfig, LogFormat, LogLevel, Metastore,
    ProbeConfig, ServerConfig,
};
use thunderhead_coordinator::Options as CoordinatorOptions;
use thunderhead_metastore::Key;
use thunderhead_net::os::Options as NetOptions;
use thunderhead_runtime::os::{give_start_back, on_end_asked};
use thunderhead_runtime::polling::Polling;
use thunderhead_server::{
    Announce, BackupOptions, Ended, GenerationState, LocalCluster, LocalOptions, Machine,
    MetastoreLocation, Options, Probing, RunningCoordinator, RunningServer,
};
use thunderhead_wire::Format;
use thunderhead_wire::control::{RecoveryInfo, Settings};
use tracing::Level;

/// The servers and coordinators that end when the process is asked to end.
#[derive(Clone, Default)]
pub(crate) struct EndRequests(Arc<Mutex<Programs>>);

#[derive(Default)]
struct Programs {
    generations: Vec<GenerationState>,
    /// The process was asked to end, perhaps before the first of them started.
    to_end: bool,
}

/// The end of a program's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The process is asked to end.
    Asked,
    /// As `Asked`, or the program that started this one has closed the other end of its input.
    InputEnds,
}

/// The data that remain after a process ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RemainingData {
    /// All, on its disk.
    All,
    /// All of it, on the disk, if the process ends in order. Otherwise the newest part is in a
    /// directory in memory.
    InBuffers(PathBuf),
    /// As `InBuffers`, if the cluster keeps replicas.
    IfReplicated(PathBuf),
    /// None here. Other servers may have replicas.
    Elsewhere,
    /// None.
    Nothing,
}

impl RemainingData {
    fn by_dev(config: &DevConfig) -> RemainingData {
        match config.cluster.replicas {
            0 => RemainingData::Nothing,
            _ => RemainingData::InBuffers(config.buffer_directory.clone()),
        }
    }

    fn by_server(config: &ServerConfig) -> RemainingData {
        match config.backup {
            true => RemainingData::IfReplicated(config.buffer_directory.clone()),
            false => RemainingData::Elsewhere,
        }
    }

    /// Returns the fate of the data if the process ends at once.
    fn at_once(&self) -> String {
        let outlasts = |directory: &PathBuf| {
            format!(
                "as long as {} outlasts it, which it may not in a container",
                directory.display()
            )
        };
        match self {
            RemainingData::All => "no data is lost".to_owned(),
            RemainingData::InBuffers(directory) => {
                format!("no data is lost {}", outlasts(directory))
            }
            RemainingData::IfReplicated(directory) => {
                format!(
                    "replicas are kept {}; without replicas all data is lost",
                    outlasts(directory)
                )
            }
            RemainingData::Elsewhere => {
                "it keeps no data here; data without a replica on another server is lost".to_owned()
            }
            RemainingData::Nothing => "all its data is lost either way".to_owned(),
        }
    }

    /// Returns the fate of the data of `thunderhead dev`, for its user.
    fn in_order(&self) -> &'static str {
        match self {
            RemainingData::Nothing => "Ctrl-C ends it, and all its data is lost.",
            _ => "Ctrl-C ends it. Acknowledged updates are kept, even if the process is killed.",
        }
    }
}

/// How long the client for the tables of a door waits for an answer. Then it tries again.
const DOOR_DEADLINE: Duration = Duration::from_secs(5);

/// How long the programs may take to end in order after the input has ended.
const AFTER_INPUT: Duration = Duration::from_secs(5);

impl EndRequests {
    pub(crate) fn listening(until: Until, kept: RemainingData) -> Result<EndRequests, Failure> {
        let requests = EndRequests::default();
        let own = requests.clone();
        on_end_asked(move || {
            eprintln!("thunderhead: ending; repeat to end at once ({})", kept.at_once());
            own.leave();
        })
        .map_err(|error| cannot("listen for signals", error))?;
        if until == Until::InputEnds {
            let own = requests.clone();
            let ends = move || {
                let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
                own.leave();
                #[allow(clippy::disallowed_methods, reason = "other threads do the work")]
                std::thread::sleep(AFTER_INPUT);
                std::process::exit(Exit::Refused as i32);
            };
            let thread = std::thread::Builder::new().name("input".to_owned()).spawn(ends);
            thread.map_err(|error| cannot("watch the input", error))?;
        }
        Ok(requests)
    }

    fn leave(&self) {
        let mut programs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        programs.to_end = true;
        programs.generations.iter().for_each(GenerationState::leave);
    }

    pub(crate) fn set(&self, generations: impl IntoIterator<Item = GenerationState>) {
        let mut programs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        programs.generations = generations.into_iter().collect();
        if programs.to_end {
            programs.generations.iter().for_each(GenerationState::leave);
        }
    }
}

fn settings(cluster: &ClusterConfig) -> Settings {
    Settings {
        replicas: cluster.replicas,
        min_replicas: cluster.min_replicas,
        durability: cluster.durability.to_string(),
        segment_bytes: cluster.segment_bytes,
        self_backup: cluster.self_backup,
    }
}

fn net(shared_memory: bool) -> NetOptions {
    NetOptions { shared_memory, ..NetOptions::default() }
}

/// Prints one line of JSON: the cluster serves, and how to reach it.
fn tell_ready(
    config: &DevConfig,
    coordinator: SocketAddr,
    (redis, redis_cluster): (Option<String>, Option<String>),
) -> Result<(), Failure> {
    let data = (!config.is_ephemeral).then(|| config.data.display().to_string());
    let mut ready = serde_json::json!({
        "coordinators": [coordinator.to_string()],
        "servers": config.servers,
        "memory_bytes": config.memory_bytes,
        "ephemeral": config.is_ephemeral,
        "data": data,
        "pid": std::process::id(),
    });
    if let Some(redis) = redis {
        ready["redis"] = redis.into();
    }
    if let Some(at) = redis_cluster {
        ready["redis_cluster"] = at.into();
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{ready}")?;
    Ok(out.flush()?)
}

/// `thunderhead dev`: a whole cluster in this process.
pub(crate) fn dev(config: &DevConfig, until: Until, json: bool) -> Result<(), Failure> {
    log(config.log);
    let requests = EndRequests::listening(until, RemainingData::by_dev(config))?;
    let shard_bytes = config.memory_bytes / u64::from(config.shards);
    let door = config.redis.map(|listen| {
        ClusterDoor::new(DoorConfig {
            listen,
            password: None,
            cluster: config.redis_cluster,
            announce: None,
            parts: config.redis_parts,
            memory_bytes: shard_bytes,
        })
    });
    let options = LocalOptions {
        door: door.as_ref().map(|door| Arc::clone(&door.options)),
        directory: config.data.clone(),
        in_memory: config.is_ephemeral,
        listen: config.listen,
        servers: config.servers,
        shards: config.shards,
        cleaners: config.cleaners as usize,
        memory_bytes: memory(config.memory_bytes)?,
        populate: false,
        backup: (config.cluster.replicas > 0).then(|| BackupOptions {
            disk_bytes: config.backup_bytes,
            // Most users of `thunderhead dev` write little.
            sparse: true,
            buffer_directory: Some(config.buffer_directory.clone()),
            begins_anew: config.new_storage,
            ..BackupOptions::default()
        }),
        settings: settings(&config.cluster),
        probing: probing(config.probe),
        polling: polling(config.polling),
        net: net(config.shm),
    };
    let data = match config.is_ephemeral {
        true => "memory".to_owned(),
        false => options.directory.display().to_string(),
    };
    let local =
        LocalCluster::start(&options).map_err(|error| cannot(format!("start in {data}"), error))?;
    let all: Vec<GenerationState> =
        local.servers().iter().map(|it| it.generation().clone()).collect();
    requests.set(all.clone());
    if let Some(remarks) = wait_until_ready(&local, &all, |_| Ok(()))? {
        if let Some(door) = &door {
            let coordinator = local.coordinator();
            door.start(move || connect::beside(coordinator, DOOR_DEADLINE))?;
        }
        let redis = door.as_ref().and_then(ClusterDoor::address);
        let redis_cluster = door.as_ref().and_then(ClusterDoor::cluster_address);
        remarks.iter().for_each(|remark| tracing::warn!("{remark}"));
        let at = local.coordinator();
        if json {
            tell_ready(config, at, (redis, redis_cluster))?;
            return serve(|| local.join());
        }
        let count = match config.servers {
            1 => "one server".to_owned(),
            count => format!("{count} servers"),
        };
        let mut out = std::io::stdout().lock();
        match config.is_ephemeral {
            true => writeln!(out, "Thunderhead serves at {at}: {count}, nothing is kept.")?,
            false => writeln!(out, "Thunderhead serves at {at}: {count}, data in {data}.")?,
        }
        if let Some(redis) = redis {
            writeln!(out, "Redis's clients are served at {redis}.")?;
        }
        if let Some(at) = redis_cluster {
            writeln!(out, "Redis's clients that know the slots of keys are served at {at}.")?;
        }
        writeln!(out)?;
        writeln!(out, "Try, in another terminal:")?;
        let program = std::env::args().next().unwrap_or_else(|| "thunderhead".to_owned());
        for command in
            ["table create users", "put users ada 'first programmer'", "get users ada", "shell"]
        {
            writeln!(out, "  {program} {command}")?;
        }
        writeln!(out)?;
        writeln!(out, "{}", RemainingData::by_dev(config).in_order())?;
        out.flush()?;
    }
    serve(|| local.join())
}

/// The pause between two looks at a cluster that starts, and the looks after which the log says how
/// far it is: some ten seconds.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
const TOLD_LOOKS: u32 = 200;

/// The progress of a start: a line on a terminal. If there is no terminal, the log says it from
/// time to time.
struct StartProgress {
    bar: ProgressBar,
    looks: u32,
}

impl StartProgress {
    fn new() -> StartProgress {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        StartProgress { bar, looks: 0 }
    }

    fn say(&mut self, message: String) {
        self.looks += 1;
        if self.bar.is_hidden() && self.looks.is_multiple_of(TOLD_LOOKS) {
            tracing::warn!("the start is not complete yet: {message}");
        }
        self.bar.set_message(message);
        self.bar.tick();
    }
}

/// Waits until all servers serve and their former data is back. Returns remarks for the user, or
/// `None` if the cluster ends before that. `check` decides whether a recovery is hopeless.
pub(crate) fn wait_until_ready(
    local: &LocalCluster,
    generations: &[GenerationState],
    check: impl Fn(&RecoveryInfo) -> Result<(), Failure>,
) -> Result<Option<Vec<String>>, Failure> {
    let mut progress = StartProgress::new();
    let mut client = None;
    let mut known_trouble = None;
    let ready = loop {
        if local.ended().is_some() || generations.iter().any(GenerationState::is_leaving) {
            break None;
        }
        if generations.iter().any(|generation| generation.identity().is_none()) {
            progress.say("opening the storage".to_owned());
        } else {
            if client.is_none() {
                client = connect::beside(local.coordinator(), Duration::from_secs(2)).ok();
            }
            match client.as_mut().map(|it| it.status()) {
                Some(Ok(status)) => {
                    let waiting = status
                        .map
                        .tables
                        .iter()
                        .flat_map(|table| &table.tablets)
                        .filter(|tablet| tablet.address.is_none())
                        .count();
                    status.recoveries.iter().try_for_each(&check)?;
                    match status.recoveries.iter().find_map(|it| it.trouble.clone()) {
                        Some(trouble) => {
                            progress.say(format!("recovering: {trouble}"));
                            // The bar is visible only on a terminal.
                            if known_trouble.is_none() {
                                tracing::warn!("{trouble}; the recovery is tried again");
                                known_trouble = Some(trouble);
                            }
                        }
                        None => {
                            let bytes: u64 = status.recoveries.iter().map(|it| it.bytes).sum();
                            let megabytes = bytes.div_ceil(1 << 20);
                            progress.say(format!(
                                "recovering {waiting} tablets from a log of {megabytes} MB"
                            ));
                        }
                    }
                    if waiting == 0 {
                        break Some(status.remarks);
                    }
                }
                _ => progress.say("waiting for the coordinator".to_owned()),
            }
        }
        #[allow(clippy::disallowed_methods, reason = "only a person waits here")]
        std::thread::sleep(LOOK_PAUSE);
    };
    progress.bar.finish_and_clear();
    Ok(ready)
}

/// Serves until the program ends, and returns the reason. First gives back memory that only the
/// start needed.
pub(crate) fn serve(join: impl FnOnce() -> Ended) -> Result<(), Failure> {
    give_start_back();
    match join() {
        Ended::Asked => Ok(()),
        why => Err(Failure::new(Exit::Refused, "server_ended", why.to_string())),
    }
}

/// `thunderhead server`. A server that was declared crashed begins a new generation.
pub(crate) fn server(config: &ServerConfig, until: Until) -> Result<(), Failure> {
    log(config.log);
    let requests = EndRequests::listening(until, RemainingData::by_server(config))?;
    let coordinators = connect::resolve(&config.coordinators)?;
    let host = config.host.clone().unwrap_or_else(host_name);
    let advertise = config.advertise.as_deref().map(ip_of).transpose()?;
    let listen = (0..config.shards).map(|shard| {
        let mut address = config.listen;
        if address.port() != 0 {
            let port = u32::from(address.port()) + shard;
            address.set_port(u16::try_from(port).unwrap_or(0));
        }
        address
    });
    let door = config.redis.map(|listen| {
        let announce = config.redis_announce.clone();
        ClusterDoor::new(DoorConfig {
            listen,
            password: config.redis_password.as_deref(),
            cluster: config.redis_cluster,
            announce: announce.map(|(host, port)| Announce { host, port }),
            parts: config.redis_parts,
            memory_bytes: config.memory_bytes / u64::from(config.shards),
        })
    });
    let of_door = coordinators.clone();
    let options = Options {
        door: door.as_ref().map(|door| Arc::clone(&door.options)),
        coordinators,
        listen: listen.collect(),
        advertise,
        memory_bytes: memory(config.memory_bytes)?,
        newest_format: Format::NEWEST,
        populate: config.populate,
        seglet_bytes: None,
        message_bytes: None,
        records_per_client_max: None,
        cleaners: config.cleaners as usize,
        backup: config.backup.then(|| BackupOptions {
            disk_bytes: config.backup_bytes,
            populate: config.backup_populate,
            buffer_directory: Some(config.buffer_directory.clone()),
            begins_anew: config.new_storage,
            ..BackupOptions::default()
        }),
        probing: probing(config.probe),
        host,
        rack: config.rack.clone().unwrap_or_default(),
    };
    let machine = Machine {
        directory: config.data.clone(),
        polling: polling(config.polling),
        net: net(config.shm),
    };
    let running = RunningServer::start_lasting(options, &machine)
        .map_err(|error| cannot(format!("start in {}", machine.directory.display()), error))?;
    let generation = running.generation().clone();
    requests.set([generation.clone()]);
    tracing::info!(addresses = ?generation.addresses(), "listening");
    // Opening a storage and finding the cluster belong to the start too.
    generation.wait_until_serving();
    let Some(door) = door else { return serve(|| running.join()) };
    if let Some(at) = door.address() {
        tracing::info!(at, "Redis's clients are served");
    }
    if let Some(at) = door.cluster_address() {
        tracing::info!(at, "Redis's clients that know slots are served");
    }
    door.start(move || {
        Client::connect(&ClientOptions::new(of_door.clone()).deadline(Some(DOOR_DEADLINE)))
    })?;
    let ended = serve(|| running.join());
    door.end();
    ended
}

/// `thunderhead coordinator`.
pub(crate) fn coordinator(config: &CoordinatorConfig, until: Until) -> Result<(), Failure> {
    log(config.log);
    let requests = EndRequests::listening(until, RemainingData::All)?;
    let root = Key::new(&config.root)
        .map_err(|error| cannot(format!("use coordinator.root {:?}", config.root), error))?;
    let truth = match &config.metastore {
        Metastore::Embedded(path) => {
            MetastoreLocation::File(path.clone().unwrap_or_else(|| config.data.join("metastore")))
        }
        Metastore::Etcd(urls) => {
            // The configuration accepts no other URLs.
            let endpoint =
                |url: &String| url.trim_start_matches("http://").trim_end_matches('/').to_owned();
            MetastoreLocation::Etcd { endpoints: urls.iter().map(endpoint).collect(), root }
        }
        Metastore::ZooKeeper(servers) => MetastoreLocation::ZooKeeper {
            servers: servers.iter().map(ToString::to_string).collect(),
            root,
        },
    };
    let options = CoordinatorOptions {
        settings: settings(&config.cluster),
        lease_ttl: config.lease_ttl,
        leadership_ttl: config.leader_ttl,
        probing: probing(config.probe),
        existing: config.existing,
        ..CoordinatorOptions::default()
    };
    let directory = match &truth {
        MetastoreLocation::File(path) => {
            path.parent().map_or_else(|| ".".into(), std::path::Path::to_path_buf)
        }
        _ => std::env::temp_dir(),
    };
    let machine = Machine { directory, polling: Polling::Never, net: NetOptions::default() };
    let running = RunningCoordinator::start(options, config.listen, truth, &machine)
        .map_err(|error| cannot("start", error))?;
    requests.set([running.generation().clone()]);
    serve(|| running.join())
}

fn ip_of(host: &str) -> Result<IpAddr, Failure> {
    let address = thunderhead_config::Address { host: host.to_owned(), port: 0 };
    let found = address.resolve().map_err(|error| cannot(format!("find {host}"), error))?;
    let nothing = || Failure::usage(format!("{host} has no address"));
    found.first().map(SocketAddr::ip).ok_or_else(nothing)
}

fn probing(config: ProbeConfig) -> Probing {
    Probing { interval: config.interval, timeout: config.timeout }
}

fn polling(config: thunderhead_config::Polling) -> Polling {
    match config {
        thunderhead_config::Polling::Always => Polling::Always,
        thunderhead_config::Polling::Adaptive => Polling::default(),
        thunderhead_config::Polling::Never => Polling::Never,
    }
}

/// Writes log messages to the standard error.
pub(crate) fn log(config: LogConfig) {
    let level = match config.level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    match config.format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
}

pub(crate) fn memory(bytes: u64) -> Result<usize, Failure> {
    let too_much = |_| Failure::usage(format!("this machine cannot have {bytes} bytes of memory"));
    usize::try_from(bytes).map_err(too_much)
}

pub(crate) fn cannot(action: impl Display, error: impl Display) -> Failure {
    Failure::usage(format!("cannot {action}: {error}"))
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "localhost".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_config::{Config, Sources};

    fn config(settings: &[(&str, &str)]) -> Config {
        let flag = |(key, value): &(&str, &str)| (String::new(), (*key).into(), (*value).into());
        let sources = Sources { flags: settings.iter().map(flag).collect(), ..Sources::default() };
        sources.resolve().unwrap().config()
    }

    #[test]
    fn a_program_that_ends_at_once_reports_the_fate_of_its_data() {
        let dev = |settings: &[(&str, &str)]| RemainingData::by_dev(&config(settings).dev);
        let server = |settings: &[(&str, &str)]| RemainingData::by_server(&config(settings).server);
        let in_container = "which it may not in a container";
        let cases = [
            (dev(&[]), "no data is lost as long as /dev/shm outlasts it", Some(in_container)),
            (dev(&[("dev.buffer_directory", "/mnt/m")]), "as long as /mnt/m outlasts it", None),
            (dev(&[("dev.replicas", "0")]), "all its data is lost", None),
            (dev(&[("dev.ephemeral", "true")]), "all its data is lost", None),
            (server(&[]), "without replicas all data is lost", Some(in_container)),
            (
                server(&[("server.backup", "false")]),
                "without a replica on another server is lost",
                None,
            ),
            (RemainingData::All, "no data is lost", None),
        ];
        for (kept, words, more) in cases {
            let said = kept.at_once();
            assert!(said.contains(words) && more.is_none_or(|it| said.contains(it)), "{said}");
            let is_lost = kept.in_order().contains("lost");
            assert_eq!(is_lost, kept == RemainingData::Nothing, "{kept:?}");
        }
    }
}
