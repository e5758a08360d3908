//! The measured stores, each as processes of its own on the server's core.

use super::crowd::{Address, Crowd, Shape, Source};
use super::etcd::Etcd;
use super::measure::at_random;
use super::memcached::Memcached;
use super::ours::Ours;
use super::process::{self, Processes, program};
use super::protocol::{Act, Protocol};
use super::resp::Resp;
use crate::log::subject::TABLE;
use crate::operations::generator::{To, open_lease};
use crate::operations::local::shard_of;
use crate::product;
use crate::rpc::floors::SERVER_CORE;
use crate::rpc::subject::caller;
use anyhow::{Context as _, Result, bail, ensure};
use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use thunderhead_load::channel::Channel;
use thunderhead_load::children::free_port;
use thunderhead_load::crash::members::{Cluster, Cores, Setup};
use thunderhead_wire::TableId;

/// The longest time until a store answers.
const PATIENCE: Duration = Duration::from_secs(120);

const LOOK: Duration = Duration::from_millis(5);

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ours.
    Thunderhead,
    /// Redis.
    Redis,
    /// Valkey, which is driven like Redis.
    Valkey,
    /// memcached.
    Memcached,
    /// etcd.
    Etcd,
}

impl Kind {
    /// The peers.
    pub const PEERS: [Kind; 4] = [Kind::Redis, Kind::Valkey, Kind::Memcached, Kind::Etcd];

    /// Returns its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Thunderhead => "Thunderhead",
            Kind::Redis => "Redis",
            Kind::Valkey => "Valkey",
            Kind::Memcached => "memcached",
            Kind::Etcd => "etcd",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Kind::Thunderhead => "thunderhead",
            Kind::Redis => "redis-server",
            Kind::Valkey => "valkey-server",
            Kind::Memcached => "memcached",
            Kind::Etcd => "etcd",
        }
    }

    /// Returns its program, if it is installed.
    #[must_use]
    pub fn program(self) -> Option<PathBuf> {
        match self {
            Kind::Thunderhead => product::program().ok(),
            _ => program(self.file()),
        }
    }

    /// Returns the version that it reports.
    ///
    /// # Errors
    /// When it is not installed.
    pub fn version(self) -> Result<String> {
        let path = self.program().with_context(|| format!("{} is not installed", self.name()))?;
        let text = process::says(&path, &["--version"])?;
        let words = text.lines().next().unwrap_or_default();
        Ok(words.split(" sha=").next().unwrap_or_default().trim().to_owned())
    }

    /// Whether it speaks Redis's protocol.
    #[must_use]
    pub fn is_redis(self) -> bool {
        matches!(self, Kind::Redis | Kind::Valkey)
    }
}

/// The promise of a store for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It is in the memory of one process.
    Memory,
    /// It is in the memory of this many other processes too.
    Replicas(u32),
    /// It is on the disk.
    Disk,
    /// It is on the disk within about a second: enough for a restart.
    Soon,
    /// Nothing is promised until a snapshot is made.
    Snapshot,
}

/// The setup of a store.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The promise for a write.
    pub durability: Durability,
    /// The memory limit, for stores that need one.
    pub memory_bytes: u64,
    /// Bytes of Thunderhead's segments.
    pub segment_bytes: u64,
    /// Whether it also listens on a Unix socket; memcached then listens only there.
    pub unix: bool,
    /// Whether Thunderhead takes all of its memory from the kernel at the start, like a server that
    /// has run for a while: its log goes through all of its memory, whereas the other stores reuse
    /// the same pages.
    pub populate: bool,
}

impl Wanted {
    /// Returns the setup of a store in memory.
    #[must_use]
    pub fn memory(memory_bytes: u64) -> Wanted {
        let (durability, segment_bytes) = (Durability::Memory, 8 << 20);
        Wanted { durability, memory_bytes, segment_bytes, unix: false, populate: false }
    }

    /// Returns the same setup, populated like a server that has run for a while.
    #[must_use]
    pub fn populated(self) -> Wanted {
        Wanted { populate: true, ..self }
    }

