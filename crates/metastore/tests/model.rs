//! Random operations on the embedded and the simulated store, compared with a plain model. The
//! embedded store is also closed and opened at random moments.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thunderhead_metastore::embedded::Embedded;
use thunderhead_metastore::sim::{Faults, SimStore};
use thunderhead_metastore::{
    Answer, Change, Entry, Event, Fence, Holder, Key, LeaseName, Metastore, Page, Prefix, Request,
    Token, Version,
};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::sim::clock::{SimClock, TrueTime};
use thunderhead_runtime::sim::disk::{DiskModel, SimDisk};
use thunderhead_runtime::sim::workers::SimWorkers;
use thunderhead_runtime::{Random, Time};

/// A drawn operation. Its numbers choose among few keys, versions and leases, so that operations
/// meet.
#[derive(Clone, Debug)]
enum Operation {
    Get(u8),
    List(u8, Option<u8>),
    Write { key: u8, kind: u8, stale: bool, fence: Option<(u8, u8)>, length: u16 },
    Acquire(u8, u64),
    Renew(u8, u8),
    Release(u8, u8),
    Holder(u8),
    Restart,
}

fn operation() -> impl Strategy<Value = Operation> {
    let fence = proptest::option::of((0..2u8, 0..3u8));
    let write = (0..9u8, 0..3u8, prop::bool::weighted(0.2), fence, 0..300u16);
    prop_oneof![
        2 => (0..9u8).prop_map(Operation::Get),
        2 => (0..5u8, proptest::option::of(0..9u8)).prop_map(|(at, by)| Operation::List(at, by)),
        8 => write.prop_map(|(key, kind, stale, fence, length)| {
            Operation::Write { key, kind, stale, fence, length }
        }),
        2 => (0..2u8, 1..4u64).prop_map(|(lease, holder)| Operation::Acquire(lease, holder)),
        1 => (0..2u8, 0..3u8).prop_map(|(lease, back)| Operation::Renew(lease, back)),
        1 => (0..2u8, 0..3u8).prop_map(|(lease, back)| Operation::Release(lease, back)),
        1 => (0..2u8).prop_map(Operation::Holder),
        1 => Just(Operation::Restart),
    ]
}

const KEYS: [&str; 9] = ["a", "a/b", "a/b/c", "a-b/c", "b/1", "b/10", "b/2", "c", "ü/日"];

fn key(number: u8) -> Key {
    Key::new(KEYS[usize::from(number)]).expect("a good key")
}

fn prefix(number: u8) -> Prefix {
    let named = |name| Prefix::under(name).expect("a good prefix");
    [Prefix::all(), named("a"), named("a/b"), named("b"), named("d")][usize::from(number)].clone()
}

fn lease(number: u8) -> LeaseName {
    LeaseName::new(format!("l{number}")).expect("a good name")
}

/// The right values and leases. Leases do not expire here: no time passes.
#[derive(Default)]
struct Model {
    values: BTreeMap<String, (Version, Vec<u8>)>,
    leases: BTreeMap<String, (u64, Token)>,
    tokens: BTreeMap<String, u64>,
    newest: u64,
}

impl Model {
    /// Returns the fence of an operation: the newest token, or an older or newer one.
    fn fence(&self, number: u8, back: u8) -> Fence {
        let lease = lease(number);
        let newest = self.tokens.get(lease.as_str()).copied().unwrap_or(0);
        let token = Token((newest + 1).saturating_sub(u64::from(back + 1) % 3));
        Fence { lease, token }
    }

    fn is_held(&self, fence: &Fence) -> bool {
        self.leases.get(fence.lease.as_str()).is_some_and(|(_, token)| *token == fence.token)
    }

    fn request(&self, operation: &Operation) -> Option<Request> {
        Some(match operation {
            Operation::Get(number) => Request::Get { key: key(*number) },
            Operation::List(at, after) => {
                Request::List { prefix: prefix(*at), after: after.map(key) }
            }
            Operation::Write { key: number, kind, stale, fence, length } => {
                let key = key(*number);
                let current = self.values.get(key.as_str()).map_or(Version(0), |found| found.0);
                let version = Version(current.0.saturating_sub(u64::from(*stale)));
                let value = vec![*number; usize::from(*length)];
                let change = match kind {
                    0 => Change::Create(value),
                    1 => Change::Replace(version, value),
                    _ => Change::Delete(version),
                };
                let fence = fence.map(|(lease, back)| self.fence(lease, back));
                Request::Write { key, change, fence }
            }
            Operation::Acquire(number, id) => Request::Acquire {
                lease: lease(*number),
                holder: Holder { id: *id, description: String::new() },
                ttl: Duration::from_secs(20),
            },
            Operation::Renew(number, back) => Request::Renew { fence: self.fence(*number, *back) },
            Operation::Release(number, back) => {
                Request::Release { fence: self.fence(*number, *back) }
            }
            Operation::Holder(number) => Request::Holder { lease: lease(*number) },
            Operation::Restart => return None,
        })
    }

