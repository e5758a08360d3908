//! The store: a backup's frames, as its reactor uses them. No call waits.
//!
//! One thread owns a [`Store`]. It calls [`Store::turn`] at the end of each of its turns: that
//! hands what has changed to the flusher as one round, and says what has become durable, failed or
//! been read. At most one round is under way; what changes meanwhile is the next. So under load
//! rounds grow by themselves, and syncs are shared by all who wait.
//!
//! A frame goes through these states:
//!
//! ```text
//! free ─open─► filling (a buffer) ─close─► closing ─round─► stored (on disk alone)
//!  ▲              │     └─► resting ─close─┘ │                 │
//!  └─── round ────┴──────── freeing ◄── free ┴─────────────────┘
//! ```
//!
//! A frame is used anew only once its header on disk says that it is free: so data never lies
//! under the header of another replica.
//!
//! # What the disk does not take
//!
//! A frame that could not be written stays as it is, with its buffer: what was acknowledged is there, and
//! is read from there, also by the next process. It is written again every fifth of a second until the disk takes it.
//! Until then an open one gets nothing more, as after a restart: its master makes another one, and this one
//! counts until that is done. What the disk has of it meanwhile is older and must not be offered: it may lack what was
//! acknowledged.
//!
//! # One that is begun in the place of another
//!
//! An open replica that cannot be gone on with, or any that its master makes anew at a later epoch, is
//! *replaced*: the new one is filled in another frame, and the old one counts until the new one does
//! (`replaced`). So there is always one of the two.
//!
//! # When no buffer is left
//!
//! An open replica that has got nothing for some time, or whose master is gone, gives its buffer to one that
//! is begun (`resting`). So those who wait for buffers do not wait for each other.

mod reading;
mod replaced;
mod resting;
mod rounds;

use crate::error::{ReadError, Refusal};
use crate::flusher::Exchange;
use crate::layout::{Header, Identity, ReplicaId, Superblock, Used};
use crate::limits::{FLUSH_AGE, FLUSH_BYTES};
use crate::pool::{Claimed, Pool};
use crate::reader::{ReadId, Reads, ReplicaBytes, Spare};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_runtime::files::FileLock;
use thunderhead_runtime::lasting::Memories;
use thunderhead_runtime::workers::WorkerBell;
use thunderhead_wire::{Epoch, MasterId};

/// When what a master sent is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it is in the buffer: it survives any crash of the process. Written out at once, in
    /// the background.
    Replicated,
    /// As above, and written out so often: what the machine may lose is no older than this and
    /// what the disk takes.
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

/// What a store is made or opened with.
#[derive(Clone, Debug)]
pub struct Options {
    /// To whom it belongs.
    pub identity: Identity,
    /// Bytes of a full segment.
    pub segment_bytes: u32,
    /// How many replicas it holds.
    pub frames: u32,
    /// How many replicas may be open or on their way to the disk.
    pub buffers: u32,
    /// When is acknowledged.
    pub durability: Durability,
    /// All frames are written once when the file is made. File systems note of each piece when it is written
    /// for the first time, and a sync waits for that.
    pub populate: bool,
    /// The file takes room on the disk as it is used, where the file system can do that.
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

/// The name that a storage file has.
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

/// Something that will be durable: what [`Event::Durable`] names. Grows with every call.
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

/// What [`Store::turn`] tells.
#[derive(Debug)]
pub enum Event {
    /// What was called for with this ticket may be acknowledged.
    Durable(Ticket),
    /// What was called for with this ticket is not durable yet, and it is not known when it will be: the
    /// disk failed.
    Failed(Ticket),
    /// A read has ended.
    Read(ReadId, Result<ReplicaBytes, ReadError>),
}

/// A replica of the inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Which.
    pub id: ReplicaId,
    /// The epoch of its segment.
    pub epoch: Epoch,
    /// Its bytes.
    pub length: u32,
    /// It is whole. If not, it is of a head that was open, and counts only at the current epoch.
    pub closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// It has a buffer, and gets bytes.
    Filling,
    /// It had one, and all of it is on the disk. It gets no more bytes, and may be closed.
    Resting,
    /// It has a buffer, unless it rested, and gets no more.
    Closing,
    /// It is on the disk alone. Open ones are from before the start.
    Stored,
    /// It is to be free on the disk too.
    Freeing,
    /// Its header on disk cannot be read.
    Damaged,
    /// What was in memory of it could not be written at the start. It stays there for the next start.
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
    pub(crate) buffer: Option<u32>,
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
            let Used { id, epoch, closed, committed, length, .. } = *used;
            frame =
                Frame { state: State::Stored, id, epoch, length, closed, committed, buffer: None };
        }
        frame
    }
}

