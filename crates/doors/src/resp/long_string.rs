//! Strings that are longer than an object of the store: a header and pages.
//!
//! ```text
//!  header   as that of a collection, with one root
//!  root     length of the string │ bytes of a page          (varints)
//!  page n   the bytes from (n - 1) × bytes of a page on      (n = 1, 2, …)
//! ```
//!
//! The header is the object under the user's key. Its kind is [`Kind::LongString`], so other
//! commands never take it for the string itself. The pages lie beside those of collections, and the
//! sweeper frees them in the same way.
//!
//! # Promises
//!
//! - *A string is replaced as a whole.* A list of changes must fit into half a segment of the log,
//!   and such a string need not. So a new string gets pages of its own, which are written at once,
//!   before the list of changes. Nothing names them until the list writes the header. If the
//!   command fails, or the process crashes, the old string stays, and the new pages are garbage.
//! - *A command that is executed again goes on.* The store may not have room for all pages at once.
//!   Then the pages that it has are kept for the next attempt: see [`super::long_begun`].
//! - *A small change writes few bytes.* A part is changed in the pages that it touches, together
//!   with the header.
//!
//! It does not promise that memory is free at once: the pages of a string that was replaced or
//! deleted are freed soon after.

use super::header::Header;
use super::long_begun::One;
use super::pages::{COUNTER, PageKey, Pages, next_id};
use super::stop::{self, Stop};
use super::store::{Change, Database, Found, Kind, PAGES, Refusal, Strings};
use super::transaction::Transaction;
use super::varint;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_128;

/// The bytes of a page. A change writes at least one page, so pages are short. They are long enough
/// that their keys and heads take little memory.
const PAGE_BYTES: usize = 64 << 10;

/// The bytes of a change up to which pages are changed where they are. A longer one writes the
/// whole string, because one list of changes may not have room for it.
const PATCH_BYTES_MAX: usize = 128 << 10;

/// The header of a long string.
#[derive(Clone, Debug)]
pub(super) struct LongString {
    id: u64,
    live: u64,
    length: usize,
    page_bytes: usize,
    /// The time at which it expires.
    pub(super) expires: Option<u64>,
}

/// A string as a command finds it.
pub(super) enum Text<'a> {
    /// It is in one object.
    Whole(Found<'a>),
    /// It has pages.
    Long(LongString),
}

impl<'a> Text<'a> {
    /// Takes an object for a string.
    ///
    /// # Errors
    /// If it is of another type.
    pub(super) fn of(found: Found<'a>) -> Result<Text<'a>, Stop> {
        match found.kind {
            Kind::String => Ok(Text::Whole(found)),
            Kind::LongString => Ok(Text::Long(LongString::of(&found)?)),
            _ => Err(stop::WRONG_TYPE),
        }
    }

    /// Returns the number of bytes.
    pub(super) fn length(&self) -> usize {
        match self {
            Text::Whole(found) => found.value.len(),
            Text::Long(long) => long.length,
        }
    }
}

impl LongString {
    /// Reads the header of a long string.
    pub(super) fn of(found: &Found<'_>) -> Result<LongString, Stop> {
        let header = Header::parse(found.value)?;
        let mut root = header.root(0)?;
        let mut number = || varint::take(&mut root).and_then(|it| usize::try_from(it).ok());
        let (length, page_bytes) = number().zip(number()).ok_or(stop::DAMAGED)?;
        let pages = (length as u64).div_ceil(page_bytes.max(1) as u64);
        let is_whole = header.id != 0 && page_bytes > 0 && header.live == pages;
        let Header { id, live, .. } = header;
        let long = LongString { id, live, length, page_bytes, expires: found.expires };
        is_whole.then_some(long).ok_or(stop::DAMAGED)
    }

    fn header(&self) -> Vec<u8> {
        let mut root = Vec::with_capacity(20);
        varint::put(&mut root, self.length as u64);
        varint::put(&mut root, self.page_bytes as u64);
        let header = Header::new(0, self.id, self.live + 1, self.live);
        header.encode([root.as_slice()].into_iter())
    }

