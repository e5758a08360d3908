//! Migrations: tablets that come from a running master, and the remains of incomplete ones.

use crate::fixture::*;
use crate::past::*;
use crate::recovery::recovered;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_log::inspect::{Entry as Logged, SegmentReader};
use thunderhead_log::{Recorder, SegmentId, TableId, TabletRange, Version};
use thunderhead_net::sim::Link;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Random;
use thunderhead_testkit::CoordinatorState;
use thunderhead_wire::control::{self, MigratedTablets, MigrationBegin, OwnedSince, Taken};
use thunderhead_wire::migration::{Entry, Head, Kind};
use thunderhead_wire::{KeyHash, LeaseId, RecoveryId, Sequence, Status};

/// The client of the updates in a [`past`].
const LEASE: LeaseId = LeaseId(8);

pub(crate) fn begin(migration: u64, range: TabletRange) -> Vec<u8> {
    message(migration, Kind::Begin, &control::to_body(&MigrationBegin { range }))
}

pub(crate) fn message(migration: u64, kind: Kind, rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    Head { migration, master: MASTER, kind }.put(&mut body);
    body.extend_from_slice(rest);
    body
}

/// Returns the records of these updates, as a tablet's former master sends them.
fn records(migration: u64, sequences: impl IntoIterator<Item = Sequence>) -> Vec<u8> {
    let mut entries = Vec::new();
    for sequence in sequences {
        let (result, key_hash) = (record(Version(sequence.0)), KeyHash(7));
        Entry::Completion { lease: LEASE, sequence, key_hash, result: &result }.put(&mut entries);
    }
    message(migration, Kind::Data, &entries)
}

