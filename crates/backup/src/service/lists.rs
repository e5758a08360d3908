//! Long lists are read and written beside the reactor.
//!
//! A recovery's list of a log names each of its segments in JSON. It is up to 8 MiB long and takes
//! a tenth of a second to parse and to sort. A worker does that while the reactor goes on. A short
//! list takes less time than waking a worker, so the service reads it itself. The worker starts
//! with the first long list.

use crate::limits::{BUSY_US, LIST_BYTES_AT_ONCE, LISTS_MAX};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thunderhead_rpc::{Context, ReplyTo};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::files::Files;
use thunderhead_runtime::workers::{Step, Worker, WorkerBell};
use thunderhead_wire::control::{BeginRecovery, FreeRest, Inventory, of_body, to_body};
use thunderhead_wire::{MasterId, SegmentId, Status};

/// A job for the worker.
pub(super) enum Job {
    /// Parse the body of `free rest`.
    FreeRest(Vec<u8>),
    /// Parse the body of `begin recovery`.
    BeginRecovery(Vec<u8>),
    /// Write an answer.
    Inventory(Inventory),
}

/// A list that was parsed or written. `None` if the body is malformed.
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

/// Parses `free rest`: the master, and the segments that stay.
pub(super) fn free_rest(body: &[u8]) -> Option<(MasterId, BTreeSet<SegmentId>)> {
    let FreeRest { master, keep } = of_body(body)?;
    Some((master, keep.into_iter().collect()))
}

/// Whether a body is so long that a worker parses it.
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

struct ListWorker {
    queues: Arc<Mutex<Queues>>,
    alarm: Alarm,
}

impl Worker for ListWorker {
    fn step(&mut self, _: &mut dyn Files) -> Step {
        // The lock is not held while the worker works.
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
    /// Lists that the worker has not returned yet.
    count: usize,
}

impl Lists {
    /// Gives the worker a job with a list; refuses if it has too many.
    pub(super) fn begin(&mut self, context: &mut Context<'_>, reply_to: ReplyTo, job: Job) {
        if self.bell.is_none() {
            let worker =
                ListWorker { queues: Arc::clone(&self.queues), alarm: context.alarm().clone() };
            match context.world().workers.start("lists", Box::new(worker)) {
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

    /// Returns a finished list and its receiver.
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
