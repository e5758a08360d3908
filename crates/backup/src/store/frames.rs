//! The table of frames: one record for each frame, and the indexes that find frames.
//!
//! A [`Frame`] has all that the reactor knows of one frame. The indexes say nothing that the
//! records do not say: they find frames by a replica's id, and list the frames that a round or a
//! new replica needs, without a scan of all records. Only the queue of free frames has an order of
//! its own.
//!
//! Only this module can change a record or an index, and [`FrameTable::change`] is the way to do
//! it. It compares the record's [`Keys`] before and after the change, and updates the indexes if
//! the keys differ. So a record and an index cannot say different things. The one exception is
//! [`FrameTable::take_changed`], which clears a mark of many records together with its index.
//! [`FrameTable::check_consistent`] checks that records and indexes agree.

use crate::layout::{FrameNumber, Header, ReplicaHeader, ReplicaId};
use crate::pool::BufferNumber;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Index, RangeInclusive};
use thunderhead_runtime::Time;
use thunderhead_wire::{Epoch, MasterId, SegmentId};

/// The state of a frame. See the module `store` for the transitions.
pub(crate) enum State {
    Free,
    /// The replica has a buffer and gets bytes.
    Filling(Box<FillingReplica>),
    /// The replica has no buffer any more, and all of it is on the disk. It gets no more bytes, and
    /// may be closed.
    Resting(Checksums),
    /// The replica gets no more bytes. The header on disk does not say so yet.
    Closing(ClosingReplica),
    /// The replica is on the disk alone. An open one is from before the start.
    Stored,
    /// The header on disk is still to be marked free. A buffer may still hold the replica or the
    /// record that it is freed.
    Freeing(Option<BufferNumber>),
    /// Its header on disk cannot be read.
    Damaged,
    /// Its bytes in memory could not be written at the start. They stay there for the next start.
    Bad,
}

/// The checksums of the chunks of a replica without a buffer.
pub(crate) type Checksums = Box<[u32]>;

/// A replica that is being filled in a buffer.
pub(crate) struct FillingReplica {
    pub(super) buffer: BufferNumber,
    pub(super) digest: crc_fast::Digest,
    /// Bytes that the last round contained.
    pub(super) flushed: u32,
    /// Its master may still append to it.
    pub(super) is_wanted: bool,
    /// The time since which all of it is on the disk.
    pub(super) idle_since: Option<Time>,
}

/// The place of the bytes of a replica that is being closed.
pub(crate) enum ClosingReplica {
    InBuffer(BufferNumber),
    /// The replica rested before, so all its bytes are on the disk.
    Rested(Checksums),
}

/// The role of a frame's replica among the replicas with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The frame has no replica, or a freed one.
    None,
    /// The replica was begun last.
    Newest,
    /// The replica counts until the newest one does.
    Replaced,
}

/// A frame, as the reactor knows it.
pub(crate) struct Frame {
    pub(crate) state: State,
    pub(crate) id: ReplicaId,
    pub(crate) epoch: Epoch,
    pub(crate) length: u32,
    pub(crate) closed: bool,
    pub(crate) committed: bool,
    pub(super) role: Role,
    /// The frame whose replica takes the place of this one. This frame is freed once that replica
    /// is durable.
    pub(super) waits_for: Option<FrameNumber>,
    /// The frame whose replica took the place of this one. Its header is freed on the disk after
    /// this one's: otherwise the next process would find this replica and take it for the newest.
    pub(crate) successor: Option<FrameNumber>,
    /// The next round contains it, because it differs from the disk.
    pub(super) is_changed: bool,
    /// The disk refused its latest part of a round.
    pub(crate) is_refused: bool,
    /// The disk refused it at least once: it is used again last.
    pub(super) is_distrusted: bool,
}

/// A filled replica that could rest. The order is the order in which replicas rest: unwanted ones
/// first, then by how long they have been idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IdleReplica {
    pub(super) is_wanted: bool,
    pub(super) since: Time,
    pub(super) frame: FrameNumber,
}

