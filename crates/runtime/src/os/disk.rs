//! The files of one directory of this machine.
//!
//! No other user may read or change the clients' data: directories are made with mode 0700 and
//! files with 0600. [`trust`](super::trust) decides which files are used. In a directory like
//! `/tmp`, in which every user may make names, files of other users are refused. A directory in
//! which every user may also remove names is itself refused.

use super::aio::{Queue, Source};
use super::lock::LockedFile;
use super::trust::{Access, OwnDirectory, find_trusted, leads_nowhere, open_with, sync_names};
use crate::files::{Content, DIRECT_BYTES, FileId, FileLock, Files, Opening, Piece, check_name};
use crate::lasting::{LastingMemory, WORD_BYTES};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

/// A directory and its open files.
#[derive(Debug)]
pub struct Directory {
    place: OwnDirectory,
    open: BTreeMap<FileId, File>,
    count: u32,
    queue: Queue,
}

impl Clone for Directory {
    /// Returns the same directory without open files.
    fn clone(&self) -> Directory {
        Directory::of(self.place.clone())
    }
}

impl Directory {
    /// Opens a directory, and makes it if it is missing. If any user may change it, the files are
    /// in a directory within it that is made for this process's user alone.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let is_new = !path.exists();
        if is_new && path.is_symlink() {
            return Err(leads_nowhere(path));
        }
        DirBuilder::new().recursive(true).mode(OWN_DIRECTORY).create(path)?;
        if is_new {
            // A new directory is durable only once its own name is. Directories further above may
            // not be open to this user; mostly they existed before.
            if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
                sync_names(above)?;
            }
        }
        Ok(Directory::of(OwnDirectory::of(path, false)?))
    }

    /// Opens an existing directory, to inspect the files of a process. Makes nothing.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn existing(path: &Path) -> io::Result<Directory> {
        Ok(Directory::of(OwnDirectory::of(path, true)?))
    }

    /// Returns the directory with the files.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.place.inner
    }

    /// Returns no directory: every operation on it fails. For programs without files.
    #[must_use]
    pub fn nowhere() -> Directory {
        // A path below a file that is not a directory cannot exist.
        Directory::of(OwnDirectory::plain(PathBuf::from("/dev/null")))
    }

    fn of(place: OwnDirectory) -> Directory {
        Directory { place, open: BTreeMap::new(), count: 0, queue: Queue::default() }
    }

    /// Returns the path of a file, whether the file exists or not.
    ///
    /// # Errors
    /// For a name that is not plain, or a file in the outer directory instead of the inner one.
    pub fn path_of(&self, name: &str) -> io::Result<PathBuf> {
        check_name(name)?;
        self.place.file(name)
    }

    fn file(&self, file: FileId) -> io::Result<&File> {
        self.open.get(&file).ok_or_else(|| io::Error::other("the file is not open"))
    }

    fn sync_names(&self) -> io::Result<()> {
        sync_names(&self.place.inner)
    }
}

/// The mode of directories: other users have no rights.
const OWN_DIRECTORY: u32 = 0o700;

fn words<'a>(memory: &'a LastingMemory, range: &Range<usize>) -> io::Result<&'a [AtomicU64]> {
    let words = memory.words().get(range.start / WORD_BYTES..range.end / WORD_BYTES);
    Ok(words.ok_or(io::ErrorKind::InvalidInput)?)
}

fn source<'a>(piece: &Piece<'a>) -> io::Result<Source<'a>> {
    match &piece.content {
        Content::Bytes(bytes) => Ok(Source::Bytes(bytes)),
        Content::Lasting(memory, range) => words(memory, range).map(Source::Words),
    }
}

