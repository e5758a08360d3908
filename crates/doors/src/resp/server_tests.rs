//! The server: bytes in pieces, refusals of the store, clients that wait, passwords.

use super::commands::{Command, Group, Keys, WRITE};
use super::context::Context;
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Done, Stop, Wait};
use super::store::Kind;
use super::testing::{Door, text_of};
use super::{Facts, Output, ServerOptions, Step};
use proptest::prelude::*;

/// Two commands for tests: a list of bytes, and a client that waits for one of them.
pub(super) const COMMANDS: &[Command] = &[
    Command::new("testpush", 3, WRITE, push).keys(&[Keys::one("RW insert", 1)]).about(
        Group::List,
        "1.0.0",
        "Adds bytes.",
    ),
    Command::new("testpop", 3, WRITE, pop).keys(&[Keys::one("RW access delete", 1)]).about(
        Group::List,
        "1.0.0",
        "Takes a byte, or waits.",
    ),
];

fn push(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let found = context.objects.find_kind(key, Kind::List)?;
    let mut value = found.map_or(Vec::new(), |found| found.value.to_vec());
    value.extend_from_slice(&arguments[2]);
    context.objects.put(key, value, Kind::List, None)?;
    context.signal(key);
    context.ok();
    Ok(())
}

fn pop(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let time = integer_of(&arguments[2]).ok_or(stop::NOT_AN_INTEGER)?.unsigned_abs();
    let deadline = (time > 0).then(|| context.objects.now() + time);
    let Some(found) = context.objects.find_kind(key, Kind::List)? else {
        let keys = vec![key.to_vec()];
        return Err(Stop::Wait(Box::new(Wait {
            is_of_group: false,
            replaced: Vec::new(),
            keys,
            kind: Kind::List,
            deadline,
            is_array: true,
        })));
    };
    let (first, rest) = found.value.split_at(1);
    let (first, rest) = (first.to_vec(), rest.to_vec());
    context.reply.string(&first);
    let rest = (!rest.is_empty()).then_some(rest);
    match rest {
        Some(rest) => context.objects.put(key, rest, Kind::List, None),
        None => context.objects.remove(key).map(|_| ()),
    }
}

#[test]
fn clients_that_wait_are_served_in_their_order() {
    let mut door = Door::new();
    for client in [3, 1, 2] {
        assert_eq!(door.said_to(client, "testpop k 0\nping"), "");
    }
    assert_eq!(door.said_to(4, "testpush k ab"), "+OK|");
    assert_eq!((door.heard(3), door.heard(1)), ("$1|a|+PONG|".into(), "$1|b|+PONG|".into()));
    assert_eq!(door.heard(2), "");
    assert_eq!(door.said_to(4, "exists k\nset k 1\ndel k\nmulti\ntestpush k c\nexec"), {
        ":0|+OK|:1|+OK|+QUEUED|*1|+OK|"
    });
    assert_eq!(door.heard(2), "$1|c|+PONG|");
    assert_eq!(door.said_to(4, "exists k"), ":0|");
}

#[test]
fn a_client_waits_until_its_time_has_run_out() {
    let mut door = Door::new();
    assert_eq!(door.said("testpop k 100\nping"), "");
    assert_eq!(door.server.deadline(), Some(door.store.now_ms + 100));
    door.pass(99);
    assert_eq!(door.heard(1), "");
    door.pass(1);
    assert_eq!((door.heard(1), door.server.deadline()), ("*-1|+PONG|".into(), None));
    assert_eq!(door.said("multi\ntestpop k 100\nexec"), "+OK|+QUEUED|*1|*-1|");
    assert_eq!(door.said("testpop k 100"), "");
    assert_eq!(door.said_to(2, "client unblock 1 error\nclient unblock 1"), ":1|:0|");
    assert_eq!(door.heard(1), "-UNBLOCKED client unblocked via CLIENT UNBLOCK|");
    assert_eq!(door.said("testpop k 0"), "");
    door.close(1);
    assert_eq!(door.said_to(2, "testpush k a\nget k"), {
        "+OK|-WRONGTYPE Operation against a key holding the wrong kind of value|"
    });
}

#[test]
fn a_client_that_waits_is_served_later_if_the_store_refuses() {
    for refused in 0..6 {
        let mut door = Door::new();
        assert_eq!(door.said("testpop k 0"), "");
        door.store.refuses_after = Some(refused);
        assert_eq!(door.said_to(2, "testpush k ab"), "+OK|");
        assert!(door.server.deadline().is_none_or(|deadline| deadline == 0));
        door.pass(1);
        assert_eq!(door.heard(1), "$1|a|", "{refused}");
        door.store.refuses_after = None;
        assert_eq!(door.said_to(2, "testpop k 0"), "$1|b|");
    }
}

