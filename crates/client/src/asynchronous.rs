//! The client for asynchronous programs: thousands of operations at once on one client.
//!
//! # Why it has a thread of its own
//!
//! One thread, the *driver*, runs the session on our own transport. Tasks hand operations to it
//! through a queue and get the results as futures. The handoff costs some microseconds in each
//! direction, which a thread that waits by itself ([`Client`](crate::Client)) does not pay. In
//! return, the driver reuses features that would have to be built again on the sockets of an event
//! loop: shared memory with servers on the same host, framing, limits, back-pressure, adaptive
//! polling. Besides, operations that are queued while the driver is at work leave together. If a
//! thousand tasks read one object each, the driver makes a few messages, one for each shard and a
//! hundred objects. Under load that saves more than the handoff costs.
//!
//! The library needs no particular executor and does not depend on tokio: the driver wakes the
//! futures, and they use no timers of their own. Tokio, any other executor, or several at once will
//! do.
//!
//! # Guarantees
//!
//! - Dropping a future cancels the wait. If the operation has not been sent, it will not be sent.
//!   If it has been sent, it may be done.
//! - At most [`Options::in_flight_max`](crate::Options::in_flight_max) operations are in flight
//!   (and the rest of the batch that exceeded the limit). Others wait for their turn in the order
//!   in which they were begun. Their deadlines run while they wait.
//! - Every future ends by the deadline of its operation, also if the program cannot reach the
//!   cluster.

mod driver;
mod promise;
mod queue;
mod receiver;

pub use queue::{Completion, CompletionQueue, Outcome, Request, Submission};

use crate::client::{self, Options};
use crate::core::Results;
use crate::enumeration::Enumeration;
use crate::error::{Error, Obstacle};
use crate::operation::{Action, Answer, Number, Object, Operation, Value};
use crate::question::{Question, Reply, id_of, table_of};
use driver::{Job, Shared, SharedClock, Work};
use promise::{Promise, promise};
use receiver::Receiver;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::os::ForkCount;
use thunderhead_wire::control::{
    BackupStatus, ChangeSettings, ClusterStatus, CreateTable, DropTable, ForgetServer, Map,
    MigrateTablet, SettingsChanged, ShardStatus, SplitTablet, TableInfo, TableOptions,
};
use thunderhead_wire::{
    Condition, KeyHash, MasterId, ServerId, Status, TableId, TimeToLive, Version,
};

/// A client of a cluster, for any number of tasks.
///
/// Clones are handles to the same client: give each task one. Dropping the last handle ends the
/// client.
///
/// ```no_run
/// use thunderhead_client::{AsyncClient, Condition, Number, Options};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = AsyncClient::connect(&Options::new(["127.0.0.1:7070".parse()?])).await?;
/// let users = client.create_table("users", 1).await?;
///
/// client.put(users, b"ada", b"analyst", Condition::Always).await?;
/// if let Some((version, value)) = client.get(users, b"ada").await? {
///     println!("{version}: {value:?}");
/// }
///
/// // Tasks share the client. Requests that they make at the same time are sent together.
/// let tasks: Vec<_> = (0..1000)
///     .map(|number: u64| {
///         let client = client.clone();
///         tokio::spawn(async move {
///             client.increment(users, &(number % 10).to_be_bytes(), Number::Integer(1)).await
///         })
///     })
///     .collect();
/// for task in tasks {
///     task.await??;
/// }
///
/// let mut scan = client.scan(users);
/// while let Some(object) = scan.next().await {
///     println!("{:?}", object?.key);
/// }
///
/// client.close().await;
/// # Ok(())
/// # }
/// ```
///
/// The errors are the same as for [`Client`](crate::Client): every operation ends by its deadline,
/// and its error says whether an update may have been done.
#[derive(Clone)]
pub struct AsyncClient {
    handle: Arc<Handle>,
    deadline: Option<Duration>,
}

/// The state that all clones share. Dropping it ends the driver.
struct Handle {
    shared: Arc<Shared>,
    clock: SharedClock,
    alarm: Alarm,
    numbers: AtomicU64,
    /// The process in which the driver runs.
    forks: ForkCount,
}

