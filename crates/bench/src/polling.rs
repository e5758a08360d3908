//! The costs and gains of the ways of spending idle time, against the number of clients: the fourth
//! paper's question in our terms. For reads of a shard over TCP and over shared memory it measures:
//! reads a second, latency, the server's processor time for each read, and its processor time while
//! idle.
//!
//! All clients are on one core, in one thread that polls them in turn and never sleeps, so that two
//! rows differ only in the server. Each client has a connection of its own and one read in flight,
//! and may pause after each. A client's latency includes the other clients' turns on that core. If
//! the machine reports its energy, that is reported too: of the whole package, with the clients.
//!
//! [`price`](crate::rpc::price) measures the same for one client at a constant rate.

use crate::operations::generator::Generator;
use crate::operations::message::Bodies;
use crate::operations::target::Own;
use crate::rpc::floors::PATIENCE;
use crate::rpc::floors::latencies::Latencies;
use crate::rpc::price::SETTINGS;
use crate::rpc::subject::caller;
use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thunderhead_load::channel::Channel;
use thunderhead_load::content::is_right;
use thunderhead_load::machine::{self, median};
use thunderhead_load::output::{progress, show};
use thunderhead_load::plan::Plan;
use thunderhead_load::plot::{self, Marks, Panel, Series};
use thunderhead_load::table::Table;
use thunderhead_load::workload::Workload;
use thunderhead_rpc::Caller;
use thunderhead_runtime::Random;
use thunderhead_runtime::polling::Polling;

/// The options of the run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Numbers of clients: 1 to 256 each.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32")]
    pub clients: Vec<usize>,
    /// Microseconds that a client waits after each answer: 0 to 1000000.
    #[arg(long, default_value_t = 0)]
    pub pause_us: u64,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// The number of rounds; the medians count.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// One round of a tenth of a second each: shows whether it works.
    #[arg(long)]
    pub quick: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Draw the figures into this file.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

/// The number of objects, of 100 B each: few, because this is not about memory.
const OBJECTS: u64 = 10_000;

/// The results of one setting with one number of clients.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// The channel to the server.
    pub channel: Channel,
    /// The server's use of idle time.
    pub polling: &'static str,
    /// The number of clients.
    pub clients: usize,
    /// Reads a second.
    pub reads: f64,
    /// The median latency, in microseconds.
    pub median_us: f64,
    /// The 99th percentile, in microseconds.
    pub p99_us: f64,
    /// Microseconds of the server's processor time for each read.
    pub processor_us: f64,
    /// The share of the server's core in use.
    pub core: f64,
    /// The same while all clients are connected and idle.
    pub idle_core: f64,
    /// Microjoules of the whole package for each read, if the machine reports them.
    pub energy_uj: Option<f64>,
}

impl Arguments {
    /// Refuses invalid options before any measurement.
    ///
    /// # Errors
    /// When an option is invalid.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.clients.is_empty(), "--clients names no number");
        for clients in &self.clients {
            ensure!((1..=256).contains(clients), "--clients is {clients}; it must be 1 to 256");
        }
        let (pause, rounds) = (self.pause_us, self.rounds);
        ensure!(pause <= 1_000_000, "--pause-us is {pause}; it must be at most 1000000");
        ensure!((1..=99).contains(&rounds), "--rounds is {rounds}; it must be 1 to 99");
        ensure!(
            (0.02..=60.0).contains(&self.seconds),
            "--seconds is {}; it must be 0.02 to 60",
            self.seconds
        );
        plot::check(self.plot.as_deref())
    }
}

/// A client with at most one read in flight.
struct Client {
    caller: Caller,
    address: SocketAddr,
    bodies: Bodies,
    random: Random,
    pause: Duration,
    number: u64,
    sent: Option<Instant>,
    next: Instant,
}

impl Client {
    fn connect(
        channel: Channel,
        address: SocketAddr,
        pause: Duration,
        seed: u64,
    ) -> Result<Client> {
        let (caller, random) = (caller(channel)?, Random::from_seed(seed));
        let (bodies, number, sent) = (Bodies::new(100, 1), 0, None);
        let next = Instant::now();
        let mut client = Client { caller, address, bodies, random, pause, number, sent, next };
        // The first request opens the connection.
        client.begin(Instant::now())?;
        while client.sent.is_some() {
            client.turn(false, &mut |_| {})?;
        }
        Ok(client)
    }

    #[inline]
    fn begin(&mut self, now: Instant) -> Result<()> {
        self.number = self.random.below(OBJECTS);
        let (opcode, body) = self.bodies.read(self.number);
        self.caller.begin(self.address, opcode, &[body], Some(PATIENCE))?;
        self.sent = Some(now);
        Ok(())
    }

