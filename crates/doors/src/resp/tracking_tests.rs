//! `CLIENT TRACKING`: the messages are those of Redis 8.2.

use super::testing::Door;

const A: &str = ">2|$10|invalidate|*1|$1|a|";
const ALL: &str = ">2|$10|invalidate|_|";

/// Returns a door whose first client has version 3 of the protocol, and is told about changes.
fn door(options: &str) -> Door {
    let mut door = Door::new();
    door.said("hello 3");
    assert_eq!(door.said(&format!("client tracking on {options}")), "+OK|");
    door
}

#[test]
fn a_client_is_told_once_about_a_key_that_it_has_read() {
    let mut door = door("");
    door.said("get a");
    door.said_to(2, "set b 1");
    assert_eq!(door.heard(1), "");
    door.said_to(2, "set a 1\nset a 2");
    assert_eq!(door.heard(1), A);
    // The own change is told behind the reply.
    assert_eq!(door.said("get a\nset a 3"), format!("$1|2|+OK|{A}"));
    assert_eq!(door.said("mget a b\nllen c"), "*2|$1|3|$1|1|:0|");
    door.said_to(2, "rename a b");
    assert_eq!(door.heard(1), format!(">2|$10|invalidate|*1|$1|b|{A}"));
    // Commands that write do not track, and neither does WATCH.
    door.said("incr n\nwatch w\nsort s\ngetex e\nscan 0");
    door.said_to(2, "incr n\nset w 1\nrpush s 1\nset e 1");
    assert_eq!(door.heard(1), "");
    door.said("get a\nclient tracking off");
    door.said_to(2, "set a 4");
    assert_eq!(door.heard(1), "");
}

#[test]
fn a_change_in_any_database_counts() {
    let mut door = door("");
    door.said("get a");
    door.said_to(2, "select 3\nset a 1");
    assert_eq!(door.heard(1), A);
    door.said("get a");
    door.said_to(2, "swapdb 0 3");
    assert_eq!(door.heard(1), "", "as in Redis, SWAPDB tells nothing");
}

#[test]
fn a_change_of_a_part_counts_and_no_change_does_not() {
    let mut door = door("");
    let members: Vec<String> = (0..5000).map(|number| format!("member-{number}")).collect();
    door.said_to(2, &format!("sadd a {}", members.join(" ")));
    for change in ["sadd a new", "srem a member-7", "expire a 100", "persist a"] {
        door.said("scard a");
        door.said_to(2, change);
        assert_eq!(door.heard(1), A, "{change}");
    }
    door.said("scard a");
    door.said_to(2, "sadd a new\ndel b\nexpire b 10\nget a");
    assert_eq!(door.heard(1), "");
}

#[test]
fn a_transaction_tells_its_changes_behind_its_reply() {
    let mut door = door("");
    door.said("get a");
    let said = door.said("multi\nset a 1\nget b\nget c\nset c 1\nexec");
    let c = ">2|$10|invalidate|*1|$1|c|";
    assert!(said.ends_with(&format!("*4|+OK|_|_|+OK|{A}{c}")), "{said}");
    // The read of b counts, and a read behind the change of the key.
    door.said("multi\nset a 2\nget a\nexec");
    door.said_to(2, "set b 1\nset a 3");
    assert_eq!(door.heard(1), format!(">2|$10|invalidate|*1|$1|b|{A}"));
}

#[test]
fn a_command_that_is_executed_again_tells_its_changes_once() {
    let mut door = door("");
    for end in 0..4 {
        door.said("mget a b");
        door.said_to(2, "multi\nset a 1\nset b 2");
        door.store.refuses_after = Some(end);
        door.said_to(2, "exec");
        assert_eq!(door.heard(1), format!("{A}>2|$10|invalidate|*1|$1|b|"), "{end}");
    }
}

#[test]
fn a_failed_command_tells_nothing() {
    let mut door = door("");
    door.said("get a\nget b");
    door.said_to(2, "set b x");
    door.heard(1);
    door.said("get b");
    door.said_to(2, "incr b\nlpush b 1\nmulti\nincr b\nexec");
    assert_eq!(door.heard(1), "");
}

