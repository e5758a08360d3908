//! The store: a backup's frames, as its reactor uses them. No call waits.
//!
//! One thread owns a [`Store`]. It calls [`Store::turn`] at the end of each of its turns. That
//! call hands all changes to the flusher as one round, and reports which changes are durable or
//! failed and which reads have ended. At most one round is under way; later changes form the next
//! one. So rounds grow under load by themselves, and all waiting callers share a sync.
//!
//! A frame goes through these states:
//!
//! ```text
//! free ─open─► filling (a buffer) ─close─► closing ─round─► stored (on disk alone)
//!  ▲              │     └─► resting ─close─┘ │                 │
//!  └─── round ────┴──────── freeing ◄── free ┴─────────────────┘
//! ```
//!
//! The store uses a frame again only after the frame's header on disk says that it is free. So
//! data never lies under the header of another replica.
//!
//! # If the disk refuses a write
//!
//! A frame that the disk refused keeps its buffer. The acknowledged bytes are in the buffer and
//! are read from there, also by the next process. The store writes the frame again every fifth of
//! a second until the disk takes it. Until then an open replica gets no more bytes, as after a
//! restart: its master begins another replica, and this one counts until the new one does. The
//! disk's copy is older meanwhile and must not be offered, for it may lack acknowledged bytes.
//!
//! # Replacing a replica
//!
//! The store *replaces* a replica that its master begins again at a later epoch, and an open
//! replica that can get no more bytes. The new one is filled in another frame, and the old one
//! counts until the new one does (`replaced`). So one of the two always counts.
//!
//! # When no buffer is free
//!
//! A new replica takes the buffer of an open replica that has got no bytes for some time, or of
//! which the master is gone (`resting`). So masters that wait for buffers do not wait for each
//! other.
//!
//! # Modules
//!
//! `frames` has a record of each frame, and the indexes that find frames. `buffers` knows which
//! buffers are free, and `acks` which changes wait for the disk. `rounds` hands changes to the
//! flusher, and `reading` hands reads to the reader.

mod acks;
mod buffers;
mod frames;
mod reading;
mod replaced;
mod resting;
mod rounds;

use crate::error::{ReadError, Refusal};
use crate::flusher::Exchange;
use crate::layout::{FrameNumber, Identity, ReplicaHeader, ReplicaId, Superblock};
use crate::limits::{FLUSH_AGE, FLUSH_BYTES};
use crate::lineage::Lineages;
use crate::pool::{BufferNumber, BufferState, BufferedReplica, Extent, Pool};
use crate::reader::{ReadId, Reads, ReplicaBytes, SpareBuffers};
use acks::PendingAcks;
use buffers::Buffers;
use frames::{FillingReplica, FrameTable};
pub(crate) use frames::{Frame, State};
use reading::ReaderClient;
use rounds::FlusherClient;
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_runtime::files::FileLock;
use thunderhead_runtime::lasting::Memories;
use thunderhead_runtime::workers::WorkerBell;
use thunderhead_wire::Epoch;

/// The moment at which a master's message is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it is in the buffer: it survives any crash of the process. Written out at once, in
    /// the background.
    Replicated,
    /// When it is in the buffer, as above, and flushed at this interval. A machine that fails loses
    /// only changes younger than the interval plus the time that the disk takes.
    Interval(Duration),
    /// When it is on the disk.
    Synced,
}

impl Durability {
    fn age(self) -> Duration {
        match self {
            Durability::Replicated => FLUSH_AGE,
            Durability::Interval(age) => age,
            Durability::Synced => Duration::ZERO,
        }
    }
}

/// The options for making or opening a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server and cluster that the store belongs to.
    pub identity: Identity,
    /// Bytes of a full segment.
    pub segment_bytes: u32,
    /// The number of frames, one for each replica.
    pub frames: u32,
    /// How many replicas may be open or on their way to the disk.
    pub buffers: u32,
    /// When the store acknowledges a change.
    pub durability: Durability,
    /// Writes all frames once when the file is made. File systems record the first write to each
    /// part of a file, and a sync waits for that record.
    pub populate: bool,
    /// The file takes room on the disk only as it is used, if the file system can do that.
    pub sparse: bool,
    /// The file's name in the process's directory.
    pub file: String,
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Durability::Replicated => f.write_str("replicated"),
            Durability::Interval(age) => write!(f, "interval:{}ms", age.as_millis()),
            Durability::Synced => f.write_str("synced"),
        }
    }
}

