//! Messages to backups and to the coordinator: their lengths, their delays, and their parts.

use crate::simulated::with_backup;
use std::collections::BTreeMap;
use thunderhead_log::{Log, Memory, Options, SegmentKind};
use thunderhead_master::Replication;
use thunderhead_master::replication::{AwaitedAnswers, MESSAGE_BYTES, Request, Settings, To};
use thunderhead_rpc::Opcode;
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::control::{ServerInfo, ServerList};
use thunderhead_wire::replication::{
    ATOMIC, CLOSE, COMMIT, OPEN, PartAnswer, ReplicaPart, ReplicateHead,
};
use thunderhead_wire::{Generation, LogId, MasterId, SegmentId, ServerId, TableId, TabletRange};
use zerocopy::IntoBytes;

const TABLE: TableId = TableId(1);

fn server(id: u64) -> ServerInfo {
    with_backup(id, "10.0.0.1:1".parse().unwrap())
}

/// Returns the manager's settings for a number of replicas.
fn settings(replicas: u32) -> Settings {
    Settings {
        server: ServerId(9),
        host: "own".into(),
        rack: String::new(),
        master: MasterId(1),
        replicas,
        min_replicas: 1,
        self_backup: false,
        segment_bytes: 8 << 20,
        message_bytes: MESSAGE_BYTES,
    }
}

/// Returns a log with this number of replicas on three servers.
fn replicated(replicas: u32) -> (Log, Replication) {
    with(settings(replicas), 3)
}

/// Returns a log with replication to servers 1 to `servers`.
fn with(settings: Settings, servers: u64) -> (Log, Replication) {
    let (mut replication, replicator) = Replication::new(settings, Random::from_seed(1));
    let memory = Memory::new(256 << 20).unwrap();
    let mut log = Log::new(&memory, LogId(1), Options::default(), replicator).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    tell(&mut replication, 1, servers);
    (log, replication)
}

/// Sends the list with servers 1 to `servers`.
fn tell(replication: &mut Replication, version: u64, servers: u64) {
    let servers = (1..=servers).map(server).collect();
    replication.learn(&ServerList { version, servers, ..ServerList::default() });
}

/// The parts of a message to a backup.
fn parts(body: &[u8]) -> Vec<ReplicaPart> {
    let (_, mut rest) = ReplicateHead::take(body).unwrap();
    let mut parts = Vec::new();
    while let Some((part, behind)) = ReplicaPart::take(rest) {
        parts.push(*part);
        rest = &behind[part.bytes()..];
    }
    parts
}

/// Lets a backup do all parts of a message.
fn done(replication: &mut Replication, now: Time, request: &Request) {
    let answer = |part: &ReplicaPart| PartAnswer::new(0, part.offset() + part.bytes() as u32);
    let answers: Vec<PartAnswer> = parts(&request.body).iter().map(answer).collect();
    replication.answered(now, request.number, Ok(answers.as_bytes()));
}

/// Returns a log with two replicas, to which much was written in one turn.
fn much_written() -> (Log, Replication) {
    let (mut log, mut replication) = replicated(2);
    for key in 0..70_u64 {
        log.write(TABLE, &key.to_be_bytes(), &vec![key as u8; 100_000]).unwrap();
    }
    log.turn();
    replication.turn(Time(1), &mut log, |_| AwaitedAnswers::default());
    (log, replication)
}

/// A segment that is nearly as long as the longest message is sent in several messages, even alone.
#[test]
fn a_message_is_short_also_where_it_is_the_first_for_its_backup() {
    let (_log, mut replication) = much_written();
    let mut messages = 0;
    while let Some(request) = replication.next_request() {
        assert!(matches!(request.to, To::Backup(..)) && request.opcode == Opcode::Replicate);
        assert!(request.body.len() > 100_000, "it has something to send");
        assert!(request.body.len() < MESSAGE_BYTES as usize + 4096, "{} bytes", request.body.len());
        messages += 1;
    }
    assert_eq!(messages, 2, "one for each replica");
}

