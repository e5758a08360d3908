//! The register's journal: a file of records, written and synced by a worker.
//!
//! ```text
//!  file     ┌────────┬────────┬────────┬─ ─ ─ ─┬─────────────────┐
//!           │ record │ record │ record │       │ zeroes (room)   │
//!           └────────┴────────┴────────┴─ ─ ─ ─┴─────────────────┘
//!  record   checksum u64 (XXH3 of the rest) │ 72 bytes of body   the first bad one ends it
//! ```
//!
//! Room is allocated ahead, so that a full disk is noticed before an update is accepted.
//!
//! After an error the state of the file is unknown: bytes that can be read back may not be on the
//! disk. So at the start and after every error the worker reads the old journal, writes its good
//! records into a new one, syncs that, and renames it over the old one.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::files::{FileId, Files};
use thunderhead_runtime::workers::{Step, Worker};
use thunderhead_wire::KeyHash;

/// Bytes of a record's body.
pub(super) const BODY_BYTES: usize = 72;

/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = BODY_BYTES + 8;

/// The size of one allocation of room.
const ROOM_BYTES: u64 = 256 * RECORD_BYTES as u64;

const NAME: &str = "journal";
const NEW_NAME: &str = "journal.new";

/// A record's body.
pub(super) type Body = [u8; BODY_BYTES];

/// The state that the register and its worker share.
#[derive(Default)]
pub(super) struct Shared {
    /// Records to be written.
    pub(super) pending: Vec<u8>,
    /// Bytes of records that are durable.
    pub(super) durable: u64,
    /// The position up to which there is room for records.
    pub(super) room: u64,
    /// More room is requested.
    pub(super) wants_room: bool,
    /// The journal's records: set after the worker has started, and again after each error.
    pub(super) recovered: Option<Vec<Body>>,
    /// There was an error: all records that are not durable are dropped.
    pub(super) failed: bool,
    /// The journal could not be opened. The register must ring the worker to try again.
    pub(super) stuck: bool,
}

/// The journal's shared half.
#[derive(Clone, Default)]
pub struct Journal(Arc<Mutex<Shared>>);

impl Journal {
    pub(super) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the worker of this journal, which rings the alarm after each change.
    pub(super) fn worker(&self, alarm: Alarm, trusts_failed_sync: bool) -> JournalWorker {
        JournalWorker { shared: self.clone(), alarm, file: None, written: 0, trusts_failed_sync }
    }
}

pub(super) struct JournalWorker {
    shared: Journal,
    alarm: Alarm,
    file: Option<FileId>,
    written: u64,
    /// A flaw: takes bytes that it reads back for durable.
    trusts_failed_sync: bool,
}

/// Returns a record with its checksum.
pub(super) fn record(body: &Body) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&KeyHash::of(body).0.to_le_bytes());
    bytes[8..].copy_from_slice(body);
    bytes
}

/// Returns the good records at the beginning of a journal.
pub(super) fn records(bytes: &[u8]) -> Vec<Body> {
    let (chunks, _) = bytes.as_chunks::<RECORD_BYTES>();
    chunks
        .iter()
        .map_while(|chunk| {
            let (checksum, body) = chunk.split_first_chunk::<8>()?;
            let body: Body = body.try_into().ok()?;
            (KeyHash::of(&body).0 == u64::from_le_bytes(*checksum)).then_some(body)
        })
        .collect()
}

impl JournalWorker {
    /// Reads the old journal, writes its good records into a new one, and puts that in the old
    /// one's place.
    fn begin(&mut self, files: &mut dyn Files) -> io::Result<()> {
        if let Some(file) = self.file.take() {
            files.close(file);
        }
        let old = files.open(NAME, true)?;
        let mut bytes = vec![0; files.length(old)? as usize];
        let count = files.read_at(old, 0, &mut bytes)?;
        bytes.truncate(count);
        let found = records(&bytes);
        bytes.truncate(found.len() * RECORD_BYTES);
        let file = if self.trusts_failed_sync {
            old
        } else {
            files.close(old);
            let file = files.open(NEW_NAME, true)?;
            files.set_length(file, 0)?;
            files.write_at(file, 0, &bytes)?;
            files.sync(file)?;
            files.rename(NEW_NAME, NAME)?;
            file
        };
        self.file = Some(file);
        self.written = bytes.len() as u64;
        let mut shared = self.shared.lock();
        shared.pending.clear();
        shared.durable = self.written;
        shared.room = self.written;
        shared.wants_room = true;
        shared.failed = false;
        shared.recovered = Some(found);
        Ok(())
    }

    fn make_room(&mut self, file: FileId, files: &mut dyn Files) {
        let room = self.shared.lock().room;
        let more = vec![0; ROOM_BYTES as usize];
        let made = files.write_at(file, room, &more).and_then(|()| files.sync(file));
        let mut shared = self.shared.lock();
        shared.wants_room = false;
        match made {
            Ok(()) => shared.room += ROOM_BYTES,
            // A full disk does not affect earlier records.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            Err(_) => shared.failed = true,
        }
    }

    fn write(&mut self, file: FileId, files: &mut dyn Files) {
        let pending = std::mem::take(&mut self.shared.lock().pending);
        let written = files.write_at(file, self.written, &pending).and_then(|()| files.sync(file));
        let mut shared = self.shared.lock();
        match written {
            Ok(()) => {
                self.written += pending.len() as u64;
                shared.durable = self.written;
            }
            Err(_) => shared.failed = true,
        }
    }
}

impl Worker for JournalWorker {
    fn step(&mut self, files: &mut dyn Files) -> Step {
        let failed = self.shared.lock().failed;
        let file = match self.file {
            Some(file) if !failed => file,
            _ => {
                // The register does nothing until this has worked, and decides when to try again: a
                // disk may stay full or broken for long.
                let begun = self.begin(files);
                self.shared.lock().stuck = begun.is_err();
                self.alarm.ring();
                return if begun.is_ok() { Step::Again } else { Step::Idle };
            }
        };
        let (wants_room, has_records) = {
            let shared = self.shared.lock();
            (shared.wants_room, !shared.pending.is_empty())
        };
        if has_records {
            self.write(file, files);
        } else if wants_room {
            self.make_room(file, files);
        } else {
            return Step::Idle;
        }
        self.alarm.ring();
        Step::Again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_ends_at_its_first_bad_record() {
        let bodies: Vec<Body> = (0..3).map(|number| [number; BODY_BYTES]).collect();
        let mut bytes: Vec<u8> = bodies.iter().flat_map(record).collect();
        bytes.extend([0; 3 * RECORD_BYTES]);
        assert_eq!(records(&bytes), bodies);
        assert_eq!(records(&bytes[..3 * RECORD_BYTES - 1]), bodies[..2]);
        bytes[RECORD_BYTES + 20] ^= 1;
        assert_eq!(records(&bytes), bodies[..1]);
        assert_eq!(records(&[0; 5 * RECORD_BYTES]), Vec::<Body>::new());
    }
}
