//! Clients of a running cluster that record their requests, the answers and the times, and a judge
//! that decides whether the record could have come from a store that performs one operation at a
//! time: `thunderhead-bench history`. Faults come from outside: from scripts or people.
//!
//! There are few keys, so that clients conflict. Each update is requested once; if its outcome is
//! unknown, the judge allows for both. A client whose operation times out continues with the next
//! operation. At the end each key is read once more.

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thunderhead_client::{
    Action, Answer, Client, Condition, Error, Number, Operation, Options, Status, TableId, Version,
};
use thunderhead_load::output::progress;
use thunderhead_load::table::Table;
use thunderhead_runtime::Random;
use thunderhead_runtime::polling::Polling;
use thunderhead_simulator::linearizability::{
    self, Action as Judged, Condition as JudgedCondition, Operation as Seen, Outcome,
};

/// The options of the run.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The coordinators of the cluster (HOST:PORT).
    #[arg(long, value_delimiter = ',', required = true, value_name = "ADDR")]
    coordinators: Vec<String>,
    /// The duration of the run, in seconds.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// The number of clients: 1 to 64.
    #[arg(long, default_value_t = 4)]
    clients: u64,
    /// The number of keys that they share: 1 to 100000.
    #[arg(long, default_value_t = 100)]
    keys: u64,
    /// The deadline of an operation, in seconds.
    #[arg(long, default_value_t = 30.0)]
    patience: f64,
    /// The mean pause of a client between two operations, in milliseconds.
    #[arg(long, default_value_t = 2.0)]
    thinks: f64,
    /// The seed of the clients' choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The table, which is created; none of that name may exist.
    #[arg(long, default_value = "history")]
    table: String,
    /// Stop as soon as this file exists.
    #[arg(long, value_name = "PATH")]
    until: Option<std::path::PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The results of a run.
#[derive(Debug, Serialize)]
struct Report {
    /// Answered operations.
    answered: u64,
    /// Updates whose outcome is unknown.
    unknown: u64,
    /// Operations that timed out.
    timed_out: u64,
    /// The longest operation, in seconds.
    longest_s: f64,
    /// The violation in the history, if there is one.
    violation: Option<String>,
}

/// Performs operations for a user.
pub(crate) trait Performer: Send {
    /// Performs an operation. The outer error ends the run, the inner one belongs to the operation.
    fn perform(&mut self, operation: Operation) -> Result<Result<Answer, Error>>;
}

impl Performer for Client {
    fn perform(&mut self, operation: Operation) -> Result<Result<Answer, Error>> {
        Ok(self.all(vec![operation]).pop().unwrap_or(Err(Error::Incomprehensible)))
    }
}

/// One user.
pub(crate) struct User<'a> {
    performer: Box<dyn Performer + 'a>,
    table: TableId,
    random: Random,
    /// The number of keys that users share.
    keys: u64,
    began: Instant,
    pub(crate) history: Vec<Seen<u64>>,
    /// A version that it has seen.
    version: Version,
    pub(crate) timed_out: u64,
    pub(crate) longest: Duration,
}

fn judged(version: Version) -> linearizability::Version {
    linearizability::Version(version.0)
}

impl<'a> User<'a> {
    pub(crate) fn new(
        performer: Box<dyn Performer + 'a>,
        (table, keys): (TableId, u64),
        (seed, began): (u64, Instant),
    ) -> User<'a> {
        User {
            performer,
            table,
            random: Random::from_seed(seed),
            keys,
            began,
            history: Vec::new(),
            version: Version::NONE,
            timed_out: 0,
            longest: Duration::ZERO,
        }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn choose(&mut self) -> (Judged, Action, Condition) {
        let (its, condition) = match self.random.below(8) {
            0 => (JudgedCondition::Absent, Condition::Absent),
            1 => (JudgedCondition::Present, Condition::Present),
            2 => {
                let version = self.version;
                (JudgedCondition::VersionIs(judged(version)), Condition::VersionIs(version))
            }
            _ => (JudgedCondition::Always, Condition::Always),
        };
        match self.random.below(10) {
            0..4 => (Judged::Read, Action::Read, Condition::Always),
            4 => {
                let value = self.random.below(1 << 48) | linearizability::TEXT;
                let action = Action::Write(value.to_le_bytes().to_vec());
                (Judged::Write { value, condition: its }, action, condition)
            }
            5 => {
                let value = self.random.below(1 << 48);
                let action = Action::WriteNumber(Number::Integer(value as i64));
                (Judged::Write { value, condition: its }, action, condition)
            }
            6 => match condition {
                // A delete of an absent object changes nothing, so most languages do not offer it.
                Condition::Absent | Condition::VersionIs(Version::NONE) => {
                    let always = JudgedCondition::Always;
                    (Judged::Delete { condition: always }, Action::Delete, Condition::Always)
                }
                _ => (Judged::Delete { condition: its }, Action::Delete, condition),
            },
            _ => {
                let by = 1 + self.random.below(1000);
                let action = Action::Increment(Number::Integer(by as i64));
                (Judged::Increment { by }, action, Condition::Always)
            }
        }
    }

