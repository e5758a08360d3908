//! The requirements of recovery, `thunderhead-bench evaluate recovery`, and models of clusters
//! larger than this machine can run: `thunderhead-bench recovery …`.
//!
//! Figures of whole recoveries come from clusters of processes that lose a server
//! ([`crash`](thunderhead_load::crash)), as in `thunderhead demo crash`: measured by clients, from
//! outside. A recovery master alone is the log's rebuilding, in slices, on one core.
//!
//! In the models, disks, networks and processors are numbers, but the cluster's own code decides.
//! It places replicas ([`PlacementTrial`](thunderhead_master::replication::PlacementTrial)), and
//! chooses which backups read and which masters rebuild
//! ([`model`](thunderhead_coordinator::model)).

mod cluster;
mod cold;
pub mod costs;
pub mod evaluate;
pub mod placement;
pub mod scale;

use anyhow::Result;
use clap::Subcommand;

/// The model to run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The time at which the last disk has read its share, by the placement of replicas.
    Placement(placement::Arguments),
    /// The time of a recovery, by the number of nodes that take part.
    Scale(scale::Arguments),
    /// Only the row of `thunderhead-bench evaluate recovery` on a cold start.
    Cold(cold::Arguments),
    /// Only the row of `thunderhead-bench evaluate recovery` on reads of surviving tablets.
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
