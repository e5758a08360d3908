//! Recoveries of crashed masters: their tablets are rebuilt on other masters, then their replicas
//! are freed.
//!
//! ```text
//!  former ──► surveyed ──► divided ──► begun ──► rebuilt ──► freeing ──► forgotten
//!     ▲          │            │ parts:   │ BeginRecovery,   │ backups that are up freed them
//!     │          │            │ written  │ Recover          │
//!     └──────────┴────────────┴──────────┴── the remainder: pause, under a new number
//!                                        └── each part by itself: owners written
//! ```
//!
//! - *Surveyed* ([`running_survey`], [`survey`](crate::survey)): all backups report their replicas,
//!   and accept no more data from that master. The log is found to be complete.
//! - *Divided* ([`partitions`]): large tablets are split. The partitions are written with their
//!   recovery masters, under a number that is never used again.
//! - *Begun* ([`begin`]): backups are told to read and to filter the segments ([`order`]), then
//!   masters are told to rebuild.
//! - *Rebuilt* ([`report`]): each master reports by itself, and is the owner once that is written.
//!
//! [`partitions`]: crate::placement::partitions
//! [`order`]: crate::placement::order
//!
//! One loop covers all cases. A round is over when no further report can come from any of its
//! partitions. The remaining tablets are surveyed again, until none remains. A master's replicas
//! are freed only after the coordinator has written that none of its tablets remains.
//!
//! If the crashed server has restarted, its log may be *taken back* instead ([`taking_back`]): as
//! one part, by the shard with the number of the former one.
//!
//! A recovery master that crashes during a recovery owns none of these tablets: they are rebuilt
//! from the first crashed master. If it crashed after the owners of some tables were written and
//! before those of others, the first ones belong to it already, and are rebuilt from its log.
//!
//! # No master accepts a write while the former owner may serve a read
//!
//! A master serves reads only while its backups confirm that they accept its replicas, for
//! [`READ_LEASE`](thunderhead_wire::control::READ_LEASE) after each confirmation. So owners are
//! written no earlier than [`TAKE_OVER`](crate::limits::TAKE_OVER) after the last used backup was
//! fenced. Partitions are written only after the fencing. So a new leader need not know the time of
//! the fencing: it counts from its reading of the partitions.

mod begin;
mod failures;
mod freeing;
mod inherited;
mod report;
mod running_survey;
mod taking_back;

use crate::knowledge::attempts::{Completeness, Need, RunningSurvey, Stage, shortened};
use crate::leadership::{Leadership, RetryPauses, Task};
use crate::stored::Former;
use crate::survey::FoundLog;
use crate::waiting::within;
use begin::{Message, divide, tell_masters};
use freeing::all_freed;
use running_survey::SurveyState;
use std::collections::BTreeSet;
use std::rc::Rc;
use thunderhead_runtime::Time;
use thunderhead_wire::control::RecoveryInfo;
use thunderhead_wire::{MasterId, ServerId, TableId};

pub(crate) use freeing::free_replicas;
pub(crate) use report::recovered;

/// Returns the recoveries in progress.
pub(crate) fn status(leadership: &Leadership) -> Vec<RecoveryInfo> {
    let cluster = leadership.cluster();
    let attempts = leadership.attempts.borrow();
    let going_on = cluster.formers().filter(|it| !it.freeing);
    going_on
        .filter(|it| cluster.has_to_recover(it.master))
        .map(|it| {
            let attempt = attempts.get(&it.master);
            let stage = match attempt.map(|attempt| &attempt.stage) {
                None | Some(Stage::Resting(..)) => "waiting",
                Some(Stage::Surveying(_)) => "surveying",
                Some(Stage::Rebuilding(_)) => "rebuilding",
            };
            let is_there = |by: &MasterId| cluster.place(*by).is_some();
            let left = it.parts.iter().filter(|part| cluster.is_left(it.master, part));
            let masters: BTreeSet<_> = left.clone().map(|it| it.by).filter(is_there).collect();
            let since = attempt.and_then(|attempt| attempt.since);
            let since = since.map_or(0, |since| leadership.now().since(since).as_millis());
            RecoveryInfo {
                crashed: it.master,
                by: masters.first().copied(),
                trouble: attempt.and_then(|attempt| attempt.trouble.clone()),
                failures: attempt.map_or(0, |attempt| attempt.failures),
                needed_bytes: attempt.map_or(0, |attempt| attempt.needed_bytes),
                stage: stage.into(),
                partitions: u32::try_from(it.parts.len()).unwrap_or(u32::MAX),
                partitions_left: u32::try_from(left.count()).unwrap_or(u32::MAX),
                masters: masters.into_iter().collect(),
                bytes: attempt.map_or(0, |attempt| attempt.bytes),
                for_ms: u64::try_from(since).unwrap_or(u64::MAX),
            }
        })
        .collect()
}

