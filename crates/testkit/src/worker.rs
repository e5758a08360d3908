//! Users whose history is judged: each does one operation after another on a few objects of one
//! shard, and repeats a request by the rules for retries until its deadline.

use crate::user::number_at;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_rpc::{CallError, Decision, Node, Opcode, Retry, Service, TaskCaller};
use thunderhead_runtime::Random;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::tasks::Tasks;
use thunderhead_simulator::Simulation;
use thunderhead_simulator::linearizability::{
    Action, Condition as Judged, Operation, Outcome, Version as Seen,
};
use thunderhead_wire::operations::{Identity, ObjectHead};
use thunderhead_wire::{Condition, LeaseId, Sequence, Status, TableId, Version};
use zerocopy::IntoBytes;

/// The record of all workers of a simulation.
#[derive(Clone)]
pub struct History {
    time: Rc<dyn Fn() -> u64>,
    operations: Rc<RefCell<Vec<Operation<u64>>>>,
}

impl History {
    /// Returns an empty history by the true time of a simulation.
    #[must_use]
    pub fn of(simulation: &Simulation) -> History {
        let truth = simulation.truth();
        History { time: Rc::new(move || truth.get()), operations: Rc::default() }
    }

    /// Returns the true time, in nanoseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        (self.time)()
    }

    /// Returns all operations so far.
    #[must_use]
    pub fn operations(&self) -> Vec<Operation<u64>> {
        self.operations.borrow().clone()
    }

    /// Returns the number of operations with an answer.
    #[must_use]
    pub fn answered(&self) -> usize {
        let operations = self.operations.borrow();
        operations.iter().filter(|it| it.outcome != Outcome::Unknown).count()
    }

    fn begin(&self, key: u64, action: Action) -> usize {
        let (called, outcome) = (self.now(), Outcome::Unknown);
        let mut operations = self.operations.borrow_mut();
        operations.push(Operation { key, called, answered: called, action, outcome });
        operations.len() - 1
    }

    fn end(&self, number: usize, outcome: Outcome) {
        if outcome != Outcome::Unknown {
            let mut operations = self.operations.borrow_mut();
            (operations[number].answered, operations[number].outcome) = (self.now(), outcome);
        }
    }
}

/// The operations of a worker.
#[derive(Clone, Copy)]
pub struct Workload {
    /// The table with the objects.
    pub table: TableId,
    /// How many operations it does.
    pub operations: u64,
    /// How long it pauses before an operation, on average.
    pub thinks: Duration,
    /// The time for an operation.
    pub deadline: Duration,
    /// The time for one attempt.
    pub timeout: Duration,
    /// Whether updates name a lease and a sequence number, so that a retry repeats no effect.
    pub has_identities: bool,
    /// Draws a key and an action, given the newest version that the worker has seen.
    pub choose: fn(&mut Random, Version) -> (u64, Action),
    /// Returns the operation that writes a value, and the bytes that it writes. The value itself
    /// comes first.
    pub encode: fn(u64) -> (Opcode, Vec<u8>),
}

/// A user whose operations are recorded.
pub struct Worker {
    caller: TaskCaller,
    tasks: Tasks,
    clock: Clock,
    random: Random,
    shard: SocketAddr,
    history: History,
    workload: Workload,
    lease: LeaseId,
    /// The sequence of its last update.
    sequence: Sequence,
    seen: Version,
}

impl Worker {
    /// Returns a worker on the host of a node, with the lease of its updates.
    #[must_use]
    pub fn new<S: Service>(
        node: &Node<S>,
        clock: &Clock,
        random: Random,
        shard: SocketAddr,
        history: &History,
        (lease, workload): (LeaseId, Workload),
    ) -> Worker {
        Worker {
            caller: node.task_caller(),
            tasks: node.tasks().clone(),
            clock: clock.clone(),
            random,
            shard,
            history: history.clone(),
            workload,
            lease,
            sequence: Sequence::NONE,
            seen: Version::NONE,
        }
    }

    /// Does all operations.
    pub async fn run(mut self) {
        for _ in 0..self.workload.operations {
            let thinks = self.random.exponential(self.workload.thinks.as_nanos() as f64) as u64;
            self.tasks.sleep(Duration::from_nanos(thinks)).await;
            let (key, action) = (self.workload.choose)(&mut self.random, self.seen);
            let number = self.history.begin(key, action);
            let outcome = self.operate(key, action).await;
            self.history.end(number, outcome);
        }
    }

    async fn operate(&mut self, key: u64, action: Action) -> Outcome {
        let (opcode, body) = self.request(key, action);
        let deadline = self.clock.now() + self.workload.deadline;
        let mut retry = Retry::new(opcode.repeat(), deadline);
        loop {
            let timeout = Some(self.workload.timeout);
            match self.caller.call(self.shard, opcode, body.clone(), timeout).await {
                Ok(reply) => return self.understand(action, &reply),
                Err(CallError::Refused { status: Status::NotFound, .. }) => return Outcome::Absent,
                Err(CallError::Refused {
                    status: Status::ConditionFailed | Status::NotANumber,
                    detail,
                    ..
                }) => {
                    self.seen = Version(detail);
                    return Outcome::Refused(Seen(detail));
                }
                Err(error) => match retry.decide(error, self.clock.now(), &mut self.random) {
                    Decision::Again { at, .. } => self.tasks.sleep_until(at).await,
                    Decision::GiveUp => return Outcome::Unknown,
                },
            }
        }
    }

    /// Returns the request for an action.
    fn request(&mut self, key: u64, action: Action) -> (Opcode, Vec<u8>) {
        let (judged, (opcode, argument)) = match action {
            Action::Read => (Judged::Always, (Opcode::Read, Vec::new())),
            Action::Write { value, condition } => (condition, (self.workload.encode)(value)),
            Action::Delete { condition } => (condition, (Opcode::Delete, Vec::new())),
            Action::Increment { by } => {
                (Judged::Always, (Opcode::Increment, by.to_le_bytes().to_vec()))
            }
        };
        let condition = match judged {
            Judged::Always => Condition::Always,
            Judged::Absent => Condition::Absent,
            Judged::Present => Condition::Present,
            Judged::VersionIs(version) => Condition::VersionIs(Version(version.0)),
        };
        let name = key.to_be_bytes();
        let head = ObjectHead::new(self.workload.table, name.len(), condition, 0);
        let mut body = Vec::new();
        if opcode != Opcode::Read {
            self.sequence = self.sequence.next();
            let identity = match self.workload.has_identities {
                true => Identity::new(self.lease, self.sequence, self.sequence),
                false => Identity::NONE,
            };
            body.extend_from_slice(identity.as_bytes());
        }
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&name);
        body.extend_from_slice(&argument);
        (opcode, body)
    }

    fn understand(&mut self, action: Action, reply: &[u8]) -> Outcome {
        let version = Seen(number_at(reply, 0));
        if version.0 > 0 {
            self.seen = Version(version.0);
        }
        match action {
            Action::Read => Outcome::Found(version, number_at(reply, 8)),
            Action::Write { value, .. } => Outcome::Done(version, value),
            Action::Increment { .. } => Outcome::Done(version, number_at(reply, 8)),
            Action::Delete { .. } if version.0 == 0 => Outcome::Absent,
            Action::Delete { .. } => Outcome::Deleted(version),
        }
    }
}
