//! The collection of garbage: pages of large collections that are gone.
//!
//! A command that deletes a large collection deletes its header only. So does the store when an
//! object expires or is evicted. The pages stay until they are found here.
//!
//! A page is garbage if the owner's key has no header with the id of the collection, or if there is
//! no owner record. Commands change headers, owner records and pages together, so this is true at
//! any time between two commands, and no list of deleted collections must survive a crash.
//!
//! The server notes the collections that commands have deleted, or that the store has evicted, and
//! sweeps them first. It finds the others in walks through all pages, a slice at a time. While a
//! noted collection has pages, the store evicts nothing: these pages are the memory that it needs.
//!
//! The memory of expired fields of hashes is freed here, too. Each hash whose fields expire has an
//! owner record, which is a page, so walks find it.

use super::events::{Events, Kinds};
use super::hash::Hash;
use super::header::{Dropped, Header};
use super::overlay::Overlay;
use super::pages::{COUNTER, PageKey};
use super::stop::Stop;
use super::store::{Change, Database, PAGES, Refusal, Store};
use super::transaction::Transaction;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most deleted collections that are noted. The others are found by walks.
const DROPPED_MAX: usize = 1024;

/// The most hashes that are noted because their fields expire, and the longest key of one. The
/// others are found by walks.
const DUE_MAX: usize = 16_384;
const DUE_BYTES_MAX: usize = 256;

/// The pages for which the fields of a hash count that are freed in one step.
const PAGES_PER_HASH: usize = 16;

/// The outcome of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// The pages that were looked at.
    pub visited: usize,
    /// The pages that were deleted.
    pub deleted: usize,
    /// Whether there is more garbage, or may well be. Then the next slice should follow soon.
    pub has_more: bool,
}

/// The progress of the walks.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    database: Database,
    cursor: u64,
    dropped: VecDeque<Dropped>,
    /// Hashes by the time at which their first field expires.
    due: BTreeSet<(u64, Database, Vec<u8>)>,
}

/// The store, and the ground for a change of a hash.
struct Room<'a> {
    store: &'a mut dyn Store,
    overlay: &'a mut Overlay,
    events: &'a mut Events,
    value_bytes_max: usize,
}

impl Room<'_> {
    /// Frees the memory of fields of a hash that have expired. Returns whether there may be more.
    fn free(&mut self, database: Database, key: &[u8]) -> Result<bool, Stop> {
        let now = self.store.now();
        let Some(found) = self.store.find(database, key, false)? else { return Ok(false) };
        let Some(header) = Header::expiring(found.kind, found.value) else { return Ok(false) };
        if Header::over_since(found.kind, found.value, now).is_some() {
            let dropped = Dropped::of(database, &header);
            self.store.apply(&[Change::Remove { database, key }])?;
            self.overlay.dropped.extend(dropped);
            self.overlay.touched.note_expired(key);
            self.events.note(Kinds::HASH, "hexpired", database, key);
            self.events.note(Kinds::GENERIC, "del", database, key);
            self.events.expiries.set(database, key, None);
            return Ok(false);
        }
        let Room { store, overlay, events, value_bytes_max } = self;
        let mut objects =
            Transaction::new(*store, overlay, events, database, *value_bytes_max, false);
        let Some(mut hash) = Hash::find(&mut objects, key)? else { return Ok(false) };
        if hash.expired(&mut objects)? == 0 {
            return Ok(false);
        }
        let has_more = hash.close(&mut objects)?;
        objects.commit()?;
        Ok(has_more)
    }
}

/// Finds whether a collection exists. Nothing may be deleted if this cannot be found out.
fn find_live(store: &mut dyn Store, database: Database, id: u64) -> Result<bool, Refusal> {
    let owner = store.find(PAGES | database, PageKey::new(id, 0).bytes(), false)?;
    let Some(key) = owner.map(|found| found.value.to_vec()) else { return Ok(false) };
    let found = store.find(database, &key, false)?;
    let header = found.and_then(|found| Header::with_pages(found.kind, found.value));
    Ok(header.is_some_and(|header| header.id == id))
}

/// Deletes pages.
fn delete(store: &mut dyn Store, database: Database, keys: &[Vec<u8>]) -> Result<(), Refusal> {
    let database = PAGES | database;
    let changes: Vec<_> = keys.iter().map(|key| Change::Remove { database, key }).collect();
    if changes.is_empty() { Ok(()) } else { store.apply(&changes) }
}

impl Sweeper {
    /// Notes collections that were deleted or evicted.
    pub(super) fn note(&mut self, dropped: impl Iterator<Item = Dropped>) {
        let room = DROPPED_MAX.saturating_sub(self.dropped.len());
        self.dropped.extend(dropped.take(room));
    }

