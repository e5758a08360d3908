//! A shard's answers, over the machine's own loopback, with server and client taking turns on one
//! thread: every operation, every refusal, and answers that wait for the log.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_log::{
    Log, LogId, Memory, NoReplication, Options as LogOptions, Recorder, Replicator, TableId,
    TabletRange,
};
use thunderhead_master::replication::{MESSAGE_BYTES, Settings};
use thunderhead_master::{Replication, Shard};
use thunderhead_net::Transport;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_rpc::{CallError, CallId, Caller, Node, Opcode};
use thunderhead_runtime::polling::Polling;
use thunderhead_runtime::{Random, World, os};
use thunderhead_wire::operations::{
    EnumerateHead, FLOAT, FoundHead, Identity, ObjectHead, PageHead, PartHead, UpdateKind,
    UpdatePart,
};
use thunderhead_wire::{
    Condition, KeyHash, LeaseId, MasterId, Sequence, ServerId, Status, Version,
};
use zerocopy::{FromBytes, IntoBytes};

const TABLE: TableId = TableId(7);

fn world() -> World {
    os::world_without_files().expect("an event descriptor")
}

type Ended = Result<Vec<u8>, CallError>;

struct Pair {
    node: Node<Shard>,
    caller: Caller,
    address: SocketAddr,
}

impl Pair {
    fn new(bytes: usize, replicator: Box<dyn Replicator>) -> Pair {
        Pair::with(bytes, replicator, Shard::new)
    }

    fn with(
        bytes: usize,
        replicator: Box<dyn Replicator>,
        shard: impl FnOnce(Log) -> Shard,
    ) -> Pair {
        let memory = Memory::with_seglets(bytes, 4096).unwrap();
        let options = LogOptions { segment_bytes: 64 << 10, ..LogOptions::default() };
        let mut log = Log::new(&memory, LogId(1), options, replicator).unwrap();
        log.create_tablet(TabletRange::whole(TABLE)).unwrap();
        let server = world();
        let options = Options { shared_memory: false, ..Options::default() };
        let transport = OsTransport::new(&server, options).unwrap();
        let mut node = Node::new(server, Box::new(transport), shard(log));
        let address = node.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = world();
        let transport: Box<dyn Transport + Send> =
            Box::new(OsTransport::new(&client, options).unwrap());
        Pair { node, caller: Caller::new(&client, transport, Polling::Always), address }
    }

    fn small() -> Pair {
        Pair::new(2 << 20, Box::new(NoReplication::default()))
    }

    fn begin(&mut self, opcode: Opcode, body: &[u8]) -> CallId {
        self.caller.begin(self.address, opcode, &[body], Some(Duration::from_secs(60))).unwrap()
    }

    /// Lets both take `count` turns, and returns the calls that have ended.
    fn turns(&mut self, count: usize) -> Vec<(CallId, Ended)> {
        let mut ended = Vec::new();
        for _ in 0..count {
            self.caller.poll(&mut |id, outcome| ended.push((id, outcome.map(<[u8]>::to_vec))));
            self.node.turn_now();
        }
        ended
    }

    fn finish(&mut self) -> Ended {
        loop {
            if let Some((_, outcome)) = self.turns(1).pop() {
                return outcome;
            }
        }
    }

    fn call(&mut self, opcode: Opcode, body: &[u8]) -> Ended {
        self.begin(opcode, body);
        self.finish()
    }

    fn read(&mut self, key: &[u8]) -> Ended {
        self.call(Opcode::Read, &read_body(key, Condition::Always))
    }

    fn update(&mut self, opcode: Opcode, key: &[u8], argument: &[u8]) -> Ended {
        self.call(opcode, &update_body(Identity::NONE, key, Condition::Always, 0, argument))
    }
}

fn read_body(key: &[u8], condition: Condition) -> Vec<u8> {
    [ObjectHead::new(TABLE, key.len(), condition, 0).as_bytes(), key].concat()
}

fn identity(lease: LeaseId, sequence: u64, first: u64) -> Identity {
    Identity::new(lease, Sequence(sequence), Sequence(first))
}

