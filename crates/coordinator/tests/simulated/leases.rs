//! Leases of clients: when they end, and how many there may be.

use crate::control_plane::{ControlPlane, ended, open, options, status, stored};
use std::time::Duration;
use thunderhead_coordinator::Options;
use thunderhead_coordinator::limits::LEASES_MAX;
use thunderhead_metastore::{Answer, Change, Key, Request as Ask};
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{Empty, Lease, LeaseOpened};
use thunderhead_wire::{LeaseId, Status};

#[test]
fn leases_end_without_renewal_or_when_they_are_closed() {
    let options = Options { lease_ttl: Duration::from_secs(10), ..options() };
    let mut cluster = ControlPlane::new(10, 2, 0, &options);
    let (kept, silent, closed) = (open(&mut cluster), open(&mut cluster), open(&mut cluster));
    assert_eq!(kept.ttl_ms, 10_000);
    let all = [kept.lease, silent.lease, closed.lease, LeaseId(1), LeaseId(u64::MAX)];
    assert_eq!(
        ended(&mut cluster, &all),
        [LeaseId(1), LeaseId(u64::MAX)],
        "these were never opened"
    );
    let close = Lease { lease: closed.lease };
    assert_eq!(cluster.ask(Opcode::CloseLease, &close), Ok(Empty {}));
    assert_eq!(cluster.ask(Opcode::CloseLease, &close), Ok(Empty {}));
    assert_eq!(cluster.ask::<Empty>(Opcode::RenewLease, &close), Err(Status::LeaseEnded));
    let keep = Lease { lease: kept.lease };
    for _ in 0..3 {
        cluster.simulation.run_for(Duration::from_secs(4));
        assert_eq!(cluster.ask(Opcode::RenewLease, &keep), Ok(Empty {}));
    }
    assert_eq!(ended(&mut cluster, &all[..3]), [silent.lease, closed.lease]);
    assert_eq!(stored(&cluster.store, "leases").len(), 1);
    // A new leader gives it its whole time again.
    cluster.simulation.run_for(Duration::from_secs(7));
    cluster.change_leader();
    cluster.simulation.run_for(Duration::from_secs(5));
    assert_eq!(ended(&mut cluster, &all[..3]), [silent.lease, closed.lease]);
    assert_eq!(status(&mut cluster).leases, 1);
    cluster.simulation.run_for(Duration::from_secs(6));
    assert_eq!(ended(&mut cluster, &all[..3]), all[..3]);
}

#[test]
fn leases_are_bounded() {
    let mut cluster = ControlPlane::new(27, 1, 0, &options());
    let first: LeaseOpened = cluster.ask(Opcode::OpenLease, &Empty {}).unwrap();
    cluster.coordinator(0).kill();
    for further in 1..LEASES_MAX {
        let key = Key::new(format!("leases/{}", first.lease.0 + further)).unwrap();
        let change = Change::Create(b"{}".to_vec());
        let answer = cluster.store.peek(&Ask::Write { key, change, fence: None });
        assert!(matches!(answer, Answer::Written(_)), "{answer:?}");
    }
    cluster.coordinator(0).restart();
    let refused = cluster.ask::<LeaseOpened>(Opcode::OpenLease, &Empty {});
    assert_eq!(refused, Err(Status::Busy));
    let remarks = status(&mut cluster).remarks;
    assert!(remarks[0].contains("clients have leases"), "{remarks:?}");
    let close = Lease { lease: first.lease };
    assert_eq!(cluster.ask(Opcode::CloseLease, &close), Ok(Empty {}));
    cluster.ask::<LeaseOpened>(Opcode::OpenLease, &Empty {}).unwrap();
}
