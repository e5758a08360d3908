//! The hosts of a cluster: coordinators, servers and users, and their faults.

mod faults;
mod generations;
mod scenes;
mod shortages;
mod windows;

use super::client::Client;
use super::plan::{GENERATION_LASTS_MAX, Plan, Scene};
use super::redis;
use super::scale;
use super::user::{Seeing, User};
use faults::{FAULTS, Fault};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use thunderhead_client::Session;
use thunderhead_coordinator::{Coordinator, Handle, Options as CoordinatorOptions};
use thunderhead_metastore::sim::{ClientId, Faults, SimStore};
use thunderhead_net::OwnCluster;
use thunderhead_net::sim::Link;
use thunderhead_net::stream::StreamAddress;
use thunderhead_rpc::Node;
use thunderhead_runtime::sim::disk::DiskModel;
use thunderhead_runtime::{Process, Random, Time};
use thunderhead_server::{
    BackupOptions, Databases, DoorOptions, DoorProtocol, Ended, GenerationState, Options,
    RedisOptions, RedisServerOptions, Server,
};
use thunderhead_simulator::Scheduling;
use thunderhead_simulator::{Boot, HostId, Options as Simulated, Simulation};
use thunderhead_wire::control::{Map, ServerList, ServerState};
use thunderhead_wire::{Format, Generation, ServerId};

const COORDINATORS: usize = 2;
const COORDINATOR_PORT: u16 = 7100;
const SERVER_PORT: u16 = 7200;
const SEGLET_BYTES: usize = 4096;

/// A host with a coordinator, and the handle of that coordinator.
#[derive(Clone)]
struct Seat {
    host: HostId,
    handle: Rc<RefCell<Option<(Handle, ClientId)>>>,
    /// The newest format that the coordinator knows after its next restart.
    newest_format: Rc<Cell<Format>>,
    /// The real time of its turns.
    spent: Rc<Cell<Duration>>,
}

/// A server's process: a host for each of its threads, which start and crash together. Only the
/// first one uses its disk.
#[derive(Clone)]
struct Place {
    hosts: Vec<HostId>,
    /// The server's present generation.
    generation: Rc<RefCell<GenerationState>>,
    /// The newest format that the server knows after its next restart.
    newest_format: Rc<Cell<Format>>,
    /// The time of its restart, if it is not running.
    starts_at: Rc<Cell<Option<Duration>>>,
    /// The databases of its door, if it has one.
    databases: redis::Present,
}

impl Place {
    fn first(&self) -> HostId {
        self.hosts[0]
    }
}

/// A thread of a server: it ends with its server's generation.
pub(super) struct ServerProcess {
    pub(super) node: Node<Server>,
    pub(super) generation: GenerationState,
}

impl Process for ServerProcess {
    fn turn(&mut self, now: Time) -> bool {
        self.generation.ended().is_none() && self.node.turn(now)
    }

    fn deadline(&self) -> Option<Time> {
        self.node.deadline().filter(|_| self.generation.ended().is_none())
    }

    fn sleep(&mut self, _: Option<Duration>) {}
}

/// A simulated cluster.
pub(crate) struct World {
    pub(crate) simulation: Simulation,
    pub(crate) seeing: Seeing,
    store: SimStore,
    seats: Vec<Seat>,
    places: Vec<Place>,
    users: Vec<HostId>,
    random: Random,
    /// Whether disks may fail.
    is_troubled: bool,
    /// The number of ended generations: of all, of those after a verdict, and of orderly ends.
    pub(crate) restarts: u64,
    pub(crate) given_up: u64,
    pub(crate) left: u64,
    /// The server whose disk hangs for good.
    pub(crate) hung: Option<usize>,
    /// It has hung for as long as it is the only fault.
    pub(super) has_hung: bool,
    /// The number of servers that lost the memory that outlasts processes.
    pub(crate) forgot: u64,
    /// The number of flipped bits in replicas.
    pub(crate) rotted: u64,
    /// The masters of shards that took back their former logs.
    pub(crate) taken_back: std::collections::BTreeSet<thunderhead_wire::MasterId>,
}

