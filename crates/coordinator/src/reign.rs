//! One leadership, from winning it to losing it.
//!
//! All that a leader knows and does belongs to its reign: the cluster, and the tasks that work on
//! it. When the reign is over its tasks are dropped where they wait, and nothing of it is left. The
//! next one begins by reading everything.
//!
//! # Writing
//!
//! Everything is written before it is told, under the reign's fence. One task at a time holds the
//! *pen* and changes what the cluster is made of; leases go beside it, each in its own value. A
//! write whose outcome is unknown is written again until the outcome is known: one of the two
//! conflicts, and reading back tells. So what this reign knows is what the metastore holds, always.
//!
//! What was written by a former reign and is still on its way is refused by the fence, for each
//! reign has a token of its own: who loses the leadership asks for the next one as somebody else.
//! (Under the same name a coordinator could be given the same token again, and a write of its
//! former reign could arrive behind the reading of everything.)

use crate::cluster::Cluster;
use crate::coordinator::{Refusal, Shared};
use crate::duties::{self, Duty};
use crate::formats::Coordinators;
use crate::leases::Leases;
use crate::limits::{
    IDS_PASSED_OVER, LEADERSHIP_MAX, LOADING_HINT, METASTORE_HINT, METASTORE_TRIED, RETRY_MAX,
    RETRY_MIN, STANDS_BACK, VERSION_BITS, WRITES_AT_ONCE,
};
use crate::probes::Watch;
use crate::recoveries::{Attempts, Rests};
use crate::stored::{
    CLUSTER, ClusterRecord, IDS, Ids, LEASE_IDS, LEASES, LeaseIds, SERVERS, ServerRecord, TABLES,
    TableRecord, check_format, id_in, key_of, of_value, to_value,
};
use crate::waiting::{Guard, Lock, Signal, all, within};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, pending, poll_fn};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;
use thunderhead_metastore::{
    Answer, Change, Entry, Error, Fence, Key, Page, Prefix, Request, Version,
};
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Time;
use thunderhead_runtime::tasks::Sleep;
use thunderhead_wire::control::{OwnedSince, to_body};
use thunderhead_wire::leadership::Leadership;
use thunderhead_wire::{ClusterId, MasterId, ServerId, Status, TableId};

/// One leadership.
pub(crate) struct Reign {
    pub(crate) shared: Rc<Shared>,
    fence: Fence,
    over: Cell<bool>,
    /// When everything was read.
    loaded: Cell<Option<Time>>,
    tasks: RefCell<BTreeMap<u64, Waker>>,
    tasks_count: Cell<u64>,
    /// What each key holds, as far as its version tells.
    versions: RefCell<BTreeMap<Key, Version>>,
    cluster: RefCell<Cluster>,
    /// Held by who changes what the cluster is made of.
    pen: Lock,
    /// Raised when something changed that a duty may have waited for.
    pub(crate) changed: Signal,
    /// Raised when the metastore has refused a write.
    troubled: Signal,
    /// The highest number of a leadership that a server follows.
    followed: Cell<u64>,
    /// Raised when a server follows a later leadership than this one.
    is_refused: Signal,
    pub(crate) duties: RefCell<BTreeSet<Duty>>,
    pub(crate) leases: Leases,
    /// Which backups have freed which masters' replicas.
    pub(crate) freed: RefCell<BTreeMap<MasterId, BTreeSet<ServerId>>>,
    /// What backups have left of logs that were taken back.
    pub(crate) rests: Rests,
    /// How recoveries get on.
    pub(crate) attempts: Attempts,
    /// Who does not answer.
    pub(crate) watch: Watch,
    /// The coordinators that there are.
    pub(crate) coordinators: RefCell<Coordinators>,
}

/// Why a new leader does not know what the metastore holds.
enum Unread {
    /// The metastore does not answer. It is asked again.
    Unavailable(String),
    /// A newer coordinator wrote it, or it is damaged. Another coordinator may be able to read it.
    Incomprehensible(String),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Unread {
        Unread::Unavailable(error.to_string())
    }
}

