//! The parameters of a scenario, drawn from its seed.

use std::time::Duration;
use thunderhead_coordinator::Parts;
use thunderhead_master::replication::MESSAGE_BYTES;
use thunderhead_metastore::sim::Faults;
use thunderhead_net::sim::Link;
use thunderhead_runtime::Random;
use thunderhead_runtime::sim::disk::DiskModel;
use thunderhead_server::Probing;
use thunderhead_simulator::Scheduling;
use thunderhead_simulator::swarm;
use thunderhead_testkit::Weighted;
use thunderhead_wire::control::Settings;

/// The longest duration of a fault for which a server may be declared crashed.
pub(crate) const GENERATION_LASTS_MAX: Duration = Duration::from_secs(3);

/// The options of a scenario that its seed does not draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// Users move tablets.
    pub(crate) migrations: bool,
    /// Coordinators declare servers crashed, some of which still run. Faults of all kinds last long
    /// enough for that.
    pub(crate) verdicts: bool,
    /// Another scenario: busy servers are asked to end, again and again.
    pub(crate) leaving: bool,
    /// Another scenario: one [`Scene`] again and again, with few other faults.
    pub(crate) scenes: bool,
    /// Another scenario: two clusters that exchange addresses (`clusters.rs`).
    pub(crate) clusters: bool,
    /// Another scenario: clients of Redis and one server with a door for them (`redis.rs`).
    pub(crate) redis: bool,
}

/// The flags of `cargo xtask sim --cluster SEED`, each behind a blank.
impl std::fmt::Display for Extras {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Extras { migrations, verdicts, leaving, scenes, clusters, redis } = *self;
        let all = [
            (migrations, " --migrations"),
            (verdicts, " --verdicts"),
            (leaving, " --leaving"),
            (scenes, " --scenes"),
            (clusters, " --clusters"),
            (redis, " --redis"),
        ];
        all.into_iter().filter(|(is_set, _)| *is_set).try_for_each(|(_, flag)| f.write_str(flag))
    }
}

/// Many events in a certain order, which chance alone hardly ever produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Masters get the answers of their backups late, and are declared crashed.
    LateWords,
    /// All backups of a head are restarted, and its master crashes while it replaces their
    /// replicas.
    BegunAnew,
    /// All backups lose power during rounds.
    TornRounds,
    /// Segments are replicated again from memory while a head is not durable, and its master
    /// crashes.
    CopiedEarly,
    /// The network holds updates of a tablet until the tablet has moved away and back again.
    HeldUpdates,
    /// A master goes on without a server that is away. That server comes back, and soon no other
    /// server is up.
    LeftBehind,
    /// A backup with parts of survivors is declared crashed, and restarts before they are freed
    /// there. Then their master crashes, and other servers are silent.
    PartsLeft,
    /// `min_replicas` is raised and lowered while a server is away and its tablets are recovered.
    ChangedDemand,
    /// The disk of one server hangs for good, and the server lives on.
    HungDisk,
    /// No coordinator answers for long, and masters that have lost a replica need a coordinator's
    /// word.
    NoCoordinator,
    /// One backup loses its memory and returns with the older state of its disk. A master whose
    /// head it has crashes at the same time, and the other backups are slow to answer.
    LostMemory,
}

/// Draws `min_replicas`: at most as many as the servers can keep.
fn drawn_min_replicas(random: &mut Random, servers: usize, replicas: u32) -> u32 {
    let most = u64::from(replicas).min(servers.saturating_sub(1).max(1) as u64);
    random.within(1..most + 1) as u32
}

