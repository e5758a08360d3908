//! The remaining replicas of logs that were taken back.
//!
//! A shard that has taken back the log of a former master needs the log's closed segments until its
//! cleaners have cleaned them. The other replicas are not needed: replicas of open segments and of
//! segments that no digest named, and all replicas if the heir crashed before it took the log back.
//! So the coordinator asks the shard which segments of former masters it still has, and tells
//! backups to free all others. It asks again at intervals. When no backup has such a replica any
//! more, the former master is forgotten.
//!
//! **Why that is safe.** A shard takes back only one log in its generation, and reports no segments
//! before it has finished that. From then on it has fewer and fewer of those segments, and so has
//! each later master that takes its own log back. So a segment that it does not have is never
//! needed again, however late a backup learns it. (If a master in the middle of a lineage is
//! forgotten, its predecessors go over to its successors.) Between the former master and the shard
//! there may be other masters, each the heir of the one before. None of them may have tablets to
//! recover, because their own digests may name more segments.

use super::Step;
use crate::cluster::Cluster;
use crate::knowledge::inherited::InheritedLog;
use crate::leadership::Leadership;
use crate::stored::{Former, ServerRecord};
use std::collections::BTreeMap;
use std::rc::Rc;
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{FreeRest, OfMaster, ServerState, ShardStatus, of_body};
use thunderhead_wire::{MasterId, ServerId};

/// Returns the shard whose log includes that of a former master, if it is up and no master between
/// them has tablets to recover.
fn heir(cluster: &Cluster, former: &Former) -> Option<MasterId> {
    let (mut former, mut steps) = (former, 0);
    loop {
        let heir = former.heir.filter(|_| former.inherited && steps < 64)?;
        if cluster.place(heir).is_some() {
            return Some(heir);
        }
        (former, steps) = (cluster.former(heir)?, steps + 1);
    }
}

/// Returns the next step for an inherited former master.
pub(super) fn next(leadership: &Leadership, cluster: &Cluster, former: &Former) -> Step {
    let Some(heir) = heir(cluster, former) else { return Step::Wait };
    let inherited = leadership.inherited.0.borrow();
    let log = inherited.get(&former.master).filter(|log| log.heir == heir);
    let Some(log) = log.filter(|log| leadership.now() < log.ask_at()) else {
        return Step::AskHeir(heir);
    };
    let Some(keep) = &log.keep else { return Step::WaitUntil(log.ask_at()) };
    // A backup that is down may have segments that are needed. If none is needed, it frees its
    // replicas after its restart.
    let counts = |it: &&ServerRecord| {
        it.backup.is_some() && !it.forgotten && (it.state == ServerState::Up || !keep.is_empty())
    };
    let mut backups = cluster.servers().filter(counts);
    if backups.all(|it| log.left.get(&it.server) == Some(&0)) {
        return Step::Free;
    }
    Step::WaitUntil(log.ask_at())
}

/// Asks a shard which segments of former logs it has. Returns whether it has answered.
pub(super) async fn ask(leadership: &Rc<Leadership>, master: MasterId, heir: MasterId) -> bool {
    let place = leadership.cluster().place(heir).map(|place| place.address);
    let Some(address) = place else { return true };
    let Ok(answer) =
        leadership.call(address, Opcode::ShardStatus, &OfMaster { master: heir }).await
    else {
        return false;
    };
    let status = of_body::<ShardStatus>(&answer).filter(|status| status.master == heir);
    let keep = status.and_then(|status| status.inherited).map(Rc::new);
    let log = InheritedLog { heir, asked: leadership.now(), keep, left: BTreeMap::new() };
    leadership.inherited.0.borrow_mut().insert(master, log);
    leadership.changed.raise();
    true
}

/// Drops all knowledge of a former master.
pub(super) fn forget(leadership: &Leadership, master: MasterId) {
    leadership.inherited.0.borrow_mut().remove(&master);
}

/// Returns the next message to a backup.
pub(super) fn to_free(leadership: &Leadership, server: ServerId) -> Option<FreeRest> {
    let inherited = leadership.inherited.0.borrow();
    let mut due = inherited.iter().filter(|(_, log)| !log.left.contains_key(&server));
    due.find_map(|(master, log)| {
        let keep = log.keep.as_deref()?.clone();
        Some(FreeRest { master: *master, keep })
    })
}

/// Notes that a backup has freed the rest, and how many replicas it has left.
pub(super) fn on_rest_freed(leadership: &Leadership, server: ServerId, told: &FreeRest, left: u64) {
    if let Some(log) = leadership.inherited.0.borrow_mut().get_mut(&told.master)
        && log.keep.as_deref() == Some(&told.keep)
    {
        log.left.insert(server, left);
    }
    leadership.changed.raise();
}
