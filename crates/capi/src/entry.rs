//! The way into the library. Every exported function with a status goes through [`entry`].
//!
//! A panic must not leave the library: it would end the user's program. `entry` catches it and
//! reports an internal error with an unknown outcome.
//!
//! # The message of a panic
//!
//! The standard library prints a panic's message before it unwinds. A library must not write to the
//! standard error of its user. So the first call installs a hook that is silent for threads in one
//! of our calls, and for the threads that the client starts. It passes all other panics on to the
//! former hook. A hook that is silent for every thread would do for the shared library, which has
//! a standard library of its own. But the static library may be linked into a program that has
//! Rust code of its own, and this code must keep its messages. The hook is the library's only
//! global state.

use crate::abi::th_error;
use crate::failure::{Failure, Report};
use crate::status::th_status;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

#[cfg(not(panic = "unwind"))]
compile_error!("a panic would end the user's program: build with panic = \"unwind\"");

/// The names of the threads that the client starts.
const OWN_THREADS: [&str; 2] = ["thunderhead-client", "resolver"];

thread_local! {
    /// The number of our calls that the thread is in: an interrupt callback may make one.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let former = take_hook();
        set_hook(Box::new(move |panic| {
            let is_in_call = DEPTH.try_with(|depth| depth.get() > 0).unwrap_or(false);
            let thread = std::thread::current();
            let is_own = thread.name().is_some_and(|name| OWN_THREADS.contains(&name));
            if !is_in_call && !is_own {
                former(panic);
            }
        }));
    });
}

/// Does the work of an exported function, and reports its outcome to the caller.
///
/// # Safety
/// `error` keeps the header's rules for pointers.
#[inline]
pub(crate) unsafe fn entry(
    error: *mut th_error,
    work: impl FnOnce() -> Result<th_status, Failure>,
) -> th_status {
    install_hook();
    // SAFETY: as the caller vouches.
    let report = match unsafe { Report::to(error) } {
        Ok(report) => report,
        // There is no place for the reason.
        Err(failure) => return failure.status,
    };
    let result = DEPTH.with(|depth| {
        depth.set(depth.get() + 1);
        let result = catch_unwind(AssertUnwindSafe(work));
        depth.set(depth.get() - 1);
        result
    });
    let failure = match result {
        Ok(Ok(status)) => {
            report.done();
            return status;
        }
        Ok(Err(failure)) => failure,
        Err(panic) => {
            // Dropping the payload could panic again.
            std::mem::forget(panic);
            Failure::internal()
        }
    };
    report.failed(&failure);
    failure.status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::TH_ERROR_TEXT_BYTES;
    use crate::status::{TH_BAD_SIZE, TH_INTERNAL, TH_OK, TH_UNKNOWN};
    use std::process::Command;

    /// Set in the process that panics.
    const PANICS: &str = "THUNDERHEAD_ENTRY_PANICS";

    fn error() -> th_error {
        let (code, outcome, version) = (7, 7, 7);
        let text = [1; TH_ERROR_TEXT_BYTES];
        th_error { size: size_of::<th_error>(), code, outcome, version, text }
    }

    #[test]
    fn a_panic_becomes_an_internal_error_and_prints_nothing() {
        if std::env::var_os(PANICS).is_some() {
            let mut error = error();
            // SAFETY: the error is a live local with its size.
            let status = unsafe { entry(&raw mut error, || panic!("a secret of the library")) };
            assert_eq!((status, error.code, error.outcome), (TH_INTERNAL, TH_INTERNAL, TH_UNKNOWN));
            // SAFETY: no error is allowed.
            let status = unsafe { entry(std::ptr::null_mut(), || panic!("a secret")) };
            assert_eq!(status, TH_INTERNAL);
            // The program's own threads keep their messages.
            assert!(catch_unwind(|| panic!("a message of the program")).is_err());
            return;
        }
        let name = "entry::tests::a_panic_becomes_an_internal_error_and_prints_nothing";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(PANICS, "1")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}");
        assert!(!printed.contains("secret"), "{printed}");
        assert!(printed.contains("a message of the program"), "{printed}");
    }

    #[test]
    fn success_clears_the_error_and_a_wrong_size_refuses_the_call() {
        let mut error = error();
        // SAFETY: the error is a live local with its size.
        assert_eq!(unsafe { entry(&raw mut error, || Ok(TH_OK)) }, TH_OK);
        assert_eq!((error.code, error.outcome, error.version, error.text[0]), (0, 0, 0, 0));
        error.size = 3;
        let mut is_done = false;
        // SAFETY: as above; a size that is too small is never used.
        let status = unsafe {
            entry(&raw mut error, || {
                is_done = true;
                Ok(TH_OK)
            })
        };
        assert_eq!((status, is_done), (TH_BAD_SIZE, false));
    }
}
