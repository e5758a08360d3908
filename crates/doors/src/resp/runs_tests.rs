//! Runs have the same effects as the same commands one by one.

use super::models::command as array;
use super::testing::{Door, text_of};
use super::{ClientId, ServerOptions};
use proptest::prelude::*;

fn lines(lines: &[&str]) -> Vec<u8> {
    let words = |line: &&str| array(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    lines.iter().flat_map(words).collect()
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => "[a-e]".prop_map(String::into_bytes),
        1 => Just(Vec::new()),
        1 => Just(b"\r\n*2\r\n".to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1000..1050),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..12),
        1 => prop::collection::vec(any::<u8>(), 9_990..10_010),
        1 => prop::collection::vec(any::<u8>(), 60..120),
    ]
}

/// Most commands belong into runs. The others end a run, or put the client into a state without.
fn command() -> impl Strategy<Value = Vec<u8>> {
    let get = prop_oneof![Just("GET"), Just("get"), Just("gEt")];
    let set = prop_oneof![Just("SET"), Just("set"), Just("Set")];
    let others = prop_oneof![
        Just("MULTI"),
        Just("EXEC"),
        Just("DISCARD"),
        Just("WATCH a"),
        Just("UNWATCH"),
        Just("LPUSH b x y"),
        Just("LPOP b"),
        Just("DEL a b c"),
        Just("SET a 1 EX 100"),
        Just("SET a 1 NX GET"),
        Just("SET c 5 PX"),
        Just("GET"),
        Just("GET a b"),
        Just("SET a"),
        Just("SUBSCRIBE a"),
        Just("UNSUBSCRIBE"),
        Just("HELLO 3"),
        Just("HELLO 2"),
        Just("RESET"),
        Just("AUTH secret"),
        Just("SELECT 1"),
        Just("SELECT 0"),
        Just("CLIENT REPLY SKIP"),
        Just("CLIENT REPLY OFF"),
        Just("CLIENT REPLY ON"),
        Just("CLIENT NO-TOUCH ON"),
        Just("MONITOR"),
        Just("FLUSHALL"),
        Just("INFO commandstats"),
        Just("INFO stats"),
        Just("INFO errorstats"),
        Just("CLIENT INFO"),
        Just("MGET a b c d nothing a b"),
        Just("CONFIG RESETSTAT"),
    ];
    // Bytes that only look like a command of a run.
    let broken = prop_oneof![
        Just(&b"*2\r\n$3\r\nGET\r\n$01\r\na\r\n"[..]),
        Just(&b"*2\r\n$3\r\nGET\r\n$+1\r\na\r\n"[..]),
        Just(&b"*2\r\n$3\r\nGET\r\n$-1\r\na\r\n"[..]),
        Just(&b"*2\r\n$3\r\nGET\r\n$\r\na\r\n"[..]),
        Just(&b"*2\r\n$3\r\nGET\r\n$1\r\naXY"[..]),
        Just(&b"*2\r\n$3\r\nGET\r\n$1\r\raXY"[..]),
        Just(&b"*2\r\n$3\r\nGET\r\n$999999999999\r\na\r\n"[..]),
        Just(&b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n:1\r\n"[..]),
        Just(&b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$00\r\n\r\n"[..]),
        Just(&b"*3\r\n$3\r\nGET\r\n$1\r\na\r\n$1\r\nb\r\n"[..]),
        Just(&b"*2\r\n$3\r\nSET\r\n$1\r\na\r\n"[..]),
        Just(&b"*2\r\n$3\r\nG\x05T\r\n$1\r\na\r\n"[..]),
        Just(&b"GET a\r\nSET a 1\r\n"[..]),
        Just(&b"\r\n*0\r\n"[..]),
    ];
    prop_oneof![
        12 => (get, key()).prop_map(|(word, key)| array(&[word.as_bytes(), &key])),
        12 => (set, key(), value())
            .prop_map(|(word, key, value)| array(&[word.as_bytes(), &key, &value])),
        5 => others.prop_map(|line| lines(&[line])),
        1 => broken.prop_map(<[u8]>::to_vec),
    ]
}

/// The clients of two servers with the same past.
struct Pair {
    whole: Door,
    bytewise: Door,
}

impl Pair {
    fn new(options: &ServerOptions, bytes_max: Option<usize>) -> Pair {
        let door = || {
            let mut door = Door::with(options.clone());
            door.store.bytes_max = bytes_max;
            door
        };
        Pair { whole: door(), bytewise: door() }
    }

    /// Sends the same bytes at once and one by one. A part of a command is no command of a run.
    fn send(&mut self, client: ClientId, bytes: &[u8]) {
        let replies = self.whole.replies(client, bytes);
        let (mut other, mut pending) = (Vec::new(), Vec::new());
        for byte in bytes {
            pending.push(*byte);
            other.extend(self.bytewise.replies_to(client, &mut pending));
            if other.ends_with(b"(end)") {
                break;
            }
        }
        assert_eq!(text_of(&replies), text_of(&other));
        assert_eq!(self.whole.store.content(), self.bytewise.store.content());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 400 }))]

    #[test]
    fn a_run_has_the_replies_and_the_effects_of_the_same_commands_one_by_one(
        sent in prop::collection::vec((1..3u64, prop::collection::vec(command(), 1..40)), 1..8),
        has_password in prop::bool::weighted(0.2),
        bytes_max in prop::option::weighted(0.2, 100..2000usize),
    ) {
        let password = has_password.then(|| b"secret".to_vec());
        let options =
            ServerOptions { password, value_bytes_max: 10_000, ..ServerOptions::default() };
        let mut pair = Pair::new(&options, bytes_max);
        for (client, commands) in sent {
            pair.send(client, &commands.concat());
            for client in 1..3 {
                prop_assert_eq!(pair.whole.heard(client), pair.bytewise.heard(client));
            }
        }
        // A client that ended connects again, and the counts are the same.
        for line in ["CLIENT REPLY ON", "AUTH secret", "INFO commandstats", "INFO stats", "CLIENT LIST"] {
            pair.send(1, &lines(&[line]));
        }
    }

    #[test]
    fn a_run_goes_on_after_refusals_of_the_store(
        commands in prop::collection::vec(command(), 1..40),
        refuses_after in 0..10u64,
    ) {
        let mut pair = Pair::new(&ServerOptions::default(), None);
        pair.whole.store.refuses_after = Some(refuses_after);
        // `INFO` counts the commands of an `EXEC` each time the store refuses it.
        let has_counts = |it: &Vec<u8>| it.windows(4).any(|word| word == b"INFO");
        let commands: Vec<_> = commands.into_iter().filter(|it| !has_counts(it)).collect();
        pair.send(1, &commands.concat());
    }
}

