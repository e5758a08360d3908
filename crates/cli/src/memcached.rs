//! `thunderhead memcached`: a server for memcached's clients, with the flags of that daemon.

use crate::connect;
use crate::exit::Failure;
use crate::serve::{self, EndRequests, RemainingData, Until, cannot};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thunderhead_client::{Client, Error};
use thunderhead_config::{LogConfig, LogFormat, LogLevel};
use thunderhead_net::os::Options as NetOptions;
use thunderhead_net::stream::StreamAddress;
use thunderhead_runtime::polling::Polling;
use thunderhead_server::{
    BackupOptions, DoorLimits, DoorOptions, GenerationState, LocalCluster, LocalOptions, Probing,
    TableBehind,
};
use thunderhead_wire::control::Settings;
use thunderhead_wire::{Status, TableId};

/// The name of the table with the objects.
const TABLE: &str = "memcached";

/// The unit of `-m`.
const MEGABYTE: u64 = 1 << 20;

/// The possible lengths of segments. Longer segments hold longer values.
const SEGMENTS: [u32; 4] = [8 << 20, 4 << 20, 2 << 20, 1 << 20];

/// How long the client of this process waits for an answer of the cluster beside it.
const DEADLINE: Duration = Duration::from_secs(10);

/// The flags are those of memcached, as far as they make sense here.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "As memcached")]
pub(crate) struct Arguments {
    /// The port; 0 for any free one.
    #[arg(short = 'p', long, default_value_t = 11211, value_name = "PORT")]
    port: u16,
    /// The addresses on which it listens, with or without a port. Clients need no password: choose
    /// addresses that only they can reach.
    #[arg(
        short = 'l',
        long,
        value_delimiter = ',',
        default_value = "127.0.0.1",
        value_name = "ADDRESS"
    )]
    listen: Vec<String>,
    /// Listen on a socket of the file system, and on no port.
    #[arg(short = 's', long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// The permissions of that socket, octal.
    #[arg(short = 'a', long, default_value = "700", value_parser = octal, value_name = "MASK")]
    unix_mask: u32,
    /// The memory for objects, in megabytes.
    #[arg(short = 'm', long, default_value_t = 64, value_name = "MB")]
    memory_limit: u64,
    /// The most connections.
    #[arg(short = 'c', long, default_value_t = 1024, value_parser = positive, value_name = "COUNT")]
    conn_limit: usize,
    /// The longest value: a number of bytes, or of `k` or `m`. At most 1m.
    #[arg(short = 'I', long, default_value = "1m", value_parser = size, value_name = "SIZE")]
    max_item_size: usize,
    /// Refuse writes when memory is full, instead of evicting objects.
    #[arg(short = 'M', long)]
    disable_evictions: bool,
    /// Refuse `flush_all`.
    #[arg(short = 'F', long)]
    disable_flush_all: bool,
    /// Say more in the log; repeat it to say still more.
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Write the id of the process into a file.
    #[arg(short = 'P', long, value_name = "FILE")]
    pidfile: Option<PathBuf>,
    /// Accepted and ignored: one thread serves all clients.
    #[arg(short = 't', long, value_name = "COUNT")]
    threads: Option<u32>,
    /// Accepted and ignored: connections take turns by themselves.
    #[arg(short = 'R', long, value_name = "COUNT")]
    max_reqs_per_event: Option<u32>,
    /// Accepted and ignored: the extended options are about parts that are not here.
    #[arg(short = 'o', long, value_name = "OPTIONS")]
    extended: Vec<String>,
    /// Refused: start it with a service manager, as that user.
    #[arg(short = 'u', long, value_parser = no_user, value_name = "USER")]
    user: Option<String>,
    /// Refused: start it with a service manager, which keeps it in the background.
    #[arg(short = 'd', long)]
    daemon: bool,
    /// Only 0, because there is no UDP.
    #[arg(short = 'U', long, default_value_t = 0, value_parser = no_udp, value_name = "PORT")]
    udp_port: u16,
    /// Keep the objects in a directory. Then an acknowledged write is never lost, and a restart has
    /// all objects.
    #[arg(long, value_name = "DIRECTORY", help_heading = "Not in memcached")]
    data: Option<PathBuf>,
}

fn octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mask) if mask <= 0o777 => Ok(mask),
        _ => Err("write permissions in octal, like 700".to_owned()),
    }
}

fn size(text: &str) -> Result<usize, String> {
    let wrong = || "write a number of bytes, or of k or m, like 512k; at most 1m".to_owned();
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    let bytes = number.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    bytes.filter(|bytes| (1024..=1 << 20).contains(bytes)).ok_or_else(wrong)
}

fn positive(text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "write a number from 1 on".to_owned())
}

