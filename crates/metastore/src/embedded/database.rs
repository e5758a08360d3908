//! The database in the embedded store's file.
//!
//! ```text
//! table "values"    key -> checksum u64, version u64, value       (little-endian)
//! table "tokens"    lease -> the last token granted for it
//! table "counters"  "format" -> 1;  "version" -> the last version given to any value
//! ```
//!
//! The checksum is XXH3 (64 bits) of the version, the key's length and bytes, and the value.

use super::file::{Backend, LockedFile};
use crate::error::{Error, OpenError};
use crate::key::{Key, LeaseName, Prefix};
use crate::limits::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX};
use crate::request::{Answer, Change, Entry, Page, Token, Version};
use redb::{DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thunderhead_runtime::os::{entropy, find_trusted};
use xxhash_rust::xxh3::Xxh3;

const VALUES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("values");
const TOKENS: TableDefinition<'_, &str, u64> = TableDefinition::new("tokens");
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");

const FORMAT: u64 = 1;
const HEADER_BYTES: usize = 16;

/// An open file.
pub(super) struct Database {
    redb: redb::Database,
    /// An input or output has failed. redb refuses everything from then on.
    has_failed: Arc<AtomicBool>,
}

fn checksum(key: &str, version: u64, value: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&version.to_le_bytes());
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key.as_bytes());
    hasher.update(value);
    hasher.digest()
}

fn encoded(key: &str, version: u64, value: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(HEADER_BYTES + value.len());
    row.extend_from_slice(&checksum(key, version, value).to_le_bytes());
    row.extend_from_slice(&version.to_le_bytes());
    row.extend_from_slice(value);
    row
}

/// Returns a row's version and value, if the row is whole.
fn decoded<'a>(key: &str, row: &'a [u8]) -> Result<(Version, &'a [u8]), Error> {
    let damaged = || Error::damaged(format!("the value of {key} fails its checksum"));
    let (sum, rest) = row.split_first_chunk::<8>().ok_or_else(damaged)?;
    let (version, value) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
    let version = u64::from_le_bytes(*version);
    if u64::from_le_bytes(*sum) != checksum(key, version, value) {
        return Err(damaged());
    }
    Ok((Version(version), value))
}

fn entry(key: &str, row: &[u8]) -> Result<Entry, Error> {
    let (version, value) = decoded(key, row)?;
    Ok(Entry { key: Key::new(key)?, version, value: value.to_vec() })
}

/// The error for a request that was certainly not done.
fn not_done(error: impl Into<redb::Error>) -> Error {
    match error.into() {
        redb::Error::Corrupted(what) => Error::damaged(what),
        error => Error::unavailable(error),
    }
}

impl Database {
    /// Opens a file, and makes it if it is missing.
    pub(super) fn open(path: &Path) -> Result<(Database, LockedFile), OpenError> {
        if !find_trusted(path)? {
            make(path)?;
        }
        let file = LockedFile::open(path)?;
        Ok((Database::open_locked(path, &file)?, file))
    }

    /// Makes a database in an empty file that this process has locked.
    pub(super) fn make_locked(path: &Path, file: &LockedFile) -> Result<Database, OpenError> {
        fill(path, file.clone())?;
        Database::open_locked(path, file)
    }

    /// Opens an existing file that this process has locked.
    pub(super) fn open_locked(path: &Path, file: &LockedFile) -> Result<Database, OpenError> {
        // redb would make a new database in an empty file.
        if file.bytes()? == 0 {
            return Err(damaged(path, "it is empty"));
        }
        // redb panics over some damage. No state of this crate exists yet that the panic could
        // break.
        let file = file.clone();
        std::panic::catch_unwind(|| Database::open_whole(path, file))
            .unwrap_or_else(|_| Err(damaged(path, "redb cannot read its pages")))
    }

