//! A shard in the simulator. Clients retry over a network that loses, duplicates and delays
//! messages. The log becomes durable late. The shard crashes and is rebuilt from its replicas: by
//! itself, or by a coordinator's command, from a backup over the same network. The history of the
//! clients must be linearizable, and every update done once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_log::{Log, Tombstones};
use thunderhead_log::{
    LogId, Memory, Options as LogOptions, Recorder as Replicas, Replay, Replica, SegmentId,
    TableId, TabletRange,
};
use thunderhead_master::{Options as ShardOptions, Shard};
use thunderhead_net::sim::{Link, address};
use thunderhead_rpc::{
    CallError, Context, Decision, Node, Opcode, Request, Retry, Service, TaskCaller,
};
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::tasks::Tasks;
use thunderhead_runtime::{Process, Random};
use thunderhead_simulator::linearizability::{
    self, Action, Condition as Judged, Operation, Outcome, TEXT, Version as Seen,
};
use thunderhead_simulator::{Boot, Options, Simulation, swarm};
use thunderhead_wire::control::{
    self, LeasesChecked, Owned, Recover, Recovered, Replicas as Parted, TabletStatus, Tablets,
    Taken,
};
use thunderhead_wire::operations::{Identity, ObjectHead};
use thunderhead_wire::replication::{PieceHead, RecoveryHead};
use thunderhead_wire::{Condition, LeaseId, MasterId, RecoveryId, ServerId, Status, Version};
use zerocopy::{FromBytes, IntoBytes};

const PORT: u16 = 7100;
const TABLE: TableId = TableId(1);
const TROUBLE: Duration = Duration::from_millis(1500);
const HEALING: Duration = Duration::from_secs(40);

/// A seeded bug, which the judge must find.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// Clients send no identities, so that a retry repeats its effect.
    NoIdentities,
    /// A crash loses undurable updates, and answers did not wait for durability.
    ForgetsTheLast,
}

/// The way in which a shard gets the data of its former generation.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// It finds the replicas and replays them before it serves.
    Replays,
    /// A coordinator tells the shard to recover them from a backup.
    Recovers,
}

/// The state of the coordinator and the backup. Each generation of the shard is a master, from 1
/// on.
#[derive(Default)]
struct Cluster {
    lives: RefCell<Vec<Replicas>>,
    /// The generation that has the tablet; 0: none yet.
    owner: Cell<usize>,
    is_taken: Cell<bool>,
    /// The replicas of ended generations.
    left: RefCell<BTreeMap<usize, BTreeMap<SegmentId, Replica>>>,
    recoveries: Cell<usize>,
}

impl Cluster {
    /// Returns the remaining replicas of a generation, which do not change from now on, with their
    /// place.
    fn segments_left(&self, life: usize, at: SocketAddr) -> Vec<Parted> {
        let mut left = self.left.borrow_mut();
        let found = || self.lives.borrow()[life - 1].replicas(usize::MAX);
        let replicas = left.entry(life).or_insert_with(found).iter();
        let at = vec![(ServerId(1), at)];
        let segments = replicas.filter(|(_, it)| !it.bytes.is_empty());
        segments
            .map(|(segment, _)| Parted {
                closed: false,
                epoch: Default::default(),
                segment: *segment,
                at: at.clone(),
            })
            .collect()
    }
}

struct Backups(Rc<Cluster>);

impl Service for Backups {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        assert_eq!(opcode, Opcode::RecoveryData);
        let left = self.0.left.borrow();
        let head = RecoveryHead::ref_from_bytes(body).unwrap();
        let bytes = &left[&(head.master().0 as usize)][&head.segment()].bytes;
        let from = head.offset() as usize;
        let until = (from + head.bytes() as usize).min(bytes.len()).min(from + 5000);
        let piece = PieceHead::new(bytes.len() as u32);
        context.reply(reply_to, &[piece.as_bytes(), &bytes[from..until]]);
    }
}

struct Coordinator(Rc<Cluster>);

impl Service for Coordinator {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        if opcode == Opcode::CheckLeases {
            return context.reply(reply_to, &[&control::to_body(&LeasesChecked::default())]);
        }
        let cluster = &self.0;
        let Recovered { crashed, by, outcome, .. } = control::of_body(body).unwrap();
        let (crashed, by) = (crashed.0 as usize, by.0 as usize);
        outcome.unwrap();
        if crashed == cluster.owner.get() && by == cluster.lives.borrow().len() {
            cluster.owner.set(by);
            cluster.recoveries.set(cluster.recoveries.get() + 1);
        }
        if by == cluster.owner.get() {
            context.reply(reply_to, &[&control::to_body(&Owned::default())]);
        } else {
            context.refuse(reply_to, Status::Deposed, 0, &[]);
        }
    }
}