fn no_user(_: &str) -> Result<String, String> {
    Err("it does not change its user: start it as that user, and leave -u out".to_owned())
}

fn no_udp(text: &str) -> Result<u16, String> {
    match text {
        "0" => Ok(0),
        _ => Err("there is no UDP here; leave it out, or write 0".to_owned()),
    }
}

impl Arguments {
    fn places(&self) -> Result<Vec<StreamAddress>, Failure> {
        if let Some(path) = &self.unix_socket {
            return Ok(vec![StreamAddress::Unix(path.clone(), self.unix_mask)]);
        }
        let places = self.listen.iter().map(|host| self.place(host).map(StreamAddress::Tcp));
        places.collect()
    }

    fn place(&self, host: &str) -> Result<SocketAddr, Failure> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(SocketAddr::new(ip, self.port));
        }
        if host == "*" {
            return Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.port)));
        }
        let with_port = host.to_socket_addrs().ok();
        if let Some(address) = with_port.and_then(|mut found| found.next()) {
            return Ok(address);
        }
        let mut found = (host, self.port)
            .to_socket_addrs()
            .map_err(|error| cannot(format!("find the address {host} (-l)"), error))?;
        found.next().ok_or_else(|| Failure::usage(format!("{host} (-l) has no address")))
    }

    /// The length of segments: as long as the memory allows, and long enough for the values.
    fn segment_bytes(&self) -> Result<u32, Failure> {
        let memory = self.memory_limit.saturating_mul(MEGABYTE);
        let fits = |bytes: &&u32| u64::from(**bytes) * 8 <= memory;
        let chosen = SEGMENTS.iter().find(fits);
        match chosen {
            Some(bytes) if *bytes as usize / 8 >= self.max_item_size => Ok(*bytes),
            _ => {
                let needed = (self.max_item_size as u64 * 8).next_power_of_two() * 8 / MEGABYTE;
                Err(Failure::usage(format!(
                    "values of up to {} bytes (-I) need at least {} MB of memory (-m), and {} MB are given",
                    self.max_item_size,
                    needed.max(8),
                    self.memory_limit
                )))
            }
        }
    }

    fn options(&self, door: &Arc<DoorOptions>) -> Result<LocalOptions, Failure> {
        let replicas = u32::from(self.data.is_some());
        Ok(LocalOptions {
            directory: self.data.clone().unwrap_or_else(std::env::temp_dir),
            in_memory: self.data.is_none(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            servers: 1,
            shards: 1,
            cleaners: 1,
            memory_bytes: serve::memory(self.memory_limit.saturating_mul(MEGABYTE))?,
            populate: false,
            backup: self
                .data
                .as_ref()
                .map(|_| BackupOptions { sparse: true, ..BackupOptions::default() }),
            settings: Settings {
                replicas,
                min_replicas: replicas,
                durability: "replicated".to_owned(),
                segment_bytes: self.segment_bytes()?,
                self_backup: true,
            },
            probing: Probing::default(),
            polling: Polling::default(),
            net: NetOptions { shared_memory: false, ..NetOptions::default() },
            door: Some(Arc::clone(door)),
        })
    }
}

/// Runs the server until it is asked to end.
pub(crate) fn run(arguments: &Arguments, until: Until, json: bool) -> Result<(), Failure> {
    let level = match arguments.verbose {
        0 => LogLevel::Warn,
        1 => LogLevel::Info,
        _ => LogLevel::Debug,
    };
    serve::log(LogConfig { level, format: LogFormat::Text });
    if arguments.daemon {
        return Err(Failure::usage(
            "it does not go to the background (-d): start it with a service manager, or with `&`"
                .to_owned(),
        ));
    }
    let table = Arc::new(TableBehind::default());
    let door = Arc::new(DoorOptions {
        listen: arguments.places()?,
        limits: DoorLimits {
            memory_bytes: arguments.memory_limit.saturating_mul(MEGABYTE),
            value_bytes: arguments.max_item_size,
            connections: arguments.conn_limit,
            may_flush: !arguments.disable_flush_all,
            evicts: !arguments.disable_evictions,
        },
        table: Arc::clone(&table),
        listens: Arc::default(),
    });
    let options = arguments.options(&door)?;
    let kept = match &arguments.data {
        Some(_) => RemainingData::InBuffers("/dev/shm".into()),
        None => RemainingData::Nothing,
    };
    let requests = EndRequests::listening(until, kept)?;
    let local = LocalCluster::start(&options).map_err(|error| cannot("start", error))?;
    let all: Vec<GenerationState> =
        local.servers().iter().map(|it| it.generation().clone()).collect();
    requests.set(all.clone());
    if serve::wait_until_ready(&local, &all)?.is_none() {
        return serve::serve(|| local.join());
    }
    let mut client = connect::beside(local.coordinator(), DEADLINE)?;
    table.set_table(client.ensure_table(TABLE, 1)?);
    if let Some(path) = &arguments.pidfile
        && let Err(error) = std::fs::write(path, format!("{}\n", std::process::id()))
    {
        local.leave();
        let _ = local.join();
        return Err(cannot(format!("write {} (-P)", path.display()), error));
    }
    let places = door.listens.get().map_or(&[][..], Vec::as_slice);
    tell(arguments, places, json)?;
    if arguments.threads.is_some_and(|threads| threads > 1) {
        tracing::info!("one thread serves all clients; -t is ignored");
    }
    let of_flushes = Arc::clone(&table);
    let flushes = move || of_flushes.serve_flushes(|| make_anew(&mut client));
    let thread = std::thread::Builder::new().name("flushes".to_owned()).spawn(flushes);
    let thread = thread.map_err(|error| cannot("start a thread", error))?;
    let ended = serve::serve(|| local.join());
    table.end();
    // It only waits for its client, which the end of the cluster has failed.
    drop(thread);
    if let Some(path) = &arguments.pidfile {
        let _ = std::fs::remove_file(path);
    }
    ended
}

