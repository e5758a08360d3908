//! The file of the embedded store, and redb's access to it.
//!
//! The store locks the file itself. It keeps the lock while it closes redb and opens it again after
//! a failed input or output. redb's own lock ends when redb is closed: another process could then
//! take the file while this one still believes in leases that it granted.

use crate::error::OpenError;
use redb::StorageBackend;
use rustix::fs::{Advice, MemfdFlags, fadvise, memfd_create};
use std::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thunderhead_runtime::os::{Access, open_trusted};

/// A file under an exclusive lock, which lasts until the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct LockedFile {
    file: Arc<Held>,
    #[cfg(test)]
    pub(super) faults: Arc<Faults>,
}

/// A locked file.
#[derive(Debug)]
struct Held(File);

impl Deref for Held {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A child process that another thread starts shares the file and its lock until it runs its
        // program. So closing the file alone might not end the lock at once.
        let _ = self.0.unlock();
    }
}

/// The failures that tests cause.
#[cfg(test)]
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Writes fail, as on a full disk.
    pub(super) full: AtomicBool,
    /// Reads, writes and syncs fail.
    pub(super) broken: AtomicBool,
}

#[cfg(test)]
impl Faults {
    fn check(&self, writes: bool) -> io::Result<()> {
        let is_full = writes && self.full.load(Ordering::Relaxed);
        match (is_full, self.broken.load(Ordering::Relaxed)) {
            (true, _) => Err(io::ErrorKind::StorageFull.into()),
            (_, true) => Err(io::Error::other("the device does not answer")),
            _ => Ok(()),
        }
    }
}

impl LockedFile {
    /// Opens and locks an existing file.
    pub(super) fn open(path: &Path) -> Result<LockedFile, OpenError> {
        LockedFile::lock(open_trusted(path, Access::Write)?, path)
    }

    /// Makes and locks a file.
    pub(super) fn make(path: &Path) -> Result<LockedFile, OpenError> {
        LockedFile::lock(open_trusted(path, Access::Make)?, path)
    }

    /// Makes a file in memory without a name. It is gone with this process.
    pub(super) fn in_memory(path: &Path) -> Result<LockedFile, OpenError> {
        let file = memfd_create("thunderhead-metastore", MemfdFlags::CLOEXEC);
        LockedFile::lock(file.map_err(io::Error::from)?.into(), path)
    }

    fn lock(file: File, path: &Path) -> Result<LockedFile, OpenError> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { path: path.display().to_string() });
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let file = Arc::new(Held(file));
        #[cfg(test)]
        return Ok(LockedFile { file, faults: Arc::default() });
        #[cfg(not(test))]
        Ok(LockedFile { file })
    }

    /// Returns the length of the file.
    pub(super) fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Whether the path still names this file. It does not after its file system was mounted anew,
    /// or after an operator put a copy in its place.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let (own, there) = (self.file.metadata(), std::fs::metadata(path));
        own.ok()
            .zip(there.ok())
            .is_some_and(|(own, there)| (own.dev(), own.ino()) == (there.dev(), there.ino()))
    }

    /// Makes later reads return the device's contents. After a failed sync the kernel's cache holds
    /// bytes that the device never got, and counts them as written.
    pub(super) fn drop_unwritten(&self) -> io::Result<()> {
        self.check(true)?;
        self.file.sync_all()?;
        Ok(fadvise(&**self.file, 0, None, Advice::DontNeed)?)
    }

    #[cfg(test)]
    fn check(&self, writes: bool) -> io::Result<()> {
        self.faults.check(writes)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests make it fail")]
    fn check(&self, _writes: bool) -> io::Result<()> {
        Ok(())
    }
}

/// The backend through which redb reads and writes. It notes a failed operation: redb refuses
/// everything from then on.
#[derive(Debug)]
pub(super) struct Backend {
    file: LockedFile,
    has_failed: Arc<AtomicBool>,
}

impl Backend {
    /// Returns a backend, and the flag that it raises when an operation fails.
    pub(super) fn new(file: LockedFile) -> (Backend, Arc<AtomicBool>) {
        let has_failed = Arc::new(AtomicBool::new(false));
        (Backend { file, has_failed: Arc::clone(&has_failed) }, has_failed)
    }

    fn noted<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        if outcome.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        outcome
    }

    fn done<T>(&self, writes: bool, act: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        self.noted(self.file.check(writes).and_then(|()| act(&self.file.file)))
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.done(false, |file| Ok(file.metadata()?.len()))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.done(false, |file| file.read_exact_at(out, offset))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.done(true, |file| file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.done(true, File::sync_data)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.done(true, |file| file.write_all_at(data, offset))
    }
}
