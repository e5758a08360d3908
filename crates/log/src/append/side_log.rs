//! The *side log* of a recovery, as the papers call it: *side segments*, which are beside the log.
//!
//! A recovery does not replay into the head, but into segments of its own. These are no part of the
//! log until all of them are there. So other writes do not wait behind the recovery, copies of many
//! segments are made at a time, and an abandoned recovery leaves nothing behind.
//!
//! Side segments come into the log as the survivors of a cleaning pass do, of a pass that cleaned
//! nothing:
//!
//! ```text
//!   open     entries are appended; only the recovery's own tablets refer to them
//!   full     the replicator gets it, as a survivor, a piece a turn; the next one is opened
//!   taken in all of them are one pass; a digest names it once they are durable: all or none
//! ```
//!
//! # Why this is correct
//!
//! - An entry that is appended here is *born* in the log's head of that time, which is not before
//!   the head in which its tablet was created. The entry does not lie in the segment of its birth,
//!   so it counts as moved by a cleaner, and so as durable. That is correct because its tablet is
//!   not served before the side segments are durable.
//! - Records name segments by their ids (`prior`). The id of a side segment counts as present from
//!   the moment it is taken, as that of a survivor does. So every guard against an entry in a side
//!   segment is kept while that entry may be replayed. One digest takes in all side segments, so
//!   the killer of an entry comes into the log no later than the entry.
//! - Until then no cleaner has the side segments, and their bytes do not change. Their dead entries
//!   stay. When memory is short for any write, the full side segments are therefore taken in early.
//!   If the recovery is then abandoned, the cleaners free them like other dropped tablets.
//! - Completion records go into the head: their index outlives the tablets, and they are forgotten
//!   one by one.

use super::Log;
use super::heads::Head;
use super::shared::Pass;
use crate::error::Error;
use crate::format::metadata::SegmentKind;
use crate::memory::segment::{Room, Segment};
use std::sync::atomic::Ordering;
use thunderhead_wire::SegmentId;

/// The side segments of one recovery.
#[derive(Default)]
pub(crate) struct SideLog {
    open: Option<Head>,
    /// The full segments.
    full: Vec<SegmentId>,
    /// Segments that wait for a digest to take them in.
    awaited: Vec<SegmentId>,
}

/// The progress of taking side segments into the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeIn {
    /// A digest names all of them.
    Done,
    /// There is more to do at once.
    Again,
    /// The log waits for copies, or for memory.
    Waits,
}

/// A full side segment that is being handed to the replicator.
pub(super) struct SideHandover {
    pub(super) id: SegmentId,
    pub(super) bytes: usize,
}

/// The log's own head, while entries go to a side segment.
pub(super) struct MainHead {
    head: Head,
    full: Vec<SegmentId>,
}

impl Log {
    /// Runs an act whose entries go to a side segment; takes no turn.
    ///
    /// # Errors
    /// [`Error::CleanerBehind`] when there is no memory for a segment, and any error of the act.
    pub(crate) fn in_side_log<T>(
        &mut self,
        side_log: &mut SideLog,
        act: impl FnOnce(&mut Log) -> Result<T, Error>,
    ) -> Result<T, Error> {
        debug_assert!(self.main_head.is_none(), "one at a time");
        let open = match side_log.open.take() {
            Some(open) => open,
            None => {
                let keep = self.shared.reserves.for_writes();
                self.open_side_segment(keep).ok_or(Error::CleanerBehind)?
            }
        };
        let head = std::mem::replace(&mut self.head, open);
        self.head.born = head.born;
        self.main_head = Some(MainHead { head, full: std::mem::take(&mut side_log.full) });
        let result = act(self);
        if let Some(MainHead { head, full }) = self.main_head.take() {
            side_log.open = Some(std::mem::replace(&mut self.head, head));
            side_log.full = full;
        }
        result
    }

    /// Makes room for entries in the side segment, or in a new one.
    pub(super) fn make_room_in_side_log(&mut self, bytes: usize, keep: usize) -> Result<(), Error> {
        loop {
            match self.head.appender.prepare(bytes, keep) {
                Room::At(_) => {
                    self.shared.sums.is_short.store(false, Ordering::Relaxed);
                    return Ok(());
                }
                Room::SegmentFull if self.open_next_side_segment(keep) => {}
                Room::SegmentFull | Room::NoMemory => {
                    self.shared.sums.is_short.store(true, Ordering::Relaxed);
                    return Err(Error::CleanerBehind);
                }
            }
        }
    }

