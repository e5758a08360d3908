//! The command line: the list of the commands. Each command's module has its arguments.

use crate::exit::Failure;
use crate::session::Session;
use crate::settings::{Coordinator, Dev, Everywhere, Flags, Server};
use crate::store::Store;
use crate::{
    backup, bench, cluster, configuration, demo, memcached, objects, redis, reference, servers,
    shell, status, tables, transfer,
};
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "thunderhead",
    version,
    about = "A durable key-value store in DRAM",
    after_help = "Status: 0 done, 1 the answer is no, 2 wrong arguments or configuration, 3 the cluster cannot be \
                  reached, 4 the outcome of an update is unknown, 5 refused. Begin with `thunderhead dev`."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Arguments of every command.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Common {
    /// The file with the configuration. If it is not given: $THUNDERHEAD_CONFIG, or
    /// ./thunderhead.toml if that exists.
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Set any key of the configuration.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, global = true)]
    pub(crate) set: Vec<(String, String)>,
    /// Print JSON, for programs.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Servers and coordinators also end when their input ends, so that they do not outlive the
    /// program that started them.
    #[arg(long, global = true, hide = true)]
    pub(crate) while_input: bool,
    #[command(flatten)]
    pub(crate) flags: Flags<Everywhere>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a whole cluster in this process, for development. Its data stays on the disk.
    Dev(Flags<Dev>),
    /// Run a server, or make the cluster forget one.
    Server(ServerCommand),
    /// Run a coordinator.
    Coordinator(Flags<Coordinator>),
    /// Run a server for memcached's clients, with the flags of memcached.
    Memcached(memcached::Arguments),
    /// Run a server for Redis's clients, with the usual settings of Redis.
    Redis(redis::Arguments),
    #[command(flatten)]
    Data(DataCommand),
    /// Run commands one after the other.
    ///
    /// It knows the commands that use a cluster, and `use TABLE`, `help`, `exit`. On a terminal it
    /// has a history and completes words with the tabulator, and it goes on after errors. Otherwise
    /// the standard input is a script, which ends at its first error.
    Shell(shell::Arguments),
    /// Check or show the configuration.
    #[command(subcommand)]
    Config(configuration::Command),
    /// Check a backup's storage.
    Backup(backup::Arguments),
    /// Demonstrate the promises of the store.
    #[command(subcommand)]
    Demo(demo::Command),
    /// Load the cluster with a workload, and show its throughput and latencies.
    ///
    /// Clients run closed loops for a while, and check each value that they read. A table is
    /// created for the objects if it does not exist, and is not dropped. Status 1: an operation
    /// failed.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Print a generated part of the documents.
    #[command(hide = true)]
    Reference {
        /// The part.
        part: reference::Part,
    },
}

/// A server to run, or a command about one.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerCommand {
    #[command(subcommand)]
    pub(crate) action: Option<servers::Command>,
    #[command(flatten)]
    pub(crate) flags: Flags<Server>,
}

/// The commands that use a running cluster. The shell has them too.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Make, drop, list, show, split and migrate tables.
    #[command(subcommand)]
    Table(tables::Command),
    /// Read an object.
    Get(objects::Get),
    /// Write an object.
    Put(objects::Put),
    /// Delete an object.
    Delete(objects::Delete),
    /// Add to a number, and print the sum.
    Incr(objects::Incr),
    /// Write an object if it has a given version: compare and set.
    Cas(objects::Cas),
    /// Change when an object expires.
    Expire(objects::Expire),
    /// Print how long an object still lives.
    Ttl(objects::Ttl),
    /// List a table's objects, in no particular order.
    Scan(objects::Scan),
    /// Write the objects of a file into a table, or the keys of Redis into a server of its clients.
    Import(transfer::Import),
    /// Write a table's objects into a file.
    Export(transfer::Export),
    /// Change the settings of a running cluster.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Show servers, memory, tables and problems.
    Status,
}

/// Runs a command.
pub(crate) fn run(
    command: DataCommand,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    match command {
        DataCommand::Table(command) => tables::run(command, store, session),
        DataCommand::Get(get) => objects::get(get, store, session),
        DataCommand::Put(put) => objects::put(put, store, session),
        DataCommand::Delete(delete) => objects::delete(delete, store, session),
        DataCommand::Incr(incr) => objects::incr(incr, store, session),
        DataCommand::Cas(cas) => objects::cas(cas, store, session),
        DataCommand::Expire(expire) => objects::expire(expire, store, session),
        DataCommand::Ttl(ttl) => objects::ttl(ttl, store, session),
        DataCommand::Scan(scan) => objects::scan(scan, store, session),
        DataCommand::Import(import) => transfer::import(import, store, session),
        DataCommand::Export(export) => transfer::export(export, store, session),
        DataCommand::Cluster(command) => cluster::run(command, store, session),
        DataCommand::Status => status::run(store, session),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_workload_has_the_flags_of_every_command() {
        let line = "thunderhead bench mixed --coordinators a.example:7070,b:1 --duration 24s \
                    --clients 2 --objects 2000 --json --deadline 3s";
        let Arguments { common, command } = Arguments::try_parse_from(line.split(' ')).unwrap();
        assert!(matches!(command, Command::Bench(_)) && common.json);
        let config = crate::settings::effective(&common, Vec::new(), &mut Vec::new()).unwrap();
        let client = config.config().client;
        let names: Vec<String> = client.coordinators.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a.example:7070", "b:1"]);
        assert_eq!(client.deadline, std::time::Duration::from_secs(3));
    }
}
