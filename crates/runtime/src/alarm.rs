//! Wakes a sleeping reactor from another thread.
//!
//! No wake-up is lost. A thread that rings first records that there is work, then checks whether
//! the reactor sleeps. The reactor first records that it sleeps, then checks whether there is work.
//! Both orders are sequentially consistent, so at least one side sees the other.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A reactor's alarm. Clones ring the same alarm.
#[derive(Clone, Debug)]
pub struct Alarm(Arc<State>);

#[derive(Debug)]
struct State {
    rung: AtomicBool,
    asleep: AtomicBool,
    /// The descriptor on which a reactor sleeps in the kernel. A simulated reactor needs none.
    bell: Option<OwnedFd>,
}

impl Alarm {
    /// Returns an alarm for a reactor that sleeps in the kernel.
    ///
    /// # Errors
    /// If the kernel refuses an event descriptor.
    pub fn os() -> std::io::Result<Alarm> {
        use rustix::event::{EventfdFlags, eventfd};
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Alarm::with(Some(bell)))
    }

    /// Returns an alarm for a simulated reactor.
    #[must_use]
    pub fn sim() -> Alarm {
        Alarm::with(None)
    }

    fn with(bell: Option<OwnedFd>) -> Alarm {
        Alarm(Arc::new(State { rung: false.into(), asleep: false.into(), bell }))
    }

    /// Makes the reactor take a turn soon.
    pub fn ring(&self) {
        self.0.rung.store(true, Ordering::SeqCst);
        if self.0.asleep.swap(false, Ordering::SeqCst)
            && let Some(bell) = &self.0.bell
        {
            // The write fails only if the bell is ringing already.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    /// Takes a ring. Returns whether there was one since the last call.
    #[inline]
    pub fn was_rung(&self) -> bool {
        self.0.rung.load(Ordering::Relaxed) && self.0.rung.swap(false, Ordering::SeqCst)
    }

    /// Whether it is ringing.
    #[must_use]
    pub fn is_ringing(&self) -> bool {
        self.0.rung.load(Ordering::SeqCst)
    }

    /// Records that the reactor is going to sleep. Returns false if it must not.
    #[must_use]
    pub fn go_to_sleep(&self) -> bool {
        self.0.asleep.store(true, Ordering::SeqCst);
        let may = !self.0.rung.load(Ordering::SeqCst);
        if !may {
            self.0.asleep.store(false, Ordering::SeqCst);
        }
        may
    }

    /// Records that the reactor is awake. `by_bell` says whether the bell woke it.
    pub fn wake_up(&self, by_bell: bool) {
        self.0.asleep.store(false, Ordering::SeqCst);
        if by_bell && let Some(bell) = &self.0.bell {
            let mut count = [0; 8];
            let _ = rustix::io::read(bell, &mut count);
        }
    }

    /// Returns the descriptor that becomes readable when the alarm rings while the reactor sleeps.
    #[must_use]
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.0.bell.as_ref().map(AsFd::as_fd)
    }
}
