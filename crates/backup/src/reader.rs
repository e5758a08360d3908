//! The worker that reads replicas for recovery. It hands over verified bytes.
//!
//! A replica that is no longer held gives its memory to the next one (`SpareBuffers`), because new
//! memory costs more than reading into it. While no read is under way and no replica is held, no
//! memory is kept.

use crate::block::Block;
use crate::error::ReadError;
use crate::layout::{
    CountedRounds, FrameNumber, Header, ReplicaHeader, ReplicaId, Slot, Superblock, judge,
};
use crate::limits::{BLOCK_BYTES, SPARE_MAX};
use crate::pool::{BufferNumber, Pool};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::files::{FileId, Files, Opening};
use thunderhead_runtime::workers::{Step, Worker};
use zerocopy::IntoBytes;

/// A read under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// A replica that was read: every byte is as the master sent it.
#[derive(Debug)]
pub struct ReplicaBytes {
    used: ReplicaHeader,
    blocks: Vec<Block>,
    spare: SpareBuffers,
}

impl Drop for ReplicaBytes {
    fn drop(&mut self) {
        self.spare.put(std::mem::take(&mut self.blocks));
    }
}

impl ReplicaBytes {
    /// Returns its master and segment.
    #[must_use]
    pub fn id(&self) -> ReplicaId {
        self.used.id
    }

    /// Returns its header.
    #[must_use]
    pub fn header(&self) -> &ReplicaHeader {
        &self.used
    }

    /// Returns its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.blocks.as_bytes().get(..self.used.length as usize).unwrap_or_default()
    }
}

impl AsRef<[u8]> for ReplicaBytes {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// Spare memory: buffers of former replicas.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpareBuffers(Arc<Mutex<Buffers>>);

#[derive(Debug, Default)]
struct Buffers {
    /// Free buffers, each as long as the longest replica that was in it.
    free: Vec<Vec<Block>>,
    /// The number of buffers in use.
    taken: usize,
}

impl SpareBuffers {
    fn buffers(&self) -> MutexGuard<'_, Buffers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns memory of at least this size, with any contents.
    fn take(&self, bytes: usize) -> Vec<Block> {
        let mut buffers = self.buffers();
        buffers.taken += 1;
        let free = buffers.free.pop();
        drop(buffers);
        let free = free.filter(|free| free.len() >= bytes.div_ceil(BLOCK_BYTES));
        free.unwrap_or_else(|| Block::vec(bytes))
    }

    fn put(&self, blocks: Vec<Block>) {
        let mut buffers = self.buffers();
        buffers.taken = buffers.taken.saturating_sub(1);
        if buffers.free.len() < SPARE_MAX {
            buffers.free.push(blocks);
        }
    }

    /// Returns memory for a replica that is about to be read.
    pub(crate) fn replica(&self, used: ReplicaHeader) -> ReplicaBytes {
        let blocks = self.take(used.length as usize);
        ReplicaBytes { used, blocks, spare: self.clone() }
    }

    /// Whether there is memory and none of it is in use.
    pub(crate) fn is_idle(&self) -> bool {
        let buffers = self.buffers();
        buffers.taken == 0 && !buffers.free.is_empty()
    }

    /// Frees the memory if none of it is in use.
    fn trim(&self) {
        if self.is_idle() {
            let free = std::mem::take(&mut self.buffers().free);
            drop(free);
        }
    }
}

/// A request to read a replica.
#[derive(Debug)]
pub(crate) struct ReadJob {
    pub(crate) id: ReadId,
    pub(crate) replica: ReplicaId,
    pub(crate) frame: FrameNumber,
    pub(crate) place: ReplicaPlace,
}

/// The place that a replica is read from.
#[derive(Debug)]
pub(crate) enum ReplicaPlace {
    /// A buffer, because not all of it is on disk.
    Buffer {
        /// The buffer.
        buffer: BufferNumber,
        /// Its header.
        used: ReplicaHeader,
    },
    /// Its frame on disk.
    Frame {
        /// Its header, if the header on disk may be older.
        used: Option<ReplicaHeader>,
    },
}

/// The state that reactor and reader share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) jobs: VecDeque<ReadJob>,
    pub(crate) done: Vec<(ReadJob, Result<ReplicaBytes, ReadError>)>,
}

