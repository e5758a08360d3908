//! Many objects are read and updated in one message, and each has its own outcome.

use crate::{Pair, TABLE, identity, read_body};
use thunderhead_log::TableId;
use thunderhead_rpc::Opcode;
use thunderhead_wire::operations::{ObjectHead, PartHead, UpdateKind, UpdatePart};
use thunderhead_wire::{Condition, LeaseId, Sequence, Status};
use zerocopy::IntoBytes;

#[test]
fn many_are_read_and_updated_in_one_message() {
    let mut pair = Pair::small();
    let mut body = identity(LeaseId(9), 0, 1).as_bytes().to_vec();
    let mut sequence = 0;
    let mut put = |kind, key: &[u8], condition, argument: &[u8]| {
        let head = &ObjectHead::new(TABLE, key.len(), condition, 0);
        sequence += 1;
        UpdatePart { head, kind, key, argument }.put(Sequence(sequence), &mut body);
    };
    for number in 0..70u64 {
        put(UpdateKind::Write, &number.to_be_bytes(), Condition::Always, &[number as u8; 100]);
    }
    put(UpdateKind::Delete, &[0; 8], Condition::Absent, b"");
    let by = 3u64.to_le_bytes();
    put(UpdateKind::Increment, b"n", Condition::Always, &by);
    let answer = pair.call(Opcode::UpdateMany, &body).unwrap();
    assert_eq!(pair.call(Opcode::UpdateMany, &body).as_ref(), Ok(&answer), "once");
    let mut rest = answer.as_slice();
    let mut parts = Vec::new();
    while let Some((part, value, behind)) = PartHead::take(rest) {
        parts.push((part.status(), part.version(), value.to_vec()));
        rest = behind;
    }
    assert_eq!(parts.len(), 72);
    assert!(parts[..70].iter().all(|(status, version, _)| *status == 0 && version.0 > 0));
    assert_eq!(parts[70].0, Status::ConditionFailed.code());
    assert_eq!(parts[70].1, parts[0].1);
    assert_eq!(parts[71].2, by);

    let mut body = Vec::new();
    for number in (0..70u64).chain([1000]) {
        body.extend(read_body(&number.to_be_bytes(), Condition::Always));
    }
    let answer = pair.call(Opcode::ReadMany, &body).unwrap();
    let mut rest = answer.as_slice();
    for number in 0..70 {
        let (head, value, behind) = PartHead::take(rest).unwrap();
        assert_eq!((head.status(), value), (0, &[number; 100][..]));
        rest = behind;
    }
    let (last, value, rest) = PartHead::take(rest).unwrap();
    assert_eq!((last.status(), value, rest), (Status::NotFound.code(), &[][..], &[][..]));
}

#[test]
fn an_update_of_a_table_that_is_not_here_keeps_no_other_of_its_message_back() {
    let mut pair = Pair::small();
    let mut body = identity(LeaseId(9), 0, 1).as_bytes().to_vec();
    for number in 0..100u64 {
        let table = if number % 5 == 3 { TableId(TABLE.0 + 1) } else { TABLE };
        let key = number.to_be_bytes();
        let head = &ObjectHead::new(table, key.len(), Condition::Always, 0);
        let part = UpdatePart { head, kind: UpdateKind::Write, key: &key, argument: &key };
        part.put(Sequence(number + 1), &mut body);
    }
    let answer = pair.call(Opcode::UpdateMany, &body).unwrap();
    let mut rest = answer.as_slice();
    for number in 0..100u64 {
        let (head, _, behind) = PartHead::take(rest).unwrap();
        assert_eq!(head.status() == 0, number % 5 != 3, "{number}");
        rest = behind;
        let read = pair.call(Opcode::Read, &read_body(&number.to_be_bytes(), Condition::Always));
        let value = read.ok().map(|it| it[8..].to_vec());
        assert_eq!(value, (number % 5 != 3).then(|| number.to_be_bytes().to_vec()));
    }
}
