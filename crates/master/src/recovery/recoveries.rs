//! The recoveries of a shard: several partitions at once, of one master or of several.
//!
//! They share the shard's slices in turn, the memory for fetched bytes, and the bound on how far
//! they may be ahead of the backups that replicate their entries.
//!
//! A recovery does not begin twice. A later recovery of a tablet replaces an earlier one, which is
//! dropped completely. An earlier one waits, for ever if need be: the coordinator awaits it no
//! longer. But a recovery that has reported completion is not dropped before the coordinator
//! answers: the coordinator may have recorded some of its tablets as this master's by then, and no
//! other master has them.

use super::buffers::Buffers;
use super::rebuilt::RebuiltMasters;
use super::{AnswerEffect, Next, Recovery, RecoveryResources};
use crate::clients::Clients;
use crate::coordinator_client::{CoordinatorClient, QuestionId};
use crate::options::Options;
use crate::refusal::Refusal;
use crate::replication::{AdoptedReplicas, OwnBackup};
use std::collections::VecDeque;
use thunderhead_log::Log;
use thunderhead_rpc::{CallError, CallId, Context};
use thunderhead_runtime::Time;
use thunderhead_runtime::slice::Budget;
use thunderhead_wire::control::Recover;
use thunderhead_wire::{KeyHash, LogPosition, MasterId, RecoveryId, Status, TableId, TabletRange};

/// The maximum number of recoveries at once.
const RUNNING_MAX: usize = 8;

/// The maximum number of remembered finished tasks.
const DONE_MAX: usize = 256;

/// Bytes that are fetched and not replayed, of all together.
const FETCHED_BYTES_MAX: usize = 32 << 20;

/// The same if a log is taken back: segments come whole, and the shard does nothing else. A higher
/// bound would not be faster: new memory costs more than reading into it.
const TAKEN_BACK_BYTES_MAX: usize = 64 << 20;

/// Bytes that went into the head and are not durable.
const AHEAD_BYTES_MAX: u64 = 8 << 20;

/// The same for bytes in side segments: four segments of the usual size.
const BESIDE_BYTES_MAX: u64 = 32 << 20;

/// Microseconds that the coordinator waits if another recovery is in the way.
const BUSY_US: u32 = 50_000;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Recoveries {
    running: Vec<Recovery>,
    /// The recovery whose slice is next.
    next: usize,
    /// The last finished tasks, by master, recovery and partition: a delayed message may ask for
    /// one of them once more.
    done: VecDeque<(MasterId, RecoveryId, u32)>,
    ahead: ReplayAhead,
    buffers: Buffers,
    /// A log was taken back, or was to be: once in a shard's generation.
    took_back: bool,
    rebuilt: RebuiltMasters,
}

/// The result of a slice of work.
pub(crate) struct WorkResult {
    pub(crate) again: bool,
    pub(crate) wake: Time,
    /// Memory is short.
    pub(crate) is_short: bool,
    /// The reasons of failed recoveries.
    pub(crate) failures: Vec<String>,
}

