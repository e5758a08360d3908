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

mod reading;
mod replaced;
mod resting;
mod rounds;

use crate::error::{ReadError, Refusal};
use crate::flusher::Exchange;
use crate::layout::{FrameNumber, Header, Identity, ReplicaHeader, ReplicaId, Superblock};
use crate::limits::{FLUSH_AGE, FLUSH_BYTES};
use crate::pool::{BufferNumber, BufferState, BufferedReplica, Extent, Pool};
use crate::reader::{ReadId, Reads, ReplicaBytes, SpareBuffers};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_runtime::files::FileLock;
use thunderhead_runtime::lasting::Memories;
use thunderhead_runtime::workers::WorkerBell;
use thunderhead_wire::{Epoch, MasterId};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// The replica has a buffer and gets bytes.
    Filling,
    /// The replica has no buffer any more, and all of it is on the disk. It gets no more bytes, and
    /// may be closed.
    Resting,
    /// The replica gets no more bytes. It has a buffer, unless it rested before.
    Closing,
    /// The replica is on the disk alone. An open one is from before the start.
    Stored,
    /// The header on disk is still to be marked free.
    Freeing,
    /// Its header on disk cannot be read.
    Damaged,
    /// Its bytes in memory could not be written at the start. They stay there for the next start.
    Bad,
}

/// A frame, as the reactor knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) state: State,
    pub(crate) id: ReplicaId,
    pub(crate) epoch: Epoch,
    pub(crate) length: u32,
    pub(crate) closed: bool,
    pub(crate) committed: bool,
    pub(crate) buffer: Option<BufferNumber>,
}

impl Frame {
    pub(crate) fn of(header: &Header) -> Frame {
        let mut frame = Frame {
            state: State::Free,
            id: ReplicaId { master: MasterId(0), segment: thunderhead_wire::SegmentId::NONE },
            epoch: Epoch(0),
            length: 0,
            closed: false,
            committed: false,
            buffer: None,
        };
        if let Header::Used(used) = header {
            let ReplicaHeader { id, epoch, closed, committed, length, .. } = *used;
            frame =
                Frame { state: State::Stored, id, epoch, length, closed, committed, buffer: None };
        }
        frame
    }
}

/// A replica that is being filled in a buffer.
struct FillingReplica {
    digest: crc_fast::Digest,
    /// Bytes that the last round contained.
    flushed: u32,
    /// Its master may still append to it.
    is_wanted: bool,
    /// The time since which all of it is on the disk.
    idle_since: Option<Time>,
}

/// A filled replica that could rest. The order is the order in which replicas rest: unwanted ones
/// first, then by how long they have been idle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct IdleReplica {
    is_wanted: bool,
    since: Time,
    frame: FrameNumber,
}

struct RoundUnderWay {
    tickets: Ticket,
    frames: Vec<FrameNumber>,
    /// Changed frames that left the round, because their buffers do not hold the expected
    /// contents.
    lost: Vec<FrameNumber>,
    /// Replaced frames at the time of the round, with the frames that replace them.
    succeeded: BTreeMap<FrameNumber, FrameNumber>,
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
    /// Held as long as the store is.
    pub(crate) _locks: [FileLock; 2],
}

/// A backup's frames. See the [module](self).
pub struct Store {
    parts: Parts,
    by_id: BTreeMap<ReplicaId, FrameNumber>,
    /// The lineages of masters that have taken back former logs and so own their closed replicas,
    /// too.
    pub(crate) lineages: crate::lineage::Lineages,
    /// Replaced replicas, which count until their replacements do.
    replaced: BTreeMap<ReplicaId, FrameNumber>,
    /// Frames to be freed, each with the frame whose durability it waits for.
    succeeded: BTreeMap<FrameNumber, FrameNumber>,
    free: VecDeque<FrameNumber>,
    free_buffers: Vec<BufferNumber>,
    filling: BTreeMap<FrameNumber, FillingReplica>,
    /// Filled replicas that could rest.
    idle: BTreeSet<IdleReplica>,
    /// The chunk checksums of resting replicas.
    resting: BTreeMap<FrameNumber, Vec<u32>>,
    /// The latest time that the store was told.
    now: Time,
    /// The number of reads under way of each buffer; the buffer is not used again before they end.
    pins: BTreeMap<BufferNumber, u32>,
    to_release: BTreeSet<BufferNumber>,
    reads_under_way: usize,
    next_read: u64,
    touched: BTreeSet<FrameNumber>,
    touched_since: Option<Time>,
    /// The next round begins at once.
    urgent: bool,
    /// Frames that the disk refused; `again_at` is the time of the next attempt.
    refused: BTreeSet<FrameNumber>,
    again_at: Option<Time>,
    /// When to record on the disk that the last round was durable, unless other data is written
    /// before.
    prove_at: Option<Time>,
    /// Frames that the disk refused at least once: they are used again last.
    distrusted: BTreeSet<FrameNumber>,
    under_way: Option<RoundUnderWay>,
    issued: Ticket,
    waiting: VecDeque<(Ticket, FrameNumber)>,
}

