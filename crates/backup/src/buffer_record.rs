//! The record of a store's buffer directory: a small file beside the storage.
//!
//! The buffers of a killed process may hold the only copy of a replica. If an operator configures
//! another buffer directory, the next process would not find them, and would not notice that they
//! are missing. So each start records the directory before it uses a buffer there. If the recorded
//! directory is another one, the start looks there first.
//!
//! ```text
//! boot 0123456789abcdef          the boot of the machine during which the file was written
//! directory /dev/shm
//! ```

use crate::error::OpenError;
use crate::layout::Superblock;
use crate::pool::{Pool, name};
use crate::store::FILE_NAME;
use std::io;
use thunderhead_runtime::files::{self, Files};
use thunderhead_runtime::lasting::Memories;

/// The longest file that is read, which is longer than the longest path.
const BYTES_MAX: usize = 8 << 10;

/// The contents of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BufferRecord {
    boot: u64,
    directory: String,
}

impl BufferRecord {
    fn encode(&self) -> String {
        format!("boot {:016x}\ndirectory {}\n", self.boot, self.directory)
    }

    fn decode(text: &str) -> Option<BufferRecord> {
        let rest = text.strip_prefix("boot ")?.strip_suffix('\n')?;
        let (boot, directory) = rest.split_once("\ndirectory ")?;
        let boot = u64::from_str_radix(boot, 16).ok()?;
        Some(BufferRecord { boot, directory: directory.to_owned() })
    }

    /// Reads the record beside a storage. Returns `None` if there is none, or if this program did
    /// not write it.
    fn read(files: &mut dyn Files, storage: &str) -> io::Result<Option<BufferRecord>> {
        let name = format!("{storage}.buffers");
        let Some(bytes) = files::read_short(files, &name, BYTES_MAX)? else { return Ok(None) };
        let found = std::str::from_utf8(&bytes).ok().and_then(BufferRecord::decode);
        if found.is_none() {
            tracing::warn!("{name} is damaged: the former buffer directory is unknown");
        }
        Ok(found)
    }

    fn write(&self, files: &mut dyn Files, storage: &str) -> io::Result<()> {
        files::replace(files, &format!("{storage}.buffers"), self.encode().as_bytes())
    }
}

/// Returns the buffer directory of the last process that used a storage, if it was recorded.
///
/// # Errors
/// When it cannot be read.
pub fn buffer_directory(files: &mut dyn Files) -> io::Result<Option<String>> {
    Ok(BufferRecord::read(files, FILE_NAME)?.map(|it| it.directory))
}

/// Records the buffer directory of this process. Refuses if the last process left replicas in
/// another directory, or if that directory cannot be read.
pub(crate) fn settle_in(
    files: &mut dyn Files,
    memories: &mut dyn Memories,
    superblock: &Superblock,
    storage: &str,
) -> Result<(), OpenError> {
    let Some(directory) = memories.place() else { return Ok(()) };
    let now = BufferRecord { boot: memories.boot()?, directory };
    let former = BufferRecord::read(files, storage)?;
    if former.as_ref() == Some(&now) {
        return Ok(());
    }
    if let Some(former) = former.filter(|it| it.directory != now.directory) {
        let (left, wanted) = (former.directory.clone(), now.directory.clone());
        let found = memories.elsewhere(&left).and_then(|mut elsewhere| {
            let pool = Pool::find(elsewhere.as_mut(), superblock)?;
            let count = pool.map_or(0, |pool| pool.claims().count());
            if count == 0 {
                elsewhere.remove(&name(superblock))?;
            }
            Ok(count)
        });
        match found {
            Ok(0) => {}
            Ok(_) => return Err(OpenError::LeftElsewhere { left, wanted }),
            // The machine was booted since then, so the contents of its memory are gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound && former.boot != now.boot => {}
            Err(error) => {
                let file = format!("{storage}.buffers");
                return Err(OpenError::Unseen { left, wanted, file, error });
            }
        }
    }
    Ok(now.write(files, storage)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_record_is_decoded() {
        let it = BufferRecord { boot: 7, directory: "/run/a directory".to_owned() };
        assert_eq!(it.encode(), "boot 0000000000000007\ndirectory /run/a directory\n");
        assert_eq!(BufferRecord::decode(&it.encode()), Some(it.clone()));
        let text = it.encode();
        for length in 0..text.len() {
            assert_eq!(BufferRecord::decode(&text[..length]), None, "{length}");
        }
        assert_eq!(BufferRecord::decode("boot x\ndirectory /run\n"), None);
    }
}
