//! Clients that wait for elements.

use super::testing::Door;

#[test]
fn clients_are_served_in_the_order_in_which_they_began_to_wait() {
    let mut door = Door::new();
    assert_eq!(door.said_to(1, "blpop a b 0"), "");
    assert_eq!(door.said_to(2, "brpop b 0"), "");
    assert_eq!(door.said_to(3, "blmpop 0 1 b left count 5"), "");
    assert_eq!(door.said_to(4, "rpush b 1"), ":1|");
    assert_eq!((door.heard(1).as_str(), door.heard(2).as_str()), ("*2|$1|b|$1|1|", ""));
    assert_eq!(door.said_to(4, "exists b\nrpush b 2 3 4 5"), ":0|:4|");
    assert_eq!(door.heard(2), "*2|$1|b|$1|5|");
    assert_eq!(door.heard(3), "*2|$1|b|*3|$1|2|$1|3|$1|4|");
    assert_eq!(door.said_to(4, "exists b"), ":0|");
}

#[test]
fn a_client_is_served_by_the_first_of_its_keys() {
    let mut door = Door::new();
    assert_eq!(door.said_to(1, "blpop a b 0"), "");
    assert_eq!(
        door.said_to(2, "multi\nrpush b 1\nrpush a 2\nexec"),
        "+OK|+QUEUED|+QUEUED|*2|:1|:1|"
    );
    assert_eq!(door.heard(1), "*2|$1|a|$1|2|");
    assert_eq!(door.said_to(2, "llen b"), ":1|");
}

#[test]
fn a_transaction_may_take_the_elements_that_it_has_added() {
    let mut door = Door::new();
    assert_eq!(door.said_to(1, "blpop a 0"), "");
    assert_eq!(
        door.said_to(2, "multi\nrpush a 1\nlpop a\nexec"),
        "+OK|+QUEUED|+QUEUED|*2|:1|$1|1|"
    );
    assert_eq!(door.heard(1), "");
    let reply = "+OK|+QUEUED|+QUEUED|+QUEUED|*3|:1|:1|+OK|";
    assert_eq!(door.said_to(2, "multi\nrpush a 1\ndel a\nset a x\nexec"), reply);
    assert_eq!(door.heard(1), "");
    assert_eq!(door.said_to(2, "del a\nrpush a 2"), ":1|:1|");
    assert_eq!(door.heard(1), "*2|$1|a|$1|2|");
}

#[test]
fn a_moved_element_serves_the_next_client() {
    let mut door = Door::new();
    assert_eq!(door.said_to(1, "blmove a b left right 0"), "");
    assert_eq!(door.said_to(2, "brpoplpush b c 0"), "");
    assert_eq!(door.said_to(3, "blpop c 0"), "");
    assert_eq!(door.said_to(4, "rpush a x"), ":1|");
    assert_eq!(door.heard(1), "$1|x|");
    assert_eq!(door.heard(2), "$1|x|");
    assert_eq!(door.heard(3), "*2|$1|c|$1|x|");
    assert_eq!(door.said_to(4, "exists a b c"), ":0|");
}

#[test]
fn an_element_that_cannot_be_moved_stays() {
    let mut door = Door::new();
    assert_eq!(door.said_to(1, "blmove a b left right 0"), "");
    assert_eq!(door.said_to(2, "blpop a 0"), "");
    assert_eq!(door.said_to(3, "set b x\nrpush a 1"), "+OK|:1|");
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    assert_eq!(door.heard(1), wrong);
    assert_eq!(door.heard(2), "*2|$1|a|$1|1|");
}

#[test]
fn a_key_of_another_type_serves_no_client() {
    let mut door = Door::new();
    assert_eq!(door.said_to(1, "blpop a 0"), "");
    assert_eq!(door.said_to(2, "bzpopmin a 0"), "");
    assert_eq!(door.said_to(3, "zadd a 1 m"), ":1|");
    assert_eq!((door.heard(1).as_str(), door.heard(2).as_str()), ("", "*3|$1|a|$1|m|$1|1|"));
    assert_eq!(door.said_to(3, "rpush a 1"), ":1|");
    assert_eq!(door.heard(1), "*2|$1|a|$1|1|");
}

#[test]
fn keys_that_appear_serve_clients() {
    for line in ["rename x a", "renamenx x a", "copy x a", "select 1\nmove y 0", "swapdb 0 2"] {
        let mut door = Door::new();
        assert_eq!(door.said_to(1, "blpop a 0"), "");
        door.said_to(2, "rpush x 1\nselect 1\nrpush a 1\nselect 2\nrpush a 1\nselect 0");
        door.said_to(2, &line.replace("move y 0", "move a 0"));
        assert_eq!(door.heard(1), "*2|$1|a|$1|1|", "{line}");
    }
    for (line, waits) in [
        ("zrangestore a x 0 -1", "bzpopmax a 0"),
        ("zunionstore a 1 x", "bzpopmin a 0"),
        ("zinterstore a 1 x", "bzpopmin b a 0"),
        ("zdiffstore a 1 x", "bzmpop 0 1 a max"),
        ("zincrby a 1 m", "bzpopmax a 0"),
    ] {
        let mut door = Door::new();
        door.said_to(2, "zadd x 1 m");
        assert_eq!(door.said_to(1, waits), "");
        door.said_to(2, line);
        assert_ne!(door.heard(1), "", "{line}");
        assert_eq!(door.said_to(2, "exists a"), ":0|", "{line}");
    }
}

