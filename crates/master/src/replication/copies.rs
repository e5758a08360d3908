//! Bytes from memory: for replicas that are made later than the others, of open segments and of
//! closed ones.

use super::State;
use std::time::Duration;
use thunderhead_log::Log;
use thunderhead_runtime::Time;
use thunderhead_wire::SegmentId;

/// Closed segments that are copied at a time: the cleaners are kept away from them.
const COPIES_MAX: usize = 4;

/// Bytes that are fetched at once for a replica: some microseconds' worth, and some tens of
/// microseconds into memory that is touched for the first time. An eighth of a segment if that is
/// less.
const CHUNK_BYTES: u32 = 64 << 10;

/// The maximum number of segments that a turn checks for replicas to be made again.
const TRIED_MAX: usize = 32;

/// The delay before a retry for a segment that a cleaner works on.
const LATER: Duration = Duration::from_millis(5);

impl State {
    /// Takes up segments that were whole and no longer are, a few at a time.
    pub(super) fn take_up_mending(&mut self, log: &mut Log) {
        for id in std::mem::take(&mut self.copying) {
            if self.goes_on_copying(id) {
                self.copying.push(id);
                continue;
            }
            log.unpin_segment(id);
            self.mend_at = Time(0);
        }
        if self.to_mend.is_empty() {
            return;
        }
        if self.mend_at > self.now {
            return self.wake_at(self.mend_at);
        }
        let before = (self.active.len(), self.copying.len(), self.to_mend.len());
        for _ in 0..TRIED_MAX.min(self.to_mend.len()) {
            let rest = self.to_mend.range(self.mend_from..).next();
            let Some(id) = rest.or_else(|| self.to_mend.first()).copied() else { break };
            self.mend_from = SegmentId(id.0 + 1);
            match self.segments.remove(&id) {
                Some(mut segment) => {
                    if !self.take_up(&mut segment, log) {
                        self.to_mend.remove(&id);
                    }
                    self.segments.insert(id, segment);
                }
                None => {
                    self.to_mend.remove(&id);
                }
            }
        }
        let is_idle = before == (self.active.len(), self.copying.len(), self.to_mend.len());
        self.mend_at = if is_idle { self.now + LATER } else { self.now };
        if !self.to_mend.is_empty() {
            self.wake_at(self.now + LATER);
        }
    }

    /// Whether a replica of a segment is being made again, or can be begun now. Else it is the
    /// cleaners' again, and looked at later if it still lacks one.
    fn goes_on_copying(&mut self, id: SegmentId) -> bool {
        let Some(segment) = self.segments.get(&id) else { return false };
        let is_being_made = |slot: &super::segment::Slot| {
            slot.server.is_some() && (!slot.is_closed || slot.copy.is_some())
        };
        if segment.slots.iter().any(is_being_made) {
            return true;
        }
        let lacks_one = segment.slots.iter().any(|slot| slot.server.is_none());
        if lacks_one && !self.can_place(segment) {
            self.to_mend.insert(id);
        }
        lacks_one && self.can_place(segment)
    }

    /// Takes up one segment; true when it must be looked at again.
    fn take_up(&mut self, segment: &mut super::Segment, log: &mut Log) -> bool {
        let id = segment.id;
        if segment.slots.iter().any(|slot| slot.is_doubtful) {
            self.active.insert(id);
        }
        let lost = |slot: &super::segment::Slot| slot.is_away || slot.server.is_none();
        let Some(number) = segment.slots.iter().position(lost) else { return false };
        // A replica whose server may restart stays until there is a place for another.
        let is_copied = self.copying.contains(&id);
        let has_room = is_copied || self.copying.len() < COPIES_MAX;
        if !has_room || self.choose(segment, number == 0).is_none() {
            return true;
        }
        if !is_copied {
            if log.pin_segment(id).is_none() {
                return true;
            }
            self.copying.push(id);
        }
        if segment.slots.get(number).is_some_and(|slot| slot.is_away) {
            self.lose(segment, number);
        }
        self.active.insert(id);
        segment.slots.iter().any(|slot| slot.is_away)
    }

    /// Fetches bytes from memory for the replicas that the log's stream does not reach.
    pub(super) fn fetch(&mut self, id: SegmentId, log: &mut Log) {
        let Some(segment) = self.segments.get_mut(&id) else { return };
        let (is_whole, base) = (segment.is_whole, segment.base);
        let most = CHUNK_BYTES.min(self.settings.segment_bytes / 8).max(1);
        let mut waits = false;
        let mut gave_up = Vec::new();
        for (number, slot) in segment.slots.iter_mut().enumerate() {
            if slot.server.is_none() || slot.is_closed || slot.is_in_flight {
                continue;
            }
            if is_whole && slot.copy.is_none() {
                match log.pin_segment(id) {
                    Some(length) => slot.copy = Some((length, log.appended())),
                    None => continue,
                }
            }
            let end = match slot.copy {
                Some((length, _)) => length,
                None => base,
            };
            if slot.acked >= end || slot.has_chunk() {
                continue;
            }
            if self.room_to_fetch == 0 {
                waits = true;
                continue;
            }
            slot.chunk.0 = slot.acked;
            slot.chunk.1.clear();
            match log.segment_bytes(id, slot.acked, most.min(end - slot.acked)) {
                Some(bytes) if !bytes.is_empty() => bytes.copy_to(&mut slot.chunk.1),
                _ => gave_up.push(number),
            }
            self.room_to_fetch = self.room_to_fetch.saturating_sub(slot.chunk.1.len());
        }
        if waits {
            self.wake_at(self.now);
        }
        // The bytes have changed since the copy was begun: it begins again with none.
        if gave_up.is_empty() {
            return;
        }
        let Some(mut segment) = self.segments.remove(&id) else { return };
        for number in gave_up {
            self.lose(&mut segment, number);
        }
        self.segments.insert(id, segment);
        self.wake_at(self.now + LATER);
    }
}
