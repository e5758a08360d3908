//! `thunderhead redis`: a server for Redis's clients, with the usual settings of that server.

pub(crate) mod cluster;

use crate::door::{self, DoorServer, MEGABYTE, octal, positive};
use crate::exit::Failure;
use crate::serve::Until;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thunderhead_client::{Client, Error};

use thunderhead_net::stream::StreamAddress;
use thunderhead_server::{
    CATALOG_KEY, Databases, DoorProtocol, RedisOptions, RedisServerOptions, TableWork,
};
use thunderhead_wire::TableId;

/// The table with the catalog of the databases.
const CATALOG: &str = thunderhead_server::CATALOG_TABLE;

/// The beginning of the names of tables with objects. A number follows.
const PREFIX: &str = "redis-";

/// The longest string, if the memory is large enough. A reply of this length still fits into the
/// output of a connection.
const STRING_BYTES_MAX: u64 = 32 * MEGABYTE;

/// The least memory.
const MEMORY_MIN: u64 = 8 * MEGABYTE;

/// The flags are settings of Redis.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "As in Redis")]
pub(crate) struct Arguments {
    /// The port. 0 chooses a free one, or none with `--unixsocket`.
    #[arg(short = 'p', long, default_value_t = 6379, value_name = "PORT")]
    port: u16,
    /// The addresses on which it listens.
    #[arg(
        long,
        value_delimiter = ' ',
        num_args = 1..,
        default_value = "127.0.0.1",
        value_name = "ADDRESS"
    )]
    bind: Vec<String>,
    /// Listen on a socket of the file system, too. With port 0 listen only there.
    #[arg(long, value_name = "PATH")]
    unixsocket: Option<PathBuf>,
    /// The permissions of that socket, octal.
    #[arg(long, default_value = "700", value_parser = octal, value_name = "MASK")]
    unixsocketperm: u32,
    /// The password that clients must give.
    #[arg(long, value_name = "PASSWORD", value_parser = password)]
    requirepass: Option<String>,
    /// With `no`, accept clients from other machines without a password.
    #[arg(long, default_value = "yes", action = clap::ArgAction::Set, value_parser = yes_or_no, value_name = "yes|no")]
    protected_mode: bool,
    /// The memory for objects: a number of bytes, or of `kb`, `mb` or `gb`.
    #[arg(long, default_value = "1gb", value_parser = size, value_name = "SIZE")]
    maxmemory: u64,
    /// Which objects are evicted when memory is full: `noeviction`, `allkeys-lru` and so on.
    #[arg(long, default_value = "noeviction", value_parser = policy, value_name = "POLICY")]
    maxmemory_policy: &'static str,
    /// The most connections.
    #[arg(long, default_value_t = 10_000, value_parser = positive, value_name = "COUNT")]
    maxclients: usize,
    /// The number of databases.
    #[arg(
        long,
        default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=1024),
        value_name = "COUNT"
    )]
    databases: u32,
    /// Write the id of the process into a file.
    #[arg(long, value_name = "FILE")]
    pidfile: Option<PathBuf>,
    /// `yes` requires `--data`. With `--data` each acknowledged write is kept in any case.
    #[arg(long, default_value = "no", action = clap::ArgAction::Set, value_parser = yes_or_no, value_name = "yes|no")]
    appendonly: bool,
    /// Accepted and ignored: with `--data` each acknowledged write is kept at once.
    #[arg(long, value_name = "RULES", num_args = 1..)]
    save: Vec<String>,
    /// Accepted and ignored: with `--data` an answer to a write waits until the write is safe.
    #[arg(long, value_name = "WHEN")]
    appendfsync: Option<String>,
    /// Only `no`: start it with a service manager, which keeps it in the background.
    #[arg(long, default_value = "no", action = clap::ArgAction::Set, value_parser = yes_or_no, value_name = "yes|no")]
    daemonize: bool,
    /// Say more in the log; repeat it to say still more.
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Keep the objects in a directory. Then an acknowledged write survives a crash of the process,
    /// and a restart has all objects.
    #[arg(long, value_name = "DIRECTORY", help_heading = "Not in Redis")]
    data: Option<PathBuf>,
}

fn policy(text: &str) -> Result<&'static str, String> {
    let mut policies = RedisServerOptions::POLICIES.into_iter();
    policies
        .find(|policy| *policy == text)
        .ok_or_else(|| format!("write one of {}", RedisServerOptions::POLICIES.join(", ")))
}

fn password(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err(
            "an empty password protects nothing: leave it out, or write a longer one".into()
        );
    }
    Ok(text.to_owned())
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("write yes or no".to_owned()),
    }
}

