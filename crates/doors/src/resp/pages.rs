//! The pages of a collection: the nodes of its trees that do not fit into its header.
//!
//! Each user's database has a hidden database of pages. A page's key is the id of its collection
//! and its number, as varints. Page 0 is the *owner record*: the user's key. The object with the
//! key of one zero byte counts the ids; it is read only when a collection gets its first page.
//!
//! # Promises
//!
//! - An id is used once, and a page number of a collection too. So a page of a collection that is
//!   gone is never taken for one of another.
//! - A collection has an owner record as long as it has pages. A hash whose fields expire always
//!   has one: so the sweeper finds it.

use super::header::Header;
use super::stop::{self, Stop};
use super::store::{Database, Kind, PAGES};
use super::transaction::Transaction;
use super::varint;

/// The key of the object that counts ids.
pub(super) const COUNTER: &[u8] = &[0];

/// The bytes of the longest key.
const KEY_BYTES_MAX: usize = 20;

/// The key of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageKey {
    bytes: [u8; KEY_BYTES_MAX],
    length: usize,
}

impl PageKey {
    pub(super) fn new(id: u64, page: u64) -> PageKey {
        let mut key = PageKey { bytes: [0; KEY_BYTES_MAX], length: 0 };
        for mut number in [id, page] {
            loop {
                let more = if number < 0x80 { 0 } else { 0x80 };
                key.bytes[key.length] = number as u8 & 0x7f | more;
                key.length += 1;
                number >>= 7;
                if more == 0 {
                    break;
                }
            }
        }
        key
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Reads the id of a collection, and the number of a page.
    pub(super) fn parse(mut key: &[u8]) -> Option<(u64, u64)> {
        let numbers = (varint::take(&mut key)?, varint::take(&mut key)?);
        (key.is_empty() && numbers.0 != 0).then_some(numbers)
    }
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Pages<'k> {
    /// The user's database and key.
    database: Database,
    key: &'k [u8],
    id: u64,
    next: u64,
    live: u64,
    /// Whether there is an id even without pages.
    has_owner: bool,
}

impl<'k> Pages<'k> {
    /// Returns the pages of a new collection: none.
    pub(super) fn new(database: Database, key: &'k [u8]) -> Pages<'k> {
        Pages { database, key, id: 0, next: 0, live: 0, has_owner: false }
    }

    /// Returns the pages of a collection.
    pub(super) fn of(database: Database, key: &'k [u8], header: &Header<'_>) -> Pages<'k> {
        let Header { id, next, live, .. } = *header;
        Pages { database, key, id, next, live, has_owner: header.end.is_some() }
    }

    /// Returns a header that names the pages.
    pub(super) fn header(&self, encoding: u8) -> Header<'static> {
        Header::new(encoding, self.id, self.next, self.live)
    }

    /// Returns the id, or 0 if there has been no page.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the number of pages.
    pub(super) fn live(&self) -> u64 {
        self.live
    }

    /// Returns a page.
    pub(super) fn read<'t>(
        &self,
        objects: &'t mut Transaction<'_>,
        page: u64,
    ) -> Result<&'t [u8], Stop> {
        let key = PageKey::new(self.id, page);
        let found = objects.peek_in(PAGES | self.database, key.bytes())?;
        found.map(|found| found.value).ok_or(stop::DAMAGED)
    }

    /// Writes a page.
    pub(super) fn write(
        &self,
        objects: &mut Transaction<'_>,
        page: u64,
        bytes: Vec<u8>,
    ) -> Result<(), Stop> {
        let key = PageKey::new(self.id, page);
        objects.put_in(PAGES | self.database, key.bytes(), bytes, Kind::String, None)
    }

    /// Makes a page; returns its number.
    pub(super) fn add(
        &mut self,
        objects: &mut Transaction<'_>,
        bytes: Vec<u8>,
    ) -> Result<u64, Stop> {
        self.take_id(objects)?;
        let page = self.next;
        self.next = page.checked_add(1).ok_or(stop::DAMAGED)?;
        self.live += 1;
        self.write(objects, page, bytes)?;
        Ok(page)
    }

    /// Takes an id if there is none.
    fn take_id(&mut self, objects: &mut Transaction<'_>) -> Result<(), Stop> {
        if self.id == 0 {
            self.id = next_id(objects, self.database)?;
            self.next = 1;
            self.write_owner(objects)?;
        }
        Ok(())
    }

    /// Takes an owner record that stays even without pages.
    pub(super) fn keep_owner(&mut self, objects: &mut Transaction<'_>) -> Result<(), Stop> {
        self.has_owner = true;
        self.take_id(objects)
    }

    /// Writes the owner record.
    pub(super) fn write_owner(&self, objects: &mut Transaction<'_>) -> Result<(), Stop> {
        self.write(objects, 0, self.key.to_vec())
    }

    /// Deletes a page.
    pub(super) fn remove(&mut self, objects: &mut Transaction<'_>, page: u64) -> Result<(), Stop> {
        let database = PAGES | self.database;
        if !objects.remove_in(database, PageKey::new(self.id, page).bytes())? {
            return Err(stop::DAMAGED);
        }
        self.live = self.live.checked_sub(1).ok_or(stop::DAMAGED)?;
        if self.live == 0 && !self.has_owner {
            objects.remove_in(database, PageKey::new(self.id, 0).bytes())?;
            (self.id, self.next) = (0, 0);
        }
        Ok(())
    }
}

/// Takes the next id of a database.
pub(super) fn next_id(objects: &mut Transaction<'_>, database: Database) -> Result<u64, Stop> {
    let database = PAGES | database;
    let last = match objects.peek_in(database, COUNTER)? {
        Some(found) => varint::take(&mut &*found.value).ok_or(stop::DAMAGED)?,
        None => 0,
    };
    let id = last.checked_add(1).ok_or(stop::DAMAGED)?;
    let mut bytes = Vec::with_capacity(10);
    varint::put(&mut bytes, id);
    objects.put_in(database, COUNTER, bytes, Kind::String, None)?;
    Ok(id)
}
