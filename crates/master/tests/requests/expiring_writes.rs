//! Clients give objects a time to live: writes, changes of the expiry, and the time that is left.

use crate::{Pair, TABLE, identity, read_body, status, update_body, version};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thunderhead_log::{Recorder, Timestamp};
use thunderhead_rpc::Opcode;
use thunderhead_wire::operations::{
    ExpiringHead, Identity, ObjectHead, PartHead, UpdateKind, UpdatePart,
};
use thunderhead_wire::{Condition, LeaseId, Sequence, Status, TimeToLive, ValueKind, Version};
use zerocopy::IntoBytes;

/// A shard whose clock shows 1000 ms, and the hands of the clock.
fn pair() -> (Pair, Recorder, Arc<AtomicU64>) {
    let recorder = Recorder::new();
    let mut pair = Pair::new(2 << 20, Box::new(recorder.clone()));
    let time = Arc::new(AtomicU64::new(1000));
    let hands = Arc::clone(&time);
    let log = pair.node.service().log();
    log.keep_time_by(Box::new(move || Timestamp(hands.load(Ordering::Relaxed))));
    (pair, recorder, time)
}

fn after(milliseconds: u64) -> TimeToLive {
    TimeToLive::Milliseconds(milliseconds)
}

fn argument(time: TimeToLive, kind: ValueKind, value: &[u8]) -> Vec<u8> {
    [ExpiringHead::new(time, kind).as_bytes(), value].concat()
}

impl Pair {
    fn put_expiring(&mut self, key: &[u8], time: TimeToLive, value: &[u8]) -> u64 {
        let argument = argument(time, ValueKind::Bytes, value);
        version(&self.update(Opcode::WriteExpiring, key, &argument))
    }

    fn left(&mut self, key: &[u8]) -> Option<TimeToLive> {
        let ended = self.call(Opcode::ReadExpiry, &read_body(key, Condition::Always));
        if status(&ended) == Status::NotFound {
            return None;
        }
        let left = ended.unwrap()[8..].try_into().unwrap();
        Some(TimeToLive::of_code(u64::from_le_bytes(left)))
    }
}

#[test]
fn an_object_lives_for_its_time_and_a_later_write_ends_that() {
    let (mut pair, _, time) = pair();
    let first = pair.put_expiring(b"k", after(100), b"one");
    assert_eq!(pair.left(b"k"), Some(after(100)));
    time.store(1099, Ordering::Relaxed);
    assert_eq!(pair.left(b"k"), Some(after(1)));
    assert_eq!(&pair.read(b"k").unwrap()[8..], b"one");
    time.store(1100, Ordering::Relaxed);
    assert_eq!(status(&pair.read(b"k")), Status::NotFound);
    assert_eq!(pair.left(b"k"), None);
    let second = pair.put_expiring(b"k", after(100), b"two");
    assert!(second > first, "versions never go back");
    let third = version(&pair.update(Opcode::Write, b"k", b"three"));
    assert!(third > second);
    assert_eq!(pair.left(b"k"), Some(TimeToLive::Never));
    pair.put_expiring(b"k", TimeToLive::Never, b"four");
    assert_eq!(pair.left(b"k"), Some(TimeToLive::Never));
}

#[test]
fn conditions_see_an_expired_object_as_absent() {
    let (mut pair, _, time) = pair();
    let put = |pair: &mut Pair, condition| {
        let argument = argument(after(100), ValueKind::Bytes, b"v");
        let body = update_body(Identity::NONE, b"k", condition, 0, &argument);
        pair.call(Opcode::WriteExpiring, &body)
    };
    let first = version(&put(&mut pair, Condition::Absent));
    assert_eq!(status(&put(&mut pair, Condition::Absent)), Status::ConditionFailed);
    let second = version(&put(&mut pair, Condition::VersionIs(Version(first))));
    time.store(1100, Ordering::Relaxed);
    let late = put(&mut pair, Condition::VersionIs(Version(second)));
    assert_eq!(status(&late), Status::ConditionFailed);
    assert_eq!(status(&put(&mut pair, Condition::Present)), Status::ConditionFailed);
    assert!(version(&put(&mut pair, Condition::Absent)) > second);
}

