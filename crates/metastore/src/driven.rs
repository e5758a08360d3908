//! A metastore that threads drive: the reactor's end of the three stores that block on devices or
//! networks.
//!
//! A request goes into the queue of a *lane*: a worker with its own driver, which does one request
//! after another and may block. Its answer comes back through a queue that all lanes share, and
//! rings the reactor's alarm. If the store is across a network, requests about leases have a lane
//! of their own, so that a renewal never waits behind a long list of values.
//!
//! Watches are polls: at intervals, a lane computes a *fingerprint* of the values below a prefix.
//! This side only remembers one number, so no failure of connections can hide a change for ever.

use crate::error::Error;
use crate::key::Prefix;
use crate::limits::REQUESTS_MAX;
use crate::request::{Answer, Request};
use crate::store::{Event, Metastore, RequestId, WatchId};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::files::Files;
use thunderhead_runtime::workers::{Step, Worker, WorkerBell, Workers};

/// A store's side of a lane. It may block, but not for ever.
pub(crate) trait Driver: Send {
    /// Does a request.
    fn answer(&mut self, request: &Request) -> Result<Answer, Error>;

    /// Returns a number that differs from all earlier ones if a value below the prefix has changed.
    fn fingerprint(&mut self, prefix: &Prefix) -> Result<u128, Error>;
}

/// A client of a metastore behind threads. [`embedded`](crate::embedded), [`etcd`](crate::etcd) and
/// [`zookeeper`](crate::zookeeper) make it.
pub struct Driven {
    lanes: Lanes,
    answers: Arc<Answers>,
    ready: VecDeque<Event>,
    watches: BTreeMap<WatchId, Watch>,
    watch_every: Duration,
    waiting: usize,
    count: u64,
}

/// The lanes of a store, and the requests that each takes.
pub(crate) enum Lanes {
    One(Lane),
    Two { keys: Lane, leases: Lane },
}

/// The reactor's end of a lane.
pub(crate) struct Lane {
    queue: Arc<Mutex<Queue>>,
    bell: WorkerBell,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// One end of the lane is gone.
    closed: bool,
}

enum Job {
    Request(RequestId, Request),
    Probe(WatchId, Prefix),
}

enum Done {
    Request(RequestId, Result<Answer, Error>),
    Probe(WatchId, Option<u128>),
}

/// The answers of the lanes.
pub(crate) struct Answers {
    queue: Mutex<VecDeque<Done>>,
    alarm: Alarm,
}

/// The worker's end of a lane.
struct LaneWorker<D> {
    queue: Arc<Mutex<Queue>>,
    answers: Arc<Answers>,
    /// Dropped together with the reactor's end.
    driver: Option<D>,
    /// The job in progress. If it panics, it is answered all the same.
    in_hand: Option<Job>,
}

struct Watch {
    prefix: Prefix,
    seen: Option<u128>,
    /// When to ask again; never while an answer is pending.
    next: Time,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Answers {
    pub(crate) fn new(alarm: Alarm) -> Arc<Answers> {
        Arc::new(Answers { queue: Mutex::default(), alarm })
    }

    fn push(&self, done: Done) {
        lock(&self.queue).push_back(done);
        self.alarm.ring();
    }
}

impl Lane {
    /// Starts a lane.
    pub(crate) fn start(
        name: &str,
        driver: impl Driver + 'static,
        workers: &mut dyn Workers,
        answers: &Arc<Answers>,
    ) -> io::Result<Lane> {
        let queue = Arc::new(Mutex::new(Queue::default()));
        let worker = LaneWorker {
            queue: Arc::clone(&queue),
            answers: Arc::clone(answers),
            driver: Some(driver),
            in_hand: None,
        };
        let bell = workers.start(name, Box::new(worker))?;
        Ok(Lane { queue, bell })
    }

