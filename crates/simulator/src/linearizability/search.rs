//! The search for an order of one key's operations.
//!
//! It goes as deep as it can and turns back where it fails. Of every failure it keeps which updates
//! without an answer were *missed*, because earlier they were made part of the attempt: an attempt
//! that comes to the same place without any more of those fails too. So the choice between
//! explanations is tried again only where it matters. Where no attempt can avoid a place, all
//! choices that have spent as much before it are given up at once.

use super::attempt::{Attempt, Next, Place};
use super::explanation::{Explainer, Explanation, Goal};
use super::history::History;
use super::register::State;
use super::{Operation, Violation};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;

/// Steps per key before a search gives up: some seconds.
const STEPS_MAX: u64 = 1 << 25;

/// What a fork costs beside the steps to it, for it takes memory.
const STEPS_PER_FORK: u64 = 64;

/// A place where there is a choice.
struct Fork {
    attempt: Attempt,
    /// Places from which there was only one way to here.
    passed: Vec<Place>,
    /// Whether every other attempt comes to a place on that way.
    is_inevitable: bool,
    goals: Vec<Goal>,
    /// The length of the explanations that were looked for last.
    length: usize,
    /// Ways not tried yet, the best last.
    ways: Vec<Explanation>,
    /// Groups of which more might have helped.
    missed: BTreeSet<usize>,
}

/// What became of an attempt that went on as long as there was one way.
enum Reached {
    /// Every answer is explained.
    End,
    Fork(Fork),
    Failure(Failure),
}

/// That nothing could come next.
struct Failure {
    /// Groups of which more might have helped.
    missed: BTreeSet<usize>,
    /// If every attempt fails that has spent as much before it gets here.
    of_all: Option<Shortage>,
}

/// Groups of updates without an answer, and how many of each were spent too early.
type Shortage = Vec<(usize, usize)>;

/// Judges one key, and says in how many steps it did.
pub(super) fn judge<K: Clone + Debug>(operations: Vec<&Operation<K>>) -> Result<u64, Violation<K>> {
    let history = History::new(operations)?;
    let mut search =
        Search { history: &history, failures: HashMap::new(), furthest: None, steps: 0 };
    let mut forks: Vec<Fork> = Vec::new();
    let mut reached = search.follow(Attempt::default());
    while search.steps <= STEPS_MAX {
        match reached {
            Reached::End => return Ok(search.steps),
            Reached::Fork(fork) => forks.push(fork),
            Reached::Failure(failure) => search.turn_back(&mut forks, failure),
        }
        let Some(mut fork) = forks.pop() else { return Err(search.violation()) };
        reached = if let Some(attempt) = search.next_way(&mut fork) {
            forks.push(fork);
            search.follow(attempt)
        } else {
            let Fork { attempt, passed, missed, is_inevitable, .. } = fork;
            Reached::Failure(search.fail(&attempt, passed, missed, is_inevitable))
        };
    }
    let key = history.operations[0].key.clone();
    Err(Violation::GaveUp(key, search.steps))
}

struct Search<'a, K> {
    history: &'a History<'a, K>,
    failures: HashMap<Place, Vec<Shortage>>,
    /// The attempt with the most answered operations, and the one that could not follow.
    furthest: Option<(usize, usize, State)>,
    steps: u64,
}

impl<K: Clone + Debug> Search<'_, K> {
    /// Goes on as long as there is only one way.
    fn follow(&mut self, mut attempt: Attempt) -> Reached {
        let (mut passed, mut is_inevitable) = (Vec::new(), false);
        loop {
            if !attempt.place.take_called(self.history) {
                return Reached::End;
            }
            self.steps += 1;
            if attempt.observe(self.history) {
                continue;
            }
            is_inevitable = is_inevitable || attempt.place.is_inevitable(self.history);
            let Next { goals, update } = attempt.place.next(self.history);
            // Attempts that differ only in what is overwritten meet after the next update.
            if passed.len() < 2 || !goals.is_empty() {
                if let Some(missed) = self.known_failure(&attempt) {
                    return Reached::Failure(self.fail(&attempt, passed, missed, is_inevitable));
                }
                passed.push(attempt.place.clone());
            }
            if !goals.is_empty() {
                self.steps += STEPS_PER_FORK;
                let ways = update.into_iter().collect();
                let (length, missed) = (0, BTreeSet::new());
                let fork = Fork { attempt, passed, is_inevitable, goals, length, ways, missed };
                return Reached::Fork(fork);
            }
            let Some(update) = update else {
                let missed = BTreeSet::new();
                return Reached::Failure(self.fail(&attempt, passed, missed, is_inevitable));
            };
            attempt.explain(update);
        }
    }

    /// The next attempt at a fork, if there is any left.
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

    /// Remembers that an attempt, and all from the places that it passed, can not go on.
    fn fail(
        &mut self,
        attempt: &Attempt,
        passed: Vec<Place>,
        missed: BTreeSet<usize>,
        is_inevitable: bool,
    ) -> Failure {
        self.note(attempt);
        // Of a group that was not touched, no other attempt has more.
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

    /// Leaves the forks from which no way can lead further than to a failure.
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

/// Whether an attempt has spent as much.
fn is_short(attempt: &Attempt, shortage: &Shortage) -> bool {
    shortage.iter().all(|(group, count)| attempt.spent.get(group) >= Some(count))
}
