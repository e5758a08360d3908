//! `MULTI` and `EXEC`, alone and beside other clients.

use super::testing::Door;

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
