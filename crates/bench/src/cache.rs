//! `thunderhead memcached` beside memcached, as caches: the papers' Tables 3 and 4, and the misses
//! of the eviction.
//!
//! Both stores get the same memory (`-m`) and one core. The client is on the other core. It sends
//! requests in batches over several connections, so that the store is always busy.
//!
//! | part | content |
//! | --- | --- |
//! | [`memory`] | objects for each MB of memory, writes, and the processor time of cleaning |
//! | [`misses`] | the share of reads that miss, beside simulated LRU and S3-FIFO |
//!
//! [`server`] starts the stores and speaks to them. [`traces`] draws requests, and [`simulators`]
//! has the simulated caches.

pub mod memory;
pub mod misses;
pub mod server;
pub mod simulators;
pub mod traces;

use crate::peers::process::program;
use crate::peers::report::{self, Report};
use crate::peers::store::Kind;
use crate::peers::{machine_is, today};
use crate::rpc::floors::CLIENT_CORE;
use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;
use thunderhead_load::machine::{self, pinned};

/// The measurement to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The parts: memory, misses. The default is both.
    #[arg(value_parser = ["memory", "misses"])]
    parts: Vec<String>,
    /// Megabytes of each store in the part memory: 64 to 65536.
    #[arg(long, default_value_t = 256)]
    memory: u64,
    /// Megabytes of each store in the part misses: 8 to 65536.
    #[arg(long, default_value_t = 32)]
    small: u64,
    /// Seconds of writing that are measured, once memory is full.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Runs of each store in the part memory, in turn; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Smaller and shorter: shows whether everything works, not how good it is.
    #[arg(long)]
    quick: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Also write the results of both parts into this page, between the marks `measured: begin` and
    /// `measured: end`, and the figures beside it.
    #[arg(long, value_name = "FILE.md")]
    write: Option<PathBuf>,
}

/// The amounts of a run.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Megabytes of each store in the part memory.
    pub memory: u64,
    /// Megabytes of each store in the part misses.
    pub small: u64,
    /// Seconds of writing that are measured.
    pub seconds: u64,
    /// Runs of each store.
    pub rounds: usize,
    /// Requests of a trace, for each object that the store holds.
    pub requests: u64,
}

/// Measures and prints the parts. Returns false if a row falls short.
///
/// # Errors
/// When memcached is not installed, or a measurement fails.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let wants =
        |part: &str| arguments.parts.is_empty() || arguments.parts.iter().any(|it| it == part);
    let (memory, misses) = (wants("memory"), wants("misses"));
    ensure!((64..=65_536).contains(&arguments.memory), "--memory must be 64 to 65536");
    ensure!((8..=65_536).contains(&arguments.small), "--small must be 8 to 65536");
    ensure!((1..=1000).contains(&arguments.rounds), "--rounds must be 1 to 1000");
    ensure!((1..=86_400).contains(&arguments.seconds), "--seconds must be 1 to 86400");
    if let Some(page) = &arguments.write {
        ensure!(memory && misses, "--write needs both parts");
        report::check(page)?;
    }
    ensure!(machine::cores() >= 2, "client and server need a core each, and there is one");
    ensure!(
        program("memcached").is_some(),
        "memcached is not installed; as root: apt-get install memcached"
    );
    let scale = match arguments.quick {
        true => Scale { memory: 64, small: 8, seconds: 1, rounds: 1, requests: 4 },
        false => Scale {
            memory: arguments.memory,
            small: arguments.small,
            seconds: arguments.seconds,
            rounds: arguments.rounds,
            requests: 20,
        },
    };
    machine::ensure_memory(scale.memory.max(scale.small) << 22, "a smaller --memory")?;
    let mut report = Report::named("cache");
    let quick = if arguments.quick { " --quick" } else { "" };
    let parts = arguments.parts.iter().map(|part| format!(" {part}")).collect::<String>();
    report.fact("command", format!("`thunderhead-bench cache{parts}{quick}`"));
    report.fact("date", today());
    report.fact("machine", machine_is());
    for kind in [Kind::Thunderhead, Kind::Memcached] {
        report.fact(kind.name(), kind.version()?);
    }
    pinned(CLIENT_CORE, || {
        if memory {
            memory::run(&scale, &mut report).context("measure memory")?;
        }
        if misses {
            misses::run(&scale, &mut report).context("measure misses")?;
        }
        anyhow::Ok(())
    })?;
    if let Some(page) = &arguments.write {
        report.write(page)?;
    }
    report.show(arguments.json)
}
