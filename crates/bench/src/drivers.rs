//! Clients in other languages, judged while servers are killed: `thunderhead-bench drivers`.
//!
//! Each language has a *driver*, a program that performs requests with its client
//! (`docs/testing/drivers.md`). This module starts a cluster of processes, sends requests to each
//! driver, kills one server after the other, and judges the answers:
//!
//! - Counters: many increments, of which each is done once. A counter must be the sum of the
//!   increments that were done, plus some of those whose outcome is unknown.
//! - A history of operations on few keys, for the judge of [`history`](crate::history).

mod client;

use crate::history::{Performer, User};
use crate::program::Program;
use anyhow::{Context as _, Result, ensure};
use client::DriverClient;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thunderhead_client::control::ServerState;
use thunderhead_client::{Action, Answer, Client, Condition, Error, Number, Operation, TableId};
use thunderhead_load::crash::members::{Cluster, Cores, Setup};
use thunderhead_load::output::progress;
use thunderhead_load::table::Table;
use thunderhead_simulator::linearizability::{self, Outcome};
use thunderhead_wire::Generation;

/// The servers of the cluster: with two replicas, one of them may be away.
const SERVERS: u32 = 3;

/// The keys of the history. They are few, so that clients conflict.
const KEYS: u64 = 40;

/// The counters.
const COUNTERS: u64 = 10;

/// The names of the tables.
const COUNTED: &str = "counters";
const JUDGED: &str = "history";

/// The options of the run.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The command line of a driver. Give one for each language.
    #[arg(long = "driver", required = true, value_name = "COMMAND")]
    drivers: Vec<String>,
    /// The number of increments by each driver and mode.
    #[arg(long, default_value_t = 100_000)]
    increments: u64,
    /// The number of operations in the history of each driver and mode.
    #[arg(long, default_value_t = 20_000)]
    operations: u64,
    /// The number of kills during each driver and mode, at least. Requests go on until then.
    #[arg(long, default_value_t = u64::from(SERVERS))]
    kills: u64,
    /// The number of clients in each driver: 1 to 64.
    #[arg(long, default_value_t = 8)]
    clients: u64,
    /// The time between two kills of a server, in seconds.
    #[arg(long, default_value_t = 3.0)]
    kill_every: f64,
    /// The deadline of an operation, in seconds.
    #[arg(long, default_value_t = 30.0)]
    deadline: f64,
    /// Cancel one of this many operations, in the modes that can cancel; 0: none.
    #[arg(long, default_value_t = 100)]
    cancel_every: u64,
    /// The seed of the clients' choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The results of a driver in one mode.
#[derive(Debug, Serialize)]
struct Report {
    language: String,
    mode: String,
    /// Increments that were done, and those whose outcome is unknown.
    done: u64,
    unknown: u64,
    /// Increments that were reported as not done, and were begun anew.
    not_done: u64,
    /// Operations that were cancelled. Their outcome may be any.
    cancelled: u64,
    /// The sum of the counters.
    sum: u64,
    /// Answered operations in the history.
    answered: u64,
    /// The longest operation, in seconds.
    longest_s: f64,
    /// The servers that were killed meanwhile.
    kills: u64,
    /// Resident bytes of the driver when half of the increments were begun, and at the end.
    half_bytes: u64,
    end_bytes: u64,
    /// The violation, if there is one.
    violation: Option<String>,
}

/// Runs the drivers. Returns false if one of them breaks a promise.
///
/// # Errors
/// When they cannot be run, or one of them does not follow the protocol.
pub fn run(arguments: &Arguments) -> Result<bool> {
    ensure!((1..=64).contains(&arguments.clients), "--clients must be 1 to 64");
    for (flag, value) in
        [("--kill-every", arguments.kill_every), ("--deadline", arguments.deadline)]
    {
        ensure!((0.1..=86_400.0).contains(&value), "{flag} must be 0.1 to 86400");
    }
    // The replicas of a killed server are made again elsewhere, beside the replicas there.
    let setup = Setup {
        program: crate::product::program()?,
        directory: None,
        keep: false,
        servers: SERVERS,
        replicas: 2,
        memory_bytes: 128 << 20,
        disk_bytes: 1 << 30,
        cores: Cores::Any,
        polling: "never",
        coordinator: Vec::new(),
        server: Vec::new(),
    };
    progress(&format!("starting a cluster of {SERVERS} servers"));
    let mut cluster = Cluster::start(&setup)?;
    cluster.wait_up(Generation(0))?;
    let deadline = Duration::from_secs_f64(arguments.deadline);
    let mut client = cluster.client(deadline)?;
    let mut reports = Vec::new();
    for command in &arguments.drivers {
        let driver = Arc::new(Program::start(command)?);
        for mode in driver.modes.clone() {
            let mut tables = Vec::new();
            for name in [COUNTED, JUDGED] {
                tables.push(client.create_table(name, SERVERS).context("make a table")?);
            }
            let report = drive(arguments, &mut cluster, &driver, (&mode, tables[0], tables[1]))
                .map_err(|error| driver.blame(error))?;
            progress(&match &report.violation {
                None => format!("{} {mode}: every promise is kept", driver.language),
                Some(violation) => format!("{} {mode}: {violation}", driver.language),
            });
            reports.push(report);
            for name in [COUNTED, JUDGED] {
                client.drop_table(name).context("drop a table")?;
            }
        }
        driver.end()?;
    }
    let columns = [
        "client",
        "increments done",
        "unknown",
        "cancelled",
        "sum",
        "history",
        "longest",
        "kills",
        "memory",
        "verdict",
    ];
    let mut shown = Table::new("Clients while servers are killed", &columns);
    for it in &reports {
        let verdict = it.violation.clone().unwrap_or_else(|| "kept".to_owned());
        shown.row(&[
            format!("{} {}", it.language, it.mode),
            it.done.to_string(),
            it.unknown.to_string(),
            it.cancelled.to_string(),
            it.sum.to_string(),
            it.answered.to_string(),
            format!("{:.2} s", it.longest_s),
            it.kills.to_string(),
            format!("{} ► {} MiB", it.half_bytes >> 20, it.end_bytes >> 20),
            verdict,
        ]);
    }
    thunderhead_load::output::show(arguments.json, &shown, &reports)?;
    Ok(reports.iter().all(|it| it.violation.is_none()))
}

