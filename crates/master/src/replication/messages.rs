//! Requests: what each replica needs next, put together in one message for each server; and what the
//! answers say.
//!
//! Of each replica one request is under way at a time, so its parts never overtake each other. A
//! request that comes to nothing is made again, later each time; the bytes are the same.

use super::segment::{Segment, Slot};
use super::{Request, State, To};
use std::collections::BTreeMap;
use std::time::Duration;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Time;
use thunderhead_wire::control::{RaiseEpoch, to_body};
use thunderhead_wire::replication::{
    ATOMIC, CLOSE, COMMIT, FREE, OPEN, PartAnswer, ReplicaPart, ReplicateHead,
};
use thunderhead_wire::{Epoch, SegmentId, ServerId, Status};
use zerocopy::IntoBytes;

/// Bytes of a message at most, but for the heads of its last parts.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Parts of a message at most.
const PARTS_MAX: usize = 256;

/// The first wait after a failure, and the longest.
const WAIT_MIN: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_millis(100);

/// How often bodies are kept to be used again.
const SPARE_MAX: usize = 16;

/// The numbers of a backup's refusals: `docs/protocol.md`.
mod refusal {
    pub(super) const FULL: u16 = 1;
    pub(super) const OVERLOADED: u16 = 2;
    pub(super) const CLOSED: u16 = 4;
    pub(super) const GAP: u16 = 5;
    pub(super) const STALE_EPOCH: u16 = 7;
}

/// A request whose answer is awaited.
pub(super) struct InFlight {
    number: u64,
    server: Option<ServerId>,
    /// Of a request to the coordinator.
    epoch: Option<(SegmentId, Epoch)>,
    parts: Vec<Sent>,
}

/// A part of a request.
#[derive(Clone, Copy)]
struct Sent {
    segment: SegmentId,
    /// Which of its places, and which replica in it; 0 when it is freed.
    slot: usize,
    token: u64,
    epoch: Epoch,
    end: u32,
    flags: u8,
}

/// Replicas that a server is to free.
#[derive(Default)]
pub(super) struct Frees {
    segments: BTreeMap<SegmentId, Epoch>,
    is_in_flight: bool,
    retry_at: Time,
    failures: u32,
}

impl Frees {
    pub(super) fn add(&mut self, segment: SegmentId, epoch: Epoch) {
        let known = self.segments.entry(segment).or_default();
        *known = epoch.max(*known);
    }

    pub(super) fn has(&self, segment: SegmentId) -> bool {
        self.segments.contains_key(&segment)
    }
}

fn wait(failures: u32) -> Duration {
    (WAIT_MIN * (1 << failures.min(8))).min(WAIT_MAX)
}

/// A message that is being put together.
struct Draft {
    server: ServerId,
    body: Vec<u8>,
    parts: Vec<Sent>,
}

impl Draft {
    fn room(&self) -> usize {
        let room = MESSAGE_BYTES_MAX.saturating_sub(self.body.len());
        if self.parts.len() < PARTS_MAX { room } else { 0 }
    }
}

