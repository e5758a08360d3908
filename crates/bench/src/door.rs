//! The doors for Redis's and memcached's clients: `thunderhead-bench door`.
//!
//! `beside` drives running servers of Redis's protocol in turn, A B C A B C …, each for some tenths
//! of a second. `native` compares the doors with the native protocol, on one core of one machine.
//!
//! The client is the one of [`crate::peers`], the same for all. A connection takes one `recv` and
//! one `send` for each of its turns. `redis-benchmark` also changes the awaited events of a
//! connection twice for each request. So it takes more processor time than the servers do, and then
//! all servers seem to be equally fast.

mod bare;
mod native;
mod rows;
mod work;

use crate::peers::crowd::{Address, Crowd, Shape, Source};
use crate::peers::measure::rate;
use crate::peers::protocol::Act;
use crate::rpc::floors::{CLIENT_CORE, SERVER_CORE, Stop};
use anyhow::{Context as _, Result, anyhow, ensure};
use bare::Bare;
use rows::{Before, DROP_LIST, DURABLE_ROWS, HSET, PUSH_MANY, PUSHED, ROWS, Row, SET, ZADD};
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;
use thunderhead_load::machine::{median, pin, pinned};
use thunderhead_load::output::{progress, show};
use thunderhead_load::table::Table;
use thunderhead_runtime::Random;
use work::{Commands, Word, Work, numbers_of};

/// The number of different keys, fields and members.
const KEYS: u64 = 100_000;

/// The arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Part {
    /// Running servers of Redis's protocol, in turn.
    Beside(Beside),
    /// The doors beside the native protocol.
    ///
    /// Status 1: a door is slower than required.
    Native(native::Arguments),
}

/// The arguments of `beside`.
#[derive(Clone, Debug, clap::Args)]
struct Beside {
    /// A server and its name. Figures of the first one are divided by the best of the others.
    #[arg(long = "server", value_name = "NAME=HOST:PORT", required = true, value_parser = server)]
    servers: Vec<(String, SocketAddr)>,
    /// Only the rows of writes that survive a crash.
    #[arg(long)]
    durable: bool,
    /// Only rows whose names contain this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Turns of each server in each row.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of a turn.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
    /// Print the table in Markdown.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

fn server(text: &str) -> Result<(String, SocketAddr), String> {
    let (name, address) = text.rsplit_once('=').ok_or("it is not NAME=HOST:PORT")?;
    let address = address.parse().map_err(|error| format!("the address {address}: {error}"))?;
    Ok((name.to_owned(), address))
}

/// The results of a row, in requests a second.
#[derive(Debug, Serialize)]
struct Figures {
    row: &'static str,
    /// The medians of the servers, in the order of the arguments.
    rates: Vec<f64>,
    /// A server that does nothing with a command.
    floor: f64,
    /// The first server's rate over the best of the others: the median of the rounds.
    ratio: f64,
    required: f64,
}

/// Runs the benchmark. Returns false if a requirement is not met.
///
/// # Errors
/// When a server fails or answers wrongly.
pub fn run(arguments: &Arguments) -> Result<bool> {
    match &arguments.part {
        Part::Beside(arguments) => beside(arguments).map(|()| true),
        Part::Native(arguments) => native::run(arguments),
    }
}

fn beside(arguments: &Beside) -> Result<()> {
    ensure!(arguments.rounds > 0 && arguments.seconds > 0.0, "a row needs rounds and seconds");
    let rows: &[Row] = if arguments.durable { &DURABLE_ROWS } else { &ROWS };
    let is_wanted = |row: &&Row| arguments.only.as_ref().is_none_or(|it| row.name.contains(it));
    let mut all = Vec::new();
    pinned(CLIENT_CORE, || -> Result<()> {
        for (name, address) in &arguments.servers {
            progress(&format!("filling {name}"));
            fill(*address).with_context(|| name.clone())?;
        }
        for row in rows.iter().filter(is_wanted) {
            progress(row.name);
            all.push(measure(arguments, row).with_context(|| row.name)?);
        }
        Ok(())
    })?;
    let title = match arguments.durable {
        true => "Thousands of writes a second that survive a crash",
        false => "Thousands of requests a second",
    };
    let mut columns = vec![title];
    columns.extend(arguments.servers.iter().map(|(name, _)| name.as_str()));
    columns.extend(["a bare server", "the first beside the fastest", "goal"]);
    let mut table = Table::new("", &columns);
    for figures in &all {
        let mut cells = vec![figures.row.to_owned()];
        let rates = figures.rates.iter().chain([&figures.floor]);
        cells.extend(rates.map(|rate| format!("{:.1}", rate / 1e3)));
        cells.extend([format!("{:.2} ×", figures.ratio), format!("{} ×", figures.required)]);
        table.row(&cells);
    }
    if arguments.markdown {
        return Ok(table.print_markdown(&mut std::io::stdout().lock())?);
    }
    show(arguments.json, &table, &all)
}

/// Writes all that the rows read: so many strings, fields and members as there are keys. It writes
/// the strings five times, so that no server uses its first memory when it is measured.
fn fill(server: SocketAddr) -> Result<()> {
    send(server, SET, 5 * KEYS, 0)?;
    send(server, HSET, KEYS, 0)?;
    send(server, ZADD, KEYS, 0)
}

/// Sends so many commands of a kind. Their numbers go through all keys.
fn send(server: SocketAddr, work: Work, count: u64, from: u64) -> Result<()> {
    let mut next = from;
    let numbers_count = numbers_of(work);
    let source: Source<'_> = Box::new(move |numbers| {
        let number = next;
        next += 1;
        numbers.extend(std::iter::repeat_n(number % KEYS, numbers_count));
        (number < from + count).then_some((Act::Write, 0))
    });
    crowd(server, work, false, Shape::polling(8, 16), source)?.run_out(&mut |_, _| {})
}

