//! A cache with the text protocol of memcached, as a process on the server's core, and connections
//! to it.

use crate::peers::process::{Processes, processor_time, resident_bytes};
use crate::peers::store::Kind;
use crate::rpc::floors::SERVER_CORE;
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use thunderhead_load::children::free_port;

/// Bytes of a key: those of YCSB.
pub const KEY_BYTES: usize = 23;

/// The longest time until a store answers.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);

/// The longest value that is read.
const VALUE_MAX: usize = 1 << 20;

/// A running cache.
pub struct Server {
    processes: Processes,
    address: SocketAddr,
}

/// Returns the address that Thunderhead has printed, if it is there.
fn told_address(processes: &Processes) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(processes.directory().join("cache.log")).ok()?;
    let ready: serde_json::Value = serde_json::from_str(text.lines().next()?).ok()?;
    ready["listens"][0].as_str()?.parse().ok()
}

impl Server {
    /// Starts a store with this memory. Both use one thread for requests.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(kind: Kind, megabytes: u64) -> Result<Server> {
        let processes = Processes::new()?;
        let memory = megabytes.to_string();
        let mut arguments = vec!["-m", &memory, "-l", "127.0.0.1", "-t", "1"];
        let port = free_port()?.to_string();
        match kind {
            Kind::Thunderhead => {
                // A port that is free now may become one of Thunderhead's other ports.
                arguments.splice(0..0, ["--json", "memcached", "-p", "0"]);
                // A small memory holds no long values.
                arguments.extend((megabytes < 64).then_some(["-I", "64k"]).iter().flatten());
            }
            // It refuses to run as root without naming a user.
            _ => arguments.extend(["-u", "nobody", "-p", &port]),
        }
        let program = kind.program().with_context(|| format!("{} is missing", kind.name()))?;
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        processes.start("cache", SERVER_CORE, &program, &arguments)?;
        let began = Instant::now();
        let address = loop {
            let address = match kind {
                Kind::Thunderhead => told_address(&processes),
                _ => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse()?))),
            };
            if let Some(address) = address.filter(|it| TcpStream::connect(it).is_ok()) {
                break address;
            }
            processes.ensure_whole()?;
            ensure!(began.elapsed() < PATIENCE, "{} does not listen", kind.name());
            std::thread::sleep(LOOK);
        };
        Ok(Server { processes, address })
    }

    /// Connects.
    ///
    /// # Errors
    /// When the store is gone.
    pub fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(self.address).context("connect")?;
        stream.set_nodelay(true).context("connect")?;
        stream.set_read_timeout(Some(PATIENCE)).context("connect")?;
        let input = BufReader::with_capacity(64 << 10, stream.try_clone().context("connect")?);
        Ok(Connection { stream, input, output: Vec::new(), waiting: Vec::new(), line: Vec::new() })
    }

    /// Returns the resident bytes.
    ///
    /// # Errors
    /// When the store has ended.
    pub fn resident_bytes(&self) -> Result<u64> {
        resident_bytes(self.processes.process("cache")?)
    }

    /// Returns the processor time so far: of the whole store, and of its cleaner threads.
    ///
    /// # Errors
    /// When the store has ended.
    pub fn processor_times(&self) -> Result<(Duration, Duration)> {
        let process = self.processes.process("cache")?;
        let mut cleaners = Duration::ZERO;
        for task in std::fs::read_dir(format!("/proc/{process}/task")).context("list threads")? {
            let path = task.context("list threads")?.path();
            let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            if name.starts_with("cleaner") {
                let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
                let first = text.split_whitespace().next().and_then(|it| it.parse().ok());
                cleaners += Duration::from_nanos(first.unwrap_or(0));
            }
        }
        Ok((processor_time(process)?, cleaners))
    }
}

/// A request whose answer is awaited.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    Stored,
    Value(u64),
}

/// The answers to a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    /// Objects that were stored.
    pub stored: u64,
    /// Objects that were refused for lack of memory.
    pub refused: u64,
}

/// A connection with a batch of requests in flight.
pub struct Connection {
    stream: TcpStream,
    input: BufReader<TcpStream>,
    output: Vec<u8>,
    waiting: Vec<Awaited>,
    line: Vec<u8>,
}

