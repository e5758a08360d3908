//! A shard whose log is replicated to backups, in the simulator. Clients retry over a network that
//! loses, duplicates and delays messages. Backups crash, lose power, pause and restart. In the end
//! the shard is lost for good, and its log is read from the backups. The history of the clients,
//! together with the objects that are found in the end, must be linearizable.

use crate::recovery::{
    Found, TABLE, choose, drawn_message_bytes, open_with_data, options, rebuild,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_backup::{Durability, Identity, Options as StoreOptions, Service, Store};
use thunderhead_log::{Log, LogId, Memory, SegmentId, TabletRange};
use thunderhead_master::replication::{MESSAGE_BYTES, Settings};
use thunderhead_master::{LocalAnswer, LocalBackup, Replication, Shard};
use thunderhead_net::sim::{Link, address};
use thunderhead_rpc::{
    self as rpc, CallError, CallId, Component, Context, Decision, Node, Opcode, OwnerId, Request,
    Retry, TaskCaller,
};
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::tasks::Tasks;
use thunderhead_runtime::{Process, Random};
use thunderhead_simulator::linearizability::{
    self, Action, Condition as Judged, Operation, Outcome, Version as Seen,
};
use thunderhead_simulator::{Boot, HostId, Options, Simulation, swarm};
use thunderhead_wire::control::{
    BackupInfo, Empty, Inventory, OfMaster, RaiseEpoch, ServerInfo, ServerList, ServerState,
    ShardInfo, of_body, to_body,
};
use thunderhead_wire::operations::{Identity as UpdateIdentity, ObjectHead};
use thunderhead_wire::replication::{PieceHead, ReadHead};
use thunderhead_wire::{
    ClusterId, Condition, Epoch, Generation, LeaseId, MasterId, ServerId, Status,
};
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const PORT: u16 = 7100;
pub(crate) const MASTER: MasterId = MasterId(9);
const KEYS: u64 = 4;
const TROUBLE: Duration = Duration::from_millis(1200);

/// A seeded bug, which the judge must find.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The coordinator forgets the noted epochs.
    ForgetsEpochs,
}

/// The state of the coordinator, which all others know at once.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) list: ServerList,
    epochs: BTreeMap<SegmentId, Epoch>,
}

pub(crate) type Shared = Rc<RefCell<Known>>;

pub(crate) struct Coordinator(pub(crate) Shared);

impl rpc::Service for Coordinator {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        if request.opcode == Opcode::ConfirmMaster {
            return context.reply(request.reply_to, &[&to_body(&Empty {})]);
        }
        let Some(raise) = of_body::<RaiseEpoch>(request.body) else { panic!("a raised epoch") };
        let mut known = self.0.borrow_mut();
        let epoch = known.epochs.entry(raise.segment).or_default();
        *epoch = raise.epoch.max(*epoch);
        context.reply(request.reply_to, &[&to_body(&Empty {})]);
    }
}

/// The owner of the timer for turns in which the shard looks for a new list.
const NEXT_TURN: OwnerId = OwnerId::only(Component::Node);

/// A shard that receives lists of servers.
struct Master {
    shard: Shard,
    known: Shared,
    heard: u64,
}

impl rpc::Service for Master {
    fn start(&mut self, context: &mut Context<'_>) {
        context.set_timer(context.now(), NEXT_TURN);
    }

    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        rpc::Service::request(&mut self.shard, context, request);
    }

    fn reply(
        &mut self,
        context: &mut Context<'_>,
        owner: OwnerId,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        assert_eq!(owner.component(), Component::Shard, "all calls are the shard's");
        self.shard.reply(context, owner, call, outcome);
    }

    fn timer(&mut self, context: &mut Context<'_>, owner: OwnerId) {
        match owner {
            NEXT_TURN => {
                context.set_timer(context.now() + Duration::from_millis(20), NEXT_TURN);
            }
            owner => self.shard.timer(context, owner),
        }
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        let known = self.known.borrow();
        if known.list.version > self.heard {
            self.heard = known.list.version;
            self.shard.replication().unwrap().learn(&known.list);
        }
        self.shard.turn_over_with(context, None);
    }
}

