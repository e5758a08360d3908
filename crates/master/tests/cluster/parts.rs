//! Partitions that one or several shards rebuild from the parts that backups have cut, of one
//! crashed master or of several.

use crate::fixture::*;
use crate::past::*;
use crate::recovery::recovered;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_log::{Completion, Condition as When, Recorder, SegmentId, TabletRange, Version};
use thunderhead_net::sim::Link;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Random;
use thunderhead_simulator::swarm;
use thunderhead_testkit::CoordinatorState;
use thunderhead_wire::control::{self, Recover, Taken};
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{KeyHash, LeaseId, MasterId, RecoveryId, Sequence, Status};

const HALF: u64 = u64::MAX / 2;

/// Returns the two halves of the table.
fn halves() -> [Vec<Taken>; 2] {
    let whole = TabletRange::whole(OLD);
    let ranges = [
        TabletRange { last: KeyHash(HALF), ..whole },
        TabletRange { first: KeyHash(HALF + 1), ..whole },
    ];
    ranges.map(|range| vec![Taken { range, since: SegmentId::NONE }])
}

fn half_of(number: u64) -> usize {
    usize::from(KeyHash::of(&key(number)).0 > HALF)
}

fn cluster(seed: u64) -> ShardCluster {
    ShardCluster::new(seed, Link::default(), shard_options(), 4 << 20)
}

async fn found(user: &User) -> Model {
    let mut found = Model::new();
    for number in 0..KEYS {
        if let Ok(object) = user.read(OLD, &key(number)).await {
            found.insert(number, object);
        }
    }
    found
}