#[test]
fn a_rename_and_a_swap_wake_clients() {
    let mut door = Door::new();
    assert_eq!(door.said("testpop k 0"), "");
    assert_eq!(door.said_to(2, "testpush other ab\nrename other k"), "+OK|+OK|");
    assert_eq!(door.heard(1), "$1|a|");
    assert_eq!(door.said("select 1\ntestpop k 0"), "+OK|");
    assert_eq!(door.said_to(2, "swapdb 0 1"), "+OK|");
    assert_eq!(door.heard(1), "$1|b|");
}

#[test]
fn commands_are_delayed_by_a_pause() {
    let mut door = Door::new();
    assert_eq!(door.said("client pause 100 write"), "+OK|");
    assert_eq!(door.said_to(2, "get a\nset a 1\nget a"), "$-1|");
    door.pass(100);
    assert_eq!(door.heard(2), "+OK|$1|1|");
    assert_eq!(door.said("client pause 100 write"), "+OK|");
    assert_eq!(door.said_to(2, "set a 2"), "");
    // Redis sends these to its replicas.
    assert_eq!(door.said_to(3, "pfcount a"), "");
    assert_eq!(door.said_to(4, "multi\npublish q x\nexec"), "+OK|+QUEUED|");
    assert!(door.said("info clients").contains("|blocked_clients:3|"));
    assert_eq!(door.said("client unpause"), "+OK|");
    assert_eq!(door.heard(2), "+OK|");
}

#[test]
fn scripts_that_only_read_are_not_delayed_by_a_pause_of_writes() {
    let mut door = Door::new();
    let text = "\"#!lua flags=no-writes\nreturn 1\"";
    let digest = door.said(&format!("script load {}", text.replace('\n', "\\n")));
    let digest = digest.trim_end_matches('|').trim_start_matches("$40|").to_owned();
    let text = text.replace('\n', "\\n");
    assert_eq!(door.said("client pause 100 write"), "+OK|");
    assert_eq!(door.said_to(2, &format!("eval {text} 0\nevalsha {digest} 0")), ":1|:1|");
    assert_eq!(door.said_to(2, "eval_ro \"return 2\" 0"), ":2|");
    let queued = format!("multi\neval {text} 0\nevalsha {digest} 0\nexec");
    assert_eq!(door.said_to(2, &queued), "+OK|+QUEUED|+QUEUED|*2|:1|:1|");
    assert_eq!(door.said_to(3, "eval \"return 3\" 0"), "");
    assert_eq!(door.said_to(4, "evalsha 0 0"), "");
    assert_eq!(door.said_to(5, "multi\neval \"#!lua\\nreturn 5\" 0\nexec"), "+OK|+QUEUED|");
    door.pass(100);
    assert_eq!((door.heard(3).as_str(), door.heard(5).as_str()), (":3|", "*1|:5|"));
}

#[test]
fn a_password_must_be_given_first() {
    let mut door =
        Door::with(ServerOptions { password: Some(b"secret".to_vec()), ..Default::default() });
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.|";
    door.expect(&[
        ("get a", "-NOAUTH Authentication required.|"),
        ("auth x", wrong),
        ("auth secret2", wrong),
        ("auth foo secret", wrong),
    ]);
    assert!(door.said("hello 3").starts_with("-NOAUTH HELLO must be called"));
    assert_eq!(door.said("hello 3 auth default x"), wrong);
    assert!(door.said("hello 3 auth default secret setname x").starts_with("%7|"));
    door.expect(&[("get a", "_|"), ("client getname", "$1|x|"), ("reset", "+RESET|")]);
    door.expect(&[("get a", "-NOAUTH Authentication required.|"), ("auth secret", "+OK|")]);
    door.expect(&[("get a", "$-1|"), ("config set requirepass \"\"", "+OK|")]);
    assert_eq!(door.said_to(2, "get a"), "$-1|");
    let long = b"*11\r\n".to_vec();
    let mut door =
        Door::with(ServerOptions { password: Some(b"secret".to_vec()), ..Default::default() });
    assert_eq!(
        String::from_utf8_lossy(&door.replies(1, &long)),
        "-ERR Protocol error: unauthenticated multibulk length\r\n(end)"
    );
}

