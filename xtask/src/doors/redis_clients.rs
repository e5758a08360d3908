//! The tests of two clients of Redis, redis-py and go-redis, on `thunderhead redis`.
//!
//! None of them is part of this repository. The tests of redis-py are in its source package in the
//! registry of Python, those of go-redis in its module for Go. They are fetched once, into
//! `target/doors`.
//!
//! Each client has a list of exceptions with reasons: tests that fail, and tests that are not run.
//! Any other test must pass. A test that fails is repeated once, because a busy machine is late for
//! the times of some tests.

mod go_redis;
mod redis_py;
mod results;

use super::redis_server::Server;
use crate::steps::{Extent, build_programs, program};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The names of clients, redis-py or go-redis; both when none is given.
    names: Vec<String>,
    /// Run all tests. Without it the tests of redis-py are a sample.
    #[arg(long)]
    all: bool,
    /// The program to test, instead of a release build that is made first.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// A client, and the function that runs its tests.
type Client = (&'static str, fn(&Path, Extent) -> Result<()>);

const CLIENTS: [Client; 2] = [("redis-py", redis_py::check), ("go-redis", go_redis::check)];

/// Runs the tests of some clients.
pub(crate) fn redis_clients(arguments: &Arguments) -> Result<()> {
    let is_known = |name: &&String| CLIENTS.iter().any(|it| it.0 == **name);
    if let Some(name) = arguments.names.iter().find(|name| !is_known(name)) {
        bail!("there is no client {name}; there are redis-py and go-redis");
    }
    let thunderhead = match &arguments.program {
        Some(path) => path.clone(),
        None => {
            build_programs()?;
            program("thunderhead")
        }
    };
    let thunderhead = thunderhead.canonicalize().context("find the program")?;
    let extent = if arguments.all { Extent::Whole } else { Extent::Sample };
    let is_wanted = |it: &&Client| {
        arguments.names.is_empty() || arguments.names.iter().any(|name| it.0 == name)
    };
    run(CLIENTS.iter().filter(is_wanted), &thunderhead, extent)
}

/// Runs the tests as a part of the full test.
pub(super) fn check(thunderhead: &Path, extent: Extent) -> Result<()> {
    run(CLIENTS.iter(), thunderhead, extent)
}

/// Runs the tests of all given clients at once: they mostly wait.
fn run<'a>(
    clients: impl Iterator<Item = &'a Client>,
    thunderhead: &Path,
    extent: Extent,
) -> Result<()> {
    std::thread::scope(|scope| {
        let running: Vec<_> = clients
            .map(|(name, check)| (name, scope.spawn(move || check(thunderhead, extent))))
            .collect();
        let mut all = Ok(());
        for (name, thread) in running {
            let outcome = thread.join().unwrap_or_else(|_| bail!("its thread panicked"));
            let outcome = outcome.with_context(|| {
                format!(
                    "tests of {name} fail; run them alone with: cargo xtask redis-clients {name}"
                )
            });
            match (&all, outcome) {
                (Ok(()), outcome) => all = outcome,
                // The caller reports the first error.
                (Err(_), Err(error)) => println!("{error:#}"),
                (Err(_), Ok(())) => {}
            }
        }
        all
    })
}

/// Starts a server without data.
fn start(thunderhead: &Path) -> Result<Server> {
    let mut server = Server::new(thunderhead.to_owned(), "512mb", None);
    server.start()?;
    Ok(server)
}
