//! Rounds: hands changes to the flusher and reports the results.

use super::{Event, Frame, RoundUnderWay, State, Store};
use crate::flusher::{self, Job};
use crate::layout::{FrameNumber, Header, ReplicaHeader};
use crate::limits::{AGAIN, PROVE_AFTER};
use std::collections::BTreeMap;
use std::io;
use thunderhead_runtime::Time;

/// The refusal for a buffer with other contents than this process wrote: another process has
/// written to the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferLost;

impl Store {
    pub(super) fn hand_over(&mut self, now: Time) -> bool {
        if self.again_at.is_some_and(|at| at <= now) && self.under_way.is_none() {
            self.again_at = None;
            self.touched.extend(&self.refused);
            self.urgent = true;
        }
        if self.under_way.is_some() {
            return false;
        }
        if self.touched.is_empty() {
            return self.prove(now);
        }
        let since = *self.touched_since.get_or_insert(now);
        let age = self.parts.options.durability.age();
        if !self.urgent && now.since(since) < age {
            return false;
        }
        let mut touched = std::mem::take(&mut self.touched);
        touched.retain(|number| !self.succeeded.contains_key(number));
        let (mut jobs, mut lost) = (Vec::new(), Vec::new());
        for number in touched {
            match self.job(number) {
                Ok(job) => jobs.extend(job),
                Err(BufferLost) => lost.push(number),
            }
        }
        (self.touched_since, self.urgent, self.prove_at) = (None, false, None);
        self.hand(jobs, lost);
        true
    }

    /// Records on the disk that the last round was durable, if it is time. Returns whether it did.
    fn prove(&mut self, now: Time) -> bool {
        let Some(_) = self.prove_at.take_if(|at| *at <= now) else { return false };
        self.hand(Vec::new(), Vec::new());
        true
    }

    fn hand(&mut self, jobs: Vec<Job>, lost: Vec<FrameNumber>) {
        let frames = jobs.iter().map(|job| job.frame).collect();
        let succeeded = self.succeeded.clone();
        self.under_way = Some(RoundUnderWay { tickets: self.issued, frames, lost, succeeded });
        flusher::lock(&self.parts.exchange).round = Some(jobs);
        self.parts.flusher.ring();
    }

    /// Returns the part of the next round for a frame; `None` if the frame needs none.
    fn job(&mut self, number: FrameNumber) -> Result<Option<Job>, BufferLost> {
        let frame = &self.parts.frames[number.index()];
        let (buffer, header) = match frame.state {
            State::Freeing => (None, Header::Free),
            State::Filling | State::Resting | State::Closing => match frame.buffer {
                Some(buffer) => (Some(buffer), Header::Used(self.in_buffer(number)?)),
                None => (None, Header::Used(self.as_it_rests(number).ok_or(BufferLost)?)),
            },
            _ => return Ok(None),
        };
        if let (Some(filling), Header::Used(used)) = (self.filling.get_mut(&number), &header) {
            filling.flushed = used.length;
        }
        Ok(Some(Job { frame: number, buffer, header }))
    }

    /// Returns the contents of a frame's buffer, if they are the contents that this process wrote.
    pub(super) fn in_buffer(&self, number: FrameNumber) -> Result<ReplicaHeader, BufferLost> {
        let frame = &self.parts.frames[number.index()];
        let claimed = frame.buffer.and_then(|buffer| self.parts.pool.claimed(buffer));
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
        let finished = flusher::lock(&self.parts.exchange).finished.take();
        let Some(finished) = finished else { return false };
        let Some(RoundUnderWay { tickets, mut frames, lost, succeeded }) = self.under_way.take()
        else {
            return false;
        };
        self.parts.sequence = self.parts.sequence.max(finished.sequence);
        // A round without frames, which only records the last one as durable, has failed.
        let after = if frames.is_empty() { AGAIN } else { PROVE_AFTER };
        self.prove_at = finished.unproven.then_some(now + after);
        let mut failed: BTreeMap<FrameNumber, io::ErrorKind> =
            finished.failed.into_iter().map(|it| (it.frame, it.kind)).collect();
        for number in lost {
            if !self.refused.contains(&number) {
                let id = self.parts.frames[number.index()].id;
                tracing::error!(
                    "the buffer of {id} in shared memory does not hold what was written there: \
                     does another process use it? The replica is not written to the disk"
                );
            }
            failed.insert(number, io::ErrorKind::InvalidData);
        }
        frames.retain(|number| !failed.contains_key(number));
        // The headers that are on the disk now say that these count.
        let is_durable = |(_, by): &(&FrameNumber, &FrameNumber)| frames.contains(by);
        let (over, waiting): (BTreeMap<FrameNumber, FrameNumber>, BTreeMap<_, _>) =
            succeeded.iter().partition(is_durable);
        self.free_replaced(over.into_keys());
        for number in failed.keys() {
            self.touched.remove(number);
            self.refused.insert(*number);
            self.distrusted.insert(*number);
            self.again_at.get_or_insert(now + AGAIN);
            let frame = &mut self.parts.frames[number.index()];
            // An unfinished copy needs no buffer to be freed: the header on the disk cannot say
            // that it counts. A freed or replaced replica keeps its buffer, because that header
            // may be older than the replica (`replaced`).
            let is_to_go = frame.state == State::Freeing && !frame.committed;
            let buffer = frame.buffer.take_if(|_| is_to_go);
            self.release(buffer);
        }
        // Changes of a failed frame that came during the round have failed with it.
        self.waiting.retain(|(ticket, number)| {
            let fails = failed.contains_key(number) || waiting.contains_key(number);
            if fails {
                tell(Event::Failed(*ticket));
            }
            !fails
        });
        while let Some((ticket, _)) = self.waiting.front().copied() {
            if ticket > tickets {
                break;
            }
            self.waiting.pop_front();
            tell(Event::Durable(ticket));
        }
        frames.into_iter().for_each(|number| self.settle(number));
        true
    }

    /// Updates a frame after its part of a round became durable.
    fn settle(&mut self, number: FrameNumber) {
        self.refused.remove(&number);
        // The frame has changed since, so the disk does not have its latest state.
        if self.touched.contains(&number) {
            return;
        }
        let frame = &mut self.parts.frames[number.index()];
        let buffer = frame.buffer;
        match frame.state {
            State::Closing => {
                frame.state = State::Stored;
                frame.buffer = None;
                self.filling.remove(&number);
                self.resting.remove(&number);
            }
            State::Filling => return self.mark_idle(number),
            State::Freeing => {
                *frame = Frame::of(&Header::Free);
                // The next replica gets this frame first: first writes to a new part of the file
                // take a file system longer.
                match self.distrusted.contains(&number) {
                    true => self.free.push_back(number),
                    false => self.free.push_front(number),
                }
            }
            _ => return,
        }
        self.release(buffer);
    }
}
