//! Decides which replica counts while another one replaces it, and frees replicas.
//!
//! ```text
//!            newest       replaced      waits for
//!  before    old
//!  open      new          old                        old counts: new is not committed
//!  commit    new                        old → new    new counts; old waits until that is durable
//!  round     new                                     old's frame is freed in the round after it
//!  free                                              new's frame is freed after old's
//! ```
//!
//! After a kill, the next process finds the old replica as long as the new one is not committed,
//! then the new one. If two count, it keeps the later one (`start.rs`). If the power fails during
//! the replacement, the old one counts until all of the new one is on the disk.
//!
//! A new replica that rests is in no memory that outlasts the process, so only the disk can say
//! that it is committed. Therefore the old one's buffer keeps its replica until a round ends
//! that began after the commit and wrote the new one. The commit is acknowledged only after that
//! round. A process that starts after a kill uses the replica in memory: the old one, even if the
//! new one is on the disk by then.
//!
//! # Freed replicas after a kill
//!
//! A freed replica may come back if the process is killed before the frame's header says *free*.
//! But **a replica whose closing was acknowledged never comes back open**. Masters and recoveries
//! rely on that: a master writes behind a head once the backups have acknowledged the head's
//! closing, and a recovery takes the newest open head that it finds for the end of the log.
//!
//! - With a buffer, the closing may be in the buffer alone, and the header on the disk may say
//!   *open*. So the buffer records that the replica is freed until the header on the disk does. The
//!   store releases the buffer only then, even if the disk refuses the header for long. The replica
//!   does not come back, unless the power fails.
//! - Without a buffer, the closing was on the disk before it was acknowledged. So the replica comes
//!   back as it is there.
//! - A power loss takes the buffers. With `synced`, a closing is acknowledged only after the disk
//!   has it. The other levels promise nothing after a power loss.
//! - The closing of a replaced replica is acknowledged once its replacement is on the disk. So the
//!   replacement's frame is freed only after the replaced replica's (`Frame::successor`), and a
//!   start that finds a freed replacement frees the replaced replica too.
//! - A replica that was open when it was freed may come back open. Its master frees it only if
//!   recoveries cannot use it: it was never committed, or the coordinator has noted a later epoch.

use super::frames::Role;
use super::{Replica, State, Store};
use crate::layout::{FrameNumber, ReplicaId};
use std::collections::BTreeSet;
use thunderhead_wire::{MasterId, SegmentId};

impl Store {
    /// Frees a replica. Returns false if there was none. It may come back, but never open if its
    /// closing was acknowledged: see the module `replaced`.
    pub fn free(&mut self, id: ReplicaId) -> bool {
        let numbers = [self.frames.newest(id), self.frames.replaced(id)];
        numbers.iter().flatten().for_each(|number| self.give_up(*number));
        numbers.iter().any(Option::is_some)
    }

    /// Frees all replicas of a master and returns their number.
    pub fn free_master(&mut self, master: MasterId) -> usize {
        let ids: Vec<ReplicaId> = self.ids_of(master).collect();
        ids.into_iter().filter(|id| self.free(*id)).count()
    }

    /// Frees the replicas of a master except closed ones of these segments. Returns the freed
    /// ones.
    pub fn free_rest(&mut self, master: MasterId, keep: &BTreeSet<SegmentId>) -> Vec<ReplicaId> {
        let stays = |id: &ReplicaId| {
            keep.contains(&id.segment) && self.offered(*id).is_some_and(|it| it.closed)
        };
        let rest: Vec<ReplicaId> = self.ids_of(master).filter(|id| !stays(id)).collect();
        rest.into_iter().filter(|id| self.free(*id)).collect()
    }

    /// Returns masters above `after` with replicas here, in order, whether the replicas count or
    /// not.
    #[must_use]
    pub fn masters_after(&self, after: MasterId, most: usize) -> Vec<MasterId> {
        let mut masters = Vec::new();
        let mut last = after;
        while masters.len() < most {
            let Some(master) = self.frames.master_after(last) else { break };
            last = master;
            masters.push(last);
        }
        masters
    }

    /// Returns the number of a master's replicas here, whether they count or not.
    #[must_use]
    pub fn count_of(&self, master: MasterId) -> u64 {
        self.ids_of(master).count() as u64
    }

