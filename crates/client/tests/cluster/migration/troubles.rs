//! Obstacles to a move, each by itself: updates while a tablet is copied, a crash of the former
//! master, a new master without room, a table that is dropped during the move.

use super::{TabletCluster, insist, key, migrate, objects_at, read, table, write, write_value};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::sim::Link;
use thunderhead_rpc::Opcode;
use thunderhead_simulator::Options;
use thunderhead_testkit::User;
use thunderhead_wire::control::{CreateTable, DropTable, Empty, TableInfo};
use thunderhead_wire::operations::{Identity, ObjectHead};
use thunderhead_wire::{Condition, KeyHash, MasterId, Status};
use zerocopy::IntoBytes;

const OBJECTS: u64 = 1500;

/// A network on which the copy of a tablet takes a while.
fn slow(seed: u64) -> Options {
    let delay = Duration::from_micros(300);
    let link = Link { delay, bytes_per_second: 4_000_000, ..Link::default() };
    Options { link, ..Options::calm(seed) }
}

/// Returns the master that has the table, and another master.
async fn here_and_there(user: &User, masters: &[MasterId]) -> (MasterId, MasterId) {
    let here = table(user).await.tablets[0].master;
    let there = masters.iter().copied().find(|it| *it != here).unwrap();
    (here, there)
}

async fn delete(user: &User, number: u64) {
    let key = key(number);
    let head = ObjectHead::new(super::TABLE, key.len(), Condition::Always, 0);
    let body = [Identity::NONE.as_bytes(), head.as_bytes(), &key].concat();
    insist(user, Opcode::Delete, &key, body).await.unwrap();
}

#[test]
fn updates_during_the_copy_of_a_tablet_move_with_it() {
    let mut cluster = TabletCluster::new(slow(8), 2);
    let masters = cluster.masters();
    cluster.drive(move |user| {
        let masters = masters.clone();
        async move {
            write(&user, 0..OBJECTS).await;
            let (_, there) = here_and_there(&user, &masters).await;
            let moved = Rc::new(Cell::new(false));
            let (own, ended) = (user.clone(), Rc::clone(&moved));
            user.tasks.spawn(async move {
                migrate(&own, KeyHash::MIN, there).await.unwrap();
                ended.set(true);
            });
            // The expected value of each key, by the answers.
            let mut known = BTreeMap::new();
            let mut count = 0;
            while !moved.get() {
                count += 1;
                let number = count * 37 % OBJECTS;
                if count % 5 == 0 {
                    delete(&user, number).await;
                    known.insert(number, None);
                } else {
                    let value = count.to_le_bytes().to_vec();
                    write_value(&user, number, &value).await;
                    known.insert(number, Some(value));
                }
            }
            assert!(count > 40, "{count} updates are too few to prove anything");
            assert_eq!(table(&user).await.tablets[0].master, there);
            for (number, value) in known {
                match (read(&user, number).await, value) {
                    (Ok(found), Some(value)) => assert_eq!(found[8..], value, "{number}"),
                    (Err(Status::NotFound), None) => {}
                    (found, value) => panic!("{number}: {found:?} instead of {value:?}"),
                }
            }
        }
    });
}

