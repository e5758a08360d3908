//! Long strings beside strings in one object, and beside a store that refuses.

use super::models::{command, execute};
use super::testing::{BEGIN_MS, Door, text_of};
use super::{ServerOptions, Step};
use proptest::prelude::*;

/// A server whose objects are short, so that pages are short too.
fn door() -> Door {
    Door::with(ServerOptions {
        value_bytes_max: 256,
        string_bytes_max: 4 << 10,
        ..ServerOptions::default()
    })
}

/// A server with the same limit for strings, whose strings all fit into an object.
fn model() -> Door {
    Door::with(ServerOptions {
        value_bytes_max: 4 << 10,
        string_bytes_max: 4 << 10,
        ..ServerOptions::default()
    })
}

fn sent(door: &mut Door, words: &[&[u8]]) -> String {
    text_of(&execute(door, words))
}

/// Returns a string whose bytes depend on their places.
fn long(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31 + at / 251 + seed) % 253) as u8).collect()
}

/// Sweeps until no garbage is left.
fn sweep(door: &mut Door) {
    for _ in 0..1000 {
        if door.server.sweep(&mut door.store, 1000, &mut super::Output::default())
            == super::Swept::default()
        {
            break;
        }
    }
}

/// Returns the number of pages and owner records of the first database.
fn pages(door: &Door) -> usize {
    let hidden = format!("{} ", 1u32 << 31);
    let is_page = |line: &&String| line.starts_with(&hidden);
    // The counter of ids is no page.
    door.store.content().iter().filter(is_page).count().saturating_sub(1)
}

#[test]
fn a_string_that_is_longer_than_an_object_is_like_any_other_string() {
    let mut door = door();
    let value = long(1000, 1);
    assert_eq!(sent(&mut door, &[b"SET", b"k", &value]), "+OK|");
    assert_eq!(execute(&mut door, &[b"GET", b"k"]), bulk(&value));
    door.expect(&[
        ("STRLEN k", ":1000|"),
        ("TYPE k", "+string|"),
        ("OBJECT ENCODING k", "$3|raw|"),
        ("EXISTS k", ":1|"),
        ("INCR k", "-ERR value is not an integer or out of range|"),
        ("INCRBYFLOAT k 1", "-ERR value is not a valid float|"),
        ("LPUSH k x", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("SCAN 0 TYPE string", "*2|$1|0|*1|$1|k|"),
        ("CONFIG GET proto-max-bulk-len", "*2|$18|proto-max-bulk-len|$4|4096|"),
    ]);
}

fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

#[test]
fn the_pages_of_a_string_that_was_replaced_or_deleted_are_freed() {
    let mut door = door();
    for seed in 0..5 {
        sent(&mut door, &[b"SET", b"k", &long(1000, seed)]);
    }
    sweep(&mut door);
    assert_eq!(pages(&door), 5, "four pages and the owner record");
    sent(&mut door, &[b"DEL", b"k"]);
    sweep(&mut door);
    assert_eq!(pages(&door), 0);
}

#[test]
fn a_string_that_is_replaced_by_a_short_one_leaves_no_pages() {
    let mut door = door();
    sent(&mut door, &[b"SET", b"k", &long(1000, 1)]);
    sent(&mut door, &[b"SET", b"k", b"short"]);
    sweep(&mut door);
    assert_eq!((pages(&door), door.said("GET k")), (0, "$5|short|".to_owned()));
}

#[test]
fn a_string_that_is_too_long_is_refused_and_the_old_one_stays() {
    let mut door = door();
    let value = long(4096, 1);
    assert_eq!(sent(&mut door, &[b"SET", b"k", &value]), "+OK|");
    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)|";
    assert_eq!(sent(&mut door, &[b"SET", b"k", &long(4097, 2)]), too_long);
    assert_eq!(sent(&mut door, &[b"APPEND", b"k", b"x"]), too_long);
    assert_eq!(sent(&mut door, &[b"SETRANGE", b"k", b"4096", b"x"]), too_long);
    assert_eq!(execute(&mut door, &[b"GET", b"k"]), bulk(&value));
}

