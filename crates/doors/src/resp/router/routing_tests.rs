//! Tests of the router, with a real server for each part. The bytes of all streams are cut
//! anywhere, and the router gets bytes again only when it has asked for them.

mod rights;

use super::super::testing::{Door, text_of};
use super::super::{Nodes, Parts, ServerOptions, slot_of};
use super::{Effects, Router, Wish};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const PARTS: u32 = 3;

/// The stream to a part.
#[derive(Default)]
struct Leg {
    is_open: bool,
    /// Whether the router has promised that no more bytes come.
    has_ended: bool,
    to_part: Vec<u8>,
    from_part: Vec<u8>,
    waits: bool,
}

struct Client {
    router: Router,
    input: Vec<u8>,
    waits: bool,
    legs: Vec<Leg>,
    output: Vec<u8>,
    has_ended: bool,
    /// Parts whose leg the router has closed.
    closed: Vec<u32>,
}

/// Clients of the plain port, and the servers of the parts.
struct Front {
    doors: Vec<Door>,
    clients: BTreeMap<u64, Client>,
    /// Parts that no server has.
    away: BTreeSet<u32>,
    /// The lengths of the pieces in which bytes arrive.
    pieces: Box<dyn FnMut() -> usize>,
    options: ServerOptions,
}

impl Front {
    fn new() -> Front {
        Front::with(ServerOptions::default(), Box::new(|| 7))
    }

    fn with(options: ServerOptions, pieces: Box<dyn FnMut() -> usize>) -> Front {
        let door = |part| {
            let mut door = Door::with(options.clone());
            door.server.set_nodes(Nodes::new(part, vec![None; PARTS as usize]).unwrap());
            door
        };
        let doors = (0..PARTS).map(door).collect();
        Front { doors, clients: BTreeMap::new(), away: BTreeSet::new(), pieces, options }
    }

    /// Returns the replies to some lines of the first client, with `|` for the ends of lines.
    fn said(&mut self, lines: &str) -> String {
        self.said_to(1, lines)
    }

    fn said_to(&mut self, client: u64, lines: &str) -> String {
        let mut bytes = lines.replace('\n', "\r\n").into_bytes();
        bytes.extend_from_slice(b"\r\n");
        self.send(client, &bytes);
        self.heard(client)
    }

    #[track_caller]
    fn expect(&mut self, table: &[(&str, &str)]) {
        for (line, reply) in table {
            assert_eq!(self.said(line), *reply, "{line}");
        }
    }

    fn heard(&mut self, client: u64) -> String {
        self.run();
        text_of(&std::mem::take(&mut self.client(client).output))
    }

    fn client(&mut self, client: u64) -> &mut Client {
        let options = &self.options;
        self.clients.entry(client).or_insert_with(|| Client {
            router: Router::new(Parts::new(PARTS).unwrap(), options, client),
            input: Vec::new(),
            waits: false,
            legs: (0..PARTS).map(|_| Leg::default()).collect(),
            output: Vec::new(),
            has_ended: false,
            closed: Vec::new(),
        })
    }

    fn send(&mut self, client: u64, bytes: &[u8]) {
        self.client(client).input.extend_from_slice(bytes);
        self.run();
    }

    /// Moves bytes until none moves.
    fn run(&mut self) {
        while self.clients.keys().copied().collect::<Vec<_>>().into_iter().any(|it| self.turn(it)) {
        }
    }

