//! The collection of garbage: pages of large collections that are gone.
//!
//! A command that deletes a large collection deletes its header only. So does the store when an
//! object expires or is evicted. The pages stay until they are found here.
//!
//! A page is garbage if the owner's key has no header with the id of the collection, or if there is
//! no owner record. Commands change headers, owner records and pages together, so this is true at
//! any time between two commands, and no list of deleted collections must survive a crash.
//!
//! Collections that commands have deleted are noted, and swept first. The others are found by walks
//! through all pages, a slice at a time.

use super::header::{Dropped, Header};
use super::pages::{COUNTER, PageKey};
use super::store::{Change, Database, PAGES, Refusal, Store};
use std::collections::{BTreeMap, VecDeque};

/// The most deleted collections that are noted. The others are found by walks.
const DROPPED_MAX: usize = 1024;

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
    /// Notes collections that were deleted.
    pub(super) fn note(&mut self, dropped: impl Iterator<Item = Dropped>) {
        let room = DROPPED_MAX.saturating_sub(self.dropped.len());
        self.dropped.extend(dropped.take(room));
    }

    /// Looks at about so many pages, and deletes the garbage among them.
    pub(super) fn sweep(
        &mut self,
        store: &mut dyn Store,
        databases: Database,
        budget: usize,
    ) -> Swept {
        let mut swept = Swept::default();
        // If the store refuses, the next slice tries again.
        let _ = self.sweep_dropped(store, budget, &mut swept);
        if swept.visited < budget && self.dropped.is_empty() {
            let _ = self.walk(store, databases, budget, &mut swept);
        }
        swept.has_more |= !self.dropped.is_empty();
        swept
    }

    fn sweep_dropped(
        &mut self,
        store: &mut dyn Store,
        budget: usize,
        swept: &mut Swept,
    ) -> Result<(), Refusal> {
        while swept.visited < budget
            && let Some(&Dropped { database, id, next }) = self.dropped.front()
        {
            // A collection that was only renamed lives. One without an owner record, as databases
            // have been swapped or cleared since, is left to the walks.
            let owner = PageKey::new(id, 0);
            let has_owner = store.find(PAGES | database, owner.bytes(), false)?.is_some();
            if !has_owner || find_live(store, database, id)? {
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
            delete(store, database, &keys)?;
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
        store: &mut dyn Store,
        databases: Database,
        budget: usize,
        swept: &mut Swept,
    ) -> Result<(), Refusal> {
        // An end in each database, and one more: the walk may have begun in the middle of one.
        let mut ends = 0;
        while swept.visited < budget && ends <= databases {
            let (mut ids, mut pages) = (BTreeMap::new(), Vec::new());
            let next = store.walk(PAGES | self.database, self.cursor, &mut |key, _| {
                if key != COUNTER {
                    pages.push(key.to_vec());
                }
            })?;
            swept.visited += pages.len();
            for key in &pages {
                if let Some((id, _)) = PageKey::parse(key)
                    && !ids.contains_key(&id)
                {
                    ids.insert(id, find_live(store, self.database, id)?);
                }
            }
            pages.retain(|key| {
                PageKey::parse(key).is_some_and(|(id, _)| ids.get(&id) == Some(&false))
            });
            delete(store, self.database, &pages)?;
            swept.deleted += pages.len();
            swept.has_more |= !pages.is_empty();
            self.cursor = next;
            if next == 0 {
                ends += 1;
                self.database = (self.database + 1) % databases.max(1);
            }
        }
        Ok(())
    }
}
