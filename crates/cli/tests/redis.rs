//! `thunderhead redis` as its users run it: started, killed, started again.
#![allow(clippy::disallowed_methods, reason = "the binary is run as a person runs it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_thunderhead");

/// The time for an answer that must come, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Redis {
    process: Child,
    address: String,
}

impl Redis {
    fn start(arguments: &[&str]) -> Redis {
        let mut command = Command::new(PROGRAM);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("THUNDERHEAD_")) {
            command.env_remove(name);
        }
        command.args(["redis", "-p", "0", "--maxmemory", "64mb"]).args(arguments);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let said = line.strip_prefix("Thunderhead serves Redis's clients at ");
        let said = said.unwrap_or_else(|| panic!("{line:?}"));
        let address = said.splitn(3, ':').take(2).collect::<Vec<_>>().join(":");
        Redis { process, address }
    }

    fn kept(data: &Path) -> Redis {
        Redis::start(&["--data", data.to_str().unwrap()])
    }

    /// Ends in order, so that nothing of its data is left in shared memory.
    fn end(mut self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.process.wait().unwrap();
    }

    fn connect(&self) -> Connection {
        let stream = TcpStream::connect(&self.address).expect("the door accepts");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection(BufReader::new(stream))
    }
}

/// It ends like a crash.
impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Connection(BufReader<TcpStream>);

impl Connection {
    fn send(&mut self, commands: &[&str]) {
        let mut bytes = Vec::new();
        for line in commands {
            bytes.extend(command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()));
        }
        self.0.get_mut().write_all(&bytes).expect("the door reads");
    }

    /// Reads a reply; returns its parts in one line.
    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the door answers");
        let line = line.trim_end();
        let count = line.get(1..).and_then(|count| count.parse::<i64>().ok());
        match (line.as_bytes().first(), count) {
            (Some(b'$'), Some(length @ 0..)) => {
                let mut bytes = vec![0; length as usize + 2];
                self.0.read_exact(&mut bytes).expect("the whole reply");
                bytes.truncate(length as usize);
                String::from_utf8_lossy(&bytes).into_owned()
            }
            (Some(b'*'), Some(count @ 0..)) => {
                let parts: Vec<String> = (0..count).map(|_| self.reply()).collect();
                format!("[{}]", parts.join(" "))
            }
            (Some(b'$' | b'*'), _) => "nil".to_owned(),
            _ => line.to_owned(),
        }
    }

    fn ask(&mut self, command: &str) -> String {
        self.send(&[command]);
        self.reply()
    }

    /// Checks the replies to some commands.
    fn expect(&mut self, commands: &[(&str, &str)]) {
        for (command, reply) in commands {
            assert_eq!(self.ask(command), *reply, "{command}");
        }
    }
}

impl Connection {
    /// Writes a string into memory that becomes free soon. On a busy machine that may take longer
    /// than the server waits.
    fn set_soon(&mut self, key: &str, value: &[u8]) {
        let until = Instant::now() + PATIENCE;
        loop {
            self.0.get_mut().write_all(&command(&[b"SET", key.as_bytes(), value])).unwrap();
            let reply = self.reply();
            if !reply.starts_with("-OOM") || Instant::now() > until {
                return assert_eq!(reply, "+OK", "{key}");
            }
        }
    }
}

