//! Calls by a thread that waits for its replies and does the I/O itself while it waits: no handoff
//! between threads, and no wake-up on the way.

use crate::calls::{CallError, CallId, Calls, FailedCall, OutcomeReceiver};
use crate::component::{Component, OwnerId};
use crate::node::outcome;
use crate::opcode::Opcode;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_net::{Cause, ConnectionId, Handler, Transport};
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::polling::{Pacer, Polling};
use thunderhead_runtime::{Time, World};
use thunderhead_wire::message::MessageHead;

/// The receiver of all calls of a [`Caller`], which gives every outcome to its [`OutcomeHandler`].
const RECEIVER: OutcomeReceiver = OutcomeReceiver::Service(OwnerId::only(Component::Node));

/// Receives each call that has ended, with its outcome.
pub type OutcomeHandler<'d> = dyn FnMut(CallId, Result<&[u8], CallError>) + 'd;

/// Makes calls from the thread that owns it.
pub struct Caller {
    clock: Clock,
    transport: Box<dyn Transport + Send>,
    calls: Calls,
    pacer: Pacer,
    now: Time,
    /// The clock has been read since the last poll.
    knows_time: bool,
}

impl Caller {
    /// Returns a caller in a world, on a transport of that world.
    #[must_use]
    pub fn new(world: &World, transport: Box<dyn Transport + Send>, polling: Polling) -> Caller {
        let clock = world.clock.clone();
        let now = clock.now();
        let (pacer, calls) = (Pacer::new(polling, now), Calls::default());
        Caller { clock, transport, calls, pacer, now, knows_time: false }
    }

    /// Calls a server and waits for the reply. The outcomes of calls that were begun earlier and
    /// end during this one are dropped, so a thread uses either this method or [`Caller::begin`]
    /// and [`Caller::wait`].
    ///
    /// # Errors
    /// The server's or the connection's error: see [`CallError`].
    pub fn call<T>(
        &mut self,
        to: SocketAddr,
        opcode: Opcode,
        parts: &[&[u8]],
        timeout: Option<Duration>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, CallError> {
        let id = self.begin(to, opcode, parts, timeout)?;
        let (mut take, mut result) = (Some(take), None);
        while result.is_none() {
            self.wait_from_now(Time::NEVER, &mut |ended, outcome| {
                if ended == id {
                    result = take.take().map(|take| outcome.map(take));
                }
            });
        }
        result.unwrap_or(Err(CallError::Late))
    }

    /// Begins a call; [`Caller::wait`] or [`Caller::poll`] delivers its outcome.
    ///
    /// # Errors
    /// If the call cannot even begin.
    #[inline]
    pub fn begin(
        &mut self,
        to: SocketAddr,
        opcode: Opcode,
        parts: &[&[u8]],
        timeout: Option<Duration>,
    ) -> Result<CallId, CallError> {
        // The last poll may be long ago, because the thread does other work between calls. Further
        // calls before the next poll reuse this time.
        if !self.knows_time {
            self.knows_time = true;
            self.now = self.clock.now();
            self.transport.tell_time(self.now);
        }
        let (timing, transport) = ((self.now, timeout), self.transport.as_mut());
        let begun = self.calls.call(transport, to, opcode.code(), parts, timing, RECEIVER);
        begun.map_err(|(error, _)| error)
    }

    /// Sends the begun calls and takes the bytes that have arrived, without blocking; passes each
    /// ended call to `done`. Returns whether anything arrived.
    #[inline]
    pub fn poll(&mut self, done: &mut OutcomeHandler<'_>) -> bool {
        self.now = self.clock.now();
        self.look(done)
    }

    #[inline(always)]
    fn look(&mut self, done: &mut OutcomeHandler<'_>) -> bool {
        self.knows_time = false;
        let Caller { transport, calls, now, .. } = self;
        let mut busy = transport.poll(*now, &mut Answers { calls, done });
        for (id, _, error) in calls.late(*now) {
            done(id, Err(error));
            busy = true;
        }
        busy
    }

    /// Like [`Caller::poll`], but spins for a while until something arrives, and finally sleeps.
    pub fn wait(&mut self, done: &mut OutcomeHandler<'_>) {
        self.wait_until(Time::NEVER, done);
    }

    /// Like [`Caller::wait`], but not beyond a time.
    pub fn wait_until(&mut self, until: Time, done: &mut OutcomeHandler<'_>) {
        self.now = self.clock.now();
        self.wait_from_now(until, done);
    }

    /// Like [`Caller::wait_until`], but also returns once another thread has rung this caller's
    /// alarm. `was_rung` is called between polls, and clears the ring.
    pub fn wait_or_rung(
        &mut self,
        until: Time,
        was_rung: &mut dyn FnMut() -> bool,
        done: &mut OutcomeHandler<'_>,
    ) {
        self.now = self.clock.now();
        self.wait_while(until, was_rung, done);
    }

    /// Like [`Caller::wait_until`], but uses a time that was read a moment ago.
    #[inline(always)]
    fn wait_from_now(&mut self, until: Time, done: &mut OutcomeHandler<'_>) {
        self.wait_while(until, || false, done);
    }

    #[inline(always)]
    fn wait_while(
        &mut self,
        until: Time,
        mut ends: impl FnMut() -> bool,
        done: &mut OutcomeHandler<'_>,
    ) {
        let mut looks = 0u32;
        while !self.look(done) && !ends() {
            looks = looks.wrapping_add(1);
            if !looks.is_multiple_of(self.pacer.idle_turns()) {
                continue;
            }
            self.now = self.clock.now();
            let sleeps = self.pacer.turn_ended(self.now, false);
            if self.now >= until {
                return;
            }
            if sleeps {
                let until = (until != Time::NEVER).then_some(until);
                let deadlines = [self.calls.deadline(), self.transport.deadline(), until];
                let next = deadlines.into_iter().flatten().min();
                self.transport.sleep(next.map(|at| at.since(self.now)));
                self.now = self.clock.now();
                self.pacer.slept(self.now);
            }
        }
        self.pacer.turn_ended(self.now, true);
    }

    /// Returns the number of calls in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.calls.count()
    }

    /// Returns the transport.
    #[must_use]
    pub fn transport(&self) -> &dyn Transport {
        self.transport.as_ref()
    }
}

struct Answers<'a> {
    calls: &'a mut Calls,
    done: &'a mut OutcomeHandler<'a>,
}

impl Answers<'_> {
    fn end(&mut self, ended: Vec<FailedCall>) {
        for (id, _, error) in ended {
            (self.done)(id, Err(error));
        }
    }
}

impl Handler for Answers<'_> {
    fn opened(&mut self, transport: &mut dyn Transport, connection: ConnectionId) {
        let ended = self.calls.opened(transport, connection);
        self.end(ended);
        transport.flush();
    }

    #[inline]
    fn message(&mut self, transport: &mut dyn Transport, from: ConnectionId, message: &[u8]) {
        match MessageHead::split(message) {
            Some((head, body)) if head.is_reply() => {
                if self.calls.is_from(head.id(), from) && self.calls.take(head.id()).is_some() {
                    (self.done)(CallId(head.id()), outcome(head, body));
                }
            }
            // A caller serves no requests.
            _ => {
                transport.close(from, Cause::Malformed);
                self.closed(transport, from, Cause::Malformed);
            }
        }
    }

    fn closed(&mut self, _: &mut dyn Transport, connection: ConnectionId, why: Cause) {
        let ended = self.calls.closed(connection, why);
        self.end(ended);
    }
}
