//! A client for a thread that waits: it does the I/O itself and wakes no other thread.

use crate::client;
use crate::core::{CallNumber, Core, Output, Results, Ticket, patience};
use crate::enumeration::Enumeration;
use crate::error::Error;
use crate::map::TabletMap;
use crate::operation::{Action, Answer, Number, Object, Operation, Value, check_key};
use crate::question::{Question, Reply};
use crate::session::Session;
use std::collections::BTreeMap;
use std::time::Duration;
use thunderhead_rpc::{CallError, CallId, Caller, Opcode, OutcomeHandler};
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::operations::ObjectHead;
use thunderhead_wire::{Condition, KeyHash, LeaseId, Status, TableId, TimeToLive, Version};
use zerocopy::IntoBytes;

/// A source of the tablet map, for clients without coordinators.
pub trait MapSource {
    /// Returns the newest map that can be had, or `None` if no source answers; then the client
    /// calls it again.
    fn map(&mut self) -> Option<TabletMap>;
}

/// A source without maps: the session fetches them from its coordinators.
#[derive(Clone, Copy, Debug)]
pub struct Coordinators;

impl MapSource for Coordinators {
    fn map(&mut self) -> Option<TabletMap> {
        None
    }
}

/// A map that never changes.
impl MapSource for TabletMap {
    fn map(&mut self) -> Option<TabletMap> {
        Some(self.clone())
    }
}

/// A client for one thread.
pub struct Blocking<M> {
    session: Session,
    caller: Caller,
    clock: Clock,
    source: M,
    calls: BTreeMap<CallId, CallNumber>,
    /// The time limit of an operation.
    pub deadline: Option<Duration>,
    interrupt: Option<Interrupt>,
    /// Whether the operation in progress was interrupted.
    is_interrupted: bool,
}

/// How a waiting thread notices that its user wants it to stop.
struct Interrupt {
    every: Duration,
    next: Time,
    is_wanted: Box<dyn FnMut() -> bool + Send>,
}

/// The default time limit of an operation.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

impl<M: MapSource> Blocking<M> {
    /// Makes a client for an unused lease, on a caller and the clock of its world.
    pub fn new(
        lease: LeaseId,
        mut random: Random,
        clock: Clock,
        caller: Caller,
        mut source: M,
    ) -> Blocking<M> {
        let core = Core::new(lease, random.split());
        let mut session = Session::around(core, random);
        if let Some(map) = source.map() {
            session.learn(clock.now(), map);
        }
        Blocking::with(session, clock, caller, source)
    }

    /// Makes a client for a session, on a caller and the clock of its world.
    pub fn with(session: Session, clock: Clock, caller: Caller, source: M) -> Blocking<M> {
        let (calls, deadline) = (BTreeMap::new(), Some(DEADLINE));
        let (interrupt, is_interrupted) = (None, false);
        Blocking { session, caller, clock, source, calls, deadline, interrupt, is_interrupted }
    }

    /// Calls `is_wanted` about every `every` while an operation waits. Once it returns true, the
    /// operation ends with [`Error::Cancelled`], or with [`Error::Unknown`] if it may have been
    /// done.
    pub fn set_interrupt(
        &mut self,
        every: Duration,
        is_wanted: impl FnMut() -> bool + Send + 'static,
    ) {
        let (next, is_wanted) = (Time(0), Box::new(is_wanted));
        self.interrupt = Some(Interrupt { every, next, is_wanted });
    }

