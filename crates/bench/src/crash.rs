//! A cluster of processes that loses a server: what `thunderhead demo crash` shows and
//! `bench evaluate recovery` measures.
//!
//! ```text
//!  start   a coordinator and servers, child processes on loopback
//!  load    objects, each with a stamp of its writer
//!  write   at full speed: the objects of the server that goes, and those of the others
//!  crash   SIGKILL or SIGSTOP                                          0 s
//!  watch   the coordinator's status: found dead, recovered, by whom    …
//!  probe   objects of the server that is gone, until the last can be read
//!  check   every object: what was acknowledged is there
//! ```
//!
//! Everything is seen from outside, by clients: nothing here knows how a recovery works.

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

/// How long clients wait for an answer.
pub(crate) struct Deadline;

impl Deadline {
    /// Where nothing is wrong.
    const OPERATION: Duration = Duration::from_secs(20);
    /// Of who tries to read, and tries again.
    const OF_PROBE: Duration = Duration::from_secs(5);
    /// Beyond the patience that everybody has while a server is gone.
    const BEYOND: Duration = Duration::from_secs(5);
    /// Of who looks at the cluster all the time.
    const SHORT: Duration = Duration::from_millis(300);
}

/// How often it is looked at what others do.
const LOOK: Duration = Duration::from_millis(2);

/// Where people are told what goes on.
pub trait Screen: Sync {
    /// Something has happened, so many seconds after the crash if that is what counts.
    fn say(&self, at: Option<f64>, what: &str);

    /// So many objects of so many bytes are loaded or checked, of all.
    fn progress(&self, what: &str, done: u64, of: u64, value_bytes: usize);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

impl Screen for Quiet {
    fn say(&self, _: Option<f64>, _: &str) {}

    fn progress(&self, _: &str, _: u64, _: u64, _: usize) {}
}

/// How the server goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Crash {
    /// With SIGKILL.
    Kill,
    /// With SIGSTOP; when all is there again it goes on, and thinks that nothing has happened.
    Stop,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The binary.
    pub program: PathBuf,
    /// Where the directory for everything is made; where temporary files are if nothing is said.
    pub directory: Option<PathBuf>,
    /// What is there at the end stays there.
    pub keep: bool,
    /// Servers, at least three.
    pub servers: u32,
    /// Replicas of each segment.
    pub replicas: u32,
    /// Objects.
    pub objects: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// The server that goes has all objects, not its share.
    pub victim_has_all: bool,
    /// How it goes.
    pub crash: Crash,
    /// It is started again so long afterwards.
    pub restart_after: Option<Duration>,
    /// How long everything may take to come back.
    pub patience: Duration,
    /// How long there are writes before the crash, and reads; none: there are no writes.
    pub write_for: Option<Duration>,
    /// One reads objects of a server that stays, which has a core apart with him.
    pub read_apart: bool,
}

impl Plan {
    /// A gigabyte of objects of a kilobyte on five servers, two replicas.
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

    /// Bytes of all objects in logs.
    fn bytes(&self) -> u64 {
        self.objects * (self.value_bytes as u64 + 80)
    }

    /// Memory of a server: it may come to have everything.
    fn memory_bytes(&self) -> u64 {
        let share = if self.victim_has_all { 1.0 } else { 0.6 };
        // What is written again and again needs room to be cleaned.
        (self.bytes() as f64 * share * 1.6) as u64 + self.objects * 16 + (256 << 20)
    }

    /// What a backup keeps in memory until it is on the disk, about.
    fn disk_pool_bytes(&self) -> u64 {
        128 << 20
    }

    /// The cluster that it takes.
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
            // Replicas of the dead server's log are there beside those of who rebuilds it.
            disk_bytes: memory_bytes * u64::from(self.replicas) + (256 << 20),
            cores: if self.read_apart { Cores::FirstApart } else { Cores::Any },
            // There are more processes than cores: who spins takes them from who works.
            polling: "never",
            coordinator: Vec::new(),
            server: Vec::new(),
        }
    }
}

