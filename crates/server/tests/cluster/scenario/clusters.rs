//! Two clusters in one simulation, and addresses that pass from one to the other.
//!
//! ```text
//!  two equal clusters are created
//!  ─► one machine of each cluster is reinstalled for the other one, with the same address;
//!     in half of the seeds their coordinators exchange places, too
//!  ─► all tablets move to the new servers
//!  ─► users that have been idle continue with their old maps
//! ```
//!
//! Ids begin at 1 in both clusters. So tables, servers and masters of the two have the same ids,
//! and records and maps of each hold addresses of servers of the other. Three rules must hold: no
//! client reads data of the other cluster; no acknowledged update is lost or done twice; and no
//! server is declared crashed, fenced or commanded by the other cluster.

use super::client::Client;
use super::{Outcomes, RareEvents};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use thunderhead_client::control::{CreateTable, Map, MigrateTablet, ServerList, Settings};
use thunderhead_client::{
    Action, Answer, Condition, Number, Operation, Question, Reply, Session, TableId,
};
use thunderhead_coordinator::{Coordinator, Handle, Options as CoordinatorOptions};
use thunderhead_metastore::sim::{Faults, SimStore};
use thunderhead_net::OwnCluster;
use thunderhead_net::sim::Link;
use thunderhead_rpc::Node;
use thunderhead_runtime::{Process, Random};
use thunderhead_server::{BackupOptions, GenerationState, Options, Probing, Server};
use thunderhead_simulator::{Boot, HostId, Options as Simulated, Simulation};
use thunderhead_wire::control::ServerState;
use thunderhead_wire::{Format, Generation};

const COORDINATOR_PORT: u16 = 7100;
const SERVER_PORT: u16 = 7200;
const SEGMENT_BYTES: u32 = 64 << 10;

/// The number of servers of each cluster.
const SERVERS: usize = 3;

/// The number of objects that each user writes, beside a counter.
const KEYS: u64 = 32;

/// How often the counter is incremented, before the exchange and after it.
const INCREMENTS: u64 = 5;

/// The longest time of each step.
const PATIENCE: Duration = Duration::from_secs(60);

/// A machine of one of the clusters.
#[derive(Clone)]
struct Machine {
    host: HostId,
    /// The cluster to which it belongs.
    cluster: Rc<Cell<usize>>,
    /// Whether its disk is emptied before it starts.
    is_new: Rc<Cell<bool>>,
    generation: Rc<RefCell<GenerationState>>,
    handle: Rc<RefCell<Option<Handle>>>,
}

/// The observations of the users.
#[derive(Default)]
struct Seen {
    failures: Vec<String>,
    operations: usize,
    /// The number of steps that users have completed.
    done: usize,
    /// Whether the users may continue.
    goes_on: bool,
}

struct TwoClusters {
    simulation: Simulation,
    stores: [SimStore; 2],
    /// The machines with the coordinators, one of each cluster.
    seats: Vec<Machine>,
    servers: Vec<Machine>,
    seen: Rc<RefCell<Seen>>,
}

/// Runs the scenario of a seed.
pub(crate) fn run(seed: u64, keeps_text: bool) -> Outcomes {
    let mut random = Random::from_seed(seed ^ 0x7477_6f20_636c_7573);
    let delay = Duration::from_micros(random.within(5..200));
    let link = Link { delay, jitter: delay / 2, ..Link::default() };
    let simulation = Simulation::new(Simulated { link, keeps_text, ..Simulated::calm(seed) });
    let stores =
        [(); 2].map(|()| SimStore::new(simulation.truth(), random.split(), Faults::none()));
    let (seats, servers, seen) = (Vec::new(), Vec::new(), Rc::default());
    let mut clusters = TwoClusters { simulation, stores, seats, servers, seen };
    let failure = clusters.play(&mut random).err();
    let seen = clusters.seen.borrow();
    let failures: Vec<String> = seen.failures.iter().take(3).cloned().chain(failure).collect();
    Outcomes {
        digest: clusters.simulation.digest(),
        operations: seen.operations,
        answered: seen.operations,
        failure: (!failures.is_empty()).then(|| failures.join("\n")),
        trace: clusters.simulation.take_trace(),
        virtual_time: clusters.simulation.now(),
        turns: clusters.simulation.turns(),
        rare_events: RareEvents::default(),
    }
}

