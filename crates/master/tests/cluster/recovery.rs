//! Tablets of a master that is gone, rebuilt from what backups have.

use crate::cast::*;
use crate::past::*;
use crate::world::*;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_log::inspect::SegmentReader;
use thunderhead_log::{
    Completion, Condition as When, Damage, Recorder, SegmentId, SegmentKind, TabletRange,
};
use thunderhead_net::sim::Link;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Random;
use thunderhead_simulator::swarm;
use thunderhead_wire::control::{self, Recover, Recovered, Tablets, Taken};
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{Epoch, KeyHash, Status};

/// Has the shard recover; what the coordinator was told, and what is found then.
pub(crate) fn recovered(
    cluster: &mut Cluster,
    task: Recover,
) -> (Recovered, Result<Model, Status>) {
    let truth = Rc::clone(&cluster.truth);
    cluster.drive(Duration::from_secs(100), move |user| {
        let (truth, body) = (Rc::clone(&truth), control::to_body(&task));
        async move {
            user.insist(Opcode::Recover, body.clone()).await.unwrap();
            while truth.recovered.borrow().is_empty() {
                user.tasks.sleep(Duration::from_millis(10)).await;
                if user.tasks.now().0 % 3 == 0 {
                    user.insist(Opcode::Recover, body.clone()).await.unwrap();
                }
            }
            let outcome = truth.recovered.borrow()[0].clone();
            while user.status().await.recovering.is_some() {
                user.tasks.sleep(Duration::from_millis(1)).await;
            }
            let mut found = Model::new();
            for number in 0..KEYS {
                match user.read(OLD, &key(number)).await {
                    Ok(object) => drop(found.insert(number, object)),
                    Err(Status::NotFound) => {}
                    Err(status) => return (outcome, Err(status)),
                }
            }
            (outcome, Ok(found))
        }
    })
}

#[test]
fn whatever_was_durable_is_rebuilt_after_a_crash_behind_any_event() {
    let (mut damaged, mut silent, mut refused, mut cut) = (0, 0, 0, 0);
    for seed in 0..250 {
        let mut random = Random::from_seed(seed);
        let past = past(&mut random, 150);
        let link = swarm::drawn_link(&mut random);
        let mut cluster = Cluster::new(seed, link, shard_options(), 4 << 20);
        let events = random.below(past.recorder.events() as u64 + 1) as usize;
        let replicas = past.recorder.replicas(events);
        let digest = digest(&replicas);
        let lost = random.chance(0.15).then(|| {
            let named = digest.clone().unwrap_or_default();
            named.get(random.below(named.len().max(1) as u64) as usize).copied()
        });
        let lost = lost.flatten();
        // Where the head before it was not closed yet, that one is as good: nothing came behind it.
        let mut left = replicas.clone();
        left.retain(|id, _| Some(*id) != lost);
        let is_complete =
            self::digest(&left).is_some_and(|it| it.iter().all(|id| left.contains_key(id)));
        let is_silent = random.chance(0.3);
        // What the last event brought may have come to one of the copies in part only.
        let before = past.recorder.replicas(events.saturating_sub(1));
        let is_cut = random.chance(0.4);
        let from = events - usize::from(is_cut && events > 0);
        for (segment, replica) in replicas.iter().filter(|(id, _)| Some(**id) != lost) {
            // One copy where nobody answers, two where everybody should: one of those may be bad.
            let first = random.below(2) as usize;
            put(&cluster, first, *segment, replica, 0);
            let mut other = replica.clone();
            if is_cut && replica.open {
                let had = before.get(segment).map_or(0, |it| it.bytes.len());
                other
                    .bytes
                    .truncate(random.within(had as u64..replica.bytes.len() as u64 + 1) as usize);
                cut += usize::from(other.bytes.len() < replica.bytes.len());
            }
            put(&cluster, 2, *segment, &other, 0);
            if !is_silent && random.chance(0.3) {
                damaged += 1;
                let which = if random.chance(0.5) { first } else { 2 };
                flip(&cluster, which, *segment, &mut random);
            }
        }
        if is_silent {
            silent += 1;
            cluster.simulation.crash(cluster.backups[2].0);
        }
        let task = cluster.recover(Vec::new());
        let (told, found) = recovered(&mut cluster, task);
        assert_eq!((told.crashed, told.by), (GONE, MASTER));
        match told.outcome {
            Ok(taken) => {
                assert!(is_complete, "seed {seed}: {lost:?} is nowhere");
                assert_eq!(taken.len(), 1);
                let found = found.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
                let allowed = [past.allowed(from), past.allowed(events)].concat();
                assert!(allowed.contains(&&found), "seed {seed}: after {events} events");
            }
            Err(why) => {
                refused += 1;
                assert!(!is_complete, "seed {seed}: {why}");
                let named =
                    why.contains("backup") || lost.is_some_and(|it| why.contains(&it.to_string()));
                if !is_silent && self::digest(&left).is_some() {
                    assert!(why.contains("are on no backup"), "seed {seed}: {why}");
                }
                assert!(named && why.contains("master 3"), "seed {seed}: {why}");
                assert_eq!(found, Err(Status::Moved), "seed {seed}");
            }
        }
    }
    assert!(damaged > 100 && silent > 20 && refused > 5, "{damaged} {silent} {refused}");
    assert!(cut > 30, "{cut}");
}

