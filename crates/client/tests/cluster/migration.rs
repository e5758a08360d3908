//! Tablets are split and moved to and fro between real shards, by real coordinators, while users
//! work. The network loses, duplicates and delays messages, coordinators crash and machines pause.
//! The users' history must be linearizable, and every update done once.

mod troubles;

use crate::user::{PORT, Seeing, TABLE, User, judge};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_client::Session;
use thunderhead_coordinator::{Coordinator, Options as CoordinatorOptions, Probing};
use thunderhead_log::{Log, LogId, Memory, Options as LogOptions, Recorder};
use thunderhead_master::{Options as ShardOptions, Shard};
use thunderhead_metastore::sim::{Faults, SimStore};
use thunderhead_rpc::{
    CallError, CallId, Context, Node, Opcode, OwnerId, Request, Service, TaskCaller,
};
use thunderhead_runtime::Random;
use thunderhead_runtime::tasks::Tasks;
use thunderhead_simulator::{HostId, Options, Simulation, swarm};
use thunderhead_wire::command::CommandHeader;
use thunderhead_wire::control::{
    self, CreateTable, Empty, Enlist, Enlisted, Followed, Known, Map, MapRequest, MigrateTablet,
    Register, Registered, Settings, ShardStatus, SplitTablet, TableInfo,
};
use thunderhead_wire::operations::{Identity, ObjectHead};
use thunderhead_wire::{Condition, Format, KeyHash, MasterId, Next, Status};
use zerocopy::IntoBytes;

/// Asks the coordinators in turn until one of them answers or finally refuses.
#[derive(Clone)]
struct Asker {
    caller: TaskCaller,
    tasks: Tasks,
    coordinators: Vec<SocketAddr>,
    at: Rc<Cell<usize>>,
}

impl Asker {
    fn new(caller: TaskCaller, tasks: Tasks, coordinators: &[SocketAddr]) -> Asker {
        Asker { caller, tasks, coordinators: coordinators.to_vec(), at: Rc::default() }
    }

    async fn ask<A: serde::de::DeserializeOwned>(
        &self,
        opcode: Opcode,
        message: &impl serde::Serialize,
    ) -> Result<A, Status> {
        loop {
            let to = self.coordinators[self.at.get() % self.coordinators.len()];
            let body = control::to_body(message);
            match self.caller.call(to, opcode, body, Some(Duration::from_secs(3))).await {
                Ok(body) => return Ok(control::of_body(&body).unwrap()),
                Err(CallError::Refused { status, .. }) if status.next() == Next::GiveUp => {
                    return Err(status);
                }
                Err(CallError::Refused { status, .. }) if status.next() == Next::Wait => {}
                Err(_) => self.at.set(self.at.get() + 1),
            }
            self.tasks.sleep(Duration::from_millis(10)).await;
        }
    }

    async fn table(&self) -> TableInfo {
        let map: Map = self.ask(Opcode::Map, &MapRequest::default()).await.unwrap();
        map.tables.into_iter().find(|it| it.id == TABLE).unwrap()
    }

    async fn migrate(&self, first: KeyHash, to: MasterId) -> Result<TableInfo, Status> {
        let message = MigrateTablet { table: "t".into(), first, to };
        self.ask(Opcode::MigrateTablet, &message).await
    }
}

/// A server with one shard and no backup.
struct Enlisting {
    coordinators: Vec<SocketAddr>,
    own: SocketAddr,
    enlisted: Rc<Cell<Option<MasterId>>>,
    /// The state that outlasts its process.
    known: Rc<Cell<Option<Known>>>,
    options: ShardOptions,
    memory_bytes: usize,
    shard: Option<Shard>,
}

impl Service for Enlisting {
    fn start(&mut self, context: &mut Context<'_>) {
        let asker = Asker::new(context.task_caller(), context.tasks().clone(), &self.coordinators);
        let (nonce, life) = (context.random().number(), context.random().number());
        let (own, enlisted, alarm) = (self.own, Rc::clone(&self.enlisted), context.alarm().clone());
        let known = Rc::clone(&self.known);
        context.tasks().spawn(async move {
            let register = Register {
                known: known.get(),
                nonce,
                place: 0,
                address: None,
                newest_format: Format::NEWEST,
                followed: Followed::default(),
            };
            let registered: Registered = asker.ask(Opcode::Register, &register).await.unwrap();
            let Registered { cluster, server, .. } = registered;
            known.set(Some(Known { cluster, server }));
            let (host, rack) = (own.to_string(), String::new());
            let shards = vec![own];
            let enlist = Enlist {
                cluster,
                server,
                nonce: life,
                host,
                rack,
                shards,
                backup: None,
                newest_format: Format::NEWEST,
                followed: Followed::default(),
            };
            let answer: Enlisted = asker.ask(Opcode::Enlist, &enlist).await.unwrap();
            enlisted.set(answer.masters.first().copied());
            alarm.ring();
        });
    }

