//! The service: the leader answers requests, the other coordinators answer *not leader*.

use crate::formats;
use crate::leadership::{Backoff, Leadership};
use crate::leases;
use crate::limits::{EVENT_TOLD, REQUESTS_MAX};
use crate::metastore_client::MetastoreClient;
use crate::migrations;
use crate::options::Options;
use crate::probes;
use crate::recoveries;
use crate::refusal::{Outcome, Refusal};
use crate::servers;
use crate::tables;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use thunderhead_metastore::{
    Fence, Holder, Keeper, Key, LeaseName, Metastore, News, Request as Ask, Version,
};
use thunderhead_rpc::{
    Context, ForeignPeer, Opcode, ReplyTo, Request, Service, ServiceKind, TaskCaller,
};
use thunderhead_runtime::tasks::Tasks;
use thunderhead_runtime::timers::TimerId;
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::control::{
    ChangeSettings, CheckLeases, ClusterStatus, CreateTable, DropTable, Empty, Enlist,
    ForgetServer, Lease, Map, MapRequest, MigrateTablet, OfMaster, RaiseEpoch, Recovered,
    RecoveryInfo, Register, ServerList, SplitTablet, of_body, to_body,
};
use thunderhead_wire::membership::Suspect;
use thunderhead_wire::{ClusterId, ServerId, Status};

/// The timer for the turns of the metastore and the leadership.
const TIMER: u64 = 4 << 32;

/// The name of the metastore's lease that the leader holds.
const LEADERSHIP: &str = "coordinator";

/// The state that the service, its tasks and its handles share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) metastore: MetastoreClient,
    pub(crate) random: RefCell<Random>,
    tools: OnceCell<(Tasks, TaskCaller)>,
    keeper: RefCell<Option<Keeper>>,
    leadership: RefCell<Option<Rc<Leadership>>>,
    /// The answers that tasks have decided.
    answers: RefCell<Vec<DecidedAnswer>>,
    /// The number of requests that wait for tasks.
    waiting: Cell<usize>,
    remarks: RefCell<BTreeMap<&'static str, Remark>>,
    resigned: Cell<bool>,
    /// The cluster that this process has created.
    founded: Cell<Option<ClusterId>>,
    /// The last peer that belongs to another cluster.
    foreign_peer: Cell<Option<ForeignPeer>>,
    /// The key of this coordinator's value for other coordinators.
    pub(crate) key: OnceCell<Key>,
    /// The version of that value, if it is written.
    pub(crate) announced: Cell<Option<Version>>,
    /// Whether it is deleting that value.
    pub(crate) withdraws: Cell<bool>,
    /// This coordinator's name for people.
    pub(crate) name: OnceCell<String>,
}

/// A fact that an operator should know.
struct Remark {
    text: String,
    /// A remark about an event ends at this time. A remark about a state ends with the state.
    until: Option<Time>,
}

/// A cluster's coordinator, leading or standing by. See the crate's documentation.
pub struct Coordinator {
    shared: Rc<Shared>,
    timer: Option<(Time, TimerId)>,
}

/// A handle to a coordinator, for its own thread.
#[derive(Clone)]
pub struct Handle(Rc<Shared>);

impl Coordinator {
    /// Returns a coordinator that keeps its state in a metastore. The metastore's client rings the
    /// alarm of the world from which the coordinator's node is made.
    #[must_use]
    pub fn new(store: Box<dyn Metastore>, options: Options) -> Coordinator {
        let shared = Shared {
            options,
            metastore: MetastoreClient::new(store),
            // The node provides better random numbers from its first turn on.
            random: RefCell::new(Random::from_seed(0)),
            tools: OnceCell::new(),
            keeper: RefCell::default(),
            leadership: RefCell::default(),
            answers: RefCell::default(),
            waiting: Cell::new(0),
            remarks: RefCell::default(),
            resigned: Cell::new(false),
            founded: Cell::new(None),
            foreign_peer: Cell::new(None),
            key: OnceCell::new(),
            announced: Cell::new(None),
            withdraws: Cell::new(false),
            name: OnceCell::new(),
        };
        Coordinator { shared: Rc::new(shared), timer: None }
    }

