//! The head: where new entries go, and how the log moves on to the next one.
//!
//! A new head begins with its segment header, the digest of the log as it is from now on, the safe
//! version and the tablets' statistics. A digest also makes a finished pass of combined cleaning
//! part of the log: it names the survivors and no longer the segments from which they came. When
//! memory is short and a pass holds some of it, a new digest is appended to the current head; the
//! last digest in a head counts. (The papers open a new head instead. At high utilization that
//! leaves many short segments, each with a last seglet half empty, which costs the memory that
//! cleaning was to free.)
//!
//! When the head has no room for a digest and there is no memory for another head, an *emergency
//! head* holds the digest and takes no data. Seglets for two of them are always kept back, so that
//! one can follow another.

use super::Log;
use super::handover::Allowance;
use super::ledger::{Ledger, PendingDigest};
use super::replicator::{Replicator, SegmentBytes};
use super::shared::Shared;
use crate::error::Error;
use crate::format::entry::{self, Kind, Seal};
use crate::format::metadata::{self, SegmentHeader, SegmentKind, TabletStatistics};
use crate::limits::BODY_BYTES_MAX;
use crate::memory::segment::{Appender, Room, Segment};
use crate::memory::{Memory, Reference};
use std::sync::atomic::Ordering;
use thunderhead_wire::{LogId, LogPosition, SegmentId, Timestamp, Version};

/// The open head.
pub(super) struct Head {
    pub(super) appender: Appender,
    emergency: bool,
    /// The birth of entries appended here: the head's own id, or the id of the log's head if this
    /// is a side segment.
    pub(super) born: SegmentId,
    /// Bytes that the replicator has been given.
    sent: usize,
    pub(super) tombstone_bytes: usize,
    created: u64,
    drops: u64,
}

impl Head {
    /// Opens the first head of a log.
    pub(super) fn first(
        shared: &Shared,
        log: LogId,
        seal: Seal,
        ledger: &mut Ledger,
        replicator: &mut dyn Replicator,
    ) -> Option<Head> {
        let id = shared.next_segment_id();
        ledger.add_head(id);
        let recorded = RecordedState {
            log,
            seal,
            safe_version: Version::NONE,
            time: None,
            statistics: Vec::new(),
        };
        let keep = shared.reserves.for_writes();
        let mut head = Head::open(shared, id, SegmentKind::Head, keep, ledger, recorded)?;
        replicator.opened(id, SegmentKind::Head);
        head.send(shared, replicator);
        ledger.digest_written(PendingDigest::at(head.position()));
        Some(head)
    }

    /// Opens a side segment, or takes no memory at all.
    pub(super) fn of_side_log(
        shared: &Shared,
        log: LogId,
        seal: Seal,
        keep: usize,
    ) -> Option<Head> {
        let id = shared.next_segment_id();
        let memory = &shared.memory;
        let segment_bytes = shared.options.segment_bytes;
        let body = SegmentHeader {
            log,
            segment: id,
            segment_bytes: segment_bytes as u32,
            seglet_bytes: memory.seglet_bytes() as u32,
            kind: SegmentKind::Survivor,
        }
        .encode();
        let mut appender = Appender::open(memory, id, segment_bytes, keep)?;
        let mut header = entry::plain(Kind::SegmentHeader, body.len());
        let at = appender.first();
        appender.write(at, &mut header, [&body, &[]], seal);
        appender.advance_idle(header.entry_bytes);
        let created = shared.next_segment.load(Ordering::Relaxed);
        let drops = shared.sums.drops.load(Ordering::Relaxed);
        let (emergency, born) = (false, id);
        Some(Head { appender, emergency, born, sent: 0, tombstone_bytes: 0, created, drops })
    }

    /// Closes the head.
    pub(super) fn close(self) -> Segment {
        let Head { appender, tombstone_bytes, created, drops, .. } = self;
        appender.close(created, drops, tombstone_bytes)
    }

