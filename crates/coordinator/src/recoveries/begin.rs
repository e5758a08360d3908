//! A round: tablets are divided, backups begin to read, masters begin to rebuild.
//!
//! Every decision is written first: split tablets in the tables' records, recovery masters and
//! their tablets in the record of the crashed server. Then every backup with a replica is told
//! which segments to read, then masters which tablets to rebuild. A silent backup is not waited for
//! long if others have the same replicas: its replicas are named last. It is told again as long as
//! the round lasts, and so is a backup that begins another generation. That generation may have
//! lost a part of its replicas with its memory. If it does not have all replicas that the survey
//! found, the round fails, and the next survey decides. A busy master is asked again
//! for a while; then another one is chosen. A master that still works on the same tablets, because
//! it waits for the answer to an earlier report, is waited for longer: its report may be written in
//! part, and that part belongs to it.
//!
//! When a part has failed, the others have [`STUCK`](crate::limits::STUCK) to finish. Then all
//! remaining tablets are divided again, under a number that replaces the unfinished round. Each
//! time the parts have twice as long.

use super::Step;
use super::running_survey::is_for_good;
use super::taking_back;
use crate::cluster::{ByGroup, Cluster, shards_of, split};
use crate::knowledge::attempts::{Attempt, PartState, Round, Stage};
use crate::leadership::{Leadership, RetryPauses};
use crate::limits::{SHARD_BYTES_MAX, TELL_AGAIN};
use crate::placement::order::{Order, order};
use crate::placement::partitions::{cuts, expected, loads, pack, target};
use crate::placement::recovery_masters::{Masters, Wanted, choose};
use crate::placement::rooms;
use crate::stored::{Former, Part, ServerRecord, to_value};
use crate::survey::Copy;
use crate::survey::FoundLog;
use crate::waiting::all;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_metastore::limits::VALUE_BYTES_MAX;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_wire::control::{
    BeginRecovery, Inventory, InventoryOf, Recover, ReplicaInfo, Replicas, Taken, of_body,
};
use thunderhead_wire::{
    Epoch, Generation, MasterId, RecoveryId, SegmentId, ServerId, Status, TableId,
};

/// How long masters wait for backups to be told.
const BACKUPS_PATIENCE: Duration = Duration::from_millis(250);

/// How often a master is told without success before another one is chosen: some seconds.
const TOLD_MAX: u32 = 8;

/// The same for a master that still works on these tablets, mostly because it waits for the answer
/// to its report of an earlier round: half a minute.
const IN_PROGRESS_MAX: u32 = 40;

/// A message to a recovery master.
pub(super) struct Message {
    to: SocketAddr,
    recover: Recover,
}

/// Returns the bytes that masters must rebuild in other rounds and have not begun: their reports of
/// free room do not include them yet.
fn promised(leadership: &Leadership) -> BTreeMap<MasterId, u64> {
    let (cluster, attempts) = (leadership.cluster(), leadership.attempts.borrow());
    let mut promised: BTreeMap<MasterId, u64> = BTreeMap::new();
    for former in cluster.formers() {
        let stage = attempts.get(&former.master).map(|attempt| &attempt.stage);
        let Some(Stage::Rebuilding(round)) = stage else { continue };
        let parts = former.parts.iter().zip(&round.parts).zip(&round.expected);
        for ((part, _), expected) in
            parts.filter(|((_, told), _)| matches!(told, PartState::Due(..)))
        {
            let bytes: u64 = expected.iter().map(|it| it.bytes).sum();
            *promised.entry(part.by).or_default() += bytes;
        }
    }
    promised
}

