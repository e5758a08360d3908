//! The coordinator's commands to a shard: take tablets, drop them, rebuild those of a crashed
//! master. And the shard's report about itself.
//!
//! Every command may be repeated. A command for another master is refused as *deposed*: the address
//! belonged to a former generation of the server, or the cluster has declared this one crashed.
//!
//! **Taking** is answered once the log is durable as far as it was appended: so a master that has
//! tablets has a log of which a recovery finds the first head.
//!
//! **Dropping** takes whole tablets, as this shard has them. The coordinator may have split one
//! since, because it splits only its own records: its tablets are then parts of one of these. All
//! parts of one have to be dropped in one message. A message that names only a part is refused as a
//! bad range, before any tablet is dropped. A part of a tablet goes only at the end of a migration,
//! and its remains are cleared away over several turns ([`crate::migration`]).

use crate::coordinator_client::{CoordinatorReply, QuestionId};
use crate::migration::{EarlierCopy, Migrations};
use crate::owner::Owner;
use crate::parked::Answer;
use crate::recovery::{AnswerEffect, Recoveries};
use crate::refusal::Refusal;
use crate::replication::{AdoptedReplicas, OwnBackup};
use crate::shard::Shard;
use crate::table_options::OptionsOfTables;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use thunderhead_log::{Cursor, Error};
use thunderhead_rpc::{CallError, CallId, Context, Opcode, ReplyTo, Request};
use thunderhead_runtime::Time;
use thunderhead_runtime::slice::Budget;
use thunderhead_wire::control::{
    self, Empty, MigrateOut, MigratedTablets, MigrationBegin, Owned, Recover, STATUS_TABLETS_MAX,
    ShardStatus, ShardStatusOf, TabletStatus, Tablets,
};
use thunderhead_wire::{KeyHash, MasterId, SegmentId, Status, TableId, TabletRange, migration};

/// Microseconds that the coordinator waits if something is in the way.
const IN_PROGRESS_US: u32 = 50_000;
const BUSY_US: u32 = 1_000;
const NO_SPACE_US: u32 = 100_000;

/// The cost of a message of a migration, for each byte: most of it is for the index, an object of
/// 100 bytes after the other. A turn takes one full message.
const MIGRATED_BYTE: Duration = Duration::from_nanos(10);

/// The cost of a piece that a recovery fetches. The network copies it, and it is copied again into
/// memory that is touched for the first time. A turn takes one full piece.
const FETCHED_KILOBYTE: Duration = Duration::from_nanos(1100);

/// The cost of the search for records without a tablet in a bucket.
const SWEEPING: Duration = Duration::from_micros(5);

/// The maximum number of remarks, and how long they stay: they are about past events.
const REMARKS_MAX: usize = 16;
const REMARKS_STAY: Duration = Duration::from_secs(10 * 60);

/// Work that goes on over turns.
#[derive(Default)]
pub(crate) struct Control {
    recoveries: Recoveries,
    /// The position of the search for records without tablets.
    sweep: Option<Cursor>,
    /// The last slice forgot records that are no longer needed.
    has_forgotten: bool,
    /// Migrations and the clearing of segments used up the last slice. The other work comes first
    /// in the next one.
    has_waited: bool,
    /// When the timer goes off.
    wakes_at: Option<Time>,
    /// Remarks, with the times at which they were made.
    remarks: VecDeque<(Time, String)>,
    /// The highest version of the map at which the coordinator told this master to drop tablets.
    dropped_at: u64,
    pub(crate) migrations: Migrations,
    /// The options of tables.
    pub(crate) options: OptionsOfTables,
}

impl Control {
    /// The refusal for a key whose tablet is in the log but must not be served yet.
    #[inline(always)]
    pub(crate) fn closed(&self, table: TableId, key: &[u8]) -> Option<Refusal> {
        if self.moves_nothing() { None } else { self.closed_key(table, key) }
    }

