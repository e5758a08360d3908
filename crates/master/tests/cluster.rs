//! Long because the scenarios share one made-up cluster.
//! A shard in its cluster, in the simulator: coordinators and backups that are made up here, and a
//! network that loses, repeats and delays. Tablets are given and taken, leases end, and the tablets
//! of a master that is gone are rebuilt from replicas as a recorder has them: after any prefix of what
//! it was told, with copies damaged, missing, cut short, and backups that do not answer.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_log::inspect::{Entry, SegmentReader};
use thunderhead_log::{
    CleanerOptions, Completion, Condition as When, Damage, Log, LogId, Memory,
    Options as LogOptions, Recorder, Replica, Replicator, SegmentId, SegmentKind, TableId,
    TabletRange, Version,
};
use thunderhead_master::{Options as ShardOptions, Shard};
use thunderhead_net::sim::{Link, address};
use thunderhead_rpc::{CallError, Calling, Context, Node, Opcode, Request, Service};
use thunderhead_runtime::tasks::Tasks;
use thunderhead_runtime::{Process, Random};
use thunderhead_simulator::{Boot, HostId, Options, Simulation, swarm};
use thunderhead_wire::control::{
    self, CheckLeases, Empty, Inventory, LeasesChecked, OfMaster, Recover, Recovered, ReplicaInfo,
    ShardStatus, Tablets, Taken,
};
use thunderhead_wire::operations::{Identity, ObjectHead, PartHead};
use thunderhead_wire::replication::{PieceHead, ReadHead};
use thunderhead_wire::{Condition, Epoch, KeyHash, MasterId, Next, ServerId, Status};
use zerocopy::{FromBytes, IntoBytes};

const PORT: u16 = 7100;
const OLD: TableId = TableId(1);
const OTHER: TableId = TableId(2);
const GONE: MasterId = MasterId(3);
const MASTER: MasterId = MasterId(9);
const KEYS: u64 = 40;

/// What the coordinators know.
#[derive(Default)]
struct Truth {
    leader: Cell<usize>,
    ended: RefCell<BTreeSet<u64>>,
    lease_questions: Cell<u64>,
    recovered: RefCell<Vec<Recovered>>,
}

struct Coordinator(usize, Rc<Truth>);

impl Service for Coordinator {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        let Coordinator(number, truth) = self;
        if truth.leader.get() != *number {
            return context.refuse(reply_to, Status::NotLeader, 0, &[]);
        }
        match opcode {
            Opcode::CheckLeases => {
                truth.lease_questions.set(truth.lease_questions.get() + 1);
                let CheckLeases { leases } = control::of_body(body).unwrap();
                let over = truth.ended.borrow();
                let ended = leases.into_iter().filter(|lease| over.contains(lease)).collect();
                context.reply(reply_to, &[&control::to_body(&LeasesChecked { ended })]);
            }
            Opcode::Recovered => {
                truth.recovered.borrow_mut().push(control::of_body(body).unwrap());
                context.reply(reply_to, &[&control::to_body(&Empty {})]);
            }
            _ => context.refuse(reply_to, Status::UnknownOpcode, 0, &[]),
        }
    }
}

/// The replicas of one backup.
type Replicas = Rc<RefCell<BTreeMap<SegmentId, (ReplicaInfo, Vec<u8>)>>>;

struct Backup {
    replicas: Replicas,
    /// It answers with no more than this at once.
    piece: usize,
    reads: Rc<Cell<u64>>,
}

impl Service for Backup {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        let replicas = self.replicas.borrow();
        match opcode {
            Opcode::Inventory => {
                let OfMaster { master } = control::of_body(body).unwrap();
                assert_eq!(master, GONE);
                let replicas = replicas.values().map(|(info, _)| *info).collect();
                context.reply(reply_to, &[&control::to_body(&Inventory { replicas })]);
            }
            Opcode::ReadReplica => {
                self.reads.set(self.reads.get() + 1);
                let head = ReadHead::ref_from_bytes(body).unwrap();
                let Some((_, bytes)) = replicas.get(&head.segment()) else {
                    return context.refuse(reply_to, Status::Refused, 0, &[]);
                };
                let from = head.offset() as usize;
                let until = (from + (head.bytes() as usize).min(self.piece)).min(bytes.len());
                let piece = PieceHead::new(bytes.len() as u32);
                context.reply(reply_to, &[piece.as_bytes(), &bytes[from..until]]);
            }
            _ => context.refuse(reply_to, Status::UnknownOpcode, 0, &[]),
        }
    }
}

fn shard_options() -> ShardOptions {
    ShardOptions {
        backup_timeout: Duration::from_millis(60),
        recovery_grace: Duration::from_millis(200),
        recovery_patience: Duration::from_secs(4),
        ..ShardOptions::default()
    }
}

fn new_log(id: u64, bytes: usize, replicator: Box<dyn Replicator>) -> Log {
    let memory = Memory::with_seglets(bytes, 4096).unwrap();
    let options = LogOptions { segment_bytes: 32 << 10, ..LogOptions::default() };
    Log::new(&memory, LogId(id), options, replicator).unwrap()
}

fn serve(boot: Boot, service: impl Service + 'static) -> Box<dyn Process> {
    let mut node = Node::new(boot.world, boot.transport, service);
    node.listen(SocketAddr::new(boot.address, PORT)).unwrap();
    Box::new(node)
}

