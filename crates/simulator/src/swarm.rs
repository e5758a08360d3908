//! Scenarios drawn from seeds: a register server, clients, and a menu of faults, each of which a
//! seed may enable. After the faults everything heals, and the cluster must serve again; then the
//! judge reads the clients' history.

use crate::host::Boot;
use crate::linearizability::{self, Action, Operation, Outcome};
use crate::register::{Client, Flaw, Recorder, Register, Workload};
use crate::scheduling::Scheduling;
use crate::simulation::{HostId, Options, Simulation};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::Cause;
use thunderhead_net::sim::{Link, Network, address};
use thunderhead_rpc::Node;
use thunderhead_runtime::sim::disk::DiskModel;
use thunderhead_runtime::{Process, Random};

/// The port of the register.
const PORT: u16 = 7000;

/// How long clients usually work among faults.
const TROUBLE: Duration = Duration::from_millis(1500);

/// The probability that a seed has faults that last longer than any timeout.
const LONG_CHANCE: f64 = 0.04;

/// The time to recover once the faults are over: longer than any timeout.
const HEALING: Duration = Duration::from_secs(30);

/// The results of a seed.
#[derive(Clone, Debug)]
pub struct Outcomes {
    /// The seed.
    pub seed: u64,
    /// A number that is the same for the same run.
    pub digest: u64,
    /// The clients' history.
    pub history: Vec<Operation<u64>>,
    /// The failure of the run, if it failed.
    pub failure: Option<String>,
    /// The events as text, if requested.
    pub trace: Vec<String>,
    /// Virtual time.
    pub virtual_time: Duration,
    /// Turns of all hosts.
    pub turns: u64,
    /// The rare events in it.
    pub rare_events: RareEvents,
}

/// Counts of rare events. A swarm that never meets one of them tests less than it claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RareEvents {
    /// Connections that were not greeted in time.
    pub no_greeting: u64,
    /// Streams that broke because they got nothing through.
    pub fell_silent: u64,
    /// Peers that did not read for too long.
    pub not_reading: u64,
    /// Messages lost in the crash of their sender.
    pub never_left: u64,
}

impl RareEvents {
    fn in_network(network: &Network) -> RareEvents {
        RareEvents {
            no_greeting: network.closed(Cause::NoGreeting),
            fell_silent: network.fell_silent(),
            not_reading: network.closed(Cause::NotReading),
            never_left: network.never_left(),
        }
    }
}

impl std::ops::AddAssign for RareEvents {
    fn add_assign(&mut self, other: RareEvents) {
        self.no_greeting += other.no_greeting;
        self.fell_silent += other.fell_silent;
        self.not_reading += other.not_reading;
        self.never_left += other.never_left;
    }
}

/// The parameters of a seed's scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The number of client machines.
    pub clients: u64,
    /// Clients on each machine.
    pub tasks: u64,
    /// The clients' work.
    pub workload: Workload,
    /// The links.
    pub link: Link,
    /// The server's disk.
    pub disk: DiskModel,
    /// The delays of threads.
    pub scheduling: Scheduling,
    /// How long clients work among faults.
    pub trouble: Duration,
    /// The longest duration of a fault.
    pub lasts_max: Duration,
    /// The mean time between faults.
    pub trouble_every: Duration,
}

impl Plan {
    /// Draws a plan.
    #[must_use]
    pub fn draw(random: &mut Random) -> Plan {
        let link = drawn_link(random);
        let disk = DiskModel {
            sync: Duration::from_micros(random.within(20..3000)),
            failure: rare(random, 0.01),
            ..DiskModel::default()
        };
        let scheduling = Scheduling { hiccups: rare(random, 0.02) };
        let workload = Workload {
            keys: random.within(1..4),
            operations: random.within(10..40),
            thinks: Duration::from_millis(random.within(1..30)),
            deadline: Duration::from_millis(random.within(100..2000)),
            timeout: Duration::from_millis(random.within(20..200)),
        };
        let plan = Plan {
            clients: random.within(1..5),
            tasks: random.within(1..4),
            workload,
            link,
            disk,
            scheduling,
            trouble: TROUBLE,
            lasts_max: Duration::from_micros(random.magnitude(1_000..1_000_000)),
            trouble_every: Duration::from_millis(random.within(20..500)),
        };
        if random.chance(LONG_CHANCE) { plan.prolonged(random) } else { plan }
    }

