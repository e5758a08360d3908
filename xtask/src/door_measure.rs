//! `cargo xtask door-measure`: `thunderhead redis` beside Redis and Valkey, in memory and in speed.
//!
//! Speed is measured with `redis-benchmark`, which the users of Redis know. Each round runs all
//! servers in turn, so that other load on the machine affects all alike. A figure is the median of
//! the rounds. The server is on one core, and the client on another.

mod fill;

use crate::door_compare::servers::{Kind, Server};
use crate::scratch::Scratch;
use crate::steps::{build_programs, install, program};
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The marks between which a page has the results.
const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

/// The options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The parts: `memory`, `speed`, `durable`; all when none is given.
    parts: Vec<String>,
    /// Rows whose names contain this text; all when it is not given.
    #[arg(long)]
    only: Option<String>,
    /// Rounds of each row of speed.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Thousands of objects in the rows of memory.
    #[arg(long, default_value_t = 1000)]
    thousands: u64,
    /// The time of one run of `redis-benchmark`, about, in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Write the results into this page, between the marks `measured: begin` and `measured: end`.
    #[arg(long, value_name = "FILE.md")]
    write: Option<PathBuf>,
}

/// The servers, ours first.
const KINDS: [Kind; 3] = [Kind::OurRedis, Kind::Redis, Kind::Valkey];

/// A row of speed: arguments for `redis-benchmark`, and a rate, which sets the number of requests.
struct Row {
    name: &'static str,
    clients: u32,
    pipeline: u32,
    work: &'static [&'static str],
    /// Requests a second, in thousands, about.
    rate: f64,
}

const fn row(
    name: &'static str,
    (clients, pipeline): (u32, u32),
    rate: f64,
    work: &'static [&'static str],
) -> Row {
    Row { name, clients, pipeline, work, rate }
}

const GET: &[&str] = &["-t", "get"];
const SET: &[&str] = &["-t", "set"];

const ROWS: [Row; 17] = [
    row("GET, 1 connection", (1, 1), 20.0, GET),
    row("GET, 32 connections", (32, 1), 100.0, GET),
    row("GET, 128 connections", (128, 1), 100.0, GET),
    row("GET, 32 connections, pipelines of 16", (32, 16), 1000.0, GET),
    row("GET, 32 connections, pipelines of 64", (32, 64), 1500.0, GET),
    row("SET, 1 connection", (1, 1), 20.0, SET),
    row("SET, 32 connections", (32, 1), 100.0, SET),
    row("SET, 128 connections", (128, 1), 100.0, SET),
    row("SET, 32 connections, pipelines of 16", (32, 16), 800.0, SET),
    row("SET, 32 connections, pipelines of 64", (32, 64), 1000.0, SET),
    row("MGET of 70, 32 connections", (32, 1), 25.0, &["MGET"]),
    row("HSET, 32 connections", (32, 1), 100.0, &["-t", "hset"]),
    row("HGET, 32 connections", (32, 1), 100.0, &["HGET", "myhash", "element:__rand_int__"]),
    row("LPUSH, 32 connections", (32, 1), 80.0, &["-t", "lpush"]),
    row("RPOP, 32 connections", (32, 1), 80.0, &["-t", "rpop"]),
    row("ZADD, 32 connections", (32, 1), 80.0, &["-t", "zadd"]),
    row("ZRANGE of 10, 32 connections", (32, 1), 80.0, &["ZRANGE", "myzset", "0", "9"]),
];

/// The number of keys in MGET.
const KEYS_OF_MGET: usize = 70;

/// The number of different keys.
const KEYS: &str = "100000";

/// A row for writes that survive a crash of the process.
const DURABLE: [Row; 4] = [
    row("SET, 1 connection", (1, 1), 10.0, SET),
    row("SET, 32 connections", (32, 1), 50.0, SET),
    row("SET, 128 connections", (128, 1), 50.0, SET),
    row("SET, 32 connections, pipelines of 16", (32, 16), 300.0, SET),
];