    /// Returns the number of bytes.
    pub(super) fn length(&self) -> usize {
        self.length
    }
}

impl Transaction<'_> {
    /// Returns a string for a command that only reads. An object of another type is an error.
    #[inline]
    pub(super) fn read_text(&mut self, key: &[u8]) -> Result<Option<Text<'_>>, Stop> {
        self.read(key)?.map(Text::of).transpose()
    }

    /// Returns a string for a command that writes. An object of another type is an error.
    #[inline]
    pub(super) fn find_text(&mut self, key: &[u8]) -> Result<Option<Text<'_>>, Stop> {
        self.find(key)?.map(Text::of).transpose()
    }

    /// Calls `act` with all bytes of a string, for a command that only reads. A key without an
    /// object is shown as `None`.
    pub(super) fn with_text<T>(
        &mut self,
        key: &[u8],
        act: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<T, Stop> {
        match self.read_text(key)? {
            None => Ok(act(None)),
            Some(Text::Whole(found)) => Ok(act(Some(found.value))),
            Some(Text::Long(long)) => {
                let value = self.all_of(&long)?;
                Ok(act(Some(&value)))
            }
        }
    }

    /// Returns a copy of a string, and its time of expiry, for a command that writes.
    pub(super) fn find_copy(&mut self, key: &[u8]) -> Result<(Vec<u8>, Option<u64>), Stop> {
        match self.find_text(key)? {
            None => Ok((Vec::new(), None)),
            Some(Text::Whole(found)) => Ok((found.value.to_vec(), found.expires)),
            Some(Text::Long(long)) => Ok((self.all_of(&long)?, long.expires)),
        }
    }

    /// Shows each of some strings, until `show` returns `false`. Objects of other types, and keys
    /// without an object, are shown as `None`.
    pub(super) fn read_strings(
        &mut self,
        mut keys: Strings<'_>,
        show: &mut dyn FnMut(Option<&[u8]>) -> bool,
    ) -> Result<(), Stop> {
        loop {
            let (mut shown, mut long) = (0, None);
            self.read_each(keys, &mut |found| {
                shown += 1;
                match found {
                    Some(found) if found.kind == Kind::LongString => {
                        long = Some(LongString::of(found));
                        false
                    }
                    Some(found) if found.kind == Kind::String => show(Some(found.value)),
                    _ => show(None),
                }
            })?;
            let Some(long) = long else { return Ok(()) };
            let value = self.all_of(&long?)?;
            if !show(Some(&value)) {
                return Ok(());
            }
            keys = keys.from(shown);
        }
    }

    /// Returns the bytes of a long string of the commands' database.
    pub(super) fn all_of(&mut self, long: &LongString) -> Result<Vec<u8>, Stop> {
        self.part_of(long, 0..long.length)
    }

    /// Returns some bytes of a long string of the commands' database.
    pub(super) fn part_of(
        &mut self,
        long: &LongString,
        part: Range<usize>,
    ) -> Result<Vec<u8>, Stop> {
        let database = PAGES | self.database;
        let mut bytes = Vec::new();
        let (mut at, end) = (part.start, part.end.min(long.length));
        while at < end {
            let number = at / long.page_bytes;
            let key = PageKey::new(long.id, number as u64 + 1);
            let page = self.peek_in(database, key.bytes())?.ok_or(stop::DAMAGED)?.value;
            let begin = number * long.page_bytes;
            let last = end.min(begin + long.page_bytes);
            bytes.extend_from_slice(page.get(at - begin..last - begin).ok_or(stop::DAMAGED)?);
            at = last;
        }
        Ok(bytes)
    }

    /// Writes some bytes into a long string. If they begin behind its end, zero bytes lie between.
    pub(super) fn patch(
        &mut self,
        key: &[u8],
        mut long: LongString,
        offset: usize,
        bytes: &[u8],
    ) -> Result<usize, Stop> {
        let end = offset.checked_add(bytes.len()).ok_or(Refusal::TooLong)?;
        if end > self.string_bytes_max() {
            return Err(Refusal::TooLong.into());
        }
        let begin = offset.min(long.length);
        if end - begin > PATCH_BYTES_MAX {
            let mut all = self.all_of(&long)?;
            all.resize(all.len().max(end), 0);
            all[offset..end].copy_from_slice(bytes);
            let length = all.len();
            self.put(key, all, Kind::String, long.expires)?;
            return Ok(length);
        }
        let (database, page_bytes) = (PAGES | self.database, long.page_bytes);
        let mut at = begin;
        while at < end {
            let number = at / page_bytes;
            let (first, last) = (number * page_bytes, end.min((number + 1) * page_bytes));
            let page_key = PageKey::new(long.id, number as u64 + 1);
            let mut page = match first < long.length {
                true => {
                    let found = self.peek_in(database, page_key.bytes())?;
                    found.ok_or(stop::DAMAGED)?.value.to_vec()
                }
                false => Vec::new(),
            };
            if page.len() > page_bytes {
                return Err(stop::DAMAGED);
            }
            page.resize(page.len().max(last - first), 0);
            let from = at.max(offset);
            if from < last {
                page[from - first..last - first]
                    .copy_from_slice(&bytes[from - offset..last - offset]);
            }
            self.put_in(database, page_key.bytes(), page, Kind::String, None)?;
            at = last;
        }
        long.length = long.length.max(end);
        long.live = (long.length as u64).div_ceil(page_bytes as u64);
        self.put(key, long.header(), Kind::LongString, long.expires)?;
        Ok(long.length)
    }

    /// Writes a string that is longer than an object.
    pub(super) fn put_long(
        &mut self,
        database: Database,
        key: &[u8],
        value: &[u8],
        expires: Option<u64>,
    ) -> Result<(), Stop> {
        self.forget_pages_in(database, key)?;
        let page_bytes = PAGE_BYTES.min(self.value_bytes_max());
        let live = value.len().div_ceil(page_bytes) as u64;
        let mut long = LongString { id: 0, live, length: value.len(), page_bytes, expires };
        if self.is_cleared(database) {
            // The database is emptied by the list of changes, so the pages must be part of it.
            let mut pages = Pages::new(database, key);
            for part in value.chunks(page_bytes) {
                pages.add(self, part.to_vec())?;
            }
            long.id = pages.id();
        } else {
            long.id = self.write_pages(database, key, value, page_bytes)?;
        }
        self.put_in(database, key, long.header(), Kind::LongString, expires)
    }

    /// Writes the pages of a string at once, or the rest of them; returns their id.
    fn write_pages(
        &mut self,
        database: Database,
        key: &[u8],
        value: &[u8],
        page_bytes: usize,
    ) -> Result<u64, Stop> {
        let (base, now) = (self.base(database), self.now());
        let pages = value.len().div_ceil(page_bytes) as u64;
        let digest = xxh3_128(value);
        let mut begun = self.begun().take(base, key, digest);
        if let Some(mut one) = begun.take() {
            one.touched_ms = now;
            match self.check_written(&one, value, page_bytes) {
                Ok(true) => begun = Some(one),
                Ok(false) => self.begun().abandon(one),
                Err(stop) => {
                    self.begun().put(one);
                    return Err(stop);
                }
            }
        }
        let mut one = match begun {
            Some(one) => one,
            None if !self.begun().find_room() => return Err(Refusal::NotNow.into()),
            None => {
                let (id, key) = (self.begin_pages(database, key)?, key.to_vec());
                let client = self.begun().client;
                let touched_ms = now;
                One { client, database: base, key, digest, id, pages, written: 0, touched_ms }
            }
        };
        let rest = value.chunks(page_bytes).skip(one.written as usize);
        let mut done = Ok(());
        for part in rest {
            let page = PageKey::new(one.id, one.written + 1);
            done = self.apply_now(database, &[(page.bytes(), part)]);
            if done.is_err() {
                break;
            }
            one.written += 1;
        }
        let id = one.id;
        self.begun().put(one);
        done?;
        Ok(id)
    }

    /// Finds out whether the pages that were written have the bytes of a string. Their database may
    /// have become another one since, and different strings may have the same digest.
    fn check_written(&mut self, one: &One, value: &[u8], page_bytes: usize) -> Result<bool, Stop> {
        let database = PAGES | one.database;
        let owner = PageKey::new(one.id, 0);
        let found = self.store_mut().find(database, owner.bytes(), false)?;
        if found.is_none_or(|found| found.value != one.key) {
            return Ok(false);
        }
        for (number, part) in (1..=one.written).zip(value.chunks(page_bytes)) {
            let page = PageKey::new(one.id, number);
            let found = self.store_mut().find(database, page.bytes(), false)?;
            if found.is_none_or(|found| found.value != part) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes an id for pages that are written at once, and writes their owner record.
    fn begin_pages(&mut self, database: Database, key: &[u8]) -> Result<u64, Stop> {
        let id = next_id(self, database)?;
        let mut counter = Vec::with_capacity(10);
        varint::put(&mut counter, id);
        let owner = PageKey::new(id, 0);
        self.apply_now(database, &[(COUNTER, &counter), (owner.bytes(), key)])?;
        Ok(id)
    }

    /// Writes pages of a user's database before the list of changes.
    fn apply_now<'p>(
        &mut self,
        database: Database,
        pages: &[(&'p [u8], &'p [u8])],
    ) -> Result<(), Refusal> {
        let database = PAGES | self.base(database);
        let put = |&(key, value): &(&'p [u8], &'p [u8])| Change::Put {
            database,
            key,
            value,
            kind: Kind::String,
            expires: None,
        };
        let changes: Vec<Change<'p>> = pages.iter().map(put).collect();
        self.store_mut().apply(&changes)
    }
}
