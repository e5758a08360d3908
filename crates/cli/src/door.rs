//! The parts that the servers for clients of other protocols share.

use crate::connect;
use crate::exit::Failure;
use crate::serve::{self, EndRequests, RemainingData, Until, cannot};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thunderhead_client::{Client, Error, Question};
use thunderhead_config::{LogConfig, LogFormat, LogLevel};
use thunderhead_net::os::Options as NetOptions;
use thunderhead_net::stream::StreamAddress;
use thunderhead_runtime::polling::Polling;
use thunderhead_server::{
    BackupOptions, DoorOptions, DoorProtocol, GenerationState, LocalCluster, LocalOptions, Probing,
};
use thunderhead_wire::control::{DropTable, RecoveryInfo, Settings};
use thunderhead_wire::{Status, TableId};

pub(crate) const MEGABYTE: u64 = 1 << 20;

/// The possible lengths of segments. Longer segments hold longer values.
const SEGMENTS: [u32; 4] = [8 << 20, 4 << 20, 2 << 20, 1 << 20];

/// The number of segments of a cache without copies, at most, if its values are short.
const SEGMENTS_MAX: u64 = 128;

/// How long the client of this process waits for an answer of the cluster beside it.
const DEADLINE: Duration = Duration::from_secs(10);

/// The pause before a failed change of a table is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// The failed attempts after which the start fails for any reason.
const FAILURES_MAX: u32 = 6;

/// A server with a door.
pub(crate) struct DoorServer<'a> {
    /// The clients that it serves, for its first message.
    pub(crate) clients: &'static str,
    pub(crate) listen: Vec<StreamAddress>,
    pub(crate) protocol: DoorProtocol,
    pub(crate) memory_bytes: u64,
    /// The flag that sets the memory.
    pub(crate) memory_flag: &'static str,
    pub(crate) segment_bytes: u32,
    /// The directory in which objects are kept, if they are.
    pub(crate) data: Option<&'a Path>,
    /// The file for the id of the process.
    pub(crate) pidfile: Option<&'a Path>,
    /// How many flags asked for more in the log.
    pub(crate) verbose: u8,
}

