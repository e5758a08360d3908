//! The doors beside the native protocol.
//!
//! The door for Redis's clients and the native protocol are two ports of the same process. The door
//! for memcached's clients is another process on the same core, which is idle while the others are
//! measured.

use crate::peers::crowd::{Address, Crowd, Shape};
use crate::peers::measure::{at_random, rate};
use crate::peers::memcached::Memcached;
use crate::peers::process::Processes;
use crate::peers::protocol::{
    Act, Answer, Bad, Flight, Protocol, check, line, number, oldest, text_key, up_to, value_at,
};
use crate::peers::resp::Resp;
use crate::peers::store::{Store, Wanted};
use crate::product;
use crate::requirements::Rows;
use crate::rpc::floors::{CLIENT_CORE, SERVER_CORE};
use anyhow::{Context as _, Result, ensure};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use thunderhead_load::children::free_port;
use thunderhead_load::machine::{median, pinned};
use thunderhead_load::output::progress;
use thunderhead_wire::Sequence;

const OBJECTS: u64 = 100_000;
const VALUE_BYTES: usize = 100;
const MEMORY_BYTES: u64 = 512 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// The arguments.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only rows of so many objects in each request.
    #[arg(long, value_name = "OBJECTS")]
    objects: Option<usize>,
    /// Turns of each protocol in each row.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds of a turn.
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

/// A protocol of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Native,
    Redis,
    Memcached,
    Meta,
}

impl Speaks {
    const fn name(self) -> &'static str {
        match self {
            Speaks::Native => "native",
            Speaks::Redis => "Redis",
            Speaks::Memcached => "memcached",
            Speaks::Meta => "memcached, `mg`",
        }
    }
}

/// A row: the action, connections, requests in flight on each, objects in each request.
type Row = (&'static str, Act, (usize, usize, usize), &'static [Speaks]);

const REDIS: &[Speaks] = &[Speaks::Redis];
const ROWS: [Row; 8] = [
    ("read", Act::Read, (1, 1, 1), REDIS),
    ("read", Act::Read, (32, 1, 1), REDIS),
    ("read", Act::Read, (128, 1, 1), REDIS),
    ("write", Act::Write, (1, 1, 1), REDIS),
    ("write", Act::Write, (32, 1, 1), REDIS),
    ("write", Act::Write, (128, 1, 1), REDIS),
    ("read", Act::Read, (8, 64, 1), REDIS),
    ("read", Act::Read, (8, 1, 70), &[Speaks::Redis, Speaks::Memcached, Speaks::Meta]),
];

/// The part of the native rate that a door must reach.
const REQUIRED: f64 = 0.9;

/// The servers of a run.
struct Servers {
    native: Store,
    redis: SocketAddr,
    memcached: SocketAddr,
    _processes: Processes,
}

impl Servers {
    fn start() -> Result<Servers> {
        let wanted = Wanted::memory(MEMORY_BYTES).populated();
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let redis = local(free_port()?);
        let native = Store::start_ours(wanted, &["--redis".to_owned(), redis.to_string()])?;
        let memcached = local(free_port()?);
        let processes = Processes::new()?;
        let port = memcached.port().to_string();
        let megabytes = (MEMORY_BYTES >> 20).to_string();
        let arguments = ["memcached", "-l", "127.0.0.1", "-p", &port, "-m", &megabytes];
        let arguments = arguments.map(str::to_owned);
        processes.start("memcached door", SERVER_CORE, &product::program()?, &arguments)?;
        let servers = Servers { native, redis, memcached, _processes: processes };
        servers.native.load(OBJECTS, VALUE_BYTES)?;
        servers.fill(Speaks::Redis)?;
        servers.fill(Speaks::Memcached)?;
        Ok(servers)
    }

    fn address(&self, speaks: Speaks) -> SocketAddr {
        if speaks == Speaks::Redis { self.redis } else { self.memcached }
    }

    /// Writes all objects through a door, as soon as it takes connections.
    fn fill(&self, speaks: Speaks) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(self.address(speaks)).is_err() {
            ensure!(Instant::now() < end, "the door for {} does not come up", speaks.name());
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut next = 0;
        let source = move |numbers: &mut Vec<u64>| {
            numbers.push(next);
            next += 1;
            (next <= OBJECTS).then_some((Act::Write, VALUE_BYTES))
        };
        let shape = Shape::polling(1, 16);
        self.crowd(speaks, shape, Box::new(source))?.run_out(&mut |_, _| {})
    }

