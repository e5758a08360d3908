//! A tablet that goes to another master.
//!
//! ```text
//!  beginning  the other one makes room
//!  records    outcomes of updates are sent, then
//!  objects    what the tablet holds, in slices, while it is served; what is updated is noted
//!  changes    what was updated is sent as it is now, in rounds, until few are left
//!  rest       nothing of the tablet is answered any more: what was noted last is sent,
//!             and the own log is waited for
//!  ending     the other one is told that this was all, and answers when it is durable there
//!  given      nothing is answered until the coordinator says how it ends
//! ```
//!
//! What is noted is a key, or an update's number, and what is sent of it is what the log has at that
//! time: an object, or that there is none. The other one keeps the newest version of each key, so it
//! does not matter in which order messages arrive or how often.
//!
//! Up to *given* it can give up by itself, and serves the tablet again: the other one only hides what
//! it has got.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use thunderhead_log::{Cursor, Log};
use thunderhead_rpc::{CallError, CallId, Context, Opcode};
use thunderhead_runtime::Time;
use thunderhead_runtime::slice::Budget;
use thunderhead_wire::control::{self, MigrateOut, MigrationBegin, Taken};
use thunderhead_wire::migration::{ENTRIES_MAX, Entry, Head, Kind};
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{KeyHash, LogPosition, Next, Status, TableId};

/// Messages that are on their way at once, and what each holds but for its last entry.
const WINDOW: usize = 8;
const MESSAGE_BYTES: usize = 16 << 10;

/// With so few left to send the tablet is not served any more; or after so many rounds.
const FEW: usize = 64;
const ROUNDS_MAX: u32 = 8;

/// How long the other one has for an answer, and the wait before it is told again.
const TIMEOUT: Duration = Duration::from_millis(200);
const WAIT_MIN: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_millis(50);
const DURABLE_WAIT: Duration = Duration::from_millis(1);

/// What a bucket, an entry and a kilobyte take.
const BUCKET_NS: u64 = 300;
const ENTRY_NS: u64 = 300;
const KILOBYTE_NS: u64 = 100;

/// How long it waits for the other one.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// While the tablet is served.
    pub(super) serving: Duration,
    /// While it is not.
    pub(super) pausing: Duration,
}

struct Message {
    body: Vec<u8>,
    failures: u32,
    state: State,
}

enum State {
    Due(Time),
    Asked(CallId),
}

enum Stage {
    Beginning,
    Records(Cursor),
    Objects(Cursor),
    Changes(Vec<Vec<u8>>),
    Rest(LogPosition),
    Ending,
    Given(Taken),
}

/// What comes next.
pub(super) enum Work {
    /// Another slice at once.
    Again,
    /// Something is heard, or it is this late.
    At(Time),
    /// It has failed.
    Failed(String),
}

/// See the module's documentation.
pub(super) struct Outgoing {
    pub(super) task: MigrateOut,
    stage: Stage,
    /// Keys that were updated, and updates that were recorded, since they were sent.
    keys: BTreeSet<Vec<u8>>,
    records: BTreeMap<(u64, u64), KeyHash>,
    rounds: u32,
    /// A message that is not full.
    filling: (Vec<u8>, usize),
    sending: Vec<Message>,
    /// When the other one last answered, or was first asked not to serve.
    got_on: Time,
    trouble: Option<String>,
}

impl Outgoing {
    pub(super) fn new(task: MigrateOut, now: Time) -> Outgoing {
        Outgoing {
            task,
            stage: Stage::Beginning,
            keys: BTreeSet::new(),
            records: BTreeMap::new(),
            rounds: 0,
            filling: (Vec::new(), 0),
            sending: Vec::new(),
            got_on: now,
            trouble: None,
        }
    }

    /// Whether a key belongs to it.
    pub(super) fn has(&self, table: TableId, hash: KeyHash) -> bool {
        self.task.range.contains(table, hash)
    }

    /// Whether nothing of it is answered.
    pub(super) fn is_frozen(&self) -> bool {
        matches!(self.stage, Stage::Rest(_) | Stage::Ending | Stage::Given(_))
    }

    /// What the other one has, if it has all.
    pub(super) fn given(&self) -> Option<Taken> {
        if let Stage::Given(taken) = self.stage { Some(taken) } else { None }
    }

