//! Makes the requests, one message for each server with the next step of each replica, and reads
//! the answers.
//!
//! One request for each replica is in flight at a time, so its parts are never reordered. A failed
//! request is made again, later each time; the bytes are the same.

use super::segment::{Segment, Slot};
use super::{MESSAGE_BYTES, Request, State, To};
use std::time::Duration;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Time;
use thunderhead_runtime::backoff::Backoff;
use thunderhead_wire::control::{RaiseEpoch, to_body};
use thunderhead_wire::replication::{
    ATOMIC, CLOSE, COMMIT, FREE, OPEN, PartAnswer, ReplicaPart, ReplicateHead,
};
use thunderhead_wire::{Epoch, Generation, SegmentId, ServerId, Status};
use zerocopy::IntoBytes;

/// The maximum number of parts in a message.
pub(super) const PARTS_MAX: usize = 256;

/// The waits after failures.
pub(super) const BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(1), Duration::from_millis(100));

/// At least this many bytes of a segment are sent from their place. Copying fewer takes less time
/// than finding them again.
const SPAN_BYTES_MIN: u32 = 4 << 10;

/// The maximum number of bodies kept for reuse.
const SPARE_MAX: usize = 16;

/// The numbers of a backup's refusals: `docs/protocol.md`.
pub(super) mod refusal {
    pub(super) const FULL: u16 = 1;
    pub(super) const OVERLOADED: u16 = 2;
    pub(super) const NOT_FOUND: u16 = 3;
    pub(super) const CLOSED: u16 = 4;
    pub(super) const GAP: u16 = 5;
    pub(in crate::replication) const STALE_EPOCH: u16 = 7;
}

/// A request whose answer is awaited.
pub(super) struct InFlight {
    number: u64,
    sent: Time,
    /// The server and the generation of its backup.
    backup: Option<(ServerId, Generation)>,
    /// The epoch that a request asks the coordinator to note.
    epoch: Option<(SegmentId, Epoch)>,
    parts: Vec<SentPart>,
}

impl InFlight {
    pub(super) fn of_backup(
        number: u64,
        sent: Time,
        backup: (ServerId, Generation),
        parts: Vec<SentPart>,
    ) -> InFlight {
        InFlight { number, sent, backup: Some(backup), epoch: None, parts }
    }

    /// A question to the coordinator whether this master was declared crashed.
    pub(super) fn of_coordinator(number: u64, sent: Time) -> InFlight {
        InFlight { number, sent, backup: None, epoch: None, parts: Vec::new() }
    }
}

/// A part of a request.
#[derive(Clone, Copy)]
pub(super) struct SentPart {
    pub(super) segment: SegmentId,
    /// The place in its segment, and the number of the replica in it; 0 if it is to be freed.
    slot: usize,
    token: u64,
    pub(super) epoch: Epoch,
    end: u32,
    flags: u8,
}

impl SentPart {
    pub(super) fn free(segment: SegmentId, epoch: Epoch) -> SentPart {
        SentPart { segment, slot: 0, token: 0, epoch, end: 0, flags: FREE }
    }
}

/// Bytes of a segment that belong to a body at a position, and were not copied there. The segment
/// keeps them for the replicas without them: they are freed only when no replica needs them any
/// more.
pub(super) struct Span {
    at: usize,
    segment: SegmentId,
    from: u32,
    end: u32,
}

/// A request, and the bytes of segments that belong to its body.
pub(crate) struct Outgoing {
    pub(super) request: Request,
    spans: Vec<Span>,
}

impl From<Request> for Outgoing {
    fn from(request: Request) -> Outgoing {
        Outgoing { request, spans: Vec::new() }
    }
}

/// A message that is being put together.
pub(super) struct Draft {
    pub(super) server: ServerId,
    pub(super) body: Vec<u8>,
    spans: Vec<Span>,
    pub(super) parts: Vec<SentPart>,
}

