//! Asks the coordinator questions, each until it is answered.
//!
//! It asks the coordinator that is assumed to lead, and the next one if that does not lead or does
//! not answer ([`LeaderSearch`]). A refusal for good comes back as the answer. Every question may
//! be repeated. When no coordinator answers, their names are resolved again.

use std::collections::BTreeMap;
use std::time::Duration;
use thunderhead_rpc::{CallError, CallId, Context, LeaderSearch, Opcode, OwnerId};
use thunderhead_runtime::Time;
use thunderhead_runtime::backoff::Backoff;
use thunderhead_runtime::names::Addresses;
use thunderhead_wire::Next;

/// How long one coordinator has for an answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The waits after failures.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(500));

/// Names a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuestionId(u64);

/// The effect of the reply to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorReply {
    /// No question is answered by it. Its question will be asked again.
    Later,
    /// A question is answered, or refused for good.
    Answered {
        /// The owner that asked.
        asker: OwnerId,
        /// Its question.
        question: QuestionId,
        /// The body of the answer, or the refusal.
        answer: Result<Vec<u8>, CallError>,
    },
}

/// Asks the coordinator that leads.
pub struct CoordinatorClient {
    coordinators: LeaderSearch,
    /// The owner of its calls, and of the timer for questions that are asked again.
    owner: OwnerId,
    questions: BTreeMap<QuestionId, Question>,
    asked: u64,
    /// Coordinators of another cluster that were met, one after the other.
    strangers: usize,
}

struct Question {
    asker: OwnerId,
    opcode: Opcode,
    body: Vec<u8>,
    timeout: Duration,
    failures: u32,
    state: State,
}

enum State {
    Due(Time),
    Asked { call: CallId, coordinator: usize },
}

impl CoordinatorClient {
    /// Returns a client of these coordinators. It alone uses this owner for calls and timers.
    #[must_use]
    pub fn new(coordinators: impl Into<Addresses>, owner: impl Into<OwnerId>) -> CoordinatorClient {
        CoordinatorClient {
            coordinators: LeaderSearch::new(coordinators),
            owner: owner.into(),
            questions: BTreeMap::new(),
            asked: 0,
            strangers: 0,
        }
    }

    /// Replaces the coordinators. Questions to the former ones stay in flight.
    pub fn set_coordinators(&mut self, coordinators: impl Into<Addresses>) {
        self.coordinators = LeaderSearch::new(coordinators);
    }

    /// Whether each known coordinator belonged to another cluster when it was asked last. The shard
    /// still asks them again: an address may come back to the right coordinator.
    #[must_use]
    pub fn meets_only_strangers(&self) -> bool {
        self.strangers >= self.coordinators.count() && self.strangers > 0
    }

    /// Asks something for an owner, which [`CoordinatorClient::reply`] names with the answer.
    pub fn ask(
        &mut self,
        context: &mut Context<'_>,
        asker: impl Into<OwnerId>,
        opcode: Opcode,
        body: Vec<u8>,
    ) -> QuestionId {
        self.ask_within(context, asker, opcode, body, TIMEOUT)
    }

    /// Like [`ask`](Self::ask), but waits for each coordinator for no longer than this.
    pub fn ask_within(
        &mut self,
        context: &mut Context<'_>,
        asker: impl Into<OwnerId>,
        opcode: Opcode,
        body: Vec<u8>,
        timeout: Duration,
    ) -> QuestionId {
        self.asked += 1;
        let id = QuestionId(self.asked);
        let state = State::Due(context.now());
        let asker = asker.into();
        self.questions.insert(id, Question { asker, opcode, body, timeout, failures: 0, state });
        self.ask_due_questions(context);
        id
    }

    fn ask_due_questions(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        if self.coordinators.refresh() {
            // The index in the former list says nothing about the new one.
            self.coordinators.assume(0);
        }
        for question in self.questions.values_mut() {
            let State::Due(at) = question.state else { continue };
            if at > now {
                continue;
            }
            let Some(address) = self.coordinators.address() else {
                let at = now + BACKOFF.longest();
                question.state = State::Due(at);
                context.set_timer(at, self.owner);
                continue;
            };
            let (parts, timeout) = ([question.body.as_slice()], Some(question.timeout));
            let call = context.call(self.owner, address, question.opcode, &parts, timeout);
            question.state = State::Asked { call, coordinator: self.coordinators.assumed() };
        }
    }

    /// Takes the outcome of a call of this client.
    pub fn reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) -> CoordinatorReply {
        let ours = self.questions.iter_mut().find_map(|(id, question)| match question.state {
            State::Asked { call: asked, coordinator } if asked == call => {
                Some((*id, question, coordinator))
            }
            _ => None,
        });
        let Some((id, question, coordinator)) = ours else { return CoordinatorReply::Later };
        match &outcome {
            Err(error) if error.is_of_another_cluster() => self.strangers += 1,
            _ => self.strangers = 0,
        }
        let (asked, another) = match outcome {
            Ok(_) => (None, false),
            Err(CallError::Refused { status, hint, .. }) => match status.next() {
                Next::Refresh => (Some(Duration::ZERO), true),
                Next::Wait => (Some(Duration::from_micros(u64::from(hint))), false),
                Next::Take | Next::GiveUp => (None, false),
            },
            Err(CallError::Congested) => (Some(Duration::ZERO), false),
            Err(CallError::Unreachable(_) | CallError::Broken | CallError::Late) => {
                (Some(Duration::ZERO), true)
            }
            Err(CallError::UnknownStatus(_) | CallError::TooLong) => (None, false),
        };
        let Some(wait) = asked else {
            let asker = question.asker;
            self.questions.remove(&id);
            let answer = outcome.map(<[u8]>::to_vec);
            return CoordinatorReply::Answered { asker, question: id, answer };
        };
        question.failures += 1;
        let failures = question.failures;
        let at = context.now() + wait + BACKOFF.random_wait(failures, context.random());
        question.state = State::Due(at);
        context.set_timer(at, self.owner);
        if another {
            self.coordinators.pass_over(coordinator);
        }
        if another && self.coordinators.is_round(failures as usize) {
            // All of them have failed: they may be elsewhere.
            self.coordinators.resolve_again();
        }
        CoordinatorReply::Later
    }

    /// Handles its timer: asks the questions that are due again.
    pub fn on_timer(&mut self, context: &mut Context<'_>) {
        self.ask_due_questions(context);
    }
}
