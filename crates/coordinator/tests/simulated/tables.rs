//! Tables whose masters do not take their tablets at once.

use crate::scenarios::{create, map};
use crate::world::{World, options};
use thunderhead_wire::Status;

#[test]
fn a_table_counts_as_created_only_when_masters_have_all_its_tablets() {
    let mut world = World::new(14, 1, 2, &options());
    world.until_all_are_there();
    for (_, server) in &world.servers {
        (server.borrow_mut().is_full, server.borrow_mut().hides_its_room) = (true, true);
    }
    assert_eq!(create(&mut world, "t", 2), Err(Status::InProgress));
    let table = map(&mut world).tables.remove(0);
    assert!(table.tablets.iter().all(|it| it.address.is_none()));
    assert_eq!(create(&mut world, "t", 2), Err(Status::TableExists), "it was asked for once");
    for (_, server) in &world.servers {
        server.borrow_mut().is_full = false;
    }
    world.until("it is served", |world| {
        let map = world.handle().map().unwrap();
        map.tables[0].tablets.iter().all(|it| it.address.is_some())
    });
}

#[test]
fn a_report_of_another_master_says_nothing_about_the_room_of_this_one() {
    let mut world = World::new(15, 1, 1, &options());
    world.until_all_are_there();
    // The next generation of the server answers at the same address, and is not enlisted yet.
    let (_, server) = &world.servers[0];
    (server.borrow_mut().is_full, server.borrow_mut().enlisted) = (true, None);
    assert_eq!(create(&mut world, "t", 1), Err(Status::InProgress), "the master may have room");
}