    fn ask(&mut self, key: u64, what: (Judged, Action, Condition)) -> Result<()> {
        let (action, asked, condition) = what;
        let called = self.now();
        let name = key.to_be_bytes().to_vec();
        let operation = Operation { table: self.table, key: name, condition, action: asked };
        let began = Instant::now();
        let result = self.performer.perform(operation)?;
        self.longest = self.longest.max(began.elapsed());
        let answered = self.now();
        let outcome = match (result, action) {
            (Ok(Answer::Found { version, value }), _) => {
                self.version = version;
                let value: Option<[u8; 8]> = value.try_into().ok();
                let value =
                    value.context("a value that no client wrote: it does not have 8 bytes")?;
                Outcome::Found(judged(version), u64::from_le_bytes(value))
            }
            (Ok(Answer::Absent), _) => Outcome::Absent,
            (Ok(Answer::Written(version)), Judged::Write { value, .. }) => {
                Outcome::Done(judged(version), value)
            }
            (Ok(Answer::Deleted(version)), _) => Outcome::Deleted(judged(version)),
            (Ok(Answer::Sum { version, number: Number::Integer(sum) }), _) => {
                Outcome::Done(judged(version), sum as u64)
            }
            (Ok(_), _) => anyhow::bail!("an answer that does not fit the request"),
            (Err(Error::ConditionFailed { version } | Error::NotANumber { version }), _) => {
                self.version = version;
                Outcome::Refused(judged(version))
            }
            (Err(Error::Unknown(_) | Error::Incomprehensible), _) => Outcome::Unknown,
            // Nothing was done, so the judge must not need the operation.
            (Err(Error::TimedOut(_) | Error::Cancelled), _) => {
                self.timed_out += 1;
                return Ok(());
            }
            (Err(error), _) => return Err(error.into()),
        };
        self.history.push(Seen { key, called, answered, action, outcome });
        Ok(())
    }

    /// Performs one drawn operation on a drawn key.
    pub(crate) fn act(&mut self) -> Result<()> {
        let key = self.random.below(self.keys);
        let what = self.choose();
        self.ask(key, what)
    }

    /// Reads every key once.
    pub(crate) fn look_back(&mut self) -> Result<()> {
        (0..self.keys)
            .try_for_each(|key| self.ask(key, (Judged::Read, Action::Read, Condition::Always)))
    }

    fn work(&mut self, arguments: &Arguments, stop: &AtomicBool) -> Result<()> {
        let end = Duration::from_secs_f64(arguments.seconds);
        while self.began.elapsed() < end && !stop.load(Ordering::Relaxed) {
            self.act()?;
            let pause = self.random.exponential(arguments.thinks * 1e6);
            std::thread::sleep(Duration::from_nanos(pause as u64));
        }
        Ok(())
    }
}

fn client(arguments: &Arguments, coordinators: &[SocketAddr]) -> Result<Client> {
    let deadline = Some(Duration::from_secs_f64(arguments.patience));
    let options = Options { polling: Polling::Never, ..Options::new(coordinators) };
    Client::connect(&options.deadline(deadline)).context("reach the cluster")
}