    #[cold]
    fn closed_key(&self, table: TableId, key: &[u8]) -> Option<Refusal> {
        self.closed_hash(table, KeyHash::of(key))
    }

    /// Whether no tablet comes or goes, so that all tablets of the log are served.
    #[inline(always)]
    pub(crate) fn moves_nothing(&self) -> bool {
        self.recoveries.count() | self.migrations.count() == 0
    }

    /// Whether also no table has options: most shards take the short way. The counts are joined
    /// bit by bit, because one branch is faster than several.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.recoveries.count() | self.migrations.count() | self.options.count() == 0
    }

    /// The refusal for an update of a key that is not served, or whose tablet goes to another
    /// master and has more changes than can be sent.
    #[cold]
    pub(crate) fn refusal_of_update(&self, table: TableId, key: &[u8]) -> Option<Refusal> {
        let closed = self.closed_hash(table, KeyHash::of(key));
        closed.or_else(|| self.migrations.holds_back(table, key))
    }

    pub(crate) fn closed_hash(&self, table: TableId, hash: KeyHash) -> Option<Refusal> {
        if self.recoveries.hides(table, hash) {
            return Some(Status::Moved.into());
        }
        self.migrations.closed(table, hash)
    }

    /// Whether a tablet must not be served because it is not here yet.
    pub(crate) fn hides_tablet(&self, range: TabletRange) -> bool {
        self.recoveries.hides(range.table, range.first) || self.migrations.hides_tablet(range)
    }

    /// Whether a recovery or a migration is about to bring keys of a range, or does so now.
    fn awaits(&self, range: TabletRange) -> bool {
        self.recoveries.brings(range) || self.migrations.hides_tablet(range)
    }

    fn remark(&mut self, now: Time, remark: String) {
        // A repeated failure is reported once.
        self.remarks.retain(|(_, known)| *known != remark);
        self.remarks.push_back((now, remark));
        while self.remarks.len() > REMARKS_MAX {
            self.remarks.pop_front();
        }
    }

    /// Takes the outcome of a call by which a recovery fetches a piece.
    pub(crate) fn on_fetch_reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        if self.recoveries.reply(context, call, outcome) {
            let bytes = outcome.map_or(0, <[u8]>::len);
            context.charge(FETCHED_KILOBYTE * (bytes / 1024) as u32);
        }
    }

    /// Handles the timer of its work. The end of the turn does the work.
    pub(crate) fn on_timer(&mut self) {
        self.wakes_at = None;
    }

    /// Drops remarks about events of long ago.
    fn drop_old_remarks(&mut self, now: Time) {
        self.remarks.retain(|(at, _)| now.since(*at) < REMARKS_STAY);
    }
}

impl Shard {
    pub(crate) fn control(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        let refused = match opcode {
            Opcode::ShardStatus => {
                self.control.drop_old_remarks(context.now());
                // Any other body asks for all of it.
                let asked = control::of_body::<ShardStatusOf>(body).unwrap_or_default();
                let status = if asked.is_brief { self.brief_status() } else { self.status() };
                return context.reply(reply_to, &[&control::to_body(&status)]);
            }
            Opcode::TakeTablets => self.take_tablets(context, body, reply_to),
            Opcode::DropTablets => self.drop_tablets(context, body, reply_to),
            Opcode::Recover => self.recover(context, body, reply_to),
            Opcode::MigrateOut => self.migrate_out(context, body, reply_to),
            Opcode::MigrateIn => self.migrate_in(context, body, reply_to),
            _ => Err(Status::UnknownOpcode.into()),
        };
        if let Err(Refusal { status, hint_us }) = refused {
            context.refuse(reply_to, status, hint_us, &[]);
        }
    }

    fn check_master(&self, meant: MasterId) -> Result<(), Refusal> {
        if self.master == Some(meant) { Ok(()) } else { Err(Status::Deposed.into()) }
    }

