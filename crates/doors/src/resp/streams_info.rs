//! `XINFO`: facts about a stream, its groups and their consumers.

use super::bounds::integer;
use super::commands::{Command, Group as Family, Keys, LOADING, READONLY, STALE, by_subcommand};
use super::context::{Context, is};
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::stream::{self, Stream, reply_id};
use super::stream_groups::{Consumer, Group, Pending};
use super::stream_id::StreamId;
use super::streams_groups::{no_group, wrong_subcommand};
use super::transaction::Transaction;
use super::writer::Writer;
use std::collections::BTreeMap;

const READ: &[Keys] = &[Keys::one("RO access", 2)];

pub(super) const COMMANDS: &[Command] = &[Command::new("xinfo", -2, 0, by_subcommand)
    .subcommands(&[
        Command::new("xinfo|consumers", 4, READONLY, xinfo_consumers)
            .keys(READ)
            .tips(&["nondeterministic_output"])
            .about(Family::Stream, "5.0.0", "Returns the consumers of a group."),
        Command::new("xinfo|stream", -3, READONLY, xinfo_stream).keys(READ).about(
            Family::Stream,
            "5.0.0",
            "Returns facts about a stream.",
        ),
        Command::new("xinfo|help", 2, LOADING | STALE, xinfo_help).about(
            Family::Stream,
            "5.0.0",
            "Describes the subcommands.",
        ),
        Command::new("xinfo|groups", 3, READONLY, xinfo_groups).keys(READ).about(
            Family::Stream,
            "5.0.0",
            "Returns the groups of a stream.",
        ),
    ])
    .about(Family::Stream, "5.0.0", "Commands that describe a stream.")
    .categories("")];

/// The number of entries, and of pending entries, that `FULL` shows by default.
const COUNT: u64 = 10;

/// The entries of a node of Redis. The number of nodes that it would need is an estimate.
const NODE_ENTRIES: u64 = 100;

fn find<'k>(context: &mut Context<'_>, key: &'k [u8]) -> Result<Stream<'k>, Stop> {
    Stream::read(&mut context.objects, key)?.ok_or(stop::NO_SUCH_KEY)
}

fn field(reply: &mut Writer<'_>, name: &str) {
    reply.string(name.as_bytes());
}

fn number(reply: &mut Writer<'_>, name: &str, value: u64) {
    field(reply, name);
    reply.integer(value as i64);
}

fn id(reply: &mut Writer<'_>, name: &str, value: StreamId) {
    field(reply, name);
    reply_id(reply, value);
}

fn number_or_null(reply: &mut Writer<'_>, name: &str, value: Option<i64>) {
    field(reply, name);
    match value {
        Some(value) => reply.integer(value),
        None => reply.null(),
    }
}

/// Reads the options of `STREAM`: the number of entries that are shown, 0 for all, if it is `FULL`.
fn count_of(arguments: Arguments<'_>) -> Result<Option<u64>, Stop> {
    match (arguments.get(3), arguments.get(4), arguments.get(5), arguments.len()) {
        (None, ..) => Ok(None),
        (Some(full), None, ..) if is(full, "FULL") => Ok(Some(COUNT)),
        (Some(full), Some(word), Some(count), 6) if is(full, "FULL") && is(word, "COUNT") => {
            Ok(Some(u64::try_from(integer(count)?).unwrap_or(COUNT)))
        }
        _ => Err(wrong_subcommand(arguments)),
    }
}

fn xinfo_stream(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let mut stream = find(context, &arguments[2])?;
    let full = count_of(arguments)?;
    let Context { objects, reply, .. } = context;
    let length = stream.len()?;
    reply.map(if full.is_some() { 9 } else { 10 });
    number(reply, "length", length);
    let nodes = length.div_ceil(NODE_ENTRIES);
    number(reply, "radix-tree-keys", nodes);
    number(reply, "radix-tree-nodes", nodes + 1);
    id(reply, "last-generated-id", stream.state.last);
    id(reply, "max-deleted-entry-id", stream.state.max_deleted);
    number(reply, "entries-added", stream.state.added);
    id(reply, "recorded-first-entry-id", stream.first(objects)?);
    if let Some(count) = full {
        let count = if count == 0 { u64::MAX } else { count };
        return reply_full(&mut stream, objects, count, reply);
    }
    number(reply, "groups", stream.group_count(objects)?);
    for (name, place) in [("first-entry", 0), ("last-entry", length.saturating_sub(1))] {
        field(reply, name);
        if length == 0 {
            reply.null();
        }
        let places = place..length.min(place + 1);
        stream.visit(objects, places, false, |id, bytes| stream::reply(reply, id, bytes))?;
    }
    Ok(())
}