#[test]
fn a_refusal_at_any_point_leaves_the_old_string_and_no_pages() {
    let old = long(700, 1);
    let new = long(1500, 2);
    for calls in 0..40 {
        let mut door = door();
        sent(&mut door, &[b"SET", b"k", &old]);
        door.store.refuses_after = Some(calls);
        let mut output = super::Output::default();
        let bytes = command(&[b"SET", b"k", &new]);
        let facts = super::Facts::default();
        let step = door.server.step(&mut door.store, &facts, 1, &bytes, &mut output);
        let is_refused = door.store.refuses_after.take().is_none();
        let (expected, count) = match step {
            Step::NotNow => (&old, 4),
            _ => (&new, 7),
        };
        assert_eq!(step == Step::NotNow, is_refused, "{calls}");
        // The client is gone, and so the command is not executed again.
        door.pass(60_000);
        assert_eq!(execute(&mut door, &[b"GET", b"k"]), bulk(expected), "{calls}");
        sweep(&mut door);
        assert_eq!(pages(&door), count, "{calls}");
        assert_eq!(execute(&mut door, &[b"GET", b"k"]), bulk(expected), "{calls}");
    }
}

#[test]
fn a_command_that_is_executed_again_goes_on_with_its_pages() {
    let (old, new, other) = (long(700, 1), long(1500, 2), long(1500, 3));
    for calls in 0..30 {
        let mut door = door();
        sent(&mut door, &[b"SET", b"k", &old]);
        door.store.refuses_after = Some(calls);
        let mut output = super::Output::default();
        let bytes = command(&[b"SET", b"k", &new]);
        let facts = super::Facts::default();
        door.server.step(&mut door.store, &facts, 1, &bytes, &mut output);
        let before = pages(&door);
        sweep(&mut door);
        // Another client writes a string of the same length under the same key.
        if calls % 2 == 0 {
            assert_eq!(text_of(&door.replies(2, &command(&[b"SET", b"k", &other]))), "+OK|");
            sweep(&mut door);
        }
        assert_eq!(text_of(&door.replies(1, &bytes)), "+OK|");
        assert!(pages(&door) <= before + 14, "{calls}");
        sweep(&mut door);
        assert_eq!(execute(&mut door, &[b"GET", b"k"]), bulk(&new), "{calls}");
        assert_eq!(pages(&door), 7, "{calls}");
    }
}

#[test]
fn a_command_that_is_executed_again_begins_anew_if_its_database_was_cleared() {
    let value = long(1500, 1);
    let bytes = command(&[b"SET", b"k", &value]);
    for calls in 0..20 {
        for between in ["FLUSHDB", "SWAPDB 0 1", "FLUSHALL"] {
            let mut door = door();
            door.said_to(2, "SET x 1");
            door.said("PING");
            door.store.refuses_after = Some(calls);
            let mut output = super::Output::default();
            let facts = super::Facts::default();
            door.server.step(&mut door.store, &facts, 1, &bytes, &mut output);
            door.store.refuses_after = None;
            assert_eq!(door.said_to(2, between), "+OK|");
            // This collection gets an id that the string had before.
            let member = "m".repeat(200);
            for number in 0..3 {
                door.said_to(2, &format!("SADD k {member}{number}"));
            }
            assert_eq!(text_of(&door.replies(1, &bytes)), "+OK|");
            door.pass(60_000);
            sweep(&mut door);
            assert_eq!(execute(&mut door, &[b"GET", b"k"]), bulk(&value), "{calls}");
        }
    }
}

