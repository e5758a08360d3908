//! The door for Redis's clients in a cluster: its options, and the thread that makes and drops the
//! tables of its databases.
//!
//! Each process with such a door has a thread for each part of the keys. A thread works only while
//! a shard of this process owns the tables of its part ([`Databases`] says why). The thread of the
//! first part also finds out how many parts there are, and starts the others.

use super::{PREFIX, STRING_BYTES_MAX, run_id, secret};
use crate::exit::Failure;
use crate::serve::cannot;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use thunderhead_client::{Client, Condition, Error};
use thunderhead_net::stream::StreamAddress;
use thunderhead_server::{
    Announce, CATALOG_KEY, ClusterOptions, Databases, DoorOptions, DoorProtocol, KeyParts, Parts,
    RedisOptions, RedisServerOptions, TableWork, TakeOver, catalog_table,
};
use thunderhead_wire::control::ServerState;
use thunderhead_wire::{Format, Status, TableId};

/// The pause before failed work is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// The pause if an operator must do something first.
const LONG_PAUSE: Duration = Duration::from_secs(5);

/// The most looks for more shards, with pauses between them: about 10 s.
const GATHERED_MAX: u32 = 100;

/// The key of the number of parts, in the table with the catalog of the first part.
const PARTS_KEY: &[u8] = b"parts";

/// A door, and the tables behind it.
pub(crate) struct ClusterDoor {
    pub(crate) options: Arc<DoorOptions>,
    parts: Arc<KeyParts>,
}

/// The settings of a door.
pub(crate) struct DoorConfig<'a> {
    /// The plain port.
    pub(crate) listen: SocketAddr,
    pub(crate) password: Option<&'a str>,
    /// The first cluster port.
    pub(crate) cluster: Option<SocketAddr>,
    pub(crate) announce: Option<Announce>,
    pub(crate) parts: u32,
    /// The memory of each shard.
    pub(crate) memory_bytes: u64,
}

impl ClusterDoor {
    /// Returns the door of a server.
    pub(crate) fn new(config: DoorConfig<'_>) -> ClusterDoor {
        let DoorConfig { listen, password, cluster, announce, parts, memory_bytes } = config;
        // The configuration allows no other numbers.
        let parts = Arc::new(KeyParts::new(Parts::new(parts).unwrap_or(Parts::ONE)));
        // The rest follows from the settings of the cluster.
        let server = RedisServerOptions {
            memory_bytes,
            string_bytes_max: STRING_BYTES_MAX.min(memory_bytes / 4) as usize,
            password: password.map(|password| password.as_bytes().to_vec()),
            port: listen.port(),
            run_id: run_id(),
            secret: secret(),
            ..RedisServerOptions::default()
        };
        let protocol =
            RedisOptions { server, databases: parts.databases(0), settings: Arc::default() };
        let of_cluster = ClusterOptions {
            parts: Arc::clone(&parts),
            listen: cluster,
            announce,
            ..ClusterOptions::default()
        };
        let options = Arc::new(DoorOptions {
            listen: vec![StreamAddress::Tcp(listen)],
            protocol: DoorProtocol::Redis(protocol),
            listens: Arc::default(),
            cluster: Some(of_cluster),
        });
        ClusterDoor { options, parts }
    }

    /// Returns the address of clients, once the door listens there.
    pub(crate) fn address(&self) -> Option<String> {
        Some(self.options.listens.get()?.first()?.to_string())
    }

    /// Returns the first address of the cluster ports, once the door listens there.
    pub(crate) fn cluster_address(&self) -> Option<String> {
        let listens = &self.options.cluster.as_ref()?.listens;
        let listens = listens.lock().unwrap_or_else(PoisonError::into_inner);
        Some(listens.get(&0)?.to_string())
    }

    /// Begins the work on the tables. `connect` connects to the cluster.
    pub(crate) fn start(
        &self,
        connect: impl Fn() -> Result<Client, Error> + Send + Sync + 'static,
    ) -> Result<(), Failure> {
        let connect: Arc<Connect> = Arc::new(connect);
        start(&self.parts, 0, &connect).map_err(|error| cannot("start a thread", error))
    }

