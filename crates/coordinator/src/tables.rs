//! Tables and their tablets.
//!
//! A new table is written with tablets that no master has *taken* yet. Each master is told to take
//! its own, and its confirmation is written too. The map shows a tablet's place only after that. So
//! a tablet that was not taken has never been written to, and if its master crashes another one
//! gets it, empty, without a recovery. (A master that has acknowledged `take tablets` can be
//! recovered: its log has an open head with all its replicas.)
//!
//! A dropped table is gone for all clients at once, and its name is free. Its record is deleted
//! when all masters have dropped their tablets or have crashed.

use crate::cluster::{GROUP_TABLES_MAX, Home};
use crate::leadership::{Leadership, RetryPauses, Task};
use crate::limits::{NAME_BYTES_MAX, TABLES_MAX};
use crate::placement::rooms::{self, Room};
use crate::refusal::{Outcome, Refusal};
use crate::stored::{TableRecord, TabletRecord};
use crate::waiting::{all, within};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_wire::control::{
    CreateTable, DropTable, Empty, MapRequest, SplitTablet, Tablets, to_body,
};
use thunderhead_wire::{Format, MasterId, SegmentId, Status, TableId, TabletRange};

/// Answers a request for the map.
pub(crate) fn map(leadership: &Leadership, message: &MapRequest) -> Outcome {
    let map = leadership.cluster().map(message);
    map.map(|map| to_body(&map)).ok_or_else(|| Status::NoSuchTable.into())
}