/// The default name of a storage file.
pub const FILE_NAME: &str = "backup-frames";

impl Options {
    /// Frames of 8 MiB and 32 buffers.
    #[must_use]
    pub fn new(identity: Identity, frames: u32) -> Options {
        Options {
            identity,
            segment_bytes: 8 << 20,
            frames,
            buffers: 32,
            durability: Durability::Replicated,
            populate: false,
            sparse: false,
            file: FILE_NAME.to_owned(),
        }
    }
}

/// A change that will be durable; [`Event::Durable`] names it. Later calls get higher tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// When a call may be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// At once.
    Now,
    /// When an event names this ticket.
    When(Ticket),
}

/// An event that [`Store::turn`] reports.
#[derive(Debug)]
pub enum Event {
    /// The call that got this ticket may be acknowledged.
    Durable(Ticket),
    /// The change with this ticket is not durable, because the disk failed. The store cannot say
    /// when it will be.
    Failed(Ticket),
    /// A read has ended.
    Read(ReadId, Result<ReplicaBytes, ReadError>),
}

/// A replica of the inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The replica's master and segment.
    pub id: ReplicaId,
    /// The epoch of its segment.
    pub epoch: Epoch,
    /// Its length in bytes.
    pub length: u32,
    /// It is complete. If not, it belongs to a head that was open, and counts only at the current
    /// epoch.
    pub closed: bool,
}

/// The parts of an opened store.
pub(crate) struct Parts {
    pub(crate) options: Options,
    pub(crate) superblock: Superblock,
    pub(crate) pool: Pool,
    pub(crate) frames: Vec<Frame>,
    pub(crate) sequence: u64,
    pub(crate) exchange: Exchange,
    pub(crate) reads: Reads,
    pub(crate) spare: SpareBuffers,
    pub(crate) flusher: WorkerBell,
    pub(crate) reader: WorkerBell,
    pub(crate) locks: [FileLock; 2],
}

/// A backup's frames. See the [module](self).
pub struct Store {
    options: Options,
    superblock: Superblock,
    frames: FrameTable,
    buffers: Buffers,
    flusher: FlusherClient,
    reader: ReaderClient,
    acks: PendingAcks,
    /// The lineages of masters that have taken back former logs and so own their closed replicas,
    /// too.
    pub(crate) lineages: Lineages,
    /// The latest time that the store was told.
    now: Time,
    /// Held as long as the store is.
    _locks: [FileLock; 2],
}

impl Store {
    pub(crate) fn assemble(parts: Parts) -> Store {
        let frames = FrameTable::new(parts.frames);
        let mut flusher = FlusherClient::new(parts.exchange, parts.flusher, parts.sequence);
        // The disk refused them at the start.
        flusher.again_at = (!frames.refused().is_empty()).then_some(Time(0));
        Store {
            options: parts.options,
            superblock: parts.superblock,
            frames,
            buffers: Buffers::new(parts.pool),
            flusher,
            reader: ReaderClient::new(parts.reads, parts.spare, parts.reader),
            acks: PendingAcks::new(),
            lineages: Lineages::default(),
            now: Time(0),
            _locks: parts.locks,
        }
    }

    /// Returns the store's identity and its sizes.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Returns the number of free frames.
    #[must_use]
    pub fn frames_free(&self) -> usize {
        self.frames.free_count()
    }

