//! Threads for cleaners, for programs that use the log as a library.
//!
//! A server steps its cleaners from its own runtime. A program that only wants its memory kept
//! clean starts these threads and forgets about them. They stop when the value is dropped.

use super::{Cleaner, Step};
use crate::append::Log;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long an idle cleaner sleeps, at first and at most. The first sleep lasts a few kilobytes of
/// writes; the longest costs an idle log a hundredth of a percent of a core.
const REST_MIN: Duration = Duration::from_micros(10);
const REST_MAX: Duration = Duration::from_millis(5);

/// Steps that an idle cleaner tries again at once before it sleeps, because work often comes in
/// bursts.
const TRIES: u32 = 64;

/// Runs cleaners of a log on threads of their own until it is dropped.
pub struct CleanerThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl CleanerThreads {
    /// Starts `count` threads, but never more than [`CLEANERS_MAX`] cleaners of this log in all:
    /// see [`CleanerThreads::count`]. `on_start` runs on each thread first, for example to pin it
    /// to a core.
    ///
    /// [`CLEANERS_MAX`]: crate::CLEANERS_MAX
    #[expect(
        clippy::disallowed_methods,
        reason = "threads for programs without a runtime; a server steps its cleaners itself"
    )]
    pub fn start(
        log: &Log,
        count: usize,
        on_start: impl Fn(usize) + Send + Clone + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count)
            .filter_map(|number| log.cleaner().map(|cleaner| (number, cleaner)))
            .map(|(number, cleaner)| {
                let (stop, on_start) = (Arc::clone(&stop), on_start.clone());
                std::thread::spawn(move || {
                    on_start(number);
                    run(cleaner, &stop);
                })
            })
            .collect();
        CleanerThreads { stop, threads }
    }

    /// How many threads were started.
    #[must_use]
    pub fn count(&self) -> usize {
        self.threads.len()
    }
}

#[expect(clippy::disallowed_methods, reason = "as above")]
fn run(mut cleaner: Cleaner, stop: &AtomicBool) {
    let (mut idle, mut rest) = (0, REST_MIN);
    while !stop.load(Ordering::Relaxed) {
        if cleaner.step() != Step::Idle {
            (idle, rest) = (0, REST_MIN);
            continue;
        }
        idle += 1;
        if idle > TRIES {
            std::thread::sleep(rest);
            rest = (rest * 2).min(REST_MAX);
        } else {
            std::hint::spin_loop();
        }
    }
}

impl Drop for CleanerThreads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The panic of a cleaner was already reported; there is nothing to add here.
            let _ = thread.join();
        }
    }
}