/// Survivors and side segments have replicas on many backups, and each message costs a part of the
/// turn.
#[test]
fn a_turn_sends_few_bytes_of_many_survivors() {
    const SURVIVORS: u64 = 12;
    const BYTES: u32 = 1 << 20;
    let (mut log, _) = much_written();
    let (mut replication, mut replicator) = Replication::new(settings(2), Random::from_seed(2));
    replication.learn(&ServerList {
        version: 1,
        servers: (1..=20).map(server).collect(),
        ..ServerList::default()
    });
    let bytes_of = log.appended().segment;
    for survivor in (100..).map(SegmentId).take(SURVIVORS as usize) {
        replicator.opened(survivor, SegmentKind::Survivor);
        replicator.appended(survivor, 0, log.segment_bytes(bytes_of, 0, BYTES).unwrap());
        replicator.closed(survivor, BYTES);
    }
    let (mut turns, mut all) = (0, 0);
    let mut begun: BTreeMap<SegmentId, usize> = BTreeMap::new();
    for time in (1..1000).map(Time) {
        replication.turn(time, &mut log, |_| AwaitedAnswers::default());
        let mut sent = 0;
        while let Some(request) = replication.next_request() {
            sent += request.body.len();
            for part in parts(&request.body) {
                begun.entry(part.segment()).or_insert(turns);
            }
            done(&mut replication, time, &request);
        }
        assert!(sent < 2 * MESSAGE_BYTES as usize + 4096, "{sent} bytes in a turn");
        (turns, all) = (turns + usize::from(sent > 0), all + sent);
    }
    assert!((2 * SURVIVORS * u64::from(BYTES)..).contains(&(all as u64)), "{all}: all was sent");
    // A turn sends 64 KiB for each of the two replicas, and the unused part of earlier turns.
    let more = 2 * MESSAGE_BYTES as usize;
    assert!(all < turns * ((128 << 10) + 4096) + more, "{all} bytes in {turns} turns");
    // Backups answer at once, so an older survivor could use the room of every turn.
    let latest = begun.values().copied().max().unwrap_or(0);
    assert!(latest < 2 * SURVIVORS as usize, "the last survivor was begun in turn {latest}");
    let is_whole = |survivor| replicator.is_durable(SegmentId(survivor));
    assert!((100..100 + SURVIVORS).all(is_whole));
}

/// Replicas that wait for an answer take no share of a turn's room.
#[test]
fn parts_stay_long_while_a_slow_backup_has_not_answered() {
    const SURVIVORS: u64 = 12;
    const BYTES: u32 = 256 << 10;
    let (mut log, _) = much_written();
    let (mut replication, mut replicator) = Replication::new(settings(2), Random::from_seed(2));
    // Each survivor has a replica on the fast one and one on the slow one.
    let fast = ServerId(1);
    tell(&mut replication, 1, 2);
    let bytes_of = log.appended().segment;
    for survivor in (100..).map(SegmentId).take(SURVIVORS as usize) {
        replicator.opened(survivor, SegmentKind::Survivor);
        replicator.appended(survivor, 0, log.segment_bytes(bytes_of, 0, BYTES).unwrap());
        replicator.closed(survivor, BYTES);
    }
    let mut lengths = Vec::new();
    for time in (1..200).map(Time) {
        replication.turn(time, &mut log, |_| AwaitedAnswers::default());
        while let Some(request) = replication.next_request() {
            if matches!(request.to, To::Backup(server, _) if server == fast) {
                let parts = parts(&request.body);
                lengths.extend(parts.iter().map(ReplicaPart::bytes).filter(|bytes| *bytes > 0));
                done(&mut replication, time, &request);
            }
        }
    }
    assert_eq!(lengths.iter().sum::<usize>(), SURVIVORS as usize * BYTES as usize);
    let shortest = lengths.iter().min();
    assert!(shortest >= Some(&(32 << 10)), "{lengths:?}");
}

