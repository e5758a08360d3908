//! Long histories of a simulated register: they are accepted in a time proportional to their
//! length, and rejected if a single answer is changed.

use super::simulated::{Random, Workload, record};
use super::*;

/// Judges a history, and returns the number of steps.
fn steps(history: &[Operation<u64>]) -> u64 {
    let mut keys: BTreeMap<u64, Vec<&Operation<u64>>> = BTreeMap::new();
    for operation in history {
        keys.entry(operation.key).or_default().push(operation);
    }
    keys.into_values().map(|operations| search::judge(operations).unwrap()).sum()
}

#[test]
fn histories_of_a_correct_register_are_accepted() {
    for seed in 0..400 {
        let workload = Workload {
            seed,
            operations: 400,
            clients: 2 + (seed % 11) as usize,
            keys: 2 + seed % 4,
            unanswered: seed % 7 * 20,
            values: if seed % 2 == 0 { 3 } else { 1 << 40 },
            jump: 1 + seed % 5,
            ..Workload::default()
        };
        assert_eq!(check(&record(workload)), Ok(()), "{workload:?}");
    }
}

#[test]
fn a_hundred_thousand_operations_are_accepted_in_few_steps() {
    let workload = Workload::default();
    for workload in [
        workload,
        Workload { seed: 2, keys: 1, hot: 100, ..workload },
        Workload { seed: 3, clients: 8, hot: 90, unanswered: 50, ..workload },
        Workload { seed: 4, jump: 1, values: 2, ..workload },
        Workload { seed: 5, jump: 1000, unanswered: 20, ..workload },
    ] {
        let history = record(workload);
        assert_eq!(history.len(), 100_000);
        let steps = steps(&history);
        assert!(steps < 100 * 100_000, "{workload:?}: {steps} steps");
    }
}

/// Replaces one answer of a long history, if any can be changed in this way.
type Change = fn(&mut Random, &mut [Operation<u64>]) -> bool;

/// Returns one of the operations that fit, at random.
fn any_of(
    random: &mut Random,
    history: &[Operation<u64>],
    wanted: impl Fn(&Operation<u64>) -> bool,
) -> Option<usize> {
    let all: Vec<usize> = (0..history.len()).filter(|at| wanted(&history[*at])).collect();
    let chosen = random.below(all.len().max(1) as u64) as usize;
    all.get(chosen).copied()
}

/// Returns the highest version that was answered before an operation was called.
fn version_before(history: &[Operation<u64>], operation: &Operation<u64>) -> Version {
    let earlier = |it: &&Operation<u64>| it.key == operation.key && it.answered < operation.called;
    let versions = history.iter().filter(earlier).filter_map(|it| match it.outcome {
        Outcome::Done(version, _) => Some(version),
        _ => None,
    });
    versions.max().unwrap_or_default()
}

/// A read finds a value that was overwritten before the call.
fn read_stale(random: &mut Random, history: &mut [Operation<u64>]) -> bool {
    let is_found = |it: &Operation<u64>| matches!(it.outcome, Outcome::Found(..));
    let Some(late) = any_of(random, history, is_found) else { return false };
    let newest = version_before(history, &history[late]);
    let stale = any_of(random, history, |it| {
        let is_old = matches!(it.outcome, Outcome::Found(version, _) if version < newest);
        it.key == history[late].key && is_old
    });
    stale.is_some_and(|stale| {
        history[late].outcome = history[stale].outcome;
        true
    })
}

/// An increment, on the key without missing answers, counts from an earlier value.
fn lose_an_update(random: &mut Random, history: &mut [Operation<u64>]) -> bool {
    change_a_sum(random, history, |sum, by| sum.wrapping_sub(by))
}

/// An increment, on the key without missing answers, happens twice.
fn increment_twice(random: &mut Random, history: &mut [Operation<u64>]) -> bool {
    change_a_sum(random, history, |sum, by| sum.wrapping_add(by))
}

fn change_a_sum(
    random: &mut Random,
    history: &mut [Operation<u64>],
    change: fn(u64, u64) -> u64,
) -> bool {
    let is_increment = |it: &Operation<u64>| it.key == 1 && added(it).is_some();
    let Some(at) = any_of(random, history, is_increment) else { return false };
    let Some((version, sum, by)) = added(&history[at]) else { return false };
    history[at].outcome = Outcome::Done(version, change(sum, by));
    true
}

fn added(operation: &Operation<u64>) -> Option<(Version, u64, u64)> {
    match (operation.action, operation.outcome) {
        (Action::Increment { by }, Outcome::Done(version, sum)) => Some((version, sum, by)),
        _ => None,
    }
}

/// A write is refused, and its value is read nevertheless.
fn refuse_what_happened(random: &mut Random, history: &mut [Operation<u64>]) -> bool {
    let Some(read) = any_of(random, history, |it| matches!(it.outcome, Outcome::Found(..))) else {
        return false;
    };
    let Outcome::Found(seen, value) = history[read].outcome else { return false };
    let key = history[read].key;
    let written = history.iter().position(|it| {
        let is_conditional =
            matches!(it.action, Action::Write { condition, .. } if condition != Condition::Always);
        it.key == key && is_conditional && it.outcome == Outcome::Done(seen, value)
    });
    let Some(written) = written else { return false };
    let before = version_before(history, &history[written]);
    for version in [before, Version::NONE, Version(1)] {
        let outcome = Outcome::Refused(version);
        let refused = Operation { outcome, ..history[written].clone() };
        if register::answers(&refused) {
            history[written] = refused;
            return true;
        }
    }
    false
}

/// An update gets a version below that of an update that was answered before its call.
fn take_a_version_back(random: &mut Random, history: &mut [Operation<u64>]) -> bool {
    let is_done = |it: &Operation<u64>| matches!(it.outcome, Outcome::Done(..));
    let Some(at) = any_of(random, history, is_done) else { return false };
    let before = version_before(history, &history[at]);
    let Outcome::Done(_, value) = history[at].outcome else { return false };
    if before > Version(1) {
        history[at].outcome = Outcome::Done(Version(1 + random.below(before.0 - 1)), value);
    }
    before > Version(1)
}

const CHANGES: [(&str, Change); 5] = [
    ("a stale read", read_stale),
    ("a lost update", lose_an_update),
    ("an increment that happened twice", increment_twice),
    ("a refused update that happened", refuse_what_happened),
    ("a version that went back", take_a_version_back),
];

/// Changes an answer in this way, wherever that is possible.
fn changed(change: Change, workload: Workload) -> Vec<Operation<u64>> {
    let mut random = Random::from_seed(!workload.seed);
    let mut history = record(workload);
    let done = (0..100).any(|_| change(&mut random, &mut history));
    assert!(done, "nothing to change: {workload:?}");
    history
}

fn is_refused(history: &[Operation<u64>]) -> bool {
    matches!(check(history), Err(Violation::Unexplained { .. } | Violation::SameVersion(..)))
}

#[test]
fn a_single_wrong_answer_is_refused() {
    for (name, change) in CHANGES {
        for seed in 0..100 {
            let workload = Workload { seed, operations: 3000, keys: 4, ..Workload::default() };
            assert!(is_refused(&changed(change, workload)), "{name}: {workload:?}");
        }
    }
}

#[test]
fn a_single_wrong_answer_among_a_hundred_thousand_is_refused() {
    for (name, change) in CHANGES {
        let workload = Workload { seed: 7, ..Workload::default() };
        assert!(is_refused(&changed(change, workload)), "{name}");
    }
}
