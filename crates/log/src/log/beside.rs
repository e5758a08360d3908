//! Segments beside the log: *side segments*, as the papers call them.
//!
//! What a recovery replays does not go into the head, but into segments of its own, which are no part of the
//! log until all of it is there. So writes of others do not wait behind it, copies of many segments are
//! made at a time, and where a recovery is given up nothing of it is left.
//!
//! They come into the log as the survivors of a cleaner's pass do, of one that cleaned nothing:
//!
//! ```text
//!   open     entries are appended; nobody but the recovery's own tablets refers to them
//!   full     the replicator gets it, as a survivor, a piece a turn; the next one is opened
//!   taken in all of them are one pass, which a digest names once they are durable: all of them or none
//! ```
//!
//! # Why that is right
//!
//! - An entry that is appended here is *born* in the head of that time, which is not before the one in which its
//!   tablet began to live. As it does not lie in the segment of its birth it is taken for one that was moved, and so
//!   for durable: its tablet is not served before it is.
//! - Records name others by segment ids (`prior`). Ids count as present from the moment they are taken, as those of
//!   survivors do, so whatever guards against an entry beside the log is kept while that may be replayed; and as one
//!   digest takes in all of them, what kills an entry comes into the log no later than the entry does.
//! - Until then no cleaner has them, and none of their bytes change. What is dead in them stays. Where memory is short for
//!   anybody, those that are full are therefore taken in before their time: what is then left of
//!   a recovery that is given up is the cleaners', as are other tablets that were dropped.
//! - Records of completed updates go into the head: they are found through an index that outlives the tablets, and
//!   are forgotten one by one.

use super::Log;
use super::heads::Head;
use crate::error::Error;
use crate::metadata::SegmentKind;
use crate::segment::{Room, Segment};
use crate::shared::Pass;
use std::sync::atomic::Ordering;
use thunderhead_wire::SegmentId;

/// What somebody has beside the log.
#[derive(Default)]
pub(crate) struct Beside {
    open: Option<Head>,
    /// Those that are full.
    full: Vec<SegmentId>,
    /// Those that a digest is to take in.
    awaited: Vec<SegmentId>,
}

/// How far it has come that what is beside the log becomes part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeIn {
    /// A digest names all of it.
    Done,
    /// There is more to do at once.
    Again,
    /// It waits for copies, or for memory.
    Waits,
}

/// A segment that the replicator is being given.
pub(super) struct Given {
    pub(super) id: SegmentId,
    pub(super) bytes: usize,
}

/// The log's own head, while entries go beside it.
pub(super) struct Aside {
    head: Head,
    full: Vec<SegmentId>,
}

impl Log {
    /// Appends beside the log what an act appends; it takes no turn.
    ///
    /// # Errors
    /// [`Error::CleanerBehind`] when there is no memory for a segment, and whatever the act does.
    pub(crate) fn beside<T>(
        &mut self,
        beside: &mut Beside,
        act: impl FnOnce(&mut Log) -> Result<T, Error>,
    ) -> Result<T, Error> {
        debug_assert!(self.aside.is_none(), "one at a time");
        let open = match beside.open.take() {
            Some(open) => open,
            None => {
                let keep = self.shared.reserves.for_writes();
                self.open_beside(keep).ok_or(Error::CleanerBehind)?
            }
        };
        let head = std::mem::replace(&mut self.head, open);
        self.head.born = head.born;
        self.aside = Some(Aside { head, full: std::mem::take(&mut beside.full) });
        let result = act(self);
        if let Some(Aside { head, full }) = self.aside.take() {
            beside.open = Some(std::mem::replace(&mut self.head, head));
            beside.full = full;
        }
        result
    }

    /// Makes room for entries that go beside the log.
    pub(super) fn make_room_beside(&mut self, bytes: usize, keep: usize) -> Result<(), Error> {
        loop {
            match self.head.appender.prepare(bytes, keep) {
                Room::At(_) => {
                    self.shared.sums.is_short.store(false, Ordering::Relaxed);
                    return Ok(());
                }
                Room::SegmentFull if self.next_beside(keep) => {}
                Room::SegmentFull | Room::NoMemory => {
                    self.shared.sums.is_short.store(true, Ordering::Relaxed);
                    return Err(Error::CleanerBehind);
                }
            }
        }
    }

