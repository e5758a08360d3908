//! A shard takes back the log of its former generation: after any crash, also another one while it
//! takes the log back; with damaged copies; and if it cannot.

use crate::fixture::*;
use crate::past::*;
use crate::recovery::recovered;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_log::{
    Cursor, Log, Memory, NoReplication, Options as LogOptions, Recorder, Replay, Replica,
    SegmentId, TabletRange,
};
use thunderhead_net::sim::Link;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Random;
use thunderhead_wire::control::{self, Recover, Recovered};
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{LeaseId, RecoveryId, Sequence, Status};

type Copies = BTreeMap<SegmentId, Replica>;

/// The number of segment ids of each generation.
const LIFE: u64 = 1 << 20;

/// Returns a log of the same shard in a later generation.
fn successor(life: u64, recorder: &Recorder) -> Log {
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let options = LogOptions { segment_bytes: 8 << 10, ..LogOptions::default() };
    let first = SegmentId(life * LIFE + 1);
    Log::beginning_at(first, &memory, LOG, options, Box::new(recorder.clone())).unwrap()
}

/// Returns a cluster whose shard has a later generation.
fn cluster(seed: u64, life: u64) -> (ShardCluster, Recorder) {
    let mut cluster = ShardCluster::new(seed, Link::default(), shard_options(), 1 << 20);
    let recorder = Recorder::new();
    let own = recorder.clone();
    // This shard replaces the first shard of the cluster, which gets no requests.
    let second = cluster.add_shard_with(SECOND, shard_options(), move || successor(life, &own));
    cluster.shard = cluster.address(second);
    (cluster, recorder)
}

/// Returns the command to the shard.
fn task(cluster: &ShardCluster, copies: &Copies, segments: &[SegmentId]) -> Recover {
    let mut task =
        Recover { take_back: true, master: SECOND, ..cluster.recover(RecoveryId(1), segments) };
    for it in &mut task.segments {
        it.closed = !copies[&it.segment].open;
    }
    task
}

/// Runs the command, and returns the results.
fn taken_back(
    cluster: &mut ShardCluster,
    copies: &Copies,
    segments: &[SegmentId],
) -> (Recovered, Result<Model, Status>) {
    let task = task(cluster, copies, segments);
    recovered(cluster, task)
}

/// Returns the recorded outcomes of a log with these segments.
fn records(copies: &Copies) -> BTreeMap<(LeaseId, Sequence), Vec<u8>> {
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let options = LogOptions { segment_bytes: 8 << 10, ..LogOptions::default() };
    let nobody = Box::new(NoReplication::default());
    let mut log = Log::new(&memory, thunderhead_log::LogId(99), options, nobody).unwrap();
    let tablets = [(TabletRange::whole(OLD), SegmentId::NONE)];
    let mut replay = Replay::new(&mut log, tablets).unwrap();
    for segment in digest(copies).unwrap() {
        replay.segment(&copies[&segment].bytes).unwrap();
    }
    replay.finish().unwrap();
    let (mut records, mut cursor) = (BTreeMap::new(), Some(Cursor::default()));
    while let Some(at) = cursor {
        cursor = log.scan_completions(at, |lease, sequence, result| {
            records.insert((lease, sequence), result.to_vec());
        });
    }
    records
}

/// Returns all copies of the logs of one lineage.
fn union(former: &Copies, own: &Copies) -> Copies {
    former.iter().chain(own).map(|(id, replica)| (*id, replica.clone())).collect()
}

/// Returns a log's history up to its end, and all its replicas.
fn ended(random: &mut Random) -> (Past, Copies) {
    let past = past(random, 150);
    let former = past.recorder.replicas(usize::MAX);
    (past, former)
}

#[test]
fn a_log_is_taken_back_after_any_crash_and_after_another_in_the_midst_of_it() {
    let mut interrupted = 0;
    for seed in 0..14 {
        let mut random = Random::from_seed(seed);
        let past = past(&mut random, 120);
        let events = random.within(1..past.recorder.events() as u64 + 1) as usize;
        let former = past.recorder.replicas(events);
        let Some(segments) = digest(&former) else { continue };
        let allowed = past.allowed(events);
        let (mut one, recorder) = cluster(seed, 1);
        put_all(&one, &former, &[0]);
        let (told, found) = taken_back(&mut one, &former, &segments);
        told.outcome.unwrap();
        let found = found.unwrap();
        assert!(allowed.contains(&&found), "seed {seed}");

        // Later updates are in both logs: no deleted object comes back.
        let mut model = found;
        let gone: Vec<u64> = model.keys().copied().filter(|number| number % 3 == 0).collect();
        gone.iter().for_each(|number| _ = model.remove(number));
        one.drive(Duration::from_secs(20), move |user| {
            let gone = gone.clone();
            async move {
                for number in gone {
                    let body = update(Identity::NONE, OLD, &key(number), &[]);
                    user.insist(Opcode::Delete, body).await.unwrap();
                }
            }
        });
        // The shard crashes, here or while it takes the log back.
        let is_midst = random.chance(0.5);
        let last = recorder.events() as u64;
        let until = if is_midst { random.within(1..last + 1) } else { last };
        let own = recorder.replicas(until as usize);
        let names = digest(&own).unwrap_or_default();
        let has_taken_back = names.iter().any(|it| it.0 <= LIFE);
        let (copies, segments) = match has_taken_back {
            true => (union(&former, &own), names),
            // The shard's log names nothing of the former one, which is complete without it.
            false => (former.clone(), segments),
        };
        interrupted += u64::from(is_midst && !has_taken_back);
        let (mut two, _) = cluster(seed + 100, 2);
        put_all(&two, &copies, &[1]);
        let expected = records(&copies);
        let (told, found) = taken_back(&mut two, &copies, &segments);
        told.outcome.unwrap();
        let found = found.unwrap();
        if !is_midst {
            assert!(found == model, "seed {seed}: nothing comes back, no version goes back");
        } else if !has_taken_back {
            assert!(allowed.contains(&&found), "seed {seed}");
        }
        let status = two.drive(Duration::from_secs(9), |user| async move { user.status().await });
        assert_eq!(status.records, expected.len() as u64, "seed {seed}");
    }
    assert!(interrupted > 1, "{interrupted}");
}