/// Whether any recovery needs the replicas of a server that is down.
pub(crate) fn need(leadership: &Leadership, server: ServerId) -> Need {
    let (cluster, attempts) = (leadership.cluster(), leadership.attempts.borrow());
    let lost = cluster.formers().filter(|it| !it.freeing && cluster.has_to_recover(it.master));
    let needs = |former: &Former| match attempts.get(&former.master) {
        Some(attempt) => attempt.needs(server, &cluster),
        None => Need::Unknown,
    };
    lost.map(needs).max().unwrap_or(Need::No)
}

/// The next step for a former master.
enum Step {
    /// No work remains.
    Done,
    /// Wait for a change.
    Wait,
    /// Wait for a change or a time.
    WaitUntil(Time),
    /// The log is complete: divide its tablets among other masters.
    Divide(FoundLog),
    /// The cluster keeps no replicas: the tablets begin again, empty.
    BeginAnew(BTreeSet<TableId>),
    /// Send these messages.
    Tell(Vec<Message>),
    /// It has no tablets any more, but its heir needs its replicas.
    Inherit,
    /// Ask the heir which of the replicas it needs.
    AskHeir(MasterId),
    /// It has no tablets any more.
    Free,
    /// All backups that are up have freed its replicas. A backup that is down frees unknown
    /// masters' replicas when it restarts.
    Forget,
}

/// Task: finishes a former master.
pub(crate) async fn finish(leadership: &Rc<Leadership>, crashed: MasterId) {
    let mut pauses = RetryPauses::default();
    loop {
        let seen = leadership.changed.seen();
        let done = match next_step(leadership, crashed) {
            Step::Done => break,
            Step::Wait => {
                leadership.changed.after(seen).await;
                true
            }
            Step::WaitUntil(time) => {
                let sleep = leadership.shared.tasks().sleep_until(time);
                let _ = within(sleep, leadership.changed.after(seen)).await;
                true
            }
            Step::Divide(found) => divide(leadership, crashed, &found).await,
            Step::BeginAnew(tables) => begin_anew(leadership, crashed, tables).await,
            Step::Tell(messages) => {
                tell_masters(leadership, messages).await;
                true
            }
            Step::Inherit => {
                change(leadership, crashed, |former| {
                    former.inherit();
                })
                .await
            }
            Step::AskHeir(heir) => inherited::ask(leadership, crashed, heir).await,
            Step::Free => free(leadership, crashed).await,
            Step::Forget => forget(leadership, crashed).await,
        };
        if done {
            pauses = RetryPauses::default();
        } else {
            leadership.sleep(pauses.next()).await;
        }
    }
    leadership.attempts.borrow_mut().remove(&crashed);
    leadership.freed.borrow_mut().remove(&crashed);
    inherited::forget(leadership, crashed);
}

