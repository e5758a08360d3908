//! Panics become exceptions of JavaScript.

use napi::{Error, Result, Status};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, Once, PoisonError};

/// The message and the place of the latest panic.
static LATEST: Mutex<Option<String>> = Mutex::new(None);

/// Keeps the message of each panic instead of printing it. A library does not write to the standard
/// error of its user's program.
pub(crate) fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let text = panic.to_string().replace('\n', " ");
            *LATEST.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        }));
    });
}

/// Returns the message of the latest panic, also of a driver thread.
pub(crate) fn latest() -> Option<String> {
    LATEST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Runs code of the library. A panic becomes an exception.
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        Err(Error::new(Status::GenericFailure, latest().unwrap_or_else(|| "a panic".to_owned())))
    })
}
