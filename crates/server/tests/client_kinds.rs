//! The clients that other languages stand on: the completion queue, the pool, and interrupts.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use thunderhead_client::control::CreateTable;
use thunderhead_client::{
    Action, Answer, Client, ClientPool, Completion, CompletionQueue, Condition, Error, Number,
    Operation, Options, Outcome, Question, Reply, Request, Submission, TableId,
};
use thunderhead_server::{LocalCluster, LocalOptions};

/// A cluster of one server, and its files.
struct Cluster {
    local: Option<LocalCluster>,
    directory: std::path::PathBuf,
}

impl Cluster {
    fn start(name: &str) -> Cluster {
        let name = format!("thunderhead-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let options = LocalOptions { shards: 2, ..LocalOptions::small(directory.clone()) };
        Cluster { local: Some(LocalCluster::start(&options).unwrap()), directory }
    }

    fn options(&self) -> Options {
        let coordinator = self.local.as_ref().unwrap().coordinator();
        Options::new([coordinator]).deadline(Some(Duration::from_secs(30)))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(local) = self.local.take() {
            local.leave();
            let _ = local.join();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// An address at which a program accepts connections and never answers.
#[allow(clippy::disallowed_methods, reason = "this program is not a node")]
fn silent() -> (TcpListener, Options) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = Options::new([listener.local_addr().unwrap()]);
    (listener, options.deadline(Some(Duration::from_secs(600))))
}

fn operation(table: TableId, key: &[u8], action: Action) -> Operation {
    Operation { table, key: key.to_vec(), condition: Condition::Always, action }
}

/// Takes completions until there are as many as wanted.
fn collect(queue: &CompletionQueue, count: usize) -> BTreeMap<u64, Outcome> {
    let mut all = BTreeMap::new();
    while all.len() < count {
        for Completion { tag, outcome } in queue.take(7) {
            assert_eq!(all.insert(tag, outcome), None, "{tag} completed twice");
        }
        std::thread::yield_now();
    }
    all
}

#[test]
fn every_submission_to_a_queue_completes_once_with_its_tag() {
    let cluster = Cluster::start("queue");
    let queue = CompletionQueue::connect(&cluster.options()).unwrap();
    let question = CreateTable::spread("t", 2);
    let request = Request::Question(Question::CreateTable(question));
    let deadline = Some(Duration::from_secs(30));
    let number = queue.submit(vec![Submission { tag: 1, request, deadline }]).unwrap();
    let table = match collect(&queue, 1).remove(&1) {
        Some(Outcome::Question(reply)) => match *reply {
            Ok(Reply::Table(table)) => table.id,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let writes = (0..500u64).map(|tag| {
        let action = Action::Increment(Number::Integer(1));
        let parts = vec![operation(table, &(tag % 10).to_be_bytes(), action); 2];
        Submission { tag, request: Request::Operations(parts), deadline }
    });
    let first = queue.submit(writes.collect()).unwrap();
    assert_eq!(first, number + 1);
    for (tag, outcome) in collect(&queue, 500) {
        let Outcome::Operations(results) = outcome else { panic!("{tag}: {outcome:?}") };
        assert_eq!(results.len(), 2);
        assert!(results.iter().all(|it| matches!(it, Ok(Answer::Sum { .. }))), "{results:?}");
    }
    let reads = (0..10u64).map(|tag| {
        let request = Request::Operations(vec![operation(table, &tag.to_be_bytes(), Action::Read)]);
        Submission { tag, request, deadline }
    });
    queue.submit(reads.collect()).unwrap();
    for (tag, outcome) in collect(&queue, 10) {
        let Outcome::Operations(results) = outcome else { panic!("{tag}: {outcome:?}") };
        let Ok(Answer::Found { value, .. }) = &results[0] else { panic!("{results:?}") };
        assert_eq!(*value, 100i64.to_le_bytes(), "the counter {tag}");
    }
    // Work without operations completes too.
    let request = Request::Operations(Vec::new());
    queue.submit(vec![Submission { tag: 3, request: request.clone(), deadline }]).unwrap();
    assert_eq!(collect(&queue, 1).remove(&3), Some(Outcome::Operations(Vec::new())));
    queue.close();
    queue.close();
    let refused = queue.submit(vec![Submission { tag: 4, request, deadline }]);
    assert_eq!(refused, Err(Error::Closed));
    assert_eq!(queue.take(1), []);
}

#[test]
fn cancelled_work_completes_and_says_whether_it_may_have_been_done() {
    let cluster = Cluster::start("cancel");
    let options = Options { in_flight_max: 1, ..cluster.options() };
    let mut client = Client::connect(&options).unwrap();
    let table = client.ensure_table("t", 1).unwrap();
    assert_eq!(client.ensure_table("t", 1), Ok(table), "it exists");
    assert_eq!(client.table("t"), Ok(table));
    let queue = CompletionQueue::connect(&options).unwrap();
    let count = 200;
    let writes = (0..count).map(|tag: u64| {
        let action = Action::Increment(Number::Integer(1));
        let request = Request::Operations(vec![operation(table, b"n", action)]);
        Submission { tag, request, deadline: None }
    });
    let first = queue.submit(writes.collect()).unwrap();
    (first..first + count).for_each(|number| queue.cancel(number));
    let (mut done, mut unknown) = (0, 0);
    for (tag, outcome) in collect(&queue, count as usize) {
        let Outcome::Operations(results) = outcome else { panic!("{tag}: {outcome:?}") };
        match &results[0] {
            Ok(_) => done += 1,
            Err(error) if error.is_unknown() => unknown += 1,
            Err(error) => assert_eq!(*error, Error::Cancelled),
        }
    }
    // Numbers of work that has ended, or never was, have no effect.
    queue.cancel(first);
    queue.cancel(u64::MAX);
    queue.close();
    let value = client
        .get(table, b"n")
        .unwrap()
        .map_or(0, |(_, value)| i64::from_le_bytes(value.try_into().unwrap()));
    assert!((done..=done + unknown).contains(&value), "{done} done, {unknown} unknown: {value}");
}

#[test]
fn threads_share_a_pool_and_none_waits_for_another_for_ever() {
    let cluster = Cluster::start("pool");
    let options = cluster.options();
    let connects = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&connects);
    let pool = ClientPool::of(2, options.deadline, move || {
        count.fetch_add(1, Ordering::Relaxed);
        Client::connect(&options)
    });
    let pool = pool.unwrap();
    let table = pool.with(|client| client.create_table("t", 2)).unwrap().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let by = Number::Integer(1);
                    pool.with(|client| client.increment(table, b"n", by)).unwrap().unwrap();
                }
            });
        }
    });
    let read = pool.with(|client| client.get(table, b"n")).unwrap().unwrap();
    assert_eq!(read.unwrap().1, 400i64.to_le_bytes());
    assert!((1..=2).contains(&connects.load(Ordering::Relaxed)));
    // A client whose user panicked is replaced.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = pool.with(|_| panic!("expected by the test"));
    }));
    assert!(panicked.is_err());
    for _ in 0..3 {
        pool.with(|client| client.get(table, b"n")).unwrap().unwrap();
    }
    pool.close();
    assert_eq!(pool.with(|_| ()), Err(Error::Closed));
}