impl TwoClusters {
    fn play(&mut self, random: &mut Random) -> Result<(), String> {
        for cluster in 0..2 {
            self.add_coordinator(cluster);
        }
        // A new server takes the first coordinator that answers for its own.
        self.until("coordinators lead", |it| (0..2).all(|one| it.map(one).is_some()))?;
        for _ in 0..SERVERS {
            for cluster in 0..2 {
                self.add_server(cluster);
            }
        }
        self.until("both clusters are whole", |it| (0..2).all(|one| it.is_whole(one, &[])))?;
        for cluster in 0..2 {
            self.add_user(cluster);
        }
        self.until("users have begun", |it| it.seen.borrow().done == 2)?;
        let leaving = [0, 1].map(|cluster| 2 * random.below(SERVERS as u64) as usize + cluster);
        self.exchange(leaving, random);
        let newcomers = [leaving[1], leaving[0]];
        self.until("both are whole again", |it| {
            (0..2).all(|one| it.is_whole(one, &[newcomers[one]]))
        })?;
        for (cluster, newcomer) in newcomers.into_iter().enumerate() {
            self.add_operator(cluster, self.address(&self.servers[newcomer]));
        }
        self.until("tablets have moved", |it| it.seen.borrow().done == 4)?;
        self.seen.borrow_mut().goes_on = true;
        self.until("users have ended", |it| it.seen.borrow().done == 6)?;
        for (number, machine) in self.servers.iter().enumerate() {
            let generation = machine.generation.borrow();
            let number_of_it = generation.identity().map(|it| it.generation);
            if let Some(why) = generation.ended() {
                return Err(format!("server {number} has ended: {why}"));
            }
            if number_of_it != Some(Generation(1)) {
                return Err(format!("server {number} is in generation {number_of_it:?}"));
            }
        }
        Ok(())
    }

    /// Reinstalls a machine of each cluster for the other one.
    fn exchange(&mut self, leaving: [usize; 2], random: &mut Random) {
        for number in leaving {
            let machine = self.servers[number].clone();
            self.simulation.cut_power(machine.host);
            machine.cluster.set(1 - machine.cluster.get());
            machine.is_new.set(true);
        }
        if random.chance(0.5) {
            for machine in self.seats.clone() {
                self.simulation.crash(machine.host);
                machine.cluster.set(1 - machine.cluster.get());
            }
        }
        for machine in self.seats.clone() {
            self.simulation.start(machine.host);
        }
        // A new server takes the first coordinator that answers for its own.
        let _ = self.until("coordinators lead", |it| (0..2).all(|one| it.map(one).is_some()));
        for number in leaving {
            self.simulation.start(self.servers[number].host);
        }
    }

    fn until(&mut self, label: &str, holds: impl Fn(&TwoClusters) -> bool) -> Result<(), String> {
        let end = self.simulation.now() + PATIENCE;
        while !holds(self) {
            if self.simulation.now() >= end || !self.seen.borrow().failures.is_empty() {
                let servers = [0, 1].map(|cluster| self.list(cluster));
                return Err(format!("in vain: {label}; {servers:?}"));
            }
            self.simulation.run_for(Duration::from_millis(5));
        }
        Ok(())
    }

    fn address(&self, machine: &Machine) -> SocketAddr {
        SocketAddr::new(self.simulation.address(machine.host), SERVER_PORT)
    }

    /// Returns the handle of a cluster's coordinator, if it leads.
    fn handle(&self, cluster: usize) -> Option<Handle> {
        let of_it = self.seats.iter().find(|it| it.cluster.get() == cluster)?;
        of_it.handle.borrow().clone().filter(Handle::leads)
    }

    fn map(&self, cluster: usize) -> Option<Map> {
        self.handle(cluster)?.map()
    }

    fn list(&self, cluster: usize) -> Option<ServerList> {
        self.handle(cluster)?.servers()
    }

    /// Whether all servers are up, the new ones among them, and all tablets are served.
    fn is_whole(&self, cluster: usize, newcomers: &[usize]) -> bool {
        let (Some(map), Some(list)) = (self.map(cluster), self.list(cluster)) else { return false };
        let up = list.servers.iter().filter(|it| it.state == ServerState::Up);
        let up: Vec<SocketAddr> = up.flat_map(|it| &it.shards).map(|it| it.address).collect();
        let is_up = |number: &usize| up.contains(&self.address(&self.servers[*number]));
        let mut tablets = map.tables.iter().flat_map(|it| &it.tablets);
        up.len() == SERVERS && newcomers.iter().all(is_up) && tablets.all(|it| it.address.is_some())
    }

    /// Returns the coordinators' addresses, with the cluster that has each at present.
    fn coordinators(&self) -> Vec<(SocketAddr, Rc<Cell<usize>>)> {
        let at = |it: &Machine| {
            let ip = self.simulation.address(it.host);
            (SocketAddr::new(ip, COORDINATOR_PORT), Rc::clone(&it.cluster))
        };
        self.seats.iter().map(at).collect()
    }