#[test]
fn notes_of_collections_that_a_cleared_database_had_do_not_harm_a_begun_string() {
    let value = long(1500, 1);
    let bytes = command(&[b"SET", b"k", &value]);
    for calls in 0..20 {
        let mut door = door();
        // The first id belongs to a string that is deleted, and its pages wait for the sweeper.
        sent(&mut door, &[b"SET", b"old", &value]);
        sent(&mut door, &[b"DEL", b"old"]);
        door.said("FLUSHDB");
        door.store.refuses_after = Some(calls);
        let mut output = super::Output::default();
        let facts = super::Facts::default();
        door.server.step(&mut door.store, &facts, 1, &bytes, &mut output);
        door.store.refuses_after = None;
        sweep(&mut door);
        assert_eq!(text_of(&door.replies(1, &bytes)), "+OK|");
        door.pass(60_000);
        sweep(&mut door);
        assert_eq!(execute(&mut door, &[b"GET", b"k"]), bulk(&value), "{calls}");
        assert_eq!(pages(&door), 7, "{calls}");
    }
}

#[test]
fn a_string_gets_its_pages_although_each_attempt_writes_only_one() {
    let mut door = door();
    let value = long(4000, 1);
    let bytes = command(&[b"SET", b"k", &value]);
    let facts = super::Facts::default();
    door.said("PING");
    for attempts in 1..100 {
        // Enough for the checks of the pages that are there, and little more.
        door.store.refuses_after = Some(6 + attempts);
        let mut output = super::Output::default();
        let step = door.server.step(&mut door.store, &facts, 1, &bytes, &mut output);
        door.store.refuses_after = None;
        assert!(pages(&door) <= 17, "each attempt goes on with the same pages");
        sweep(&mut door);
        if step != Step::NotNow {
            assert_eq!(execute(&mut door, &[b"GET", b"k"]), bulk(&value));
            return;
        }
    }
    panic!("the string is never written");
}

/// Executes a command of a client. The store does so many writes for it, and then no other one.
/// Returns whether the command is done.
fn attempt_with(door: &mut Door, client: u64, bytes: &[u8], writes: u64) -> bool {
    door.store.writes_left = Some(writes);
    let (facts, mut output) = (super::Facts::default(), super::Output::default());
    let step = door.server.step(&mut door.store, &facts, client, bytes, &mut output);
    door.store.writes_left = None;
    step != Step::NotNow
}

#[test]
fn clients_that_write_different_strings_of_a_key_do_not_abandon_each_others_pages() {
    // The second pair begins alike.
    for (one, two) in [
        (long(4000, 1), long(4000, 2)),
        (long(4000, 1), {
            let mut two = long(4000, 1);
            two[3999] ^= 1;
            two
        }),
    ] {
        let mut door = door();
        let commands = [&one, &two].map(|value| command(&[b"SET", b"k", value]));
        [1, 2].into_iter().for_each(|client| drop(door.said_to(client, "PING")));
        let mut done = [false; 2];
        for _ in 0..9 {
            for client in [0, 1] {
                if !done[client] {
                    let bytes = &commands[client];
                    done[client] = attempt_with(&mut door, client as u64 + 1, bytes, 2);
                }
                sweep(&mut door);
            }
        }
        assert_eq!(done, [true; 2]);
        assert_eq!(execute(&mut door, &[b"GET", b"k"]), bulk(&two));
        assert_eq!(pages(&door), 17);
    }
}

#[test]
fn a_string_keeps_its_pages_if_the_store_refuses_to_show_them() {
    let mut door = door();
    let bytes = command(&[b"SET", b"k", &long(4000, 1)]);
    door.said("PING");
    assert!(!attempt_with(&mut door, 1, &bytes, 8));
    let before = pages(&door);
    door.store.refuses_after = Some(3);
    assert!(!attempt_with(&mut door, 1, &bytes, 0));
    sweep(&mut door);
    assert_eq!(pages(&door), before);
}