#[test]
fn the_expiry_of_an_object_changes_and_its_value_does_not() {
    let (mut pair, _, time) = pair();
    let set = |pair: &mut Pair, time: TimeToLive| {
        version(&pair.update(Opcode::SetExpiry, b"k", &time.code().to_le_bytes()))
    };
    assert_eq!(set(&mut pair, after(50)), 0, "there is no object");
    pair.update(Opcode::WriteNumber, b"k", &7i64.to_le_bytes()).unwrap();
    let second = set(&mut pair, after(50));
    assert_eq!(pair.left(b"k"), Some(after(50)));
    let sum = pair.update(Opcode::Increment, b"k", &1i64.to_le_bytes()).unwrap();
    assert_eq!(sum[8..], 8i64.to_le_bytes(), "it is still a number");
    assert_eq!(pair.left(b"k"), Some(after(50)), "an increment keeps the expiry");
    let third = set(&mut pair, TimeToLive::Never);
    assert!(third > second);
    assert_eq!(pair.left(b"k"), Some(TimeToLive::Never));
    set(&mut pair, after(20));
    time.store(1020, Ordering::Relaxed);
    assert_eq!(set(&mut pair, after(50)), 0, "it has expired");
    assert_eq!(status(&pair.read(b"k")), Status::NotFound);
    let sum = pair.update(Opcode::Increment, b"k", &5i64.to_le_bytes()).unwrap();
    assert_eq!(sum[8..], 5i64.to_le_bytes(), "it counts from 0 again");
    assert_eq!(pair.left(b"k"), Some(TimeToLive::Never));
}

#[test]
fn a_number_may_expire_too() {
    let (mut pair, _, _) = pair();
    let body = argument(after(30), ValueKind::Float, &0.5f64.to_le_bytes());
    pair.update(Opcode::WriteExpiring, b"f", &body).unwrap();
    let by = 0.25f64.to_le_bytes();
    let head = thunderhead_wire::operations::FLOAT;
    let body = update_body(Identity::NONE, b"f", Condition::Always, head, &by);
    assert_eq!(pair.call(Opcode::Increment, &body).unwrap()[8..], 0.75f64.to_le_bytes());
    assert_eq!(pair.left(b"f"), Some(after(30)));
}

/// A repeated request must not prolong the life of the object, or bring it back.
#[test]
fn a_repeated_write_finds_its_record_and_prolongs_nothing() {
    let (mut pair, _, time) = pair();
    let argument = argument(after(100), ValueKind::Bytes, b"v");
    let once = identity(LeaseId(7), 1, 1);
    let put = update_body(once, b"k", Condition::Always, 0, &argument);
    let first = version(&pair.call(Opcode::WriteExpiring, &put));
    time.store(1050, Ordering::Relaxed);
    assert_eq!(version(&pair.call(Opcode::WriteExpiring, &put)), first);
    assert_eq!(pair.left(b"k"), Some(after(50)));
    time.store(1100, Ordering::Relaxed);
    assert_eq!(version(&pair.call(Opcode::WriteExpiring, &put)), first);
    assert_eq!(pair.left(b"k"), None);
    let again = identity(LeaseId(7), 2, 1);
    let code = after(9).code().to_le_bytes();
    let set = update_body(again, b"k", Condition::Always, 0, &code);
    assert_eq!(version(&pair.call(Opcode::SetExpiry, &set)), 0);
    pair.update(Opcode::Write, b"k", b"new").unwrap();
    let repeated = pair.call(Opcode::SetExpiry, &set);
    assert_eq!(version(&repeated), 0, "the recorded outcome is that there was no object");
    assert_eq!(pair.left(b"k"), Some(TimeToLive::Never));
}

