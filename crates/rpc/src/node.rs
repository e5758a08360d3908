//! A service on a transport, to which either world gives turns.

use crate::calls::{CallError, CallId, Calls, FailedCall, OutcomeReceiver};
use crate::component::OwnerId;
use crate::context::{Context, ReplyTo, Request, State};
use crate::opcode::Opcode;
use crate::tasks::{self, TaskCaller};
use std::time::Duration;
use thunderhead_net::stream::{Opened, StreamAddress, Taken};
use thunderhead_net::{Cause, ConnectionId, Handler, Transport};
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::slice::MESSAGES;
use thunderhead_runtime::tasks::Tasks;
use thunderhead_runtime::timers::Timers;
use thunderhead_runtime::{Process, Time, World};
use thunderhead_wire::Status;
use thunderhead_wire::message::MessageHead;

/// A program's behaviour. No method may block.
pub trait Service {
    /// Handles the node's first turn.
    fn start(&mut self, context: &mut Context<'_>) {
        let _ = context;
    }

    /// Handles a request. It may be answered now, later, or never.
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>);

    /// Handles the outcome of a call that an owner made.
    fn reply(
        &mut self,
        context: &mut Context<'_>,
        owner: OwnerId,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        let _ = (context, owner, call, outcome);
    }

    /// Handles an expired timer of an owner.
    fn timer(&mut self, context: &mut Context<'_>, owner: OwnerId) {
        let _ = (context, owner);
    }

    /// Handles a byte stream that has opened. By default it is closed.
    fn stream_opened(&mut self, context: &mut Context<'_>, stream: ConnectionId, opened: Opened) {
        let _ = opened;
        context.finish_stream(stream);
    }

    /// Handles the unused bytes of a stream, as far as it wants: see [`thunderhead_net::stream`].
    fn stream_bytes(
        &mut self,
        context: &mut Context<'_>,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        let _ = (context, from);
        Taken::read_on(bytes.len())
    }

    /// Handles the end of a stream's input while the service waits and has not taken all of it: see
    /// [`Handler::stream_ending`].
    fn stream_ending(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        let _ = (context, stream);
    }

    /// Handles the end of a stream's input. Its peer may still read.
    fn stream_ended(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        context.finish_stream(stream);
    }

    /// Handles the end of a stream.
    fn stream_closed(&mut self, context: &mut Context<'_>, stream: ConnectionId, why: Cause) {
        let _ = (context, stream, why);
    }

    /// Ends a turn: all arrived messages are handled, and messages sent now leave together with the
    /// rest. Also called after a worker has rung the node's alarm.
    fn turn_over(&mut self, context: &mut Context<'_>) {
        let _ = context;
    }
}

/// A node that serves no requests: for programs that only make calls.
impl Service for () {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        context.refuse(request.reply_to, Status::UnknownOpcode, 0, &[]);
    }
}

/// A service on a transport.
pub struct Node<S> {
    transport: Box<dyn Transport>,
    clock: Clock,
    state: State,
    service: S,
    started: bool,
}

impl<S: Service> Node<S> {
    /// Returns a node in a world.
    #[must_use]
    pub fn new(world: World, transport: Box<dyn Transport>, service: S) -> Node<S> {
        let clock = world.clock.clone();
        let now = clock.now();
        let state = State {
            now,
            fresh: None,
            calls: Calls::default(),
            timers: Timers::default(),
            tasks: Tasks::new(world.alarm.clone(), now),
            task_caller: TaskCaller::new(world.alarm.clone()),
            failed: Vec::new(),
            failures: 0,
            is_simulated: matches!(clock, Clock::Sim(_)),
            charged: Duration::ZERO,
            worked: Duration::ZERO,
            world,
        };
        Node { transport, clock, state, service, started: false }
    }

    /// Returns the service.
    pub fn service(&mut self) -> &mut S {
        &mut self.service
    }

    /// Returns the clock of its world.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the handle with which tasks of this node are spawned.
    #[must_use]
    pub fn tasks(&self) -> &Tasks {
        &self.state.tasks
    }

    /// Returns the handle with which tasks of this node make calls.
    #[must_use]
    pub fn task_caller(&self) -> TaskCaller {
        self.state.task_caller.clone()
    }

