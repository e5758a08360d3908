//! Tablets that are given and taken, and the memory that they live in.

use crate::fixture::*;
use crate::past::key;
use std::time::Duration;
use thunderhead_log::TabletRange;
use thunderhead_net::sim::Link;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_wire::control::{self, MigratedTablets, OwnedSince, Tablets};
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{KeyHash, LeaseId, Status};

#[test]
fn tablets_are_taken_and_dropped_as_often_as_it_is_said() {
    let mut cluster = ShardCluster::new(1, Link::default(), shard_options(), 4 << 20);
    let recorder = cluster.recorder.clone();
    recorder.hold(true);
    let own = recorder.clone();
    cluster.simulation.at(Duration::from_millis(120), move |_| own.hold(false));
    let held = recorder.clone();
    cluster.drive(Duration::from_secs(60), move |user| {
        let held = held.clone();
        async move {
            let whole = TabletRange::whole(OTHER);
            let part = TabletRange { first: KeyHash(5), last: KeyHash(9), ..whole };
            let rest = TabletRange { first: KeyHash(10), ..whole };
            let first = TabletRange { last: KeyHash(4), ..whole };
            user.take(MASTER, vec![whole]).await.unwrap();
            assert!(held.events() > 0);
            user.take(MASTER, vec![whole, TabletRange::whole(OLD)]).await.unwrap();
            assert_eq!(user.take(MASTER, vec![part]).await, Err(Status::BadRange));
            let stranger =
                Tablets { master: GONE, tablets: vec![whole], map_version: 0, options: Vec::new() };
            let stranger = control::to_body(&stranger);
            for opcode in [Opcode::TakeTablets, Opcode::DropTablets] {
                assert_eq!(user.insist(opcode, stranger.clone()).await, Err(Status::Deposed));
                let nonsense = user.insist(opcode, b"{".to_vec()).await;
                assert_eq!(nonsense, Err(Status::Malformed));
            }
            let identity = identity(LeaseId(4), 1, 1);
            user.write(identity, OTHER, b"k", b"v").await.unwrap();
            let status = user.status().await;
            assert_eq!((status.tablets.len(), status.objects, status.records), (2, 1, 1));
            assert!(status.master == MASTER && status.live_bytes > 0 && status.updates > 0);
            assert!(status.used_bytes > 0 && status.used_bytes < status.memory_bytes);
            let drop = async |tablets: Vec<TabletRange>| {
                let map_version = 0;
                let body = control::to_body(&Tablets {
                    master: MASTER,
                    tablets,
                    map_version,
                    options: Vec::new(),
                });
                user.insist(Opcode::DropTablets, body).await
            };
            // The coordinator has split it on paper; a part alone stays.
            assert_eq!(drop(vec![part, rest]).await, Err(Status::BadRange));
            assert!(user.read(OTHER, b"k").await.is_ok());
            drop(vec![rest, first, part]).await.unwrap();
            drop(vec![rest, first, part]).await.unwrap();
            assert_eq!(user.read(OTHER, b"k").await, Err(Status::Moved));
            let status = user.status().await;
            assert_eq!((status.tablets.len(), status.objects, status.records), (1, 0, 0));
            user.take(MASTER, vec![whole]).await.unwrap();
            assert_eq!(user.read(OTHER, b"k").await, Err(Status::NotFound));
        }
    });
}

/// The network may hold a message for any time. A client with an old map would write to the empty
/// tablet, and no other client would ever see these objects.
#[test]
fn a_tablet_that_has_moved_on_is_not_made_again_by_a_late_message() {
    let mut cluster = ShardCluster::new(3, Link::default(), shard_options(), 4 << 20);
    cluster.drive(Duration::from_secs(60), |user| async move {
        let whole = TabletRange::whole(OTHER);
        let at = |map_version, range| {
            let tablets = vec![range];
            control::to_body(&Tablets { master: MASTER, tablets, map_version, options: Vec::new() })
        };
        let is_late = async |body: Vec<u8>| {
            let late = user.call(Opcode::TakeTablets, body).await;
            let status = Status::InProgress;
            matches!(late, Err(CallError::Refused { status: it, .. }) if it == status)
        };
        user.insist(Opcode::TakeTablets, at(5, whole)).await.unwrap();
        user.insist(Opcode::DropTablets, at(7, whole)).await.unwrap();
        assert!(is_late(at(5, whole)).await, "after its table was dropped");
        assert_eq!(user.read(OTHER, b"k").await, Err(Status::Moved));
        // The coordinator repeats a valid command with the present version.
        assert!(is_late(at(6, TabletRange::whole(OLD))).await);
        user.insist(Opcode::TakeTablets, at(7, TabletRange::whole(OLD))).await.unwrap();
        // The end of a migration counts as well, also if it is of another tablet.
        let since = OwnedSince { map_version: 9, next_lease: LeaseId::NONE };
        let tablets = vec![whole];
        let ended =
            MigratedTablets { migration: 1, master: MASTER, tablets, since, options: Vec::new() };
        user.insist(Opcode::DropTablets, control::to_body(&ended)).await.unwrap();
        assert!(is_late(at(8, whole)).await, "after a migration");
        user.insist(Opcode::TakeTablets, at(9, whole)).await.unwrap();
        assert_eq!(user.read(OTHER, b"k").await, Err(Status::NotFound));
    });
}

#[test]
fn a_tablet_is_not_taken_before_the_log_is_durable() {
    let mut cluster = ShardCluster::new(2, Link::default(), shard_options(), 4 << 20);
    cluster.recorder.hold(true);
    let opened = cluster.drive(Duration::from_secs(10), |user| async move {
        let tablets = vec![TabletRange::whole(OTHER)];
        let body = control::to_body(&Tablets {
            master: MASTER,
            tablets,
            map_version: 0,
            options: Vec::new(),
        });
        // The log was made while nothing was held back: something that is not durable yet.
        user.insist(Opcode::TakeTablets, body.clone()).await.unwrap();
        let written = update(Identity::NONE, OTHER, b"k", b"v");
        let unanswered = user.call(Opcode::Write, written).await;
        assert_eq!(unanswered, Err(CallError::Late));
        user.call(Opcode::TakeTablets, body).await
    });
    assert_eq!(opened, Err(CallError::Late));
}

// Leases.

#[test]
fn cleaners_beside_the_shard_keep_memory_free() {
    let mut cluster = ShardCluster::new(10, Link::default(), shard_options(), 1 << 20);
    cluster.drive(Duration::from_secs(100), |user| async move {
        user.take(MASTER, vec![TabletRange::whole(OTHER)]).await.unwrap();
        for number in 0..6000u64 {
            let written = user.write(Identity::NONE, OTHER, &key(number % 500), &[2; 1000]).await;
            written.unwrap();
        }
        assert_eq!(user.status().await.objects, 500);
    });
}
