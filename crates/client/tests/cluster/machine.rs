//! Both clients on this machine: a coordinator and two shards, each on a thread, behind sockets and
//! shared memory.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use thunderhead_client::{
    Action, Answer, AsyncClient, Client, Condition, Error, KeyHash, MasterId, Number, Obstacle,
    Operation, Options, Status, TableId,
};
use thunderhead_log::{Log, LogId, Memory, NoReplication, Options as LogOptions, TabletRange};
use thunderhead_master::Shard;
use thunderhead_net::os::{Options as NetOptions, OsTransport};
use thunderhead_rpc::{Node, Service};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::polling::Polling;
use thunderhead_runtime::{World, os};
use thunderhead_testkit::{CoordinatorState, ScriptedCoordinator};

/// Ends the servers, also if the test panics.
struct End<'a>(&'a AtomicBool, Vec<Alarm>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.iter().for_each(Alarm::ring);
    }
}

/// Runs a service until the end, and reports its address.
fn serve<S: Service>(
    stop: &AtomicBool,
    tell: std::sync::mpsc::Sender<(SocketAddr, Alarm)>,
    net: NetOptions,
    service: impl FnOnce(&World) -> S,
) {
    let world = os::world_without_files().unwrap();
    let (clock, alarm) = (world.clock.clone(), world.alarm.clone());
    let transport = OsTransport::new(&world, net).unwrap();
    let service = service(&world);
    let mut node = Node::new(world, Box::new(transport), service);
    let address = node.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    tell.send((address, alarm)).unwrap();
    os::run(&mut node, &clock, Polling::default(), || stop.load(Ordering::Relaxed));
}

/// Makes a shard with its half of each table that the tests may create.
fn shard(half: u64) -> Shard {
    let memory = Memory::new(64 << 20).unwrap();
    let replicator = Box::new(NoReplication::default());
    let options = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() };
    let mut log = Log::new(&memory, LogId(1 + half), options, replicator).unwrap();
    let (first, last) = [(0, u64::MAX / 2), (u64::MAX / 2 + 1, u64::MAX)][half as usize];
    for table in 1..5 {
        let (first, last) = (KeyHash(first), KeyHash(last));
        log.create_tablet(TabletRange { table: TableId(table), first, last }).unwrap();
    }
    Shard::new(log)
}

/// Runs a test with a cluster.
fn with_cluster(net: NetOptions, test: impl FnOnce(&Options)) {
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut end = End(stop, Vec::new());
        let mut shards = Vec::new();
        for half in 0..2 {
            let (tell, told) = channel();
            scope.spawn(move || serve(stop, tell, net, |_| shard(half)));
            let (address, alarm) = told.recv().unwrap();
            shards.push((MasterId(half + 1), address));
            end.1.push(alarm);
        }
        let (tell, told) = channel();
        scope.spawn(move || {
            serve(stop, tell, net, |world| {
                let clock = world.clock.clone();
                let mut state = CoordinatorState::new(60_000);
                state.shards = shards;
                let state = Rc::new(RefCell::new(state));
                ScriptedCoordinator { number: 0, state, time: Rc::new(move || clock.now().0) }
            });
        });
        let (coordinator, alarm) = told.recv().unwrap();
        end.1.push(alarm);
        test(&Options { net, ..Options::new([coordinator]) });
    });
}

fn tcp() -> NetOptions {
    NetOptions { shared_memory: false, ..NetOptions::default() }
}

#[test]
fn the_blocking_client_does_every_operation() {
    for net in [tcp(), NetOptions::default()] {
        with_cluster(net, |options| everything(&mut Client::connect(options).unwrap()));
    }
}

