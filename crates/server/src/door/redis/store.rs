//! The store on which Redis's commands are executed: the tables of the databases in the shard.

use super::OfPart;
use super::databases::{CATALOG_KEY, Catalog, Databases, Tables, number, place};
use std::ops::Range;
use std::time::Duration;
use thunderhead_doors::resp::Server;
use thunderhead_doors::resp::store as contract;
use thunderhead_doors::resp::store::{Change, Database, Found, Kind, PAGES, Refusal, Strings};
use thunderhead_log::{Attributes, Cursor, Error, Evicted, Item, Object, Timestamp, Update};
use thunderhead_master::{DoorError, DoorTable};
use thunderhead_wire::{KeyHash, LogPosition, Status, TableId};

/// The first byte of each key: the log has no empty key, and Redis has one.
const KEY: u8 = 0;

/// The room for keys that is kept for the next operation.
const KEYS_BYTES_KEPT: usize = 64 << 10;

/// See the module's documentation.
pub(super) struct Store<'a, 'd> {
    objects: DoorTable<'a>,
    tables: &'d mut Tables,
    databases: &'d Databases,
    /// The key of an operation, and the value that was found.
    buffers: &'d mut (Vec<u8>, Vec<u8>),
    caches: Caches,
    /// Whether pages of collections that are gone will be deleted soon.
    is_freeing: bool,
    now: u64,
    /// The reason why an operation could not be done now.
    blocked: Status,
}

/// An update whose key lies in a buffer.
struct Planned<'v> {
    table: TableId,
    key: Range<usize>,
    new: Option<(&'v [u8], Attributes)>,
}

/// Whether objects that are written now may be evicted.
#[derive(Clone, Copy)]
pub(super) struct Caches {
    /// Objects that expire.
    pub(super) expiring: bool,
    /// All other objects.
    pub(super) lasting: bool,
}

impl Caches {
    fn attributes(self, database: Database, kind: Kind, expires: Option<u64>) -> Attributes {
        let is_cached = if expires.is_some() { self.expiring } else { self.lasting };
        let expires = expires.map_or(Timestamp::ZERO, |time| Timestamp(time.max(1)));
        Attributes {
            expires: expires.min(Timestamp::LATEST),
            client_flags: kind as u32,
            is_cached: database & PAGES == 0 && is_cached,
            ..Attributes::NONE
        }
    }
}

/// Whether a change is one of a page.
fn is_of_page(change: &Change<'_>) -> bool {
    match change {
        Change::Put { database, .. } | Change::Remove { database, .. } => database & PAGES != 0,
        Change::Clear(_) | Change::Swap(..) => false,
    }
}

fn put_key<'k>(buffer: &'k mut Vec<u8>, key: &[u8]) -> &'k [u8] {
    buffer.clear();
    buffer.push(KEY);
    buffer.extend_from_slice(key);
    buffer
}

/// Puts several keys into a buffer, and returns them as they lie there.
fn put_keys<'k>(
    buffer: &'k mut Vec<u8>,
    keys: impl ExactSizeIterator<Item = &'k [u8]> + Clone,
) -> impl ExactSizeIterator<Item = &'k [u8]> + Clone {
    buffer.clear();
    buffer.shrink_to(KEYS_BYTES_KEPT);
    for key in keys.clone() {
        buffer.push(KEY);
        buffer.extend_from_slice(key);
    }
    let mut rest = buffer.as_slice();
    keys.map(move |key| {
        let (key, behind) = rest.split_at_checked(1 + key.len()).unwrap_or_default();
        rest = behind;
        key
    })
}

fn kind_of(attributes: &Attributes) -> Kind {
    u8::try_from(attributes.client_flags).ok().and_then(Kind::of).unwrap_or_default()
}

/// Whether an object is the header of a large collection.
pub(super) fn has_pages(object: &Object<'_>) -> bool {
    let kind = kind_of(&object.attributes());
    kind != Kind::String && Server::has_pages(kind, &object.value().to_vec())
}

fn expires_of(attributes: &Attributes) -> Option<u64> {
    (attributes.expires != Timestamp::ZERO).then_some(attributes.expires.0)
}

