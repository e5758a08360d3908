//! The leader's view of the cluster: the metastore's contents, and the facts that follow from them.
//!
//! Plain data and plain logic, without time and without waiting. All of it is recorded already.

mod changes;
mod groups;
mod lineage;
mod map;

use crate::limits::{EPOCHS_MAX, SHARDS_MAX, TABLETS_MAX};
use crate::stored::{
    ClusterRecord, Former, Ids, Part, ServerRecord, ShardRecord, TableRecord, TabletRecord,
};
use changes::Changes;
use lineage::inherited;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use thunderhead_metastore::limits::VALUE_BYTES_MAX;
use thunderhead_wire::control::{
    BackupInfo, OptionsOfTable, ServerInfo, ServerList, ServerState, ShardInfo, Taken,
};
use thunderhead_wire::{
    Epoch, Generation, KeyHash, MasterId, RecoveryId, SegmentId, ServerId, TableId, TabletRange,
};

pub(crate) use groups::{ByGroup, GROUP_TABLES_MAX, Home};
pub(crate) use lineage::lineage;

/// The place of a present master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) server: ServerId,
    pub(crate) address: SocketAddr,
}

/// A present backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Storage {
    pub(crate) server: ServerId,
    /// The server's generation.
    pub(crate) generation: Generation,
    pub(crate) address: SocketAddr,
    /// Bytes that it reads in a second; 0 if unknown.
    pub(crate) speed: u64,
}

/// The cluster.
pub(crate) struct Cluster {
    pub(crate) record: ClusterRecord,
    pub(crate) ids: Ids,
    servers: BTreeMap<ServerId, ServerRecord>,
    tables: BTreeMap<TableId, TableRecord>,
    /// The names of tables that are not dropped.
    names: BTreeMap<String, TableId>,
    /// The present masters.
    places: BTreeMap<MasterId, Place>,
    /// Former masters with unfinished work, and their servers.
    former: BTreeMap<MasterId, ServerId>,
    /// Versions of the list and of the map grow from here.
    version_base: u64,
    list_changes: u64,
    map_changes: u64,
    /// The versions in which tablets changed.
    changes: Changes,
    /// The tablets of each master: their tables and first hashes, without those of dropped tables.
    of_master: BTreeMap<MasterId, BTreeSet<(TableId, KeyHash)>>,
    /// The tables that lie beside each table, without dropped ones.
    groups: BTreeMap<TableId, BTreeSet<TableId>>,
}

