//! The door for memcached's clients, over the machine's own loopback: a server as a user has it.
#![allow(clippy::disallowed_methods, reason = "a client of another protocol has its own sockets")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thunderhead_client::{Client, Options as ClientOptions};
use thunderhead_net::stream::StreamAddress;
use thunderhead_server::{
    BackupOptions, DoorLimits, DoorOptions, DoorProtocol, Ended, LocalCluster, LocalOptions,
    MemcachedOptions, TableBehind,
};
use thunderhead_wire::control::Settings;

/// A server with a door, and the thread that makes its table.
struct Memcached {
    local: Option<LocalCluster>,
    table: Arc<TableBehind>,
    address: SocketAddr,
    flushes: Option<std::thread::JoinHandle<()>>,
}

const TABLE: &str = "memcached";

impl Memcached {
    /// Starts a server: durable in a directory, or in memory.
    fn start(directory: Option<&Path>, limits: DoorLimits) -> Memcached {
        let table = Arc::new(TableBehind::default());
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let door = Arc::new(DoorOptions {
            listen: vec![StreamAddress::Tcp(any)],
            protocol: DoorProtocol::Memcached(MemcachedOptions {
                limits,
                table: Arc::clone(&table),
            }),
            cluster: None,
            listens: Arc::default(),
        });
        let replicas = u32::from(directory.is_some());
        let small = LocalOptions::small(directory.unwrap_or(&std::env::temp_dir()).to_owned());
        let options = LocalOptions {
            in_memory: directory.is_none(),
            memory_bytes: limits.memory_bytes as usize,
            backup: directory.map(|_| BackupOptions { sparse: true, ..BackupOptions::default() }),
            settings: Settings { replicas, min_replicas: replicas, ..small.settings.clone() },
            door: Some(Arc::clone(&door)),
            ..small
        };
        let local = LocalCluster::start(&options).expect("the server starts");
        for server in local.servers() {
            server.generation().wait_until_serving();
        }
        let deadline = Some(Duration::from_secs(60));
        let options = ClientOptions::new([local.coordinator()]).deadline(deadline);
        let mut client = Client::connect(&options).expect("the coordinator answers");
        table.set_table(client.ensure_table(TABLE, 1).expect("a table"));
        let Some(StreamAddress::Tcp(address)) = door.listens.get().and_then(|it| it.first()) else {
            panic!("the door listens");
        };
        let of_thread = Arc::clone(&table);
        let mut make_anew = move || {
            client.drop_table(TABLE).expect("the table is there");
            client.ensure_table(TABLE, 1).ok()
        };
        let flushes = std::thread::spawn(move || of_thread.serve_flushes(&mut make_anew));
        Memcached { address: *address, local: Some(local), table, flushes: Some(flushes) }
    }

    fn in_memory() -> Memcached {
        Memcached::start(None, limits())
    }

    fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).expect("the door accepts");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
        Connection(BufReader::new(stream))
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        self.table.end();
        if let Some(flushes) = self.flushes.take() {
            let _ = flushes.join();
        }
        if let Some(local) = self.local.take() {
            local.leave();
            assert_eq!(local.join(), Ended::Asked);
        }
    }
}

fn limits() -> DoorLimits {
    DoorLimits {
        memory_bytes: 64 << 20,
        value_bytes: 100 << 10,
        connections: 50,
        may_flush: true,
        evicts: true,
    }
}

struct Connection(BufReader<TcpStream>);

