//! The blocking client: for programs whose threads wait for their answers.

use crate::blocking::{Blocking, Coordinators, DEADLINE, Scan};
use crate::core::Results;
use crate::error::Error;
use crate::operation::{Action, Answer, Number, Operation, Value};
use crate::question::{Question, Reply, id_of, table_of};
use crate::session::Session;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_net::OwnCluster;
use thunderhead_net::os::{Options as NetOptions, OsTransport};
use thunderhead_rpc::Caller;
use thunderhead_runtime::World;
use thunderhead_runtime::names::Addresses;
use thunderhead_runtime::os::{self, ForkCount};
use thunderhead_runtime::polling::Polling;
use thunderhead_wire::control::{
    BackupStatus, ChangeSettings, ClusterStatus, CreateTable, DropTable, ForgetServer, Map,
    MigrateTablet, SettingsChanged, ShardStatus, SplitTablet, TableInfo, TableOptions,
};
use thunderhead_wire::{
    ClusterId, Condition, KeyHash, MasterId, ServerId, Status, TableId, TimeToLive, Version,
};

/// The settings of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The coordinators: all of them, or some. It is enough if one of them can be reached.
    pub coordinators: Addresses,
    /// The time limit of an operation, retries included; `None`: no limit. The default is 10
    /// seconds.
    pub deadline: Option<Duration>,
    /// The network settings.
    pub net: NetOptions,
    /// Whether the client spins or sleeps while it waits for answers.
    pub polling: Polling,
    /// The limit of operations that an [`AsyncClient`](crate::AsyncClient) has in flight. Further
    /// operations wait for their turn.
    pub in_flight_max: usize,
}

/// The default limit of operations in flight: enough to keep many servers busy. Operations of
/// ordinary size take some megabytes.
const IN_FLIGHT_MAX: usize = 8192;

impl Options {
    /// The default options, for a cluster with these coordinators.
    #[must_use]
    pub fn new(coordinators: impl Into<Addresses>) -> Options {
        Options {
            coordinators: coordinators.into(),
            deadline: Some(DEADLINE),
            net: NetOptions::default(),
            polling: Polling::default(),
            in_flight_max: IN_FLIGHT_MAX,
        }
    }

    /// Restricts the client to this cluster: it does not talk to coordinators and servers of other
    /// clusters. By default, the first coordinator that answers decides the cluster.
    #[must_use]
    pub fn of_cluster(mut self, cluster: ClusterId) -> Options {
        self.net.cluster = OwnCluster::Known(cluster);
        self
    }

    /// Sets the deadline.
    #[must_use]
    pub fn deadline(self, deadline: Option<Duration>) -> Options {
        Options { deadline, ..self }
    }
}

/// Makes the session and the caller with which a front does its calls from its own thread.
pub(crate) fn engine(options: &Options, mut world: World) -> Result<(Session, Caller), Error> {
    if options.coordinators.list().is_empty() {
        return Err(Error::NoCoordinators);
    }
    // The first coordinator that answers decides the cluster. The client then talks to no other
    // cluster.
    let cluster = match options.net.cluster {
        OwnCluster::Unknown => OwnCluster::FirstMet,
        demanded => demanded,
    };
    let transport = OsTransport::new(&world, NetOptions { cluster, ..options.net });
    let transport = Box::new(transport.map_err(|error| Error::System(error.kind()))?);
    let caller = Caller::new(&world, transport, options.polling);
    Ok((Session::new(options.coordinators.clone(), world.random.split()), caller))
}

pub(crate) fn world() -> Result<World, Error> {
    os::world_without_files().map_err(|error| Error::System(error.kind()))
}

