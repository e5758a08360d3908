//! Migrations: moves of tablets from one master to another while both are up.
//!
//! ```text
//!  intent: written ──► the source gives ──► owner: written ──► the target serves
//!        │                    │              ──► the source drops ──► done
//!        │                    │              (both are told again until they did, or crashed)
//!        └── a master crashed, or the table was dropped; or the source could not
//!            ──► the source serves on ──► the target drops its copy ──► done
//! ```
//!
//! The tablet's record has the target, a number that is never used again, and whether the tablet
//! belongs to the new master already. A new leader needs no more: it sends the same requests again,
//! and the masters give the same answers.
//!
//! **Only the recorded owner counts.** It is written under the update lock, if both masters are up
//! at that time: the tablets of a crashed source are rebuilt from its log, as its recovery was
//! told.
//!
//! **A migration is cancelled only if it can no longer succeed.** The coordinator
//! cancels it only for recorded and lasting reasons: a master crashed, or the table was dropped. So
//! a delayed message of this kind never meets a source whose tablet belongs to another master by
//! then.

use crate::leadership::{Leadership, RetryPauses, Task};
use crate::refusal::Outcome;
use crate::stored::{Migrating, TableRecord, TabletRecord};
use crate::tables::wait_until_settled;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_wire::control::{
    MigrateOut, MigrateTablet, MigratedOut, MigratedTablets, Taken, of_body, to_body,
};
use thunderhead_wire::{MasterId, Next, Status, TableId};

/// How often the source is asked about its progress.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// The subject of the remark that says why a tablet did not move.
const REMARK: &str = "migration";

fn of(table: &TableRecord, number: u64) -> Option<(&TabletRecord, Migrating)> {
    let mut moving = table.tablets.iter().filter_map(|it| Some((it, it.migrating?)));
    moving.find(|(_, migrating)| migrating.number == number)
}

/// Moves a tablet. The answer comes when it has moved, but after a while in any case.
pub(crate) async fn migrate(leadership: &Rc<Leadership>, message: MigrateTablet) -> Outcome {
    let lock = leadership.try_lock_updates().await?;
    let named = leadership.cluster().named(&message.table).cloned();
    let mut table = named.ok_or(Status::NoSuchTable)?;
    let id = table.id;
    if leadership.cluster().group_of(id).is_some() {
        return Err(Status::Grouped.into());
    }
    let tablets = table.tablets.iter();
    let at = tablets.clone().position(|it| it.first == message.first).ok_or(Status::BadRange)?;
    let tablet = table.tablets.get_mut(at).ok_or(Status::BadRange)?;
    let number = match tablet.migrating {
        Some(under_way) if under_way.to == message.to => under_way.number,
        // One migration of a tablet at a time.
        Some(_) => return Err(Status::InProgress.into()),
        None if tablet.master == message.to => {
            let cluster = leadership.cluster();
            let table = cluster.table(id).ok_or(Status::NoSuchTable)?;
            return Ok(to_body(&cluster.table_info(table)));
        }
        None => {
            if leadership.cluster().place(message.to).is_none() {
                return Err(Status::NoSuchServer.into());
            }
            if !tablet.taken || leadership.cluster().place(tablet.master).is_none() {
                return Err(Status::InProgress.into());
            }
            let number = leadership.take_ids(|ids| ids.migration += 1).await?.migration;
            let from = tablet.master;
            tablet.migrating = Some(Migrating { number, from, to: message.to, moved: false });
            if crate::stored::to_value(&table).len()
                > thunderhead_metastore::limits::VALUE_BYTES_MAX
            {
                return Err(Status::NoSpace.into());
            }
            leadership.shared.unremark(REMARK);
            leadership.put_table(table).await?;
            leadership.ensure_running(Task::Migrate(id, number));
            number
        }
    };
    drop(lock);
    let is_over = |table: Option<&TableRecord>| table.is_none_or(|it| of(it, number).is_none());
    wait_until_settled(leadership, id, is_over).await;
    let cluster = leadership.cluster();
    let table = cluster.table(id).filter(|it| !it.dropped).ok_or(Status::NoSuchTable)?;
    if !is_over(Some(table)) {
        return Err(Status::InProgress.into());
    }
    let tablet = table.tablets.iter().find(|it| it.first == message.first);
    if tablet.is_none_or(|it| it.master != message.to) {
        return Err(Status::NotMigrated.into());
    }
    Ok(to_body(&cluster.table_info(table)))
}

/// The next step of a migration.
enum Step {
    /// The migration is over.
    Done,
    /// Ask the source to give the tablet, or to keep it.
    Ask(SocketAddr, MigrateOut),
    /// Tell a master to serve the tablet, or to drop its copy.
    Tell(SocketAddr, Opcode, MigratedTablets),
    /// Write that the migration is over.
    Forget,
}

/// This leader's knowledge of a migration. A new leader asks again.
#[derive(Default)]
struct Progress {
    /// The source keeps the tablet.
    kept: bool,
    /// The target serves the tablet, or has dropped its copy.
    told_target: bool,
    /// The source has dropped the tablet.
    told_source: bool,
}

