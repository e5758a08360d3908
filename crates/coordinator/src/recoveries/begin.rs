//! A round: tablets are divided, backups begin to read, masters to rebuild.
//!
//! What is decided is written first: tablets that are split in the tables' records, who rebuilds what in
//! that of the server that is gone. Then every backup that has a copy is told what to read, then
//! masters what to rebuild. A backup that does not answer is not waited for long where others have what
//! it has: its copies are named last, and it goes on being told, as is one that begins another life, as
//! long as the round lasts. A master that has no time is asked again for a while; then it is another one's turn.
//! One that is still at the same tablets, for it waits for the answer to an earlier report, is waited for
//! longer: what it reported may be written in part, and that part is its own.
//!
//! When a part has come to nothing the others have [`STUCK`](crate::limits::STUCK) to end. Then all that is left is
//! divided anew, under a number that takes the place of what still goes on; each time they have twice as long.

use super::Step;
use super::asking::is_for_good;
use super::attempt::{Attempt, Round, Stage, Told};
use super::order::{Order, order};
use super::partitions::{cuts, expected, loads, pack, target};
use super::survey::Found;
use super::taking_back;
use crate::cluster::{Cluster, shards_of, split};
use crate::limits::{RETRY_MIN, SHARD_BYTES_MAX};
use crate::reign::{Backoff, Reign};
use crate::rooms;
use crate::stored::{Former, Part, ServerRecord, to_value};
use crate::waiting::all;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_metastore::limits::VALUE_BYTES_MAX;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_wire::control::{BeginRecovery, InventoryOf, Recover, Replicas, Taken};
use thunderhead_wire::{Epoch, MasterId, ServerId, Status};

/// Masters wait for so long for backups to be told.
const BACKUPS_PATIENCE: Duration = Duration::from_millis(250);

/// A master is told in vain so often before another one is chosen: some seconds.
const TOLD_MAX: u32 = 8;

/// The same for one that still has to do with these tablets, mostly because it waits for the answer to
/// its report of an earlier round: half a minute.
const IN_PROGRESS_MAX: u32 = 40;

/// What a master is told.
pub(super) struct Message {
    to: SocketAddr,
    recover: Recover,
}

/// Who could rebuild something.
struct Masters<'a> {
    /// The best first.
    all: &'a [MasterId],
    /// The first one has the place of the one that is gone.
    has_successor: bool,
    /// How often they could not do it.
    refused: &'a BTreeMap<MasterId, u32>,
    /// How many parts they are at.
    busy: BTreeMap<MasterId, usize>,
    /// Bytes that they have room for, as far as they said so.
    room: BTreeMap<MasterId, u64>,
}

/// Who rebuilds which part: those who have room, who refused least, who have least to do, the best
/// first. The first part goes to the shard that has the place of the one that is gone, if it is there.
/// If nobody seems to have room somebody is to try, for sizes are estimates.
fn choose(parts: Vec<(u64, Vec<Taken>)>, masters: Masters<'_>) -> (Vec<Part>, bool) {
    let Masters { all, has_successor, refused, mut busy, mut room } = masters;
    let (mut chosen, mut have_room) = (Vec::with_capacity(parts.len()), true);
    for (number, (load, tablets)) in parts.into_iter().enumerate() {
        let by_rank = has_successor && number == 0;
        let lacks_room = |master: &MasterId| room.get(master).is_some_and(|room| *room < load);
        let key = |(rank, master): &(usize, &MasterId)| {
            let has = if by_rank { 0 } else { busy.get(*master).copied().unwrap_or(0) };
            let against = refused.get(*master).copied().unwrap_or(0);
            (against + if lacks_room(master) { 2 } else { 0 }, has, *rank)
        };
        let Some((_, by)) = all.iter().enumerate().min_by_key(key) else { break };
        have_room &= !lacks_room(by);
        *busy.entry(*by).or_default() += 1;
        if let Some(room) = room.get_mut(by) {
            *room = room.saturating_sub(load);
        }
        chosen.push(Part { by: *by, tablets });
    }
    (chosen, have_room)
}

/// Bytes of what masters are to rebuild in other rounds and have not begun: they do not count it yet
/// when they say how much room they have.
fn promised(reign: &Reign) -> BTreeMap<MasterId, u64> {
    let (cluster, attempts) = (reign.cluster(), reign.attempts.borrow());
    let mut promised: BTreeMap<MasterId, u64> = BTreeMap::new();
    for former in cluster.formers() {
        let stage = attempts.get(&former.master).map(|attempt| &attempt.stage);
        let Some(Stage::Rebuilding(round)) = stage else { continue };
        let parts = former.parts.iter().zip(&round.parts).zip(&round.expected);
        for ((part, _), expected) in parts.filter(|((_, told), _)| matches!(told, Told::Due(..))) {
            let bytes: u64 = expected.iter().map(|it| it.bytes).sum();
            *promised.entry(part.by).or_default() += bytes;
        }
    }
    promised
}

