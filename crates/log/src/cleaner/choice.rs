//! The choice of the segments to clean next, among all that may be cleaned.
//!
//! **For compaction**: the segment that gives back most memory for each byte that must be copied.
//! **For combined cleaning**: cost-benefit with the segment's age, `(1 − u) × age / u`. `u` is the
//! share of the segment's space on backups that is still live. Age is counted in segments opened
//! since the data was put together: the log's own clock. (Paper §9: object age, the original
//! formula, does far worse. `thunderhead-bench log lfs` shows it.)
//!
//! **For sweeping**, which is combined cleaning before anything is compacted: several almost empty
//! segments, the lowest ids first. Entries mostly guard against lower ids, and segments that leave
//! together leave no tombstones for each other. Compaction passes these segments over, unless
//! writers are blocked on memory.
//!
//! **Before all of that**: spent segments, of which nothing would be left and no entry needs a
//! look. A pass takes few of them, because the log's thread gives their memory back in one turn.
//!
//! The reactor's counts tell how much of a segment is dead, except for entries of dropped tablets
//! and tombstones that are no longer needed. These are found by a scan of the segment once an event
//! may have freed them.

use crate::append::candidates::{Candidate, Candidates};
use crate::append::shared::Shared;
use crate::options::Options;
use std::sync::atomic::Ordering;

/// Whether a candidate with so many live bytes may be part of a pass.
type Rule = fn(&Candidate, usize, &Options) -> bool;

fn is_worth_combining(candidate: &Candidate, live: usize, options: &Options) -> bool {
    let disk_bytes = candidate.segment.disk_bytes;
    // A short segment is worth taking however full it is: two of them make one.
    disk_bytes * 2 <= options.segment_bytes
        || live as f64 <= options.cleaner.utilization_max * disk_bytes as f64
}

fn is_all_but_empty(candidate: &Candidate, live: usize, options: &Options) -> bool {
    live as f64 <= options.cleaner.utilization_swept * candidate.segment.disk_bytes as f64
}