/// What is to be sent for a replica.
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

    /// Has the coordinator note the epoch of a head, once its replicas have it.
    pub(super) fn raise_epoch(&mut self, id: SegmentId) {
        let number = self.numbers + 1;
        let Some(segment) = self.segments.get_mut(&id) else { return };
        let is_due = segment.wanted > segment.registered && segment.raising.is_none();
        if segment.is_whole || !is_due || !segment.has_epoch() {
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
        self.in_flight.push(InFlight { number, server: None, epoch, parts: Vec::new() });
        let opcode = Opcode::RaiseEpoch;
        self.outgoing.push_back(Request { number, to: To::Coordinator, opcode, body });
    }

    /// Makes all requests that can be made now.
    pub(super) fn make_messages(&mut self, ids: &[SegmentId]) {
        let mut drafts: Vec<Draft> = Vec::new();
        for id in ids {
            let (may_open, is_free, may_close) = self.allowed(*id);
            let durable = self.durable;
            let State { segments, servers, settings, spare, now, .. } = self;
            let Some(segment) = segments.get_mut(id) else { continue };
            let mut wake: Option<Time> = None;
            for number in 0..segment.slots.len() {
                let Some(slot) = segment.slots.get(number) else { continue };
                let Some(server) = slot.server else { continue };
                if slot.is_in_flight || servers.get(server).is_none() || !may_open {
                    continue;
                }
                let place = drafts.iter().position(|draft| draft.server == server);
                let room = place.and_then(|at| drafts.get(at)).map_or(usize::MAX, Draft::room);
                if room == 0 {
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
                let at = place.unwrap_or_else(|| {
                    let mut body = spare.pop().unwrap_or_default();
                    let head = ReplicateHead::new(settings.master, servers.version);
                    body.extend_from_slice(head.as_bytes());
                    drafts.push(Draft { server, body, parts: Vec::new() });
                    drafts.len() - 1
                });
                if let Some(draft) = drafts.get_mut(at) {
                    self.statistics.bytes += u64::from(plan.end - slot.acked);
                    add(draft, segment, number, &plan);
                }
            }
            if let Some(at) = wake {
                self.wake_at(at);
            }
        }
        self.add_frees(&mut drafts);
        for draft in drafts {
            let Some(backup) = self.servers.get(draft.server) else { continue };
            let to = To::Backup(draft.server, backup.address);
            let (number, server, parts) = (self.number(), Some(draft.server), draft.parts);
            self.statistics.messages += 1;
            self.in_flight.push(InFlight { number, server, epoch: None, parts });
            let opcode = Opcode::Replicate;
            self.outgoing.push_back(Request { number, to, opcode, body: draft.body });
        }
    }

    /// What the order of the heads allows: that a segment is opened, that it gets more than its
    /// digest, that it is closed.
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

    fn add_frees(&mut self, drafts: &mut Vec<Draft>) {
        if self.frees.is_empty() {
            return;
        }
        let mut copies = self.copies_left();
        let mut wake: Option<Time> = None;
        let State { frees, segments, servers, settings, spare, now, .. } = self;
        frees.retain(|_, it| !it.segments.is_empty() || it.is_in_flight);
        for (server, frees) in frees.iter_mut() {
            if frees.is_in_flight || servers.get(*server).is_none() {
                continue;
            }
            if frees.retry_at > *now {
                wake = Some(wake.map_or(frees.retry_at, |known| known.min(frees.retry_at)));
                continue;
            }
            let mut due = Vec::new();
            for (id, epoch) in &frees.segments {
                if due.len() < PARTS_MAX && may_go(segments.get(id), copies.get_mut(id)) {
                    due.push((*id, *epoch));
                }
            }
            if due.is_empty() {
                continue;
            }
            let place = drafts.iter().position(|draft| draft.server == *server);
            let at = place.unwrap_or_else(|| {
                let mut body = spare.pop().unwrap_or_default();
                let head = ReplicateHead::new(settings.master, servers.version);
                body.extend_from_slice(head.as_bytes());
                drafts.push(Draft { server: *server, body, parts: Vec::new() });
                drafts.len() - 1
            });
            let Some(draft) = drafts.get_mut(at) else { continue };
            for (id, epoch) in due {
                let part = ReplicaPart::new(id, epoch, 0, 0, 0, FREE);
                draft.body.extend_from_slice(part.as_bytes());
                let segment = id;
                draft.parts.push(Sent { segment, slot: 0, token: 0, epoch, end: 0, flags: FREE });
            }
            frees.is_in_flight = true;
        }
        if let Some(at) = wake {
            self.wake_at(at);
        }
    }

    /// Of segments for whose replicas there are no places: how many copies there are, those counted
    /// that are to be freed. One of them is left, if there was to be more than one.
    fn copies_left(&self) -> BTreeMap<SegmentId, usize> {
        let mut copies = BTreeMap::new();
        for id in &self.active {
            let Some(segment) = self.segments.get(id) else { continue };
            if self.settings.replicas > 1 && segment.slots.iter().any(|slot| slot.server.is_none())
            {
                let rests = self.frees.values().filter(|it| it.has(*id) && !it.is_in_flight);
                copies.insert(*id, segment.replicas() + rests.count());
            }
        }
        copies
    }

    pub(super) fn answered(&mut self, now: Time, number: u64, outcome: Result<&[u8], CallError>) {
        self.now = now;
        let Some(at) = self.in_flight.iter().position(|it| it.number == number) else { return };
        let InFlight { server, epoch, parts, .. } = self.in_flight.swap_remove(at);
        if let Some((id, epoch)) = epoch {
            return self.epoch_raised(id, number, epoch, outcome);
        }
        let Some(server) = server else { return };
        if let Err(CallError::Refused { status: Status::Deposed, .. }) = outcome {
            self.is_deposed = true;
        }
        let answers = outcome.ok().and_then(PartAnswer::all_of);
        let answers = answers.filter(|answers| answers.len() == parts.len());
        self.statistics.failures += u64::from(answers.is_none());
        let mut freed = None;
        for (at, sent) in parts.iter().enumerate() {
            let answer = answers.and_then(|answers| answers.get(at));
            if sent.flags == FREE {
                freed = Some(freed.unwrap_or(true) & self.freed_there(server, sent, answer));
            } else {
                self.part_answered(server, sent, answer, &outcome);
            }
        }
        if let (Some(freed), Some(frees)) = (freed, self.frees.get_mut(&server)) {
            frees.is_in_flight = false;
            frees.failures = if freed { 0 } else { frees.failures + 1 };
            frees.retry_at = if freed { now } else { now + wait(frees.failures) };
        }
        self.update_durable();
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
                segment.update();
                self.update_durable();
            }
            Err(CallError::Refused { status: Status::Deposed, .. }) => self.is_deposed = true,
            Err(_) => segment.raise_at = now + WAIT_MAX,
        }
    }

    /// Whether a replica was freed. One that was begun at a later epoch is another.
    fn freed_there(&mut self, server: ServerId, sent: &Sent, answer: Option<&PartAnswer>) -> bool {
        let done = answer.is_some_and(|it| matches!(it.refusal(), 0 | refusal::STALE_EPOCH));
        if done
            && let Some(frees) = self.frees.get_mut(&server)
            && frees.segments.get(&sent.segment) == Some(&sent.epoch)
        {
            frees.segments.remove(&sent.segment);
        }
        done
    }

    fn part_answered(
        &mut self,
        server: ServerId,
        sent: &Sent,
        answer: Option<&PartAnswer>,
        outcome: &Result<&[u8], CallError>,
    ) {
        let now = self.now;
        let Some(mut segment) = self.segments.remove(&sent.segment) else { return };
        let is_it = |slot: &&mut Slot| slot.token == sent.token && slot.server == Some(server);
        if let Some(slot) = segment.slots.get_mut(sent.slot).filter(is_it) {
            slot.is_in_flight = false;
            match answer.map(PartAnswer::refusal) {
                Some(0) => {
                    if slot.copy.is_some() && sent.flags & CLOSE != 0 {
                        self.statistics.copies += 1;
                    }
                    acknowledge(slot, sent);
                    segment.update();
                    segment.forget_bytes();
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
                            Duration::from_micros(u64::from(*hint)).min(WAIT_MAX)
                        }
                        _ => Duration::ZERO,
                    };
                    slot.retry_at = now + wait(slot.failures).max(asked);
                }
            }
            if segment.is_whole && !segment.is_at_rest() && segment.is_short() {
                self.to_mend.insert(segment.id);
            }
            self.active.insert(segment.id);
        }
        self.segments.insert(segment.id, segment);
    }

    /// A backup has something against a part.
    fn refused(&mut self, segment: &mut Segment, sent: &Sent, code: u16, length: u32) {
        let now = self.now;
        let Some(slot) = segment.slots.get_mut(sent.slot) else { return };
        let server = slot.server;
        match code {
            refusal::FULL | refusal::OVERLOADED => {
                if let Some(server) = server {
                    self.servers.avoid(server, now + super::placement::PASSED_OVER);
                }
                // Nothing is there, unless an earlier attempt came through after all.
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
            // It has all of it, and was closed by what came before.
            refusal::CLOSED
                if sent.flags & CLOSE != 0 && length == sent.end && !slot.is_doubtful =>
            {
                acknowledge(slot, sent);
                segment.update();
            }
            // It is not there, or cannot be gone on with.
            _ => self.lose(segment, sent.slot),
        }
    }
}

