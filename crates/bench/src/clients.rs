//! The price of each language's client over the core in Rust, and the client beside the usual Redis
//! client of its language: `thunderhead-bench clients`.
//!
//! Each language has a program that measures its clients (`docs/testing/costs.md`). This module
//! starts a store and a Redis server, measures the core in this process, and asks each program for
//! its rounds. In each turn all of them do one round of each task, one after the other, so that
//! other load on the machine affects all alike.

pub mod core;
pub mod report;
pub mod task;

use self::core::{Core, VALUE_BYTES};
use crate::peers::store::{Kind, Store, Wanted};
use crate::program::Program;
use crate::rpc::floors::CLIENT_CORE;
use crate::rpc::price::SETTINGS;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use report::{Measurement, Rounds, Row, Subject};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use task::{Language, Mode};
use thunderhead_load::channel::Channel;
use thunderhead_load::machine::{self, pinned};
use thunderhead_load::output::progress;
use thunderhead_load::plot;
use thunderhead_runtime::polling::Polling;

/// The options of the run.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The command line of a program. Give one for each language.
    #[arg(long = "program", required = true, value_name = "COMMAND")]
    programs: Vec<String>,
    /// The number of rounds of each measurement: 1 to 999.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// The number of operations in a round of one after the other; rounds of many together have
    /// five times as many. 100 to 10000000.
    #[arg(long, default_value_t = 4000)]
    operations: u64,
    /// How clients wait whose calls wait: always, adaptive or never. The core has the same setting.
    #[arg(long, default_value = "adaptive", value_parser = WAYS)]
    polling: String,
    /// How asynchronous clients wait. A thread that spins takes the core from the program's own.
    #[arg(long, default_value = "never", value_parser = WAYS)]
    async_polling: String,
    /// Let clients use all cores. Otherwise they share one, and the servers share another.
    #[arg(long)]
    any_core: bool,
    /// End with status 1 if a goal is missed, or a client is slower than the Redis client.
    #[arg(long)]
    require: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw the figures into this file.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

const WAYS: [&str; 3] = ["always", "adaptive", "never"];

/// The table of the store.
const TABLE: &str = "bench";

/// The memory of the store. It holds few objects, but each write takes some until it is cleaned.
const MEMORY_BYTES: u64 = 256 << 20;

/// How long a program may take for a request.
const PATIENCE: Duration = Duration::from_secs(300);

/// The rounds of a program before the first that counts: compilers at run time need them.
const WARM_UP: u64 = 5;

/// The results of a run.
#[derive(Debug, Serialize)]
struct Report {
    store: String,
    /// The server of the Redis clients, if there is one.
    redis: Option<String>,
    rounds: usize,
    operations: u64,
    polling: String,
    async_polling: String,
    any_core: bool,
    rows: Vec<Row>,
    /// The reasons for missing figures, and warnings of programs.
    notes: Vec<String>,
}

impl Arguments {
    /// Refuses invalid options before any measurement.
    fn check(&self) -> Result<()> {
        ensure!((1..=999).contains(&self.rounds), "--rounds must be 1 to 999");
        ensure!(
            (100..=10_000_000).contains(&self.operations),
            "--operations must be 100 to 10000000"
        );
        plot::check(self.plot.as_deref())
    }

    fn polling_of(&self, mode: Mode) -> &str {
        match mode {
            Mode::Sync => &self.polling,
            Mode::Async => &self.async_polling,
        }
    }
}

/// A program and the modes of its language.
struct Member {
    language: Language,
    modes: Vec<Mode>,
    program: Program,
}

impl Member {
    fn start(command: &str) -> Result<Member> {
        let program = Program::start(command)?;
        let language = Language::of_name(&program.language);
        let language = language
            .with_context(|| format!("there is no client in {:?}: {command}", program.language))?;
        let modes: Option<Vec<Mode>> = program.modes.iter().map(|it| Mode::of_name(it)).collect();
        let modes = modes.with_context(|| format!("an unknown mode of {command}"))?;
        Ok(Member { language, modes, program })
    }
}

/// A reply of a program.
#[derive(Debug, PartialEq)]
enum Reply {
    /// The nanoseconds of an operation in each round.
    Rounds(Vec<f64>),
    /// The program cannot measure this, for example because a package is not installed.
    Missing(String),
}