/// The parameters of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) servers: usize,
    /// The number of shards of each server.
    pub(crate) shards: usize,
    pub(crate) users: usize,
    pub(crate) settings: Settings,
    /// The memory of each shard.
    pub(crate) memory_bytes: usize,
    pub(crate) buffers: u32,
    /// The longest message to a backup.
    pub(crate) message_bytes: u32,
    /// The outcomes that a shard remembers for one client; `None`: the default.
    pub(crate) records_per_client_max: Option<usize>,
    pub(crate) link: Link,
    pub(crate) disk: DiskModel,
    pub(crate) scheduling: Scheduling,
    pub(crate) metastore: Faults,
    /// The number of objects that no user changes.
    pub(crate) stable: u64,
    /// The number of operations of each user.
    pub(crate) operations: u64,
    /// The mean pause of a user between operations.
    pub(crate) thinks: Duration,
    /// The duration of the phase with faults.
    pub(crate) trouble: Duration,
    /// The longest duration of one fault.
    pub(crate) lasts_max: Duration,
    /// The mean time between faults.
    pub(crate) trouble_every: Duration,
    pub(crate) leadership_ttl: Duration,
    pub(crate) lease_ttl: Duration,
    pub(crate) migrations: bool,
    /// One table has a single tablet, which becomes large.
    pub(crate) is_narrow_whole: bool,
    pub(crate) verdicts: bool,
    /// The times of the probes among servers.
    pub(crate) probing: Probing,
    /// The server whose disk fails and rots. Other servers have replicas of all its segments.
    pub(crate) weak: Option<usize>,
    /// The only fault is that all servers are asked to end.
    pub(crate) only_leaves: bool,
    /// The share of users' work that overwrites much, so that heads change and cleaners work.
    pub(crate) churn: f64,
    /// The most frequent fault.
    pub(crate) scene: Option<Scene>,
    /// The sizes of the parts of a recovery. They are small, so that recoveries are divided here,
    /// too.
    pub(crate) parts: Parts,
    /// The server has a door for Redis's clients.
    pub(crate) has_door: bool,
}

/// Small parts, so that the recoveries of a small cluster are divided, too.
const PARTS: Parts = Parts { least: 4 << 10, bytes: 64 << 10 };

/// The scenes with their weights, in the order of the random numbers that draw them.
const SCENES: Weighted<Scene> = Weighted(&[
    (1, Scene::LateWords),
    (1, Scene::BegunAnew),
    (1, Scene::TornRounds),
    (2, Scene::HeldUpdates),
    (3, Scene::CopiedEarly),
    (2, Scene::LeftBehind),
    (2, Scene::PartsLeft),
    (2, Scene::ChangedDemand),
    (3, Scene::HungDisk),
    (1, Scene::NoCoordinator),
    (2, Scene::LostMemory),
]);

impl Plan {
    pub(crate) fn draw(random: &mut Random, extras: Extras) -> Plan {
        let is_alone = random.chance(0.2);
        let servers = if is_alone { 1 } else { random.within(3..6) as usize };
        let replicas = if is_alone { 1 } else { random.within(1..4) as u32 };
        let min_replicas = drawn_min_replicas(random, servers, replicas);
        let durability = match random.below(5) {
            0 | 1 => "synced".to_owned(),
            2 => format!("interval:{}ms", random.within(1..200)),
            _ => "replicated".to_owned(),
        };
        let segment_bytes = if random.chance(0.7) { 64 << 10 } else { 128 << 10 };
        let settings = Settings {
            replicas,
            min_replicas,
            durability,
            segment_bytes,
            self_backup: is_alone || random.chance(0.2),
        };
        let disk = DiskModel {
            sync: Duration::from_micros(random.within(20..3000)),
            bytes_per_second: random.magnitude(20_000_000..2_000_000_000),
            ..DiskModel::default()
        };
        let hiccups = if random.chance(0.5) { 0.0 } else { random.fraction() * 0.01 };
        let metastore = if random.chance(0.5) {
            Faults::none()
        } else {
            let faults = Faults::drawn(random);
            let longest = Duration::from_micros(random.magnitude(500..100_000));
            Faults { delay: (faults.delay.0.min(longest), longest), ..faults }
        };
        let operations = random.within(25..60);
        let trouble = Duration::from_millis(random.within(2000..10_000));
        // Other servers have replicas of all its segments.
        let may_be_weak = extras.verdicts && settings.min_replicas > 1;
        let weak = may_be_weak.then(|| random.below(servers as u64) as usize);
        Plan {
            servers,
            shards: if random.chance(0.25) { 2 } else { 1 },
            users: random.within(1..4) as usize,
            memory_bytes: segment_bytes as usize * random.within(12..24) as usize,
            buffers: match random.within(10..24) as u32 {
                // There are fewer buffers than open heads.
                few if few % 4 == 3 => few / 3,
                enough => enough,
            },
            settings,
            // Messages are mostly shorter than a segment, so that its replicas stay open for
            // several messages.
            message_bytes: match random.chance(0.3) {
                true => MESSAGE_BYTES,
                false => random.magnitude(1 << 10..32 << 10) as u32,
            },
            // Users have so few updates in flight that only a small limit matters.
            records_per_client_max: match random.chance(0.3) {
                true => Some(random.within(1..8) as usize),
                false => None,
            },
            link: swarm::drawn_link(random),
            disk,
            scheduling: Scheduling { hiccups },
            metastore,
            stable: random.within(5..90),
            thinks: trouble.mul_f64(0.2 + random.fraction()) / operations as u32,
            operations,
            trouble,
            lasts_max: Duration::from_micros(random.magnitude(1000..5_000_000)),
            trouble_every: Duration::from_millis(random.within(100..2000)),
            leadership_ttl: Duration::from_millis(random.within(1000..3000)),
            lease_ttl: Duration::from_millis(random.magnitude(2000..300_000)),
            migrations: extras.migrations,
            is_narrow_whole: extras.migrations && !is_alone && random.chance(0.5),
            verdicts: extras.verdicts,
            probing: if extras.verdicts { Probing::default() } else { Probing::OFF },
            weak,
            only_leaves: false,
            churn: 0.0,
            scene: None,
            parts: PARTS,
            has_door: false,
        }
    }

