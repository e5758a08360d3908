//! A client of a cluster: operations on objects, and what they need of the coordinator.
//!
//! Around a [`Core`], and like that one without I/O and without a clock. It finds out which of the
//! coordinators leads, asks that one for the map and for a lease when they are needed, keeps the
//! lease, and carries questions to it ([`Session::ask`]).
//!
//! # Who leads
//!
//! There is a list of coordinators, and a guess which of them leads. One that says that it does not,
//! or does not answer, loses the guess to the next of the list. When a question has gone all the way
//! round it waits a little, longer each time, and the names of the coordinators are resolved again. Nothing is remembered of those who do not answer: they
//! are asked again when their turn comes.
//!
//! A coordinator that has lost its office without knowing may tell of an old map. A map that is
//! older than one that was seen is not believed; another coordinator is asked.
//!
//! # The lease
//!
//! It is opened for the first update, so that who only reads costs the coordinator nothing, and
//! renewed at a third of its time. While no coordinator answers it is used all the same: a coordinator
//! that is not there ends no lease, and those that serve data must not depend on it. Who had no turn
//! for longer than a lease lasts (a thread that did something else, a machine that slept) takes a new
//! one for its next update, for the old one is likely to be over. What is under way goes on under
//! its own; see [`Core`] for why that is safe.

use crate::core::{CallNumber, Core, Output, Results, Ticket};
use crate::error::{Error, Obstacle};
use crate::map::TabletMap;
use crate::operation::Operation;
use crate::question::{Question, Reply, id_of, table_of};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::names::{Addresses, KnownAddresses};
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::control::{self, Empty, LeaseOpened, Map, MapRequest};
use thunderhead_wire::{ClusterId, Next, Status, TableId};

/// The first wait of a question that nobody answered, and the longest.
const WAIT_MIN: Duration = Duration::from_millis(4);
const WAIT_MAX: Duration = Duration::from_millis(500);

/// How long to wait for an answer that concerns map and lease.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long to try to close a lease. It ends by itself too.
const CLOSING: Duration = Duration::from_secs(1);

/// How long to look whether a table goes whose dropping was not answered.
const LOOKING: Duration = Duration::from_secs(10);

/// Names a question under way.
type Number = u64;

/// A client of a cluster, without I/O.
pub struct Session {
    core: Core,
    random: Random,
    now: Time,
    coordinators: KnownAddresses,
    /// Which of them is taken for the leader.
    leader: usize,
    cluster: Option<ClusterId>,
    /// No older map is believed.
    version: u64,
    lease: Option<Lease>,
    pending: BTreeMap<Number, Pending>,
    calls: BTreeMap<CallNumber, Number>,
    outputs: VecDeque<Output>,
    answers: VecDeque<(Ticket, Result<Reply, Error>)>,
}

/// A lease that we have.
struct Lease {
    number: u64,
    lasts: Duration,
    renew_at: Time,
}

/// What a question is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    Learn,
    OpenLease,
    RenewLease(u64),
    CloseLease(u64),
    User(Ticket, Question, Step),
}

/// Questions that need more than one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Find out which table is meant, before it is dropped.
    Before,
    Ask,
    /// Look at the map for what became of it.
    Look(Option<TableId>),
    /// Ask for the page of the map that begins with this table.
    Page(TableId),
}

struct Pending {
    purpose: Purpose,
    deadline: Time,
    state: State,
    /// Coordinators in a row that did not answer as the leader does.
    tried: usize,
    /// Of these, of another cluster.
    strangers: usize,
    failures: u32,
    /// A request of which nobody knows whether it was carried out.
    may_be_done: bool,
    /// What to say at the deadline.
    error: Error,
    /// The table that is to be dropped.
    table: Option<TableId>,
    /// The answer so far, whose map has further pages.
    pages: Option<Reply>,
}

#[derive(Clone, Copy)]
enum State {
    Waiting(Time),
    Sent { at: Time, via: Option<usize> },
}

impl Session {
    /// A session with a cluster that has these coordinators.
    #[must_use]
    pub fn new(coordinators: impl Into<Addresses>, mut random: Random) -> Session {
        let coordinators = KnownAddresses::of(coordinators.into());
        let core = Core::without_lease(random.split());
        // So that not all clients ask the same one first.
        let leader = random.below(coordinators.list().len() as u64) as usize;
        Session { coordinators, leader, ..Session::around(core, random) }
    }

