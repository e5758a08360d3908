//! A backup's operations: masters open, extend, close and free replicas; recoveries list and read
//! them, and free them when a master is gone for good.
//!
//! A [`Service`] is a component of a node. It handles requests and ends of turns, and never waits.
//! It answers a master's message when the store reports the change as durable; with `replicated`
//! that is at once. The shard of the same process passes its messages directly, with
//! [`Service::local`].
//!
//! # How replicas are protected
//!
//! - **Messages of a crashed master are refused.** The cluster has declared a master crashed if
//!   its server is down, or if the server list lacks it, provided that this list is no older than
//!   the list that the master knows. Its replicas may be being read, so it is told that it is
//!   deposed. The backup believes a master that knows a newer list; [`Service::wants_list`] then
//!   says that there is one. A recovery that is about to read a master's replicas says so when it
//!   asks for the inventory, and the backup then takes no more from that master. Otherwise, if the
//!   backup's list is late, the master could have updates acknowledged that the recovery does not
//!   see.
//! - **Messages for another generation are refused.** A message names the server and the
//!   generation that it is for. A backup takes no messages before the cluster has told it its
//!   generation and the server list ([`Service::enlisted`]). Fences are only in memory, so a
//!   restarted backup must learn from the list which masters are gone before it believes a master.
//! - **A message without parts is answered at once,** also while others wait for the disk. With
//!   such a message a master checks that it was not fenced off ([`READ_LEASE`]).
//! - **A delayed message does no harm.** Epochs only grow. A message that frees a replica names
//!   the epoch, and a replica that was begun at a later epoch stays. A freed replica is not begun
//!   again at the same or an earlier epoch. A replica in atomic mode with a later epoch than the
//!   one here begins empty.
//! - **A replica that counts goes only when another one counts.** Recoveries are offered the old
//!   replica until its replacement is committed or closed.
//! - **A replica whose closing was acknowledged never comes back open,** even if it is freed and
//!   the process is killed before the disk has that (`store/replaced.rs`).
//! - **A repeated message changes nothing,** even if it opens and closes a replica in one.
//!
//! [`READ_LEASE`]: thunderhead_wire::control::READ_LEASE

mod freed_replicas;
mod head;
mod lists;
mod pages;
mod recovery;
mod replicate;

use crate::error::{ReadError, Refusal, Unserved};
use crate::limits::{
    BUSY_US, GONE_MAX, LIST_ENTRIES_AT_ONCE, MASTERS_MAX, REPLICATED_KILOBYTE, WAITING_MAX,
};
use crate::reader::ReplicaBytes;
use crate::store::{Event, Store, Ticket};
use freed_replicas::FreedReplicas;
use head::Heads;
use lists::{Done, Job, Lists};
use pages::Pages;
use recovery::Recoveries;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use thunderhead_rpc::{Component, Context, Opcode, OwnerId, ReplyTo, Request};
use thunderhead_runtime::Time;
use thunderhead_wire::control::{
    BackupStatus, Empty, HeadOf, Inventory, InventoryOf, MastersAfter, MastersHere, OfMaster,
    ReplicaInfo, RestLeft, ServerList, ServerState, of_body, to_body,
};
use thunderhead_wire::replication::{PartAnswer, ReplicateHead};
use thunderhead_wire::{Generation, MasterId, SegmentId, Status};
use zerocopy::IntoBytes;

/// The owner of the service's timer.
const OWNER: OwnerId = OwnerId::only(Component::Backup);

/// The code of [`Refusal::Interrupted`](crate::Refusal::Interrupted).
const INTERRUPTED: u16 = 9;

/// The outcome of a message that the shard of the same process passed directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// The answer.
    Now(Result<Vec<u8>, Status>),
    /// The answer comes later: [`Service::local_done`] will name this number.
    Later(u64),
}

/// The receiver of an answer.
#[derive(Clone, Copy, Debug)]
enum Asker {
    Node(ReplyTo),
    Local(u64),
}

/// An answer that waits for the disk.
struct WaitingAnswer {
    asker: Asker,
    /// Parts by their tickets.
    tickets: Vec<(Ticket, usize)>,
    answers: Vec<PartAnswer>,
}

