//! The worker that writes rounds of data and headers. It syncs each round before the round is
//! acknowledged.
//!
//! A round makes a set of frames durable as the reactor saw them at one moment:
//!
//! 1. the data that is not on disk yet: whole blocks from the pool, the last block from a copy;
//!    and together with it
//! 2. the headers, each into the slot that does not count, all with the round's sequence and the
//!    number of its headers;
//! 3. `fdatasync`.
//!
//! A power loss during a round leaves all of it or nothing ([`CountedRounds`]). The reactor puts
//! all changes into a round, so the disk always holds the result of some prefix of its calls: the
//! order that the log's replicator demands. One kind of change may come later than its place in
//! that order: the freeing of a replica that took the place of another one, which is freed first
//! ([`Job::after`]). Freed replicas may come back, so no master relies on that order.
//!
//! # One sync, or two
//!
//! With one sync, a header may be on the disk without its data. Each header says that it was
//! written so, and from which offset on its data is new ([`DoubtfulData`]). It also names the
//! newest round of one sync that was durable when it was written. So after a power loss, there is
//! at most one round of which the headers alone do not prove that it was durable: the last. The
//! start compares that round's data with its checksums. If all is there, the round counts. If some
//! is not, the round was never acknowledged.
//!
//! If no write follows a round of one sync for some time, the flusher writes one of its headers
//! again, in a round that says that the one before was durable. (Otherwise a bit of its data that
//! flips a year later would make the round look cut off. Only data that is damaged within that
//! time, together with a power loss or a crash within it, can still look so wrongly.)
//!
//! After a sync or a write of such a round has failed, the disk may have headers without their
//! data. Until all of these frames have been written again, rounds have two syncs, one after the
//! data and one after the headers, so their headers are always true. No header says before then
//! that that round or a later one was durable. So an unproven round of one sync counts only if it
//! is the last of all rounds.
//!
//! # All at once
//!
//! Writes without a sync between them begin together, and the flusher waits for them once
//! ([`Files::write_together`]). In a round of one sync these are all writes; in a round of two
//! syncs, first all data, then all headers. Headers need not wait for data, for these reasons:
//!
//! - While the writes are under way, a disk may keep any part of the writes since the last sync,
//!   in any order. So a power loss leaves no state that it could not have left before.
//!   A killed process may leave any part, too: the next one compares the data, as after a power
//!   loss, and goes on from the pool.
//! - If data of a round *s* cannot be written, the data's header may be on the disk nevertheless,
//!   and so may all headers of *s*, which has failed. The frames of *s* were put into `doubtful`
//!   before any of its writes. Until the next attempt is complete, *s* may be the newest complete
//!   round. It has one sync and is not proven, so it counts only if all of its data is there, even
//!   if the disk reported otherwise. The next attempt has two syncs, and overwrites each header of
//!   *s* except those of frames that left. These frames stay in `doubtful` until they have been
//!   overwritten and synced, and until then no header says that a round from *s* on was durable. A
//!   header of one sync that is neither proven nor of the newest complete round does not count.
//!   The frame's other slot does, which no write has touched.
//! - With that alone, a disk that can neither write nor read a block would keep a server from
//!   starting if no round followed *s*, because the start would have to read the data of *s*. So
//!   the flusher overwrites the headers of the frames that left with headers of a round that can
//!   never be complete.
//!
//! # Headers of an earlier process
//!
//! A header whose sync failed can be read, but may not be on the disk. The process that wrote it
//! knows, and overwrites that same slot. The next process does not know, and would overwrite the
//! older slot, which may be the only one on the disk. So a start writes all headers that count once
//! more and syncs them, before it relies on them. If the disk refuses one of them, the first round
//! that touches its frame tries that again.
//!
//! # Failed writes
//!
//! A frame that cannot be written leaves the round and is *bad*. After a failed sync the state of
//! the round on the disk is unknown. The flusher writes it again from the pool, which still has
//! all of it.

