//! A cluster of processes that loses a server, for `thunderhead demo crash` and `thunderhead-bench
//! evaluate recovery`.
//!
//! ```text
//!  start   a coordinator and servers, child processes on loopback
//!  load    objects, each with a stamp of its writer
//!  write   at full speed: the objects of the server that will crash, and those of the others
//!  crash   SIGKILL or SIGSTOP                                          0 s
//!  watch   the coordinator's status: declared crashed, recovered, by which servers
//!  probe   objects of the crashed server, until the last can be read
//!  check   every object: all acknowledged writes are there
//! ```
//!
//! Clients observe everything from outside: this code knows nothing about the steps of a recovery.

pub mod members;
pub mod objects;
pub mod users;
pub mod watch;

use anyhow::{Context as _, Result, anyhow, ensure};
use members::{Cluster, Cores, Setup};
use objects::{Found, Objects};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use thunderhead_client::ServerId;
use thunderhead_client::control::{ClusterStatus, ServerInfo, TabletInfo};
use users::{Latencies, Probed, Written};
use watch::{Before, Event, Seen};

/// Deadlines of clients' operations.
pub(crate) struct Deadline;

impl Deadline {
    /// While nothing is wrong.
    const OPERATION: Duration = Duration::from_secs(20);
    /// For readers that try again.
    const OF_PROBE: Duration = Duration::from_secs(5);
    /// Added to the patience for a crashed server.
    const BEYOND: Duration = Duration::from_secs(5);
    /// For clients that ask for the cluster's state continuously.
    const SHORT: Duration = Duration::from_millis(300);
}

/// The interval at which other threads are checked.
const LOOK: Duration = Duration::from_millis(2);

/// Shows progress to people.
pub trait Screen: Sync {
    /// Reports an event, with the seconds since the crash if these matter.
    fn say(&self, at: Option<f64>, what: &str);

    /// Reports that `done` of `of` objects of this size are loaded or checked.
    fn progress(&self, what: &str, done: u64, of: u64, value_bytes: usize);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

impl Screen for Quiet {
    fn say(&self, _: Option<f64>, _: &str) {}

    fn progress(&self, _: &str, _: u64, _: u64, _: usize) {}
}

/// The way in which the server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Crash {
    /// By SIGKILL.
    Kill,
    /// By SIGSTOP; when all data is available again it continues, unaware of the pause.
    Stop,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The binary.
    pub program: PathBuf,
    /// The parent of the run's directory; the directory for temporary files if `None`.
    pub directory: Option<PathBuf>,
    /// Whether the directory stays at the end.
    pub keep: bool,
    /// The number of servers, at least three.
    pub servers: u32,
    /// Replicas of each segment.
    pub replicas: u32,
    /// The number of objects.
    pub objects: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Whether the crashed server has all objects, not its share.
    pub victim_has_all: bool,
    /// The way in which the server fails.
    pub crash: Crash,
    /// The time from its crash to its restart, if it is restarted.
    pub restart_after: Option<Duration>,
    /// The longest time until all data must be available again.
    pub patience: Duration,
    /// The time of writes before the crash, and of reads; `None` for a run without writes.
    pub write_for: Option<Duration>,
    /// Whether one client reads objects of a surviving server, which shares a separate core with
    /// it.
    pub read_apart: bool,
}

impl Plan {
    /// Returns the plan of a gigabyte of objects of a kilobyte on five servers, two replicas.
    #[must_use]
    pub fn new(program: PathBuf) -> Plan {
        Plan {
            program,
            directory: None,
            keep: false,
            servers: 5,
            replicas: 2,
            objects: 1_000_000,
            value_bytes: 1000,
            victim_has_all: false,
            crash: Crash::Kill,
            restart_after: None,
            patience: Duration::from_secs(60),
            write_for: Some(Duration::from_secs(2)),
            read_apart: false,
        }
    }

    fn check(&self) -> Result<()> {
        ensure!((3..=64).contains(&self.servers), "there must be 3 to 64 servers");
        ensure!(
            (1..self.servers).contains(&self.replicas),
            "there must be 1 to {} replicas: fewer than servers",
            self.servers - 1
        );
        ensure!((64..=1 << 20).contains(&self.value_bytes), "a value must have 64 B to 1 MiB");
        ensure!(
            (1000..=100_000_000).contains(&self.objects),
            "there must be 1 000 to 100 000 000 objects: say more or fewer bytes"
        );
        let all = (self.memory_bytes() + self.disk_pool_bytes()) * u64::from(self.servers);
        crate::machine::ensure_memory(all, "--bytes")
    }