#[test]
fn a_client_goes_on_after_it_moved_to_another_thread() {
    for net in [tcp(), NetOptions::default()] {
        with_cluster(net, |options| {
            let mut client = Client::connect(options).unwrap();
            let table = client.create_table("t", 2).unwrap();
            let version = client.put(table, b"k", b"here", Condition::Always).unwrap();
            let elsewhere = move || {
                let before = client.get(table, b"k").unwrap();
                client.put(table, b"k", b"there", Condition::Always).unwrap();
                (client, before)
            };
            let (mut client, before) =
                std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap());
            assert_eq!(before, Some((version, b"here".to_vec())));
            assert_eq!(client.get(table, b"k").unwrap().unwrap().1, b"there");
        });
    }
}

fn everything(client: &mut Client) {
    let missing = Error::Refused(Status::NoSuchTable);
    assert_eq!(client.table("users"), Err(missing));
    let users = client.create_table("users", 2).unwrap();
    assert_eq!(client.table("users"), Ok(users));
    assert_eq!(client.create_table("users", 2), Err(Error::Refused(Status::TableExists)));

    let version = client.put(users, b"ada", b"analyst", Condition::Absent).unwrap();
    assert_eq!(client.get(users, b"ada"), Ok(Some((version, b"analyst".to_vec()))));
    let newer = client.put(users, b"ada", b"countess", Condition::VersionIs(version)).unwrap();
    let refused = client.put(users, b"ada", b"x", Condition::VersionIs(version));
    assert_eq!(refused, Err(Error::ConditionFailed { version: newer }));
    assert_eq!(client.delete(users, b"ada", Condition::Always), Ok(Some(newer)));
    assert_eq!(client.get(users, b"ada"), Ok(None));
    let sums = [Number::Integer(40), Number::Integer(2)]
        .map(|by| client.increment(users, b"n", by).unwrap().1);
    assert_eq!(sums, [Number::Integer(40), Number::Integer(42)]);
    let half = client.increment(users, b"f", Number::Float(0.5)).unwrap().1;
    assert_eq!(half, Number::Float(0.5));

    let pair = |it: u32| (it.to_be_bytes(), vec![it as u8; 100]);
    let written = client.put_many(users, (0..1000).map(pair));
    assert!(written.iter().all(Result::is_ok));
    let found = client.get_many(users, (0..1001).map(|it: u32| it.to_be_bytes()));
    for (number, found) in (0..1000).zip(&found) {
        let Ok(Some((_, value))) = found else { panic!("{found:?}") };
        assert_eq!(*value, pair(number).1);
    }
    assert_eq!(found.last(), Some(&Ok(None)));
    let keys: BTreeSet<_> = client.scan(users).map(|object| object.unwrap().key).collect();
    assert_eq!(keys.len(), 1002);

    let table = client.split("users", KeyHash(1 << 40)).unwrap();
    assert_eq!((table.id, table.tablets.len()), (users, 3));
    let too_far = client.migrate("users", KeyHash(1), MasterId(1));
    assert_eq!(too_far, Err(Error::Refused(Status::BadRange)));
    assert_eq!(client.tables().unwrap(), [table]);
    let status = client.status().unwrap();
    assert_eq!((status.leases, status.map.tables.len()), (1, 1));
    client.drop_table("users").unwrap();
    assert_eq!(client.drop_table("users"), Err(missing));
    assert_eq!(client.get(TableId(9), b"k"), Err(Error::NoSuchTable(TableId(9))));
    client.set_deadline(Some(Duration::from_millis(50)));
    let nobody = client.backup_status(silent().local_addr().unwrap());
    assert_eq!(nobody, Err(Error::TimedOut(Obstacle::NoAnswer)));
}

#[allow(clippy::disallowed_methods, reason = "a listener that does not speak our protocol")]
fn silent() -> std::net::TcpListener {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap()
}

