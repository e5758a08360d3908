//! Users, which send requests of all kinds, and record the requests and their answers.

mod churn;
mod expiry;
mod tables;

use super::client::Client;
use super::plan::Plan;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_client::control::{ChangeSettings, CreateTable, SettingsChanged, ShardStatus};
use thunderhead_client::{
    Action, Answer, Condition, Enumeration, Error, KeyHash, Number, Object, Operation, Question,
    Reply, TableId, ValueKind, Version,
};
use thunderhead_runtime::Random;
use thunderhead_runtime::sim::clock::TrueTime;
use thunderhead_simulator::linearizability::{
    self, Action as Judged, Operation as Judgeable, Outcome,
};
use thunderhead_wire::Format;

/// The number of objects in each table that are numbers.
const NUMBERS: u64 = 4;

/// The number of objects in each table.
pub(crate) const KEYS: u64 = 6;

/// The mean pauses of users while they hurry, while they rush, and while they overwrite much.
const HURRIED_WAIT_NS: f64 = 30e6;
const RUSHED_WAIT_NS: f64 = 4e6;
const PRESSED_WAIT_NS: f64 = 10e6;

/// An operation that takes longer than this waits for something.
const WAIT: Duration = Duration::from_millis(200);

/// The length of the longest values.
const LONG: u64 = 3000;

/// How long a walk waits for a page.
const WALK_PATIENCE: Duration = Duration::from_secs(5);

/// The longest walk that the judge uses. A longer one hardly says when an object was absent.
const JUDGED_WALK_NS: u64 = 1_000_000_000;

/// The tables that exist all the time.
pub(crate) const TABLES: [&str; 2] = ["wide", "narrow"];
pub(crate) const WIDE: usize = 0;
pub(crate) const NARROW: usize = 1;

/// An object, as the judge knows it: its table, and its number there.
pub(crate) type Key = (u64, u64);

/// The observations of all users of a simulation.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) history: Vec<Judgeable<Key>>,
    /// The violations of rules.
    pub(crate) failures: Vec<String>,
    /// The tables that exist all the time, once they are created.
    pub(crate) tables: Vec<TableId>,
    /// The number of users that have not ended.
    pub(crate) working: u64,
    pub(crate) walks: u64,
    pub(crate) made: u64,
    pub(crate) splits: u64,
    pub(crate) migrations: u64,
    /// Changes of `min_replicas`.
    pub(crate) changes: u64,
    /// The sum of the times of all operations of [`User::work_until`] that waited.
    pub(crate) waited: Duration,
    /// The counts of the events at a door.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    names: u64,
    /// Until this time users hurry: they make short pauses, and their operations are additional.
    hurried_until: u64,
    /// Until this time the first user writes and the others read.
    parted_until: u64,
    /// Until this time hurrying users make hardly any pauses.
    rushed_until: u64,
    /// Until this time hurrying users move tablets.
    moving_until: u64,
    /// Until this time hurrying users overwrite much, and do not wait for long.
    pressed_until: u64,
    /// Until this time hurrying users update only the table with this place in the list.
    keep_to: (u64, usize),
    /// An object of which only the fact remains that it existed: the world crashes its master.
    pub(crate) faded: Option<(TableId, KeyHash)>,
}

/// The shared state of the users. Clones share it.
#[derive(Clone)]
pub(crate) struct Seeing {
    pub(crate) seen: Rc<RefCell<Seen>>,
    pub(crate) time: TrueTime,
    pub(crate) plan: Rc<Plan>,
}

impl Seeing {
    /// Lets users hurry for some time, in which they may notice a fault.
    pub(crate) fn hurry(&self, lasts: Duration) {
        let until = self.time.get() + lasts.as_nanos() as u64;
        let mut seen = self.seen.borrow_mut();
        seen.hurried_until = seen.hurried_until.max(until);
    }

    /// Lets users hurry for some time; the first one writes while the others read.
    pub(crate) fn part(&self, lasts: Duration) {
        self.hurry(lasts);
        self.seen.borrow_mut().parted_until = self.time.get() + lasts.as_nanos() as u64;
    }

    /// Lets users hurry for some time, with hardly any pauses.
    pub(crate) fn rush(&self, lasts: Duration) {
        self.hurry(lasts);
        self.seen.borrow_mut().rushed_until = self.time.get() + lasts.as_nanos() as u64;
    }