    /// Opens a head and writes the entries with which every head begins, or takes no memory at all.
    fn open(
        shared: &Shared,
        id: SegmentId,
        kind: SegmentKind,
        keep: usize,
        ledger: &Ledger,
        recorded: RecordedState,
    ) -> Option<Head> {
        let memory = &shared.memory;
        let segment_bytes = shared.options.segment_bytes;
        let header = SegmentHeader {
            log: recorded.log,
            segment: id,
            segment_bytes: segment_bytes as u32,
            seglet_bytes: memory.seglet_bytes() as u32,
            kind,
        };
        let mut entries = vec![
            (Kind::SegmentHeader, header.encode()),
            (Kind::Digest, metadata::encode_digest(ledger.digest(), &ledger.unnamed(shared))),
            (Kind::SafeVersion, metadata::encode_safe_version(recorded.safe_version)),
        ];
        if let Some(time) = recorded.time {
            entries.push((Kind::ClockMark, metadata::encode_clock_mark(time)));
        }
        if kind == SegmentKind::Head {
            let statistics_max = (segment_bytes / 16).min(BODY_BYTES_MAX / 2);
            let statistics = metadata::encode_statistics(recorded.statistics, statistics_max);
            entries.push((Kind::TabletStatistics, statistics));
        }
        let mut appender = Appender::open(memory, id, segment_bytes, keep)?;
        for (kind, body) in entries {
            let mut header = entry::plain(kind, body.len());
            match appender.reserve(header.entry_bytes, keep) {
                Room::At(at) => appender.write(at, &mut header, [&body, &[]], recorded.seal),
                Room::NoMemory | Room::SegmentFull => {
                    appender.abandon();
                    return None;
                }
            }
            appender.advance_idle(header.entry_bytes);
        }
        let created = shared.next_segment.load(Ordering::Relaxed);
        let emergency = kind == SegmentKind::EmergencyHead;
        let drops = shared.sums.drops.load(Ordering::Relaxed);
        Some(Head { appender, emergency, born: id, sent: 0, tombstone_bytes: 0, created, drops })
    }

    #[inline]
    pub(super) fn id(&self) -> SegmentId {
        self.appender.id
    }

    #[inline]
    pub(super) fn position(&self) -> LogPosition {
        LogPosition { segment: self.appender.id, offset: self.appender.length() as u32 }
    }

    /// The place of an entry for which room was made.
    #[inline]
    pub(super) fn place(&mut self, bytes: usize) -> Reference {
        match self.appender.reserve(bytes, usize::MAX) {
            Room::At(at) => at,
            Room::SegmentFull | Room::NoMemory => unreachable!("room was made for the entry"),
        }
    }

    /// Gives the replicator the bytes that were appended since the last time.
    fn send(&mut self, shared: &Shared, replicator: &mut dyn Replicator) {
        let length = self.appender.length();
        if self.sent == length {
            return;
        }
        let from = self.appender.reference_at(self.sent);
        let bytes = SegmentBytes::new(&shared.memory, from, length - self.sent);
        replicator.appended(self.id(), self.sent as u32, bytes);
        self.sent = length;
        self.appender.prefetch();
    }

    /// Bytes that the replicator already has, from an offset on.
    fn bytes<'a>(&self, memory: &'a Memory, from: usize, most: usize) -> Option<SegmentBytes<'a>> {
        let length = self.sent.checked_sub(from)?.min(most);
        let from =
            if length == 0 { self.appender.first() } else { self.appender.reference_at(from) };
        Some(SegmentBytes::new(memory, from, length))
    }
}

/// The log's state that a new head records beside the digest.
struct RecordedState {
    log: LogId,
    seal: Seal,
    safe_version: Version,
    /// The time for a clock mark, if the log needs one.
    time: Option<Timestamp>,
    statistics: Vec<TabletStatistics>,
}

impl Log {
    /// Makes sure that entries of `bytes` in all can be placed in the head, and leaves `keep`
    /// seglets free.
    #[inline]
    pub(super) fn make_room(&mut self, bytes: usize, keep: usize) -> Result<(), Error> {
        if !self.head.emergency && self.head.appender.has_room(bytes) {
            return Ok(());
        }
        self.make_more_room(bytes, keep)
    }

    #[cold]
    fn make_more_room(&mut self, bytes: usize, keep: usize) -> Result<(), Error> {
        debug_assert!(bytes <= self.shared.options.segment_bytes * 3 / 4, "sizes were checked");
        if self.main_head.is_some() {
            return self.make_room_in_side_log(bytes, keep);
        }
        let mut waited = false;
        loop {
            let room = if self.head.emergency {
                Room::SegmentFull
            } else {
                self.head.appender.prepare(bytes, keep)
            };
            match room {
                Room::At(_) => {
                    self.shared.sums.is_short.store(false, Ordering::Relaxed);
                    return Ok(());
                }
                Room::SegmentFull if self.may_grow() && self.roll(keep) => {}
                Room::SegmentFull | Room::NoMemory if waited => {
                    self.shared.sums.is_short.store(true, Ordering::Relaxed);
                    return Err(Error::CleanerBehind);
                }
                Room::SegmentFull | Room::NoMemory => {
                    waited = true;
                    self.complete_cleaning(true);
                }
            }
        }
    }