/// How long to wait before something is tried again.
pub(crate) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Backoff(RETRY_MIN)
    }
}

impl Backoff {
    pub(crate) fn next(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(RETRY_MAX);
        wait
    }
}

impl Reign {
    /// Begins a reign: reads everything, then serves.
    pub(crate) fn begin(shared: Rc<Shared>, fence: Fence) -> Rc<Reign> {
        let settings = shared.options.settings.clone();
        let nothing = ClusterRecord::new(shared.options.newest_format, ClusterId(0), settings);
        let reign = Rc::new(Reign {
            shared,
            fence,
            over: Cell::new(false),
            loaded: Cell::new(None),
            tasks: RefCell::default(),
            tasks_count: Cell::new(0),
            versions: RefCell::default(),
            cluster: RefCell::new(Cluster::new(nothing, Ids::default(), 0)),
            pen: Lock::default(),
            changed: Signal::default(),
            troubled: Signal::default(),
            followed: Cell::new(0),
            is_refused: Signal::default(),
            duties: RefCell::default(),
            leases: Leases::default(),
            freed: RefCell::default(),
            rests: Rests::default(),
            attempts: Attempts::default(),
            watch: Watch::default(),
            coordinators: RefCell::default(),
        });
        let loading = Rc::clone(&reign);
        reign.spawn(async move { loading.load_until_it_is_done().await });
        reign
    }

    /// For a master that is told that it owns tablets, which is written: from when on it does.
    pub(crate) fn owned_since(&self) -> OwnedSince {
        let map_version = self.cluster().map_version();
        OwnedSince { map_version, next_lease: self.leases.next() }
    }

    /// Ends it: nothing of it happens any more.
    pub(crate) fn end(&self) {
        self.over.set(true);
        for waker in std::mem::take(&mut *self.tasks.borrow_mut()).into_values() {
            waker.wake();
        }
    }