    /// Returns the same plan with faults that last for up to 45 seconds.
    fn prolonged(self, random: &mut Random) -> Plan {
        let shortest = if random.chance(0.5) { 20 } else { 1 };
        let lasts_max = Duration::from_millis(random.magnitude(shortest * 1000..45_000));
        let trouble = lasts_max + lasts_max / 2 + TROUBLE;
        let tries = Duration::from_millis(random.magnitude(100..30_000));
        let workload = Workload {
            thinks: trouble.mul_f64(random.fraction()) / self.workload.operations as u32,
            deadline: tries,
            timeout: (tries / 4).max(self.workload.timeout),
            ..self.workload
        };
        let trouble_every = trouble / random.magnitude(2..50) as u32;
        Plan { workload, trouble, lasts_max, trouble_every, ..self }
    }

    /// Draws the duration of a fault: of any order of magnitude up to the longest, and often near
    /// that.
    fn lasts(&self, random: &mut Random) -> Duration {
        let most = self.lasts_max.as_micros() as u64;
        let least = if random.chance(0.3) { most / 2 } else { 100 };
        Duration::from_micros(random.magnitude(least..most))
    }
}

/// Draws a probability that is 0 half of the time, else up to `most`.
fn rare(random: &mut Random, most: f64) -> f64 {
    if random.chance(0.5) { 0.0 } else { random.fraction() * most }
}

/// Draws the properties of a scenario's links.
#[must_use]
pub fn drawn_link(random: &mut Random) -> Link {
    let streams = random.chance(0.5);
    Link {
        delay: Duration::from_nanos(random.within(2_000..200_000)),
        jitter: Duration::from_nanos(random.below(100_000)),
        loss: rare(random, 0.05),
        duplicates: rare(random, 0.1),
        stragglers: rare(random, 0.05),
        resets: rare(random, 0.005),
        streams,
        ..Link::default()
    }
}

/// Runs the scenario of a seed.
#[must_use]
pub fn run(seed: u64, flaw: Flaw, keeps_text: bool) -> Outcomes {
    let mut random = Random::from_seed(seed ^ 0x7468_756e_6465_7221);
    let plan = Plan::draw(&mut random);
    run_plan(seed, &plan, random, flaw, keeps_text)
}

/// Runs a given plan; the times and kinds of faults are drawn from `random`.
#[must_use]
pub fn run_plan(
    seed: u64,
    plan: &Plan,
    mut random: Random,
    flaw: Flaw,
    keeps_text: bool,
) -> Outcomes {
    let Plan { link, disk, scheduling, .. } = *plan;
    let options = Options { seed, keeps_text, link, disk, scheduling };
    let mut simulation = Simulation::new(options);
    let server = simulation.add_host("server", move |boot| register_node(boot, flaw));
    let to = address(simulation.address(server), PORT);
    let truth = simulation.truth();
    let recorder = Recorder::new(move || truth.get());
    let working = Rc::new(Cell::new(0));
    let clients: Vec<HostId> = (0..plan.clients)
        .map(|number| {
            let (recorder, working) = (recorder.clone(), Rc::clone(&working));
            let (tasks, workload) = (plan.tasks, plan.workload);
            simulation.add_host(&format!("client {number}"), move |boot| {
                client_node(boot, to, (tasks, workload), &recorder, &working)
            })
        })
        .collect();
    let mut at = Duration::ZERO;
    loop {
        let wait = random.exponential(plan.trouble_every.as_nanos() as f64);
        at += Duration::from_nanos(wait as u64 + 1);
        if at >= plan.trouble {
            break;
        }
        let (mut own, clients) = (random.split(), clients.clone());
        let a_while = plan.lasts(&mut own);
        simulation.at(at, move |it| trouble(it, server, &clients, a_while, &mut own));
    }
    simulation.run_until(plan.trouble);
    heal(&mut simulation, server, &clients, plan.lasts_max);
    let patience = HEALING * 2 + plan.trouble * 3;
    let failure = serves(&mut simulation, to, &recorder, (&working, patience));
    let history = recorder.history();
    let failure = failure
        .or_else(|| linearizability::check(&history).err().map(|violation| violation.to_string()));
    Outcomes {
        seed,
        digest: simulation.digest(),
        history,
        failure,
        trace: simulation.take_trace(),
        virtual_time: simulation.now(),
        turns: simulation.turns(),
        rare_events: RareEvents::in_network(simulation.network()),
    }
}

