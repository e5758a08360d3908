//! Short histories: the judge gives the same verdict as trying every order.

use super::simulated::{Random, Workload, record};
use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

/// A register whose versions are all known.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Known {
    last: u64,
    value: Option<u64>,
}

/// Tries every order of every choice of unanswered operations, with every version that they may
/// get. It shares no method with the judge.
struct Orders<'a> {
    history: &'a [Operation<u8>],
    highest: u64,
    failed: HashSet<(u32, Known)>,
}

impl Orders<'_> {
    fn explain(history: &[Operation<u8>]) -> bool {
        let versions = history.iter().flat_map(|it| match it.outcome {
            Outcome::Found(version, _) | Outcome::Done(version, _) => Some(version.0),
            Outcome::Deleted(version) | Outcome::Refused(version) => Some(version.0),
            Outcome::Unknown | Outcome::Absent => None,
        });
        let conditions = history.iter().filter_map(|it| match it.action {
            Action::Write { condition: Condition::VersionIs(version), .. }
            | Action::Delete { condition: Condition::VersionIs(version) } => Some(version.0),
            _ => None,
        });
        let highest = versions.chain(conditions).max().unwrap_or(0) + history.len() as u64;
        let mut orders = Orders { history, highest, failed: HashSet::new() };
        orders.go_on((1 << history.len()) - 1, Known::default())
    }

    fn go_on(&mut self, left: u32, register: Known) -> bool {
        let history = self.history;
        let all_left = || (0..history.len()).filter(|at| left >> at & 1 == 1);
        let answered = all_left().filter(|at| history[*at].outcome != Outcome::Unknown);
        let Some(horizon) = answered.map(|at| history[at].answered).min() else { return true };
        if !self.failed.insert((left, register)) {
            return false;
        }
        all_left().filter(|at| history[*at].called <= horizon).any(|at| {
            let highest = self.highest;
            (0..=highest)
                .filter_map(|version| register.after(&history[at], version))
                .any(|next| self.go_on(left & !(1 << at), next))
        })
    }
}

impl Known {
    /// Returns the register after an operation. `version` is the new version if the operation
    /// brings one, else 0.
    fn after(self, operation: &Operation<u8>, version: u64) -> Option<Known> {
        let current = if self.value.is_some() { self.last } else { 0 };
        let holds = match operation.action {
            Action::Write { condition, .. } | Action::Delete { condition } => match condition {
                Condition::Always => true,
                Condition::Absent => current == 0,
                Condition::Present => current != 0,
                Condition::VersionIs(wanted) => current == wanted.0,
            },
            Action::Read | Action::Increment { .. } => true,
        };
        let written = match operation.action {
            Action::Write { value, .. } => Some(value),
            Action::Increment { by } => Some(self.value.unwrap_or(0).wrapping_add(by)),
            Action::Read | Action::Delete { .. } => None,
        };
        let (answer, next) = match (operation.action, written) {
            _ if !holds => (Outcome::Refused(V(current)), self),
            (_, Some(value)) if version > self.last => {
                (Outcome::Done(V(version), value), Known { last: version, value: Some(value) })
            }
            (_, Some(_)) => return None,
            (Action::Delete { .. }, _) if current != 0 => {
                (Outcome::Deleted(V(current)), Known { value: None, ..self })
            }
            _ => (self.value.map_or(Outcome::Absent, |it| Outcome::Found(V(current), it)), self),
        };
        let brings_version = next.last != self.last;
        let fits = operation.outcome == Outcome::Unknown || operation.outcome == answer;
        (fits && brings_version == (version != 0)).then_some(next)
    }
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        2 => Just(Condition::Always),
        2 => Just(Condition::Absent),
        2 => Just(Condition::Present),
        3 => (0u64..6).prop_map(|version| Condition::VersionIs(V(version))),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        1 => Just(Action::Read),
        4 => (1u64..4, condition()).prop_map(|(value, condition)| write_if(condition, value)),
        2 => condition().prop_map(|condition| Action::Delete { condition }),
        2 => (0u64..3).prop_map(|by| Action::Increment { by }),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Absent),
        (1u64..6, 0u64..5).prop_map(|(version, value)| Outcome::Found(V(version), value)),
        (1u64..6, 0u64..5).prop_map(|(version, value)| Outcome::Done(V(version), value)),
        (1u64..6).prop_map(|version| Outcome::Deleted(V(version))),
        (0u64..6).prop_map(|version| Outcome::Refused(V(version))),
    ]
}