    /// Returns the transport.
    #[must_use]
    pub fn transport(&self) -> &dyn Transport {
        self.transport.as_ref()
    }

    /// Accepts connections at an address.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn listen(
        &mut self,
        address: std::net::SocketAddr,
    ) -> std::io::Result<std::net::SocketAddr> {
        self.transport.listen(address)
    }

    /// Accepts byte streams at an address: see [`Transport::listen_stream`].
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn listen_stream(
        &mut self,
        address: &StreamAddress,
        farewell: &'static [u8],
    ) -> std::io::Result<(StreamAddress, u32)> {
        self.transport.listen_stream(address, farewell)
    }

    /// Runs a turn at the clock's time.
    pub fn turn_now(&mut self) -> bool {
        let now = self.clock.now();
        self.turn(now)
    }

    fn with_service<T>(&mut self, act: impl FnOnce(&mut S, &mut Context<'_>) -> T) -> T {
        let Node { transport, state, service, .. } = self;
        act(service, &mut Context { transport: transport.as_mut(), state })
    }

    /// Handles the events from inside the node: failed calls, timers, tasks.
    fn inner_work(&mut self, rung: bool) -> bool {
        let now = self.state.now;
        let mut busy = rung;
        for ended in self.state.calls.late(now) {
            busy = true;
            self.with_service(|service, context| end(service, context, ended));
        }
        if self.state.timers.next().is_some_and(|at| at <= now) {
            busy = true;
            self.go_off(now);
        }
        // A woken task has rung the alarm.
        if rung || self.state.tasks.next().is_some_and(|at| at <= now) {
            busy |= self.state.tasks.run(now);
            self.make_calls();
        }
        if !self.state.failed.is_empty() {
            for (owner, id, error) in std::mem::take(&mut self.state.failed) {
                self.with_service(|service, context| service.reply(context, owner, id, Err(error)));
            }
        }
        busy
    }

    /// Handles the timers that are due.
    fn go_off(&mut self, now: Time) {
        // All due timers are collected first: a timer that sets another one for this moment must
        // not prolong the turn for ever.
        let due: Vec<OwnerId> = std::iter::from_fn(|| self.state.timers.due(now)).collect();
        for owner in due {
            self.with_service(|service, context| service.timer(context, owner));
        }
    }

    /// Makes the calls that tasks have requested.
    fn make_calls(&mut self) {
        let queued = std::mem::take(&mut *self.state.task_caller.queued.borrow_mut());
        for call in queued {
            let timing = (self.state.now, call.timeout);
            let (code, parts) = (call.opcode.code(), [call.body.as_slice()]);
            let outcome_for = OutcomeReceiver::Slot(call.slot);
            let transport = self.transport.as_mut();
            let made = self.state.calls.call(transport, call.to, code, &parts, timing, outcome_for);
            if let Err((error, OutcomeReceiver::Slot(slot))) = made {
                tasks::deliver(&slot, Err(error));
            }
        }
    }
}

fn end<S: Service>(service: &mut S, context: &mut Context<'_>, ended: FailedCall) {
    let (id, outcome_for, error) = ended;
    match outcome_for {
        OutcomeReceiver::Service(owner) => service.reply(context, owner, id, Err(error)),
        OutcomeReceiver::Slot(slot) => tasks::deliver(&slot, Err(error)),
    }
}

impl<S: Service> Process for Node<S> {
    fn turn(&mut self, now: Time) -> bool {
        (self.state.now, self.state.fresh) = (now, None);
        (self.state.charged, self.state.worked) = (Duration::ZERO, Duration::ZERO);
        self.state.tasks.set_now(now);
        if !self.started {
            self.started = true;
            self.transport.tell_time(now);
            self.with_service(Service::start);
        }
        let Node { transport, state, service, .. } = self;
        let mut busy = transport.poll(now, &mut Dispatch { state, service });
        let rung = self.state.world.alarm.was_rung();
        busy |= self.inner_work(rung);
        self.with_service(Service::turn_over);
        self.transport.flush();
        if self.state.charged >= MESSAGES {
            // Messages may wait for the next turn.
            self.state.world.alarm.ring();
        }
        busy
    }