/// Reads a reply for this many rounds.
fn reply_of(reply: &Value, rounds: u64) -> Result<Reply> {
    if let Some(reason) = reply["missing"].as_str() {
        return Ok(Reply::Missing(reason.to_owned()));
    }
    if let Some(error) = reply["error"].as_str() {
        bail!("{error}");
    }
    let ns = reply["ns"].as_array().context("the reply has no rounds")?;
    let ns: Option<Vec<f64>> = ns.iter().map(Value::as_f64).collect();
    let ns = ns.filter(|ns| ns.len() as u64 == rounds && ns.iter().all(|it| *it > 0.0));
    Ok(Reply::Rounds(ns.with_context(|| format!("the reply has wrong rounds: {reply}"))?))
}

/// All that does rounds.
struct Runner<'a> {
    arguments: &'a Arguments,
    members: Vec<Member>,
    cores: BTreeMap<Subject, Core>,
    coordinator: SocketAddr,
    redis: Option<String>,
    notes: Vec<String>,
}

impl Runner<'_> {
    /// Measures everything.
    fn run(&mut self) -> Result<Rounds> {
        let languages = self.languages();
        let mut plan = report::plan(&languages);
        if self.redis.is_none() {
            plan.retain(|it| !matches!(it.subject, Subject::Redis(_)));
            self.notes.push(
                "No Redis server is installed (Debian's package redis-server), so no Redis client \
                 is measured."
                    .to_owned(),
            );
        }
        progress("warming up");
        let mut measured = Vec::new();
        for measurement in plan {
            if self.rounds(measurement, WARM_UP)?.is_some() {
                measured.push(measurement);
            }
        }
        let mut all = Rounds::new();
        for turn in 0..self.arguments.rounds {
            progress(&format!("turn {} of {}", turn + 1, self.arguments.rounds));
            for measurement in &measured {
                let rounds = self.rounds(*measurement, 1)?.context("a figure went missing")?;
                all.entry(*measurement).or_default().extend(rounds);
            }
            // Every second turn is in reverse, so that no client always follows the same one.
            measured.reverse();
        }
        Ok(all)
    }

    fn languages(&self) -> Vec<(Language, Vec<Mode>)> {
        let of = |member: &Member| (member.language, member.modes.clone());
        self.members.iter().map(of).collect()
    }

    /// Does rounds of one measurement. Returns `None`, and notes the reason, if it is missing.
    fn rounds(&mut self, measurement: Measurement, rounds: u64) -> Result<Option<Vec<f64>>> {
        let Measurement { task, mode, subject } = measurement;
        let count = task.count(self.arguments.operations);
        let (language, store, url) = match subject {
            Subject::Core { .. } => {
                let core = self.core(subject)?;
                let round = |_| core.round(mode, task, count);
                return (0..rounds).map(round).collect::<Result<_>>().map(Some);
            }
            Subject::Client(language) => {
                let polling = self.arguments.polling_of(mode);
                let url = format!("thunderhead://{}/?polling={polling}", self.coordinator);
                (language, "thunderhead", url)
            }
            Subject::Redis(language) => {
                (language, "redis", self.redis.clone().context("there is no Redis server")?)
            }
        };
        let request = json!({
            "mode": mode.name(), "store": store, "url": url, "table": TABLE,
            "work": task.work.name(), "width": task.width, "count": count, "rounds": rounds,
            "value_bytes": VALUE_BYTES,
        });
        let member = self.members.iter().find(|it| it.language == language);
        let program = &member.context("there is no such program")?.program;
        let reply = program.ask(request, PATIENCE).and_then(|it| reply_of(&it, rounds));
        let title = language.title(mode);
        match reply.map_err(|error| program.blame(error)) {
            Ok(Reply::Rounds(rounds)) => Ok(Some(rounds)),
            Ok(Reply::Missing(reason)) => {
                let note = format!("{title}: {reason}");
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
                Ok(None)
            }
            Err(error) => {
                Err(error.context(format!("measure {title}, {}, on {store}", task.title())))
            }
        }
    }

    /// Returns the core with this channel.
    fn core(&mut self, subject: Subject) -> Result<&mut Core> {
        if !self.cores.contains_key(&subject) {
            let channel = subject.channel();
            let setting = |mode| {
                // The runtime of Go always sleeps while it waits.
                let is_asleep = channel == Channel::Tcp;
                polling(if is_asleep { "never" } else { self.arguments.polling_of(mode) })
            };
            let settings = [setting(Mode::Sync)?, setting(Mode::Async)?];
            let core = Core::connect(self.coordinator, TABLE, channel, settings)?;
            self.cores.insert(subject, core);
        }
        self.cores.get_mut(&subject).context("it was inserted")
    }

    /// Ends the programs. Anything that they printed becomes a note.
    fn end(&mut self) {
        for member in self.members.drain(..) {
            if let Err(error) = member.program.end() {
                self.notes.push(format!("{error:#}"));
            }
        }
    }
}