impl Candidates {
    /// The segment whose compaction frees most for its cost, if any frees a seglet.
    pub(crate) fn pick_for_compaction(&mut self, shared: &Shared) -> Option<Candidate> {
        let seglet_bytes = shared.memory.seglet_bytes();
        let waste = crate::memory::segment::straddle_bytes(seglet_bytes);
        let is_short = shared.sums.is_short.load(Ordering::Relaxed);
        let mut best: Option<(f64, usize)> = None;
        for (at, candidate) in self.list.iter().enumerate() {
            let seglets = candidate.segment.seglets.len();
            let live = candidate.live_bytes(&shared.memory);
            if !is_short && is_all_but_empty(candidate, live, &shared.options) {
                // The segment is swept soon, and that is cheaper.
                continue;
            }
            // The copy's fillings may differ from the present ones; half the worst case is already
            // pessimistic.
            let live = live + seglets * waste / 2;
            let after = live.div_ceil(seglet_bytes).max(1);
            if after >= seglets {
                continue;
            }
            let worth = (seglets - after) as f64 / (live + seglet_bytes / 16) as f64;
            if best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, at));
            }
        }
        best.map(|(_, at)| self.list.swap_remove(at))
    }

    /// The segments of the next pass of combined cleaning.
    ///
    /// Cost-benefit may rank old, almost full segments first, which free nothing if a pass has too
    /// few of them. A log that waits for memory opens no segments, so its clock stands still and
    /// the ranking would never change. Then the pass takes the segments that give back most memory.
    pub(crate) fn pick_for_combining(&mut self, shared: &Shared) -> Vec<Candidate> {
        let seglet_bytes = shared.memory.seglet_bytes();
        let by_worth = self.best_by_worth(shared, is_worth_combining);
        let picked = self.take_affordable(shared, &by_worth);
        if !picked.is_empty() {
            return picked;
        }
        if shared.frames.is_high() {
            // However little memory it frees: the segments that need the fewest survivors.
            let by_live = self.best(shared, is_worth_combining, |_, live| -(live as f64));
            let picked = self.take_affordable(shared, &by_live);
            if !picked.is_empty() {
                return picked;
            }
        }
        let by_gain = self.best(shared, is_worth_combining, |candidate, live| {
            (candidate.segment.seglets.len() * seglet_bytes) as f64 - live as f64
        });
        self.take_affordable(shared, &by_gain)
    }

    /// Picks the segments of a pass that copies next to nothing; there may be none. It never picks
    /// a single segment: its remains would be a segment too.
    pub(crate) fn pick_for_sweeping(&mut self, shared: &Shared) -> Vec<Candidate> {
        let by_id = |candidate: &Candidate, _| -(candidate.segment.id.0 as f64);
        let oldest = self.best(shared, is_all_but_empty, by_id);
        if oldest.len() < 2 {
            return Vec::new();
        }
        self.take_affordable(shared, &oldest)
    }

    /// Picks segments of which nothing is left once they leave together; there may be none.
    pub(crate) fn pick_spent(&mut self, shared: &Shared) -> Vec<Candidate> {
        if shared.options.cleaner.utilization_swept == 0.0 {
            return Vec::new();
        }
        let all = self.list.iter().enumerate();
        let empty = all.filter(|(_, candidate)| candidate.segment.holds_nothing(&shared.memory));
        let mut empty: Vec<(u64, usize)> =
            empty.map(|(at, candidate)| (candidate.segment.id.0, at)).collect();
        if empty.is_empty() {
            return Vec::new();
        }
        empty.sort_unstable();
        let present = shared.present();
        let (mut ids, mut places): (Vec<u64>, Vec<usize>) = (Vec::new(), Vec::new());
        for (id, at) in empty {
            let leaves = |other| other == id || ids.binary_search(&other).is_ok();
            if self.list[at].segment.is_spent(&shared.memory, &present, leaves) {
                ids.push(id);
                places.push(at);
            }
            if ids.len() == shared.options.cleaner.segments_per_pass {
                break;
            }
        }
        places.sort_unstable_by(|a, b| b.cmp(a));
        places.into_iter().map(|at| self.list.swap_remove(at)).collect()
    }

    /// The places of the best candidates by cost and benefit, among the candidates that
    /// `may_be_taken` admits. If whole segments are evicted, age does not count: the oldest
    /// segments leave soon, and to copy them first would be for nothing.
    fn best_by_worth(&self, shared: &Shared, may_be_taken: Rule) -> Vec<usize> {
        let seglet_bytes = shared.memory.seglet_bytes();
        let now = shared.next_segment.load(Ordering::Relaxed);
        let evicts = shared.evicts_in_passes();
        self.best(shared, may_be_taken, |candidate, live| {
            // The end of a short segment's last seglet is space too.
            let segment = &candidate.segment;
            let space = segment.disk_bytes.max(segment.seglets.len() * seglet_bytes);
            let utilization = (live as f64 / space as f64).max(0.001);
            let age = match evicts {
                true => 1.0,
                false => (now - segment.created.min(now) + 1) as f64,
            };
            (1.0 - utilization).max(0.001) * age / utilization
        })
    }

    /// The places of the best candidates for a pass, best first.
    fn best(
        &self,
        shared: &Shared,
        may_be_taken: Rule,
        worth: impl Fn(&Candidate, usize) -> f64,
    ) -> Vec<usize> {
        let mut ranked: Vec<(f64, usize)> = Vec::new();
        for (at, candidate) in self.list.iter().enumerate() {
            let live = candidate.live_bytes(&shared.memory);
            if may_be_taken(candidate, live, &shared.options) {
                ranked.push((worth(candidate, live), at));
            }
        }
        let most = shared.options.cleaner.segments_per_pass.min(ranked.len());
        if most > 0 && most < ranked.len() {
            ranked.select_nth_unstable_by(most - 1, |a, b| b.0.total_cmp(&a.0));
        }
        ranked.truncate(most);
        ranked.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        ranked.into_iter().map(|(_, at)| at).collect()
    }

    /// Takes as many of the ranked candidates as there is memory to copy them to, if the pass is
    /// sure to free at least as much memory as it takes.
    fn take_affordable(&mut self, shared: &Shared, ranked: &[usize]) -> Vec<Candidate> {
        let keep = shared.reserves.for_survivors();
        let affordable = shared.memory.free_seglets().saturating_sub(keep);
        let (room, segment_bytes) = (shared.frames.room(), shared.options.segment_bytes);
        let mut chosen: Vec<usize> = Vec::new();
        let (mut seglets, mut live, mut disk, mut bytes) = (0, 0, 0, 0);
        for at in ranked {
            let candidate = &self.list[*at];
            let more = candidate.bytes_after(&shared.memory);
            let survivors = shared.options.survivors_of(bytes + more);
            if shared.stock_for(bytes + more) > affordable || survivors > room {
                continue;
            }
            bytes += more;
            seglets += candidate.segment.seglets.len();
            live += candidate.live_bytes(&shared.memory);
            disk += candidate.segment.disk_bytes;
            chosen.push(*at);
        }
        // Each survivor ends in a seglet that may be almost empty.
        let seglet_bytes = shared.memory.seglet_bytes();
        let filled = seglet_bytes - crate::memory::segment::straddle_bytes(seglet_bytes) / 2;
        let after = live.div_ceil(filled) + live / segment_bytes;
        let frees_memory = after < seglets;
        let frees_disk = after == seglets && live + live / 4 < disk;
        let frees_frames = shared.options.survivors_of(bytes) < chosen.len();
        let is_worth_it = match shared.frames.is_high() {
            true => frees_frames,
            false => frees_memory || frees_disk,
        };
        if !is_worth_it {
            return Vec::new();
        }
        chosen.sort_unstable_by(|a, b| b.cmp(a));
        chosen.into_iter().map(|at| self.list.swap_remove(at)).collect()
    }

    /// Picks a segment that may have more useless entries than are counted, if there is one.
    pub(crate) fn pick_for_rescan(&mut self, shared: &Shared) -> Option<Candidate> {
        let drops = shared.sums.drops.load(Ordering::Acquire);
        let now = shared.next_segment.load(Ordering::Relaxed);
        let patience = 4 + self.list.len() as u64 / 2;
        let at = self.list.iter().position(|candidate| {
            let segment = &candidate.segment;
            let tombstones = segment.tombstone_bytes.saturating_sub(candidate.slack_bytes);
            segment.drops < drops
                || tombstones * 16 > segment.length
                    && now.saturating_sub(candidate.looked_at) > patience
        })?;
        Some(self.list.swap_remove(at))
    }
}
