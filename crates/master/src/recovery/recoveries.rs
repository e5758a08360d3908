//! What a shard rebuilds: several partitions at once, of one master or of several.
//!
//! They share a shard's slices in turn, the memory for what was fetched, and how far they may be
//! ahead of the backups that keep copies of what they append.
//!
//! What was begun once is not begun again. A later recovery of a tablet takes the place of an
//! earlier one, of which nothing is left; an earlier one waits, for ever if need be: nobody awaits it
//! any more.

use super::{Means, Next, Recovery};
use crate::alone;
use crate::asking::{Asking, QuestionId};
use crate::clients::Clients;
use crate::options::Options;
use std::collections::{BTreeSet, VecDeque};
use thunderhead_log::Log;
use thunderhead_rpc::{CallError, CallId, Context};
use thunderhead_runtime::Time;
use thunderhead_runtime::slice::Budget;
use thunderhead_wire::control::Recover;
use thunderhead_wire::{KeyHash, LogPosition, MasterId, Status, TableId, TabletRange};

/// So many at once.
const RUNNING_MAX: usize = 8;

/// Bytes that are fetched and not replayed, of all together.
const FETCHED_BYTES_MAX: usize = 32 << 20;

/// Bytes that were replayed and are not durable.
const AHEAD_BYTES_MAX: u64 = 8 << 20;

/// What the coordinator waits in microseconds where something is in the way.
const BUSY_US: u32 = 50_000;

/// How tablets are rebuilt.
enum Way {
    Parts(Box<Recovery>),
    Alone(Box<alone::Recovery>),
}

