//! The state machine of operations on objects.
//!
//! What is begun, or is to be sent again, is *ready*; messages are made of all that is ready when
//! somebody asks what to do ([`Core::next_output`]). So operations that were begun one by one, even
//! by different users, leave together when they go to the same shard.
//!
//! # Leases
//!
//! An update takes its sequence when it is sent for the first time, under the lease of that moment,
//! and keeps both in every attempt. That is what makes it safe to try again for ever: a shard either
//! has the records of that lease, or knows that it is over and refuses. When a lease ends,
//!
//! - what was never sent goes out under the next one;
//! - what was sent just once and refused because the lease is over was not done, and goes out under
//!   the next one too;
//! - of anything else that is refused so, nobody knows: an attempt may have been done before, and
//!   its record forgotten with the lease. It is reported as unknown.

mod sending;
#[cfg(test)]
mod tests;

use crate::error::{Error, Obstacle};
use crate::identities::{Identities, Sequence};
use crate::map::TabletMap;
use crate::operation::{Answer, Operation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_rpc::{CallError, Decision, Opcode, Retry};
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::control::{MAP_TABLES_MAX, Map, MapRequest};
use thunderhead_wire::operations::PartHead;
use thunderhead_wire::{KeyHash, Status, TableId};

/// Operations in one message: what a shard takes.
const PARTS_MAX: usize = 128;

/// Bytes in one message, about, once it has one operation.
const MESSAGE_BYTES: usize = 256 << 10;

/// An answer to many reads that is so short could be twice as long and more.
const SMALL_BYTES: usize = 256 << 10;

/// How long to wait for one answer. A server that lives answers much sooner, or says that it is
/// busy.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long to wait for one answer where so much is left until the deadline: what became of the call must be known
/// a little before that. Whoever makes it can say whether the request has left.
pub(crate) fn patience(left: Duration) -> Duration {
    PATIENCE.min(left - left / 16)
}

/// How long to wait for a map before asking for it again.
const MAP_PATIENCE: Duration = Duration::from_millis(500);

/// How long to wait, about, where the map says of a table but not of the tablet: somebody is about
/// to take it over.
const GAP: Duration = Duration::from_millis(10);

/// Names what a user began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Names a call that the core wants to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallNumber(pub(crate) u64);

/// What the core wants to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Call a server; [`Core::answered`] is to be told what came of it.
    Call {
        /// Names the call.
        number: CallNumber,
        /// The server.
        to: SocketAddr,
        /// What to ask.
        opcode: Opcode,
        /// With what.
        body: Vec<u8>,
        /// How long to wait.
        timeout: Duration,
    },
    /// Find out where the tablets are; [`Core::learn`] is to be told.
    Learn,
}

/// What each operation that was begun together came to.
pub type Results = Vec<Result<Answer, Error>>;

/// Everything that a client decides.
pub struct Core {
    map: TabletMap,
    /// A map was asked for, and is asked for again at this time.
    learning: Option<Time>,
    identities: Identities,
    /// The lease is the only one there will be.
    is_fixed: bool,
    random: Random,
    now: Time,
    batches: BTreeMap<Ticket, Batch>,
    calls: BTreeMap<CallNumber, Call>,
    /// Reads in one message: fewer where the answers to many were too long.
    reads_max: usize,
    /// Parts to be sent.
    ready: Vec<PartOf>,
    /// Parts that wait for a map, and perhaps some that do not any more.
    lost: BTreeSet<PartOf>,
    /// Tables whose tablets were not where the map says, or not in the map.
    stale: BTreeSet<TableId>,
    /// Parts that wait for a lease.
    unleased: BTreeSet<PartOf>,
    /// When which batch has something to do: a part to be sent again, or its deadline.
    due: BTreeSet<(Time, Ticket)>,
    outputs: VecDeque<Output>,
    done: VecDeque<(Ticket, Results)>,
    count: u64,
}

/// A part of a batch: which, and which of its parts.
type PartOf = (Ticket, usize);

