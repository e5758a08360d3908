//! The search for an order of one key's operations.
//!
//! It goes as deep as it can and turns back at a failure. For each failure it records the *missed*
//! updates: unanswered updates that were used too early in the attempt. Another attempt that
//! reaches the same place with no more of them fails too. So the choice between explanations is
//! tried again only where it matters. If no attempt can avoid a place, all choices that have used
//! as many updates before it are abandoned at once.

use super::attempt::{Attempt, NextOperations, Place};
use super::explanation::{Explainer, Explanation, Goal};
use super::history::History;
use super::register::State;
use super::{Operation, Violation};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;

/// Steps per key before a search gives up: a few seconds.
const STEPS_MAX: u64 = 1 << 25;

/// The cost of a fork beside the steps to it, because it takes memory.
const STEPS_PER_FORK: u64 = 64;

/// A place with a choice.
struct Fork {
    attempt: Attempt,
    /// Places from which only one way led here.
    passed: Vec<Place>,
    /// Whether every other attempt reaches a place on that way.
    is_inevitable: bool,
    goals: Vec<Goal>,
    /// The length of the explanations that were searched last.
    length: usize,
    /// Ways that are not tried yet, the best last.
    ways: Vec<Explanation>,
    /// Groups of which more updates might have helped.
    missed: BTreeSet<usize>,
}

/// The end of an attempt that continued as long as there was only one way.
enum AttemptEnd {
    /// Every answer is explained.
    End,
    Fork(Fork),
    Failure(Failure),
}

/// No operation could come next.
struct Failure {
    /// Groups of which more updates might have helped.
    missed: BTreeSet<usize>,
    /// Set if every attempt fails that has used as many updates before it gets here.
    of_all: Option<Shortage>,
}

/// Groups of unanswered updates, and the number of each that was used too early.
type Shortage = Vec<(usize, usize)>;

/// Judges one key, and returns the number of steps.
pub(super) fn judge<K: Clone + Debug>(operations: Vec<&Operation<K>>) -> Result<u64, Violation<K>> {
    let history = History::new(operations)?;
    let mut search =
        Search { history: &history, failures: HashMap::new(), furthest: None, steps: 0 };
    let mut forks: Vec<Fork> = Vec::new();
    let mut reached = search.follow(Attempt::default());
    while search.steps <= STEPS_MAX {
        match reached {
            AttemptEnd::End => return Ok(search.steps),
            AttemptEnd::Fork(fork) => forks.push(fork),
            AttemptEnd::Failure(failure) => search.turn_back(&mut forks, failure),
        }
        let Some(mut fork) = forks.pop() else { return Err(search.violation()) };
        reached = if let Some(attempt) = search.next_way(&mut fork) {
            forks.push(fork);
            search.follow(attempt)
        } else {
            let Fork { attempt, passed, missed, is_inevitable, .. } = fork;
            AttemptEnd::Failure(search.fail(&attempt, passed, missed, is_inevitable))
        };
    }
    let key = history.operations[0].key.clone();
    Err(Violation::GaveUp(key, search.steps))
}

struct Search<'a, K> {
    history: &'a History<'a, K>,
    failures: HashMap<Place, Vec<Shortage>>,
    /// The attempt with the most answered operations, and the operation that could not follow.
    furthest: Option<(usize, usize, State)>,
    steps: u64,
}