/// What a buffer is doing.
struct Filling {
    digest: crc_fast::Digest,
    /// Bytes that were in the last round.
    flushed: u32,
    /// Its master may add to it.
    is_wanted: bool,
    /// All of it is on the disk, since then.
    idle_since: Option<Time>,
}

struct UnderWay {
    tickets: Ticket,
    frames: Vec<u32>,
    /// Frames that had changed too, and whose buffers do not hold what they should.
    lost: Vec<u32>,
    /// What was replaced by then, and by which frames.
    succeeded: BTreeMap<u32, u32>,
}

/// What a store consists of when it has been opened.
pub(crate) struct Parts {
    pub(crate) options: Options,
    pub(crate) superblock: Superblock,
    pub(crate) pool: Pool,
    pub(crate) frames: Vec<Frame>,
    pub(crate) sequence: u64,
    pub(crate) exchange: Exchange,
    pub(crate) reads: Reads,
    pub(crate) spare: Spare,
    pub(crate) flusher: WorkerBell,
    pub(crate) reader: WorkerBell,
    /// Held as long as the store is.
    pub(crate) _locks: [FileLock; 2],
}

/// A backup's frames. See the [module](self).
pub struct Store {
    parts: Parts,
    by_id: BTreeMap<ReplicaId, u32>,
    /// Of masters that have taken back former logs: whose closed replicas are theirs, too.
    pub(crate) lineages: crate::lineage::Lineages,
    /// Replicas that count until those that were begun in their place do.
    replaced: BTreeMap<ReplicaId, u32>,
    /// Frames that are freed once those are durable that were begun in their place.
    succeeded: BTreeMap<u32, u32>,
    free: VecDeque<u32>,
    free_buffers: Vec<u32>,
    filling: BTreeMap<u32, Filling>,
    /// Of these, those that could rest: unwanted ones first, then by how long they have been idle.
    idle: BTreeSet<(bool, Time, u32)>,
    /// The checksums of those that do.
    resting: BTreeMap<u32, Vec<u32>>,
    /// How late it is, as far as is known.
    now: Time,
    /// Reads under way of each buffer; it is not used anew before they end.
    pins: BTreeMap<u32, u32>,
    to_release: BTreeSet<u32>,
    reads_under_way: usize,
    next_read: u64,
    touched: BTreeSet<u32>,
    touched_since: Option<Time>,
    /// The next round is not to wait for its time.
    urgent: bool,
    /// Frames that the disk did not take, and when they are written again.
    refused: BTreeSet<u32>,
    again_at: Option<Time>,
    /// When it is said on the disk that the last round was durable, if nothing else is written until then.
    prove_at: Option<Time>,
    /// Frames that the disk did not take once: they are the last to be used again.
    distrusted: BTreeSet<u32>,
    under_way: Option<UnderWay>,
    issued: Ticket,
    waiting: VecDeque<(Ticket, u32)>,
}

