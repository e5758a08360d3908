//! A shard does an update with an identity once. Copies of the update get the same answer, alone or
//! among others in a message.

use crate::{Pair, TABLE, identity, status, update_body, version};
use thunderhead_rpc::Opcode;
use thunderhead_wire::operations::{ObjectHead, PartHead, UpdateKind, UpdatePart};
use thunderhead_wire::{Condition, LeaseId, Sequence, Status};
use zerocopy::IntoBytes;

#[test]
fn an_update_with_an_identity_is_done_once() {
    let mut pair = Pair::small();
    let body = |sequence, first, condition: Condition, by: u64| {
        let identity = identity(LeaseId(3), sequence, first);
        update_body(identity, b"n", condition, 0, &by.to_le_bytes())
    };
    let one = pair.call(Opcode::Increment, &body(1, 1, Condition::Always, 5));
    let again = pair.call(Opcode::Increment, &body(1, 1, Condition::Always, 5));
    assert_eq!(one, again);
    // A refusal is an outcome like any other, although the object has changed since.
    let refused = pair.call(Opcode::Increment, &body(2, 1, Condition::Absent, 5));
    assert_eq!(status(&refused), Status::ConditionFailed);
    pair.update(Opcode::Delete, b"n", b"").unwrap();
    assert_eq!(pair.call(Opcode::Increment, &body(2, 1, Condition::Absent, 5)), refused);
    let delete = update_body(identity(LeaseId(3), 3, 1), b"n", Condition::Always, 0, b"");
    assert_eq!(version(&pair.call(Opcode::Delete, &delete)), 0);
    pair.update(Opcode::Write, b"n", b"v").unwrap();
    assert_eq!(version(&pair.call(Opcode::Delete, &delete)), 0, "it was done before");
    assert!(pair.read(b"n").is_ok());
    assert_eq!(pair.node.service().statistics().records, 3);
    // The client has all answers before 4: their records go, and a later request is a delayed copy.
    pair.call(Opcode::Increment, &body(4, 4, Condition::Absent, 5)).unwrap_err();
    assert_eq!(pair.node.service().statistics().records, 1);
    let late = pair.call(Opcode::Increment, &body(1, 1, Condition::Always, 5));
    assert_eq!(status(&late), Status::Stale);
}

/// Sends one message with many updates, each of a key of its own, and returns their outcomes.
fn many(
    pair: &mut Pair,
    first: u64,
    parts: &[(u64, UpdateKind, Condition)],
) -> Vec<(u16, u64, Vec<u8>)> {
    let mut body = identity(LeaseId(9), 0, first).as_bytes().to_vec();
    for (sequence, kind, condition) in parts {
        let (key, by) = ((*sequence % 49).to_be_bytes(), sequence.to_le_bytes());
        let argument = if *kind == UpdateKind::Delete { &[][..] } else { &by };
        let head = &ObjectHead::new(TABLE, key.len(), *condition, 0);
        UpdatePart { head, kind: *kind, key: &key, argument }.put(Sequence(*sequence), &mut body);
    }
    let answer = pair.call(Opcode::UpdateMany, &body).unwrap();
    let (mut rest, mut parts) = (answer.as_slice(), Vec::new());
    while let Some((part, value, behind)) = PartHead::take(rest) {
        parts.push((part.status(), part.version().0, value.to_vec()));
        rest = behind;
    }
    parts
}

#[test]
fn updates_of_one_message_are_done_once_however_they_are_sent_again() {
    let mut pair = Pair::small();
    let sent: Vec<(u64, UpdateKind, Condition)> = (1..=100)
        .map(|sequence| match sequence % 7 {
            0 => (sequence, UpdateKind::Delete, Condition::Always),
            1 => (sequence, UpdateKind::Write, Condition::Absent),
            2 => (sequence, UpdateKind::Increment, Condition::Always),
            3 => (sequence, UpdateKind::WriteNumber, Condition::Always),
            4 => (sequence, UpdateKind::Write, Condition::Present),
            _ => (sequence, UpdateKind::Write, Condition::Always),
        })
        .collect();
    let answers = many(&mut pair, 1, &sent);
    assert!(answers.iter().any(|it| it.0 == Status::ConditionFailed.code()));
    assert_eq!(pair.node.service().statistics().records, 100);
    // The updates are repeated as a whole, in pieces, backwards, singly, and mixed with new ones;
    // the same update comes twice in a message.
    assert_eq!(many(&mut pair, 1, &sent), answers);
    for (sent, answers) in sent.chunks(13).zip(answers.chunks(13)) {
        assert_eq!(many(&mut pair, 1, sent), answers);
        let (mut sent, mut answers) = (sent.to_vec(), answers.to_vec());
        sent.reverse();
        answers.reverse();
        assert_eq!(many(&mut pair, 1, &sent), answers);
    }
    let mut mixed: Vec<_> = sent.iter().step_by(9).copied().collect();
    let expected: Vec<_> = answers.iter().step_by(9).cloned().collect();
    for at in (0..expected.len()).rev() {
        let sequence = 200 + at as u64;
        mixed.insert(at, (sequence, UpdateKind::Increment, Condition::Always));
        mixed.insert(at, (sequence, UpdateKind::Increment, Condition::Always));
    }
    let answered = many(&mut pair, 1, &mixed);
    for (at, expected) in expected.iter().enumerate() {
        assert_eq!(&answered[at * 3 + 2], expected);
        assert_eq!(answered[at * 3], answered[at * 3 + 1], "twice in a message");
    }
    // They come one by one, as from a client with one update left.
    for (at, (sequence, ..)) in sent.iter().enumerate().filter(|(_, it)| it.1 == UpdateKind::Write)
    {
        let (key, by) = ((*sequence % 49).to_be_bytes(), sequence.to_le_bytes());
        let body = update_body(identity(LeaseId(9), *sequence, 1), &key, sent[at].2, 0, &by);
        let ended = pair.call(Opcode::Write, &body);
        assert_eq!(answers[at].0, ended.as_ref().map_or_else(|_| status(&ended).code(), |_| 0));
    }
    // The client has some answers: the remaining updates are still answered.
    let records = pair.node.service().statistics().records;
    many(&mut pair, 41, &[(300, UpdateKind::Write, Condition::Always)]);
    assert_eq!(pair.node.service().statistics().records, records - 40 + 1);
    assert_eq!(many(&mut pair, 41, &sent[40..]), &answers[40..]);
    assert!(many(&mut pair, 41, &sent[..40]).iter().all(|it| it.0 == Status::Stale.code()));
    many(&mut pair, 301, &[(301, UpdateKind::Write, Condition::Always)]);
    assert_eq!(pair.node.service().statistics().records, 1, "the new one");
}
