//! Rebuilds the tablets of a master that is gone, from the replicas of its log, with nobody having
//! looked through that log before: the way of a `Recover` that names no segments.
//!
//! ```text
//!  finding     all backups are asked what they have; the newest open head that counts is fetched,
//!              and its last digest says which segments the log has
//!  replaying   the head and then all others are fetched, some at a time, and replayed in slices;
//!              a copy that is damaged is replaced by another one
//!  finishing   what the replay learnt of versions is logged
//!  durable     ... and all that was appended here is waited for
//!  telling     the coordinator is told, until it answers
//! ```
//!
//! Only then are the tablets served. While they are rebuilt other tablets are served as ever, and
//! who asks for these is told to look for them elsewhere.
//!
//! **A log that cannot be proved complete is not used**: where a segment that the digest names is
//! nowhere, or damaged in all copies, what was rebuilt is dropped and the coordinator is told what is
//! missing. That no replica of a master can be found at all is incomplete, too: a shard takes tablets
//! only once its log's first head is durable, so a master that has tablets has a log.
//!
//! Backups that do not answer are asked again until the recovery gets on without them or its
//! patience ends. [`copies`] says which copies count, [`job`] how one segment gets here.

mod copies;
mod fetch;
mod job;
mod scan;

use crate::asking::{Asking, QuestionId};
use crate::clients::Clients;
use crate::options::Options;
use crate::recovery::Next;
use copies::Copies;
use fetch::Heard;
use job::Job;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_log::inspect::SegmentReader;
use thunderhead_log::{Damage, Error, Log, Rebuild, ReplayError};
use thunderhead_rpc::{CallError, CallId, Context, Opcode};
use thunderhead_runtime::Time;
use thunderhead_runtime::slice::{Budget, SLICE};
use thunderhead_wire::control::{self, Inventory, InventoryOf, Recover, Recovered, Taken};
use thunderhead_wire::{KeyHash, LogPosition, MasterId, SegmentId, ServerId, TableId};

/// Segments that are fetched or wait to be replayed at once: what bounds the memory for them.
const JOBS_MAX: usize = 4;

/// What one step replays.
const ENTRIES: usize = 32;
const BYTES: usize = 16 << 10;

/// What replaying takes, by entry and by byte.
const ENTRY_NS: u64 = 450;
const KILOBYTE_NS: u64 = 300;

/// How long to wait for the cleaners, and for replicas to be durable if nothing is heard of them.
const MEMORY_WAIT: Duration = Duration::from_micros(200);
const DURABLE_WAIT: Duration = Duration::from_millis(5);

/// The longest wait before a backup is asked again what it has.
const ASK_AGAIN_MAX: Duration = Duration::from_millis(500);

/// The longest account of a failure.
const FAILURE_BYTES_MAX: usize = 2000;

struct Backup {
    server: ServerId,
    address: SocketAddr,
    failures: u32,
    state: Asked,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Due(Time),
    Waiting(CallId),
    Answered,
}

enum Stage {
    /// The job fetches what may be the newest head.
    Finding(Option<Box<Job>>),
    Replaying(Vec<Job>, VecDeque<SegmentId>),
    Finishing,
    Durable(LogPosition),
    Telling(QuestionId),
    Over,
}

/// See the module's documentation.
pub(crate) struct Recovery {
    task: Recover,
    options: Options,
    begun: Time,
    /// When it last got on.
    got_on: Time,
    backups: Vec<Backup>,
    copies: Copies,
    /// Open segments that cannot be the newest head, and why not.
    rejected: BTreeSet<SegmentId>,
    reasons: Vec<String>,
    stage: Stage,
    rebuild: Option<Rebuild>,
    /// The tablets are in the log.
    has_tablets: bool,
    /// Why it failed.
    failure: Option<String>,
    /// Memory is short.
    pub(crate) waits_for_cleaners: bool,
    bytes: (u64, u64),
}

impl Recovery {
    pub(crate) fn new(task: Recover, options: Options, now: Time) -> Recovery {
        let backups = task.backups.iter().map(|(server, address)| Backup {
            server: *server,
            address: *address,
            failures: 0,
            state: Asked::Due(now),
        });
        Recovery {
            backups: backups.collect(),
            copies: Copies::new(&task.epochs),
            task,
            options,
            begun: now,
            got_on: now,
            rejected: BTreeSet::new(),
            reasons: Vec::new(),
            stage: Stage::Finding(None),
            rebuild: None,
            has_tablets: false,
            failure: None,
            waits_for_cleaners: false,
            bytes: (0, 0),
        }
    }

