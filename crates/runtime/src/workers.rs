//! Work that must wait for a device, beside the reactor: writing a journal, reading segments.
//!
//! A worker is a state machine with a [`Worker::step`]. In the os world a thread of its own calls
//! that in a loop and sleeps when there is nothing to do; in the simulator steps are interleaved
//! with turns. Reactor and worker share what they like (a queue behind a mutex, mostly); the
//! reactor wakes the worker through a [`WorkerBell`], the worker the reactor through its
//! [`Alarm`](crate::alarm::Alarm).

use crate::files::Files;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Whether a worker has more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call again at once.
    Again,
    /// Call again when the bell was rung.
    Idle,
}

/// Something that works beside the reactor.
pub trait Worker: Send {
    /// Does a bounded piece of work.
    fn step(&mut self, files: &mut dyn Files) -> Step;

    /// Whether it mostly waits for a device, and works for a moment when that is done: on a processor that it shares
    /// it then goes first.
    fn waits_for_devices(&self) -> bool {
        false
    }
}

/// Wakes a worker.
#[derive(Clone, Debug)]
pub struct WorkerBell(Arc<Bell>);

#[derive(Debug, Default)]
struct Bell {
    rung: AtomicBool,
    asleep: Mutex<bool>,
    wakes: Condvar,
}

impl WorkerBell {
    /// A bell that is ringing: a new worker has a first step.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only worlds make bells")]
    pub fn new() -> WorkerBell {
        let bell = Bell { rung: AtomicBool::new(true), ..Bell::default() };
        WorkerBell(Arc::new(bell))
    }

    /// Sees to it that the worker has a step soon.
    pub fn ring(&self) {
        if !self.0.rung.swap(true, Ordering::SeqCst) {
            let asleep = *self.0.asleep.lock().unwrap_or_else(PoisonError::into_inner);
            // Without the lock: on the same processor it may run at once, and would have to wait for it.
            if asleep {
                self.0.wakes.notify_one();
            }
        }
    }

    /// Takes a ring, if there is one.
    #[must_use]
    pub fn was_rung(&self) -> bool {
        self.0.rung.swap(false, Ordering::SeqCst)
    }

    /// Whether it is ringing.
    #[must_use]
    pub fn is_ringing(&self) -> bool {
        self.0.rung.load(Ordering::SeqCst)
    }

    /// Waits for a ring.
    pub(crate) fn wait(&self) {
        let mut asleep = self.0.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.0.rung.load(Ordering::SeqCst) {
            *asleep = true;
            asleep = self.0.wakes.wait(asleep).unwrap_or_else(PoisonError::into_inner);
        }
        *asleep = false;
    }
}

/// Starts workers, in either world.
pub trait Workers {
    /// Starts a worker. It ends with the process, after the step it is in.
    ///
    /// # Errors
    /// When there can be no further thread.
    fn start(&mut self, name: &str, worker: Box<dyn Worker>) -> std::io::Result<WorkerBell>;
}
