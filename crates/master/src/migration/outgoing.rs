//! A tablet that goes to another master.
//!
//! ```text
//!  beginning  the other master makes room
//!  records    outcomes of updates are sent, then
//!  objects    the tablet's objects are sent, in slices, while it is served; updates are noted
//!  changes    updated objects are sent as they are now, in rounds, until few remain
//!  pause      requests for the tablet are refused: the last noted changes are sent,
//!             and the shard waits until its own log is durable
//!  ending     the other master learns that this was all, and answers when it is durable there
//!  given      requests are refused until the coordinator decides how it ends
//! ```
//!
//! # Slices
//!
//! Each step sends one bucket of small entries, or one entry. The memory for noted changes is
//! bounded: above [`NOTED_BYTES_EAGER`] the shard sends noted keys alternately with the objects. At
//! [`NOTED_BYTES_MAX`] it refuses the tablet's updates and clients retry them, so changes are noted
//! no faster than they are sent.
//!
//! The shard notes a key, or an update's number. It sends the log's content at the time of sending:
//! the object, or its absence. The other master keeps the newest version of each key, so messages
//! may be reordered and duplicated.
//!
//! Before *given* this shard can cancel the migration by itself and serve the tablet again: until
//! then the other master only hides its copy.

use crate::owner::Owner;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use thunderhead_log::{Cursor, Log, Object};
use thunderhead_rpc::{CallError, CallId, Context, Opcode};
use thunderhead_runtime::Time;
use thunderhead_runtime::backoff::Backoff;
use thunderhead_runtime::slice::Budget;
use thunderhead_wire::control::{self, MigrateOut, MigrationBegin, Taken};
use thunderhead_wire::migration::{ENTRIES_MAX, Entry, Head, Kind};
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{KeyHash, LeaseId, LogPosition, Next, Sequence, Status, TableId};

/// Messages in flight at once, and the bytes of each without its last entry. The other master
/// handles one in a turn.
const WINDOW: usize = 8;
const MESSAGE_BYTES: usize = 4 << 10;

/// The tablet stops being served when at most this many changes remain, or after this many rounds.
const FEW: usize = 64;
const ROUNDS_MAX: u32 = 8;

/// Noted bytes above which changes are sent beside the objects, and at which updates wait.
/// This memory is beside the log's.
const NOTED_BYTES_EAGER: usize = 256 << 10;
pub(super) const NOTED_BYTES_MAX: usize = 1 << 20;

/// The bytes that a noted key takes up beside its own, and those of a record: their place in an
/// ordered set.
const NOTED_KEY_BYTES: usize = 72;
const NOTED_RECORD_BYTES: usize = 48;

/// A bucket with more bytes than this is sent one object a step.
const BUCKET_BYTES_MAX: usize = 16 << 10;

/// How long the other master has for an answer, and the waits before the message is repeated.
const TIMEOUT: Duration = Duration::from_millis(200);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(50));
const DURABLE_WAIT: Duration = Duration::from_millis(1);

/// The time for a bucket, for an entry and for a kilobyte.
const BUCKET_NS: u64 = 300;
const ENTRY_NS: u64 = 300;
const KILOBYTE_NS: u64 = 100;

/// How long it waits for the other master.
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
    Changes,
    Pause(LogPosition),
    Ending,
    Given(Taken),
}

/// The next step.
pub(super) enum Work {
    /// Another slice at once.
    Again,
    /// A message arrives, or this time comes.
    At(Time),
    /// It has failed.
    Failed(String),
}

/// Keys that were updated, and updates that were recorded.
#[derive(Default)]
struct NotedChanges {
    /// The keys, each after its hash: most comparisons then touch no key.
    keys: BTreeSet<(KeyHash, Vec<u8>)>,
    records: BTreeMap<(LeaseId, Sequence), KeyHash>,
    /// The memory that they take.
    bytes: usize,
}

impl NotedChanges {
    fn note(&mut self, identity: Identity, hash: KeyHash, key: &[u8]) {
        if self.keys.insert((hash, key.to_vec())) {
            self.bytes += key.len() + NOTED_KEY_BYTES;
        }
        let record = (identity.lease(), identity.sequence());
        if identity.lease() != LeaseId::NONE && self.records.insert(record, hash).is_none() {
            self.bytes += NOTED_RECORD_BYTES;
        }
    }

    fn take_key(&mut self) -> Option<Vec<u8>> {
        let (_, key) = self.keys.pop_first()?;
        self.bytes -= key.len() + NOTED_KEY_BYTES;
        Some(key)
    }