    /// Returns the bytes of all objects in logs.
    fn bytes(&self) -> u64 {
        self.objects * (self.value_bytes as u64 + 80)
    }

    /// Returns the memory of a server: it may end up with everything.
    fn memory_bytes(&self) -> u64 {
        let share = if self.victim_has_all { 1.0 } else { 0.6 };
        // Overwritten objects need room for cleaning.
        (self.bytes() as f64 * share * 1.6) as u64 + self.objects * 16 + (256 << 20)
    }

    /// Returns the approximate memory in which a backup keeps replicas until they are on the disk.
    fn disk_pool_bytes(&self) -> u64 {
        128 << 20
    }

    /// Returns the setup of the cluster for this plan.
    #[must_use]
    pub fn setup(&self) -> Setup {
        let memory_bytes = self.memory_bytes();
        Setup {
            program: self.program.clone(),
            directory: self.directory.clone(),
            keep: self.keep,
            servers: self.servers,
            replicas: self.replicas,
            memory_bytes,
            // Replicas of the crashed server's log exist beside those of the recovery masters.
            disk_bytes: memory_bytes * u64::from(self.replicas) + (256 << 20),
            cores: if self.read_apart { Cores::FirstApart } else { Cores::Any },
            // There are more processes than cores, so a spinning process would take a core from a
            // working one.
            polling: "never",
            coordinator: Vec::new(),
            server: Vec::new(),
        }
    }
}

/// Latencies of reads, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Reads {
    /// The 99th percentile before the crash.
    pub before_us: f64,
    /// The 99th percentile from the crash until all data was available again.
    pub during_us: f64,
    /// The number of reads in that time.
    pub reads_during: u64,
    /// Reads that failed.
    pub failed: u64,
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The way in which the server failed.
    pub crash: Crash,
    /// The crashed server.
    pub victim: ServerId,
    /// Objects in all.
    pub objects: u64,
    /// Bytes of the objects' values.
    pub bytes: u64,
    /// The number of objects on the crashed server.
    pub victim_objects: u64,
    /// The time of loading, in seconds.
    pub load_s: f64,
    /// The time from the crash until the cluster declared the server crashed.
    pub detected_s: Option<f64>,
    /// The time until the first of its objects could be read.
    pub first_readable_s: Option<f64>,
    /// The time until the last of them could be read.
    pub last_readable_s: Option<f64>,
    /// The time until its objects were written again.
    pub written_again_s: Option<f64>,
    /// The longest time without an answered write of the other servers' objects.
    pub others_pause_s: Option<f64>,
    /// Acknowledged writes of all writers, before and after the crash.
    pub writes_acknowledged: u64,
    /// Writes that failed, or whose outcome is unknown.
    pub writes_failed: u64,
    /// Some of the reasons.
    pub failures: Vec<String>,
    /// Servers that were declared crashed although they were not.
    pub false_verdicts: Vec<String>,
    /// Reads of the other servers' objects.
    pub reads: Option<Reads>,
    /// The cluster's reports, with their times.
    pub events: Vec<Event>,
    /// Whether all data could be read again in time.
    pub came_back: bool,
    /// The result of the final check; `None` if the data did not come back.
    pub found: Option<Found>,
}

impl Report {
    /// Whether all promises were kept.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let found = self.found.as_ref();
        self.came_back && found.is_some_and(|it| it.lost == 0 && it.wrong == 0)
    }
}

const TABLE: &str = "demo";

/// Chooses the server to crash, and records the state before.
fn before(cluster: &Cluster, status: &ClusterStatus, plan: &Plan) -> Result<(u32, Before)> {
    let tablets: Vec<TabletInfo> =
        status.map.tables.iter().flat_map(|it| &it.tablets).copied().collect();
    let servers = &status.servers.servers;
    let of = |server: &ServerInfo| -> Vec<TabletInfo> {
        let is_its = |it: &&TabletInfo| server.shards.iter().any(|own| own.master == it.master);
        tablets.iter().filter(is_its).copied().collect()
    };
    // The first server has a separate core, if the plan asks for one; another server crashes.
    let candidates = servers.iter().filter(|it| {
        !plan.read_apart || plan.victim_has_all || cluster.number_of(it).is_ok_and(|it| it > 0)
    });
    let victim = candidates.max_by_key(|it| (of(it).len(), it.server)).context("no servers")?;
    let before = Before {
        lives: servers.iter().map(|it| (it.server, it.generation)).collect(),
        victim: victim.server,
        masters: victim.shards.iter().map(|it| it.master).collect(),
        tablets: of(victim),
    };
    ensure!(!before.tablets.is_empty(), "{} has no tablets", victim.server);
    Ok((cluster.number_of(victim)?, before))
}

