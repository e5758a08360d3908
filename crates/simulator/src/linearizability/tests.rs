use super::*;
use proptest::prelude::*;

const V: fn(u64) -> Version = Version;

fn write(value: u64) -> Action {
    Action::Write { value, condition: Condition::Always }
}

fn at(called: u64, answered: u64, action: Action, outcome: Outcome) -> Operation<u8> {
    Operation { key: 0, called, answered, action, outcome }
}

#[test]
fn what_one_register_can_do_is_accepted() {
    use Action::{Delete, Increment, Read, Write};
    use Outcome::{Absent, Deleted, Done, Found, Refused, Unknown};
    let if_absent = Condition::Absent;
    let histories = [
        ("nothing", vec![]),
        (
            "a read of what was written",
            vec![at(0, 1, write(7), Done(V(1), 7)), at(2, 3, Read, Found(V(1), 7))],
        ),
        (
            "reads before, within and after a concurrent write",
            vec![
                at(0, 9, write(7), Done(V(1), 7)),
                at(1, 2, Read, Absent),
                at(3, 4, Read, Found(V(1), 7)),
            ],
        ),
        (
            "versions may jump, also across a delete",
            vec![
                at(0, 1, write(7), Done(V(3), 7)),
                at(2, 3, Delete { condition: Condition::Present }, Deleted(V(3))),
                at(4, 5, Read, Absent),
                at(6, 7, Write { value: 8, condition: if_absent }, Done(V(9), 8)),
            ],
        ),
        (
            "increments count up, whoever was first",
            vec![
                at(0, 9, Increment { by: 2 }, Done(V(2), 5)),
                at(0, 9, Increment { by: 3 }, Done(V(1), 3)),
                at(3, 4, Read, Found(V(1), 3)),
            ],
        ),
        (
            "an unanswered write that happened late",
            vec![
                at(0, 0, write(7), Unknown),
                at(1, 2, Read, Absent),
                at(5, 6, Read, Found(V(1), 7)),
            ],
        ),
        (
            "an unanswered write that never happened",
            vec![
                at(0, 0, write(7), Unknown),
                at(1, 2, Read, Absent),
                at(3, 4, write(8), Done(V(1), 8)),
            ],
        ),
        (
            "an unanswered delete that happened",
            vec![
                at(0, 1, write(7), Done(V(1), 7)),
                at(2, 0, Delete { condition: Condition::Always }, Unknown),
                at(3, 4, Read, Absent),
                at(3, 9, Read, Found(V(1), 7)),
            ],
        ),
        (
            "a refusal that is the first to tell a version",
            vec![
                at(0, 0, write(7), Unknown),
                at(0, 0, write(8), Unknown),
                at(1, 9, Write { value: 9, condition: if_absent }, Refused(V(5))),
                at(1, 9, Read, Found(V(4), 7)),
                at(10, 11, Read, Found(V(5), 8)),
            ],
        ),
        (
            "a condition on a version that only an unanswered write can have had",
            vec![
                at(0, 0, write(7), Unknown),
                at(2, 3, Write { value: 8, condition: Condition::VersionIs(V(4)) }, Done(V(6), 8)),
            ],
        ),
    ];
    for (name, history) in histories {
        assert_eq!(check(&history), Ok(()), "{name}");
    }
}

