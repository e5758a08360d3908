//! Answers wait until the updates that they show are durable. Other answers do not wait. Waiting
//! answers need bounded memory, and overdue ones are refused.

use crate::{Ended, Pair, TABLE, read_body, status, update_body, version};
use thunderhead_log::{Recorder, TabletRange};
use thunderhead_master::replication::{MESSAGE_BYTES, Settings};
use thunderhead_master::{Replication, Shard};
use thunderhead_rpc::{CallId, Opcode};
use thunderhead_runtime::Random;
use thunderhead_wire::operations::{EnumerateHead, Identity, PageHead};
use thunderhead_wire::{Condition, KeyHash, MasterId, ServerId, Status, Version};
use zerocopy::IntoBytes;

#[test]
fn nothing_is_answered_that_a_crash_could_unsay() {
    let recorder = Recorder::new();
    let mut pair = Pair::new(2 << 20, Box::new(recorder.clone()));
    pair.update(Opcode::Write, b"old", b"1").unwrap();
    recorder.hold(true);
    let write = update_body(Identity::NONE, b"new", Condition::Always, 0, b"2");
    let parked = [
        pair.begin(Opcode::Write, &write),
        pair.begin(Opcode::Read, &read_body(b"new", Condition::Always)),
        pair.begin(Opcode::ReadMany, &read_body(b"new", Condition::Always)),
    ];
    let free = pair.begin(Opcode::Read, &read_body(b"old", Condition::Always));
    let mut ended = Vec::new();
    while ended.is_empty() {
        ended = pair.turns(1);
    }
    ended.extend(pair.turns(200));
    let ids = |ended: &[(CallId, Ended)]| ended.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    assert_eq!(ids(&ended), [free], "durable objects are shown at once");
    assert_eq!(pair.node.service().statistics().parked, 3);
    recorder.hold(false);
    let mut ended = Vec::new();
    while ended.len() < 3 {
        ended.extend(pair.turns(1));
    }
    assert_eq!(ids(&ended), parked);
    assert_eq!(&ended[1].1.as_ref().unwrap()[8..], b"2");
}

/// While the log waits for backups, writes must not hold up reads of anything else.
#[test]
fn reads_of_what_no_pending_update_changed_do_not_wait_for_it() {
    let recorder = Recorder::new();
    let mut pair = Pair::new(2 << 20, Box::new(recorder.clone()));
    let present = version(&pair.update(Opcode::Write, b"old", b"1"));
    pair.update(Opcode::Write, b"deleted", b"1").unwrap();
    pair.update(Opcode::Delete, b"deleted", b"").unwrap();
    recorder.hold(true);
    let write = update_body(Identity::NONE, b"new", Condition::Always, 0, b"2");
    let write = pair.begin(Opcode::Write, &write);
    assert!(pair.turns(200).is_empty());
    for absent in [&b"none"[..], b"deleted"] {
        assert_eq!(status(&pair.read(absent)), Status::NotFound);
        let two = [&b"old"[..], absent].map(|key| read_body(key, Condition::Always)).concat();
        assert_eq!(status(&pair.call(Opcode::ReadMany, &two)), Status::Ok);
    }
    let failing = read_body(b"old", Condition::VersionIs(Version(present + 9)));
    assert_eq!(status(&pair.call(Opcode::Read, &failing)), Status::ConditionFailed);
    // This is the half of the table without the new key.
    let half = KeyHash(1 << 63);
    let is_low = KeyHash::of(b"new") < half;
    let whole = TabletRange::whole(TABLE);
    let other = match is_low {
        true => TabletRange { first: half, ..whole },
        false => TabletRange { last: KeyHash(half.0 - 1), ..whole },
    };
    let page = EnumerateHead::new(other, 0, 1000);
    pair.call(Opcode::Enumerate, page.as_bytes()).unwrap();
    // With a delete that is pending, any absence may be its effect.
    let delete = update_body(Identity::NONE, b"old", Condition::Always, 0, b"");
    pair.begin(Opcode::Delete, &delete);
    pair.begin(Opcode::Read, &read_body(b"none", Condition::Always));
    pair.begin(Opcode::Read, &read_body(b"old", Condition::Always));
    assert!(pair.turns(200).is_empty(), "nothing is answered that a crash could unsay");
    recorder.hold(false);
    let mut ended = Vec::new();
    while ended.len() < 4 {
        ended.extend(pair.turns(1));
    }
    assert_eq!(ended[0].0, write);
}