/// Without replicas, either all objects are lost with the former master or all have moved: never a
/// part.
#[test]
fn a_tablet_is_whole_or_empty_after_its_former_master_crashes_in_a_move() {
    let (mut moved, mut lost) = (0, 0);
    for delay in [0, 2, 5, 10, 20, 40, 80, 160] {
        let mut cluster = TabletCluster::new(slow(9), 2);
        let masters = cluster.masters();
        let own = masters.clone();
        let (here, there) = cluster.drive(move |user| {
            let own = own.clone();
            async move {
                write(&user, 0..OBJECTS).await;
                here_and_there(&user, &own).await
            }
        });
        let result = cluster
            .begin(move |user| async move { migrate(&user, KeyHash::MIN, there).await.map(drop) });
        cluster.simulation.run_for(Duration::from_millis(delay));
        let server = masters.iter().position(|it| *it == here).unwrap();
        cluster.server(server).kill_for(Duration::from_millis(100));
        let seen = Rc::clone(&result);
        cluster
            .until("an answer arrives", Duration::from_secs(30), move |_| seen.borrow().is_some());
        let (has_moved, found) = cluster.drive(move |user| async move {
            let mut found = 0;
            for number in 0..OBJECTS {
                match read(&user, number).await {
                    Ok(value) => {
                        assert_eq!(value.len(), 308);
                        found += 1;
                    }
                    Err(status) => assert_eq!(status, Status::NotFound),
                }
            }
            let has_moved = table(&user).await.tablets[0].master == there;
            if has_moved {
                assert_eq!(objects_at(&user, there).await, found);
            }
            // The table serves writes again.
            write(&user, 0..OBJECTS).await;
            (has_moved, found)
        });
        if result.take().unwrap().is_ok() {
            assert!(has_moved && found == OBJECTS, "{delay}: {found}");
        }
        assert!(found == 0 || has_moved && found == OBJECTS, "{delay}: {found}");
        moved += u64::from(found > 0);
        lost += u64::from(found == 0);
    }
    assert!(moved > 0 && lost > 1, "{moved} {lost}");
}

#[test]
fn a_tablet_stays_with_its_master_if_the_new_master_has_no_room() {
    let mut cluster = TabletCluster::with_memory(slow(10), &[4 << 20, 384 << 10]);
    let masters = cluster.masters();
    cluster.drive(move |user| {
        let (large, small) = (masters[0], masters[1]);
        async move {
            // The table may have been created on either master, so it first moves to the large one.
            migrate(&user, KeyHash::MIN, large).await.unwrap();
            write(&user, 0..OBJECTS).await;
            let result = migrate(&user, KeyHash::MIN, small).await.map(drop);
            assert_eq!(result, Err(Status::NotMigrated));
            for number in 0..OBJECTS {
                assert_eq!(read(&user, number).await.unwrap().len(), 308, "{number}");
            }
            // The small master discards the objects that it received.
            while objects_at(&user, small).await > 0 {
                user.tasks.sleep(Duration::from_millis(10)).await;
            }
        }
    });
}

#[test]
fn a_table_that_is_dropped_during_a_move_is_gone_from_both_masters() {
    for delay in [0, 1, 3, 8, 15, 30, 60] {
        let mut cluster = TabletCluster::new(slow(11), 2);
        let masters = cluster.masters();
        let result: Rc<RefCell<Option<Result<(), Status>>>> = Rc::default();
        let told = Rc::clone(&result);
        cluster.drive(move |user| {
            let (masters, told) = (masters.clone(), Rc::clone(&told));
            async move {
                write(&user, 0..OBJECTS).await;
                let (here, there) = here_and_there(&user, &masters).await;
                let own = user.clone();
                user.tasks.spawn(async move {
                    let result = migrate(&own, KeyHash::MIN, there).await.map(drop);
                    *told.borrow_mut() = Some(result);
                });
                user.tasks.sleep(Duration::from_millis(delay)).await;
                let drop = DropTable::named("t");
                let _: Empty = user.ask(Opcode::DropTable, &drop).await.unwrap();
                while objects_at(&user, here).await + objects_at(&user, there).await > 0 {
                    user.tasks.sleep(Duration::from_millis(10)).await;
                }
                let create = CreateTable::spread("t", 2);
                let again: TableInfo = user.ask(Opcode::CreateTable, &create).await.unwrap();
                assert_eq!(again.tablets.len(), 2);
            }
        });
        let seen = Rc::clone(&result);
        cluster
            .until("an answer arrives", Duration::from_secs(30), move |_| seen.borrow().is_some());
    }
}