    /// Returns a handle, for use after the coordinator has become a part of a node.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle(Rc::clone(&self.shared))
    }

    /// See [`Handle::server_failed`].
    pub fn server_failed(&self, server: ServerId, generation: u64) -> bool {
        self.handle().server_failed(server, generation)
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        // A leadership and its shared state hold each other.
        if let Some(leadership) = self.shared.leadership.take() {
            leadership.end();
        }
    }
}

impl Handle {
    /// Whether it leads and has read the recorded state.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.0.leadership_at(self.0.now()).is_some_and(|leadership| leadership.is_loaded())
    }

    /// Declares one generation of a server crashed. The coordinator writes that down, tells all
    /// servers, and recovers the server's tablets. Returns whether that has begun: only a leader
    /// declares verdicts.
    pub fn server_failed(&self, server: ServerId, generation: u64) -> bool {
        let leadership =
            self.0.leadership_at(self.0.now()).filter(|leadership| leadership.is_loaded());
        let Some(leadership) = leadership else { return false };
        let busy = Rc::clone(&leadership);
        leadership.spawn(async move {
            let mut backoff = Backoff::default();
            while servers::failed(&busy, server, generation).await.is_err() {
                busy.sleep(backoff.next()).await;
            }
        });
        true
    }

    /// Gives the leadership back, if this coordinator has it, and does not request it again. The
    /// process is about to end, and another coordinator then need not wait until the lease expires.
    pub fn resign(&self) {
        self.0.resigned.set(true);
        let now = self.0.now();
        if let Some(keeper) = &mut *self.0.keeper.borrow_mut() {
            self.0.metastore.resign(now, keeper);
        }
        if let Some(leadership) = self.0.leadership.take() {
            leadership.end();
        }
        formats::withdraw(&self.0);
    }

    /// Whether it has resigned and the metastore knows.
    #[must_use]
    pub fn has_resigned(&self) -> bool {
        let keeper = self.0.keeper.borrow();
        self.0.resigned.get()
            && !self.0.withdraws.get()
            && keeper.as_ref().is_none_or(Keeper::is_settled)
    }

    /// Returns the facts that an operator should know, as sentences.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        self.0.remarks_at(self.0.now())
    }

    /// Returns all servers, if it leads.
    #[must_use]
    pub fn servers(&self) -> Option<ServerList> {
        let leadership =
            self.0.leadership_at(self.0.now()).filter(|leadership| leadership.is_loaded())?;
        Some(leadership.cluster().list())
    }

    /// Returns the recoveries in progress, if it leads.
    #[must_use]
    pub fn recoveries(&self) -> Option<Vec<RecoveryInfo>> {
        let leadership =
            self.0.leadership_at(self.0.now()).filter(|leadership| leadership.is_loaded())?;
        Some(recoveries::status(&leadership))
    }

    /// Returns the whole map, if it leads. No message carries all of it: see [`MapRequest`].
    #[must_use]
    pub fn map(&self) -> Option<Map> {
        let leadership =
            self.0.leadership_at(self.0.now()).filter(|leadership| leadership.is_loaded())?;
        let cluster = leadership.cluster();
        let tables = cluster.tables().filter(|table| !table.dropped);
        let tables = tables.map(|table| cluster.table_info(table)).collect();
        Some(Map { version: cluster.map_version(), tables, ..Map::default() })
    }
}