/// Writes the remainder after so many bytes, if there is any.
fn write_rest(file: &File, offset: u64, source: Source<'_>, done: usize) -> io::Result<()> {
    if done >= source.len() {
        return Ok(());
    }
    // Direct I/O goes on from a multiple of this.
    let done = done / DIRECT_BYTES * DIRECT_BYTES;
    let offset = offset + done as u64;
    match source {
        Source::Bytes(bytes) => file.write_all_at(&bytes[done..], offset),
        Source::Words(words) => super::memory::write_at(file, offset, &words[done / WORD_BYTES..]),
    }
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

    fn find(&mut self, name: &str) -> io::Result<bool> {
        find_trusted(&self.path_of(name)?)
    }

    fn owner(&mut self, name: &str) -> io::Result<Option<u32>> {
        Ok(Some(std::fs::metadata(self.path_of(name)?)?.uid()))
    }

    fn list(&mut self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.place.inner)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            // The target of a link may be gone.
            let is_file = || std::fs::metadata(entry.path()).is_ok_and(|it| it.is_file());
            if kind.is_file() || kind.is_symlink() && is_file() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn open_with(&mut self, name: &str, how: Opening) -> io::Result<FileId> {
        let path = self.path_of(name)?;
        let access = match how {
            Opening { create: true, .. } => Access::Make,
            Opening { read_only: true, .. } => Access::Read,
            _ => Access::Write,
        };
        let file = if how.direct {
            match open_with(&path, access, OFlags::DIRECT) {
                // A file system without direct I/O.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                    open_with(&path, access, OFlags::empty())
                }
                opened => opened,
            }
        } else {
            open_with(&path, access, OFlags::empty())
        }?;
        if how.create {
            // Even if the file exists already: its maker may have stopped before this sync.
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
            // A file system that cannot reserve space.
            Err(Errno::OPNOTSUPP) if file.metadata()?.len() < length => file.set_len(length),
            Err(Errno::OPNOTSUPP) => Ok(()),
            allocated => Ok(allocated?),
        }
    }

    fn write_lasting(
        &mut self,
        file: FileId,
        offset: u64,
        memory: &LastingMemory,
        range: Range<usize>,
    ) -> io::Result<()> {
        super::memory::write_at(self.file(file)?, offset, words(memory, &range)?)
    }

    fn write_together(&mut self, file: FileId, pieces: &[Piece<'_>]) -> Vec<io::Result<()>> {
        let file = self.open.get(&file).ok_or("the file is not open");
        let sources: Vec<io::Result<Source<'_>>> = pieces.iter().map(source).collect();
        let writes: Vec<(u64, Source<'_>)> = pieces
            .iter()
            .zip(&sources)
            .filter_map(|(piece, source)| Some((piece.offset, *source.as_ref().ok()?)))
            .collect();
        let begun = match &file {
            // A single write gains nothing from the queue.
            Ok(file) if writes.len() > 1 => self.queue.write(file, &writes),
            _ => vec![0; writes.len()],
        };
        let mut begun = begun.into_iter();
        let finish = |(piece, source): (&Piece<'_>, io::Result<Source<'_>>)| {
            let source = source?;
            let done = begun.next().unwrap_or_default();
            write_rest(file.map_err(io::Error::other)?, piece.offset, source, done)
        };
        pieces.iter().zip(sources).map(finish).collect()
    }

    fn lock(&mut self, name: &str) -> io::Result<FileLock> {
        let path = self.path_of(name)?;
        let file = match open_with(&path, Access::Write, OFlags::empty()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
                open_with(&path, Access::Make, OFlags::empty())
            }
            opened => opened,
        }?;
        Ok(FileLock::of(LockedFile::new(file.into())?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::aio::AT_ONCE;
    use super::*;
    use crate::lasting::Memories;
    use crate::os::MemoryDirectory;

    #[repr(align(4096))]
    struct Aligned<const BYTES: usize>([u8; BYTES]);

    fn directory(name: &str) -> (PathBuf, Directory) {
        let path = std::env::temp_dir().join(format!("thunderhead-{name}-{}", std::process::id()));
        (path.clone(), Directory::open(&path).unwrap())
    }

    fn direct(files: &mut Directory, name: &str) -> FileId {
        let how = Opening { create: true, direct: true, ..Opening::default() };
        files.open_with(name, how).unwrap()
    }

    fn is_whole(files: &mut Directory, name: &str, expected: &[u8]) {
        let file = files.open(name, false).unwrap();
        let mut found = vec![0; expected.len() + 1];
        assert_eq!(files.read_at(file, 0, &mut found).unwrap(), expected.len());
        assert!(found[..expected.len()] == *expected);
        files.close(file);
    }

    /// Pieces from both kinds of memory, more than may be in flight, consecutive in the file and
    /// not.
    #[test]
    fn any_number_of_pieces_is_written_with_and_without_the_queue() {
        for refused in [false, true] {
            let (path, mut files) = directory(if refused { "alone" } else { "together" });
            let mut memories = MemoryDirectory::at(&path);
            let count = 3 * AT_ONCE + 5;
            let memory = memories.make("pool", count * DIRECT_BYTES).unwrap();
            let mut expected = vec![0; 2 * count * DIRECT_BYTES];
            for at in 0..count {
                memory.write(at * DIRECT_BYTES, &[at as u8; DIRECT_BYTES]);
                expected[2 * at * DIRECT_BYTES..][..DIRECT_BYTES].fill(at as u8);
                expected[(2 * at + 1) * DIRECT_BYTES..][..DIRECT_BYTES].fill(99);
            }
            let bytes = Aligned([99; DIRECT_BYTES]);
            let piece = |at: usize| {
                let lies = at / 2 * DIRECT_BYTES..(at / 2 + 1) * DIRECT_BYTES;
                let content = match at % 2 {
                    0 => Content::Lasting(&memory, lies),
                    _ => Content::Bytes(&bytes.0),
                };
                Piece { offset: (at * DIRECT_BYTES) as u64, content }
            };
            let pieces: Vec<Piece<'_>> = (0..2 * count).rev().map(piece).collect();
            if refused {
                files.queue = Queue::refused();
            }
            for name in ["one", "another"] {
                let file = direct(&mut files, name);
                let results = files.write_together(file, &pieces);
                assert_eq!(results.len(), pieces.len());
                assert!(results.iter().all(Result::is_ok), "{results:?}");
                files.sync(file).unwrap();
                is_whole(&mut files, name, &expected);
            }
            let file = direct(&mut files, "none");
            assert!(files.write_together(file, &[]).is_empty());
            std::fs::remove_dir_all(path).unwrap();
        }
    }

    #[test]
    fn a_failed_piece_keeps_no_other_back() {
        for refused in [false, true] {
            let (path, mut files) = directory(if refused { "errors-alone" } else { "errors" });
            let memory = MemoryDirectory::at(&path).make("pool", 2 * DIRECT_BYTES).unwrap();
            memory.write(DIRECT_BYTES, &[1; DIRECT_BYTES]);
            if refused {
                files.queue = Queue::refused();
            }
            let bytes = Aligned([2; 2 * DIRECT_BYTES]);
            let far = i64::MAX as u64 / DIRECT_BYTES as u64 * DIRECT_BYTES as u64;
            let pieces = [
                // Beyond the longest file, and beyond the largest offset.
                Piece { offset: far, content: Content::Bytes(&bytes.0) },
                Piece { offset: 0, content: Content::Lasting(&memory, 4096..8192) },
                Piece { offset: u64::MAX - 4095, content: Content::Bytes(&bytes.0) },
                // Beyond the end of the memory.
                Piece { offset: 8192, content: Content::Lasting(&memory, 4096..12288) },
                Piece { offset: 4096, content: Content::Bytes(&bytes.0) },
            ];
            let file = direct(&mut files, "frames");
            let taken: Vec<bool> =
                files.write_together(file, &pieces).iter().map(Result::is_ok).collect();
            assert_eq!(taken, [false, true, false, false, true]);
            let mut expected = vec![1; DIRECT_BYTES];
            expected.extend(bytes.0);
            is_whole(&mut files, "frames", &expected);

            let how = Opening { read_only: true, ..Opening::default() };
            let read_only = files.open_with("frames", how).unwrap();
            files.close(file);
            for file in [read_only, file] {
                let results = files.write_together(file, &pieces);
                assert_eq!(results.len(), 5);
                assert!(results.iter().all(Result::is_err), "{results:?}");
            }
            is_whole(&mut files, "frames", &expected);
            std::fs::remove_dir_all(path).unwrap();
        }
    }

    #[test]
    fn other_users_have_no_rights_to_new_files() {
        use std::os::unix::fs::PermissionsExt;
        let (path, _) = directory("modes");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let inner = path.join("a/b");
        let mut files = Directory::open(&inner).unwrap();
        files.open("plain", true).unwrap();
        direct(&mut files, "direct");
        let _lock = files.lock("lock").unwrap();
        for made in [&path, &path.join("a"), &inner] {
            assert_eq!(mode(made), 0o700, "{}", made.display());
        }
        for name in ["plain", "direct", "lock"] {
            assert_eq!(mode(&inner.join(name)), 0o600, "{name}");
        }
        // If other users may remove names, new files are not safe there.
        let all = |mode| std::fs::set_permissions(&inner, PermissionsExt::from_mode(mode)).unwrap();
        all(0o777);
        let refused = files.open("plain", false).unwrap_err();
        assert!(refused.to_string().contains("any user may change"), "{refused}");
        all(0o1777);
        files.open("plain", false).unwrap();
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_name_stands_for_a_regular_file_or_a_link_to_one() {
        let (path, mut files) = directory("links");
        std::fs::create_dir(path.join("directory")).unwrap();
        std::os::unix::fs::symlink("directory", path.join("link to it")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path.join("link to a device")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
        for name in ["directory", "link to it", "link to a device", "pipe"] {
            for create in [false, true] {
                let refused = files.open(name, create).unwrap_err().to_string();
                assert!(refused.contains("not a regular file"), "{refused}");
            }
            assert!(files.lock(name).is_err());
        }
        std::fs::create_dir(path.join("disk")).unwrap();
        std::fs::write(path.join("disk/frames"), b"elsewhere").unwrap();
        std::os::unix::fs::symlink("disk/frames", path.join("frames")).unwrap();
        is_whole(&mut files, "frames", b"elsewhere");
        assert!(files.find("frames").unwrap() && !files.find("none").unwrap());
        assert_eq!(files.list().unwrap(), ["frames"]);
        // Its disk is no longer mounted.
        std::fs::remove_dir_all(path.join("disk")).unwrap();
        let found = [files.find("frames").map(drop), files.open("frames", true).map(drop)];
        for refused in found {
            assert!(refused.unwrap_err().to_string().contains("mounted"));
        }
        std::os::unix::fs::symlink("nowhere", path.join("data")).unwrap();
        let refused = Directory::open(&path.join("data")).unwrap_err();
        assert!(refused.to_string().contains("mounted"), "{refused}");
        std::fs::remove_dir_all(path).unwrap();
    }

    /// The rest of a piece that the kernel wrote in part, or not at all, is written.
    #[test]
    fn the_rest_of_a_piece_is_written() {
        let (path, mut files) = directory("rest");
        let file = direct(&mut files, "frames");
        let bytes = Aligned([3; 3 * DIRECT_BYTES]);
        for done in [0, 1, DIRECT_BYTES, 2 * DIRECT_BYTES + 512, 3 * DIRECT_BYTES] {
            files.set_length(file, 0).unwrap();
            let opened = files.file(file).unwrap();
            write_rest(opened, 0, Source::Bytes(&bytes.0), done).unwrap();
            let from = done / DIRECT_BYTES * DIRECT_BYTES;
            let mut expected = vec![0; from];
            expected.extend(&bytes.0[from..]);
            is_whole(&mut files, "frames", if from == bytes.0.len() { &[] } else { &expected });
        }
        std::fs::remove_dir_all(path).unwrap();
    }
}