impl<K: Clone + Debug> Search<'_, K> {
    /// Continues as long as there is only one way.
    fn follow(&mut self, mut attempt: Attempt) -> AttemptEnd {
        let (mut passed, mut is_inevitable) = (Vec::new(), false);
        loop {
            if !attempt.place.take_called(self.history) {
                return AttemptEnd::End;
            }
            self.steps += 1;
            if attempt.observe(self.history) {
                continue;
            }
            is_inevitable = is_inevitable || attempt.place.is_inevitable(self.history);
            let NextOperations { goals, update } = attempt.place.next(self.history);
            // Attempts that differ only in overwritten state meet after the next update.
            if passed.len() < 2 || !goals.is_empty() {
                if let Some(missed) = self.known_failure(&attempt) {
                    return AttemptEnd::Failure(self.fail(&attempt, passed, missed, is_inevitable));
                }
                passed.push(attempt.place.clone());
            }
            if !goals.is_empty() {
                self.steps += STEPS_PER_FORK;
                let ways = update.into_iter().collect();
                let (length, missed) = (0, BTreeSet::new());
                let fork = Fork { attempt, passed, is_inevitable, goals, length, ways, missed };
                return AttemptEnd::Fork(fork);
            }
            let Some(update) = update else {
                let missed = BTreeSet::new();
                return AttemptEnd::Failure(self.fail(&attempt, passed, missed, is_inevitable));
            };
            attempt.explain(update);
        }
    }

    /// Returns the next attempt at a fork, if any remains.
    fn next_way(&mut self, fork: &mut Fork) -> Option<Attempt> {
        while fork.ways.is_empty() && !fork.goals.is_empty() {
            fork.length += 1;
            let mut ways = Vec::new();
            fork.goals.retain(|goal| {
                let steps_left = STEPS_MAX.saturating_sub(self.steps);
                let explainer = Explainer::new(self.history, &fork.attempt, *goal);
                let explanations = explainer.explain(fork.length, steps_left);
                self.steps += explanations.steps;
                fork.missed.extend(explanations.missed);
                ways.extend(explanations.found);
                explanations.goes_on
            });
            ways.reverse();
            fork.ways = ways;
        }
        let way = fork.ways.pop()?;
        let mut attempt = fork.attempt.clone();
        attempt.explain(way);
        Some(attempt)
    }

    /// Records that an attempt cannot continue, nor any from the places that it passed.
    fn fail(
        &mut self,
        attempt: &Attempt,
        passed: Vec<Place>,
        missed: BTreeSet<usize>,
        is_inevitable: bool,
    ) -> Failure {
        self.note(attempt);
        // No other attempt has more updates left of a group that this one has not used.
        let count = |group: &usize| attempt.spent.get(group).map(|count| (*group, *count));
        let shortage: Shortage = missed.iter().filter_map(count).collect();
        self.remember(passed, &shortage);
        Failure { missed, of_all: is_inevitable.then_some(shortage) }
    }

    fn remember(&mut self, places: Vec<Place>, shortage: &Shortage) {
        for place in places {
            self.failures.entry(place).or_default().push(shortage.clone());
        }
    }

    fn known_failure(&self, attempt: &Attempt) -> Option<BTreeSet<usize>> {
        let shortages = self.failures.get(&attempt.place)?;
        let shortage = shortages.iter().find(|shortage| is_short(attempt, shortage))?;
        Some(shortage.iter().map(|(group, _)| *group).collect())
    }

    /// Leaves the forks whose ways can lead only to failures.
    fn turn_back(&mut self, forks: &mut Vec<Fork>, failure: Failure) {
        if let Some(shortage) = failure.of_all {
            while let Some(fork) = forks.pop_if(|fork| is_short(&fork.attempt, &shortage)) {
                self.remember(fork.passed, &shortage);
            }
        }
        if let Some(fork) = forks.last_mut() {
            fork.missed.extend(failure.missed);
        }
    }

    fn note(&mut self, attempt: &Attempt) {
        let first = attempt.place.active.iter().copied();
        let first = first.min_by_key(|at| self.history.operations[*at].answered);
        if let Some(first) = first
            && self.furthest.is_none_or(|(answered, ..)| attempt.answered > answered)
        {
            self.furthest = Some((attempt.answered, first, attempt.place.state));
        }
    }

    fn violation(&self) -> Violation<K> {
        let (_, at, state) = self.furthest.unwrap_or_default();
        let operation = self.history.operations[at].clone();
        Violation::Unexplained { operation, before: state.to_string() }
    }
}

/// Whether an attempt has used as many updates.
fn is_short(attempt: &Attempt, shortage: &Shortage) -> bool {
    shortage.iter().all(|(group, count)| attempt.spent.get(group) >= Some(count))
}
