//! A session opens its lease for the first update, renews it, uses it while no coordinator answers,
//! and replaces it after its end.

use super::{Stage, TTL, only};
use std::time::Duration;
use thunderhead_client::{Error, Obstacle, Status};
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_wire::LeaseId;

#[test]
fn a_lease_is_opened_for_the_first_update_and_renewed_and_closed() {
    let mut stage = Stage::new();
    let table = stage.create("t");
    stage.session.begin(stage.now, Vec::new(), stage.now);
    assert!(stage.session.next_done().is_some());
    assert_eq!(stage.session.lease(), None);
    stage.write(table);
    assert!(stage.written().is_ok());
    assert_eq!(
        (stage.session.lease(), stage.count(Opcode::OpenLease) > 0),
        (Some(LeaseId(1)), true)
    );
    for _ in 0..30 {
        stage.pass(Duration::from_millis(500));
        for call in stage.calls() {
            assert_eq!(call.opcode, Opcode::RenewLease);
            stage.answer(&call);
        }
    }
    let renewed = stage.cluster.count(Opcode::RenewLease);
    assert!((10..=15).contains(&renewed), "{renewed} times in five leases");
    assert_eq!(stage.session.lease(), Some(LeaseId(1)));
    // The session had no turn for longer than the lease lasts.
    stage.now = stage.now + TTL + Duration::from_millis(1);
    stage.write(table);
    assert!(stage.written().is_ok());
    assert_eq!(stage.session.lease(), Some(LeaseId(2)));
    stage.session.close(stage.now);
    let call = only(stage.calls(), Opcode::CloseLease);
    stage.answer(&call);
    assert!(stage.session.is_idle());
    assert!(stage.cluster.ended.contains(&LeaseId(2)));
}

#[test]
fn a_lease_is_used_while_no_coordinator_answers() {
    let mut stage = Stage::new();
    let table = stage.create("t");
    stage.write(table);
    assert!(stage.written().is_ok());
    for _ in 0..100 {
        stage.pass(Duration::from_millis(100));
        for call in stage.calls() {
            assert_eq!(call.opcode, Opcode::RenewLease);
            stage.fail(&call, CallError::Late);
        }
    }
    stage.write(table);
    let calls = stage.calls();
    let write = calls.iter().find(|call| call.opcode == Opcode::Write).expect("it is sent at once");
    assert_eq!(write.body[..8], 1u64.to_le_bytes(), "under the present lease");
    // The coordinator is back and says that the lease has ended. The update is not sent twice.
    let write = write.clone();
    stage.cluster.leases.clear();
    for _ in 0..20 {
        for call in stage.calls() {
            stage.answer(&call);
        }
        stage.pass(Duration::from_millis(50));
    }
    assert_eq!(stage.session.lease(), None);
    let ended = CallError::Refused { status: Status::LeaseEnded, hint: 0, detail: 0 };
    stage.fail(&write, ended);
    assert!(stage.written().is_ok(), "the refused update goes out under the next lease");
    assert_eq!(stage.session.lease(), Some(LeaseId(2)));
    // An update that may have been done keeps its lease.
    stage.write(table);
    let write = only(stage.calls(), Opcode::Write);
    stage.fail(&write, CallError::Broken);
    let again = loop {
        stage.pass(Duration::from_millis(1));
        let calls = stage.calls();
        for call in calls.iter().filter(|call| call.opcode != Opcode::Write) {
            stage.answer(call);
        }
        if let Some(call) = calls.iter().find(|call| call.opcode == Opcode::Write) {
            break call.clone();
        }
    };
    assert_eq!(again.body, write.body, "the same sequence of the same lease");
    stage.fail(&again, ended);
    assert_eq!(stage.written(), Err(Error::Unknown(Obstacle::NoAnswer)));
    assert_eq!(stage.session.lease(), None);
}

#[test]
fn updates_that_wait_for_a_lease_end_by_their_deadline_and_were_not_done() {
    let mut stage = Stage::new();
    let table = stage.create("t");
    stage.write(table);
    for call in stage.calls() {
        match call.opcode {
            Opcode::Map => stage.answer(&call),
            _ => stage.fail(&call, CallError::Late),
        }
    }
    let mut waited = 0;
    let result = loop {
        for call in stage.calls() {
            stage.fail(&call, CallError::Late);
        }
        if let Some((_, mut results)) = stage.session.next_done() {
            break results.remove(0);
        }
        stage.pass(Duration::from_millis(100));
        waited += 100;
    };
    assert_eq!((result, waited), (Err(Error::TimedOut(Obstacle::NoCoordinator)), 10_000));
    // No update waits any more, so the session asks for no lease.
    stage.pass(Duration::from_secs(5));
    assert!(stage.calls().is_empty());
    // A coordinator of another cluster answers at these addresses.
    stage.write(table);
    assert!(stage.written().is_ok());
    stage.cluster.cluster.0 += 1;
    stage.now = stage.now + TTL * 2;
    stage.write(table);
    assert_eq!(stage.written(), Err(Error::Refused(Status::WrongCluster)));
}
