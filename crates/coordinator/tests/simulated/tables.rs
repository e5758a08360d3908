//! Tables whose masters do not take their tablets at once.

use crate::control_plane::{ControlPlane, options};
use crate::scenarios::{create, map};
use thunderhead_wire::Status;

#[test]
fn a_table_counts_as_created_only_when_masters_have_all_its_tablets() {
    let mut cluster = ControlPlane::new(14, 1, 2, &options());
    cluster.until_all_are_there();
    for server in &cluster.servers {
        (server.borrow_mut().is_full, server.borrow_mut().hides_its_room) = (true, true);
    }
    assert_eq!(create(&mut cluster, "t", 2), Err(Status::InProgress));
    let table = map(&mut cluster).tables.remove(0);
    assert!(table.tablets.iter().all(|it| it.address.is_none()));
    assert_eq!(create(&mut cluster, "t", 2), Err(Status::TableExists), "it was asked for once");
    for server in &cluster.servers {
        server.borrow_mut().is_full = false;
    }
    cluster.until("it is served", |cluster| {
        let map = cluster.handle().map().unwrap();
        map.tables[0].tablets.iter().all(|it| it.address.is_some())
    });
}

#[test]
fn a_report_of_another_master_says_nothing_about_the_room_of_this_one() {
    let mut cluster = ControlPlane::new(15, 1, 1, &options());
    cluster.until_all_are_there();
    // The next generation of the server answers at the same address, and is not enlisted yet.
    let server = &cluster.servers[0];
    (server.borrow_mut().is_full, server.borrow_mut().enlisted) = (true, None);
    assert_eq!(create(&mut cluster, "t", 1), Err(Status::InProgress), "the master may have room");
}