/// Gives the tablet to the present generation of the shard.
async fn coordinate(
    caller: TaskCaller,
    tasks: Tasks,
    cluster: Rc<Cluster>,
    shard: SocketAddr,
    backups: SocketAddr,
) {
    let range = TabletRange::whole(TABLE);
    loop {
        tasks.sleep(Duration::from_millis(2)).await;
        let (life, owner) = (cluster.lives.borrow().len(), cluster.owner.get());
        let master = MasterId(life as u64);
        let timeout = Some(Duration::from_millis(30));
        if owner == 0 {
            cluster.owner.set(life);
        } else if owner != life {
            // Without an answer, the shard may still have the tablet.
            cluster.is_taken.set(true);
            let segments = cluster.segments_left(owner, backups);
            let recover = Recover {
                take_back: false,
                master,
                crashed: MasterId(owner as u64),
                tablets: vec![Taken { range, since: SegmentId::NONE }],
                recovery: RecoveryId(life as u64),
                partition: 0,
                expected: vec![TabletStatus { range, objects: 40, bytes: 1000 }],
                segments,
            };
            let body = control::to_body(&recover);
            let _ = caller.call(shard, Opcode::Recover, body, timeout).await;
        } else if !cluster.is_taken.get() {
            let body = control::to_body(&Tablets { master, tablets: vec![range], map_version: 0 });
            let taken = caller.call(shard, Opcode::TakeTablets, body, timeout).await;
            cluster.is_taken.set(taken.is_ok());
        }
    }
}

/// Returns the node of a new generation, which is empty and waits for the coordinator's commands.
fn recovering_node(
    boot: Boot,
    backup: &Backup,
    cluster: &Cluster,
    coordinator: SocketAddr,
) -> Box<dyn Process> {
    let replicas = Replicas::new();
    let log = new_log(&boot, &replicas);
    cluster.lives.borrow_mut().push(replicas.clone());
    *backup.borrow_mut() = replicas;
    let master = MasterId(cluster.lives.borrow().len() as u64);
    let options =
        ShardOptions { backup_timeout: Duration::from_millis(40), ..ShardOptions::default() };
    let shard = Shard::in_cluster(log, master, vec![coordinator], options);
    let mut node = Node::new(boot.world, boot.transport, shard);
    node.listen(SocketAddr::new(boot.address, PORT)).unwrap();
    Box::new(node)
}

/// The present replicas of the shard's log, which survive its crash.
type Backup = Rc<RefCell<Replicas>>;

fn new_log(boot: &Boot, replicas: &Replicas) -> Log {
    let memory = Memory::with_seglets(4 << 20, 4096).unwrap();
    let options = LogOptions {
        segment_bytes: 32 << 10,
        tombstones: Tombstones::Folded,
        ..LogOptions::default()
    };
    let id = LogId(1 + boot.world.clock.now().0);
    Log::new(&memory, id, options, Box::new(replicas.clone())).unwrap()
}

fn shard_node(boot: Boot, backup: &Backup, flaw: Flaw) -> Box<dyn Process> {
    let replicas = Replicas::new();
    let mut log = new_log(&boot, &replicas);
    let old = backup.borrow().clone();
    let events =
        if flaw == Flaw::ForgetsTheLast { old.events() - old.events().min(3) } else { usize::MAX };
    let old: Vec<_> = old.replicas(events).into_values().map(|replica| replica.bytes).collect();
    let whole = TabletRange::whole(TABLE);
    let mut replay = Replay::new(&mut log, [(whole, SegmentId::NONE)]).unwrap();
    for bytes in old.iter().filter(|bytes| !bytes.is_empty()) {
        replay.segment(bytes).unwrap();
    }
    replay.finish().unwrap();
    log.turn();
    *backup.borrow_mut() = replicas;
    let mut node = Node::new(boot.world, boot.transport, Shard::new(log));
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
    seen: Version,
    flaw: Flaw,
}

impl Client {
    async fn run(mut self, operations: u64, working: Rc<Cell<u64>>) {
        for _ in 0..operations {
            let thinks = self.random.exponential(5e6) as u64;
            self.tasks.sleep(Duration::from_nanos(thinks)).await;
            self.operate().await;
        }
        working.set(working.get() - 1);
    }

