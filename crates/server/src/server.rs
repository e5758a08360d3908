//! A node of a server: a shard. The first node of a process also has the backup and the membership.
//!
//! ```text
//!  first node:    register ─► open the storage ─► enlist ─► serve
//!  other nodes:   wait for the first one to enlist       ─► serve
//! ```
//!
//! Until it serves, a node answers that it is busy. The steps that may block (opening the storage,
//! mapping the memory) happen before that, in turns in which no client is served.

mod membership;

use crate::backup::Backup;
use crate::door::Door;
use crate::door::cluster::Ports;
use crate::followed::{Record, Recorder};
use crate::generation::{Ended, GenerationState, Identity};
use crate::options::{Options, durability};
use crate::owner::Owner;
use crate::probes::{self, Probes};
use std::sync::Arc;
use std::time::Duration;
use thunderhead_backup::start::read_superblock;
use thunderhead_backup::{self as backup, FILE_NAME, Store};
use thunderhead_log::{CleanerOptions, Log, LogId, Memory, Options as LogOptions, SegmentId};
use thunderhead_master::coordinator_client::{CoordinatorClient, QuestionId};
use thunderhead_master::replication::{MESSAGE_BYTES, Settings as ReplicationSettings};
use thunderhead_master::{LocalBackup, Options as ShardOptions, Replication, Shard, time_of_day};
use thunderhead_net::stream::{Opened, Taken};
use thunderhead_net::{Cause, ConnectionId};
use thunderhead_rpc::{CallError, CallId, Component, Context, Opcode, OwnerId, Request, Service};
use thunderhead_runtime::files::Opening;
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::command::CommandHeader;
use thunderhead_wire::control::{
    BackupInfo, Enlist, Enlisted, Known, Register, Registered, Settings, to_body,
};
use thunderhead_wire::{ClusterId, MasterId, Status};

/// The bytes of memory that are touched between two log lines about that.
const TOLD_EVERY: usize = 1 << 30;

/// How long coordinators may take to answer before the server logs a warning, and the pause between
/// warnings.
const PATIENCE: Duration = Duration::from_secs(1);
const WARN_EVERY: Duration = Duration::from_secs(10);

/// How long leaving waits for updates that are not durable yet. Clients without an answer then ask
/// again, elsewhere or later.
const LEAVING: Duration = Duration::from_secs(3);

/// How long leaving waits for a disk that still accepts unwritten replicas. The end of a container
/// removes the shared memory of its processes; it waits 30 s before it kills them.
const FLUSHING: Duration = Duration::from_secs(20);

/// The pause of a caller before it asks a server again that does not serve yet.
const NOT_YET_US: u32 = 20_000;

/// A node of a server.
pub struct Server {
    options: Arc<Options>,
    generation: GenerationState,
    /// The number of this node in its process.
    number: usize,
    coordinator: CoordinatorClient,
    question: Option<QuestionId>,
    phase: Phase,
    /// Drawn once for each generation: registering and enlisting take effect once for each nonce.
    nonce: u64,
    registered: Option<Registered>,
    backup: Option<Backup>,
    shard: Option<Shard>,
    /// The version of the list of servers that this node knows.
    list_version: u64,
    /// The count of changes ([`GenerationState::changes`]) at the last look.
    seen_changes: u64,
    /// The time of the next warning that no coordinator answers.
    warns_from: Time,
    is_leaving: bool,
    /// The door for clients of another protocol, at the first node of a server that has one. The
    /// other nodes have one too if it is that of a cluster.
    door: Option<Door>,
    /// The end of a turn has rare work: leaving, or that of the door.
    has_rare_work: bool,
    /// The time at which leaving stops waiting for updates; `None` if the node is not leaving.
    leaves_by: Option<Time>,
    /// The time at which leaving stops waiting for the disk, too.
    flushed_by: Time,
    /// The cluster has declared this generation over while the server ends: it waits only for its
    /// disk.
    is_deposed: bool,
    has_left: bool,
    /// The number of frames of the storage, if it existed before.
    frames: Option<u32>,
    /// The memory for the shard.
    memory: Option<Arc<Memory>>,
    /// Records the latest state of the cluster, at the first node of a server with a storage.
    recorder: Option<Recorder>,
    /// The probes of other servers, at the first node.
    probes: Option<Probes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The node asks the coordinator for the server's identity.
    Registering,
    /// The node announces the server's new generation.
    Enlisting,
    /// The node waits for the first node of the process.
    Waiting,
    Serving,
    Over,
}

