//! `MULTI` and `EXEC`, alone and beside other clients.

use super::ServerOptions;
use super::testing::{BEGIN_MS, Door};
use proptest::prelude::*;
use std::collections::BTreeSet;

#[test]
fn queued_commands_are_executed_together() {
    let mut door = Door::new();
    door.expect(&[
        ("exec", "-ERR EXEC without MULTI|"),
        ("discard", "-ERR DISCARD without MULTI|"),
        ("multi", "+OK|"),
        ("multi", "-ERR MULTI calls can not be nested|"),
        ("watch a", "-ERR WATCH inside MULTI is not allowed|"),
        ("set a 1", "+QUEUED|"),
        ("append a 2", "+QUEUED|"),
        ("get a", "+QUEUED|"),
    ]);
    assert_eq!(door.said_to(2, "get a"), "$-1|");
    door.expect(&[("exec", "*3|+OK|:2|$2|12|"), ("get a", "$2|12|"), ("multi", "+OK|")]);
    door.expect(&[("del a", "+QUEUED|"), ("discard", "+OK|"), ("exists a a b", ":2|")]);
}

#[test]
fn a_wrong_command_aborts_a_transaction() {
    let mut door = Door::new();
    door.expect(&[
        ("multi", "+OK|"),
        ("foo", "-ERR unknown command 'foo', with args beginning with: |"),
        ("set a 1", "+QUEUED|"),
        ("exec", "-EXECABORT Transaction discarded because of previous errors.|"),
        ("exec", "-ERR EXEC without MULTI|"),
        ("get a", "$-1|"),
    ]);
}

#[test]
fn a_watched_key_that_changes_aborts_a_transaction() {
    let mut door = Door::new();
    door.expect(&[("set a 1", "+OK|"), ("watch a b", "+OK|"), ("multi", "+OK|")]);
    door.expect(&[("append a 2", "+QUEUED|"), ("exec", "*1|:2|"), ("watch a b", "+OK|")]);
    assert_eq!(door.said_to(2, "set b 1"), "+OK|");
    door.expect(&[("multi", "+OK|"), ("get a", "+QUEUED|"), ("exec", "*-1|")]);
    door.expect(&[("multi", "+OK|"), ("get a", "+QUEUED|"), ("exec", "*1|$2|12|")]);
}

#[test]
fn a_transaction_that_is_refused_leaves_nothing() {
    for refused in 0..6 {
        let mut door = Door::new();
        let lines = "multi\nset a 1\nselect 3\nappend a 2\nselect 0\ndel a b\nget a";
        assert_eq!(door.said(lines), format!("+OK|{}", "+QUEUED|".repeat(6)));
        door.store.refuses_after = Some(refused);
        assert_eq!(door.said("exec"), "*6|+OK|+OK|:1|+OK|:1|$-1|", "{refused}");
        assert_eq!(door.said("get a\nselect 3\nget a"), "$-1|+OK|$1|2|", "{refused}");
    }
}

#[test]
fn a_transaction_without_memory_is_aborted() {
    let mut door = Door::new();
    door.store.bytes_max = Some(10);
    assert_eq!(door.said("set a 123456789"), "+OK|");
    let full = "OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(door.said("set b 1"), format!("-{full}|"));
    door.expect(&[("multi", "+OK|"), ("set a 1", "+QUEUED|"), ("append b 1234567890", "+QUEUED|")]);
    let reply = format!("-EXECABORT Transaction discarded because of: {full}|");
    assert_eq!(door.said("exec\nget a"), format!("{reply}$9|123456789|"));
}

#[test]
fn a_refused_exec_ends_the_watching_also_without_a_transaction() {
    let mut door = Door::new();
    door.expect(&[("watch a", "+OK|"), ("set a 1", "+OK|")]);
    assert!(door.said("exec x").starts_with("-EXECABORT "));
    door.expect(&[("multi", "+OK|"), ("exec", "*0|")]);
}

/// Returns the elements of an array of strings.
fn elements(reply: &str) -> Vec<String> {
    let lines: Vec<&str> = reply.split('|').collect();
    lines.iter().filter(|line| line.starts_with('k')).map(ToString::to_string).collect()
}

