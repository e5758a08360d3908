//! The front that programs use whose threads wait for their answers.

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
use thunderhead_runtime::names::Addresses;
use thunderhead_runtime::polling::Polling;
use thunderhead_runtime::{World, os};
use thunderhead_wire::control::{
    BackupStatus, ChangeSettings, ClusterStatus, CreateTable, DropTable, ForgetServer, Map,
    MigrateTablet, Settings, ShardStatus, SplitTablet, TableInfo,
};
use thunderhead_wire::{
    ClusterId, Condition, KeyHash, MasterId, ServerId, Status, TableId, Version,
};

/// How a client is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The coordinators: all of them, or those that are known. One that is there is enough.
    pub coordinators: Addresses,
    /// How long an operation may take, with everything that is tried again on the way; none: for
    /// ever. 10 seconds if nothing is said.
    pub deadline: Option<Duration>,
    /// How to use the machine's network.
    pub net: NetOptions,
    /// Whether to spin for answers or to sleep.
    pub polling: Polling,
    /// Operations that an [`AsyncClient`](crate::AsyncClient) has under way at once; further ones
    /// wait for their turn.
    pub in_flight_max: usize,
}

/// Operations under way at once, if nothing is said: enough to keep many servers busy, and of
/// ordinary size some megabytes.
const IN_FLIGHT_MAX: usize = 8192;

impl Options {
    /// The usual, for a cluster with these coordinators.
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

    /// Of this cluster, and no other: coordinators and servers of others are not spoken to. If nothing is
    /// said, it is the cluster of the first coordinator that answers.
    #[must_use]
    pub fn of_cluster(mut self, cluster: ClusterId) -> Options {
        self.net.cluster = OwnCluster::Known(cluster);
        self
    }

    /// With another deadline.
    #[must_use]
    pub fn deadline(self, deadline: Option<Duration>) -> Options {
        Options { deadline, ..self }
    }
}

