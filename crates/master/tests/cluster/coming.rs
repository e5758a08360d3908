//! Tablets that come from a master that lives, and what is left where they do not come whole.

use crate::cast::*;
use crate::past::*;
use crate::recovery::recovered;
use crate::world::*;
use std::collections::BTreeSet;
use std::time::Duration;
use thunderhead_log::inspect::{Entry as Logged, SegmentReader};
use thunderhead_log::{Recorder, SegmentId, TabletRange, Version};
use thunderhead_net::sim::Link;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Random;
use thunderhead_wire::control::{self, MigratedTablets, MigrationBegin, Taken};
use thunderhead_wire::migration::{Entry, Head, Kind};
use thunderhead_wire::{KeyHash, Status};

/// The client whose updates a [`past`] has.
const LEASE: u64 = 8;

fn begin(migration: u64, range: TabletRange) -> Vec<u8> {
    message(migration, Kind::Begin, &control::to_body(&MigrationBegin { range }))
}

fn message(migration: u64, kind: Kind, rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    Head { migration, master: MASTER, kind }.put(&mut body);
    body.extend_from_slice(rest);
    body
}

/// Records of these updates, as a tablet's former master sends them.
fn records(migration: u64, sequences: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut entries = Vec::new();
    for sequence in sequences {
        let (result, key_hash) = (record(Version(sequence)), KeyHash(7));
        Entry::Completion { lease: LEASE, sequence, key_hash, result: &result }.put(&mut entries);
    }
    message(migration, Kind::Data, &entries)
}

/// The updates that a log says were completed, as far as that counts for a tablet that is there since then.
fn completed(log: &Recorder, since: SegmentId) -> BTreeSet<u64> {
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
fn what_a_migration_left_does_not_stand_for_what_the_next_one_brings() {
    let mut cluster = Cluster::new(21, Link::default(), shard_options(), 4 << 20);
    let since = cluster.drive(Duration::from_secs(30), |user| async move {
        let range = TabletRange::whole(OTHER);
        user.insist(Opcode::MigrateIn, begin(5, range)).await.unwrap();
        user.insist(Opcode::MigrateIn, records(5, 1..=40)).await.unwrap();
        // The coordinator has called it off, and begins another one. The first message of it may be lost.
        let refused = user.call(Opcode::MigrateIn, begin(6, range)).await;
        assert!(
            matches!(refused, Err(CallError::Refused { status: Status::Busy, .. })),
            "{refused:?}"
        );
        user.insist(Opcode::MigrateIn, begin(6, range)).await.unwrap();
        assert_eq!(user.insist(Opcode::MigrateIn, begin(5, range)).await, Err(Status::Refused));
        assert_eq!(user.status().await.records, 0, "they were swept away");
        user.insist(Opcode::MigrateIn, records(6, 1..=40)).await.unwrap();
        let end = message(6, Kind::End, &1u64.to_le_bytes());
        let taken = user.insist(Opcode::MigrateIn, end).await.unwrap();
        let Taken { range: got, since } = control::of_body(&taken).unwrap();
        let tablets = vec![got];
        let serve = MigratedTablets { migration: 6, master: MASTER, tablets };
        user.insist(Opcode::TakeTablets, control::to_body(&serve)).await.unwrap();
        assert_eq!(user.status().await.records, 40);
        since
    });
    assert_eq!(completed(&cluster.recorder, since), (1..=40).collect());
}

#[test]
fn what_a_migration_left_does_not_stand_for_what_a_recovery_brings() {
    let past = past(&mut Random::from_seed(31), 200);
    let replicas = past.recorder.replicas(usize::MAX);
    let all = completed(&past.recorder, SegmentId::NONE);
    let mut cluster = Cluster::new(22, Link::default(), shard_options(), 4 << 20);
    let segments = put_all(&cluster, &replicas, &[0, 1]);
    let sequences = all.clone();
    cluster.drive(Duration::from_secs(30), move |user| {
        let sequences: Vec<u64> = sequences.iter().copied().collect();
        async move {
            let range = TabletRange::whole(OLD);
            user.insist(Opcode::MigrateIn, begin(5, range)).await.unwrap();
            for some in sequences.chunks(40) {
                let records = records(5, some.iter().copied());
                user.insist(Opcode::MigrateIn, records).await.unwrap();
            }
        }
    });
    // The master that it came from is gone.
    let task = cluster.recover(1, &segments);
    let (outcome, found) = recovered(&mut cluster, task);
    assert_eq!(found.unwrap(), past.steps.last().unwrap().1);
    let [Taken { since, .. }] = outcome.outcome.unwrap()[..] else { panic!("one tablet") };
    assert_eq!(completed(&cluster.recorder, since), all);
}
