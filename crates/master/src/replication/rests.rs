//! What is left of replicas that were lost: when their servers are told to free it.
//!
//! A backup that has come again still has what it had, though it cannot be gone on with; a recovery can
//! read it. It is kept until the segment has all its replicas again. But a server that has the rest of
//! one replica gets no other one of the same segment, and there may be no other server. So
//!
//! - a rest that counts for a recovery stays while another server could take the replica. One that does
//!   not take it, again and again, is no other server after a while ([`TRIED_FOR`]);
//! - where there is none it goes if another copy counts, be that a replica or a rest: so one that counts
//!   is left. Only with one replica the last goes, too: until that is made anew, on the same backup,
//!   the log is on none;
//! - a rest that does not count goes at once: one that had not been begun well, of an epoch that the
//!   coordinator has noted to be over, that lacks what is durable, or that the backup has lost.

use super::messages::{Draft, PARTS_MAX, Sent, refusal, wait};
use super::segment::{Segment, Slot};
use super::{State, placement};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_wire::replication::{FREE, PartAnswer, ReplicaPart, ReplicateHead};
use thunderhead_wire::{Epoch, SegmentId, ServerId};
use zerocopy::IntoBytes;

/// So long a server is asked to take a replica before a rest gives way that might be needed.
pub(super) const TRIED_FOR: Duration = Duration::from_secs(1);

/// Rests that a server is to free.
#[derive(Default)]
pub(super) struct Frees {
    segments: BTreeMap<SegmentId, Rest>,
    is_in_flight: bool,
    retry_at: Time,
    failures: u32,
}

/// What is left of a replica.
#[derive(Clone, Copy, Default)]
pub(super) struct Rest {
    /// It is freed by this: what is begun later has a higher one.
    epoch: Epoch,
    /// The epoch that it has for sure, and the bytes.
    has_epoch: Epoch,
    acked: u32,
    was_committed: bool,
    was_closed: bool,
}

impl Rest {
    pub(super) fn new(slot: &Slot, epoch: Epoch) -> Rest {
        Rest {
            epoch,
            has_epoch: slot.epoch,
            acked: slot.acked,
            was_committed: slot.is_opened && slot.is_committed && !slot.is_gone,
            was_closed: slot.is_closed && !slot.is_gone,
        }
    }

    /// Whether a recovery can go by it.
    fn counts(&self, segment: &Segment) -> bool {
        let is_open = self.was_committed && !segment.is_whole;
        let is_current = self.has_epoch >= segment.registered || !segment.is_head();
        self.was_closed || is_open && is_current && self.acked >= segment.durable_length
    }
}

impl Frees {
    pub(super) fn add(&mut self, segment: SegmentId, rest: Rest) {
        let known = self.segments.entry(segment).or_default();
        *known = Rest { epoch: rest.epoch.max(known.epoch), ..rest };
    }

    pub(super) fn has(&self, segment: SegmentId) -> bool {
        self.segments.contains_key(&segment)
    }

    /// What came of the last message.
    pub(super) fn answered(&mut self, now: Time, freed: bool) {
        self.is_in_flight = false;
        self.failures = if freed { 0 } else { self.failures + 1 };
        self.retry_at = if freed { now } else { now + wait(self.failures) };
    }
}