#[test]
fn threads_of_any_patience_share_one_client() {
    let cluster = Cluster::start("patience");
    for patience in [Some(Duration::from_secs(30)), None, Some(Duration::MAX)] {
        let options = cluster.options();
        let pool = ClientPool::of(1, patience, move || Client::connect(&options)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        pool.with(|client| client.tables()).unwrap().unwrap();
                    }
                });
            }
        });
    }
}

#[test]
fn an_interrupt_ends_a_wait_and_the_client_can_be_used_again() {
    let (_listener, options) = silent();
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let error = Client::connect_interruptibly(&options, Duration::from_millis(1), move || {
        count.fetch_add(1, Ordering::Relaxed) >= 2
    });
    assert_eq!(error.map(drop), Err(Error::Cancelled));
    assert_eq!(asked.load(Ordering::Relaxed), 3);

    let cluster = Cluster::start("interrupt");
    let mut client = Client::connect(&cluster.options()).unwrap();
    let table = client.create_table("t", 1).unwrap();
    client.put(table, b"key", b"value", Condition::Always).unwrap();
    // An interrupt at every look: operations either end first or are cancelled, and none of them
    // disturbs a later one.
    client.set_interrupt(Duration::ZERO, || true);
    for number in 0..200u64 {
        match client.put(table, b"key", &number.to_le_bytes(), Condition::Always) {
            Ok(_) | Err(Error::Cancelled) => {}
            Err(error) => assert!(error.is_unknown(), "{error}"),
        }
        match client.get(table, b"key") {
            Ok(found) => assert!(found.is_some()),
            Err(error) => assert_eq!(error, Error::Cancelled),
        }
    }
    client.set_interrupt(Duration::from_secs(600), || true);
    client.put(table, b"key", b"last", Condition::Always).unwrap();
    let (version, value) = client.get(table, b"key").unwrap().unwrap();
    let borrowed =
        client.get_with(table, b"key", |found| found == Some((version, b"last".as_slice())));
    assert_eq!((value.as_slice(), borrowed), (b"last".as_slice(), Ok(true)));
    assert_eq!(client.get_with(table, b"none", |found| found.is_none()), Ok(true));
}
