//! The contents of the metastore: one JSON value for each thing that changes by itself.
//!
//! ```text
//!  cluster        its id, its settings            written at its creation, and with each setting
//!  ids            the next id of each kind        written before an id is used
//!  lease-ids      the numbers set aside           the same, for leases
//!  servers/ID     a server, its present generation, and the unfinished masters of former ones
//!  tables/ID      a table and its tablets
//!  leases/ID      exists as long as the lease
//!  coordinators/… a coordinator's formats         see the module `formats`
//! ```
//!
//! Facts that must change together are in one value. A server's failure is one write: its masters
//! become *former* ones, which also records the work that remains for them. A tablet's record has
//! its owner and whether the owner knows it. No other record says which work is unfinished; a new
//! leader finds it there.
//!
//! # Versions of these records
//!
//! A coordinator rewrites whole records. If it dropped a field that it does not know, it would undo
//! the write of a newer coordinator. Without `heir`, for example, it would free replicas that a log
//! names. So:
//!
//! - A coordinator leads only if it knows every field of every record, at every depth. An older
//!   stand-by that finds another field gives the leadership back ([`of_value`]).
//! - The cluster's record has the cluster's *format* ([`Format`]). A coordinator that does not know
//!   the format does not lead either, even if it knows all fields.
//! - A new field or meaning belongs to a new format, and is written only while the cluster's record
//!   has that format. A start writes the format of a cluster that it creates, and never changes
//!   that of an existing one. An operator changes it, when all programs know the new format
//!   ([`formats`](crate::formats)).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use thunderhead_metastore::{Error, Key};
use thunderhead_wire::control::{
    BackupInfo, OptionsOfTable, ServerState, Settings, TableOptions, Taken,
};
use thunderhead_wire::{
    ClusterId, Epoch, Format, Generation, KeyHash, MasterId, RecoveryId, SegmentId, ServerId,
    TableId, TabletRange,
};

/// The key of the cluster.
pub(crate) const CLUSTER: &str = "cluster";
/// The key of the next ids.
pub(crate) const IDS: &str = "ids";
/// The key of the numbers of leases.
pub(crate) const LEASE_IDS: &str = "lease-ids";
/// The begin of the keys of servers.
pub(crate) const SERVERS: &str = "servers/";
/// The begin of the keys of tables.
pub(crate) const TABLES: &str = "tables/";
/// The begin of the keys of leases.
pub(crate) const LEASES: &str = "leases/";

/// The begin of the keys of coordinators.
pub(crate) const COORDINATORS: &str = "coordinators/";

/// The cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterRecord {
    /// The cluster's format: the leader must know it, and so must each server.
    #[serde(default)]
    pub(crate) format: Format,
    pub(crate) cluster: ClusterId,
    pub(crate) settings: Settings,
    /// A leadership's number is this plus the token of its lease. It is not 0 after the metastore
    /// was replaced by an older copy, whose next tokens had been granted before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) leadership_base: u64,
    /// The ids of masters, from and to, that were skipped then. Their logs may have acknowledged
    /// updates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unknown_masters: Vec<(u64, u64)>,
    /// The ids of servers that were skipped then. Their storage may have the only replicas of logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unknown_servers: Vec<(u64, u64)>,
}

impl ClusterRecord {
    /// Returns the record of a new cluster.
    pub(crate) fn new(format: Format, cluster: ClusterId, settings: Settings) -> ClusterRecord {
        ClusterRecord {
            format,
            cluster,
            settings,
            leadership_base: 0,
            unknown_masters: Vec::new(),
            unknown_servers: Vec::new(),
        }
    }
}

/// The next ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ids {
    pub(crate) server: u64,
    pub(crate) master: u64,
    pub(crate) table: u64,
    #[serde(default = "one")]
    pub(crate) migration: u64,
    #[serde(default = "one")]
    pub(crate) recovery: u64,
}

fn one() -> u64 {
    1
}

impl Default for Ids {
    fn default() -> Self {
        Ids { server: 1, master: 1, table: 1, migration: 1, recovery: 1 }
    }
}

