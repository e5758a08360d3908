//! The step `doors`: tests and programs that were written for other stores run on Thunderhead's
//! doors.

pub(crate) mod applications;
mod memcached;
mod python;

use crate::steps::{Extent, build_programs, install, program};
use anyhow::{Context, Result};
use std::path::Path;

/// Runs the tests, as a step of the full test.
pub(crate) fn check(extent: Extent) -> Result<()> {
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
    memcached::check(&thunderhead)?;
    applications::check(&thunderhead, extent)
}
