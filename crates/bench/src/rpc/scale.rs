//! An idle server, and a server with very many connections.

use super::floors::load::{Load, generate};
use super::subject::{REPLY_FRAME_BYTES, Served, Setup, beside, greet, request_frame};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;
use thunderhead_load::machine::resident_bytes;
use thunderhead_load::output::{progress, show};
use thunderhead_load::table::Table;
use thunderhead_runtime::polling::Polling;

/// The options of the run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Seconds for which an idle server is observed.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Idle connections in that time.
    #[arg(long, default_value_t = 100)]
    idle: usize,
    /// The number of connections of the second server.
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The arguments of the process of many clients.
#[derive(Debug, clap::Args)]
pub struct Crowd {
    /// The server.
    address: SocketAddr,
    /// The number of connections to it.
    connections: usize,
    /// Seconds to send requests.
    seconds: f64,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// The share of a core that an idle server takes.
    pub idle_core: f64,
    /// Connections served at once.
    pub connections: usize,
    /// Requests a second over all connections, with one in flight on each.
    pub requests: f64,
    /// Resident bytes of the server for each idle connection.
    pub bytes_per_connection: f64,
}

fn open(address: SocketAddr, count: usize) -> Result<Vec<TcpStream>> {
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).context("connect")?;
        greet(&mut stream)?;
        streams.push(stream);
    }
    Ok(streams)
}

/// Returns the share of a core that a server takes with idle connections.
///
/// # Errors
/// When it cannot be run.
pub fn idle(connections: usize, duration: Duration) -> Result<f64> {
    let setup = Setup::tcp(Polling::default());
    let ((), served) = beside(setup, |address| {
        let streams = open(address, connections)?;
        std::thread::sleep(duration);
        drop(streams);
        Ok(())
    })?;
    let Served { usage, processor, .. } = served;
    let whole = usage.busy + usage.spinning + usage.blocked;
    Ok(processor.as_secs_f64() / whole.as_secs_f64())
}

/// Ensures that this process may have this many descriptors.
fn allow_descriptors(needed: u64) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    // Above the maximum only with privileges.
    let maximum = maximum.map(|maximum| maximum.max(needed));
    let wanted = Rlimit { current: Some(needed), maximum };
    setrlimit(Resource::Nofile, wanted).with_context(|| {
        format!(
            "this needs {needed} descriptors: allow them (ulimit -n) or use fewer --connections"
        )
    })
}

/// Serves many connections; returns requests a second, and resident bytes of the server for each
/// connection. The other ends are in a process of their own, because of the limit of descriptors,
/// and so that its memory does not count.
///
/// # Errors
/// When it cannot be run, for example because descriptors ran out.
pub fn many(connections: usize, duration: Duration) -> Result<(f64, f64)> {
    allow_descriptors(connections as u64 + 100)?;
    let setup = Setup::tcp(Polling::default());
    let (figures, _) = beside(setup, |address| {
        let before = resident_bytes();
        let seconds = duration.as_secs_f64().to_string();
        let mut child = Command::new(std::env::current_exe()?)
            .args(["rpc", "crowd", &address.to_string()])
            .args([&connections.to_string(), &seconds])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the process of the clients")?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let opened = lines.next().context("the clients' process ended early")??;
        ensure!(opened == "open", "the clients' process printed {opened}");
        let bytes = resident_bytes().saturating_sub(before) as f64 / connections as f64;
        // The end of its input lets it continue.
        drop(child.stdin.take());
        let rate = lines.next().context("the clients' process ended early")??;
        child.wait()?;
        Ok((rate.parse()?, bytes))
    })?;
    Ok(figures)
}

/// Runs the other end of [`many`], in its own process.
///
/// # Errors
/// When a connection fails.
pub fn crowd(arguments: &Crowd) -> Result<()> {
    let Crowd { address, connections, seconds } = *arguments;
    allow_descriptors(connections as u64 + 100)?;
    let streams = open(address, connections)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "open")?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(streams);
    let duration = Duration::from_secs_f64(seconds.clamp(0.01, 60.0));
    let load = Load {
        address,
        connections,
        depth: 1,
        request: &request_frame(),
        reply_bytes: REPLY_FRAME_BYTES,
        stamp: None,
        warm_up: duration / 10,
        duration,
    };
    writeln!(out, "{}", generate(&load, &mut greet)?.per_second())?;
    Ok(())
}

/// Runs the experiment and prints it.
///
/// # Errors
/// When it cannot be run.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { seconds, idle: idle_connections, connections, json } = *arguments;
    let duration = Duration::from_secs_f64(seconds.clamp(0.1, 600.0));
    progress(&format!("{idle_connections} idle connections for {duration:?}"));
    let idle_core = idle(idle_connections, duration)?;
    progress(&format!("{connections} connections"));
    let (requests, bytes_per_connection) = many(connections, Duration::from_secs(2))?;
    let figures = Figures { idle_core, connections, requests, bytes_per_connection };
    let mut table = Table::new("Connections", &["what", "measured"]);
    let core = format!("{:.3} % of a core", figures.idle_core * 100.0);
    table.row(&[format!("idle server, {idle_connections} idle connections"), core]);
    table.row(&[format!("{connections} connections: requests/s"), format!("{requests:.0}")]);
    let bytes = format!("{bytes_per_connection:.0} B");
    table.row(&["resident memory of the server for each idle connection".to_owned(), bytes]);
    show(json, &table, &figures)
}
