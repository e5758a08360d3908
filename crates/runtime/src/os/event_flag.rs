//! A descriptor that one thread makes readable and another waits for.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A flag that is set or not. Its descriptor is readable while it is set.
#[derive(Debug)]
pub struct EventFlag(OwnedFd);

impl EventFlag {
    /// Returns a flag that is not set.
    ///
    /// # Errors
    /// If the kernel refuses an event descriptor.
    pub fn new() -> io::Result<EventFlag> {
        Ok(EventFlag(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Sets the flag.
    pub fn set(&self) {
        // The write fails only if the flag is set already, many times over.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Clears the flag.
    pub fn clear(&self) {
        // The read fails only if the flag is not set.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// Whether it is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Returns its descriptor.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_stays_set_until_it_is_cleared() {
        let flag = EventFlag::new().unwrap();
        assert!(!flag.is_set());
        flag.clear();
        for _ in 0..3 {
            flag.set();
        }
        assert!(flag.is_set() && flag.is_set());
        flag.clear();
        assert!(!flag.is_set());
    }
}
