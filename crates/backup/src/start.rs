//! Opens a store: makes or checks the file, reads every header, brings the pool of a killed
//! process to the disk, and times reading. All of this may wait, because it comes before the
//! process's first turn.
//!
//! The start reads and compares the data of an unproven round of one sync. The round counts if all
//! of its data is there. Data and headers that can be read may not be on the disk, because a sync
//! had failed before the process was killed. So the start stores the data of such a round and then
//! all headers, before it relies on them. After that it overwrites damaged slots beside a good
//! slot, and headers that do not count: a header of an unfinished round would count after later
//! rounds.

mod doubtful;

use crate::block::Block;
use crate::buffer_record::settle_in;
use crate::error::OpenError;
use crate::flusher::{FailedFrame, Flusher, Job, OnDisk, Rounds, Syncs};
use crate::layout::{
    CountedHeader, CountedRounds, FORMAT_VERSION, FrameNumber, Geometry, Header, HeaderWrite,
    JudgedFrame, NotSuperblock, ReplicaHeader, ReplicaId, Slot, SlotState, Superblock, judge,
};
use crate::limits::{BLOCK_BYTES, BUFFERS_MAX, FRAMES_MAX, SEGMENT_BYTES_MAX, TIMED_FRAMES};
use crate::pool::{self, BufferNumber, BufferedReplica, Pool};
use crate::reader::Reader;
use crate::store::{FILE_NAME, Frame, Options, Parts, State, Store};
use crate::unreadable_blocks::read_around;
pub(crate) use doubtful::counted_rounds;
use doubtful::{DoubtfulReplica, FrameData, in_doubt, read_doubtful};
use std::collections::BTreeMap;
use std::io;
use thunderhead_runtime::World;
use thunderhead_runtime::files::{FileId, Files, Opening};
use thunderhead_runtime::lasting::{Memories, WrongOwner};
use thunderhead_wire::Epoch;
use zerocopy::IntoBytes;

/// The sequence of the first headers of a file, which are durable before the file has its name.
const MADE: u64 = 1;

/// The number of bytes between two progress messages while all of a file is written.
const TOLD_EVERY: u64 = 1 << 30;

/// The findings of a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartReport {
    /// The file was made.
    pub is_new: bool,
    /// The number of replicas here.
    pub replicas: u32,
    /// Replicas that a killed process had left in memory, now on the disk.
    pub recovered: u32,
    /// Replicas in memory that failed verification: the disk's version of them counts.
    pub pool_damaged: u32,
    /// Frames with a header that was being written when the power failed.
    pub torn: u32,
    /// Frames whose headers cannot be read. They are not touched and not used.
    pub damaged: u32,
    /// Frames that could not be written.
    pub bad: u32,
    /// The rate at which frames are read, if it could be measured.
    pub read_bytes_per_second: Option<u64>,
}

impl Store {
    /// Opens the store of this process, and makes it if it is not there.
    ///
    /// # Errors
    /// If it cannot or must not be opened. It is unchanged then.
    pub fn start(world: &mut World, options: Options) -> Result<(Store, StartReport), OpenError> {
        check_options(&options)?;
        let files = world.files.as_mut();
        let lock = files.lock(&format!("{}.lock", options.file)).map_err(in_use)?;
        let is_new = !files.find(&options.file)?;
        if is_new {
            // The file may take gigabytes, and a long time.
            let geometry =
                Geometry { segment_bytes: options.segment_bytes, frames: options.frames };
            let bytes = pool::bytes(geometry, options.buffers);
            let checked = world.memories.check(bytes);
            checked.map_err(|error| OpenError::NoMemory { bytes, error })?;
            make(files, &options, world.random.number())?;
        }
        // Links in two directories may lead to one file.
        let file_lock = files.lock(&options.file).map_err(in_use)?;
        let how = Opening { direct: true, ..Opening::default() };
        let file = files.open_with(&options.file, how)?;
        let mut superblock = read_superblock(files, file)?;
        agrees(&superblock, &options)?;
        if !superblock.one_sync {
            superblock.one_sync = true;
            say_one_sync(files, file, &superblock)?;
        }
        let mut start = Start::read(files, file, superblock)?;
        start.opened.is_new = is_new;
        let pool = start.recover(files, file, world.memories.as_mut(), &options)?;
        start.opened.read_bytes_per_second = start.time_reading(files, file, &world.clock)?;
        files.close(file);
        let Start { rounds, frames, opened, .. } = start;
        let sequence = rounds.sequence;
        let exchange = crate::flusher::Exchange::default();
        let reads = crate::reader::Reads::default();
        let spare = crate::reader::SpareBuffers::default();
        let flusher = world.workers.start(
            "backup-flusher",
            Box::new(Flusher {
                exchange: exchange.clone(),
                alarm: world.alarm.clone(),
                pool: pool.clone(),
                name: options.file.clone(),
                file: None,
                rounds,
            }),
        )?;
        let reader = world.workers.start(
            "backup-reader",
            Box::new(Reader {
                reads: reads.clone(),
                alarm: world.alarm.clone(),
                superblock,
                pool: pool.clone(),
                name: options.file.clone(),
                file: None,
                spare: spare.clone(),
            }),
        )?;
        let parts = Parts {
            spare,
            options,
            superblock,
            pool,
            frames,
            sequence,
            exchange,
            reads,
            flusher,
            reader,
            locks: [lock, file_lock],
        };
        Ok((Store::assemble(parts), opened))
    }
}