proptest! {
    #[test]
    fn changes_of_a_transaction_are_counted_and_visited_once(
        before in proptest::collection::btree_set(0..200u32, 0..100),
        changes in proptest::collection::vec((0..200u32, 0..40u32), 0..150),
    ) {
        let mut door = Door::new();
        let mut keys: BTreeSet<String> = before.iter().map(|key| format!("k{key}")).collect();
        keys.iter().for_each(|key| drop(door.said(&format!("set {key} v"))));
        door.said("multi");
        let mut expected = Vec::new();
        for (key, action) in changes {
            let key = format!("k{key}");
            match action {
                0 => {
                    door.said("flushdb");
                    keys.clear();
                    expected.push("+OK".to_owned());
                }
                1..15 => {
                    door.said(&format!("set {key} w"));
                    keys.insert(key);
                    expected.push("+OK".to_owned());
                }
                15..30 => {
                    door.said(&format!("del {key}"));
                    expected.push(format!(":{}", u32::from(keys.remove(&key))));
                }
                _ => {
                    door.said("dbsize");
                    expected.push(format!(":{}", keys.len()));
                }
            }
        }
        let count = expected.len();
        door.said("keys *");
        door.said("randomkey");
        door.said("scan 0");
        let reply = door.said("exec");
        let said: Vec<&str> = reply.split('|').collect();
        prop_assert_eq!(&said[1..=count], &expected);
        let size: usize = said[count + 1].trim_start_matches('*').parse().unwrap();
        prop_assert_eq!(size, keys.len());
        let behind = count + 2 + 2 * size;
        let all = said[count + 2..behind].iter().filter(|line| line.starts_with('k'));
        prop_assert_eq!(all.map(ToString::to_string).collect::<BTreeSet<_>>(), keys.clone());
        let drawn = said[behind..].iter().find(|line| line.starts_with('k') || **line == "$-1");
        match drawn {
            Some(key) if keys.is_empty() => prop_assert_eq!(*key, "$-1"),
            drawn => prop_assert!(drawn.is_some_and(|key| keys.contains(*key))),
        }
        // A scan that began in the transaction finds the rest behind it.
        let is_page = |at: &usize| said[*at] == "*2" && said[*at + 3].starts_with('*');
        let at = (behind..said.len() - 3).find(is_page).unwrap();
        let mut page = said[at..].join("|");
        let mut found = BTreeSet::new();
        loop {
            found.extend(elements(&page));
            let cursor = page.split('|').nth(2).unwrap().to_owned();
            if cursor == "0" {
                break;
            }
            page = door.said(&format!("scan {cursor}"));
        }
        prop_assert_eq!(found, keys);
    }
}

#[test]
fn many_counts_and_scans_of_many_changes_take_little_time() {
    const MANY: usize = 20_000;
    let mut door = Door::new();
    let sets = (0..MANY).map(|key| format!("set k{key} v\r\n"));
    let counts = (0..MANY).map(|_| "dbsize\r\nscan 0 match none\r\nrandomkey\r\n".to_owned());
    let all = sets.chain(counts).collect::<String>();
    // With a look at all changes for each of them, it would take many minutes.
    let reply = door.replies(1, format!("multi\r\n{all}exec\r\n").as_bytes());
    assert!(reply.ends_with(b"\r\n"));
    assert_eq!(door.said("dbsize"), format!(":{MANY}|"));
}

/// Executes `EXEC` on a store that refuses each of its calls in turn. The transaction finds a field
/// that has expired.
fn refuse_each_call(queue: &str, replies: &str) {
    let mut calls = 0;
    loop {
        let mut door = Door::with(ServerOptions { reply_bytes_max: 1000, ..Default::default() });
        door.said("hset h a 1 b 2\nhset over a 1");
        door.said(&format!("set k {}", "x".repeat(600)));
        door.said("hpexpire h 10 fields 1 a\nhpexpire over 10 fields 1 a");
        door.said(queue);
        door.pass(20);
        door.store.refuses_after = Some(calls);
        assert_eq!(door.said("exec"), replies, "{calls}");
        assert_eq!(door.store.gone_ms, BEGIN_MS + 10);
        if door.store.refuses_after.is_some() {
            break;
        }
        calls += 1;
    }
    assert!(calls >= 2);
}

#[test]
fn an_exec_that_is_executed_again_has_its_transaction() {
    let too_long = "-ERR The reply is too long. Ask for less at a time.|";
    refuse_each_call("multi\nhget h a\nget k\nget k", too_long);
    refuse_each_call("multi\nclient setname a\nhget h a\nget k\nget k", too_long);
    refuse_each_call("watch over\nmulti\nget k", "*-1|");
}