    fn open_whole(path: &Path, file: LockedFile) -> Result<Database, OpenError> {
        let refused = |error| refusal(path, error);
        let (backend, has_failed) = Backend::new(file);
        let redb = redb::Builder::new().create_with_backend(backend);
        let mut redb = redb.map_err(refused)?;
        if !redb.check_integrity().map_err(refused)? {
            return Err(damaged(path, "redb found pages that fail their checksum"));
        }
        let database = Database { redb, has_failed };
        let checked = database.check(path);
        // A failed read does not mean that the row is damaged.
        match checked {
            Err(OpenError::Damaged { reason, .. }) if database.has_failed() => {
                Err(OpenError::Machine(std::io::Error::other(reason)))
            }
            checked => checked.map(|()| database),
        }
    }

    /// Whether an input or output has failed. Nothing works any more until the file is opened
    /// again.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Refuses a file of another program or a newer version, and damaged rows.
    fn check(&self, path: &Path) -> Result<(), OpenError> {
        let found = self.counter("format").map_err(|error| damaged(path, error))?;
        match found {
            Some(FORMAT) => {}
            Some(found) if found > FORMAT => {
                let path = path.display().to_string();
                return Err(OpenError::NewerFormat { path, found, known: FORMAT });
            }
            _ => return Err(damaged(path, "it has no mark of a metastore")),
        }
        let newest = self.version().map_err(|error| damaged(path, error))?;
        let mut after = None;
        loop {
            let page = self.list(&Prefix::all(), after.as_ref());
            let page = page.map_err(|error| damaged(path, error))?;
            if page.entries.iter().any(|entry| entry.version.0 > newest) {
                return Err(damaged(path, "a value is newer than the newest version"));
            }
            after = page.entries.last().map(|entry| entry.key.clone());
            if !page.more {
                return Ok(());
            }
        }
    }

    fn counter(&self, name: &str) -> Result<Option<u64>, Error> {
        let read = self.redb.begin_read().map_err(not_done)?;
        let counters = read.open_table(COUNTERS).map_err(not_done)?;
        Ok(counters.get(name).map_err(not_done)?.map(|value| value.value()))
    }

    /// Returns the last version that was given.
    pub(super) fn version(&self) -> Result<u64, Error> {
        self.counter("version")?.ok_or_else(|| Error::damaged("the newest version is missing"))
    }

    pub(super) fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        let read = self.redb.begin_read().map_err(not_done)?;
        let values = read.open_table(VALUES).map_err(not_done)?;
        let row = values.get(key.as_str()).map_err(not_done)?;
        row.map(|row| entry(key.as_str(), row.value())).transpose()
    }

    pub(super) fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, Error> {
        let read = self.redb.begin_read().map_err(not_done)?;
        let values = read.open_table(VALUES).map_err(not_done)?;
        let begin = match after {
            Some(key) if key.as_str() >= prefix.as_str() => Bound::Excluded(key.as_str()),
            _ => Bound::Included(prefix.as_str()),
        };
        let mut page = Page::default();
        let mut bytes = 0;
        for row in values.range::<&str>((begin, Bound::Unbounded)).map_err(not_done)? {
            let (key, row) = row.map_err(not_done)?;
            if !key.value().starts_with(prefix.as_str()) {
                break;
            }
            if page.entries.len() == PAGE_ENTRIES_MAX || bytes >= PAGE_BYTES_MAX {
                page.more = true;
                break;
            }
            bytes += row.value().len();
            page.entries.push(entry(key.value(), row.value())?);
        }
        Ok(page)
    }

    pub(super) fn write(&self, key: &Key, change: &Change) -> Result<Answer, Error> {
        let write = self.redb.begin_write().map_err(not_done)?;
        let version = {
            let mut values = write.open_table(VALUES).map_err(not_done)?;
            let mut counters = write.open_table(COUNTERS).map_err(not_done)?;
            let row = values.get(key.as_str()).map_err(not_done)?;
            let current = row.map(|row| decoded(key.as_str(), row.value()).map(|found| found.0));
            let current = current.transpose()?;
            if current != change.expected() {
                return Ok(Answer::Conflict(current));
            }
            let last = counters.get("version").map_err(not_done)?.map_or(0, |last| last.value());
            let version = last + 1;
            counters.insert("version", version).map_err(not_done)?;
            match change.value() {
                Some(value) => {
                    let row = encoded(key.as_str(), version, value);
                    values.insert(key.as_str(), row.as_slice()).map_err(not_done)?;
                }
                None => drop(values.remove(key.as_str()).map_err(not_done)?),
            }
            version
        };
        // A commit that fails may have reached the disk.
        write.commit().map_err(Error::unknown)?;
        Ok(Answer::Written(Version(version)))
    }

    /// Returns the next token of a lease, above a known one. No other holder gets it.
    pub(super) fn next_token(&self, lease: &LeaseName, above: u64) -> Result<Token, Error> {
        let write = self.redb.begin_write().map_err(not_done)?;
        let token = {
            let mut tokens = write.open_table(TOKENS).map_err(not_done)?;
            let last = tokens.get(lease.as_str()).map_err(not_done)?.map_or(0, |last| last.value());
            let next = last.max(above) + 1;
            tokens.insert(lease.as_str(), next).map_err(not_done)?;
            next
        };
        write.commit().map_err(Error::unknown)?;
        Ok(Token(token))
    }
}