    /// What it is to do.
    pub(crate) fn task(&self) -> &Recover {
        &self.task
    }

    /// Whether a key belongs to a tablet that is in the log but must not be served yet.
    pub(crate) fn hides(&self, table: TableId, hash: KeyHash) -> bool {
        self.has_tablets && self.task.tablets.iter().any(|it| it.range.contains(table, hash))
    }

    /// Bytes replayed, and of how many.
    pub(crate) fn progress(&self) -> (u64, u64) {
        self.bytes
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Why it failed, if it did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// What came of a call; true if it was this one's.
    pub(crate) fn reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) -> bool {
        let asked = self.backups.iter().position(|it| it.state == Asked::Waiting(call));
        if let Some(number) = asked {
            self.inventory(context, number, outcome);
            return true;
        }
        let jobs: &mut [Job] = match &mut self.stage {
            Stage::Finding(Some(job)) => std::slice::from_mut(&mut **job),
            Stage::Replaying(jobs, _) => jobs,
            _ => return false,
        };
        for job in jobs {
            match job.fetch.reply(context, call, outcome) {
                Heard::NotOurs => {}
                Heard::Setback => return true,
                Heard::Progress => {
                    self.got_on = context.now();
                    return true;
                }
            }
        }
        false
    }

    fn inventory(
        &mut self,
        context: &mut Context<'_>,
        number: usize,
        outcome: Result<&[u8], CallError>,
    ) {
        let Some(backup) = self.backups.get_mut(number) else { return };
        let Some(Inventory { replicas }) = outcome.ok().and_then(control::of_body) else {
            backup.failures += 1;
            let most = Duration::from_millis(1 << backup.failures.min(12)).min(ASK_AGAIN_MAX);
            let wait = Duration::from_nanos(context.random().below(most.as_nanos() as u64) + 1);
            backup.state = Asked::Due(context.now() + wait);
            return;
        };
        self.got_on = context.now();
        backup.state = Asked::Answered;
        let server = backup.server;
        self.copies.add(server, backup.address, &replicas);
        // What was decided without this one is decided anew.
        self.rejected.clear();
        self.reasons.clear();
        let newest = self.copies.open().next();
        match &mut self.stage {
            Stage::Finding(head) => {
                head.take_if(|job| Some(job.fetch.segment) != newest);
                if let Some(job) = head {
                    add_copies(job, &self.copies, server);
                }
            }
            Stage::Replaying(jobs, _) => {
                jobs.iter_mut().for_each(|job| add_copies(job, &self.copies, server));
            }
            _ => {}
        }
    }

    /// A question to the coordinator was answered; true if it was this one's.
    pub(crate) fn answered(
        &mut self,
        log: &mut Log,
        question: QuestionId,
        outcome: &Result<Vec<u8>, CallError>,
    ) -> bool {
        if !matches!(self.stage, Stage::Telling(asked) if asked == question) {
            return false;
        }
        if let (Err(error), None) = (outcome, &self.failure) {
            self.failure = Some(format!("the coordinator does not take what was rebuilt: {error}"));
            self.drop_tablets(log);
        }
        self.stage = Stage::Over;
        self.has_tablets = false;
        true
    }

    /// Nothing is left of it.
    pub(crate) fn drop_tablets(&mut self, log: &mut Log) {
        self.rebuild = None;
        if std::mem::take(&mut self.has_tablets) {
            for taken in &self.task.tablets {
                log.drop_tablet(taken.range);
            }
        }
    }

    /// Works for as long as the budget lasts.
    pub(crate) fn work(
        &mut self,
        context: &mut Context<'_>,
        log: &mut Log,
        clients: &mut Clients,
        asking: &mut Asking,
        budget: &mut Budget,
    ) -> Next {
        self.waits_for_cleaners = false;
        let mut wake = Time::NEVER;
        self.ask_backups(context, &mut wake);
        let next = match &mut self.stage {
            Stage::Finding(_) => self.find(context, log, budget, &mut wake),
            Stage::Replaying(..) => self.replay(context, log, clients, budget, &mut wake),
            Stage::Finishing => self.finish(log, context.now()),
            Stage::Durable(position) if log.durable() >= *position => {
                let of = |taken: &&Taken| log.tablets().find(|(range, _)| *range == taken.range);
                let taken = self.task.tablets.iter().filter_map(|it| of(&it));
                let taken = taken.map(|(range, since)| Taken { range, since }).collect();
                self.tell(context, asking, Ok(taken));
                Ok(Next::Wait)
            }
            Stage::Durable(_) => Ok(Next::At(context.now() + DURABLE_WAIT)),
            Stage::Telling(_) => Ok(Next::Wait),
            Stage::Over => return Next::Over,
        };
        let next = next.and_then(|next| self.check_patience(context.now(), next, &mut wake));
        match next {
            Ok(Next::Wait) if wake != Time::NEVER => Next::At(wake),
            Ok(Next::At(at)) => Next::At(at.min(wake)),
            Ok(next) => next,
            Err(mut why) => {
                // For people; there may be a reason for each of many copies.
                why.truncate(why.floor_char_boundary(FAILURE_BYTES_MAX));
                self.drop_tablets(log);
                self.failure = Some(why.clone());
                self.tell(context, asking, Err(why));
                Next::Wait
            }
        }
    }

