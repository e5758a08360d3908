//! Remarks in the status: their text, and their end.

use crate::control_plane::{ControlPlane, create, enlist_new, options, status};
use std::time::Duration;
use thunderhead_coordinator::Options;
use thunderhead_wire::Status;
use thunderhead_wire::control::BackupInfo;

#[test]
fn the_remark_about_the_metastore_ends_with_its_cause() {
    let options = Options { leadership_ttl: Duration::from_secs(20), ..options() };
    let mut cluster = ControlPlane::new(24, 1, 1, &options);
    cluster.until_all_are_there();
    cluster.store.stop();
    assert_eq!(create(&mut cluster, "t", 1), Err(Status::MetastoreUnavailable));
    cluster.simulation.run_for(Duration::from_secs(3));
    assert!(cluster.handle().remarks()[0].contains("metastore"));
    cluster.store.start();
    // No client changes anything.
    cluster.until("the remark is gone", |cluster| cluster.handle().remarks().is_empty());
}

#[test]
fn an_event_is_shown_for_a_while() {
    let mut cluster = ControlPlane::new(25, 1, 2, &options());
    cluster.until_all_are_there();
    cluster.server(0).kill();
    cluster.servers[0].borrow_mut().known = None;
    cluster.server(0).restart();
    cluster.until_all_are_there();
    let taken = |cluster: &mut ControlPlane| {
        let remarks = status(cluster).remarks;
        remarks.iter().any(|it| it.contains("has taken the place of"))
    };
    assert!(taken(&mut cluster));
    cluster.simulation.run_for(Duration::from_secs(9 * 60));
    assert!(taken(&mut cluster));
    cluster.simulation.run_for(Duration::from_secs(2 * 60));
    assert!(!taken(&mut cluster));
}

#[test]
fn the_status_says_how_to_forget_servers_when_many_are_down() {
    const DOWN: u64 = 1000;
    let mut cluster = ControlPlane::new(34, 1, 0, &options());
    cluster.until("a leader leads", |cluster| cluster.leader().is_some());
    let told = |cluster: &mut ControlPlane| {
        let remarks = status(cluster).remarks;
        remarks.iter().any(|it| it.contains("server forget SERVER..."))
    };
    // The storage of a server is new at each start.
    for nonce in 0..=DOWN {
        assert!(nonce < DOWN || !told(&mut cluster), "one less is down");
        let address = ([10, 0, 0, 99], 1).into();
        let backup = BackupInfo { address, read_bytes_per_second: 0, place: 55 };
        enlist_new(&mut cluster, nonce, Some(backup));
    }
    assert!(told(&mut cluster));
}
