//! One partial order of a key's operations, and the operations that can come next in it.

use super::explanation::{Explanation, Goal};
use super::history::{self, Event, History, Milestone};
use super::register::{self, Need, State};
use super::{Operation, Outcome, Version};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::rc::Rc;

/// The progress of an attempt, except for the unanswered updates in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) state: State,
    pub(super) next_milestone: usize,
    pub(super) next_called: usize,
    /// Answered operations that were called early enough to come next.
    pub(super) active: Vec<usize>,
    /// The number of operations that have observed the present version.
    observed: usize,
}

/// One order of the operations, as far as it goes.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempt {
    pub(super) place: Place,
    /// The number of unanswered updates in it, for each group with any.
    pub(super) spent: Rc<BTreeMap<usize, usize>>,
    /// The number of answered operations in it.
    pub(super) answered: usize,
}

/// The possible next operations, after all that only observe the present state.
pub(super) struct NextOperations {
    /// The goals that unanswered updates may explain.
    pub(super) goals: Vec<Goal>,
    /// An answered update that needs no explanation.
    pub(super) update: Option<Explanation>,
}

impl Place {
    /// Adds the operations that were called before the earliest answer of the remaining ones.
    /// Returns whether any answered operation remains.
    pub(super) fn take_called<K>(&mut self, history: &History<'_, K>) -> bool {
        let answered = |at: &usize| history.operations[*at].answered;
        let mut horizon = self.active.iter().map(answered).min();
        while let Some(operation) = history.operations.get(self.next_called)
            && horizon.is_none_or(|horizon| operation.called <= horizon)
        {
            if operation.outcome != Outcome::Unknown {
                self.active.push(self.next_called);
                let horizon = horizon.get_or_insert(operation.answered);
                *horizon = operation.answered.min(*horizon);
            }
            self.next_called += 1;
        }
        !self.active.is_empty()
    }

    /// Returns the possible next operations, after all that only observe the present state.
    pub(super) fn next<K: Clone + Debug>(&self, history: &History<'_, K>) -> NextOperations {
        let milestone = history.milestones.get(self.next_milestone);
        let (mut goals, mut update, mut needs_absence) = (Vec::new(), None, false);
        if !self.state.is_absent()
            && self.observed < self.last(history).map_or(0, |last| last.observers)
        {
            // The remaining observers of this version could not see it any more.
            return NextOperations { goals, update };
        }
        match milestone.map(|milestone| (milestone.event, milestone.version)) {
            Some((Event::Update(at) | Event::Delete(at), version)) if self.active.contains(&at) => {
                let operation = history.operations[at];
                let need = register::needs(operation.action, operation.outcome);
                let after = self.state.after(operation.action, operation.outcome);
                let goal = Goal::Update(at);
                update = after.map(|state| Explanation { goal, spent: Vec::new(), state });
                // A needed version was seen, so it was a milestone of its own.
                let may_be_explained = !matches!(need, Need::Version(_));
                if update.is_none() && may_be_explained && version > self.state.last() {
                    goals.push(goal);
                    needs_absence = need == Need::Absence;
                }
            }
            Some((Event::Unanswered(value), version)) if self.sees(history, version) => {
                goals.push(Goal::Version(version, value));
            }
            _ => {}
        }
        // A version with an answered delete is not deleted in another way.
        if !milestone.is_some_and(|milestone| matches!(milestone.event, Event::Delete(_)))
            && !self.state.is_absent()
            && history.may_be_deleted(self.state.last(), self.next_called)
            && self.sees_absence(history)
        {
            // If absence is needed next, it may as well come first, so that others see it.
            goals.insert(if needs_absence { 0 } else { goals.len() }, Goal::Absence);
        }
        NextOperations { goals, update }
    }

    /// Whether every attempt that explains everything reaches this place, or a similar one with
    /// more operations remaining, after all operations that only observe the present state.
    ///
    /// The milestones and their observers have only one order. So attempts that have reached the
    /// same milestone differ only in which operations have seen absence, provided that the
    /// milestone determines the state and no later update has changed it. If no operation waits for
    /// absence here, then no other attempt had got further when it reached the milestone.
    pub(super) fn is_inevitable<K>(&self, history: &History<'_, K>) -> bool {
        let is_told = match self.last(history).map(|last| last.event) {
            None | Some(Event::Unanswered(None)) => false,
            Some(Event::Delete(_)) => true,
            Some(Event::Update(_) | Event::Unanswered(Some(_))) => !self.state.is_absent(),
        };
        is_told && !self.sees_absence(history)
    }

    /// Returns the last milestone passed; a live object has its version.
    fn last<'a, K>(&self, history: &'a History<'_, K>) -> Option<&'a Milestone> {
        history.milestones[..self.next_milestone].last()
    }

    fn sees<K>(&self, history: &History<'_, K>, version: Version) -> bool {
        self.active.iter().any(|at| {
            history::version_seen(history.operations[*at]).is_some_and(|(seen, _)| seen == version)
        })
    }

    fn sees_absence<K>(&self, history: &History<'_, K>) -> bool {
        self.active.iter().any(|at| {
            let Operation { action, outcome, .. } = history.operations[*at];
            register::only_observes(*outcome) && register::needs(*action, *outcome) == Need::Absence
        })
    }
}

impl Attempt {
    /// Places all operations that only observe the present state. They change nothing, so there is
    /// no better moment for them. Returns whether there were any.
    pub(super) fn observe<K>(&mut self, history: &History<'_, K>) -> bool {
        let Place { state, active, observed, .. } = &mut self.place;
        let before = active.len();
        active.retain(|at| {
            let Operation { action, outcome, .. } = history.operations[*at];
            !register::only_observes(*outcome) || state.after(*action, *outcome) != Some(*state)
        });
        let count = before - active.len();
        if !state.is_absent() {
            *observed += count;
        }
        self.answered += count;
        count > 0
    }

    /// Continues with an explanation.
    pub(super) fn explain(&mut self, explanation: Explanation) {
        let Explanation { goal, spent, state } = explanation;
        if !spent.is_empty() {
            let all = Rc::make_mut(&mut self.spent);
            for group in spent {
                *all.entry(group).or_default() += 1;
            }
        }
        self.place.state = state;
        self.place.observed = 0;
        self.place.next_milestone += usize::from(goal != Goal::Absence);
        if let Goal::Update(at) = goal {
            self.place.active.retain(|other| *other != at);
            self.answered += 1;
        }
    }
}