/// Two coordinators, some backups, a shard.
struct Cluster {
    simulation: Simulation,
    truth: Rc<Truth>,
    backups: Vec<(HostId, Replicas)>,
    reads: Rc<Cell<u64>>,
    shard: SocketAddr,
    recorder: Recorder,
}

impl Cluster {
    fn new(seed: u64, link: Link, options: ShardOptions, memory_bytes: usize) -> Cluster {
        let mut simulation = Simulation::new(Options { link, ..Options::calm(seed) });
        let truth = Rc::new(Truth::default());
        let mut coordinators = Vec::new();
        for number in 0..2 {
            let truth = Rc::clone(&truth);
            let host = simulation.add_host(&format!("coordinator {number}"), move |boot| {
                serve(boot, Coordinator(number, Rc::clone(&truth)))
            });
            coordinators.push(address(simulation.address(host), PORT));
        }
        let reads = Rc::new(Cell::new(0));
        let mut backups = Vec::new();
        for number in 0..3u64 {
            let replicas = Replicas::default();
            let (own, reads) = (Rc::clone(&replicas), Rc::clone(&reads));
            let host = simulation.add_host(&format!("backup {number}"), move |boot| {
                let piece = 700 + (seed as usize * 37 + number as usize * 911) % 9000;
                serve(boot, Backup { replicas: Rc::clone(&own), piece, reads: Rc::clone(&reads) })
            });
            backups.push((host, replicas));
        }
        let recorder = Recorder::new();
        let own = recorder.clone();
        let shard = simulation.add_host("shard", move |mut boot| {
            let log = new_log(77, memory_bytes, Box::new(own.clone()));
            let mut shard = Shard::in_cluster(log, MASTER, coordinators.clone(), options);
            assert_eq!(shard.start_cleaners(&mut *boot.world.workers, 2).unwrap(), 2);
            serve(boot, shard)
        });
        let shard = address(simulation.address(shard), PORT);
        Cluster { simulation, truth, backups, reads, shard, recorder }
    }

    fn backup_addresses(&self) -> Vec<(ServerId, SocketAddr)> {
        let address = |(number, (host, _)): (usize, &(HostId, Replicas))| {
            (ServerId(number as u64 + 1), address(self.simulation.address(*host), PORT))
        };
        self.backups.iter().enumerate().map(address).collect()
    }

    fn recover(&self, epochs: Vec<(SegmentId, Epoch)>) -> Recover {
        let tablets = vec![Taken { range: TabletRange::whole(OLD), since: SegmentId::NONE }];
        Recover { master: MASTER, crashed: GONE, tablets, epochs, backups: self.backup_addresses() }
    }

    /// Runs a task on a host of its own, to its end.
    fn drive<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        at_most: Duration,
        task: impl Fn(User) -> F + 'static,
    ) -> T {
        let (result, shard) = (Rc::new(RefCell::new(None)), self.shard);
        let own = Rc::clone(&result);
        self.simulation.add_host("user", move |boot| {
            let node = Node::new(boot.world, boot.transport, ());
            let user = User { calling: node.calling(), tasks: node.tasks().clone(), shard };
            let (task, own) = (task(user), Rc::clone(&own));
            node.tasks().spawn(async move {
                let done = task.await;
                *own.borrow_mut() = Some(done);
            });
            Box::new(node)
        });
        let until = self.simulation.now() + at_most;
        while result.borrow().is_none() && self.simulation.now() < until {
            self.simulation.run_for(Duration::from_millis(20));
        }
        result.take().expect("the user's task never came to its end")
    }
}

#[derive(Clone)]
struct User {
    calling: Calling,
    tasks: Tasks,
    shard: SocketAddr,
}

impl User {
    async fn call(&self, opcode: Opcode, body: Vec<u8>) -> Result<Vec<u8>, CallError> {
        self.calling.call(self.shard, opcode, body, Some(Duration::from_millis(300))).await
    }

    /// Asks until there is an answer that is not due to the network, or to come back later.
    async fn insist(&self, opcode: Opcode, body: Vec<u8>) -> Result<Vec<u8>, Status> {
        loop {
            match self.call(opcode, body.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(CallError::Refused { status, .. }) if status.next() != Next::Wait => {
                    return Err(status);
                }
                Err(_) => self.tasks.sleep(Duration::from_millis(1)).await,
            }
        }
    }

    async fn take(&self, tablets: Vec<TabletRange>) -> Result<(), Status> {
        let body = control::to_body(&Tablets { master: MASTER, tablets });
        self.insist(Opcode::TakeTablets, body).await.map(drop)
    }

    async fn status(&self) -> ShardStatus {
        let status = self.insist(Opcode::ShardStatus, b"{}".to_vec()).await.unwrap();
        control::of_body(&status).unwrap()
    }

    async fn read(&self, table: TableId, key: &[u8]) -> Result<(Version, Vec<u8>), Status> {
        let head = ObjectHead::new(table, key.len(), Condition::Always, 0);
        let reply = self.insist(Opcode::Read, [head.as_bytes(), key].concat()).await?;
        let version = u64::from_le_bytes(reply[..8].try_into().unwrap());
        Ok((Version(version), reply[8..].to_vec()))
    }

    async fn write(
        &self,
        identity: Identity,
        table: TableId,
        key: &[u8],
        value: &[u8],
    ) -> Result<u64, Status> {
        let reply = self.insist(Opcode::Write, update(identity, table, key, value)).await?;
        Ok(u64::from_le_bytes(reply[..8].try_into().unwrap()))
    }
}