macro_rules! either {
    ($way:expr, $it:ident => $call:expr) => {
        match $way {
            Way::Parts($it) => $call,
            Way::Alone($it) => $call,
        }
    };
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Recoveries {
    running: Vec<Way>,
    /// Whose slice is next.
    next: usize,
    /// Tablets that are here since the recovery of a master.
    recovered: BTreeSet<(MasterId, TabletRange)>,
    ahead: Ahead,
}

/// What a slice of work has come to.
pub(crate) struct Worked {
    pub(crate) again: bool,
    pub(crate) wake: Time,
    /// Memory is short.
    pub(crate) is_short: bool,
    /// Why some have failed.
    pub(crate) failures: Vec<String>,
}

impl Recoveries {
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether a key belongs to a tablet that is in the log but must not be served yet.
    pub(crate) fn hides(&self, table: TableId, hash: KeyHash) -> bool {
        self.running.iter().any(|way| either!(way, it => it.hides(table, hash)))
    }

    /// Whether keys of a range are about to be rebuilt, or are being so.
    pub(crate) fn brings(&self, range: TabletRange) -> bool {
        self.running.iter().any(|way| {
            let tablets = &either!(way, it => it.task()).tablets;
            tablets.iter().any(|it| it.range.overlaps(&range))
        })
    }

    /// Bytes replayed, and of how many; nothing where nothing is rebuilt.
    pub(crate) fn progress(&self) -> Option<(u64, u64)> {
        let progress = self.running.iter().map(|way| either!(way, it => it.progress()));
        progress.reduce(|one, other| (one.0 + other.0, one.1 + other.1))
    }

    /// Whether a task was begun before, or has even been done.
    pub(crate) fn knows(&self, task: &Recover) -> bool {
        let is_here = self.running.iter().any(|way| {
            let it = either!(way, it => it.task());
            (it.crashed, it.recovery, it.partition) == (task.crashed, task.recovery, task.partition)
                && it.tablets == task.tablets
        });
        let is_done = |range| self.recovered.contains(&(task.crashed, range));
        is_here || task.tablets.iter().all(|it| is_done(it.range))
    }

    /// Makes room for a task, by dropping what it takes the place of; true if something was.
    ///
    /// # Errors
    /// When something is in the way.
    pub(crate) fn make_way(
        &mut self,
        log: &mut Log,
        task: &Recover,
    ) -> Result<bool, (Status, u32)> {
        let overlaps = |way: &Way| {
            let tablets = &either!(way, it => it.task()).tablets;
            let overlaps = |range: TabletRange| tablets.iter().any(|it| it.range.overlaps(&range));
            task.tablets.iter().any(|it| overlaps(it.range))
        };
        let is_later = |way: &Way| task.recovery > either!(way, it => it.task()).recovery;
        if self.running.iter().any(|way| overlaps(way) && !is_later(way)) {
            return Err((Status::InProgress, BUSY_US));
        }
        let left = self.running.iter().filter(|way| !overlaps(way)).count();
        if left >= RUNNING_MAX {
            return Err((Status::Busy, BUSY_US));
        }
        let dropped = left < self.running.len();
        self.running.retain_mut(|way| {
            let stays = !overlaps(way);
            if !stays {
                either!(way, it => it.drop_tablets(log));
            }
            stays
        });
        Ok(dropped)
    }

    /// Begins a task for which way was made.
    pub(crate) fn begin(&mut self, task: Recover, options: Options, now: Time) {
        self.running.push(if task.segments.is_empty() {
            Way::Alone(Box::new(alone::Recovery::new(task, options, now)))
        } else {
            Way::Parts(Box::new(Recovery::new(task, options, now)))
        });
    }

    /// What came of a call; true if it was one of these.
    pub(crate) fn reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) -> bool {
        self.running.iter_mut().any(|way| either!(way, it => it.reply(context, call, outcome)))
    }

    /// A question to the coordinator was answered; true if it was one of these.
    pub(crate) fn answered(
        &mut self,
        log: &mut Log,
        question: QuestionId,
        outcome: &Result<Vec<u8>, CallError>,
    ) -> bool {
        self.running.iter_mut().any(|way| either!(way, it => it.answered(log, question, outcome)))
    }

    /// Works for as long as the budget lasts.
    pub(crate) fn work(
        &mut self,
        context: &mut Context<'_>,
        log: &mut Log,
        clients: &mut Clients,
        asking: &mut Asking,
        budget: &mut Budget,
    ) -> Worked {
        let mut worked =
            Worked { again: false, wake: Time::NEVER, is_short: false, failures: Vec::new() };
        let count = self.running.len();
        let memory_bytes = FETCHED_BYTES_MAX / count.max(1);
        let may_replay = self.ahead.settle(log.durable()) < AHEAD_BYTES_MAX;
        let before = self.replayed_bytes();
        let first = self.next;
        for step in 0..count {
            let number = (first + step) % count;
            let Some(way) = self.running.get_mut(number) else { break };
            let (log, clients, asking, budget) =
                (&mut *log, &mut *clients, &mut *asking, &mut *budget);
            let next = match way {
                Way::Parts(recovery) => {
                    let mut means =
                        Means { log, clients, asking, budget, memory_bytes, may_replay };
                    recovery.work(context, &mut means)
                }
                Way::Alone(recovery) => recovery.work(context, log, clients, asking, budget),
            };
            worked.is_short |= either!(way, it => it.waits_for_cleaners);
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
        let replayed = self.replayed_bytes().saturating_sub(before);
        self.ahead.appended(log.appended(), replayed);
        self.end_what_is_over(&mut worked.failures);
        worked
    }

    fn replayed_bytes(&self) -> u64 {
        self.progress().map_or(0, |(replayed, _)| replayed)
    }

    fn end_what_is_over(&mut self, failures: &mut Vec<String>) {
        let Recoveries { running, recovered, .. } = self;
        running.retain(|way| {
            if !either!(way, it => it.is_over()) {
                return true;
            }
            match either!(way, it => it.failure()) {
                Some(failure) => failures.push(failure.to_owned()),
                None => {
                    let task = either!(way, it => it.task());
                    recovered.extend(task.tablets.iter().map(|it| (task.crashed, it.range)));
                }
            }
            false
        });
    }
}

/// How far what is replayed is ahead of what is durable.
#[derive(Default)]
struct Ahead {
    /// What was replayed, and up to where it went; the oldest first.
    marks: VecDeque<(LogPosition, u64)>,
    bytes: u64,
}

impl Ahead {
    fn appended(&mut self, until: LogPosition, bytes: u64) {
        if bytes > 0 {
            self.marks.push_back((until, bytes));
            self.bytes += bytes;
        }
    }

    fn settle(&mut self, durable: LogPosition) -> u64 {
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
    fn what_is_not_durable_is_counted() {
        let at = |segment, offset| LogPosition { segment: SegmentId(segment), offset };
        let mut ahead = Ahead::default();
        ahead.appended(at(1, 100), 60);
        ahead.appended(at(1, 100), 0);
        ahead.appended(at(2, 10), 30);
        assert_eq!(ahead.settle(at(1, 99)), 90);
        assert_eq!(ahead.settle(at(2, 9)), 30);
        assert_eq!(ahead.settle(at(3, 0)), 0);
    }
}