    fn tablets(&self, body: &[u8]) -> Result<(Vec<TabletRange>, u64), Refusal> {
        let Tablets { master, tablets, map_version, .. } =
            control::of_body(body).ok_or(Status::Malformed)?;
        self.check_master(master)?;
        if tablets.iter().any(|range| range.first > range.last) {
            return Err(Status::BadRange.into());
        }
        Ok((tablets, map_version))
    }

    /// Sends an empty answer once the log is durable.
    fn done(&mut self, context: &mut Context<'_>, reply_to: ReplyTo) {
        let answer = Answer::new(Status::Ok, 0, &control::to_body(&Empty {}));
        self.answer_at(context, self.log.appended(), reply_to, answer);
    }

    fn take_tablets(
        &mut self,
        context: &mut Context<'_>,
        body: &[u8],
        reply_to: ReplyTo,
    ) -> Result<(), Refusal> {
        if let Some(message) = control::of_body::<MigratedTablets>(body) {
            return self.migrated(context, Opcode::TakeTablets, &message, reply_to);
        }
        let (ranges, map_version) = self.tablets(body)?;
        // The network may have held this message while a tablet moved away from here or its table
        // was dropped. It would bring the tablet back, empty, and clients with an old map would
        // write to it. If the command is still meant, the coordinator sends it again, with the
        // present version.
        if map_version != 0 && map_version < self.control.dropped_at {
            return Err(Refusal::with_hint(Status::InProgress, IN_PROGRESS_US));
        }
        if ranges.iter().any(|range| self.control.awaits(*range)) {
            return Err(Refusal::with_hint(Status::InProgress, IN_PROGRESS_US));
        }
        // All or none: the coordinator gives the refused tablets to other masters. A tablet that
        // stayed here would be in the way when it comes back.
        match self.log.create_tablets(&ranges) {
            Ok(()) => {}
            Err(Error::TabletExists(_) | Error::RangeReversed(_)) => {
                return Err(Status::BadRange.into());
            }
            Err(Error::MemoryFull { .. }) => {
                return Err(Refusal::with_hint(Status::NoSpace, NO_SPACE_US));
            }
            Err(_) => {
                self.cleaning.is_urgent = true;
                return Err(Refusal::with_hint(Status::AwaitingMemory, BUSY_US));
            }
        }
        if let Some(Tablets { options, .. }) = control::of_body(body) {
            self.control.options.learn(&options, &mut self.log);
        }
        self.done(context, reply_to);
        Ok(())
    }

    fn drop_tablets(
        &mut self,
        context: &mut Context<'_>,
        body: &[u8],
        reply_to: ReplyTo,
    ) -> Result<(), Refusal> {
        if let Some(message) = control::of_body::<MigratedTablets>(body) {
            return self.migrated(context, Opcode::DropTablets, &message, reply_to);
        }
        let (mut parts, map_version) = self.tablets(body)?;
        self.control.dropped_at = self.control.dropped_at.max(map_version);
        parts.sort_unstable();
        let tablets = self.log.tablets().map(|(range, _)| range);
        let meant: Vec<TabletRange> =
            tablets.filter(|tablet| parts.iter().any(|part| part.overlaps(tablet))).collect();
        if parts.iter().any(|part| self.control.awaits(*part)) {
            return Err(Refusal::with_hint(Status::InProgress, IN_PROGRESS_US));
        }
        if !meant.iter().all(|tablet| covers(&parts, *tablet)) {
            return Err(Status::BadRange.into());
        }
        for tablet in meant {
            self.log.drop_tablet(tablet);
            self.control.sweep = Some(Cursor::default());
        }
        self.control.options.forget_absent(&mut self.log);
        self.done(context, reply_to);
        Ok(())
    }

