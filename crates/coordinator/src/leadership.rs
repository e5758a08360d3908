//! The state of one leadership, from its begin to its end.
//!
//! All knowledge and work of a leader belongs to its leadership: the cluster, and the tasks that
//! work on it. When the leadership ends, its tasks are dropped where they wait, and none of its
//! state remains. The next leadership begins by reading the whole recorded state.
//!
//! # Writing
//!
//! Every change is written before it is told, under the leadership's fence. One task at a time
//! holds the *update lock*, the lock for changes of the cluster. Leases need no lock, because each
//! has its own value. A write with an unknown outcome is written again until the outcome is known:
//! one of the two writes conflicts, and reading back shows the result. So a leadership's knowledge
//! always equals the metastore's contents.
//!
//! The fence refuses writes of an earlier leadership that are still in flight, because each
//! leadership has its own token: a coordinator that loses the leadership requests the next one
//! under a new holder id. (Under the same id it could get the same token again, and a write of its
//! earlier leadership could arrive after the whole state was read.)

mod tasks;

use crate::cluster::Cluster;
use crate::knowledge::attempts::Attempts;
use crate::knowledge::coordinators::Coordinators;
use crate::knowledge::inherited::InheritedReplicas;
use crate::knowledge::later_state::LaterState;
use crate::knowledge::leases::Leases;
use crate::knowledge::watch::Watch;
use crate::limits::{
    LEADERSHIP_MAX, METASTORE_TRIED, RETRY, STANDS_BACK, VERSION_BITS, WRITES_AT_ONCE,
};
use crate::refusal::Refusal;
use crate::shared::Shared;
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
use thunderhead_wire::command::CommandHeader;
use thunderhead_wire::control::{OwnedSince, ServerState, to_body};
use thunderhead_wire::{ClusterId, Generation, LeaseId, MasterId, ServerId, Status, TableId};

pub(crate) use tasks::{RunTask, Task};

/// The state of one leadership.
pub(crate) struct Leadership {
    pub(crate) shared: Rc<Shared>,
    fence: Fence,
    over: Cell<bool>,
    /// The time when the recorded state had been read.
    loaded: Cell<Option<Time>>,
    /// How to wake the futures that run until the leadership ends.
    wakers: RefCell<BTreeMap<u64, Waker>>,
    spawned_count: Cell<u64>,
    /// The version of each key's value.
    versions: RefCell<BTreeMap<Key, Version>>,
    cluster: RefCell<Cluster>,
    /// Held by the task that changes the cluster.
    update_lock: Lock,
    /// Raised by each change for which a task may wait.
    pub(crate) changed: Signal,
    /// Raised when the metastore has refused a write.
    troubled: Signal,
    /// The latest state of the cluster that servers know.
    pub(crate) later: LaterState,
    running_tasks: RefCell<BTreeSet<Task>>,
    /// Does the work of a task.
    run_task: RunTask,
    pub(crate) leases: Leases,
    /// The backups that have freed replicas of former masters.
    pub(crate) freed: RefCell<BTreeMap<MasterId, BTreeSet<ServerId>>>,
    /// The replicas that backups still have of logs that were taken back.
    pub(crate) inherited: InheritedReplicas,
    /// The progress of recoveries.
    pub(crate) attempts: Attempts,
    /// The servers that do not answer.
    pub(crate) watch: Watch,
    /// The known coordinators.
    pub(crate) coordinators: RefCell<Coordinators>,
}

/// The reasons why a new leader could not read the recorded state.
enum Unread {
    /// The metastore does not answer. The leader asks again.
    Unavailable(String),
    /// A newer coordinator wrote it, or it is damaged. Another coordinator may be able to read it.
    Incomprehensible(String),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Unread {
        Unread::Unavailable(error.to_string())
    }
}

/// The pauses between the repetitions of a task's step.
#[derive(Default)]
pub(crate) struct RetryPauses {
    count: u32,
}

impl RetryPauses {
    /// Returns the next pause, up to twice as long as the last one.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = RETRY.limit(self.count);
        self.count = self.count.saturating_add(1);
        pause
    }
}

