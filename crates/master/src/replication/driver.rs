//! Connects a shard's manager with its node: requests become calls, or go straight to the backup of
//! the same process.

use super::messages::Outgoing;
use super::{AwaitedAnswers, Replication, ReplicationStatus, Request, To};
use crate::coordinator_client::{CoordinatorClient, QuestionId};
use crate::limits::{LOCAL_ROUNDS_MAX, REPLICATE_TIMEOUT, SENT_KILOBYTE};
use crate::owner::Owner;
use crate::parked::Parked;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thunderhead_log::Log;
use thunderhead_rpc::{CallError, CallId, Context, Opcode};
use thunderhead_runtime::Time;
use thunderhead_runtime::timers::TimerId;
use thunderhead_wire::{ServerId, Status};

/// An unneeded turn is cancelled if it would come this soon. Later ones are rare.
const SOON: Duration = Duration::from_millis(2);

/// The answer of the backup of the same process to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalAnswer {
    /// The body of its answer, or that it refuses.
    Now(Result<Vec<u8>, Status>),
    /// [`LocalBackup::done`] will name this number.
    Later(u64),
}

/// A replica that is passed on without a copy.
pub type ReplicaBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The bytes of a replica that the backup of the same process gives when a log is taken back.
pub enum LocalReplica {
    /// All bytes of a replica.
    Here(ReplicaBytes),
    /// The shard must ask for it by messages.
    ByMessage,
    /// It is refused as a message would be.
    Refused(CallError),
}

/// The backup of the same process, without a network in between. Its owner ends its turn after the
/// shard's, so that the bytes that came go to the disk, and before, so that the shard learns of
/// durable bytes.
pub trait LocalBackup {
    /// A message of [`Opcode::Replicate`], in pieces: its head and those of its parts are not cut.
    /// It must not call the replication that it comes from.
    fn replicate(&mut self, body: &[&[u8]]) -> LocalAnswer;

    /// A message that is answered now.
    fn done(&mut self) -> Option<(u64, Vec<u8>)>;

    /// Returns the replica that the body of [`Opcode::RecoveryData`] asks for, if that is a whole
    /// replica.
    fn replica(&mut self, now: Time, body: &[u8]) -> LocalReplica {
        let _ = (now, body);
        LocalReplica::ByMessage
    }
}

/// The backup of the same process, and which server that is.
pub(crate) type OwnBackup<'a> = Option<(ServerId, &'a mut dyn LocalBackup)>;

/// Whether a timer that was set may stay as it is. The wanted time changes with each round. A turn
/// that comes too early updates the timer. So the timer is updated earlier only if it would go off
/// soon, as after held bytes are sent.
fn keeps(set: Option<Time>, wanted: Option<Time>, now: Time) -> bool {
    match (set, wanted) {
        (None, wanted) => wanted.is_none(),
        (Some(set), Some(at)) if set >= at => set == at,
        (Some(set), _) => set > now + SOON,
    }
}

/// See the module's documentation.
pub(crate) struct ReplicationDriver {
    pub(crate) replication: Replication,
    /// The status after the last answer or turn.
    pub(crate) status: ReplicationStatus,
    own: ServerId,
    calls: BTreeMap<CallId, u64>,
    questions: BTreeMap<QuestionId, u64>,
    locals: BTreeMap<u64, u64>,
    timer: Option<(Time, TimerId)>,
}

impl ReplicationDriver {
    pub(crate) fn new(replication: Replication, own: ServerId) -> ReplicationDriver {
        ReplicationDriver {
            status: replication.status(),
            replication,
            own,
            calls: BTreeMap::new(),
            questions: BTreeMap::new(),
            locals: BTreeMap::new(),
            timer: None,
        }
    }

    /// Takes the outcome of a call.
    pub(crate) fn reply(&mut self, now: Time, call: CallId, outcome: Result<&[u8], CallError>) {
        let Some(number) = self.calls.remove(&call) else { return };
        self.replication.answered(now, number, outcome);
        self.status = self.replication.status();
    }

    /// Takes the coordinator's answer to a question.
    pub(crate) fn answered(
        &mut self,
        now: Time,
        question: QuestionId,
        answer: &Result<Vec<u8>, CallError>,
    ) {
        let Some(number) = self.questions.remove(&question) else { return };
        self.replication.answered(now, number, answer.as_deref().map_err(|error| *error));
        self.status = self.replication.status();
    }

    /// The server that it is part of.
    pub(crate) fn own(&self) -> ServerId {
        self.own
    }

    /// Handles its timer. The end of the turn does the work.
    pub(crate) fn on_timer(&mut self) {
        self.timer = None;
    }

