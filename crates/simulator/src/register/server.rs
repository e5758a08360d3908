//! The register's service: state in memory, records in the journal, answers once they are durable.
//!
//! An answer waits until everything that it depends on is durable: for an update its own record,
//! for a read the record of the value that it shows. A repeated update gets the same answer as
//! before, as long as its record is kept: until the client no longer needs it.

use super::Flaw;
use super::journal::{BODY_BYTES, Body, Journal, RECORD_BYTES, record};
use super::protocol::{Reply, Update};
use crate::linearizability::{Action, Condition, Outcome, Version};
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use thunderhead_rpc::{Component, Context, Opcode, OwnerId, ReplyTo, Request, Service};
use thunderhead_runtime::World;
use thunderhead_runtime::workers::WorkerBell;
use thunderhead_wire::Status;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

/// The most requests that may wait for the journal at once.
const WAITING_MAX: usize = 1024;

/// The approximate time to apply a record of the journal.
const APPLYING: Duration = Duration::from_nanos(400);

/// The delay before another attempt to open the journal.
const JOURNAL_AGAIN: Duration = Duration::from_millis(5);

/// The delay that a busy server requests, in microseconds.
const BUSY_US: u32 = 2000;

/// The service.
pub struct Register {
    flaw: Flaw,
    journal: Journal,
    bell: WorkerBell,
    /// The journal has been read and applied.
    ready: bool,
    /// The records to apply, and the number applied so far.
    recovering: Option<(Vec<Body>, usize)>,
    registers: BTreeMap<u64, StoredValue>,
    clients: BTreeMap<u64, ClientRecord>,
    /// The highest version given so far.
    highest: u64,
    /// Bytes of all records so far.
    appended: u64,
    waiting: VecDeque<WaitingReply>,
}

#[derive(Clone, Copy, Default)]
struct StoredValue {
    /// `None` once it is deleted.
    value: Option<u64>,
    version: u64,
    /// The end of its record.
    position: u64,
}

#[derive(Default)]
struct ClientRecord {
    first_unacknowledged: u64,
    done: BTreeMap<u64, (Outcome, u64)>,
}

struct WaitingReply {
    position: u64,
    reply_to: ReplyTo,
    reply: Reply,
}

impl Register {
    /// Returns a register whose journal is in the files of this world.
    ///
    /// # Errors
    /// If no worker can be started.
    pub fn new(world: &mut World, flaw: Flaw) -> io::Result<Register> {
        let journal = Journal::default();
        let worker = journal.worker(world.alarm.clone(), flaw == Flaw::TrustsFailedSync);
        let bell = world.workers.start("journal", Box::new(worker))?;
        Ok(Register {
            flaw,
            journal,
            bell,
            ready: false,
            recovering: None,
            registers: BTreeMap::new(),
            clients: BTreeMap::new(),
            highest: 0,
            appended: 0,
            waiting: VecDeque::new(),
        })
    }

    fn read(&mut self, context: &mut Context<'_>, body: &[u8], reply_to: ReplyTo) {
        let Ok(key) = U64::ref_from_bytes(body) else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        let stored = self.registers.get(&key.get()).copied().unwrap_or_default();
        let outcome = match stored.value {
            Some(value) => Outcome::Found(Version(stored.version), value),
            None => Outcome::Absent,
        };
        let position = if self.flaw == Flaw::ShowsUnsynced { 0 } else { stored.position };
        self.answer_at(context, position, reply_to, outcome);
    }

    fn update(&mut self, context: &mut Context<'_>, body: &[u8], reply_to: ReplyTo) {
        let update = Update::ref_from_bytes(body).ok();
        let Some((update, action)) = update.and_then(|it| Some((it, it.action()?))) else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        if self.waiting.len() >= WAITING_MAX {
            return context.refuse(reply_to, Status::Busy, BUSY_US, &[]);
        }
        let (client, sequence) = (update.identity.client.get(), update.identity.sequence.get());
        if self.flaw != Flaw::ForgetsIdentities {
            let known = self.clients.entry(client).or_default();
            if let Some((outcome, position)) = known.done.get(&sequence).copied() {
                return self.answer_at(context, position, reply_to, outcome);
            }
            if sequence < known.first_unacknowledged {
                // A duplicate that arrives late: no client waits for it, and it may have been done
                // long ago.
                return;
            }
        }
        let key = update.key.get();
        let stored = self.registers.get(&key).copied().unwrap_or_default();
        let (outcome, value, version) = self.decide(action, stored);
        let mut body: Body = [0; BODY_BYTES];
        body[..24].copy_from_slice(update.identity.as_bytes());
        body[24..32].copy_from_slice(&key.to_le_bytes());
        body[32..40].copy_from_slice(&version.to_le_bytes());
        body[40..41].copy_from_slice(&[u8::from(value.is_some())]);
        body[41..48].copy_from_slice(&value.unwrap_or(0).to_le_bytes()[..7]);
        body[48..72].copy_from_slice(Reply::new(outcome).as_bytes());
        if !self.append(&body) {
            return context.refuse(reply_to, Status::NoSpace, BUSY_US, &[]);
        }
        self.apply(&body);
        let position = if self.flaw == Flaw::AcknowledgesEarly { 0 } else { self.appended };
        self.answer_at(context, position, reply_to, outcome);
    }