    /// What proves the leadership.
    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }

    /// What commands to servers begin with.
    fn leadership(&self) -> Leadership {
        let record = &self.cluster().record;
        Leadership::new(record.cluster, self.number(record))
    }

    /// Of two leaderships of a cluster the later one has the higher number.
    fn number(&self, record: &ClusterRecord) -> u64 {
        self.fence.token.0.saturating_add(record.leadership_base)
    }

    /// Whether everything was read.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.get().is_some()
    }

    /// When that was.
    pub(crate) fn loaded(&self) -> Time {
        self.loaded.get().unwrap_or_default()
    }

    pub(crate) fn now(&self) -> Time {
        self.shared.now()
    }

    /// The time of a later turn. That of this one was read before what arrived in it was received.
    pub(crate) async fn now_in_next_turn(&self) -> Time {
        self.sleep(Duration::from_micros(1)).await;
        self.now()
    }

    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        self.shared.tasks().sleep(duration)
    }

    /// Begins a task that is dropped when the reign is over.
    pub(crate) fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        let reign = Rc::clone(self);
        let number = self.tasks_count.get();
        self.tasks_count.set(number + 1);
        self.shared.tasks().spawn(async move {
            let mut task = Box::pin(task);
            poll_fn(|context| {
                if reign.over.get() {
                    return Poll::Ready(());
                }
                let polled = task.as_mut().poll(context);
                let mut tasks = reign.tasks.borrow_mut();
                if polled.is_ready() {
                    tasks.remove(&number);
                } else if reign.over.get() {
                    // It was this task that ended the reign.
                    context.waker().wake_by_ref();
                } else {
                    tasks.insert(number, context.waker().clone());
                }
                polled
            })
            .await;
        });
    }

    pub(crate) fn cluster(&self) -> Ref<'_, Cluster> {
        self.cluster.borrow()
    }

    fn cluster_mut(&self) -> RefMut<'_, Cluster> {
        self.cluster.borrow_mut()
    }

    /// Calls a server.
    pub(crate) async fn call(
        &self,
        to: SocketAddr,
        opcode: Opcode,
        message: &impl Serialize,
    ) -> Result<Vec<u8>, CallError> {
        self.call_within(to, opcode, message, self.shared.options.call_timeout).await
    }

    /// Calls a server that has so long for its answer.
    pub(crate) async fn call_within(
        &self,
        to: SocketAddr,
        opcode: Opcode,
        message: &impl Serialize,
        timeout: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let message = to_body(message);
        let is_command = opcode.is_command();
        let body = if is_command { self.leadership().command(&message) } else { message };
        let answer = self.shared.calling().call(to, opcode, body, Some(timeout)).await;
        if let Err(CallError::Refused { status: Status::OldLeader, detail, .. }) = answer {
            self.is_behind(to, detail);
        }
        answer
    }

    /// A server follows a later leadership.
    fn is_behind(&self, at: SocketAddr, number: u64) {
        if number > LEADERSHIP_MAX {
            let text =
                format!("{at} follows a leadership with the number {number}, which none can have");
            return self.shared.remark_event("leadership", &text);
        }
        self.followed.set(self.followed.get().max(number));
        self.is_refused.raise();
    }

    /// Duty: where servers follow a later leadership, this coordinator gives its own up and leads
    /// again as the latest one. Of two coordinators with one metastore only the later one can write
    /// that. The other case is a metastore that was restored from a copy: its tokens were given
    /// before, and servers that have seen them obey nothing.
    pub(crate) async fn lead_above_all(self: &Rc<Self>) {
        let mut backoff = Backoff::default();
        loop {
            let seen = self.is_refused.seen();
            let (own, followed) = (self.number(&self.cluster().record), self.followed.get());
            if followed <= own {
                self.is_refused.after(seen).await;
                continue;
            }
            if self.lead_above(followed).await.is_err() {
                self.sleep(backoff.next()).await;
                continue;
            }
            let text = format!(
                "servers follow the leadership {followed}, and this one is only {own}: the metastore is an older \
                 copy, and later changes of the cluster are forgotten. This coordinator leads again, as a later one"
            );
            self.give_up(&text).await;
        }
    }

    /// Writes that leaderships from the next one on are above a number. Ids that the newer state
    /// may have given out are passed over first: masters and leases of that state are still there.
    async fn lead_above(&self, followed: u64) -> Result<(), Refusal> {
        let _pen = self.pen_for_long().await;
        self.leases.pass_over(self, IDS_PASSED_OVER).await?;
        let mut record = self.cluster().record.clone();
        let first = self.cluster().ids.master;
        let unknown = (first, first.saturating_add(IDS_PASSED_OVER));
        if record.unknown_masters.last() != Some(&unknown) {
            // Before the ids: at no time is one of these masters done with.
            record.unknown_masters.push(unknown);
            self.put_cluster(record.clone()).await?;
        }
        let pass_over = |id: &mut u64| *id = id.saturating_add(IDS_PASSED_OVER);
        self.take_ids(|ids| {
            let Ids { server, master, table, migration, recovery } = ids;
            [server, master, table, migration, recovery].into_iter().for_each(pass_over);
        })
        .await?;
        // Last: after a crash in between, the next leader is refused again and repeats this.
        record.leadership_base = followed;
        self.put_cluster(record).await
    }

    /// Waits for the pen, but not for long: whoever asked tries again later.
    pub(crate) async fn pen(&self) -> Result<Guard<'_>, Refusal> {
        let patience = self.sleep(self.shared.options.patience);
        within(patience, self.pen.lock()).await.ok_or(Refusal::METASTORE)
    }

    /// Waits for the pen as long as it takes.
    pub(crate) async fn pen_for_long(&self) -> Guard<'_> {
        self.pen.lock().await
    }

    /// Writes what a server is, then knows it.
    pub(crate) async fn put_server(&self, record: ServerRecord) -> Result<(), Refusal> {
        let key = key_of(SERVERS, record.server.0)?;
        self.write(&key, Some(to_value(&record))).await?;
        self.cluster_mut().put_server(record);
        self.has_changed();
        Ok(())
    }

    /// Deletes what is known of a server.
    pub(crate) async fn remove_server(&self, server: ServerId) -> Result<(), Refusal> {
        self.write(&key_of(SERVERS, server.0)?, None).await?;
        self.cluster_mut().remove_server(server);
        self.watch.forget(server);
        self.has_changed();
        Ok(())
    }

    /// Writes what holds in the cluster, then knows it.
    pub(crate) async fn put_cluster(&self, record: ClusterRecord) -> Result<(), Refusal> {
        self.write(&Key::new(CLUSTER)?, Some(to_value(&record))).await?;
        self.cluster_mut().put_record(record);
        self.has_changed();
        Ok(())
    }

    /// Writes what a table is, then knows it.
    pub(crate) async fn put_table(&self, record: TableRecord) -> Result<(), Refusal> {
        let key = key_of(TABLES, record.id.0)?;
        self.write(&key, Some(to_value(&record))).await?;
        self.cluster_mut().put_table(record);
        self.has_changed();
        Ok(())
    }

    /// Writes what tables are, then knows it. Where that fails some may be written, and are known.
    pub(crate) async fn put_tables(&self, records: Vec<TableRecord>) -> Result<(), Refusal> {
        let mut records = records.into_iter();
        loop {
            let some: Vec<TableRecord> = records.by_ref().take(WRITES_AT_ONCE).collect();
            if some.is_empty() {
                return Ok(());
            }
            let writes = some.iter().map(|record| async move {
                let key = key_of(TABLES, record.id.0)?;
                self.write(&key, Some(to_value(record))).await
            });
            let written = all(writes.collect()).await;
            let known = some.into_iter().zip(&written).filter(|(_, written)| written.is_ok());
            self.cluster_mut().put_tables(known.map(|(record, _)| record));
            self.has_changed();
            written.into_iter().collect::<Result<(), Refusal>>()?;
        }
    }

    /// Deletes what is known of a table.
    pub(crate) async fn remove_table(&self, table: TableId) -> Result<(), Refusal> {
        self.write(&key_of(TABLES, table.0)?, None).await?;
        self.cluster_mut().remove_table(table);
        self.has_changed();
        Ok(())
    }

    /// Takes ids: once this is done they are this caller's for ever.
    pub(crate) async fn take_ids(&self, take: impl FnOnce(&mut Ids)) -> Result<Ids, Refusal> {
        let before = self.cluster().ids;
        let mut after = before;
        take(&mut after);
        self.write(&Key::new(IDS)?, Some(to_value(&after))).await?;
        self.cluster_mut().ids = after;
        Ok(before)
    }

    /// Something changed: who waits looks again.
    pub(crate) fn has_changed(&self) {
        self.changed.raise();
        if self.cluster().changes() + 1 >= 1 << VERSION_BITS {
            // The next reign's versions begin above.
            self.shared.remark_event("leadership", "a leader made as many changes as it may");
            self.shared.dethrone(self);
        }
    }

    /// Makes a key hold a value, or nothing. An error says that it was certainly not done.
    pub(crate) async fn write(&self, key: &Key, value: Option<Vec<u8>>) -> Result<(), Refusal> {
        let mut unsure = false;
        let mut backoff = Backoff::default();
        loop {
            let known = self.versions.borrow().get(key).copied();
            let change = match (known, value.clone()) {
                (None, None) => return Ok(()),
                (None, Some(value)) => Change::Create(value),
                (Some(version), Some(value)) => Change::Replace(version, value),
                (Some(version), None) => Change::Delete(version),
            };
            let fence = Some(self.fence.clone());
            let request = Request::Write { key: key.clone(), change, fence };
            match self.shared.desk.ask(self.now(), request).await {
                Ok(Answer::Written(version)) => {
                    self.has_version(key, value.is_some().then_some(version));
                    return Ok(());
                }
                Ok(Answer::Conflict(found)) if unsure => {
                    if self.is_our_own(key, found, value.as_deref()).await {
                        self.has_version(key, found);
                        return Ok(());
                    }
                    self.give_up("somebody else writes into the metastore").await;
                }
                Ok(Answer::Conflict(_)) => {
                    self.give_up("somebody else writes into the metastore").await;
                }
                Ok(Answer::Deposed) => {
                    tracing::warn!("this coordinator leads no more: its lease is another one's");
                    self.shared.dethrone(self);
                    pending::<()>().await;
                }
                Ok(other) => {
                    self.give_up(&format!("the metastore answered a write with {other:?}")).await;
                }
                Err(error) => {
                    self.shared.remark("metastore", &error.to_string());
                    self.troubled.raise();
                    unsure |= error.may_have_happened();
                    if !unsure {
                        return Err(error.into());
                    }
                    self.sleep(backoff.next()).await;
                }
            }
        }
    }

    fn has_version(&self, key: &Key, version: Option<Version>) {
        let mut versions = self.versions.borrow_mut();
        match version {
            Some(version) => versions.insert(key.clone(), version),
            None => versions.remove(key),
        };
        drop(versions);
        self.shared.unremark("metastore");
    }

    /// After a conflict: whether the key holds what an earlier attempt wrote.
    async fn is_our_own(&self, key: &Key, found: Option<Version>, value: Option<&[u8]>) -> bool {
        let (Some(version), Some(value)) = (found, value) else {
            return found.is_none() && value.is_none();
        };
        let mut backoff = Backoff::default();
        loop {
            let request = Request::Get { key: key.clone() };
            match self.shared.desk.ask(self.now(), request).await {
                Ok(Answer::Value(Some(entry))) => {
                    return entry.version == version && entry.value == value;
                }
                Ok(_) => return false,
                Err(error) => {
                    self.shared.remark("metastore", &error.to_string());
                    self.sleep(backoff.next()).await;
                }
            }
        }
    }

    /// Ends the reign from within: what is known here may be wrong. Never returns.
    async fn give_up(&self, why: &str) {
        self.shared.remark_event("leadership", why);
        self.shared.dethrone(self);
        pending::<()>().await;
    }

    async fn load_until_it_is_done(self: &Rc<Self>) {
        let mut backoff = Backoff::default();
        while let Err(why) = self.load().await {
            match why {
                Unread::Unavailable(why) => {
                    self.shared.remark("loading", &why);
                    self.sleep(backoff.next()).await;
                }
                Unread::Incomprehensible(why) => {
                    self.shared
                        .remark("loading", &format!("this coordinator does not lead: {why}"));
                    self.shared.dethrone_until(self, self.now() + STANDS_BACK);
                    return pending().await;
                }
            }
        }
        self.shared.unremark("loading");
        self.loaded.set(Some(self.now()));
        tracing::info!("this coordinator leads, and has read what there is");
        duties::employ_all(self);
    }

    /// Duty: as long as the metastore has refused the last write, it is tried whether it takes writes again.
    /// So what the status says of it ends when it is over, though nobody wants to change anything.
    pub(crate) async fn try_metastore(self: &Rc<Self>) {
        loop {
            let seen = self.troubled.seen();
            if !self.shared.has_remark("metastore") {
                self.troubled.after(seen).await;
                continue;
            }
            self.sleep(METASTORE_TRIED).await;
            let _pen = self.pen_for_long().await;
            if self.shared.has_remark("metastore") {
                // An error is a remark already.
                let _ = self.take_ids(|_| {}).await;
            }
        }
    }

    /// Reads everything there is.
    async fn load(&self) -> Result<(), Unread> {
        let entries = self.read_all().await?;
        let versions = entries.iter().map(|entry| (entry.key.clone(), entry.version));
        self.versions.replace(versions.collect());
        let (mut record, mut ids) = (None, Ids::default());
        let (mut servers, mut tables, mut leases) = (Vec::new(), Vec::new(), Vec::new());
        let mut lease_ids = LeaseIds { next: 1 };
        for Entry { key, value, .. } in &entries {
            match key.as_str() {
                CLUSTER => record = Some(read::<ClusterRecord>(key, value)?),
                IDS => ids = read(key, value)?,
                LEASE_IDS => lease_ids = read(key, value)?,
                _ if id_in(SERVERS, key).is_some() => {
                    servers.push(read::<ServerRecord>(key, value)?);
                }
                _ if id_in(TABLES, key).is_some() => {
                    tables.push(read::<TableRecord>(key, value)?);
                }
                // What a newer version keeps there is not ours.
                _ => leases.extend(id_in(LEASES, key)),
            }
        }
        let record = match record {
            Some(record) => record,
            None => self.found().await?,
        };
        let newest = self.shared.options.newest_format;
        check_format(&record, newest).map_err(Unread::Incomprehensible)?;
        self.compare(&record);
        // These numbers grow, so the versions of this reign are above all those before.
        let number = self.number(&record);
        let version_base = number.saturating_mul(1 << VERSION_BITS);
        let mut cluster = Cluster::new(record, ids, version_base);
        servers.into_iter().for_each(|record| cluster.put_server(record));
        tables.into_iter().for_each(|record| cluster.put_table(record));
        // What was read is the first version of this reign.
        let cluster = cluster.begun_here();
        self.cluster.replace(cluster);
        let until = self.now() + self.shared.options.lease_ttl;
        self.leases.load(lease_ids.next, leases, until);
        Ok(())
    }

    async fn read_all(&self) -> Result<Vec<Entry>, Error> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let after = entries.last().map(|entry| entry.key.clone());
            let request = Request::List { prefix: Prefix::all(), after };
            let answer = self.shared.desk.ask(self.now(), request).await?;
            let Answer::Page(Page { entries: page, more }) = answer else {
                return Err(Error::Damaged {
                    what: format!("a list was answered with {answer:?}"),
                });
            };
            let is_empty = page.is_empty();
            entries.extend(page);
            if !more || is_empty {
                return Ok(entries);
            }
        }
    }

    /// Makes the cluster. 0 stands for none in greetings.
    async fn found(&self) -> Result<ClusterRecord, Unread> {
        let store = &self.shared.options.store;
        if self.shared.options.existing {
            let why =
                format!("{store} holds no cluster, and coordinator.existing forbids to found one");
            return Err(Unread::Incomprehensible(why));
        }
        let cluster = ClusterId(self.shared.random.borrow_mut().number().max(1));
        let settings = self.shared.options.settings.clone();
        let record = ClusterRecord::new(self.shared.options.newest_format, cluster, settings);
        let key = Key::new(CLUSTER)?;
        let written = self.write(&key, Some(to_value(&record))).await;
        let why = || format!("the cluster cannot be written into {store}");
        written.map_err(|_| Unread::Unavailable(why()))?;
        self.shared.founds(cluster);
        Ok(record)
    }

    fn compare(&self, record: &ClusterRecord) {
        let others = record.settings.differences(&self.shared.options.settings);
        if others.is_empty() {
            return self.shared.unremark("settings");
        }
        self.shared.remark(
            "settings",
            &format!(
                "the cluster was made with other settings than this coordinator was given, and \
                 keeps them: {others}"
            ),
        );
    }
}

fn read<T: DeserializeOwned>(key: &Key, value: &[u8]) -> Result<T, Unread> {
    of_value(key, value).map_err(Unread::Incomprehensible)
}

impl Refusal {
    /// The metastore cannot be reached.
    pub(crate) const METASTORE: Refusal =
        Refusal { status: Status::MetastoreUnavailable, hint: METASTORE_HINT };

    /// The leader reads what there is in it.
    pub(crate) const LOADING: Refusal =
        Refusal { status: Status::MetastoreUnavailable, hint: LOADING_HINT };
}

impl From<Error> for Refusal {
    fn from(_: Error) -> Refusal {
        Refusal::METASTORE
    }
}
