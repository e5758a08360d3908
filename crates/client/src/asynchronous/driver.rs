//! The thread that does the I/O.
//!
//! Each round: take the queued jobs; begin as many as may be in flight; send all that are ready
//! together; hand over the results; wait for answers, for the alarm or for the next deadline. Only
//! that last step waits.

use super::promise::Promise;
use super::receiver::{Delivery, Receiver};
use crate::client::{self, Options};
use crate::core::{CallNumber, Output, Results, Ticket};
use crate::error::{Error, Obstacle};
use crate::operation::Operation;
use crate::question::{Question, Reply};
use crate::session::Session;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use thunderhead_rpc::{CallId, Caller};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::{Time, World, os};

/// A job for the driver.
pub(crate) enum Job {
    Do {
        number: u64,
        work: Work,
        deadline: Time,
    },
    /// End the work, whose result is of no interest any more.
    GiveUp(u64),
    /// End the work before its deadline. Its result comes as usual.
    Cancel(u64),
}

pub(crate) enum Work {
    Operations(Vec<Operation>, Receiver<Results>),
    Question(Question, Receiver<Result<Reply, Error>>),
}

/// The state that the driver and the handles share.
#[derive(Default)]
pub(crate) struct Shared(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    state: State,
    /// Promises to keep when the client is closed.
    closing: Vec<Promise<()>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// Operations in flight are still to end.
    Closing,
    /// No handle and no job is left.
    Over,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job. Returns false if the client is closed.
    pub(crate) fn push(&self, job: Job) -> bool {
        let mut queue = self.lock();
        let takes = match job {
            Job::Do { .. } => queue.state == State::Open,
            Job::GiveUp(_) | Job::Cancel(_) => queue.state != State::Over,
        };
        if takes {
            queue.jobs.push(job);
        }
        takes
    }

    /// Queues new jobs with one lock. Returns false if the client is closed; then it keeps none.
    pub(crate) fn push_all(&self, jobs: impl Iterator<Item = Job>) -> bool {
        let mut queue = self.lock();
        let takes = queue.state == State::Open;
        if takes {
            queue.jobs.extend(jobs);
        }
        takes
    }

    /// Closes the client. Returns false if the driver has already ended.
    pub(crate) fn close(&self, promise: Promise<()>) -> bool {
        let mut queue = self.lock();
        if queue.state == State::Over {
            return false;
        }
        queue.state = State::Closing;
        queue.closing.push(promise);
        true
    }

    /// Ends the driver: the last handle has been dropped.
    pub(crate) fn abandon(&self) {
        self.lock().state = State::Over;
    }
}

/// The driver's clock, for the handles.
#[derive(Clone, Copy)]
pub(crate) struct SharedClock(Instant);

impl SharedClock {
    #[allow(clippy::disallowed_methods, reason = "the runtime's own cannot be shared by threads")]
    pub(crate) fn start() -> SharedClock {
        SharedClock(Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        Time(self.0.elapsed().as_nanos() as u64)
    }
}

/// Starts a driver. It reports through `tell` whether it could start.
pub(crate) fn start(
    (shared, clock, alarm): (Arc<Shared>, SharedClock, Alarm),
    options: Options,
    tell: Promise<Result<(), Error>>,
) -> Result<(), Error> {
    let run = move || match Driver::new(shared, clock, alarm, &options) {
        Ok(mut driver) => {
            tell.keep(Ok(()));
            driver.run();
        }
        Err(error) => tell.keep(Err(error)),
    };
    os::detach("thunderhead-client", run).map_err(|error| Error::System(error.kind()))
}

struct Driver {
    shared: Arc<Shared>,
    session: Session,
    caller: Caller,
    clock: Clock,
    alarm: Alarm,
    calls: FxHashMap<CallId, CallNumber>,
    /// Operations that have not begun, in the order of arrival.
    waiting: BTreeMap<u64, Waiting>,
    /// The deadlines of the operations in `waiting`.
    expiring: BTreeSet<(Time, u64)>,
    running: FxHashMap<Ticket, RunningJob>,
    tickets: FxHashMap<u64, Ticket>,
    /// The number of operations that have begun and not ended.
    in_flight: usize,
    in_flight_max: usize,
    /// Results that queues receive together.
    delivery: Delivery,
    state: State,
}

/// Operations that have not begun.
struct Waiting {
    operations: Vec<Operation>,
    receiver: Receiver<Results>,
    deadline: Time,
}

enum RunningJob {
    Operations { number: u64, count: usize, receiver: Receiver<Results> },
    Question { number: u64, receiver: Receiver<Result<Reply, Error>> },
}

impl Driver {
    fn new(
        shared: Arc<Shared>,
        clock: SharedClock,
        alarm: Alarm,
        options: &Options,
    ) -> Result<Driver, Error> {
        let clock = Clock::since(clock.0);
        let world = World { clock: clock.clone(), alarm: alarm.clone(), ..client::world()? };
        let (session, caller) = client::engine(options, world)?;
        Ok(Driver {
            shared,
            session,
            caller,
            clock,
            alarm,
            calls: FxHashMap::default(),
            waiting: BTreeMap::new(),
            expiring: BTreeSet::new(),
            running: FxHashMap::default(),
            tickets: FxHashMap::default(),
            in_flight: 0,
            in_flight_max: options.in_flight_max.max(1),
            delivery: Delivery::default(),
            state: State::Open,
        })
    }

    fn run(&mut self) {
        loop {
            let jobs = {
                let mut queue = self.shared.lock();
                self.state = queue.state;
                std::mem::take(&mut queue.jobs)
            };
            if self.state == State::Over {
                return self.leave();
            }
            self.take(jobs);
            self.begin_waiting();
            self.send();
            self.hand_over();
            if self.state == State::Closing && self.running.is_empty() && self.waiting.is_empty() {
                return self.close();
            }
            // The results may have made room for waiting operations.
            if self.waiting.is_empty() || self.in_flight >= self.in_flight_max {
                self.wait();
            }
        }
    }