/// Writes the recovery masters with their parts, and begins. Returns whether the writes succeeded.
pub(super) async fn divide(leadership: &Rc<Leadership>, crashed: MasterId, log: &FoundLog) -> bool {
    let (masters, successors) = {
        let cluster = leadership.cluster();
        (cluster.by_load(), cluster.successors(crashed))
    };
    let rooms = rooms::ask(leadership, &masters, &successors).await;
    let lock = leadership.lock_updates().await;
    let tablets_left = |leadership: &Leadership| {
        let cluster = leadership.cluster();
        let is_former = cluster.former(crashed).is_some_and(|former| !former.freeing);
        let tablets = cluster.to_recover(crashed);
        if is_former { tablets } else { Vec::new() }
    };
    let by_group = leadership.cluster().by_group(crashed, &tablets_left(leadership));
    let successors = leadership.cluster().successors(crashed);
    let mut masters = successors.clone();
    masters
        .extend(leadership.cluster().by_load().into_iter().filter(|it| !successors.contains(it)));
    let ByGroup { groups, others: tablets, later } = by_group;
    if masters.is_empty() || tablets.is_empty() && groups.is_empty() {
        drop(lock);
        match later.first().filter(|_| !masters.is_empty()) {
            Some(table) => wait_for_group(leadership, crashed, *table),
            None => begin_anew(leadership, crashed),
        }
        return true;
    }
    let all_tablets: Vec<Taken> =
        groups.iter().flat_map(|(its, _)| its).chain(&tablets).copied().collect();
    let heir = {
        let (cluster, attempts) = (leadership.cluster(), leadership.attempts.borrow());
        let attempt = attempts.get(&crashed);
        let former = cluster.former(crashed).filter(|_| later.is_empty());
        let heir = former.and_then(|it| {
            taking_back::choose_heir(&cluster, it, &all_tablets, log, &rooms, attempt)
        });
        // The heir gets all tablets.
        heir.filter(|heir| groups.iter().all(|(_, home)| home.is_none_or(|home| home == *heir)))
    };
    let load = loads(&tablets, &log.statistics, log.bytes());
    let sizes = leadership.shared.options.parts;
    let target = match (successors.len(), masters.len()) {
        _ if heir.is_some() => u64::MAX,
        (0, others) => target(&load, others, sizes),
        (own, all) if own == all => u64::MAX,
        _ => target(&load, 1, sizes),
    };
    let mut split_tables = BTreeMap::new();
    for (id, at) in cuts(&tablets, &load, target) {
        let Some(table) = leadership.cluster().table(id).cloned() else { continue };
        let table = split_tables.remove(&id).unwrap_or(table);
        let moves = |it: &crate::stored::TabletRecord| {
            it.first <= at && at <= it.last && it.migrating.is_some()
        };
        // A tablet that cannot be split is rebuilt in one piece.
        let can = !table.tablets.iter().any(moves);
        let after = split(&table, at).filter(|_| can).unwrap_or(table);
        split_tables.insert(id, after);
    }
    if leadership.put_tables(split_tables.into_values().collect()).await.is_err() {
        return false;
    }
    // Splits changed only tablets without a group.
    let tablets = leadership.cluster().by_group(crashed, &tablets_left(leadership)).others;
    let parts = match tablets.is_empty() {
        true => Vec::new(),
        false => pack(&tablets, &loads(&tablets, &log.statistics, log.bytes()), target),
    };
    let of_group = |(tablets, home): (Vec<Taken>, Option<MasterId>)| {
        let load = loads(&tablets, &log.statistics, log.bytes());
        let load = load.iter().fold(0u64, |sum, it| sum.saturating_add(*it));
        Wanted { load, tablets, by: home }
    };
    let parts = parts.into_iter().map(|(load, tablets)| Wanted { load, tablets, by: None });
    let mut parts: Vec<Wanted> = parts.chain(groups.into_iter().map(of_group)).collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.load));
    let refused = match leadership.attempts.borrow().get(&crashed) {
        Some(attempt) => attempt.refused.clone(),
        None => BTreeMap::new(),
    };
    let busy = leadership.cluster().rebuilding();
    let has_successor = !successors.is_empty();
    let load = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.load));
    let needed_bytes = rooms::memory_for(load, rooms.values().copied());
    let mut room: BTreeMap<_, _> = rooms.into_iter().map(|(it, room)| (it, room.bytes)).collect();
    for (master, bytes) in promised(leadership) {
        room.entry(master).and_modify(|room| *room = room.saturating_sub(bytes));
    }
    let choice = Masters { all: &masters, has_successor, refused: &refused, busy, room };
    let (mut parts, mut have_room) = choose(parts, choice);
    if let Some(by) = heir {
        (parts, have_room) = (vec![Part { by, tablets: all_tablets }], true);
    }
    let Ok(ids) = leadership.take_ids(|ids| ids.recovery += 1).await else { return false };
    let recovery = RecoveryId(ids.recovery);
    let record = leadership.cluster().server_of_former(crashed).cloned();
    let Some(mut record) = record else { return true };
    let Some(number) = record.former.iter().position(|it| it.master == crashed) else {
        return true;
    };
    let Some(former) = record.former.get_mut(number) else { return true };
    (former.recovery, former.parts) = (recovery, parts);
    former.heir = heir.or(former.heir);
    // The end of the server's present generation, or the next one, must fit too.
    let room = VALUE_BYTES_MAX - shards_of(&record) * SHARD_BYTES_MAX;
    let parts = fit(&mut record, number, room);
    if parts.is_empty() {
        drop(lock);
        let why = format!("the record of {} has no room for its parts", record.server);
        if let Some(attempt) = leadership.attempts.borrow_mut().get_mut(&crashed) {
            attempt.on_failure(leadership, why);
        }
        return true;
    }
    if leadership.put_server(record).await.is_err() {
        return false;
    }
    drop(lock);
    let speeds = leadership.cluster().backups().map(|it| (it.server, it.speed)).collect();
    let take_back = heir.is_some();
    let Order { mut segments, reads } = order(&log.segments, &speeds, take_back);
    if !take_back {
        // Recovery masters need not know this.
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
        patience: leadership.now() + BACKUPS_PATIENCE,
        parts: vec![PartState::Due(leadership.now(), 0); parts.len()],
        expected: parts.iter().map(|it| expected(&it.tablets, &log.statistics)).collect(),
        is_troubled: false,
    };
    let (segments, copies) =
        (round.segments.len(), round.segments.iter().map(|it| it.at.len()).sum::<usize>());
    tracing::info!(%crashed, recovery = recovery.0, take_back, parts = parts.len(), segments, copies, bytes = log.bytes(), "a recovery begins");
    let told = Rc::clone(&round.told);
    if let Some(attempt) = leadership.attempts.borrow_mut().get_mut(&crashed) {
        (attempt.fenced, attempt.bytes) = (Some(log.fenced), log.bytes());
        attempt.needed_bytes = if have_room { 0 } else { needed_bytes };
        if !have_room {
            let text = "no shard seems to have room for it: start a server, or delete objects";
            attempt.trouble = Some(text.into());
        }
        attempt.begin_round(round);
    }
    let partitions: Vec<Vec<Taken>> = parts.into_iter().map(|part| part.tablets).collect();
    let mut by_backup = log.by_backup();
    for (server, segments) in reads {
        let partitions = partitions.clone();
        let (whole, lineage) = (take_back, leadership.cluster().lineage(crashed));
        let message = BeginRecovery { recovery, crashed, partitions, segments, whole, lineage };
        let generation = log.generations.get(&server).copied();
        let replicas = by_backup.remove(&server).unwrap_or_default();
        let surveyed = SurveyedReplicas { generation, replicas };
        leadership.spawn(tell_backup(
            Rc::clone(leadership),
            server,
            surveyed,
            message,
            Rc::clone(&told),
        ));
    }
    leadership.changed.raise();
    true
}

