//! Answers that wait for the log to be durable.

use crate::outcome::Outcome;
use std::collections::VecDeque;
use thunderhead_rpc::{Context, ReplyTo};
use thunderhead_wire::{LogPosition, Status};

/// Microseconds that a client waits before it asks again, after its answer was parked for too long.
const AGAIN_US: u32 = 1_000;

/// Answers that are refused in one turn: as many take no longer than a slice.
const REFUSED_MAX: usize = 128;

/// The longest body that is kept in place.
const SMALL: usize = 16;

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) hint: u32,
    body: Body,
}

enum Body {
    Small([u8; SMALL], u8),
    Large(Vec<u8>),
}

impl Answer {
    pub(crate) fn new(status: Status, hint: u32, body: &[u8]) -> Answer {
        let mut small = [0; SMALL];
        let body = match small.get_mut(..body.len()) {
            Some(place) => {
                place.copy_from_slice(body);
                Body::Small(small, body.len() as u8)
            }
            None => Body::Large(body.to_vec()),
        };
        Answer { status, hint, body }
    }

    /// The answer to an update: the version, and the sum of an increment.
    #[inline]
    pub(crate) fn of_update(outcome: &Outcome) -> Answer {
        let mut small = [0; SMALL];
        small[..8].copy_from_slice(&outcome.version.0.to_le_bytes());
        let mut length = 8;
        if let Some(sum) = outcome.sum {
            small[8..].copy_from_slice(&sum);
            length = 16;
        }
        Answer { status: outcome.status, hint: outcome.hint, body: Body::Small(small, length) }
    }

    /// The bytes that it takes up beside its place.
    fn bytes(&self) -> usize {
        match &self.body {
            Body::Small(..) => 0,
            Body::Large(bytes) => bytes.len(),
        }
    }

    pub(crate) fn send(&self, context: &mut Context<'_>, to: ReplyTo) {
        let body = match &self.body {
            Body::Small(bytes, length) => &bytes[..usize::from(*length)],
            Body::Large(bytes) => bytes,
        };
        match self.status {
            Status::Ok => context.reply(to, &[body]),
            status => context.refuse(to, status, self.hint, &[body]),
        }
    }
}

/// Answers in the order in which they were parked. This is also the order of the log positions that
/// they wait for, except for reads of earlier writes: these wait a little longer than they must.
#[derive(Default)]
pub(crate) struct Parked {
    answers: VecDeque<(LogPosition, ReplyTo, Answer)>,
    /// The bytes of the long answers.
    bytes: usize,
    /// The number of first answers that were parked already at the last call of
    /// [`Parked::refuse_overdue`].
    overdue: usize,
}

impl Parked {
    pub(crate) fn park(&mut self, until: LogPosition, to: ReplyTo, answer: Answer) {
        self.bytes += answer.bytes();
        self.answers.push_back((until, to, answer));
    }

    /// Sends the answers that wait for no more than this position.
    pub(crate) fn release(&mut self, durable: LogPosition, context: &mut Context<'_>) {
        let answers = &mut self.answers;
        while let Some((_, to, answer)) = answers.pop_front_if(|(until, ..)| *until <= durable) {
            self.bytes -= answer.bytes();
            self.overdue = self.overdue.saturating_sub(1);
            answer.send(context, to);
        }
    }

    /// Refuses the answers that were parked before the previous round: the log waits for backups.
    /// An update whose answer is refused stays in the log; its client sends it again under the same
    /// identity. Returns whether more remain for the next turn: then the round is not over.
    pub(crate) fn refuse_overdue(&mut self, context: &mut Context<'_>) -> bool {
        let count = self.overdue.min(REFUSED_MAX);
        for (_, to, answer) in self.answers.drain(..count) {
            self.bytes -= answer.bytes();
            context.refuse(to, Status::AwaitingReplicas, AGAIN_US, &[]);
        }
        self.overdue -= count;
        let has_more = self.overdue > 0;
        if !has_more {
            self.overdue = self.answers.len();
        }
        has_more
    }

    /// Returns how many answers wait for more than this position. A guess if reads are parked, for
    /// it assumes that answers are in order.
    pub(crate) fn beyond(&self, durable: LogPosition) -> usize {
        self.answers.len() - self.answers.partition_point(|(until, ..)| *until <= durable)
    }

    pub(crate) fn count(&self) -> usize {
        self.answers.len()
    }

    /// Bytes of the long answers.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