impl Store {
    pub(crate) fn assemble(parts: Parts) -> Store {
        let by_id = |(number, frame): (usize, &Frame)| {
            let number = FrameNumber::of_index(number);
            (frame.state == State::Stored).then_some((frame.id, number))
        };
        let free = |(number, frame): (usize, &Frame)| {
            (frame.state == State::Free).then_some(FrameNumber::of_index(number))
        };
        Store {
            by_id: parts.frames.iter().enumerate().filter_map(by_id).collect(),
            replaced: BTreeMap::new(),
            succeeded: BTreeMap::new(),
            free: parts.frames.iter().enumerate().filter_map(free).collect(),
            free_buffers: (parts.pool.numbers())
                .rev()
                .filter(|buffer| parts.pool.claimed(*buffer).is_none())
                .collect(),
            parts,
            lineages: crate::lineage::Lineages::default(),
            filling: BTreeMap::new(),
            idle: BTreeSet::new(),
            resting: BTreeMap::new(),
            now: Time(0),
            pins: BTreeMap::new(),
            to_release: BTreeSet::new(),
            reads_under_way: 0,
            next_read: 0,
            touched: BTreeSet::new(),
            touched_since: None,
            urgent: false,
            refused: BTreeSet::new(),
            again_at: None,
            prove_at: None,
            distrusted: BTreeSet::new(),
            under_way: None,
            issued: Ticket(0),
            waiting: VecDeque::new(),
        }
    }

