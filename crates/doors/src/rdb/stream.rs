//! The value of a stream: its entries, its counts, and its groups of consumers.
//!
//! ```text
//!  nodes │ entries │ last id │ first id │ greatest deleted id │ entries ever added │ groups
//!  node: id │ listpack: header │ entries
//!  header: entries │ deleted entries │ names of fields: number, names │ 0
//!  entry: flags │ id, less that of the node │ strings │ number of items before
//!  group: name │ last id │ entries read │ pending entries │ consumers
//! ```
//!
//! The first form lacks the first id, the greatest deleted id, the entries ever added, and the
//! entries that a group has read. The first two forms lack the time at which a consumer was active.

use super::packed::{PackedWriter, listpack};
use super::reader::{put_length, put_string};
use super::{Damaged, Reader};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// The id of an entry: milliseconds, and a number within the millisecond.
pub type Id = (u64, u64);

/// An entry with its fields and values in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEntry {
    /// Its id.
    pub id: Id,
    /// Names and values of fields.
    pub strings: Vec<Vec<u8>>,
}

/// A pending entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPending {
    /// The id of the entry, which may be deleted.
    pub id: Id,
    /// The time of its last delivery, in milliseconds since 1970.
    pub delivered: u64,
    /// The number of its deliveries.
    pub deliveries: u64,
}

/// A consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamConsumer {
    /// Its name.
    pub name: Vec<u8>,
    /// The time of its last command, in milliseconds since 1970.
    pub seen: u64,
    /// The time of its last command that has got an entry.
    pub active: Option<u64>,
    /// Its pending entries, in the order of their ids.
    pub pending: Vec<StreamPending>,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamGroup {
    /// Its name.
    pub name: Vec<u8>,
    /// The last id that was delivered.
    pub last: Id,
    /// The number of entries from the first one ever to the last delivered one, if it is known.
    pub entries_read: Option<u64>,
    /// Its consumers.
    pub consumers: Vec<StreamConsumer>,
}

/// A stream. It may have no entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Its entries, in the order of their ids.
    pub entries: Vec<StreamEntry>,
    /// The greatest id ever.
    pub last: Id,
    /// The greatest id that was deleted.
    pub max_deleted: Id,
    /// The number of entries ever added.
    pub added: u64,
    /// Its groups.
    pub groups: Vec<StreamGroup>,
}

/// The forms, by the versions of Redis that write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// Redis 5.0.
    First,
    /// Redis 7.0.
    Second,
    /// Redis 7.2.
    Third,
}

/// The bytes of an id that is a string, and is written with the highest byte first.
const ID_BYTES: usize = 16;

/// The flags of an entry.
const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

/// The number for entries read that are not known, and the time of a consumer that was never
/// active.
const NOT_KNOWN: u64 = u64::MAX;

/// The most entries and about the most bytes of a node that is written: those of Redis.
const NODE_ENTRIES_MAX: usize = 100;
const NODE_BYTES_MAX: usize = 4096;

fn id_of(bytes: &[u8]) -> Result<Id, Damaged> {
    let bytes: [u8; ID_BYTES] = bytes.try_into().map_err(|_| Damaged::Format)?;
    let number = u128::from_be_bytes(bytes);
    Ok(((number >> 64) as u64, number as u64))
}

fn bytes_of((ms, sequence): Id) -> [u8; ID_BYTES] {
    (u128::from(ms) << 64 | u128::from(sequence)).to_be_bytes()
}

/// Reads the items of a node.
struct Node<'r, 'a> {
    items: std::vec::IntoIter<Vec<u8>>,
    room: &'r mut Reader<'a>,
}

impl Node<'_, '_> {
    fn string(&mut self) -> Result<Vec<u8>, Damaged> {
        self.items.next().ok_or(Damaged::Format)
    }

    fn number(&mut self) -> Result<i64, Damaged> {
        crate::resp::integer_of(&self.string()?).ok_or(Damaged::Format)
    }

    fn count(&mut self) -> Result<usize, Damaged> {
        usize::try_from(self.number()?).map_err(|_| Damaged::Format)
    }