impl Cluster {
    pub(crate) fn new(record: ClusterRecord, ids: Ids, version_base: u64) -> Cluster {
        Cluster {
            record,
            ids,
            servers: BTreeMap::new(),
            tables: BTreeMap::new(),
            names: BTreeMap::new(),
            places: BTreeMap::new(),
            former: BTreeMap::new(),
            version_base,
            list_changes: 0,
            map_changes: 0,
            changes: Changes::default(),
            of_master: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// Makes the present state the first version.
    pub(crate) fn begun_here(mut self) -> Cluster {
        (self.list_changes, self.map_changes) = (0, 0);
        self.changes = Changes::default();
        self
    }

    /// Returns how often list or map have changed under this leader.
    pub(crate) fn changes(&self) -> u64 {
        self.list_changes.max(self.map_changes)
    }

    /// Returns the version of the server list.
    pub(crate) fn list_version(&self) -> u64 {
        self.version_base.saturating_add(self.list_changes)
    }

    /// Returns the version of the map.
    pub(crate) fn map_version(&self) -> u64 {
        self.version_base.saturating_add(self.map_changes)
    }

    /// Replaces a server's record.
    pub(crate) fn put_server(&mut self, record: ServerRecord) {
        let server = record.server;
        let moved = self.moved_by(&record);
        if let Some(old) = self.servers.get(&server) {
            for shard in &old.shards {
                self.places.remove(&shard.master);
            }
            for former in &old.former {
                self.former.remove(&former.master);
            }
        }
        for shard in &record.shards {
            self.places.insert(shard.master, Place { server, address: shard.address });
        }
        for former in &record.former {
            self.former.insert(former.master, server);
        }
        let old = self.servers.insert(server, record);
        let new = self.servers.get(&server).and_then(info);
        if old.as_ref().and_then(info) != new {
            // The places of tablets follow from the places of servers.
            self.list_changes += 1;
            self.map_changes += 1;
        }
        if !moved.is_empty() {
            self.changes.masters_moved(self.tables.values(), &moved, self.map_changes);
        }
    }

    /// Returns the masters whose place a new record of their server changes.
    fn moved_by(&self, record: &ServerRecord) -> BTreeSet<MasterId> {
        let places = |record: &ServerRecord| -> BTreeSet<(MasterId, SocketAddr)> {
            record.shards.iter().map(|shard| (shard.master, shard.address)).collect()
        };
        let old = self.servers.get(&record.server).map(places).unwrap_or_default();
        old.symmetric_difference(&places(record)).map(|(master, _)| *master).collect()
    }

    /// Forgets a server without unfinished work.
    pub(crate) fn remove_server(&mut self, server: ServerId) {
        let old = self.servers.remove(&server);
        if old.as_ref().and_then(info).is_some() {
            self.list_changes += 1;
            self.map_changes += 1;
        }
    }

    /// Whether no part of a master can be needed any more: it is neither a present master nor a
    /// former one with unfinished work. Ids that were not given out yet belong to masters to come,
    /// or to a state of the cluster that is newer than the metastore's contents.
    pub(crate) fn is_done_with(&self, master: MasterId) -> bool {
        let mut unknown = self.record.unknown_masters.iter();
        master.0 < self.ids.master
            && !unknown.any(|(first, end)| (*first..*end).contains(&master.0))
            && !self.places.contains_key(&master)
            && !self.former.contains_key(&master)
            && self.to_recover(master).is_empty()
    }

    /// Whether the id of a server was given out. Ids are never used twice. An id that was skipped
    /// may have been given out by a state of the cluster that is newer than the metastore's
    /// contents.
    pub(crate) fn has_given_out(&self, server: ServerId) -> bool {
        let mut unknown = self.record.unknown_servers.iter();
        (1..self.ids.server).contains(&server.0)
            && !unknown.any(|(first, end)| (*first..*end).contains(&server.0))
    }

    /// Replaces the cluster's settings. Servers learn them with the list.
    pub(crate) fn put_record(&mut self, record: ClusterRecord) {
        self.record = record;
        self.list_changes += 1;
    }

    /// Replaces a table's record.
    pub(crate) fn put_table(&mut self, record: TableRecord) {
        self.put_tables([record]);
    }

    /// Replaces tables' records, as one change.
    pub(crate) fn put_tables(&mut self, records: impl IntoIterator<Item = TableRecord>) {
        self.map_changes += 1;
        for record in records {
            self.put_one(record);
        }
    }

    fn put_one(&mut self, record: TableRecord) {
        self.note_masters(&record);
        self.note_group(&record);
        if record.dropped {
            if self.names.get(&record.name) == Some(&record.id) {
                self.names.remove(&record.name);
            }
        } else {
            self.names.insert(record.name.clone(), record.id);
        }
        self.changes.table_put(self.tables.get(&record.id), &record, self.map_changes);
        self.tables.insert(record.id, record);
    }

    /// Notes the masters of a table's tablets before the table's record is replaced.
    fn note_masters(&mut self, new: &TableRecord) {
        let keys = |table: Option<&TableRecord>| -> BTreeSet<(MasterId, KeyHash)> {
            let tablets = table.filter(|table| !table.dropped).map(|table| &table.tablets);
            tablets.into_iter().flatten().map(|it| (it.master, it.first)).collect()
        };
        let (before, after) = (keys(self.tables.get(&new.id)), keys(Some(new)));
        for (master, first) in before.difference(&after) {
            if let Some(tablets) = self.of_master.get_mut(master) {
                tablets.remove(&(new.id, *first));
                if tablets.is_empty() {
                    self.of_master.remove(master);
                }
            }
        }
        for (master, first) in after.difference(&before) {
            self.of_master.entry(*master).or_default().insert((new.id, *first));
        }
    }

    /// Forgets a dropped table.
    pub(crate) fn remove_table(&mut self, table: TableId) {
        self.tables.remove(&table);
        self.changes.table_removed(table);
    }

    pub(crate) fn server(&self, server: ServerId) -> Option<&ServerRecord> {
        self.servers.get(&server)
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = &ServerRecord> {
        self.servers.values()
    }

    pub(crate) fn servers_count(&self) -> usize {
        self.servers.len()
    }

    pub(crate) fn table(&self, table: TableId) -> Option<&TableRecord> {
        self.tables.get(&table)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableRecord> {
        self.tables.values()
    }

    pub(crate) fn tables_count(&self) -> usize {
        self.tables.len()
    }

    /// Returns the number of a master's tablets, without those of dropped tables.
    pub(crate) fn tablets_count(&self, master: MasterId) -> usize {
        self.of_master.get(&master).map_or(0, BTreeSet::len)
    }

    /// Returns the table of a name.
    pub(crate) fn named(&self, name: &str) -> Option<&TableRecord> {
        self.tables.get(self.names.get(name)?)
    }

    /// Returns a present master's place.
    pub(crate) fn place(&self, master: MasterId) -> Option<Place> {
        self.places.get(&master).copied()
    }

    /// Returns a former master with unfinished work.
    pub(crate) fn former(&self, master: MasterId) -> Option<&Former> {
        let server = self.servers.get(self.former.get(&master)?)?;
        server.former.iter().find(|former| former.master == master)
    }

    /// Returns all former masters with unfinished work.
    pub(crate) fn formers(&self) -> impl Iterator<Item = &Former> {
        self.servers.values().flat_map(|server| &server.former)
    }

    /// Returns the server of a former master.
    pub(crate) fn server_of_former(&self, master: MasterId) -> Option<&ServerRecord> {
        self.servers.get(self.former.get(&master)?)
    }

    /// Returns the former masters whose logs `master` took back or was assigned. It owns their
    /// closed replicas too.
    pub(crate) fn lineage(&self, master: MasterId) -> Vec<MasterId> {
        let place = self.place(master).and_then(|place| self.server(place.server));
        let record = place.or_else(|| self.server_of_former(master));
        record.map_or(Vec::new(), |record| lineage(record, master))
    }

    /// Returns the tablets that must be rebuilt because their master crashed.
    pub(crate) fn to_recover(&self, crashed: MasterId) -> Vec<Taken> {
        self.left_of(crashed).collect()
    }

    /// Whether there are any.
    pub(crate) fn has_to_recover(&self, crashed: MasterId) -> bool {
        self.left_of(crashed).next().is_some()
    }

    fn left_of(&self, crashed: MasterId) -> impl Iterator<Item = Taken> + '_ {
        let keys = self.of_master.get(&crashed).into_iter().flatten();
        keys.filter_map(|(table, first)| {
            let tablets = &self.tables.get(table)?.tablets;
            let number = tablets.binary_search_by_key(first, |it| it.first).ok()?;
            let tablet = tablets.get(number).filter(|it| it.taken)?;
            Some(Taken { range: tablet.range(*table), since: tablet.since })
        })
    }

    /// Returns the backups that are up.
    pub(crate) fn backups(&self) -> impl Iterator<Item = Storage> + '_ {
        let up = self.servers.values().filter(|server| server.state == ServerState::Up);
        up.filter_map(|it| {
            let (server, generation, BackupInfo { address, read_bytes_per_second: speed, .. }) =
                (it.server, it.generation, it.backup?);
            Some(Storage { server, generation, address, speed })
        })
    }

    /// Returns a server's backup, if it is up.
    pub(crate) fn backup(&self, server: ServerId) -> Option<Storage> {
        self.backups().find(|it| it.server == server)
    }

    /// Returns the servers with backups that are down.
    pub(crate) fn backups_away(&self) -> impl Iterator<Item = ServerId> + '_ {
        let down = self.servers.values().filter(|server| server.state == ServerState::Down);
        down.filter(|server| server.backup.is_some() && !server.forgotten)
            .map(|server| server.server)
    }

    /// Returns the server list for all servers and clients.
    pub(crate) fn list(&self) -> ServerList {
        let servers = self.servers.values().filter_map(info).collect();
        let min_replicas = Some(self.record.settings.min_replicas);
        let format = self.record.format;
        ServerList { version: self.list_version(), min_replicas, format, servers }
    }

    /// Returns the shards of a former master's server if the server has restarted. The shard with
    /// the same number comes first.
    pub(crate) fn successors(&self, crashed: MasterId) -> Vec<MasterId> {
        let server = self.server_of_former(crashed);
        let own = server.map_or(&[][..], |server| &server.shards);
        if own.is_empty() {
            return Vec::new();
        }
        let preferred = self.former(crashed).map_or(0, |former| former.shard as usize);
        let (before, from) = own.split_at(preferred % own.len());
        from.iter().chain(before).map(|shard| shard.master).collect()
    }

    /// Whether a part of a former master's tablets must still be rebuilt.
    pub(crate) fn is_left(&self, crashed: MasterId, part: &Part) -> bool {
        part.tablets.iter().any(|taken| {
            let table = self.tables.get(&taken.range.table).filter(|table| !table.dropped);
            let tablets = table.map_or(&[][..], |table| &table.tablets);
            let from = tablets.partition_point(|it| it.last < taken.range.first);
            let there = tablets.iter().skip(from).take_while(|it| it.first <= taken.range.last);
            let mut left = there.filter(|it| it.master == crashed && it.taken);
            left.any(|it| inside(it, &taken.range))
        })
    }

    /// Returns how many parts of former masters' tablets each master has still to rebuild.
    pub(crate) fn rebuilding(&self) -> BTreeMap<MasterId, usize> {
        let mut counts = BTreeMap::new();
        for former in self.formers().filter(|it| !it.freeing) {
            for part in former.parts.iter().filter(|it| self.is_left(former.master, it)) {
                *counts.entry(part.by).or_default() += 1;
            }
        }
        counts
    }

    /// Returns the tables whose tablets got a new owner because a part was rebuilt.
    pub(crate) fn recovered(
        &self,
        crashed: MasterId,
        part: &Part,
        taken: &[Taken],
    ) -> Vec<TableRecord> {
        let was_asked = |tablet: &TabletRecord, table: TableId| {
            let mut asked = part.tablets.iter().filter(|it| it.range.table == table);
            asked.any(|it| inside(tablet, &it.range))
        };
        // Ordered by table.
        let mut changed = BTreeMap::new();
        for Taken { range, since } in taken {
            let Some(table) = self.tables.get(&range.table) else { continue };
            let record = changed.entry(table.id).or_insert_with(|| table.clone());
            for tablet in &mut record.tablets {
                let is_left = tablet.master == crashed && tablet.taken;
                if is_left && inside(tablet, range) && was_asked(tablet, range.table) {
                    (tablet.master, tablet.since) = (part.by, *since);
                }
            }
        }
        let differs = |record: &TableRecord| self.tables.get(&record.id) != Some(record);
        changed.into_values().filter(differs).collect()
    }

    /// Returns the ranges that do not belong to a master: ranges of other masters or of tables that
    /// no longer exist. If only a part of a range belongs to the master, the other parts.
    pub(crate) fn not_of(&self, master: MasterId, ranges: &[TabletRange]) -> Vec<TabletRange> {
        let mut others = Vec::new();
        for range in ranges {
            let table = self.tables.get(&range.table).filter(|table| !table.dropped);
            let tablets = table.map_or(&[][..], |table| &table.tablets).iter();
            let there: Vec<_> =
                tablets.filter(|it| it.range(range.table).overlaps(range)).collect();
            if there.iter().all(|it| it.master != master) {
                others.push(*range);
                continue;
            }
            for tablet in there.into_iter().filter(|it| it.master != master) {
                let (first, last) = (tablet.first.max(range.first), tablet.last.min(range.last));
                others.push(TabletRange { table: range.table, first, last });
            }
        }
        others
    }

    /// Returns the options of the tables of some ranges, for a master that owns these.
    pub(crate) fn options_of(&self, ranges: &[TabletRange]) -> Vec<OptionsOfTable> {
        let tables: BTreeSet<TableId> = ranges.iter().map(|it| it.table).collect();
        tables.into_iter().filter_map(|it| self.table(it)?.options()).collect()
    }

    /// Returns the ranges whose tables no longer exist. They will not exist again.
    pub(crate) fn orphans(&self, ranges: &[TabletRange]) -> Vec<TabletRange> {
        let is_gone = |table: TableId| self.tables.get(&table).is_none_or(|table| table.dropped);
        ranges.iter().copied().filter(|range| is_gone(range.table)).collect()
    }
}

fn inside(tablet: &TabletRecord, range: &TabletRange) -> bool {
    range.first <= tablet.first && tablet.last <= range.last
}

/// Returns a server's public description, or none before its first generation.
fn info(record: &ServerRecord) -> Option<ServerInfo> {
    (record.generation > Generation(0)).then(|| ServerInfo {
        server: record.server,
        generation: record.generation,
        state: record.state,
        host: record.host.clone(),
        rack: record.rack.clone(),
        shards: record
            .shards
            .iter()
            .map(|shard| ShardInfo { master: shard.master, address: shard.address })
            .collect(),
        backup: record.backup,
        lineages: record
            .shards
            .iter()
            .map(|shard| (shard.master, inherited(record, shard.master)))
            .filter(|(_, lineage)| !lineage.is_empty())
            .collect(),
    })
}

/// Returns the record of a server after its present generation has ended: its masters are former
/// ones.
pub(crate) fn gone(record: &ServerRecord) -> ServerRecord {
    let mut record = record.clone();
    record.state = ServerState::Down;
    for (shard, old) in std::mem::take(&mut record.shards).into_iter().enumerate() {
        record.former.push(Former {
            master: old.master,
            shard: u32::try_from(shard).unwrap_or(0),
            epochs: old.epochs,
            floor: old.floor,
            recovery: RecoveryId(0),
            parts: Vec::new(),
            freeing: false,
            heir: None,
            inherited: false,
        });
    }
    record
}

/// Returns the record of a server after its present generation has ended, possibly for good. A
/// server without a storage does not keep its identity: it never restarts under this id.
pub(crate) fn ended(record: &ServerRecord) -> ServerRecord {
    let mut record = gone(record);
    record.forgotten = record.backup.is_none();
    record
}

/// Returns how many shards a server has, or had in a generation with unfinished masters.
pub(crate) fn shards_of(record: &ServerRecord) -> usize {
    let former = record.former.iter().map(|former| former.shard as usize + 1);
    former.chain([record.shards.len()]).max().unwrap_or(0).min(SHARDS_MAX)
}

/// Notes the epoch of a head. Returns whether the epoch is new.
pub(crate) fn raise_epoch(shard: &mut ShardRecord, segment: SegmentId, epoch: Epoch) -> bool {
    if segment < shard.floor {
        // No open replica of it counts.
        return false;
    }
    match shard.epochs.iter_mut().find(|(known, _)| *known == segment) {
        Some((_, known)) if *known >= epoch => return false,
        Some((_, known)) => *known = epoch,
        None => shard.epochs.push((segment, epoch)),
    }
    shard.epochs.sort_unstable();
    let excess = shard.epochs.len().saturating_sub(EPOCHS_MAX);
    shard.epochs.drain(..excess);
    if let Some((oldest, _)) = shard.epochs.first().filter(|_| excess > 0) {
        shard.floor = *oldest;
    }
    true
}

/// Returns the table with a tablet split at a hash, or `None` if there is no tablet to split there.
/// A table that is split there already stays unchanged.
///
/// Shards are not told: a shard's tablet may span several of the coordinator's tablets, as long as
/// they have the same owner. They part when one of them moves.
pub(crate) fn split(table: &TableRecord, at: KeyHash) -> Option<TableRecord> {
    let mut table = table.clone();
    let number = table.tablets.iter().position(|it| it.first <= at && at <= it.last)?;
    let tablet = table.tablets.get_mut(number)?;
    if tablet.first == at {
        return (at != KeyHash::MIN).then_some(table);
    }
    let second = TabletRecord { first: at, ..*tablet };
    tablet.last = KeyHash(at.0 - 1);
    table.tablets.insert(number + 1, second);
    let fits = crate::stored::to_value(&table).len() <= VALUE_BYTES_MAX;
    (table.tablets.len() <= TABLETS_MAX && fits).then_some(table)
}

#[cfg(test)]
mod tests;