#[test]
fn clients_are_closed() {
    let mut door = Door::new();
    assert_eq!(door.said_to(2, "ping"), "+PONG|");
    assert_eq!(door.said("client kill id 1"), ":1|", "a client spares itself, unless it says so");
    assert_eq!(door.server.clients(), 1);
    assert_eq!(door.said("client kill id 2 skipme no\nping"), ":1|(end)");
    assert_eq!(door.server.clients(), 0);
    assert_eq!(door.said("quit\nping"), "+OK|(end)");
    assert_eq!(
        String::from_utf8_lossy(&door.replies(1, b"*1\r\nx\r\n")),
        "-ERR Protocol error: expected '$', got 'x'\r\n(end)"
    );
}

#[test]
fn a_command_is_given_up() {
    let mut door = Door::new();
    assert_eq!(door.said("multi\nset a 1"), "+OK|+QUEUED|");
    door.store.refuses_after = Some(0);
    let (mut output, facts) = (Output::default(), Facts::default());
    let mut exec =
        |door: &mut Door| door.server.step(&mut door.store, &facts, 1, b"exec\r\n", &mut output);
    assert_eq!(exec(&mut door), Step::NotNow);
    let mut output = Output::default();
    assert_eq!(door.server.give_up(1, b"exec\r\n", false, &mut output), Step::Done(6));
    assert_eq!(
        String::from_utf8_lossy(&output.replies),
        "-EXECABORT Transaction discarded because of: LOADING Redis is loading the dataset in \
         memory\r\n"
    );
    let mut output = Output::default();
    assert_eq!(door.server.give_up(1, b"get a\r\n", false, &mut output), Step::Done(7));
    assert_eq!(output.replies, b"-LOADING Redis is loading the dataset in memory\r\n");
    assert_eq!(door.said("get a\nexec"), "$-1|-ERR EXEC without MULTI|");
}

#[test]
fn the_policy_says_what_is_evicted() {
    let mut door = Door::new();
    assert_eq!((door.server.caches(None), door.server.caches(Some(1))), (false, false));
    assert_eq!(door.said("config set maxmemory-policy volatile-ttl"), "+OK|");
    assert_eq!((door.server.caches(None), door.server.caches(Some(1))), (false, true));
    assert_eq!(door.said("config set maxmemory-policy allkeys-lfu"), "+OK|");
    assert_eq!((door.server.caches(None), door.server.caches(Some(1))), (true, true));
}

#[test]
fn info_has_sections() {
    let mut door = Door::new();
    door.said("set a 1\nget a\nget b\nfoo");
    let all = door.said("info");
    for wanted in ["|redis_version:7.4.4|server_name:thunderhead|", "|# Keyspace|db0:keys=1,"] {
        assert!(all.contains(wanted), "{wanted} in {all}");
    }
    assert!(!all.contains("# Commandstats"));
    let stats = door.said("info stats commandstats errorstats");
    for wanted in ["|keyspace_hits:1|keyspace_misses:1|", "|cmdstat_get:calls=2,"] {
        assert!(stats.contains(wanted), "{wanted} in {stats}");
    }
    assert!(stats.contains("|errorstat_ERR:count=1|"));
    assert!(door.said("info everything").contains("|# Commandstats|"));
    assert_eq!(door.said("info none"), "$0||");
}

#[test]
fn a_value_that_is_too_long_is_refused() {
    let mut door = Door::with(ServerOptions {
        value_bytes_max: 10,
        string_bytes_max: 10,
        ..Default::default()
    });
    let long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)|";
    door.expect(&[
        ("set a 12345678901", long),
        ("set a 1234567890", "+OK|"),
        ("append a 1", long),
        ("setrange a 9 12", long),
        ("mset b 1 a 12345678901", long),
        ("exists b", ":0|"),
        ("multi", "+OK|"),
        ("set b 1", "+QUEUED|"),
        ("append a 1", "+QUEUED|"),
        ("exec", &format!("*2|+OK|{long}")),
        ("config get proto-max-bulk-len", "*2|$18|proto-max-bulk-len|$2|10|"),
    ]);
}

#[test]
fn a_reply_has_a_bound() {
    let mut door = Door::with(ServerOptions { reply_bytes_max: 50, ..Default::default() });
    let error = "-ERR The reply is too long. Ask for less at a time.|";
    door.expect(&[("set a 1234567890", "+OK|"), ("mget a a a a", error), ("multi", "+OK|")]);
    for line in ["set b 1", "get a", "get a", "get a", "get a"] {
        assert_eq!(door.said(line), "+QUEUED|");
    }
    door.expect(&[("exec", error), ("get b", "$-1|"), ("exec", "-ERR EXEC without MULTI|")]);
}