/// Runs a cluster of five hosts without faults: a register, and four machines with one client each,
/// which sends a request every ten milliseconds. It measures the simulator.
#[must_use]
pub fn five_hosts(seed: u64, duration: Duration) -> Outcomes {
    let mut simulation = Simulation::new(Options::calm(seed));
    let server = simulation.add_host("server", |boot| register_node(boot, Flaw::None));
    let to = address(simulation.address(server), PORT);
    let truth = simulation.truth();
    let recorder = Recorder::new(move || truth.get());
    let working = Rc::new(Cell::new(0));
    let workload = Workload {
        keys: 16,
        operations: u64::MAX,
        thinks: Duration::from_millis(10),
        deadline: Duration::from_secs(1),
        timeout: Duration::from_millis(200),
    };
    for number in 0..4 {
        let (recorder, working) = (recorder.clone(), Rc::clone(&working));
        simulation.add_host(&format!("client {number}"), move |boot| {
            client_node(boot, to, (1, workload), &recorder, &working)
        });
    }
    simulation.run_until(duration);
    let history = recorder.history();
    Outcomes {
        seed,
        digest: simulation.digest(),
        failure: linearizability::check(&history).err().map(|violation| violation.to_string()),
        history,
        trace: Vec::new(),
        virtual_time: simulation.now(),
        turns: simulation.turns(),
        rare_events: RareEvents::in_network(simulation.network()),
    }
}

fn register_node(mut boot: Boot, flaw: Flaw) -> Box<dyn Process> {
    match Register::new(&mut boot.world, flaw) {
        Ok(register) => {
            let mut node = Node::new(boot.world, boot.transport, register);
            // No other process listens on a simulated host.
            let _ = node.listen(SocketAddr::new(boot.address, PORT));
            Box::new(node)
        }
        Err(_) => Box::new(Node::new(boot.world, boot.transport, ())),
    }
}

fn client_node(
    mut boot: Boot,
    server: SocketAddr,
    (tasks, workload): (u64, Workload),
    recorder: &Recorder,
    working: &Rc<Cell<u64>>,
) -> Box<dyn Process> {
    let mut random = boot.world.random.split();
    let clock = boot.world.clock.clone();
    let node = Node::new(boot.world, boot.transport, ());
    // A restarted client machine does not finish the operations of an earlier generation.
    for _ in 0..tasks {
        let handles = (node.task_caller(), node.tasks().clone(), clock.clone());
        let client = Client::new(handles, random.split(), server, recorder.clone(), &workload);
        let guard = ClientCount::begin(working);
        node.tasks().spawn(client.run(workload, move || drop(guard)));
    }
    Box::new(node)
}

/// Counts a client as long as it works, however it ends.
struct ClientCount(Rc<Cell<u64>>);

impl ClientCount {
    fn begin(count: &Rc<Cell<u64>>) -> ClientCount {
        count.set(count.get() + 1);
        ClientCount(Rc::clone(count))
    }
}