    /// Begins a replica.
    ///
    /// With `atomic` it does not count until it is [committed](Store::commit) or closed. If
    /// `epoch` is later than that of the replica here, the new one begins empty, and the one here
    /// counts until then. In all other cases, a call for an open replica is a repeated call, and a
    /// replica that a restart interrupted begins empty.
    ///
    /// # Errors
    /// If it is closed here already, or there is no frame or no buffer for it.
    pub fn open(&mut self, id: ReplicaId, epoch: Epoch, atomic: bool) -> Result<Ack, Refusal> {
        let mut replaces = false;
        if let Some(number) = self.frames.newest(id) {
            let frame = &self.frames[number];
            replaces = atomic && epoch > frame.epoch;
            match frame.state {
                _ if replaces => {}
                State::Filling(_) | State::Resting(_) if frame.is_refused => {
                    return Err(Refusal::Interrupted(id));
                }
                State::Filling(_) | State::Resting(_) => {
                    self.raise_epoch(number, epoch)?;
                    return Ok(self.acknowledge(number));
                }
                State::Closing(_) => return Err(Refusal::Exists(id)),
                State::Stored if frame.closed => return Err(Refusal::Exists(id)),
                _ => {}
            }
        }
        let Some(number) = self.frames.next_free() else { return Err(Refusal::Full) };
        if !self.buffers.has_free() {
            self.one_rests();
        }
        let Some(buffer) = self.buffers.take() else { return Err(Refusal::Overloaded) };
        match replaces {
            true => self.set_aside(id),
            false => _ = self.free(id),
        }
        let used = ReplicaHeader {
            id,
            epoch,
            closed: false,
            committed: !atomic,
            length: 0,
            chunks: Vec::new(),
        };
        self.frames.change(number, |frame| frame.begin(buffer, used.clone()));
        let base = self.flusher.sequence;
        self.buffers.pool.claim(&BufferedReplica { buffer, frame: number, base, used });
        Ok(self.acknowledge(number))
    }

    /// Appends bytes to a replica. A call may repeat bytes that were sent before, with or without
    /// more behind them. If the epoch is higher than the replica's, it becomes the replica's.
    ///
    /// # Errors
    /// If the bytes cannot be added. None of them are added then.
    pub fn append(
        &mut self,
        id: ReplicaId,
        epoch: Epoch,
        offset: u32,
        bytes: &[u8],
    ) -> Result<Ack, Refusal> {
        self.append_pieces(id, epoch, offset, std::iter::once(bytes))
    }

