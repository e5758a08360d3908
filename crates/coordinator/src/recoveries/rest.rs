//! What is left of logs that were taken back.
//!
//! A shard that has taken back the log of a former master needs its closed segments, as long as the
//! cleaners have not cleaned them. Nobody needs the rest: what was open, what no digest named, and, where
//! one that was to take it back went before it could, all of it. So the shard is asked which segments of
//! former masters it still has, and backups are told to free all others. Once in a while it is asked
//! again; when no backup has anything left, the former master is forgotten.
//!
//! **Why that is safe.** A shard takes back one log in its life, and says nothing before it is done with
//! that. From then on it has fewer and fewer of those segments, and so have those who take its own log
//! back. So what it does not have is of no use any more, however late a backup is told. (One in between that
//! is forgotten leaves those before it to those behind it.) Between the
//! former master and the shard there may be others, one the heir of the other: of none of them anything
//! may be left to recover, for their own digests may name more.

use super::Step;
use crate::cluster::Cluster;
use crate::reign::Reign;
use crate::stored::{Former, ServerRecord};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_rpc::Opcode;
use thunderhead_runtime::Time;
use thunderhead_wire::control::{FreeRest, OfMaster, ServerState, ShardStatus, of_body};
use thunderhead_wire::{MasterId, SegmentId, ServerId};

/// How often a shard is asked, and one that is not done with taking back.
const ASK_EVERY: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Of former masters that are inherited.
#[derive(Default)]
pub(crate) struct Rests(RefCell<BTreeMap<MasterId, Rest>>);

struct Rest {
    heir: MasterId,
    asked: Time,
    /// What it still has, if it says so.
    keep: Option<Rc<Vec<SegmentId>>>,
    /// How many replicas backups still had when they were told.
    left: BTreeMap<ServerId, u64>,
}

impl Rest {
    fn ask_at(&self) -> Time {
        self.asked + if self.keep.is_some() { ASK_EVERY } else { ASK_AGAIN }
    }
}

/// The shard in whose log that of a former master is, if it is there and of nobody in between anything is
/// left to recover.
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

/// What is to be done about a master that is inherited.
pub(super) fn next(reign: &Reign, cluster: &Cluster, former: &Former) -> Step {
    let Some(heir) = heir(cluster, former) else { return Step::Wait };
    let rests = reign.rests.0.borrow();
    let rest = rests.get(&former.master).filter(|rest| rest.heir == heir);
    let Some(rest) = rest.filter(|rest| reign.now() < rest.ask_at()) else {
        return Step::AskHeir(heir);
    };
    let Some(keep) = &rest.keep else { return Step::WaitUntil(rest.ask_at()) };
    // A backup that is away may have what is needed. If nothing is, it frees what it has when it comes again.
    let counts = |it: &&ServerRecord| {
        it.backup.is_some() && !it.forgotten && (it.state == ServerState::Up || !keep.is_empty())
    };
    let mut backups = cluster.servers().filter(counts);
    if backups.all(|it| rest.left.get(&it.server) == Some(&0)) {
        return Step::Free;
    }
    Step::WaitUntil(rest.ask_at())
}

/// Asks a shard which segments of former logs it has; says whether it has answered.
pub(super) async fn ask(reign: &Rc<Reign>, master: MasterId, heir: MasterId) -> bool {
    let place = reign.cluster().place(heir).map(|place| place.address);
    let Some(address) = place else { return true };
    let Ok(answer) = reign.call(address, Opcode::ShardStatus, &OfMaster { master: heir }).await
    else {
        return false;
    };
    let status = of_body::<ShardStatus>(&answer).filter(|status| status.master == heir);
    let keep = status.and_then(|status| status.inherited).map(Rc::new);
    let rest = Rest { heir, asked: reign.now(), keep, left: BTreeMap::new() };
    reign.rests.0.borrow_mut().insert(master, rest);
    reign.changed.raise();
    true
}

/// A former master is done with.
pub(super) fn forget(reign: &Reign, master: MasterId) {
    reign.rests.0.borrow_mut().remove(&master);
}

/// What a backup is to be told next.
pub(crate) fn to_free(reign: &Reign, server: ServerId) -> Option<FreeRest> {
    let rests = reign.rests.0.borrow();
    let mut due = rests.iter().filter(|(_, rest)| !rest.left.contains_key(&server));
    due.find_map(|(master, rest)| {
        let keep = rest.keep.as_deref()?.clone();
        Some(FreeRest { master: *master, keep })
    })
}

/// A backup was told, and has so many replicas left.
pub(crate) fn is_told(reign: &Reign, server: ServerId, told: &FreeRest, left: u64) {
    if let Some(rest) = reign.rests.0.borrow_mut().get_mut(&told.master)
        && rest.keep.as_deref() == Some(&told.keep)
    {
        rest.left.insert(server, left);
    }
    reign.changed.raise();
}