/// Operations that were begun together.
struct Batch {
    parts: Vec<Part>,
    open: usize,
    deadline: Time,
    /// When parts of it are to be sent again: what there is to forget with it.
    wakes: Vec<Time>,
}

struct Part {
    operation: Operation,
    hash: KeyHash,
    /// Of an update that was sent, or is about to be.
    sequence: Option<Sequence>,
    state: State,
    retry: Retry,
    /// How often it was sent, but for attempts that never left.
    sent: u32,
    /// An attempt of which nobody knows whether it was carried out.
    may_be_done: bool,
    /// Not to be sent together with others: the answer would be too long.
    is_alone: bool,
    /// What was in the way last.
    obstacle: Obstacle,
}

#[derive(Clone, Debug)]
enum State {
    /// To be sent at this time.
    Waiting(Time),
    /// To be sent with the next messages.
    Ready,
    /// To be sent once there is a new map.
    Lost,
    /// To be sent once there is a lease.
    Unleased,
    /// Sent.
    Sent,
    Done(Result<Answer, Error>),
}

/// A message on its way.
struct Call {
    parts: Vec<PartOf>,
    is_many: bool,
    is_read: bool,
}

/// What goes together into a message: all with the same of these.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Route {
    to: SocketAddr,
    /// That of updates.
    lease: Option<u64>,
    /// As of which version the table of updates is known. A message names one, and a shard refuses updates for which that
    /// is too old: so it must be no newer than what is known of any of the message's tables, and no older.
    map: u64,
    /// For one that is to be alone.
    alone: Option<PartOf>,
    /// The order of magnitude of the time-out: nobody has to live with one that is much shorter
    /// than what there is time for.
    haste: u32,
}

impl Core {
    /// A core for a lease that nobody has used yet, and that somebody else sees to.
    #[must_use]
    pub fn new(lease: u64, random: Random) -> Core {
        let mut core = Core::without_lease(random);
        core.is_fixed = true;
        core.identities.use_lease(Some(lease));
        core
    }