    fn migrate_out(
        &mut self,
        context: &mut Context<'_>,
        body: &[u8],
        reply_to: ReplyTo,
    ) -> Result<(), Refusal> {
        let task: MigrateOut = control::of_body(body).ok_or(Status::Malformed)?;
        self.check_master(task.master)?;
        let migrated = self.control.migrations.go(&self.log, task, context.now())?;
        context.reply(reply_to, &[&control::to_body(&migrated)]);
        Ok(())
    }

    fn migrate_in(
        &mut self,
        context: &mut Context<'_>,
        body: &[u8],
        reply_to: ReplyTo,
    ) -> Result<(), Refusal> {
        let (head, body) = migration::Head::take(body).ok_or(Status::Malformed)?;
        self.check_master(head.master)?;
        let Shard { control, log, clients, .. } = self;
        if head.kind == migration::Kind::Begin
            && let Some(MigrationBegin { range }) = control::of_body(body)
            && !control.migrations.knows(head.migration)
        {
            if control.recoveries.brings(range) {
                return Err(Refusal::with_hint(Status::InProgress, IN_PROGRESS_US));
            }
            if control.migrations.throw_away_earlier(log, head.migration, range) {
                control.sweep = Some(Cursor::default());
                context.alarm().ring();
            }
            if control.sweep.is_some() {
                return Err(Refusal::with_hint(Status::Busy, BUSY_US));
            }
        }
        let came = control.migrations.come(log, clients, head, body, context.now());
        let (until, answer) = came.inspect_err(|refusal| {
            self.cleaning.is_urgent |= refusal.status == Status::AwaitingMemory;
        })?;
        context.charge(MIGRATED_BYTE * body.len() as u32);
        self.answer_at(context, until, reply_to, Answer::new(Status::Ok, 0, &answer));
        Ok(())
    }

    /// The end of a migration, on either side.
    fn migrated(
        &mut self,
        context: &mut Context<'_>,
        opcode: Opcode,
        message: &MigratedTablets,
        reply_to: ReplyTo,
    ) -> Result<(), Refusal> {
        self.check_master(message.master)?;
        let Control { migrations, dropped_at, options, .. } = &mut self.control;
        if opcode == Opcode::TakeTablets {
            options.learn(&message.options, &mut self.log);
            if let Some(range) = migrations.serve(message.migration)? {
                self.clients.owned(&mut self.log, &[range], message.since);
                self.leases.begin_anew();
            }
        } else {
            *dropped_at = (*dropped_at).max(message.since.map_version);
            if migrations.drop(&mut self.log, message.migration)? {
                self.control.sweep = Some(Cursor::default());
            }
        }
        self.control.options.forget_absent(&mut self.log);
        self.done(context, reply_to);
        Ok(())
    }

    fn recover(
        &mut self,
        context: &mut Context<'_>,
        body: &[u8],
        reply_to: ReplyTo,
    ) -> Result<(), Refusal> {
        let mut task: Recover = control::of_body(body).ok_or(Status::Malformed)?;
        self.check_master(task.master)?;
        task.tablets.sort_unstable_by_key(|taken| taken.range);
        if task.tablets.iter().any(|taken| taken.range.first > taken.range.last) {
            return Err(Status::BadRange.into());
        }
        // A master that had tablets had a log.
        if task.segments.is_empty() {
            return Err(Status::Malformed.into());
        }
        let Shard { control, log, clients, options, .. } = self;
        if !control.recoveries.knows(&task) {
            if control.recoveries.make_way(log, clients, &task)? {
                control.sweep = Some(Cursor::default());
            }
            for taken in &task.tablets {
                match control.migrations.make_way(log, taken.range) {
                    EarlierCopy::Free => {}
                    // Before anything is rebuilt: see `sweep`.
                    EarlierCopy::ThrownAway => control.sweep = Some(Cursor::default()),
                    EarlierCopy::Complete => {
                        return Err(Refusal::with_hint(Status::InProgress, IN_PROGRESS_US));
                    }
                }
            }
            control.recoveries.begin(task, *options, context.now());
            context.alarm().ring();
        }
        context.reply(reply_to, &[&control::to_body(&Empty {})]);
        Ok(())
    }