/// Returns the tablets of the server with a separate core.
fn apart(cluster: &Cluster, status: &ClusterStatus) -> Vec<TabletInfo> {
    let first = status.servers.servers.iter().find(|it| cluster.number_of(it).ok() == Some(0));
    let tablets = status.map.tables.iter().flat_map(|it| &it.tablets);
    let is_its = |tablet: &&TabletInfo| {
        first.is_some_and(|it| it.shards.iter().any(|own| own.master == tablet.master))
    };
    tablets.filter(is_its).copied().collect()
}

/// Runs the plan.
///
/// # Errors
/// When it cannot be tried. A failure to recover is in the report, not an error.
pub fn run(plan: &Plan, screen: &dyn Screen) -> Result<Report> {
    plan.check()?;
    let mut cluster = Cluster::start(&plan.setup())?;
    let what = format!(
        "{} servers with {} replicas are up, each a process; their files are in {}",
        plan.servers,
        plan.replicas,
        cluster.directory().display()
    );
    screen.say(None, &what);
    let mut client = cluster.client(Deadline::OPERATION)?;
    let span = if plan.victim_has_all { 1 } else { plan.servers };
    let table = client.create_table(TABLE, span).context("make a table")?;
    let objects = Objects::new(table, plan.objects, plan.value_bytes);
    let began = Instant::now();
    objects.load(cluster.view(), screen)?;
    let load_s = began.elapsed().as_secs_f64();
    let bytes = objects.bytes();
    let what = format!(
        "{} objects of {} B are written in {load_s:.1} s ({:.0} MB/s)",
        plan.objects,
        plan.value_bytes,
        bytes as f64 / load_s / 1e6
    );
    screen.say(None, &what);
    let status = client.status().context("ask how the cluster is")?;
    let (number, before) = before(&cluster, &status, plan)?;
    let victim_objects =
        (0..plan.objects).filter(|it| objects::is_in(&before.tablets, *it)).count() as u64;
    let apart = if plan.read_apart { apart(&cluster, &status) } else { Vec::new() };
    let round = Round { plan, screen, objects: &objects, before: &before, apart: &apart };
    let outcome = round.run(&mut cluster, number)?;
    let mut report = outcome.report(plan, &before);
    (report.victim_objects, report.load_s, report.bytes) = (victim_objects, load_s, bytes);
    if report.came_back {
        cluster.ensure_whole()?;
        report.found = Some(objects.check(cluster.view(), screen)?);
    }
    Ok(report)
}

/// The part from the writes before the crash until all data is available again.
struct Round<'a> {
    plan: &'a Plan,
    screen: &'a dyn Screen,
    objects: &'a Objects,
    before: &'a Before,
    apart: &'a [TabletInfo],
}

struct Outcome {
    crashed: Instant,
    probed: Vec<Probed>,
    victims: Option<Written>,
    others: Option<Written>,
    latencies: Option<Latencies>,
    seen: Seen,
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread panicked"))
}