impl Leadership {
    /// Begins a leadership: reads the whole recorded state, then serves. `run_task` does the work
    /// of its tasks.
    pub(crate) fn begin(shared: Rc<Shared>, fence: Fence, run_task: RunTask) -> Rc<Leadership> {
        let settings = shared.options.settings.clone();
        let nothing = ClusterRecord::new(shared.options.newest_format, ClusterId(0), settings);
        let leadership = Rc::new(Leadership {
            shared,
            fence,
            over: Cell::new(false),
            loaded: Cell::new(None),
            wakers: RefCell::default(),
            spawned_count: Cell::new(0),
            versions: RefCell::default(),
            cluster: RefCell::new(Cluster::new(nothing, Ids::default(), 0)),
            update_lock: Lock::default(),
            changed: Signal::default(),
            troubled: Signal::default(),
            later: LaterState::default(),
            running_tasks: RefCell::default(),
            run_task,
            leases: Leases::default(),
            freed: RefCell::default(),
            inherited: InheritedReplicas::default(),
            attempts: Attempts::default(),
            watch: Watch::default(),
            coordinators: RefCell::default(),
        });
        let loading = Rc::clone(&leadership);
        leadership.spawn(async move { loading.load_until_it_is_done().await });
        leadership
    }

    /// Returns the moment from which a master owns tablets, for the message that tells it so. The
    /// ownership is written already.
    pub(crate) fn owned_since(&self) -> OwnedSince {
        let map_version = self.cluster().map_version();
        OwnedSince { map_version, next_lease: self.leases.next() }
    }

    /// Ends the leadership: none of its tasks runs any more.
    pub(crate) fn end(&self) {
        self.over.set(true);
        for waker in std::mem::take(&mut *self.wakers.borrow_mut()).into_values() {
            waker.wake();
        }
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Ends the leadership from within and requests the next one.
    fn give_back(&self) {
        self.give_back_until(Time(0));
    }

    /// Ends the leadership from within and does not request the next one before a time: another
    /// coordinator may do better.
    fn give_back_until(&self, time: Time) {
        self.end();
        self.shared.release(&self.fence);
        self.shared.renew_keeper_at(time);
    }

    /// Returns the proof of the leadership.
    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Returns the header of all commands to servers.
    fn command_header(&self) -> CommandHeader {
        let record = &self.cluster().record;
        CommandHeader::new(record.cluster, self.number(record))
    }

    /// Returns the leadership's number. Of two leaderships of a cluster, the later one has the
    /// higher number.
    pub(crate) fn number(&self, record: &ClusterRecord) -> u64 {
        self.fence.token.0.saturating_add(record.leadership_base)
    }

    /// Whether the recorded state has been read.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.get().is_some()
    }

    /// Returns the time when it had been read.
    pub(crate) fn loaded(&self) -> Time {
        self.loaded.get().unwrap_or_default()
    }

    pub(crate) fn now(&self) -> Time {
        self.shared.now()
    }

