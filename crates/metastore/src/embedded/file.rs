//! The file of the embedded store, and redb's way to it.
//!
//! The store locks the file itself, and keeps the lock while it closes redb and opens it again after an
//! input or output failed. redb's own lock ends when redb is closed: another process could take the file then,
//! while this one still believes in leases that it granted.

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

/// A file that is locked.
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
        // A child of another thread shares the file, and with it the lock, until it runs its program: to
        // close the file would not end the lock at once.
        let _ = self.0.unlock();
    }
}

/// What tests make fail.
#[cfg(test)]
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Nothing more can be written, as on a full disk.
    pub(super) full: AtomicBool,
    /// Nothing can be read, written or synced.
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
    /// Opens and locks a file that is there.
    pub(super) fn open(path: &Path) -> Result<LockedFile, OpenError> {
        LockedFile::lock(open_trusted(path, Access::Write)?, path)
    }

    /// Makes and locks a file.
    pub(super) fn make(path: &Path) -> Result<LockedFile, OpenError> {
        LockedFile::lock(open_trusted(path, Access::Make)?, path)
    }

    /// A file in memory that has no name: it is gone with this process.
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

    /// Bytes of the file.
    pub(super) fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Whether the path still names this file. It does not after its file system was mounted anew, or after an
    /// operator put a copy in its place.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let (own, there) = (self.file.metadata(), std::fs::metadata(path));
        own.ok()
            .zip(there.ok())
            .is_some_and(|(own, there)| (own.dev(), own.ino()) == (there.dev(), there.ino()))
    }

    /// Makes later reads return what the device holds. After a failed sync the kernel's cache shows bytes that
    /// the device never got, and takes them for written.
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

/// What redb reads and writes. It notes that an operation failed: redb refuses everything from then on.
#[derive(Debug)]
pub(super) struct Backend {
    file: LockedFile,
    has_failed: Arc<AtomicBool>,
}

impl Backend {
    /// A backend, and the flag that it raises when an operation fails.
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