fn in_use(error: io::Error) -> OpenError {
    match error.kind() {
        io::ErrorKind::WouldBlock => OpenError::InUse,
        _ => OpenError::Io(error),
    }
}

/// The error for buffers of another user. A server of the storage's owner may have left the only
/// copy of replicas there.
pub(crate) fn of_another_user(other: WrongOwner, owner: Option<u32>) -> OpenError {
    match owner == Some(other.user) {
        true => OpenError::OtherUser(other),
        false => OpenError::Forged(other),
    }
}

fn check_options(options: &Options) -> Result<(), OpenError> {
    let fail = |text: String| Err(OpenError::Options(text));
    let Options { segment_bytes, frames, buffers, .. } = options;
    if !(1..=SEGMENT_BYTES_MAX).contains(segment_bytes) {
        return fail(format!(
            "segments of {segment_bytes} bytes; 1 to {SEGMENT_BYTES_MAX} are possible"
        ));
    }
    if !(1..=FRAMES_MAX).contains(frames) {
        return fail(format!("{frames} frames; 1 to {FRAMES_MAX} are possible"));
    }
    if !(1..=BUFFERS_MAX).contains(buffers) {
        return fail(format!("{buffers} buffers; 1 to {BUFFERS_MAX} are possible"));
    }
    Ok(())
}

/// Makes the file under a temporary name, and renames it when it is complete.
fn make(files: &mut dyn Files, options: &Options, store: u64) -> Result<(), OpenError> {
    let geometry = Geometry { segment_bytes: options.segment_bytes, frames: options.frames };
    let superblock = Superblock { store, identity: options.identity, geometry, one_sync: true };
    let new_name = format!("{}.new", options.file);
    let how = Opening { create: true, direct: true, ..Opening::default() };
    let file = files.open_with(&new_name, how)?;
    let made = fill(files, file, &superblock, options);
    files.close(file);
    if let Err(error) = made {
        let _ = files.remove(&new_name);
        return Err(match error.kind() {
            io::ErrorKind::StorageFull => OpenError::NoRoom { bytes: geometry.file_bytes() },
            _ => OpenError::Io(error),
        });
    }
    files.rename(&new_name, &options.file)?;
    Ok(())
}