fn directory(name: &str) -> PathBuf {
    let name = format!("thunderhead-redis-{}-{name}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&directory);
    directory
}

#[test]
fn everything_acknowledged_is_there_again_after_a_crash() {
    let data = directory("crash");
    let server = Redis::kept(&data);
    let mut client = server.connect();
    assert_eq!(client.ask("SET name ada"), "+OK");
    assert_eq!(client.ask("SET soon gone EX 100000"), "+OK");
    assert_eq!(client.ask("SET counter 41"), "+OK");
    assert_eq!(client.ask("INCR counter"), ":42");
    assert_eq!(client.ask("SELECT 3"), "+OK");
    client.send(&["MULTI", "SET a 1", "SET b 2", "DEL a", "EXEC"]);
    let replies: Vec<String> = (0..5).map(|_| client.reply()).collect();
    assert_eq!(replies[4], "[+OK +OK :1]");
    drop(server);
    let server = Redis::kept(&data);
    let mut client = server.connect();
    assert_eq!(client.ask("MGET name counter soon none"), "[ada 42 gone nil]");
    let left = client.ask("TTL soon").trim_start_matches(':').parse::<u32>().unwrap();
    assert!((90_000..=100_000).contains(&left));
    assert_eq!(client.ask("DBSIZE"), ":3");
    assert_eq!(client.ask("SELECT 3"), "+OK");
    assert_eq!((client.ask("GET b"), client.ask("DBSIZE")), ("2".to_owned(), ":1".to_owned()));
    server.end();
    std::fs::remove_dir_all(&data).unwrap();
}

#[test]
fn databases_that_were_cleared_or_exchanged_stay_so_after_a_crash() {
    let data = directory("databases");
    for round in 0..3 {
        let server = Redis::kept(&data);
        let mut client = server.connect();
        if round > 0 {
            assert_eq!(client.ask("MGET a b"), "[nil two]", "{round}");
            assert_eq!(client.ask("DBSIZE"), ":1");
            client.ask("SELECT 1");
            assert_eq!(client.ask("MGET a b"), "[one nil]", "{round}");
            client.ask("SELECT 2");
            assert_eq!(client.ask("KEYS *"), "[]");
            assert_eq!(client.ask("FLUSHALL"), "+OK");
            client.ask("SELECT 0");
        }
        assert_eq!(client.ask("SET a one"), "+OK");
        client.ask("SELECT 1");
        client.ask("SET b two");
        assert_eq!(client.ask("SWAPDB 0 1"), "+OK");
        client.ask("SELECT 2");
        // More than the empty tables in stock.
        for number in 0..10 {
            assert_eq!(client.ask(&format!("SET key{number} x")), "+OK");
            client.send(&["MULTI", "FLUSHDB", "SET after x", "EXEC"]);
            let replies: Vec<String> = (0..4).map(|_| client.reply()).collect();
            assert_eq!(replies[3], "[+OK +OK]");
            assert_eq!(client.ask("KEYS *"), "[after]");
        }
        assert_eq!(client.ask("FLUSHDB"), "+OK");
    }
    Redis::kept(&data).end();
    std::fs::remove_dir_all(&data).unwrap();
}

/// Writes long values until the server is full; returns their number.
fn fill(client: &mut Connection) -> usize {
    let value = "v".repeat(100_000);
    let mut number = 0;
    while client.ask(&format!("SET key{number} {value}")) == "+OK" {
        number += 1;
    }
    number
}

#[test]
fn a_full_server_starts_again_and_a_cleared_one_takes_writes_at_once() {
    let data = directory("full");
    let server = Redis::kept(&data);
    let number = fill(&mut server.connect());
    drop(server);
    let server = Redis::kept(&data);
    let mut client = server.connect();
    assert_eq!(client.ask("DBSIZE"), format!(":{number}"));
    assert_eq!(client.ask("STRLEN key0"), ":100000");
    client.send(&["MULTI", "FLUSHALL", "SET a 1", "EXEC"]);
    let replies: Vec<String> = (0..4).map(|_| client.reply()).collect();
    assert_eq!(replies[3], "[+OK +OK]");
    assert_eq!(client.ask("DBSIZE"), ":1");
    for number in 0..100 {
        client.set_soon(&format!("key{number}"), "w".repeat(100_000).as_bytes());
    }
    server.end();
    std::fs::remove_dir_all(&data).unwrap();
}

#[test]
fn a_start_with_too_little_memory_fails_and_says_how_much_is_needed() {
    let data = directory("short");
    let server = Redis::kept(&data);
    let number = fill(&mut server.connect());
    server.end();
    let place = data.to_str().unwrap();
    let arguments = ["redis", "-p", "0", "--maxmemory", "48mb", "--data", place];
    let output = Command::new(PROGRAM).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("MB of memory, and --maxmemory gives 48 MB"), "{said}");
    let server = Redis::kept(&data);
    assert_eq!(server.connect().ask("DBSIZE"), format!(":{number}"));
    server.end();
    std::fs::remove_dir_all(&data).unwrap();
}