    /// Returns the shard's report about itself.
    #[must_use]
    pub fn status(&self) -> ShardStatus {
        let tablets = self.log.statistics().filter(|it| !self.control.hides_tablet(it.tablet));
        let mut tablets: Vec<TabletStatus> = tablets
            .map(|it| TabletStatus { range: it.tablet, objects: it.objects, bytes: it.bytes })
            .collect();
        let objects = tablets.iter().map(|it| it.objects).sum();
        let tablets_left = tablets.len().saturating_sub(STATUS_TABLETS_MAX) as u64;
        tablets.truncate(STATUS_TABLETS_MAX);
        let has_taken_back = self.control.recoveries.has_taken_back();
        let inherited = has_taken_back.then(|| self.log.inherited_segments().collect());
        ShardStatus { objects, tablets, tablets_left, inherited, ..self.brief_status() }
    }

    /// The same without lists and without sums over tablets.
    fn brief_status(&self) -> ShardStatus {
        let usage = self.log.usage();
        let memory_bytes = usage.log_bytes + usage.index_bytes;
        let statistics = self.statistics();
        let control = &self.control;
        let mut remarks: Vec<String> = control.remarks.iter().map(|(_, it)| it.clone()).collect();
        let replication = self.replication.as_ref().map(|driver| &driver.replication);
        remarks.extend(replication.into_iter().flat_map(|it| it.remarks()));
        let recovering = control.recoveries.progress();
        let coming = recovering.map_or(0, |(done, all)| all.saturating_sub(done));
        ShardStatus {
            master: self.master.unwrap_or_default(),
            memory_bytes,
            used_bytes: memory_bytes.saturating_sub(usage.free_bytes),
            live_bytes: usage.live_bytes,
            room_bytes: Some(self.log.room_bytes().saturating_sub(coming)),
            reads: statistics.reads,
            updates: statistics.updates,
            records: statistics.records as u64,
            at_risk: replication.and_then(|it| it.at_risk()),
            segments_short: replication.map_or(0, |it| it.statistics().segments_short),
            recovering,
            remarks,
            ..ShardStatus::default()
        }
    }