    /// Whether the log may open another segment for new entries.
    pub(super) fn may_grow(&self) -> bool {
        self.ledger.frames().0 < self.shared.frames.limit()
    }

    /// Moves on to a new head whose digest takes in all ready passes. False when there is no memory
    /// for a head.
    pub(super) fn roll(&mut self, keep: usize) -> bool {
        self.roll_to(SegmentKind::Head, keep)
    }

    /// Moves on to an emergency head, unless both are in use already.
    fn roll_to_emergency(&mut self) -> bool {
        let in_use = self.ledger.emergency_heads() + usize::from(self.head.emergency);
        in_use < 2 && self.roll_to(SegmentKind::EmergencyHead, 0)
    }

    fn roll_to(&mut self, kind: SegmentKind, keep: usize) -> bool {
        // Ids are the log's clock, so a try that is bound to fail must not take one.
        if self.memory.free_seglets() <= keep {
            return false;
        }
        // Cleaners may take the old head from now on.
        self.index_records();
        let id = self.shared.next_segment_id();
        let old = self.head.id();
        self.ledger.add_head(id);
        let integration = self.ledger.integrate(self.head.emergency.then_some(old));
        let recorded = RecordedState {
            log: self.id,
            seal: self.seal,
            safe_version: self.safe_version,
            time: self.clock.mark_of_head(),
            statistics: self.statistics().collect(),
        };
        let time = recorded.time;
        let Some(mut head) = Head::open(&self.shared, id, kind, keep, &self.ledger, recorded)
        else {
            self.ledger.remove_head(id);
            self.ledger.undo(integration);
            return false;
        };
        self.head.send(&self.shared, &mut *self.replicator);
        self.replicator.opened(id, kind);
        head.send(&self.shared, &mut *self.replicator);
        self.replicator.closed(old, self.head.appender.length() as u32);
        self.logged_safe_version = self.safe_version;
        let digest = head.position();
        if let Some(time) = time {
            if self.clock.is_due() {
                // An absent key may be absent only because of this mark.
                self.removed = digest;
            }
            self.clock.marked = time;
        }
        let old_head = std::mem::replace(&mut self.head, head);
        self.dropped.clear();
        let (end, emergency) = (old_head.position(), old_head.emergency);
        let segment = old_head.close();
        self.count_disk(segment.disk_bytes as i64);
        let mut pending = PendingDigest::at(digest);
        pending.take_in(integration);
        if emergency {
            // The new digest does not name it; its memory is freed with that of the cleaned
            // segments.
            pending.emergency = Some(segment);
        } else {
            self.ledger.head_closed(end, segment);
        }
        self.ledger.digest_written(pending);
        true
    }

    /// Appends a record of the safe version, unless the log already has it.
    pub(crate) fn log_safe_version(&mut self) -> Result<LogPosition, Error> {
        if self.logged_safe_version < self.safe_version {
            let body = metadata::encode_safe_version(self.safe_version);
            let mut header = entry::plain(Kind::SafeVersion, body.len());
            let bytes = header.entry_bytes;
            self.make_room(bytes, self.shared.reserves.for_deletes())?;
            let at = self.head.place(bytes);
            self.head.appender.write(at, &mut header, [&body, &[]], self.seal);
            self.head.appender.advance(bytes);
            self.memory.count_dead(at, bytes, 0); // Nothing in memory needs it.
            self.logged_safe_version = self.safe_version;
        }
        Ok(self.head.position())
    }