impl Draft {
    pub(super) fn new(server: ServerId, head: ReplicateHead, spare: Option<Vec<u8>>) -> Draft {
        let mut body = spare.unwrap_or_default();
        body.extend_from_slice(head.as_bytes());
        Draft { server, body, spans: Vec::new(), parts: Vec::new() }
    }

    /// Returns how many more bytes of segments fit. Headers do not count: they would cut a few
    /// bytes off the last part, which would then need a part of their own.
    fn room(&self, message_bytes: usize) -> usize {
        let heads = size_of::<ReplicateHead>() + self.parts.len() * size_of::<ReplicaPart>();
        let spanned: u32 = self.spans.iter().map(|span| span.end - span.from).sum();
        let bytes = (self.body.len() + spanned as usize).saturating_sub(heads);
        let room = message_bytes.saturating_sub(bytes);
        if self.parts.len() < PARTS_MAX { room } else { 0 }
    }
}

/// The next request for a replica.
struct Plan {
    end: u32,
    length: u32,
    flags: u8,
}

impl State {
    pub(super) fn recycle(&mut self, mut body: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            body.clear();
            self.spare.push(body);
        }
    }

    /// Passes on the pieces of a request's body. `None` if some of its bytes are freed: then the
    /// request is no longer needed.
    pub(super) fn with_pieces<R>(
        &self,
        outgoing: &Outgoing,
        take: impl FnOnce(&[&[u8]]) -> R,
    ) -> Option<R> {
        let Outgoing { request: Request { body, .. }, spans } = outgoing;
        if spans.is_empty() {
            return Some(take(&[body]));
        }
        let mut pieces = Vec::with_capacity(4 * spans.len() + 1);
        let mut done = 0;
        for span in spans {
            pieces.push(body.get(done..span.at)?);
            done = span.at;
            pieces.extend(self.segments.get(&span.segment)?.pieces(span.from, span.end)?);
        }
        pieces.push(body.get(done..)?);
        Some(take(&pieces))
    }

    /// Returns a request with all of its body in one piece; `None` if it is no longer needed.
    pub(super) fn whole(&mut self, outgoing: Outgoing) -> Option<Request> {
        if outgoing.spans.is_empty() {
            return Some(outgoing.request);
        }
        let mut whole = self.spare.pop().unwrap_or_default();
        let is_there = self.with_pieces(&outgoing, |pieces| {
            whole.reserve(pieces.iter().map(|piece| piece.len()).sum());
            pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
        });
        let mut request = outgoing.request;
        if is_there.is_none() {
            self.recycle(whole);
            self.not_sent(request);
            return None;
        }
        self.recycle(std::mem::replace(&mut request.body, whole));
        Some(request)
    }

    /// Takes back a request that was not sent because it is no longer needed.
    pub(super) fn not_sent(&mut self, request: Request) {
        self.recycle(request.body);
        self.answered(self.now, request.number, Err(CallError::Broken));
    }

    /// Has the coordinator note the epoch of a head, once its replicas have it.
    pub(super) fn raise_epoch(&mut self, id: SegmentId) {
        let number = self.numbers + 1;
        let Some(segment) = self.segments.get_mut(&id) else { return };
        let is_due = segment.wanted > segment.registered && segment.raising.is_none();
        if segment.is_whole || !is_due || !segment.has_epoch(self.settings.min_replicas) {
            return;
        }
        if segment.raise_at > self.now {
            let at = segment.raise_at;
            return self.wake_at(at);
        }
        segment.raising = Some(number);
        let epoch = segment.wanted;
        let raise = RaiseEpoch { master: self.settings.master, segment: id, epoch };
        let body = to_body(&raise);
        self.numbers = number;
        let epoch = Some((id, epoch));
        let (sent, parts) = (self.now, Vec::new());
        self.in_flight.push(InFlight { number, sent, backup: None, epoch, parts });
        let opcode = Opcode::RaiseEpoch;
        let request = Request { number, to: To::Coordinator, opcode, body };
        self.outgoing.push_back(request.into());
    }

    /// Makes all requests that can be made now.
    pub(super) fn make_messages(&mut self, ids: &[SegmentId]) {
        let mut drafts: Vec<Draft> = Vec::new();
        let message_bytes = self.settings.message_bytes.clamp(1, MESSAGE_BYTES) as usize;
        let mut left = self.room_beside_heads;
        let mut first_without_room = None;
        let (older, newer) = ids.split_at(ids.partition_point(|id| *id < self.next_beside_heads));
        for id in newer.iter().chain(older) {
            let (may_open, is_free, may_close) = self.allowed(*id);
            let durable = self.durable;
            let State { segments, servers, settings, spare, now, gathering, .. } = self;
            let Some(segment) = segments.get_mut(id) else { continue };
            let mut wake: Option<Time> = None;
            let waiting = segment.length.saturating_sub(segment.durable_length);
            for number in 0..segment.slots.len() {
                let Some(slot) = segment.slots.get(number) else { continue };
                let Some(server) = slot.server else { continue };
                let Some(backup) = servers.get(server) else { continue };
                if slot.is_in_flight || !may_open {
                    continue;
                }
                let place = drafts.iter().position(|draft| draft.server == server);
                let draft = place.and_then(|at| drafts.get(at));
                let room = draft.map_or(message_bytes, |draft| draft.room(message_bytes));
                let room = if segment.is_head() {
                    room
                } else {
                    // The replicas of a segment advance together, because it is durable only when
                    // all of them have its bytes.
                    let takers = segment.slots.iter().skip(number).filter(|it| it.takes_bytes());
                    room.min(left.div_ceil(takers.count().max(1)))
                };
                if room == 0 {
                    first_without_room.get_or_insert(*id);
                    wake = Some(*now);
                    continue;
                }
                let limit = if is_free { segment.length } else { segment.digest_length };
                let may_count = slot.copy.is_none_or(|(_, until)| durable >= until);
                let may_end = if slot.copy.is_some() { may_count } else { may_close };
                let Some(plan) = plan(segment, slot, limit, may_end, room) else { continue };
                if slot.retry_at > *now {
                    let at = slot.retry_at;
                    wake = Some(wake.map_or(at, |known| known.min(at)));
                    continue;
                }
                let is_more = segment.is_only_longer(slot, &plan);
                if is_more && let Some(at) = gathering.held(*now, waiting) {
                    wake = Some(wake.map_or(at, |known| known.min(at)));
                    continue;
                }
                if is_more {
                    gathering.sent(*now);
                } else if segment.is_head() && slot.copy.is_none() {
                    gathering.let_go();
                }
                let at = place.unwrap_or_else(|| {
                    let life = (server, backup.generation);
                    let head = ReplicateHead::new(settings.master, servers.version, life);
                    drafts.push(Draft::new(server, head, spare.pop()));
                    drafts.len() - 1
                });
                if let Some(draft) = drafts.get_mut(at) {
                    let bytes = plan.end - slot.acked;
                    self.statistics.bytes += u64::from(bytes);
                    if !segment.is_head() {
                        left = left.saturating_sub(bytes as usize);
                    }
                    add(draft, segment, number, &plan, *now);
                }
            }
            if let Some(at) = wake {
                self.wake_at(at);
            }
        }
        self.room_beside_heads = left;
        self.next_beside_heads = first_without_room.unwrap_or(SegmentId::NONE);
        self.add_frees(&mut drafts);
        for draft in drafts {
            let Some(backup) = self.servers.get(draft.server) else { continue };
            let to = To::Backup(draft.server, backup.address);
            let life = (draft.server, backup.generation);
            let (number, now) = (self.number(), self.now);
            self.statistics.messages += 1;
            self.in_flight.push(InFlight::of_backup(number, now, life, draft.parts));
            let opcode = Opcode::Replicate;
            let request = Request { number, to, opcode, body: draft.body };
            self.outgoing.push_back(Outgoing { request, spans: draft.spans });
        }
    }

    /// Returns whether the order of the heads allows each step: to open a segment, to send more
    /// than its digest, to close it.
    fn allowed(&self, id: SegmentId) -> (bool, bool, bool) {
        let Some(segment) = self.segments.get(&id) else { return (false, false, false) };
        if !segment.is_head() {
            return (true, true, segment.is_closed);
        }
        let before = segment.before.and_then(|it| self.segments.get(&it));
        let all_there = |it: &Segment| it.is_closed && it.durable_length == it.length;
        let may_open = before.is_none_or(all_there);
        let is_free = before.is_none_or(|it| it.is_whole);
        let after = segment.after.and_then(|it| self.segments.get(&it));
        let has_digest =
            |it: &Segment| it.digest_length > 0 && it.durable_length >= it.digest_length;
        let may_close = segment.is_whole || (segment.is_closed && after.is_some_and(has_digest));
        (may_open, is_free, may_close)
    }

    pub(super) fn answered(&mut self, now: Time, number: u64, outcome: Result<&[u8], CallError>) {
        self.now = now;
        let Some(at) = self.in_flight.iter().position(|it| it.number == number) else { return };
        let InFlight { backup, sent, epoch, parts, .. } = self.in_flight.swap_remove(at);
        if let Some((id, epoch)) = epoch {
            return self.epoch_raised(id, number, epoch, outcome);
        }
        let Some(backup) = backup else { return self.confirmed(number, sent, &outcome) };
        let (server, _) = backup;
        if let Err(CallError::Refused { status: Status::Deposed, .. }) = outcome {
            self.depose();
        }
        let answers = outcome.ok().and_then(PartAnswer::all_of);
        let answers = answers.filter(|answers| answers.len() == parts.len());
        self.statistics.failures += u64::from(answers.is_none());
        if answers.is_some() {
            self.lease.confirmed(server, sent);
        }
        let mut freed = None;
        for (at, sent) in parts.iter().enumerate() {
            let answer = answers.and_then(|answers| answers.get(at));
            if sent.flags == FREE {
                freed = Some(freed.unwrap_or(true) & self.freed_there(server, sent, answer));
            } else {
                self.part_answered(backup, sent, answer, &outcome);
            }
        }
        if let (Some(freed), Some(pending)) = (freed, self.pending_frees.get_mut(&server)) {
            pending.on_answer(now, freed);
        }
        let before = self.durable;
        self.update_durable();
        if self.durable > before {
            self.gathering.answered(now, sent);
        }
        self.renew_lease();
    }

    /// Notes that the cluster has declared this master crashed.
    pub(super) fn depose(&mut self) {
        self.is_deposed = true;
        self.lease.until = Time(0);
    }

    fn epoch_raised(
        &mut self,
        id: SegmentId,
        number: u64,
        epoch: Epoch,
        outcome: Result<&[u8], CallError>,
    ) {
        let now = self.now;
        let Some(segment) = self.segments.get_mut(&id) else { return };
        if segment.raising != Some(number) {
            return;
        }
        segment.raising = None;
        self.active.insert(id);
        match outcome {
            Ok(_) => {
                self.statistics.epochs_raised += 1;
                segment.registered = segment.registered.max(epoch);
                if segment.registered >= segment.wanted {
                    segment.lost_word = None;
                }
                segment.update(self.settings.min_replicas, &mut self.spare_blocks);
                self.update_durable();
                self.renew_lease();
            }
            Err(CallError::Refused { status: Status::Deposed, .. }) => self.depose(),
            Err(_) => segment.raise_at = now + BACKOFF.longest(),
        }
    }

    fn part_answered(
        &mut self,
        (server, generation): (ServerId, Generation),
        sent: &SentPart,
        answer: Option<&PartAnswer>,
        outcome: &Result<&[u8], CallError>,
    ) {
        let now = self.now;
        // The backup may have restarted before its answer was read, and the present generation may
        // have lost the replica.
        let is_present = self.servers.get(server).is_some_and(|it| it.generation == generation);
        let Some(mut segment) = self.segments.remove(&sent.segment) else { return };
        let is_it = |slot: &&mut Slot| slot.token == sent.token && slot.server == Some(server);
        if let Some(slot) = segment.slots.get_mut(sent.slot).filter(is_it) {
            slot.is_in_flight = false;
            match answer.map(PartAnswer::refusal) {
                Some(0) => {
                    if sent.flags & OPEN != 0 {
                        self.servers.on_opened(server);
                        segment.behind_since = None;
                    }
                    if slot.copy.is_some() && sent.flags & CLOSE != 0 {
                        self.statistics.copies += 1;
                    }
                    acknowledge(slot, sent);
                    slot.is_doubtful &= !is_present;
                    segment.update(self.settings.min_replicas, &mut self.spare_blocks);
                    segment.forget_bytes(&mut self.spare_blocks);
                }
                Some(code) => {
                    self.statistics.refusals += 1;
                    let length = answer.map_or(0, PartAnswer::length);
                    self.refused(&mut segment, sent, code, length);
                }
                None => {
                    slot.is_uncertain = true;
                    slot.failures += 1;
                    let asked = match outcome {
                        Err(CallError::Refused { hint, .. }) => {
                            Duration::from_micros(u64::from(*hint)).min(BACKOFF.longest())
                        }
                        _ => Duration::ZERO,
                    };
                    slot.retry_at = now + BACKOFF.limit(slot.failures).max(asked);
                }
            }
            if segment.is_whole && segment.is_short() {
                self.to_mend.insert(segment.id);
            }
            self.active.insert(segment.id);
        }
        self.segments.insert(segment.id, segment);
    }

    /// Handles a part that a backup refused.
    fn refused(&mut self, segment: &mut Segment, sent: &SentPart, code: u16, length: u32) {
        let now = self.now;
        let Some(slot) = segment.slots.get_mut(sent.slot) else { return };
        let server = slot.server;
        match code {
            refusal::FULL | refusal::OVERLOADED => {
                if let Some(server) = server {
                    self.servers.avoid(server, now, code == refusal::FULL);
                }
                // The backup has no replica, unless an earlier attempt arrived after all.
                if !slot.is_uncertain && !slot.is_opened {
                    slot.was_sent = false;
                }
                self.lose(segment, sent.slot);
            }
            refusal::GAP if !slot.is_closed && length < slot.acked && slot.failures < 8 => {
                slot.failures += 1;
                slot.acked = length;
                slot.chunk.1.clear();
            }
            // The backup has all of it, and an earlier message closed it.
            refusal::CLOSED
                if sent.flags & CLOSE != 0 && length == sent.end && !slot.is_doubtful =>
            {
                acknowledge(slot, sent);
                segment.update(self.settings.min_replicas, &mut self.spare_blocks);
            }
            refusal::NOT_FOUND => {
                slot.is_gone = true;
                self.lose(segment, sent.slot);
            }
            // The replica cannot be continued.
            _ => self.lose(segment, sent.slot),
        }
    }
}