/// A handle to it.
pub(crate) type Reads = Arc<Mutex<Shared>>;

pub(crate) fn lock(reads: &Reads) -> MutexGuard<'_, Shared> {
    reads.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The worker.
pub(crate) struct Reader {
    pub(crate) reads: Reads,
    pub(crate) alarm: Alarm,
    pub(crate) superblock: Superblock,
    pub(crate) pool: Pool,
    pub(crate) name: String,
    pub(crate) file: Option<FileId>,
    pub(crate) spare: SpareBuffers,
}

impl Worker for Reader {
    fn step(&mut self, files: &mut dyn Files) -> Step {
        let job = lock(&self.reads).jobs.pop_front();
        let Some(job) = job else {
            self.spare.trim();
            return Step::Idle;
        };
        let outcome = match &job.place {
            ReplicaPlace::Buffer { buffer, used } => self.copy(*buffer, used),
            ReplicaPlace::Frame { used } => self.read(files, &job, used.as_ref()),
        };
        lock(&self.reads).done.push((job, outcome));
        self.alarm.ring();
        Step::Again
    }
}

impl Reader {
    fn copy(&self, buffer: BufferNumber, used: &ReplicaHeader) -> Result<ReplicaBytes, ReadError> {
        let mut bytes = self.spare.replica(used.clone());
        let length = used.length as usize;
        if let Some(into) = bytes.blocks.as_mut_bytes().get_mut(..length) {
            self.pool.read(buffer, 0, into);
        }
        verified(bytes, &self.superblock)
    }

    fn read(
        &mut self,
        files: &mut dyn Files,
        ReadJob { frame, replica, .. }: &ReadJob,
        newer: Option<&ReplicaHeader>,
    ) -> Result<ReplicaBytes, ReadError> {
        let file = match self.file {
            Some(file) => file,
            None => {
                let how = Opening { direct: true, read_only: true, ..Opening::default() };
                let file = files.open_with(&self.name, how).map_err(|e| ReadError::Io(e.kind()))?;
                *self.file.insert(file)
            }
        };
        let used = match read_header(files, file, &self.superblock, *frame) {
            Ok(Some(Header::Used(used))) if used.id == *replica => newer.cloned().unwrap_or(used),
            Ok(Some(_)) => return Err(ReadError::Gone),
            Ok(None) => return Err(ReadError::Header),
            Err(error) => return Err(ReadError::Io(error.kind())),
        };
        read_data(files, file, &self.superblock, *frame, self.spare.replica(used))
    }
}

/// Reads the header of a frame from its own two slots. The start has overwritten all headers of
/// rounds that do not count.
fn read_header(
    files: &mut dyn Files,
    file: FileId,
    superblock: &Superblock,
    frame: FrameNumber,
) -> io::Result<Option<Header>> {
    let mut slots = [Block::ZERO; 2];
    files.read_at(file, superblock.geometry.header_at(frame, Slot::A), slots.as_mut_bytes())?;
    let found = slots.map(|block| Header::decode(&block, superblock, frame));
    Ok(judge(found, &CountedRounds::ALL).newest.map(|it| it.header))
}

/// Reads the data of a frame, as its header describes it.
pub(crate) fn read_data(
    files: &mut dyn Files,
    file: FileId,
    superblock: &Superblock,
    frame: FrameNumber,
    mut into: ReplicaBytes,
) -> Result<ReplicaBytes, ReadError> {
    let at = superblock.geometry.data_at(frame);
    let count = (into.used.length as usize).div_ceil(BLOCK_BYTES);
    let blocks = into.blocks.get_mut(..count).unwrap_or_default().as_mut_bytes();
    let length = files.read_at(file, at, blocks).map_err(|error| ReadError::Io(error.kind()))?;
    // Zeroes replace old contents of the buffer behind the end of the file.
    blocks.get_mut(length..).unwrap_or_default().fill(0);
    verified(into, superblock)
}

fn verified(bytes: ReplicaBytes, superblock: &Superblock) -> Result<ReplicaBytes, ReadError> {
    let chunk_bytes = superblock.geometry.chunk_bytes();
    match bytes.used.first_damaged_chunk(bytes.blocks.as_bytes(), chunk_bytes) {
        None => Ok(bytes),
        Some(chunk) => Err(ReadError::Chunk { chunk }),
    }
}
