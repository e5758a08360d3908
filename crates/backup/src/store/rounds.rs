//! Rounds: hands changes to the flusher and reports the results.

use super::{Event, State, Store, Ticket};
use crate::flusher::{self, Exchange, Job};
use crate::layout::{FrameNumber, Header, ReplicaHeader};
use crate::limits::{AGAIN, PROVE_AFTER};
use std::collections::{BTreeMap, BTreeSet};
use thunderhead_runtime::Time;
use thunderhead_runtime::workers::WorkerBell;

/// The refusal for a buffer with other contents than this process wrote: another process has
/// written to the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferLost;

/// A round that the flusher writes.
pub(super) struct RoundUnderWay {
    /// The last ticket before the round.
    tickets: Ticket,
    pub(super) frames: Vec<FrameNumber>,
    /// Changed frames that left the round, because their buffers do not hold the expected
    /// contents.
    lost: Vec<FrameNumber>,
    /// Frames to be freed at the time of the round, each with the frame that it waits for.
    waiting: BTreeMap<FrameNumber, FrameNumber>,
}

/// The reactor's side of the flusher: the round under way, and the times of the next ones.
pub(super) struct FlusherClient {
    exchange: Exchange,
    bell: WorkerBell,
    /// The newest round that was begun.
    pub(super) sequence: u64,
    pub(super) under_way: Option<RoundUnderWay>,
    /// The next round begins at once.
    pub(super) is_urgent: bool,
    /// The time since which changes wait for the next round.
    pub(super) changed_since: Option<Time>,
    /// The time of the next attempt to write the frames that the disk refused.
    pub(super) again_at: Option<Time>,
    /// When to record on the disk that the last round was durable, unless other data is written
    /// before.
    pub(super) prove_at: Option<Time>,
}

impl FlusherClient {
    pub(super) fn new(exchange: Exchange, bell: WorkerBell, sequence: u64) -> FlusherClient {
        FlusherClient {
            exchange,
            bell,
            sequence,
            under_way: None,
            is_urgent: false,
            changed_since: None,
            again_at: None,
            prove_at: None,
        }
    }

    /// Gives the worker a round.
    fn begin(&mut self, jobs: Vec<Job>, round: RoundUnderWay) {
        self.under_way = Some(round);
        flusher::lock(&self.exchange).round = Some(jobs);
        self.bell.ring();
    }
}

impl Store {
    pub(super) fn hand_over(&mut self, now: Time) -> bool {
        if self.flusher.under_way.is_some() {
            return false;
        }
        if self.flusher.again_at.take_if(|at| *at <= now).is_some() {
            self.frames.retry_refused();
            self.flusher.is_urgent = true;
        }
        if self.frames.changed().is_empty() {
            return self.prove(now);
        }
        let since = *self.flusher.changed_since.get_or_insert(now);
        let age = self.options.durability.age();
        if !self.flusher.is_urgent && now.since(since) < age {
            return false;
        }
        let mut changed = self.frames.take_changed();
        changed.retain(|number| self.frames[*number].waits_for.is_none());
        let (mut jobs, mut lost) = (Vec::new(), Vec::new());
        for number in changed {
            match self.job(number) {
                Ok(job) => jobs.extend(job),
                Err(BufferLost) => lost.push(number),
            }
        }
        let flusher = &mut self.flusher;
        (flusher.changed_since, flusher.is_urgent, flusher.prove_at) = (None, false, None);
        self.hand(jobs, lost);
        true
    }

    /// Records on the disk that the last round was durable, if it is time. Returns whether it did.
    fn prove(&mut self, now: Time) -> bool {
        let Some(_) = self.flusher.prove_at.take_if(|at| *at <= now) else { return false };
        self.hand(Vec::new(), Vec::new());
        true
    }

    fn hand(&mut self, jobs: Vec<Job>, lost: Vec<FrameNumber>) {
        let round = RoundUnderWay {
            tickets: self.acks.last_issued(),
            frames: jobs.iter().map(|job| job.frame).collect(),
            lost,
            waiting: self.frames.waiting().clone(),
        };
        self.flusher.begin(jobs, round);
    }