    fn take(&mut self, jobs: Vec<Job>) {
        let now = self.clock.now();
        for job in jobs {
            match job {
                Job::Do { number, work: Work::Operations(operations, receiver), deadline } => {
                    let work = Waiting { operations, receiver, deadline };
                    if self.waiting.is_empty() && self.in_flight < self.in_flight_max {
                        self.begin(now, number, work);
                        continue;
                    }
                    self.waiting.insert(number, work);
                    if deadline != Time::NEVER {
                        self.expiring.insert((deadline, number));
                    }
                }
                Job::Do { number, work: Work::Question(question, receiver), deadline } => {
                    let ticket = self.session.ask(now, question, deadline);
                    self.tickets.insert(number, ticket);
                    self.running.insert(ticket, RunningJob::Question { number, receiver });
                }
                Job::GiveUp(number) => self.give_up(number),
                Job::Cancel(number) => self.cancel(now, number),
            }
        }
    }

    fn give_up(&mut self, number: u64) {
        if let Some(Waiting { deadline, .. }) = self.waiting.remove(&number) {
            self.expiring.remove(&(deadline, number));
        }
        let Some(ticket) = self.tickets.remove(&number) else { return };
        self.session.give_up(ticket);
        if let Some(RunningJob::Operations { count, .. }) = self.running.remove(&ticket) {
            self.in_flight -= count;
        }
    }

    fn cancel(&mut self, now: Time, number: u64) {
        if let Some(Waiting { operations, receiver, deadline }) = self.waiting.remove(&number) {
            self.expiring.remove(&(deadline, number));
            let results = vec![Err(Error::Cancelled); operations.len()];
            receiver.take(results, &mut self.delivery);
        } else if let Some(ticket) = self.tickets.get(&number) {
            self.session.cancel(now, *ticket);
        }
    }

    /// Begins waiting operations, as many as may be in flight.
    fn begin_waiting(&mut self) {
        let now = self.clock.now();
        while self.in_flight < self.in_flight_max
            && let Some((number, work)) = self.waiting.pop_first()
        {
            self.expiring.remove(&(work.deadline, number));
            self.begin(now, number, work);
        }
    }

    fn begin(&mut self, now: Time, number: u64, work: Waiting) {
        let Waiting { operations, receiver, deadline } = work;
        let count = operations.len();
        let ticket = self.session.begin(now, operations, deadline);
        self.in_flight += count;
        self.tickets.insert(number, ticket);
        self.running.insert(ticket, RunningJob::Operations { number, count, receiver });
    }

    /// Makes the calls that the session requests.
    fn send(&mut self) {
        while let Some(output) = self.session.next_output() {
            let Output::Call { number, to, opcode, body, timeout } = output else { continue };
            match self.caller.begin(to, opcode, &[&body], Some(timeout)) {
                Ok(id) => {
                    self.calls.insert(id, number);
                }
                Err(error) => self.session.answered(self.clock.now(), number, Err(error)),
            }
        }
    }

    /// Hands over the results.
    fn hand_over(&mut self) {
        while let Some((ticket, results)) = self.session.next_done() {
            let Some(RunningJob::Operations { number, count, receiver }) =
                self.running.remove(&ticket)
            else {
                continue;
            };
            self.in_flight -= count;
            self.tickets.remove(&number);
            receiver.take(results, &mut self.delivery);
        }
        while let Some((ticket, answer)) = self.session.next_answer() {
            let Some(RunningJob::Question { number, receiver }) = self.running.remove(&ticket)
            else {
                continue;
            };
            self.tickets.remove(&number);
            receiver.take(answer, &mut self.delivery);
        }
        self.delivery.end();
    }

    /// Waits for answers, the alarm, or the next deadline.
    fn wait(&mut self) {
        let expiring = self.expiring.first().map(|(at, _)| *at);
        let until = self.session.deadline().into_iter().chain(expiring).min();
        let Driver { session, caller, clock, alarm, calls, .. } = self;
        caller.wait_or_rung(
            until.unwrap_or(Time::NEVER),
            &mut || alarm.was_rung(),
            &mut |id, outcome| {
                if let Some(number) = calls.remove(&id) {
                    session.answered(clock.now(), number, outcome);
                }
            },
        );
        let now = self.clock.now();
        self.session.tick(now);
        while let Some((at, number)) = self.expiring.first().copied()
            && at <= now
        {
            self.expiring.remove(&(at, number));
            if let Some(Waiting { operations, receiver, .. }) = self.waiting.remove(&number) {
                // It never had its turn: too many operations were in flight.
                let error = Error::TimedOut(Obstacle::Busy);
                receiver.take(vec![Err(error); operations.len()], &mut self.delivery);
            }
        }
    }

    /// Ends the lease. The promises in `closing` end when the driver is dropped.
    fn close(&mut self) {
        self.session.close(self.clock.now());
        while !self.session.is_idle() && self.shared.lock().state != State::Over {
            self.send();
            if !self.session.is_idle() {
                self.wait();
            }
        }
    }

    /// Ends the lease without waiting for an answer.
    fn leave(&mut self) {
        self.session.close(self.clock.now());
        self.send();
        self.caller.poll(&mut |_, _| {});
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Dropping the remaining promises tells the waiting tasks that the driver has ended.
        let mut queue = self.shared.lock();
        queue.state = State::Over;
        let left = (std::mem::take(&mut queue.jobs), std::mem::take(&mut queue.closing));
        drop(queue);
        drop(left);
    }
}
