//! Keys move between servers that a thread plays, and out of files.

use super::connection::{read_reply, write_command};
use super::*;
use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use thunderhead_server::rdb::{Value, checksum};

type Words = Vec<Vec<u8>>;

/// A server that answers with a function, and remembers all commands.
struct Fake {
    url: String,
    heard: Arc<Mutex<Vec<String>>>,
}

fn serve(stream: TcpStream, answer: impl Fn(&Words) -> Vec<u8>, heard: &Mutex<Vec<String>>) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let mut output = stream;
    while let Ok(reply) = read_reply(&mut input, 0) {
        let words = reply.strings().unwrap();
        let shown: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        heard.lock().unwrap().push(shown.join(" "));
        if output.write_all(&answer(&words)).is_err() {
            return;
        }
    }
}

impl Fake {
    fn start(answer: impl Fn(&Words) -> Vec<u8> + Send + Clone + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&heard);
        // The threads end with the process, or with their connections.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, shared) = (answer.clone(), Arc::clone(&shared));
                std::thread::spawn(move || serve(stream.unwrap(), answer, &shared));
            }
        });
        Fake { url, heard }
    }

    fn heard(&self, command: &str) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|line| line.starts_with(command)).cloned().collect()
    }
}

/// A target that refuses the key `odd`.
fn target() -> Fake {
    Fake::start(|words| match &words[..] {
        [_, key, ..] if key == b"odd" => b"-ERR Bad data format\r\n".to_vec(),
        [name, ..] if name == b"DEL" => b":1\r\n".to_vec(),
        _ => b"+OK\r\n".to_vec(),
    })
}

fn array(strings: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    let words: Vec<&[u8]> = strings.iter().map(|string| string.as_bytes()).collect();
    write_command(&mut out, &words).unwrap();
    out
}

/// A source with some keys, which sends no events.
fn source(words: &Words) -> Vec<u8> {
    let word = |at: usize| words.get(at).map_or("", |word| str::from_utf8(word).unwrap());
    match (word(0), word(1)) {
        ("CONFIG", "GET") => array(&["notify-keyspace-events", ""]),
        ("CONFIG", _) => b"-ERR not allowed\r\n".to_vec(),
        ("INFO", _) => b"$40\r\n# Keyspace\r\ndb0:keys=3\r\ndb7:keys=1,e=0\r\n\r\n".to_vec(),
        ("SCAN", "0") => [&b"*2\r\n$1\r\n5\r\n"[..], &array(&["a", "gone"])].concat(),
        ("SCAN", _) => [&b"*2\r\n$1\r\n0\r\n"[..], &array(&["odd", "late"])].concat(),
        ("PTTL", "gone") => b":-2\r\n".to_vec(),
        ("PTTL", "late") => b":5000\r\n".to_vec(),
        ("PTTL", _) => b":-1\r\n".to_vec(),
        ("DUMP", "gone") => b"$-1\r\n".to_vec(),
        ("DUMP", key) => format!("${}\r\n<{key}>\r\n", key.len() + 2).into_bytes(),
        _ => b"+OK\r\n".to_vec(),
    }
}

/// Runs an import; returns its output, its notes and its failure.
fn run_import(from: Option<&str>, file: Option<&Path>, to: &str) -> (String, String, String) {
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let mut session = Session {
        out: &mut out,
        notes: &mut notes,
        input: None,
        ask: None,
        json: true,
        progress: false,
    };
    let done = run(from, file, to, &mut session);
    let failure = done.err().map_or(String::new(), |failure| failure.message);
    (String::from_utf8(out).unwrap(), String::from_utf8(notes).unwrap(), failure)
}