fn crowd<'a>(
    server: SocketAddr,
    work: Work,
    must_find: bool,
    shape: Shape,
    source: Source<'a>,
) -> Result<Crowd<'a>> {
    let protocol = || -> Result<Box<dyn crate::peers::protocol::Protocol>> {
        Ok(Box::new(Commands::new(work, must_find)))
    };
    Crowd::new(&Address::Tcp(server), &protocol, shape, source)
}

/// Returns an endless source of commands with random numbers. A command that uses no number
/// gets a number all the same, because a crowd counts numbers.
fn at_random(work: Work, seed: u64) -> Source<'static> {
    let (mut random, count) = (Random::from_seed(seed), numbers_of(work));
    Box::new(move |numbers| {
        (0..count.max(1)).for_each(|_| numbers.push(random.below(KEYS)));
        Some((Act::Read, 0))
    })
}

fn measure(arguments: &Beside, row: &Row) -> Result<Figures> {
    let stop = Stop::new()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen")?;
    let floor = listener.local_addr().context("listen")?;
    let bare = Bare::new(listener, reply(row))?;
    std::thread::scope(|scope| {
        let told = &stop;
        let served = scope.spawn(move || {
            pin(SERVER_CORE);
            bare.serve(told)
        });
        let measured = turns(arguments, row, floor);
        stop.raise();
        served.join().map_err(|_| anyhow!("the bare server panicked"))??;
        measured
    })
}

fn turns(arguments: &Beside, row: &Row, floor: SocketAddr) -> Result<Figures> {
    let duration = Duration::from_secs_f64(arguments.seconds);
    let servers = arguments.servers.iter().map(|(name, address)| (name.as_str(), *address));
    let servers: Vec<_> = servers.chain([("the bare server", floor)]).collect();
    let numbers = numbers_of(row.work).max(1) as f64;
    let mut rates = vec![Vec::new(); servers.len()];
    for round in 0..arguments.rounds {
        for turn in 0..servers.len() {
            let at = (turn + round) % servers.len();
            let (name, address) = servers[at];
            let is_floor = at + 1 == servers.len();
            let measured = (|| {
                if !is_floor {
                    prepare(address, row, duration)?;
                }
                let shape = Shape::polling(row.connections, row.depth);
                let source = at_random(row.work, round as u64);
                let mut client = crowd(address, row.work, true, shape, source)?;
                let found = rate(&mut client, duration)?;
                client.finish()?;
                anyhow::Ok(found.per_second)
            })();
            rates[at].push(measured.with_context(|| name.to_owned())? / numbers);
        }
    }
    let others = 1..arguments.servers.len();
    let ratio_of = |round: usize| {
        let best = others.clone().map(|at| rates[at][round]).fold(0.0, f64::max);
        rates[0][round] / if best > 0.0 { best } else { rates[0][round] }
    };
    let ratio = median((0..arguments.rounds).map(ratio_of).collect());
    let mut medians: Vec<f64> = rates.into_iter().map(median).collect();
    let floor = medians.pop().unwrap_or_default();
    Ok(Figures { row: row.name, rates: medians, floor, ratio, required: row.required })
}

/// Prepares a server for a turn.
fn prepare(server: SocketAddr, row: &Row, duration: Duration) -> Result<()> {
    const ELEMENTS_A_SECOND: f64 = 300_000.0;
    match row.before {
        Before::Nothing => send(server, DROP_LIST, 1, 0),
        Before::Push => {
            let elements = ELEMENTS_A_SECOND * duration.as_secs_f64() * 1.2;
            send(server, PUSH_MANY, elements as u64 / PUSHED as u64 + 1, 0)
        }
    }
}

/// Returns the bare server's reply to the commands of a row, as long as the true one.
fn reply(row: &Row) -> Vec<u8> {
    let value = || [b"$100\r\n".as_slice(), &[b'v'; 100], b"\r\n"].concat();
    match row.work.first() {
        Some(Word::Text("GET" | "HGET" | "RPOP")) => value(),
        Some(Word::Text("MGET")) => [b"*70\r\n".to_vec(), value().repeat(70)].concat(),
        Some(Word::Text("ZRANGE")) => {
            [b"*10\r\n".to_vec(), b"$19\r\nmember:000000000001\r\n".repeat(10)].concat()
        }
        Some(Word::Text("SET")) => b"+OK\r\n".to_vec(),
        _ => b":1\r\n".to_vec(),
    }
}
