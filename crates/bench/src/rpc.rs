//! Experiments on the reactor, its transports and RPC: `thunderhead bench rpc …`. Each measures
//! its floor in the same run: the least that a short program would do on the same kind of channel.

pub mod evaluate;
pub mod floors;
pub mod latency;
pub mod polling;
pub mod price;
pub mod scale;
pub mod subject;
pub mod throughput;

use anyhow::Result;
use clap::Subcommand;

/// Which experiment.
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
    /// Processor time for each request, by load and by how the server spends idle time.
    Price(price::Arguments),
    /// Reads, latency and processor time by number of clients and by how the server spends idle time.
    Polling(polling::Arguments),
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
        Command::Polling(arguments) => polling::run(&arguments),
        Command::Scale(arguments) => scale::run(&arguments),
        Command::Crowd(arguments) => scale::crowd(&arguments),
    }
}