impl Shared {
    /// Returns the node's tasks. No code asks for them before the first turn.
    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tools().0
    }

    /// Returns the node's calls.
    pub(crate) fn caller(&self) -> &TaskCaller {
        &self.tools().1
    }

    fn tools(&self) -> &(Tasks, TaskCaller) {
        self.tools.get().expect("there are no tasks before the first turn")
    }

    /// Whether it has given the leadership back for good.
    pub(crate) fn is_resigned(&self) -> bool {
        self.resigned.get()
    }

    /// Returns the time of this turn.
    pub(crate) fn now(&self) -> Time {
        self.tools.get().map_or(Time(0), |(tasks, _)| tasks.now())
    }

    /// Returns the present leadership, while the keeper may believe in the leadership.
    fn leadership_at(&self, now: Time) -> Option<Rc<Leadership>> {
        let keeper = self.keeper.borrow();
        keeper.as_ref()?.fence(now)?;
        self.leadership.borrow().clone()
    }

    /// Notes that this process has created a cluster in an empty metastore.
    pub(crate) fn note_created(&self, cluster: ClusterId) {
        tracing::info!("created a NEW {cluster} in {}", self.options.store);
        self.founded.set(Some(cluster));
    }

    /// Notes a peer of another cluster. If this process has created its own cluster, the disk of
    /// the other cluster's metastore may not be mounted.
    pub(crate) fn note_foreign_peer(&self, peer: &str, cluster: ClusterId) {
        let Some(founded) = self.founded.get() else { return };
        let store = &self.options.store;
        let text = format!(
            "{peer} belongs to {cluster}, but this coordinator created {founded} at its start: is the disk of \
             {store} mounted? If not, stop the coordinator and mount it"
        );
        self.remark_event("founded", &text);
    }

    /// Notes the last peer that was refused because of its cluster.
    fn on_foreign_peer(&self, foreign_peer: Option<ForeignPeer>) {
        if self.foreign_peer.replace(foreign_peer) != foreign_peer
            && let Some(ForeignPeer { address, cluster }) = foreign_peer
        {
            self.note_foreign_peer(&format!("a server or client at {}", address.ip()), cluster);
        }
    }

    /// Notes and logs a state that an operator should know: one sentence for each subject.
    pub(crate) fn remark(&self, about: &'static str, text: &str) {
        self.put_remark(about, text, None);
    }

    /// Notes and logs an event. The status shows it for a while.
    pub(crate) fn remark_event(&self, about: &'static str, text: &str) {
        self.put_remark(about, text, Some(self.now() + EVENT_TOLD));
    }

    fn put_remark(&self, about: &'static str, text: &str, until: Option<Time>) {
        let remark = Remark { text: text.to_owned(), until };
        let before = self.remarks.borrow_mut().insert(about, remark);
        if before.is_none_or(|before| before.text != text) {
            tracing::warn!(about, "{text}");
        }
    }

    /// Notes that a state has ended.
    pub(crate) fn unremark(&self, about: &'static str) {
        if let Some(Remark { text, .. }) = self.remarks.borrow_mut().remove(about) {
            tracing::info!(about, "over: {text}");
        }
    }

    /// Whether there is a remark on a subject.
    pub(crate) fn has_remark(&self, about: &'static str) -> bool {
        self.remarks.borrow().contains_key(about)
    }

    /// Returns the remarks that have not ended.
    fn remarks_at(&self, now: Time) -> Vec<String> {
        let mut remarks = self.remarks.borrow_mut();
        remarks.retain(|_, remark| remark.until.is_none_or(|until| now < until));
        remarks.values().map(|remark| remark.text.clone()).collect()
    }

    /// Makes a new keeper under a new holder id.
    fn renew_keeper(&self) {
        self.renew_keeper_at(Time(0));
    }

    /// Makes a new keeper that does not request the leadership before a time.
    fn renew_keeper_at(&self, time: Time) {
        if self.resigned.get() {
            return;
        }
        let id = self.random.borrow_mut().number();
        let holder = Holder { id, description: self.options.address.clone() };
        // The constant is a valid name.
        let lease = LeaseName::new(LEADERSHIP).ok();
        let ttl = self.options.leadership_ttl;
        let keeper = lease.map(|lease| Keeper::new(lease, holder, ttl).not_before(time));
        *self.keeper.borrow_mut() = keeper;
    }

    /// Ends a leadership and requests the next one.
    pub(crate) fn end_leadership(&self, leadership: &Leadership) {
        self.end_leadership_until(leadership, Time(0));
    }

    /// Ends a leadership and does not request the next one before a time: another coordinator may
    /// do better.
    pub(crate) fn end_leadership_until(&self, leadership: &Leadership, time: Time) {
        if self
            .leadership
            .borrow()
            .as_ref()
            .is_some_and(|it| std::ptr::eq(&raw const **it, leadership))
        {
            self.leadership.take();
        }
        leadership.end();
        self.release(leadership.fence());
        self.renew_keeper_at(time);
    }

    /// Gives back a lease that the store may still count as held.
    fn release(&self, fence: &Fence) {
        drop(self.metastore.ask(self.now(), Ask::Release { fence: fence.clone() }));
    }

    fn turn(self: &Rc<Self>, now: Time) {
        let mut news = Vec::new();
        if let Some(keeper) = &mut *self.keeper.borrow_mut() {
            self.metastore.turn(now, keeper);
            news.extend(std::iter::from_fn(|| keeper.news()));
            // A leader notices trouble by its writes.
            let trouble = keeper.trouble().filter(|_| self.leadership.borrow().is_none());
            match trouble.map(ToString::to_string) {
                Some(trouble) => self.remark("leadership lease", &trouble),
                None if self.has_remark("leadership lease") => self.unremark("leadership lease"),
                None => {}
            }
        }
        for news in news {
            match news {
                News::Won(fence) => {
                    let leadership = Leadership::begin(Rc::clone(self), fence);
                    self.leadership.replace(Some(leadership));
                }
                News::Lost(fence) => {
                    tracing::warn!("this coordinator no longer leads: it did not renew its lease");
                    if let Some(leadership) = self.leadership.take() {
                        leadership.end();
                    }
                    self.release(&fence);
                    self.renew_keeper();
                }
            }
        }
    }

    fn deadline(&self) -> Option<Time> {
        let keeper = self.keeper.borrow();
        let keeper = keeper.as_ref().and_then(Keeper::deadline);
        [self.metastore.deadline(), keeper].into_iter().flatten().min()
    }
}

