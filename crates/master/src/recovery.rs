//! Rebuilds a partition of the tablets of a crashed master.
//!
//! The coordinator has determined the segments of the log, has checked that they are complete, and
//! knows which backups have them. The backups cut them by partitions. The remaining stages:
//!
//! ```text
//!  beginning   the tablets are made, and hidden
//!  replaying   the partition's part of each segment is fetched, many at once, and replayed in
//!              slices in the order of arrival; damaged parts are fetched from another backup
//!  finishing   the replayed entries join the log once they are replicated; the versions that the
//!              replay found are logged
//!  durable     ... and the shard waits until all its appended entries are durable
//!  telling     the shard reports to the coordinator, until it answers
//! ```
//!
//! Only then are the tablets served. While they are rebuilt, the shard serves its other tablets as
//! usual, and refuses requests for these so that the client looks elsewhere. [`Recoveries`] runs
//! several at once.
//!
//! **An incomplete partition is not used.** If no backup can give the partition's part of a
//! segment, or if memory is too short, the shard drops the rebuilt tablets and tells the
//! coordinator the reason. A backup that does not know this recovery has no part of it to give: so
//! a recovery ends when a later one has taken its place.
//!
//! # Where the bytes go
//!
//! Replayed entries go into *side segments*: segments beside the shard's log, which become part of
//! it all together ([`Rebuild::begin_in_side_log`]). Each is replicated when it is full, several at
//! a time, and clients' writes do not wait for them. Replay stays at most
//! [`BESIDE_BYTES_MAX`](recoveries) ahead of the replicas, so that a shard does not take all
//! buffers of its backups. A failed recovery frees its side segments at once.
//!
//! Completion records go into the head. So does everything if the shard takes a log back: then it
//! replays only the open segments. There, replay stays at most [`AHEAD_BYTES_MAX`](recoveries)
//! ahead, because clients' writes wait behind it.
//!
//! [`Recoveries`]: crate::recovery::Recoveries

mod buffers;
mod failure;
mod fetch;
mod jobs;
mod rebuilt;
mod recoveries;
mod take_back;

pub(crate) use recoveries::Recoveries;

use crate::clients::Clients;
use crate::coordinator_client::{CoordinatorClient, QuestionId};
use crate::options::Options;
use crate::owner::Owner;
use crate::replication::{AdoptedReplicas, OwnBackup};
use buffers::Buffers;
use failure::Failure;
use fetch::FetchEvent;
use jobs::{Job, Jobs};
use std::time::Duration;
use take_back::TakeBack;
use thunderhead_log::inspect::SegmentReader;
use thunderhead_log::{Damage, Error, Log, Rebuild, ReplayError, TakeIn};
use thunderhead_rpc::{CallError, CallId, Context, Opcode};
use thunderhead_runtime::Time;
use thunderhead_runtime::slice::Budget;
use thunderhead_wire::control::{self, Owned, Recover, Recovered, Taken};
use thunderhead_wire::{KeyHash, LogPosition, Status, TableId, TabletRange};

/// The size of one replay step: enough small entries that their cache misses overlap.
const ENTRIES: usize = 32;
const BYTES: usize = 16 << 10;

/// The time to replay an entry and a kilobyte: `thunderhead-bench log replay`.
const ENTRY_NS: u64 = 250;
const KILOBYTE_NS: u64 = 200;

/// How long to wait for the cleaners, and for replicas to be durable if nothing is heard of them.
const MEMORY_WAIT: Duration = Duration::from_micros(200);
const DURABLE_WAIT: Duration = Duration::from_millis(5);

/// How long to wait before the coordinator is told again after a refusal that says nothing about
/// the tablets.
const TELL_AGAIN_WAIT: Duration = Duration::from_millis(500);

/// The shard waits this many times longer for busy backups than for silent ones.
const BUSY_PATIENCE: u32 = 6;

/// The longest text of a failure.
const FAILURE_BYTES_MAX: usize = 2000;

/// The next need of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another slice at once.
    Again,
    /// To be called at this time, if nothing is heard before.
    At(Time),
    /// To be called when something is heard.
    Wait,
    /// It is over.
    Over,
}