    /// Reads an object. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get(&mut self, table: TableId, key: &[u8]) -> Result<Option<Value>, Error> {
        self.get_with(table, key, |found| found.map(|(version, value)| (version, value.to_vec())))
    }

    /// Reads an object and gives it to `take`: its version and its value, or `None` if it does not
    /// exist. The value is not copied on the way if the first attempt succeeds.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get_with<T>(
        &mut self,
        table: TableId,
        key: &[u8],
        take: impl FnOnce(Option<(Version, &[u8])>) -> T,
    ) -> Result<T, Error> {
        check_key(key)?;
        let (now, deadline) = self.begins();
        let mut take = Some(take);
        let mut taken = None;
        let attempt = self.read_at_once(table, key, (now, deadline), &mut |found| {
            taken = take.take().map(|take| take(found));
        });
        if matches!(attempt, Some(Ok(())))
            && let Some(taken) = taken
        {
            return Ok(taken);
        }
        let (condition, action) = (Condition::Always, Action::Read);
        let operation = Operation { table, key: key.to_vec(), condition, action };
        let now = self.clock.now();
        let ticket = match attempt {
            Some(Err(FailedRead(why))) => {
                self.session.begin_behind(now, operation, deadline, why.map_or(Ok(&[]), Err))
            }
            _ => self.session.begin(now, vec![operation], deadline),
        };
        let found = client::found(the_only(self.end(ticket)))?;
        let found = found.as_ref().map(|(version, value)| (*version, value.as_slice()));
        take.map(|take| take(found)).ok_or(Error::Incomprehensible)
    }

    /// Sends the read to the shard that the map names, without a record in the session: allocating
    /// that record is most of a client's share of a call's cost. If the answer is neither a value
    /// nor "not found", the caller passes it on to the session, which decides the next step. `None`
    /// if the map does not name a shard for the key.
    fn read_at_once(
        &mut self,
        table: TableId,
        key: &[u8],
        (now, deadline): (Time, Time),
        take: &mut FoundHandler<'_>,
    ) -> Option<Result<(), FailedRead>> {
        let to = self.session.core().map().find(table, KeyHash::of(key))?;
        let head = ObjectHead::new(table, key.len(), Condition::Always, 0);
        let parts: [&[u8]; 2] = [head.as_bytes(), key];
        let timeout = patience(deadline.since(now));
        let own = match self.caller.begin(to, Opcode::Read, &parts, Some(timeout)) {
            Ok(own) => own,
            Err(error) => return Some(Err(FailedRead(Some(error)))),
        };
        let mut answer = None;
        while answer.is_none() {
            self.send();
            self.take(&mut |id, outcome| {
                if id == own {
                    answer = Some(found(outcome).map(&mut *take));
                }
            });
            if answer.is_none() && self.is_interrupted {
                // The answer, if it still comes, belongs to no call.
                return Some(Err(FailedRead(Some(CallError::Late))));
            }
        }
        answer
    }

    /// Writes an object if a condition holds. Returns its new version.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn put(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> Result<Version, Error> {
        client::written(self.operate(table, key, condition, Action::Write(value.to_vec())))
    }

    /// Writes an object that lives for this time, if a condition holds. Returns its new version.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn put_expiring(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        time_to_live: TimeToLive,
        condition: Condition,
    ) -> Result<Version, Error> {
        let action = Action::WriteExpiring(value.to_vec(), time_to_live);
        client::written(self.operate(table, key, condition, action))
    }

    /// Changes when an object expires, if a condition holds. Returns its new version, or `None` if
    /// it does not exist.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn set_expiry(
        &mut self,
        table: TableId,
        key: &[u8],
        time_to_live: TimeToLive,
        condition: Condition,
    ) -> Result<Option<Version>, Error> {
        client::changed(self.operate(table, key, condition, Action::SetExpiry(time_to_live)))
    }

    /// Returns how long an object still lives, with its version; `None` if it does not exist.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn time_to_live(
        &mut self,
        table: TableId,
        key: &[u8],
    ) -> Result<Option<(Version, TimeToLive)>, Error> {
        client::lives(self.operate(table, key, Condition::Always, Action::ReadExpiry))
    }

    /// Deletes an object if a condition holds. Returns the version that it had, if it existed.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn delete(
        &mut self,
        table: TableId,
        key: &[u8],
        condition: Condition,
    ) -> Result<Option<Version>, Error> {
        client::deleted(self.operate(table, key, condition, Action::Delete))
    }

    /// Writes a number if a condition holds. Returns its new version.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn put_number(
        &mut self,
        table: TableId,
        key: &[u8],
        number: Number,
        condition: Condition,
    ) -> Result<Version, Error> {
        client::written(self.operate(table, key, condition, Action::WriteNumber(number)))
    }

    /// Adds to a number. Returns its new version and the sum.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn increment(
        &mut self,
        table: TableId,
        key: &[u8],
        by: Number,
    ) -> Result<(Version, Number), Error> {
        client::sum(self.operate(table, key, Condition::Always, Action::Increment(by)))
    }

    /// Enumerates all objects of a table, in no particular order. An object that exists during the
    /// whole enumeration is returned exactly once. An object that is created or deleted during the
    /// enumeration may be returned or not.
    pub fn scan(&mut self, table: TableId) -> Scan<'_, M> {
        Scan::new(Ok(self), table)
    }

    fn operate(
        &mut self,
        table: TableId,
        key: &[u8],
        condition: Condition,
        action: Action,
    ) -> Result<Answer, Error> {
        let operation = Operation { table, key: key.to_vec(), condition, action };
        the_only(self.all(vec![operation]))
    }

    /// Does operations that have no order among them, and returns the result of each.
    pub fn all(&mut self, operations: Vec<Operation>) -> Results {
        let (now, deadline) = self.begins();
        let ticket = self.session.begin(now, operations, deadline);
        self.end(ticket)
    }

    /// Drives the session until the operations have ended.
    fn end(&mut self, ticket: Ticket) -> Results {
        loop {
            if let Some((done, results)) = self.session.next_done() {
                debug_assert_eq!(done, ticket, "nothing else is under way");
                return results;
            }
            self.go_on(ticket);
        }
    }

    /// Sends a question to the coordinator or a server, and waits for the reply.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn ask(&mut self, question: Question) -> Result<Reply, Error> {
        let (now, deadline) = self.begins();
        let ticket = self.session.ask(now, question, deadline);
        self.answer(ticket)
    }

    fn answer(&mut self, ticket: Ticket) -> Result<Reply, Error> {
        loop {
            if let Some((done, answer)) = self.session.next_answer() {
                debug_assert_eq!(done, ticket, "nothing else is under way");
                return answer;
            }
            self.go_on(ticket);
        }
    }

    /// Ends the lease, if a coordinator can be reached. Waits for a second at most, and stops when
    /// an interrupt is wanted. Returns the time that it waited; `None` after an interrupt. Dropping
    /// a client does the same without waiting for an answer.
    pub fn close(mut self) -> Option<Duration> {
        let (began, _) = self.begins();
        self.session.close(began);
        while !self.session.is_idle() && !self.is_interrupted {
            self.drive();
        }
        (!self.is_interrupted).then(|| self.clock.now().since(began))
    }

    /// Returns the session, which knows the state of the cluster.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    fn begins(&mut self) -> (Time, Time) {
        let now = self.clock.now();
        self.is_interrupted = false;
        if let Some(interrupt) = &mut self.interrupt {
            interrupt.next = now + interrupt.every;
        }
        (now, self.deadline.map_or(Time::NEVER, |deadline| now + deadline))
    }

    /// Takes the next step of an operation or a question, or ends it if an interrupt is wanted.
    fn go_on(&mut self, ticket: Ticket) {
        if self.is_interrupted {
            self.session.cancel(self.clock.now(), ticket);
        } else {
            self.drive();
        }
    }

    /// Sends the pending messages, and waits for the next event unless a result is ready.
    fn drive(&mut self) {
        self.send();
        if !self.session.has_done() && !self.session.is_idle() {
            self.take(&mut |_, _| {});
        }
    }
}

