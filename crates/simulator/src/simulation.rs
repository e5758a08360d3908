//! The loop of a simulation: the next event, its host, and its consequences.
//!
//! Time stands still during an event and then jumps to the next one. There are three kinds of
//! events: packets arrive, hosts have turns or worker steps, and planned actions
//! ([`Simulation::at`]) happen. All random choices are drawn from the seed.
//!
//! A process may die at any time, also during a turn. Then the turn runs, but on each connection
//! only a prefix of its messages leaves.

use crate::host::{Boot, Host, Program};
use crate::scheduling::Scheduling;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::Limits;
use thunderhead_net::sim::{Link, Network};
use thunderhead_runtime::sim::clock::TrueTime;
use thunderhead_runtime::sim::disk::{DiskModel, SimDisk};
use thunderhead_runtime::sim::memory::SimMemories;
use thunderhead_runtime::sim::trace::{Trace, fold};
use thunderhead_runtime::{Process, Random};

/// Names a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub usize);

/// The initial settings of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The seed from which everything is drawn.
    pub seed: u64,
    /// Whether the trace is kept as text.
    pub keeps_text: bool,
    /// The properties of links.
    pub link: Link,
    /// The properties of disks.
    pub disk: DiskModel,
    /// The delays of threads.
    pub scheduling: Scheduling,
}

impl Options {
    /// Returns the options of a simulation without spontaneous faults.
    #[must_use]
    pub fn calm(seed: u64) -> Options {
        Options {
            seed,
            keeps_text: false,
            link: Link::default(),
            disk: DiskModel::default(),
            scheduling: Scheduling::default(),
        }
    }
}

type ScheduledAction = Box<dyn FnOnce(&mut Simulation)>;

enum Event {
    Turn(HostId, u64),
    Step(HostId, u64, usize),
    Planned(ScheduledAction),
}

/// A simulated cluster.
pub struct Simulation {
    truth: TrueTime,
    trace: Trace,
    network: Network,
    random: Random,
    disk: DiskModel,
    scheduling: Scheduling,
    hosts: Vec<Host>,
    by_address: BTreeMap<IpAddr, HostId>,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    turns: u64,
}

/// The duration of a turn.
const TURN: Duration = Duration::from_nanos(700);

/// The longest time to wake a thread.
const WAKE: Duration = Duration::from_micros(30);

impl Simulation {
    /// Returns a simulation without hosts.
    #[must_use]
    pub fn new(options: Options) -> Simulation {
        let Options { seed, keeps_text, link, disk, scheduling } = options;
        let truth = TrueTime::default();
        let mut random = Random::from_seed(seed);
        let trace = Trace::new(truth.clone(), keeps_text);
        let network = Network::new(truth.clone(), random.split(), trace.clone(), link);
        Simulation {
            truth,
            trace,
            network,
            random,
            disk,
            scheduling,
            hosts: Vec::new(),
            by_address: BTreeMap::new(),
            events: BTreeMap::new(),
            count: 0,
            turns: 0,
        }
    }

    /// Adds a host and starts its program.
    pub fn add_host(
        &mut self,
        name: &str,
        program: impl Fn(Boot) -> Box<dyn Process> + 'static,
    ) -> HostId {
        let id = HostId(self.hosts.len());
        let number = id.0 as u32 + 1;
        let address = IpAddr::V4(Ipv4Addr::from_bits(10 << 24 | number));
        let program: Program = Rc::new(program);
        self.hosts.push(Host {
            name: name.to_owned(),
            address,
            disk: SimDisk::new(self.disk, self.random.split()),
            memories: SimMemories::default(),
            program,
            drift: 0,
            running: None,
            lives: 0,
            paused_until: 0,
            stop_is_power: false,
            restarts_after: None,
            limits: Limits::default(),
        });
        self.by_address.insert(address, id);
        self.start(id);
        id
    }

    /// Returns a host's address.
    #[must_use]
    pub fn address(&self, host: HostId) -> IpAddr {
        self.hosts[host.0].address
    }

    /// Returns a host's disk.
    #[must_use]
    pub fn disk(&self, host: HostId) -> &SimDisk {
        &self.hosts[host.0].disk
    }

    /// Returns the network.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns a handle to the true time, in nanoseconds, which advances with the simulation.
    #[must_use]
    pub fn truth(&self) -> TrueTime {
        self.truth.clone()
    }