/// The resources for a slice of work.
pub(crate) struct RecoveryResources<'a> {
    pub(crate) log: &'a mut Log,
    pub(crate) clients: &'a mut Clients,
    pub(crate) coordinator: &'a mut CoordinatorClient,
    pub(crate) budget: &'a mut Budget,
    /// Bytes that may be fetched and not replayed yet.
    pub(crate) memory_bytes: usize,
    /// The backups have everything that was replayed before, or nearly.
    pub(crate) may_replay: bool,
    /// When more of the log became durable last.
    pub(crate) durable_moved: Time,
    /// Buffers for fetched bytes.
    buffers: &'a mut Buffers,
    /// The backup of the same process.
    pub(crate) own: OwnBackup<'a>,
}

/// The effect of the coordinator's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerEffect {
    /// The answer was not for this recovery.
    NotOurs,
    /// All tablets are here, or none of them was.
    Whole,
    /// Some tablets are gone: their records are still here.
    Parted,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Beginning,
    MakingRoom,
    Replaying,
    Finishing,
    Durable(LogPosition),
    Telling(QuestionId),
    /// The coordinator is told again at this time: it may have written the outcome already.
    TellingAgain(Time),
    Over,
}

/// Whether a refusal of a report says that the tablets are not this shard's.
fn is_verdict(error: &CallError) -> bool {
    matches!(error, CallError::Refused { status: Status::Deposed | Status::BadRange, .. })
}

/// See the module's documentation.
pub(crate) struct Recovery {
    /// Its tablets in their order; without its segments, which the jobs have.
    task: Recover,
    options: Options,
    /// The turn that brought the task. Reading the task took time of it, and the first calls may
    /// open connections, so the work begins in the next turn.
    told: Time,
    /// When it last made progress, and when it last heard that it will.
    last_progress: Time,
    last_heard: Time,
    jobs: Jobs,
    stage: Stage,
    rebuild: Option<Rebuild>,
    /// The log is that of the shard's previous generation.
    back: Option<TakeBack>,
    /// The tablets are in the log.
    has_tablets: bool,
    /// Why it failed.
    failure: Option<String>,
    /// A report was refused with a status that is no verdict. It is logged once.
    is_not_understood: bool,
    /// Memory is short.
    pub(crate) waits_for_cleaners: bool,
    /// Replay waits only for the replicas of earlier replayed entries.
    is_held: bool,
    replayed_bytes: u64,
}

impl Recovery {
    /// Returns a recovery. `was_rebuilt`: a part of the log was rebuilt here before.
    pub(crate) fn new(
        mut task: Recover,
        was_rebuilt: bool,
        options: Options,
        now: Time,
    ) -> Recovery {
        let back = TakeBack::of(&mut task, was_rebuilt);
        Recovery {
            back,
            jobs: Jobs::new(std::mem::take(&mut task.segments)),
            task,
            options,
            last_progress: now,
            last_heard: now,
            told: now,
            stage: Stage::Beginning,
            rebuild: None,
            has_tablets: false,
            failure: None,
            is_not_understood: false,
            waits_for_cleaners: false,
            is_held: false,
            replayed_bytes: 0,
        }
    }

    /// The task, without its segments.
    pub(crate) fn task(&self) -> &Recover {
        &self.task
    }

    /// Whether a key belongs to a tablet that is in the log but must not be served yet.
    pub(crate) fn hides(&self, table: TableId, hash: KeyHash) -> bool {
        let tablets = &self.task.tablets;
        let is_before = |it: &Taken| (it.range.table, it.range.first) <= (table, hash);
        let at = tablets.partition_point(is_before).checked_sub(1);
        let taken = at.and_then(|at| tablets.get(at));
        self.has_tablets && taken.is_some_and(|it| it.range.contains(table, hash))
    }