use crate::block::Block;
use crate::layout::{
    DoubtfulData, FrameNumber, Geometry, Header, HeaderWrite, Slot, SlotState, Superblock,
};
use crate::limits::{BLOCK_BYTES, HEADERS_AT_ONCE, JOBS_AT_ONCE, SYNC_ATTEMPTS};
use crate::pool::{BufferNumber, Pool};
use crate::unreadable_blocks::read_around;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::files::{Content, FileId, Files, Opening, Piece};
use thunderhead_runtime::workers::{Step, Worker};
use zerocopy::IntoBytes;

/// A frame's part of a round.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) frame: FrameNumber,
    /// The buffer with its data; none for a frame that becomes free.
    pub(crate) buffer: Option<BufferNumber>,
    /// The new header.
    pub(crate) header: Header,
    /// The frames that must be durable before: older replicas with the same id, which are freed
    /// too. While one of them is on the disk, it must not be the newest there.
    pub(crate) after: Vec<FrameNumber>,
}

/// The outcome of a round.
#[derive(Debug, Default)]
pub(crate) struct RoundOutcome {
    pub(crate) failed: Vec<FailedFrame>,
    /// The newest round that was begun.
    pub(crate) sequence: u64,
    /// No header on the disk says that the last round was durable.
    pub(crate) unproven: bool,
}

/// A frame that left its round, because the disk refused its part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedFrame {
    pub(crate) frame: FrameNumber,
    pub(crate) kind: io::ErrorKind,
}

/// The state that reactor and worker share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The next round. Without jobs, it records that the last round was durable.
    pub(crate) round: Option<Vec<Job>>,
    pub(crate) finished: Option<RoundOutcome>,
}

/// A handle to it.
pub(crate) type Exchange = Arc<Mutex<Shared>>;

pub(crate) fn lock(exchange: &Exchange) -> MutexGuard<'_, Shared> {
    exchange.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of a frame on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnDisk {
    /// The slot that counts.
    pub(crate) slot: Slot,
    /// Bytes of data that are durable; 0 when there are none of the present replica.
    pub(crate) synced: u32,
}

/// Writes rounds: at the start for the recovery of the pool, then for the worker.
#[derive(Debug)]
pub(crate) struct Rounds {
    pub(crate) superblock: Superblock,
    pub(crate) frames: Vec<OnDisk>,
    /// The newest round that was begun.
    pub(crate) sequence: u64,
    /// The newest round of one sync that was durable.
    pub(crate) proven: u64,
    /// A header of that round, if no header on the disk says that the round was durable.
    pub(crate) unproven: Option<Job>,
    /// Frames that have a header of a round of one sync that may not have been durable.
    pub(crate) doubtful: BTreeSet<FrameNumber>,
    /// The rounds of an earlier process that wrote the headers that count. If such a round's sync
    /// failed, its headers can be read but may not be on the disk.
    pub(crate) inherited: BTreeMap<FrameNumber, u64>,
    /// Headers of such rounds that were written again, and whose sync has failed.
    pub(crate) unsynced: BTreeMap<FrameNumber, CopiedBlock>,
}

/// How many syncs a round has, if it writes data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syncs {
    One,
    Two,
}

/// The reason why an attempt at a round ended early.
enum Interruption {
    /// A frame left it, so the number of its headers has changed.
    Fewer,
    Sync(io::Error),
}

impl Rounds {
    fn geometry(&self) -> Geometry {
        self.superblock.geometry
    }

    /// Makes the jobs durable, in one round unless some must come after others. Returns the frames
    /// that failed.
    pub(crate) fn write(
        &mut self,
        files: &mut dyn Files,
        file: FileId,
        pool: &Pool,
        syncs: Syncs,
        mut jobs: Vec<Job>,
    ) -> Vec<FailedFrame> {
        let mut failed: Vec<FailedFrame> = Vec::new();
        let mut done = BTreeSet::new();
        loop {
            let is_ready = |job: &mut Job| job.after.iter().all(|frame| done.contains(frame));
            let round: Vec<Job> = jobs.extract_if(.., is_ready).collect();
            if round.is_empty() {
                break;
            }
            done.extend(round.iter().map(|job| job.frame));
            let some = self.write_round(files, file, pool, syncs, round);
            some.iter().for_each(|it| _ = done.remove(&it.frame));
            failed.extend(some);
        }
        // A disk that refused one of the others may take it the next time.
        let busy = io::Error::from(io::ErrorKind::ResourceBusy);
        failed.extend(jobs.iter().map(|job| FailedFrame::of(job, &busy)));
        failed
    }

