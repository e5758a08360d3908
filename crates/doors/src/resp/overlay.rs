//! The overlay: changes of a command, or of a `MULTI`. The store does not have them yet.
//!
//! The overlay keeps only the databases that were emptied, the order of all databases after
//! exchanges, and the last state of each key that was written since. So it stays small even if a
//! `MULTI` empties, exchanges or writes the same databases and keys again and again.

use super::gone::Gone;
use super::header::Dropped;
use super::long_begun::Begun;
use super::store::{Change, Database, Found, Kind, PAGES};
use super::tally::Tally;
use super::tracking_notes::Touched;
use std::collections::{BTreeMap, BTreeSet};

/// The changed keys up to which they are searched one by one.
pub(super) const SEARCHED_MAX: usize = 8;

/// The room for a key and a value that is kept for the next command.
const ENTRY_BYTES_KEPT: usize = 16 << 10;

/// The state of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// The object was written.
    Present,
    /// The object was deleted, and the store has it.
    Removed,
    /// The object was deleted, and the store does not have it.
    #[default]
    Nothing,
}

/// A key that was changed.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// The database of the store that it belongs to.
    pub(super) base: Database,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) expires: Option<u64>,
    pub(super) state: State,
    /// Whether the store has an object with this key; `None` if that was not looked up.
    pub(super) is_in_store: Option<bool>,
}

impl Entry {
    /// Returns the change of a database, if there is one.
    pub(super) fn change(&self, database: Database) -> Option<Change<'_>> {
        let Entry { key, value, kind, expires, state, .. } = self;
        let (kind, expires) = (*kind, *expires);
        match state {
            State::Present => Some(Change::Put { database, key, value, kind, expires }),
            State::Removed => Some(Change::Remove { database, key }),
            State::Nothing => None,
        }
    }

    pub(super) fn found(&self) -> Option<Found<'_>> {
        let Entry { value, kind, expires, .. } = self;
        let found = Found { value, kind: *kind, expires: *expires, version: u64::MAX };
        (self.state == State::Present).then_some(found)
    }
}

/// The changes that the store does not have yet. One is reused for all commands.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    /// The databases of the store behind databases that were exchanged.
    pub(super) bases: BTreeMap<Database, Database>,
    /// Databases of the store that were emptied.
    pub(super) cleared: BTreeSet<Database>,
    /// The changed keys, and behind them entries whose memory is used again.
    pub(super) entries: Vec<Entry>,
    pub(super) count: usize,
    /// The objects among the entries of the databases that a command has counted or walked through.
    pub(super) tallies: BTreeMap<Database, Tally>,
    /// The places of entries, once there are many.
    pub(super) places: BTreeMap<Database, BTreeMap<Vec<u8>, usize>>,
    /// About the bytes of the changes.
    pub(super) bytes: usize,
    /// Large collections whose headers were deleted. They outlive the changes: the server takes
    /// them after the command.
    pub(super) dropped: Vec<Dropped>,
    /// Long strings without a header in the store. They outlive the changes, too.
    pub(super) begun: Begun,
    /// The written keys, if clients are told about them. They outlive the changes, too.
    pub(super) touched: Touched,
    /// Hashes whose fields expire, with the time of the first one. They outlive the changes, too.
    pub(super) due: Vec<(u64, Database, Vec<u8>)>,
    /// The expired fields that the store does not know of yet.
    pub(super) gone: Gone,
}

