//! The replication manager on a real log, with backups that crash and restart, answers that are
//! lost, delayed, duplicated and reordered, and full disks. The master may crash at any moment.
//! Then for **any** set of remaining backups, their replicas are either visibly incomplete, or make
//! up a log with every durable write. When the manager has no work left, all but any R - 1 backups
//! are enough. And a master that was declared crashed without its knowledge does not answer reads
//! for longer than its lease.

use crate::recovery::{
    Found, TABLE, choose, drawn_message_bytes, open_with_data, options, rebuild,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_backup::{Durability, Identity, Local, Options as StoreOptions, Service, Store};
use thunderhead_log::{
    Cleaner, Log, LogId, LogPosition, Memory, SegmentId, TabletRange, Usage, Version,
};
use thunderhead_master::Replication;
use thunderhead_master::replication::{
    AwaitedAnswers, ReplicationStatistics, Request, Settings, To,
};
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::sim::clock::{SimClock, TrueTime};
use thunderhead_runtime::sim::disk::{DiskModel, SimDisk};
use thunderhead_runtime::sim::memory::SimMemories;
use thunderhead_runtime::sim::workers::SimWorkers;
use thunderhead_runtime::{Random, Time, World};
use thunderhead_wire::control::{
    BackupInfo, READ_LEASE, RaiseEpoch, ServerInfo, ServerList, ServerState, ShardInfo, of_body,
};
use thunderhead_wire::{ClusterId, Condition, Epoch, Generation, MasterId, ServerId};

const MASTER: MasterId = MasterId(9);
const OWN: ServerId = ServerId(100);

/// A server with a backup, running or not.
struct Server {
    id: ServerId,
    disk: SimDisk,
    memories: SimMemories,
    random: Random,
    frames: u32,
    life: Option<(Service, SimWorkers)>,
    generation: Generation,
    /// Its state and generation in the coordinator's list.
    listed: (ServerState, Generation),
}

impl Server {
    fn new(id: u64, frames: u32, random: &mut Random) -> Server {
        let disk = SimDisk::new(DiskModel::default(), random.split());
        let (memories, random) = (SimMemories::default(), random.split());
        let mut server = Server {
            id: ServerId(id),
            disk,
            memories,
            random,
            frames,
            life: None,
            generation: Generation(0),
            listed: (ServerState::Up, Generation(1)),
        };
        server.start();
        server
    }

    fn start(&mut self) {
        let workers = SimWorkers::default();
        let disk = self.disk.clone();
        let clock = SimClock::new(TrueTime::default(), Time(0), 0);
        let mut world = World {
            clock: Clock::Sim(clock.into()),
            random: self.random.split(),
            files: Box::new(self.disk.files()),
            memories: Box::new(self.memories.clone()),
            workers: Box::new(workers.starter(move || Box::new(disk.files()))),
            alarm: Alarm::sim(),
        };
        let identity = Identity { cluster: ClusterId(1), server: self.id };
        let options = StoreOptions {
            segment_bytes: 32 << 10,
            buffers: 6,
            durability: Durability::Replicated,
            ..StoreOptions::new(identity, self.frames)
        };
        let (store, _) = Store::start(&mut world, options).unwrap();
        self.generation.0 += 1;
        let mut service = Service::new(store, 0);
        service.enlisted(self.generation, &ServerList::default());
        self.life = Some((service, workers));
    }

    /// Lets the disk do its work.
    fn work(&mut self, now: Time) {
        let Some((service, workers)) = &mut self.life else { return };
        for _ in 0..4 {
            service.store().turn(now + Duration::from_secs(1), &mut |_| {});
            for worker in 0..workers.count() {
                while workers.is_ringing(worker) {
                    workers.step(worker);
                }
            }
        }
    }

    /// The replicas of the master, as a recovery would find them now.
    fn found(&mut self) -> Vec<Found> {
        let was_down = self.life.is_none();
        if was_down {
            self.start();
        }
        let (service, workers) = self.life.as_mut().unwrap();
        let mut found = Vec::new();
        for info in service.inventory(MASTER).replicas {
            let id = thunderhead_backup::ReplicaId { master: MASTER, segment: info.segment };
            service.store().read(id).unwrap();
            for worker in 0..workers.count() {
                while workers.is_ringing(worker) {
                    workers.step(worker);
                }
            }
            service.store().turn(Time(0), &mut |event| {
                if let thunderhead_backup::Event::Read(_, bytes) = event {
                    let bytes = bytes.unwrap().bytes().to_vec();
                    let (segment, epoch, closed) = (info.segment, info.epoch, info.closed);
                    found.push(Found { segment, epoch, closed, bytes });
                }
            });
        }
        if was_down {
            self.life = None;
        }
        found
    }
}

/// The updates of a key, in order: the position from which each counts, and the version and value
/// that it left, if any.
type History = Vec<(LogPosition, Option<(Version, Vec<u8>)>)>;

struct Cluster {
    random: Random,
    now: Time,
    replicas: u32,
    min_replicas: u32,
    log: Log,
    cleaner: Cleaner,
    replication: Replication,
    servers: Vec<Server>,
    version: u64,
    epochs: BTreeMap<SegmentId, Epoch>,
    coordinator_up: bool,
    sent: VecDeque<Request>,
    answers: VecDeque<(u64, Result<Vec<u8>, CallError>)>,
    /// Messages that will arrive a second time.
    strays: Vec<(ServerId, Generation, Vec<u8>)>,
    keys: BTreeMap<u64, History>,
    checked: u32,
    incomplete: u32,
    given_up: u32,
    /// Servers that the master cannot reach.
    cut: Vec<ServerId>,
    /// There are at most as many servers as replicas, they end and restart all the time, and
    /// messages are short.
    is_restless: bool,
}

impl Cluster {
    fn new(seed: u64) -> Cluster {
        let mut random = Random::from_seed(seed);
        let replicas = random.within(1..4) as u32;
        // There may be too few servers for all replicas, or just enough.
        let count = match random.below(3) {
            0 => random.within(1..u64::from(replicas) + 1),
            _ => u64::from(replicas) + random.below(4),
        };
        Cluster::with(random, replicas, count)
    }

    fn with(mut random: Random, replicas: u32, count: u64) -> Cluster {
        let min_replicas = random.within(1..u64::from(replicas).min(count) + 1) as u32;
        let is_restless = count <= u64::from(replicas) && random.chance(0.7);
        let message_bytes = match is_restless {
            true => random.magnitude(300..4 << 10) as u32,
            false => drawn_message_bytes(&mut random),
        };
        let settings = Settings {
            server: OWN,
            host: "own".into(),
            rack: String::new(),
            master: MASTER,
            replicas,
            min_replicas,
            self_backup: false,
            segment_bytes: 32 << 10,
            message_bytes,
        };
        let (replication, replicator) = Replication::new(settings, random.split());
        // The memory is so small that the cleaners must work, or so large that they need not.
        let bytes = if random.chance(0.7) { 448 << 10 } else { 3 << 20 };
        // Either form of index.
        let map = if bytes < 1 << 20 { Memory::with_seglets } else { Memory::with_long_references };
        let memory = map(bytes, 4096).unwrap();
        let mut log = Log::new(&memory, LogId(5), options(), replicator).unwrap();
        log.create_tablet(TabletRange::whole(TABLE)).unwrap();
        let cleaner = log.cleaner().unwrap();
        let frames = if random.chance(0.2) { 40 } else { 400 };
        let servers = (1..=count).map(|id| Server::new(id, frames, &mut random)).collect();
        let mut cluster = Cluster {
            now: Time(1_000_000),
            replicas,
            min_replicas,
            log,
            cleaner,
            replication,
            servers,
            version: 0,
            epochs: BTreeMap::new(),
            coordinator_up: true,
            sent: VecDeque::new(),
            answers: VecDeque::new(),
            strays: Vec::new(),
            keys: BTreeMap::new(),
            checked: 0,
            incomplete: 0,
            given_up: 0,
            cut: Vec::new(),
            is_restless,
            random,
        };
        cluster.tell();
        cluster
    }

    /// Sends the list of servers to all.
    fn tell(&mut self) {
        self.version += 1;
        let address: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let own = ServerInfo {
            lineages: Vec::new(),
            server: OWN,
            generation: Generation(1),
            state: ServerState::Up,
            host: "own".into(),
            rack: String::new(),
            shards: vec![ShardInfo { master: MASTER, address }],
            backup: None,
        };
        let others = self.servers.iter().map(|server| ServerInfo {
            lineages: Vec::new(),
            server: server.id,
            generation: server.listed.1,
            state: server.listed.0,
            host: format!("host {}", server.id.0),
            rack: String::new(),
            shards: Vec::new(),
            backup: Some(BackupInfo { address, read_bytes_per_second: 0, place: 0 }),
        });
        let servers = std::iter::once(own).chain(others).collect();
        let list = ServerList {
            version: self.version,
            min_replicas: Some(self.min_replicas),
            servers,
            ..ServerList::default()
        };
        for server in &mut self.servers {
            if let Some((service, _)) = &mut server.life {
                service.learn(&list);
            }
        }
        self.replication.learn(&list);
    }

    fn write(&mut self) {
        let key = self.random.below(60);
        let name = key.to_be_bytes();
        let history = self.keys.entry(key).or_default();
        if self.random.chance(0.2) {
            if let Ok(Some(_)) = self.log.delete(TABLE, &name, Condition::Always) {
                history.push((self.log.appended(), None));
            }
            return;
        }
        let length = self.random.below(6000) as usize;
        let value = vec![self.random.number() as u8; length];
        if let Ok(written) = self.log.write(TABLE, &name, &value) {
            history.push((written.position, Some((written.version, value))));
        }
    }

    fn turn(&mut self) {
        for _ in 0..self.random.within(1..9) {
            self.log.turn();
            let all = self.random.below(9) as usize;
            let beyond = self.random.below(all as u64 + 1) as usize;
            self.replication.turn(self.now, &mut self.log, |_| AwaitedAnswers { all, beyond });
            let mut any = false;
            // Some messages are delayed for long, until their contents may not be needed any more.
            while self.random.below(8) > 0
                && let Some(request) = self.replication.next_request()
            {
                self.sent.push_back(request);
                any = true;
            }
            self.log.turn();
            if !any {
                break;
            }
        }
    }

    /// Delivers one of the requests, or loses it; an earlier one may arrive a second time.
    fn deliver(&mut self, calm: bool) {
        if !calm && !self.strays.is_empty() && self.random.chance(0.1) {
            let at = self.random.below(self.strays.len() as u64) as usize;
            let (server, generation, body) = self.strays.swap_remove(at);
            let server = self.servers.iter_mut().find(|it| it.id == server).unwrap();
            if let Some((service, _)) = &mut server.life {
                // A message for a former generation may reach a later one at the same address.
                let answer = service.local(&[&body]);
                let is_meant = server.generation == generation;
                assert!(is_meant || matches!(answer, Local::Now(Err(_))), "for another life");
            }
        }
        if self.sent.is_empty() {
            return;
        }
        let at = self.random.below(self.sent.len() as u64) as usize;
        let Request { number, to, opcode, body } = self.sent.remove(at).unwrap();
        let fails = !calm && self.random.chance(0.1);
        let arrives = !fails || self.random.chance(0.5);
        let outcome = match to {
            To::Coordinator if !self.coordinator_up => Err(CallError::Late),
            To::Coordinator if opcode == Opcode::ConfirmMaster => Ok(b"{}".to_vec()),
            To::Coordinator => {
                assert_eq!(opcode, Opcode::RaiseEpoch);
                let raise: RaiseEpoch = of_body(&body).unwrap();
                if arrives {
                    let known = self.epochs.entry(raise.segment).or_default();
                    *known = raise.epoch.max(*known);
                }
                Ok(b"{}".to_vec())
            }
            To::Backup(server, _) if self.cut.contains(&server) => Err(CallError::Late),
            To::Backup(server, _) => {
                let server = self.servers.iter_mut().find(|it| it.id == server).unwrap();
                match &mut server.life {
                    None => Err(CallError::Broken),
                    Some(_) if !arrives => {
                        self.strays.push((server.id, server.generation, body.clone()));
                        Ok(Vec::new())
                    }
                    Some((service, _)) => {
                        if !calm && self.random.chance(0.1) {
                            self.strays.push((server.id, server.generation, body.clone()));
                        }
                        match service.local(&[&body]) {
                            Local::Now(Ok(answer)) => Ok(answer),
                            Local::Now(Err(status)) => {
                                Err(CallError::Refused { status, hint: 0, detail: 0 })
                            }
                            Local::Later(_) => panic!("replicated is acknowledged at once"),
                        }
                    }
                }
            }
        };
        self.answers.push_back((number, if fails { Err(CallError::Late) } else { outcome }));
    }

    fn answer(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        let at = self.random.below(self.answers.len() as u64) as usize;
        let (number, outcome) = self.answers.remove(at).unwrap();
        let outcome = outcome.as_deref().map_err(|error| *error);
        self.replication.answered(self.now, number, outcome);
        if self.random.chance(0.05) {
            self.replication.answered(self.now, number, outcome);
        }
    }

    /// Crashes or restarts a server, or only reports that.
    fn trouble(&mut self) {
        let at = self.random.below(self.servers.len() as u64) as usize;
        let server = &mut self.servers[at];
        match self.random.below(5) {
            0 => server.life = None,
            1 => server.listed.0 = ServerState::Down,
            2 if server.life.is_none() => server.start(),
            3 => {
                server.life = None;
                server.start();
            }
            _ => self.coordinator_up = !self.coordinator_up,
        }
        if self.random.chance(0.1) {
            let most = u64::from(self.replicas).min(self.servers.len() as u64);
            self.min_replicas = self.random.within(1..most + 1) as u32;
        }
        if self.random.chance(0.6) {
            let server = &mut self.servers[at];
            let state = if server.life.is_some() { ServerState::Up } else { ServerState::Down };
            server.listed = (state, server.generation);
            self.tell();
        }
    }

    /// Checks that each open head that a recovery may use has every durable byte, because
    /// possibly no other backup answers. No head before the durable position may count as
    /// open.
    fn check_open_heads(&self) {
        let durable = self.replication.status().durable;
        for server in &self.servers {
            let Some((service, _)) = &server.life else { continue };
            for replica in service.inventory(MASTER).replicas {
                let noted = self.epochs.get(&replica.segment).copied().unwrap_or_default();
                if replica.closed || replica.epoch < noted {
                    continue;
                }
                let end = LogPosition { segment: replica.segment, offset: replica.length };
                assert!(end >= durable, "{}: {replica:?}, durable at {durable:?}", server.id);
            }
        }
    }

    /// Checks the replicas as if the master were gone and some backups hidden.
    fn check(&mut self, hidden: &[usize], must_be_complete: bool) {
        let mut found = Vec::new();
        for (number, server) in self.servers.iter_mut().enumerate() {
            if !hidden.contains(&number) {
                found.extend(server.found());
            }
        }
        self.checked += 1;
        let open = open_with_data(&found, &self.epochs);
        assert!(open.len() <= 1, "only one head that is open has data: {open:?}");
        let segments = match choose(&found, &self.epochs) {
            Ok(segments) => segments,
            Err(why) => {
                assert!(!must_be_complete, "{why}, without {hidden:?}");
                self.incomplete += 1;
                return;
            }
        };
        let durable = self.log.durable();
        let rebuilt = rebuild(&segments);
        for (key, history) in &self.keys {
            let object = rebuilt.read(TABLE, &key.to_be_bytes()).unwrap();
            let object = object.map(|it| (it.version(), it.value().to_vec()));
            let acknowledged = history.iter().rposition(|(position, _)| *position <= durable);
            let possible = &history[acknowledged.unwrap_or(0)..];
            let is_old = acknowledged.is_none() && object.is_none();
            assert!(
                is_old || possible.iter().any(|(_, left)| *left == object),
                "key {key}: what was durable at {durable:?} is gone, without {hidden:?}; found {:?}, \
                 wanted one of {:?}; the log was {:?}; epochs {:?}",
                object.map(|it| (it.0, it.1.len())),
                possible
                    .iter()
                    .map(|(at, it)| (at, it.as_ref().map(|it| it.0)))
                    .collect::<Vec<_>>(),
                segments.iter().map(|it| (it.segment.0, it.closed, it.epoch.0)).collect::<Vec<_>>(),
                self.epochs,
            );
        }
    }

    /// Declares the master crashed without its knowledge. Backups are fenced, and their replicas
    /// are examined. If they make up a complete log, other masters will write to the master's
    /// tablets. So it must not answer reads for longer than its lease in any case, also if some
    /// backups still accept it.
    fn give_up(&mut self) {
        self.coordinator_up = false;
        let count = self.random.below(self.servers.len() as u64) as usize;
        let hidden = self.some(count);
        let mut found = Vec::new();
        for (number, server) in self.servers.iter_mut().enumerate() {
            if !hidden.contains(&number) {
                if server.life.is_none() {
                    server.start();
                }
                server.life.as_mut().unwrap().0.fence(MASTER);
                found.extend(server.found());
            }
        }
        let until = self.now + READ_LEASE;
        let is_complete = choose(&found, &self.epochs).is_ok();
        let begun = self.log.durable() > LogPosition::default();
        if !is_complete || !begun {
            return;
        }
        self.given_up += 1;
        // A backup that the master cannot reach cannot refuse it as deposed.
        if self.random.chance(0.7) {
            let fenced = self.servers.iter().zip(0..).filter(|(_, at)| !hidden.contains(at));
            self.cut = fenced.map(|(server, _)| server.id).collect();
        }
        for _ in 0..400 {
            self.now = self.now + Duration::from_micros(self.random.below(5000));
            match self.random.below(10) {
                0..2 => self.write(),
                2..5 => self.turn(),
                5..7 => self.deliver(false),
                7..9 => self.answer(),
                _ => {
                    let at = self.random.below(self.servers.len() as u64) as usize;
                    let server = &mut self.servers[at];
                    if self.random.chance(0.1) {
                        server.life = None;
                    } else if server.life.is_none() {
                        server.start();
                    }
                }
            }
            let reads = self.replication.status().reads_until;
            assert!(reads <= until, "reads until {reads:?}, the lease ends at {until:?}");
        }
    }

    fn some(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.servers.len()).collect();
        (0..count.min(all.len()))
            .map(|_| all.swap_remove(self.random.below(all.len() as u64) as usize))
            .collect()
    }

    /// Ends or restarts a server, and sends the list to all. So open segments go on with waived
    /// places, and places are filled.
    fn come_or_go(&mut self) {
        let down = self.servers.iter().position(|server| server.life.is_none());
        let at = down.unwrap_or_else(|| self.random.below(self.servers.len() as u64) as usize);
        let server = &mut self.servers[at];
        let state = match server.life.take() {
            Some(_) => ServerState::Down,
            None => {
                server.start();
                ServerState::Up
            }
        };
        server.listed = (state, server.generation);
        self.tell();
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_micros(self.random.below(3000));
        if self.is_restless && self.random.chance(0.05) {
            self.come_or_go();
        }
        match self.random.below(100) {
            0..25 => self.write(),
            25..45 => self.turn(),
            45..65 => self.deliver(false),
            65..85 => self.answer(),
            85..91 => {
                self.cleaner.step();
            }
            91..95 => {
                let now = self.now;
                self.servers.iter_mut().for_each(|server| server.work(now));
            }
            95 => self.trouble(),
            96 => {
                let count = self.random.below(self.servers.len() as u64) as usize;
                let hidden = self.some(count);
                self.check(&hidden, false);
                // No disk is lost here, so all durable bytes are there, even if the only replica is
                // made anew on the only backup.
                let begun = self.log.durable() > LogPosition::default();
                self.check(&[], begun);
            }
            _ => {
                for _ in 0..self.random.below(24) {
                    self.write();
                }
            }
        }
    }

    /// Returns the number of replicas that each segment can have.
    fn possible(&self) -> usize {
        self.servers.len().min(self.replicas as usize)
    }

    /// Ends all faults. Then everything becomes durable, on R replicas or on all servers.
    fn heal(&mut self) {
        self.coordinator_up = true;
        for server in &mut self.servers {
            if server.life.is_none() {
                server.start();
            }
            server.listed = (ServerState::Up, server.generation);
        }
        self.tell();
        for _ in 0..20_000 {
            self.now = self.now + Duration::from_millis(5);
            self.turn();
            while !self.sent.is_empty() {
                self.deliver(true);
            }
            while !self.answers.is_empty() {
                self.answer();
            }
            let now = self.now;
            self.servers.iter_mut().for_each(|server| server.work(now));
            self.turn();
            let statistics = self.replication.statistics();
            if self.sent.is_empty()
                && self
                    .replication
                    .at_risk()
                    .is_none_or(|it| it.replicas as usize == self.possible())
                && (statistics.segments_short == 0 || self.possible() < self.replicas as usize)
                && self.log.durable() == self.log.appended()
            {
                return;
            }
        }
        panic!(
            "it does not heal: {:?}, {:?}",
            self.replication.remarks(),
            self.replication.statistics()
        );
    }
}