impl Server {
    /// Creates a node for a generation of a server. Node 0 registers and enlists the server.
    #[must_use]
    pub fn new(options: Arc<Options>, generation: GenerationState, number: usize) -> Server {
        let probes = || Probes::new(options.probing, options.coordinators.clone());
        let door = options.door.as_deref().filter(|door| number == 0 || door.cluster.is_some());
        let door = door.map(|door| Door::new(door, &options.coordinators));
        Server {
            has_rare_work: door.is_some(),
            door,
            probes: (number == 0).then(probes),
            coordinator: CoordinatorClient::new(options.coordinators.clone(), Owner::Coordinator),
            question: None,
            options,
            generation,
            number,
            phase: Phase::Waiting,
            nonce: 0,
            registered: None,
            backup: None,
            shard: None,
            list_version: 0,
            seen_changes: 0,
            warns_from: Time(0),
            is_leaving: false,
            leaves_by: None,
            flushed_by: Time(0),
            is_deposed: false,
            has_left: false,
            frames: None,
            memory: None,
            recorder: None,
        }
    }

    /// Returns the shard, once the node serves.
    pub fn shard(&mut self) -> Option<&mut Shard> {
        self.shard.as_mut()
    }

    /// Sets the ports of the node's door, if it is that of a cluster.
    pub(crate) fn set_ports(&mut self, ports: Ports) {
        if let Some(door) = self.door.as_mut().and_then(Door::in_cluster) {
            door.set_ports(ports);
        }
    }

