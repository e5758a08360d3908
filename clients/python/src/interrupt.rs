//! Signals: a waiting thread lets the interpreter handle them every few milliseconds.
//!
//! A handler may raise any exception: `KeyboardInterrupt` for Ctrl-C, or an exception of its own.
//! The exception ends the operation, and then it is raised.

use pyo3::prelude::*;
use std::cell::Cell;
use std::time::Duration;

/// How often a waiting thread looks for signals. Ctrl-C is answered within 100 ms.
pub(crate) const EVERY: Duration = Duration::from_millis(40);

thread_local! {
    /// The exception that a handler of a signal raised on this thread.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Handles pending signals, on the interpreter's main thread only. Returns whether the operation
/// shall end: a handler raised an exception, or the interpreter is shutting down.
pub(crate) fn is_wanted() -> bool {
    let checked = Python::try_attach(|py| py.check_signals());
    match checked {
        Some(Ok(())) => false,
        Some(Err(error)) => {
            RAISED.set(Some(error));
            true
        }
        None => true,
    }
}

/// Takes the exception that a handler raised during the last operation of this thread.
#[inline]
pub(crate) fn take_raised() -> Option<PyErr> {
    RAISED.take()
}
