//! A shard in the simulator. Clients retry over a network that loses, duplicates and delays
//! messages. The log becomes durable late. The shard crashes and is rebuilt from its replicas: by
//! itself, or by a coordinator's command, from a backup over the same network. The history of the
//! clients must be linearizable, and every update done once.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_log::{
    Log, LogId, Memory, Options as LogOptions, Recorder as Replicas, Replay, SegmentId, TableId,
    TabletRange, Tombstones,
};
use thunderhead_master::{Options as ShardOptions, Shard};
use thunderhead_net::sim::Link;
use thunderhead_rpc::{Node, Opcode, TaskCaller};
use thunderhead_runtime::tasks::Tasks;
use thunderhead_runtime::{Process, Random};
use thunderhead_simulator::linearizability::{
    self, Action, Condition as Judged, TEXT, Version as Seen,
};
use thunderhead_simulator::{Boot, Options, swarm};
use thunderhead_testkit::{
    BackupState, Cluster, CoordinatorState, History, Ownership, Place, ScriptedCoordinator,
    Weighted, Worker, Workload, serve,
};
use thunderhead_wire::control::{self, Recover, Replicas as Parted, TabletStatus, Tablets, Taken};
use thunderhead_wire::{LeaseId, MasterId, RecoveryId, ServerId, Version};

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

/// A fault of the shard's host.
#[derive(Clone, Copy)]
enum Fault {
    Crash,
    Pause,
    /// Appended bytes become durable late, but a recovery may still find them after a crash.
    Hold,
}

const FAULTS: Weighted<Fault> = Weighted(&[(1, Fault::Crash), (1, Fault::Pause), (2, Fault::Hold)]);

/// The generations of the shard. Each of them is a master, from 1 on.
#[derive(Default)]
struct Generations {
    replicas: RefCell<Vec<Replicas>>,
    coordinators: Rc<RefCell<CoordinatorState>>,
    backups: Rc<RefCell<BackupState>>,
    is_taken: Cell<bool>,
}

impl Generations {
    /// Begins a generation with a new log.
    fn begin(&self, replicas: Replicas) -> MasterId {
        let mut all = self.replicas.borrow_mut();
        all.push(replicas);
        let master = MasterId(all.len() as u64);
        self.ownership(|it| it.heir = Some(master));
        master
    }

    fn ownership<T>(&self, does: impl FnOnce(&mut Ownership) -> T) -> T {
        does(self.coordinators.borrow_mut().ownership.get_or_insert_default())
    }