impl Drop for ClientCount {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Injects a fault into a host or link.
fn trouble(
    simulation: &mut Simulation,
    server: HostId,
    clients: &[HostId],
    a_while: Duration,
    random: &mut Random,
) {
    let client = random.pick(clients).copied().unwrap_or(server);
    let victim = if random.chance(0.7) { server } else { client };
    let power = random.chance(0.5);
    match random.below(14) {
        0 | 1 => {
            simulation.restart_after(victim, a_while);
            simulation.crash(victim);
        }
        2 | 3 => {
            simulation.restart_after(victim, a_while);
            simulation.cut_power(victim);
        }
        4 | 5 => {
            simulation.restart_after(server, a_while);
            simulation.stop_at_disk_operation(server, random.within(1..12), power);
        }
        12 | 13 => {
            simulation.restart_after(victim, a_while);
            simulation.stop_at_send(victim, random.within(1..40), power);
        }
        6 => simulation.pause(victim, a_while),
        7 => {
            let (a, b) = (simulation.address(server), simulation.address(client));
            let both = random.chance(0.5);
            let pairs = if both { vec![(a, b), (b, a)] } else { vec![(a, b)] };
            for (from, to) in pairs {
                let link = simulation.network().link(from, to);
                simulation.network().set_link(from, to, Link { blocked: true, ..link });
                simulation.after(a_while, move |it| it.network().set_link(from, to, link));
            }
        }
        8 => {
            let (a, b) = (simulation.address(server), simulation.address(client));
            let link = simulation.network().link(a, b);
            let slow = Link { bytes_per_second: 20_000, jitter: link.jitter * 20, ..link };
            simulation.network().set_link(a, b, slow);
            simulation.after(a_while, move |it| it.network().set_link(a, b, link));
        }
        9 => {
            let disk = simulation.disk(server).clone();
            let model = disk.model();
            let trouble = match random.below(3) {
                0 => DiskModel { capacity: 4096, ..model },
                1 => DiskModel { operation: Duration::from_millis(20), ..model },
                _ => DiskModel { failure: 0.5, ..model },
            };
            disk.set_model(trouble);
            simulation.after(a_while, move |_| disk.set_model(model));
        }
        10 => simulation.set_drift(victim, random.within(0..2000) as i64 - 1000),
        _ => {
            let by = random.within(0..7_200_000_000_000) as i64 - 3_600_000_000_000;
            simulation.jump_clock(victim, by);
        }
    }
}

/// Ends all faults.
fn heal(simulation: &mut Simulation, server: HostId, clients: &[HostId], lasts_max: Duration) {
    let own = simulation.address(server);
    let link = simulation.network().link(own, own);
    let calm = Link { streams: link.streams, ..Link::default() };
    simulation.set_scheduling(Scheduling::default());
    // Planned events still happen; waiting for them ends faults that have begun.
    for wait in [Duration::ZERO, lasts_max] {
        simulation.run_for(wait);
        simulation.network().set_all_links(calm);
        simulation.disk(server).set_model(DiskModel::default());
        for host in clients.iter().chain([&server]) {
            simulation.keep_running(*host);
        }
    }
    simulation.start(server);
}

/// Returns a description of a failure to serve after all faults have ended.
fn serves(
    simulation: &mut Simulation,
    to: SocketAddr,
    recorder: &Recorder,
    (working, patience): (&Rc<Cell<u64>>, Duration),
) -> Option<String> {
    let seen = Rc::new(Cell::new(None));
    let (told, recorder) = (Rc::clone(&seen), recorder.clone());
    let workload = Workload {
        keys: 1,
        operations: 0,
        thinks: Duration::ZERO,
        deadline: HEALING,
        timeout: Duration::from_secs(1),
    };
    simulation.add_host("last client", move |mut boot| {
        let random = boot.world.random.split();
        let clock = boot.world.clock.clone();
        let node = Node::new(boot.world, boot.transport, ());
        let handles = (node.task_caller(), node.tasks().clone(), clock);
        let mut client = Client::new(handles, random, to, recorder.clone(), &workload);
        let told = Rc::clone(&told);
        node.tasks().spawn(async move {
            let mut well = true;
            for key in 0..3 {
                let increment = client.operate(key, Action::Increment { by: 1 }).await;
                let read = client.operate(key, Action::Read).await;
                well &= increment != Outcome::Unknown && read != Outcome::Unknown;
            }
            told.set(Some(well));
        });
        Box::new(node)
    });
    let mut waited = Duration::ZERO;
    while (seen.get().is_none() || working.get() > 0) && waited < patience {
        simulation.run_for(Duration::from_millis(100));
        waited += Duration::from_millis(100);
    }
    match (seen.get(), working.get()) {
        (Some(true), 0) => None,
        (Some(true), left) => Some(format!("{left} clients never finished")),
        (Some(false), _) => {
            Some("the register does not serve although all faults have ended".to_owned())
        }
        (None, _) => Some("the last client never finished".to_owned()),
    }
}
