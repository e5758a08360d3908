//! A user: a task that sends requests to coordinators and to a shard, and repeats them as a client
//! would, but without the client's library. So a test sees each request and each answer.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_rpc::{CallError, Node, Opcode, Repeat, Service, TaskCaller};
use thunderhead_runtime::tasks::Tasks;
use thunderhead_wire::control::{self, ShardStatus, Tablets};
use thunderhead_wire::operations::{Identity, ObjectHead};
use thunderhead_wire::{Condition, MasterId, Next, Status, TableId, TabletRange, Version};
use zerocopy::IntoBytes;

/// A user of a cluster.
#[derive(Clone)]
pub struct User {
    /// Sends its requests.
    pub caller: TaskCaller,
    /// The tasks of its host.
    pub tasks: Tasks,
    /// The shard that it asks.
    pub shard: SocketAddr,
    coordinators: Rc<[SocketAddr]>,
    /// The coordinator that it asks next. All clones of a user share it.
    at: Rc<Cell<usize>>,
}

/// How long a user waits for a coordinator's answer.
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(3));

impl User {
    /// Returns a user on the host of a node.
    #[must_use]
    pub fn new<S: Service>(
        node: &Node<S>,
        shard: SocketAddr,
        coordinators: &Rc<[SocketAddr]>,
    ) -> User {
        User::with(node.task_caller(), node.tasks().clone(), shard, coordinators)
    }

    /// Returns a user that sends its requests as a part of another program.
    #[must_use]
    pub fn with(
        caller: TaskCaller,
        tasks: Tasks,
        shard: SocketAddr,
        coordinators: &Rc<[SocketAddr]>,
    ) -> User {
        User { caller, tasks, shard, coordinators: Rc::clone(coordinators), at: Rc::default() }
    }

    /// Returns the same user, but for another shard.
    #[must_use]
    pub fn of_shard(&self, shard: SocketAddr) -> User {
        User { shard, ..self.clone() }
    }

    fn coordinator(&self) -> SocketAddr {
        self.coordinators[self.at.get() % self.coordinators.len()]
    }

    fn try_the_next_coordinator(&self) {
        self.at.set(self.at.get() + 1);
    }

