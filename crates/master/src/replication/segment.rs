//! The state of a segment and of each of its replicas. Rules about several segments are elsewhere.

use super::blocks::{Blocks, SpareBlocks};
use thunderhead_log::SegmentKind;
use thunderhead_runtime::Time;
use thunderhead_wire::{Epoch, LogPosition, SegmentId, ServerId};

/// A segment.
pub(super) struct Segment {
    pub(super) id: SegmentId,
    pub(super) kind: SegmentKind,
    /// The length of a head's beginning, up to the end of its digest.
    pub(super) digest_length: u32,
    /// Bytes that the log has appended.
    pub(super) length: u32,
    /// The log will append no more.
    pub(super) is_closed: bool,
    /// The head before and after it.
    pub(super) before: Option<SegmentId>,
    pub(super) after: Option<SegmentId>,
    /// Bytes from `base` on that some replica may not have.
    pub(super) bytes: Blocks,
    pub(super) base: u32,
    pub(super) slots: Vec<Slot>,
    /// The last epoch that was given to a replica.
    pub(super) epoch: Epoch,
    /// Of a head that is not whole: the epoch that its replicas must have, and the coordinator
    /// note.
    pub(super) wanted: Epoch,
    /// The last confirmation of a backup whose open replica was lost, until the epoch is noted by
    /// which that replica does not count. The earliest, if there are several.
    pub(super) lost_word: Option<Time>,
    /// The epoch that the coordinator has noted.
    pub(super) registered: Epoch,
    /// The request to the coordinator to note another epoch.
    pub(super) raising: Option<u64>,
    pub(super) raise_at: Time,
    /// When to look for servers for the waived places again.
    pub(super) place_at: Time,
    /// Since when it waits for a backup whose disk is behind.
    pub(super) behind_since: Option<Time>,
    /// The number of bytes that count.
    pub(super) durable_length: u32,
    /// All replicas were closed: it is durable whole.
    pub(super) is_whole: bool,
    /// It is of the shard's former log: servers that were away may have replicas of it that they
    /// did not report.
    pub(super) is_adopted: bool,
}

/// A replica, or the place for one.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) server: Option<ServerId>,
    /// The number of this replica; a later replica in the same place has another number.
    pub(super) token: u64,
    /// The epoch that it was begun with.
    pub(super) begun_at: Epoch,
    /// The epoch that the backup has acknowledged.
    pub(super) epoch: Epoch,
    /// It was begun in atomic mode, or is to be, because the place had a replica before.
    pub(super) is_atomic: bool,
    /// No server could take it: the segment goes on without it, until a recovery may use it.
    pub(super) is_waived: bool,
    /// A recovery may use it: it was begun without atomic mode, or a message that was sent commits
    /// or closes it.
    pub(super) may_count: bool,
    /// Whether a message was sent, and the time of the first one.
    pub(super) was_sent: bool,
    pub(super) sent_at: Time,
    /// A message was sent that was not answered.
    pub(super) is_uncertain: bool,
    pub(super) is_opened: bool,
    /// It counts.
    pub(super) is_committed: bool,
    pub(super) is_closed: bool,
    /// Bytes that the backup has acknowledged.
    pub(super) acked: u32,
    pub(super) is_in_flight: bool,
    pub(super) retry_at: Time,
    pub(super) failures: u32,
    /// The backup is to be asked whether it has this replica.
    pub(super) is_doubtful: bool,
    /// The backup reports that it does not have this replica.
    pub(super) is_gone: bool,
    /// Its server is down, and may restart with it.
    pub(super) is_away: bool,
    /// It is made from memory: its final length, and the position that must be durable before it
    /// counts.
    pub(super) copy: Option<(u32, LogPosition)>,
    /// Bytes from memory, and where they belong.
    pub(super) chunk: (u32, Vec<u8>),
}

impl Slot {
    /// Whether it is one of the replicas that its segment should have.
    pub(super) fn is_there(&self) -> bool {
        self.is_opened && self.is_committed && !self.is_away
    }

    /// Whether its server has all bytes that it will ever get.
    fn is_at_rest(&self) -> bool {
        self.is_closed && !self.is_doubtful && !self.is_in_flight
    }

    /// Whether it can get a message with bytes now.
    pub(super) fn takes_bytes(&self) -> bool {
        self.server.is_some() && !self.is_closed && !self.is_in_flight
    }

    pub(super) fn chunk_end(&self) -> u32 {
        self.chunk.0 + self.chunk.1.len() as u32
    }

    /// Whether the next bytes are in the chunk.
    pub(super) fn has_chunk(&self) -> bool {
        (self.chunk.0..self.chunk_end()).contains(&self.acked)
    }
}

impl Segment {
    pub(super) fn new(id: SegmentId, kind: SegmentKind, replicas: u32) -> Segment {
        Segment {
            id,
            kind,
            digest_length: 0,
            length: 0,
            is_closed: false,
            before: None,
            after: None,
            bytes: Blocks::default(),
            base: 0,
            slots: (0..replicas).map(|_| Slot::default()).collect(),
            epoch: Epoch(0),
            wanted: Epoch(0),
            registered: Epoch(0),
            lost_word: None,
            raising: None,
            raise_at: Time(0),
            place_at: Time(0),
            behind_since: None,
            durable_length: 0,
            is_whole: false,
            is_adopted: false,
        }
    }

