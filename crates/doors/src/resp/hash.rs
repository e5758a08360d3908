//! A hash: the value of one key. Its fields may expire one by one.
//!
//! The first tree has the fields with their values. If fields expire, two more trees have their
//! times: one by the field, and one in the order of times, whose keys are a time, as eight bytes,
//! and the field.
//!
//! # Promises
//!
//! - A field that has expired is not there, for every method, although its bytes may still be.
//! - [`Hash::close`] frees the memory of some such fields, and the [sweeper](super::sweep) that of
//!   the others.

use super::collection::{Collection, LARGE};
use super::events::Kinds;
use super::header::Header;
use super::pages::Pages;
use super::stop::{self, Stop};
use super::store::Kind;
use super::transaction::Transaction;
use super::tree::{self, Form, Place};

/// The number and form of the tree of fields.
pub(super) const FORM: Form = Form::HASH;

/// The number and form of the tree with the time of each field that expires.
const TIMES: usize = 1;
const TIMES_FORM: Form = Form::HASH;

/// The number and form of the tree in the order of times.
const ORDER: usize = 2;
const ORDER_FORM: Form = Form::BYTES;

const FORMS: &[Form] = &[FORM, TIMES_FORM, ORDER_FORM];

const TIME_BYTES: usize = 8;

/// The most fields, and the longest field or value, of a hash that Redis keeps as a list.
const LISTED_FIELDS_MAX: u64 = 512;
const LISTED_BYTES_MAX: usize = 64;

/// The fields whose memory one change frees.
const FREED_MAX: usize = 128;

/// The latest time at which a field may expire.
pub(super) const TIME_MAX: u64 = (1 << 46) - 1;

/// A time of expiry for a field that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    Never,
    At(u64),
    /// The time that it has.
    AsBefore,
}

/// See the module's documentation.
pub(super) struct Hash<'k> {
    pub(super) collection: Collection<'k>,
    now: u64,
}

/// Returns the key of the tree in the order of times.
fn key_of(time: u64, field: &[u8]) -> Vec<u8> {
    [&time.to_be_bytes(), field].concat()
}

/// Returns the time and the field of a key of the tree in the order of times.
fn parts_of(key: &[u8]) -> Result<(u64, &[u8]), Stop> {
    let (time, field) = key.split_first_chunk::<TIME_BYTES>().ok_or(stop::DAMAGED)?;
    Ok((u64::from_be_bytes(*time), field))
}

/// Checks that a field fits into the store. A command does so before it changes anything.
pub(super) fn check(
    objects: &Transaction<'_>,
    field: &[u8],
    value: &[u8],
    expires: bool,
) -> Result<(), Stop> {
    if expires {
        TIMES_FORM.check(objects, field, &[0; TIME_BYTES])?;
        ORDER_FORM.check(objects, &key_of(0, field), &[])?;
    }
    FORM.check(objects, field, value)
}

/// Returns the number of fields of a hash; 0 if there is none.
pub(super) fn length(objects: &mut Transaction<'_>, key: &[u8]) -> Result<u64, Stop> {
    let Some(found) = objects.read_kind(key, Kind::Hash)? else { return Ok(0) };
    let header = Header::parse(found.value)?;
    match header.end {
        None => tree::count(FORM, header.root(0)?),
        Some(_) => {
            let found = Hash::find(objects, key)?;
            found.map_or(Ok(0), |mut hash| hash.len(objects))
        }
    }
}

/// Gives the value of a field to a function, or that there is none. A small hash without fields
/// that expire is not copied.
pub(super) fn look_up<R>(
    objects: &mut Transaction<'_>,
    key: &[u8],
    field: &[u8],
    take: impl FnOnce(Option<&[u8]>) -> R,
) -> Result<R, Stop> {
    let database = objects.database;
    let (pages, page) = match objects.read_kind(key, Kind::Hash)? {
        None => return Ok(take(None)),
        Some(found) => {
            let header = Header::parse(found.value)?;
            match tree::find(FORM, header.root(0)?, field)? {
                Place::Here(value) if header.end.is_none() => return Ok(take(value)),
                Place::Page(page) if header.end.is_none() => {
                    (Pages::of(database, key, &header), page)
                }
                _ => {
                    let mut hash = Hash::find(objects, key)?.ok_or(stop::DAMAGED)?;
                    return Ok(take(hash.get(objects, field)?.as_deref()));
                }
            }
        }
    };
    Ok(take(tree::find_below(FORM, &pages, objects, page, field)?.as_deref()))
}

