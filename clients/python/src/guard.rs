//! The border between Rust and the interpreter: no panic crosses it.
//!
//! PyO3 would turn a panic into a `PanicException`, which `except Exception` does not catch, and
//! Rust would print the panic on the standard error. Here a panic becomes a
//! `thunderhead.InternalError`. Its outcome is unknown, because an update may have been sent.

use crate::{errors, interrupt};
use pyo3::prelude::*;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// The text and the place of this thread's last panic.
    static PANIC: Cell<Option<String>> = const { Cell::new(None) };
}

/// Keeps panics of this library off the standard error. Other libraries of the process have hooks
/// of their own, because each has its own copy of Rust's standard library.
pub(crate) fn silence() {
    std::panic::set_hook(Box::new(|info| PANIC.set(Some(info.to_string()))));
}

/// Runs `work`, and turns a panic into an error of Python.
#[inline]
pub(crate) fn guarded<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    // A client whose operation panicked is not used again (`ClientPool::with`), and the other state
    // is only changed in single steps.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(_) => {
            // An exception of a signal's handler belongs to the operation that panicked.
            drop(interrupt::take_raised());
            Err(errors::internal(PANIC.take()))
        }
    }
}

/// Panics, for the test of the border.
#[pyfunction]
#[pyo3(name = "_panic_for_test")]
pub(crate) fn panic_for_test() -> PyResult<()> {
    guarded(|| panic!("a test wants it"))
}