fn update(identity: Identity, table: TableId, key: &[u8], argument: &[u8]) -> Vec<u8> {
    let head = ObjectHead::new(table, key.len(), Condition::Always, 0);
    [identity.as_bytes(), head.as_bytes(), key, argument].concat()
}

// Tablets.

#[test]
fn tablets_are_taken_and_dropped_as_often_as_it_is_said() {
    let mut cluster = Cluster::new(1, Link::default(), shard_options(), 4 << 20);
    let recorder = cluster.recorder.clone();
    recorder.hold(true);
    let own = recorder.clone();
    cluster.simulation.at(Duration::from_millis(120), move |_| own.hold(false));
    let held = recorder.clone();
    cluster.drive(Duration::from_secs(60), move |user| {
        let held = held.clone();
        async move {
            let whole = TabletRange::whole(OTHER);
            let part = TabletRange { first: KeyHash(5), last: KeyHash(9), ..whole };
            let rest = TabletRange { first: KeyHash(10), ..whole };
            let first = TabletRange { last: KeyHash(4), ..whole };
            user.take(vec![whole]).await.unwrap();
            assert!(held.events() > 0);
            user.take(vec![whole, TabletRange::whole(OLD)]).await.unwrap();
            assert_eq!(user.take(vec![part]).await, Err(Status::BadRange));
            let stranger = Tablets { master: GONE, tablets: vec![whole] };
            let stranger = control::to_body(&stranger);
            for opcode in [Opcode::TakeTablets, Opcode::DropTablets] {
                assert_eq!(user.insist(opcode, stranger.clone()).await, Err(Status::Deposed));
                let nonsense = user.insist(opcode, b"{".to_vec()).await;
                assert_eq!(nonsense, Err(Status::Malformed));
            }
            let identity = Identity::new(4, 1, 1);
            user.write(identity, OTHER, b"k", b"v").await.unwrap();
            let status = user.status().await;
            assert_eq!((status.tablets.len(), status.objects, status.records), (2, 1, 1));
            assert!(status.master == MASTER && status.live_bytes > 0 && status.updates > 0);
            assert!(status.used_bytes > 0 && status.used_bytes < status.memory_bytes);
            let drop = async |tablets: Vec<TabletRange>| {
                let body = control::to_body(&Tablets { master: MASTER, tablets });
                user.insist(Opcode::DropTablets, body).await
            };
            // The coordinator has split it on paper; a part alone stays.
            assert_eq!(drop(vec![part, rest]).await, Err(Status::BadRange));
            assert!(user.read(OTHER, b"k").await.is_ok());
            drop(vec![rest, first, part]).await.unwrap();
            drop(vec![rest, first, part]).await.unwrap();
            assert_eq!(user.read(OTHER, b"k").await, Err(Status::Moved));
            let status = user.status().await;
            assert_eq!((status.tablets.len(), status.objects, status.records), (1, 0, 0));
            user.take(vec![whole]).await.unwrap();
            assert_eq!(user.read(OTHER, b"k").await, Err(Status::NotFound));
        }
    });
}

#[test]
fn a_tablet_is_not_taken_before_the_log_is_durable() {
    let mut cluster = Cluster::new(2, Link::default(), shard_options(), 4 << 20);
    cluster.recorder.hold(true);
    let opened = cluster.drive(Duration::from_secs(10), |user| async move {
        let tablets = vec![TabletRange::whole(OTHER)];
        let body = control::to_body(&Tablets { master: MASTER, tablets });
        // The log was made while nothing was held back: something that is not durable yet.
        user.insist(Opcode::TakeTablets, body.clone()).await.unwrap();
        let written = update(Identity::NONE, OTHER, b"k", b"v");
        let unanswered = user.call(Opcode::Write, written).await;
        assert_eq!(unanswered, Err(CallError::Late));
        user.call(Opcode::TakeTablets, body).await
    });
    assert_eq!(opened, Err(CallError::Late));
}

// Leases.

#[test]
fn an_update_waits_until_its_lease_is_known_and_is_refused_when_it_is_over() {
    for leader in 0..2 {
        let mut cluster = Cluster::new(3, Link::default(), shard_options(), 4 << 20);
        cluster.truth.leader.set(leader);
        cluster.truth.ended.borrow_mut().insert(66);
        let truth = Rc::clone(&cluster.truth);
        cluster.drive(Duration::from_secs(300), move |user| {
            let truth = Rc::clone(&truth);
            async move {
                user.take(vec![TabletRange::whole(OTHER)]).await.unwrap();
                let body = update(Identity::new(5, 1, 1), OTHER, b"k", b"v");
                let first = user.call(Opcode::Write, body.clone()).await;
                let busy = |it: &Result<Vec<u8>, CallError>| {
                    matches!(it, Err(CallError::Refused { status: Status::Busy, hint: 1.., .. }))
                };
                assert!(busy(&first), "{first:?}");
                let version = user.insist(Opcode::Write, body.clone()).await.unwrap();
                assert_eq!(user.insist(Opcode::Write, body).await.unwrap(), version);
                for sequence in 2..20 {
                    let identity = Identity::new(5, sequence, 1);
                    user.write(identity, OTHER, b"k", b"w").await.unwrap();
                }
                assert_eq!(truth.lease_questions.get(), 1, "what is known is not asked again");
                let over = user.write(Identity::new(66, 1, 1), OTHER, b"k", b"v").await;
                assert_eq!(over, Err(Status::LeaseEnded));
                let part = Identity::new(66, 0, 1).as_bytes().to_vec();
                assert_eq!(user.insist(Opcode::UpdateMany, part).await, Err(Status::LeaseEnded));
                assert_eq!(user.status().await.records, 19);
                // It ends; within a minute and a bit that is known.
                truth.ended.borrow_mut().insert(5);
                user.tasks.sleep(Duration::from_secs(65)).await;
                assert_eq!(user.status().await.records, 0, "its records are forgotten");
                for sequence in [1, 19, 20] {
                    let late = Identity::new(5, sequence, 1);
                    let late = user.write(late, OTHER, b"k", b"late").await;
                    assert_eq!(late, Err(Status::LeaseEnded));
                }
                assert_eq!(user.read(OTHER, b"k").await.unwrap().1, b"w");
            }
        });
    }
}