    /// Returns the same setup with another promise.
    #[must_use]
    pub fn but(self, durability: Durability) -> Wanted {
        Wanted { durability, ..self }
    }

    fn replicas(&self) -> u32 {
        match self.durability {
            Durability::Replicas(count) => count,
            _ => 0,
        }
    }
}

enum Body {
    Peer(Processes),
    Ours(Box<Cluster>, To),
}

/// A running store.
pub struct Store {
    /// Its kind.
    pub kind: Kind,
    wanted: Wanted,
    tcp: Address,
    unix: Option<Address>,
    /// The table of Thunderhead's objects.
    table: TableId,
    body: Body,
}

/// The start of all of Thunderhead's processes.
#[derive(Clone, Debug)]
pub struct Restarted {
    /// When it began, by the clock of the log lines.
    pub clock: SystemTime,
    /// The time until the table was served.
    pub took: Duration,
    /// The log of each process, the coordinator's first.
    pub said: Vec<String>,
}

/// The name of the process that receives the requests.
const FIRST: &str = "first";

impl Store {
    /// Starts a store and waits until it answers.
    ///
    /// # Errors
    /// When it is not installed or does not come up.
    pub fn start(kind: Kind, wanted: Wanted) -> Result<Store> {
        let what = || format!("start {}", kind.name());
        if kind == Kind::Thunderhead {
            let store = Store::start_ours(wanted, &[]).with_context(what)?;
            ensure!(store.table == TABLE, "the first table of a cluster is {}", store.table);
            return Ok(store);
        }
        let processes = Processes::new()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let unix = wanted.unix.then(|| Address::Unix(processes.directory().join("socket")));
        let body = Body::Peer(processes);
        let tcp = Address::Tcp(address);
        let store = Store { kind, wanted, tcp, unix, table: TABLE, body };
        store.start_peer().with_context(what)?;
        store.wait_ready(PATIENCE).with_context(what)?;
        if kind.is_redis() && wanted.replicas() > 0 {
            store.wait_replicas(wanted.replicas()).with_context(what)?;
        }
        Ok(store)
    }

