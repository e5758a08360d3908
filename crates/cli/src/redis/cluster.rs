//! The door for Redis's clients in a cluster: its options, and the thread that makes and drops the
//! tables of its databases.
//!
//! Each process with such a door has the thread. It works only while a shard of this process owns
//! the tables ([`Databases`] says why).

use super::{CATALOG, PREFIX, STRING_BYTES_MAX, run_id};
use crate::exit::Failure;
use crate::serve::cannot;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thunderhead_client::{Client, Error};
use thunderhead_net::stream::StreamAddress;
use thunderhead_server::{
    CATALOG_KEY, Databases, DoorOptions, DoorProtocol, RedisOptions, RedisServerOptions, TableWork,
    TakeOver,
};
use thunderhead_wire::{Format, Status, TableId};

/// The pause before failed work is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// The pause if an operator must do something first.
const LONG_PAUSE: Duration = Duration::from_secs(5);

/// A door, and the tables behind it.
pub(crate) struct ClusterDoor {
    pub(crate) options: Arc<DoorOptions>,
    databases: Arc<Databases>,
}

impl ClusterDoor {
    /// Returns the door of a server with so much memory for each shard.
    pub(crate) fn new(
        listen: SocketAddr,
        password: Option<&str>,
        memory_bytes: u64,
    ) -> ClusterDoor {
        let databases = Arc::new(Databases::shared());
        // The rest follows from the settings of the cluster.
        let server = RedisServerOptions {
            memory_bytes,
            string_bytes_max: STRING_BYTES_MAX.min(memory_bytes / 4) as usize,
            password: password.map(|password| password.as_bytes().to_vec()),
            port: listen.port(),
            run_id: run_id(),
            ..RedisServerOptions::default()
        };
        let (databases_of_door, settings) = (Arc::clone(&databases), Arc::default());
        let protocol = RedisOptions { server, databases: databases_of_door, settings };
        let options = Arc::new(DoorOptions {
            listen: vec![StreamAddress::Tcp(listen)],
            protocol: DoorProtocol::Redis(protocol),
            listens: Arc::default(),
            in_cluster: true,
        });
        ClusterDoor { options, databases }
    }

    /// Returns the address of clients, once the door listens there.
    pub(crate) fn address(&self) -> Option<String> {
        Some(self.options.listens.get()?.first()?.to_string())
    }

    /// Begins the work on the tables. `connect` connects to the cluster.
    pub(crate) fn start(
        &self,
        connect: impl Fn() -> Result<Client, Error> + Send + 'static,
    ) -> Result<(), Failure> {
        let databases = Arc::clone(&self.databases);
        let work = move || {
            let mut tables = Tables { databases, catalog: None, last: 0 };
            let mut client = None;
            while let Some(work) = tables.databases.next_work() {
                tables.work(&mut client, &connect, work);
            }
        };
        let thread = std::thread::Builder::new().name("tables".to_owned()).spawn(work);
        thread.map(drop).map_err(|error| cannot("start a thread", error))
    }

    /// Ends the work on the tables.
    pub(crate) fn end(&self) {
        self.databases.end();
    }
}

/// The tables of the databases.
struct Tables {
    databases: Arc<Databases>,
    /// The table with the catalog that a shard of this process owns.
    catalog: Option<TableId>,
    /// The number of the last table.
    last: u64,
}

impl Tables {
    /// Does some work, or has it done later.
    fn work(
        &mut self,
        client: &mut Option<Client>,
        connect: impl Fn() -> Result<Client, Error>,
        work: TableWork,
    ) {
        if let Err(error) = self.try_work(client, connect, &work) {
            let needs_operator =
                matches!(error, Error::Refused(Status::OldFormat | Status::Grouped));
            match error {
                Error::Refused(Status::OldFormat) => tracing::warn!(
                    "Redis's clients are not served: the cluster needs {}; `thunderhead cluster set format` switches it on",
                    Format::TABLES_BESIDE
                ),
                error => {
                    tracing::warn!(%error, "the tables of Redis's clients cannot be changed; trying again")
                }
            }
            match work {
                TableWork::Make => {}
                TableWork::Drop(table) => self.databases.drop_table(table),
                TableWork::Ensure => self.databases.want_catalog(),
                TableWork::TakeOver(taken) => self.databases.take_over_again(taken),
            }
            #[allow(clippy::disallowed_methods, reason = "this thread does nothing else")]
            std::thread::sleep(if needs_operator { LONG_PAUSE } else { PAUSE });
        }
    }

