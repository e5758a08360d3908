//! Measurements of this machine and of the store's parts, behind `thunderhead-bench`.
//!
//! Every experiment prints a table for people, or JSON with `--json`, and most draw a figure with
//! `--plot FILE.svg`. `evaluate AREA` measures the requirements of an area and prints them beside
//! the results.
//!
//! The harness is [`thunderhead_load`]: the loop of clients, the machine, tables, figures and
//! progress. [`requirements`] adds the rows of evaluations, and [`product`] the program that
//! clusters of processes run. The topics use only topics above them:
//!
//! | topic | contents |
//! | --- | --- |
//! | [`log`], [`backup`] | log-structured memory alone; a backup's storage |
//! | [`rpc`] | round trips and requests, beside the simplest programs that do the same |
//! | [`operations`] | operations on a shard, or on servers, in this process |
//! | [`polling`], [`turns`] | the cost of idle time; the longest turns of shards |
//! | [`instructions`] | work for `cargo xtask instructions`, which counts from outside |
//! | [`recovery`] | recoveries, of processes and of models of large clusters |
//! | [`drivers`] | clients in other languages, judged while servers are killed |
//! | [`history`] | clients of a running cluster, and a judge of their history |
//! | [`peers`] | Redis, Valkey, memcached and etcd |
//! | [`door`] | servers of Redis's protocol; the doors beside the native protocol |
//! | [`cache`] | `thunderhead memcached` and memcached as caches |
//! | [`clients`] | clients in other languages, over their core and beside Redis's clients |
#![allow(clippy::disallowed_methods, reason = "benchmarks measure the machine itself")]

pub mod backup;
pub mod cache;
pub mod clients;
pub mod door;
pub mod drivers;
pub mod history;
pub mod instructions;
pub mod log;
pub mod operations;
pub mod peers;
pub mod polling;
pub mod product;
mod program;
pub mod recovery;
pub mod requirements;
pub mod rpc;
pub mod turns;

use anyhow::Result;
use clap::Subcommand;
use std::path::PathBuf;
use thunderhead_runtime::optimizations::Optimization;

/// The measurement to run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Turn optimizations off in this process and its servers: gathering, return-stack, slices,
    /// start-memory, heap-limits.
    #[arg(long, global = true, value_name = "NAMES", value_delimiter = ',', value_parser = optimization)]
    without: Vec<Optimization>,
    #[command(subcommand)]
    command: Command,
}

fn optimization(name: &str) -> Result<Optimization, String> {
    let known = Optimization::ALL.map(Optimization::name).join(", ");
    Optimization::of_name(name).ok_or_else(|| format!("it is none of: {known}"))
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Log-structured memory alone.
    Log(log::Arguments),
    /// Round trips, requests and their cost, each beside its floor.
    Rpc(rpc::Arguments),
    /// Reads, latency and processor time, by number of clients and by the server's use of idle
    /// time.
    Polling(polling::Arguments),
    /// A backup's storage.
    Backup(backup::Arguments),
    /// Thunderhead beside Redis, Valkey, memcached and etcd.
    Peers(peers::Arguments),
    /// `thunderhead memcached` beside memcached: objects in memory, writes and misses.
    ///
    /// Status 1: a goal is missed.
    Cache(cache::Arguments),
    /// The door for Redis's clients beside other servers, and the doors beside the native protocol.
    Door(door::Arguments),
    /// Recovery in a model: clusters larger than this machine can run.
    Recovery(recovery::Arguments),
    /// The longest turns of shards during cleaning, migration and recovery.
    Turns(turns::Arguments),
    #[command(flatten)]
    Workload(thunderhead_load::commands::Command<operations::Arguments>),
    /// Clients in other languages, through their drivers, while servers are killed.
    ///
    /// Status 1: a client lost an update, did one twice, or reported a wrong outcome.
    Drivers(drivers::Arguments),
    /// Clients in other languages: their price over the core, and beside Redis's clients.
    ///
    /// Status 1 with --require: a client misses a goal, or is slower than the Redis client.
    Clients(clients::Arguments),
    /// Clients of a running cluster, and a judge of their history.
    ///
    /// Status 1: no store that performs one operation at a time could have produced it. Faults are
    /// injected from outside.
    History(history::Arguments),
    /// Work for `cargo xtask instructions`, which counts from outside.
    #[command(hide = true)]
    Instructions(instructions::Arguments),
    /// The requirements of an area, beside the results.
    ///
    /// Status 0: all are met. 1: a result fell short. 2: a measurement failed. The machine should
    /// be idle; otherwise results may fall short through no fault of the store.
    Evaluate {
        /// The area: log, rpc, operations, recovery or peers.
        #[arg(value_parser = ["log", "rpc", "operations", "recovery", "peers"])]
        area: String,
        /// Smaller and shorter: shows whether everything works, not how fast it is. Results may
        /// fall short, with status 1.
        #[arg(long)]
        quick: bool,
        /// Minutes of the churn under which memory must stay bounded; ten minutes stand for a day
        /// (operations only).
        #[arg(long)]
        minutes: Option<f64>,
        /// Only some groups of rows (operations only).
        #[arg(long, value_delimiter = ',', value_enum)]
        only: Vec<operations::evaluate::Part>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Also write the results into this page, between the marks `measured: begin` and
        /// `measured: end` (peers only).
        #[arg(long, value_name = "FILE.md")]
        write: Option<PathBuf>,
    },
}

/// Runs a benchmark. Returns false if a requirement is not met.
///
/// # Errors
/// When the benchmark cannot be run.
pub fn run(arguments: Arguments) -> Result<bool> {
    arguments.without.into_iter().for_each(Optimization::turn_off);
    match arguments.command {
        Command::Drivers(arguments) => drivers::run(&arguments),
        Command::Clients(arguments) => clients::run(&arguments),
        Command::History(arguments) => history::run(&arguments),
        Command::Instructions(arguments) => instructions::run(&arguments).map(|()| true),
        Command::Log(arguments) => log::run(arguments).map(|()| true),
        Command::Rpc(arguments) => rpc::run(arguments).map(|()| true),
        Command::Polling(arguments) => polling::run(&arguments).map(|()| true),
        Command::Backup(arguments) => backup::run(arguments).map(|()| true),
        Command::Recovery(arguments) => recovery::run(arguments).map(|()| true),
        Command::Cache(arguments) => cache::run(&arguments),
        Command::Door(arguments) => door::run(&arguments),
        Command::Peers(arguments) => peers::run(&arguments),
        Command::Turns(arguments) => turns::run(&arguments),
        Command::Evaluate { area, quick, minutes, only, json, write } => match area.as_str() {
            "log" => log::evaluate::run(quick, json),
            "rpc" => rpc::evaluate::run(quick, json),
            "recovery" => recovery::evaluate::run(quick, json),
            "peers" => peers::run(&peers::Arguments { only: Vec::new(), quick, json, write }),
            _ => operations::evaluate::run(quick, minutes, &only, json),
        },
        Command::Workload(workload) => {
            let (workload, arguments) = workload.into_parts()?;
            operations::run(workload, &arguments)
        }
    }
}