fn put_key(to: &mut Vec<u8>, number: u64) {
    let from = to.len();
    to.extend_from_slice(b"user0000000000000000000");
    let mut rest = number;
    for digit in to[from + 4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

impl Connection {
    /// Adds a write to the batch.
    pub fn set(&mut self, number: u64, value_bytes: usize, expires_after: u32) {
        self.waiting.push(Awaited::Stored);
        self.output.extend_from_slice(b"set ");
        put_key(&mut self.output, number);
        // Writing into memory cannot fail.
        let _ = write!(self.output, " 0 {expires_after} {value_bytes}\r\n");
        let named = number.to_le_bytes();
        let from = self.output.len();
        self.output.resize(from + value_bytes, b'v');
        let named = &named[..value_bytes.min(named.len())];
        self.output[from..from + named.len()].copy_from_slice(named);
        self.output.extend_from_slice(b"\r\n");
    }

    /// Adds a read to the batch.
    pub fn get(&mut self, number: u64) {
        self.waiting.push(Awaited::Value(number));
        self.output.extend_from_slice(b"get ");
        put_key(&mut self.output, number);
        self.output.extend_from_slice(b"\r\n");
    }

    /// Sends the batch.
    ///
    /// # Errors
    /// When the store is gone.
    pub fn send(&mut self) -> Result<()> {
        self.stream.write_all(&self.output).context("send a batch")?;
        self.output.clear();
        Ok(())
    }

    /// Takes the answers to the batch. `on_read` gets each read object, and whether it was found.
    ///
    /// # Errors
    /// When an answer is wrong.
    pub fn take(&mut self, mut on_read: impl FnMut(u64, bool)) -> Result<Answers> {
        let mut answers = Answers::default();
        for awaited in std::mem::take(&mut self.waiting) {
            self.read_line()?;
            match awaited {
                Awaited::Stored => match self.line.as_slice() {
                    b"STORED\r\n" => answers.stored += 1,
                    b"SERVER_ERROR out of memory storing object\r\n" => answers.refused += 1,
                    other => bail!("a write was answered: {}", String::from_utf8_lossy(other)),
                },
                Awaited::Value(number) if self.line == b"END\r\n" => on_read(number, false),
                Awaited::Value(number) => {
                    self.read_value(number)?;
                    on_read(number, true);
                }
            }
        }
        Ok(answers)
    }

    fn read_line(&mut self) -> Result<()> {
        self.line.clear();
        let most = 512;
        let read = (&mut self.input).take(most).read_until(b'\n', &mut self.line);
        ensure!(read.context("take an answer")? > 0, "the store has closed the connection");
        Ok(())
    }

    /// Reads a value behind its line, and checks it.
    fn read_value(&mut self, number: u64) -> Result<()> {
        let text = String::from_utf8_lossy(&self.line).into_owned();
        let words: Vec<&str> = text.split_whitespace().collect();
        let bytes = match words.as_slice() {
            ["VALUE", _, "0", bytes] => bytes.parse::<usize>().ok(),
            _ => None,
        };
        let bytes = bytes.filter(|bytes| *bytes <= VALUE_MAX);
        let bytes = bytes.with_context(|| format!("a read was answered: {text}"))?;
        self.line.resize(bytes + 7, 0);
        self.input.read_exact(&mut self.line).context("take a value")?;
        ensure!(self.line.ends_with(b"\r\nEND\r\n"), "a value has another length");
        let named = number.to_le_bytes();
        let named = &named[..bytes.min(named.len())];
        ensure!(self.line.starts_with(named), "object {number} has the value of another one");
        Ok(())
    }

    /// Asks for the statistics.
    ///
    /// # Errors
    /// When the store is gone.
    pub fn statistics(&mut self) -> Result<Statistics> {
        self.stream.write_all(b"stats\r\n").context("ask for statistics")?;
        let mut all = BTreeMap::new();
        loop {
            self.read_line()?;
            if self.line == b"END\r\n" {
                return Ok(Statistics(all));
            }
            let text = String::from_utf8_lossy(&self.line).into_owned();
            if let ["STAT", name, value] = text.split_whitespace().collect::<Vec<_>>().as_slice() {
                all.insert((*name).to_owned(), value.parse().unwrap_or(0));
            }
        }
    }
}

/// The statistics that are numbers.
#[derive(Debug)]
pub struct Statistics(BTreeMap<String, u64>);

impl Statistics {
    /// Returns the number of objects.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.0.get("curr_items").copied().unwrap_or(0)
    }

    /// Returns the number of evictions so far.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.0.get("evictions").copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_length_of_those_of_ycsb() {
        let key = |number| {
            let mut bytes = Vec::new();
            put_key(&mut bytes, number);
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(key(42), "user0000000000000000042");
        assert_eq!(key(u64::MAX).len(), KEY_BYTES);
    }
}