/// Writes who is to rebuild what, and begins; says whether that could be done.
pub(super) async fn divide(reign: &Rc<Reign>, crashed: MasterId, found: &Found) -> bool {
    let (masters, successors) = {
        let cluster = reign.cluster();
        (cluster.by_load(), cluster.successors(crashed))
    };
    let rooms = rooms::ask(reign, &masters, &successors).await;
    let pen = reign.pen_for_long().await;
    let has_tablets = |reign: &Reign| {
        let cluster = reign.cluster();
        let is_former = cluster.former(crashed).is_some_and(|former| !former.freeing);
        let tablets = cluster.to_recover(crashed);
        if is_former { tablets } else { Vec::new() }
    };
    let tablets = has_tablets(reign);
    let successors = reign.cluster().successors(crashed);
    let mut masters = successors.clone();
    masters.extend(reign.cluster().by_load().into_iter().filter(|it| !successors.contains(it)));
    if tablets.is_empty() || masters.is_empty() {
        begin_anew(reign, crashed);
        return true;
    }
    let heir = {
        let (cluster, attempts) = (reign.cluster(), reign.attempts.borrow());
        let attempt = attempts.get(&crashed);
        let former = cluster.former(crashed);
        former.and_then(|it| taking_back::who(&cluster, it, &tablets, found, &rooms, attempt))
    };
    let load = loads(&tablets, &found.statistics, found.bytes());
    let sizes = reign.shared.options.parts;
    let target = match (successors.len(), masters.len()) {
        _ if heir.is_some() => u64::MAX,
        (0, others) => target(&load, others, sizes),
        (own, all) if own == all => u64::MAX,
        _ => target(&load, 1, sizes),
    };
    let mut split_tables = BTreeMap::new();
    for (id, at) in cuts(&tablets, &load, target) {
        let Some(table) = reign.cluster().table(id).cloned() else { continue };
        let table = split_tables.remove(&id).unwrap_or(table);
        let moves = |it: &crate::stored::TabletRecord| {
            it.first <= at && at <= it.last && it.migrating.is_some()
        };
        // What cannot be split is rebuilt in one piece.
        let can = !table.tablets.iter().any(moves);
        let after = split(&table, at).filter(|_| can).unwrap_or(table);
        split_tables.insert(id, after);
    }
    if reign.put_tables(split_tables.into_values().collect()).await.is_err() {
        return false;
    }
    let tablets = has_tablets(reign);
    let parts = pack(&tablets, &loads(&tablets, &found.statistics, found.bytes()), target);
    let refused = match reign.attempts.borrow().get(&crashed) {
        Some(attempt) => attempt.refused.clone(),
        None => BTreeMap::new(),
    };
    let busy = reign.cluster().rebuilding();
    let has_successor = !successors.is_empty();
    let mut room: BTreeMap<_, _> = rooms.into_iter().map(|(it, room)| (it, room.bytes)).collect();
    for (master, bytes) in promised(reign) {
        room.entry(master).and_modify(|room| *room = room.saturating_sub(bytes));
    }
    let choice = Masters { all: &masters, has_successor, refused: &refused, busy, room };
    let (mut parts, mut have_room) = choose(parts, choice);
    if let Some(by) = heir {
        (parts, have_room) = (vec![Part { by, tablets }], true);
    }
    let Ok(ids) = reign.take_ids(|ids| ids.recovery += 1).await else { return false };
    let recovery = ids.recovery;
    let record = reign.cluster().server_of_former(crashed).cloned();
    let Some(mut record) = record else { return true };
    let Some(number) = record.former.iter().position(|it| it.master == crashed) else {
        return true;
    };
    let Some(former) = record.former.get_mut(number) else { return true };
    (former.recovery, former.parts) = (recovery, parts);
    former.heir = heir.or(former.heir);
    // The end of the server's present life, or the next one, finds room too.
    let room = VALUE_BYTES_MAX - shards_of(&record) * SHARD_BYTES_MAX;
    let parts = fit(&mut record, number, room);
    if parts.is_empty() {
        drop(pen);
        let why = format!("what is written of {} leaves no room for its parts", record.server);
        if let Some(attempt) = reign.attempts.borrow_mut().get_mut(&crashed) {
            attempt.fails(reign, why);
        }
        return true;
    }
    if reign.put_server(record).await.is_err() {
        return false;
    }
    drop(pen);
    let speeds = reign.cluster().backups().map(|it| (it.server, it.speed)).collect();
    let take_back = heir.is_some();
    let Order { mut segments, reads } = order(&found.segments, &speeds, take_back);
    if !take_back {
        // Who rebuilds need not know.
        segments.iter_mut().for_each(|it| (it.closed, it.epoch) = (false, Epoch::default()));
    }
    let round = Round {
        recovery,
        take_back,
        segments,
        backups: reads.keys().copied().collect(),
        told: Rc::default(),
        useless: BTreeMap::new(),
        failed_at: None,
        patience: reign.now() + BACKUPS_PATIENCE,
        parts: vec![Told::Due(reign.now(), 0); parts.len()],
        expected: parts.iter().map(|it| expected(&it.tablets, &found.statistics)).collect(),
        is_troubled: false,
    };
    let (segments, copies) =
        (round.segments.len(), round.segments.iter().map(|it| it.at.len()).sum::<usize>());
    tracing::info!(%crashed, recovery, take_back, parts = parts.len(), segments, copies, bytes = found.bytes(), "a recovery begins");
    let told = Rc::clone(&round.told);
    if let Some(attempt) = reign.attempts.borrow_mut().get_mut(&crashed) {
        (attempt.fenced, attempt.bytes) = (Some(found.fenced), found.bytes());
        if !have_room {
            let text = "no shard seems to have room for it: start a server, or delete something";
            attempt.trouble = Some(text.into());
        }
        attempt.begins(round);
    }
    let partitions: Vec<Vec<Taken>> = parts.into_iter().map(|part| part.tablets).collect();
    for (server, segments) in reads {
        let partitions = partitions.clone();
        let (whole, lineage) = (take_back, reign.cluster().lineage(crashed));
        let message = BeginRecovery { recovery, crashed, partitions, segments, whole, lineage };
        let fenced_in = found.lives.get(&server).copied();
        reign.spawn(keep_told(Rc::clone(reign), server, fenced_in, message, Rc::clone(&told)));
    }
    reign.changed.raise();
    true
}