impl World {
    pub(crate) fn new(seed: u64, plan: &Rc<Plan>, mut random: Random, keeps_text: bool) -> World {
        let options = Simulated {
            link: Link { streams: plan.link.streams, ..Link::default() },
            disk: plan.disk,
            keeps_text,
            ..Simulated::calm(seed)
        };
        let mut simulation = Simulation::new(options);
        let seeing =
            Seeing { seen: Rc::default(), time: simulation.truth(), plan: Rc::clone(plan) };
        let store = SimStore::new(simulation.truth(), random.split(), Faults::none());
        let mut world = World {
            seats: (0..COORDINATORS)
                .map(|number| coordinator(&mut simulation, number, &store, plan))
                .collect(),
            simulation,
            seeing,
            store,
            places: Vec::new(),
            users: Vec::new(),
            random,
            is_troubled: false,
            restarts: 0,
            given_up: 0,
            left: 0,
            hung: None,
            has_hung: false,
            forgot: 0,
            rotted: 0,
            taken_back: std::collections::BTreeSet::new(),
        };
        for number in 0..plan.servers {
            let place = world.server(number, plan);
            world.places.push(place);
        }
        world
    }

    fn coordinators(&self) -> Vec<SocketAddr> {
        let at =
            |seat: &Seat| SocketAddr::new(self.simulation.address(seat.host), COORDINATOR_PORT);
        self.seats.iter().map(at).collect()
    }

    fn server(&mut self, number: usize, plan: &Plan) -> Place {
        let generation = Rc::new(RefCell::new(GenerationState::new()));
        let memory_bytes = plan.memory_bytes * plan.shards;
        let (shards, buffers, probing) = (plan.shards, plan.buffers, plan.probing);
        let (message_bytes, records_per_client_max) =
            (plan.message_bytes, plan.records_per_client_max);
        let newest_format = Rc::new(Cell::new(Format::NEWEST));
        let databases = redis::Present::default();
        let has_door = plan.has_door;
        let value_bytes_max = plan.settings.segment_bytes as usize / 8;
        let mut hosts = Vec::new();
        for shard in 0..shards {
            let (shown, coordinators) = (Rc::clone(&generation), self.coordinators());
            let newest = Rc::clone(&newest_format);
            let present = Rc::clone(&databases);
            let program = move |boot: Boot| -> Box<dyn Process> {
                let at = SocketAddr::new(boot.address, SERVER_PORT);
                let at_door = SocketAddr::new(boot.address, redis::PORT);
                let door = has_door.then(|| {
                    let databases = Arc::new(Databases::default());
                    present.replace(Some(Arc::clone(&databases)));
                    let server = RedisServerOptions {
                        value_bytes_max,
                        is_kept: true,
                        ..RedisServerOptions::default()
                    };
                    let options = RedisOptions { server, databases, settings: Arc::default() };
                    Arc::new(DoorOptions {
                        listen: vec![StreamAddress::Tcp(at_door)],
                        protocol: DoorProtocol::Redis(options),
                        listens: Arc::default(),
                        cluster: None,
                    })
                });
                let options = Options {
                    door: door.clone(),
                    coordinators: coordinators.clone().into(),
                    listen: vec![at; shards],
                    advertise: None,
                    memory_bytes,
                    seglet_bytes: Some(SEGLET_BYTES),
                    message_bytes: Some(message_bytes),
                    records_per_client_max,
                    newest_format: newest.get(),
                    populate: false,
                    cleaners: 1,
                    backup: Some(BackupOptions {
                        // The default must be enough, as documented.
                        disk_bytes: None,
                        buffers: Some(buffers),
                        populate: false,
                        sparse: false,
                        buffer_directory: None,
                        place: 1 + number as u64,
                        begins_anew: false,
                    }),
                    probing,
                    host: format!("machine {number}"),
                    rack: String::new(),
                };
                if shard == 0 {
                    shown.replace(GenerationState::new());
                }
                let generation = shown.borrow().clone();
                let alarm = boot.world.alarm.clone();
                let server = Server::new(Arc::new(options), generation.clone(), shard);
                let mut node = Node::new(boot.world, boot.transport, server);
                node.listen(at).unwrap_or_else(|error| panic!("{at}: {error}"));
                for place in door.iter().flat_map(|door| &door.listen) {
                    let listens = node.listen_stream(place, redis::FAREWELL);
                    listens.unwrap_or_else(|error| panic!("{place}: {error}"));
                }
                generation.join(at, alarm);
                Box::new(ServerProcess { node, generation })
            };
            hosts.push(self.simulation.add_host(&format!("server {number}.{shard}"), program));
        }
        Place { hosts, generation, starts_at: Rc::default(), newest_format, databases }
    }