pub(crate) fn master_node(
    boot: Boot,
    known: &Shared,
    replicas: u32,
    message_bytes: u32,
    coordinator: SocketAddr,
) -> Box<dyn Process> {
    let mut world = boot.world;
    let settings = Settings {
        server: ServerId(100),
        host: "own".into(),
        rack: String::new(),
        master: MASTER,
        replicas,
        min_replicas: 1,
        self_backup: false,
        segment_bytes: 32 << 10,
        message_bytes,
    };
    let (replication, replicator) = Replication::new(settings, world.random.split());
    let memory = Memory::with_seglets(3 << 20, 4096).unwrap();
    let mut log = Log::new(&memory, LogId(5), options(), replicator).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    let shard = Shard::with_replication(log, replication, ServerId(100), vec![coordinator]);
    let master = Master { shard, known: Rc::clone(known), heard: 0 };
    let mut node = Node::new(world, boot.transport, master);
    node.listen(SocketAddr::new(boot.address, PORT)).unwrap();
    Box::new(node)
}

/// A server that has a backup and no shard.
pub(crate) fn with_backup(id: u64, address: SocketAddr) -> ServerInfo {
    ServerInfo {
        lineages: Vec::new(),
        server: ServerId(id),
        generation: Generation(1),
        state: ServerState::Up,
        host: format!("host {id}"),
        rack: String::new(),
        shards: Vec::new(),
        backup: Some(BackupInfo { address, read_bytes_per_second: 0, place: 0 }),
    }
}

/// The shard, and its backups.
pub(crate) fn first_list(shard: SocketAddr, backups: &[SocketAddr]) -> ServerList {
    let own = ServerInfo {
        lineages: Vec::new(),
        server: ServerId(100),
        generation: Generation(1),
        state: ServerState::Up,
        host: "own".into(),
        rack: String::new(),
        shards: vec![ShardInfo { master: MASTER, address: shard }],
        backup: None,
    };
    let others = backups.iter().zip(1..).map(|(address, id)| with_backup(id, *address));
    let servers = std::iter::once(own).chain(others).collect();
    ServerList { version: 1, servers, ..ServerList::default() }
}

pub(crate) fn backup_node(
    mut boot: Boot,
    id: u64,
    durability: Durability,
    known: &Shared,
) -> Box<dyn Process> {
    let identity = Identity { cluster: ClusterId(1), server: ServerId(id) };
    let options = StoreOptions {
        segment_bytes: 32 << 10,
        buffers: 8,
        durability,
        ..StoreOptions::new(identity, 200)
    };
    let (store, opened) = Store::start(&mut boot.world, options).unwrap();
    let speed = opened.read_bytes_per_second.unwrap_or(0);
    let mut service = Service::new(store, speed);
    // All learn of a generation right after its begin.
    let list = &known.borrow().list;
    let former = list.servers.iter().find(|it| it.server == ServerId(id));
    service.enlisted(former.map_or(Generation(1), |it| Generation(it.generation.0 + 1)), list);
    let mut node = Node::new(boot.world, boot.transport, service);
    node.listen(SocketAddr::new(boot.address, PORT)).unwrap();
    Box::new(node)
}

#[derive(Clone)]
struct History {
    time: Rc<dyn Fn() -> u64>,
    operations: Rc<RefCell<Vec<Operation<u64>>>>,
}

struct Client {
    caller: TaskCaller,
    tasks: Tasks,
    clock: Clock,
    random: Random,
    server: SocketAddr,
    history: History,
    lease: LeaseId,
    sequence: u64,
}

/// Returns the bytes that are written for a value: so many that heads fill.
fn long(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(1 + (value % 300) as usize)
}

