//! The state machine of operations on objects.
//!
//! Each operation of a batch is a *part*. A part that is begun, or is to be sent again, is *ready*.
//! The core makes messages of all ready parts when its caller requests the next output
//! ([`Core::next_output`]). So operations for the same shard leave together, even if different
//! users began them one by one.
//!
//! # Leases
//!
//! An update takes its sequence when it is sent for the first time, under the current lease, and
//! keeps both in every attempt. This makes retries safe for ever: a shard either has the completion
//! records of that lease, or knows that the lease has ended and refuses. When a lease ends,
//!
//! - an update that was never sent goes out under the next lease;
//! - an update that was sent just once and refused because the lease has ended was not done, and
//!   goes out under the next lease too;
//! - any other update that is refused so is reported as unknown: an earlier attempt may have been
//!   done, and its completion record discarded with the lease.

mod sending;
#[cfg(test)]
mod tests;

use crate::error::{Error, Obstacle};
use crate::identities::{Identities, UpdateId};
use crate::map::TabletMap;
use crate::operation::{Answer, Operation};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_rpc::{CallError, Decision, Opcode, Retry};
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::control::{MAP_TABLES_MAX, Map, MapRequest};
use thunderhead_wire::operations::PartHead;
use thunderhead_wire::{KeyHash, LeaseId, Status, TableId};

/// The limit of operations in one message: a shard accepts no more.
const PARTS_MAX: usize = 128;

/// A message with this many parts takes no further batch. The shard works on it while the
/// client prepares the next message, and answers it while the shard works on that.
const ENOUGH_PARTS: usize = 40;

/// The approximate limit of bytes in one message. A single operation may exceed it.
const MESSAGE_BYTES: usize = 256 << 10;

/// If the answer to a message of reads is shorter than this, messages may have twice as many reads.
const SMALL_BYTES: usize = 256 << 10;

/// How long to wait for one answer. A server that is alive answers much sooner, or refuses because
/// it is busy.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns how long to wait for one answer if `left` remains until the deadline. The call ends a
/// little before the deadline, because only the caller that made it can tell whether the request
/// has left.
pub(crate) fn patience(left: Duration) -> Duration {
    PATIENCE.min(left - left / 16)
}

/// How long to wait for a map before requesting it again.
const MAP_PATIENCE: Duration = Duration::from_millis(500);

/// About how long to wait if the map has the table but no address for the tablet: a master will
/// soon take it over.
const GAP: Duration = Duration::from_millis(10);

/// Identifies a batch of operations or a question that a user began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Identifies a call that the core requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallNumber(pub(crate) u64);

/// An action that the core requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Make a call to a server. Pass its outcome to [`Core::answered`].
    Call {
        /// Identifies the call.
        number: CallNumber,
        /// The server's address.
        to: SocketAddr,
        /// The operation.
        opcode: Opcode,
        /// The body of the request.
        body: Vec<u8>,
        /// How long to wait for the answer.
        timeout: Duration,
    },
    /// Fetch the tablet map, and pass it to [`Core::learn`].
    Learn,
}

/// The results of the operations of a batch, in their order.
pub type Results = Vec<Result<Answer, Error>>;

/// The state machine of operations on objects.
pub struct Core {
    map: TabletMap,
    /// If a map was requested: when to request it again.
    learning: Option<Time>,
    identities: Identities,
    /// Whether the lease is fixed: no other will replace it.
    is_fixed: bool,
    random: Random,
    now: Time,
    batches: FxHashMap<Ticket, Batch>,
    calls: FxHashMap<CallNumber, Call>,
    /// The limit of reads in one message. It falls if an answer to many reads is too long.
    reads_max: usize,
    /// Parts that are ready to be sent.
    ready: Vec<PartId>,
    /// Parts that wait for a map. Some may have ended since.
    lost: BTreeSet<PartId>,
    /// Tables for which the map is wrong or incomplete, and since when that is known.
    stale: BTreeMap<TableId, Time>,
    /// Parts that wait for a lease.
    unleased: BTreeSet<PartId>,
    /// When each batch has something to do: send a part again, or end at its deadline.
    due: BTreeSet<(Time, Ticket)>,
    outputs: VecDeque<Output>,
    done: VecDeque<(Ticket, Results)>,
    count: u64,
}

/// One part of a batch: the batch's ticket and the part's index.
type PartId = (Ticket, usize);

