//! Chooses the segments that are fetched at a time.
//!
//! Each backup reads the segments for which it is asked first in their order. So the shard requests
//! them in that order, several at a time: enough that neither disk nor network idles during the
//! replay of the arrived segments. A bound holds for the bytes that have arrived or are in
//! flight, and the shard begins no more segments than fit into it. Only the oldest segment may
//! exceed it, or the recovery would make no progress. A backup that did not answer lately is asked
//! only for segments that no other backup has.

use super::buffers::Buffers;
use super::fetch::{AskResult, Fetch, FetchEvent, PIECE_BYTES};
use crate::replication::OwnBackup;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use thunderhead_rpc::{CallError, CallId, Context};
use thunderhead_runtime::Time;
use thunderhead_wire::control::{Recover, Replicas};
use thunderhead_wire::{SegmentId, ServerId};

/// Segments that are fetched, or wait to be replayed, at once. In all (more if there are more
/// backups than that), and of one backup.
const JOBS_MAX: usize = 16;
const PER_BACKUP_MAX: usize = 4;

/// Calls of one recovery that begin in one turn. The first call to a backup may open a
/// connection.
const CALLS_AT_ONCE: usize = 2;

/// For this long the shard prefers other backups to a silent one.
const AVOIDED: Duration = Duration::from_secs(5);

/// A segment that is fetched or replayed.
pub(super) struct Job {
    /// The backup that was to be asked first.
    first_backup: ServerId,
    pub(super) fetch: Fetch,
    /// The position at which the replay continues.
    pub(super) at: u32,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Jobs {
    /// Segments that are not begun, by the backup to ask first.
    queues: BTreeMap<ServerId, VecDeque<Replicas>>,
    waiting: usize,
    /// The oldest first.
    running: Vec<Job>,
    silent: BTreeMap<ServerId, Time>,
    /// Segments and bytes whose length is known.
    known: (u64, u64),
}

impl Jobs {
    pub(super) fn new(segments: Vec<Replicas>) -> Jobs {
        let mut jobs = Jobs { waiting: segments.len(), ..Jobs::default() };
        for replicas in segments {
            let first_backup = replicas.at.first().map_or(ServerId(0), |(server, _)| *server);
            jobs.queues.entry(first_backup).or_default().push_back(replicas);
        }
        jobs
    }

    /// Whether all is replayed.
    pub(super) fn is_over(&self) -> bool {
        self.waiting == 0 && self.running.is_empty()
    }

    /// Bytes to be replayed, as far as they are known.
    pub(super) fn bytes_expected(&self) -> u64 {
        let (segments, bytes) = self.known;
        bytes + self.waiting as u64 * bytes.checked_div(segments).unwrap_or(0)
    }

    /// Begins the segments that may be begun and asks for the pieces that are due. Returns when it
    /// wants to be called again, and the immediate answers of the backup in the same process.
    pub(super) fn ask(
        &mut self,
        context: &mut Context<'_>,
        task: &Recover,
        timeout: Duration,
        memory_bytes: usize,
        buffers: &mut Buffers,
        own: &mut OwnBackup<'_>,
    ) -> (Time, Vec<FetchEvent>) {
        self.begin(memory_bytes, buffers);
        let mut events = Vec::new();
        let now = context.now();
        let mut held: usize = self.running.iter().map(|job| job.fetch.held()).sum();
        let (mut is_oldest, mut wake, mut calls) = (true, Time::NEVER, 0);
        for job in &mut self.running {
            if job.fetch.is_whole() {
                continue;
            }
            let may_ask = std::mem::take(&mut is_oldest) || held + PIECE_BYTES <= memory_bytes;
            if !may_ask || !job.fetch.is_due() {
                continue;
            }
            if calls == CALLS_AT_ONCE {
                wake = now;
                break;
            }
            let silent = &self.silent;
            job.fetch.prefer(|server| silent.get(&server).is_none_or(|until| *until <= now));
            let before = job.fetch.held();
            match job.fetch.ask(context, task, timeout, own) {
                AskResult::Later(at) => wake = wake.min(at),
                AskResult::Sent => calls += 1,
                AskResult::Answered(event) => {
                    events.push(event);
                    // It is due again where it was refused.
                    wake = wake.min(job.fetch.due().unwrap_or(Time::NEVER));
                    if let (FetchEvent::Progress, Some(length)) = (event, job.fetch.length) {
                        self.known = (self.known.0 + 1, self.known.1 + u64::from(length));
                    }
                }
            }
            held = held.saturating_sub(before) + job.fetch.held();
        }
        (wake, events)
    }

