//! The cleaner: frees the memory of segments whose entries have died.
//!
//! A [`Cleaner`] does one piece of work per [`Cleaner::step`]. It compacts one segment in memory;
//! or it cleans several together into survivors and takes them out of the log; or it scans a
//! segment to count its useless entries; or it finds nothing to do. Give each cleaner a thread that
//! steps in a loop ([`CleanerThreads`]), or step one between operations, as a simulator does.
//! Several may run at once.
//!
//! - [`balancer`] decides which kind of work is due.
//! - [`choice`] picks among the [segments that may be cleaned](crate::append::candidates).
//! - [`mover`] copies live entries and updates the index; it holds the rules for dropping entries.
//! - [`compact`] and [`combine`] are the two levels.
//! - [`expiry`] finds expired items, and [`eviction`] finds items of caches that make room.
//! - [`phase`] names the phases of a step, for measurements.
//! - [`threads`] runs cleaners for programs without a runtime of their own.
//!
//! Cleaners never touch a head, never wait for the reactor and never free memory that it might
//! still read. Memory that compaction unlinks waits in limbo until the reactor has taken a turn.
//! Memory that combined cleaning unlinks is freed by the reactor itself, once a durable digest
//! allows it.

mod balancer;
mod choice;
mod combine;
mod compact;
mod eviction;
pub(crate) mod expiry;
mod mover;
mod phase;
mod threads;

use crate::append::Log;
use crate::append::candidates::{Candidate, Candidates};
use crate::append::shared::Shared;
use crate::limits::CLEANERS_MAX;
use crate::memory::quiescence::Reader;
use crate::sync::lock;
use balancer::Verdict;
use combine::Goal;
pub use phase::Phase;
use phase::Watch;
use std::sync::Arc;
use std::sync::atomic::Ordering;
pub use threads::CleanerThreads;

impl Log {
    /// Returns a cleaner for this log: give it a thread, or step it yourself. `None` while
    /// [`CLEANERS_MAX`] other cleaners exist.
    #[must_use]
    pub fn cleaner(&self) -> Option<Cleaner> {
        Cleaner::new(&self.shared)
    }

    /// Whether a cleaner would find that memory is short, so that it is worth waking one. Cheap.
    #[must_use]
    pub fn wants_cleaning(&self) -> bool {
        balancer::verdict(&self.shared) != Verdict::Rest
    }
}

/// The work that a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There was no work, or none that could be done now.
    Idle,
    /// A segment was compacted in memory.
    Compacted,
    /// Segments were cleaned into survivors.
    Combined,
    /// A segment was scanned for useless entries, or for items that have expired.
    Rescanned,
}

