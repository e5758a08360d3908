//! The service: the leader answers requests, the other coordinators answer *not leader*.

use crate::formats;
use crate::leadership::{Leadership, RetryPauses};
use crate::leases;
use crate::limits::REQUESTS_MAX;
use crate::migrations;
use crate::options::Options;
use crate::probes;
use crate::recoveries;
use crate::refusal::{Outcome, Refusal};
use crate::servers;
use crate::shared::Shared;
use crate::tables;
use crate::tasks;
use crate::verdicts;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use thunderhead_metastore::{Metastore, News};
use thunderhead_rpc::{Component, Context, Opcode, OwnerId, ReplyTo, Request, Service};
use thunderhead_runtime::Time;
use thunderhead_runtime::timers::TimerId;
use thunderhead_wire::control::{
    ChangeSettings, CheckLeases, ClusterStatus, CreateTable, DropTable, Empty, Enlist,
    ForgetServer, Lease, Map, MapRequest, MigrateTablet, OfMaster, RaiseEpoch, Recovered,
    RecoveryInfo, Register, ServerList, SplitTablet, of_body, to_body,
};
use thunderhead_wire::membership::Suspect;
use thunderhead_wire::{Generation, ServerId, Status};

/// The owner of the timer for the turns of the metastore and the leadership.
const OWNER: OwnerId = OwnerId::only(Component::Coordinator);

/// The state that the service, its handles and pending requests share.
struct ServiceState {
    shared: Rc<Shared>,
    /// The last leadership. It counts as long as it is not over.
    leadership: RefCell<Option<Rc<Leadership>>>,
    /// The answers that tasks have decided.
    answers: RefCell<Vec<DecidedAnswer>>,
    /// The number of requests that wait for tasks.
    waiting: Cell<usize>,
}

/// A cluster's coordinator, leading or standing by. See the crate's documentation.
pub struct Coordinator {
    state: Rc<ServiceState>,
    timer: Option<(Time, TimerId)>,
}

/// A handle to a coordinator, for its own thread.
#[derive(Clone)]
pub struct Handle(Rc<ServiceState>);

impl Coordinator {
    /// Returns a coordinator that keeps its state in a metastore. The metastore's client rings the
    /// alarm of the world from which the coordinator's node is made.
    #[must_use]
    pub fn new(store: Box<dyn Metastore>, options: Options) -> Coordinator {
        let state = ServiceState {
            shared: Rc::new(Shared::new(store, options)),
            leadership: RefCell::default(),
            answers: RefCell::default(),
            waiting: Cell::new(0),
        };
        Coordinator { state: Rc::new(state), timer: None }
    }

    /// Returns a handle, for use after the coordinator has become a part of a node.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle(Rc::clone(&self.state))
    }

    /// See [`Handle::server_failed`].
    pub fn server_failed(&self, server: ServerId, generation: Generation) -> bool {
        self.handle().server_failed(server, generation)
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        // A leadership and its tasks hold each other.
        if let Some(leadership) = self.state.leadership.take() {
            leadership.end();
        }
    }
}

impl Handle {
    /// Whether it leads and has read the recorded state.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.0.leadership_at(self.0.shared.now()).is_some_and(|leadership| leadership.is_loaded())
    }

    /// Declares one generation of a server crashed. The coordinator writes that down, tells all
    /// servers, and recovers the server's tablets. Returns whether that has begun: only a leader
    /// declares verdicts.
    pub fn server_failed(&self, server: ServerId, generation: Generation) -> bool {
        let leadership =
            self.0.leadership_at(self.0.shared.now()).filter(|leadership| leadership.is_loaded());
        let Some(leadership) = leadership else { return false };
        let busy = Rc::clone(&leadership);
        leadership.spawn(async move {
            let mut pauses = RetryPauses::default();
            while verdicts::failed(&busy, server, generation).await.is_err() {
                busy.sleep(pauses.next()).await;
            }
        });
        true
    }

    /// Gives the leadership back, if this coordinator has it, and does not request it again. The
    /// process is about to end, and another coordinator then need not wait until the lease expires.
    pub fn resign(&self) {
        self.0.shared.resign();
        if let Some(leadership) = self.0.leadership.take() {
            leadership.end();
        }
        formats::withdraw(&self.0.shared);
    }

    /// Whether it has resigned and the metastore knows.
    #[must_use]
    pub fn has_resigned(&self) -> bool {
        self.0.shared.has_resigned()
    }

    /// Returns the facts that an operator should know, as sentences.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        self.0.shared.remarks_at(self.0.shared.now())
    }

    /// Returns all servers, if it leads.
    #[must_use]
    pub fn servers(&self) -> Option<ServerList> {
        let leadership = self
            .0
            .leadership_at(self.0.shared.now())
            .filter(|leadership| leadership.is_loaded())?;
        Some(leadership.cluster().list())
    }

    /// Returns the recoveries in progress, if it leads.
    #[must_use]
    pub fn recoveries(&self) -> Option<Vec<RecoveryInfo>> {
        let leadership = self
            .0
            .leadership_at(self.0.shared.now())
            .filter(|leadership| leadership.is_loaded())?;
        Some(recoveries::status(&leadership))
    }

    /// Returns the whole map, if it leads. No message carries all of it: see [`MapRequest`].
    #[must_use]
    pub fn map(&self) -> Option<Map> {
        let leadership = self
            .0
            .leadership_at(self.0.shared.now())
            .filter(|leadership| leadership.is_loaded())?;
        let cluster = leadership.cluster();
        let tables = cluster.tables().filter(|table| !table.dropped);
        let tables = tables.map(|table| cluster.table_info(table)).collect();
        Some(Map { version: cluster.map_version(), tables, ..Map::default() })
    }
}