/// A backup's service. See the [module](self).
pub struct Service {
    store: Store,
    read_bytes_per_second: u64,
    /// The generation of this server; `None` before it has enlisted.
    generation: Option<Generation>,
    /// The version of the newest server list, and the masters whose servers are up in it.
    list: (u64, BTreeSet<MasterId>),
    /// The newest version that any master knows.
    newer: u64,
    /// Masters that were freed or are being recovered.
    gone: BTreeSet<MasterId>,
    freed_replicas: FreedReplicas,
    waiting: VecDeque<WaitingAnswer>,
    pages: Pages,
    heads: Heads,
    recoveries: Recoveries,
    lists: Lists,
    locals: u64,
    locals_done: VecDeque<(u64, Vec<u8>)>,
    timer_at: Option<Time>,
    /// Refuses all further changes.
    is_closed: bool,
}

impl Service {
    /// Makes a service on a store. `read_bytes_per_second` is the disk's read rate, or 0 if
    /// unknown.
    #[must_use]
    pub fn new(store: Store, read_bytes_per_second: u64) -> Service {
        let segment_bytes = store.superblock().geometry.segment_bytes;
        Service {
            store,
            heads: Heads::default(),
            recoveries: Recoveries::new(segment_bytes),
            read_bytes_per_second,
            generation: None,
            list: (0, BTreeSet::new()),
            newer: 0,
            gone: BTreeSet::new(),
            freed_replicas: FreedReplicas::default(),
            waiting: VecDeque::new(),
            pages: Pages::default(),
            lists: Lists::default(),
            locals: 0,
            locals_done: VecDeque::new(),
            timer_at: None,
            is_closed: false,
        }
    }

    /// Sets the most bytes that are kept for recoveries, 256 MiB by default. A few segments always
    /// have room.
    #[must_use]
    pub fn with_recovery_bytes(mut self, bytes: u64) -> Service {
        let segment_bytes = self.store.superblock().geometry.segment_bytes;
        self.recoveries.set_limit(bytes, segment_bytes);
        self
    }

