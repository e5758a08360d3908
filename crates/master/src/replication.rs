//! Keeps copies of a log's segments on backups: the manager of one shard's replicas.
//!
//! ```text
//!   log ──opened, appended, closed, freed──► State ──Request──► backups, coordinator
//!   log ◄────────────── durable ───────────── State ◄─answered──
//! ```
//!
//! It does no I/O: [`Replication::turn`] looks at the state and makes requests. Its owner sends
//! them and reports the outcome of each. The log's side, made together with it, is the
//! [`thunderhead_log::Replicator`], which the log calls when its segments change. Only the log's
//! thread uses both. Their shared state is in a lock only because the log may be sent to another
//! thread.
//!
//! # Rules
//!
//! - **The order is law.** A head is opened once all bytes of the previous head are on all its
//!   replicas. The old head is closed once the new one's digest is on its replicas. Data goes to
//!   the new head once the old one is closed. So a crash always leaves the state after some prefix
//!   of the log's calls, and some open head has a digest of a complete log.
//! - **A byte counts once all replicas have it, and there are `min_replicas` at least.** A place in
//!   which no server can keep a replica is *waived*: the segment goes on without it until a server
//!   can. With fewer than `min_replicas` nothing more becomes durable, and [`Replication::remarks`]
//!   reports it. `docs/design/2026-11-26-min-replicas.md` has the argument.
//! - **The epoch tells a lost replica of an open segment from the remaining ones.** A new replica
//!   is made elsewhere, in atomic mode. It and the remaining replicas get a higher epoch. The
//!   coordinator notes that epoch. Only then do bytes count again. The order matters: if the
//!   coordinator knew the epoch before the replicas did, a crash in between would leave no replica
//!   that counts.
//! - **An open replica counts only if its segment is a head.** Survivors and side segments join the
//!   log by a digest, which is written once all their replicas are closed. So their replicas begin
//!   in atomic mode and count when they are closed. A partial replica that remains on a backup
//!   after it was made again elsewhere must not pass for the whole segment. The epoch cannot tell
//!   them apart, for the coordinator notes epochs of heads only. The coordinator does not rely on
//!   this rule: it uses an open replica only if that holds a digest that names its own segment, as
//!   every head's does.
//! - **A replica that joins the others of an open head counts as soon as COMMIT is sent to it.** A
//!   recovery may use it from then on, so bytes wait for it from then on. Before, it is invisible,
//!   and its place waived or empty.
//! - **A lost replica of a closed segment is made again in the background,** a few at a time, the
//!   oldest first, from memory. Compaction may have made the segment in memory shorter than the
//!   other replicas. All of them are whole: a recovery takes any closed replica, and must not
//!   expect them to have one length. The entries that compaction dropped were superseded by entries
//!   appended before. So the copy is closed only once these are durable
//!   ([`thunderhead_log::Log::segment_bytes`]).
//! - **The same bytes are sent again** when a request is repeated: they are kept until they are
//!   acknowledged. (In memory the dead bits may have changed since, and a backup refuses bytes that
//!   differ.)
//! - **Each new replica of a segment has a higher epoch than its predecessors,** and is freed by
//!   that epoch. So a delayed message never hits a later replica.
//!
//! A server that restarts still has its frames. The master asks for its closed replicas instead of
//! making them again; its open replicas count as interrupted.
//!
//! # Where replicas go
//!
//! Randomization with refinement: five servers are drawn at random. The primary replica (the first
//! of each segment, which recovery reads) goes to the one of them that would take the least time to
//! read its present primary replicas. The other replicas go to the first suitable server. Never the
//! own server, unless it is the only one and `self_backup` holds. Never two on one host, nor in one
//! rack if racks are named, unless the cluster has too few hosts (or racks) for that, whether they
//! are up or not. A backup may refuse.
//!
//! # Modules
//!
//! `segment` holds the state of a segment and its replicas; `replicator` is the log's side;
//! `placement` chooses servers; `messages` makes requests and reads answers; `copies` has bytes
//! fetched from memory; `blocks` keeps bytes until all replicas have them; `gathering` delays
//! messages while backup syncs are slow, so that more writes share a sync; `adopt` takes over
//! replicas of the log's previous generation; `remains` frees the remains of lost replicas; `risk`
//! knows the segments with too few replicas; `lease` knows until when reads may be answered;
//! `driver` connects the manager with a shard; `trial` is placement by itself, for models.