    /// Checks an answer and follows it.
    fn follow(&mut self, request: &Request, answer: &Answer) -> Result<(), TestCaseError> {
        match request {
            Request::Get { key } => {
                let found = self.values.get(key.as_str());
                let entry = found.map(|(version, value)| Entry {
                    key: key.clone(),
                    version: *version,
                    value: value.clone(),
                });
                prop_assert_eq!(answer, &Answer::Value(entry));
            }
            Request::List { prefix, after } => {
                let entries = self.values.iter().map(|(name, (version, value))| Entry {
                    key: Key::new(name.as_str()).expect("a good key"),
                    version: *version,
                    value: value.clone(),
                });
                let entries = entries
                    .filter(|entry| prefix.contains(&entry.key))
                    .filter(|entry| after.as_ref().is_none_or(|after| entry.key > *after))
                    .collect();
                prop_assert_eq!(answer, &Answer::Page(Page { entries, more: false }));
            }
            Request::Write { key, change, fence } => {
                let current = self.values.get(key.as_str()).map(|found| found.0);
                if fence.as_ref().is_some_and(|fence| !self.is_held(fence)) {
                    prop_assert_eq!(answer, &Answer::Deposed);
                } else if current == change.expected() {
                    let Answer::Written(version) = answer else {
                        return Err(TestCaseError::fail(format!("{answer:?}")));
                    };
                    prop_assert!(version.0 > self.newest);
                    self.newest = version.0;
                    match change.value() {
                        Some(value) => {
                            self.values.insert(key.to_string(), (*version, value.to_vec()));
                        }
                        None => drop(self.values.remove(key.as_str())),
                    }
                } else {
                    prop_assert_eq!(answer, &Answer::Conflict(current));
                }
            }
            Request::Acquire { lease, holder, .. } => {
                match (answer, self.leases.get(lease.as_str())) {
                    (Answer::Acquired(token), Some((by, held))) => {
                        prop_assert!(*by == holder.id && held == token);
                    }
                    (Answer::Acquired(token), None) => {
                        let last = self.tokens.insert(lease.to_string(), token.0);
                        prop_assert!(last.is_none_or(|last| last < token.0));
                        self.leases.insert(lease.to_string(), (holder.id, *token));
                    }
                    (Answer::HeldBy(held), Some((by, token))) => {
                        prop_assert!(held.by.id == *by && held.token == *token && *by != holder.id);
                    }
                    other => return Err(TestCaseError::fail(format!("{other:?}"))),
                }
            }
            Request::Renew { fence } => {
                let held = self.is_held(fence);
                prop_assert_eq!(answer, if held { &Answer::Renewed } else { &Answer::NotHeld });
            }
            Request::Release { fence } => {
                if self.is_held(fence) {
                    self.leases.remove(fence.lease.as_str());
                }
                prop_assert_eq!(answer, &Answer::Released);
            }
            Request::Holder { lease } => {
                let Answer::Holder(held) = answer else {
                    return Err(TestCaseError::fail(format!("{answer:?}")));
                };
                let found = held.as_ref().map(|held| (held.by.id, held.token));
                prop_assert_eq!(found, self.leases.get(lease.as_str()).copied());
            }
        }
        Ok(())
    }
}

struct Scrap(PathBuf);

impl Scrap {
    fn new() -> Scrap {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("thunderhead-metastore-model-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Scrap(path)
    }
}

impl Drop for Scrap {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn the_embedded_store_agrees_with_the_model(
        operations in proptest::collection::vec(operation(), 1..60)
    ) {
        let scrap = Scrap::new();
        let store = Embedded::open(&scrap.0.join("metastore")).expect("it opens");
        // Its worker steps only when the test says so.
        let workers = SimWorkers::default();
        let disk = SimDisk::new(DiskModel::default(), Random::from_seed(1));
        let mut starter = workers.starter(move || Box::new(disk.files()));
        let mut client = store.client(&mut starter, Alarm::sim()).expect("a client");
        let mut model = Model::default();
        for operation in &operations {
            let Some(request) = model.request(operation) else {
                store.close();
                store.reopen().expect("it opens again");
                // Leases end with the process; tokens do not.
                model.leases.clear();
                continue;
            };
            client.submit(Time(0), request.clone());
            workers.step(0);
            match client.poll(Time(0)) {
                Some(Event::Done(_, Ok(answer))) => model.follow(&request, &answer)?,
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }

    #[test]
    fn the_simulated_store_agrees_with_the_model(
        operations in proptest::collection::vec(operation(), 1..200)
    ) {
        let truth = TrueTime::default();
        let store = SimStore::new(truth.clone(), Random::from_seed(3), Faults::none());
        let clock = Clock::Sim(Arc::new(SimClock::new(truth.clone(), Time(0), 0)));
        let mut client = store.client(clock.clone());
        let mut model = Model::default();
        for operation in &operations {
            let Some(request) = model.request(operation) else {
                store.stop();
                store.start();
                continue;
            };
            client.submit(clock.now(), request.clone());
            let answer = loop {
                match client.poll(clock.now()) {
                    Some(event) => break event,
                    None => truth.set(client.deadline().expect("an answer is coming").0),
                }
            };
            match answer {
                Event::Done(_, Ok(answer)) => model.follow(&request, &answer)?,
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