    fn choose(&mut self) -> (Action, Condition) {
        let condition = match self.random.below(8) {
            0 => Condition::Absent,
            1 => Condition::Present,
            2 | 3 => Condition::VersionIs(self.seen),
            _ => Condition::Always,
        };
        let judged = match condition {
            Condition::Absent => Judged::Absent,
            Condition::Present => Judged::Present,
            Condition::VersionIs(version) => Judged::VersionIs(Seen(version.0)),
            _ => Judged::Always,
        };
        match self.random.below(10) {
            0..3 => (Action::Read, Condition::Always),
            3..6 => {
                // Some values are bytes, also of 8 bytes, and some are numbers.
                let text = if self.random.chance(0.3) { TEXT } else { 0 };
                let value = self.random.below(1 << 48) | text;
                (Action::Write { value, condition: judged }, condition)
            }
            6 => (Action::Delete { condition: judged }, condition),
            _ => (Action::Increment { by: 1 + self.random.below(1000) }, Condition::Always),
        }
    }

    async fn operate(&mut self) {
        let key = self.random.below(3);
        let (action, condition) = self.choose();
        let called = (self.history.time)();
        let number = self.history.operations.borrow().len();
        let outcome = Outcome::Unknown;
        let operation = Operation { key, called, answered: called, action, outcome };
        self.history.operations.borrow_mut().push(operation);

        let name = key.to_be_bytes();
        let head = ObjectHead::new(TABLE, name.len(), condition, 0);
        let (opcode, argument) = match action {
            Action::Read => (Opcode::Read, None),
            Action::Write { value, .. } if value & TEXT == 0 => (Opcode::WriteNumber, Some(value)),
            Action::Write { value, .. } => (Opcode::Write, Some(value)),
            Action::Delete { .. } => (Opcode::Delete, None),
            Action::Increment { by } => (Opcode::Increment, Some(by)),
        };
        let mut body = Vec::new();
        if opcode != Opcode::Read {
            self.sequence += 1;
            let identity = match self.flaw {
                Flaw::NoIdentities => Identity::NONE,
                _ => Identity::new(self.lease, self.sequence, self.sequence),
            };
            body.extend_from_slice(identity.as_bytes());
        }
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&name);
        body.extend(argument.map(u64::to_le_bytes).into_iter().flatten());
        let deadline = self.clock.now() + Duration::from_millis(800);
        let mut retry = Retry::new(opcode.repeat(), deadline);
        let outcome = loop {
            let timeout = Some(Duration::from_millis(40));
            match self.caller.call(self.server, opcode, body.clone(), timeout).await {
                Ok(reply) => break self.understand(action, &reply),
                Err(CallError::Refused { status: Status::NotFound, .. }) => break Outcome::Absent,
                Err(CallError::Refused {
                    status: Status::ConditionFailed | Status::NotANumber,
                    detail,
                    ..
                }) => {
                    self.seen = Version(detail);
                    break Outcome::Refused(Seen(detail));
                }
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

    fn understand(&mut self, action: Action, reply: &[u8]) -> Outcome {
        let number = |at: usize| u64::from_le_bytes(reply[at..at + 8].try_into().unwrap());
        let version = Seen(number(0));
        if version.0 > 0 {
            self.seen = Version(version.0);
        }
        match action {
            Action::Read => Outcome::Found(version, number(8)),
            Action::Write { value, .. } => Outcome::Done(version, value),
            Action::Increment { .. } => Outcome::Done(version, number(8)),
            Action::Delete { .. } if version.0 == 0 => Outcome::Absent,
            Action::Delete { .. } => Outcome::Deleted(version),
        }
    }
}

/// Runs a seed, and returns its counts, or the judge's violation.
fn run(seed: u64, flaw: Flaw, way: Way) -> Result<(usize, usize), String> {
    let mut random = Random::from_seed(seed);
    let link = swarm::drawn_link(&mut random);
    let mut simulation = Simulation::new(Options { link, ..Options::calm(seed) });
    let backup: Backup = Rc::new(RefCell::new(Replicas::new()));
    let cluster = Rc::new(Cluster::default());
    let own = Rc::clone(&cluster);
    let backups = simulation.add_host("backups", move |boot| {
        let mut node = Node::new(boot.world, boot.transport, Backups(Rc::clone(&own)));
        node.listen(SocketAddr::new(boot.address, PORT)).unwrap();
        Box::new(node)
    });
    let backups = address(simulation.address(backups), PORT);
    // The simulation assigns addresses in order.
    let coordinator = SocketAddr::from(([10, 0, 0, 3], PORT));
    let (own, known) = (Rc::clone(&backup), Rc::clone(&cluster));
    let server = simulation.add_host("shard", move |boot| match way {
        Way::Replays => shard_node(boot, &own, flaw),
        Way::Recovers => recovering_node(boot, &own, &known, coordinator),
    });
    let to = address(simulation.address(server), PORT);
    let own = Rc::clone(&cluster);
    let host = simulation.add_host("coordinator", move |boot| {
        let mut node = Node::new(boot.world, boot.transport, Coordinator(Rc::clone(&own)));
        node.listen(SocketAddr::new(boot.address, PORT)).unwrap();
        if way == Way::Recovers {
            let (caller, tasks) = (node.task_caller(), node.tasks().clone());
            node.tasks().spawn(coordinate(caller, tasks, Rc::clone(&own), to, backups));
        }
        Box::new(node)
    });
    assert_eq!(address(simulation.address(host), PORT), coordinator);
    let truth = simulation.truth();
    let history = History { time: Rc::new(move || truth.get()), operations: Rc::default() };
    let working = Rc::new(Cell::new(0));
    for number in 0..random.within(1..4) {
        let (history, working, tasks) = (history.clone(), Rc::clone(&working), random.within(1..4));
        simulation.add_host(&format!("client {number}"), move |mut boot| {
            let mut random = boot.world.random.split();
            let clock = boot.world.clock.clone();
            let node = Node::new(boot.world, boot.transport, ());
            for _ in 0..tasks {
                working.set(working.get() + 1);
                let client = Client {
                    caller: node.task_caller(),
                    tasks: node.tasks().clone(),
                    clock: clock.clone(),
                    lease: LeaseId(1 + random.below(1 << 60)),
                    random: random.split(),
                    server: to,
                    history: history.clone(),
                    sequence: 0,
                    seen: Version::NONE,
                    flaw,
                };
                node.tasks().spawn(client.run(30, Rc::clone(&working)));
            }
            Box::new(node)
        });
    }
    let mut at = Duration::ZERO;
    while at < TROUBLE {
        at += Duration::from_nanos(random.exponential(1e8) as u64 + 1);
        let a_while = Duration::from_micros(random.within(100..100_000));
        let own = Rc::clone(&backup);
        match random.below(4) {
            0 => {
                simulation.at(at, move |it| it.crash(server));
                simulation.at(at + a_while, move |it| it.start(server));
            }
            1 => simulation.at(at, move |it| it.pause(server, a_while)),
            _ => {
                // Appended bytes become durable late, but a recovery may still find them after a
                // crash.
                simulation.at(at, move |_| own.borrow().hold(true));
                let own = Rc::clone(&backup);
                simulation.at(at + a_while, move |_| own.borrow().hold(false));
            }
        }
    }
    simulation.run_until(TROUBLE + Duration::from_secs(1));
    backup.borrow().hold(false);
    simulation.start(server);
    simulation.network().set_all_links(Link::default());
    simulation.run_for(HEALING);
    if working.get() > 0 {
        return Err(format!("{} clients never came to an end", working.get()));
    }
    let operations = history.operations.borrow();
    let answered = operations.iter().filter(|it| it.outcome != Outcome::Unknown).count();
    linearizability::check(&operations).map_err(|violation| violation.to_string())?;
    Ok((answered, cluster.recoveries.get()))
}

#[test]
fn histories_of_clients_are_linearizable_and_every_update_is_done_once() {
    let mut answered = 0;
    for seed in 0..300 {
        let ran = run(seed, Flaw::None, Way::Replays);
        answered += ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).0;
    }
    assert!(answered > 10_000, "{answered}");
}

#[test]
fn a_shard_that_recovers_its_former_lives_over_the_network_is_as_good() {
    let (mut answered, mut recoveries) = (0, 0);
    for seed in 0..150 {
        let ran = run(seed, Flaw::None, Way::Recovers);
        let ran = ran.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        (answered, recoveries) = (answered + ran.0, recoveries + ran.1);
    }
    assert!(answered > 5_000 && recoveries > 300, "{answered} {recoveries}");
}

#[test]
fn a_client_without_identities_is_caught() {
    assert!((0..300).any(|seed| run(seed, Flaw::NoIdentities, Way::Replays).is_err()));
}

#[test]
fn a_log_that_loses_what_it_called_durable_is_caught() {
    assert!((0..300).any(|seed| run(seed, Flaw::ForgetsTheLast, Way::Replays).is_err()));
}