    /// Refuses further changes, so that all acknowledged changes can reach the disk. Reads still
    /// work, and masters can still check whether they were fenced off.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Returns the store.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Whether the disk has refused all replicas that are not on it.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.store.is_refused()
    }

    /// Sets the generation of this server and its first server list, after it has enlisted. Before
    /// that, the service refuses all masters.
    pub fn enlisted(&mut self, generation: Generation, list: &ServerList) {
        self.learn(list);
        self.generation = Some(generation);
    }

    /// Learns a server list. A list no newer than the last one changes nothing.
    pub fn learn(&mut self, list: &ServerList) {
        if list.version <= self.list.0 {
            return;
        }
        let up = list.servers.iter().filter(|server| server.state == ServerState::Up);
        let masters = up.flat_map(|server| &server.shards).map(|shard| shard.master).collect();
        for (master, lineage) in list.servers.iter().flat_map(|server| &server.lineages) {
            self.store.learn_lineage(*master, lineage);
        }
        self.list = (list.version, masters);
    }

    /// Returns the version of a newer list that a master knows and this backup does not.
    #[must_use]
    pub fn wants_list(&self) -> Option<u64> {
        (self.newer > self.list.0).then_some(self.newer)
    }

    /// Whether a master that knows a version of the server list must not change its replicas here
    /// any more.
    fn is_deposed(&self, master: MasterId, version: u64) -> bool {
        let (known, masters) = &self.list;
        let given_up = *known > 0 && *known >= version && !masters.contains(&master);
        given_up || self.gone.contains(&master)
    }

    /// Checks that a message is for this generation of this server.
    fn check_life(&self, head: &ReplicateHead) -> Result<(), Status> {
        let own = self.store.superblock().identity.server;
        match self.generation {
            None => Err(Status::Busy),
            Some(generation) if head.life() == (own, generation) => Ok(()),
            Some(_) => Err(Status::OtherLife),
        }
    }

    /// Handles a request of one of the backup's operations.
    pub fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        match opcode {
            _ if self.is_closed && changes_replicas(opcode, body) => {
                context.refuse(reply_to, Status::Busy, BUSY_US, &[]);
            }
            Opcode::Replicate
                if self.waiting.len() >= WAITING_MAX && changes_replicas(opcode, body) =>
            {
                context.refuse(reply_to, Status::Busy, BUSY_US, &[]);
            }
            Opcode::Replicate => self.replicate(context, body, reply_to),
            Opcode::ReadReplica => self.pages.request(&mut self.store, context, body, reply_to),
            Opcode::Inventory => match of_body::<InventoryOf>(body) {
                Some(InventoryOf { master, deposed, lineage }) => {
                    self.store.learn_lineage(master, &lineage);
                    if deposed {
                        self.fence(master);
                    }
                    let inventory = self.inventory(master);
                    if inventory.replicas.len() > LIST_ENTRIES_AT_ONCE {
                        return self.lists.begin(context, reply_to, Job::Inventory(inventory));
                    }
                    context.reply(reply_to, &[&to_body(&inventory)]);
                }
                None => context.refuse(reply_to, Status::Malformed, 0, &[]),
            },
            Opcode::FreeMaster => match of_body::<OfMaster>(body) {
                Some(of) => {
                    self.free_master(of.master);
                    context.reply(reply_to, &[&to_body(&Empty {})]);
                }
                None => context.refuse(reply_to, Status::Malformed, 0, &[]),
            },
            Opcode::MastersHere => match of_body::<MastersAfter>(body) {
                Some(MastersAfter { after }) => {
                    let masters = self.store.masters_after(after, MASTERS_MAX);
                    let more = masters.len() == MASTERS_MAX;
                    context.reply(reply_to, &[&to_body(&MastersHere { masters, more })]);
                }
                None => context.refuse(reply_to, Status::Malformed, 0, &[]),
            },
            Opcode::FreeRest if lists::is_long(body) => {
                self.lists.begin(context, reply_to, Job::FreeRest(body.to_vec()));
            }
            Opcode::FreeRest => {
                self.list_done(context, reply_to, Done::FreeRest(lists::free_rest(body)));
            }
            Opcode::HeadOf => match of_body::<HeadOf>(body) {
                Some(of) => {
                    self.fence(of.master);
                    self.heads.request(&mut self.store, context, of, reply_to);
                }
                None => context.refuse(reply_to, Status::Malformed, 0, &[]),
            },
            Opcode::BeginRecovery if lists::is_long(body) => {
                self.lists.begin(context, reply_to, Job::BeginRecovery(body.to_vec()));
            }
            Opcode::BeginRecovery => {
                self.list_done(context, reply_to, Done::BeginRecovery(of_body(body)));
            }
            Opcode::RecoveryData => {
                self.recoveries.request(&self.store, context, body, reply_to);
            }
            Opcode::BackupStatus => context.reply(reply_to, &[&to_body(&self.status())]),
            _ => context.refuse(reply_to, Status::UnknownOpcode, 0, &[]),
        }
    }

    /// Handles a list that was read or written.
    fn list_done(&mut self, context: &mut Context<'_>, reply_to: ReplyTo, done: Done) {
        match done {
            Done::FreeRest(Some(_)) if self.is_closed => {
                context.refuse(reply_to, Status::Busy, BUSY_US, &[]);
            }
            Done::FreeRest(Some((master, keep))) => {
                let replicas = self.free_rest(master, &keep);
                context.reply(reply_to, &[&to_body(&RestLeft { replicas })]);
            }
            Done::BeginRecovery(Some(begin)) => {
                self.fence(begin.crashed);
                self.store.learn_lineage(begin.crashed, &begin.lineage);
                let frames = self.store.superblock().geometry.frames;
                self.recoveries.begin(context, begin, frames, reply_to);
            }
            Done::FreeRest(None) | Done::BeginRecovery(None) => {
                context.refuse(reply_to, Status::Malformed, 0, &[]);
            }
            Done::Body(body) => context.reply(reply_to, &[&body]),
        }
    }

    /// Handles its timer. The end of the turn does the work.
    pub fn on_timer(&mut self) {
        self.timer_at = None;
    }

    /// Ends a turn: answers durable changes, hands new changes to the disk, and does a slice of
    /// longer work.
    pub fn turn_over(&mut self, context: &mut Context<'_>) {
        self.hear(context);
        while let Some((reply_to, done)) = self.lists.done() {
            self.list_done(context, reply_to, done);
        }
        self.work(context);
        let deadlines = [self.store.deadline(), self.recoveries.deadline()];
        if let Some(at) = deadlines.into_iter().flatten().min()
            && self.timer_at.is_none_or(|set| at < set)
        {
            context.set_timer(at, OWNER);
            self.timer_at = Some(at);
        }
    }

    /// Answers durable changes and hands new changes to the disk. A caller may need this before
    /// the turn ends.
    pub fn hear(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        let Service { store, pages, heads, recoveries, waiting, locals_done, .. } = self;
        store.turn(now, &mut |event| match event {
            Event::Durable(ticket) => settle(waiting, ticket, false),
            Event::Failed(ticket) => settle(waiting, ticket, true),
            Event::Read(read, outcome) => {
                let others = heads.read(context, read, outcome);
                let others = others.and_then(|outcome| recoveries.read(read, outcome, now));
                if let Some(outcome) = others {
                    pages.read(context, read, outcome);
                }
            }
        });
        // Rounds end in order, so answers nearly always do too; a failed part may be answered
        // earlier.
        while waiting.front().is_some_and(|it| it.tickets.is_empty()) {
            let Some(done) = waiting.pop_front() else { break };
            match done.asker {
                Asker::Node(reply_to) => context.reply(reply_to, &[done.answers.as_bytes()]),
                Asker::Local(number) => {
                    locals_done.push_back((number, done.answers.as_bytes().to_vec()));
                }
            }
        }
    }

    /// Does a slice of longer work.
    fn work(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        // Each slice is for heads or for recoveries. A survey waits for the heads, and it asks
        // again if they take long.
        let looks = !self.heads.is_idle();
        if looks {
            self.heads.work(context, &mut context.whole_slice());
        }
        if looks || self.recoveries.work(&self.store, now, &mut context.slice()) {
            context.alarm().ring();
        }
        self.recoveries.read_ahead(&mut self.store, now);
    }

    fn replicate(&mut self, context: &mut Context<'_>, body: &[u8], reply_to: ReplyTo) {
        self.store.it_is(context.now());
        let done = self.carry_out(&[body], Asker::Node(reply_to));
        if done.is_ok() {
            context.charge(REPLICATED_KILOBYTE * (body.len() / 1024) as u32);
        }
        match done {
            Ok(Some(answers)) => context.reply(reply_to, &[answers.as_bytes()]),
            Ok(None) => {}
            Err(status) => context.refuse(reply_to, status, BUSY_US, &[]),
        }
    }

    /// Handles a message of the shard of the same process. The body is that of
    /// [`Opcode::Replicate`] in pieces, none of which splits the head of a part. The message
    /// counts as received when this returns.
    pub fn local(&mut self, body: &[&[u8]]) -> Local {
        if self.is_closed {
            return Local::Now(Err(Status::Busy));
        }
        self.locals += 1;
        match self.carry_out(body, Asker::Local(self.locals)) {
            Ok(Some(answers)) => Local::Now(Ok(answers.as_bytes().to_vec())),
            Ok(None) => Local::Later(self.locals),
            Err(status) => Local::Now(Err(status)),
        }
    }

    /// Returns a replica of a log that the shard of the same process takes back, as the memory
    /// that the replica was read into. The body is that of [`Opcode::RecoveryData`]. Returns
    /// `None` if the replica is cut into parts: the shard then requests it by messages.
    ///
    /// # Errors
    /// If the replica is not available, or not yet.
    pub fn local_replica(
        &mut self,
        now: Time,
        body: &[u8],
    ) -> Result<Option<Arc<ReplicaBytes>>, Refused> {
        self.recoveries.whole(&self.store, now, body)
    }

    /// Returns the answer to a direct message that is durable now, with its number.
    pub fn local_done(&mut self) -> Option<(u64, Vec<u8>)> {
        self.locals_done.pop_front()
    }

    /// Returns the replicas of a master that count.
    #[must_use]
    pub fn inventory(&self, master: MasterId) -> Inventory {
        let replicas = self.store.replicas_of(master);
        let info = |replica: crate::Replica| ReplicaInfo {
            segment: replica.id.segment,
            epoch: replica.epoch,
            length: replica.length,
            closed: replica.closed,
        };
        Inventory { replicas: replicas.map(info).collect() }
    }

    /// Refuses further changes by a master, because its replicas are about to be read.
    pub fn fence(&mut self, master: MasterId) {
        self.on_master_gone(master);
        self.store.gives_way(master);
    }

    /// Remembers that a master is gone. After very many, the first ones are forgotten: the server
    /// list says by then that they are gone, and none of their messages is in flight for so long.
    fn on_master_gone(&mut self, master: MasterId) {
        self.gone.insert(master);
        while self.gone.len() > GONE_MAX {
            self.gone.pop_first();
        }
    }

    /// Frees all replicas of a master, which gets no others here.
    pub fn free_master(&mut self, master: MasterId) {
        self.store.free_master(master);
        self.store.forget_lineage(master);
        self.on_master_gone(master);
        self.freed_replicas.forget(master);
        self.pages.forget(master);
        self.recoveries.forget(master);
    }

    /// Frees all replicas of a master except closed ones of these segments. Returns how many
    /// remain.
    pub fn free_rest(&mut self, master: MasterId, keep: &BTreeSet<SegmentId>) -> u64 {
        self.fence(master);
        let freed = self.store.free_rest(master, keep);
        freed.into_iter().for_each(|id| self.pages.forget_one(id));
        self.store.count_of(master)
    }

    /// Returns the backup's state.
    #[must_use]
    pub fn status(&self) -> BackupStatus {
        let (recovery_bytes_read, recovery_bytes_held) = self.recoveries.progress();
        BackupStatus {
            recovery_bytes_read,
            recovery_bytes_held,
            frames: u64::from(self.store.superblock().geometry.frames),
            frames_free: self.store.frames_free() as u64,
            frames_damaged: self.store.frames_damaged() as u64,
            read_bytes_per_second: self.read_bytes_per_second,
            durability: self.store.durability().to_string(),
        }
    }
}