/// The part of a record that the indexes are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Keys {
    id: ReplicaId,
    role: Role,
    waits_for: Option<FrameNumber>,
    successor: Option<FrameNumber>,
    is_free: bool,
    is_changed: bool,
    is_refused: bool,
    idle: Option<IdleReplica>,
}

#[derive(Default)]
struct Indexes {
    newest: BTreeMap<ReplicaId, FrameNumber>,
    replaced: BTreeMap<ReplicaId, FrameNumber>,
    /// Frames to be freed, each with the frame that it waits for.
    waiting: BTreeMap<FrameNumber, FrameNumber>,
    /// Frames to be freed, each with the frame whose replica took its place.
    succeeded: BTreeMap<FrameNumber, FrameNumber>,
    /// Free frames, in the order in which they are used.
    free: VecDeque<FrameNumber>,
    idle: BTreeSet<IdleReplica>,
    changed: BTreeSet<FrameNumber>,
    refused: BTreeSet<FrameNumber>,
}

/// See the module's documentation.
pub(super) struct FrameTable {
    frames: Vec<Frame>,
    indexes: Indexes,
}

impl Frame {
    /// Returns a frame as its header on the disk describes it.
    pub(crate) fn of(header: &Header) -> Frame {
        let free = Frame {
            state: State::Free,
            id: ReplicaId { master: MasterId(0), segment: SegmentId::NONE },
            epoch: Epoch(0),
            length: 0,
            closed: false,
            committed: false,
            role: Role::None,
            waits_for: None,
            successor: None,
            is_changed: false,
            is_refused: false,
            is_distrusted: false,
        };
        match header {
            Header::Free => free,
            Header::Used(used) => {
                let ReplicaHeader { id, epoch, closed, committed, length, .. } = *used;
                Frame { state: State::Stored, id, epoch, closed, committed, length, ..free }
            }
        }
    }

    /// Returns the buffer that belongs to the frame.
    pub(super) fn buffer(&self) -> Option<BufferNumber> {
        match &self.state {
            State::Filling(filling) => Some(filling.buffer),
            State::Closing(ClosingReplica::InBuffer(buffer)) => Some(*buffer),
            State::Freeing(buffer) => *buffer,
            State::Closing(ClosingReplica::Rested(_))
            | State::Free
            | State::Resting(_)
            | State::Stored
            | State::Damaged
            | State::Bad => None,
        }
    }

    /// Returns the checksums of a replica that rests, or that rested until it was closed.
    fn rested(&self) -> Option<&Checksums> {
        match &self.state {
            State::Resting(chunks) | State::Closing(ClosingReplica::Rested(chunks)) => Some(chunks),
            _ => None,
        }
    }

    /// Whether the replica rests, or rested until it was closed.
    pub(super) fn has_rested(&self) -> bool {
        self.rested().is_some()
    }

    /// Returns the header for a frame that rests, or that rested until it was closed.
    pub(super) fn as_it_rests(&self) -> Option<ReplicaHeader> {
        let chunks = self.rested()?.to_vec();
        let Frame { id, epoch, length, closed, committed, .. } = *self;
        Some(ReplicaHeader { id, epoch, closed, committed, length, chunks })
    }

    /// Begins a replica in this frame, which is free.
    pub(super) fn begin(&mut self, buffer: BufferNumber, used: ReplicaHeader) {
        let digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        let filling =
            FillingReplica { buffer, digest, flushed: 0, is_wanted: true, idle_since: None };
        *self = Frame {
            state: State::Filling(Box::new(filling)),
            role: Role::Newest,
            is_distrusted: self.is_distrusted,
            ..Frame::of(&Header::Used(used))
        };
    }

    /// Marks a filled replica as busy: part of it is not on the disk yet.
    pub(super) fn mark_busy(&mut self) {
        if let State::Filling(filling) = &mut self.state {
            filling.idle_since = None;
        }
    }