mod adopt;
mod blocks;
mod copies;
mod driver;
mod gathering;
mod lease;
mod messages;
mod placement;
mod remains;
mod replicator;
mod risk;
mod segment;
mod trial;

pub(crate) use adopt::AdoptedReplicas;
pub use driver::{LocalAnswer, LocalBackup, LocalReplica, ReplicaBytes};
pub(crate) use driver::{OwnBackup, ReplicationDriver};
pub use gathering::AwaitedAnswers;
pub use trial::PlacementTrial;

use crate::limits::{BESIDE_HEADS_MAX, BYTES_BESIDE_HEADS, FETCHED_BYTES};
use blocks::SpareBlocks;
use gathering::Gathering;
use lease::Lease;
use messages::{InFlight, Outgoing};
use placement::Servers;
use remains::PendingFrees;
use risk::Risk;
use segment::Segment;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thunderhead_log::{Log, Replicator};
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::control::{AtRisk, ServerList};
use thunderhead_wire::{LogPosition, MasterId, SegmentId, ServerId};

/// The settings of a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The server it is part of.
    pub server: ServerId,
    /// The machine of this server.
    pub host: String,
    /// The rack of this server, if racks matter.
    pub rack: String,
    /// The master that owns the log.
    pub master: MasterId,
    /// Replicas of each segment. 0: none, all bytes count at once.
    pub replicas: u32,
    /// The number of replicas without which no byte counts: 1 to `replicas`. A server list may
    /// change it.
    pub min_replicas: u32,
    /// The own server may keep a replica, if there is no other server.
    pub self_backup: bool,
    /// Bytes of a full segment.
    pub segment_bytes: u32,
    /// The maximum bytes of segments in a message to a backup: [`MESSAGE_BYTES`], or less.
    pub message_bytes: u32,
}

/// The default for the bytes of segments in a message to a backup. A backup copies them and
/// computes their checksums in one turn, which takes some 90 us on a busy machine. More would make
/// the turn too long.
pub const MESSAGE_BYTES: u32 = 128 << 10;

/// The receiver of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// A backup.
    Backup(ServerId, SocketAddr),
    /// The leading coordinator.
    Coordinator,
}

/// A request to be sent. The caller reports its outcome to [`Replication::answered`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number of the request.
    pub number: u64,
    /// The receiver.
    pub to: To,
    /// The operation.
    pub opcode: Opcode,
    /// The request's body. [`Replication::recycle`] takes it back.
    pub body: Vec<u8>,
}

/// The work that a manager has done, and its present state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicationStatistics {
    /// Segments of the log.
    pub segments: u64,
    /// The segments of these that lack replicas.
    pub segments_short: u64,
    /// Messages to backups.
    pub messages: u64,
    /// Bytes of segments in them, repeated ones included.
    pub bytes: u64,
    /// Messages that only ask whether a backup still takes this master's replicas.
    pub confirmations: u64,
    /// Messages without an answer.
    pub failures: u64,
    /// Parts that a backup refused.
    pub refusals: u64,
    /// Replicas that were lost.
    pub replicas_lost: u64,
    /// Replicas of closed segments that were made again.
    pub copies: u64,
    /// Epochs that the coordinator noted.
    pub epochs_raised: u64,
}