impl<M> Blocking<M> {
    /// Begins a call that the session requests.
    fn call(&mut self, output: Output) {
        let Output::Call { number, to, opcode, body, timeout } = output else { return };
        match self.caller.begin(to, opcode, &[&body], Some(timeout)) {
            Ok(id) => {
                self.calls.insert(id, number);
            }
            Err(error) => self.session.answered(self.clock.now(), number, Err(error)),
        }
    }

    /// Waits for answers, first spinning and then asleep, or until the session's next deadline.
    /// Answers to calls that the session did not request go to `others`.
    fn take(&mut self, others: &mut OutcomeHandler<'_>) {
        let Blocking { session, caller, clock, calls, interrupt, .. } = self;
        let next = interrupt.as_ref().map(|interrupt| interrupt.next);
        let until = session.deadline().into_iter().chain(next).min().unwrap_or(Time::NEVER);
        caller.wait_until(until, &mut |id, outcome: Result<&[u8], _>| match calls.remove(&id) {
            Some(number) => session.answered(clock.now(), number, outcome),
            None => others(id, outcome),
        });
        let now = clock.now();
        session.tick(now);
        if let Some(interrupt) = interrupt.as_mut().filter(|interrupt| interrupt.next <= now) {
            interrupt.next = now + interrupt.every;
            self.is_interrupted |= (interrupt.is_wanted)();
        }
    }
}