#[test]
fn a_transaction_may_begin_all_databases_at_once() {
    let server = Redis::start(&[]);
    let mut client = server.connect();
    for _ in 0..3 {
        let mut commands = vec!["MULTI".to_owned()];
        for database in 0..16 {
            commands.push(format!("SELECT {database}"));
            commands.push("SET a 1".to_owned());
        }
        commands.push("EXEC".to_owned());
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        client.send(&commands);
        let replies: Vec<String> = commands.iter().map(|_| client.reply()).collect();
        assert_eq!(replies.last(), Some(&format!("[{}]", ["+OK"; 32].join(" "))));
        assert_eq!(client.ask("FLUSHALL"), "+OK");
        assert_eq!(client.ask("DBSIZE"), ":0");
    }
}

#[test]
fn messages_reach_subscribers_and_a_watched_key_stops_a_transaction() {
    let server = Redis::start(&[]);
    let (mut one, mut other) = (server.connect(), server.connect());
    assert_eq!(one.ask("SUBSCRIBE news"), "[subscribe news :1]");
    assert_eq!(other.ask("PUBLISH news hello"), ":1");
    assert_eq!(one.reply(), "[message news hello]");
    let mut third = server.connect();
    assert_eq!(third.ask("WATCH k"), "+OK");
    assert_eq!(other.ask("SET k 1"), "+OK");
    third.send(&["MULTI", "SET k 2", "EXEC"]);
    let replies: Vec<String> = (0..3).map(|_| third.reply()).collect();
    assert_eq!(replies, ["+OK", "+QUEUED", "nil"]);
    assert_eq!(third.ask("GET k"), "1");
    // A cleared or exchanged database changes its keys, too.
    for change in [&["FLUSHDB", "SET k 2"][..], &["SELECT 1", "SET k 2", "SWAPDB 0 1", "SELECT 0"]]
    {
        assert_eq!(third.ask("WATCH k"), "+OK");
        change.iter().for_each(|command| assert_eq!(other.ask(command), "+OK"));
        third.send(&["MULTI", "SET k 3", "EXEC"]);
        let replies: Vec<String> = (0..3).map(|_| third.reply()).collect();
        assert_eq!(replies, ["+OK", "+QUEUED", "nil"], "{change:?}");
    }
}

#[test]
fn a_client_that_is_gone_takes_no_element_whatever_it_sent_behind_its_wait() {
    let server = Redis::start(&[]);
    let mut other = server.connect();
    for behind in [&[][..], &["PING", "RPUSH queue late"], &["BLPOP queue 0"]] {
        let mut gone = server.connect();
        gone.send(&[&["BLPOP queue 0"], behind].concat());
        gone.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        gone.0.read_to_end(&mut rest).expect("the door closes the connection");
        assert_eq!(rest, b"", "{behind:?}");
        assert_eq!(other.ask("RPUSH queue first"), ":1", "{behind:?}");
        assert_eq!(other.ask("LPOP queue"), "first", "{behind:?}");
    }
}

