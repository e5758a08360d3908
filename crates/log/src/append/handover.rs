//! Hands closed segments that were filled beside the head to the replicator: survivors of cleaning,
//! and side segments ([`super::side_log`]).
//!
//! The replicator copies all bytes that it is given. A survivor has up to 8 MiB, and a pass has
//! many survivors, so the log hands over one piece a turn. The ledger learns of a pass when the
//! replicator has all of its survivors. Until then no digest names them, and the cleaned segments
//! stay.

use super::Log;
use super::replicator::SegmentBytes;
use super::shared::{Pass, Shared};
use super::side_log::SideHandover;
use super::victims::Victim;
use crate::format::metadata::SegmentKind;
use crate::memory::segment::Segment;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use thunderhead_wire::SegmentId;

/// The bytes that the replicator is given in a turn: some tens of microseconds of work.
const PIECE_BYTES: usize = 64 << 10;

/// The bytes of side segments that it is given at once. A turn of a recovery has much other work,
/// and the replicator's copy goes into memory that is touched for the first time. A replay ends
/// turns of the log in between, so such a turn may give two pieces.
const SIDE_PIECE_BYTES: usize = 32 << 10;

/// The bytes that it is given each time that a turn ends by itself, after a number of writes. A
/// shard's turn may have several such ends; a caller that only writes has no others.
const OWN_PIECE_BYTES: usize = 32 << 10;

/// The additional bytes when a write waits for memory: the first number at first, and the second
/// for each further attempt, because the turn may never end for a caller that only retries. Each of
/// the writes of a round may retry.
const URGENT_PIECE_BYTES: usize = 64 << 10;
const URGENT_BYTES: usize = 512;

/// The closed segments that the replicator does not have whole yet.
pub(super) struct Handovers {
    /// Full side segments.
    pub(super) side: VecDeque<SideHandover>,
    /// A finished cleaning pass.
    pub(super) pass: Option<PassHandover>,
    pub(super) allowance: Allowance,
}

impl Handovers {
    /// Takes the victims of the pass that is being handed over, if it has any left.
    pub(super) fn take_victims(&mut self, shared: &Shared) -> Option<Vec<Victim>> {
        if self.pass.is_none() {
            let pass = shared.passes.pop()?;
            self.pass = Some(PassHandover { pass, survivor: 0, bytes: 0 });
        }
        let victims = &mut self.pass.as_mut()?.pass.victims;
        (!victims.is_empty()).then(|| std::mem::take(victims))
    }

    /// Puts back the remaining victims.
    pub(super) fn put_victims(&mut self, victims: Vec<Victim>) {
        if let Some(handover) = &mut self.pass {
            handover.pass.victims = victims;
        }
    }
}

impl Default for Handovers {
    fn default() -> Self {
        Handovers { side: VecDeque::new(), pass: None, allowance: Allowance::TURN }
    }
}

/// The bytes of survivors and side segments that the replicator may still be given in this turn.
pub(super) struct Allowance {
    bytes: usize,
    /// The additional bytes if a write waits for memory.
    urgent: usize,
}

impl Allowance {
    /// The allowance of a new turn.
    pub(super) const TURN: Allowance = Allowance { bytes: PIECE_BYTES, urgent: URGENT_PIECE_BYTES };

    /// Renews the allowance after a turn that ended by itself.
    pub(super) fn renew_own(&mut self) {
        self.bytes = self.bytes.max(OWN_PIECE_BYTES);
    }

    fn bytes(&self, is_urgent: bool) -> usize {
        if is_urgent { self.bytes.max(self.urgent.max(URGENT_BYTES)) } else { self.bytes }
    }

