//! What recovery must show, `bench evaluate recovery`, and models of clusters that nobody has here:
//! `bench recovery …`.
//!
//! Figures of whole recoveries come from clusters of processes that lose a server
//! ([`crash`](crate::crash)), as `thunderhead demo crash` shows them: seen by clients, from outside.
//! A recovery master alone is the log's rebuilding, in slices, on one core.
//!
//! The models have disks, networks and processors that are numbers, but what decides is the code of
//! the cluster itself: where a master places replicas ([`Trial`](thunderhead_master::replication::Trial)),
//! and what the coordinator has read and rebuilt by whom ([`model`](thunderhead_coordinator::model)).

mod cluster;
mod cold;
pub mod costs;
pub mod evaluate;
pub mod placement;
pub mod scale;

use anyhow::Result;
use clap::Subcommand;

/// Which model.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// When the last disk has read its share, by how replicas were placed.
    Placement(placement::Arguments),
    /// How long a recovery takes, by how many nodes take part in it.
    Scale(scale::Arguments),
    /// The row of `bench evaluate recovery` on a cold start, alone.
    Cold(cold::Arguments),
    /// The row of `bench evaluate recovery` on reads of what stays, alone.
    Reads(evaluate::ReadsArguments),
}

/// Runs a model.
///
/// # Errors
/// When it cannot be run.
pub fn run(arguments: Arguments) -> Result<()> {
    match arguments.command {
        Command::Placement(arguments) => placement::run(&arguments),
        Command::Scale(arguments) => scale::run(&arguments),
        Command::Cold(arguments) => cold::run(&arguments),
        Command::Reads(arguments) => evaluate::run_reads(&arguments),
    }
}
