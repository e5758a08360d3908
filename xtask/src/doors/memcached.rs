//! The door for memcached's clients: memcached's own tests, libmemcached's check of the protocol,
//! and the tests of a client for Python.
//!
//! None of them is part of this repository: they come from Debian and from the registry of Python,
//! into `target/doors` and a temporary directory.

mod files;
mod suite;
mod tap;
mod tools;

use crate::scratch::Scratch;
use anyhow::Result;
use std::path::Path;

/// Packages of Debian that the tests need, and a file of each.
pub(super) const PACKAGES: [(&str, &str); 5] = [
    ("libmemcached-tools", "/usr/bin/memccapable"),
    ("perl", "/usr/bin/prove"),
    ("python3-venv", "/usr/bin/python3"),
    ("util-linux", "/usr/bin/setpriv"),
    ("xz-utils", "/usr/bin/xz"),
];

/// Runs all of them on a program.
pub(super) fn check(thunderhead: &Path) -> Result<()> {
    let scratch = Scratch::new("doors")?;
    tools::memccapable(thunderhead)?;
    tools::pymemcache(&scratch, thunderhead)?;
    suite::run(&scratch, thunderhead)
}
