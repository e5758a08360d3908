//! Clients' cores in the simulator, against two shards that have a half of the table each, among
//! lost, repeated and late messages, pauses, crashes, and maps that are wrong. What users saw must be
//! linearizable, every update done once, and every operation ends by its deadline.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_client::{
    Action, Answer, CallNumber, Core, Error, Number, Operation, Output, TabletMap, Ticket,
};
use thunderhead_log::{
    Condition, KeyHash, Log, LogId, Memory, Options as LogOptions, Recorder, Replay, SegmentId,
    TableId, TabletRange, Version,
};
use thunderhead_master::Shard;
use thunderhead_net::sim::{Link, address};
use thunderhead_rpc::{CallError, CallId, Context, Node, Request, Service};
use thunderhead_runtime::{Process, Random, Time};
use thunderhead_simulator::linearizability::{self, Action as Judged, Operation as Seen, Outcome};
use thunderhead_simulator::{Boot, Options, Simulation, swarm};

const PORT: u16 = 7200;
const TABLE: TableId = TableId(3);
const HALF: u64 = u64::MAX / 2;
const DEADLINE: Duration = Duration::from_millis(700);

fn ranges() -> [TabletRange; 2] {
    let range =
        |first, last| TabletRange { table: TABLE, first: KeyHash(first), last: KeyHash(last) };
    [range(0, HALF), range(HALF + 1, u64::MAX)]
}

fn shard_node(boot: Boot, range: TabletRange, backup: &RefCell<Recorder>) -> Box<dyn Process> {
    let memory = Memory::with_seglets(4 << 20, 4096).unwrap();
    let options = LogOptions { segment_bytes: 32 << 10, ..LogOptions::default() };
    let replicas = Recorder::new();
    let id = LogId(1 + boot.world.clock.now().0);
    let mut log = Log::new(&memory, id, options, Box::new(replicas.clone())).unwrap();
    let mut replay = Replay::new(&mut log, [(range, SegmentId::NONE)]).unwrap();
    for replica in backup.borrow().replicas(usize::MAX).into_values() {
        if !replica.bytes.is_empty() {
            replay.segment(&replica.bytes).unwrap();
        }
    }
    replay.finish().unwrap();
    log.turn();
    backup.replace(replicas);
    let mut node = Node::new(boot.world, boot.transport, Shard::new(log));
    node.listen(SocketAddr::new(boot.address, PORT)).unwrap();
    Box::new(node)
}

type History = Rc<RefCell<Vec<Seen<u64>>>>;

/// A user who asks for something, waits for it, and asks for the next.
struct User {
    core: Core,
    random: Random,
    maps: [TabletMap; 2],
    history: History,
    time: Rc<dyn Fn() -> u64>,
    working: Rc<Cell<u64>>,
    left: u64,
    calls: BTreeMap<CallId, CallNumber>,
    asked: Option<(Ticket, Vec<usize>, Time)>,
    seen: Version,
    overdue: Rc<Cell<u64>>,
}

const THINK: u64 = 1;
const TICK: u64 = 2;
const MAP: u64 = 3;

impl User {
    fn ask(&mut self, context: &mut Context<'_>) {
        if self.left == 0 {
            return self.working.set(self.working.get() - 1);
        }
        self.left -= 1;
        let count = if self.random.chance(0.5) { 1 } else { self.random.within(2..6) };
        // One operation for each key: those of a batch have no order among them.
        let first = self.random.below(8);
        let mut numbers = Vec::new();
        let mut operations = Vec::new();
        for key in (first..first + count).map(|key| key % 8) {
            let (judged, action, condition) = self.choose();
            let called = (self.time)();
            let outcome = Outcome::Unknown;
            let mut history = self.history.borrow_mut();
            numbers.push(history.len());
            history.push(Seen { key, called, answered: called, action: judged, outcome });
            let key = key.to_be_bytes().to_vec();
            operations.push(Operation { table: TABLE, key, condition, action });
        }
        let now = context.now();
        let ticket = self.core.begin(now, operations, now + DEADLINE);
        self.asked = Some((ticket, numbers, now + DEADLINE));
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
            2..4 => {
                let value = self.random.below(1 << 48);
                let action = Action::Write(value.to_le_bytes().to_vec());
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
        while let Some(output) = self.core.next_output() {
            match output {
                Output::Call { number, to, opcode, body, timeout } => {
                    let id = context.call(to, opcode, &[&body], Some(timeout));
                    self.calls.insert(id, number);
                }
                Output::Learn => {
                    let wait = Duration::from_micros(self.random.below(20_000));
                    context.set_timer(context.now() + wait, MAP);
                }
            }
        }
        while let Some((ticket, results)) = self.core.next_done() {
            let Some((asked, numbers, deadline)) = self.asked.take() else { panic!("not asked") };
            assert_eq!((asked, numbers.len()), (ticket, results.len()));
            // Machines stand still at times; a core cannot know that.
            if context.now().since(deadline) > Duration::from_millis(500) {
                self.overdue.set(self.overdue.get() + 1);
            }
            for (number, result) in numbers.iter().zip(results) {
                self.record(*number, result);
            }
            let wait = Duration::from_nanos(self.random.exponential(5e6) as u64);
            context.set_timer(context.now() + wait, THINK);
        }
        if let Some(at) = self.core.deadline() {
            context.set_timer(at.max(context.now() + Duration::from_micros(1)), TICK);
        }
    }

    fn record(&mut self, number: usize, result: Result<Answer, Error>) {
        let version = |version: Version| linearizability::Version(version.0);
        let mut history = self.history.borrow_mut();
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
            Ok(Answer::Sum { .. } | Answer::Page { .. }) => panic!("an answer of another kind"),
            Err(Error::ConditionFailed { version: found }) => {
                self.seen = found;
                Outcome::Refused(version(found))
            }
            Err(Error::Unknown) => return,
            // It says that nothing was done: the judge must not need it. A read is nothing.
            Err(Error::TimedOut(_)) => {
                seen.action = Judged::Read;
                return;
            }
            Err(error) => panic!("{error}"),
        };
        seen.answered = (self.time)();
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
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        if let Some(number) = self.calls.remove(&call) {
            self.core.answered(context.now(), number, outcome);
        }
        self.pump(context);
    }