/// The state that manager and log share.
pub(crate) struct State {
    settings: Settings,
    random: Random,
    now: Time,
    segments: BTreeMap<SegmentId, Segment>,
    /// Heads that are not durable whole, in their order.
    heads: VecDeque<SegmentId>,
    durable: LogPosition,
    /// Segments for which there may be something to do now.
    active: BTreeSet<SegmentId>,
    /// Segments that were whole and have replicas to be asked for or made again.
    to_mend: BTreeSet<SegmentId>,
    /// The segment from which the search through them continues.
    mend_from: SegmentId,
    /// The few of these that are being made.
    copying: Vec<SegmentId>,
    /// When to look again which of them can be made.
    mend_at: Time,
    risk: Risk,
    servers: Servers,
    pending_frees: BTreeMap<ServerId, PendingFrees>,
    lease: Lease,
    gathering: Gathering,
    outgoing: VecDeque<Outgoing>,
    in_flight: Vec<InFlight>,
    /// Numbers requests and placements.
    numbers: u64,
    spare: Vec<Vec<u8>>,
    /// The bytes of survivors and side segments that this turn may still send.
    room_beside_heads: usize,
    /// The first of these segments for which the last turn had no room left. The next turn begins
    /// with it, so that no segment waits for all older ones.
    next_beside_heads: SegmentId,
    /// The bytes that this turn may still copy from memory.
    room_to_fetch: usize,
    /// Blocks of segments that are whole, for the next ones.
    spare_blocks: SpareBlocks,
    scratch: Vec<SegmentId>,
    wake: Option<Time>,
    is_deposed: bool,
    statistics: ReplicationStatistics,
}

impl State {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Renews the bytes that a turn may send and copy.
    fn renew_room(&mut self) {
        let more = BYTES_BESIDE_HEADS * self.settings.replicas as usize;
        let most = more.max(BESIDE_HEADS_MAX);
        self.room_beside_heads = most.min(self.room_beside_heads + more);
        self.room_to_fetch = FETCHED_BYTES;
    }

    fn wake_at(&mut self, at: Time) {
        self.wake = Some(self.wake.map_or(at, |known| known.min(at)));
    }
}

/// The state that manager and log share, in its lock.
#[derive(Clone)]
struct Shared(Arc<Mutex<State>>);

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The status of replication, all read in one look: the end of a turn needs each part of it.
#[derive(Clone, Copy, Debug)]
pub struct ReplicationStatus {
    /// There are requests to be sent.
    pub has_requests: bool,
    /// How far the log's heads are durable.
    pub durable: LogPosition,
    /// The time until which reads may be answered: the module `lease` gives the reason.
    pub reads_until: Time,
    /// When it wants a turn if no message arrives.
    pub deadline: Option<Time>,
    /// A backup reports that this master was declared crashed: nothing more will be durable.
    pub is_deposed: bool,
}

/// The manager. See the [module](self).
pub struct Replication {
    shared: Shared,
}

impl Replication {
    /// Returns a manager and the log's side of it.
    #[must_use]
    pub fn new(settings: Settings, random: Random) -> (Replication, Box<dyn Replicator>) {
        let state = State {
            settings,
            random,
            now: Time(0),
            segments: BTreeMap::new(),
            heads: VecDeque::new(),
            durable: LogPosition::default(),
            active: BTreeSet::new(),
            to_mend: BTreeSet::new(),
            mend_from: SegmentId::NONE,
            copying: Vec::new(),
            mend_at: Time(0),
            risk: Risk::default(),
            servers: Servers::default(),
            pending_frees: BTreeMap::new(),
            lease: Lease::default(),
            gathering: Gathering::new(),
            outgoing: VecDeque::new(),
            in_flight: Vec::new(),
            numbers: 0,
            spare: Vec::new(),
            room_beside_heads: BESIDE_HEADS_MAX,
            next_beside_heads: SegmentId::NONE,
            room_to_fetch: FETCHED_BYTES,
            spare_blocks: SpareBlocks::default(),
            scratch: Vec::new(),
            wake: None,
            is_deposed: false,
            statistics: ReplicationStatistics::default(),
        };
        let shared = Shared(Arc::new(Mutex::new(state)));
        let replicator = Box::new(replicator::LogSide(shared.clone()));
        (Replication { shared }, replicator)
    }

    /// Learns the server list. A list that is older than the last one changes nothing.
    pub fn learn(&mut self, list: &ServerList) {
        self.shared.state().learn(list);
    }

    /// Begins a turn: looks at the state, makes the requests that it needs and returns the status.
    /// `awaited` returns the number of answers that wait, given the durable position.
    pub fn turn(
        &mut self,
        now: Time,
        log: &mut Log,
        awaited: impl FnOnce(LogPosition) -> AwaitedAnswers,
    ) -> ReplicationStatus {
        self.shared.state().renew_room();
        self.turn_again(now, log, awaited)
    }

