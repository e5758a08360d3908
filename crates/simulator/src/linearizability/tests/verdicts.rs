//! Small histories whose verdict is obvious.

use super::*;

#[test]
fn possible_histories_are_accepted() {
    use Action::{Delete, Increment, Read, Write};
    use Outcome::{Absent, Deleted, Done, Found, Refused, Unknown};
    let if_absent = Condition::Absent;
    let histories = [
        ("nothing", vec![]),
        (
            "a read of a written value",
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
            "increments count up in either order",
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
fn impossible_histories_are_rejected() {
    use Action::{Delete, Increment, Read, Write};
    use Outcome::{Absent, Deleted, Done, Found, Refused, Unknown};
    let histories = [
        ("a read of a value that no client wrote", vec![at(0, 1, Read, Found(V(1), 7))]),
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
