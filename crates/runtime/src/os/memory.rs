//! Memory that outlasts the process: mapped files of a file system that lives in memory.
//!
//! It is separate because mapping is unsafe. This module gives out slices of atomic words and never
//! sees the mapping as any other type: another thread may write any word at any time, and so may,
//! in theory, another process of the same user. All pages are allocated when a memory is made, so a
//! machine with too little memory reports it then, and not by a signal later. This module cannot
//! prevent a process with the same rights from truncating the file while it is in use. The kernel
//! then kills this process by SIGBUS, as by any signal that its user may send.

#![allow(unsafe_code, reason = "mapping memory, and lending it to the kernel")]

use super::lock::LockedFile;
use super::trust::{OwnDirectory, at, check_directory, refusal};
use crate::files::check_name;
use crate::lasting::{LastingMemory, Memories, WORD_BYTES, WrongOwner};
use rustix::fs::{
    Access, FallocateFlags, FileType, Mode, OFlags, Stat, access, fallocate, fstat, ftruncate,
    lstat, open, stat, statvfs, unlink,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

/// The directory of Linux's file system in memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// The file of a number that Linux draws at each start.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Lasting memories as files of a directory.
#[derive(Clone, Debug)]
pub struct MemoryDirectory {
    path: PathBuf,
    /// Memories are only read.
    reads_only: bool,
    /// Memories of this user are found too.
    also_of: Option<u32>,
    /// Files that this process has locked, by their names.
    held: BTreeMap<String, Weak<LockedFile>>,
}

impl Default for MemoryDirectory {
    /// Returns the machine's own directory.
    fn default() -> Self {
        MemoryDirectory::at(Path::new(SHARED_MEMORY))
    }
}

impl MemoryDirectory {
    /// Returns the memories of another directory, which should be in a file system in memory. On a
    /// disk everything works too, but the kernel writes changes out whenever it likes.
    #[must_use]
    pub fn at(path: &Path) -> MemoryDirectory {
        // Processes that start in other directories look for this path later.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        MemoryDirectory { path, reads_only: false, also_of: None, held: BTreeMap::new() }
    }

    /// Returns the same memories for inspecting the remains of a process: makes, changes and
    /// removes nothing. Finds the memories of `owner` as well as those of this process's user.
    #[must_use]
    pub fn read_only(self, owner: Option<u32>) -> MemoryDirectory {
        MemoryDirectory { reads_only: true, also_of: owner, ..self }
    }

    fn check_writable(&self) -> io::Result<()> {
        match self.reads_only {
            true => Err(io::Error::new(io::ErrorKind::Unsupported, "memories are only read")),
            false => Ok(()),
        }
    }

    /// Opens the file of a memory. Returns `None` if there is none.
    fn open_known(&self, path: &Path) -> io::Result<Option<OwnedFd>> {
        let access = if self.reads_only { OFlags::RDONLY } else { OFlags::RDWR };
        // A pipe with this name must not make the process wait.
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let named = match lstat(path) {
            Ok(named) => named,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        check_own(&named, path, self.also_of)?;
        match open(path, flags, Mode::empty()) {
            Ok(file) => {
                // The name may have become another file's since.
                check_own(&fstat(&file)?, path, self.also_of)?;
                Ok(Some(file))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn path_of(&self, name: &str) -> io::Result<PathBuf> {
        check_name(name)?;
        let place = OwnDirectory::of(&self.path, self.reads_only)?;
        check_directory(&place.inner, &stat(&place.inner)?)?;
        place.file(name)
    }

    /// Refuses a size for which the file system has no room. The refusal says how much room there
    /// is.
    fn check_room(&self, bytes: u64) -> io::Result<()> {
        let room = statvfs(&self.path)?;
        let mib = |blocks: u64| blocks.saturating_mul(room.f_frsize) >> 20;
        // A file system without a limit reports no blocks at all.
        if room.f_blocks == 0 || room.f_bavail.saturating_mul(room.f_frsize) >= bytes {
            return Ok(());
        }
        let why = format!(
            "{} has {} MiB free of {} MiB",
            self.path.display(),
            mib(room.f_bavail),
            mib(room.f_blocks)
        );
        Err(io::Error::new(io::ErrorKind::StorageFull, why))
    }

    /// Returns the file of a name, locked against other processes, or `None` if there is none.
    fn locked(&mut self, name: &str) -> io::Result<Option<Arc<LockedFile>>> {
        let path = self.path_of(name)?;
        loop {
            let own = self.held.get(name).and_then(Weak::upgrade);
            let file = match own {
                Some(own) => own,
                None => match self.open_known(&path)? {
                    Some(file) => Arc::new(lock(file, &path)?),
                    None => return Ok(None),
                },
            };
            // Its former process may have removed or replaced it since it was opened.
            if !is_at(&file, &path)? {
                self.held.remove(name);
                continue;
            }
            self.held.insert(name.to_owned(), Arc::downgrade(&file));
            return Ok(Some(file));
        }
    }
}

/// Refuses a file that is not regular or belongs to another user than this process's user and
/// `or_of`, or to which further users have rights.
fn check_own(file: &Stat, path: &Path, or_of: Option<u32>) -> io::Result<()> {
    let path = path.display();
    if FileType::from_raw_mode(file.st_mode) != FileType::RegularFile {
        return Err(refusal(format!("{path} is not a regular file; remove it")));
    }
    let (user, own) = (file.st_uid, geteuid().as_raw());
    if user != own && or_of != Some(user) {
        let why = WrongOwner { path: path.to_string(), user, own };
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let rights = file.st_mode & 0o7777;
    if rights & 0o077 != 0 {
        let why = format!("other users have rights to {path}, which has mode {rights:o}");
        return Err(refusal(format!(
            "{why}: take them away (chmod 600) if no other user can have changed it; it may hold data that is not on the disk yet"
        )));
    }
    Ok(())
}

/// Locks a file for this process.
fn lock(file: OwnedFd, path: &Path) -> io::Result<LockedFile> {
    match LockedFile::new(file) {
        Ok(locked) => Ok(locked),
        Err(Errno::WOULDBLOCK) => Err(in_use(path)),
        Err(error) => Err(error.into()),
    }
}

fn in_use(path: &Path) -> io::Error {
    let why = format!("another process has {}", path.display());
    io::Error::new(io::ErrorKind::WouldBlock, why)
}

/// Whether a path leads to this file.
fn is_at(file: &LockedFile, path: &Path) -> io::Result<bool> {
    let own = fstat(file)?;
    match lstat(path) {
        Ok(there) => Ok((there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl Memories for MemoryDirectory {
    fn find(&mut self, name: &str) -> io::Result<Option<LastingMemory>> {
        let Some(file) = self.locked(name)? else { return Ok(None) };
        let bytes = fstat(&file)?.st_size as usize / WORD_BYTES * WORD_BYTES;
        if bytes == 0 {
            return Ok(None);
        }
        // Memory that is only read is a copy: no write to it would reach the file.
        let kind = if self.reads_only { MapFlags::PRIVATE } else { MapFlags::SHARED };
        map(&file, bytes, kind).map(Some)
    }

    fn make(&mut self, name: &str, bytes: usize) -> io::Result<LastingMemory> {
        self.check_writable()?;
        let path = self.path_of(name)?;
        // The lock of the former file keeps other processes away until the new one is locked.
        let before = self.locked(name)?;
        self.remove(name)?;
        // The former file's pages would remain until that lock ends, and there may be no room for
        // both. A mapping of the file holds the lock too, so the file is truncated only if it is
        // not mapped.
        if let Some(before) = before.as_ref().filter(|it| Arc::strong_count(it) == 1) {
            ftruncate(before, 0)?;
        }
        let page = rustix::param::page_size();
        let bytes = bytes.max(1).div_ceil(page) * page;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match open(
            &path,
            flags | OFlags::CREATE | OFlags::EXCL,
            // No other user may read the clients' data.
            Mode::RUSR | Mode::WUSR,
        ) {
            Ok(file) => Arc::new(lock(file, &path)?),
            Err(Errno::EXIST) => return Err(in_use(&path)),
            Err(error) => return Err(error.into()),
        };
        // Every page is allocated now: a hole that could not be filled later would end in a signal.
        let made = self
            .check_room(bytes as u64)
            .and_then(|()| Ok(ftruncate(&file, bytes as u64)?))
            .and_then(|()| Ok(fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?))
            .and_then(|()| map(&file, bytes, MapFlags::SHARED));
        match made {
            Ok(_) => _ = self.held.insert(name.to_owned(), Arc::downgrade(&file)),
            Err(_) => _ = unlink(&path),
        }
        made
    }

    fn check(&mut self, bytes: usize) -> io::Result<()> {
        let OwnDirectory { inner, .. } = OwnDirectory::of(&self.path, self.reads_only)?;
        let may = Access::WRITE_OK | Access::EXEC_OK;
        access(&inner, may).map_err(|error| at(&inner, error.into()))?;
        self.check_room(bytes as u64)
    }

    fn place(&self) -> Option<String> {
        self.path.to_str().map(str::to_owned)
    }

    fn elsewhere(&self, place: &str) -> io::Result<Box<dyn Memories>> {
        let (path, held) = (PathBuf::from(place), BTreeMap::new());
        Ok(Box::new(MemoryDirectory { path, held, ..self.clone() }))
    }

    fn boot(&mut self) -> io::Result<u64> {
        let id = std::fs::read_to_string(BOOT_ID)?;
        let digits: String = id.chars().filter(char::is_ascii_hexdigit).collect();
        let id = u128::from_str_radix(&digits, 16);
        let id = id.map_err(|_| io::Error::other(format!("{BOOT_ID} does not hold a boot id")))?;
        Ok(id as u64 ^ (id >> 64) as u64)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.check_writable()?;
        let path = self.path_of(name)?;
        let Some(_locked) = self.locked(name)? else { return Ok(()) };
        self.held.remove(name);
        match unlink(path) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Maps so many bytes of a file, a multiple of a word.
fn map(file: &Arc<LockedFile>, bytes: usize, kind: MapFlags) -> io::Result<LastingMemory> {
    // SAFETY: a new mapping at an address of the kernel's choice changes no memory that this
    // process has.
    let address = unsafe {
        mmap(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            // Populated in advance, so that no turn waits for a page.
            kind | MapFlags::POPULATE,
            file.as_fd(),
            0,
        )
    }?;
    let address = NonNull::new(address.cast::<AtomicU64>())
        .ok_or_else(|| io::Error::other("the system mapped memory at address 0"))?;
    let words = bytes / WORD_BYTES;
    Ok(LastingMemory::new(Mapping { address, words, _file: Arc::clone(file) }))
}

/// A mapped file. It is unmapped when it is dropped.
struct Mapping {
    address: NonNull<AtomicU64>,
    words: usize,
    /// The lock belongs to the mapping.
    _file: Arc<LockedFile>,
}

// SAFETY: the mapping belongs to this value until it is dropped, on any thread, and is reached as
// atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above; atomics are made for being shared.
unsafe impl Sync for Mapping {}

impl Deref for Mapping {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the address is that of a readable and writable mapping of this many words. It
        // lives as long as `self`, is aligned to a page, and is never reached except as atomics
        // (the kernel reads it for `write_at`, which no Rust reference sees).
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made in `map`, and every slice of it borrowed `self`.
        // It cannot fail for such a range.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.words * WORD_BYTES) };
    }
}

/// Writes words to a file without a copy.
///
/// It calls `pwrite` itself. The safe functions take a slice of bytes, and memory that another
/// thread may write meanwhile must not become one.
pub(super) fn write_at(file: &File, mut offset: u64, words: &[AtomicU64]) -> io::Result<()> {
    let bytes = size_of_val(words);
    let mut done = 0;
    while done < bytes {
        let at = i64::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: the words are borrowed, so the kernel may read all `bytes - done` bytes from
        // `done` on. It sees each of them at some moment. The caller knows which thread writes them
        // and when, and so which contents the kernel may see.
        let count = unsafe {
            let from = words.as_ptr().cast::<u8>().add(done);
            libc::pwrite(file.as_raw_fd(), from.cast(), bytes - done, at)
        };
        match usize::try_from(count) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                done += count;
                offset += count as u64;
            }
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Files, Opening};
    use crate::os::Directory;

    #[test]
    fn memory_is_found_again_and_written_to_a_file_as_it_is() {
        let path = std::env::temp_dir().join(format!("thunderhead-lasting-{}", std::process::id()));
        let mut files = Directory::open(&path).unwrap();
        let mut memories = MemoryDirectory::at(&path);
        assert!(memories.find("pool").unwrap().is_none());
        let memory = memories.make("pool", 3 * 4096).unwrap();
        memory.write(4090, b"twelve bytes");
        assert_eq!(memories.boot().unwrap(), memories.boot().unwrap());
        let again = memories.find("pool").unwrap().unwrap();
        drop(memory);
        let mut found = [0; 12];
        again.read(4090, &mut found);
        assert_eq!(&found, b"twelve bytes");
        let how = Opening { create: true, direct: true, ..Opening::default() };
        let file = files.open_with("frames", how).unwrap();
        files.allocate(file, 8192).unwrap();
        files.write_lasting(file, 0, &again, 0..8192).unwrap();
        files.sync(file).unwrap();
        let plain = files.open("frames", false).unwrap();
        let mut found = [0; 12];
        files.read_at(plain, 4090, &mut found).unwrap();
        assert_eq!(&found, b"twelve bytes");
        memories.remove("pool").unwrap();
        memories.remove("pool").unwrap();
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_memory_belongs_to_one_process_at_a_time() {
        let path = std::env::temp_dir().join(format!("thunderhead-owned-{}", std::process::id()));
        let _ = Directory::open(&path).unwrap();
        let (mut first, mut second) = (MemoryDirectory::at(&path), MemoryDirectory::at(&path));
        let memory = first.make("pool", 4096).unwrap();
        let refused = |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        refused(second.find("pool").unwrap_err());
        refused(second.make("pool", 4096).unwrap_err());
        refused(second.remove("pool").unwrap_err());
        // Replaces the former memory, which is still mapped.
        let again = first.make("pool", 8192).unwrap();
        drop(memory);
        refused(second.find("pool").unwrap_err());
        again.write(0, b"kept");
        drop(again);
        let found = second.find("pool").unwrap().unwrap();
        let mut kept = [0; 4];
        found.read(0, &mut kept);
        assert_eq!(&kept, b"kept");
        refused(first.find("pool").unwrap_err());
        second.remove("pool").unwrap();
        assert!(first.find("pool").unwrap().is_none());
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_memory_must_be_a_regular_file_without_rights_for_other_users() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("thunderhead-rights-{}", std::process::id()));
        let _ = Directory::open(&path).unwrap();
        let mut memories = MemoryDirectory::at(&path);
        let mut refused = |name: &str, why: &str| {
            for error in [memories.find(name).err(), memories.make(name, 4096).err()] {
                let error = error.unwrap();
                assert!(error.to_string().contains(why), "{name}: {error}");
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            }
            assert!(memories.remove(name).is_err());
        };
        let mode = |name: &str, mode| {
            let rights = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path.join(name), rights).unwrap();
        };
        std::fs::write(path.join("readable"), [0; 4096]).unwrap();
        mode("readable", 0o640);
        refused("readable", "mode 640");
        std::os::unix::fs::symlink("readable", path.join("link")).unwrap();
        refused("link", "not a regular file");
        std::fs::create_dir(path.join("directory")).unwrap();
        refused("directory", "not a regular file");
        rustix::fs::mkfifoat(rustix::fs::CWD, path.join("pipe"), Mode::RUSR).unwrap();
        refused("pipe", "not a regular file");
        mode("readable", 0o600);
        assert!(memories.find("readable").unwrap().is_some());
        mode("", 0o777);
        let error = memories.find("readable").unwrap_err();
        assert!(error.to_string().contains("any user may change"), "{error}");
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_lock_is_held_until_it_is_dropped() {
        let path = std::env::temp_dir().join(format!("thunderhead-lock-{}", std::process::id()));
        let mut files = Directory::open(&path).unwrap();
        let lock = files.lock("lock").unwrap();
        let refused = files.lock("lock").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        let _ = files.lock("lock").unwrap();
        std::fs::remove_dir_all(path).unwrap();
    }
}
