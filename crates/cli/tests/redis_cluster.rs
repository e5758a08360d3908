//! Redis's clients in a cluster of three servers, as processes. They write and read the same keys
//! through the doors of all servers. The server that executes their commands is killed with
//! SIGKILL, and then the next one: all that was acknowledged is there.
//!
//! `--nocapture` shows how long the keys were away.
#![allow(clippy::disallowed_methods, reason = "processes are watched as a person watches them")]
#![allow(clippy::print_stdout, reason = "the times are of interest")]

#[path = "redis_cluster/parts.rs"]
mod parts;
#[path = "redis_cluster/routed.rs"]
mod routed;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thunderhead_load::crash::members::{Cluster, Cores, Setup};
use thunderhead_wire::Generation;

const PROGRAM: &str = env!("CARGO_BIN_EXE_thunderhead");

/// The time for everything that must happen at last, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(10);

/// A server that is slow on a busy machine has not crashed. A killed one refuses connections, so it
/// is found as soon as with the default.
const PROBES: &[&str] = &["--probe-timeout", "3s"];

fn setup(server: &[&str]) -> Setup {
    Setup {
        program: PathBuf::from(PROGRAM),
        directory: None,
        keep: false,
        servers: 3,
        replicas: 2,
        memory_bytes: 128 << 20,
        disk_bytes: 768 << 20,
        cores: Cores::Any,
        polling: "never",
        coordinator: PROBES.iter().map(|it| (*it).to_owned()).collect(),
        server: server.iter().chain(PROBES).map(|it| (*it).to_owned()).collect(),
    }
}

/// Returns the last address at which a server has said that it serves Redis's clients.
fn door(cluster: &Cluster, server: u32) -> Option<String> {
    door_in(cluster.said().get(server as usize + 1)?)
}

/// Returns the address in the log of a server.
fn door_in(log: &str) -> Option<String> {
    let line = log.lines().rfind(|line| line.contains("Redis's clients are served"))?;
    let from = line.rfind("127.0.0.1:")?;
    let address = line.get(from..)?;
    let end = address.find(|letter: char| !letter.is_ascii_digit() && !".:".contains(letter));
    Some(address.get(..end.unwrap_or(address.len()))?.to_owned())
}

fn wait<T>(goal: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{goal}: not within {PATIENCE:?}");
        std::thread::sleep(PAUSE);
    }
}

struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(address: &str) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Connection(BufReader::new(stream)))
    }

    fn send(&mut self, commands: &[String]) -> io::Result<()> {
        let mut bytes = String::new();
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            bytes += &format!("*{}\r\n", words.len());
            words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(bytes.as_bytes())
    }

    /// Reads a reply; returns its parts in one line.
    fn reply(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let count = line.get(1..).and_then(|count| count.parse::<i64>().ok());
        Ok(match (line.as_bytes().first(), count) {
            (Some(b'$'), Some(length @ 0..)) => {
                let mut bytes = vec![0; length as usize + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(length as usize);
                String::from_utf8_lossy(&bytes).into_owned()
            }
            (Some(b'*'), Some(count @ 0..)) => {
                let parts: io::Result<Vec<String>> = (0..count).map(|_| self.reply()).collect();
                format!("[{}]", parts?.join(" "))
            }
            (Some(b'$' | b'*'), _) => "nil".to_owned(),
            _ => line.to_owned(),
        })
    }

    fn try_ask(&mut self, command: &str) -> io::Result<String> {
        self.send(&[command.to_owned()])?;
        self.reply()
    }

    fn ask(&mut self, command: &str) -> String {
        self.try_ask(command).expect("the door answers")
    }

    /// Sends all commands at once, and returns the last reply.
    fn all(&mut self, commands: impl IntoIterator<Item = String>) -> String {
        let commands: Vec<String> = commands.into_iter().collect();
        self.send(&commands).expect("the door reads");
        let replies: Vec<String> =
            commands.iter().map(|_| self.reply().expect("the door answers")).collect();
        replies.last().cloned().unwrap_or_default()
    }
}