    fn try_work(
        &mut self,
        client: &mut Option<Client>,
        connect: impl Fn() -> Result<Client, Error>,
        work: &TableWork,
    ) -> Result<(), Error> {
        let client = match client {
            Some(client) => client,
            None => client.insert(connect()?),
        };
        match work {
            TableWork::Ensure => ensure(client),
            TableWork::TakeOver(taken) => self.take_over(client, *taken),
            TableWork::Make => self.make(client),
            TableWork::Drop(table) => drop_table(client, *table),
        }
    }

    /// Takes over the tables with a shard of this process, before its door serves.
    ///
    /// The tables of the group with a number that the catalog does not name are dropped. They were
    /// made for former owners, so no later catalog names them. The map is read after the catalog,
    /// and says that this shard is still the owner. So the catalog is not an older one either.
    fn take_over(&mut self, client: &mut Client, taken: TakeOver) -> Result<(), Error> {
        let text = client.get(taken.catalog, CATALOG_KEY)?;
        let named = Databases::tables_of(text.as_ref().map_or(&[], |(_, text)| text));
        let tables = client.tables()?;
        let catalog = tables.iter().find(|it| it.id == taken.catalog);
        let owner = catalog.and_then(|it| it.tablets.first()).map(|tablet| tablet.master);
        if owner != Some(taken.master) {
            tracing::warn!(master = %taken.master, "another shard has the tables of Redis's clients by now");
            return Ok(());
        }
        let numbers = tables.iter().filter_map(|it| number_of(&it.name));
        (self.catalog, self.last) = (Some(taken.catalog), numbers.max().unwrap_or(0));
        self.databases.serve(taken);
        let of_group = tables.iter().filter(|it| it.beside == Some(taken.catalog));
        let useless = of_group.filter(|it| number_of(&it.name).is_some());
        for table in useless.filter(|it| !named.contains(&it.id)) {
            self.databases.drop_table(table.id);
        }
        Ok(())
    }

    fn make(&mut self, client: &mut Client) -> Result<(), Error> {
        let Some(catalog) = self.catalog else { return Ok(()) };
        self.last += 1;
        match client.create_table_beside(&format!("{PREFIX}{}", self.last), catalog) {
            Ok(table) => self.databases.add(table),
            // The next number is free, or the one after it.
            Err(Error::Refused(Status::TableExists)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Returns the number of a table that was made for a database. A table of a user has none, although
/// it may lie beside the catalog too.
fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix(PREFIX)?.parse().ok()?;
    // The names of the databases' tables have neither signs nor zeros before their numbers.
    (name == format!("{PREFIX}{number}")).then_some(number)
}

/// Makes the table with the catalog, unless it exists.
fn ensure(client: &mut Client) -> Result<(), Error> {
    if client.status()?.format < Format::TABLES_BESIDE {
        return Err(Error::Refused(Status::OldFormat));
    }
    client.ensure_table(CATALOG, 1).map(drop)
}

fn drop_table(client: &mut Client, table: TableId) -> Result<(), Error> {
    let tables = client.tables()?;
    match tables.into_iter().find(|it| it.id == table) {
        Some(it) => crate::door::drop_table_with_id(client, &it.name, table),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_table_beside_the_catalog_is_none_of_a_database() {
        assert_eq!(number_of("redis-1"), Some(1));
        assert_eq!(number_of("redis-120"), Some(120));
        for name in ["redis", "redis-", "redis-a", "redis-1-copy", "redis-+1", "redis-01", "mine"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
