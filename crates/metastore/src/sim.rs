//! A simulated store with faults: one service that all simulated processes share. It runs on the
//! simulation's true time and draws everything from its seed.
//!
//! It belongs to no host: it stands for etcd or ZooKeeper somewhere in the network. A request takes
//! time to reach it, and its answer takes time to come back. Either may be lost. A request may also
//! arrive after its sender has stopped waiting. The store may be stopped and started again, and a
//! client may be cut off from it. The store executes requests in the order and at the moments of
//! their arrival, even if the simulation looks later.
//!
//! A process that crashes drops its client. Its requests in flight still arrive.

mod state;

use crate::error::Error;
use crate::key::{LeaseName, Prefix};
use crate::limits::REQUESTS_MAX;
use crate::request::{Answer, Request};
use crate::store::{Event, Metastore, RequestId, WatchId};
use state::State;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::sim::clock::TrueTime;
use thunderhead_runtime::{Random, Time};

/// The faults, and how often each occurs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The shortest and longest time that a message takes in one direction.
    pub delay: (Duration, Duration),
    /// How long a client waits for an answer.
    pub patience: Duration,
    /// How often a request is refused at once, with no effect.
    pub unavailable: f64,
    /// How often a request is lost in flight.
    pub request_lost: f64,
    /// How often an answer is lost in flight.
    pub answer_lost: f64,
    /// How often a request arrives after its sender has stopped waiting.
    pub straggles: f64,
}

impl Faults {
    /// Returns a set without faults.
    #[must_use]
    pub fn none() -> Faults {
        Faults {
            delay: (Duration::from_micros(200), Duration::from_millis(2)),
            patience: Duration::from_secs(2),
            unavailable: 0.0,
            request_lost: 0.0,
            answer_lost: 0.0,
            straggles: 0.0,
        }
    }

    /// Returns a set with many faults, drawn at random.
    #[must_use]
    pub fn drawn(random: &mut Random) -> Faults {
        let longest = Duration::from_micros(random.within(500..400_000));
        let often = |random: &mut Random| random.fraction() * 0.1;
        Faults {
            delay: (Duration::from_micros(random.within(50..500)), longest),
            patience: Duration::from_millis(random.within(500..3000)),
            unavailable: often(random),
            request_lost: often(random),
            answer_lost: often(random),
            straggles: often(random),
        }
    }
}

/// The number of a client of a simulated store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A simulated store. Clones are handles to the same store.
#[derive(Clone)]
pub struct SimStore(Rc<RefCell<Service>>);

struct Service {
    truth: TrueTime,
    random: Random,
    faults: Faults,
    state: State,
    /// The start of the present rate of its clock: the true time and its own.
    clock: (u64, u64),
    /// Millionths by which its clock runs fast.
    drift: i64,
    running: bool,
    clients: BTreeMap<ClientId, Peer>,
    /// Requests in flight to the store, by time of arrival.
    arriving: BTreeMap<(u64, u64), Flight>,
    count: u64,
}

/// The service's view of a client.
#[derive(Default)]
struct Peer {
    /// No message gets through.
    cut: bool,
    /// Requests get through, answers do not.
    deaf: bool,
    watches: BTreeMap<WatchId, Prefix>,
    /// Events in flight to the client, by time of arrival.
    events: BTreeMap<(u64, u64), Event>,
    /// Requests whose answer is not in flight yet.
    waiting: BTreeMap<RequestId, Waiting>,
}

#[derive(Clone, Copy)]
struct Waiting {
    gives_up: u64,
    only_reads: bool,
}

/// A request in flight.
struct Flight {
    client: ClientId,
    id: RequestId,
    request: Request,
}

impl SimStore {
    /// Returns an empty store.
    #[must_use]
    pub fn new(truth: TrueTime, random: Random, faults: Faults) -> SimStore {
        let clock = (truth.get(), 0);
        SimStore(Rc::new(RefCell::new(Service {
            truth,
            random,
            faults,
            state: State::default(),
            clock,
            drift: 0,
            running: true,
            clients: BTreeMap::new(),
            arriving: BTreeMap::new(),
            count: 0,
        })))
    }

    /// Returns a client for a process with this clock.
    #[must_use]
    pub fn client(&self, clock: Clock) -> SimClient {
        let mut service = self.0.borrow_mut();
        let id = ClientId(service.number());
        service.clients.insert(id, Peer::default());
        SimClient { service: Rc::clone(&self.0), id, clock, count: 0 }
    }