/// Connects, and waits until the keys are served.
fn connect(address: &str) -> Connection {
    wait("the keys are served", || {
        let mut connection = Connection::open(address).ok()?;
        let reply = connection.try_ask("DBSIZE").ok()?;
        reply.starts_with(':').then_some(connection)
    })
}

/// Returns the server whose shard executes the commands.
fn owner(cluster: &Cluster) -> u32 {
    let mut client = cluster.client(Duration::from_secs(10)).unwrap();
    let tables = wait("the table has an owner", || {
        let tablet = client.table_info("redis").ok()?.tablets.first().copied()?;
        tablet.address.and_then(|_| client.tables().ok())
    });
    let catalog = tables.iter().find(|it| it.name == "redis").unwrap().id;
    let group: Vec<_> = tables.iter().filter(|it| it.beside == Some(catalog)).collect();
    assert!(group.len() >= 4, "{group:?}");
    assert!(group.iter().all(|it| it.tablets.len() == 1), "{group:?}");
    // The owner may crash between the two answers.
    wait("the owner is known", || {
        let tablet = client.table_info("redis").ok()?.tablets.first().copied()?;
        let has = |shards: &[thunderhead_client::control::ShardInfo]| {
            shards.iter().any(|it| it.master == tablet.master)
        };
        let servers = client.status().ok()?.servers.servers;
        cluster.number_of(servers.iter().find(|it| has(&it.shards))?).ok()
    })
}

const FIELDS: usize = 3000;

/// Writes keys of many kinds through a door.
fn fill(connection: &mut Connection, name: &str) {
    connection.all((0..500).map(|number| format!("SET {name}:{number} {name}-{number}")));
    assert_eq!(connection.ask(&format!("RPUSH {name}:list a b c d")), ":4");
    let fields = (0..FIELDS).map(|number| format!("HSET {name}:hash f{number} v{number}"));
    assert_eq!(connection.all(fields), ":1");
    assert_eq!(connection.ask("MULTI"), "+OK");
    assert_eq!(connection.ask(&format!("SET {name}:one 1")), "+QUEUED");
    assert_eq!(connection.ask(&format!("ZADD {name}:two 2 x 3 y")), "+QUEUED");
    assert_eq!(connection.ask(&format!("LPOP {name}:list")), "+QUEUED");
    assert_eq!(connection.ask("EXEC"), "[+OK :2 a]");
    let script =
        format!("EVAL return(redis.call('INCRBY','{name}:n',41)+redis.call('INCR','{name}:n')) 0");
    assert_eq!(connection.ask(&script), ":83");
    assert_eq!(connection.ask(&format!("SET {name}:late x EX 100000")), "+OK");
    assert_eq!(connection.ask(&format!("SET {name}:soon x PX 1")), "+OK");
    assert_eq!(connection.ask("SELECT 3"), "+OK");
    assert_eq!(connection.ask(&format!("SET {name} three")), "+OK");
    assert_eq!(connection.ask("SELECT 0"), "+OK");
}

/// Checks the keys through a door.
fn check(connection: &mut Connection, name: &str) {
    for number in (0..500).step_by(7) {
        let value = connection.ask(&format!("GET {name}:{number}"));
        assert_eq!(value, format!("{name}-{number}"));
    }
    assert_eq!(connection.ask(&format!("LRANGE {name}:list 0 -1")), "[b c d]");
    assert_eq!(connection.ask(&format!("HLEN {name}:hash")), format!(":{FIELDS}"));
    for number in (0..FIELDS).step_by(101) {
        let field = connection.ask(&format!("HGET {name}:hash f{number}"));
        assert_eq!(field, format!("v{number}"));
    }
    assert_eq!(connection.ask(&format!("GET {name}:one")), "1");
    assert_eq!(connection.ask(&format!("ZRANGE {name}:two 0 -1 WITHSCORES")), "[x 2 y 3]");
    assert_eq!(connection.ask(&format!("GET {name}:n")), "42");
    assert_eq!(connection.ask(&format!("GET {name}:soon")), "nil");
    let ttl = connection.ask(&format!("TTL {name}:late"));
    let ttl: i64 = ttl.trim_start_matches(':').parse().unwrap();
    assert!((99_000..=100_000).contains(&ttl), "{ttl}");
    assert_eq!(connection.ask("SELECT 3"), "+OK");
    assert_eq!(connection.ask(&format!("GET {name}")), "three");
    assert_eq!(connection.ask("SELECT 0"), "+OK");
}