    /// Mostly makes segments small, so that many are filled: new heads and cleaners are the hard
    /// parts of a log.
    pub(crate) fn with_churn(self, random: &mut Random) -> Plan {
        if random.chance(0.3) {
            return self;
        }
        let segment_bytes = if random.chance(0.7) { 32 << 10 } else { 64 << 10 };
        let room = if self.is_narrow_whole { 2 } else { 1 };
        Plan {
            memory_bytes: segment_bytes as usize * random.within(13..18) as usize * room,
            settings: Settings { segment_bytes, ..self.settings },
            users: self.users.max(2),
            churn: 0.2 + random.fraction() * 0.4,
            ..self
        }
    }

    /// Draws a plan with busy servers that are asked to end again and again, all at once, without
    /// other faults.
    pub(crate) fn that_leaves(random: &mut Random) -> Plan {
        let plan = Plan::draw(random, Extras::default());
        let servers = if random.chance(0.7) { 1 } else { 3 };
        // With probes, a server that ends says so, and its tablets are taken over meanwhile.
        let is_watched = servers == 3 && plan.settings.replicas > 1;
        let settings = Settings {
            replicas: if is_watched { 2 } else { 1 },
            min_replicas: 1,
            self_backup: servers == 1,
            durability: "replicated".to_owned(),
            ..plan.settings
        };
        Plan {
            servers,
            shards: 2,
            users: 3,
            settings,
            link: Link { delay: Duration::from_micros(random.within(5..100)), ..Link::default() },
            scheduling: Scheduling::default(),
            metastore: Faults::none(),
            stable: 5,
            operations: 300,
            thinks: Duration::from_micros(100),
            trouble: Duration::from_secs(3),
            lasts_max: Duration::from_millis(5),
            trouble_every: Duration::from_millis(200),
            only_leaves: true,
            probing: if is_watched { Probing::default() } else { Probing::OFF },
            ..plan
        }
    }

    /// Draws a plan with one server that has a door for Redis's clients.
    pub(crate) fn of_redis(random: &mut Random) -> Plan {
        let plan = Plan::draw(random, Extras::default());
        let segment_bytes = if random.chance(0.7) { 32 << 10 } else { 64 << 10 };
        let operations = random.within(60..200);
        // A slow disk, and power that fails: many acknowledgements wait for a sync.
        let is_synced = random.chance(0.6);
        let durability = if is_synced { "synced".to_owned() } else { plan.settings.durability };
        let sync = Duration::from_micros(random.magnitude(100..30_000));
        Plan {
            servers: 1,
            shards: 1,
            users: random.within(2..5) as usize,
            settings: Settings {
                replicas: 1,
                min_replicas: 1,
                segment_bytes,
                self_backup: true,
                durability,
            },
            disk: DiskModel { sync, ..plan.disk },
            trouble_every: Duration::from_millis(random.within(50..800)),
            memory_bytes: segment_bytes as usize * random.within(24..40) as usize,
            operations,
            thinks: plan.trouble.mul_f64(0.2 + random.fraction()) / operations as u32,
            has_door: true,
            ..plan
        }
    }