#[test]
fn many_clients_that_write_long_strings_do_not_abandon_each_others_pages() {
    let (mut door, clients) = (door(), 1..=300_u64);
    let value = long(2500, 1);
    let bytes = |client: u64| command(&[b"SET", format!("k{client}").as_bytes(), &value]);
    clients.clone().for_each(|client| drop(door.said_to(client, "PING")));
    let attempt = |door: &mut Door, client, refuses_after| {
        door.store.refuses_after = refuses_after;
        let (facts, mut output) = (super::Facts::default(), super::Output::default());
        let step = door.server.step(&mut door.store, &facts, client, &bytes(client), &mut output);
        door.store.refuses_after = None;
        step == Step::NotNow
    };
    // Each begins and writes some pages, as long as there is room.
    assert!(clients.clone().all(|client| attempt(&mut door, client, Some(8))));
    let begun = pages(&door);
    for _ in 0..5 {
        assert!(clients.clone().all(|client| attempt(&mut door, client, Some(8))));
        assert!(pages(&door) <= begun + 256 * 8, "the same pages: {} of {begun}", pages(&door));
    }
    // The strings that have begun become complete, and then the others have room.
    for client in clients.clone() {
        assert!(!attempt(&mut door, client, None), "{client}");
    }
    sweep(&mut door);
    for client in clients {
        let key = format!("k{client}");
        assert_eq!(execute(&mut door, &[b"GET", key.as_bytes()]), bulk(&value));
    }
}

#[test]
fn slow_attempts_of_many_clients_do_not_make_strings_look_idle() {
    let (mut door, value) = (door(), long(2500, 1));
    let mut waiting: Vec<u64> = (1..=300).collect();
    waiting.iter().for_each(|client| drop(door.said_to(*client, "PING")));
    // A round takes 1.5 seconds.
    for _ in 0..16 {
        waiting.retain(|client| {
            door.store.now_ms += 5;
            let bytes = command(&[b"SET", format!("k{client}").as_bytes(), &value]);
            !attempt_with(&mut door, *client, &bytes, 2)
        });
    }
    assert_eq!(waiting, []);
}

#[test]
fn a_command_that_is_not_executed_again_leaves_no_pages() {
    let bytes = command(&[b"SET", b"k", &long(2500, 1)]);
    let give_up = |door: &mut Door| {
        let step = door.server.give_up(1, &bytes, true, &mut super::Output::default());
        assert_eq!(step, Step::Done(bytes.len()));
    };
    let ends: [&dyn Fn(&mut Door); 3] = [
        &|door| door.close(1),
        &give_up,
        // The command is an error meanwhile.
        &|door| assert!(door.said("SET k 1 x").starts_with("-ERR")),
    ];
    for end in ends {
        let mut door = door();
        door.said("PING");
        assert!(!attempt_with(&mut door, 1, &bytes, 8));
        end(&mut door);
        sweep(&mut door);
        assert_eq!(pages(&door), 0);
    }
}

#[test]
fn a_client_that_waits_for_a_place_is_told_that_memory_is_full() {
    let mut door = door();
    for client in 1..=257_u64 {
        door.said_to(client, "PING");
        let bytes = command(&[b"SET", format!("k{client}").as_bytes(), &long(2500, 1)]);
        assert!(!attempt_with(&mut door, client, &bytes, 2));
        assert_eq!(door.server.awaits_memory(), client == 257);
    }
    let bytes = command(&[b"SET", b"k257", &long(2500, 1)]);
    let mut output = super::Output::default();
    let is_full = door.server.awaits_memory();
    let step = door.server.give_up(257, &bytes, is_full, &mut output);
    assert_eq!(step, Step::Done(bytes.len()));
    assert!(output.replies.starts_with(b"-OOM "));
    door.said_to(257, "GET k257");
    assert!(!door.server.awaits_memory());
}

#[test]
fn clients_that_are_gone_leave_their_places_to_others() {
    let mut door = door();
    let value = long(2500, 1);
    for client in 1..=257_u64 {
        door.said_to(client, "PING");
        (1..=256).filter(|_| client == 257).for_each(|gone| door.close(gone));
        door.store.refuses_after = (client <= 256).then_some(8);
        let (facts, mut output) = (super::Facts::default(), super::Output::default());
        let bytes = command(&[b"SET", format!("k{client}").as_bytes(), &value]);
        let step = door.server.step(&mut door.store, &facts, client, &bytes, &mut output);
        assert_eq!(step == Step::NotNow, client <= 256);
    }
    assert_eq!(execute(&mut door, &[b"GET", b"k257"]), bulk(&value));
    sweep(&mut door);
    assert_eq!(pages(&door), 11, "the pages of the others are freed");
}