/// Whether what is left of a lost replica may be freed. As long as another one is on its way, it may
/// still be of use; but another one may have no other place than where it is.
fn may_go(segment: Option<&Segment>, copies: Option<&mut usize>) -> bool {
    let Some(segment) = segment else { return true };
    let is_placed = segment.slots.iter().all(|slot| slot.server.is_some());
    let is_short = segment.is_short() || segment.wanted > segment.registered;
    match copies {
        _ if is_placed => !is_short,
        None => true,
        Some(copies) if *copies > 1 => {
            *copies -= 1;
            true
        }
        Some(_) => false,
    }
}

/// What is to be sent for a replica, if anything. `limit` is how far the order lets it go.
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
        if slot.is_atomic {
            flags |= ATOMIC;
        }
    }
    let is_closed = slot.copy.is_some() || segment.is_closed;
    if is_closed && may_end && end == length {
        flags |= CLOSE;
    } else if !slot.is_committed && slot.is_opened | (flags & OPEN != 0) && slot.copy.is_none() {
        // Where it is begun in atomic mode it counts once it has what the others have.
        if slot.is_atomic && end == limit && segment.is_head() {
            flags |= COMMIT;
        }
    }
    let raises = slot.copy.is_none() && slot.epoch < segment.epoch_for(slot);
    let is_needed = flags != 0 || end > from || raises || slot.is_doubtful;
    is_needed.then_some(Plan { end, length, flags })
}