    /// The same, once more in a turn that has begun: after an answer that came at once.
    pub(crate) fn turn_again(
        &mut self,
        now: Time,
        log: &mut Log,
        awaited: impl FnOnce(LogPosition) -> AwaitedAnswers,
    ) -> ReplicationStatus {
        let mut state = self.shared.state();
        state.turn(now, log, awaited);
        state.status()
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> ReplicationStatus {
        self.shared.state().status()
    }

    /// Returns the next request to be sent.
    pub fn next_request(&mut self) -> Option<Request> {
        let mut state = self.shared.state();
        loop {
            let outgoing = state.outgoing.pop_front()?;
            if let Some(request) = state.whole(outgoing) {
                return Some(request);
            }
        }
    }

    /// The same, with its body where it lies.
    pub(crate) fn next_outgoing(&mut self) -> Option<Outgoing> {
        self.shared.state().outgoing.pop_front()
    }

    /// Sends a request by way of its pieces. `None` if it is no longer needed.
    pub(crate) fn send_pieces<R>(
        &mut self,
        outgoing: Outgoing,
        send: impl FnOnce(&[&[u8]]) -> R,
    ) -> Option<R> {
        let mut state = self.shared.state();
        let sent = state.with_pieces(&outgoing, send);
        match sent {
            Some(_) => state.recycle(outgoing.request.body),
            None => state.not_sent(outgoing.request),
        }
        sent
    }

    /// Takes a request's body back, to be used again.
    pub fn recycle(&mut self, body: Vec<u8>) {
        self.shared.state().recycle(body);
    }

    /// Takes the outcome of a request. An unknown or repeated answer changes nothing.
    pub fn answered(&mut self, now: Time, number: u64, outcome: Result<&[u8], CallError>) {
        self.shared.state().answered(now, number, outcome);
    }

    /// Remarks for an operator, in sentences.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        self.shared.state().remarks()
    }

    /// Segments that have fewer replicas than they should, if there are some.
    #[must_use]
    pub fn at_risk(&self) -> Option<AtRisk> {
        self.shared.state().at_risk()
    }

    /// Returns the work done so far, and the present state.
    #[must_use]
    pub fn statistics(&self) -> ReplicationStatistics {
        self.shared.state().statistics()
    }
}

impl State {
    fn status(&self) -> ReplicationStatus {
        ReplicationStatus {
            has_requests: !self.outgoing.is_empty(),
            durable: self.durable,
            reads_until: if self.settings.replicas == 0 { Time::NEVER } else { self.lease.until },
            deadline: self.wake,
            is_deposed: self.is_deposed,
        }
    }

    fn turn(
        &mut self,
        now: Time,
        log: &mut Log,
        awaited: impl FnOnce(LogPosition) -> AwaitedAnswers,
    ) {
        (self.now, self.wake) = (now, None);
        if self.settings.replicas == 0 || self.is_deposed {
            return;
        }
        self.gathering.awaiting(now, awaited(self.durable));
        self.take_up_mending(log);
        if let Some(at) = self.spare_blocks.tidy(now) {
            self.wake_at(at);
        }
        let mut ids = std::mem::take(&mut self.scratch);
        ids.clear();
        ids.extend(self.active.iter().copied());
        for id in &ids {
            self.place(*id);
            self.fetch(*id, log);
            self.raise_epoch(*id);
        }
        self.make_messages(&ids);
        self.ask_for_words();
        for id in &ids {
            let segment = self.segments.get(id);
            self.risk.assess(*id, segment);
            if segment.is_none_or(Segment::is_at_rest) && !self.copying.contains(id) {
                self.active.remove(id);
            }
        }
        self.scratch = ids;
        self.tell_of_risk();
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.is_deposed {
            remarks.push(format!(
                "the cluster has declared {} crashed: nothing more becomes durable here",
                self.settings.master
            ));
        }
        remarks.extend(self.at_risk().map(|risk| self.risk_remark(&risk)));
        remarks.extend(self.servers.remarks(&self.settings));
        remarks
    }

    fn statistics(&self) -> ReplicationStatistics {
        let short = self.segments.values().filter(|segment| segment.is_short()).count();
        ReplicationStatistics {
            segments: self.segments.len() as u64,
            segments_short: short as u64,
            ..self.statistics
        }
    }
}