/// Reads a size as Redis does: `1k` is 1000 bytes, and `1kb` is 1024.
fn size(text: &str) -> Result<u64, String> {
    let small = text.to_ascii_lowercase();
    let digits = small.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(small.len());
    let (number, unit) = small.split_at(digits);
    let unit = match unit {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => 0,
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.filter(|bytes| *bytes >= MEMORY_MIN).ok_or_else(|| {
        format!(
            "write a number of bytes, or of kb, mb or gb, like 512mb: at least {} MB",
            MEMORY_MIN / MEGABYTE
        )
    })
}

impl Arguments {
    fn places(&self) -> Result<Vec<StreamAddress>, Failure> {
        let mut places = Vec::new();
        if self.port != 0 || self.unixsocket.is_none() {
            places = door::places(&self.bind, self.port, "--bind")?;
        }
        if let Some(path) = &self.unixsocket {
            places.push(StreamAddress::Unix(path.clone(), self.unixsocketperm));
        }
        Ok(places)
    }

    /// Refuses settings whose effect the user would not expect.
    fn check(&self, places: &[StreamAddress]) -> Result<(), Failure> {
        let is_open = places.iter().any(|place| match place {
            StreamAddress::Tcp(address) => !address.ip().is_loopback(),
            StreamAddress::Unix(..) => false,
        });
        if is_open && self.requirepass.is_none() && self.protected_mode {
            return Err(Failure::usage(
                "every machine that reaches these addresses (--bind) could read and write all objects: set a password with --requirepass, or allow it with --protected-mode no"
                    .to_owned(),
            ));
        }
        if self.appendonly && self.data.is_none() {
            return Err(Failure::usage(
                "--appendonly yes needs a directory: name one with --data, which then keeps each acknowledged write"
                    .to_owned(),
            ));
        }
        if self.daemonize {
            return Err(Failure::usage(
                "it does not go to the background (--daemonize): start it with a service manager, or with `&`"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

/// Runs the server until it is asked to end.
pub(crate) fn run(arguments: &Arguments, until: Until, json: bool) -> Result<(), Failure> {
    let places = arguments.places()?;
    arguments.check(&places)?;
    let segment_bytes = door::segment_bytes(arguments.maxmemory, 0).unwrap_or(1 << 20);
    let databases = Arc::new(Databases::default());
    let options = RedisServerOptions {
        databases: arguments.databases,
        memory_bytes: arguments.maxmemory,
        value_bytes_max: segment_bytes as usize / 8,
        string_bytes_max: STRING_BYTES_MAX.min(arguments.maxmemory / 4) as usize,
        clients_max: arguments.maxclients,
        password: arguments.requirepass.clone().map(String::into_bytes),
        is_kept: arguments.data.is_some(),
        replicas: 0,
        port: arguments.port,
        run_id: run_id(),
        policy: arguments.maxmemory_policy,
        secret: secret(),
        ..RedisServerOptions::default()
    };
    let protocol = DoorProtocol::Redis(RedisOptions {
        server: options,
        databases: Arc::clone(&databases),
        settings: Arc::default(),
    });
    let server = DoorServer {
        clients: "Redis's",
        listen: places,
        protocol,
        memory_bytes: arguments.maxmemory,
        memory_flag: "--maxmemory",
        segment_bytes,
        data: arguments.data.as_deref(),
        pidfile: arguments.pidfile.as_deref(),
        verbose: arguments.verbose,
    };
    let (first, of_thread) = (Arc::clone(&databases), Arc::clone(&databases));
    let begin = move |mut client: Client| {
        let names = Names::begin(&mut client, &first)?;
        Ok((client, names))
    };
    let work = move |(mut client, mut names): (Client, Names)| {
        while let Some(work) = of_thread.next_work() {
            names.work(&mut client, &of_thread, &work);
        }
    };
    server.run(until, json, begin, work, || databases.end())
}

/// The names of the tables with objects.
struct Names {
    /// The number of the last table.
    last: u64,
}

impl Names {
    /// Makes the table with the catalog, if it is the first start. Of the tables that it does not
    /// name, empty ones are the stock of the former start, and others were cleared. Then the door
    /// serves.
    fn begin(client: &mut Client, databases: &Databases) -> Result<Names, Error> {
        let catalog = client.ensure_table(CATALOG, 1)?;
        let text = client.get(catalog, CATALOG_KEY)?;
        let named = Databases::tables_of(text.as_ref().map_or(&[], |(_, text)| text));
        let mut names = Names { last: 0 };
        let mut unnamed = Vec::new();
        for it in client.tables()? {
            let (id, name) = (it.id, it.name);
            let Some(number) = name.strip_prefix(PREFIX) else { continue };
            names.last = names.last.max(number.parse().unwrap_or_default());
            if !named.contains(&id) {
                unnamed.push((id, name));
            }
        }
        for (id, name) in unnamed {
            match client.scan(id).next().transpose()? {
                None => databases.add(id),
                Some(_) => door::drop_table(client, &name)?,
            }
        }
        // More are made later: a full server has no room for them, and serves nevertheless.
        databases.set_catalog(catalog);
        Ok(names)
    }

    fn make(&mut self, client: &mut Client) -> Result<TableId, Error> {
        self.last += 1;
        client.ensure_table(&format!("{PREFIX}{}", self.last), 1)
    }

    fn work(&mut self, client: &mut Client, databases: &Databases, work: &TableWork) {
        let done = match work {
            TableWork::Make => self.make(client).map(|table| databases.add(table)),
            TableWork::Drop(table) => self.drop_table(client, *table),
            // There is no other process that could own the tables.
            TableWork::Ensure | TableWork::TakeOver(_) => Ok(()),
        };
        if let Err(error) = done {
            door::tell_failed(&error);
            if let TableWork::Drop(table) = work {
                databases.drop_table(*table);
            }
        }
    }

    fn drop_table(&self, client: &mut Client, table: TableId) -> Result<(), Error> {
        let mut tables = client.tables()?.into_iter();
        match tables.find(|it| it.id == table) {
            Some(it) => door::drop_table(client, &it.name),
            None => Ok(()),
        }
    }
}

/// Returns secret random bytes, if the system has some.
#[expect(clippy::disallowed_methods, reason = "a command reads the machine's random numbers")]
fn secret() -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let mut source = std::fs::File::open("/dev/urandom").ok()?;
    source.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// Forty hexadecimal digits that name this start of the server.
fn run_id() -> String {
    static STARTS: AtomicU64 = AtomicU64::new(0);
    let start = STARTS.fetch_add(1, Ordering::Relaxed);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos() as u64);
    format!("{nanos:016x}{:08x}{start:016x}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct All {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn read(line: &[&str]) -> Arguments {
        All::parse_from(["redis"].iter().chain(line)).arguments
    }

    fn checked(line: &[&str]) -> Result<(), String> {
        let arguments = read(line);
        let places = arguments.places().map_err(|failure| failure.to_string())?;
        arguments.check(&places).map_err(|failure| failure.to_string())
    }

    #[test]
    fn other_machines_need_a_password() {
        assert_eq!(checked(&[]), Ok(()));
        assert!(checked(&["--bind", "0.0.0.0"]).is_err());
        assert_eq!(checked(&["--bind", "127.0.0.1", "0.0.0.0", "--requirepass", "x"]), Ok(()));
        assert_eq!(checked(&["--bind", "*", "--protected-mode", "no"]), Ok(()));
    }

    #[test]
    fn settings_that_would_not_do_as_they_say_are_refused() {
        assert!(checked(&["--appendonly", "yes"]).is_err());
        assert_eq!(checked(&["--appendonly", "yes", "--data", "d"]), Ok(()));
        assert!(checked(&["--daemonize", "yes"]).is_err());
        assert_eq!(checked(&["--save", "", "--appendfsync", "everysec"]), Ok(()));
    }

    #[test]
    fn a_socket_of_the_file_system_is_one_more_place_or_the_only_one() {
        let places = |line| read(line).places().map(|it| it.len()).map_err(|it| it.to_string());
        assert_eq!(places(&["--unixsocket", "/tmp/s"]), Ok(2));
        assert_eq!(places(&["-p", "0", "--unixsocket", "/tmp/s"]), Ok(1));
        assert_eq!(places(&["-p", "0"]), Ok(1));
    }

    #[test]
    fn sizes_are_read_as_redis_reads_them() {
        assert_eq!(size("100mb"), Ok(100 << 20));
        assert_eq!(size("100M"), Ok(100_000_000));
        assert_eq!(size("1gb"), Ok(1 << 30));
        assert_eq!(size("16777216"), Ok(16 << 20));
        for wrong in ["", "mb", "1", "-1", "1tb", "99999999999gb", "1 gb", "1.5gb"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_id_of_a_start_has_forty_digits() {
        let id = run_id();
        assert_eq!(id.len(), 40);
        assert!(id.chars().all(|digit| digit.is_ascii_hexdigit()));
        assert_ne!(id, run_id());
    }
}
