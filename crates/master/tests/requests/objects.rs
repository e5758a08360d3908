//! Requests for one object: it is written, read and deleted, and conditions are checked.

use crate::{Pair, read_body, status, update_body, version};
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{Condition, Status, Version};

#[test]
fn objects_are_written_read_and_deleted() {
    let mut pair = Pair::small();
    assert_eq!(status(&pair.read(b"k")), Status::NotFound);
    let first = version(&pair.update(Opcode::Write, b"k", b"one"));
    let second = version(&pair.update(Opcode::Write, b"k", b"two"));
    assert!(second > first && first > 0);
    let read = pair.read(b"k");
    assert_eq!(version(&read), second);
    assert_eq!(&read.unwrap()[8..], b"two");
    assert_eq!(version(&pair.update(Opcode::Delete, b"k", b"")), second);
    assert_eq!(version(&pair.update(Opcode::Delete, b"k", b"")), 0, "there was none");
    assert_eq!(status(&pair.read(b"k")), Status::NotFound);
    assert!(version(&pair.update(Opcode::Write, b"k", b"three")) > second, "it never goes back");
}

#[test]
fn conditions_hold_operations_back_and_tell_the_version() {
    let mut pair = Pair::small();
    let now = version(&pair.update(Opcode::Write, b"k", b"v"));
    let failed = CallError::Refused { status: Status::ConditionFailed, hint: 0, detail: now };
    let other = Condition::VersionIs(Version(now + 1));
    for condition in [Condition::Absent, other, Condition::VersionBelow(Version(now))] {
        let read = pair.call(Opcode::Read, &read_body(b"k", condition));
        assert_eq!(read, Err(failed));
        for (opcode, argument) in
            [(Opcode::Write, &b"w"[..]), (Opcode::Delete, b""), (Opcode::Increment, &[0; 8])]
        {
            let body = update_body(Identity::NONE, b"k", condition, 0, argument);
            assert_eq!(pair.call(opcode, &body), Err(failed), "{opcode} {condition:?}");
        }
    }
    let same = Condition::VersionIs(Version(now));
    let body = update_body(Identity::NONE, b"k", same, 0, b"w");
    assert!(version(&pair.call(Opcode::Write, &body)) > now);
}
