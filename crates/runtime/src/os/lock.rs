//! A file under an exclusive lock of this process.
//!
//! The kernel gives such a lock to the open file. A child process shares the file from its fork
//! until it runs another program. So in a process that starts programs from other threads, closing
//! the file might not end the lock at once, and a store could not be opened again right after it
//! was closed. Therefore the lock is ended before the file is closed.

use rustix::fs::{FlockOperation, flock};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A file that is locked against other processes until it is dropped.
#[derive(Debug)]
pub(crate) struct LockedFile(OwnedFd);

impl LockedFile {
    /// Locks a file, without waiting for another process that has the lock.
    pub(super) fn new(file: OwnedFd) -> rustix::io::Result<LockedFile> {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(LockedFile(file))
    }
}

impl AsFd for LockedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // If it fails, the lock ends with the last descriptor of the file.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open, unlink};
    use rustix::io::Errno;

    #[test]
    fn a_lock_ends_even_if_a_child_still_shares_the_file() {
        let path = std::env::temp_dir().join(format!("thunderhead-locked-{}", std::process::id()));
        let lock = || {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
            LockedFile::new(open(&path, flags, Mode::RUSR | Mode::WUSR).unwrap())
        };
        let locked = lock().unwrap();
        // The shared file of a child between its fork and the program that it runs.
        let shared = rustix::io::dup(&locked).unwrap();
        assert_eq!(lock().unwrap_err(), Errno::WOULDBLOCK);
        drop(locked);
        drop(lock().unwrap());
        drop(shared);
        unlink(&path).unwrap();
    }
}