/// Generates operations whose answers at least fit their requests.
fn history(unanswered: u32, count: usize) -> impl Strategy<Value = Vec<Operation<u8>>> {
    let outcome = prop_oneof![unanswered => Just(Outcome::Unknown), 10 => outcome()];
    let operation =
        (0u64..8, 0u64..6, action(), outcome).prop_map(|(called, took, action, outcome)| {
            let (action, outcome) = match (action, outcome) {
                (_, Outcome::Found(..)) => (Action::Read, outcome),
                (
                    Action::Write { value, .. },
                    Outcome::Done(version, _) | Outcome::Deleted(version),
                ) => (action, Outcome::Done(version, value)),
                (Action::Delete { .. }, Outcome::Done(version, _)) => {
                    (action, Outcome::Deleted(version))
                }
                other => other,
            };
            at(called, called + took, action, outcome)
        });
    prop::collection::vec(operation, 1..count).prop_map(|mut history| {
        history.retain(register::answers);
        history
    })
}

/// Returns a correct register's history with some outcomes slightly changed.
fn almost_right(seed: u64, count: usize, changes: usize) -> Vec<Operation<u8>> {
    let mut random = Random::from_seed(!seed);
    let workload = Workload {
        seed,
        operations: count,
        clients: 1 + random.below(4) as usize,
        keys: 1,
        hot: 100,
        unanswered: random.below(8) * 100,
        values: 1 + random.below(3),
        amounts: 1 + random.below(3),
        jump: 1 + random.below(2),
    };
    let slower = 1 + random.below(20);
    let mut history: Vec<Operation<u8>> = record(workload)
        .into_iter()
        .map(|it| {
            // Coarser time makes more operations concurrent.
            let (called, answered) = (it.called / slower, it.answered / slower);
            Operation { key: 0, called, answered, action: it.action, outcome: it.outcome }
        })
        .collect();
    for _ in 0..changes {
        let at = random.below(history.len() as u64) as usize;
        let mut near = |number: u64| (number + random.below(3)).saturating_sub(1);
        let changed = match history[at].outcome {
            Outcome::Found(version, value) => Outcome::Found(V(near(version.0)), near(value)),
            Outcome::Done(version, value) => Outcome::Done(V(near(version.0)), near(value)),
            Outcome::Deleted(version) => Outcome::Deleted(V(near(version.0))),
            Outcome::Refused(version) => Outcome::Refused(V(near(version.0))),
            Outcome::Absent => Outcome::Found(V(near(1)), near(1)),
            Outcome::Unknown => Outcome::Unknown,
        };
        let changed = Operation { outcome: changed, ..history[at].clone() };
        if register::answers(&changed) {
            history[at] = changed;
        }
    }
    history
}

/// Compares the judge with all orders; returns the common verdict.
fn agreed(history: &[Operation<u8>]) -> Result<bool, TestCaseError> {
    let right = Orders::explain(history);
    match check(history) {
        Ok(()) => prop_assert!(right, "accepted: {history:#?}"),
        Err(Violation::SameVersion(..) | Violation::Unexplained { .. }) => {
            prop_assert!(!right, "refused: {history:#?}");
        }
        Err(other) => prop_assert!(false, "{other}"),
    }
    Ok(right)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_judge_agrees_with_trying_every_order(
        history in history(4, 8),
    ) {
        agreed(&history)?;
    }

    #[test]
    fn the_judge_agrees_when_few_operations_are_answered(
        history in history(30, 9),
    ) {
        agreed(&history)?;
    }

    #[test]
    fn the_judge_agrees_on_almost_correct_histories(
        seed in any::<u64>(), count in 2usize..10, changes in 0usize..3,
    ) {
        let right = agreed(&almost_right(seed, count, changes))?;
        prop_assert!(right || changes > 0);
    }
}
