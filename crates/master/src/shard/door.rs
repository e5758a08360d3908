//! The objects of a table for a *door*: a part of the same process that serves the clients of
//! another protocol.
//!
//! A door does not wait for each operation. It does several in a row, and then holds their answers
//! back until the log is durable up to [`DoorTable::until`]. That is the rule for every answer of a
//! shard: no crash can unsay it.

use super::Shard;
use crate::refusal::Refusal;
use std::time::Duration;
use thunderhead_log::{
    Attributes, Condition, Cursor, Error, Evicted, ExpectedUpdates, HashedKey, Item, Keeps, Object,
    TabletRange, Update, Usage,
};
use thunderhead_rpc::Context;
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{LogPosition, Status, TableId, Timestamp, Version};

/// The cost of a read.
const READ: Duration = Duration::from_nanos(100);

/// The cost of a write or a delete, with its share of the replication.
const UPDATE: Duration = Duration::from_nanos(700);

/// The fewest objects that are read or written together: the steps of a batch take time too.
const TOGETHER_MIN: usize = 4;

/// The objects of a table at a door.
pub struct DoorTable<'a> {
    shard: &'a mut Shard,
    table: TableId,
    until: LogPosition,
    cost: Duration,
}

/// The reason why a door cannot do an operation now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoorError {
    /// The shard does not serve the key now: it moves, or recovers, or the shard waits for backups.
    /// The operation can be done later, perhaps elsewhere.
    NotNow(Status),
    /// The log refuses the operation.
    Log(Error),
}

impl DoorError {
    /// The status that tells the reason.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            DoorError::NotNow(status) => *status,
            DoorError::Log(_) => Status::Busy,
        }
    }
}

impl From<Error> for DoorError {
    fn from(error: Error) -> DoorError {
        match error {
            Error::UnknownTablet { .. } => DoorError::NotNow(Status::Moved),
            Error::CleanerBehind => DoorError::NotNow(Status::AwaitingMemory),
            other => DoorError::Log(other),
        }
    }
}

impl From<Refusal> for DoorError {
    fn from(refusal: Refusal) -> DoorError {
        DoorError::NotNow(refusal.status)
    }
}

impl Shard {
    /// Begins some operations of a door on a table. `evicts`: the objects of its cache make room
    /// for newer ones.
    ///
    /// # Errors
    /// If the shard must not answer reads now: its backups are silent, or it may be deposed.
    pub fn door(
        &mut self,
        context: &mut Context<'_>,
        table: TableId,
        evicts: bool,
    ) -> Result<DoorTable<'_>, DoorError> {
        if let Some(refusal) = self.lapsed(context) {
            return Err(refusal.into());
        }
        self.watch_expiry(context);
        // A table that is a cache evicts by its own option. No door may switch that off.
        let evicts = evicts || self.control.options.has_caches();
        if self.log.evicts() != evicts {
            self.log.set_evicts(evicts);
        }
        let (until, cost) = (LogPosition::default(), Duration::ZERO);
        Ok(DoorTable { shard: self, table, until, cost })
    }

    /// Whether the shard serves a table that has one tablet: the coordinator has told it so.
    #[must_use]
    pub fn owns(&self, table: TableId) -> bool {
        let is_there = self.log.tablets().any(|(range, _)| range.table == table);
        is_there && self.control.closed(table, b"").is_none()
    }

    /// How far the log is durable: answers that wait for this position may leave.
    #[must_use]
    pub fn durable(&self) -> LogPosition {
        self.log.durable()
    }

    /// The time by which objects expire.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.log.time()
    }

    /// The amounts that the log holds.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.log.usage()
    }

    /// The number of objects of a table in this shard. It includes expired objects until they are
    /// removed.
    #[must_use]
    pub fn objects_of(&self, table: TableId) -> u64 {
        let tablets = self.log.statistics().filter(|it| it.tablet.table == table);
        tablets.map(|it| it.objects).sum()
    }
}