    /// Sends the entries of the log's turn, and the messages that follow from immediate answers.
    /// The log has taken a turn before, and takes another if more has become durable.
    pub(crate) fn run(
        &mut self,
        context: &mut Context<'_>,
        log: &mut Log,
        coordinator: &mut CoordinatorClient,
        parked: &Parked,
        mut local: Option<&mut dyn LocalBackup>,
    ) {
        let now = context.now();
        if let Some(backup) = &mut local {
            while let Some((number, body)) = backup.done() {
                if let Some(number) = self.locals.remove(&number) {
                    self.replication.answered(now, number, Ok(&body));
                }
            }
        }
        let awaited =
            |durable| AwaitedAnswers { all: parked.count(), beyond: parked.beyond(durable) };
        let mut answered = false;
        for round in 0..LOCAL_ROUNDS_MAX {
            self.status = if round == 0 {
                self.replication.turn(now, log, awaited)
            } else {
                self.replication.turn_again(now, log, awaited)
            };
            answered = false;
            if self.status.has_requests {
                while let Some(request) = self.replication.next_outgoing() {
                    answered |= self.send(context, coordinator, request, &mut local);
                }
                self.status = self.replication.status();
            }
            if self.status.durable > log.durable() {
                log.turn_again();
            } else if !answered {
                break;
            }
        }
        if answered {
            // More work remains than fits into a turn.
            self.status.deadline = Some(now);
        }
        self.set_timer(context);
    }

    fn set_timer(&mut self, context: &mut Context<'_>) {
        let wanted = self.status.deadline;
        if keeps(self.timer.map(|(set, _)| set), wanted, context.now()) {
            return;
        }
        if let Some((_, timer)) = self.timer.take() {
            context.cancel_timer(timer);
        }
        self.timer = wanted.map(|at| (at, context.set_timer(at, Owner::Replication)));
    }

    /// Sends a request; true if it was answered at once.
    fn send(
        &mut self,
        context: &mut Context<'_>,
        coordinator: &mut CoordinatorClient,
        outgoing: Outgoing,
        local: &mut Option<&mut dyn LocalBackup>,
    ) -> bool {
        let now = context.now();
        let Request { number, to, opcode, .. } = outgoing.request;
        match (to, local) {
            (To::Backup(server, _), Some(backup))
                if server == self.own && opcode == Opcode::Replicate =>
            {
                let answer =
                    self.replication.send_pieces(outgoing, |pieces| backup.replicate(pieces));
                let Some(answer) = answer else { return true };
                match answer {
                    LocalAnswer::Now(Ok(answer)) => {
                        self.replication.answered(now, number, Ok(&answer));
                    }
                    LocalAnswer::Now(Err(status)) => {
                        let refused = CallError::Refused { status, hint: 0, detail: 0 };
                        self.replication.answered(now, number, Err(refused));
                    }
                    LocalAnswer::Later(later) => {
                        self.locals.insert(later, number);
                        return false;
                    }
                }
                return true;
            }
            (To::Backup(_, address), _) => {
                let timeout = Some(REPLICATE_TIMEOUT);
                let call = self.replication.send_pieces(outgoing, |pieces| {
                    let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
                    context.count_work(SENT_KILOBYTE * (bytes / 1024) as u32);
                    context.call(Owner::Replication, address, opcode, pieces, timeout)
                });
                let Some(call) = call else { return true };
                self.calls.insert(call, number);
            }
            (To::Coordinator, _) => {
                let body = outgoing.request.body;
                let (asker, timeout) = (Owner::Replication, REPLICATE_TIMEOUT);
                let question = coordinator.ask_within(context, asker, opcode, body, timeout);
                self.questions.insert(question, number);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_is_wanted_comes_and_one_that_is_not_is_taken_back_where_it_is_near() {
        let now = Time(1_000_000_000);
        let after = |micros: i64| Time(now.0.saturating_add_signed(micros * 1000));
        let (past, near, far) = (after(-50), after(100), after(100_000));
        for at in [past, near, far] {
            assert!(!keeps(None, Some(at), now), "none is set");
            assert!(keeps(Some(at), Some(at), now));
            assert!(!keeps(Some(Time(at.0 + 1)), Some(at), now), "it would be late");
        }
        assert!(keeps(None, None, now));
        for near in [past, near] {
            assert!(!keeps(Some(near), Some(far), now));
            assert!(!keeps(Some(near), None, now));
        }
        assert!(keeps(Some(far), Some(after(200_000)), now));
        assert!(keeps(Some(far), None, now));
    }
}
