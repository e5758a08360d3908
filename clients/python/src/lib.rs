//! The native module of the Python package `thunderhead`: `thunderhead._core`.
//!
//! It is separate from the package's Python files because a call through this module costs less
//! than a microsecond more than the same call in Rust. The Python files keep the parts of which no
//! call depends: the classes of errors and results, and the coroutines of `thunderhead.aio`.
//!
//! - `sync`: clients for threads that wait. The calling thread does the I/O, without the
//!   interpreter's lock.
//! - `queue`: clients for event loops. One wake-up of the loop delivers all results.
//!
//! It promises that no call ends in a panic, in a line on the standard error, or in an endless
//! wait. See `guard` and `interrupt`.

// PyO3's macros write the functions with C's calling convention, which are unsafe. No unsafe code
// is written by hand here.
#![deny(unsafe_code)]

mod arguments;
mod control;
mod errors;
mod future;
mod guard;
mod interrupt;
mod names;
mod queue;
mod results;
mod sync;

use pyo3::prelude::*;

/// The native module of the package `thunderhead`. Use the package, not this module.
#[pymodule]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::future::Future;
    #[pymodule_export]
    use super::guard::panic_for_test;
    #[pymodule_export]
    use super::names::Target;
    #[pymodule_export]
    use super::queue::{Pages, Queue};
    #[pymodule_export]
    use super::sync::{Client, Scan, Table, connect};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::guard::silence();
        super::results::prepare(module.py())
    }
}