#[test]
fn a_full_server_refuses_writes_or_evicts_as_its_policy_says() {
    let value = "v".repeat(100_000);
    let server = Redis::start(&[]);
    let mut client = server.connect();
    let number = fill(&mut client);
    let refused = client.ask(&format!("SET key{number} {value}"));
    assert!(refused.starts_with("-OOM command not allowed when used memory"), "{refused}");
    assert!(number > 300, "{number}");
    assert_eq!(client.ask("STRLEN key0"), ":100000");
    assert_eq!(client.ask("DEL key0"), ":1");
    let server = Redis::start(&["--maxmemory-policy", "allkeys-lru"]);
    let mut client = server.connect();
    for number in 0..2000 {
        assert_eq!(client.ask(&format!("SET key{number} {value}")), "+OK");
    }
    assert_eq!(client.ask("EXISTS key0 key1999"), ":1");
    // A list of more than lies between the high-water mark and the limit.
    let many: Vec<String> = (0..20).map(|number| format!("many{number} {value}")).collect();
    assert_eq!(client.ask(&format!("MSET {}", many.join(" "))), "+OK");
}

#[test]
fn a_cache_of_large_collections_evicts_no_more_than_it_must() {
    let server = Redis::start(&["--maxmemory-policy", "allkeys-lru"]);
    let mut client = server.connect();
    let elements = vec!["v".repeat(1000); 500].join(" ");
    for number in 0..200 {
        let pushed = client.ask(&format!("RPUSH list{number} {elements}"));
        assert_eq!(pushed, ":500", "list{number}");
    }
    let kept = client.ask("DBSIZE").trim_start_matches(':').parse::<u32>().unwrap();
    assert!(kept >= 60, "{kept} of about 90 lists that fit");
    assert_eq!(client.ask("LLEN list199"), ":500");
}

#[test]
fn a_change_that_is_too_much_at_once_is_refused_with_advice() {
    let server = Redis::start(&[]);
    let mut client = server.connect();
    let pushed = format!("RPUSH list {}", vec!["v".repeat(100_000); 50].join(" "));
    let advice = "ERR The command changes too much at once. Use smaller parts.";
    assert_eq!(client.ask(&pushed), format!("-{advice}"));
    assert_eq!(client.ask("EXISTS list"), ":0");
    client.send(&["MULTI", "SET key 1", &pushed, "EXEC"]);
    let replies: Vec<String> = (0..4).map(|_| client.reply()).collect();
    assert!(replies[3].contains(advice.trim_start_matches("ERR ")), "{replies:?}");
    assert_eq!(client.ask("EXISTS key list"), ":0");
    let script = "for i = 1, 50 do redis.call('RPUSH',KEYS[1],string.rep('v',100000)) end";
    client.0.get_mut().write_all(&eval(script, "list")).unwrap();
    let refused = client.reply();
    assert!(refused.contains("changes too much at once"), "{refused}");
    assert_eq!(client.ask("EXISTS list"), ":0");
}

#[test]
fn many_scattered_elements_of_a_long_list_are_removed() {
    let server = Redis::start(&[]);
    let mut client = server.connect();
    let value = "v".repeat(500);
    let some = format!("RPUSH list{}", format!(" {value} x").repeat(100));
    for number in 1..=400 {
        assert_eq!(client.ask(&some), format!(":{}", number * 200));
    }
    // The changed pages have about 16 MB.
    assert_eq!(client.ask("LREM list -32000 x"), ":32000");
    assert_eq!(client.ask("LREM list 0 x"), ":8000");
    assert_eq!(client.ask("LLEN list"), ":40000");
    assert_eq!(client.ask("LPOS list x"), "nil");
}