/// Operations that were begun together.
struct Batch {
    parts: Vec<Part>,
    open: usize,
    deadline: Time,
    /// The wake-up times of its parts, to be removed from `due` with the batch.
    wakes: Vec<Time>,
}

struct Part {
    operation: Operation,
    hash: KeyHash,
    /// The lease and sequence of an update. `None` until it is sent for the first time.
    update_id: Option<UpdateId>,
    state: State,
    retry: Retry,
    /// How many attempts were sent, not counting attempts that never left.
    sent: u32,
    /// Whether an attempt may have been done without an answer.
    may_be_done: bool,
    /// Whether to send it alone, because an answer together with others would be too long.
    is_alone: bool,
    /// The latest obstacle.
    obstacle: Obstacle,
}

#[derive(Clone, Debug)]
enum State {
    /// Sent again at this time.
    Waiting(Time),
    /// Sent with the next messages.
    Ready,
    /// Sent when there is a new map.
    Lost,
    /// Sent when there is a lease.
    Unleased,
    /// In flight.
    Sent,
    Done(Result<Answer, Error>),
}

/// A message in flight.
struct Call {
    parts: Vec<PartId>,
    is_many: bool,
    is_read: bool,
}

/// The criteria by which parts share a message: all parts of a message have the same route.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Route {
    to: SocketAddr,
    /// The lease, if the parts are updates.
    lease: Option<LeaseId>,
    /// The version as of which the table of updates is known. A message names one version, and a
    /// shard refuses updates if that version is too old for their table. So all tables of a message
    /// must be known as of the same version.
    map: u64,
    /// The part, if it must be sent alone.
    alone: Option<PartId>,
    /// The order of magnitude of the timeout, so that no part gets a timeout much shorter than its
    /// deadline allows.
    haste: u32,
    /// Whether the parts decide when objects expire.
    expires: bool,
}

impl Core {
    /// Makes a core for an unused lease that the caller keeps.
    #[must_use]
    pub fn new(lease: LeaseId, random: Random) -> Core {
        let mut core = Core::without_lease(random);
        core.is_fixed = true;
        core.identities.use_lease(Some(lease));
        core
    }

    /// Makes a core whose updates wait until there is a lease: see [`Core::wants_lease`].
    #[must_use]
    pub fn without_lease(random: Random) -> Core {
        Core {
            map: TabletMap::default(),
            learning: None,
            identities: Identities::default(),
            is_fixed: false,
            random,
            now: Time(0),
            batches: FxHashMap::default(),
            calls: FxHashMap::default(),
            reads_max: PARTS_MAX,
            ready: Vec::new(),
            lost: BTreeSet::new(),
            stale: BTreeMap::new(),
            unleased: BTreeSet::new(),
            due: BTreeSet::new(),
            outputs: VecDeque::new(),
            done: VecDeque::new(),
            count: 0,
        }
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    pub(crate) fn ticket(&mut self) -> Ticket {
        Ticket(self.number())
    }

    /// Begins operations that have no order among them. [`Core::next_done`] returns their results,
    /// in the order of the operations, by the deadline.
    pub fn begin(&mut self, now: Time, operations: Vec<Operation>, deadline: Time) -> Ticket {
        self.now = now;
        let ticket = self.ticket();
        let (mut parts, mut open) = (Vec::with_capacity(operations.len()), 0);
        for (at, operation) in (0..).zip(operations) {
            let state = match operation.check() {
                Ok(()) => {
                    self.ready.push((ticket, at));
                    open += 1;
                    State::Ready
                }
                Err(error) => State::Done(Err(error)),
            };
            parts.push(Part {
                hash: operation.hash(),
                update_id: None,
                state,
                retry: Retry::new(operation.opcode().repeat(), deadline),
                sent: 0,
                may_be_done: false,
                is_alone: !operation.may_be_together(),
                obstacle: Obstacle::NoAnswer,
                operation,
            });
        }
        self.batches.insert(ticket, Batch { parts, open, deadline, wakes: Vec::new() });
        self.due.insert((deadline, ticket));
        self.finish(ticket);
        ticket
    }

    /// Begins an operation whose first attempt the caller has already made, under no identity.
    /// `outcome` is the outcome of that attempt.
    pub(crate) fn begin_behind(
        &mut self,
        now: Time,
        operation: Operation,
        deadline: Time,
        outcome: Result<&[u8], CallError>,
    ) -> Ticket {
        let is_read = operation.opcode() == Opcode::Read;
        let ticket = self.begin(now, vec![operation], deadline);
        // From here on, treat that attempt as if the core had sent it.
        self.ready.retain(|(ready, _)| *ready != ticket);
        if let Some(batch) = self.batches.get_mut(&ticket) {
            batch.parts.iter_mut().for_each(|part| (part.state, part.sent) = (State::Sent, 1));
        }
        let number = CallNumber(self.number());
        let call = Call { parts: vec![(ticket, 0)], is_many: false, is_read };
        self.calls.insert(number, call);
        self.answered(now, number, outcome);
        ticket
    }

    /// Ends operations before their deadline: the core sends nothing more for them. Their results
    /// come from [`Core::next_done`] as usual. An update in flight may still be done, and its error
    /// says so.
    pub fn cancel(&mut self, now: Time, ticket: Ticket) {
        self.now = now;
        let Some(batch) = self.batches.get_mut(&ticket) else { return };
        for part in &mut batch.parts {
            if !matches!(part.state, State::Done(_)) {
                part.obstacle = Obstacle::Cancelled;
                let error = match expired(part) {
                    Error::TimedOut(_) => Error::Cancelled,
                    unknown => unknown,
                };
                end(&mut self.identities, part, &mut batch.open, Err(error));
            }
        }
        self.finish(ticket);
    }

    /// Cancels operations: the core sends nothing more for them and returns no results. A message
    /// in flight may still be done.
    pub fn give_up(&mut self, ticket: Ticket) {
        if let Some(batch) = self.batches.remove(&ticket) {
            self.forget(ticket, &batch);
        }
    }

    /// Returns the next action that the core requests, if there is one.
    pub fn next_output(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.send_ready();
        }
        self.outputs.pop_front()
    }

