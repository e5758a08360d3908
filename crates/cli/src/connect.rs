//! The cluster behind a command: the client library.

use crate::exit::{Exit, Failure};
use crate::store::{Objects, Store};
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_client::{Addresses, Answer, Client, Error, Number, Operation, Options};
use thunderhead_config::{Address, ClientConfig};
use thunderhead_runtime::os::addresses_of;
use thunderhead_wire::control::{
    BackupStatus, ChangeSettings, ClusterStatus, Map, SettingsChanged, ShardStatus, TableInfo,
    TableOptions,
};
use thunderhead_wire::{Condition, KeyHash, MasterId, ServerId, Status, TableId, Version};

/// Connects to a cluster.
pub(crate) fn connect(config: &ClientConfig) -> Result<Box<dyn Store>, Failure> {
    let coordinators = resolve(&config.coordinators)?;
    let options = Options::new(coordinators).deadline(Some(config.deadline));
    let client = Client::connect(&options).map_err(|error| match error {
        Error::TimedOut(_) => {
            let named: Vec<String> = config.coordinators.iter().map(Address::to_string).collect();
            let message = format!(
                "no coordinator can be reached ({}); check that the cluster runs, or begin with \
                 `thunderhead dev`, or name the coordinators with --coordinators",
                named.join(", ")
            );
            Failure::new(Exit::Unreachable, "unreachable", message)
        }
        error => Failure::from(error),
    })?;
    Ok(Box::new(Cluster(client, config.deadline)))
}

/// Returns a client for a program that watches a cluster in its own process.
pub(crate) fn beside(coordinator: SocketAddr, deadline: Duration) -> Result<Client, Error> {
    Client::connect(&Options::new([coordinator]).deadline(Some(deadline)))
}

/// Returns the addresses of coordinators. Their names are resolved again if none of them answers. A
/// name without an address is a failure only if no other name has one.
pub(crate) fn resolve(coordinators: &[Address]) -> Result<Addresses, Failure> {
    let hosts = coordinators.iter().map(|it| (it.host.clone(), it.port)).collect();
    addresses_of(hosts).map_err(|error| {
        let message = format!("no coordinator can be found ({error}); check --coordinators");
        Failure::new(Exit::Unreachable, "unreachable", message)
    })
}

/// How long one of many servers may take to report its status. Some may be down, and the user wants
/// to know that soon.
const BRIEFLY: Duration = Duration::from_secs(1);

/// A client, and the deadline of its operations.
struct Cluster(Client, Duration);

impl Cluster {
    fn briefly<T>(&mut self, ask: impl FnOnce(&mut Client) -> T) -> T {
        self.0.set_deadline(Some(self.1.min(BRIEFLY)));
        let answer = ask(&mut self.0);
        self.0.set_deadline(Some(self.1));
        answer
    }
}

impl Store for Cluster {
    fn create_table(
        &mut self,
        name: &str,
        span: u32,
        options: TableOptions,
    ) -> Result<TableInfo, Failure> {
        self.0.create_table_with(name, span, options)?;
        self.0.table_info(name).map_err(|error| of_table(name, error))
    }

    fn drop_table(&mut self, name: &str) -> Result<(), Failure> {
        self.0.drop_table(name).map_err(|error| of_table(name, error))
    }

    fn tables(&mut self) -> Result<Map, Failure> {
        Ok(self.0.map()?)
    }

    fn split(&mut self, table: &str, at: KeyHash) -> Result<TableInfo, Failure> {
        self.0.split(table, at).map_err(|error| of_table(table, error))
    }

    fn migrate(&mut self, table: &str, first: KeyHash, to: MasterId) -> Result<TableInfo, Failure> {
        self.0.migrate(table, first, to).map_err(|error| match error {
            Error::Refused(Status::NoSuchServer) => {
                let message = format!(
                    "there is no {to}; `thunderhead status` lists the masters, in lines `master N`"
                );
                Failure::new(Exit::Negative, "no_such_server", message)
            }
            error => of_table(table, error),
        })
    }

    fn forget_server(&mut self, server: ServerId) -> Result<(), Failure> {
        Ok(self.0.forget_server(server)?)
    }

    fn change_settings(&mut self, changes: ChangeSettings) -> Result<SettingsChanged, Failure> {
        Ok(self.0.change_settings(changes)?)
    }

    fn status(&mut self) -> Result<ClusterStatus, Failure> {
        Ok(self.0.status()?)
    }

    fn shard_status(&mut self, address: SocketAddr) -> Result<ShardStatus, Failure> {
        Ok(self.briefly(|client| client.shard_status(address))?)
    }

    fn backup_status(&mut self, address: SocketAddr) -> Result<BackupStatus, Failure> {
        Ok(self.briefly(|client| client.backup_status(address))?)
    }

    fn table(&mut self, name: &str) -> Result<TableId, Failure> {
        self.0.table(name).map_err(|error| of_table(name, error))
    }

    fn read(&mut self, table: TableId, key: &[u8]) -> Result<Option<(Version, Vec<u8>)>, Error> {
        self.0.get(table, key)
    }

    fn delete(
        &mut self,
        table: TableId,
        key: &[u8],
        condition: Condition,
    ) -> Result<Option<Version>, Error> {
        self.0.delete(table, key, condition)
    }

    fn increment(
        &mut self,
        table: TableId,
        key: &[u8],
        by: Number,
    ) -> Result<(Version, Number), Error> {
        self.0.increment(table, key, by)
    }

    fn all(&mut self, operations: Vec<Operation>) -> Vec<Result<Answer, Error>> {
        self.0.all(operations)
    }

    fn scan(&mut self, table: TableId) -> Objects<'_> {
        Box::new(self.0.scan(table))
    }
}

/// Returns the failure for an error about the table of this name.
fn of_table(name: &str, error: Error) -> Failure {
    match error {
        Error::Refused(Status::NoSuchTable) => Failure::no_table(name),
        error => error.into(),
    }
}
