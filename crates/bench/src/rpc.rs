//! Experiments on the reactor, its transports and RPC: `thunderhead-bench rpc …`. Each measures its
//! floor in the same run: the cost of a minimal program on the same kind of channel.

pub mod evaluate;
pub mod floors;
pub mod latency;
pub mod price;
pub mod scale;
pub mod subject;
pub mod throughput;

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
    /// Round trips of one client, over every transport.
    Latency(latency::Arguments),
    /// Requests a second, by connections and requests in flight.
    Throughput(throughput::Arguments),
    /// Processor time for each request, by load and by the server's use of idle time.
    Price(price::Arguments),
    /// An idle server, and one with very many connections.
    Scale(scale::Arguments),
    /// The clients of `scale`, in a process of their own.
    #[command(hide = true)]
    Crowd(scale::Crowd),
}

/// Runs an experiment.
///
/// # Errors
/// When it cannot be run.
pub fn run(arguments: Arguments) -> Result<()> {
    match arguments.command {
        Command::Latency(arguments) => latency::run(&arguments),
        Command::Throughput(arguments) => throughput::run(&arguments),
        Command::Price(arguments) => price::run(&arguments),
        Command::Scale(arguments) => scale::run(&arguments),
        Command::Crowd(arguments) => scale::crowd(&arguments),
    }
}