/// The numbers of leases below this one may be in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseIds {
    pub(crate) next: u64,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerRecord {
    pub(crate) server: ServerId,
    /// The nonce of its registration.
    pub(crate) registered: u64,
    /// The seed of its logs' ids, in all its generations. 0 before the first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) log_seed: u64,
    /// The nonces of its latest generations, the present one last.
    #[serde(default)]
    pub(crate) lives: Vec<u64>,
    /// The number of this generation; 0 before the first.
    pub(crate) generation: Generation,
    pub(crate) state: ServerState,
    #[serde(default)]
    pub(crate) host: String,
    #[serde(default)]
    pub(crate) rack: String,
    /// The shards of the present generation; none while it is down.
    #[serde(default)]
    pub(crate) shards: Vec<ShardRecord>,
    /// The backup of this generation, or of the last one.
    #[serde(default)]
    pub(crate) backup: Option<BackupInfo>,
    /// Masters of former generations with unfinished work.
    #[serde(default)]
    pub(crate) former: Vec<Former>,
    /// It does not restart, and is forgotten when its former masters are finished.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) forgotten: bool,
    /// The newest format that the program of its last generation knows.
    #[serde(default)]
    pub(crate) newest_format: Format,
}

/// A shard in its server's present generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardRecord {
    pub(crate) master: MasterId,
    pub(crate) address: SocketAddr,
    /// Heads that lost replicas, with their epochs.
    #[serde(default)]
    pub(crate) epochs: Vec<(SegmentId, Epoch)>,
    /// Epochs of older segments are not remembered: open replicas of these do not count.
    #[serde(default)]
    pub(crate) floor: SegmentId,
}

/// A former master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Former {
    pub(crate) master: MasterId,
    /// Its number among the shards of its server.
    pub(crate) shard: u32,
    #[serde(default)]
    pub(crate) epochs: Vec<(SegmentId, Epoch)>,
    /// Open replicas of older segments do not count.
    #[serde(default)]
    pub(crate) floor: SegmentId,
    /// The last recovery for which its tablets were divided; 0 before the first.
    #[serde(default)]
    pub(crate) recovery: RecoveryId,
    /// The recovery masters and their tablets, by the numbers of the partitions. Every backup that
    /// this recovery uses had been fenced before this was written.
    #[serde(default)]
    pub(crate) parts: Vec<Part>,
    /// It has no tablets any more: its replicas are being freed.
    #[serde(default)]
    pub(crate) freeing: bool,
    /// The master that took its log back or is to. That master's log may name its replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) heir: Option<MasterId>,
    /// None of its tablets remains to be recovered: the replicas that the heir frees are freed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) inherited: bool,
}

impl Former {
    /// Notes that none of its tablets remains to be recovered, though its heir needs its closed
    /// replicas. Parts and epochs concern only recoveries: without them, the record of a server has
    /// room for a long lineage of each shard.
    pub(crate) fn inherit(&mut self) {
        self.parts.clear();
        self.epochs.clear();
        self.inherited = true;
    }
}

fn is_zero(it: &u64) -> bool {
    *it == 0
}

fn is_false(it: &bool) -> bool {
    !it
}

/// A recovery master's part of a former master's tablets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) by: MasterId,
    pub(crate) tablets: Vec<Taken>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TableRecord {
    pub(crate) id: TableId,
    pub(crate) name: String,
    /// Ordered by their first hashes, without gaps.
    pub(crate) tablets: Vec<TabletRecord>,
    /// It is dropped: clients no longer see it, but some shards may not know yet.
    #[serde(default)]
    pub(crate) dropped: bool,
    /// The table beside which it lies. Only a cluster of [`Format::TABLES_BESIDE`] or later has
    /// such tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beside: Option<TableId>,
    /// Its options: only default ones before [`Format::TABLE_OPTIONS`].
    #[serde(default, skip_serializing_if = "TableOptions::is_default")]
    pub(crate) options: TableOptions,
}

