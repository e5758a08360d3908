//! The door for Redis's clients: Redis's own tests, which are written in Tcl.
//!
//! They are not part of this repository: they come from Debian's source package, into
//! `target/doors` and a temporary directory. [`files`] lists them, and the tests that are skipped.

mod files;
mod report;
mod suite;

use super::install_missing;
use crate::scratch::Scratch;
use crate::steps::{Extent, build_programs, program};
use anyhow::{Context, Result, bail};
use files::{FILES, File};
use std::path::Path;

/// Packages of Debian that the tests need, and a file of each.
pub(super) const PACKAGES: [(&str, &str); 1] = [("tcl", "/usr/bin/tclsh")];

/// The tests, as command-line arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The names of files, such as type/string; all when none is given.
    names: Vec<String>,
    /// The server keeps its data in a directory.
    #[arg(long)]
    data: bool,
    /// The program; the release build when none is given.
    #[arg(long)]
    program: Option<std::path::PathBuf>,
}

/// Runs some files.
pub(crate) fn redis_tests(arguments: &Arguments) -> Result<()> {
    let is_known = |name: &&String| FILES.iter().any(|it| it.name == **name);
    if let Some(name) = arguments.names.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = FILES.iter().map(|it| it.name).collect();
        bail!("there is no file {name}; there are {}", known.join(", "));
    }
    install_missing(&PACKAGES)?;
    let thunderhead = match &arguments.program {
        Some(program) => program.clone(),
        None => {
            build_programs()?;
            program("thunderhead")
        }
    };
    let thunderhead = thunderhead.canonicalize().context("find the program")?;
    let is_wanted = |it: &&File| {
        arguments.names.is_empty() || arguments.names.iter().any(|name| it.name == name)
    };
    let files: Vec<&File> = FILES.iter().filter(is_wanted).collect();
    let scratch = Scratch::new("redis-tests")?;
    let suite = suite::Suite::new(&scratch, &thunderhead)?;
    if arguments.names.is_empty() {
        suite.check_names()?;
    }
    suite.run(&files, arguments.data)
}

/// Runs them as a part of the full test: all, with and without data that is kept, or a sample.
pub(super) fn check(thunderhead: &Path, extent: Extent) -> Result<()> {
    let scratch = Scratch::new("redis-tests")?;
    let suite = suite::Suite::new(&scratch, thunderhead)?;
    suite.check_names()?;
    let all: Vec<&File> = FILES.iter().collect();
    let quick: Vec<&File> = FILES.iter().filter(|it| it.is_quick()).collect();
    match extent {
        Extent::Whole => {
            suite.run(&all, false)?;
            suite.run(&all, true)
        }
        Extent::Sample => suite.run(&quick, true),
    }
}