fn run(seed: u64, steps: u32) -> (u32, u32, u32, ReplicationStatistics, Usage) {
    let mut cluster = Cluster::new(seed);
    let lives = cluster.random.below(3);
    for life in 0..3 {
        for _ in 0..steps {
            cluster.step();
            cluster.check_open_heads();
        }
        if life == lives && cluster.random.chance(0.7) {
            cluster.give_up();
            break;
        }
        let is_tight = cluster.servers[0].frames < 100;
        if is_tight {
            cluster.check(&[], false);
            break; // It may be that there is no room.
        }
        cluster.heal();
        let hidden = cluster.some(cluster.possible() - 1);
        cluster.check(&hidden, true);
    }
    let Cluster { checked, incomplete, given_up, replication, log, .. } = cluster;
    (checked, incomplete, given_up, replication.statistics(), log.usage())
}

#[test]
fn durable_bytes_are_found_again_after_any_faults_of_backups() {
    let cases = std::env::var("CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(60);
    let first = std::env::var("FIRST").ok().and_then(|it| it.parse().ok()).unwrap_or(0);
    let (mut checked, mut incomplete, mut copies, mut epochs) = (0, 0, 0, 0);
    let (mut compactions, mut passes, mut given_up) = (0, 0, 0);
    for seed in first..first + cases {
        let outcome = std::panic::catch_unwind(|| run(seed, 500));
        let Ok((all, not, gone, statistics, usage)) = outcome else { panic!("seed {seed}") };
        given_up += gone;
        compactions += usage.compactions;
        passes += usage.passes;
        checked += all;
        incomplete += not;
        copies += statistics.copies;
        epochs += statistics.epochs_raised;
    }
    assert!(compactions > 0 && passes > 0, "{compactions} {passes}");
    assert!(given_up > 0, "{given_up}");
    assert!(checked > 4 * incomplete / 3 && copies > 0 && epochs > 0, "{checked} {incomplete}");
}

/// The rule also holds if the new replica is on the same backup, because there is no other.
#[test]
fn the_only_replica_of_a_head_is_kept_by_a_restarted_backup_until_another_has_it() {
    let mut restarts = 0;
    for seed in 0..80 {
        let mut cluster = Cluster::with(Random::from_seed(seed), 1, 1 + seed % 3);
        for _ in 0..400 {
            cluster.now = cluster.now + Duration::from_micros(cluster.random.below(3000));
            match cluster.random.below(40) {
                0..10 => cluster.write(),
                10..20 => cluster.turn(),
                20..30 => cluster.deliver(true),
                30..38 => cluster.answer(),
                38 => {
                    let now = cluster.now;
                    cluster.servers.iter_mut().for_each(|server| server.work(now));
                }
                _ => {
                    let at = cluster.random.below(1 + seed % 3) as usize;
                    let server = &mut cluster.servers[at];
                    server.life = None;
                    server.start();
                    server.listed = (ServerState::Up, server.generation);
                    cluster.tell();
                    restarts += 1;
                }
            }
            if cluster.random.chance(0.1) {
                let begun = cluster.log.durable() > LogPosition::default();
                cluster.check(&[], begun);
            }
        }
    }
    assert!(restarts > 100, "{restarts}");
}

/// The backup answers, and acknowledges from memory although its disk refuses the data, until all
/// its buffers are in use. Then there is no other server for the second replica.
#[test]
fn writes_go_on_when_the_disk_of_one_of_two_backups_hangs_or_fails() {
    for fails in [false, true] {
        let mut cluster = Cluster::with(Random::from_seed(3), 2, 2);
        cluster.min_replicas = 1;
        cluster.tell();
        let failing = DiskModel { failure: 1.0, ..DiskModel::default() };
        if fails {
            cluster.servers[1].disk.set_model(failing);
        }
        let (mut pending, mut longest, mut writes) = (VecDeque::new(), Duration::ZERO, 0);
        let mut is_blocked = false;
        for _ in 0..4000 {
            cluster.now = cluster.now + Duration::from_millis(5);
            let before = cluster.log.appended();
            cluster.write();
            if cluster.log.appended() > before {
                writes += 1;
                pending.push_back((cluster.log.appended(), cluster.now));
            }
            cluster.turn();
            while !cluster.sent.is_empty() {
                cluster.deliver(true);
            }
            while !cluster.answers.is_empty() {
                cluster.answer();
            }
            cluster.turn();
            cluster.cleaner.step();
            let now = cluster.now;
            cluster.servers[0].work(now);
            match fails {
                true => cluster.servers[1].work(now),
                // The disk's worker never returns.
                false => {
                    let (service, _) = cluster.servers[1].life.as_mut().unwrap();
                    service.store().turn(now, &mut |_| {});
                }
            }
            while pending.pop_front_if(|(end, _)| *end <= cluster.log.durable()).is_some() {}
            let waited = pending.front().map_or(Duration::ZERO, |(_, since)| now.since(*since));
            is_blocked |= waited > Duration::from_millis(500)
                && cluster.replication.at_risk().is_some_and(|risk| risk.is_blocked);
            longest = longest.max(waited);
        }
        let refusals = cluster.replication.statistics().refusals;
        assert!(refusals > 0 && writes > 1000, "fails: {fails}, {refusals} {writes}");
        assert!(longest < Duration::from_millis(2500), "fails: {fails}, {longest:?}");
        // The store of a failing disk frees its buffers now and then.
        assert!(fails || longest > Duration::from_millis(1900) && is_blocked, "{longest:?}");
        cluster.check_open_heads();
    }
}