    fn add_coordinator(&mut self, cluster: usize) {
        let whose = Rc::new(Cell::new(cluster));
        let handle = Rc::new(RefCell::new(None));
        let (stores, shown, own) = (self.stores.clone(), Rc::clone(&handle), Rc::clone(&whose));
        let host = self.simulation.add_host(&format!("coordinator {cluster}"), move |boot| {
            let options = CoordinatorOptions {
                settings: Settings {
                    replicas: 2,
                    min_replicas: 1,
                    durability: "replicated".to_owned(),
                    segment_bytes: SEGMENT_BYTES,
                    self_backup: false,
                },
                leadership_ttl: Duration::from_secs(2),
                ..CoordinatorOptions::default()
            };
            let client = stores[own.get()].client(boot.world.clock.clone());
            let coordinator = Coordinator::new(Box::new(client), options);
            shown.replace(Some(coordinator.handle()));
            let mut node = Node::new(boot.world, boot.transport, coordinator);
            let at = SocketAddr::new(boot.address, COORDINATOR_PORT);
            node.listen(at).unwrap_or_else(|error| panic!("{at}: {error}"));
            Box::new(node)
        });
        let (is_new, generation) = (Rc::default(), Rc::default());
        self.seats.push(Machine { host, cluster: whose, is_new, generation, handle });
    }

    fn add_server(&mut self, cluster: usize) {
        let whose = Rc::new(Cell::new(cluster));
        let is_new = Rc::new(Cell::new(false));
        let generation = Rc::new(RefCell::new(GenerationState::new()));
        let (own, empties, shown) = (Rc::clone(&whose), Rc::clone(&is_new), Rc::clone(&generation));
        let (coordinators, number) = (self.coordinators(), self.servers.len());
        let host = self.simulation.add_host(&format!("server {number}"), move |mut boot: Boot| {
            if empties.take() {
                let files = boot.world.files.as_mut();
                for name in files.list().unwrap_or_default() {
                    let _ = files.remove(&name);
                }
            }
            let mut known = coordinators.clone();
            known.sort_by_key(|(_, whose)| whose.get() != own.get());
            let at = SocketAddr::new(boot.address, SERVER_PORT);
            let options = Options {
                door: None,
                coordinators: known.into_iter().map(|(at, _)| at).collect::<Vec<_>>().into(),
                listen: vec![at],
                message_bytes: None,
                records_per_client_max: None,
                advertise: None,
                memory_bytes: 20 * SEGMENT_BYTES as usize,
                seglet_bytes: Some(4096),
                newest_format: Format::NEWEST,
                populate: false,
                cleaners: 1,
                backup: Some(BackupOptions {
                    disk_bytes: None,
                    buffers: Some(24),
                    populate: false,
                    sparse: false,
                    ..BackupOptions::default()
                }),
                probing: Probing::default(),
                host: format!("machine {number}"),
                rack: String::new(),
            };
            let generation = GenerationState::new();
            shown.replace(generation.clone());
            generation.join(at, boot.world.alarm.clone());
            let server = Server::new(Arc::new(options), generation.clone(), 0);
            let mut node = Node::new(boot.world, boot.transport, server);
            node.listen(at).unwrap_or_else(|error| panic!("{at}: {error}"));
            let process: Box<dyn Process> =
                Box::new(super::world::ServerProcess { node, generation });
            process
        });
        let handle = Rc::default();
        self.servers.push(Machine { host, cluster: whose, is_new, generation, handle });
    }

    /// Returns the id of a cluster, from one of its servers.
    fn cluster(&self, number: usize) -> OwnCluster {
        let of_it = self.servers.iter().filter(|it| it.cluster.get() == number);
        let known = of_it.filter_map(|it| it.generation.borrow().identity()).next();
        known.map_or(OwnCluster::Unknown, |identity| OwnCluster::Known(identity.cluster))
    }