    /// Puts the remaining replicas of an ended generation on the backup, from where they do not
    /// change any more, and returns them with their place.
    fn segments_left(&self, master: MasterId, at: SocketAddr) -> Vec<Parted> {
        let mut backups = self.backups.borrow_mut();
        let left = backups.replicas(0, master);
        if left.is_empty() {
            let found = self.replicas.borrow()[master.0 as usize - 1].replicas(usize::MAX);
            left.extend(found.into_iter().map(|(segment, replica)| (segment, replica.bytes)));
        }
        let at = vec![(ServerId(1), at)];
        let segments = left.iter().filter(|(_, bytes)| !bytes.is_empty());
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

/// Gives the tablet to the present generation of the shard.
async fn coordinate(
    caller: TaskCaller,
    tasks: Tasks,
    generations: Rc<Generations>,
    shard: SocketAddr,
    backup: SocketAddr,
) {
    let range = TabletRange::whole(TABLE);
    loop {
        tasks.sleep(Duration::from_millis(2)).await;
        let Ownership { owner, heir, .. } = generations.ownership(|it| *it);
        let Some(master) = heir else { continue };
        let timeout = Some(Duration::from_millis(30));
        let Some(owner) = owner else {
            generations.ownership(|it| it.owner = heir);
            continue;
        };
        if owner != master {
            // Without an answer, the shard may still have the tablet.
            generations.is_taken.set(true);
            let segments = generations.segments_left(owner, backup);
            let recover = Recover {
                take_back: false,
                master,
                crashed: owner,
                tablets: vec![Taken { range, since: SegmentId::NONE }],
                recovery: RecoveryId(master.0),
                partition: 0,
                expected: vec![TabletStatus { range, objects: 40, bytes: 1000 }],
                segments,
            };
            let body = control::to_body(&recover);
            let _ = caller.call(shard, Opcode::Recover, body, timeout).await;
        } else if !generations.is_taken.get() {
            let body = control::to_body(&Tablets {
                master,
                tablets: vec![range],
                map_version: 0,
                options: Vec::new(),
            });
            let taken = caller.call(shard, Opcode::TakeTablets, body, timeout).await;
            generations.is_taken.set(taken.is_ok());
        }
    }
}

/// Returns the node of a new generation, which is empty and waits for the coordinator's commands.
fn recovering_node(
    boot: Boot,
    backup: &Backup,
    generations: &Generations,
    coordinator: SocketAddr,
) -> Box<dyn Process> {
    let replicas = Replicas::new();
    let log = new_log(&boot, &replicas);
    let master = generations.begin(replicas.clone());
    *backup.borrow_mut() = replicas;
    let options =
        ShardOptions { backup_timeout: Duration::from_millis(40), ..ShardOptions::default() };
    serve(boot, Shard::in_cluster(log, master, vec![coordinator], options))
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
    serve(boot, Shard::new(log))
}

/// Draws a key and an action.
fn choose(random: &mut Random, seen: Version) -> (u64, Action) {
    let key = random.below(3);
    let condition = match random.below(8) {
        0 => Judged::Absent,
        1 => Judged::Present,
        2 | 3 => Judged::VersionIs(Seen(seen.0)),
        _ => Judged::Always,
    };
    let action = match random.below(10) {
        0..3 => Action::Read,
        3..6 => {
            // Some values are bytes, also of 8 bytes, and some are numbers.
            let text = if random.chance(0.3) { TEXT } else { 0 };
            Action::Write { value: random.below(1 << 48) | text, condition }
        }
        6 => Action::Delete { condition },
        _ => Action::Increment { by: 1 + random.below(1000) },
    };
    (key, action)
}

fn encode(value: u64) -> (Opcode, Vec<u8>) {
    let opcode = if value & TEXT == 0 { Opcode::WriteNumber } else { Opcode::Write };
    (opcode, value.to_le_bytes().to_vec())
}

fn workload(flaw: Flaw) -> Workload {
    Workload {
        table: TABLE,
        operations: 30,
        thinks: Duration::from_millis(5),
        deadline: Duration::from_millis(800),
        timeout: Duration::from_millis(40),
        has_identities: flaw != Flaw::NoIdentities,
        choose,
        encode,
    }
}

/// Runs a seed, and returns its counts, or the judge's violation.
fn run(seed: u64, flaw: Flaw, way: Way) -> Result<(usize, usize), String> {
    let mut random = Random::from_seed(seed);
    let link = swarm::drawn_link(&mut random);
    let mut cluster = Cluster::new(Options { link, ..Options::calm(seed) });
    let backup: Backup = Rc::new(RefCell::new(Replicas::new()));
    let generations = Rc::new(Generations {
        coordinators: Rc::clone(&cluster.coordinators),
        backups: Rc::clone(&cluster.backups),
        ..Generations::default()
    });
    cluster.add_scripted_backup(5000);
    let backups = cluster.address(Place::Backup(0));
    // The simulation assigns addresses in order.
    let coordinator = SocketAddr::from(([10, 0, 0, 3], backups.port()));
    let (own, known) = (Rc::clone(&backup), Rc::clone(&generations));
    cluster.add_server(move |boot| match way {
        Way::Replays => shard_node(boot, &own, flaw),
        Way::Recovers => recovering_node(boot, &own, &known, coordinator),
    });
    let (server, to) = (cluster.host(0), cluster.address(0));
    let own = Rc::clone(&generations);
    cluster.add_coordinator(move |boot| {
        let service = ScriptedCoordinator::new(0, &own.coordinators);
        let mut node = Node::new(boot.world, boot.transport, service);
        node.listen(SocketAddr::new(boot.address, coordinator.port())).unwrap();
        if way == Way::Recovers {
            let (caller, tasks) = (node.task_caller(), node.tasks().clone());
            node.tasks().spawn(coordinate(caller, tasks, Rc::clone(&own), to, backups));
        }
        Box::new(node)
    });
    assert_eq!(cluster.address(Place::Coordinator(0)), coordinator);
    let history = History::of(&cluster.simulation);
    let working = Rc::new(Cell::new(0));
    for _ in 0..random.within(1..4) {
        let (history, working, tasks) = (history.clone(), Rc::clone(&working), random.within(1..4));
        cluster.add_user(move |mut boot| {
            let mut random = boot.world.random.split();
            let clock = boot.world.clock.clone();
            let node = Node::new(boot.world, boot.transport, ());
            for _ in 0..tasks {
                working.set(working.get() + 1);
                let lease = LeaseId(1 + random.below(1 << 60));
                let does = (lease, workload(flaw));
                let worker = Worker::new(&node, &clock, random.split(), to, &history, does);
                let working = Rc::clone(&working);
                node.tasks().spawn(async move {
                    worker.run().await;
                    working.set(working.get() - 1);
                });
            }
            Box::new(node)
        });
    }
    let simulation = &mut cluster.simulation;
    let mut at = Duration::ZERO;
    while at < TROUBLE {
        at += Duration::from_nanos(random.exponential(1e8) as u64 + 1);
        let a_while = Duration::from_micros(random.within(100..100_000));
        let own = Rc::clone(&backup);
        match FAULTS.draw(&mut random) {
            Fault::Crash => {
                simulation.at(at, move |it| it.crash(server));
                simulation.at(at + a_while, move |it| it.start(server));
            }
            Fault::Pause => simulation.at(at, move |it| it.pause(server, a_while)),
            Fault::Hold => {
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
    let reports = std::mem::take(&mut cluster.coordinators.borrow_mut().recovered);
    if let Some(failed) = reports.iter().find(|it| it.outcome.is_err()) {
        return Err(format!("a recovery failed: {failed:?}"));
    }
    linearizability::check(&history.operations()).map_err(|violation| violation.to_string())?;
    Ok((history.answered(), generations.ownership(|it| it.recoveries)))
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