/// A client in a driver, as a user's performer.
struct Remote<'a>(&'a DriverClient);

impl Performer for Remote<'_> {
    fn perform(&mut self, operation: Operation) -> Result<Result<Answer, Error>> {
        self.0.perform(&operation)
    }
}

/// The work of all clients of a driver.
struct Work {
    increments_left: AtomicU64,
    operations_left: AtomicU64,
    /// Whether as many servers were killed as was asked for.
    has_kills: AtomicBool,
}

impl Work {
    /// Whether there is one more to do. There is until enough servers were killed.
    fn take_one(&self, left: &AtomicU64) -> bool {
        let fewer = |left: u64| left.checked_sub(1);
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok()
            || !self.has_kills.load(Ordering::Relaxed)
    }
}

/// The counts of all clients' increments.
#[derive(Default)]
struct Counts {
    done: AtomicU64,
    unknown: AtomicU64,
    not_done: AtomicU64,
    /// Of all operations, also those of the history.
    cancelled: AtomicU64,
}

/// Runs one driver in one mode.
fn drive(
    arguments: &Arguments,
    cluster: &mut Cluster,
    driver: &Arc<Program>,
    (mode, counted, judged): (&str, TableId, TableId),
) -> Result<Report> {
    let deadline = Duration::from_secs_f64(arguments.deadline);
    let milliseconds = deadline.as_millis();
    let url = format!("thunderhead://{}/?deadline={milliseconds}ms", cluster.coordinator());
    let open = |number: u64, table: &str| {
        let options = (deadline, arguments.cancel_every);
        DriverClient::open(driver, number, (&url, mode), table, options)
    };
    let work = Work {
        increments_left: arguments.increments.into(),
        operations_left: arguments.operations.into(),
        has_kills: (arguments.kills == 0).into(),
    };
    let counts = Counts::default();
    let began = Instant::now();
    let (mut kills, mut histories, mut longest) = (0, Vec::new(), Duration::ZERO);
    let mut half_bytes = 0;
    std::thread::scope(|scope| -> Result<()> {
        let (open, counts, work) = (&open, &counts, &work);
        let mut threads = Vec::new();
        for number in 0..arguments.clients {
            threads.push(scope.spawn(move || -> Result<_> {
                let client = open(2 * number, COUNTED)?;
                let longest = count(&client, work, counts, counted)?;
                counts.cancelled.fetch_add(client.cancelled(), Ordering::Relaxed);
                client.close()?;
                Ok((Vec::new(), longest))
            }));
            threads.push(scope.spawn(move || -> Result<_> {
                let client = open(2 * number + 1, JUDGED)?;
                let remote = Box::new(Remote(&client));
                let seed = arguments.seed.wrapping_mul(1000).wrapping_add(number);
                let mut user = User::new(remote, (judged, KEYS), (seed, began));
                while work.take_one(&work.operations_left) {
                    user.act()?;
                }
                counts.cancelled.fetch_add(client.cancelled(), Ordering::Relaxed);
                client.close()?;
                Ok((user.history, user.longest))
            }));
        }
        let has_ended = || {
            if half_bytes == 0
                && work.increments_left.load(Ordering::Relaxed) <= arguments.increments / 2
            {
                half_bytes = driver.resident_bytes().unwrap_or(0);
            }
            threads.iter().all(|it| it.is_finished())
        };
        let killed = kill_by_turns(arguments, cluster, work, has_ended);
        // The clients also end if no server can be killed.
        work.has_kills.store(true, Ordering::Relaxed);
        for thread in threads {
            let joined = thread.join().unwrap_or_else(|_| anyhow::bail!("a thread panicked"));
            let (history, most) = joined?;
            histories.extend(history);
            longest = longest.max(most);
        }
        kills = killed?;
        Ok(())
    })?;
    let end_bytes = driver.resident_bytes()?;
    let mut direct = cluster.client(deadline)?;
    let mut sum = 0u64;
    for counter in 0..COUNTERS {
        let found = direct.get(counted, &counter.to_be_bytes()).context("read a counter")?;
        let value = found.map_or(Ok([0; 8]), |(_, value)| value.try_into());
        let value = value.map_err(|_| anyhow::anyhow!("a counter does not have 8 bytes"))?;
        sum += u64::from_le_bytes(value);
    }
    histories.extend(look_back(direct, judged, began)?);
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (done, unknown) = (load(&counts.done), load(&counts.unknown));
    let unanswered = histories.iter().filter(|it| it.outcome == Outcome::Unknown).count() as u64;
    let violation = if (done..=done + unknown).contains(&sum) {
        linearizability::check(&histories).err().map(|it| it.to_string())
    } else {
        Some(format!("{done} increments were done, {unknown} are unknown, and the sum is {sum}"))
    };
    Ok(Report {
        language: driver.language.clone(),
        mode: mode.to_owned(),
        done,
        unknown,
        not_done: load(&counts.not_done),
        cancelled: load(&counts.cancelled),
        sum,
        answered: histories.len() as u64 - unanswered,
        longest_s: longest.as_secs_f64(),
        kills,
        half_bytes,
        end_bytes,
        violation,
    })
}