    /// Adds a host with a client of a cluster, which knows the coordinators of both.
    fn add_client<F: Future<Output = Result<(), String>> + 'static>(
        &mut self,
        name: &str,
        cluster: usize,
        does: impl Fn(Client, Rc<RefCell<Seen>>) -> F + 'static,
    ) {
        let demanded = self.cluster(cluster);
        let coordinators: Vec<_> = self.coordinators().into_iter().map(|(at, _)| at).collect();
        let seen = Rc::clone(&self.seen);
        self.simulation.add_host(&format!("{name} {cluster}"), move |mut boot| {
            boot.transport.set_cluster(demanded);
            let session = Session::new(coordinators.clone(), boot.world.random.split());
            let node = Node::new(boot.world, boot.transport, ());
            let client = Client::new(session, node.tasks().clone(), node.task_caller());
            let (work, seen) = (does(client, Rc::clone(&seen)), Rc::clone(&seen));
            node.tasks().spawn(async move {
                let ended = work.await;
                let mut seen = seen.borrow_mut();
                seen.done += 1;
                seen.failures.extend(ended.err().map(|why| format!("client of {cluster}: {why}")));
            });
            Box::new(node)
        });
    }

    /// Adds a user that writes, is idle while addresses change, and continues.
    fn add_user(&mut self, cluster: usize) {
        self.add_client("user", cluster, move |client, seen| async move {
            let user = User { client, seen, cluster: cluster as u8 };
            let table = user.begin().await?;
            user.write_all(table, 0).await?;
            user.read_all(table, 0).await?;
            user.seen.borrow_mut().done += 1;
            while !user.seen.borrow().goes_on {
                user.client.tasks().sleep(Duration::from_millis(7)).await;
            }
            user.read_all(table, 0).await?;
            user.write_all(table, 1).await?;
            user.read_all(table, 1).await
        });
    }

    /// Adds an operator that moves all tablets to the server at an address.
    fn add_operator(&mut self, cluster: usize, to: SocketAddr) {
        self.add_client("operator", cluster, move |client, _| async move {
            let answer = client.ask(Question::ClusterStatus, PATIENCE).await;
            let Ok(Reply::Cluster(status)) = answer else { return Err(format!("{answer:?}")) };
            let mut shards = status.servers.servers.iter().flat_map(|it| &it.shards);
            let target = shards.find(|it| it.address == to).map(|it| it.master);
            let target = target.ok_or("the new server is not in the list")?;
            for table in &status.map.tables {
                for tablet in table.tablets.iter().filter(|it| it.master != target) {
                    let (table, first) = (table.name.clone(), tablet.first);
                    let wish = MigrateTablet { table, first, to: target };
                    let answer = client.ask(Question::MigrateTablet(wish), PATIENCE).await;
                    answer.map_err(|error| format!("a tablet does not move: {error}"))?;
                }
            }
            Ok(())
        });
    }
}

struct User {
    client: Client,
    seen: Rc<RefCell<Seen>>,
    cluster: u8,
}

impl User {
    async fn begin(&self) -> Result<TableId, String> {
        let table = CreateTable::spread("t", SERVERS as u32);
        match self.client.ask(Question::CreateTable(table), PATIENCE).await {
            // The table of the other cluster has the same id.
            Ok(Reply::Table(table)) if table.id == TableId(1) => Ok(table.id),
            other => Err(format!("the table is not made: {other:?}")),
        }
    }

    /// Returns the value of an object, which no other object has.
    fn value(&self, key: u64, round: u8) -> Vec<u8> {
        vec![self.cluster, key as u8, round]
    }

    async fn do_it(&self, table: TableId, key: &[u8], action: Action) -> Result<Answer, String> {
        self.seen.borrow_mut().operations += 1;
        let (key, condition) = (key.to_vec(), Condition::Always);
        let operation = Operation { table, key, condition, action };
        let mut results = self.client.all(vec![operation], PATIENCE).await;
        let result = results.pop().ok_or("no result")?;
        result.map_err(|error| error.to_string())
    }

    async fn write_all(&self, table: TableId, round: u8) -> Result<(), String> {
        for key in 0..KEYS {
            let value = self.value(key, round);
            self.do_it(table, &key.to_le_bytes(), Action::Write(value)).await?;
        }
        for times in 1..=INCREMENTS {
            let sum = i64::from(round) * INCREMENTS as i64 + times as i64;
            let by = Action::Increment(Number::Integer(1));
            match self.do_it(table, b"counter", by).await? {
                Answer::Sum { number: Number::Integer(found), .. } if found == sum => {}
                other => return Err(format!("the counter is not {sum}: {other:?}")),
            }
        }
        Ok(())
    }

    async fn read_all(&self, table: TableId, round: u8) -> Result<(), String> {
        for key in 0..KEYS {
            let own = self.value(key, round);
            match self.do_it(table, &key.to_le_bytes(), Action::Read).await? {
                Answer::Found { value, .. } if value == own => {}
                other => return Err(format!("key {key} is not {own:?}: {other:?}")),
            }
        }
        Ok(())
    }
}