#[test]
fn a_segment_that_is_damaged_everywhere_is_named_and_nothing_is_left() {
    let mut random = Random::from_seed(1);
    let past = past(&mut random, 150);
    let replicas = past.recorder.replicas(usize::MAX);
    let victim = digest(&replicas).unwrap()[0];
    // Also where all copies have the very same damage.
    for same in [false, true] {
        let mut cluster = Cluster::new(5, Link::default(), shard_options(), 4 << 20);
        for (segment, replica) in &replicas {
            for backup in 0..2 {
                put(&cluster, backup, *segment, replica, 0);
            }
        }
        for backup in 0..2 {
            let mut replicas = cluster.backups[backup].1.borrow_mut();
            let (_, bytes) = replicas.get_mut(&victim).unwrap();
            let at = bytes.len() / 2 + if same { 0 } else { backup * 100 };
            bytes[at] ^= 4;
        }
        let task = cluster.recover(Vec::new());
        let (told, found) = recovered(&mut cluster, task.clone());
        let why = told.outcome.unwrap_err();
        assert!(why.contains(&format!("{victim} is damaged in every copy")), "{why}");
        assert!(why.contains("server 1") && why.contains("server 2"), "{why}");
        assert_eq!(found, Err(Status::Moved));
        cluster.drive(Duration::from_secs(9), |user| async move {
            while user.status().await.records > 0 {
                user.tasks.sleep(Duration::from_millis(1)).await;
            }
        });
        // A good copy turns up, and it is tried again.
        put(&cluster, 2, victim, &replicas[&victim], 0);
        cluster.truth.recovered.borrow_mut().clear();
        let (told, found) = recovered(&mut cluster, task);
        assert!(told.outcome.is_ok(), "{told:?}");
        assert_eq!(found.as_ref(), Ok(&past.steps.last().unwrap().1));
        let status =
            cluster.drive(Duration::from_secs(9), |user| async move { user.status().await });
        assert!(status.remarks.iter().any(|it| it.contains("damaged")), "{status:?}");
        assert!(status.records > 0);
    }
}

#[test]
fn an_open_copy_does_not_stand_in_for_closed_ones_that_are_damaged() {
    let mut random = Random::from_seed(4);
    let past = past(&mut random, 150);
    let replicas = past.recorder.replicas(usize::MAX);
    let victim = digest(&replicas).unwrap()[0];
    let mut cluster = Cluster::new(12, Link::default(), shard_options(), 4 << 20);
    for (segment, replica) in &replicas {
        put(&cluster, 0, *segment, replica, 0);
    }
    let mut early = replicas[&victim].clone();
    early.open = true;
    let entries = SegmentReader::new(&early.bytes).unwrap().filter_map(Result::ok);
    let boundary = entries.map(|(at, _)| at as usize).find(|at| *at > 200).unwrap();
    early.bytes.truncate(boundary);
    put(&cluster, 1, victim, &early, 0);
    cluster.backups[0].1.borrow_mut().get_mut(&victim).unwrap().1[600] ^= 4;
    let task = cluster.recover(Vec::new());
    let (told, _) = recovered(&mut cluster, task);
    let why = told.outcome.unwrap_err();
    assert!(why.contains(&format!("{victim} is damaged in every copy: server 1")), "{why}");
}