/// Returns a command with values of any bytes.
fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[test]
fn a_string_of_many_megabytes_is_whole_after_a_crash_also_if_it_was_being_replaced() {
    let data = directory("long");
    let (old, new) = (vec![b'o'; 9 << 20], vec![b'n'; 9 << 20]);
    let server = Redis::kept(&data);
    let mut client = server.connect();
    client.0.get_mut().write_all(&command(&[b"SET", b"k", &old])).unwrap();
    assert_eq!(client.reply(), "+OK");
    assert_eq!(client.ask("APPEND k end"), ":9437187");
    // The client does not wait for the answer to this one.
    client.0.get_mut().write_all(&command(&[b"SET", b"k", &new])).unwrap();
    drop(server);
    let server = Redis::kept(&data);
    let mut client = server.connect();
    let found = client.ask("GET k");
    let is_old =
        found.len() == old.len() + 3 && found.trim_end_matches("end").bytes().all(|it| it == b'o');
    let is_new = found.len() == new.len() && found.bytes().all(|it| it == b'n');
    assert!(is_old || is_new, "{} bytes", found.len());
    // The memory of many replaced strings becomes free: all of them would not fit.
    for _ in 0..20 {
        client.set_soon("k", &new);
    }
    assert_eq!(client.ask("STRLEN k"), ":9437184");
    // A string that is longer than a segment, and not much shorter than all memory.
    let longest = vec![b'l'; 16 << 20];
    assert_eq!(client.ask("DEL k"), ":1");
    client.set_soon("l", &longest);
    assert_eq!(client.ask("GETRANGE l -3 -1"), "lll");
    server.end();
    std::fs::remove_dir_all(&data).unwrap();
}

/// Returns the command that executes a script with one key.
fn eval(script: &str, key: &str) -> Vec<u8> {
    let words = ["EVAL", script, "1", key];
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*4\r\n{}", words.collect::<String>()).into_bytes()
}

#[test]
fn settings_that_harm_are_refused_with_advice() {
    for (arguments, advice) in [
        (&["--maxmemory-policy", "allkeyslru"][..], "allkeys-lru"),
        (&["--bind", "*", "--requirepass", ""], "empty password"),
        (&["--bind", "0.0.0.0"][..], "--requirepass"),
        (&["--appendonly", "yes"], "--data"),
        (&["--maxmemory", "1kb"], "at least 8 MB"),
    ] {
        let output = Command::new(PROGRAM).arg("redis").args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(advice), "{errors}");
    }
    let server = Redis::start(&["--requirepass", "secret"]);
    let mut client = server.connect();
    assert_eq!(client.ask("GET a"), "-NOAUTH Authentication required.");
    assert_eq!(client.ask("AUTH secret"), "+OK");
    assert_eq!(client.ask("GET a"), "nil");
}

#[test]
fn fields_that_expire_and_sketches_are_there_again_after_a_crash() {
    let data = directory("fields");
    let server = Redis::kept(&data);
    let mut client = server.connect();
    assert_eq!(client.ask("HSET h a 1 b 2 c 3"), ":3");
    assert_eq!(client.ask("HEXPIRE h 100000 FIELDS 2 a b"), "[:1 :1]");
    assert_eq!(client.ask("HSET other a 1"), ":1");
    assert_eq!(client.ask("HEXPIRE other 100000 FIELDS 1 a"), "[:1]");
    assert_eq!(client.ask("HPERSIST other FIELDS 1 a"), "[:1]");
    assert_eq!(client.ask("PFADD p a b c"), ":1");
    assert_eq!(client.ask("GEOADD g 15 37 a"), ":1");
    drop(server);
    let server = Redis::kept(&data);
    let mut client = server.connect();
    assert_eq!(client.ask("HGETALL h"), "[a 1 b 2 c 3]");
    let left = client.ask("HTTL h FIELDS 1 a");
    let left = left.trim_matches(['[', ']', ':']).parse::<u32>().unwrap();
    assert!((90_000..=100_000).contains(&left));
    assert_eq!(client.ask("HTTL h FIELDS 2 c none"), "[:-1 :-2]");
    assert_eq!(client.ask("HTTL other FIELDS 1 a"), "[:-1]");
    assert_eq!(client.ask("HEXPIREAT h 1 FIELDS 3 a b c"), "[:2 :2 :2]");
    assert_eq!(client.ask("EXISTS h"), ":0");
    assert_eq!((client.ask("PFCOUNT p"), client.ask("ZCARD g")), (":3".into(), ":1".into()));
    server.end();
    std::fs::remove_dir_all(&data).unwrap();
}

