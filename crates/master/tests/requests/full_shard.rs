//! A full shard refuses writes, but does reads and deletes. A refused update drops no completion
//! record.

use crate::{Pair, identity, status, update_body};
use thunderhead_log::NoReplication;
use thunderhead_rpc::Opcode;
use thunderhead_wire::{Condition, LeaseId, Status};

#[test]
fn a_full_shard_refuses_writes_but_not_reads_and_deletes() {
    let mut pair = Pair::new(1 << 20, Box::new(NoReplication::default()));
    let mut cleaner = pair.node.service().log().cleaner().unwrap();
    let mut written = 0u64;
    let full = loop {
        cleaner.step();
        let ended = pair.update(Opcode::Write, &written.to_be_bytes(), &[1; 1000]);
        match status(&ended) {
            Status::Ok => written += 1,
            Status::AwaitingMemory => {}
            status => break status,
        }
    };
    assert_eq!(full, Status::NoSpace);
    assert!(written > 500, "{written}");
    assert!(pair.read(&0u64.to_be_bytes()).is_ok());
    for number in 0..50u64 {
        // With an identity, the record needs room, too.
        let identity = identity(LeaseId(1), number + 1, number + 1);
        let body = update_body(identity, &number.to_be_bytes(), Condition::Always, 0, b"");
        while status(&pair.call(Opcode::Delete, &body)) != Status::Ok {
            cleaner.step();
        }
    }
    let again = loop {
        cleaner.step();
        let ended = pair.update(Opcode::Write, b"again", &[2; 1000]);
        if status(&ended) != Status::AwaitingMemory {
            break ended;
        }
    };
    assert!(again.is_ok(), "{again:?}");
}

#[test]
fn an_update_that_finds_no_room_may_come_again_and_takes_nobodys_record() {
    let mut pair = Pair::new(1 << 20, Box::new(NoReplication::default()));
    let write = |pair: &mut Pair, (sequence, first): (u64, u64), key: &[u8], bytes: usize| {
        let identity = identity(LeaseId(3), sequence, first);
        pair.call(Opcode::Write, &update_body(identity, key, Condition::Always, 0, &vec![1; bytes]))
    };
    for sequence in 1..=4 {
        write(&mut pair, (sequence, 1), b"k", 10).unwrap();
    }
    let records = |pair: &mut Pair| pair.node.service().statistics().records;
    assert_eq!(records(&mut pair), 4);
    let mut filled = 0u64;
    let mut cleaner = pair.node.service().log().cleaner().unwrap();
    while status(&pair.update(Opcode::Write, &filled.to_be_bytes(), &[1; 1000])) != Status::NoSpace
    {
        cleaner.step();
        filled += 1;
    }
    // The client has all answers before 5, but no record that survives this process says so.
    for _ in 0..3 {
        assert_eq!(status(&write(&mut pair, (5, 5), b"new", 6_000)), Status::NoSpace);
        assert_eq!(records(&mut pair), 4);
    }
    assert_eq!(status(&write(&mut pair, (4, 1), b"k", 10)), Status::Stale, "while it lives");
    for number in 0..filled {
        while status(&pair.update(Opcode::Delete, &number.to_be_bytes(), b"")) != Status::Ok {
            cleaner.step();
        }
    }
    for _ in 0..1000 {
        cleaner.step();
        pair.turns(1);
    }
    write(&mut pair, (5, 5), b"new", 6_000).unwrap();
    assert_eq!(status(&write(&mut pair, (4, 1), b"k", 10)), Status::Stale);
}