#[test]
fn what_is_remembered_of_clients_is_bounded() {
    let options = ShardOptions {
        clients_max: 3,
        records_max: 10,
        records_per_client_max: 4,
        ..shard_options()
    };
    let mut cluster = Cluster::new(4, Link::default(), options, 4 << 20);
    cluster.drive(Duration::from_secs(300), |user| async move {
        user.take(vec![TabletRange::whole(OTHER)]).await.unwrap();
        let busy = async |lease, sequence, first| {
            let body = update(Identity::new(lease, sequence, first), OTHER, b"k", b"v");
            let mut last = user.call(Opcode::Write, body.clone()).await;
            for _ in 0..5 {
                user.tasks.sleep(Duration::from_millis(5)).await;
                last = user.call(Opcode::Write, body.clone()).await;
            }
            matches!(last, Err(CallError::Refused { status: Status::Busy, hint: 1.., .. }))
        };
        for sequence in 1..5 {
            assert!(!busy(1, sequence, 1).await && !busy(2, sequence, 1).await);
        }
        assert!(busy(1, 5, 1).await, "too much of one client");
        assert!(!busy(1, 4, 1).await, "but what was done is answered");
        assert!(!busy(3, 1, 1).await && !busy(3, 2, 1).await);
        assert!(busy(3, 3, 1).await, "too much of all");
        assert!(busy(4, 1, 1).await, "too many clients");
        assert!(!busy(1, 5, 5).await, "it has its answers, so there is room");
        assert_eq!(user.status().await.records, 8);
    });
}

// Recovery.

type Model = BTreeMap<u64, (Version, Vec<u8>)>;

