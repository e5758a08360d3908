//! Clients that know the slots of keys, in a cluster whose keys are divided into three parts. Each
//! server has one part. One server is killed with SIGKILL: its part is elsewhere a little later,
//! with all that was acknowledged, and the other parts are never away.

use super::{Connection, Further, PATIENCE, Told, door, setup, wait};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thunderhead_load::crash::members::Cluster;
use thunderhead_wire::Generation;

const PARTS: u32 = 3;

pub(super) const ARGUMENTS: &[&str] =
    &["--redis", "127.0.0.1:0", "--redis-cluster", "127.0.0.1:0", "--redis-parts", "3"];

/// Returns the first cluster port of a server, once it listens there.
fn port(cluster: &Cluster, server: u32) -> Option<String> {
    let said = cluster.said().get(server as usize + 1)?.clone();
    let line = said.lines().rfind(|line| line.contains("clients that know slots are served"))?;
    let address = line.get(line.rfind("127.0.0.1:")?..)?;
    let end = address.find(|letter: char| !letter.is_ascii_digit() && !".:".contains(letter));
    Some(address.get(..end.unwrap_or(address.len()))?.to_owned())
}

/// A line of `CLUSTER NODES`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    id: String,
    address: String,
    slots: std::ops::RangeInclusive<u16>,
    is_up: bool,
}

fn node_of(line: &str) -> Option<Node> {
    let words: Vec<&str> = line.split(' ').collect();
    let (first, last) = words.get(8)?.split_once('-')?;
    Some(Node {
        id: (*words.first()?).to_owned(),
        address: words.get(1)?.split('@').next()?.to_owned(),
        slots: first.parse().ok()?..=last.parse().ok()?,
        is_up: !words.get(2)?.contains("fail"),
    })
}

/// Returns the nodes that a server tells, if it knows one for each part and all of them serve.
fn nodes(address: &str) -> Option<Vec<Node>> {
    let mut connection = Connection::open(address).ok()?;
    let text = connection.try_ask("CLUSTER NODES").ok()?;
    let nodes: Vec<Node> = text.lines().map(node_of).collect::<Option<_>>()?;
    let is_whole = nodes.len() == PARTS as usize && nodes.iter().all(|node| node.is_up);
    is_whole.then_some(nodes)
}

/// A client that goes to the nodes of slots, and where `-MOVED` leads it.
struct Client {
    first: Vec<String>,
    nodes: Vec<Node>,
    connections: BTreeMap<String, Connection>,
    moved: u64,
}

impl Client {
    fn new(first: &[String]) -> Client {
        let nodes = wait("all parts have nodes", || nodes(&first[0]));
        Client { first: first.to_vec(), nodes, connections: BTreeMap::new(), moved: 0 }
    }

    /// Asks some server for the nodes again.
    fn refresh(&mut self) {
        self.connections.clear();
        let first = self.first.clone();
        self.nodes = wait("all parts have nodes", || first.iter().find_map(|it| nodes(it)));
    }

    /// Sends a command to a node, and goes where it leads.
    fn ask_at(&mut self, address: &str, command: &str) -> io::Result<String> {
        let mut address = address.to_owned();
        loop {
            let connection = match self.connections.remove(&address) {
                Some(connection) => connection,
                None => Connection::open(&address)?,
            };
            let connection = self.connections.entry(address).or_insert(connection);
            let reply = connection.try_ask(command)?;
            match reply.strip_prefix("-MOVED ").and_then(|rest| rest.split_once(' ')) {
                Some((_, to)) => address = to.to_owned(),
                None => return Ok(reply),
            }
            self.moved += 1;
        }
    }

    fn try_ask(&mut self, slot: u16, command: &str) -> io::Result<String> {
        let node = self.nodes.iter().find(|node| node.slots.contains(&slot));
        let address = node.expect("each slot has a node").address.clone();
        self.ask_at(&address, command)
    }