impl Connection {
    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("the door reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the door answers");
        line
    }

    /// Sends a request, and returns the lines of its answer, up to a last line.
    fn ask(&mut self, request: &str, last: &str) -> Vec<String> {
        self.send(format!("{request}\r\n").as_bytes());
        let mut lines = Vec::new();
        loop {
            let line = self.line();
            let line = line.trim_end().to_owned();
            let is_last = line == last || line.is_empty();
            lines.push(line);
            if is_last {
                return lines;
            }
        }
    }

    /// Sends a request whose answer has one line.
    fn one(&mut self, request: &str) -> String {
        self.send(format!("{request}\r\n").as_bytes());
        self.line().trim_end().to_owned()
    }

    /// The rest, up to the end of the stream.
    fn rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).expect("the door closes the stream");
        rest
    }

    fn statistic(&mut self, name: &str) -> u64 {
        let lines = self.ask("stats", "END");
        let prefix = format!("STAT {name} ");
        let value = lines.iter().find_map(|line| line.strip_prefix(&prefix));
        value.unwrap_or_else(|| panic!("{lines:?}")).parse().unwrap()
    }
}

#[test]
fn clients_write_read_count_and_remove_objects() {
    let server = Memcached::in_memory();
    let mut client = server.connect();
    assert_eq!(client.one("set a 7 0 5\r\nhello"), "STORED");
    assert_eq!(client.ask("get a b", "END"), ["VALUE a 7 5", "hello", "END"]);
    assert_eq!(client.one("add a 0 0 1\r\nx"), "NOT_STORED");
    assert_eq!(client.one("append a 0 0 1\r\n!"), "STORED");
    let cas = client.ask("gets a", "END")[0].clone();
    let version = cas.rsplit(' ').next().unwrap();
    assert_eq!(client.one(&format!("cas a 1 0 1 {version}\r\nz")), "STORED");
    assert_eq!(client.one(&format!("cas a 1 0 1 {version}\r\nz")), "EXISTS");
    assert_eq!(client.one("set n 0 0 2\r\n41"), "STORED");
    assert_eq!(client.one("incr n 1"), "42");
    assert_eq!(client.one("decr n 50"), "0");
    assert_eq!(client.one("touch n 100"), "TOUCHED");
    assert_eq!(client.one("mg n t h"), "HD t100 h1");
    assert_eq!(client.one("delete n"), "DELETED");
    assert_eq!(client.one("delete n"), "NOT_FOUND");
    assert_eq!(client.one("set past 0 -1 1\r\nx"), "STORED");
    assert_eq!(client.ask("get past", "END"), ["END"]);
    assert!(client.one("version").starts_with("VERSION 1."));
    assert_eq!(client.one("nonsense"), "ERROR");
    assert_eq!(client.one("verbosity 1"), "OK");
    assert_eq!(client.one("shutdown"), "ERROR: shutdown not enabled");
    assert_eq!(client.statistic("cmd_set"), 7);
    assert_eq!(client.statistic("cas_badval"), 1);
    assert_eq!((client.statistic("delete_hits"), client.statistic("delete_misses")), (1, 1));
    assert_eq!(client.statistic("get_misses"), 2);
    client.send(b"quit\r\n");
    assert_eq!(client.rest(), b"");
}

/// The version that `gets` shows.
fn version(client: &mut Connection, key: &str) -> u64 {
    client.ask(&format!("gets {key}"), "END")[0].rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn versions_are_unique_and_a_touch_does_not_change_them_with_and_without_eviction() {
    for evicts in [true, false] {
        let server = Memcached::start(None, DoorLimits { evicts, ..limits() });
        let mut client = server.connect();
        for key in ["a", "b", "a", "c"] {
            assert_eq!(client.one(&format!("set {key} 0 0 1\r\nx")), "STORED");
        }
        let before = ["a", "b", "c"].map(|key| version(&mut client, key));
        let mut sorted = before;
        sorted.sort_unstable();
        assert!(sorted.is_sorted_by(|a, b| a < b), "{before:?}");
        for key in ["b", "a", "b"] {
            assert_eq!(client.one(&format!("touch {key} 1000")), "TOUCHED");
        }
        assert_eq!(client.one("mg a T500 t"), "HD t500");
        assert_eq!(["a", "b", "c"].map(|key| version(&mut client, key)), before);
        assert_eq!(client.one(&format!("cas a 0 0 1 {}\r\ny", before[0])), "STORED");
        let after = version(&mut client, "a");
        assert!(before.iter().all(|version| *version < after));
    }
}

#[test]
fn it_does_not_matter_in_which_pieces_requests_arrive() {
    let server = Memcached::in_memory();
    let requests = b"set k 1 0 4\r\nab\r\n\r\nget k\r\nset q 0 0 1 noreply\r\nx\r\nget q\r\nmn\r\n";
    let answer = b"STORED\r\nVALUE k 1 4\r\nab\r\n\r\nEND\r\nVALUE q 0 1\r\nx\r\nEND\r\nMN\r\n";
    for piece in [1, 2, 3, 7, requests.len()] {
        let mut client = server.connect();
        for bytes in requests.chunks(piece) {
            client.send(bytes);
        }
        let mut found = vec![0; answer.len()];
        client.0.read_exact(&mut found).unwrap();
        assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(answer), "{piece}");
    }
}