impl ServiceState {
    /// Returns the present leadership, while the keeper may believe in the leadership.
    fn leadership_at(&self, now: Time) -> Option<Rc<Leadership>> {
        if self.shared.believes_at(now) { self.present() } else { None }
    }

    /// Returns the present leadership.
    fn present(&self) -> Option<Rc<Leadership>> {
        self.leadership.borrow().clone().filter(|leadership| !leadership.is_over())
    }

    fn turn(&self, now: Time) {
        // A leadership that a task has ended is dropped as a whole.
        if self.present().is_none() {
            self.leadership.take();
        }
        // A leader notices trouble by its writes.
        let leads = self.leadership.borrow().is_some();
        for news in self.shared.turn_keeper(now, leads) {
            match news {
                News::Won(fence) => {
                    let leadership = Leadership::begin(Rc::clone(&self.shared), fence, tasks::run);
                    self.leadership.replace(Some(leadership));
                }
                News::Lost(fence) => {
                    if self.shared.is_resigned() {
                        tracing::info!("this coordinator no longer leads: it ends");
                    } else {
                        tracing::warn!(
                            "this coordinator no longer leads: it did not renew its lease"
                        );
                    }
                    if let Some(leadership) = self.leadership.take() {
                        leadership.end();
                    }
                    self.shared.release(&fence);
                    self.shared.renew_keeper();
                }
            }
        }
    }
}

/// An answer that a task has decided.
struct DecidedAnswer {
    to: ReplyTo,
    outcome: Outcome,
}

/// A request in the hands of a task. It is answered even if the task is dropped.
struct PendingRequest {
    state: Rc<ServiceState>,
    reply_to: ReplyTo,
    outcome: Option<Outcome>,
}

impl PendingRequest {
    fn new(state: &Rc<ServiceState>, reply_to: ReplyTo) -> PendingRequest {
        state.waiting.set(state.waiting.get() + 1);
        PendingRequest { state: Rc::clone(state), reply_to, outcome: None }
    }

    fn end(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.state.waiting.set(self.state.waiting.get() - 1);
        let outcome = self.outcome.take().unwrap_or(Err(Status::LeadershipLost.into()));
        self.state.answers.borrow_mut().push(DecidedAnswer { to: self.reply_to, outcome });
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
        Opcode::CreateTable | Opcode::CreateTableWithOptions => {
            later(ChangeRequest::CreateTable(of_body(body)?))
        }
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
        let shared = &self.state.shared;
        shared.begin(context);
        shared.renew_keeper();
        formats::announce(shared);
    }

    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        if opcode.component() != Component::Coordinator {
            return answer(context, reply_to, &Err(Status::UnknownOpcode.into()));
        }
        // Decide by a time that was read after the request arrived. Otherwise a process that was
        // stopped after the turn's beginning could answer under a leadership that has ended since.
        let now = context.now_or_later();
        let Some(leadership) = self.state.leadership_at(now) else {
            return answer(context, reply_to, &Err(Status::NotLeader.into()));
        };
        if !leadership.is_loaded() {
            // A leader cannot answer before it has read the recorded state.
            let is_stuck = self.state.shared.has_remark("loading");
            let refusal = if is_stuck { Refusal::METASTORE } else { Refusal::LOADING };
            return answer(context, reply_to, &Err(refusal));
        }
        match decode(&leadership, opcode, body) {
            None => answer(context, reply_to, &Err(Status::Malformed.into())),
            Some(Handling::Now(outcome)) => answer(context, reply_to, &outcome),
            Some(Handling::Later(_)) if self.state.waiting.get() >= REQUESTS_MAX => {
                answer(context, reply_to, &Err(Status::Busy.into()));
            }
            Some(Handling::Later(change)) => {
                let pending = PendingRequest::new(&self.state, reply_to);
                let busy = Rc::clone(&leadership);
                leadership.spawn(async move {
                    let outcome = change.run(&busy).await;
                    pending.end(outcome);
                });
            }
        }
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        self.state.turn(context.now());
        let answers = std::mem::take(&mut *self.state.answers.borrow_mut());
        if !answers.is_empty() {
            // Tasks decide by this leader's knowledge, some without a write that would prove that
            // it still leads. So the clock is read after their decisions.
            let now = context.world().clock.now();
            let leads = self.state.leadership_at(now).is_some();
            for DecidedAnswer { to, outcome } in answers {
                let outcome = if leads { outcome } else { Err(Status::LeadershipLost.into()) };
                answer(context, to, &outcome);
            }
        }
        // Before the next request: a leader answers none before it has named its cluster.
        if let Some(leadership) = self.state.present()
            && leadership.is_loaded()
        {
            context.set_cluster(leadership.cluster().record.cluster);
        }
        self.state.shared.on_foreign_peer(context.foreign_peer());
        let deadline = self.state.shared.deadline();
        if self.timer.map(|(at, _)| at) == deadline {
            return;
        }
        if let Some((_, timer)) = self.timer.take() {
            context.cancel_timer(timer);
        }
        self.timer = deadline.map(|at| (at, context.set_timer(at, OWNER)));
    }

    fn timer(&mut self, _: &mut Context<'_>, _: OwnerId) {
        // The end of the turn looks for work.
        self.timer = None;
    }
}
