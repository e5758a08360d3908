//! The consumer groups of a stream, their consumers, and the entries that are pending: delivered,
//! and not acknowledged.
//!
//! The tree of members has three kinds of items:
//!
//! | key | value |
//! |---|---|
//! | 0, name of a group | number, last id, entries read + 1 (0: not known) |
//! | 1, group, name of a consumer | number, time seen, time active + 1 (0: never) |
//! | 2, group, consumer | name of the consumer |
//!
//! A pending entry names its consumer by its number. The numbers of groups and consumers are used
//! once in a stream.

use super::events::Kinds;
use super::stop::{self, Stop};
use super::stream::{MEMBERS, OWNED, PENDING, Stream, id_of};
use super::stream_id::{ID_BYTES, StreamId};
use super::transaction::Transaction;
use super::tree::{self, Form};
use super::varint;

const GROUP: u8 = 0;
const CONSUMER: u8 = 1;
const NAME: u8 = 2;

/// A group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) number: u64,
    /// The last id that was delivered to one of its consumers.
    pub(super) last: StreamId,
    /// The number of entries from the first one ever to the last delivered one, if it is known.
    pub(super) entries_read: Option<u64>,
}

/// A consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Consumer {
    pub(super) number: u64,
    /// The time of its last command.
    pub(super) seen: u64,
    /// The time of its last command that has got an entry.
    pub(super) active: Option<u64>,
}

/// A pending entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    /// The number of its consumer.
    pub(super) consumer: u64,
    /// The time of its last delivery.
    pub(super) delivered: u64,
    pub(super) deliveries: u64,
}

/// Returns the bytes of some numbers.
fn numbers(numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(ID_BYTES + 16);
    numbers.iter().for_each(|number| varint::put(&mut out, *number));
    out
}

/// Reads so many numbers.
fn numbers_of<const COUNT: usize>(mut bytes: &[u8]) -> Result<[u64; COUNT], Stop> {
    let mut found = [0; COUNT];
    for number in &mut found {
        *number = varint::take(&mut bytes).ok_or(stop::DAMAGED)?;
    }
    Ok(found)
}

/// Returns the key before the first one without a prefix. The last byte of a prefix is less than
/// 0x80, as it ends a varint.
fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut key = prefix.to_vec();
    if let Some(last) = key.last_mut() {
        *last = last.saturating_add(1);
    }
    key
}

fn group_key(name: &[u8]) -> Vec<u8> {
    [&[GROUP], name].concat()
}

fn consumer_prefix(group: &Group) -> Vec<u8> {
    [&[CONSUMER], &*numbers(&[group.number])].concat()
}

fn consumer_key(group: &Group, name: &[u8]) -> Vec<u8> {
    [&*consumer_prefix(group), name].concat()
}

fn name_key(group: &Group, consumer: u64) -> Vec<u8> {
    [&[NAME], &*numbers(&[group.number, consumer])].concat()
}

fn pending_key(group: &Group, id: StreamId) -> Vec<u8> {
    [&*numbers(&[group.number]), &id.bytes()].concat()
}

fn owned_key(group: &Group, consumer: u64, id: StreamId) -> Vec<u8> {
    [&*numbers(&[group.number, consumer]), &id.bytes()].concat()
}

impl Group {
    fn encode(&self) -> Vec<u8> {
        let entries_read = self.entries_read.map_or(0, |count| count.saturating_add(1));
        numbers(&[self.number, self.last.ms, self.last.sequence, entries_read])
    }

    fn parse(bytes: &[u8]) -> Result<Group, Stop> {
        let [number, ms, sequence, read] = numbers_of(bytes)?;
        Ok(Group { number, last: StreamId::new(ms, sequence), entries_read: read.checked_sub(1) })
    }
}

impl Consumer {
    fn encode(&self) -> Vec<u8> {
        let active = self.active.map_or(0, |time| time.saturating_add(1));
        numbers(&[self.number, self.seen, active])
    }

