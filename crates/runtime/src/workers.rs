//! Workers: work beside the reactor that must wait for a device, such as writing a journal or
//! reading segments.
//!
//! A worker is a state machine with a [`Worker::step`]. In the os world its own thread calls that
//! in a loop and sleeps when there is no work. In the simulator, steps are interleaved with turns.
//! Reactor and worker share memory, mostly a queue behind a mutex. The reactor wakes the worker
//! through a [`WorkerBell`], the worker wakes the reactor through its
//! [`Alarm`](crate::alarm::Alarm).

use crate::files::Files;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Whether a worker has more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call again at once.
    Again,
    /// Call again after the bell was rung.
    Idle,
}

/// A state machine that works beside the reactor.
pub trait Worker: Send {
    /// Does a bounded piece of work.
    fn step(&mut self, files: &mut dyn Files) -> Step;

    /// Whether it mostly waits for a device and then works only for a moment. If it shares a
    /// processor with the reactor, it goes first.
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
    /// Returns a bell that is ringing, because a new worker needs a first step.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only worlds make bells")]
    pub fn new() -> WorkerBell {
        let bell = Bell { rung: AtomicBool::new(true), ..Bell::default() };
        WorkerBell(Arc::new(bell))
    }

    /// Makes the worker take a step soon.
    pub fn ring(&self) {
        if !self.0.rung.swap(true, Ordering::SeqCst) {
            let asleep = *self.0.asleep.lock().unwrap_or_else(PoisonError::into_inner);
            // Without the lock: on the same processor the worker may run at once, and would have to
            // wait for it.
            if asleep {
                self.0.wakes.notify_one();
            }
        }
    }

    /// Takes a ring. Returns whether there was one.
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

/// Starts workers, in both worlds.
pub trait Workers {
    /// Starts a worker. It ends with the process, after its present step.
    ///
    /// # Errors
    /// If the machine refuses another thread.
    fn start(&mut self, name: &str, worker: Box<dyn Worker>) -> std::io::Result<WorkerBell>;
}
