//! A program that uses a metastore, and the time that passes for it.

use std::time::Duration;
use thunderhead_metastore::{
    Answer, Change, Entry, Error, Event, Fence, Held, Holder, Key, LeaseName, Metastore, Prefix,
    Request, RequestId, Token, Version, WatchId,
};
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::os::Poller;
use thunderhead_runtime::sim::clock::TrueTime;
use thunderhead_runtime::workers::Workers;
use thunderhead_runtime::{Time, World};

/// How long any step may take. Far longer than it should.
const PATIENCE: Duration = Duration::from_secs(60);

/// The way in which time passes.
pub(crate) enum Passing {
    /// As on any machine. The client's threads belong to the workers.
    Os { poller: Poller, _workers: Box<dyn Workers> },
    /// As the test says.
    Sim(TrueTime),
}

/// A client and all events that it got.
pub(crate) struct Client {
    pub(crate) store: Box<dyn Metastore>,
    pub(crate) clock: Clock,
    passing: Passing,
    /// Events that the test has not read.
    heard: Vec<Event>,
}

/// A key that is well formed.
pub(crate) fn key(text: &str) -> Key {
    Key::new(text).expect("a good key")
}

/// The name of a lease that is well formed.
pub(crate) fn lease(text: &str) -> LeaseName {
    LeaseName::new(text).expect("a good name")
}

/// A holder with a number.
pub(crate) fn holder(id: u64) -> Holder {
    Holder { id, description: format!("coordinator {id} at \"10.0.0.{id}:7000\"") }
}

impl Client {
    pub(crate) fn os(world: World, store: Box<dyn Metastore>) -> Client {
        let World { clock, workers, alarm, .. } = world;
        let poller = Poller::new(alarm).expect("a poller");
        let passing = Passing::Os { poller, _workers: workers };
        Client { store, clock, passing, heard: Vec::new() }
    }

    pub(crate) fn sim(clock: Clock, truth: TrueTime, store: Box<dyn Metastore>) -> Client {
        Client { store, clock, passing: Passing::Sim(truth), heard: Vec::new() }
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Lets a little time pass, and takes the events that have arrived.
    pub(crate) fn pass(&mut self) {
        match &mut self.passing {
            Passing::Os { poller, .. } => {
                let _ = poller.alarm().was_rung();
                poller.sleep(Some(Duration::from_millis(5)));
            }
            Passing::Sim(truth) => truth.set(truth.get() + 1_000_000),
        }
        while let Some(event) = self.store.poll(self.clock.now()) {
            self.heard.push(event);
        }
    }

    /// Waits until the closure finds a value.
    pub(crate) fn until<T>(
        &mut self,
        goal: &str,
        mut found: impl FnMut(&mut Client) -> Option<T>,
    ) -> T {
        let began = self.now();
        loop {
            self.pass();
            if let Some(found) = found(self) {
                return found;
            }
            assert!(self.now().since(began) < PATIENCE, "waited too long for {goal}");
        }
    }

    pub(crate) fn submit(&mut self, request: Request) -> RequestId {
        let now = self.now();
        self.store.submit(now, request)
    }

    /// Returns the answer to a request, if it has come.
    pub(crate) fn answer(&mut self, id: RequestId) -> Option<Result<Answer, Error>> {
        let is_it = |event: &Event| matches!(event, Event::Done(done, _) if *done == id);
        let at = self.heard.iter().position(is_it)?;
        match self.heard.remove(at) {
            Event::Done(_, result) => Some(result),
            Event::Changed(_) => None,
        }
    }

    /// Returns all answers that have come.
    pub(crate) fn answers(&mut self) -> Vec<(RequestId, Result<Answer, Error>)> {
        let mut answers = Vec::new();
        self.heard.retain(|event| match event {
            Event::Done(id, result) => {
                answers.push((*id, result.clone()));
                false
            }
            Event::Changed(_) => true,
        });
        answers
    }

    pub(crate) fn try_ask(&mut self, request: Request) -> Result<Answer, Error> {
        let goal = format!("{request:.60?}");
        let id = self.submit(request);
        self.until(&goal, |client| client.answer(id))
    }

    /// Returns the answer to a request that must not fail for want of a connection.
    pub(crate) fn ask(&mut self, request: Request) -> Answer {
        let goal = format!("{request:?}");
        self.try_ask(request).unwrap_or_else(|error| panic!("{goal:.200}: {error}"))
    }

    /// Repeats a request until the store answers it.
    pub(crate) fn ask_patiently(&mut self, request: &Request) -> Answer {
        self.until("a store that answers", |client| match client.try_ask(request.clone()) {
            Ok(answer) => Some(answer),
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                None
            }
        })
    }

    pub(crate) fn get(&mut self, name: &str) -> Option<Entry> {
        match self.ask(Request::Get { key: key(name) }) {
            Answer::Value(entry) => entry,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn change(&mut self, name: &str, change: Change, fence: Option<&Fence>) -> Answer {
        self.ask(Request::Write { key: key(name), change, fence: fence.cloned() })
    }

    pub(crate) fn written(&mut self, name: &str, change: Change) -> Version {
        match self.change(name, change, None) {
            Answer::Written(version) => version,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub(crate) fn create(&mut self, name: &str, value: &[u8]) -> Version {
        self.written(name, Change::Create(value.to_vec()))
    }

    pub(crate) fn list(&mut self, prefix: &Prefix) -> Vec<Entry> {
        let (mut entries, mut after) = (Vec::new(), None);
        loop {
            let request = Request::List { prefix: prefix.clone(), after: after.take() };
            let Answer::Page(page) = self.ask(request) else { panic!("it must be a page") };
            assert!(page.entries.len() <= thunderhead_metastore::limits::PAGE_ENTRIES_MAX);
            assert!(!page.more || !page.entries.is_empty(), "it must get on");
            after = page.entries.last().map(|entry| entry.key.clone());
            entries.extend(page.entries);
            if !page.more {
                return entries;
            }
        }
    }

    pub(crate) fn acquire(&mut self, name: &str, id: u64, ttl: Duration) -> Result<Token, Held> {
        // Asking again is harmless, and a machine that tests may be slow.
        let request = Request::Acquire { lease: lease(name), holder: holder(id), ttl };
        match self.ask_patiently(&request) {
            Answer::Acquired(token) => Ok(token),
            Answer::HeldBy(held) => Err(held),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn watch(&mut self, prefix: Prefix) -> WatchId {
        let now = self.now();
        let watch = self.store.watch(now, prefix);
        self.changed(watch);
        watch
    }

    /// Waits for a watch to say something.
    pub(crate) fn changed(&mut self, watch: WatchId) {
        self.until("a watch", |client| {
            let at = client.heard.iter().position(|event| *event == Event::Changed(watch))?;
            client.heard.remove(at);
            Some(())
        });
    }
}