impl Recoveries {
    /// The number of recoveries that run.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.running.len()
    }

    /// Whether [`Recoveries::work`] has something to do: a recovery runs, or buffers are to be
    /// freed.
    pub(crate) fn has_work(&self) -> bool {
        !self.running.is_empty() || !self.buffers.is_empty()
    }

    /// Whether a key belongs to a tablet that is in the log but must not be served yet.
    pub(crate) fn hides(&self, table: TableId, hash: KeyHash) -> bool {
        self.running.iter().any(|recovery| recovery.hides(table, hash))
    }

    /// Whether keys of a range are about to be rebuilt, or are being so.
    pub(crate) fn brings(&self, range: TabletRange) -> bool {
        self.running.iter().any(|recovery| {
            let tablets = &recovery.task().tablets;
            tablets.iter().any(|it| it.range.overlaps(&range))
        })
    }

    /// Bytes replayed, and the expected total; `None` if no recovery runs.
    pub(crate) fn progress(&self) -> Option<(u64, u64)> {
        let progress = self.running.iter().map(|recovery| recovery.progress());
        progress.reduce(|one, other| (one.0 + other.0, one.1 + other.1))
    }

    /// Whether a task was begun or done before.
    pub(crate) fn knows(&self, task: &Recover) -> bool {
        let is_here = self.running.iter().any(|recovery| {
            let it = recovery.task();
            (it.crashed, it.recovery, it.partition) == (task.crashed, task.recovery, task.partition)
                && it.tablets == task.tablets
        });
        is_here || self.done.contains(&(task.crashed, task.recovery, task.partition))
    }

    /// Makes room for a task, by dropping the recoveries that it replaces. Returns true if there
    /// were any.
    ///
    /// # Errors
    /// Another recovery is in the way.
    pub(crate) fn make_way(
        &mut self,
        log: &mut Log,
        clients: &mut Clients,
        task: &Recover,
    ) -> Result<bool, Refusal> {
        if task.take_back && self.took_back {
            return Err(Status::Refused.into());
        }
        let overlaps = |recovery: &Recovery| {
            let tablets = &recovery.task().tablets;
            let overlaps = |range: TabletRange| tablets.iter().any(|it| it.range.overlaps(&range));
            task.tablets.iter().any(|it| overlaps(it.range))
        };
        let is_later = |recovery: &Recovery| {
            task.recovery > recovery.task().recovery && !recovery.may_be_taken()
        };
        if self.running.iter().any(|recovery| overlaps(recovery) && !is_later(recovery)) {
            return Err(Refusal::with_hint(Status::InProgress, BUSY_US));
        }
        let left = self.running.iter().filter(|recovery| !overlaps(recovery)).count();
        if left >= RUNNING_MAX {
            return Err(Refusal::with_hint(Status::Busy, BUSY_US));
        }
        let dropped = left < self.running.len();
        self.running.retain_mut(|recovery| {
            let stays = !overlaps(recovery);
            if !stays {
                recovery.drop_tablets(log, clients);
            }
            stays
        });
        Ok(dropped)
    }

    /// Begins a task after [`Recoveries::make_way`].
    pub(crate) fn begin(&mut self, task: Recover, options: Options, now: Time) {
        let Recover { master, crashed, recovery, partition, take_back, .. } = task;
        let (tablets, segments) = (task.tablets.len(), task.segments.len());
        tracing::info!(%master, %crashed, recovery = recovery.0, partition, take_back, tablets, segments, "told to rebuild a part");
        let was_rebuilt = self.rebuilt.has(task.crashed);
        if task.take_back {
            // The coordinator never asks for this again.
            self.took_back = true;
            self.rebuilt.clear();
        } else if !self.took_back {
            self.rebuilt.note(task.crashed);
        }
        self.running.push(Recovery::new(task, was_rebuilt, options, now));
    }

    /// Takes the reply to a call. Returns true if a recovery made the call.
    pub(crate) fn reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) -> bool {
        self.running.iter_mut().any(|recovery| recovery.reply(context, call, outcome))
    }

    /// Takes the coordinator's answer to a question.
    pub(crate) fn answered(
        &mut self,
        log: &mut Log,
        clients: &mut Clients,
        question: QuestionId,
        outcome: &Result<Vec<u8>, CallError>,
        now: Time,
    ) -> AnswerEffect {
        let running = self.running.iter_mut();
        let mut answers = running.map(|it| it.answered(log, clients, question, outcome, now));
        answers.find(|it| *it != AnswerEffect::NotOurs).unwrap_or(AnswerEffect::NotOurs)
    }

    /// Whether a log was taken back, or could not be, and nothing more comes of it.
    pub(crate) fn has_taken_back(&self) -> bool {
        self.took_back && !self.running.iter().any(|recovery| recovery.task().take_back)
    }

    /// Returns the places of the replicas of adopted segments, once the log is this shard's.
    pub(crate) fn take_adopted_replicas(&mut self) -> Vec<AdoptedReplicas> {
        self.running.iter_mut().flat_map(Recovery::take_adopted_replicas).collect()
    }

    /// Works for as long as the budget lasts.
    pub(crate) fn work(
        &mut self,
        context: &mut Context<'_>,
        log: &mut Log,
        clients: &mut Clients,
        coordinator: &mut CoordinatorClient,
        budget: &mut Budget,
        mut own: OwnBackup<'_>,
    ) -> WorkResult {
        let mut worked =
            WorkResult { again: false, wake: Time::NEVER, is_short: false, failures: Vec::new() };
        let count = self.running.len();
        let takes_back = self.running.iter().any(|recovery| recovery.task().take_back);
        let bytes_max = if takes_back { TAKEN_BACK_BYTES_MAX } else { FETCHED_BYTES_MAX };
        let memory_bytes = bytes_max / count.max(1);
        let beside = log.undurable_side_bytes();
        let ahead = self.ahead.settle(log.durable(), beside, context.now());
        let may_replay = ahead < AHEAD_BYTES_MAX && beside < BESIDE_BYTES_MAX;
        let durable_moved = self.ahead.moved_at;
        let before = log.appended();
        let first = self.next;
        for step in 0..count {
            let number = (first + step) % count;
            let Some(recovery) = self.running.get_mut(number) else { break };
            let (log, clients, coordinator, budget) =
                (&mut *log, &mut *clients, &mut *coordinator, &mut *budget);
            let own = own.as_mut().map(|(server, backup)| (*server, &mut **backup as _));
            let mut resources = RecoveryResources {
                log,
                clients,
                coordinator,
                budget,
                memory_bytes,
                may_replay,
                durable_moved,
                buffers: &mut self.buffers,
                own,
            };
            let next = recovery.work(context, &mut resources);
            worked.is_short |= recovery.waits_for_cleaners;
            match next {
                Next::Wait => {}
                Next::At(at) => worked.wake = worked.wake.min(at),
                Next::Again | Next::Over => worked.again = true,
            }
            // The others have not been asked.
            if next == Next::Again {
                self.next = number + 1;
                break;
            }
        }
        let after = log.appended();
        let from = if after.segment == before.segment { before.offset } else { 0 };
        self.ahead.appended(after, u64::from(after.offset - from));
        self.end_finished(&mut worked.failures);
        let none_is_needed = self.running.is_empty();
        self.buffers.give_back(none_is_needed);
        worked.again |= none_is_needed && !self.buffers.is_empty();
        worked
    }

    fn end_finished(&mut self, failures: &mut Vec<String>) {
        let Recoveries { running, done, .. } = self;
        running.retain(|recovery| {
            if !recovery.is_over() {
                return true;
            }
            match recovery.failure() {
                Some(failure) => failures.push(failure.to_owned()),
                None => {
                    let task = recovery.task();
                    done.push_back((task.crashed, task.recovery, task.partition));
                    if done.len() > DONE_MAX {
                        done.pop_front();
                    }
                }
            }
            false
        });
    }
}