/// A waiting message to a server that is gone may have lost its bytes: they are not kept for it.
#[test]
fn a_message_whose_bytes_are_gone_is_not_sent_and_holds_nothing_up() {
    let (mut log, mut replication) = much_written();
    let first = replication.next_request().unwrap();
    let To::Backup(taker, _) = first.to else { panic!("a backup") };
    // The other message still waits. Its server goes, and the bytes that the first backup took are
    // no longer kept.
    replication.learn(&ServerList {
        version: 2,
        servers: vec![server(taker.0)],
        ..ServerList::default()
    });
    let taken = PartAnswer::new(0, first.body.len() as u32);
    replication.answered(Time(2), first.number, Ok(taken.as_bytes()));
    assert_eq!(replication.next_request(), None);
    replication.learn(&ServerList {
        version: 3,
        servers: (1..=3).map(server).collect(),
        ..ServerList::default()
    });
    let mut taken: BTreeMap<ServerId, usize> = BTreeMap::new();
    for time in (3..30).map(Time) {
        replication.turn(time, &mut log, |_| AwaitedAnswers::default());
        while let Some(request) = replication.next_request() {
            let To::Backup(server, _) = request.to else { continue };
            *taken.entry(server).or_default() += request.body.len();
            done(&mut replication, time, &request);
        }
    }
    let other = taken.iter().find(|(server, bytes)| **server != taker && **bytes > 100_000);
    assert!(other.is_some(), "another one gets all of it from memory: {taken:?}");
}

/// Lets a backup answer that it has `length` bytes of the head.
fn taken(replication: &mut Replication, now: Time, request: &Request, length: u32) {
    let taken = PartAnswer::new(0, length);
    replication.answered(now, request.number, Ok(taken.as_bytes()));
}

/// After a round that took long, a message waits for more writes that are likely to come, but it is
/// sent in any case.
#[test]
fn a_delayed_message_is_sent_when_its_time_is_over_although_no_write_came() {
    let (mut log, mut replication) = replicated(1);
    let micros = |micros: u64| Time(micros * 1000);
    let written = |log: &mut Log| {
        let position = log.write(TABLE, b"key", b"value").unwrap().position;
        log.turn();
        position
    };
    // One client is about to get its answer, and will send again.
    let two = |_| AwaitedAnswers { all: 2, beyond: 1 };
    let one = |_| AwaitedAnswers { all: 1, beyond: 1 };
    let first = written(&mut log);
    replication.turn(micros(100), &mut log, one);
    let request = replication.next_request().unwrap();
    taken(&mut replication, micros(300), &request, first.offset);
    assert_eq!(replication.status().durable, first, "a round of 200 us");

    let second = written(&mut log);
    let status = replication.turn(micros(300), &mut log, two);
    assert_eq!((status.deadline, status.has_requests), (Some(micros(350)), false));
    let status = replication.turn(micros(349), &mut log, one);
    assert_eq!((status.deadline, status.has_requests), (Some(micros(350)), false));
    assert!(replication.turn(micros(350), &mut log, one).has_requests);
    let request = replication.next_request().unwrap();
    taken(&mut replication, micros(600), &request, second.offset);
    assert_eq!(replication.status().durable, second);

    // The wait did not pay, because no write came.
    written(&mut log);
    assert!(replication.turn(micros(600), &mut log, two).has_requests);
}