    fn deadline(&self) -> Option<Time> {
        let State { calls, timers, tasks, .. } = &self.state;
        [calls.deadline(), timers.next(), tasks.next(), self.transport.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    fn sleep(&mut self, at_most: Option<Duration>) {
        self.transport.sleep(at_most);
    }
}

impl<S> Drop for Node<S> {
    fn drop(&mut self) {
        // Tasks hold handles to their own containers; this breaks the cycle.
        self.state.tasks.clear();
    }
}

/// Parses messages and passes them on.
struct Dispatch<'a, S> {
    state: &'a mut State,
    service: &'a mut S,
}

impl<S: Service> Handler for Dispatch<'_, S> {
    fn opened(&mut self, transport: &mut dyn Transport, connection: ConnectionId) {
        for ended in self.state.calls.opened(transport, connection) {
            end(self.service, &mut Context { transport, state: self.state }, ended);
        }
    }

    #[inline]
    fn received(&mut self) {
        self.state.fresh = None;
    }

    #[inline]
    fn message(&mut self, transport: &mut dyn Transport, from: ConnectionId, message: &[u8]) {
        let Some((head, body)) = MessageHead::split(message) else {
            transport.close(from, Cause::Malformed);
            return self.closed(transport, from, Cause::Malformed);
        };
        let mut context = Context { transport, state: self.state };
        if head.is_reply() {
            return reply(self.service, &mut context, from, head, body);
        }
        let now = context.state.now;
        let deadline = match head.number() {
            0 => Time::NEVER,
            timeout_us => now + Duration::from_micros(u64::from(timeout_us)),
        };
        let reply_to = ReplyTo { connection: from, id: head.id(), deadline };
        match Opcode::of_code(head.code()) {
            Some(Opcode::Ping) => context.reply(reply_to, &[]),
            Some(opcode) => self.service.request(&mut context, Request { opcode, body, reply_to }),
            None => context.refuse(reply_to, Status::UnknownOpcode, 0, &[]),
        }
    }

    fn closed(&mut self, transport: &mut dyn Transport, connection: ConnectionId, why: Cause) {
        for ended in self.state.calls.closed(connection, why) {
            end(self.service, &mut Context { transport, state: self.state }, ended);
        }
    }

    fn stream_opened(
        &mut self,
        transport: &mut dyn Transport,
        stream: ConnectionId,
        opened: Opened,
    ) {
        let mut context = Context { transport, state: self.state };
        self.service.stream_opened(&mut context, stream, opened);
    }

    fn stream_bytes(
        &mut self,
        transport: &mut dyn Transport,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        let mut context = Context { transport, state: self.state };
        self.service.stream_bytes(&mut context, from, bytes)
    }

    fn stream_ending(&mut self, transport: &mut dyn Transport, stream: ConnectionId) {
        let mut context = Context { transport, state: self.state };
        self.service.stream_ending(&mut context, stream);
    }

    fn stream_ended(&mut self, transport: &mut dyn Transport, stream: ConnectionId) {
        let mut context = Context { transport, state: self.state };
        self.service.stream_ended(&mut context, stream);
    }

    fn stream_closed(&mut self, transport: &mut dyn Transport, stream: ConnectionId, why: Cause) {
        let mut context = Context { transport, state: self.state };
        self.service.stream_closed(&mut context, stream, why);
    }
}

fn reply<S: Service>(
    service: &mut S,
    context: &mut Context<'_>,
    from: ConnectionId,
    head: &MessageHead,
    body: &[u8],
) {
    let calls = &mut context.state.calls;
    // A reply over another connection answers no call.
    if !calls.is_from(head.id(), from) {
        return;
    }
    let Some(call) = calls.take(head.id()) else { return };
    let outcome = outcome(head, body);
    match call.outcome_for {
        OutcomeReceiver::Service(owner) => {
            service.reply(context, owner, CallId(head.id()), outcome)
        }
        OutcomeReceiver::Slot(slot) => tasks::deliver(&slot, outcome),
    }
}

/// Returns the outcome that a reply carries.
pub(crate) fn outcome<'b>(head: &MessageHead, body: &'b [u8]) -> Result<&'b [u8], CallError> {
    match Status::of_code(head.code()) {
        Some(Status::Ok) => Ok(body),
        Some(status) => {
            let detail = body.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
            Err(CallError::Refused { status, hint: head.number(), detail })
        }
        None => Err(CallError::UnknownStatus(head.code())),
    }
}