/// Adds to a counter until it is told to end, over new connections if need be. Returns the number
/// of acknowledged additions, and the number of sent ones.
fn count(address: &str, key: &str, ends: &AtomicBool) -> (u64, u64) {
    let (mut done, mut sent) = (0, 0);
    let mut connection = None;
    while !ends.load(Ordering::Relaxed) {
        let Some(open) = &mut connection else {
            connection = Connection::open(address).ok();
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        sent += 1;
        match open.try_ask(&format!("INCR {key}")) {
            Ok(reply) if reply.starts_with(':') => done += 1,
            Ok(reply) => {
                assert!(reply.starts_with("-LOADING"), "{reply}");
                sent -= 1;
                connection = None;
            }
            Err(_) => connection = None,
        }
    }
    (done, sent)
}

/// Tells all clients to end when it is dropped.
struct Told<'a>(&'a AtomicBool);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn keys_survive_the_crash_of_their_server_and_are_served_through_the_others() {
    let mut cluster = Cluster::start(&setup(&["--redis", "127.0.0.1:0"])).unwrap();
    let mut doors: Vec<String> =
        (0..3).map(|server| wait("the door listens", || door(&cluster, server))).collect();
    let mut connections: Vec<Connection> = doors.iter().map(|it| connect(it)).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        fill(connection, &format!("door{number}"));
    }
    for connection in &mut connections {
        (0..3).for_each(|number| check(connection, &format!("door{number}")));
    }
    waits_and_messages_cross_doors(&doors);

    for round in 0..2 {
        let victim = owner(&cluster);
        let others: Vec<String> =
            (0..3).filter(|it| *it != victim).map(|it| doors[it as usize].clone()).collect();
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let told = Told(&ends);
            let counters: Vec<_> = others
                .iter()
                .enumerate()
                .map(|(number, address)| {
                    let (key, ends) = (format!("count:{round}:{number}"), &ends);
                    scope.spawn(move || (key.clone(), count(address, &key, ends)))
                })
                .collect();
            wait("the counters count", || {
                let mut connection = connect(&others[0]);
                let least = connection.ask(&format!("GET count:{round}:0"));
                least.parse::<u64>().ok().filter(|it| *it > 50)
            });
            cluster.kill_server(victim);
            let began = Instant::now();
            // A client that tries again and again, as clients of Redis do.
            drop(connect(&others[0]));
            println!("round {round}: the keys were away for {:?}", began.elapsed());
            let mut through: Vec<Connection> = others.iter().map(|it| connect(it)).collect();
            for connection in &mut through {
                (0..3).for_each(|number| check(connection, &format!("door{number}")));
            }
            drop(told);
            for counter in counters {
                let (key, (done, sent)) = counter.join().unwrap();
                for connection in &mut through {
                    let has: u64 = connection.ask(&format!("GET {key}")).parse().unwrap();
                    assert!((done..=sent).contains(&has), "{key}: {done} <= {has} <= {sent}");
                }
            }
            assert_eq!(through[0].ask("SELECT 3"), "+OK");
            assert_eq!(through[0].ask("FLUSHDB"), "+OK");
            assert_eq!(through[1].ask("SELECT 3"), "+OK");
            assert_eq!(through[1].ask("DBSIZE"), ":0");
            let names = (0..3).map(|number| format!("SET door{number} three"));
            assert_eq!(through[1].all(names), "+OK");
        });
        cluster.start_server(victim).unwrap();
        cluster.wait_up(Generation(0)).unwrap();
        let back = wait("the door listens again", || {
            let address = door(&cluster, victim)?;
            (address != doors[victim as usize]).then_some(address)
        });
        let mut connection = connect(&back);
        (0..3).for_each(|number| check(&mut connection, &format!("door{number}")));
        wait("all replicas are complete", || {
            let mut client = cluster.client(Duration::from_secs(10)).ok()?;
            let servers = client.status().ok()?.servers.servers;
            let shards = servers.iter().flat_map(|it| it.shards.clone()).collect::<Vec<_>>();
            let mut risks = shards.iter().map(|it| client.shard_status(it.address));
            (shards.len() == 3 && risks.all(|it| it.is_ok_and(|status| status.at_risk.is_none())))
                .then_some(())
        });
        doors[victim as usize] = back;
    }
}