impl TableRecord {
    /// Returns its options for a master, if it has any.
    pub(crate) fn options(&self) -> Option<OptionsOfTable> {
        let (table, options) = (self.id, self.options);
        (!options.is_default()).then_some(OptionsOfTable { table, options })
    }
}

/// A tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TabletRecord {
    pub(crate) first: KeyHash,
    pub(crate) last: KeyHash,
    pub(crate) master: MasterId,
    /// Entries born before this segment of the master's log belong to a former stay of the tablet
    /// there.
    #[serde(default)]
    pub(crate) since: SegmentId,
    /// The master has confirmed that it has the tablet. The map hides the tablet's address before
    /// that, so a tablet that was not taken is certainly empty.
    #[serde(default)]
    pub(crate) taken: bool,
    /// Its migration, if it is moving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) migrating: Option<Migrating>,
}

/// A tablet's migration to another master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Migrating {
    /// Never used again.
    pub(crate) number: u64,
    pub(crate) from: MasterId,
    pub(crate) to: MasterId,
    /// It belongs to the new master. Only telling both masters remains.
    #[serde(default)]
    pub(crate) moved: bool,
}

impl TabletRecord {
    pub(crate) fn range(&self, table: TableId) -> TabletRange {
        TabletRange { table, first: self.first, last: self.last }
    }
}

/// Encodes a record as a value of the metastore.
pub(crate) fn to_value<T: Serialize>(record: &T) -> Vec<u8> {
    // Writing cannot fail here: the records have no maps and no serializers of their own.
    serde_json::to_vec(record).unwrap_or_default()
}

/// Decodes a value, or returns a message for the operator. A newer coordinator wrote a value with a
/// field that is unknown here: rewriting it would lose the field.
pub(crate) fn of_value<T: DeserializeOwned>(key: &Key, value: &[u8]) -> Result<T, String> {
    let damaged = |error: serde_json::Error| {
        format!("the value {key} in the metastore is malformed ({error}); restore it from a copy")
    };
    let mut unknown = None;
    let mut bytes = serde_json::Deserializer::from_slice(value);
    let note = |path: serde_ignored::Path<'_>| unknown = Some(path.to_string());
    let record = serde_ignored::deserialize(&mut bytes, note).map_err(damaged)?;
    bytes.end().map_err(damaged)?;
    match unknown {
        None => Ok(record),
        Some(field) => Err(format!(
            "the value {key} in the metastore has a field {field:?} that this coordinator does not know: a newer \
             one wrote it; upgrade this coordinator"
        )),
    }
}

/// Refuses a format newer than this coordinator knows.
pub(crate) fn check_format(record: &ClusterRecord, newest: Format) -> Result<(), String> {
    let format = record.format;
    if format <= newest {
        return Ok(());
    }
    Err(format!(
        "the cluster was switched to {format}, and this coordinator knows {newest} and older ones; upgrade it"
    ))
}

/// Returns the key of one of many records.
pub(crate) fn key_of(prefix: &str, id: u64) -> Result<Key, Error> {
    Key::new(format!("{prefix}{id}"))
}