    fn request(&mut self, context: &mut Context<'_>, mut request: Request<'_>) {
        if request.opcode.is_command() {
            let (_, body) =
                CommandHeader::split(request.body).expect("a coordinator sends its leadership");
            request.body = body;
        }
        if request.opcode == Opcode::ServersChanged {
            return context.reply(request.reply_to, &[&control::to_body(&Empty {})]);
        }
        match &mut self.shard {
            Some(shard) => shard.request(context, request),
            None => context.refuse(request.reply_to, Status::Busy, 1000, &[]),
        }
    }

    fn reply(
        &mut self,
        context: &mut Context<'_>,
        owner: OwnerId,
        call: CallId,
        it: Result<&[u8], CallError>,
    ) {
        if let Some(shard) = &mut self.shard {
            shard.reply(context, owner, call, it);
        }
    }

    fn timer(&mut self, context: &mut Context<'_>, owner: OwnerId) {
        if let Some(shard) = &mut self.shard {
            shard.timer(context, owner);
        }
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        if let (None, Some(master)) = (&self.shard, self.enlisted.get()) {
            let memory = Memory::with_seglets(self.memory_bytes, 4096).unwrap();
            let options = LogOptions { segment_bytes: 32 << 10, ..LogOptions::default() };
            let log = Log::new(&memory, LogId(master.0), options, Box::new(Recorder::new()));
            let coordinators = self.coordinators.clone();
            let shard = Shard::in_cluster(log.unwrap(), master, coordinators, self.options);
            self.shard = Some(shard);
        }
        if let Some(shard) = &mut self.shard {
            shard.turn_over(context);
        }
    }
}

struct World {
    simulation: Simulation,
    coordinators: Vec<HostId>,
    addresses: Vec<SocketAddr>,
    servers: Vec<(HostId, Rc<Cell<Option<MasterId>>>)>,
}

impl World {
    fn new(options: Options, servers: usize) -> World {
        World::with_memory(options, &vec![4 << 20; servers])
    }

