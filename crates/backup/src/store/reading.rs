//! Reads of replicas, which a worker does.
//!
//! The worker reads a replica in a buffer from there, and the buffer is *pinned* until the read
//! ends.

use super::{Event, Store};
use crate::error::{ReadError, Refusal};
use crate::layout::ReplicaId;
use crate::limits::READS_MAX;
use crate::pool::BufferNumber;
use crate::reader::{self, ReadId, ReadJob, ReplicaPlace};

impl Store {
    /// Begins to read a replica; [`Event::Read`] brings the result. An open replica is read as it
    /// is now.
    ///
    /// # Errors
    /// If no counting replica is here, or too many reads are under way.
    pub fn read(&mut self, id: ReplicaId) -> Result<ReadId, Refusal> {
        let number = self.counting(id).ok_or(Refusal::NotFound(id))?;
        let frame = self.parts.frames[number.index()];
        if self.reads_under_way >= READS_MAX {
            return Err(Refusal::Overloaded);
        }
        let place = match frame.buffer {
            // The disk's copy is older, so it cannot stand in for the buffer's contents.
            Some(buffer) => {
                let used = self.in_buffer(number).map_err(|_| Refusal::NotFound(id))?;
                *self.pins.entry(buffer).or_default() += 1;
                ReplicaPlace::Buffer { buffer, used }
            }
            None => ReplicaPlace::Frame { used: self.as_it_rests(number) },
        };
        let read = ReadId(self.next_read);
        self.next_read += 1;
        self.reads_under_way += 1;
        let job = ReadJob { id: read, replica: id, frame: number, place };
        reader::lock(&self.parts.reads).jobs.push_back(job);
        self.parts.reader.ring();
        Ok(read)
    }

    pub(super) fn take_reads(&mut self, tell: &mut dyn FnMut(Event)) -> bool {
        let done = std::mem::take(&mut reader::lock(&self.parts.reads).done);
        let any = !done.is_empty();
        for (job, outcome) in done {
            self.reads_under_way -= 1;
            if let ReplicaPlace::Buffer { buffer, .. } = job.place {
                self.unpin(buffer);
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

    fn unpin(&mut self, buffer: BufferNumber) {
        let Some(count) = self.pins.get_mut(&buffer) else { return };
        *count -= 1;
        if *count == 0 {
            self.pins.remove(&buffer);
            if self.to_release.remove(&buffer) {
                self.release(Some(buffer));
            }
        }
    }
}