    /// A session without coordinators, for a core with a lease: the map is asked for with
    /// [`Output::Learn`], and questions are not answered.
    #[must_use]
    pub fn around(core: Core, random: Random) -> Session {
        Session {
            core,
            random,
            now: Time(0),
            coordinators: KnownAddresses::of(Addresses::fixed(Vec::new())),
            leader: 0,
            cluster: None,
            version: 0,
            lease: None,
            pending: BTreeMap::new(),
            calls: BTreeMap::new(),
            outputs: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    /// The core, for what concerns only operations. What is begun is begun with [`Session::begin`].
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// The lease that new updates come under, if there is one.
    #[must_use]
    pub fn lease(&self) -> Option<u64> {
        self.core.lease()
    }

    /// Begins some operations: see [`Core::begin`].
    pub fn begin(&mut self, now: Time, operations: Vec<Operation>, deadline: Time) -> Ticket {
        self.advance(now);
        self.core.begin(now, operations, deadline)
    }

    /// Begins an operation of which somebody else has made the first attempt: see [`Core::begin_behind`].
    pub(crate) fn begin_behind(
        &mut self,
        now: Time,
        operation: Operation,
        deadline: Time,
        outcome: Result<&[u8], CallError>,
    ) -> Ticket {
        self.advance(now);
        self.core.begin_behind(now, operation, deadline, outcome)
    }

    /// Asks something; [`Session::next_answer`] tells what was said, by the deadline.
    pub fn ask(&mut self, now: Time, question: Question, deadline: Time) -> Ticket {
        self.advance(now);
        let ticket = self.core.ticket();
        let step = match &question {
            Question::DropTable(_) => Step::Before,
            _ => Step::Ask,
        };
        let error = match question.server() {
            Some(_) => Error::TimedOut(Obstacle::NoAnswer),
            None if self.coordinators.list().is_empty() => {
                self.answers.push_back((ticket, Err(Error::NoCoordinators)));
                return ticket;
            }
            None => Error::TimedOut(Obstacle::NoCoordinator),
        };
        self.start(Purpose::User(ticket, question, step), deadline, error);
        ticket
    }

    /// Gives up what was begun or asked: nothing is told of it. It may be carried out.
    pub fn give_up(&mut self, ticket: Ticket) {
        self.core.give_up(ticket);
        self.pending
            .retain(|_, it| !matches!(it.purpose, Purpose::User(its, _, _) if its == ticket));
    }

    /// Ends the lease, so that servers need not remember for it. Updates that have not been sent
    /// need another one.
    pub fn close(&mut self, now: Time) {
        self.advance(now);
        if let Some(lease) = self.lease.take() {
            self.core.lease_ended(lease.number);
            let error = Error::TimedOut(Obstacle::NoCoordinator);
            self.start(Purpose::CloseLease(lease.number), now + CLOSING, error);
        }
    }

    /// Whether nothing is under way, not even the end of a lease.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let counts =
            |it: &Pending| matches!(it.purpose, Purpose::User(..) | Purpose::CloseLease(_));
        self.core.is_idle() && !self.pending.values().any(counts)
    }

    /// What has ended, if operations have.
    pub fn next_done(&mut self) -> Option<(Ticket, Results)> {
        self.core.next_done()
    }

    /// What was answered, if something was.
    pub fn next_answer(&mut self) -> Option<(Ticket, Result<Reply, Error>)> {
        self.answers.pop_front()
    }

    /// Whether [`Session::next_done`] or [`Session::next_answer`] has something to tell.
    #[must_use]
    pub fn has_done(&self) -> bool {
        self.core.has_done() || !self.answers.is_empty()
    }

    /// Somebody says where the tablets are: see [`Core::learn`].
    pub fn learn(&mut self, now: Time, map: TabletMap) {
        self.core.learn(now, map);
    }

    /// What to do next, if there is something.
    pub fn next_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            let error = Error::TimedOut(Obstacle::NoCoordinator);
            match self.core.next_output() {
                Some(Output::Learn) if !self.coordinators.list().is_empty() => {
                    if !self.has(|it| *it == Purpose::Learn) {
                        self.start(Purpose::Learn, Time::NEVER, error);
                    }
                    continue;
                }
                Some(output) => return Some(output),
                None => {}
            }
            if self.core.wants_lease() && self.coordinators.list().is_empty() {
                self.core.lease_refused(self.now, Error::NoCoordinators);
            } else if self.core.wants_lease() && !self.has(|it| *it == Purpose::OpenLease) {
                self.start(Purpose::OpenLease, Time::NEVER, error);
            }
            self.send_due();
            if self.outputs.is_empty() {
                return None;
            }
        }
    }

    /// When [`Session::tick`] is to be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let pending = self.pending.values().map(|it| match it.state {
            State::Waiting(at) => at.min(it.deadline),
            State::Sent { .. } => it.deadline,
        });
        let is_renewed = self.has(|it| matches!(it, Purpose::RenewLease(_)));
        let renew_at = self.lease.as_ref().filter(|_| !is_renewed).map(|lease| lease.renew_at);
        let all = pending.chain(renew_at).chain(self.core.deadline());
        all.min().filter(|at| *at != Time::NEVER)
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time) {
        self.advance(now);
        self.core.tick(now);
        let late: Vec<Number> =
            self.pending.iter().filter(|(_, it)| it.deadline <= now).map(|(id, _)| *id).collect();
        for number in late {
            let Some(it) = self.pending.remove(&number) else { continue };
            if let Purpose::User(ticket, question, _) = it.purpose {
                let is_on_its_way = matches!(it.state, State::Sent { .. });
                let is_unknown = question.is_change() && (it.may_be_done || is_on_its_way);
                let error =
                    if is_unknown { Error::Unknown(obstacle_of(it.error)) } else { it.error };
                self.answers.push_back((ticket, Err(error)));
            }
        }
        // What nobody waits for any more is not asked for.
        let (learns, opens) = (!self.core.is_idle(), self.core.wants_lease());
        self.pending.retain(|_, it| match it.purpose {
            Purpose::Learn => learns || matches!(it.state, State::Sent { .. }),
            Purpose::OpenLease => opens || matches!(it.state, State::Sent { .. }),
            _ => true,
        });
    }

    /// What came of a call.
    pub fn answered(&mut self, now: Time, call: CallNumber, outcome: Result<&[u8], CallError>) {
        self.advance(now);
        let Some(number) = self.calls.remove(&call) else {
            return self.core.answered(now, call, outcome);
        };
        let Some(mut it) = self.pending.remove(&number) else { return };
        let State::Sent { at, via } = it.state else { return };
        let ended = match outcome {
            Ok(body) => self.understood(&mut it, body, at),
            Err(error) => self.refused(&mut it, error),
        };
        match ended {
            Verdict::Ended => {}
            Verdict::Again(wait) => {
                (it.tried, it.strangers) = (0, 0);
                it.state = State::Waiting(now + wait);
                self.pending.insert(number, it);
            }
            Verdict::Elsewhere => {
                if via == Some(self.leader) && !self.coordinators.list().is_empty() {
                    self.leader = (self.leader + 1) % self.coordinators.list().len();
                }
                it.tried += 1;
                let is_round =
                    via.is_none() || it.tried % self.coordinators.list().len().max(1) == 0;
                let wait = if is_round { self.backoff(&mut it) } else { Duration::ZERO };
                if is_round {
                    // None of them answers as the leader: they may be elsewhere.
                    self.coordinators.resolve_again();
                }
                it.state = State::Waiting(now + wait);
                self.pending.insert(number, it);
            }
        }
    }

    /// Notes what time it is, and what follows from that for the lease.
    fn advance(&mut self, now: Time) {
        let absent = now.since(self.now);
        self.now = now;
        let Some(Lease { number, lasts, renew_at }) = self.lease else { return };
        if absent > lasts {
            self.lease = None;
            self.core.lease_ended(number);
        } else if renew_at <= now && !self.has(|it| matches!(it, Purpose::RenewLease(_))) {
            let error = Error::TimedOut(Obstacle::NoCoordinator);
            self.start(Purpose::RenewLease(number), Time::NEVER, error);
        }
    }

    fn has(&self, which: impl Fn(&Purpose) -> bool) -> bool {
        self.pending.values().any(|it| which(&it.purpose))
    }

    fn start(&mut self, purpose: Purpose, deadline: Time, error: Error) {
        let number = self.core.number();
        let state = State::Waiting(self.now);
        let it = Pending {
            purpose,
            deadline,
            state,
            tried: 0,
            strangers: 0,
            failures: 0,
            may_be_done: false,
            error,
            table: None,
            pages: None,
        };
        self.pending.insert(number, it);
    }

    /// Sends the questions whose time has come.
    fn send_due(&mut self) {
        if self.coordinators.refresh() {
            self.leader %= self.coordinators.list().len().max(1);
        }
        let due: Vec<Number> = self
            .pending
            .iter()
            .filter(|(_, it)| matches!(it.state, State::Waiting(at) if at <= self.now))
            .map(|(number, _)| *number)
            .collect();
        for number in due {
            let call = CallNumber(self.core.number());
            let Some(it) = self.pending.get_mut(&number) else { continue };
            let (opcode, body, patience) = request(&it.purpose, &self.core);
            let server = match &it.purpose {
                Purpose::User(_, question, _) => question.server(),
                _ => None,
            };
            let via = server.is_none().then_some(self.leader);
            let Some(to) = server.or_else(|| self.coordinators.list().get(self.leader).copied())
            else {
                continue;
            };
            it.state = State::Sent { at: self.now, via };
            let left = it.deadline.since(self.now);
            let timeout = patience.min(left - left / 16);
            self.calls.insert(call, number);
            self.outputs.push_back(Output::Call { number: call, to, opcode, body, timeout });
        }
    }

    /// What an answer means.
    fn understood(&mut self, it: &mut Pending, body: &[u8], sent: Time) -> Verdict {
        let now = self.now;
        match it.purpose.clone() {
            Purpose::Learn => match self.map_of(it, body) {
                Some(map) => {
                    self.core.told(now, &map);
                    Verdict::Ended
                }
                None => Verdict::Elsewhere,
            },
            Purpose::OpenLease => match control::of_body::<LeaseOpened>(body) {
                Some(opened) if opened.lease != 0 => {
                    if *self.cluster.get_or_insert(opened.cluster) != opened.cluster {
                        self.core.lease_refused(now, Error::Refused(Status::WrongCluster));
                        return Verdict::Ended;
                    }
                    let lasts = Duration::from_millis(opened.ttl_ms.max(1));
                    if now.since(sent) > lasts {
                        // It took so long to hear of it that it is over.
                        return Verdict::Again(self.backoff(it));
                    }
                    let (number, renew_at) = (opened.lease, sent + lasts / 3);
                    self.lease = Some(Lease { number, lasts, renew_at });
                    self.core.lease_opened(now, number);
                    Verdict::Ended
                }
                _ => {
                    self.core.lease_refused(now, Error::Incomprehensible);
                    Verdict::Ended
                }
            },
            Purpose::RenewLease(number) => {
                if let Some(lease) = self.lease.as_mut().filter(|lease| lease.number == number) {
                    lease.renew_at = sent + lease.lasts / 3;
                }
                Verdict::Ended
            }
            Purpose::CloseLease(_) => Verdict::Ended,
            Purpose::User(ticket, question, step) => {
                self.understood_user(it, (ticket, question, step), body)
            }
        }
    }

    fn understood_user(
        &mut self,
        it: &mut Pending,
        (ticket, question, step): (Ticket, Question, Step),
        body: &[u8],
    ) -> Verdict {
        let name = question.table().unwrap_or_default().to_owned();
        let result = match step {
            Step::Ask if matches!(question, Question::Map(_)) => match self.map_of(it, body) {
                Some(map) => {
                    if matches!(question, Question::Map(None)) && map.more.is_none() {
                        self.core.told(self.now, &map);
                    }
                    Ok(Reply::Map(map))
                }
                None => return Verdict::Elsewhere,
            },
            Step::Ask => question.understand(body),
            Step::Page(from) => {
                let Some(page) = control::of_body::<Map>(body) else {
                    it.error = Error::Incomprehensible;
                    return Verdict::Elsewhere;
                };
                join(it.pages.take(), page, from)
            }
            Step::Before => {
                let Some(map) = self.map_of(it, body) else { return Verdict::Elsewhere };
                match id_of(&map, &name) {
                    None => Err(Error::Refused(Status::NoSuchTable)),
                    table => {
                        it.table = table;
                        it.purpose = Purpose::User(ticket, question, Step::Ask);
                        return Verdict::Again(Duration::ZERO);
                    }
                }
            }
            Step::Look(gone) => {
                let Some(map) = self.map_of(it, body) else { return Verdict::Elsewhere };
                match (gone, table_of(map, &name)) {
                    (Some(gone), found) if found.as_ref().is_none_or(|it| it.id != gone) => {
                        Ok(Reply::Done)
                    }
                    (Some(_), _) => return Verdict::Again(self.backoff(it)),
                    (None, Some(table)) => Ok(Reply::Table(table)),
                    (None, None) => {
                        it.purpose = Purpose::User(ticket, question, Step::Ask);
                        return Verdict::Again(self.backoff(it));
                    }
                }
            }
        };
        if let Ok(reply) = &result
            && let Some(from) = map_in(reply).and_then(|map| map.more)
        {
            it.pages = result.ok();
            it.purpose = Purpose::User(ticket, question, Step::Page(from));
            return Verdict::Again(Duration::ZERO);
        }
        self.answers.push_back((ticket, result));
        Verdict::Ended
    }

    /// A map, if it is not older than another one that was seen.
    fn map_of(&mut self, it: &mut Pending, body: &[u8]) -> Option<Map> {
        let Some(map) = control::of_body::<Map>(body) else {
            it.error = Error::Incomprehensible;
            return None;
        };
        if map.version < self.version {
            return None;
        }
        self.version = map.version;
        Some(map)
    }

    /// What an error means.
    fn refused(&mut self, it: &mut Pending, error: CallError) -> Verdict {
        if matches!(error, CallError::Broken | CallError::Late) {
            it.strangers = 0;
            return self.unanswered(it);
        }
        let (status, hint) = match error {
            CallError::Refused { status, hint, .. } => (status, hint),
            error if error.is_of_another_cluster() => return self.met_stranger(it),
            CallError::Unreachable(_) => {
                it.strangers = 0;
                return Verdict::Elsewhere;
            }
            CallError::Congested => return Verdict::Again(self.backoff(it)),
            CallError::TooLong => return self.fail(it, Error::Refused(Status::Malformed)),
            _ => return self.fail(it, Error::Incomprehensible),
        };
        let looks = Step::Look(None);
        match (&mut it.purpose, status) {
            (_, Status::NotLeader) => {
                it.strangers = 0;
                return Verdict::Elsewhere;
            }
            (_, Status::LeadershipLost | Status::DeadlineExceeded) => {
                it.strangers = 0;
                it.error = Error::TimedOut(Obstacle::NoLeader);
                return self.unanswered(it);
            }
            (Purpose::User(_, Question::CreateTable(_), step), Status::TableExists)
                if it.may_be_done =>
            {
                *step = looks;
                return Verdict::Again(Duration::ZERO);
            }
            _ => {}
        }
        match status.next() {
            Next::Wait => {
                it.error = Error::Refused(status);
                Verdict::Again(Duration::from_micros(u64::from(hint)) + self.backoff(it))
            }
            Next::Refresh => Verdict::Elsewhere,
            Next::Take | Next::GiveUp => self.fail(it, Error::Refused(status)),
        }
    }

    /// A coordinator of another cluster is there, or a server of one.
    fn met_stranger(&mut self, it: &mut Pending) -> Verdict {
        it.strangers += 1;
        let is_user = matches!(it.purpose, Purpose::User(..));
        if is_user && it.strangers >= self.coordinators.list().len() {
            // No coordinator is left that could be the right one.
            return self.fail(it, Error::Refused(Status::WrongCluster));
        }
        Verdict::Elsewhere
    }

    /// Nobody knows whether a request was carried out.
    fn unanswered(&mut self, it: &mut Pending) -> Verdict {
        if let Purpose::User(_, question, step) = &mut it.purpose
            && *step == Step::Ask
            && question.is_change()
        {
            it.may_be_done = true;
            if matches!(question, Question::DropTable(_)) {
                *step = Step::Look(it.table);
                // Also without a deadline it ends: it may never have been carried out.
                it.deadline = it.deadline.min(self.now + LOOKING);
            }
        }
        Verdict::Elsewhere
    }

    /// A refusal that is final.
    fn fail(&mut self, it: &mut Pending, error: Error) -> Verdict {
        match &it.purpose {
            // Operations wait for it; they have deadlines.
            Purpose::Learn => Verdict::Again(self.backoff(it)),
            Purpose::OpenLease => {
                self.core.lease_refused(self.now, error);
                Verdict::Ended
            }
            Purpose::RenewLease(number) => {
                let number = *number;
                let ours = self.lease.as_mut().filter(|lease| lease.number == number);
                if error == Error::Refused(Status::LeaseEnded) {
                    self.lease.take_if(|lease| lease.number == number);
                    self.core.lease_ended(number);
                } else if let Some(lease) = ours {
                    // Shards say whether it is over.
                    lease.renew_at = self.now + lease.lasts / 3;
                }
                Verdict::Ended
            }
            Purpose::CloseLease(_) => Verdict::Ended,
            Purpose::User(ticket, question, _) => {
                let is_unknown = it.may_be_done && question.is_change();
                let error = if is_unknown { Error::Unknown(obstacle_of(it.error)) } else { error };
                self.answers.push_back((*ticket, Err(error)));
                Verdict::Ended
            }
        }
    }

    /// Twice as long with every failure, and something at random.
    fn backoff(&mut self, it: &mut Pending) -> Duration {
        let most = WAIT_MIN.saturating_mul(1 << it.failures.min(16)).min(WAIT_MAX);
        it.failures += 1;
        most / 2 + Duration::from_nanos(self.random.below(most.as_nanos() as u64 / 2))
    }
}