#[test]
fn long_strings_take_part_in_transactions() {
    let mut door = door();
    let (one, two) = (long(900, 1), long(1100, 2));
    sent(&mut door, &[b"SET", b"a", &one]);
    door.said("MULTI");
    sent(&mut door, &[b"SET", b"b", &two]);
    sent(&mut door, &[b"APPEND", b"b", b"more"]);
    sent(&mut door, &[b"FLUSHDB"]);
    sent(&mut door, &[b"SET", b"c", &one]);
    sent(&mut door, &[b"SWAPDB", b"0", b"1"]);
    sent(&mut door, &[b"SET", b"d", &two]);
    assert_eq!(door.said("EXEC"), "*6|+OK|:1104|+OK|+OK|+OK|+OK|");
    door.expect(&[("DBSIZE", ":1|"), ("STRLEN d", ":1100|"), ("SELECT 1", "+OK|")]);
    assert_eq!(execute(&mut door, &[b"GET", b"c"]), bulk(&one));
    sweep(&mut door);
    assert_eq!(execute(&mut door, &[b"GET", b"c"]), bulk(&one));
    door.said("SELECT 0");
    assert_eq!(execute(&mut door, &[b"GET", b"d"]), bulk(&two));
}

#[test]
fn a_long_string_keeps_its_time_of_expiry() {
    let mut door = door();
    let value = long(1000, 1);
    sent(&mut door, &[b"SET", b"k", &value, b"PX", b"5000"]);
    sent(&mut door, &[b"APPEND", b"k", b"x"]);
    door.expect(&[("PTTL k", ":5000|"), ("RENAME k n", "+OK|"), ("PTTL n", ":5000|")]);
    door.pass(4000);
    assert_eq!(door.said("STRLEN n"), ":1001|");
    door.pass(1000);
    assert_eq!((door.said("STRLEN n"), door.store.now_ms), (":0|".to_owned(), BEGIN_MS + 5000));
    sweep(&mut door);
    assert_eq!(pages(&door), 0);
}

#[test]
fn a_damaged_long_string_is_an_error() {
    use super::store::{Change, Kind, Store};
    for value in [
        &b""[..],
        b"\x00",
        b"\x00\x00",
        b"\x00\x01\x02\x01\x00",
        b"\x00\x01\x02\x01\x02\x05\x00",
        b"\x00\x01\x02\x01\x02\xff\xff",
        b"\x00\x01\x02\x01\x0b\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x01",
        b"\x00\x01\x02\x01\x02\x05\x05",
    ] {
        let mut door = door();
        let (kind, expires, database) = (Kind::LongString, None, 0);
        let put = Change::Put { database, key: b"k", value, kind, expires };
        assert_eq!(door.store.apply(&[put]), Ok(()));
        for line in ["GET k", "STRLEN k", "APPEND k x", "SETBIT k 3 1", "MGET a k", "GETEX k"] {
            let said = door.said(line);
            // The last header is right, but its page is missing.
            let is_right =
                value.ends_with(b"\x02\x05\x05") && matches!(line, "STRLEN k" | "APPEND k x");
            assert!(said.starts_with("-ERR") || is_right, "{line}: {said} {value:?}");
        }
    }
}