    /// Makes a world with one server for each amount of memory.
    fn with_memory(options: Options, servers: &[usize]) -> World {
        let seed = options.seed;
        let mut simulation = Simulation::new(options);
        let store = SimStore::new(simulation.truth(), Random::from_seed(seed + 1), Faults::none());
        let settings = Settings {
            replicas: 0,
            min_replicas: 1,
            durability: "replicated".into(),
            segment_bytes: 32 << 10,
            self_backup: false,
        };
        let leadership_ttl = Duration::from_secs(1);
        let options = CoordinatorOptions {
            settings,
            leadership_ttl,
            call_timeout: Duration::from_millis(200),
            // Shards without membership answer no probes.
            probing: Probing::OFF,
            ..CoordinatorOptions::default()
        };
        let mut coordinators = Vec::new();
        for number in 0..2 {
            let (store, options) = (store.clone(), options.clone());
            coordinators.push(simulation.add_host(&format!("coordinator {number}"), move |boot| {
                let client = store.client(boot.world.clock.clone());
                let coordinator = Coordinator::new(Box::new(client), options.clone());
                let mut node = Node::new(boot.world, boot.transport, coordinator);
                node.listen(SocketAddr::new(boot.address, PORT)).unwrap();
                Box::new(node)
            }));
        }
        let at = |host: &HostId| SocketAddr::new(simulation.address(*host), PORT);
        let addresses: Vec<SocketAddr> = coordinators.iter().map(at).collect();
        let servers = servers.iter().copied().enumerate().map(|(number, memory_bytes)| {
            let (enlisted, known) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(None)));
            let (own, coordinators) = (Rc::clone(&enlisted), addresses.clone());
            let host = simulation.add_host(&format!("server {number}"), move |boot| {
                own.set(None);
                let address = SocketAddr::new(boot.address, PORT);
                let service = Enlisting {
                    coordinators: coordinators.clone(),
                    own: address,
                    enlisted: Rc::clone(&own),
                    known: Rc::clone(&known),
                    options: ShardOptions {
                        migration_patience: Duration::from_secs(1),
                        migration_pause: Duration::from_millis(400),
                        ..ShardOptions::default()
                    },
                    memory_bytes,
                    shard: None,
                };
                let mut node = Node::new(boot.world, boot.transport, service);
                node.listen(address).unwrap();
                Box::new(node)
            });
            (host, enlisted)
        });
        let servers = servers.collect();
        let mut world = World { simulation, coordinators, addresses, servers };
        world.until("all servers are enlisted", Duration::from_secs(60), |world| {
            world.servers.iter().all(|(_, master)| master.get().is_some())
        });
        world.drive(|asker| async move {
            for name in ["one", "two", "t"] {
                let create = CreateTable { name: name.into(), server_span: 1 };
                let _: Result<TableInfo, _> = asker.ask(Opcode::CreateTable, &create).await;
            }
        });
        world
    }

    fn until(&mut self, goal: &str, at_most: Duration, holds: impl Fn(&World) -> bool) {
        let end = self.simulation.now() + at_most;
        while !holds(self) {
            if self.simulation.now() >= end {
                let mut said = String::new();
                let remarks = self.drive_for_status();
                said.push_str(&remarks);
                panic!("timed out before {goal}: {said}");
            }
            self.simulation.run_for(Duration::from_millis(5));
        }
    }

    /// Returns the state that an operator would look at.
    fn drive_for_status(&mut self) -> String {
        let result = self.begin(|asker| async move {
            let status: control::ClusterStatus =
                asker.ask(Opcode::ClusterStatus, &Empty {}).await.unwrap();
            let mut said = format!("{:?} {:?}", status.remarks, status.map.tables);
            for shard in status.servers.servers.iter().flat_map(|server| &server.shards) {
                let timeout = Some(Duration::from_millis(900));
                let call =
                    asker.caller.call(shard.address, Opcode::ShardStatus, b"{}".to_vec(), timeout);
                let status = call.await.map(|body| control::of_body::<ShardStatus>(&body));
                said.push_str(&format!(" {status:?}"));
            }
            said
        });
        self.simulation.run_for(Duration::from_secs(20));
        result.take().unwrap_or_default()
    }

    /// Starts a task on a host of its own.
    fn begin<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        task: impl Fn(Asker) -> F + 'static,
    ) -> Rc<RefCell<Option<T>>> {
        let result = Rc::new(RefCell::new(None));
        let (own, addresses) = (Rc::clone(&result), self.addresses.clone());
        self.simulation.add_host("asker", move |boot| {
            let node = Node::new(boot.world, boot.transport, ());
            let task = task(Asker::new(node.task_caller(), node.tasks().clone(), &addresses));
            let own = Rc::clone(&own);
            node.tasks().spawn(async move {
                let done = task.await;
                *own.borrow_mut() = Some(done);
            });
            Box::new(node)
        });
        result
    }

    fn drive<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        task: impl Fn(Asker) -> F + 'static,
    ) -> T {
        let result = self.begin(task);
        let seen = Rc::clone(&result);
        self.until("a task ends", Duration::from_secs(120), move |_| seen.borrow().is_some());
        result.take().unwrap()
    }

    fn add_users(&mut self, count: u64, operations: u64, random: &mut Random) -> Seeing {
        let seeing = Seeing::of(&self.simulation);
        for number in 0..count {
            let (seeing, coordinators) = (seeing.clone(), self.addresses.clone());
            let seed = random.number();
            self.simulation.add_host(&format!("user {number}"), move |boot| {
                let mut random = Random::from_seed(seed);
                let session = Session::new(coordinators.clone(), random.split());
                let mut user = User::new(session, random, seeing.clone());
                user.left = operations;
                user.deadline = Duration::from_secs(4);
                Box::new(Node::new(boot.world, boot.transport, user))
            });
        }
        seeing
    }
}

