//! Whether a history of operations could have come from one register per key that does one thing
//! at a time.
//!
//! A history is what clients saw: when each operation was called, when its answer came, and what
//! the answer was. It is *linearizable* when each operation can be given a moment between call and
//! answer so that doing them one by one in the order of these moments gives just these answers. An
//! operation without an answer may have happened at any moment after its call, or never.
//!
//! Each key is judged by itself: a history is linearizable if it is so for every key.
//!
//! # The register
//!
//! A key has a version and a value, or does not exist. Every write gives it a version above all
//! that it ever had, also across deletes, but not necessarily the next one. That is what the store
//! promises, and it is what makes judging fast: the answers of writes tell their order.
//!
//! # How it is judged
//!
//! Operations are put in order one after the other. An operation can come next if it was called
//! before the earliest answer among those that are left. Of those that can:
//!
//! - One that only *observes* (a read, a refusal) and fits the present state comes at once: it
//!   changes nothing, so there is no better moment for it.
//! - Of the updates with an answer, only the one with the lowest version can be next.
//! - An update *without* an answer may be next if something that was observed needs it: a value or
//!   version that no answered update explains, or absence. Several that ask for the same are as
//!   good as one.
//! - An observation may be the first to tell the version that such an update got.
//!
//! Where there are several ways to go on, they are tried in turn, and what has failed once is not
//! tried again. A history whose operations were all answered is judged in one pass.

mod register;

use register::{Need, State};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
pub use thunderhead_wire::Version;

/// When an update goes ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    Always,
    /// Only when the key does not exist.
    Absent,
    /// Only when it exists.
    Present,
    /// Only when it has just this version.
    VersionIs(Version),
}

/// What was asked for. Values are numbers: of longer ones, a test records a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The version and value of the key.
    Read,
    /// A new value.
    Write {
        /// The value.
        value: u64,
        /// When it goes ahead.
        condition: Condition,
    },
    /// That the key be gone.
    Delete {
        /// When it goes ahead.
        condition: Condition,
    },
    /// The value plus a number, with wrapping; a key that does not exist counts from 0.
    Increment {
        /// What is added.
        by: u64,
    },
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: it may have happened, may happen yet, or never.
    Unknown,
    /// To a read: this version and value.
    Found(Version, u64),
    /// To a read: there is no such key. To a delete without condition: there was none.
    Absent,
    /// To a write or increment: it got this version, and the key now has this value.
    Done(Version, u64),
    /// To a delete: the object was of this version.
    Deleted(Version),
    /// To an update: its condition does not hold for this version; [`Version::NONE`] when the key
    /// does not exist.
    Refused(Version),
}

/// One operation of a client on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<K> {
    /// The key.
    pub key: K,
    /// When it was called, by a clock that all clients share.
    pub called: u64,
    /// When its answer came; ignored when the outcome is unknown. An operation whose answer came
    /// at the time at which another was called counts as concurrent with it.
    pub answered: u64,
    /// What was asked for.
    pub action: Action,
    /// What was answered.
    pub outcome: Outcome,
}

/// Why a history is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation<K: Debug> {
    /// An answer that does not fit its question, whatever the state.
    #[error("{0:?} has an answer that is none to what was asked")]
    Nonsense(Operation<K>),
    /// Two updates were given the same version.
    #[error("{0:?} and {1:?} were given the same version")]
    SameVersion(Operation<K>, Operation<K>),
    /// No order of the operations explains this answer together with the others.
    #[error("nothing explains the answer to {operation:?}; before it the key was {before}")]
    Unexplained {
        /// The operation that the furthest attempt could not go beyond.
        operation: Operation<K>,
        /// The state it met.
        before: String,
    },
    /// Too many unanswered operations to try every order: not a verdict.
    #[error("gave up on key {0:?} after {1} attempts: too many operations without an answer")]
    GaveUp(K, u64),
}

/// Attempts per key before a check gives up.
const ATTEMPTS_MAX: u64 = 1 << 20;

/// Judges a history.
///
/// # Errors
/// The first [`Violation`] found, of the key that was used first.
pub fn check<K: Clone + Debug + Eq + Hash + Ord>(
    history: &[Operation<K>],
) -> Result<(), Violation<K>> {
    let mut keys: BTreeMap<&K, Vec<&Operation<K>>> = BTreeMap::new();
    for operation in history {
        keys.entry(&operation.key).or_default().push(operation);
    }
    keys.into_values().try_for_each(check_key)
}

