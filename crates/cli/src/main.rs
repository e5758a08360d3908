//! The `thunderhead` binary: takes arguments and prints text for people. The crates below do the
//! work.
//!
//! A command gets a [`Session`] for its input and output, and a [`store::Store`], which is the
//! cluster (`connect.rs`) or, in tests, one in memory (`fake.rs`). It reports its end by a
//! [`Failure`], which gives the status of the process.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "the binary talks to people")]
#![allow(clippy::disallowed_methods, reason = "commands are not the logic of a server")]

mod arguments;
mod backup;
mod bench;
mod cluster;
mod configuration;
mod connect;
mod demo;
mod door;
mod exit;
#[cfg(test)]
mod fake;
mod memcached;
mod migrate;
mod objects;
mod progress;
mod redis;
mod reference;
mod serve;
mod servers;
mod session;
mod settings;
mod shell;
mod status;
mod store;
mod tables;
mod text;
mod transfer;

use arguments::{Arguments, Command, Common, DataCommand, ServerCommand};
use clap::Parser;
use exit::{Exit, Failure};
use session::Session;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let Arguments { common, command } = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return misunderstood(&error),
    };
    let json = common.json;
    let done = match command {
        Command::Bench(command) => bench::run(command, &common),
        Command::Backup(arguments) => foreign(backup::run(arguments)),
        command => ours(command, common),
    };
    let Err(failure) = done else { return ExitCode::SUCCESS };
    if failure.reader_is_gone {
        return ExitCode::SUCCESS;
    }
    if !failure.message.is_empty() {
        let _ = writeln!(io::stderr().lock(), "{}", failure.text(json));
    }
    ExitCode::from(failure.exit as u8)
}

/// Prints requested help, or the mistake in the arguments: as JSON if `--json` is among them.
fn misunderstood(error: &clap::Error) -> ExitCode {
    let words = std::env::args_os().skip(1).take_while(|word| word != "--");
    if !error.use_stderr() || !words.into_iter().any(|word| word == "--json") {
        error.exit();
    }
    let text = error.render().to_string();
    let failure = Failure::usage(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
    let _ = writeln!(io::stderr().lock(), "{}", failure.text(true));
    ExitCode::from(failure.exit as u8)
}

/// Converts the result of commands that print for themselves, and that return whether all is well.
fn foreign(done: anyhow::Result<bool>) -> Result<(), Failure> {
    let error = match done {
        Ok(true) => return Ok(()),
        Ok(false) => return Err(Failure::new(Exit::Negative, "negative", "")),
        Err(error) => error,
    };
    let reader_is_gone = error
        .root_cause()
        .downcast_ref::<io::Error>()
        .is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe);
    let message = format!("{error:#}");
    let failure = match error.downcast::<thunderhead_client::Error>() {
        Ok(cause) => Failure { message, ..Failure::from(cause) },
        Err(_) => Failure::usage(message),
    };
    Err(Failure { reader_is_gone, ..failure })
}

fn ours(command: Command, common: Common) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut notes = io::stderr();
    let stdin_is_terminal = io::stdin().is_terminal();
    let mut input = io::stdin();
    let mut ask = |question: &str| agrees(question);
    let is_interactive = stdin_is_terminal && io::stderr().is_terminal();
    let mut session = Session {
        out: &mut out,
        notes: &mut notes,
        input: Some(&mut input),
        ask: is_interactive.then_some(&mut ask as &mut dyn FnMut(&str) -> bool),
        json: common.json,
        progress: io::stderr().is_terminal(),
    };
    let done = dispatch(command, common, stdin_is_terminal, &mut session);
    // Also after a failure, so that the output before it is not lost.
    let flushed = out.flush().map_err(Failure::from);
    done.and(flushed)
}

fn dispatch(
    command: Command,
    common: Common,
    stdin_is_terminal: bool,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let resolve = |own, session: &mut Session<'_>| {
        settings::effective(&common, own, session.notes).map(|effective| effective.config())
    };
    match command {
        Command::Dev(flags) => {
            serve::dev(&resolve(flags.into_given(), session)?.dev, until(&common), common.json)
        }
        Command::Server(ServerCommand { action: None, flags }) => {
            serve::server(&resolve(flags.into_given(), session)?.server, until(&common))
        }
        Command::Server(ServerCommand { action: Some(command), .. }) => {
            let client = resolve(Vec::new(), session)?.client;
            let mut store = connect::connect(&client)?;
            servers::run(command, store.as_mut(), session)
        }
        Command::Coordinator(flags) => {
            serve::coordinator(&resolve(flags.into_given(), session)?.coordinator, until(&common))
        }
        Command::Memcached(arguments) => memcached::run(&arguments, until(&common), common.json),
        Command::Redis(arguments) => redis::run(&arguments, until(&common), common.json),
        Command::Config(command) => configuration::run(command, common, session),
        Command::Demo(command) => demo::run(command, session),
        Command::Reference { part } => Ok(write!(session.out, "{}", reference::part(part))?),
        Command::Shell(arguments) => {
            let client = resolve(Vec::new(), session)?.client;
            let mut connect = || connect::connect(&client);
            shell::run(arguments, stdin_is_terminal, &mut connect, session)
        }
        // The other data commands need a cluster.
        Command::Data(DataCommand::Import(import)) if import.redis().is_some() => {
            transfer::import_from_redis(&import, session)
        }
        Command::Data(command) => {
            let client = resolve(Vec::new(), session)?.client;
            let mut store = connect::connect(&client)?;
            arguments::run(command, store.as_mut(), session)
        }
        // `ours` runs these two itself.
        Command::Bench(_) | Command::Backup(_) => Ok(()),
    }
}

/// Returns when a long-running program ends.
fn until(common: &Common) -> serve::Until {
    if common.while_input { serve::Until::InputEnds } else { serve::Until::Asked }
}

/// Asks a person and returns whether they agree.
fn agrees(question: &str) -> bool {
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "{question} [y/N] ");
    let _ = stderr.flush();
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
