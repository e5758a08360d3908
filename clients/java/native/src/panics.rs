//! Panics of this library, which belong into an exception of Java and not on the standard error.

use std::cell::RefCell;

thread_local! {
    /// The last panic of this thread.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the text of each panic in place of printing it. The hook is that of this library alone,
/// which has a copy of Rust's library of its own.
pub(crate) fn silence() {
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.to_string();
        // A thread that ends has no such memory any more.
        let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    }));
}

/// Returns the text of this thread's last panic.
pub(crate) fn last() -> String {
    LAST.take()
}