fn short(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

impl Client {
    async fn run(mut self, operations: u64) {
        for _ in 0..operations {
            let thinks = self.random.exponential(4e6) as u64;
            self.tasks.sleep(Duration::from_nanos(thinks)).await;
            self.operate().await;
        }
    }

    async fn operate(&mut self) {
        let key = self.random.below(KEYS);
        let action = match self.random.below(10) {
            0..3 => Action::Read,
            3 => Action::Delete { condition: Judged::Always },
            _ => Action::Write { value: self.random.below(1 << 48), condition: Judged::Always },
        };
        let called = (self.history.time)();
        let number = self.history.operations.borrow().len();
        let operation =
            Operation { key, called, answered: called, action, outcome: Outcome::Unknown };
        self.history.operations.borrow_mut().push(operation);
        let name = key.to_be_bytes();
        let mut body = Vec::new();
        let (opcode, argument) = match action {
            Action::Read => (Opcode::Read, Vec::new()),
            Action::Write { value, .. } => (Opcode::Write, long(value)),
            _ => (Opcode::Delete, Vec::new()),
        };
        if opcode != Opcode::Read {
            self.sequence += 1;
            let identity = UpdateIdentity::new(self.lease, self.sequence, self.sequence);
            body.extend_from_slice(identity.as_bytes());
        }
        let head = ObjectHead::new(TABLE, name.len(), Condition::Always, 0);
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&name);
        body.extend_from_slice(&argument);
        let deadline = self.clock.now() + Duration::from_millis(900);
        let mut retry = Retry::new(opcode.repeat(), deadline);
        let outcome = loop {
            let timeout = Some(Duration::from_millis(60));
            match self.caller.call(self.server, opcode, body.clone(), timeout).await {
                Ok(reply) => break understand(action, &reply),
                Err(CallError::Refused { status: Status::NotFound, .. }) => break Outcome::Absent,
                Err(error) => match retry.decide(error, self.clock.now(), &mut self.random) {
                    Decision::Again { at, .. } => self.tasks.sleep_until(at).await,
                    Decision::GiveUp => break Outcome::Unknown,
                },
            }
        };
        if outcome != Outcome::Unknown {
            let mut operations = self.history.operations.borrow_mut();
            operations[number].answered = (self.history.time)();
            operations[number].outcome = outcome;
        }
    }
}

fn understand(action: Action, reply: &[u8]) -> Outcome {
    let version = Seen(short(reply));
    match action {
        Action::Read => Outcome::Found(version, short(&reply[8..])),
        Action::Write { value, .. } => Outcome::Done(version, value),
        _ if version.0 == 0 => Outcome::Absent,
        _ => Outcome::Deleted(version),
    }
}

/// Reads all replicas that backups have of the log.
async fn recover(
    caller: TaskCaller,
    backups: Vec<SocketAddr>,
    found: Rc<RefCell<Vec<Vec<Found>>>>,
) {
    for backup in backups {
        let mut here = Vec::new();
        let body = to_body(&OfMaster { master: MASTER });
        let timeout = Some(Duration::from_secs(5));
        let inventory = caller.call(backup, Opcode::Inventory, body, timeout).await.unwrap();
        for replica in of_body::<Inventory>(&inventory).unwrap().replicas {
            let mut bytes = Vec::new();
            while bytes.len() < replica.length as usize {
                let head = ReadHead::new(MASTER, replica.segment, bytes.len() as u32, 10_000);
                let body = head.as_bytes().to_vec();
                let page = caller.call(backup, Opcode::ReadReplica, body, timeout).await.unwrap();
                let (head, page) = PieceHead::ref_from_prefix(&page).unwrap();
                assert_eq!(head.length(), replica.length, "no more writes come");
                bytes.extend_from_slice(page);
            }
            let (segment, epoch, closed) = (replica.segment, replica.epoch, replica.closed);
            here.push(Found { segment, epoch, closed, bytes });
        }
        found.borrow_mut().push(here);
    }
}