#[test]
fn the_reads_of_a_script_count() {
    let mut door = door("");
    door.said("eval \"redis.call('set', 'b', '1') redis.call('get', 'a')\" 3 a b c");
    door.said_to(2, "mset a 1 b 1 c 1");
    assert_eq!(door.heard(1), A);
    door.said("eval_ro \"redis.call('ping')\" 1 a");
    door.said_to(2, "set a 1");
    assert_eq!(door.heard(1), "");
}

#[test]
fn the_own_changes_are_not_told_with_noloop() {
    let mut door = door("noloop");
    assert_eq!(door.said("get a\nset a 1"), "_|+OK|");
    door.said_to(2, "set a 1");
    assert_eq!(door.heard(1), "", "the key has left the table");
    door.said("get a");
    door.said_to(2, "set a 1");
    assert_eq!(door.heard(1), A);
}

#[test]
fn prefixes_get_all_changes_of_a_command_together() {
    let mut door = door("bcast prefix p prefix q noloop");
    door.said_to(2, "mset p2 1 p1 2 z 3 q 1");
    let heard = ">2|$10|invalidate|*2|$2|p1|$2|p2|>2|$10|invalidate|*1|$1|q|";
    assert_eq!(door.heard(1), heard);
    assert_eq!(door.said("set p1 1\nget p1"), "+OK|$1|1|");
    door.said_to(2, "set p1 1");
    assert_eq!(door.heard(1), ">2|$10|invalidate|*1|$2|p1|");
    door.expect(&[
        (
            "client tracking on bcast prefix pp",
            "-ERR Prefix 'pp' overlaps with an existing prefix 'p'. Prefixes for a single client \
             must not overlap.|",
        ),
        (
            "client tracking on bcast prefix a prefix a",
            "-ERR Prefix 'a' overlaps with another provided prefix 'a'. Prefixes for a single \
             client must not overlap.|",
        ),
        ("client tracking on bcast prefix r", "+OK|"),
        (
            "client trackinginfo",
            "%3|$5|flags|~2|$2|on|$5|bcast|$8|redirect|:0|$8|prefixes|*3|$1|p|$1|q|$1|r|",
        ),
    ]);
    assert!(door.said("info stats").contains("tracking_total_prefixes:3"));
    door.close(1);
    assert!(door.said_to(2, "info stats").contains("tracking_total_prefixes:0"));
}

#[test]
fn expired_and_evicted_keys_are_told() {
    let mut door = door("");
    door.said_to(2, "set a 1 px 100\nset b 1");
    door.said("get a\nget b");
    door.pass(100);
    assert_eq!(door.heard(1), A);
    // A key that expired before the server looked is told behind the reply.
    door.said("set a 1 px 100\nget a");
    door.store.now_ms += 100;
    assert_eq!(door.said("get a"), format!("_|{A}"));
    let mut output = crate::resp::Output::default();
    assert!(door.server.tells_evicted());
    door.server.tell_evicted(vec![(0, b"b".to_vec())], &mut output);
    let told: Vec<String> =
        output.messages.iter().map(|(_, bytes)| super::testing::text_of(bytes)).collect();
    assert_eq!(told, [">2|$10|invalidate|*1|$1|b|"]);
    door.said("client tracking off");
    assert!(!door.server.tells_evicted());
}

#[test]
fn expired_keys_are_told_beside_the_events_that_clients_want() {
    let mut door = door("bcast");
    door.said_to(2, "config set notify-keyspace-events Kg");
    door.said_to(3, "psubscribe *");
    door.heard(3);
    door.said_to(2, "set a 1 px 100");
    door.heard(1);
    door.heard(3);
    door.pass(100);
    assert_eq!(door.heard(1), A);
    assert_eq!(door.heard(3), "", "the setting does not ask for the event");
}

#[test]
fn a_flush_is_told_before_the_own_reply() {
    let mut door = door("");
    door.said("get a");
    door.said_to(2, "flushdb");
    assert_eq!(door.heard(1), ALL);
    assert_eq!(door.said("get a\nflushall"), format!("_|{ALL}+OK|"));
    assert!(door.said("info stats").contains("tracking_total_keys:0"));
    door.said("multi\nflushdb\nset k 1\nget k");
    assert_eq!(door.said("exec"), format!("*3|+OK|+OK|$1|1|{ALL}"));
}

