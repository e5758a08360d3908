//! Explanations of observations by unanswered updates.
//!
//! An explanation is a sequence of unanswered updates that happen one directly after the other, and
//! directly before the answered operation that needs them. Between two answered operations the
//! shortest sequences suffice: an update that can be left out of one contributes to no observation.
//! This excludes most sequences (see [`Use`]). A few updates remain, and increments that add up.

use super::attempt::Attempt;
use super::history::History;
use super::register::{self, Need, State};
use super::{Action, Condition, Outcome, Version};
use std::collections::BTreeSet;

/// The observation to explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The key was absent.
    Absence,
    /// The key had this version, and this value if a read found it.
    Version(Version, Option<u64>),
    /// This answered operation could happen; it happens as a part of the explanation.
    Update(usize),
}

/// A way to reach a goal.
#[derive(Clone, Debug)]
pub(super) struct Explanation {
    pub(super) goal: Goal,
    /// The groups of the unanswered updates in it.
    pub(super) spent: Vec<usize>,
    /// The resulting state.
    pub(super) state: State,
}

/// The position in an explanation at which an update can be useful. At other positions, the updates
/// before it could be left out without a trace, and would then use up no versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    /// An increment adds to any value.
    Anywhere,
    /// An update that needs a version needs the update that makes it, unless the version is there
    /// at first.
    AfterVersion,
    /// A write that needs absence needs the delete that makes it, unless the key is absent at
    /// first.
    AfterDelete,
    /// A write that needs presence needs the update that creates the key, unless the key exists at
    /// first.
    AfterCreation,
    /// An unconditional write, or a delete, hides everything before it.
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

/// A group of equal unanswered updates.
struct Candidate {
    group: usize,
    action: Action,
    /// The number of them that were called early enough.
    called: usize,
    /// The number of these that are not part of the present attempt yet.
    left: usize,
    /// The number of them in the sequence.
    used: usize,
    /// The higher, the more likely it is needed later.
    worth: usize,
}

/// The sums that increments can reach.
struct Increments {
    /// Their number.
    count: u64,
    /// The smallest amount of one increment.
    least: u64,
    /// The largest amount of one increment.
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
    /// The version of the next certain event: explanations stay below it.
    ceiling: Option<Version>,
    candidates: Vec<Candidate>,
    increments: Increments,
    sequence: Vec<usize>,
    /// Whether longer sequences may exist.
    goes_on: bool,
    /// Explanations, each with the worth of its updates.
    found: Vec<(usize, Explanation)>,
    /// Groups of which explanations would need more updates than remain.
    missed: BTreeSet<usize>,
    steps: u64,
    steps_max: u64,
}

/// The results of an [`Explainer`].
pub(super) struct Explanations {
    /// The best first.
    pub(super) found: Vec<Explanation>,
    pub(super) missed: BTreeSet<usize>,
    pub(super) goes_on: bool,
    pub(super) steps: u64,
}

/// The cost of an explanation beside the steps to it, because it takes memory.
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
        // Sorted, so that a step looks only at candidates that can be useful.
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

    /// Returns all explanations of exactly this length, unless they take more than `steps_max`
    /// steps.
    pub(super) fn explain(mut self, length: usize, steps_max: u64) -> Explanations {
        self.steps_max = steps_max;
        self.extend(self.start, length);
        let Explainer { mut found, missed, mut goes_on, steps, .. } = self;
        // An early call either was observed early or was lost.
        found.sort_by(|(worth, explanation), (other_worth, other)| {
            worth.cmp(other_worth).then_with(|| other.spent.cmp(&explanation.spent))
        });
        let found = found.into_iter().map(|(_, explanation)| explanation).collect();
        if self.needs_absence {
            // A delete alone, or one preceded by the write of the version that it needs.
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
        // More updates can make a difference only if the value is open.
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

    /// Records the sequence as an explanation if enough updates remain for it.
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

    /// Returns the number of updates after the sequence's delete, or in all.
    fn since_absence(&self) -> usize {
        let is_delete = |at: &&usize| matches!(self.candidates[**at].action, Action::Delete { .. });
        self.sequence.iter().rev().take_while(|at| !is_delete(at)).count()
    }

    /// Returns the last use that an update can have at the end of the sequence, in this state.
    fn use_max(&self, state: State) -> Use {
        match self.sequence.len() {
            0 => Use::First,
            _ if state.is_absent() => Use::AfterDelete,
            1 if self.start.is_absent() => Use::AfterCreation,
            _ => Use::AfterVersion,
        }
    }

    /// Whether an update that has a use here is needed, if it can happen at all.
    fn is_useful(&self, at: usize, since_absence: usize) -> bool {
        match self.candidates[at].action {
            // The update that makes the version can do so directly after the start or after
            // absence.
            Action::Write { condition: Condition::VersionIs(_), .. } => since_absence < 2,
            Action::Delete { condition: Condition::VersionIs(_) } => {
                self.sequence.len() < 2 && !self.start.is_absent()
            }
            // Consecutive increments have no order.
            Action::Increment { .. } => self.sequence.last().is_none_or(|last| {
                let is_increment = Use::of(self.candidates[*last].action) == Use::Anywhere;
                !is_increment || *last <= at
            }),
            Action::Read | Action::Write { .. } | Action::Delete { .. } => true,
        }
    }

    /// Whether increments may reach a wanted value in this number of steps. Only increments are
    /// still useful here.
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
        // If the sum may wrap, any value is possible.
        let Some(most_of_all) = most.checked_mul(*count) else { return true };
        self.goes_on |= missing > most * left && missing <= most_of_all;
        (least * left..=most * left).contains(&missing)
    }
}

/// Whether an update can happen in this state or in a later one.
fn may_ever_happen(action: Action, state: State) -> bool {
    match action {
        Action::Write { condition: Condition::VersionIs(version), .. }
        | Action::Delete { condition: Condition::VersionIs(version) } => {
            version > state.last() || state.meeting(Need::Version(version)).is_some()
        }
        _ => true,
    }
}

/// Returns how likely an update is needed later: least if it needs the version that is about to
/// disappear.
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