#[test]
fn many_changes_of_a_transaction_are_kept_apart() {
    let mut door = Door::new();
    assert_eq!(door.said("mset k0 old k1 old other 1\nmulti"), "+OK|+OK|");
    let mut lines = Vec::new();
    for number in 0..1000 {
        lines.push(format!("set k{number} {number}"));
    }
    lines.extend(["swapdb 0 1", "dbsize", "select 1", "dbsize", "get k7"].map(String::from));
    lines.extend(["flushdb", "set k7 new", "swapdb 1 2", "dbsize", "select 2"].map(String::from));
    lines.extend(["get k7", "get k8", "dbsize"].map(String::from));
    let queued = door.said(&lines.join("\n"));
    assert_eq!(queued, "+QUEUED|".repeat(lines.len()));
    let wanted = "+OK|:0|+OK|:1001|$1|7|+OK|+OK|+OK|:0|+OK|$3|new|$-1|:1|";
    assert_eq!(door.said("exec"), format!("*{}|{}{wanted}", lines.len(), "+OK|".repeat(1000)));
    assert_eq!(door.store.content(), ["2 k7 String None new"]);
}

/// A command whose replies depend on nothing but the objects.
fn any_command() -> impl Strategy<Value = String> {
    let key = || prop::sample::select(vec!["a", "b", "c", "\"\""]);
    let number = || -3i64..4;
    prop_oneof![
        4 => (key(), number()).prop_map(|(key, value)| format!("set {key} {value}")),
        2 => (key(), number()).prop_map(|(key, value)| format!("append {key} {value}")),
        2 => (key(), number()).prop_map(|(key, value)| format!("incrby {key} {value}")),
        2 => key().prop_map(|key| format!("get {key}")),
        1 => (key(), key()).prop_map(|(one, other)| format!("rename {one} {other}")),
        1 => (key(), key()).prop_map(|(one, other)| format!("copy {one} {other} db 1 replace")),
        1 => (key(), 0..3).prop_map(|(key, database)| format!("move {key} {database}")),
        1 => (key(), key()).prop_map(|(one, other)| format!("mset {one} 1 {other} 2")),
        1 => (key(), key()).prop_map(|(one, other)| format!("msetnx {one} 1 {other} 2")),
        1 => (key(), key()).prop_map(|(one, other)| format!("mget {one} {other}")),
        1 => (key(), key()).prop_map(|(one, other)| format!("del {one} {other}")),
        1 => (key(), key()).prop_map(|(one, other)| format!("exists {one} {other}")),
        1 => (key(), number()).prop_map(|(key, time)| format!("expire {key} {time}")),
        1 => key().prop_map(|key| format!("set {key} 5 ex 100 get")),
        1 => key().prop_map(|key| format!("ttl {key}")),
        1 => key().prop_map(|key| format!("testpush {key} x")),
        1 => key().prop_map(|key| format!("bitfield {key} incrby u8 3 77 get i7 1")),
        1 => (0..3).prop_map(|database| format!("select {database}")),
        1 => (0..3, 0..3).prop_map(|(one, other)| format!("swapdb {one} {other}")),
        1 => Just("flushdb".to_owned()),
        1 => Just("dbsize".to_owned()),
        1 => Just("scan 0 match nothing*".to_owned()),
        1 => Just("wrong command".to_owned()),
    ]
}

fn any_commands() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(any_command(), 1..40)
}