    /// Closes the open replica.
    pub(super) fn close(&mut self) {
        (self.closed, self.committed) = (true, true);
        self.state = match std::mem::replace(&mut self.state, State::Free) {
            State::Filling(it) => State::Closing(ClosingReplica::InBuffer(it.buffer)),
            State::Resting(chunks) => State::Closing(ClosingReplica::Rested(chunks)),
            other => other,
        };
    }

    /// Makes the frame free for the next replica.
    pub(super) fn clear(&mut self) {
        *self = Frame { is_distrusted: self.is_distrusted, ..Frame::of(&Header::Free) };
    }

    fn keys(&self, number: FrameNumber) -> Keys {
        let idle = match &self.state {
            State::Filling(filling) => filling.idle_since.map(|since| IdleReplica {
                is_wanted: filling.is_wanted,
                since,
                frame: number,
            }),
            _ => None,
        };
        Keys {
            id: self.id,
            role: self.role,
            waits_for: self.waits_for,
            successor: self.successor,
            is_free: matches!(self.state, State::Free),
            is_changed: self.is_changed,
            is_refused: self.is_refused,
            idle,
        }
    }
}

impl Indexes {
    fn of_role(&mut self, role: Role) -> Option<&mut BTreeMap<ReplicaId, FrameNumber>> {
        match role {
            Role::None => None,
            Role::Newest => Some(&mut self.newest),
            Role::Replaced => Some(&mut self.replaced),
        }
    }

    /// Updates the indexes after a frame's record has changed.
    fn update(&mut self, number: FrameNumber, before: &Keys, frame: &Frame) {
        let after = &frame.keys(number);
        if before == after {
            return;
        }
        if (before.role, before.id) != (after.role, after.id) {
            if let Some(index) = self.of_role(before.role) {
                let found = index.remove(&before.id);
                debug_assert_eq!(
                    found,
                    Some(number),
                    "the index finds the replica of {}",
                    before.id
                );
            }
            if let Some(index) = self.of_role(after.role) {
                let other = index.insert(after.id, number);
                debug_assert_eq!(other, None, "one replica of {} has this role", after.id);
            }
        }
        for (index, was, is) in [
            (&mut self.waiting, before.waits_for, after.waits_for),
            (&mut self.succeeded, before.successor, after.successor),
        ] {
            match is {
                _ if was == is => {}
                Some(other) => _ = index.insert(number, other),
                None => _ = index.remove(&number),
            }
        }
        match (before.is_free, after.is_free) {
            (true, false) => {
                assert_eq!(
                    self.free.pop_front(),
                    Some(number),
                    "the first free frame is used first"
                );
            }
            // The next replica gets this frame first: first writes to a new part of the file take
            // a file system longer.
            (false, true) if !frame.is_distrusted => self.free.push_front(number),
            (false, true) => self.free.push_back(number),
            _ => {}
        }
        if before.idle != after.idle {
            before.idle.map(|it| self.idle.remove(&it));
            self.idle.extend(after.idle);
        }
        for (set, was_in, is_in) in [
            (&mut self.changed, before.is_changed, after.is_changed),
            (&mut self.refused, before.is_refused, after.is_refused),
        ] {
            match (was_in, is_in) {
                (false, true) => _ = set.insert(number),
                (true, false) => _ = set.remove(&number),
                _ => {}
            }
        }
    }
}

impl Index<FrameNumber> for FrameTable {
    type Output = Frame;

    fn index(&self, number: FrameNumber) -> &Frame {
        &self.frames[number.index()]
    }
}