/// Runs the clients. Returns false if the history is not one of a store that performs one operation
/// at a time.
///
/// # Errors
/// When it cannot be run.
pub fn run(arguments: &Arguments) -> Result<bool> {
    ensure!((1..=64).contains(&arguments.clients), "--clients must be 1 to 64");
    ensure!((1..=100_000).contains(&arguments.keys), "--keys must be 1 to 100000");
    for (flag, value) in [
        ("--seconds", arguments.seconds),
        ("--patience", arguments.patience),
        ("--thinks", arguments.thinks + 0.1),
    ] {
        ensure!((0.1..=86_400.0).contains(&value), "{flag} must be 0.1 to 86400");
    }
    let mut coordinators: Vec<SocketAddr> = Vec::new();
    for name in &arguments.coordinators {
        let found = name.to_socket_addrs().with_context(|| format!("find {name}"))?;
        coordinators.extend(found);
    }
    let mut first = client(arguments, &coordinators)?;
    let shards: usize = first.status()?.servers.servers.iter().map(|it| it.shards.len()).sum();
    let span = u32::try_from(shards.max(1)).unwrap_or(u32::MAX);
    let table = match first.create_table(&arguments.table, span) {
        Err(Error::Refused(Status::TableExists)) => {
            anyhow::bail!("there is already a table {}; choose another --table", arguments.table)
        }
        made => made.context("make the table")?,
    };
    let report = report(arguments, &coordinators, table)?;
    let is_right = report.violation.is_none();
    let columns = ["answered", "unknown", "not in time", "longest"];
    let mut shown = Table::new("The clients' operations", &columns);
    shown.row(&[
        report.answered.to_string(),
        report.unknown.to_string(),
        report.timed_out.to_string(),
        format!("{:.2} s", report.longest_s),
    ]);
    thunderhead_load::output::show(arguments.json, &shown, &report)?;
    progress(match &report.violation {
        None => "the history is one of a store that performs one operation at a time",
        Some(violation) => violation,
    });
    Ok(is_right)
}

fn report(arguments: &Arguments, coordinators: &[SocketAddr], table: TableId) -> Result<Report> {
    let (began, stop) = (Instant::now(), &AtomicBool::new(false));
    let user = |number: u64| -> Result<User<'_>> {
        let performer = Box::new(client(arguments, coordinators)?);
        let seed = arguments.seed.wrapping_mul(1000).wrapping_add(number);
        Ok(User::new(performer, (table, arguments.keys), (seed, began)))
    };
    let users = std::thread::scope(|scope| {
        let one = |number| {
            scope.spawn(move || {
                let mut user = user(number)?;
                user.work(arguments, stop)?;
                Ok((user.history, user.timed_out, user.longest))
            })
        };
        let threads: Vec<_> = (0..arguments.clients).map(one).collect();
        while !threads.iter().all(|it| it.is_finished()) {
            if arguments.until.as_ref().is_some_and(|it| it.exists()) {
                stop.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let joined = threads.into_iter().map(|it| match it.join() {
            Ok(outcome) => outcome,
            Err(_) => Err(anyhow::anyhow!("a client panicked")),
        });
        joined.collect::<Result<Vec<_>>>()
    })?;
    let mut last = user(arguments.clients)?;
    last.look_back()?;
    let (mut history, mut timed_out, mut longest) = (last.history, last.timed_out, last.longest);
    for (seen, failed, most) in users {
        history.extend(seen);
        timed_out += failed;
        longest = longest.max(most);
    }
    let unknown = history.iter().filter(|it| it.outcome == Outcome::Unknown).count() as u64;
    let violation = linearizability::check(&history).err();
    Ok(Report {
        answered: history.len() as u64 - unknown,
        unknown,
        timed_out,
        longest_s: longest.as_secs_f64(),
        violation: violation.map(|it| it.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use thunderhead_server::{LocalCluster, LocalOptions};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn the_history_of_a_clusters_clients_is_judged() {
        let name = format!("thunderhead-bench-history-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let local = LocalCluster::start(&LocalOptions::small(directory.clone())).unwrap();
        let at = local.coordinator().to_string();
        let line = ["history", "--coordinators", &at, "--seconds", "0.3", "--keys", "5"];
        let line = line.into_iter().chain(["--thinks", "0.2"]);
        let Line { arguments } = Line::try_parse_from(line).unwrap();
        let coordinators = [local.coordinator()];
        let mut client = client(&arguments, &coordinators).unwrap();
        let table = client.create_table("t", 1).unwrap();
        let report = report(&arguments, &coordinators, table).unwrap();
        assert_eq!(report.violation, None);
        assert!(report.answered > 5 && report.unknown == 0, "{report:?}");
        local.leave();
        let _ = local.join();
        std::fs::remove_dir_all(directory).unwrap();
    }
}