impl Store {
    pub(crate) fn assemble(parts: Parts) -> Store {
        let by_id = |(number, frame): (usize, &Frame)| {
            (frame.state == State::Stored).then_some((frame.id, number as u32))
        };
        let free = |(number, frame): (usize, &Frame)| {
            (frame.state == State::Free).then_some(number as u32)
        };
        Store {
            by_id: parts.frames.iter().enumerate().filter_map(by_id).collect(),
            replaced: BTreeMap::new(),
            succeeded: BTreeMap::new(),
            free: parts.frames.iter().enumerate().filter_map(free).collect(),
            free_buffers: (0..parts.pool.buffers())
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

    /// Whose store this is, and its sizes.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.parts.superblock
    }

    /// Frames that a replica could be opened in.
    #[must_use]
    pub fn frames_free(&self) -> usize {
        self.free.len()
    }

    /// Begins a replica. With `atomic` it does not count, for nobody, until it is
    /// [committed](Store::commit) or closed; at a later epoch than that of one that is here it is
    /// begun from nothing, and the one that is here counts until then. Else to begin one anew that
    /// is open repeats the call; one that was interrupted by a restart is begun from nothing.
    ///
    /// # Errors
    /// When it is closed here already, or there is no frame or no buffer for it.
    pub fn open(&mut self, id: ReplicaId, epoch: Epoch, atomic: bool) -> Result<Ack, Refusal> {
        let mut replaces = false;
        if let Some(&number) = self.by_id.get(&id) {
            let frame = self.parts.frames[number as usize];
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
        let used =
            Used { id, epoch, closed: false, committed: !atomic, length: 0, chunks: Vec::new() };
        let frame = &mut self.parts.frames[number as usize];
        *frame = Frame {
            state: State::Filling,
            buffer: Some(buffer),
            ..Frame::of(&Header::Used(used.clone()))
        };
        let base = self.parts.sequence;
        self.parts.pool.claim(&Claimed { buffer, frame: number, base, used });
        let digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        let filling = Filling { digest, flushed: 0, is_wanted: true, idle_since: None };
        self.filling.insert(number, filling);
        self.by_id.insert(id, number);
        Ok(self.acknowledge(number))
    }

    /// Adds bytes to a replica, at its end. Bytes that were sent before may be sent again, with
    /// or without more behind them. A higher epoch than before becomes the replica's.
    ///
    /// # Errors
    /// When they cannot be added; nothing of them is then.
    pub fn append(
        &mut self,
        id: ReplicaId,
        epoch: Epoch,
        offset: u32,
        bytes: &[u8],
    ) -> Result<Ack, Refusal> {
        self.append_pieces(id, epoch, offset, std::iter::once(bytes))
    }

    /// The same of bytes that lie in pieces.
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
        let frame = self.parts.frames[number as usize];
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

    /// Says that a replica has so many bytes and gets no more. It counts from now on.
    ///
    /// # Errors
    /// When it has another length.
    pub fn close(&mut self, id: ReplicaId, epoch: Epoch, length: u32) -> Result<Ack, Refusal> {
        if let Some(&number) = self.by_id.get(&id) {
            let frame = self.parts.frames[number as usize];
            if frame.state == State::Stored && frame.closed && frame.length == length {
                return Ok(Ack::Now);
            }
        }
        let number = self.writable(id)?;
        let frame = &mut self.parts.frames[number as usize];
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
                self.parts.pool.set_state(buffer, true, true);
            }
            self.urgent = true;
            self.takes_its_place(id, number);
        }
        Ok(self.acknowledge(number))
    }

    /// A replica that was begun in atomic mode counts from now on, though it stays open.
    ///
    /// # Errors
    /// When there is none that is open.
    pub fn commit(&mut self, id: ReplicaId, epoch: Epoch) -> Result<Ack, Refusal> {
        let number = self.writable(id)?;
        self.raise_epoch(number, epoch)?;
        let frame = &mut self.parts.frames[number as usize];
        frame.committed = true;
        if let Some(buffer) = frame.buffer {
            self.parts.pool.set_state(buffer, frame.closed, true);
        }
        self.takes_its_place(id, number);
        Ok(self.acknowledge(number))
    }

