//! Pages of collections that are gone are deleted, and no others.

use super::header::Header;
use super::options::ServerOptions;
use super::pages::{COUNTER, PageKey};
use super::store::{Database, PAGES, Store};
use super::testing::Door;
use std::collections::BTreeSet;

fn door() -> Door {
    Door::with(ServerOptions { databases: 3, ..ServerOptions::default() })
}

fn fill(door: &mut Door, key: &str, fields: usize) {
    for first in (0..fields).step_by(50) {
        let pairs: String = (first..fields.min(first + 50)).fold(String::new(), |text, it| {
            format!("{text} {}{it} value-of-some-length-{it}", if it % 2 == 0 { "x" } else { "" })
        });
        door.said(&format!("HSET {key}{pairs}"));
    }
}

fn keys(door: &mut Door, database: Database) -> BTreeSet<Vec<u8>> {
    let (mut keys, mut cursor) = (BTreeSet::new(), 0);
    loop {
        let mut visit = |key: &[u8], _: &super::store::Found<'_>| {
            keys.insert(key.to_vec());
        };
        cursor = door.store.walk(database, cursor, &mut visit).unwrap();
        if cursor == 0 {
            keys.remove(COUNTER);
            return keys;
        }
    }
}

fn pages(door: &mut Door) -> usize {
    (0..3).map(|database| keys(door, PAGES | database).len()).sum()
}

/// Returns the number of pages that headers name, with their owner records.
fn live(door: &mut Door) -> usize {
    let mut count = 0;
    for database in 0..3 {
        for key in keys(door, database) {
            let found = door.store.find(database, &key, false).unwrap().unwrap();
            let header = Header::with_pages(found.kind, found.value);
            if let Some((id, live)) = header.map(|header| (header.id, header.live)) {
                count += live as usize + 1;
                let owner = PageKey::new(id, 0);
                let owner = door.store.find(PAGES | database, owner.bytes(), false).unwrap();
                assert_eq!(owner.unwrap().value, key);
            }
        }
    }
    count
}

fn sweep_all(door: &mut Door) {
    for _ in 0..100_000 {
        let (before, swept) = (
            pages(door),
            door.server.sweep(&mut door.store, 7, &mut crate::resp::Output::default()),
        );
        assert!(swept.visited <= 7 + 30, "{swept:?}");
        assert_eq!(before - pages(door), swept.deleted);
        if !swept.has_more && live(door) == pages(door) {
            return;
        }
    }
    panic!("garbage stays");
}

#[test]
fn pages_of_deleted_collections_are_deleted() {
    let mut door = door();
    fill(&mut door, "a", 300);
    fill(&mut door, "b", 300);
    fill(&mut door, "c", 300);
    let before = pages(&mut door);
    assert_eq!(live(&mut door), before);
    door.expect(&[("DEL a", ":1|"), ("SET b x", "+OK|")]);
    assert_eq!(pages(&mut door), before, "a command deletes the header only");
    sweep_all(&mut door);
    assert!(pages(&mut door) < before / 2);
    door.expect(&[("HLEN c", ":300|"), ("HGET c 77", "$23|value-of-some-length-77|")]);
    assert_eq!(door.said("HGETALL c").matches("value").count(), 300);
}

#[test]
fn noted_collections_are_deleted_without_a_walk() {
    let mut door = door();
    fill(&mut door, "a", 300);
    fill(&mut door, "b", 300);
    door.expect(&[("UNLINK a", ":1|")]);
    let garbage = pages(&mut door) - live(&mut door);
    assert!(garbage > 10);
    for slice in 0..garbage / 5 {
        let swept = door.server.sweep(&mut door.store, 5, &mut crate::resp::Output::default());
        assert_eq!((swept.visited, swept.deleted), (5, 5), "slice {slice} of {garbage} pages");
        assert!(swept.has_more || slice == garbage / 5 - 1);
    }
}