    /// Sends a command that may be executed twice, until it has an answer.
    fn ask(&mut self, slot: u16, command: &str) -> String {
        wait("the slot is served", || match self.try_ask(slot, command) {
            Ok(reply) if !reply.starts_with("-CLUSTERDOWN") && !reply.starts_with("-TRYAGAIN") => {
                Some(reply)
            }
            _ => {
                self.refresh();
                None
            }
        })
    }
}

/// Returns keys with their slots: so many for each node.
fn keys(client: &mut Client, each: usize) -> Vec<(String, u16)> {
    let mut keys: Vec<Vec<(String, u16)>> = vec![Vec::new(); client.nodes.len()];
    for number in 0.. {
        if keys.iter().all(|keys| keys.len() >= each) {
            break;
        }
        let key = format!("key:{number}");
        let slot = client.ask(0, &format!("CLUSTER KEYSLOT {key}"));
        let slot: u16 = slot.trim_start_matches(':').parse().unwrap();
        let place = client.nodes.iter().position(|node| node.slots.contains(&slot)).unwrap();
        if keys[place].len() < each {
            keys[place].push((key, slot));
        }
    }
    keys.into_iter().flatten().collect()
}

/// Returns the server that has each part.
pub(super) fn owners(cluster: &Cluster) -> Vec<u32> {
    let mut client = cluster.client(Duration::from_secs(10)).unwrap();
    let mut owner = |part: u32| {
        let table = thunderhead_server::catalog_table(part);
        wait("the part has an owner", || {
            let tablet = client.table_info(&table).ok()?.tablets.first().copied()?;
            let has = |server: &&thunderhead_client::control::ServerInfo| {
                server.shards.iter().any(|shard| shard.master == tablet.master)
            };
            let servers = client.status().ok()?.servers.servers;
            cluster.number_of(servers.iter().find(has)?).ok()
        })
    };
    (0..PARTS).map(&mut owner).collect()
}

#[test]
fn a_part_survives_the_crash_of_its_server_and_the_others_are_never_away() {
    let mut cluster = Cluster::start(&setup(ARGUMENTS)).unwrap();
    let ports: Vec<String> =
        (0..3).map(|server| wait("the cluster port listens", || port(&cluster, server))).collect();
    let mut client = Client::new(&ports);
    let before = client.nodes.clone();
    let owned = owners(&cluster);
    assert_eq!(owned.iter().collect::<BTreeSet<_>>().len(), 3, "each server has a part: {owned:?}");

    let keys = keys(&mut client, 40);
    client.moved = 0;
    for (key, slot) in &keys {
        assert_eq!(client.ask(*slot, &format!("SET {key} {key}")), "+OK");
    }
    assert_eq!(client.moved, 0, "the client knows the nodes");
    for (number, (key, _)) in keys.iter().enumerate() {
        // Each server's first port leads to all keys.
        let reply = client.ask_at(&ports[number % 3], &format!("GET {key}")).unwrap();
        assert_eq!(reply, *key);
    }
    assert!(client.moved > 0);
    let sizes = before.iter().map(|node| client.ask_at(&node.address, "DBSIZE").unwrap());
    assert_eq!(sizes.collect::<Vec<_>>(), [":40"; 3]);
    the_plain_ports_have_all_parts(&cluster, &keys);
    a_server_with_another_number_of_parts_serves_no_clients(&cluster);

    let (lost, kept) = (&keys[40], &keys[80]);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let told = Told(&ends);
        let steady = scope.spawn(|| {
            let mut connection = Connection::open(&before[2].address).unwrap();
            let mut count = 0;
            while !ends.load(Ordering::Relaxed) {
                count += 1;
                assert_eq!(connection.ask(&format!("INCR {}:steady{{{}}}", kept.0, kept.0)), {
                    format!(":{count}")
                });
            }
            count
        });
        let counter = scope.spawn(|| {
            let (mut client, mut done, mut sent) = (Client::new(&ports), 0u64, 0u64);
            while !ends.load(Ordering::Relaxed) {
                sent += 1;
                match client.try_ask(lost.1, &format!("INCR count{{{}}}", lost.0)) {
                    Ok(reply) if reply.starts_with(':') => done += 1,
                    _ => {
                        let first = client.first.clone();
                        client.connections.clear();
                        client.nodes =
                            first.iter().find_map(|it| nodes(it)).unwrap_or(client.nodes);
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            }
            (done, sent)
        });
        wait("the counter counts", || {
            let count = client.ask(lost.1, &format!("GET count{{{}}}", lost.0));
            count.parse::<u64>().ok().filter(|count| *count > 50)
        });
        cluster.kill_server(owned[1]);
        let began = Instant::now();
        assert_eq!(client.ask(lost.1, &format!("GET {}", lost.0)), lost.0);
        println!("part 1 was away for {:?}", began.elapsed());
        for (key, slot) in &keys {
            assert_eq!(client.ask(*slot, &format!("GET {key}")), *key);
        }
        drop(told);
        let (done, sent) = counter.join().unwrap();
        let has: u64 = client.ask(lost.1, &format!("GET count{{{}}}", lost.0)).parse().unwrap();
        assert!((done..=sent).contains(&has), "{done} <= {has} <= {sent}");
        assert!(steady.join().unwrap() > 0);
    });
    client.refresh();
    for (part, (old, new)) in before.iter().zip(&client.nodes).enumerate() {
        assert_eq!(old.id == new.id, part != 1, "only part 1 has another node");
    }

    cluster.start_server(owned[1]).unwrap();
    cluster.wait_up(Generation(0)).unwrap();
    let back = wait("the cluster port listens again", || {
        let address = port(&cluster, owned[1])?;
        (address != ports[owned[1] as usize]).then_some(address)
    });
    wait("the server tells the nodes", || nodes(&back));
    for (key, _) in &keys {
        assert_eq!(client.ask_at(&back, &format!("GET {key}")).unwrap(), *key);
    }
}

