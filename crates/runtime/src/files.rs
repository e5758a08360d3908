//! Files, of a machine or a simulated one. [Workers](crate::workers) use them, and processes while
//! they start. No turn uses them, because a file may make its caller wait.
//!
//! A process has one directory of its own, with plain names in it. Writes are durable once
//! [`Files::sync`] has returned without an error. After an error of a sync, the fate of all writes
//! since the sync before is unknown, and the file must not be trusted until it was read again. No
//! later sync repairs this.
//! Creating, renaming and removing are durable when they return without an error. After an error
//! they may have been done or not, and a power loss may undo them. Renaming does not sync the
//! file's contents.

use crate::lasting::LastingMemory;
use crate::os::LockedFile;
use std::io;
use std::ops::Range;

/// Offsets, lengths and addresses of direct reads and writes are multiples of this. No disk on the
/// market asks for more.
pub const DIRECT_BYTES: usize = 4096;

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// The way in which a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// Makes the file if it does not exist.
    pub create: bool,
    /// The file is only read.
    pub read_only: bool,
    /// Reads and writes bypass the kernel's memory, all of them in multiples of [`DIRECT_BYTES`]. A
    /// file system without direct I/O uses its ordinary way.
    pub direct: bool,
}

/// A piece of a file for a write.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    /// The offset of its begin.
    pub offset: u64,
    /// Its contents.
    pub content: Content<'a>,
}

/// The contents of a write.
#[derive(Clone, Debug)]
pub enum Content<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// A range of lasting memory, as for [`Files::write_lasting`].
    Lasting(&'a LastingMemory, Range<usize>),
}

impl Piece<'_> {
    /// Writes it alone.
    ///
    /// # Errors
    /// As [`Files::write_at`].
    pub fn write<F: Files + ?Sized>(&self, files: &mut F, file: FileId) -> io::Result<()> {
        match &self.content {
            Content::Bytes(bytes) => files.write_at(file, self.offset, bytes),
            Content::Lasting(memory, range) => {
                files.write_lasting(file, self.offset, memory, range.clone())
            }
        }
    }
}

/// Keeps other processes from locking the same file, until it is dropped or the process ends.
#[derive(Debug, Default)]
pub struct FileLock {
    /// The kernel's lock belongs to this file. A simulated machine has one process at a time.
    _held: Option<LockedFile>,
}

impl FileLock {
    /// Returns the lock of an open file.
    pub(crate) fn of(file: LockedFile) -> FileLock {
        FileLock { _held: Some(file) }
    }
}

/// Reads a short file whole, or its first bytes if it is longer. Returns `None` if there is none.
///
/// # Errors
/// As [`Files::read_at`].
pub fn read_short(
    files: &mut dyn Files,
    name: &str,
    bytes_max: usize,
) -> io::Result<Option<Vec<u8>>> {
    if !files.find(name)? {
        return Ok(None);
    }
    let file = files.open(name, false)?;
    let mut bytes = vec![0; bytes_max];
    let read = files.read_at(file, 0, &mut bytes);
    files.close(file);
    bytes.truncate(read?);
    Ok(Some(bytes))
}

/// Replaces a short file. After a crash it has its former contents or these, never a part of them.
///
/// # Errors
/// As [`Files::write_at`]. The file has its former contents then, or these.
pub fn replace(files: &mut dyn Files, name: &str, bytes: &[u8]) -> io::Result<()> {
    let unfinished = format!("{name}.new");
    let file = files.open(&unfinished, true)?;
    let written = files
        .set_length(file, 0)
        .and_then(|()| files.write_at(file, 0, bytes))
        .and_then(|()| files.sync(file));
    files.close(file);
    written?;
    files.rename(&unfinished, name)
}

/// The files of a process.
pub trait Files {
    /// Opens a file. Makes it if it does not exist and `create` is set.
    ///
    /// # Errors
    /// The operating system's; also for a name that is not plain.
    fn open(&mut self, name: &str, create: bool) -> io::Result<FileId>;

