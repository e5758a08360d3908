//! Files, of a machine or a simulated one. Used by [workers](crate::workers) and while a process
//! starts, never in a turn: a file may make its caller wait.
//!
//! A process has one directory of its own, and in it plain names. What is written is durable once
//! [`Files::sync`] has returned without an error; after an error from it nothing is known of what
//! was written since the sync before, and the file must not be trusted until it was read again.
//! No later sync makes up for it.
//! Creating, renaming and removing are durable when they return without an error; after one they
//! may have been done or not, and what was done may be undone when the power goes. Renaming says
//! nothing of what was not synced in the file.

use crate::lasting::Lasting;
use crate::os::Locked;
use std::io;
use std::ops::Range;

/// What offsets, lengths and addresses of direct reads and writes are multiples of. No disk that is
/// sold asks for more.
pub const DIRECT_BYTES: usize = 4096;

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// It is made if it does not exist.
    pub create: bool,
    /// Nothing will be written.
    pub read_only: bool,
    /// What is read and written passes the kernel's memory by: all of it in multiples of
    /// [`DIRECT_BYTES`]. A file system that cannot do that does it as it can.
    pub direct: bool,
}

/// A piece of a file that is to be written.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    /// Where it begins.
    pub offset: u64,
    /// What is in it.
    pub content: Content<'a>,
}

/// What is written.
#[derive(Clone, Debug)]
pub enum Content<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// A range of lasting memory, as [`Files::write_lasting`] wants it.
    Lasting(&'a Lasting, Range<usize>),
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

/// Keeps others from locking the same file, until it is dropped or the process ends.
#[derive(Debug, Default)]
pub struct FileLock {
    /// The kernel's lock belongs to this. A simulated machine has one process at a time.
    _held: Option<Locked>,
}

impl FileLock {
    /// A lock that belongs to an open file.
    pub(crate) fn of(file: Locked) -> FileLock {
        FileLock { _held: Some(file) }
    }
}

/// The files of a process.
pub trait Files {
    /// Opens a file, which is made if it does not exist and `create` is set.
    ///
    /// # Errors
    /// As the operating system has them; also for a name that is not plain.
    fn open(&mut self, name: &str, create: bool) -> io::Result<FileId>;

    /// Closes a file. What was not synced is not lost by that, nor safe.
    fn close(&mut self, file: FileId);

    /// Reads from an offset; less than asked for only at the end of the file.
    ///
    /// # Errors
    /// As the operating system has them.
    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes all the bytes at an offset. After an error any part of them may have been written.
    ///
    /// # Errors
    /// As the operating system has them.
    fn write_at(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes what was written to a file durable.
    ///
    /// # Errors
    /// As the operating system has them.
    fn sync(&mut self, file: FileId) -> io::Result<()>;

    /// The file's length.
    ///
    /// # Errors
    /// As the operating system has them.
    fn length(&mut self, file: FileId) -> io::Result<u64>;

    /// Sets the file's length; what is added reads as zeroes.
    ///
    /// # Errors
    /// As the operating system has them.
    fn set_length(&mut self, file: FileId, length: u64) -> io::Result<()>;

    /// Gives a file another name, in place of the file that had it.
    ///
    /// # Errors
    /// As the operating system has them.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As the operating system has them.
    fn remove(&mut self, name: &str) -> io::Result<()>;

    /// Looks for a file of this name, or a link to one.
    ///
    /// # Errors
    /// As the operating system has them; also for a link that leads to nothing, and for what is not a
    /// file: neither may be taken for a file that is still to be made.
    fn find(&mut self, name: &str) -> io::Result<bool> {
        Ok(self.list()?.iter().any(|it| it == name))
    }

    /// The number of the user to whom a file belongs, where files belong to users.
    ///
    /// # Errors
    /// As the operating system has them.
    fn owner(&mut self, name: &str) -> io::Result<Option<u32>> {
        check_name(name).map(|()| None)
    }

    /// The names of all files, in order.
    ///
    /// # Errors
    /// As the operating system has them.
    fn list(&mut self) -> io::Result<Vec<String>>;

    /// Opens a file in another way than [`open`](Files::open).
    ///
    /// # Errors
    /// As [`open`](Files::open).
    fn open_with(&mut self, name: &str, how: Opening) -> io::Result<FileId> {
        self.open(name, how.create)
    }

    /// Makes a file at least so long, with room for all of it: a write within has its place even
    /// when the disk is full. What is added reads as zeroes.
    ///
    /// # Errors
    /// As the operating system has them, for example when there is no such room.
    fn allocate(&mut self, file: FileId, length: u64) -> io::Result<()> {
        if self.length(file)? < length {
            self.set_length(file, length)?;
        }
        Ok(())
    }

    /// Writes bytes of lasting memory at an offset, without a copy where that is possible. The
    /// range begins and ends with a word. Who else writes to it at the same time does not know
    /// what of that is written.
    ///
    /// # Errors
    /// As [`write_at`](Files::write_at).
    fn write_lasting(
        &mut self,
        file: FileId,
        offset: u64,
        memory: &Lasting,
        range: Range<usize>,
    ) -> io::Result<()> {
        let mut bytes = vec![0; range.len()];
        memory.read(range.start, &mut bytes);
        self.write_at(file, offset, &bytes)
    }

    /// Writes pieces that do not overlap, in any order, all of them at once where that is possible; what became of
    /// each, in the order of the pieces. One that fails keeps none of the others back.
    fn write_together(&mut self, file: FileId, pieces: &[Piece<'_>]) -> Vec<io::Result<()>> {
        pieces.iter().map(|piece| piece.write(self, file)).collect()
    }

    /// Locks a file, which is made if it does not exist, against every other process.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when another has it; else as the operating system
    /// has them.
    fn lock(&mut self, name: &str) -> io::Result<FileLock> {
        check_name(name).map(|()| FileLock::default())
    }
}

/// Refuses names that are not plain: empty, with a separator, or leading elsewhere.
///
/// # Errors
/// For such a name.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} is no plain file name"),
        ));
    }
    Ok(())
}
