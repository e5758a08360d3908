//! A node of a server: a shard, and at the first node of a process the backup and the membership.
//!
//! ```text
//!  first node:    register ─► open the storage ─► enlist ─► serve
//!  other nodes:   wait for the first one to enlist       ─► serve
//! ```
//!
//! Until it serves, a node answers that it is busy. What may wait (opening the storage, mapping the
//! memory) happens before that, in turns in which nobody is served.

use crate::backup::Backup;
use crate::life::{Ended, Identity, Life};
use crate::options::{Options, durability};
use crate::probes::{self, Came, Probes};
use crate::timers::Timer;
use std::sync::Arc;
use std::time::Duration;
use thunderhead_backup::start::read_superblock;
use thunderhead_backup::{self as backup, FILE_NAME, Store};
use thunderhead_log::{Log, LogId, Memory, Options as LogOptions, SegmentId};
use thunderhead_master::asking::{Asking, Heard, QuestionId};
use thunderhead_master::replication::{MESSAGE_BYTES, Settings as ReplicationSettings};
use thunderhead_master::{LocalBackup, Options as ShardOptions, Replication, Shard};
use thunderhead_rpc::{CallError, CallId, Context, Opcode, Request, Service, ServiceKind};
use thunderhead_runtime::files::Opening;
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::control::{
    BackupInfo, Empty, Enlist, Enlisted, Known, Register, Registered, ServerList, of_body, to_body,
};
use thunderhead_wire::leadership::Leadership;
use thunderhead_wire::membership::Probe;
use thunderhead_wire::{ClusterId, MasterId, Status};

/// Bytes of memory that are touched between two lines about it.
const TOLD_EVERY: usize = 1 << 30;

/// How long coordinators may take before it is said that they do, and how often it is then said.
const PATIENCE: Duration = Duration::from_secs(1);
const WARN_EVERY: Duration = Duration::from_secs(10);

/// How long leaving waits for what is not durable yet. Clients whose answers are still missing then ask again
/// elsewhere or later.
const LEAVING: Duration = Duration::from_secs(3);

/// How long it waits for a disk that still takes what is not written yet. Whoever asks a process to end may remove its
/// shared memory with it, as containers do. They wait for 30 s before they kill it.
const FLUSHING: Duration = Duration::from_secs(20);

/// What a caller waits before it asks a server again that does not serve yet.
const NOT_YET_US: u32 = 20_000;

/// A node of a server.
pub struct Server {
    options: Arc<Options>,
    life: Life,
    /// Which of the process's nodes it is.
    number: usize,
    asking: Asking,
    question: Option<QuestionId>,
    phase: Phase,
    /// Drawn once a life, for what must be done once.
    nonce: u64,
    registered: Option<Registered>,
    backup: Option<Backup>,
    shard: Option<Shard>,
    /// The list that this node knows.
    list_version: u64,
    /// What has changed in its life up to the last look.
    seen_changes: u64,
    /// It is not said before this time that nobody answers.
    warns_from: Time,
    is_leaving: bool,
    /// When leaving waits no longer.
    leaves_by: Option<Time>,
    /// When it does not wait for the disk any longer either.
    flushed_by: Time,
    /// The cluster has declared this life over while the server ends: there is nothing to wait for but the disk.
    is_deposed: bool,
    has_left: bool,
    /// Frames that the storage has, if it was there before.
    frames: Option<u32>,
    /// What the shard will use.
    memory: Option<Arc<Memory>>,
    /// Whether the others are there: the first node asks.
    probes: Option<Probes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Finds out who it is.
    Registering,
    /// Says that it is here.
    Enlisting,
    /// Waits for the first node of the process.
    Waiting,
    Serving,
    Over,
}

impl Server {
    /// A node of a server's life; the first one to be made finds out who the server is.
    #[must_use]
    pub fn new(options: Arc<Options>, life: Life, number: usize) -> Server {
        let probes = || Probes::new(options.probing, options.coordinators.clone());
        Server {
            probes: (number == 0).then(probes),
            asking: Asking::new(options.coordinators.clone(), Timer::AskAgain.number()),
            question: None,
            options,
            life,
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
        }
    }