/// A client of a cluster, for one thread at a time.
///
/// The calling thread does all the work and waits for the answer. A client can move to another
/// thread. Threads that work at the same time make one client each, or share an
/// [`AsyncClient`](crate::AsyncClient).
///
/// ```no_run
/// use thunderhead_client::{Client, Condition, Number, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut client = Client::connect(&Options::new(["127.0.0.1:7070".parse()?]))?;
/// let users = client.create_table("users", 1)?;
///
/// let version = client.put(users, b"ada", b"analyst", Condition::Always)?;
/// assert_eq!(client.get(users, b"ada")?, Some((version, b"analyst".to_vec())));
///
/// // This write happens only if the object has not changed since it was read.
/// client.put(users, b"ada", b"countess", Condition::VersionIs(version))?;
///
/// // An object that does not exist counts as 0.
/// let (_, visits) = client.increment(users, b"visits", Number::Integer(1))?;
/// println!("{visits:?}");
///
/// // Many operations at once take hardly longer than one.
/// for result in client.put_many(users, [("bob", "builder"), ("eve", "listener")]) {
///     result?;
/// }
///
/// for object in client.scan(users) {
///     let object = object?;
///     println!("{}", String::from_utf8_lossy(&object.key));
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Every operation ends by its deadline ([`Client::set_deadline`]; 10 seconds by default). Until
/// then the client masks every temporary obstacle: servers that crash and are recovered, tablets
/// that move, coordinators that change. After the deadline, [`Error::TimedOut`] names the obstacle
/// and says that nothing was done. [`Error::Unknown`] says that an update may have been done. No
/// update is ever done twice.
pub struct Client {
    /// `None` only while the client is closed or dropped.
    inner: Option<Blocking<Coordinators>>,
    /// The process that made the client.
    forks: ForkCount,
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.forks.is_past() {
            // The connections belong to the parent. Closing them properly would write to them.
            std::mem::forget(self.inner.take());
        }
    }
}

impl Client {
    /// Connects to the cluster that the options name. Asks a coordinator for the map, to notice a
    /// wrong address now. The map of a large cluster is fetched only for the tables in use.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when no coordinator answers by the deadline; [`Error::NoCoordinators`];
    /// [`Error::System`].
    pub fn connect(options: &Options) -> Result<Client, Error> {
        let mut client = Client::unconnected(options)?;
        client.inner()?.ask(Question::News)?;
        Ok(client)
    }

    /// Like [`Client::connect`], with an interrupt from the beginning: see
    /// [`Client::set_interrupt`].
    ///
    /// # Errors
    /// Those of [`Client::connect`], and [`Error::Cancelled`].
    pub fn connect_interruptibly(
        options: &Options,
        every: Duration,
        is_wanted: impl FnMut() -> bool + Send + 'static,
    ) -> Result<Client, Error> {
        let mut client = Client::unconnected(options)?;
        client.set_interrupt(every, is_wanted);
        client.inner()?.ask(Question::News)?;
        Ok(client)
    }

    fn unconnected(options: &Options) -> Result<Client, Error> {
        let forks = ForkCount::now().map_err(|error| Error::System(error.kind()))?;
        let world = world()?;
        let clock = world.clock.clone();
        let (session, caller) = engine(options, world)?;
        let mut inner = Blocking::with(session, clock, caller, Coordinators);
        inner.deadline = options.deadline;
        Ok(Client { inner: Some(inner), forks })
    }

    #[inline]
    fn inner(&mut self) -> Result<&mut Blocking<Coordinators>, Error> {
        if self.forks.is_past() {
            return Err(Error::Forked);
        }
        self.inner.as_mut().ok_or(Error::Closed)
    }

    /// Makes the client call `is_wanted` about every `every` while an operation waits. Once it
    /// returns true, the operation ends with [`Error::Cancelled`], or with [`Error::Unknown`] if it
    /// may have been done. For programs that must notice a signal while they wait.
    pub fn set_interrupt(
        &mut self,
        every: Duration,
        is_wanted: impl FnMut() -> bool + Send + 'static,
    ) {
        if let Ok(inner) = self.inner() {
            inner.set_interrupt(every, is_wanted);
        }
    }

    /// Sets the time limit of all further operations; `None`: no limit.
    pub fn set_deadline(&mut self, deadline: Option<Duration>) {
        if let Ok(inner) = self.inner() {
            inner.deadline = deadline;
        }
    }

