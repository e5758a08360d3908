//! `cargo xtask door-measure`: `thunderhead redis` beside Redis and Valkey, in memory and in speed.
//!
//! Speed is measured with `redis-benchmark`, which the users of Redis know. Each round runs all
//! servers in turn, so that other load on the machine affects all alike. A figure is the median of
//! the rounds. The server is on one core, and the client on another.

mod expiry;
mod fill;

use crate::door_compare::servers::{Kind, Server};
use crate::scratch::Scratch;
use crate::steps::{build_programs, program};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The names of the marks between which a page has the results: of most parts, and of `expiry`.
const MEASURED: &str = "measured";
const EXPIRY: &str = "expiry";

/// The options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The parts: `memory`, `speed`, `durable`, `expiry`; all when none is given.
    parts: Vec<String>,
    /// Rows whose names contain this text; all when it is not given.
    #[arg(long)]
    only: Option<String>,
    /// Rounds of each row of speed.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Thousands of objects in the rows of memory, and of keys that expire.
    #[arg(long, default_value_t = 1000)]
    thousands: u64,
    /// Seconds of a turn of a server in a row of speed.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Write the results into this page, between marks like `measured: begin`, `measured: end`.
    #[arg(long, value_name = "FILE.md")]
    write: Option<PathBuf>,
}

/// The core of all servers. The client of `thunderhead-bench` is on core 0.
const SERVER_CORE: usize = 1;

/// The servers, ours first.
const KINDS: [Kind; 3] = [Kind::OurRedis, Kind::Redis, Kind::Valkey];

/// Runs the parts.
pub(crate) fn door_measure(arguments: &Arguments) -> Result<()> {
    let parts = ["memory", "speed", "durable", "expiry"];
    if let Some(name) = arguments.parts.iter().find(|name| !parts.contains(&name.as_str())) {
        bail!("there is no part {name}; the parts are {}", parts.join(", "));
    }
    let is_wanted =
        |part: &str| arguments.parts.is_empty() || arguments.parts.iter().any(|name| name == part);
    build_programs()?;
    let thunderhead = program("thunderhead").canonicalize().context("find the program")?;
    let mut text = String::new();
    if is_wanted("memory") {
        text += &memory(arguments, &thunderhead)?;
    }
    if is_wanted("speed") {
        let setups = KINDS.map(|kind| Setup { kind, name: name(kind), more: &[] });
        text += &speed(arguments, &thunderhead, false, &setups)?;
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
        text += &speed(arguments, &thunderhead, true, &setups)?;
    }
    let mut of_expiry = String::new();
    if is_wanted("expiry") {
        let mut setups = vec![
            Setup { kind: Kind::OurRedis, name: "Thunderhead", more: &[] },
            Setup { kind: Kind::OurRedis, name: "Thunderhead, `--data`", more: &["--data"] },
        ];
        let others = [Kind::Redis, Kind::Valkey];
        setups.extend(others.map(|kind| Setup { kind, name: name(kind), more: &[] }));
        let is_wanted =
            |setup: &Setup| arguments.only.as_ref().is_none_or(|it| setup.name.contains(it));
        setups.retain(is_wanted);
        of_expiry = expiry::expiry(&thunderhead, &setups, arguments.rounds, arguments.thousands)?;
    }
    let Some(page) = &arguments.write else { return Ok(()) };
    write(page, MEASURED, &text)?;
    write(page, EXPIRY, &of_expiry)
}

const fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::OurRedis => "Thunderhead",
        Kind::Redis => "Redis 8.2",
        _ => "Valkey 9.1",
    }
}

/// Writes the results of some parts into a page, if there are any.
fn write(page: &Path, mark: &str, text: &str) -> Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let (begin, end) = (format!("<!-- {mark}: begin -->"), format!("<!-- {mark}: end -->"));
    let old = std::fs::read_to_string(page).with_context(|| format!("read {}", page.display()))?;
    let (before, rest) = old.split_once(&begin).context("the page has no mark for the begin")?;
    let (_, after) = rest.split_once(&end).context("the page has no mark for the end")?;
    let new = format!("{before}{begin}\n\n{}\n{end}{after}", text.trim_start());
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

/// Measures rows, and returns their table.
fn speed(
    arguments: &Arguments,
    thunderhead: &Path,
    is_durable: bool,
    setups: &[Setup],
) -> Result<String> {
    let scratch = Scratch::new("door-measure")?;
    let servers: Vec<Server> = setups
        .iter()
        .enumerate()
        .map(|(number, setup)| setup.start(thunderhead, &scratch, number))
        .collect::<Result<_>>()?;
    let mut bench = Command::new(program("thunderhead-bench"));
    bench.args(["door", "beside", "--markdown"]);
    bench.args(["--rounds", &arguments.rounds.to_string()]);
    bench.args(["--seconds", &arguments.seconds.to_string()]);
    bench.args(arguments.only.iter().flat_map(|text| ["--only", text]));
    if is_durable {
        bench.arg("--durable");
    }
    for (server, setup) in servers.iter().zip(setups) {
        pin(server, SERVER_CORE)?;
        bench.args(["--server", &format!("{}={}", setup.name, server.address)]);
    }
    let output = bench.stderr(Stdio::inherit()).output().context("run thunderhead-bench")?;
    ensure!(output.status.success(), "thunderhead-bench door failed");
    let text = format!("\n{}", String::from_utf8_lossy(&output.stdout));
    print!("{text}");
    Ok(text)
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