    /// Returns the results of the next batch that has ended, if there is one.
    pub fn next_done(&mut self) -> Option<(Ticket, Results)> {
        self.done.pop_front()
    }

    /// Whether no operation is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether updates wait for a lease. The caller opens one, then calls [`Core::lease_opened`] or
    /// [`Core::lease_refused`].
    #[must_use]
    pub fn wants_lease(&self) -> bool {
        !self.unleased.is_empty()
    }

    /// Returns the lease for new updates.
    #[must_use]
    pub fn lease(&self) -> Option<LeaseId> {
        self.identities.lease()
    }

    /// Notes a new, unused lease for all updates that have not been sent.
    pub fn lease_opened(&mut self, now: Time, lease: LeaseId) {
        self.now = now;
        self.identities.use_lease(Some(lease));
        for (ticket, at) in std::mem::take(&mut self.unleased) {
            let part = self.batches.get_mut(&ticket).and_then(|batch| batch.parts.get_mut(at));
            if let Some(part) = part.filter(|part| matches!(part.state, State::Unleased)) {
                part.state = State::Ready;
                self.ready.push((ticket, at));
            }
        }
    }

    /// Fails the updates that wait for a lease, because none can be had.
    pub fn lease_refused(&mut self, now: Time, error: Error) {
        self.now = now;
        for (ticket, at) in std::mem::take(&mut self.unleased) {
            let Some(batch) = self.batches.get_mut(&ticket) else { continue };
            let Some(part) = batch.parts.get_mut(at) else { continue };
            end(&mut self.identities, part, &mut batch.open, Err(error));
            self.finish(ticket);
        }
    }

    /// Notes that a lease has ended, or may have ended. New updates wait for another lease. Updates
    /// that were sent keep theirs, and shards say whether it has ended.
    pub fn lease_ended(&mut self, lease: LeaseId) {
        if self.is_fixed || self.identities.lease() != Some(lease) {
            return;
        }
        self.identities.use_lease(None);
        for batch in self.batches.values_mut() {
            for part in &mut batch.parts {
                if part.sent == 0
                    && let Some(update_id) = part.update_id.take()
                {
                    self.identities.ended(update_id);
                }
            }
        }
    }

    /// Whether [`Core::next_done`] has a result.
    #[must_use]
    pub fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Returns the latest time for the next call of [`Core::tick`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let due = self.due.first().map(|(at, _)| *at);
        due.into_iter().chain(self.learning).min()
    }