/// Runs the parts.
pub(crate) fn door_measure(arguments: &Arguments) -> Result<()> {
    let parts = ["memory", "speed", "durable"];
    if let Some(name) = arguments.parts.iter().find(|name| !parts.contains(&name.as_str())) {
        bail!("there is no part {name}; the parts are {}", parts.join(", "));
    }
    let is_wanted =
        |part: &str| arguments.parts.is_empty() || arguments.parts.iter().any(|name| name == part);
    if !Path::new("/usr/bin/redis-benchmark").exists() {
        install(&["redis-tools"])?;
    }
    build_programs()?;
    let thunderhead = program("thunderhead").canonicalize().context("find the program")?;
    let mut text = String::new();
    if is_wanted("memory") {
        text += &memory(arguments, &thunderhead)?;
    }
    if is_wanted("speed") {
        let setups = KINDS.map(|kind| Setup { kind, name: name(kind), more: &[] });
        text += &speed(arguments, &thunderhead, "Thousands of requests a second", &ROWS, &setups)?;
    }
    if is_wanted("durable") {
        let setups = [
            Setup { kind: Kind::OurRedis, name: "Thunderhead, `--data`", more: &["--data"] },
            Setup {
                kind: Kind::Redis,
                name: "Redis 8.2, `appendfsync always`",
                more: &["--appendonly", "yes", "--appendfsync", "always"],
            },
            Setup {
                kind: Kind::Valkey,
                name: "Valkey 9.1, `appendfsync always`",
                more: &["--appendonly", "yes", "--appendfsync", "always"],
            },
            Setup {
                kind: Kind::Valkey,
                name: "Valkey 9.1, `appendfsync everysec`",
                more: &["--appendonly", "yes", "--appendfsync", "everysec"],
            },
        ];
        let title = "Thousands of writes a second that survive a crash";
        text += &speed(arguments, &thunderhead, title, &DURABLE, &setups)?;
    }
    match &arguments.write {
        None => Ok(()),
        Some(page) => write(page, &text),
    }
}

const fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::OurRedis => "Thunderhead",
        Kind::Redis => "Redis 8.2",
        _ => "Valkey 9.1",
    }
}

fn write(page: &Path, text: &str) -> Result<()> {
    let old = std::fs::read_to_string(page).with_context(|| format!("read {}", page.display()))?;
    let (before, rest) = old.split_once(BEGIN).context("the page has no mark for the begin")?;
    let (_, after) = rest.split_once(END).context("the page has no mark for the end")?;
    let new = format!("{before}{BEGIN}\n\n{}\n{END}{after}", text.trim_start());
    std::fs::write(page, new).with_context(|| format!("write {}", page.display()))
}

/// A server of a column.
struct Setup {
    kind: Kind,
    name: &'static str,
    /// More arguments. A last `--data` is followed by a directory.
    more: &'static [&'static str],
}

impl Setup {
    fn start(&self, thunderhead: &Path, scratch: &Scratch, number: usize) -> Result<Server> {
        let place = scratch.path(&format!("data-{number}"));
        std::fs::create_dir_all(&place).context("make a directory for data")?;
        let place = place.display().to_string();
        let mut more = self.more.to_vec();
        match (more.last(), self.kind) {
            (Some(&"--data"), _) => more.push(&place),
            (Some(_), _) => more.extend(["--dir", place.as_str()]),
            (None, _) => {}
        }
        Server::start_with(self.kind, &more, thunderhead, scratch)
    }
}