/// Long replies, and many commands at once, cross doors whole, also if their reader is slow.
fn long_replies_cross_doors(doors: &[String]) {
    let mut all: Vec<Connection> = doors.iter().map(|it| connect(it)).collect();
    let value = "x".repeat(1 << 20);
    let keys: Vec<String> = (0..8).map(|number| format!("long:{number}")).collect();
    for key in &keys {
        assert_eq!(all[0].ask(&format!("SET {key} {value}")), "+OK");
    }
    let all_keys = keys.join(" ");
    for connection in &mut all {
        // 64 MB wait for this reader.
        let many = vec![format!("MGET {all_keys}"); 8];
        connection.send(&many).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        for _ in 0..8 {
            let reply = connection.reply().unwrap();
            assert_eq!(reply.len(), 8 * ((1 << 20) + 1) + 1);
        }
        let before = connection.ask("INCRBY many 0");
        let last = connection.all(vec!["INCR many".to_owned(); 20_000]);
        let number = |text: &str| text.trim_start_matches(':').parse::<u64>().unwrap();
        assert_eq!(number(&last), number(&before) + 20_000);
    }
    assert_eq!(all[1].ask(&format!("DEL {all_keys}")), ":8");
}

#[test]
fn a_server_with_the_keys_may_pause_or_end_in_order() {
    let mut cluster = Cluster::start(&setup(&["--redis", "127.0.0.1:0"])).unwrap();
    let doors: Vec<String> =
        (0..3).map(|server| wait("the door listens", || door(&cluster, server))).collect();
    fill(&mut connect(&doors[0]), "kept");
    long_replies_cross_doors(&doors);

    // It does not know that it is no longer the owner.
    let paused = owner(&cluster);
    let mut old = connect(&doors[paused as usize]);
    assert_eq!(old.ask("SET owner former"), "+OK");
    cluster.pause_server(paused, true).unwrap();
    let other = (paused + 1) % 3;
    let mut connection = connect(&doors[other as usize]);
    check(&mut connection, "kept");
    assert_eq!(connection.ask("SET owner later"), "+OK");
    assert_eq!(connection.ask("SELECT 3"), "+OK");
    assert_eq!(connection.ask("FLUSHDB"), "+OK");
    assert_eq!(connection.ask("SET kept three"), "+OK");
    let _ = old.send(&["GET owner".to_owned(), "SET owner former".to_owned()]);
    cluster.pause_server(paused, false).unwrap();
    // The former owner answers nothing that is no longer true.
    if let Ok(reply) = old.reply() {
        assert!(reply.starts_with('-'), "{reply}");
    }
    let mut through = wait("the former owner forwards", || {
        let mut connection = Connection::open(&doors[paused as usize]).ok()?;
        let reply = connection.try_ask("GET owner").ok()?;
        assert!(reply == "later" || reply.starts_with('-'), "{reply}");
        (reply == "later").then_some(connection)
    });
    check(&mut through, "kept");

    let leaves = owner(&cluster);
    let other = doors[(leaves as usize + 1) % 3].clone();
    let ends = AtomicBool::new(false);
    let (done, sent) = std::thread::scope(|scope| {
        let told = Told(&ends);
        let counter = scope.spawn(|| count(&other, "count", &ends));
        wait("the counter counts", || {
            let count = connect(&other).ask("GET count");
            count.parse::<u64>().ok().filter(|it| *it > 50)
        });
        let pid = cluster.server_process(leaves).unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        wait("another server has the keys", || (owner(&cluster) != leaves).then_some(()));
        check(&mut connect(&other), "kept");
        drop(told);
        counter.join().unwrap()
    });
    let has: u64 = connect(&other).ask("GET count").parse().unwrap();
    assert!((done..=sent).contains(&has), "{done} <= {has} <= {sent}");
}

