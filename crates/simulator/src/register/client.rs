//! Clients of a register that record their requests and the answers.

use super::protocol::{Identity, Reply, Update};
use crate::linearizability::{Action, Condition, Operation, Outcome, Version};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_rpc::{Decision, Opcode, Retry, TaskCaller};
use thunderhead_runtime::Random;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::tasks::Tasks;
use zerocopy::{FromBytes, IntoBytes};

/// The clients' work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// The number of different keys.
    pub keys: u64,
    /// The number of operations of each client.
    pub operations: u64,
    /// The mean pause of a client between two operations.
    pub thinks: Duration,
    /// The time for which a client tries one operation.
    pub deadline: Duration,
    /// The time for which a client waits for one answer.
    pub timeout: Duration,
}

/// All requests and answers of the clients. Clones are handles to the same record.
#[derive(Clone)]
pub struct Recorder {
    time: Rc<dyn Fn() -> u64>,
    history: Rc<RefCell<Vec<Operation<u64>>>>,
}

impl Recorder {
    /// Returns an empty record; `time` is a clock that all clients share.
    #[must_use]
    pub fn new(time: impl Fn() -> u64 + 'static) -> Recorder {
        Recorder { time: Rc::new(time), history: Rc::default() }
    }

    /// Returns the operations recorded so far.
    #[must_use]
    pub fn history(&self) -> Vec<Operation<u64>> {
        self.history.borrow().clone()
    }

    /// Records a call. The operation counts as unanswered until its answer is recorded.
    fn call(&self, key: u64, action: Action) -> usize {
        let called = (self.time)();
        let operation =
            Operation { key, called, answered: called, action, outcome: Outcome::Unknown };
        self.history.borrow_mut().push(operation);
        self.history.borrow().len() - 1
    }

    fn answer(&self, number: usize, outcome: Outcome) {
        let answered = (self.time)();
        if let Some(operation) = self.history.borrow_mut().get_mut(number) {
            operation.answered = answered;
            operation.outcome = outcome;
        }
    }
}

/// One client: a task of some node.
pub struct Client {
    caller: TaskCaller,
    tasks: Tasks,
    clock: Clock,
    random: Random,
    server: SocketAddr,
    recorder: Recorder,
    /// Drawn at random, so that no other client has it.
    identity: u64,
    sequence: u64,
    /// The version it saw last.
    seen: Version,
    deadline: Duration,
    timeout: Duration,
}

impl Client {
    /// Returns a client on a node.
    #[must_use]
    pub fn new(
        (caller, tasks, clock): (TaskCaller, Tasks, Clock),
        mut random: Random,
        server: SocketAddr,
        recorder: Recorder,
        workload: &Workload,
    ) -> Client {
        let (identity, sequence, seen) = (random.number(), 0, Version::NONE);
        let Workload { deadline, timeout, .. } = *workload;
        Client {
            caller,
            tasks,
            clock,
            random,
            server,
            recorder,
            identity,
            sequence,
            seen,
            deadline,
            timeout,
        }
    }

    /// Does all operations, and then calls `done`.
    pub async fn run(mut self, workload: Workload, done: impl FnOnce()) {
        for _ in 0..workload.operations {
            let thinks = self.random.exponential(workload.thinks.as_nanos() as f64) as u64;
            self.tasks.sleep(Duration::from_nanos(thinks)).await;
            let key = self.random.below(workload.keys);
            let action = self.choose();
            self.operate(key, action).await;
        }
        done();
    }

    fn choose(&mut self) -> Action {
        let condition = match self.random.below(8) {
            0 => Condition::Absent,
            1 => Condition::Present,
            2 | 3 => Condition::VersionIs(self.seen),
            _ => Condition::Always,
        };
        match self.random.below(10) {
            0..4 => Action::Read,
            4..7 => Action::Write { value: self.random.below(1 << 56), condition },
            7 => Action::Delete { condition },
            _ => Action::Increment { by: 1 + self.random.below(1000) },
        }
    }

    /// Does one operation and records it; returns the outcome.
    pub async fn operate(&mut self, key: u64, action: Action) -> Outcome {
        let number = self.recorder.call(key, action);
        let (opcode, body) = match action {
            Action::Read => (Opcode::RegisterRead, key.to_le_bytes().to_vec()),
            action => {
                self.sequence += 1;
                let identity = Identity {
                    client: self.identity.into(),
                    sequence: self.sequence.into(),
                    first_unacknowledged: self.sequence.into(),
                };
                (Opcode::RegisterUpdate, Update::new(identity, key, action).as_bytes().to_vec())
            }
        };
        let deadline = self.clock.now() + self.deadline;
        let mut retry = Retry::new(opcode.repeat(), deadline);
        let outcome = loop {
            let call = self.caller.call(self.server, opcode, body.clone(), Some(self.timeout));
            match call.await {
                Ok(reply) => {
                    let reply = Reply::ref_from_bytes(&reply).ok().and_then(Reply::outcome);
                    break reply.unwrap_or(Outcome::Unknown);
                }
                Err(error) => match retry.decide(error, self.clock.now(), &mut self.random) {
                    Decision::Again { at, .. } => self.tasks.sleep_until(at).await,
                    Decision::GiveUp => break Outcome::Unknown,
                },
            }
        };
        if outcome != Outcome::Unknown {
            self.recorder.answer(number, outcome);
        }
        if let Outcome::Found(version, _) | Outcome::Done(version, _) = outcome {
            self.seen = version;
        }
        outcome
    }
}