/// Says where it listens.
fn tell(arguments: &Arguments, places: &[StreamAddress], json: bool) -> Result<(), Failure> {
    let places: Vec<String> = places.iter().map(ToString::to_string).collect();
    let mut out = std::io::stdout().lock();
    if json {
        let data = arguments.data.as_ref().map(|data| data.display().to_string());
        let pid = std::process::id();
        let ready = serde_json::json!({
            "listens": places,
            "memory_megabytes": arguments.memory_limit,
            "data": data,
            "pid": pid,
        });
        writeln!(out, "{ready}")?;
        return Ok(out.flush()?);
    }
    let kept = match &arguments.data {
        Some(data) => format!("data in {}", data.display()),
        None => "nothing is kept".to_owned(),
    };
    let (at, memory) = (places.join(", "), arguments.memory_limit);
    writeln!(out, "Thunderhead serves memcached's clients at {at}: {memory} MB, {kept}.")?;
    Ok(out.flush()?)
}

/// Makes the table anew: that removes all objects and reads none of them. Returns `None` after a
/// failure, once a further try is worth it.
fn make_anew(client: &mut Client) -> Option<TableId> {
    let dropped = match client.drop_table(TABLE) {
        Err(Error::Refused(Status::NoSuchTable)) => Ok(()),
        other => other,
    };
    match dropped.and_then(|()| client.ensure_table(TABLE, 1)) {
        Ok(table) => Some(table),
        Err(error) => {
            tracing::warn!(%error, "the objects cannot be removed; trying again");
            #[allow(clippy::disallowed_methods, reason = "this thread does nothing else")]
            std::thread::sleep(Duration::from_millis(100));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_a_port() {
        use clap::Parser;
        #[derive(Parser)]
        struct All {
            #[command(flatten)]
            arguments: Arguments,
        }
        let places = |line: &[&str]| {
            let words = ["memcached", "-p", "77"].iter().chain(line);
            All::parse_from(words).arguments.places().map_err(|failure| failure.to_string())
        };
        let tcp = |text: &str| StreamAddress::Tcp(text.parse().unwrap());
        assert_eq!(places(&[]), Ok(vec![tcp("127.0.0.1:77")]));
        let two = places(&["-l", "127.0.0.2,[::1]:78"]);
        assert_eq!(two, Ok(vec![tcp("127.0.0.2:77"), tcp("[::1]:78")]));
        assert_eq!(places(&["-l", "*"]), Ok(vec![tcp("0.0.0.0:77")]));
        assert_eq!(places(&["-l", "127.0.0.3:79"]), Ok(vec![tcp("127.0.0.3:79")]));
        let socket = Ok(vec![StreamAddress::Unix("/tmp/s".into(), 0o700)]);
        assert_eq!(places(&["-s", "/tmp/s"]), socket);
        assert!(places(&["-l", "no such host"]).is_err());
    }

    #[test]
    fn sizes_and_permissions_are_read_as_memcached_reads_them() {
        assert_eq!(size("1m"), Ok(1 << 20));
        assert_eq!(size("512k"), Ok(512 << 10));
        assert_eq!(size("4096"), Ok(4096));
        for wrong in ["", "m", "2m", "-1", "1023", "99999999999999999999m", "1g"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(octal("700"), Ok(0o700));
        for wrong in ["", "8", "1777", "-7", "0x7"] {
            assert!(octal(wrong).is_err(), "{wrong}");
        }
        assert!(no_udp("0").is_ok() && no_udp("11211").is_err());
    }
}