fn fill(
    files: &mut dyn Files,
    file: FileId,
    superblock: &Superblock,
    options: &Options,
) -> io::Result<()> {
    let geometry = superblock.geometry;
    // The leftovers of an earlier attempt must not be mixed with this one.
    files.set_length(file, 0)?;
    match options.sparse {
        true => files.set_length(file, geometry.file_bytes())?,
        false => files.allocate(file, geometry.file_bytes())?,
    }
    for slot in Slot::BOTH {
        let block = superblock.encode(MADE - slot as u64);
        files.write_at(file, slot as u64 * BLOCK_BYTES as u64, block.as_bytes())?;
    }
    let per_write = 128;
    for first in (0..geometry.frames).step_by(per_write) {
        let last = geometry.frames.min(first + per_write as u32);
        let blocks: Vec<Block> = (first..last)
            .flat_map(|frame| {
                let frame = FrameNumber(frame);
                Slot::BOTH.map(|slot| {
                    let sequence = MADE - slot as u64;
                    let writing = HeaderWrite { sequence, members: 0, proven: 0, doubt: None };
                    Header::Free.encode(superblock.store, frame, writing)
                })
            })
            .collect();
        files.write_at(file, geometry.header_at(FrameNumber(first), Slot::A), blocks.as_bytes())?;
    }
    // The timing of reads needs written data: the disk is not read for unwritten parts.
    let probe = vec![Block([0x5a; BLOCK_BYTES]); geometry.frame_bytes() / BLOCK_BYTES];
    let frames = if options.populate { geometry.frames } else { geometry.frames.min(TIMED_FRAMES) };
    let mut told = 0;
    for frame in 0..frames {
        files.write_at(file, geometry.data_at(FrameNumber(frame)), probe.as_bytes())?;
        let done = u64::from(frame + 1) * geometry.frame_bytes() as u64;
        if done / TOLD_EVERY > told {
            told = done / TOLD_EVERY;
            let all_mib = (u64::from(frames) * geometry.frame_bytes() as u64) >> 20;
            tracing::info!(done_mib = done >> 20, all_mib, "storage is written through");
        }
    }
    files.sync(file)
}

/// Drops the replicas that a killed process has left in memory, of a store that is not wanted any
/// more.
///
/// # Errors
/// If there is no store in these files, it is in use, or it cannot be read.
pub fn forget_memory(files: &mut dyn Files, memories: &mut dyn Memories) -> Result<(), OpenError> {
    let _lock = files.lock(&format!("{FILE_NAME}.lock"))?;
    let file = files.open_with(FILE_NAME, Opening { read_only: true, ..Opening::default() })?;
    let superblock = read_superblock(files, file)?;
    Ok(memories.remove(&pool::name(&superblock))?)
}

/// Reads a file's superblock.
///
/// # Errors
/// If it is foreign, or of another version, or damaged.
pub fn read_superblock(files: &mut dyn Files, file: FileId) -> Result<Superblock, OpenError> {
    let slots = read_superblocks(files, file)?;
    let found = slots.map(|block| Superblock::decode(&block));
    let newest = found.iter().filter_map(|it| it.ok()).max_by_key(|(sequence, _)| *sequence);
    let Some((_, superblock)) = newest else {
        let why = found.into_iter().filter_map(Result::err);
        // The more specific error wins: a file with one superblock of ours is not foreign.
        return Err(why.fold(OpenError::Foreign, |error, found| match found {
            NotSuperblock::Foreign => error,
            NotSuperblock::Damaged => match error {
                OpenError::Version { .. } => error,
                _ => OpenError::Damaged,
            },
            NotSuperblock::Version { version, features } => {
                OpenError::Version { version, features, known: FORMAT_VERSION }
            }
        }));
    };
    let (expected, actual) = (superblock.geometry.file_bytes(), files.length(file)?);
    if actual < expected {
        return Err(OpenError::Size { expected, actual });
    }
    Ok(superblock)
}

/// Reads the two slots of the superblock; zeroes for an unreadable one.
fn read_superblocks(files: &mut dyn Files, file: FileId) -> io::Result<[Block; 2]> {
    let mut slots = [Block::ZERO; 2];
    let mut read = |slot: Slot| {
        let at = slot as u64 * BLOCK_BYTES as u64;
        let block = &mut slots[slot as usize];
        files.read_at(file, at, block.as_mut_bytes()).inspect_err(|_| *block = Block::ZERO)
    };
    if let [Err(error), Err(_)] = Slot::BOTH.map(&mut read) {
        return Err(error);
    }
    Ok(slots)
}

/// Marks the file of an earlier build as one with headers of one sync, before it gets any.
fn say_one_sync(
    files: &mut dyn Files,
    file: FileId,
    superblock: &Superblock,
) -> Result<(), OpenError> {
    let slots = read_superblocks(files, file)?;
    let sequences = slots.map(|block| Superblock::decode(&block).map_or(0, |it| it.0));
    let older = if sequences[0] > sequences[1] { Slot::B } else { Slot::A };
    let block = superblock.encode(sequences[0].max(sequences[1]) + 1);
    files.write_at(file, older as u64 * BLOCK_BYTES as u64, block.as_bytes())?;
    Ok(files.sync(file)?)
}

