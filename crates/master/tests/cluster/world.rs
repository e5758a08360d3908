//! The cluster that the scenarios share: two fake coordinators, some fake backups, a real shard,
//! and users.

use crate::cast::{Replicas as Held, *};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_log::{
    Log, LogId, Memory, Options as LogOptions, Recorder, Replicator, SegmentId, TableId,
    TabletRange, Version,
};
use thunderhead_master::{Options as ShardOptions, Shard};
use thunderhead_net::sim::{Link, address};
use thunderhead_rpc::{CallError, Node, Opcode, Service, TaskCaller};
use thunderhead_runtime::Process;
use thunderhead_runtime::tasks::Tasks;
use thunderhead_simulator::{Boot, HostId, Options, Simulation};
use thunderhead_wire::control::{self, Recover, Replicas, ShardStatus, Tablets, Taken};
use thunderhead_wire::operations::{Identity, ObjectHead};
use thunderhead_wire::{Condition, MasterId, Next, RecoveryId, ServerId, Status};
use zerocopy::IntoBytes;

pub(crate) fn shard_options() -> ShardOptions {
    ShardOptions {
        backup_timeout: Duration::from_millis(60),
        recovery_patience: Duration::from_secs(4),
        ..ShardOptions::default()
    }
}

pub(crate) fn new_log(id: u64, bytes: usize, replicator: Box<dyn Replicator>) -> Log {
    // Either form of index.
    let map =
        if id.is_multiple_of(2) { Memory::with_long_references } else { Memory::with_seglets };
    let memory = map(bytes, 4096).unwrap();
    let options = LogOptions { segment_bytes: 32 << 10, ..LogOptions::default() };
    Log::new(&memory, LogId(id), options, replicator).unwrap()
}

pub(crate) fn serve(boot: Boot, service: impl Service + 'static) -> Box<dyn Process> {
    let mut node = Node::new(boot.world, boot.transport, service);
    node.listen(SocketAddr::new(boot.address, PORT)).unwrap();
    Box::new(node)
}

/// Two coordinators, some backups, a shard.
pub(crate) struct Cluster {
    pub(crate) simulation: Simulation,
    pub(crate) truth: Rc<Truth>,
    pub(crate) backups: Vec<(HostId, Held)>,
    pub(crate) manners: Rc<Manners>,
    pub(crate) shard: SocketAddr,
    pub(crate) recorder: Recorder,
    coordinators: Vec<SocketAddr>,
}

impl Cluster {
    pub(crate) fn new(
        seed: u64,
        link: Link,
        options: ShardOptions,
        memory_bytes: usize,
    ) -> Cluster {
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
        let manners = Rc::new(Manners {
            recovery: Cell::new(RecoveryId(1)),
            busy: Cell::new(0),
            asked: RefCell::default(),
        });
        let mut backups = Vec::new();
        for number in 0..3u64 {
            let replicas = Held::default();
            let (own, manners) = (Rc::clone(&replicas), Rc::clone(&manners));
            let host = simulation.add_host(&format!("backup {number}"), move |boot| {
                let piece = 700 + (seed as usize * 37 + number as usize * 911) % 9000;
                let (replicas, manners) = (Rc::clone(&own), Rc::clone(&manners));
                serve(boot, Backup { replicas, manners, piece })
            });
            backups.push((host, replicas));
        }
        let recorder = Recorder::new();
        let shard = SocketAddr::from(([0, 0, 0, 0], PORT));
        let mut cluster =
            Cluster { simulation, truth, backups, manners, shard, recorder, coordinators };
        let own = cluster.recorder.clone();
        cluster.shard = cluster.add_shard(MASTER, options, memory_bytes, own);
        cluster
    }

    pub(crate) fn add_shard(
        &mut self,
        master: MasterId,
        options: ShardOptions,
        memory_bytes: usize,
        recorder: Recorder,
    ) -> SocketAddr {
        let log = move || new_log(master.0 + 68, memory_bytes, Box::new(recorder.clone()));
        self.add_shard_with(master, options, log)
    }