    /// Whether the node serves.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.phase == Phase::Serving
    }

    /// Whether the server starts and meets only coordinators of another cluster. A server that
    /// serves goes on in that case.
    fn is_among_strangers(&self) -> bool {
        let begins = matches!(self.phase, Phase::Registering | Phase::Enlisting);
        begins && self.coordinator.meets_only_strangers()
    }

    fn fail(&mut self, why: impl Into<String>) {
        self.end(Ended::Failed(why.into()));
    }

    /// Handles the news that the cluster has declared this generation over. A server that is ending
    /// anyway first writes the acknowledged data to its disk, because its shared memory may be
    /// removed with it.
    fn deposed(&mut self) {
        match self.generation.is_leaving() {
            true => self.is_deposed = true,
            false => self.end(Ended::Deposed),
        }
    }

    fn end(&mut self, why: Ended) {
        tracing::error!(%why, "the server ends");
        self.phase = Phase::Over;
        self.generation.end(why);
    }

    /// Reads the identity in the storage, if there is a storage.
    fn known(&mut self, context: &mut Context<'_>) -> Result<Option<Known>, String> {
        if self.options.backup.is_none() {
            return Ok(None);
        }
        let files = context.world().files.as_mut();
        match Record::read(files) {
            Ok(Some(Record { cluster, followed })) => {
                self.generation.continue_from(cluster, followed)
            }
            Ok(None) => {}
            // It is only a lower bound, so the server can do without it.
            Err(error) => tracing::warn!(%error, "the latest state of the cluster cannot be read"),
        }
        if !files.find(FILE_NAME).map_err(|error| format!("the data directory: {error}"))? {
            return Ok(None);
        }
        let superblock = files
            .open_with(FILE_NAME, Opening { direct: true, ..Opening::default() })
            .map_err(backup::OpenError::Io)
            .and_then(|file| {
                let superblock = read_superblock(files, file);
                files.close(file);
                superblock
            })
            .map_err(|error| format!("the storage of the backup: {error}"))?;
        self.frames = Some(superblock.geometry.frames);
        let backup::Identity { cluster, server } = superblock.identity;
        Ok(Some(Known { cluster, server }))
    }

    fn register(&mut self, context: &mut Context<'_>) {
        self.phase = Phase::Registering;
        match self.known(context) {
            Ok(known) => {
                if let Some(known) = known {
                    self.set_cluster(context, known.cluster);
                }
                let backup = self.options.backup.as_ref();
                let place = backup.filter(|it| !it.begins_anew).map_or(0, |it| it.place);
                let address = self.generation.addresses().first().copied();
                let (nonce, newest_format) = (self.nonce, self.options.newest_format);
                // Without an id of its own it may join another cluster.
                let followed = known.map_or_else(Default::default, |_| self.generation.followed());
                let register = Register { known, nonce, place, address, newest_format, followed };
                let body = to_body(&register);
                self.ask(context, Opcode::Register, body);
            }
            Err(why) => self.fail(why),
        }
    }

    /// Sets the server's cluster, which it names in greetings from now on.
    fn set_cluster(&mut self, context: &mut Context<'_>, cluster: ClusterId) {
        self.generation.set_cluster(cluster);
        context.set_cluster(cluster);
    }

    fn enlist(&mut self, context: &mut Context<'_>) {
        let Some(registered) = &self.registered else { return };
        self.phase = Phase::Enlisting;
        let shards = self.generation.addresses();
        let first = shards.first().copied();
        let backup = self.backup.as_ref().zip(first).map(|(backup, address)| BackupInfo {
            address,
            read_bytes_per_second: backup.read_bytes_per_second(),
            place: self.options.backup.as_ref().map_or(0, |it| it.place),
        });
        let body = to_body(&Enlist {
            cluster: registered.cluster,
            server: registered.server,
            nonce: self.nonce,
            host: self.options.host.clone(),
            rack: self.options.rack.clone(),
            shards,
            backup,
            newest_format: self.options.newest_format,
            followed: self.generation.followed(),
        });
        self.ask(context, Opcode::Enlist, body);
    }

    /// Opens the storage, now that the server's identity is known.
    fn registered(&mut self, context: &mut Context<'_>, registered: Registered) {
        let Some(durability) = durability(&registered.settings.durability) else {
            let setting = &registered.settings.durability;
            return self.fail(format!("the cluster's durability is {setting:?}, which this program does not know; upgrade it"));
        };
        if registered.is_missing {
            return self.fail(format!(
                "the storage of {0} was in this directory and is missing now: mount its disk, or repair the link \
                 to it. If it is lost for good, or if {0} is another machine with the same host name, create a new \
                 storage with --new-storage: this becomes a new server, and the cluster makes the lost replicas again",
                registered.server
            ));
        }
        tracing::info!(server = %registered.server, "the cluster knows this server");
        self.set_cluster(context, registered.cluster);
        if let Some(wanted) = &self.options.backup {
            let identity =
                backup::Identity { cluster: registered.cluster, server: registered.server };
            let segment_bytes = registered.settings.segment_bytes;
            let asked = self.options.frames(wanted, segment_bytes, registered.settings.replicas);
            // A file keeps its number of frames, unless an operator asks for another one.
            let frames = self.frames.filter(|_| wanted.disk_bytes.is_none()).unwrap_or(asked);
            if frames < asked {
                tracing::warn!(
                    frames,
                    asked,
                    "the storage of the backup was created for less memory: writes may have to wait \
                     for the cleaners before memory is full"
                );
            }
            let options = backup::Options {
                segment_bytes,
                buffers: wanted.buffers(segment_bytes),
                durability,
                populate: wanted.populate,
                sparse: wanted.sparse,
                ..backup::Options::new(identity, frames)
            };
            match Store::start(context.world(), options) {
                Ok((store, opened)) => {
                    tracing::info!(
                        replicas = opened.replicas,
                        from_memory = opened.recovered,
                        damaged = opened.damaged + opened.bad + opened.pool_damaged,
                        read_bytes_per_second = opened.read_bytes_per_second,
                        "the storage of the backup is open"
                    );
                    self.backup = Some(Backup::new(store, opened));
                }
                Err(error) => return self.fail(format!("the storage of the backup: {error}")),
            }
            // The storage is locked now, so no other process writes the record.
            match Recorder::start(context.world()) {
                Ok(recorder) => self.recorder = Some(recorder),
                Err(error) => return self.fail(format!("the thread of the record: {error}")),
            }
        }
        // The check comes before the cluster counts on this server.
        if let Some(memory) = &self.memory
            && let Err(why) = log_options(&registered.settings, self.spread_max()).suit(memory)
        {
            return self.fail(why.to_string());
        }
        self.registered = Some(registered);
        self.enlist(context);
    }

    fn enlisted(&mut self, context: &mut Context<'_>, enlisted: Enlisted) {
        let Some(registered) = self.registered.take() else { return };
        let Enlisted { generation, masters, log_seed, servers } = enlisted;
        let Registered { cluster, server, settings, .. } = registered;
        tracing::info!(%server, generation = generation.0, shards = masters.len(), "enlisted");
        if let Some(backup) = &mut self.backup {
            backup.service.enlisted(generation, &servers);
        }
        self.generation.on_enlisted(
            Identity { cluster, server, generation, masters, log_seed, settings },
            servers,
        );
        self.serve(context);
    }

    /// Begins to serve: the server has its identity now.
    fn serve(&mut self, context: &mut Context<'_>) {
        let Some(identity) = self.generation.identity() else { return };
        let Some(master) = identity.masters.get(self.number).copied() else {
            return self.fail("the coordinator knows fewer shards of this server than it has");
        };
        match self.make_shard(context, &identity, master) {
            Ok(shard) => {
                self.shard = Some(shard);
                self.phase = Phase::Serving;
                self.generation.on_node_serving();
                if let Some(probes) = &mut self.probes {
                    probes.begin(context);
                }
                if let Some(door) = &mut self.door {
                    door.begin(context, &identity.settings, master);
                }
                self.learn();
            }
            Err(why) => self.fail(why),
        }
    }

    /// Returns the multiple of its live data up to which a log takes fresh memory. A server with a
    /// door stands in for a server whose memory grows with its data.
    fn spread_max(&self) -> f64 {
        let grows = self.options.door.is_some() && !self.options.populate;
        if grows { SPREAD_MAX } else { f64::INFINITY }
    }

    /// Allocates the memory of the shard. All nodes do so at the same time when they start, and
    /// serve only after that.
    fn make_memory(&self) -> Result<Arc<Memory>, String> {
        let bytes = self.options.memory_bytes / self.options.listen.len().max(1);
        let memory = match self.options.seglet_bytes {
            Some(seglet_bytes) => Memory::with_seglets(bytes, seglet_bytes),
            None => Memory::new(bytes),
        };
        let memory = memory.map_err(|error| format!("memory: {error}"))?;
        if self.options.populate {
            self.populate(&memory);
        }
        Ok(memory)
    }

    fn populate(&self, memory: &Memory) {
        let (shard, all_mib) = (self.number, memory.bytes() >> 20);
        let is_all = memory.populate(&mut |done| {
            if done % TOLD_EVERY == 0 || done == memory.bytes() {
                tracing::info!(shard, done_mib = done >> 20, all_mib, "memory is touched");
            }
            !self.generation.is_leaving()
        });
        if !is_all && !self.generation.is_leaving() {
            tracing::warn!(
                shard,
                "the kernel did not provide all memory in advance (this needs Linux 5.14 or later, and \
                 enough free memory): writes will wait for it"
            );
        }
    }

    /// Makes the shard of a master, with an empty log.
    fn make_shard(
        &mut self,
        context: &mut Context<'_>,
        identity: &Identity,
        master: MasterId,
    ) -> Result<Shard, String> {
        let settings = &identity.settings;
        let options = log_options(settings, self.spread_max());
        let memory = self.memory.take().ok_or("the shard has no memory")?;
        let of_replication = ReplicationSettings {
            server: identity.server,
            host: self.options.host.clone(),
            rack: self.options.rack.clone(),
            master,
            replicas: settings.replicas,
            min_replicas: settings.min_replicas,
            self_backup: settings.self_backup,
            segment_bytes: settings.segment_bytes,
            message_bytes: self.options.message_bytes.unwrap_or(MESSAGE_BYTES),
        };
        let random = context.random();
        let (replication, replicator) = Replication::new(of_replication, random.split());
        // The log id is the same in all generations of this shard, so that it can take back the log
        // of a former one. No two generations have segments of one id.
        let id = match identity.log_seed {
            0 => LogId(random.number()),
            seed => log_of(seed, self.number),
        };
        let earlier = identity.generation.0.saturating_sub(1);
        let first = SegmentId(earlier.saturating_mul(SEGMENTS_OF_A_GENERATION).saturating_add(1));
        let mut log = Log::beginning_at(first, &memory, id, options, replicator)
            .map_err(|error| error.to_string())?;
        log.keep_time_by(time_of_day(&context.world().clock));
        if settings.replicas == 0 {
            log.go_without_copies();
        }
        let coordinators = &self.options.coordinators;
        let of_shard = ShardOptions::default();
        let records_per_client_max =
            self.options.records_per_client_max.unwrap_or(of_shard.records_per_client_max);
        let of_shard = ShardOptions { records_per_client_max, ..of_shard };
        let mut shard = Shard::in_cluster(log, master, coordinators.clone(), of_shard)
            .replicated(replication, identity.server);
        shard
            .start_cleaners(context.world().workers.as_mut(), self.options.cleaners)
            .map_err(|error| format!("the cleaners: {error}"))?;
        Ok(shard)
    }

    /// Records the latest state of the cluster, if it has changed.
    fn record(&mut self, cluster: ClusterId) {
        if let Some(recorder) = &mut self.recorder {
            recorder.put(Record { cluster, followed: self.generation.followed() });
        }
    }

    /// Takes over a newer list of servers, if there is one.
    fn learn(&mut self) {
        let list = self.generation.list();
        let (format, newest) = (list.format, self.options.newest_format);
        if format > newest {
            // The coordinator does not switch a format on while the cluster has a server that does
            // not know it.
            return self.fail(format!(
                "{}: the cluster has {format}, and this program knows {newest}",
                Status::OldProgram
            ));
        }
        if list.version <= self.list_version || self.phase != Phase::Serving {
            return;
        }
        self.list_version = list.version;
        let Some(identity) = self.generation.identity() else { return };
        let me = (identity.server, identity.generation);
        if probes::is_over(&list, me) || !list.servers.iter().any(|it| it.server == me.0) {
            return self.deposed();
        }
        if let Some(replication) = self.shard.as_mut().and_then(Shard::replication) {
            replication.learn(&list);
        }
        if let Some(backup) = &mut self.backup {
            backup.service.learn(&list);
        }
    }

    /// Returns the message in a coordinator's command, if it is for this cluster and no later
    /// leadership has sent a command yet.
    fn command<'r>(
        &self,
        context: &Context<'_>,
        request: Request<'r>,
    ) -> Result<Request<'r>, CommandRefusal> {
        let (header, body) = CommandHeader::split(request.body).ok_or(Status::Malformed)?;
        match context.cluster() {
            // The server does not know its cluster yet.
            None => return Err(Status::Busy.into()),
            Some(own) if own != header.cluster() => return Err(Status::WrongCluster.into()),
            Some(_) => {}
        }
        self.generation.follow(header.token()).map_err(CommandRefusal::old_leader)?;
        Ok(Request { body, ..request })
    }

    #[inline(never)]
    fn do_rare_work(&mut self, context: &mut Context<'_>) {
        if let Some(door) = self.door.as_mut().filter(|door| door.has_work()) {
            let durable = self.shard.as_ref().map_or_else(Default::default, Shard::durable);
            door.turn_over(context, durable);
        }
        if self.is_leaving {
            self.leave(context);
        }
    }

    /// Completes the work of this node. The node with the backup leaves last, because the other
    /// shards of the process may need the backup for updates that they have not answered yet. After
    /// the shared memory is released, nothing must be acknowledged that is only there.
    fn leave(&mut self, context: &mut Context<'_>) {
        if self.has_left {
            return;
        }
        let by = *self.leaves_by.get_or_insert_with(|| {
            let by = context.now() + LEAVING;
            self.flushed_by = context.now() + FLUSHING;
            context.set_timer(by, Owner::Leaving);
            context.set_timer(self.flushed_by, Owner::Leaving);
            by
        });
        let is_late = context.now() >= by || self.is_deposed;
        let is_quiet = self.shard.as_ref().is_none_or(|shard| shard.statistics().parked == 0)
            && self.door.as_ref().is_none_or(|door| !door.has_work());
        let is_last = self.backup.is_none() || self.generation.staying() <= 1;
        let may_go = is_late || (is_quiet && is_last);
        if !may_go {
            return;
        }
        if let Some(backup) = &mut self.backup
            && !backup.leave(context)
        {
            // Otherwise masters would wait for this backup as long as its disk takes, and clients
            // for the server's tablets.
            if let Some(probes) = &mut self.probes {
                probes.leave(context, &self.generation);
            }
            let waits_until = if backup.is_refused() { by } else { self.flushed_by };
            if context.now() < waits_until {
                return;
            }
            tracing::error!(
                replicas = backup.unwritten(),
                "the disk did not take everything in time: some replicas are only in shared memory, and are lost \
                 if that is removed before the server restarts"
            );
        }
        if is_late && !is_quiet {
            tracing::warn!(
                "the server ends before all updates are durable; their clients try again"
            );
        }
        self.has_left = true;
        self.generation.on_node_left();
    }
}