/// Puts some commands into transactions, with or without their end.
fn with_transactions() -> impl Strategy<Value = String> {
    let block = (any_commands(), any::<bool>(), any::<bool>());
    prop::collection::vec(block, 1..5).prop_map(|blocks| {
        let line = |(commands, is_multi, is_done): (Vec<String>, bool, bool)| match is_multi {
            false => commands.join("\n"),
            true => format!(
                "watch a\nmulti\n{}\n{}",
                commands
                    .into_iter()
                    .filter(|it| !it.contains("wrong"))
                    .collect::<Vec<_>>()
                    .join("\n"),
                if is_done { "exec" } else { "discard" }
            ),
        };
        blocks.into_iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

proptest! {
    #[test]
    fn the_pieces_in_which_commands_arrive_do_not_matter(
        lines in with_transactions(),
        cuts in prop::collection::vec(1usize..30, 1..50),
    ) {
        let mut whole = Door::new();
        let wanted = whole.said(&lines);
        let mut door = Door::new();
        let bytes = format!("{}\r\n", lines.replace('\n', "\r\n")).into_bytes();
        let (mut pending, mut got) = (Vec::new(), Vec::new());
        let (mut at, mut cuts) = (0, cuts.iter().cycle());
        while at < bytes.len() {
            let end = (at + cuts.next().unwrap()).min(bytes.len());
            pending.extend_from_slice(&bytes[at..end]);
            at = end;
            got.extend(door.replies_to(1, &mut pending));
        }
        prop_assert_eq!(text_of(&got), wanted);
        prop_assert_eq!(door.store.content(), whole.store.content());
    }

    #[test]
    fn a_refusal_at_any_time_leaves_no_trace(lines in with_transactions(), refused in 0u64..200) {
        let mut calm = Door::new();
        let wanted = calm.said(&lines);
        let mut door = Door::new();
        door.store.refuses_after = Some(refused);
        prop_assert_eq!(door.said(&lines), wanted);
        prop_assert_eq!(door.store.content(), calm.store.content());
    }

    #[test]
    fn a_transaction_does_the_same_as_its_commands_one_by_one(
        before in any_commands(),
        commands in any_commands(),
    ) {
        let is_right = |line: &&String| !line.contains("wrong");
        let (before, commands): (Vec<_>, Vec<_>) =
            (before.iter().filter(is_right).collect(), commands.iter().filter(is_right).collect());
        let (mut one, mut other) = (Door::new(), Door::new());
        for line in &before {
            prop_assert_eq!(one.said(line), other.said(line));
        }
        let replies: String = commands.iter().map(|line| one.said(line)).collect();
        prop_assert_eq!(other.said("multi"), "+OK|");
        for line in &commands {
            prop_assert_eq!(other.said(line), "+QUEUED|", "{}", line);
        }
        prop_assert_eq!(other.said("exec"), format!("*{}|{replies}", commands.len()));
        prop_assert_eq!(other.store.content(), one.store.content());
    }

    #[test]
    fn a_transaction_without_memory_does_nothing(before in any_commands(), commands in any_commands()) {
        let mut door = Door::new();
        for line in &before {
            door.said(line);
        }
        let content = door.store.content();
        door.store.bytes_max = Some(0);
        door.said("select 0\nmulti");
        for line in commands.iter().filter(|line| !line.contains("wrong")) {
            door.said(line);
        }
        let reply = door.said("exec");
        if reply.starts_with("-EXECABORT") {
            prop_assert_eq!(door.store.content(), content);
        }
        prop_assert_eq!(door.said("exec"), "-ERR EXEC without MULTI|");
    }
}

#[test]
fn a_reply_that_is_too_long_changes_nothing() {
    let options = ServerOptions { reply_bytes_max: 1000, ..ServerOptions::default() };
    let mut door = Door::with(options);
    let word = "w".repeat(300);
    let refused = "-ERR The reply is too long. Ask for less at a time.|";
    door.said(&format!("rpush l {word} {word} {word} {word}\nhset h f {word}"));
    assert_eq!(door.said("lpop l 4\nllen l"), format!("{refused}:4|"));
    assert_eq!(door.said("hmget h f f f f"), refused);
    assert_eq!(door.said("multi\nlpop l 2\nlpop l 2\nexec\nllen l").matches("QUEUED").count(), 2);
    assert_eq!(door.said("llen l"), ":4|");
}

#[test]
fn commands_with_effects_that_cannot_be_taken_back_are_refused_in_a_transaction() {
    let mut door = Door::new();
    for command in ["client unblock 2", "client pause 100", "client unpause"] {
        let said = door.said(&format!("multi\n{command}\nexec"));
        assert!(said.starts_with("+OK|-ERR Command not allowed inside a transaction|"), "{said}");
    }
}

#[test]
fn a_client_whose_input_has_ended_takes_no_element() {
    let mut door = Door::new();
    assert_eq!(door.said_to(2, "blpop l 0"), "");
    door.server.stops_waiting(2);
    assert_eq!(door.said("rpush l x\nllen l"), ":1|:1|");
}

#[test]
fn a_connection_that_was_opened_at_an_unknown_time_begins_with_its_first_command() {
    let mut door = Door::new();
    assert_eq!(door.said("ping"), "+PONG|");
    door.server.opened(1, "127.0.0.1:50001", "127.0.0.1:6379", 0);
    assert!(door.said("client info").contains(" age=0 "));
}

#[test]
fn a_refused_command_is_counted_as_rejected() {
    let mut door = Door::new();
    let wrong = "-ERR wrong number of arguments for 'set' command|";
    assert_eq!(door.said("set a\nmulti\nset"), format!("{wrong}+OK|{wrong}"));
    assert!(door.said("exec\nnone").starts_with("-EXECABORT"));
    let stats = door.said("info commandstats errorstats");
    for wanted in [
        "|cmdstat_set:calls=0,usec=0,usec_per_call=0.00,rejected_calls=2,failed_calls=0|",
        "|cmdstat_exec:calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=1|",
        "|errorstat_ERR:count=3|",
        "|errorstat_EXECABORT:count=1|",
    ] {
        assert!(stats.contains(wanted), "{wanted} {stats}");
    }
}

#[test]
fn confirmations_of_subscriptions_are_sent_to_clients_without_replies() {
    let mut door = Door::new();
    assert_eq!(
        door.said("CLIENT REPLY SKIP\nSUBSCRIBE a\nPING"),
        "*3|$9|subscribe|$1|a|:1|*2|$4|pong|$0||"
    );
    assert_eq!(
        door.said_to(2, "CLIENT REPLY OFF\nSUBSCRIBE a\nPING\nUNSUBSCRIBE a\nCLIENT REPLY ON"),
        "*3|$9|subscribe|$1|a|:1|*3|$11|unsubscribe|$1|a|:0|+OK|"
    );
    assert_eq!(door.said_to(3, "CLIENT REPLY SKIP\nRESET\nPING"), "+PONG|");
    assert_eq!(door.said_to(4, "CLIENT REPLY OFF\nRESET\nPING"), "+RESET|+PONG|");
}

#[test]
fn failed_and_rejected_calls_are_counted_as_in_redis() {
    let mut door = Door::new();
    door.said("SET x 1\nGET\nLPUSH x 1\nMULTI\nGET\nEXEC\nEVAL \"return redis.call('get')\" 0");
    door.said("SETRANGE x 99999999999 a\nMULTI\nLPUSH x 1\nEXEC");
    let shown = door.said("INFO commandstats");
    for (name, calls, rejected, failed) in [
        ("set", 1, 0, 0),
        ("get", 0, 3, 0),
        ("lpush", 2, 0, 2),
        ("setrange", 1, 0, 1),
        ("eval", 1, 0, 1),
        ("exec", 2, 0, 1),
    ] {
        let line = format!(
            "cmdstat_{name}:calls={calls},usec=0,usec_per_call=0.00,rejected_calls={rejected},\
             failed_calls={failed}|"
        );
        assert!(shown.contains(&line), "{line} {shown}");
    }
}

#[test]
fn a_transaction_that_is_executed_again_is_counted_once() {
    for refused in 0..6 {
        let mut door = Door::new();
        door.said("SET s 1\nCONFIG RESETSTAT\nMULTI\nSET a 1\nLPUSH s x\nSET b 1");
        door.store.refuses_after = Some(refused);
        door.said("EXEC");
        let shown = door.said("INFO commandstats errorstats");
        for part in ["set:calls=2,", "lpush:calls=1,", "exec:calls=1,", "WRONGTYPE:count=1|"] {
            assert!(shown.contains(part), "{refused} {part} {shown}");
        }
    }
}

#[test]
fn the_reason_of_an_aborted_transaction_has_no_code_of_its_own() {
    let aborted = super::transactions::aborted(super::stop::TOO_MUCH);
    let super::stop::Stop::Error(text) = aborted else { panic!("it is an error") };
    assert_eq!(
        String::from_utf8_lossy(&text),
        "EXECABORT Transaction discarded because of: The command changes too much at once. Use \
         smaller parts."
    );
}

#[test]
fn a_watched_key_that_expires_has_changed() {
    let mut door = Door::new();
    door.said("SET w 1 PX 10\nWATCH w");
    door.pass(10);
    assert_eq!(door.said("MULTI\nPING\nEXEC"), "+OK|+QUEUED|*-1|");
    assert_eq!(door.said("WATCH w\nMULTI\nPING\nEXEC"), "+OK|+OK|+QUEUED|*1|+PONG|");
    door.said("HSET h a 1 b 1\nHPEXPIRE h 10 FIELDS 2 a b\nWATCH h");
    door.pass(10);
    assert_eq!(door.said("MULTI\nPING\nEXEC"), "+OK|+QUEUED|*-1|");
}