#[test]
fn an_open_copy_that_only_looks_torn_gives_way_to_an_intact_one() {
    let mut random = Random::from_seed(5);
    let past = past(&mut random, 150);
    let replicas = past.recorder.replicas(usize::MAX);
    let head = *replicas.iter().rev().find(|(_, it)| it.open).unwrap().0;
    // A bit of the last entry's length turned over.
    let whole = &replicas[&head].bytes;
    let bits =
        (1..whole.len() - 90).flat_map(|back| (0..8).map(move |bit| (whole.len() - back, bit)));
    let torn = bits.map(|(at, bit)| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        bytes
    });
    let looks_torn = |bytes: &Vec<u8>| {
        let mut damage = SegmentReader::new(bytes).unwrap().filter_map(Result::err);
        let first = damage.next();
        matches!(first, Some(Damage::Torn { .. })) && damage.next().is_none()
    };
    let torn = torn.into_iter().find(looks_torn).expect("a bit that does");
    for good in [0, 1] {
        let mut cluster = Cluster::new(13, Link::default(), shard_options(), 4 << 20);
        for (segment, replica) in &replicas {
            put(&cluster, 0, *segment, replica, 0);
            put(&cluster, 1, *segment, replica, 0);
        }
        cluster.backups[1 - good].1.borrow_mut().get_mut(&head).unwrap().1 = torn.clone();
        let task = cluster.recover(Vec::new());
        let (_, found) = recovered(&mut cluster, task);
        assert_eq!(found.as_ref(), Ok(&past.steps.last().unwrap().1));
    }
}

#[test]
fn tablets_of_one_master_may_come_in_several_recoveries() {
    let mut random = Random::from_seed(6);
    let past = past(&mut random, 150);
    let mut cluster = Cluster::new(14, Link::default(), shard_options(), 4 << 20);
    for (segment, replica) in &past.recorder.replicas(usize::MAX) {
        put(&cluster, 0, *segment, replica, 0);
    }
    let whole = TabletRange::whole(OLD);
    let ranges = [
        TabletRange { last: KeyHash(u64::MAX / 2), ..whole },
        TabletRange { first: KeyHash(u64::MAX / 2 + 1), ..whole },
    ];
    let tasks = ranges.map(|range| Recover {
        tablets: vec![Taken { range, since: SegmentId::NONE }],
        ..cluster.recover(Vec::new())
    });
    let truth = Rc::clone(&cluster.truth);
    cluster.drive(Duration::from_secs(30), move |user| {
        let (tasks, truth) = (tasks.clone(), Rc::clone(&truth));
        async move {
            for task in tasks.iter().chain(&tasks) {
                user.insist(Opcode::Recover, control::to_body(task)).await.unwrap();
            }
            // Both at once: one waits for the other, and neither can be had or dropped meanwhile.
            for opcode in [Opcode::TakeTablets, Opcode::DropTablets] {
                let tablets = Tablets { master: MASTER, tablets: vec![whole] };
                let refused = user.call(opcode, control::to_body(&tablets)).await;
                let status = Status::InProgress;
                let refused =
                    matches!(refused, Err(CallError::Refused { status: it, .. }) if it == status);
                assert!(refused, "{opcode}");
            }
            while truth.recovered.borrow().len() < 2 || user.status().await.recovering.is_some() {
                user.tasks.sleep(Duration::from_millis(1)).await;
            }
            for task in &tasks {
                user.insist(Opcode::Recover, control::to_body(task)).await.unwrap();
            }
            user.tasks.sleep(Duration::from_millis(500)).await;
            assert_eq!(truth.recovered.borrow().len(), 2, "what is done is not done again");
        }
    });
    let found =
        cluster.drive(Duration::from_secs(30), |user| async move { user.status().await.objects });
    assert_eq!(found, past.steps.last().unwrap().1.len() as u64);
}