#[test]
fn addresses_are_read() {
    let address = Address::read("redis://ada:p%40ss@[::1]:7000/3").unwrap();
    assert_eq!(address.name(), "::1:7000");
    assert_eq!(address.database, Some(3));
    assert!(format!("{address:?}").contains("p@ss"));
    assert_eq!(Address::read("redis://host").unwrap().name(), "host:6379");
    assert_eq!(Address::read("redis://:secret@host:1/").unwrap().database, None);
    for wrong in ["host:1", "redis://", "redis://host:x", "redis://host/x", "redis://ada@host"] {
        assert!(Address::read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_source_without_events_is_copied_twice() {
    let (from, to) = (Fake::start(source), target());
    let (out, notes, failure) = run_import(Some(&from.url), None, &to.url);
    assert!(out.contains("\"imported\":4") && out.contains("\"skipped\":2"), "{out}");
    assert!(out.contains("second_scan"), "{out}");
    assert!(notes.contains("sends no events (ERR not allowed)"), "{notes}");
    assert!(notes.contains("skipped the key odd of database 0: ERR Bad data format"), "{notes}");
    assert_eq!(failure, "skipped 2 keys; all others were imported");
    let twice = [
        "RESTORE a 0 <a> REPLACE",
        "RESTORE odd 0 <odd> REPLACE",
        "RESTORE late 5000 <late> REPLACE",
    ];
    assert_eq!(to.heard("RESTORE"), twice.repeat(4));
    assert_eq!(to.heard("SELECT"), ["SELECT 7", "SELECT 0", "SELECT 7"]);
}

/// A source that sends events. `numbered` answers some commands by the number of their earlier
/// calls; the others are answered as for a server with one key.
fn telling(
    numbered: impl Fn(&str, usize) -> Option<Vec<u8>> + Send + Clone + 'static,
) -> impl Fn(&Words) -> Vec<u8> + Send + Clone + 'static {
    let calls: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    move |words| {
        let texts: Vec<&str> = words.iter().map(|word| str::from_utf8(word).unwrap()).collect();
        let is_ping = texts[0] == "PING";
        let name = if is_ping { "PING".to_owned() } else { texts[..texts.len().min(2)].join(" ") };
        let call = {
            let mut calls = calls.lock().unwrap();
            let call = calls.entry(name.clone()).or_insert(0);
            *call += 1;
            *call - 1
        };
        let answer = numbered(&name, call);
        match (&texts[..], answer) {
            (["PING", token], events) => {
                [events.unwrap_or_default(), array(&["pong", token])].concat()
            }
            (_, Some(answer)) => answer,
            (["CONFIG", "GET", _], _) => array(&["notify-keyspace-events", "Kg"]),
            (["INFO", _], _) => b"$12\r\ndb0:keys=1\r\n\r\n".to_vec(),
            (["SCAN", ..], _) => [&b"*2\r\n$1\r\n0\r\n"[..], &array(&["a"])].concat(),
            (["PTTL", _], _) => b":-1\r\n".to_vec(),
            _ => b"+OK\r\n".to_vec(),
        }
    }
}

fn dumped(payload: &str) -> Option<Vec<u8>> {
    Some(format!("${}\r\n{payload}\r\n", payload.len()).into_bytes())
}

#[test]
fn events_that_come_late_are_awaited() {
    let from = Fake::start(telling(|name, call| match (name, call) {
        // The event comes on the connection of the subscriber, before the answer to its PING.
        ("PING", 0) => Some(array(&["pmessage", "__keyspace@*", "__keyspace@0__:a", "set"])),
        ("DUMP a", 0) => dumped("<old>"),
        ("DUMP a", _) => dumped("<new>"),
        _ => None,
    }));
    let to = target();
    let (out, notes, failure) = run_import(Some(&from.url), None, &to.url);
    assert_eq!((&*notes, &*failure), ("", ""));
    assert!(out.contains("\"changed\":1") && out.contains("\"events\""), "{out}");
    assert_eq!(to.heard("RESTORE"), ["RESTORE a 0 <old> REPLACE", "RESTORE a 0 <new> REPLACE"]);
    let settings =
        ["CONFIG SET notify-keyspace-events KgKA", "CONFIG SET notify-keyspace-events Kg"];
    assert_eq!(from.heard("CONFIG SET"), settings);
}

#[test]
fn streams_are_copied_again_until_they_stay_the_same() {
    let stream = |call: usize| dumped(&format!("\x15<{call}>"));
    let from = Fake::start(telling(move |name, call| match name {
        "DUMP a" => stream(call.min(2)),
        _ => None,
    }));
    let to = target();
    let (out, notes, failure) = run_import(Some(&from.url), None, &to.url);
    assert_eq!((&*notes, &*failure), ("", ""));
    assert!(out.contains("\"changed\":2") && out.contains("\"events\""), "{out}");
    let copies = [0, 1, 2].map(|call| format!("RESTORE a 0 \\x15<{call}> REPLACE"));
    assert_eq!(to.heard("RESTORE"), copies);
    assert_eq!(from.heard("DUMP").len(), 4);

    let from = Fake::start(telling(move |name, call| match name {
        "DUMP a" => stream(call),
        _ => None,
    }));
    let to = target();
    let (_, notes, _) = run_import(Some(&from.url), None, &to.url);
    assert!(notes.contains("still change after 20 rounds"), "{notes}");
    assert_eq!(to.heard("RESTORE").len(), 21);
}

#[test]
fn streams_are_copied_in_the_last_round_although_other_keys_change() {
    let from = Fake::start(telling(|name, call| match name {
        "PING" => Some(array(&["pmessage", "__keyspace@*", "__keyspace@0__:b", "set"])),
        "DUMP a" => dumped(&format!("\x15<{call}>")),
        "DUMP b" => dumped("<b>"),
        _ => None,
    }));
    let to = target();
    let (_, notes, _) = run_import(Some(&from.url), None, &to.url);
    assert!(notes.contains("still change after 20 rounds"), "{notes}");
    assert_eq!(to.heard("RESTORE b").len(), 20);
    let copies = ["RESTORE a 0 \\x15<0> REPLACE", "RESTORE a 0 \\x15<1> REPLACE"];
    assert_eq!(to.heard("RESTORE a"), copies);
}

#[test]
fn the_setting_is_restored_if_the_source_allows_no_subscription() {
    let settings =
        ["CONFIG SET notify-keyspace-events KgKA", "CONFIG SET notify-keyspace-events Kg"];
    let from = Fake::start(telling(|name, _| match name {
        "PSUBSCRIBE __keyspace@*" => Some(b"-NOPERM no channels\r\n".to_vec()),
        "DUMP a" => dumped("<a>"),
        _ => None,
    }));
    let (out, notes, failure) = run_import(Some(&from.url), None, &target().url);
    assert!(notes.contains("sends no events (NOPERM no channels)"), "{notes}");
    assert!(out.contains("second_scan") && failure.is_empty(), "{out} {failure}");
    assert_eq!(from.heard("CONFIG SET"), settings);

    // The second connection is refused.
    let from = Fake::start(telling(|name, call| match (name, call) {
        ("AUTH secret", 1) => Some(b"-ERR max number of clients reached\r\n".to_vec()),
        _ => None,
    }));
    let url = from.url.replace("redis://", "redis://:secret@");
    let (_, _, failure) = run_import(Some(&url), None, &target().url);
    assert!(failure.contains("max number of clients"), "{failure}");
    assert_eq!(from.heard("CONFIG SET"), settings);
}

#[test]
fn a_source_that_refuses_the_token_is_copied_twice() {
    let answer = telling(|name, _| (name == "DUMP a").then(|| dumped("<a>")).flatten());
    let from = Fake::start(move |words| match &words[..] {
        [name, _] if name == b"PING" => b"-ERR only (P)SUBSCRIBE is allowed\r\n".to_vec(),
        _ => answer(words),
    });
    let (out, notes, failure) = run_import(Some(&from.url), None, &target().url);
    assert!(notes.contains("some events of the source were lost"), "{notes}");
    assert!(out.contains("second_scan") && failure.is_empty(), "{out} {failure}");
}

#[test]
fn one_database_may_become_another() {
    let (from, to) = (Fake::start(source), target());
    run_import(Some(&format!("{}/2", from.url)), None, &format!("{}/4", to.url));
    assert_eq!(from.heard("SELECT"), ["SELECT 2"]);
    assert_eq!(to.heard("SELECT"), ["SELECT 4"]);
    let (_, _, failure) = run_import(Some(&from.url), None, &format!("{}/4", to.url));
    assert!(failure.contains("name a database of the source"), "{failure}");
}

/// Imports a list from a file into a target that refuses `RESTORE`, and an `RPUSH` of more than so
/// many words with a text.
fn import_in_parts(words_max: usize, refusal: &'static str) -> (Fake, String, String) {
    let too_much = "ERR The command changes too much at once. Use smaller parts.";
    import_in_parts_after(too_much, words_max, refusal)
}

fn import_in_parts_after(
    answer: &'static str,
    words_max: usize,
    refusal: &'static str,
) -> (Fake, String, String) {
    let elements = (0..4).map(|element| vec![b'0' + element]).collect();
    let mut bytes = b"REDIS0010\xfc\x07\0\0\0\0\0\0\0\x01\x01l".to_vec();
    let mut list = Vec::new();
    Value::List(elements).write(&mut list);
    bytes.extend_from_slice(&list[1..]);
    bytes.push(0xff);
    bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
    let name = format!("thunderhead-parts-{words_max}-{}.rdb", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, &bytes).unwrap();
    let to = Fake::start(move |words| match &words[..] {
        [name, ..] if name == b"RESTORE" => format!("-{answer}\r\n").into_bytes(),
        [name, ..] if name == b"RPUSH" && words.len() > words_max => {
            format!("-{refusal}\r\n").into_bytes()
        }
        _ => b":1\r\n".to_vec(),
    });
    let (_, notes, failure) = run_import(None, Some(&path), &to.url);
    std::fs::remove_file(&path).unwrap();
    (to, notes, failure)
}

#[test]
fn a_value_of_very_many_items_is_written_in_parts() {
    let answer = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    let (to, notes, failure) = import_in_parts_after(answer, 10, "");
    assert_eq!((&*notes, &*failure), ("", ""));
    assert_eq!(to.heard("RPUSH"), ["RPUSH l 0 1 2 3"]);
}

#[test]
fn a_part_that_changes_too_much_is_halved() {
    let (to, notes, failure) = import_in_parts(4, "ERR The command changes too much at once.");
    assert_eq!((&*notes, &*failure), ("", ""));
    assert_eq!(to.heard("RPUSH"), ["RPUSH l 0 1 2 3", "RPUSH l 0 1", "RPUSH l 2 3"]);
    assert_eq!(to.heard("DEL"), ["DEL l"]);
    assert_eq!(to.heard("PEXPIREAT"), ["PEXPIREAT l 7"]);
}

#[test]
fn a_key_is_deleted_and_skipped_if_one_of_its_parts_is_refused() {
    let (to, notes, failure) = import_in_parts(0, "OOM memory is full");
    assert!(notes.contains("skipped the key l of database 0: OOM memory is full"), "{notes}");
    assert!(failure.contains("skipped 1 key"), "{failure}");
    assert_eq!(to.heard("DEL"), ["DEL l", "DEL l"]);
    assert_eq!(to.heard("PEXPIREAT"), [""; 0]);
}

#[test]
fn a_file_is_imported_if_it_is_whole() {
    let mut bytes =
        b"REDIS0010\xfe\x02\x00\x01a\x02hi\xfc\x07\0\0\0\0\0\0\0\x00\x03odd\x01x".to_vec();
    bytes.extend_from_slice(b"\x07\x01m\x05\x00\xfe\x00");
    // A stream that claims two entries and has none, and a string of two gigabytes.
    bytes.extend_from_slice(b"\x0f\x01s\0\x02\x03\x01\0\0\x01l\xc3\x02\x80\x80\0\0\0\0x");
    for key in 0..100 {
        bytes.extend_from_slice(&[0, 2, b'k', key]);
        bytes.extend_from_slice(b"\x01v");
    }
    bytes.push(0xff);
    bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
    let path = std::env::temp_dir().join(format!("thunderhead-{}.rdb", std::process::id()));
    std::fs::write(&path, &bytes).unwrap();
    let to = target();
    let (out, notes, failure) = run_import(None, Some(&path), &to.url);
    assert!(out.contains("\"imported\":101") && out.contains("\"catch_up\":null"), "{out}");
    assert!(notes.contains("skipped the key m of database 2: values of modules"), "{notes}");
    assert!(notes.contains("skipped the key s of database 0: its value is damaged"), "{notes}");
    assert!(notes.contains("skipped the key l of database 0: its value is too long"), "{notes}");
    assert!(failure.contains("skipped 4 keys"), "{failure}");
    let payload = Value::String(b"hi".to_vec()).payload().escape_ascii().to_string();
    assert_eq!(to.heard("RESTORE a"), [format!("RESTORE a 0 {payload} REPLACE ABSTTL")]);
    assert!(to.heard("RESTORE odd")[0].starts_with("RESTORE odd 7 "));
    assert_eq!(to.heard("SELECT"), ["SELECT 2", "SELECT 0"]);
    for (damage, text) in [(15, "its checksum is wrong"), (4, "no RDB file"), (8, "newer than 12")]
    {
        let mut damaged = bytes.clone();
        damaged[damage] = if damage == 8 { b'9' } else { damaged[damage] ^ 1 };
        std::fs::write(&path, &damaged).unwrap();
        let to = target();
        let (_, _, failure) = run_import(None, Some(&path), &to.url);
        assert!(failure.contains(text), "{failure}");
        assert_eq!(to.heard(""), [""; 0], "nothing was written");
    }
    std::fs::write(&path, &bytes[..50]).unwrap();
    let (_, _, failure) = run_import(None, Some(&path), &target().url);
    assert!(failure.contains("ends too early"), "{failure}");
    std::fs::remove_file(&path).unwrap();
    let (_, _, failure) = run_import(None, Some(&path), &target().url);
    assert!(failure.contains("No such file"), "{failure}");
}