#[test]
fn renamed_moved_copied_and_swapped_collections_live() {
    let mut door = door();
    fill(&mut door, "a", 200);
    door.expect(&[
        ("RENAME a b", "+OK|"),
        ("COPY b c", ":1|"),
        ("COPY b d DB 2", ":1|"),
        ("MOVE c 1", ":1|"),
        ("SWAPDB 0 2", "+OK|"),
    ]);
    sweep_all(&mut door);
    door.expect(&[
        ("HLEN d", ":200|"),
        ("SELECT 1", "+OK|"),
        ("HLEN c", ":200|"),
        ("SELECT 2", "+OK|"),
        ("HLEN b", ":200|"),
        ("HGET b 77", "$23|value-of-some-length-77|"),
        ("RENAME b e", "+OK|"),
        ("DEL e", ":1|"),
    ]);
    sweep_all(&mut door);
    door.expect(&[("SELECT 1", "+OK|"), ("DEL c", ":1|"), ("SELECT 0", "+OK|"), ("DEL d", ":1|")]);
    sweep_all(&mut door);
    assert_eq!(pages(&mut door), 0);
}

#[test]
fn expired_collections_lose_their_pages() {
    let mut door = door();
    fill(&mut door, "a", 200);
    door.expect(&[("PEXPIRE a 1000", ":1|")]);
    sweep_all(&mut door);
    door.expect(&[("HLEN a", ":200|")]);
    door.pass(1000);
    door.expect(&[("HLEN a", ":0|")]);
    for _ in 0..1000 {
        door.server.sweep(&mut door.store, 10, &mut crate::resp::Output::default());
    }
    assert_eq!(pages(&mut door), 0);
}

#[test]
fn a_cleared_database_has_no_pages() {
    let mut door = door();
    fill(&mut door, "a", 200);
    door.expect(&[("MULTI", "+OK|"), ("FLUSHDB", "+QUEUED|"), ("HLEN a", "+QUEUED|")]);
    door.expect(&[("EXEC", "*2|+OK|:0|")]);
    assert_eq!(pages(&mut door), 0);
    fill(&mut door, "a", 200);
    assert_eq!(live(&mut door), pages(&mut door));
    door.expect(&[("DBSIZE", ":1|"), ("KEYS *", "*1|$1|a|")]);
}

#[test]
fn a_store_that_refuses_delays_the_sweep() {
    let mut door = door();
    fill(&mut door, "a", 200);
    door.expect(&[("DEL a", ":1|")]);
    let mut calls = 0;
    while pages(&mut door) > 0 {
        door.store.refuses_after = Some(calls % 12);
        door.server.sweep(&mut door.store, 5, &mut crate::resp::Output::default());
        door.store.refuses_after = None;
        calls += 1;
        assert!(calls < 10_000);
    }
}

/// Commands by chance leave no page without a collection, and no collection without its pages.
#[test]
fn any_history_leaves_only_pages_of_collections() {
    let mut door = door();
    let mut random = 1u64;
    let mut next = |bound: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    for step in 0..1500 {
        let (key, other) = (next(4), next(4));
        match next(16) {
            0..=5 => fill(&mut door, &format!("k{key}"), 20 + next(150) as usize),
            6 => drop(door.said(&format!("RENAME k{key} k{other}"))),
            7 => drop(door.said(&format!("COPY k{key} k{other} REPLACE"))),
            8 => drop(door.said(&format!("COPY k{key} k{other} DB {} REPLACE", next(3)))),
            9 => drop(door.said(&format!("MOVE k{key} {}", next(3)))),
            10 => drop(door.said(&format!("DEL k{key}"))),
            11 => drop(door.said(&format!("SELECT {}", next(3)))),
            12 => drop(door.said(&format!("SWAPDB {} {}", next(3), next(3)))),
            13 => drop(door.said(&format!("PEXPIRE k{key} 50\nSET k{other} x"))),
            14 => door.pass(20),
            _ => {
                let fields: String = (0..60).map(|_| format!(" {}", next(150))).collect();
                drop(door.said(&format!("HDEL k{key}{fields}")));
            }
        }
        door.server.sweep(&mut door.store, next(20) as usize, &mut crate::resp::Output::default());
        if step % 100 == 99 {
            sweep_all(&mut door);
        }
    }
}