    /// The shard, once it serves.
    pub fn shard(&mut self) -> Option<&mut Shard> {
        self.shard.as_mut()
    }

    /// Whether it serves.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.phase == Phase::Serving
    }

    /// Whether it looks for its cluster where another one is. Once it serves it goes on all the same.
    fn is_among_strangers(&self) -> bool {
        let begins = matches!(self.phase, Phase::Registering | Phase::Enlisting);
        begins && self.asking.meets_only_strangers()
    }

    fn fail(&mut self, why: impl Into<String>) {
        self.end(Ended::Failed(why.into()));
    }

    /// The cluster has declared this life over. A server that ends anyway first takes to its disk what it has
    /// acknowledged: its shared memory may go with it.
    fn deposed(&mut self) {
        match self.life.is_leaving() {
            true => self.is_deposed = true,
            false => self.end(Ended::Deposed),
        }
    }

    fn end(&mut self, why: Ended) {
        tracing::error!(%why, "the server ends");
        self.phase = Phase::Over;
        self.life.end(why);
    }

    /// What the storage says of who this is.
    fn known(&mut self, context: &mut Context<'_>) -> Result<Option<Known>, String> {
        if self.options.backup.is_none() {
            return Ok(None);
        }
        let files = context.world().files.as_mut();
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
                    self.is_of(context, known.cluster);
                }
                let backup = self.options.backup.as_ref();
                let place = backup.filter(|it| !it.begins_anew).map_or(0, |it| it.place);
                let address = self.life.addresses().first().copied();
                let (nonce, newest_format) = (self.nonce, self.options.newest_format);
                let register = Register { known, nonce, place, address, newest_format };
                let body = to_body(&register);
                self.question = Some(self.asking.ask(context, Opcode::Register, body));
            }
            Err(why) => self.fail(why),
        }
    }

    /// The cluster that it belongs to is known: it says so from now on.
    fn is_of(&mut self, context: &mut Context<'_>, cluster: ClusterId) {
        self.life.is_of(cluster);
        context.set_cluster(cluster);
    }

    fn enlist(&mut self, context: &mut Context<'_>) {
        let Some(registered) = &self.registered else { return };
        self.phase = Phase::Enlisting;
        let shards = self.life.addresses();
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
        });
        self.question = Some(self.asking.ask(context, Opcode::Enlist, body));
    }

    /// A coordinator has answered.
    fn answered(&mut self, context: &mut Context<'_>, answer: Result<Vec<u8>, CallError>) {
        let body = match answer {
            Ok(body) => body,
            // The answer to an earlier attempt was lost, and the cluster has given this life up since.
            Err(CallError::Refused { status: Status::Deposed, .. }) => {
                return self.end(Ended::Deposed);
            }
            Err(CallError::Refused { status: Status::NoSuchServer, .. }) => {
                return self.fail(FORGOTTEN);
            }
            Err(CallError::Refused { status: Status::OldProgram, .. }) => {
                let newest = self.options.newest_format;
                return self.fail(format!("{}: it knows {newest}", Status::OldProgram));
            }
            Err(error) => return self.fail(format!("the coordinator says: {error}")),
        };
        match self.phase {
            Phase::Registering => match of_body(&body) {
                Some(registered) => self.registered(context, registered),
                None => self.fail(INCOMPREHENSIBLE),
            },
            Phase::Enlisting => match of_body(&body) {
                Some(enlisted) => self.enlisted(context, enlisted),
                None => self.fail(INCOMPREHENSIBLE),
            },
            _ => {}
        }
    }

    /// Opens the storage, now that it is known to whom it belongs.
    fn registered(&mut self, context: &mut Context<'_>, registered: Registered) {
        let Some(durability) = durability(&registered.settings.durability) else {
            let setting = &registered.settings.durability;
            return self.fail(format!("the cluster's durability is {setting:?}, which this program does not know; upgrade it"));
        };
        if registered.is_missing {
            return self.fail(format!(
                "the storage of {0} was in this directory and is not there now: mount its disk, or mend what leads \
                 to it. If it is gone for good, or if {0} is another machine with the same host name, begin a new \
                 one with --new-storage: as a new server, for which the others make up the lost replicas",
                registered.server
            ));
        }
        tracing::info!(server = %registered.server, "the cluster knows this server");
        self.is_of(context, registered.cluster);
        if let Some(wanted) = &self.options.backup {
            let identity =
                backup::Identity { cluster: registered.cluster, server: registered.server };
            let segment_bytes = registered.settings.segment_bytes;
            let asked = self.options.frames(wanted, segment_bytes, registered.settings.replicas);
            // A file keeps the frames that it was made with, unless an operator asks for others.
            let frames = self.frames.filter(|_| wanted.disk_bytes.is_none()).unwrap_or(asked);
            if frames < asked {
                tracing::warn!(
                    frames,
                    asked,
                    "the storage of the backup was made for less memory: writes may have to wait \
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
        }
        // Before anybody counts on this server.
        if let Some(memory) = &self.memory
            && let Err(why) = log_options(registered.settings.segment_bytes).suit(memory)
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
        tracing::info!(%server, generation, shards = masters.len(), "enlisted");
        if let Some(backup) = &mut self.backup {
            backup.service.enlisted(generation, &servers);
        }
        self.life.enlisted(
            Identity { cluster, server, generation, masters, log_seed, settings },
            servers,
        );
        self.serve(context);
    }

    /// Begins to serve: the server is somebody now.
    fn serve(&mut self, context: &mut Context<'_>) {
        let Some(identity) = self.life.identity() else { return };
        let Some(master) = identity.masters.get(self.number).copied() else {
            return self.fail("the coordinator knows fewer shards of this server than there are");
        };
        match self.make_shard(context, &identity, master) {
            Ok(shard) => {
                self.shard = Some(shard);
                self.phase = Phase::Serving;
                self.life.serves();
                if let Some(probes) = &mut self.probes {
                    probes.begin(context);
                }
                self.learn();
            }
            Err(why) => self.fail(why),
        }
    }

    /// The memory of the shard. Each node makes its own when it starts, all at the same time, and serves only
    /// after that.
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
            !self.life.is_leaving()
        });
        if !is_all && !self.life.is_leaving() {
            tracing::warn!(
                shard,
                "the kernel did not give all memory before it is used (it must be Linux 5.14 or \
                 later, and have so much): writes will wait for it"
            );
        }
    }

    /// A shard of a master, with an empty log.
    fn make_shard(
        &mut self,
        context: &mut Context<'_>,
        identity: &Identity,
        master: MasterId,
    ) -> Result<Shard, String> {
        let settings = &identity.settings;
        let options = log_options(settings.segment_bytes);
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
        // The same in all lives of this shard, so that it can take back what it wrote in a former one:
        // no two of its lives have segments of one id.
        let id = match identity.log_seed {
            0 => LogId(random.number()),
            seed => log_of(seed, self.number),
        };
        let lives = identity.generation.saturating_sub(1);
        let first = SegmentId(lives.saturating_mul(SEGMENTS_OF_A_LIFE).saturating_add(1));
        let log = Log::beginning_at(first, &memory, id, options, replicator)
            .map_err(|error| error.to_string())?;
        let coordinators = &self.options.coordinators;
        let mut shard =
            Shard::in_cluster(log, master, coordinators.clone(), ShardOptions::default())
                .replicated(replication, identity.server);
        shard
            .start_cleaners(context.world().workers.as_mut(), self.options.cleaners)
            .map_err(|error| format!("the cleaners: {error}"))?;
        Ok(shard)
    }

    /// There may be a newer list of servers.
    fn learn(&mut self) {
        let list = self.life.list();
        let (format, newest) = (list.format, self.options.newest_format);
        if format > newest {
            // The coordinator does not switch it on while this server is in the cluster.
            return self.fail(format!(
                "{}: it is {format}, and this program knows {newest}",
                Status::OldProgram
            ));
        }
        if list.version <= self.list_version || self.phase != Phase::Serving {
            return;
        }
        self.list_version = list.version;
        let Some(identity) = self.life.identity() else { return };
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

    /// The message in a command of a coordinator, if that is one of this cluster, and no later one has
    /// spoken yet. The error has the token of the later one.
    fn command<'r>(
        &self,
        context: &Context<'_>,
        request: Request<'r>,
    ) -> Result<Request<'r>, (Status, u64)> {
        let (leadership, body) = Leadership::split(request.body).ok_or((Status::Malformed, 0))?;
        match context.cluster() {
            // It cannot be told yet.
            None => return Err((Status::Busy, 0)),
            Some(own) if own != leadership.cluster() => return Err((Status::WrongCluster, 0)),
            Some(_) => {}
        }
        self.life.follow(leadership.token()).map_err(|newest| (Status::OldLeader, newest))?;
        Ok(Request { body, ..request })
    }

    /// Somebody asks whether this server is there, in a certain life.
    fn probed(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Some(probe) = of_body::<Probe>(request.body) else {
            return context.refuse(request.reply_to, Status::Malformed, 0, &[]);
        };
        let Some(probes) = &mut self.probes else {
            // Only the first node knows who the process is before it has enlisted.
            return context.refuse(request.reply_to, Status::Busy, NOT_YET_US, &[]);
        };
        let probed = probes.answer(&self.life, self.nonce, &probe);
        context.reply(request.reply_to, &[&to_body(&probed)]);
        let knows_more = probe.list_version > probed.list_version;
        if knows_more && self.life.identity().is_some() {
            probes.fetch_list(context);
        }
    }

    /// Brings to an end what was begun. The node with the backup goes last: the other shards of the
    /// process may need it for what they have not answered yet, and from the moment that the shared
    /// memory is given back nothing must be acknowledged that is only there.
    fn leave(&mut self, context: &mut Context<'_>) {
        if self.has_left {
            return;
        }
        let by = *self.leaves_by.get_or_insert_with(|| {
            let by = context.now() + LEAVING;
            self.flushed_by = context.now() + FLUSHING;
            context.set_timer(by, Timer::Leave.number());
            context.set_timer(self.flushed_by, Timer::Flushed.number());
            by
        });
        let is_late = context.now() >= by || self.is_deposed;
        let is_quiet = self.shard.as_ref().is_none_or(|shard| shard.statistics().parked == 0);
        let is_last = self.backup.is_none() || self.life.staying() <= 1;
        let may_go = is_late || (is_quiet && is_last);
        if !may_go {
            return;
        }
        if let Some(backup) = &mut self.backup
            && !backup.leave(context)
        {
            // Masters would wait for it as long as its disk takes, and so would clients for its tablets.
            if let Some(probes) = &mut self.probes {
                probes.leave(context, &self.life);
            }
            let waits_until = if backup.is_refused() { by } else { self.flushed_by };
            if context.now() < waits_until {
                return;
            }
            tracing::error!(
                replicas = backup.unwritten(),
                "the disk did not take everything in time: some replicas are only in shared memory, and are lost \
                 if that is removed before the server is started again"
            );
        }
        if is_late && !is_quiet {
            tracing::warn!("not everything could be brought to an end in time");
        }
        self.has_left = true;
        self.life.has_left();
    }
}