/// Returns the updates with a completion record in the log that counts for a tablet which the shard
/// has owned since a segment.
fn completed(log: &Recorder, since: SegmentId) -> BTreeSet<Sequence> {
    let mut found = BTreeSet::new();
    for replica in log.replicas(usize::MAX).values() {
        for (_, entry) in SegmentReader::new(&replica.bytes).unwrap().flatten() {
            match entry {
                Logged::Completion { sequence, birth, .. } if birth >= since => {
                    found.insert(sequence);
                }
                Logged::Completions { birth, outcomes, .. } if birth >= since => {
                    found.extend(outcomes.map(|outcome| outcome.sequence));
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn remains_of_a_migration_do_not_replace_data_of_the_next_one() {
    let mut cluster = ShardCluster::new(21, Link::default(), shard_options(), 4 << 20);
    let since = cluster.drive(Duration::from_secs(30), |user| async move {
        let range = TabletRange::whole(OTHER);
        user.insist(Opcode::MigrateIn, begin(5, range)).await.unwrap();
        user.insist(Opcode::MigrateIn, records(5, (1..=40).map(Sequence))).await.unwrap();
        // The coordinator has abandoned the migration, and begins another one. Its first message
        // may be lost.
        let refused = user.call(Opcode::MigrateIn, begin(6, range)).await;
        assert!(
            matches!(refused, Err(CallError::Refused { status: Status::Busy, .. })),
            "{refused:?}"
        );
        user.insist(Opcode::MigrateIn, begin(6, range)).await.unwrap();
        assert_eq!(user.insist(Opcode::MigrateIn, begin(5, range)).await, Err(Status::Refused));
        assert_eq!(user.status().await.records, 0, "they were swept away");
        user.insist(Opcode::MigrateIn, records(6, (1..=40).map(Sequence))).await.unwrap();
        let end = message(6, Kind::End, &1u64.to_le_bytes());
        let taken = user.insist(Opcode::MigrateIn, end).await.unwrap();
        let Taken { range: got, since } = control::of_body(&taken).unwrap();
        let tablets = vec![got];
        let since_then = OwnedSince::default();
        let serve = MigratedTablets {
            migration: 6,
            master: MASTER,
            tablets,
            since: since_then,
            options: Vec::new(),
        };
        user.insist(Opcode::TakeTablets, control::to_body(&serve)).await.unwrap();
        assert_eq!(user.status().await.records, 40);
        since
    });
    assert_eq!(completed(&cluster.recorder, since), (1..=40).map(Sequence).collect());
}

#[test]
fn remains_of_a_migration_do_not_replace_data_of_a_recovery() {
    let past = past(&mut Random::from_seed(31), 200);
    let replicas = past.recorder.replicas(usize::MAX);
    let all = completed(&past.recorder, SegmentId::NONE);
    let mut cluster = ShardCluster::new(22, Link::default(), shard_options(), 4 << 20);
    let segments = put_all(&cluster, &replicas, &[0, 1]);
    let sequences = all.clone();
    cluster.drive(Duration::from_secs(30), move |user| {
        let sequences: Vec<Sequence> = sequences.iter().copied().collect();
        async move {
            let range = TabletRange::whole(OLD);
            user.insist(Opcode::MigrateIn, begin(5, range)).await.unwrap();
            for some in sequences.chunks(40) {
                let records = records(5, some.iter().copied());
                user.insist(Opcode::MigrateIn, records).await.unwrap();
            }
        }
    });
    // The former master has crashed.
    let task = cluster.recover(RecoveryId(1), &segments);
    let (outcome, found) = recovered(&mut cluster, task);
    assert_eq!(found.unwrap(), past.steps.last().unwrap().1);
    let [Taken { since, .. }] = outcome.outcome.unwrap()[..] else { panic!("one tablet") };
    assert_eq!(completed(&cluster.recorder, since), all);
}

/// Checks a shard's answers to updates of a table that it owns since a moment, first while no
/// coordinator answers about leases, and then while one does.
async fn obeys(
    user: &User,
    coordinators: &RefCell<CoordinatorState>,
    table: TableId,
    since: OwnedSince,
) {
    let OwnedSince { map_version, next_lease } = since;
    let by = |lease, sequence, map| identity(lease, sequence, 1).with_map(map);
    let tell = async |identity| match user
        .call(Opcode::Write, update(identity, table, b"late", b"v"))
        .await
    {
        Ok(_) => Ok(()),
        Err(CallError::Refused { status, .. }) => Err(status),
        Err(other) => panic!("{other}"),
    };
    coordinators.borrow_mut().mute(Opcode::CheckLeases, true);
    let new = next_lease;
    for map in [0, map_version - 1] {
        assert_eq!(tell(by(new, 1, map)).await, Err(Status::Moved), "the map is older");
    }
    assert_eq!(tell(by(new, 1, map_version)).await, Ok(()));
    assert_eq!(tell(by(new, 1, 0)).await, Ok(()), "it was done, and is not done again");
    assert_eq!(tell(by(new, 2, 0)).await, Err(Status::Moved));
    assert_eq!(tell(by(new, 2, u64::MAX)).await, Ok(()));
    // These leases were opened before, and no coordinator confirms that they are open now.
    for old in [LEASE, LeaseId(LEASE.0 + 1), LeaseId(next_lease.0 - 1)] {
        assert_eq!(
            tell(by(old, 1_000_001, map_version)).await,
            Err(Status::AwaitingLease),
            "{old}"
        );
    }
    coordinators.borrow_mut().mute(Opcode::CheckLeases, false);
    for old in [LEASE, LeaseId(LEASE.0 + 1), LeaseId(next_lease.0 - 1)] {
        let written = user.write(by(old, 1_000_001, map_version), table, b"late", b"v").await;
        assert!(written.is_ok(), "{old}: {written:?}");
    }
    assert_eq!(tell(by(LEASE, 1_000_002, map_version - 1)).await, Err(Status::Moved));
}

#[test]
fn a_migrated_tablet_is_updated_by_newer_maps_and_leases_only() {
    let mut cluster = ShardCluster::new(23, Link::default(), shard_options(), 4 << 20);
    let coordinators = Rc::clone(&cluster.coordinators);
    coordinators.borrow_mut().owned_since = OwnedSince { map_version: 4, next_lease: LeaseId(50) };
    cluster.drive(Duration::from_secs(60), move |user| {
        let coordinators = Rc::clone(&coordinators);
        async move {
            // The shard knows the client from another tablet; its lease was open then.
            user.take(MASTER, vec![TabletRange::whole(OLD)]).await.unwrap();
            user.write(identity(LEASE, 1_000_000, 1), OLD, b"k", b"v").await.unwrap();
            user.tasks.sleep(Duration::from_secs(1)).await;
            let range = TabletRange::whole(OTHER);
            user.insist(Opcode::MigrateIn, begin(6, range)).await.unwrap();
            user.insist(Opcode::MigrateIn, records(6, (1..=4).map(Sequence))).await.unwrap();
            let end = message(6, Kind::End, &1u64.to_le_bytes());
            user.insist(Opcode::MigrateIn, end).await.unwrap();
            let since = OwnedSince { map_version: 9, next_lease: LeaseId(100) };
            coordinators.borrow_mut().mute(Opcode::CheckLeases, true);
            coordinators.borrow_mut().owned_since = since;
            let tablets = vec![range];
            let serve = MigratedTablets {
                migration: 6,
                master: MASTER,
                tablets,
                since,
                options: Vec::new(),
            };
            user.insist(Opcode::TakeTablets, control::to_body(&serve)).await.unwrap();
            obeys(&user, &coordinators, OTHER, since).await;
            // A tablet that was created here needs no such answer.
            coordinators.borrow_mut().mute(Opcode::CheckLeases, true);
            user.write(identity(LEASE, 1_000_003, 1), OLD, b"k", b"v").await.unwrap();
            user.write(identity(LeaseId(77), 1, 1), OLD, b"k", b"v").await.unwrap();
        }
    });
}

#[test]
fn a_rebuilt_tablet_is_updated_by_newer_maps_and_leases_only() {
    let past = past(&mut Random::from_seed(32), 200);
    let replicas = past.recorder.replicas(usize::MAX);
    let mut cluster = ShardCluster::new(24, Link::default(), shard_options(), 4 << 20);
    let since = OwnedSince { map_version: 9, next_lease: LeaseId(100) };
    cluster.coordinators.borrow_mut().owned_since = since;
    let segments = put_all(&cluster, &replicas, &[0, 1]);
    let task = cluster.recover(RecoveryId(1), &segments);
    cluster.coordinators.borrow_mut().mute(Opcode::CheckLeases, true);
    let (outcome, _) = recovered(&mut cluster, task);
    assert!(outcome.outcome.is_ok());
    let coordinators = Rc::clone(&cluster.coordinators);
    cluster.drive(Duration::from_secs(60), move |user| {
        let coordinators = Rc::clone(&coordinators);
        async move { obeys(&user, &coordinators, OLD, since).await }
    });
}