    /// Moves bytes of a client; returns whether any has moved.
    fn turn(&mut self, id: u64) -> bool {
        let Front { doors, clients, away, pieces, .. } = self;
        let Some(client) = clients.get_mut(&id) else { return false };
        let mut moved = false;
        let mut effects = Effects::default();
        let mut offered = 0;
        while !client.waits && offered < client.input.len() && !client.has_ended {
            offered = (offered + pieces().max(1)).min(client.input.len());
            let (used, wish) = client.router.take_commands(&client.input[..offered], &mut effects);
            client.input.drain(..used);
            offered -= used;
            client.waits = wish == Wish::Wait;
            moved |= used > 0;
            moved |= client.apply(&mut effects, away);
            if wish == Wish::Again {
                offered = 0;
            }
        }
        for part in 0..doors.len() {
            for closed in client.closed.drain(..) {
                doors[closed as usize].close(id);
            }
            let door = &mut doors[part];
            let leg = &mut client.legs[part];
            if !leg.is_open {
                continue;
            }
            let from = door.replies_to(id, &mut leg.to_part);
            leg.from_part.extend(from);
            let mut offered = 0;
            while !client.legs[part].waits && offered < client.legs[part].from_part.len() {
                let leg = &mut client.legs[part];
                offered = (offered + pieces().max(1)).min(leg.from_part.len());
                let bytes = leg.from_part[..offered].to_vec();
                let taken = client.router.take_replies(part as u32, &bytes, &mut effects);
                let Ok((used, wish)) = taken else {
                    client.output.extend_from_slice(b"(broken)");
                    client.has_ended = true;
                    return false;
                };
                leg.from_part.drain(..used);
                offered -= used;
                leg.waits = wish == Wish::Wait;
                moved |= used > 0;
                moved |= client.apply(&mut effects, away);
            }
        }
        moved
    }

    /// Closes the leg of a client; returns whether the client is to be closed.
    fn lose(&mut self, client: u64, part: u32) -> bool {
        self.doors[part as usize].close(client);
        let client = self.client(client);
        client.legs[part as usize] = Leg::default();
        client.router.lost(part)
    }
}

impl Client {
    /// Carries out effects; returns whether there were any.
    fn apply(&mut self, effects: &mut Effects, away: &BTreeSet<u32>) -> bool {
        let mut moved = false;
        loop {
            let Effects {
                replies,
                sends,
                opens,
                closes,
                ends_inputs,
                resumes,
                resumes_client,
                ends,
                ..
            } = std::mem::take(effects);
            let none = sends.is_empty() && opens.is_empty() && closes.is_empty();
            if none && replies.is_empty() && resumes.is_empty() && !resumes_client && !ends {
                return moved;
            }
            moved = true;
            self.output.extend(replies);
            for part in closes {
                self.legs[part as usize] = Leg::default();
                self.closed.push(part);
            }
            for (part, bytes) in sends {
                let leg = &self.legs[part as usize];
                assert!(leg.is_open && !leg.has_ended);
                self.legs[part as usize].to_part.extend(bytes);
            }
            for part in ends_inputs {
                self.legs[part as usize].has_ended = true;
            }
            for part in resumes {
                self.legs[part as usize].waits = false;
            }
            self.waits &= !resumes_client;
            if ends && !self.has_ended {
                self.has_ended = true;
                self.output.extend_from_slice(b"(end)");
            }
            for part in opens {
                if away.contains(&part) {
                    self.router.failed(part, b"-LOADING away\r\n", effects);
                } else {
                    self.legs[part as usize].is_open = true;
                    self.router.opened(part, effects);
                }
            }
        }
    }
}

// Keys of the parts 0, 1 and 2.
const KEYS: [&str; 3] = ["bar", "{1}", "foo"];

const CROSSED: &str = "-CROSSSLOT The keys of this command are in different parts, which cannot change together. Give the keys the same {tag}, such as {user1}:a and {user1}:b|";
const CROSSED_MULTI: &str = "-CROSSSLOT This key is in another part than the first key of the transaction or of WATCH, and parts cannot change together. Give the keys the same {tag}, such as {user1}:a and {user1}:b|";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.|";

#[test]
fn the_keys_of_these_tests_are_in_three_parts() {
    let parts = Parts::new(PARTS).unwrap();
    assert_eq!(KEYS.map(|key| parts.part_of(slot_of(key.as_bytes()))), [0, 1, 2]);
}