    fn timer(&mut self, context: &mut Context<'_>, number: u64) {
        let now = context.now();
        match number {
            THINK => self.ask(context),
            MAP => {
                let map = self.maps[usize::from(self.random.chance(0.3))].clone();
                self.core.learn(now, map);
            }
            _ => self.core.tick(now),
        }
        self.pump(context);
    }
}

struct Run {
    answered: usize,
    unknown: usize,
    overdue: u64,
}

fn run(seed: u64) -> Result<Run, String> {
    let mut random = Random::from_seed(seed);
    let link = swarm::drawn_link(&mut random);
    let mut simulation = Simulation::new(Options { link, ..Options::calm(seed) });
    let shards: Vec<_> = ranges()
        .into_iter()
        .map(|range| {
            let backup = Rc::new(RefCell::new(Recorder::new()));
            simulation.add_host("shard", move |boot| shard_node(boot, range, &backup))
        })
        .collect();
    let mut maps = [TabletMap::default(), TabletMap::default()];
    for (number, range) in ranges().into_iter().enumerate() {
        let at = |shard: usize| address(simulation.address(shards[shard]), PORT);
        maps[0].insert(range, at(number));
        // Everything is said to be at the first; and of the second half nothing is known at times.
        if number == 0 || random.chance(0.5) {
            maps[1].insert(range, at(0));
        }
    }
    let truth = simulation.truth();
    let time: Rc<dyn Fn() -> u64> = Rc::new(move || truth.get());
    let (history, working, overdue) = (History::default(), Rc::new(Cell::new(0)), Rc::default());
    for number in 0..random.within(1..5) {
        let (history, maps, time) = (Rc::clone(&history), maps.clone(), Rc::clone(&time));
        let (working, overdue) = (Rc::clone(&working), Rc::clone(&overdue));
        simulation.add_host(&format!("user {number}"), move |mut boot| {
            working.set(working.get() + 1);
            let mut random = boot.world.random.split();
            let user = User {
                core: Core::new(1 + random.below(1 << 60), random.split()),
                random,
                maps: maps.clone(),
                history: Rc::clone(&history),
                time: Rc::clone(&time),
                working: Rc::clone(&working),
                left: 30,
                calls: BTreeMap::new(),
                asked: None,
                seen: Version::NONE,
                overdue: Rc::clone(&overdue),
            };
            Box::new(Node::new(boot.world, boot.transport, user))
        });
    }
    let mut at = Duration::ZERO;
    while at < Duration::from_millis(1500) {
        at += Duration::from_nanos(random.exponential(1e8) as u64 + 1);
        let a_while = Duration::from_micros(random.within(100..100_000));
        let shard = shards[usize::from(random.chance(0.5))];
        if random.chance(0.5) {
            simulation.at(at, move |it| it.crash(shard));
            simulation.at(at + a_while, move |it| it.start(shard));
        } else {
            simulation.at(at, move |it| it.pause(shard, a_while));
        }
    }
    simulation.run_until(Duration::from_millis(2500));
    simulation.network().set_all_links(Link::default());
    shards.iter().for_each(|shard| simulation.start(*shard));
    simulation.run_for(Duration::from_secs(40));
    if working.get() > 0 {
        return Err(format!("{} users wait for ever", working.get()));
    }
    let history = history.borrow();
    linearizability::check(&history).map_err(|violation| violation.to_string())?;
    let unknown = history.iter().filter(|it| it.outcome == Outcome::Unknown).count();
    Ok(Run { answered: history.len() - unknown, unknown, overdue: overdue.get() })
}

#[test]
fn users_see_a_linearizable_store_and_get_every_answer_in_time() {
    let (mut answered, mut unknown) = (0, 0);
    for seed in 0..300 {
        let it = run(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(it.overdue, 0, "seed {seed}: operations ended after their deadline");
        answered += it.answered;
        unknown += it.unknown;
    }
    assert!(answered > 20_000, "{answered}");
    assert!(unknown < answered / 20, "{unknown} of {answered} have no answer");
}