    /// Sends a question to the coordinator or a server, and waits for the reply.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn ask(&mut self, question: Question) -> Result<Reply, Error> {
        self.inner()?.ask(question)
    }

    /// Creates a table, spread over `server_span` shards, and returns its id.
    ///
    /// # Errors
    /// [`Status::TableExists`] as [`Error::Refused`], or see [`Error`]. If an answer is lost and
    /// another client creates a table of this name at the same time, both calls may succeed and
    /// return the same table.
    pub fn create_table(&mut self, name: &str, server_span: u32) -> Result<TableId, Error> {
        self.create_table_with(name, server_span, TableOptions::DEFAULT)
    }

    /// Creates a table with options, spread over `server_span` shards, and returns its id.
    ///
    /// # Errors
    /// Those of [`Client::create_table`]. A cluster refuses options with
    /// [`Status::OldFormat`] until its format is 2, and a coordinator of an earlier release
    /// with [`Status::UnknownOpcode`].
    pub fn create_table_with(
        &mut self,
        name: &str,
        server_span: u32,
        options: TableOptions,
    ) -> Result<TableId, Error> {
        let question = CreateTable { options, ..CreateTable::spread(name, server_span) };
        table(self.inner()?.ask(Question::CreateTable(question))).map(|table| table.id)
    }

    /// Creates a table that lies beside another one: on the same shard, always. Returns its id.
    ///
    /// # Errors
    /// As [`Client::create_table`]; [`Status::Grouped`] as [`Error::Refused`] if the other table is
    /// spread, and [`Status::OldFormat`] if the cluster is of an earlier format.
    pub fn create_table_beside(&mut self, name: &str, beside: TableId) -> Result<TableId, Error> {
        let question = CreateTable::beside(name, beside);
        let made = table(self.inner()?.ask(Question::CreateTable(question)))?;
        // Otherwise a coordinator of an earlier version has made a table anywhere, or another
        // client was faster.
        let is_beside = made.beside == Some(beside);
        is_beside.then_some(made.id).ok_or(Error::Refused(Status::TableExists))
    }

    /// Returns the id of a table, and creates the table if it does not exist: spread over
    /// `server_span` shards.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn ensure_table(&mut self, name: &str, server_span: u32) -> Result<TableId, Error> {
        match self.table(name) {
            Err(Error::Refused(Status::NoSuchTable)) => {}
            found => return found,
        }
        match self.create_table(name, server_span) {
            // Another client was faster.
            Err(Error::Refused(Status::TableExists)) => self.table(name),
            created => created,
        }
    }

    /// Deletes a table with all its objects.
    ///
    /// # Errors
    /// [`Status::NoSuchTable`] as [`Error::Refused`], or see [`Error`].
    pub fn drop_table(&mut self, name: &str) -> Result<(), Error> {
        let question = DropTable::named(name);
        self.inner()?.ask(Question::DropTable(question)).map(drop)
    }

    /// Returns the id of a table. The id does not change as long as the table exists.
    ///
    /// # Errors
    /// [`Status::NoSuchTable`] as [`Error::Refused`], or see [`Error`].
    pub fn table(&mut self, name: &str) -> Result<TableId, Error> {
        match self.inner()?.ask(Question::Map(Some(name.to_owned())))? {
            Reply::Map(map) => id_of(&map, name).ok_or(Error::Refused(Status::NoSuchTable)),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Returns a table, with the location of each tablet.
    ///
    /// # Errors
    /// [`Status::NoSuchTable`] as [`Error::Refused`], or see [`Error`].
    pub fn table_info(&mut self, name: &str) -> Result<TableInfo, Error> {
        match self.inner()?.ask(Question::Map(Some(name.to_owned())))? {
            Reply::Map(map) => table_of(map, name).ok_or(Error::Refused(Status::NoSuchTable)),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Returns the map: all tables, with the location of each tablet.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn map(&mut self) -> Result<Map, Error> {
        match self.inner()?.ask(Question::Map(None))? {
            Reply::Map(map) => Ok(map),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Returns all tables.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn tables(&mut self) -> Result<Vec<TableInfo>, Error> {
        self.map().map(|map| map.tables)
    }

    /// Splits the tablet that holds the hash `at` into two. `at` is the first hash of the second
    /// one.
    ///
    /// # Errors
    /// [`Status::BadRange`] as [`Error::Refused`], or see [`Error`].
    pub fn split(&mut self, name: &str, at: KeyHash) -> Result<TableInfo, Error> {
        let question = SplitTablet { table: name.to_owned(), at };
        table(self.inner()?.ask(Question::SplitTablet(question)))
    }

    /// Moves the tablet that begins with the hash `first` to another master, and waits until the
    /// move is complete. The move of a large tablet takes longer than the default deadline.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn migrate(
        &mut self,
        name: &str,
        first: KeyHash,
        to: MasterId,
    ) -> Result<TableInfo, Error> {
        let question = MigrateTablet { table: name.to_owned(), first, to };
        table(self.inner()?.ask(Question::MigrateTablet(question)))
    }

    /// Makes the cluster forget a server that is down and will not restart. The objects in its
    /// memory are recovered first; the replicas on its disk are lost.
    ///
    /// # Errors
    /// [`Status::ServerIsUp`] or [`Status::NoSuchServer`] as [`Error::Refused`], or see [`Error`].
    pub fn forget_server(&mut self, server: ServerId) -> Result<(), Error> {
        let question = ForgetServer { server };
        self.inner()?.ask(Question::ForgetServer(question)).map(drop)
    }

    /// Changes settings of a running cluster, and returns the settings that hold after the change.
    ///
    /// # Errors
    /// [`Status::BadSetting`] as [`Error::Refused`], or see [`Error`].
    pub fn change_settings(&mut self, changes: ChangeSettings) -> Result<SettingsChanged, Error> {
        match self.inner()?.ask(Question::ChangeSettings(changes))? {
            Reply::Settings(changed) => Ok(changed),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Returns the status of the cluster.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn status(&mut self) -> Result<ClusterStatus, Error> {
        match self.inner()?.ask(Question::ClusterStatus)? {
            Reply::Cluster(status) => Ok(status),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Returns the status of the shard at an address.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn shard_status(&mut self, address: SocketAddr) -> Result<ShardStatus, Error> {
        match self.inner()?.ask(Question::ShardStatus(address))? {
            Reply::Shard(status) => Ok(status),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Returns the status of the backup at an address.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn backup_status(&mut self, address: SocketAddr) -> Result<BackupStatus, Error> {
        match self.inner()?.ask(Question::BackupStatus(address))? {
            Reply::Backup(status) => Ok(status),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Reads an object. Returns its version and its value, or `None` if it does not exist.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get(&mut self, table: TableId, key: &[u8]) -> Result<Option<Value>, Error> {
        self.inner()?.get(table, key)
    }

    /// Reads an object and gives it to `take`: its version and its value, or `None` if it does not
    /// exist. The value is usually not copied on the way.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get_with<T>(
        &mut self,
        table: TableId,
        key: &[u8],
        take: impl FnOnce(Option<(Version, &[u8])>) -> T,
    ) -> Result<T, Error> {
        self.inner()?.get_with(table, key, take)
    }

    /// Writes an object if a condition holds. Returns its new version.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the version that the object has, or see [`Error`].
    pub fn put(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> Result<Version, Error> {
        self.inner()?.put(table, key, value, condition)
    }

    /// Writes an object that lives for this time, if a condition holds. Returns its new version.
    /// The time begins when the server does the write.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the version that the object has,
    /// [`Status::BadTimeToLive`] as [`Error::Refused`], or see [`Error`]. A server of an earlier
    /// release refuses it with [`Status::UnknownOpcode`] or [`Status::Malformed`].
    pub fn put_expiring(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        time_to_live: TimeToLive,
        condition: Condition,
    ) -> Result<Version, Error> {
        self.inner()?.put_expiring(table, key, value, time_to_live, condition)
    }

    /// Changes when an object expires, if a condition holds: it lives for this time from now on.
    /// Returns its new version, or `None` if it does not exist.
    ///
    /// # Errors
    /// Those of [`Client::put_expiring`].
    pub fn set_expiry(
        &mut self,
        table: TableId,
        key: &[u8],
        time_to_live: TimeToLive,
        condition: Condition,
    ) -> Result<Option<Version>, Error> {
        self.inner()?.set_expiry(table, key, time_to_live, condition)
    }

    /// Returns how long an object still lives, with its version; `None` if it does not exist.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn time_to_live(
        &mut self,
        table: TableId,
        key: &[u8],
    ) -> Result<Option<(Version, TimeToLive)>, Error> {
        self.inner()?.time_to_live(table, key)
    }

    /// Deletes an object if a condition holds. Returns the version that it had, if it existed.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the version that the object has, or see [`Error`].
    pub fn delete(
        &mut self,
        table: TableId,
        key: &[u8],
        condition: Condition,
    ) -> Result<Option<Version>, Error> {
        self.inner()?.delete(table, key, condition)
    }

    /// Writes a number if a condition holds. Returns its new version. Increments of the same kind
    /// can add to it; they refuse a value that [`Client::put`] wrote. Reads return its 8 bytes,
    /// little-endian.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the version that the object has, or see [`Error`].
    pub fn put_number(
        &mut self,
        table: TableId,
        key: &[u8],
        number: Number,
        condition: Condition,
    ) -> Result<Version, Error> {
        self.inner()?.put_number(table, key, number, condition)
    }

    /// Adds to a number, whole or floating-point. Returns its new version and the sum. An object
    /// that does not exist counts as 0. A value that was written as bytes, or a number of the other
    /// kind, is refused.
    ///
    /// # Errors
    /// [`Error::NotANumber`], [`Status::Overflow`] as [`Error::Refused`], or see [`Error`].
    pub fn increment(
        &mut self,
        table: TableId,
        key: &[u8],
        by: Number,
    ) -> Result<(Version, Number), Error> {
        self.inner()?.increment(table, key, by)
    }

    /// Reads many objects at once. Returns the results in the order of the keys.
    pub fn get_many<K: AsRef<[u8]>>(
        &mut self,
        table: TableId,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Value>, Error>> {
        self.all(reads(table, keys)).into_iter().map(found).collect()
    }

    /// Writes many objects at once, each by itself and in no particular order. Returns the results
    /// in the order of the objects.
    pub fn put_many<K: AsRef<[u8]>, V: Into<Vec<u8>>>(
        &mut self,
        table: TableId,
        objects: impl IntoIterator<Item = (K, V)>,
    ) -> Vec<Result<Version, Error>> {
        self.all(writes(table, objects)).into_iter().map(written).collect()
    }

    /// Does many operations at once, of any kind and on any tables. They have no order among them.
    /// Returns the results in the order of the operations.
    pub fn all(&mut self, operations: Vec<Operation>) -> Results {
        match self.inner() {
            Ok(inner) => inner.all(operations),
            Err(error) => vec![Err(error); operations.len()],
        }
    }

    /// Enumerates all objects of a table, in no particular order. An object that exists during the
    /// whole enumeration is returned exactly once. An object that is created or deleted during the
    /// enumeration may be returned or not.
    pub fn scan(&mut self, table: TableId) -> Scan<'_, Coordinators> {
        Scan::new(self.inner(), table)
    }

    /// Ends the client's lease, so that servers can forget its completion records. Waits for a
    /// second at most. Dropping a client does the same without waiting.
    pub fn close(self) {
        let _ = self.close_within();
    }

    /// Closes the client, and returns the time that this took; `None` if it was interrupted.
    pub(crate) fn close_within(mut self) -> Option<Duration> {
        match self.inner.take() {
            Some(inner) if !self.forks.is_past() => inner.close(),
            inner => {
                // As in `drop`: the connections of a parent are not touched.
                std::mem::forget(inner);
                Some(Duration::ZERO)
            }
        }
    }
}

pub(crate) fn table(reply: Result<Reply, Error>) -> Result<TableInfo, Error> {
    match reply? {
        Reply::Table(table) => Ok(table),
        _ => Err(Error::Incomprehensible),
    }
}

pub(crate) fn reads<K: AsRef<[u8]>>(
    table: TableId,
    keys: impl IntoIterator<Item = K>,
) -> Vec<Operation> {
    let operation = |key: K| Operation {
        table,
        key: key.as_ref().to_vec(),
        condition: Condition::Always,
        action: Action::Read,
    };
    keys.into_iter().map(operation).collect()
}

pub(crate) fn writes<K: AsRef<[u8]>, V: Into<Vec<u8>>>(
    table: TableId,
    objects: impl IntoIterator<Item = (K, V)>,
) -> Vec<Operation> {
    let operation = |(key, value): (K, V)| Operation {
        table,
        key: key.as_ref().to_vec(),
        condition: Condition::Always,
        action: Action::Write(value.into()),
    };
    objects.into_iter().map(operation).collect()
}

pub(crate) fn found(result: Result<Answer, Error>) -> Result<Option<Value>, Error> {
    match result? {
        Answer::Found { version, value } => Ok(Some((version, value))),
        Answer::Absent => Ok(None),
        _ => Err(Error::Incomprehensible),
    }
}

pub(crate) fn written(result: Result<Answer, Error>) -> Result<Version, Error> {
    match result? {
        Answer::Written(version) => Ok(version),
        _ => Err(Error::Incomprehensible),
    }
}

/// The version of a changed object, if it exists.
pub(crate) fn changed(result: Result<Answer, Error>) -> Result<Option<Version>, Error> {
    match result? {
        Answer::Written(version) => Ok(Some(version)),
        Answer::Absent => Ok(None),
        _ => Err(Error::Incomprehensible),
    }
}

/// How long an object still lives, if it exists.
pub(crate) fn lives(result: Result<Answer, Error>) -> Result<Option<(Version, TimeToLive)>, Error> {
    match result? {
        Answer::Lives { version, time_to_live } => Ok(Some((version, time_to_live))),
        Answer::Absent => Ok(None),
        _ => Err(Error::Incomprehensible),
    }
}

pub(crate) fn deleted(result: Result<Answer, Error>) -> Result<Option<Version>, Error> {
    match result? {
        Answer::Deleted(version) => Ok(Some(version)),
        Answer::Absent => Ok(None),
        _ => Err(Error::Incomprehensible),
    }
}

pub(crate) fn sum(result: Result<Answer, Error>) -> Result<(Version, Number), Error> {
    match result? {
        Answer::Sum { version, number } => Ok((version, number)),
        _ => Err(Error::Incomprehensible),
    }
}
