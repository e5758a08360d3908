//! Tables that lie beside each other: they are on one shard, however often servers and leaders
//! crash.

use crate::control_plane::{ControlPlane, create, drop_table, held, map, mapped, options, stored};
use crate::recoveries::{fell, told, until_all_are_somewhere};
use std::collections::BTreeSet;
use std::time::Duration;
use thunderhead_coordinator::Options;
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{CreateTable, MigrateTablet, Settings, SplitTablet, TableInfo};
use thunderhead_wire::{Format, Generation, KeyHash, MasterId, Status, TableId};

/// The number of tables of the group, without the first one.
const OTHERS: u64 = 6;

fn beside(cluster: &mut ControlPlane, name: &str, table: TableId) -> Result<TableInfo, Status> {
    cluster.ask(Opcode::CreateTable, &CreateTable::beside(name, table))
}

/// Makes a cluster with a group, beside a table on each shard. Returns the first table's id.
fn grouped(
    seed: u64,
    coordinators: usize,
    servers: usize,
    options: &Options,
) -> (ControlPlane, TableId) {
    let mut cluster = ControlPlane::new(seed, coordinators, servers, options);
    cluster.until_all_are_there();
    create(&mut cluster, "t", 2 * servers as u32).unwrap();
    let first = create(&mut cluster, "g", 1).unwrap();
    for number in 0..OTHERS {
        let table = beside(&mut cluster, &format!("g{number}"), first.id).unwrap();
        assert_eq!(table.beside, Some(first.id));
        assert_eq!(table.tablets, first.tablets);
    }
    (cluster, first.id)
}

/// Returns the masters of the group's tables that the store has.
fn owners_of(cluster: &ControlPlane, group: TableId) -> BTreeSet<MasterId> {
    let tables = stored(&cluster.store, "tables");
    let is_in = |it: &&serde_json::Value| it["id"] == group.0 || it["beside"] == group.0;
    let tablets = tables.iter().filter(is_in).flat_map(|it| it["tablets"].as_array().unwrap());
    tablets.map(|it| MasterId(it["master"].as_u64().unwrap())).collect()
}

fn server_of(cluster: &ControlPlane, master: MasterId) -> Option<usize> {
    let has = |number: &usize| {
        let server = cluster.servers[*number].borrow();
        server.enlisted.as_ref().is_some_and(|it| it.masters.contains(&master))
    };
    (0..cluster.servers.len()).find(has)
}

#[test]
fn a_table_beside_another_one_is_neither_split_nor_moved() {
    let (mut cluster, group) = grouped(800, 1, 2, &options());
    for name in ["g", "g0"] {
        let split = SplitTablet { table: name.into(), at: KeyHash(1 << 63) };
        assert_eq!(cluster.ask::<TableInfo>(Opcode::SplitTablet, &split), Err(Status::Grouped));
        let other = cluster.masters(1).into_iter().chain(cluster.masters(0));
        for to in other.collect::<Vec<_>>() {
            let migrate = MigrateTablet { table: name.into(), first: KeyHash::MIN, to };
            let refused = cluster.ask::<TableInfo>(Opcode::MigrateTablet, &migrate);
            assert_eq!(refused, Err(Status::Grouped));
        }
    }
    let second = map(&mut cluster).tables.into_iter().find(|it| it.name == "g0").unwrap();
    assert_eq!(beside(&mut cluster, "n", second.id), Err(Status::Grouped));
    let spread = map(&mut cluster).tables.into_iter().find(|it| it.name == "t").unwrap();
    assert_eq!(beside(&mut cluster, "n", spread.id), Err(Status::Grouped));
    assert_eq!(beside(&mut cluster, "n", TableId(999)), Err(Status::NoSuchTable));
    assert_eq!(beside(&mut cluster, "g0", group), Err(Status::TableExists));
    // Without the others it is a table like all others.
    for number in 0..OTHERS {
        drop_table(&mut cluster, &format!("g{number}")).unwrap();
    }
    let split = SplitTablet { table: "g".into(), at: KeyHash(1 << 63) };
    assert_eq!(cluster.ask::<TableInfo>(Opcode::SplitTablet, &split).unwrap().tablets.len(), 2);
}

#[test]
fn a_group_has_a_limit() {
    let (mut cluster, group) = grouped(801, 1, 1, &options());
    for number in OTHERS..255 {
        beside(&mut cluster, &format!("g{number}"), group).unwrap();
    }
    assert_eq!(beside(&mut cluster, "more", group), Err(Status::NoSpace));
    drop_table(&mut cluster, "g3").unwrap();
    beside(&mut cluster, "more", group).unwrap();
}

