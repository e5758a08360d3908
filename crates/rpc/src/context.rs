//! A service's view of its node.

use crate::calls::{CallError, CallId, Calls, OutcomeReceiver};
use crate::component::OwnerId;
use crate::opcode::Opcode;
use crate::tasks::TaskCaller;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_net::{ConnectionId, ForeignPeer, OwnCluster, Transport};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::slice::{Budget, MESSAGES, SLICE};
use thunderhead_runtime::tasks::Tasks;
use thunderhead_runtime::timers::{TimerId, Timers};
use thunderhead_runtime::{Random, Time, World};
use thunderhead_wire::message::{MESSAGE_HEAD_BYTES, MessageHead};
use thunderhead_wire::{ClusterId, Status};
use zerocopy::IntoBytes;

/// The address of a reply. A service keeps it while the request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    pub(crate) connection: ConnectionId,
    pub(crate) id: u64,
    /// The time after which the caller no longer waits.
    pub deadline: Time,
}

/// A request, in the buffer in which it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The requested operation.
    pub opcode: Opcode,
    /// The operation's arguments.
    pub body: &'a [u8],
    /// The address of the reply.
    pub reply_to: ReplyTo,
}

/// The parts of a node other than its transport and its service.
pub(crate) struct State {
    pub(crate) now: Time,
    /// The time, if the clock was read since bytes last arrived.
    pub(crate) fresh: Option<Time>,
    pub(crate) calls: Calls,
    pub(crate) timers: Timers<OwnerId>,
    /// Its workers end when the node is dropped.
    pub(crate) world: World,
    pub(crate) tasks: Tasks,
    pub(crate) task_caller: TaskCaller,
    /// Calls that failed before they were sent. Their outcomes are delivered at the end of the
    /// turn.
    pub(crate) failed: Vec<(OwnerId, CallId, CallError)>,
    pub(crate) failures: u64,
    pub(crate) is_simulated: bool,
    /// The cost of this turn's messages, as far as they were charged.
    pub(crate) charged: Duration,
    /// The long work of this turn, as far as it was counted.
    pub(crate) worked: Duration,
}

/// Sends a message, without allocating if it has few parts.
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

/// A service's view of its node, during one call into the service.
pub struct Context<'a> {
    pub(crate) transport: &'a mut dyn Transport,
    pub(crate) state: &'a mut State,
}