#[test]
fn a_client_that_closes_or_is_dropped_ends_its_lease() {
    with_cluster(tcp(), |options| {
        let mut watching = Client::connect(options).unwrap();
        let table = watching.create_table("t", 1).unwrap();
        let mut leases = |count| {
            // A dropped client does not wait for the coordinator's answer.
            for _ in 0..100_000 {
                if watching.status().unwrap().leases == count {
                    return;
                }
            }
            panic!("{} leases remain", watching.status().unwrap().leases);
        };
        let mut closed = Client::connect(options).unwrap();
        closed.put(table, b"k", b"v", Condition::Always).unwrap();
        leases(1);
        closed.close();
        leases(0);
        let mut dropped = Client::connect(options).unwrap();
        dropped.put(table, b"k", b"v", Condition::Always).unwrap();
        leases(1);
        drop(dropped);
        leases(0);
        runtime().block_on(async {
            for closes in [true, false] {
                let client = AsyncClient::connect(options).await.unwrap();
                client.put(table, b"k", b"v", Condition::Always).await.unwrap();
                leases(1);
                if closes {
                    let other = client.clone();
                    client.close().await;
                    assert_eq!(other.get(table, b"k").await, Err(Error::Closed));
                    other.close().await;
                } else {
                    drop(client);
                }
                leases(0);
            }
        });
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

#[test]
fn two_thousand_tasks_share_a_client() {
    for net in [tcp(), NetOptions::default()] {
        with_cluster(net, |options| {
            runtime().block_on(share(options, 2000));
        });
    }
    // Also with a small limit of operations in flight.
    let few = |options: &Options| Options { in_flight_max: 3, ..options.clone() };
    with_cluster(tcp(), |options| runtime().block_on(share(&few(options), 500)));
}

async fn share(options: &Options, tasks: u64) {
    let client = AsyncClient::connect(options).await.unwrap();
    let table = client.create_table("t", 2).await.unwrap();
    let begun: Vec<_> = (0..tasks)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let own = (1000 + number).to_be_bytes();
                let version = client.put(table, &own, &own, Condition::Absent).await.unwrap();
                let shared = (number % 10).to_be_bytes();
                client.increment(table, &shared, Number::Integer(1)).await.unwrap();
                let found = client.get(table, &own).await.unwrap();
                assert_eq!(found, Some((version, own.to_vec())));
            })
        })
        .collect();
    for task in begun {
        task.await.unwrap();
    }
    let sums = client.get_many(table, (0..10u64).map(u64::to_be_bytes)).await;
    for sum in sums {
        let (_, value) = sum.unwrap().unwrap();
        assert_eq!(i64::from_le_bytes(value.try_into().unwrap()) as u64, tasks / 10);
    }
    let mut scan = client.scan(table);
    let mut keys = BTreeSet::new();
    while let Some(object) = scan.next().await {
        assert!(keys.insert(object.unwrap().key));
    }
    assert_eq!(keys.len() as u64, tasks + 10);
    client.drop_table("t").await.unwrap();
    client.close().await;
}

#[test]
fn dropping_a_future_cancels_its_wait_and_no_other() {
    with_cluster(tcp(), |options| {
        let few = Options { in_flight_max: 1, ..options.clone() };
        runtime().block_on(async {
            let client = AsyncClient::connect(&few).await.unwrap();
            let table = client.create_table("t", 1).await.unwrap();
            for number in 0..500u64 {
                let key = number.to_be_bytes();
                let task = {
                    let client = client.clone();
                    tokio::spawn(
                        async move { client.increment(table, &key, Number::Integer(1)).await },
                    )
                };
                tokio::task::yield_now().await;
                task.abort();
                // The operation is done at most once, and no task hangs.
                client.increment(table, &key, Number::Integer(1)).await.unwrap();
                let (_, value) = client.get(table, &key).await.unwrap().unwrap();
                let sum = i64::from_le_bytes(value.try_into().unwrap());
                assert!([1, 2].contains(&sum), "{sum}");
            }
            client.close().await;
        });
    });
}

