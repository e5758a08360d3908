//! Clients that wait for entries of streams.

use super::testing::Door;

const ENTRY: &str = "*1|*2|$1|s|*1|*2|$3|1-1|*2|$1|a|$1|b|";
const NO_GROUP: &str =
    "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option|";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";

#[test]
fn all_readers_get_a_new_entry() {
    let mut door = Door::new();
    assert_eq!(door.said_to(1, "xread block 0 streams s $"), "");
    assert_eq!(door.said_to(2, "xread block 0 streams t s 0 0"), "");
    door.said_to(3, "hello 3\nxread block 0 streams s 1-1");
    assert_eq!(door.said_to(4, "xadd s 1-1 a b"), "$3|1-1|");
    assert_eq!((door.heard(1).as_str(), door.heard(2).as_str()), (ENTRY, ENTRY));
    assert_eq!(door.heard(3), "", "it waits for ids behind 1-1");
    door.said_to(4, "xadd s 2-1 a b");
    assert_eq!(door.heard(3), "%1|$1|s|*1|*2|$3|2-1|*2|$1|a|$1|b|");
}

#[test]
fn a_dollar_sign_stands_for_the_last_id_at_the_begin_of_the_wait() {
    let mut door = Door::new();
    door.said("xadd s 1-1 a b");
    assert_eq!(door.said_to(2, "xread block 0 count 5 streams s $"), "");
    door.said("multi\nxadd s 2-1 c d\nxadd s 3-1 e f\nexec");
    assert_eq!(door.heard(2), "*1|*2|$1|s|*2|*2|$3|2-1|*2|$1|c|$1|d|*2|$3|3-1|*2|$1|e|$1|f|");
}

#[test]
fn consumers_are_served_in_the_order_in_which_they_began_to_wait() {
    let mut door = Door::new();
    door.said("xgroup create s g 0 mkstream");
    for (client, name) in [(1, "c"), (2, "d"), (3, "e")] {
        let line = format!("xreadgroup group g {name} count 1 block 0 streams s >");
        assert_eq!(door.said_to(client, &line), "");
    }
    assert_eq!(door.said_to(4, "xadd s 1-1 a b"), "$3|1-1|");
    assert_eq!((door.heard(1).as_str(), door.heard(2).as_str()), (ENTRY, ""));
    door.said_to(4, "multi\nxadd s 2-1 a b\nxadd s 3-1 a b\nexec");
    assert_eq!(door.heard(2), ENTRY.replace("1-1", "2-1"));
    assert_eq!(door.heard(3), ENTRY.replace("1-1", "3-1"));
    assert_eq!(
        door.said_to(4, "xpending s g"),
        "*4|:3|$3|1-1|$3|3-1|*3|*2|$1|c|$1|1|*2|$1|d|$1|1|*2|$1|e|$1|1|"
    );
}

#[test]
fn a_consumer_exists_while_it_waits() {
    let mut door = Door::new();
    door.said("xgroup create s g 0 mkstream");
    assert_eq!(door.said_to(2, "xreadgroup group g c block 0 streams s >"), "");
    door.pass(7);
    let consumer = "*1|*8|$4|name|$1|c|$7|pending|:0|$4|idle|:7|$8|inactive|:-1|";
    assert_eq!(door.said("xinfo consumers s g"), consumer);
}

