//! The state machine.

use crate::error::{Error, Obstacle};
use crate::identities::Identities;
use crate::map::TabletMap;
use crate::operation::{Answer, Operation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_rpc::{CallError, Decision, Opcode, Retry};
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::operations::PartHead;
use thunderhead_wire::{KeyHash, Status};
use zerocopy::IntoBytes;

/// Operations in one message: what a shard takes.
const PARTS_MAX: usize = 128;

/// Bytes in one message, about, once it has one operation.
const MESSAGE_BYTES: usize = 256 << 10;

/// How long to wait for one answer. A server that lives answers much sooner, or says that it is
/// busy.
const PATIENCE: Duration = Duration::from_secs(1);

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
pub struct CallNumber(u64);

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
    random: Random,
    batches: BTreeMap<Ticket, Batch>,
    calls: BTreeMap<CallNumber, Call>,
    /// When which batch has something to do: a part to be sent again, or its deadline.
    due: BTreeSet<(Time, Ticket)>,
    outputs: VecDeque<Output>,
    done: VecDeque<(Ticket, Results)>,
    count: u64,
}

/// Operations that were begun together.
struct Batch {
    parts: Vec<Part>,
    open: usize,
    deadline: Time,
    /// When parts of it are to be sent again, and the calls that were made for it: what there is to
    /// forget with it.
    wakes: Vec<Time>,
    calls: Vec<CallNumber>,
}

struct Part {
    operation: Operation,
    hash: KeyHash,
    /// Of an update.
    sequence: u64,
    state: State,
    retry: Retry,
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
    /// To be sent once there is a new map.
    Lost,
    /// Sent.
    Sent,
    Done(Result<Answer, Error>),
}

/// A message on its way: some parts of a batch.
struct Call {
    batch: Ticket,
    parts: Vec<usize>,
    is_many: bool,
}

