//! The server's processor time for a request, by load and by the server's use of idle time: the
//! energy question of the fourth paper in our terms.

use super::floors;
use super::floors::latencies::Latencies;
use super::subject::{Setup, beside, body, caller, in_flight};
use anyhow::Result;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thunderhead_load::output::show;
use thunderhead_load::plot::{self, Marks, Panel, Series};
use thunderhead_load::table::Table;
use thunderhead_rpc::Opcode;
use thunderhead_runtime::polling::Polling;

/// The options of the run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw the figure into this file.
    #[arg(long)]
    plot: Option<PathBuf>,
}

/// The results of one setting under one load.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// The server's use of idle time.
    pub polling: &'static str,
    /// The share of the highest load.
    pub load: f64,
    /// Requests a second.
    pub requests: f64,
    /// Microseconds of the server's processor time for each request.
    pub processor_us: f64,
    /// The share of a core in use.
    pub core: f64,
    /// The median latency in microseconds.
    pub latency_us: f64,
    /// The server's time: busy, spinning, blocked.
    pub shares: [f64; 3],
}

/// The settings with their names.
pub const SETTINGS: [(&str, Polling); 3] = [
    ("always", Polling::Always),
    ("adaptive", Polling::Adaptive(Duration::from_micros(100))),
    ("never", Polling::Never),
];

/// Sends requests at a steady rate from one polling client, each at its own time.
fn paced(address: SocketAddr, rate: f64, duration: Duration) -> Result<(f64, Latencies)> {
    let setup = Setup::tcp(Polling::Always);
    let mut caller = caller(setup)?;
    let (body, timeout) = (body(), Some(floors::PATIENCE));
    caller.call(address, Opcode::Echo, &[&body], timeout, |_| ())?;
    let (mut latencies, mut sent, mut done) = (Latencies::new(), 0u64, 0u64);
    let mut times = std::collections::HashMap::new();
    let (began, mut failed) = (Instant::now(), None);
    loop {
        let now = began.elapsed();
        if now >= duration {
            break;
        }
        // A server that cannot keep up gets at most this many requests at once.
        if sent as f64 <= rate * now.as_secs_f64() && sent - done < 256 {
            let id = caller.begin(address, Opcode::Echo, &[&body], timeout)?;
            times.insert(id, Instant::now());
            sent += 1;
        }
        caller.poll(&mut |id, outcome| {
            done += 1;
            if let Some(sent) = times.remove(&id) {
                latencies.record(sent.elapsed());
            }
            failed = failed.or(outcome.err());
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
    }
    Ok((done as f64 / began.elapsed().as_secs_f64(), latencies))
}

/// Measures every setting at a tenth, half and all of one client's highest rate.
///
/// # Errors
/// When it cannot be run.
pub fn measure(duration: Duration) -> Result<Vec<Figures>> {
    let setup = Setup::tcp(Polling::Always);
    let (highest, _) = beside(setup, |address| in_flight(address, false, 8, duration))?;
    let mut all = Vec::new();
    for load in [0.1, 0.5, 1.0] {
        for (polling, setting) in SETTINGS {
            // An open loop cannot hold the highest rate of a closed one without a growing queue.
            let rate = highest * load * 0.9;
            let run = |address| paced(address, rate, duration);
            let ((requests, latencies), served) = beside(Setup::tcp(setting), run)?;
            let usage = served.usage;
            let whole = (usage.busy + usage.spinning + usage.blocked).as_secs_f64();
            all.push(Figures {
                polling,
                load,
                requests,
                processor_us: served.processor.as_secs_f64() * 1e6 / served.answered as f64,
                core: served.processor.as_secs_f64() / whole,
                latency_us: latencies.median() / 1e3,
                shares: [usage.busy, usage.spinning, usage.blocked]
                    .map(|part| part.as_secs_f64() / whole),
            });
        }
    }
    Ok(all)
}

fn draw(all: &[Figures]) -> Vec<Panel> {
    let series = |value: fn(&Figures) -> f64| {
        SETTINGS
            .iter()
            .map(|(name, _)| Series {
                name: (*name).to_owned(),
                points: all
                    .iter()
                    .filter(|it| it.polling == *name)
                    .map(|it| (it.requests / 1e3, value(it)))
                    .collect(),
            })
            .collect()
    };
    let panel = |title: &str, y: &str, series| Panel {
        title: title.to_owned(),
        x_label: "thousand requests a second".to_owned(),
        y_label: y.to_owned(),
        series,
        marks: Marks::Lines,
    };
    vec![
        panel("Processor time of the server", "µs a request", series(|it| it.processor_us)),
        panel("Use of the server's core", "share", series(|it| it.core)),
        panel("Latency", "median, µs", series(|it| it.latency_us)),
    ]
}

/// Runs the experiment and prints it.
///
/// # Errors
/// When it cannot be run.
pub fn run(arguments: &Arguments) -> Result<()> {
    let all = measure(Duration::from_secs_f64(arguments.seconds.clamp(0.05, 60.0)))?;
    let columns = [
        "load",
        "polling",
        "K/s",
        "µs CPU/request",
        "core",
        "p50 µs",
        "busy",
        "spinning",
        "blocked",
    ];
    let mut table = Table::new("Processor time for each request, TCP, one client", &columns);
    for figures in &all {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        table.row(&[
            percent(figures.load),
            figures.polling.to_owned(),
            format!("{:.1}", figures.requests / 1e3),
            format!("{:.2}", figures.processor_us),
            percent(figures.core),
            format!("{:.1}", figures.latency_us),
            percent(figures.shares[0]),
            percent(figures.shares[1]),
            percent(figures.shares[2]),
        ]);
    }
    if let Some(path) = &arguments.plot {
        plot::save(path, &draw(&all))?;
    }
    show(arguments.json, &table, &all)
}
