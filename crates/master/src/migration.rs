//! Tablets that move while their masters live.
//!
//! The coordinator tells the former master to give a tablet to another master ([`outgoing`]
//! describes how). It gets the answer when the whole tablet is durable there. From then on neither
//! master serves the tablet. The coordinator records the new owner, and only that record makes the
//! tablet the new master's. Then it tells the new master to serve the tablet and the former one to
//! drop it. If one of the two fails before, the migration ends: if the former master cancels it, or
//! the new one crashes, the former one serves on; if the former one crashes, its log is replayed as
//! usual, and the new one drops its copy.
//!
//! **Each migration has a number** that is never used again, and every message about the migration
//! carries it. So a late message about an earlier migration does no harm, even if the earlier one
//! moved the same tablet between the same masters.
//!
//! **Exactly once.** Outcomes of updates belong to the tablet of their object and go with it. If a
//! client repeats at the new master an update that was done here, the new master answers from the
//! record. The new master knows nothing of updates whose records were forgotten; [`crate::clients`]
//! says why it does not do them again.
//!
//! The new master hides the tablet like a tablet that is being rebuilt: it refuses the requests for
//! it. It keeps its copy until the coordinator decides about it, or, while the copy is incomplete,
//! until no message of the migration has come for long.

mod outgoing;

use crate::options::Options;
use outgoing::{Outgoing, Patience, Work};
use std::collections::BTreeMap;
use std::time::Duration;
use thunderhead_log::{Completion, Error, Incoming, Log, Rebuild, SegmentId};
use thunderhead_rpc::{CallError, CallId, Context};
use thunderhead_runtime::Time;
use thunderhead_runtime::slice::Budget;
use thunderhead_wire::control::{self, MigrateOut, MigratedOut, MigrationBegin, Taken};
use thunderhead_wire::migration::{self, ENTRIES_MAX, Entry, Kind};
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{KeyHash, LogPosition, Status, TableId, TabletRange, Timestamp, Version};

use crate::clients::Clients;
use crate::refusal::Refusal;

/// Microseconds that a client waits before it sends a request for a moving tablet again.
const PAUSE_US: u32 = 300;

/// The cost of noting an update: it changes two trees.
const NOTED_UPDATE: Duration = Duration::from_nanos(300);

/// Microseconds that the coordinator waits before it asks again.
const IN_PROGRESS_US: u32 = 2_000;

/// Microseconds that the other master waits.
const BUSY_US: u32 = 1_000;

/// Tablets that move at once, each way.
const TABLETS_MAX: usize = 64;

/// Migrations that are over and remembered.
const OVER_MAX: usize = 4096;

/// An incoming tablet.
struct IncomingTablet {
    range: TabletRange,
    /// Until it is complete.
    rebuild: Option<Rebuild>,
    /// It is complete once the log is durable up to here.
    complete: Option<LogPosition>,
    /// When the source was heard of last.
    last_heard: Time,
}

/// The incoming and outgoing tablets.
#[derive(Default)]
pub(crate) struct Migrations {
    outgoing: BTreeMap<u64, Outgoing>,
    /// The outgoing migration whose slice is next, and those after it.
    next: u64,
    /// The reasons of failed migrations.
    failed: BTreeMap<u64, String>,
    incoming: BTreeMap<u64, IncomingTablet>,
    /// Incoming migrations that have ended: the tablet is served here, or will not come any more.
    over: BTreeMap<u64, bool>,
}

/// An earlier copy of a tablet that is about to be rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlierCopy {
    /// No part of it had come.
    Free,
    /// A part had come. Records of it may still be here.
    ThrownAway,
    /// All of it has come: the coordinator has not decided yet which of the two counts.
    Complete,
}

/// The result of a slice of work.
pub(crate) struct WorkResult {
    pub(crate) again: bool,
    pub(crate) wake: Time,
    /// The log may have records without a tablet.
    pub(crate) sweep: bool,
    /// Remarks for an operator.
    pub(crate) remarks: Vec<String>,
}

impl Migrations {
    pub(crate) fn is_idle(&self) -> bool {
        self.count() == 0
    }