    /// Makes the jobs durable, with one sync unless a write or a sync fails or has failed before.
    /// Returns the frames that failed.
    fn write_round(
        &mut self,
        files: &mut dyn Files,
        file: FileId,
        pool: &Pool,
        syncs: Syncs,
        mut jobs: Vec<Job>,
    ) -> Vec<FailedFrame> {
        let mut failed = Vec::new();
        let mut syncs_failed = 0;
        let mut had = Syncs::Two;
        while !jobs.is_empty() {
            let syncs = if self.doubtful.is_empty() { syncs } else { Syncs::Two };
            match self.attempt(files, file, pool, syncs, &mut jobs, &mut failed) {
                Ok(syncs) => {
                    had = syncs;
                    break;
                }
                Err(Interruption::Fewer) => {}
                Err(Interruption::Sync(error)) => {
                    syncs_failed += 1;
                    tracing::warn!("a sync of the backup storage failed: {error}");
                    if syncs_failed == SYNC_ATTEMPTS {
                        failed.extend(jobs.drain(..).map(|job| FailedFrame::of(&job, &error)));
                    }
                }
            }
        }
        for job in &jobs {
            let disk = &mut self.frames[job.frame.index()];
            disk.slot = disk.slot.other();
            disk.synced = match &job.header {
                Header::Free => 0,
                Header::Used(used) => used.length,
            };
            self.doubtful.remove(&job.frame);
        }
        if !jobs.is_empty() {
            // A free frame's header is no proof: a replica may have begun in that frame, and the
            // next process would take the replica for freed.
            let said = jobs.into_iter().find(|job| had == Syncs::One && job.header != Header::Free);
            self.unproven = said.map(|job| Job { buffer: None, ..job });
            if had == Syncs::One {
                self.proven = self.sequence;
            }
        }
        failed
    }

    /// Records on the disk that the last round was durable. A failure changes nothing.
    pub(crate) fn prove(&mut self, files: &mut dyn Files, file: FileId, pool: &Pool) {
        let Some(job) = self.unproven.clone() else { return };
        let frame = job.frame;
        let tried = self.attempt(files, file, pool, Syncs::Two, &mut vec![job], &mut Vec::new());
        if tried.is_ok() {
            let disk = &mut self.frames[frame.index()];
            disk.slot = disk.slot.other();
            self.doubtful.remove(&frame);
            self.unproven = None;
        }
    }

    fn attempt(
        &mut self,
        files: &mut dyn Files,
        file: FileId,
        pool: &Pool,
        syncs: Syncs,
        jobs: &mut Vec<Job>,
        failed: &mut Vec<FailedFrame>,
    ) -> Result<Syncs, Interruption> {
        self.store_inherited(files, file, pool, jobs, failed)?;
        let writes_data = jobs.iter().any(|job| self.new_data(job).is_some());
        // Headers without new data are always true, so they need no doubt.
        let syncs = if writes_data { syncs } else { Syncs::Two };
        if writes_data && syncs == Syncs::Two {
            write_parts(files, file, pool, jobs, failed, |job| self.data(pool, job));
            if !jobs.is_empty() {
                files.sync(file).map_err(Interruption::Sync)?;
            }
        }
        self.sequence += 1;
        let (sequence, members, proven) = (self.sequence, jobs.len() as u32, self.proven);
        if syncs == Syncs::One {
            // The frames stay doubtful until the round is durable.
            self.doubtful.extend(jobs.iter().map(|job| job.frame));
        }
        let left = write_parts(files, file, pool, jobs, failed, |job| {
            let from = self.frames[job.frame.index()].synced;
            let (mut part, doubt) = match syncs {
                Syncs::One => (self.data(pool, job), Some(DoubtfulData { from })),
                Syncs::Two => (Part::default(), None),
            };
            let writing = HeaderWrite { sequence, members, proven, doubt };
            part.copies.push(self.header(job.frame, &job.header, writing));
            part
        });
        if !left.is_empty() {
            if syncs == Syncs::One {
                self.unsay(files, file, &left);
            }
            return Err(Interruption::Fewer);
        }
        if !jobs.is_empty() {
            files.sync(file).map_err(Interruption::Sync)?;
        }
        Ok(syncs)
    }