    /// Asks one coordinator after the other until one of them answers or finally refuses.
    ///
    /// # Errors
    ///
    /// Returns the status of the refusal.
    ///
    /// # Panics
    ///
    /// Panics if the answer is malformed.
    pub async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        opcode: Opcode,
        message: &impl serde::Serialize,
    ) -> Result<T, Status> {
        loop {
            let body = control::to_body(message);
            match self.caller.call(self.coordinator(), opcode, body, TIMEOUT).await {
                Ok(body) => return Ok(control::of_body(&body).expect("a well-formed answer")),
                Err(CallError::Refused { status, .. }) if status.next() == Next::GiveUp => {
                    return Err(status);
                }
                Err(CallError::Refused { status, .. }) if status.next() == Next::Wait => {}
                Err(_) => self.try_the_next_coordinator(),
            }
            self.tasks.sleep(Duration::from_millis(10)).await;
        }
    }

    /// Asks one coordinator after the other until one of them answers, or the patience ends. A
    /// request that may have been done is repeated only if its operation allows that.
    ///
    /// # Errors
    ///
    /// Returns the last error.
    pub async fn ask_for(
        &self,
        patience: Duration,
        opcode: Opcode,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, CallError> {
        let deadline = self.tasks.now() + patience;
        loop {
            let called = self.caller.call(self.coordinator(), opcode, body.clone(), TIMEOUT).await;
            let error = match called {
                Ok(body) => return Ok(body),
                Err(error) => error,
            };
            let wait = match error {
                CallError::Refused { status: Status::NotLeader, .. }
                | CallError::Unreachable(_)
                | CallError::Congested => {
                    self.try_the_next_coordinator();
                    Duration::from_millis(30)
                }
                // The table exists: a repetition would be refused.
                CallError::Refused { status: Status::InProgress, .. }
                    if opcode == Opcode::CreateTable =>
                {
                    return Err(error);
                }
                CallError::Refused { status, hint, .. } if status.next() == Next::Wait => {
                    Duration::from_micros(u64::from(hint).max(1000))
                }
                CallError::Broken
                | CallError::Late
                | CallError::Refused { status: Status::LeadershipLost, .. }
                    if opcode.repeat() != Repeat::Never =>
                {
                    self.try_the_next_coordinator();
                    Duration::from_millis(30)
                }
                _ => return Err(error),
            };
            if self.tasks.now() + wait >= deadline {
                return Err(error);
            }
            self.tasks.sleep(wait).await;
        }
    }

    /// Sends a request to the shard once.
    ///
    /// # Errors
    ///
    /// Returns the error of the call.
    pub async fn call(&self, opcode: Opcode, body: Vec<u8>) -> Result<Vec<u8>, CallError> {
        self.caller.call(self.shard, opcode, body, Some(Duration::from_millis(300))).await
    }

    /// Sends a request to the shard until its answer is neither an error of the network nor a
    /// request to wait.
    ///
    /// # Errors
    ///
    /// Returns the status of the refusal.
    pub async fn insist(&self, opcode: Opcode, body: Vec<u8>) -> Result<Vec<u8>, Status> {
        loop {
            match self.call(opcode, body.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(CallError::Refused { status, .. }) if status.next() != Next::Wait => {
                    return Err(status);
                }
                Err(_) => self.tasks.sleep(Duration::from_millis(1)).await,
            }
        }
    }

    /// Commands the shard to take tablets.
    ///
    /// # Errors
    ///
    /// Returns the status of the refusal.
    pub async fn take(&self, master: MasterId, tablets: Vec<TabletRange>) -> Result<(), Status> {
        let body =
            control::to_body(&Tablets { master, tablets, map_version: 0, options: Vec::new() });
        self.insist(Opcode::TakeTablets, body).await.map(drop)
    }

    /// Returns the shard's report about itself.
    ///
    /// # Panics
    ///
    /// Panics if the shard refuses it.
    pub async fn status(&self) -> ShardStatus {
        let status = self.insist(Opcode::ShardStatus, b"{}".to_vec()).await;
        control::of_body(&status.expect("a report")).expect("a well-formed report")
    }

    /// Reads an object.
    ///
    /// # Errors
    ///
    /// Returns the status of the refusal.
    pub async fn read(&self, table: TableId, key: &[u8]) -> Result<(Version, Vec<u8>), Status> {
        let head = ObjectHead::new(table, key.len(), Condition::Always, 0);
        let reply = self.insist(Opcode::Read, [head.as_bytes(), key].concat()).await?;
        Ok((Version(number_at(&reply, 0)), reply[8..].to_vec()))
    }

    /// Writes an object, and returns its version.
    ///
    /// # Errors
    ///
    /// Returns the status of the refusal.
    pub async fn write(
        &self,
        identity: Identity,
        table: TableId,
        key: &[u8],
        value: &[u8],
    ) -> Result<u64, Status> {
        let reply = self.insist(Opcode::Write, update(identity, table, key, value)).await?;
        Ok(number_at(&reply, 0))
    }
}

/// Returns the body of an unconditional update.
#[must_use]
pub fn update(identity: Identity, table: TableId, key: &[u8], argument: &[u8]) -> Vec<u8> {
    let head = ObjectHead::new(table, key.len(), Condition::Always, 0);
    [identity.as_bytes(), head.as_bytes(), key, argument].concat()
}

/// Returns the number at a place in an answer, or 0 if the answer is too short.
pub(crate) fn number_at(reply: &[u8], at: usize) -> u64 {
    let bytes = reply.get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().map_or(0, u64::from_le_bytes)
}
