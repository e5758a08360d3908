//! Tablets are split and moved to and fro between real shards, by real coordinators, while users
//! work. The network loses, duplicates and delays messages, coordinators crash and machines pause.
//! The users' history must be linearizable, and every update done once.

mod troubles;

use crate::user::{Seeing, TABLE, User as Working, judge};
use std::cell::Cell;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_client::Session;
use thunderhead_coordinator::{Coordinator, Options as CoordinatorOptions, Probing};
use thunderhead_log::{Log, LogId, Memory, Options as LogOptions, Recorder};
use thunderhead_master::{Options as ShardOptions, Shard};
use thunderhead_metastore::sim::{Faults, SimStore};
use thunderhead_rpc::{CallError, CallId, Context, Node, Opcode, OwnerId, Request, Service};
use thunderhead_runtime::Random;
use thunderhead_simulator::{Options, swarm};
use thunderhead_testkit::{Cluster, PORT, Place, User, serve};
use thunderhead_wire::command::CommandHeader;
use thunderhead_wire::control::{
    self, CreateTable, Empty, Enlist, Enlisted, Followed, Known, Map, MapRequest, MigrateTablet,
    Register, Registered, Settings, ShardStatus, SplitTablet, TableInfo,
};
use thunderhead_wire::operations::{Identity, ObjectHead};
use thunderhead_wire::{Condition, Format, KeyHash, MasterId, Next, Status};
use zerocopy::IntoBytes;

async fn table(user: &User) -> TableInfo {
    let map: Map = user.ask(Opcode::Map, &MapRequest::default()).await.unwrap();
    map.tables.into_iter().find(|it| it.id == TABLE).unwrap()
}

async fn migrate(user: &User, first: KeyHash, to: MasterId) -> Result<TableInfo, Status> {
    let message = MigrateTablet { table: "t".into(), first, to };
    user.ask(Opcode::MigrateTablet, &message).await
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
        let (caller, tasks) = (context.task_caller(), context.tasks().clone());
        let user = User::with(caller, tasks, self.own, &self.coordinators.clone().into());
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
            let registered: Registered = user.ask(Opcode::Register, &register).await.unwrap();
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
            let answer: Enlisted = user.ask(Opcode::Enlist, &enlist).await.unwrap();
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

/// Two real coordinators over a simulated store, and servers with one real shard each.
struct TabletCluster {
    cluster: Cluster,
    /// The master of each server, once it is enlisted.
    masters: Vec<Rc<Cell<Option<MasterId>>>>,
}

impl Deref for TabletCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for TabletCluster {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}

impl TabletCluster {
    fn new(options: Options, servers: usize) -> TabletCluster {
        TabletCluster::with_memory(options, &vec![4 << 20; servers])
    }

    /// Makes a cluster with one server for each amount of memory.
    fn with_memory(options: Options, servers: &[usize]) -> TabletCluster {
        let seed = options.seed;
        let cluster = Cluster::new(options);
        let mut cluster = TabletCluster { cluster, masters: Vec::new() };
        cluster.add_coordinators(seed);
        for memory_bytes in servers {
            cluster.add_shard(*memory_bytes);
        }
        cluster.until("all servers are enlisted", Duration::from_secs(60), |cluster| {
            cluster.masters.iter().all(|master| master.get().is_some())
        });
        cluster.drive(|user| async move {
            for name in ["one", "two", "t"] {
                let create = CreateTable::spread(name, 1);
                let _: Result<TableInfo, _> = user.ask(Opcode::CreateTable, &create).await;
            }
        });
        cluster
    }

    fn add_coordinators(&mut self, seed: u64) {
        let truth = self.simulation.truth();
        let store = SimStore::new(truth, Random::from_seed(seed + 1), Faults::none());
        let settings = Settings {
            replicas: 0,
            min_replicas: 1,
            durability: "replicated".into(),
            segment_bytes: 32 << 10,
            self_backup: false,
        };
        let options = CoordinatorOptions {
            settings,
            leadership_ttl: Duration::from_secs(1),
            call_timeout: Duration::from_millis(200),
            // Shards without membership answer no probes.
            probing: Probing::OFF,
            ..CoordinatorOptions::default()
        };
        for _ in 0..2 {
            let (store, options) = (store.clone(), options.clone());
            self.add_coordinator(move |boot| {
                let client = store.client(boot.world.clock.clone());
                serve(boot, Coordinator::new(Box::new(client), options.clone()))
            });
        }
    }

    /// Adds a server with so much memory.
    fn add_shard(&mut self, memory_bytes: usize) {
        let coordinators = self.addresses(Place::Coordinator);
        let (enlisted, known) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(None)));
        self.masters.push(Rc::clone(&enlisted));
        self.add_server(move |boot| {
            enlisted.set(None);
            let service = Enlisting {
                coordinators: coordinators.clone(),
                own: SocketAddr::new(boot.address, PORT),
                enlisted: Rc::clone(&enlisted),
                known: Rc::clone(&known),
                options: ShardOptions {
                    migration_patience: Duration::from_secs(1),
                    migration_pause: Duration::from_millis(400),
                    ..ShardOptions::default()
                },
                memory_bytes,
                shard: None,
            };
            serve(boot, service)
        });
    }

    /// Returns the master of each server.
    fn masters(&self) -> Vec<MasterId> {
        self.masters.iter().map(|it| it.get().unwrap()).collect()
    }

    fn until(&mut self, goal: &str, at_most: Duration, holds: impl Fn(&TabletCluster) -> bool) {
        let end = self.simulation.now() + at_most;
        while !holds(self) {
            if self.simulation.now() >= end {
                panic!("timed out before {goal}: {}", self.describe());
            }
            self.simulation.run_for(Duration::from_millis(5));
        }
    }

    /// Returns the state that an operator would look at.
    fn describe(&mut self) -> String {
        let result = self.begin(|user| async move {
            let status: control::ClusterStatus =
                user.ask(Opcode::ClusterStatus, &Empty {}).await.unwrap();
            let mut said = format!("{:?} {:?}", status.remarks, status.map.tables);
            for shard in status.servers.servers.iter().flat_map(|server| &server.shards) {
                let timeout = Some(Duration::from_millis(900));
                let call =
                    user.caller.call(shard.address, Opcode::ShardStatus, b"{}".to_vec(), timeout);
                let status = call.await.map(|body| control::of_body::<ShardStatus>(&body));
                said.push_str(&format!(" {status:?}"));
            }
            said
        });
        self.simulation.run_for(Duration::from_secs(20));
        result.take().unwrap_or_default()
    }

    /// Runs a user's task to its end, or describes the cluster if it does not end.
    fn drive<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        task: impl Fn(User) -> F + 'static,
    ) -> T {
        let result = self.begin(task);
        let seen = Rc::clone(&result);
        self.until("a task ends", Duration::from_secs(120), move |_| seen.borrow().is_some());
        result.take().unwrap()
    }

    fn add_users(&mut self, count: u64, operations: u64, random: &mut Random) -> Seeing {
        let seeing = Seeing::of(&self.simulation);
        for _ in 0..count {
            let (seeing, coordinators) = (seeing.clone(), self.addresses(Place::Coordinator));
            let seed = random.number();
            self.add_user(move |boot| {
                let mut random = Random::from_seed(seed);
                let session = Session::new(coordinators.clone(), random.split());
                let mut user = Working::new(session, random, seeing.clone());
                user.left = operations;
                user.deadline = Duration::from_secs(4);
                Box::new(Node::new(boot.world, boot.transport, user))
            });
        }
        seeing
    }
}