fn check_key<K: Clone + Debug>(mut operations: Vec<&Operation<K>>) -> Result<(), Violation<K>> {
    operations.retain(|it| !(it.outcome == Outcome::Unknown && it.action == Action::Read));
    operations.sort_by_key(|operation| operation.called);
    let problem = Problem::new(&operations)?;
    let mut failed = HashSet::new();
    // A stack of states to go on from, most promising last.
    let mut open = vec![Attempt::default()];
    let mut furthest: Option<(usize, usize, State)> = None;
    let mut attempts = 0;
    while let Some(mut attempt) = open.pop() {
        attempts += 1;
        if attempts > ATTEMPTS_MAX {
            return Err(Violation::GaveUp(operations[0].key.clone(), attempts));
        }
        match attempt.run(&problem) {
            Step::Explained => return Ok(()),
            Step::Stuck(at) => {
                if furthest.as_ref().is_none_or(|(done, ..)| attempt.count > *done) {
                    furthest = Some((attempt.count, at, attempt.state));
                }
            }
            Step::Fork(ways) => {
                if failed.insert(attempt.fingerprint()) {
                    for way in ways.into_iter().rev() {
                        let mut next = attempt.clone();
                        if next.apply(&problem, way) {
                            open.push(next);
                        }
                    }
                }
            }
        }
    }
    let (_, at, state) = furthest.unwrap_or((0, 0, State::default()));
    let operation = operations[at].clone();
    Err(Violation::Unexplained { operation, before: state.to_string() })
}

/// The operations of a key, sorted in the ways that judging needs.
struct Problem<'a, K> {
    /// By the time of their calls.
    operations: &'a [&'a Operation<K>],
    /// Those with an answer, by its time.
    by_answer: Vec<usize>,
    /// Answered updates in the order that their versions tell.
    updates: Vec<usize>,
    /// What answered operations saw and no answered update explains.
    unexplained: HashMap<Version, Option<u64>>,
}

impl<'a, K: Clone + Debug> Problem<'a, K> {
    fn new(operations: &'a [&'a Operation<K>]) -> Result<Problem<'a, K>, Violation<K>> {
        let mut by_answer = Vec::new();
        let mut updates: BTreeMap<(Version, bool), usize> = BTreeMap::new();
        let mut seen: HashMap<Version, Option<u64>> = HashMap::new();
        for (at, operation) in operations.iter().enumerate() {
            if operation.outcome == Outcome::Unknown {
                continue;
            }
            let sensible = operation.outcome == Outcome::Unknown
                || operation.called <= operation.answered && register::answers(operation);
            if !sensible {
                return Err(Violation::Nonsense((*operation).clone()));
            }
            by_answer.push(at);
            let place = match operation.outcome {
                Outcome::Done(version, _) => Some((version, false)),
                Outcome::Deleted(version) => Some((version, true)),
                _ => None,
            };
            if let Some(other) = place.and_then(|place| updates.insert(place, at)) {
                let (first, second) = (operations[other].clone(), (*operation).clone());
                return Err(Violation::SameVersion(first, second));
            }
            for (version, value) in register::versions_seen(operation) {
                let known = seen.entry(version).or_default();
                *known = known.or(value);
            }
        }
        seen.retain(|version, _| !updates.contains_key(&(*version, false)));
        by_answer.sort_by_key(|at| operations[*at].answered);
        let updates = updates.into_values().collect();
        Ok(Problem { operations, by_answer, updates, unexplained: seen })
    }

    /// Whether an unanswered update might explain anything that was seen.
    fn may_explain(&self, action: Action) -> bool {
        match action {
            Action::Write { value, .. } => {
                self.unexplained.values().any(|seen| seen.is_none_or(|seen| seen == value))
            }
            Action::Increment { .. } => !self.unexplained.is_empty(),
            Action::Read | Action::Delete { .. } => false,
        }
    }
}

/// How far one order of the operations has come.
#[derive(Clone, Default)]
struct Attempt {
    state: State,
    /// A bit for each operation that has its place.
    done: Vec<u64>,
    count: usize,
    /// Operations that were called early enough to come next, and are not done.
    active: Vec<usize>,
    /// The same for those without an answer.
    unanswered: Vec<usize>,
    next_called: usize,
    next_answer: usize,
    next_update: usize,
}

/// What became of an attempt.
enum Step {
    /// Every answer is explained.
    Explained,
    /// Nothing can come next; this operation's answer came first of those that are left.
    Stuck(usize),
    /// Any of these may come next.
    Fork(Vec<usize>),
}