/// The reason why a command of a coordinator is refused.
#[derive(Clone, Copy, Debug)]
struct CommandRefusal {
    status: Status,
    /// The token of the later leadership; 0 if that is not the reason.
    newest_token: u64,
}

impl CommandRefusal {
    /// A later leadership has sent a command already.
    fn old_leader(newest_token: u64) -> CommandRefusal {
        CommandRefusal { status: Status::OldLeader, newest_token }
    }
}

impl From<Status> for CommandRefusal {
    fn from(status: Status) -> CommandRefusal {
        CommandRefusal { status, newest_token: 0 }
    }
}

/// The multiple of its live data up to which the log of a server with a door takes fresh memory.
/// With more, cleaners copy less. With this much, nearly all entries that they look at are dead.
const SPREAD_MAX: f64 = 6.0;

/// The number of segment ids of one generation of a shard: enough for eight terabytes of written
/// segments. The next generation cannot take back a log that used more.
const SEGMENTS_OF_A_GENERATION: u64 = 1 << 20;

/// Returns the id of a shard's logs: drawn from the seed, different for each shard.
fn log_of(seed: u64, shard: usize) -> LogId {
    LogId(Random::from_seed(seed.wrapping_add(shard as u64)).number())
}

fn log_options(settings: &Settings, spread_max: f64) -> LogOptions {
    let of_log = LogOptions::default();
    // A log without copies has no frames that a short segment would waste.
    let value_share = if settings.replicas == 0 { 2 } else { of_log.value_share };
    let cleaner = CleanerOptions { spread_max, ..of_log.cleaner };
    LogOptions { segment_bytes: settings.segment_bytes as usize, value_share, cleaner, ..of_log }
}

