//! Ways in which updates without an answer explain what was seen.
//!
//! An explanation is a sequence of such updates that happen one right after the other, and right
//! before the answered operation that needs them. Between any two answered operations the shortest
//! sequences are enough: what can be left out of one takes part in nothing that was seen. That
//! rules out most sequences (see [`Use`]); what remains are a few updates, and
//! increments that add up.

use super::attempt::Attempt;
use super::history::History;
use super::register::{self, Need, State};
use super::{Action, Condition, Outcome, Version};
use std::collections::BTreeSet;

/// What is to be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// That the key was absent.
    Absence,
    /// That it had this version, and this value if that was found.
    Version(Version, Option<u64>),
    /// That this answered operation could happen; it does so as a part of the explanation.
    Update(usize),
}

/// A way to reach a goal.
#[derive(Clone, Debug)]
pub(super) struct Explanation {
    pub(super) goal: Goal,
    /// The groups of the updates without an answer that it takes.
    pub(super) spent: Vec<usize>,
    /// The state that it leads to.
    pub(super) state: State,
}

/// Where in an explanation an update can be of use. Elsewhere, what comes before it can be left out
/// without a trace, and uses up no versions then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    /// An increment adds to whatever there is.
    Anywhere,
    /// What needs a version needs the update that makes it, if it is not there at first.
    AfterVersion,
    /// A write that needs absence needs the delete that makes it, if it is not there at first.
    AfterDelete,
    /// A write that needs presence needs what creates the key, if it is not there at first.
    AfterCreation,
    /// A write without condition, or a delete, leaves no trace of what was before.
    First,
}

impl Use {
    fn of(action: Action) -> Use {
        match action {
            Action::Increment { .. } => Use::Anywhere,
            Action::Write { condition, .. } | Action::Delete { condition } => match condition {
                Condition::VersionIs(_) => Use::AfterVersion,
                Condition::Absent => Use::AfterDelete,
                Condition::Present if matches!(action, Action::Write { .. }) => Use::AfterCreation,
                Condition::Present | Condition::Always => Use::First,
            },
            Action::Read => Use::First,
        }
    }
}

/// A group of equal updates without an answer.
struct Candidate {
    group: usize,
    action: Action,
    /// How many were called early enough.
    called: usize,
    /// How many of these are not part of the present attempt yet.
    left: usize,
    /// How many are in the sequence.
    used: usize,
    /// The higher, the more it may be missed later.
    worth: usize,
}

/// What increments can add.
struct Increments {
    /// How many there are.
    count: u64,
    /// The least that one of them adds.
    least: u64,
    /// The most that one of them adds.
    most: u64,
}

impl Increments {
    fn of(candidates: &[Candidate]) -> Increments {
        let mut increments = Increments { count: 0, least: u64::MAX, most: 0 };
        for candidate in candidates {
            if let Action::Increment { by } = candidate.action {
                increments.count += candidate.called as u64;
                increments.least = increments.least.min(by);
                increments.most = increments.most.max(by);
            }
        }
        increments
    }
}

/// Finds all explanations of one length.
pub(super) struct Explainer<'a, K> {
    history: &'a History<'a, K>,
    start: State,
    goal: Goal,
    needs_absence: bool,
    /// The version of the next thing that happened for sure: explanations stay below.
    ceiling: Option<Version>,
    candidates: Vec<Candidate>,
    increments: Increments,
    sequence: Vec<usize>,
    /// Whether longer sequences may exist.
    goes_on: bool,
    /// Explanations, each with the worth of what it takes.
    found: Vec<(usize, Explanation)>,
    /// Groups of which explanations would take more than are left.
    missed: BTreeSet<usize>,
    steps: u64,
    steps_max: u64,
}

/// What an [`Explainer`] found.
pub(super) struct Explanations {
    /// The best first.
    pub(super) found: Vec<Explanation>,
    pub(super) missed: BTreeSet<usize>,
    pub(super) goes_on: bool,
    pub(super) steps: u64,
}

/// What one explanation costs beside the steps to it, for it takes memory.
const STEPS_PER_EXPLANATION: u64 = 16;