    /// Returns the time of a later turn. The time of this turn was read before its messages
    /// arrived.
    pub(crate) async fn now_in_next_turn(&self) -> Time {
        self.sleep(Duration::from_micros(1)).await;
        self.now()
    }

    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        self.shared.tasks().sleep(duration)
    }

    /// Begins a task that is dropped when the leadership ends.
    pub(crate) fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        let leadership = Rc::clone(self);
        let number = self.spawned_count.get();
        self.spawned_count.set(number + 1);
        self.shared.tasks().spawn(async move {
            let mut task = Box::pin(task);
            poll_fn(|context| {
                if leadership.over.get() {
                    return Poll::Ready(());
                }
                let polled = task.as_mut().poll(context);
                let mut wakers = leadership.wakers.borrow_mut();
                if polled.is_ready() {
                    wakers.remove(&number);
                } else if leadership.over.get() {
                    // This task itself has ended the leadership.
                    context.waker().wake_by_ref();
                } else {
                    wakers.insert(number, context.waker().clone());
                }
                polled
            })
            .await;
        });
    }

    pub(crate) fn cluster(&self) -> Ref<'_, Cluster> {
        self.cluster.borrow()
    }

    /// Returns a server, if this generation is up.
    pub(crate) fn record_of(
        &self,
        server: ServerId,
        generation: Generation,
    ) -> Option<ServerRecord> {
        let cluster = self.cluster();
        let record = cluster.server(server)?;
        (record.state == ServerState::Up && record.generation == generation).then(|| record.clone())
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

    /// Calls a server with a time limit for its answer.
    pub(crate) async fn call_within(
        &self,
        to: SocketAddr,
        opcode: Opcode,
        message: &impl Serialize,
        timeout: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let message = to_body(message);
        let is_command = opcode.is_command();
        let body = if is_command { self.command_header().command(&message) } else { message };
        let answer = self.shared.caller().call(to, opcode, body, Some(timeout)).await;
        if let Err(CallError::Refused { status: Status::OldLeader, detail, .. }) = answer {
            self.on_later_leadership(to, detail);
        }
        answer
    }

    /// Notes that a server follows a later leadership.
    pub(crate) fn on_later_leadership(&self, at: impl std::fmt::Display, number: u64) {
        if number > LEADERSHIP_MAX {
            let text = format!(
                "{at} follows a leadership with the number {number}, which is above the limit"
            );
            return self.shared.remark_event("leadership", &text);
        }
        self.later.note_leadership(number);
    }

    /// Waits for the update lock, but not for long: the caller tries again later.
    pub(crate) async fn try_lock_updates(&self) -> Result<Guard<'_>, Refusal> {
        let patience = self.sleep(self.shared.options.patience);
        within(patience, self.update_lock.lock()).await.ok_or(Refusal::METASTORE)
    }

    /// Waits for the update lock as long as necessary.
    pub(crate) async fn lock_updates(&self) -> Guard<'_> {
        self.update_lock.lock().await
    }

    /// Writes a server's record, then takes it over.
    pub(crate) async fn put_server(&self, record: ServerRecord) -> Result<(), Refusal> {
        let key = key_of(SERVERS, record.server.0)?;
        self.write(&key, Some(to_value(&record))).await?;
        self.cluster_mut().put_server(record);
        self.announce_change();
        Ok(())
    }

    /// Deletes a server's record.
    pub(crate) async fn remove_server(&self, server: ServerId) -> Result<(), Refusal> {
        self.write(&key_of(SERVERS, server.0)?, None).await?;
        self.cluster_mut().remove_server(server);
        self.watch.forget(server);
        self.announce_change();
        Ok(())
    }

    /// Writes the cluster's record, then takes it over.
    pub(crate) async fn put_cluster(&self, record: ClusterRecord) -> Result<(), Refusal> {
        self.write(&Key::new(CLUSTER)?, Some(to_value(&record))).await?;
        self.cluster_mut().put_record(record);
        self.announce_change();
        Ok(())
    }

    /// Returns the version of the settings: that of the cluster's record in the metastore. It only
    /// grows, also under later leaders.
    pub(crate) fn settings_version(&self) -> Option<u64> {
        let key = Key::new(CLUSTER).ok()?;
        self.versions.borrow().get(&key).map(|version| version.0)
    }

    /// Writes a table's record, then takes it over.
    pub(crate) async fn put_table(&self, record: TableRecord) -> Result<(), Refusal> {
        let key = key_of(TABLES, record.id.0)?;
        self.write(&key, Some(to_value(&record))).await?;
        self.cluster_mut().put_table(record);
        self.announce_change();
        Ok(())
    }

    /// Writes tables' records, then takes them over. If it fails, some may be written, and these
    /// are taken over.
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
            self.announce_change();
            written.into_iter().collect::<Result<(), Refusal>>()?;
        }
    }

    /// Deletes a table's record.
    pub(crate) async fn remove_table(&self, table: TableId) -> Result<(), Refusal> {
        self.write(&key_of(TABLES, table.0)?, None).await?;
        self.cluster_mut().remove_table(table);
        self.announce_change();
        Ok(())
    }

    /// Takes ids. After success they belong to this caller for ever.
    pub(crate) async fn take_ids(&self, take: impl FnOnce(&mut Ids)) -> Result<Ids, Refusal> {
        let before = self.cluster().ids;
        let mut after = before;
        take(&mut after);
        self.write(&Key::new(IDS)?, Some(to_value(&after))).await?;
        self.cluster_mut().ids = after;
        Ok(before)
    }

    /// Announces a change: waiting tasks look again.
    pub(crate) fn announce_change(&self) {
        self.changed.raise();
        if self.cluster().changes() + 1 >= 1 << VERSION_BITS {
            // The next leadership's versions begin above these.
            self.shared
                .remark_event("leadership", "a leadership reached its highest number of changes");
            self.give_back();
        }
    }

    /// Makes a key hold a value, or none. An error means that the write was certainly not done.
    pub(crate) async fn write(&self, key: &Key, value: Option<Vec<u8>>) -> Result<(), Refusal> {
        let mut unsure = false;
        let mut pauses = RetryPauses::default();
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
            match self.shared.metastore.ask(self.now(), request).await {
                Ok(Answer::Written(version)) => {
                    self.note_version(key, value.is_some().then_some(version));
                    return Ok(());
                }
                Ok(Answer::Conflict(found)) if unsure => {
                    if self.is_our_own(key, found, value.as_deref()).await {
                        self.note_version(key, found);
                        return Ok(());
                    }
                    self.give_up("another program writes into the metastore").await;
                }
                Ok(Answer::Conflict(_)) => {
                    self.give_up("another program writes into the metastore").await;
                }
                Ok(Answer::Deposed) => {
                    tracing::warn!("this coordinator no longer leads: another one holds its lease");
                    self.give_back();
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
                    self.sleep(pauses.next()).await;
                }
            }
        }
    }

    fn note_version(&self, key: &Key, version: Option<Version>) {
        let mut versions = self.versions.borrow_mut();
        match version {
            Some(version) => versions.insert(key.clone(), version),
            None => versions.remove(key),
        };
        drop(versions);
        self.shared.unremark("metastore");
    }

    /// After a conflict, returns whether the key holds the value of an earlier attempt.
    async fn is_our_own(&self, key: &Key, found: Option<Version>, value: Option<&[u8]>) -> bool {
        let (Some(version), Some(value)) = (found, value) else {
            return found.is_none() && value.is_none();
        };
        let mut pauses = RetryPauses::default();
        loop {
            let request = Request::Get { key: key.clone() };
            match self.shared.metastore.ask(self.now(), request).await {
                Ok(Answer::Value(Some(entry))) => {
                    return entry.version == version && entry.value == value;
                }
                Ok(_) => return false,
                Err(error) => {
                    self.shared.remark("metastore", &error.to_string());
                    self.sleep(pauses.next()).await;
                }
            }
        }
    }

    /// Ends the leadership from within: its knowledge may be wrong. Never returns.
    pub(crate) async fn give_up(&self, why: &str) {
        self.shared.remark_event("leadership", why);
        self.give_back();
        pending::<()>().await;
    }

    async fn load_until_it_is_done(self: &Rc<Self>) {
        let mut pauses = RetryPauses::default();
        while let Err(why) = self.load().await {
            match why {
                Unread::Unavailable(why) => {
                    self.shared.remark("loading", &why);
                    self.sleep(pauses.next()).await;
                }
                Unread::Incomprehensible(why) => {
                    self.shared
                        .remark("loading", &format!("this coordinator does not lead: {why}"));
                    self.give_back_until(self.now() + STANDS_BACK);
                    return pending().await;
                }
            }
        }
        self.shared.unremark("loading");
        self.loaded.set(Some(self.now()));
        tracing::info!("this coordinator leads, and has read the recorded state");
        self.ensure_all_running();
    }

    /// Task: while the metastore has refused the last write, tries whether it accepts writes again.
    /// So the status is right soon after the metastore works again, even if no client changes
    /// anything.
    pub(crate) async fn try_metastore(self: &Rc<Self>) {
        loop {
            let seen = self.troubled.seen();
            if !self.shared.has_remark("metastore") {
                self.troubled.after(seen).await;
                continue;
            }
            self.sleep(METASTORE_TRIED).await;
            let _lock = self.lock_updates().await;
            if self.shared.has_remark("metastore") {
                // An error is a remark already.
                let _ = self.take_ids(|_| {}).await;
            }
        }
    }

    /// Reads the whole recorded state.
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
                // Keys of a newer version do not belong to this one.
                _ => leases.extend(id_in(LEASES, key).map(LeaseId)),
            }
        }
        let record = match record {
            Some(record) => record,
            None => self.create_cluster().await?,
        };
        let newest = self.shared.options.newest_format;
        check_format(&record, newest).map_err(Unread::Incomprehensible)?;
        self.compare(&record);
        // These numbers grow, so the versions of this leadership are above all earlier ones.
        let number = self.number(&record);
        let version_base = number.saturating_mul(1 << VERSION_BITS);
        let mut cluster = Cluster::new(record, ids, version_base);
        servers.into_iter().for_each(|record| cluster.put_server(record));
        tables.into_iter().for_each(|record| cluster.put_table(record));
        // The recorded state is the first version of this leadership.
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
            let answer = self.shared.metastore.ask(self.now(), request).await?;
            let Answer::Page(Page { entries: page, more }) = answer else {
                return Err(Error::Damaged {
                    reason: format!("a list was answered with {answer:?}"),
                });
            };
            let is_empty = page.is_empty();
            entries.extend(page);
            if !more || is_empty {
                return Ok(entries);
            }
        }
    }

    /// Creates the cluster. Its id is not 0, which means "no cluster" in greetings.
    async fn create_cluster(&self) -> Result<ClusterRecord, Unread> {
        let store = &self.shared.options.store;
        if self.shared.options.existing {
            let why =
                format!("{store} holds no cluster, and coordinator.existing forbids creating one");
            return Err(Unread::Incomprehensible(why));
        }
        let cluster = ClusterId(self.shared.random.borrow_mut().number().max(1));
        let settings = self.shared.options.settings.clone();
        let record = ClusterRecord::new(self.shared.options.newest_format, cluster, settings);
        let key = Key::new(CLUSTER)?;
        let written = self.write(&key, Some(to_value(&record))).await;
        let why = || format!("the cluster cannot be written into {store}");
        written.map_err(|_| Unread::Unavailable(why()))?;
        self.shared.note_created(cluster);
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
