//! Moves open replicas to the disk and frees their buffers for other replicas.
//!
//! A master that moves to its next head needs a buffer for it on R backups before it closes the
//! older head, which has R buffers as well. If all buffers are in use, many masters may each hold
//! part of the buffers that they need and wait for each other. The heads of masters that are gone
//! also stay until the masters are recovered, and recoveries need buffers, too. So when a new
//! replica needs a buffer and none is free, an open replica *rests*. The store first chooses one
//! of which the master is gone, then the replica with the longest idle time, which must be
//! at least [`RESTS_AFTER`].
//!
//! A replica that may rest is on the disk already with its header, so resting writes nothing. The
//! replica counts as before, it is read from the disk, and its checksums are kept in memory. It
//! can still be committed, closed or raised to a later epoch, for these change only its header.
//! The header is on the disk before the change is acknowledged, at every durability, because
//! no memory that outlasts the process holds the replica any more. The replica gets no more bytes:
//! its master begins another one, as after a restart.
//!
//! A replacement may rest before it counts, because its master may wait for buffers before it can
//! close it. The replaced replica then stays in memory until the disk records that the new one
//! counts (`replaced`).

use super::{IdleReplica, State, Store};
use crate::layout::{FrameNumber, ReplicaHeader, ReplicaId};
use crate::limits::RESTS_AFTER;
use thunderhead_runtime::Time;
use thunderhead_wire::{MasterId, SegmentId};

impl Store {
    /// Lets the open replicas of a master that is gone rest first.
    pub fn gives_way(&mut self, master: MasterId) {
        let id = |segment| ReplicaId { master, segment: SegmentId(segment) };
        let all = id(0)..=id(u64::MAX);
        let numbers = self.by_id.range(all.clone()).chain(self.replaced.range(all));
        for number in numbers.map(|(_, number)| *number) {
            let Some(filling) = self.filling.get_mut(&number) else { continue };
            if let Some(since) = filling.idle_since.filter(|_| filling.is_wanted) {
                self.idle.remove(&IdleReplica { is_wanted: true, since, frame: number });
                self.idle.insert(IdleReplica { is_wanted: false, since, frame: number });
            }
            filling.is_wanted = false;
        }
    }

    /// Advances the store's clock. Much time may have passed since the last turn.
    pub(crate) fn it_is(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// Whether a replica is open and rests: it gets no more bytes here.
    #[must_use]
    pub fn is_resting(&self, id: ReplicaId) -> bool {
        let frame = self.by_id.get(&id).map(|number| &self.parts.frames[number.index()]);
        frame.is_some_and(|frame| frame.state == State::Resting)
    }

    /// Marks a filled replica as idle: all of it is on the disk.
    pub(super) fn mark_idle(&mut self, number: FrameNumber) {
        if let Some(filling) = self.filling.get_mut(&number) {
            filling.idle_since = Some(self.now);
            let is_wanted = filling.is_wanted;
            self.idle.insert(IdleReplica { is_wanted, since: self.now, frame: number });
        }
    }

    /// Marks a replica as busy: part of it is not on the disk yet.
    pub(super) fn mark_busy(&mut self, number: FrameNumber) {
        let Some(filling) = self.filling.get_mut(&number) else { return };
        if let Some(since) = filling.idle_since.take() {
            let is_wanted = filling.is_wanted;
            self.idle.remove(&IdleReplica { is_wanted, since, frame: number });
        }
    }

    /// Takes the buffer of one idle replica, if one may rest.
    pub(super) fn one_rests(&mut self) {
        let is_due = |it: &&IdleReplica| !it.is_wanted || self.now.since(it.since) >= RESTS_AFTER;
        let may_rest = |it: &&IdleReplica| {
            let frame = &self.parts.frames[it.frame.index()];
            frame.buffer.is_some_and(|buffer| !self.pins.contains_key(&buffer))
        };
        let found = self.idle.iter().take_while(is_due).find(may_rest);
        if let Some(IdleReplica { frame, .. }) = found.copied() {
            self.rests(frame);
        }
    }

    fn rests(&mut self, number: FrameNumber) {
        let Ok(used) = self.in_buffer(number) else { return };
        self.mark_busy(number);
        self.filling.remove(&number);
        self.resting.insert(number, used.chunks);
        let frame = &mut self.parts.frames[number.index()];
        frame.state = State::Resting;
        let buffer = frame.buffer.take();
        self.release(buffer);
        tracing::debug!("{} gives its buffer up", used.id);
    }

    /// Returns the header for a frame that rests, or that rested until it was closed.
    pub(super) fn as_it_rests(&self, number: FrameNumber) -> Option<ReplicaHeader> {
        let chunks = self.resting.get(&number)?.clone();
        let super::Frame { id, epoch, length, closed, committed, .. } =
            self.parts.frames[number.index()];
        Some(ReplicaHeader { id, epoch, closed, committed, length, chunks })
    }
}
