//! Reads of replicas, which a worker does.
//!
//! The worker reads a replica in a buffer from there, and the buffer is *pinned* until the read
//! ends.

use super::{Event, Store};
use crate::error::{ReadError, Refusal};
use crate::layout::{FrameNumber, ReplicaId};
use crate::limits::READS_MAX;
use crate::reader::{self, ReadId, ReadJob, Reads, ReplicaPlace, SpareBuffers};
use thunderhead_runtime::workers::WorkerBell;

/// The reactor's side of the reader.
pub(super) struct ReaderClient {
    reads: Reads,
    spare: SpareBuffers,
    bell: WorkerBell,
    under_way: usize,
    next: ReadId,
}

impl ReaderClient {
    pub(super) fn new(reads: Reads, spare: SpareBuffers, bell: WorkerBell) -> ReaderClient {
        ReaderClient { reads, spare, bell, under_way: 0, next: ReadId(0) }
    }

    /// Releases memory that replicas were read into, if no reader holds any of them.
    pub(super) fn trim(&self) {
        if self.spare.is_idle() {
            self.bell.ring();
        }
    }

    /// Gives the worker a replica to read.
    fn begin(&mut self, replica: ReplicaId, frame: FrameNumber, place: ReplicaPlace) -> ReadId {
        let id = self.next;
        self.next.0 += 1;
        self.under_way += 1;
        reader::lock(&self.reads).jobs.push_back(ReadJob { id, replica, frame, place });
        self.bell.ring();
        id
    }
}

impl Store {
    /// Begins to read a replica; [`Event::Read`] brings the result. An open replica is read as it
    /// is now.
    ///
    /// # Errors
    /// If no counting replica is here, or too many reads are under way.
    pub fn read(&mut self, id: ReplicaId) -> Result<ReadId, Refusal> {
        let number = self.counting(id).ok_or(Refusal::NotFound(id))?;
        if self.reader.under_way >= READS_MAX {
            return Err(Refusal::Overloaded);
        }
        let frame = &self.frames[number];
        let place = match frame.buffer() {
            // The disk's copy is older, so it cannot stand in for the buffer's contents.
            Some(buffer) => {
                let used = self.in_buffer(number).map_err(|_| Refusal::NotFound(id))?;
                self.buffers.pin(buffer);
                ReplicaPlace::Buffer { buffer, used }
            }
            None => ReplicaPlace::Frame { used: frame.as_it_rests() },
        };
        Ok(self.reader.begin(id, number, place))
    }

    pub(super) fn take_reads(&mut self, tell: &mut dyn FnMut(Event)) -> bool {
        let done = std::mem::take(&mut reader::lock(&self.reader.reads).done);
        let any = !done.is_empty();
        for (job, outcome) in done {
            self.reader.under_way -= 1;
            if let ReplicaPlace::Buffer { buffer, .. } = job.place {
                self.buffers.unpin(buffer);
            }
            if let Err(error @ (ReadError::Header | ReadError::Chunk { .. })) = &outcome {
                tracing::warn!(
                    frame = job.frame.0,
                    "the replica of {} is not served: {error}",
                    job.replica
                );
            }
            tell(Event::Read(job.id, outcome));
        }
        any
    }
}