    /// Adds a host with a user, which does some work, and begins the work anew after a restart.
    pub(crate) fn add_user<F: Future<Output = ()> + 'static>(
        &mut self,
        name: &str,
        does: impl Fn(User) -> F + 'static,
    ) -> HostId {
        let (coordinators, seeing) = (self.coordinators(), self.seeing.clone());
        let ended = Rc::new(Cell::new(false));
        seeing.seen.borrow_mut().working += 1;
        self.simulation.add_host(name, move |mut boot| {
            // Every client belongs to the first cluster that it meets.
            boot.transport.set_cluster(OwnCluster::FirstMet);
            let random = boot.world.random.split();
            let session = Session::new(coordinators.clone(), boot.world.random.split());
            let node = Node::new(boot.world, boot.transport, ());
            let client = Client::new(session, node.tasks().clone(), node.task_caller());
            if !ended.get() {
                let work = does(User::new(client, random, seeing.clone()));
                let (ended, seeing) = (Rc::clone(&ended), seeing.clone());
                node.tasks().spawn(async move {
                    work.await;
                    ended.set(true);
                    seeing.seen.borrow_mut().working -= 1;
                });
            }
            Box::new(node)
        })
    }

    /// Adds the users of the plan, each with its number of operations.
    pub(crate) fn add_users(&mut self) {
        let plan = Rc::clone(&self.seeing.plan);
        for number in 0..plan.users {
            let left = Rc::new(Cell::new(plan.operations));
            let host = self.add_user(&format!("user {number}"), move |user| {
                user.work(number, Rc::clone(&left))
            });
            self.users.push(host);
        }
    }

    /// Lets the faults that befall users befall another host.
    pub(crate) fn add_victim(&mut self, host: HostId) {
        self.users.push(host);
    }

    /// Returns the databases of the door of the first server.
    pub(crate) fn databases(&self) -> redis::Present {
        Rc::clone(&self.places[0].databases)
    }

    /// Runs until a condition holds, or the patience ends. Returns whether it holds.
    pub(crate) fn until(&mut self, patience: Duration, holds: impl Fn(&World) -> bool) -> bool {
        let end = self.simulation.now() + patience;
        while !holds(self) {
            if self.simulation.now() >= end || !self.seeing.seen.borrow().failures.is_empty() {
                return holds(self);
            }
            self.run_for(Duration::from_millis(20));
        }
        true
    }

    /// Runs for some time, and restarts servers whose generations have ended.
    pub(crate) fn run_for(&mut self, duration: Duration) {
        let end = self.simulation.now() + duration;
        while self.simulation.now() < end {
            let step = Duration::from_millis(2).min(end - self.simulation.now());
            self.simulation.run_for(step);
            for place in self.places.clone() {
                self.mind(&place);
            }
            let faded = self.seeing.seen.borrow_mut().faded.take();
            if let Some((table, hash)) = faded {
                self.lets_go_of(table, hash);
            }
        }
    }

    fn mind(&mut self, place: &Place) {
        place.hosts.iter().for_each(|host| self.simulation.heed_alarm(*host));
        let ended = place.generation.borrow().ended();
        let is_running = place.hosts.iter().all(|host| self.simulation.is_running(*host));
        if is_running && ended.is_none() {
            return;
        }
        if let Some(at) = place.starts_at.get() {
            if at <= self.simulation.now() {
                place.starts_at.set(None);
                place.hosts.iter().for_each(|host| self.simulation.start(*host));
            }
            return;
        }
        match ended {
            _ if !is_running => {}
            Some(Ended::Asked) => self.left += 1,
            Some(Ended::Deposed) => self.given_up += 1,
            Some(Ended::Failed(_)) if self.is_troubled && self.is_weak(place) => {}
            Some(Ended::Failed(why)) => self.seeing.fail(format!("a server ends: {why}")),
            None => {}
        }
        self.kill(place, false);
    }

    /// Whether a server has the weak disk.
    fn is_weak(&self, place: &Place) -> bool {
        let weak = self.seeing.plan.weak.and_then(|number| self.places.get(number));
        weak.is_some_and(|weak| weak.first() == place.first())
    }

    /// Ends a server's process, which restarts later.
    fn kill(&mut self, place: &Place, power: bool) {
        self.restarts += 1;
        for host in &place.hosts {
            match power {
                true => self.simulation.cut_power(*host),
                false => self.simulation.crash(*host),
            }
        }
        let wait = self.seeing.plan.lasts(&mut self.random);
        place.starts_at.set(Some(self.simulation.now() + wait));
    }

    /// Ends a server's process and loses the memory that outlasts processes. Unsynced writes are
    /// lost, too, if the machine loses its power.
    fn loses_memory(&mut self, place: &Place, power: bool) {
        self.forgot += 1;
        self.kill(place, power);
        for host in &place.hosts {
            self.simulation.lose_memory(*host);
        }
    }

    /// Asks a server to end in order.
    pub(crate) fn ask_to_leave(&self, number: usize) {
        self.places[number].generation.borrow().leave();
    }

    /// Ends a server's process, which restarts after some time.
    pub(crate) fn stop(&mut self, number: usize, lasts: Duration) {
        let place = self.places[number].clone();
        self.kill(&place, false);
        place.starts_at.set(Some(self.simulation.now() + lasts));
    }

    /// Ends the processes of all servers and coordinators, which restart after some time.
    pub(crate) fn stop_all(&mut self, lasts: Duration) {
        for number in 0..self.places.len() {
            self.stop(number, lasts);
        }
        for seat in self.seats.clone() {
            self.simulation.crash(seat.host);
            self.simulation.start(seat.host);
        }
    }

    /// Replaces the program of a server by a program that knows formats up to `newest`.
    pub(crate) fn replace_server(&mut self, number: usize, newest: Format) {
        self.places[number].newest_format.set(newest);
        self.stop(number, Duration::from_millis(200));
    }

    /// Replaces the program of a coordinator, which is away for some time.
    pub(crate) fn replace_coordinator(&mut self, number: usize, newest: Format, lasts: Duration) {
        let seat = self.seats[number].clone();
        seat.newest_format.set(newest);
        self.simulation.restart_after(seat.host, lasts);
        self.simulation.crash(seat.host);
    }

    /// Returns the number of the leading coordinator.
    pub(crate) fn leads(&self) -> Option<usize> {
        let leads =
            |seat: &Seat| seat.handle.borrow().as_ref().is_some_and(|(handle, _)| handle.leads());
        self.seats.iter().position(leads)
    }

    /// Returns the real time of all coordinators' turns so far.
    pub(crate) fn spent(&self) -> Duration {
        self.seats.iter().map(|seat| seat.spent.get()).sum()
    }

    /// Returns the hosts of a server's threads.
    pub(crate) fn hosts(&self, number: usize) -> Vec<HostId> {
        self.places[number].hosts.clone()
    }

    /// Returns the host of the leading coordinator, or of the first one if none leads.
    pub(crate) fn leader_host(&self) -> HostId {
        let leads =
            |seat: &&Seat| seat.handle.borrow().as_ref().is_some_and(|(handle, _)| handle.leads());
        self.seats.iter().find(leads).unwrap_or(&self.seats[0]).host
    }

    /// Returns a server's id and generation.
    pub(crate) fn identity(&self, number: usize) -> Option<(ServerId, Generation)> {
        let identity = self.places[number].generation.borrow().identity();
        identity.map(|it| (it.server, it.generation))
    }

    /// Lets the leader declare a generation of a server crashed, although the server may still run.
    pub(crate) fn give_up(&self, server: ServerId, generation: Generation) -> bool {
        self.leader().is_some_and(|leader| leader.server_failed(server, generation))
    }

    fn leader(&self) -> Option<Handle> {
        self.seats.iter().find_map(|seat| {
            let handle = seat.handle.borrow().as_ref()?.0.clone();
            (self.simulation.is_running(seat.host) && handle.leads()).then_some(handle)
        })
    }

    /// Returns the leader's map and list of servers, if a coordinator leads.
    pub(crate) fn known(&self) -> Option<(Map, ServerList)> {
        let leader = self.leader()?;
        Some((leader.map()?, leader.servers()?))
    }

    /// Whether every tablet is served and all servers are up.
    pub(crate) fn is_whole(&self) -> bool {
        self.known().is_some_and(|(map, list)| {
            let all = map.tables.iter().flat_map(|table| &table.tablets);
            let up = list.servers.iter().filter(|it| it.state == ServerState::Up).count();
            all.into_iter().all(|tablet| tablet.address.is_some()) && up == self.places.len()
        })
    }

    /// Begins the faults of the plan.
    pub(crate) fn begin_trouble(&mut self) {
        let plan = Rc::clone(&self.seeing.plan);
        self.is_troubled = true;
        self.simulation.network().set_all_links(plan.link);
        self.simulation.set_scheduling(plan.scheduling);
        self.store.set_faults(plan.metastore);
    }

    /// Causes faults until their time is over.
    pub(crate) fn suffer(&mut self, plan: &Plan, random: &mut Random) {
        self.begin_trouble();
        let end = self.simulation.now() + plan.trouble;
        while self.simulation.now() < end {
            let wait = random.exponential(plan.trouble_every.as_nanos() as f64) as u64;
            self.run_for(Duration::from_nanos(wait).min(plan.trouble));
            self.trouble();
            self.see_lineages();
        }
    }

    /// Causes one fault.
    pub(crate) fn trouble(&mut self) {
        let plan = Rc::clone(&self.seeing.plan);
        let mut random = self.random.split();
        let random = &mut random;
        let lasts = plan.lasts(random);
        if plan.only_leaves {
            return self.places.iter().for_each(|place| place.generation.borrow().leave());
        }
        // A disk that hangs is the only fault at first.
        let is_first_hang = plan.scene == Some(Scene::HungDisk) && self.hung.is_none();
        // No other fault may come beside a loss of memory.
        let is_alone = is_first_hang || plan.scene == Some(Scene::LostMemory);
        if let Some(scene) = plan.scene
            && (random.chance(0.8) || is_alone)
        {
            return self.plays(scene, random);
        }
        let power = plan.outlasts_power() && random.chance(0.5);
        let pick = |places: &[Place], random: &mut Random| random.pick(places).cloned();
        let (Some(place), Some(seat)) =
            (pick(&self.places, random), random.pick(&self.seats).cloned())
        else {
            return;
        };
        let thread = random.pick(&place.hosts).copied().unwrap_or(seat.host);
        let user = random.pick(&self.users).copied().unwrap_or(seat.host);
        let victim = match random.below(10) {
            0..6 => thread,
            6..8 => seat.host,
            _ => user,
        };
        if plan.verdicts && random.chance(if plan.churn > 0.0 { 0.5 } else { 0.3 }) {
            return self.ends_a_generation(random);
        }
        if random.chance(0.05) {
            return self.changes_demand(random);
        }
        if plan.migrations && random.chance(0.2) {
            return self.moves_over_slow_links(random);
        }
        if plan.migrations && random.chance(0.05) {
            return self.holds_updates(random);
        }
        match FAULTS.draw(random) {
            Fault::Kill => self.kill(&place, power),
            Fault::KillMany => {
                let share = if random.chance(0.5) { 1.0 } else { random.fraction() };
                for place in self.places.clone() {
                    if random.chance(share) {
                        self.kill(&place, power);
                    }
                }
            }
            Fault::StopAtDiskOperation => {
                let operations = random.within(1..60);
                self.simulation.stop_at_disk_operation(place.first(), operations, power);
            }
            Fault::StopAtSend => {
                let power = power && victim == thread;
                if victim != thread {
                    self.simulation.restart_after(victim, lasts);
                }
                self.simulation.stop_at_send(victim, random.within(1..60), power);
            }
            Fault::Leave => {
                let share = if random.chance(0.3) { 1.0 } else { 0.0 };
                for other in &self.places {
                    if other.first() == place.first() || random.chance(share) {
                        other.generation.borrow().leave();
                    }
                }
            }
            Fault::CrashCoordinator => {
                self.simulation.restart_after(seat.host, lasts);
                self.simulation.crash(seat.host);
            }
            Fault::CrashUser => {
                self.simulation.restart_after(user, lasts);
                self.simulation.crash(user);
            }
            Fault::Pause => self.simulation.pause(victim, lasts),
            Fault::CutFromStore => {
                let client = seat.handle.borrow().as_ref().map(|(_, client)| *client);
                if let Some(client) = client {
                    if random.chance(0.5) {
                        self.store.cut(client)
                    } else {
                        self.store.deafen(client)
                    }
                    let store = self.store.clone();
                    self.simulation.after(lasts, move |_| store.mend(client));
                }
            }
            Fault::StopStore => {
                self.store.stop();
                let store = self.store.clone();
                self.simulation.after(lasts, move |_| store.start());
            }
            Fault::BlockOrSlowLinks => {
                let mut others: Vec<HostId> =
                    self.places.iter().flat_map(|it| it.hosts.clone()).collect();
                others.extend(self.seats.iter().map(|it| it.host).chain([user]));
                let other = random.pick(&others).copied().unwrap_or(user);
                let (a, b) = (self.simulation.address(thread), self.simulation.address(other));
                let both = random.chance(0.5);
                let is_slow = random.chance(0.3);
                let pairs = if both { vec![(a, b), (b, a)] } else { vec![(a, b)] };
                for (from, to) in pairs {
                    let link = if is_slow {
                        let jitter = plan.link.jitter * 20;
                        Link { bytes_per_second: 50_000, jitter, ..plan.link }
                    } else {
                        Link { blocked: true, ..plan.link }
                    };
                    self.simulation.network().set_link(from, to, link);
                    let usual = plan.link;
                    self.simulation.after(lasts, move |it| it.network().set_link(from, to, usual));
                }
            }
            Fault::SlowDisk => {
                let disk = self.simulation.disk(place.first()).clone();
                let slow = DiskModel {
                    operation: Duration::from_millis(5),
                    bytes_per_second: 5_000_000,
                    ..plan.disk
                };
                disk.set_model(slow);
                let usual = plan.disk;
                self.simulation.after(lasts, move |_| disk.set_model(usual));
            }
            Fault::Drift => {
                let drift = random.within(0..2000) as i64 - 1000;
                self.simulation.set_drift(victim, drift);
            }
            Fault::JumpOrVerdict if plan.verdicts && random.chance(0.5) => {
                let Some(leader) = self.leader() else { return };
                let list = leader.servers().unwrap_or_default();
                if let Some(server) = random.pick(&list.servers) {
                    leader.server_failed(server.server, server.generation);
                }
            }
            Fault::JumpOrVerdict => {
                let by = random.within(0..7_200_000_000_000) as i64 - 3_600_000_000_000;
                self.simulation.jump_clock(victim, by);
            }
        }
    }

    /// Ends all faults.
    pub(crate) fn heal(&mut self) {
        let plan = Rc::clone(&self.seeing.plan);
        let calm = Link { streams: plan.link.streams, ..Link::default() };
        self.simulation.set_scheduling(Scheduling::default());
        // Scheduled events still come, and end faults that had begun.
        for wait in [Duration::ZERO, plan.lasts_max.max(GENERATION_LASTS_MAX)] {
            self.run_for(wait);
            self.simulation.network().set_all_links(calm);
            self.store.set_faults(Faults::none());
            self.store.start();
            for seat in &self.seats {
                if let Some((_, client)) = &*seat.handle.borrow() {
                    self.store.mend(*client);
                }
            }
            let servers: Vec<HostId> = self.places.iter().flat_map(|it| it.hosts.clone()).collect();
            let coordinators = self.seats.iter().map(|it| it.host);
            let others: Vec<HostId> = coordinators.chain(self.users.clone()).collect();
            for host in servers.iter().chain(&others) {
                self.simulation.keep_running(*host);
                self.simulation.disk(*host).set_model(DiskModel::default());
            }
            others.iter().for_each(|host| self.simulation.start(*host));
        }
        // A server uses frames that it could not write, and a disk that hung, only after its
        // restart.
        for number in plan.weak.into_iter().chain(self.hung) {
            self.stop(number, Duration::from_millis(100));
            self.run_for(Duration::from_millis(200));
        }
        self.is_troubled = false;
    }

    /// Describes the state of the cluster, for the message of a failure.
    pub(crate) fn describe(&self) -> String {
        let leads = self.leader().is_some();
        let remarks: Vec<String> = self.leader().map(|it| it.remarks()).unwrap_or_default();
        let identities = self.places.iter().map(|place| {
            let identity = place.generation.borrow().identity();
            identity.map(|it| (it.server, it.generation, it.masters.clone()))
        });
        let identities: Vec<_> = identities.collect();
        let recoveries = self.leader().and_then(|it| it.recoveries());
        format!("leads: {leads} {remarks:?}; {recoveries:?}; {identities:?}; {:?}", self.known())
    }
}