impl Segment {
    /// Whether the plan for a replica only adds bytes of an open head.
    fn is_only_longer(&self, slot: &Slot, plan: &Plan) -> bool {
        let raises = slot.epoch < self.epoch_for(slot);
        let is_well = slot.failures == 0 && !slot.is_uncertain && !slot.is_doubtful;
        let is_usual = slot.is_there() && is_well && !raises;
        self.is_head() && !self.is_closed && slot.copy.is_none() && plan.flags == 0 && is_usual
    }
}

/// Returns the next request for a replica, if any. `limit` is how far the order lets it go.
fn plan(segment: &Segment, slot: &Slot, limit: u32, may_end: bool, room: usize) -> Option<Plan> {
    if slot.is_closed {
        let length = slot.acked;
        return slot.is_doubtful.then_some(Plan { end: length, length, flags: CLOSE });
    }
    let (length, limit) = match slot.copy {
        Some((length, _)) => (length, length),
        None if segment.is_whole => return None,
        None => (segment.length, limit),
    };
    let from = slot.acked;
    let mut end = limit.max(from);
    if slot.has_chunk() {
        end = end.min(slot.chunk_end());
    } else if from < segment.base && slot.copy.is_none() || slot.copy.is_some() && from < length {
        return None; // Its bytes are not at hand yet.
    }
    end = end.min(from.saturating_add(u32::try_from(room).unwrap_or(u32::MAX)));
    let mut flags = 0;
    if !slot.is_opened {
        flags |= OPEN;
        // A segment that is not a head counts when it is closed, for only then it is whole.
        if segment.begins_late(slot) || !segment.is_head() {
            flags |= ATOMIC;
        }
    }
    let is_closed = slot.copy.is_some() || segment.is_closed;
    if is_closed && may_end && end == length {
        flags |= CLOSE;
    } else if !slot.is_committed && slot.is_opened | (flags & OPEN != 0) && slot.copy.is_none() {
        // A replica begun in atomic mode counts once it has the same bytes as the others.
        if segment.begins_late(slot) && end == limit && segment.is_head() {
            flags |= COMMIT;
        }
    }
    let raises = slot.copy.is_none() && slot.epoch < segment.epoch_for(slot);
    let is_needed = flags != 0 || end > from || raises || slot.is_doubtful;
    is_needed.then_some(Plan { end, length, flags })
}