    /// The number of migrations, or another number that is not 0 if there are any.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.outgoing.len() | self.incoming.len()
    }

    /// The refusal for a request for this key, or `None`.
    pub(crate) fn closed(&self, table: TableId, hash: KeyHash) -> Option<Refusal> {
        let frozen = |it: &Outgoing| it.is_frozen() && it.has(table, hash);
        if self.outgoing.values().any(frozen) {
            return Some(Refusal::with_hint(Status::Busy, PAUSE_US));
        }
        let comes = self.incoming.values().any(|it| it.range.contains(table, hash));
        comes.then_some(Status::Moved.into())
    }

    /// The refusal for an update while its tablet moves and more is noted than can be sent, or
    /// `None`. Reads go on.
    #[inline]
    pub(crate) fn holds_back(&self, table: TableId, key: &[u8]) -> Option<Refusal> {
        if self.outgoing.is_empty() {
            return None;
        }
        let hash = KeyHash::of(key);
        let waits = self.outgoing.values().any(|it| it.holds_back() && it.has(table, hash));
        waits.then_some(Refusal::with_hint(Status::Busy, PAUSE_US))
    }

    /// Whether a tablet overlaps an incoming tablet.
    pub(crate) fn hides_tablet(&self, range: TabletRange) -> bool {
        self.incoming.values().any(|it| it.range.overlaps(&range))
    }

    /// Returns the last hash of a range before its first part that is not served.
    pub(crate) fn open_until(&self, range: TabletRange) -> KeyHash {
        let frozen = self.outgoing.values().filter(|it| it.is_frozen());
        let frozen = frozen.map(|it| it.task.range).filter(|it| it.overlaps(&range));
        let firsts = frozen.filter_map(|it| it.first.0.checked_sub(1).map(KeyHash));
        firsts.fold(range.last, KeyHash::min)
    }

    /// Notes an update that was done. Returns the cost.
    #[inline]
    pub(crate) fn note(&mut self, identity: Identity, table: TableId, key: &[u8]) -> Duration {
        let mut cost = Duration::ZERO;
        if self.outgoing.is_empty() {
            return cost;
        }
        let hash = KeyHash::of(key);
        for outgoing in self.outgoing.values_mut().filter(|it| it.has(table, hash)) {
            outgoing.note(identity, hash, key);
            cost += NOTED_UPDATE;
        }
        cost
    }

    /// Begins to give a tablet away on the coordinator's command.
    pub(crate) fn go(
        &mut self,
        log: &Log,
        task: MigrateOut,
        now: Time,
    ) -> Result<MigratedOut, Refusal> {
        let number = task.migration;
        if let Some(outgoing) = self.outgoing.get(&number) {
            if task.give_up {
                self.outgoing.remove(&number);
                self.note_failed(number, "the coordinator has called it off".to_owned());
            } else {
                let given = outgoing
                    .given()
                    .ok_or(Refusal::with_hint(Status::InProgress, IN_PROGRESS_US))?;
                return Ok(MigratedOut { outcome: Ok(given) });
            }
        }
        if let Some(why) = self.failed.get(&number) {
            return Ok(MigratedOut { outcome: Err(why.clone()) });
        }
        let why = if task.give_up {
            "the coordinator has called it off".to_owned()
        } else if self.outgoing.len() >= TABLETS_MAX
            || self.outgoing.values().any(|it| it.task.range.overlaps(&task.range))
        {
            return Err(Refusal::with_hint(Status::InProgress, IN_PROGRESS_US));
        } else if self.hides_tablet(task.range) || !has(log, task.range) {
            format!("{} has no tablet with {}", task.master, task.range)
        } else {
            self.outgoing.insert(number, Outgoing::new(task, now));
            return Err(Refusal::with_hint(Status::InProgress, IN_PROGRESS_US));
        };
        self.note_failed(number, why.clone());
        Ok(MigratedOut { outcome: Err(why) })
    }

    fn note_failed(&mut self, number: u64, why: String) {
        self.failed.insert(number, why);
        while self.failed.len() > OVER_MAX {
            self.failed.pop_first();
        }
    }

    fn note_over(&mut self, number: u64, served: bool) {
        self.over.insert(number, served);
        while self.over.len() > OVER_MAX {
            self.over.pop_first();
        }
    }

    /// Takes the outcome of a call that a migration made. The migration may have ended since.
    pub(crate) fn reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        let _ = self.outgoing.values_mut().any(|it| it.reply(context, call, outcome));
    }

    /// Handles a message from a tablet's former master. The answer may have to wait for the log.
    pub(crate) fn come(
        &mut self,
        log: &mut Log,
        clients: &mut Clients,
        head: migration::Head,
        body: &[u8],
        now: Time,
    ) -> Result<(LogPosition, Vec<u8>), Refusal> {
        let malformed = Refusal::from(Status::Malformed);
        let at_once = Ok((LogPosition::default(), Vec::new()));
        match head.kind {
            Kind::Begin => {
                let MigrationBegin { range } = control::of_body(body).ok_or(malformed)?;
                self.begin(log, head.migration, range, now)?;
                at_once
            }
            Kind::Data => {
                let arriving = self.incoming.get_mut(&head.migration);
                let arriving = arriving.ok_or(Status::Refused)?;
                arriving.last_heard = now;
                // A complete tablet has got these entries before.
                let Some(rebuild) = &mut arriving.rebuild else { return at_once };
                let entries = decode(body).ok_or(malformed)?;
                rebuild.take(log, arriving.range.table, &entries).map_err(|it| refused(&it))?;
                for (lease, sequence, record) in rebuild.take_completions().iter() {
                    clients.came(lease, sequence, record);
                }
                at_once
            }
            Kind::End => {
                let (version, rest) = migration::number(body).ok_or(malformed)?;
                let time = match migration::number(rest) {
                    None if rest.is_empty() => Timestamp::ZERO,
                    Some((time, [])) => Timestamp(time),
                    _ => return Err(malformed),
                };
                let arriving = self.incoming.get_mut(&head.migration);
                let arriving = arriving.ok_or(Status::Refused)?;
                arriving.last_heard = now;
                if let Some(rebuild) = &mut arriving.rebuild {
                    let version = Version(version);
                    if version > Version::HIGHEST || time > Timestamp::LATEST {
                        return Err(malformed);
                    }
                    let state = [Incoming::SafeVersion(version), Incoming::Clock(time)];
                    let table = arriving.range.table;
                    rebuild.take(log, table, &state).map_err(|it| refused(&it))?;
                    rebuild.finish(log).map_err(|it| refused(&it))?;
                    arriving.rebuild = None;
                    arriving.complete = Some(log.appended());
                }
                let range = arriving.range;
                let since = log.tablets().find(|(it, _)| *it == range).map(|(_, since)| since);
                let since = since.ok_or(Status::Refused)?;
                let until = arriving.complete.unwrap_or_else(|| log.appended());
                Ok((until, control::to_body(&Taken { range, since })))
            }
        }
    }

    fn begin(
        &mut self,
        log: &mut Log,
        number: u64,
        range: TabletRange,
        now: Time,
    ) -> Result<(), Refusal> {
        if self.over.contains_key(&number) || range.first > range.last {
            return Err(Status::Refused.into());
        }
        if self.incoming.contains_key(&number) {
            return Ok(());
        }
        if self.incoming.values().any(|it| it.range.overlaps(&range)) {
            return Err(Status::Refused.into());
        }
        if self.incoming.len() >= TABLETS_MAX {
            return Err(Refusal::with_hint(Status::Busy, BUSY_US));
        }
        let rebuild =
            Rebuild::begin(log, [(range, SegmentId::NONE)]).map_err(|error| refused(&error))?;
        let arriving =
            IncomingTablet { range, rebuild: Some(rebuild), complete: None, last_heard: now };
        self.incoming.insert(number, arriving);
        Ok(())
    }

    /// Whether a migration comes, or came, to this shard.
    pub(crate) fn knows(&self, number: u64) -> bool {
        self.incoming.contains_key(&number) || self.over.contains_key(&number)
    }

    /// Drops the tablets of earlier migrations that overlap the tablet of a new one. No message of
    /// the earlier ones comes any more: the coordinator begins no migration of a tablet before it
    /// is done with the previous one. Returns whether there was any.
    pub(crate) fn throw_away_earlier(
        &mut self,
        log: &mut Log,
        number: u64,
        range: TabletRange,
    ) -> bool {
        let earlier = self.incoming.range(..number);
        let earlier: Vec<u64> =
            earlier.filter(|(_, it)| it.range.overlaps(&range)).map(|(it, _)| *it).collect();
        earlier.iter().for_each(|number| self.throw_away(log, *number));
        !earlier.is_empty()
    }

    fn throw_away(&mut self, log: &mut Log, number: u64) {
        if let Some(arriving) = self.incoming.remove(&number) {
            drop(arriving.rebuild);
            log.drop_tablet(arriving.range);
        }
        self.note_over(number, false);
    }

    /// Serves a tablet: the coordinator has recorded that this shard owns it. Returns the tablet
    /// unless it was served already.
    pub(crate) fn serve(&mut self, number: u64) -> Result<Option<TabletRange>, Refusal> {
        let mut range = None;
        if self.incoming.get(&number).is_some_and(|it| it.complete.is_some()) {
            range = self.incoming.remove(&number).map(|it| it.range);
            self.note_over(number, true);
        }
        match self.over.get(&number) {
            Some(true) => Ok(range),
            _ => Err(Status::BadRange.into()),
        }
    }

    /// Drops the remains of a migration on the coordinator's command. Returns whether there were
    /// any.
    pub(crate) fn drop(&mut self, log: &mut Log, number: u64) -> Result<bool, Refusal> {
        if self.incoming.contains_key(&number) {
            self.throw_away(log, number);
            return Ok(true);
        }
        if let Some(outgoing) = self.outgoing.get(&number) {
            if outgoing.given().is_none() {
                return Err(Refusal::with_hint(Status::InProgress, IN_PROGRESS_US));
            }
            log.cut_tablet(outgoing.task.range);
            self.outgoing.remove(&number);
            self.note_failed(number, "the tablet was given away".to_owned());
            return Ok(true);
        }
        if !self.failed.contains_key(&number) && !self.over.contains_key(&number) {
            self.note_over(number, false);
        }
        Ok(false)
    }

    /// Makes way for a tablet that is about to be rebuilt here from its former master's log: the
    /// copy that came by migration from that master is not needed.
    pub(crate) fn make_way(&mut self, log: &mut Log, range: TabletRange) -> EarlierCopy {
        let comes = self.incoming.iter().filter(|(_, it)| it.range.overlaps(&range));
        let numbers: Vec<(u64, bool)> =
            comes.map(|(number, it)| (*number, it.complete.is_some())).collect();
        if numbers.iter().any(|(_, complete)| *complete) {
            return EarlierCopy::Complete;
        }
        if numbers.is_empty() {
            return EarlierCopy::Free;
        }
        numbers.into_iter().for_each(|(number, _)| self.throw_away(log, number));
        EarlierCopy::ThrownAway
    }

    /// Works for as long as the budget lasts.
    pub(crate) fn work(
        &mut self,
        context: &mut Context<'_>,
        log: &mut Log,
        budget: &mut Budget,
        options: &Options,
    ) -> WorkResult {
        let now = context.now();
        let mut worked =
            WorkResult { again: false, wake: Time::NEVER, sweep: false, remarks: Vec::new() };
        let patience =
            Patience { serving: options.migration_patience, pausing: options.migration_pause };
        let mut failed = Vec::new();
        let mut first_without_time = None;
        for number in from_next(&self.outgoing, self.next) {
            if !budget.has_time() {
                first_without_time.get_or_insert(number);
            }
            let Some(outgoing) = self.outgoing.get_mut(&number) else { continue };
            match outgoing.work(context, log, budget, patience) {
                Work::Again => worked.again = true,
                Work::At(at) => worked.wake = worked.wake.min(at),
                Work::Failed(why) => failed.push((number, why)),
            }
        }
        self.next = first_without_time.unwrap_or(0);
        for (number, why) in failed {
            if let Some(outgoing) = self.outgoing.remove(&number) {
                let (range, to) = (outgoing.task.range, outgoing.task.to);
                worked.remarks.push(format!("{range} did not move to {to}: {why}"));
            }
            self.note_failed(number, why);
        }
        // The former master has stopped trying long before.
        let quiet = options.migration_patience * 2;
        let silent = self.incoming.iter().filter(|(_, it)| it.complete.is_none());
        let silent: Vec<(u64, Time)> =
            silent.map(|(number, it)| (*number, it.last_heard + quiet)).collect();
        for (number, at) in silent {
            if at <= now {
                self.throw_away(log, number);
                worked.sweep = true;
            } else {
                worked.wake = worked.wake.min(at);
            }
        }
        worked
    }
}