/// Returns the parts of a former master that fit into its server's record. The others are left for
/// the next round.
fn fit(record: &mut ServerRecord, number: usize, room: usize) -> Vec<Part> {
    while to_value(record).len() > room {
        let parts = record.former.get_mut(number).map(|it| &mut it.parts);
        if parts.and_then(Vec::pop).is_none() {
            return Vec::new();
        }
    }
    record.former.get(number).map_or_else(Vec::new, |it| it.parts.clone())
}

/// Notes that the remaining tablets wait for the recovery of another master.
fn wait_for_group(leadership: &Leadership, crashed: MasterId, table: TableId) {
    if let Some(attempt) = leadership.attempts.borrow_mut().get_mut(&crashed) {
        let why = format!("{table} waits for the recovery of the table beside which it lies");
        attempt.on_failure(leadership, why);
    }
}

fn begin_anew(leadership: &Leadership, crashed: MasterId) {
    if let Some(attempt) = leadership.attempts.borrow_mut().get_mut(&crashed) {
        attempt.begin_anew();
    }
}

/// The replicas that a survey found on a backup, and the generation that reported them.
struct SurveyedReplicas {
    generation: Option<Generation>,
    replicas: Vec<(SegmentId, Copy)>,
}

impl SurveyedReplicas {
    /// Returns the first segment whose replica is not the same as before in the list of a later
    /// generation.
    fn changed(&self, now: &[ReplicaInfo]) -> Option<SegmentId> {
        let now: BTreeMap<_, _> =
            now.iter().map(|it| (it.segment, (it.length, it.closed))).collect();
        let mut changed = self
            .replicas
            .iter()
            .filter(|(segment, copy)| now.get(segment) != Some(&(copy.length, copy.closed)));
        changed.next().map(|(segment, _)| *segment)
    }
}