/// Task: brings a migration to its end.
pub(crate) async fn finish(leadership: &Rc<Leadership>, table: TableId, number: u64) {
    let mut progress = Progress::default();
    let mut pauses = RetryPauses::default();
    loop {
        let done = match next_step(leadership, table, number, &progress) {
            Step::Done => return,
            Step::Ask(address, message) => match ask(leadership, address, &message).await {
                SourceAnswer::Given(taken) => note_moved(leadership, table, number, taken).await,
                SourceAnswer::Kept(why) => {
                    let (range, to) = (message.range, message.to);
                    if !message.give_up {
                        let remark = format!("{range} did not move to {to}: {why}");
                        leadership.shared.remark_event(REMARK, &remark);
                    }
                    progress.kept = true;
                    true
                }
                SourceAnswer::Wait => {
                    leadership.sleep(ASK_AGAIN).await;
                    true
                }
                SourceAnswer::Nothing => false,
            },
            Step::Tell(address, opcode, message) => {
                let answer = leadership.call(address, opcode, &message).await;
                if answer.is_ok() {
                    let is_target = opcode == Opcode::TakeTablets
                        || leadership.cluster().table(table).is_none_or(|it| {
                            of(it, number).is_none_or(|(_, it)| it.to == message.master)
                        });
                    let told = if is_target {
                        &mut progress.told_target
                    } else {
                        &mut progress.told_source
                    };
                    *told = true;
                }
                answer.is_ok()
            }
            Step::Forget => forget(leadership, table, number).await,
        };
        if done {
            pauses = RetryPauses::default();
        } else {
            leadership.sleep(pauses.next()).await;
        }
    }
}

fn next_step(leadership: &Leadership, id: TableId, number: u64, progress: &Progress) -> Step {
    let cluster = leadership.cluster();
    let Some(table) = cluster.table(id) else { return Step::Done };
    let Some((tablet, migrating)) = of(table, number) else { return Step::Done };
    let Migrating { from, to, moved, .. } = migrating;
    let address = |master: MasterId| cluster.place(master).map(|place| place.address);
    let (source, target) = (address(from), address(to));
    let range = tablet.range(id);
    let tell = |address, opcode, master| {
        let (tablets, since) = (vec![range], leadership.owned_since());
        let options = cluster.options_of(&tablets);
        let message = MigratedTablets { migration: number, master, tablets, since, options };
        Step::Tell(address, opcode, message)
    };
    if moved {
        return match (target, source) {
            // If the target has crashed, its log has the tablet.
            (Some(target), _) if !progress.told_target => tell(target, Opcode::TakeTablets, to),
            (_, Some(source)) if !progress.told_source => tell(source, Opcode::DropTablets, from),
            _ => Step::Forget,
        };
    }
    let give_up = table.dropped || target.is_none();
    match (source, target) {
        (Some(source), _) if !progress.kept => {
            // The address of a crashed target does not matter.
            let address = target.unwrap_or(source);
            let message =
                MigrateOut { migration: number, master: from, range, to, address, give_up };
            Step::Ask(source, message)
        }
        (_, Some(target)) if !progress.told_target => tell(target, Opcode::DropTablets, to),
        _ => Step::Forget,
    }
}

enum SourceAnswer {
    Given(Taken),
    Kept(String),
    /// The migration is in progress.
    Wait,
    /// There is no answer.
    Nothing,
}

async fn ask(
    leadership: &Rc<Leadership>,
    address: SocketAddr,
    message: &MigrateOut,
) -> SourceAnswer {
    match leadership.call(address, Opcode::MigrateOut, message).await {
        Ok(body) => match of_body::<MigratedOut>(&body) {
            Some(MigratedOut { outcome: Ok(taken) }) if taken.range == message.range => {
                SourceAnswer::Given(taken)
            }
            Some(MigratedOut { outcome: Err(why) }) => SourceAnswer::Kept(why),
            _ => SourceAnswer::Nothing,
        },
        Err(CallError::Refused { status, .. }) if status.next() == Next::Wait => SourceAnswer::Wait,
        // If that master has crashed, its verdict will be recorded soon.
        Err(_) => SourceAnswer::Nothing,
    }
}

/// Writes that the tablet belongs to the target, if both masters are up. Returns whether the write
/// succeeded.
async fn note_moved(leadership: &Rc<Leadership>, id: TableId, number: u64, taken: Taken) -> bool {
    let _lock = leadership.lock_updates().await;
    let Some(mut table) = leadership.cluster().table(id).cloned() else { return true };
    if table.dropped {
        return true;
    }
    let moving = |it: &&mut TabletRecord| it.migrating.is_some_and(|it| it.number == number);
    let Some(tablet) = table.tablets.iter_mut().find(moving) else { return true };
    let Some(migrating) = &mut tablet.migrating else { return true };
    let is_there = |master| leadership.cluster().place(master).is_some();
    let stays = migrating.moved
        || tablet.master != migrating.from
        || !is_there(migrating.from)
        || !is_there(migrating.to);
    if stays {
        return true;
    }
    migrating.moved = true;
    (tablet.master, tablet.since) = (migrating.to, taken.since);
    leadership.put_table(table).await.is_ok()
}

/// Writes that a migration is over. Returns whether the write succeeded.
async fn forget(leadership: &Rc<Leadership>, id: TableId, number: u64) -> bool {
    let _lock = leadership.lock_updates().await;
    let Some(mut table) = leadership.cluster().table(id).cloned() else { return true };
    for tablet in &mut table.tablets {
        tablet.migrating = tablet.migrating.filter(|it| it.number != number);
    }
    leadership.put_table(table).await.is_ok()
}
