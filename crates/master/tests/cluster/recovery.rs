//! Tablets of a crashed master, rebuilt from the replicas of backups.

use crate::fixture::*;
use crate::past::*;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_log::{Completion, Condition as When, Recorder, SegmentId, TabletRange};
use thunderhead_net::sim::Link;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Random;
use thunderhead_wire::control::{self, Recover, Recovered, Tablets, Taken};
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{KeyHash, LeaseId, RecoveryId, Sequence, Status};

/// Lets the shard recover, and returns its report to the coordinator and the recovered contents.
pub(crate) fn recovered(
    cluster: &mut ShardCluster,
    task: Recover,
) -> (Recovered, Result<Model, Status>) {
    let coordinators = Rc::clone(&cluster.coordinators);
    cluster.drive(Duration::from_secs(100), move |user| {
        let (coordinators, body) = (Rc::clone(&coordinators), control::to_body(&task));
        async move {
            user.insist(Opcode::Recover, body.clone()).await.unwrap();
            while coordinators.borrow().recovered.is_empty() {
                user.tasks.sleep(Duration::from_millis(10)).await;
                if user.tasks.now().0 % 3 == 0 {
                    let again = user.insist(Opcode::Recover, body.clone()).await;
                    // A log that could not be taken back is refused from then on.
                    assert!(again.is_ok() || !coordinators.borrow().recovered.is_empty());
                }
            }
            let outcome = coordinators.borrow().recovered[0].clone();
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
fn tablets_of_one_master_may_come_in_several_recoveries() {
    let mut random = Random::from_seed(6);
    let past = past(&mut random, 150);
    let mut cluster = ShardCluster::new(14, Link::default(), shard_options(), 4 << 20);
    let segments = put_all(&cluster, &past.recorder.replicas(usize::MAX), &[0]);
    let whole = TabletRange::whole(OLD);
    let ranges = [
        TabletRange { last: KeyHash(u64::MAX / 2), ..whole },
        TabletRange { first: KeyHash(u64::MAX / 2 + 1), ..whole },
    ];
    let mut partition = 0..;
    let tasks = ranges.map(|range| Recover {
        partition: partition.next().unwrap(),
        tablets: vec![Taken { range, since: SegmentId::NONE }],
        ..cluster.recover(RecoveryId(1), &segments)
    });
    let coordinators = Rc::clone(&cluster.coordinators);
    cluster.drive(Duration::from_secs(30), move |user| {
        let (tasks, coordinators) = (tasks.clone(), Rc::clone(&coordinators));
        async move {
            for task in tasks.iter().chain(&tasks) {
                user.insist(Opcode::Recover, control::to_body(task)).await.unwrap();
            }
            // Both tables are rebuilt at once, and neither can be taken or dropped meanwhile.
            for opcode in [Opcode::TakeTablets, Opcode::DropTablets] {
                let tablets = Tablets {
                    master: MASTER,
                    tablets: vec![whole],
                    map_version: 0,
                    options: Vec::new(),
                };
                let refused = user.call(opcode, control::to_body(&tablets)).await;
                let status = Status::InProgress;
                let refused =
                    matches!(refused, Err(CallError::Refused { status: it, .. }) if it == status);
                assert!(refused, "{opcode}");
            }
            while coordinators.borrow().recovered.len() < 2
                || user.status().await.recovering.is_some()
            {
                user.tasks.sleep(Duration::from_millis(1)).await;
            }
            for task in &tasks {
                user.insist(Opcode::Recover, control::to_body(task)).await.unwrap();
            }
            user.tasks.sleep(Duration::from_millis(500)).await;
            assert_eq!(
                coordinators.borrow().recovered.len(),
                2,
                "a completed recovery is not repeated"
            );
        }
    });
    let found =
        cluster.drive(Duration::from_secs(30), |user| async move { user.status().await.objects });
    assert_eq!(found, past.steps.last().unwrap().1.len() as u64);
}

/// Begins a recovery while no appended bytes become durable.
fn begun_while_nothing_gets_durable(seed: u64) -> ShardCluster {
    let mut random = Random::from_seed(3);
    let past = past(&mut random, 100);
    let mut cluster = ShardCluster::new(seed, Link::default(), shard_options(), 4 << 20);
    let segments = put_all(&cluster, &past.recorder.replicas(usize::MAX), &[0]);
    cluster.recorder.hold(true);
    let body = control::to_body(&cluster.recover(RecoveryId(1), &segments));
    cluster.drive(Duration::from_secs(9), move |user| {
        let body = body.clone();
        async move { user.insist(Opcode::Recover, body).await.unwrap() }
    });
    cluster
}

#[test]
fn nothing_is_told_or_served_before_what_was_rebuilt_is_durable() {
    let mut cluster = begun_while_nothing_gets_durable(11);
    cluster.simulation.run_for(shard_options().recovery_patience / 2);
    assert!(cluster.coordinators.borrow().recovered.is_empty());
    let read = async |user: User| user.read(OLD, &key(0)).await;
    assert_eq!(cluster.drive(Duration::from_secs(9), read), Err(Status::Moved));
    cluster.recorder.hold(false);
    cluster.simulation.run_for(Duration::from_secs(1));
    assert!(cluster.coordinators.borrow().recovered[0].outcome.is_ok());
    assert_ne!(cluster.drive(Duration::from_secs(9), read), Err(Status::Moved));
}

#[test]
fn a_recovery_without_backups_for_its_copies_reports_that() {
    let mut cluster = begun_while_nothing_gets_durable(12);
    cluster.simulation.run_for(shard_options().recovery_patience * 3);
    let why = cluster.coordinators.borrow().recovered[0].outcome.clone().unwrap_err();
    assert!(why.contains("have taken no copies"), "{why}");
    let read = async |user: User| user.read(OLD, &key(0)).await;
    assert_eq!(cluster.drive(Duration::from_secs(9), read), Err(Status::Moved));
}

#[test]
fn a_lease_that_ended_while_its_master_was_gone_is_found_to_be_over() {
    let mut random = Random::from_seed(7);
    let past = past(&mut random, 150);
    let mut cluster = ShardCluster::new(15, Link::default(), shard_options(), 4 << 20);
    let segments = put_all(&cluster, &past.recorder.replicas(usize::MAX), &[0]);
    cluster.coordinators.borrow_mut().ended.insert(LeaseId(8));
    let task = cluster.recover(RecoveryId(1), &segments);
    let (_, found) = recovered(&mut cluster, task);
    assert_eq!(found.as_ref(), Ok(&past.steps.last().unwrap().1));
    cluster.drive(Duration::from_secs(9), |user| async move {
        let late = user.write(identity(LeaseId(8), 1000, 1), OLD, &key(0), b"late").await;
        assert_eq!(late, Err(Status::LeaseEnded));
        user.tasks.sleep(Duration::from_millis(10)).await;
        assert_eq!(user.status().await.records, 0);
    });
}

#[test]
fn others_are_served_while_tablets_are_rebuilt_and_updates_stay_done_once() {
    // There is so much to replay that it takes many turns.
    let recorder = Recorder::new();
    let mut log = new_log(6, 4 << 20, Box::new(recorder.clone()));
    log.create_tablet(TabletRange::whole(OLD)).unwrap();
    let objects = 15_000u64;
    for number in 0..objects {
        let version = log.safe_version().next();
        let result = record(version);
        let completion =
            Completion { lease: LeaseId(8), sequence: Sequence(number + 1), result: &result };
        log.write_completed(OLD, &key(number), &[1; 30], When::Absent, completion).unwrap();
    }
    log.turn();
    let mut cluster = ShardCluster::new(8, Link::default(), shard_options(), 8 << 20);
    let segments = put_all(&cluster, &recorder.replicas(usize::MAX), &[0, 1, 2]);
    let (task, coordinators) =
        (cluster.recover(RecoveryId(1), &segments), Rc::clone(&cluster.coordinators));
    let before = cluster.simulation.turns();
    let during = cluster.drive(Duration::from_secs(100), move |user| {
        let (task, coordinators) = (task.clone(), Rc::clone(&coordinators));
        async move {
            user.take(MASTER, vec![TabletRange::whole(OTHER)]).await.unwrap();
            user.write(Identity::NONE, OTHER, b"k", b"0").await.unwrap();
            user.insist(Opcode::Recover, control::to_body(&task)).await.unwrap();
            let mut during = 0;
            loop {
                let number = during.to_string();
                user.write(Identity::NONE, OTHER, b"k", number.as_bytes()).await.unwrap();
                assert_eq!(user.read(OTHER, b"k").await.unwrap().1, number.as_bytes());
                let status = user.status().await;
                let Some((done, of)) = status.recovering else { break };
                if coordinators.borrow().recovered.is_empty() {
                    assert_eq!(user.read(OLD, &key(1)).await, Err(Status::Moved));
                    during += u64::from(done > 0 && done < of);
                }
            }
            // Updates that were done before the crash are answered; new ones wait for the
            // coordinator.
            let old = identity(LeaseId(8), 1, 1);
            let (version, _) = user.read(OLD, &key(0)).await.unwrap();
            let again = user.call(Opcode::Write, update(old, OLD, &key(0), b"x")).await;
            assert_eq!(again.unwrap(), version.0.to_le_bytes());
            // When a tablet has arrived, the shard asks about all leases.
            let new = identity(LeaseId(8), objects + 1, objects + 1);
            user.write(new, OLD, &key(0), b"new").await.unwrap();
            assert_eq!(coordinators.borrow().count(Opcode::CheckLeases), 1);
            let status = user.status().await;
            assert_eq!(status.objects, objects + 1);
            // Updates whose answers the client has are forgotten, over some turns.
            while user.status().await.records > 2 {
                user.tasks.sleep(Duration::from_micros(50)).await;
            }
            let late = user.write(identity(LeaseId(8), 5, 5), OLD, &key(0), b"late").await;
            assert_eq!(late, Err(Status::Stale));
            during
        }
    });
    assert!(during > 5, "others were served {during} times");
    let turns = cluster.simulation.turns() - before;
    assert!(turns > objects / 200, "{turns} turns");
    assert!(cluster.backups.borrow().asked.len() > 20);
}