/// One kind of work; returns `None` if there is none to do.
type Work = fn(&mut Cleaner, &mut Watch<'_>) -> Option<Step>;

/// A cleaner of one log, from [`Log::cleaner`](crate::Log::cleaner): frees the memory of
/// overwritten and deleted entries.
///
/// Give it a thread that calls [`Cleaner::step`] in a loop, as [`CleanerThreads`] does, or step it
/// between operations, as a simulator does. Several may run at once. A cleaner never waits for the
/// log's thread, nor that thread for a cleaner. The memory that it frees can be used once the log
/// has taken a [turn](crate::Log#turns), and some of it only once everything that was appended
/// before is durable.
pub struct Cleaner {
    shared: Arc<Shared>,
    reader: Reader,
    place: usize,
    /// The last step scanned a segment, which frees nothing: next comes another kind of work.
    rescanned: bool,
}

impl Cleaner {
    fn new(shared: &Arc<Shared>) -> Option<Cleaner> {
        let place = {
            let mut candidates = lock(&shared.candidates);
            let place = (0..CLEANERS_MAX).find(|place| !candidates.cleaners[*place])?;
            candidates.cleaners[place] = true;
            place
        };
        let reader = shared.readers.register()?;
        Some(Cleaner { shared: Arc::clone(shared), reader, place, rescanned: false })
    }

    /// Does one piece of work, of at most a few milliseconds with segments of the usual size.
    pub fn step(&mut self) -> Step {
        self.step_watched(&mut |_| {})
    }

    /// Does the same as [`Cleaner::step`], and calls `watch` whenever a phase begins. A phase ends
    /// when the next one begins, the last one with the step. If one kind of work has nothing to do,
    /// or no memory to do it in, the step goes on with [`Phase::Picking`] for another kind.
    pub fn step_watched(&mut self, watch: &mut dyn FnMut(Phase)) -> Step {
        watch(Phase::Picking);
        let shared = Arc::clone(&self.shared);
        {
            let mut candidates = lock(&shared.candidates);
            shared.take_closed(&mut candidates);
            shared.free_limbo(&mut candidates);
        }
        if let Some(step) = self.look(Candidates::pick_for_expiry, expiry::look, watch) {
            return step;
        }
        if let Some(step) = self.evict(watch) {
            return step;
        }
        let verdict = balancer::verdict(&shared);
        // This look frees nothing by itself: if memory is short, other work comes between two.
        if (verdict == Verdict::Rest || !self.rescanned)
            && let Some(step) = self.look(Candidates::pick_for_eviction, eviction::look, watch)
        {
            self.rescanned = true;
            return step;
        }
        if verdict == Verdict::Rest {
            return Step::Idle;
        }
        if let Some(step) = self.drop_spent(verdict, watch) {
            return step;
        }
        match verdict {
            Verdict::Combine => self.first_of(&[Self::combine, Self::compact], watch),
            _ => self.first_of(&[Self::sweep, Self::compact, Self::combine], watch),
        }
    }

    /// Does the first kind of work that finds something to do.
    fn first_of(&mut self, works: &[Work], watch: &mut Watch<'_>) -> Step {
        // After a table was dropped many segments may want a scan at once: work that frees memory
        // comes between two scans.
        let rescan: Work = Self::rescan;
        let (before, behind) =
            if self.rescanned { (None, Some(rescan)) } else { (Some(rescan), None) };
        let mut order = before.into_iter().chain(works.iter().copied()).chain(behind);
        let step = order.find_map(|work| work(self, watch)).unwrap_or(Step::Idle);
        self.rescanned = step == Step::Rescanned;
        step
    }

    /// Looks through a segment, if one is due.
    fn look(
        &mut self,
        pick: fn(&mut Candidates, &Shared) -> Option<Candidate>,
        look: fn(&Shared, &mut Candidate),
        watch: &mut Watch<'_>,
    ) -> Option<Step> {
        let mut candidate = pick(&mut lock(&self.shared.candidates), &self.shared)?;
        watch(Phase::Looking);
        look(&self.shared, &mut candidate);
        watch(Phase::HandingOn);
        lock(&self.shared.candidates).put_back(candidate);
        Some(Step::Rescanned)
    }

    fn compact(&mut self, watch: &mut Watch<'_>) -> Option<Step> {
        if !self.shared.compacts() {
            return None;
        }
        let segment = lock(&self.shared.candidates).pick_for_compaction(&self.shared)?;
        let (candidate, worked) = compact::compact(&self.shared, &mut self.reader, segment, watch);
        lock(&self.shared.candidates).put_back(candidate);
        if !worked {
            watch(Phase::Picking);
            return None;
        }
        Some(Step::Compacted)
    }

    /// Whether no writer is blocked on memory. Combined cleaning frees memory only at the next
    /// durable digest.
    fn can_wait(&self) -> bool {
        !self.shared.sums.is_short.load(Ordering::Relaxed)
    }

    /// Removes spent segments from the log. While a writer is blocked on memory they are compacted
    /// like others, which frees their memory sooner; but not if the log has too many segments.
    fn drop_spent(&mut self, verdict: Verdict, watch: &mut Watch<'_>) -> Option<Step> {
        let compacts = self.shared.compacts() && verdict == Verdict::Compact;
        if compacts && !self.can_wait() {
            return None;
        }
        self.combine_picked(Candidates::pick_spent, Goal::Sweep, watch)
    }

    /// Combined cleaning of almost empty segments.
    fn sweep(&mut self, watch: &mut Watch<'_>) -> Option<Step> {
        if !self.can_wait() {
            return None;
        }
        self.combine_picked(Candidates::pick_for_sweeping, Goal::Sweep, watch)
    }

    /// Evicts the objects of caches in a segment, if whole segments are to be evicted.
    fn evict(&mut self, watch: &mut Watch<'_>) -> Option<Step> {
        self.combine_picked(Candidates::pick_for_eviction_pass, Goal::Evict, watch)
    }

    fn combine(&mut self, watch: &mut Watch<'_>) -> Option<Step> {
        self.combine_picked(Candidates::pick_for_combining, Goal::Combine, watch)
    }

    fn combine_picked(
        &mut self,
        pick: fn(&mut Candidates, &Shared) -> Vec<Candidate>,
        goal: Goal,
        watch: &mut Watch<'_>,
    ) -> Option<Step> {
        // The reactor must know the survivors of the pass before, before this one takes new ids.
        if self.shared.in_flight[self.place].load(Ordering::SeqCst) != u64::MAX {
            return None;
        }
        let segments = pick(&mut lock(&self.shared.candidates), &self.shared);
        if segments.is_empty() {
            return None;
        }
        let (shared, reader) = (&self.shared, &mut self.reader);
        match combine::combine(shared, reader, self.place, segments, goal, watch) {
            Ok(()) => Some(Step::Combined),
            Err(segments) => {
                let mut candidates = lock(&self.shared.candidates);
                segments.into_iter().for_each(|segment| candidates.put_back(segment));
                watch(Phase::Picking);
                None
            }
        }
    }

    fn rescan(&mut self, watch: &mut Watch<'_>) -> Option<Step> {
        let mut candidate = lock(&self.shared.candidates).pick_for_rescan(&self.shared)?;
        watch(Phase::Looking);
        compact::rescan(&self.shared, &mut candidate);
        watch(Phase::HandingOn);
        self.shared.sums.counters.rescans.fetch_add(1, Ordering::Relaxed);
        lock(&self.shared.candidates).put_back(candidate);
        Some(Step::Rescanned)
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        lock(&self.shared.candidates).cleaners[self.place] = false;
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