/// What a front needs to call from the thread it is on.
pub(crate) fn engine(options: &Options, mut world: World) -> Result<(Session, Caller), Error> {
    if options.coordinators.list().is_empty() {
        return Err(Error::NoCoordinators);
    }
    // The first coordinator that answers says which cluster it is; no other is spoken to then.
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
/// The thread that calls does all the work, and waits for the answer. A client can be moved to another thread;
/// threads that work at the same time each make their own, or share an [`AsyncClient`](crate::AsyncClient).
///
/// ```no_run
/// use thunderhead_client::{Client, Condition, Number, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut client = Client::connect(&Options::new(["127.0.0.1:7070".parse()?]))?;
/// let users = client.create_table("users", 1)?;
///
/// let version = client.write(users, b"ada", b"analyst", Condition::Always)?;
/// assert_eq!(client.read(users, b"ada")?, Some((version, b"analyst".to_vec())));
///
/// // Only if nobody else has changed it since it was read.
/// client.write(users, b"ada", b"countess", Condition::VersionIs(version))?;
///
/// // What does not exist counts as 0.
/// let (_, visits) = client.increment(users, b"visits", Number::Integer(1))?;
/// println!("{visits:?}");
///
/// // Many at once take hardly longer than one.
/// for result in client.write_many(users, [("bob", "builder"), ("eve", "listener")]) {
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
/// Every operation ends by its deadline (10 seconds, if nothing else is said:
/// [`Client::set_deadline`]). Until then everything that passes is masked: servers that crash and are
/// recovered, tablets that move, coordinators that change. After it, [`Error::TimedOut`] says what
/// was in the way and that nothing was done, [`Error::Unknown`] that an update may have been done.
/// No update is ever done twice.
pub struct Client {
    inner: Blocking<Coordinators>,
}

impl Client {
    /// A client of the cluster that the options name. Asks for the map, so that an address that is
    /// wrong is noticed now.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when no coordinator answers by the deadline; [`Error::NoCoordinators`];
    /// [`Error::System`].
    pub fn connect(options: &Options) -> Result<Client, Error> {
        let world = world()?;
        let clock = world.clock.clone();
        let (session, caller) = engine(options, world)?;
        let mut inner = Blocking::with(session, clock, caller, Coordinators);
        inner.deadline = options.deadline;
        let mut client = Client { inner };
        client.map()?;
        Ok(client)
    }

    /// How long an operation may take from now on; none: for ever.
    pub fn set_deadline(&mut self, deadline: Option<Duration>) {
        self.inner.deadline = deadline;
    }

    /// Makes a table, spread over so many shards, and says its id.
    ///
    /// # Errors
    /// [`Status::TableExists`] as [`Error::Refused`], or see [`Error`]. Where an answer was lost and
    /// somebody else made a table of this name at the same time, both may be told that it is theirs.
    pub fn create_table(&mut self, name: &str, server_span: u32) -> Result<TableId, Error> {
        let question = CreateTable { name: name.to_owned(), server_span };
        table(self.inner.ask(Question::CreateTable(question))).map(|table| table.id)
    }

    /// Does away with a table and all that is in it.
    ///
    /// # Errors
    /// [`Status::NoSuchTable`] as [`Error::Refused`], or see [`Error`].
    pub fn drop_table(&mut self, name: &str) -> Result<(), Error> {
        let question = DropTable { name: name.to_owned() };
        self.inner.ask(Question::DropTable(question)).map(drop)
    }

    /// The id of a table. It stays the same as long as the table is there.
    ///
    /// # Errors
    /// [`Status::NoSuchTable`] as [`Error::Refused`], or see [`Error`].
    pub fn table(&mut self, name: &str) -> Result<TableId, Error> {
        match self.inner.ask(Question::Map(Some(name.to_owned())))? {
            Reply::Map(map) => id_of(&map, name).ok_or(Error::Refused(Status::NoSuchTable)),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// A table, and where its tablets are.
    ///
    /// # Errors
    /// [`Status::NoSuchTable`] as [`Error::Refused`], or see [`Error`].
    pub fn table_info(&mut self, name: &str) -> Result<TableInfo, Error> {
        match self.inner.ask(Question::Map(Some(name.to_owned())))? {
            Reply::Map(map) => table_of(map, name).ok_or(Error::Refused(Status::NoSuchTable)),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// All tables, and where their tablets are.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn map(&mut self) -> Result<Map, Error> {
        match self.inner.ask(Question::Map(None))? {
            Reply::Map(map) => Ok(map),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// All tables.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn tables(&mut self) -> Result<Vec<TableInfo>, Error> {
        self.map().map(|map| map.tables)
    }

    /// Makes two tablets of the one that holds a hash, which is the first of the second one.
    ///
    /// # Errors
    /// [`Status::BadRange`] as [`Error::Refused`], or see [`Error`].
    pub fn split(&mut self, name: &str, at: KeyHash) -> Result<TableInfo, Error> {
        let question = SplitTablet { table: name.to_owned(), at };
        table(self.inner.ask(Question::SplitTablet(question)))
    }

    /// Moves the tablet that begins with a hash to another master, and waits until it has moved.
    /// A large one takes longer than the usual deadline.
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
        table(self.inner.ask(Question::MigrateTablet(question)))
    }

    /// Has the cluster forget a server that is down and does not come again. What it had in memory is recovered
    /// before; the replicas on its disk are lost.
    ///
    /// # Errors
    /// [`Status::ServerIsUp`] or [`Status::NoSuchServer`] as [`Error::Refused`], or see [`Error`].
    pub fn forget_server(&mut self, server: ServerId) -> Result<(), Error> {
        let question = ForgetServer { server };
        self.inner.ask(Question::ForgetServer(question)).map(drop)
    }

    /// Changes what may change in a cluster that runs, and tells what holds then.
    ///
    /// # Errors
    /// [`Status::BadSetting`] as [`Error::Refused`], or see [`Error`].
    pub fn change_settings(&mut self, changes: ChangeSettings) -> Result<Settings, Error> {
        match self.inner.ask(Question::ChangeSettings(changes))? {
            Reply::Settings(settings) => Ok(settings),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// How the cluster is.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn status(&mut self) -> Result<ClusterStatus, Error> {
        match self.inner.ask(Question::ClusterStatus)? {
            Reply::Cluster(status) => Ok(status),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// How the shard at an address is.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn shard_status(&mut self, address: SocketAddr) -> Result<ShardStatus, Error> {
        match self.inner.ask(Question::ShardStatus(address))? {
            Reply::Shard(status) => Ok(status),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// How the backup at an address is.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn backup_status(&mut self, address: SocketAddr) -> Result<BackupStatus, Error> {
        match self.inner.ask(Question::BackupStatus(address))? {
            Reply::Backup(status) => Ok(status),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Reads an object: its version and its value; `None` where there is none.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn read(&mut self, table: TableId, key: &[u8]) -> Result<Option<Value>, Error> {
        self.inner.read(table, key)
    }

    /// Writes an object if a condition holds; returns its new version.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the version that the object has, or see [`Error`].
    pub fn write(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> Result<Version, Error> {
        self.inner.write(table, key, value, condition)
    }

    /// Deletes an object if a condition holds; returns the version it had, if there was one.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the version that the object has, or see [`Error`].
    pub fn delete(
        &mut self,
        table: TableId,
        key: &[u8],
        condition: Condition,
    ) -> Result<Option<Version>, Error> {
        self.inner.delete(table, key, condition)
    }

    /// Writes a number if a condition holds; returns its new version. Increments of the same kind count with it; what
    /// [`Client::write`] writes is no number to them. Reads return its 8 bytes, little-endian.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the version that the object has, or see [`Error`].
    pub fn write_number(
        &mut self,
        table: TableId,
        key: &[u8],
        number: Number,
        condition: Condition,
    ) -> Result<Version, Error> {
        self.inner.write_number(table, key, number, condition)
    }

    /// Adds to a number, whole or floating-point; returns its new version and the sum. What does
    /// not exist counts as 0. What was written as bytes, or is a number of the other kind, is refused.
    ///
    /// # Errors
    /// [`Error::NotANumber`], [`Status::Overflow`] as [`Error::Refused`], or see [`Error`].
    pub fn increment(
        &mut self,
        table: TableId,
        key: &[u8],
        by: Number,
    ) -> Result<(Version, Number), Error> {
        self.inner.increment(table, key, by)
    }

    /// Reads many objects at once; what came of each, in their order.
    pub fn read_many<K: AsRef<[u8]>>(
        &mut self,
        table: TableId,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Value>, Error>> {
        self.all(reads(table, keys)).into_iter().map(found).collect()
    }

    /// Writes many objects at once, each by itself and in no order; what came of each, in their
    /// order.
    pub fn write_many<K: AsRef<[u8]>, V: Into<Vec<u8>>>(
        &mut self,
        table: TableId,
        objects: impl IntoIterator<Item = (K, V)>,
    ) -> Vec<Result<Version, Error>> {
        self.all(writes(table, objects)).into_iter().map(written).collect()
    }

    /// Does many operations at once, of any kind and on any tables. They have no order among them.
    /// What came of each, in their order.
    pub fn all(&mut self, operations: Vec<Operation>) -> Results {
        self.inner.all(operations)
    }

    /// Walks over all objects of a table, in no useful order. One that is there all the time is
    /// told of once; one that comes or goes meanwhile may be told of or not.
    pub fn scan(&mut self, table: TableId) -> Scan<'_, Coordinators> {
        self.inner.scan(table)
    }

    /// Ends the client's lease, so that no server remembers for it. Waits for a second at most. A
    /// client that is dropped does the same without waiting.
    pub fn close(self) {
        self.inner.close();
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