impl Service for Server {
    fn start(&mut self, context: &mut Context<'_>) {
        self.warns_from = context.now() + PATIENCE;
        self.nonce = context.random().number();
        match self.make_memory() {
            Ok(memory) => self.memory = Some(memory),
            Err(why) => return self.fail(why),
        }
        if self.number == 0 {
            self.register(context);
        }
    }

    #[inline]
    fn request(&mut self, context: &mut Context<'_>, mut request: Request<'_>) {
        let reply_to = request.reply_to;
        if request.opcode.is_command() {
            match self.command(context, request) {
                Ok(command) => request = command,
                Err(CommandRefusal { status, newest_token }) => {
                    let hint = if status == Status::Busy { NOT_YET_US } else { 0 };
                    return context.refuse(reply_to, status, hint, &[&newest_token.to_le_bytes()]);
                }
            }
        }
        match (request.opcode.component(), &mut self.shard, &mut self.backup) {
            (Component::Shard | Component::ShardControl, Some(shard), _)
                if self.phase == Phase::Serving && self.leaves_by.is_none() =>
            {
                shard.request(context, request);
            }
            (Component::Backup, _, Some(backup)) => backup.service.request(context, request),
            // The backup's storage is not open yet.
            (Component::Backup, ..) if self.number == 0 && self.options.backup.is_some() => {
                context.refuse(reply_to, Status::Busy, NOT_YET_US, &[]);
            }
            (Component::Membership, ..) => self.membership_request(context, request),
            // Another server is about to take over the tablets. A caller that were told to wait
            // would wait for this server.
            (Component::Shard, ..) if self.leaves_by.is_some() => {
                context.refuse(reply_to, Status::Moved, 0, &[]);
            }
            (Component::Shard | Component::ShardControl, ..) => {
                context.refuse(reply_to, Status::Busy, NOT_YET_US, &[]);
            }
            _ => context.refuse(reply_to, Status::UnknownOpcode, 0, &[]),
        }
    }

