//! The buffer pool: the place of replicas while they are filled, in memory that outlasts the
//! process.
//!
//! ```text
//! page 0     magic │ store │ sizes │ boot │ buffers │ check
//! page 1 …   one for each buffer: claim │ master │ segment │ base │ epoch │ state │ extent
//!            │ chunk checksums
//! then       the buffers, each as long as a frame
//! ```
//!
//! Only the reactor writes. A killed process stops between two words, so each step that counts is
//! one word, stored last. A buffer is in use once its *claim* is set, and its bytes count up to
//! its *extent*, which holds their length and the checksum of the last chunk in one word. The
//! checksums of full chunks are stored before. So all acknowledged bytes are there and can be
//! verified, and no others count.
//!
//! *Boot* identifies the boot of the machine: memory of another boot, wherever it was kept, may be
//! torn and is not used.
//!
//! *Base* is the newest round on disk when the buffer was claimed. If a frame's header on disk is
//! newer and of another replica, the frame has gone on without this buffer.
//!
//! *State* decides how the next process uses the frame:
//!
//! | state | the next process |
//! | --- | --- |
//! | committed, closed or not | writes the buffer's replica to the frame |
//! | not committed: an unfinished copy, or a freed replica | marks the frame free on the disk |
//! | dropped | uses the header on the disk |
//!
//! A freed replica must not be *dropped* before its frame is free on the disk: the header there may
//! be older than the replica, and say *open* about a replica whose closing was acknowledged.

use crate::block::crc;
use crate::layout::{FrameNumber, Geometry, ReplicaHeader, ReplicaId, Superblock};
use crate::limits::{BLOCK_BYTES, BUFFERS_MAX, CHUNKS_MAX};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use thunderhead_runtime::lasting::{LastingMemory, Memories};
use thunderhead_wire::{Epoch, MasterId, SegmentId};

const MAGIC: u64 = u64::from_le_bytes(*b"THPOOL\x01\0");

const PAGE_WORDS: usize = BLOCK_BYTES / 8;

const CLAIM: usize = 0;
const MASTER: usize = 1;
const SEGMENT: usize = 2;
const BASE: usize = 3;
const EPOCH: usize = 4;
const STATE: usize = 5;
const EXTENT: usize = 6;
const CHUNKS: usize = 128;

const CLOSED: u64 = 1;
const COMMITTED: u64 = 2;
const DROPPED: u64 = 4;

const _: () = assert!(CHUNKS + CHUNKS_MAX <= PAGE_WORDS);

/// The number of a buffer. The first buffer of a pool is number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BufferNumber(pub(crate) u32);

/// A pool. Clones are handles to the same memory.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    memory: LastingMemory,
    geometry: Geometry,
    buffers: u32,
}

/// The replica in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BufferedReplica {
    pub(crate) buffer: BufferNumber,
    pub(crate) frame: FrameNumber,
    pub(crate) base: u64,
    pub(crate) used: ReplicaHeader,
}

/// The *state* of a buffered replica that was not dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferState {
    pub(crate) closed: bool,
    pub(crate) committed: bool,
}

/// The *extent* of a buffered replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The bytes that count.
    pub(crate) length: u32,
    /// The checksum of the last chunk, if that chunk is not full.
    pub(crate) tail_sum: u32,
}

impl BufferState {
    fn word(self) -> u64 {
        let bit = |set, bit| if set { bit } else { 0 };
        bit(self.closed, CLOSED) | bit(self.committed, COMMITTED)
    }
}

impl Extent {
    fn word(self) -> u64 {
        u64::from(self.length) | u64::from(self.tail_sum) << 32
    }

    fn of_word(word: u64) -> Extent {
        Extent { length: word as u32, tail_sum: (word >> 32) as u32 }
    }
}

/// Returns the name of a store's pool.
pub(crate) fn name(superblock: &Superblock) -> String {
    format!("thunderhead-backup-{:016x}", superblock.store)
}

