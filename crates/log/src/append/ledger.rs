//! The log's own account of its segments: the segments that the newest digest names, the passes of
//! combined cleaning that wait to become part of it, and everything that waits for durability.
//!
//! ```text
//!   pass received ── survivors durable, and all that the head held then durable ──► ready
//!   ready ── the head's next digest, or a new head's, takes it in ──► digest written
//!   digest written ── the digest is durable ──► settled: the cleaned segments are gone,
//!                                               their replicas and memory are freed,
//!                                               the survivors may be cleaned in their turn
//! ```
//!
//! **Why a pass waits for the head.** A cleaner drops an entry when the index no longer refers to
//! it, because a newer version was appended. That version may not be durable yet. If the segment
//! with the old version left the durable log first, a crash would lose both. So a digest drops
//! cleaned segments only after everything is durable that was appended before their pass was
//! received. (The same rule applies when a cluster copies a compacted segment again.)

use super::replicator::Replicator;
use super::shared::{Pass, Shared};
use crate::format::unnamed_survivors::UnnamedSurvivors;
use crate::memory::present_segments::PresentSegments;
use crate::memory::segment::Segment;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use thunderhead_wire::{LogPosition, SegmentId};

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Ledger {
    /// The segments that a digest written now would name.
    in_digest: BTreeSet<SegmentId>,
    /// Heads that are full but not yet durable, with their ends.
    closing: VecDeque<(LogPosition, Segment)>,
    received: Vec<(LogPosition, Pass)>,
    ready: Vec<Pass>,
    digests: VecDeque<PendingDigest>,
    durable: LogPosition,
    /// Segments that a durable digest names but the newest written one does not, and survivors that
    /// no digest names yet.
    also_present: BTreeMap<SegmentId, ()>,
    present_changed: bool,
    /// Segments of a former log that the cleaners do not have yet, and whether a digest names them.
    adopted: Vec<Segment>,
    adopted_named: bool,
    /// Full side segments, and the number of open ones.
    side_segments: Vec<Segment>,
    side_segments_open: usize,
    /// Full side segments that are not known to be durable, with their bytes.
    undurable_side_segments: Vec<(SegmentId, u64)>,
    /// Ids of former generations among which there may be survivors that no digest named, and the
    /// open head whose digest says so.
    unnamed: UnnamedSurvivors,
    unnamed_says: Option<SegmentId>,
    /// The progress of passes since the log began.
    pub(super) progress: Progress,
}

/// Counts of passes of combined cleaning. A pass is counted at each stage that it has reached.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) received: u64,
    /// A digest was written that takes them in.
    pub(super) named: u64,
    /// That digest is durable, and their memory is given back.
    pub(super) freed: u64,
}

impl Progress {
    /// 1 for a cleaning pass. Side segments come as a pass too, but nothing was cleaned.
    fn of(pass: &Pass) -> u64 {
        u64::from(!pass.cleaned.is_empty())
    }
}

/// A digest that is not durable yet, and the work to do when it is.
pub(super) struct PendingDigest {
    position: LogPosition,
    /// Passes that it takes in.
    passes: u64,
    /// Seglets that their cleaners announced as coming.
    coming: usize,
    removed: Vec<Segment>,
    added: Vec<Segment>,
    /// The emergency head that came before the digest.
    pub(super) emergency: Option<Segment>,
}

impl PendingDigest {
    pub(super) fn at(position: LogPosition) -> PendingDigest {
        let (removed, added) = (Vec::new(), Vec::new());
        PendingDigest { position, passes: 0, coming: 0, removed, added, emergency: None }
    }

    pub(super) fn take_in(&mut self, integration: Integration) {
        self.passes += integration.passes.iter().map(Progress::of).sum::<u64>();
        for pass in integration.passes {
            self.coming += pass.coming;
            self.removed.extend(pass.cleaned);
            self.added.extend(pass.survivors);
        }
    }
}

/// The passes that the next digest takes in.
pub(super) struct Integration {
    passes: Vec<Pass>,
    emergency: Option<SegmentId>,
}

/// The consequences of newly durable bytes.
#[derive(Default)]
pub(super) struct Settlement {
    pub(super) removed: Vec<Segment>,
    pub(super) closed: Vec<Segment>,
    /// Seglets of the removed segments that were announced as coming.
    pub(super) came: usize,
}

impl Ledger {
    pub(super) fn durable(&self) -> LogPosition {
        self.durable
    }

    pub(super) fn segments(&self) -> usize {
        self.in_digest.len()
    }