    /// An update was done.
    pub(super) fn note(&mut self, identity: Identity, hash: KeyHash, key: &[u8]) {
        if !self.keys.contains(key) {
            self.keys.insert(key.to_vec());
        }
        if identity.lease() != 0 {
            self.records.insert((identity.lease(), identity.sequence()), hash);
        }
    }

    /// What came of a call; true if it was this one's.
    pub(super) fn reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) -> bool {
        let is_asked = |it: &Message| matches!(it.state, State::Asked(asked) if asked == call);
        let Some(number) = self.sending.iter().position(is_asked) else { return false };
        let wait = match outcome {
            Ok(body) => {
                self.sending.swap_remove(number);
                self.got_on = context.now();
                match self.stage {
                    Stage::Beginning => self.stage = Stage::Records(Cursor::default()),
                    Stage::Ending => match control::of_body(body) {
                        Some(taken) => self.stage = Stage::Given(taken),
                        None => self.fails("the new master's answer makes no sense"),
                    },
                    _ => {}
                }
                return true;
            }
            Err(CallError::Refused { status, hint, .. })
                if status.next() == Next::Wait && status != Status::NoSpace =>
            {
                Duration::from_micros(u64::from(hint))
            }
            Err(
                CallError::Unreachable(_)
                | CallError::Broken
                | CallError::Late
                | CallError::Congested,
            ) => Duration::ZERO,
            Err(error) => {
                self.fails(&format!("the new master says: {error}"));
                return true;
            }
        };
        if let Some(message) = self.sending.get_mut(number) {
            message.failures += 1;
            let most = WAIT_MIN.saturating_mul(1 << message.failures.min(10)).min(WAIT_MAX);
            let extra = context.random().below(most.as_nanos() as u64) + 1;
            let at = context.now() + wait + Duration::from_nanos(extra);
            message.state = State::Due(at);
        }
        true
    }

    fn fails(&mut self, why: &str) {
        self.trouble.get_or_insert_with(|| why.to_owned());
    }

    fn head(&self, kind: Kind) -> Vec<u8> {
        let mut body =
            Vec::with_capacity(if kind == Kind::Data { MESSAGE_BYTES * 5 / 4 } else { 64 });
        Head { migration: self.task.migration, master: self.task.to, kind }.put(&mut body);
        body
    }

    fn send(&mut self, body: Vec<u8>, now: Time) {
        self.sending.push(Message { body, failures: 0, state: State::Due(now) });
    }

    fn put(&mut self, entry: Entry<'_>, now: Time) {
        if self.filling.1 == 0 {
            self.filling.0 = self.head(Kind::Data);
        }
        entry.put(&mut self.filling.0);
        self.filling.1 += 1;
        if self.filling.1 >= ENTRIES_MAX || self.filling.0.len() >= MESSAGE_BYTES {
            self.flush(now);
        }
    }

    fn flush(&mut self, now: Time) {
        let (body, count) = std::mem::take(&mut self.filling);
        if count > 0 {
            self.send(body, now);
        }
    }

    /// Sends what a key has now.
    fn put_key(&mut self, log: &Log, key: &[u8], now: Time) {
        match log.read(self.task.range.table, key) {
            Ok(Some(object)) => {
                let value = object.value().to_vec();
                self.put(Entry::Object { version: object.version(), key, value: &value }, now);
            }
            // What there may have been had no higher version, and what comes will have one.
            Ok(None) => self.put(Entry::Tombstone { version: log.safe_version(), key }, now),
            Err(error) => self.fails(&error.to_string()),
        }
    }

    fn put_record(&mut self, log: &Log, record: ((u64, u64), KeyHash), now: Time) {
        let ((lease, sequence), key_hash) = record;
        // If it is forgotten, its client has the answer.
        if let Some(result) = log.completion(lease, sequence).map(|it| it.to_vec()) {
            self.put(Entry::Completion { lease, sequence, key_hash, result: &result }, now);
        }
    }

    /// Works for as long as the budget lasts.
    pub(super) fn work(
        &mut self,
        context: &mut Context<'_>,
        log: &mut Log,
        budget: &mut Budget,
        patience: Patience,
    ) -> Work {
        let now = context.now();
        if matches!(self.stage, Stage::Given(_)) {
            return Work::At(Time::NEVER);
        }
        let range = self.task.range;
        let mut tablets = log.tablets();
        let is_here = tablets.any(|(it, _)| {
            it.table == range.table && it.first <= range.first && range.last <= it.last
        });
        drop(tablets);
        if !is_here {
            self.fails("the tablet is not here any more");
        }
        let patience = if self.is_frozen() { patience.pausing } else { patience.serving };
        if now >= self.got_on + patience {
            let to = self.task.to;
            self.fails(&format!("nothing was heard of {to} for {patience:?}"));
        }
        let again = self.trouble.is_none() && self.fill(log, budget, now);
        if let Some(why) = self.trouble.take() {
            return Work::Failed(why);
        }
        let mut wake = self.got_on + patience;
        for message in &mut self.sending {
            let State::Due(at) = message.state else { continue };
            if at > now {
                wake = wake.min(at);
                continue;
            }
            let to = self.task.address;
            let call = context.call(to, Opcode::MigrateIn, &[&message.body], Some(TIMEOUT));
            message.state = State::Asked(call);
        }
        if again {
            return Work::Again;
        }
        if matches!(self.stage, Stage::Rest(_)) {
            wake = wake.min(now + DURABLE_WAIT);
        }
        Work::At(wake)
    }

    /// Makes messages; says whether there is more to be made at once.
    fn fill(&mut self, log: &mut Log, budget: &mut Budget, now: Time) -> bool {
        let mut spend = |entries: usize, bytes: usize| {
            let took = BUCKET_NS + entries as u64 * ENTRY_NS + bytes as u64 * KILOBYTE_NS / 1024;
            budget.spend(Duration::from_nanos(took))
        };
        let range = self.task.range;
        while self.sending.len() < WINDOW {
            let (mut entries, mut bytes) = (1, 0);
            match &mut self.stage {
                Stage::Beginning => {
                    if self.sending.is_empty() {
                        let mut body = self.head(Kind::Begin);
                        body.extend(control::to_body(&MigrationBegin { range }));
                        self.send(body, now);
                    }
                    return false;
                }
                Stage::Records(cursor) => {
                    let mut found = Vec::new();
                    let next =
                        log.scan_completions_of(range, *cursor, |lease, sequence, hash, _| {
                            found.push(((lease, sequence), hash));
                        });
                    self.stage = match next {
                        Some(next) => Stage::Records(next),
                        None => Stage::Objects(Cursor::default()),
                    };
                    entries = found.len();
                    found.into_iter().for_each(|record| self.put_record(log, record, now));
                }
                Stage::Objects(cursor) => {
                    let mut found = Vec::new();
                    let next = match log.scan(range, *cursor, |object| found.push(object)) {
                        Ok(next) => next,
                        Err(error) => {
                            self.fails(&error.to_string());
                            return false;
                        }
                    };
                    self.stage = match next {
                        Some(next) => Stage::Objects(next),
                        None => Stage::Changes(Vec::new()),
                    };
                    entries = found.len();
                    for object in found {
                        let (key, value) = (object.key().to_vec(), object.value().to_vec());
                        bytes += value.len();
                        let version = object.version();
                        self.put(Entry::Object { version, key: &key, value: &value }, now);
                    }
                }
                Stage::Changes(round) => match round.pop() {
                    Some(key) => self.put_key(log, &key, now),
                    None => {
                        let left = self.keys.len() + self.records.len();
                        if left <= FEW || self.rounds >= ROUNDS_MAX {
                            self.stage = Stage::Rest(log.appended());
                            // From here on it is the shorter patience that counts.
                            self.got_on = now;
                            continue;
                        }
                        self.rounds += 1;
                        *round = std::mem::take(&mut self.keys).into_iter().collect();
                        let records = std::mem::take(&mut self.records);
                        entries = records.len();
                        records.into_iter().for_each(|record| self.put_record(log, record, now));
                    }
                },
                Stage::Rest(position) => {
                    let position = *position;
                    if let Some(key) = self.keys.pop_first() {
                        self.put_key(log, &key, now);
                    } else if let Some(record) = self.records.pop_first() {
                        self.put_record(log, record, now);
                    } else {
                        self.flush(now);
                        if !self.sending.is_empty() || log.durable() < position {
                            return false;
                        }
                        let mut body = self.head(Kind::End);
                        body.extend(log.safe_version().0.to_le_bytes());
                        self.send(body, now);
                        self.stage = Stage::Ending;
                        return false;
                    }
                }
                Stage::Ending | Stage::Given(_) => return false,
            }
            if !spend(entries, bytes) {
                return self.sending.len() < WINDOW;
            }
        }
        false
    }
}