    fn tell(
        &mut self,
        context: &mut Context<'_>,
        asking: &mut Asking,
        outcome: Result<Vec<Taken>, String>,
    ) {
        let Recover { master, crashed, recovery, partition, .. } = self.task;
        let body =
            control::to_body(&Recovered { crashed, recovery, partition, by: master, outcome });
        self.stage = Stage::Telling(asking.ask(context, Opcode::Recovered, body));
    }

    fn is_looking(&self) -> bool {
        matches!(self.stage, Stage::Finding(_) | Stage::Replaying(..) | Stage::Finishing)
    }

    /// Asks backups what they have, if it is time.
    fn ask_backups(&mut self, context: &mut Context<'_>, wake: &mut Time) {
        if !matches!(self.stage, Stage::Finding(_) | Stage::Replaying(..)) {
            return;
        }
        let now = context.now();
        let body = control::to_body(&InventoryOf { master: self.task.crashed, deposed: true });
        for backup in &mut self.backups {
            let Asked::Due(at) = backup.state else { continue };
            if at > now {
                *wake = (*wake).min(at);
                continue;
            }
            let timeout = Some(self.options.backup_timeout);
            let call = context.call(backup.address, Opcode::Inventory, &[&body], timeout);
            backup.state = Asked::Waiting(call);
        }
    }

    fn have_all_answered(&self) -> bool {
        self.backups.iter().all(|backup| backup.state == Asked::Answered)
    }

    /// Gives up where nothing was heard for too long.
    fn check_patience(&self, now: Time, next: Next, wake: &mut Time) -> Result<Next, String> {
        if !self.is_looking() || next == Next::Again {
            return Ok(next);
        }
        let until = self.got_on + self.options.recovery_patience;
        if now < until {
            *wake = (*wake).min(until);
            return Ok(next);
        }
        let waits_for = match &self.stage {
            _ if self.waits_for_cleaners => "memory that the cleaners could free".to_owned(),
            Stage::Finding(None) => "backups that could have the log's newest head".to_owned(),
            Stage::Finding(Some(job)) if job.is_ready() => {
                self.names(&self.copies.missing(job.digest.as_deref().unwrap_or_default()))
            }
            Stage::Finding(Some(job)) => waits_for(job),
            Stage::Replaying(jobs, _) => jobs.first().map_or_else(String::new, waits_for),
            _ => String::new(),
        };
        Err(format!(
            "the log of {} could not be rebuilt: for {} seconds it waited for {waits_for}{}{}",
            self.task.crashed,
            self.options.recovery_patience.as_secs(),
            self.silent(),
            self.why(&self.reasons),
        ))
    }

    /// Who has not said what it has.
    fn silent(&self) -> String {
        let silent = self.backups.iter().filter(|it| it.state != Asked::Answered);
        let silent: Vec<String> =
            silent.map(|it| format!("{} at {}", it.server, it.address)).collect();
        match silent.as_slice() {
            [] => String::new(),
            silent => format!("; no answer came from {}", silent.join(", ")),
        }
    }

    fn why(&self, reasons: &[String]) -> String {
        match reasons {
            [] => String::new(),
            reasons => format!("; {}", reasons.join("; ")),
        }
    }

    fn names(&self, segments: &BTreeSet<SegmentId>) -> String {
        let names: Vec<String> = segments.iter().take(8).map(ToString::to_string).collect();
        let more = segments.len().saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        names.join(", ") + &more
    }