/// Returns the bytes that a pool takes.
pub(crate) fn bytes(geometry: Geometry, buffers: u32) -> usize {
    (1 + buffers as usize) * BLOCK_BYTES + buffers as usize * geometry.frame_bytes()
}

fn check(words: &[u64]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    u64::from(crc(&bytes))
}

impl Pool {
    /// Makes an empty pool.
    pub(crate) fn make(
        memories: &mut dyn Memories,
        superblock: &Superblock,
        buffers: u32,
    ) -> io::Result<Pool> {
        let geometry = superblock.geometry;
        let memory = memories.make(&name(superblock), bytes(geometry, buffers))?;
        let sizes = u64::from(geometry.segment_bytes) | u64::from(geometry.frames) << 32;
        let boot = memories.boot()?;
        let says = [MAGIC, superblock.store, sizes, boot, u64::from(buffers)];
        let words = memory.words();
        for (word, value) in words.iter().skip(1).zip(&says[1..]) {
            word.store(*value, Ordering::Relaxed);
        }
        words[5].store(check(&says), Ordering::Relaxed);
        words[0].store(MAGIC, Ordering::Release);
        Ok(Pool { memory, geometry, buffers })
    }

    /// Finds the pool that the former process left, if any.
    pub(crate) fn find(
        memories: &mut dyn Memories,
        superblock: &Superblock,
    ) -> io::Result<Option<Pool>> {
        let Some(memory) = memories.find(&name(superblock))? else { return Ok(None) };
        let geometry = superblock.geometry;
        let sizes = u64::from(geometry.segment_bytes) | u64::from(geometry.frames) << 32;
        let word = |at: usize| memory.words().get(at).map_or(0, |it| it.load(Ordering::Acquire));
        let says: [u64; 5] = std::array::from_fn(word);
        let expected = [MAGIC, superblock.store, sizes, memories.boot()?];
        let is_ours = says[..4] == expected && word(5) == check(&says);
        let buffers = u32::try_from(says[4]).ok().filter(|it| *it <= BUFFERS_MAX);
        let Some(buffers) = buffers.filter(|_| is_ours) else { return Ok(None) };
        if memory.bytes() < bytes(geometry, buffers) {
            return Ok(None);
        }
        Ok(Some(Pool { memory, geometry, buffers }))
    }

    /// Returns the number of buffers.
    pub(crate) fn buffers(&self) -> u32 {
        self.buffers
    }

    /// Returns the numbers of all buffers, in order.
    pub(crate) fn numbers(&self) -> impl DoubleEndedIterator<Item = BufferNumber> + use<> {
        (0..self.buffers).map(BufferNumber)
    }

