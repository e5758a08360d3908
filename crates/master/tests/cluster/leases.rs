//! Clients whose leases begin, last and end.

use crate::fixture::*;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_log::TabletRange;
use thunderhead_master::Options as ShardOptions;
use thunderhead_net::sim::Link;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_testkit::User;
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{LeaseId, Status};
use zerocopy::IntoBytes;

#[test]
fn an_update_is_done_at_once_under_a_lease_opened_since_the_tablet_was_made_and_refused_when_it_is_over()
 {
    for leader in 0..2 {
        let mut cluster = ShardCluster::new(3, Link::default(), shard_options(), 4 << 20);
        cluster.coordinators.borrow_mut().leader = leader;
        cluster.coordinators.borrow_mut().ended.insert(LeaseId(66));
        let coordinators = Rc::clone(&cluster.coordinators);
        cluster.drive(Duration::from_secs(300), move |user| {
            let coordinators = Rc::clone(&coordinators);
            async move {
                user.take(MASTER, vec![TabletRange::whole(OTHER)]).await.unwrap();
                // No coordinator answers.
                coordinators.borrow_mut().mute(Opcode::CheckLeases, true);
                let body = update(identity(LeaseId(5), 1, 1), OTHER, b"k", b"v");
                let version = user.call(Opcode::Write, body.clone()).await.unwrap();
                assert_eq!(user.call(Opcode::Write, body).await.unwrap(), version);
                let once = user.write(identity(LeaseId(66), 1, 1), OTHER, b"k", b"v").await;
                assert!(once.is_ok(), "that it is over is not known yet: {once:?}");
                coordinators.borrow_mut().mute(Opcode::CheckLeases, false);
                user.tasks.sleep(Duration::from_secs(5)).await;
                for sequence in 2..20 {
                    let identity = identity(LeaseId(5), sequence, 1);
                    user.write(identity, OTHER, b"k", b"w").await.unwrap();
                }
                assert!(
                    coordinators.borrow().count(Opcode::CheckLeases) <= 2,
                    "known leases are not asked about again"
                );
                for sequence in [1, 2] {
                    let over = identity(LeaseId(66), sequence, 1);
                    let over = user.write(over, OTHER, b"k", b"v").await;
                    assert_eq!(over, Err(Status::LeaseEnded));
                }
                let part = identity(LeaseId(66), 0, 1).as_bytes().to_vec();
                assert_eq!(user.insist(Opcode::UpdateMany, part).await, Err(Status::LeaseEnded));
                assert_eq!(user.status().await.records, 19);
                // The lease ends; the shard learns that within little more than a minute.
                coordinators.borrow_mut().ended.insert(LeaseId(5));
                user.tasks.sleep(Duration::from_secs(65)).await;
                assert_eq!(user.status().await.records, 0, "its records are forgotten");
                for sequence in [1, 19, 20] {
                    let late = identity(LeaseId(5), sequence, 1);
                    let late = user.write(late, OTHER, b"k", b"late").await;
                    assert_eq!(late, Err(Status::LeaseEnded));
                }
                assert_eq!(user.read(OTHER, b"k").await.unwrap().1, b"w");
            }
        });
    }
}

/// Whether the shard is too busy for an update, also if it is sent several times.
async fn is_busy(user: &User, identity: Identity) -> bool {
    let body = update(identity, OTHER, b"k", b"v");
    let mut last = user.call(Opcode::Write, body.clone()).await;
    for _ in 0..5 {
        user.tasks.sleep(Duration::from_millis(5)).await;
        last = user.call(Opcode::Write, body.clone()).await;
    }
    match last {
        Ok(_) => false,
        Err(CallError::Refused { status: Status::Busy, hint: 1.., .. }) => true,
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn the_memory_of_clients_is_bounded() {
    let options = ShardOptions {
        clients_max: 3,
        records_max: 10,
        records_per_client_max: 4,
        ..shard_options()
    };
    let mut cluster = ShardCluster::new(4, Link::default(), options, 4 << 20);
    cluster.drive(Duration::from_secs(300), |user| async move {
        user.take(MASTER, vec![TabletRange::whole(OTHER)]).await.unwrap();
        let busy =
            async |lease, sequence, first| is_busy(&user, identity(lease, sequence, first)).await;
        for sequence in 1..5 {
            assert!(!busy(LeaseId(1), sequence, 1).await && !busy(LeaseId(2), sequence, 1).await);
        }
        assert!(busy(LeaseId(1), 5, 1).await, "too much of one client");
        assert!(!busy(LeaseId(1), 4, 1).await, "but completed updates are answered");
        assert!(!busy(LeaseId(3), 1, 1).await && !busy(LeaseId(3), 2, 1).await);
        assert!(busy(LeaseId(3), 3, 1).await, "too much of all");
        assert!(busy(LeaseId(4), 1, 1).await, "too many clients");
        assert!(!busy(LeaseId(1), 5, 5).await, "it has its answers, so there is room");
        assert_eq!(user.status().await.records, 7);
    });
}

#[test]
fn the_oldest_update_of_a_client_is_done_however_many_later_ones_are_recorded() {
    let options = ShardOptions { records_max: 10, records_per_client_max: 4, ..shard_options() };
    let mut cluster = ShardCluster::new(4, Link::default(), options, 4 << 20);
    cluster.drive(Duration::from_secs(300), |user| async move {
        user.take(MASTER, vec![TabletRange::whole(OTHER)]).await.unwrap();
        let busy =
            async |lease, sequence, first| is_busy(&user, identity(lease, sequence, first)).await;
        // Attempts of the updates 1 to 6 are lost, and later updates are done.
        for sequence in 7..11 {
            assert!(!busy(LeaseId(1), sequence, 1).await);
        }
        assert!(busy(LeaseId(1), 11, 1).await);
        // The gaps are filled, in any order, up to twice the limit.
        for sequence in [6, 3, 5, 2] {
            assert!(!busy(LeaseId(1), sequence, 1).await);
        }
        assert!(busy(LeaseId(1), 4, 1).await);
        // The limit of all clients holds for gaps too, and not for the oldest update.
        assert!(!busy(LeaseId(2), 8, 1).await);
        assert!(!busy(LeaseId(2), 9, 1).await);
        assert!(busy(LeaseId(2), 5, 1).await);
        for lease in [LeaseId(1), LeaseId(2)] {
            assert!(!busy(lease, 1, 1).await);
        }
        // The client has the answers up to the next gap, which is now its oldest update.
        assert!(!busy(LeaseId(1), 4, 4).await);
        assert!(!busy(LeaseId(1), 11, 11).await);
    });
}

// Recovery.