    /// Returns the true time now.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.truth.get())
    }

    /// Returns random numbers for planning faults.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Returns a number that two runs share if they had the same events and messages, and have the
    /// same bytes on disks and in flight.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let disks = self.hosts.iter().map(|host| host.disk.digest());
        disks.fold(fold(self.trace.digest(), self.network.digest()), fold)
    }

    /// Returns the number of turns of all hosts.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Returns the events since the last call as text, if the text is kept.
    #[must_use]
    pub fn take_trace(&self) -> Vec<String> {
        self.trace.take_lines()
    }

    /// Plans an action for a time.
    pub fn at(&mut self, time: Duration, act: impl FnOnce(&mut Simulation) + 'static) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.schedule(nanos.max(self.truth.get()), Event::Planned(Box::new(act)));
    }

    /// Plans an action after a wait.
    pub fn after(&mut self, wait: Duration, act: impl FnOnce(&mut Simulation) + 'static) {
        self.at(self.now() + wait, act);
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    fn note(&self, host: HostId, what: u64, word: &str) {
        let name = &self.hosts[host.0].name;
        self.trace.record(&[200 + what, host.0 as u64], || format!("{name}: {word}"));
    }

    /// Whether a process runs on a host.
    #[must_use]
    pub fn is_running(&self, host: HostId) -> bool {
        self.hosts[host.0].running.is_some()
    }

    /// Starts the program of a host, unless it runs already.
    pub fn start(&mut self, host: HostId) {
        let Simulation { truth, network, random, hosts, .. } = self;
        if hosts[host.0].running.is_none() {
            hosts[host.0].boot(truth, network, random);
            self.note(host, 1, "starts");
            self.wake(host, Duration::ZERO);
        }
    }

    /// Sets the delays of threads from now on.
    pub fn set_scheduling(&mut self, scheduling: Scheduling) {
        self.scheduling = scheduling;
    }

    /// Kills the process of a host, perhaps during a turn. Its files stay, and its connections
    /// break.
    pub fn crash(&mut self, host: HostId) {
        self.last_turn(host);
        self.stop(host, false);
    }

    /// Cuts the power of a host, perhaps during a turn. Unsynced bytes may be lost, and its peers
    /// are not told.
    pub fn cut_power(&mut self, host: HostId) {
        self.last_turn(host);
        self.stop(host, true);
    }

    /// Loses the memory of a host that outlasts processes, as when a container ends to which alone
    /// it belonged. The host's process must have ended.
    pub fn lose_memory(&mut self, host: HostId) {
        let Host { running, memories, .. } = &mut self.hosts[host.0];
        assert!(running.is_none(), "a running process keeps its memory");
        memories.lose();
    }

    /// Gives a dying host a turn that breaks off, or none.
    fn last_turn(&mut self, host: HostId) {
        let now = self.truth.get();
        let in_a_turn = self.random.chance(0.5);
        let Host { running: Some(running), paused_until, address, .. } = &mut self.hosts[host.0]
        else {
            return;
        };
        if in_a_turn && now >= running.held_until.max(*paused_until) {
            self.network.begin_turn(*address, Duration::ZERO);
            running.process.turn(running.clock.now());
            self.network.break_off_turn();
        }
    }

    fn stop(&mut self, host: HostId, power: bool) {
        self.note(host, 2 + u64::from(power), if power { "loses power" } else { "crashes" });
        let Host { running, disk, memories, address, restarts_after, .. } = &mut self.hosts[host.0];
        let restarts_after = restarts_after.take();
        let was_running = running.take().is_some();
        if power {
            disk.lose_power();
            memories.lose_power(&mut self.random);
        } else {
            disk.restart();
        }
        if was_running || power {
            self.network.stop(*address, power);
        }
        if let Some(wait) = restarts_after {
            self.after(wait, move |it| it.start(host));
        }
    }

    /// Restarts the program of a host this long after its next stop.
    pub fn restart_after(&mut self, host: HostId, wait: Duration) {
        self.hosts[host.0].restarts_after = Some(wait);
    }

    /// Stops a host at the nth operation of its disk from now on, in the middle of its work.
    pub fn stop_at_disk_operation(&mut self, host: HostId, operations: u64, power: bool) {
        self.hosts[host.0].stop_is_power = power;
        self.hosts[host.0].disk.stop_after(operations);
    }

    /// Stops a host in the turn of its nth message from now on. On each connection only a prefix of
    /// that turn's messages leaves, perhaps all, perhaps none.
    pub fn stop_at_send(&mut self, host: HostId, messages: u64, power: bool) {
        self.hosts[host.0].stop_is_power = power;
        self.network.stop_after_sends(self.hosts[host.0].address, Some(messages));
    }

    /// Cancels the planned stops of a host.
    pub fn keep_running(&mut self, host: HostId) {
        self.hosts[host.0].disk.keep_running();
        self.network.stop_after_sends(self.hosts[host.0].address, None);
    }

    /// Gives a host no turns for a while, like a stopped process or a stalled machine.
    pub fn pause(&mut self, host: HostId, duration: Duration) {
        self.note(host, 4, "is paused");
        let until = self.truth.get() + duration.as_nanos() as u64;
        self.hosts[host.0].paused_until = until;
    }

    /// Stops the thread of a host in its next turn for this long: after it has read the clock, and
    /// before it takes the arrived messages.
    pub fn stop_behind_the_clock(&mut self, host: HostId, duration: Duration) {
        self.note(host, 7, "will be stopped after its next reading of the clock");
        if let Some(running) = &mut self.hosts[host.0].running {
            running.stops_for = Some(duration);
        }
    }

    /// Makes the clock of a host run fast by this many millionths, now and after restarts.
    pub fn set_drift(&mut self, host: HostId, drift: i64) {
        self.note(host, 5, "has another clock rate");
        self.hosts[host.0].drift = drift;
        if let Some(running) = &self.hosts[host.0].running {
            running.clock.set_drift(drift);
        }
    }

    /// Sets the date of a host forwards or back.
    pub fn jump_clock(&mut self, host: HostId, by_ns: i64) {
        self.note(host, 6, "has another date");
        if let Some(running) = &self.hosts[host.0].running {
            running.clock.jump(by_ns);
        }
    }

    /// Gives a host a turn if its alarm was rung from outside: by the driver of the simulation, or
    /// by another host that stands for a thread of the same process.
    pub fn heed_alarm(&mut self, host: HostId) {
        let running = self.hosts[host.0].running.as_ref();
        if running.is_some_and(|running| running.alarm.is_ringing()) {
            self.wake(host, TURN);
        }
    }

    /// Gives a host a turn after the given time at the latest.
    fn wake(&mut self, host: HostId, after: Duration) {
        let now = self.truth.get();
        let Host { running: Some(running), paused_until, lives, .. } = &mut self.hosts[host.0]
        else {
            return;
        };
        let at = (now + after.as_nanos() as u64).max(*paused_until).max(running.held_until);
        if running.turn_at.is_none_or(|planned| planned > at) {
            running.turn_at = Some(at);
            let event = Event::Turn(host, *lives);
            self.schedule(at, event);
        }
    }

    /// Runs until a time.
    pub fn run_until(&mut self, time: Duration) {
        let end = time.as_nanos() as u64;
        while self.step(end) {}
        self.truth.set(end.max(self.truth.get()));
    }

    /// Runs for a duration.
    pub fn run_for(&mut self, duration: Duration) {
        self.run_until(self.now() + duration);
    }

    /// Executes the next event, if it is due by `end`.
    fn step(&mut self, end: u64) -> bool {
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let packet = self.network.next();
        let Some(next) = event.into_iter().chain(packet).min().filter(|next| *next <= end) else {
            return false;
        };
        self.truth.set(next.max(self.truth.get()));
        if packet == Some(next) {
            for address in self.network.deliver() {
                if let Some(host) = self.by_address.get(&address).copied() {
                    let wait = Duration::from_nanos(self.random.below(TURN.as_nanos() as u64));
                    self.wake(host, wait);
                }
            }
            return true;
        }
        match self.events.pop_first() {
            Some(((at, _), Event::Turn(host, life))) => self.turn(host, life, at),
            Some(((at, _), Event::Step(host, life, worker))) => self.work(host, life, worker, at),
            Some((_, Event::Planned(act))) => act(self),
            None => {}
        }
        true
    }

    fn turn(&mut self, id: HostId, life: u64, at: u64) {
        let host = &mut self.hosts[id.0];
        let Some(running) = host.running.as_mut().filter(|_| host.lives == life) else { return };
        if running.turn_at != Some(at) {
            return;
        }
        running.turn_at = None;
        if host.paused_until > at {
            return self.wake(id, Duration::ZERO);
        }
        if !running.is_late {
            let late = self.scheduling.hiccup(&mut self.random);
            if late > Duration::ZERO {
                running.is_late = true;
                return self.hold_up(id, late);
            }
        }
        let now = match running.has_read.take() {
            Some(read) => read,
            None => {
                let read = running.clock.now();
                let wanted = running.stops_for.take();
                let stopped = wanted.unwrap_or_else(|| self.scheduling.hiccup(&mut self.random));
                if stopped > Duration::ZERO {
                    (running.has_read, running.is_late) = (Some(read), true);
                    return self.hold_up(id, stopped);
                }
                read
            }
        };
        running.is_late = false;
        let takes = self.scheduling.hiccup(&mut self.random);
        self.turns += 1;
        self.network.begin_turn(host.address, takes);
        running.process.turn(now);
        self.trace.mark(&[209, id.0 as u64, host.disk.written()]);
        if host.disk.has_stopped() || self.network.has_stopped(host.address) {
            self.network.break_off_turn();
            let power = host.stop_is_power;
            return self.stop(id, power);
        }
        self.network.end_turn();
        let deadline = running.process.deadline().map(|at| running.clock.truth_of(at));
        let again = running.alarm.is_ringing();
        if takes > Duration::ZERO {
            self.hold_up(id, takes);
        }
        if let Some(deadline) = deadline {
            let late = self.random.below(WAKE.as_nanos() as u64);
            let wait = deadline.saturating_sub(self.truth.get()) + late;
            self.wake(id, Duration::from_nanos(wait).max(TURN));
        }
        if again {
            self.wake(id, TURN);
        }
        self.wake_workers(id);
    }

    /// Delays a host's thread. After the delay it looks for arrivals.
    fn hold_up(&mut self, id: HostId, duration: Duration) {
        self.trace.record(&[211, id.0 as u64, duration.as_nanos() as u64], || {
            format!("{}: is delayed for {duration:?}", self.hosts[id.0].name)
        });
        if let Some(running) = &mut self.hosts[id.0].running {
            running.held_until = self.truth.get() + duration.as_nanos() as u64;
        }
        self.wake(id, duration);
    }

    /// Gives steps to workers whose bell was rung.
    fn wake_workers(&mut self, id: HostId) {
        let now = self.truth.get();
        let host = &mut self.hosts[id.0];
        let (life, paused_until) = (host.lives, host.paused_until);
        let Some(running) = &mut host.running else { return };
        let mut planned = Vec::new();
        // A process may have started workers in its first turn.
        running.steps.resize(running.workers.count(), None);
        running.busy_until.resize(running.workers.count(), 0);
        for worker in 0..running.steps.len() {
            if running.steps[worker].is_none() && running.workers.is_ringing(worker) {
                let held_up = self.scheduling.hiccup(&mut self.random).as_nanos() as u64;
                let wait = self.random.below(WAKE.as_nanos() as u64) + held_up;
                let at = running.busy_until[worker].max(now).max(paused_until) + wait;
                running.steps[worker] = Some(at);
                planned.push((at, Event::Step(id, life, worker)));
            }
        }
        for (at, event) in planned {
            self.schedule(at, event);
        }
    }

    fn work(&mut self, id: HostId, life: u64, worker: usize, at: u64) {
        let host = &mut self.hosts[id.0];
        let Some(running) = host.running.as_mut().filter(|_| host.lives == life) else { return };
        running.steps[worker] = None;
        if host.paused_until > at {
            return self.wake_workers(id);
        }
        let _ = host.disk.take_spent();
        running.workers.step(worker);
        let spent = host.disk.take_spent();
        running.busy_until[worker] = at + spent.as_nanos() as u64;
        if host.disk.has_stopped() {
            let power = host.stop_is_power;
            return self.stop(id, power);
        }
        let (name, rings) = (running.workers.name(worker), running.alarm.is_ringing());
        let numbers = [210, id.0 as u64, spent.as_nanos() as u64, host.disk.written()];
        self.trace
            .record(&numbers, || format!("{}: {name} works for {spent:?}", self.hosts[id.0].name));
        if rings {
            let wait = Duration::from_nanos(self.random.below(WAKE.as_nanos() as u64));
            self.wake(id, spent + wait);
        }
        self.wake_workers(id);
    }
}