#[test]
fn a_long_answer_goes_on_as_the_client_reads_and_requests_behind_it_wait() {
    let server = Memcached::in_memory();
    let mut client = server.connect();
    let value = "v".repeat(100 << 10);
    assert_eq!(client.one(&format!("set big 0 0 {}\r\n{value}", value.len())), "STORED");
    // 300 times 100 KiB: far more than may wait on a connection.
    let keys = ["big"; 300].join(" ");
    client.send(format!("get {keys}\r\nset after 0 0 1\r\nx\r\nmn\r\n").as_bytes());
    for number in 0..300 {
        assert_eq!(client.line().trim_end(), format!("VALUE big 0 {}", value.len()), "{number}");
        assert_eq!(client.line().trim_end().len(), value.len());
    }
    assert_eq!(client.line(), "END\r\n");
    assert_eq!((client.line().as_str(), client.line().as_str()), ("STORED\r\n", "MN\r\n"));
}

#[test]
fn flush_all_removes_everything_at_once_and_may_be_forbidden() {
    let server = Memcached::in_memory();
    let (mut one, mut other) = (server.connect(), server.connect());
    for number in 0..200 {
        assert_eq!(one.one(&format!("set key{number} 0 0 1\r\nx")), "STORED");
    }
    assert_eq!(one.one("flush_all"), "OK");
    assert_eq!(other.ask("get key0 key199", "END"), ["END"]);
    assert_eq!(other.one("set key0 0 0 1\r\ny"), "STORED");
    assert_eq!(one.ask("get key0", "END"), ["VALUE key0 0 1", "y", "END"]);
    assert_eq!(one.statistic("curr_items"), 1);
    drop((one, other, server));
    let server = Memcached::start(None, DoorLimits { may_flush: false, ..limits() });
    assert_eq!(server.connect().one("flush_all"), "CLIENT_ERROR flush_all not allowed");
}

#[test]
fn a_later_flush_happens_when_its_time_comes() {
    let server = Memcached::in_memory();
    let mut client = server.connect();
    assert_eq!(client.one("set a 0 0 1\r\nx"), "STORED");
    assert_eq!(client.one("flush_all 1"), "OK");
    while client.ask("get a", "END").len() > 1 {}
    assert_eq!(client.one("set a 0 0 1\r\ny"), "STORED");
    assert_eq!(client.ask("get a", "END"), ["VALUE a 0 1", "y", "END"]);
}

#[test]
fn a_full_server_that_does_not_evict_refuses_writes_and_keeps_all() {
    let limits = DoorLimits { memory_bytes: 16 << 20, evicts: false, ..limits() };
    let server = Memcached::start(None, limits);
    let mut client = server.connect();
    let value = "v".repeat(10_000);
    let mut stored = 0;
    let refused = loop {
        match client.one(&format!("set key{stored} 5 0 {}\r\n{value}", value.len())).as_str() {
            "STORED" => stored += 1,
            other => break other.to_owned(),
        }
    };
    assert_eq!(refused, "SERVER_ERROR out of memory storing object");
    assert!(stored > 600, "{stored}");
    for number in 0..stored {
        assert_eq!(client.ask(&format!("get key{number}"), "END").len(), 3, "{number}");
    }
    // A delete always has room.
    assert_eq!(client.one("delete key0"), "DELETED");
}