/// The answer to a request for a replica that is not served, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The status of the answer.
    pub status: Status,
    /// How many microseconds the caller waits before it repeats the request, if it may.
    pub hint: u32,
    /// A number with more detail, or 0: [`Unserved::code`].
    pub detail: u64,
}

impl Refused {
    fn with(status: Status, hint: u32) -> Refused {
        Refused { status, hint, detail: 0 }
    }

    fn because(why: &Unserved) -> Refused {
        let (status, hint) = match why {
            Unserved::Refused(Refusal::NotFound(_)) | Unserved::Unread(ReadError::Gone) => {
                (Status::NotFound, 0)
            }
            Unserved::Refused(Refusal::Overloaded) => (Status::Busy, BUSY_US),
            _ => (Status::Refused, 0),
        };
        Refused { status, hint, detail: u64::from(why.code()) }
    }

    fn tell(self, context: &mut Context<'_>, to: ReplyTo) {
        let detail = self.detail.to_le_bytes();
        let details: &[&[u8]] = if self.detail == 0 { &[] } else { &[&detail] };
        context.refuse(to, self.status, self.hint, details);
    }
}

/// Whether a request changes replicas. A message of a master without parts does not.
fn changes_replicas(opcode: Opcode, body: &[u8]) -> bool {
    match opcode {
        Opcode::Replicate => body.len() > size_of::<ReplicateHead>(),
        Opcode::FreeMaster | Opcode::FreeRest => true,
        _ => false,
    }
}

/// Settles the parts with a ticket: the change is durable, or the disk refused it.
fn settle(waiting: &mut VecDeque<WaitingAnswer>, ticket: Ticket, failed: bool) {
    let holds = |it: &&mut WaitingAnswer| it.tickets.iter().any(|(own, _)| *own == ticket);
    let Some(found) = waiting.iter_mut().find(holds) else { return };
    let WaitingAnswer { tickets, answers, .. } = found;
    tickets.retain(|(own, part)| {
        if *own == ticket
            && failed
            && let Some(answer) = answers.get_mut(*part)
        {
            *answer = PartAnswer::new(INTERRUPTED, 0);
        }
        *own != ticket
    });
}

/// The service of a node that is only a backup.
impl thunderhead_rpc::Service for Service {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        Service::request(self, context, request);
    }

    fn timer(&mut self, _: &mut Context<'_>, _: OwnerId) {
        self.on_timer();
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        Service::turn_over(self, context);
    }
}