    /// Closes a file. Unsynced data is neither lost nor made durable by that.
    fn close(&mut self, file: FileId);

    /// Reads from an offset. Returns fewer bytes than requested only at the end of the file.
    ///
    /// # Errors
    /// The operating system's.
    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes all the bytes at an offset. After an error any part of them may have been written.
    ///
    /// # Errors
    /// The operating system's.
    fn write_at(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all writes to a file durable.
    ///
    /// # Errors
    /// The operating system's.
    fn sync(&mut self, file: FileId) -> io::Result<()>;

    /// Returns the file's length.
    ///
    /// # Errors
    /// The operating system's.
    fn length(&mut self, file: FileId) -> io::Result<u64>;

    /// Sets the file's length. Added bytes read as zeroes.
    ///
    /// # Errors
    /// The operating system's.
    fn set_length(&mut self, file: FileId, length: u64) -> io::Result<()>;

    /// Gives a file another name, and replaces the file that had it.
    ///
    /// # Errors
    /// The operating system's.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The operating system's.
    fn remove(&mut self, name: &str) -> io::Result<()>;

    /// Looks for a file of this name, or a link to one.
    ///
    /// # Errors
    /// The operating system's; also for a link whose target is missing, and for a name that is not
    /// a file. The caller must not take either for a free name.
    fn find(&mut self, name: &str) -> io::Result<bool> {
        Ok(self.list()?.iter().any(|it| it == name))
    }

    /// Returns the number of the file's user, if files have users.
    ///
    /// # Errors
    /// The operating system's.
    fn owner(&mut self, name: &str) -> io::Result<Option<u32>> {
        check_name(name).map(|()| None)
    }

    /// Returns the names of all files, in order.
    ///
    /// # Errors
    /// The operating system's.
    fn list(&mut self) -> io::Result<Vec<String>>;

    /// Opens a file with more options than [`open`](Files::open).
    ///
    /// # Errors
    /// As for [`open`](Files::open).
    fn open_with(&mut self, name: &str, how: Opening) -> io::Result<FileId> {
        self.open(name, how.create)
    }

    /// Makes a file at least so long and reserves its space, so that a write within it succeeds
    /// even when the disk is full. Added bytes read as zeroes.
    ///
    /// # Errors
    /// The operating system's, for example if there is no such space.
    fn allocate(&mut self, file: FileId, length: u64) -> io::Result<()> {
        if self.length(file)? < length {
            self.set_length(file, length)?;
        }
        Ok(())
    }

    /// Writes bytes of lasting memory at an offset, without a copy if possible. The range begins
    /// and ends on a word. If another thread changes the memory during the write, either the old or
    /// the new words are written.
    ///
    /// # Errors
    /// As for [`write_at`](Files::write_at).
    fn write_lasting(
        &mut self,
        file: FileId,
        offset: u64,
        memory: &LastingMemory,
        range: Range<usize>,
    ) -> io::Result<()> {
        let mut bytes = vec![0; range.len()];
        memory.read(range.start, &mut bytes);
        self.write_at(file, offset, &bytes)
    }

    /// Writes pieces that do not overlap, in any order and all at once if possible. Returns the
    /// result of each, in the order of the pieces. A failed piece does not keep the others back.
    fn write_together(&mut self, file: FileId, pieces: &[Piece<'_>]) -> Vec<io::Result<()>> {
        pieces.iter().map(|piece| piece.write(self, file)).collect()
    }

    /// Locks a file against every other process. Makes it if it does not exist.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if another process has the lock; otherwise the
    /// operating system's.
    fn lock(&mut self, name: &str) -> io::Result<FileLock> {
        check_name(name).map(|()| FileLock::default())
    }
}

/// Refuses names that are not plain: empty names, names with a separator, and `.` and `..`.
///
/// # Errors
/// For such a name.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} is not a plain file name"),
        ));
    }
    Ok(())
}