/// A log's history: what it held after each operation, and how many events there were then.
struct Past {
    recorder: Recorder,
    steps: Vec<(usize, Model)>,
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The outcome of an update as a shard records it.
fn record(version: Version) -> Vec<u8> {
    [1u64.to_le_bytes().as_slice(), PartHead::new(0, version, 0).as_bytes()].concat()
}

fn past(random: &mut Random, operations: u64) -> Past {
    let recorder = Recorder::new();
    let memory = Memory::with_seglets(256 << 10, 1024).unwrap();
    let cleaner = CleanerOptions {
        free_fraction_low: 1.0,
        free_share_low: 1.0,
        segments_per_pass: 2,
        delete_seglets: 2,
        ..CleanerOptions::default()
    };
    let options = LogOptions { segment_bytes: 8 << 10, cleaner, ..LogOptions::default() };
    let replicator = Box::new(recorder.clone());
    let mut log = Log::new(&memory, LogId(5), options, replicator).unwrap();
    log.create_tablet(TabletRange::whole(OLD)).unwrap();
    let mut cleaner = log.cleaner().unwrap();
    let mut model = Model::new();
    let mut steps = vec![(recorder.events(), model.clone())];
    for number in 0..operations {
        let which = random.below(KEYS);
        let value = vec![number as u8; random.below(900) as usize];
        match random.below(8) {
            0 => {
                if log.delete(OLD, &key(which), When::Always).is_ok() {
                    model.remove(&which);
                }
            }
            1 => {
                let existing = model.get(&which).map(|(version, _)| *version);
                let version = existing.unwrap_or(log.safe_version()).next();
                let result = record(version);
                let completion = Completion { lease: 8, sequence: number, result: &result };
                let written =
                    log.write_completed(OLD, &key(which), &value, When::Always, completion);
                if let Ok(written) = written {
                    assert_eq!(written.version, version);
                    model.insert(which, (written.version, value));
                }
            }
            _ => {
                if let Ok(written) = log.write(OLD, &key(which), &value) {
                    model.insert(which, (written.version, value));
                }
            }
        }
        cleaner.step();
        log.turn();
        steps.push((recorder.events(), model.clone()));
    }
    std::mem::forget(log); // Its last turn would go on.
    Past { recorder, steps }
}

impl Past {
    /// What a recovery may find after a crash behind so many events.
    fn allowed(&self, events: usize) -> Vec<&Model> {
        let certain = self.steps.iter().rposition(|(at, _)| *at <= events);
        let from = certain.unwrap_or(0);
        self.steps.iter().skip(from).take(2).map(|(_, model)| model).collect()
    }
}

/// The newest open head's digest, as a recovery should find it.
fn digest(replicas: &BTreeMap<SegmentId, Replica>) -> Option<Vec<SegmentId>> {
    let heads = replicas.values().rev().filter(|it| it.open && it.kind != SegmentKind::Survivor);
    heads.into_iter().find_map(|replica| {
        let entries = SegmentReader::new(&replica.bytes).ok()?;
        let digests = entries.filter_map(|entry| match entry {
            Ok((_, Entry::Digest(digest))) => Some(digest),
            _ => None,
        });
        digests.last()
    })
}

fn put(cluster: &Cluster, backup: usize, segment: SegmentId, replica: &Replica, epoch: u64) {
    let info = ReplicaInfo {
        segment,
        epoch: Epoch(epoch),
        length: replica.bytes.len() as u32,
        closed: !replica.open,
    };
    let replicas = &cluster.backups[backup].1;
    replicas.borrow_mut().insert(segment, (info, replica.bytes.clone()));
}

fn flip(cluster: &Cluster, backup: usize, segment: SegmentId, random: &mut Random) {
    let mut replicas = cluster.backups[backup].1.borrow_mut();
    let (_, bytes) = replicas.get_mut(&segment).unwrap();
    if !bytes.is_empty() {
        let at = random.below(bytes.len() as u64) as usize;
        // Not the bit that says that an entry is dead, which no checksum covers.
        bytes[at] ^= 1 << random.below(5);
    }
}

/// Has the shard recover; what the coordinator was told, and what is found then.
fn recovered(cluster: &mut Cluster, task: Recover) -> (Recovered, Result<Model, Status>) {
    let truth = Rc::clone(&cluster.truth);
    cluster.drive(Duration::from_secs(100), move |user| {
        let (truth, body) = (Rc::clone(&truth), control::to_body(&task));
        async move {
            user.insist(Opcode::Recover, body.clone()).await.unwrap();
            while truth.recovered.borrow().is_empty() {
                user.tasks.sleep(Duration::from_millis(10)).await;
                if user.tasks.now().0 % 3 == 0 {
                    user.insist(Opcode::Recover, body.clone()).await.unwrap();
                }
            }
            let outcome = truth.recovered.borrow()[0].clone();
            while user.status().await.recovering.is_some() {
                user.tasks.sleep(Duration::from_millis(1)).await;
            }
            let mut found = Model::new();
            for number in 0..KEYS {
                match user.read(OLD, &key(number)).await {
                    Ok(object) => drop(found.insert(number, object)),
                    Err(Status::NotFound) => {}
                    Err(status) => return (outcome, Err(status)),
                }
            }
            (outcome, Ok(found))
        }
    })
}

#[test]
fn whatever_was_durable_is_rebuilt_after_a_crash_behind_any_event() {
    let (mut damaged, mut silent, mut refused, mut cut) = (0, 0, 0, 0);
    for seed in 0..250 {
        let mut random = Random::from_seed(seed);
        let past = past(&mut random, 150);
        let link = swarm::drawn_link(&mut random);
        let mut cluster = Cluster::new(seed, link, shard_options(), 4 << 20);
        let events = random.below(past.recorder.events() as u64 + 1) as usize;
        let replicas = past.recorder.replicas(events);
        let digest = digest(&replicas);
        let lost = random.chance(0.15).then(|| {
            let named = digest.clone().unwrap_or_default();
            named.get(random.below(named.len().max(1) as u64) as usize).copied()
        });
        let lost = lost.flatten();
        // Where the head before it was not closed yet, that one is as good: nothing came behind it.
        let mut left = replicas.clone();
        left.retain(|id, _| Some(*id) != lost);
        let is_complete =
            self::digest(&left).is_some_and(|it| it.iter().all(|id| left.contains_key(id)));
        let is_silent = random.chance(0.3);
        // What the last event brought may have come to one of the copies in part only.
        let before = past.recorder.replicas(events.saturating_sub(1));
        let is_cut = random.chance(0.4);
        let from = events - usize::from(is_cut && events > 0);
        for (segment, replica) in replicas.iter().filter(|(id, _)| Some(**id) != lost) {
            // One copy where nobody answers, two where everybody should: one of those may be bad.
            let first = random.below(2) as usize;
            put(&cluster, first, *segment, replica, 0);
            let mut other = replica.clone();
            if is_cut && replica.open {
                let had = before.get(segment).map_or(0, |it| it.bytes.len());
                other
                    .bytes
                    .truncate(random.within(had as u64..replica.bytes.len() as u64 + 1) as usize);
                cut += usize::from(other.bytes.len() < replica.bytes.len());
            }
            put(&cluster, 2, *segment, &other, 0);
            if !is_silent && random.chance(0.3) {
                damaged += 1;
                let which = if random.chance(0.5) { first } else { 2 };
                flip(&cluster, which, *segment, &mut random);
            }
        }
        if is_silent {
            silent += 1;
            cluster.simulation.crash(cluster.backups[2].0);
        }
        let task = cluster.recover(Vec::new());
        let (told, found) = recovered(&mut cluster, task);
        assert_eq!((told.crashed, told.by), (GONE, MASTER));
        match told.outcome {
            Ok(taken) => {
                assert!(is_complete, "seed {seed}: {lost:?} is nowhere");
                assert_eq!(taken.len(), 1);
                let found = found.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
                let allowed = [past.allowed(from), past.allowed(events)].concat();
                assert!(allowed.contains(&&found), "seed {seed}: after {events} events");
            }
            Err(why) => {
                refused += 1;
                assert!(!is_complete, "seed {seed}: {why}");
                let named =
                    why.contains("backup") || lost.is_some_and(|it| why.contains(&it.to_string()));
                if !is_silent && self::digest(&left).is_some() {
                    assert!(why.contains("are on no backup"), "seed {seed}: {why}");
                }
                assert!(named && why.contains("master 3"), "seed {seed}: {why}");
                assert_eq!(found, Err(Status::Moved), "seed {seed}");
            }
        }
    }
    assert!(damaged > 100 && silent > 20 && refused > 5, "{damaged} {silent} {refused}");
    assert!(cut > 30, "{cut}");
}

#[test]
fn a_segment_that_is_damaged_everywhere_is_named_and_nothing_is_left() {
    let mut random = Random::from_seed(1);
    let past = past(&mut random, 150);
    let replicas = past.recorder.replicas(usize::MAX);
    let victim = digest(&replicas).unwrap()[0];
    // Also where all copies have the very same damage.
    for same in [false, true] {
        let mut cluster = Cluster::new(5, Link::default(), shard_options(), 4 << 20);
        for (segment, replica) in &replicas {
            for backup in 0..2 {
                put(&cluster, backup, *segment, replica, 0);
            }
        }
        for backup in 0..2 {
            let mut replicas = cluster.backups[backup].1.borrow_mut();
            let (_, bytes) = replicas.get_mut(&victim).unwrap();
            let at = bytes.len() / 2 + if same { 0 } else { backup * 100 };
            bytes[at] ^= 4;
        }
        let task = cluster.recover(Vec::new());
        let (told, found) = recovered(&mut cluster, task.clone());
        let why = told.outcome.unwrap_err();
        assert!(why.contains(&format!("{victim} is damaged in every copy")), "{why}");
        assert!(why.contains("server 1") && why.contains("server 2"), "{why}");
        assert_eq!(found, Err(Status::Moved));
        cluster.drive(Duration::from_secs(9), |user| async move {
            while user.status().await.records > 0 {
                user.tasks.sleep(Duration::from_millis(1)).await;
            }
        });
        // A good copy turns up, and it is tried again.
        put(&cluster, 2, victim, &replicas[&victim], 0);
        cluster.truth.recovered.borrow_mut().clear();
        let (told, found) = recovered(&mut cluster, task);
        assert!(told.outcome.is_ok(), "{told:?}");
        assert_eq!(found.as_ref(), Ok(&past.steps.last().unwrap().1));
        let status =
            cluster.drive(Duration::from_secs(9), |user| async move { user.status().await });
        assert!(status.remarks.iter().any(|it| it.contains("damaged")), "{status:?}");
        assert!(status.records > 0);
    }
}

#[test]
fn an_open_copy_does_not_stand_in_for_closed_ones_that_are_damaged() {
    let mut random = Random::from_seed(4);
    let past = past(&mut random, 150);
    let replicas = past.recorder.replicas(usize::MAX);
    let victim = digest(&replicas).unwrap()[0];
    let mut cluster = Cluster::new(12, Link::default(), shard_options(), 4 << 20);
    for (segment, replica) in &replicas {
        put(&cluster, 0, *segment, replica, 0);
    }
    let mut early = replicas[&victim].clone();
    early.open = true;
    let entries = SegmentReader::new(&early.bytes).unwrap().filter_map(Result::ok);
    let boundary = entries.map(|(at, _)| at as usize).find(|at| *at > 200).unwrap();
    early.bytes.truncate(boundary);
    put(&cluster, 1, victim, &early, 0);
    cluster.backups[0].1.borrow_mut().get_mut(&victim).unwrap().1[600] ^= 4;
    let task = cluster.recover(Vec::new());
    let (told, _) = recovered(&mut cluster, task);
    let why = told.outcome.unwrap_err();
    assert!(why.contains(&format!("{victim} is damaged in every copy: server 1")), "{why}");
}

#[test]
fn an_open_copy_that_only_looks_torn_gives_way_to_an_intact_one() {
    let mut random = Random::from_seed(5);
    let past = past(&mut random, 150);
    let replicas = past.recorder.replicas(usize::MAX);
    let head = *replicas.iter().rev().find(|(_, it)| it.open).unwrap().0;
    // A bit of the last entry's length turned over.
    let whole = &replicas[&head].bytes;
    let bits =
        (1..whole.len() - 90).flat_map(|back| (0..8).map(move |bit| (whole.len() - back, bit)));
    let torn = bits.map(|(at, bit)| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        bytes
    });
    let looks_torn = |bytes: &Vec<u8>| {
        let mut damage = SegmentReader::new(bytes).unwrap().filter_map(Result::err);
        let first = damage.next();
        matches!(first, Some(Damage::Torn { .. })) && damage.next().is_none()
    };
    let torn = torn.into_iter().find(looks_torn).expect("a bit that does");
    for good in [0, 1] {
        let mut cluster = Cluster::new(13, Link::default(), shard_options(), 4 << 20);
        for (segment, replica) in &replicas {
            put(&cluster, 0, *segment, replica, 0);
            put(&cluster, 1, *segment, replica, 0);
        }
        cluster.backups[1 - good].1.borrow_mut().get_mut(&head).unwrap().1 = torn.clone();
        let task = cluster.recover(Vec::new());
        let (_, found) = recovered(&mut cluster, task);
        assert_eq!(found.as_ref(), Ok(&past.steps.last().unwrap().1));
    }
}