fn agrees(superblock: &Superblock, options: &Options) -> Result<(), OpenError> {
    let (expected, actual) = (options.identity, superblock.identity);
    if expected != actual {
        return Err(OpenError::Identity { expected, actual });
    }
    let expected = Geometry { segment_bytes: options.segment_bytes, frames: options.frames };
    let actual = superblock.geometry;
    if expected != actual {
        return Err(OpenError::Geometry { expected, actual });
    }
    Ok(())
}

/// Reads all headers, in pairs of slots by frame. An unreadable slot is damaged and of unknown
/// age.
pub(crate) fn read_headers(
    files: &mut dyn Files,
    file: FileId,
    superblock: &Superblock,
    keep_chunks: bool,
) -> io::Result<Vec<[SlotState; 2]>> {
    let frames = superblock.geometry.frames;
    let mut all = Vec::with_capacity(frames as usize);
    let mut blocks = Vec::new();
    for first in (0..frames).step_by(128) {
        let count = (frames - first).min(128);
        blocks.clear();
        blocks.resize(2 * count as usize, Block::ZERO);
        let at = superblock.geometry.header_at(FrameNumber(first), Slot::A);
        read_around(files, file, at, &mut blocks)?;
        for (frame, slots) in (first..).map(FrameNumber).zip(blocks.as_chunks::<2>().0) {
            all.push(slots.map(|block| {
                let mut found = Header::decode(&block, superblock, frame);
                if let SlotState::Whole { header: Header::Used(used), .. } = &mut found
                    && !keep_chunks
                {
                    used.chunks = Vec::new();
                }
                found
            }));
        }
    }
    Ok(all)
}

/// One of the copies of a replica, as [`Start::older_twins`] compares them: the greatest is the
/// newest. A replacement has a later epoch, and a replica that is begun again has no earlier one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Twin {
    epoch: Epoch,
    is_in_pool: bool,
    /// The round that wrote its header on the disk.
    sequence: u64,
    frame: FrameNumber,
}

/// A start under way.
struct Start {
    rounds: Rounds,
    frames: Vec<Frame>,
    judged: Vec<JudgedFrame>,
    /// The replicas that the newest round that counts wrote together with their headers.
    doubtful: Vec<DoubtfulReplica>,
    /// The newest round that counts.
    complete: u64,
    opened: StartReport,
}

impl Start {
    fn read(files: &mut dyn Files, file: FileId, superblock: Superblock) -> io::Result<Start> {
        let headers = read_headers(files, file, &superblock, true)?;
        let counting = counted_rounds(files, file, &superblock, &headers)?;
        let is_in_doubt =
            CountedRounds::of(headers.iter().flatten()).in_doubt() == Some(counting.complete);
        let doubtful = match is_in_doubt {
            true => in_doubt(&headers, counting.complete).collect(),
            false => Vec::new(),
        };
        let counts_not = |found: &SlotState| matches!(found, SlotState::Whole { writing, .. } if writing.doubt.is_some() && !counting.counts(writing));
        let uncertain = headers.iter().enumerate().filter(|(_, it)| it.iter().any(counts_not));
        let uncertain = uncertain.map(|(number, _)| FrameNumber::of_index(number)).collect();
        let judged: Vec<JudgedFrame> =
            headers.into_iter().map(|slots| judge(slots, &counting)).collect();
        let mut start = Start {
            rounds: Rounds {
                superblock,
                frames: Vec::with_capacity(judged.len()),
                sequence: judged.iter().map(|it| it.sequence).max().unwrap_or(0),
                proven: counting.proven,
                unproven: None,
                doubtful: uncertain,
                inherited: BTreeMap::new(),
                unsynced: BTreeMap::new(),
            },
            frames: Vec::with_capacity(judged.len()),
            judged: Vec::new(),
            doubtful,
            complete: counting.complete,
            opened: StartReport::default(),
        };
        for (number, it) in judged.iter().enumerate() {
            start.opened.torn += u32::from(it.torn);
            let (slot, frame) = match &it.newest {
                Some(CountedHeader { slot, header, .. }) => (*slot, Frame::of(header)),
                None => {
                    tracing::warn!(
                        frame = number,
                        "the header of a frame is damaged: it is skipped"
                    );
                    let mut frame = Frame::of(&Header::Free);
                    frame.state = State::Damaged;
                    (Slot::A, frame)
                }
            };
            if let Some(newest) = it.newest.as_ref().filter(|newest| newest.sequence > MADE) {
                start.rounds.inherited.insert(FrameNumber::of_index(number), newest.sequence);
            }
            start.rounds.frames.push(OnDisk { slot, synced: frame.length });
            start.frames.push(frame);
        }
        start.judged = judged;
        Ok(start)
    }