/// Splits and moves tablets at random; returns how many have moved.
async fn stir(asker: Asker, mut random: Random, masters: Vec<MasterId>, rounds: u64) -> u64 {
    let mut moved = 0;
    for _ in 0..rounds {
        let table = asker.table().await;
        if table.tablets.len() < 6 && random.chance(0.4) {
            let split = SplitTablet { table: "t".into(), at: KeyHash(random.number()) };
            let _: Result<TableInfo, _> = asker.ask(Opcode::SplitTablet, &split).await;
        }
        let tablets = table.tablets.len() as u64;
        let tablet = table.tablets[random.below(tablets) as usize];
        let to = masters[random.below(masters.len() as u64) as usize];
        match asker.migrate(tablet.first, to).await {
            Ok(after) => {
                let is_there = after.tablets.iter().find(|it| it.first == tablet.first);
                assert_eq!(is_there.map(|it| it.master), Some(to));
                moved += u64::from(tablet.master != to);
            }
            // The former master did not wait for the new master's long pause to end.
            Err(Status::NotMigrated) => {}
            Err(other) => panic!("{other}"),
        }
    }
    moved
}

fn run(seed: u64) -> (usize, u64) {
    let mut random = Random::from_seed(seed);
    let link = swarm::drawn_link(&mut random);
    let mut world = World::new(Options { link, ..Options::calm(seed) }, 3);
    let masters: Vec<MasterId> = world.servers.iter().map(|(_, it)| it.get().unwrap()).collect();
    let seeing = world.add_users(4, 60, &mut random);
    let stirring = random.number();
    let moved =
        world.begin(move |asker| stir(asker, Random::from_seed(stirring), masters.clone(), 12));
    for _ in 0..4 {
        let at = world.simulation.now() + Duration::from_millis(random.below(1500));
        let coordinator = world.coordinators[random.below(2) as usize];
        let server = world.servers[random.below(3) as usize].0;
        let pause = Duration::from_millis(random.below(120));
        let crashes = random.chance(0.5);
        world.simulation.at(at, move |simulation| {
            if crashes {
                simulation.restart_after(coordinator, Duration::from_millis(50));
                simulation.crash(coordinator);
            } else {
                simulation.pause(server, pause);
            }
        });
    }
    let seen = Rc::clone(&moved);
    let watched = seeing.clone();
    world.until(&format!("seed {seed}: all users are done"), Duration::from_secs(240), move |_| {
        seen.borrow().is_some() && judge(&watched).is_ok_and(|_| true)
            || judge(&watched).is_err_and(|why| !why.contains("wait"))
    });
    let verdict = judge(&seeing).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    (verdict.answered, moved.take().unwrap_or_default())
}