impl DoorTable<'_> {
    /// The position up to which the log must be durable before the results of these operations are
    /// told.
    #[must_use]
    pub fn until(&self) -> LogPosition {
        self.until
    }

    /// Turns to another table.
    pub fn turn_to(&mut self, table: TableId) {
        self.table = table;
    }

    /// The number of objects of the table. It includes expired objects until they are removed.
    ///
    /// # Errors
    /// If the shard does not serve the table now.
    pub fn objects(&mut self) -> Result<u64, DoorError> {
        // Any key tells whether the table is served: it has one tablet.
        self.check(b"")?;
        // The number tells of updates that may not be durable.
        self.until = self.until.max(self.shard.log.appended());
        Ok(self.shard.objects_of(self.table))
    }

    /// Whether the shard has objects of a table.
    #[must_use]
    pub fn has_objects_of(&self, table: TableId) -> bool {
        self.shard.objects_of(table) > 0
    }

    /// The cost of the operations so far, for [`Context::charge`].
    #[must_use]
    pub fn cost(&self) -> Duration {
        self.cost
    }

    /// The time by which objects expire.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.shard.log.time()
    }

    /// Whether the shard serves a key.
    fn check(&self, key: &[u8]) -> Result<(), DoorError> {
        match self.shard.control.closed(self.table, key) {
            Some(refusal) => Err(refusal.into()),
            None => Ok(()),
        }
    }

    /// Reads an object: returns the result of `show`, or `None` if there is no object.
    ///
    /// # Errors
    /// If the shard does not serve the key now.
    pub fn read<T>(
        &mut self,
        key: &[u8],
        show: impl FnOnce(&Item<'_>) -> T,
    ) -> Result<Option<T>, DoorError> {
        self.check(key)?;
        self.shard.statistics.reads += 1;
        self.cost += READ;
        let log = &self.shard.log;
        if let Some(object) = log.read_item(self.table, key)? {
            self.until = self.until.max(log.durable_at(&object).unwrap_or_default());
            return Ok(Some(show(&object)));
        }
        self.until = self.until.max(self.shard.expired_until()?);
        Ok(None)
    }

    /// Reads several objects: calls `show` for each, in the order of their keys, until it returns
    /// `false`.
    ///
    /// # Errors
    /// If the shard does not serve one of the keys now. Then do not tell the shown objects.
    pub fn read_each<'k>(
        &mut self,
        keys: impl ExactSizeIterator<Item = &'k [u8]> + Clone,
        mut show: impl FnMut(Option<&Item<'_>>) -> bool,
    ) -> Result<(), DoorError> {
        if !self.shard.control.moves_nothing() {
            keys.clone().try_for_each(|key| self.check(key))?;
        }
        let (log, table) = (&self.shard.log, self.table);
        let (mut until, mut count, mut is_absent) = (self.until, 0, false);
        let mut goes_on = Ok(true);
        let mut each = |found: Result<Option<Item<'_>>, Error>| {
            if !matches!(goes_on, Ok(true)) {
                return;
            }
            count += 1;
            goes_on = found.map(|object| {
                match &object {
                    Some(object) => until = until.max(log.durable_at(object).unwrap_or_default()),
                    None => is_absent = true,
                }
                show(object.as_ref())
            });
        };
        if keys.len() < TOGETHER_MIN {
            keys.for_each(|key| each(log.read_item(table, key)));
        } else {
            log.read_items(keys.map(|key| (table, key)), |_, found| each(found));
        }
        goes_on?;
        if is_absent {
            until = until.max(self.shard.expired_until()?);
        }
        self.until = until;
        self.cost += READ * count;
        self.shard.statistics.reads += u64::from(count);
        Ok(())
    }

    /// Writes several objects, one after the other, whether their keys exist or not. Stops before
    /// the first object that fails. Returns the number of written objects.
    ///
    /// # Errors
    /// The result of the object that follows.
    pub fn put_each<'u>(
        &mut self,
        puts: impl ExactSizeIterator<Item = (&'u [u8], &'u [u8])> + Clone,
        attributes: Attributes,
    ) -> (usize, Result<(), DoorError>) {
        let (table, count) = (self.table, puts.len());
        let mut keys = (count >= TOGETHER_MIN)
            .then(|| self.shard.log.expect_updates(puts.clone().map(|(key, _)| (table, key))));
        for (done, (key, value)) in puts.enumerate() {
            // The log expects only so many at a time.
            let expected = keys.as_mut().and_then(ExpectedUpdates::next);
            let hashed = expected.unwrap_or_else(|| HashedKey::of(key));
            if let Err(error) = self.put_expected(key, hashed, value, attributes) {
                return (done, Err(error));
            }
        }
        (count, Ok(()))
    }

    /// Writes an object, whether the key exists or not.
    ///
    /// # Errors
    /// If the shard does not serve the key now, or the log refuses the object.
    pub fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        attributes: Attributes,
    ) -> Result<Version, DoorError> {
        self.put_expected(key, HashedKey::of(key), value, attributes)
    }

    fn put_expected(
        &mut self,
        key: &[u8],
        hashed: HashedKey<'_>,
        value: &[u8],
        attributes: Attributes,
    ) -> Result<Version, DoorError> {
        self.check_update(key)?;
        let (log, table) = (&mut self.shard.log, self.table);
        let written = log.with_attributes(attributes, |log| {
            log.write_expected(table, hashed, value, Condition::Always)
        });
        self.done(key, written.map(|written| written.version))
    }

    /// The version that the next object of a cache will have, in place of one with this version.
    #[must_use]
    pub fn next_version(&self, present: Version) -> Version {
        present.max(self.shard.log.safe_version()).next()
    }

    /// Deletes an object; returns whether there was one.
    ///
    /// # Errors
    /// If the shard does not serve the key now.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, DoorError> {
        self.check_update(key)?;
        let deleted = self.shard.log.delete(self.table, key, Condition::Always);
        let deleted = self.done(key, deleted)?;
        if deleted.is_none() {
            self.until = self.until.max(self.shard.expired_until()?);
        }
        Ok(deleted.is_some())
    }

    /// Does updates in their order, all or none, also after a crash: see
    /// [`Log::update_together`](thunderhead_log::Log::update_together).
    /// Returns the number of updates that were done, which is less than all only in a rare case
    /// that is described there.
    ///
    /// # Errors
    /// If the shard does not serve a key now, or the log refuses an object. Then none is done.
    pub fn update_together(&mut self, updates: &[Update<'_>]) -> Result<usize, DoorError> {
        for update in updates {
            self.check_update_in(update.table, update.key)?;
        }
        let result = self.shard.log.update_together(updates);
        let done = match &result {
            Ok(done) => *done,
            Err(_) => 0,
        };
        for update in updates.iter().take(done) {
            self.note(update.table, update.key);
        }
        self.cost += UPDATE * u32::try_from(done).unwrap_or(u32::MAX);
        self.shard.statistics.updates += done as u64;
        self.end_update(result)
    }

    /// Keeps some evicted objects until [`DoorTable::take_evicted`]. As long as there is one,
    /// nothing else is evicted. `is_freeing`: the door frees memory now, and nothing is evicted.
    pub fn keep_evicted(&mut self, keeps: Keeps, is_freeing: bool) {
        self.shard.log.keep_evicted(keeps);
        self.shard.log.pause_eviction(is_freeing);
    }

    /// Takes the evicted objects that were kept.
    pub fn take_evicted(&mut self) -> Vec<Evicted> {
        self.shard.log.take_evicted()
    }

    /// Sets whether the keys of evicted objects are noted until
    /// [`DoorTable::take_evicted_keys`].
    pub fn note_evicted_keys(&mut self, notes: bool) {
        self.shard.log.note_evicted_keys(notes);
    }

    /// Takes the noted keys of evicted objects, with their tables.
    pub fn take_evicted_keys(&mut self) -> Vec<(TableId, Vec<u8>)> {
        self.shard.log.take_evicted_keys()
    }

    /// Whether updates are done together also after a crash.
    #[must_use]
    pub fn fits_together(&self, updates: &[Update<'_>]) -> bool {
        self.shard.log.fits_together(updates)
    }

    /// Notes that a part of an object was found to be gone, which expired at a time: the log's
    /// clock never shows an earlier time again, not even after a recovery.
    ///
    /// # Errors
    /// If the log cannot note it now. Then tell no client that the part is gone.
    pub fn note_gone(&mut self, expired: Timestamp) -> Result<(), DoorError> {
        self.shard.log.note_gone(expired);
        self.until = self.until.max(self.shard.expired_until()?);
        Ok(())
    }

    /// Visits some objects, in no order. Returns where to go on, or `None` at the end. See
    /// [`Log::scan`](thunderhead_log::Log::scan).
    ///
    /// # Errors
    /// If the shard does not serve the table now.
    pub fn walk(
        &mut self,
        cursor: Cursor,
        mut visit: impl FnMut(&Object<'_>),
    ) -> Result<Option<Cursor>, DoorError> {
        let log = &self.shard.log;
        let mut until = LogPosition::default();
        let next = log.scan(TabletRange::whole(self.table), cursor, |object| {
            until = until.max(log.durable_at(&object).unwrap_or_default());
            visit(&object);
        })?;
        self.cost += READ;
        self.until = self.until.max(until).max(self.shard.expired_until()?);
        Ok(next)
    }

    fn check_update(&self, key: &[u8]) -> Result<(), DoorError> {
        self.check_update_in(self.table, key)
    }

    fn check_update_in(&self, table: TableId, key: &[u8]) -> Result<(), DoorError> {
        let control = &self.shard.control;
        if control.moves_nothing() {
            return Ok(());
        }
        control.refusal_of_update(table, key).map_or(Ok(()), |refusal| Err(refusal.into()))
    }

    /// Notes an update for migrations.
    fn note(&mut self, table: TableId, key: &[u8]) {
        let control = &mut self.shard.control;
        if !control.moves_nothing() {
            self.cost += control.migrations.note(Identity::NONE, table, key);
        }
    }

    /// Notes an update for the replication and for migrations.
    fn done<T>(&mut self, key: &[u8], result: Result<T, Error>) -> Result<T, DoorError> {
        self.shard.statistics.updates += 1;
        self.note(self.table, key);
        self.cost += UPDATE;
        self.end_update(result)
    }

    fn end_update<T>(&mut self, result: Result<T, Error>) -> Result<T, DoorError> {
        let shard = &mut *self.shard;
        shard.has_updated = true;
        let is_behind = matches!(result, Err(Error::CleanerBehind));
        shard.cleaning.is_urgent |= is_behind || shard.log.wants_victims();
        self.until = self.until.max(shard.log.appended());
        Ok(result?)
    }
}

impl std::fmt::Debug for DoorTable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut it = f.debug_struct("DoorTable");
        it.field("table", &self.table);
        it.field("until", &self.until).finish_non_exhaustive()
    }
}