    /// Looks for the newest open head with a digest, and whether the log is complete.
    fn find(
        &mut self,
        context: &mut Context<'_>,
        log: &mut Log,
        budget: &mut Budget,
        wake: &mut Time,
    ) -> Result<Next, String> {
        let (crashed, timeout) = (self.task.crashed, self.options.backup_timeout);
        let all = self.have_all_answered();
        let grace = self.begun + self.options.recovery_grace;
        if !all && context.now() < grace {
            return Ok(Next::At(grace));
        }
        let Stage::Finding(head) = &mut self.stage else { return Ok(Next::Wait) };
        let Some(job) = head else {
            let newest = self.copies.open().find(|id| !self.rejected.contains(id));
            return match newest {
                Some(id) => {
                    *head = Some(Box::new(Job::new(id, self.copies.of(id))));
                    Ok(Next::Again)
                }
                None if !all => Ok(Next::Wait),
                None if self.copies.is_empty() => Err(format!(
                    "the log of {crashed} cannot be rebuilt: none of {} backups has a replica of it; start the servers that had them",
                    self.backups.len()
                )),
                None => Err(format!(
                    "the log of {crashed} cannot be proved complete: no backup has an open head with a digest that counts{}; start the servers that had one",
                    self.why(&self.reasons)
                )),
            };
        };
        if let Some(at) = job.fetch.ask(context, crashed, timeout) {
            *wake = (*wake).min(at);
        }
        if !job.look(budget) {
            return Ok(Next::Again);
        }
        let segment = job.fetch.segment;
        if !job.is_ready() {
            if job.is_lost() {
                let reasons = job.fetch.reasons.join(", ");
                self.reasons.push(format!("{segment} cannot be used: {reasons}"));
                self.rejected.insert(segment);
                *head = None;
                return Ok(Next::Again);
            }
            return Ok(Next::Wait);
        }
        let Some(digest) = job.digest.clone().filter(|it| it.contains(&segment)) else {
            self.reasons.push(format!("{segment} has no digest"));
            self.rejected.insert(segment);
            *head = None;
            return Ok(Next::Again);
        };
        let missing = self.copies.missing(&digest);
        if !missing.is_empty() {
            if !all {
                return Ok(Next::Wait);
            }
            return Err(format!(
                "the log of {crashed} is incomplete: {} of its {} segments are on no backup: {}; start the servers that had them",
                missing.len(),
                digest.len(),
                self.names(&missing)
            ));
        }
        let tablets = self.task.tablets.iter().map(|taken| (taken.range, taken.since));
        match Rebuild::begin(log, tablets) {
            Ok(rebuild) => self.rebuild = Some(rebuild),
            Err(Error::CleanerBehind) => {
                self.waits_for_cleaners = true;
                return Ok(Next::At(context.now() + MEMORY_WAIT));
            }
            Err(error) => return Err(no_room(crashed, &error)),
        }
        self.has_tablets = true;
        self.got_on = context.now();
        let lengths = digest.iter().filter_map(|id| self.copies.of(*id).first().copied());
        self.bytes.1 = lengths.map(|copy| u64::from(copy.length)).sum();
        // The head comes first: from then on its log's id is known, and no other's is taken.
        let others = digest.into_iter().filter(|id| *id != segment).collect();
        let jobs = head.take().map(|job| *job).into_iter().collect();
        self.stage = Stage::Replaying(jobs, others);
        Ok(Next::Again)
    }