#[test]
fn what_no_register_can_do_is_refused() {
    use Action::{Delete, Increment, Read, Write};
    use Outcome::{Absent, Deleted, Done, Found, Refused, Unknown};
    let histories = [
        ("a read of what nobody wrote", vec![at(0, 1, Read, Found(V(1), 7))]),
        (
            "a read that misses a finished write",
            vec![at(0, 1, write(7), Done(V(1), 7)), at(2, 3, Read, Absent)],
        ),
        (
            "a stale read",
            vec![
                at(0, 1, write(7), Done(V(1), 7)),
                at(2, 3, write(8), Done(V(2), 8)),
                at(4, 5, Read, Found(V(1), 7)),
            ],
        ),
        (
            "two reads that see two writes in different orders",
            vec![
                at(0, 9, write(7), Done(V(1), 7)),
                at(0, 9, write(8), Done(V(2), 8)),
                at(1, 2, Read, Found(V(2), 8)),
                at(3, 4, Read, Found(V(1), 7)),
            ],
        ),
        (
            "a version that goes back",
            vec![
                at(0, 1, write(7), Done(V(5), 7)),
                at(2, 3, Delete { condition: Condition::Always }, Deleted(V(5))),
                at(4, 5, write(8), Done(V(4), 8)),
            ],
        ),
        (
            "an update that happened twice",
            vec![at(0, 1, Increment { by: 1 }, Done(V(1), 1)), at(2, 3, Read, Found(V(2), 2))],
        ),
        (
            "a lost update",
            vec![
                at(0, 1, Increment { by: 1 }, Done(V(1), 1)),
                at(2, 3, Increment { by: 1 }, Done(V(2), 1)),
            ],
        ),
        (
            "an unanswered write that happened before it was called",
            vec![at(0, 1, Read, Found(V(1), 7)), at(2, 0, write(7), Unknown)],
        ),
        (
            "an unanswered write that happened twice",
            vec![
                at(0, 0, write(7), Unknown),
                at(1, 2, Read, Found(V(1), 7)),
                at(3, 4, write(8), Done(V(2), 8)),
                at(5, 6, Read, Found(V(3), 7)),
            ],
        ),
        (
            "a condition that did not hold",
            vec![
                at(0, 1, write(7), Done(V(1), 7)),
                at(2, 3, Write { value: 8, condition: Condition::Absent }, Done(V(2), 8)),
            ],
        ),
        (
            "a refusal though the condition held",
            vec![
                at(0, 1, write(7), Done(V(1), 7)),
                at(2, 3, Delete { condition: Condition::Absent }, Refused(Version::NONE)),
            ],
        ),
        (
            "one version for two writes",
            vec![at(0, 1, write(7), Done(V(1), 7)), at(2, 3, write(8), Done(V(1), 8))],
        ),
        (
            "no version in between for an unanswered write that was seen",
            vec![
                at(0, 1, write(7), Done(V(1), 7)),
                at(2, 0, write(8), Unknown),
                at(2, 9, Increment { by: 1 }, Done(V(2), 9)),
            ],
        ),
    ];
    for (name, history) in histories {
        assert!(check(&history).is_err(), "{name}");
    }
}

#[test]
fn keys_are_judged_apart() {
    let done = Outcome::Done(V(1), 7);
    let mut history = vec![at(0, 1, write(7), done), at(2, 3, Action::Read, Outcome::Absent)];
    assert!(check(&history).is_err());
    history[1].key = 1;
    assert_eq!(check(&history), Ok(()));
}

/// A register that does one thing at a time, and clients of it that overlap.
fn recorded(seed: u64, count: usize, keys: u64, clients: usize) -> Vec<Operation<u64>> {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = move |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let mut registers: BTreeMap<u64, (Version, Option<u64>)> = BTreeMap::new();
    let mut free_at = vec![0u64; clients];
    let (mut history, mut now) = (Vec::new(), 0);
    for number in 0..count as u64 {
        // Things happen at `now`, one by one; calls lie before, answers after.
        now += 2;
        let client = below(clients as u64) as usize;
        let called = free_at[client].max(now.saturating_sub(below(40)));
        if called > now {
            continue;
        }
        let answered = now + below(40);
        free_at[client] = answered + 1;
        let key = below(keys);
        let (last, value) = registers.get(&key).copied().unwrap_or_default();
        let current = if value.is_some() { last } else { Version::NONE };
        let condition = match below(8) {
            0 => Condition::Absent,
            1 => Condition::Present,
            2 => Condition::VersionIs(Version(last.0 - below(2).min(last.0))),
            _ => Condition::Always,
        };
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => current == Version::NONE,
            Condition::Present => current != Version::NONE,
            Condition::VersionIs(version) => current == version,
        };
        let next = Version(last.0 + 1 + below(3));
        let (action, outcome, after) = match below(10) {
            0..5 => {
                let outcome = value.map_or(Outcome::Absent, |it| Outcome::Found(last, it));
                (Action::Read, outcome, (last, value))
            }
            5..7 if holds => {
                let action = Action::Write { value: number, condition };
                (action, Outcome::Done(next, number), (next, Some(number)))
            }
            5..7 => {
                let action = Action::Write { value: number, condition };
                (action, Outcome::Refused(current), (last, value))
            }
            7 if holds => {
                let deleted =
                    if value.is_some() { Outcome::Deleted(last) } else { Outcome::Absent };
                (Action::Delete { condition }, deleted, (last, None))
            }
            7 => (Action::Delete { condition }, Outcome::Refused(current), (last, value)),
            _ => {
                let sum = value.unwrap_or(0).wrapping_add(3);
                (Action::Increment { by: 3 }, Outcome::Done(next, sum), (next, Some(sum)))
            }
        };
        // Some answers are lost, and some requests before they did anything.
        let lost = below(25);
        if lost != 0 {
            registers.insert(key, after);
        }
        let outcome = if lost <= 1 { Outcome::Unknown } else { outcome };
        history.push(Operation { key, called, answered, action, outcome });
    }
    history
}

