//! Tables: their creation and end, splits of their tablets, and the masters that get the tablets.

use crate::control_plane::{ControlPlane, create, drop_table, held, map, mapped, options, stored};
use std::collections::BTreeSet;
use thunderhead_coordinator::Options;
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{
    CreateTable, DropTable, Empty, Map, MapRequest, MigrateTablet, OptionsOfTable, Policy,
    ServerInfo, SplitTablet, TableInfo, TableOptions,
};
use thunderhead_wire::{Format, KeyHash, MasterId, Status};

/// Returns the servers with a table's tablets.
fn servers_of(table: &TableInfo) -> BTreeSet<std::net::IpAddr> {
    table.tablets.iter().filter_map(|it| Some(it.address?.ip())).collect()
}

#[test]
fn tables_come_are_found_and_go() {
    let mut cluster = ControlPlane::new(1, 1, 2, &options());
    cluster.until_all_are_there();
    let table = create(&mut cluster, "users", 3).unwrap();
    assert_eq!(table.tablets.len(), 3);
    assert!(table.tablets.iter().all(|tablet| tablet.address.is_some()));
    let servers: BTreeSet<_> = table.tablets.iter().map(|it| it.address.unwrap().ip()).collect();
    assert_eq!(servers.len(), 2);
    let all = map(&mut cluster);
    assert_eq!(all.tables, std::slice::from_ref(&table));
    assert_eq!(held(&cluster), mapped(&all));
    assert_eq!(create(&mut cluster, "users", 1), Err(Status::TableExists));
    let message = MapRequest { table: Some("users".into()), ..MapRequest::default() };
    assert_eq!(
        cluster.ask::<Map>(Opcode::Map, &message).unwrap().tables,
        std::slice::from_ref(&table)
    );
    let message = MapRequest { table: Some("others".into()), ..MapRequest::default() };
    assert_eq!(cluster.ask::<Map>(Opcode::Map, &message), Err(Status::NoSuchTable));
    assert_eq!(drop_table(&mut cluster, "users"), Ok(Empty {}));
    assert_eq!(drop_table(&mut cluster, "users"), Err(Status::NoSuchTable));
    assert!(held(&cluster).is_empty());
    assert!(stored(&cluster.store, "tables").is_empty(), "its record is deleted");
    let later = map(&mut cluster);
    assert!(later.version > all.version && later.tables.is_empty());
    let again = create(&mut cluster, "users", 1).unwrap();
    assert!(again.id > table.id);
}

#[test]
fn the_options_of_a_table_outlast_its_coordinator_and_reach_its_masters() {
    let mut cluster = ControlPlane::new(4, 2, 2, &options());
    cluster.until_all_are_there();
    let options = TableOptions { ttl_ms: 9_000, policy: Policy::Cache, ..TableOptions::DEFAULT };
    let message = CreateTable { options, ..CreateTable::spread("t", 2) };
    let table: TableInfo = cluster.ask(Opcode::CreateTableWithOptions, &message).unwrap();
    assert_eq!(table.options, options);
    let told = OptionsOfTable { table: table.id, options };
    let knows = |cluster: &ControlPlane| {
        cluster.servers.iter().all(|it| it.borrow().options.contains(&told))
    };
    assert!(knows(&cluster));
    let zero = CreateTable {
        name: "u".into(),
        options: TableOptions { ttl_ms: u64::MAX, ..options },
        ..message.clone()
    };
    let refused = cluster.ask::<TableInfo>(Opcode::CreateTableWithOptions, &zero);
    assert_eq!(refused, Err(Status::BadTimeToLive), "that number means never");
    cluster.change_leader();
    assert_eq!(map(&mut cluster).tables, std::slice::from_ref(&table));
}

#[test]
fn reservations_must_fit_into_the_memory_of_the_servers() {
    let mut cluster = ControlPlane::new(6, 2, 1, &options());
    cluster.servers.iter().for_each(|it| it.borrow_mut().memory_bytes = 1 << 30);
    cluster.until_all_are_there();
    let mut reserve = |name: &str, reserved_bytes| {
        let cache = TableOptions { policy: Policy::Cache, ..TableOptions::DEFAULT };
        let options = TableOptions { reserved_bytes, ..cache };
        let message = CreateTable { options, ..CreateTable::spread(name, 2) };
        cluster.ask::<TableInfo>(Opcode::CreateTableWithOptions, &message)
    };
    let most = 1 << 31;
    assert_eq!(reserve("much", most + 4), Err(Status::BadOptions));
    assert!(reserve("a", most / 4).is_ok());
    assert!(reserve("b", most / 4 * 3).is_ok());
    assert_eq!(reserve("c", 1 << 20), Err(Status::BadOptions), "others have reserved it all");
    assert!(reserve("d", 0).is_ok());
}