#[test]
fn nothing_is_told_or_served_before_what_was_rebuilt_is_durable() {
    let mut random = Random::from_seed(3);
    let past = past(&mut random, 100);
    let mut cluster = Cluster::new(11, Link::default(), shard_options(), 4 << 20);
    for (segment, replica) in &past.recorder.replicas(usize::MAX) {
        put(&cluster, 0, *segment, replica, 0);
    }
    cluster.recorder.hold(true);
    let body = control::to_body(&cluster.recover(Vec::new()));
    cluster.drive(Duration::from_secs(9), move |user| {
        let body = body.clone();
        async move { user.insist(Opcode::Recover, body).await.unwrap() }
    });
    cluster.simulation.run_for(Duration::from_secs(5));
    assert!(cluster.truth.recovered.borrow().is_empty());
    let read = async |user: User| user.read(OLD, &key(0)).await;
    assert_eq!(cluster.drive(Duration::from_secs(9), read), Err(Status::Moved));
    cluster.recorder.hold(false);
    cluster.simulation.run_for(Duration::from_secs(1));
    assert!(cluster.truth.recovered.borrow()[0].outcome.is_ok());
    assert_ne!(cluster.drive(Duration::from_secs(9), read), Err(Status::Moved));
}

#[test]
fn a_lease_that_ended_while_its_master_was_gone_is_found_to_be_over() {
    let mut random = Random::from_seed(7);
    let past = past(&mut random, 150);
    let mut cluster = Cluster::new(15, Link::default(), shard_options(), 4 << 20);
    for (segment, replica) in &past.recorder.replicas(usize::MAX) {
        put(&cluster, 0, *segment, replica, 0);
    }
    cluster.truth.ended.borrow_mut().insert(8);
    let task = cluster.recover(Vec::new());
    let (_, found) = recovered(&mut cluster, task);
    assert_eq!(found.as_ref(), Ok(&past.steps.last().unwrap().1));
    cluster.drive(Duration::from_secs(9), |user| async move {
        assert!(user.status().await.records > 5);
        let late = user.write(Identity::new(8, 1000, 1), OLD, &key(0), b"late").await;
        assert_eq!(late, Err(Status::LeaseEnded));
        user.tasks.sleep(Duration::from_millis(10)).await;
        assert_eq!(user.status().await.records, 0);
    });
}

#[test]
fn an_open_head_of_an_old_epoch_does_not_count() {
    let mut random = Random::from_seed(2);
    let past = past(&mut random, 100);
    let replicas = past.recorder.replicas(usize::MAX);
    let head =
        *replicas.iter().rev().find(|(_, it)| it.open && it.kind == SegmentKind::Head).unwrap().0;
    for current in [false, true] {
        let mut cluster = Cluster::new(6, Link::default(), shard_options(), 4 << 20);
        for (segment, replica) in &replicas {
            let mut replica = replica.clone();
            if *segment == head {
                // It missed what came after the epoch was raised.
                let length = replica.bytes.len();
                put(&cluster, 1, *segment, &replica, 4);
                replica.bytes.truncate(length - 1);
                replica.bytes.extend_from_slice(&[1; 900]);
            }
            put(&cluster, 0, *segment, &replica, 3);
        }
        if !current {
            cluster.backups[1].1.borrow_mut().clear();
        }
        let task = cluster.recover(vec![(head, Epoch(4))]);
        let (told, found) = recovered(&mut cluster, task);
        if current {
            assert_eq!(found, Ok(past.steps.last().unwrap().1.clone()));
        } else {
            let why = told.outcome.unwrap_err();
            assert!(why.contains("cannot be proved complete"), "{why}");
        }
    }
}

#[test]
fn backups_without_a_replica_and_backups_that_are_not_there_are_told_apart() {
    let mut cluster = Cluster::new(7, Link::default(), shard_options(), 4 << 20);
    let task = cluster.recover(Vec::new());
    let (told, _) = recovered(&mut cluster, task.clone());
    let why = told.outcome.unwrap_err();
    assert!(why.contains("none of 3 backups has a replica"), "{why}");
    cluster.truth.recovered.borrow_mut().clear();
    cluster.simulation.crash(cluster.backups[1].0);
    let (told, _) = recovered(&mut cluster, task);
    let why = told.outcome.unwrap_err();
    assert!(why.contains("no answer came from server 2 at 10.0.0."), "{why}");
}

