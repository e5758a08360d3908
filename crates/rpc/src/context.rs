//! What a service sees of the node it runs on.

use crate::calls::{CallError, CallId, Calls, For};
use crate::opcode::Opcode;
use crate::tasks::Calling;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_net::{ConnectionId, OwnCluster, Transport};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::slice::{Budget, SLICE};
use thunderhead_runtime::tasks::Tasks;
use thunderhead_runtime::timers::{TimerId, Timers};
use thunderhead_runtime::{Random, Time, World};
use thunderhead_wire::message::{MESSAGE_HEAD_BYTES, MessageHead};
use thunderhead_wire::{ClusterId, Status};
use zerocopy::IntoBytes;

/// Where a reply goes. Kept while a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    pub(crate) connection: ConnectionId,
    pub(crate) id: u64,
    /// When the caller no longer waits.
    pub deadline: Time,
}

/// A request, as it lies in the buffer it came in.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What is asked for.
    pub opcode: Opcode,
    /// With what.
    pub body: &'a [u8],
    /// Where the reply goes.
    pub reply_to: ReplyTo,
}

/// What a node has beside its transport and its service.
pub(crate) struct State {
    pub(crate) now: Time,
    /// The time, if the clock was read since something was last received.
    pub(crate) fresh: Option<Time>,
    pub(crate) calls: Calls,
    pub(crate) timers: Timers<u64>,
    /// Its workers end when the node goes.
    pub(crate) world: World,
    pub(crate) tasks: Tasks,
    pub(crate) calling: Calling,
    /// Calls that failed before they were made, to be told at the end of the turn.
    pub(crate) failed: Vec<(CallId, CallError)>,
    pub(crate) failures: u64,
    pub(crate) is_simulated: bool,
}

/// Sends a message; one of a few parts without allocating.
#[inline]
pub(crate) fn send(
    transport: &mut dyn Transport,
    to: ConnectionId,
    head: &MessageHead,
    parts: &[&[u8]],
) {
    let head = head.as_bytes();
    match parts {
        [] => transport.send(to, &[head]),
        [one] => transport.send(to, &[head, one]),
        [one, two] => transport.send(to, &[head, one, two]),
        [one, two, three] => transport.send(to, &[head, one, two, three]),
        many => transport.send(to, &[&[head], many].concat()),
    }
}

/// What a service sees of the node it runs on, during one call into it.
pub struct Context<'a> {
    pub(crate) transport: &'a mut dyn Transport,
    pub(crate) state: &'a mut State,
}

impl Context<'_> {
    /// The time of this turn.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Time {
        self.state.now
    }

    /// A time at which what has come so far had come: the clock is read for it, once for all that
    /// was received together. [`now`](Context::now) is read before anything is received, and a
    /// process that was stopped in between takes what came long after that for what came then: who
    /// must not answer after some time asks here.
    #[inline]
    #[must_use]
    pub fn now_or_later(&mut self) -> Time {
        match self.state.fresh {
            Some(fresh) => fresh,
            None => *self.state.fresh.insert(self.state.world.clock.now()),
        }
    }

    /// A slice for long work: see [`thunderhead_runtime::slice`]. Strict in debug builds and in the
    /// simulator.
    #[must_use]
    pub fn slice(&self) -> Budget {
        Budget::new(SLICE, cfg!(debug_assertions) || self.state.is_simulated)
    }

    /// Says to which cluster this node belongs: [`Transport::set_cluster`].
    pub fn set_cluster(&mut self, cluster: ClusterId) {
        self.transport.set_cluster(OwnCluster::Known(cluster));
    }

    /// The cluster that this node belongs to, if it is known.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.transport.cluster().known()
    }

    /// Random numbers.
    pub fn random(&mut self) -> &mut Random {
        &mut self.state.world.random
    }

    /// The world, for a service that has yet to open its files and to start its workers: what may
    /// wait is done before anybody is served.
    pub fn world(&mut self) -> &mut World {
        &mut self.state.world
    }

    /// Wakes this node from other threads.
    #[must_use]
    pub fn alarm(&self) -> &Alarm {
        &self.state.world.alarm
    }

    /// What a service spawns its own tasks with.
    #[must_use]
    pub fn tasks(&self) -> &Tasks {
        &self.state.tasks
    }

    /// What a service's tasks make calls with.
    #[must_use]
    pub fn calling(&self) -> Calling {
        self.state.calling.clone()
    }

    /// Answers a request with a body made of some parts.
    #[inline]
    pub fn reply(&mut self, to: ReplyTo, parts: &[&[u8]]) {
        self.answer(to, Status::Ok, 0, parts);
    }

    /// Refuses a request. `hint` is what the status wants: for "busy" the microseconds to wait.
    pub fn refuse(&mut self, to: ReplyTo, status: Status, hint: u32, parts: &[&[u8]]) {
        self.answer(to, status, hint, parts);
    }

    #[inline]
    fn answer(&mut self, to: ReplyTo, status: Status, hint: u32, parts: &[&[u8]]) {
        let head = MessageHead::reply(to.id, status.code(), hint);
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let peer = self.transport.peer(to.connection);
        let Some(most) = peer.map(|peer| peer.agreement.message_bytes_max) else { return };
        if bytes + MESSAGE_HEAD_BYTES > most {
            let head = MessageHead::reply(to.id, Status::ReplyTooLong.code(), 0);
            return self.transport.send(to.connection, &[head.as_bytes()]);
        }
        send(self.transport, to.connection, &head, parts);
    }

    /// Calls a server; [`Service::reply`](crate::Service::reply) is told what came of it.
    pub fn call(
        &mut self,
        to: SocketAddr,
        opcode: Opcode,
        parts: &[&[u8]],
        timeout: Option<Duration>,
    ) -> CallId {
        let timing = (self.state.now, timeout);
        let code = opcode.code();
        match self.state.calls.call(self.transport, to, code, parts, timing, For::Service) {
            Ok(id) => id,
            Err((error, _)) => {
                // Numbers from the top are never those of real calls.
                self.state.failures += 1;
                let id = CallId(u64::MAX - self.state.failures);
                self.state.failed.push((id, error));
                self.state.world.alarm.ring();
                id
            }
        }
    }

    /// Has [`Service::timer`](crate::Service::timer) called at a time, with this number.
    pub fn set_timer(&mut self, at: Time, number: u64) -> TimerId {
        self.state.timers.set(at, number)
    }

    /// Cancels a timer.
    pub fn cancel_timer(&mut self, timer: TimerId) {
        self.state.timers.cancel(timer);
    }
}
