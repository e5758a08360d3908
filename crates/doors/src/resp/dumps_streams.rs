//! Streams in the form of Redis's files, for `DUMP` and `RESTORE`.

use super::dumps::Room;
use super::stop::{self, Stop};
use super::stream::{Stream, encode, strings_of};
use super::stream_groups::{Consumer, Pending, check_name};
use super::stream_id::StreamId;
use super::transaction::Transaction;
use crate::rdb::{self, StreamConsumer, StreamEntry, StreamGroup, StreamPending};

fn rdb_id(id: StreamId) -> rdb::Id {
    (id.ms, id.sequence)
}

fn id_of((ms, sequence): rdb::Id) -> StreamId {
    StreamId::new(ms, sequence)
}

/// Reads a stream.
///
/// # Errors
/// Also if there is no room for it.
pub(super) fn read(
    objects: &mut Transaction<'_>,
    key: &[u8],
    room: &mut Room,
) -> Result<rdb::Stream, Stop> {
    /// The bytes of an entry or of a pending entry beside its strings.
    const AROUND_BYTES: usize = 24;
    /// The memory of a group, a consumer or a pending entry beside its name.
    const PART_BYTES: usize = 100;
    let mut stream = Stream::find(objects, key)?.ok_or(stop::DAMAGED)?;
    let mut entries = Vec::new();
    let length = stream.len()?;
    stream.visit(objects, 0..length, false, |id, bytes| {
        let strings = strings_of(bytes)?;
        // The entry has a list of its strings, too.
        room.take(strings.len() + 1, bytes.len() + AROUND_BYTES)?;
        entries.push(StreamEntry { id: rdb_id(id), strings });
        Ok(())
    })?;
    let mut groups = Vec::new();
    for (name, group) in stream.groups(objects)? {
        room.take(1, name.len())?;
        room.take_each(1, PART_BYTES)?;
        let mut consumers = Vec::new();
        for (name, consumer) in stream.consumers(objects, &group)? {
            room.take(1, name.len())?;
            room.take_each(1, PART_BYTES)?;
            let mut pending = Vec::new();
            // One more than there is room for.
            let most = room.left(PART_BYTES) as u64 + 1;
            let all = stream.owned(objects, &group, consumer.number, StreamId::MIN, most)?;
            room.take_each(all.len(), PART_BYTES)?;
            for id in all {
                room.take(0, AROUND_BYTES)?;
                let entry = stream.pending(objects, &group, id)?.ok_or(stop::DAMAGED)?;
                let Pending { delivered, deliveries, .. } = entry;
                pending.push(StreamPending { id: rdb_id(id), delivered, deliveries });
            }
            let Consumer { seen, active, .. } = consumer;
            consumers.push(StreamConsumer { name, seen, active, pending });
        }
        let (last, entries_read) = (rdb_id(group.last), group.entries_read);
        groups.push(StreamGroup { name, last, entries_read, consumers });
    }
    let state = &stream.state;
    let (last, max_deleted) = (rdb_id(state.last), rdb_id(state.max_deleted));
    Ok(rdb::Stream { entries, last, max_deleted, added: state.added, groups })
}

fn bytes_of(entry: &StreamEntry) -> Vec<u8> {
    encode(entry.strings.iter().map(|string| &**string))
}

/// Checks that a stream fits into the store.
pub(super) fn check(objects: &Transaction<'_>, stream: &rdb::Stream) -> Result<(), Stop> {
    for entry in &stream.entries {
        Stream::check(objects, &bytes_of(entry))?;
    }
    for group in &stream.groups {
        check_name(objects, &group.name)?;
        for consumer in &group.consumers {
            check_name(objects, &consumer.name)?;
        }
    }
    Ok(())
}

/// Writes a stream under a key that does not exist.
pub(super) fn write(
    objects: &mut Transaction<'_>,
    key: &[u8],
    value: &rdb::Stream,
    expires: Option<u64>,
) -> Result<(), Stop> {
    let mut stream = Stream::new(objects, key);
    for entry in &value.entries {
        stream.add(objects, id_of(entry.id), &bytes_of(entry))?;
    }
    stream.state.last = id_of(value.last);
    stream.state.added = value.added;
    stream.state.max_deleted = id_of(value.max_deleted);
    for StreamGroup { name, last, entries_read, consumers } in &value.groups {
        let group = stream.add_group(objects, name, id_of(*last), *entries_read)?;
        for StreamConsumer { name, seen, active, pending } in consumers {
            let consumer = stream.add_consumer(objects, &group, name)?;
            let consumer = Consumer { seen: *seen, active: *active, ..consumer };
            stream.put_consumer(objects, &group, name, &consumer)?;
            for StreamPending { id, delivered, deliveries } in pending {
                let (consumer, delivered, deliveries) = (consumer.number, *delivered, *deliveries);
                let entry = Pending { consumer, delivered, deliveries };
                stream.put_pending(objects, &group, id_of(*id), None, &entry)?;
            }
        }
    }
    stream.collection.expires = expires;
    stream.save(objects)
}