/// Runs a seed. Returns the number of answered operations, or the judge's violation.
fn run(seed: u64, flaw: Flaw) -> Result<usize, String> {
    let mut random = Random::from_seed(seed);
    let link = swarm::drawn_link(&mut random);
    let mut simulation = Simulation::new(Options { link, ..Options::calm(seed) });
    let known: Shared = Rc::default();
    let replicas = random.within(1..4) as u32;
    let durability = match random.below(3) {
        0 => Durability::Synced,
        1 => Durability::Interval(Duration::from_millis(30)),
        _ => Durability::Replicated,
    };
    let backups: Vec<HostId> = (1..=4)
        .map(|id| {
            let known = Rc::clone(&known);
            simulation.add_host(&format!("backup {id}"), move |boot| {
                backup_node(boot, id, durability, &known)
            })
        })
        .collect();
    let addresses: Vec<SocketAddr> =
        backups.iter().map(|host| address(simulation.address(*host), PORT)).collect();
    let noted = Rc::clone(&known);
    let coordinator = simulation.add_host("coordinator", move |boot| {
        let mut node = Node::new(boot.world, boot.transport, Coordinator(Rc::clone(&noted)));
        node.listen(SocketAddr::new(boot.address, PORT)).unwrap();
        Box::new(node)
    });
    let coordinator = address(simulation.address(coordinator), PORT);
    let own = Rc::clone(&known);
    let message_bytes = match flaw {
        Flaw::None => drawn_message_bytes(&mut Random::from_seed(!seed)),
        // Few seeds show this bug, and fewer with short messages.
        Flaw::ForgetsEpochs => MESSAGE_BYTES,
    };
    let shard = simulation.add_host("shard", move |boot| {
        master_node(boot, &own, replicas, message_bytes, coordinator)
    });
    let to = address(simulation.address(shard), PORT);
    known.borrow_mut().list = first_list(to, &addresses);

    let truth = simulation.truth();
    let history = History { time: Rc::new(move || truth.get()), operations: Rc::default() };
    for number in 0..random.within(1..3) {
        let (history, tasks) = (history.clone(), random.within(1..4));
        simulation.add_host(&format!("client {number}"), move |mut boot| {
            let mut random = boot.world.random.split();
            let clock = boot.world.clock.clone();
            let node = Node::new(boot.world, boot.transport, ());
            for _ in 0..tasks {
                let client = Client {
                    caller: node.task_caller(),
                    tasks: node.tasks().clone(),
                    clock: clock.clone(),
                    lease: LeaseId(1 + random.below(1 << 60)),
                    random: random.split(),
                    server: to,
                    history: history.clone(),
                    sequence: 0,
                };
                node.tasks().spawn(client.run(200));
            }
            Box::new(node)
        });
    }
    let mut at = Duration::ZERO;
    // Power is cut only if the durability promises to survive that.
    let cuts = durability == Durability::Synced;
    while at < TROUBLE {
        at += Duration::from_nanos(random.exponential(1e8) as u64 + 1);
        let number = random.below(4) as usize;
        let (host, is_told) = (backups[number], random.chance(0.7));
        let a_while = Duration::from_micros(random.within(100..150_000));
        let tell = |down: bool| {
            let known = Rc::clone(&known);
            move || {
                let mut known = known.borrow_mut();
                known.list.version += 1;
                let server = &mut known.list.servers[number + 1];
                server.state = if down { ServerState::Down } else { ServerState::Up };
                server.generation.0 += u64::from(!down);
            }
        };
        match random.below(4) {
            0 => simulation.at(at, move |it| it.pause(host, a_while)),
            kind => {
                let (down, up) = (tell(true), tell(false));
                simulation.at(at, move |it| {
                    if kind == 1 && cuts {
                        it.cut_power(host)
                    } else {
                        it.crash(host)
                    }
                    if is_told {
                        down();
                    }
                });
                simulation.at(at + a_while, move |it| {
                    it.start(host);
                    up();
                });
            }
        }
    }
    // The shard is lost for good, at any moment; a backup that is down restarts.
    let end = Duration::from_micros(random.within(100_000..1_400_000));
    simulation.at(end, move |it| it.crash(shard));
    simulation.run_until(TROUBLE + Duration::from_secs(3));
    for host in &backups {
        simulation.start(*host);
    }
    simulation.network().set_all_links(Link::default());
    let found: Rc<RefCell<Vec<Vec<Found>>>> = Rc::default();
    let (own, done) = (Rc::clone(&found), Rc::new(Cell::new(false)));
    let ended = Rc::clone(&done);
    simulation.add_host("reader", move |boot| {
        let node = Node::new(boot.world, boot.transport, ());
        let (caller, own, ended) = (node.task_caller(), Rc::clone(&own), Rc::clone(&ended));
        let all = addresses.clone();
        node.tasks().spawn(async move {
            recover(caller, all, own).await;
            ended.set(true);
        });
        Box::new(node)
    });
    simulation.run_for(Duration::from_secs(60));
    assert!(done.get(), "the replicas are read");

    let mut epochs = known.borrow().epochs.clone();
    if flaw == Flaw::ForgetsEpochs {
        epochs.clear();
    }
    let operations = history.operations.borrow().clone();
    let answered = operations.iter().filter(|it| it.outcome != Outcome::Unknown).count();
    let found = found.borrow();
    let all: Vec<Found> = found.iter().flatten().cloned().collect();
    let time = (history.time)();
    let open = open_with_data(&all, &known.borrow().epochs);
    assert!(open.len() <= 1, "only one head that is open has data: {open:?}");
    let segments = choose(&all, &epochs)?;
    judge(operations.clone(), time, &rebuild(&segments))?;
    // The replicas of some backups may be incomplete, but must not be wrong.
    let gone: Vec<u64> = (1..replicas.max(2)).map(|_| random.below(4)).collect();
    let some = found.iter().zip(0..).filter(|(_, number)| !gone.contains(number));
    let some: Vec<Found> = some.flat_map(|(found, _)| found.iter().cloned()).collect();
    if let Ok(segments) = choose(&some, &epochs) {
        judge(operations, time, &rebuild(&segments))?;
    }
    Ok(answered)
}

