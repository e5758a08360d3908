//! Keeps copies of a log's segments on backups: the manager of one shard's replicas.
//!
//! ```text
//!   log ──opened, appended, closed, freed──► State ──Request──► backups, coordinator
//!   log ◄────────────── durable ───────────── State ◄─answered──
//! ```
//!
//! It does no I/O: [`Replication::turn`] looks at what there is and makes requests, whoever owns it
//! sends them and tells what came of each. Its other half, made together with it, is what the log
//! tells of its segments ([`thunderhead_log::Replicator`]). Both are used by the log's thread alone;
//! what they share is in a lock only because the log may be sent to another thread.
//!
//! # Rules
//!
//! - **The order is law.** A head is opened once all bytes of the one before are on all its replicas;
//!   the old one is closed once the new one's digest is; data goes to the new one once that is closed.
//!   So what a crash leaves is what some prefix of the log's calls made, and some open head has a
//!   digest of a complete log.
//! - **A byte counts once all replicas have it, and there are `min_replicas` at least.** A place in which no
//!   server can keep a replica is *waived*: the segment goes on without it, until one can. With fewer than
//!   `min_replicas` nothing more becomes durable, and [`Replication::remarks`] says so.
//!   `docs/design/2026-11-26-min-replicas.md` has the argument.
//! - **A replica of an open segment that was lost is told from those that go on by its epoch.** A new
//!   one is made elsewhere, in atomic mode; it and those that are left get a higher epoch; the
//!   coordinator notes that epoch; only then do bytes count again. In this order: if the coordinator
//!   knew the epoch before the replicas did, a crash in between would leave none that counts.
//! - **An open replica counts only if its segment is a head.** Survivors and side segments come into the log by a
//!   digest that is written once all their replicas are closed. So their replicas are begun in atomic mode and count
//!   when they are closed: a part of one that was left on a backup, and was made again elsewhere, must not
//!   pass for the whole segment. The epoch cannot tell it, for the coordinator notes epochs of heads only.
//!   The coordinator does not rely on this: it uses an open replica only if that holds a digest that names its
//!   own segment, as every head's does.
//! - **A replica of an open head that joins the others counts from the moment when COMMIT is sent to it:** a recovery
//!   may use it from then on, so bytes wait for it from then on. Before it is invisible, and its place waived or empty.
//! - **A replica of a closed segment that was lost is made again in the background,** a few at a
//!   time, the oldest first, from memory. Compaction may have made that shorter than the other replicas. All of them are
//!   whole: a recovery takes any closed one, and must not expect that they are of one length. What
//!   compaction dropped was replaced by something appended before, so the copy is closed only once
//!   that is durable ([`thunderhead_log::Log::segment_bytes`]).
//! - **The same bytes are sent again** when a request is repeated: they are kept until they are
//!   acknowledged. (In memory the dead bits may have changed since, and a backup refuses bytes that
//!   differ.)
//! - **Each new replica of a segment has a higher epoch than those before it,** and is freed by that
//!   epoch, so that no message that was under way for long hits a later one.
//!
//! A server that comes again still has its frames. Its closed replicas are asked for, not made again;
//! its open ones are found to be interrupted.
//!
//! # Where replicas go
//!
//! Randomization with refinement: of five servers drawn at random, the one that would take least time
//! to read the primary replicas it has (the first of each segment; recovery reads those), for the
//! others just the first that will do. Never the own server, unless it is the only one and
//! `self_backup` holds; never two on one host, nor in one rack where racks are named, unless the
//! cluster has too few hosts (or racks) for that however many of them are up. A backup may refuse.
//!
//! # Modules
//!
//! `segment` is what is known of a segment and its replicas; `replicator` the log's half; `placement`
//! chooses servers; `messages` makes requests and understands answers; `copies` has bytes fetched
//! from memory; `blocks` keeps bytes until all replicas have them; `gathering` has what was written wait for more of it, where rounds take long; `adopt` takes over replicas of the log's former life; `rests` has freed what is left of lost ones; `risk` knows what has too few; `lease` knows until when reads may be answered; `link` connects it with a shard; `trial` is placement by itself, for models.

mod adopt;
mod blocks;
mod copies;
mod gathering;
mod lease;
mod link;
mod messages;
mod placement;
mod replicator;
mod rests;
mod risk;
mod segment;
mod trial;

pub(crate) use adopt::Home;
pub use gathering::Awaited;
pub(crate) use link::Link;
pub(crate) use link::Own;
pub use link::{LocalAnswer, LocalBackup, LocalReplica, ReplicaBytes};
pub use trial::Trial;

use blocks::SpareBlocks;
use gathering::Gathering;
use lease::Lease;
use messages::{InFlight, Outgoing};
use placement::Servers;
use rests::Frees;
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

/// What a manager is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The server it is part of.
    pub server: ServerId,
    /// The machine that is on.
    pub host: String,
    /// The rack that is in, if racks matter.
    pub rack: String,
    /// Whose log it is.
    pub master: MasterId,
    /// Replicas of each segment. 0: none, everything counts at once.
    pub replicas: u32,
    /// Replicas without which nothing counts: 1 to `replicas`. A list of servers may bring another number.
    pub min_replicas: u32,
    /// The own server may keep a replica, where there is no other one.
    pub self_backup: bool,
    /// Bytes of a full segment.
    pub segment_bytes: u32,
    /// Bytes of a message to a backup at most, but for the heads of its last parts: [`MESSAGE_BYTES`], or less.
    pub message_bytes: u32,
}