    fn open_next_side_segment(&mut self, keep: usize) -> bool {
        let Some(mut next) = self.open_side_segment(keep) else { return false };
        next.born = self.head.born;
        let full = std::mem::replace(&mut self.head, next);
        let id = self.close_side_segment(full);
        if let Some(main_head) = &mut self.main_head {
            main_head.full.push(id);
        }
        true
    }

    fn open_side_segment(&mut self, keep: usize) -> Option<Head> {
        // Ids are the log's clock, so a try that is bound to fail must not take one.
        if self.memory.free_seglets() <= keep || !self.may_grow() {
            return None;
        }
        let head = Head::of_side_log(&self.shared, self.id, self.seal, keep)?;
        self.ledger.on_side_segment_opened(head.id());
        Some(head)
    }

    /// Closes a full side segment and queues it for the replicator.
    fn close_side_segment(&mut self, full: Head) -> SegmentId {
        let segment = full.close();
        let id = segment.id;
        self.replicator.opened(id, SegmentKind::Survivor);
        self.count_disk(segment.disk_bytes as i64);
        self.ledger.on_side_segment_closed(segment);
        self.handovers.side.push_back(SideHandover { id, bytes: 0 });
        id
    }

    /// Takes in the full side segments that the replicator has, so that cleaners may have them once
    /// they are durable: memory is short.
    pub(super) fn take_in_full(&mut self) {
        self.hand_over_side_segments(true);
        let given = &self.handovers.side;
        let survivors = self.ledger.take_side_segments(|id| given.iter().all(|it| it.id != id));
        self.take_in_pass(survivors);
    }

    fn take_in_pass(&mut self, survivors: Vec<Segment>) {
        if !survivors.is_empty() {
            let cleaned = Vec::new();
            let victims = Vec::new();
            let pass = Pass { cleaner: 0, promised: 0, coming: 0, cleaned, survivors, victims };
            self.ledger.pass_received(pass, self.head.position());
        }
    }

    /// Takes all side segments of a recovery into the log, a step a call. Once it returns `Done`, a
    /// digest names them; it is durable when everything appended so far is. No entry may go to the
    /// side segments any more.
    pub(crate) fn take_in(&mut self, side_log: &mut SideLog) -> TakeIn {
        if let Some(open) = side_log.open.take() {
            side_log.full.push(self.close_side_segment(open));
        }
        self.turn();
        if !self.handovers.side.is_empty() {
            return TakeIn::Again;
        }
        if !side_log.full.is_empty() {
            let survivors = self.ledger.take_side_segments(|id| side_log.full.contains(&id));
            side_log.awaited.append(&mut side_log.full);
            self.take_in_pass(survivors);
            self.turn_again();
        }
        if self.ledger.has_ready_pass() {
            let keep = self.shared.reserves.for_writes();
            if self.renew_digest(keep) || self.roll(keep) {
                self.turn_again();
            }
        }
        side_log.awaited.retain(|id| self.ledger.awaits(*id));
        if side_log.awaited.is_empty() { TakeIn::Done } else { TakeIn::Waits }
    }

    /// Frees the side segments, except any that was taken in early. No index refers to their
    /// entries.
    pub(crate) fn abandon_side_log(&mut self, side_log: SideLog) {
        // After a turn no reader has a reference from before.
        self.turn();
        let SideLog { open, full, .. } = side_log;
        if let Some(open) = open {
            self.ledger.on_side_segment_freed(open.id(), true);
            let segment = open.close();
            self.free(segment);
        }
        self.handovers.side.retain(|given| !full.contains(&given.id));
        for segment in self.ledger.take_side_segments(|id| full.contains(&id)) {
            self.ledger.on_side_segment_freed(segment.id, false);
            self.replicator.freed(segment.id);
            self.count_disk(-(segment.disk_bytes as i64));
            self.free(segment);
        }
    }

    /// Bytes of full side segments, of all recoveries, whose copies are not durable.
    #[must_use]
    pub fn undurable_side_bytes(&mut self) -> u64 {
        self.ledger.undurable_side_bytes(&mut *self.replicator)
    }
}
