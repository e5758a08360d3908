//! Experiments on log-structured memory: `thunderhead-bench log …`.

pub mod allocators;
pub mod cleaner;
pub mod evaluate;
pub mod index;
pub mod lfs;
pub mod replay;
pub mod subject;
pub mod timeline;

use anyhow::Result;
use clap::Subcommand;

/// The experiment to run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Memory needed under workloads whose object sizes change, beside malloc and its rivals.
    Allocators(allocators::Arguments),
    /// Write throughput, cleaner bytes and processor time against memory utilization.
    Cleaner(cleaner::Arguments),
    /// Time per lookup, hit and miss, singly and in batches, beside a hashbrown table.
    Index(index::Arguments),
    /// Which segments to clean first: the papers' LFS simulator.
    Lfs(lfs::Arguments),
    /// Objects and bytes a second of a replay.
    Replay(replay::Arguments),
    /// The phases of a cleaner's steps and their times, and the time until memory is free.
    Timeline(timeline::Arguments),
}

/// Runs an experiment.
///
/// # Errors
/// When it cannot be run.
pub fn run(arguments: Arguments) -> Result<()> {
    match arguments.command {
        Command::Allocators(arguments) => allocators::run(&arguments),
        Command::Cleaner(arguments) => cleaner::run(&arguments),
        Command::Index(arguments) => index::run(&arguments),
        Command::Lfs(arguments) => lfs::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Timeline(arguments) => timeline::run(&arguments),
    }
}