impl DoorServer<'_> {
    fn options(&self, door: &Arc<DoorOptions>) -> Result<LocalOptions, Failure> {
        let replicas = u32::from(self.data.is_some());
        Ok(LocalOptions {
            directory: self.data.map_or_else(std::env::temp_dir, PathBuf::from),
            in_memory: self.data.is_none(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            servers: 1,
            shards: 1,
            cleaners: 1,
            memory_bytes: serve::memory(self.memory_bytes)?,
            populate: false,
            backup: self.data.map(|_| BackupOptions { sparse: true, ..BackupOptions::default() }),
            settings: Settings {
                replicas,
                min_replicas: replicas,
                durability: "replicated".to_owned(),
                segment_bytes: self.segment_bytes,
                self_backup: true,
            },
            probing: Probing::default(),
            polling: Polling::default(),
            net: NetOptions { shared_memory: false, ..NetOptions::default() },
            door: Some(Arc::clone(door)),
        })
    }

    /// Runs the server until it is asked to end. `begin` makes the first tables. `work` runs in a
    /// thread of its own until `end` is called.
    pub(crate) fn run<S: Send + 'static>(
        &self,
        until: Until,
        json: bool,
        begin: impl FnOnce(Client) -> Result<S, Failure>,
        work: impl FnOnce(S) + Send + 'static,
        end: impl FnOnce(),
    ) -> Result<(), Failure> {
        let level = match self.verbose {
            0 => LogLevel::Warn,
            1 => LogLevel::Info,
            _ => LogLevel::Debug,
        };
        serve::log(LogConfig { level, format: LogFormat::Text });
        let door = Arc::new(DoorOptions {
            listen: self.listen.clone(),
            protocol: self.protocol.clone(),
            listens: Arc::default(),
            cluster: None,
        });
        let options = self.options(&door)?;
        let kept = match self.data {
            Some(_) => RemainingData::InBuffers("/dev/shm".into()),
            None => RemainingData::Nothing,
        };
        let requests = EndRequests::listening(until, kept)?;
        let local = LocalCluster::start(&options).map_err(|error| cannot("start", error))?;
        let all: Vec<GenerationState> =
            local.servers().iter().map(|it| it.generation().clone()).collect();
        requests.set(all.clone());
        match serve::wait_until_ready(&local, &all, |recovery| self.check(recovery)) {
            Ok(Some(_)) => {}
            Ok(None) => return serve::serve(|| local.join()),
            Err(failure) => {
                local.leave();
                let _ = local.join();
                return Err(failure);
            }
        }
        let state = begin(connect::beside(local.coordinator(), DEADLINE)?)?;
        if let Some(path) = self.pidfile
            && let Err(error) = std::fs::write(path, format!("{}\n", std::process::id()))
        {
            local.leave();
            let _ = local.join();
            return Err(cannot(format!("write {}", path.display()), error));
        }
        self.tell(door.listens.get().map_or(&[][..], Vec::as_slice), json)?;
        let thread = std::thread::Builder::new().name("tables".to_owned());
        let thread = thread.spawn(move || work(state));
        let thread = thread.map_err(|error| cannot("start a thread", error))?;
        let ended = serve::serve(|| local.join());
        end();
        // It only waits for its client, which the end of the cluster has failed.
        drop(thread);
        if let Some(path) = self.pidfile {
            let _ = std::fs::remove_file(path);
        }
        ended
    }

    /// Refuses to wait for a recovery that cannot succeed: all replicas are on the disk of this
    /// server, and its memory does not grow.
    fn check(&self, recovery: &RecoveryInfo) -> Result<(), Failure> {
        let data = self.data.map_or_else(String::new, |data| data.display().to_string());
        let megabytes = |bytes: u64| bytes.div_ceil(MEGABYTE);
        let RecoveryInfo { needed_bytes, failures, trouble, .. } = recovery;
        match (*needed_bytes, *failures) {
            (1.., 2..) => Err(Failure::usage(format!(
                "the objects in {data} need about {} MB of memory, and {} gives {} MB: start it \
                 with more. No object is lost",
                megabytes(*needed_bytes),
                self.memory_flag,
                megabytes(self.memory_bytes),
            ))),
            (_, FAILURES_MAX..) => Err(Failure::usage(format!(
                "the objects in {data} cannot be read: {}",
                trouble.as_deref().unwrap_or("the reason is not known"),
            ))),
            _ => Ok(()),
        }
    }

    /// Says where it listens.
    fn tell(&self, places: &[StreamAddress], json: bool) -> Result<(), Failure> {
        let places: Vec<String> = places.iter().map(ToString::to_string).collect();
        let memory = self.memory_bytes / MEGABYTE;
        let mut out = std::io::stdout().lock();
        if json {
            let ready = serde_json::json!({
                "listens": places,
                "memory_megabytes": memory,
                "data": self.data.map(|data| data.display().to_string()),
                "pid": std::process::id(),
            });
            writeln!(out, "{ready}")?;
            return Ok(out.flush()?);
        }
        let kept = match self.data {
            Some(data) => format!("data in {}", data.display()),
            None => "nothing is kept".to_owned(),
        };
        let (clients, at) = (self.clients, places.join(", "));
        writeln!(out, "Thunderhead serves {clients} clients at {at}: {memory} MB, {kept}.")?;
        Ok(out.flush()?)
    }
}

/// The places of a list of addresses, with or without a port of their own. `flag` is the flag that
/// has them.
pub(crate) fn places(
    hosts: &[String],
    port: u16,
    flag: &str,
) -> Result<Vec<StreamAddress>, Failure> {
    hosts.iter().map(|host| place(host, port, flag).map(StreamAddress::Tcp)).collect()
}

fn place(host: &str, port: u16, flag: &str) -> Result<SocketAddr, Failure> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    if host == "*" {
        return Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    }
    let with_port = host.to_socket_addrs().ok();
    if let Some(address) = with_port.and_then(|mut found| found.next()) {
        return Ok(address);
    }
    let mut found = (host, port)
        .to_socket_addrs()
        .map_err(|error| cannot(format!("find the address {host} ({flag})"), error))?;
    found.next().ok_or_else(|| Failure::usage(format!("{host} ({flag}) has no address")))
}

/// The length of segments: as long as the memory allows, and long enough for the values. `None` if
/// the memory is too small for such values.
pub(crate) fn segment_bytes(memory_bytes: u64, value_bytes: usize) -> Option<u32> {
    let fits = |bytes: &&u32| u64::from(**bytes) * 8 <= memory_bytes;
    let chosen = SEGMENTS.iter().find(fits).copied();
    chosen.filter(|bytes| *bytes as usize / 8 >= value_bytes)
}