fn the_plain_ports_have_all_parts(cluster: &Cluster, keys: &[(String, u16)]) {
    let names: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
    for server in 0..3 {
        let address = wait("the door listens", || door(cluster, server));
        let mut connection = super::connect(&address);
        let gets: Vec<String> = names.iter().map(|key| format!("GET {key}")).collect();
        connection.send(&gets).unwrap();
        for key in &names {
            assert_eq!(connection.reply().unwrap(), *key);
        }
        let all = names.join(" ");
        assert_eq!(connection.ask(&format!("MGET {all}")), format!("[{all}]"));
        assert_eq!(connection.ask(&format!("EXISTS {all} none")), ":120");
        assert_eq!(connection.ask("DBSIZE"), ":120");
    }
}

fn a_server_with_another_number_of_parts_serves_no_clients(cluster: &Cluster) {
    let further = Further::start(cluster, &["--redis-parts", "2"]);
    let address = further.door();
    let reply = wait("the server has joined", || {
        let reply = Connection::open(&address).ok()?.try_ask("PING").ok()?;
        (!reply.starts_with("-LOADING")).then_some(reply)
    });
    assert!(reply.contains("set server.redis_parts alike on all servers"), "{reply}");
}

#[test]
fn the_number_of_parts_is_recorded_again_when_an_operator_has_dropped_its_table() {
    let cluster = Cluster::start(&setup(ARGUMENTS)).unwrap();
    let address = wait("the cluster port listens", || port(&cluster, 0));
    wait("all parts are served", || nodes(&address));
    let mut client = cluster.client(PATIENCE).unwrap();
    let first = client.table("redis").unwrap();
    assert_eq!(client.get(first, b"parts").unwrap().unwrap().1, *b"3");
    // A server may make a further table beside it meanwhile.
    wait("the table is dropped", || {
        let tables = client.tables().unwrap();
        for table in tables.iter().filter(|it| it.beside == Some(first)) {
            let _ = client.drop_table(&table.name);
        }
        client.drop_table("redis").ok()
    });
    let number = wait("the number is recorded again", || {
        let table = client.table("redis").ok().filter(|table| *table != first)?;
        client.get(table, b"parts").ok()?
    });
    assert_eq!(number.1, *b"3");
    wait("all parts are served again", || nodes(&address));
}
