//! The seam between a log and the keeper of its copies: backups in a cluster, nothing in a cache, a
//! recorder in a test.
//!
//! The log reports its actions in the order that safety demands (TOCS §4.5). The replicator reports
//! how far the copies have come. The contract is with the trait, [`Replicator`].

use crate::format::metadata::SegmentKind;
use crate::memory::{Memory, Reference};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thunderhead_wire::{LogPosition, SegmentId};

/// Keeps copies of a log's segments in a safe place, for example on backups.
///
/// # The calls, and their order
///
/// All calls come on the log's own thread, at the end of its [turns](crate::Log#turns) and, when a
/// segment is full or memory is short, from within a write. **An implementation must not block:**
/// the log serves no request meanwhile. It queues the call, returns, and reports later how far it
/// has come.
///
/// For each segment the calls are `opened`, `appended` for each new piece of bytes, `closed` and,
/// some time later, `freed`. For the heads, which come one after another, that is:
///
/// ```text
/// opened(new) · appended(new, its header and digest) · closed(old) · appended(new, data) · …
/// ```
///
/// - A new head's digest is appended before the old head is closed, and the old head is closed
///   before data is appended to the new one. So at every moment some open head has a digest.
/// - A survivor is opened, appended in pieces and closed, between the calls for a head. One piece a
///   turn, so that its copying delays no request. The survivors of a cleaner come one after
///   another; side segments come beside them.
/// - The bytes of a segment are appended in order and without gaps.
/// - `freed` comes for a segment that no durable digest names any more.
///
/// **The order is law.** The work may overlap, but its effects must become durable in the order of
/// the calls: after a crash, the copies must be as some prefix of the calls left them. The
/// implementation decides when bytes count as durable, and so how many copies there are.
///
/// The bytes are as `docs/format.md` has them, except that the *dead* bit of an entry means nothing
/// in a copy.
pub trait Replicator: Send {
    /// A segment exists and will get bytes. Ids never repeat.
    fn opened(&mut self, segment: SegmentId, kind: SegmentKind);

    /// Bytes were added to a segment, from this offset on.
    fn appended(&mut self, segment: SegmentId, offset: u32, bytes: SegmentBytes<'_>);

    /// A segment has this many bytes and will get no more.
    fn closed(&mut self, segment: SegmentId, length: u32);

    /// A durable digest no longer names the segment: its copies may go.
    fn freed(&mut self, segment: SegmentId);

    /// How far the stream of heads is durable: everything that was appended to them up to this
    /// position. It never goes back. Called at the end of each turn. The position is in a head only
    /// once the head before is closed, durably: from then on the cleaners may have that head, and
    /// its bytes in memory may change ([`Log::segment_bytes`](crate::Log::segment_bytes)).
    fn durable(&mut self) -> LogPosition;

    /// Whether a survivor, once closed, is durable whole.
    fn is_durable(&self, survivor: SegmentId) -> bool;
}

/// Bytes of a segment, lent for the time of a call. They may lie in several pieces.
#[derive(Clone, Copy)]
pub struct SegmentBytes<'a> {
    memory: &'a Memory,
    from: Reference,
    length: usize,
}

impl<'a> SegmentBytes<'a> {
    pub(crate) fn new(memory: &'a Memory, from: Reference, length: usize) -> SegmentBytes<'a> {
        SegmentBytes { memory, from, length }
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, piece by piece.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.memory.pieces(self.from, self.length).map(|(address, length)| {
            // SAFETY: the log's thread lends bytes that it has written (a head's) or that a cleaner
            // wrote before it handed the segment over (a survivor's). Only this thread writes dead
            // bits, and it is inside this call.
            unsafe { std::slice::from_raw_parts(address.cast_const(), length) }
        })
    }

    /// Appends the bytes to a buffer.
    pub fn copy_to(&self, buffer: &mut Vec<u8>) {
        for piece in self.pieces() {
            buffer.extend_from_slice(piece);
        }
    }
}

/// Keeps no copies: everything is durable at once. For caches and for measuring the log alone.
#[derive(Debug, Default)]
pub struct NoReplication {
    appended: LogPosition,
    head: SegmentId,
}

impl Replicator for NoReplication {
    fn opened(&mut self, segment: SegmentId, kind: SegmentKind) {
        if kind != SegmentKind::Survivor {
            self.head = segment;
        }
    }

    fn appended(&mut self, segment: SegmentId, offset: u32, bytes: SegmentBytes<'_>) {
        if segment == self.head {
            self.appended = LogPosition { segment, offset: offset + bytes.len() as u32 };
        }
    }

    fn closed(&mut self, _: SegmentId, _: u32) {}

    fn freed(&mut self, _: SegmentId) {}

    fn durable(&mut self) -> LogPosition {
        self.appended
    }

    fn is_durable(&self, _: SegmentId) -> bool {
        true
    }
}

/// A call to a replicator, in order. A crash leaves the effects of some prefix of the calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// See [`Replicator::opened`].
    Opened(SegmentId, SegmentKind),
    /// See [`Replicator::appended`].
    Appended(SegmentId, Vec<u8>),
    /// See [`Replicator::closed`].
    Closed(SegmentId),
    /// See [`Replicator::freed`].
    Freed(SegmentId),
}