    /// Reads the entries behind the header, and appends the entries that are not deleted.
    fn entries(&mut self, (ms, sequence): Id, out: &mut Vec<StreamEntry>) -> Result<(), Damaged> {
        let (living, deleted) = (self.count()?, self.count()?);
        let mut names = Vec::new();
        for _ in 0..self.count()? {
            names.push(self.string()?);
        }
        let (end, before) = (self.number()?, out.len());
        let mut found_deleted = 0;
        while self.items.len() > 0 {
            let flags = self.number()?;
            let id = (ms.wrapping_add_signed(self.number()?), {
                let difference = self.number()?;
                sequence.wrapping_add_signed(difference)
            });
            let mut strings = Vec::new();
            let mut items = 3;
            if flags & SAME_FIELDS != 0 {
                for name in &names {
                    // Few bytes may stand for many copies of the names.
                    self.room.take_room(name.len())?;
                    strings.push(name.clone());
                    strings.push(self.string()?);
                }
                items += names.len();
            } else {
                let count = self.count()?.checked_mul(2).ok_or(Damaged::Format)?;
                for _ in 0..count {
                    strings.push(self.string()?);
                }
                items += count + 1;
            }
            if self.count()? != items {
                return Err(Damaged::Format);
            }
            if flags & DELETED != 0 {
                found_deleted += 1;
                continue;
            }
            if out.last().is_some_and(|last| last.id >= id) || strings.is_empty() {
                return Err(Damaged::Format);
            }
            out.push(StreamEntry { id, strings });
        }
        let is_right = end == 0 && out.len() - before == living && found_deleted == deleted;
        if is_right { Ok(()) } else { Err(Damaged::Format) }
    }
}

fn read_id(reader: &mut Reader<'_>) -> Result<Id, Damaged> {
    Ok((reader.length()?, reader.length()?))
}

impl Stream {
    /// Reads a stream behind its type.
    pub(super) fn read(form: Form, reader: &mut Reader<'_>) -> Result<Stream, Damaged> {
        let mut stream = Stream::default();
        for _ in 0..reader.count()? {
            let id = id_of(&reader.string()?)?;
            let packed = reader.string()?;
            let items = listpack(&packed, reader)?.into_iter();
            Node { items, room: reader }.entries(id, &mut stream.entries)?;
        }
        let length = reader.length()?;
        stream.last = read_id(reader)?;
        if form == Form::First {
            stream.added = length;
        } else {
            let _first = read_id(reader)?;
            stream.max_deleted = read_id(reader)?;
            stream.added = reader.length()?;
        }
        let top = stream.entries.last().map_or((0, 0), |entry| entry.id);
        if length != stream.entries.len() as u64 || stream.last < top {
            return Err(Damaged::Format);
        }
        let mut names = HashSet::new();
        for _ in 0..reader.count()? {
            let group = stream.read_group(form, reader)?;
            if !names.insert(group.name.clone()) {
                return Err(Damaged::Format);
            }
            stream.groups.push(group);
        }
        Ok(stream)
    }

    /// Skips a stream behind its type. Its nodes are not unpacked.
    pub(super) fn skip(form: Form, reader: &mut Reader<'_>) -> Result<(), Damaged> {
        const TIME_BYTES: usize = 8;
        for _ in 0..reader.count()? {
            reader.skip_strings(2)?;
        }
        // The number of entries, and the last id. Later forms have two more ids and a number.
        reader.skip_lengths(if form == Form::First { 3 } else { 8 })?;
        for _ in 0..reader.count()? {
            reader.skip_string()?;
            reader.skip_lengths(if form == Form::First { 2 } else { 3 })?;
            for _ in 0..reader.count()? {
                reader.bytes(ID_BYTES + TIME_BYTES)?;
                reader.length()?;
            }
            for _ in 0..reader.count()? {
                reader.skip_string()?;
                reader.bytes(if form < Form::Third { TIME_BYTES } else { 2 * TIME_BYTES })?;
                for _ in 0..reader.count()? {
                    reader.bytes(ID_BYTES)?;
                }
            }
        }
        Ok(())
    }

    fn read_group(&self, form: Form, reader: &mut Reader<'_>) -> Result<StreamGroup, Damaged> {
        let name = reader.string()?;
        let last = read_id(reader)?;
        let entries_read = match form {
            Form::First => self.entries_read(last),
            _ => Some(reader.length()?).filter(|count| *count != NOT_KNOWN),
        };
        let mut pending = HashMap::new();
        for _ in 0..reader.count()? {
            let id = id_of(reader.bytes(ID_BYTES)?)?;
            let (delivered, deliveries) = (reader.time()?, reader.length()?);
            reader.take_room(size_of::<StreamPending>())?;
            if pending.insert(id, StreamPending { id, delivered, deliveries }).is_some() {
                return Err(Damaged::Format);
            }
        }
        let (mut consumers, mut names) = (Vec::new(), HashSet::new());
        for _ in 0..reader.count()? {
            let name = reader.string()?;
            let seen = reader.time()?;
            let active = if form < Form::Third { seen } else { reader.time()? };
            let active = Some(active).filter(|time| *time != NOT_KNOWN);
            let mut own = Vec::new();
            for _ in 0..reader.count()? {
                // Each pending entry has one consumer.
                let id = id_of(reader.bytes(ID_BYTES)?)?;
                own.push(pending.remove(&id).ok_or(Damaged::Format)?);
            }
            own.sort_by_key(|entry| entry.id);
            if !names.insert(name.clone()) {
                return Err(Damaged::Format);
            }
            consumers.push(StreamConsumer { name, seen, active, pending: own });
        }
        let is_whole = pending.is_empty();
        let group = StreamGroup { name, last, entries_read, consumers };
        if is_whole { Ok(group) } else { Err(Damaged::Format) }
    }