/// The parts of a former master for which its server's record has room. The others are left for the next
/// round.
fn fit(record: &mut ServerRecord, number: usize, room: usize) -> Vec<Part> {
    while to_value(record).len() > room {
        let parts = record.former.get_mut(number).map(|it| &mut it.parts);
        if parts.and_then(Vec::pop).is_none() {
            return Vec::new();
        }
    }
    record.former.get(number).map_or_else(Vec::new, |it| it.parts.clone())
}

fn begin_anew(reign: &Reign, crashed: MasterId) {
    if let Some(attempt) = reign.attempts.borrow_mut().get_mut(&crashed) {
        attempt.begins_anew();
    }
}

/// Tells a backup what to read, in each of its lives, as long as the round lasts.
async fn keep_told(
    reign: Rc<Reign>,
    server: ServerId,
    mut fenced_in: Option<u64>,
    message: BeginRecovery,
    told: Rc<RefCell<BTreeSet<ServerId>>>,
) {
    let mut told_in = None;
    let mut backoff = Backoff::default();
    let is_going_on = || {
        let attempts = reign.attempts.borrow();
        attempts.get(&message.crashed).is_some_and(|it| it.is_at(message.recovery))
    };
    while is_going_on() {
        let seen = reign.changed.seen();
        let backup = reign.cluster().backup(server);
        let Some(backup) = backup.filter(|it| told_in != Some(it.generation)) else {
            reign.changed.after(seen).await;
            continue;
        };
        // In another life than it was surveyed in it is fenced anew.
        if fenced_in != Some(backup.generation) {
            let lineage = message.lineage.clone();
            let fence = InventoryOf { master: message.crashed, deposed: true, lineage };
            if reign.call(backup.address, Opcode::Inventory, &fence).await.is_err() {
                reign.sleep(backoff.next()).await;
                continue;
            }
            fenced_in = Some(backup.generation);
            let now = reign.now_in_next_turn().await;
            if let Some(attempt) = reign.attempts.borrow_mut().get_mut(&message.crashed) {
                attempt.fenced = attempt.fenced.max(Some(now));
            }
        }
        let answer = reign.call(backup.address, Opcode::BeginRecovery, &message).await;
        let useless = match answer {
            Ok(_) => None,
            Err(error) if is_for_good(&error) => Some(format!("{server} says: {error}")),
            Err(_) => {
                reign.sleep(backoff.next()).await;
                continue;
            }
        };
        // Not before it begins another life is it told the same again.
        (told_in, backoff) = (Some(backup.generation), Backoff::default());
        if useless.is_none() {
            told.borrow_mut().insert(server);
        }
        if let Some(attempt) = reign.attempts.borrow_mut().get_mut(&message.crashed) {
            attempt.backup_says(message.recovery, server, useless);
        }
        reign.changed.raise();
    }
}