    fn spend(&mut self, bytes: usize, is_urgent: bool) {
        if is_urgent {
            self.urgent = self.urgent.saturating_sub(bytes);
        }
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// A finished pass whose survivors are being handed to the replicator.
pub(super) struct PassHandover {
    pass: Pass,
    /// The current survivor, and its bytes that the replicator has.
    survivor: usize,
    bytes: usize,
}

impl PassHandover {
    /// Returns a survivor of the pass, and how many of its bytes the replicator has. `None` if the
    /// handover of it has not begun.
    pub(super) fn handed_over(&self, id: SegmentId) -> Option<(&Segment, usize)> {
        let number = self.pass.survivors.iter().position(|survivor| survivor.id == id)?;
        let survivor = &self.pass.survivors[number];
        match number.cmp(&self.survivor) {
            std::cmp::Ordering::Less => Some((survivor, survivor.length)),
            std::cmp::Ordering::Equal if self.bytes > 0 => Some((survivor, self.bytes)),
            _ => None,
        }
    }
}

impl Log {
    /// Whether there are closed bytes that the replicator does not have yet: another
    /// [turn](Log#turns) gives it more of them.
    #[must_use]
    pub fn has_to_hand_over(&self) -> bool {
        !self.handovers.side.is_empty() || self.handovers.pass.is_some()
    }

    /// Gives the replicator a piece of the full side segments.
    #[inline(never)]
    pub(super) fn hand_over_side_segments(&mut self, is_urgent: bool) {
        let allowed = self.handovers.allowance.bytes(is_urgent);
        let mut left = if is_urgent { allowed } else { allowed.min(SIDE_PIECE_BYTES) };
        while left > 0
            && let Some(SideHandover { id, bytes }) = self.handovers.side.front_mut()
        {
            if let Some(segment) = self.ledger.segment(*id) {
                let piece = left.min(segment.length - *bytes);
                let at = segment.reference_at(&self.memory, *bytes);
                let lent = SegmentBytes::new(&self.memory, at, piece);
                self.replicator.appended(*id, *bytes as u32, lent);
                *bytes += piece;
                self.handovers.allowance.spend(piece, is_urgent);
                left -= piece;
                if *bytes < segment.length {
                    return;
                }
                self.replicator.closed(*id, segment.length as u32);
            }
            self.handovers.side.pop_front();
        }
    }

    /// Receives passes that cleaners finished, and hands a piece of their survivors to the
    /// replicator.
    #[inline(never)]
    pub(super) fn receive_passes(&mut self, is_urgent: bool) {
        if !is_urgent {
            self.drop_victims();
        }
        let mut left = self.handovers.allowance.bytes(is_urgent);
        if self.shared.is_cache_without_copies() {
            // The replicator copies nothing.
            left = usize::MAX;
        }
        while left > 0 {
            let handover = self.handovers.pass.take().or_else(|| {
                let pass = self.shared.passes.pop()?;
                Some(PassHandover { pass, survivor: 0, bytes: 0 })
            });
            let Some(mut handover) = handover else { break };
            let Some(survivor) = handover.pass.survivors.get(handover.survivor) else {
                if !handover.pass.victims.is_empty() {
                    // The index names them: see the module `victims`.
                    self.handovers.pass = Some(handover);
                    return;
                }
                self.pass_handed_over(handover.pass);
                continue;
            };
            if handover.bytes == 0 {
                self.replicator.opened(survivor.id, SegmentKind::Survivor);
            }
            let piece = left.min(survivor.length - handover.bytes);
            let at = survivor.reference_at(&self.memory, handover.bytes);
            let lent = SegmentBytes::new(&self.memory, at, piece);
            self.replicator.appended(survivor.id, handover.bytes as u32, lent);
            handover.bytes += piece;
            self.handovers.allowance.spend(piece, is_urgent);
            left -= piece;
            if handover.bytes == survivor.length {
                self.replicator.closed(survivor.id, survivor.length as u32);
                self.count_disk(survivor.disk_bytes as i64);
                (handover.survivor, handover.bytes) = (handover.survivor + 1, 0);
            }
            self.handovers.pass = Some(handover);
        }
        // A pass without survivors, or with all of them just handed over, need not wait for another
        // turn.
        let is_done = |it: &PassHandover| {
            it.survivor == it.pass.survivors.len() && it.pass.victims.is_empty()
        };
        if self.handovers.pass.as_ref().is_some_and(is_done)
            && let Some(handover) = self.handovers.pass.take()
        {
            self.pass_handed_over(handover.pass);
        }
    }

    /// Tells the ledger of a pass: the replicator has all its survivors.
    fn pass_handed_over(&mut self, pass: Pass) {
        self.shared.frames.keep_promise(pass.promised);
        let (position, cleaner) = (self.head.position(), pass.cleaner);
        self.ledger.pass_received(pass, position);
        // From here on the ledger knows the survivors' ids: the announcement ends.
        self.shared.in_flight[cleaner].store(u64::MAX, Ordering::SeqCst);
    }
}