/// An answer that a task has decided.
struct DecidedAnswer {
    to: ReplyTo,
    outcome: Outcome,
}

/// A request in the hands of a task. It is answered even if the task is dropped.
struct PendingRequest {
    shared: Rc<Shared>,
    reply_to: ReplyTo,
    outcome: Option<Outcome>,
}

impl PendingRequest {
    fn new(shared: &Rc<Shared>, reply_to: ReplyTo) -> PendingRequest {
        shared.waiting.set(shared.waiting.get() + 1);
        PendingRequest { shared: Rc::clone(shared), reply_to, outcome: None }
    }

    fn end(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.shared.waiting.set(self.shared.waiting.get() - 1);
        let outcome = self.outcome.take().unwrap_or(Err(Status::LeadershipLost.into()));
        self.shared.answers.borrow_mut().push(DecidedAnswer { to: self.reply_to, outcome });
    }
}

/// A request for a change.
enum ChangeRequest {
    Register(Register),
    Enlist(Enlist),
    CreateTable(CreateTable),
    DropTable(DropTable),
    SplitTablet(SplitTablet),
    MigrateTablet(MigrateTablet),
    ChangeSettings(ChangeSettings),
    OpenLease,
    CloseLease(Lease),
    RaiseEpoch(RaiseEpoch),
    Recovered(Recovered),
    ForgetServer(ForgetServer),
}