/// Moves all threads of a server to a core.
fn pin(server: &Server, core: usize) -> Result<()> {
    let process = server.process().context("the server was started here")?.to_string();
    let mut taskset = Command::new("taskset");
    taskset.args(["--all-tasks", "--pid", "--cpu-list", &core.to_string(), &process]);
    let output = taskset.output().context("run taskset")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Measures rows in turn, and returns their table.
fn speed(
    arguments: &Arguments,
    thunderhead: &Path,
    title: &str,
    rows: &[Row],
    setups: &[Setup],
) -> Result<String> {
    let scratch = Scratch::new("door-measure")?;
    let servers: Vec<Server> = setups
        .iter()
        .enumerate()
        .map(|(number, setup)| setup.start(thunderhead, &scratch, number))
        .collect::<Result<_>>()?;
    for server in &servers {
        pin(server, 0)?;
        // Each key that a row reads is there.
        benchmark(server, &ROWS[8], KEYS.parse::<u32>()? * 5)?;
    }
    let mut text = format!("\n| {title} |");
    let mut line = "| --- |".to_owned();
    for setup in setups {
        write!(text, " {} |", setup.name)?;
        line += " --- |";
    }
    text += " Thunderhead beside the fastest |\n";
    text += &line;
    text += " --- |\n";
    print!("{text}");
    let is_wanted = |row: &&Row| arguments.only.as_ref().is_none_or(|it| row.name.contains(it));
    for row in rows.iter().filter(is_wanted) {
        let requests = (row.rate * 1000.0 * arguments.seconds).max(1000.0) as u32;
        let mut rates = vec![Vec::new(); servers.len()];
        for round in 0..arguments.rounds {
            for turn in 0..servers.len() {
                let at = (turn + round) % servers.len();
                rates[at].push(benchmark(&servers[at], row, requests)?);
            }
        }
        let medians: Vec<f64> = rates.iter_mut().map(|rates| median(rates)).collect();
        let best = medians.iter().skip(1).copied().fold(0.0, f64::max);
        let mut out = format!("| {} |", row.name);
        for median in &medians {
            write!(out, " {:.1} |", median / 1000.0)?;
        }
        writeln!(out, " {:.2} × |", medians[0] / best)?;
        print!("{out}");
        text += &out;
    }
    Ok(text)
}

/// Runs `redis-benchmark`; returns requests a second.
fn benchmark(server: &Server, row: &Row, requests: u32) -> Result<f64> {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", "1", "redis-benchmark", "--csv", "-d", "100", "-r", KEYS]);
    command.args(["-p", &server.address.port().to_string(), "-n", &requests.to_string()]);
    command.args(["-c", &row.clients.to_string(), "-P", &row.pipeline.to_string()]);
    command.args(row.work);
    if row.work == ["MGET"] {
        command.args(vec!["key:__rand_int__"; KEYS_OF_MGET]);
    }
    let output = command.output().context("run redis-benchmark")?;
    let text = String::from_utf8_lossy(&output.stdout);
    rate(&text).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("redis-benchmark says of {}, {}: {text}{errors}", server.name, row.name)
    })
}

/// Returns the second value of the last line, which is the rate.
fn rate(text: &str) -> Option<f64> {
    // The name of a row may have commas, but no quotation marks.
    let mut values = text.lines().last()?.split("\",\"");
    values.nth(1)?.parse().ok()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Measures the memory of objects, and returns the table.
fn memory(arguments: &Arguments, thunderhead: &Path) -> Result<String> {
    let mut text = "\n| Resident bytes of an object | Thunderhead | Redis 8.2 | Valkey 9.1 | Thunderhead beside the smallest |\n\
         | --- | --- | --- | --- | --- |\n"
        .to_owned();
    print!("{text}");
    let is_wanted =
        |row: &&fill::Row| arguments.only.as_ref().is_none_or(|it| row.name.contains(it));
    for row in fill::ROWS.iter().filter(is_wanted) {
        let count = arguments.thousands * 1000;
        let redis = bytes_of_an_object(Kind::Redis, &[], row, count, thunderhead)?;
        let valkey = bytes_of_an_object(Kind::Valkey, &[], row, count, thunderhead)?;
        // Ours may take as much as the smaller of them: a log fills all of its memory before it is
        // cleaned.
        let best = redis.min(valkey);
        let limit = format!("{}kb", (count as f64 * best / 1024.0) as u64);
        let more = ["--maxmemory", limit.as_str()];
        let ours = bytes_of_an_object(Kind::OurRedis, &more, row, count, thunderhead)
            .with_context(|| format!("with {limit} of memory"))?;
        let ratio = ours / best;
        let line =
            format!("| {} | {ours:.1} | {redis:.1} | {valkey:.1} | {ratio:.2} × |\n", row.name);
        print!("{line}");
        text += &line;
    }
    Ok(text)
}

/// Fills a server, and returns the memory that each object takes.
fn bytes_of_an_object(
    kind: Kind,
    more: &[&str],
    row: &fill::Row,
    count: u64,
    thunderhead: &Path,
) -> Result<f64> {
    let scratch = Scratch::new("door-measure")?;
    let server = Server::start_with(kind, more, thunderhead, &scratch)?;
    let before = resident(&server)?;
    fill::fill(server.address, row, count)
        .with_context(|| format!("fill {} with {}", server.name, row.name))?;
    Ok((resident(&server)? - before) as f64 / count as f64)
}

/// Returns the bytes of memory that a server occupies.
fn resident(server: &Server) -> Result<i64> {
    let process = server.process().context("the server was started here")?;
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<i64>().ok());
    Ok(kilobytes.context("the system does not tell the memory of a process")? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_although_a_name_has_commas() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\"\n\"MGET a,b\",\"1200.50\",\"0.1\"\n";
        assert_eq!(rate(text), Some(1200.5));
        assert_eq!(rate("WARNING: a server\n"), None);
        assert_eq!(rate(""), None);
    }
}
