//! Objects that have expired are absent in every answer, and the answer waits until no crash can
//! bring them back.

use crate::{Ended, Pair, TABLE, identity, read_body, status, update_body, version};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thunderhead_log::{Attributes, Recorder, TabletRange, Timestamp};
use thunderhead_rpc::{CallId, Opcode};
use thunderhead_wire::operations::{
    EnumerateHead, Identity, PageHead, PartHead, UpdateHead, UpdateKind,
};
use thunderhead_wire::{Condition, LeaseId, Sequence, Status, Version};
use zerocopy::{FromBytes, IntoBytes};

/// A shard with objects that expire at time 100, and the hands of its clock.
fn pair(keys: &[&[u8]]) -> (Pair, Recorder, Arc<AtomicU64>) {
    let recorder = Recorder::new();
    let mut pair = Pair::new(2 << 20, Box::new(recorder.clone()));
    let time = Arc::new(AtomicU64::new(50));
    let hands = Arc::clone(&time);
    let log = pair.node.service().log();
    log.keep_time_by(Box::new(move || Timestamp(hands.load(Ordering::Relaxed))));
    let attributes = Attributes { expires: Timestamp(100), ..Attributes::NONE };
    for key in keys {
        log.with_attributes(attributes, |log| log.write(TABLE, key, b"item")).unwrap();
    }
    log.write(TABLE, b"stays", b"object").unwrap();
    log.turn();
    (pair, recorder, time)
}

fn ids(ended: &[(CallId, Ended)]) -> Vec<CallId> {
    ended.iter().map(|(id, _)| *id).collect()
}

#[test]
fn every_answer_without_an_expired_object_waits_for_a_record_of_the_time() {
    let update = |opcode: Opcode, condition| {
        let argument: &[u8] = if opcode == Opcode::Delete { b"" } else { b"new" };
        (opcode, update_body(Identity::NONE, b"k", condition, 0, argument))
    };
    let page = EnumerateHead::new(TabletRange::whole(TABLE), 0, 1000);
    let requests = [
        (Opcode::Read, read_body(b"k", Condition::Always)),
        (Opcode::Read, read_body(b"k", Condition::Present)),
        (
            Opcode::ReadMany,
            [b"stays", &b"k"[..]].map(|it| read_body(it, Condition::Always)).concat(),
        ),
        (Opcode::Enumerate, page.as_bytes().to_vec()),
        update(Opcode::Delete, Condition::Always),
        update(Opcode::Write, Condition::Present),
        update(Opcode::Write, Condition::VersionIs(Version(1))),
    ];
    for (number, (opcode, body)) in requests.iter().enumerate() {
        let (mut pair, recorder, time) = pair(&[b"k"]);
        let before = pair.read(b"k");
        assert_eq!(&before.unwrap()[8..], b"item");
        time.store(100, Ordering::Relaxed);
        recorder.hold(true);
        let asked = pair.begin(*opcode, body);
        // An object that is there is shown at once, meanwhile.
        let other = pair.begin(Opcode::Read, &read_body(b"stays", Condition::Always));
        let mut ended = Vec::new();
        while ended.is_empty() {
            ended = pair.turns(1);
        }
        ended.extend(pair.turns(200));
        assert_eq!(ids(&ended), [other], "request {number}");
        recorder.hold(false);
        let answer = pair.finish();
        match opcode {
            Opcode::Enumerate => {
                let (_, objects) = PageHead::ref_from_prefix(answer.as_ref().unwrap()).unwrap();
                let shown = objects.windows(5).any(|it| it == b"stays");
                assert!(shown && !objects.windows(4).any(|it| it == b"item"));
            }
            Opcode::ReadMany => {
                let answer = answer.unwrap();
                let (_, _, rest) = PartHead::take(&answer).unwrap();
                let (part, ..) = PartHead::take(rest).unwrap();
                assert_eq!(part.status(), Status::NotFound.code());
            }
            Opcode::Delete => assert_eq!(version(&answer), 0),
            Opcode::Read if number == 0 => assert_eq!(status(&answer), Status::NotFound),
            _ => assert_eq!(status(&answer), Status::ConditionFailed),
        }
        assert_ne!(asked, other);
        // The record is there once: the next answer does not wait.
        recorder.hold(true);
        assert_eq!(status(&pair.read(b"k")), Status::NotFound);
    }
}

#[test]
fn the_outcomes_of_a_message_wait_for_the_time_that_they_show() {
    let (mut pair, recorder, time) = pair(&[b"a", b"b"]);
    let lease = LeaseId(7);
    time.store(100, Ordering::Relaxed);
    recorder.hold(true);
    let mut body = identity(lease, 1, 1).as_bytes().to_vec();
    for (sequence, key) in [(1, b"a"), (2, b"b")] {
        let head = thunderhead_wire::operations::ObjectHead::new(TABLE, 1, Condition::Always, 0);
        body.extend_from_slice(head.as_bytes());
        let update = UpdateHead::new(Sequence(sequence), UpdateKind::Delete, 0);
        body.extend_from_slice(update.as_bytes());
        body.extend_from_slice(key);
    }
    pair.begin(Opcode::UpdateMany, &body);
    assert!(pair.turns(200).is_empty());
    recorder.hold(false);
    let answer = pair.finish().unwrap();
    let (part, _, rest) = PartHead::take(&answer).unwrap();
    assert_eq!((part.status(), part.version()), (Status::Ok.code(), Version::NONE));
    assert_eq!(PartHead::take(rest).unwrap().0.version(), Version::NONE);
}
