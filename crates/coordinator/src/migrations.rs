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
//! **Only the recorded owner counts.** It is written under the pen, if both masters are up at that
//! time: the tablets of a crashed source are rebuilt from its log, as its recovery was told.
//!
//! **A migration is cancelled only if it can no longer succeed.** The coordinator
//! cancels it only for recorded and lasting reasons: a master crashed, or the table was dropped. So
//! a delayed message of this kind never meets a source whose tablet belongs to another master by
//! then.

use crate::coordinator::Outcome;
use crate::duties::{Duty, employ};
use crate::reign::{Backoff, Reign};
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
pub(crate) async fn migrate(reign: &Rc<Reign>, message: MigrateTablet) -> Outcome {
    let pen = reign.pen().await?;
    let named = reign.cluster().named(&message.table).cloned();
    let mut table = named.ok_or(Status::NoSuchTable)?;
    let id = table.id;
    let tablets = table.tablets.iter();
    let at = tablets.clone().position(|it| it.first == message.first).ok_or(Status::BadRange)?;
    let tablet = table.tablets.get_mut(at).ok_or(Status::BadRange)?;
    let number = match tablet.migrating {
        Some(under_way) if under_way.to == message.to => under_way.number,
        // One migration of a tablet at a time.
        Some(_) => return Err(Status::InProgress.into()),
        None if tablet.master == message.to => {
            let cluster = reign.cluster();
            let table = cluster.table(id).ok_or(Status::NoSuchTable)?;
            return Ok(to_body(&cluster.table_info(table)));
        }
        None => {
            if reign.cluster().place(message.to).is_none() {
                return Err(Status::NoSuchServer.into());
            }
            if !tablet.taken || reign.cluster().place(tablet.master).is_none() {
                return Err(Status::InProgress.into());
            }
            let number = reign.take_ids(|ids| ids.migration += 1).await?.migration;
            let from = tablet.master;
            tablet.migrating = Some(Migrating { number, from, to: message.to, moved: false });
            if crate::stored::to_value(&table).len()
                > thunderhead_metastore::limits::VALUE_BYTES_MAX
            {
                return Err(Status::NoSpace.into());
            }
            reign.shared.unremark(REMARK);
            reign.put_table(table).await?;
            employ(reign, Duty::Migrate(id, number));
            number
        }
    };
    drop(pen);
    let is_over = |table: Option<&TableRecord>| table.is_none_or(|it| of(it, number).is_none());
    wait_until_settled(reign, id, is_over).await;
    let cluster = reign.cluster();
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
struct Known {
    /// The source keeps the tablet.
    kept: bool,
    /// The target serves the tablet, or has dropped its copy.
    told_target: bool,
    /// The source has dropped the tablet.
    told_source: bool,
}

/// Duty: brings a migration to its end.
pub(crate) async fn see_to(reign: &Rc<Reign>, table: TableId, number: u64) {
    let mut known = Known::default();
    let mut backoff = Backoff::default();
    loop {
        let done = match next_step(reign, table, number, &known) {
            Step::Done => return,
            Step::Ask(address, message) => match ask(reign, address, &message).await {
                Asked::Given(taken) => note_moved(reign, table, number, taken).await,
                Asked::Kept(why) => {
                    let (range, to) = (message.range, message.to);
                    if !message.give_up {
                        let remark = format!("{range} did not move to {to}: {why}");
                        reign.shared.remark_event(REMARK, &remark);
                    }
                    known.kept = true;
                    true
                }
                Asked::Wait => {
                    reign.sleep(ASK_AGAIN).await;
                    true
                }
                Asked::Nothing => false,
            },
            Step::Tell(address, opcode, message) => {
                let answer = reign.call(address, opcode, &message).await;
                if answer.is_ok() {
                    let is_target = opcode == Opcode::TakeTablets
                        || reign.cluster().table(table).is_none_or(|it| {
                            of(it, number).is_none_or(|(_, it)| it.to == message.master)
                        });
                    let told =
                        if is_target { &mut known.told_target } else { &mut known.told_source };
                    *told = true;
                }
                answer.is_ok()
            }
            Step::Forget => forget(reign, table, number).await,
        };
        if done {
            backoff = Backoff::default();
        } else {
            reign.sleep(backoff.next()).await;
        }
    }
}

fn next_step(reign: &Reign, id: TableId, number: u64, known: &Known) -> Step {
    let cluster = reign.cluster();
    let Some(table) = cluster.table(id) else { return Step::Done };
    let Some((tablet, migrating)) = of(table, number) else { return Step::Done };
    let Migrating { from, to, moved, .. } = migrating;
    let address = |master: MasterId| cluster.place(master).map(|place| place.address);
    let (source, target) = (address(from), address(to));
    let range = tablet.range(id);
    let tell = |address, opcode, master| {
        let (tablets, since) = (vec![range], reign.owned_since());
        let message = MigratedTablets { migration: number, master, tablets, since };
        Step::Tell(address, opcode, message)
    };
    if moved {
        return match (target, source) {
            // If the target has crashed, its log has the tablet.
            (Some(target), _) if !known.told_target => tell(target, Opcode::TakeTablets, to),
            (_, Some(source)) if !known.told_source => tell(source, Opcode::DropTablets, from),
            _ => Step::Forget,
        };
    }
    let give_up = table.dropped || target.is_none();
    match (source, target) {
        (Some(source), _) if !known.kept => {
            // The address of a crashed target does not matter.
            let address = target.unwrap_or(source);
            let message =
                MigrateOut { migration: number, master: from, range, to, address, give_up };
            Step::Ask(source, message)
        }
        (_, Some(target)) if !known.told_target => tell(target, Opcode::DropTablets, to),
        _ => Step::Forget,
    }
}

enum Asked {
    Given(Taken),
    Kept(String),
    /// The migration is in progress.
    Wait,
    /// There is no answer.
    Nothing,
}

async fn ask(reign: &Rc<Reign>, address: SocketAddr, message: &MigrateOut) -> Asked {
    match reign.call(address, Opcode::MigrateOut, message).await {
        Ok(body) => match of_body::<MigratedOut>(&body) {
            Some(MigratedOut { outcome: Ok(taken) }) if taken.range == message.range => {
                Asked::Given(taken)
            }
            Some(MigratedOut { outcome: Err(why) }) => Asked::Kept(why),
            _ => Asked::Nothing,
        },
        Err(CallError::Refused { status, .. }) if status.next() == Next::Wait => Asked::Wait,
        // If that master has crashed, its verdict will be recorded soon.
        Err(_) => Asked::Nothing,
    }
}

/// Writes that the tablet belongs to the target, if both masters are up. Returns whether the write
/// succeeded.
async fn note_moved(reign: &Rc<Reign>, id: TableId, number: u64, taken: Taken) -> bool {
    let _pen = reign.pen_for_long().await;
    let Some(mut table) = reign.cluster().table(id).cloned() else { return true };
    if table.dropped {
        return true;
    }
    let moving = |it: &&mut TabletRecord| it.migrating.is_some_and(|it| it.number == number);
    let Some(tablet) = table.tablets.iter_mut().find(moving) else { return true };
    let Some(migrating) = &mut tablet.migrating else { return true };
    let is_there = |master| reign.cluster().place(master).is_some();
    let stays = migrating.moved
        || tablet.master != migrating.from
        || !is_there(migrating.from)
        || !is_there(migrating.to);
    if stays {
        return true;
    }
    migrating.moved = true;
    (tablet.master, tablet.since) = (migrating.to, taken.since);
    reign.put_table(table).await.is_ok()
}

/// Writes that a migration is over. Returns whether the write succeeded.
async fn forget(reign: &Rc<Reign>, id: TableId, number: u64) -> bool {
    let _pen = reign.pen_for_long().await;
    let Some(mut table) = reign.cluster().table(id).cloned() else { return true };
    for tablet in &mut table.tablets {
        tablet.migrating = tablet.migrating.filter(|it| it.number != number);
    }
    reign.put_table(table).await.is_ok()
}
