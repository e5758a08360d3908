//! The worker that writes: rounds of data and headers, each synced before anybody is told.
//!
//! A round makes a set of frames durable as the reactor saw them at one moment:
//!
//! 1. the data that is not on disk yet, whole blocks from the pool, the last block from a copy;
//! 2. `fdatasync`, so that no header ever speaks of data that may not be there;
//! 3. the headers, each into the slot that does not count, all with the round's sequence and the
//!    number of headers that it has;
//! 4. `fdatasync`.
//!
//! Power that goes in the midst leaves all of a round or nothing ([`newest_complete_round`]). The
//! reactor puts all that changed into a round, so what is durable is always what some prefix of
//! its calls made: the order that the log's replicator demands.
//!
//! A frame that cannot be written leaves the round and is *bad*. After a failed sync nothing is
//! known of the round; it is written anew, from the pool, which still has all of it.
//!
//! [`newest_complete_round`]: crate::layout::newest_complete_round

use crate::block::Block;
use crate::layout::{Geometry, Header, Slot, Superblock};
use crate::limits::{BLOCK_BYTES, SYNC_ATTEMPTS};
use crate::pool::Pool;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::files::{FileId, Files, Opening};
use thunderhead_runtime::workers::{Step, Worker};
use zerocopy::IntoBytes;

/// A frame's part of a round.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) frame: u32,
    /// Where its data is; none for a frame that becomes free.
    pub(crate) buffer: Option<u32>,
    /// What is to be on disk.
    pub(crate) header: Header,
}

/// What became of a round.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    /// The frames that failed, and how.
    pub(crate) failed: Failed,
    /// The newest round that was begun.
    pub(crate) sequence: u64,
}

pub(crate) type Failed = Vec<(u32, io::ErrorKind)>;

/// What reactor and worker share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) round: Option<Vec<Job>>,
    pub(crate) finished: Option<Finished>,
}

/// A handle to it.
pub(crate) type Exchange = Arc<Mutex<Shared>>;

pub(crate) fn lock(exchange: &Exchange) -> MutexGuard<'_, Shared> {
    exchange.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of a frame's state on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnDisk {
    /// The slot that counts.
    pub(crate) slot: Slot,
    /// Bytes of data that are durable; 0 when there are none of the present replica.
    pub(crate) synced: u32,
}

/// Writes rounds. Used by what recovers the pool at the start, and then by the worker.
#[derive(Debug)]
pub(crate) struct Rounds {
    pub(crate) superblock: Superblock,
    pub(crate) frames: Vec<OnDisk>,
    /// The newest round that was begun.
    pub(crate) sequence: u64,
}

/// Why an attempt at a round ended early.
enum Interrupted {
    /// A frame left it: the number of its headers is another.
    Fewer,
    Sync(io::Error),
}

impl Rounds {
    fn geometry(&self) -> Geometry {
        self.superblock.geometry
    }

    /// Makes the jobs durable; says which frames failed.
    pub(crate) fn write(
        &mut self,
        files: &mut dyn Files,
        file: FileId,
        pool: &Pool,
        mut jobs: Vec<Job>,
    ) -> Failed {
        let mut failed = Vec::new();
        let mut syncs_failed = 0;
        while !jobs.is_empty() {
            match self.attempt(files, file, pool, &mut jobs, &mut failed) {
                Ok(()) => break,
                Err(Interrupted::Fewer) => {}
                Err(Interrupted::Sync(error)) => {
                    syncs_failed += 1;
                    tracing::warn!("a sync of the backup storage failed: {error}");
                    if syncs_failed == SYNC_ATTEMPTS {
                        failed.extend(jobs.drain(..).map(|job| (job.frame, error.kind())));
                    }
                }
            }
        }
        for job in &jobs {
            let disk = &mut self.frames[job.frame as usize];
            disk.slot = disk.slot.other();
            disk.synced = match &job.header {
                Header::Free => 0,
                Header::Used(used) => used.length,
            };
        }
        failed
    }