/// Reads a command of a client. Returns its words and its bytes; `None` at the end.
fn read_command(input: &mut impl BufRead) -> Option<(Vec<String>, Vec<u8>)> {
    let number = |input: &mut dyn BufRead, bytes: &mut Vec<u8>| {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        bytes.extend_from_slice(line.as_bytes());
        line.trim_end().get(1..)?.parse::<usize>().ok()
    };
    let (mut words, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..number(input, &mut bytes)? {
        let mut word = vec![0; number(input, &mut bytes)? + 2];
        input.read_exact(&mut word).ok()?;
        bytes.extend_from_slice(&word);
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Some((words, bytes))
}

/// Starts to pass commands and replies between clients and a server. A function hears each command
/// before the server does. Returns the address for clients.
fn passing(server: String, before: impl FnMut(&[String]) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let before = Arc::new(Mutex::new(before));
    // The threads end with the process, or with their connections.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let (mut replies, mut back) =
                (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut replies, &mut back);
                let _ = back.shutdown(Shutdown::Both);
            });
            let before = Arc::clone(&before);
            std::thread::spawn(move || {
                let mut input = BufReader::new(&mut client);
                while let Some((words, bytes)) = read_command(&mut input) {
                    before.lock().unwrap()(&words);
                    if server.write_all(&bytes).is_err() {
                        break;
                    }
                }
                let _ = server.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

/// The changes come when the import has copied all keys, and once more after its next round.
#[test]
fn changes_during_an_import_are_imported() {
    let (old, new) = (Redis::start(&[]), Redis::start(&[]));
    let mut client = old.connect();
    client.expect(&[
        ("CONFIG SET notify-keyspace-events Kgm", "+OK"),
        ("MSET changed 1 deleted 1 renamed 1 expiring 1 same 1", "+OK"),
        ("SELECT 2", "+OK"),
        ("MSET changed 1 deleted 1 renamed 1 expiring 1 same 1", "+OK"),
        ("XADD x 1-1 a 1", "1-1"),
        ("XADD x 2-1 a 2", "2-1"),
        ("XGROUP CREATE x workers 0", "+OK"),
        ("XREADGROUP GROUP workers w COUNT 1 STREAMS x >", "[[x [[1-1 [a 1]]]]]"),
    ]);
    let mut rounds = 0;
    let mut change = old.connect();
    let between = passing(old.address.clone(), move |words| {
        // The import sends a PING with a token at the begin of each round.
        if words.len() != 2 || words[0] != "PING" {
            return;
        }
        rounds += 1;
        match rounds {
            1 => change.expect(&[
                ("SET changed 2", "+OK"),
                ("DEL deleted", ":1"),
                ("RENAME renamed new", "+OK"),
                ("EXPIRE expiring 100000", ":1"),
                ("SELECT 2", "+OK"),
                ("SET changed 3", "+OK"),
                ("DEL deleted", ":1"),
                ("RENAME renamed new", "+OK"),
                ("EXPIRE expiring 100000", ":1"),
                ("XACK x workers 1-1", ":1"),
            ]),
            2 => change.expect(&[
                ("SET changed 4", "+OK"),
                ("XREADGROUP GROUP workers w STREAMS x >", "[[x [[2-1 [a 2]]]]]"),
            ]),
            _ => {}
        }
    });
    let (from, to) = (format!("redis://{between}"), format!("redis://{}", new.address));
    let mut import = Command::new(PROGRAM);
    let done = import.args(["import", "--json", "--from", &from, "--to", &to]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    let notes = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said} {notes}");
    assert!(said.contains("\"catch_up\":\"events\""), "{said}");
    assert_eq!(notes, "");
    let mut imported = new.connect();
    for (database, changed) in [(0, 2), (2, 4)] {
        imported.expect(&[
            (&format!("SELECT {database}"), "+OK"),
            (
                "MGET changed deleted renamed new expiring same",
                &format!("[{changed} nil nil 1 1 1]"),
            ),
        ]);
        let left = imported.ask("TTL expiring").trim_start_matches(':').parse::<u32>().unwrap();
        assert!((90_000..=100_000).contains(&left));
    }
    imported.expect(&[("XPENDING x workers", "[:1 2-1 2-1 [[w 1]]]"), ("DBSIZE", ":5")]);
    let setting = client.ask("CONFIG GET notify-keyspace-events");
    assert!(!setting.contains('A') && setting.contains('m'), "{setting}");
}

/// Returns the words of a reply in their order, without times that an import does not keep.
fn words_of(reply: &str) -> Vec<String> {
    let words: Vec<&str> = reply.split([' ', '[', ']']).filter(|word| !word.is_empty()).collect();
    let is_time = |name: &str| {
        matches!(name, "seen-time" | "active-time" | "radix-tree-keys" | "radix-tree-nodes")
    };
    let kept = (0..words.len()).filter(|at| *at == 0 || !is_time(words[at - 1]));
    kept.map(|at| words[at].to_owned()).collect()
}

#[test]
fn collections_that_are_too_large_for_one_change_are_imported_in_parts() {
    let (old, new) = (Redis::start(&[]), Redis::start(&[]));
    let mut client = old.connect();
    let elements = vec!["v".repeat(100_000); 10].join(" ");
    for pushed in 1..=6 {
        assert_eq!(client.ask(&format!("RPUSH list {elements}e{pushed}")), format!(":{pushed}0"));
    }
    let value = "v".repeat(900);
    for part in 0..50 {
        let numbers = part * 100..part * 100 + 100;
        let some =
            |item: &dyn Fn(u32) -> String| numbers.clone().map(item).collect::<Vec<_>>().join(" ");
        let members = some(&|number| format!("{number}{value}"));
        assert_eq!(client.ask(&format!("SADD set {members}")), ":100");
        let fields = some(&|number| format!("f{number} {number}{value}"));
        assert_eq!(client.ask(&format!("HSET hash {fields}")), ":100");
        let scored = some(&|number| format!("{}.1 m{number}{value}", number / 2));
        assert_eq!(client.ask(&format!("ZADD scores {scored}")), ":100");
        let added: Vec<String> =
            numbers.map(|number| format!("XADD x {}-1 a {value}", number + 1)).collect();
        client.send(&added.iter().map(|line| &**line).collect::<Vec<_>>());
        added.iter().for_each(|_| assert!(client.reply().ends_with("-1")));
    }
    client.expect(&[
        ("ZADD scores inf a -inf b -0 c 0.1 d 1.7976931348623157e308 e 5e-324 f 0.30000000000000004 g", ":7"),
        ("HPEXPIREAT hash 9999999999999 FIELDS 2 f1 f4000", "[:1 :1]"),
        ("HPEXPIREAT hash 9999999999998 FIELDS 1 f2", "[:1]"),
        ("PEXPIREAT scores 9999999999997", ":1"),
        ("XGROUP CREATE x workers 0", "+OK"),
        ("XGROUP CREATE x other 7-1 ENTRIESREAD 3", "+OK"),
        ("XGROUP CREATECONSUMER x workers idle", ":1"),
    ]);
    client.ask("XREADGROUP GROUP workers w COUNT 1500 STREAMS x >");
    client.expect(&[
        ("XACK x workers 3-1", ":1"),
        ("XCLAIM x workers other 0 5-1 6-1 RETRYCOUNT 7 TIME 1000 JUSTID", "[5-1 6-1]"),
        ("XDEL x 5000-1 4000-1", ":2"),
        ("SET key 1", "+OK"),
    ]);
    assert_eq!(new.connect().ask("SET list before"), "+OK");
    let (from, to) = (format!("redis://{}", old.address), format!("redis://{}", new.address));
    let mut import = Command::new(PROGRAM);
    let done = import.args(["import", "--from", &from, "--to", &to]).output().unwrap();
    let notes = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{notes}");
    assert_eq!(notes, "");
    let mut imported = new.connect();
    for command in [
        "LRANGE list 0 -1",
        "ZRANGE scores 0 -1 WITHSCORES",
        "HPEXPIRETIME hash FIELDS 4 f1 f2 f3 f4000",
        "XINFO STREAM x FULL COUNT 0",
        "DBSIZE",
    ] {
        let (one, other) = (client.ask(command), imported.ask(command));
        assert!(words_of(&one) == words_of(&other), "{command}");
    }
    let [one, other] = [client.ask("PEXPIRETIME scores"), imported.ask("PEXPIRETIME scores")]
        .map(|it| it.trim_start_matches(':').parse::<u64>().unwrap());
    assert!(one.abs_diff(other) < 60_000, "{one} {other}");
    // These have no order.
    for command in ["SMEMBERS set", "HGETALL hash"] {
        let [mut one, mut other] =
            [client.ask(command), imported.ask(command)].map(|it| words_of(&it));
        one.sort();
        other.sort();
        assert!(one.len() >= 5000 && one == other, "{command}");
    }
}

#[test]
fn keys_are_imported_from_another_server() {
    let (old, new) = (Redis::start(&["--requirepass", "secret"]), Redis::start(&[]));
    let mut client = old.connect();
    assert_eq!(client.ask("AUTH secret"), "+OK");
    for key in 0..200 {
        assert_eq!(client.ask(&format!("SET k{key} {key} EX 100000")), "+OK");
    }
    assert_eq!(client.ask("SELECT 2"), "+OK");
    assert_eq!(client.ask("HSET h a 1 b 2"), ":2");
    assert_eq!(client.ask("HEXPIRE h 100000 FIELDS 1 b"), "[:1]");
    assert_eq!(client.ask("XADD x 1-1 a 1"), "1-1");
    assert_eq!(client.ask("XADD x 2-1 a 2"), "2-1");
    assert_eq!(client.ask("XGROUP CREATE x workers 0"), "+OK");
    let read = client.ask("XREADGROUP GROUP workers w COUNT 1 STREAMS x >");
    assert_eq!(read, "[[x [[1-1 [a 1]]]]]");
    let from = format!("redis://:secret@{}", old.address);
    let to = format!("redis://{}", new.address);
    let mut import = Command::new(PROGRAM);
    let done = import.args(["import", "--from", &from, "--to", &to]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said} {}", String::from_utf8_lossy(&done.stderr));
    assert!(said.starts_with("imported "), "{said}");
    let notes = String::from_utf8_lossy(&done.stderr);
    assert!(!notes.contains("sends no events"), "{notes}");
    let mut client = new.connect();
    assert_eq!(client.ask("DBSIZE"), ":200");
    assert_eq!(client.ask("MGET k0 k199"), "[0 199]");
    let left = client.ask("TTL k7").trim_start_matches(':').parse::<u32>().unwrap();
    assert!((90_000..=100_000).contains(&left));
    assert_eq!(client.ask("SELECT 2"), "+OK");
    assert_eq!(client.ask("HGETALL h"), "[a 1 b 2]");
    assert_eq!(client.ask("HTTL h FIELDS 1 a"), "[:-1]");
    assert_eq!(client.ask("XPENDING x workers"), "[:1 1-1 1-1 [[w 1]]]");
    let read = client.ask("XREADGROUP GROUP workers w STREAMS x >");
    assert_eq!(read, "[[x [[2-1 [a 2]]]]]");
}