impl ChangeRequest {
    async fn run(self, leadership: &Rc<Leadership>) -> Outcome {
        match self {
            ChangeRequest::Register(message) => servers::register(leadership, message).await,
            ChangeRequest::Enlist(message) => servers::enlist(leadership, message).await,
            ChangeRequest::CreateTable(message) => tables::create(leadership, message).await,
            ChangeRequest::DropTable(message) => tables::drop_table(leadership, message).await,
            ChangeRequest::SplitTablet(message) => tables::split(leadership, message).await,
            ChangeRequest::MigrateTablet(message) => migrations::migrate(leadership, message).await,
            ChangeRequest::ChangeSettings(message) => {
                formats::change_settings(leadership, message).await
            }
            ChangeRequest::OpenLease => leases::open(leadership).await,
            ChangeRequest::CloseLease(Lease { lease }) => leases::close(leadership, lease).await,
            ChangeRequest::RaiseEpoch(message) => servers::raise(leadership, message).await,
            ChangeRequest::Recovered(message) => recoveries::recovered(leadership, message).await,
            ChangeRequest::ForgetServer(message) => {
                servers::forget(leadership, message.server).await
            }
        }
    }
}

/// The way in which a request is handled.
enum Handling {
    /// It is answered at once.
    Now(Outcome),
    /// A task handles it.
    Later(ChangeRequest),
}

/// Decodes a request. Returns `None` if it is malformed.
fn decode(leadership: &Rc<Leadership>, opcode: Opcode, body: &[u8]) -> Option<Handling> {
    let later = |change| Some(Handling::Later(change));
    let now = |outcome| Some(Handling::Now(outcome));
    match opcode {
        Opcode::Register => later(ChangeRequest::Register(of_body(body)?)),
        Opcode::Enlist => later(ChangeRequest::Enlist(of_body(body)?)),
        Opcode::CreateTable => later(ChangeRequest::CreateTable(of_body(body)?)),
        Opcode::DropTable => later(ChangeRequest::DropTable(of_body(body)?)),
        Opcode::SplitTablet => later(ChangeRequest::SplitTablet(of_body(body)?)),
        Opcode::MigrateTablet => later(ChangeRequest::MigrateTablet(of_body(body)?)),
        Opcode::ChangeSettings => later(ChangeRequest::ChangeSettings(of_body(body)?)),
        Opcode::CloseLease => later(ChangeRequest::CloseLease(of_body(body)?)),
        Opcode::RaiseEpoch => later(ChangeRequest::RaiseEpoch(of_body(body)?)),
        Opcode::Recovered => later(ChangeRequest::Recovered(of_body(body)?)),
        Opcode::ForgetServer => later(ChangeRequest::ForgetServer(of_body(body)?)),
        Opcode::OpenLease => {
            of_body::<Empty>(body)?;
            later(ChangeRequest::OpenLease)
        }
        Opcode::Map => now(tables::map(leadership, &of_body::<MapRequest>(body)?)),
        Opcode::RenewLease => now(leases::renew(leadership, of_body::<Lease>(body)?.lease)),
        Opcode::CheckLeases => {
            now(leases::check(leadership, &of_body::<CheckLeases>(body)?.leases))
        }
        Opcode::Suspect => now(probes::suspected(leadership, of_body::<Suspect>(body)?)),
        Opcode::ConfirmMaster => {
            now(servers::confirm(leadership, of_body::<OfMaster>(body)?.master))
        }
        Opcode::ServerList => {
            of_body::<Empty>(body)?;
            now(Ok(to_body(&leadership.cluster().list())))
        }
        Opcode::ClusterStatus => {
            of_body::<Empty>(body)?;
            now(Ok(to_body(&status(leadership))))
        }
        _ => now(Err(Status::UnknownOpcode.into())),
    }
}