    /// Stores all headers of an earlier process but those of some frames, as the start found them:
    /// writes the same bytes to the same place, and syncs them. Headers that the disk refuses are
    /// tried again before the slots beside them are overwritten.
    pub(crate) fn store_all_inherited(
        &mut self,
        files: &mut dyn Files,
        file: FileId,
        except: &[FailedFrame],
    ) -> io::Result<()> {
        let geometry = self.geometry();
        let mut stored = Vec::new();
        let mut blocks = Vec::new();
        for first in (0..geometry.frames).step_by(HEADERS_AT_ONCE / 2) {
            let last = geometry.frames.min(first + HEADERS_AT_ONCE as u32 / 2);
            let frames = || self.inherited.range(FrameNumber(first)..FrameNumber(last));
            if frames().next().is_none() {
                continue;
            }
            blocks.clear();
            blocks.resize(2 * (last - first) as usize, Block::ZERO);
            let at = geometry.header_at(FrameNumber(first), Slot::A);
            read_around(files, file, at, &mut blocks)?;
            let of_frame = |(frame, round): (&FrameNumber, &u64)| {
                let slot = self.frames[frame.index()].slot;
                let block = &blocks[2 * (frame.0 - first) as usize + slot as usize];
                let found = Header::decode(block, &self.superblock, *frame);
                let is_same =
                    matches!(found, SlotState::Whole { writing, .. } if writing.sequence == *round);
                let is_wanted = is_same && except.iter().all(|it| it.frame != *frame);
                let content = Content::Bytes(block.as_bytes());
                is_wanted
                    .then(|| (*frame, Piece { offset: geometry.header_at(*frame, slot), content }))
            };
            let (numbers, pieces): (Vec<_>, Vec<_>) = frames().filter_map(of_frame).unzip();
            for (numbers, pieces) in numbers.chunks(JOBS_AT_ONCE).zip(pieces.chunks(JOBS_AT_ONCE)) {
                let results = files.write_together(file, pieces);
                let written = numbers.iter().zip(results).filter(|(_, result)| result.is_ok());
                stored.extend(written.map(|(frame, _)| *frame));
            }
        }
        files.sync(file)?;
        stored.iter().for_each(|frame| _ = self.inherited.remove(frame));
        Ok(())
    }

    /// Stores the headers of an earlier process before the jobs overwrite the slots beside them:
    /// one of the two slots must always be on the disk.
    fn store_inherited(
        &mut self,
        files: &mut dyn Files,
        file: FileId,
        pool: &Pool,
        jobs: &mut Vec<Job>,
        failed: &mut Vec<FailedFrame>,
    ) -> Result<(), Interruption> {
        let is_inherited = |job: &Job| self.inherited.contains_key(&job.frame);
        if !jobs.iter().any(is_inherited) {
            return Ok(());
        }
        let (mut inherited, others): (Vec<Job>, _) =
            std::mem::take(jobs).into_iter().partition(is_inherited);
        *jobs = others;
        let (mut is_whole, mut synced) = (true, Ok(()));
        while !inherited.is_empty() && synced.is_ok() {
            let count = inherited.len().min(HEADERS_AT_ONCE);
            let mut some: Vec<Job> = inherited.drain(..count).collect();
            synced = self.store_headers(files, file, pool, &mut some, failed);
            is_whole &= some.len() == count;
            jobs.append(&mut some);
        }
        jobs.append(&mut inherited);
        synced.map_err(Interruption::Sync)?;
        if is_whole { Ok(()) } else { Err(Interruption::Fewer) }
    }

