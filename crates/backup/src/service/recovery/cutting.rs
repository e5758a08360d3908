//! A segment that was read becomes parts, in slices.

use super::{Job, KeptData, Recoveries};
use crate::error::Unserved;
use crate::reader::ReplicaBytes;
use crate::store::Store;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_log::Damage;
use thunderhead_log::filter::{Filter, Partitions, SparePieces};
use thunderhead_runtime::Time;
use thunderhead_runtime::slice::Budget;

/// The work of one step.
const ENTRIES: usize = 16;
const BYTES: usize = 8 << 10;

/// The cost of cutting, by entry and by bytes read and written.
const ENTRY_NS: u64 = 150;
const KILOBYTE_NS: u64 = 200;

/// The cost of freeing memory, and of keeping it for later parts.
const FREED_KILOBYTE_NS: u64 = 100;
const KEPT_PIECE: Duration = Duration::from_nanos(100);

/// The memory that is kept for later parts: as much as two segments of the usual length need.
const SPARE_BYTES_MAX: u64 = 16 << 20;

pub(super) struct CuttingJob {
    pub(super) job: Job,
    replica: ReplicaBytes,
    partitions: Rc<Partitions>,
    filter: Filter,
}

impl CuttingJob {
    pub(super) fn new(job: Job, replica: ReplicaBytes, partitions: Rc<Partitions>) -> CuttingJob {
        let filter = Filter::new(job.id.segment, &partitions, job.wanted.clone());
        CuttingJob { job, replica, partitions, filter }
    }

    /// Cuts one step of the segment. Returns whether there is more, and whether this slice has
    /// time for it.
    fn step(
        &mut self,
        spares: &mut SparePieces,
        budget: &mut Budget,
    ) -> Result<(bool, bool), Damage> {
        self.filter.swap_spares(spares);
        let step = self.filter.step(&self.partitions, self.replica.bytes(), ENTRIES, BYTES);
        self.filter.swap_spares(spares);
        let progress = step?;
        let took = progress.entries as u64 * ENTRY_NS + progress.bytes as u64 * KILOBYTE_NS / 1024;
        Ok((progress.more, budget.spend_uncut(Duration::from_nanos(took.max(200)))))
    }
}

/// The time that it takes to free memory.
fn freeing(bytes: usize) -> Duration {
    Duration::from_nanos(200 + bytes as u64 * FREED_KILOBYTE_NS / 1024)
}

impl Recoveries {
    /// Cuts segments and frees dropped parts within the budget. Returns whether there is more to
    /// do.
    pub(in crate::service) fn work(
        &mut self,
        store: &Store,
        now: Time,
        budget: &mut Budget,
    ) -> bool {
        self.sweep(store, now);
        if self.waste.is_empty() && self.frees_spares {
            while let Some(bytes) = self.spares.free_one() {
                if !budget.spend(freeing(bytes)) {
                    return true;
                }
            }
        }
        while let Some(part) = self.waste.last_mut() {
            let has_room = self.spares.bytes() < SPARE_BYTES_MAX && !self.frees_spares;
            let spares = has_room.then_some(&mut self.spares);
            let Some(bytes) = part.drop_piece(spares) else {
                self.waste.pop();
                continue;
            };
            let took = if has_room { KEPT_PIECE } else { freeing(bytes) };
            if !budget.spend(took) {
                return true;
            }
        }
        while let Some(cutting) = self.cutting.front_mut() {
            let is_wanted =
                |job: &Job| self.of.get(&job.of).is_some_and(|it| it.number == job.recovery);
            if !is_wanted(&cutting.job) {
                self.drop_cutting();
                continue;
            }
            let (more, has_time) = match cutting.step(&mut self.spares, budget) {
                Ok(done) => done,
                Err(damage) => {
                    if let Some(job) = self.drop_cutting() {
                        self.give_up(&job, Unserved::Damaged(damage));
                    }
                    continue;
                }
            };
            if !more && let Some(cutting) = self.cutting.pop_front() {
                self.on_segment_cut(cutting, now);
            }
            if !has_time {
                return !self.cutting.is_empty();
            }
        }
        false
    }

    /// Drops the segment that is being cut, and its parts.
    fn drop_cutting(&mut self) -> Option<Job> {
        let CuttingJob { job, filter, .. } = self.cutting.pop_front()?;
        self.waste.extend(filter.finish().parts);
        Some(job)
    }

    fn on_segment_cut(&mut self, cutting: CuttingJob, now: Time) {
        let CuttingJob { job, replica, filter, .. } = cutting;
        let cut = filter.finish();
        // Only the end of a segment that was open may be missing.
        if let Some(torn) = cut.torn.filter(|_| replica.header().closed) {
            self.waste.extend(cut.parts);
            return self.give_up(&job, Unserved::Damaged(torn));
        }
        // Partitions that were not wanted have no part, not even a header.
        let parts = (0..).zip(cut.parts).filter(|(_, part)| !part.is_empty());
        let parts = parts.map(|(partition, part)| (partition, KeptData::Cut(part))).collect();
        self.keep_parts(&job, parts, now);
    }
}