#[test]
fn histories_of_a_real_register_are_accepted() {
    for seed in 0..300 {
        let history = recorded(seed, 300, 1 + seed % 4, 2 + (seed % 7) as usize);
        assert_eq!(check(&history), Ok(()), "seed {seed}");
    }
    assert_eq!(check(&recorded(1, 100_000, 100, 32)), Ok(()));
}

#[test]
fn a_stale_read_anywhere_in_a_long_history_is_found() {
    let mut found = 0;
    for seed in 0..100 {
        let mut history = recorded(seed, 2_000, 3, 8);
        // A read gets the answer of an earlier one, with an answered write and then some between.
        let reads: Vec<usize> = (0..history.len())
            .filter(|at| history[*at].key == 0)
            .filter(|at| matches!(history[*at].outcome, Outcome::Found(..)))
            .collect();
        let (early, late) = (reads[reads.len() / 3], reads[reads.len() / 2]);
        let stale = history[early].outcome;
        if history[late].outcome == stale {
            continue;
        }
        let overwritten = history.iter().any(|it| {
            let newer = match (it.outcome, stale) {
                (Outcome::Done(version, _), Outcome::Found(old, _)) => version > old,
                _ => false,
            };
            it.key == 0 && newer && it.answered < history[late].called
        });
        if overwritten {
            history[late].outcome = stale;
            assert!(check(&history).is_err(), "seed {seed}");
            found += 1;
        }
    }
    assert!(found > 50);
}

/// Tries every order of every choice of unanswered operations.
fn explained_by_any_order(history: &[Operation<u8>]) -> bool {
    fn go(history: &[Operation<u8>], left: Vec<usize>, state: State) -> bool {
        let answered = left.iter().filter(|at| history[**at].outcome != Outcome::Unknown);
        let Some(horizon) = answered.map(|at| history[*at].answered).min() else { return true };
        left.iter().any(|at| {
            let operation = &history[*at];
            let next = state.after(operation.action, operation.outcome);
            operation.called <= horizon
                && next.is_some_and(|next| {
                    let left = left.iter().copied().filter(|other| other != at).collect();
                    go(history, left, next)
                })
        })
    }
    let asked: Vec<usize> = (0..history.len())
        .filter(|at| {
            let Operation { action, outcome, .. } = history[*at];
            !(outcome == Outcome::Unknown && action == Action::Read)
        })
        .collect();
    go(history, asked, State::default())
}

fn operation() -> impl Strategy<Value = Operation<u8>> {
    let condition = prop_oneof![
        Just(Condition::Always),
        Just(Condition::Absent),
        Just(Condition::Present),
        (0u64..5).prop_map(|version| Condition::VersionIs(Version(version))),
    ];
    let action = prop_oneof![
        Just(Action::Read),
        (1u64..3, condition.clone())
            .prop_map(|(value, condition)| Action::Write { value, condition }),
        condition.prop_map(|condition| Action::Delete { condition }),
        Just(Action::Increment { by: 1 }),
    ];
    let outcome = prop_oneof![
        2 => Just(Outcome::Unknown),
        3 => (1u64..5, 1u64..3).prop_map(|(version, value)| Outcome::Found(V(version), value)),
        2 => Just(Outcome::Absent),
        4 => (1u64..5, 1u64..3).prop_map(|(version, value)| Outcome::Done(V(version), value)),
        2 => (1u64..5).prop_map(|version| Outcome::Deleted(V(version))),
        2 => (0u64..5).prop_map(|version| Outcome::Refused(V(version))),
    ];
    (0u64..8, 0u64..6, action, outcome).prop_map(|(called, took, action, outcome)| Operation {
        key: 0,
        called,
        answered: called + took,
        action,
        outcome,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The judge says what trying everything says, on histories that mostly make some sense.
    #[test]
    fn the_judge_is_as_good_as_trying_every_order(
        mut history in prop::collection::vec(operation(), 1..7),
    ) {
        history.retain(register::answers);
        match check(&history) {
            Ok(()) => prop_assert!(explained_by_any_order(&history)),
            Err(Violation::SameVersion(..)) => prop_assert!(!explained_by_any_order(&history)),
            Err(Violation::Unexplained { .. }) => {
                prop_assert!(!explained_by_any_order(&history))
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