    /// Returns an update's effect on a register: the answer, and the register's value and version
    /// after it.
    fn decide(&self, action: Action, stored: StoredValue) -> (Outcome, Option<u64>, u64) {
        let current = stored.value.map_or(Version::NONE, |_| Version(stored.version));
        let unchanged = (stored.value, stored.version);
        let holds = |condition| match condition {
            Condition::Always => true,
            Condition::Absent => stored.value.is_none(),
            Condition::Present => stored.value.is_some(),
            Condition::VersionIs(version) => version == current,
        };
        let next = match (self.flaw, stored.value) {
            (Flaw::VersionsGoBack, None) => 1,
            (Flaw::VersionsGoBack, Some(_)) => stored.version + 1,
            _ => self.highest + 1,
        };
        let (outcome, (value, version)) = match action {
            Action::Write { condition, .. } | Action::Delete { condition } if !holds(condition) => {
                (Outcome::Refused(current), unchanged)
            }
            Action::Write { value, .. } => {
                (Outcome::Done(Version(next), value), (Some(value), next))
            }
            Action::Increment { by } => {
                // The value has seven bytes in the journal.
                let sum = stored.value.unwrap_or(0).wrapping_add(by) & ((1 << 56) - 1);
                (Outcome::Done(Version(next), sum), (Some(sum), next))
            }
            Action::Delete { .. } if stored.value.is_some() => {
                (Outcome::Deleted(current), (None, stored.version))
            }
            Action::Delete { .. } | Action::Read => (Outcome::Absent, unchanged),
        };
        (outcome, value, version)
    }

    /// Applies a record.
    fn apply(&mut self, body: &Body) {
        let number = |at: usize| {
            body.get(at..at + 8)
                .and_then(|it| it.first_chunk())
                .map_or(0, |it| u64::from_le_bytes(*it))
        };
        let (client, sequence, first) = (number(0), number(8), number(16));
        let (key, version) = (number(24), number(32));
        let value = (body[40] == 1).then(|| number(40) >> 8);
        let outcome = Reply::ref_from_bytes(&body[48..]).ok().and_then(Reply::outcome);
        self.appended += RECORD_BYTES as u64;
        let position = self.appended;
        self.highest = self.highest.max(version);
        self.registers.insert(key, StoredValue { value, version, position });
        let known = self.clients.entry(client).or_default();
        known.first_unacknowledged = known.first_unacknowledged.max(first);
        known.done = known.done.split_off(&known.first_unacknowledged);
        if let Some(outcome) = outcome {
            known.done.insert(sequence, (outcome, position));
        }
    }

    /// Appends a record if there is room, and requests more room early. Appends none if the journal
    /// has failed or was reopened in the meantime, because the state in memory is then invalid.
    fn append(&mut self, body: &Body) -> bool {
        let mut shared = self.journal.lock();
        let needed = self.appended + RECORD_BYTES as u64;
        if needed + 64 * RECORD_BYTES as u64 > shared.room && !shared.wants_room {
            shared.wants_room = true;
            self.bell.ring();
        }
        let welcome = needed <= shared.room && !shared.failed && shared.recovered.is_none();
        if welcome {
            shared.pending.extend_from_slice(&record(body));
            self.bell.ring();
        }
        welcome
    }

    /// Answers once the journal is durable up to a position.
    fn answer_at(
        &mut self,
        context: &mut Context<'_>,
        position: u64,
        reply_to: ReplyTo,
        outcome: Outcome,
    ) {
        let reply = Reply::new(outcome);
        let durable = {
            let shared = self.journal.lock();
            // A reopened journal counts from another state.
            if shared.recovered.is_some() { 0 } else { shared.durable }
        };
        if position <= durable {
            context.reply(reply_to, &[reply.as_bytes()]);
        } else {
            self.waiting.push_back(WaitingReply { position, reply_to, reply });
        }
    }

    /// Begins again from the records of the reopened journal.
    fn begin_recovery(&mut self, records: Vec<Body>) {
        self.registers.clear();
        self.clients.clear();
        self.waiting.clear();
        (self.highest, self.appended) = (0, 0);
        self.recovering = Some((records, 0));
        self.ready = false;
    }

    /// Applies records for one slice; other work has a turn in between.
    fn recover(&mut self, context: &Context<'_>) {
        let Some((records, mut next)) = self.recovering.take() else { return };
        let mut budget = context.slice();
        while let Some(body) = records.get(next) {
            self.apply(body);
            next += 1;
            if !budget.spend(APPLYING) {
                break;
            }
        }
        if next < records.len() {
            self.recovering = Some((records, next));
            context.alarm().ring();
        } else {
            self.ready = true;
        }
    }
}

impl Service for Register {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        match opcode {
            Opcode::RegisterRead | Opcode::RegisterUpdate if !self.ready => {
                context.refuse(reply_to, Status::Busy, BUSY_US, &[]);
            }
            Opcode::RegisterRead => self.read(context, body, reply_to),
            Opcode::RegisterUpdate => self.update(context, body, reply_to),
            _ => context.refuse(reply_to, Status::UnknownOpcode, 0, &[]),
        }
    }

    fn timer(&mut self, _: &mut Context<'_>, _: OwnerId) {
        self.bell.ring();
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        let (durable, recovered, failed, stuck) = {
            let mut shared = self.journal.lock();
            let stuck = std::mem::take(&mut shared.stuck);
            (shared.durable, shared.recovered.take(), shared.failed, stuck)
        };
        if stuck {
            context.set_timer(context.now() + JOURNAL_AGAIN, OwnerId::only(Component::Register));
        }
        if let Some(records) = recovered {
            self.begin_recovery(records);
        }
        if self.recovering.is_some() {
            self.recover(context);
        } else if failed && self.ready {
            // Updates that were not durable get no answer: they may survive or not.
            self.ready = false;
            self.waiting.clear();
            self.bell.ring();
        }
        let now = context.now();
        self.waiting.retain(|waiting| {
            if waiting.position <= durable {
                context.reply(waiting.reply_to, &[waiting.reply.as_bytes()]);
            }
            waiting.position > durable && waiting.reply_to.deadline > now
        });
    }
}