impl State {
    /// Has rests freed that may go.
    pub(super) fn add_frees(&mut self, drafts: &mut Vec<Draft>) {
        if self.frees.is_empty() {
            return;
        }
        self.frees.retain(|_, it| !it.segments.is_empty() || it.is_in_flight);
        let mut copies = self.copies_left();
        let mut wake: Option<Time> = None;
        let State { frees, segments, servers, settings, spare, now, .. } = self;
        for (server, frees) in frees.iter_mut() {
            let Some(backup) = servers.get(*server).filter(|_| !frees.is_in_flight) else {
                continue;
            };
            if frees.retry_at > *now {
                wake = Some(wake.map_or(frees.retry_at, |known| known.min(frees.retry_at)));
                continue;
            }
            let mut due = Vec::new();
            for (id, rest) in &frees.segments {
                if due.len() < PARTS_MAX && may_go(segments.get(id), rest, copies.get_mut(id)) {
                    due.push((*id, rest.epoch));
                }
            }
            if due.is_empty() {
                continue;
            }
            let place = drafts.iter().position(|draft| draft.server == *server);
            let at = place.unwrap_or_else(|| {
                let life = (*server, backup.generation);
                let head = ReplicateHead::new(settings.master, servers.version, life);
                drafts.push(Draft::new(*server, head, spare.pop()));
                drafts.len() - 1
            });
            let Some(draft) = drafts.get_mut(at) else { continue };
            for (id, epoch) in due {
                let part = ReplicaPart::new(id, epoch, 0, 0, 0, FREE);
                draft.body.extend_from_slice(part.as_bytes());
                draft.parts.push(Sent::free(id, epoch));
            }
            frees.is_in_flight = true;
        }
        if let Some(at) = wake {
            self.wake_at(at);
        }
    }

    /// Of segments that lack a place for a replica and have rests: how many of the copies that count,
    /// replicas and rests, can be done without.
    fn copies_left(&self) -> BTreeMap<SegmentId, usize> {
        let rests = self.frees.values().flat_map(|it| it.segments.keys());
        let ids: BTreeSet<SegmentId> = rests.copied().collect();
        let mut copies = BTreeMap::new();
        for id in ids {
            let Some(segment) = self.segments.get(&id) else { continue };
            if segment.slots.iter().all(|slot| slot.server.is_some()) {
                continue;
            }
            if self.could_place(segment) {
                copies.insert(id, 0);
                continue;
            }
            let counts = |it: &&Frees| {
                let rest = it.segments.get(&id).filter(|_| !it.is_in_flight);
                rest.is_some_and(|rest| rest.counts(segment))
            };
            let rests = self.frees.values().filter(counts).count();
            let there = segment.slots.iter().filter(|slot| {
                let is_current = slot.epoch >= segment.registered || !segment.is_head();
                slot.is_there() && (slot.is_closed || is_current)
            });
            let all = rests + there.count();
            let is_last = all == 1 && self.settings.replicas == 1;
            copies.insert(id, if is_last { 1 } else { all.saturating_sub(1) });
        }
        copies
    }

    /// Whether some server could take a replica of a segment that has not refused for long.
    fn could_place(&self, segment: &Segment) -> bool {
        let State { settings, servers, frees, now, .. } = self;
        let mut fitting = placement::fitting(settings, servers, frees, segment);
        // One that is about to free what it has, and loses nothing by it, can take another soon.
        let is_going = |it: &Frees| {
            let rest = it.segments.get(&segment.id);
            rest.is_some_and(|rest| it.is_in_flight || !rest.counts(segment))
        };
        fitting.any(|(_, backup)| !backup.has_refused_for(TRIED_FOR, *now))
            || frees.iter().any(|(id, it)| servers.get(*id).is_some() && is_going(it))
    }

    /// Whether a replica was freed. One that was begun at a later epoch is another.
    pub(super) fn freed_there(
        &mut self,
        server: ServerId,
        sent: &Sent,
        answer: Option<&PartAnswer>,
    ) -> bool {
        let done = answer.is_some_and(|it| matches!(it.refusal(), 0 | refusal::STALE_EPOCH));
        if done
            && let Some(frees) = self.frees.get_mut(&server)
            && frees.segments.get(&sent.segment).is_some_and(|rest| rest.epoch == sent.epoch)
        {
            frees.segments.remove(&sent.segment);
        }
        done
    }
}

/// Whether a rest may be freed: see the module's documentation.
fn may_go(segment: Option<&Segment>, rest: &Rest, copies: Option<&mut usize>) -> bool {
    let Some(segment) = segment else { return true };
    match copies {
        None => !segment.is_short() && segment.wanted <= segment.registered,
        _ if !rest.counts(segment) => true,
        Some(0) => false,
        Some(copies) => {
            *copies -= 1;
            true
        }
    }
}