    fn attempt(
        &mut self,
        files: &mut dyn Files,
        file: FileId,
        pool: &Pool,
        jobs: &mut Vec<Job>,
        failed: &mut Failed,
    ) -> Result<(), Interrupted> {
        let mut wrote = false;
        jobs.retain(|job| match self.write_data(files, file, pool, job) {
            Ok(any) => {
                wrote |= any;
                true
            }
            Err(error) => give_up(failed, job, &error),
        });
        if wrote {
            files.sync(file).map_err(Interrupted::Sync)?;
        }
        self.sequence += 1;
        let (sequence, members) = (self.sequence, jobs.len() as u32);
        jobs.retain(|job| {
            let block = job.header.encode(self.superblock.store, job.frame, sequence, members);
            let slot = self.frames[job.frame as usize].slot.other();
            let at = self.geometry().header_at(job.frame, slot);
            match files.write_at(file, at, block.as_bytes()) {
                Ok(()) => true,
                Err(error) => give_up(failed, job, &error),
            }
        });
        if jobs.len() < members as usize {
            return Err(Interrupted::Fewer);
        }
        if jobs.is_empty() {
            return Ok(());
        }
        files.sync(file).map_err(Interrupted::Sync)
    }

    /// Writes what is not on disk of a frame's data; says whether there was any.
    fn write_data(
        &self,
        files: &mut dyn Files,
        file: FileId,
        pool: &Pool,
        job: &Job,
    ) -> io::Result<bool> {
        let (Header::Used(used), Some(buffer)) = (&job.header, job.buffer) else {
            return Ok(false);
        };
        let synced = self.frames[job.frame as usize].synced;
        if used.length <= synced {
            return Ok(false);
        }
        let from = synced as usize / BLOCK_BYTES * BLOCK_BYTES;
        let whole = used.length as usize / BLOCK_BYTES * BLOCK_BYTES;
        let (to, data) = (self.geometry().data_at(job.frame), pool.data_at(buffer));
        if from < whole {
            let range = data + from..data + whole;
            files.write_lasting(file, to + from as u64, pool.memory(), range)?;
        }
        let tail = used.length as usize - whole;
        if tail > 0 {
            // Its rest may be written to meanwhile, and file systems that keep checksums do not
            // like that.
            let mut block = Block::ZERO;
            pool.read(buffer, whole as u32, &mut block.0[..tail]);
            files.write_at(file, to + whole as u64, block.as_bytes())?;
        }
        Ok(true)
    }
}

fn give_up(failed: &mut Failed, job: &Job, error: &io::Error) -> bool {
    tracing::warn!(frame = job.frame, "a frame of the backup storage cannot be written: {error}");
    failed.push((job.frame, error.kind()));
    false
}

/// The worker.
pub(crate) struct Flusher {
    pub(crate) exchange: Exchange,
    pub(crate) alarm: Alarm,
    pub(crate) pool: Pool,
    pub(crate) rounds: Rounds,
    pub(crate) name: String,
    pub(crate) file: Option<FileId>,
}

impl Worker for Flusher {
    fn step(&mut self, files: &mut dyn Files) -> Step {
        let Some(jobs) = lock(&self.exchange).round.take() else { return Step::Idle };
        let failed = match self.open(files) {
            Ok(file) => self.rounds.write(files, file, &self.pool, jobs),
            Err(error) => jobs.iter().map(|job| (job.frame, error.kind())).collect(),
        };
        let finished = Finished { failed, sequence: self.rounds.sequence };
        lock(&self.exchange).finished = Some(finished);
        self.alarm.ring();
        Step::Idle
    }
}

impl Flusher {
    fn open(&mut self, files: &mut dyn Files) -> io::Result<FileId> {
        if let Some(file) = self.file {
            return Ok(file);
        }
        let how = Opening { direct: true, ..Opening::default() };
        let file = files.open_with(&self.name, how)?;
        self.file = Some(file);
        Ok(file)
    }
}