/// The server is chosen while nothing of the head is durable. The message to it has no room for the
/// head, so the head goes on without it. A replica that a recovery could use at once would then
/// lack acknowledged bytes.
#[test]
fn a_replica_that_the_segment_went_on_without_is_begun_invisible() {
    // Messages are so short that one part fills them.
    let (mut log, mut replication) = with(Settings { message_bytes: 64 << 10, ..settings(2) }, 1);
    let mut now = 1;
    let write = |log: &mut Log| {
        let position = log.write(TABLE, b"key", &[7; 60_000]).unwrap().position;
        log.turn();
        position.segment
    };
    let first = write(&mut log);
    // Server 1 has all of the first head before the second head begins.
    while write(&mut log) == first {
        now += 1_000_000;
        replication.turn(Time(now), &mut log, |_| AwaitedAnswers::default());
        while let Some(request) = replication.next_request() {
            done(&mut replication, Time(now), &request);
        }
    }
    let next = SegmentId(first.0 + 1);
    let (mut of_next, mut requests) = (Vec::new(), Vec::new());
    for turn in 0..400 {
        now += 1_000_000;
        replication.turn(Time(now), &mut log, |_| AwaitedAnswers::default());
        requests.extend(std::iter::from_fn(|| replication.next_request()));
        if turn == 0 {
            // Server 1 is about to open the second head when server 2 starts.
            tell(&mut replication, 2, 2);
            continue;
        }
        for request in requests.drain(..) {
            let To::Backup(server, _) = request.to else { continue };
            let opened = parts(&request.body).into_iter();
            let opened = opened.filter(|part| part.segment() == next && part.wants(OPEN));
            of_next.extend(opened.map(|part| (server.0, part.wants(ATOMIC))));
            done(&mut replication, Time(now), &request);
        }
    }
    of_next.sort_unstable();
    of_next.dedup();
    assert_eq!(of_next, [(1, false), (2, true)]);
}

/// The backup may have carried out COMMIT although the master has no answer yet. A recovery may
/// then use the replica, so bytes that it lacks must not become durable.
#[test]
fn bytes_wait_for_a_replica_that_joins_from_the_moment_when_commit_is_sent() {
    let (mut log, mut replication) = with(settings(2), 1);
    let mut now = 1;
    let mut turns = |log: &mut Log, replication: &mut Replication, holds: bool| {
        let mut held = Vec::new();
        for _ in 0..40 {
            now += 1_000_000;
            replication.turn(Time(now), log, |_| AwaitedAnswers::default());
            while let Some(request) = replication.next_request() {
                let To::Backup(server, _) = request.to else { continue };
                if holds && server == ServerId(2) {
                    held.push(request);
                } else {
                    done(replication, Time(now), &request);
                }
            }
        }
        held
    };
    let write = |log: &mut Log| {
        log.write(TABLE, b"key", b"value").unwrap();
        log.turn();
        log.appended()
    };
    let alone = write(&mut log);
    turns(&mut log, &mut replication, false);
    assert!(replication.status().durable >= alone, "the head goes on with one replica");

    tell(&mut replication, 2, 2);
    let held = turns(&mut log, &mut replication, true);
    let commits = |request: &Request| parts(&request.body).iter().any(|part| part.wants(COMMIT));
    assert!(held.iter().any(commits), "the replica has all bytes when it is begun");
    let together = write(&mut log);
    assert!(turns(&mut log, &mut replication, true).is_empty());
    assert!(replication.status().durable < together, "server 2 may lack the last write");

    for request in &held {
        done(&mut replication, Time(2_000_000_000), request);
    }
    turns(&mut log, &mut replication, false);
    assert!(replication.status().durable >= together);
}