    /// Brings the pool's replicas to the disk, in one round with repairs.
    fn recover(
        &mut self,
        files: &mut dyn Files,
        file: FileId,
        memories: &mut dyn Memories,
        options: &Options,
    ) -> Result<Pool, OpenError> {
        let superblock = self.rounds.superblock;
        let bytes = pool::bytes(superblock.geometry, options.buffers);
        let owner = files.owner(&options.file)?;
        let no_memory = |error: io::Error| match (error.kind(), WrongOwner::of(&error)) {
            (_, Some(other)) => of_another_user(other.clone(), owner),
            (io::ErrorKind::WouldBlock, _) => OpenError::CopyInUse,
            (io::ErrorKind::PermissionDenied, _) => OpenError::Untrusted(error),
            _ => OpenError::NoMemory { bytes, error },
        };
        // The former process was killed, and a sync may have failed. So the headers that were read
        // may not be on the disk. The start relies on them, so it stores them, after their data.
        let mut failed = self.write_doubtful(files, file)?;
        self.rounds.store_all_inherited(files, file, &failed)?;
        let old = Pool::find(memories, &superblock).map_err(no_memory)?;
        settle_in(files, memories, &superblock, &options.file)?;
        let mut jobs: Vec<Job> = Vec::new();
        // Frames of freed replicas and of unfinished copies, with the buffers that say so. The disk
        // may say otherwise, also a header that counts only after later rounds.
        let mut freed: BTreeMap<FrameNumber, BufferNumber> = BTreeMap::new();
        for buffer in old.iter().flat_map(Pool::numbers) {
            let claimed = old.as_ref().and_then(|pool| pool.claimed(buffer));
            let Some(claimed) = claimed.filter(|it| self.is_newer(it)) else { continue };
            if !claimed.used.committed {
                self.give_up(&mut jobs, claimed.frame);
                freed.insert(claimed.frame, buffer);
                continue;
            }
            if old.as_ref().is_some_and(|pool| !is_intact(pool, &claimed)) {
                tracing::warn!(
                    "{} in memory is damaged: the disk's version counts",
                    claimed.used.id
                );
                self.opened.pool_damaged += 1;
                continue;
            }
            let header = Header::Used(claimed.used);
            self.frames[claimed.frame.index()] = Frame::of(&header);
            self.rounds.frames[claimed.frame.index()].synced = 0;
            jobs.push(Job {
                frame: claimed.frame,
                buffer: Some(buffer),
                header,
                after: Vec::new(),
            });
            self.opened.recovered += 1;
        }
        for frame in superblock.geometry.frame_numbers() {
            let Frame { state, committed, .. } = &self.frames[frame.index()];
            if matches!(state, State::Stored) && !committed {
                self.give_up(&mut jobs, frame);
            }
        }
        self.free_replaced(&mut jobs);
        self.order_freed(&mut jobs);
        self.repair(&mut jobs);
        let (mut older, winners) = self.older_twins(&mut jobs);
        self.store_winners(&mut jobs, &older, &winners);
        let is_needed = self.opened.recovered > 0 || !freed.is_empty();
        let pool = match old.filter(|pool| pool.buffers() == options.buffers || is_needed) {
            Some(pool) => pool,
            None => Pool::make(memories, &superblock, options.buffers).map_err(no_memory)?,
        };
        let is_left = |job: &mut Job| failed.iter().any(|it| it.frame == job.frame);
        let mut left: Vec<Job> = jobs.extract_if(.., is_left).collect();
        left.extend(older.extract_if(.., is_left));
        failed.extend(self.rounds.write(files, file, &pool, Syncs::Two, jobs.clone()));
        failed.extend(self.write_both_slots(files, file, &pool, &jobs, &failed));
        // The older one is freed only after that, and only if the newer one is on the disk.
        let mut keep = Vec::new();
        older.retain_mut(|job| {
            let frame = &mut self.frames[job.frame.index()];
            let winner = winners.get(&frame.id);
            if !failed.iter().any(|it| Some(&it.frame) == winner) {
                *frame = Frame::of(&Header::Free);
                self.opened.recovered -= u32::from(job.buffer.is_some());
                *job = Job::free(job.frame);
                return true;
            }
            if !frame.closed {
                // The newer one cannot be offered, so this one must not be either.
                frame.state = State::Bad;
                self.opened.bad += 1;
                keep.extend(job.buffer);
                return false;
            }
            // A rewrite would make a replica that is on the disk alone look newer.
            job.buffer.is_some()
        });
        failed.extend(self.rounds.write(files, file, &pool, Syncs::Two, older.clone()));
        jobs.append(&mut older);
        jobs.append(&mut left);
        let mut keep_freed = Vec::new();
        for FailedFrame { frame, kind } in failed {
            tracing::warn!(frame = frame.0, "a frame cannot be written at the start: {kind}");
            self.opened.bad += 1;
            let job = jobs.iter().find(|job| job.frame == frame);
            keep.extend(job.and_then(|job| job.buffer));
            keep_freed.extend(freed.get(&frame));
            if job.is_some_and(|job| job.header == Header::Free) {
                self.free_later(frame, freed.get(&frame).copied(), &jobs, &winners);
            } else {
                self.frames[frame.index()].state = State::Bad;
            }
        }
        // The only copy of a replica is in memory, and stays there for the next start to try again.
        // So does the only record that a replica was freed.
        self.opened.recovered -= keep.len() as u32;
        keep.append(&mut keep_freed);
        if keep.is_empty() && pool.buffers() != options.buffers {
            // There may not be room for both.
            drop(pool);
            let made = Pool::make(memories, &superblock, options.buffers).map_err(no_memory)?;
            return Ok(self.count(made));
        }
        for buffer in pool.numbers().filter(|buffer| !keep.contains(buffer)) {
            pool.release(buffer);
        }
        Ok(self.count(pool))
    }