    /// Changes the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.now().faults = faults;
    }

    /// Makes the store's clock run fast by so many millionths.
    pub fn set_drift(&self, drift: i64) {
        let mut service = self.now();
        service.clock = (service.truth.get(), service.own_time(service.truth.get()));
        service.drift = drift;
    }

    /// Stops the store: requests that arrive are not done. It keeps its contents.
    pub fn stop(&self) {
        let mut service = self.now();
        if service.running {
            service.running = false;
            let now = service.own_time(service.truth.get());
            service.state.drop_leases(now);
        }
    }

    /// Starts it again. Leases get their whole time anew, as in etcd.
    pub fn start(&self) {
        let mut service = self.now();
        if !service.running {
            service.running = true;
            let now = service.own_time(service.truth.get());
            service.state.extend_leases(now);
        }
    }

    /// Cuts a client off. Requests in flight to the store still arrive; answers do not.
    pub fn cut(&self, client: ClientId) {
        let mut service = self.now();
        if let Some(peer) = service.clients.get_mut(&client) {
            peer.cut = true;
        }
        let ids: Vec<RequestId> = service.waiting_of(client);
        for id in ids {
            service.give_up(client, id);
        }
    }

    /// Lets a client's requests get through and be done, but drops the answers.
    pub fn deafen(&self, client: ClientId) {
        if let Some(peer) = self.now().clients.get_mut(&client) {
            peer.deaf = true;
        }
    }

    /// Connects a client again.
    pub fn mend(&self, client: ClientId) {
        let mut service = self.now();
        let Some(peer) = service.clients.get_mut(&client) else { return };
        (peer.cut, peer.deaf) = (false, false);
        // The changes in between are unknown, so every watched prefix may have changed.
        let watches: Vec<WatchId> = peer.watches.keys().copied().collect();
        for watch in watches {
            service.tell_changed(client, watch);
        }
    }

    /// Takes a lease from its holder, as an operator might.
    pub fn revoke(&self, lease: &LeaseName) {
        self.now().state.revoke(lease);
    }

    /// Returns the answer that a store without faults would give now; for judges.
    #[must_use]
    pub fn peek(&self, request: &Request) -> Answer {
        let mut service = self.now();
        let now = service.own_time(service.truth.get());
        service.state.apply(now, request)
    }

    /// Returns the service after it has done all requests that have arrived.
    fn now(&self) -> std::cell::RefMut<'_, Service> {
        let mut service = self.0.borrow_mut();
        service.advance();
        service
    }
}

impl Service {
    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Returns the time on the store's clock at a true time.
    fn own_time(&self, truth: u64) -> u64 {
        let (since, own) = self.clock;
        let passed = i128::from(truth - since);
        own + (passed + passed * i128::from(self.drift) / 1_000_000) as u64
    }

    fn delay(&mut self) -> u64 {
        let (shortest, longest) = self.faults.delay;
        self.random.within(shortest.as_nanos() as u64..longest.as_nanos() as u64 + 1)
    }

    fn waiting_of(&self, client: ClientId) -> Vec<RequestId> {
        self.clients.get(&client).map_or(Vec::new(), |it| it.waiting.keys().copied().collect())
    }

    /// Plans an event for a client.
    fn tell(&mut self, client: ClientId, at: u64, event: Event) {
        let number = self.number();
        if let Some(peer) = self.clients.get_mut(&client) {
            peer.events.insert((at, number), event);
        }
    }

    fn tell_changed(&mut self, client: ClientId, watch: WatchId) {
        let at = self.truth.get() + self.delay();
        self.tell(client, at, Event::Changed(watch));
    }

    /// Drops the answer to a request. Its client learns at the end of its patience that none will
    /// come.
    fn give_up(&mut self, client: ClientId, id: RequestId) {
        let Some(peer) = self.clients.get_mut(&client) else { return };
        let Some(waiting) = peer.waiting.remove(&id) else { return };
        peer.events.retain(|_, event| !matches!(event, Event::Done(done, _) if *done == id));
        let why = "no answer came in time";
        let error = if waiting.only_reads { Error::unavailable } else { Error::unknown };
        let at = waiting.gives_up.max(self.truth.get());
        self.tell(client, at, Event::Done(id, Err(error(why))));
    }

    fn send(&mut self, client: ClientId, id: RequestId, request: Request) {
        let (now, faults) = (self.truth.get(), self.faults);
        let gives_up = now + faults.patience.as_nanos() as u64;
        let waits = Waiting { gives_up, only_reads: request.only_reads() };
        let arrives = now + self.delay();
        let is_cut = match self.clients.get_mut(&client) {
            Some(peer) => {
                peer.waiting.insert(id, waits);
                peer.cut
            }
            None => return,
        };
        if !is_cut && (!self.running || self.random.chance(faults.unavailable)) {
            if let Some(peer) = self.clients.get_mut(&client) {
                peer.waiting.remove(&id);
            }
            let error = Err(Error::unavailable("it refuses connections"));
            return self.tell(client, arrives, Event::Done(id, error));
        }
        if is_cut || self.random.chance(faults.request_lost) {
            return self.give_up(client, id);
        }
        let arrives = if self.random.chance(faults.straggles) {
            self.give_up(client, id);
            gives_up + 3 * self.delay()
        } else {
            arrives
        };
        let number = self.number();
        self.arriving.insert((arrives, number), Flight { client, id, request });
    }

