//! Masters that are gone: their tablets are rebuilt elsewhere, then their replicas are freed.
//!
//! ```text
//!  former ──► assigned ──► begun ──► rebuilt ──► freeing ──► forgotten
//!     ▲          │ by: written   │ Recover      │ owners: written  │ all backups said so
//!     └──────────┴───────────────┘ trouble, or that master is gone too
//! ```
//!
//! One loop for all: whatever is left is given to somebody, until nothing is left. A master's
//! replicas are freed only when it is written that none of its tablets is left.
//!
//! A recovering master that goes in the midst owns nothing of these tablets: they are rebuilt from
//! the master that went first. If it went after the owners of some tables were written and before
//! those of others were, the former are its own by then, and are rebuilt from its log.

use crate::coordinator::Outcome;
use crate::duties::{Duty, employ};
use crate::limits::TROUBLE_BYTES_MAX;
use crate::reign::{Backoff, Reign};
use crate::servers::all_freed;
use crate::stored::Former;
use crate::waiting::within;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use thunderhead_rpc::Opcode;
use thunderhead_runtime::Time;
use thunderhead_wire::control::{Empty, Recover, Recovered, RecoveryInfo, Tablets, Taken, to_body};
use thunderhead_wire::{MasterId, Status, TableId};

/// How the recovery of a master gets on. Not written: a new leader tries anew.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempt {
    /// Who has said that it has begun.
    begun: Option<MasterId>,
    /// How often it failed.
    failures: usize,
    /// Nothing is tried before.
    not_before: Time,
    /// Who was at it last could not do it.
    choose_again: bool,
    /// Why it failed last.
    trouble: Option<String>,
    /// How often somebody has reported on it.
    reports: u64,
}