    /// Ends the work on the tables.
    pub(crate) fn end(&self) {
        self.parts.end();
    }
}

/// Connects to the cluster.
type Connect = dyn Fn() -> Result<Client, Error> + Send + Sync;

/// Starts the thread of a part.
fn start(parts: &Arc<KeyParts>, part: u32, connect: &Arc<Connect>) -> io::Result<()> {
    let (parts, connect) = (Arc::clone(parts), Arc::clone(connect));
    let databases = parts.databases(part);
    let work = move || {
        let mut tables =
            Tables { databases, parts, part, connect, catalog: None, last: 0, gathered: 0 };
        let mut client = None;
        while let Some(work) = tables.databases.next_work() {
            tables.work(&mut client, work);
        }
    };
    std::thread::Builder::new().name(format!("tables {part}")).spawn(work).map(drop)
}

/// The tables of the databases of a part.
struct Tables {
    databases: Arc<Databases>,
    parts: Arc<KeyParts>,
    part: u32,
    connect: Arc<Connect>,
    /// The table with the catalog that a shard of this process owns.
    catalog: Option<TableId>,
    /// The number of the last table.
    last: u64,
    /// The number of looks for more shards.
    gathered: u32,
}

impl Tables {
    /// Does some work, or has it done later.
    fn work(&mut self, client: &mut Option<Client>, work: TableWork) {
        if let Err(error) = self.try_work(client, &work) {
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

    /// Makes the table with the catalog, unless it exists. The first one also has the number of
    /// parts.
    fn ensure(&mut self, client: &mut Client) -> Result<(), Error> {
        if client.status()?.format < Format::TABLES_BESIDE {
            return Err(Error::Refused(Status::OldFormat));
        }
        if self.gathers(client)? {
            self.databases.want_catalog();
            #[allow(clippy::disallowed_methods, reason = "this thread does nothing else")]
            std::thread::sleep(PAUSE);
            return Ok(());
        }
        let table = client.ensure_table(&catalog_table(self.part), 1)?;
        if self.part > 0 {
            return Ok(());
        }
        let wanted = self.parts.wanted();
        if let Some(known) = self.parts.recorded() {
            // The table may be a new one, as an operator has dropped the former one.
            record(client, table, known)?;
            return Ok(());
        }
        let recorded = recorded(client, table, wanted)?;
        if recorded != wanted {
            tracing::error!(
                wanted = wanted.count(),
                recorded = recorded.count(),
                "the keys of Redis's clients were divided into another number of parts when the cluster got them; this server serves no clients until server.redis_parts has the recorded number"
            );
        }
        self.parts.set_recorded(recorded);
        for part in 1..recorded.count() {
            if let Err(error) = start(&self.parts, part, &self.connect) {
                tracing::error!(%error, part, "a thread cannot be started, so this server makes no tables for a part of the keys");
            }
        }
        Ok(())
    }

    /// Whether to wait for more shards before a further part gets its table. At the first start of
    /// a cluster, the first server would get all parts otherwise, and keep them.
    fn gathers(&mut self, client: &mut Client) -> Result<bool, Error> {
        if self.part == 0 || self.gathered >= GATHERED_MAX {
            return Ok(false);
        }
        match client.table(&catalog_table(self.part)) {
            Err(Error::Refused(Status::NoSuchTable)) => {}
            found => return found.map(|_| false),
        }
        self.gathered += 1;
        let servers = client.status()?.servers.servers;
        let up = servers.iter().filter(|server| server.state == ServerState::Up);
        let shards = up.map(|server| server.shards.len()).sum::<usize>();
        let parts = self.parts.recorded().map_or(1, Parts::count);
        Ok(shards < parts as usize)
    }

    fn try_work(&mut self, client: &mut Option<Client>, work: &TableWork) -> Result<(), Error> {
        let client = match client {
            Some(client) => client,
            None => client.insert((self.connect)()?),
        };
        match work {
            TableWork::Ensure => self.ensure(client),
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
        let part = self.part;
        let numbers = tables.iter().filter_map(|it| number_of(part, &it.name));
        (self.catalog, self.last) = (Some(taken.catalog), numbers.max().unwrap_or(0));
        self.databases.serve(taken);
        let of_group = tables.iter().filter(|it| it.beside == Some(taken.catalog));
        let useless = of_group.filter(|it| number_of(part, &it.name).is_some());
        for table in useless.filter(|it| !named.contains(&it.id)) {
            self.databases.drop_table(table.id);
        }
        Ok(())
    }

    fn make(&mut self, client: &mut Client) -> Result<(), Error> {
        let Some(catalog) = self.catalog else { return Ok(()) };
        self.last += 1;
        match client.create_table_beside(&name_of(self.part, self.last), catalog) {
            Ok(table) => self.databases.add(table),
            // The next number is free, or the one after it.
            Err(Error::Refused(Status::TableExists)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Returns the name of a table of a part.
fn name_of(part: u32, number: u64) -> String {
    match part {
        0 => format!("{PREFIX}{number}"),
        part => format!("{}-{number}", catalog_table(part)),
    }
}

/// Returns the number of a table that was made for a database. A table of a user has none, although
/// it may lie beside the catalog too.
fn number_of(part: u32, name: &str) -> Option<u64> {
    let number = name.rsplit_once('-')?.1.parse().ok()?;
    // The names of the databases' tables have neither signs nor zeros before their numbers.
    (name == name_of(part, number)).then_some(number)
}

/// Returns the recorded number of parts. Records the wanted one if the cluster has no keys yet.
///
/// A cluster of an earlier version has keys and no number: they are in one part. The first owner of
/// the table writes nothing before this number is recorded, so a catalog without a number is older,
/// unless there are tables of further parts. Then the first table was made anew.
fn recorded(client: &mut Client, table: TableId, wanted: Parts) -> Result<Parts, Error> {
    if client.get(table, PARTS_KEY)?.is_none() {
        let has_keys = client.get(table, CATALOG_KEY)?.is_some();
        let has_parts = match client.table(&catalog_table(1)) {
            Err(Error::Refused(Status::NoSuchTable)) => false,
            found => found.map(|_| true)?,
        };
        let parts = if has_keys && !has_parts { Parts::ONE } else { wanted };
        record(client, table, parts)?;
    }
    let found = client.get(table, PARTS_KEY)?;
    let text = found.as_ref().and_then(|(_, text)| std::str::from_utf8(text).ok());
    let parts = text.and_then(|text| text.parse().ok()).and_then(Parts::new);
    parts.ok_or(Error::Incomprehensible)
}

/// Records the number of parts, unless the table has one.
fn record(client: &mut Client, table: TableId, parts: Parts) -> Result<(), Error> {
    let text = parts.count().to_string();
    match client.put(table, PARTS_KEY, text.as_bytes(), Condition::Absent) {
        // Another server was faster, or the number was recorded before.
        Ok(_) | Err(Error::ConditionFailed { .. }) => Ok(()),
        Err(error) => Err(error),
    }
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
        let number_of = |name| number_of(0, name);
        assert_eq!(number_of("redis-1"), Some(1));
        assert_eq!(number_of("redis-120"), Some(120));
        for name in ["redis", "redis-", "redis-a", "redis-1-copy", "redis-+1", "redis-01", "mine"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }

    #[test]
    fn each_part_has_names_of_its_own() {
        assert_eq!((name_of(0, 7), name_of(3, 7)), ("redis-7".to_owned(), "redis/3-7".to_owned()));
        assert_eq!(number_of(3, "redis/3-7"), Some(7));
        for (part, name) in [(0, "redis/3-7"), (3, "redis-7"), (3, "redis/33-7"), (3, "redis/3")] {
            assert_eq!(number_of(part, name), None, "{part} {name}");
        }
    }
}