#[test]
fn messages_go_to_another_client() {
    let mut door = Door::new();
    door.said_to(2, "subscribe __redis__:invalidate");
    door.expect(&[
        (
            "client tracking on redirect 9",
            "-ERR The client ID you want redirect to does not exist|",
        ),
        ("client tracking on redirect x", "-ERR value is not an integer or out of range|"),
        (
            "client tracking on redirect 1 redirect 1",
            "-ERR A client can only redirect to a single other client|",
        ),
        ("client tracking on redirect 1", "+OK|"),
        ("client getredir", ":1|"),
        // A client may name itself.
        ("client tracking on redirect 2", "+OK|"),
        ("client tracking on redirect 1", "+OK|"),
    ]);
    door.heard(2);
    door.said("get a");
    door.said_to(3, "set a 1");
    assert_eq!(door.heard(2), "*3|$7|message|$20|__redis__:invalidate|*1|$1|a|");
    door.said_to(3, "flushdb");
    assert_eq!(door.heard(2), "*3|$7|message|$20|__redis__:invalidate|$-1|");
    door.said_to(2, "unsubscribe");
    door.heard(2);
    door.said("get a");
    door.said_to(3, "set a 1");
    assert_eq!(door.heard(2), "", "it listens to nothing");
    door.said_to(2, "hello 3");
    door.heard(2);
    door.said("get a");
    door.said_to(3, "set a 1");
    assert_eq!(door.heard(2), A);
    door.said("hello 3\nget a");
    door.close(2);
    door.said_to(3, "set a 1");
    assert_eq!(door.heard(1), ">2|$21|tracking-redir-broken|:1|");
    let flags = "~2|$2|on|$15|broken_redirect|";
    assert!(door.said("client trackinginfo").contains(flags));
    assert!(door.said("client info").contains(" flags=tR "));
}

#[test]
fn clients_choose_what_they_cache() {
    let mut door = door("optin");
    let caching = "-ERR CLIENT CACHING";
    door.expect(&[("get a", "_|"), ("client caching yes", "+OK|")]);
    assert!(door.said("client trackinginfo").contains("~3|$2|on|$5|optin|$11|caching-yes|"));
    assert!(door.said("client caching no").starts_with(&format!("{caching} NO is only valid")));
    door.said_to(2, "set a 1");
    assert_eq!(door.heard(1), "");
    door.said("get a\nget b");
    door.said_to(2, "set b 1\nset a 1");
    assert_eq!(door.heard(1), A, "only the first command behind it counts");
    door.said("client caching yes\nmulti\nget a\nget b\nexec\nget c");
    door.said_to(2, "set a 1\nset b 1\nset c 1");
    assert_eq!(door.heard(1), format!("{A}>2|$10|invalidate|*1|$1|b|"));
    assert!(door.said("client tracking on optout").starts_with("-ERR You can't switch OPTIN/"));
    door.said("client tracking off\nclient tracking on optout");
    door.said("client caching no\nget a\nget b");
    door.said_to(2, "set a 1\nset b 1");
    assert_eq!(door.heard(1), ">2|$10|invalidate|*1|$1|b|");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let again = "before disabling tracking for this client, and then re-enabling it with a \
                 different mode.|";
    let bcast = format!("-ERR You can't switch BCAST mode on/off {again}");
    Door::new().expect(&[
        ("client tracking foo", "-ERR syntax error|"),
        ("client tracking on foo", "-ERR syntax error|"),
        ("client tracking on redirect", "-ERR syntax error|"),
        ("client tracking on prefix a", "-ERR PREFIX option requires BCAST mode to be enabled|"),
        ("client tracking on bcast optin", "-ERR OPTIN and OPTOUT are not compatible with BCAST|"),
        (
            "client tracking on optin optout",
            "-ERR You can't specify both OPTIN mode and OPTOUT mode|",
        ),
        ("client tracking off bcast optin", "+OK|"),
        ("client getredir", ":-1|"),
        ("client tracking on noloop noloop", "+OK|"),
        ("client getredir", ":0|"),
        ("client tracking on bcast", &bcast),
        (
            "client caching yes",
            "-ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.|",
        ),
        ("client caching foo", "-ERR syntax error|"),
        ("reset", "+RESET|"),
        ("client trackinginfo", "*6|$5|flags|*1|$3|off|$8|redirect|:-1|$8|prefixes|*0|"),
    ]);
}