    fn next_beside(&mut self, keep: usize) -> bool {
        let Some(mut next) = self.open_beside(keep) else { return false };
        next.born = self.head.born;
        let full = std::mem::replace(&mut self.head, next);
        let id = self.close_beside(full);
        if let Some(aside) = &mut self.aside {
            aside.full.push(id);
        }
        true
    }

    fn open_beside(&mut self, keep: usize) -> Option<Head> {
        // Ids are the log's clock, so a try that is bound to fail must not take one.
        if self.memory.free_seglets() <= keep || !self.may_grow() {
            return None;
        }
        let head = Head::beside(&self.shared, self.id, self.seal, keep)?;
        self.ledger.beside_opened(head.id());
        Some(head)
    }

    /// One is full: copies are made of it.
    fn close_beside(&mut self, full: Head) -> SegmentId {
        let segment = full.close();
        let id = segment.id;
        self.replicator.opened(id, SegmentKind::Survivor);
        self.count_disk(segment.disk_bytes as i64);
        self.ledger.beside_closed(segment);
        self.given.push_back(Given { id, bytes: 0 });
        id
    }

    /// Has what is full beside the log, and given to the replicator, become part of the log as soon as it is
    /// durable, so that cleaners may have it: memory is short.
    pub(super) fn take_in_full(&mut self) {
        self.give_some(true);
        let given = &self.given;
        let survivors = self.ledger.take_beside(|id| given.iter().all(|it| it.id != id));
        self.take_in_pass(survivors);
    }

    fn take_in_pass(&mut self, survivors: Vec<Segment>) {
        if !survivors.is_empty() {
            let cleaned = Vec::new();
            let pass = Pass { cleaner: 0, promised: 0, coming: 0, cleaned, survivors };
            self.ledger.pass_received(pass, self.head.position());
        }
    }

    /// Has all of it become part of the log. When it is done a digest names it that is durable when all is that
    /// was appended. Nothing may be appended beside the log any more.
    pub(crate) fn take_in(&mut self, beside: &mut Beside) -> TakeIn {
        if let Some(open) = beside.open.take() {
            beside.full.push(self.close_beside(open));
        }
        self.turn();
        if !self.given.is_empty() {
            return TakeIn::Again;
        }
        if !beside.full.is_empty() {
            let survivors = self.ledger.take_beside(|id| beside.full.contains(&id));
            beside.awaited.append(&mut beside.full);
            self.take_in_pass(survivors);
            self.turn();
        }
        if self.ledger.has_ready_pass() {
            let keep = self.shared.reserves.for_writes();
            if self.renew_digest(keep) || self.roll(keep) {
                self.turn();
            }
        }
        beside.awaited.retain(|id| self.ledger.awaits(*id));
        if beside.awaited.is_empty() { TakeIn::Done } else { TakeIn::Waits }
    }

    /// Nothing of it is left, but for what was taken in before its time. No index refers to any of it.
    pub(crate) fn give_up_beside(&mut self, beside: Beside) {
        // Nobody has a reference from before.
        self.turn();
        let Beside { open, full, .. } = beside;
        if let Some(open) = open {
            self.ledger.beside_gone(open.id(), true);
            let segment = open.close();
            self.free(segment);
        }
        self.given.retain(|given| !full.contains(&given.id));
        for segment in self.ledger.take_beside(|id| full.contains(&id)) {
            self.ledger.beside_gone(segment.id, false);
            self.replicator.freed(segment.id);
            self.count_disk(-(segment.disk_bytes as i64));
            self.free(segment);
        }
    }

    /// Bytes that went beside the log and whose copies are not durable, of everybody.
    #[must_use]
    pub fn behind_beside(&mut self) -> u64 {
        self.ledger.behind_beside(&mut *self.replicator)
    }
}