#[test]
fn a_client_gives_up_at_its_deadline() {
    let mut door = Door::new();
    for (client, line) in [
        "blpop a 1",
        "blmove a b left left 1.0001",
        "blmpop 1.002 1 a left",
        "bzpopmin a 1.003",
        "blpop a 0",
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(door.said_to(1 + client as u64, line), "");
    }
    door.pass(999);
    assert_eq!(door.heard(1), "");
    for client in 1..5 {
        door.pass(1);
        assert_eq!(door.heard(client), "*-1|", "{client}");
        assert_eq!(door.heard(client + 1), "");
    }
    door.pass(1 << 40);
    assert_eq!(door.heard(5), "");
    assert_eq!(door.said_to(1, "rpush a 1"), ":1|");
    assert_eq!(door.heard(5), "*2|$1|a|$1|1|");
}

#[test]
fn a_client_that_leaves_takes_nothing() {
    let mut door = Door::new();
    assert_eq!(door.said_to(1, "blpop a 0"), "");
    door.close(1);
    assert_eq!(door.said_to(2, "rpush a 1\nllen a"), ":1|:1|");
}

#[test]
fn commands_behind_one_that_waits_are_executed_later() {
    let mut door = Door::new();
    assert_eq!(door.said_to(1, "blpop a 0\nping"), "");
    assert_eq!(door.said_to(2, "rpush a 1"), ":1|");
    assert_eq!(door.heard(1), "*2|$1|a|$1|1|+PONG|");
}

#[test]
fn a_client_that_cannot_be_served_now_is_served_later() {
    for refused in 0..12 {
        let mut door = Door::new();
        assert_eq!(door.said_to(1, "blmove a b left right 0"), "");
        assert_eq!(door.said_to(2, "bzpopmin z 0"), "");
        door.store.refuses_after = Some(refused);
        assert_eq!(
            door.said_to(3, "multi\nrpush a x\nzadd z 1 m\nexec"),
            "+OK|+QUEUED|+QUEUED|*2|:1|:1|"
        );
        door.pass(0);
        assert_eq!(door.heard(1), "$1|x|", "{refused}");
        assert_eq!(door.heard(2), "*3|$1|z|$1|m|$1|1|", "{refused}");
        door.store.refuses_after = None;
        assert_eq!(door.said_to(3, "lrange b 0 -1\nexists a z"), "*1|$1|x|:0|", "{refused}");
    }
}

#[test]
fn a_command_that_waits_is_counted_once_when_it_ends() {
    let mut door = Door::new();
    let line = |door: &mut Door, section: &str, name: &str| {
        let info = door.said_to(9, &format!("info {section}"));
        info.split('|').find(|line| line.starts_with(name)).map(str::to_owned)
    };
    assert_eq!(door.said_to(1, "xgroup create s g $ mkstream"), "+OK|");
    assert_eq!(door.said_to(1, "blpop a b 0"), "");
    assert_eq!(door.said_to(2, "xreadgroup group g c block 0 streams s >"), "");
    assert_eq!(line(&mut door, "commandstats", "cmdstat_blpop"), None);
    for (name, count) in
        [("blocked_clients", 2), ("total_blocking_keys", 3), ("total_blocking_keys_on_nokey", 1)]
    {
        let wanted = format!("{name}:{count}");
        assert_eq!(line(&mut door, "clients", &format!("{name}:")), Some(wanted));
    }
    assert_eq!(door.said_to(3, "rpush a x"), ":1|");
    assert_eq!(door.heard(1), "*2|$1|a|$1|x|");
    let counts = line(&mut door, "commandstats", "cmdstat_blpop").unwrap_or_default();
    assert!(counts.contains("calls=1,") && counts.contains("failed_calls=0"), "{counts}");
    assert_eq!(door.said_to(1, "blpop a 0"), "");
    assert_eq!(door.said_to(3, "client unblock 1 error"), ":1|");
    let counts = line(&mut door, "commandstats", "cmdstat_blpop").unwrap_or_default();
    assert!(counts.contains("calls=2,") && counts.contains("failed_calls=1"), "{counts}");
    let counts = line(&mut door, "errorstats", "errorstat_UNBLOCKED");
    assert_eq!(counts.as_deref(), Some("errorstat_UNBLOCKED:count=1"));
}