    /// Writes the headers of frames without a valid slot again: the other slot is still damaged,
    /// and the next start might take it for newer.
    fn write_both_slots(
        &mut self,
        files: &mut dyn Files,
        file: FileId,
        pool: &Pool,
        jobs: &[Job],
        failed: &[FailedFrame],
    ) -> Vec<FailedFrame> {
        let is_half = |job: &&Job| {
            let has_failed = failed.iter().any(|it| it.frame == job.frame);
            self.judged[job.frame.index()].newest.is_none() && !has_failed
        };
        let again = jobs.iter().filter(is_half).cloned().collect();
        self.rounds.write(files, file, pool, Syncs::Two, again)
    }

    /// Writes the data of the newest round again if only the data proves the round. The headers
    /// that describe the data are written again only after that. Returns the frames that the disk
    /// refuses.
    fn write_doubtful(&self, files: &mut dyn Files, file: FileId) -> io::Result<Vec<FailedFrame>> {
        let superblock = &self.rounds.superblock;
        let mut failed = Vec::new();
        let mut wrote = false;
        for replica in &self.doubtful {
            let frame = replica.frame;
            let data = read_doubtful(files, file, superblock, replica)?;
            // Unreadable data cannot be written again.
            let data = data.filter(|data| data.is_readable && !data.blocks.is_empty());
            let Some(FrameData { from, blocks, .. }) = data else { continue };
            let at = superblock.geometry.data_at(frame) + from as u64;
            match files.write_at(file, at, blocks.as_bytes()) {
                Ok(()) => wrote = true,
                Err(error) => failed.push(FailedFrame { frame, kind: error.kind() }),
            }
        }
        if wrote {
            files.sync(file)?;
        }
        Ok(failed)
    }

    fn count(&mut self, pool: Pool) -> Pool {
        let count = |is_in: fn(&State) -> bool| {
            self.frames.iter().filter(|frame| is_in(&frame.state)).count() as u32
        };
        self.opened.replicas = count(|state| matches!(state, State::Stored));
        self.opened.damaged = count(|state| matches!(state, State::Damaged));
        pool
    }