fn status(leadership: &Leadership) -> ClusterStatus {
    let cluster = leadership.cluster();
    let remarks = leadership.shared.remarks_at(leadership.now());
    ClusterStatus {
        cluster: cluster.record.cluster,
        settings: cluster.record.settings.clone(),
        settings_version: leadership.settings_version(),
        servers: cluster.list(),
        map: cluster.first_page(),
        leases: leadership.leases.count(),
        recoveries: recoveries::status(leadership),
        remarks: remarks
            .into_iter()
            .chain(servers::remarks(leadership))
            .chain(probes::remarks(leadership))
            .collect(),
        format: cluster.record.format,
        programs: formats::programs(leadership),
    }
}

fn answer(context: &mut Context<'_>, to: ReplyTo, outcome: &Outcome) {
    match outcome {
        Ok(body) => context.reply(to, &[body]),
        Err(Refusal { status, hint }) => {
            let hint = u32::try_from(hint.as_micros()).unwrap_or(u32::MAX);
            context.refuse(to, *status, hint, &[]);
        }
    }
}

impl Service for Coordinator {
    fn start(&mut self, context: &mut Context<'_>) {
        let _ = self.shared.tools.set((context.tasks().clone(), context.task_caller()));
        self.shared.random.replace(context.random().split());
        self.shared.renew_keeper();
        formats::announce(&self.shared);
    }

    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        if opcode.service() != ServiceKind::Coordinator {
            return answer(context, reply_to, &Err(Status::UnknownOpcode.into()));
        }
        // Decide by a time that was read after the request arrived. Otherwise a process that was
        // stopped after the turn's beginning could answer under a leadership that has ended since.
        let now = context.now_or_later();
        let Some(leadership) = self.shared.leadership_at(now) else {
            return answer(context, reply_to, &Err(Status::NotLeader.into()));
        };
        if !leadership.is_loaded() {
            // A leader cannot answer before it has read the recorded state.
            let is_stuck = self.shared.has_remark("loading");
            let refusal = if is_stuck { Refusal::METASTORE } else { Refusal::LOADING };
            return answer(context, reply_to, &Err(refusal));
        }
        match decode(&leadership, opcode, body) {
            None => answer(context, reply_to, &Err(Status::Malformed.into())),
            Some(Handling::Now(outcome)) => answer(context, reply_to, &outcome),
            Some(Handling::Later(_)) if self.shared.waiting.get() >= REQUESTS_MAX => {
                answer(context, reply_to, &Err(Status::Busy.into()));
            }
            Some(Handling::Later(change)) => {
                let pending = PendingRequest::new(&self.shared, reply_to);
                let busy = Rc::clone(&leadership);
                leadership.spawn(async move {
                    let outcome = change.run(&busy).await;
                    pending.end(outcome);
                });
            }
        }
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        self.shared.turn(context.now());
        let answers = std::mem::take(&mut *self.shared.answers.borrow_mut());
        if !answers.is_empty() {
            // Tasks decide by this leader's knowledge, some without a write that would prove that
            // it still leads. So the clock is read after their decisions.
            let now = context.world().clock.now();
            let leads = self.shared.leadership_at(now).is_some();
            for DecidedAnswer { to, outcome } in answers {
                let outcome = if leads { outcome } else { Err(Status::LeadershipLost.into()) };
                answer(context, to, &outcome);
            }
        }
        // Before the next request: a leader answers none before it has named its cluster.
        if let Some(leadership) = &*self.shared.leadership.borrow()
            && leadership.is_loaded()
        {
            context.set_cluster(leadership.cluster().record.cluster);
        }
        self.shared.on_foreign_peer(context.foreign_peer());
        let deadline = self.shared.deadline();
        if self.timer.map(|(at, _)| at) == deadline {
            return;
        }
        if let Some((_, timer)) = self.timer.take() {
            context.cancel_timer(timer);
        }
        self.timer = deadline.map(|at| (at, context.set_timer(at, TIMER)));
    }

    fn timer(&mut self, _context: &mut Context<'_>, number: u64) {
        if number == TIMER {
            // The end of the turn looks for work.
            self.timer = None;
        }
    }
}