impl Handle {
    /// Starts a driver.
    async fn start(options: &Options) -> Result<Arc<Handle>, Error> {
        let system = |error: std::io::Error| Error::System(error.kind());
        let alarm = Alarm::os().map_err(system)?;
        let forks = ForkCount::now().map_err(system)?;
        // The driver ends with this handle, also if the future is dropped before it is complete.
        let (shared, clock, numbers) = (Arc::default(), SharedClock::start(), AtomicU64::new(0));
        let handle = Arc::new(Handle { shared, clock, alarm: alarm.clone(), numbers, forks });
        let (tell, told) = promise();
        driver::start((Arc::clone(&handle.shared), clock, alarm), options.clone(), tell)?;
        told.await.unwrap_or(Err(Error::Closed))?;
        Ok(handle)
    }

    /// Returns the time at which an operation ends that begins now.
    fn deadline(&self, deadline: Option<Duration>) -> Time {
        deadline.map_or(Time::NEVER, |deadline| self.clock.now() + deadline)
    }

    /// Asks the driver to end the client when its work is done. The promise is kept then. Returns
    /// false if the driver has already ended.
    fn close(&self, promise: Promise<()>) -> bool {
        let closes = !self.forks.is_past() && self.shared.close(promise);
        if closes {
            self.alarm.ring();
        }
        closes
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The child of a fork has no driver, and the alarm's descriptor is its parent's too.
        if !self.forks.is_past() {
            self.shared.abandon();
            self.alarm.ring();
        }
    }
}

impl AsyncClient {
    /// Connects to the cluster that the options name. Asks a coordinator for the map, to notice a
    /// wrong address now. The map of a large cluster is fetched only for the tables in use.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when no coordinator answers by the deadline; [`Error::NoCoordinators`];
    /// [`Error::System`].
    pub async fn connect(options: &Options) -> Result<AsyncClient, Error> {
        let handle = Handle::start(options).await?;
        let client = AsyncClient { handle, deadline: options.deadline };
        client.ask(Question::News).await?;
        Ok(client)
    }

    /// Returns a handle to the same client with another deadline for operations that begin through
    /// that handle; `None`: no deadline.
    #[must_use]
    pub fn with_deadline(&self, deadline: Option<Duration>) -> AsyncClient {
        AsyncClient { deadline, ..self.clone() }
    }

