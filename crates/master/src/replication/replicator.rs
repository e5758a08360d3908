//! The log's side of the manager: it notes the log's calls, and tells the log how far the replicas
//! have come.

use super::segment::Segment;
use super::{Shared, State};
use thunderhead_log::{Replicator, SegmentBytes, SegmentKind};
use thunderhead_wire::{LogPosition, SegmentId};

/// See the module's documentation.
pub(super) struct LogSide(pub(super) Shared);

impl Replicator for LogSide {
    fn opened(&mut self, segment: SegmentId, kind: SegmentKind) {
        self.0.state().opened(segment, kind);
    }

    fn appended(&mut self, segment: SegmentId, offset: u32, bytes: SegmentBytes<'_>) {
        self.0.state().appended(segment, offset, bytes);
    }

    fn closed(&mut self, segment: SegmentId, length: u32) {
        self.0.state().closed(segment, length);
    }

    fn freed(&mut self, segment: SegmentId) {
        self.0.state().freed(segment);
    }

    fn durable(&mut self) -> LogPosition {
        self.0.state().durable
    }

    fn is_durable(&self, survivor: SegmentId) -> bool {
        self.0.state().segments.get(&survivor).is_none_or(|segment| segment.is_whole)
    }
}

impl State {
    fn opened(&mut self, id: SegmentId, kind: SegmentKind) {
        let mut segment = Segment::new(id, kind, self.settings.replicas);
        if segment.is_head() {
            segment.before = self.heads.back().copied();
            if let Some(before) = segment.before.and_then(|it| self.segments.get_mut(&it)) {
                before.after = Some(id);
            }
            self.heads.push_back(id);
        }
        if !segment.slots.is_empty() {
            self.active.insert(id);
        }
        self.segments.insert(id, segment);
    }

    fn appended(&mut self, id: SegmentId, offset: u32, bytes: SegmentBytes<'_>) {
        let Some(segment) = self.segments.get_mut(&id) else { return };
        debug_assert_eq!(segment.length, offset, "bytes come in order and without gaps");
        let length = offset + bytes.len() as u32;
        if segment.length == 0 && segment.is_head() {
            segment.digest_length = length;
        }
        segment.length = length;
        if segment.slots.is_empty() {
            if segment.is_head() {
                self.durable = LogPosition { segment: id, offset: length };
            }
            return;
        }
        for piece in bytes.pieces() {
            segment.bytes.append(piece, &mut self.spare_blocks);
        }
        self.active.insert(id);
    }

    fn closed(&mut self, id: SegmentId, length: u32) {
        let Some(segment) = self.segments.get_mut(&id) else { return };
        debug_assert_eq!(segment.length, length, "all was appended");
        segment.is_closed = true;
        segment.update(self.settings.min_replicas, &mut self.spare_blocks);
        if !segment.slots.is_empty() {
            self.active.insert(id);
        }
        self.update_durable();
    }

    /// Frees the replicas, also those on servers that are down.
    fn freed(&mut self, id: SegmentId) {
        let Some(mut segment) = self.segments.remove(&id) else { return };
        self.active.remove(&id);
        self.to_mend.remove(&id);
        self.risk.forget(id);
        for number in 0..segment.slots.len() {
            self.leave(&mut segment, number);
        }
    }

    /// How far the heads count.
    pub(super) fn update_durable(&mut self) {
        while let Some(id) = self.heads.front().copied() {
            let Some(segment) = self.segments.get_mut(&id) else { break };
            let is_whole = segment.is_whole;
            let offset = segment.durable_length;
            // A head in which nothing is durable adds nothing.
            if offset > 0 {
                self.durable = self.durable.max(LogPosition { segment: id, offset });
            }
            // The newest head stays, so that the next one knows its predecessor.
            if !is_whole || self.heads.len() == 1 {
                break;
            }
            self.heads.pop_front();
            if let Some(after) = segment.after.and_then(|it| self.segments.get_mut(&it)) {
                after.before = None;
                self.active.insert(after.id);
            }
        }
    }
}