#[test]
fn a_cluster_of_the_first_format_has_no_tables_beside_others() {
    let first = Options { newest_format: Format::FIRST, ..options() };
    let mut cluster = ControlPlane::new(802, 1, 1, &first);
    cluster.until_all_are_there();
    let table = create(&mut cluster, "g", 1).unwrap();
    assert_eq!(beside(&mut cluster, "g0", table.id), Err(Status::OldFormat));
}

#[test]
fn a_recovery_rebuilds_a_large_group_in_one_part_and_divides_other_tables() {
    let (mut cluster, group) = grouped(803, 1, 3, &options());
    cluster.common.table_bytes.set(6 * (256 << 20));
    let former = owners_of(&cluster, group);
    let crashed = server_of(&cluster, *former.first().unwrap()).unwrap();
    let former = cluster.masters(crashed);
    fell(&mut cluster, crashed);
    until_all_are_somewhere(&mut cluster, &former);
    assert_eq!(owners_of(&cluster, group).len(), 1);
    let of_group: Vec<_> = told(&cluster)
        .into_iter()
        .filter(|it| it.tablets.iter().any(|tablet| tablet.range.table == group))
        .collect();
    assert_eq!(of_group.len(), 1);
    assert_eq!(of_group[0].tablets.len() as u64, 1 + OTHERS, "it has nothing else");
    assert!(told(&cluster).len() > 3);
}

/// Servers and leaders crash at every step of a recovery, so that owners are written in part.
#[test]
fn the_tables_of_a_group_stay_together_however_many_crash() {
    let mut parted = 0;
    for step in 0..90 {
        let (mut cluster, group) = grouped(900 + step, 2, 4, &options());
        let first = server_of(&cluster, *owners_of(&cluster, group).first().unwrap()).unwrap();
        let mut former = cluster.masters(first);
        let known = cluster.servers[first].borrow().known.unwrap().server;
        fell(&mut cluster, first);
        let micros = if step < 20 { step * 3000 } else { 525_000 + (step - 20) * 300 };
        cluster.simulation.run_for(Duration::from_micros(micros));
        if step % 3 > 0 {
            cluster.store.stop();
            let old = cluster.leader().unwrap();
            cluster.coordinator(old).kill();
            let owners = owners_of(&cluster, group);
            parted += u32::from(owners.len() > 1);
            cluster.store.start();
            cluster.until("another one leads", |cluster| cluster.leader().is_some());
            cluster.handle().server_failed(known, Generation(1));
        }
        // The master that has some of the tables, or rebuilds them, crashes too. It restarts,
        // because it has replicas.
        let by = told(&cluster)
            .into_iter()
            .find(|it| it.tablets.iter().any(|it| it.range.table == group));
        let second = by.and_then(|it| server_of(&cluster, it.master)).filter(|_| step % 2 == 0);
        if let Some(second) = second {
            former.extend(cluster.masters(second));
            fell(&mut cluster, second);
            cluster.server(second).restart();
        }
        cluster.server(first).restart();
        cluster.until_all_are_there();
        until_all_are_somewhere(&mut cluster, &former);
        assert_eq!(owners_of(&cluster, group).len(), 1, "step {step}");
        assert_eq!(held(&cluster).len(), mapped(&map(&mut cluster)).len(), "step {step}");
    }
    assert!(parted > 0, "no crash has parted the owners");
}

#[test]
fn a_group_without_replicas_begins_anew_together() {
    for (step, seed) in (810..830).enumerate() {
        let settings = Settings { replicas: 0, ..crate::control_plane::settings() };
        let (mut cluster, group) = grouped(seed, 2, 3, &Options { settings, ..options() });
        let crashed = server_of(&cluster, *owners_of(&cluster, group).first().unwrap()).unwrap();
        let former = cluster.masters(crashed);
        let known = cluster.servers[crashed].borrow().known.unwrap().server;
        fell(&mut cluster, crashed);
        cluster.simulation.run_for(Duration::from_millis(step as u64));
        cluster.change_leader();
        cluster.handle().server_failed(known, Generation(1));
        until_all_are_somewhere(&mut cluster, &former);
        assert_eq!(owners_of(&cluster, group).len(), 1, "seed {seed}");
    }
}