    fn reply(
        &mut self,
        context: &mut Context<'_>,
        owner: OwnerId,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        match (owner.component(), &mut self.shard) {
            (Component::Shard, Some(shard)) => shard.reply(context, owner, call, outcome),
            (Component::Membership, _) => self.membership_reply(context, owner, call, outcome),
            _ => {}
        }
    }

    fn timer(&mut self, context: &mut Context<'_>, owner: OwnerId) {
        match (owner.component(), &mut self.shard, &mut self.backup) {
            (Component::Shard, Some(shard), _) => shard.timer(context, owner),
            (Component::Backup, _, Some(backup)) => backup.service.on_timer(),
            (Component::Membership, ..) => self.membership_timer(context, owner),
            _ => {}
        }
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        let changes = self.generation.changes();
        if changes != self.seen_changes {
            self.seen_changes = changes;
            self.is_leaving |= self.generation.is_leaving();
            self.has_rare_work |= self.is_leaving;
            if let Some(cluster) = self.generation.cluster() {
                context.set_cluster(cluster);
                self.record(cluster);
            }
            match self.phase {
                Phase::Waiting if self.generation.identity().is_some() => self.serve(context),
                Phase::Serving => {
                    self.learn();
                    if let Some(door) = self.door.as_mut().and_then(Door::in_cluster) {
                        door.learn(context, &self.generation.list());
                    }
                }
                _ => {}
            }
        }
        if self.shard.as_ref().is_some_and(Shard::is_deposed) {
            self.deposed();
        }
        // The backup has its turn before the shard, so that the shard learns the durable replicas;
        // and after it, so that the shard's new bytes go to the disk.
        if let Some(backup) = &mut self.backup {
            backup.service.hear(context);
        }
        if let Some(shard) = &mut self.shard {
            let local = self.backup.as_mut().map(|it| it as &mut dyn LocalBackup);
            shard.turn_over_with(context, local);
        }
        if let Some(backup) = &mut self.backup {
            backup.service.turn_over(context);
        }
        if self.has_rare_work {
            self.do_rare_work(context);
        }
    }

    fn stream_opened(&mut self, context: &mut Context<'_>, stream: ConnectionId, opened: Opened) {
        match &mut self.door {
            Some(door) => door.opened(context, stream, &opened),
            None => context.finish_stream(stream),
        }
    }

    fn stream_bytes(
        &mut self,
        context: &mut Context<'_>,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        let serves = self.phase == Phase::Serving && self.leaves_by.is_none();
        let shard = self.shard.as_mut().filter(|_| serves);
        match &mut self.door {
            Some(door) => door.bytes(context, shard, from, bytes),
            None => Taken::read_on(bytes.len()),
        }
    }

    fn stream_ending(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        if let Some(door) = &mut self.door {
            door.ending(context, stream);
        }
    }

    fn stream_ended(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        match &mut self.door {
            Some(door) => door.ended(context, stream),
            None => context.finish_stream(stream),
        }
    }

    fn stream_closed(&mut self, context: &mut Context<'_>, stream: ConnectionId, _: Cause) {
        if let Some(door) = &mut self.door {
            door.closed(context, stream);
        }
    }
}
