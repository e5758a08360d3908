//! Open replicas that give up their buffers to others.
//!
//! A master that goes on to its next head needs a buffer for that on R backups before it closes the older one,
//! which has R as well. Where many do so at once, and all buffers are in use, all may have a part of what they
//! need and wait for the others; and the heads of masters that are gone stay until these are recovered,
//! which takes buffers, too. So when a replica is to be begun and no buffer is left, one of those that are open
//! *rests*: first one whose master is gone, else the one that has got nothing for longest, and for
//! [`RESTS_AFTER`] at least.
//!
//! All of it is on the disk already, and so is its header: nothing is to be written for that. It counts as
//! before, it is read from the disk, and its checksums are kept. What needs no more than its header can be done: it is
//! committed, closed, raised to an epoch. That is on the disk before it is acknowledged, whatever the durability, for
//! there is no memory any more that would outlast the process. More bytes it does not get: its master makes
//! another one, as after a restart.
//!
//! One that was begun in the place of another may rest before it counts, for its master may wait for buffers
//! before it can close it. The other one stays in memory then until the disk has it that this one counts
//! (`replaced`).

use super::{State, Store};
use crate::layout::{ReplicaId, Used};
use crate::limits::RESTS_AFTER;
use thunderhead_runtime::Time;
use thunderhead_wire::{MasterId, SegmentId};

impl Store {
    /// A master is gone: its open replicas are the first to rest.
    pub fn gives_way(&mut self, master: MasterId) {
        let id = |segment| ReplicaId { master, segment: SegmentId(segment) };
        let all = id(0)..=id(u64::MAX);
        let numbers = self.by_id.range(all.clone()).chain(self.replaced.range(all));
        for number in numbers.map(|(_, number)| *number) {
            let Some(filling) = self.filling.get_mut(&number) else { continue };
            if let Some(since) = filling.idle_since.filter(|_| filling.is_wanted) {
                self.idle.remove(&(true, since, number));
                self.idle.insert((false, since, number));
            }
            filling.is_wanted = false;
        }
    }

    /// How late it is by now: it may be long since the last turn.
    pub(crate) fn it_is(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// Whether a replica is open and rests: it gets no more bytes here.
    #[must_use]
    pub fn is_resting(&self, id: ReplicaId) -> bool {
        let frame = self.by_id.get(&id).map(|number| &self.parts.frames[*number as usize]);
        frame.is_some_and(|frame| frame.state == State::Resting)
    }

    /// All of a replica that is filled is on the disk.
    pub(super) fn is_idle(&mut self, number: u32) {
        if let Some(filling) = self.filling.get_mut(&number) {
            filling.idle_since = Some(self.now);
            self.idle.insert((filling.is_wanted, self.now, number));
        }
    }

    /// Something of a replica is not on the disk yet.
    pub(super) fn is_busy(&mut self, number: u32) {
        let Some(filling) = self.filling.get_mut(&number) else { return };
        if let Some(since) = filling.idle_since.take() {
            self.idle.remove(&(filling.is_wanted, since, number));
        }
    }

    /// One of those that are idle gives its buffer up, if there is one.
    pub(super) fn one_rests(&mut self) {
        let is_due = |(is_wanted, since, _): &&(bool, _, u32)| {
            !is_wanted || self.now.since(*since) >= RESTS_AFTER
        };
        let may_rest = |(.., number): &&(bool, _, u32)| {
            let frame = &self.parts.frames[*number as usize];
            frame.buffer.is_some_and(|buffer| !self.pins.contains_key(&buffer))
        };
        let found = self.idle.iter().take_while(is_due).find(may_rest);
        if let Some((.., number)) = found.copied() {
            self.rests(number);
        }
    }

    fn rests(&mut self, number: u32) {
        let Ok(used) = self.in_buffer(number) else { return };
        self.is_busy(number);
        self.filling.remove(&number);
        self.resting.insert(number, used.chunks);
        let frame = &mut self.parts.frames[number as usize];
        frame.state = State::Resting;
        let buffer = frame.buffer.take();
        self.release(buffer);
        tracing::debug!("{} gives its buffer up", used.id);
    }

    /// What the header is to say of a frame that rests, or did until it was closed.
    pub(super) fn as_it_rests(&self, number: u32) -> Option<Used> {
        let chunks = self.resting.get(&number)?.clone();
        let super::Frame { id, epoch, length, closed, committed, .. } =
            self.parts.frames[number as usize];
        Some(Used { id, epoch, closed, committed, length, chunks })
    }
}
