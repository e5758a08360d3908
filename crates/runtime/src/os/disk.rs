//! The files of one directory of this machine.

use crate::files::{FileId, FileLock, Files, Opening, check_name};
use crate::lasting::{Lasting, WORD_BYTES};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A directory and the files that are open in it.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    open: BTreeMap<FileId, File>,
    count: u32,
}

impl Clone for Directory {
    /// The same directory, nothing open.
    fn clone(&self) -> Directory {
        Directory { path: self.path.clone(), open: BTreeMap::new(), count: 0 }
    }
}

impl Directory {
    /// Opens a directory; makes it if it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let is_new = !path.exists();
        std::fs::create_dir_all(path)?;
        if is_new {
            // A directory that was made is there for good only once its own names are.
            // Those further above may not be ours to open; they were there before, mostly.
            if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
                sync_names(above)?;
            }
        }
        Ok(Directory { path: path.to_owned(), open: BTreeMap::new(), count: 0 })
    }

    /// No directory: whatever is asked of it fails. For programs that have no files.
    #[must_use]
    pub fn nowhere() -> Directory {
        // Nothing can be below what is no directory.
        Directory { path: PathBuf::from("/dev/null"), open: BTreeMap::new(), count: 0 }
    }

    fn path_of(&self, name: &str) -> io::Result<PathBuf> {
        check_name(name)?;
        Ok(self.path.join(name))
    }

    fn file(&self, file: FileId) -> io::Result<&File> {
        self.open.get(&file).ok_or_else(|| io::Error::other("the file is not open"))
    }

    fn sync_names(&self) -> io::Result<()> {
        sync_names(&self.path)
    }
}

/// Makes changes of names in a directory durable.
#[allow(clippy::disallowed_methods, reason = "these are the runtime's files")]
fn sync_names(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

impl Files for Directory {
    fn open(&mut self, name: &str, create: bool) -> io::Result<FileId> {
        self.open_with(name, Opening { create, ..Opening::default() })
    }

    fn close(&mut self, file: FileId) {
        self.open.remove(&file);
    }

    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let file = self.file(file)?;
        let mut done = 0;
        while done < into.len() {
            match file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(file)?.write_all_at(bytes, offset)
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        self.file(file)?.sync_data()
    }

    fn length(&mut self, file: FileId) -> io::Result<u64> {
        Ok(self.file(file)?.metadata()?.len())
    }

    fn set_length(&mut self, file: FileId, length: u64) -> io::Result<()> {
        self.file(file)?.set_len(length)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path_of(from)?, self.path_of(to)?)?;
        self.sync_names()
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path_of(name)?)?;
        self.sync_names()
    }

    fn list(&mut self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn open_with(&mut self, name: &str, how: Opening) -> io::Result<FileId> {
        let path = self.path_of(name)?;
        let mut options = OpenOptions::new();
        options.read(true).write(!how.read_only).create(how.create).truncate(false);
        let file = if how.direct {
            let flags = OFlags::DIRECT.bits().cast_signed();
            let direct = options.clone().custom_flags(flags).open(&path);
            match direct {
                // A file system without direct I/O.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                    options.open(&path)
                }
                opened => opened,
            }
        } else {
            options.open(&path)
        }?;
        if how.create {
            // Also when it is there already: whoever made it may not have come as far as this.
            self.sync_names()?;
        }
        let id = FileId(self.count);
        self.count += 1;
        self.open.insert(id, file);
        Ok(id)
    }

    fn allocate(&mut self, file: FileId, length: u64) -> io::Result<()> {
        let file = self.file(file)?;
        match fallocate(file, FallocateFlags::empty(), 0, length) {
            // A file system that cannot promise room.
            Err(Errno::OPNOTSUPP) if file.metadata()?.len() < length => file.set_len(length),
            Err(Errno::OPNOTSUPP) => Ok(()),
            allocated => Ok(allocated?),
        }
    }

    fn write_lasting(
        &mut self,
        file: FileId,
        offset: u64,
        memory: &Lasting,
        range: Range<usize>,
    ) -> io::Result<()> {
        let words = memory.words().get(range.start / WORD_BYTES..range.end / WORD_BYTES);
        let words = words.ok_or(io::ErrorKind::InvalidInput)?;
        super::memory::write_at(self.file(file)?, offset, words)
    }

    fn lock(&mut self, name: &str) -> io::Result<FileLock> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path_of(name)?)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(FileLock::of(file.into()))
    }
}
