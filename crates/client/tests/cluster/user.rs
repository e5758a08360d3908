//! Simulated users that do one operation after another, the shards that serve them, and the verdict
//! on their history.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_client::{
    Action, Answer, CallNumber, Error, Number, Operation, Output, Session, TabletMap, Ticket,
};
use thunderhead_log::{
    Condition, KeyHash, Log, LogId, Memory, Options as LogOptions, Recorder, Replay, SegmentId,
    TableId, TabletRange, Version,
};
use thunderhead_master::Shard;
use thunderhead_rpc::{CallError, CallId, Component, Context, OwnerId, Request, Service};
use thunderhead_runtime::timers::TimerId;
use thunderhead_runtime::{Process, Random, Time};
use thunderhead_simulator::linearizability::{self, Action as Judged, Operation as Seen, Outcome};
use thunderhead_simulator::{Boot, Simulation};
use thunderhead_testkit::serve;

pub(crate) const TABLE: TableId = TableId(3);
const HALF: u64 = u64::MAX / 2;

/// The halves of the table.
pub(crate) fn ranges() -> [TabletRange; 2] {
    let range =
        |first, last| TabletRange { table: TABLE, first: KeyHash(first), last: KeyHash(last) };
    [range(0, HALF), range(HALF + 1, u64::MAX)]
}

/// A shard that keeps its log across crashes, inside a service of the test's choice.
pub(crate) fn shard_node<S: Service + 'static>(
    boot: Boot,
    ranges: &[TabletRange],
    backup: &RefCell<Recorder>,
    service: impl FnOnce(Shard) -> S,
) -> Box<dyn Process> {
    let memory = Memory::with_seglets(4 << 20, 4096).unwrap();
    let options = LogOptions { segment_bytes: 32 << 10, ..LogOptions::default() };
    let replicas = Recorder::new();
    let id = LogId(1 + boot.world.clock.now().0);
    let mut log = Log::new(&memory, id, options, Box::new(replicas.clone())).unwrap();
    let tablets = ranges.iter().map(|range| (*range, SegmentId::NONE));
    let mut replay = Replay::new(&mut log, tablets).unwrap();
    for replica in backup.borrow().replicas(usize::MAX).into_values() {
        if !replica.bytes.is_empty() {
            replay.segment(&replica.bytes).unwrap();
        }
    }
    replay.finish().unwrap();
    log.turn();
    backup.replace(replicas);
    serve(boot, service(Shard::new(log)))
}

/// The record of all users of a simulation.
#[derive(Clone)]
pub(crate) struct Seeing {
    pub(crate) history: Rc<RefCell<Vec<Seen<u64>>>>,
    pub(crate) time: Rc<dyn Fn() -> u64>,
    working: Rc<Cell<u64>>,
    overdue: Rc<Cell<u64>>,
}

impl Seeing {
    pub(crate) fn of(simulation: &Simulation) -> Seeing {
        let truth = simulation.truth();
        let time: Rc<dyn Fn() -> u64> = Rc::new(move || truth.get());
        Seeing { history: Rc::default(), time, working: Rc::default(), overdue: Rc::default() }
    }
}

/// The verdict on the users' history.
pub(crate) struct Verdict {
    pub(crate) answered: usize,
    pub(crate) unknown: usize,
    pub(crate) overdue: u64,
}

pub(crate) fn judge(seeing: &Seeing) -> Result<Verdict, String> {
    let working = seeing.working.get();
    if working > 0 {
        return Err(format!("{working} users wait for ever"));
    }
    let history = seeing.history.borrow();
    linearizability::check(&history).map_err(|violation| violation.to_string())?;
    let unknown = history.iter().filter(|it| it.outcome == Outcome::Unknown).count();
    let answered = history.len() - unknown;
    Ok(Verdict { answered, unknown, overdue: seeing.overdue.get() })
}

