//! The number of descriptors (files, sockets) that this process may have open.
//!
//! The kernel has two limits for each process. The *soft* limit counts. Login shells and service
//! managers mostly leave it at 1024, because programs that call `select` can use no more. A process
//! may raise its soft limit up to the *hard* limit, mostly half a million. This code never calls
//! `select`.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Raises the soft limit to the hard limit, and returns it.
///
/// # Errors
/// If the kernel refuses. The limit is unchanged then.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    }
    Ok(descriptor_limit())
}

/// Returns how many descriptors this process may have open at present. Their numbers are lower than
/// this.
#[must_use]
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