    /// Writes headers of an earlier process again, the same bytes to the same place, and syncs
    /// them. A disk stores a sector whole or not at all, so this cannot damage a header that is on
    /// the disk. Removes the jobs of frames that fail.
    fn store_headers(
        &mut self,
        files: &mut dyn Files,
        file: FileId,
        pool: &Pool,
        jobs: &mut Vec<Job>,
        failed: &mut Vec<FailedFrame>,
    ) -> io::Result<()> {
        let mut headers = BTreeMap::new();
        jobs.retain(|job| {
            let written = self.unsynced.remove(&job.frame);
            match written.map_or_else(|| self.read_inherited(files, file, job.frame), Ok) {
                Ok(header) => headers.insert(job.frame, header).is_none(),
                Err(error) => {
                    let frame = job.frame.0;
                    tracing::warn!(frame, "a header of the backup storage cannot be read: {error}");
                    failed.push(FailedFrame::of(job, &error));
                    false
                }
            }
        });
        write_parts(files, file, pool, jobs, failed, |job| Part {
            copies: headers.get(&job.frame).cloned().into_iter().collect(),
            ..Part::default()
        });
        if jobs.is_empty() {
            return Ok(());
        }
        // After a failed sync, the kernel may show other bytes than were written.
        files.sync(file).inspect_err(|_| self.unsynced.extend(headers))?;
        jobs.iter().for_each(|job| _ = self.inherited.remove(&job.frame));
        Ok(())
    }

