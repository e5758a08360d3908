//! The reports of recovery masters about their parts.
//!
//! A report counts if it matches the recorded recovery, partition and master, or if its result is
//! recorded already, because the first answer may have been lost. The answer names the tablets that
//! do not belong to the master: tablets of dropped tables, or tablets that another master got
//! because the first report was written only in part. A master that has none of its tablets is
//! refused, and drops all of them.

use super::taking_back::remove_heir;
use crate::leadership::Leadership;
use crate::limits::TAKE_OVER;
use crate::refusal::{Outcome, Refusal};
use crate::stored::Part;
use std::rc::Rc;
use thunderhead_rpc::Opcode;
use thunderhead_runtime::Time;
use thunderhead_wire::control::{Empty, Owned, Recovered, Tablets, Taken, to_body};
use thunderhead_wire::{MasterId, RecoveryId, Status, TabletRange};

/// Handles a shard's report that it has rebuilt tablets, or could not.
pub(crate) async fn recovered(leadership: &Rc<Leadership>, message: Recovered) -> Outcome {
    let Recovered { crashed, recovery, partition, by, outcome, keeps } = message;
    let partition = partition as usize;
    loop {
        if outcome.is_ok() {
            leadership.shared.tasks().sleep_until(safe_from(leadership, crashed)).await;
        }
        let _lock = leadership.try_lock_updates().await?;
        if leadership.cluster().place(by).is_none() {
            return Err(Status::Deposed.into());
        }
        let part = assigned(leadership, crashed, (recovery, partition), by);
        let taken = match (&outcome, &part) {
            (Err(trouble), Some(_)) => {
                if !keeps {
                    remove_heir(leadership, crashed, by).await?;
                }
                tracing::info!(%crashed, recovery = recovery.0, partition, %by, trouble, "a part cannot be rebuilt");
                on_part_over(leadership, crashed, (recovery, partition), by, Some(trouble.clone()));
                return Ok(to_body(&Empty {}));
            }
            (Err(_), None) => return Ok(to_body(&Empty {})),
            (Ok(taken), _) => taken,
        };
        if let Some(part) = part {
            if leadership.now() < safe_from(leadership, crashed) {
                // The part was assigned again while this report waited.
                continue;
            }
            write(leadership, crashed, &part, taken).await?;
            tracing::info!(%crashed, recovery = recovery.0, partition, %by, "a part is rebuilt");
            let is_left = leadership.cluster().is_left(crashed, &part);
            let trouble = is_left.then(|| format!("{by} has rebuilt only a part of its tablets"));
            on_part_over(leadership, crashed, (recovery, partition), by, trouble);
        }
        let ranges: Vec<TabletRange> = taken.iter().map(|it| it.range).collect();
        let not_yours = leadership.cluster().not_of(by, &ranges);
        if !ranges.is_empty() && not_yours == ranges {
            return Err(Status::BadRange.into());
        }
        drop_orphans_later(leadership, by, leadership.cluster().orphans(&ranges));
        let options = leadership.cluster().options_of(&ranges);
        return Ok(to_body(&Owned { since: leadership.owned_since(), not_yours, options }));
    }
}

/// Returns the time from which on no master serves reads of the crashed master's tablets, if parts
/// are assigned.
fn safe_from(leadership: &Leadership, crashed: MasterId) -> Time {
    let attempts = leadership.attempts.borrow();
    let fenced = attempts.get(&crashed).and_then(|attempt| attempt.fenced);
    // An earlier leader assigned its parts after the fencing.
    fenced.unwrap_or(leadership.loaded()) + TAKE_OVER
}

/// Returns the part that a master has in a recovery.
fn assigned(
    leadership: &Leadership,
    crashed: MasterId,
    (recovery, partition): (RecoveryId, usize),
    by: MasterId,
) -> Option<Part> {
    let cluster = leadership.cluster();
    let former = cluster.former(crashed)?;
    let part = former.parts.get(partition).filter(|part| part.by == by)?;
    (!former.freeing && former.recovery == recovery && recovery > RecoveryId(0))
        .then(|| part.clone())
}

/// Notes that no further report of a partition can come.
fn on_part_over(
    leadership: &Leadership,
    crashed: MasterId,
    part: (RecoveryId, usize),
    by: MasterId,
    trouble: Option<String>,
) {
    if let Some(attempt) = leadership.attempts.borrow_mut().get_mut(&crashed) {
        if trouble.is_none() {
            attempt.on_part_rebuilt();
        }
        attempt.on_part_over(part, by, trouble);
    }
    leadership.changed.raise();
}

/// Writes new owners, many tables at a time, because each write waits for the metastore.
async fn write(
    leadership: &Leadership,
    crashed: MasterId,
    part: &Part,
    taken: &[Taken],
) -> Result<(), Refusal> {
    let changed = leadership.cluster().recovered(crashed, part, taken);
    leadership.put_tables(changed).await
}

/// Tells a shard again that some of its tablets belong to tables that no longer exist. The answer
/// to its report says so already. In case the shard missed that, this message follows some time
/// later, unless the leader ends before.
fn drop_orphans_later(leadership: &Rc<Leadership>, by: MasterId, tablets: Vec<TabletRange>) {
    if tablets.is_empty() {
        return;
    }
    let busy = Rc::clone(leadership);
    leadership.spawn(async move {
        loop {
            busy.sleep(busy.shared.options.call_timeout).await;
            let Some(place) = busy.cluster().place(by) else { return };
            let (tablets, map_version) = (tablets.clone(), busy.cluster().map_version());
            let message = Tablets { master: by, tablets, map_version, options: Vec::new() };
            if busy.call(place.address, Opcode::DropTablets, &message).await.is_ok() {
                return;
            }
        }
    });
}
