//! The cluster that the scenarios share: two scripted coordinators, three scripted backups, and
//! real shards. Of the first shard's log the test has a record.

use std::ops::{Deref, DerefMut};
use std::time::Duration;
use thunderhead_log::{
    Log, LogId, Memory, Options as LogOptions, Recorder, Replicator, SegmentId, TabletRange,
};
use thunderhead_master::{Options as ShardOptions, Shard};
use thunderhead_net::sim::Link;
use thunderhead_simulator::Options;
use thunderhead_testkit::{Cluster, Place, serve};
use thunderhead_wire::control::{Recover, Replicas, Taken};
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{LeaseId, MasterId, RecoveryId, Sequence, ServerId, TableId};

pub(crate) use thunderhead_testkit::{User, update};

pub(crate) const OLD: TableId = TableId(1);
pub(crate) const OTHER: TableId = TableId(2);
pub(crate) const GONE: MasterId = MasterId(3);
pub(crate) const MASTER: MasterId = MasterId(9);
pub(crate) const SECOND: MasterId = MasterId(10);
pub(crate) const KEYS: u64 = 40;

const BACKUPS: usize = 3;

pub(crate) fn shard_options() -> ShardOptions {
    ShardOptions {
        backup_timeout: Duration::from_millis(60),
        recovery_patience: Duration::from_secs(4),
        ..ShardOptions::default()
    }
}

/// Returns the identity of an update whose client has all answers before `first`.
pub(crate) fn identity(lease: LeaseId, sequence: u64, first: u64) -> Identity {
    Identity::new(lease, Sequence(sequence), Sequence(first))
}

pub(crate) fn new_log(id: u64, bytes: usize, replicator: Box<dyn Replicator>) -> Log {
    // Either form of index.
    let map =
        if id.is_multiple_of(2) { Memory::with_long_references } else { Memory::with_seglets };
    let memory = map(bytes, 4096).unwrap();
    let options = LogOptions { segment_bytes: 32 << 10, ..LogOptions::default() };
    Log::new(&memory, LogId(id), options, replicator).unwrap()
}

/// Two coordinators, three backups and a shard, to which a test may add more shards.
pub(crate) struct ShardCluster {
    cluster: Cluster,
    /// The record of the first shard's log.
    pub(crate) recorder: Recorder,
}

impl Deref for ShardCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for ShardCluster {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}

impl ShardCluster {
    pub(crate) fn new(
        seed: u64,
        link: Link,
        options: ShardOptions,
        memory_bytes: usize,
    ) -> ShardCluster {
        let mut cluster = Cluster::new(Options { link, ..Options::calm(seed) });
        for _ in 0..2 {
            cluster.add_scripted_coordinator();
        }
        cluster.backups.borrow_mut().recovery = Some(RecoveryId(1));
        for number in 0..BACKUPS {
            cluster.add_scripted_backup(700 + (seed as usize * 37 + number * 911) % 9000);
        }
        let recorder = Recorder::new();
        let mut cluster = ShardCluster { cluster, recorder: recorder.clone() };
        cluster.add_shard(MASTER, options, memory_bytes, recorder);
        cluster
    }

    /// Adds a shard, and returns its number among the servers.
    pub(crate) fn add_shard(
        &mut self,
        master: MasterId,
        options: ShardOptions,
        memory_bytes: usize,
        recorder: Recorder,
    ) -> usize {
        let log = move || new_log(master.0 + 68, memory_bytes, Box::new(recorder.clone()));
        self.add_shard_with(master, options, log)
    }

    /// Adds a shard with a log from the given function.
    pub(crate) fn add_shard_with(
        &mut self,
        master: MasterId,
        options: ShardOptions,
        log: impl Fn() -> Log + 'static,
    ) -> usize {
        let coordinators = self.addresses(Place::Coordinator);
        self.add_server(move |mut boot| {
            let log = log();
            let mut shard = Shard::in_cluster(log, master, coordinators.clone(), options);
            assert_eq!(shard.start_cleaners(&mut *boot.world.workers, 2).unwrap(), 2);
            serve(boot, shard)
        })
    }

    pub(crate) fn backup_addresses(&self) -> Vec<(ServerId, std::net::SocketAddr)> {
        (1..).map(ServerId).zip(self.addresses(Place::Backup)).collect()
    }

    /// Returns the command to rebuild the tablets of a log that has these segments.
    pub(crate) fn recover(&self, recovery: RecoveryId, segments: &[SegmentId]) -> Recover {
        let backups = self.backups.borrow();
        let segments = segments.iter().map(|segment| {
            let mut at = self.backup_addresses();
            let mut has = (0..BACKUPS).map(|it| backups.has(it, GONE, *segment));
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
}