#[test]
fn completed_updates_are_not_repeated_after_a_log_was_taken_back() {
    let (past, former) = ended(&mut Random::from_seed(31));
    let (mut cluster, _) = cluster(31, 1);
    let segments = put_all(&cluster, &former, &[0]);
    let (told, found) = taken_back(&mut cluster, &former, &segments);
    told.outcome.unwrap();
    assert!(found.as_ref() == Ok(&past.steps.last().unwrap().1));
    let expected = records(&former);
    assert!(expected.len() > 20, "{}", expected.len());
    cluster.drive(Duration::from_secs(30), move |user| {
        let expected = expected.clone();
        async move {
            for ((lease, sequence), result) in expected {
                let identity = Identity::new(lease, sequence, Sequence::FIRST);
                let version = user.write(identity, OLD, b"another key", b"late").await.unwrap();
                assert_eq!(record(thunderhead_log::Version(version)), result);
            }
            assert_eq!(user.read(OLD, b"another key").await, Err(Status::NotFound));
        }
    });
}

#[test]
fn a_copy_that_is_damaged_is_not_taken_back_and_another_one_is() {
    for seed in 0..8 {
        let mut random = Random::from_seed(seed + 40);
        let (past, former) = ended(&mut random);
        let (mut one, _) = cluster(seed, 1);
        let segments = put_all(&one, &former, &[0, 1]);
        // The coordinator decides which copies of a head are whole.
        for segment in segments.iter().filter(|it| !former[*it].open) {
            let backup = random.below(2) as usize;
            match random.below(3) {
                0 => flip(&one, backup, *segment, &mut random),
                1 => drop(one.backups.borrow_mut().replicas(backup, GONE).remove(segment)),
                _ => {}
            }
        }
        let (told, found) = taken_back(&mut one, &former, &segments);
        told.outcome.unwrap();
        let (found, expected) = (found.unwrap(), &past.steps.last().unwrap().1);
        let brief =
            |it: &Model, key: &u64| it.get(key).map(|(version, value)| (*version, value.len()));
        for key in 0..KEYS {
            assert_eq!(brief(&found, &key), brief(expected, &key), "seed {seed}: {key}");
        }
        assert!(found == *expected, "seed {seed}");
    }
}

#[test]
fn a_log_of_which_a_segment_is_damaged_everywhere_leaves_nothing_behind() {
    let (_, former) = ended(&mut Random::from_seed(51));
    let (mut one, _) = cluster(51, 1);
    let segments = put_all(&one, &former, &[0, 1]);
    let closed = segments.iter().rfind(|it| !former[*it].open).unwrap();
    for backup in [0, 1] {
        let mut backups = one.backups.borrow_mut();
        let bytes = backups.replicas(backup, GONE).get_mut(closed).unwrap();
        let half = bytes.len() / 2;
        bytes.truncate(half);
        // The flipped bit is in an entry that is there whole.
        bytes[half / 2] ^= 4;
    }
    let (told, found) = taken_back(&mut one, &former, &segments);
    assert!(told.outcome.is_err() && !told.keeps, "{told:?}");
    assert_eq!(found, Err(Status::Moved));
    one.drive(Duration::from_secs(9), |user| async move {
        let status = user.status().await;
        assert_eq!((status.objects, status.records, status.live_bytes), (0, 0, 0));
        assert_eq!(status.inherited, Some(Vec::new()), "nothing of it is needed");
    });
}