    /// Reads an object. Returns its version and its value, or `None` if it does not exist.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Value>, Error> {
        client::found(self.operate(table, key, Condition::Always, Action::Read).await)
    }

    /// Writes an object if a condition holds. Returns its new version.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the version that the object has, or see [`Error`].
    pub async fn put(
        &self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> Result<Version, Error> {
        let action = Action::Write(value.to_vec());
        client::written(self.operate(table, key, condition, action).await)
    }

    /// Writes an object that lives for this time, if a condition holds. Returns its new version.
    /// The time begins when the server does the write.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the version that the object has,
    /// [`Status::BadTimeToLive`] as [`Error::Refused`], or see [`Error`].
    pub async fn put_expiring(
        &self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        time_to_live: TimeToLive,
        condition: Condition,
    ) -> Result<Version, Error> {
        let action = Action::WriteExpiring(value.to_vec(), time_to_live);
        client::written(self.operate(table, key, condition, action).await)
    }

    /// Changes when an object expires, if a condition holds: it lives for this time from now on.
    /// Returns its new version, or `None` if it does not exist.
    ///
    /// # Errors
    /// Those of [`AsyncClient::put_expiring`].
    pub async fn set_expiry(
        &self,
        table: TableId,
        key: &[u8],
        time_to_live: TimeToLive,
        condition: Condition,
    ) -> Result<Option<Version>, Error> {
        let action = Action::SetExpiry(time_to_live);
        client::changed(self.operate(table, key, condition, action).await)
    }

    /// Returns how long an object still lives, with its version; `None` if it does not exist.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn time_to_live(
        &self,
        table: TableId,
        key: &[u8],
    ) -> Result<Option<(Version, TimeToLive)>, Error> {
        client::lives(self.operate(table, key, Condition::Always, Action::ReadExpiry).await)
    }

    /// Deletes an object if a condition holds. Returns the version that it had, if it existed.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the version that the object has, or see [`Error`].
    pub async fn delete(
        &self,
        table: TableId,
        key: &[u8],
        condition: Condition,
    ) -> Result<Option<Version>, Error> {
        client::deleted(self.operate(table, key, condition, Action::Delete).await)
    }

    /// Writes a number if a condition holds. Returns its new version. Increments of the same kind
    /// can add to it; they refuse a value that [`AsyncClient::put`] wrote. Reads return its 8
    /// bytes, little-endian.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the version that the object has, or see [`Error`].
    pub async fn put_number(
        &self,
        table: TableId,
        key: &[u8],
        number: Number,
        condition: Condition,
    ) -> Result<Version, Error> {
        client::written(self.operate(table, key, condition, Action::WriteNumber(number)).await)
    }

    /// Adds to a number, whole or floating-point. Returns its new version and the sum. An object
    /// that does not exist counts as 0. A value that was written as bytes, or a number of the other
    /// kind, is refused.
    ///
    /// # Errors
    /// [`Error::NotANumber`], [`Status::Overflow`] as [`Error::Refused`], or see [`Error`].
    pub async fn increment(
        &self,
        table: TableId,
        key: &[u8],
        by: Number,
    ) -> Result<(Version, Number), Error> {
        client::sum(self.operate(table, key, Condition::Always, Action::Increment(by)).await)
    }

    async fn operate(
        &self,
        table: TableId,
        key: &[u8],
        condition: Condition,
        action: Action,
    ) -> Result<Answer, Error> {
        let operation = Operation { table, key: key.to_vec(), condition, action };
        self.all(vec![operation]).await.pop().unwrap_or(Err(Error::Incomprehensible))
    }

    /// Reads many objects at once. Returns the results in the order of the keys.
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        table: TableId,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Value>, Error>> {
        let results = self.all(client::reads(table, keys));
        results.await.into_iter().map(client::found).collect()
    }

    /// Writes many objects at once, each by itself and in no particular order. Returns the results
    /// in the order of the objects.
    pub async fn put_many<K: AsRef<[u8]>, V: Into<Vec<u8>>>(
        &self,
        table: TableId,
        objects: impl IntoIterator<Item = (K, V)>,
    ) -> Vec<Result<Version, Error>> {
        let results = self.all(client::writes(table, objects));
        results.await.into_iter().map(client::written).collect()
    }

    /// Does many operations at once, of any kind and on any tables. They have no order among them.
    /// Returns the results in the order of the operations.
    pub async fn all(&self, operations: Vec<Operation>) -> Results {
        let count = operations.len();
        match self.begin(|promise| Work::Operations(operations, Receiver::Task(promise))) {
            // The driver has died of a bug. The operations may have been done or not.
            Ok(wait) => {
                wait.await.unwrap_or_else(|| vec![Err(Error::Unknown(Obstacle::NoAnswer)); count])
            }
            Err(error) => vec![Err(error); count],
        }
    }

    /// Enumerates all objects of a table, in no particular order. An object that exists during the
    /// whole enumeration is returned exactly once. An object that is created or deleted during the
    /// enumeration may be returned or not.
    #[must_use]
    pub fn scan(&self, table: TableId) -> AsyncScan {
        let (client, enumeration) = (self.clone(), Enumeration::new(table));
        AsyncScan { client, enumeration, page: Vec::new().into_iter(), failed: false }
    }

    /// Creates a table, spread over `server_span` shards, and returns its id.
    ///
    /// # Errors
    /// [`Status::TableExists`] as [`Error::Refused`], or see [`Error`]. If an answer is lost and
    /// another client creates a table of this name at the same time, both calls may succeed and
    /// return the same table.
    pub async fn create_table(&self, name: &str, server_span: u32) -> Result<TableId, Error> {
        self.create_table_with(name, server_span, TableOptions::DEFAULT).await
    }

    /// Creates a table with options, spread over `server_span` shards, and returns its id.
    ///
    /// # Errors
    /// Those of [`AsyncClient::create_table`]. A cluster refuses options with
    /// [`Status::OldFormat`] until its format is 2, and a coordinator of an earlier release
    /// with [`Status::UnknownOpcode`].
    pub async fn create_table_with(
        &self,
        name: &str,
        server_span: u32,
        options: TableOptions,
    ) -> Result<TableId, Error> {
        let question = CreateTable { options, ..CreateTable::spread(name, server_span) };
        client::table(self.ask(Question::CreateTable(question)).await).map(|table| table.id)
    }

    /// Returns the id of a table, and creates the table if it does not exist: spread over
    /// `server_span` shards.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ensure_table(&self, name: &str, server_span: u32) -> Result<TableId, Error> {
        match self.table(name).await {
            Err(Error::Refused(Status::NoSuchTable)) => {}
            found => return found,
        }
        match self.create_table(name, server_span).await {
            // Another client was faster.
            Err(Error::Refused(Status::TableExists)) => self.table(name).await,
            created => created,
        }
    }

    /// Deletes a table with all its objects.
    ///
    /// # Errors
    /// [`Status::NoSuchTable`] as [`Error::Refused`], or see [`Error`].
    pub async fn drop_table(&self, name: &str) -> Result<(), Error> {
        let question = DropTable::named(name);
        self.ask(Question::DropTable(question)).await.map(drop)
    }

    /// Returns the id of a table. The id does not change as long as the table exists.
    ///
    /// # Errors
    /// [`Status::NoSuchTable`] as [`Error::Refused`], or see [`Error`].
    pub async fn table(&self, name: &str) -> Result<TableId, Error> {
        match self.ask(Question::Map(Some(name.to_owned()))).await? {
            Reply::Map(map) => id_of(&map, name).ok_or(Error::Refused(Status::NoSuchTable)),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Returns a table, with the location of each tablet.
    ///
    /// # Errors
    /// [`Status::NoSuchTable`] as [`Error::Refused`], or see [`Error`].
    pub async fn table_info(&self, name: &str) -> Result<TableInfo, Error> {
        match self.ask(Question::Map(Some(name.to_owned()))).await? {
            Reply::Map(map) => table_of(map, name).ok_or(Error::Refused(Status::NoSuchTable)),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Returns the map: all tables, with the location of each tablet.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn map(&self) -> Result<Map, Error> {
        match self.ask(Question::Map(None)).await? {
            Reply::Map(map) => Ok(map),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Returns all tables.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn tables(&self) -> Result<Vec<TableInfo>, Error> {
        self.map().await.map(|map| map.tables)
    }

    /// Splits the tablet that holds the hash `at` into two. `at` is the first hash of the second
    /// one.
    ///
    /// # Errors
    /// [`Status::BadRange`] as [`Error::Refused`], or see [`Error`].
    pub async fn split(&self, name: &str, at: KeyHash) -> Result<TableInfo, Error> {
        let question = SplitTablet { table: name.to_owned(), at };
        client::table(self.ask(Question::SplitTablet(question)).await)
    }

    /// Moves the tablet that begins with the hash `first` to another master, and waits until the
    /// move is complete. The move of a large tablet takes longer than the default deadline.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn migrate(
        &self,
        name: &str,
        first: KeyHash,
        to: MasterId,
    ) -> Result<TableInfo, Error> {
        let question = MigrateTablet { table: name.to_owned(), first, to };
        client::table(self.ask(Question::MigrateTablet(question)).await)
    }

    /// Makes the cluster forget a server that is down and will not restart. The objects in its
    /// memory are recovered first; the replicas on its disk are lost.
    ///
    /// # Errors
    /// [`Status::ServerIsUp`] or [`Status::NoSuchServer`] as [`Error::Refused`], or see [`Error`].
    pub async fn forget_server(&self, server: ServerId) -> Result<(), Error> {
        let question = ForgetServer { server };
        self.ask(Question::ForgetServer(question)).await.map(drop)
    }

    /// Changes settings of a running cluster, and returns the settings that hold after the change.
    ///
    /// # Errors
    /// [`Status::BadSetting`] as [`Error::Refused`], or see [`Error`].
    pub async fn change_settings(&self, changes: ChangeSettings) -> Result<SettingsChanged, Error> {
        match self.ask(Question::ChangeSettings(changes)).await? {
            Reply::Settings(changed) => Ok(changed),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Returns the status of the cluster.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&self) -> Result<ClusterStatus, Error> {
        match self.ask(Question::ClusterStatus).await? {
            Reply::Cluster(status) => Ok(status),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Returns the status of the shard at an address.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn shard_status(&self, address: SocketAddr) -> Result<ShardStatus, Error> {
        match self.ask(Question::ShardStatus(address)).await? {
            Reply::Shard(status) => Ok(status),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Returns the status of the backup at an address.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn backup_status(&self, address: SocketAddr) -> Result<BackupStatus, Error> {
        match self.ask(Question::BackupStatus(address)).await? {
            Reply::Backup(status) => Ok(status),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Sends a question to the coordinator or a server, and returns the reply.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ask(&self, question: Question) -> Result<Reply, Error> {
        let wait = self.begin(|promise| Work::Question(question, Receiver::Task(promise)))?;
        wait.await.unwrap_or(Err(Error::Unknown(Obstacle::NoAnswer)))
    }

    /// Closes the client for all handles. Operations in flight end; operations that begin later
    /// fail with [`Error::Closed`]. The lease ends, so that servers can forget the client's
    /// completion records.
    pub async fn close(self) {
        let (promise, done) = promise();
        if self.handle.close(promise) {
            done.await;
        }
    }

    /// Hands a job to the driver.
    fn begin<T>(&self, work: impl FnOnce(Promise<T>) -> Work) -> Result<JobFuture<'_, T>, Error> {
        if self.handle.forks.is_past() {
            return Err(Error::Forked);
        }
        let (promise, done) = promise();
        let number = self.handle.numbers.fetch_add(1, Ordering::Relaxed);
        let deadline = self.handle.deadline(self.deadline);
        let job = Job::Do { number, work: work(promise), deadline };
        if !self.handle.shared.push(job) {
            return Err(Error::Closed);
        }
        self.handle.alarm.ring();
        Ok(JobFuture { done, number, handle: &self.handle, is_done: false })
    }
}

/// Waits for a job of the driver. Dropping it cancels the job.
struct JobFuture<'a, T> {
    done: promise::PromisedValue<T>,
    number: u64,
    handle: &'a Handle,
    is_done: bool,
}

impl<T> Future for JobFuture<'_, T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let polled = Pin::new(&mut self.done).poll(context);
        self.is_done = polled.is_ready();
        polled
    }
}

impl<T> Drop for JobFuture<'_, T> {
    fn drop(&mut self) {
        if !self.is_done && !self.handle.forks.is_past() {
            self.handle.shared.push(Job::GiveUp(self.number));
            self.handle.alarm.ring();
        }
    }
}

/// An enumeration of all objects of a table. It ends after an error.
pub struct AsyncScan {
    client: AsyncClient,
    enumeration: Enumeration,
    page: std::vec::IntoIter<Object>,
    failed: bool,
}

impl AsyncScan {
    /// Returns the next object. If the future is dropped before it is ready, no object is lost: the
    /// next call returns the same object.
    pub async fn next(&mut self) -> Option<Result<Object, Error>> {
        while !self.failed {
            if let Some(object) = self.page.next() {
                return Some(Ok(object));
            }
            let operation = self.enumeration.next()?;
            let answer = self.client.all(vec![operation]).await.pop();
            let page = answer.unwrap_or(Err(Error::Incomprehensible)).and_then(|answer| {
                self.enumeration.answered(answer).ok_or(Error::Incomprehensible)
            });
            match page {
                Ok(page) => self.page = page.into_iter(),
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