    /// Whether collections that were noted have pages.
    pub(super) fn is_freeing(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// Notes hashes with the times at which their first fields expire.
    pub(super) fn note_due(&mut self, due: impl Iterator<Item = (u64, Database, Vec<u8>)>) {
        for hash in due.filter(|(_, _, key)| key.len() <= DUE_BYTES_MAX) {
            self.due.insert(hash);
            if self.due.len() > DUE_MAX {
                self.due.pop_last();
            }
        }
    }

    /// Looks at about so many pages, and deletes the garbage among them.
    pub(super) fn sweep(
        &mut self,
        (store, overlay, events): (&mut dyn Store, &mut Overlay, &mut Events),
        databases: Database,
        value_bytes_max: usize,
        budget: usize,
    ) -> Swept {
        let mut swept = Swept::default();
        // If the store refuses, the next slice tries again.
        self.note(overlay.begun.take_abandoned(store.now()).into_iter());
        let mut room = Room { store, overlay, events, value_bytes_max };
        let _ = self.sweep_due(&mut room, budget, &mut swept);
        let _ = self.sweep_dropped(&mut room, budget, &mut swept);
        if swept.visited < budget && self.dropped.is_empty() {
            let _ = self.walk(&mut room, databases, budget, &mut swept);
        }
        swept.has_more |= !self.dropped.is_empty();
        swept
    }

    /// Frees fields of a hash, and notes its next time.
    fn free(
        &mut self,
        room: &mut Room<'_>,
        database: Database,
        key: &[u8],
        swept: &mut Swept,
    ) -> Result<(), Stop> {
        let count = room.events.count();
        let freed = room.free(database, key);
        self.note(room.overlay.dropped.drain(..));
        if freed.is_err() {
            room.events.take_back(count);
        } else {
            self.note_due(room.overlay.due.drain(..));
        }
        swept.has_more |= freed?;
        Ok(())
    }

    fn sweep_due(
        &mut self,
        room: &mut Room<'_>,
        budget: usize,
        swept: &mut Swept,
    ) -> Result<(), Stop> {
        let now = room.store.now();
        while swept.visited < budget
            && let Some((time, database, key)) = self.due.pop_first()
        {
            if time > now {
                self.due.insert((time, database, key));
                return Ok(());
            }
            swept.visited += PAGES_PER_HASH;
            // After any other error, a walk will find it again.
            if let Err(stop @ Stop::Refused(Refusal::NotNow)) =
                self.free(room, database, &key, swept)
            {
                self.due.insert((time, database, key));
                return Err(stop);
            }
        }
        swept.has_more |= self.due.first().is_some_and(|(time, _, _)| *time <= now);
        Ok(())
    }

    fn sweep_dropped(
        &mut self,
        room: &mut Room<'_>,
        budget: usize,
        swept: &mut Swept,
    ) -> Result<(), Refusal> {
        let Room { store, overlay, .. } = room;
        while swept.visited < budget
            && let Some(&Dropped { database, id, next }) = self.dropped.front()
        {
            // A collection that was only renamed lives. One without an owner record, as databases
            // have been swapped or cleared since, is left to the walks. After that, a string that
            // has been begun may have the same id.
            let owner = PageKey::new(id, 0);
            let has_owner = store.find(PAGES | database, owner.bytes(), false)?.is_some();
            let is_begun = overlay.begun.has(database, id);
            if !has_owner || is_begun || find_live(*store, database, id)? {
                self.dropped.pop_front();
                continue;
            }
            // The owner record is the last one.
            let count = (budget - swept.visited) as u64;
            let first = next.saturating_sub(count);
            let mut keys = Vec::new();
            for page in (first..next).rev() {
                let key = PageKey::new(id, page);
                if store.find(PAGES | database, key.bytes(), false)?.is_some() {
                    keys.push(key.bytes().to_vec());
                }
            }
            delete(*store, database, &keys)?;
            swept.visited += (next - first) as usize;
            swept.deleted += keys.len();
            match self.dropped.front_mut() {
                Some(dropped) if first > 0 => dropped.next = first,
                _ => drop(self.dropped.pop_front()),
            }
        }
        Ok(())
    }

    fn walk(
        &mut self,
        room: &mut Room<'_>,
        databases: Database,
        budget: usize,
        swept: &mut Swept,
    ) -> Result<(), Stop> {
        // An end in each database, and one more: the walk may have begun in the middle of one.
        let mut ends = 0;
        while swept.visited < budget && ends <= databases {
            let (mut ids, mut pages) = (BTreeMap::new(), Vec::new());
            let mut owners = Vec::new();
            let next = room.store.walk(PAGES | self.database, self.cursor, &mut |key, found| {
                if key != COUNTER {
                    pages.push(key.to_vec());
                }
                if PageKey::parse(key).is_some_and(|(_, page)| page == 0) {
                    owners.push(found.value.to_vec());
                }
            })?;
            swept.visited += pages.len();
            for key in &pages {
                if let Some((id, _)) = PageKey::parse(key)
                    && !ids.contains_key(&id)
                {
                    let is_begun = room.overlay.begun.has(self.database, id);
                    let is_live = is_begun || find_live(room.store, self.database, id)?;
                    ids.insert(id, is_live);
                }
            }
            pages.retain(|key| {
                PageKey::parse(key).is_some_and(|(id, _)| ids.get(&id) == Some(&false))
            });
            delete(room.store, self.database, &pages)?;
            swept.deleted += pages.len();
            swept.has_more |= !pages.is_empty();
            for key in owners {
                // No damaged hash may stop the walk for all others.
                if let Err(stop @ Stop::Refused(Refusal::NotNow)) =
                    self.free(room, self.database, &key, swept)
                {
                    return Err(stop);
                }
            }
            self.cursor = next;
            if next == 0 {
                ends += 1;
                self.database = (self.database + 1) % databases.max(1);
            }
        }
        Ok(())
    }
}