#[test]
fn a_table_with_too_many_keys_drops_some_with_messages() {
    let mut door = door("");
    for number in 0..2500 {
        door.said(&format!("get key-{number}"));
    }
    assert!(door.said("info stats").contains("tracking_total_keys:2500"));
    door.said_to(2, "config set tracking-table-max-keys 100");
    while door.server.deadline() == Some(0) {
        door.pass(1);
    }
    assert!(door.said("info stats").contains("tracking_total_keys:100"));
    let mut door = self::door("");
    door.said_to(2, "config set tracking-table-max-keys 2");
    assert_eq!(door.said("mget a b c"), format!("*3|_|_|_|{A}"));
    assert_eq!(door.said("get d"), "_|>2|$10|invalidate|*1|$1|b|", "the keys are dropped in turn");
}

#[test]
fn a_transaction_that_fails_leaves_tracking_as_it_was() {
    let mut door = Door::new();
    door.said("hello 3\nmulti\nclient tracking on\nset a 1");
    door.store.bytes_max = Some(0);
    assert!(door.said("exec").starts_with("-EXECABORT"));
    door.store.bytes_max = None;
    assert!(door.said("client trackinginfo").contains("$3|off|"));
    assert!(door.said("info clients").contains("tracking_clients:0"));
    door.said("client tracking on bcast prefix a\nmulti\nclient tracking off\nset a 1");
    door.store.bytes_max = Some(0);
    assert!(door.said("exec").starts_with("-EXECABORT"));
    door.store.bytes_max = None;
    assert!(door.said("info stats").contains("tracking_total_prefixes:1"));
    assert_eq!(door.said("set a 1"), format!("+OK|{A}"));
}

#[test]
fn a_blocked_client_is_told_behind_its_reply() {
    let mut door = Door::new();
    door.said_to(2, "rpush b x");
    door.said("hello 3\nclient tracking on\nlrange b 0 -1");
    assert_eq!(door.said("blmove a b left left 0"), "");
    door.said_to(2, "rpush a foo");
    assert_eq!(door.heard(1), "$3|foo|>2|$10|invalidate|*1|$1|b|");
}

/// Lets fields expire, and returns the messages that clients get when the memory is freed.
fn told_by_sweep(door: &mut Door) -> Vec<String> {
    door.store.now_ms += 200;
    let mut output = crate::resp::Output::default();
    for _ in 0..10 {
        door.server.sweep(&mut door.store, 1000, &mut output);
    }
    output.messages.iter().map(|(_, bytes)| super::testing::text_of(bytes)).collect()
}

#[test]
fn fields_that_expire_are_told_when_they_are_freed() {
    let mut door = door("");
    door.said_to(2, "hset a f 1 g 2\nhpexpire a 100 fields 1 f");
    door.said("hgetall a");
    assert_eq!(told_by_sweep(&mut door), [A]);
}

#[test]
fn a_hash_whose_fields_have_all_expired_is_told_when_it_is_freed() {
    let mut door = door("");
    door.said_to(2, "hset a f 1 g 2\nhpexpire a 100 fields 2 f g");
    door.said("hgetall a");
    assert_eq!(told_by_sweep(&mut door), [A]);
}

#[test]
fn the_only_client_keeps_its_keys_when_it_registers_again() {
    let mut door = door("");
    door.said("get a\nclient tracking on noloop");
    door.said_to(2, "set a 1");
    assert_eq!(door.heard(1), A);
    // The same in a transaction that is executed again.
    for end in 0..3 {
        door.said("get a\nmulti\nclient tracking on\nset b 1\nset c 1");
        door.store.refuses_after = Some(end);
        door.said("exec");
        door.said_to(2, "set a 1");
        assert_eq!(door.heard(1), A, "{end}");
    }
    // The same if a transaction fails that ends it.
    door.said("get a\nmulti\nclient tracking off\nset b 1");
    door.store.bytes_max = Some(0);
    assert!(door.said("exec").starts_with("-EXECABORT"));
    door.store.bytes_max = None;
    door.said_to(2, "set a 1");
    assert_eq!(door.heard(1), A);
}