    /// A core whose updates wait until there is a lease: see [`Core::wants_lease`].
    #[must_use]
    pub fn without_lease(random: Random) -> Core {
        Core {
            map: TabletMap::default(),
            learning: None,
            identities: Identities::default(),
            is_fixed: false,
            random,
            now: Time(0),
            batches: BTreeMap::new(),
            calls: BTreeMap::new(),
            reads_max: PARTS_MAX,
            ready: Vec::new(),
            lost: BTreeSet::new(),
            stale: BTreeSet::new(),
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

    /// Begins some operations, which have no order among them. [`Core::next_done`] tells what came
    /// of them, in this order, by the deadline.
    pub fn begin(&mut self, now: Time, operations: Vec<Operation>, deadline: Time) -> Ticket {
        self.now = now;
        let ticket = self.ticket();
        let parts: Vec<Part> = operations
            .into_iter()
            .map(|operation| Part {
                hash: operation.hash(),
                sequence: None,
                state: State::Ready,
                retry: Retry::new(operation.opcode().repeat(), deadline),
                sent: 0,
                may_be_done: false,
                is_alone: !operation.may_be_together(),
                obstacle: Obstacle::NoAnswer,
                operation,
            })
            .collect();
        let open = parts.len();
        self.ready.extend((0..open).map(|at| (ticket, at)));
        self.batches.insert(ticket, Batch { parts, open, deadline, wakes: Vec::new() });
        self.due.insert((deadline, ticket));
        self.finish(ticket);
        ticket
    }

    /// Begins an operation of which somebody else has made the first attempt, under no identity: this came of it.
    pub(crate) fn begin_behind(
        &mut self,
        now: Time,
        operation: Operation,
        deadline: Time,
        outcome: Result<&[u8], CallError>,
    ) -> Ticket {
        let is_read = operation.opcode() == Opcode::Read;
        let ticket = self.begin(now, vec![operation], deadline);
        // It is as if it had been sent from here.
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

    /// Gives up operations: nothing more is done for them, and nothing is told of them. What is on
    /// its way may be carried out.
    pub fn give_up(&mut self, ticket: Ticket) {
        if let Some(batch) = self.batches.remove(&ticket) {
            self.forget(ticket, &batch);
        }
    }

    /// What to do next, if there is something.
    pub fn next_output(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.send_ready();
        }
        self.outputs.pop_front()
    }

    /// What has ended, if something has.
    pub fn next_done(&mut self) -> Option<(Ticket, Results)> {
        self.done.pop_front()
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether updates wait for a lease: [`Core::lease_opened`] or [`Core::lease_refused`] is to be
    /// told.
    #[must_use]
    pub fn wants_lease(&self) -> bool {
        !self.unleased.is_empty()
    }

    /// The lease that new updates come under.
    #[must_use]
    pub fn lease(&self) -> Option<u64> {
        self.identities.lease()
    }

    /// There is a lease, that nobody has used yet, for all updates that have not been sent.
    pub fn lease_opened(&mut self, now: Time, lease: u64) {
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

    /// No lease can be had: updates that wait for one fail.
    pub fn lease_refused(&mut self, now: Time, error: Error) {
        self.now = now;
        for (ticket, at) in std::mem::take(&mut self.unleased) {
            let Some(batch) = self.batches.get_mut(&ticket) else { continue };
            let Some(part) = batch.parts.get_mut(at) else { continue };
            end(&mut self.identities, part, &mut batch.open, Err(error));
            self.finish(ticket);
        }
    }

    /// A lease is over, or may be. New updates wait for another one; those that were sent go on
    /// under theirs, and shards say whether it is over.
    pub fn lease_ended(&mut self, lease: u64) {
        if self.is_fixed || self.identities.lease() != Some(lease) {
            return;
        }
        self.identities.use_lease(None);
        for batch in self.batches.values_mut() {
            for part in &mut batch.parts {
                if part.sent == 0
                    && let Some(sequence) = part.sequence.take()
                {
                    self.identities.ended(sequence);
                }
            }
        }
    }

    /// Whether [`Core::next_done`] has something to tell.
    #[must_use]
    pub fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// When [`Core::tick`] is to be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let due = self.due.first().map(|(at, _)| *at);
        due.into_iter().chain(self.learning).min()
    }

    /// Time has passed.
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

    /// Takes a whole map in the place of the present one.
    pub fn learn(&mut self, now: Time, map: TabletMap) {
        self.now = now;
        self.map = map.whole();
        self.stale.clear();
        self.learned();
    }

    /// The request for what a coordinator knows better than the present map.
    pub(crate) fn map_request(&self) -> MapRequest {
        let stale = self.stale.iter().take(MAP_TABLES_MAX);
        let tables = stale.map(|table| (*table, self.map.table_version(*table))).collect();
        let since = self.map.whole_version();
        MapRequest { is_news: true, since, tables, ..MapRequest::default() }
    }

    /// Takes in what a coordinator says of all tables or of some.
    pub(crate) fn told(&mut self, now: Time, news: &Map) {
        self.now = now;
        self.map.merge(news);
        let stale = self.stale.len();
        if !news.is_part && news.more.is_none() {
            self.stale.clear();
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
            // It may say more the next time. It is not asked as fast as it can answer.
            self.learning = Some(now + GAP);
        }
    }

    /// Readies the parts that waited for what the map says now.
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
            if self.stale.contains(&table) {
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
                // Of a table that is gone nothing will be done any more; what was sent before
                // may have been.
                let error = Error::NoSuchTable(table);
                let error = if part.may_be_done { Error::Unknown(part.obstacle) } else { error };
                end(&mut self.identities, part, &mut batch.open, Err(error));
                self.finish(ticket);
            }
        }
    }

    /// The map that is in use.
    #[must_use]
    pub fn map(&self) -> &TabletMap {
        &self.map
    }

    /// What came of a call.
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
        let mut tickets = BTreeSet::new();
        for (ticket, at) in parts {
            // Each part of the answer is taken, also those of operations that have ended.
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
            tickets.insert(ticket);
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
                        // An earlier attempt may have been done by a server that knows nothing of it.
                        Err(error) if part.may_be_done && !is_definite(error) => {
                            Err(Error::Unknown(part.obstacle))
                        }
                        result => result,
                    };
                    end(&mut self.identities, part, &mut batch.open, result);
                }
                Err(error) => self.failed(now, ticket, at, error),
            }
        }
        for ticket in tickets {
            self.wake(now, ticket);
            self.finish(ticket);
        }
    }

    /// A part was refused because its lease is over.
    fn lease_is_over(&mut self, ticket: Ticket, at: usize) {
        let (now, is_fixed) = (self.now, self.is_fixed);
        let Some(batch) = self.batches.get_mut(&ticket) else { return };
        let Some(part) = batch.parts.get_mut(at) else { return };
        let lease = part.sequence.map(|sequence| sequence.lease);
        if !is_fixed && part.sent == 1 && !part.may_be_done && lease.is_some() {
            if let Some(sequence) = part.sequence.take() {
                self.identities.ended(sequence);
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

    /// A part was not done, as far as we know.
    fn failed(&mut self, now: Time, ticket: Ticket, at_part: usize, error: CallError) {
        let Some(batch) = self.batches.get_mut(&ticket) else { return };
        let Some(part) = batch.parts.get_mut(at_part) else { return };
        // It is not on its way any more.
        part.state = State::Lost;
        if matches!(error, CallError::Unreachable(_) | CallError::Congested | CallError::TooLong) {
            // That attempt never left.
            part.sent = part.sent.saturating_sub(1);
            let sequence = part.sequence.filter(|it| Some(it.lease) != self.identities.lease());
            if part.sent == 0
                && let Some(sequence) = sequence
            {
                self.identities.ended(sequence);
                part.sequence = None;
            }
        }
        match error {
            CallError::Broken | CallError::Late => {
                part.may_be_done = true;
                // A server that said before that it waits for its backups does so again.
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
                self.stale.insert(table);
                self.ask_for_map(now);
            }
            Decision::Again { refresh, at } => {
                // Whoever was there may be there again by then.
                part.state = State::Waiting(at);
                batch.wakes.push(at);
                self.due.insert((at, ticket));
                if refresh {
                    self.stale.insert(table);
                    self.ask_for_map(now);
                }
            }
            Decision::GiveUp => {
                let error = match error {
                    CallError::TooLong => Error::Refused(Status::ValueTooLong),
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

    /// Readies the parts of a batch whose time has come.
    fn wake(&mut self, now: Time, ticket: Ticket) {
        let Some(batch) = self.batches.get_mut(&ticket) else { return };
        for (at, part) in batch.parts.iter_mut().enumerate() {
            if matches!(part.state, State::Waiting(due) if due <= now) {
                part.state = State::Ready;
                self.ready.push((ticket, at));
            }
        }
    }

    /// The deadline of a batch has passed.
    fn expire(&mut self, ticket: Ticket) {
        let Some(batch) = self.batches.get_mut(&ticket) else { return };
        for part in &mut batch.parts {
            if !matches!(part.state, State::Done(_)) {
                let error = expired(part);
                end(&mut self.identities, part, &mut batch.open, Err(error));
            }
        }
    }

    /// Tells of a batch whose parts have all ended.
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

    /// Forgets what belongs to a batch that is no more.
    fn forget(&mut self, ticket: Ticket, batch: &Batch) {
        for at in batch.wakes.iter().chain([&batch.deadline]) {
            self.due.remove(&(*at, ticket));
        }
        for (at, part) in batch.parts.iter().enumerate() {
            if let Some(sequence) = part.sequence {
                self.identities.ended(sequence);
            }
            self.unleased.remove(&(ticket, at));
            self.lost.remove(&(ticket, at));
        }
    }
}

/// Whether a refusal says that no attempt was done: servers record those that depend on the object,
/// so that one that was done before is answered with what it did.
fn is_definite(error: Error) -> bool {
    !matches!(error, Error::Refused(Status::Stale) | Error::Incomprehensible)
}

/// The error of a part that ends because its time is over.
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
        if let Some(sequence) = part.sequence {
            identities.ended(sequence);
        }
    }
}