fn next_step(leadership: &Rc<Leadership>, crashed: MasterId) -> Step {
    let cluster = leadership.cluster();
    let Some(former) = cluster.former(crashed) else { return Step::Done };
    if former.freeing {
        leadership.attempts.borrow_mut().remove(&crashed);
        return if all_freed(leadership, crashed) { Step::Forget } else { Step::Wait };
    }
    if !cluster.has_to_recover(crashed) {
        // Backups need not be told any more which segments to read.
        leadership.attempts.borrow_mut().remove(&crashed);
        let is_needed = former.heir.is_some_and(|heir| taking_back::is_needed(&cluster, heir));
        return match (is_needed, former.inherited) {
            (true, true) => inherited::next(leadership, &cluster, former),
            (true, false) => Step::Inherit,
            (false, _) => Step::Free,
        };
    }
    if cluster.record.settings.replicas == 0 {
        let tablets = cluster.to_recover(crashed);
        return Step::BeginAnew(tablets.iter().map(|it| it.range.table).collect());
    }
    let mut attempts = leadership.attempts.borrow_mut();
    let attempt = attempts.entry(crashed).or_default();
    attempt.since.get_or_insert(leadership.now());
    loop {
        match &attempt.stage {
            Stage::Resting(until, list) => {
                if leadership.now() < *until && cluster.list_version() == *list {
                    return Step::WaitUntil(*until);
                }
                if cluster.by_load().is_empty() {
                    attempt.trouble = Some("no server is up that could rebuild it".into());
                    return Step::Wait;
                }
                attempt.stage = Stage::Surveying(RunningSurvey::new(crashed, leadership.now()));
            }
            Stage::Surveying(surveying) => match Rc::clone(surveying).advance(leadership) {
                SurveyState::Wait => return Step::Wait,
                SurveyState::WaitUntil(time) => return Step::WaitUntil(time),
                SurveyState::Lacks(why, servers) => {
                    attempt.on_surveyed(Completeness::Incomplete(cluster.list_version(), servers));
                    attempt.trouble = Some(shortened(why));
                    return Step::Wait;
                }
                SurveyState::Failed(why, servers) => {
                    attempt.on_surveyed(Completeness::Incomplete(cluster.list_version(), servers));
                    attempt.on_failure(leadership, why);
                }
                SurveyState::FoundLog(found) => {
                    attempt.on_surveyed(Completeness::Complete(found.generations.clone()));
                    return Step::Divide(found);
                }
            },
            Stage::Rebuilding(_) => {
                if let Some(step) = begin::next(leadership, &cluster, former, attempt) {
                    return step;
                }
            }
        }
    }
}

/// Writes that a master's tablets have no owner. Returns whether the write succeeded.
async fn begin_anew(
    leadership: &Rc<Leadership>,
    crashed: MasterId,
    tables: BTreeSet<TableId>,
) -> bool {
    let _lock = leadership.lock_updates().await;
    for id in tables {
        let Some(mut table) = leadership.cluster().table(id).cloned() else { continue };
        for tablet in table.tablets.iter_mut().filter(|it| it.master == crashed) {
            tablet.taken = false;
        }
        if leadership.put_table(table).await.is_err() {
            return false;
        }
        leadership.ensure_running(Task::Settle(id));
    }
    true
}

/// Changes a former master's record. Returns whether the write succeeded.
async fn change(
    leadership: &Rc<Leadership>,
    crashed: MasterId,
    act: impl FnOnce(&mut Former),
) -> bool {
    let _lock = leadership.lock_updates().await;
    let record = leadership.cluster().server_of_former(crashed).cloned();
    let Some(mut record) = record else { return true };
    let Some(former) = record.former.iter_mut().find(|it| it.master == crashed) else {
        return true;
    };
    act(former);
    leadership.put_server(record).await.is_ok()
}

/// Writes that a former master is no longer needed. Returns whether the write succeeded. Former
/// masters whose heir it was go over to its own heir, whose log may still name them.
async fn free(leadership: &Rc<Leadership>, crashed: MasterId) -> bool {
    let _lock = leadership.lock_updates().await;
    let record = leadership.cluster().server_of_former(crashed).cloned();
    let Some(mut record) = record else { return true };
    let Some(former) = record.former.iter_mut().find(|it| it.master == crashed) else {
        return true;
    };
    former.parts.clear();
    former.epochs.clear();
    former.freeing = true;
    let heir = former.heir;
    for other in record.former.iter_mut().filter(|it| it.heir == Some(crashed)) {
        other.heir = heir;
    }
    leadership.put_server(record).await.is_ok()
}

async fn forget(leadership: &Rc<Leadership>, crashed: MasterId) -> bool {
    let _lock = leadership.lock_updates().await;
    let record = leadership.cluster().server_of_former(crashed).cloned();
    let Some(mut record) = record else { return true };
    record.former.retain(|former| former.master != crashed);
    if record.forgotten && record.former.is_empty() {
        return leadership.remove_server(record.server).await.is_ok();
    }
    leadership.put_server(record).await.is_ok()
}