#[test]
fn the_table_is_empty_when_no_client_is_left() {
    for end in ["client tracking off", "reset"] {
        let mut door = door("");
        door.said(&format!("get a\n{end}"));
        assert!(door.said("info stats").contains("tracking_total_keys:0"), "{end}");
    }
    let mut door = door("");
    door.said("get a");
    door.close(1);
    assert!(door.said_to(2, "info stats").contains("tracking_total_keys:0"));
}

#[test]
fn a_script_with_too_many_keys_counts_as_a_change_of_all_keys() {
    let mut door = door("");
    door.said("get a");
    let script = "local long = string.rep('k', 50000) \
                  for i = 1, 200 do redis.call('get', long .. i) end return 1";
    assert_eq!(door.said(&format!("eval \"{script}\" 0")), format!(":1|{ALL}"));
    assert!(door.said("info stats").contains("tracking_total_keys:0"));
    door.said("get a");
    door.said_to(2, "set a 1");
    assert_eq!(door.heard(1), A);
}

#[test]
fn a_client_has_a_most_of_prefixes() {
    let refused = "-ERR a client may have at most 1000 prefixes, with 65536 bytes in all|";
    let mut door = door("bcast prefix p prefix q");
    let more: Vec<String> = (1000..1999).map(|number| format!("prefix {number}")).collect();
    assert_eq!(door.said(&format!("client tracking on bcast {}", more.join(" "))), refused);
    let long = |letter: &str| format!("client tracking on bcast prefix {}", letter.repeat(40_000));
    assert_eq!(door.said(&long("l")), "+OK|");
    assert_eq!(door.said(&long("m")), refused);
    door.said("client tracking off\nclient tracking on bcast prefix p prefix q");
    let fits = format!("client tracking on bcast {}", more[1..].join(" "));
    assert_eq!(door.said(&fits), "+OK|");
    assert!(door.said("info stats").contains("tracking_total_prefixes:1000"));
}

#[test]
fn a_key_is_told_to_the_clients_of_all_its_prefixes() {
    let mut door = Door::new();
    let prefixes = ["", "a", "ab", "abcd", "abd", "abe", "aa", "b"];
    for (client, prefix) in (1..).zip(prefixes) {
        let on = match prefix {
            "" => "client tracking on bcast".to_owned(),
            prefix => format!("client tracking on bcast prefix {prefix}"),
        };
        assert!(door.said_to(client, &format!("hello 3\n{on}")).ends_with("+OK|"));
    }
    for key in ["a", "ab", "abc", "abcde", "abdx", "abz", "ac", "b", "c"] {
        door.said_to(20, &format!("set {key} 1"));
        for (client, prefix) in (1..).zip(prefixes) {
            let heard = door.heard(client);
            assert_eq!(!heard.is_empty(), key.starts_with(prefix), "{key} {prefix}: {heard}");
        }
    }
}

#[test]
fn a_prefix_that_overlaps_a_neighbour_is_refused() {
    let mut door = door("bcast prefix b prefix d1 prefix d2");
    for (prefix, other) in [("ba", "b"), ("d", "d1"), ("d2x", "d2"), ("b", "b")] {
        let said = door.said(&format!("client tracking on bcast prefix x prefix {prefix}"));
        let text = format!("-ERR Prefix '{prefix}' overlaps with an existing prefix '{other}'");
        assert!(said.starts_with(&text), "{said}");
    }
    let said = door.said("client tracking on bcast prefix xy prefix a prefix x");
    assert!(said.starts_with("-ERR Prefix 'xy' overlaps with another provided prefix 'x'"));
    assert_eq!(door.said("client tracking on bcast prefix a prefix c prefix e"), "+OK|");
}