    /// Takes in all ready passes by a new digest in the current head, which stays open. False when
    /// there is no room for it.
    pub(super) fn renew_digest(&mut self, keep: usize) -> bool {
        if self.head.emergency {
            return false;
        }
        let integration = self.ledger.integrate(None);
        let body =
            metadata::encode_digest(self.ledger.digest(), &self.ledger.unnamed(&self.shared));
        let mut header = entry::plain(Kind::Digest, body.len());
        let bytes = header.entry_bytes;
        if !matches!(self.head.appender.prepare(bytes, keep), Room::At(_)) {
            self.ledger.undo(integration);
            return false;
        }
        let at = self.head.place(bytes);
        self.head.appender.write(at, &mut header, [&body, &[]], self.seal);
        self.head.appender.advance(bytes);
        self.memory.count_dead(at, bytes, 0); // Nothing in memory needs it.
        let mut pending = PendingDigest::at(self.head.position());
        pending.take_in(integration);
        self.ledger.digest_written(pending);
        true
    }

    pub(super) fn count_disk(&self, bytes: i64) {
        let disk = &self.shared.sums.disk_bytes;
        disk.store(disk.load(Ordering::Relaxed).wrapping_add_signed(bytes), Ordering::Relaxed);
    }

    /// Returns the bytes of a segment as they are in memory, from an offset on and at most `most`,
    /// to make another copy of it. `None` when the segment is gone, or a cleaner may be working on
    /// it: then try [`Log::pin_segment`].
    ///
    /// A head, and a survivor that is not yet part of the durable log, has the bytes that the
    /// [`Replicator`] was given, except for the dead bits. A segment that was durable before may
    /// have been compacted since: then the copy is shorter. It may count only once everything is
    /// durable that was appended before the segment was pinned, because compaction drops entries
    /// that newer ones replace.
    #[must_use]
    pub fn segment_bytes(&self, id: SegmentId, from: u32, most: u32) -> Option<SegmentBytes<'_>> {
        let (from, most) = (from as usize, most as usize);
        if id == self.head.id() {
            return self.head.bytes(&self.memory, from, most);
        }
        let pinned = self.pinned.iter().map(|candidate| &candidate.segment);
        let (segment, end) = match self.ledger.segment(id).map(|segment| (segment, segment.length))
        {
            Some(known) => known,
            None => match self.handovers.pass.as_ref().and_then(|it| it.handed_over(id)) {
                Some(known) => known,
                None => {
                    let segment = pinned.into_iter().find(|segment| segment.id == id)?;
                    (segment, segment.length)
                }
            },
        };
        let length = end.checked_sub(from)?.min(most);
        let seglet_bytes = self.memory.seglet_bytes();
        let (seglet, inside) = (from / seglet_bytes, from % seglet_bytes);
        let seglet = if length == 0 { 0 } else { seglet };
        let start = self.memory.seglet_start(*segment.seglets.get(seglet)?);
        let inside = if length == 0 { 0 } else { inside as u64 };
        Some(SegmentBytes::new(&self.memory, start + inside, length))
    }

    /// Keeps a segment as it is, away from the cleaners, until [`Log::unpin_segment`]. Returns its
    /// bytes in memory. `None` when it is gone, or a cleaner has it at this moment: try again next
    /// turn. Pin few segments, and not for long: their dead entries are not freed meanwhile.
    pub fn pin_segment(&mut self, id: SegmentId) -> Option<u32> {
        let known = self.ledger.segment(id).or_else(|| {
            let pinned = self.pinned.iter().map(|candidate| &candidate.segment);
            pinned.into_iter().find(|segment| segment.id == id)
        });
        if let Some(segment) = known {
            return Some(segment.length as u32);
        }
        let candidate = self.shared.try_take_candidate(id)?;
        let length = candidate.segment.length;
        self.pinned.push(candidate);
        Some(length as u32)
    }

    /// Gives a segment back to the cleaners.
    pub fn unpin_segment(&mut self, id: SegmentId) {
        if let Some(at) = self.pinned.iter().position(|candidate| candidate.segment.id == id) {
            let candidate = self.pinned.swap_remove(at);
            // The same way by which the log's thread hands segments over: it never blocks.
            self.shared.returned.push(candidate);
        }
    }

    /// Ends a turn of the log's thread: hands all new bytes to the replicator, learns how far the
    /// log is durable, takes finished cleaning passes into the log and lets the cleaners reuse
    /// memory that was unlinked before. See [Turns](Log#turns).
    ///
    /// Call it after each round of requests, and now and then when no requests come: the last
    /// writes are in no copy before. It costs some nanoseconds when nothing is pending. That
    /// matters to callers that only read: each of their round trips includes the end of a turn.
    pub fn turn(&mut self) {
        self.handovers.allowance = Allowance::TURN;
        self.turn_again();
    }

    /// Ends a turn by itself, after a number of writes.
    pub(super) fn own_turn(&mut self) {
        self.handovers.allowance.renew_own();
        self.turn_again();
    }

    /// Does the work of [`Log::turn`] once more in the same round of requests. Survivors and side
    /// segments are copied to the replicator in pieces, one for each round; this copies at most the
    /// remainder of the round's piece.
    pub fn turn_again(&mut self) {
        if self.groups.is_open() {
            self.close_group();
        }
        self.mutations = 0;
        if !self.check_quiet() {
            if !self.handovers.side.is_empty() {
                self.hand_over_side_segments(false);
            }
            self.complete_cleaning(false);
            self.head.send(&self.shared, &mut *self.replicator);
            self.settle();
        }
        debug_assert_eq!(self.shared.frames.published(), self.ledger.frames(), "settled");
        self.shared.sums.live_bytes.store(self.live_bytes, Ordering::Relaxed);
        let index_seglets = self.memory.index_seglets();
        // A rebuild ends the eviction in passes, and so its limits, until it ends itself.
        let counted_with = (index_seglets, self.shared.evicts_in_passes());
        if self.limits_with != counted_with {
            self.limits_with = counted_with;
            self.limits = self.shared.limits_with(index_seglets);
            self.refresh_admission();
        }
        self.shared.turns.publish();
    }

    /// Whether nothing was appended, became durable or came from a cleaner since the last turn.
    #[inline]
    fn check_quiet(&mut self) -> bool {
        self.head.sent == self.head.appender.length()
            && self.shared.passes.is_empty()
            && !self.has_to_hand_over()
            && self.ledger.is_quiet(self.replicator.durable())
    }

    /// Takes in finished passes; writes a digest for them when memory is short.
    fn complete_cleaning(&mut self, urgent: bool) {
        if urgent {
            // A pass is ready once everything appended before it is durable. So those bytes must go
            // to the replicator now: the turn may never end for a caller that only tries again.
            self.head.send(&self.shared, &mut *self.replicator);
            self.settle();
            self.take_in_full();
        }
        if self.handovers.pass.is_some() || !self.shared.passes.is_empty() {
            self.receive_passes(urgent);
        }
        self.ledger.update_ready(&mut *self.replicator);
        if self.ledger.has_ready_pass() && (urgent || self.is_memory_low()) {
            let keep = self.shared.reserves.for_writes();
            let taken_in = self.renew_digest(keep) || self.roll(keep) || self.roll_to_emergency();
            if taken_in {
                self.head.send(&self.shared, &mut *self.replicator);
            }
        }
        if urgent {
            self.settle();
            self.shared.turns.publish();
        }
    }

    /// Whether memory or frames on backups are so short that a ready pass should be taken in now.
    fn is_memory_low(&self) -> bool {
        let segment_seglets = self.shared.options.segment_bytes / self.memory.seglet_bytes();
        let low = self.shared.reserves.for_writes() + segment_seglets;
        self.memory.free_seglets() <= low || self.shared.frames.is_short()
    }

    /// Takes in all passes that are ready, because memory is short.
    pub(crate) fn make_haste(&mut self) {
        self.complete_cleaning(true);
    }

    /// Learns how far the log is durable and does the work that waited for it.
    fn settle(&mut self) {
        let settled = self.ledger.settle(self.replicator.durable());
        self.shared.sums.coming_seglets.fetch_sub(settled.came, Ordering::Relaxed);
        self.groups.settle(self.ledger.durable());
        for segment in settled.removed {
            self.replicator.freed(segment.id);
            self.count_disk(-(segment.disk_bytes as i64));
            self.free(segment);
        }
        for segment in settled.closed {
            self.shared.closed.push(segment);
        }
        self.ledger.publish_present(&self.shared);
        let (taken, staying) = self.ledger.frames();
        self.shared.frames.publish(taken, staying);
    }

    /// Gives a segment's memory back. The memory was unlinked before its pass was received, and
    /// this thread holds no reference across a turn, so no reader can reach it.
    pub(super) fn free(&self, segment: Segment) {
        let tombstones = segment.tombstone_bytes as i64;
        self.shared.sums.tombstone_bytes.fetch_sub(tombstones, Ordering::Relaxed);
        for number in segment.seglets {
            self.memory.give_back(number);
        }
    }
}