impl FrameTable {
    /// Makes a table of the frames that a start found. Of several stored replicas with one id, only
    /// the last one is found.
    pub(super) fn new(frames: Vec<Frame>) -> FrameTable {
        let mut table = FrameTable { frames, indexes: Indexes::default() };
        let FrameTable { frames, indexes } = &mut table;
        for (index, frame) in frames.iter_mut().enumerate() {
            let number = FrameNumber::of_index(index);
            match frame.state {
                State::Free => indexes.free.push_back(number),
                State::Stored => _ = indexes.newest.insert(frame.id, number),
                _ => {}
            }
            indexes.succeeded.extend(frame.successor.map(|other| (number, other)));
            indexes.refused.extend(frame.is_refused.then_some(number));
        }
        for number in indexes.newest.values() {
            frames[number.index()].role = Role::Newest;
        }
        table
    }

    /// Changes a frame's record, and the indexes with it.
    #[inline]
    pub(super) fn change<R>(
        &mut self,
        number: FrameNumber,
        change: impl FnOnce(&mut Frame) -> R,
    ) -> R {
        let frame = &mut self.frames[number.index()];
        let before = frame.keys(number);
        let result = change(frame);
        self.indexes.update(number, &before, frame);
        result
    }

    /// Adds all frames that the disk refused to the next round.
    pub(super) fn retry_refused(&mut self) {
        for number in self.indexes.refused.clone() {
            self.change(number, |frame| frame.is_changed = true);
        }
    }

    /// Takes the frames that differ from the disk, in order, for a round.
    pub(super) fn take_changed(&mut self) -> BTreeSet<FrameNumber> {
        let changed = std::mem::take(&mut self.indexes.changed);
        for number in &changed {
            self.frames[number.index()].is_changed = false;
        }
        changed
    }

