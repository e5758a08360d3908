//! Clients of the plain port, without knowledge of slots, in a cluster whose keys are divided into
//! three parts. One server is killed with SIGKILL: the keys of the other parts are served all the
//! time, on the same connections, and its part is elsewhere a little later.

use super::parts::{ARGUMENTS, owners};
use super::{Connection, Told, connect, door, setup, wait};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thunderhead_load::crash::members::Cluster;
use thunderhead_wire::Generation;

// Keys of the parts 0, 1 and 2.
const KEYS: [&str; 3] = ["{bar}", "{1}", "{foo}"];

fn doors(cluster: &Cluster) -> Vec<String> {
    (0..3).map(|server| wait("the door listens", || door(cluster, server))).collect()
}

#[test]
fn plain_clients_use_all_parts_through_every_server() {
    let cluster = Cluster::start(&setup(ARGUMENTS)).unwrap();
    let doors = doors(&cluster);
    let mut clients: Vec<Connection> = doors.iter().map(|address| connect(address)).collect();

    let subscribed = clients[0].ask("SUBSCRIBE news");
    assert_eq!(subscribed, "[subscribe news :1]");
    let (subscriber, others) = clients.split_first_mut().unwrap();
    assert_eq!(others[0].ask("PUBLISH news one"), ":1");
    assert_eq!(subscriber.reply().unwrap(), "[message news one]");
    // A message of a transaction in another part.
    let multi = ["MULTI", "SET foo 1", "PUBLISH news two", "EXEC"];
    assert_eq!(others[1].all(multi.map(str::to_owned)), "[+OK :1]");
    assert_eq!(subscriber.reply().unwrap(), "[message news two]");

    let (one, rest) = others.split_first_mut().unwrap();
    let two = &mut rest[0];
    assert_eq!(one.ask("CONFIG SET slowlog-max-len 77"), "+OK");
    let sha = one.ask("SCRIPT LOAD return(redis.call('INCR',KEYS[1]))");
    for key in KEYS {
        assert_eq!(two.ask(&format!("EVALSHA {sha} 1 {key}:n")), ":1");
    }
    assert_eq!(two.ask("SELECT 2"), "+OK");
    for key in KEYS {
        assert_eq!(two.ask(&format!("SET {key} {key}")), "+OK");
    }
    assert_eq!(two.ask("MGET {foo} {bar} {1}"), "[{foo} {bar} {1}]");
    assert_eq!(two.ask("FLUSHDB"), "+OK");
    assert_eq!((two.ask("DBSIZE"), one.ask("DBSIZE")), (":0".to_owned(), ":4".to_owned()));
    let refused = one.ask("MSET foo 1 bar 2");
    assert!(refused.starts_with("-CROSSSLOT") && refused.contains("{tag}"), "{refused}");

    // A client that waits gets the element of a client of another server.
    one.send(&["BLPOP {1}:list 0".to_owned(), "GET foo".to_owned()]).unwrap();
    assert_eq!(two.ask("SELECT 0"), "+OK");
    assert_eq!(two.ask("RPUSH {1}:list x"), ":1");
    assert_eq!(one.reply().unwrap(), "[{1}:list x]");
    assert_eq!(one.reply().unwrap(), "1");

    // Long values of all parts, in one pipeline.
    let value = "v".repeat(900_000);
    let commands = (0..30).map(|number| format!("SET {}:{number} {value}", KEYS[number % 3]));
    assert_eq!(one.all(commands), "+OK");
    let gets: Vec<String> =
        (0..30).map(|number| format!("GET {}:{number}", KEYS[number % 3])).collect();
    one.send(&gets).unwrap();
    for get in &gets {
        assert!(one.reply().unwrap() == value, "{get}");
    }
    let many = KEYS.map(|key| format!("{key}:0 {key}:1 {key}:2")).join(" ");
    assert!(one.ask(&format!("MGET {many}")).len() > 3 * value.len());
}