fn has(log: &Log, range: TabletRange) -> bool {
    let holds = |it: TabletRange| {
        it.table == range.table && it.first <= range.first && range.last <= it.last
    };
    range.first <= range.last && log.tablets().any(|(it, _)| holds(it))
}

fn refused(error: &Error) -> Refusal {
    match error {
        Error::CleanerBehind => Refusal::with_hint(Status::AwaitingMemory, BUSY_US),
        Error::MemoryFull { .. } => Status::NoSpace.into(),
        _ => Status::Refused.into(),
    }
}

fn decode(mut body: &[u8]) -> Option<Vec<Incoming<'_>>> {
    let mut entries = Vec::with_capacity(ENTRIES_MAX);
    while !body.is_empty() {
        if entries.len() >= ENTRIES_MAX {
            return None;
        }
        let (entry, rest) = Entry::take(body)?;
        body = rest;
        entries.push(match entry {
            Entry::Object { version, kind, attributes, key, value } => {
                Incoming::Object { key, value, kind, attributes, version }
            }
            Entry::Tombstone { version, key } => Incoming::Tombstone { key, version },
            Entry::Completion { lease, sequence, key_hash, result } => {
                let completion = Completion { lease, sequence, result };
                Incoming::Completion { key_hash, completion }
            }
        });
    }
    Some(entries)
}

/// Returns the numbers of all migrations, beginning with the one whose slice is next.
fn from_next<T>(all: &BTreeMap<u64, T>, next: u64) -> Vec<u64> {
    all.range(next..).chain(all.range(..next)).map(|(number, _)| *number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_migration_whose_slice_is_next_comes_first_and_all_others_follow() {
        let all = BTreeMap::from([(2, ()), (5, ()), (7, ())]);
        for (next, order) in [(0, [2, 5, 7]), (5, [5, 7, 2]), (6, [7, 2, 5]), (8, [2, 5, 7])] {
            assert_eq!(from_next(&all, next), order, "from {next}");
        }
    }
}