/// How long reads took, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Reads {
    /// 99 % of those before the crash.
    pub before_us: f64,
    /// 99 % of those from the crash until everything was there again.
    pub during_us: f64,
    /// How many there were meanwhile.
    pub reads_during: u64,
    /// Reads that failed.
    pub failed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How the server went.
    pub crash: Crash,
    /// Who.
    pub victim: ServerId,
    /// Objects in all.
    pub objects: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Of these, objects that the server had.
    pub victim_objects: u64,
    /// How long loading took, in seconds.
    pub load_s: f64,
    /// From the crash: until the cluster said that the server is gone.
    pub detected_s: Option<f64>,
    /// Until the first of its objects could be read.
    pub first_readable_s: Option<f64>,
    /// Until the last could.
    pub last_readable_s: Option<f64>,
    /// Until its objects were written again.
    pub written_again_s: Option<f64>,
    /// The longest that no write of the others' objects was answered.
    pub others_pause_s: Option<f64>,
    /// Writes of all writers, before and after.
    pub writes_acknowledged: u64,
    /// Writes that failed, or of which nobody knows.
    pub writes_failed: u64,
    /// Why some did.
    pub failures: Vec<String>,
    /// Servers that were taken for dead though they were not.
    pub false_verdicts: Vec<String>,
    /// Reads of what the others have.
    pub reads: Option<Reads>,
    /// What the cluster said, when.
    pub events: Vec<Event>,
    /// Everything could be read again in time.
    pub came_back: bool,
    /// What was found in the end; nothing where it did not come back.
    pub found: Option<Found>,
}

impl Report {
    /// Whether everything that was promised was kept.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let found = self.found.as_ref();
        self.came_back && found.is_some_and(|it| it.lost == 0 && it.wrong == 0)
    }
}

const TABLE: &str = "demo";

/// Who goes, and what there is before.
fn before(cluster: &Cluster, status: &ClusterStatus, plan: &Plan) -> Result<(u32, Before)> {
    let tablets: Vec<TabletInfo> =
        status.map.tables.iter().flat_map(|it| &it.tablets).copied().collect();
    let servers = &status.servers.servers;
    let of = |server: &ServerInfo| -> Vec<TabletInfo> {
        let is_its = |it: &&TabletInfo| server.shards.iter().any(|own| own.master == it.master);
        tablets.iter().filter(is_its).copied().collect()
    };
    // The first one has a core apart, where that matters: another goes.
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

/// What the server has that has a core apart.
fn apart(cluster: &Cluster, status: &ClusterStatus) -> Vec<TabletInfo> {
    let first = status.servers.servers.iter().find(|it| cluster.number_of(it).ok() == Some(0));
    let tablets = status.map.tables.iter().flat_map(|it| &it.tablets);
    let is_its = |tablet: &&TabletInfo| {
        first.is_some_and(|it| it.shards.iter().any(|own| own.master == tablet.master))
    };
    tablets.filter(is_its).copied().collect()
}

/// Does it.
///
/// # Errors
/// When it cannot be tried. That something does not come back is in the report.
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

/// From the writes before the crash until everything is there again.
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
            screen.say(None, "clients are at work");
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
                screen.say(Some(now.elapsed().as_secs_f64()), "it is started again");
            }
            std::thread::sleep(LOOK);
        }
        let came_back = probes.iter().all(ScopedJoinHandle::is_finished);
        if plan.crash == Crash::Stop {
            cluster.pause_server(number, false)?;
            screen.say(Some(now.elapsed().as_secs_f64()), "it goes on as if nothing had happened");
        }
        if came_back && plan.write_for.is_some() {
            // Those who write have seen it too, unless something is wrong.
            std::thread::sleep(Duration::from_millis(500));
        }
        stop.store(true, Ordering::Relaxed);
        let seen = joined(watch)??;
        if !came_back {
            // Who waits for the dead server would wait for long.
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