/// A user that begins operations, waits for their results, and begins the next ones.
pub(crate) struct User {
    pub(crate) session: Session,
    random: Random,
    /// The maps for a session without a coordinator: the right one and a wrong one.
    pub(crate) maps: Option<[TabletMap; 2]>,
    seeing: Seeing,
    pub(crate) left: u64,
    /// How long it pauses between two operations, on average.
    pub(crate) thinks: Duration,
    pub(crate) deadline: Duration,
    calls: BTreeMap<CallId, CallNumber>,
    asked: Option<(Ticket, Vec<usize>, Time)>,
    seen: Version,
    ticks: Option<TimerId>,
}

/// The owners of calls and timers.
const CALLS: OwnerId = OwnerId::only(Component::Node);
const THINK: OwnerId = OwnerId::new(Component::Node, 1);
const TICK: OwnerId = OwnerId::new(Component::Node, 2);
const MAP: OwnerId = OwnerId::new(Component::Node, 3);

impl User {
    pub(crate) fn new(session: Session, random: Random, seeing: Seeing) -> User {
        seeing.working.set(seeing.working.get() + 1);
        User {
            session,
            random,
            maps: None,
            seeing,
            left: 30,
            thinks: Duration::from_millis(5),
            deadline: Duration::from_millis(700),
            calls: BTreeMap::new(),
            asked: None,
            seen: Version::NONE,
            ticks: None,
        }
    }

    fn ask(&mut self, context: &mut Context<'_>) {
        if self.left == 0 {
            self.session.close(context.now());
            return self.seeing.working.set(self.seeing.working.get() - 1);
        }
        self.left -= 1;
        let count = if self.random.chance(0.5) { 1 } else { self.random.within(2..6) };
        // Each key occurs once in a batch, because the operations of a batch have no order among
        // them.
        let first = self.random.below(8);
        let mut numbers = Vec::new();
        let mut operations = Vec::new();
        for key in (first..first + count).map(|key| key % 8) {
            let (judged, action, condition) = self.choose();
            let called = (self.seeing.time)();
            let outcome = Outcome::Unknown;
            let mut history = self.seeing.history.borrow_mut();
            numbers.push(history.len());
            history.push(Seen { key, called, answered: called, action: judged, outcome });
            let key = key.to_be_bytes().to_vec();
            operations.push(Operation { table: TABLE, key, condition, action });
        }
        let (now, until) = (context.now(), context.now() + self.deadline);
        let ticket = self.session.begin(now, operations, until);
        self.asked = Some((ticket, numbers, until));
    }

    fn choose(&mut self) -> (Judged, Action, Condition) {
        use linearizability::Condition as Its;
        let (judged, condition) = match self.random.below(8) {
            0 => (Its::Absent, Condition::Absent),
            1 => (Its::Present, Condition::Present),
            2 => {
                let version = linearizability::Version(self.seen.0);
                (Its::VersionIs(version), Condition::VersionIs(self.seen))
            }
            _ => (Its::Always, Condition::Always),
        };
        match self.random.below(8) {
            0..2 => (Judged::Read, Action::Read, Condition::Always),
            2 => {
                let value = self.random.below(1 << 48) | linearizability::TEXT;
                let action = Action::Write(value.to_le_bytes().to_vec());
                (Judged::Write { value, condition: judged }, action, condition)
            }
            3 => {
                let value = self.random.below(1 << 48);
                let action = Action::WriteNumber(Number::Integer(value as i64));
                (Judged::Write { value, condition: judged }, action, condition)
            }
            4 => (Judged::Delete { condition: judged }, Action::Delete, condition),
            _ => {
                let by = 1 + self.random.below(1000);
                let action = Action::Increment(Number::Integer(by as i64));
                (Judged::Increment { by }, action, Condition::Always)
            }
        }
    }