#[test]
fn users_see_a_linearizable_store_while_tablets_split_and_move() {
    let (mut answered, mut moved) = (0, 0);
    for seed in 0..40 {
        let (more, moves) = run(seed);
        answered += more;
        moved += moves;
    }
    assert!(answered > 15_000, "{answered}");
    assert!(moved > 200, "{moved}");
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Writes objects, without a lease.
async fn write(asker: &Asker, numbers: std::ops::Range<u64>) {
    for number in numbers {
        write_value(asker, number, &[7; 300]).await;
    }
}

async fn write_value(asker: &Asker, number: u64, value: &[u8]) {
    let key = key(number);
    let head = ObjectHead::new(TABLE, key.len(), Condition::Always, 0);
    let identity = Identity::NONE;
    let body = [identity.as_bytes(), head.as_bytes(), &key, value].concat();
    insist(asker, Opcode::Write, &key, body).await.unwrap();
}

fn masters_of(world: &World) -> Vec<MasterId> {
    world.servers.iter().map(|(_, it)| it.get().unwrap()).collect()
}

async fn read(asker: &Asker, number: u64) -> Result<Vec<u8>, Status> {
    let key = key(number);
    let head = ObjectHead::new(TABLE, key.len(), Condition::Always, 0);
    insist(asker, Opcode::Read, &key, [head.as_bytes(), &key].concat()).await
}

async fn insist(
    asker: &Asker,
    opcode: Opcode,
    key: &[u8],
    body: Vec<u8>,
) -> Result<Vec<u8>, Status> {
    loop {
        let table = asker.table().await;
        let hash = KeyHash::of(key);
        let tablet = table.tablets.iter().find(|it| it.first <= hash && hash <= it.last).unwrap();
        let Some(to) = tablet.address else { continue };
        match asker.caller.call(to, opcode, body.clone(), Some(Duration::from_millis(300))).await {
            Ok(reply) => return Ok(reply),
            Err(CallError::Refused { status, .. }) if status.next() == Next::GiveUp => {
                return Err(status);
            }
            Err(_) => asker.tasks.sleep(Duration::from_millis(1)).await,
        }
    }
}

async fn objects_at(asker: &Asker, master: MasterId) -> u64 {
    let list: control::ServerList = asker.ask(Opcode::ServerList, &Empty {}).await.unwrap();
    let mut shards = list.servers.iter().flat_map(|server| &server.shards);
    let to = shards.find(|shard| shard.master == master).unwrap().address;
    loop {
        let timeout = Some(Duration::from_millis(300));
        let call = asker.caller.call(to, Opcode::ShardStatus, b"{}".to_vec(), timeout);
        if let Ok(body) = call.await {
            return control::of_body::<ShardStatus>(&body).unwrap().objects;
        }
    }
}

/// The middle of the table moves away, comes back and moves again. No object is lost, and no
/// deleted object comes back.
#[test]
fn part_of_a_tablet_moves_away_and_back() {
    let mut world = World::new(Options::calm(5), 2);
    let masters: Vec<MasterId> = world.servers.iter().map(|(_, it)| it.get().unwrap()).collect();
    world.drive(move |asker| {
        let masters = masters.clone();
        async move {
            write(&asker, 0..600).await;
            let here = asker.table().await.tablets[0].master;
            let there = masters.into_iter().find(|it| *it != here).unwrap();
            for at in [1 << 62, 3 << 62] {
                let split = SplitTablet { table: "t".into(), at: KeyHash(at) };
                let _: TableInfo = asker.ask(Opcode::SplitTablet, &split).await.unwrap();
            }
            let middle = KeyHash(1 << 62);
            let is_middle =
                |number: &u64| (1 << 62..3 << 62).contains(&KeyHash::of(&key(*number)).0);
            let count = (0..600).filter(is_middle).count() as u64;
            for round in 0..3 {
                asker.migrate(middle, there).await.unwrap();
                assert_eq!(objects_at(&asker, there).await, count, "round {round}");
                for number in 0..600 {
                    assert_eq!(read(&asker, number).await.unwrap().len(), 308, "{number}");
                }
                asker.migrate(middle, here).await.unwrap();
                assert_eq!(objects_at(&asker, there).await, 0, "round {round}");
                assert_eq!(objects_at(&asker, here).await, 600, "round {round}");
            }
            // Dropping a table drops all its tablets.
            asker.migrate(middle, there).await.unwrap();
            let drop = control::DropTable::named("t");
            let _: Empty = asker.ask(Opcode::DropTable, &drop).await.unwrap();
            assert_eq!(objects_at(&asker, here).await + objects_at(&asker, there).await, 0);
        }
    });
}

/// The new master crashes during the move. The former master goes on serving, and the next attempt
/// succeeds.
#[test]
fn a_tablet_stays_with_its_master_if_the_new_master_crashes() {
    for delay in [0, 1, 2, 4, 8, 15, 30] {
        let mut world = World::new(Options::calm(6), 2);
        let masters: Vec<MasterId> =
            world.servers.iter().map(|(_, it)| it.get().unwrap()).collect();
        let own = masters.clone();
        let here = world.drive(move |asker| async move {
            write(&asker, 0..1500).await;
            asker.table().await.tablets[0].master
        });
        let other = own.iter().position(|it| *it != here).unwrap();
        let (host, enlisted) = (world.servers[other].0, Rc::clone(&world.servers[other].1));
        let there = own[other];
        let result = world
            .begin(move |asker| async move { asker.migrate(KeyHash::MIN, there).await.map(drop) });
        world.simulation.run_for(Duration::from_millis(delay));
        let was_done = result.borrow().is_some();
        if was_done {
            assert!(delay > 0);
            continue;
        }
        world.simulation.restart_after(host, Duration::from_millis(100));
        world.simulation.crash(host);
        let seen = Rc::clone(&result);
        world.until("an answer arrives", Duration::from_secs(30), move |_| seen.borrow().is_some());
        let result = result.take().unwrap();
        world.until("the server is back", Duration::from_secs(30), |_| enlisted.get().is_some());
        let again = enlisted.get().unwrap();
        world.drive(move |asker| async move {
            // There are no replicas: the objects that had moved are lost with their master.
            if result == Ok(()) || asker.table().await.tablets[0].master != here {
                return;
            }
            assert!(matches!(result, Err(Status::NotMigrated | Status::NoSuchServer)));
            for number in 0..1500 {
                assert_eq!(read(&asker, number).await.unwrap().len(), 308, "{number}");
            }
            asker.migrate(KeyHash::MIN, again).await.unwrap();
            assert_eq!(objects_at(&asker, again).await, 1500);
        });
    }
}
