//! How many descriptors (files, sockets) this process may have open.
//!
//! The kernel has two limits for each process. The *soft* one counts, and login shells and service managers
//! mostly leave it at 1024, because programs that call `select` can use no more. The *hard* one is how far a
//! process may raise the soft one by itself, mostly half a million. This code never calls `select`.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Raises the soft limit to the hard one, and returns it.
///
/// # Errors
/// When the kernel refuses: the limit is as it was.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    }
    Ok(descriptor_limit())
}

/// The number of descriptors that this process may have open at the moment. Their numbers are lower than this.
#[must_use]
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