    /// Appends bytes that lie in several pieces, as [`Store::append`] does.
    ///
    /// # Errors
    /// As [`Store::append`].
    pub fn append_pieces<'b>(
        &mut self,
        id: ReplicaId,
        epoch: Epoch,
        offset: u32,
        pieces: impl Iterator<Item = &'b [u8]> + Clone,
    ) -> Result<Ack, Refusal> {
        let number = self.writable(id)?;
        let frame = &self.frames[number];
        let (length, buffer) = (frame.length, frame.buffer());
        let bytes: usize = pieces.clone().map(<[u8]>::len).sum();
        let end = u64::from(offset) + bytes as u64;
        let limit = self.superblock.geometry.segment_bytes;
        if end > u64::from(limit) {
            return Err(Refusal::TooLong { id, end, limit });
        }
        if offset > length {
            return Err(Refusal::Gap { id, length });
        }
        if epoch < frame.epoch {
            return Err(Refusal::StaleEpoch { id, current: frame.epoch });
        }
        if matches!(frame.state, State::Closing(_)) && end > u64::from(length) {
            return Err(Refusal::Closed { id, length });
        }
        let known = (length - offset) as usize;
        let (mut left, mut at) = (known, offset);
        for piece in pieces.clone() {
            let repeated = piece.get(..left.min(piece.len())).unwrap_or_default();
            left -= repeated.len();
            if buffer.is_some_and(|buffer| !self.is_repeated(buffer, at, repeated)) {
                return Err(Refusal::Differs(id));
            }
            at += repeated.len() as u32;
            if left == 0 {
                break;
            }
        }
        if buffer.is_none() && end > u64::from(length) {
            return Err(Refusal::Interrupted(id));
        }
        self.raise_epoch(number, epoch)?;
        let new = pieces.scan(known, |known, piece| {
            let repeated = (*known).min(piece.len());
            *known -= repeated;
            piece.get(repeated..)
        });
        self.add(number, new);
        Ok(self.acknowledge(number))
    }

    /// Closes a replica with this length. It gets no more bytes, and counts from now on.
    ///
    /// # Errors
    /// If it has another length.
    pub fn close(&mut self, id: ReplicaId, epoch: Epoch, length: u32) -> Result<Ack, Refusal> {
        if let Some(number) = self.frames.newest(id) {
            let frame = &self.frames[number];
            let is_stored = matches!(frame.state, State::Stored);
            if is_stored && frame.closed && frame.length == length {
                return Ok(Ack::Now);
            }
        }
        let number = self.writable(id)?;
        let frame = &self.frames[number];
        if length != frame.length {
            let length = frame.length;
            return Err(match frame.state {
                State::Closing(_) => Refusal::Closed { id, length },
                _ => Refusal::Gap { id, length },
            });
        }
        if epoch < frame.epoch {
            return Err(Refusal::StaleEpoch { id, current: frame.epoch });
        }
        if matches!(frame.state, State::Filling(_) | State::Resting(_)) {
            self.frames.change(number, Frame::close);
            self.write_state(number);
            self.flusher.is_urgent = true;
            self.takes_its_place(id, number);
        }
        Ok(self.acknowledge(number))
    }

    /// Commits a replica that was begun in atomic mode: it counts from now on, and stays open.
    ///
    /// # Errors
    /// If there is no such open replica.
    pub fn commit(&mut self, id: ReplicaId, epoch: Epoch) -> Result<Ack, Refusal> {
        let number = self.writable(id)?;
        self.raise_epoch(number, epoch)?;
        self.frames.change(number, |frame| frame.committed = true);
        self.write_state(number);
        self.takes_its_place(id, number);
        Ok(self.acknowledge(number))
    }

    /// Returns when the store acknowledges a change.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.options.durability
    }

    /// Returns the number of frames with unreadable headers. Their contents are unknown.
    #[must_use]
    pub fn frames_damaged(&self) -> usize {
        self.frames.iter().filter(|frame| matches!(frame.state, State::Damaged)).count()
    }

    /// Releases memory that replicas were read into, if no reader holds any of them.
    pub(crate) fn trim(&self) {
        self.reader.trim();
    }

    /// Takes the workers' results and hands them new work. The reactor calls it at the end of each
    /// turn. Returns whether there was anything to do.
    pub fn turn(&mut self, now: Time, tell: &mut dyn FnMut(Event)) -> bool {
        self.now = now;
        let finished = self.take_finished(now, tell);
        let read = self.take_reads(tell);
        let handed = self.hand_over(now);
        finished || read || handed
    }

    /// Returns the time at which the store needs a turn, even if no event comes.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let FlusherClient { under_way, changed_since, again_at, prove_at, .. } = &self.flusher;
        if under_way.is_some() {
            return None;
        }
        let due = changed_since.map(|since| since + self.options.durability.age());
        due.into_iter().chain(*again_at).chain(*prove_at).min()
    }

    /// Whether everything is on the disk.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.frames.changed().is_empty()
            && self.frames.refused().is_empty()
            && self.flusher.under_way.is_none()
    }

    /// Whether the disk has refused all replicas that are not on it.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        let refused = self.frames.refused();
        !refused.is_empty() && self.frames.changed().is_subset(refused)
    }

    /// Returns the frames that differ from the disk.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        let under_way = self.flusher.under_way.iter().flat_map(|it| &it.frames);
        let all = self.frames.changed().iter().chain(self.frames.refused()).chain(under_way);
        all.collect::<BTreeSet<_>>().len()
    }

    /// Whether everything is on the disk, and the disk records that the last round was durable.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_written() && self.flusher.prove_at.is_none()
    }

    /// Ends a settled store and gives its shared memory back. Returns false if the store is not
    /// settled: the next round begins at once, and the caller tries again after that round.
    ///
    /// # Errors
    /// If the memory cannot be removed.
    pub fn leave(&mut self, memories: &mut dyn Memories) -> io::Result<bool> {
        if !self.is_settled() {
            // The store gets no more changes, so waiting would not make the round larger. This
            // turn is over, and the next one may come only when the round is due.
            self.flusher.is_urgent |= !self.frames.changed().is_empty();
            self.hand_over(self.now);
            return Ok(false);
        }
        if self.frames.iter().any(|frame| matches!(frame.state, State::Bad)) {
            // The bad frame's only copy is in the shared memory.
            return Ok(true);
        }
        memories.remove(&crate::pool::name(&self.superblock))?;
        Ok(true)
    }

    /// Checks that all records of the store agree with each other. For tests.
    ///
    /// # Panics
    /// If they do not.
    pub fn check_consistent(&self) {
        self.frames.check_consistent();
    }

    /// Returns the frame of a replica that may be changed.
    fn writable(&self, id: ReplicaId) -> Result<FrameNumber, Refusal> {
        let number = self.frames.newest(id).ok_or(Refusal::NotFound(id))?;
        let frame = &self.frames[number];
        match frame.state {
            State::Filling(_) | State::Resting(_) if frame.is_refused => {
                Err(Refusal::Interrupted(id))
            }
            State::Filling(_) | State::Resting(_) | State::Closing(_) => Ok(number),
            State::Stored if frame.closed => Err(Refusal::Closed { id, length: frame.length }),
            State::Stored => Err(Refusal::Interrupted(id)),
            State::Free | State::Freeing(_) | State::Bad | State::Damaged => {
                Err(Refusal::NotFound(id))
            }
        }
    }

    fn raise_epoch(&mut self, number: FrameNumber, epoch: Epoch) -> Result<(), Refusal> {
        let frame = &self.frames[number];
        if epoch < frame.epoch {
            return Err(Refusal::StaleEpoch { id: frame.id, current: frame.epoch });
        }
        if epoch > frame.epoch {
            let buffer = frame.buffer();
            self.frames.change(number, |frame| frame.epoch = epoch);
            if let Some(buffer) = buffer {
                self.buffers.pool.set_epoch(buffer, epoch);
            }
        }
        Ok(())
    }

    /// Records in the buffer whether its replica is closed and whether it counts.
    fn write_state(&self, number: FrameNumber) {
        let frame = &self.frames[number];
        if let Some(buffer) = frame.buffer() {
            let state = BufferState { closed: frame.closed, committed: frame.committed };
            self.buffers.pool.set_state(buffer, state);
        }
    }

    /// Whether these bytes are already in the buffer.
    fn is_repeated(&self, buffer: BufferNumber, offset: u32, bytes: &[u8]) -> bool {
        let mut piece = [0; 4096];
        let mut at = offset;
        bytes.chunks(piece.len()).all(|part| {
            let known = &mut piece[..part.len()];
            self.buffers.pool.read(buffer, at, known);
            at += part.len() as u32;
            known == part
        })
    }

    /// Appends pieces to a replica that is being filled. All of them count at the same moment.
    fn add<'b>(&mut self, number: FrameNumber, pieces: impl Iterator<Item = &'b [u8]>) {
        let chunk_bytes = self.superblock.geometry.chunk_bytes();
        let pool = &self.buffers.pool;
        let is_due = self.frames.change(number, |frame| {
            let State::Filling(filling) = &mut frame.state else { return false };
            let FillingReplica { buffer, digest, flushed, .. } = &mut **filling;
            let before = frame.length;
            for mut bytes in pieces {
                while !bytes.is_empty() {
                    let at = frame.length as usize;
                    let length = bytes.len().min(chunk_bytes - at % chunk_bytes);
                    let (part, rest) = bytes.split_at(length);
                    pool.write(*buffer, frame.length, part);
                    digest.update(part);
                    frame.length += part.len() as u32;
                    if (at + part.len()).is_multiple_of(chunk_bytes) {
                        pool.set_chunk(*buffer, at / chunk_bytes, digest.finalize() as u32);
                        digest.reset();
                    }
                    bytes = rest;
                }
            }
            let length = frame.length;
            if length == before {
                return false;
            }
            pool.set_extent(*buffer, Extent { length, tail_sum: digest.finalize() as u32 });
            length - *flushed >= FLUSH_BYTES
        });
        self.flusher.is_urgent |= is_due;
    }

    /// Acknowledges a change of a frame, also a repeated one.
    fn acknowledge(&mut self, number: FrameNumber) -> Ack {
        let has_rested = self.frames.change(number, |frame| {
            frame.is_changed = true;
            frame.mark_busy();
            frame.has_rested()
        });
        if self.options.durability != Durability::Synced {
            if !has_rested {
                return Ack::Now;
            }
            // A resting replica is in no memory that outlasts the process.
            self.flusher.is_urgent = true;
        }
        Ack::When(self.acks.issue(number))
    }
}
