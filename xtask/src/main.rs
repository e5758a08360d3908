//! The developer's commands. `cargo xtask test` installs its tools and runs all that CI runs;
//! `cargo xtask quick` is the inner loop. Verifying never writes to the tree; `fix` may.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "commands run on the machine itself")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "commands talk to people")]

mod book;
mod clients;
mod commits;
mod door_compare;
mod door_measure;
mod doors;
mod instructions;
mod mutants;
mod pages;
mod release;
mod scratch;
mod steps;
mod tidy;
mod words;
mod ycsb;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use steps::{Extent, Step, run, workspace};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The developer's commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install missing tools, then run everything that CI runs: all steps, with a sample of the
    /// seeds and of the fuzzing.
    Test {
        /// Run several times as many seeds, fuzz for longer, and check more packages for errors of
        /// memory.
        #[arg(long)]
        all: bool,
        /// Run one step only.
        #[arg(long)]
        only: Option<String>,
        /// List the steps.
        #[arg(long)]
        list: bool,
    },
    /// The inner loop: formatting, lints, unit tests.
    Quick,
    /// Formatting, clippy and rustdoc; warnings are errors.
    Lint,
    /// House rules that no other tool checks.
    Tidy,
    /// List the sentences that a reader must decode, by the house rules on plain words.
    Words {
        /// Files and directories; the whole tree when none is given.
        paths: Vec<String>,
        /// Lower the limits in xtask/words.txt to the present counts.
        #[arg(long)]
        update: bool,
    },
    /// Build the book from all pages into target/book, and check its links.
    Book {
        /// Open it in a browser.
        #[arg(long)]
        open: bool,
    },
    /// Licences, sources and duplicates of dependencies.
    Deny,
    /// Model checks of the concurrent parts.
    Loom,
    /// Unit and property tests under AddressSanitizer.
    Asan,
    /// Format the code, apply the lints' suggestions and write the generated pages.
    Fix,
    /// Write the generated pages: commands and configuration.
    Reference,
    /// Fuzz one target, or each in turn.
    Fuzz {
        /// The target; all when none is given.
        target: Option<String>,
        /// Seconds for each.
        #[arg(long, default_value_t = 60)]
        seconds: u32,
    },
    /// Run simulations: `sim SEED` shows all events of one, `sim --swarm COUNT` runs many.
    Sim {
        /// SEED, or --swarm COUNT; also --first SEED, --flaw NAME, --json, --cluster.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },
    /// Count the instructions of operations and compare them with the recorded counts.
    Instructions {
        /// Record the counts instead.
        #[arg(long)]
        update: bool,
    },
    /// Build the clients in other languages, and run their tests.
    Clients(clients::Arguments),
    /// Run YCSB on Thunderhead and on Redis, in turn, and record the results.
    Ycsb(ycsb::Arguments),
    /// Put bugs into a copy of the sources, one at a time: the swarm or a test must find each.
    Mutants(mutants::Arguments),
    /// Build the product as it is released, and check its size.
    Release,
    /// Measure an area's requirements afresh.
    Evaluate {
        /// The area: log, rpc, operations, recovery or peers.
        area: String,
        /// Smaller and shorter: shows whether it works, not how fast it is.
        #[arg(long)]
        quick: bool,
        /// Minutes of the churn that memory must stay bounded under (operations only).
        #[arg(long)]
        minutes: Option<f64>,
        /// For programs.
        #[arg(long)]
        json: bool,
        /// Also puts it into this page (peers only).
        #[arg(long)]
        write: Option<String>,
    },
    /// Send the same random commands to a real server and to ours, and compare all answers.
    DoorCompare(door_compare::Arguments),
    /// Measure the memory and the speed of the door for Redis beside Redis and Valkey.
    DoorMeasure(door_measure::Arguments),
    /// Run job queues, sessions and locks of other authors on the door for Redis, and kill its
    /// server meanwhile.
    Applications(doors::applications::Arguments),
    /// Run Redis's own tests on the door for Redis.
    RedisTests(doors::redis::Arguments),
    /// Run the tests of redis-py and go-redis on the door for Redis.
    RedisClients(doors::redis_clients::Arguments),
    /// Install Redis, memcached and etcd, measure Thunderhead beside them, and put the results into
    /// docs/evaluation/peers.md.
    Compare {
        /// Smaller and shorter, and only printed: shows whether it works, not how fast it is.
        #[arg(long)]
        quick: bool,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    std::env::set_current_dir(workspace())?;
    match arguments.command {
        Command::Test { list: true, .. } => {
            for step in Step::ALL {
                println!("{:12} {}", step.name(), step.title());
            }
            Ok(())
        }
        Command::Test { only, all, .. } => {
            let extent = if all { Extent::Whole } else { Extent::Sample };
            let Some(name) = only else { return steps::all(extent) };
            match Step::ALL.iter().find(|step| step.name() == name) {
                Some(step) => step.run(extent),
                None => bail!("there is no step {name}; see cargo xtask test --list"),
            }
        }
        Command::Quick => steps::quick(),
        Command::Lint => Step::Lint.run(Extent::Sample),
        Command::Tidy => Step::Tidy.run(Extent::Sample),
        Command::Words { paths, update } => {
            let root = workspace();
            words::words(&root, &tidy::tracked(&root)?, &paths, update)
        }
        Command::Book { open } => {
            book::book()?;
            if open { book::open() } else { Ok(()) }
        }
        Command::Deny => Step::Deny.run(Extent::Sample),
        Command::Loom => Step::Loom.run(Extent::Sample),
        Command::Asan => Step::Asan.run(Extent::Whole),
        Command::Fix => {
            run("cargo", &["fmt", "--all"])?;
            run("cargo", &["clippy", "--fix", "--allow-dirty", "--workspace", "--all-targets"])?;
            steps::write_reference()
        }
        Command::Reference => steps::write_reference(),
        Command::Fuzz { target, seconds } => steps::fuzz(target.as_deref(), seconds),
        Command::Sim { arguments } => steps::sim(&arguments),
        Command::Mutants(arguments) => mutants::mutants(&arguments),
        Command::Instructions { update } => instructions::instructions(update),
        Command::Release => release::release(),
        Command::Clients(arguments) => clients::clients(&arguments),
        Command::Ycsb(arguments) => ycsb::ycsb(&arguments),
        Command::Evaluate { area, quick, minutes, json, write } => {
            steps::evaluate(&area, quick, minutes, json, write.as_deref())
        }
        Command::Applications(arguments) => doors::applications::applications(&arguments),
        Command::RedisTests(arguments) => doors::redis::redis_tests(&arguments),
        Command::RedisClients(arguments) => doors::redis_clients::redis_clients(&arguments),
        Command::DoorMeasure(arguments) => door_measure::door_measure(&arguments),
        Command::DoorCompare(arguments) => door_compare::door_compare(&arguments),
        Command::Compare { quick, json } => {
            let page = (!quick).then_some("docs/evaluation/peers.md");
            steps::evaluate("peers", quick, None, json, page)
        }
    }
}