    /// Sends if it is time, and takes an arrived answer; `record` receives the latency.
    #[inline]
    fn turn(&mut self, begins: bool, record: &mut dyn FnMut(Duration)) -> Result<()> {
        if self.sent.is_none() {
            // Without a pause, the time of the last answer will do.
            let now = if self.pause.is_zero() { self.next } else { Instant::now() };
            if !begins || now < self.next {
                return Ok(());
            }
            self.begin(now)?;
        }
        let (mut answered, number) = (None, self.number);
        self.caller.poll(&mut |_, outcome| {
            answered = Some(outcome.map(|body| {
                let value = body.get(8..).unwrap_or_default();
                value.len() == 100 && is_right(value, number)
            }));
        });
        match answered {
            None => return Ok(()),
            Some(Err(error)) => return Err(error).context("a read"),
            Some(Ok(false)) => bail!("object {number} has a value that was never written for it"),
            Some(Ok(true)) => {}
        }
        let now = Instant::now();
        if let Some(sent) = self.sent.take() {
            record(now - sent);
        }
        // Varying pauses, so that clients do not stay in step.
        let pause = self.pause.as_nanos() as u64;
        let about = pause / 2 + self.random.below(pause.max(1));
        self.next = now + Duration::from_nanos(if pause == 0 { 0 } else { about });
        Ok(())
    }
}

/// Joules that the machine's processors have used, if it reports them.
struct Energy(Vec<(PathBuf, u64)>);

impl Energy {
    fn begin() -> Energy {
        let zones = std::fs::read_dir("/sys/class/powercap").into_iter().flatten().flatten();
        // Packages are named like `intel-rapl:0`; their parts have one more number.
        let packages = zones.map(|zone| zone.path()).filter(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            name.is_some_and(|name| name.matches(':').count() == 1)
        });
        Energy(
            packages.filter_map(|path| Some((path.clone(), number(&path, "energy_uj")?))).collect(),
        )
    }

    /// Returns the microjoules since the beginning.
    fn microjoules(&self) -> Option<f64> {
        let mut sum = 0;
        for (path, before) in &self.0 {
            let (now, most) = (number(path, "energy_uj")?, number(path, "max_energy_range_uj"));
            sum += if now >= *before { now - before } else { (most? - before) + now };
        }
        (!self.0.is_empty()).then_some(sum as f64)
    }
}

fn number(zone: &std::path::Path, file: &str) -> Option<u64> {
    std::fs::read_to_string(zone.join(file)).ok()?.trim().parse().ok()
}