    /// Takes the outcome of a call to a coordinator, and gives an answer to its asker.
    pub(crate) fn on_coordinator_reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        let reply = self.coordinator.reply(context, call, outcome);
        let CoordinatorReply::Answered { asker, question, answer } = reply else { return };
        match Owner::of(asker) {
            Some(Owner::Replication) => {
                if let Some(driver) = &mut self.replication {
                    driver.answered(context.now(), question, &answer);
                }
            }
            Some(Owner::Leases) => self.leases.answered(&mut self.clients, question, &answer),
            Some(Owner::Recovery) => self.on_recovery_answered(context, question, &answer),
            // They ask nothing.
            Some(
                Owner::Coordinator | Owner::Migration | Owner::Work | Owner::Parked | Owner::Expiry,
            )
            | None => {}
        }
    }

    /// Handles the coordinator's answer to the report of a recovery.
    fn on_recovery_answered(
        &mut self,
        context: &mut Context<'_>,
        question: QuestionId,
        answer: &Result<Vec<u8>, CallError>,
    ) {
        let Shard { control, log, clients, leases, .. } = self;
        // Before it serves the tablets.
        if let Ok(body) = answer
            && let Some(Owned { options, .. }) = control::of_body(body)
        {
            control.options.learn(&options, log);
        }
        let answered = control.recoveries.answered(log, clients, question, answer, context.now());
        if answered != AnswerEffect::NotOurs {
            leases.begin_anew();
        }
        self.see_to_adopted();
        if answered == AnswerEffect::Parted {
            self.control.sweep = Some(Cursor::default());
            context.alarm().ring();
        }
    }

    /// Maintains the replicas of adopted segments, and gives the segments to the cleaners, once the
    /// log is this shard's.
    fn see_to_adopted(&mut self) {
        let replicas = self.control.recoveries.take_adopted_replicas();
        if replicas.is_empty() {
            return;
        }
        let lengths: BTreeMap<SegmentId, u32> = self.log.adopted_segments().collect();
        let with_length = |adopted: AdoptedReplicas| {
            let length = lengths.get(&adopted.segment).copied()?;
            Some((adopted, length))
        };
        let replicas = replicas.into_iter().filter_map(with_length).collect();
        if let Some(driver) = &mut self.replication {
            driver.replication.adopt(replicas);
        }
        self.log.release_adopted();
    }

    /// Begins a check of all leases, and sets the timer for the next one.
    pub(crate) fn on_leases_timer(&mut self, context: &mut Context<'_>) {
        self.leases.begin_round();
        self.watch_expiry(context);
        let at = context.now() + self.options.check_leases_every;
        context.set_timer(at, Owner::Leases);
    }

    /// Does a slice of the work that goes on over turns.
    pub(crate) fn control_turn_over(&mut self, context: &mut Context<'_>, own: OwnBackup<'_>) {
        if !self.trusts {
            self.leases.ask(context, &mut self.coordinator, &mut self.clients);
        }
        // Records that are no longer needed go while no client waits for an answer.
        self.clients.sort_out(&mut self.log);
        let is_busy = std::mem::take(&mut self.has_updated);
        let control = &self.control;
        let is_clearing = self.log.has_to_clear();
        if !control.recoveries.has_work()
            && control.sweep.is_none()
            && control.migrations.is_idle()
            && !is_clearing
            && !self.clients.has_unneeded(is_busy)
        {
            return;
        }
        let mut budget = context.slice();
        self.work(context, &mut budget, own, is_clearing, is_busy);
        context.count_work(budget.spent());
    }

    fn work(
        &mut self,
        context: &mut Context<'_>,
        budget: &mut Budget,
        own: OwnBackup<'_>,
        is_clearing: bool,
        is_busy: bool,
    ) {
        // A tablet that comes may have objects that expire.
        self.watch_expiry(context);
        let has_waited = std::mem::take(&mut self.control.has_waited);
        if !self.control.migrations.is_idle() {
            if has_waited {
                context.alarm().ring();
            } else {
                self.work_on_migrations(context, budget);
            }
        }
        if is_clearing {
            while budget.has_time() && self.log.clear_some() {
                budget.spend(SWEEPING);
            }
            if self.log.has_to_clear() {
                context.alarm().ring();
            }
        }
        if !budget.has_time() {
            self.control.has_waited = true;
            context.alarm().ring();
            return;
        }
        let control = &self.control;
        // Writing clients steadily make records that are no longer needed: every other slice
        // forgets them.
        let is_idle = !control.recoveries.has_work() && control.sweep.is_none();
        let forgets = self.clients.has_unneeded(is_busy) && (is_idle || !control.has_forgotten);
        let sweeps = control.sweep.is_some();
        self.control.has_forgotten = forgets;
        if forgets {
            self.clients.forget(&mut self.log, budget);
        } else if sweeps {
            self.sweep(budget);
        } else {
            self.work_on_recoveries(context, budget, own);
        }
        let control = &self.control;
        if self.clients.has_unneeded(true)
            || control.sweep.is_some()
            // The recoveries may have wanted the slice that other work took.
            || (control.recoveries.has_work() && (forgets || sweeps))
        {
            context.alarm().ring();
        }
    }

    /// Forgets records of tablets that are not here.
    ///
    /// No tablet begins to come before this is over, neither from a log nor from another server.
    /// The remains of an earlier stay of the tablet would otherwise hide its records: the shard
    /// would not record an update that it knows already. But the remains are from before the
    /// tablet's present stay, and the next recovery would pass them over.
    fn sweep(&mut self, budget: &mut Budget) {
        while let Some(at) = self.control.sweep {
            let clients = &mut self.clients;
            self.control.sweep = self
                .log
                .forget_homeless_completions(at, |lease, sequence| clients.lost(lease, sequence));
            if !budget.spend(SWEEPING) {
                return;
            }
        }
    }

    fn work_on_migrations(&mut self, context: &mut Context<'_>, budget: &mut Budget) {
        let Shard { control, log, options, .. } = self;
        let worked = control.migrations.work(context, log, budget, options);
        let now = context.now();
        worked.remarks.into_iter().for_each(|remark| control.remark(now, remark));
        if worked.sweep {
            control.sweep = Some(Cursor::default());
        }
        if worked.again {
            context.alarm().ring();
        }
        if worked.wake != Time::NEVER {
            wake(&mut control.wakes_at, context, worked.wake);
        }
    }

    fn work_on_recoveries(
        &mut self,
        context: &mut Context<'_>,
        budget: &mut Budget,
        own: OwnBackup<'_>,
    ) {
        let Shard { control, log, clients, coordinator, cleaning, .. } = self;
        if !control.recoveries.has_work() {
            return;
        }
        let worked = control.recoveries.work(context, log, clients, coordinator, budget, own);
        cleaning.is_urgent |= worked.is_short;
        for failure in worked.failures {
            control.remark(context.now(), failure);
            control.sweep = Some(Cursor::default());
        }
        if worked.again {
            context.alarm().ring();
        }
        if worked.wake != Time::NEVER {
            wake(&mut control.wakes_at, context, worked.wake);
        }
    }
}