    /// Segments on backups, without adopted segments that are not released; and how many of them
    /// remain once all passes are part of the log.
    pub(super) fn frames(&self) -> (usize, usize) {
        // Survivors that only a digest which is not yet durable names are in both.
        let in_both: usize = self.digests.iter().map(|it| it.added.len()).sum();
        let taken = self.in_digest.len() + self.also_present.len();
        let (mut staying, adopted) = (self.in_digest.len(), self.adopted.len());
        staying += self.side_segments.len() + self.side_segments_open;
        for pass in self.received.iter().map(|(_, pass)| pass).chain(&self.ready) {
            staying = (staying + pass.survivors.len()).saturating_sub(pass.cleaned.len());
        }
        let named = if self.adopted_named { adopted } else { 0 };
        (taken.saturating_sub(in_both + adopted), staying.saturating_sub(named))
    }

    pub(super) fn digest(&self) -> impl ExactSizeIterator<Item = SegmentId> + '_ {
        self.in_digest.iter().copied()
    }

    /// All segments that a recovery might still read.
    pub(super) fn ids(&self) -> impl Iterator<Item = SegmentId> + '_ {
        let unnamed = self.also_present.keys().filter(|id| !self.in_digest.contains(id));
        self.in_digest.iter().chain(unnamed).copied()
    }

    /// The ids among which there may be survivors that a digest written now does not name. These
    /// are the ids that cleaners may have taken or will take. As long as a segment of a former
    /// generation is here, they include the ids of that generation.
    pub(super) fn unnamed(&self, shared: &Shared) -> UnnamedSurvivors {
        let passes = self.received.iter().map(|(_, pass)| pass).chain(&self.ready);
        let survivors = passes.flat_map(|pass| &pass.survivors).map(|survivor| survivor.id.0);
        let from = survivors.min().unwrap_or(u64::MAX).min(horizon(shared));
        // A generation that takes this log back by that digest has the segments that it names, and
        // no adopted segment that it does not name.
        let lowest = self.in_digest.first().copied();
        let mut unnamed = self.unnamed_before(lowest).cloned().unwrap_or_default();
        unnamed.add(from..u64::MAX);
        unnamed
    }

    /// The unnamed ids of former generations, as long as a segment of these generations is here.
    fn unnamed_before(&self, lowest: Option<SegmentId>) -> Option<&UnnamedSurvivors> {
        (lowest?.0 < self.unnamed.end()).then_some(&self.unnamed)
    }

    /// Prepares for adoption: nothing is known yet of the segments that will be adopted.
    pub(super) fn will_adopt(&mut self, first: SegmentId) {
        (self.unnamed, self.unnamed_says) = (UnnamedSurvivors::default(), None);
        self.unnamed.add(0..first.0);
        self.present_changed = true;
    }

    /// Notes the unnamed ids that a digest in an open head of a former generation lists. The newest
    /// head counts, and all of its digests: the ledger does not know which of them made the log
    /// complete.
    pub(super) fn learn_unnamed(
        &mut self,
        says: SegmentId,
        unnamed: &UnnamedSurvivors,
        first: SegmentId,
    ) {
        if self.unnamed_says.is_some_and(|newer| newer > says) {
            return;
        }
        if self.unnamed_says.replace(says) != Some(says) {
            self.unnamed = UnnamedSurvivors::default();
        }
        let below = unnamed.below(first.0, [].into_iter());
        below.ranges().iter().for_each(|range| self.unnamed.add(range.clone()));
        self.present_changed = true;
    }

    pub(super) fn add_head(&mut self, id: SegmentId) {
        self.in_digest.insert(id);
    }

    pub(super) fn head_closed(&mut self, end: LogPosition, segment: Segment) {
        self.closing.push_back((end, segment));
    }

    pub(super) fn pass_received(&mut self, pass: Pass, position: LogPosition) {
        for survivor in &pass.survivors {
            self.also_present.insert(survivor.id, ());
        }
        self.progress.received += Progress::of(&pass);
        self.received.push((position, pass));
    }

    /// Moves on the passes that no longer wait for anything.
    pub(super) fn update_ready(&mut self, replicator: &mut dyn Replicator) {
        let mut at = 0;
        while at < self.received.len() {
            let (position, pass) = &self.received[at];
            let durable = *position <= self.durable
                && pass.survivors.iter().all(|survivor| replicator.is_durable(survivor.id));
            if durable {
                self.ready.push(self.received.remove(at).1);
            } else {
                at += 1;
            }
        }
    }

    /// Emergency heads that are closed but whose memory is not free yet.
    pub(super) fn emergency_heads(&self) -> usize {
        self.digests.iter().filter(|digest| digest.emergency.is_some()).count()
    }

    pub(super) fn has_ready_pass(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Changes the set of the next digest by all ready passes.
    pub(super) fn integrate(&mut self, emergency: Option<SegmentId>) -> Integration {
        let passes = std::mem::take(&mut self.ready);
        for pass in &passes {
            for segment in &pass.cleaned {
                self.in_digest.remove(&segment.id);
                self.also_present.insert(segment.id, ());
            }
            self.in_digest.extend(pass.survivors.iter().map(|segment| segment.id));
        }
        if let Some(emergency) = emergency {
            self.in_digest.remove(&emergency);
            self.also_present.insert(emergency, ());
        }
        Integration { passes, emergency }
    }

    /// Undoes [`Ledger::add_head`]: the head could not be opened.
    pub(super) fn remove_head(&mut self, head: SegmentId) {
        self.in_digest.remove(&head);
    }

    /// Undoes [`Ledger::integrate`]: the digest could not be written.
    pub(super) fn undo(&mut self, integration: Integration) {
        let mut comes_back = |id: SegmentId| {
            self.also_present.remove(&id);
            self.in_digest.insert(id);
        };
        integration.emergency.into_iter().for_each(&mut comes_back);
        for pass in &integration.passes {
            pass.cleaned.iter().for_each(|segment| comes_back(segment.id));
        }
        for survivor in integration.passes.iter().flat_map(|pass| &pass.survivors) {
            self.in_digest.remove(&survivor.id);
        }
        self.ready.extend(integration.passes);
    }

    pub(super) fn digest_written(&mut self, digest: PendingDigest) {
        self.progress.named += digest.passes;
        self.digests.push_back(digest);
    }

    /// Whether a turn with this durable position has nothing to do here.
    #[inline]
    pub(super) fn is_quiet(&self, durable: LogPosition) -> bool {
        durable == self.durable
            && self.received.is_empty()
            && self.ready.is_empty()
            && self.digests.is_empty()
            && self.closing.is_empty()
            && !self.present_changed
    }

    /// Learns how far the heads are durable.
    pub(super) fn settle(&mut self, durable: LogPosition) -> Settlement {
        let mut settled = Settlement::default();
        debug_assert!(durable >= self.durable, "the durable position never goes back");
        self.durable = durable;
        while self.closing.front().is_some_and(|(end, _)| self.covers(*end)) {
            settled.closed.extend(self.closing.pop_front().map(|(_, segment)| segment));
        }
        while self.digests.front().is_some_and(|digest| digest.position <= self.durable) {
            let Some(mut digest) = self.digests.pop_front() else { break };
            digest.removed.extend(digest.emergency.take());
            for segment in &digest.removed {
                self.also_present.remove(&segment.id);
            }
            for segment in &digest.added {
                self.also_present.remove(&segment.id);
            }
            self.progress.freed += digest.passes;
            settled.came += digest.coming;
            settled.removed.extend(digest.removed);
            settled.closed.extend(digest.added);
            self.present_changed = true;
        }
        settled
    }

    /// Whether a head is durable and closed. That is known once a later head is durable. Until then
    /// a copy of the head may be missing, which must be made of the same bytes.
    fn covers(&self, end: LogPosition) -> bool {
        end.segment < self.durable.segment
    }

    /// Finds a segment that no cleaner has: it is closed and not yet durable, or part of a pass
    /// that is not yet part of the durable log. It stays as it is until the log's thread takes a
    /// turn.
    pub(super) fn segment(&self, id: SegmentId) -> Option<&Segment> {
        let passes = self.received.iter().map(|(_, pass)| pass).chain(&self.ready);
        let of_passes = passes.flat_map(|pass| pass.survivors.iter().chain(&pass.cleaned));
        let of_digests = self
            .digests
            .iter()
            .flat_map(|it| it.added.iter().chain(&it.removed).chain(&it.emergency));
        let closing = self.closing.iter().map(|(_, segment)| segment);
        let others = self.adopted.iter().chain(&self.side_segments);
        let all = closing.chain(of_passes).chain(of_digests).chain(others);
        all.into_iter().find(|segment| segment.id == id)
    }

    /// Counts a new side segment as present from now on.
    pub(super) fn on_side_segment_opened(&mut self, id: SegmentId) {
        self.also_present.insert(id, ());
        self.side_segments_open += 1;
        self.present_changed = true;
    }

    pub(super) fn on_side_segment_closed(&mut self, segment: Segment) {
        self.undurable_side_segments.push((segment.id, segment.length as u64));
        self.side_segments.push(segment);
        self.side_segments_open -= 1;
        self.present_changed = true;
    }

    /// Bytes of side segments that are full and not durable.
    pub(super) fn undurable_side_bytes(&mut self, replicator: &mut dyn Replicator) -> u64 {
        self.undurable_side_segments.retain(|(id, _)| !replicator.is_durable(*id));
        self.undurable_side_segments.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The ids of full side segments.
    #[cfg(all(test, not(loom)))]
    pub(super) fn side_segment_ids(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.side_segments.iter().map(|segment| segment.id)
    }

    /// Removes some full side segments from the account, to take them in or to free them.
    pub(super) fn take_side_segments(&mut self, which: impl Fn(SegmentId) -> bool) -> Vec<Segment> {
        self.present_changed = true;
        self.side_segments.extract_if(.., |segment| which(segment.id)).collect()
    }

    /// Forgets a side segment that is freed; it may not have been full.
    pub(super) fn on_side_segment_freed(&mut self, id: SegmentId, was_open: bool) {
        self.also_present.remove(&id);
        self.undurable_side_segments.retain(|(other, _)| *other != id);
        self.side_segments_open -= usize::from(was_open);
        self.present_changed = true;
    }

    /// Whether a survivor is part of a pass that no digest has taken in.
    pub(super) fn awaits(&self, survivor: SegmentId) -> bool {
        let passes = self.received.iter().map(|(_, pass)| pass).chain(&self.ready);
        passes.flat_map(|pass| &pass.survivors).any(|segment| segment.id == survivor)
    }

    pub(super) fn adopted(&self) -> impl Iterator<Item = &Segment> {
        self.adopted.iter()
    }

    /// Whether the log has a segment with this id, adopted or its own.
    pub(super) fn has_adopted(&self, id: SegmentId) -> bool {
        self.in_digest.contains(&id) || self.also_present.contains_key(&id)
    }

    pub(super) fn adopt(&mut self, segment: Segment) {
        self.also_present.insert(segment.id, ());
        self.adopted.push(segment);
        self.present_changed = true;
    }

    /// Lets the next digest name the adopted segments. They look as old as if no ids had been
    /// skipped between the former log's last id and `first`, the first of this log.
    pub(super) fn name_adopted(&mut self, first: SegmentId) {
        let newest = self.adopted.iter().map(|it| it.id.0).max().unwrap_or(0);
        for segment in &mut self.adopted {
            segment.created = first.0.saturating_sub(1 + (newest - segment.id.0));
            self.also_present.remove(&segment.id);
            self.in_digest.insert(segment.id);
        }
        let adopted = self.in_digest.range(..first).map(|id| id.0);
        self.unnamed = self.unnamed.below(first.0, adopted);
        self.adopted_named = true;
        self.present_changed = true;
    }

    /// Undoes [`Ledger::name_adopted`]: no digest names them after all.
    pub(super) fn unname_adopted(&mut self) {
        for segment in &self.adopted {
            self.in_digest.remove(&segment.id);
            self.also_present.insert(segment.id, ());
        }
        self.adopted_named = false;
        self.present_changed = true;
    }

    pub(super) fn release_adopted(&mut self) -> Vec<Segment> {
        self.present_changed = true;
        std::mem::take(&mut self.adopted)
    }

    /// Removes the adopted segments from the account; the flag says whether a digest names them.
    pub(super) fn abandon_adopted(&mut self) -> (Vec<Segment>, bool) {
        let segments = std::mem::take(&mut self.adopted);
        for segment in &segments {
            self.also_present.remove(&segment.id);
        }
        self.present_changed = true;
        let are_named = self.adopted_named && !segments.is_empty();
        (segments, are_named)
    }

    /// Tells the cleaners which segments a recovery might still read, as soon as it can.
    #[inline]
    pub(super) fn publish_present(&mut self, shared: &Shared) {
        if self.present_changed {
            self.try_publish_present(shared);
        }
    }

    #[inline(never)]
    fn try_publish_present(&mut self, shared: &Shared) {
        if shared.try_publish_present(self.present(shared)) {
            self.present_changed = false;
        }
    }

    /// Does so now.
    pub(super) fn publish_present_now(&mut self, shared: &Shared) {
        shared.publish_present(self.present(shared));
        self.present_changed = false;
    }

    fn present(&self, shared: &Shared) -> PresentSegments {
        let horizon = horizon(shared);
        let ids = self.in_digest.iter().chain(self.also_present.keys()).map(|id| id.0);
        let lowest = ids.clone().min().map(SegmentId);
        PresentSegments::new(horizon, ids, self.unnamed_before(lowest).cloned().unwrap_or_default())
    }
}

/// Ids from here on are not known: a cleaner may have taken them without reporting yet.
fn horizon(shared: &Shared) -> u64 {
    // A cleaner announces a lower bound before it takes an id, and the counter is read first. So
    // every id taken after this is at least `next`, and every id taken before is announced.
    let next = shared.next_segment.load(Ordering::SeqCst);
    let announced = shared.in_flight.iter().map(|bound| bound.load(Ordering::SeqCst)).min();
    next.min(announced.unwrap_or(u64::MAX))
}