    /// Returns the store's identity and its sizes.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.parts.superblock
    }

    /// Returns the number of free frames.
    #[must_use]
    pub fn frames_free(&self) -> usize {
        self.free.len()
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
        if let Some(&number) = self.by_id.get(&id) {
            let frame = self.parts.frames[number.index()];
            replaces = atomic && epoch > frame.epoch;
            match frame.state {
                _ if replaces => {}
                State::Filling | State::Resting if self.refused.contains(&number) => {
                    return Err(Refusal::Interrupted(id));
                }
                State::Filling | State::Resting => {
                    self.raise_epoch(number, epoch)?;
                    return Ok(self.acknowledge(number));
                }
                State::Closing => return Err(Refusal::Exists(id)),
                State::Stored if frame.closed => return Err(Refusal::Exists(id)),
                _ => {}
            }
        }
        if self.free.is_empty() {
            return Err(Refusal::Full);
        }
        if self.free_buffers.is_empty() {
            self.one_rests();
        }
        let Some(buffer) = self.free_buffers.pop() else { return Err(Refusal::Overloaded) };
        let Some(number) = self.free.pop_front() else {
            self.free_buffers.push(buffer);
            return Err(Refusal::Full);
        };
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
        let frame = &mut self.parts.frames[number.index()];
        *frame = Frame {
            state: State::Filling,
            buffer: Some(buffer),
            ..Frame::of(&Header::Used(used.clone()))
        };
        let base = self.parts.sequence;
        self.parts.pool.claim(&BufferedReplica { buffer, frame: number, base, used });
        let digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        let filling = FillingReplica { digest, flushed: 0, is_wanted: true, idle_since: None };
        self.filling.insert(number, filling);
        self.by_id.insert(id, number);
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
        let frame = self.parts.frames[number.index()];
        let Frame { length, state, .. } = frame;
        let bytes: usize = pieces.clone().map(<[u8]>::len).sum();
        let end = u64::from(offset) + bytes as u64;
        let limit = self.parts.superblock.geometry.segment_bytes;
        if end > u64::from(limit) {
            return Err(Refusal::TooLong { id, end, limit });
        }
        if offset > length {
            return Err(Refusal::Gap { id, length });
        }
        if epoch < frame.epoch {
            return Err(Refusal::StaleEpoch { id, current: frame.epoch });
        }
        if state == State::Closing && end > u64::from(length) {
            return Err(Refusal::Closed { id, length });
        }
        let known = (length - offset) as usize;
        let (mut left, mut at) = (known, offset);
        for piece in pieces.clone() {
            let repeated = piece.get(..left.min(piece.len())).unwrap_or_default();
            left -= repeated.len();
            if frame.buffer.is_some_and(|buffer| !self.is_repeated(buffer, at, repeated)) {
                return Err(Refusal::Differs(id));
            }
            at += repeated.len() as u32;
            if left == 0 {
                break;
            }
        }
        if frame.buffer.is_none() && end > u64::from(length) {
            return Err(Refusal::Interrupted(id));
        }
        self.raise_epoch(number, epoch)?;
        if let Some(buffer) = frame.buffer {
            let new = pieces.scan(known, |known, piece| {
                let repeated = (*known).min(piece.len());
                *known -= repeated;
                piece.get(repeated..)
            });
            self.add(number, buffer, new);
        }
        Ok(self.acknowledge(number))
    }

    /// Closes a replica with this length. It gets no more bytes, and counts from now on.
    ///
    /// # Errors
    /// If it has another length.
    pub fn close(&mut self, id: ReplicaId, epoch: Epoch, length: u32) -> Result<Ack, Refusal> {
        if let Some(&number) = self.by_id.get(&id) {
            let frame = self.parts.frames[number.index()];
            if frame.state == State::Stored && frame.closed && frame.length == length {
                return Ok(Ack::Now);
            }
        }
        let number = self.writable(id)?;
        let frame = &mut self.parts.frames[number.index()];
        if length != frame.length {
            let length = frame.length;
            return Err(match frame.state {
                State::Closing => Refusal::Closed { id, length },
                _ => Refusal::Gap { id, length },
            });
        }
        if epoch < frame.epoch {
            return Err(Refusal::StaleEpoch { id, current: frame.epoch });
        }
        if matches!(frame.state, State::Filling | State::Resting) {
            frame.state = State::Closing;
            (frame.closed, frame.committed) = (true, true);
            if let Some(buffer) = frame.buffer {
                let state = BufferState { closed: true, committed: true };
                self.parts.pool.set_state(buffer, state);
            }
            self.urgent = true;
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
        let frame = &mut self.parts.frames[number.index()];
        frame.committed = true;
        if let Some(buffer) = frame.buffer {
            let state = BufferState { closed: frame.closed, committed: true };
            self.parts.pool.set_state(buffer, state);
        }
        self.takes_its_place(id, number);
        Ok(self.acknowledge(number))
    }

    /// Returns when the store acknowledges a change.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.parts.options.durability
    }

    /// Returns the number of frames with unreadable headers. Their contents are unknown.
    #[must_use]
    pub fn frames_damaged(&self) -> usize {
        self.parts.frames.iter().filter(|frame| frame.state == State::Damaged).count()
    }

    /// Releases memory that replicas were read into, if no reader holds any of them.
    pub(crate) fn trim(&self) {
        if self.parts.spare.is_idle() {
            self.parts.reader.ring();
        }
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
        if self.under_way.is_some() {
            return None;
        }
        let due = self.touched_since.map(|since| since + self.parts.options.durability.age());
        due.into_iter().chain(self.again_at).chain(self.prove_at).min()
    }

    /// Whether everything is on the disk.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.touched.is_empty() && self.refused.is_empty() && self.under_way.is_none()
    }

    /// Whether the disk has refused all replicas that are not on it.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        !self.refused.is_empty() && self.touched.is_subset(&self.refused)
    }

    /// Returns the frames that differ from the disk.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        let under_way = self.under_way.iter().flat_map(|it| &it.frames);
        let all = self.touched.iter().chain(&self.refused).chain(under_way);
        all.collect::<BTreeSet<_>>().len()
    }

    /// Whether everything is on the disk, and the disk records that the last round was durable.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_written() && self.prove_at.is_none()
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
            self.urgent |= !self.touched.is_empty();
            self.hand_over(self.now);
            return Ok(false);
        }
        if self.parts.frames.iter().any(|frame| frame.state == State::Bad) {
            // The bad frame's only copy is in the shared memory.
            return Ok(true);
        }
        memories.remove(&crate::pool::name(&self.parts.superblock))?;
        Ok(true)
    }

    /// Returns the frame of a replica that may be changed.
    fn writable(&self, id: ReplicaId) -> Result<FrameNumber, Refusal> {
        let number = *self.by_id.get(&id).ok_or(Refusal::NotFound(id))?;
        let frame = &self.parts.frames[number.index()];
        match frame.state {
            State::Filling | State::Resting if self.refused.contains(&number) => {
                Err(Refusal::Interrupted(id))
            }
            State::Filling | State::Resting | State::Closing => Ok(number),
            State::Stored if frame.closed => Err(Refusal::Closed { id, length: frame.length }),
            State::Stored => Err(Refusal::Interrupted(id)),
            State::Free | State::Freeing | State::Bad | State::Damaged => {
                Err(Refusal::NotFound(id))
            }
        }
    }

    fn raise_epoch(&mut self, number: FrameNumber, epoch: Epoch) -> Result<(), Refusal> {
        let frame = &mut self.parts.frames[number.index()];
        if epoch < frame.epoch {
            return Err(Refusal::StaleEpoch { id: frame.id, current: frame.epoch });
        }
        if epoch > frame.epoch {
            frame.epoch = epoch;
            if let Some(buffer) = frame.buffer {
                self.parts.pool.set_epoch(buffer, epoch);
            }
        }
        Ok(())
    }

    /// Whether these bytes are already in the buffer.
    fn is_repeated(&self, buffer: BufferNumber, offset: u32, bytes: &[u8]) -> bool {
        let mut piece = [0; 4096];
        let mut at = offset;
        bytes.chunks(piece.len()).all(|part| {
            let known = &mut piece[..part.len()];
            self.parts.pool.read(buffer, at, known);
            at += part.len() as u32;
            known == part
        })
    }

    /// Appends pieces. All of them count at the same moment.
    fn add<'b>(
        &mut self,
        number: FrameNumber,
        buffer: BufferNumber,
        pieces: impl Iterator<Item = &'b [u8]>,
    ) {
        let frame = &mut self.parts.frames[number.index()];
        let Some(filling) = self.filling.get_mut(&number) else { return };
        let before = frame.length;
        let chunk_bytes = self.parts.superblock.geometry.chunk_bytes();
        for mut bytes in pieces {
            while !bytes.is_empty() {
                let at = frame.length as usize;
                let (part, rest) = bytes.split_at(bytes.len().min(chunk_bytes - at % chunk_bytes));
                self.parts.pool.write(buffer, frame.length, part);
                filling.digest.update(part);
                frame.length += part.len() as u32;
                if (at + part.len()).is_multiple_of(chunk_bytes) {
                    let sum = filling.digest.finalize() as u32;
                    self.parts.pool.set_chunk(buffer, at / chunk_bytes, sum);
                    filling.digest.reset();
                }
                bytes = rest;
            }
        }
        if frame.length == before {
            return;
        }
        let extent = Extent { length: frame.length, tail_sum: filling.digest.finalize() as u32 };
        self.parts.pool.set_extent(buffer, extent);
        self.urgent |= frame.length - filling.flushed >= FLUSH_BYTES;
    }

    /// Acknowledges a change of a frame, also a repeated one.
    fn acknowledge(&mut self, number: FrameNumber) -> Ack {
        self.touched.insert(number);
        self.mark_busy(number);
        if self.parts.options.durability != Durability::Synced {
            if !self.resting.contains_key(&number) {
                return Ack::Now;
            }
            // A resting replica is in no memory that outlasts the process.
            self.urgent = true;
        }
        self.issued.0 += 1;
        self.waiting.push_back((self.issued, number));
        Ack::When(self.issued)
    }

    /// Releases a buffer after the last read of it has ended.
    fn release(&mut self, buffer: Option<BufferNumber>) {
        let Some(buffer) = buffer else { return };
        if self.pins.contains_key(&buffer) {
            // The bytes still being read from it are on the disk, or of no use to the next
            // process.
            self.parts.pool.drop_replica(buffer);
            self.to_release.insert(buffer);
            return;
        }
        self.parts.pool.release(buffer);
        self.free_buffers.push(buffer);
    }
}