/// Shortens what somebody says.
fn shortened(mut text: String) -> String {
    let mut end = text.len().min(TROUBLE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

fn has_failed(reign: &Reign, crashed: MasterId, trouble: String) {
    let mut attempts = reign.attempts.borrow_mut();
    let attempt = attempts.entry(crashed).or_default();
    attempt.failures += 1;
    attempt.reports += 1;
    attempt.begun = None;
    attempt.choose_again = true;
    attempt.not_before = reign.now() + reign.shared.options.recovery_pause;
    attempt.trouble = Some(shortened(trouble));
    drop(attempts);
    reign.changed.raise();
}

/// A shard has rebuilt tablets, or could not.
pub(crate) async fn recovered(reign: &Rc<Reign>, message: Recovered) -> Outcome {
    let Recovered { crashed, by, outcome, .. } = message;
    let _pen = reign.pen().await?;
    if reign.cluster().place(by).is_none() {
        return Err(Status::Deposed.into());
    }
    let failed_already =
        reign.attempts.borrow().get(&crashed).is_some_and(|attempt| attempt.choose_again);
    let is_asked = {
        let cluster = reign.cluster();
        let former = cluster.former(crashed).filter(|former| !former.freeing);
        former.is_some_and(|former| former.by == Some(by)) && !failed_already
    };
    let taken = match outcome {
        Ok(taken) => taken,
        Err(trouble) => {
            if is_asked {
                has_failed(reign, crashed, trouble);
            }
            return Ok(to_body(&Empty {}));
        }
    };
    if !is_asked {
        // It may be that it was written, if only in part, and the answer was lost. What is written
        // to be its own it must not throw away, whatever became of the rest.
        if !reign.cluster().has_any_or_all(by, &taken) {
            return Err(Status::BadRange.into());
        }
        has_orphans(reign, by, &taken);
        return Ok(to_body(&Empty {}));
    }
    let changed = reign.cluster().recovered(crashed, by, &taken);
    for table in changed {
        reign.put_table(table).await?;
    }
    has_orphans(reign, by, &taken);
    // What is left, if anything, is asked for again.
    if let Some(attempt) = reign.attempts.borrow_mut().get_mut(&crashed) {
        attempt.begun = None;
        attempt.reports += 1;
        attempt.not_before = reign.now() + reign.shared.options.recovery_pause;
    }
    reign.changed.raise();
    Ok(to_body(&Empty {}))
}

/// A shard has rebuilt tablets of tables that were dropped meanwhile: it is told to drop them, some
/// time after it has been answered. A new leader does not know of it; then the shard keeps them.
fn has_orphans(reign: &Rc<Reign>, by: MasterId, taken: &[Taken]) {
    let tablets = reign.cluster().orphans(taken);
    if tablets.is_empty() {
        return;
    }
    let busy = Rc::clone(reign);
    reign.spawn(async move {
        let message = Tablets { master: by, tablets };
        loop {
            busy.sleep(busy.shared.options.call_timeout).await;
            let Some(place) = busy.cluster().place(by) else { return };
            if busy.call(place.address, Opcode::DropTablets, &message).await.is_ok() {
                return;
            }
        }
    });
}

/// What is being recovered.
pub(crate) fn status(reign: &Reign) -> Vec<RecoveryInfo> {
    let cluster = reign.cluster();
    let attempts = reign.attempts.borrow();
    let going_on = cluster.formers().filter(|it| !it.freeing);
    going_on
        .filter(|it| !cluster.to_recover(it.master).is_empty())
        .map(|it| RecoveryInfo {
            crashed: it.master,
            by: it.by.filter(|by| cluster.place(*by).is_some()),
            trouble: attempts.get(&it.master).and_then(|attempt| attempt.trouble.clone()),
        })
        .collect()
}

/// What is to be done about a former master next.
enum Step {
    /// It is done with.
    Done,
    /// Nothing before something changes.
    Wait,
    /// Nothing before a time.
    WaitUntil(Time),
    /// Somebody is to rebuild its tablets.
    Assign(MasterId),
    /// There are no replicas in this cluster: its tablets begin anew, empty.
    BeginAnew(BTreeSet<TableId>),
    /// That one is told.
    Tell(SocketAddr, Recover),
    /// It has no tablets any more.
    Free,
    /// All backups have freed its replicas.
    Forget,
}

/// Duty: what is left of a master that is gone is seen to.
pub(crate) async fn see_to(reign: &Rc<Reign>, crashed: MasterId) {
    let mut backoff = Backoff::default();
    loop {
        let seen = reign.changed.seen();
        let done = match next_step(reign, crashed) {
            Step::Done => break,
            Step::Wait => {
                reign.changed.after(seen).await;
                true
            }
            Step::WaitUntil(time) => {
                let sleep = reign.shared.tasks().sleep_until(time);
                let _ = within(sleep, reign.changed.after(seen)).await;
                true
            }
            Step::Assign(to) => {
                let done = change(reign, crashed, |former| former.by = Some(to)).await;
                if done && let Some(attempt) = reign.attempts.borrow_mut().get_mut(&crashed) {
                    (attempt.begun, attempt.choose_again) = (None, false);
                }
                done
            }
            Step::BeginAnew(tables) => begin_anew(reign, crashed, tables).await,
            Step::Tell(to, message) => tell(reign, to, &message).await,
            Step::Free => {
                change(reign, crashed, |former| {
                    (former.by, former.freeing) = (None, true);
                    former.epochs.clear();
                })
                .await
            }
            Step::Forget => forget(reign, crashed).await,
        };
        if done {
            backoff = Backoff::default();
        } else {
            reign.sleep(backoff.next()).await;
        }
    }
    reign.attempts.borrow_mut().remove(&crashed);
    reign.freed.borrow_mut().remove(&crashed);
}

fn next_step(reign: &Reign, crashed: MasterId) -> Step {
    let cluster = reign.cluster();
    let Some(former) = cluster.former(crashed) else { return Step::Done };
    if former.freeing {
        return if all_freed(reign, crashed) { Step::Forget } else { Step::Wait };
    }
    let tablets: Vec<Taken> = cluster.to_recover(crashed);
    if tablets.is_empty() {
        return Step::Free;
    }
    if cluster.record.settings.replicas == 0 {
        return Step::BeginAnew(tablets.iter().map(|it| it.range.table).collect());
    }
    let mut attempts = reign.attempts.borrow_mut();
    let attempt = attempts.entry(crashed).or_default();
    if reign.now() < attempt.not_before {
        return Step::WaitUntil(attempt.not_before);
    }
    let by = former.by.filter(|_| !attempt.choose_again);
    let Some((by, place)) = by.and_then(|by| Some((by, cluster.place(by)?))) else {
        let candidates = cluster.candidates(crashed);
        let chosen = attempt.failures.checked_rem(candidates.len());
        let chosen = chosen.and_then(|number| candidates.get(number));
        return chosen.map_or(Step::Wait, |master| Step::Assign(*master));
    };
    if attempt.begun == Some(by) {
        return Step::Wait;
    }
    let (epochs, backups) = (former.epochs.clone(), cluster.backups());
    Step::Tell(
        place.address,
        Recover {
            master: by,
            crashed,
            recovery: 0,
            partition: 0,
            tablets,
            segments: Vec::new(),
            epochs,
            backups,
        },
    )
}

/// Tells a master to rebuild tablets; says whether it has begun.
async fn tell(reign: &Rc<Reign>, to: SocketAddr, message: &Recover) -> bool {
    use thunderhead_rpc::CallError::{Refused, TooLong, UnknownStatus};
    use thunderhead_wire::Next;
    let reports = |reign: &Reign| {
        reign.attempts.borrow().get(&message.crashed).map_or(0, |attempt| attempt.reports)
    };
    let before = reports(reign);
    match reign.call(to, Opcode::Recover, message).await {
        // What it has reported meanwhile is newer than what it says here.
        Ok(_) if reports(reign) != before => true,
        Ok(_) => {
            let mut attempts = reign.attempts.borrow_mut();
            attempts.entry(message.crashed).or_default().begun = Some(message.master);
            true
        }
        Err(error) => {
            let final_for_it = match error {
                Refused { status, .. } => status.next() != Next::Wait,
                TooLong | UnknownStatus(_) => true,
                _ => false,
            };
            if final_for_it {
                has_failed(reign, message.crashed, format!("{} says: {error}", message.master));
            }
            false
        }
    }
}

/// Writes that a master's tablets are nobody's; says whether that could be done.
async fn begin_anew(reign: &Rc<Reign>, crashed: MasterId, tables: BTreeSet<TableId>) -> bool {
    let _pen = reign.pen_for_long().await;
    for id in tables {
        let Some(mut table) = reign.cluster().table(id).cloned() else { continue };
        for tablet in table.tablets.iter_mut().filter(|it| it.master == crashed) {
            tablet.taken = false;
        }
        if reign.put_table(table).await.is_err() {
            return false;
        }
        employ(reign, Duty::Settle(id));
    }
    true
}

/// Changes what is written of a former master; says whether that could be done.
async fn change(reign: &Rc<Reign>, crashed: MasterId, act: impl FnOnce(&mut Former)) -> bool {
    let _pen = reign.pen_for_long().await;
    let record = reign.cluster().server_of_former(crashed).cloned();
    let Some(mut record) = record else { return true };
    let Some(former) = record.former.iter_mut().find(|it| it.master == crashed) else {
        return true;
    };
    act(former);
    reign.put_server(record).await.is_ok()
}

async fn forget(reign: &Rc<Reign>, crashed: MasterId) -> bool {
    let _pen = reign.pen_for_long().await;
    let record = reign.cluster().server_of_former(crashed).cloned();
    let Some(mut record) = record else { return true };
    record.former.retain(|former| former.master != crashed);
    reign.put_server(record).await.is_ok()
}