/// Adds a part to a message.
fn add(draft: &mut Draft, segment: &mut Segment, number: usize, plan: &Plan) {
    let Some(slot) = segment.slots.get(number) else { return };
    let epoch = segment.epoch_for(slot);
    let (from, end) = (slot.acked, plan.end);
    let part = ReplicaPart::new(segment.id, epoch, from, end - from, plan.length, plan.flags);
    draft.body.extend_from_slice(part.as_bytes());
    if slot.has_chunk() {
        let (first, last) = ((from - slot.chunk.0) as usize, (end - slot.chunk.0) as usize);
        draft.body.extend_from_slice(slot.chunk.1.get(first..last).unwrap_or_default());
    } else if end > from {
        let (first, last) = ((from - segment.base) as usize, (end - segment.base) as usize);
        let (front, back) = segment.bytes.as_slices();
        let cut = front.len();
        draft.body.extend_from_slice(front.get(first.min(cut)..last.min(cut)).unwrap_or_default());
        let (first, last) = (first.saturating_sub(cut), last.saturating_sub(cut));
        draft.body.extend_from_slice(back.get(first..last).unwrap_or_default());
    }
    let Some(slot) = segment.slots.get_mut(number) else { return };
    (slot.was_sent, slot.is_in_flight) = (true, true);
    let (token, flags) = (slot.token, plan.flags);
    let segment = segment.id;
    draft.parts.push(Sent { segment, slot: number, token, epoch, end, flags });
}

/// A backup has done a part.
fn acknowledge(slot: &mut Slot, sent: &Sent) {
    slot.acked = slot.acked.max(sent.end);
    slot.epoch = slot.epoch.max(sent.epoch);
    (slot.failures, slot.is_uncertain, slot.is_doubtful) = (0, false, false);
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