fn coordinator(simulation: &mut Simulation, number: usize, store: &SimStore, plan: &Plan) -> Seat {
    let handle = Rc::new(RefCell::new(None));
    let options = CoordinatorOptions {
        settings: plan.settings.clone(),
        address: format!("coordinator {number}"),
        leadership_ttl: plan.leadership_ttl,
        lease_ttl: plan.lease_ttl,
        probing: plan.probing,
        parts: plan.parts,
        ..CoordinatorOptions::default()
    };
    let (shown, store) = (Rc::clone(&handle), store.clone());
    let newest_format = Rc::new(Cell::new(Format::NEWEST));
    let newest = Rc::clone(&newest_format);
    let spent = Rc::new(Cell::new(Duration::ZERO));
    let spends = Rc::clone(&spent);
    let host = simulation.add_host(&format!("coordinator {number}"), move |boot| {
        let client = store.client(boot.world.clock.clone());
        let id = client.id();
        let options = CoordinatorOptions { newest_format: newest.get(), ..options.clone() };
        let coordinator = Coordinator::new(Box::new(client), options);
        shown.replace(Some((coordinator.handle(), id)));
        let at = SocketAddr::new(boot.address, COORDINATOR_PORT);
        let mut node = Node::new(boot.world, boot.transport, coordinator);
        node.listen(at).unwrap_or_else(|error| panic!("{at}: {error}"));
        Box::new(scale::Timed { inner: node, spent: Rc::clone(&spends) })
    });
    Seat { host, handle, newest_format, spent }
}
