//! Requests to end: Ctrl-C, or a service manager's signal.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The exit status of a process that is asked a second time to end: shells report the same
/// after Ctrl-C.
const ENDED_AT_ONCE: i32 = 130;

/// Calls `act`, on a thread of its own, when the process is asked to end. A second request ends the
/// process at once.
///
/// # Errors
/// If the kernel has no more descriptors or threads.
pub fn on_end_asked(mut act: impl FnMut() + Send + 'static) -> io::Result<()> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal must not see the flag that it sets.
        flag::register_conditional_shutdown(signal, ENDED_AT_ONCE, Arc::clone(&asked))?;
        flag::register(signal, Arc::clone(&asked))?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            act();
        }
    })?;
    Ok(())
}