    /// Returns the part of the next round for a frame; `None` if the frame needs none.
    fn job(&mut self, frame: FrameNumber) -> Result<Option<Job>, BufferLost> {
        let record = &self.frames[frame];
        let (buffer, header) = match &record.state {
            State::Freeing(_) => (None, Header::Free),
            State::Filling(_) | State::Resting(_) | State::Closing(_) => match record.buffer() {
                Some(buffer) => (Some(buffer), Header::Used(self.in_buffer(frame)?)),
                None => (None, Header::Used(record.as_it_rests().ok_or(BufferLost)?)),
            },
            State::Free | State::Stored | State::Damaged | State::Bad => return Ok(None),
        };
        if let Header::Used(used) = &header {
            self.frames.change(frame, |record| {
                if let State::Filling(filling) = &mut record.state {
                    filling.flushed = used.length;
                }
            });
        }
        let after = match header {
            Header::Free => self.frames.preceding(frame),
            Header::Used(_) => Vec::new(),
        };
        Ok(Some(Job { frame, buffer, header, after }))
    }

    /// Returns the contents of a frame's buffer, if they are the contents that this process wrote.
    pub(super) fn in_buffer(&self, number: FrameNumber) -> Result<ReplicaHeader, BufferLost> {
        let frame = &self.frames[number];
        let claimed = frame.buffer().and_then(|buffer| self.buffers.pool.claimed(buffer));
        let claimed = claimed.filter(|it| it.frame == number).ok_or(BufferLost)?;
        let ReplicaHeader { id, epoch, closed, committed, length, .. } = claimed.used;
        let own = (frame.id, frame.epoch, frame.closed, frame.committed, frame.length);
        if own == (id, epoch, closed, committed, length) {
            Ok(claimed.used)
        } else {
            Err(BufferLost)
        }
    }

    pub(super) fn take_finished(&mut self, now: Time, tell: &mut dyn FnMut(Event)) -> bool {
        let finished = flusher::lock(&self.flusher.exchange).finished.take();
        let Some(finished) = finished else { return false };
        let Some(round) = self.flusher.under_way.take() else { return false };
        let RoundUnderWay { tickets, mut frames, lost, waiting } = round;
        self.flusher.sequence = self.flusher.sequence.max(finished.sequence);
        // A round without frames, which only records the last one as durable, has failed.
        let after = if frames.is_empty() { AGAIN } else { PROVE_AFTER };
        self.flusher.prove_at = finished.unproven.then_some(now + after);
        let mut failed: BTreeSet<FrameNumber> = finished.failed.iter().map(|it| it.frame).collect();
        for number in lost {
            let frame = &self.frames[number];
            if !frame.is_refused {
                tracing::error!(
                    "the buffer of {} in shared memory does not hold what was written there: \
                     does another process use it? The replica is not written to the disk",
                    frame.id
                );
            }
            failed.insert(number);
        }
        frames.retain(|number| !failed.contains(number));
        // The headers that are on the disk now say that these count.
        let is_durable = |(_, by): &(&FrameNumber, &FrameNumber)| frames.contains(by);
        let (over, waiting): (BTreeMap<FrameNumber, FrameNumber>, BTreeMap<_, _>) =
            waiting.iter().partition(is_durable);
        self.free_replaced(over.into_keys());
        for number in &failed {
            self.fail(*number, now);
        }
        // Changes of a failed frame that came during the round have failed with it.
        let has_failed = |frame| failed.contains(&frame) || waiting.contains_key(&frame);
        self.acks.fail(has_failed, tell);
        self.acks.acknowledge_up_to(tickets, tell);
        frames.into_iter().for_each(|number| self.settle(number));
        true
    }

    /// Updates a frame after the disk refused its part of a round.
    fn fail(&mut self, number: FrameNumber, now: Time) {
        self.flusher.again_at.get_or_insert(now + AGAIN);
        let buffer = self.frames.change(number, |frame| {
            (frame.is_changed, frame.is_refused, frame.is_distrusted) = (false, true, true);
            // An unfinished copy needs no buffer to be freed: the header on the disk cannot say
            // that it counts. A freed or replaced replica keeps its buffer, because that header
            // may be older than the replica (`replaced`).
            match &mut frame.state {
                State::Freeing(buffer) if !frame.committed => buffer.take(),
                _ => None,
            }
        });
        buffer.into_iter().for_each(|buffer| self.buffers.release(buffer));
    }

    /// Updates a frame after its part of a round became durable.
    fn settle(&mut self, number: FrameNumber) {
        let now = self.now;
        let released = self.frames.change(number, |frame| {
            frame.is_refused = false;
            // The frame has changed since, so the disk does not have its latest state.
            if frame.is_changed {
                return None;
            }
            let buffer = frame.buffer();
            match &mut frame.state {
                State::Closing(_) => frame.state = State::Stored,
                State::Freeing(_) => frame.clear(),
                State::Filling(filling) => {
                    filling.idle_since = Some(now);
                    return None;
                }
                _ => return None,
            }
            buffer
        });
        released.into_iter().for_each(|buffer| self.buffers.release(buffer));
    }
}