#[test]
fn a_shard_whose_log_names_what_it_gave_up_says_so_when_it_fails_to_rebuild_it_in_parts() {
    let (_, former) = ended(&mut Random::from_seed(81));
    let (mut one, _) = cluster(81, 1);
    let segments = put_all(&one, &former, &[0]);
    // A leader that no longer knows the recovery has begun another one.
    one.coordinators.borrow_mut().refuses = Some(Status::BadRange);
    let (told, found) = taken_back(&mut one, &former, &segments);
    assert!(told.outcome.is_ok(), "{told:?}");
    assert_eq!(found, Err(Status::Moved));
    one.coordinators.borrow_mut().refuses = None;
    one.coordinators.borrow_mut().recovered.clear();
    let closed = segments.iter().find(|it| !former[*it].open).unwrap();
    one.backups.borrow_mut().replicas(0, GONE).remove(closed);
    one.backups.borrow_mut().recovery = Some(RecoveryId(2));
    let in_parts = Recover { master: SECOND, ..one.recover(RecoveryId(2), &segments) };
    let (told, _) = recovered(&mut one, in_parts);
    assert!(told.outcome.is_err() && told.keeps, "{told:?}");
}

#[test]
fn a_shard_that_cannot_take_a_log_back_says_so_and_rebuilds_it() {
    let (past, former) = ended(&mut Random::from_seed(61));
    // The first shard's log has another id.
    let mut one = ShardCluster::new(61, Link::default(), shard_options(), 1 << 20);
    let segments = put_all(&one, &former, &[0]);
    let back = Recover { master: MASTER, ..task(&one, &former, &segments) };
    let (told, found) = recovered(&mut one, back.clone());
    assert!(told.outcome.is_err() && !told.keeps, "{told:?}");
    assert_eq!(found, Err(Status::Moved));
    one.coordinators.borrow_mut().recovered.clear();
    let again = control::to_body(&Recover { recovery: RecoveryId(2), ..back });
    one.drive(Duration::from_secs(9), move |user| {
        let again = again.clone();
        async move {
            let refused = user.call(Opcode::Recover, again).await;
            let status = Status::Refused;
            assert!(matches!(refused, Err(CallError::Refused { status: it, .. }) if it == status));
        }
    });
    one.backups.borrow_mut().recovery = Some(RecoveryId(3));
    let task = one.recover(RecoveryId(3), &segments);
    let (told, found) = recovered(&mut one, task);
    told.outcome.unwrap();
    assert!(found.as_ref() == Ok(&past.steps.last().unwrap().1));
}

#[test]
fn a_log_of_which_something_was_rebuilt_before_is_not_taken_back() {
    let (past, former) = ended(&mut Random::from_seed(91));
    let (mut one, _) = cluster(91, 1);
    let segments = put_all(&one, &former, &[0]);
    // One segment is unavailable, so the others are replayed in vain.
    let closed = segments.iter().find(|it| !former[*it].open).unwrap();
    let hidden = one.backups.borrow_mut().replicas(0, GONE).remove(closed).unwrap();
    let in_parts = Recover { master: SECOND, ..one.recover(RecoveryId(1), &segments) };
    let (told, _) = recovered(&mut one, in_parts);
    assert!(told.outcome.is_err() && !told.keeps, "{told:?}");
    one.coordinators.borrow_mut().recovered.clear();
    one.backups.borrow_mut().replicas(0, GONE).insert(*closed, hidden);
    // A leader that does not know that begins anew. The replayed entries would count a second time.
    one.backups.borrow_mut().recovery = Some(RecoveryId(2));
    let back = Recover { recovery: RecoveryId(2), ..task(&one, &former, &segments) };
    let (told, _) = recovered(&mut one, back);
    assert!(told.outcome.is_err() && !told.keeps, "{told:?}");
    one.coordinators.borrow_mut().recovered.clear();
    one.backups.borrow_mut().recovery = Some(RecoveryId(3));
    let in_parts = Recover { master: SECOND, ..one.recover(RecoveryId(3), &segments) };
    let (told, found) = recovered(&mut one, in_parts);
    told.outcome.unwrap();
    assert!(found.as_ref() == Ok(&past.steps.last().unwrap().1));
}

#[test]
fn a_shard_says_what_it_still_has_of_its_former_log_once_that_is_settled() {
    let (_, former) = ended(&mut Random::from_seed(71));
    let (mut one, recorder) = cluster(71, 1);
    let segments = put_all(&one, &former, &[0]);
    let inherited = async |user: User| user.status().await.inherited;
    assert_eq!(one.drive(Duration::from_secs(9), inherited), None, "it may still begin");
    recorder.hold(true);
    let body = control::to_body(&task(&one, &former, &segments));
    let coordinators = Rc::clone(&one.coordinators);
    one.drive(Duration::from_secs(9), move |user| {
        let body = body.clone();
        async move { user.insist(Opcode::Recover, body).await.unwrap() }
    });
    one.simulation.run_for(Duration::from_secs(1));
    assert_eq!(one.drive(Duration::from_secs(9), inherited), None, "it is at it");
    recorder.hold(false);
    one.simulation.run_for(Duration::from_secs(1));
    assert!(coordinators.borrow().recovered[0].outcome.is_ok());
    let closed = segments.iter().copied().filter(|it| !former[it].open);
    let has: Vec<SegmentId> = closed.collect();
    assert_eq!(one.drive(Duration::from_secs(9), inherited), Some(has));
}