    /// When is acknowledged.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.parts.options.durability
    }

    /// Frames whose headers cannot be read: there is something in them, and nobody knows what.
    #[must_use]
    pub fn frames_damaged(&self) -> usize {
        self.parts.frames.iter().filter(|frame| frame.state == State::Damaged).count()
    }

    /// Gives back memory that replicas were read into, once nobody has any of them.
    pub(crate) fn trim(&self) {
        if self.parts.spare.is_idle() {
            self.parts.reader.ring();
        }
    }

    /// Takes what the workers have done and hands them what there is to do. Called at the end of
    /// each turn of the reactor; says whether there was anything.
    pub fn turn(&mut self, now: Time, tell: &mut dyn FnMut(Event)) -> bool {
        self.now = now;
        let finished = self.take_finished(now, tell);
        let read = self.take_reads(tell);
        let handed = self.hand_over(now);
        finished || read || handed
    }

    /// When the store wants a turn though nothing happens.
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

    /// Replicas that are not on the disk as they are.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        let under_way = self.under_way.iter().flat_map(|it| &it.frames);
        let all = self.touched.iter().chain(&self.refused).chain(under_way);
        all.collect::<BTreeSet<_>>().len()
    }

    /// Whether everything is on the disk, and the disk says so.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_written() && self.prove_at.is_none()
    }

    /// Ends a store that is settled, and gives its shared memory back. Returns false when it is not settled: then
    /// the next round begins at once, and the caller tries again when that has ended.
    ///
    /// # Errors
    /// When the memory cannot be removed.
    pub fn leave(&mut self, memories: &mut dyn Memories) -> io::Result<bool> {
        if !self.is_settled() {
            // The store gets nothing more, so a round gains nothing by waiting for its time. The turn is over,
            // and the next one may come only at that time.
            self.urgent |= !self.touched.is_empty();
            self.hand_over(self.now);
            return Ok(false);
        }
        if self.parts.frames.iter().any(|frame| frame.state == State::Bad) {
            // Its only copy is there.
            return Ok(true);
        }
        memories.remove(&crate::pool::name(&self.parts.superblock))?;
        Ok(true)
    }

    /// The frame of a replica that may be changed.
    fn writable(&self, id: ReplicaId) -> Result<u32, Refusal> {
        let number = *self.by_id.get(&id).ok_or(Refusal::NotFound(id))?;
        let frame = &self.parts.frames[number as usize];
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

    fn raise_epoch(&mut self, number: u32, epoch: Epoch) -> Result<(), Refusal> {
        let frame = &mut self.parts.frames[number as usize];
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

    /// Whether bytes are those that are in the buffer already.
    fn is_repeated(&self, buffer: u32, offset: u32, bytes: &[u8]) -> bool {
        let mut piece = [0; 4096];
        let mut at = offset;
        bytes.chunks(piece.len()).all(|part| {
            let known = &mut piece[..part.len()];
            self.parts.pool.read(buffer, at, known);
            at += part.len() as u32;
            known == part
        })
    }

    /// Copies bytes behind those that are there. All of them count at once.
    fn add<'b>(&mut self, number: u32, buffer: u32, pieces: impl Iterator<Item = &'b [u8]>) {
        let frame = &mut self.parts.frames[number as usize];
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
        let tail_sum = filling.digest.finalize() as u32;
        self.parts.pool.set_extent(buffer, frame.length, tail_sum);
        self.urgent |= frame.length - filling.flushed >= FLUSH_BYTES;
    }

    /// A frame has changed, or what it was changed to is asked for again.
    fn acknowledge(&mut self, number: u32) -> Ack {
        self.touched.insert(number);
        self.is_busy(number);
        if self.parts.options.durability != Durability::Synced {
            if !self.resting.contains_key(&number) {
                return Ack::Now;
            }
            // It is in no memory that outlasts the process.
            self.urgent = true;
        }
        self.issued.0 += 1;
        self.waiting.push_back((self.issued, number));
        Ack::When(self.issued)
    }

    /// Gives a buffer back, once nobody reads it.
    fn release(&mut self, buffer: Option<u32>) {
        let Some(buffer) = buffer else { return };
        if self.pins.contains_key(&buffer) {
            // What is read from it is on the disk, or of no use to the next process.
            self.parts.pool.drop_replica(buffer);
            self.to_release.insert(buffer);
            return;
        }
        self.parts.pool.release(buffer);
        self.free_buffers.push(buffer);
    }
}