/// Bytes of a message to a backup, where nothing else is wanted: to copy more and to compute its checksums would take a
/// backup longer than a turn may last.
pub const MESSAGE_BYTES: u32 = 256 << 10;

/// To whom a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// A backup.
    Backup(ServerId, SocketAddr),
    /// Whoever leads.
    Coordinator,
}

/// Something to be sent. [`Replication::answered`] is told what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which it is.
    pub number: u64,
    /// To whom it goes.
    pub to: To,
    /// What is asked for.
    pub opcode: Opcode,
    /// With what. [`Replication::recycle`] takes it back.
    pub body: Vec<u8>,
}

/// What a manager has done, and what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicationStatistics {
    /// Segments that are there.
    pub segments: u64,
    /// Of these, such that lack replicas.
    pub segments_short: u64,
    /// Messages to backups.
    pub messages: u64,
    /// Bytes of segments in them, repeated ones included.
    pub bytes: u64,
    /// Messages that only ask whether a backup still takes this master's replicas.
    pub confirmations: u64,
    /// Messages without an answer.
    pub failures: u64,
    /// Parts that a backup had something against.
    pub refusals: u64,
    /// Replicas that were lost.
    pub replicas_lost: u64,
    /// Replicas of closed segments that were made again.
    pub copies: u64,
    /// Epochs that the coordinator noted.
    pub epochs_raised: u64,
}

/// What manager and log share.
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
    /// Where looking through them goes on.
    mend_from: SegmentId,
    /// Of these, those that are being made: few.
    copying: Vec<SegmentId>,
    /// When it is looked again which of them can be made.
    mend_at: Time,
    risk: Risk,
    servers: Servers,
    frees: BTreeMap<ServerId, Frees>,
    lease: Lease,
    gathering: Gathering,
    outgoing: VecDeque<Outgoing>,
    in_flight: Vec<InFlight>,
    /// Numbers requests and placements.
    numbers: u64,
    spare: Vec<Vec<u8>>,
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

    fn wake_at(&mut self, at: Time) {
        self.wake = Some(self.wake.map_or(at, |known| known.min(at)));
    }
}

/// What manager and log share, in its lock.
#[derive(Clone)]
struct Shared(Arc<Mutex<State>>);

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How things stand, all of it learned in one look: whoever waits for a turn's end waits for each.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// There are requests to be sent.
    pub has_requests: bool,
    /// How far the log's heads are durable.
    pub durable: LogPosition,
    /// Until when reads may be answered: the module `lease` says why.
    pub reads_until: Time,
    /// When it wants a turn though nothing happens.
    pub deadline: Option<Time>,
    /// A backup says that this master was given up: nothing more will be durable.
    pub is_deposed: bool,
}

/// The manager. See the [module](self).
pub struct Replication {
    shared: Shared,
}

impl Replication {
    /// A manager, and what is given to the log that it is for.
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
            frees: BTreeMap::new(),
            lease: Lease::default(),
            gathering: Gathering::default(),
            outgoing: VecDeque::new(),
            in_flight: Vec::new(),
            numbers: 0,
            spare: Vec::new(),
            spare_blocks: SpareBlocks::default(),
            scratch: Vec::new(),
            wake: None,
            is_deposed: false,
            statistics: ReplicationStatistics::default(),
        };
        let shared = Shared(Arc::new(Mutex::new(state)));
        let replicator = Box::new(replicator::Half(shared.clone()));
        (Replication { shared }, replicator)
    }

    /// Learns who there is. An older list than the last one changes nothing.
    pub fn learn(&mut self, list: &ServerList) {
        self.shared.state().learn(list);
    }

    /// Looks at what there is, makes the requests that it wants and says how things stand. `awaited` is asked how many
    /// answers wait where this is durable.
    pub fn turn(
        &mut self,
        now: Time,
        log: &mut Log,
        awaited: impl FnOnce(LogPosition) -> Awaited,
    ) -> Standing {
        let mut state = self.shared.state();
        state.turn(now, log, awaited);
        state.standing()
    }

    /// How things stand.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.shared.state().standing()
    }

    /// The next request to be sent.
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

    /// Sends a request by way of its pieces; `None` where nobody needs it any more.
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

    /// What came of a request. One that is not known, or was answered before, changes nothing.
    pub fn answered(&mut self, now: Time, number: u64, outcome: Result<&[u8], CallError>) {
        self.shared.state().answered(now, number, outcome);
    }

    /// What an operator should know, in sentences.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        self.shared.state().remarks()
    }

    /// Segments that have fewer replicas than they should, if there are some.
    #[must_use]
    pub fn at_risk(&self) -> Option<AtRisk> {
        self.shared.state().at_risk()
    }

    /// What it has done, and what there is.
    #[must_use]
    pub fn statistics(&self) -> ReplicationStatistics {
        self.shared.state().statistics()
    }
}

impl State {
    fn standing(&self) -> Standing {
        Standing {
            has_requests: !self.outgoing.is_empty(),
            durable: self.durable,
            reads_until: if self.settings.replicas == 0 { Time::NEVER } else { self.lease.until },
            deadline: self.wake,
            is_deposed: self.is_deposed,
        }
    }

    fn turn(&mut self, now: Time, log: &mut Log, awaited: impl FnOnce(LogPosition) -> Awaited) {
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
                "the cluster has given {} up: nothing more becomes durable here",
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
