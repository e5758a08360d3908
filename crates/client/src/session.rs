//! A client's session with a cluster: operations on objects, and everything they need from the
//! coordinator.
//!
//! A session wraps a [`Core`], and like the core it has no I/O and no clock. It finds the leading
//! coordinator, requests the map and a lease from it when they are needed, renews the lease, and
//! sends the user's questions to it ([`Session::ask`]).
//!
//! # The leading coordinator
//!
//! The session has a list of coordinators, and assumes that one of them leads. If that coordinator
//! says that it does not lead, or does not answer, the session assumes that the next one in the
//! list leads. When a question has been to all coordinators of the list, it waits a little, longer
//! each time, and the names of the coordinators are resolved again. The session does not remember
//! which coordinators failed to answer: it asks them again when their turn comes.
//!
//! A coordinator that has lost its leadership without knowing may report an old map. The session
//! refuses a map that is older than one it has seen, and asks another coordinator.
//!
//! # The lease
//!
//! The session opens a lease for the first update, so that a client that only reads costs the
//! coordinator nothing. It renews the lease after a third of its duration. While no coordinator
//! answers, the session goes on using the lease: an absent coordinator ends no lease, and access to
//! data must not depend on the coordinator. A client that has no turn for longer than a lease lasts
//! (a thread with other work, a machine that slept) takes a new lease for its next update, because
//! the old one has probably ended. Updates in flight keep their lease; see [`Core`] for why that is
//! safe.

use crate::core::{CallNumber, Core, Output, Results, Ticket};
use crate::error::{Error, Obstacle};
use crate::map::TabletMap;
use crate::operation::Operation;
use crate::question::{Question, Reply, id_of, is_served, join, table_of};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use thunderhead_rpc::{CallError, LeaderSearch, Opcode};
use thunderhead_runtime::backoff::Backoff;
use thunderhead_runtime::names::Addresses;
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::control::{
    self, ChangeSettings, ClusterStatus, DropTable, Empty, LeaseOpened, Map, MapRequest,
};
use thunderhead_wire::{ClusterId, LeaseId, Next, Status, TableId};

/// The limits of the waits before a question without an answer is sent again.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(4), Duration::from_millis(500));

/// How long to wait for an answer that concerns the map or the lease.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long to try to close a lease. It also expires by itself.
const CLOSING: Duration = Duration::from_secs(1);

/// How long to look for the end of a table after the answer to its deletion was lost.
const LOOKING: Duration = Duration::from_secs(10);

/// Identifies a pending question.
type Number = u64;

/// A client of a cluster, without I/O.
pub struct Session {
    core: Core,
    random: Random,
    now: Time,
    coordinators: LeaderSearch,
    cluster: Option<ClusterId>,
    /// The version of the newest map seen. Older maps are refused.
    version: u64,
    lease: Option<Lease>,
    pending: BTreeMap<Number, Pending>,
    calls: BTreeMap<CallNumber, Number>,
    outputs: VecDeque<Output>,
    answers: VecDeque<(Ticket, Result<Reply, Error>)>,
}

/// The client's lease.
struct Lease {
    number: LeaseId,
    lasts: Duration,
    renew_at: Time,
}

/// The purpose of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    Learn,
    OpenLease,
    RenewLease(LeaseId),
    CloseLease(LeaseId),
    User(Ticket, Question, Step),
}

/// The step of a user's question that may need several requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Look up the id of a table that is to be dropped, or the version of the settings. The next
    /// request names it, so that a delayed copy of that request changes nothing later.
    Before,
    Ask,
    /// Fetch the map to see whether the change was done.
    Look(Option<TableId>),
    /// Fetch the page of the map that begins with this table.
    Page(TableId),
}

struct Pending {
    purpose: Purpose,
    deadline: Time,
    state: State,
    /// How many coordinators in a row did not answer as the leader.
    tried: usize,
    /// How many of these were of another cluster.
    strangers: usize,
    failures: u32,
    /// Whether a request may have been done without an answer.
    may_be_done: bool,
    /// Whether the coordinator answered that a migration is in progress: the tablet may move.
    may_move: bool,
    /// Whether the session, and not its user, found the version of the settings.
    found_version: bool,
    /// The error at the deadline.
    error: Error,
    /// The table to be dropped.
    table: Option<TableId>,
    /// The reply so far, if its map has further pages.
    pages: Option<Reply>,
}