/// Sets the timer for a turn at this time, or before.
fn wake(wakes_at: &mut Option<Time>, context: &mut Context<'_>, at: Time) {
    if wakes_at.is_none_or(|before| at < before) {
        *wakes_at = Some(at);
        context.set_timer(at, Owner::Work);
    }
}

/// Whether parts, sorted, make up a tablet between them.
fn covers(parts: &[TabletRange], tablet: TabletRange) -> bool {
    let mut next = Some(tablet.first);
    for part in parts.iter().filter(|part| part.overlaps(&tablet)) {
        match next {
            Some(at) if part.first <= at && at <= part.last => {
                next = part.last.0.checked_add(1).map(KeyHash).filter(|at| *at <= tablet.last);
            }
            _ => {}
        }
    }
    next.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_on_what_happened_are_told_once_and_for_a_while() {
        let mut control = Control::default();
        let at = |seconds| Time(0) + Duration::from_secs(seconds);
        for number in 0..3 * REMARKS_MAX {
            control.remark(at(0), format!("{}", number % (REMARKS_MAX + 1)));
        }
        assert_eq!(control.remarks.len(), REMARKS_MAX);
        control.remark(at(300), "again".to_owned());
        control.remark(at(301), "again".to_owned());
        control.drop_old_remarks(at(600));
        assert_eq!(control.remarks, [(at(301), "again".to_owned())]);
        control.drop_old_remarks(at(901));
        assert!(control.remarks.is_empty());
    }

    #[test]
    fn parts_make_up_a_tablet_or_do_not() {
        let range = |first: u64, last: u64| TabletRange {
            table: TableId(1),
            first: KeyHash(first),
            last: KeyHash(last),
        };
        let whole = range(0, u64::MAX);
        assert!(covers(&[whole], whole) && covers(&[whole], range(3, 3)));
        assert!(covers(&[range(0, 5), range(6, u64::MAX)], whole));
        assert!(covers(&[range(0, 5), range(2, 3), range(4, u64::MAX)], whole));
        assert!(!covers(&[range(0, 5), range(7, u64::MAX)], whole));
        assert!(!covers(&[range(1, u64::MAX)], whole) && !covers(&[range(0, 8)], whole));
        assert!(!covers(&[TabletRange { table: TableId(2), ..whole }], whole));
    }
}