    /// Returns the records of all frames.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter()
    }

    /// Returns the frame of the replica with this id that was begun last.
    pub(super) fn newest(&self, id: ReplicaId) -> Option<FrameNumber> {
        self.indexes.newest.get(&id).copied()
    }

    /// Returns the frame of the replica with this id that counts until the newest one does.
    pub(super) fn replaced(&self, id: ReplicaId) -> Option<FrameNumber> {
        self.indexes.replaced.get(&id).copied()
    }

    /// Returns the ids of all replicas, in order.
    pub(super) fn ids(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.indexes.newest.keys().copied()
    }

    /// Returns the ids of a master's replicas, in order. Does not visit replicas of other masters.
    pub(super) fn ids_of(&self, master: MasterId) -> impl Iterator<Item = ReplicaId> + '_ {
        self.indexes.newest.range(of_master(master)).map(|(id, _)| *id)
    }

    /// Returns the frames of a master's replicas, also of replaced ones.
    pub(super) fn frames_of(&self, master: MasterId) -> impl Iterator<Item = FrameNumber> + '_ {
        let Indexes { newest, replaced, .. } = &self.indexes;
        let all = newest.range(of_master(master)).chain(replaced.range(of_master(master)));
        all.map(|(_, number)| *number)
    }

    /// Returns the first master above `after` with replicas here.
    pub(super) fn master_after(&self, after: MasterId) -> Option<MasterId> {
        let behind = *of_master(after).end();
        let bounds = (std::ops::Bound::Excluded(behind), std::ops::Bound::Unbounded);
        self.indexes.newest.range(bounds).next().map(|(id, _)| id.master)
    }

    /// Returns the free frame that is used next.
    pub(super) fn next_free(&self) -> Option<FrameNumber> {
        self.indexes.free.front().copied()
    }

    /// Returns the number of free frames.
    pub(super) fn free_count(&self) -> usize {
        self.indexes.free.len()
    }

    /// Returns the frames to be freed that wait for a frame, in order.
    pub(super) fn waiting_for(&self, number: FrameNumber) -> Vec<FrameNumber> {
        let waiting = self.indexes.waiting.iter().filter(|(_, by)| **by == number);
        waiting.map(|(former, _)| *former).collect()
    }

    /// Returns the frames to be freed that wait for another frame, each with that frame.
    pub(super) fn waiting(&self) -> &BTreeMap<FrameNumber, FrameNumber> {
        &self.indexes.waiting
    }

    /// Returns the frames to be freed that must be free on the disk before a frame is.
    pub(super) fn preceding(&self, number: FrameNumber) -> Vec<FrameNumber> {
        let succeeded = self.indexes.succeeded.iter().filter(|(_, by)| **by == number);
        succeeded.map(|(former, _)| *former).collect()
    }

    /// Returns the filled replicas that could rest, in the order in which they rest.
    pub(super) fn idle(&self) -> impl Iterator<Item = &IdleReplica> {
        self.indexes.idle.iter()
    }

    /// Returns the frames that differ from the disk.
    pub(super) fn changed(&self) -> &BTreeSet<FrameNumber> {
        &self.indexes.changed
    }

    /// Returns the frames that the disk refused.
    pub(super) fn refused(&self) -> &BTreeSet<FrameNumber> {
        &self.indexes.refused
    }

    /// Checks that the indexes say the same as the records. For tests.
    ///
    /// # Panics
    /// If they do not.
    pub(super) fn check_consistent(&self) {
        let mut expected = Indexes::default();
        let mut buffers = BTreeSet::new();
        for (index, frame) in self.frames.iter().enumerate() {
            let number = FrameNumber::of_index(index);
            let keys = frame.keys(number);
            if let Some(index) = expected.of_role(keys.role) {
                assert_eq!(index.insert(keys.id, number), None, "{} is here twice", keys.id);
            }
            expected.waiting.extend(keys.waits_for.map(|other| (number, other)));
            expected.succeeded.extend(keys.successor.map(|other| (number, other)));
            expected.free.extend(keys.is_free.then_some(number));
            expected.idle.extend(keys.idle);
            expected.changed.extend(keys.is_changed.then_some(number));
            expected.refused.extend(keys.is_refused.then_some(number));
            let is_new = frame.buffer().is_none_or(|buffer| buffers.insert(buffer));
            assert!(is_new, "frame {number} has the buffer of another frame");
            check_frame(number, frame);
        }
        let Indexes { newest, replaced, waiting, succeeded, free, idle, changed, refused } =
            &self.indexes;
        assert_eq!((newest, replaced), (&expected.newest, &expected.replaced));
        assert_eq!((waiting, succeeded), (&expected.waiting, &expected.succeeded));
        assert_eq!(idle, &expected.idle);
        assert_eq!((changed, refused), (&expected.changed, &expected.refused));
        let mut free: Vec<FrameNumber> = free.iter().copied().collect();
        free.sort_unstable();
        assert_eq!(free, Vec::from(expected.free));
    }
}

/// Checks that the parts of a record fit together.
fn check_frame(number: FrameNumber, frame: &Frame) {
    let may_have_role = match frame.state {
        State::Filling(_) | State::Resting(_) | State::Closing(_) => {
            assert_ne!(frame.role, Role::None, "an index finds the replica in frame {number}");
            true
        }
        // Of several stored replicas with one id, an index finds only the last.
        State::Stored => true,
        State::Free | State::Freeing(_) | State::Damaged | State::Bad => false,
    };
    assert!(may_have_role || frame.role == Role::None, "frame {number} has no replica to be found");
    let is_freeing = matches!(frame.state, State::Freeing(_));
    assert!(is_freeing || frame.waits_for.is_none(), "frame {number} waits and is not to be freed");
    assert!(is_freeing || frame.successor.is_none(), "frame {number} has a successor and stays");
    let is_free = matches!(frame.state, State::Free);
    assert!(!is_free || !frame.is_refused, "the disk has taken the header of free frame {number}");
}

