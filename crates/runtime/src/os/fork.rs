//! Notices that the process is a copy which `fork` made.
//!
//! A copy has the descriptors, the shared memory and the locks of its parent, but not the parent's
//! threads. A client that goes on in the copy would write into the parent's connections. So each
//! client keeps the [`ForkCount`] of the time when it was made, and refuses to work once the count
//! has changed.
//!
//! Only copies that the C library makes with `fork` are noticed, because the count is kept by a
//! handler that `fork` calls in the child. A child that calls `exec` at once never gets this far.

#![allow(unsafe_code, reason = "the handler of `fork` is registered with the C library")]

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// How often the ancestors of this process forked on the way to this process.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The error of the registration, or 0.
static ERROR: AtomicI32 = AtomicI32::new(0);

extern "C" fn count_fork() {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// The number of forks between the first process and this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkCount(u64);

impl ForkCount {
    /// Returns the present count. The first call begins to count.
    ///
    /// # Errors
    /// If the C library has no memory to register the handler.
    pub fn now() -> io::Result<ForkCount> {
        static REGISTER: Once = Once::new();
        REGISTER.call_once(|| {
            // SAFETY: the handler only adds to an atomic, which is allowed in the child of a
            // process with threads, and it exists as long as this code is loaded.
            let error = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
            ERROR.store(error, Ordering::Relaxed);
        });
        match ERROR.load(Ordering::Relaxed) {
            0 => Ok(ForkCount(COUNT.load(Ordering::Relaxed))),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Whether the process forked since then and this is the child.
    #[inline]
    #[must_use]
    pub fn is_past(self) -> bool {
        self.0 != COUNT.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_child_of_a_fork_is_told() {
        let before = ForkCount::now().unwrap();
        // SAFETY: the child only reads an atomic and ends with `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = i32::from(!before.is_past());
            // SAFETY: it ends the child without the handlers of the test program.
            unsafe { libc::_exit(code) };
        }
        assert!(child > 0, "the machine refused a process");
        let mut status = -1;
        // SAFETY: the child is this process's own, and `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child did not notice");
        assert!(!before.is_past());
        assert_eq!(ForkCount::now().unwrap(), before);
    }
}