/// Tells threads to stop, however a round ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Round<'_> {
    fn run(&self, cluster: &mut Cluster, number: u32) -> Result<Outcome> {
        let (stop, crashed) = (AtomicBool::new(false), OnceLock::new());
        std::thread::scope(|scope| self.in_scope(cluster, number, scope, &stop, &crashed))
    }

    fn in_scope<'s>(
        &'s self,
        cluster: &mut Cluster,
        number: u32,
        scope: &'s Scope<'s, '_>,
        stop: &'s AtomicBool,
        crashed: &'s OnceLock<Instant>,
    ) -> Result<Outcome> {
        let Round { plan, screen, objects, before, apart } = *self;
        let _stop = Stop(stop);
        let (view, deadline) = (cluster.view(), plan.patience + Deadline::BEYOND);
        let when = move || crashed.get().copied();
        let writer = |inside| {
            let tablets = &before.tablets;
            let write = move || users::write(view, deadline, objects, tablets, inside, stop, &when);
            plan.write_for.map(|_| scope.spawn(write))
        };
        let victims = writer(true);
        let others = if plan.victim_has_all { None } else { writer(false) };
        let reader = (!apart.is_empty())
            .then(|| scope.spawn(move || users::read(view, deadline, objects, apart, stop, &when)));
        let to_probe = users::to_probe(objects, &before.tablets);
        if victims.is_some() || reader.is_some() {
            screen.say(None, "clients are reading and writing");
            std::thread::sleep(plan.write_for.unwrap_or(Duration::from_secs(1)));
        }
        cluster.ensure_whole()?;

        let now = Instant::now();
        match plan.crash {
            Crash::Kill => cluster.kill_server(number),
            Crash::Stop => cluster.pause_server(number, true)?,
        }
        let _ = crashed.set(now);
        let how = match plan.crash {
            Crash::Kill => "is killed",
            Crash::Stop => "is stopped",
        };
        screen.say(Some(0.0), &format!("{} {how}", before.victim));
        let tell = move |at: f64, what: &str| screen.say(Some(at), what);
        let watch = scope.spawn(move || watch::watch(view, before, now, stop, &tell));
        let probes: Vec<_> = to_probe
            .into_iter()
            .map(|numbers| scope.spawn(move || users::probe(view, objects, &numbers, stop)))
            .collect();
        let mut restart_at = plan.restart_after.map(|after| now + after);
        while !probes.iter().all(ScopedJoinHandle::is_finished) && now.elapsed() < plan.patience {
            if restart_at.is_some_and(|at| Instant::now() >= at) {
                restart_at = None;
                cluster.start_server(number)?;
                screen.say(Some(now.elapsed().as_secs_f64()), "it is restarted");
            }
            std::thread::sleep(LOOK);
        }
        let came_back = probes.iter().all(ScopedJoinHandle::is_finished);
        if plan.crash == Crash::Stop {
            cluster.pause_server(number, false)?;
            screen.say(Some(now.elapsed().as_secs_f64()), "it continues (SIGCONT)");
        }
        if came_back && plan.write_for.is_some() {
            // The writers have noticed too, unless something is wrong.
            std::thread::sleep(Duration::from_millis(500));
        }
        stop.store(true, Ordering::Relaxed);
        let seen = joined(watch)??;
        if !came_back {
            // A client of the crashed server would wait for long.
            cluster.kill_all();
        }
        let probed = probes.into_iter().map(joined).collect::<Result<Vec<_>>>()?;
        let victims = victims.map(joined).transpose()?.transpose()?;
        let others = others.map(joined).transpose()?.transpose()?;
        let latencies = reader.map(joined).transpose()?.transpose()?;
        Ok(Outcome { crashed: now, probed, victims, others, latencies, seen })
    }
}

impl Outcome {
    fn report(self, plan: &Plan, before: &Before) -> Report {
        let Outcome { crashed, probed, victims, others, latencies, seen } = self;
        let since = |at: Instant| at.saturating_duration_since(crashed).as_secs_f64();
        let came_back = !probed.is_empty() && probed.iter().all(|it| it.all);
        let last = probed.iter().filter_map(|it| it.last).max();
        let written = || victims.iter().chain(&others);
        Report {
            crash: plan.crash,
            victim: before.victim,
            objects: plan.objects,
            bytes: 0,
            victim_objects: 0,
            load_s: 0.0,
            detected_s: seen.detected.map(since),
            first_readable_s: probed.iter().filter_map(|it| it.first).min().map(since),
            last_readable_s: last.filter(|_| came_back).map(since),
            written_again_s: victims.as_ref().and_then(|it| it.again).map(since),
            others_pause_s: others.as_ref().map(|it| it.longest_pause.as_secs_f64()),
            writes_acknowledged: written().map(|it| it.acknowledged).sum(),
            writes_failed: written().map(|it| it.failed).sum(),
            failures: written().flat_map(|it| it.failures.clone()).collect(),
            false_verdicts: seen.false_verdicts,
            reads: latencies.map(|it| Reads {
                before_us: it.before.value_at_quantile(0.99) as f64 / 1e3,
                during_us: it.during.value_at_quantile(0.99) as f64 / 1e3,
                reads_during: it.during.len(),
                failed: it.failed,
            }),
            events: seen.events,
            came_back,
            found: None,
        }
    }
}