#[test]
fn early_long_and_last_commands_of_plain_clients_are_answered() {
    let cluster = Cluster::start(&setup(ARGUMENTS)).unwrap();
    let doors = doors(&cluster);
    // Their first commands may have come before the door knew the parts.
    let mut clients: Vec<Connection> = doors.iter().map(|address| connect(address)).collect();
    let began = Instant::now();

    // One command is longer than all bytes that may wait for a stream.
    let key = |number: usize| format!("{{1}}:{number}:{}", "k".repeat(900_000));
    let command = |keys: usize| format!("DEL {}", (0..keys).map(key).collect::<Vec<_>>().join(" "));
    for client in &mut clients {
        assert_eq!(client.ask(&command(80)), ":0");
    }

    // A client that sends no more gets the replies behind a command that does not wait.
    let mut last = connect(&doors[0]);
    last.send(&["WAIT 0 0", "SET foo 1", "GET foo"].map(str::to_owned)).unwrap();
    last.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!([(); 3].map(|()| last.reply().unwrap()), [":2", "+OK", "1"]);
    assert!(last.reply().is_err());

    wait("a client without a server would be refused", || {
        for client in &mut clients {
            assert_eq!(client.ask("GET foo"), "1");
        }
        (began.elapsed() > Duration::from_secs(4)).then_some(())
    });
}

#[test]
fn the_crash_of_one_part_does_not_touch_the_keys_of_others() {
    let mut cluster = Cluster::start(&setup(ARGUMENTS)).unwrap();
    let doors = doors(&cluster);
    let (owned, lost) = (owners(&cluster), 1);
    let server = |part: usize| &doors[owned[part] as usize];
    // The connections of this client are to servers that stay.
    let mut idle = connect(server(0));
    assert_eq!(idle.ask("SET {1} kept"), "+OK");
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let told = Told(&ends);
        let steady = scope.spawn(|| {
            let mut connection = connect(server(2));
            assert_eq!(connection.ask("GET {1}"), "kept");
            let mut count = 0;
            while !ends.load(Ordering::Relaxed) {
                count += 1;
                let commands = ["INCR {foo}:n", "INCR {bar}:n"].map(str::to_owned);
                assert_eq!(connection.all(commands), format!(":{count}"));
            }
            count
        });
        let counter = scope.spawn(|| {
            let (mut connection, mut done, mut sent) = (None, 0u64, 0u64);
            while !ends.load(Ordering::Relaxed) {
                let mut own = match connection.take() {
                    Some(connection) => connection,
                    None => Connection::open(server(2)).unwrap(),
                };
                sent += 1;
                if let Ok(reply) = own.try_ask("INCR {1}:n")
                    && reply.starts_with(':')
                {
                    done += 1;
                    connection = Some(own);
                }
            }
            (done, sent)
        });
        wait("the counter counts", || {
            idle.ask("GET {1}:n").parse::<u64>().ok().filter(|count| *count > 50)
        });
        cluster.kill_server(owned[lost]);
        let began = Instant::now();
        // The same connection waits for the new owner.
        assert_eq!(idle.ask("MGET bar {1} foo"), "[nil kept nil]");
        println!("part {lost} was away for {:?}", began.elapsed());
        assert_eq!(idle.ask("INCR {1}:own"), ":1");
        drop(told);
        let (done, sent) = counter.join().unwrap();
        let has: u64 = idle.ask("GET {1}:n").parse().unwrap();
        assert!((done..=sent).contains(&has), "{done} <= {has} <= {sent}");
        assert!(steady.join().unwrap() > 0);
    });
    cluster.start_server(owned[lost]).unwrap();
    cluster.wait_up(Generation(0)).unwrap();
    let before = &doors[owned[lost] as usize];
    let back = wait("the door listens again", || {
        door(&cluster, owned[lost]).filter(|address| address != before)
    });
    assert_eq!(connect(&back).ask("GET {1}"), "kept");
}