#[test]
fn many_updates_of_one_message_may_expire() {
    let (mut pair, _, time) = pair();
    let mut body = identity(LeaseId(7), 0, 1).as_bytes().to_vec();
    let value = argument(after(10), ValueKind::Bytes, b"value");
    let code = after(20).code().to_le_bytes();
    let parts: [(UpdateKind, &[u8], &[u8]); 4] = [
        (UpdateKind::WriteExpiring, b"a", &value),
        (UpdateKind::Write, b"b", b"plain"),
        (UpdateKind::SetExpiry, b"b", &code),
        (UpdateKind::SetExpiry, b"c", &code),
    ];
    for (sequence, (kind, key, argument)) in (1..).zip(parts) {
        let head = &ObjectHead::new(TABLE, key.len(), Condition::Always, 0);
        UpdatePart { head, kind, key, argument }.put(Sequence(sequence), &mut body);
    }
    for _ in 0..2 {
        let answer = pair.call(Opcode::UpdateMany, &body).unwrap();
        let mut rest = answer.as_slice();
        let mut versions = Vec::new();
        while let Some((head, _, behind)) = PartHead::take(rest) {
            assert_eq!(head.status(), Status::Ok.code());
            (rest, versions) = (behind, [versions, vec![head.version().0]].concat());
        }
        assert!(versions[..3].iter().all(|it| *it > 0) && versions[3] == 0, "{versions:?}");
        assert_eq!((pair.left(b"a"), pair.left(b"b")), (Some(after(10)), Some(after(20))));
    }
    time.store(1010, Ordering::Relaxed);
    assert_eq!((pair.left(b"a"), pair.left(b"b")), (None, Some(after(10))));
}

#[test]
fn a_time_of_zero_and_malformed_arguments_are_refused_and_not_recorded() {
    let (mut pair, _, _) = pair();
    let zero = argument(after(0), ValueKind::Bytes, b"v");
    let short = argument(after(5), ValueKind::Integer, b"v");
    let cases: [(Opcode, &[u8], Status); 5] = [
        (Opcode::WriteExpiring, &zero, Status::BadTimeToLive),
        (Opcode::WriteExpiring, &short, Status::Malformed),
        (Opcode::WriteExpiring, b"short", Status::Malformed),
        (Opcode::SetExpiry, &[0; 8], Status::BadTimeToLive),
        (Opcode::SetExpiry, &[1; 7], Status::Malformed),
    ];
    let once = identity(LeaseId(7), 1, 1);
    for (opcode, argument, expected) in cases {
        let body = update_body(once, b"k", Condition::Always, 0, argument);
        assert_eq!(status(&pair.call(opcode, &body)), expected);
    }
    let good = argument(after(5), ValueKind::Bytes, b"v");
    let body = update_body(once, b"k", Condition::Always, 0, &good);
    assert_eq!(version(&pair.call(Opcode::WriteExpiring, &body)), 1, "the sequence is unused");
    let mut body = read_body(b"k", Condition::Always);
    body.push(0);
    assert_eq!(status(&pair.call(Opcode::ReadExpiry, &body)), Status::Malformed);
}

/// An answer about the expiry must wait for the same records as a read.
#[test]
fn the_answer_that_an_object_is_gone_waits_for_a_record_of_the_time() {
    let (mut pair, recorder, time) = pair();
    pair.put_expiring(b"k", after(100), b"v");
    for opcode in [Opcode::ReadExpiry, Opcode::SetExpiry] {
        time.fetch_add(200, Ordering::Relaxed);
        recorder.hold(true);
        let body = match opcode {
            Opcode::ReadExpiry => read_body(b"k", Condition::Always),
            _ => {
                let code = after(9).code().to_le_bytes();
                update_body(Identity::NONE, b"k", Condition::Always, 0, &code)
            }
        };
        pair.begin(opcode, &body);
        assert!(pair.turns(200).is_empty(), "{opcode}");
        recorder.hold(false);
        let ended = pair.finish();
        match opcode {
            Opcode::ReadExpiry => assert_eq!(status(&ended), Status::NotFound),
            _ => assert_eq!(version(&ended), 0),
        }
        pair.put_expiring(b"k", after(100), b"v");
    }
}