/// Tells each generation of a backup which segments to read, as long as the round lasts.
async fn tell_backup(
    leadership: Rc<Leadership>,
    server: ServerId,
    surveyed: SurveyedReplicas,
    message: BeginRecovery,
    told: Rc<RefCell<BTreeSet<ServerId>>>,
) {
    let (mut fenced_in, mut told_in) = (surveyed.generation, None);
    let mut pauses = RetryPauses::default();
    let is_going_on = || {
        let attempts = leadership.attempts.borrow();
        attempts.get(&message.crashed).is_some_and(|it| it.is_at(message.recovery))
    };
    while is_going_on() {
        let seen = leadership.changed.seen();
        let backup = leadership.cluster().backup(server);
        let Some(backup) = backup.filter(|it| told_in != Some(it.generation)) else {
            leadership.changed.after(seen).await;
            continue;
        };
        // A generation that was not surveyed is fenced again.
        if fenced_in != Some(backup.generation) {
            let lineage = message.lineage.clone();
            let fence = InventoryOf { master: message.crashed, deposed: true, lineage };
            let answer = leadership.call(backup.address, Opcode::Inventory, &fence).await;
            let inventory = answer.ok().and_then(|body| of_body::<Inventory>(&body));
            let Some(Inventory { replicas }) = inventory else {
                leadership.sleep(pauses.next()).await;
                continue;
            };
            fenced_in = Some(backup.generation);
            let now = leadership.now_in_next_turn().await;
            let changed = surveyed.changed(&replicas);
            if let Some(attempt) = leadership.attempts.borrow_mut().get_mut(&message.crashed)
                && attempt.is_at(message.recovery)
            {
                attempt.fenced = attempt.fenced.max(Some(now));
                if let Some(segment) = changed {
                    let why = format!("{server} has restarted without its replica of {segment}");
                    attempt.on_failure(&leadership, why);
                }
            }
            if changed.is_some() {
                return leadership.changed.raise();
            }
        }
        let answer = leadership.call(backup.address, Opcode::BeginRecovery, &message).await;
        let useless = match answer {
            Ok(_) => None,
            Err(error) if is_for_good(&error) => Some(format!("{server} says: {error}")),
            Err(_) => {
                leadership.sleep(pauses.next()).await;
                continue;
            }
        };
        // Within a generation it is told only once.
        (told_in, pauses) = (Some(backup.generation), RetryPauses::default());
        if useless.is_none() {
            told.borrow_mut().insert(server);
        }
        if let Some(attempt) = leadership.attempts.borrow_mut().get_mut(&message.crashed) {
            attempt.on_backup_answer(message.recovery, server, useless);
        }
        leadership.changed.raise();
    }
}