impl Attempt {
    fn is_done(&self, at: usize) -> bool {
        self.done.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn set_done(&mut self, at: usize) {
        if self.done.len() <= at / 64 {
            self.done.resize(at / 64 + 1, 0);
        }
        self.done[at / 64] |= 1 << (at % 64);
        self.count += 1;
    }

    fn fingerprint(&self) -> (u64, u64) {
        let mut first = DefaultHasher::new();
        (&self.done, &self.state).hash(&mut first);
        let mut second = DefaultHasher::new();
        (&self.state, self.count, &self.done).hash(&mut second);
        (first.finish(), second.finish())
    }

    /// Goes on as long as there is only one way.
    fn run<K: Clone + Debug>(&mut self, problem: &Problem<'_, K>) -> Step {
        loop {
            while problem.by_answer.get(self.next_answer).is_some_and(|at| self.is_done(*at)) {
                self.next_answer += 1;
            }
            let Some(first) = problem.by_answer.get(self.next_answer).copied() else {
                return Step::Explained;
            };
            let horizon = problem.operations[first].answered;
            self.take_called(problem, horizon);
            if self.observe(problem) {
                continue;
            }
            match self.ways(problem, horizon)[..] {
                [] => return Step::Stuck(first),
                [only] => {
                    if !self.apply(problem, only) {
                        return Step::Stuck(first);
                    }
                }
                ref ways => return Step::Fork(ways.to_vec()),
            }
        }
    }

    fn take_called<K>(&mut self, problem: &Problem<'_, K>, horizon: u64) {
        while let Some(operation) = problem.operations.get(self.next_called) {
            if operation.called > horizon {
                return;
            }
            if operation.outcome == Outcome::Unknown {
                self.unanswered.push(self.next_called);
            } else {
                self.active.push(self.next_called);
            }
            self.next_called += 1;
        }
    }

    /// Gives every observation of just the present state its place; says whether there was one.
    fn observe<K>(&mut self, problem: &Problem<'_, K>) -> bool {
        let mut active = std::mem::take(&mut self.active);
        let before = self.count;
        active.retain(|at| {
            let operation = problem.operations[*at];
            if !register::only_observes(operation.outcome) {
                return true;
            }
            let fits = self.state.after(operation.action, operation.outcome) == Some(self.state);
            if fits {
                self.set_done(*at);
            }
            !fits
        });
        self.active = active;
        self.count > before
    }

    /// The operations that may come next and change the state.
    fn ways<K: Clone + Debug>(&mut self, problem: &Problem<'_, K>, horizon: u64) -> Vec<usize> {
        let mut ways: Vec<usize> = Vec::new();
        let mut stuck = true;
        ways.extend(self.active.iter().copied().filter(|at| {
            let operation = problem.operations[*at];
            register::only_observes(operation.outcome)
                && self.state.after(operation.action, operation.outcome).is_some()
        }));
        if let Some(at) = problem.updates.get(self.next_update).copied() {
            let operation = problem.operations[at];
            let fits = self.state.after(operation.action, operation.outcome).is_some();
            if operation.called <= horizon && fits {
                ways.push(at);
                stuck = false;
            }
        }
        let first_unanswered = ways.len();
        let absence_is_needed = self.active.iter().any(|at| {
            let operation = problem.operations[*at];
            register::needs(operation.action, operation.outcome) == Need::Absence
        });
        for at in &self.unanswered {
            let action = problem.operations[*at].action;
            let is_delete = matches!(action, Action::Delete { .. });
            let wanted = stuck || is_delete && absence_is_needed || problem.may_explain(action);
            let same = |other: &usize| problem.operations[*other].action == action;
            if wanted
                && !ways[first_unanswered..].iter().any(same)
                && self.state.after(action, Outcome::Unknown).is_some()
            {
                ways.push(*at);
            }
        }
        ways
    }

    fn apply<K>(&mut self, problem: &Problem<'_, K>, at: usize) -> bool {
        let operation = problem.operations[at];
        let Some(state) = self.state.after(operation.action, operation.outcome) else {
            return false;
        };
        self.state = state;
        self.set_done(at);
        if operation.outcome == Outcome::Unknown {
            self.unanswered.retain(|other| *other != at);
        } else {
            self.active.retain(|other| *other != at);
            self.next_update += usize::from(!register::only_observes(operation.outcome));
        }
        true
    }
}

#[cfg(test)]
mod tests;
