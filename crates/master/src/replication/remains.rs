//! The remains of lost replicas, and when their servers are told to free them.
//!
//! A backup that has restarted still has its replicas. They cannot be continued, but a recovery can
//! read them. So
//!
//! - remains that count for a recovery stay until the segment has all its replicas again, and the
//!   coordinator has noted their epoch. They are not in the way of another replica on the same
//!   server, which replaces them once it counts: so there is always one of the two;
//! - remains that do not count go at once: the replica was not begun completely, or is of an epoch
//!   that the coordinator has noted to be over, or lacks durable bytes;
//! - all remains of an adopted segment stay as if they counted: the server may have been away when
//!   it was asked for its replicas of the former log. If it has a closed replica of the segment,
//!   and has lost the attempt of this generation because it has restarted, it would free that
//!   closed replica (`backup/src/lineage.rs`).

use super::State;
use super::messages::{BACKOFF, Draft, PARTS_MAX, SentPart, refusal};
use super::segment::{Segment, Slot};
use std::collections::BTreeMap;
use thunderhead_runtime::Time;
use thunderhead_wire::replication::{FREE, PartAnswer, ReplicaPart, ReplicateHead};
use thunderhead_wire::{Epoch, SegmentId, ServerId};
use zerocopy::IntoBytes;

/// The remains that a server is to free.
#[derive(Default)]
pub(super) struct PendingFrees {
    segments: BTreeMap<SegmentId, Remains>,
    is_in_flight: bool,
    retry_at: Time,
    failures: u32,
}

/// The remains of a replica.
#[derive(Clone, Copy, Default)]
pub(super) struct Remains {
    /// The epoch to free: later replicas have a higher one.
    epoch: Epoch,
    /// The epoch and the bytes that it has for sure.
    has_epoch: Epoch,
    acked: u32,
    was_committed: bool,
    was_closed: bool,
}

impl Remains {
    pub(super) fn new(slot: &Slot, epoch: Epoch) -> Remains {
        Remains {
            epoch,
            has_epoch: slot.epoch,
            acked: slot.acked,
            was_committed: slot.is_opened && slot.is_committed && !slot.is_gone,
            was_closed: slot.is_closed && !slot.is_gone,
        }
    }

    /// Whether a recovery can use it.
    fn counts(&self, segment: &Segment) -> bool {
        let is_open = self.was_committed && !segment.is_whole;
        let is_current = self.has_epoch >= segment.registered;
        self.was_closed || is_open && is_current && self.acked >= segment.durable_length
    }
}

impl PendingFrees {
    pub(super) fn add(&mut self, segment: SegmentId, remains: Remains) {
        let known = self.segments.entry(segment).or_default();
        // A failed attempt leaves the replica that it was to replace.
        let left = if known.was_committed && !remains.was_committed { *known } else { remains };
        *known = Remains { epoch: remains.epoch.max(known.epoch), ..left };
    }

    pub(super) fn has(&self, segment: SegmentId) -> bool {
        self.segments.contains_key(&segment)
    }

    /// Takes the outcome of the last message.
    pub(super) fn on_answer(&mut self, now: Time, freed: bool) {
        self.is_in_flight = false;
        self.failures = if freed { 0 } else { self.failures + 1 };
        self.retry_at = if freed { now } else { now + BACKOFF.limit(self.failures) };
    }
}

impl State {
    /// Frees the remains that may go.
    pub(super) fn add_frees(&mut self, drafts: &mut Vec<Draft>) {
        if self.pending_frees.is_empty() {
            return;
        }
        self.pending_frees.retain(|_, it| !it.segments.is_empty() || it.is_in_flight);
        let mut wake: Option<Time> = None;
        let State { pending_frees, segments, servers, settings, spare, now, .. } = self;
        for (server, pending) in pending_frees.iter_mut() {
            let Some(backup) = servers.get(*server).filter(|_| !pending.is_in_flight) else {
                continue;
            };
            if pending.retry_at > *now {
                wake = Some(wake.map_or(pending.retry_at, |known| known.min(pending.retry_at)));
                continue;
            }
            let mut due = Vec::new();
            for (id, remains) in &pending.segments {
                if due.len() < PARTS_MAX && may_go(segments.get(id), remains) {
                    due.push((*id, remains.epoch));
                }
            }
            if due.is_empty() {
                continue;
            }
            let place = drafts.iter().position(|draft| draft.server == *server);
            let at = place.unwrap_or_else(|| {
                let generation = (*server, backup.generation);
                let head = ReplicateHead::new(settings.master, servers.version, generation);
                drafts.push(Draft::new(*server, head, spare.pop()));
                drafts.len() - 1
            });
            let Some(draft) = drafts.get_mut(at) else { continue };
            for (id, epoch) in due {
                let part = ReplicaPart::new(id, epoch, 0, 0, 0, FREE);
                draft.body.extend_from_slice(part.as_bytes());
                draft.parts.push(SentPart::free(id, epoch));
            }
            pending.is_in_flight = true;
        }
        if let Some(at) = wake {
            self.wake_at(at);
        }
    }

    /// Takes the answer that a replica was freed. A replica that was begun at a later epoch is a
    /// different one.
    pub(super) fn freed_there(
        &mut self,
        server: ServerId,
        sent: &SentPart,
        answer: Option<&PartAnswer>,
    ) -> bool {
        let done = answer.is_some_and(|it| matches!(it.refusal(), 0 | refusal::STALE_EPOCH));
        if done
            && let Some(pending) = self.pending_frees.get_mut(&server)
            && pending
                .segments
                .get(&sent.segment)
                .is_some_and(|remains| remains.epoch == sent.epoch)
        {
            pending.segments.remove(&sent.segment);
        }
        done
    }
}

/// Whether remains may be freed: see the module's documentation.
fn may_go(segment: Option<&Segment>, remains: &Remains) -> bool {
    let Some(segment) = segment else { return true };
    let is_restored = !segment.is_short() && segment.wanted <= segment.registered;
    is_restored || !(segment.is_adopted || remains.counts(segment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_log::SegmentKind;

    #[test]
    fn of_an_adopted_segment_nothing_goes_before_it_has_all_replicas_again() {
        let mut segment = Segment::new(SegmentId(7), SegmentKind::Survivor, 1);
        segment.is_whole = true;
        let attempt = Remains::default();
        assert!(segment.is_short() && may_go(Some(&segment), &attempt));
        segment.is_adopted = true;
        assert!(!may_go(Some(&segment), &attempt), "a replica may be below it");
        segment.slots[0].server = Some(ServerId(3));
        assert!(!segment.is_short() && may_go(Some(&segment), &attempt));
    }
}