/// What was in the way of a question that ends with this error.
fn obstacle_of(error: Error) -> Obstacle {
    match error {
        Error::TimedOut(obstacle) => obstacle,
        Error::Refused(status) => Obstacle::of_status(status),
        _ => Obstacle::NoCoordinator,
    }
}

/// What becomes of a question that was answered.
enum Verdict {
    Ended,
    /// Ask the same one again after a while.
    Again(Duration),
    /// Ask another one.
    Elsewhere,
}

/// The map in a reply.
fn map_in(reply: &Reply) -> Option<&Map> {
    match reply {
        Reply::Map(map) => Some(map),
        Reply::Cluster(status) => Some(&status.map),
        _ => None,
    }
}

/// A reply with one more page of its map, which was to begin with a table.
fn join(reply: Option<Reply>, page: Map, from: TableId) -> Result<Reply, Error> {
    let mut reply = reply.ok_or(Error::Incomprehensible)?;
    let map = match &mut reply {
        Reply::Map(map) => map,
        Reply::Cluster(status) => &mut status.map,
        _ => return Err(Error::Incomprehensible),
    };
    let is_behind = |table: TableId| table >= from;
    if !page.tables.iter().all(|it| is_behind(it.id)) || page.more.is_some_and(|it| it <= from) {
        // Else it could go on for ever.
        return Err(Error::Incomprehensible);
    }
    map.tables.extend(page.tables);
    map.more = page.more;
    Ok(reply)
}

/// What to ask for a purpose, and how long to wait.
fn request(purpose: &Purpose, core: &Core) -> (Opcode, Vec<u8>, Duration) {
    let lease = |lease: u64| control::to_body(&control::Lease { lease });
    match purpose {
        Purpose::Learn => (Opcode::Map, control::to_body(&core.map_request()), PATIENCE),
        Purpose::OpenLease => (Opcode::OpenLease, control::to_body(&Empty {}), PATIENCE),
        Purpose::RenewLease(number) => (Opcode::RenewLease, lease(*number), PATIENCE),
        Purpose::CloseLease(number) => (Opcode::CloseLease, lease(*number), PATIENCE),
        Purpose::User(_, question, Step::Ask) => {
            (question.opcode(), question.body(), question.patience())
        }
        Purpose::User(_, question, Step::Before | Step::Look(_)) => {
            let table = question.table().map(str::to_owned);
            let request = MapRequest { table, ..MapRequest::default() };
            (Opcode::Map, control::to_body(&request), PATIENCE)
        }
        Purpose::User(_, _, Step::Page(from)) => {
            let request = MapRequest { from: Some(*from), ..MapRequest::default() };
            (Opcode::Map, control::to_body(&request), PATIENCE)
        }
    }
}