impl<'k> Hash<'k> {
    fn of(objects: &Transaction<'_>, collection: Collection<'k>) -> Hash<'k> {
        Hash { collection, now: objects.now() }
    }

    /// Returns a hash for a command that only reads.
    pub(super) fn read(
        objects: &mut Transaction<'_>,
        key: &'k [u8],
    ) -> Result<Option<Hash<'k>>, Stop> {
        let found = Collection::to_read(objects, key, Kind::Hash, FORMS)?;
        Ok(found.map(|collection| Hash::of(objects, collection)))
    }

    /// Returns a hash for a command that writes.
    pub(super) fn find(
        objects: &mut Transaction<'_>,
        key: &'k [u8],
    ) -> Result<Option<Hash<'k>>, Stop> {
        let found = Collection::find(objects, key, Kind::Hash, FORMS)?;
        Ok(found.map(|collection| Hash::of(objects, collection)))
    }

    /// Returns an empty hash that replaces the value of a key when it is closed.
    pub(super) fn new(objects: &Transaction<'_>, key: &'k [u8]) -> Hash<'k> {
        Hash::of(objects, Collection::new(objects, key, Kind::Hash, FORMS))
    }

    /// Returns a hash for a command that writes: a new one if there is none.
    pub(super) fn to_write(objects: &mut Transaction<'_>, key: &'k [u8]) -> Result<Hash<'k>, Stop> {
        let found = Hash::find(objects, key)?;
        Ok(found.unwrap_or_else(|| Hash::new(objects, key)))
    }

    /// Prepares for so many fields in one command. Redis does not look whether they differ.
    pub(super) fn reserve(&mut self, fields: u64) {
        if fields > LISTED_FIELDS_MAX {
            self.collection.encoding = LARGE;
        }
    }

    /// Returns the number of fields whose bytes are there although they have expired.
    pub(super) fn expired(&mut self, objects: &mut Transaction<'_>) -> Result<u64, Stop> {
        let order = self.collection.nth(ORDER);
        if order.len()? == 0 {
            return Ok(0);
        }
        let count = order.rank(objects, &key_of(self.now + 1, &[]))?.0;
        if count > 0
            && let Some((key, _)) = order.cursor(objects, count - 1)?.next(objects)?
        {
            objects.gone().note(parts_of(key)?.0);
        }
        Ok(count)
    }

    /// Returns the places of the fields whose bytes are there although they have expired, in their
    /// order.
    pub(super) fn expired_places(
        &mut self,
        objects: &mut Transaction<'_>,
    ) -> Result<Vec<u64>, Stop> {
        let count = self.expired(objects)?;
        let mut places = Vec::new();
        if count == 0 {
            return Ok(places);
        }
        let mut items = self.collection.nth(ORDER).cursor(objects, 0)?;
        for _ in 0..count {
            let Some((key, _)) = items.next(objects)? else { break };
            let field = parts_of(key)?.1.to_vec();
            places.push(self.collection.tree().rank(objects, &field)?.0);
        }
        places.sort_unstable();
        Ok(places)
    }

    /// Returns the number of fields.
    pub(super) fn len(&mut self, objects: &mut Transaction<'_>) -> Result<u64, Stop> {
        let expired = self.expired(objects)?;
        self.collection.len()?.checked_sub(expired).ok_or(stop::DAMAGED)
    }

    fn raw_time(
        &mut self,
        objects: &mut Transaction<'_>,
        field: &[u8],
    ) -> Result<Option<u64>, Stop> {
        if self.collection.end.is_none() {
            return Ok(None);
        }
        let times = self.collection.nth(TIMES);
        if times.len()? == 0 {
            return Ok(None);
        }
        let time = times.get(objects, field)?;
        let time = time.map(|bytes| <[u8; TIME_BYTES]>::try_from(&*bytes));
        Ok(time.transpose().map_err(|_| stop::DAMAGED)?.map(u64::from_be_bytes))
    }

    /// Finds whether a field, whose bytes are there, has expired.
    pub(super) fn check_expired(
        &mut self,
        objects: &mut Transaction<'_>,
        field: &[u8],
    ) -> Result<bool, Stop> {
        let expired = self.raw_time(objects, field)?.filter(|time| *time <= self.now);
        Ok(expired.inspect(|time| objects.gone().note(*time)).is_some())
    }

    /// Returns the value of a field.
    pub(super) fn get(
        &mut self,
        objects: &mut Transaction<'_>,
        field: &[u8],
    ) -> Result<Option<Vec<u8>>, Stop> {
        let value = self.collection.tree().get(objects, field)?;
        match value.is_some() && self.check_expired(objects, field)? {
            true => Ok(None),
            false => Ok(value),
        }
    }

    /// Returns the time at which a field expires, which may be never; `None` if there is no field.
    pub(super) fn time(
        &mut self,
        objects: &mut Transaction<'_>,
        field: &[u8],
    ) -> Result<Option<Option<u64>>, Stop> {
        if self.collection.tree().get(objects, field)?.is_none() {
            return Ok(None);
        }
        let time = self.raw_time(objects, field)?;
        let expired = time.filter(|time| *time <= self.now);
        Ok(expired.inspect(|time| objects.gone().note(*time)).is_none().then_some(time))
    }

    /// Visits all fields with their values.
    pub(super) fn visit(
        &mut self,
        objects: &mut Transaction<'_>,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Stop> {
        let has_expired = self.expired(objects)? > 0;
        let mut items = self.collection.cursor(objects, 0)?;
        while let Some((field, value)) = items.next(objects)? {
            if !has_expired || !self.check_expired(objects, field)? {
                visit(field, value);
            }
        }
        Ok(())
    }

    /// Writes a field; returns whether it is new.
    pub(super) fn set(
        &mut self,
        objects: &mut Transaction<'_>,
        field: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<bool, Stop> {
        if self.check_expired(objects, field)? {
            self.remove_bytes(objects, field)?;
        }
        let is_new = self.collection.tree().set(objects, field, value)?;
        if self.collection.encoding != LARGE
            && (field.len().max(value.len()) > LISTED_BYTES_MAX
                || is_new && self.collection.len()? > LISTED_FIELDS_MAX)
        {
            self.collection.encoding = LARGE;
        }
        match expiry {
            Expiry::Never => self.set_time(objects, field, None)?,
            Expiry::At(time) => self.set_time(objects, field, Some(time))?,
            Expiry::AsBefore => {}
        }
        Ok(is_new)
    }

    /// Gives a field, which is there, a time of expiry in the future, or none.
    pub(super) fn set_time(
        &mut self,
        objects: &mut Transaction<'_>,
        field: &[u8],
        time: Option<u64>,
    ) -> Result<(), Stop> {
        let before = self.raw_time(objects, field)?;
        if before == time {
            return Ok(());
        }
        if let Some(before) = before {
            self.collection.nth(ORDER).remove(objects, &key_of(before, field))?;
        }
        match time {
            None => {
                self.collection.nth(TIMES).remove(objects, field)?;
            }
            Some(time) => {
                self.collection.nth(TIMES).set(objects, field, &time.to_be_bytes())?;
                self.collection.nth(ORDER).set(objects, &key_of(time, field), &[])?;
                self.collection.end.get_or_insert(0);
            }
        }
        Ok(())
    }

    /// Removes a field; returns whether it was there.
    pub(super) fn remove(
        &mut self,
        objects: &mut Transaction<'_>,
        field: &[u8],
    ) -> Result<bool, Stop> {
        let has_expired = self.check_expired(objects, field)?;
        Ok(self.remove_bytes(objects, field)? && !has_expired)
    }

    fn remove_bytes(&mut self, objects: &mut Transaction<'_>, field: &[u8]) -> Result<bool, Stop> {
        self.set_time(objects, field, None)?;
        self.collection.tree().remove(objects, field)
    }

    /// Closes the hash after `HSETEX`, with its events. Redis writes fields whose time has passed,
    /// and deletes them again.
    pub(super) fn close_after_set(
        self,
        objects: &mut Transaction<'_>,
        expiry: Expiry,
        is_past: bool,
    ) -> Result<(), Stop> {
        let key = self.collection.key();
        if is_past {
            let is_new = objects.events.wants(Kinds::NEW) && objects.peek(key)?.is_none();
            if is_new {
                objects.event(Kinds::NEW, "new", key);
            }
            objects.event(Kinds::HASH, "hset", key);
            objects.event(Kinds::HASH, "hdel", key);
            if is_new {
                objects.event(Kinds::GENERIC, "del", key);
            }
            return self.close(objects).map(drop);
        }
        self.close(objects)?;
        objects.event(Kinds::HASH, "hset", key);
        if matches!(expiry, Expiry::At(_)) {
            objects.event(Kinds::HASH, "hexpire", key);
        }
        Ok(())
    }

    /// Frees the memory of some fields that have expired. Returns whether there may be more.
    fn free(&mut self, objects: &mut Transaction<'_>) -> Result<bool, Stop> {
        let mut fields = Vec::new();
        if self.collection.end.is_some() && self.collection.nth(ORDER).len()? > 0 {
            let mut items = self.collection.nth(ORDER).cursor(objects, 0)?;
            while fields.len() < FREED_MAX
                && let Some((key, _)) = items.next(objects)?
            {
                let (time, field) = parts_of(key)?;
                if time > self.now {
                    break;
                }
                fields.push(field.to_vec());
            }
        }
        for field in &fields {
            self.remove_bytes(objects, field)?;
        }
        if !fields.is_empty() {
            objects.event(Kinds::HASH, "hexpired", self.collection.key());
        }
        Ok(fields.len() == FREED_MAX)
    }

    /// Writes the hash, or deletes the key if no fields are left. Frees the memory of some fields
    /// that have expired; returns whether there may be more.
    pub(super) fn close(mut self, objects: &mut Transaction<'_>) -> Result<bool, Stop> {
        let has_more = self.free(objects)?;
        if self.collection.end.is_some() {
            let (key, fields) = (self.collection.key(), self.collection.len()?);
            let order = self.collection.nth(ORDER);
            let times = order.len()?;
            let time_at = |objects: &mut Transaction<'_>, position: u64| match order
                .cursor(objects, position)?
                .next(objects)?
            {
                Some((key, _)) => Ok::<_, Stop>(parts_of(key)?.0),
                None => Ok(0),
            };
            if times > 0 {
                let first = time_at(objects, 0)?;
                objects.note_due(key, first);
            }
            self.collection.end = Some(match times == fields && times > 0 {
                true => time_at(objects, times - 1)?,
                false => 0,
            });
        }
        self.collection.close(objects)?;
        Ok(has_more)
    }
}
