//! Obstacles to a move, each by itself: updates while a tablet is copied, a crash of the former
//! master, a new master without room, a table that is dropped during the move.

use super::{Asker, World, insist, key, masters_of, objects_at, read, write, write_value};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::sim::Link;
use thunderhead_rpc::Opcode;
use thunderhead_simulator::Options;
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
async fn here_and_there(asker: &Asker, masters: &[MasterId]) -> (MasterId, MasterId) {
    let here = asker.table().await.tablets[0].master;
    let there = masters.iter().copied().find(|it| *it != here).unwrap();
    (here, there)
}

async fn delete(asker: &Asker, number: u64) {
    let key = key(number);
    let head = ObjectHead::new(super::TABLE, key.len(), Condition::Always, 0);
    let body = [Identity::NONE.as_bytes(), head.as_bytes(), &key].concat();
    insist(asker, Opcode::Delete, &key, body).await.unwrap();
}

#[test]
fn updates_during_the_copy_of_a_tablet_move_with_it() {
    let mut world = World::new(slow(8), 2);
    let masters = masters_of(&world);
    world.drive(move |asker| {
        let masters = masters.clone();
        async move {
            write(&asker, 0..OBJECTS).await;
            let (_, there) = here_and_there(&asker, &masters).await;
            let moved = Rc::new(Cell::new(false));
            let (own, ended) = (asker.clone(), Rc::clone(&moved));
            asker.tasks.spawn(async move {
                own.migrate(KeyHash::MIN, there).await.unwrap();
                ended.set(true);
            });
            // The expected value of each key, by the answers.
            let mut known = BTreeMap::new();
            let mut count = 0;
            while !moved.get() {
                count += 1;
                let number = count * 37 % OBJECTS;
                if count % 5 == 0 {
                    delete(&asker, number).await;
                    known.insert(number, None);
                } else {
                    let value = count.to_le_bytes().to_vec();
                    write_value(&asker, number, &value).await;
                    known.insert(number, Some(value));
                }
            }
            assert!(count > 40, "{count} updates are too few to prove anything");
            assert_eq!(asker.table().await.tablets[0].master, there);
            for (number, value) in known {
                match (read(&asker, number).await, value) {
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
        let mut world = World::new(slow(9), 2);
        let masters = masters_of(&world);
        let own = masters.clone();
        let (here, there) = world.drive(move |asker| {
            let own = own.clone();
            async move {
                write(&asker, 0..OBJECTS).await;
                here_and_there(&asker, &own).await
            }
        });
        let result = world
            .begin(move |asker| async move { asker.migrate(KeyHash::MIN, there).await.map(drop) });
        world.simulation.run_for(Duration::from_millis(delay));
        let host = world.servers[masters.iter().position(|it| *it == here).unwrap()].0;
        world.simulation.restart_after(host, Duration::from_millis(100));
        world.simulation.crash(host);
        let seen = Rc::clone(&result);
        world.until("an answer arrives", Duration::from_secs(30), move |_| seen.borrow().is_some());
        let (has_moved, found) = world.drive(move |asker| async move {
            let mut found = 0;
            for number in 0..OBJECTS {
                match read(&asker, number).await {
                    Ok(value) => {
                        assert_eq!(value.len(), 308);
                        found += 1;
                    }
                    Err(status) => assert_eq!(status, Status::NotFound),
                }
            }
            let has_moved = asker.table().await.tablets[0].master == there;
            if has_moved {
                assert_eq!(objects_at(&asker, there).await, found);
            }
            // The table serves writes again.
            write(&asker, 0..OBJECTS).await;
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
    let mut world = World::with_memory(slow(10), &[4 << 20, 384 << 10]);
    let masters = masters_of(&world);
    world.drive(move |asker| {
        let (large, small) = (masters[0], masters[1]);
        async move {
            // The table may have been created on either master, so it first moves to the large one.
            asker.migrate(KeyHash::MIN, large).await.unwrap();
            write(&asker, 0..OBJECTS).await;
            let result = asker.migrate(KeyHash::MIN, small).await.map(drop);
            assert_eq!(result, Err(Status::NotMigrated));
            for number in 0..OBJECTS {
                assert_eq!(read(&asker, number).await.unwrap().len(), 308, "{number}");
            }
            // The small master discards the objects that it received.
            while objects_at(&asker, small).await > 0 {
                asker.tasks.sleep(Duration::from_millis(10)).await;
            }
        }
    });
}

#[test]
fn a_table_that_is_dropped_during_a_move_is_gone_from_both_masters() {
    for delay in [0, 1, 3, 8, 15, 30, 60] {
        let mut world = World::new(slow(11), 2);
        let masters = masters_of(&world);
        let result: Rc<RefCell<Option<Result<(), Status>>>> = Rc::default();
        let told = Rc::clone(&result);
        world.drive(move |asker| {
            let (masters, told) = (masters.clone(), Rc::clone(&told));
            async move {
                write(&asker, 0..OBJECTS).await;
                let (here, there) = here_and_there(&asker, &masters).await;
                let own = asker.clone();
                asker.tasks.spawn(async move {
                    let result = own.migrate(KeyHash::MIN, there).await.map(drop);
                    *told.borrow_mut() = Some(result);
                });
                asker.tasks.sleep(Duration::from_millis(delay)).await;
                let drop = DropTable::named("t");
                let _: Empty = asker.ask(Opcode::DropTable, &drop).await.unwrap();
                while objects_at(&asker, here).await + objects_at(&asker, there).await > 0 {
                    asker.tasks.sleep(Duration::from_millis(10)).await;
                }
                let create = CreateTable { name: "t".into(), server_span: 2 };
                let again: TableInfo = asker.ask(Opcode::CreateTable, &create).await.unwrap();
                assert_eq!(again.tablets.len(), 2);
            }
        });
        let seen = Rc::clone(&result);
        world.until("an answer arrives", Duration::from_secs(30), move |_| seen.borrow().is_some());
    }
}