impl Overlay {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.bases.is_empty() && self.cleared.is_empty()
    }

    /// Whether no database was emptied or exchanged.
    pub(super) fn is_in_order(&self) -> bool {
        self.bases.is_empty() && self.cleared.is_empty()
    }

    /// Returns the database of the store behind a database.
    #[inline]
    pub(super) fn base(&self, database: Database) -> Database {
        match self.bases.is_empty() {
            true => database,
            // A database of pages goes with its user's database.
            false => {
                let base = self.bases.get(&(database & !PAGES)).copied();
                base.map_or(database, |base| database & PAGES | base)
            }
        }
    }

    /// Whether a database of the store was emptied, or the one to which these pages belong.
    pub(super) fn is_cleared(&self, base: Database) -> bool {
        self.cleared.contains(&(base & !PAGES))
    }

    /// Returns the database in front of a database of the store.
    pub(super) fn front(&self, base: Database) -> Database {
        let front = self.bases.iter().find(|(_, own)| **own == base & !PAGES);
        front.map_or(base, |(database, _)| base & PAGES | *database)
    }

    /// Forgets all changes.
    pub(super) fn clear(&mut self) {
        if self.is_empty() {
            return;
        }
        // An empty map takes longer to clear than to look at, and nearly all are empty.
        if !self.is_in_order() {
            self.bases.clear();
            self.cleared.clear();
        }
        if !self.places.is_empty() {
            self.places.clear();
        }
        if !self.tallies.is_empty() {
            self.tallies.clear();
        }
        (self.count, self.bytes) = (0, 0);
        self.entries.truncate(SEARCHED_MAX);
        for entry in &mut self.entries {
            entry.key.clear();
            entry.key.shrink_to(ENTRY_BYTES_KEPT);
            entry.value.clear();
            entry.value.shrink_to(ENTRY_BYTES_KEPT);
        }
    }

    pub(super) fn place(&self, base: Database, key: &[u8]) -> Option<usize> {
        if self.count <= SEARCHED_MAX {
            let mut entries = self.entries[..self.count].iter();
            return entries.position(|entry| entry.base == base && entry.key == key);
        }
        self.places.get(&base)?.get(key).copied()
    }

    /// Returns the place of a key's entry, which is made if there is none.
    pub(super) fn place_or_new(&mut self, base: Database, key: &[u8]) -> usize {
        if let Some(place) = self.place(base, key) {
            return place;
        }
        let place = self.count;
        if place == self.entries.len() {
            self.entries.push(Entry::default());
        }
        let entry = &mut self.entries[place];
        entry.base = base;
        entry.key.clear();
        entry.key.extend_from_slice(key);
        (entry.state, entry.is_in_store) = (State::Nothing, None);
        self.count += 1;
        if self.count == SEARCHED_MAX + 1 {
            self.index();
        } else if self.count > SEARCHED_MAX {
            self.places.entry(base).or_default().insert(key.to_vec(), place);
        }
        place
    }

    pub(super) fn index(&mut self) {
        self.places.clear();
        for (place, entry) in self.entries[..self.count].iter().enumerate() {
            self.places.entry(entry.base).or_default().insert(entry.key.clone(), place);
        }
    }

    /// Forgets the entries of a database of the store.
    pub(super) fn drop_entries(&mut self, base: Database) {
        let places: Vec<usize> = match self.count > SEARCHED_MAX {
            true => self.places.remove(&base).unwrap_or_default().into_values().collect(),
            false => (0..self.count).filter(|place| self.entries[*place].base == base).collect(),
        };
        for place in places {
            let entry = &mut self.entries[place];
            entry.value = Vec::new();
            (entry.state, entry.is_in_store) = (State::Nothing, Some(false));
        }
        if let Some(tally) = self.tallies.get_mut(&base) {
            tally.clear(self.count);
        }
    }

    /// Changes the state of an entry.
    pub(super) fn set_state(&mut self, place: usize, state: State) {
        let entry = &mut self.entries[place];
        entry.state = state;
        if !self.tallies.is_empty()
            && let Some(tally) = self.tallies.get_mut(&entry.base)
        {
            tally.set(place, &entry.key, state == State::Present);
        }
    }

    /// Returns the tally of a database of the store.
    pub(super) fn tally(&mut self, base: Database, places: fn(&[u8]) -> u64) -> &mut Tally {
        let tally = self.tallies.entry(base).or_insert_with(|| Tally::new(places));
        for place in tally.visited()..self.count {
            let entry = &self.entries[place];
            let is_there = entry.base == base && entry.state == State::Present;
            tally.visit(&entry.key, is_there);
        }
        tally
    }

    /// Returns the exchanges that bring all databases into their order.
    pub(super) fn swaps(&self) -> Vec<Change<'static>> {
        let mut swaps = Vec::new();
        let mut bases = self.bases.clone();
        for database in self.bases.keys() {
            // Bring the right database here. The database that is here goes to its place.
            let Some(base) = bases.get(database).copied().filter(|base| base != database) else {
                continue;
            };
            swaps.push(Change::Swap(*database, base));
            let own = bases.iter().find(|(_, own)| **own == *database).map(|(front, _)| *front);
            if let Some(own) = own {
                bases.insert(own, base);
            }
            bases.insert(*database, *database);
        }
        swaps
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        let cleared = self.cleared.iter().map(|base| Change::Clear(*base));
        let entries = self.entries[..self.count].iter().filter_map(|entry| {
            let is_in_order = self.bases.is_empty();
            entry.change(if is_in_order { entry.base } else { self.front(entry.base) })
        });
        cleared.chain(self.swaps()).chain(entries)
    }
}