    /// Whether a buffer's replica is newer than the disk's version of its frame.
    fn is_newer(&self, claimed: &BufferedReplica) -> bool {
        let Some(on_disk) = &self.judged[claimed.frame.index()].newest else { return true };
        match &on_disk.header {
            _ if on_disk.sequence <= claimed.base => true,
            Header::Used(used) => used.id == claimed.used.id,
            Header::Free => false,
        }
    }

    /// Frees a frame with a freed replica, or with an unfinished copy in atomic mode, which has no
    /// use.
    fn give_up(&mut self, jobs: &mut Vec<Job>, frame: FrameNumber) {
        self.frames[frame.index()] = Frame::of(&Header::Free);
        jobs.push(Job::free(frame));
    }

    /// Frees the frames of replicas whose replacements are freed, if the disk had the replacements.
    /// Their closing may have been acknowledged when the replacements became durable.
    fn free_replaced(&mut self, jobs: &mut Vec<Job>) {
        let replaced_by = |job: &Job| match &self.judged[job.frame.index()].newest {
            Some(CountedHeader { header: Header::Used(used), .. })
                if job.header == Header::Free =>
            {
                used.committed.then_some((used.id, used.epoch))
            }
            _ => None,
        };
        let freed: BTreeMap<ReplicaId, Epoch> = jobs.iter().filter_map(replaced_by).collect();
        for frame in self.rounds.superblock.geometry.frame_numbers() {
            let Frame { state, id, epoch, .. } = &self.frames[frame.index()];
            let is_replaced = freed.get(id).is_some_and(|freed| epoch < freed);
            if matches!(state, State::Stored) && is_replaced {
                let former = jobs.extract_if(.., |job| job.frame == frame);
                self.opened.recovered -= former.filter(|job| job.buffer.is_some()).count() as u32;
                self.give_up(jobs, frame);
            }
        }
    }

    /// Orders the freeing of replicas with one id by their age: while one of them is on the disk,
    /// it must not be the newest there.
    fn order_freed(&self, jobs: &mut [Job]) {
        let mut freed: BTreeMap<ReplicaId, Vec<Twin>> = BTreeMap::new();
        for job in jobs.iter().filter(|job| job.header == Header::Free) {
            let frame = job.frame;
            let Some(newest) = &self.judged[frame.index()].newest else { continue };
            let Header::Used(ReplicaHeader { id, epoch, .. }) = &newest.header else { continue };
            let twin = Twin { epoch: *epoch, is_in_pool: false, sequence: newest.sequence, frame };
            freed.entry(*id).or_default().push(twin);
        }
        for twins in freed.values_mut().filter(|twins| twins.len() > 1) {
            twins.sort_unstable();
            for (at, twin) in twins.iter().enumerate() {
                if let Some(job) = jobs.iter_mut().find(|job| job.frame == twin.frame) {
                    job.after.extend(twins[..at].iter().map(|it| it.frame));
                }
            }
        }
    }

    /// Lets the running process free a frame that the disk refuses to free now. The buffer says
    /// that it is freed. No newer replica with its id is freed before it.
    fn free_later(
        &mut self,
        number: FrameNumber,
        buffer: Option<BufferNumber>,
        jobs: &[Job],
        winners: &BTreeMap<ReplicaId, FrameNumber>,
    ) {
        let newest = self.judged[number.index()].newest.as_ref();
        let mut frame = Frame::of(newest.map_or(&Header::Free, |it| &it.header));
        let waits = jobs.iter().find(|job| job.after.contains(&number)).map(|job| job.frame);
        let winner = winners.get(&frame.id).copied().filter(|winner| *winner != number);
        frame.successor = waits.or(winner);
        // The buffer stays until the disk has the header. Otherwise a header of an unfinished round
        // could bring the replica back: it counts after later rounds.
        frame.committed |= buffer.is_some();
        (frame.state, frame.is_refused) = (State::Freeing(buffer), true);
        self.frames[number.index()] = frame;
    }