/// Waits until the coordinators have had `count` reports.
async fn told(user: &User, coordinators: &RefCell<CoordinatorState>, count: usize) {
    while coordinators.borrow().recovered.len() < count || user.status().await.recovering.is_some()
    {
        user.tasks.sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn whatever_was_durable_is_rebuilt_and_what_one_backup_does_not_give_another_one_does() {
    let (mut silent, mut damaged, mut absent) = (0, 0, 0);
    for seed in 0..150 {
        let mut random = Random::from_seed(seed);
        let past = past(&mut random, 150);
        let link = swarm::drawn_link(&mut random);
        let mut cluster = ShardCluster::new(seed, link, shard_options(), 4 << 20);
        // The master crashes after any event that leaves a log.
        let events = random.below(past.recorder.events() as u64 + 1) as usize;
        let replicas = past.recorder.replicas(events);
        if digest(&replicas).is_none() {
            continue;
        }
        cluster.backups.borrow_mut().busy = random.below(100);
        // Each segment has at least two good copies, one of which may be unreachable.
        let segments = put_all(&cluster, &replicas, &[0, 1, 2]);
        let mut task = cluster.recover(RecoveryId(1), &segments);
        for segment in replicas.keys() {
            let which = random.below(3) as usize;
            if random.chance(0.3) {
                damaged += 1;
                flip(&cluster, which, *segment, &mut random);
            } else if random.chance(0.3) {
                absent += 1;
                cluster.backups.borrow_mut().replicas(which, GONE).remove(segment);
            } else if random.chance(0.2) {
                // This name has the bytes of another segment.
                let other = &replicas[&segments[0]];
                put(&cluster, which, *segment, other);
            }
        }
        let is_silent = random.chance(0.3);
        if is_silent {
            silent += 1;
            let which = random.below(3) as usize;
            cluster.backup(which).kill();
            // There is a third copy, which is good.
            for (segment, replica) in &replicas {
                put(&cluster, (which + 1) % 3, *segment, replica);
            }
        }
        task.segments.sort_by_cached_key(|_| random.number());
        let (told, found) = recovered(&mut cluster, task);
        assert!(told.outcome.is_ok(), "seed {seed}: {told:?}");
        assert_eq!((told.crashed, told.recovery, told.partition), (GONE, RecoveryId(1), 0));
        let found = found.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!(past.allowed(events).contains(&&found), "seed {seed}: after {events} events");
    }
    assert!(silent > 10 && damaged > 50 && absent > 50, "{silent} {damaged} {absent}");
}

#[test]
fn two_shards_rebuild_a_partition_each_and_updates_stay_done_once() {
    let recorder = Recorder::new();
    let mut log = new_log(5, 4 << 20, Box::new(recorder.clone()));
    log.create_tablet(TabletRange::whole(OLD)).unwrap();
    for number in 0..KEYS {
        let result = record(Version(1));
        let completion =
            Completion { lease: LeaseId(8), sequence: Sequence(number + 1), result: &result };
        let value = vec![number as u8; 500];
        log.write_completed(OLD, &key(number), &value, When::Always, completion).unwrap();
    }
    log.turn();
    let mut cluster = cluster(21);
    let segments = put_all(&cluster, &recorder.replicas(usize::MAX), &[0, 1]);
    let second = cluster.add_shard(SECOND, shard_options(), 4 << 20, Recorder::new());
    let second = cluster.address(second);
    let task = cluster.recover(RecoveryId(1), &segments);
    let coordinators = Rc::clone(&cluster.coordinators);
    cluster.drive(Duration::from_secs(9), move |first| {
        let (task, coordinators) = (task.clone(), Rc::clone(&coordinators));
        async move {
            let users = [first.clone(), first.of_shard(second)];
            for (partition, tablets) in halves().into_iter().enumerate() {
                let master = [MASTER, SECOND][partition];
                let partition = partition as u32;
                let task = Recover { master, partition, tablets, ..task.clone() };
                let body = control::to_body(&task);
                users[partition as usize].insist(Opcode::Recover, body).await.unwrap();
            }
            told(&users[0], &coordinators, 2).await;
            told(&users[1], &coordinators, 2).await;
            for told in coordinators.borrow().recovered.iter() {
                let by = [MASTER, SECOND][told.partition as usize];
                let tablets = told.outcome.as_ref().unwrap();
                assert_eq!((told.by, tablets.len()), (by, 1));
                assert_eq!(tablets[0].range, halves()[told.partition as usize][0].range);
            }
            let mut records = [0, 0];
            for number in 0..KEYS {
                let half = half_of(number);
                records[half] += 1;
                let (user, other) = (&users[half], &users[1 - half]);
                assert_eq!(other.read(OLD, &key(number)).await, Err(Status::Moved));
                // The update was done, and gets its recorded outcome.
                let identity = identity(LeaseId(8), number + 1, 1);
                assert_eq!(user.write(identity, OLD, &key(number), b"again").await, Ok(1));
                let (_, value) = user.read(OLD, &key(number)).await.unwrap();
                assert_eq!(value, vec![number as u8; 500]);
            }
            for (user, records) in users.iter().zip(records) {
                assert_eq!(user.status().await.records, records);
            }
        }
    });
}

#[test]
fn two_masters_are_rebuilt_at_once_and_others_are_served() {
    let pasts = [2, 3].map(|seed| past(&mut Random::from_seed(seed), 150));
    let mut cluster = cluster(22);
    let mut tasks = Vec::new();
    for ((number, past), tablets) in pasts.iter().enumerate().zip(halves()) {
        let replicas = past.recorder.replicas(usize::MAX);
        let crashed = MasterId(3 + number as u64);
        let segments = put_all_of(&cluster, crashed, &replicas, &[number]);
        let mut task = cluster.recover(RecoveryId(1), &segments);
        let of = cluster.backup_addresses()[number];
        task.segments.iter_mut().for_each(|it| it.at = vec![of]);
        tasks.push(Recover { crashed, tablets, ..task });
    }
    cluster.backups.borrow_mut().busy = 60;
    let coordinators = Rc::clone(&cluster.coordinators);
    let found = cluster.drive(Duration::from_secs(9), move |user| {
        let (tasks, coordinators) = (tasks.clone(), Rc::clone(&coordinators));
        async move {
            user.take(MASTER, vec![TabletRange::whole(OTHER)]).await.unwrap();
            for task in tasks.iter().chain(&tasks) {
                user.insist(Opcode::Recover, control::to_body(task)).await.unwrap();
            }
            let written = user.write(Identity::NONE, OTHER, &key(1), b"1").await;
            assert!(coordinators.borrow().recovered.is_empty() && written.is_ok());
            assert_eq!(user.read(OLD, &key(0)).await, Err(Status::Moved));
            told(&user, &coordinators, 2).await;
            let crashed: Vec<_> =
                coordinators.borrow().recovered.iter().map(|it| it.crashed).collect();
            assert!(crashed.contains(&MasterId(3)) && crashed.contains(&MasterId(4)));
            for task in &tasks {
                user.insist(Opcode::Recover, control::to_body(task)).await.unwrap();
            }
            user.tasks.sleep(Duration::from_millis(500)).await;
            assert_eq!(
                coordinators.borrow().recovered.len(),
                2,
                "a completed recovery is not repeated"
            );
            found(&user).await
        }
    });
    let last = |half: usize| pasts[half].steps.last().unwrap().1.clone();
    let expected = (0..KEYS).filter_map(|it| Some((it, last(half_of(it)).remove(&it)?)));
    assert_eq!(found, expected.collect::<Model>());
}

#[test]
fn a_later_recovery_takes_the_place_of_an_earlier_one() {
    let past = past(&mut Random::from_seed(4), 150);
    let mut cluster = cluster(23);
    let segments = put_all(&cluster, &past.recorder.replicas(usize::MAX), &[0, 1]);
    let mut tasks =
        [RecoveryId(1), RecoveryId(2)].map(|recovery| cluster.recover(recovery, &segments));
    // The first recovery makes progress, but does not end.
    tasks[0].segments[0].at = vec![cluster.backup_addresses()[2]];
    cluster.backup(2).kill();
    let (coordinators, backups) = (Rc::clone(&cluster.coordinators), Rc::clone(&cluster.backups));
    let found = cluster.drive(Duration::from_secs(30), move |user| {
        let (tasks, coordinators, backups) =
            (tasks.clone(), Rc::clone(&coordinators), Rc::clone(&backups));
        async move {
            let [first, second] = tasks;
            user.insist(Opcode::Recover, control::to_body(&first)).await.unwrap();
            while user.status().await.recovering.is_none_or(|(bytes, _)| bytes == 0) {
                user.tasks.sleep(Duration::from_micros(100)).await;
            }
            assert!(coordinators.borrow().recovered.is_empty());
            backups.borrow_mut().recovery = Some(RecoveryId(2));
            backups.borrow_mut().busy = 200;
            user.insist(Opcode::Recover, control::to_body(&second)).await.unwrap();
            let late = user.call(Opcode::Recover, control::to_body(&first)).await;
            let status = Status::InProgress;
            assert!(matches!(late, Err(CallError::Refused { status: it, .. }) if it == status));
            assert_eq!(user.read(OLD, &key(0)).await, Err(Status::Moved));
            told(&user, &coordinators, 1).await;
            found(&user).await
        }
    });
    assert_eq!(found, past.steps.last().unwrap().1);
    let told = cluster.coordinators.borrow().recovered.clone();
    assert_eq!((told.len(), told[0].recovery), (1, RecoveryId(2)));
    assert!(told[0].outcome.is_ok(), "{told:?}");
}

/// Some of the tablets of a recovery may be written as the shard's, although it has no answer.
#[test]
fn tablets_that_the_coordinator_may_have_written_stay_in_a_later_recovery() {
    let past = past(&mut Random::from_seed(4), 150);
    let mut cluster = cluster(27);
    let segments = put_all(&cluster, &past.recorder.replicas(usize::MAX), &[0, 1]);
    let [kept, lost] = halves();
    let first = Recover {
        tablets: [kept.clone(), lost.clone()].concat(),
        ..cluster.recover(RecoveryId(1), &segments)
    };
    let second = Recover { tablets: lost.clone(), ..cluster.recover(RecoveryId(2), &segments) };
    let (coordinators, backups) = (Rc::clone(&cluster.coordinators), Rc::clone(&cluster.backups));
    coordinators.borrow_mut().refuses = Some(Status::MetastoreUnavailable);
    let found = cluster.drive(Duration::from_secs(30), move |user| {
        let (first, second, lost) = (first.clone(), second.clone(), lost[0].range);
        let (coordinators, backups) = (Rc::clone(&coordinators), Rc::clone(&backups));
        async move {
            user.insist(Opcode::Recover, control::to_body(&first)).await.unwrap();
            while coordinators.borrow().recovered.is_empty() {
                user.tasks.sleep(Duration::from_millis(1)).await;
            }
            backups.borrow_mut().recovery = Some(RecoveryId(2));
            let early = user.call(Opcode::Recover, control::to_body(&second)).await;
            let status = Status::InProgress;
            assert!(matches!(early, Err(CallError::Refused { status: it, .. }) if it == status));
            coordinators.borrow_mut().not_yours.push(lost);
            coordinators.borrow_mut().refuses = None;
            while user.status().await.recovering.is_some() {
                user.tasks.sleep(Duration::from_millis(1)).await;
            }
            let half = found(&user).await;
            // The recovery does not count as done, either.
            coordinators.borrow_mut().not_yours.clear();
            coordinators.borrow_mut().recovered.clear();
            user.insist(Opcode::Recover, control::to_body(&second)).await.unwrap();
            told(&user, &coordinators, 1).await;
            (half, found(&user).await)
        }
    });
    let all = past.steps.last().unwrap().1.clone();
    let half = all.iter().filter(|(key, _)| half_of(**key) == 0);
    assert_eq!(found.0, half.map(|(key, it)| (*key, it.clone())).collect::<Model>());
    assert_eq!(found.1, all);
}

#[test]
fn a_recovery_that_no_backup_knows_of_any_more_fails() {
    let past = past(&mut Random::from_seed(5), 150);
    let mut cluster = cluster(24);
    let segments = put_all(&cluster, &past.recorder.replicas(usize::MAX), &[0, 1]);
    cluster.backups.borrow_mut().recovery = Some(RecoveryId(2));
    let task = cluster.recover(RecoveryId(1), &segments);
    let (told, found) = recovered(&mut cluster, task);
    let why = told.outcome.unwrap_err();
    assert!(why.contains("no backup can give") && why.contains("server 2"), "{why}");
    assert_eq!(found, Err(Status::Moved));
}

#[test]
fn a_segment_damaged_everywhere_is_named_and_nothing_remains() {
    let past = past(&mut Random::from_seed(6), 150);
    let mut cluster = cluster(25);
    let replicas = past.recorder.replicas(usize::MAX);
    let segments = put_all(&cluster, &replicas, &[0, 1]);
    let victim = segments[0];
    for backup in 0..2 {
        let mut backups = cluster.backups.borrow_mut();
        let bytes = backups.replicas(backup, GONE).get_mut(&victim).unwrap();
        let at = bytes.len() / 2 + backup;
        bytes[at] ^= 4;
    }
    let task = cluster.recover(RecoveryId(1), &segments);
    let (told, found) = recovered(&mut cluster, task);
    let why = told.outcome.unwrap_err();
    assert!(why.contains(&format!("no backup can give {victim}")), "{why}");
    assert!(why.contains("server 1") && why.contains("server 2"), "{why}");
    assert_eq!(found, Err(Status::Moved));
    // A good copy appears, and the recovery is begun anew.
    put(&cluster, 2, victim, &replicas[&victim]);
    cluster.coordinators.borrow_mut().recovered.clear();
    cluster.backups.borrow_mut().recovery = Some(RecoveryId(2));
    let task = cluster.recover(RecoveryId(2), &segments);
    let (_, found) = recovered(&mut cluster, task);
    assert_eq!(found.as_ref(), Ok(&past.steps.last().unwrap().1));
}

#[test]
fn backups_that_stay_busy_or_silent_are_given_up_in_the_end() {
    for is_silent in [false, true] {
        let past = past(&mut Random::from_seed(7), 100);
        let mut cluster = cluster(26);
        let segments = put_all(&cluster, &past.recorder.replicas(usize::MAX), &[1]);
        cluster.backups.borrow_mut().busy = u64::MAX;
        if is_silent {
            cluster.backup(1).kill();
        }
        let task = cluster.recover(RecoveryId(1), &segments);
        let begun = cluster.simulation.now();
        let (told, _) = recovered(&mut cluster, task);
        let took = cluster.simulation.now() - begun;
        let patience = shard_options().recovery_patience;
        let allowed = if is_silent { patience } else { 6 * patience };
        assert!((allowed..allowed + patience / 2).contains(&took), "{took:?} of {allowed:?}");
        let why = told.outcome.unwrap_err();
        assert!(why.contains("it waited for") && why.contains("server 2"), "{why}");
    }
}

#[test]
fn tablets_that_the_coordinator_refuses_are_dropped() {
    let past = past(&mut Random::from_seed(8), 150);
    let mut cluster = cluster(27);
    let segments = put_all(&cluster, &past.recorder.replicas(usize::MAX), &[0]);
    cluster.coordinators.borrow_mut().refuses = Some(Status::BadRange);
    let task = cluster.recover(RecoveryId(1), &segments);
    let (told, found) = recovered(&mut cluster, task);
    assert!(told.outcome.is_ok());
    assert_eq!(found, Err(Status::Moved));
    cluster.drive(Duration::from_secs(9), |user| async move {
        while user.status().await.records > 0 {
            user.tasks.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(user.status().await.objects, 0);
    });
}

/// A coordinator may have written that the tablets are here, and its answer was lost. The refusal
/// of a server, or of a program of another version, says nothing about that.
#[test]
fn rebuilt_tablets_stay_until_a_coordinator_gives_a_verdict_about_them() {
    let is_verdict = |status| matches!(status, Status::Deposed | Status::BadRange);
    let others = Status::ALL.iter().filter(|it| **it != Status::Ok && !is_verdict(**it));
    for (number, status) in others.enumerate() {
        let past = past(&mut Random::from_seed(8), 150);
        let mut cluster = cluster(60 + number as u64);
        let segments = put_all(&cluster, &past.recorder.replicas(usize::MAX), &[0]);
        let coordinators = Rc::clone(&cluster.coordinators);
        coordinators.borrow_mut().refuses = Some(*status);
        let task = control::to_body(&cluster.recover(RecoveryId(1), &segments));
        let found = cluster.drive(Duration::from_secs(100), move |user| {
            let (task, coordinators) = (task.clone(), Rc::clone(&coordinators));
            async move {
                user.insist(Opcode::Recover, task).await.unwrap();
                while coordinators.borrow().recovered.is_empty() {
                    user.tasks.sleep(Duration::from_millis(1)).await;
                }
                user.tasks.sleep(Duration::from_secs(1)).await;
                coordinators.borrow_mut().refuses = None;
                while user.status().await.recovering.is_some() {
                    user.tasks.sleep(Duration::from_millis(1)).await;
                }
                found(&user).await
            }
        });
        assert!(!found.is_empty(), "{status:?}");
        assert!(found == past.steps.last().unwrap().1, "{status:?}");
    }
}

#[test]
fn no_more_than_some_are_rebuilt_at_once() {
    let past = past(&mut Random::from_seed(9), 50);
    let mut cluster = cluster(28);
    let segments = put_all(&cluster, &past.recorder.replicas(usize::MAX), &[0]);
    cluster.backups.borrow_mut().busy = 2000;
    let task = cluster.recover(RecoveryId(1), &segments);
    let coordinators = Rc::clone(&cluster.coordinators);
    cluster.drive(Duration::from_secs(100), move |user| {
        let (task, coordinators) = (task.clone(), Rc::clone(&coordinators));
        async move {
            let parts = (0..9u64).map(|part| {
                let (first, last) = (KeyHash(part << 60), KeyHash((part << 60) + (1 << 59)));
                let range = TabletRange { table: OLD, first, last };
                let tablets = vec![Taken { range, since: SegmentId::NONE }];
                control::to_body(&Recover { partition: part as u32, tablets, ..task.clone() })
            });
            let parts: Vec<Vec<u8>> = parts.collect();
            for part in &parts[..8] {
                user.insist(Opcode::Recover, part.clone()).await.unwrap();
            }
            let busy = user.call(Opcode::Recover, parts[8].clone()).await;
            let status = Status::Busy;
            assert!(matches!(busy, Err(CallError::Refused { status: it, .. }) if it == status));
            told(&user, &coordinators, 8).await;
            user.insist(Opcode::Recover, parts[8].clone()).await.unwrap();
            told(&user, &coordinators, 9).await;
        }
    });
    assert!(cluster.coordinators.borrow().recovered.iter().all(|it| it.outcome.is_ok()));
}

#[test]
fn a_shard_whose_memory_is_too_small_says_so_and_goes_on() {
    let recorder = Recorder::new();
    let mut log = new_log(6, 8 << 20, Box::new(recorder.clone()));
    log.create_tablet(TabletRange::whole(OLD)).unwrap();
    for number in 0..4000u64 {
        log.write(OLD, &key(number), &[1; 1000]).unwrap();
    }
    log.turn();
    let mut cluster = ShardCluster::new(29, Link::default(), shard_options(), 1 << 20);
    let segments = put_all(&cluster, &recorder.replicas(usize::MAX), &[0, 1]);
    let task = cluster.recover(RecoveryId(1), &segments);
    let (told, found) = recovered(&mut cluster, task);
    let why = told.outcome.unwrap_err();
    assert!(why.contains("needs more memory"), "{why}");
    assert_eq!(found, Err(Status::Moved));
    // The shard fetches no more of a begun segment than fits.
    assert!(cluster.backups.borrow().asked.len() > 20);
    cluster.drive(Duration::from_secs(100), |user| async move {
        user.take(MASTER, vec![TabletRange::whole(OTHER)]).await.unwrap();
        for number in 0..300u64 {
            let written = user.write(Identity::NONE, OTHER, &key(number), &[2; 1000]).await;
            written.unwrap();
        }
    });
}