    /// Lets users hurry for some time, and move tablets.
    pub(crate) fn hurry_and_move(&self, lasts: Duration) {
        self.rush(lasts);
        self.seen.borrow_mut().moving_until = self.time.get() + lasts.as_nanos() as u64;
    }

    /// Lets users hurry for some time, and overwrite much without waiting for long.
    pub(crate) fn press(&self, lasts: Duration) {
        self.hurry(lasts);
        self.seen.borrow_mut().pressed_until = self.time.get() + lasts.as_nanos() as u64;
    }

    /// Lets users hurry for some time, and update only one of the tables. They wait long only for
    /// the narrow one.
    pub(crate) fn keep_to(&self, table: usize, lasts: Duration) {
        self.rush(lasts);
        self.seen.borrow_mut().keep_to = (self.time.get() + lasts.as_nanos() as u64, table);
    }

    fn is_hurried(&self) -> bool {
        self.time.get() < self.seen.borrow().hurried_until
    }

    pub(crate) fn fail(&self, violation: impl Display) {
        let at = Duration::from_nanos(self.time.get());
        self.seen.borrow_mut().failures.push(format!("at {at:?}: {violation}"));
    }
}

/// Returns the value of an object that stands for a number, with padding if the object is a long
/// one.
fn value(key: u64, number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    if key >= NUMBERS {
        bytes.resize(8 + (number % LONG) as usize, number as u8);
    }
    bytes
}

/// Returns the number that a value stands for, if a user can have written the value.
fn number(key: u64, bytes: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    (value(key, number) == bytes).then_some(number)
}

/// Returns the operation that writes a value of a key.
fn write(key: u64, number: u64) -> Action {
    match kind_of(key, number) {
        ValueKind::Integer => Action::WriteNumber(Number::Integer(number as i64)),
        _ => Action::Write(value(key, number)),
    }
}

/// Returns the kind of a value. Some values of keys that are incremented are bytes.
fn kind_of(key: u64, number: u64) -> ValueKind {
    match key < NUMBERS && number & linearizability::TEXT == 0 {
        true => ValueKind::Integer,
        false => ValueKind::Bytes,
    }
}

/// Returns the key and the value of a stable object, which no user changes.
pub(crate) fn stable(number: u64) -> (Vec<u8>, Vec<u8>) {
    let length = 200 + 37 * number as usize % 900;
    (format!("stable {number}").into_bytes(), vec![number as u8; length])
}

/// A user of the cluster.
pub(crate) struct User {
    pub(crate) client: Client,
    random: Random,
    pub(crate) seeing: Seeing,
    seen_version: Version,
    walk: Option<Walk>,
    own: Option<tables::Own>,
    /// The time until which this user hurries, and whether it only reads meanwhile.
    hurry: (u64, bool),
    number: usize,
    /// The highest version of this user's own objects that expire, in each table.
    expired: BTreeMap<TableId, Version>,
}

/// A walk over the objects of the wide table.
struct Walk {
    enumeration: Enumeration,
    found: BTreeMap<Vec<u8>, u64>,
    begun: u64,
}

