//! The worker that reads replicas for recovery, and what it hands over: bytes that are verified.

use crate::block::Block;
use crate::error::ReadError;
use crate::layout::{Header, ReplicaId, Slot, Superblock, Used, judge};
use crate::pool::Pool;
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
#[derive(Clone, Debug)]
pub struct ReplicaBytes {
    used: Used,
    blocks: Vec<Block>,
}

impl ReplicaBytes {
    /// Which it is.
    #[must_use]
    pub fn id(&self) -> ReplicaId {
        self.used.id
    }

    /// What its header says.
    #[must_use]
    pub fn header(&self) -> &Used {
        &self.used
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.blocks.as_bytes().get(..self.used.length as usize).unwrap_or_default()
    }
}

/// What is to be read.
#[derive(Debug)]
pub(crate) struct ReadJob {
    pub(crate) id: ReadId,
    pub(crate) replica: ReplicaId,
    pub(crate) frame: u32,
    /// The buffer that holds it and how far, when it is not all on disk.
    pub(crate) in_buffer: Option<(u32, Used)>,
    /// What is to be known of it on the disk, where its header there may not be so far.
    pub(crate) on_disk: Option<Used>,
}

/// What reactor and reader share.
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
}

impl Worker for Reader {
    fn step(&mut self, files: &mut dyn Files) -> Step {
        let Some(job) = lock(&self.reads).jobs.pop_front() else { return Step::Idle };
        let outcome = match &job.in_buffer {
            Some((buffer, used)) => self.copy(*buffer, used),
            None => self.read(files, &job),
        };
        lock(&self.reads).done.push((job, outcome));
        self.alarm.ring();
        Step::Again
    }
}

impl Reader {
    fn copy(&self, buffer: u32, used: &Used) -> Result<ReplicaBytes, ReadError> {
        let mut blocks = Block::vec(used.length as usize);
        self.pool.read(buffer, 0, &mut blocks.as_mut_bytes()[..used.length as usize]);
        verified(used.clone(), blocks, &self.superblock)
    }

    fn read(
        &mut self,
        files: &mut dyn Files,
        ReadJob { frame, replica, on_disk, .. }: &ReadJob,
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
            Ok(Some(Header::Used(used))) if used.id == *replica => on_disk.clone().unwrap_or(used),
            Ok(Some(_)) => return Err(ReadError::Gone),
            Ok(None) => return Err(ReadError::Header),
            Err(error) => return Err(ReadError::Io(error.kind())),
        };
        read_data(files, file, &self.superblock, *frame, used)
    }
}

/// The header of a frame, by its own two slots; the start has seen to it that none of them is of
/// a round that does not count.
fn read_header(
    files: &mut dyn Files,
    file: FileId,
    superblock: &Superblock,
    frame: u32,
) -> io::Result<Option<Header>> {
    let mut slots = [Block::ZERO; 2];
    files.read_at(file, superblock.geometry.header_at(frame, Slot::A), slots.as_mut_bytes())?;
    let found = slots.map(|block| Header::decode(&block, superblock, frame));
    Ok(judge(found, u64::MAX).newest.map(|(_, _, header)| header))
}

/// The data of a frame, as its header describes it.
pub(crate) fn read_data(
    files: &mut dyn Files,
    file: FileId,
    superblock: &Superblock,
    frame: u32,
    used: Used,
) -> Result<ReplicaBytes, ReadError> {
    let mut blocks = Block::vec(used.length as usize);
    let at = superblock.geometry.data_at(frame);
    files.read_at(file, at, blocks.as_mut_bytes()).map_err(|error| ReadError::Io(error.kind()))?;
    verified(used, blocks, superblock)
}

fn verified(
    used: Used,
    blocks: Vec<Block>,
    superblock: &Superblock,
) -> Result<ReplicaBytes, ReadError> {
    match used.first_damaged_chunk(blocks.as_bytes(), superblock.geometry.chunk_bytes()) {
        None => Ok(ReplicaBytes { used, blocks }),
        Some(chunk) => Err(ReadError::Chunk { chunk }),
    }
}