fn reply_full(
    stream: &mut Stream<'_>,
    objects: &mut Transaction<'_>,
    count: u64,
    reply: &mut Writer<'_>,
) -> Done {
    field(reply, "entries");
    let shown = count.min(stream.len()?);
    reply.array(shown as usize);
    stream.visit(objects, 0..shown, false, |id, bytes| stream::reply(reply, id, bytes))?;
    field(reply, "groups");
    let groups = stream.groups(objects)?;
    reply.array(groups.len());
    for (name, group) in &groups {
        reply_full_group(stream, objects, (name, group), count, reply)?;
    }
    Ok(())
}

fn reply_full_group(
    stream: &mut Stream<'_>,
    objects: &mut Transaction<'_>,
    (name, group): (&[u8], &Group),
    count: u64,
    reply: &mut Writer<'_>,
) -> Done {
    reply.map(7);
    field(reply, "name");
    reply.string(name);
    id(reply, "last-delivered-id", group.last);
    number_or_null(reply, "entries-read", group.entries_read.map(|read| read as i64));
    number_or_null(reply, "lag", stream.lag(objects, group)?);
    number(reply, "pel-count", stream.pending_count(objects, group)?);
    field(reply, "pending");
    let mut pending: Vec<(StreamId, Pending)> = Vec::new();
    stream.visit_pending(objects, group, StreamId::MIN, |id, entry| {
        let has_room = (pending.len() as u64) < count;
        if has_room {
            pending.push((id, *entry));
        }
        has_room
    })?;
    let consumers = stream.consumers(objects, group)?;
    let names: BTreeMap<u64, &[u8]> =
        consumers.iter().map(|(name, consumer)| (consumer.number, &**name)).collect();
    reply.array(pending.len());
    for (id, entry) in pending {
        reply.array(4);
        reply_id(reply, id);
        reply.string(names.get(&entry.consumer).ok_or(stop::DAMAGED)?);
        reply.integer(entry.delivered as i64);
        reply.integer(entry.deliveries as i64);
    }
    field(reply, "consumers");
    reply.array(consumers.len());
    for (name, consumer) in &consumers {
        reply_full_consumer(stream, objects, group, (name, consumer), count, reply)?;
    }
    Ok(())
}

fn reply_full_consumer(
    stream: &mut Stream<'_>,
    objects: &mut Transaction<'_>,
    group: &Group,
    (name, consumer): (&[u8], &Consumer),
    count: u64,
    reply: &mut Writer<'_>,
) -> Done {
    reply.map(5);
    field(reply, "name");
    reply.string(name);
    number(reply, "seen-time", consumer.seen);
    field(reply, "active-time");
    reply.integer(consumer.active.map_or(-1, |time| time as i64));
    number(reply, "pel-count", stream.owned_count(objects, group, consumer.number)?);
    field(reply, "pending");
    let owned = stream.owned(objects, group, consumer.number, StreamId::MIN, count)?;
    reply.array(owned.len());
    for id in owned {
        let pending = stream.pending(objects, group, id)?.ok_or(stop::DAMAGED)?;
        reply.array(3);
        reply_id(reply, id);
        reply.integer(pending.delivered as i64);
        reply.integer(pending.deliveries as i64);
    }
    Ok(())
}

fn xinfo_groups(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let mut stream = find(context, &arguments[2])?;
    let Context { objects, reply, .. } = context;
    let groups = stream.groups(objects)?;
    reply.array(groups.len());
    for (name, group) in &groups {
        reply.map(6);
        field(reply, "name");
        reply.string(name);
        number(reply, "consumers", stream.consumer_count(objects, group)?);
        number(reply, "pending", stream.pending_count(objects, group)?);
        id(reply, "last-delivered-id", group.last);
        number_or_null(reply, "entries-read", group.entries_read.map(|read| read as i64));
        number_or_null(reply, "lag", stream.lag(objects, group)?);
    }
    Ok(())
}

fn xinfo_consumers(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let mut stream = find(context, &arguments[2])?;
    let Context { objects, reply, .. } = context;
    let group = stream.group(objects, &arguments[3])?;
    let group = group.ok_or_else(|| no_group(&arguments[2], &arguments[3]))?;
    let now = objects.now();
    let consumers = stream.consumers(objects, &group)?;
    reply.array(consumers.len());
    for (name, consumer) in &consumers {
        reply.map(4);
        field(reply, "name");
        reply.string(name);
        number(reply, "pending", stream.owned_count(objects, &group, consumer.number)?);
        number(reply, "idle", now.saturating_sub(consumer.seen));
        field(reply, "inactive");
        let inactive = consumer.active.map_or(-1, |time| now.saturating_sub(time) as i64);
        reply.integer(inactive);
    }
    Ok(())
}

fn xinfo_help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    super::help::reply(context, "xinfo");
    Ok(())
}