    /// Starts the processes of a peer, for the first time or again.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub fn start_peer(&self) -> Result<()> {
        let Body::Peer(processes) = &self.body else { return Ok(()) };
        let path = self.kind.program();
        let path = path.with_context(|| format!("{} is not installed", self.kind.name()))?;
        let arguments = self.arguments()?;
        processes.start(FIRST, SERVER_CORE, &path, &arguments)?;
        for number in 0..self.wanted.replicas() {
            let directory = processes.directory().join(format!("replica-{number}"));
            std::fs::create_dir_all(&directory).context("make a directory")?;
            let (name, port) = (format!("replica-{number}"), free_port()?);
            let mut arguments = redis(port, &directory.display().to_string(), Durability::Memory);
            let Address::Tcp(first) = &self.tcp else { continue };
            let (host, port) = (first.ip().to_string(), first.port().to_string());
            arguments.extend(["--replicaof".to_owned(), host, port]);
            processes.start(&name, SERVER_CORE, &path, &arguments)?;
        }
        Ok(())
    }

    fn arguments(&self) -> Result<Vec<String>> {
        let Body::Peer(processes) = &self.body else { return Ok(Vec::new()) };
        let (directory, wanted) = (processes.directory().display().to_string(), &self.wanted);
        let port = match &self.tcp {
            Address::Tcp(address) => address.port(),
            Address::Unix(_) => 0,
        };
        let words = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        Ok(match self.kind {
            Kind::Etcd => {
                let clients = format!("http://127.0.0.1:{port}");
                let peers = format!("http://127.0.0.1:{}", free_port()?);
                let cluster = format!("one={peers}");
                words(&[
                    "--name",
                    "one",
                    "--data-dir",
                    &format!("{directory}/etcd"),
                    "--listen-client-urls",
                    &clients,
                    "--advertise-client-urls",
                    &clients,
                    "--listen-peer-urls",
                    &peers,
                    "--initial-advertise-peer-urls",
                    &peers,
                    "--initial-cluster",
                    &cluster,
                    "--quota-backend-bytes",
                    "8000000000",
                ])
            }
            Kind::Memcached => {
                let mut all =
                    words(&["-u", "root", "-t", "1", "-U", "0", "-R", "1000", "-c", "1024"]);
                all.extend(["-m".to_owned(), (wanted.memory_bytes >> 20).max(64).to_string()]);
                match &self.unix {
                    Some(path) => all.extend(["-s".to_owned(), path.to_string()]),
                    None => all.extend(words(&["-l", "127.0.0.1", "-p", &port.to_string()])),
                }
                all
            }
            _ => {
                let mut all = redis(port, &directory, wanted.durability);
                if let Some(path) = &self.unix {
                    all.extend(["--unixsocket".to_owned(), path.to_string()]);
                }
                all
            }
        })
    }

    /// Starts Thunderhead with more arguments for its servers.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_ours(wanted: Wanted, more: &[String]) -> Result<Store> {
        let (replicas, servers, polling) = match wanted.durability {
            Durability::Memory | Durability::Snapshot => (0, 1, "adaptive"),
            Durability::Disk | Durability::Soon => (1, 1, "adaptive"),
            // Several servers share a core: a spinning server would take it from the working ones.
            Durability::Replicas(replicas) => (replicas, replicas + 1, "never"),
        };
        let level = if wanted.durability == Durability::Disk { "synced" } else { "replicated" };
        let disk_bytes = wanted.memory_bytes * 2 * u64::from(replicas.max(1)) + (256 << 20);
        let mut coordinator: Vec<String> =
            ["--durability", level, "--lease-ttl", "24h", "--probe-interval", "0s"]
                .map(str::to_owned)
                .to_vec();
        coordinator.extend(["--segment-bytes".to_owned(), format!("{}B", wanted.segment_bytes)]);
        let mut server: Vec<String> = ["--probe-interval", "0s"].map(str::to_owned).to_vec();
        server.extend_from_slice(more);
        if wanted.populate {
            let all = ["--populate", "true", "--backup-populate", "true"];
            server.extend(all.map(str::to_owned));
        }
        match replicas {
            0 => server.extend(["--backup", "false"].map(str::to_owned)),
            _ if servers == 1 => {
                coordinator.extend(["--self-backup", "true"].map(str::to_owned));
            }
            _ => {}
        }
        let setup = Setup {
            program: product::program()?,
            directory: None,
            keep: false,
            servers,
            replicas,
            memory_bytes: wanted.memory_bytes.max(16 << 20),
            disk_bytes,
            cores: Cores::One(SERVER_CORE),
            polling,
            coordinator,
            server,
        };
        let cluster = Box::new(Cluster::start(&setup)?);
        let mut client = cluster.client(PATIENCE)?;
        let table = client.create_table("bench", 1).context("make the table")?;
        let shard = shard_of(&mut client, Instant::now() + PATIENCE)?;
        let to = To { shard, coordinator: Some(cluster.coordinator()) };
        let (kind, tcp) = (Kind::Thunderhead, Address::Tcp(shard));
        Ok(Store { kind, wanted, tcp, unix: None, table, body: Body::Ours(cluster, to) })
    }

    /// Kills all of Thunderhead's processes, and restarts them; its table may have another address
    /// afterwards. Returns the start, the time until the table is served, and the logs since.
    ///
    /// # Errors
    /// When they do not come up.
    pub fn start_ours_again(&mut self) -> Result<Restarted> {
        let Body::Ours(cluster, to) = &mut self.body else {
            bail!("{} is not Thunderhead", self.kind.name())
        };
        cluster.kill_all();
        let before = cluster.said();
        let (began, clock) = (Instant::now(), SystemTime::now());
        cluster.start_coordinator()?;
        for server in 0..cluster.servers() {
            cluster.start_server(server)?;
        }
        let end = began + PATIENCE;
        let mut client = None;
        loop {
            cluster.ensure_whole()?;
            ensure!(Instant::now() < end, "the table is not back after {PATIENCE:?}");
            // A new connection for each check would take a tenth of the core.
            client = client.or_else(|| cluster.client(Duration::from_secs(1)).ok());
            let found = client.as_mut().and_then(|it| shard_of(it, Instant::now()).ok());
            if let Some(shard) = found.filter(|it| *it != to.shard) {
                to.shard = shard;
                self.tcp = Address::Tcp(shard);
                let took = began.elapsed();
                let new = |(all, before): (String, &String)| {
                    all.get(before.len()..).unwrap_or_default().to_owned()
                };
                let said = cluster.said().into_iter().zip(&before).map(new).collect();
                return Ok(Restarted { clock, took, said });
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until the store answers a read, whose object need not exist.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub fn wait_ready(&self, patience: Duration) -> Result<()> {
        let end = Instant::now() + patience;
        loop {
            self.ensure_whole()?;
            let act = if self.kind == Kind::Etcd { Act::Write } else { Act::Read };
            let error = match self.ask_once(act) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if matches!(error.downcast_ref(), Some(super::protocol::Bad::Gone(_))) {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(error)
                    .with_context(|| format!("it does not answer after {patience:?}"));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn ask_once(&self, act: Act) -> Result<()> {
        let mut asked = false;
        let source = move |numbers: &mut Vec<u64>| {
            numbers.push(u64::MAX);
            let more = !asked;
            asked = true;
            more.then_some((act, 24))
        };
        self.crowd(self.best(), Shape::polling(1, 1), false, Box::new(source))?
            .run_out(&mut |_, _| {})
    }

    /// Waits until all replicas of Redis are online.
    fn wait_replicas(&self, replicas: u32) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.command(&["INFO", "replication"])?;
            let online = answer.matches("state=online").count();
            if online >= replicas as usize {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{online} of {replicas} replicas are there");
            std::thread::sleep(LOOK);
        }
    }

    /// Sends Redis a command over a separate connection; returns the beginning of the answer.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn command(&self, words: &[&str]) -> Result<String> {
        use std::io::{Read as _, Write as _};
        let Address::Tcp(address) = &self.tcp else { return Ok(String::new()) };
        let mut stream = std::net::TcpStream::connect_timeout(address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let line = words.join(" ") + "\r\n";
        stream.write_all(line.as_bytes())?;
        let mut answer = vec![0; 64 << 10];
        let bytes = stream.read(&mut answer)?;
        answer.truncate(bytes);
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Refuses to continue if a process has ended.
    ///
    /// # Errors
    /// When a process has.
    pub fn ensure_whole(&self) -> Result<()> {
        match &self.body {
            Body::Peer(processes) => processes.ensure_whole(),
            Body::Ours(cluster, _) => cluster.ensure_whole(),
        }
    }

    /// Returns the process that has the objects.
    ///
    /// # Errors
    /// When it does not run.
    pub fn process(&self) -> Result<u32> {
        match &self.body {
            Body::Peer(processes) => processes.process(FIRST),
            Body::Ours(cluster, _) => cluster.server_process(0),
        }
    }

    /// Returns all its processes.
    ///
    /// # Errors
    /// When a process does not run.
    pub fn processes(&self) -> Result<Vec<u32>> {
        match &self.body {
            Body::Peer(processes) => Ok(processes.all()),
            Body::Ours(cluster, _) => cluster.all_processes(),
        }
    }

    /// Waits until a peer that was asked to end has ended.
    ///
    /// # Errors
    /// When it does not end.
    pub fn wait_ended(&self) -> Result<()> {
        match &self.body {
            Body::Peer(processes) => processes.wait_ended(FIRST, PATIENCE),
            Body::Ours(..) => Ok(()),
        }
    }

    /// Returns the address of Thunderhead's table.
    #[must_use]
    pub fn to(&self) -> Option<To> {
        match &self.body {
            Body::Peer(_) => None,
            Body::Ours(_, to) => Some(*to),
        }
    }

    /// Returns a peer's address on loopback.
    #[must_use]
    pub fn tcp(&self) -> &Address {
        &self.tcp
    }

    /// Returns its Unix socket.
    #[must_use]
    pub fn unix(&self) -> Option<&Address> {
        self.unix.as_ref()
    }

    /// Returns an address on which it certainly listens.
    fn best(&self) -> &Address {
        match &self.unix {
            Some(path) if self.kind == Kind::Memcached => path,
            _ => &self.tcp,
        }
    }

    /// Returns clients of the store. With `once`, updates of Thunderhead have identities, so that
    /// each is executed once.
    ///
    /// # Errors
    /// When they cannot connect.
    pub fn crowd<'a>(
        &self,
        at: &Address,
        shape: Shape,
        once: bool,
        source: Source<'a>,
    ) -> Result<Crowd<'a>> {
        let (kind, replicas) = (self.kind, u64::from(self.wanted.replicas()));
        let caller = match (&self.body, once) {
            (Body::Ours(_, to), true) => {
                to.coordinator.map(|it| caller(Channel::Tcp).map(|caller| (caller, it)))
            }
            _ => None,
        };
        let caller = caller.transpose()?.map(RefCell::new);
        let make = || -> Result<Box<dyn Protocol>> {
            Ok(match kind {
                Kind::Redis | Kind::Valkey => Box::new(Resp { replicas }),
                Kind::Memcached => Box::new(Memcached { forgets: true }),
                Kind::Etcd => Box::new(Etcd::default()),
                Kind::Thunderhead => {
                    let lease = caller.as_ref().map(|it| {
                        let (caller, coordinator) = &mut *it.borrow_mut();
                        open_lease(caller, *coordinator)
                    });
                    let lease = lease.transpose()?.unwrap_or_default();
                    Box::new(Ours::new(lease).in_table(self.table).that_forgets())
                }
            })
        };
        Crowd::new(at, &make, shape, source)
    }

    /// Writes objects, many at once.
    ///
    /// # Errors
    /// When a write is refused.
    pub fn load(&self, objects: u64, value_bytes: usize) -> Result<()> {
        let parts = together(value_bytes);
        let mut next = 0;
        let source = move |numbers: &mut Vec<u64>| {
            numbers.extend(next..(next + parts).min(objects));
            next += parts;
            (!numbers.is_empty()).then_some((Act::Write, value_bytes))
        };
        self.write(Box::new(source))
            .with_context(|| format!("write {objects} objects to {}", self.kind.name()))
    }

    /// Writes some of the objects again, drawn at random.
    ///
    /// # Errors
    /// When a write is refused.
    pub fn write_again(&self, count: u64, objects: u64, value_bytes: usize) -> Result<()> {
        let parts = together(value_bytes);
        let mut rest = count / parts;
        let mut random = at_random(Act::Write, objects, value_bytes, parts as usize, 17);
        let source = move |numbers: &mut Vec<u64>| {
            rest = rest.checked_sub(1)?;
            random(numbers)
        };
        self.write(Box::new(source))
            .with_context(|| format!("overwrite {count} objects of {}", self.kind.name()))
    }

    fn write(&self, source: Source<'_>) -> Result<()> {
        let shape = Shape::polling(2, 4);
        self.crowd(self.best(), shape, false, source)?.run_out(&mut |_, _| {})
    }
}

/// Returns the number of objects in a request that writes many.
fn together(value_bytes: usize) -> u64 {
    ((32 << 10) / (value_bytes as u64 + 64)).clamp(1, 64)
}

/// Returns the arguments of Redis and Valkey.
fn redis(port: u16, directory: &str, durability: Durability) -> Vec<String> {
    let appends = match durability {
        Durability::Disk => Some("always"),
        Durability::Soon => Some("everysec"),
        _ => None,
    };
    let port = port.to_string();
    let mut all = vec!["--port", &port, "--bind", "127.0.0.1", "--dir", directory, "--save", ""];
    all.extend(["--repl-diskless-sync-delay", "0", "--protected-mode", "no"]);
    match appends {
        Some(when) => all.extend(["--appendonly", "yes", "--appendfsync", when]),
        None => all.extend(["--appendonly", "no"]),
    }
    all.iter().map(|it| (*it).to_owned()).collect()
}
