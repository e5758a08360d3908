//! A stream: the value of one key. Its entries lie in the order of their ids.
//!
//! A stream is a [`Collection`] of five trees, which share the pages. Their roots are in the
//! header, so a small stream with its groups is one object, and one change deletes any stream.
//!
//! | tree | key | value |
//! |---|---|---|
//! | state | empty | last id, highest deleted id, entries ever added, next number |
//! | entries | id | fields and values |
//! | members | group or consumer | see [`groups`](super::stream_groups) |
//! | pending | group, id | consumer, time of delivery, deliveries |
//! | owned | group, consumer, id | nothing |
//!
//! Ids in keys have 16 bytes, the highest first. All other numbers are varints. The number of
//! entries, of pending ones and of consumers is the difference of two ranks, so it is not stored.

use super::collection::Collection;
use super::stop::{self, Stop};
use super::store::Kind;
use super::stream_id::StreamId;
use super::transaction::Transaction;
use super::tree::Form;
use super::varint;
use super::writer::Writer;
use std::ops::Range;

const STATE: usize = 0;
const ENTRIES: usize = 1;
pub(super) const MEMBERS: usize = 2;
pub(super) const PENDING: usize = 3;
pub(super) const OWNED: usize = 4;

const FORMS: &[Form] = &[Form::MAP, Form::MAP, Form::MAP, Form::MAP, Form::BYTES];

/// The counts of a stream, and the ids that it must remember.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The greatest id ever: the next one must be greater.
    pub(super) last: StreamId,
    /// The entries ever added.
    pub(super) added: u64,
    /// The greatest id that `XDEL` and the like have deleted.
    pub(super) max_deleted: StreamId,
    /// The number of the next group or consumer.
    pub(super) next: u64,
}

impl State {
    fn encode(&self) -> Vec<u8> {
        let State { last, added, max_deleted, next } = *self;
        let mut out = Vec::with_capacity(40);
        let ids = [last.ms, last.sequence, max_deleted.ms, max_deleted.sequence];
        for number in ids.into_iter().chain([added, next]) {
            varint::put(&mut out, number);
        }
        out
    }

    fn parse(mut bytes: &[u8]) -> Option<State> {
        let mut id = || {
            let ms = varint::take(&mut bytes)?;
            Some(StreamId::new(ms, varint::take(&mut bytes)?))
        };
        let (last, max_deleted) = (id()?, id()?);
        let (added, next) = (varint::take(&mut bytes)?, varint::take(&mut bytes)?);
        Some(State { last, added, max_deleted, next })
    }
}

/// Returns the bytes of an entry: the number of its strings, then each with its length.
pub(super) fn encode<'a>(strings: impl Iterator<Item = &'a [u8]> + Clone) -> Vec<u8> {
    let (count, bytes) = strings
        .clone()
        .fold((0_u64, 0), |(count, bytes), string| (count + 1, bytes + string.len() + 3));
    let mut out = Vec::with_capacity(bytes + 3);
    varint::put(&mut out, count);
    for string in strings {
        varint::put(&mut out, string.len() as u64);
        out.extend_from_slice(string);
    }
    out
}

/// Returns the strings of an entry.
pub(super) fn strings_of(mut bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stop> {
    let count = varint::take(&mut bytes).ok_or(stop::DAMAGED)?;
    let string = |_| take_string(&mut bytes).map(<[u8]>::to_vec).ok_or(stop::DAMAGED);
    (0..count).map(string).collect()
}

/// Writes an entry: its id, and an array of its fields and values.
pub(super) fn reply(reply: &mut Writer<'_>, id: StreamId, mut bytes: &[u8]) -> Result<(), Stop> {
    let count = varint::take(&mut bytes).ok_or(stop::DAMAGED)?;
    let count = usize::try_from(count).map_err(|_| stop::DAMAGED)?;
    reply.array(2);
    reply_id(reply, id);
    reply.array(count);
    for _ in 0..count {
        let string = take_string(&mut bytes).ok_or(stop::DAMAGED)?;
        reply.string(string);
    }
    Ok(())
}

fn take_string<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint::take(bytes)?).ok()?;
    let (string, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(string)
}

/// Writes an id.
pub(super) fn reply_id(reply: &mut Writer<'_>, id: StreamId) {
    reply.string(id.text().as_bytes());
}

/// Reads an id that is a key.
pub(super) fn id_of(key: &[u8]) -> Result<StreamId, Stop> {
    StreamId::of_bytes(key).ok_or(stop::DAMAGED)
}

/// A stream that is read or changed.
pub(super) struct Stream<'k> {
    pub(super) collection: Collection<'k>,
    pub(super) state: State,
}