    fn parse(bytes: &[u8]) -> Result<Consumer, Stop> {
        let [number, seen, active] = numbers_of(bytes)?;
        Ok(Consumer { number, seen, active: active.checked_sub(1) })
    }
}

impl Pending {
    fn encode(&self) -> Vec<u8> {
        numbers(&[self.consumer, self.delivered, self.deliveries])
    }

    fn parse(bytes: &[u8]) -> Result<Pending, Stop> {
        let [consumer, delivered, deliveries] = numbers_of(bytes)?;
        Ok(Pending { consumer, delivered, deliveries })
    }
}

/// Checks that the name of a group or consumer fits into the store. A command does so before it
/// changes anything.
pub(super) fn check_name(objects: &Transaction<'_>, name: &[u8]) -> Result<(), Stop> {
    // A key has two numbers in front of a name at most.
    Form::MAP.check(objects, &[&[0; 24], name].concat(), &[&[0; 40], name].concat())
}

impl Stream<'_> {
    /// Visits the items of a tree from a key on, until `visit` returns `false`.
    fn scan(
        &mut self,
        objects: &mut Transaction<'_>,
        tree: usize,
        begin: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool, Stop>,
    ) -> Result<(), Stop> {
        let tree = self.collection.nth(tree);
        let (rank, _) = tree.rank(objects, begin)?;
        let mut cursor = tree.cursor(objects, rank)?;
        while let Some((key, value)) = cursor.next(objects)? {
            if !visit(key, value)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns the number of keys of a tree with a prefix.
    fn count(
        &mut self,
        objects: &mut Transaction<'_>,
        tree: usize,
        prefix: &[u8],
    ) -> Result<u64, Stop> {
        let tree = self.collection.nth(tree);
        let (begin, _) = tree.rank(objects, prefix)?;
        let (end, _) = tree.rank(objects, &behind(prefix))?;
        Ok(end.saturating_sub(begin))
    }

    /// Removes the keys of a tree with a prefix.
    fn remove_all(
        &mut self,
        objects: &mut Transaction<'_>,
        tree: usize,
        prefix: &[u8],
    ) -> Result<(), Stop> {
        let count = self.count(objects, tree, prefix)?;
        let mut tree = self.collection.nth(tree);
        let (begin, _) = tree.rank(objects, prefix)?;
        tree.remove_range(objects, begin, count)
    }

    /// Returns a group.
    pub(super) fn group(
        &mut self,
        objects: &mut Transaction<'_>,
        name: &[u8],
    ) -> Result<Option<Group>, Stop> {
        let found = self.collection.nth(MEMBERS).get(objects, &group_key(name))?;
        found.map(|bytes| Group::parse(&bytes)).transpose()
    }

    /// Writes a group.
    pub(super) fn put_group(
        &mut self,
        objects: &mut Transaction<'_>,
        name: &[u8],
        group: &Group,
    ) -> Result<(), Stop> {
        self.collection.nth(MEMBERS).set(objects, &group_key(name), &group.encode())?;
        Ok(())
    }

    /// Makes a group.
    pub(super) fn add_group(
        &mut self,
        objects: &mut Transaction<'_>,
        name: &[u8],
        last: StreamId,
        entries_read: Option<u64>,
    ) -> Result<Group, Stop> {
        let group = Group { number: self.take_number(), last, entries_read };
        self.put_group(objects, name, &group)?;
        Ok(group)
    }

    fn take_number(&mut self) -> u64 {
        let number = self.state.next;
        self.state.next = number.wrapping_add(1);
        number
    }

    /// Removes a group with its consumers and pending entries.
    pub(super) fn remove_group(
        &mut self,
        objects: &mut Transaction<'_>,
        name: &[u8],
        group: &Group,
    ) -> Result<(), Stop> {
        let prefix = numbers(&[group.number]);
        self.collection.nth(MEMBERS).remove(objects, &group_key(name))?;
        self.remove_all(objects, MEMBERS, &consumer_prefix(group))?;
        self.remove_all(objects, MEMBERS, &[&[NAME], &*prefix].concat())?;
        self.remove_all(objects, PENDING, &prefix)?;
        self.remove_all(objects, OWNED, &prefix)
    }

    /// Returns the number of groups.
    pub(super) fn group_count(&mut self, objects: &mut Transaction<'_>) -> Result<u64, Stop> {
        self.count(objects, MEMBERS, &[GROUP])
    }

    /// Returns all groups, in the order of their names.
    pub(super) fn groups(
        &mut self,
        objects: &mut Transaction<'_>,
    ) -> Result<Vec<(Vec<u8>, Group)>, Stop> {
        let mut groups = Vec::new();
        self.scan(objects, MEMBERS, &[GROUP], |key, value| {
            let Some(name) = key.strip_prefix(&[GROUP]) else { return Ok(false) };
            groups.push((name.to_vec(), Group::parse(value)?));
            Ok(true)
        })?;
        Ok(groups)
    }

    /// Returns a consumer.
    pub(super) fn consumer(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
        name: &[u8],
    ) -> Result<Option<Consumer>, Stop> {
        let found = self.collection.nth(MEMBERS).get(objects, &consumer_key(group, name))?;
        found.map(|bytes| Consumer::parse(&bytes)).transpose()
    }

    /// Writes a consumer.
    pub(super) fn put_consumer(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
        name: &[u8],
        consumer: &Consumer,
    ) -> Result<(), Stop> {
        let key = consumer_key(group, name);
        self.collection.nth(MEMBERS).set(objects, &key, &consumer.encode())?;
        Ok(())
    }

    /// Makes a consumer, seen now. It has no pending entries.
    pub(super) fn add_consumer(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
        name: &[u8],
    ) -> Result<Consumer, Stop> {
        let consumer = Consumer { number: self.take_number(), seen: objects.now(), active: None };
        self.put_consumer(objects, group, name, &consumer)?;
        self.collection.nth(MEMBERS).set(objects, &name_key(group, consumer.number), name)?;
        Ok(consumer)
    }

    /// Returns a consumer that is seen now. It is made if there is none, and is not yet written
    /// with the new time.
    pub(super) fn seen(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
        name: &[u8],
    ) -> Result<Consumer, Stop> {
        match self.consumer(objects, group, name)? {
            Some(consumer) => Ok(Consumer { seen: objects.now(), ..consumer }),
            None => {
                objects.event(Kinds::STREAM, "xgroup-createconsumer", self.key());
                self.add_consumer(objects, group, name)
            }
        }
    }

    /// Removes a consumer with its pending entries; returns their number.
    pub(super) fn remove_consumer(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
        name: &[u8],
        consumer: &Consumer,
    ) -> Result<u64, Stop> {
        let owned = self.owned(objects, group, consumer.number, StreamId::MIN, u64::MAX)?;
        for id in &owned {
            self.collection.nth(PENDING).remove(objects, &pending_key(group, *id))?;
        }
        self.remove_all(objects, OWNED, &numbers(&[group.number, consumer.number]))?;
        let mut members = self.collection.nth(MEMBERS);
        members.remove(objects, &consumer_key(group, name))?;
        members.remove(objects, &name_key(group, consumer.number))?;
        Ok(owned.len() as u64)
    }

    /// Returns the number of a group's consumers.
    pub(super) fn consumer_count(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
    ) -> Result<u64, Stop> {
        self.count(objects, MEMBERS, &consumer_prefix(group))
    }

    /// Returns all consumers of a group, in the order of their names.
    pub(super) fn consumers(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
    ) -> Result<Vec<(Vec<u8>, Consumer)>, Stop> {
        let mut consumers = Vec::new();
        let prefix = consumer_prefix(group);
        self.scan(objects, MEMBERS, &prefix, |key, value| {
            let Some(name) = key.strip_prefix(&*prefix) else { return Ok(false) };
            consumers.push((name.to_vec(), Consumer::parse(value)?));
            Ok(true)
        })?;
        Ok(consumers)
    }

    /// Returns the name of a consumer.
    pub(super) fn consumer_name(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
        consumer: u64,
    ) -> Result<Vec<u8>, Stop> {
        let name = self.collection.nth(MEMBERS).get(objects, &name_key(group, consumer))?;
        name.ok_or(stop::DAMAGED)
    }

    /// Returns a pending entry.
    pub(super) fn pending(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
        id: StreamId,
    ) -> Result<Option<Pending>, Stop> {
        let found = self.collection.nth(PENDING).get(objects, &pending_key(group, id))?;
        found.map(|bytes| Pending::parse(&bytes)).transpose()
    }

    /// Writes a pending entry. `before` is its former state.
    pub(super) fn put_pending(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
        id: StreamId,
        before: Option<&Pending>,
        pending: &Pending,
    ) -> Result<(), Stop> {
        self.collection.nth(PENDING).set(objects, &pending_key(group, id), &pending.encode())?;
        let owner = before.map(|before| before.consumer);
        if owner == Some(pending.consumer) {
            return Ok(());
        }
        let mut owned = self.collection.nth(OWNED);
        if let Some(owner) = owner {
            owned.remove(objects, &owned_key(group, owner, id))?;
        }
        owned.set(objects, &owned_key(group, pending.consumer, id), &[])?;
        Ok(())
    }

    /// Removes a pending entry; returns whether there was one.
    pub(super) fn remove_pending(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
        id: StreamId,
    ) -> Result<bool, Stop> {
        let Some(pending) = self.pending(objects, group, id)? else { return Ok(false) };
        self.collection.nth(PENDING).remove(objects, &pending_key(group, id))?;
        let key = owned_key(group, pending.consumer, id);
        self.collection.nth(OWNED).remove(objects, &key)?;
        Ok(true)
    }

    /// Returns the number of a group's pending entries.
    pub(super) fn pending_count(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
    ) -> Result<u64, Stop> {
        self.count(objects, PENDING, &numbers(&[group.number]))
    }

    /// Returns the first and the last id of a group's pending entries. There must be some.
    pub(super) fn pending_ends(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
    ) -> Result<(StreamId, StreamId), Stop> {
        let prefix = numbers(&[group.number]);
        let tree = self.collection.nth(PENDING);
        let (begin, _) = tree.rank(objects, &prefix)?;
        let (end, _) = tree.rank(objects, &behind(&prefix))?;
        let id = |entry: Option<tree::Entry<'_>>| {
            let id = entry.and_then(|(key, _)| key.strip_prefix(&*prefix));
            id_of(id.ok_or(stop::DAMAGED)?)
        };
        let first = id(tree.cursor(objects, begin)?.next(objects)?)?;
        let last = id(tree.cursor(objects, end)?.previous(objects)?)?;
        Ok((first, last))
    }

    /// Returns the number of a consumer's pending entries.
    pub(super) fn owned_count(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
        consumer: u64,
    ) -> Result<u64, Stop> {
        self.count(objects, OWNED, &numbers(&[group.number, consumer]))
    }

    /// Visits a group's pending entries from an id on, until `visit` returns `false`.
    pub(super) fn visit_pending(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
        begin: StreamId,
        mut visit: impl FnMut(StreamId, &Pending) -> bool,
    ) -> Result<(), Stop> {
        let prefix = numbers(&[group.number]);
        self.scan(objects, PENDING, &pending_key(group, begin), |key, value| {
            let Some(id) = key.strip_prefix(&*prefix) else { return Ok(false) };
            Ok(visit(id_of(id)?, &Pending::parse(value)?))
        })
    }

    /// Returns the ids of a consumer's pending entries from one on, at most so many.
    pub(super) fn owned(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
        consumer: u64,
        begin: StreamId,
        count: u64,
    ) -> Result<Vec<StreamId>, Stop> {
        let mut ids = Vec::new();
        let prefix = numbers(&[group.number, consumer]);
        self.scan(objects, OWNED, &owned_key(group, consumer, begin), |key, _| {
            let Some(id) = key.strip_prefix(&*prefix) else { return Ok(false) };
            if ids.len() as u64 == count {
                return Ok(false);
            }
            ids.push(id_of(id)?);
            Ok(true)
        })?;
        Ok(ids)
    }

    /// Finds whether a group has still to read or to acknowledge an entry.
    pub(super) fn find_reference(
        &mut self,
        objects: &mut Transaction<'_>,
        groups: &[(Vec<u8>, Group)],
        id: StreamId,
    ) -> Result<bool, Stop> {
        for (_, group) in groups {
            if group.last < id || self.pending(objects, group, id)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes an id from the pending entries of all groups.
    pub(super) fn remove_references(
        &mut self,
        objects: &mut Transaction<'_>,
        groups: &[(Vec<u8>, Group)],
        id: StreamId,
    ) -> Result<(), Stop> {
        for (_, group) in groups {
            self.remove_pending(objects, group, id)?;
        }
        Ok(())
    }

    /// Finds whether an entry that was deleted may lie behind an id.
    fn find_gap_behind(&mut self, id: StreamId) -> Result<bool, Stop> {
        let deleted = self.state.max_deleted;
        Ok(self.len()? > 0 && deleted != StreamId::MIN && id <= deleted)
    }

    /// Returns the number of entries from the first one ever to an id, if it is known.
    fn distance(
        &mut self,
        objects: &mut Transaction<'_>,
        id: StreamId,
    ) -> Result<Option<u64>, Stop> {
        let super::stream::State { last, added, max_deleted, .. } = self.state;
        let length = self.len()?;
        if added == 0 {
            return Ok(Some(0));
        }
        if length == 0 && id <= last {
            return Ok(Some(added));
        }
        if id != StreamId::MIN && id < max_deleted {
            return Ok(None);
        }
        if id >= last {
            return Ok((id == last).then_some(added));
        }
        let first = self.first(objects)?;
        if max_deleted != StreamId::MIN && max_deleted >= first {
            return Ok(None);
        }
        Ok(match id.cmp(&first) {
            std::cmp::Ordering::Less => Some(added.saturating_sub(length)),
            std::cmp::Ordering::Equal => Some(added.saturating_sub(length).saturating_add(1)),
            std::cmp::Ordering::Greater => None,
        })
    }

    /// Returns the number of entries that a group has still to read, if it is known.
    pub(super) fn lag(
        &mut self,
        objects: &mut Transaction<'_>,
        group: &Group,
    ) -> Result<Option<i64>, Stop> {
        let length = self.len()?;
        let added = self.state.added;
        if added == 0 || length == 0 {
            return Ok(Some(0));
        }
        let first = self.first(objects)?;
        if first > group.last && self.state.max_deleted < first {
            return Ok(Some(length as i64));
        }
        let read = match group.entries_read {
            Some(read) if !self.find_gap_behind(group.last)? => Some(read),
            _ => self.distance(objects, group.last)?,
        };
        Ok(read.map(|read| added.wrapping_sub(read) as i64))
    }

    /// Notes that a group has read an entry. `first` is the id of the stream's first entry.
    pub(super) fn advance(
        &mut self,
        objects: &mut Transaction<'_>,
        first: StreamId,
        group: &mut Group,
        id: StreamId,
    ) -> Result<(), Stop> {
        if id <= group.last {
            return Ok(());
        }
        match group.entries_read {
            Some(read) if group.last >= first && !self.find_gap_behind(group.last)? => {
                group.entries_read = Some(read.saturating_add(1));
            }
            _ if self.state.added > 0 => group.entries_read = self.distance(objects, id)?,
            _ => {}
        }
        group.last = id;
        Ok(())
    }
}
