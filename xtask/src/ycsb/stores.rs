//! The stores under YCSB: processes of this machine, on ports of their own, with files in a
//! temporary directory. A process that was started here ends with its [`Store`].

use super::on_core;
use crate::scratch::{Running, Scratch};
use crate::steps::program;
use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a store may take to come up.
const PATIENCE: Duration = Duration::from_secs(60);

const LOOK: Duration = Duration::from_millis(50);

/// The processor core of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Core {
    Stores,
    Others,
}

/// Returns the path of the file that takes a store's output.
fn output_file(scratch: &Scratch, name: &str) -> PathBuf {
    scratch.path(&format!("{name}.log"))
}

/// A running store.
pub(super) struct Store {
    /// The store's name.
    pub(super) name: &'static str,
    /// The class of its binding.
    pub(super) binding: &'static str,
    /// The properties for the binding.
    pub(super) properties: Vec<String>,
    address: SocketAddr,
    process: Running,
}

impl Store {
    /// Starts `thunderhead dev` with one server of one shard.
    pub(super) fn thunderhead(scratch: &Scratch, memory: u64, durable: bool) -> Result<Store> {
        let address = free_address()?;
        let binary = program("thunderhead").canonicalize().context("find the binary")?;
        let mut command = on_core(Core::Stores, &binary.display().to_string());
        command.args([
            "dev",
            "--listen",
            &address.to_string(),
            "--memory",
            &format!("{}MiB", memory >> 20),
        ]);
        command.args(["--replicas", if durable { "1" } else { "0" }, "--log-level", "error"]);
        command.arg("--data").arg(scratch.path("thunderhead"));
        // This is some segments more than the reserve, also with a small memory.
        let segment = (memory / 64).next_power_of_two().clamp(512 << 10, 8 << 20) >> 10;
        command.args(["--segment-bytes", &format!("{segment}KiB")]);
        let process = start(command, scratch, "Thunderhead")?;
        let store = Store {
            name: "Thunderhead",
            binding: "thunderhead.ycsb.ThunderheadDB",
            properties: vec![format!("thunderhead.url=thunderhead://{address}")],
            address,
            process,
        };
        store.wait(scratch, |store| Ok(store.full()?.is_some()))
    }

    /// Starts Redis, without durability unless that is wanted.
    pub(super) fn redis(scratch: &Scratch, durable: bool, fields: u32) -> Result<Store> {
        let address = free_address()?;
        let directory = scratch.path("redis");
        std::fs::create_dir_all(&directory).context("make a directory for Redis")?;
        let mut command = on_core(Core::Stores, "redis-server");
        command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", if durable { "yes" } else { "no" }]);
        command.args(["--appendfsync", "everysec", "--dir"]).arg(&directory);
        let process = start(command, scratch, "Redis")?;
        let layout = if fields > 1 { "hash" } else { "value" };
        let properties =
            vec![format!("redis.port={}", address.port()), format!("redis.layout={layout}")];
        let store = Store {
            name: "Redis",
            binding: "thunderhead.ycsb.RedisDB",
            properties,
            address,
            process,
        };
        store.wait(scratch, |store| Ok(TcpStream::connect(store.address).is_ok()))
    }

    /// Waits until it is up.
    fn wait(mut self, scratch: &Scratch, up: impl Fn(&Store) -> Result<bool>) -> Result<Store> {
        let end = Instant::now() + PATIENCE;
        while !up(&self)? {
            let ended = self.process.0.try_wait().context("look at the store")?.is_some();
            if ended || Instant::now() > end {
                let said =
                    std::fs::read_to_string(output_file(scratch, self.name)).unwrap_or_default();
                let state = if ended { "has ended" } else { "does not answer" };
                bail!("{} {state}. It said: {said}", self.name);
            }
            std::thread::sleep(LOOK);
        }
        Ok(self)
    }

    /// Live data over memory; nothing where the store has no limit, or no server yet.
    pub(super) fn full(&self) -> Result<Option<f64>> {
        if self.name != "Thunderhead" {
            return Ok(None);
        }
        let mut command = Command::new(program("thunderhead"));
        command.args(["status", "--json", "--deadline", "2s"]);
        command.args(["--coordinators", &self.address.to_string()]);
        let output = command.stdin(Stdio::null()).output().context("ask for the status")?;
        let Ok(status) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
            return Ok(None);
        };
        let (mut live, mut memory) = (0.0, 0.0);
        for shard in status["shards"].as_object().into_iter().flat_map(|it| it.values()) {
            live += shard["status"]["live_bytes"].as_f64().unwrap_or(0.0);
            memory += shard["status"]["memory_bytes"].as_f64().unwrap_or(0.0);
        }
        Ok((memory > 0.0).then(|| live / memory))
    }

    /// Returns the resident bytes of the process; for Redis its own figure, which is the same.
    pub(super) fn resident_bytes(&self) -> Result<u64> {
        if self.name == "Redis" {
            return resident_of_redis(self.address);
        }
        let path = format!("/proc/{}/status", self.process.0.id());
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let words = line.and_then(|line| line.split_whitespace().next());
        let kilobytes: u64 = words.and_then(|word| word.parse().ok()).context("read VmRSS")?;
        Ok(kilobytes << 10)
    }
}

fn resident_of_redis(address: SocketAddr) -> Result<u64> {
    let mut stream = TcpStream::connect(address).context("connect to Redis")?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"INFO memory\r\nQUIT\r\n")?;
    let mut text = String::new();
    stream.take(1 << 20).read_to_string(&mut text).context("read the memory of Redis")?;
    let line = text.lines().find_map(|line| line.strip_prefix("used_memory_rss:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).context("Redis says nothing of its memory")
}

/// Starts a store whose output goes into a file.
fn start(mut command: Command, scratch: &Scratch, name: &str) -> Result<Running> {
    let path = output_file(scratch, name);
    let file = std::fs::File::create(&path).with_context(|| format!("make {}", path.display()))?;
    let both = file.try_clone().context("use a file twice")?;
    command.stdin(Stdio::null()).stdout(file).stderr(both);
    Running::start(command, name)
}

/// Returns an address on loopback with a port that is free now, as is the next port.
fn free_address() -> Result<SocketAddr> {
    for _ in 0..100 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a port")?;
        let address = listener.local_addr()?;
        let next = address.port().checked_add(1);
        if next.is_some_and(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            return Ok(address);
        }
    }
    bail!("no two free ports are next to each other")
}