    /// Returns the replicas that the buffers hold.
    pub(crate) fn claims(&self) -> impl Iterator<Item = BufferedReplica> {
        self.numbers().filter_map(|buffer| self.claimed(buffer))
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn memory(&self) -> &LastingMemory {
        &self.memory
    }

    /// Returns the offset of a buffer's data in the memory.
    pub(crate) fn data_at(&self, buffer: BufferNumber) -> usize {
        let pages = (1 + self.buffers as usize) * BLOCK_BYTES;
        pages + buffer.0 as usize * self.geometry.frame_bytes()
    }

    fn word(&self, buffer: BufferNumber, at: usize) -> &AtomicU64 {
        &self.memory.words()[(1 + buffer.0 as usize) * PAGE_WORDS + at]
    }

    fn load(&self, buffer: BufferNumber, at: usize) -> u64 {
        self.word(buffer, at).load(Ordering::Acquire)
    }

    fn store(&self, buffer: BufferNumber, at: usize, value: u64) {
        self.word(buffer, at).store(value, Ordering::Release);
    }

    fn claim_word(&self, buffer: BufferNumber, frame: FrameNumber) -> u64 {
        let word = |at| self.load(buffer, at);
        let claim = u64::from(frame.0) + 1;
        let sum = check(&[claim, word(MASTER), word(SEGMENT), word(BASE)]);
        claim | sum << 32
    }

    /// Takes a buffer into use for a replica without bytes.
    pub(crate) fn claim(&self, claimed: &BufferedReplica) {
        let BufferedReplica { buffer, frame, base, used } = claimed;
        self.store(*buffer, MASTER, used.id.master.0);
        self.store(*buffer, SEGMENT, used.id.segment.0);
        self.store(*buffer, BASE, *base);
        self.store(*buffer, EPOCH, used.epoch.0);
        let state = BufferState { closed: false, committed: used.committed };
        self.store(*buffer, STATE, state.word());
        self.store(*buffer, EXTENT, 0);
        self.store(*buffer, CLAIM, self.claim_word(*buffer, *frame));
    }

    /// Gives a buffer back.
    pub(crate) fn release(&self, buffer: BufferNumber) {
        self.store(buffer, CLAIM, 0);
    }

    pub(crate) fn set_epoch(&self, buffer: BufferNumber, epoch: Epoch) {
        self.store(buffer, EPOCH, epoch.0);
    }

    pub(crate) fn set_state(&self, buffer: BufferNumber, state: BufferState) {
        self.store(buffer, STATE, state.word());
    }

    /// Marks a replica as freed. The next process marks its frame free on the disk, even if the
    /// header there is one of an open replica.
    pub(crate) fn free_replica(&self, buffer: BufferNumber) {
        self.set_state(buffer, BufferState { closed: false, committed: false });
    }

    /// Drops a replica: the next process uses the frame's header on the disk.
    pub(crate) fn drop_replica(&self, buffer: BufferNumber) {
        self.store(buffer, STATE, DROPPED);
    }

    /// Copies bytes in. They do not count yet.
    pub(crate) fn write(&self, buffer: BufferNumber, offset: u32, bytes: &[u8]) {
        self.memory.write(self.data_at(buffer) + offset as usize, bytes);
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, buffer: BufferNumber, offset: u32, into: &mut [u8]) {
        self.memory.read(self.data_at(buffer) + offset as usize, into);
    }

    /// Stores the checksum of a full chunk, before the extent that covers it.
    pub(crate) fn set_chunk(&self, buffer: BufferNumber, chunk: usize, sum: u32) {
        self.store(buffer, CHUNKS + chunk.min(CHUNKS_MAX - 1), u64::from(sum));
    }

    /// Sets the bytes that count.
    pub(crate) fn set_extent(&self, buffer: BufferNumber, extent: Extent) {
        self.store(buffer, EXTENT, extent.word());
    }

    /// Returns the replica in a buffer; `None` if the buffer is free, its replica was dropped, or
    /// its values are impossible.
    pub(crate) fn claimed(&self, buffer: BufferNumber) -> Option<BufferedReplica> {
        let claim = self.load(buffer, CLAIM);
        let frame = FrameNumber((claim as u32).checked_sub(1)?);
        if frame.0 >= self.geometry.frames || claim != self.claim_word(buffer, frame) {
            return None;
        }
        // Closed is stored after the last extent, so it is read first.
        let state = self.load(buffer, STATE);
        let Extent { length, tail_sum } = Extent::of_word(self.load(buffer, EXTENT));
        if state & DROPPED != 0 || length > self.geometry.segment_bytes {
            return None;
        }
        let chunk_bytes = self.geometry.chunk_bytes();
        let full = (length as usize / chunk_bytes).min(CHUNKS_MAX);
        let mut chunks: Vec<u32> =
            (0..full).map(|chunk| self.load(buffer, CHUNKS + chunk) as u32).collect();
        if !(length as usize).is_multiple_of(chunk_bytes) {
            chunks.push(tail_sum);
        }
        let master = MasterId(self.load(buffer, MASTER));
        let segment = SegmentId(self.load(buffer, SEGMENT));
        let used = ReplicaHeader {
            id: ReplicaId { master, segment },
            epoch: Epoch(self.load(buffer, EPOCH)),
            closed: state & CLOSED != 0,
            committed: state & COMMITTED != 0,
            length,
            chunks,
        };
        Some(BufferedReplica { buffer, frame, base: self.load(buffer, BASE), used })
    }
}
