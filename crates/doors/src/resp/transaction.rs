//! The objects as one command sees them, or one `MULTI`.
//!
//! Changes are collected. Reads see them at once, and the store gets all of them at the end.
//! If the store cannot do something now, they are forgotten, and the command can be executed again.
//! The [overlay](super::overlay) has the changes.

use super::events::{Events, Kinds};
use super::gone::Gone;
use super::header::{Dropped, Header};
use super::long_begun::Begun;
use super::overlay::{Entry, Overlay, SEARCHED_MAX, State};
use super::stop::{self, Stop};
use super::store::{Change, Database, Found, Kind, PAGES, Refusal, Store, Strings};
use std::borrow::Cow;

/// The most bytes of changes that wait for the store, and the share of each entry beside its key
/// and its value.
const OVERLAY_BYTES_MAX: usize = 256 << 20;
const ENTRY_BYTES: usize = size_of::<Entry>();

/// The progress of a walk through the objects of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Walked {
    /// The next cursor, or 0 at the end.
    pub(super) next: u64,
    /// The objects of the store that were not visited, because they were changed or deleted.
    pub(super) skipped: u64,
}

/// See the module's documentation.
pub(super) struct Transaction<'a> {
    store: &'a mut dyn Store,
    pub(super) overlay: &'a mut Overlay,
    pub(super) events: &'a mut Events,
    /// The database of the commands.
    pub(super) database: Database,
    value_bytes_max: usize,
    string_bytes_max: usize,
    /// Whether reads are uses of objects.
    touches: bool,
    /// Reads that found an object, and reads that did not.
    pub(super) hits: u64,
    pub(super) misses: u64,
}

/// Returns an object, which may have been changed.
fn find<'a>(
    store: &'a mut dyn Store,
    overlay: &'a Overlay,
    database: Database,
    key: &[u8],
    counts: bool,
) -> Result<Option<Found<'a>>, Stop> {
    let now = store.now();
    let is_there = |found: &Found<'_>| overlay.gone.shows(found, now);
    if overlay.is_empty() {
        return Ok(store.find(database, key, counts)?.filter(is_there));
    }
    let base = overlay.base(database);
    if let Some(place) = overlay.place(base, key) {
        return Ok(overlay.entries[place].found().filter(is_there));
    }
    match overlay.is_cleared(base) {
        true => Ok(None),
        false => Ok(store.find(base, key, counts)?.filter(is_there)),
    }
}