    /// Adds a job, unless the lane is closed. Returns whether it did.
    fn push(&self, job: Job) -> bool {
        let mut queue = lock(&self.queue);
        if !queue.closed {
            queue.jobs.push_back(job);
            drop(queue);
            self.bell.ring();
            return true;
        }
        false
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        queue.jobs.clear();
        drop(queue);
        self.bell.ring();
    }
}

impl<D: Driver> Worker for LaneWorker<D> {
    fn step(&mut self, _files: &mut dyn Files) -> Step {
        let mut queue = lock(&self.queue);
        self.in_hand = queue.jobs.pop_front();
        let closed = queue.closed;
        drop(queue);
        if closed {
            self.driver = None;
        }
        let (Some(job), Some(driver)) = (&self.in_hand, &mut self.driver) else {
            return Step::Idle;
        };
        let done = match job {
            Job::Request(id, request) => Done::Request(*id, driver.answer(request)),
            Job::Probe(watch, prefix) => Done::Probe(*watch, driver.fingerprint(prefix).ok()),
        };
        self.in_hand = None;
        self.answers.push(done);
        Step::Again
    }

    fn waits_for_devices(&self) -> bool {
        true
    }
}

impl<D> Drop for LaneWorker<D> {
    /// Answers all pending requests when the thread ends or a driver panics: no caller waits for
    /// ever.
    fn drop(&mut self) {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        let left = std::mem::take(&mut queue.jobs);
        drop(queue);
        let why = "the thread that serves it has ended; restart this process";
        if let Some(Job::Request(id, request)) = self.in_hand.take() {
            let error = if request.only_reads() { Error::unavailable } else { Error::unknown };
            self.answers.push(Done::Request(id, Err(error(why))));
        }
        for job in left {
            if let Job::Request(id, _) = job {
                self.answers.push(Done::Request(id, Err(Error::unavailable(why))));
            }
        }
    }
}

impl Driven {
    pub(crate) fn new(lanes: Lanes, answers: Arc<Answers>, watch_every: Duration) -> Driven {
        Driven {
            lanes,
            answers,
            ready: VecDeque::new(),
            watches: BTreeMap::new(),
            watch_every,
            waiting: 0,
            count: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn keys(&self) -> &Lane {
        match &self.lanes {
            Lanes::One(lane) | Lanes::Two { keys: lane, .. } => lane,
        }
    }

    fn lane_of(&self, request: &Request) -> &Lane {
        match &self.lanes {
            Lanes::Two { leases, .. } if request.is_of_a_lease() => leases,
            _ => self.keys(),
        }
    }

    fn probed(&mut self, now: Time, id: WatchId, found: Option<u128>) {
        let Some(watch) = self.watches.get_mut(&id) else { return };
        watch.next = now + self.watch_every;
        if found.is_some() && found != watch.seen {
            watch.seen = found;
            self.ready.push_back(Event::Changed(id));
        }
    }

    fn probe(&mut self, now: Time) {
        let Driven { lanes: Lanes::One(lane) | Lanes::Two { keys: lane, .. }, watches, .. } = self;
        for (id, watch) in watches.iter_mut().filter(|(_, watch)| watch.next <= now) {
            let asked = lane.push(Job::Probe(*id, watch.prefix.clone()));
            watch.next = if asked { Time::NEVER } else { now + self.watch_every };
        }
    }
}

impl Metastore for Driven {
    fn submit(&mut self, _now: Time, request: Request) -> RequestId {
        let id = RequestId(self.number());
        let mut checked = request.check();
        if checked.is_ok() && self.waiting >= REQUESTS_MAX {
            checked = Err(Error::TooManyRequests { limit: REQUESTS_MAX });
        }
        if checked.is_ok() && !self.lane_of(&request).push(Job::Request(id, request)) {
            checked = Err(Error::unavailable("its thread has ended; restart this process"));
        }
        match checked {
            Ok(()) => self.waiting += 1,
            Err(error) => {
                self.ready.push_back(Event::Done(id, Err(error)));
                self.answers.alarm.ring();
            }
        }
        id
    }

    fn watch(&mut self, now: Time, prefix: Prefix) -> WatchId {
        let id = WatchId(self.number());
        self.watches.insert(id, Watch { prefix, seen: None, next: now });
        self.probe(now);
        id
    }

    fn unwatch(&mut self, watch: WatchId) {
        self.watches.remove(&watch);
        self.ready.retain(|event| *event != Event::Changed(watch));
    }

    fn poll(&mut self, now: Time) -> Option<Event> {
        let done = std::mem::take(&mut *lock(&self.answers.queue));
        for done in done {
            match done {
                Done::Request(id, result) => {
                    self.waiting -= 1;
                    self.ready.push_back(Event::Done(id, result));
                }
                Done::Probe(id, found) => self.probed(now, id, found),
            }
        }
        self.probe(now);
        self.ready.pop_front()
    }

    fn deadline(&self) -> Option<Time> {
        self.watches.values().map(|watch| watch.next).min().filter(|next| *next != Time::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Key, LeaseName};
    use thunderhead_runtime::sim::workers::SimWorkers;

    /// Answers with a closure.
    struct Scripted<F>(F);

    impl<F: FnMut(&Request) -> Result<Answer, Error> + Send> Driver for Scripted<F> {
        fn answer(&mut self, request: &Request) -> Result<Answer, Error> {
            (self.0)(request)
        }

        fn fingerprint(&mut self, _prefix: &Prefix) -> Result<u128, Error> {
            Ok(7)
        }
    }

    fn driven(
        answer: impl FnMut(&Request) -> Result<Answer, Error> + Send + 'static,
    ) -> (SimWorkers, Driven) {
        let workers = SimWorkers::default();
        let truth = thunderhead_runtime::sim::clock::TrueTime::default();
        let disk = thunderhead_runtime::sim::disk::SimDisk::new(
            thunderhead_runtime::sim::disk::DiskModel::default(),
            thunderhead_runtime::Random::from_seed(truth.get()),
        );
        let mut starter = workers.starter(move || Box::new(disk.files()));
        let answers = Answers::new(Alarm::sim());
        let lane = Lane::start("lane", Scripted(answer), &mut starter, &answers);
        let lane = lane.expect("a simulated worker starts");
        (workers, Driven::new(Lanes::One(lane), answers, Duration::from_millis(5)))
    }

    fn get(key: &str) -> Request {
        Request::Get { key: Key::new(key).expect("a good key") }
    }

    #[test]
    fn requests_are_answered_once_and_in_order() {
        let (workers, mut store) = driven(|_| Ok(Answer::Value(None)));
        let ids = [store.submit(Time(0), get("a")), store.submit(Time(0), get("b"))];
        assert_eq!(store.poll(Time(0)), None, "no request is answered within `submit`");
        workers.step(0);
        workers.step(0);
        for id in ids {
            assert_eq!(store.poll(Time(1)), Some(Event::Done(id, Ok(Answer::Value(None)))));
        }
        assert_eq!(store.poll(Time(1)), None);
    }

    #[test]
    fn requests_beyond_the_limit_are_refused() {
        let (workers, mut store) = driven(|_| Ok(Answer::Value(None)));
        for _ in 0..REQUESTS_MAX {
            store.submit(Time(0), get("a"));
        }
        let refused = store.submit(Time(0), get("a"));
        let error = Err(Error::TooManyRequests { limit: REQUESTS_MAX });
        assert_eq!(store.poll(Time(0)), Some(Event::Done(refused, error)));
        workers.step(0);
        assert!(store.poll(Time(0)).is_some());
        store.submit(Time(0), get("a"));
        assert_eq!(store.poll(Time(0)), None);
    }

    #[test]
    fn a_thread_that_ends_leaves_no_request_without_an_answer() {
        let (workers, mut store) = driven(|_| Ok(Answer::Value(None)));
        let left = store.submit(Time(0), get("a"));
        drop(workers);
        let late = store.submit(Time(0), get("a"));
        let mut answered = Vec::new();
        while let Some(Event::Done(id, result)) = store.poll(Time(0)) {
            assert!(matches!(result, Err(Error::Unavailable { .. })), "{result:?}");
            answered.push(id);
        }
        answered.sort();
        assert_eq!(answered, [left, late]);
    }

    #[test]
    fn bad_requests_do_not_reach_the_store() {
        let (_workers, mut store) = driven(|request| panic!("{request:?}"));
        let lease = LeaseName::new("l").expect("a good name");
        let holder = crate::Holder { id: 1, description: String::new() };
        let requests = [Duration::ZERO, Duration::from_secs(60)].map(|ttl| Request::Acquire {
            lease: lease.clone(),
            holder: holder.clone(),
            ttl,
        });
        for request in requests {
            let id = store.submit(Time(0), request);
            let Some(Event::Done(done, Err(error))) = store.poll(Time(0)) else {
                panic!("it must be refused")
            };
            assert_eq!((done, error.code()), (id, 5));
        }
    }
}