/// Returns the ids that a master's replicas can have.
fn of_master(master: MasterId) -> RangeInclusive<ReplicaId> {
    let id = |segment| ReplicaId { master, segment: SegmentId(segment) };
    id(0)..=id(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_runtime::Random;

    const FRAMES: usize = 6;

    fn replica(segment: u64) -> ReplicaHeader {
        ReplicaHeader {
            id: ReplicaId { master: MasterId(1), segment: SegmentId(segment) },
            epoch: Epoch(1),
            closed: true,
            committed: true,
            length: 0,
            chunks: Vec::new(),
        }
    }

    fn table(headers: impl Iterator<Item = Header>) -> FrameTable {
        let table = FrameTable::new(headers.map(|header| Frame::of(&header)).collect());
        table.check_consistent();
        table
    }

    #[test]
    fn indexes_agree_with_records_after_every_change() {
        for seed in 0..50 {
            let mut random = Random::from_seed(seed);
            let mut table = table(std::iter::repeat_n(Header::Free, FRAMES));
            for step in 0..200 {
                let number = FrameNumber(random.below(FRAMES as u64) as u32);
                let used = replica(random.below(4));
                match random.below(8) {
                    0 if table.newest(used.id).is_none() => {
                        let buffer = BufferNumber(step);
                        if let Some(free) = table.next_free() {
                            table.change(free, |frame| frame.begin(buffer, used));
                        }
                    }
                    1 => table.change(number, |frame| frame.is_changed = true),
                    2 => _ = table.take_changed(),
                    3 => table.retry_refused(),
                    4 => table.change(number, |frame| match &mut frame.state {
                        State::Filling(filling) => filling.idle_since = Some(Time(step.into())),
                        State::Freeing(_) => frame.is_refused = true,
                        _ => {}
                    }),
                    5 => table.change(number, |frame| match frame.state {
                        State::Filling(_) => frame.close(),
                        State::Closing(_) => frame.state = State::Stored,
                        _ => frame.mark_busy(),
                    }),
                    6 => table.change(number, |frame| {
                        if matches!(frame.state, State::Filling(_) | State::Stored) {
                            frame.state = State::Freeing(frame.buffer());
                            (frame.role, frame.waits_for) = (Role::None, Some(FrameNumber(0)));
                            frame.successor = frame.waits_for;
                        }
                    }),
                    _ => table.change(number, |frame| {
                        if matches!(frame.state, State::Freeing(_)) {
                            frame.is_distrusted = frame.is_refused;
                            frame.clear();
                        }
                    }),
                }
                table.check_consistent();
            }
        }
    }

    #[test]
    fn trusted_frames_are_used_again_first_and_distrusted_ones_last() {
        let mut table = table(std::iter::repeat_n(Header::Free, 4));
        for (buffer, is_distrusted) in [(0, false), (1, true)] {
            let number = table.next_free().unwrap();
            assert_eq!(number, FrameNumber(buffer));
            let used = replica(u64::from(buffer));
            table.change(number, |frame| frame.begin(BufferNumber(buffer), used));
            table.change(number, |frame| frame.is_distrusted = is_distrusted);
        }
        for number in [FrameNumber(0), FrameNumber(1)] {
            table.change(number, Frame::clear);
        }
        assert_eq!(table.indexes.free, [0, 2, 3, 1].map(FrameNumber));
    }

    #[test]
    fn of_several_stored_replicas_with_one_id_the_last_is_found() {
        let mut table = table((0..3).map(|_| Header::Used(replica(7))));
        assert_eq!(table.newest(replica(7).id), Some(FrameNumber(2)));
        table.change(FrameNumber(2), |frame| {
            (frame.state, frame.role) = (State::Freeing(None), Role::None);
        });
        table.check_consistent();
        assert_eq!(table.newest(replica(7).id), None);
    }

    #[test]
    #[should_panic(expected = "assertion")]
    fn an_index_that_lacks_a_frame_is_found() {
        let mut table = table(std::iter::once(Header::Free));
        table.change(FrameNumber(0), |frame| frame.is_changed = true);
        table.indexes.changed.clear();
        table.check_consistent();
    }
}