    /// Adds jobs for headers that do not count or are damaged, and for the newest round: its last
    /// sync may have been cut off or have failed, and headers that can be read may not be on the
    /// disk.
    fn repair(&mut self, jobs: &mut Vec<Job>) {
        for (number, judged) in self.judged.iter().enumerate() {
            let frame = FrameNumber::of_index(number);
            let is_newest = |it: &CountedHeader| it.sequence == self.complete && it.sequence > MADE;
            let needed =
                judged.torn || judged.damaged || judged.newest.as_ref().is_some_and(is_newest);
            if !needed || jobs.iter().any(|job| job.frame == frame) {
                continue;
            }
            if let Some(CountedHeader { header, .. }) = &judged.newest {
                jobs.push(Job { header: header.clone(), ..Job::free(frame) });
            }
        }
    }

    /// Finds older copies of replicas. A replica that was freed or replaced and begun again may be
    /// here twice if the power failed or the process ended meanwhile. Takes the jobs of the older
    /// copies out of `jobs`, and returns them with the frames of the replicas that count.
    fn older_twins(&self, jobs: &mut Vec<Job>) -> (Vec<Job>, BTreeMap<ReplicaId, FrameNumber>) {
        let mut newest: BTreeMap<ReplicaId, Twin> = BTreeMap::new();
        let mut older = Vec::new();
        for frame in self.rounds.superblock.geometry.frame_numbers() {
            let Frame { state, id, epoch, .. } = &self.frames[frame.index()];
            if !matches!(state, State::Stored) {
                continue;
            }
            let is_in_pool = jobs.iter().any(|job| job.frame == frame && job.buffer.is_some());
            let sequence = self.judged[frame.index()].newest.as_ref().map_or(0, |it| it.sequence);
            let this = Twin { epoch: *epoch, is_in_pool, sequence, frame };
            let Some(other) = newest.insert(*id, this) else { continue };
            if other > this {
                newest.insert(*id, other);
            }
            older.push(other.min(this).frame);
        }
        let older = older.into_iter().filter_map(|frame| {
            let at = jobs.iter().position(|job| job.frame == frame);
            let header = self.judged[frame.index()].newest.as_ref().map(|it| it.header.clone());
            let as_it_is = header.map(|header| Job { header, ..Job::free(frame) });
            at.map(|at| jobs.swap_remove(at)).or(as_it_is)
        });
        let older = older.collect();
        (older, newest.into_iter().map(|(id, twin)| (id, twin.frame)).collect())
    }

    /// Adds jobs for the replicas that count in place of older ones: their headers can be read, but
    /// may not be on the disk. The older ones are freed after that.
    fn store_winners(
        &self,
        jobs: &mut Vec<Job>,
        older: &[Job],
        winners: &BTreeMap<ReplicaId, FrameNumber>,
    ) {
        for job in older {
            let Some(winner) = winners.get(&self.frames[job.frame.index()].id) else { continue };
            let Some(newest) = &self.judged[winner.index()].newest else { continue };
            if jobs.iter().all(|job| job.frame != *winner) {
                jobs.push(Job { header: newest.header.clone(), ..Job::free(*winner) });
            }
        }
    }

    /// Measures how fast some frames that were written once are read.
    fn time_reading(
        &self,
        files: &mut dyn Files,
        file: FileId,
        clock: &thunderhead_runtime::clock::Clock,
    ) -> io::Result<Option<u64>> {
        let geometry = self.rounds.superblock.geometry;
        let mut blocks = Block::vec(geometry.frame_bytes());
        let (began, mut bytes) = (clock.now(), 0);
        for frame in geometry.frame_numbers().take(TIMED_FRAMES as usize) {
            // The next reader of an unreadable frame reports it.
            let read = files.read_at(file, geometry.data_at(frame), blocks.as_mut_bytes());
            bytes += read.unwrap_or(0) as u128;
        }
        let took = clock.now().since(began).as_nanos();
        Ok((bytes * 1_000_000_000).checked_div(took).map(|speed| speed as u64))
    }
}

/// Whether a buffer's bytes match their checksums.
fn is_intact(pool: &Pool, claimed: &BufferedReplica) -> bool {
    let mut blocks = Block::vec(claimed.used.length as usize);
    let bytes = blocks.as_mut_bytes();
    pool.read(claimed.buffer, 0, &mut bytes[..claimed.used.length as usize]);
    let chunk_bytes = pool.geometry().chunk_bytes();
    claimed.used.first_damaged_chunk(bytes, chunk_bytes).is_none()
}