impl<'a, K> Explainer<'a, K> {
    pub(super) fn new(
        history: &'a History<'a, K>,
        attempt: &Attempt,
        goal: Goal,
    ) -> Explainer<'a, K> {
        let Attempt { place, spent, .. } = attempt;
        let start = place.state;
        let mut candidates = Vec::new();
        for (group, unanswered) in history.unanswered.iter().enumerate() {
            let called = unanswered.called(place.next_called);
            if called > 0 && may_ever_happen(unanswered.action, start) {
                let (action, left) = (unanswered.action, called - spent.get(&group).unwrap_or(&0));
                let worth = worth(history, action, start);
                candidates.push(Candidate { group, action, called, left, used: 0, worth });
            }
        }
        // So that a step looks at no more of them than can be of use.
        candidates.sort_by_key(|it| Use::of(it.action));
        let increments = Increments::of(&candidates);
        let milestone = history.milestones.get(place.next_milestone);
        let needs_absence = match goal {
            Goal::Absence => true,
            Goal::Version(..) => false,
            Goal::Update(at) => {
                let operation = history.operations[at];
                register::needs(operation.action, operation.outcome) == Need::Absence
            }
        };
        Explainer {
            history,
            start,
            goal,
            needs_absence,
            ceiling: milestone.map(|milestone| milestone.version),
            candidates,
            increments,
            sequence: Vec::new(),
            goes_on: false,
            found: Vec::new(),
            missed: BTreeSet::new(),
            steps: 0,
            steps_max: 0,
        }
    }

    /// All explanations of just this length, unless they take more than so many steps.
    pub(super) fn explain(mut self, length: usize, steps_max: u64) -> Explanations {
        self.steps_max = steps_max;
        self.extend(self.start, length);
        let Explainer { mut found, missed, mut goes_on, steps, .. } = self;
        // What was called long ago either was seen long ago or was lost.
        found.sort_by(|(worth, explanation), (other_worth, other)| {
            worth.cmp(other_worth).then_with(|| other.spent.cmp(&explanation.spent))
        });
        let found = found.into_iter().map(|(_, explanation)| explanation).collect();
        if self.needs_absence {
            // A delete alone, or one with the write of the version that it needs.
            goes_on = length == 1;
        }
        if let Some(ceiling) = self.ceiling {
            // All but one delete are writes, each of which takes a version.
            goes_on &= length as u64 <= ceiling.0.saturating_sub(self.start.last().0);
        }
        Explanations { found, missed, goes_on, steps }
    }

    fn extend(&mut self, state: State, left: usize) {
        let too_high = self.ceiling.is_some_and(|ceiling| state.last() >= ceiling);
        if self.steps > self.steps_max || too_high {
            return;
        }
        let reached = self.reached(state);
        if left == 0 {
            self.goes_on = true;
            if let Some(state) = reached {
                self.take(state);
            }
            return;
        }
        // Only where the value is open can more updates make a difference.
        if reached.is_some() && !matches!(self.goal, Goal::Version(_, None)) {
            return;
        }
        let since_absence = self.since_absence();
        if since_absence >= 2 && !self.may_add_up(state, left) {
            return;
        }
        let use_max = self.use_max(state);
        for at in 0..self.candidates.len() {
            let Candidate { action, called, used, .. } = self.candidates[at];
            if Use::of(action) > use_max {
                break;
            }
            let is_delete = matches!(action, Action::Delete { .. });
            if used == called
                || left == 1 && self.needs_absence && !is_delete
                || !self.is_useful(at, since_absence)
            {
                continue;
            }
            self.steps += 1;
            if let Some(next) = state.after(action, Outcome::Unknown) {
                self.sequence.push(at);
                self.candidates[at].used += 1;
                self.extend(next, left - 1);
                self.candidates[at].used -= 1;
                self.sequence.pop();
            }
        }
    }

    fn reached(&self, state: State) -> Option<State> {
        match self.goal {
            Goal::Absence => state.is_absent().then_some(state),
            Goal::Version(version, value) => state
                .meeting(Need::Version(version))
                .filter(|met| value.is_none() || met.value() == value),
            Goal::Update(at) => {
                let operation = self.history.operations[at];
                state.after(operation.action, operation.outcome)
            }
        }
    }

    /// Takes the sequence as an explanation if enough updates are left for it.
    fn take(&mut self, state: State) {
        let taken = || self.sequence.iter().map(|at| &self.candidates[*at]);
        if taken().all(|it| it.used <= it.left) {
            let worth = taken().map(|it| it.worth).sum();
            let spent = taken().map(|it| it.group).collect();
            self.found.push((worth, Explanation { goal: self.goal, spent, state }));
            self.steps += STEPS_PER_EXPLANATION;
        } else {
            let missed = taken().filter(|it| it.used > it.left).map(|it| it.group);
            self.missed.extend(missed);
        }
    }

    /// How many updates the sequence has after its delete, or in all.
    fn since_absence(&self) -> usize {
        let is_delete = |at: &&usize| matches!(self.candidates[**at].action, Action::Delete { .. });
        self.sequence.iter().rev().take_while(|at| !is_delete(at)).count()
    }

    /// The last use that updates in this state, at the end of the sequence, can be of.
    fn use_max(&self, state: State) -> Use {
        match self.sequence.len() {
            0 => Use::First,
            _ if state.is_absent() => Use::AfterDelete,
            1 if self.start.is_absent() => Use::AfterCreation,
            _ => Use::AfterVersion,
        }
    }

    /// Whether an update that is of use here really is needed, if it can happen at all.
    fn is_useful(&self, at: usize, since_absence: usize) -> bool {
        match self.candidates[at].action {
            // What makes the version can do so right from the start or from absence.
            Action::Write { condition: Condition::VersionIs(_), .. } => since_absence < 2,
            Action::Delete { condition: Condition::VersionIs(_) } => {
                self.sequence.len() < 2 && !self.start.is_absent()
            }
            // Increments in a row have no order.
            Action::Increment { .. } => self.sequence.last().is_none_or(|last| {
                let is_increment = Use::of(self.candidates[*last].action) == Use::Anywhere;
                !is_increment || *last <= at
            }),
            Action::Read | Action::Write { .. } | Action::Delete { .. } => true,
        }
    }

    /// Whether so many increments, which are all that is useful any more, may lead to a value that
    /// is wanted.
    fn may_add_up(&mut self, state: State, left: usize) -> bool {
        let (Increments { count, least, most }, left) = (&self.increments, left as u64);
        if left > *count {
            return false;
        }
        let wanted = match self.goal {
            Goal::Absence | Goal::Version(_, None) => None,
            Goal::Version(_, value) => value,
            Goal::Update(at) => {
                let operation = self.history.operations[at];
                match (operation.action, operation.outcome) {
                    (Action::Increment { by }, Outcome::Done(_, sum)) => Some(sum.wrapping_sub(by)),
                    _ => None,
                }
            }
        };
        let Some((wanted, value)) = wanted.zip(state.value()) else { return true };
        let missing = wanted.wrapping_sub(value);
        // When they may wrap, anything may come out.
        let Some(most_of_all) = most.checked_mul(*count) else { return true };
        self.goes_on |= missing > most * left && missing <= most_of_all;
        (least * left..=most * left).contains(&missing)
    }
}

/// Whether an update can happen in this state or in one that follows.
fn may_ever_happen(action: Action, state: State) -> bool {
    match action {
        Action::Write { condition: Condition::VersionIs(version), .. }
        | Action::Delete { condition: Condition::VersionIs(version) } => {
            version > state.last() || state.meeting(Need::Version(version)).is_some()
        }
        _ => true,
    }
}

/// How much an update may be missed later: least when it needs the version that is about to go.
fn worth<K>(history: &History<'_, K>, action: Action, state: State) -> usize {
    match action {
        Action::Write { condition: Condition::VersionIs(version), .. }
        | Action::Delete { condition: Condition::VersionIs(version) }
            if state.meeting(Need::Version(version)).is_some() =>
        {
            0
        }
        Action::Write { value, .. } if history.found.contains(&value) => 2,
        _ => 1,
    }
}
