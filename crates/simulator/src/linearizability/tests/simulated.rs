//! A register per key that performs one operation at a time, and clients that overlap, in virtual
//! time: their history is linearizable.

use super::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
pub(super) use thunderhead_runtime::Random;

/// The clients' work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) seed: u64,
    pub(super) operations: usize,
    pub(super) clients: usize,
    pub(super) keys: u64,
    /// The operations of a hundred that go to key 0 regardless of the number of keys.
    pub(super) hot: u64,
    /// The operations of a thousand that get no answer, except on key 1.
    pub(super) unanswered: u64,
    /// The number of different values to write.
    pub(super) values: u64,
    /// The number of different amounts to add.
    pub(super) amounts: u64,
    /// The largest step between consecutive versions.
    pub(super) jump: u64,
}

impl Default for Workload {
    fn default() -> Workload {
        Workload {
            seed: 1,
            operations: 100_000,
            clients: 16,
            keys: 40,
            hot: 30,
            unanswered: 10,
            values: 1 << 40,
            amounts: 3,
            jump: 3,
        }
    }
}

/// The fate of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    /// The request never reaches the register.
    RequestLost,
    /// It happens, soon or late, and the client gets no answer.
    AnswerLost,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Call(usize),
    Act(usize),
}

/// A key: its newest version so far, and its value while it exists.
#[derive(Clone, Copy, Default)]
struct Register {
    last: Version,
    value: Option<u64>,
}

impl Register {
    fn version(self) -> Version {
        if self.value.is_some() { self.last } else { Version::NONE }
    }

    fn act(&mut self, action: Action, next: Version) -> Outcome {
        let current = self.version();
        let holds = match action {
            Action::Write { condition, .. } | Action::Delete { condition } => match condition {
                Condition::Always => true,
                Condition::Absent => current == Version::NONE,
                Condition::Present => current != Version::NONE,
                Condition::VersionIs(version) => current == version,
            },
            Action::Read | Action::Increment { .. } => true,
        };
        let value = match action {
            _ if !holds => return Outcome::Refused(current),
            Action::Read => {
                return self.value.map_or(Outcome::Absent, |it| Outcome::Found(current, it));
            }
            Action::Delete { .. } => {
                let existed = self.value.take().is_some();
                return if existed { Outcome::Deleted(current) } else { Outcome::Absent };
            }
            Action::Write { value, .. } => value,
            Action::Increment { by } => self.value.unwrap_or(0).wrapping_add(by),
        };
        *self = Register { last: next, value: Some(value) };
        Outcome::Done(next, value)
    }
}

struct Simulation {
    workload: Workload,
    random: Random,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// By key; key 0 is the hot one, and on key 1 everything is answered.
    registers: Vec<Register>,
    history: Vec<Operation<u64>>,
    fates: Vec<(Fate, usize)>,
}

/// Returns the history of a correct register's clients.
pub(super) fn record(workload: Workload) -> Vec<Operation<u64>> {
    let mut simulation = Simulation {
        workload,
        random: Random::from_seed(workload.seed),
        events: BinaryHeap::new(),
        registers: vec![Register::default(); workload.keys as usize],
        history: Vec::new(),
        fates: Vec::new(),
    };
    for client in 0..workload.clients {
        let start = simulation.random.below(20);
        simulation.happens(start, Event::Call(client));
    }
    while let Some(Reverse((now, _, event))) = simulation.events.pop() {
        match event {
            Event::Call(client) => simulation.call(now, client),
            Event::Act(at) => simulation.act(now, at),
        }
    }
    simulation.history
}

impl Simulation {
    fn happens(&mut self, time: u64, event: Event) {
        // Events of the same time happen in any order.
        let order = self.random.number();
        self.events.push(Reverse((time, order, event)));
    }

    fn call(&mut self, now: u64, client: usize) {
        if self.history.len() >= self.workload.operations {
            return;
        }
        let is_hot = self.random.below(100) < self.workload.hot;
        let key = if is_hot { 0 } else { self.random.below(self.workload.keys) };
        let action = self.action(self.registers[key as usize]);
        let is_answered = key == 1 || self.random.below(1000) >= self.workload.unanswered;
        let fate = match self.random.below(3) {
            _ if is_answered => Fate::Answered,
            0 => Fate::RequestLost,
            _ => Fate::AnswerLost,
        };
        let at = self.history.len();
        self.fates.push((fate, client));
        let outcome = Outcome::Unknown;
        self.history.push(Operation { key, called: now, answered: now, action, outcome });
        // Some operations take much longer than others, sometimes because their client does not
        // wait.
        let slowness = if self.random.below(50) == 0 { 500 } else { 20 };
        let acts = now + self.random.below(slowness);
        if fate != Fate::RequestLost {
            self.happens(acts, Event::Act(at));
        }
        if fate != Fate::Answered {
            let gives_up = now + 50 + self.random.below(50);
            self.happens(gives_up, Event::Call(client));
        }
    }

    fn act(&mut self, now: u64, at: usize) {
        let Operation { key, action, .. } = self.history[at];
        let register = &mut self.registers[key as usize];
        let next = Version(register.last.0 + 1 + self.random.below(self.workload.jump));
        let outcome = register.act(action, next);
        let (fate, client) = self.fates[at];
        if fate == Fate::Answered {
            let answered = now + self.random.below(20);
            self.history[at].answered = answered;
            self.history[at].outcome = outcome;
            let next_call = answered + self.random.below(3);
            self.happens(next_call, Event::Call(client));
        }
    }

    fn action(&mut self, register: Register) -> Action {
        let condition = match self.random.below(8) {
            0 => Condition::Absent,
            1 => Condition::Present,
            // A client knows a version that was current some time ago.
            2..4 => Condition::VersionIs(Version(
                register.last.0 - self.random.below(2).min(register.last.0),
            )),
            _ => Condition::Always,
        };
        match self.random.below(20) {
            0..10 => Action::Read,
            10..14 => write_if(condition, self.random.below(self.workload.values)),
            14..16 => Action::Delete { condition },
            _ => Action::Increment { by: 1 + self.random.below(self.workload.amounts) },
        }
    }
}