#[test]
fn a_client_sees_one_server_with_all_keys() {
    let mut front = Front::new();
    front.expect(&[
        ("set bar 0\nset {1} 1\nset foo 2", "+OK|+OK|+OK|"),
        ("get foo\nget bar\nget {1}\nget foo", "$1|2|$1|0|$1|1|$1|2|"),
        ("mget foo bar none {1} foo", "*5|$1|2|$1|0|$-1|$1|1|$1|2|"),
        ("exists foo bar {1} none foo", ":4|"),
        ("touch foo bar", ":2|"),
        ("dbsize", ":3|"),
        ("del foo bar none", ":2|"),
        ("keys *", "*1|$3|{1}|"),
        ("randomkey", "$3|{1}|"),
        ("unlink {1} foo", ":1|"),
        ("randomkey", "$-1|"),
        ("dbsize", ":0|"),
        ("mset {x}a 1 {x}b 2", "+OK|"),
        ("mset foo 1 bar 2", CROSSED),
        ("msetnx foo 1 bar 2", CROSSED),
        ("rename foo bar", CROSSED),
        ("sunionstore foo bar {1}", CROSSED),
        ("blpop foo bar 1", CROSSED),
        ("nonsense foo", "-ERR unknown command 'nonsense', with args beginning with: 'foo' |"),
        ("get", "-ERR wrong number of arguments for 'get' command|"),
        ("flushall", "+OK|"),
        ("dbsize", ":0|"),
        ("eval \"return redis.call('set',KEYS[1],ARGV[1])\" 1 foo 7", "+OK|"),
        ("eval return(1) 2 foo bar", CROSSED),
        ("eval return(1) 0", ":1|"),
        ("get foo", "$1|7|"),
        ("ping", "+PONG|"),
        ("wait 0 0", ":0|"),
    ]);
}

#[test]
fn a_walk_with_scan_visits_the_keys_of_all_parts() {
    let mut front = Front::new();
    for number in 0..300 {
        assert_eq!(front.said(&format!("set key:{number} x")), "+OK|");
    }
    let (mut cursor, mut found, mut calls) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        let reply = front.said(&format!("scan {cursor} count 20"));
        let mut lines = reply.split('|');
        assert_eq!(lines.next(), Some("*2"));
        let next = lines.nth(1).unwrap().to_owned();
        found.extend(lines.filter(|line| line.starts_with("key:")).map(str::to_owned));
        (cursor, calls) = (next, calls + 1);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 300);
    assert!(calls > 3, "{calls}");
    front.expect(&[
        ("scan x", "-ERR invalid cursor|"),
        ("scan 0 count", "-ERR syntax error|"),
        ("scan 0 match nothing count 1000", "*2|$1|1|*0|"),
        ("scan 2 match nothing count 1000", "*2|$1|0|*0|"),
    ]);
}

#[test]
fn scripts_settings_and_users_are_the_same_in_all_parts() {
    let mut front = Front::new();
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let (loaded, run) = (format!("$40|{sha}|"), format!("evalsha {sha} 1 foo"));
    front.expect(&[
        ("script load \"return 1\"", loaded.as_str()),
        (&format!("script exists {sha} {}", "0".repeat(40)), "*2|:1|:0|"),
        (&run, ":1|"),
        ("script flush", "+OK|"),
        ("eval \"return 1\" 1 bar", ":1|"),
        (&format!("script exists {sha}"), "*1|:0|"),
        ("config set notify-keyspace-events KEA", "+OK|"),
        (
            "config set nonsense 1",
            "-ERR Unknown option or number of arguments for CONFIG SET - 'nonsense'|",
        ),
        ("acl setuser me on nopass ~* +@all", "+OK|"),
        ("auth me x", "+OK|"),
        ("get foo\nget bar", "$-1|$-1|"),
        ("acl whoami", "$2|me|"),
        ("script kill", "-NOTBUSY No scripts in execution right now.|"),
    ]);
    for door in &mut front.doors {
        assert!(door.said_to(9, "config get notify-keyspace-events").contains("AKE"));
    }
}