/// Checks that commands through one door serve clients of other doors, which wait or listen.
fn waits_and_messages_cross_doors(doors: &[String]) {
    let mut all: Vec<Connection> = doors.iter().map(|it| connect(it)).collect();
    all[0].send(&["BLPOP queue 0".to_owned()]).unwrap();
    assert_eq!(all[1].ask("SUBSCRIBE news"), "[subscribe news :1]");
    wait("the clients wait", || (all[2].ask("PUBLISH news now") == ":1").then_some(()));
    assert_eq!(all[1].reply().unwrap(), "[message news now]");
    assert_eq!(all[2].ask("RPUSH queue job"), ":1");
    assert_eq!(all[0].reply().unwrap(), "[queue job]");
    // The address of a client is its own, and not that of a door.
    let own = all[0].0.get_ref().local_addr().unwrap();
    assert!(all[0].ask("CLIENT INFO").contains(&format!(" addr={own} ")));
    // A client that sends no more still gets its replies.
    let lines: Vec<String> = (0..2000).map(|it| format!("ECHO {it}")).collect();
    all[2].send(&lines).unwrap();
    all[2].0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    for number in 0..2000 {
        assert_eq!(all[2].reply().unwrap(), number.to_string());
    }
    all[2].reply().expect_err("the door has closed");
}

#[test]
fn other_machines_need_a_password() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = run(&["server", "--redis", "0.0.0.0:6379"]);
    assert!(said.contains("server.redis_password"), "{said}");
    let said = run(&["dev", "--redis", "0.0.0.0:6379"]);
    assert!(said.contains("other machines"), "{said}");
}

#[test]
fn a_password_is_asked_for_at_every_door() {
    let arguments = ["--redis", "127.0.0.1:0", "--redis-password", "secret", "--shards", "2"];
    let cluster = Cluster::start(&setup(&arguments)).unwrap();
    for server in 0..3 {
        let address = wait("the door listens", || door(&cluster, server));
        let mut connection = wait("the keys are served", || {
            let mut connection = Connection::open(&address).ok()?;
            let reply = connection.try_ask("GET a").ok()?;
            reply.starts_with("-NOAUTH").then_some(connection)
        });
        assert!(connection.ask("AUTH wrong").starts_with("-WRONGPASS"));
        assert_eq!(connection.ask("AUTH secret"), "+OK");
        assert_eq!(connection.ask("APPEND a x"), format!(":{}", server + 1));
        // It would be gone after the crash of one server.
        let refusal = connection.ask("CONFIG SET requirepass other");
        assert!(refusal.contains("server.redis_password"), "{refusal}");
        let refusal = connection.ask("ACL SETUSER default >other");
        assert!(refusal.contains("server.redis_password"), "{refusal}");
        assert!(connection.ask("AUTH other").starts_with("-WRONGPASS"));
    }
}