#[test]
fn a_consumer_that_waits_learns_that_its_group_is_gone() {
    for (line, error) in [
        ("del s", NO_GROUP),
        ("unlink s", NO_GROUP),
        ("xgroup destroy s g", NO_GROUP),
        ("set s 1", WRONG_TYPE),
        ("rename s t", NO_GROUP),
        ("rename x s", WRONG_TYPE),
        ("copy y s replace", NO_GROUP),
        ("flushdb", NO_GROUP),
        ("flushall", NO_GROUP),
        ("swapdb 0 1", NO_GROUP),
        ("move s 1", NO_GROUP),
        ("pexpire s -1", NO_GROUP),
        ("multi\ndel s\nxadd s 1-1 a b\nexec", NO_GROUP),
        ("multi\ndel s\nxgroup create s g 0 mkstream\nexec", ""),
        ("xadd t 1-1 a b", ""),
        ("xgroup delconsumer s g c", ""),
        ("xack s g 1-1", ""),
    ] {
        let mut door = Door::new();
        door.said("xgroup create s g 0 mkstream\nset x 1\nxadd y 1-1 a b");
        assert_eq!(door.said_to(2, "xreadgroup group g c block 0 streams s >"), "");
        assert_eq!(door.said_to(3, "xread block 0 streams s 9"), "");
        door.said(line);
        assert_eq!(door.heard(2), error, "{line}");
        assert_eq!(door.heard(3), "", "{line}");
    }
}

#[test]
fn a_consumer_learns_that_its_stream_has_expired() {
    for lines in ["pexpire s 5", "pexpire s 9000\npexpire s 5"] {
        let mut door = Door::new();
        door.said("xgroup create s g 0 mkstream");
        assert_eq!(door.said_to(2, "xreadgroup group g c block 0 streams s >"), "");
        door.said(lines);
        door.pass(4);
        assert_eq!(door.heard(2), "");
        door.pass(1);
        assert_eq!(door.heard(2), NO_GROUP, "{lines}");
    }
    let mut door = Door::new();
    door.said("xgroup create s g 0 mkstream\npexpire s 5");
    assert_eq!(door.said_to(2, "xreadgroup group g c block 0 streams s >"), "");
    door.said("persist s");
    door.pass(5);
    assert_eq!(door.heard(2), "");
}

#[test]
fn a_reader_gives_up_at_its_deadline() {
    let mut door = Door::new();
    door.said("xgroup create s g 0 mkstream");
    assert_eq!(door.said_to(1, "xread block 10 streams s $"), "");
    assert_eq!(door.said_to(2, "xreadgroup group g c block 11 streams s >"), "");
    door.pass(9);
    assert_eq!(door.heard(1), "");
    door.pass(1);
    assert_eq!((door.heard(1).as_str(), door.heard(2).as_str()), ("*-1|", ""));
    door.pass(1);
    assert_eq!(door.heard(2), "*-1|");
}

#[test]
fn keys_that_appear_serve_readers() {
    for line in ["rename x s", "renamenx x s", "copy x s", "select 2\nmove s 0", "swapdb 0 2"] {
        let mut door = Door::new();
        assert_eq!(door.said_to(1, "xread block 0 streams s 0"), "");
        door.said_to(2, "xadd x 1-1 a b\nselect 2\nxadd s 1-1 a b\nselect 0");
        door.said_to(2, line);
        assert_eq!(door.heard(1), ENTRY, "{line}");
    }
}

#[test]
fn a_consumer_that_cannot_be_served_now_is_served_later() {
    for refused in 0..30 {
        let mut door = Door::new();
        door.said("xgroup create s g 0 mkstream");
        assert_eq!(door.said_to(1, "xreadgroup group g c block 0 streams s >"), "");
        door.store.refuses_after = Some(refused);
        assert_eq!(door.said_to(3, "xadd s 1-1 a b"), "$3|1-1|");
        door.pass(0);
        assert_eq!(door.heard(1), ENTRY, "{refused}");
        door.store.refuses_after = None;
        assert_eq!(door.said_to(3, "xpending s g - + 9"), "*1|*4|$3|1-1|$1|c|:0|:1|");
    }
}

#[test]
fn a_client_unblocked_by_another_one_gets_nothing() {
    let mut door = Door::new();
    assert_eq!(door.said_to(1, "xread block 0 streams s $"), "");
    assert_eq!(door.said_to(2, "client unblock 1\nxadd s 1-1 a b"), ":1|$3|1-1|");
    assert_eq!(door.heard(1), "*-1|");
}
