//! What masters say of what they were told to rebuild.
//!
//! A report counts if it is of the recovery, the partition and the master that are written; or if what
//! it says is written already, for its answer may have been lost. The answer says which of the
//! tablets are not the master's: of tables that were dropped, or others' by now because no more than
//! a part was written before somebody else was asked. A master that has none of them is refused,
//! and throws away everything.

use super::taking_back::is_no_heir;
use crate::coordinator::{Outcome, Refusal};
use crate::limits::TAKE_OVER;
use crate::reign::Reign;
use crate::stored::Part;
use std::rc::Rc;
use thunderhead_rpc::Opcode;
use thunderhead_runtime::Time;
use thunderhead_wire::control::{Empty, Owned, Recovered, Tablets, Taken, to_body};
use thunderhead_wire::{MasterId, Status, TabletRange};

/// A shard has rebuilt tablets, or could not.
pub(crate) async fn recovered(reign: &Rc<Reign>, message: Recovered) -> Outcome {
    let Recovered { crashed, recovery, partition, by, outcome, keeps } = message;
    let partition = partition as usize;
    loop {
        if outcome.is_ok() {
            reign.shared.tasks().sleep_until(safe_from(reign, crashed)).await;
        }
        let _pen = reign.pen().await?;
        if reign.cluster().place(by).is_none() {
            return Err(Status::Deposed.into());
        }
        let part = assigned(reign, crashed, (recovery, partition), by);
        let taken = match (&outcome, &part) {
            (Err(trouble), Some(_)) => {
                if !keeps {
                    is_no_heir(reign, crashed, by).await?;
                }
                tracing::info!(%crashed, recovery, partition, %by, trouble, "a part cannot be rebuilt");
                is_over(reign, crashed, (recovery, partition), by, Some(trouble.clone()));
                return Ok(to_body(&Empty {}));
            }
            (Err(_), None) => return Ok(to_body(&Empty {})),
            (Ok(taken), _) => taken,
        };
        if let Some(part) = part {
            if reign.now() < safe_from(reign, crashed) {
                // It was given out anew while this one waited.
                continue;
            }
            write(reign, crashed, &part, taken).await?;
            tracing::info!(%crashed, recovery, partition, %by, "a part is rebuilt");
            let is_left = reign.cluster().is_left(crashed, &part);
            let trouble = is_left.then(|| format!("{by} has rebuilt only a part of its tablets"));
            is_over(reign, crashed, (recovery, partition), by, trouble);
        }
        let ranges: Vec<TabletRange> = taken.iter().map(|it| it.range).collect();
        let not_yours = reign.cluster().not_of(by, &ranges);
        if !ranges.is_empty() && not_yours == ranges {
            return Err(Status::BadRange.into());
        }
        has_orphans(reign, by, reign.cluster().orphans(&ranges));
        return Ok(to_body(&Owned { since: reign.owned_since(), not_yours }));
    }
}

/// From when on nobody serves reads of the master that is gone, if anything is given out.
fn safe_from(reign: &Reign, crashed: MasterId) -> Time {
    let attempts = reign.attempts.borrow();
    let fenced = attempts.get(&crashed).and_then(|attempt| attempt.fenced);
    // What a leader before gave out it gave out after the fencing.
    fenced.unwrap_or(reign.loaded()) + TAKE_OVER
}

/// What was given to a master in a recovery.
fn assigned(
    reign: &Reign,
    crashed: MasterId,
    (recovery, partition): (u64, usize),
    by: MasterId,
) -> Option<Part> {
    let cluster = reign.cluster();
    let former = cluster.former(crashed)?;
    let part = former.parts.get(partition).filter(|part| part.by == by)?;
    (!former.freeing && former.recovery == recovery && recovery > 0).then(|| part.clone())
}

/// Nothing more comes of a partition.
fn is_over(
    reign: &Reign,
    crashed: MasterId,
    part: (u64, usize),
    by: MasterId,
    trouble: Option<String>,
) {
    if let Some(attempt) = reign.attempts.borrow_mut().get_mut(&crashed) {
        if trouble.is_none() {
            attempt.succeeds();
        }
        attempt.part_is_over(part, by, trouble);
    }
    reign.changed.raise();
}

/// Writes new owners, many tables at a time: each write waits for the metastore.
async fn write(
    reign: &Reign,
    crashed: MasterId,
    part: &Part,
    taken: &[Taken],
) -> Result<(), Refusal> {
    let changed = reign.cluster().recovered(crashed, part, taken);
    reign.put_tables(changed).await
}

/// A shard has tablets of tables that are not there any more. It was told so; if it does not heed
/// that it is told to drop them some time later, unless the leader goes before.
fn has_orphans(reign: &Rc<Reign>, by: MasterId, tablets: Vec<TabletRange>) {
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
