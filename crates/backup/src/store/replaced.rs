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

use super::{Replica, State, Store};
use crate::layout::ReplicaId;
use std::collections::BTreeSet;
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
        if let Some(former) = self.replaced.remove(&id) {
            // Those whose place it took itself wait with it.
            let by = self.succeeded.values_mut().filter(|by| **by == former);
            by.for_each(|by| *by = number);
            self.give_up(former);
            self.succeeded.insert(former, number);
        }
    }

    /// Takes those out of the frames of a round that are to be freed later.
    pub(super) fn not_yet_free(&self, round: &mut BTreeSet<u32>) -> BTreeSet<u32> {
        let waits = |number: &u32| self.succeeded.contains_key(number);
        let waiting: BTreeSet<u32> = round.iter().copied().filter(waits).collect();
        round.retain(|number| !waiting.contains(number));
        waiting
    }

    /// A round is done that these waited for. What the disk did not take is waited for further.
    pub(super) fn may_be_freed(&mut self, waiting: BTreeSet<u32>) {
        for former in waiting {
            let by = self.succeeded.get(&former);
            if by.is_some_and(|by| self.refused.contains(by)) {
                self.touched.remove(&former);
                self.refused.insert(former);
            } else {
                self.succeeded.remove(&former);
            }
        }
    }

    fn give_up(&mut self, number: u32) {
        self.is_busy(number);
        self.filling.remove(&number);
        self.resting.remove(&number);
        // Nothing takes the place of those that waited for it: they go in the same round.
        self.succeeded.retain(|_, by| *by != number);
        let frame = &mut self.parts.frames[number as usize];
        frame.state = State::Freeing;
        if let Some(buffer) = frame.buffer {
            self.parts.pool.drop_replica(buffer);
        }
        self.touched.insert(number);
        self.urgent = true;
    }
}
