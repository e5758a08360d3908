//! A completion queue and the thread of Java that waits for it.

use crate::outcome::Failure;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use thunderhead_bindings::ByteQueue;
use thunderhead_client::Error;
use thunderhead_runtime::os::EventFlag;

/// A completion queue that one thread waits for.
pub(crate) struct Queue {
    pub(crate) bytes: ByteQueue,
    /// Set to make the thread return although there is no completion.
    woken: EventFlag,
}

impl Queue {
    pub(crate) fn of(bytes: ByteQueue) -> Result<Queue, Error> {
        let woken = EventFlag::new().map_err(|error| Error::System(error.kind()))?;
        Ok(Queue { bytes, woken })
    }

    /// Makes the thread in [`Queue::take`] return.
    pub(crate) fn wake(&self) {
        self.woken.set();
    }

    /// Waits for completions. Appends their number in 4 bytes, then their own bytes, until there
    /// are at least this many bytes. There are none if the thread was woken.
    pub(crate) fn take(&self, bytes: usize, into: &mut Vec<u8>) -> Result<(), Failure> {
        loop {
            into.clear();
            into.extend([0; 4]);
            let count = self.bytes.take_bytes(bytes, into);
            if count > 0 {
                into[..4].copy_from_slice(&u32::try_from(count).unwrap_or(0).to_le_bytes());
                return Ok(());
            }
            let mut both = [
                PollFd::from_borrowed_fd(self.bytes.descriptor(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.woken.descriptor(), PollFlags::IN),
            ];
            match poll(&mut both, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(Failure::System(io::Error::from(error))),
            }
            if !both[1].revents().is_empty() {
                self.woken.clear();
                return Ok(());
            }
        }
    }
}
