//! Wakes a sleeping reactor from another thread.
//!
//! No wake-up is lost: who rings first says that something is there and then looks whether the
//! reactor sleeps; the reactor first says that it sleeps and then looks whether something is
//! there. Both in sequentially consistent order, so at least one of them sees the other.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A reactor's alarm. Clones ring the same one.
#[derive(Clone, Debug)]
pub struct Alarm(Arc<State>);

#[derive(Debug)]
struct State {
    rung: AtomicBool,
    asleep: AtomicBool,
    /// What a reactor that sleeps in the kernel waits for. A simulated one does not need it.
    bell: Option<OwnedFd>,
}

impl Alarm {
    /// An alarm for a reactor that sleeps in the kernel.
    ///
    /// # Errors
    /// When the kernel gives no event descriptor.
    pub fn os() -> std::io::Result<Alarm> {
        use rustix::event::{EventfdFlags, eventfd};
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Alarm::with(Some(bell)))
    }

    /// An alarm for a simulated reactor.
    #[must_use]
    pub fn sim() -> Alarm {
        Alarm::with(None)
    }

    fn with(bell: Option<OwnedFd>) -> Alarm {
        Alarm(Arc::new(State { rung: false.into(), asleep: false.into(), bell }))
    }

    /// Sees to it that the reactor has a turn soon.
    pub fn ring(&self) {
        self.0.rung.store(true, Ordering::SeqCst);
        if self.0.asleep.swap(false, Ordering::SeqCst)
            && let Some(bell) = &self.0.bell
        {
            // It can only fail because it is ringing already.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    /// Whether it was rung since the last time this was asked.
    #[inline]
    pub fn was_rung(&self) -> bool {
        self.0.rung.load(Ordering::Relaxed) && self.0.rung.swap(false, Ordering::SeqCst)
    }

    /// Whether it is ringing.
    #[must_use]
    pub fn is_ringing(&self) -> bool {
        self.0.rung.load(Ordering::SeqCst)
    }

    /// The reactor says that it is going to sleep; false when it must not.
    #[must_use]
    pub fn go_to_sleep(&self) -> bool {
        self.0.asleep.store(true, Ordering::SeqCst);
        let may = !self.0.rung.load(Ordering::SeqCst);
        if !may {
            self.0.asleep.store(false, Ordering::SeqCst);
        }
        may
    }

    /// The reactor says that it is awake; whether it was the bell that woke it.
    pub fn wake_up(&self, by_bell: bool) {
        self.0.asleep.store(false, Ordering::SeqCst);
        if by_bell && let Some(bell) = &self.0.bell {
            let mut count = [0; 8];
            let _ = rustix::io::read(bell, &mut count);
        }
    }

    /// What becomes readable when it rings while the reactor sleeps.
    #[must_use]
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.0.bell.as_ref().map(AsFd::as_fd)
    }
}