    fn begin(&mut self, memory_bytes: usize, buffers: &mut Buffers) {
        // Only whole segments can be replayed: the shard begins as many as it has room for.
        let (segments, bytes) = self.known;
        let average = bytes.checked_div(segments).map_or(memory_bytes / 4, |it| it as usize);
        let whole = |job: &Job| {
            let length = job.fetch.length.map_or(average, |length| length as usize);
            length.max(job.fetch.held())
        };
        let mut promised: usize = self.running.iter().map(whole).sum();
        loop {
            let busy = |first_backup| {
                self.running.iter().filter(|job| job.first_backup == first_backup).count()
            };
            let idlest =
                self.queues.keys().map(|first_backup| (busy(*first_backup), *first_backup)).min();
            let Some((busy, first_backup)) = idlest else { return };
            let is_full = self.running.len() >= JOBS_MAX && busy > 0;
            let is_short = promised + average > memory_bytes && !self.running.is_empty();
            if busy >= PER_BACKUP_MAX || is_full || is_short {
                return;
            }
            let Some(queue) = self.queues.get_mut(&first_backup) else { return };
            let next = queue.pop_front();
            if queue.is_empty() {
                self.queues.remove(&first_backup);
            }
            let Some(replicas) = next else { continue };
            self.waiting -= 1;
            promised += average;
            let fetch = Fetch::new(replicas, buffers.take());
            self.running.push(Job { first_backup, fetch, at: 0 });
        }
    }

    /// Takes the reply to a call.
    pub(super) fn reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) -> FetchEvent {
        for job in &mut self.running {
            let before = job.fetch.length;
            let event = job.fetch.reply(context, call, outcome);
            if event == FetchEvent::NotOurs {
                continue;
            }
            if let (None, Some(length)) = (before, job.fetch.length) {
                self.known = (self.known.0 + 1, self.known.1 + u64::from(length));
            }
            if let FetchEvent::Silence(server) = event {
                self.silent.insert(server, context.now() + AVOIDED);
            }
            return event;
        }
        FetchEvent::NotOurs
    }

    /// Returns a segment that can be replayed: the begun one if it is whole.
    pub(super) fn whole(&mut self, begun: Option<SegmentId>) -> Option<(usize, &mut Job)> {
        let mut running = self.running.iter_mut().enumerate();
        running.find(|(_, job)| {
            job.fetch.is_whole() && begun.is_none_or(|segment| job.fetch.segment == segment)
        })
    }

    /// Returns a segment of which no replica remains.
    pub(super) fn lost(&self) -> Option<&Fetch> {
        self.running.iter().map(|job| &job.fetch).find(|fetch| fetch.is_lost())
    }

    /// Returns the fetch that has been awaited the longest.
    pub(super) fn oldest(&self) -> Option<&Fetch> {
        self.running.iter().map(|job| &job.fetch).find(|fetch| !fetch.is_whole())
    }

    /// Removes a job that is replayed to its end.
    pub(super) fn done(&mut self, number: usize, buffers: &mut Buffers) {
        if number < self.running.len() {
            let used = self.running.remove(number).fetch.into_buffers();
            used.into_iter().for_each(|bytes| buffers.keep(bytes));
        }
    }

    /// Ends all fetches.
    pub(super) fn end(&mut self, buffers: &mut Buffers) {
        while !self.running.is_empty() {
            self.done(0, buffers);
        }
        *self = Jobs::default();
    }
}