/// What is to be done next in a round; nothing more if it is over.
pub(super) fn next(
    reign: &Reign,
    cluster: &Cluster,
    former: &Former,
    attempt: &mut Attempt,
) -> Option<Step> {
    let Stage::Rebuilding(round) = &mut attempt.stage else { return None };
    for (part, told) in former.parts.iter().zip(&mut round.parts) {
        if cluster.place(part.by).is_none() || !cluster.is_left(former.master, part) {
            *told = Told::Over;
        }
    }
    let is_over = round.parts.iter().all(|told| *told == Told::Over);
    let mut parts = former.parts.iter().zip(&round.parts);
    if parts.any(|(part, told)| *told == Told::Over && cluster.is_left(former.master, part)) {
        round.failed_at.get_or_insert(reign.now());
    }
    let limit = round.failed_at.map(|at| at + attempt.patience);
    if !is_over && limit.is_some_and(|limit| limit <= reign.now()) {
        let parts = former.parts.iter().zip(&round.parts);
        let stuck: Vec<_> =
            parts.filter(|(_, told)| **told != Told::Over).map(|(part, _)| part.by).collect();
        attempt.is_stuck(reign, &stuck);
        return None;
    }
    if is_over || former.recovery != round.recovery {
        match (round.is_troubled, attempt.trouble.clone()) {
            (true, Some(trouble)) => attempt.fails(reign, trouble),
            _ => attempt.begins_anew(),
        }
        return None;
    }
    let said = |it: &ServerId| round.told.borrow().contains(it) || round.useless.contains_key(it);
    let all_said = round.backups.iter().all(said);
    if !all_said && reign.now() < round.patience {
        return Some(Step::WaitUntil(round.patience));
    }
    if !can_be_read(round) {
        let told = round.told.borrow();
        let mut others = round.backups.iter().filter(|it| !told.contains(it));
        let why = others.find_map(|it| match round.useless.get(it) {
            Some(why) => Some(why.clone()),
            None if cluster.backup(*it).is_none() => {
                Some(format!("the backup of {it} is gone, which was to be read"))
            }
            None => None,
        });
        drop(told);
        let Some(why) = why else { return Some(limit.map_or(Step::Wait, Step::WaitUntil)) };
        attempt.fails(reign, why);
        return None;
    }
    let mut segments = None;
    let (mut messages, mut wake) = (Vec::new(), limit);
    for (number, (part, told)) in former.parts.iter().zip(&round.parts).enumerate() {
        let Told::Due(at, _) = *told else { continue };
        if at > reign.now() {
            wake = Some(wake.map_or(at, |wake: thunderhead_runtime::Time| wake.min(at)));
            continue;
        }
        let Some(place) = cluster.place(part.by) else { continue };
        let segments = segments.get_or_insert_with(|| reachable_first(round));
        let recover = Recover {
            master: part.by,
            crashed: former.master,
            recovery: round.recovery,
            partition: u32::try_from(number).unwrap_or(u32::MAX),
            tablets: part.tablets.clone(),
            expected: round.expected.get(number).cloned().unwrap_or_default(),
            segments: segments.clone(),
            take_back: round.take_back,
        };
        messages.push(Message { to: place.address, recover });
    }
    Some(match (messages.is_empty(), wake) {
        (false, _) => Step::Tell(messages),
        (true, Some(wake)) => Step::WaitUntil(wake),
        (true, None) => Step::Wait,
    })
}

/// Whether of each segment there is a copy on a backup that was told.
fn can_be_read(round: &Round) -> bool {
    let told = round.told.borrow();
    round.segments.iter().all(|it| it.at.iter().any(|(server, _)| told.contains(server)))
}

/// The segments, where backups that were not told come last.
fn reachable_first(round: &Round) -> Vec<Replicas> {
    let told = round.told.borrow();
    let mut segments = round.segments.clone();
    for replicas in &mut segments {
        replicas.at.sort_by_key(|(server, _)| !told.contains(server));
    }
    segments
}