impl Context<'_> {
    /// Returns the time of this turn.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Time {
        self.state.now
    }

    /// Returns a time that is not before the arrival of any message so far. The clock is read for
    /// it, once for all messages that arrived together. [`now`](Context::now) is read before
    /// anything arrives. If the process was stopped in between, messages that came much later seem
    /// to have come then. A service that must not answer after a certain time uses this method.
    #[inline]
    #[must_use]
    pub fn now_or_later(&mut self) -> Time {
        match self.state.fresh {
            Some(fresh) => fresh,
            None => *self.state.fresh.insert(self.state.world.clock.now()),
        }
    }

    /// Returns the clock, for work that must end after some time.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.state.world.clock.clone()
    }

    /// Counts the cost of a message that takes long, known from benchmarks. When a turn's messages
    /// have cost enough, further messages wait for the next turn. The turn's slice for long work
    /// becomes shorter.
    pub fn charge(&mut self, cost: Duration) {
        self.state.charged += cost;
        if self.state.charged >= MESSAGES {
            self.transport.hold_input();
        }
    }

    /// Counts long work of this turn, by known costs, and so shortens the further slices of the
    /// turn. A turn with the work of several parts of a server then takes about as long as a turn
    /// with the work of one part.
    #[inline]
    pub fn count_work(&mut self, work: Duration) {
        self.state.worked += work;
    }

    /// Returns a slice for long work: see [`thunderhead_runtime::slice`]. It is strict in debug
    /// builds and in the simulator. The cost of the turn's messages and its other long work shorten
    /// it.
    #[must_use]
    pub fn slice(&self) -> Budget {
        self.whole_slice().after(self.state.charged + self.state.worked)
    }

    /// Returns a slice that no other work of the turn has shortened. It is for rare work for which
    /// a whole recovery waits.
    #[must_use]
    pub fn whole_slice(&self) -> Budget {
        Budget::new(SLICE, cfg!(debug_assertions) || self.state.is_simulated)
    }

    /// Sets the cluster that this node belongs to: [`Transport::set_cluster`].
    pub fn set_cluster(&mut self, cluster: ClusterId) {
        self.transport.set_cluster(OwnCluster::Known(cluster));
    }

    /// Returns the cluster that this node belongs to, if it is known.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.transport.cluster().known()
    }

    /// Returns the last peer that was refused because it belongs to another cluster.
    #[must_use]
    pub fn foreign_peer(&self) -> Option<ForeignPeer> {
        self.transport.counters().foreign_peer
    }

    /// Returns the random numbers of this node.
    pub fn random(&mut self) -> &mut Random {
        &mut self.state.world.random
    }

    /// Returns the world, for a service that still has to open its files and start its workers. It
    /// may block for that before it serves requests.
    pub fn world(&mut self) -> &mut World {
        &mut self.state.world
    }

    /// Returns the alarm by which other threads wake this node.
    #[must_use]
    pub fn alarm(&self) -> &Alarm {
        &self.state.world.alarm
    }

    /// Returns the handle with which a service spawns tasks.
    #[must_use]
    pub fn tasks(&self) -> &Tasks {
        &self.state.tasks
    }

    /// Returns the handle with which a service's tasks make calls.
    #[must_use]
    pub fn task_caller(&self) -> TaskCaller {
        self.state.task_caller.clone()
    }

    /// Answers a request with a body made of several parts.
    #[inline]
    pub fn reply(&mut self, to: ReplyTo, parts: &[&[u8]]) {
        self.answer(to, Status::Ok, 0, parts);
    }

    /// Refuses a request. The status gives `hint` its meaning: for "busy" the microseconds to wait.
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

    /// Calls a server. [`Service::reply`](crate::Service::reply) receives the outcome, with this
    /// owner.
    #[inline]
    pub fn call(
        &mut self,
        owner: impl Into<OwnerId>,
        to: SocketAddr,
        opcode: Opcode,
        parts: &[&[u8]],
        timeout: Option<Duration>,
    ) -> CallId {
        self.call_for(owner.into(), to, opcode, parts, timeout)
    }

    /// The same for all types of owners, so that the program has it once.
    fn call_for(
        &mut self,
        owner: OwnerId,
        to: SocketAddr,
        opcode: Opcode,
        parts: &[&[u8]],
        timeout: Option<Duration>,
    ) -> CallId {
        let timing = (self.state.now, timeout);
        let code = opcode.code();
        match self.state.calls.call(
            self.transport,
            to,
            code,
            parts,
            timing,
            OutcomeReceiver::Service(owner),
        ) {
            Ok(id) => id,
            Err((error, _)) => {
                // Ids from the top never belong to real calls.
                self.state.failures += 1;
                let id = CallId(u64::MAX - self.state.failures);
                self.state.failed.push((owner, id, error));
                self.state.world.alarm.ring();
                id
            }
        }
    }

    /// Requests a byte stream. [`Service::stream_opened`](crate::Service::stream_opened) or
    /// [`Service::stream_closed`](crate::Service::stream_closed) follows.
    pub fn connect_stream(&mut self, to: SocketAddr) -> ConnectionId {
        self.transport.connect_stream(to)
    }

    /// Sends bytes over a stream, made of several parts.
    #[inline]
    pub fn send_bytes(&mut self, to: ConnectionId, parts: &[&[u8]]) {
        self.transport.send_bytes(to, parts);
    }

    /// Whether a service should go on with the bytes of a stream: the stream's peer reads, and the
    /// turn's messages have not cost much. Otherwise the service wants the rest
    /// [again](thunderhead_net::stream::Then::Again).
    #[must_use]
    pub fn may_go_on(&self, with: ConnectionId) -> bool {
        self.state.charged < MESSAGES && self.transport.takes_more(with)
    }

    /// Offers the bytes of a stream again whose service wanted to
    /// [wait](thunderhead_net::stream::Then::Wait).
    pub fn resume_stream(&mut self, stream: ConnectionId) {
        self.transport.resume(stream);
    }

    /// Closes a stream once its peer has taken the output.
    pub fn finish_stream(&mut self, stream: ConnectionId) {
        self.transport.finish(stream);
    }

    /// Sends no more bytes over a stream, and tells its peer so. The peer may still send.
    pub fn end_output(&mut self, stream: ConnectionId) {
        self.transport.end_output(stream);
    }

    /// Whether the peer of a stream reads: not too many bytes wait for it.
    #[must_use]
    pub fn takes_more(&self, stream: ConnectionId) -> bool {
        self.transport.takes_more(stream)
    }

    /// Sets a timer: [`Service::timer`](crate::Service::timer) is called at this time, with this
    /// owner.
    pub fn set_timer(&mut self, at: Time, owner: impl Into<OwnerId>) -> TimerId {
        self.state.timers.set(at, owner.into())
    }

    /// Cancels a timer.
    pub fn cancel_timer(&mut self, timer: TimerId) {
        self.state.timers.cancel(timer);
    }
}