    /// Reads the header of an earlier process. Fails if the start found another header there.
    fn read_inherited(
        &self,
        files: &mut dyn Files,
        file: FileId,
        frame: FrameNumber,
    ) -> io::Result<CopiedBlock> {
        let offset = self.geometry().header_at(frame, self.frames[frame.index()].slot);
        let mut block = Box::new(Block::ZERO);
        files.read_at(file, offset, block.as_mut_bytes())?;
        match Header::decode(&block, &self.superblock, frame) {
            SlotState::Whole { writing, .. }
                if self.inherited.get(&frame) == Some(&writing.sequence) =>
            {
                Ok(CopiedBlock { offset, block })
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it has changed since the start")),
        }
    }

    /// Voids the last round, of one sync, after these frames left it: overwrites their headers
    /// with a header that can never be complete. If this fails, the next start after a crash
    /// checks the round's data.
    fn unsay(&mut self, files: &mut dyn Files, file: FileId, left: &[FrameNumber]) {
        self.sequence += 1;
        for frame in left {
            let doubt = Some(DoubtfulData { from: 0 });
            let (sequence, proven) = (self.sequence, self.proven);
            let writing = HeaderWrite { sequence, members: u32::MAX, proven, doubt };
            let copy = self.header(*frame, &Header::Free, writing);
            let _ = files.write_at(file, copy.offset, copy.block.as_bytes());
        }
        let _ = files.sync(file);
    }

    /// Returns the write of a header, into the slot that does not count.
    fn header(&self, frame: FrameNumber, header: &Header, writing: HeaderWrite) -> CopiedBlock {
        let slot = self.frames[frame.index()].slot.other();
        let block = Box::new(header.encode(self.superblock.store, frame, writing));
        CopiedBlock { offset: self.geometry().header_at(frame, slot), block }
    }

    /// Returns the data of a job that is not on disk.
    fn new_data(&self, job: &Job) -> Option<NewData> {
        let (Header::Used(used), Some(buffer)) = (&job.header, job.buffer) else { return None };
        let from = self.frames[job.frame.index()].synced as usize / BLOCK_BYTES * BLOCK_BYTES;
        let is_new = used.length > self.frames[job.frame.index()].synced;
        is_new.then_some(NewData { buffer, range: from..used.length as usize })
    }

    fn data(&self, pool: &Pool, job: &Job) -> Part {
        let mut part = Part::default();
        let Some(NewData { buffer, range }) = self.new_data(job) else { return part };
        let whole = range.end / BLOCK_BYTES * BLOCK_BYTES;
        let (to, data) = (self.geometry().data_at(job.frame), pool.data_at(buffer));
        if range.start < whole {
            let memory = data + range.start..data + whole;
            part.whole = Some(WholeBlocks { offset: to + range.start as u64, memory });
        }
        let tail = range.end - whole;
        if tail > 0 {
            // The reactor may write to the rest of the block meanwhile, and file systems that keep
            // checksums do not tolerate that.
            let mut block = Box::new(Block::ZERO);
            pool.read(buffer, whole as u32, &mut block.0[..tail]);
            part.copies.push(CopiedBlock { offset: to + whole as u64, block });
        }
        part
    }
}

/// The data of a job that is not on disk.
struct NewData {
    buffer: BufferNumber,
    /// The data's place in the buffer.
    range: Range<usize>,
}

/// The writes of a job that are done together.
#[derive(Default)]
struct Part {
    whole: Option<WholeBlocks>,
    copies: Vec<CopiedBlock>,
}

/// A write of whole blocks from the pool.
struct WholeBlocks {
    /// Their place in the file.
    offset: u64,
    /// Their place in the pool's memory.
    memory: Range<usize>,
}

/// A write of a block that was copied or made.
#[derive(Clone, Debug)]
pub(crate) struct CopiedBlock {
    /// Its place in the file.
    offset: u64,
    block: Box<Block>,
}

impl Part {
    fn pieces<'a>(&'a self, pool: &'a Pool) -> impl Iterator<Item = Piece<'a>> {
        let whole = self.whole.iter().map(|it| {
            let content = Content::Lasting(pool.memory(), it.memory.clone());
            Piece { offset: it.offset, content }
        });
        let copies = self.copies.iter().map(|it| {
            let content = Content::Bytes(it.block.as_bytes());
            Piece { offset: it.offset, content }
        });
        whole.chain(copies)
    }
}

/// Writes a part of each job, in any order. Returns the frames that left, because some of their
/// part could not be written.
fn write_parts(
    files: &mut dyn Files,
    file: FileId,
    pool: &Pool,
    jobs: &mut Vec<Job>,
    failed: &mut Vec<FailedFrame>,
    part: impl Fn(&Job) -> Part,
) -> Vec<FrameNumber> {
    let mut errors = Vec::with_capacity(jobs.len());
    for some in jobs.chunks(JOBS_AT_ONCE) {
        let parts: Vec<Part> = some.iter().map(&part).collect();
        let pieces: Vec<Piece<'_>> = parts.iter().flat_map(|part| part.pieces(pool)).collect();
        let mut results = files.write_together(file, &pieces).into_iter();
        for part in &parts {
            let of_job = results.by_ref().take(part.pieces(pool).count());
            errors.push(of_job.filter_map(Result::err).last());
        }
    }
    let mut left = Vec::new();
    for (job, error) in std::mem::take(jobs).into_iter().zip(errors) {
        match error {
            None => jobs.push(job),
            Some(error) => {
                let frame = job.frame.0;
                tracing::warn!(frame, "a frame of the backup storage cannot be written: {error}");
                failed.push(FailedFrame::of(&job, &error));
                left.push(job.frame);
            }
        }
    }
    left
}

impl Job {
    /// Returns the job that marks a frame free.
    pub(crate) fn free(frame: FrameNumber) -> Job {
        Job { frame, buffer: None, header: Header::Free, after: Vec::new() }
    }
}

impl FailedFrame {
    fn of(job: &Job, error: &io::Error) -> FailedFrame {
        FailedFrame { frame: job.frame, kind: error.kind() }
    }
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
            Ok(file) if jobs.is_empty() => {
                self.rounds.prove(files, file, &self.pool);
                Vec::new()
            }
            Ok(file) => self.rounds.write(files, file, &self.pool, Syncs::One, jobs),
            Err(error) => jobs.iter().map(|job| FailedFrame::of(job, &error)).collect(),
        };
        let Rounds { sequence, ref unproven, .. } = self.rounds;
        let finished = RoundOutcome { failed, sequence, unproven: unproven.is_some() };
        lock(&self.exchange).finished = Some(finished);
        self.alarm.ring();
        Step::Idle
    }

    fn waits_for_devices(&self) -> bool {
        true
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