    /// Bytes replayed, and the expected total.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.replayed_bytes, self.jobs.bytes_expected().max(self.replayed_bytes))
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Why it failed, if it did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Takes the reply to a call. Returns true if this recovery made the call.
    pub(crate) fn reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) -> bool {
        let event = self.jobs.reply(context, call, outcome);
        self.on_fetch_event(event, context.now());
        event != FetchEvent::NotOurs
    }

    fn on_fetch_event(&mut self, event: FetchEvent, now: Time) {
        match event {
            FetchEvent::Progress => (self.last_progress, self.last_heard) = (now, now),
            FetchEvent::Busy => self.last_heard = now,
            FetchEvent::NotOurs | FetchEvent::Silence(_) | FetchEvent::Setback => {}
        }
    }

    /// Whether it has reported completion to the coordinator and has no answer yet.
    pub(crate) fn may_be_taken(&self) -> bool {
        matches!(self.stage, Stage::Telling(_) | Stage::TellingAgain(_)) && self.failure.is_none()
    }

    /// A question to the coordinator was answered.
    pub(crate) fn answered(
        &mut self,
        log: &mut Log,
        clients: &mut Clients,
        question: QuestionId,
        outcome: &Result<Vec<u8>, CallError>,
        now: Time,
    ) -> AnswerEffect {
        if self.stage != Stage::Telling(question) {
            return AnswerEffect::NotOurs;
        }
        let mut answered = AnswerEffect::Whole;
        match outcome {
            // Only a verdict says that the tablets are not this shard's. Another refusal may come
            // from a program of another version, or from a server, after a coordinator has written
            // that the tablets are here.
            Err(error) if !is_verdict(error) => {
                if !std::mem::replace(&mut self.is_not_understood, true) {
                    let Recover { master, crashed, partition, .. } = self.task;
                    tracing::warn!(
                        %master, %crashed, partition, %error,
                        "the report of a recovery gets no verdict, and is sent again until it gets one"
                    );
                }
                self.stage = Stage::TellingAgain(now + TELL_AGAIN_WAIT);
                return answered;
            }
            Err(error) if self.failure.is_none() => {
                let why = format!("the coordinator refuses the rebuilt tablets: {error}");
                self.failure = Some(why);
                self.drop_tablets(log, clients);
            }
            // The coordinator has received the failure.
            _ if self.failure.is_some() => {}
            Err(_) => {}
            Ok(body) => {
                let Some(owned) = control::of_body(body) else {
                    // The shard owns the tablets, but without their numbers it may serve none of
                    // them: it reports again.
                    self.stage = Stage::Durable(log.durable());
                    return answered;
                };
                if self.begin_to_serve(log, clients, &owned) {
                    answered = AnswerEffect::Parted;
                }
            }
        }
        self.stage = Stage::Over;
        self.has_tablets = false;
        answered
    }

    /// Logs its progress for an operator.
    fn says(&self, what: &str) {
        let Recover { master, crashed, recovery, partition, .. } = self.task;
        let mib = self.replayed_bytes >> 20;
        tracing::info!(%master, %crashed, recovery = recovery.0, partition, mib, "{what}");
    }

    /// Begins to serve the tablets, except the tablets that the coordinator names as gone.
    /// Returns true if any is gone.
    fn begin_to_serve(&self, log: &mut Log, clients: &mut Clients, owned: &Owned) -> bool {
        self.says("the part is served");
        let mut has_dropped = false;
        for range in &owned.not_yours {
            let is_around = |taken: &&Taken| {
                let TabletRange { table, first, last } = taken.range;
                table == range.table && first <= range.first && range.last <= last
            };
            if self.has_tablets && self.task.tablets.iter().any(|it| is_around(&it)) {
                has_dropped |= log.cut_tablet(*range);
            }
        }
        let ranges: Vec<TabletRange> = self.task.tablets.iter().map(|it| it.range).collect();
        clients.owned(log, &ranges, owned.since);
        has_dropped
    }

    /// Drops all of it.
    pub(crate) fn drop_tablets(&mut self, log: &mut Log, clients: &mut Clients) {
        let rebuild = self.rebuild.take();
        if std::mem::take(&mut self.has_tablets) {
            for taken in &self.task.tablets {
                log.drop_tablet(taken.range);
            }
        }
        match (&mut self.back, rebuild) {
            (Some(back), rebuild) => back.abandon(rebuild, log, clients),
            (None, Some(rebuild)) => rebuild.give_up(log),
            (None, None) => {}
        }
    }

    /// Returns the places of the replicas of adopted segments, once the log is this shard's.
    pub(crate) fn take_adopted_replicas(&mut self) -> Vec<AdoptedReplicas> {
        let is_ours = self.is_over() && self.failure.is_none();
        self.back.as_mut().filter(|_| is_ours).map_or(Vec::new(), TakeBack::take_adopted_replicas)
    }

    /// Works for as long as the budget lasts.
    pub(crate) fn work(
        &mut self,
        context: &mut Context<'_>,
        resources: &mut RecoveryResources<'_>,
    ) -> Next {
        let now = context.now();
        if self.told == now {
            return Next::Again;
        }
        self.waits_for_cleaners = false;
        let mut wake = Time::NEVER;
        if matches!(self.stage, Stage::Beginning | Stage::MakingRoom | Stage::Replaying) {
            let timeout = self.options.backup_timeout;
            let events;
            (wake, events) = self.jobs.ask(
                context,
                &self.task,
                timeout,
                resources.memory_bytes,
                resources.buffers,
                &mut resources.own,
            );
            events.into_iter().for_each(|event| self.on_fetch_event(event, now));
        }
        let next = match self.stage {
            Stage::Beginning => self.begin(resources.log, now),
            Stage::MakingRoom => Ok(self.make_room(resources.log)),
            Stage::Replaying => self.replay(resources, now),
            Stage::Finishing => self.finish(resources.log, now),
            Stage::Durable(position) if resources.log.durable() >= position => {
                self.says("everything is durable, the coordinator is told");
                self.tell_done(context, resources);
                Ok(Next::Wait)
            }
            Stage::Durable(_) => Ok(Next::At(now + DURABLE_WAIT)),
            Stage::Telling(_) => Ok(Next::Wait),
            Stage::TellingAgain(at) if now < at => Ok(Next::At(at)),
            Stage::TellingAgain(_) => {
                match self.failure.clone() {
                    Some(why) => self.tell(context, resources, Err(why)),
                    None => self.tell_done(context, resources),
                }
                Ok(Next::Wait)
            }
            Stage::Over => return Next::Over,
        };
        let is_held = std::mem::take(&mut self.is_held);
        let waiting = Waiting { now, durable_moved: resources.durable_moved, is_held };
        let next = next.and_then(|next| self.check_patience(waiting, next, &mut wake));
        match next {
            Ok(Next::Wait) if wake != Time::NEVER => Next::At(wake),
            Ok(Next::At(at)) => Next::At(at.min(wake)),
            Ok(next) => next,
            Err(why) => {
                let Recover { crashed, partition, .. } = self.task;
                let mut why =
                    format!("partition {partition} of {crashed} cannot be rebuilt: {why}");
                // For people; there may be a reason for each of many copies.
                why.truncate(why.floor_char_boundary(FAILURE_BYTES_MAX));
                self.drop_tablets(resources.log, resources.clients);
                self.jobs.end(resources.buffers);
                self.failure = Some(why.clone());
                self.tell(context, resources, Err(why));
                Next::Wait
            }
        }
    }

    /// Reports the rebuilt tablets.
    fn tell_done(&mut self, context: &mut Context<'_>, resources: &mut RecoveryResources<'_>) {
        let has = |taken: &Taken| {
            let mut tablets = resources.log.tablets();
            tablets.find(|(range, _)| *range == taken.range)
        };
        let taken = self.task.tablets.iter().filter_map(has);
        let taken = taken.map(|(range, since)| Taken { range, since }).collect();
        self.tell(context, resources, Ok(taken));
    }

    fn tell(
        &mut self,
        context: &mut Context<'_>,
        resources: &mut RecoveryResources<'_>,
        outcome: Result<Vec<Taken>, String>,
    ) {
        let Recover { master, crashed, recovery, partition, .. } = self.task;
        // It may be an earlier recovery that left them.
        let keeps = outcome.is_err() && resources.log.inherited_segments().next().is_some();
        let by = master;
        let recovered = Recovered { crashed, recovery, partition, by, outcome, keeps };
        let body = control::to_body(&recovered);
        let asker = Owner::Recovery;
        let question = resources.coordinator.ask(context, asker, Opcode::Recovered, body);
        self.stage = Stage::Telling(question);
    }

    /// Gives up if no message came for too long.
    fn check_patience(
        &self,
        waiting: Waiting,
        next: Next,
        wake: &mut Time,
    ) -> Result<Next, Failure> {
        let Waiting { now, durable_moved, is_held } = waiting;
        let has_end =
            !matches!(self.stage, Stage::Telling(_) | Stage::TellingAgain(_) | Stage::Over);
        if !has_end || next == Next::Again {
            return Ok(next);
        }
        let patience = self.options.recovery_patience;
        let for_copies = matches!(self.stage, Stage::Finishing) && !self.waits_for_cleaners;
        if for_copies || matches!(self.stage, Stage::Durable(_)) || is_held {
            let until = self.last_progress.max(durable_moved) + patience;
            if now < until {
                *wake = (*wake).min(until);
                return Ok(next);
            }
            return Err(Failure::NoCopies { seconds: patience.as_secs() });
        }
        let busy_until = self.last_progress + patience.saturating_mul(BUSY_PATIENCE);
        let until = (self.last_heard + patience).min(busy_until);
        if now < until {
            *wake = (*wake).min(until);
            return Ok(next);
        }
        let waited = now.0.saturating_sub(self.last_progress.0) / 1_000_000_000;
        if self.waits_for_cleaners {
            return Err(Failure::NoMemoryFreed { seconds: waited });
        }
        let (segment, servers, reasons) = self.jobs.oldest().map_or_else(Default::default, |it| {
            (it.segment.to_string(), it.servers(), it.reasons.clone())
        });
        Err(Failure::Silence { seconds: waited, segment, servers, reasons })
    }

    fn begin(&mut self, log: &mut Log, now: Time) -> Result<Next, Failure> {
        let tablets = self.task.tablets.iter().map(|taken| (taken.range, taken.since));
        let begun = match &self.back {
            Some(back) => {
                back.check()?;
                Rebuild::take_back(log, tablets)
            }
            None => Rebuild::begin_in_side_log(log, tablets),
        };
        match begun {
            Ok(rebuild) => self.rebuild = Some(rebuild),
            Err(error) => return self.short_of_memory(error, now),
        }
        self.has_tablets = true;
        // The shard may have had to remove the remains of an earlier attempt first.
        (self.last_progress, self.last_heard) = (now, now);
        self.stage = Stage::MakingRoom;
        Ok(Next::Again)
    }

    /// Makes room in the indexes for the expected entries, a little at a time.
    fn make_room(&mut self, log: &mut Log) -> Next {
        let (Some(rebuild), Some(next)) = (&self.rebuild, self.task.expected.last()) else {
            self.stage = Stage::Replaying;
            return Next::Again;
        };
        if !rebuild.make_room(log, next.range, next.objects) {
            self.task.expected.pop();
        }
        Next::Again
    }

    fn short_of_memory(&mut self, error: Error, now: Time) -> Result<Next, Failure> {
        match error {
            Error::CleanerBehind => {
                self.waits_for_cleaners = true;
                Ok(Next::At(now + MEMORY_WAIT))
            }
            Error::MemoryFull { .. } => Err(Failure::MemoryFull(error)),
            error => Err(Failure::Log(error)),
        }
    }

    /// Replays the segments that have arrived.
    fn replay(
        &mut self,
        resources: &mut RecoveryResources<'_>,
        now: Time,
    ) -> Result<Next, Failure> {
        loop {
            let Some(rebuild) = &mut self.rebuild else { return Ok(Next::Wait) };
            if self.jobs.is_over()
                && let Some(open) = self.back.as_mut().and_then(TakeBack::then)
            {
                self.jobs = Jobs::new(open);
                self.says("all closed segments are here");
                return Ok(Next::Again);
            }
            if self.jobs.is_over() {
                self.stage = Stage::Finishing;
                self.says("everything is replayed");
                return Ok(Next::Again);
            }
            if let Some(lost) = self.jobs.lost() {
                let reasons = lost.reasons.clone();
                return Err(Failure::Lost { segment: lost.segment, reasons });
            }
            let mut back = self.back.as_mut().filter(|back| back.adopts);
            let begun = back.as_ref().and_then(|back| back.current);
            let Some((number, job)) = self.jobs.whole(begun) else { return Ok(Next::Wait) };
            if !resources.may_replay && back.is_none() {
                // Slow replication is not held against the backups that are read.
                self.last_progress = self.last_progress.max(resources.durable_moved);
                self.last_heard = self.last_heard.max(self.last_progress);
                self.is_held = true;
                return Ok(Next::At(now + DURABLE_WAIT));
            }
            let (damaged, before) = (rebuild.report().damage.len(), rebuild.report().bytes);
            let entries = entries(rebuild);
            let from = job.at;
            let checked = if from == 0 { right_segment(job) } else { Ok(()) };
            let stepped = checked.map_err(ReplayError::from).and_then(|()| match &mut back {
                Some(back) => {
                    back.current = Some(job.fetch.segment);
                    rebuild.adopt(resources.log, job.fetch.bytes(), from, ENTRIES, BYTES)
                }
                None => rebuild.step(resources.log, job.fetch.bytes(), from, ENTRIES, BYTES),
            });
            for (lease, sequence, record) in rebuild.take_completions().iter() {
                let first = resources.clients.came(lease, sequence, record);
                rebuild.acknowledged(lease, first);
            }
            let until = match stepped {
                Ok(until) => until,
                Err(ReplayError::Damaged(damage @ Damage::UnknownKind { .. })) => {
                    return Err(Failure::LaterVersion(damage));
                }
                Err(error) if take_back::is_hopeless(&error) => {
                    return Err(Failure::Hopeless(error));
                }
                Err(ReplayError::Damaged(damage)) => {
                    if let Some(back) = back {
                        back.current = None;
                    }
                    job.at = 0;
                    job.fetch.give_up_copy(&damage.to_string());
                    return Ok(Next::Again);
                }
                Err(ReplayError::Log(error)) => return self.short_of_memory(error, now),
            };
            (self.last_progress, self.last_heard) = (now, now);
            // An adopted segment is checked first, and then adopted from its beginning.
            let behind =
                until.filter(|at| *at > 0).map_or(job.fetch.bytes().len(), |at| at as usize);
            let bytes = (behind as u64).saturating_sub(u64::from(from));
            let took = entries_since(rebuild, entries) * ENTRY_NS + bytes * KILOBYTE_NS / 1024;
            self.replayed_bytes += rebuild.report().bytes.saturating_sub(before);
            // Another replica may be intact if this one fails its checksums.
            if let Some((_, damage)) = rebuild.report().damage.get(damaged) {
                job.at = 0;
                job.fetch.give_up_copy(&damage.to_string());
                return Ok(Next::Again);
            }
            match until {
                Some(at) => job.at = at,
                None => {
                    if let Some(back) = back {
                        back.current = None;
                    }
                    self.jobs.done(number, resources.buffers);
                }
            }
            if !resources.budget.spend_uncut(Duration::from_nanos(took)) {
                return Ok(Next::Again);
            }
        }
    }

    fn finish(&mut self, log: &mut Log, now: Time) -> Result<Next, Failure> {
        let Some(rebuild) = &mut self.rebuild else { return Ok(Next::Wait) };
        match rebuild.take_in(log) {
            TakeIn::Done => (self.last_progress, self.last_heard) = (now, now),
            TakeIn::Again => return Ok(Next::Again),
            TakeIn::Waits => return Ok(Next::At(now + DURABLE_WAIT)),
        }
        let finished = rebuild.finish(log).and_then(|_| match self.back {
            Some(_) => log.name_adopted().map(|_| ()),
            None => Ok(()),
        });
        match finished {
            Ok(()) => {
                let rebuild = self.rebuild.take();
                if let (Some(back), Some(rebuild)) = (&mut self.back, rebuild) {
                    back.on_named(rebuild);
                }
                self.stage = Stage::Durable(log.appended());
                Ok(Next::Again)
            }
            Err(error) => self.short_of_memory(error, now),
        }
    }
}

/// The state of a recovery's waiting at the end of a step.
struct Waiting {
    now: Time,
    /// When the durable position moved last.
    durable_moved: Time,
    /// Replay waits only for the replicas of earlier replayed entries.
    is_held: bool,
}

/// Whether the bytes are those of the segment that was asked for.
fn right_segment(job: &Job) -> Result<(), Damage> {
    let found = SegmentReader::new(job.fetch.bytes())?.header().segment;
    if found == job.fetch.segment { Ok(()) } else { Err(Damage::NoHeader) }
}

fn entries(rebuild: &Rebuild) -> u64 {
    let report = rebuild.report();
    report.objects + report.tombstones + report.completions + report.elsewhere
}

fn entries_since(rebuild: &Rebuild, before: u64) -> u64 {
    entries(rebuild).saturating_sub(before)
}
