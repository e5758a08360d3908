//! `thunderhead memcached`: a server for memcached's clients, with the flags of that daemon.

use crate::door::{self, DoorServer, MEGABYTE, octal, positive};
use crate::exit::Failure;
use crate::serve::Until;
use std::path::PathBuf;
use std::sync::Arc;
use thunderhead_client::Client;
use thunderhead_net::stream::StreamAddress;
use thunderhead_server::{DoorLimits, DoorProtocol, MemcachedOptions, TableBehind};
use thunderhead_wire::TableId;

/// The name of the table with the objects.
const TABLE: &str = "memcached";

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
    /// Keep the objects in a directory. Then an acknowledged write survives a crash of the process,
    /// and a restart has all objects.
    #[arg(long, value_name = "DIRECTORY", help_heading = "Not in memcached")]
    data: Option<PathBuf>,
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
        match &self.unix_socket {
            Some(path) => Ok(vec![StreamAddress::Unix(path.clone(), self.unix_mask)]),
            None => door::places(&self.listen, self.port, "-l"),
        }
    }
}

/// Runs the server until it is asked to end.
pub(crate) fn run(arguments: &Arguments, until: Until, json: bool) -> Result<(), Failure> {
    if arguments.daemon {
        return Err(Failure::usage(
            "it does not go to the background (-d): start it with a service manager, or with `&`"
                .to_owned(),
        ));
    }
    let memory_bytes = arguments.memory_limit.saturating_mul(MEGABYTE);
    let value_bytes = arguments.max_item_size;
    let segment_bytes = match arguments.data {
        Some(_) => door::segment_bytes(memory_bytes, value_bytes),
        None => door::short_segment_bytes(memory_bytes, value_bytes),
    };
    let segment_bytes = segment_bytes.ok_or_else(|| {
        Failure::usage(format!(
            "values of up to {value_bytes} bytes (-I) need at least {} MB of memory (-m), and {} MB are given",
            door::least_megabytes(value_bytes),
            arguments.memory_limit
        ))
    })?;
    let table = Arc::new(TableBehind::default());
    let limits = DoorLimits {
        memory_bytes,
        value_bytes,
        connections: arguments.conn_limit,
        may_flush: !arguments.disable_flush_all,
        evicts: !arguments.disable_evictions,
    };
    let protocol = DoorProtocol::Memcached(MemcachedOptions { limits, table: Arc::clone(&table) });
    let server = DoorServer {
        clients: "memcached's",
        listen: arguments.places()?,
        protocol,
        memory_bytes,
        memory_flag: "-m",
        segment_bytes,
        data: arguments.data.as_deref(),
        pidfile: arguments.pidfile.as_deref(),
        verbose: arguments.verbose,
    };
    if arguments.threads.is_some_and(|threads| threads > 1) {
        tracing::info!("one thread serves all clients; -t is ignored");
    }
    let (first, of_thread) = (Arc::clone(&table), Arc::clone(&table));
    let begin = move |mut client: Client| {
        first.set_table(client.ensure_table(TABLE, 1)?);
        Ok(client)
    };
    let work = move |mut client| of_thread.serve_flushes(|| make_anew(&mut client));
    server.run(until, json, begin, work, || table.end())
}

/// Makes the table anew: that removes all objects and reads none of them. Returns `None` after a
/// failure, once a further try is worth it.
fn make_anew(client: &mut Client) -> Option<TableId> {
    let dropped = door::drop_table(client, TABLE);
    let made = dropped.and_then(|()| client.ensure_table(TABLE, 1));
    made.inspect_err(door::tell_failed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_the_file_system_replaces_the_ports() {
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
        let socket = Ok(vec![StreamAddress::Unix("/tmp/s".into(), 0o700)]);
        assert_eq!(places(&["-s", "/tmp/s"]), socket);
    }

    #[test]
    fn sizes_are_read_as_memcached_reads_them() {
        assert_eq!(size("1m"), Ok(1 << 20));
        assert_eq!(size("512k"), Ok(512 << 10));
        assert_eq!(size("4096"), Ok(4096));
        for wrong in ["", "m", "2m", "-1", "1023", "99999999999999999999m", "1g"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert!(no_udp("0").is_ok() && no_udp("11211").is_err());
    }
}