    /// Returns the number of entries up to an id, in a stream of which no entry was deleted.
    fn entries_read(&self, id: Id) -> Option<u64> {
        let Some(first) = self.entries.first() else { return Some(0) };
        match id.cmp(&first.id) {
            _ if id == self.last => Some(self.added),
            Ordering::Less => Some(0),
            Ordering::Equal => Some(1),
            Ordering::Greater => None,
        }
    }

    /// Appends the stream in the third form, without its type.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let nodes = self.nodes();
        put_length(out, nodes.len() as u64);
        for (id, packed) in &nodes {
            put_length(out, ID_BYTES as u64);
            out.extend_from_slice(&bytes_of(*id));
            put_length(out, packed.len() as u64);
            out.extend_from_slice(packed);
        }
        put_length(out, self.entries.len() as u64);
        let first = self.entries.first().map_or((0, 0), |entry| entry.id);
        for (ms, sequence) in [self.last, first, self.max_deleted] {
            put_length(out, ms);
            put_length(out, sequence);
        }
        put_length(out, self.added);
        put_length(out, self.groups.len() as u64);
        self.groups.iter().for_each(|group| group.write(out));
    }

    /// Returns the nodes: the id and the listpack of each.
    fn nodes(&self) -> Vec<(Id, Vec<u8>)> {
        let mut nodes = Vec::new();
        let mut entries = &self.entries[..];
        while let Some(first) = entries.first() {
            let mut bytes = 0;
            let fits = entries.iter().take(NODE_ENTRIES_MAX).take_while(|entry| {
                let has_room = bytes < NODE_BYTES_MAX;
                bytes += entry.strings.iter().map(|string| string.len() + 2).sum::<usize>();
                has_room
            });
            let (of_node, rest) = entries.split_at(fits.count().max(1));
            nodes.push((first.id, node(first, of_node)));
            entries = rest;
        }
        nodes
    }
}

/// Returns the listpack of a node, which takes the names of its fields from its first entry.
fn node(first: &StreamEntry, entries: &[StreamEntry]) -> Vec<u8> {
    let names = || first.strings.iter().step_by(2);
    let mut packed = PackedWriter::default();
    packed.integer(entries.len() as i64);
    packed.integer(0);
    packed.integer(names().count() as i64);
    names().for_each(|name| packed.string(name));
    packed.integer(0);
    for StreamEntry { id, strings } in entries {
        let is_same = strings.iter().step_by(2).eq(names());
        packed.integer(if is_same { SAME_FIELDS } else { 0 });
        packed.integer(id.0.wrapping_sub(first.id.0) as i64);
        packed.integer(id.1.wrapping_sub(first.id.1) as i64);
        let fields = strings.len() / 2;
        if is_same {
            strings.iter().skip(1).step_by(2).for_each(|value| packed.string(value));
            packed.integer(fields as i64 + 3);
        } else {
            packed.integer(fields as i64);
            strings.iter().for_each(|string| packed.string(string));
            packed.integer(2 * fields as i64 + 4);
        }
    }
    packed.finish()
}

impl StreamGroup {
    fn write(&self, out: &mut Vec<u8>) {
        put_string(out, &self.name);
        put_length(out, self.last.0);
        put_length(out, self.last.1);
        put_length(out, self.entries_read.unwrap_or(NOT_KNOWN));
        let mut pending: Vec<&StreamPending> =
            self.consumers.iter().flat_map(|consumer| &consumer.pending).collect();
        pending.sort_by_key(|entry| entry.id);
        put_length(out, pending.len() as u64);
        for StreamPending { id, delivered, deliveries } in pending {
            out.extend_from_slice(&bytes_of(*id));
            out.extend_from_slice(&delivered.to_le_bytes());
            put_length(out, *deliveries);
        }
        put_length(out, self.consumers.len() as u64);
        for StreamConsumer { name, seen, active, pending } in &self.consumers {
            put_string(out, name);
            out.extend_from_slice(&seen.to_le_bytes());
            out.extend_from_slice(&active.unwrap_or(NOT_KNOWN).to_le_bytes());
            put_length(out, pending.len() as u64);
            pending.iter().for_each(|entry| out.extend_from_slice(&bytes_of(entry.id)));
        }
    }
}
