//! Experiments on a backup's storage: `thunderhead-bench backup …`.

pub mod storage;

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
    /// Bandwidth from a buffer that outlasts the process to the disk, beside plain direct writes.
    Storage(storage::Arguments),
}

/// Runs an experiment.
///
/// # Errors
/// When it cannot be run.
pub fn run(arguments: Arguments) -> Result<()> {
    match arguments.command {
        Command::Storage(arguments) => storage::run(&arguments),
    }
}