/// Splits and moves tablets at random; returns how many have moved.
async fn stir(user: User, mut random: Random, masters: Vec<MasterId>, rounds: u64) -> u64 {
    let mut moved = 0;
    for _ in 0..rounds {
        let table = table(&user).await;
        if table.tablets.len() < 6 && random.chance(0.4) {
            let split = SplitTablet { table: "t".into(), at: KeyHash(random.number()) };
            let _: Result<TableInfo, _> = user.ask(Opcode::SplitTablet, &split).await;
        }
        let tablets = table.tablets.len() as u64;
        let tablet = table.tablets[random.below(tablets) as usize];
        let to = masters[random.below(masters.len() as u64) as usize];
        match migrate(&user, tablet.first, to).await {
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
    let mut cluster = TabletCluster::new(Options { link, ..Options::calm(seed) }, 3);
    let masters = cluster.masters();
    let seeing = cluster.add_users(4, 60, &mut random);
    let stirring = random.number();
    let moved =
        cluster.begin(move |user| stir(user, Random::from_seed(stirring), masters.clone(), 12));
    for _ in 0..4 {
        let at = cluster.simulation.now() + Duration::from_millis(random.below(1500));
        let coordinator = cluster.host(Place::Coordinator(random.below(2) as usize));
        let server = cluster.host(random.below(3) as usize);
        let pause = Duration::from_millis(random.below(120));
        let crashes = random.chance(0.5);
        cluster.simulation.at(at, move |simulation| {
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
    cluster.until(
        &format!("seed {seed}: all users are done"),
        Duration::from_secs(240),
        move |_| {
            seen.borrow().is_some() && judge(&watched).is_ok_and(|_| true)
                || judge(&watched).is_err_and(|why| !why.contains("wait"))
        },
    );
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
async fn write(user: &User, numbers: std::ops::Range<u64>) {
    for number in numbers {
        write_value(user, number, &[7; 300]).await;
    }
}

async fn write_value(user: &User, number: u64, value: &[u8]) {
    let key = key(number);
    let head = ObjectHead::new(TABLE, key.len(), Condition::Always, 0);
    let identity = Identity::NONE;
    let body = [identity.as_bytes(), head.as_bytes(), &key, value].concat();
    insist(user, Opcode::Write, &key, body).await.unwrap();
}

async fn read(user: &User, number: u64) -> Result<Vec<u8>, Status> {
    let key = key(number);
    let head = ObjectHead::new(TABLE, key.len(), Condition::Always, 0);
    insist(user, Opcode::Read, &key, [head.as_bytes(), &key].concat()).await
}

async fn insist(user: &User, opcode: Opcode, key: &[u8], body: Vec<u8>) -> Result<Vec<u8>, Status> {
    loop {
        let table = table(user).await;
        let hash = KeyHash::of(key);
        let tablet = table.tablets.iter().find(|it| it.first <= hash && hash <= it.last).unwrap();
        let Some(to) = tablet.address else { continue };
        match user.caller.call(to, opcode, body.clone(), Some(Duration::from_millis(300))).await {
            Ok(reply) => return Ok(reply),
            Err(CallError::Refused { status, .. }) if status.next() == Next::GiveUp => {
                return Err(status);
            }
            Err(_) => user.tasks.sleep(Duration::from_millis(1)).await,
        }
    }
}

async fn objects_at(user: &User, master: MasterId) -> u64 {
    let list: control::ServerList = user.ask(Opcode::ServerList, &Empty {}).await.unwrap();
    let mut shards = list.servers.iter().flat_map(|server| &server.shards);
    let to = shards.find(|shard| shard.master == master).unwrap().address;
    loop {
        let timeout = Some(Duration::from_millis(300));
        let call = user.caller.call(to, Opcode::ShardStatus, b"{}".to_vec(), timeout);
        if let Ok(body) = call.await {
            return control::of_body::<ShardStatus>(&body).unwrap().objects;
        }
    }
}

/// The middle of the table moves away, comes back and moves again. No object is lost, and no
/// deleted object comes back.
#[test]
fn part_of_a_tablet_moves_away_and_back() {
    let mut cluster = TabletCluster::new(Options::calm(5), 2);
    let masters = cluster.masters();
    cluster.drive(move |user| {
        let masters = masters.clone();
        async move {
            write(&user, 0..600).await;
            let here = table(&user).await.tablets[0].master;
            let there = masters.into_iter().find(|it| *it != here).unwrap();
            for at in [1 << 62, 3 << 62] {
                let split = SplitTablet { table: "t".into(), at: KeyHash(at) };
                let _: TableInfo = user.ask(Opcode::SplitTablet, &split).await.unwrap();
            }
            let middle = KeyHash(1 << 62);
            let is_middle =
                |number: &u64| (1 << 62..3 << 62).contains(&KeyHash::of(&key(*number)).0);
            let count = (0..600).filter(is_middle).count() as u64;
            for round in 0..3 {
                migrate(&user, middle, there).await.unwrap();
                assert_eq!(objects_at(&user, there).await, count, "round {round}");
                for number in 0..600 {
                    assert_eq!(read(&user, number).await.unwrap().len(), 308, "{number}");
                }
                migrate(&user, middle, here).await.unwrap();
                assert_eq!(objects_at(&user, there).await, 0, "round {round}");
                assert_eq!(objects_at(&user, here).await, 600, "round {round}");
            }
            // Dropping a table drops all its tablets.
            migrate(&user, middle, there).await.unwrap();
            let drop = control::DropTable::named("t");
            let _: Empty = user.ask(Opcode::DropTable, &drop).await.unwrap();
            assert_eq!(objects_at(&user, here).await + objects_at(&user, there).await, 0);
        }
    });
}

/// The new master crashes during the move. The former master goes on serving, and the next attempt
/// succeeds.
#[test]
fn a_tablet_stays_with_its_master_if_the_new_master_crashes() {
    for delay in [0, 1, 2, 4, 8, 15, 30] {
        let mut cluster = TabletCluster::new(Options::calm(6), 2);
        let masters = cluster.masters();
        let own = masters.clone();
        let here = cluster.drive(move |user| async move {
            write(&user, 0..1500).await;
            table(&user).await.tablets[0].master
        });
        let other = own.iter().position(|it| *it != here).unwrap();
        let enlisted = Rc::clone(&cluster.masters[other]);
        let there = own[other];
        let result = cluster
            .begin(move |user| async move { migrate(&user, KeyHash::MIN, there).await.map(drop) });
        cluster.simulation.run_for(Duration::from_millis(delay));
        let was_done = result.borrow().is_some();
        if was_done {
            assert!(delay > 0);
            continue;
        }
        cluster.server(other).kill_for(Duration::from_millis(100));
        let seen = Rc::clone(&result);
        cluster
            .until("an answer arrives", Duration::from_secs(30), move |_| seen.borrow().is_some());
        let result = result.take().unwrap();
        cluster.until("the server is back", Duration::from_secs(30), |_| enlisted.get().is_some());
        let again = enlisted.get().unwrap();
        cluster.drive(move |user| async move {
            // There are no replicas: the objects that had moved are lost with their master.
            if result == Ok(()) || table(&user).await.tablets[0].master != here {
                return;
            }
            assert!(matches!(result, Err(Status::NotMigrated | Status::NoSuchServer)));
            for number in 0..1500 {
                assert_eq!(read(&user, number).await.unwrap().len(), 308, "{number}");
            }
            migrate(&user, KeyHash::MIN, again).await.unwrap();
            assert_eq!(objects_at(&user, again).await, 1500);
        });
    }
}