/// Adds a part to a message.
fn add(draft: &mut Draft, segment: &mut Segment, number: usize, plan: &Plan, now: Time) {
    let Some(slot) = segment.slots.get(number) else { return };
    let (epoch, begins_late) = (segment.epoch_for(slot), segment.begins_late(slot));
    let (from, end) = (slot.acked, plan.end);
    let part = ReplicaPart::new(segment.id, epoch, from, end - from, plan.length, plan.flags);
    draft.body.extend_from_slice(part.as_bytes());
    if slot.has_chunk() {
        let (first, last) = ((from - slot.chunk.0) as usize, (end - slot.chunk.0) as usize);
        draft.body.extend_from_slice(slot.chunk.1.get(first..last).unwrap_or_default());
    } else if end - from >= SPAN_BYTES_MIN {
        draft.spans.push(Span { at: draft.body.len(), segment: segment.id, from, end });
    } else if end > from {
        let pieces = segment.pieces(from, end).into_iter().flatten();
        pieces.for_each(|piece| draft.body.extend_from_slice(piece));
    }
    let Some(slot) = segment.slots.get_mut(number) else { return };
    if !slot.was_sent {
        slot.sent_at = now;
    }
    slot.is_atomic |= plan.flags & OPEN != 0 && begins_late;
    (slot.was_sent, slot.is_in_flight) = (true, true);
    // From now on a recovery may use it, even if the answer is lost.
    let is_open_at_once = plan.flags & OPEN != 0 && plan.flags & ATOMIC == 0;
    if is_open_at_once || plan.flags & (COMMIT | CLOSE) != 0 {
        (slot.may_count, slot.is_waived) = (true, false);
    }
    let (token, flags) = (slot.token, plan.flags);
    let segment = segment.id;
    draft.parts.push(SentPart { segment, slot: number, token, epoch, end, flags });
}

/// Notes that a backup has done a part.
fn acknowledge(slot: &mut Slot, sent: &SentPart) {
    slot.acked = slot.acked.max(sent.end);
    slot.epoch = slot.epoch.max(sent.epoch);
    (slot.failures, slot.is_uncertain) = (0, false);
    if sent.flags & OPEN != 0 {
        slot.is_opened = true;
        slot.is_committed |= sent.flags & ATOMIC == 0;
    }
    slot.is_committed |= sent.flags & (COMMIT | CLOSE) != 0;
    if sent.flags & CLOSE != 0 {
        slot.is_closed = true;
        slot.copy = None;
    }
    if slot.is_closed || !slot.has_chunk() {
        slot.chunk.1 = Vec::new();
    }
}