/// How far replay is ahead of the durable position.
#[derive(Default)]
struct ReplayAhead {
    /// Bytes that went into the head, and up to which position; the oldest first.
    marks: VecDeque<(LogPosition, u64)>,
    bytes: u64,
    /// The durable position, the bytes beside the log that are not durable, and since when.
    durable: Option<LogPosition>,
    beside: u64,
    moved_at: Time,
}

impl ReplayAhead {
    fn appended(&mut self, until: LogPosition, bytes: u64) {
        if bytes > 0 {
            self.marks.push_back((until, bytes));
            self.bytes += bytes;
        }
    }

    fn settle(&mut self, durable: LogPosition, beside: u64, now: Time) -> u64 {
        if self.durable != Some(durable) || beside < self.beside {
            (self.durable, self.moved_at) = (Some(durable), now);
        }
        self.beside = beside;
        while let Some((_, bytes)) = self.marks.pop_front_if(|(until, _)| *until <= durable) {
            self.bytes -= bytes;
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_wire::SegmentId;

    #[test]
    fn bytes_ahead_of_the_durable_position_are_counted() {
        let at = |segment, offset| LogPosition { segment: SegmentId(segment), offset };
        let mut ahead = ReplayAhead::default();
        ahead.appended(at(1, 100), 60);
        ahead.appended(at(1, 100), 0);
        ahead.appended(at(2, 10), 30);
        assert_eq!(ahead.settle(at(1, 99), 0, Time(1)), 90);
        assert_eq!(ahead.settle(at(2, 9), 0, Time(2)), 30);
        assert_eq!(ahead.settle(at(3, 0), 8, Time(3)), 0);
        assert_eq!((ahead.settle(at(3, 0), 8, Time(4)), ahead.moved_at), (0, Time(3)));
        assert_eq!((ahead.settle(at(3, 0), 7, Time(5)), ahead.moved_at), (0, Time(5)));
    }
}