/// The shard learns of a backup's new generation while an answer of the former one is still in its
/// socket. The new generation may have lost the replica, so it is asked whether it has it.
#[test]
fn an_answer_of_a_former_generation_does_not_spare_the_question_to_the_present_one() {
    for is_closed in [false, true] {
        let (mut log, mut replication) = replicated(1);
        let mut now = 1;
        let mut turn = |log: &mut Log, replication: &mut Replication| {
            now += 1_000_000;
            replication.turn(Time(now), log, |_| AwaitedAnswers::default());
            (Time(now), std::iter::from_fn(|| replication.next_request()).collect::<Vec<_>>())
        };
        let closes = |request: &Request| parts(&request.body).iter().any(|part| part.wants(CLOSE));
        let (at, request) = loop {
            // One message has room for all of it.
            let value = if is_closed { vec![7; 200_000] } else { vec![7; 100] };
            log.write(TABLE, b"key", &value).unwrap();
            log.turn();
            let (at, mut requests) = turn(&mut log, &mut replication);
            let held =
                requests.iter().position(|it| closes(it) == is_closed && at > Time(5_000_000));
            let held = held.map(|held| requests.swap_remove(held));
            requests.iter().for_each(|request| done(&mut replication, at, request));
            if let Some(request) = held {
                break (at, request);
            }
        };
        let To::Backup(of, _) = request.to else { panic!("{request:?}") };
        let servers = (1..=3).map(|id| ServerInfo {
            generation: Generation(1 + u64::from(ServerId(id) == of)),
            ..server(id)
        });
        let list = ServerList { version: 2, servers: servers.collect(), ..ServerList::default() };
        replication.learn(&list);
        let of_request = parts(&request.body);
        let part = of_request.iter().find(|part| part.wants(CLOSE) == is_closed).unwrap();
        let segment = part.segment();
        let asks = |it: &Request| {
            matches!(it.to, To::Backup(server, _) if server == of)
                && parts(&it.body).iter().any(|part| part.segment() == segment)
        };
        assert!(!turn(&mut log, &mut replication).1.iter().any(asks), "one message at a time");
        done(&mut replication, at, &request);
        let (at, questions) = turn(&mut log, &mut replication);
        let question = questions.iter().find(|it| asks(it)).expect("the new generation is asked");
        let (head, _) = ReplicateHead::take(&question.body).unwrap();
        assert_eq!(head.life(), (of, Generation(2)), "{is_closed}");
        done(&mut replication, at, question);
        let again = turn(&mut log, &mut replication).1;
        let again: Vec<_> = again.iter().filter(|it| asks(it)).map(|it| parts(&it.body)).collect();
        assert!(again.is_empty(), "it has answered: {is_closed} {again:?}");
    }
}

/// The shard repeats each question until a coordinator answers, so a second one would only add to
/// the work.
#[test]
fn one_question_to_the_coordinator_is_out_however_long_none_answers() {
    let strict = Settings { min_replicas: 2, ..settings(2) };
    let (mut log, mut replication) = with(strict, 2);
    log.write(TABLE, b"key", b"value").unwrap();
    log.turn();
    let mut now = 1_000_000;
    while replication.status().durable < log.appended() {
        now += 1_000_000;
        replication.turn(Time(now), &mut log, |_| AwaitedAnswers::default());
        while let Some(request) = replication.next_request() {
            done(&mut replication, Time(now), &request);
        }
    }
    // The epoch without the lost replica is not noted with fewer than `min_replicas` replicas.
    tell(&mut replication, 2, 1);
    let mut questions = Vec::new();
    let (step, minutes) = (10_000_000, 10 * 60 * 1_000_000_000);
    for _ in 0..minutes / step {
        now += step;
        replication.turn(Time(now), &mut log, |_| AwaitedAnswers::default());
        while let Some(request) = replication.next_request() {
            match request.to {
                To::Backup(..) => done(&mut replication, Time(now), &request),
                To::Coordinator => questions.push((now, request)),
            }
        }
    }
    let [(asked, question)] = &questions[..] else { panic!("{} questions", questions.len()) };
    assert_eq!(question.opcode, Opcode::ConfirmMaster);
    // The answer counts from the time of the question, and allows the next question.
    replication.answered(Time(now), question.number, Ok(b"{}"));
    let until = replication.status().reads_until;
    assert!(until >= Time(*asked) && until < Time(now), "{until:?}");
    replication.turn(Time(now), &mut log, |_| AwaitedAnswers::default());
    let next = std::iter::from_fn(|| replication.next_request());
    let next = next.filter(|request| request.opcode == Opcode::ConfirmMaster).last().unwrap();
    replication.answered(Time(now), next.number, Ok(b"{}"));
    assert!(replication.status().reads_until > Time(now));
}