    fn take_record(&mut self) -> Option<((LeaseId, Sequence), KeyHash)> {
        let record = self.records.pop_first()?;
        self.bytes -= NOTED_RECORD_BYTES;
        Some(record)
    }

    fn count(&self) -> usize {
        self.keys.len() + self.records.len()
    }
}

/// See the module's documentation.
pub(super) struct Outgoing {
    pub(super) task: MigrateOut,
    stage: Stage,
    /// Updates since their key or record was sent.
    noted: NotedChanges,
    /// The part of the present round that remains to be sent.
    round: NotedChanges,
    rounds: u32,
    /// Objects of a bucket that are sent one by one.
    large: Vec<Vec<u8>>,
    /// The last step sent noted changes, beside the objects.
    sent_noted: bool,
    /// A message that is not full.
    filling: (Vec<u8>, usize),
    sending: Vec<Message>,
    /// When the other master last answered, or when the tablet stopped being served.
    got_on: Time,
    trouble: Option<String>,
}

impl Outgoing {
    pub(super) fn new(task: MigrateOut, now: Time) -> Outgoing {
        Outgoing {
            task,
            stage: Stage::Beginning,
            noted: NotedChanges::default(),
            round: NotedChanges::default(),
            rounds: 0,
            large: Vec::new(),
            sent_noted: false,
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

    /// Whether requests for the tablet are refused.
    pub(super) fn is_frozen(&self) -> bool {
        matches!(self.stage, Stage::Pause(_) | Stage::Ending | Stage::Given(_))
    }

    /// The other master's answer, if it has the whole tablet.
    pub(super) fn given(&self) -> Option<Taken> {
        if let Stage::Given(taken) = self.stage { Some(taken) } else { None }
    }

    /// Notes an update that was done.
    pub(super) fn note(&mut self, identity: Identity, hash: KeyHash, key: &[u8]) {
        self.noted.note(identity, hash, key);
    }

    /// Whether so much is noted that updates must wait.
    pub(super) fn holds_back(&self) -> bool {
        self.noted.bytes + self.round.bytes >= NOTED_BYTES_MAX
    }

    /// Takes the reply to a call. Returns true if this migration made the call.
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
            let extra = BACKOFF.random_wait(message.failures, context.random());
            message.state = State::Due(context.now() + wait + extra);
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
        self.put_with(now, |into| entry.put(into));
    }

    fn put_object(&mut self, object: &Object<'_>, now: Time) {
        let (key, value) = (object.key(), object.value());
        let (lengths, pieces) = ((key.len(), value.len()), key.pieces().chain(value.pieces()));
        let form = (object.version(), object.kind(), object.attributes());
        self.put_with(now, |into| Entry::put_object(into, form, lengths, pieces));
    }

    fn put_with(&mut self, now: Time, put: impl FnOnce(&mut Vec<u8>)) {
        if self.filling.1 == 0 {
            self.filling.0 = self.head(Kind::Data);
        }
        put(&mut self.filling.0);
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

    /// Sends the present object of a key, or a tombstone; returns its bytes.
    fn put_key(&mut self, log: &Log, key: &[u8], now: Time) -> usize {
        match log.read(self.task.range.table, key) {
            Ok(Some(object)) => {
                self.put_object(&object, now);
                return key.len() + object.value().len();
            }
            // A deleted object had no higher version, and a new one will have one.
            Ok(None) => self.put(Entry::Tombstone { version: log.safe_version(), key }, now),
            Err(error) => self.fails(&error.to_string()),
        }
        key.len()
    }

    /// Sends a noted change; returns its bytes, or `None` if there is none.
    fn put_noted(&mut self, log: &Log, now: Time, is_of_round: bool) -> Option<usize> {
        let from = if is_of_round { &mut self.round } else { &mut self.noted };
        if let Some(key) = from.take_key() {
            return Some(self.put_key(log, &key, now));
        }
        let record = from.take_record()?;
        self.put_record(log, record, now);
        Some(0)
    }

    fn put_record(&mut self, log: &Log, record: ((LeaseId, Sequence), KeyHash), now: Time) {
        let ((lease, sequence), key_hash) = record;
        // If it is forgotten, its client has the answer.
        if let Some(result) = log.completion(lease, sequence).map(|it| it.to_vec()) {
            self.put(Entry::Completion { lease, sequence, key_hash, result: &result }, now);
        }
    }

    /// Returns whether the next step beside the objects sends noted changes: every other step does,
    /// while many are noted.
    fn alternate_with_noted(&mut self) -> bool {
        self.sent_noted = !self.sent_noted && self.noted.bytes >= NOTED_BYTES_EAGER;
        self.sent_noted
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
            let call = context.call(
                Owner::Migration,
                to,
                Opcode::MigrateIn,
                &[&message.body],
                Some(TIMEOUT),
            );
            message.state = State::Asked(call);
        }
        if again {
            return Work::Again;
        }
        if matches!(self.stage, Stage::Pause(_)) {
            wake = wake.min(now + DURABLE_WAIT);
        }
        Work::At(wake)
    }

    /// Makes messages. Returns whether more can be made at once.
    fn fill(&mut self, log: &mut Log, budget: &mut Budget, now: Time) -> bool {
        let cost = |entries: usize, bytes: usize| {
            let took = BUCKET_NS + entries as u64 * ENTRY_NS + bytes as u64 * KILOBYTE_NS / 1024;
            Duration::from_nanos(took)
        };
        let range = self.task.range;
        while self.sending.len() < WINDOW {
            if !budget.has_time() {
                // Another migration has used the slice.
                return true;
            }
            let (mut entries, mut bytes) = (1, 0);
            let sends_noted = self.alternate_with_noted();
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
                Stage::Objects(_) if sends_noted => {
                    bytes = self.put_noted(log, now, false).unwrap_or(0);
                }
                // Also of the last bucket.
                Stage::Objects(_) | Stage::Changes if !self.large.is_empty() => {
                    let key = self.large.pop().unwrap_or_default();
                    bytes = self.put_key(log, &key, now);
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
                        None => Stage::Changes,
                    };
                    entries = found.len();
                    let size = |object: &Object<'_>| object.key().len() + object.value().len();
                    let of_all: usize = found.iter().map(size).sum();
                    if of_all > BUCKET_BYTES_MAX {
                        // Changes until they are sent are noted.
                        self.large = found.iter().map(|object| object.key().to_vec()).collect();
                    } else {
                        bytes = of_all;
                        found.iter().for_each(|object| self.put_object(object, now));
                    }
                }
                Stage::Changes => match self.put_noted(log, now, true) {
                    Some(sent) => bytes = sent,
                    None => {
                        if self.noted.count() <= FEW || self.rounds >= ROUNDS_MAX {
                            self.stage = Stage::Pause(log.appended());
                            // From here on it is the shorter patience that counts.
                            self.got_on = now;
                            continue;
                        }
                        self.rounds += 1;
                        self.round = std::mem::take(&mut self.noted);
                    }
                },
                Stage::Pause(position) => {
                    let position = *position;
                    if let Some(sent) = self.put_noted(log, now, false) {
                        bytes = sent;
                    } else {
                        self.flush(now);
                        if !self.sending.is_empty() || log.durable() < position {
                            return false;
                        }
                        let mut body = self.head(Kind::End);
                        body.extend(log.safe_version().0.to_le_bytes());
                        // If nothing here ever expires, the new master's clock does not matter.
                        if log.keeps_time() {
                            body.extend(log.time().0.to_le_bytes());
                        }
                        self.send(body, now);
                        self.stage = Stage::Ending;
                        return false;
                    }
                }
                Stage::Ending | Stage::Given(_) => return false,
            }
            // The largest object alone takes longer than a slice.
            if !budget.spend_uncut(cost(entries, bytes)) {
                return self.sending.len() < WINDOW;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_log::{LogId, Memory, NoReplication, Options};
    use thunderhead_runtime::slice::SLICE;
    use thunderhead_wire::{MasterId, TabletRange};

    const TABLE: TableId = TableId(1);

    fn log() -> Log {
        let memory = Memory::with_seglets(64 << 20, 64 << 10).unwrap();
        let options = Options { segment_bytes: 8 << 20, ..Options::default() };
        let mut log =
            Log::new(&memory, LogId(1), options, Box::new(NoReplication::default())).unwrap();
        log.create_tablet(TabletRange::whole(TABLE)).unwrap();
        log
    }

    fn outgoing(stage: Stage) -> Outgoing {
        let task = MigrateOut {
            migration: 1,
            master: MasterId(1),
            range: TabletRange::whole(TABLE),
            to: MasterId(2),
            address: "127.0.0.1:1".parse().unwrap(),
            give_up: false,
        };
        Outgoing { stage, ..Outgoing::new(task, Time(0)) }
    }

    /// Fills messages for a slice, takes them, and returns their bytes. A strict budget refuses
    /// long work.
    fn slice(outgoing: &mut Outgoing, log: &mut Log) -> usize {
        log.turn();
        outgoing.fill(log, &mut Budget::new(SLICE, true), Time(1));
        assert!(outgoing.trouble.is_none(), "{:?}", outgoing.trouble);
        outgoing.sending.drain(..).map(|it| it.body.len()).sum()
    }

    fn is_at_rest(outgoing: &Outgoing) -> bool {
        matches!(outgoing.stage, Stage::Ending)
    }

    #[test]
    fn noted_changes_are_sent_in_slices_of_bounded_length() {
        let (mut log, mut outgoing) = (log(), outgoing(Stage::Changes));
        for number in 0..5000u64 {
            let key = number.to_be_bytes();
            log.write(TABLE, &key, b"value").unwrap();
            let identity = Identity::new(LeaseId(1), Sequence(number + 1), Sequence::FIRST);
            outgoing.note(identity, KeyHash::of(&key), &key);
        }
        let mut slices = 0;
        while !is_at_rest(&outgoing) {
            let before = outgoing.noted.count() + outgoing.round.count();
            slice(&mut outgoing, &mut log);
            let after = outgoing.noted.count() + outgoing.round.count();
            assert!(before - after < 200, "{} were sent in a slice", before - after);
            slices += 1;
        }
        assert!(slices > 50, "{slices}");
        assert_eq!((outgoing.noted.bytes, outgoing.round.bytes), (0, 0));
    }

    #[test]
    fn a_bucket_of_large_objects_is_sent_one_object_after_the_other() {
        const BYTES: usize = 300 << 10;
        let (mut log, mut outgoing) = (log(), outgoing(Stage::Objects(Cursor::default())));
        for number in 0..100u64 {
            log.write(TABLE, &number.to_be_bytes(), &vec![number as u8; BYTES]).unwrap();
        }
        let mut all = 0;
        while !is_at_rest(&outgoing) {
            let sent = slice(&mut outgoing, &mut log);
            assert!(sent < 3 * BYTES, "{sent} bytes in a slice");
            all += sent;
        }
        assert!((100 * BYTES..101 * BYTES).contains(&all), "{all}: each was sent once");
    }

    #[test]
    fn a_slice_that_one_migration_has_used_is_not_overdrawn_by_others() {
        const BYTES: usize = 900 << 10;
        let mut log = log();
        log.write(TABLE, b"key", &vec![1; BYTES]).unwrap();
        let all = [(); 5].map(|()| outgoing(Stage::Objects(Cursor::default())));
        let mut all = Vec::from(all);
        let mut slices = 0;
        while !all.is_empty() {
            // A strict budget panics if it is overdrawn by much.
            let mut budget = Budget::new(SLICE, true);
            for outgoing in &mut all {
                outgoing.fill(&mut log, &mut budget, Time(1));
            }
            all.retain(|it| it.sending.iter().all(|message| message.body.len() < BYTES));
            slices += 1;
        }
        assert!((5..100).contains(&slices), "{slices}");
    }

    #[test]
    fn updates_wait_while_more_is_noted_than_may_be_and_go_on_when_it_was_sent() {
        let (mut log, mut outgoing) = (log(), outgoing(Stage::Objects(Cursor::default())));
        for number in 0..20_000u64 {
            log.write(TABLE, &number.to_be_bytes(), b"value").unwrap();
        }
        let mut number = 0u64;
        while !outgoing.holds_back() {
            let key = number.to_be_bytes();
            outgoing.note(Identity::NONE, KeyHash::of(&key), &key);
            number += 1;
        }
        let beyond = outgoing.noted.bytes - NOTED_BYTES_MAX;
        assert!(beyond < 2 * NOTED_KEY_BYTES, "{beyond}: no more memory than that");
        // Before the end of the walk through the tablet, so that updates do not wait for it.
        while outgoing.holds_back() {
            slice(&mut outgoing, &mut log);
        }
        assert!(matches!(outgoing.stage, Stage::Objects(_)));
        while outgoing.noted.bytes >= NOTED_BYTES_EAGER {
            assert!(matches!(outgoing.stage, Stage::Objects(_)));
            slice(&mut outgoing, &mut log);
        }
        while !is_at_rest(&outgoing) {
            slice(&mut outgoing, &mut log);
        }
        assert_eq!(outgoing.noted.count() + outgoing.round.count(), 0);
    }
}