/// Returns the next step of a round, or `None` if the round is over.
pub(super) fn next(
    leadership: &Leadership,
    cluster: &Cluster,
    former: &Former,
    attempt: &mut Attempt,
) -> Option<Step> {
    let Stage::Rebuilding(round) = &mut attempt.stage else { return None };
    for (part, told) in former.parts.iter().zip(&mut round.parts) {
        if cluster.place(part.by).is_none() || !cluster.is_left(former.master, part) {
            *told = PartState::Over;
        }
    }
    let is_over = round.parts.iter().all(|told| *told == PartState::Over);
    let mut parts = former.parts.iter().zip(&round.parts);
    if parts.any(|(part, told)| *told == PartState::Over && cluster.is_left(former.master, part)) {
        round.failed_at.get_or_insert(leadership.now());
    }
    let limit = round.failed_at.map(|at| at + attempt.patience);
    if !is_over && limit.is_some_and(|limit| limit <= leadership.now()) {
        let parts = former.parts.iter().zip(&round.parts);
        let stuck: Vec<_> =
            parts.filter(|(_, told)| **told != PartState::Over).map(|(part, _)| part.by).collect();
        attempt.on_stuck(leadership, &stuck);
        return None;
    }
    if is_over || former.recovery != round.recovery {
        match (round.is_troubled, attempt.trouble.clone()) {
            (true, Some(trouble)) => attempt.on_failure(leadership, trouble),
            _ => attempt.begin_anew(),
        }
        return None;
    }
    let said = |it: &ServerId| round.told.borrow().contains(it) || round.useless.contains_key(it);
    let all_said = round.backups.iter().all(said);
    if !all_said && leadership.now() < round.patience {
        return Some(Step::WaitUntil(round.patience));
    }
    if !can_be_read(round) {
        let told = round.told.borrow();
        let mut others = round.backups.iter().filter(|it| !told.contains(it));
        let why = others.find_map(|it| match round.useless.get(it) {
            Some(why) => Some(why.clone()),
            None if cluster.backup(*it).is_none() => {
                Some(format!("the backup of {it} has crashed, and its replicas are needed"))
            }
            None => None,
        });
        drop(told);
        let Some(why) = why else { return Some(limit.map_or(Step::Wait, Step::WaitUntil)) };
        attempt.on_failure(leadership, why);
        return None;
    }
    let mut segments = None;
    let (mut messages, mut wake) = (Vec::new(), limit);
    for (number, (part, told)) in former.parts.iter().zip(&round.parts).enumerate() {
        let PartState::Due(at, _) = *told else { continue };
        if at > leadership.now() {
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

/// Whether a backup that was told has a replica of each segment.
fn can_be_read(round: &Round) -> bool {
    let told = round.told.borrow();
    round.segments.iter().all(|it| it.at.iter().any(|(server, _)| told.contains(server)))
}

/// Returns the segments, with backups that were not told last.
fn reachable_first(round: &Round) -> Vec<Replicas> {
    let told = round.told.borrow();
    let mut segments = round.segments.clone();
    for replicas in &mut segments {
        replicas.at.sort_by_key(|(server, _)| !told.contains(server));
    }
    segments
}

/// Tells masters which tablets to rebuild.
pub(super) async fn tell_masters(leadership: &Rc<Leadership>, messages: Vec<Message>) {
    let calls = messages.into_iter().map(|message| async move {
        let answer = leadership.call(message.to, Opcode::Recover, &message.recover).await;
        (message.recover, answer)
    });
    for (recover, answer) in all(calls.collect()).await {
        let Recover { master, crashed, recovery, partition, .. } = recover;
        let partition = partition as usize;
        let mut attempts = leadership.attempts.borrow_mut();
        let Some(attempt) = attempts.get_mut(&crashed) else { continue };
        // A report that came in the meantime is newer than this answer.
        let Some(told @ PartState::Due(..)) = attempt.part_state(recovery, partition) else {
            continue;
        };
        let PartState::Due(_, count) = *told else { continue };
        match answer {
            Ok(_) => *told = PartState::Begun,
            Err(error) if is_for_good(&error) || count >= most(&error) => {
                let trouble = format!("{master} says: {error}");
                attempt.on_part_over((recovery, partition), master, Some(trouble));
            }
            Err(_) => {
                let wait = TELL_AGAIN.limit(count);
                *told = PartState::Due(leadership.now() + wait, count + 1);
            }
        }
    }
}

/// Returns how often a master with this answer is told again.
fn most(error: &CallError) -> u32 {
    match error {
        CallError::Refused { status: Status::InProgress, .. } => IN_PROGRESS_MAX,
        _ => TOLD_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_wire::TabletRange;

    #[test]
    fn parts_that_do_not_fit_are_left_for_later_rounds() {
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
        assert_eq!(fit(&mut record, 7, all).len(), 0, "the record has no such master");
    }
}