impl<'a> Transaction<'a> {
    pub(super) fn new(
        store: &'a mut dyn Store,
        overlay: &'a mut Overlay,
        events: &'a mut Events,
        database: Database,
        value_bytes_max: usize,
        touches: bool,
    ) -> Transaction<'a> {
        overlay.clear();
        overlay.dropped.clear();
        overlay.due.clear();
        overlay.begun.begin();
        let (string_bytes_max, hits, misses) = (value_bytes_max, 0, 0);
        Transaction {
            store,
            overlay,
            events,
            database,
            value_bytes_max,
            string_bytes_max,
            touches,
            hits,
            misses,
        }
    }

    /// Lets strings be longer than objects.
    pub(super) fn with_strings_of(self, string_bytes_max: usize) -> Self {
        let string_bytes_max = string_bytes_max.max(self.value_bytes_max);
        Transaction { string_bytes_max, ..self }
    }

    /// Returns the length of the longest value of an object.
    pub(super) fn value_bytes_max(&self) -> usize {
        self.value_bytes_max
    }

    /// Returns the length of the longest string, which may have pages.
    pub(super) fn string_bytes_max(&self) -> usize {
        self.string_bytes_max
    }

    /// Returns about the bytes of the changes that wait for the store.
    pub(super) fn changed_bytes(&self) -> usize {
        self.overlay.bytes
    }

    /// Returns the store. It does not have the changes of the command yet.
    pub(super) fn store_mut(&mut self) -> &mut dyn Store {
        self.store
    }

    /// Returns the database of the store behind a database.
    pub(super) fn base(&self, database: Database) -> Database {
        self.overlay.base(database)
    }

    /// Whether the list of changes empties a database.
    pub(super) fn is_cleared(&self, database: Database) -> bool {
        self.overlay.is_cleared(self.overlay.base(database))
    }

    /// Returns the long strings without a header in the store.
    pub(super) fn begun(&mut self) -> &mut Begun {
        &mut self.overlay.begun
    }

    /// Returns the time, in milliseconds since 1970. It stands still during a command.
    pub(super) fn now(&self) -> u64 {
        self.store.now()
    }

    /// Returns an object for a command that only reads. It counts as a hit or a miss.
    #[inline]
    pub(super) fn read(&mut self, key: &[u8]) -> Result<Option<Found<'_>>, Stop> {
        let now = self.store.now();
        let found = find(self.store, self.overlay, self.database, key, self.touches)?;
        match found {
            Some(_) => self.hits += 1,
            None => {
                self.misses += 1;
                self.events.note_absent(self.database, key, now);
                self.events.note(Kinds::MISSED, "keymiss", self.database, key);
            }
        }
        Ok(found)
    }

    /// Shows each of some objects for a command that only reads, until `show` returns `false`. They
    /// count as hits or misses.
    pub(super) fn read_each(
        &mut self,
        keys: Strings<'_>,
        show: &mut dyn FnMut(Option<&Found<'_>>) -> bool,
    ) -> Result<(), Stop> {
        if !self.overlay.is_empty() || self.events.wants(Kinds::MISSED.and(Kinds::EXPIRED)) {
            for key in keys.iter() {
                if !show(self.read(key)?.as_ref()) {
                    break;
                }
            }
            return Ok(());
        }
        let (mut hits, mut misses) = (0, 0);
        let (now, gone) = (self.store.now(), &self.overlay.gone);
        self.store.find_each(self.database, keys, self.touches, &mut |found| {
            let found = found.filter(|it| gone.shows(it, now));
            match found {
                Some(_) => hits += 1,
                None => misses += 1,
            }
            show(found)
        })?;
        (self.hits, self.misses) = (self.hits + hits, self.misses + misses);
        Ok(())
    }

    /// Returns an object of one type for a command that only reads. An object of another type is an
    /// error.
    pub(super) fn read_kind(&mut self, key: &[u8], kind: Kind) -> Result<Option<Found<'_>>, Stop> {
        of_kind(self.read(key)?, kind)
    }

    /// Returns an object for a command that writes.
    pub(super) fn find(&mut self, key: &[u8]) -> Result<Option<Found<'_>>, Stop> {
        let now = self.store.now();
        let found = find(self.store, self.overlay, self.database, key, self.touches)?;
        if found.is_none() {
            self.events.note_absent(self.database, key, now);
        }
        Ok(found)
    }

    /// Returns an object of one type for a command that writes. An object of another type is an
    /// error.
    pub(super) fn find_kind(&mut self, key: &[u8], kind: Kind) -> Result<Option<Found<'_>>, Stop> {
        of_kind(self.find(key)?, kind)
    }

    /// Returns an object; that is no use of it.
    pub(super) fn peek(&mut self, key: &[u8]) -> Result<Option<Found<'_>>, Stop> {
        self.peek_in(self.database, key)
    }

    /// Returns an object of a database; that is no use of it.
    pub(super) fn peek_in(
        &mut self,
        database: Database,
        key: &[u8],
    ) -> Result<Option<Found<'_>>, Stop> {
        let now = self.store.now();
        let found = find(self.store, self.overlay, database, key, false)?;
        if found.is_none() {
            self.events.note_absent(database, key, now);
        }
        Ok(found)
    }

    /// Returns an object for a command that only reads; that is no use of it. If there is none,
    /// this is an event.
    pub(super) fn look(&mut self, key: &[u8]) -> Result<Option<Found<'_>>, Stop> {
        let now = self.store.now();
        let found = find(self.store, self.overlay, self.database, key, false)?;
        if found.is_none() {
            self.events.note_absent(self.database, key, now);
            self.events.note(Kinds::MISSED, "keymiss", self.database, key);
        }
        Ok(found)
    }

    /// Returns the notes of expired fields.
    pub(super) fn gone(&self) -> &Gone {
        &self.overlay.gone
    }

    /// Tells the store the noted times of expired fields: see [`Gone::settle`].
    pub(super) fn settle_gone(&mut self) -> Result<(), Stop> {
        Ok(self.overlay.gone.settle(self.store)?)
    }

    /// Notes an event of a key of the commands' database.
    #[inline]
    pub(super) fn event(&mut self, kind: Kinds, name: &'static str, key: &[u8]) {
        self.events.note(kind, name, self.database, key);
    }

    /// Notes that the whole value of a key is about to be replaced, if the key exists.
    pub(super) fn note_overwrite(&mut self, key: &[u8], kind: Kind) -> Result<(), Stop> {
        if self.events.wants(Kinds::OVERWRITTEN.and(Kinds::TYPE_CHANGED)) {
            let before = self.peek(key)?.map(|found| found.kind);
            self.events.note_replaced(self.database, key, before, kind);
        }
        Ok(())
    }

    /// Notes that an object is about to be moved to a key, which is new then, in the way of Redis,
    /// although the value before is replaced. Returns the type of that value.
    pub(super) fn take_place(
        &mut self,
        database: Database,
        key: &[u8],
    ) -> Result<Option<Kind>, Stop> {
        let kinds = Kinds::NEW.and(Kinds::OVERWRITTEN).and(Kinds::TYPE_CHANGED);
        if !self.events.wants(kinds) {
            return Ok(None);
        }
        let before = self.peek_in(database, key)?.map(|found| found.kind);
        if before.is_some() {
            self.events.note(Kinds::NEW, "new", database, key);
        }
        Ok(before)
    }

    /// Notes the event of a key that is about to be written and does not exist.
    #[cold]
    fn note_write(&mut self, database: Database, key: &[u8]) -> Result<(), Stop> {
        if self.peek_in(database, key)?.is_some() {
            return Ok(());
        }
        // The fields of a hash have expired if the hash is there and is not.
        let base = self.overlay.base(database);
        let has_other = match self.overlay.place(base, key) {
            Some(place) => self.overlay.entries[place].state == State::Present,
            None => !self.overlay.is_cleared(base) && self.store.find(base, key, false)?.is_some(),
        };
        if has_other {
            self.events.note(Kinds::HASH, "hexpired", database, key);
            self.events.note(Kinds::GENERIC, "del", database, key);
        }
        self.events.note(Kinds::NEW, "new", database, key);
        Ok(())
    }

    /// Writes an object, whether the key exists or not. A value that is given as a `Vec` is not
    /// copied. The time of expiry must lie in the future.
    ///
    /// # Errors
    /// If the value is too long.
    pub(super) fn put<'v>(
        &mut self,
        key: &[u8],
        value: impl Into<Cow<'v, [u8]>>,
        kind: Kind,
        expires: Option<u64>,
    ) -> Result<(), Stop> {
        self.put_in(self.database, key, value, kind, expires)
    }

    /// Writes an object into a database: see [`Transaction::put`].
    pub(super) fn put_in<'v>(
        &mut self,
        database: Database,
        key: &[u8],
        value: impl Into<Cow<'v, [u8]>>,
        kind: Kind,
        expires: Option<u64>,
    ) -> Result<(), Stop> {
        let value = value.into();
        if value.len() > self.value_bytes_max {
            let is_string = kind == Kind::String && database & PAGES == 0;
            return match is_string && value.len() <= self.string_bytes_max {
                true => self.put_long(database, key, &value, expires),
                false => Err(Refusal::TooLong.into()),
            };
        }
        let kinds = Kinds::NEW.and(Kinds::EXPIRED).and(Kinds::HASH);
        if database & PAGES == 0 && self.events.wants(kinds) {
            self.note_write(database, key)?;
        }
        self.note_touched(database, key);
        let place = self.overlay.place_or_new(self.overlay.base(database), key);
        let entry = &mut self.overlay.entries[place];
        let before = if entry.state == State::Present { entry.value.len() } else { 0 };
        self.overlay.bytes =
            (self.overlay.bytes + ENTRY_BYTES + key.len() + value.len()).saturating_sub(before);
        if self.overlay.bytes > OVERLAY_BYTES_MAX {
            return Err(Refusal::Full.into());
        }
        match value {
            Cow::Owned(value) => entry.value = value,
            Cow::Borrowed(value) => {
                entry.value.clear();
                entry.value.extend_from_slice(value);
            }
        }
        (entry.kind, entry.expires) = (kind, expires);
        self.overlay.set_state(place, State::Present);
        Ok(())
    }

    /// Notes that the value of a key is about to be replaced. If it is a large collection, its
    /// pages are deleted soon, and not only when they are found.
    pub(super) fn forget_pages(&mut self, key: &[u8]) -> Result<(), Stop> {
        self.forget_pages_in(self.database, key)
    }

    /// Notes that the value of a key of a database is about to be replaced: see
    /// [`Transaction::forget_pages`].
    pub(super) fn forget_pages_in(&mut self, database: Database, key: &[u8]) -> Result<(), Stop> {
        let Some(found) = self.peek_in(database, key)? else { return Ok(()) };
        let header = Header::with_pages(found.kind, found.value);
        let dropped = header.and_then(|header| Dropped::of(database, &header));
        self.overlay.dropped.extend(dropped);
        Ok(())
    }

    /// Notes that fields of a hash expire, the first one at a time.
    pub(super) fn note_due(&mut self, key: &[u8], time: u64) {
        self.overlay.due.push((time, self.database, key.to_vec()));
    }

    /// Deletes an object; returns whether it was there.
    pub(super) fn remove(&mut self, key: &[u8]) -> Result<bool, Stop> {
        self.remove_in(self.database, key)
    }

    /// Deletes an object, which is an event; returns whether it was there.
    pub(super) fn delete(&mut self, key: &[u8]) -> Result<bool, Stop> {
        let was_there = self.remove(key)?;
        if was_there {
            self.event(Kinds::GENERIC, "del", key);
        }
        Ok(was_there)
    }

    /// Deletes an object of a database; returns whether it was there.
    pub(super) fn remove_in(&mut self, database: Database, key: &[u8]) -> Result<bool, Stop> {
        let Some(found) = self.peek_in(database, key)? else { return Ok(false) };
        if let Some(header) = Header::with_pages(found.kind, found.value) {
            let dropped = Dropped::of(database, &header);
            self.overlay.dropped.extend(dropped);
        }
        self.note_touched(database, key);
        let base = self.overlay.base(database);
        let is_unchanged = self.overlay.place(base, key).is_none();
        let place = self.overlay.place_or_new(base, key);
        if is_unchanged {
            // It was found in the store.
            self.overlay.entries[place].is_in_store = Some(true);
        }
        let is_in_store = self.look_up(place)?;
        self.overlay.set_state(place, if is_in_store { State::Removed } else { State::Nothing });
        self.overlay.entries[place].value = Vec::new();
        Ok(true)
    }

    /// Whether the store has an object with the key of an entry.
    fn look_up(&mut self, place: usize) -> Result<bool, Stop> {
        let entry = &self.overlay.entries[place];
        if let Some(is_in_store) = entry.is_in_store {
            return Ok(is_in_store);
        }
        let is_in_store = !self.overlay.is_cleared(entry.base)
            && self.store.find(entry.base, &entry.key, false)?.is_some();
        self.overlay.entries[place].is_in_store = Some(is_in_store);
        Ok(is_in_store)
    }

    /// Deletes all objects of a database.
    pub(super) fn clear(&mut self, database: Database) {
        self.overlay.begun.abandon_all();
        self.note_flushed();
        let base = self.overlay.base(database);
        self.overlay.drop_entries(base);
        self.overlay.drop_entries(PAGES | base);
        self.overlay.cleared.insert(base);
    }

    /// Exchanges all objects of two databases.
    pub(super) fn swap(&mut self, one: Database, other: Database) {
        self.overlay.begun.abandon_all();
        let (first, second) = (self.overlay.base(one), self.overlay.base(other));
        self.overlay.bases.insert(one, second);
        self.overlay.bases.insert(other, first);
    }

    /// Whether there are changes that the store does not have yet.
    pub(super) fn has_changes(&self) -> bool {
        !self.overlay.is_empty()
    }

    /// Returns the number of objects of a database. It may count objects that have just expired.
    pub(super) fn objects(&mut self, database: Database) -> Result<u64, Stop> {
        let base = self.overlay.base(database);
        let count = match self.overlay.is_cleared(base) {
            true => 0,
            false => self.store.objects(base)?,
        };
        if self.overlay.count == 0 {
            return Ok(count);
        }
        let places = self.store.places();
        loop {
            // Each entry is looked up once, however often objects are counted.
            let last = self.overlay.count;
            let tally = self.overlay.tally(base, places);
            let Some(place) = tally.next_to_look_up(last) else {
                return Ok((count + tally.present()).saturating_sub(tally.in_store()));
            };
            let is_in_store = self.overlay.entries[place].base == base && self.look_up(place)?;
            self.overlay.tally(base, places).looked_up(is_in_store);
        }
    }

    /// Visits some objects of the commands' database: see [`Store::walk`]. Changed objects are in
    /// the same order as those of the store, and a call visits a few of them.
    pub(super) fn walk(
        &mut self,
        cursor: u64,
        visit: &mut dyn FnMut(&[u8], &Found<'_>),
    ) -> Result<Walked, Stop> {
        let (base, now) = (self.overlay.base(self.database), self.now());
        let is_cleared = self.overlay.is_cleared(base);
        if self.overlay.count == 0 && !is_cleared {
            let gone = &self.overlay.gone;
            let next = self.store.walk(base, cursor, &mut |key, found| {
                if gone.shows(found, now) {
                    visit(key, found);
                }
            })?;
            return Ok(Walked { next, skipped: 0 });
        }
        let places = self.store.places();
        let (changed, end) = self.overlay.tally(base, places).slice(cursor);
        let overlay = &*self.overlay;
        let is_there = |found: &Found<'_>| overlay.gone.shows(found, now);
        let (mut next, mut skipped) = (0, 0);
        if !is_cleared {
            next = self.store.walk(base, cursor, &mut |key, found| {
                if end.is_some_and(|end| places(key) >= end) {
                    return; // The next call visits it.
                }
                match overlay.place(base, key) {
                    None if is_there(found) => visit(key, found),
                    None => {}
                    Some(_) => skipped += 1,
                }
            })?;
        }
        if let Some(end) = end.filter(|end| next == 0 || *end < next) {
            next = end;
        }
        for (place, entry) in changed {
            let entry = &overlay.entries[entry];
            if (next == 0 || place < next)
                && let Some(found) = entry.found().filter(is_there)
            {
                visit(&entry.key, &found);
            }
        }
        Ok(Walked { next, skipped })
    }

    /// Visits the keys that were changed one by one.
    pub(super) fn visit_changed(&self, mut visit: impl FnMut(Database, &[u8])) {
        for entry in &self.overlay.entries[..self.overlay.count] {
            visit(self.overlay.front(entry.base), &entry.key);
        }
    }

    /// Visits the keys that were changed one by one, with their objects.
    pub(super) fn visit_states(&self, mut visit: impl FnMut(Database, &[u8], Option<Found<'_>>)) {
        for entry in &self.overlay.entries[..self.overlay.count] {
            visit(self.overlay.front(entry.base), &entry.key, entry.found());
        }
    }

    /// Gives all changes to the store.
    ///
    /// # Errors
    /// If the store does none of them.
    pub(super) fn commit(&mut self) -> Result<(), Stop> {
        self.overlay.gone.settle(self.store)?;
        if self.overlay.is_empty() {
            return Ok(());
        }
        self.apply()?;
        if self.events.wants(Kinds::EXPIRED) {
            self.note_expiries();
        }
        self.overlay.clear();
        Ok(())
    }

    /// Notes the times at which changed objects expire, for their events.
    #[cold]
    fn note_expiries(&mut self) {
        let (overlay, expiries) = (&*self.overlay, &mut self.events.expiries);
        overlay.cleared.iter().for_each(|base| expiries.clear(*base));
        for swap in overlay.swaps() {
            if let Change::Swap(one, other) = swap {
                expiries.swap(one, other);
            }
        }
        for entry in overlay.entries[..overlay.count].iter().filter(|it| it.base & PAGES == 0) {
            let time = entry.found().and_then(|found| found.expires);
            expiries.set(overlay.front(entry.base), &entry.key, time);
        }
    }

    fn apply(&mut self) -> Result<(), Refusal> {
        let Overlay { entries, count, .. } = &*self.overlay;
        if *count <= SEARCHED_MAX && self.overlay.is_in_order() {
            // The usual command changes a few objects.
            let (mut changes, mut length) = ([Change::Clear(0); SEARCHED_MAX], 0);
            let all = entries[..*count].iter().filter_map(|entry| entry.change(entry.base));
            for (place, change) in changes.iter_mut().zip(all) {
                *place = change;
                length += 1;
            }
            return if length == 0 { Ok(()) } else { self.store.apply(&changes[..length]) };
        }
        let mut changes = self.overlay.changes();
        let Some(first) = changes.next() else { return Ok(()) };
        match changes.next() {
            None => self.store.apply(&[first]),
            Some(second) => {
                let all: Vec<Change<'_>> = [first, second].into_iter().chain(changes).collect();
                self.store.apply(&all)
            }
        }
    }
}

/// Returns an object if it is of a type.
fn of_kind(found: Option<Found<'_>>, kind: Kind) -> Result<Option<Found<'_>>, Stop> {
    match found {
        Some(found) if found.kind != kind => Err(stop::WRONG_TYPE),
        found => Ok(found),
    }
}
