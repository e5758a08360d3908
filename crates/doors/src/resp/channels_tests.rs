//! Channels: the messages and replies are the ones of Redis 8.2.

use super::testing::Door;

#[test]
fn messages_reach_the_clients_that_listen() {
    let mut door = Door::new();
    assert_eq!(
        door.said("subscribe a b a\npsubscribe a* b?"),
        "*3|$9|subscribe|$1|a|:1|*3|$9|subscribe|$1|b|:2|*3|$9|subscribe|$1|a|:2|\
         *3|$10|psubscribe|$2|a*|:3|*3|$10|psubscribe|$2|b?|:4|"
    );
    assert_eq!(door.said_to(2, "publish a hi\npublish b hi\npublish bb hi"), ":2|:1|:1|");
    assert_eq!(
        door.heard(1),
        "*3|$7|message|$1|a|$2|hi|*4|$8|pmessage|$2|a*|$1|a|$2|hi|*3|$7|message|$1|b|$2|hi|\
         *4|$8|pmessage|$2|b?|$2|bb|$2|hi|"
    );
    assert_eq!(door.said_to(2, "pubsub channels\npubsub channels b*"), "*2|$1|a|$1|b|*1|$1|b|");
    assert_eq!(door.said_to(2, "pubsub numsub a b c"), "*6|$1|a|:1|$1|b|:1|$1|c|:0|");
    assert_eq!(door.said_to(2, "pubsub numpat\npubsub numsub\npubsub foo"), {
        ":2|*0|-ERR unknown subcommand 'foo'. Try PUBSUB HELP.|"
    });
    door.close(1);
    assert_eq!(door.said_to(2, "publish a hi\npubsub numpat\npubsub channels"), ":0|:0|*0|");
}

#[test]
fn a_subscriber_sends_only_a_few_commands_with_version_2() {
    let mut door = Door::new();
    let refused = "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT \
                   / RESET are allowed in this context|";
    door.expect(&[
        ("ssubscribe s", "*3|$10|ssubscribe|$1|s|:1|"),
        ("get a", refused),
        ("ping", "*2|$4|pong|$0||"),
        ("ping x", "*2|$4|pong|$1|x|"),
        ("unsubscribe", "*3|$11|unsubscribe|$-1|:0|"),
        ("unsubscribe a", "*3|$11|unsubscribe|$1|a|:0|"),
    ]);
    assert_eq!(door.said_to(2, "spublish s x\npublish s x\npubsub shardchannels"), {
        ":1|:0|*1|$1|s|"
    });
    assert_eq!(door.said_to(2, "pubsub shardnumsub s t"), "*4|$1|s|:1|$1|t|:0|");
    door.expect(&[
        ("sunsubscribe", "*3|$8|smessage|$1|s|$1|x|*3|$12|sunsubscribe|$1|s|:0|"),
        ("get a", "$-1|"),
        ("subscribe z", "*3|$9|subscribe|$1|z|:1|"),
        ("reset", "+RESET|"),
        ("get a", "$-1|"),
        ("punsubscribe a*", "*3|$12|punsubscribe|$2|a*|:0|"),
    ]);
}

#[test]
fn messages_are_pushed_behind_replies_with_version_3() {
    let mut door = Door::new();
    assert!(door.said("hello 3").starts_with("%7|$6|server|$5|redis|$7|version|$5|7.4.4|"));
    door.expect(&[
        ("subscribe a", ">3|$9|subscribe|$1|a|:1|"),
        ("publish a hi", ":1|>3|$7|message|$1|a|$2|hi|"),
        ("get a", "_|"),
        ("ping x", "$1|x|"),
        ("multi", "+OK|"),
        ("publish a 1", "+QUEUED|"),
        ("get b", "+QUEUED|"),
        ("publish a 2", "+QUEUED|"),
        ("exec", "*3|:1|_|:1|>3|$7|message|$1|a|$1|1|>3|$7|message|$1|a|$1|2|"),
    ]);
}

#[test]
fn a_transaction_that_is_refused_leaves_no_subscription() {
    for refused in 0..3 {
        let mut door = Door::new();
        assert_eq!(door.said("subscribe q"), "*3|$9|subscribe|$1|q|:1|");
        assert_eq!(door.said("reset"), "+RESET|");
        let lines = "multi\nsubscribe q\npublish q 1\nset a 1\nget a\nunsubscribe q\nmonitor";
        assert_eq!(door.said(lines), format!("+OK|{}", "+QUEUED|".repeat(6)));
        door.store.refuses_after = Some(refused);
        assert_eq!(
            door.said("exec\nset a 2"),
            "*6|*3|$9|subscribe|$1|q|:1|:1|+OK|$1|1|*3|$11|unsubscribe|$1|q|:0|+OK|\
             *3|$7|message|$1|q|$1|1|+1800000000.000000 [0 127.0.0.1:50001] \"exec\"|+OK|+1800000000.000000 [0 127.0.0.1:50001] \"set\" \"a\" \"2\"|",
            "{refused}"
        );
    }
}

#[test]
fn a_monitor_sees_the_commands_of_all_clients() {
    let mut door = Door::new();
    assert_eq!(door.said("monitor"), "+OK|");
    door.said_to(2, "set a \"a\\\"b\\\\\\x01\\n\"\nconfig get port\nmulti\nselect 3\nexec");
    assert_eq!(
        door.heard(1),
        "+1800000000.000000 [0 127.0.0.1:50002] \"set\" \"a\" \"a\\\"b\\\\\\x01\\n\"|\
         +1800000000.000000 [0 127.0.0.1:50002] \"multi\"|\
         +1800000000.000000 [3 127.0.0.1:50002] \"select\" \"3\"|\
         +1800000000.000000 [3 127.0.0.1:50002] \"exec\"|"
    );
    door.said_to(3, "blpop q 0");
    assert_eq!(door.heard(1), "+1800000000.000000 [0 127.0.0.1:50003] \"blpop\" \"q\" \"0\"|");
    door.said_to(2, "select 0\nrpush q x");
    assert!(!door.heard(1).contains("blpop"), "a command that waits is shown once");
}
