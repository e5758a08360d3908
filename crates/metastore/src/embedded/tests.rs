//! Failing inputs and outputs.
#![allow(clippy::disallowed_methods, reason = "a file is waited for on the machine's clock")]

use super::*;
use crate::Key;
use std::sync::atomic::{AtomicU64, Ordering};

struct Scrap(PathBuf);

impl Scrap {
    fn new() -> Scrap {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("thunderhead-metastore-faults-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Scrap(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("metastore")
    }
}

impl Drop for Scrap {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const TTL: Duration = Duration::from_secs(20);

fn open(path: &Path) -> (Embedded, Arc<file::Faults>) {
    let store = Embedded::open(path).expect("it opens");
    let faults = match &store.core().state {
        State::Open(_, file) => Arc::clone(&file.faults),
        _ => panic!("it was opened"),
    };
    (store, faults)
}

fn ask(store: &Embedded, request: &Request) -> Result<Answer, Error> {
    Client(store.clone()).answer(request)
}

fn lease() -> LeaseName {
    LeaseName::new("l").expect("a good name")
}

fn acquire(store: &Embedded) -> Fence {
    let holder = Holder { id: 1, description: String::new() };
    match ask(store, &Request::Acquire { lease: lease(), holder, ttl: TTL }) {
        Ok(Answer::Acquired(token)) => Fence { lease: lease(), token },
        other => panic!("{other:?}"),
    }
}

fn create(key: &str, fence: &Fence) -> Request {
    let key = Key::new(key).expect("a good key");
    Request::Write { key, change: Change::Create(b"value".into()), fence: Some(fence.clone()) }
}

fn keys(store: &Embedded) -> Result<Vec<String>, Error> {
    match ask(store, &Request::List { prefix: Prefix::all(), after: None })? {
        Answer::Page(page) => Ok(page.entries.iter().map(|it| it.key.to_string()).collect()),
        other => panic!("{other:?}"),
    }
}

/// Repeats a request until the pause before the next opening of the file is over.
fn until_done(store: &Embedded, request: &Request) -> Answer {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match ask(store, request) {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    }
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room_again() {
    let scrap = Scrap::new();
    let (store, faults) = open(&scrap.file());
    let fence = acquire(&store);
    until_done(&store, &create("a", &fence));
    faults.full.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        let refused = ask(&store, &create("b", &fence)).expect_err("there is no room");
        assert!(refused.is_transient(), "{refused}");
    }
    // No other process can take the file meanwhile, and the leader stays the leader.
    let other = Embedded::open(&scrap.file()).err();
    assert!(matches!(other, Some(OpenError::InUse { .. })), "{other:?}");
    assert_eq!(ask(&store, &Request::Renew { fence: fence.clone() }), Ok(Answer::Renewed));
    faults.full.store(false, Ordering::Relaxed);
    let answer = until_done(&store, &create("b", &fence));
    let was_done_before = matches!(answer, Answer::Conflict(Some(_)));
    assert!(was_done_before || matches!(answer, Answer::Written(_)), "{answer:?}");
    assert_eq!(keys(&store).expect("it works"), ["a", "b"]);
    drop(store);
    let (store, _) = open(&scrap.file());
    assert_eq!(keys(&store).expect("it works"), ["a", "b"]);
    assert!(acquire(&store).token > fence.token);
}

#[test]
fn one_error_ends_with_its_cause() {
    let scrap = Scrap::new();
    let (store, faults) = open(&scrap.file());
    let fence = acquire(&store);
    faults.full.store(true, Ordering::Relaxed);
    ask(&store, &create("a", &fence)).expect_err("there is no room");
    faults.full.store(false, Ordering::Relaxed);
    ask(&store, &create("a", &fence)).expect("the very next request is done");
}

#[test]
fn a_store_in_memory_recovers_without_a_file() {
    let store = Embedded::in_memory().expect("it opens");
    let faults = match &store.core().state {
        State::Open(_, file) => Arc::clone(&file.faults),
        _ => panic!("it was opened"),
    };
    let fence = acquire(&store);
    until_done(&store, &create("a", &fence));
    faults.full.store(true, Ordering::Relaxed);
    ask(&store, &create("b", &fence)).expect_err("there is no room");
    faults.full.store(false, Ordering::Relaxed);
    ask(&store, &create("c", &fence)).expect("the very next request is done");
    let keys = keys(&store).expect("it works");
    assert!(keys.contains(&"a".to_owned()) && keys.contains(&"c".to_owned()), "{keys:?}");
    store.close();
    assert!(store.reopen().is_err(), "a closed store in memory is gone");
}

#[test]
fn leases_end_when_the_file_cannot_be_opened_for_long() {
    let scrap = Scrap::new();
    let (store, faults) = open(&scrap.file());
    let fence = acquire(&store);
    let renew = Request::Renew { fence: fence.clone() };
    faults.broken.store(true, Ordering::Relaxed);
    ask(&store, &create("a", &fence)).expect_err("the device does not answer");
    assert_eq!(ask(&store, &renew), Ok(Answer::Renewed), "the leases outlast a short failure");
    let later = |by| store.core().began -= by;
    later(Duration::from_secs(10));
    assert_eq!(ask(&store, &renew), Ok(Answer::Renewed));
    later(LEADS_UNOPENED - Duration::from_secs(5));
    assert_eq!(ask(&store, &renew), Ok(Answer::NotHeld));
    let held = ask(&store, &Request::Holder { lease: lease() });
    assert_eq!(held, Ok(Answer::Holder(None)));
    faults.broken.store(false, Ordering::Relaxed);
    later(REOPENING.longest());
    assert!(acquire(&store).token > fence.token);
}

#[test]
fn a_file_that_replaces_it_ends_its_leases() {
    let scrap = Scrap::new();
    let (store, faults) = open(&scrap.file());
    acquire(&store);
    let copy = scrap.0.join("copy");
    std::fs::copy(scrap.file(), &copy).expect("a copy");
    // The copy is older by two acquisitions.
    let mut fence = acquire(&store);
    for _ in 0..2 {
        assert_eq!(ask(&store, &Request::Release { fence }), Ok(Answer::Released));
        fence = acquire(&store);
    }
    faults.broken.store(true, Ordering::Relaxed);
    ask(&store, &create("a", &fence)).expect_err("the device does not answer");
    std::fs::remove_file(scrap.file()).expect("it was there");
    let refused = ask(&store, &create("a", &fence)).expect_err("there is no file");
    assert!(refused.to_string().contains("No such file"), "{refused}");
    std::fs::rename(&copy, scrap.file()).expect("it takes the place");
    store.core().began -= REOPENING.longest();
    assert_eq!(until_done(&store, &create("a", &fence)), Answer::Deposed);
    assert!(acquire(&store).token > fence.token, "a server may have heard of that one");
}