#[test]
fn each_part_knows_the_state_of_the_connection() {
    let options = ServerOptions { password: Some(b"secret".to_vec()), ..ServerOptions::default() };
    let mut front = Front::with(options, Box::new(|| 3));
    let no = "-NOAUTH Authentication required.|";
    let aborted = "-EXECABORT Transaction discarded because of: NOAUTH Authentication required.|";
    front.expect(&[
        ("get foo\nget bar\nmget foo bar\ndbsize", &no.repeat(4)),
        ("auth wrong", "-WRONGPASS invalid username-password pair or user is disabled.|"),
        ("multi\nset foo 1\nexec", &format!("{no}{no}{aborted}")),
        ("subscribe x\nget foo", &no.repeat(2)),
        ("auth secret\nselect 3\nset foo 3\nset {1} 3\nselect 0\nget foo", {
            "+OK|+OK|+OK|+OK|+OK|$-1|"
        }),
        ("select 3\nget {1}\nget foo", "+OK|$1|3|$1|3|"),
        ("select 99", "-ERR DB index is out of range|"),
        ("get {1}", "$1|3|"),
    ]);
    assert!(front.said("hello 3 setname me\nmget foo bar {1}").starts_with("%7|"));
    for door in &mut front.doors {
        let listed = door.said_to(9, "auth secret\nclient list");
        assert!(listed.contains("name=me "), "{listed}");
    }
    front.expect(&[
        ("hgetall foo", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("hset {1}h a b", ":1|"),
        ("hgetall {1}h", "%1|$1|a|$1|b|"),
        ("client reply off\nset foo 1\nget bar", ""),
        ("client reply on\nget foo", "+OK|$1|1|"),
        ("client reply skip\nget foo\nmget foo bar", "*2|$1|1|_|"),
        ("client reply maybe", "-ERR syntax error|"),
        ("reset", "+RESET|"),
        ("get foo", no),
        ("auth secret\nget foo", "+OK|$-1|"),
    ]);
}

#[test]
fn a_transaction_is_in_the_part_of_its_first_key() {
    let mut front = Front::new();
    let unknown = "-ERR unknown command 'nonsense', with args beginning with: |";
    let unknown = format!("+OK|{unknown}+QUEUED|{ABORTED}");
    front.expect(&[
        ("multi", "+OK|"),
        ("ping", "+QUEUED|"),
        ("set foo 1", "+QUEUED|"),
        ("incr foo", "+QUEUED|"),
        ("time x", "-ERR wrong number of arguments for 'time' command|"),
        ("exec", ABORTED),
        ("multi\nping\nset foo 1\nincr foo\nexec", "+OK|+QUEUED|+QUEUED|+QUEUED|*3|+PONG|+OK|:2|"),
        ("multi\nset foo 5\nset bar 5\nexec", &format!("+OK|+QUEUED|{CROSSED_MULTI}{ABORTED}")),
        ("get foo\nget bar", "$1|2|$-1|"),
        ("multi\nset foo 5\ndiscard\nget foo", "+OK|+QUEUED|+OK|$1|2|"),
        ("multi\nnonsense\nset foo 5\nexec", &unknown),
        ("exec", "-ERR EXEC without MULTI|"),
        ("multi\nmulti\nexec", "+OK|-ERR MULTI calls can not be nested|*0|"),
        ("multi\nexec", "+OK|*0|"),
        ("multi\nmget foo {1}\nexec", &format!("+OK|{CROSSED_MULTI}{ABORTED}")),
    ]);
    for refused in ["flushall", "dbsize", "select 1", "subscribe x", "scan 0", "client reply off"] {
        let reply = front.said(&format!("multi\nget foo\n{refused}\nexec"));
        assert!(
            reply.starts_with("+OK|+QUEUED|-ERR This command is not allowed inside"),
            "{reply}"
        );
        assert!(reply.ends_with(ABORTED), "{reply}");
    }
    // One by one, as clients without pipelines do.
    let lines = [
        ("multi", "+OK|"),
        ("echo x", "+QUEUED|"),
        ("incr {1}n", "+QUEUED|"),
        ("quit", "+OK|(end)"),
    ];
    front.expect(&lines);
}

#[test]
fn watched_keys_choose_the_part_of_the_transaction() {
    let mut front = Front::new();
    front.expect(&[
        ("watch foo", "+OK|"),
        ("watch bar", CROSSED_MULTI),
        ("watch foo bar", CROSSED),
        ("multi", "+OK|"),
        ("set bar 1", CROSSED_MULTI),
        ("exec", ABORTED),
        ("watch foo", "+OK|"),
    ]);
    assert_eq!(front.said_to(2, "set foo 9"), "+OK|");
    front.expect(&[
        ("multi\nping\nset foo 1\nexec", "+OK|+QUEUED|+QUEUED|*-1|"),
        ("watch foo\nunwatch\nwatch bar", "+OK|+OK|+OK|"),
        ("multi\nset bar 1\nexec", "+OK|+QUEUED|*1|+OK|"),
        ("get foo\nget bar", "$1|9|$1|1|"),
        // A connection with watched keys ends with its leg.
        ("watch foo", "+OK|"),
    ]);
    assert!(front.lose(1, 2));
}

#[test]
fn subscribers_hear_the_messages_of_all_parts() {
    let mut front = Front::new();
    let subscribed = |kind: &str, name: &str, count: u32| {
        format!("*3|${}|{kind}|${}|{name}|:{count}|", kind.len(), name.len())
    };
    let message = |name: &str, text: &str| {
        format!("*3|$7|message|${}|{name}|${}|{text}|", name.len(), text.len())
    };
    assert_eq!(front.said("config set notify-keyspace-events KEA"), "+OK|");
    let both = subscribed("subscribe", "a", 1) + &subscribed("subscribe", "b", 2);
    assert_eq!(front.said_to(2, "get bar\nsubscribe a b"), format!("$-1|{both}"));
    assert_eq!(front.said_to(2, "psubscribe __keyevent@0__:set*"), {
        subscribed("psubscribe", "__keyevent@0__:set*", 3)
    });
    assert_eq!(front.said("publish a hello\npublish c x"), ":1|:0|");
    assert_eq!(front.heard(2), message("a", "hello"));
    // Messages of transactions and scripts come from their parts, and so do keyspace events.
    assert_eq!(
        front.said("multi\nset foo 1\npublish b two\nexec"),
        "+OK|+QUEUED|+QUEUED|*2|+OK|:1|"
    );
    let event = "*4|$8|pmessage|$19|__keyevent@0__:set*|$18|__keyevent@0__:set|$3|foo|";
    assert_eq!(front.heard(2), format!("{event}{}", message("b", "two")));
    let script = "eval \"return redis.call('publish','a','one')\" 1 {1}";
    assert_eq!(front.said(script), ":1|");
    assert_eq!(front.heard(2), message("a", "one"));
    let refused = front.said_to(2, "get foo");
    assert!(refused.starts_with("-ERR Can't execute 'get'"), "{refused}");
    assert_eq!(front.said_to(2, "ping"), "*2|$4|pong|$0||");
    let none = subscribed("unsubscribe", "a", 2) + &subscribed("unsubscribe", "b", 1);
    assert_eq!(front.said_to(2, "unsubscribe"), none);
    assert_eq!(front.said_to(2, "punsubscribe"), {
        subscribed("punsubscribe", "__keyevent@0__:set*", 0)
    });
    assert_eq!(front.said_to(2, "get foo"), "$1|1|");
    assert_eq!(front.said("publish a hello\nset foo 1"), ":0|+OK|");
    assert_eq!(front.heard(2), "");
    assert_eq!(front.said_to(3, "unsubscribe\nget foo"), "*3|$11|unsubscribe|$-1|:0|$1|1|");
}

#[test]
fn no_message_comes_behind_the_end_of_a_subscription() {
    for part in 0..PARTS as usize {
        let mut front = Front::new();
        assert_eq!(front.said("subscribe a"), "*3|$9|subscribe|$1|a|:1|");
        assert_eq!(front.doors[part].said_to(9, "publish a x"), ":1|");
        assert_eq!(front.said("unsubscribe a\nget foo"), {
            "*3|$7|message|$1|a|$1|x|*3|$11|unsubscribe|$1|a|:0|$-1|"
        });
    }
}

#[test]
fn a_subscriber_with_version_3_may_send_all_commands() {
    let mut front = Front::new();
    assert!(front.said("hello 3").starts_with("%7|"));
    let text = ">3|$9|subscribe|$1|a|:1|";
    assert_eq!(front.said("subscribe a\nset foo 1\nget foo"), format!("{text}+OK|$1|1|"));
    assert_eq!(front.said("multi\nget foo\npublish a x\nexec"), {
        "+OK|+QUEUED|+QUEUED|*2|$1|1|:1|>3|$7|message|$1|a|$1|x|"
    });
    let refused = front.said("hello 2");
    assert!(refused.starts_with("-ERR The version of the protocol cannot be changed"), "{refused}");
    assert_eq!(front.said("client reply off\nunsubscribe\nget foo"), ">3|$11|unsubscribe|$1|a|:0|");
}

#[test]
fn a_command_that_waits_holds_back_later_commands_of_its_client_alone() {
    let mut front = Front::new();
    assert_eq!(front.said("blpop foo 0\nget bar"), "");
    assert_eq!(front.said_to(2, "set bar 1\nrpush foo x"), "+OK|:1|");
    assert_eq!(front.heard(1), "*2|$3|foo|$1|x|$1|1|");
    // The client's last bytes have come: it must not take an element.
    assert_eq!(front.said("blpop foo 0\nget bar"), "");
    let mut effects = Effects::default();
    front.client(1).router.input_ending(&mut effects);
    assert_eq!((effects.ends_inputs.as_slice(), effects.ends_legs), (&[2][..], false));
    // The part closes the leg.
    assert!(front.lose(1, 2));
}

#[test]
fn commands_behind_one_that_could_wait_are_executed_for_a_client_that_sends_no_more() {
    let table = [
        ("wait 0 0\nget bar\nget foo", ":0|$1|0|$1|2|"),
        ("xread streams none 0\nget bar\nget foo", "*-1|$1|0|$1|2|"),
        ("blpop foo:l bar 0\nget bar", "-CROSSSLOT"),
        ("blpop {foo}:l 0\nget bar\nget foo\nblpop {foo}:l 0\nget {1}", {
            "*2|$7|{foo}:l|$1|x|$1|0|$1|2|*2|$7|{foo}:l|$1|y|$1|1|"
        }),
        ("select 1\nblpop l 0\nget bar", "+OK|*2|$1|l|$1|z|$-1|"),
    ];
    for (lines, expected) in table {
        let mut front = Front::new();
        assert_eq!(front.said("set bar 0\nset {1} 1\nset foo 2"), "+OK|+OK|+OK|");
        assert_eq!(
            front.said("rpush {foo}:l x y\nselect 1\nrpush l z\nselect 0"),
            ":2|+OK|:1|+OK|"
        );
        let (mut effects, away) = (Effects::default(), BTreeSet::new());
        let client = front.client(1);
        let input = [&lines.replace('\n', "\r\n"), "\r\n"].concat();
        let (used, wish) = client.router.take_commands(input.as_bytes(), &mut effects);
        client.waits = wish == Wish::Wait;
        client.input.extend_from_slice(&input.as_bytes()[used..]);
        client.router.input_ending(&mut effects);
        client.apply(&mut effects, &away);
        let heard = front.heard(1);
        assert!(heard.starts_with(expected), "{lines}: {heard}");
        assert_eq!(front.client(1).input, b"", "{lines}");
    }
}

#[test]
fn a_client_has_the_limits_of_a_stranger_if_the_default_user_needs_a_password() {
    let options = ServerOptions { password: Some(b"secret".to_vec()), ..ServerOptions::default() };
    for (options, rule, reply) in [
        (ServerOptions::default(), "default resetpass >other", "-ERR Protocol error: "),
        (options, "default nopass", "+OK|"),
    ] {
        let mut front = Front::with(options, Box::new(|| 5));
        for door in &mut front.doors {
            let replies = door.said_to(9, &format!("auth secret\nacl setuser {rule}"));
            assert!(replies.ends_with("+OK|"), "{replies}");
        }
        front.send(1, &long_command());
        let heard = front.heard(1);
        assert!(heard.starts_with(reply), "{rule}: {heard}");
        // A client's first command may be one of a transaction.
        let multi = [&b"multi\r\n"[..], &long_command()].concat();
        front.send(2, &multi);
        let heard = front.heard(2);
        assert_eq!(heard == "+OK|+QUEUED|", reply == "+OK|", "{rule}: {heard}");
    }
}

#[test]
fn part_0_knows_each_client_from_its_first_command_on() {
    let mut front = Front::new();
    assert_eq!(front.said("get foo"), "$-1|");
    let listed = front.doors[0].said_to(9, "client list");
    assert!(listed.contains("addr=127.0.0.1:50001 "), "{listed}");
}

/// Returns the bytes of a command, each of whose words has a length before it.
fn array(words: &[&str]) -> Vec<u8> {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let words: Vec<String> = words.collect();
    format!("*{}\r\n{}", words.len(), words.concat()).into_bytes()
}

/// A command with more words than a client without a user may send.
fn long_command() -> Vec<u8> {
    array(
        &[&["mset"][..], &["{1}a", "{1}b", "{1}c"].map(|key| [key, "x"]).concat().repeat(2)]
            .concat(),
    )
}

#[test]
fn the_first_command_behind_a_login_may_be_long() {
    let options = ServerOptions { password: Some(b"secret".to_vec()), ..ServerOptions::default() };
    // The first bytes behind the reply to the login have all of the command.
    for login in ["auth secret", "hello 2 auth default secret"] {
        let mut front = Front::with(options.clone(), Box::new(|| 4096));
        assert_ne!(front.said(login), "");
        front.send(1, &long_command());
        assert_eq!(front.heard(1), "+OK|", "{login}");
        // A client that is no longer that of a user has the narrow limits again.
        assert_eq!(front.said("reset"), "+RESET|");
        front.send(1, &long_command());
        let refused = "-ERR Protocol error: unauthenticated multibulk length|(end)";
        assert_eq!(front.heard(1), refused, "{login}");
    }
}

#[test]
fn own_replies_wait_for_the_end_of_a_message() {
    for own in ["monitor", "quit"] {
        let mut front = Front::new();
        assert!(front.said("hello 3").starts_with("%7|"));
        assert_eq!(front.said("subscribe a"), ">3|$9|subscribe|$1|a|:1|");
        let (mut effects, message) =
            (Effects::default(), b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n");
        let router = &mut front.client(1).router;
        let (begin, end) = message.split_at(20);
        let (used, _) = router.take_replies(0, begin, &mut effects).unwrap();
        router.take_commands(format!("{own}\r\n").as_bytes(), &mut effects);
        assert_eq!(effects.replies, message[..used]);
        assert!(!effects.ends, "{own}");
        let rest = [&begin[used..], end].concat();
        assert_eq!(router.take_replies(0, &rest, &mut effects), Ok((rest.len(), Wish::Read)));
        assert!(effects.replies.starts_with(message) && effects.replies.len() > message.len());
        assert_eq!(effects.ends, own == "quit");
    }
}

#[test]
fn commands_that_one_part_cannot_do_are_refused_with_a_reason() {
    let mut front = Front::new();
    let commands = [
        "swapdb 0 1",
        "monitor",
        "client tracking on",
        "client unblock 1",
        "ssubscribe a",
        "spublish a b",
    ];
    for command in commands {
        let reply = front.said(command);
        assert!(reply.starts_with("-ERR ") && reply.contains("parts"), "{command}: {reply}");
    }
    assert_eq!(front.said("client tracking off"), "+OK|");
}

#[test]
fn a_part_that_is_away_does_not_touch_the_others() {
    let mut front = Front::new();
    front.expect(&[("set bar 0\nset foo 2\nset {1} 1", "+OK|+OK|+OK|")]);
    // An idle leg is lost, and opened again by the next command.
    assert!(!front.lose(1, 2));
    front.expect(&[("get bar\nget foo", "$1|0|$1|2|")]);
    // A part is away: nothing of a command for several parts is done.
    assert!(!front.lose(1, 2));
    front.away.insert(2);
    front.expect(&[("get bar", "$1|0|"), ("del bar foo\nget bar", "-LOADING away|(end)")]);
    assert_eq!(front.said_to(2, "get bar\nmget bar {1}"), "$1|0|*2|$1|0|$1|1|");
    front.away.clear();
    assert_eq!(front.said_to(2, "get foo"), "$1|2|");
    // The leg to part 0 is the connection itself, and a reply may be missing on a busy one.
    assert!(front.lose(2, 0));
    assert_eq!(front.said_to(3, "blpop {1}l 0"), "");
    assert!(front.lose(3, 1));
}

#[test]
fn bytes_that_are_no_commands_end_the_connection_behind_earlier_replies() {
    let mut front = Front::new();
    assert_eq!(front.said("set foo 1\nget foo\n*1\n+x\nget foo"), {
        "+OK|$1|1|-ERR Protocol error: expected '$', got '+'|(end)"
    });
    assert_eq!(front.said_to(2, "get foo\nquit\nget foo"), "$1|1|+OK|(end)");
    assert_eq!(front.said_to(3, "get foo\nPOST / HTTP/1.1\nget foo"), "$1|1|(end)");
}

#[test]
fn replies_that_are_malformed_break_the_connection() {
    for bytes in ["?", "*3\r\n", ":1\r\n"] {
        let mut front = Front::new();
        assert_eq!(front.said("get foo"), "$-1|");
        let mut effects = Effects::default();
        let router = &mut front.client(1).router;
        let taken = router.take_replies(2, bytes.as_bytes(), &mut effects);
        assert!(taken.is_err(), "{bytes:?}");
    }
}

/// A command of the random test, with keys of one part or of several.
fn command() -> impl Strategy<Value = String> {
    let key = (0usize..3, 0u32..4).prop_map(|(part, number)| match KEYS[part] {
        tag if tag.starts_with('{') => format!("{tag}{number}"),
        tag => format!("{{{tag}}}{number}"),
    });
    let keys = prop::collection::vec(key.clone(), 1..6).prop_map(|keys| keys.join(" "));
    // A leg to a new part needs HELLO, SELECT and CLIENT. MULTI and UNWATCH leave no watched keys.
    let refused = [
        "", "-get", "-set", "-mget", "-del", "-discard", "-exec", "-watch", "-ping", "-dbsize",
        "-flushdb", "-echo", "-eval", "-incr",
    ];
    let refused = prop::sample::select(refused.to_vec());
    prop_oneof![
        4 => (key.clone(), 0u32..1000).prop_map(|(key, value)| format!("set {key} {value}")),
        4 => key.clone().prop_map(|key| format!("get {key}")),
        2 => key.clone().prop_map(|key| format!("incr {key}")),
        1 => (key.clone(), 0u32..9).prop_map(|(key, item)| format!("rpush {key}l {item}")),
        1 => key.clone().prop_map(|key| format!("lrange {key}l 0 -1")),
        1 => key.clone().prop_map(|key| format!("strlen {key}")),
        3 => keys.clone().prop_map(|keys| format!("mget {keys}")),
        1 => keys.clone().prop_map(|keys| format!("del {keys}")),
        1 => keys.clone().prop_map(|keys| format!("exists {keys}")),
        1 => keys.prop_map(|keys| format!("touch {keys}")),
        1 => Just("dbsize".to_owned()),
        1 => Just("ping".to_owned()),
        1 => (0u32..2).prop_map(|number| format!("select {number}")),
        1 => (2u32..4).prop_map(|version| format!("hello {version} setname n{version}")),
        1 => Just("client getname".to_owned()),
        1 => Just("flushdb".to_owned()),
        1 => Just("client reply skip".to_owned()),
        1 => Just("nonsense".to_owned()),
        1 => key.clone().prop_map(|key| format!("multi\nincr {key}\nget {key}\nexec")),
        1 => key.clone().prop_map(|key| format!("multi\necho x\nset {key} 1\nx\nexec")),
        1 => key.clone().prop_map(|key| format!("watch {key}\nset {key} 2\nmulti\nget {key}\nexec")),
        1 => key.clone().prop_map(|key| format!("multi\nset {key} 1\ndiscard\nget {key}\nexec")),
        1 => Just("exec".to_owned()),
        1 => Just("unwatch\nauth u x".to_owned()),
        1 => refused.prop_map(|name| format!("acl setuser u on nopass ~* +@all {name}\nauth u x")),
        1 => key.prop_map(|key| format!("eval \"return redis.call('get',KEYS[1])\" 1 {key}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_replies_are_those_of_one_server(
        commands in prop::collection::vec(command(), 1..40),
        pieces in prop::collection::vec(1usize..60, 1..40),
        sends in prop::collection::vec(1usize..6, 1..10),
    ) {
        let mut next = 0;
        let pieces = Box::new(move || {
            next = (next + 1) % pieces.len();
            pieces[next]
        });
        let mut front = Front::with(ServerOptions::default(), pieces);
        let mut alone = Door::new();
        let mut rest = commands.as_slice();
        for count in sends.iter().cycle() {
            let (now, later) = rest.split_at((*count).min(rest.len()));
            let lines = now.join("\n");
            prop_assert_eq!(front.said(&lines), alone.said(&lines), "{}", lines);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
    }
}