#[test]
fn more_clients_than_allowed_get_a_sentence_and_the_others_go_on() {
    let server = Memcached::start(None, DoorLimits { connections: 2, ..limits() });
    let (mut one, mut two) = (server.connect(), server.connect());
    assert_eq!((one.one("mn"), two.one("mn")), ("MN".to_owned(), "MN".to_owned()));
    assert_eq!(server.connect().rest(), b"ERROR Too many open connections\r\n");
    assert_eq!(one.one("mn"), "MN");
    one.send(b"quit\r\n");
    assert_eq!(one.rest(), b"");
    assert_eq!(server.connect().one("mn"), "MN");
}

#[test]
fn wrong_bytes_are_refused_or_end_the_connection_and_harm_nothing_else() {
    let server = Memcached::in_memory();
    let mut good = server.connect();
    assert_eq!(good.one("set a 0 0 1\r\nx"), "STORED");
    for bytes in [&b"\x80\x00\x00\x00"[..], b"GET / HTTP/1.1\r\n\r\n", &[b'x'; 5000]] {
        let mut bad = server.connect();
        bad.send(bytes);
        assert_eq!(bad.rest(), b"");
    }
    let mut bad = server.connect();
    assert_eq!(bad.one("set a 0 0 99999999999"), "CLIENT_ERROR bad command line format");
    assert_eq!(
        bad.one(&format!("get {}", "k".repeat(251))),
        "CLIENT_ERROR bad command line format"
    );
    let too_large = "SERVER_ERROR object too large for cache";
    assert_eq!(bad.one(&format!("set a 0 0 200000\r\n{}", "x".repeat(200_000))), too_large);
    assert_eq!(good.ask("get a", "END"), ["VALUE a 0 1", "x", "END"]);
}

#[test]
fn a_durable_server_has_everything_again_after_a_restart() {
    let directory: PathBuf =
        std::env::temp_dir().join(format!("thunderhead-door-{}", std::process::id()));
    let server = Memcached::start(Some(&directory), limits());
    let mut client = server.connect();
    assert_eq!(client.one("set kept 9 0 5\r\nvalue"), "STORED");
    assert_eq!(client.one("set soon 0 100000 1\r\nx"), "STORED");
    assert_eq!(client.one("set gone 0 -1 1\r\nx"), "STORED");
    assert_eq!(client.ask("get gone", "END"), ["END"]);
    drop((client, server));
    let server = Memcached::start(Some(&directory), limits());
    let mut client = server.connect();
    assert_eq!(client.ask("get kept", "END"), ["VALUE kept 9 5", "value", "END"]);
    let left = client.one("mg soon t");
    let left: u64 = left.strip_prefix("HD t").unwrap().parse().unwrap();
    assert!((90_000..=100_000).contains(&left), "{left}");
    assert_eq!(client.ask("get gone", "END"), ["END"]);
    drop((client, server));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_full_cache_forgets_old_objects_and_takes_new_ones() {
    let limits = DoorLimits { memory_bytes: 16 << 20, ..limits() };
    let server = Memcached::start(None, limits);
    let mut client = server.connect();
    let value = "v".repeat(10_000);
    // 60 MB into 16.
    for number in 0..6000 {
        let stored = client.one(&format!("set key{number} 0 0 {}\r\n{value}", value.len()));
        assert_eq!(stored, "STORED", "{number}");
        if number > 0 {
            assert_eq!(client.ask("get key0", "END").len(), 3, "an object in use stays: {number}");
        }
    }
    assert!(client.statistic("evictions") > 3000);
    assert_eq!(client.ask("get key5999", "END").len(), 3);
    assert_eq!(client.ask("get key1", "END"), ["END"]);
}