/// A further server of a cluster, with options of its own.
struct Further {
    process: std::process::Child,
    log: PathBuf,
}

impl Further {
    fn start(cluster: &Cluster, options: &[&str]) -> Further {
        let directory = cluster.directory();
        let log = directory.join("further.log");
        let data = directory.join("further");
        let coordinator = cluster.coordinator().to_string();
        let mut command = Command::new(PROGRAM);
        command.args(["server", "--while-input", "--coordinators", &coordinator]);
        command.args(["--listen", "127.0.0.1:0", "--host", "further", "--memory", "128MiB"]);
        command.args(["--backup-bytes", "768MiB", "--polling", "never", "--data"]);
        command.arg(data).args(["--redis", "127.0.0.1:0"]).args(options).args(PROBES);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(&log).unwrap());
        Further { process: command.spawn().unwrap(), log }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn door(&self) -> String {
        wait("the door listens", || door_in(&self.said()))
    }
}

impl Drop for Further {
    /// Ends it in order, so that none of its shared memory is left.
    fn drop(&mut self) {
        let pid = self.process.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.process.wait();
    }
}

#[test]
fn a_server_with_another_password_serves_no_clients() {
    let cluster = Cluster::start(&setup(&["--redis", "127.0.0.1:0"])).unwrap();
    let address = wait("the door listens", || door(&cluster, 0));
    assert_eq!(connect(&address).ask("SET a secret"), "+OK");
    // Its operator relies on the password, but the server with the keys has none.
    let further = Further::start(&cluster, &["--redis-password", "secret"]);
    let address = further.door();
    let reply = wait("the server has joined", || {
        let reply = Connection::open(&address).ok()?.try_ask("GET a").ok()?;
        (!reply.starts_with("-LOADING")).then_some(reply)
    });
    assert!(reply.starts_with('-') && reply.contains("server.redis_password"), "{reply}");
}

#[test]
fn a_server_says_that_the_server_with_the_keys_has_no_door() {
    let cluster = Cluster::start(&setup(&[])).unwrap();
    let mut client = cluster.client(PATIENCE).unwrap();
    client.ensure_table("redis", 1).unwrap();
    let further = Further::start(&cluster, &[]);
    let address = further.door();
    wait("the server says so", || {
        let reply = Connection::open(&address).ok()?.try_ask("GET a").ok()?;
        assert!(reply.starts_with("-LOADING"), "{reply}");
        further.said().contains("set server.redis on all servers").then_some(())
    });
}

/// `thunderhead dev` with three servers. It ends like a crash when it is dropped.
struct Dev {
    process: std::process::Child,
    redis: String,
}

impl Dev {
    fn start(data: &std::path::Path) -> Dev {
        let data = data.to_str().unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["dev", "--json", "--listen", "127.0.0.1:0", "--data", data]);
        command.args(["--servers", "3", "--shards", "2", "--memory", "64MiB"]);
        command.args(["--segment-bytes", "1MiB", "--redis", "127.0.0.1:0"]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        Dev { process, redis: ready["redis"].as_str().unwrap().to_owned() }
    }
}

impl Dev {
    /// Ends it in order, so that none of its shared memory is left.
    fn end(mut self) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn keys_survive_the_crash_of_all_servers() {
    let data = format!("thunderhead-redis-dev-{}", std::process::id());
    let data = std::env::temp_dir().join(data);
    let _ = std::fs::remove_dir_all(&data);
    let dev = Dev::start(&data);
    fill(&mut connect(&dev.redis), "first");
    drop(dev);
    let dev = Dev::start(&data);
    let mut connection = connect(&dev.redis);
    check(&mut connection, "first");
    fill(&mut connection, "second");
    drop(dev);
    let dev = Dev::start(&data);
    let mut connection = connect(&dev.redis);
    ["first", "second"].into_iter().for_each(|name| check(&mut connection, name));
    dev.end();
    let _ = std::fs::remove_dir_all(&data);
}