impl<M: MapSource> Blocking<M> {
    /// Makes the calls that the session requests.
    fn send(&mut self) {
        while let Some(output) = self.session.next_output() {
            match output {
                Output::Learn => {
                    if let Some(map) = self.source.map() {
                        self.session.learn(self.clock.now(), map);
                    }
                }
                call => self.call(call),
            }
        }
    }
}

impl<M> Drop for Blocking<M> {
    fn drop(&mut self) {
        if self.session.lease().is_none() {
            return;
        }
        self.session.close(self.clock.now());
        while let Some(output) = self.session.next_output() {
            self.call(output);
        }
        self.caller.poll(&mut |_, _| {});
    }
}

/// Takes a read object, if it exists: its version and its value.
type FoundHandler<'d> = dyn FnMut(Option<(Version, &[u8])>) + 'd;

/// A failed read: the error, or `None` if the answer could not be understood.
struct FailedRead(Option<CallError>);

/// Decodes the answer to a read: the object, or that it does not exist.
fn found(outcome: Result<&[u8], CallError>) -> Result<Option<(Version, &[u8])>, FailedRead> {
    match outcome {
        Ok(body) => {
            let (version, value) = body.split_first_chunk().ok_or(FailedRead(None))?;
            Ok(Some((Version(u64::from_le_bytes(*version)), value)))
        }
        Err(CallError::Refused { status: Status::NotFound, .. }) => Ok(None),
        Err(error) => Err(FailedRead(Some(error))),
    }
}

/// The result of a batch of one operation.
fn the_only(mut results: Results) -> Result<Answer, Error> {
    results.pop().unwrap_or(Err(Error::Incomprehensible))
}

/// An enumeration of all objects of a table. It ends after an error.
pub struct Scan<'a, M> {
    client: Result<&'a mut Blocking<M>, Error>,
    enumeration: Enumeration,
    page: std::vec::IntoIter<Object>,
    failed: bool,
}

impl<'a, M> Scan<'a, M> {
    /// Makes a scan by this client. If there is an error instead, the scan returns it first.
    pub(crate) fn new(client: Result<&'a mut Blocking<M>, Error>, table: TableId) -> Scan<'a, M> {
        let enumeration = Enumeration::new(table);
        Scan { client, enumeration, page: Vec::new().into_iter(), failed: false }
    }
}

impl<M: MapSource> Iterator for Scan<'_, M> {
    type Item = Result<Object, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            if let Some(object) = self.page.next() {
                return Some(Ok(object));
            }
            let operation = self.enumeration.next()?;
            let answer = match &mut self.client {
                Ok(client) => the_only(client.all(vec![operation])),
                Err(error) => Err(*error),
            };
            let page = answer.and_then(|answer| {
                self.enumeration.answered(answer).ok_or(Error::Incomprehensible)
            });
            match page {
                Ok(page) => self.page = page.into_iter(),
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