#[test]
fn others_are_served_while_tablets_are_rebuilt_and_updates_stay_done_once() {
    // Much to replay, so that it takes many turns.
    let recorder = Recorder::new();
    let mut log = new_log(6, 4 << 20, Box::new(recorder.clone()));
    log.create_tablet(TabletRange::whole(OLD)).unwrap();
    let objects = 15_000u64;
    for number in 0..objects {
        let version = log.safe_version().next();
        let result = record(version);
        let completion = Completion { lease: 8, sequence: number + 1, result: &result };
        log.write_completed(OLD, &key(number), &[1; 30], When::Absent, completion).unwrap();
    }
    log.turn();
    let mut cluster = Cluster::new(8, Link::default(), shard_options(), 8 << 20);
    for (segment, replica) in recorder.replicas(usize::MAX) {
        put(&cluster, segment.0 as usize % 3, segment, &replica, 0);
    }
    let (task, truth) = (cluster.recover(Vec::new()), Rc::clone(&cluster.truth));
    let before = cluster.simulation.turns();
    let during = cluster.drive(Duration::from_secs(100), move |user| {
        let (task, truth) = (task.clone(), Rc::clone(&truth));
        async move {
            user.take(vec![TabletRange::whole(OTHER)]).await.unwrap();
            user.write(Identity::NONE, OTHER, b"k", b"0").await.unwrap();
            user.insist(Opcode::Recover, control::to_body(&task)).await.unwrap();
            let mut during = 0;
            loop {
                let number = during.to_string();
                user.write(Identity::NONE, OTHER, b"k", number.as_bytes()).await.unwrap();
                assert_eq!(user.read(OTHER, b"k").await.unwrap().1, number.as_bytes());
                let status = user.status().await;
                let Some((done, of)) = status.recovering else { break };
                if truth.recovered.borrow().is_empty() {
                    assert_eq!(user.read(OLD, &key(1)).await, Err(Status::Moved));
                    during += u64::from(done > 0 && done < of);
                }
            }
            // What was done before the crash is answered; what is new waits for the coordinator.
            let identity = Identity::new(8, 1, 1);
            let (version, _) = user.read(OLD, &key(0)).await.unwrap();
            let again = user.call(Opcode::Write, update(identity, OLD, &key(0), b"x")).await;
            assert_eq!(again.unwrap(), version.0.to_le_bytes());
            assert_eq!(truth.lease_questions.get(), 0);
            let new = Identity::new(8, objects + 1, objects + 1);
            user.write(new, OLD, &key(0), b"new").await.unwrap();
            assert_eq!(truth.lease_questions.get(), 1);
            let status = user.status().await;
            assert_eq!(status.objects, objects + 1);
            // What the client has its answers of is forgotten, over some turns.
            while user.status().await.records > 2 {
                user.tasks.sleep(Duration::from_micros(50)).await;
            }
            let late = user.write(Identity::new(8, 5, 5), OLD, &key(0), b"late").await;
            assert_eq!(late, Err(Status::Stale));
            during
        }
    });
    assert!(during > 5, "others were served {during} times");
    let turns = cluster.simulation.turns() - before;
    assert!(turns > objects / 64, "{turns} turns");
    assert!(cluster.reads.get() > 20);
}

#[test]
fn a_shard_without_room_for_the_tablets_says_so() {
    let recorder = Recorder::new();
    let mut log = new_log(6, 8 << 20, Box::new(recorder.clone()));
    log.create_tablet(TabletRange::whole(OLD)).unwrap();
    for number in 0..4000u64 {
        log.write(OLD, &key(number), &[1; 1000]).unwrap();
    }
    log.turn();
    let mut cluster = Cluster::new(9, Link::default(), shard_options(), 1 << 20);
    for (segment, replica) in recorder.replicas(usize::MAX) {
        put(&cluster, 0, segment, &replica, 0);
    }
    let task = cluster.recover(Vec::new());
    let (told, found) = recovered(&mut cluster, task);
    let why = told.outcome.unwrap_err();
    assert!(why.contains("cannot be rebuilt on this shard"), "{why}");
    assert_eq!(found, Err(Status::Moved));
    // What was half built gives its memory back to others.
    cluster.drive(Duration::from_secs(100), |user| async move {
        user.take(vec![TabletRange::whole(OTHER)]).await.unwrap();
        for number in 0..300u64 {
            let written = user.write(Identity::NONE, OTHER, &key(number), &[2; 1000]).await;
            written.unwrap();
        }
    });
}