    fn crowd<'a>(
        &self,
        speaks: Speaks,
        shape: Shape,
        source: crate::peers::crowd::Source<'a>,
    ) -> Result<Crowd<'a>> {
        let make = || -> Result<Box<dyn Protocol>> {
            Ok(match speaks {
                Speaks::Memcached => Box::new(Memcached::default()),
                Speaks::Meta => Box::new(Meta),
                _ => Box::new(Resp::default()),
            })
        };
        match speaks {
            Speaks::Native => self.native.crowd(self.native.tcp(), shape, true, source),
            _ => Crowd::new(&Address::Tcp(self.address(speaks)), &make, shape, source),
        }
    }

    fn rate(&self, speaks: Speaks, row: &Row, seed: u64, duration: Duration) -> Result<f64> {
        let (_, act, (connections, depth, parts), _) = *row;
        let source = at_random(act, OBJECTS, VALUE_BYTES, parts, seed);
        let mut crowd = self.crowd(speaks, Shape::polling(connections, depth), source)?;
        let found = rate(&mut crowd, duration)?;
        crowd.finish()?;
        Ok(found.per_second)
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<bool> {
    ensure!(arguments.rounds > 0 && arguments.seconds > 0.0, "a row needs rounds and seconds");
    progress("starting the servers");
    // Processes inherit the cores of the thread that starts them, so it is pinned only afterwards.
    let servers = Servers::start()?;
    let duration = Duration::from_secs_f64(arguments.seconds);
    let mut rows = Rows::default();
    pinned(CLIENT_CORE, || -> Result<()> {
        let is_wanted = |row: &&Row| arguments.objects.is_none_or(|objects| row.2.2 == objects);
        for row in ROWS.iter().filter(is_wanted) {
            let (verb, _, (connections, depth, parts), doors) = row;
            let mut native = Vec::new();
            let mut rates = vec![Vec::new(); doors.len()];
            for round in 0..arguments.rounds {
                native.push(servers.rate(Speaks::Native, row, round as u64, duration)?);
                for (door, rates) in doors.iter().zip(&mut rates) {
                    let found = servers.rate(*door, row, round as u64, duration);
                    rates.push(found.with_context(|| door.name())?);
                }
            }
            for (door, rates) in doors.iter().zip(rates) {
                let ratios = rates.iter().zip(&native).map(|(door, native)| door / native);
                let ratio = median(ratios.collect());
                let label = format!(
                    "{verb}, {connections} × {depth} requests of {parts}: {} {:.1} K/s, native \
                     {:.1} K/s",
                    door.name(),
                    median(rates) / 1e3,
                    median(native.clone()) / 1e3
                );
                rows.at_least(&label, REQUIRED, ratio, "×");
            }
        }
        Ok(())
    })?;
    rows.show(arguments.json)
}

/// memcached's meta protocol: quiet `mg` of many keys, and `mn` after them.
#[derive(Clone, Copy, Debug)]
struct Meta;

impl Protocol for Meta {
    fn ask(&mut self, flight: &mut Flight, _oldest: Option<Sequence>, to: &mut Vec<u8>) {
        for number in &flight.numbers {
            to.extend_from_slice(b"mg ");
            to.extend_from_slice(&text_key(*number));
            to.extend_from_slice(b" v q\r\n");
        }
        to.extend_from_slice(b"mn\r\n");
    }

    fn answer(&mut self, flights: &mut VecDeque<Flight>, bytes: &[u8]) -> Result<Answer, Bad> {
        let flight = oldest(flights)?;
        let mut at = 0;
        for asked in &flight.numbers {
            let rest = bytes.get(at..).unwrap_or_default();
            let Some((text, end)) = line(rest, 512)? else { return Ok(Answer::Partial) };
            let Some(length) = text.strip_prefix(b"VA ") else { return Err(Bad::Gone(*asked)) };
            if number(length) != Some(flight.value_bytes as u64) {
                return Err(Bad::Wrong(*asked));
            }
            let Some((value, end)) = value_at(bytes, at + end, flight.value_bytes)? else {
                return Ok(Answer::Partial);
            };
            check(value, *asked)?;
            at = end;
        }
        let rest = bytes.get(at..).unwrap_or_default();
        match line(rest, 512)? {
            Some((b"MN", end)) => Ok(up_to(Some(at + end))),
            Some(_) => Err(Bad::Malformed("more values than were asked for")),
            None => Ok(Answer::Partial),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::protocol::tests::{flights, hold, value};

    #[test]
    fn answers_of_mg_are_taken_whole_or_not_at_all() {
        let mut reply = Vec::new();
        for number in [4, 9] {
            reply.extend_from_slice(b"VA 100\r\n");
            reply.extend_from_slice(&value(number, 100));
            reply.extend_from_slice(b"\r\n");
        }
        reply.extend_from_slice(b"MN\r\n");
        hold(&mut Meta, &flights(Act::Read, &[4, 9], 100), &reply);
        let answer = |bytes: &[u8]| Meta.answer(&mut flights(Act::Read, &[4], 100), bytes);
        assert_eq!(answer(b"MN\r\n"), Err(Bad::Gone(4)));
        assert_eq!(answer(b"VA 99\r\n"), Err(Bad::Wrong(4)));
    }
}
