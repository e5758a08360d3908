//! Which replicas count, where one is begun in the place of another; and how they go.
//!
//! ```text
//!            by_id        replaced      succeeded
//!  before    old
//!  open      new          old                        old counts: new is not committed
//!  commit    new                        old → new    new counts; old waits until that is durable
//!  round     new                                     old's frame is freed in the round after it
//! ```
//!
//! A process that is killed finds the old one as long as the new one is not committed, then the new one:
//! of two that count the later one is kept (`start.rs`). Power that goes in the midst leaves the old one until the
//! new one is whole on the disk.
//!
//! A new one that rests is in no memory that outlasts the process: that it is committed only the disk can say. So the
//! old one's buffer says that it is there until a round is done that was begun after the new one was committed
//! and that wrote it; and that is before anybody hears that it was. A process that is killed finds what is in memory:
//! the old one, also where the disk has the new one by then.

use super::{Replica, State, Store};
use crate::layout::ReplicaId;
use std::collections::BTreeSet;
use std::ops::Bound;
use thunderhead_wire::{MasterId, SegmentId};

impl Store {
    /// Gives a replica up; false when there was none. It may come back if the process ends before
    /// the disk has heard of it.
    pub fn free(&mut self, id: ReplicaId) -> bool {
        let numbers = [self.by_id.remove(&id), self.replaced.remove(&id)];
        numbers.iter().flatten().for_each(|number| self.give_up(*number));
        numbers.iter().any(Option::is_some)
    }

    /// Gives up all replicas of a master; says how many there were.
    pub fn free_master(&mut self, master: MasterId) -> usize {
        let ids: Vec<ReplicaId> =
            self.by_id.keys().filter(|id| id.master == master).copied().collect();
        ids.into_iter().filter(|id| self.free(*id)).count()
    }

    /// Gives up the replicas of a master, but for closed ones of these segments; says which.
    pub fn free_rest(&mut self, master: MasterId, keep: &BTreeSet<SegmentId>) -> Vec<ReplicaId> {
        let stays = |id: &ReplicaId| {
            keep.contains(&id.segment) && self.offered(*id).is_some_and(|it| it.closed)
        };
        let of_master = self.by_id.keys().filter(|id| id.master == master);
        let rest: Vec<ReplicaId> = of_master.filter(|id| !stays(id)).copied().collect();
        rest.into_iter().filter(|id| self.free(*id)).collect()
    }

    /// Masters with replicas here, whether these count or not: those with higher numbers than one, in order.
    #[must_use]
    pub fn masters_after(&self, after: MasterId, most: usize) -> Vec<MasterId> {
        let mut masters = Vec::new();
        let mut last = after;
        while masters.len() < most {
            let behind = ReplicaId { master: last, segment: SegmentId(u64::MAX) };
            let mut behind = self.by_id.range((Bound::Excluded(behind), Bound::Unbounded));
            let Some((id, _)) = behind.next() else { break };
            last = id.master;
            masters.push(last);
        }
        masters
    }

    /// How many replicas of a master are here, whether they count or not.
    #[must_use]
    pub fn count_of(&self, master: MasterId) -> u64 {
        self.by_id.keys().filter(|id| id.master == master).count() as u64
    }

    /// The replicas that count.
    pub fn replicas(&self) -> impl Iterator<Item = Replica> + '_ {
        self.by_id.keys().filter_map(|id| self.offered(*id))
    }

    /// The replica that counts.
    #[must_use]
    pub fn offered(&self, id: ReplicaId) -> Option<Replica> {
        Some(self.as_it_is(self.counting(id)?))
    }

    /// What is here of a replica, whether it counts or not: the one that was begun last.
    #[must_use]
    pub fn replica(&self, id: ReplicaId) -> Option<Replica> {
        Some(self.as_it_is(*self.by_id.get(&id)?))
    }

    fn as_it_is(&self, number: u32) -> Replica {
        let frame = &self.parts.frames[number as usize];
        let (id, epoch, length, closed) = (frame.id, frame.epoch, frame.length, frame.closed);
        Replica { id, epoch, length, closed }
    }

    /// The frame of the replica that counts.
    pub(super) fn counting(&self, id: ReplicaId) -> Option<u32> {
        let begun_last = self.by_id.get(&id).copied();
        let counts = |number: &u32| self.parts.frames[*number as usize].committed;
        begun_last.filter(counts).or_else(|| self.replaced.get(&id).copied())
    }

    /// Another one is begun in a replica's place. It counts until then, if it does.
    pub(super) fn set_aside(&mut self, id: ReplicaId) {
        let Some(number) = self.by_id.remove(&id) else { return };
        if self.parts.frames[number as usize].committed {
            self.replaced.insert(id, number);
        } else {
            self.give_up(number);
        }
    }

    /// A replica counts now: the one that it was begun in the place of goes.
    pub(super) fn takes_its_place(&mut self, id: ReplicaId, number: u32) {
        let Some(former) = self.replaced.remove(&id) else { return };
        // Those whose place it took itself wait with it.
        let by = self.succeeded.values_mut().filter(|by| **by == former);
        by.for_each(|by| *by = number);
        self.succeeded.insert(former, number);
        self.goes(former);
        if self.parts.frames[number as usize].buffer.is_some() {
            let formers = self.succeeded.iter().filter(|(_, by)| **by == number);
            formers.for_each(|(former, _)| self.forget(*former));
        }
    }

    /// What took the place of these is on the disk, as what counts.
    pub(super) fn are_over(&mut self, formers: impl Iterator<Item = u32>) {
        for former in formers {
            self.forget(former);
            if self.succeeded.remove(&former).is_some() {
                self.refused.remove(&former);
                self.touched.insert(former);
                // Others may be waiting for its buffer, or its frame.
                self.urgent = true;
            }
        }
    }

    fn give_up(&mut self, number: u32) {
        // Nothing takes the place of those that waited for it: they go in the same round.
        let waited: Vec<u32> =
            self.succeeded.extract_if(.., |_, by| *by == number).map(|(it, _)| it).collect();
        for number in waited.into_iter().chain([number]) {
            self.goes(number);
            self.forget(number);
        }
    }

    /// The disk is to hear that a frame is free, unless that waits for another one.
    fn goes(&mut self, number: u32) {
        self.is_busy(number);
        self.filling.remove(&number);
        self.resting.remove(&number);
        self.parts.frames[number as usize].state = State::Freeing;
        self.touched.insert(number);
        self.urgent = true;
    }

    /// The next process is not to find a frame's replica in memory.
    fn forget(&self, number: u32) {
        if let Some(buffer) = self.parts.frames[number as usize].buffer {
            self.parts.pool.drop_replica(buffer);
        }
    }
}
