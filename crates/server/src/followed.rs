//! The record of the latest state of the cluster that a server has followed: a small file beside
//! the storage.
//!
//! The coordinator's metastore may be replaced by an older copy. A server that runs notices that by
//! the number of the leadership. A server that restarts needs this record: if all servers restart,
//! the coordinator would otherwise give out the ids of masters again.
//!
//! The file is written beside the reactor, soon after each change. A power failure may lose the
//! last change, so the recorded state is a lower bound.
//!
//! ```text
//! cluster 0123456789abcdef
//! leadership 17
//! master 230
//! ```

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use thunderhead_backup::FILE_NAME;
use thunderhead_runtime::World;
use thunderhead_runtime::files::{self, Files};
use thunderhead_runtime::workers::{Step, Worker, WorkerBell};
use thunderhead_wire::control::Followed;
use thunderhead_wire::{ClusterId, MasterId};

/// The longest file that is read, which is longer than any record.
const BYTES_MAX: usize = 256;

/// The contents of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) cluster: ClusterId,
    pub(crate) followed: Followed,
}

impl Record {
    fn encode(&self) -> String {
        let Followed { leadership, master } = self.followed;
        format!("cluster {:016x}\nleadership {leadership}\nmaster {}\n", self.cluster.0, master.0)
    }

    fn decode(text: &str) -> Option<Record> {
        let rest = text.strip_prefix("cluster ")?.strip_suffix('\n')?;
        let (cluster, rest) = rest.split_once("\nleadership ")?;
        let (leadership, master) = rest.split_once("\nmaster ")?;
        let followed = Followed {
            leadership: leadership.parse().ok()?,
            master: MasterId(master.parse().ok()?),
        };
        Some(Record { cluster: ClusterId(u64::from_str_radix(cluster, 16).ok()?), followed })
    }

    /// Reads the record. Returns `None` if there is none, or if this program did not write it.
    pub(crate) fn read(files: &mut dyn Files) -> io::Result<Option<Record>> {
        let name = format!("{FILE_NAME}.followed");
        let Some(bytes) = files::read_short(files, &name, BYTES_MAX)? else { return Ok(None) };
        let found = std::str::from_utf8(&bytes).ok().and_then(Record::decode);
        if found.is_none() {
            tracing::warn!("{name} is damaged: the latest state of the cluster is unknown");
        }
        Ok(found)
    }

    fn write(&self, files: &mut dyn Files) -> io::Result<()> {
        files::replace(files, &format!("{FILE_NAME}.followed"), self.encode().as_bytes())
    }
}

type Due = Arc<Mutex<Option<Record>>>;

/// Writes the record whenever it has changed.
pub(crate) struct Recorder {
    due: Due,
    bell: WorkerBell,
    /// The last record that was handed to the worker.
    last: Option<Record>,
}

impl Recorder {
    /// Starts the worker that writes the file.
    pub(crate) fn start(world: &mut World) -> io::Result<Recorder> {
        let due = Due::default();
        let bell =
            world.workers.start("followed", Box::new(RecordWriter { due: Arc::clone(&due) }))?;
        Ok(Recorder { due, bell, last: None })
    }

    /// Has a record written, unless it is the last one.
    pub(crate) fn put(&mut self, record: Record) {
        if self.last != Some(record) {
            self.last = Some(record);
            *self.due.lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
            self.bell.ring();
        }
    }
}

struct RecordWriter {
    due: Due,
}

impl Worker for RecordWriter {
    fn step(&mut self, files: &mut dyn Files) -> Step {
        let due = self.due.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(record) = due
            && let Err(error) = record.write(files)
        {
            tracing::warn!(%error, "the latest state of the cluster cannot be recorded beside the storage");
        }
        Step::Idle
    }

    fn waits_for_devices(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_record_is_decoded() {
        let followed = Followed { leadership: 17, master: MasterId(230) };
        let it = Record { cluster: ClusterId(0x0123_4567_89ab_cdef), followed };
        let text = it.encode();
        assert_eq!(text, "cluster 0123456789abcdef\nleadership 17\nmaster 230\n");
        assert_eq!(Record::decode(&text), Some(it));
        for length in 0..text.len() {
            assert_eq!(Record::decode(&text[..length]), None, "{length}");
        }
    }
}