    /// Notes the time: ends overdue batches, and readies parts whose wait is over.
    pub fn tick(&mut self, now: Time) {
        self.now = now;
        while let Some((at, ticket)) = self.due.first().copied()
            && at <= now
        {
            self.due.remove(&(at, ticket));
            if self.batches.get(&ticket).is_some_and(|batch| batch.deadline <= now) {
                self.expire(ticket);
            } else {
                self.wake(now, ticket);
            }
            self.finish(ticket);
        }
        if self.learning.is_some_and(|at| at <= now) {
            self.learning = None;
            self.ask_for_map(now);
        }
    }

    /// Replaces the present map with a whole new one.
    pub fn learn(&mut self, now: Time, map: TabletMap) {
        self.now = now;
        self.map = map.whole();
        self.stale.clear();
        self.learned();
    }

    /// Makes the request for news: the changes since the present map.
    pub(crate) fn map_request(&self) -> MapRequest {
        let stale = self.stale.keys().take(MAP_TABLES_MAX);
        let tables = stale.map(|table| (*table, self.map.table_version(*table))).collect();
        let since = self.map.whole_version();
        MapRequest { is_news: true, since, tables, ..MapRequest::default() }
    }

    /// Merges a coordinator's news of all tables or of some. They answer a request that was sent at
    /// the time `sent`. So they say nothing of a table that was missed later: it may have been
    /// created after the answer was made.
    pub(crate) fn told(&mut self, now: Time, sent: Time, news: &Map) {
        self.now = now;
        self.map.merge(news);
        let stale = self.stale.len();
        if !news.is_part && news.more.is_none() {
            self.stale.retain(|_, since| *since > sent);
        }
        for table in news.tables.iter().map(|table| &table.id).chain(&news.gone) {
            self.stale.remove(table);
        }
        self.learned();
        if self.stale.is_empty() {
            return;
        }
        if self.stale.len() < stale {
            self.ask_for_map(now);
        } else if !self.batches.is_empty() {
            // The next answer may have more. The wait bounds the rate of requests.
            self.learning = Some(now + GAP);
        }
    }

    /// Readies the parts for which the new map has an address.
    fn learned(&mut self) {
        let now = self.now;
        self.learning = None;
        for (ticket, at) in std::mem::take(&mut self.lost) {
            let Some(batch) = self.batches.get_mut(&ticket) else { continue };
            let Some(part) = batch.parts.get_mut(at) else { continue };
            if !matches!(part.state, State::Lost) {
                continue;
            }
            let table = part.operation.table;
            if self.stale.contains_key(&table) {
                self.lost.insert((ticket, at));
            } else if self.map.find(table, part.hash).is_some() {
                part.state = State::Ready;
                self.ready.push((ticket, at));
            } else if self.map.has_table(table) {
                part.obstacle = Obstacle::NoOwner;
                let wait = GAP + Duration::from_nanos(self.random.below(GAP.as_nanos() as u64));
                part.state = State::Waiting(now + wait);
                batch.wakes.push(now + wait);
                self.due.insert((now + wait, ticket));
            } else {
                // No later attempt can be done for a table that no longer exists, but an earlier
                // one may have been done.
                let error = Error::NoSuchTable(table);
                let error = unless_done(part, error);
                end(&mut self.identities, part, &mut batch.open, Err(error));
                self.finish(ticket);
            }
        }
    }

    /// Returns the present map.
    #[must_use]
    pub fn map(&self) -> &TabletMap {
        &self.map
    }