#[test]
fn tablets_of_one_master_may_come_in_several_recoveries() {
    let mut random = Random::from_seed(6);
    let past = past(&mut random, 150);
    let mut cluster = Cluster::new(14, Link::default(), shard_options(), 4 << 20);
    for (segment, replica) in &past.recorder.replicas(usize::MAX) {
        put(&cluster, 0, *segment, replica, 0);
    }
    let whole = TabletRange::whole(OLD);
    let ranges = [
        TabletRange { last: KeyHash(u64::MAX / 2), ..whole },
        TabletRange { first: KeyHash(u64::MAX / 2 + 1), ..whole },
    ];
    let tasks = ranges.map(|range| Recover {
        tablets: vec![Taken { range, since: SegmentId::NONE }],
        ..cluster.recover(Vec::new())
    });
    let truth = Rc::clone(&cluster.truth);
    cluster.drive(Duration::from_secs(30), move |user| {
        let (tasks, truth) = (tasks.clone(), Rc::clone(&truth));
        async move {
            for task in tasks.iter().chain(&tasks) {
                user.insist(Opcode::Recover, control::to_body(task)).await.unwrap();
            }
            // Both at once: one waits for the other, and neither can be had or dropped meanwhile.
            for opcode in [Opcode::TakeTablets, Opcode::DropTablets] {
                let tablets = Tablets { master: MASTER, tablets: vec![whole] };
                let refused = user.call(opcode, control::to_body(&tablets)).await;
                let status = Status::InProgress;
                let refused =
                    matches!(refused, Err(CallError::Refused { status: it, .. }) if it == status);
                assert!(refused, "{opcode}");
            }
            while truth.recovered.borrow().len() < 2 || user.status().await.recovering.is_some() {
                user.tasks.sleep(Duration::from_millis(1)).await;
            }
            for task in &tasks {
                user.insist(Opcode::Recover, control::to_body(task)).await.unwrap();
            }
            user.tasks.sleep(Duration::from_millis(500)).await;
            assert_eq!(truth.recovered.borrow().len(), 2, "what is done is not done again");
        }
    });
    let found =
        cluster.drive(Duration::from_secs(30), |user| async move { user.status().await.objects });
    assert_eq!(found, past.steps.last().unwrap().1.len() as u64);
}