/// Ids of segments that a life of a shard has before those of the next one: eight terabytes that were
/// written. What has taken more cannot be taken back by the next life.
const SEGMENTS_OF_A_LIFE: u64 = 1 << 20;

/// The id of a shard's logs: drawn by the seed, different for each shard.
fn log_of(seed: u64, shard: usize) -> LogId {
    LogId(Random::from_seed(seed.wrapping_add(shard as u64)).number())
}

fn log_options(segment_bytes: u32) -> LogOptions {
    LogOptions { segment_bytes: segment_bytes as usize, ..LogOptions::default() }
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
                Err((status, newest)) => {
                    let hint = if status == Status::Busy { NOT_YET_US } else { 0 };
                    return context.refuse(reply_to, status, hint, &[&newest.to_le_bytes()]);
                }
            }
        }
        match (request.opcode.service(), &mut self.shard, &mut self.backup) {
            (ServiceKind::Shard | ServiceKind::ShardControl, Some(shard), _)
                if self.phase == Phase::Serving && self.leaves_by.is_none() =>
            {
                shard.request(context, request);
            }
            (ServiceKind::Backup, _, Some(backup)) => backup.service.request(context, request),
            // Its storage is not open yet.
            (ServiceKind::Backup, ..) if self.number == 0 && self.options.backup.is_some() => {
                context.refuse(reply_to, Status::Busy, NOT_YET_US, &[]);
            }
            (ServiceKind::Membership, ..) if request.opcode == Opcode::Probe => {
                self.probed(context, request);
            }
            (ServiceKind::Membership, ..) => match of_body::<ServerList>(request.body) {
                Some(list) => {
                    self.life.learn(list);
                    context.reply(reply_to, &[&to_body(&Empty {})]);
                }
                None => context.refuse(reply_to, Status::Malformed, 0, &[]),
            },
            // Another server is about to have its tablets: whoever is told to wait would wait for this one.
            (ServiceKind::Shard, ..) if self.leaves_by.is_some() => {
                context.refuse(reply_to, Status::Moved, 0, &[]);
            }
            (ServiceKind::Shard | ServiceKind::ShardControl, ..) => {
                context.refuse(reply_to, Status::Busy, NOT_YET_US, &[]);
            }
            _ => context.refuse(reply_to, Status::UnknownOpcode, 0, &[]),
        }
    }

    fn reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        if let Some(shard) = &mut self.shard
            && shard.reply(context, call, outcome)
        {
            return;
        }
        if let Some(probes) = &mut self.probes {
            match probes.reply(context, &self.life, call, outcome) {
                Came::NotOurs => {}
                Came::Ours => return,
                Came::Deposed => return self.deposed(),
            }
        }
        match self.asking.reply(context, call, outcome) {
            Heard::Answered(question, answer) if Some(question) == self.question => {
                self.question = None;
                self.answered(context, answer);
            }
            Heard::Later if self.is_among_strangers() => self.fail(OTHER_CLUSTER),
            Heard::Later if self.warns_from <= context.now() => {
                self.warns_from = context.now() + WARN_EVERY;
                tracing::warn!("no coordinator that leads has answered yet; asking again");
            }
            _ => {}
        }
    }

    fn timer(&mut self, context: &mut Context<'_>, number: u64) {
        if let Some(shard) = &mut self.shard
            && shard.timer(context, number)
        {
            return;
        }
        if let Some(backup) = &mut self.backup
            && backup.service.timer(context, number)
        {
            return;
        }
        if let Some(probes) = &mut self.probes
            && probes.timer(context, &self.life, number)
        {
            return;
        }
        self.asking.timer(context, number);
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        let changes = self.life.changes();
        if changes != self.seen_changes {
            self.seen_changes = changes;
            self.is_leaving |= self.life.is_leaving();
            if let Some(cluster) = self.life.cluster() {
                context.set_cluster(cluster);
            }
            match self.phase {
                Phase::Waiting if self.life.identity().is_some() => self.serve(context),
                Phase::Serving => self.learn(),
                _ => {}
            }
        }
        if self.shard.as_ref().is_some_and(Shard::is_deposed) {
            self.deposed();
        }
        // Before the shard, so that it hears what is durable; and after, so that what it sends goes to
        // the disk.
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
        if self.is_leaving {
            self.leave(context);
        }
    }
}

/// What a server says that the cluster does not know any more.
const FORGOTTEN: &str = "the cluster has forgotten this server, so nothing in its storage is needed; to begin as a \
                         new server, give it an empty data directory";
/// What is said where all coordinators are of another cluster than the storage.
const OTHER_CLUSTER: &str = "the coordinators that it is to ask belong to another cluster than its \
     storage; check their addresses, or give the server the data directory of this cluster";

/// What is said when a coordinator's answer makes no sense.
const INCOMPREHENSIBLE: &str =
    "the coordinator's answer makes no sense to this program; are they of the same version?";