fn damaged(path: &Path, reason: impl ToString) -> OpenError {
    OpenError::Damaged { path: path.display().to_string(), reason: reason.to_string() }
}

fn refusal(path: &Path, error: DatabaseError) -> OpenError {
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            OpenError::InUse { path: path.display().to_string() }
        }
        DatabaseError::Storage(StorageError::Io(error))
            if error.kind() != std::io::ErrorKind::InvalidData
                && error.kind() != std::io::ErrorKind::UnexpectedEof =>
        {
            OpenError::Machine(error)
        }
        error => damaged(path, error),
    }
}

/// Makes a file and gives it its name only when it is whole.
fn make(path: &Path) -> Result<(), OpenError> {
    let mut unfinished = path.as_os_str().to_owned();
    // A random name, so that no other user can have taken it.
    unfinished.push(format!(".{:016x}.new", entropy()));
    let unfinished = PathBuf::from(unfinished);
    // Linking does not replace a file that another process has made meanwhile; that file is used
    // then.
    let filled = LockedFile::make(&unfinished).and_then(|file| fill(&unfinished, file));
    let made = filled.and_then(|()| match std::fs::hard_link(&unfinished, path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    });
    let removed = std::fs::remove_file(&unfinished);
    made?;
    removed?;
    sync_names(path)?;
    Ok(())
}

/// Writes the first rows of a metastore into an empty file, and closes redb. The file is opened
/// only once, because its name may be another file's later.
fn fill(path: &Path, file: LockedFile) -> Result<(), OpenError> {
    let refused = |error: redb::Error| OpenError::Machine(std::io::Error::other(error));
    let (backend, _) = Backend::new(file);
    let database = redb::Builder::new().create_with_backend(backend);
    let database = database.map_err(|error| refusal(path, error))?;
    let write = database.begin_write().map_err(|error| refused(error.into()))?;
    {
        let counters = write.open_table(COUNTERS).map_err(|error| refused(error.into()));
        let mut counters = counters?;
        for (name, value) in [("format", FORMAT), ("version", 0)] {
            counters.insert(name, value).map_err(|error| refused(error.into()))?;
        }
        write.open_table(VALUES).map_err(|error| refused(error.into()))?;
        write.open_table(TOKENS).map_err(|error| refused(error.into()))?;
    }
    write.commit().map_err(|error| refused(error.into()))
}

#[expect(clippy::disallowed_methods, reason = "the metastore is one of two that touch files")]
fn sync_names(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