/// Returns the id in such a key.
pub(crate) fn id_in(prefix: &str, key: &Key) -> Option<u64> {
    key.as_str().strip_prefix(prefix)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_wire::control::Policy;

    /// Later versions read the values of earlier ones.
    #[test]
    fn values_are_read_for_ever() {
        let key = Key::new("tables/3").expect("a good key");
        let golden = br#"{"id":3,"name":"t","tablets":[{"first":0,"last":18446744073709551615,"master":2,"since":9,"taken":true}],"dropped":false}"#;
        let table = TableRecord {
            id: TableId(3),
            name: "t".into(),
            tablets: vec![TabletRecord {
                first: KeyHash::MIN,
                last: KeyHash::MAX,
                master: MasterId(2),
                since: SegmentId(9),
                taken: true,
                migrating: None,
            }],
            dropped: false,
            beside: None,
            options: TableOptions::DEFAULT,
        };
        assert_eq!(to_value(&table), golden);
        assert_eq!(of_value(&key, golden), Ok(table));
        let beside = br#"{"id":3,"name":"t","tablets":[],"dropped":false,"beside":1}"#;
        let table: TableRecord = of_value(&key, beside).expect("a table beside another one");
        assert_eq!((table.beside, to_value(&table)), (Some(TableId(1)), beside.to_vec()));
        let with_options = br#"{"id":3,"name":"t","tablets":[],"dropped":false,"options":{"ttl_ms":9,"policy":"cache"}}"#;
        let table: TableRecord = of_value(&key, with_options).expect("a record of format 2");
        assert_eq!((table.options.ttl_ms, table.options.policy), (9, Policy::Cache));
        assert_eq!(to_value(&table), with_options);
        let server = br#"{"server":1,"registered":5,"generation":0,"state":"down"}"#;
        let record: ServerRecord = of_value(&key, server).expect("all other fields have a default");
        assert_eq!((record.server, record.former.len()), (ServerId(1), 0));
        let cluster = br#"{"format":1,"cluster":9,"settings":{"replicas":2,"min_replicas":1,"durability":"replicated","segment_bytes":8,"self_backup":false}}"#;
        let record: ClusterRecord = of_value(&key, cluster).expect("a record of this version");
        assert_eq!(to_value(&record), cluster);
        let damaged = of_value::<TableRecord>(&key, b"{").expect_err("half a value");
        assert!(damaged.contains("tables/3"), "{damaged}");
        assert_eq!(id_in(TABLES, &key), Some(3));
        assert_eq!(id_in(SERVERS, &key), None);
    }

    /// Such a cluster acknowledged no write with fewer replicas, and an upgrade must not change
    /// that.
    #[test]
    fn a_cluster_without_min_replicas_in_its_record_still_wants_all_replicas() {
        let key = Key::new(CLUSTER).expect("a good key");
        for (replicas, wanted) in [(3, 3), (1, 1), (0, 1)] {
            let former = format!(
                r#"{{"format":1,"cluster":9,"settings":{{"replicas":{replicas},"durability":"replicated",
                   "segment_bytes":8,"self_backup":false}}}}"#
            );
            let record: ClusterRecord = of_value(&key, former.as_bytes()).expect("a former record");
            assert_eq!(record.settings.min_replicas, wanted);
        }
    }

    #[test]
    fn a_value_of_a_newer_coordinator_is_not_rewritten() {
        let key = Key::new("servers/1").expect("a good key");
        let values = [
            (
                r#"{"server":1,"registered":5,"generation":0,"state":"down","colour":"red"}"#,
                "colour",
            ),
            (
                r#"{"server":1,"registered":5,"generation":0,"state":"down",
                   "former":[{"master":2,"shard":0},{"master":3,"shard":0,"colour":null}]}"#,
                "former.1.colour",
            ),
        ];
        for (value, field) in values {
            let refused = of_value::<ServerRecord>(&key, value.as_bytes()).expect_err(field);
            assert!(refused.contains(field) && refused.contains("servers/1"), "{refused}");
        }
        let more = br#"{"server":1,"registered":5,"generation":0,"state":"down"} {}"#;
        of_value::<ServerRecord>(&key, more).expect_err("more text follows it");
        let cluster =
            br#"{"format":2,"cluster":9,"settings":{"replicas":3,"durability":"replicated",
            "segment_bytes":8,"self_backup":false}}"#;
        let record: ClusterRecord = of_value(&key, cluster).expect("all fields are known");
        check_format(&record, Format(1)).expect_err("its format is unknown");
        check_format(&record, Format(2)).expect("this coordinator knows it");
        let first = br#"{"cluster":9,"settings":{"replicas":3,"durability":"replicated",
            "segment_bytes":8,"self_backup":false}}"#;
        let record: ClusterRecord = of_value(&key, first).expect("the format has a default");
        check_format(&record, Format(1)).expect("it is the first one");
    }
}