#[test]
fn a_cluster_of_an_older_format_refuses_tables_with_options() {
    let old = Options { newest_format: Format::FIRST, ..options() };
    let mut cluster = ControlPlane::new(5, 1, 1, &old);
    cluster.until_all_are_there();
    let options = TableOptions { ttl_ms: 9_000, policy: Policy::Durable, ..TableOptions::DEFAULT };
    let mut message = CreateTable { options, ..CreateTable::spread("t", 1) };
    let refused = cluster.ask::<TableInfo>(Opcode::CreateTableWithOptions, &message);
    assert_eq!(refused, Err(Status::OldFormat));
    assert!(map(&mut cluster).tables.is_empty());
    message.options = TableOptions::DEFAULT;
    let table: TableInfo = cluster.ask(Opcode::CreateTableWithOptions, &message).unwrap();
    assert!(table.options.is_default());
}

#[test]
fn a_delayed_drop_deletes_no_later_table_of_the_same_name() {
    let mut cluster = ControlPlane::new(1, 1, 2, &options());
    cluster.until_all_are_there();
    let former = create(&mut cluster, "t", 1).unwrap();
    assert_eq!(drop_table(&mut cluster, "t"), Ok(Empty {}));
    let table = create(&mut cluster, "t", 1).unwrap();
    let drop_id = |cluster: &mut ControlPlane, id| {
        let message = DropTable { name: "t".into(), id: Some(id) };
        cluster.ask::<Empty>(Opcode::DropTable, &message)
    };
    assert_eq!(drop_id(&mut cluster, former.id), Err(Status::NoSuchTable));
    assert_eq!(map(&mut cluster).tables, std::slice::from_ref(&table));
    assert_eq!(drop_id(&mut cluster, table.id), Ok(Empty {}));
    assert!(map(&mut cluster).tables.is_empty());
}

#[test]
fn only_the_coordinator_knows_that_a_table_is_split() {
    let mut cluster = ControlPlane::new(2, 2, 1, &options());
    cluster.until_all_are_there();
    let table = create(&mut cluster, "t", 1).unwrap();
    let split = |at| SplitTablet { table: "t".into(), at: KeyHash(at) };
    let two: TableInfo = cluster.ask(Opcode::SplitTablet, &split(1 << 63)).unwrap();
    assert_eq!(two.tablets.len(), 2);
    assert_eq!(cluster.ask(Opcode::SplitTablet, &split(1 << 63)), Ok(two.clone()));
    assert_eq!(cluster.ask::<TableInfo>(Opcode::SplitTablet, &split(0)), Err(Status::BadRange));
    cluster.change_leader();
    assert_eq!(map(&mut cluster).tables, [two]);
    // The shard has one tablet still, and drops both with it.
    assert_eq!(held(&cluster).len(), 1);
    drop_table(&mut cluster, "t").unwrap();
    assert!(held(&cluster).is_empty());
    let migrate = MigrateTablet { table: "t".into(), first: KeyHash::MIN, to: MasterId(1) };
    let refused = cluster.ask::<TableInfo>(Opcode::MigrateTablet, &migrate);
    assert_eq!((refused, table.tablets.len()), (Err(Status::NoSuchTable), 1));
}

#[test]
fn tablets_go_to_shards_with_room_even_if_full_ones_do_not_report_it() {
    for hides in [false, true] {
        let mut cluster = ControlPlane::new(1, 1, 3, &options());
        cluster.until_all_are_there();
        let before = create(&mut cluster, "before", 3).unwrap();
        let full = before.tablets[0].address.unwrap().ip();
        for server in &cluster.servers {
            let mut server = server.borrow_mut();
            let id = server.known.unwrap().server;
            let own = server.list.servers.iter().find(|it| it.server == id);
            let has_full = |own: &ServerInfo| own.shards.iter().any(|it| it.address.ip() == full);
            server.is_full = own.is_some_and(has_full);
            server.hides_its_room = hides;
        }
        for number in 0..6 {
            let table = create(&mut cluster, &format!("t{number}"), 1).unwrap();
            let servers = servers_of(&table);
            assert_eq!(servers.len(), 1, "it is served: {table:?}");
            assert!(!servers.contains(&full));
        }
        // All of them are full now: no table is made that no master could serve.
        for server in &cluster.servers {
            (server.borrow_mut().is_full, server.borrow_mut().hides_its_room) = (true, false);
        }
        assert_eq!(create(&mut cluster, "more", 2), Err(Status::NoSpace));
        assert_eq!(map(&mut cluster).tables.len(), 7);
        // One gets room again.
        cluster.servers[1].borrow_mut().is_full = false;
        assert_eq!(servers_of(&create(&mut cluster, "more", 2).unwrap()).len(), 1);
    }
}

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