fn is_good(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

/// Creates a table. The answer comes when its masters have their tablets. If that takes long, the
/// answer is *in progress*: the table exists, and clients look for it in the map until all of it is
/// served.
pub(crate) async fn create(leadership: &Rc<Leadership>, message: CreateTable) -> Outcome {
    if !is_good(&message.name) {
        return Err(Status::BadName.into());
    }
    if message.server_span == 0 {
        return Err(Status::Malformed.into());
    }
    message.options.check()?;
    let rooms = match message.beside {
        None => rooms::for_tablets(leadership, message.server_span as usize).await,
        Some(_) => BTreeMap::new(),
    };
    let lock = leadership.try_lock_updates().await?;
    if leadership.cluster().named(&message.name).is_some() {
        return Err(Status::TableExists.into());
    }
    // An older program would drop the options, or ignore them.
    let format = leadership.cluster().record.format;
    if !message.options.is_default() && format < Format::TABLE_OPTIONS {
        return Err(Status::OldFormat.into());
    }
    if leadership.cluster().tables_count() >= TABLES_MAX {
        return Err(Status::NoSpace.into());
    }
    if leadership.cluster().by_load().is_empty() {
        return Err(Status::NoServers.into());
    }
    let masters = match message.beside {
        None => leadership.cluster().with_room(&rooms),
        Some(table) => vec![master_beside(leadership, table)?],
    };
    if masters.is_empty() {
        return Err(Status::NoSpace.into());
    }
    let span = if message.beside.is_some() { 1 } else { message.server_span };
    let tablets = leadership.cluster().spread(span, masters);
    if !reservations_fit(leadership, &tablets, message.options.reserved_bytes, &rooms) {
        return Err(Status::BadOptions.into());
    }
    let id = TableId(leadership.take_ids(|ids| ids.table += 1).await?.table);
    let CreateTable { name, beside, options, .. } = message;
    let record = TableRecord { id, name, tablets, dropped: false, beside, options };
    leadership.put_table(record).await?;
    leadership.ensure_running(Task::Settle(id));
    drop(lock);
    wait_until_settled(leadership, id, |table| {
        table.is_none_or(|it| it.dropped || it.tablets.iter().all(|tablet| tablet.taken))
    })
    .await;
    let cluster = leadership.cluster();
    let table = cluster.table(id).filter(|it| !it.dropped).ok_or(Status::NoSuchTable)?;
    if table.tablets.iter().any(|tablet| !tablet.taken) {
        return Err(Status::InProgress.into());
    }
    Ok(to_body(&cluster.table_info(table)))
}

/// Whether the memory of each master that has reported it holds the reservations of all its
/// tablets, and those of a new table. Later a tablet may go to a master that cannot hold its
/// reservation: that master refuses writes sooner.
fn reservations_fit(
    leadership: &Leadership,
    tablets: &[TabletRecord],
    reserved_bytes: u64,
    rooms: &BTreeMap<MasterId, Room>,
) -> bool {
    let share = |tablet: &TabletRecord, bytes: u64| {
        let hashes = u128::from(tablet.last.0) - u128::from(tablet.first.0) + 1;
        (u128::from(bytes) * hashes) >> 64
    };
    let cluster = leadership.cluster();
    reserved_bytes == 0
        || rooms.iter().all(|(master, room)| {
            let is_here = |it: &&TabletRecord| it.master == *master;
            let new = tablets.iter().filter(is_here).map(|it| share(it, reserved_bytes));
            let old = cluster.tables().filter(|table| !table.dropped).flat_map(|table| {
                let bytes = table.options.reserved_bytes;
                table.tablets.iter().filter(is_here).map(move |it| share(it, bytes))
            });
            new.chain(old).sum::<u128>() <= u128::from(room.whole_bytes)
        })
}

/// Returns the master for a new table that lies beside another table. The other table must have
/// been taken: otherwise it could still go to another master.
fn master_beside(leadership: &Leadership, table: TableId) -> Result<MasterId, Refusal> {
    let cluster = leadership.cluster();
    if cluster.record.format < Format::TABLES_BESIDE {
        return Err(Status::OldFormat.into());
    }
    let record = cluster.table(table).filter(|it| !it.dropped).ok_or(Status::NoSuchTable)?;
    let master = cluster.beside(record).ok_or(Status::Grouped)?;
    if cluster.tables_of_group(table).count() >= GROUP_TABLES_MAX {
        return Err(Status::NoSpace.into());
    }
    match cluster.home(table) {
        Home::At(home) if home == master => Ok(master),
        _ => Err(Status::Busy.into()),
    }
}

/// Drops a table. The answer comes when its masters have dropped their tablets, but after a while
/// in any case. A request with the id of another table is refused, because the name had passed to
/// the present table before the request arrived.
pub(crate) async fn drop_table(leadership: &Rc<Leadership>, message: DropTable) -> Outcome {
    let lock = leadership.try_lock_updates().await?;
    let named = leadership.cluster().named(&message.name).cloned();
    let is_meant = |it: &TableRecord| message.id.is_none_or(|id| id == it.id);
    let mut record = named.filter(is_meant).ok_or(Status::NoSuchTable)?;
    let id = record.id;
    record.dropped = true;
    leadership.put_table(record).await?;
    leadership.ensure_running(Task::Settle(id));
    drop(lock);
    wait_until_settled(leadership, id, |table| table.is_none()).await;
    Ok(to_body(&Empty {}))
}

/// Waits for a while until a table meets a condition.
pub(crate) async fn wait_until_settled(
    leadership: &Rc<Leadership>,
    table: TableId,
    is_settled: impl Fn(Option<&TableRecord>) -> bool,
) {
    let settled = async {
        loop {
            let seen = leadership.changed.seen();
            if is_settled(leadership.cluster().table(table)) {
                return;
            }
            leadership.changed.after(seen).await;
        }
    };
    let _ = within(leadership.sleep(leadership.shared.options.patience), settled).await;
}

/// Splits a tablet into two with the same master.
pub(crate) async fn split(leadership: &Rc<Leadership>, message: SplitTablet) -> Outcome {
    let _lock = leadership.try_lock_updates().await?;
    let named = leadership.cluster().named(&message.table).cloned();
    let old = named.ok_or(Status::NoSuchTable)?;
    if old.tablets.iter().any(|tablet| !tablet.taken) {
        // A master confirms exactly the tablets that it was told to take.
        return Err(Status::InProgress.into());
    }
    let is_there =
        |it: &&crate::stored::TabletRecord| it.first <= message.at && message.at <= it.last;
    if old.tablets.iter().find(is_there).is_some_and(|it| it.migrating.is_some()) {
        return Err(Status::InProgress.into());
    }
    if leadership.cluster().group_of(old.id).is_some() {
        return Err(Status::Grouped.into());
    }
    let new = crate::cluster::split(&old, message.at).ok_or(Status::BadRange)?;
    let id = new.id;
    if new != old {
        leadership.put_table(new).await?;
    }
    let cluster = leadership.cluster();
    let table = cluster.table(id).ok_or(Status::NoSuchTable)?;
    Ok(to_body(&cluster.table_info(table)))
}

/// The next step for a table.
enum Step {
    /// No work remains.
    Settled,
    /// Wait for a change.
    Wait,
    /// Give tablets of crashed masters to other masters.
    PlaceAnew,
    /// Tell masters to take or to drop tablets.
    Tell(Opcode, BTreeMap<MasterId, (SocketAddr, Vec<TabletRange>)>),
    /// All tablets are dropped: delete the table.
    Delete,
}

/// Task: has a table's tablets taken by their masters, or dropped with the table.
pub(crate) async fn settle(leadership: &Rc<Leadership>, table: TableId) {
    let mut dropped = BTreeSet::new();
    let mut answers = Answers::default();
    let mut pauses = RetryPauses::default();
    loop {
        let seen = leadership.changed.seen();
        let done = match next_step(leadership, table, &dropped, &answers.full) {
            Step::Settled => return,
            Step::Wait => {
                leadership.changed.after(seen).await;
                true
            }
            Step::PlaceAnew => {
                let done = place_anew(leadership, table, &answers.full).await;
                if !done {
                    // No other master has room either, so these are asked again: clients may have
                    // deleted objects.
                    answers.full.clear();
                }
                done
            }
            Step::Tell(opcode, masters) => {
                let told = tell(leadership, opcode, &masters, &mut answers).await;
                let done = told.len() == masters.len();
                if opcode == Opcode::TakeTablets {
                    note_taken(leadership, table, &told).await && done
                } else {
                    dropped.extend(told.into_keys());
                    done
                }
            }
            Step::Delete => {
                let _lock = leadership.lock_updates().await;
                leadership.remove_table(table).await.is_ok()
            }
        };
        if done {
            pauses = RetryPauses::default();
        } else {
            leadership.sleep(pauses.next()).await;
        }
    }
}

/// The refusals of masters that were told to take tablets.
#[derive(Default)]
struct Answers {
    /// Masters that refused tablets because they have no room, and certainly have none of them.
    full: BTreeSet<MasterId>,
    /// Masters whose answer was lost. They may have the tablets, or take them when a delayed
    /// message arrives, so these tablets stay there.
    unsure: BTreeSet<MasterId>,
}

impl Answers {
    fn hear(&mut self, master: MasterId, error: &CallError) {
        match error {
            CallError::Refused { status: Status::NoSpace, .. }
                if !self.unsure.contains(&master) =>
            {
                self.full.insert(master);
            }
            CallError::Broken | CallError::Late => {
                self.unsure.insert(master);
            }
            _ => {}
        }
    }
}

fn next_step(
    leadership: &Leadership,
    id: TableId,
    dropped: &BTreeSet<MasterId>,
    full: &BTreeSet<MasterId>,
) -> Step {
    let cluster = leadership.cluster();
    let Some(table) = cluster.table(id) else { return Step::Settled };
    let mut masters: BTreeMap<_, (SocketAddr, Vec<_>)> = BTreeMap::new();
    // Migrations end first, or are cancelled.
    let moves = table.tablets.iter().any(|tablet| tablet.migrating.is_some());
    let mut is_moving = false;
    for tablet in &table.tablets {
        let place = cluster.place(tablet.master);
        if !table.dropped && !tablet.taken && tablet.migrating.is_some() {
            // The tablet's former master must still drop it. If the tablet were placed there again
            // before that, the new copy would be dropped.
            is_moving = true;
            continue;
        }
        let told = match (table.dropped, place) {
            (false, _) if tablet.taken => continue,
            (false, None) if cluster.by_load().is_empty() => return Step::Wait,
            (false, None) => return Step::PlaceAnew,
            (false, Some(_)) if full.contains(&tablet.master) => return Step::PlaceAnew,
            (true, Some(_)) if dropped.contains(&tablet.master) => continue,
            (_, Some(place)) => place,
            (true, None) => {
                // A recovery master may be rebuilding it. When it reports, it is told that the
                // table no longer exists, even if the table's record is deleted by then.
                continue;
            }
        };
        let (_, ranges) = masters.entry(tablet.master).or_insert((told.address, Vec::new()));
        ranges.push(tablet.range(id));
    }
    match (masters.is_empty(), table.dropped) {
        (false, false) => Step::Tell(Opcode::TakeTablets, masters),
        (false, true) => Step::Tell(Opcode::DropTablets, masters),
        (true, false) if is_moving => Step::Wait,
        (true, false) => Step::Settled,
        (true, true) if moves => Step::Wait,
        (true, true) => Step::Delete,
    }
}

/// Tells all of some masters. Returns the masters that have done it.
async fn tell(
    leadership: &Rc<Leadership>,
    opcode: Opcode,
    masters: &BTreeMap<MasterId, (SocketAddr, Vec<TabletRange>)>,
    answers: &mut Answers,
) -> BTreeMap<MasterId, Vec<TabletRange>> {
    let calls = masters.iter().map(|(master, (to, tablets))| {
        let map_version = leadership.cluster().map_version();
        let options = leadership.cluster().options_of(tablets);
        let tablets = tablets.clone();
        let message = Tablets { master: *master, tablets, map_version, options };
        async move {
            let answer = leadership.call(*to, opcode, &message).await;
            (message, answer)
        }
    });
    let mut told = BTreeMap::new();
    for (Tablets { master, tablets, .. }, answer) in all(calls.collect()).await {
        match answer {
            Ok(_) => _ = told.insert(master, tablets),
            Err(error) => answers.hear(master, &error),
        }
    }
    told
}

/// Writes that masters have taken tablets. Returns whether the write succeeded.
async fn note_taken(
    leadership: &Rc<Leadership>,
    id: TableId,
    told: &BTreeMap<MasterId, Vec<TabletRange>>,
) -> bool {
    if told.is_empty() {
        return true;
    }
    let _lock = leadership.lock_updates().await;
    let Some(mut table) = leadership.cluster().table(id).cloned() else { return true };
    for tablet in &mut table.tablets {
        let range = tablet.range(id);
        let has_it = told.get(&tablet.master).is_some_and(|it| it.contains(&range));
        // A master that has crashed since no longer has it.
        if has_it && leadership.cluster().place(tablet.master).is_some() {
            tablet.taken = true;
        }
    }
    leadership.put_table(table).await.is_ok()
}

/// Keeps only the master that a table of a group can go to. Returns whether that master is known.
/// The first table of a group can go anywhere if no other table was taken. All others wait for it.
fn keep_together(leadership: &Leadership, id: TableId, masters: &mut Vec<MasterId>) -> bool {
    let cluster = leadership.cluster();
    let Some(group) = cluster.group_of(id) else { return true };
    match cluster.home(group) {
        Home::At(home) => {
            masters.retain(|master| *master == home);
            true
        }
        Home::Anywhere => cluster.tables_of_group(group).next().is_some_and(|it| it.id == id),
        Home::Later => false,
    }
}

/// Gives tablets that were not taken, and whose masters have crashed or are full, to other masters.
/// Returns whether all of them have a place.
async fn place_anew(leadership: &Rc<Leadership>, id: TableId, full: &BTreeSet<MasterId>) -> bool {
    let rooms = rooms::for_tablets(leadership, full.len() + 1).await;
    let _lock = leadership.lock_updates().await;
    let Some(mut table) = leadership.cluster().table(id).cloned() else { return true };
    let mut masters = leadership.cluster().with_room(&rooms);
    masters.retain(|master| !full.contains(master));
    if !keep_together(leadership, id, &mut masters) {
        return false;
    }
    let mut masters = masters.iter().cycle();
    for tablet in &mut table.tablets {
        let has_place = leadership.cluster().place(tablet.master).is_some();
        let is_lost = !has_place || full.contains(&tablet.master);
        if !tablet.taken && tablet.migrating.is_none() && is_lost {
            let Some(master) = masters.next() else { return false };
            (tablet.master, tablet.since) = (*master, SegmentId::NONE);
        }
    }
    leadership.put_table(table).await.is_ok()
}
