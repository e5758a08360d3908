//! A shard refuses requests that are malformed or too long, with the reason, and goes on. No random
//! bytes upset it.

use crate::{Pair, TABLE, read_body, status, update_body};
use proptest::prelude::*;
use thunderhead_log::TableId;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_wire::operations::{Identity, ObjectHead};
use thunderhead_wire::{Condition, Status};
use zerocopy::IntoBytes;

#[test]
fn requests_that_make_no_sense_are_refused_with_the_reason() {
    let mut pair = Pair::small();
    let long = vec![1; 70_000];
    let refusals: [(Opcode, Vec<u8>, Status); 12] = [
        (
            Opcode::Write,
            update_body(Identity::NONE, b"", Condition::Always, 0, b"v"),
            Status::KeyEmpty,
        ),
        (
            Opcode::Write,
            update_body(Identity::NONE, &long, Condition::Always, 0, b"v"),
            Status::KeyTooLong,
        ),
        (
            Opcode::Write,
            update_body(Identity::NONE, b"k", Condition::Always, 0, &long),
            Status::ValueTooLong,
        ),
        (
            Opcode::Increment,
            update_body(Identity::NONE, b"k", Condition::Always, 0, b"1234567"),
            Status::Malformed,
        ),
        (
            Opcode::Delete,
            update_body(Identity::NONE, b"k", Condition::Always, 0, b"?"),
            Status::Malformed,
        ),
        (Opcode::Read, [read_body(b"k", Condition::Always), vec![0]].concat(), Status::Malformed),
        (Opcode::Read, Vec::new(), Status::Malformed),
        (Opcode::Write, vec![0; 47], Status::Malformed),
        (Opcode::ReadMany, vec![255; 30], Status::Malformed),
        (Opcode::ReadMany, read_body(b"k", Condition::Always).repeat(129), Status::Malformed),
        (Opcode::UpdateMany, vec![0; 25], Status::Malformed),
        (Opcode::Echo, vec![0; 4], Status::UnknownOpcode),
    ];
    for (opcode, body, expected) in refusals {
        assert_eq!(status(&pair.call(opcode, &body)), expected, "{opcode} {}", body.len());
    }
    let head = ObjectHead::new(TableId(8), 1, Condition::Always, 0);
    let elsewhere = [head.as_bytes(), b"k"].concat();
    assert_eq!(status(&pair.call(Opcode::Read, &elsewhere)), Status::Moved);
    assert!(pair.update(Opcode::Write, b"k", b"v").is_ok(), "and it goes on");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_upset_a_shard(
        requests in prop::collection::vec((0usize..8, prop::collection::vec(any::<u8>(), 0..120)), 1..40)
    ) {
        const OPCODES: [Opcode; 8] = [
            Opcode::Read,
            Opcode::Write,
            Opcode::Delete,
            Opcode::Increment,
            Opcode::WriteNumber,
            Opcode::ReadMany,
            Opcode::UpdateMany,
            Opcode::Enumerate,
        ];
        let mut pair = Pair::small();
        for (opcode, mut body) in requests {
            // Messages with nearly correct heads reach further checks.
            if body.len() > 60 {
                let at = if OPCODES[opcode] == Opcode::Read { 0 } else { 24 };
                body[at..at + 8].copy_from_slice(&TABLE.0.to_le_bytes());
                body[at + 16..at + 22].copy_from_slice(&[4, 0, 0, 0, 0, 0]);
            }
            let ended = pair.call(OPCODES[opcode], &body);
            prop_assert!(matches!(ended, Ok(_) | Err(CallError::Refused { .. })), "{ended:?}");
        }
    }
}