    /// Fetches and replays.
    fn replay(
        &mut self,
        context: &mut Context<'_>,
        log: &mut Log,
        clients: &mut Clients,
        budget: &mut Budget,
        wake: &mut Time,
    ) -> Result<Next, String> {
        let (crashed, timeout) = (self.task.crashed, self.options.backup_timeout);
        let all = self.have_all_answered();
        let (Stage::Replaying(jobs, waiting), Some(rebuild)) = (&mut self.stage, &mut self.rebuild)
        else {
            return Ok(Next::Wait);
        };
        while jobs.len() < JOBS_MAX {
            let Some(segment) = waiting.pop_front() else { break };
            jobs.push(Job::new(segment, self.copies.of(segment)));
        }
        for job in jobs.iter_mut() {
            if let Some(at) = job.fetch.ask(context, crashed, timeout) {
                *wake = (*wake).min(at);
            }
        }
        let Some(number) = jobs.iter().position(|job| job.is_ready()) else {
            if jobs.is_empty() {
                self.stage = Stage::Finishing;
                return Ok(Next::Again);
            }
            for job in jobs.iter_mut() {
                if !job.look(budget) {
                    return Ok(Next::Again);
                }
                if job.is_lost() && all {
                    return Err(format!(
                        "the log of {crashed} cannot be rebuilt: {} is damaged in every copy: {}",
                        job.fetch.segment,
                        job.fetch.reasons.join(", ")
                    ));
                }
            }
            let is_ready = jobs.iter().any(Job::is_ready);
            return Ok(if is_ready { Next::Again } else { Next::Wait });
        };
        loop {
            let Some(job) = jobs.get_mut(number) else { return Ok(Next::Again) };
            let damaged = rebuild.report().damage.len();
            let entries = entries(rebuild);
            let from = job.at;
            let stepped = right_segment(job)
                .map_err(ReplayError::from)
                .and_then(|()| rebuild.step(log, &job.fetch.bytes, from, ENTRIES, BYTES));
            for (lease, sequence) in rebuild.take_completions() {
                if let Some(record) = log.completion(lease, sequence) {
                    clients.came(lease, sequence, &record.to_vec());
                }
            }
            let until = match stepped {
                Ok(until) => until,
                Err(ReplayError::Log(Error::CleanerBehind)) => {
                    self.waits_for_cleaners = true;
                    return Ok(Next::At(context.now() + MEMORY_WAIT));
                }
                Err(ReplayError::Damaged(damage @ Damage::UnknownKind { .. })) => {
                    return Err(format!(
                        "the log of {crashed} cannot be rebuilt by this version: {damage}; upgrade the server"
                    ));
                }
                Err(ReplayError::Damaged(damage)) => {
                    job.give_up_copy(damage.to_string());
                    return Ok(Next::Again);
                }
                Err(ReplayError::Log(error)) => return Err(no_room(crashed, &error)),
            };
            self.got_on = context.now();
            let behind = until.map_or(job.fetch.bytes.len(), |at| at as usize) as u64;
            let bytes = behind.saturating_sub(u64::from(from));
            let took = (entries_since(rebuild, entries) * ENTRY_NS) + bytes * KILOBYTE_NS / 1024;
            self.bytes.0 += bytes;
            // Whatever the checksums hold against a copy that is whole, another one may not have.
            if let Some((_, damage)) = rebuild.report().damage.get(damaged)
                && !job.may_be_torn()
            {
                let why = damage.to_string();
                job.give_up_copy(why);
                return Ok(Next::Again);
            }
            match until {
                Some(at) => job.at = at,
                None => {
                    jobs.remove(number);
                    return Ok(Next::Again);
                }
            }
            // One entry cannot be cut, however long it is.
            if !budget.spend(Duration::from_nanos(took).min(SLICE)) {
                return Ok(Next::Again);
            }
        }
    }

    fn finish(&mut self, log: &mut Log, now: Time) -> Result<Next, String> {
        let Some(rebuild) = &mut self.rebuild else { return Ok(Next::Wait) };
        match rebuild.finish(log) {
            Ok(_) => {
                self.rebuild = None;
                self.stage = Stage::Durable(log.appended());
                Ok(Next::Again)
            }
            Err(Error::CleanerBehind) => {
                self.waits_for_cleaners = true;
                Ok(Next::At(now + MEMORY_WAIT))
            }
            Err(error) => Err(no_room(self.task.crashed, &error)),
        }
    }
}

fn add_copies(job: &mut Job, copies: &Copies, server: ServerId) {
    for copy in copies.of(job.fetch.segment) {
        if copy.server == server && job.takes(&copy) {
            job.fetch.add(copy);
        }
    }
}

/// Whether the bytes are those of the segment that was asked for.
fn right_segment(job: &Job) -> Result<(), Damage> {
    let found = SegmentReader::new(&job.fetch.bytes)?.header().segment;
    if found == job.fetch.segment { Ok(()) } else { Err(Damage::NoHeader) }
}

fn entries(rebuild: &Rebuild) -> u64 {
    let report = rebuild.report();
    report.objects + report.tombstones + report.completions + report.elsewhere
}

fn entries_since(rebuild: &Rebuild, before: u64) -> u64 {
    entries(rebuild).saturating_sub(before)
}

fn waits_for(job: &Job) -> String {
    let segment = job.fetch.segment;
    if job.is_lost() {
        return format!("a copy of {segment} that can be used: {}", job.fetch.reasons.join(", "));
    }
    format!("{segment}, which is on {}", job.fetch.servers())
}

fn no_room(crashed: MasterId, error: &Error) -> String {
    format!("the log of {crashed} cannot be rebuilt on this shard: {error}")
}
