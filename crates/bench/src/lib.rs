//! The load generator and the papers' experiments, behind `thunderhead bench`.
//!
//! Every experiment prints a table for people, `--json` for programs, and most draw a figure with
//! `--plot FILE.svg`. `bench evaluate log` measures what the log must show, required beside
//! measured.
#![allow(clippy::disallowed_methods, reason = "benchmarks measure the machine itself")]

pub mod backup;
pub mod log;
pub mod machine;
pub mod plot;
pub mod rpc;
pub mod table;

use anyhow::Result;
use clap::Subcommand;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Log-structured memory by itself.
    Log(log::Arguments),
    /// Round trips, requests and their price, each beside its floor.
    Rpc(rpc::Arguments),
    /// A backup's storage.
    Backup(backup::Arguments),
    /// What an area must show, required beside measured.
    ///
    /// Status 0: all of it is met. 1: a row fell short. 2: something could not be measured. The
    /// machine should be idle, or rows fall short for no fault of the store.
    Evaluate {
        /// The area: log or rpc.
        #[arg(value_parser = ["log", "rpc"])]
        area: String,
        /// Smaller and shorter: says whether everything works, and not how fast it is. Rows may
        /// fall short, with status 1.
        #[arg(long)]
        quick: bool,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
}

/// Runs a benchmark. False when a requirement is not met.
///
/// # Errors
/// When the benchmark cannot be run.
pub fn run(arguments: Arguments) -> Result<bool> {
    match arguments.command {
        Command::Log(arguments) => log::run(arguments).map(|()| true),
        Command::Rpc(arguments) => rpc::run(arguments).map(|()| true),
        Command::Backup(arguments) => backup::run(arguments).map(|()| true),
        Command::Evaluate { area, quick, json } => match area.as_str() {
            "log" => log::evaluate::run(quick, json),
            _ => rpc::evaluate::run(quick, json),
        },
    }
}