/// The length of segments for a cache that keeps no copies: as short as the values allow. With many
/// short segments cleaners copy less, but each takes some memory.
pub(crate) fn short_segment_bytes(memory_bytes: u64, value_bytes: usize) -> Option<u32> {
    let longest = segment_bytes(memory_bytes, value_bytes)?;
    let least = (value_bytes as u64 * 2).max(memory_bytes / SEGMENTS_MAX);
    let chosen = SEGMENTS.iter().rev().find(|bytes| u64::from(**bytes) >= least);
    Some(chosen.map_or(longest, |bytes| longest.min(*bytes)))
}

/// The least memory for values of a length, in megabytes.
pub(crate) fn least_megabytes(value_bytes: usize) -> u64 {
    ((value_bytes as u64 * 8).next_power_of_two() * 8 / MEGABYTE).max(8)
}

pub(crate) fn octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mask) if mask <= 0o777 => Ok(mask),
        _ => Err("write permissions in octal, like 700".to_owned()),
    }
}

pub(crate) fn positive(text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "write a number from 1 on".to_owned())
}

/// Drops a table. It may be gone already.
pub(crate) fn drop_table(client: &mut Client, name: &str) -> Result<(), Error> {
    match client.drop_table(name) {
        Err(Error::Refused(Status::NoSuchTable)) => Ok(()),
        other => other,
    }
}

/// Drops the table of an id. It may be gone already.
pub(crate) fn drop_table_with_id(
    client: &mut Client,
    name: &str,
    id: TableId,
) -> Result<(), Error> {
    let question = DropTable { name: name.to_owned(), id: Some(id) };
    match client.ask(Question::DropTable(question)) {
        Ok(_) | Err(Error::Refused(Status::NoSuchTable)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Tells that a change of a table has failed, and waits until a further try is worth it.
pub(crate) fn tell_failed(error: &Error) {
    tracing::warn!(%error, "a table cannot be changed; trying again");
    #[allow(clippy::disallowed_methods, reason = "this thread does nothing else")]
    std::thread::sleep(PAUSE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_a_port() {
        let read = |hosts: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            places(&hosts, 77, "-l").map_err(|failure| failure.to_string())
        };
        let tcp = |text: &str| StreamAddress::Tcp(text.parse().unwrap());
        assert_eq!(read(&["127.0.0.1"]), Ok(vec![tcp("127.0.0.1:77")]));
        let two = read(&["127.0.0.2", "[::1]:78"]);
        assert_eq!(two, Ok(vec![tcp("127.0.0.2:77"), tcp("[::1]:78")]));
        assert_eq!(read(&["*"]), Ok(vec![tcp("0.0.0.0:77")]));
        assert_eq!(read(&["127.0.0.3:79"]), Ok(vec![tcp("127.0.0.3:79")]));
        assert!(read(&["no such host"]).is_err());
    }

    #[test]
    fn segments_are_as_long_as_memory_and_values_need() {
        assert_eq!(segment_bytes(64 << 20, 1 << 20), Some(8 << 20));
        assert_eq!(segment_bytes(63 << 20, 1 << 20), None);
        assert_eq!(segment_bytes(32 << 20, 512 << 10), Some(4 << 20));
        assert_eq!(segment_bytes(1 << 20, 1024), None);
        assert_eq!((least_megabytes(1 << 20), least_megabytes(10)), (64, 8));
        let short =
            |memory: u64, value| short_segment_bytes(memory << 20, value).map(|bytes| bytes >> 20);
        assert_eq!((short(64, 1 << 20), short(64, 64 << 10)), (Some(2), Some(1)));
        assert_eq!((short(256, 64 << 10), short(512, 500 << 10)), (Some(2), Some(4)));
        assert_eq!((short(64 << 10, 64 << 10), short(63, 1 << 20)), (Some(8), None));
        assert_eq!(short(7, 1024), None);
    }

    #[test]
    fn permissions_and_counts_are_read() {
        assert_eq!(octal("700"), Ok(0o700));
        for wrong in ["", "8", "1777", "-7", "0x7"] {
            assert!(octal(wrong).is_err(), "{wrong}");
        }
        assert_eq!(positive("7"), Ok(7));
        assert!(positive("0").is_err() && positive("-1").is_err());
    }
}