#[derive(Clone, Copy)]
enum State {
    Waiting(Time),
    Sent { at: Time, via: Option<usize> },
}

impl Pending {
    /// Whether a user's question is a change that may have been done, if the session stops asking
    /// now.
    fn is_unknown_now(&self) -> bool {
        let Purpose::User(_, question, step) = &self.purpose else { return false };
        let is_on_its_way = *step == Step::Ask && matches!(self.state, State::Sent { .. });
        question.is_change() && (self.may_be_done || self.may_move || is_on_its_way)
    }
}

impl Session {
    /// Makes a session with a cluster that has these coordinators.
    #[must_use]
    pub fn new(coordinators: impl Into<Addresses>, mut random: Random) -> Session {
        let mut coordinators = LeaderSearch::new(coordinators);
        let core = Core::without_lease(random.split());
        // A random start spreads the first requests of all clients.
        coordinators.assume(random.below(coordinators.count() as u64) as usize);
        Session { coordinators, ..Session::around(core, random) }
    }

    /// Makes a session without coordinators, for a core with a lease. It requests the map with
    /// [`Output::Learn`] and answers no questions.
    #[must_use]
    pub fn around(core: Core, random: Random) -> Session {
        Session {
            core,
            random,
            now: Time(0),
            coordinators: LeaderSearch::new([]),
            cluster: None,
            version: 0,
            lease: None,
            pending: BTreeMap::new(),
            calls: BTreeMap::new(),
            outputs: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    /// Returns the core, for reading its state. Operations begin with [`Session::begin`].
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Returns the lease for new updates, if there is one.
    #[must_use]
    pub fn lease(&self) -> Option<LeaseId> {
        self.core.lease()
    }

    /// Begins operations: see [`Core::begin`].
    pub fn begin(&mut self, now: Time, operations: Vec<Operation>, deadline: Time) -> Ticket {
        self.advance(now);
        self.core.begin(now, operations, deadline)
    }

    /// Begins an operation whose first attempt the caller has already made: see
    /// [`Core::begin_behind`].
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

    /// Begins a question. [`Session::next_answer`] returns the reply by the deadline.
    pub fn ask(&mut self, now: Time, question: Question, deadline: Time) -> Ticket {
        self.advance(now);
        let ticket = self.core.ticket();
        let step = match &question {
            Question::DropTable(_) => Step::Before,
            Question::ChangeSettings(it) if it.version.is_none() => Step::Before,
            _ => Step::Ask,
        };
        let error = match question.server() {
            Some(_) => Error::TimedOut(Obstacle::NoAnswer),
            None if self.coordinators.count() == 0 => {
                self.answers.push_back((ticket, Err(Error::NoCoordinators)));
                return ticket;
            }
            None => Error::TimedOut(Obstacle::NoCoordinator),
        };
        self.start(Purpose::User(ticket, question, step), deadline, error);
        ticket
    }

    /// Cancels operations or a question: the session returns no result. They may still be done.
    pub fn give_up(&mut self, ticket: Ticket) {
        self.core.give_up(ticket);
        self.pending
            .retain(|_, it| !matches!(it.purpose, Purpose::User(its, _, _) if its == ticket));
    }

    /// Ends operations or a question before their deadline. The result comes as usual. If a change
    /// was sent, it may still be done, and the error says so.
    pub fn cancel(&mut self, now: Time, ticket: Ticket) {
        self.advance(now);
        self.core.cancel(now, ticket);
        let is_its = |it: &Pending| matches!(it.purpose, Purpose::User(its, ..) if its == ticket);
        let number = self.pending.iter().find(|(_, it)| is_its(it)).map(|(number, _)| *number);
        if let Some(it) = number.and_then(|number| self.pending.remove(&number)) {
            let is_unknown = it.is_unknown_now();
            let unknown = Error::Unknown(Obstacle::Cancelled);
            let error = if is_unknown { unknown } else { Error::Cancelled };
            self.answers.push_back((ticket, Err(error)));
        }
    }

    /// Ends the lease, so that servers can forget its completion records. Updates that have not
    /// been sent need another lease.
    pub fn close(&mut self, now: Time) {
        self.advance(now);
        if let Some(lease) = self.lease.take() {
            self.core.lease_ended(lease.number);
            let error = Error::TimedOut(Obstacle::NoCoordinator);
            self.start(Purpose::CloseLease(lease.number), now + CLOSING, error);
        }
    }

    /// Whether nothing is pending, not even the end of a lease.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let counts =
            |it: &Pending| matches!(it.purpose, Purpose::User(..) | Purpose::CloseLease(_));
        self.core.is_idle() && !self.pending.values().any(counts)
    }

    /// Returns the results of the next batch that has ended, if there is one.
    pub fn next_done(&mut self) -> Option<(Ticket, Results)> {
        self.core.next_done()
    }

    /// Returns the next reply to a question, if there is one.
    pub fn next_answer(&mut self) -> Option<(Ticket, Result<Reply, Error>)> {
        self.answers.pop_front()
    }

    /// Whether [`Session::next_done`] or [`Session::next_answer`] has a result.
    #[must_use]
    pub fn has_done(&self) -> bool {
        self.core.has_done() || !self.answers.is_empty()
    }

    /// Replaces the map: see [`Core::learn`].
    pub fn learn(&mut self, now: Time, map: TabletMap) {
        self.core.learn(now, map);
    }

    /// Returns the next action that the session requests, if there is one.
    pub fn next_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            let error = Error::TimedOut(Obstacle::NoCoordinator);
            match self.core.next_output() {
                Some(Output::Learn) if self.coordinators.count() > 0 => {
                    if !self.has(|it| *it == Purpose::Learn) {
                        self.start(Purpose::Learn, Time::NEVER, error);
                    }
                    continue;
                }
                Some(output) => return Some(output),
                None => {}
            }
            if self.core.wants_lease() && self.coordinators.count() == 0 {
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

    /// Returns the latest time for the next call of [`Session::tick`].
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

    /// Notes the time: ends overdue questions and operations, and renews the lease.
    pub fn tick(&mut self, now: Time) {
        self.advance(now);
        self.core.tick(now);
        let late: Vec<Number> =
            self.pending.iter().filter(|(_, it)| it.deadline <= now).map(|(id, _)| *id).collect();
        for number in late {
            let Some(it) = self.pending.remove(&number) else { continue };
            let is_unknown = it.is_unknown_now();
            if let Purpose::User(ticket, ..) = it.purpose {
                let error =
                    if is_unknown { Error::Unknown(obstacle_of(it.error)) } else { it.error };
                self.answers.push_back((ticket, Err(error)));
            }
        }
        // Requests for a map or a lease are cancelled if no operation needs them any more.
        let (learns, opens) = (!self.core.is_idle(), self.core.wants_lease());
        self.pending.retain(|_, it| match it.purpose {
            Purpose::Learn => learns || matches!(it.state, State::Sent { .. }),
            Purpose::OpenLease => opens || matches!(it.state, State::Sent { .. }),
            _ => true,
        });
    }

    /// Notes the outcome of a call.
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
            NextStep::Ended => {}
            NextStep::Again(wait) => {
                (it.tried, it.strangers) = (0, 0);
                it.state = State::Waiting(now + wait);
                self.pending.insert(number, it);
            }
            NextStep::Elsewhere => {
                if let Some(asked) = via {
                    self.coordinators.pass_over(asked);
                }
                it.tried += 1;
                let is_round = via.is_none() || self.coordinators.is_round(it.tried);
                let wait = if is_round { self.backoff(&mut it) } else { Duration::ZERO };
                if is_round {
                    // No coordinator answers as the leader: their addresses may have changed.
                    self.coordinators.resolve_again();
                }
                it.state = State::Waiting(now + wait);
                self.pending.insert(number, it);
            }
        }
    }

