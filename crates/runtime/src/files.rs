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

use std::io;

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

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

    /// The names of all files, in order.
    ///
    /// # Errors
    /// As the operating system has them.
    fn list(&mut self) -> io::Result<Vec<String>>;
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