impl<'k> Stream<'k> {
    /// Returns a stream for a command that only reads.
    pub(super) fn read(
        objects: &mut Transaction<'_>,
        key: &'k [u8],
    ) -> Result<Option<Stream<'k>>, Stop> {
        let found = Collection::to_read(objects, key, Kind::Stream, FORMS)?;
        Stream::of(objects, found)
    }

    /// Returns a stream for a command that also writes.
    pub(super) fn find(
        objects: &mut Transaction<'_>,
        key: &'k [u8],
    ) -> Result<Option<Stream<'k>>, Stop> {
        let found = Collection::find(objects, key, Kind::Stream, FORMS)?;
        Stream::of(objects, found)
    }

    fn of(
        objects: &mut Transaction<'_>,
        found: Option<Collection<'k>>,
    ) -> Result<Option<Stream<'k>>, Stop> {
        let Some(mut collection) = found else { return Ok(None) };
        let state = collection.nth(STATE).get(objects, b"")?;
        let state = state.and_then(|bytes| State::parse(&bytes)).ok_or(stop::DAMAGED)?;
        Ok(Some(Stream { collection, state }))
    }

    /// Returns an empty stream for a key that does not exist.
    pub(super) fn new(objects: &Transaction<'_>, key: &'k [u8]) -> Stream<'k> {
        let collection = Collection::new(objects, key, Kind::Stream, FORMS);
        Stream { collection, state: State::default() }
    }

    /// Writes the stream, also if it has no entries.
    pub(super) fn save(mut self, objects: &mut Transaction<'_>) -> Result<(), Stop> {
        self.collection.nth(STATE).set(objects, b"", &self.state.encode())?;
        self.collection.close(objects)?;
        Ok(())
    }

    /// Returns the key.
    pub(super) fn key(&self) -> &'k [u8] {
        self.collection.key()
    }

    /// Returns the number of entries.
    pub(super) fn len(&mut self) -> Result<u64, Stop> {
        self.collection.nth(ENTRIES).len()
    }

    /// Returns the number of entries before an id.
    pub(super) fn rank(
        &mut self,
        objects: &mut Transaction<'_>,
        id: StreamId,
    ) -> Result<u64, Stop> {
        Ok(self.collection.nth(ENTRIES).rank(objects, &id.bytes())?.0)
    }

    /// Returns the places of the entries from one id to another one.
    pub(super) fn places(
        &mut self,
        objects: &mut Transaction<'_>,
        begin: StreamId,
        end: StreamId,
    ) -> Result<Range<u64>, Stop> {
        let first = self.rank(objects, begin)?;
        let last = match end.next() {
            Some(behind) => self.rank(objects, behind)?,
            None => self.len()?,
        };
        Ok(first..last.max(first))
    }

    /// Visits entries in their order or backwards.
    pub(super) fn visit(
        &mut self,
        objects: &mut Transaction<'_>,
        places: Range<u64>,
        is_reverse: bool,
        mut visit: impl FnMut(StreamId, &[u8]) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let begin = if is_reverse { places.end } else { places.start };
        let mut cursor = self.collection.nth(ENTRIES).cursor(objects, begin)?;
        for _ in places {
            let entry =
                if is_reverse { cursor.previous(objects)? } else { cursor.next(objects)? };
            let Some((key, value)) = entry else { break };
            visit(id_of(key)?, value)?;
        }
        Ok(())
    }

    /// Returns the id at a place; `None` behind the last one.
    pub(super) fn id_at(
        &mut self,
        objects: &mut Transaction<'_>,
        place: u64,
    ) -> Result<Option<StreamId>, Stop> {
        let mut found = None;
        let end = place.saturating_add(1).min(self.len()?);
        self.visit(objects, place..end, false, |id, _| {
            found = Some(id);
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns the id of the first entry, or the smallest id if there are no entries.
    pub(super) fn first(&mut self, objects: &mut Transaction<'_>) -> Result<StreamId, Stop> {
        Ok(self.id_at(objects, 0)?.unwrap_or_default())
    }

    /// Returns the id of the last entry that exists.
    pub(super) fn top(&mut self, objects: &mut Transaction<'_>) -> Result<Option<StreamId>, Stop> {
        match self.len()?.checked_sub(1) {
            Some(last) => self.id_at(objects, last),
            None => Ok(None),
        }
    }

    /// Returns the bytes of an entry.
    pub(super) fn entry(
        &mut self,
        objects: &mut Transaction<'_>,
        id: StreamId,
    ) -> Result<Option<Vec<u8>>, Stop> {
        self.collection.nth(ENTRIES).get(objects, &id.bytes())
    }

    /// Checks that an entry fits into the store. A command does so before it changes anything.
    pub(super) fn check(objects: &Transaction<'_>, bytes: &[u8]) -> Result<(), Stop> {
        Form::MAP.check(objects, StreamId::MAX.bytes().as_slice(), bytes)
    }

    /// Adds an entry with an id that is greater than all before.
    pub(super) fn add(
        &mut self,
        objects: &mut Transaction<'_>,
        id: StreamId,
        bytes: &[u8],
    ) -> Result<(), Stop> {
        self.collection.nth(ENTRIES).set(objects, &id.bytes(), bytes)?;
        self.state.last = id;
        self.state.added = self.state.added.saturating_add(1);
        Ok(())
    }

    /// Removes an entry, which clients want to be remembered as deleted; returns whether it was
    /// there.
    pub(super) fn remove(
        &mut self,
        objects: &mut Transaction<'_>,
        id: StreamId,
    ) -> Result<bool, Stop> {
        let is_there = self.cut(objects, id)?;
        if is_there {
            self.state.max_deleted = self.state.max_deleted.max(id);
        }
        Ok(is_there)
    }

    /// Removes an entry; returns whether it was there.
    pub(super) fn cut(
        &mut self,
        objects: &mut Transaction<'_>,
        id: StreamId,
    ) -> Result<bool, Stop> {
        self.collection.nth(ENTRIES).remove(objects, &id.bytes())
    }

    /// Removes the oldest entries.
    pub(super) fn cut_first(
        &mut self,
        objects: &mut Transaction<'_>,
        count: u64,
    ) -> Result<(), Stop> {
        self.collection.nth(ENTRIES).remove_range(objects, 0, count)
    }
}
