//! The bodies of messages between coordinator, servers and clients about the cluster.
//!
//! They are JSON. They are not on the path of an object, so packing them would gain nothing. JSON
//! can be read by a client in any language and by an operator, and it can grow: a reader skips
//! fields that it does not know, and new fields have a default.
//!
//! Each message is one struct, in the module of its noun; all of them are exported here.
//!
//! # The generations of a server
//!
//! ```text
//!  register   who am I?            → server id, cluster, settings      (kept in its storage)
//!  (opens its storage)
//!  enlist     I am here, alive     → generation, a master id for each shard, the list of servers
//!  recover    (from the coordinator, for each shard of its former generation that had tablets)
//! ```
//!
//! A server keeps its id as long as it keeps its storage. Each generation of it has a higher
//! number, and its shards have new master ids, because each writes a new log. A server that enlists
//! again thereby reports that its former generation has ended.

mod leases;
mod options;
mod recovery;
mod servers;
mod status;
mod tables;

pub use leases::*;
pub use options::*;
pub use recovery::*;
pub use servers::*;
pub use status::*;
pub use tables::*;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a master answers reads after it sent a message that a backup then confirmed: the backup
/// still takes this master's replicas. All backups from which the end of its log could be recovered
/// must have confirmed.
///
/// A recovery reads the end of a log only from a backup that it first told to take nothing more
/// from that master (`inventory` with `deposed`). It lets no other server serve the master's
/// tablets until this time, plus the difference between clocks, has passed since. So a master that
/// was declared crashed and does not know it has stopped answering before another master can accept
/// a write.
///
/// A master counts from the moment of sending, by its own clock, and takes nothing off. The waiting
/// side adds a margin for clocks that run at different speeds.
pub const READ_LEASE: Duration = Duration::from_millis(500);

/// A message as the body of a request or a reply.
#[must_use]
pub fn to_body<T: Serialize>(message: &T) -> Vec<u8> {
    // Serializing cannot fail here: there are no maps with odd keys and no custom serializers.
    serde_json::to_vec(message).unwrap_or_default()
}

/// The message in a body; `None` if the body is malformed.
#[must_use]
pub fn of_body<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body).ok()
}
/// A message without contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

fn is_false(it: &bool) -> bool {
    !it
}

fn is_zero(it: &u64) -> bool {
    *it == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyHash, MasterId, TableId};

    #[test]
    fn unknown_fields_are_skipped_and_missing_ones_have_a_default() {
        let known: CreateTable = of_body(br#"{"name":"t","colour":"red"}"#).unwrap();
        assert_eq!(known, CreateTable::spread("t", 1));
        assert_eq!(of_body::<CreateTable>(b"{}"), None);
        assert_eq!(of_body::<CreateTable>(b"\xff"), None);
        assert_eq!(of_body::<ShardStatus>(b"{}"), Some(ShardStatus::default()));
    }

    #[test]
    fn exactly_the_differing_settings_are_named() {
        let one = Settings {
            replicas: 3,
            min_replicas: 1,
            durability: "replicated".into(),
            segment_bytes: 8 << 20,
            self_backup: false,
        };
        assert_eq!(one.differences(&one), "");
        let other = Settings { durability: "synced".into(), self_backup: true, ..one.clone() };
        assert_eq!(
            one.differences(&other),
            "durability is replicated, not synced; self_backup is false, not true"
        );
    }

    #[test]
    fn numbers_are_json_numbers_and_addresses_are_strings() {
        let map = Map {
            version: 3,
            tables: vec![TableInfo {
                id: TableId(7),
                name: "x".into(),
                since: 0,
                beside: None,
                options: TableOptions::DEFAULT,
                tablets: vec![TabletInfo {
                    first: KeyHash::MIN,
                    last: KeyHash::MAX,
                    master: MasterId(2),
                    address: Some(([127, 0, 0, 1], 7071).into()),
                }],
            }],
            ..Map::default()
        };
        let golden = r#"{"version":3,"tables":[{"id":7,"name":"x","tablets":[{"first":0,"last":18446744073709551615,"master":2,"address":"127.0.0.1:7071"}]}]}"#;
        assert_eq!(to_body(&map), golden.as_bytes());
        assert_eq!(of_body(golden.as_bytes()), Some(map));
        let golden = r#"{"is_news":true,"since":5,"tables":[[7,4],[8,0]]}"#;
        let tables = vec![(TableId(7), 4), (TableId(8), 0)];
        let news = MapRequest { is_news: true, since: 5, tables, ..MapRequest::default() };
        assert_eq!(to_body(&news), golden.as_bytes());
        assert_eq!(of_body(golden.as_bytes()), Some(news));
        assert_eq!(to_body(&MapRequest::default()), b"{}");
        let golden = r#"{"version":6,"tables":[{"id":7,"name":"x","tablets":[],"since":4}],"is_part":true,"gone":[8]}"#;
        let (id, name, tablets) = (TableId(7), "x".to_owned(), Vec::new());
        let tables = vec![TableInfo {
            id,
            name,
            tablets,
            since: 4,
            beside: None,
            options: Default::default(),
        }];
        let gone = vec![TableId(8)];
        let part = Map { version: 6, tables, is_part: true, gone, ..Map::default() };
        assert_eq!(to_body(&part), golden.as_bytes());
        assert_eq!(of_body(golden.as_bytes()), Some(part));
    }
}