    /// Notes the time, and ends or renews the lease accordingly.
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
            may_move: false,
            found_version: false,
            error,
            table: None,
            pages: None,
        };
        self.pending.insert(number, it);
    }

    /// Sends the questions whose time has come.
    fn send_due(&mut self) {
        self.coordinators.refresh();
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
            let via = server.is_none().then_some(self.coordinators.assumed());
            let Some(to) = server.or_else(|| self.coordinators.address()) else { continue };
            it.state = State::Sent { at: self.now, via };
            let left = it.deadline.since(self.now);
            let timeout = patience.min(left - left / 16);
            self.calls.insert(call, number);
            self.outputs.push_back(Output::Call { number: call, to, opcode, body, timeout });
        }
    }

    /// Handles the answer to a question.
    fn understood(&mut self, it: &mut Pending, body: &[u8], sent: Time) -> NextStep {
        let now = self.now;
        match it.purpose.clone() {
            Purpose::Learn => match self.map_of(it, body) {
                Some(map) => {
                    self.core.told(now, sent, &map);
                    NextStep::Ended
                }
                None => NextStep::Elsewhere,
            },
            Purpose::OpenLease => match control::of_body::<LeaseOpened>(body) {
                Some(opened) if opened.lease != LeaseId::NONE => {
                    if *self.cluster.get_or_insert(opened.cluster) != opened.cluster {
                        self.core.lease_refused(now, Error::Refused(Status::WrongCluster));
                        return NextStep::Ended;
                    }
                    let lasts = Duration::from_millis(opened.ttl_ms.max(1));
                    if now.since(sent) > lasts {
                        // The answer took longer than the lease lasts, so the lease has already
                        // ended.
                        return NextStep::Again(self.backoff(it));
                    }
                    let (number, renew_at) = (opened.lease, sent + lasts / 3);
                    self.lease = Some(Lease { number, lasts, renew_at });
                    self.core.lease_opened(now, number);
                    NextStep::Ended
                }
                _ => {
                    self.core.lease_refused(now, Error::Incomprehensible);
                    NextStep::Ended
                }
            },
            Purpose::RenewLease(number) => {
                if let Some(lease) = self.lease.as_mut().filter(|lease| lease.number == number) {
                    lease.renew_at = sent + lease.lasts / 3;
                }
                NextStep::Ended
            }
            Purpose::CloseLease(_) => NextStep::Ended,
            Purpose::User(ticket, question, step) => {
                self.understood_user(it, (ticket, question, step), body, sent)
            }
        }
    }

    fn understood_user(
        &mut self,
        it: &mut Pending,
        (ticket, question, step): (Ticket, Question, Step),
        body: &[u8],
        sent: Time,
    ) -> NextStep {
        let name = question.table().unwrap_or_default().to_owned();
        let result = match step {
            Step::Ask if matches!(question, Question::Map(_) | Question::News) => match self
                .map_of(it, body)
            {
                Some(map) => {
                    let is_whole = matches!(question, Question::Map(None)) && map.more.is_none();
                    if is_whole || matches!(question, Question::News) {
                        self.core.told(self.now, sent, &map);
                    }
                    Ok(Reply::Map(map))
                }
                None => return NextStep::Elsewhere,
            },
            Step::Ask => question.understand(body),
            Step::Page(from) => {
                let Some(page) = control::of_body::<Map>(body) else {
                    it.error = Error::Incomprehensible;
                    return NextStep::Elsewhere;
                };
                join(it.pages.take(), page, from)
            }
            Step::Before => match self.prepared(it, question, body) {
                Some(Ok(question)) => {
                    it.purpose = Purpose::User(ticket, question, Step::Ask);
                    return NextStep::Again(Duration::ZERO);
                }
                Some(Err(error)) => {
                    self.answers.push_back((ticket, Err(error)));
                    return NextStep::Ended;
                }
                None => return NextStep::Elsewhere,
            },
            Step::Look(gone) => {
                let Some(map) = self.map_of(it, body) else { return NextStep::Elsewhere };
                match (gone, table_of(map, &name)) {
                    (Some(gone), found) if found.as_ref().is_none_or(|it| it.id != gone) => {
                        Ok(Reply::Done)
                    }
                    (Some(_), _) => return NextStep::Again(self.backoff(it)),
                    (None, Some(table)) if is_served(&table) => Ok(Reply::Table(table)),
                    (None, found) => {
                        match found {
                            Some(_) => it.error = Error::Refused(Status::InProgress),
                            None => it.purpose = Purpose::User(ticket, question, Step::Ask),
                        }
                        return NextStep::Again(self.backoff(it));
                    }
                }
            }
        };
        if let Ok(reply) = &result
            && let Some(from) = map_in(reply).and_then(|map| map.more)
        {
            it.pages = result.ok();
            it.purpose = Purpose::User(ticket, question, Step::Page(from));
            return NextStep::Again(Duration::ZERO);
        }
        self.answers.push_back((ticket, result));
        NextStep::Ended
    }

    /// Completes a question with the answer to [`Step::Before`]. `None` if another coordinator must
    /// be asked.
    fn prepared(
        &mut self,
        it: &mut Pending,
        question: Question,
        body: &[u8],
    ) -> Option<Result<Question, Error>> {
        Some(match question {
            Question::DropTable(wish) => {
                let map = self.map_of(it, body)?;
                let is_meant = |found: &TableId| wish.id.is_none_or(|id| id == *found);
                it.table = id_of(&map, &wish.name).filter(is_meant);
                match it.table {
                    Some(_) => Ok(Question::DropTable(DropTable { id: it.table, ..wish })),
                    None => Err(Error::Refused(Status::NoSuchTable)),
                }
            }
            Question::ChangeSettings(changes) => {
                let Some(status) = control::of_body::<ClusterStatus>(body) else {
                    it.error = Error::Incomprehensible;
                    return None;
                };
                it.found_version = true;
                let version = status.settings_version;
                Ok(Question::ChangeSettings(ChangeSettings { version, ..changes }))
            }
            question => Ok(question),
        })
    }

    /// Decodes a map. `None` if it is older than the newest one seen.
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

    /// Handles the error of a call.
    fn refused(&mut self, it: &mut Pending, error: CallError) -> NextStep {
        if matches!(error, CallError::Broken | CallError::Late) {
            it.strangers = 0;
            return self.unanswered(it);
        }
        let (status, hint) = match error {
            CallError::Refused { status, hint, .. } => (status, hint),
            error if error.is_of_another_cluster() => return self.met_stranger(it),
            CallError::Unreachable(_) => {
                it.strangers = 0;
                return NextStep::Elsewhere;
            }
            CallError::Congested => return NextStep::Again(self.backoff(it)),
            CallError::TooLong => return self.fail(it, Error::Refused(Status::Malformed)),
            _ => return self.fail(it, Error::Incomprehensible),
        };
        let looks = Step::Look(None);
        match (&mut it.purpose, status) {
            (_, Status::NotLeader) => {
                it.strangers = 0;
                return NextStep::Elsewhere;
            }
            (_, Status::LeadershipLost | Status::DeadlineExceeded) => {
                it.strangers = 0;
                it.error = Error::TimedOut(Obstacle::NoLeader);
                return self.unanswered(it);
            }
            (Purpose::User(_, Question::CreateTable(_), step), Status::InProgress) => {
                // The table exists, but its masters do not serve all of it yet.
                (it.may_be_done, *step) = (true, looks);
            }
            (Purpose::User(_, Question::CreateTable(_), step), Status::TableExists)
                if it.may_be_done =>
            {
                *step = looks;
                return NextStep::Again(Duration::ZERO);
            }
            (Purpose::User(_, Question::ChangeSettings(changes), step), Status::Outdated)
                if it.found_version =>
            {
                // No copy of the former request can be done any more. The user asked for these
                // settings, and not for a comparison with the former ones.
                (changes.version, *step) = (None, Step::Before);
                return NextStep::Again(self.backoff(it));
            }
            (Purpose::User(_, Question::MigrateTablet(_), _), Status::InProgress) => {
                it.may_move = true;
            }
            _ => {}
        }
        match status.next() {
            Next::Wait => {
                it.error = Error::Refused(status);
                NextStep::Again(Duration::from_micros(u64::from(hint)) + self.backoff(it))
            }
            Next::Refresh => NextStep::Elsewhere,
            Next::Take | Next::GiveUp => self.fail(it, Error::Refused(status)),
        }
    }

    /// Handles an answer from a coordinator or server of another cluster.
    fn met_stranger(&mut self, it: &mut Pending) -> NextStep {
        it.strangers += 1;
        let is_user = matches!(it.purpose, Purpose::User(..));
        if is_user && it.strangers >= self.coordinators.count() {
            // No other coordinator is left to try.
            return self.fail(it, Error::Refused(Status::WrongCluster));
        }
        NextStep::Elsewhere
    }

    /// Handles a request that may have been done without an answer.
    fn unanswered(&mut self, it: &mut Pending) -> NextStep {
        if let Purpose::User(_, question, step) = &mut it.purpose
            && *step == Step::Ask
            && question.is_change()
        {
            it.may_be_done = true;
            if matches!(question, Question::DropTable(_)) {
                *step = Step::Look(it.table);
                // The request may never have been done, so the wait also ends for a question
                // without a deadline.
                it.deadline = it.deadline.min(self.now + LOOKING);
            }
        }
        NextStep::Elsewhere
    }

    /// Handles a final refusal.
    fn fail(&mut self, it: &mut Pending, error: Error) -> NextStep {
        match &it.purpose {
            // Operations wait for the map; they have deadlines.
            Purpose::Learn => NextStep::Again(self.backoff(it)),
            Purpose::OpenLease => {
                self.core.lease_refused(self.now, error);
                NextStep::Ended
            }
            Purpose::RenewLease(number) => {
                let number = *number;
                let ours = self.lease.as_mut().filter(|lease| lease.number == number);
                if error == Error::Refused(Status::LeaseEnded) {
                    self.lease.take_if(|lease| lease.number == number);
                    self.core.lease_ended(number);
                } else if let Some(lease) = ours {
                    // Shards say whether it has ended.
                    lease.renew_at = self.now + lease.lasts / 3;
                }
                NextStep::Ended
            }
            Purpose::CloseLease(_) => NextStep::Ended,
            Purpose::User(ticket, question, _) => {
                // *Not migrated* says that the migration in progress has ended, and how.
                let may_move = it.may_move && error != Error::Refused(Status::NotMigrated);
                let is_unknown = (it.may_be_done || may_move) && question.is_change();
                let error = if is_unknown { Error::Unknown(obstacle_of(it.error)) } else { error };
                self.answers.push_back((*ticket, Err(error)));
                NextStep::Ended
            }
        }
    }

    /// Returns the next wait: twice as long after every failure, with a random part.
    fn backoff(&mut self, it: &mut Pending) -> Duration {
        let most = BACKOFF.limit(it.failures);
        it.failures += 1;
        most / 2 + Duration::from_nanos(self.random.below(most.as_nanos() as u64 / 2))
    }
}