#[test]
fn without_a_cluster_operations_end_by_their_deadline_with_the_obstacle() {
    let gone = silent().local_addr().unwrap();
    let quiet = silent();
    for address in [gone, quiet.local_addr().unwrap()] {
        let options = Options::new([address]).deadline(Some(Duration::from_millis(60)));
        let error = Client::connect(&options).err().unwrap();
        assert_eq!(error, Error::TimedOut(Obstacle::NoCoordinator));
        let error = runtime().block_on(AsyncClient::connect(&options)).err().unwrap();
        assert_eq!(error, Error::TimedOut(Obstacle::NoCoordinator));
        assert!(error.to_string().contains("no coordinator answers"));
    }
    let nowhere = Options::new([]);
    assert_eq!(Client::connect(&nowhere).err(), Some(Error::NoCoordinators));
    assert_eq!(
        runtime().block_on(AsyncClient::connect(&nowhere)).err(),
        Some(Error::NoCoordinators)
    );
    assert_eq!(
        Error::NoCoordinators.to_string(),
        "no coordinator is configured; give the address of at least one"
    );
}

#[test]
fn operations_keep_their_deadlines_when_the_cluster_stops() {
    let mut left = None;
    with_cluster(tcp(), |options| {
        let mut client = Client::connect(options).unwrap();
        let table = client.create_table("t", 1).unwrap();
        client.put(table, b"k", b"v", Condition::Always).unwrap();
        let client_2 = runtime().block_on(AsyncClient::connect(options)).unwrap();
        left = Some((client, client_2, table));
    });
    let (mut client, client_2, table) = left.unwrap();
    client.set_deadline(Some(Duration::from_millis(80)));
    let error = client.put(table, b"k", b"w", Condition::Always).unwrap_err();
    // The connection may break while the request is in flight.
    assert!(matches!(error, Error::TimedOut(Obstacle::NoAnswer) | Error::Unknown(_)), "{error}");
    let error = client.create_table("u", 1).unwrap_err();
    assert!(
        matches!(error, Error::TimedOut(Obstacle::NoCoordinator) | Error::Unknown(_)),
        "{error}"
    );
    let client_2 = client_2.with_deadline(Some(Duration::from_millis(80)));
    runtime().block_on(async {
        let tasks: Vec<_> = (0..200u64)
            .map(|number| {
                let client = client_2.clone();
                let key = number.to_be_bytes();
                tokio::spawn(async move { client.put(table, &key, b"v", Condition::Always).await })
            })
            .collect();
        for task in tasks {
            let error = task.await.unwrap().unwrap_err();
            assert!(matches!(error, Error::TimedOut(_)), "the client had no lease: {error}");
        }
        client_2.close().await;
    });
}

#[test]
fn one_batch_may_mix_operations_of_all_kinds() {
    with_cluster(tcp(), |options| {
        let mut client = Client::connect(options).unwrap();
        let [a, b] = ["a", "b"].map(|name| client.create_table(name, 1).unwrap());
        let operation = |table, key: &[u8], action| {
            let (key, condition) = (key.to_vec(), Condition::Always);
            Operation { table, key, condition, action }
        };
        let results = client.all(vec![
            operation(a, b"x", Action::Write(b"1".to_vec())),
            operation(b, b"x", Action::Increment(Number::Integer(2))),
            operation(b, b"", Action::Write(Vec::new())),
            operation(a, b"y", Action::Read),
            operation(TableId(9), b"x", Action::Delete),
        ]);
        assert!(matches!(results[0], Ok(Answer::Written(_))));
        assert!(matches!(results[1], Ok(Answer::Sum { number: Number::Integer(2), .. })));
        assert_eq!(results[2], Err(Error::Refused(Status::KeyEmpty)));
        assert_eq!(results[3], Ok(Answer::Absent));
        assert_eq!(results[4], Err(Error::NoSuchTable(TableId(9))));
        assert!(results.iter().all(|it| !matches!(it, Err(error) if error.is_unknown())));
    });
}
