//! Long lists are read and written beside the reactor.
//!
//! What a recovery says of a log names each of its segments, in JSON: up to 8 MiB, which take a tenth of a second
//! to parse and to sort. A worker does that, and the reactor goes on meanwhile. Short lists take less time than
//! waking a worker does, so the service reads those itself. The worker is started with the first long list.

use crate::limits::{BUSY_US, LIST_BYTES_AT_ONCE, LISTS_MAX};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thunderhead_rpc::{Context, ReplyTo};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::files::Files;
use thunderhead_runtime::workers::{Step, Worker, WorkerBell};
use thunderhead_wire::control::{BeginRecovery, FreeRest, Inventory, of_body, to_body};
use thunderhead_wire::{MasterId, SegmentId, Status};

/// What is to be done with a list.
pub(super) enum Job {
    /// The body of `free rest` is to be read.
    FreeRest(Vec<u8>),
    /// The body of `begin recovery` is to be read.
    BeginRecovery(Vec<u8>),
    /// An answer is to be written.
    Inventory(Inventory),
}

/// A list that was read or written. Nothing where the body makes no sense.
pub(super) enum Done {
    FreeRest(Option<(MasterId, BTreeSet<SegmentId>)>),
    BeginRecovery(Option<BeginRecovery>),
    Body(Vec<u8>),
}

impl Job {
    fn work(self) -> Done {
        match self {
            Job::FreeRest(body) => Done::FreeRest(free_rest(&body)),
            Job::BeginRecovery(body) => Done::BeginRecovery(of_body(&body)),
            Job::Inventory(inventory) => Done::Body(to_body(&inventory)),
        }
    }
}

/// What `free rest` says: the segments that stay, in order.
pub(super) fn free_rest(body: &[u8]) -> Option<(MasterId, BTreeSet<SegmentId>)> {
    let FreeRest { master, keep } = of_body(body)?;
    Some((master, keep.into_iter().collect()))
}

/// Whether a body is so long that it is read beside the reactor.
pub(super) fn is_long(body: &[u8]) -> bool {
    body.len() > LIST_BYTES_AT_ONCE
}

#[derive(Default)]
struct Queues {
    jobs: VecDeque<(ReplyTo, Job)>,
    done: VecDeque<(ReplyTo, Done)>,
}

fn lock(queues: &Mutex<Queues>) -> MutexGuard<'_, Queues> {
    queues.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Clerk {
    queues: Arc<Mutex<Queues>>,
    alarm: Alarm,
}

impl Worker for Clerk {
    fn step(&mut self, _: &mut dyn Files) -> Step {
        // Not locked while it works.
        let next = lock(&self.queues).jobs.pop_front();
        let Some((reply_to, job)) = next else { return Step::Idle };
        let done = job.work();
        lock(&self.queues).done.push_back((reply_to, done));
        self.alarm.ring();
        Step::Again
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Lists {
    queues: Arc<Mutex<Queues>>,
    bell: Option<WorkerBell>,
    /// Lists that the worker has, or has done.
    count: usize,
}

impl Lists {
    /// Has the worker do something with a list; refuses where it has too many.
    pub(super) fn begin(&mut self, context: &mut Context<'_>, reply_to: ReplyTo, job: Job) {
        if self.bell.is_none() {
            let clerk = Clerk { queues: Arc::clone(&self.queues), alarm: context.alarm().clone() };
            match context.world().workers.start("lists", Box::new(clerk)) {
                Ok(bell) => self.bell = Some(bell),
                Err(error) => tracing::warn!("no thread for long lists: {error}"),
            }
        }
        match &self.bell {
            Some(bell) if self.count < LISTS_MAX => {
                lock(&self.queues).jobs.push_back((reply_to, job));
                self.count += 1;
                bell.ring();
            }
            _ => context.refuse(reply_to, Status::Busy, BUSY_US, &[]),
        }
    }

    /// A list that is done, and for whom.
    #[inline]
    pub(super) fn done(&mut self) -> Option<(ReplyTo, Done)> {
        if self.count == 0 {
            return None;
        }
        let done = lock(&self.queues).done.pop_front()?;
        self.count -= 1;
        Some(done)
    }
}