#[test]
fn a_run_is_one_step_up_to_the_first_other_command() {
    let mut door = Door::new();
    let set = lines(&["SET a 1", "set b 2", "Set a 3"]);
    let bytes = [set.clone(), lines(&["GET a", "GET b", "GET c", "GET d", "PING"])].concat();
    door.expect(&[("LPUSH d x", ":1|")]);
    let mut steps = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let mut output = super::Output::default();
        let facts = super::Facts::default();
        let step = door.server.step(&mut door.store, &facts, 1, &bytes[at..], &mut output);
        let super::Step::Done(used) = step else { panic!("{step:?}") };
        steps.push(text_of(&output.replies));
        at += used;
    }
    let error = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    assert_eq!(steps, ["+OK|+OK|+OK|", "$1|3|$1|2|$-1|", error, "+PONG|"]);
}

#[test]
fn a_run_ends_when_its_replies_are_long() {
    let mut door = Door::new();
    let value = "v".repeat(100 << 10);
    assert_eq!(door.replies(1, &array(&[b"SET", b"a", value.as_bytes()])), b"+OK\r\n");
    let bytes = lines(&["GET a"]).repeat(50);
    let mut output = super::Output::default();
    let facts = super::Facts::default();
    let step = door.server.step(&mut door.store, &facts, 1, &bytes, &mut output);
    assert_eq!(step, super::Step::Done(3 * bytes.len() / 50));
    assert_eq!(door.replies(1, &bytes).len(), 50 * (value.len() + 11));
}

#[test]
fn a_run_tells_a_consumer_that_its_stream_is_gone() {
    let mut door = Door::new();
    assert_eq!(door.said_to(1, "xgroup create s g $ mkstream"), "+OK|");
    assert_eq!(door.said_to(1, "xreadgroup group g c block 0 streams s >"), "");
    assert_eq!(door.replies(2, &array(&[b"SET", b"s", b"x"])), b"+OK\r\n");
    let error = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    assert_eq!(door.heard(1), error);
}