/// Keeps copies in this process's memory and remembers every event: the log's flight recorder, for
/// tests and for tools. Clones share one recording.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    state: Arc<Mutex<Recording>>,
}

#[derive(Debug, Default)]
struct Recording {
    events: Vec<Event>,
    survivors: BTreeMap<SegmentId, bool>,
    appended: LogPosition,
    durable: LogPosition,
    held: bool,
}

impl Recorder {
    /// Creates a recorder that counts everything as durable once it is appended.
    #[must_use]
    pub fn new() -> Recorder {
        Recorder::default()
    }

    fn state(&self) -> MutexGuard<'_, Recording> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops or resumes durability: while held, no more bytes become durable.
    pub fn hold(&self, held: bool) {
        let mut state = self.state();
        state.held = held;
        if !held {
            state.settle();
        }
    }

    /// Holds, with everything durable up to a position and nothing beyond it.
    pub fn hold_at(&self, position: LogPosition) {
        let mut state = self.state();
        (state.held, state.durable) = (true, position);
    }

    /// The number of events so far.
    #[must_use]
    pub fn events(&self) -> usize {
        self.state().events.len()
    }

    /// Bytes that were appended in all.
    #[must_use]
    pub fn events_bytes(&self) -> u64 {
        let bytes = |event: &Event| match event {
            Event::Appended(_, bytes) => bytes.len() as u64,
            _ => 0,
        };
        self.state().events.iter().map(bytes).sum()
    }

    /// The replicas as they are now, without another copy; `None` while another clone of the
    /// recorder exists.
    #[must_use]
    pub fn into_replicas(self) -> Option<BTreeMap<SegmentId, Replica>> {
        let recording = Arc::into_inner(self.state)?;
        let recording = recording.into_inner().unwrap_or_else(PoisonError::into_inner);
        Some(replicas_after(recording.events))
    }

    /// The segments that were freed so far.
    #[must_use]
    pub fn freed(&self) -> Vec<SegmentId> {
        let freed = |event: &Event| match event {
            Event::Freed(segment) => Some(*segment),
            _ => None,
        };
        self.state().events.iter().filter_map(freed).collect()
    }

    /// The replicas that a crash after the first `events` events leaves: for each segment its bytes
    /// and whether it is still open.
    #[must_use]
    pub fn replicas(&self, events: usize) -> BTreeMap<SegmentId, Replica> {
        replicas_after(self.state().events.iter().take(events).cloned())
    }
}

/// The replicas that events leave behind.
fn replicas_after(events: impl IntoIterator<Item = Event>) -> BTreeMap<SegmentId, Replica> {
    let mut replicas: BTreeMap<SegmentId, Replica> = BTreeMap::new();
    for event in events {
        match event {
            Event::Opened(segment, kind) => {
                replicas.insert(segment, Replica { kind, open: true, bytes: Vec::new() });
            }
            Event::Appended(segment, bytes) => {
                if let Some(replica) = replicas.get_mut(&segment) {
                    replica.bytes.extend_from_slice(&bytes);
                }
            }
            Event::Closed(segment) => {
                if let Some(replica) = replicas.get_mut(&segment) {
                    replica.open = false;
                }
            }
            Event::Freed(segment) => {
                replicas.remove(&segment);
            }
        }
    }
    replicas
}

/// One replica of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The kind of the segment.
    pub kind: SegmentKind,
    /// Whether the segment was still open.
    pub open: bool,
    /// Its bytes so far.
    pub bytes: Vec<u8>,
}

impl Recording {
    fn settle(&mut self) {
        self.durable = self.appended;
        self.survivors.values_mut().for_each(|durable| *durable = true);
    }
}

impl Replicator for Recorder {
    fn opened(&mut self, segment: SegmentId, kind: SegmentKind) {
        let mut state = self.state();
        state.events.push(Event::Opened(segment, kind));
        if kind == SegmentKind::Survivor {
            state.survivors.insert(segment, false);
        }
    }

    fn appended(&mut self, segment: SegmentId, offset: u32, bytes: SegmentBytes<'_>) {
        let mut copy = Vec::with_capacity(bytes.len());
        bytes.copy_to(&mut copy);
        let mut state = self.state();
        if !state.survivors.contains_key(&segment) {
            state.appended = LogPosition { segment, offset: offset + copy.len() as u32 };
        }
        state.events.push(Event::Appended(segment, copy));
        if !state.held {
            state.settle();
        }
    }

    fn closed(&mut self, segment: SegmentId, _: u32) {
        let mut state = self.state();
        state.events.push(Event::Closed(segment));
        if !state.held {
            state.settle();
        }
    }

    fn freed(&mut self, segment: SegmentId) {
        let mut state = self.state();
        state.survivors.remove(&segment);
        state.events.push(Event::Freed(segment));
    }

    fn durable(&mut self) -> LogPosition {
        self.state().durable
    }

    fn is_durable(&self, survivor: SegmentId) -> bool {
        self.state().survivors.get(&survivor).copied().unwrap_or(true)
    }
}