#[test]
fn nothing_is_told_or_served_before_what_was_rebuilt_is_durable() {
    let mut random = Random::from_seed(3);
    let past = past(&mut random, 100);
    let mut cluster = Cluster::new(11, Link::default(), shard_options(), 4 << 20);
    for (segment, replica) in &past.recorder.replicas(usize::MAX) {
        put(&cluster, 0, *segment, replica, 0);
    }
    cluster.recorder.hold(true);
    let body = control::to_body(&cluster.recover(Vec::new()));
    cluster.drive(Duration::from_secs(9), move |user| {
        let body = body.clone();
        async move { user.insist(Opcode::Recover, body).await.unwrap() }
    });
    cluster.simulation.run_for(Duration::from_secs(5));
    assert!(cluster.truth.recovered.borrow().is_empty());
    let read = async |user: User| user.read(OLD, &key(0)).await;
    assert_eq!(cluster.drive(Duration::from_secs(9), read), Err(Status::Moved));
    cluster.recorder.hold(false);
    cluster.simulation.run_for(Duration::from_secs(1));
    assert!(cluster.truth.recovered.borrow()[0].outcome.is_ok());
    assert_ne!(cluster.drive(Duration::from_secs(9), read), Err(Status::Moved));
}

#[test]
fn a_lease_that_ended_while_its_master_was_gone_is_found_to_be_over() {
    let mut random = Random::from_seed(7);
    let past = past(&mut random, 150);
    let mut cluster = Cluster::new(15, Link::default(), shard_options(), 4 << 20);
    for (segment, replica) in &past.recorder.replicas(usize::MAX) {
        put(&cluster, 0, *segment, replica, 0);
    }
    cluster.truth.ended.borrow_mut().insert(8);
    let task = cluster.recover(Vec::new());
    let (_, found) = recovered(&mut cluster, task);
    assert_eq!(found.as_ref(), Ok(&past.steps.last().unwrap().1));
    cluster.drive(Duration::from_secs(9), |user| async move {
        assert!(user.status().await.records > 5);
        let late = user.write(Identity::new(8, 1000, 1), OLD, &key(0), b"late").await;
        assert_eq!(late, Err(Status::LeaseEnded));
        user.tasks.sleep(Duration::from_millis(10)).await;
        assert_eq!(user.status().await.records, 0);
    });
}

#[test]
fn an_open_head_of_an_old_epoch_does_not_count() {
    let mut random = Random::from_seed(2);
    let past = past(&mut random, 100);
    let replicas = past.recorder.replicas(usize::MAX);
    let head =
        *replicas.iter().rev().find(|(_, it)| it.open && it.kind == SegmentKind::Head).unwrap().0;
    for current in [false, true] {
        let mut cluster = Cluster::new(6, Link::default(), shard_options(), 4 << 20);
        for (segment, replica) in &replicas {
            let mut replica = replica.clone();
            if *segment == head {
                // It missed what came after the epoch was raised.
                let length = replica.bytes.len();
                put(&cluster, 1, *segment, &replica, 4);
                replica.bytes.truncate(length - 1);
                replica.bytes.extend_from_slice(&[1; 900]);
            }
            put(&cluster, 0, *segment, &replica, 3);
        }
        if !current {
            cluster.backups[1].1.borrow_mut().clear();
        }
        let task = cluster.recover(vec![(head, Epoch(4))]);
        let (told, found) = recovered(&mut cluster, task);
        if current {
            assert_eq!(found, Ok(past.steps.last().unwrap().1.clone()));
        } else {
            let why = told.outcome.unwrap_err();
            assert!(why.contains("cannot be proved complete"), "{why}");
        }
    }
}