impl Core {
    /// A core for a lease that nobody has used yet.
    #[must_use]
    pub fn new(lease: u64, random: Random) -> Core {
        Core {
            map: TabletMap::default(),
            learning: None,
            identities: Identities::of(lease),
            random,
            batches: BTreeMap::new(),
            calls: BTreeMap::new(),
            due: BTreeSet::new(),
            outputs: VecDeque::new(),
            done: VecDeque::new(),
            count: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Begins some operations, which are sent together and have no order among them.
    /// [`Core::next_done`] tells what came of them, in this order, by the deadline.
    pub fn begin(&mut self, now: Time, operations: Vec<Operation>, deadline: Time) -> Ticket {
        let ticket = Ticket(self.number());
        let parts: Vec<Part> = operations
            .into_iter()
            .map(|operation| Part {
                hash: operation.hash(),
                sequence: if operation.is_update() { self.identities.take() } else { 0 },
                state: State::Waiting(now),
                retry: Retry::new(operation.opcode().repeat(), deadline),
                may_be_done: false,
                is_alone: !operation.may_be_together(),
                obstacle: Obstacle::NoAnswer,
                operation,
            })
            .collect();
        let open = parts.len();
        let (wakes, calls) = (Vec::new(), Vec::new());
        self.batches.insert(ticket, Batch { parts, open, deadline, wakes, calls });
        self.due.insert((deadline, ticket));
        self.send_due(now, ticket);
        self.finish(ticket);
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
        self.outputs.pop_front()
    }

    /// What has ended, if something has.
    pub fn next_done(&mut self) -> Option<(Ticket, Results)> {
        self.done.pop_front()
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
        while let Some((at, ticket)) = self.due.first().copied()
            && at <= now
        {
            self.due.remove(&(at, ticket));
            if self.batches.get(&ticket).is_some_and(|batch| batch.deadline <= now) {
                self.expire(ticket);
            } else {
                self.send_due(now, ticket);
            }
            self.finish(ticket);
        }
        if self.learning.is_some_and(|at| at <= now) {
            self.learning = None;
            self.ask_for_map(now);
        }
    }

    /// Somebody says where the tablets are.
    pub fn learn(&mut self, now: Time, map: TabletMap) {
        self.map = map;
        self.learning = None;
        let tickets: Vec<Ticket> = self.batches.keys().copied().collect();
        for ticket in tickets {
            let Some(batch) = self.batches.get_mut(&ticket) else { continue };
            for part in batch.parts.iter_mut().filter(|part| matches!(part.state, State::Lost)) {
                let table = part.operation.table;
                if self.map.find(table, part.hash).is_some() {
                    part.state = State::Waiting(now);
                } else if self.map.has_table(table) {
                    let wait = GAP + Duration::from_nanos(self.random.below(GAP.as_nanos() as u64));
                    part.state = State::Waiting(now + wait);
                    batch.wakes.push(now + wait);
                    self.due.insert((now + wait, ticket));
                } else {
                    // Of a table that is gone nothing will be done any more; what was sent before
                    // may have been.
                    let error = Error::NoSuchTable(table);
                    let error = if part.may_be_done { Error::Unknown } else { error };
                    end(&mut self.identities, part, &mut batch.open, Err(error));
                }
            }
            self.send_due(now, ticket);
            self.finish(ticket);
        }
    }

    /// What came of a call.
    pub fn answered(&mut self, now: Time, number: CallNumber, outcome: Result<&[u8], CallError>) {
        // Calls of operations that have ended are not known any more.
        let Some(Call { batch: ticket, parts, is_many }) = self.calls.remove(&number) else {
            return;
        };
        let mut rest = outcome.unwrap_or_default();
        let is_too_long =
            matches!(outcome, Err(CallError::Refused { status: Status::ReplyTooLong, .. }));
        for at in parts {
            let Some(batch) = self.batches.get_mut(&ticket) else { return };
            let Some(part) = batch.parts.get_mut(at) else { continue };
            if is_many && is_too_long {
                (part.is_alone, part.state) = (true, State::Waiting(now));
                continue;
            }
            let operation = &part.operation;
            let understood = match outcome {
                Ok(body) if !is_many => Ok(operation.understand(body)),
                Ok(_) => match PartHead::take(rest) {
                    Some((head, value, behind)) => {
                        rest = behind;
                        operation.understand_part(head, value)
                    }
                    None => Ok(Err(Error::Incomprehensible)),
                },
                Err(CallError::Refused { status, hint, detail }) => {
                    match operation.refused(status, detail) {
                        Err(_) => Err(CallError::Refused { status, hint, detail }),
                        decided => decided,
                    }
                }
                Err(error) => Err(error),
            };
            match understood {
                Ok(result) => {
                    let result = match result {
                        // An earlier attempt may have been done by a server that knows nothing of it.
                        Err(error) if part.may_be_done && !is_definite(error) => {
                            Err(Error::Unknown)
                        }
                        result => result,
                    };
                    end(&mut self.identities, part, &mut batch.open, result);
                }
                Err(error) => self.failed(now, ticket, at, error),
            }
        }
        self.send_due(now, ticket);
        self.finish(ticket);
    }

    /// A part was not done, as far as we know.
    fn failed(&mut self, now: Time, ticket: Ticket, at: usize, error: CallError) {
        let Some(batch) = self.batches.get_mut(&ticket) else { return };
        let Some(part) = batch.parts.get_mut(at) else { return };
        // It is not on its way any more.
        part.state = State::Lost;
        match error {
            CallError::Broken | CallError::Late => {
                part.may_be_done = true;
                part.obstacle = Obstacle::NoAnswer;
            }
            CallError::Refused { status: Status::NoSpace, .. } => part.obstacle = Obstacle::NoSpace,
            CallError::Refused { status: Status::Busy, .. } => part.obstacle = Obstacle::Busy,
            CallError::Refused { .. } => part.obstacle = Obstacle::NoMap,
            _ => part.obstacle = Obstacle::NoAnswer,
        }
        match part.retry.decide(error, now, &mut self.random) {
            Decision::Again { refresh: true, at } if at <= now => self.ask_for_map(now),
            Decision::Again { refresh, at } => {
                // Whoever was there may be there again by then.
                part.state = State::Waiting(at);
                batch.wakes.push(at);
                self.due.insert((at, ticket));
                if refresh {
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

    /// Sends the parts of a batch whose time has come, those for the same shard together.
    fn send_due(&mut self, now: Time, ticket: Ticket) {
        let Some(batch) = self.batches.get_mut(&ticket) else { return };
        let deadline = batch.deadline;
        // What became of the call must be known a little before the deadline: whoever makes it can
        // say whether the request has left.
        let left = deadline.since(now);
        let timeout = PATIENCE.min(left - left / 16);
        let mut messages: BTreeMap<(SocketAddr, bool), Vec<usize>> = BTreeMap::new();
        let mut alone = Vec::new();
        let mut is_lost = false;
        for (at, part) in batch.parts.iter_mut().enumerate() {
            if !matches!(part.state, State::Waiting(due) if due <= now) {
                continue;
            }
            match self.map.find(part.operation.table, part.hash) {
                Some(to) if part.is_alone => {
                    alone.push((to, at));
                    part.state = State::Sent;
                }
                Some(to) => {
                    messages.entry((to, part.operation.is_update())).or_default().push(at);
                    part.state = State::Sent;
                }
                None => {
                    part.state = State::Lost;
                    part.obstacle = Obstacle::NoMap;
                    is_lost = true;
                }
            }
        }
        for ((to, is_update), parts) in messages {
            self.send(ticket, (to, timeout), is_update, &parts);
        }
        for (to, at) in alone {
            self.send(ticket, (to, timeout), false, &[at]);
        }
        if is_lost {
            self.ask_for_map(now);
        }
    }

    /// Sends parts to a shard, in as many messages as it takes.
    fn send(
        &mut self,
        ticket: Ticket,
        (to, timeout): (SocketAddr, Duration),
        is_update: bool,
        mut parts: &[usize],
    ) {
        while !parts.is_empty() {
            let Some(batch) = self.batches.get(&ticket) else { return };
            let (mut count, mut bytes) = (0, 0);
            for at in parts.iter().take(PARTS_MAX) {
                bytes += batch.parts.get(*at).map_or(0, |part| part.operation.bytes());
                if count > 0 && bytes > MESSAGE_BYTES {
                    break;
                }
                count += 1;
            }
            let (these, others) = parts.split_at(count);
            parts = others;
            let chosen = these.iter().filter_map(|at| batch.parts.get(*at));
            let (opcode, body) = match (these, is_update) {
                ([at], _) => {
                    let Some(part) = batch.parts.get(*at) else { continue };
                    let identity = self.identities.identity(part.sequence);
                    (part.operation.opcode(), part.operation.body(identity))
                }
                (_, is_update) => {
                    let mut body = Vec::with_capacity(bytes);
                    if is_update {
                        body.extend_from_slice(self.identities.identity(0).as_bytes());
                    }
                    chosen.for_each(|part| part.operation.put(part.sequence, &mut body));
                    let opcode = if is_update { Opcode::UpdateMany } else { Opcode::ReadMany };
                    (opcode, body)
                }
            };
            let (parts, is_many) = (these.to_vec(), these.len() > 1);
            let number = CallNumber(self.number());
            if let Some(batch) = self.batches.get_mut(&ticket) {
                batch.calls.push(number);
            }
            self.calls.insert(number, Call { batch: ticket, parts, is_many });
            self.outputs.push_back(Output::Call { number, to, opcode, body, timeout });
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
            _ => Err(Error::Unknown),
        });
        self.done.push_back((ticket, results.collect()));
    }

    /// Forgets what belongs to a batch that is no more.
    fn forget(&mut self, ticket: Ticket, batch: &Batch) {
        for at in batch.wakes.iter().chain([&batch.deadline]) {
            self.due.remove(&(*at, ticket));
        }
        for number in &batch.calls {
            self.calls.remove(number);
        }
        for part in &batch.parts {
            self.identities.ended(part.sequence);
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
        Error::Unknown
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
        identities.ended(part.sequence);
    }
}