impl User {
    pub(crate) fn new(client: Client, random: Random, seeing: Seeing) -> User {
        User {
            client,
            random,
            seeing,
            seen_version: Version::NONE,
            walk: None,
            own: None,
            hurry: (0, false),
            number: 0,
            expired: BTreeMap::new(),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Creates tables, each spread over `server_span` shards.
    pub(crate) async fn make_tables(self, count: u64, server_span: u32) {
        for number in 0..count {
            let table = CreateTable::spread(format!("table {number}"), server_span);
            let made = self.client.ask(Question::CreateTable(table), Duration::from_secs(60)).await;
            if !matches!(made, Ok(Reply::Table(_))) {
                return self.seeing.fail(format!("table {number} is not made: {made:?}"));
            }
        }
        self.client.close();
    }

    /// Writes an object into each of the first tables.
    pub(crate) async fn use_tables(self, count: u64) {
        let patience = Duration::from_secs(10);
        for number in 0..count {
            let question = Question::Map(Some(format!("table {number}")));
            let Ok(Reply::Map(map)) = self.client.ask(question, patience).await else {
                return self.seeing.fail(format!("table {number} is not found"));
            };
            let Some(table) = map.tables.first().map(|table| table.id) else {
                return self.seeing.fail(format!("table {number} is lost"));
            };
            let (key, action) = (b"key".to_vec(), Action::Write(b"value".to_vec()));
            let operation = Operation { table, key, condition: Condition::Always, action };
            let results = self.client.all(vec![operation], patience).await;
            if let Some(error) = results.into_iter().find_map(Result::err) {
                return self.seeing.fail(format!("table {number} is not written: {error}"));
            }
        }
        self.client.close();
    }

    /// Waits until all segments have as many replicas as possible.
    pub(crate) async fn sees_all_replicas(self) {
        let (patience, settings) = (Duration::from_secs(1), &self.seeing.plan.settings);
        let others = self.seeing.plan.servers.saturating_sub(1).max(1);
        let possible = settings.replicas.min(u32::try_from(others).unwrap_or(u32::MAX));
        let mut missing = String::new();
        for _ in 0..120 {
            missing.clear();
            let servers = match self.client.ask(Question::ClusterStatus, patience).await {
                Ok(Reply::Cluster(status)) => status.servers.servers,
                _ => Vec::new(),
            };
            for address in servers.iter().flat_map(|it| &it.shards).map(|it| it.address) {
                match self.client.ask(Question::ShardStatus(address), patience).await {
                    Ok(Reply::Shard(ShardStatus { at_risk: None, .. })) => {}
                    Ok(Reply::Shard(ShardStatus { at_risk: Some(it), .. }))
                        if it.replicas >= possible && possible < settings.replicas => {}
                    other => missing += &format!("{address}: {other:?}; "),
                }
            }
            if missing.is_empty() && !servers.is_empty() {
                return;
            }
            self.client.tasks().sleep(Duration::from_millis(250)).await;
        }
        self.seeing.fail(format!("segments lack replicas for long: {missing}"));
    }

    /// Creates the tables and the stable objects.
    pub(crate) async fn found(mut self) {
        let patience = Duration::from_secs(60);
        let mut tables = Vec::new();
        for (name, server_span) in TABLES.into_iter().zip([3, 1]) {
            let table = CreateTable::spread(name, server_span);
            match self.client.ask(Question::CreateTable(table), patience).await {
                Ok(Reply::Table(table)) => tables.push(table.id),
                other => return self.seeing.fail(format!("{name} is not made: {other:?}")),
            }
        }
        if self.random.chance(0.5) {
            // The first versions lie among the stable objects, and stay there for long.
            for (table, key) in tables.iter().flat_map(|it| (0..KEYS).map(move |key| (*it, key))) {
                self.overwrite(table, key, patience).await;
            }
        }
        let objects = (0..self.seeing.plan.stable).map(|number| {
            let (key, value) = stable(number);
            let (condition, action) = (Condition::Always, Action::Write(value));
            Operation { table: tables[0], key, condition, action }
        });
        let results = self.client.all(objects.collect(), patience).await;
        if let Some(error) = results.into_iter().find_map(Result::err) {
            return self.seeing.fail(format!("the stable objects are not written: {error}"));
        }
        self.client.close();
        self.seeing.seen.borrow_mut().tables = tables;
    }

    /// Sends requests of all kinds until `left` is used up.
    pub(crate) async fn work(mut self, number: usize, left: Rc<Cell<u64>>) {
        self.number = number;
        while left.get() > 0 {
            if self.seeing.is_hurried() {
                self.hurry().await;
                continue;
            }
            left.set(left.get() - 1);
            match self.random.below(100) {
                0..6 => self.split().await,
                6..14 => self.own_table().await,
                14..30 => self.walk_on(WALK_PATIENCE).await,
                30..34 if self.seeing.plan.migrations => self.migrate().await,
                34 if self.seeing.plan.verdicts && self.churns() => self.fade().await,
                35..39 => self.expire().await,
                _ if self.churns() => self.churn().await,
                _ => {
                    let tables = self.seeing.seen.borrow().tables.clone();
                    let table = tables[self.random.below(2) as usize];
                    self.operate(table).await;
                }
            }
            let mean = self.seeing.plan.thinks.as_nanos() as f64;
            self.pause(mean).await;
        }
        self.client.close();
    }

    /// Does one operation of a hurrying user.
    async fn hurry(&mut self) {
        let now = self.seeing.time.get();
        let (until, is_parted, is_rushed, is_moving) = {
            let seen = self.seeing.seen.borrow();
            let is = |until| now < until;
            (
                seen.hurried_until,
                is(seen.parted_until),
                is(seen.rushed_until),
                is(seen.moving_until),
            )
        };
        let (kept_until, kept) = self.seeing.seen.borrow().keep_to;
        if now < kept_until {
            self.update_one_of(kept).await;
            return self.pause(RUSHED_WAIT_NS).await;
        }
        if now < self.seeing.seen.borrow().pressed_until {
            self.press().await;
            return self.pause(PRESSED_WAIT_NS).await;
        }
        if is_moving && self.random.chance(0.1) {
            self.grow().await;
            return self.migrate().await;
        }
        if is_parted {
            self.hurry = (until, self.number > 0);
        } else if self.hurry.0 < until {
            // Half of the users only read, so they do not notice whether writes still work.
            self.hurry = (until, self.random.chance(0.5));
        }
        if !self.hurry.1 && !is_parted && self.churns() {
            return self.churn().await;
        }
        if self.hurry.1 && !is_parted && self.random.chance(0.1) {
            self.walk = None;
            return self.walk_on(Duration::from_millis(500)).await;
        }
        let table = self.seeing.seen.borrow().tables[self.random.below(2) as usize];
        // There are few objects, so that users meet. A user without an answer soon tries another
        // one.
        let (keys, longest) = if is_parted { (KEYS / 2, 250) } else { (KEYS, 8000) };
        let key = self.random.below(keys);
        let (judged, action, condition) = match self.hurry.1 {
            true => (Judged::Read, Action::Read, Condition::Always),
            false => self.choose(key),
        };
        let operation = Operation { table, key: key.to_be_bytes().to_vec(), condition, action };
        let patience = Duration::from_millis(self.random.magnitude(50..longest));
        self.begin(vec![(key, judged, operation)], patience, false).await;
        self.pause(if is_rushed { RUSHED_WAIT_NS } else { HURRIED_WAIT_NS }).await;
    }

    /// Updates an object of one of the tables.
    async fn update_one_of(&mut self, place: usize) {
        let table = self.seeing.seen.borrow().tables[place];
        let key = self.random.below(KEYS);
        let (judged, action, condition) = self.choose(key);
        let operation = Operation { table, key: key.to_be_bytes().to_vec(), condition, action };
        let patience = Duration::from_millis(if place == NARROW { 8000 } else { 250 });
        self.begin(vec![(key, judged, operation)], patience, false).await;
    }

    async fn pause(&mut self, mean_ns: f64) {
        let wait = Duration::from_nanos(self.random.exponential(mean_ns) as u64);
        self.client.tasks().sleep(wait).await;
    }

    /// Asks the cluster to switch a format on, and records the answer.
    pub(crate) async fn switch(self, format: Format, noted: Rc<RefCell<Option<SettingsChanged>>>) {
        let changes = ChangeSettings { format: Some(format), ..ChangeSettings::default() };
        let patience = Duration::from_secs(20);
        match self.client.ask(Question::ChangeSettings(changes), patience).await {
            Ok(Reply::Settings(changed)) => _ = noted.replace(Some(changed)),
            other => self.seeing.fail(format!("the switch to {format}: {other:?}")),
        }
        self.client.close();
    }

    /// Reads and updates everything once more, after the faults.
    pub(crate) async fn look_back(mut self, patience: Duration) {
        let tables = self.seeing.seen.borrow().tables.clone();
        for table in tables {
            let one = |key: u64, action| Operation {
                table,
                key: key.to_be_bytes().to_vec(),
                condition: Condition::Always,
                action,
            };
            let reads = (0..KEYS).map(|key| (key, Judged::Read, one(key, Action::Read)));
            self.begin(reads.collect(), patience, true).await;
            let by = |key| one(key, Action::Increment(Number::Integer(1)));
            let updates = (0..NUMBERS).map(|key| (key, Judged::Increment { by: 1 }, by(key)));
            self.begin(updates.collect(), patience, true).await;
        }
        self.walk = None;
        let until = self.client.tasks().now() + patience;
        loop {
            self.walk_on(WALK_PATIENCE).await;
            if self.walk.is_none() {
                break;
            }
            if self.client.tasks().now() > until {
                return self.seeing.fail("a walk does not come to an end");
            }
        }
        match self.client.ask(Question::ClusterStatus, patience).await {
            Ok(Reply::Cluster(_)) => {}
            other => self.seeing.fail(format!("the cluster's status: {other:?}")),
        }
        self.client.close();
    }

    /// Reads and updates until a time, with hardly any pauses. No operation may take longer than
    /// `longest`.
    pub(crate) async fn work_until(mut self, until: Duration, longest: Duration) {
        let tables = self.seeing.seen.borrow().tables.clone();
        while self.seeing.time.get() < until.as_nanos() as u64 {
            let table = tables[self.random.below(2) as usize];
            let key = self.random.below(KEYS);
            let (judged, action, condition) = self.choose(key);
            let operation = Operation { table, key: key.to_be_bytes().to_vec(), condition, action };
            let called = self.seeing.time.get();
            self.begin(vec![(key, judged, operation)], Duration::from_secs(30), false).await;
            let took = Duration::from_nanos(self.seeing.time.get() - called);
            if took > WAIT {
                self.seeing.seen.borrow_mut().waited += took;
            }
            if took > longest {
                self.seeing.fail(format!("an operation took {took:?}: {judged:?} {table:?} {key}"));
            }
            self.pause(RUSHED_WAIT_NS).await;
        }
        self.client.close();
    }

    /// Does some operations on different objects of a table, all at once.
    async fn operate(&mut self, table: TableId) {
        let count = if self.random.chance(0.5) { 1 } else { self.random.within(2..KEYS + 1) };
        let first = self.random.below(KEYS);
        let mut wanted = Vec::new();
        for key in (first..first + count).map(|key| key % KEYS) {
            let (judged, action, condition) = self.choose(key);
            let operation = Operation { table, key: key.to_be_bytes().to_vec(), condition, action };
            wanted.push((key, judged, operation));
        }
        let patience = Duration::from_millis(self.random.magnitude(50..8000));
        self.begin(wanted, patience, false).await;
    }

    async fn begin(
        &mut self,
        wanted: Vec<(u64, Judged, Operation)>,
        patience: Duration,
        must_be_done: bool,
    ) {
        let called = self.seeing.time.get();
        let mut numbers = Vec::new();
        let mut operations = Vec::new();
        for (key, action, operation) in wanted {
            let mut seen = self.seeing.seen.borrow_mut();
            numbers.push(seen.history.len());
            let key = (operation.table.0, key);
            let outcome = Outcome::Unknown;
            seen.history.push(Judgeable { key, called, answered: called, action, outcome });
            operations.push(operation);
        }
        let results = self.client.all(operations, patience).await;
        for (number, result) in numbers.into_iter().zip(results) {
            let is_refused = matches!(result, Err(Error::NotANumber { .. }));
            if must_be_done
                && !is_refused
                && let Err(error) = &result
            {
                self.seeing
                    .fail(format!("the faults have ended, but an operation failed: {error}"));
            }
            self.record(number, result);
        }
    }

    fn choose(&mut self, key: u64) -> (Judged, Action, Condition) {
        use linearizability::Condition as Its;
        let (judged, condition) = match self.random.below(8) {
            0 => (Its::Absent, Condition::Absent),
            1 => (Its::Present, Condition::Present),
            2 => {
                let version = linearizability::Version(self.seen_version.0);
                (Its::VersionIs(version), Condition::VersionIs(self.seen_version))
            }
            _ => (Its::Always, Condition::Always),
        };
        match self.random.below(9) {
            0..2 => (Judged::Read, Action::Read, Condition::Always),
            2 => (Judged::Delete { condition: judged }, Action::Delete, condition),
            3..6 if key < NUMBERS => {
                let by = 1 + self.random.below(1000);
                let action = Action::Increment(Number::Integer(by as i64));
                (Judged::Increment { by }, action, Condition::Always)
            }
            _ => {
                // Some values are bytes, also of keys that are incremented.
                let is_text = key < NUMBERS && self.random.chance(0.3);
                let text = if is_text { linearizability::TEXT } else { 0 };
                let value = self.random.below(1 << 48) | text;
                (Judged::Write { value, condition: judged }, self::write(key, value), condition)
            }
        }
    }

    fn record(&mut self, number: usize, result: Result<Answer, Error>) {
        let version = |version: Version| linearizability::Version(version.0);
        let mut seen = self.seeing.seen.borrow_mut();
        let Some(noted) = seen.history.get_mut(number) else { return };
        let (table, key) = noted.key;
        noted.outcome = match result {
            Ok(Answer::Found { version: found, value }) => {
                self.seen_version = found;
                let Some(value) = self::number(key, &value) else {
                    let violation = format!(
                        "object {key} of table {table} has a value of {} bytes that no user wrote",
                        value.len()
                    );
                    drop(seen);
                    return self.seeing.fail(violation);
                };
                Outcome::Found(version(found), value)
            }
            Ok(Answer::Absent) => Outcome::Absent,
            Ok(Answer::Written(written)) => match noted.action {
                Judged::Write { value, .. } => Outcome::Done(version(written), value),
                _ => return,
            },
            Ok(Answer::Deleted(deleted)) => Outcome::Deleted(version(deleted)),
            Ok(Answer::Sum { version: written, number: Number::Integer(sum) }) => {
                Outcome::Done(version(written), sum as u64)
            }
            // The refusal also comes for an increment of bytes, also of 8 bytes.
            Err(
                Error::ConditionFailed { version: found } | Error::NotANumber { version: found },
            ) => {
                self.seen_version = found;
                Outcome::Refused(version(found))
            }
            Err(Error::Unknown(_)) => return,
            // The first copy of a duplicated datagram may have been refused, and the second not.
            Err(Error::TimedOut(_)) if !self.seeing.plan.link.streams => return,
            // The error says that nothing was done, so the judge must not need the update. A read
            // stands for no effect.
            Err(Error::TimedOut(_)) => {
                noted.action = Judged::Read;
                return;
            }
            other => {
                drop(seen);
                return self.seeing.fail(format!("object {key} of table {table}: {other:?}"));
            }
        };
        noted.answered = self.seeing.time.get();
    }

    /// Continues a walk over the wide table, or begins one.
    async fn walk_on(&mut self, patience: Duration) {
        let table = self.seeing.seen.borrow().tables[0];
        let mut walk = self.walk.take().unwrap_or_else(|| Walk {
            enumeration: Enumeration::new(table),
            found: BTreeMap::new(),
            begun: self.seeing.time.get(),
        });
        for _ in 0..self.random.within(1..6) {
            let Some(operation) = walk.enumeration.next() else {
                return self.walked(table, walk);
            };
            let called = self.seeing.time.get();
            let mut results = self.client.all(vec![operation], patience).await;
            match results.pop() {
                Some(Ok(answer)) => {
                    let Some(objects) = walk.enumeration.answered(answer) else {
                        return self.seeing.fail("a page that makes no sense");
                    };
                    for Object { key, version, kind, value } in objects {
                        self.judge_found(table, called, (&key, version, kind, &value));
                        let number = key
                            .strip_prefix(b"stable ")
                            .and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
                        if number.is_some_and(|number| stable(number).1 != value) {
                            self.seeing.fail("a walk tells of a value that no user wrote");
                        }
                        *walk.found.entry(key).or_default() += 1;
                    }
                }
                Some(Err(Error::TimedOut(_))) => {}
                other => return self.seeing.fail(format!("a walk: {other:?}")),
            }
        }
        self.walk = Some(walk);
    }

    /// Records an object of a walk's page as a read.
    fn judge_found(&self, table: TableId, called: u64, object: (&[u8], Version, ValueKind, &[u8])) {
        let (key, version, kind, value) = object;
        let Some(key) = key.try_into().ok().map(u64::from_be_bytes).filter(|it| *it < KEYS) else {
            return;
        };
        match number(key, value) {
            Some(value) if kind != kind_of(key, value) => {
                self.seeing.fail(format!("a walk tells of {kind:?} where {key} is {value:x}"));
            }
            Some(value) => {
                let outcome = Outcome::Found(linearizability::Version(version.0), value);
                self.judge_read((table, key), called, outcome);
            }
            None => {
                self.seeing.fail(format!("a walk tells of a value of {key} that no user wrote"))
            }
        }
    }

    fn judge_read(&self, (table, key): (TableId, u64), called: u64, outcome: Outcome) {
        let (key, answered) = ((table.0, key), self.seeing.time.get());
        let read = Judgeable { key, called, answered, action: Judged::Read, outcome };
        self.seeing.seen.borrow_mut().history.push(read);
    }

    fn walked(&self, table: TableId, walk: Walk) {
        self.seeing.seen.borrow_mut().walks += 1;
        // A walk without an object has read that the object was absent, at some time since its
        // begin.
        if self.seeing.time.get() - walk.begun < JUDGED_WALK_NS {
            for key in (0..KEYS).filter(|it| !walk.found.contains_key(&it.to_be_bytes()[..])) {
                self.judge_read((table, key), walk.begun, Outcome::Absent);
            }
        }
        for number in 0..self.seeing.plan.stable {
            if !walk.found.contains_key(&stable(number).0) {
                self.seeing.fail(format!("a walk does not tell of the stable object {number}"));
            }
        }
        if let Some((key, count)) = walk.found.iter().find(|(_, count)| **count > 1) {
            let key = String::from_utf8_lossy(key);
            self.seeing.fail(format!("a walk tells of {key:?} {count} times"));
        }
    }
}