    /// Draws a plan with one scene again and again, and with networks and disks that work well.
    pub(crate) fn of_scenes(random: &mut Random) -> Plan {
        let plan = Plan::draw(random, Extras { verdicts: true, ..Extras::default() });
        let scene = SCENES.draw(random);
        let (servers, replicas) = match scene {
            Scene::LateWords => (random.within(3..6), random.within(1..3)),
            // There are so few servers that replicas are made anew where they were.
            Scene::BegunAnew => [(2, 1), (3, 2)][random.below(2) as usize],
            // No other replica has the lost bytes.
            Scene::TornRounds => ([1, 3][random.below(2) as usize], 1),
            Scene::CopiedEarly => (random.within(5..7), 1),
            Scene::HeldUpdates => (3, random.within(1..3)),
            // No server is free for a lost replica.
            Scene::LeftBehind => [(3, 2), (3, 3), (4, 3)][random.below(3) as usize],
            // There are so many servers that hardly any other segment has replicas on silent
            // servers only.
            Scene::PartsLeft => (7, 3),
            Scene::ChangedDemand => [(3, 2), (4, 2), (4, 3)][random.below(3) as usize],
            // The other disks are enough for `min_replicas` (below).
            Scene::HungDisk => [(3, 1), (3, 2), (4, 2), (4, 3)][random.below(4) as usize],
            // Each master needs all other servers for its replicas.
            Scene::NoCoordinator => [(3, 2), (4, 3)][random.below(2) as usize],
            // Each segment has a replica on another backup.
            Scene::LostMemory => [(3, 2), (4, 2), (4, 3)][random.below(3) as usize],
        };
        let (message_bytes, stable) = match scene {
            // A recovery takes many messages.
            Scene::PartsLeft => (random.within(1 << 10..2 << 10) as u32, random.within(60..150)),
            _ => (plan.message_bytes, plan.stable),
        };
        let holds = scene == Scene::HeldUpdates;
        let segment_bytes = 32 << 10;
        let settings = Settings {
            replicas: replicas as u32,
            min_replicas: match scene {
                Scene::LeftBehind => 1,
                Scene::HungDisk => {
                    drawn_min_replicas(random, servers as usize - 1, replicas as u32)
                }
                _ => drawn_min_replicas(random, servers as usize, replicas as u32),
            },
            segment_bytes,
            self_backup: servers == 1,
            durability: match scene {
                Scene::TornRounds => "synced".to_owned(),
                // With `synced` a master waits for a disk that hangs.
                // Memory that is lost matters only without `synced`.
                Scene::HungDisk | Scene::LostMemory if plan.settings.durability == "synced" => {
                    "replicated".to_owned()
                }
                _ => plan.settings.durability,
            },
        };
        let trouble = Duration::from_millis(random.within(6000..12_000));
        Plan {
            servers: servers as usize,
            shards: 1,
            users: 3,
            settings,
            memory_bytes: segment_bytes as usize * random.within(13..18) as usize,
            buffers: match scene {
                // So few that they are soon full of data that the disk does not take.
                Scene::HungDisk => random.within(6..16) as u32,
                _ => 24,
            },
            message_bytes,
            stable,
            link: Link {
                delay: Duration::from_micros(random.within(5..100)),
                streams: plan.link.streams,
                ..Link::default()
            },
            scheduling: Scheduling::default(),
            metastore: Faults::none(),
            thinks: trouble / plan.operations as u32,
            trouble,
            trouble_every: Duration::from_millis(300),
            weak: None,
            // The coordinator would declare the slow backups crashed.
            probing: match scene {
                Scene::LostMemory => Probing::OFF,
                _ => plan.probing,
            },
            churn: if holds { 0.0 } else { 0.4 },
            migrations: holds,
            is_narrow_whole: holds,
            scene: Some(scene),
            ..plan
        }
    }

    /// Another value for `min_replicas` while the cluster runs. If there is a weak server, each
    /// segment has two replicas at least.
    pub(crate) fn another_min_replicas(&self, random: &mut Random) -> u32 {
        let least = if self.weak.is_some() { 2 } else { 1 };
        drawn_min_replicas(random, self.servers, self.settings.replicas).max(least)
    }

    /// Whether acknowledged updates survive a power loss of all servers at once.
    pub(crate) fn outlasts_power(&self) -> bool {
        self.settings.durability == "synced"
    }

    /// Draws the duration of a fault for which a server may be declared crashed: shorter than a
    /// verdict takes, or longer.
    pub(crate) fn lasts_for_a_verdict(&self, random: &mut Random) -> Duration {
        Duration::from_millis(random.within(200..GENERATION_LASTS_MAX.as_millis() as u64))
    }

    /// Draws the duration of a fault: of any order of magnitude up to the longest.
    pub(crate) fn lasts(&self, random: &mut Random) -> Duration {
        Duration::from_micros(random.magnitude(100..self.lasts_max.as_micros() as u64))
    }
}
