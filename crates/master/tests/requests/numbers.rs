//! Increments of whole numbers and floating-point numbers, and their refusals.

use crate::{Ended, Pair, identity, status, update_body, version};
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_wire::operations::{FLOAT, Identity};
use thunderhead_wire::{Condition, LeaseId, Status};

#[test]
fn numbers_are_added_to_and_what_is_none_is_refused() {
    let mut pair = Pair::small();
    let add = |pair: &mut Pair, by: i64| pair.update(Opcode::Increment, b"n", &by.to_le_bytes());
    let sum = |ended: Ended| i64::from_le_bytes(ended.unwrap()[8..].try_into().unwrap());
    assert_eq!(sum(add(&mut pair, 5)), 5, "an absent object counts as 0");
    assert_eq!(sum(add(&mut pair, -7)), -2);
    assert_eq!(sum(add(&mut pair, i64::MAX)), i64::MAX - 2);
    assert_eq!(status(&add(&mut pair, 3)), Status::Overflow);
    assert_eq!(sum(add(&mut pair, 2)), i64::MAX, "the refused one has changed nothing");
    pair.update(Opcode::Write, b"n", b"text").unwrap();
    assert_eq!(status(&add(&mut pair, 1)), Status::NotANumber);
    pair.update(Opcode::Write, b"n", b"12345678").unwrap();
    assert_eq!(status(&add(&mut pair, 1)), Status::NotANumber, "8 bytes are no number either");
    let now = version(&pair.update(Opcode::WriteNumber, b"n", &40i64.to_le_bytes()));
    assert_eq!(sum(add(&mut pair, 2)), 42);
    assert_eq!(pair.read(b"n").unwrap()[8..], 42i64.to_le_bytes(), "reads return the 8 bytes");

    let float = |pair: &mut Pair, by: f64| {
        let body = update_body(Identity::NONE, b"f", Condition::Always, FLOAT, &by.to_le_bytes());
        pair.call(Opcode::Increment, &body)
    };
    let read = float(&mut pair, 1.5).and_then(|_| float(&mut pair, 0.25)).unwrap();
    assert_eq!(f64::from_le_bytes(read[8..].try_into().unwrap()), 1.75);
    assert!(float(&mut pair, f64::MAX).is_ok());
    assert_eq!(status(&float(&mut pair, f64::MAX)), Status::Overflow);
    assert_eq!(status(&float(&mut pair, f64::NAN)), Status::Overflow);
    // Whole numbers and floating-point numbers are different kinds.
    let body = update_body(Identity::NONE, b"f", Condition::Always, 0, &1i64.to_le_bytes());
    assert_eq!(status(&pair.call(Opcode::Increment, &body)), Status::NotANumber);
    let body = update_body(Identity::NONE, b"n", Condition::Always, FLOAT, &1f64.to_le_bytes());
    let refused = CallError::Refused { status: Status::NotANumber, hint: 0, detail: now + 1 };
    assert_eq!(pair.call(Opcode::Increment, &body), Err(refused), "with the object's version");
    for short in [&b""[..], b"1234567", b"123456789"] {
        let written = pair.update(Opcode::WriteNumber, b"n", short);
        assert_eq!(status(&written), Status::Malformed, "a number has 8 bytes");
    }
    // Each update under an identity has one outcome.
    let body = update_body(identity(LeaseId(9), 1, 1), b"f", Condition::Always, 0, &[1; 8]);
    assert_eq!(status(&pair.call(Opcode::Increment, &body)), Status::NotANumber);
    pair.update(Opcode::Delete, b"f", b"").unwrap();
    assert_eq!(status(&pair.call(Opcode::Increment, &body)), Status::NotANumber, "as before");
}