#[test]
fn a_page_without_a_deleted_object_waits_until_the_delete_is_durable() {
    let recorder = Recorder::new();
    let mut pair = Pair::new(2 << 20, Box::new(recorder.clone()));
    pair.update(Opcode::Write, b"deleted", b"1").unwrap();
    let page = EnumerateHead::new(TabletRange::whole(TABLE), 0, 1000);
    let before = pair.call(Opcode::Enumerate, page.as_bytes()).unwrap();
    assert!(before.len() > size_of::<PageHead>(), "it is there");
    recorder.hold(true);
    let delete = update_body(Identity::NONE, b"deleted", Condition::Always, 0, b"");
    pair.begin(Opcode::Delete, &delete);
    let after = pair.begin(Opcode::Enumerate, page.as_bytes());
    assert!(pair.turns(200).is_empty(), "after a crash the object may be there again");
    recorder.hold(false);
    let mut ended = Vec::new();
    while ended.len() < 2 {
        ended.extend(pair.turns(1));
    }
    assert_eq!(ended[1].0, after);
    assert_eq!(ended[1].1.as_ref().unwrap().len(), size_of::<PageHead>());
}

/// A client without an answer asks again. Each time another copy of the undurable object would
/// wait.
#[test]
fn long_answers_that_wait_do_not_fill_the_memory() {
    let recorder = Recorder::new();
    let mut pair = Pair::new(2 << 20, Box::new(recorder.clone()));
    recorder.hold(true);
    pair.begin(Opcode::Write, &update_body(Identity::NONE, b"k", Condition::Always, 0, &[7; 7000]));
    pair.turns(100);
    let many = read_body(b"k", Condition::Always).repeat(128);
    let answer_bytes = 128 * 7000;
    let fit = (64 << 20) / answer_bytes + 1;
    let mut refused = 0;
    for _ in 0..fit + 10 {
        pair.begin(Opcode::ReadMany, &many);
        for (_, outcome) in pair.turns(20) {
            assert_eq!(status(&outcome), Status::AwaitingReplicas);
            refused += 1;
        }
    }
    assert_eq!(refused, 10);
    recorder.hold(false);
    let mut answered = 0;
    while answered < fit + 1 {
        answered += pair.turns(1).len();
    }
    pair.update(Opcode::Write, b"k", b"short").expect("there is room again");
}

/// No backup is up, so all answers become overdue together.
#[test]
fn overdue_answers_are_refused_a_few_a_turn() {
    const WRITES: usize = 1000;
    let settings = Settings {
        server: ServerId(1),
        host: "own".into(),
        rack: String::new(),
        master: MasterId(1),
        replicas: 1,
        min_replicas: 1,
        self_backup: false,
        segment_bytes: 64 << 10,
        message_bytes: MESSAGE_BYTES,
    };
    let (replication, replicator) = Replication::new(settings, Random::from_seed(1));
    let mut pair = Pair::with(2 << 20, replicator, |log| {
        Shard::with_replication(log, replication, ServerId(1), Vec::new())
    });
    let write = update_body(Identity::NONE, b"key", Condition::Always, 0, b"1");
    for _ in 0..WRITES {
        pair.begin(Opcode::Write, &write);
    }
    let (mut ended, mut parked, mut most, mut all) = (Vec::new(), 0, 0, 0);
    while ended.len() < WRITES {
        ended.extend(pair.turns(1));
        let now = pair.node.service().statistics().parked;
        // Requests that arrived in the same turn hide some that were refused in it.
        most = most.max(usize::saturating_sub(parked, now));
        (parked, all) = (now, all.max(now));
    }
    assert!(ended.iter().all(|(_, it)| status(it) == Status::AwaitingReplicas));
    assert!(most > 0 && most <= 128, "{most} in one turn");
    assert_eq!(all, WRITES);
}