    /// Does all requests that have arrived.
    fn advance(&mut self) {
        let now = self.truth.get();
        while let Some(first) = self.arriving.first_entry().filter(|first| first.key().0 <= now) {
            let ((at, _), flight) = first.remove_entry();
            self.arrive(at, flight);
        }
    }

    fn arrive(&mut self, at: u64, flight: Flight) {
        let Flight { client, id, request } = flight;
        if !self.running {
            return self.give_up(client, id);
        }
        let answer = self.state.apply(self.own_time(at), &request);
        if let (Request::Write { key, .. }, Answer::Written(_)) = (&request, &answer) {
            self.changed(at, key);
        }
        let back = at + self.delay();
        let Some(peer) = self.clients.get(&client) else { return };
        // The client may have stopped waiting.
        let (Some(waiting), deaf) = (peer.waiting.get(&id).copied(), peer.deaf) else { return };
        if deaf || back >= waiting.gives_up || self.random.chance(self.faults.answer_lost) {
            return self.give_up(client, id);
        }
        self.tell(client, back, Event::Done(id, Ok(answer)));
    }

    fn changed(&mut self, at: u64, key: &crate::Key) {
        let told: Vec<(ClientId, WatchId)> = self
            .clients
            .iter()
            .filter(|(_, peer)| !peer.cut && !peer.deaf)
            .flat_map(|(client, peer)| peer.watches.iter().map(move |watch| (client, watch)))
            .filter(|(_, (_, prefix))| prefix.contains(key))
            .map(|(client, (watch, _))| (*client, *watch))
            .collect();
        for (client, watch) in told {
            let arrives = at + self.delay();
            self.tell(client, arrives, Event::Changed(watch));
        }
    }
}

/// A client of a simulated store.
pub struct SimClient {
    service: Rc<RefCell<Service>>,
    id: ClientId,
    clock: Clock,
    count: u64,
}

impl SimClient {
    /// Returns its number, for [`SimStore::cut`] and the like.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.id
    }
}

impl Drop for SimClient {
    fn drop(&mut self) {
        self.service.borrow_mut().clients.remove(&self.id);
    }
}

impl Metastore for SimClient {
    fn submit(&mut self, _now: Time, request: Request) -> RequestId {
        self.count += 1;
        let id = RequestId(self.count);
        let mut service = self.service.borrow_mut();
        service.advance();
        let waiting = service.clients.get(&self.id).map_or(0, |peer| peer.waiting.len());
        let refused = match request.check() {
            Ok(()) if waiting >= REQUESTS_MAX => {
                Err(Error::TooManyRequests { limit: REQUESTS_MAX })
            }
            checked => checked,
        };
        match refused {
            Ok(()) => service.send(self.id, id, request),
            Err(error) => {
                let at = service.truth.get();
                service.tell(self.id, at, Event::Done(id, Err(error)));
            }
        }
        id
    }

    fn watch(&mut self, _now: Time, prefix: Prefix) -> WatchId {
        self.count += 1;
        let watch = WatchId(self.count);
        let mut service = self.service.borrow_mut();
        service.advance();
        let Some(peer) = service.clients.get_mut(&self.id) else { return watch };
        peer.watches.insert(watch, prefix);
        if !peer.cut {
            service.tell_changed(self.id, watch);
        }
        watch
    }

    fn unwatch(&mut self, watch: WatchId) {
        let mut service = self.service.borrow_mut();
        if let Some(peer) = service.clients.get_mut(&self.id) {
            peer.watches.remove(&watch);
            peer.events.retain(|_, event| *event != Event::Changed(watch));
        }
    }

    fn poll(&mut self, _now: Time) -> Option<Event> {
        let mut service = self.service.borrow_mut();
        service.advance();
        let now = service.truth.get();
        let peer = service.clients.get_mut(&self.id)?;
        let first = peer.events.first_entry().filter(|first| first.key().0 <= now)?;
        let event = first.remove();
        if let Event::Done(id, _) = &event {
            peer.waiting.remove(id);
        }
        Some(event)
    }

    fn deadline(&self) -> Option<Time> {
        let service = self.service.borrow();
        let event = service.clients.get(&self.id)?.events.first_key_value().map(|(at, _)| at.0);
        let own = service.arriving.iter().filter(|(_, flight)| flight.client == self.id);
        let arrival = own.map(|((at, _), _)| *at).next();
        // The store need not know the rate of this clock: a process that wakes too early polls
        // again.
        let wait = event.into_iter().chain(arrival).min()?.saturating_sub(service.truth.get());
        Some(self.clock.now() + Duration::from_nanos(wait))
    }
}
