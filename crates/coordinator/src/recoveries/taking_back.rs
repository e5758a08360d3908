//! Whether the former log of a shard is taken back as it is, and what is left to do then.
//!
//! Where the server that is gone has come again, the shard in the place of the former one can adopt its
//! log: its closed segments become part of the new log with the replicas that they have
//! (`thunderhead_log::Rebuild::adopt`). Nothing is written to backups anew but the former head. One
//! shard rebuilds everything then, where a recovery in parts would have all of them; so that is done
//! where these have enough to do with what they lost themselves: when at least half as many former
//! masters wait to be rebuilt as there are masters. That is so when all servers come again, and where
//! there is one.
//!
//! # The heir
//!
//! Before a shard is told it is written that it is the *heir* of the former master. From then on
//!
//! - the former master's replicas stay as long as the heir's log may be needed, for that may name them:
//!   the heir is there, or has tablets that are to be recovered, or its own heir's may;
//! - a recovery of the heir looks for replicas of the whole *lineage*: of those whose heir it was, and
//!   theirs.
//!
//! An heir that could not do it, and whose log names nothing, is no heir any more: the recovery goes on
//! in parts. One whose log does name something stays it, though it owns nothing of it.
//!
//! Only when nothing of the former master's is left to recover are its replicas *inherited*: backups are
//! told the lineage with the list of servers, and what the heir has freed is freed. Not before: where
//! the heir owns only some of the tablets, for the leader went in the midst of writing it, the others are
//! recovered from these replicas.

use super::attempt::Attempt;
use super::survey::Found;
use crate::cluster::Cluster;
use crate::coordinator::Refusal;
use crate::reign::Reign;
use crate::rooms::Room;
use crate::stored::{Former, ServerRecord};
use std::collections::BTreeMap;
use thunderhead_wire::MasterId;
use thunderhead_wire::control::Taken;

/// So long a lineage gets at most; then a recovery in parts makes an end of it.
const LINEAGE_MAX: usize = 8;

/// So many tablets are taken back at once at most: they are one partition.
const TABLETS_MAX: usize = 256;

/// Those whose closed replicas are a master's, too: whose heir it is or was, and theirs.
pub(crate) fn lineage(record: &ServerRecord, master: MasterId) -> Vec<MasterId> {
    trace(record, master, |_| true)
}

/// Those of them whose replicas it may free.
pub(crate) fn inherited(record: &ServerRecord, master: MasterId) -> Vec<MasterId> {
    trace(record, master, |former| former.inherited)
}

fn trace(
    record: &ServerRecord,
    master: MasterId,
    counts: impl Fn(&Former) -> bool,
) -> Vec<MasterId> {
    let mut found = vec![master];
    let mut at = 0;
    while let Some(heir) = found.get(at).copied() {
        let of = record.former.iter().filter(|it| it.heir == Some(heir) && counts(it));
        let new: Vec<MasterId> = of.map(|it| it.master).filter(|it| !found.contains(it)).collect();
        found.extend(new);
        at += 1;
    }
    found.remove(0);
    found
}

/// Whether the log of a master may still be needed that is the heir of another one.
pub(super) fn is_needed(cluster: &Cluster, heir: MasterId) -> bool {
    // An heir that is gone may have one itself, whose log names what this one's did.
    let is_left = |former: &Former| {
        let has_tablets = cluster.has_to_recover(heir);
        !former.freeing && (has_tablets || former.heir.is_some_and(|it| is_needed(cluster, it)))
    };
    cluster.place(heir).is_some() || cluster.former(heir).is_some_and(is_left)
}

/// Who takes the log of a former master back, if anybody does.
pub(super) fn who(
    cluster: &Cluster,
    former: &Former,
    tablets: &[Taken],
    found: &Found,
    rooms: &BTreeMap<MasterId, Room>,
    attempt: Option<&Attempt>,
) -> Option<MasterId> {
    let record = cluster.server_of_former(former.master)?;
    let by = record.shards.get(former.shard as usize)?.master;
    let is_first = |other: &Former| other.heir != Some(by);
    // Room beside it for what the log needs to go on.
    let bytes = found.bytes();
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

/// A master could not take back the log of another one, and its own names nothing of it.
pub(super) async fn is_no_heir(
    reign: &Reign,
    crashed: MasterId,
    by: MasterId,
) -> Result<(), Refusal> {
    let record = reign.cluster().server_of_former(crashed).cloned();
    let Some(mut record) = record else { return Ok(()) };
    let mut formers = record.former.iter_mut();
    let Some(former) = formers.find(|it| it.master == crashed && it.heir == Some(by)) else {
        return Ok(());
    };
    former.heir = None;
    reign.put_server(record).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lineage_is_all_whose_heir_one_is_and_theirs() {
        let server = br#"{"server":1,"registered":5,"generation":1,"state":"down"}"#;
        let mut record: ServerRecord = serde_json::from_slice(server).expect("all has a default");
        for (master, heir, inherited) in [(1, 2, true), (2, 3, false), (4, 9, true), (5, 3, true)] {
            let former =
                format!(r#"{{"master":{master},"shard":0,"heir":{heir},"inherited":{inherited}}}"#);
            record.former.push(serde_json::from_str(&former).expect("a former master"));
        }
        let ids = |of: Vec<MasterId>| of.into_iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(ids(lineage(&record, MasterId(3))), [2, 5, 1]);
        assert_eq!(ids(inherited(&record, MasterId(3))), [5]);
        assert_eq!(ids(lineage(&record, MasterId(1))), [0; 0]);
    }

    #[test]
    fn the_log_of_an_heir_is_needed_as_long_as_its_own_heir_is_there() {
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