/// Judges the found objects together with the history of the clients.
fn judge(mut operations: Vec<Operation<u64>>, time: u64, log: &Log) -> Result<(), String> {
    for key in 0..KEYS {
        let object = log.read(TABLE, &key.to_be_bytes()).unwrap();
        let outcome = object.map_or(Outcome::Absent, |object| {
            Outcome::Found(Seen(object.version().0), short(&object.value().to_vec()))
        });
        let (called, answered) = (time, time + 1);
        operations.push(Operation { key, called, answered, action: Action::Read, outcome });
    }
    linearizability::check(&operations).map_err(|violation| violation.to_string())
}

#[test]
fn acknowledged_updates_are_on_the_backups() {
    let seeds = std::env::var("CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(60);
    let mut answered = 0;
    for seed in 0..seeds {
        answered += run(seed, Flaw::None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    assert!(answered > 100 * seeds as usize / 2, "{answered}");
}

#[test]
fn a_coordinator_that_forgets_epochs_is_caught() {
    let caught = (0..400).any(|seed| run(seed, Flaw::ForgetsEpochs).is_err());
    assert!(caught);
}

/// A shard and the backup of the same process.
struct Both {
    shard: Shard,
    backup: Local,
    /// Answers never wait beyond the turn's end.
    at_once: bool,
    most_parked: Rc<Cell<usize>>,
}

struct Local(Service);

impl LocalBackup for Local {
    fn replicate(&mut self, body: &[&[u8]]) -> LocalAnswer {
        match self.0.local(body) {
            thunderhead_backup::Local::Now(answer) => LocalAnswer::Now(answer),
            thunderhead_backup::Local::Later(number) => LocalAnswer::Later(number),
        }
    }

    fn done(&mut self) -> Option<(u64, Vec<u8>)> {
        self.0.local_done()
    }
}

impl rpc::Service for Both {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        rpc::Service::request(&mut self.shard, context, request);
    }

    fn timer(&mut self, context: &mut Context<'_>, owner: OwnerId) {
        match owner.component() {
            Component::Backup => self.backup.0.on_timer(),
            component => {
                assert_eq!(component, Component::Shard);
                self.shard.timer(context, owner);
            }
        }
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        let Both { shard, backup, at_once, most_parked } = self;
        backup.0.turn_over(context);
        shard.turn_over_with(context, Some(backup));
        let remarks = shard.replication().unwrap().remarks();
        let waiting = shard.statistics().parked;
        most_parked.set(most_parked.get().max(waiting));
        assert!(!*at_once || waiting == 0, "{remarks:?}");
        backup.0.turn_over(context);
    }
}

fn alone(boot: Boot, durability: Durability, most_parked: &Rc<Cell<usize>>) -> Box<dyn Process> {
    let mut world = boot.world;
    let own = ServerId(1);
    let settings = Settings {
        server: own,
        host: "own".into(),
        rack: String::new(),
        master: MASTER,
        replicas: 1,
        min_replicas: 1,
        self_backup: true,
        segment_bytes: 32 << 10,
        message_bytes: drawn_message_bytes(&mut world.random),
    };
    let identity = Identity { cluster: ClusterId(1), server: own };
    let store = StoreOptions {
        segment_bytes: 32 << 10,
        buffers: 8,
        durability,
        ..StoreOptions::new(identity, 400)
    };
    let (store, _) = Store::start(&mut world, store).unwrap();
    let (mut replication, replicator) = Replication::new(settings, world.random.split());
    let address = SocketAddr::new(boot.address, PORT);
    let server = ServerInfo {
        lineages: Vec::new(),
        server: own,
        generation: Generation(1),
        state: ServerState::Up,
        host: "own".into(),
        rack: String::new(),
        shards: vec![ShardInfo { master: MASTER, address }],
        backup: Some(BackupInfo { address, read_bytes_per_second: 0, place: 0 }),
    };
    let list = ServerList { version: 1, servers: vec![server], ..ServerList::default() };
    replication.learn(&list);
    let mut backup = Service::new(store, 0);
    backup.enlisted(Generation(1), &list);
    let memory = Memory::with_seglets(3 << 20, 4096).unwrap();
    let mut log = Log::new(&memory, LogId(5), options(), replicator).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    let both = Both {
        shard: Shard::with_replication(log, replication, own, Vec::new()),
        backup: Local(backup),
        at_once: durability == Durability::Replicated,
        most_parked: Rc::clone(most_parked),
    };
    let mut node = Node::new(world, boot.transport, both);
    node.listen(address).unwrap();
    Box::new(node)
}

#[test]
fn a_write_to_the_own_disk_is_acknowledged_in_its_turn_or_when_it_is_synced() {
    for durability in [Durability::Replicated, Durability::Synced] {
        let mut simulation = Simulation::new(Options::calm(1));
        let most_parked = Rc::new(Cell::new(0));
        let parked = Rc::clone(&most_parked);
        let server = simulation.add_host("server", move |boot| alone(boot, durability, &parked));
        let to = address(simulation.address(server), PORT);
        let truth = simulation.truth();
        let history = History { time: Rc::new(move || truth.get()), operations: Rc::default() };
        let own = history.clone();
        simulation.add_host("client", move |mut boot| {
            let clock = boot.world.clock.clone();
            let mut random = boot.world.random.split();
            let node = Node::new(boot.world, boot.transport, ());
            for lease in 1..9 {
                let client = Client {
                    caller: node.task_caller(),
                    tasks: node.tasks().clone(),
                    clock: clock.clone(),
                    lease: LeaseId(lease),
                    random: random.split(),
                    server: to,
                    history: own.clone(),
                    sequence: 0,
                };
                node.tasks().spawn(client.run(100));
            }
            Box::new(node)
        });
        simulation.run_for(Duration::from_secs(20));
        let operations = history.operations.borrow();
        assert_eq!(operations.len(), 800);
        assert!(operations.iter().all(|it| it.outcome != Outcome::Unknown), "all are answered");
        linearizability::check(&operations).unwrap();
        assert_eq!(most_parked.get() > 0, durability == Durability::Synced);
    }
}