    fn pump(&mut self, context: &mut Context<'_>) {
        while let Some(output) = self.session.next_output() {
            match output {
                Output::Call { number, to, opcode, body, timeout } => {
                    let id = context.call(CALLS, to, opcode, &[&body], Some(timeout));
                    self.calls.insert(id, number);
                }
                Output::Learn => {
                    assert!(self.maps.is_some(), "a session with coordinators asks them");
                    let wait = Duration::from_micros(self.random.below(20_000));
                    context.set_timer(context.now() + wait, MAP);
                }
            }
        }
        while let Some((ticket, results)) = self.session.next_done() {
            let Some((asked, numbers, deadline)) = self.asked.take() else { panic!("not asked") };
            assert_eq!((asked, numbers.len()), (ticket, results.len()));
            // Machines pause at times, and a core cannot notice that.
            if context.now().since(deadline) > Duration::from_millis(500) {
                self.seeing.overdue.set(self.seeing.overdue.get() + 1);
            }
            for (number, result) in numbers.iter().zip(results) {
                self.record(*number, result);
            }
            let wait =
                Duration::from_nanos(self.random.exponential(self.thinks.as_nanos() as f64) as u64);
            context.set_timer(context.now() + wait, THINK);
        }
        if let Some(timer) = self.ticks.take() {
            context.cancel_timer(timer);
        }
        if let Some(at) = self.session.deadline() {
            let at = at.max(context.now() + Duration::from_micros(1));
            self.ticks = Some(context.set_timer(at, TICK));
        }
    }

    fn record(&mut self, number: usize, result: Result<Answer, Error>) {
        let version = |version: Version| linearizability::Version(version.0);
        let mut history = self.seeing.history.borrow_mut();
        let Some(seen) = history.get_mut(number) else { panic!("not asked") };
        seen.outcome = match result {
            Ok(Answer::Found { version: found, value }) => {
                self.seen = found;
                let value = u64::from_le_bytes(value.try_into().unwrap());
                Outcome::Found(version(found), value)
            }
            Ok(Answer::Absent) => Outcome::Absent,
            Ok(Answer::Written(written)) => {
                let Judged::Write { value, .. } = seen.action else { panic!("{seen:?}") };
                Outcome::Done(version(written), value)
            }
            Ok(Answer::Deleted(deleted)) => Outcome::Deleted(version(deleted)),
            Ok(Answer::Sum { version: written, number: Number::Integer(sum) }) => {
                Outcome::Done(version(written), sum as u64)
            }
            Ok(Answer::Sum { .. } | Answer::Lives { .. } | Answer::Page { .. }) => {
                panic!("an answer of another kind")
            }
            Err(
                Error::ConditionFailed { version: found } | Error::NotANumber { version: found },
            ) => {
                self.seen = found;
                Outcome::Refused(version(found))
            }
            Err(Error::Unknown(_)) => return,
            // The error says that nothing was done, so the history must be linearizable without it.
            // Reads are left out.
            Err(Error::TimedOut(_)) => {
                seen.action = Judged::Read;
                return;
            }
            Err(error) => panic!("{error}"),
        };
        seen.answered = (self.seeing.time)();
    }
}

impl Service for User {
    fn start(&mut self, context: &mut Context<'_>) {
        context.set_timer(context.now() + Duration::from_millis(1), THINK);
    }

    fn request(&mut self, _: &mut Context<'_>, _: Request<'_>) {}

    fn reply(
        &mut self,
        context: &mut Context<'_>,
        _: OwnerId,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        if let Some(number) = self.calls.remove(&call) {
            self.session.answered(context.now(), number, outcome);
        }
        self.pump(context);
    }

    fn timer(&mut self, context: &mut Context<'_>, owner: OwnerId) {
        let now = context.now();
        match owner {
            THINK => self.ask(context),
            MAP => {
                let wrong = usize::from(self.random.chance(0.3));
                if let Some(maps) = &self.maps {
                    self.session.learn(now, maps[wrong].clone());
                }
            }
            _ => self.session.tick(now),
        }
        self.pump(context);
    }
}