fn update_body(
    identity: Identity,
    key: &[u8],
    condition: Condition,
    flags: u8,
    argument: &[u8],
) -> Vec<u8> {
    let head = ObjectHead::new(TABLE, key.len(), condition, flags);
    [identity.as_bytes(), head.as_bytes(), key, argument].concat()
}

fn version(ended: &Ended) -> u64 {
    u64::from_le_bytes(ended.as_ref().unwrap()[..8].try_into().unwrap())
}

fn status(ended: &Ended) -> Status {
    match ended {
        Ok(_) => Status::Ok,
        Err(CallError::Refused { status, .. }) => *status,
        Err(other) => panic!("{other}"),
    }
}

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

/// Walks over a range as a client does, and returns how often each key was listed.
fn walk(pair: &mut Pair, range: TabletRange, bytes: u32) -> BTreeMap<Vec<u8>, usize> {
    let mut seen = BTreeMap::new();
    let mut pieces = vec![(range, 0)];
    while let Some((range, cursor)) = pieces.pop() {
        let request = EnumerateHead::new(range, cursor, bytes);
        let answer = pair.call(Opcode::Enumerate, request.as_bytes()).unwrap();
        let (page, mut rest) = PageHead::read_from_prefix(&answer).unwrap();
        while let Some((found, behind)) = FoundHead::take(rest) {
            assert!(range.contains(TABLE, KeyHash::of(found.key)));
            *seen.entry(found.key.to_vec()).or_default() += 1;
            rest = behind;
        }
        assert!(rest.is_empty());
        if page.last() < range.last {
            pieces.push((TabletRange { first: KeyHash(page.last().0 + 1), ..range }, cursor));
        }
        if let Some(cursor) = page.cursor() {
            pieces.push((TabletRange { last: page.last(), ..range }, cursor));
        }
    }
    seen
}

#[test]
fn a_table_is_enumerated_over_its_tablets_while_it_grows() {
    let mut pair = Pair::new(8 << 20, Box::new(NoReplication::default()));
    let log = pair.node.service().log();
    log.drop_tablet(TabletRange::whole(TABLE));
    let third = u64::MAX / 3;
    for (first, last) in [(0, third), (third + 1, 2 * third), (2 * third + 1, u64::MAX)] {
        let range = TabletRange { table: TABLE, first: KeyHash(first), last: KeyHash(last) };
        log.create_tablet(range).unwrap();
    }
    for number in 0..3000u64 {
        log.write(TABLE, &number.to_be_bytes(), &[1; 50]).unwrap();
    }
    let whole = TabletRange::whole(TABLE);
    for bytes in [1, 500, u32::MAX] {
        let seen = walk(&mut pair, whole, bytes);
        assert_eq!(seen.len(), 3000);
        assert!(seen.values().all(|times| *times == 1));
    }
    // This part of the range begins and ends within tablets.
    let part = TabletRange { first: KeyHash(third / 2), last: KeyHash(third * 2 + 5), ..whole };
    let seen = walk(&mut pair, part, 1000);
    let inside = |number: &u64| part.contains(TABLE, KeyHash::of(&number.to_be_bytes()));
    assert_eq!(seen.len(), (0..3000u64).filter(inside).count());
    // A page has one large value, however many there are in a bucket.
    let log = pair.node.service().log();
    for number in 0..200u64 {
        log.write(TABLE, &number.to_be_bytes(), &[2; 8000]).unwrap();
    }
    assert_eq!(walk(&mut pair, whole, 8000).len(), 3000);
    let elsewhere = TabletRange { table: TableId(99), ..whole };
    let request = EnumerateHead::new(elsewhere, 0, 100);
    assert_eq!(status(&pair.call(Opcode::Enumerate, request.as_bytes())), Status::Moved);
    let reversed = TabletRange { first: KeyHash(9), last: KeyHash(3), ..whole };
    assert!(walk(&mut pair, reversed, 100).is_empty());
}

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