/// Increments counters until none of the increments is left. Returns the longest time of one.
fn count(client: &DriverClient, work: &Work, counts: &Counts, table: TableId) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    let mut number = 0u64;
    while work.take_one(&work.increments_left) {
        number += 1;
        let key = (number % COUNTERS).to_be_bytes().to_vec();
        let action = Action::Increment(Number::Integer(1));
        let operation = Operation { table, key, condition: Condition::Always, action };
        let began = Instant::now();
        let result = client.perform(&operation)?;
        longest = longest.max(began.elapsed());
        let count = match result {
            Ok(Answer::Sum { .. }) => &counts.done,
            Ok(other) => anyhow::bail!("an increment was answered with {other:?}"),
            Err(error) if error.is_unknown() => &counts.unknown,
            Err(Error::TimedOut(_) | Error::Cancelled) => {
                // It was not done, so it is begun anew.
                work.increments_left.fetch_add(1, Ordering::Relaxed);
                &counts.not_done
            }
            Err(error) => return Err(error).context("an increment failed"),
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(longest)
}

/// Reads every key of the history once, by a client of its own.
fn look_back(
    client: Client,
    table: TableId,
    began: Instant,
) -> Result<Vec<linearizability::Operation<u64>>> {
    let mut last = User::new(Box::new(client), (table, KEYS), (0, began));
    last.look_back()?;
    Ok(last.history)
}

/// Kills one server after the other, and starts it again, until the work has ended. Returns the
/// number of kills.
fn kill_by_turns(
    arguments: &Arguments,
    cluster: &mut Cluster,
    work: &Work,
    mut has_ended: impl FnMut() -> bool,
) -> Result<u64> {
    const LOOK: Duration = Duration::from_millis(20);
    let every = Duration::from_secs_f64(arguments.kill_every);
    let mut kills = 0;
    while !has_ended() {
        let next = Instant::now() + every;
        while Instant::now() < next && !has_ended() {
            std::thread::sleep(LOOK);
        }
        if has_ended() {
            break;
        }
        let victim = (kills % u64::from(SERVERS)) as u32;
        cluster.kill_server(victim);
        kills += 1;
        // The others must have noticed before the next one is killed. They have when the server is
        // up again.
        std::thread::sleep(every / 4);
        cluster.start_server(victim)?;
        cluster.wait_up(Generation(0))?;
        wait_for_replicas(cluster)?;
        work.has_kills.store(kills >= arguments.kills, Ordering::Relaxed);
    }
    Ok(kills)
}

/// Waits until each segment has all its replicas: until then, another kill could lose data, as two
/// replicas bear one failure.
fn wait_for_replicas(cluster: &Cluster) -> Result<()> {
    const LOOK: Duration = Duration::from_millis(50);
    let end = Instant::now() + Duration::from_secs(120);
    let mut client = cluster.client(Duration::from_secs(10))?;
    while !asks_if_complete(&mut client) {
        ensure!(Instant::now() < end, "replicas are still missing two minutes after a kill");
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Whether no recovery is in progress, and no shard that is up misses replicas of a segment.
fn asks_if_complete(client: &mut Client) -> bool {
    let Ok(status) = client.status() else { return false };
    let up = status.servers.servers.iter().filter(|server| server.state == ServerState::Up);
    let mut shards = up.flat_map(|server| &server.shards);
    status.recoveries.is_empty()
        && shards.all(|shard| {
            client.shard_status(shard.address).is_ok_and(|status| status.at_risk.is_none())
        })
}
