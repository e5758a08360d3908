//! Scenarios drawn from seeds: a register server, clients, and a menu of faults, each of which a
//! seed may have on it or not. After the faults everything heals, and the cluster must serve again;
//! then the judge reads what the clients saw.

use crate::host::Boot;
use crate::linearizability::{self, Action, Operation, Outcome};
use crate::register::{Client, Flaw, Recorder, Register, Workload};
use crate::simulation::{HostId, Options, Simulation};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::sim::{Link, address};
use thunderhead_rpc::Node;
use thunderhead_runtime::sim::disk::DiskModel;
use thunderhead_runtime::{Process, Random};

/// The port of the register.
const PORT: u16 = 7000;

/// How long clients work among faults.
const TROUBLE: Duration = Duration::from_millis(1500);

/// How long everybody has to recover once the faults are over: longer than anything waits.
const HEALING: Duration = Duration::from_secs(30);

/// What a seed led to.
#[derive(Clone, Debug)]
pub struct Outcomes {
    /// The seed.
    pub seed: u64,
    /// A number that is the same for the same run.
    pub digest: u64,
    /// What clients saw.
    pub history: Vec<Operation<u64>>,
    /// Why the run is not right, if it is not.
    pub failure: Option<String>,
    /// What happened, in words, if that was asked for.
    pub trace: Vec<String>,
    /// Virtual time.
    pub virtual_time: Duration,
    /// Turns of all hosts.
    pub turns: u64,
}

/// What a seed's scenario is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Client machines.
    pub clients: u64,
    /// Clients on each.
    pub tasks: u64,
    /// What they do.
    pub workload: Workload,
    /// Links.
    pub link: Link,
    /// The server's disk.
    pub disk: DiskModel,
    /// How often something happens to somebody, on average.
    pub trouble_every: Duration,
}

impl Plan {
    /// Draws a plan.
    #[must_use]
    pub fn draw(random: &mut Random) -> Plan {
        let streams = random.chance(0.5);
        let rare = |random: &mut Random, most: f64| {
            if random.chance(0.5) { 0.0 } else { random.fraction() * most }
        };
        let link = Link {
            delay: Duration::from_nanos(random.within(2_000..200_000)),
            jitter: Duration::from_nanos(random.below(100_000)),
            loss: rare(random, 0.05),
            duplicates: rare(random, 0.1),
            stragglers: rare(random, 0.05),
            resets: rare(random, 0.005),
            streams,
            ..Link::default()
        };
        let disk = DiskModel {
            sync: Duration::from_micros(random.within(20..3000)),
            failure: rare(random, 0.01),
            ..DiskModel::default()
        };
        let workload = Workload {
            keys: random.within(1..4),
            operations: random.within(10..40),
            thinks: Duration::from_millis(random.within(1..30)),
            deadline: Duration::from_millis(random.within(100..2000)),
            timeout: Duration::from_millis(random.within(20..200)),
        };
        Plan {
            clients: random.within(1..5),
            tasks: random.within(1..4),
            workload,
            link,
            disk,
            trouble_every: Duration::from_millis(random.within(20..500)),
        }
    }
}

/// Runs the scenario of a seed.
#[must_use]
pub fn run(seed: u64, flaw: Flaw, keeps_text: bool) -> Outcomes {
    let mut random = Random::from_seed(seed ^ 0x7468_756e_6465_7221);
    let plan = Plan::draw(&mut random);
    run_plan(seed, &plan, random, flaw, keeps_text)
}

/// Runs a given plan; what happens when is drawn from `random`.
#[must_use]
pub fn run_plan(
    seed: u64,
    plan: &Plan,
    mut random: Random,
    flaw: Flaw,
    keeps_text: bool,
) -> Outcomes {
    let options = Options { seed, keeps_text, link: plan.link, disk: plan.disk };
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
        if at >= TROUBLE {
            break;
        }
        let (mut own, clients) = (random.split(), clients.clone());
        simulation.at(at, move |simulation| trouble(simulation, server, &clients, &mut own));
    }
    simulation.run_until(TROUBLE);
    let failure = heal(&mut simulation, (server, to), &recorder, &working);
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
    }
}

/// A cluster of five hosts where nothing goes wrong: a register and four machines with a client
/// each, who ask for something every ten milliseconds. For measuring the simulator.
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
    }
}

fn register_node(mut boot: Boot, flaw: Flaw) -> Box<dyn Process> {
    match Register::new(&mut boot.world, flaw) {
        Ok(register) => {
            let mut node = Node::new(boot.world, boot.transport, register);
            // Nobody else listens on a simulated host.
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
    // What clients of an earlier life were doing will not be ended by them.
    for _ in 0..tasks {
        let handles = (node.calling(), node.tasks().clone(), clock.clone());
        let client = Client::new(handles, random.split(), server, recorder.clone(), &workload);
        let guard = Working::begin(working);
        node.tasks().spawn(client.run(workload, move || drop(guard)));
    }
    Box::new(node)
}

/// Counts a client as long as it works, however it ends.
struct Working(Rc<Cell<u64>>);

impl Working {
    fn begin(count: &Rc<Cell<u64>>) -> Working {
        count.set(count.get() + 1);
        Working(Rc::clone(count))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Something happens to somebody.
fn trouble(simulation: &mut Simulation, server: HostId, clients: &[HostId], random: &mut Random) {
    let client = random.pick(clients).copied().unwrap_or(server);
    let somebody = if random.chance(0.7) { server } else { client };
    let a_while = Duration::from_micros(random.within(100..200_000));
    match random.below(12) {
        0 | 1 => {
            simulation.crash(somebody);
            simulation.after(a_while, move |it| it.start(somebody));
        }
        2 | 3 => {
            simulation.cut_power(somebody);
            simulation.after(a_while, move |it| it.start(somebody));
        }
        4 | 5 => {
            let power = random.chance(0.5);
            simulation.stop_at_disk_operation(server, random.within(1..12), power);
            simulation.after(a_while, move |it| it.start(server));
        }
        6 => simulation.pause(somebody, a_while),
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
        10 => simulation.set_drift(somebody, random.within(0..2000) as i64 - 1000),
        _ => {
            let by = random.within(0..7_200_000_000_000) as i64 - 3_600_000_000_000;
            simulation.jump_clock(somebody, by);
        }
    }
}

/// Ends all trouble and says what does not work even then.
fn heal(
    simulation: &mut Simulation,
    (server, to): (HostId, SocketAddr),
    recorder: &Recorder,
    working: &Rc<Cell<u64>>,
) -> Option<String> {
    let link = simulation.network().link(simulation.address(server), simulation.address(server));
    simulation.network().set_all_links(Link { streams: link.streams, ..Link::default() });
    simulation.disk(server).set_model(DiskModel::default());
    simulation.disk(server).restart();
    // What was planned for later still comes; none of it makes trouble.
    simulation.run_for(Duration::from_millis(250));
    simulation.network().set_all_links(Link { streams: link.streams, ..Link::default() });
    simulation.disk(server).set_model(DiskModel::default());
    simulation.start(server);
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
        let handles = (node.calling(), node.tasks().clone(), clock);
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
    while (seen.get().is_none() || working.get() > 0) && waited < HEALING * 2 {
        simulation.run_for(Duration::from_millis(100));
        waited += Duration::from_millis(100);
    }
    match (seen.get(), working.get()) {
        (Some(true), 0) => None,
        (Some(true), left) => Some(format!("{left} clients never came to an end")),
        (Some(false), _) => Some("the register does not serve though nothing is wrong".to_owned()),
        (None, _) => Some("the last client never came to an end".to_owned()),
    }
}
