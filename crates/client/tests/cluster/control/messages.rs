//! Operations that begin together share messages. Each has its own result, also if another one is
//! cancelled or if one answer would be too long for all.

use super::{Call, Stage, only};
use std::time::Duration;
use thunderhead_client::{Action, Answer, Condition, Operation, Status};
use thunderhead_rpc::{CallError, Opcode};

#[test]
fn operations_begun_at_the_same_time_share_messages() {
    let mut stage = Stage::new();
    let table = stage.create("t");
    stage.write(table);
    assert!(stage.written().is_ok());
    for _ in 0..300 {
        stage.write(table);
    }
    let many: Vec<Call> = stage.calls();
    let opcodes: Vec<Opcode> = many.iter().map(|call| call.opcode).collect();
    assert_eq!(opcodes, [Opcode::UpdateMany; 8], "40 in each but the last");
}

#[test]
fn a_message_has_fewer_reads_after_an_answer_was_too_long() {
    let mut stage = Stage::new();
    let table = stage.create("t");
    let read = |stage: &mut Stage, count: usize| {
        let operation = |number: usize| Operation {
            table,
            key: number.to_be_bytes().to_vec(),
            condition: Condition::Always,
            action: Action::Read,
        };
        let until = stage.now + Duration::from_secs(10);
        stage.session.begin(stage.now, (0..count).map(operation).collect(), until);
        let calls = stage.calls();
        match calls.as_slice() {
            [call] if call.opcode == Opcode::Map => {
                stage.answer(call);
                stage.calls()
            }
            _ => calls,
        }
    };
    let too_long = CallError::Refused { status: Status::ReplyTooLong, hint: 0, detail: 0 };
    let object = |bytes: u32| {
        let status = Status::Ok.code().to_le_bytes();
        [&1u64.to_le_bytes()[..], &status, &[0; 2], &bytes.to_le_bytes(), &vec![7; bytes as usize]]
            .concat()
    };
    let call = only(read(&mut stage, 128), Opcode::ReadMany);
    stage.fail(&call, too_long);
    // The client now reads these objects one by one, and later ones in groups of half the size.
    let singly = stage.calls();
    assert_eq!((singly.len(), singly[0].opcode), (128, Opcode::Read));
    for call in &singly {
        stage.session.answered(stage.now, call.number, Ok(&5u64.to_le_bytes()));
    }
    assert!(matches!(stage.session.next_done(), Some((_, results)) if results.len() == 128));
    // Long answers leave the size of the groups as it is; short answers double it.
    for (bytes, messages) in [(10_000, 2), (10_000, 2), (10, 2), (10, 1)] {
        let calls = read(&mut stage, 128);
        assert_eq!(calls.len(), messages);
        for call in &calls {
            let body = object(bytes).repeat(128 / messages);
            stage.session.answered(stage.now, call.number, Ok(&body));
        }
        let (_, results) = stage.session.next_done().unwrap();
        assert!(results.iter().all(Result::is_ok));
    }
    // A lost message says nothing about the length of answers.
    let call = only(read(&mut stage, 128), Opcode::ReadMany);
    stage.fail(&call, too_long);
    stage.calls();
    let lost = read(&mut stage, 64).remove(0);
    stage.fail(&lost, CallError::Late);
    let calls = read(&mut stage, 128);
    assert_eq!(calls.iter().filter(|call| call.opcode == Opcode::ReadMany).count(), 2);
}

#[test]
fn a_cancelled_operation_has_no_result_and_the_rest_of_its_message_has() {
    let mut stage = Stage::new();
    let table = stage.create("t");
    stage.write(table);
    assert!(stage.written().is_ok());
    let operation = |key: &[u8]| Operation {
        table,
        key: key.to_vec(),
        condition: Condition::Always,
        action: Action::Read,
    };
    let until = stage.now + Duration::from_secs(1);
    let first = stage.session.begin(stage.now, vec![operation(b"a")], until);
    let until = until + Duration::from_millis(10);
    let second = stage.session.begin(stage.now, vec![operation(b"b")], until);
    let call = only(stage.calls(), Opcode::ReadMany);
    stage.session.give_up(first);
    // The first part is "busy", the second "not found": each operation has its own result.
    let part = |status: Status| [&[0; 8][..], &status.code().to_le_bytes(), &[0; 6]].concat();
    let body = [part(Status::Busy), part(Status::NotFound)].concat();
    stage.session.answered(stage.now, call.number, Ok(&body));
    assert_eq!(stage.session.next_done(), Some((second, vec![Ok(Answer::Absent)])));
    assert_eq!(stage.session.next_done(), None);
    assert!(stage.session.is_idle());
}
