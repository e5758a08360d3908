//! The round-trip time of one client, beside the floor of the channel.

use super::floors::latencies::Latencies;
use super::floors::ping_pong::{
    ping_pong_tcp, ping_pong_tcp_blocking_echo, ping_pong_tcp_blocking_server, ping_pong_unix,
    ping_pong_unix_blocking_server,
};
use super::floors::ring::ping_pong_ring;
use super::subject::{Setup, beside, round_trips};
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;
use thunderhead_load::machine::median;
use thunderhead_load::output::show;
use thunderhead_load::table::Table;
use thunderhead_runtime::polling::Polling;

/// The options of the run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Round trips of each measurement. Many short measurements are better, because a machine's
    /// speed varies.
    #[arg(long, default_value_t = 5_000)]
    rounds: u64,
    /// Measurements of each kind; the medians of their medians count.
    #[arg(long, default_value_t = 61)]
    repeats: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The results for one channel, in nanoseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// The name of the measurement.
    pub what: String,
    /// The floor's median and 99th percentile.
    pub floor: [f64; 2],
    /// Our median and 99th percentile.
    pub ours: [f64; 2],
    /// The ratio of ours to the floor: the median over pairs of consecutive measurements.
    pub ratio: f64,
    /// The difference between ours and the floor, found in the same way.
    pub above: f64,
}

/// Measures floor and ours in turn, so that slow moments of the machine affect both.
fn in_turn(
    what: &str,
    repeats: usize,
    mut floor: impl FnMut() -> Result<Latencies>,
    mut ours: impl FnMut() -> Result<Latencies>,
) -> Result<Figures> {
    let mut figures: [Vec<f64>; 6] = Default::default();
    for _ in 0..repeats {
        let (floor, ours) = (floor()?, ours()?);
        let (low, high) = (floor.median(), ours.median());
        let found =
            [low, floor.percentile(0.99), high, ours.percentile(0.99), high / low, high - low];
        for (list, value) in figures.iter_mut().zip(found) {
            list.push(value);
        }
    }
    let [floor, floor_tail, ours, ours_tail, ratio, above] = figures.map(median);
    let (floor, ours) = ([floor, floor_tail], [ours, ours_tail]);
    Ok(Figures { what: what.to_owned(), floor, ours, ratio, above })
}

/// Measures TCP, both ends polling.
///
/// # Errors
/// When it cannot be run.
pub fn tcp(rounds: u64, repeats: usize) -> Result<Figures> {
    in_turn(
        "TCP, both poll",
        repeats,
        || ping_pong_tcp(rounds),
        || {
            let setup = Setup::tcp(Polling::Always);
            Ok(beside(setup, |address| round_trips(address, false, rounds, Duration::ZERO))?.0)
        },
    )
}

/// Measures shared memory, both ends polling.
///
/// # Errors
/// When it cannot be run.
pub fn shared_memory(rounds: u64, repeats: usize) -> Result<Figures> {
    in_turn(
        "shared memory, both poll",
        repeats,
        || ping_pong_ring(rounds),
        || {
            let setup = Setup { shared_memory: true, polling: Polling::Always };
            Ok(beside(setup, |address| round_trips(address, true, rounds, Duration::ZERO))?.0)
        },
    )
}

/// The sleep of the floor's server.
#[derive(Clone, Copy, Debug)]
pub enum Blocking {
    /// It waits for many connections, as common servers do.
    InEpoll,
    /// It waits for its only connection.
    InRecv,
    /// The same on a Unix socket, beside ours over shared memory: the usual channel of clients on
    /// the same host.
    OnUnixSocket,
}

impl Blocking {
    fn name(self) -> &'static str {
        match self {
            Blocking::InEpoll => "blocks in epoll",
            Blocking::InRecv => "blocks in recv",
            Blocking::OnUnixSocket => "blocks in recv on a Unix socket",
        }
    }
}

/// Measures occasional requests to our sleeping server, beside a server that blocks.
///
/// # Errors
/// When it cannot be run.
pub fn now_and_then(
    rounds: u64,
    repeats: usize,
    pause: Duration,
    blocking: Blocking,
) -> Result<Figures> {
    let shared_memory = matches!(blocking, Blocking::OnUnixSocket);
    let channel = if shared_memory { "shared memory" } else { "TCP" };
    let floor = blocking.name();
    let what = format!("{channel}, a call every {pause:?}, server adaptive; floor {floor}");
    in_turn(
        &what,
        repeats,
        || match blocking {
            Blocking::InEpoll => ping_pong_tcp_blocking_echo(rounds, pause),
            Blocking::InRecv => ping_pong_tcp_blocking_server(rounds, pause),
            Blocking::OnUnixSocket => ping_pong_unix_blocking_server(rounds, pause),
        },
        || {
            let setup = Setup { shared_memory, polling: Polling::default() };
            Ok(beside(setup, |address| round_trips(address, shared_memory, rounds, pause))?.0)
        },
    )
}

/// Runs the experiment and prints it.
///
/// # Errors
/// When it cannot be run.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { rounds, repeats, json } = *arguments;
    let few = (rounds / 50).max(50);
    let mut all = vec![
        tcp(rounds, repeats)?,
        shared_memory(rounds, repeats)?,
        now_and_then(few, repeats, Duration::from_millis(1), Blocking::InEpoll)?,
        now_and_then(few, repeats, Duration::from_millis(1), Blocking::InRecv)?,
        now_and_then(few, repeats, Duration::from_millis(1), Blocking::OnUnixSocket)?,
    ];
    let unix = ping_pong_unix(rounds)?;
    let floor = [unix.median(), unix.percentile(0.99)];
    let what = "Unix socket, both poll".to_owned();
    let (ours, ratio, above) = ([f64::NAN; 2], f64::NAN, f64::NAN);
    all.push(Figures { what, floor, ours, ratio, above });
    let columns = ["channel", "floor p50 ns", "p99", "ours p50 ns", "p99", "ratio"];
    let mut table = Table::new("Round trips, 30 B out and 130 B back", &columns);
    for figures in &all {
        let number = |it: f64| if it.is_nan() { "-".to_owned() } else { format!("{it:.0}") };
        let Figures { what, floor, ours, ratio, .. } = figures;
        let ratio = if ratio.is_nan() { "-".to_owned() } else { format!("{ratio:.2}") };
        let cells = [floor[0], floor[1], ours[0], ours[1]].map(number);
        table.row(&[std::slice::from_ref(what), cells.as_slice(), &[ratio]].concat());
    }
    show(json, &table, &all)
}