/// Measures one setting with each number of clients, on one server.
fn serve(
    channel: Channel,
    (polling, setting): (&'static str, Polling),
    arguments: &Arguments,
    duration: Duration,
) -> Result<Vec<Figures>> {
    let own = Own { cleaners: 0, polling: setting, ..Own::holding(OBJECTS, 100, 0.5) };
    own.watched(channel, |address, server| {
        let plan = Plan::new(Workload::Read, OBJECTS);
        Generator::new(&plan, channel, address, 0)?.load(&mut |_| {})?;
        let mut all = Vec::new();
        for clients in &arguments.clients {
            let pause = Duration::from_micros(arguments.pause_us);
            let connect = |seed| Client::connect(channel, address, pause, seed as u64 + 1);
            let mut crowd = (0..*clients).map(connect).collect::<Result<Vec<Client>>>()?;
            let (began, before) = (Instant::now(), server.processor()?);
            std::thread::sleep(duration);
            let idle = (server.processor()? - before).as_secs_f64();
            let idle_core = idle / began.elapsed().as_secs_f64();
            turns(&mut crowd, duration / 5, &mut |_| {})?;
            let (mut latencies, energy) = (Latencies::new(), Energy::begin());
            let (began, before) = (Instant::now(), server.processor()?);
            turns(&mut crowd, duration, &mut |latency| latencies.record(latency))?;
            let (took, processor) = (began.elapsed(), server.processor()? - before);
            let count = latencies.count() as f64;
            ensure!(count > 0.0, "no read was answered in {duration:?}");
            all.push(Figures {
                channel,
                polling,
                clients: *clients,
                reads: count / took.as_secs_f64(),
                median_us: latencies.median() / 1e3,
                p99_us: latencies.percentile(0.99) / 1e3,
                processor_us: processor.as_secs_f64() * 1e6 / count,
                core: processor.as_secs_f64() / took.as_secs_f64(),
                idle_core,
                energy_uj: energy.microjoules().map(|energy| energy / count),
            });
        }
        Ok(all)
    })
}

/// Lets clients send requests for a time, and then waits for the requests in flight.
fn turns(crowd: &mut [Client], duration: Duration, record: &mut dyn FnMut(Duration)) -> Result<()> {
    let now = Instant::now();
    crowd.iter_mut().for_each(|client| client.next = now);
    let end = now + duration;
    let mut begins = true;
    while begins || crowd.iter().any(|client| client.sent.is_some()) {
        for client in &mut *crowd {
            client.turn(begins, record)?;
        }
        begins &= Instant::now() < end;
    }
    Ok(())
}

/// Measures everything, round by round.
///
/// # Errors
/// When it cannot be run.
pub fn measure(arguments: &Arguments) -> Result<Vec<Figures>> {
    let (rounds, seconds) = match arguments.quick {
        true => (1, 0.1),
        false => (arguments.rounds, arguments.seconds),
    };
    let mut all: Vec<Vec<Figures>> = Vec::new();
    for round in 0..rounds {
        for channel in [Channel::Tcp, Channel::Shm] {
            for setting in SETTINGS {
                progress(&format!("round {}, {channel:?}, polling {}", round + 1, setting.0));
                all.push(serve(channel, setting, arguments, Duration::from_secs_f64(seconds))?);
            }
        }
    }
    let each = all.len() / rounds;
    let mut middles = Vec::new();
    for at in 0..each {
        let runs: Vec<&Vec<Figures>> = all.iter().skip(at).step_by(each).collect();
        for place in 0..arguments.clients.len() {
            let runs: Vec<&Figures> = runs.iter().filter_map(|run| run.get(place)).collect();
            middles.extend(middle(&runs));
        }
    }
    Ok(middles)
}

/// Returns the median of each figure.
fn middle(runs: &[&Figures]) -> Option<Figures> {
    let first = *runs.first()?;
    let of = |value: fn(&Figures) -> f64| median(runs.iter().map(|run| value(run)).collect());
    let energies: Option<Vec<f64>> = runs.iter().map(|run| run.energy_uj).collect();
    Some(Figures {
        reads: of(|it| it.reads),
        median_us: of(|it| it.median_us),
        p99_us: of(|it| it.p99_us),
        processor_us: of(|it| it.processor_us),
        core: of(|it| it.core),
        idle_core: of(|it| it.idle_core),
        energy_uj: energies.map(median),
        ..first.clone()
    })
}

/// Returns the figures as panels, with a line for each transport and setting.
#[must_use]
pub fn draw(all: &[Figures]) -> Vec<Panel> {
    let series = |value: fn(&Figures) -> f64| {
        let mut series = Vec::new();
        for (channel, word) in [(Channel::Tcp, "TCP"), (Channel::Shm, "memory")] {
            for (polling, _) in SETTINGS {
                let these = all.iter().filter(|it| it.channel == channel && it.polling == polling);
                let points = these.map(|it| (it.clients as f64, value(it))).collect();
                series.push(Series { name: format!("{word}, {polling}"), points });
            }
        }
        series
    };
    let panel = |title: &str, y: &str, value: fn(&Figures) -> f64| Panel {
        title: title.to_owned(),
        x_label: "clients".to_owned(),
        y_label: y.to_owned(),
        series: series(value),
        marks: Marks::Lines,
    };
    let mut panels = vec![
        panel("Reads", "thousand a second", |it| it.reads / 1e3),
        panel("Latency, median", "µs", |it| it.median_us),
        panel("Latency, 99 %", "µs", |it| it.p99_us),
        panel("Processor time of the server", "µs a read", |it| it.processor_us),
        panel("The server's core under load", "share", |it| it.core),
        panel("The server's core while idle", "share", |it| it.idle_core),
    ];
    if all.iter().all(|it| it.energy_uj.is_some()) {
        let energy = |it: &Figures| it.energy_uj.unwrap_or_default();
        panels.push(panel("Energy of the package", "µJ a read", energy));
    }
    panels
}

/// Runs the experiment and prints it.
///
/// # Errors
/// When it cannot be run.
pub fn run(arguments: &Arguments) -> Result<()> {
    arguments.check()?;
    ensure!(machine::cores() > 1, "this needs a core for the server and another for its clients");
    let all = measure(arguments)?;
    let columns = [
        "channel",
        "polling",
        "clients",
        "K reads/s",
        "p50 µs",
        "p99 µs",
        "µs CPU/read",
        "core",
        "core at idle",
        "µJ/read",
    ];
    let pause = match arguments.pause_us {
        0 => "without pauses".to_owned(),
        pause => format!("that pause for about {pause} µs"),
    };
    let title = format!("Reads of 100 B by clients {pause}: how the server spends idle time");
    let mut table = Table::new(&title, &columns);
    for it in &all {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        table.row(&[
            if it.channel == Channel::Tcp { "TCP" } else { "shared memory" }.to_owned(),
            it.polling.to_owned(),
            it.clients.to_string(),
            format!("{:.1}", it.reads / 1e3),
            format!("{:.1}", it.median_us),
            format!("{:.1}", it.p99_us),
            format!("{:.2}", it.processor_us),
            percent(it.core),
            percent(it.idle_core),
            it.energy_uj.map_or("not reported".to_owned(), |energy| format!("{energy:.1}")),
        ]);
    }
    if let Some(path) = &arguments.plot {
        plot::save(path, &draw(&all))?;
    }
    show(arguments.json, &table, &all)
}