    pub(super) fn is_head(&self) -> bool {
        self.kind != SegmentKind::Survivor
    }

    /// Returns the number of replicas that exist.
    pub(super) fn replicas(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_there()).count()
    }

    /// Whether it lacks replicas. Replicas that are just beginning do not count as lacking.
    pub(super) fn is_short(&self) -> bool {
        let lacks = |slot: &Slot| {
            let is_begun_late = self.begins_late(slot) && !slot.is_there();
            slot.server.is_none() || slot.is_away || slot.is_waived || is_begun_late
        };
        self.slots.iter().any(lacks)
    }

    /// Whether a replica must be invisible until it has the same bytes as the others. The segment
    /// may go on without this place until the first message leaves. So each message decides it
    /// anew: the choice of the server is too early.
    pub(super) fn begins_late(&self, slot: &Slot) -> bool {
        slot.is_atomic || slot.is_waived || self.durable_length > 0
    }

    /// Whether it needs no work until an event changes its state.
    pub(super) fn is_at_rest(&self) -> bool {
        let rests = |slot: &Slot| !slot.is_waived && (slot.server.is_none() || slot.is_at_rest());
        self.is_whole && self.slots.iter().all(rests)
    }

    /// The places that the segment does not go on without.
    fn counted(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| !slot.is_waived)
    }

    /// Whether so few replicas count that nothing more becomes durable.
    pub(super) fn is_blocked(&self, min_replicas: u32) -> bool {
        let min = (min_replicas as usize).clamp(1, self.slots.len().max(1));
        !self.slots.is_empty() && !self.is_whole && self.counted().count() < min
    }

    /// Whether updates wait because a place that the segment does not go on without has no replica:
    /// fewer than `min_replicas` can be had, or a backup is awaited whose disk is behind.
    pub(super) fn awaits_replicas(&self, min_replicas: u32) -> bool {
        let is_empty = |slot: &Slot| slot.server.is_none();
        self.is_blocked(min_replicas) || !self.is_whole && self.counted().any(is_empty)
    }

    /// The epoch in messages to a replica.
    pub(super) fn epoch_for(&self, slot: &Slot) -> Epoch {
        slot.begun_at.max(self.wanted)
    }

    /// Whether each replica that stays open has the wanted epoch, and there are enough of them.
    pub(super) fn has_epoch(&self, min_replicas: u32) -> bool {
        let has = |slot: &Slot| slot.is_closed || (slot.is_there() && slot.epoch >= self.wanted);
        !self.is_blocked(min_replicas) && self.counted().all(has)
    }

    /// Updates the durable length after an acknowledgement. The epoch must be noted, or bytes that
    /// a lost replica does not have could count beside it.
    pub(super) fn update(&mut self, min_replicas: u32, spares: &mut SpareBlocks) {
        if self.is_whole || self.wanted > self.registered || self.is_blocked(min_replicas) {
            return;
        }
        if self.counted().all(Slot::is_there) {
            let least = self.counted().map(|slot| slot.acked).min().unwrap_or(self.length);
            self.durable_length = self.durable_length.max(least);
            self.is_whole = self.is_closed && self.counted().all(|slot| slot.is_closed);
            if self.is_whole {
                self.durable_length = self.length;
                self.bytes.clear(spares);
                self.base = self.length;
            }
        }
    }

    /// Returns the bytes between two offsets, if they are kept.
    pub(super) fn pieces(&self, from: u32, end: u32) -> Option<impl Iterator<Item = &[u8]>> {
        let (from, end) = (from.checked_sub(self.base)?, end.checked_sub(self.base)?);
        self.bytes.pieces(from as usize, end as usize)
    }

    /// Frees the bytes that all replicas have, without regard to replicas that get theirs from
    /// memory.
    pub(super) fn forget_bytes(&mut self, spares: &mut SpareBlocks) {
        let gets_them = |slot: &&Slot| slot.server.is_some() && slot.acked >= self.base;
        let least = self.slots.iter().filter(gets_them).map(|slot| slot.acked).min();
        let least = least.unwrap_or(self.length).min(self.length);
        let count = (least - self.base) as usize;
        self.bytes.forget(count, spares);
        self.base = least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The segment is settled first, so that it is known which replica is to be made again.
    #[test]
    fn a_segment_that_became_whole_without_a_replica_is_not_at_rest() {
        let mut segment = Segment::new(SegmentId(7), SegmentKind::Head, 2);
        segment.slots[0] = Slot { server: Some(ServerId(3)), is_closed: true, ..Slot::default() };
        segment.slots[1].is_waived = true;
        segment.is_whole = true;
        assert!(!segment.is_at_rest());
        segment.slots[1].is_waived = false;
        assert!(segment.is_at_rest(), "the rest is a matter of mending");
    }
}