/// A command of the property, with keys `a` and `b`.
fn any_command() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let key = || prop::sample::select(vec![b"a".to_vec(), b"b".to_vec()]);
    let lengths = || prop_oneof![0usize..40, 200usize..300, 0usize..2000];
    let bytes = move || (lengths(), 0usize..250).prop_map(|(length, seed)| long(length, seed));
    let number = move || lengths().prop_map(|it| it.to_string().into_bytes());
    let range = || (-2200i32..2200).prop_map(|it| it.to_string().into_bytes());
    let word = |text: &'static str| Just(text.as_bytes().to_vec());
    prop_oneof![
        (word("SET"), key(), bytes()).prop_map(|(a, b, c)| vec![a, b, c]),
        (word("APPEND"), key(), bytes()).prop_map(|(a, b, c)| vec![a, b, c]),
        (word("SETRANGE"), key(), number(), bytes()).prop_map(|(a, b, c, d)| vec![a, b, c, d]),
        (word("GETRANGE"), key(), range(), range()).prop_map(|(a, b, c, d)| vec![a, b, c, d]),
        (word("SETBIT"), key(), 0u32..16_000, any::<bool>()).prop_map(|(a, b, c, d)| {
            vec![a, b, c.to_string().into_bytes(), u8::from(d).to_string().into_bytes()]
        }),
        (word("GETBIT"), key(), 0u32..16_000).prop_map(|(a, b, c)| vec![
            a,
            b,
            c.to_string().into_bytes()
        ]),
        (word("BITCOUNT"), key(), range(), range()).prop_map(|(a, b, c, d)| vec![a, b, c, d]),
        (word("BITPOS"), key()).prop_map(|(a, b)| vec![a, b, b"0".to_vec()]),
        (word("BITFIELD"), key(), 0u32..16_000).prop_map(|(a, b, c)| {
            let offset = c.to_string().into_bytes();
            [&b"incrby"[..], b"u16", &offset, b"77"].iter().fold(vec![a, b], |mut all, it| {
                all.push(it.to_vec());
                all
            })
        }),
        (word("BITOP"), key(), key())
            .prop_map(|(a, b, c)| { vec![a, b"XOR".to_vec(), b"a".to_vec(), b, c] }),
        (word("GETSET"), key(), bytes()).prop_map(|(a, b, c)| vec![a, b, c]),
        (word("GETDEL"), key()).prop_map(|(a, b)| vec![a, b]),
        (word("GETEX"), key()).prop_map(|(a, b)| vec![a, b, b"EX".to_vec(), b"100".to_vec()]),
        (word("PERSIST"), key()).prop_map(|(a, b)| vec![a, b]),
        (word("STRLEN"), key()).prop_map(|(a, b)| vec![a, b]),
        (word("RENAME"), key(), key()).prop_map(|(a, b, c)| vec![a, b, c]),
        (word("COPY"), key(), key()).prop_map(|(a, b, c)| vec![a, b, c, b"REPLACE".to_vec()]),
        (word("MGET"), key(), key()).prop_map(|(a, b, c)| vec![a, b, c, b"a".to_vec()]),
        (word("MSET"), bytes(), bytes()).prop_map(|(a, c, d)| vec![
            a,
            b"a".to_vec(),
            c,
            b"b".to_vec(),
            d
        ]),
        (word("DUMP"), key()).prop_map(|(a, b)| vec![a, b]),
        (word("LCS"), key(), key()).prop_map(|(a, b, c)| vec![a, b, c, b"LEN".to_vec()]),
        (word("TTL"), key()).prop_map(|(a, b)| vec![a, b]),
        Just(vec![b"MULTI".to_vec()]),
        Just(vec![b"EXEC".to_vec()]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn long_strings_answer_as_strings_in_one_object(
        commands in prop::collection::vec(any_command(), 1..40),
    ) {
        let (mut door, mut model) = (door(), model());
        for words in &commands {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let bytes = command(&words);
            let shown = String::from_utf8_lossy(words[0]);
            prop_assert_eq!(door.replies(1, &bytes), model.replies(1, &bytes), "{}", shown);
        }
        execute(&mut door, &[b"EXEC"]);
        model.replies(1, &command(&[b"EXEC"]));
        sweep(&mut door);
        let all = command(&[b"MGET", b"a", b"b"]);
        prop_assert_eq!(door.replies(1, &all), model.replies(1, &all));
        execute(&mut door, &[b"DEL", b"a", b"b"]);
        sweep(&mut door);
        prop_assert_eq!(pages(&door), 0);
    }
}