/// Tells masters what to rebuild.
pub(super) async fn tell_masters(reign: &Rc<Reign>, messages: Vec<Message>) {
    let calls = messages.into_iter().map(|message| async move {
        let answer = reign.call(message.to, Opcode::Recover, &message.recover).await;
        (message.recover, answer)
    });
    for (recover, answer) in all(calls.collect()).await {
        let Recover { master, crashed, recovery, partition, .. } = recover;
        let partition = partition as usize;
        let mut attempts = reign.attempts.borrow_mut();
        let Some(attempt) = attempts.get_mut(&crashed) else { continue };
        // What it has reported meanwhile is newer than what it says here.
        let Some(told @ Told::Due(..)) = attempt.told(recovery, partition) else { continue };
        let Told::Due(_, count) = *told else { continue };
        match answer {
            Ok(_) => *told = Told::Begun,
            Err(error) if is_for_good(&error) || count >= most(&error) => {
                let trouble = format!("{master} says: {error}");
                attempt.part_is_over((recovery, partition), master, Some(trouble));
            }
            Err(_) => {
                let wait = RETRY_MIN.saturating_mul(1 << count.min(4));
                *told = Told::Due(reign.now() + wait, count + 1);
            }
        }
    }
}

/// How often a master that says so is told again.
fn most(error: &CallError) -> u32 {
    match error {
        CallError::Refused { status: Status::InProgress, .. } => IN_PROGRESS_MAX,
        _ => TOLD_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_wire::{SegmentId, TableId, TabletRange};

    #[test]
    fn parts_for_which_there_is_no_room_are_left_and_perhaps_all_are() {
        let former = br#"{"master":3,"shard":0,"recovery":1,"parts":[]}"#;
        let mut former: Former = serde_json::from_slice(former).unwrap();
        let taken = Taken { range: TabletRange::whole(TableId(1)), since: SegmentId::NONE };
        former.parts = vec![Part { by: MasterId(4), tablets: vec![taken] }; 10];
        let server = br#"{"server":1,"registered":5,"generation":1,"state":"down"}"#;
        let mut record: ServerRecord = serde_json::from_slice(server).unwrap();
        record.former.push(former);
        let all = to_value(&record).len();
        assert_eq!(fit(&mut record.clone(), 0, all).len(), 10);
        assert_eq!(fit(&mut record.clone(), 0, all - 1).len(), 9);
        assert_eq!(fit(&mut record.clone(), 0, 100).len(), 0);
        assert_eq!(fit(&mut record, 7, all).len(), 0, "there is none");
    }

    #[test]
    fn parts_go_to_the_successor_then_to_who_has_least_to_do() {
        let masters: Vec<_> = (1..=4).map(MasterId).collect();
        let nobody = BTreeMap::new();
        let by = |count, masters: Masters<'_>| {
            let (parts, have_room) = choose(vec![(10, Vec::new()); count], masters);
            (parts.into_iter().map(|it| it.by.0).collect::<Vec<_>>(), have_room)
        };
        let all = || Masters {
            all: &masters,
            has_successor: false,
            refused: &nobody,
            busy: BTreeMap::new(),
            room: BTreeMap::new(),
        };
        assert_eq!(by(6, all()), (vec![1, 2, 3, 4, 1, 2], true));
        let busy = BTreeMap::from([(MasterId(1), 2), (MasterId(3), 1)]);
        assert_eq!(by(3, Masters { busy: busy.clone(), ..all() }).0, [2, 4, 2]);
        assert_eq!(by(3, Masters { busy, has_successor: true, ..all() }).0, [1, 2, 4]);
        // Who could not do it comes last, and is tried again when nobody is better.
        let refused = BTreeMap::from([(MasterId(1), 1), (MasterId(2), 2)]);
        let two = Masters { all: &masters[..2], refused: &refused, ..all() };
        assert_eq!(by(1, two).0, [1]);
        assert_eq!(by(2, Masters { refused: &refused, has_successor: true, ..all() }).0, [3, 4]);
        assert!(by(2, Masters { all: &[], ..all() }).0.is_empty());
        // Who has room comes first; room is used up.
        let room: BTreeMap<_, _> = masters.iter().copied().zip([5, 10, 25, 9]).collect();
        let short = Masters { room: room.clone(), has_successor: true, ..all() };
        assert_eq!(by(3, short), (vec![2, 3, 3], true));
        assert!(!by(4, Masters { room, ..all() }).1, "somebody is to try");
    }
}