    /// Adds a shard with a log from the given function.
    pub(crate) fn add_shard_with(
        &mut self,
        master: MasterId,
        options: ShardOptions,
        log: impl Fn() -> Log + 'static,
    ) -> SocketAddr {
        let coordinators = self.coordinators.clone();
        let shard = self.simulation.add_host(&format!("shard of {master}"), move |mut boot| {
            let log = log();
            let mut shard = Shard::in_cluster(log, master, coordinators.clone(), options);
            assert_eq!(shard.start_cleaners(&mut *boot.world.workers, 2).unwrap(), 2);
            serve(boot, shard)
        });
        address(self.simulation.address(shard), PORT)
    }

    pub(crate) fn backup_addresses(&self) -> Vec<(ServerId, SocketAddr)> {
        let address = |(number, (host, _)): (usize, &(HostId, Held))| {
            (ServerId(number as u64 + 1), address(self.simulation.address(*host), PORT))
        };
        self.backups.iter().enumerate().map(address).collect()
    }

    /// Returns the command to rebuild the tablets of a log that has these segments.
    pub(crate) fn recover(&self, recovery: RecoveryId, segments: &[SegmentId]) -> Recover {
        let segments = segments.iter().map(|segment| {
            let mut at = self.backup_addresses();
            let mut has = self.backups.iter().map(|it| it.1.borrow().contains_key(segment));
            at.retain(|_| has.next() == Some(true));
            let places = at.len().max(1);
            at.rotate_left(segment.0 as usize % places);
            Replicas { closed: false, epoch: Default::default(), segment: *segment, at }
        });
        let tablets = vec![Taken { range: TabletRange::whole(OLD), since: SegmentId::NONE }];
        Recover {
            take_back: false,
            master: MASTER,
            crashed: GONE,
            recovery,
            partition: 0,
            tablets,
            expected: Vec::new(),
            segments: segments.collect(),
        }
    }

    /// Runs a task on a host of its own, to its end.
    pub(crate) fn drive<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        at_most: Duration,
        task: impl Fn(User) -> F + 'static,
    ) -> T {
        let (result, shard) = (Rc::new(RefCell::new(None)), self.shard);
        let own = Rc::clone(&result);
        self.simulation.add_host("user", move |boot| {
            let node = Node::new(boot.world, boot.transport, ());
            let user = User { caller: node.task_caller(), tasks: node.tasks().clone(), shard };
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
pub(crate) struct User {
    pub(crate) caller: TaskCaller,
    pub(crate) tasks: Tasks,
    pub(crate) shard: SocketAddr,
}

impl User {
    pub(crate) async fn call(&self, opcode: Opcode, body: Vec<u8>) -> Result<Vec<u8>, CallError> {
        self.caller.call(self.shard, opcode, body, Some(Duration::from_millis(300))).await
    }

    /// Repeats a request until its answer is neither an error of the network nor a request to wait.
    pub(crate) async fn insist(&self, opcode: Opcode, body: Vec<u8>) -> Result<Vec<u8>, Status> {
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

    pub(crate) async fn take(&self, tablets: Vec<TabletRange>) -> Result<(), Status> {
        let body = control::to_body(&Tablets { master: MASTER, tablets, map_version: 0 });
        self.insist(Opcode::TakeTablets, body).await.map(drop)
    }

    pub(crate) async fn status(&self) -> ShardStatus {
        let status = self.insist(Opcode::ShardStatus, b"{}".to_vec()).await.unwrap();
        control::of_body(&status).unwrap()
    }

    pub(crate) async fn read(
        &self,
        table: TableId,
        key: &[u8],
    ) -> Result<(Version, Vec<u8>), Status> {
        let head = ObjectHead::new(table, key.len(), Condition::Always, 0);
        let reply = self.insist(Opcode::Read, [head.as_bytes(), key].concat()).await?;
        let version = u64::from_le_bytes(reply[..8].try_into().unwrap());
        Ok((Version(version), reply[8..].to_vec()))
    }

    pub(crate) async fn write(
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

pub(crate) fn update(identity: Identity, table: TableId, key: &[u8], argument: &[u8]) -> Vec<u8> {
    let head = ObjectHead::new(table, key.len(), Condition::Always, 0);
    [identity.as_bytes(), head.as_bytes(), key, argument].concat()
}

// Tablets.
