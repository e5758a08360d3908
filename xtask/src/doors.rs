//! The step `doors`: tests that were written for other stores run against Thunderhead's doors.

mod memcached;

use crate::steps::{build_programs, install, program};
use anyhow::{Context, Result};
use std::path::Path;

/// Runs the tests, as a step of the full test.
pub(crate) fn check() -> Result<()> {
    let is_missing = |file: &str| !Path::new(file).exists();
    let missing: Vec<&str> = memcached::PACKAGES
        .iter()
        .filter(|(_, file)| is_missing(file))
        .map(|(package, _)| *package)
        .collect();
    if !missing.is_empty() {
        install(&missing).with_context(|| {
            format!("the tests need programs; as root: apt-get install {}", missing.join(" "))
        })?;
    }
    build_programs()?;
    let thunderhead = program("thunderhead").canonicalize().context("find the program")?;
    memcached::check(&thunderhead)
}
