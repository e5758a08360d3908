//! The program `thunderhead-bench`: measurements of this machine and of the store's parts, the
//! papers' experiments, evaluations, and the comparison with other stores.
//!
//! It is a program of its own, so that the product contains neither the simulator nor clients of
//! other stores. Clusters of processes run the product, which must be built beside this program.
#![forbid(unsafe_code)]

use clap::Parser;
use std::io::{self, Write};
use std::process::ExitCode;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "thunderhead-bench",
    version,
    about = "Measure this machine and Thunderhead on it",
    after_help = "Status: 0 done, 1 a requirement is not met or an operation failed, 2 wrong arguments or a failed \
                  measurement. `thunderhead bench` loads a running cluster."
)]
struct Program {
    #[command(flatten)]
    arguments: thunderhead_bench::Arguments,
}

/// The status if a requirement is not met, and if a measurement fails.
const SHORT: u8 = 1;
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let error = match thunderhead_bench::run(Program::parse().arguments) {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => return ExitCode::from(SHORT),
        Err(error) => error,
    };
    let cause = error.root_cause().downcast_ref::<io::Error>();
    if cause.is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe) {
        // The reader of the output has gone.
        return ExitCode::SUCCESS;
    }
    let _ = writeln!(io::stderr().lock(), "thunderhead-bench: {error:#}");
    ExitCode::from(FAILED)
}
