//! The `thunderhead` binary: arguments in, words for people out. The work is in the crates below.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "the binary talks to people")]

mod backup;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "thunderhead", version, about = "A durable key-value store in DRAM")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure this machine and this store.
    Bench(thunderhead_bench::Arguments),
    /// Look after a backup's storage.
    Backup(backup::Arguments),
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let result = match command {
        Command::Bench(arguments) => thunderhead_bench::run(arguments),
        Command::Backup(arguments) => backup::run(arguments),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("thunderhead: {error:#}");
            ExitCode::from(2)
        }
    }
}