    /// Returns the ids of a master's own replicas here, in order, whether they count or not. Does
    /// not visit replicas of other masters.
    pub(crate) fn ids_of(&self, master: MasterId) -> impl Iterator<Item = ReplicaId> + '_ {
        self.frames.ids_of(master)
    }

    /// Returns the replicas of all masters that count.
    pub fn replicas(&self) -> impl Iterator<Item = Replica> + '_ {
        self.frames.ids().filter_map(|id| self.offered(id))
    }

    /// Returns the replica that counts.
    #[must_use]
    pub fn offered(&self, id: ReplicaId) -> Option<Replica> {
        Some(self.as_it_is(self.counting(id)?))
    }

    /// Returns the replica that was begun last, whether it counts or not.
    #[must_use]
    pub fn replica(&self, id: ReplicaId) -> Option<Replica> {
        Some(self.as_it_is(self.frames.newest(id)?))
    }

    fn as_it_is(&self, number: FrameNumber) -> Replica {
        let frame = &self.frames[number];
        let (id, epoch, length, closed) = (frame.id, frame.epoch, frame.length, frame.closed);
        Replica { id, epoch, length, closed }
    }

    /// Returns the frame of the replica that counts.
    pub(super) fn counting(&self, id: ReplicaId) -> Option<FrameNumber> {
        let counts = |number: &FrameNumber| self.frames[*number].committed;
        self.frames.newest(id).filter(counts).or_else(|| self.frames.replaced(id))
    }

    /// Makes room for a new replica with the same id. If the old one counts, it counts until the
    /// new one does.
    pub(super) fn set_aside(&mut self, id: ReplicaId) {
        let Some(number) = self.frames.newest(id) else { return };
        if self.frames[number].committed {
            self.frames.change(number, |frame| frame.role = Role::Replaced);
        } else {
            self.give_up(number);
        }
    }

    /// Lets a replica count, and frees the replica that it replaces.
    pub(super) fn takes_its_place(&mut self, id: ReplicaId, number: FrameNumber) {
        let Some(former) = self.frames.replaced(id) else { return };
        self.goes(former);
        // Frames that waited for the former replica now wait for this one. The former replica is
        // still their successor: it may be on the disk already, and is freed after them.
        for waiting in self.frames.waiting_for(former).into_iter().chain([former]) {
            self.frames.change(waiting, |frame| frame.waits_for = Some(number));
        }
        self.frames.change(former, |frame| frame.successor = Some(number));
        if self.frames[number].buffer().is_some() {
            let formers = self.frames.waiting_for(number);
            formers.into_iter().for_each(|former| self.forget(former));
        }
    }

    /// Frees replaced frames after the headers of their replacements became durable.
    pub(super) fn free_replaced(&mut self, formers: impl Iterator<Item = FrameNumber>) {
        for former in formers {
            self.mark_freed(former);
            let waited = self.frames.change(former, |frame| {
                let waited = frame.waits_for.take().is_some();
                if waited {
                    (frame.is_refused, frame.is_changed) = (false, true);
                }
                waited
            });
            // Other replicas may be waiting for its buffer or its frame.
            self.flusher.is_urgent |= waited;
        }
    }

    fn give_up(&mut self, number: FrameNumber) {
        // No replica replaces the frames that waited for this one, so the same round frees them.
        let waited = self.frames.waiting_for(number);
        for waiting in &waited {
            self.frames.change(*waiting, |frame| frame.waits_for = None);
        }
        // The frame that they waited for is last: none of them comes back while it counts.
        for number in waited.into_iter().chain([number]) {
            self.goes(number);
            self.mark_freed(number);
        }
    }

    /// Marks a frame to be freed on the disk, unless it waits for its replacement.
    fn goes(&mut self, number: FrameNumber) {
        self.frames.change(number, |frame| {
            frame.state = State::Freeing(frame.buffer());
            frame.role = Role::None;
            frame.is_changed = true;
        });
        self.flusher.is_urgent = true;
    }

    /// Records in the pool that a frame's replica is freed, so that the next process does not use
    /// an older state of it on the disk.
    fn mark_freed(&self, number: FrameNumber) {
        if let Some(buffer) = self.frames[number].buffer() {
            self.buffers.pool.free_replica(buffer);
        }
    }

    /// Drops a replaced replica from the pool: the next process finds its replacement there. If the
    /// disk then refuses the replacement, the older replica is still on the disk.
    fn forget(&self, number: FrameNumber) {
        if let Some(buffer) = self.frames[number].buffer() {
            self.buffers.pool.drop_replica(buffer);
        }
    }
}
