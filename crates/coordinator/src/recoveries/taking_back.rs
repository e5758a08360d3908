//! Decides whether a shard takes back its former log, and tracks the heirs of logs.
//!
//! If the crashed server has restarted, the shard with the number of the former one can adopt its
//! log: the closed segments become part of the new log with their present replicas
//! (`thunderhead_log::Rebuild::adopt`). Only the former head is written to backups again. One shard
//! then rebuilds everything, while a recovery in parts would use all masters. So a log is taken
//! back only if the masters have enough other work: if at least half as many former masters wait
//! for a recovery as there are masters. That is so when all servers restart, and in a cluster of
//! one.
//!
//! # The heir
//!
//! Before a shard is told to take a log back, the coordinator writes that it is the *heir* of the
//! former master. From then on
//!
//! - the former master's replicas stay as long as the heir's log may be needed, because that log
//!   may name them: while the heir is up, or has tablets to recover, or the same holds for its own
//!   heir;
//! - a recovery of the heir looks for replicas of the whole *lineage*: of the masters whose heir it
//!   was, and of theirs.
//!
//! If an heir could not take the log back, and its log names no segment of it, it is the heir no
//! longer: the recovery goes on in parts. If its log does name a segment, it stays the heir, even
//! if it owns none of the tablets.
//!
//! The replicas are *inherited* only when no tablet of the former master remains to be recovered:
//! backups get the lineage with the server list, and replicas that the heir frees are freed. Not
//! before: if the heir owns only some of the tablets, because the leader crashed while it wrote the
//! owners, the others are recovered from these replicas.

use crate::cluster::{Cluster, lineage};
use crate::knowledge::attempts::Attempt;
use crate::leadership::Leadership;
use crate::limits::LINEAGE_MAX;
use crate::placement::rooms::Room;
use crate::refusal::Refusal;
use crate::stored::Former;
use crate::survey::FoundLog;
use std::collections::BTreeMap;
use thunderhead_wire::MasterId;
use thunderhead_wire::control::Taken;

/// The most tablets that are taken back at once: they are one partition.
const TABLETS_MAX: usize = 256;

/// Whether the log of an heir may still be needed.
pub(super) fn is_needed(cluster: &Cluster, heir: MasterId) -> bool {
    // A crashed heir may have an heir itself, whose log names the same segments.
    let is_left = |former: &Former| {
        let has_tablets = cluster.has_to_recover(heir);
        !former.freeing && (has_tablets || former.heir.is_some_and(|it| is_needed(cluster, it)))
    };
    cluster.place(heir).is_some() || cluster.former(heir).is_some_and(is_left)
}

/// Returns the shard that takes the log of a former master back, if any.
pub(super) fn choose_heir(
    cluster: &Cluster,
    former: &Former,
    tablets: &[Taken],
    log: &FoundLog,
    rooms: &BTreeMap<MasterId, Room>,
    attempt: Option<&Attempt>,
) -> Option<MasterId> {
    let record = cluster.server_of_former(former.master)?;
    let by = record.shards.get(former.shard as usize)?.master;
    let is_first = |other: &Former| other.heir != Some(by);
    // Memory for the log, and some more for its further work.
    let bytes = log.bytes();
    let needed = bytes.saturating_add(bytes / 8);
    let has_room = rooms.get(&by).is_some_and(|room| needed <= room.memory_bytes);
    let waiting = cluster.formers().filter(|it| !it.freeing);
    let waiting = waiting.filter(|it| cluster.has_to_recover(it.master)).count();
    let masters = cluster.by_load().len();
    let may = record.log_seed != 0
        && former.heir.is_none_or(|heir| !is_needed(cluster, heir))
        && record.former.iter().all(is_first)
        && attempt.is_none_or(|attempt| !attempt.refused.contains_key(&by))
        && tablets.len() <= TABLETS_MAX
        && lineage(record, former.master).len() < LINEAGE_MAX
        && has_room
        && waiting * 2 >= masters;
    may.then_some(by)
}

/// Notes that a master could not take back a log, and that its own log names no segment of it.
pub(super) async fn remove_heir(
    leadership: &Leadership,
    crashed: MasterId,
    by: MasterId,
) -> Result<(), Refusal> {
    let record = leadership.cluster().server_of_former(crashed).cloned();
    let Some(mut record) = record else { return Ok(()) };
    let mut formers = record.former.iter_mut();
    let Some(former) = formers.find(|it| it.master == crashed && it.heir == Some(by)) else {
        return Ok(());
    };
    former.heir = None;
    leadership.put_server(record).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::ServerRecord;

    #[test]
    fn the_log_of_an_heir_is_needed_while_its_own_heir_is_up() {
        let settings = thunderhead_wire::control::Settings {
            replicas: 1,
            min_replicas: 1,
            durability: "replicated".into(),
            segment_bytes: 1,
            self_backup: true,
        };
        let cluster = thunderhead_wire::ClusterId(1);
        let format = thunderhead_wire::Format::FIRST;
        let record = crate::stored::ClusterRecord::new(format, cluster, settings);
        let mut cluster = Cluster::new(record, crate::stored::Ids::default(), 1 << 20);
        let server = br#"{"server":1,"registered":5,"generation":3,"state":"up",
            "shards":[{"master":3,"address":"10.0.0.1:1"}],
            "former":[{"master":1,"shard":0,"heir":2},{"master":2,"shard":0,"heir":3}]}"#;
        let mut record: ServerRecord = serde_json::from_slice(server).expect("a server");
        cluster.put_server(record.clone());
        assert!(is_needed(&cluster, MasterId(3)) && is_needed(&cluster, MasterId(2)));
        record.shards.clear();
        cluster.put_server(record);
        assert!(!is_needed(&cluster, MasterId(3)) && !is_needed(&cluster, MasterId(2)));
    }
}
