//! The state that a coordinator has from its start to its end, whether it leads or not: its
//! options, its connection to the metastore, the keeper of its lease, its remarks for operators.
//!
//! It knows no leadership. The service begins and ends leaderships (module `coordinator`).

use crate::limits::EVENT_TOLD;
use crate::metastore_client::MetastoreClient;
use crate::options::Options;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use thunderhead_metastore::{
    Fence, Holder, Keeper, Key, LeaseName, Metastore, News, Request as Ask, Version,
};
use thunderhead_rpc::{Context, ForeignPeer, TaskCaller};
use thunderhead_runtime::tasks::Tasks;
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::ClusterId;

/// The name of the metastore's lease that the leader holds.
const LEADERSHIP: &str = "coordinator";

/// The state that the service, its leaderships and their tasks share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) metastore: MetastoreClient,
    pub(crate) random: RefCell<Random>,
    tools: OnceCell<(Tasks, TaskCaller)>,
    keeper: RefCell<Option<Keeper>>,
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

impl Shared {
    pub(crate) fn new(store: Box<dyn Metastore>, options: Options) -> Shared {
        Shared {
            options,
            metastore: MetastoreClient::new(store),
            // The node provides better random numbers from its first turn on.
            random: RefCell::new(Random::from_seed(0)),
            tools: OnceCell::new(),
            keeper: RefCell::default(),
            remarks: RefCell::default(),
            resigned: Cell::new(false),
            founded: Cell::new(None),
            foreign_peer: Cell::new(None),
            key: OnceCell::new(),
            announced: Cell::new(None),
            withdraws: Cell::new(false),
            name: OnceCell::new(),
        }
    }

    /// Takes over the tools of a node, in its first turn.
    pub(crate) fn begin(&self, context: &mut Context<'_>) {
        let _ = self.tools.set((context.tasks().clone(), context.task_caller()));
        self.random.replace(context.random().split());
    }

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
    pub(crate) fn on_foreign_peer(&self, foreign_peer: Option<ForeignPeer>) {
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
    pub(crate) fn remarks_at(&self, now: Time) -> Vec<String> {
        let mut remarks = self.remarks.borrow_mut();
        remarks.retain(|_, remark| remark.until.is_none_or(|until| now < until));
        remarks.values().map(|remark| remark.text.clone()).collect()
    }

    /// Makes a new keeper under a new holder id.
    pub(crate) fn renew_keeper(&self) {
        self.renew_keeper_at(Time(0));
    }

    /// Makes a new keeper that does not request the leadership before a time.
    pub(crate) fn renew_keeper_at(&self, time: Time) {
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

    /// Gives back a lease that the store may still count as held.
    pub(crate) fn release(&self, fence: &Fence) {
        drop(self.metastore.ask(self.now(), Ask::Release { fence: fence.clone() }));
    }

    /// Lets the keeper keep or request the leadership. Returns its news. `leads`: this coordinator
    /// has a leadership.
    pub(crate) fn turn_keeper(&self, now: Time, leads: bool) -> Vec<News> {
        let mut news = Vec::new();
        if let Some(keeper) = &mut *self.keeper.borrow_mut() {
            self.metastore.turn(now, keeper);
            news.extend(std::iter::from_fn(|| keeper.news()));
            let trouble = keeper.trouble().filter(|_| !leads);
            match trouble.map(ToString::to_string) {
                Some(trouble) => self.remark("leadership lease", &trouble),
                None if self.has_remark("leadership lease") => self.unremark("leadership lease"),
                None => {}
            }
        }
        news
    }

    /// Whether the keeper may believe in the leadership.
    pub(crate) fn believes_at(&self, now: Time) -> bool {
        self.keeper.borrow().as_ref().is_some_and(|keeper| keeper.fence(now).is_some())
    }

    /// Gives the keeper's lease back for good.
    pub(crate) fn resign(&self) {
        self.resigned.set(true);
        let now = self.now();
        if let Some(keeper) = &mut *self.keeper.borrow_mut() {
            self.metastore.resign(now, keeper);
        }
    }

    /// Whether it has resigned and the metastore knows.
    pub(crate) fn has_resigned(&self) -> bool {
        let keeper = self.keeper.borrow();
        self.resigned.get()
            && !self.withdraws.get()
            && keeper.as_ref().is_none_or(Keeper::is_settled)
    }

    /// Returns when the metastore or the keeper has work again.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let keeper = self.keeper.borrow();
        let keeper = keeper.as_ref().and_then(Keeper::deadline);
        [self.metastore.deadline(), keeper].into_iter().flatten().min()
    }
}