fn found<'v>(object: &Item<'_>, value: &'v [u8]) -> Found<'v> {
    let attributes = object.attributes();
    let (kind, expires) = (kind_of(attributes), expires_of(attributes));
    Found { value, kind, expires, version: object.version().0 }
}

/// The version of an object of a table. Versions of two tables may be equal, and a database may
/// change its table.
fn version_in(table: TableId, version: u64) -> u64 {
    version ^ table.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the refusal of a very long list in whose middle memory ran short. The client gets an
/// error.
#[cold]
fn done_in_part(done: usize, of: usize) -> Refusal {
    tracing::error!(done, of, "only a part of a transaction was done");
    Refusal::Full
}

impl<'a, 'd> Store<'a, 'd> {
    /// Returns the store. `objects` has turned to the table with the catalog. `now` is its time.
    pub(super) fn new(
        (mut objects, now): (DoorTable<'a>, u64),
        tables: &'d mut Tables,
        databases: &'d Databases,
        buffers: &'d mut (Vec<u8>, Vec<u8>),
        (caches, is_freeing): (Caches, bool),
    ) -> Store<'a, 'd> {
        let mut blocked = Status::Busy;
        if tables.catalog().is_none() {
            match objects.read(CATALOG_KEY, |object| object.value().to_vec()) {
                Ok(text) => tables.learn(text.as_deref()),
                Err(DoorError::NotNow(status)) => blocked = status,
                Err(DoorError::Log(_)) => {}
            }
        }
        Store { objects, tables, databases, buffers, caches, is_freeing, now, blocked }
    }

    /// Takes the large collections that were evicted: their databases, kinds and headers.
    /// Those of other parts of the keys go to `strays`, and those of this part come from there.
    pub(super) fn evicted(&mut self, of_part: Option<&OfPart>) -> Vec<(Database, Kind, Vec<u8>)> {
        let mut evicted = self.objects.take_evicted();
        let Some(catalog) = self.tables.catalog() else { return Vec::new() };
        if let Some((_, strays)) = of_part {
            let is_own = |table| catalog.database_of(table).is_some();
            evicted = strays.borrow_mut().exchange(evicted, is_own);
        }
        let with_database = |it: Evicted| {
            let database = catalog.database_of(it.table)? as Database;
            Some((database, kind_of(&it.attributes), it.value))
        };
        evicted.into_iter().filter_map(with_database).collect()
    }

    /// Takes the noted keys of evicted objects, with their databases. Those of other parts of the
    /// keys go to the strays, too.
    pub(super) fn evicted_keys(&mut self, of_part: Option<&OfPart>) -> Vec<(Database, Vec<u8>)> {
        let mut keys = self.objects.take_evicted_keys();
        let Some(catalog) = self.tables.catalog() else { return Vec::new() };
        if let Some((part, strays)) = of_part {
            let is_own = |table| catalog.database_of(table).is_some();
            keys = strays.borrow_mut().exchange_keys(*part, keys, is_own);
        }
        let with_database = |(table, mut key): (TableId, Vec<u8>)| {
            let database = catalog.database_of(table)? as Database;
            key.drain(..key.len().min(1));
            Some((database, key))
        };
        keys.into_iter().filter_map(with_database).collect()
    }

    /// Ends the use: returns its cost, the position up to which the log must be durable before
    /// anything is told, and the reason why an operation could not be done.
    pub(super) fn end(self) -> (Duration, LogPosition, Status) {
        let until = self.objects.until().max(self.tables.until());
        (self.objects.cost(), until, self.blocked)
    }

    fn refusal(&mut self, error: &DoorError) -> Refusal {
        match error {
            DoorError::NotNow(status) => {
                self.blocked = *status;
                Refusal::NotNow
            }
            DoorError::Log(Error::ValueTooLong { .. } | Error::KeyTooLong { .. }) => {
                Refusal::TooLong
            }
            DoorError::Log(_) => {
                let Store { tables, objects, .. } = self;
                let clears = tables.forget_dropped(|table| objects.has_objects_of(table));
                if !clears && !self.is_freeing {
                    return Refusal::Full;
                }
                // The memory of a database that was just cleared becomes free soon, and so does
                // that of pages without a header.
                self.blocked = Status::AwaitingMemory;
                Refusal::NotNow
            }
        }
    }

    fn catalog(&self) -> Result<&Catalog, Refusal> {
        self.tables.catalog().ok_or(Refusal::NotNow)
    }

    /// Does changes that are all of objects in databases with tables. Returns `None`, and does
    /// nothing, if the list has other changes.
    fn apply_to_objects(&mut self, changes: &[Change<'_>]) -> Result<Option<()>, Refusal> {
        let Store { objects, tables, buffers: (keys, _), caches, .. } = self;
        let catalog = tables.catalog().ok_or(Refusal::NotNow)?;
        keys.clear();
        keys.shrink_to(KEYS_BYTES_KEPT);
        for change in changes {
            match change {
                Change::Put { key, .. } | Change::Remove { key, .. } => {
                    keys.push(KEY);
                    keys.extend_from_slice(key);
                }
                Change::Clear(_) | Change::Swap(..) => return Ok(None),
            }
        }
        let mut rest = keys.as_slice();
        let mut updates = Vec::with_capacity(changes.len());
        for change in changes {
            let (database, key, new) = match *change {
                Change::Put { database, key, value, kind, expires } => {
                    (database, key, Some((value, caches.attributes(database, kind, expires))))
                }
                Change::Remove { database, key } => (database, key, None),
                Change::Clear(_) | Change::Swap(..) => return Ok(None),
            };
            let Some(table) = catalog.table(place(database)) else { return Ok(None) };
            let (key, behind) = rest.split_at_checked(1 + key.len()).unwrap_or_default();
            rest = behind;
            updates.push(Update { table, key, new });
        }
        // A crash must not leave a part of a large collection.
        if changes.iter().any(is_of_page) && !objects.fits_together(&updates) {
            return Err(Refusal::TooMuch);
        }
        match objects.update_together(&updates) {
            Ok(done) if done < updates.len() => Err(done_in_part(done, updates.len())),
            Ok(_) => Ok(Some(())),
            Err(error) => Err(self.refusal(&error)),
        }
    }

    /// Does the changes of a catalog, and all others.
    fn apply_with(
        &mut self,
        changes: &[Change<'_>],
        taken: &mut Vec<TableId>,
    ) -> Result<(), Refusal> {
        // An empty database keeps its tables.
        let mut empty = Vec::new();
        let swaps = changes.iter().any(|change| matches!(change, Change::Swap(..)));
        for change in changes {
            if let Change::Clear(database) = *change
                && !swaps
                && contract::Store::objects(self, database)? == 0
                && contract::Store::objects(self, database | PAGES)? == 0
            {
                empty.push(database);
            }
        }
        let before = self.catalog()?;
        let missing = before.missing(changes, &empty);
        if missing > 0 {
            *taken = self.databases.take(missing).ok_or(Refusal::NotNow)?;
        }
        let mut unused = taken.iter().copied();
        let mut catalog = before.clone();
        let mut without = Vec::new();
        let mut keys: Vec<u8> = Vec::new();
        let mut updates: Vec<Planned<'_>> = Vec::new();
        let mut add_key = |key: &[u8]| {
            let from = keys.len();
            keys.push(KEY);
            keys.extend_from_slice(key);
            from..keys.len()
        };
        for change in changes {
            match *change {
                // The store's changes of whole databases come before those of objects.
                Change::Clear(database) if empty.contains(&database) => {}
                Change::Clear(database) => {
                    let database = number(database);
                    let had = catalog.clear(database);
                    // Objects that were written in this list, and are cleared again.
                    updates.retain(|planned| !had.contains(&planned.table));
                    without.extend(had);
                }
                Change::Swap(one, other) => catalog.swap(number(one), number(other)),
                Change::Put { database, key, value, kind, expires } => {
                    let table = match catalog.table(place(database)) {
                        Some(table) => table,
                        None => {
                            let table = unused.next().ok_or(Refusal::NotNow)?;
                            catalog.set(place(database), table);
                            table
                        }
                    };
                    let attributes = self.caches.attributes(database, kind, expires);
                    let new = Some((value, attributes));
                    updates.push(Planned { table, key: add_key(key), new });
                }
                Change::Remove { database, key } => {
                    if let Some(table) = catalog.table(place(database)) {
                        updates.push(Planned { table, key: add_key(key), new: None });
                    }
                }
            }
        }
        let text = (catalog != *before).then(|| catalog.text());
        let table = self.databases.catalog().ok_or(Refusal::NotNow)?;
        let new = text.as_deref().map(|text| (text, Attributes::NONE));
        let mut all: Vec<Update<'_>> = Vec::with_capacity(updates.len() + 1);
        if new.is_some() {
            all.push(Update { table, key: CATALOG_KEY, new });
        }
        all.extend(updates.into_iter().map(|Planned { table, key, new }| {
            let key = keys.get(key).unwrap_or_default();
            Update { table, key, new }
        }));
        // A crash must not leave a part of a large collection.
        if changes.iter().any(is_of_page) && !self.objects.fits_together(&all) {
            return Err(Refusal::TooMuch);
        }
        match self.objects.update_together(&all) {
            Ok(done) if done < all.len() => {
                let refusal = done_in_part(done, all.len());
                if done > 0 && new.is_some() {
                    let changed = (catalog, self.objects.until());
                    self.tables.change(changed, without, self.databases);
                    taken.clear();
                }
                Err(refusal)
            }
            Ok(_) => {
                if new.is_some() {
                    let changed = (catalog, self.objects.until());
                    self.tables.change(changed, without, self.databases);
                }
                Ok(())
            }
            Err(error) => Err(self.refusal(&error)),
        }
    }
}

impl contract::Store for Store<'_, '_> {
    fn find(
        &mut self,
        database: Database,
        key: &[u8],
        counts: bool,
    ) -> Result<Option<Found<'_>>, Refusal> {
        let Some(table) = self.catalog()?.table(place(database)) else { return Ok(None) };
        self.objects.turn_to(table);
        let (key_buffer, value) = &mut *self.buffers;
        let read = self.objects.read(put_key(key_buffer, key), |object| {
            value.clear();
            object.value().copy_to(value);
            if counts {
                object.count_use();
            }
            found(object, &[])
        });
        match read {
            Ok(None) => Ok(None),
            Ok(Some(it)) => {
                let version = version_in(table, it.version);
                Ok(Some(Found { value: &self.buffers.1, version, ..it }))
            }
            Err(error) => match self.refusal(&error) {
                // There is no such long key.
                Refusal::TooLong | Refusal::TooMuch => Ok(None),
                Refusal::NotNow | Refusal::Full => Err(Refusal::NotNow),
            },
        }
    }

    fn find_each(
        &mut self,
        database: Database,
        keys: Strings<'_>,
        counts: bool,
        show: &mut dyn FnMut(Option<&Found<'_>>) -> bool,
    ) -> Result<(), Refusal> {
        let Some(table) = self.catalog()?.table(place(database)) else {
            keys.iter().all(|_| show(None));
            return Ok(());
        };
        self.objects.turn_to(table);
        let (key_buffer, buffer) = &mut *self.buffers;
        let read = self.objects.read_each(put_keys(key_buffer, keys.iter()), |object| {
            let Some(object) = object else { return show(None) };
            let value = object.value();
            let value = value.as_slice().unwrap_or_else(|| {
                buffer.clear();
                value.copy_to(buffer);
                buffer
            });
            let it = found(object, value);
            let goes_on = show(Some(&Found { version: version_in(table, it.version), ..it }));
            if counts && goes_on {
                object.count_use();
            }
            goes_on
        });
        read.map_err(|error| match self.refusal(&error) {
            Refusal::TooLong | Refusal::TooMuch | Refusal::NotNow | Refusal::Full => {
                Refusal::NotNow
            }
        })
    }

    fn put_each(&mut self, database: Database, pairs: Strings<'_>) -> usize {
        let attributes = self.caches.attributes(database, Kind::String, None);
        let table = self.catalog().ok().and_then(|catalog| catalog.table(place(database)));
        // As in `apply`: other objects may have to be evicted for these.
        let Some(table) = table.filter(|_| attributes.is_cached || !self.caches.expiring) else {
            return 0;
        };
        self.objects.turn_to(table);
        let keys = put_keys(&mut self.buffers.0, pairs.pairs().map(|(key, _)| key));
        let values = pairs.pairs().map(|(_, value)| value);
        let (done, result) = self.objects.put_each(keys.zip(values), attributes);
        if let Err(error) = result {
            self.refusal(&error);
        }
        done
    }

    fn apply(&mut self, changes: &[Change<'_>]) -> Result<(), Refusal> {
        // The usual change: one object in a database that has a table. If others may be evicted for
        // it, and it may not be evicted itself, the other way does that.
        if let [Change::Put { database, key, value, kind, expires }] = *changes
            && let attributes = self.caches.attributes(database, kind, expires)
            && (attributes.is_cached || !self.caches.expiring)
            && let Some(table) = self.catalog()?.table(place(database))
        {
            self.objects.turn_to(table);
            let key = put_key(&mut self.buffers.0, key);
            let written = self.objects.put(key, value, attributes);
            return written.map(|_| ()).map_err(|error| self.refusal(&error));
        }
        if self.apply_to_objects(changes)?.is_some() {
            return Ok(());
        }
        let mut taken = Vec::new();
        let result = self.apply_with(changes, &mut taken);
        if result.is_err() {
            taken.into_iter().for_each(|table| self.databases.add(table));
        }
        result
    }

    fn objects(&mut self, database: Database) -> Result<u64, Refusal> {
        let Some(table) = self.catalog()?.table(place(database)) else { return Ok(0) };
        self.objects.turn_to(table);
        self.objects.objects().map_err(|error| self.refusal(&error))
    }

    fn walk(
        &mut self,
        database: Database,
        cursor: u64,
        visit: &mut dyn FnMut(&[u8], &Found<'_>),
    ) -> Result<u64, Refusal> {
        let Some(table) = self.catalog()?.table(place(database)) else { return Ok(0) };
        self.objects.turn_to(table);
        let (key, value) = &mut *self.buffers;
        // The last bit of a cursor says nothing as long as there are fewer than 2⁶² objects.
        let next = self.objects.walk(Cursor::from_bits(cursor << 1), |object| {
            key.clear();
            object.key().copy_to(key);
            value.clear();
            object.value().copy_to(value);
            visit(key.get(1..).unwrap_or_default(), &found(&Item::of(*object), value));
        });
        match next {
            Ok(next) => Ok(next.map_or(0, |next| next.to_bits() >> 1)),
            Err(error) => match self.refusal(&error) {
                Refusal::TooLong | Refusal::TooMuch => Ok(0),
                Refusal::NotNow | Refusal::Full => Err(Refusal::NotNow),
            },
        }
    }

    fn note_gone(&mut self, expired: u64) -> Result<(), Refusal> {
        let noted = self.objects.note_gone(Timestamp(expired).min(Timestamp::LATEST));
        noted.map_err(|error| match self.refusal(&error) {
            Refusal::TooLong | Refusal::TooMuch | Refusal::NotNow | Refusal::Full => {
                Refusal::NotNow
            }
        })
    }

    fn places(&self) -> fn(&[u8]) -> u64 {
        place_of
    }

    fn now(&self) -> u64 {
        self.now
    }
}

/// Returns the place of a key in a walk.
fn place_of(key: &[u8]) -> u64 {
    Cursor::of(KeyHash::of(put_key(&mut Vec::new(), key))).to_bits() >> 1
}

/// The store while the shard does not serve.
pub(super) struct Absent {
    pub(super) now: u64,
}

impl contract::Store for Absent {
    fn find(&mut self, _: Database, _: &[u8], _: bool) -> Result<Option<Found<'_>>, Refusal> {
        Err(Refusal::NotNow)
    }

    fn apply(&mut self, _: &[Change<'_>]) -> Result<(), Refusal> {
        Err(Refusal::NotNow)
    }

    fn objects(&mut self, _: Database) -> Result<u64, Refusal> {
        Err(Refusal::NotNow)
    }

    fn walk(
        &mut self,
        _: Database,
        _: u64,
        _: &mut dyn FnMut(&[u8], &Found<'_>),
    ) -> Result<u64, Refusal> {
        Err(Refusal::NotNow)
    }

    fn note_gone(&mut self, _: u64) -> Result<(), Refusal> {
        Err(Refusal::NotNow)
    }

    fn places(&self) -> fn(&[u8]) -> u64 {
        place_of
    }

    fn now(&self) -> u64 {
        self.now
    }
}