    /// Notes the outcome of a call.
    pub fn answered(&mut self, now: Time, number: CallNumber, outcome: Result<&[u8], CallError>) {
        self.now = now;
        let Some(Call { parts, is_many, is_read }) = self.calls.remove(&number) else { return };
        let mut rest = outcome.unwrap_or_default();
        let is_too_long =
            matches!(outcome, Err(CallError::Refused { status: Status::ReplyTooLong, .. }));
        if is_many && is_too_long {
            self.reads_max = (parts.len() / 2).max(1);
        } else if is_read
            && outcome.is_ok_and(|body| body.len() < SMALL_BYTES)
            && parts.len() == self.reads_max
        {
            self.reads_max = (self.reads_max * 2).min(PARTS_MAX);
        }
        let mut tickets = Vec::with_capacity(parts.len());
        for (ticket, at) in parts {
            // Each part of the answer is consumed, also for operations that have ended.
            let answer = match outcome {
                Ok(body) if !is_many => Some((None, body)),
                Ok(_) => PartHead::take(rest).map(|(head, value, behind)| {
                    rest = behind;
                    (Some(head), value)
                }),
                Err(_) => None,
            };
            let Some(batch) = self.batches.get_mut(&ticket) else { continue };
            let Some(part) = batch.parts.get_mut(at) else { continue };
            tickets.push(ticket);
            if !matches!(part.state, State::Sent) {
                continue;
            }
            if is_many && is_too_long {
                (part.is_alone, part.state) = (true, State::Waiting(now));
                continue;
            }
            let operation = &part.operation;
            let understood = match (outcome, answer) {
                (Ok(_), Some((None, body))) => Ok(operation.understand(body)),
                (Ok(_), Some((Some(head), value))) => operation.understand_part(head, value),
                (Ok(_), None) => Ok(Err(Error::Incomprehensible)),
                (Err(CallError::Refused { status, hint, detail }), _) => {
                    match operation.refused(status, detail) {
                        Err(_) => Err(CallError::Refused { status, hint, detail }),
                        decided => decided,
                    }
                }
                (Err(error), _) => Err(error),
            };
            match understood {
                Ok(Err(Error::Refused(Status::LeaseEnded))) => self.lease_is_over(ticket, at),
                Ok(result) => {
                    let result = match result {
                        // An earlier attempt may have been done by a server without this server's
                        // knowledge.
                        Err(error) if !is_definite(error) => Err(unless_done(part, error)),
                        result => result,
                    };
                    end(&mut self.identities, part, &mut batch.open, result);
                }
                Err(error) => self.failed(now, ticket, at, error),
            }
        }
        tickets.sort_unstable();
        tickets.dedup();
        for ticket in tickets {
            self.wake(now, ticket);
            self.finish(ticket);
        }
    }

    /// Handles the refusal of a part because its lease has ended.
    fn lease_is_over(&mut self, ticket: Ticket, at: usize) {
        let (now, is_fixed) = (self.now, self.is_fixed);
        let Some(batch) = self.batches.get_mut(&ticket) else { return };
        let Some(part) = batch.parts.get_mut(at) else { return };
        let lease = part.update_id.map(|update_id| update_id.lease);
        if !is_fixed && part.sent == 1 && !part.may_be_done && lease.is_some() {
            if let Some(update_id) = part.update_id.take() {
                self.identities.ended(update_id);
            }
            (part.sent, part.state) = (0, State::Waiting(now));
        } else {
            let is_known = part.sent == 1 && !part.may_be_done;
            let ended = Error::Refused(Status::LeaseEnded);
            let error = if is_known { ended } else { Error::Unknown(part.obstacle) };
            end(&mut self.identities, part, &mut batch.open, Err(error));
        }
        if let Some(lease) = lease {
            self.lease_ended(lease);
        }
    }

    /// Handles an attempt that failed, as far as the client knows.
    fn failed(&mut self, now: Time, ticket: Ticket, at_part: usize, error: CallError) {
        let Some(batch) = self.batches.get_mut(&ticket) else { return };
        let Some(part) = batch.parts.get_mut(at_part) else { return };
        // The part is not in flight any more.
        part.state = State::Lost;
        if matches!(error, CallError::Unreachable(_) | CallError::Congested | CallError::TooLong) {
            // This attempt never left.
            part.sent = part.sent.saturating_sub(1);
            let update_id = part.update_id.filter(|it| Some(it.lease) != self.identities.lease());
            if part.sent == 0
                && let Some(update_id) = update_id
            {
                self.identities.ended(update_id);
                part.update_id = None;
            }
        }
        match error {
            CallError::Broken | CallError::Late => {
                part.may_be_done = true;
                // A server that reported that it waits for its backups probably still does.
                if part.obstacle != Obstacle::Replicas || error == CallError::Broken {
                    part.obstacle = Obstacle::NoAnswer;
                }
            }
            CallError::Refused { status, .. } => {
                // The update is in the log of a server that may still lose it.
                part.may_be_done |= status == Status::AwaitingReplicas;
                part.obstacle = Obstacle::of_status(status);
            }
            error if error.is_of_another_cluster() => part.obstacle = Obstacle::OtherCluster,
            _ => part.obstacle = Obstacle::NoAnswer,
        }
        let table = part.operation.table;
        match part.retry.decide(error, now, &mut self.random) {
            Decision::Again { refresh: true, at } if at <= now => {
                self.lost.insert((ticket, at_part));
                self.stale.entry(table).or_insert(now);
                self.ask_for_map(now);
            }
            Decision::Again { refresh, at } => {
                // By then the server may have restarted at the same address.
                part.state = State::Waiting(at);
                batch.wakes.push(at);
                self.due.insert((at, ticket));
                if refresh {
                    self.stale.entry(table).or_insert(now);
                    self.ask_for_map(now);
                }
            }
            Decision::GiveUp => {
                let error = match error {
                    CallError::TooLong => unless_done(part, Error::Refused(Status::ValueTooLong)),
                    CallError::UnknownStatus(_) => Error::Incomprehensible,
                    _ => expired(part),
                };
                end(&mut self.identities, part, &mut batch.open, Err(error));
            }
        }
    }