/// The obstacle of a question that ends with this error.
fn obstacle_of(error: Error) -> Obstacle {
    match error {
        Error::TimedOut(obstacle) => obstacle,
        Error::Refused(status) => Obstacle::of_status(status),
        _ => Obstacle::NoCoordinator,
    }
}

/// The next step for a question after an answer.
enum NextStep {
    Ended,
    /// Send it again to the same coordinator after a wait.
    Again(Duration),
    /// Send it to another coordinator.
    Elsewhere,
}

/// Returns the map in a reply.
fn map_in(reply: &Reply) -> Option<&Map> {
    match reply {
        Reply::Map(map) => Some(map),
        Reply::Cluster(status) => Some(&status.map),
        _ => None,
    }
}

/// Returns the request for a purpose, and how long to wait for its answer.
fn request(purpose: &Purpose, core: &Core) -> (Opcode, Vec<u8>, Duration) {
    let lease = |lease: LeaseId| control::to_body(&control::Lease { lease });
    match purpose {
        Purpose::Learn => (Opcode::Map, control::to_body(&core.map_request()), PATIENCE),
        Purpose::OpenLease => (Opcode::OpenLease, control::to_body(&Empty {}), PATIENCE),
        Purpose::RenewLease(number) => (Opcode::RenewLease, lease(*number), PATIENCE),
        Purpose::CloseLease(number) => (Opcode::CloseLease, lease(*number), PATIENCE),
        Purpose::User(_, question, Step::Ask) => {
            (question.opcode(), question.body(), question.patience())
        }
        Purpose::User(_, Question::ChangeSettings(_), Step::Before) => {
            (Opcode::ClusterStatus, control::to_body(&Empty {}), PATIENCE)
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