fn polling(name: &str) -> Result<Polling> {
    let setting = SETTINGS.iter().find(|(it, _)| *it == name);
    Ok(setting.with_context(|| format!("there is no polling {name:?}"))?.1)
}

/// Runs the programs. Returns false if goals are required and one is missed.
///
/// # Errors
/// When they cannot be run, or one of them does not follow the protocol.
pub fn run(arguments: &Arguments) -> Result<bool> {
    arguments.check()?;
    ensure!(machine::cores() >= 2, "clients and servers need a core each, and there is one");
    let report = match arguments.any_core {
        true => measure(arguments)?,
        false => pinned(CLIENT_CORE, || measure(arguments))?,
    };
    if let Some(path) = &arguments.plot {
        plot::save(path, &report::draw(&report.rows))?;
    }
    let title = format!(
        "The clients of {} over its core, and beside Redis's clients of {}: medians of {} rounds, \
         values of {VALUE_BYTES} B",
        report.store,
        report.redis.as_deref().unwrap_or("no server"),
        report.rounds
    );
    thunderhead_load::output::show(
        arguments.json,
        &report::table_of(&title, &report.rows),
        &report,
    )?;
    if !arguments.json {
        report.notes.iter().for_each(|note| progress(note));
    }
    Ok(!arguments.require || report::are_met(&report.rows))
}

fn measure(arguments: &Arguments) -> Result<Report> {
    let store = Store::start(Kind::Thunderhead, Wanted::memory(MEMORY_BYTES).populated())?;
    let kind = [Kind::Valkey, Kind::Redis].into_iter().find(|it| it.program().is_some());
    let redis = kind.map(|kind| Store::start(kind, Wanted::memory(0))).transpose()?;
    let coordinator = store.to().and_then(|it| it.coordinator).context("a coordinator")?;
    let mut members: Vec<Member> = Vec::new();
    for command in &arguments.programs {
        let member = Member::start(command)?;
        if members.iter().any(|it| it.language == member.language) {
            return Err(anyhow!("two programs are for {}", member.language.name()));
        }
        members.push(member);
    }
    members.sort_by_key(|it| it.language);
    let mut runner = Runner {
        arguments,
        members,
        cores: BTreeMap::new(),
        coordinator,
        redis: redis.as_ref().map(|it| format!("redis://{}", it.tcp())),
        notes: Vec::new(),
    };
    let languages = runner.languages();
    let rounds = runner.run()?;
    runner.end();
    Ok(Report {
        store: Kind::Thunderhead.version()?,
        redis: kind.map(Kind::version).transpose()?,
        rounds: arguments.rounds,
        operations: arguments.operations,
        polling: arguments.polling.clone(),
        async_polling: arguments.async_polling.clone(),
        any_core: arguments.any_core,
        rows: report::rows(&languages, &rounds),
        notes: runner.notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_rounds_or_the_reason_why_there_are_none() {
        let ok = reply_of(&json!({ "id": 1, "ns": [1.5, 2] }), 2).unwrap();
        assert_eq!(ok, Reply::Rounds(vec![1.5, 2.0]));
        let missing = reply_of(&json!({ "missing": "install it" }), 2).unwrap();
        assert_eq!(missing, Reply::Missing("install it".to_owned()));
        for (reply, expected) in [
            (json!({ "error": "no such table" }), "no such table"),
            (json!({}), "no rounds"),
            (json!({ "ns": [1.5] }), "wrong rounds"),
            (json!({ "ns": [1.5, 0] }), "wrong rounds"),
            (json!({ "ns": [1.5, "2"] }), "wrong rounds"),
        ] {
            let error = reply_of(&reply, 2).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn each_way_to_wait_has_a_setting() {
        for way in WAYS {
            assert!(polling(way).is_ok());
        }
        assert!(polling("now").is_err());
    }
}