    fn ask_for_map(&mut self, now: Time) {
        if self.learning.is_none() && !self.batches.is_empty() {
            self.learning = Some(now + MAP_PATIENCE);
            self.outputs.push_back(Output::Learn);
        }
    }

    /// Readies the parts of a batch whose wait is over.
    fn wake(&mut self, now: Time, ticket: Ticket) {
        let Some(batch) = self.batches.get_mut(&ticket) else { return };
        for (at, part) in batch.parts.iter_mut().enumerate() {
            if matches!(part.state, State::Waiting(due) if due <= now) {
                part.state = State::Ready;
                self.ready.push((ticket, at));
            }
        }
    }

    /// Ends a batch whose deadline has passed.
    fn expire(&mut self, ticket: Ticket) {
        let Some(batch) = self.batches.get_mut(&ticket) else { return };
        for part in &mut batch.parts {
            if !matches!(part.state, State::Done(_)) {
                let error = expired(part);
                end(&mut self.identities, part, &mut batch.open, Err(error));
            }
        }
    }

    /// Queues the results of a batch whose parts have all ended.
    fn finish(&mut self, ticket: Ticket) {
        let Some(batch) = self.batches.get(&ticket) else { return };
        if batch.open > 0 {
            return;
        }
        let Some(batch) = self.batches.remove(&ticket) else { return };
        self.forget(ticket, &batch);
        let results = batch.parts.into_iter().map(|part| match part.state {
            State::Done(result) => result,
            _ => Err(Error::Unknown(Obstacle::NoAnswer)),
        });
        self.done.push_back((ticket, results.collect()));
    }

    /// Removes every reference to a batch that has ended.
    fn forget(&mut self, ticket: Ticket, batch: &Batch) {
        for at in batch.wakes.iter().chain([&batch.deadline]) {
            self.due.remove(&(*at, ticket));
        }
        for (at, part) in batch.parts.iter().enumerate() {
            if let Some(update_id) = part.update_id {
                self.identities.ended(update_id);
            }
            self.unleased.remove(&(ticket, at));
            self.lost.remove(&(ticket, at));
        }
    }
}

/// Whether a refusal proves that no attempt was done. A server gives these refusals only after it
/// has looked for the record of the update, so an update that was done before is answered with its
/// recorded outcome. Refusals that depend on the object are recorded; a key or a value that one
/// server refuses is refused by all. All other refusals come from servers that may not know the
/// record.
fn is_definite(error: Error) -> bool {
    use Status::{KeyEmpty, KeyTooLong, Overflow, ValueTooLong, VersionsExhausted};
    match error {
        Error::ConditionFailed { .. } | Error::NotANumber { .. } => true,
        Error::Refused(status) => {
            matches!(status, KeyEmpty | KeyTooLong | ValueTooLong | Overflow | VersionsExhausted)
        }
        _ => false,
    }
}

/// Returns the error of a part whose last attempt was not done: this one, unless an earlier attempt
/// may have been done.
fn unless_done(part: &Part, error: Error) -> Error {
    if part.operation.is_update() && part.may_be_done {
        Error::Unknown(part.obstacle)
    } else {
        error
    }
}

/// The error of a part whose deadline has passed.
fn expired(part: &Part) -> Error {
    let is_on_its_way = matches!(part.state, State::Sent);
    if part.operation.is_update() && (part.may_be_done || is_on_its_way) {
        Error::Unknown(part.obstacle)
    } else {
        Error::TimedOut(part.obstacle)
    }
}

fn end(
    identities: &mut Identities,
    part: &mut Part,
    open: &mut usize,
    result: Result<Answer, Error>,
) {
    if !matches!(part.state, State::Done(_)) {
        part.state = State::Done(result);
        *open -= 1;
        if let Some(update_id) = part.update_id.take() {
            identities.ended(update_id);
        }
    }
}