#[test]
fn backups_without_a_replica_and_backups_that_are_not_there_are_told_apart() {
    let mut cluster = Cluster::new(7, Link::default(), shard_options(), 4 << 20);
    let task = cluster.recover(Vec::new());
    let (told, _) = recovered(&mut cluster, task.clone());
    let why = told.outcome.unwrap_err();
    assert!(why.contains("none of 3 backups has a replica"), "{why}");
    cluster.truth.recovered.borrow_mut().clear();
    cluster.simulation.crash(cluster.backups[1].0);
    let (told, _) = recovered(&mut cluster, task);
    let why = told.outcome.unwrap_err();
    assert!(why.contains("no answer came from server 2 at 10.0.0."), "{why}");
}

#[test]
fn others_are_served_while_tablets_are_rebuilt_and_updates_stay_done_once() {
    // Much to replay, so that it takes many turns.
    let recorder = Recorder::new();
    let mut log = new_log(6, 4 << 20, Box::new(recorder.clone()));
    log.create_tablet(TabletRange::whole(OLD)).unwrap();
    let objects = 15_000u64;
    for number in 0..objects {
        let version = log.safe_version().next();
        let result = record(version);
        let completion = Completion { lease: 8, sequence: number + 1, result: &result };
        log.write_completed(OLD, &key(number), &[1; 30], When::Absent, completion).unwrap();
    }
    log.turn();
    let mut cluster = Cluster::new(8, Link::default(), shard_options(), 8 << 20);
    for (segment, replica) in recorder.replicas(usize::MAX) {
        put(&cluster, segment.0 as usize % 3, segment, &replica, 0);
    }
    let (task, truth) = (cluster.recover(Vec::new()), Rc::clone(&cluster.truth));
    let before = cluster.simulation.turns();
    let during = cluster.drive(Duration::from_secs(100), move |user| {
        let (task, truth) = (task.clone(), Rc::clone(&truth));
        async move {
            user.take(vec![TabletRange::whole(OTHER)]).await.unwrap();
            user.write(Identity::NONE, OTHER, b"k", b"0").await.unwrap();
            user.insist(Opcode::Recover, control::to_body(&task)).await.unwrap();
            let mut during = 0;
            loop {
                let number = during.to_string();
                user.write(Identity::NONE, OTHER, b"k", number.as_bytes()).await.unwrap();
                assert_eq!(user.read(OTHER, b"k").await.unwrap().1, number.as_bytes());
                let status = user.status().await;
                let Some((done, of)) = status.recovering else { break };
                if truth.recovered.borrow().is_empty() {
                    assert_eq!(user.read(OLD, &key(1)).await, Err(Status::Moved));
                    during += u64::from(done > 0 && done < of);
                }
            }
            // What was done before the crash is answered; what is new waits for the coordinator.
            let identity = Identity::new(8, 1, 1);
            let (version, _) = user.read(OLD, &key(0)).await.unwrap();
            let again = user.call(Opcode::Write, update(identity, OLD, &key(0), b"x")).await;
            assert_eq!(again.unwrap(), version.0.to_le_bytes());
            assert_eq!(truth.lease_questions.get(), 0);
            let new = Identity::new(8, objects + 1, objects + 1);
            user.write(new, OLD, &key(0), b"new").await.unwrap();
            assert_eq!(truth.lease_questions.get(), 1);
            let status = user.status().await;
            assert_eq!(status.objects, objects + 1);
            // What the client has its answers of is forgotten, over some turns.
            while user.status().await.records > 2 {
                user.tasks.sleep(Duration::from_micros(50)).await;
            }
            let late = user.write(Identity::new(8, 5, 5), OLD, &key(0), b"late").await;
            assert_eq!(late, Err(Status::Stale));
            during
        }
    });
    assert!(during > 5, "others were served {during} times");
    let turns = cluster.simulation.turns() - before;
    assert!(turns > objects / 64, "{turns} turns");
    assert!(cluster.reads.get() > 20);
}

#[test]
fn a_shard_without_room_for_the_tablets_says_so() {
    let recorder = Recorder::new();
    let mut log = new_log(6, 8 << 20, Box::new(recorder.clone()));
    log.create_tablet(TabletRange::whole(OLD)).unwrap();
    for number in 0..4000u64 {
        log.write(OLD, &key(number), &[1; 1000]).unwrap();
    }
    log.turn();
    let mut cluster = Cluster::new(9, Link::default(), shard_options(), 1 << 20);
    for (segment, replica) in recorder.replicas(usize::MAX) {
        put(&cluster, 0, segment, &replica, 0);
    }
    let task = cluster.recover(Vec::new());
    let (told, found) = recovered(&mut cluster, task);
    let why = told.outcome.unwrap_err();
    assert!(why.contains("cannot be rebuilt on this shard"), "{why}");
    assert_eq!(found, Err(Status::Moved));
    // What was half built gives its memory back to others.
    cluster.drive(Duration::from_secs(100), |user| async move {
        user.take(vec![TabletRange::whole(OTHER)]).await.unwrap();
        for number in 0..300u64 {
            let written = user.write(Identity::NONE, OTHER, &key(number), &[2; 1000]).await;
            written.unwrap();
        }
    });
}

#[test]
fn cleaners_beside_the_shard_keep_memory_free() {
    let mut cluster = Cluster::new(10, Link::default(), shard_options(), 1 << 20);
    cluster.drive(Duration::from_secs(100), |user| async move {
        user.take(vec![TabletRange::whole(OTHER)]).await.unwrap();
        for number in 0..6000u64 {
            let written = user.write(Identity::NONE, OTHER, &key(number % 500), &[2; 1000]).await;
            written.unwrap();
        }
        assert_eq!(user.status().await.objects, 500);
    });
}
