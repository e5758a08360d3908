//! The step `doors`: tests and programs that were written for other stores run on Thunderhead's
//! doors.

pub(crate) mod applications;
mod memcached;
mod python;
pub(crate) mod redis;
pub(crate) mod redis_clients;
mod redis_server;
mod sources;

use crate::steps::{Extent, build_programs, install, program};
use anyhow::{Context, Result};
use std::path::Path;

/// Runs the tests, as a step of the full test.
pub(crate) fn check(extent: Extent) -> Result<()> {
    let packages: Vec<(&str, &str)> =
        memcached::PACKAGES.into_iter().chain(redis::PACKAGES).collect();
    install_missing(&packages)?;
    build_programs()?;
    let thunderhead = program("thunderhead").canonicalize().context("find the program")?;
    memcached::check(&thunderhead)?;
    redis::check(&thunderhead, extent)?;
    redis_clients::check(&thunderhead, extent)?;
    applications::check(&thunderhead, extent)
}

/// Installs the packages of Debian whose file is missing.
fn install_missing(packages: &[(&str, &str)]) -> Result<()> {
    let is_missing = |file: &str| !Path::new(file).exists();
    let missing: Vec<&str> =
        packages.iter().filter(|(_, file)| is_missing(file)).map(|(package, _)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    install(&missing).with_context(|| {
        format!("the tests need programs; as root: apt-get install {}", missing.join(" "))
    })
}
